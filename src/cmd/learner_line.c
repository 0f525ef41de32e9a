/* cmd/learner_line.c - see learner_line.h. */
#include "cmd/learner_line.h"

#include "base/limits.h"
#include "base/num.h"

#include <inttypes.h>
#include <stdio.h>

void pl_learner_line(const struct pl_learner_host_view *now, const struct pl_learner_host_view *before,
                     double seconds, uint64_t merges, char *out, size_t cap)
{
    double rate = seconds > 0 ? (double)pl_sub_sat(now->tokens, before->tokens) / seconds : 0;
    char merged[48] = "";
    if (merges != PL_NONE64)
        (void)snprintf(merged, sizeof merged, " merges=%" PRIu64, merges);
    (void)snprintf(out, cap, "learner.progress step=%" PRIu64 " loss=%.4f tokens_per_s=%.0f%s live=%u",
                   now->steps, now->loss, rate, merged, now->live);
}
