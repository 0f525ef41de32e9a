/* goodput/fast_learner.c - one learner: slices fail and return, the mesh is formed anew, steps go on.
 *
 * A reconfiguration forms its mesh at its end from the slices alive then: a failure or a return meanwhile is part of
 * it and costs nothing more. That is why the seconds lost per failure shrink as failures come closer (PAPER 8.3).
 */
#include "goodput/fast_int.h"

#include "base/check.h"
#include "base/num.h"

#include <math.h>

uint64_t pl_fast_after(const struct pl_fast *f, double s)
{
    pl_assert(s >= 0);
    return s < 1e9 ? f->now_ns + (uint64_t)(s * PL_FAST_SECOND) : PL_NEVER;
}

bool pl_fast_rigid(const struct pl_fast *f)
{
    return f->o->algorithm == PL_GOODPUT_DATA_PARALLEL;
}

bool pl_fast_one_job(const struct pl_goodput_options *o)
{
    return o->algorithm == PL_GOODPUT_DATA_PARALLEL || o->algorithm == PL_GOODPUT_DATA_PARALLEL_ELASTIC;
}

double pl_fast_pace(const struct pl_fast *f, const struct pl_fast_learner *l)
{
    return l->speed * (l->straggling ? f->o->straggler_factor : 1);
}

/* ---- accounts ---- */

static void settle_run(struct pl_fast *f, struct pl_fast_learner *l, double s)
{
    double all = l->slices, pace = pl_fast_pace(f, l), share = l->count[PL_FAST_ACTIVE] / all;
    double steps = s * pace / f->o->step_s, useful = s * share * pace;
    pl_assert(l->count[PL_FAST_ACTIVE] <= l->target);
    l->books.useful += useful;
    l->books.speed += s * share * (1 - pace);
    l->books.repair += s * (l->target - l->count[PL_FAST_ACTIVE]) / all;
    l->books.spares += s * (l->slices - l->target) / all;
    l->phase += steps;
    l->phase -= floor(l->phase);
    l->round_steps -= steps;
    if (l->link_down)
        l->unmerged += useful;
    pl_fast_stale(f, l, steps);
}

void pl_fast_settle(struct pl_fast *f, struct pl_fast_learner *l)
{
    double s = (double)(f->now_ns - l->since_ns) / PL_FAST_SECOND;
    l->since_ns = f->now_ns;
    switch (l->mode) {
    case PL_FAST_RUN:
        settle_run(f, l, s);
        break;
    case PL_FAST_STALL:
        l->books.stall += s;
        break;
    case PL_FAST_WAIT:
        l->books.wait += s;
        break;
    case PL_FAST_STARVED:
        l->books.repair += s;
        break;
    case PL_FAST_REJOIN:
        l->books.rejoin += s;
        break;
    }
}

/* ---- stalls ---- */

void pl_fast_move_slice(struct pl_fast_learner *l, uint32_t i, enum pl_fast_slice to)
{
    uint8_t from = l->slice[i];
    if (from != PL_FAST_DEAD) { /* the last of the list takes its place */
        uint32_t last = l->list[from][--l->count[from]];
        l->list[from][l->place[i]] = last;
        l->place[last] = l->place[i];
    }
    if (to != PL_FAST_DEAD) {
        l->place[i] = l->count[to];
        l->list[to][l->count[to]++] = i;
    }
    l->slice[i] = (uint8_t)to;
    if (l->count[PL_FAST_WAITING] == 0)
        l->upscale_ns = PL_NEVER;
}

static void stall(struct pl_fast *f, struct pl_fast_learner *l, double s)
{
    l->stall_began_ns = f->now_ns;
    f->counts.stalls++;
    pl_fast_enter(f, l, PL_FAST_STALL);
    l->mode_end_ns = pl_fast_after(f, s);
}

/* The step in flight is lost: the others wait in it for the slice that failed. */
static void lose_step(struct pl_fast *f, struct pl_fast_learner *l)
{
    double took_part = l->count[PL_FAST_ACTIVE] + 1.0; /* it did as well */
    double lost = l->phase * f->o->step_s * took_part / l->slices;
    lost = fmin(lost, l->books.useful);
    l->books.useful -= lost;
    l->books.steps += lost;
    l->phase = 0;
    l->unmerged = fmax(l->unmerged - lost, 0); /* not to be lost again when the link is back */
}

static double reconfigure_s(const struct pl_fast *f, const struct pl_fast_learner *l)
{
    const struct pl_goodput_options *o = f->o;
    bool swap = o->swap_s > 0 && l->count[PL_FAST_ACTIVE] + l->count[PL_FAST_SPARE] >= l->target;
    return o->detect_s + (pl_fast_rigid(f) ? o->restart_s : swap ? o->swap_s : o->downscale_s);
}

static void slice_failed(struct pl_fast *f, struct pl_fast_learner *l)
{
    if (l->mode == PL_FAST_RUN || l->mode == PL_FAST_WAIT) {
        l->step_lost = l->mode == PL_FAST_RUN;
        double s = reconfigure_s(f, l);
        pl_fast_settle(f, l);
        if (l->step_lost)
            lose_step(f, l);
        stall(f, l, s);
    } else if (l->mode == PL_FAST_STALL && f->o->swap_s > 0 &&
               l->count[PL_FAST_ACTIVE] + l->count[PL_FAST_SPARE] < l->target) {
        /* No spare is left for this one: the mesh shrinks after all. */
        double s = reconfigure_s(f, l);
        l->mode_end_ns = pl_max64(l->mode_end_ns, l->stall_began_ns + (uint64_t)(s * PL_FAST_SECOND));
    }
}

/* Takes in what is there: waiting slices first, then spares; what is too much is a spare. */
void pl_fast_form_mesh(struct pl_fast_learner *l)
{
    while (l->count[PL_FAST_WAITING] > 0) {
        uint32_t i = l->list[PL_FAST_WAITING][l->count[PL_FAST_WAITING] - 1];
        pl_fast_move_slice(l, i, l->count[PL_FAST_ACTIVE] < l->target ? PL_FAST_ACTIVE : PL_FAST_SPARE);
    }
    while (l->count[PL_FAST_SPARE] > 0 && l->count[PL_FAST_ACTIVE] < l->target)
        pl_fast_move_slice(l, l->list[PL_FAST_SPARE][l->count[PL_FAST_SPARE] - 1], PL_FAST_ACTIVE);
}

static void stall_over(struct pl_fast *f, struct pl_fast_learner *l)
{
    pl_fast_settle(f, l);
    l->mode_end_ns = PL_NEVER;
    pl_fast_form_mesh(l);
    if (l->count[PL_FAST_ACTIVE] == 0 || (pl_fast_rigid(f) && l->count[PL_FAST_ACTIVE] < l->target)) {
        l->lost_all = l->count[PL_FAST_ACTIVE] == 0;
        pl_fast_enter(f, l, PL_FAST_STARVED);
        return;
    }
    l->stale_age =
        f->o->overlap_steps + (double)(f->now_ns - l->stall_began_ns) / PL_FAST_SECOND / f->o->step_s;
    l->stale_steps = f->o->period_steps;
    bool cut_off = pl_fast_one_job(f->o) && l->link_down;
    pl_fast_enter(f, l, l->arrived || cut_off ? PL_FAST_WAIT : PL_FAST_RUN);
    pl_fast_barrier(f);
}

/* ---- slices ---- */

static void fail_slice(struct pl_fast *f, struct pl_fast_learner *l, uint32_t i, const struct pl_draw *repair)
{
    if (l->slice[i] == PL_FAST_DEAD)
        return;
    bool was_active = l->slice[i] == PL_FAST_ACTIVE;
    f->counts.failures++;
    pl_fast_settle(f, l);
    pl_fast_move_slice(l, i, PL_FAST_DEAD);
    if (repair != NULL)
        pl_heap_set(&l->returns, i, pl_fast_after(f, pl_draw_next(repair, &l->prng[PL_FAST_REPAIRS])));
    if (was_active)
        slice_failed(f, l);
}

static void rejoin_or_restart(struct pl_fast *f, struct pl_fast_learner *l)
{
    if (l->lost_all && !pl_fast_rigid(f)) {
        f->counts.rejoins++;
        l->lost_all = false;
        l->stall_began_ns = f->now_ns;
        pl_fast_enter(f, l, PL_FAST_REJOIN);
        l->mode_end_ns = pl_fast_after(f, l->rejoin_s + f->o->upscale_s);
    } else if (l->count[PL_FAST_ACTIVE] + l->count[PL_FAST_WAITING] + l->count[PL_FAST_SPARE] >= l->target) {
        stall(f, l, f->o->restart_s);
    }
}

static void return_slice(struct pl_fast *f, struct pl_fast_learner *l, uint32_t i)
{
    pl_heap_remove(&l->returns, i);
    if (l->slice[i] != PL_FAST_DEAD)
        return;
    pl_fast_settle(f, l);
    bool full =
        l->count[PL_FAST_ACTIVE] + l->count[PL_FAST_WAITING] >= l->target && l->mode != PL_FAST_STARVED;
    pl_fast_move_slice(l, i, full ? PL_FAST_SPARE : PL_FAST_WAITING);
    if (l->mode == PL_FAST_STARVED)
        rejoin_or_restart(f, l);
    else if (!full && l->upscale_ns == PL_NEVER)
        l->upscale_ns = pl_fast_after(f, f->o->upscale_wait_s);
}

static void upscale(struct pl_fast *f, struct pl_fast_learner *l)
{
    l->upscale_ns = PL_NEVER; /* a stall in progress takes them in by itself */
    if (l->mode != PL_FAST_RUN && l->mode != PL_FAST_WAIT)
        return;
    f->counts.upscales++;
    pl_fast_settle(f, l);
    l->step_lost = false; /* it is done between two steps */
    stall(f, l, f->o->upscale_s);
}

static void lose_domain(struct pl_fast *f, struct pl_fast_learner *l)
{
    uint32_t domains = (l->slices + f->o->domain_slices - 1) / f->o->domain_slices;
    uint32_t first = (uint32_t)pl_prng_below(&l->prng[PL_FAST_DOMAIN], domains) * f->o->domain_slices;
    double back_s = pl_draw_next(&f->domain_repair, &l->prng[PL_FAST_DOMAIN]);
    const struct pl_draw together = {.spread = PL_GOODPUT_FIXED, .scale = back_s};
    for (uint32_t i = first; i < l->slices && i - first < f->o->domain_slices; i++)
        fail_slice(f, l, i, &together);
    l->domain_ns = pl_fast_after(
        f, pl_draw_exponential(&l->prng[PL_FAST_DOMAIN], 86400 / (f->o->domain_loss_per_day * domains)));
}

/* ---- timers ---- */

static void next_failure(struct pl_fast *f, struct pl_fast_learner *l)
{
    if (f->o->failures == PL_GOODPUT_POISSON) {
        fail_slice(f, l, (uint32_t)pl_prng_below(&l->prng[PL_FAST_FAILURES], l->slices), &f->repair);
        l->fail_ns = pl_fast_after(f, pl_draw_exponential(&l->prng[PL_FAST_FAILURES], l->fail_s));
    } else if (f->o->failures == PL_GOODPUT_WEIBULL) {
        uint32_t i = pl_heap_top(&l->fails);
        pl_heap_set(&l->fails, i, pl_fast_after(f, pl_draw_next(&l->slice_life, &l->prng[PL_FAST_FAILURES])));
        l->fail_ns = pl_heap_top_key(&l->fails);
        fail_slice(f, l, i, &f->repair);
    } else {
        const struct pl_fast_trace_event *ev = &l->trace[l->trace_at++];
        l->fail_ns = l->trace_at < l->trace_count ? l->trace[l->trace_at].at_ns : PL_NEVER;
        if (ev->up)
            return_slice(f, l, ev->slice);
        else
            fail_slice(f, l, ev->slice, NULL);
    }
}

static void toggle_pace(struct pl_fast *f, struct pl_fast_learner *l)
{
    pl_fast_settle(f, l);
    l->straggling = !l->straggling;
    double mean = l->straggling ? f->o->straggler_s : 86400 / f->o->stragglers_per_day;
    l->straggle_ns = pl_fast_after(f, pl_draw_exponential(&l->prng[PL_FAST_PACE], mean));
}

/* A Weibull slice has an age already: it lives on from a random moment of many lives. */
static void begin_lives(struct pl_fast *f, struct pl_fast_learner *l)
{
    struct pl_prng *r = &l->prng[PL_FAST_FAILURES];
    double mean = l->fail_s * l->slices;
    pl_draw_init_weibull(&l->slice_life, mean, f->o->failure_shape);
    for (uint32_t i = 0; i < l->slices; i++) {
        double until = 8 * mean * (1 + pl_draw_unit(r)), at = 0;
        while (at <= until)
            at += pl_draw_next(&l->slice_life, r);
        pl_heap_set(&l->fails, i, pl_fast_after(f, at - until));
    }
    l->fail_ns = pl_heap_top_key(&l->fails);
}

void pl_fast_begin(struct pl_fast *f, struct pl_fast_learner *l)
{
    const struct pl_goodput_options *o = f->o;
    l->fail_ns = l->mode_end_ns = l->upscale_ns = l->straggle_ns = l->link_ns = l->domain_ns = l->barrier_ns =
        PL_NEVER;
    if (o->failures == PL_GOODPUT_POISSON)
        l->fail_ns = pl_fast_after(f, pl_draw_exponential(&l->prng[PL_FAST_FAILURES], l->fail_s));
    else if (o->failures == PL_GOODPUT_WEIBULL)
        begin_lives(f, l);
    else
        l->fail_ns = l->trace_count > 0 ? l->trace[0].at_ns : PL_NEVER;
    if (o->stragglers_per_day > 0)
        l->straggle_ns =
            pl_fast_after(f, pl_draw_exponential(&l->prng[PL_FAST_PACE], 86400 / o->stragglers_per_day));
    if (l->outages_per_day > 0)
        l->link_ns =
            pl_fast_after(f, pl_draw_exponential(&l->prng[PL_FAST_LINK], 86400 / l->outages_per_day));
    if (o->domain_loss_per_day > 0) {
        uint32_t domains = (l->slices + o->domain_slices - 1) / o->domain_slices;
        l->domain_ns = pl_fast_after(
            f, pl_draw_exponential(&l->prng[PL_FAST_DOMAIN], 86400 / (o->domain_loss_per_day * domains)));
    }
}

void pl_fast_arm(struct pl_fast *f, struct pl_fast_learner *l)
{
    l->barrier_ns = PL_NEVER;
    if (f->o->algorithm == PL_GOODPUT_DILOCO && l->mode == PL_FAST_RUN)
        l->barrier_ns = pl_fast_after(f, fmax(l->round_steps, 0) * f->o->step_s / pl_fast_pace(f, l));
    const uint64_t timers[] = {l->fail_ns, l->mode_end_ns, l->upscale_ns, l->straggle_ns,
                               l->link_ns, l->domain_ns,   l->barrier_ns, pl_heap_top_key(&l->returns)};
    uint64_t next = PL_NEVER;
    for (uint32_t i = 0; i < sizeof timers / sizeof timers[0]; i++)
        next = pl_min64(next, timers[i]);
    if (next == PL_NEVER)
        pl_heap_remove(&f->heap, l->index);
    else
        pl_heap_set(&f->heap, l->index, next);
}

void pl_fast_fire(struct pl_fast *f, struct pl_fast_learner *l)
{
    uint64_t now = f->now_ns;
    if (l->mode_end_ns <= now)
        stall_over(f, l);
    if (l->barrier_ns <= now)
        pl_fast_arrive(f, l);
    while (pl_heap_top_key(&l->returns) <= now)
        return_slice(f, l, pl_heap_top(&l->returns));
    if (l->upscale_ns <= now)
        upscale(f, l);
    if (l->fail_ns <= now)
        next_failure(f, l);
    if (l->domain_ns <= now)
        lose_domain(f, l);
    if (l->straggle_ns <= now)
        toggle_pace(f, l);
    if (l->link_ns <= now)
        pl_fast_link(f, l);
}
