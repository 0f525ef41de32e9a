/* core/syncer_push.c - a learner's push of one fragment, from PULL to being held.
 *
 *   NONE -> PULLED -> RECEIVING -> VERIFYING -> HELD -> MERGING -> NONE, and back to NONE from anywhere but MERGING
 *
 * A push that is not in the merge is dropped, and nothing is lost by it: the work stays in the learner (I12). What a
 * peer claims is checked against the manifest and the round before anything is sized by it.
 */
#include "core/syncer_int.h"

#include "base/check.h"
#include "wire/chunk.h"

/* push_moves[from] has bit `to` set when the move is allowed. */
static const uint8_t push_moves[PUSH_STATES] = {
    [PUSH_NONE] = 1 << PUSH_PULLED,
    [PUSH_PULLED] = 1 << PUSH_NONE | 1 << PUSH_RECEIVING,
    [PUSH_RECEIVING] = 1 << PUSH_NONE | 1 << PUSH_VERIFYING,
    [PUSH_VERIFYING] = 1 << PUSH_NONE | 1 << PUSH_HELD,
    [PUSH_HELD] = 1 << PUSH_NONE | 1 << PUSH_MERGING,
    [PUSH_MERGING] = 1 << PUSH_NONE,
};

bool pl_sync_outstanding(uint8_t push)
{
    return push == PUSH_PULLED || push == PUSH_RECEIVING || push == PUSH_VERIFYING;
}

static bool has_buffer(uint8_t push)
{
    return push == PUSH_RECEIVING || push == PUSH_VERIFYING || push == PUSH_HELD;
}

static void uncount_cell(struct pl_syncer *s, uint32_t m, uint32_t f)
{
    struct cell *c = cell_of(s, m, f);
    if (!c->counted)
        return;
    c->counted = 0;
    pl_assert(s->fragments[f].waiting > 0);
    s->fragments[f].waiting--;
}

static bool is_coming(uint8_t push)
{
    return push == PUSH_RECEIVING || push == PUSH_VERIFYING;
}

void pl_sync_move_push(struct pl_syncer *s, uint32_t m, uint32_t f, enum push_state to)
{
    struct cell *c = cell_of(s, m, f);
    uint8_t from = c->push;
    pl_assert((push_moves[from] & (1 << to)) != 0);
    s->learners[m].pulls_out +=
        (pl_sync_outstanding((uint8_t)to) ? 1u : 0u) - (pl_sync_outstanding(from) ? 1u : 0u);
    c->push = (uint8_t)to;
    if (!is_coming(from) && is_coming(c->push))
        pl_sync_line_begun(s, m);
    if (is_coming(from) && !is_coming(c->push))
        pl_sync_line_ended(s, m, to == PUSH_HELD);
    if (pl_sync_outstanding(c->push))
        return;
    uncount_cell(s, m, f);
    if (pl_sync_outstanding(from))
        pl_sync_line_answered(s, m, c->pulled_ns);
}

static void discard(struct pl_syncer *s, uint32_t m, uint32_t f, struct pl_sync_fxs *out)
{
    struct pl_sync_effect *fx = pl_sync_emit(out, PL_SYNC_FX_DISCARD);
    fx->u.push.learner = m;
    fx->u.push.fragment = s->fragments[f].number;
    fx->u.push.round = cell_of(s, m, f)->round;
}

/* Back to NONE, freeing what the host holds for it. */
void pl_sync_forget_push(struct pl_syncer *s, uint32_t m, uint32_t f, struct pl_sync_fxs *out)
{
    struct cell *c = cell_of(s, m, f);
    pl_assert(c->push != PUSH_MERGING);
    if (c->push == PUSH_NONE)
        return;
    if (has_buffer(c->push))
        discard(s, m, f, out);
    if (c->push == PUSH_HELD)
        s->fragments[f].held--;
    pl_sync_move_push(s, m, f, PUSH_NONE);
}

void pl_sync_forget_pushes(struct pl_syncer *s, uint32_t m, struct pl_sync_fxs *out)
{
    for (uint32_t f = 0; f < s->fragment_count; f++)
        if (cell_of(s, m, f)->push != PUSH_MERGING)
            pl_sync_forget_push(s, m, f, out);
}

/* A lost learner is not waited for; its partial pushes stay, in case it comes back in time. */
void pl_sync_uncount(struct pl_syncer *s, uint32_t m)
{
    for (uint32_t f = 0; f < s->fragment_count && !pl_mutant(11); f++) {
        if (!cell_of(s, m, f)->counted)
            continue;
        uncount_cell(s, m, f);
        /* Looked at one by one, each with room for its effects. */
        if (pl_heap_has(&s->timers, pl_sync_grace_timer(s, f)))
            pl_heap_set(&s->timers, pl_sync_grace_timer(s, f), s->now);
    }
}

/* Was asked and has not answered: it needs an earlier pull, or fewer. */
void pl_sync_too_slow(struct pl_syncer *s, uint32_t m, uint32_t f, struct pl_sync_fxs *out)
{
    const struct cell *c = cell_of(s, m, f);
    if (c->counted && !c->hurried)
        pl_sync_lead_miss(s, m, c->pulled_ns, out);
}

/* The round goes on without this push. */
void pl_sync_leave_behind(struct pl_syncer *s, uint32_t m, uint32_t f, struct pl_sync_fxs *out)
{
    struct cell *c = cell_of(s, m, f);
    struct learner *l = &s->learners[m];
    pl_sync_too_slow(s, m, f, out);
    if (l->control != PL_NONE32) {
        struct pl_msg msg = {.type = PL_MSG_DROP, .u.drop = {s->fragments[f].number, c->round}};
        pl_sync_send(out, l->control, &msg);
    }
    pl_sync_forget_push(s, m, f, out);
}

/* ---- the push ---- */

/* Was this round ever asked for? Rounds of the future were not; older ones are only late. How far the clock of an
 * earlier life came is not known. */
static bool round_past(const struct pl_syncer *s, uint64_t round)
{
    uint64_t epoch = pl_round_epoch(round);
    return epoch < s->epoch || (epoch == s->epoch && pl_round_tick(round) <= s->tick + s->period);
}

static void late(struct pl_syncer *s, uint32_t m, const struct pl_msg_push *p, struct pl_sync_fxs *out)
{
    PL_MARK("syncer.late_push");
    if (!round_past(s, p->round)) {
        pl_sync_drop_learner(s, m, PL_REASON_WRONG_STATE, out, "PUSH.round %lu.%lu was never asked for",
                             pl_round_epoch(p->round), pl_round_tick(p->round));
        return;
    }
    if (cell_of(s, m, s->local_of[p->fragment])->last_merged == p->round)
        return; /* sent again after a reconnect; it is in the version whose UPDATE is on its way */
    TRACE(out, LATE, p->fragment, p->round, s->learners[m].identity);
    struct pl_msg msg = {.type = PL_MSG_DROP, .u.drop = {p->fragment, p->round}};
    pl_sync_send(out, s->learners[m].control, &msg);
}

static bool push_plausible(struct pl_syncer *s, uint32_t m, uint32_t f, const struct pl_msg_push *p,
                           struct pl_sync_fxs *out)
{
    uint64_t most;
    if (p->steps == 0) {
        pl_sync_drop_learner(s, m, PL_REASON_BAD_MESSAGE, out, "PUSH.steps is 0, at least 1 is expected");
        return false;
    }
    if (!pl_mul_overflow(p->steps, s->manifest->step_tokens_max, &most) && p->tokens > most) {
        pl_sync_drop_learner(s, m, PL_REASON_BAD_MESSAGE, out,
                             "PUSH.tokens is %lu in %lu steps, at most %lu a step are allowed", p->tokens,
                             p->steps, s->manifest->step_tokens_max);
        return false;
    }
    if (p->bytes == 0 || p->bytes > s->fragments[f].push_bytes_max) {
        pl_sync_drop_learner(s, m, PL_REASON_BAD_MESSAGE, out,
                             "PUSH.bytes is %lu, between 1 and %lu is expected", p->bytes,
                             s->fragments[f].push_bytes_max);
        return false;
    }
    return true;
}

static bool same_header(const struct cell *c, const struct pl_msg_push *p)
{
    return c->steps == p->steps && c->tokens == p->tokens && c->bytes == p->bytes && c->digest == p->digest;
}

static void accept_push(struct pl_syncer *s, uint32_t m, uint32_t f, const struct pl_msg_push *p,
                        struct pl_sync_fxs *out)
{
    struct cell *c = cell_of(s, m, f);
    if (!push_plausible(s, m, f, p, out))
        return;
    if (p->base_version != s->fragments[f].version && !pl_mutant(13)) {
        PL_MARK("syncer.wrong_base");
        pl_sync_leave_behind(s, m, f, out);
        pl_sync_consider(s, f, out);
        return;
    }
    c->steps = p->steps;
    c->tokens = p->tokens;
    c->bytes = p->bytes;
    c->digest = p->digest;
    c->mask = 0;
    pl_sync_move_push(s, m, f, PUSH_RECEIVING);
}

void pl_sync_push(struct pl_syncer *s, uint32_t m, const struct pl_msg_push *p, struct pl_sync_fxs *out)
{
    uint32_t f;
    if (!pl_sync_owned(s, m, p->fragment, "PUSH", &f, out))
        return;
    const struct cell *c = cell_of(s, m, f);
    if (c->push == PUSH_NONE || c->round != p->round) {
        late(s, m, p, out);
    } else if (c->push == PUSH_PULLED) {
        accept_push(s, m, f, p, out);
    } else if (!same_header(c, p)) {
        pl_sync_drop_learner(s, m, PL_REASON_WRONG_STATE, out, "PUSH of round %lu.%lu came twice and differs",
                             pl_round_epoch(p->round), pl_round_tick(p->round));
    } else {
        PL_MARK("syncer.duplicate_push"); /* the first one counts */
    }
}

void pl_sync_data(struct pl_syncer *s, uint32_t m, const struct pl_msg_data *d, struct pl_sync_fxs *out)
{
    uint32_t f;
    if (!pl_sync_owned(s, m, d->fragment, "DATA", &f, out))
        return;
    struct cell *c = cell_of(s, m, f);
    if (c->push != PUSH_RECEIVING || c->round != d->id)
        return; /* of a push we dropped */
    if (d->index >= pl_chunk_count(c->bytes) || d->bytes.len != pl_chunk_len(c->bytes, d->index)) {
        pl_sync_drop_learner(s, m, PL_REASON_BAD_MESSAGE, out,
                             "DATA.index %u with %u bytes does not fit a push of %lu bytes",
                             (unsigned)d->index, (unsigned)d->bytes.len, c->bytes);
        return;
    }
    if ((c->mask >> d->index & 1) != 0)
        return; /* sent again after a reconnect */
    c->mask |= UINT64_C(1) << d->index;
    bool complete = c->mask == pl_chunk_all(c->bytes);
    struct pl_sync_effect *fx = pl_sync_emit(out, PL_SYNC_FX_KEEP);
    fx->u.push.learner = m;
    fx->u.push.fragment = d->fragment;
    fx->u.push.round = c->round;
    fx->u.push.bytes = c->bytes;
    fx->u.push.index = d->index;
    if (!complete)
        return;
    pl_sync_move_push(s, m, f, PUSH_VERIFYING);
    fx = pl_sync_emit(out, PL_SYNC_FX_VERIFY);
    fx->u.push.learner = m;
    fx->u.push.fragment = d->fragment;
    fx->u.push.round = c->round;
    fx->u.push.bytes = c->bytes;
    fx->u.push.digest = c->digest;
    fx->u.push.steps = c->steps;
}

void pl_sync_skip(struct pl_syncer *s, uint32_t m, const struct pl_msg_skip *k, struct pl_sync_fxs *out)
{
    uint32_t f;
    if (!pl_sync_owned(s, m, k->fragment, "SKIP", &f, out))
        return;
    struct cell *c = cell_of(s, m, f);
    if (!pl_sync_outstanding(c->push) || c->round != k->round)
        return;
    pl_sync_forget_push(s, m, f, out);
    pl_sync_consider(s, f, out);
}

void pl_sync_verified(struct pl_syncer *s, const struct pl_sync_event *ev, struct pl_sync_fxs *out)
{
    uint32_t m = ev->u.verified.learner;
    uint32_t f = s->local_of[ev->u.verified.fragment];
    pl_assert(m < s->learners_max && f != PL_NONE32);
    struct cell *c = cell_of(s, m, f);
    if (c->push != PUSH_VERIFYING || c->round != ev->u.verified.round)
        return; /* the round went on without it */
    struct learner *l = &s->learners[m];
    if (!ev->u.verified.good) {
        PL_MARK("syncer.bad_content");
        pl_sync_forget_push(s, m, f, out);
        if (l->control != PL_NONE32)
            pl_sync_drop_learner(s, m, PL_REASON_BAD_CONTENT, out,
                                 "the push of fragment %u cannot be believed: a wrong digest, numbers not "
                                 "finite or far too large, or another way than all others go; see the "
                                 "syncer's log",
                                 (unsigned)ev->u.verified.fragment);
        pl_sync_consider(s, f, out);
        return;
    }
    if (c->counted)
        pl_sync_lead_hit(s, m, f, s->now - c->pulled_ns, out);
    pl_sync_move_push(s, m, f, PUSH_HELD);
    s->fragments[f].held++;
    TRACE(out, HELD, ev->u.verified.fragment, c->round, l->identity, c->steps);
    pl_sync_consider(s, f, out);
}
