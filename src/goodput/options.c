/* goodput/options.c - the constants, and what may stand in a setting. What each means is in docs/goodput.md. */
#include "goodput/goodput.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

static const char *const algorithms[PL_GOODPUT_ALGORITHMS] = {"decoupled", "diloco", "data_parallel",
                                                              "data_parallel_elastic"};

const char *pl_goodput_algorithm_name(enum pl_goodput_algorithm a)
{
    return (uint32_t)a < PL_GOODPUT_ALGORITHMS ? algorithms[a] : NULL;
}

enum pl_goodput_algorithm pl_goodput_algorithm_find(const char *name)
{
    uint32_t i = 0;
    while (i < PL_GOODPUT_ALGORITHMS && strcmp(algorithms[i], name) != 0)
        i++;
    return (enum pl_goodput_algorithm)i;
}

void pl_goodput_defaults(struct pl_goodput_options *o)
{
    *o = (struct pl_goodput_options){
        .chips = 1200000,
        .learners = 8,
        .algorithm = PL_GOODPUT_DECOUPLED,
        .days = 30,
        .seed = 1,
        .mtbi_s = 365.25 * 86400,
        .failures = PL_GOODPUT_POISSON,
        .failure_shape = 1,
        .trace_scale = 1,
        .slice_chips = 64,
        .domain_slices = 1,
        .domain_repair = {PL_GOODPUT_EXPONENTIAL, 3600, 1, 1},
        .detect_s = 8,
        .downscale_s = 10,
        .upscale_s = 15,
        .upscale_wait_s = 75,
        .restart_s = 63,
        .repair = {PL_GOODPUT_EXP_WEIBULL, 3600, 0.7, 2},
        .rejoin = PL_GOODPUT_REJOIN_PEER,
        .disk_bytes_s = 1e11,
        .rebase = true,
        .straggler_factor = 0.5,
        .straggler_s = 600,
        .outage = {PL_GOODPUT_EXPONENTIAL, 300, 1, 1},
        .step_s = 2,
        .step_tokens = 16e6,
        .model_bytes = 1e11,
        .period_steps = 24,
        .overlap_steps = 2,
        .quorum = 1,
        .staleness_max = 2,
    };
}

/* ---- checks ---- */

/* A number and what may stand there; open: the lower end does not belong. */
struct range {
    const char *name, *expected;
    size_t at;
    double min, max;
    bool open;
};
#define RANGE(name, field, min, max, open, expected)                                                         \
    {                                                                                                        \
        name, expected, offsetof(struct pl_goodput_options, field), min, max, open                           \
    }

static const struct range ranges[] = {
    RANGE("days", days, 1e-6, 36500, false, "0.000001 to 36500"),
    RANGE("mtbi", mtbi_s, 1, 1e12, false, "1 second to 1e12 seconds"),
    RANGE("failure-shape", failure_shape, 0.2, 20, false, "0.2 to 20"),
    RANGE("trace-scale", trace_scale, 0, 1e6, true, "more than 0 and at most 1000000"),
    RANGE("domain-loss", domain_loss_per_day, 0, 1e4, false, "0 to 10000 a day"),
    RANGE("domain-repair", domain_repair.mean_s, 0, 1e8, false, "0 to 1e8 seconds"),
    RANGE("detect", detect_s, 0, 1e6, false, "0 to 1e6 seconds"),
    RANGE("downscale", downscale_s, 0, 1e6, false, "0 to 1e6 seconds"),
    RANGE("upscale", upscale_s, 0, 1e6, false, "0 to 1e6 seconds"),
    RANGE("upscale-wait", upscale_wait_s, 0, 1e8, false, "0 to 1e8 seconds"),
    RANGE("restart", restart_s, 0, 1e6, false, "0 to 1e6 seconds"),
    RANGE("repair", repair.mean_s, 0, 1e8, false, "0 to 1e8 seconds"),
    RANGE("repair-shape", repair.shape, 0.1, 20, false, "0.1 to 20"),
    RANGE("repair-power", repair.power, 0.1, 100, false, "0.1 to 100"),
    RANGE("spares", spare_share, 0, 0.5, false, "a share of 0 to 0.5"),
    RANGE("swap", swap_s, 0, 1e6, false, "0 to 1e6 seconds"),
    RANGE("disk-rate", disk_bytes_s, 1, 1e18, false, "1 to 1e18 bytes a second"),
    RANGE("speed-sd", speed_sd, 0, 0.3, false, "0 to 0.3"),
    RANGE("stragglers", stragglers_per_day, 0, 1e5, false, "0 to 100000 a day"),
    RANGE("straggler-factor", straggler_factor, 0, 1, true, "more than 0 and at most 1"),
    RANGE("straggler-time", straggler_s, 0, 1e7, true, "more than 0 and at most 1e7 seconds"),
    RANGE("link-rate", link_bits_s, 0, 1e18, false, "0 (no limit) to 1e18 bit a second"),
    RANGE("outages", outages_per_day, 0, 1e5, false, "0 to 100000 a day"),
    RANGE("outage", outage.mean_s, 0, 1e8, false, "0 to 1e8 seconds"),
    RANGE("step", step_s, 1e-3, 1e6, false, "1 ms to 1e6 seconds"),
    RANGE("step-tokens", step_tokens, 1, 1e15, false, "1 to 1e15"),
    RANGE("model-bytes", model_bytes, 0, 1e18, false, "0 to 1e18"),
};

static enum pelago_status check_ranges(const struct pl_goodput_options *o, struct pl_error *err)
{
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        const struct range *r = &ranges[i];
        double v;
        memcpy(&v, (const uint8_t *)o + r->at, sizeof v);
        if (!isfinite(v) || v < r->min || v > r->max || (r->open && !(v > r->min)))
            return pl_fail(err, PELAGO_INVALID, "%s is out of its range, expected %s", r->name, r->expected);
    }
    return PELAGO_OK;
}

static enum pelago_status within(const char *name, uint64_t v, uint64_t min, uint64_t max,
                                 struct pl_error *err)
{
    if (v >= min && v <= max)
        return PELAGO_OK;
    return pl_fail(err, PELAGO_INVALID, "%s is %lu, expected %lu to %lu", name, v, min, max);
}

static enum pelago_status check_counts(const struct pl_goodput_options *o, struct pl_error *err)
{
    PL_TRY(within("chips", o->chips, 1, UINT64_C(1000000000), err));
    PL_TRY(within("learners", o->learners, 1, PL_GOODPUT_LEARNERS_MAX, err));
    PL_TRY(within("slice", o->slice_chips, 1, UINT64_C(1) << 30, err));
    PL_TRY(within("domain-slices", o->domain_slices, 1, UINT64_C(1) << 30, err));
    PL_TRY(within("period", o->period_steps, 1, PL_PERIOD_STEPS_MAX, err));
    PL_TRY(within("overlap", o->overlap_steps, 0, o->period_steps, err));
    PL_TRY(within("quorum", o->quorum, 1, o->learners, err));
    PL_TRY(within("staleness", o->staleness_max, 1, 1000, err));
    if (o->algorithm >= PL_GOODPUT_ALGORITHMS)
        return pl_fail(
            err, PELAGO_INVALID,
            "algorithm is not known, expected decoupled, diloco, data_parallel or data_parallel_elastic");
    if (o->failures >= PL_GOODPUT_FAILURE_KINDS || o->repair.spread >= PL_GOODPUT_SPREADS ||
        o->outage.spread >= PL_GOODPUT_SPREADS || o->domain_repair.spread >= PL_GOODPUT_SPREADS)
        return pl_fail(err, PELAGO_INVALID,
                       "a kind of failures or of times is not known, expected one of goodput/goodput.h");
    return PELAGO_OK;
}

static enum pelago_status check_slices(const struct pl_goodput_options *o, struct pl_error *err)
{
    uint64_t slices = o->chips / o->slice_chips;
    if (o->sites == NULL && slices < o->learners)
        return pl_fail(err, PELAGO_INVALID,
                       "learners is %u, expected 1 to %lu, as there are %lu slices of %u chips", o->learners,
                       slices, slices, o->slice_chips);
    for (uint32_t i = 0; o->sites != NULL && i < o->learners; i++) {
        const struct pl_goodput_site *s = &o->sites[i];
        if (s->chips < o->slice_chips || s->chips > UINT64_C(1000000000))
            return pl_fail(err, PELAGO_INVALID,
                           "chips of learner %u is %lu, expected a slice of %u to 1000000000", i + 1,
                           s->chips, o->slice_chips);
        if (!(s->speed > 0 && s->speed <= 1000))
            return pl_fail(err, PELAGO_INVALID,
                           "speed of learner %u is out of its range, expected more than 0 to 1000", i + 1);
        if (!(s->link_bits_s >= 0 && s->link_bits_s <= 1e18) || !(s->mtbi_s >= 0 && s->mtbi_s <= 1e12) ||
            !(s->outages_per_day <= 1e5))
            return pl_fail(
                err, PELAGO_INVALID,
                "link, mtbi or outages of learner %u is out of its range, expected 0 to 1e18 bit a second, "
                "0 to 1e12 seconds and at most 100000 a day",
                i + 1);
    }
    return PELAGO_OK;
}

static enum pelago_status check_trace(const struct pl_goodput_options *o, struct pl_error *err)
{
    uint64_t slices = o->chips / o->slice_chips;
    if (o->failures != PL_GOODPUT_TRACE)
        return PELAGO_OK;
    if (o->trace == NULL || o->trace_count == 0)
        return pl_fail(err, PELAGO_INVALID, "trace is empty, expected at least one line");
    if (o->trace_nodes == 0 || o->trace_nodes > slices)
        return pl_fail(err, PELAGO_INVALID, "trace has %u nodes, expected 1 to %lu, the slices there are",
                       o->trace_nodes, slices);
    for (uint32_t i = 0; i < o->trace_count; i++)
        if (o->trace[i].node >= o->trace_nodes || !(o->trace[i].t_s >= 0 && o->trace[i].t_s < 1e10) ||
            (i > 0 && o->trace[i].t_s < o->trace[i - 1].t_s))
            return pl_fail(
                err, PELAGO_INVALID,
                "trace event %u is out of order or names no node, expected rising times and nodes below %u",
                i + 1, o->trace_nodes);
    return PELAGO_OK;
}

/* A learner's link must carry each of its fragments once in H steps; the other algorithms only get slow. */
static enum pelago_status check_link(const struct pl_goodput_options *o, struct pl_error *err)
{
    if (o->algorithm != PL_GOODPUT_DECOUPLED || o->sites != NULL || o->link_bits_s <= 0)
        return PELAGO_OK;
    double needs = 8 * o->model_bytes / o->period_steps / (o->period_steps * o->step_s);
    if (o->link_bits_s >= needs)
        return PELAGO_OK;
    return pl_fail(
        err, PELAGO_INVALID,
        "link-rate is %lu bit/s, expected 0 (no limit) or at least %lu: a fragment must be moved in "
        "its period",
        (uint64_t)o->link_bits_s, (uint64_t)fmin(ceil(needs), 1e19));
}

/* ---- how much work it is ---- */

static const double slices_max = 3e7, events_max = 5e8; /* some 1.5 GB; a minute or two */

/* Of the whole run; rough, as it is compared with a bound only. */
static double events_of(const struct pl_goodput_options *o)
{
    double slices = 0, failing = 0, outages = 0, s = o->days * 86400;
    for (uint32_t i = 0; i < o->learners; i++) {
        const struct pl_goodput_site *site = o->sites != NULL ? &o->sites[i] : NULL;
        double chips = site != NULL ? (double)site->chips : (double)o->chips / o->learners;
        slices += chips / o->slice_chips;
        failing += chips / (site != NULL && site->mtbi_s > 0 ? site->mtbi_s : o->mtbi_s);
        outages += site != NULL && site->outages_per_day >= 0 ? site->outages_per_day : o->outages_per_day;
    }
    double events = 4 * failing * s + 2 * outages * o->days +
                    2 * o->stragglers_per_day * o->learners * o->days +
                    2 * o->domain_loss_per_day * slices * o->days;
    if (o->failures == PL_GOODPUT_TRACE) {
        double last_s = o->trace[o->trace_count - 1].t_s;
        double laps = s / o->trace_scale / (last_s > 0 ? last_s : 1) + 2;
        events += 16 * laps * o->trace_count * (slices / o->trace_nodes + o->learners); /* held in memory */
    }
    if (o->algorithm == PL_GOODPUT_DILOCO)
        events += 2 * s / (o->period_steps * o->step_s) * o->learners;
    return events;
}

static enum pelago_status check_work(const struct pl_goodput_options *o, struct pl_error *err)
{
    double slices = (double)o->chips / o->slice_chips, events = events_of(o);
    if (slices > slices_max)
        return pl_fail(err, PELAGO_INVALID,
                       "slice is %u, expected at least %lu with %lu chips: a run has at most %lu slices",
                       o->slice_chips, (uint64_t)ceil((double)o->chips / slices_max), o->chips,
                       (uint64_t)slices_max);
    if (events > events_max)
        return pl_fail(err, PELAGO_INVALID,
                       "days asks for more than %lu events, expected at most %lu seconds with failures, "
                       "outages, stragglers and barriers so frequent",
                       (uint64_t)events_max, (uint64_t)(o->days * 86400 * events_max / events));
    return PELAGO_OK;
}

enum pelago_status pl_goodput_check(const struct pl_goodput_options *o, struct pl_error *err)
{
    PL_TRY(check_counts(o, err));
    PL_TRY(check_ranges(o, err));
    PL_TRY(check_slices(o, err));
    PL_TRY(check_link(o, err));
    PL_TRY(check_trace(o, err));
    return check_work(o, err);
}
