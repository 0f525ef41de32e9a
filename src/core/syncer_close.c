/* core/syncer_close.c - the end of the budget: one closing round per fragment takes everyone's remainder.
 *
 * The home shard closes when the token clock reaches the budget and tells every learner to stop. Any shard closes
 * when most of its live learners carry the "finishing" flag: so the other shards learn of it, and a home shard that
 * crashed after saying FINISH. Fewer than K of them, or a shard that has just started, must see it last for a while:
 * the first peer to call after a restart cannot end the run before the others are back. A closing round pulls everybody who is here, ignores K and lasts until
 * all have answered or its deadline. When every fragment is closed that fact is made durable; then each learner that
 * has every version is dismissed.
 */
#include "core/syncer_int.h"

#include "base/check.h"

#define CLOSING_NS_MIN (10 * PL_SEC)
#define CLOSING_NS_MAX (600 * PL_SEC)
#define SETTLE_NS (20 * PL_SEC) /* longer than a learner's longest pause between two dials */

static bool budget_reached(const struct pl_syncer *s)
{
    return is_home(s) && pl_sync_clock(s) >= s->manifest->token_budget;
}

/* After a restart those who were here before get time to call again. */
void pl_sync_await(struct pl_syncer *s)
{
    s->settled_ns = s->reborn ? s->boot_ns + SETTLE_NS : 0;
    s->awaited = s->reborn ? s->known : 0;
    for (uint32_t i = 0; i < s->awaited; i++)
        s->learners[s->by_identity[i]].awaited = true;
}

/* Home's journal names everybody who was merged or had a work unit: whoever may have something to bring, but for a learner
 * with data of its own that was never merged. With all of them back it waits no longer. Other shards give out no units:
 * theirs name only who was merged, and they wait. */
void pl_sync_await_no_more(struct pl_syncer *s, struct learner *l)
{
    if (!l->awaited)
        return;
    l->awaited = false;
    pl_assert(s->awaited > 0);
    s->awaited--;
    if (s->awaited == 0 && is_home(s))
        s->settled_ns = pl_min64(s->settled_ns, s->now);
}

/* Somebody was here a moment ago and is not now: a blip is not the end of its work. Until when it is hoped for. */
uint64_t pl_sync_hope_ns(const struct pl_syncer *s)
{
    uint64_t until = 0;
    for (uint32_t i = 0; i < s->known; i++) {
        const struct learner *l = &s->learners[s->by_identity[i]];
        if (l->state != LEARNER_LIVE && l->control_lost_ns != 0)
            until = pl_max64(until, l->control_lost_ns + SETTLE_NS);
    }
    return until;
}

/* When the learners' flags will have said long enough that the run ends; PL_NEVER while they do not say it. */
uint64_t pl_sync_agreed_ns(const struct pl_syncer *s)
{
    if (s->agreed_ns == PL_NEVER || s->phase != PL_PHASE_RUNNING)
        return PL_NEVER;
    uint64_t settled = s->boot_ns + SETTLE_NS;
    return s->finishing >= s->quorum ? pl_max64(s->agreed_ns, settled)
                                     : pl_max64(s->agreed_ns, s->boot_ns) + SETTLE_NS;
}

static bool learners_agree(struct pl_syncer *s)
{
    if (s->finishing < s->live / 2 + 1)
        s->agreed_ns = PL_NEVER;
    else if (s->agreed_ns == PL_NEVER)
        s->agreed_ns = s->now;
    return s->now >= pl_sync_agreed_ns(s);
}

static void tell_finish(struct pl_syncer *s, uint32_t m, struct pl_sync_fxs *out)
{
    struct learner *l = &s->learners[m];
    if (l->state != LEARNER_LIVE || l->told_finish || !is_home(s))
        return;
    l->told_finish = true;
    pl_sync_send(out, l->control, &(struct pl_msg){.type = PL_MSG_FINISH});
}

void pl_sync_maybe_close(struct pl_syncer *s, struct pl_sync_fxs *out)
{
    if (s->phase != PL_PHASE_RUNNING || !s->listening)
        return;
    if (!learners_agree(s) && !budget_reached(s) && !s->ending)
        return;
    s->phase = PL_PHASE_CLOSING;
    s->tick +=
        s->period; /* past every round that was asked for ahead of time: a closing round is none of them */
    TRACE(out, CLOSING, pl_sync_clock(s), s->tick);
    for (uint32_t m = 0; m < s->learners_max; m++) {
        pl_heap_remove(&s->pulls, m);
        tell_finish(s, m, out);
    }
}

static uint64_t closing_ns(const struct pl_syncer *s)
{
    return pl_clamp64((uint64_t)s->period * s->interval, CLOSING_NS_MIN, CLOSING_NS_MAX);
}

static void begin_closing_round(struct pl_syncer *s, uint32_t f, struct pl_sync_fxs *out)
{
    struct fragment *fr = &s->fragments[f];
    if (fr->state != ROUND_IDLE)
        pl_sync_void_round(s, f, out);
    s->tick++;
    fr->round = PL_ROUND(s->epoch, s->tick);
    fr->round_tick = s->tick;
    fr->state = ROUND_OPEN;
    fr->closing = true;
    fr->due_ns = s->now;
    fr->grace_until_ns = s->now + closing_ns(s);
    pl_heap_set(&s->timers, pl_sync_grace_timer(s, f), fr->grace_until_ns);
    s->closing_open++;
    for (uint32_t i = 0; i < s->known; i++)
        if (s->learners[s->by_identity[i]].state == LEARNER_LIVE)
            pl_sync_pull_closing(s, s->by_identity[i], f, out);
    pl_sync_announce(s, f); /* to those who were not sent it yet */
    TRACE(out, DUE, fr->number, fr->round, fr->held, fr->waiting);
    pl_sync_consider(s, f, out);
}

/* A learner that comes while closing rounds are on is asked too. Its WELCOME may be older than the end. */
void pl_sync_joined_late(struct pl_syncer *s, uint32_t m, struct pl_sync_fxs *out)
{
    if (s->phase == PL_PHASE_CLOSING)
        tell_finish(s, m, out);
    for (uint32_t f = 0; f < s->fragment_count; f++)
        if (s->fragments[f].closing && s->fragments[f].state == ROUND_OPEN)
            pl_sync_pull_closing(s, m, f, out);
    pl_sync_release_if_complete(s, m, out);
}

void pl_sync_fragment_closed(struct pl_syncer *s, uint32_t f)
{
    struct fragment *fr = &s->fragments[f];
    pl_assert(fr->closing && fr->state == ROUND_IDLE && s->closing_open > 0);
    fr->closing = false;
    fr->closed = true;
    s->closing_open--;
}

void pl_sync_store_done(struct pl_syncer *s, struct pl_sync_fxs *out)
{
    s->done_seq = pl_sync_store(s, &s->done_again, &(struct pl_record){.type = PL_RECORD_DONE}, out);
}

/* A few closing rounds at a time; the next one when there is room and the fragment is not with the data plane. */
static bool next_closing_round(struct pl_syncer *s, struct pl_sync_fxs *out)
{
    if (s->closing_open > s->overlap || s->closing_next == s->fragment_count || s->now < s->settled_ns)
        return false;
    const struct fragment *fr = &s->fragments[s->closing_next];
    if (fr->state == ROUND_MERGING || fr->state == ROUND_STORING)
        return false;
    begin_closing_round(s, s->closing_next++, out);
    return true;
}

uint64_t pl_sync_closing_due_ns(const struct pl_syncer *s)
{
    if (s->phase == PL_PHASE_DONE && s->listening && !s->finished_said && s->live == 0)
        return s->settled_ns;
    return s->phase == PL_PHASE_CLOSING && s->settled_ns > s->now ? s->settled_ns : PL_NEVER;
}

static void say_finished(struct pl_syncer *s, struct pl_sync_fxs *out)
{
    s->finished_said = true;
    pl_sync_emit(out, PL_SYNC_FX_FINISHED);
}

bool pl_sync_closing_some(struct pl_syncer *s, struct pl_sync_fxs *out)
{
    if (s->phase == PL_PHASE_DONE && s->live == 0 && s->listening && !s->finished_said &&
        s->now >= s->settled_ns) {
        say_finished(s, out);
        return true;
    }
    if (s->phase != PL_PHASE_CLOSING)
        return false;
    if (next_closing_round(s, out))
        return true;
    if (s->closing_next == s->fragment_count && s->closing_open == 0 && s->done_seq == 0 && !s->done_again) {
        pl_sync_store_want(s, &s->done_again);
        return true;
    }
    return false;
}

void pl_sync_done_stored(struct pl_syncer *s, struct pl_sync_fxs *out)
{
    s->phase = PL_PHASE_DONE;
    TRACE(out, DONE, pl_sync_clock(s));
    for (uint32_t m = 0; m < s->learners_max; m++)
        pl_sync_release_if_complete(s, m, out);
}

void pl_sync_release_if_complete(struct pl_syncer *s, uint32_t m, struct pl_sync_fxs *out)
{
    const struct learner *l = &s->learners[m];
    if (s->phase != PL_PHASE_DONE || l->state != LEARNER_LIVE || l->behind != 0)
        return;
    pl_sync_drop_learner(s, m, PL_REASON_DONE, out, "%s", pl_reason_text(PL_REASON_DONE));
}
