/* optim/outer.c - see outer.h. */
#include "optim/outer.h"

#include <float.h>

_Static_assert(FLT_EVAL_METHOD == 0, "float must be evaluated in its own precision");

void pl_outer_step(const struct pl_outer_rule *rule, const float *delta, size_t n, float *momentum,
                   float *theta)
{
    const float lr = rule->lr;
    const float mu = rule->mu;
    for (size_t i = 0; i < n; i++) {
        float m = mu * momentum[i] + delta[i];
        momentum[i] = m;
        theta[i] -= lr * (delta[i] + mu * m);
    }
}
