/* optim/norm.h - how long a gradient is, and how much it must be shortened.
 *
 * Sums of squares are taken in double, in 16 lanes: lane i takes elements i, i + 16, ...; then lane i += lane i + 8,
 * then + 4, + 2, + 1. Squares of floats are exact in double, so the order is all there is to agree on, and every
 * machine gets the same bits. Who shares a large gradient among threads cuts it at places that do not depend on their
 * number and adds the parts in order.
 */
#ifndef PL_OPTIM_NORM_H
#define PL_OPTIM_NORM_H

#include <stddef.h>

/* Finite if and only if all values are: no number of finite floats overflows a double. */
double pl_grad_sumsq(const float *g, size_t n);

/* What to multiply a gradient of that norm with so that it is no longer than max_norm: 1 where it already is not, or
 * where max_norm is 0, which means no clipping. As PyTorch does, a hair shorter than asked for. */
float pl_grad_clip_scale(double norm, float max_norm);

#endif
