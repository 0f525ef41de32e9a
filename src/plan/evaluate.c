/* plan/evaluate.c - what one choice gives: clock, links, strides, loss, time and cost.
 *
 * The syncer's clock ticks with the quorum's slowest learner, so a cycle lasts as long for everybody. A link that cannot carry
 * a cycle's bytes takes part in every second, fourth ... cycle only (core/syncer_clock.c). Learners never wait: a thin
 * link costs loss, through longer periods and later merges, and not time at the chips.
 */
#include "base/check.h"
#include "base/limits.h"
#include "base/num.h"
#include "plan/plan_int.h"
#include "plan/quality.h"

#include <math.h>

static const double load_max = 0.8; /* above it a link that stood still does not catch up soon */

static const double merges_min = 10; /* of a fragment with a site's work, in a run */

double pl_plan_step(const struct pl_plan_input *in, uint32_t site)
{
    const struct pl_plan_site *s = &in->sites[site];
    return 6 * in->params * in->batch_tokens / ((double)s->chips * s->tflops * 1e12);
}

/* The quorum-th smallest step. */
static double tick_of(const struct pl_plan_input *in)
{
    double floor_s = 0;
    for (uint32_t taken = 0; taken < in->quorum;) {
        double next = HUGE_VAL;
        uint32_t same = 0;
        for (uint32_t i = 0; i < in->site_count; i++) {
            double step = pl_plan_step(in, i);
            if (step > floor_s && step < next) {
                next = step;
                same = 1;
            } else if (step > floor_s && !(step > next)) {
                same++;
            }
        }
        pl_assert(same > 0);
        taken += same;
        floor_s = next;
    }
    return floor_s;
}

double pl_plan_down_bits(const struct pl_plan_choice *c, uint32_t versions)
{
    return fmin(pl_quality_bits(c->down) * versions, PL_PLAN_FULL_BITS);
}

static const char in_period[] = "a fragment must be moved in its period";
static const char in_run[] = "a fragment must be merged ten times in the run";

static enum pelago_status refuse_link(const struct pl_plan_input *in, uint32_t i, double need_bits_s,
                                      const char *why, struct pl_error *err)
{
    uint64_t has = (uint64_t)(in->sites[i].link_bits_s / 1e3), needs = (uint64_t)(need_bits_s / 1e3) + 1;
    return pl_fail(err, PELAGO_INVALID, "link of %s is %lu kbit/s, expected at least %lu kbit/s: %s",
                   in->sites[i].name, has, needs, why);
}

/* The busier way of its link per cycle. */
static double way_bits(const struct pl_plan_choice *c, uint32_t stride)
{
    return fmax(pl_quality_bits(c->up), pl_plan_down_bits(c, stride)) / stride;
}

static enum pelago_status find_stride(const struct pl_plan_input *in, uint32_t i, struct pl_plan_outcome *out,
                                      struct pl_error *err)
{
    const struct pl_plan_choice *c = &out->choice;
    struct pl_plan_site_outcome *o = &out->sites[i];
    double bits = out->cycle_s * in->sites[i].link_bits_s; /* that the link moves in a cycle */
    double fragment = way_bits(c, 1) * in->params / c->fragments;
    if (fragment > bits)
        return refuse_link(in, i, fragment / out->cycle_s, in_period, err);
    o->stride = 1;
    while (o->stride < PL_STRIDE_MAX && way_bits(c, o->stride) * in->params > bits * load_max)
        o->stride *= 2;
    o->link_load = way_bits(c, o->stride) * in->params / bits;
    if (o->link_load <= load_max)
        return PELAGO_OK;
    return refuse_link(in, i, way_bits(c, o->stride) * in->params / (out->cycle_s * load_max), in_period,
                       err);
}

static void find_loss(const struct pl_plan_input *in, uint32_t i, struct pl_plan_outcome *out)
{
    const struct pl_plan_choice *c = &out->choice;
    const struct pl_plan_site *s = &in->sites[i];
    struct pl_plan_site_outcome *o = &out->sites[i];
    double values = in->params / c->fragments;
    double down = pl_plan_down_bits(c, o->stride);
    o->exchange_s = values * (pl_quality_bits(c->up) + down) / s->link_bits_s + s->latency_s +
                    values * in->site_count * PL_PLAN_MERGE_S;
    o->interval_steps = o->stride * out->cycle_s / o->step_s;
    o->overlap_steps = o->exchange_s / o->step_s + 0.5; /* applied between two steps */
    double loss = pl_quality_learners(in->params, in->site_count) + pl_quality_period(o->interval_steps) +
                  pl_quality_overlap(o->overlap_steps / o->interval_steps) + pl_quality_codec(c->up) +
                  pl_quality_codec(c->down);
    o->efficiency = pl_quality_tokens(loss);
}

static void find_cost(const struct pl_plan_input *in, struct pl_plan_outcome *out)
{
    for (uint32_t i = 0; i < in->site_count; i++) {
        struct pl_plan_site_outcome *o = &out->sites[i];
        double cycles = out->time_s / out->cycle_s;
        double down = pl_plan_down_bits(&out->choice, o->stride);
        o->hours = out->time_s / 3600;
        o->gigabytes = in->params * (pl_quality_bits(out->choice.up) + down) / 8e9 * cycles / o->stride;
        o->cost =
            o->hours * (double)in->sites[i].chips * in->sites[i].price + o->gigabytes * in->sites[i].egress;
        out->cost += o->cost;
    }
}

/* A site that skips cycles must still be merged some times before the run is over. */
static enum pelago_status check_merges(const struct pl_plan_input *in, const struct pl_plan_outcome *out,
                                       struct pl_error *err)
{
    double most = fmax(floor(out->time_s / out->cycle_s / merges_min), 1);
    for (uint32_t i = 0; i < in->site_count; i++)
        if (out->sites[i].stride > 1 && out->sites[i].stride > most)
            return refuse_link(
                in, i, way_bits(&out->choice, (uint32_t)most) * in->params / (out->cycle_s * load_max),
                in_run, err);
    return PELAGO_OK;
}

enum pelago_status pl_plan_evaluate(const struct pl_plan_input *in, const struct pl_plan_choice *choice,
                                    struct pl_plan_outcome *out, struct pl_error *err)
{
    pl_assert(choice->fragments > 0 && choice->period >= choice->fragments);
    double all = 0, good = 0, longest_s = 0;
    *out = (struct pl_plan_outcome){.choice = *choice, .tick_s = tick_of(in)};
    out->cycle_s = choice->period * out->tick_s;
    for (uint32_t i = 0; i < in->site_count; i++) {
        struct pl_plan_site_outcome *o = &out->sites[i];
        o->step_s = pl_plan_step(in, i);
        o->tokens_s = in->batch_tokens / o->step_s;
        PL_TRY(find_stride(in, i, out, err));
        find_loss(in, i, out);
        o->goodput = pl_plan_goodput(in, i, o->step_s, out->cycle_s, PL_PLAN_FULL_BITS * in->params);
        all += o->tokens_s;
        good += o->tokens_s * o->goodput;
        out->tokens_s += o->tokens_s * o->goodput * o->efficiency;
        longest_s = fmax(longest_s, o->stride == 1 ? o->exchange_s : 0);
    }
    out->goodput = good / all;
    out->efficiency = out->tokens_s / good;
    out->time_s = in->tokens / out->tokens_s;
    out->overlap = (uint32_t)fmin(fmax(ceil(longest_s / out->tick_s), 1), pl_max32(choice->period / 2, 1));
    find_cost(in, out);
    return check_merges(in, out, err);
}
