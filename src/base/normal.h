/* base/normal.h - normal deviates that have the same bits on every machine.
 *
 * Marsaglia and Tsang's ziggurat with 256 layers. Its tables and its rare paths use an exponential and a logarithm of
 * our own, made of IEEE additions, multiplications and divisions only, because those of two C libraries differ in
 * the last bit now and then.
 */
#ifndef PL_BASE_NORMAL_H
#define PL_BASE_NORMAL_H

#include "base/prng.h"

enum { PL_NORMAL_LAYERS = 256 };

struct pl_normal {
    double
        x[PL_NORMAL_LAYERS + 1]; /* right edge of layer i, falling; x[0]: the base with its tail as a box */
    double y[PL_NORMAL_LAYERS + 1]; /* exp(-x^2/2) at that edge */
};

void pl_normal_init(struct pl_normal *n);
/* Mean 0, deviation 1. */
double pl_normal_next(const struct pl_normal *n, struct pl_prng *r);

#endif
