/* goodput/draw.h - random times: exponential, Weibull, lognormal, exponentiated Weibull, each with a given mean.
 *
 * A spread is prepared once (its scale follows from the mean) and drawn from by inversion, so that one draw of the
 * generator makes one time.
 */
#ifndef PL_GOODPUT_DRAW_H
#define PL_GOODPUT_DRAW_H

#include "base/prng.h"
#include "goodput/goodput.h"

struct pl_draw {
    enum pl_goodput_spread spread;
    double scale, inverse_shape, inverse_power, shape;
};

/* In (0, 1). */
double pl_draw_unit(struct pl_prng *r);
double pl_draw_exponential(struct pl_prng *r, double mean);

void pl_draw_init(struct pl_draw *d, const struct pl_goodput_time *t);
/* Weibull is the exponentiated one with power 1. */
void pl_draw_init_weibull(struct pl_draw *d, double mean_s, double shape);
double pl_draw_next(const struct pl_draw *d, struct pl_prng *r);

#endif
