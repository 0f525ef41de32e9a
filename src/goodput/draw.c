/* goodput/draw.c - see draw.h. */
#include "goodput/draw.h"

#include "base/check.h"

#include <math.h>

enum { MEAN_POINTS = 20000 };

double pl_draw_unit(struct pl_prng *r)
{
    return ((double)(pl_prng_next(r) >> 11) + 0.5) * 0x1p-53;
}

double pl_draw_exponential(struct pl_prng *r, double mean)
{
    return -mean * log(pl_draw_unit(r));
}

/* Quantile q of the exponentiated Weibull with scale 1. */
static double exp_weibull(const struct pl_draw *d, double q)
{
    return pow(-log1p(-pow(q, d->inverse_power)), d->inverse_shape);
}

/* Its mean has no closed form: the mean of evenly spaced quantiles, the last of them cut finer as the tail is long. */
static double exp_weibull_mean(const struct pl_draw *d)
{
    double sum = 0, left = 1, from = 0;
    for (int part = 0; part < 8; part++) {
        double width = part < 7 ? left * 0.9 : left, piece = 0;
        for (int i = 0; i < MEAN_POINTS; i++)
            piece += exp_weibull(d, from + width * ((double)i + 0.5) / MEAN_POINTS);
        sum += piece * width / MEAN_POINTS;
        from += width;
        left -= width;
    }
    return sum;
}

void pl_draw_init(struct pl_draw *d, const struct pl_goodput_time *t)
{
    *d = (struct pl_draw){.spread = t->spread, .scale = t->mean_s, .shape = t->shape};
    if (t->spread == PL_GOODPUT_LOGNORMAL)
        d->scale = t->mean_s * exp(-0.5 * t->shape * t->shape);
    if (t->spread == PL_GOODPUT_EXP_WEIBULL) {
        pl_assert(t->shape > 0 && t->power > 0);
        d->inverse_shape = 1 / t->shape;
        d->inverse_power = 1 / t->power;
        d->scale = t->mean_s / exp_weibull_mean(d);
    }
}

void pl_draw_init_weibull(struct pl_draw *d, double mean_s, double shape)
{
    pl_assert(shape > 0);
    *d = (struct pl_draw){.spread = PL_GOODPUT_EXP_WEIBULL,
                          .scale = mean_s / tgamma(1 + 1 / shape),
                          .inverse_shape = 1 / shape,
                          .inverse_power = 1};
}

double pl_draw_next(const struct pl_draw *d, struct pl_prng *r)
{
    switch (d->spread) {
    case PL_GOODPUT_EXPONENTIAL:
        return pl_draw_exponential(r, d->scale);
    case PL_GOODPUT_LOGNORMAL: {
        double radius = sqrt(-2 * log(pl_draw_unit(r))), angle = 2 * 3.14159265358979323846 * pl_draw_unit(r);
        return d->scale * exp(d->shape * radius * cos(angle));
    }
    case PL_GOODPUT_EXP_WEIBULL:
        return d->scale * exp_weibull(d, pl_draw_unit(r));
    case PL_GOODPUT_FIXED:
    case PL_GOODPUT_SPREADS:
        break;
    }
    return d->scale;
}
