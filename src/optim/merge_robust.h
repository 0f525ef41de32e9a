/* optim/merge_robust.h - the merges that look at every value of every contribution; for merge.c and its tests only.
 *
 * They decode block by block into scratch, with one portable loop for every machine: chosen by those who do not trust
 * their learners, they are not on the fast path. Sums run over contributions in the order given (TRIMMED: by size, equal
 * ones in the order given), in double, and are rounded to float once.
 */
#ifndef PL_OPTIM_MERGE_ROBUST_H
#define PL_OPTIM_MERGE_ROBUST_H

#include "optim/merge_kernels.h"

struct pl_merge_robust {
    const struct pl_merge_input *in;
    size_t n;
    struct pl_pool *pool; /* NULL: the calling thread alone */
    const double *share;  /* [count] w / sum w */
    double *scratch;      /* [pl_merge_robust_scratch] */
    double trim;
    float *out;
};

size_t pl_merge_robust_scratch(enum pl_merge_mode mode, uint32_t count, const struct pl_pool *pool);

/* TRIMMED or CLIPPED, of at least one value. */
void pl_merge_robust(enum pl_merge_mode mode, const struct pl_merge_robust *how);

/* The (n / 2)-th of n by size, n > 0; sorts them. */
double pl_merge_median(double *values, uint32_t n);

#endif
