/* optim/adamw.c - see adamw.h; the loop is in kernels.inc. */
#include "optim/adamw.h"

#include "base/check.h"
#include "optim/kernels.h"

#include <math.h>

/* x^t for t >= 0 by squaring: the same bits everywhere, which pow does not promise. */
static double power(double x, uint64_t t)
{
    double result = 1;
    for (; t > 0; t >>= 1, x *= x)
        if (t & 1)
            result *= x;
    return result;
}

struct pl_adamw_step pl_adamw_step(const struct pl_adamw_rule *rule, uint64_t t, float lr, float weight_decay,
                                   float grad_scale)
{
    pl_assert(t > 0);
    pl_assert(rule->beta1 >= 0 && rule->beta1 < 1 && rule->beta2 >= 0 && rule->beta2 < 1 && rule->eps > 0);
    pl_assert(lr >= 0 && weight_decay >= 0 && isfinite(lr) && isfinite(weight_decay) && isfinite(grad_scale));
    double beta1 = (double)rule->beta1, beta2 = (double)rule->beta2;
    return (struct pl_adamw_step){
        .grad_scale = grad_scale,
        .keep = (float)(1 - (double)lr * (double)weight_decay),
        .gain1 = (float)(1 - beta1),
        .beta2 = rule->beta2,
        .gain2 = (float)(1 - beta2),
        .root_scale = (float)(1 / sqrt(1 - power(beta2, t))),
        .eps = rule->eps,
        .step_size = (float)((double)lr / (1 - power(beta1, t))),
    };
}

void pl_adamw_update(const struct pl_adamw_step *s, float *p, float *m, float *v, const float *g, size_t n)
{
    pl_kernels()->adamw(s, p, m, v, g, n);
}
