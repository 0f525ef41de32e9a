/* cmd/plan_print.c - a plan on one page. */
#include "cmd/plan_print.h"

#include "base/check.h"
#include "plan/bandwidth.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

struct words {
    char at[32];
};

/* 3.41B, 12.0M: three digits and a letter. */
static struct words amount(double v)
{
    static const char letters[] = " kMBTPE";
    struct words w;
    unsigned i = 0;
    for (; v >= 999.5 && letters[i + 1] != '\0'; i++)
        v /= 1000;
    int digits = i == 0 && floor(v) >= v ? 0 : v < 9.995 ? 2 : v < 99.95 ? 1 : 0;
    (void)snprintf(w.at, sizeof w.at, "%.*f%.*s", digits, v, i > 0 ? 1 : 0, &letters[i]);
    return w;
}

/* With the unit of thousands: "1.35 Gbit/s", "152 MB". */
static struct words scaled(double v, const char *unit)
{
    static const char *const thousands[] = {"", "k", "M", "G", "T", "P"};
    struct words w;
    unsigned i = 0;
    for (; v >= 999.5 && i + 1 < sizeof thousands / sizeof thousands[0]; i++)
        v /= 1000;
    (void)snprintf(w.at, sizeof w.at, "%.3g %s%s", v, thousands[i], unit);
    return w;
}

static struct words rate(double bits_s)
{
    return scaled(bits_s, "bit/s");
}

static struct words span(double s)
{
    struct words w;
    if (s < 1)
        (void)snprintf(w.at, sizeof w.at, "%.0f ms", s * 1e3);
    else if (s < 120)
        (void)snprintf(w.at, sizeof w.at, "%.3g s", s);
    else if (s < 7200)
        (void)snprintf(w.at, sizeof w.at, "%.3g min", s / 60);
    else if (s < 48 * 3600)
        (void)snprintf(w.at, sizeof w.at, "%.3g hours", s / 3600);
    else
        (void)snprintf(w.at, sizeof w.at, "%.3g days", s / 86400);
    return w;
}

static struct words money(const struct pl_plan *p, double v)
{
    struct words w, a = amount(v);
    (void)snprintf(w.at, sizeof w.at, "%.16s%s", a.at, p->priced ? "" : " chip-hours");
    return w;
}

static void print_settings(const struct pl_plan_input *in, const struct pl_plan *p)
{
    const struct pl_plan_outcome *b = &p->best;
    const struct pl_plan_choice *c = &b->choice;
    size_t values = (size_t)(in->params / c->fragments);
    printf("  fragments  P = %-5u  %s parameters each: %s up, %s down\n", c->fragments,
           amount(in->params / c->fragments).at, scaled((double)pl_codec_bytes(c->up, values), "B").at,
           scaled((double)pl_codec_bytes(c->down, values), "B").at);
    printf("  period     H = %-5u  every fragment once in %s\n", c->period, span(b->cycle_s).at);
    printf("  overlap    tau = %-3u  steps hide an exchange; quorum K = %u\n", b->overlap, in->quorum);
    printf("  codecs     up %s, down %s\n", pl_codec_name(c->up), pl_codec_name(c->down));
    printf("  syncer     %u shard%s %s of memory and %s each way\n\n", p->shards,
           p->shards == 1 ? " with" : "s, each", scaled(p->shard_bytes, "B").at, rate(p->shard_bits_s).at);
}

static void print_sites(const struct pl_plan_input *in, const struct pl_plan *p)
{
    int wide = 16;
    for (uint32_t i = 0; i < in->site_count; i++)
        wide = (int)fmax(wide, (double)strlen(in->sites[i].name));
    printf("  %-*s %9s %9s %9s %8s %13s %5s %8s %7s %s\n", wide, "site", "chips", "step", "tokens/s",
           "goodput", "link", "busy", "merged", "counts", p->priced ? "cost" : "chip-hours");
    for (uint32_t i = 0; i < in->site_count; i++) {
        const struct pl_plan_site_outcome *o = &p->best.sites[i];
        printf("  %-*s %9" PRIu64 " %9s %9s %7.1f%% %13s %4.0f%% %8.0f %6.1f%% %s\n", wide, in->sites[i].name,
               in->sites[i].chips, span(o->step_s).at, amount(o->tokens_s).at, 100 * o->goodput,
               rate(in->sites[i].link_bits_s).at, 100 * o->link_load, o->interval_steps, 100 * o->efficiency,
               amount(o->cost).at);
    }
    printf("\n  busy: of the link, the busier way. merged: own steps between two merges of a fragment. "
           "counts: of its\n"
           "  tokens, against data-parallel training to the same loss.%s\n\n",
           p->priced ? " cost: in the money of price and egress, chips and traffic."
                     : " chip-hours: of the average chip.");
}

/* What one job over the same links would do: the slowest of them carries a ring's share of gradients every step. */
static double data_parallel(const struct pl_plan_input *in, const struct pl_plan *p, uint32_t layers)
{
    double slowest = in->sites[0].link_bits_s, longest = 0;
    for (uint32_t i = 0; i < in->site_count; i++) {
        slowest = fmin(slowest, in->sites[i].link_bits_s);
        longest = fmax(longest, p->best.sites[i].step_s);
    }
    const struct pl_bandwidth b = {.method = PL_BANDWIDTH_DATA_PARALLEL,
                                   .layers = layers,
                                   .step_s = longest,
                                   .gbit = pl_bandwidth_ring_gbit(in->params / 1e9, 16, in->site_count),
                                   .period = 1};
    return pl_bandwidth_utilisation(&b, slowest / 1e9);
}

static void print_bottleneck(const struct pl_plan_input *in, const struct pl_plan *p)
{
    const char *site = in->sites[p->bottleneck_site].name;
    double share = 100 * p->bottleneck_share;
    switch (p->bottleneck) {
    case PL_PLAN_CHIPS:
        printf("  bottleneck   chips: neither links nor failures cost 5%% of the time\n");
        break;
    case PL_PLAN_LINKS:
        printf("  bottleneck   links, first of all that of %s: without any limit the run would be %.0f%% "
               "shorter\n",
               site, share);
        break;
    case PL_PLAN_FAILURES:
        printf("  bottleneck   failures, first of all at %s: without any the run would be %.0f%% shorter\n",
               site, share);
        break;
    case PL_PLAN_SYNCER:
        printf(
            "  bottleneck   the syncer: with %u shards each has %.0f%% more traffic than its link carries\n",
            p->shards, 100 * (1 / (1 - p->bottleneck_share) - 1));
        break;
    }
}

static void print_outcome(const struct pl_plan_input *in, const struct pl_plan *p, uint32_t layers)
{
    const struct pl_plan_outcome *b = &p->best;
    printf("  utilisation  100%% without failures: learners never wait");
    if (in->site_count > 1)
        printf("; data-parallel over these links: %.2g%%", 100 * data_parallel(in, p, layers));
    printf("\n  goodput      %.1f%% of the chips' time becomes training\n", 100 * b->goodput);
    printf("  counts       %.1f%% of those tokens (period, codecs, overlap, %u learners)\n",
           100 * b->efficiency, in->site_count);
    printf("  time         %s", span(b->time_s).at);
    if (in->deadline_s > 0)
        printf(" (deadline %s: %s)", span(in->deadline_s).at, b->time_s <= in->deadline_s ? "met" : "MISSED");
    printf("\n  cost         %s\n", money(p, b->cost).at);
    print_bottleneck(in, p);
}

static bool too_dear(const struct pl_plan_worth *w)
{
    return w->hours_without > 0 && w->costs > 1.05 * w->brings;
}

/* The sites that cost more than they bring, the worst first, three of them. */
static void print_worth(const struct pl_plan_input *in, const struct pl_plan *p)
{
    bool said[PL_PLAN_SITES_MAX] = {false};
    uint32_t left = 0;
    for (uint32_t i = 0; i < in->site_count; i++)
        left += too_dear(&p->worth[i]);
    for (uint32_t round = 0; round < 3 && left > 0; round++, left--) {
        uint32_t worst = in->site_count;
        for (uint32_t i = 0; i < in->site_count; i++) {
            const struct pl_plan_worth *w = &p->worth[i], *best = &p->worth[worst % in->site_count];
            if (!said[i] && too_dear(w) &&
                (worst == in->site_count || w->costs - w->brings > best->costs - best->brings))
                worst = i;
        }
        pl_assert(worst < in->site_count);
        const struct pl_plan_worth *w = &p->worth[worst];
        said[worst] = true;
        printf("\n  warning: %s costs %s and brings %s: without it the run costs %s less and takes %s.",
               in->sites[worst].name, money(p, w->costs).at, money(p, fmax(w->brings, 0)).at,
               money(p, w->costs - w->brings).at, span(w->hours_without * 3600).at);
    }
    if (left > 0)
        printf("\n  warning: %u more cost%s more than %s, each taken alone; --json has all.", left,
               left == 1 ? "s" : "", left == 1 ? "it brings" : "they bring");
}

static void print_warnings(const struct pl_plan_input *in, const struct pl_plan *p)
{
    print_worth(in, p);
    if (in->deadline_s > 0 && p->best.time_s > in->deadline_s)
        printf("\n  warning: the deadline is missed by %s; %.3g times the chips would meet it.",
               span(p->best.time_s - in->deadline_s).at, p->best.time_s / in->deadline_s);
    if (p->shard_bytes > in->syncer_bytes)
        printf("\n  warning: a shard needs %s of memory and a host has %s; a run has at most %u shards.",
               scaled(p->shard_bytes, "B").at, scaled(in->syncer_bytes, "B").at, p->shards);
    for (uint32_t i = 0; i < in->site_count; i++)
        if (p->best.sites[i].stride > 1)
            printf("\n  warning: the link of %s carries %s only and takes part in every %u%s cycle.",
                   in->sites[i].name, rate(in->sites[i].link_bits_s).at, p->best.sites[i].stride,
                   p->best.sites[i].stride % 10 == 2 ? "nd" : "th"); /* a power of two */
}

void pl_plan_print(const struct pl_plan_input *in, const struct pl_plan *p, uint32_t layers,
                   const char *syncer)
{
    printf("%s parameters, %s tokens, %u site%s, steps of %s tokens a learner", amount(in->params).at,
           amount(in->tokens).at, in->site_count, in->site_count == 1 ? "" : "s",
           amount(in->batch_tokens).at);
    if (syncer != NULL)
        printf(", syncer in %s", syncer);
    printf("\n\n");
    print_settings(in, p);
    print_sites(in, p);
    print_outcome(in, p, layers);
    print_warnings(in, p);
    printf("\n");
}
