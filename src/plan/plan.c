/* plan/plan.c - the search, and what is said about its result: shards, bottleneck, worth of each site. */
#include "plan/plan.h"

#include "base/check.h"
#include "base/limits.h"
#include "base/num.h"
#include "plan/quality.h"

#include <math.h>

/* ---- lists ---- */

static const uint32_t periods[] = {1,  2,  4,  8,  10,  12,  16,  20,  24,  32,  40,
                                   48, 64, 80, 96, 128, 192, 256, 384, 512, 768, 1024};
enum { PERIODS = sizeof periods / sizeof periods[0] };
static const enum pl_codec ups[] = {PL_CODEC_FP32, PL_CODEC_BF16, PL_CODEC_INT4, PL_CODEC_INT2};
static const enum pl_codec downs[] = {PL_CODEC_FP32, PL_CODEC_BF16, PL_CODEC_INT4};
enum { UPS = sizeof ups / sizeof ups[0], DOWNS = sizeof downs / sizeof downs[0] };

uint32_t pl_plan_periods(void)
{
    return PERIODS;
}

uint32_t pl_plan_period(uint32_t i)
{
    pl_assert(i < PERIODS);
    return periods[i];
}

/* ---- the search ---- */

/* Where times differ by a per cent or two, what the paper uses (P = H = 24) and fewer bits win. */
static double score(const struct pl_plan_outcome *o)
{
    double odd = fabs(log2(o->choice.fragments / 24.0)) + fabs(log2(o->choice.period / 24.0));
    double bits = pl_quality_bits(o->choice.up) + pl_quality_bits(o->choice.down);
    return o->time_s * (1 + 5e-4 * odd + 2.5e-4 * bits);
}

struct search {
    const struct pl_plan_input *in;
    struct pl_plan_outcome *best;
    bool found;
    struct pl_error why; /* of the last choice refused */
};

static void try_choice(struct search *s, const struct pl_plan_choice *c)
{
    struct pl_plan_outcome o;
    if (pl_plan_evaluate(s->in, c, &o, &s->why) != PELAGO_OK)
        return;
    if (!s->found || score(&o) < score(s->best))
        *s->best = o;
    s->found = true;
}

/* What is given need not be on the list: those that nobody has measured are never chosen. */
static void try_codecs(struct search *s, uint32_t period, uint32_t fragments)
{
    const struct pl_plan_choice *fixed = &s->in->fixed;
    if (fragments > period || fragments > PL_FRAGMENTS_MAX)
        return;
    for (unsigned u = 0; u < (fixed->up != 0 ? 1 : UPS); u++)
        for (unsigned d = 0; d < (fixed->down != 0 ? 1 : DOWNS); d++)
            try_choice(s, &(struct pl_plan_choice){.fragments = fragments,
                                                   .period = period,
                                                   .up = fixed->up != 0 ? fixed->up : ups[u],
                                                   .down = fixed->down != 0 ? fixed->down : downs[d]});
}

static void try_period(struct search *s, uint32_t period)
{
    uint32_t fixed = s->in->fixed.fragments;
    for (unsigned i = 0; i < PERIODS && fixed == 0; i++)
        try_codecs(s, period, periods[i]);
    if (fixed > 0)
        try_codecs(s, period, fixed);
}

/* Periods run upwards, so what is refused last is the easiest for the links, and its sentence asks for the least. */
static enum pelago_status find_best(const struct pl_plan_input *in, struct pl_plan_outcome *best,
                                    struct pl_error *err)
{
    struct search s = {.in = in, .best = best};
    for (unsigned i = 0; i < PERIODS && in->fixed.period == 0; i++)
        try_period(&s, periods[i]);
    if (in->fixed.period > 0)
        try_period(&s, in->fixed.period);
    else if (in->fixed.fragments > periods[PERIODS - 1])
        try_period(&s, in->fixed.fragments);
    if (s.found)
        return PELAGO_OK;
    return pl_fail(err, PELAGO_INVALID, "%s", s.why.text);
}

/* ---- what is said about it ---- */

/* Value, momentum and what learners hold in fp32, as much again of recent updates; contributions of a fragment as they are
 * merged. */
static void find_shards(const struct pl_plan_input *in, struct pl_plan *p)
{
    const struct pl_plan_choice *c = &p->best.choice;
    double bytes = 16 * in->params + 8 * in->params / c->fragments * in->site_count, bits = 0;
    for (uint32_t i = 0; i < in->site_count; i++)
        bits += p->best.sites[i].link_load * in->sites[i].link_bits_s;
    double wanted = ceil(fmax(bytes / in->syncer_bytes, bits / in->syncer_bits_s));
    p->shards = (uint32_t)fmin(fmax(wanted, 1), fmin(PL_SHARDS_MAX, c->fragments));
    p->shard_bytes = bytes / p->shards;
    p->shard_bits_s = bits / p->shards;
}

static void find_bottleneck(const struct pl_plan_input *in, struct pl_plan *p)
{
    struct pl_plan_input free_links = *in;
    struct pl_plan_outcome free_best;
    double failures = 0, worst = 0, load = 0;
    uint32_t failing = 0, loaded = 0;
    for (uint32_t i = 0; i < in->site_count; i++) {
        const struct pl_plan_site_outcome *o = &p->best.sites[i];
        double lost = o->tokens_s * (1 - o->goodput);
        failures += lost * o->efficiency;
        if (lost > worst) {
            worst = lost;
            failing = i;
        }
        if (o->stride * 100 + o->link_load > load) {
            load = o->stride * 100 + o->link_load;
            loaded = i;
        }
        free_links.sites[i].link_bits_s = 1e16;
        free_links.sites[i].latency_s = 0;
    }
    double by_failures = failures / (p->best.tokens_s + failures), by_links = 0;
    if (find_best(&free_links, &free_best, NULL) == PELAGO_OK)
        by_links = 1 - free_best.time_s / p->best.time_s;
    p->bottleneck = PL_PLAN_CHIPS;
    if (p->shard_bits_s > in->syncer_bits_s) {
        p->bottleneck = PL_PLAN_SYNCER;
        p->bottleneck_share = 1 - in->syncer_bits_s / p->shard_bits_s;
    } else if (fmax(by_failures, by_links) > 0.05) {
        bool links = by_links > by_failures;
        p->bottleneck = links ? PL_PLAN_LINKS : PL_PLAN_FAILURES;
        p->bottleneck_site = links ? loaded : failing;
        p->bottleneck_share = links ? by_links : by_failures;
    }
}

static void find_worth(const struct pl_plan_input *in, struct pl_plan *p)
{
    struct pl_plan_input fewer;
    struct pl_plan_outcome best;
    for (uint32_t i = 0; i < in->site_count && in->site_count > 1; i++) {
        fewer = *in;
        fewer.site_count--;
        for (uint32_t k = i; k < fewer.site_count; k++)
            fewer.sites[k] = in->sites[k + 1];
        fewer.quorum = pl_min32(in->quorum, fewer.site_count);
        fewer.fixed.up = p->best.choice.up; /* one site more or less hardly changes them */
        fewer.fixed.down = p->best.choice.down;
        p->worth[i] = (struct pl_plan_worth){.costs = p->best.sites[i].cost};
        if (find_best(&fewer, &best, NULL) != PELAGO_OK)
            continue;
        p->worth[i].brings = best.cost - (p->best.cost - p->best.sites[i].cost);
        p->worth[i].hours_without = best.time_s / 3600;
    }
}

/* Without prices a chip costs what it can do: an hour of the average chip is one chip-hour. */
static bool price_chips(struct pl_plan_input *in)
{
    double tflops = 0, chips = 0;
    for (uint32_t i = 0; i < in->site_count; i++) {
        if (in->sites[i].price > 0)
            return true;
        tflops += (double)in->sites[i].chips * in->sites[i].tflops;
        chips += (double)in->sites[i].chips;
    }
    for (uint32_t i = 0; i < in->site_count; i++) {
        in->sites[i].price = in->sites[i].tflops * chips / tflops;
        in->sites[i].egress = 0;
    }
    return false;
}

enum pelago_status pl_plan_make(const struct pl_plan_input *in, struct pl_plan *out, struct pl_error *err)
{
    struct pl_plan_input priced = *in;
    PL_TRY(pl_plan_check(in, err));
    *out = (struct pl_plan){.priced = price_chips(&priced)};
    PL_TRY(find_best(&priced, &out->best, err));
    find_shards(&priced, out);
    find_bottleneck(&priced, out);
    find_worth(&priced, out);
    return PELAGO_OK;
}
