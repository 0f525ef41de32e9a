/* plan/check.c - what a person may ask a plan for: defaults, and one sentence about the first thing that makes no sense. */
#include "base/limits.h"
#include "plan/plan_int.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

void pl_plan_defaults(struct pl_plan_input *in)
{
    *in = (struct pl_plan_input){
        .slice_chips = 4,
        .repair_s = 3600,
        .outage_s = 300,
        .quorum = 1,
        .syncer_bytes = 64e9,
        .syncer_bits_s = 10e9,
    };
    for (uint32_t i = 0; i < PL_PLAN_SITES_MAX; i++)
        in->sites[i] = (struct pl_plan_site){
            .tflops = 200, .link_bits_s = 10e9, .latency_s = 0.05, .mtbi_s = 365 * 86400.0};
}

/* Sequences of 2048 tokens of all learners together: .00709 N^.4695 M^.3399. */
double pl_plan_batch(double params, uint32_t learners)
{
    return 2048 * .00709 * pow(params, .4695) * pow(learners, .3399) / learners;
}

struct range {
    const char *name, *expected;
    size_t at;
    double min, max;
};
#define OF_PLAN(name, field, min, max, expected)                                                             \
    {                                                                                                        \
        name, expected, offsetof(struct pl_plan_input, field), min, max                                      \
    }
#define OF_SITE(name, field, min, max, expected)                                                             \
    {                                                                                                        \
        name, expected, offsetof(struct pl_plan_site, field), min, max                                       \
    }

static const struct range plan_ranges[] = {
    OF_PLAN("params", params, 1e3, 1e12, "1000 to 1000G"),
    OF_PLAN("tokens", tokens, 1e3, 1e18, "1000 to 1e18"),
    OF_PLAN("batch", batch_tokens, 1, 1e10, "1 to 10G tokens"),
    OF_PLAN("repair", repair_s, 0, 1e8, "0 to 1e8 seconds"),
    OF_PLAN("outage", outage_s, 0, 1e8, "0 to 1e8 seconds"),
    OF_PLAN("deadline", deadline_s, 0, 1e10, "0 (none) to 1e10 seconds"),
    OF_PLAN("syncer-memory", syncer_bytes, 1e6, 1e15, "1M to 1000000G bytes"),
    OF_PLAN("syncer-link", syncer_bits_s, 1e3, 1e15, "1 kbit/s to 1000 Tbit/s"),
};
static const struct range site_ranges[] = {
    OF_SITE("tflops", tflops, 1e-6, 1e6, "0.000001 to 1000000"),
    OF_SITE("link", link_bits_s, 1e3, 1e15, "1 kbit/s to 1000 Tbit/s"),
    OF_SITE("latency", latency_s, 0, 600, "0 to 600 seconds"),
    OF_SITE("mtbi", mtbi_s, 60, 1e12, "a minute to 1e12 seconds"),
    OF_SITE("outages", outages_per_day, 0, 1e4, "0 to 10000 a day"),
    OF_SITE("price", price, 0, 1e6, "0 to 1000000 for a chip and an hour"),
    OF_SITE("egress", egress, 0, 1e6, "0 to 1000000 for a GB"),
};

const char *pl_plan_expected(const char *name)
{
    for (size_t i = 0; i < sizeof site_ranges / sizeof site_ranges[0]; i++)
        if (strcmp(site_ranges[i].name, name) == 0)
            return site_ranges[i].expected;
    return "1 to 100000000"; /* chips */
}

/* NULL, or the range that is broken. */
static const struct range *broken(const struct range *ranges, size_t count, const void *base)
{
    for (size_t i = 0; i < count; i++) {
        double v;
        memcpy(&v, (const char *)base + ranges[i].at, sizeof v);
        if (!(v >= ranges[i].min && v <= ranges[i].max))
            return &ranges[i];
    }
    return NULL;
}

static enum pelago_status check_sites(const struct pl_plan_input *in, struct pl_error *err)
{
    for (uint32_t i = 0; i < in->site_count; i++) {
        const struct pl_plan_site *s = &in->sites[i];
        if (s->chips < in->slice_chips || s->chips > UINT64_C(100000000))
            return pl_fail(err, PELAGO_INVALID, "chips of %s is %lu, expected a slice (%u) to 100000000",
                           s->name, s->chips, in->slice_chips);
        const struct range *r = broken(site_ranges, sizeof site_ranges / sizeof site_ranges[0], s);
        if (r != NULL)
            return pl_fail(err, PELAGO_INVALID, "%s of %s is out of its range, expected %s", r->name, s->name,
                           r->expected);
        double step_s = pl_plan_step(in, i);
        if (!(step_s >= 1e-3 && step_s <= 1e5))
            return pl_fail(
                err, PELAGO_INVALID,
                "a step of %s takes %lu ms, expected 1 to 100000000: change batch, chips or tflops", s->name,
                (uint64_t)fmin(step_s * 1e3, 1e18));
    }
    return PELAGO_OK;
}

static enum pelago_status check_fixed(const struct pl_plan_choice *c, struct pl_error *err)
{
    uint32_t period = c->period > 0 ? c->period : PL_PERIOD_STEPS_MAX;
    if (c->period > PL_PERIOD_STEPS_MAX)
        return pl_fail(err, PELAGO_INVALID, "period is %u, expected 1 to %u", c->period,
                       (unsigned)PL_PERIOD_STEPS_MAX);
    if (c->fragments > period)
        return pl_fail(err, PELAGO_INVALID, "fragments is %u, expected 1 to %u, the period", c->fragments,
                       period);
    return PELAGO_OK;
}

enum pelago_status pl_plan_check(const struct pl_plan_input *in, struct pl_error *err)
{
    if (in->site_count < 1 || in->site_count > PL_PLAN_SITES_MAX)
        return pl_fail(err, PELAGO_INVALID, "sites is %u, expected 1 to %u", in->site_count,
                       (unsigned)PL_PLAN_SITES_MAX);
    if (in->slice_chips < 1 || in->slice_chips > 1u << 20)
        return pl_fail(err, PELAGO_INVALID, "slice is %u, expected 1 to %u chips", in->slice_chips, 1u << 20);
    const struct range *r = broken(plan_ranges, sizeof plan_ranges / sizeof plan_ranges[0], in);
    if (r != NULL)
        return pl_fail(err, PELAGO_INVALID, "%s is out of its range, expected %s", r->name, r->expected);
    if (in->quorum < 1 || in->quorum > in->site_count)
        return pl_fail(err, PELAGO_INVALID, "quorum is %u, expected 1 to %u, the sites", in->quorum,
                       in->site_count);
    if (in->tokens < in->batch_tokens)
        return pl_fail(err, PELAGO_INVALID,
                       "tokens is %lu, expected at least %lu, a step of one learner (batch)",
                       (uint64_t)in->tokens, (uint64_t)ceil(in->batch_tokens));
    if (in->fixed.fragments > in->params)
        return pl_fail(err, PELAGO_INVALID, "fragments is %u, expected 1 to %lu, the parameters",
                       in->fixed.fragments, (uint64_t)in->params);
    PL_TRY(check_sites(in, err));
    return check_fixed(&in->fixed, err);
}
