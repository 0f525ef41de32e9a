/* plan/simulate.c - see simulate.h: one site's link in ticks of the syncer, and the sum over the sites. */
#include "plan/simulate.h"

#include "base/check.h"
#include "base/limits.h"
#include "base/num.h"
#include "base/prng.h"
#include "goodput/draw.h"
#include "goodput/goodput.h"
#include "plan/plan_int.h"
#include "plan/quality.h"

#include <math.h>

enum {
    EVENTS = 40000,
    CYCLES_MIN = 64,
    GOOD_ROUNDS_MIN = 2,
    GOOD_ROUNDS_MAX = 64,
    FRAGMENTS_MAX = PL_FRAGMENTS_MAX
};

struct link {
    const struct pl_plan_input *in;
    const struct pl_plan_site *site;
    const struct pl_plan_outcome *plan;
    double step_s;
    struct pl_prng rates, outages;
    double up_free, down_free;       /* when the link is idle again, each way */
    double outage_from, outage_till; /* the next or present one */
    double lead, lead_dev;
    uint32_t stride, good, good_needed;
    bool probing;
    double stride_s;                  /* since when */
    double merged_s[FRAGMENTS_MAX];   /* when what was merged last was copied */
    double interval[FRAGMENTS_MAX];   /* own steps that went into it; 0: none since the last version */
    double arrival_s[FRAGMENTS_MAX];  /* of the last version */
    uint32_t versions[FRAGMENTS_MAX]; /* that the learner lacks */
    double work, loss;                /* own steps merged; their loss, weighted */
    uint64_t exchanges, late;
};

static double mean_outage_gap(const struct link *l)
{
    return l->site->outages_per_day > 0 ? 86400 / l->site->outages_per_day : 1e18;
}

/* The moment at which `seconds` of sending that begin at `at` are over, outages left out. Moments rise only roughly between
 * the two ways, so an outage is forgotten when both are past it. */
static double sent_by(struct link *l, double at, double seconds)
{
    while (fmin(l->up_free, l->down_free) > l->outage_till) {
        l->outage_from = l->outage_till + pl_draw_exponential(&l->outages, mean_outage_gap(l));
        l->outage_till = l->outage_from + pl_draw_exponential(&l->outages, fmax(l->in->outage_s, 1e-9));
    }
    if (at >= l->outage_from && at < l->outage_till)
        at = l->outage_till;
    bool through = at < l->outage_from && at + seconds > l->outage_from;
    return at + seconds + (through ? l->outage_till - l->outage_from : 0);
}

/* Rates vary by a fifth either way. */
static double sending_s(struct link *l, double bits)
{
    return bits / l->site->link_bits_s / (0.8 + 0.4 * pl_draw_unit(&l->rates));
}

static double half_period_s(const struct link *l)
{
    return l->plan->cycle_s / 2;
}

static double lead_s(const struct link *l)
{
    return fmin(l->lead + 4 * l->lead_dev + l->plan->tick_s / 8, half_period_s(l));
}

static void average(struct link *l, double took_s)
{
    double off = fabs(took_s - l->lead);
    l->lead += (took_s - l->lead) / 8;
    l->lead_dev += (off - l->lead_dev) / 4;
}

static void set_stride(struct link *l, uint32_t stride, double now)
{
    l->probing = stride < l->stride;
    l->stride = stride;
    l->stride_s = now;
    l->good = 0;
}

static void in_time(struct link *l, double took_s, double now)
{
    average(l, took_s);
    if (l->stride > 1 && took_s <= half_period_s(l) * 3 / 4 &&
        ++l->good >= pl_max32(l->good_needed, GOOD_ROUNDS_MIN))
        set_stride(l, l->stride / 2, now);
}

static void too_late(struct link *l, double pulled_s, double now)
{
    average(l, (now - pulled_s) * 1.25 + l->plan->tick_s / 4);
    l->late++;
    l->good = 0;
    if (lead_s(l) < half_period_s(l) || pulled_s < l->stride_s || l->stride >= PL_STRIDE_MAX)
        return;
    l->good_needed =
        l->probing ? pl_min32(2 * pl_max32(l->good_needed, GOOD_ROUNDS_MIN), GOOD_ROUNDS_MAX) : 0;
    set_stride(l, l->stride * 2, now);
}

/* The newest version of fragment f comes down, as the differences that are lacking or as a whole. If own work is in it, that
 * work is now worth what its age leaves. */
static void send_down(struct link *l, uint32_t f, double merged_s)
{
    const struct pl_plan_choice *c = &l->plan->choice;
    double bits = pl_plan_down_bits(c, l->versions[f]) * l->in->params / c->fragments;
    double at = fmax(l->down_free, merged_s + l->site->latency_s / 2);
    if (l->arrival_s[f] > merged_s) /* the one before is still queued: they go together, later */
        return;
    l->down_free = l->arrival_s[f] = sent_by(l, at, sending_s(l, bits));
    l->versions[f] = 0;
    if (l->interval[f] > 0) {
        double share = ((l->down_free - l->merged_s[f]) / l->step_s + 0.5) / l->interval[f];
        l->work += l->interval[f];
        l->loss += l->interval[f] * (pl_quality_period(l->interval[f]) + pl_quality_overlap(fmin(share, 1)));
        l->interval[f] = 0;
    }
}

/* Fragment f goes up, once the learner has the version before; false: it comes too late. What would come too late anyway is
 * not sent. */
static bool send_up(struct link *l, uint32_t f, double due_s)
{
    const struct pl_plan_choice *c = &l->plan->choice;
    double pulled_s = due_s - lead_s(l), copied_s = fmax(pulled_s + l->site->latency_s / 2, l->arrival_s[f]);
    double bits = pl_quality_bits(c->up) * l->in->params / c->fragments;
    double last_s = due_s + l->plan->tick_s * 0.8, begin_s = fmax(l->up_free, copied_s);
    double there_s = begin_s < last_s ? sent_by(l, begin_s, sending_s(l, bits)) : begin_s;
    if (begin_s < last_s)
        l->up_free = there_s;
    l->exchanges++;
    if (there_s > last_s) {
        too_late(l, pulled_s, last_s);
        return false;
    }
    in_time(l, there_s - pulled_s, due_s);
    l->interval[f] = (copied_s - l->merged_s[f]) / l->step_s;
    l->merged_s[f] = copied_s;
    return true;
}

static void exchange(struct link *l, uint32_t f, uint64_t cycle, double due_s)
{
    const struct pl_plan_choice *c = &l->plan->choice;
    double merge_s = l->in->params / c->fragments * l->in->site_count * PL_PLAN_MERGE_S;
    uint32_t apart = pl_max32(l->stride / c->fragments, 1);
    l->versions[f]++;
    if (((cycle + (uint64_t)f * apart) & (l->stride - 1)) != 0)
        return;
    bool merged = send_up(l, f, due_s);
    send_down(l, f, (merged ? fmax(l->up_free, due_s) : due_s) + merge_s);
}

static void play_link(struct link *l)
{
    const struct pl_plan_choice *c = &l->plan->choice;
    uint32_t cycles = pl_max32(EVENTS / c->fragments, CYCLES_MIN);
    l->stride = 1;
    l->lead = l->plan->tick_s * l->plan->overlap;
    for (uint32_t cycle = 0; cycle < cycles; cycle++) {
        if (cycle == cycles / 2) /* what settled before does not count */
            l->work = l->loss = 0;
        for (uint32_t f = 0; f < c->fragments; f++) {
            uint32_t offset = (uint32_t)((uint64_t)f * c->period / c->fragments);
            exchange(l, f, cycle, l->plan->cycle_s * (cycle + 1.0) + l->plan->tick_s * offset);
        }
    }
}

static enum pelago_status run_goodput(const struct pl_plan_input *in, const struct pl_plan_outcome *planned,
                                      uint64_t seed, const struct pl_alloc *alloc,
                                      struct pl_goodput_result *out, struct pl_error *err)
{
    struct pl_goodput_options o;
    struct pl_goodput_site sites[PL_PLAN_SITES_MAX];
    pl_goodput_defaults(&o);
    o.chips = 0;
    double failing = 0;
    for (uint32_t i = 0; i < in->site_count; i++) {
        const struct pl_plan_site *s = &in->sites[i];
        sites[i] =
            (struct pl_goodput_site){s->chips, s->tflops, s->link_bits_s, s->mtbi_s, s->outages_per_day};
        o.chips += s->chips;
        failing += (double)s->chips / s->mtbi_s;
    }
    o.learners = in->site_count;
    o.sites = sites;
    o.seed = seed;
    o.slice_chips = in->slice_chips;
    o.repair.mean_s = in->repair_s;
    o.outage.mean_s = in->outage_s;
    o.model_bytes = 4 * in->params;
    o.step_s = planned->tick_s;
    o.period_steps = planned->choice.period;
    o.overlap_steps = pl_min32(planned->overlap, planned->choice.period);
    o.quorum = in->quorum;
    o.days = fmin(fmax(2000 / failing / 86400, 60), 20000); /* failures enough for a steady mean */
    return pl_goodput_run(&o, alloc, out, err);
}

static struct pl_plan_simulated play(const struct pl_plan_input *in, const struct pl_plan_outcome *planned,
                                     struct link *l, uint64_t seed)
{
    struct pl_plan_simulated sum = {0, 0, 0, 0, 0};
    double good = 0;
    double common = pl_quality_learners(in->params, in->site_count) + pl_quality_codec(planned->choice.up) +
                    pl_quality_codec(planned->choice.down);
    for (uint32_t i = 0; i < in->site_count; i++) {
        *l = (struct link){
            .in = in, .site = &in->sites[i], .plan = planned, .step_s = planned->sites[i].step_s};
        pl_prng_seed(&l->rates, seed, 2 * (uint64_t)i);
        pl_prng_seed(&l->outages, seed, 2 * (uint64_t)i + 1);
        play_link(l);
        double loss = common + (l->work > 0 ? l->loss / l->work : 1);
        double rate = planned->sites[i].tokens_s * planned->sites[i].goodput;
        good += rate;
        sum.efficiency += rate * pl_quality_tokens(loss);
        sum.exchanges += l->exchanges;
        sum.late += l->late;
    }
    sum.efficiency /= good;
    return sum;
}

enum pelago_status pl_plan_simulate(const struct pl_plan_input *in, const struct pl_plan_outcome *planned,
                                    uint64_t seed, const struct pl_alloc *alloc,
                                    struct pl_plan_simulated *out, struct pl_error *err)
{
    struct pl_goodput_result r;
    PL_TRY(run_goodput(in, planned, seed, alloc, &r, err));
    struct link *l = pl_alloc_zero(alloc, 1, sizeof *l);
    if (l == NULL)
        return pl_fail(err, PELAGO_NOMEM, "out of memory");
    double tokens_s = 0;
    *out = play(in, planned, l, seed);
    pl_alloc_free(alloc, l, sizeof *l);
    for (uint32_t i = 0; i < in->site_count; i++)
        tokens_s += planned->sites[i].tokens_s;
    out->goodput = r.goodput;
    out->time_s = in->tokens / (tokens_s * r.goodput * out->efficiency);
    return PELAGO_OK;
}
