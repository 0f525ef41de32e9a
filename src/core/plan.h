/* core/plan.h - the fragment table: which rows of which tensors travel together, where and when.
 *
 * Every machine of a run must arrive at the same table, so it is integer arithmetic
 * with every tie broken by name, and the order of the tensors given does not matter. The idea: tensors larger than total/P are cut into pieces of that size, then pieces go largest
 * first into the fragment that is smallest so far, and one that would lift it over 1.1 of the mean is cut to
 * fit.
 */
#ifndef PL_CORE_PLAN_H
#define PL_CORE_PLAN_H

#include "base/limits.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

struct pl_plan_tensor {
    char name[PL_NAME_MAX]; /* 1 to PL_NAME_MAX - 1 printable characters without spaces, then zeros to the end
                             */
    uint64_t rows;          /* a tensor is cut between rows only */
    uint64_t cols;          /* values in a row */
    uint8_t merge;          /* enum pl_merge_mode */
};

/* The unit of merging: norms are per slice. */
struct pl_slice {
    uint32_t tensor;   /* index in the table of tensors */
    uint32_t fragment; /* 0 .. fragment_count - 1 */
    uint64_t row_first;
    uint64_t row_count;
};

/* Cuts the tensors into fragments. On PELAGO_OK slices[0 .. *slice_count - 1] hold every row exactly once,
 * sorted by fragment, then tensor name, then row, which is also the order of values inside a fragment; no
 * fragment is empty. Another order of the same tensors gives the same table but for the tensor indices.
 *
 * Where every row is at most a tenth of total/P, the largest fragment is at most 1.1 times the mean. Longer
 * rows cannot always be balanced: the table is then the best this rule finds, and pl_plan_measure says how
 * good.
 *
 * PELAGO_INVALID: a tensor or a count that cannot be; PELAGO_LIMIT: too much of something, also when more
 * than slice_max slices would be needed (tensor_count + 3 * fragment_count is ample). err says which. */
enum pelago_status pl_plan_fragments(const struct pl_plan_tensor *tensors, uint32_t tensor_count,
                                     uint32_t fragment_count, struct pl_slice *slices, uint32_t slice_max,
                                     uint32_t *slice_count, struct pl_error *err);

struct pl_plan_balance {
    uint64_t total;    /* values of the model */
    uint64_t largest;  /* values of the largest fragment */
    uint64_t smallest; /* ... and of the smallest */
    bool balanced;     /* largest is at most 1.1 times the mean */
};

/* How even a table made by pl_plan_fragments is. */
struct pl_plan_balance pl_plan_measure(const struct pl_plan_tensor *tensors, const struct pl_slice *slices,
                                       uint32_t slice_count, uint32_t fragment_count);

struct pl_plan_place {
    uint32_t shard;  /* fragment i belongs to shard i mod shard_count */
    uint32_t offset; /* it is due when the shard's t mod period_steps is this */
};

/* Fills places[fragment_count]. A shard's n fragments are spread evenly over the period, the j-th at j * H /
 * n: all distinct when n <= H, and otherwise at most ceil(n / H) at one offset. Every shard has at least one
 * fragment. */
enum pelago_status pl_plan_shards(uint32_t fragment_count, uint32_t shard_count, uint32_t period_steps,
                                  struct pl_plan_place *places, struct pl_error *err);

#endif
