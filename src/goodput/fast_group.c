/* goodput/fast_group.c - what learners do to each other: how many are at work, the barrier of DiLoCo, and
 * work that was done without the syncer. The quorum costs no work: while there is none no version advances, so nothing
 * gets too old. */
#include "goodput/fast_int.h"

#include "base/check.h"
#include "base/num.h"

#include <math.h>

/* ---- how many are at work ---- */

void pl_fast_count(struct pl_fast *f)
{
    double s = (double)(f->now_ns - f->counted_ns) / PL_FAST_SECOND;
    f->counted_ns = f->now_ns;
    f->cohort_s[f->joined] += s;
    f->merging_s += f->joined >= f->o->quorum ? s : 0;
    if (f->running > 0)
        f->up_s += s;
}

/* From a link's return to the value that replaces what was done without it: half of the longest pause between two
 * attempts to connect, and a few steps, because values are taken one by one and between two steps. */
static double return_s(const struct pl_fast *f)
{
    return 5 + 2 * f->o->step_s;
}

/* What others merged while its link was down makes its work old; time in which nobody could merge does not. Fragments
 * are merged one after the other, so the bound on versions is passed by the first of them when it is reached in time, and
 * by the last of them a period later. */
static double too_old_share(const struct pl_fast *f, const struct pl_fast_learner *l)
{
    double period_s = (double)f->o->period_steps * f->o->step_s;
    bool others_merge = f->joined - (l->mode == PL_FAST_RUN ? 1u : 0u) >= f->o->quorum;
    double merging_s = f->merging_s - l->link_broke_merging_s + (others_merge ? return_s(f) : 0);
    double periods = merging_s / period_s;
    return fmin(fmax(periods - f->o->staleness_max, 0), 1);
}

static void discard(struct pl_fast_learner *l, double work)
{
    work = fmin(work, l->books.useful);
    l->books.useful -= work;
    l->books.overwrite += work;
}

static void recount(struct pl_fast *f, bool was_running, bool was_joined, const struct pl_fast_learner *l)
{
    bool running = l->mode == PL_FAST_RUN, joined = running && !l->link_down;
    f->running += (uint32_t)running - (uint32_t)was_running;
    f->joined += (uint32_t)joined - (uint32_t)was_joined;
    pl_assert(f->running <= f->count && f->joined <= f->running);
}

void pl_fast_enter(struct pl_fast *f, struct pl_fast_learner *l, enum pl_fast_mode mode)
{
    bool running = l->mode == PL_FAST_RUN, joined = running && !l->link_down;
    pl_assert(l->since_ns == f->now_ns); /* settled */
    pl_fast_count(f);
    l->mode = mode;
    recount(f, running, joined, l);
}

void pl_fast_stale(struct pl_fast *f, struct pl_fast_learner *l, double steps)
{
    double old = fmin(steps, l->stale_steps);
    uint32_t usual = pl_min32(f->o->overlap_steps, PL_GOODPUT_STALENESS_MAX - 1);
    if (old > 0) {
        uint32_t bin = l->stale_age < PL_GOODPUT_STALENESS_MAX - 1 ? (uint32_t)l->stale_age
                                                                   : PL_GOODPUT_STALENESS_MAX - 1;
        f->stale[bin] += old;
        f->stale_sum += old * l->stale_age;
        l->stale_steps -= old;
    }
    f->stale[usual] += steps - old;
    f->stale_sum += (steps - old) * f->o->overlap_steps;
    f->contributions += steps;
}

/* ---- links ---- */

static double useful_rate(const struct pl_fast *f, const struct pl_fast_learner *l)
{
    double share = (double)l->count[PL_FAST_ACTIVE] / l->slices;
    return l->mode == PL_FAST_REJOIN ? 0 : share * pl_fast_pace(f, l);
}

/* What a learner has done and nobody merged yet, on average over its fragments: half of the time between two pushes of one
 * (a period, or what the line needs for all of them), and what was on its way. */
static double in_hand(const struct pl_fast *f, const struct pl_fast_learner *l)
{
    double between_s = fmax(f->o->period_steps * f->o->step_s, l->comm_s);
    return (between_s / 2 + f->o->overlap_steps * f->o->step_s) * useful_rate(f, l);
}

static void link_broke(struct pl_fast *f, struct pl_fast_learner *l)
{
    f->counts.outages++;
    l->unmerged = in_hand(f, l);
    l->link_broke_ns = f->now_ns;
    l->link_broke_merging_s = f->merging_s;
    l->link_ns = pl_fast_after(f, pl_draw_next(&f->outage, &l->prng[PL_FAST_LINK]));
    if (pl_fast_one_job(f->o) && l->mode == PL_FAST_RUN)
        pl_fast_enter(f, l, PL_FAST_WAIT); /* one job over several sites stands still */
}

static void link_healed(struct pl_fast *f, struct pl_fast_learner *l)
{
    double out_s = (double)(f->now_ns - l->link_broke_ns) / PL_FAST_SECOND;
    l->link_ns = pl_fast_after(f, pl_draw_exponential(&l->prng[PL_FAST_LINK], 86400 / l->outages_per_day));
    if (f->o->algorithm == PL_GOODPUT_DECOUPLED) {
        discard(l, (l->unmerged + useful_rate(f, l) * return_s(f)) * too_old_share(f, l));
        l->stale_age = f->o->overlap_steps + out_s / f->o->step_s;
        l->stale_steps = f->o->period_steps;
    } else if (f->o->algorithm == PL_GOODPUT_DILOCO) {
        pl_fast_barrier(f);
    } else if (l->mode == PL_FAST_WAIT) {
        pl_fast_enter(f, l, PL_FAST_RUN);
    }
}

void pl_fast_link(struct pl_fast *f, struct pl_fast_learner *l)
{
    bool running = l->mode == PL_FAST_RUN, joined = running && !l->link_down;
    pl_fast_settle(f, l);
    pl_fast_count(f);
    l->link_down = !l->link_down;
    recount(f, running, joined, l);
    if (l->link_down)
        link_broke(f, l);
    else
        link_healed(f, l);
}

/* ---- the barrier ---- */

void pl_fast_arrive(struct pl_fast *f, struct pl_fast_learner *l)
{
    pl_assert(l->mode == PL_FAST_RUN && !l->arrived);
    pl_fast_settle(f, l);
    l->arrived = true;
    l->phase = 0;
    pl_fast_enter(f, l, PL_FAST_WAIT);
    pl_fast_barrier(f);
}

/* Everybody is there and can be reached: values travel, then it is over. */
void pl_fast_barrier(struct pl_fast *f)
{
    double comm_s = 0;
    if (f->o->algorithm != PL_GOODPUT_DILOCO || pl_heap_has(&f->heap, f->count))
        return;
    for (uint32_t i = 0; i < f->count; i++) {
        const struct pl_fast_learner *l = &f->learners[i];
        if (!l->arrived || l->mode != PL_FAST_WAIT || l->link_down)
            return;
        comm_s = fmax(comm_s, l->comm_s);
    }
    pl_heap_set(&f->heap, f->count, pl_fast_after(f, comm_s));
}

void pl_fast_barrier_over(struct pl_fast *f)
{
    pl_heap_remove(&f->heap, f->count);
    for (uint32_t i = 0; i < f->count; i++) {
        struct pl_fast_learner *l = &f->learners[i];
        pl_fast_settle(f, l);
        l->arrived = false;
        l->round_steps = f->o->period_steps;
        if (l->mode == PL_FAST_WAIT)
            pl_fast_enter(f, l, PL_FAST_RUN);
        pl_fast_arm(f, l);
    }
}
