/* optim/outer.h - the outer optimizer: SGD with Nesterov momentum, in fp32 (arXiv 2604.21428, algorithm 2).
 *
 *   momentum <- mu * momentum + delta;   theta <- theta - lr * (delta + mu * momentum)
 *
 * Each product and sum is rounded to float, in the order written; elements are independent. mu = 0 is plain
 * SGD.
 */
#ifndef PL_OPTIM_OUTER_H
#define PL_OPTIM_OUTER_H

#include <stddef.h>

struct pl_outer_rule {
    float lr;
    float mu;
};

/* delta is the merged outer gradient (anchor - theta: downhill is minus); the three arrays do not overlap. */
void pl_outer_step(const struct pl_outer_rule *rule, const float *delta, size_t n, float *momentum,
                   float *theta);

#endif
