/* optim/merge.h - one outer gradient from many contributions: the scalar reference.
 *
 * Works on one slice: a contiguous float array, the rows of one tensor that belong to one fragment. It is the
 * oracle for every faster kernel, which must give the same bits: the order of each sum is part of the
 * contract.
 *
 *   over contributions   in the order given (by learner identity, never by arrival), in double;
 *   over elements        in 16 double lanes, lane i takes elements i, i + 16, ...; then a tree over the lanes:
 *                        lane i += lane i + 8, then + 4, + 2, + 1;
 *   rounding             of every product and every sum (-ffp-contract=off), to nearest, denormals kept.
 *
 * The only operations are + * / sqrt and conversions, all correctly rounded, so every machine gets one result.
 */
#ifndef PL_OPTIM_MERGE_H
#define PL_OPTIM_MERGE_H

#include "base/merge_mode.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pl_contribution {
    const float *delta; /* [n] borrowed, finite: the caller has asked pl_all_finite */
    uint64_t tokens;
    uint64_t steps; /* at least 1: a push of no steps was refused before */
};

/* tokens^2 / steps (arXiv 2604.21428, algorithm 2, line 9): the weight of a contribution, formed here and nowhere else.
 * steps > 0; no tokens weigh 0. */
double pl_merge_weight(uint64_t tokens, uint64_t steps);

/* Merges count contributions of n values into out, which overlaps none of them; share is scratch, [count].
 *
 * PL_MERGE_MEAN: sum w v / sum w.
 * PL_MERGE_RDA: (sum w |v| / sum w) * phi(sum w phi(v) / sum w), phi(x) = x / |x|, phi(0) = 0. A zero vector has
 * no direction but counts in the mean norm. Directions cancel where the weighted mean of those there are is
 * shorter than PL_MERGE_DIRECTION_MIN: what is left is rounding noise, and the result is zero.
 * No contribution, or no weight at all: the result is zero.
 *
 * Finite values near the end of float's range can merge to an infinity; ask pl_all_finite about out. */
void pl_merge(enum pl_merge_mode mode, const struct pl_contribution *contributions, uint32_t count, size_t n,
              double *share, float *out);

/* 2^-20. A float vector's direction is known to about 2^-24; M unrelated ones average to 1 / sqrt(M), far above. */
#define PL_MERGE_DIRECTION_MIN (1.0 / 1048576.0)

/* The Euclidean norm, by lanes as above. */
double pl_norm(const float *values, size_t n);

/* No infinity and no NaN among the n values. */
bool pl_all_finite(const float *values, size_t n);

#endif
