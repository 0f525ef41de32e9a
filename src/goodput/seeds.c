/* goodput/seeds.c - see seeds.h. */
#include "goodput/seeds.h"

#include <math.h>

double pl_goodput_interval(uint32_t count, double sum, double squares)
{
    static const double t95[] = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
                                 2.201,  2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086};
    const uint32_t known = sizeof t95 / sizeof t95[0];
    if (count < 2)
        return 0;
    double variance = fmax(squares - sum * sum / count, 0) / (count - 1);
    double t = count - 1 <= known ? t95[count - 2] : 2.08;
    return t * sqrt(variance / count);
}

/* The shares of a result, which lie together. */
static void add(struct pl_goodput_result *sum, const struct pl_goodput_result *r)
{
    sum->goodput += r->goodput;
    sum->uptime += r->uptime;
    sum->useful_tokens += r->useful_tokens;
    sum->lost_stall += r->lost_stall;
    sum->lost_repair += r->lost_repair;
    sum->lost_spares += r->lost_spares;
    sum->lost_steps += r->lost_steps;
    sum->lost_wait += r->lost_wait;
    sum->lost_rejoin += r->lost_rejoin;
    sum->lost_overwrite += r->lost_overwrite;
    sum->lost_speed += r->lost_speed;
    sum->staleness_mean += r->staleness_mean;
    for (uint32_t i = 0; i <= PL_GOODPUT_LEARNERS_MAX; i++)
        sum->cohort[i] += r->cohort[i];
    for (uint32_t i = 0; i < PL_GOODPUT_STALENESS_MAX; i++)
        sum->staleness[i] += r->staleness[i];
}

static void divide(struct pl_goodput_result *mean, const struct pl_goodput_result *last, uint32_t count)
{
    struct pl_goodput_result sum = *mean, zero = {0};
    double *const parts[] = {&sum.goodput,     &sum.uptime,      &sum.useful_tokens,  &sum.lost_stall,
                             &sum.lost_repair, &sum.lost_spares, &sum.lost_steps,     &sum.lost_wait,
                             &sum.lost_rejoin, &sum.lost_speed,  &sum.lost_overwrite, &sum.staleness_mean};
    for (uint32_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        *parts[i] /= count;
    for (uint32_t i = 0; i <= PL_GOODPUT_LEARNERS_MAX; i++)
        sum.cohort[i] /= count;
    for (uint32_t i = 0; i < PL_GOODPUT_STALENESS_MAX; i++)
        sum.staleness[i] /= count;
    *mean = zero;
    mean->days = last->days;
    mean->failures = last->failures;
    mean->stalls = last->stalls;
    mean->upscales = last->upscales;
    mean->outages = last->outages;
    mean->rejoins = last->rejoins;
    mean->events = last->events;
    mean->bytes = last->bytes;
    mean->learners = last->learners;
    add(mean, &sum);
}

enum pelago_status pl_goodput_over_seeds(const struct pl_goodput_options *o, uint64_t first, uint64_t last,
                                         const struct pl_alloc *alloc, pl_goodput_each *each, void *user,
                                         struct pl_goodput_seeds *out, struct pl_error *err)
{
    struct pl_goodput_options one = *o;
    struct pl_goodput_result r = {0};
    double goodput2 = 0, uptime2 = 0;
    *out = (struct pl_goodput_seeds){0};
    if (last < first || last - first >= PL_GOODPUT_SEEDS_MAX)
        return pl_fail(err, PELAGO_INVALID, "seeds is out of its range, expected 1 to %u of them",
                       (unsigned)PL_GOODPUT_SEEDS_MAX);
    for (uint64_t seed = first; out->count <= last - first; seed++) {
        one.seed = seed;
        PL_TRY(pl_goodput_run(&one, alloc, &r, err));
        if (each != NULL)
            each(user, seed, &r);
        add(&out->mean, &r);
        goodput2 += r.goodput * r.goodput;
        uptime2 += r.uptime * r.uptime;
        out->count++;
    }
    out->goodput_ci = pl_goodput_interval(out->count, out->mean.goodput, goodput2);
    out->uptime_ci = pl_goodput_interval(out->count, out->mean.uptime, uptime2);
    divide(&out->mean, &r, out->count);
    return PELAGO_OK;
}
