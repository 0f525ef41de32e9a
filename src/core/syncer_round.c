/* core/syncer_round.c - the life of a round: pull, quorum, grace, merge, store, publish. Pushes: syncer_push.c.
 *
 *   IDLE --first pull--> GATHER --due tick--> OPEN --K pushes held--> GRACE --all in, or time--> MERGING
 *        <--published-- STORING <--merged--------------------------------------------------------+
 *   GATHER, OPEN, GRACE --superseded, or nobody left--> IDLE (void)
 *
 * `waiting` counts the live learners whose push may still come; a learner that dies,
 * skips or breaks the protocol leaves it at once, so it can hold nobody up (I7).
 */
#include "core/syncer_int.h"

#include "base/check.h"
#include "core/grace.h"

/* ---- pull ---- */

void pl_sync_void_round(struct pl_syncer *s, uint32_t f, struct pl_sync_fxs *out)
{
    struct fragment *fr = &s->fragments[f];
    pl_assert(fr->state == ROUND_GATHER || fr->state == ROUND_OPEN || fr->state == ROUND_GRACE);
    TRACE(out, VOID, fr->number, fr->round, fr->held);
    for (uint32_t i = 0; i < s->known; i++)
        pl_sync_forget_push(s, s->by_identity[i], f, out);
    pl_assert(fr->waiting == 0 && fr->held == 0);
    pl_heap_remove(&s->timers, pl_sync_grace_timer(s, f));
    fr->state = ROUND_IDLE;
    s->rounds_void++;
}

static bool busy(const struct fragment *fr)
{
    return fr->state == ROUND_MERGING || fr->state == ROUND_STORING;
}

static void begin_round(struct pl_syncer *s, uint32_t f, uint64_t tick, struct pl_sync_fxs *out)
{
    struct fragment *fr = &s->fragments[f];
    if (fr->state != ROUND_IDLE) {
        PL_MARK("syncer.superseded");
        for (uint32_t i = 0; i < s->known; i++)
            if (pl_sync_outstanding(cell_of(s, s->by_identity[i], f)->push))
                pl_sync_leave_behind(s, s->by_identity[i], f, out); /* its line has better things to carry */
        pl_sync_void_round(s, f, out);
    }
    fr->state = ROUND_GATHER;
    fr->round = PL_ROUND(s->epoch, tick);
    fr->round_tick = tick;
}

static void send_pull(const struct pl_syncer *s, uint32_t m, uint32_t f, struct pl_sync_fxs *out)
{
    const struct fragment *fr = &s->fragments[f];
    struct pl_msg msg = {.type = PL_MSG_PULL,
                         .u.pull = {.fragment = fr->number, .round = fr->round, .base_version = fr->version}};
    pl_sync_send(out, s->learners[m].control, &msg);
}

static void ask(struct pl_syncer *s, uint32_t m, uint32_t f, struct pl_sync_fxs *out)
{
    struct fragment *fr = &s->fragments[f];
    struct cell *c = cell_of(s, m, f);
    pl_sync_move_push(s, m, f, PUSH_PULLED);
    c->round = fr->round;
    c->pulled_ns = s->now;
    c->hurried = 0;
    c->counted = 1;
    fr->waiting++;
    s->learners[m].rounds_pulled++;
    send_pull(s, m, f, out);
    TRACE(out, PULL, fr->number, fr->round, s->learners[m].identity, fr->version);
}

/* Back in time: its pushes may still come. A PULL it has not answered may be lost with the old connection, so it is
 * sent again; the learner ignores one it knows. */
void pl_sync_recount(struct pl_syncer *s, uint32_t m, struct pl_sync_fxs *out)
{
    pl_sync_line_mended(s, m);
    for (uint32_t f = 0; f < s->fragment_count; f++) {
        struct cell *c = cell_of(s, m, f);
        if (!pl_sync_outstanding(c->push))
            continue;
        pl_assert(!c->counted);
        PL_MARK("syncer.back_in_round");
        c->counted = 1;
        s->fragments[f].waiting++;
        if (c->push == PUSH_PULLED)
            send_pull(s, m, f, out);
    }
}

bool pl_sync_pull(struct pl_syncer *s, uint32_t m, uint32_t f, uint64_t tick, struct pl_sync_fxs *out)
{
    struct fragment *fr = &s->fragments[f];
    struct learner *l = &s->learners[m];
    struct cell *c = cell_of(s, m, f);
    pl_assert(l->state == LEARNER_LIVE);
    if (l->bulk == PL_NONE32 || l->pulls_out > pl_sync_overlap_eff(s, m) + 1)
        return false;
    if (fr->state == ROUND_GRACE && fr->round_tick != tick) {
        fr->grace_until_ns = /* with its quorum still there it is merged, not voided by the next round */
            pl_min64(fr->grace_until_ns, s->now);
        pl_sync_consider(s, f, out);
    }
    if (busy(fr) || (fr->state == ROUND_GRACE && fr->round_tick != tick)) {
        c->deferred = 1; /* asked once the version it must build on is out, if that is before the due tick */
        fr->deferred_tick = tick;
        return false;
    }
    if (c->acked != fr->version && c->sending != fr->version) {
        if (c->met)
            pl_sync_line_full(s, m, out);
        return false; /* still catching up */
    }
    if (fr->state == ROUND_IDLE || fr->round_tick != tick)
        begin_round(s, f, tick, out);
    if (c->push == PUSH_NONE)
        ask(s, m, f, out);
    return true;
}

void pl_sync_pull_closing(struct pl_syncer *s, uint32_t m, uint32_t f, struct pl_sync_fxs *out)
{
    if (cell_of(s, m, f)->push == PUSH_NONE)
        ask(s, m, f, out);
}

static void pull_deferred(struct pl_syncer *s, uint32_t f, struct pl_sync_fxs *out)
{
    struct fragment *fr = &s->fragments[f];
    uint64_t tick = fr->deferred_tick;
    fr->deferred_tick = 0;
    for (uint32_t i = 0; i < s->known; i++) {
        uint32_t m = s->by_identity[i];
        struct cell *c = cell_of(s, m, f);
        if (c->deferred && tick > s->tick && s->learners[m].state == LEARNER_LIVE &&
            s->phase == PL_PHASE_RUNNING) {
            PL_MARK("syncer.deferred_pull");
            pl_sync_deliver(s, m, f, 0, out); /* what the pull builds on goes first */
            if (pl_sync_pull(s, m, f, tick, out))
                c->hurried = 1;
        }
        c->deferred = 0;
    }
}

/* ---- due, quorum, grace ---- */

void pl_sync_due(struct pl_syncer *s, uint32_t f, struct pl_sync_fxs *out)
{
    struct fragment *fr = &s->fragments[f];
    if (busy(fr)) {
        PL_MARK("syncer.busy_at_due");
        s->rounds_busy++;
        fr->deferred_tick = 0;
        TRACE(out, BUSY, fr->number, s->tick);
        return;
    }
    if (fr->state != ROUND_GATHER || fr->round_tick != s->tick) {
        pl_sync_announce(s, f); /* nobody was asked: whose turn is the next gets what it builds on */
        return;
    }
    fr->state = ROUND_OPEN;
    fr->due_ns = s->now;
    TRACE(out, DUE, fr->number, fr->round, fr->held, fr->waiting);
    pl_sync_consider(s, f, out);
}

static uint64_t overlap_of(const struct pl_syncer *s, uint32_t m)
{
    return pl_sync_overlap_eff(s, m);
}

static uint64_t grace_ns(struct pl_syncer *s)
{
    struct pl_grace_in in = {
        .step_ns = s->interval,
        .quorum_ns = s->quorum_wait.mean,
        .sync_ns = s->sync_time.mean,
        .overlap_steps = pl_max32((uint32_t)pl_sync_kth(s, s->quorum, overlap_of), s->overlap) * s->stretch,
        .gamma_ppm = s->manifest->gamma_ppm,
        .stretch = s->stretch,
    };
    return pl_grace_ns(&in);
}

static void begin_grace(struct pl_syncer *s, uint32_t f, struct pl_sync_fxs *out)
{
    struct fragment *fr = &s->fragments[f];
    pl_average_add(&s->quorum_wait, s->now - fr->due_ns);
    uint64_t grace = pl_mutant(16) ? 3600 * PL_SEC : grace_ns(s);
    fr->state = ROUND_GRACE;
    fr->grace_until_ns = s->now + grace;
    pl_heap_set(&s->timers, pl_sync_grace_timer(s, f), fr->grace_until_ns);
    TRACE(out, QUORUM, fr->number, fr->round, fr->held, grace);
}

/* ---- merge ---- */

/* How late a round ends whose deadline is set: the host's clock and its other work, never a learner (I7). */
static void note_lateness(struct pl_syncer *s, const struct fragment *fr)
{
    if (s->now < fr->grace_until_ns)
        return;
    s->rounds_graced += fr->waiting > 0 ? 1 : 0;
    s->grace_late_ns = pl_max64(s->grace_late_ns, s->now - fr->grace_until_ns);
}

/* The learners whose pushes are in this state, by identity: the order of summation (I14). */
static uint32_t list_contributors(struct pl_syncer *s, uint32_t f, enum push_state state)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->known; i++) {
        uint32_t m = s->by_identity[pl_mutant(12) ? s->known - 1 - i : i];
        const struct cell *c = cell_of(s, m, f);
        const struct learner *l = &s->learners[m];
        if (c->push != (uint8_t)state)
            continue;
        pl_assert(c->round == s->fragments[f].round && c->steps > 0);
        s->contributors[n++] = (struct pl_contributor){.learner = m,
                                                       .identity = l->identity,
                                                       .incarnation = l->incarnation,
                                                       .steps = c->steps,
                                                       .tokens = c->tokens,
                                                       .seen_tokens = l->tokens,
                                                       .past_tokens = l->past_tokens,
                                                       .unit = l->unit,
                                                       .cursor = l->cursor};
    }
    s->contributors_used = n;
    return n;
}

static void begin_merge(struct pl_syncer *s, uint32_t f, struct pl_sync_fxs *out)
{
    struct fragment *fr = &s->fragments[f];
    pl_assert(fr->held > 0 && s->contributors_used == 0);
    uint32_t n = list_contributors(s, f, PUSH_HELD);
    pl_assert(n == fr->held || pl_mutant(4));
    note_lateness(s, fr);
    TRACE(out, MERGE, fr->number, fr->round, n, fr->version);
    struct pl_sync_effect *fx = pl_sync_emit(out, PL_SYNC_FX_MERGE);
    fx->u.merge.fragment = fr->number;
    fx->u.merge.round = fr->round;
    fx->u.merge.base_version = fr->version;
    fx->u.merge.closing = fr->closing;
    fx->u.merge.contributor_count = n;
    fx->u.merge.contributors = s->contributors;
    for (uint32_t i = 0; i < s->known; i++) {
        uint32_t m = s->by_identity[i];
        const struct cell *c = cell_of(s, m, f);
        if (c->push == PUSH_HELD) {
            TRACE(out, PART, fr->number, s->learners[m].identity, c->steps, c->tokens);
            pl_sync_move_push(s, m, f, PUSH_MERGING);
        } else if (c->push != PUSH_NONE) {
            pl_sync_leave_behind(s, m, f, out);
        }
    }
    pl_assert(fr->waiting == 0);
    pl_heap_remove(&s->timers, pl_sync_grace_timer(s, f));
    fr->held = 0;
    fr->state = ROUND_MERGING;
    fr->merge_ns = s->now;
}

/* A merge needs the step's contributor list; when that is taken, the next step does it, at the same time. */
static void merge_when_free(struct pl_syncer *s, uint32_t f, struct pl_sync_fxs *out)
{
    if (s->contributors_used == 0) {
        begin_merge(s, f, out);
        return;
    }
    struct fragment *fr = &s->fragments[f];
    fr->grace_until_ns = /* decided: a learner that comes back meanwhile changes nothing */
        pl_min64(fr->grace_until_ns, s->now);
    pl_heap_set(&s->timers, pl_sync_grace_timer(s, f), s->now);
}

/* A closing round waits for everybody who may still answer, up to its deadline; K does not matter. */
static void consider_closing(struct pl_syncer *s, uint32_t f, struct pl_sync_fxs *out)
{
    struct fragment *fr = &s->fragments[f];
    if (!(pl_mutant(19) && fr->held > 0)) {
        uint64_t until =
            fr->waiting > 0 ? fr->grace_until_ns : pl_min64(fr->grace_until_ns, pl_sync_hope_ns(s));
        if (s->now < until) {
            pl_heap_set(&s->timers, pl_sync_grace_timer(s, f), until);
            return;
        }
    }
    if (fr->held > 0) {
        merge_when_free(s, f, out);
        return;
    }
    pl_sync_void_round(s, f, out);
    pl_sync_fragment_closed(s, f);
}

void pl_sync_consider(struct pl_syncer *s, uint32_t f, struct pl_sync_fxs *out)
{
    struct fragment *fr = &s->fragments[f];
    if (fr->closing && fr->state == ROUND_OPEN) {
        consider_closing(s, f, out);
        return;
    }
    if (fr->state == ROUND_GRACE && fr->held < s->quorum) {
        PL_MARK("syncer.quorum_lost");
        fr->state = ROUND_OPEN;
        pl_heap_remove(&s->timers, pl_sync_grace_timer(s, f));
    }
    if (fr->state == ROUND_OPEN && fr->held >= s->quorum)
        begin_grace(s, f, out);
    if (fr->state == ROUND_GRACE && (fr->waiting == 0 || s->now >= fr->grace_until_ns))
        merge_when_free(s, f, out);
}

static bool timed(const struct fragment *fr)
{
    return fr->state == ROUND_GRACE || (fr->closing && fr->state == ROUND_OPEN);
}

/* The timer may ring before its time: when somebody left, or a merge had to wait for the next step. */
void pl_sync_grace_over(struct pl_syncer *s, uint32_t f, struct pl_sync_fxs *out)
{
    const struct fragment *fr = &s->fragments[f];
    pl_assert(timed(fr));
    pl_sync_consider(s, f, out);
    if (timed(fr) && !pl_heap_has(&s->timers, pl_sync_grace_timer(s, f)))
        pl_heap_set(&s->timers, pl_sync_grace_timer(s, f),
                    fr->grace_until_ns > s->now ? fr->grace_until_ns : s->now + PL_MS);
}

/* ---- merged, stored, published ---- */

/* The contributors' pushes are done with; `merged` says whether they count. */
static void settle_contributors(struct pl_syncer *s, uint32_t f, bool merged)
{
    for (uint32_t i = 0; i < s->known; i++) {
        uint32_t m = s->by_identity[i];
        struct cell *c = cell_of(s, m, f);
        if (c->push != PUSH_MERGING)
            continue;
        pl_sync_move_push(s, m, f, PUSH_NONE);
        if (!merged)
            continue;
        if (!pl_mutant(3))
            c->last_merged = s->fragments[f].round;
        s->learners[m].rounds_merged++;
    }
}

void pl_sync_merged(struct pl_syncer *s, const struct pl_sync_event *ev, struct pl_sync_fxs *out)
{
    uint32_t f = s->local_of[ev->u.merged.fragment];
    pl_assert(f != PL_NONE32);
    struct fragment *fr = &s->fragments[f];
    pl_assert(fr->state == ROUND_MERGING && fr->round == ev->u.merged.round);
    if (!ev->u.merged.good) {
        PL_MARK("syncer.merge_not_finite");
        settle_contributors(s, f, false);
        fr->state = ROUND_IDLE;
        s->rounds_void++;
        TRACE(out, VOID, fr->number, fr->round, 0);
        if (fr->closing)
            pl_sync_fragment_closed(s, f);
        pull_deferred(s, f, out);
        return;
    }
    fr->state = ROUND_STORING;
    fr->new_digest = ev->u.merged.digest;
    fr->new_bytes = ev->u.merged.update_bytes;
    pl_sync_store_want(s, &fr->store_again);
}

void pl_sync_store_round(struct pl_syncer *s, uint32_t f, struct pl_sync_fxs *out)
{
    struct fragment *fr = &s->fragments[f];
    struct pl_record r = {.type = PL_RECORD_ROUND,
                          .fragment = fr->number,
                          .round = fr->round,
                          .version = fr->version + 1,
                          .digest = fr->new_digest,
                          .update_bytes = fr->new_bytes,
                          .contributor_count = list_contributors(s, f, PUSH_MERGING),
                          .contributors = s->contributors};
    fr->store_seq = pl_sync_store(s, &fr->store_again, &r, out);
    if (pl_mutant(1))
        pl_sync_round_stored(s, f, out);
}

void pl_sync_round_stored(struct pl_syncer *s, uint32_t f, struct pl_sync_fxs *out)
{
    struct fragment *fr = &s->fragments[f];
    pl_assert(fr->state == ROUND_STORING && !fr->store_again);
    settle_contributors(s, f, true);
    for (uint32_t i = 0; i < s->known; i++) {
        uint32_t m = s->by_identity[i];
        if (s->learners[m].state == LEARNER_LIVE && cell_of(s, m, f)->acked == fr->version)
            s->learners[m].behind++;
    }
    pl_sync_ring_add(fr, fr->new_bytes, fr->digest);
    fr->version++;
    fr->digest = fr->new_digest;
    fr->state = ROUND_IDLE;
    fr->store_seq = 0;
    s->rounds_merged++;
    pl_average_add(&s->sync_time, s->now - fr->merge_ns);
    struct pl_sync_effect *fx = pl_sync_emit(out, PL_SYNC_FX_PUBLISH);
    fx->u.publish.fragment = fr->number;
    fx->u.publish.version = fr->version;
    fx->u.publish.oldest = fr->version - fr->ring_count;
    TRACE(out, PUBLISH, fr->number, fr->version, fr->digest);
    pl_sync_announce(s, f);
    if (fr->closing)
        pl_sync_fragment_closed(s, f);
    pull_deferred(s, f, out);
}
