/* optim/outer.c - see outer.h; the loop is in merge_kernels.inc. */
#include "optim/outer.h"

#include "base/check.h"
#include "optim/merge_kernels.h"

#include <stdint.h>

enum { TASK = 1 << 16 }; /* values a thread takes at a time */

struct job {
    const struct pl_outer_rule *rule;
    const float *delta;
    size_t n;
    float *momentum, *theta;
};

static void task(void *user, uint32_t number, uint32_t thread)
{
    (void)thread;
    const struct job *j = user;
    size_t at = (size_t)number * TASK, len = j->n - at < TASK ? j->n - at : TASK;
    pl_merge_kernels()->outer(j->rule, j->delta + at, len, j->momentum + at, j->theta + at);
}

void pl_outer_step(const struct pl_outer_rule *rule, const float *delta, size_t n, float *momentum,
                   float *theta)
{
    pl_merge_kernels()->outer(rule, delta, n, momentum, theta);
}

void pl_outer_step_by(struct pl_pool *pool, const struct pl_outer_rule *rule, const float *delta, size_t n,
                      float *momentum, float *theta)
{
    if (pool == NULL || n <= TASK) {
        pl_outer_step(rule, delta, n, momentum, theta);
        return;
    }
    struct job j = {rule, delta, n, momentum, theta};
    size_t tasks = (n + TASK - 1) / TASK;
    pl_assert(tasks <= UINT32_MAX);
    pl_pool_run(pool, (uint32_t)tasks, task, &j);
}
