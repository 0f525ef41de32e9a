/* base/pool.h - a fixed team of threads that share loops of independent tasks.
 *
 * pl_pool_run hands out task numbers 0 .. tasks-1 in order, each exactly once, to whichever thread is free, and
 * returns when all are done; the caller is thread 0 and works too. A task must write only what belongs to its number
 * and must not depend on its thread, except for scratch memory: then results have the same bits for any team size.
 * Between loops the threads spin for a few microseconds and then sleep, so that an idle pool costs nothing.
 * One loop at a time; tasks must not call pl_pool_run themselves.
 */
#ifndef PL_BASE_POOL_H
#define PL_BASE_POOL_H

#include "base/alloc.h"

#include <stdint.h>

enum { PL_POOL_THREADS_MAX = 256 };

struct pl_pool;

typedef void pl_pool_fn(void *user, uint32_t task, uint32_t thread);

/* threads from 1 to PL_POOL_THREADS_MAX, the caller's among them. NULL when memory or threads run out. */
struct pl_pool *pl_pool_new(const struct pl_alloc *alloc, uint32_t threads);
void pl_pool_free(struct pl_pool *pool); /* NULL is fine */
uint32_t pl_pool_threads(const struct pl_pool *pool);
void pl_pool_run(struct pl_pool *pool, uint32_t tasks, pl_pool_fn *fn, void *user);

#endif
