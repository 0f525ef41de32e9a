/* core/syncer_stride.c - what each learner's line carries: how far ahead it is asked, and in how many of its rounds it
 * takes part (docs/decisions/0002).
 *
 * The lead is the time from PULL to the push being held. A miss with the lead at half a period doubles the stride, at once
 * as far as the line was measured to need; rounds well in time halve it again, soon where the line was measured to have room
 * for twice as much, late and later where not. A line is measured by what it carried since the last change of the stride,
 * in both directions: the time it was at work, and the bytes (down) or pushes (up) that came in that time.
 *
 * Nothing is judged before the line is free of what was on its way at the last change: what comes after it is late because
 * of what came before.
 */
#include "core/syncer_int.h"

#include "base/check.h"

enum {
    GOOD_ROUNDS_MIN = 2,   /* rounds in time before a smaller stride is tried, where there is room for it */
    GOOD_ROUNDS_LATE = 64, /* where there seems to be none: a long line looks busy, too */
    FAILED_TRIALS_MAX = 5, /* each doubles both */
    MEASURED_MIN = 2,      /* pushes, before their times say how far to go */
    SLOW_MIN = 4, /* in a row that took half as long again as a cycle has for them: no stall does that */
};

/* ---- leads ---- */

static uint32_t half_period(const struct pl_syncer *s)
{
    return pl_max32(s->period / 2, 1);
}

/* Always less than a period, also when that is one tick: a pull must not overtake the round before. */
static uint64_t half_period_ns(const struct pl_syncer *s)
{
    return s->period * s->interval / 2;
}

/* From PULL to the push being here, with room for its usual spread; at most half a period. */
uint64_t pl_sync_lead(const struct pl_syncer *s, uint32_t m)
{
    const struct learner *l = &s->learners[m];
    uint64_t lead = l->lead.mean == 0 ? (uint64_t)s->overlap * s->interval
                                      : l->lead.mean + 4 * l->lead.dev + s->interval / 8;
    return pl_min64(lead, half_period_ns(s));
}

uint32_t pl_sync_overlap_eff(const struct pl_syncer *s, uint32_t m)
{
    uint64_t ticks = s->interval == 0 ? 0 : (pl_sync_lead(s, m) + s->interval - 1) / s->interval;
    return (uint32_t)pl_clamp64(ticks, s->overlap, pl_max32(half_period(s), s->overlap));
}

/* ---- what the line carries ---- */

static void measure_anew(struct learner *l)
{
    l->down_busy_ns = l->down_bytes = l->up_busy_ns = 0;
    l->up_count = l->up_slow = 0;
}

/* Of what was on its way at the last change of the stride. */
static bool line_is_free(const struct learner *l)
{
    return l->draining == 0 && l->owing == 0;
}

static void line_is_judged(const struct pl_syncer *s, struct learner *l)
{
    l->stride_ns = s->now;
    l->good_rounds = 0;
    measure_anew(l);
}

void pl_sync_line_sent(struct pl_syncer *s, uint32_t m)
{
    struct learner *l = &s->learners[m];
    if (l->sending++ == 0)
        l->down_ns = s->now;
}

/* A learner takes values between two steps: of the last one before the line falls silent half a step is waiting, on
 * average. */
void pl_sync_line_done(struct pl_syncer *s, uint32_t m, uint64_t bytes)
{
    struct learner *l = &s->learners[m];
    pl_assert(l->sending > 0);
    l->sending--;
    l->down_busy_ns += pl_sub_sat(s->now - l->down_ns, l->sending == 0 ? l->step.mean / 2 : 0);
    l->down_bytes += bytes;
    l->down_ns = s->now;
    if (l->draining > 0 && --l->draining == 0 && l->owing == 0)
        line_is_judged(s, l);
}

/* What was on its way is resumed, and comes to its end then: the time it took so far counts. */
void pl_sync_line_broken(struct pl_syncer *s, uint32_t m)
{
    struct learner *l = &s->learners[m];
    if (l->sending > 0)
        l->down_busy_ns += s->now - l->down_ns;
    l->sending = l->draining = 0;
}

/* While it was away its pushes were not under way. */
void pl_sync_line_mended(struct pl_syncer *s, uint32_t m)
{
    s->learners[m].up_ns = s->now;
}

/* Not from its pull on: until it begins the learner may have waited for the value to build on. */
void pl_sync_line_begun(struct pl_syncer *s, uint32_t m)
{
    struct learner *l = &s->learners[m];
    if (l->receiving++ == 0)
        l->up_ns = s->now;
}

void pl_sync_line_ended(struct pl_syncer *s, uint32_t m, bool held)
{
    struct learner *l = &s->learners[m];
    pl_assert(l->receiving > 0);
    l->receiving--;
    if (held) {
        uint64_t took = s->now - l->up_ns;
        uint64_t cycle = pl_mul_div(took, s->fragment_count, pl_sync_stride(s, m));
        bool slow = cycle > s->period * s->interval / 2 * 3;
        l->up_busy_ns += took;
        l->up_count++;
        l->up_slow = slow ? l->up_slow + 1 : 0;
    }
    l->up_ns = s->now;
}

void pl_sync_line_answered(struct pl_syncer *s, uint32_t m, uint64_t pulled_ns)
{
    struct learner *l = &s->learners[m];
    if (l->owing > 0 && pulled_ns <= l->changed_ns && --l->owing == 0 && l->draining == 0)
        line_is_judged(s, l);
}

/* What a cycle may take of the line's time: an eighth of it is left free. */
static uint64_t cycle_ns(const struct pl_syncer *s)
{
    return s->period * s->interval / 8 * 7;
}

/* Would a stride's pushes come in a cycle, as fast as those since the last change? */
static bool fits_up(const struct pl_syncer *s, const struct learner *l, uint32_t stride)
{
    uint64_t pushes = (uint64_t)l->up_count * stride;
    return l->up_count >= MEASURED_MIN && pl_mul_div(l->up_busy_ns, s->fragment_count, pushes) <= cycle_ns(s);
}

/* And its updates? A visit is of what the others make meanwhile. */
static bool fits_down(const struct pl_syncer *s, const struct learner *l, const struct fragment *fr,
                      uint32_t stride)
{
    uint64_t visit = pl_sync_visit_bytes(fr, pl_max32(stride / s->stretch, 1));
    uint64_t bytes = pl_mul_div(visit, s->fragment_count, stride);
    return l->down_bytes > 0 && pl_mul_div(bytes, l->down_busy_ns, l->down_bytes) <= cycle_ns(s);
}

/* ---- strides ---- */

static void set_stride(struct pl_syncer *s, uint32_t m, uint32_t stride, struct pl_sync_fxs *out)
{
    struct learner *l = &s->learners[m];
    l->probing = stride < l->stride;
    l->stride = stride;
    l->stride_ns = l->changed_ns = s->now;
    l->draining = l->sending;
    l->owing = l->pulls_out;
    measure_anew(l);
    l->good_rounds = 0;
    TRACE(out, STRIDE, l->identity, stride, pl_sync_lead(s, m));
}

static uint64_t stride_of(const struct pl_syncer *s, uint32_t m)
{
    return s->learners[m].stride;
}

/* The stride that half of the living, and the quorum, can do: rounds of fewer are not worth what everybody is sent for them.
 * Where it falls to half of it, those who had it try the new one together; where it falls further, others have come. */
void pl_sync_update_stretch(struct pl_syncer *s, struct pl_sync_fxs *out)
{
    uint32_t before = s->stretch;
    uint32_t half = s->live / 2 + s->live % 2;
    s->stretch = pl_max32((uint32_t)pl_sync_kth(s, pl_max32(s->quorum, half), stride_of), 1);
    for (uint32_t i = 0; i < s->known && s->stretch == before / 2; i++) {
        uint32_t m = s->by_identity[i];
        if (s->learners[m].state == LEARNER_LIVE && s->learners[m].stride == before)
            set_stride(s, m, before / 2, out);
    }
}

uint32_t pl_sync_stride(const struct pl_syncer *s, uint32_t m)
{
    return pl_max32(s->learners[m].stride, s->stretch);
}

/* How far goes by the pushes alone: how many updates there will be depends on what the others do. */
static void raise_stride(struct pl_syncer *s, uint32_t m, struct pl_sync_fxs *out)
{
    struct learner *l = &s->learners[m];
    l->good_rounds = 0;
    if (!line_is_free(l) || l->stride == PL_STRIDE_MAX)
        return;
    PL_MARK("syncer.stride_up");
    if (l->probing) {
        l->failed_trials = pl_min32(l->failed_trials + 1, FAILED_TRIALS_MAX);
        l->failed_stride = l->stride;
    }
    uint32_t stride = l->stride * 2;
    while (stride < PL_STRIDE_MAX && l->up_count >= MEASURED_MIN && !fits_up(s, l, stride))
        stride *= 2;
    set_stride(s, m, stride, out);
}

/* In time, and not by a hair: after a few of those a smaller stride is tried. */
void pl_sync_lead_hit(struct pl_syncer *s, uint32_t m, uint32_t f, uint64_t took_ns, struct pl_sync_fxs *out)
{
    struct learner *l = &s->learners[m];
    pl_average_add(&l->lead, took_ns);
    if (l->up_slow >= SLOW_MIN) {
        raise_stride(s, m, out); /* its rounds wait for it still, and will not for long */
        return;
    }
    if (took_ns > half_period_ns(s) / 4 * 3 || (l->stride == 1 && !l->probing))
        return;
    l->good_rounds++;
    if (l->probing && l->good_rounds >= GOOD_ROUNDS_LATE) { /* the trial has succeeded */
        l->probing = false;
        l->failed_trials = l->failed_stride = 0;
    }
    if (l->stride == 1 || l->stride < s->stretch)
        return; /* the others have to be able to do it, too */
    uint32_t half = l->stride / 2;
    bool room = line_is_free(l) && fits_up(s, l, half) && fits_down(s, l, &s->fragments[f], half);
    uint32_t needed = room ? GOOD_ROUNDS_MIN : GOOD_ROUNDS_LATE;
    if (l->good_rounds >= needed << (half <= l->failed_stride ? l->failed_trials : 0))
        set_stride(s, m, half, out);
}

/* Has it had a cycle of its own since the last change? What a smaller stride takes part in was not wanted before, and has
 * to be caught up with first. */
static bool has_settled(const struct pl_syncer *s, uint32_t m)
{
    return s->now - s->learners[m].changed_ns >= s->period * s->interval * pl_sync_stride(s, m);
}

void pl_sync_line_full(struct pl_syncer *s, uint32_t m, struct pl_sync_fxs *out)
{
    if (!has_settled(s, m))
        return;
    PL_MARK("syncer.line_full");
    raise_stride(s, m, out);
}

/* A push that was asked for before the line was judged says nothing about the present stride. */
void pl_sync_lead_miss(struct pl_syncer *s, uint32_t m, uint64_t pulled_ns, struct pl_sync_fxs *out)
{
    struct learner *l = &s->learners[m];
    uint64_t waited = s->now - pulled_ns;
    if (l->report_ns <= pulled_ns && waited > l->step.mean + l->step.mean / 2) {
        PL_MARK("syncer.stalled");
        return; /* it stands still: that says nothing about its line */
    }
    pl_average_add(&l->lead, waited + waited / 4 + s->interval / 4);
    l->good_rounds = 0;
    bool full = pl_sync_lead(s, m) >= half_period_ns(s);
    if (full && pulled_ns >= l->stride_ns && (!l->probing || has_settled(s, m)))
        raise_stride(s, m, out);
}
