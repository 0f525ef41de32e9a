/* core/syncer_clock.c - reports, the shard's clock t, the run's token clock, and when each learner is asked.
 *
 * The clock (I19): t ticks no sooner than one interval after the last tick, the interval being the K-th
 * smallest average step time of the live learners, and only when K identities have done a step since. It is not "K
 * new reports" (eight learners out of phase would tick eight times a step) and not the K-th largest step count (it
 * would stall when the fastest learner dies).
 *
 * Pulls are kept in a heap by virtual time: ticks with PL_TICK_BITS of fraction, so a change of the interval moves
 * nothing in the heap. Virtual time stops one tick after the last: it never runs ahead of the clock.
 */
#include "core/syncer_int.h"

#include "base/check.h"

enum { STEP_SAMPLE_CLIP = 4 }; /* one long pause counts as at most this many average steps */
#define STEP_NS_MIN PL_US
#define STEP_NS_MAX (3600 * PL_SEC)
#define HEARTBEAT_MIN (100 * PL_MS)
#define HEARTBEAT_MAX (5 * PL_SEC)

/* ---- the K-th smallest of a number over the live learners ---- */

static void swap64(uint64_t *a, uint64_t *b)
{
    uint64_t t = *a;
    *a = *b;
    *b = t;
}

/* Hoare's selection: v[k] becomes the k-th smallest (from 0). */
static uint64_t select_kth(uint64_t *v, uint32_t n, uint32_t k)
{
    uint32_t lo = 0, hi = n - 1;
    while (lo < hi) {
        uint64_t pivot = v[lo + (hi - lo) / 2];
        uint32_t i = lo, j = hi;
        while (i <= j) {
            while (v[i] < pivot)
                i++;
            while (v[j] > pivot)
                j--;
            if (i <= j) {
                swap64(&v[i], &v[j]);
                i++;
                if (j == 0)
                    break;
                j--;
            }
        }
        if (k <= j)
            hi = j;
        else if (k >= i)
            lo = i;
        else
            break;
    }
    return v[k];
}

uint64_t pl_sync_kth(struct pl_syncer *s, uint32_t k, uint64_t (*value)(const struct pl_syncer *, uint32_t m))
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->known; i++) {
        uint32_t m = s->by_identity[i];
        uint64_t v = s->learners[m].state == LEARNER_LIVE ? value(s, m) : 0;
        if (v != 0)
            s->sort_scratch[n++] = v;
    }
    return n >= k ? select_kth(s->sort_scratch, n, k - 1) : 0;
}

static uint64_t step_of(const struct pl_syncer *s, uint32_t m)
{
    return s->learners[m].doubted ? 0 : s->learners[m].step.mean;
}

void pl_sync_update_interval(struct pl_syncer *s)
{
    uint64_t kth = pl_sync_kth(s, s->quorum, step_of);
    s->interval_ns = s->now;
    if (kth != 0)
        s->interval = kth;
}

uint64_t pl_sync_heartbeat(const struct pl_syncer *s)
{
    return s->interval == 0 ? PL_SEC : pl_clamp64(s->interval, HEARTBEAT_MIN, HEARTBEAT_MAX);
}

/* ---- the token clock ---- */

uint64_t pl_sync_clock(const struct pl_syncer *s)
{
    return is_home(s) ? pl_min64(pl_max64(s->clock_floor, s->clock_sum), PL_COUNT_MAX) : 0;
}

static void measure_rate(struct pl_syncer *s)
{
    uint64_t span = s->now - s->rate_ns;
    if (span < PL_SEC)
        return;
    uint64_t clock = pl_sync_clock(s);
    uint64_t rate = pl_mul_div(clock - s->rate_tokens, PL_SEC, span);
    s->rate = s->rate == 0 ? rate : s->rate - s->rate / 4 + rate / 4;
    s->rate_ns = s->now;
    s->rate_tokens = clock;
}

/* What it claimed is taken out of the sum: the clock, which never goes back, waits for the others. Before BOOT nobody
 * has been told a clock in this life but that of the journal. */
void pl_sync_doubt(struct pl_syncer *s, uint64_t identity, bool doubted)
{
    uint32_t at = pl_sync_place_of(s, identity);
    struct learner *l = at < s->known ? &s->learners[s->by_identity[at]] : NULL;
    if (l == NULL || l->identity != identity || l->doubted == doubted)
        return;
    PL_MARK("syncer.doubt");
    if (s->listening)
        s->clock_floor = pl_max64(s->clock_floor, s->clock_sum);
    l->doubted = doubted;
    s->reporters -= l->reported ? 1 : 0;
    l->reported = false;
    s->clock_sum = s->forgotten_tokens;
    for (uint32_t i = 0; i < s->known; i++)
        s->clock_sum = pl_add_sat(s->clock_sum, counted_tokens(&s->learners[s->by_identity[i]]));
}

void pl_sync_tell_clock(struct pl_syncer *s, uint32_t m, struct pl_sync_fxs *out)
{
    struct learner *l = &s->learners[m];
    l->told_ns = s->now;
    struct pl_msg msg = {.type = PL_MSG_CLOCK,
                         .u.clock = {.clock_tokens = pl_sync_clock(s), .rate = s->rate, .tick = s->tick}};
    pl_sync_send(out, l->control, &msg);
}

/* ---- reports ---- */

/* What a report claims must follow from the one before; otherwise the peer is at fault. */
static bool report_plausible(struct pl_syncer *s, uint32_t m, const struct pl_msg_report *r,
                             struct pl_sync_fxs *out)
{
    const struct learner *l = &s->learners[m];
    uint64_t most;
    if (r->steps < l->steps) {
        pl_sync_drop_learner(s, m, PL_REASON_BAD_MESSAGE, out, "REPORT.steps went back from %lu to %lu",
                             l->steps, r->steps);
        return false;
    }
    if (r->tokens < l->tokens) {
        pl_sync_drop_learner(s, m, PL_REASON_BAD_MESSAGE, out, "REPORT.tokens went back from %lu to %lu",
                             l->tokens, r->tokens);
        return false;
    }
    if (!pl_mul_overflow(r->steps - l->steps, s->manifest->step_tokens_max, &most) &&
        r->tokens - l->tokens > most) {
        pl_sync_drop_learner(s, m, PL_REASON_BAD_MESSAGE, out,
                             "REPORT.tokens grew by %lu in %lu steps, at most %lu a step are allowed",
                             r->tokens - l->tokens, r->steps - l->steps, s->manifest->step_tokens_max);
        return false;
    }
    return true;
}

/* The shard's own measurement; the learner's word is taken only for the very first step. True when the
 * average was far too long until now. */
static bool measure_step(struct pl_syncer *s, struct learner *l, const struct pl_msg_report *r)
{
    uint64_t steps = r->steps - l->steps;
    uint64_t sample;
    if (steps == 0)
        return false;
    if (l->step.mean == 0)
        sample = r->step_ns;
    else if (l->report_ns == 0)
        sample = l->step.mean; /* back after an absence: nothing measured yet */
    else
        sample = pl_min64((s->now - l->report_ns) / steps, l->step.mean * STEP_SAMPLE_CLIP);
    /* An average spoilt by one frozen step recovers at once: both our measurement and the learner's say so. */
    uint64_t longest = pl_max64(sample, r->step_ns);
    bool spoilt = longest < l->step.mean / 4;
    if (spoilt)
        l->step.mean = 2 * longest;
    pl_average_add(&l->step, pl_clamp64(sample, STEP_NS_MIN, STEP_NS_MAX));
    l->report_ns = s->now;
    return spoilt;
}

static void count_reporter(struct pl_syncer *s, struct learner *l, uint64_t steps)
{
    if (steps == 0 || l->reported)
        return;
    l->reported = true;
    s->reporters++;
}

void pl_sync_report(struct pl_syncer *s, uint32_t m, const struct pl_msg_report *r, struct pl_sync_fxs *out)
{
    struct learner *l = &s->learners[m];
    if (!report_plausible(s, m, r, out))
        return;
    bool first = l->report_ns == 0; /* since it came */
    bool spoilt = measure_step(s, l, r);
    if (!l->doubted) {
        count_reporter(s, l, r->steps - l->steps);
        s->clock_sum = pl_add_sat(s->clock_sum, r->tokens - l->tokens);
    }
    l->steps = r->steps;
    l->tokens = r->tokens;
    if (is_home(s)) {
        l->unit = r->unit;
        l->cursor = r->cursor;
        pl_sync_unit_progress(s, m, r->unit, r->cursor);
    }
    if ((r->flags & 2) != 0 && !l->finishing) {
        l->finishing = true;
        s->finishing++;
    }
    /* The next tick may be far away because the K-th learner seemed slow; a newcomer, or better measurements, change
     * who is K-th. A few times an interval is often enough. Between ticks it only gets shorter: grace windows that
     * were opened stay within it. */
    if (s->interval == 0 || spoilt || (first && l->step.mean < s->interval) ||
        s->now - s->interval_ns >= s->interval / 8) {
        uint64_t before = s->interval;
        pl_sync_update_interval(s);
        if (before != 0)
            s->interval = pl_min64(s->interval, before);
    }
    if (l->steps > 0 && !pl_heap_has(&s->pulls, m) && s->phase == PL_PHASE_RUNNING)
        pl_sync_schedule(s, m, s->tick);
    if (l->told_ns == 0 || s->now - l->told_ns >= pl_sync_heartbeat(s) / 2)
        pl_sync_tell_clock(s, m, out);
}

/* ---- the tick ---- */

/* Planted fault 6: the clock that follows the K-th largest step count ever seen, dead learners included. */
static bool wrong_clock_by_count(const struct pl_syncer *s)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < s->known; i++)
        most = pl_max64(most, s->learners[s->by_identity[i]].steps);
    return most > s->tick;
}

bool pl_sync_tick_ready(const struct pl_syncer *s)
{
    if (s->phase != PL_PHASE_RUNNING || s->interval == 0 || s->live < s->quorum)
        return false;
    if (pl_mutant(5))
        return s->reporters >= s->quorum;
    if (pl_mutant(6))
        return wrong_clock_by_count(s) && s->now - s->tick_ns >= s->interval;
    return s->reporters >= s->quorum && s->now - s->tick_ns >= s->interval;
}

uint64_t pl_sync_tick_due_ns(const struct pl_syncer *s)
{
    if (s->phase != PL_PHASE_RUNNING || s->interval == 0 || s->live < s->quorum || s->reporters < s->quorum)
        return PL_NEVER;
    if (pl_mutant(6) && !wrong_clock_by_count(s))
        return PL_NEVER;
    return pl_add_sat(s->tick_ns, s->interval);
}

void pl_sync_tick(struct pl_syncer *s, struct pl_sync_fxs *out)
{
    s->tick++;
    s->tick_ns = s->now;
    s->reporters = 0;
    for (uint32_t i = 0; i < s->known; i++)
        s->learners[s->by_identity[i]].reported = false;
    pl_sync_update_interval(s);
    pl_sync_update_stretch(s, out);
    measure_rate(s);
    TRACE(out, TICK, s->tick, s->interval, s->live);
    uint32_t f = s->due_fragment[s->tick % s->period];
    if (f != PL_NONE32)
        pl_sync_due(s, f, out);
}

/* ---- when to pull ---- */

static uint64_t virtual_now(const struct pl_syncer *s)
{
    uint64_t into = pl_min64(s->now - s->tick_ns, s->interval);
    return (s->tick << PL_TICK_BITS) + pl_mul_div(into, PL_TICK_ONE, s->interval);
}

/* With a stride, its fragments are spread over the cycles, so that it is asked evenly and a better link is noticed soon. The
 * same numbers for every stride: who has a larger one always meets those with a smaller one. 39 / 64 is next to the golden
 * ratio, which spreads few fragments as evenly as many. */
bool pl_sync_takes_part(const struct pl_syncer *s, uint32_t m, uint32_t f, uint64_t due)
{
    enum { APART = 39 };
    return ((due / s->period + (uint64_t)f * APART) & (pl_sync_stride(s, m) - 1)) == 0;
}

bool pl_sync_takes_next(const struct pl_syncer *s, uint32_t m, uint32_t f)
{
    uint64_t first = s->tick + 1;
    uint64_t ahead = (s->fragments[f].offset + s->period - first % s->period) % s->period;
    uint64_t due = first + ahead;
    return due == s->learners[m].due ||
           pl_sync_takes_part(s, m, f, due); /* its pull may be older than its stride */
}

/* The first round after a tick that this learner takes part in; its pull goes out one lead before. */
void pl_sync_schedule(struct pl_syncer *s, uint32_t m, uint64_t after_tick)
{
    struct learner *l = &s->learners[m];
    uint64_t due = pl_max64(after_tick, s->tick) + 1;
    for (;; due++) {
        uint32_t f = s->due_fragment[due % s->period];
        if (f != PL_NONE32 && pl_sync_takes_part(s, m, f, due))
            break;
    }
    uint64_t lead = s->interval == 0 ? 0 : pl_mul_div(pl_sync_lead(s, m), PL_TICK_ONE, s->interval);
    l->due = due;
    pl_heap_set(&s->pulls, m, pl_sub_sat(due << PL_TICK_BITS, lead));
}

bool pl_sync_pull_ready(const struct pl_syncer *s)
{
    return s->phase == PL_PHASE_RUNNING && s->interval != 0 && s->pulls.len > 0 &&
           pl_heap_top_key(&s->pulls) <= virtual_now(s);
}

uint64_t pl_sync_pull_due_ns(const struct pl_syncer *s)
{
    if (s->phase != PL_PHASE_RUNNING || s->interval == 0 || s->pulls.len == 0)
        return PL_NEVER;
    uint64_t ahead = pl_sub_sat(pl_heap_top_key(&s->pulls), s->tick << PL_TICK_BITS);
    if (ahead > PL_TICK_ONE)
        return PL_NEVER; /* not before the next tick */
    return s->tick_ns + pl_mul_div(ahead, s->interval, PL_TICK_ONE) + (ahead > 0 ? 1 : 0);
}

void pl_sync_pull_next(struct pl_syncer *s, struct pl_sync_fxs *out)
{
    uint32_t m = pl_heap_top(&s->pulls);
    uint64_t due = s->learners[m].due;
    pl_heap_remove(&s->pulls, m);
    pl_assert(s->learners[m].state == LEARNER_LIVE);
    if (due > s->tick) {
        uint32_t f = s->due_fragment[due % s->period];
        pl_sync_deliver(s, m, f, 0, out); /* held back until now, or its turn came without a new version */
        pl_sync_pull(s, m, f, due, out);
    }
    pl_sync_schedule(s, m, due);
}
