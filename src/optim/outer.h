/* optim/outer.h - the outer optimizer: SGD with Nesterov momentum, in fp32 (arXiv 2604.21428, algorithm 2).
 *
 *   momentum <- mu * momentum + delta;   theta <- theta - lr * (delta + mu * momentum)
 *
 * Each product and sum is rounded to float, in the order written; elements are independent, so that every machine and
 * number of threads gives the same bits. mu = 0 is plain SGD. One pass: reads delta, momentum and theta, writes the
 * last two, 20 bytes a value.
 */
#ifndef PL_OPTIM_OUTER_H
#define PL_OPTIM_OUTER_H

#include "base/pool.h"

#include <stddef.h>

struct pl_outer_rule {
    float lr;
    float mu;
};

/* delta is the merged outer gradient (anchor - theta: downhill is minus); the three arrays do not overlap. */
void pl_outer_step(const struct pl_outer_rule *rule, const float *delta, size_t n, float *momentum,
                   float *theta);

/* The same by the threads of a pool; NULL: the calling thread alone. */
void pl_outer_step_by(struct pl_pool *pool, const struct pl_outer_rule *rule, const float *delta, size_t n,
                      float *momentum, float *theta);

#endif
