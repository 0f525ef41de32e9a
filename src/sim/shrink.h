/* sim/shrink.h - the smallest setting that still fails: fewer faults, learners, shards, fragments, less time. */
#ifndef PL_SIM_SHRINK_H
#define PL_SIM_SHRINK_H

#include "sim/sim.h"

/* Called after every attempt that still fails. */
typedef void pl_shrink_progress(void *user, const struct pl_sim_options *o,
                                const struct pl_sim_result *result);

/* *o fails with `result` when run; leaves the smallest options found that end with the same exit code. */
enum pelago_status pl_sim_shrink(struct pl_sim_options *o, struct pl_sim_result *result,
                                 const struct pl_alloc *alloc, pl_shrink_progress *progress, void *user);

#endif
