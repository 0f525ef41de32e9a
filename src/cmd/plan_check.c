/* cmd/plan_check.c - pelago plan --check: plans of random scenarios against their simulation, and against every single
 * change of P, H or a codec, simulated as well. */
#include "cmd/cmd.h"
#include "cmd/plan_print.h"
#include "plan/simulate.h"

#include <inttypes.h>
#include <math.h>

static const double bar = 0.05;

struct verdict {
    struct pl_plan plan;
    struct pl_plan_simulated simulated;
    struct pl_plan_choice change; /* the best single one */
    double gain;                  /* of it, in time; below 0: none is better */
};

static bool is_same(const struct pl_plan_choice *a, const struct pl_plan_choice *b)
{
    return a->fragments == b->fragments && a->period == b->period && a->up == b->up && a->down == b->down;
}

static enum pelago_status try_changes(const struct pl_plan_input *in, uint64_t seed,
                                      const struct pl_alloc *alloc, struct verdict *v, struct pl_error *err)
{
    struct pl_plan_choice c;
    struct pl_plan_outcome o;
    struct pl_plan_simulated s;
    v->gain = -1;
    for (uint32_t i = 0; pl_plan_change(&v->plan.best.choice, i, &c); i++) {
        if (is_same(&c, &v->plan.best.choice) || c.fragments > c.period ||
            pl_plan_evaluate(in, &c, &o, NULL) != PELAGO_OK)
            continue;
        PL_TRY(pl_plan_simulate(in, &o, seed, alloc, &s, err));
        double gain = v->simulated.time_s / s.time_s - 1;
        if (gain > v->gain) {
            v->gain = gain;
            v->change = c;
        }
    }
    return PELAGO_OK;
}

static enum pelago_status judge(uint64_t seed, struct pl_plan_input *in, struct verdict *v,
                                struct pl_error *err)
{
    struct pl_alloc alloc = pl_alloc_system();
    pl_plan_scenario(seed, in);
    PL_TRY(pl_plan_make(in, &v->plan, err));
    PL_TRY(pl_plan_simulate(in, &v->plan.best, seed, &alloc, &v->simulated, err));
    return try_changes(in, seed, &alloc, v, err);
}

static void print_verdict(uint64_t seed, const struct pl_plan_input *in, const struct verdict *v, bool json)
{
    const struct pl_plan_outcome *b = &v->plan.best;
    const struct pl_plan_choice *c = &b->choice, *n = &v->change;
    const struct pl_plan_simulated *s = &v->simulated;
    if (json)
        printf("{\"seed\":%" PRIu64
               ",\"params\":%.4g,\"sites\":%u,\"fragments\":%u,\"period\":%u,\"up\":\"%s\","
               "\"down\":\"%s\",\"goodput\":%.5f,\"goodput_simulated\":%.5f,\"time_s\":%.6g,"
               "\"time_simulated_s\":%.6g,\"change_gain\":%.5f}\n",
               seed, in->params, in->site_count, c->fragments, c->period, pl_codec_name(c->up),
               pl_codec_name(c->down), b->goodput, s->goodput, b->time_s, s->time_s, v->gain);
    else
        printf("%5" PRIu64 " %5.1fB %5u %5u %5u %4s/%-4s %6.2f%% %6.2f%% %8.2f h %8.2f h %+5.1f%%   P=%u "
               "H=%u %s/%s %+.1f%%\n",
               seed, in->params / 1e9, in->site_count, c->fragments, c->period, pl_codec_name(c->up),
               pl_codec_name(c->down), 100 * b->goodput, 100 * s->goodput, b->time_s / 3600, s->time_s / 3600,
               100 * (b->time_s / s->time_s - 1), n->fragments, n->period, pl_codec_name(n->up),
               pl_codec_name(n->down), 100 * v->gain);
}

int pl_plan_check_seeds(uint64_t first, uint64_t last, bool json)
{
    struct pl_plan_input in;
    struct verdict v;
    double goodput = 0, time = 0, gain = -1;
    struct pl_error err;
    if (!json)
        printf(" seed params sites     P     H  up/down    goodput, sim      time, simulated   off   best "
               "single change\n");
    for (uint64_t seed = first; seed - first <= last - first; seed++) {
        if (judge(seed, &in, &v, &err) != PELAGO_OK)
            return pl_failure(pl_plan_command, &err);
        print_verdict(seed, &in, &v, json);
        goodput = fmax(goodput, fabs(v.plan.best.goodput / v.simulated.goodput - 1));
        time = fmax(time, fabs(v.plan.best.time_s / v.simulated.time_s - 1));
        gain = fmax(gain, v.gain);
    }
    bool good = goodput <= bar && time <= bar && gain <= bar;
    if (!json)
        printf(
            "at most: goodput %.2f%% off, time %.2f%% off, a single change %+.2f%%; the bar is %.0f%%: %s\n",
            100 * goodput, 100 * time, 100 * gain, 100 * bar, good ? "held" : "BROKEN");
    return good ? PL_EXIT_OK : PL_EXIT_FAILED;
}
