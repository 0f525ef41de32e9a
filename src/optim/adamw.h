/* optim/adamw.h - AdamW (Loshchilov and Hutter, arXiv 1711.05101) on a span of parameters, in one pass.
 *
 * As in PyTorch, for step t = 1, 2, ... with the gradient g already scaled:
 *
 *   p <- p * (1 - lr * weight_decay)
 *   m <- m + (1 - beta1) * (g - m)
 *   v <- beta2 * v + (1 - beta2) * g * g
 *   p <- p - lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
 *
 * Each product and sum is rounded to float; elements are independent; every machine gets the same bits. A pass reads
 * p m v g and writes p m v, 28 bytes a parameter, and runs at the speed of memory.
 *
 * The moments of a parameter whose gradient stays zero (the embedding of a rare token) would end as denormal numbers,
 * which some processors multiply a hundred times slower. They stop before that: m near 1e-32, v near 1e-36, or zero.
 */
#ifndef PL_OPTIM_ADAMW_H
#define PL_OPTIM_ADAMW_H

#include <stddef.h>
#include <stdint.h>

struct pl_adamw_rule {
    float beta1; /* 0 up to below 1 */
    float beta2; /* 0 up to below 1 */
    float eps;   /* above 0 */
};

/* What one step multiplies with, made by pl_adamw_step. */
struct pl_adamw_step {
    float grad_scale;
    float keep;  /* 1 - lr * weight_decay */
    float gain1; /* 1 - beta1 */
    float beta2;
    float gain2;      /* 1 - beta2 */
    float root_scale; /* 1 / sqrt(1 - beta2^t) */
    float eps;
    float step_size; /* lr / (1 - beta1^t) */
};

/* Step t counts from 1. grad_scale is multiplied into the gradient on the way: clipping costs no pass of its own. */
struct pl_adamw_step pl_adamw_step(const struct pl_adamw_rule *rule, uint64_t t, float lr, float weight_decay,
                                   float grad_scale);

/* One step on n parameters; the arrays do not overlap. Fastest when all begin at multiples of 64 bytes. */
void pl_adamw_update(const struct pl_adamw_step *s, float *p, float *m, float *v, const float *g, size_t n);

#endif
