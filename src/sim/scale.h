/* sim/scale.h - one syncer core and very many learners, without network, tensors or disk: what an event costs.
 *
 * Every learner reports a step a second, is pulled, pushes, and takes updates; all answers come at once. Only the
 * core is real. The caller measures the time.
 */
#ifndef PL_SIM_SCALE_H
#define PL_SIM_SCALE_H

#include "base/alloc.h"

#include <stdint.h>

struct pl_scale;

struct pl_scale *pl_scale_new(const struct pl_alloc *alloc, uint32_t learners); /* NULL: no memory */
void pl_scale_free(struct pl_scale *s);

/* Steps the core with at least so many more events; returns how many. */
uint64_t pl_scale_run(struct pl_scale *s, uint64_t events);

uint64_t pl_scale_bytes(const struct pl_scale *s); /* of the core's state */
uint64_t pl_scale_merges(const struct pl_scale *s);

#endif
