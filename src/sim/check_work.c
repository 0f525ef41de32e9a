/* sim/check_work.c - struct pl_work: which inner steps are in a difference of parameters.
 *
 * Step ids grow within a process, and a process that continues from a checkpoint has a larger number than the one
 * that wrote it, so ids ascend in the order of the work and a copy is always a beginning of what came after it.
 */
#include "sim/check.h"

#include "base/check.h"

#include <string.h>

void pl_work_clear(struct pl_work *w)
{
    *w = (struct pl_work){0};
}

void pl_work_step(struct pl_work *w, uint64_t step_id, uint64_t tokens)
{
    w->steps++;
    w->tokens += tokens;
    uint32_t n = w->range_count;
    pl_assert(n == 0 || w->range[n - 1].last < step_id);
    if (n > 0 && w->range[n - 1].last + 1 == step_id) {
        w->range[n - 1].last = step_id;
        return;
    }
    if (n == PL_WORK_RANGES_MAX) {
        /* Work that outlived so many restarts: the oldest ids are forgotten, their count stays. */
        memmove(&w->range[0], &w->range[1], (n - 1) * sizeof(w->range[0]));
        n--;
    }
    w->range[n].first = w->range[n].last = step_id;
    w->range_count = n + 1;
}

void pl_work_remove(struct pl_work *w, const struct pl_work *copied)
{
    pl_assert(copied->steps <= w->steps && copied->tokens <= w->tokens);
    w->steps -= copied->steps;
    w->tokens -= copied->tokens;
    if (copied->range_count == 0)
        return;
    uint64_t last = copied->range[copied->range_count - 1].last;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < w->range_count; i++) {
        if (w->range[i].last <= last)
            continue;
        w->range[kept] = w->range[i];
        if (w->range[kept].first <= last)
            w->range[kept].first = last + 1;
        kept++;
    }
    w->range_count = kept;
}
