/* optim/apply.h - what a learner does with the new value of a fragment (ARCHITECTURE, life of a round, 7).
 *
 * The rule is arithmetic only: counters, residuals and the pending push are the learner's affair. Afterwards
 * the anchor is the new value, bit for bit, whatever the mode: every learner at a version holds the same
 * anchor.
 */
#ifndef PL_OPTIM_APPLY_H
#define PL_OPTIM_APPLY_H

#include <stddef.h>

enum pl_apply_mode {
    PL_APPLY_REBASE_MERGED = 1, /* our pending push is in it: theta += fresh - snapshot */
    PL_APPLY_REBASE_KEPT,       /* it is not, our work stays ours: theta += fresh - anchor */
    PL_APPLY_OVERWRITE,         /* the paper's: theta = fresh */
    PL_APPLY_MIX,               /* Streaming DiLoCo's: theta = alpha * theta + (1 - alpha) * fresh */
};

struct pl_apply {
    enum pl_apply_mode mode;
    float alpha;           /* PL_APPLY_MIX: the share of theta that stays, 0 to 1 */
    const float *fresh;    /* [n] the new value */
    const float *snapshot; /* [n] PL_APPLY_REBASE_MERGED: theta as it was pushed; else unused, may be NULL */
    float *theta;          /* [n] in and out */
    float *anchor;         /* [n] in: the value before; out: fresh */
};

/* The arrays do not overlap. Each sum is rounded to float, the difference first. */
void pl_apply(const struct pl_apply *a, size_t n);

#endif
