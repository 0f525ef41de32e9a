/* optim/apply.c - see apply.h. */
#include "optim/apply.h"

#include "base/check.h"

#include <float.h>
#include <string.h>

_Static_assert(FLT_EVAL_METHOD == 0, "float must be evaluated in its own precision");

static void rebase(const float *fresh, const float *base, size_t n, float *theta)
{
    for (size_t i = 0; i < n; i++)
        theta[i] += fresh[i] - base[i];
}

static void mix(const float *fresh, float alpha, size_t n, float *theta)
{
    const float beta = 1.0f - alpha;
    for (size_t i = 0; i < n; i++)
        theta[i] = alpha * theta[i] + beta * fresh[i];
}

void pl_apply(const struct pl_apply *a, size_t n)
{
    pl_assert(a->mode >= PL_APPLY_REBASE_MERGED && a->mode <= PL_APPLY_MIX);
    pl_assert(a->mode != PL_APPLY_REBASE_MERGED || a->snapshot != NULL || n == 0);
    pl_assert(a->mode != PL_APPLY_MIX || (a->alpha >= 0 && a->alpha <= 1));
    if (n == 0)
        return;
    switch (a->mode) {
    case PL_APPLY_REBASE_MERGED:
        rebase(a->fresh, a->snapshot, n, a->theta);
        break;
    case PL_APPLY_REBASE_KEPT:
        rebase(a->fresh, a->anchor, n, a->theta);
        break;
    case PL_APPLY_OVERWRITE:
        memcpy(a->theta, a->fresh, n * sizeof a->theta[0]);
        break;
    case PL_APPLY_MIX:
        mix(a->fresh, a->alpha, n, a->theta);
        break;
    }
    memcpy(a->anchor, a->fresh, n * sizeof a->anchor[0]);
}
