/* plan/scenario.c - scenarios drawn by seed, and the changes a plan is tried against. */
#include "base/fmt.h"
#include "base/prng.h"
#include "goodput/draw.h"
#include "plan/simulate.h"

#include <math.h>
#include <stddef.h>

static double between(struct pl_prng *r, double low, double high) /* evenly in the logarithm */
{
    return low * pow(high / low, pl_draw_unit(r));
}

static void draw_site(struct pl_prng *r, uint32_t number, double scale, double need_bits_s,
                      struct pl_plan_site *s)
{
    (void)pl_fmt(s->name, sizeof s->name, "site-%u", number + 1);
    s->chips = (uint64_t)(scale * between(r, 0.5, 2)) / 4 * 4 + 4;
    s->tflops = between(r, 100, 400);
    s->link_bits_s = need_bits_s * between(r, 0.1, 30);
    s->latency_s = between(r, 0.005, 0.25);
    s->mtbi_s = between(r, 1e6, 5e7);
    s->outages_per_day = pl_prng_chance(r, 500000) ? between(r, 0.1, 3) : 0;
    s->price = between(r, 1, 4);
}

void pl_plan_scenario(uint64_t seed, struct pl_plan_input *out)
{
    struct pl_prng r;
    pl_prng_seed(&r, seed, 1);
    pl_plan_defaults(out);
    out->params = between(&r, 1e9, 1e11);
    out->site_count = (uint32_t)pl_prng_range(&r, 2, 8);
    double chips = between(&r, 32, 8192), step_s = between(&r, 0.5, 8);
    out->batch_tokens = step_s * chips * 200e12 / (6 * out->params);
    double flops = 0, run_s = between(&r, 1, 60) * 86400;
    for (uint32_t i = 0; i < out->site_count; i++) {
        draw_site(&r, i, chips, 4 * out->params / (24 * step_s), &out->sites[i]); /* int4 at H = 24 */
        flops += (double)out->sites[i].chips * out->sites[i].tflops * 1e12;
    }
    out->tokens = run_s * flops / (6 * out->params);
}

bool pl_plan_change(const struct pl_plan_choice *from, uint32_t i, struct pl_plan_choice *out)
{
    static const enum pl_codec codecs[] = {PL_CODEC_FP32, PL_CODEC_BF16, PL_CODEC_INT4, PL_CODEC_INT2};
    uint32_t periods = pl_plan_periods();
    *out = *from;
    if (i < periods) {
        out->period = pl_plan_period(i);
        if (out->fragments > out->period) /* as many as there can be */
            out->fragments = out->period;
    } else if (i < 2 * periods) {
        out->fragments = pl_plan_period(i - periods);
    } else if (i < 2 * periods + 4) {
        out->up = codecs[i - 2 * periods];
    } else if (i < 2 * periods + 8) {
        out->down = codecs[i - 2 * periods - 4];
    } else {
        return false;
    }
    return true;
}
