/* host/reduce_plan.h - the arithmetic of a synchronous run: rounds, steps, data and buckets, the same for everybody.
 *
 * A round is one exchange of the whole block of values: in data_parallel the gradients of one step, in diloco the
 * change of `period` steps. The block is cut into buckets from its end, because the way back finishes gradients in
 * that order: the buckets that are ready are always the first ones.
 */
#ifndef PL_HOST_REDUCE_PLAN_H
#define PL_HOST_REDUCE_PLAN_H

#include "host/settings.h"

struct pl_reduce_plan {
    enum pl_algorithm algorithm;
    enum pl_codec codec; /* bf16, or fp32 where diloco's settings say so */
    uint32_t learners;
    uint32_t period;  /* steps of a round */
    uint64_t steps;   /* of each learner, in all */
    uint64_t rounds;  /* in all; the last may be shorter */
    uint64_t floats;  /* of the model's block */
    uint32_t buckets; /* at least 1 */
    uint32_t bucket_values;
    uint64_t step_tokens, step_sequences; /* of one learner's step */
};

/* From settings that passed pl_settings_check. NOMEM, or INVALID where the algorithm is decoupled. */
enum pelago_status pl_reduce_plan_init(struct pl_reduce_plan *p, const struct pl_alloc *alloc,
                                       const struct pl_settings *s, struct pl_error *err);

struct pl_reduce_range {
    uint64_t first; /* float in the block */
    uint32_t count;
    uint32_t bytes; /* encoded */
};
struct pl_reduce_range pl_reduce_bucket(const struct pl_reduce_plan *p, uint32_t bucket);

/* How many buckets are ready when the floats from `from` on are. */
uint32_t pl_reduce_ready(const struct pl_reduce_plan *p, uint64_t from);

/* Steps that each learner has done when so many rounds are over, and the run's tokens then. */
uint64_t pl_reduce_steps(const struct pl_reduce_plan *p, uint64_t rounds);
uint64_t pl_reduce_tokens(const struct pl_reduce_plan *p, uint64_t rounds);

/* Whether learners compare the digests of their parameters after so many rounds: about every 50 steps. */
bool pl_reduce_compares(const struct pl_reduce_plan *p, uint64_t rounds);

/* The mean of encoded buckets: summed in fp32 in the order given, divided by how many there are, encoded. scratch holds
 * bucket_values floats. False: a part or the mean is not finite; *bad is then the part, or parts. */
bool pl_reduce_mean(const struct pl_reduce_plan *p, uint32_t bucket, const uint8_t *const *parts,
                    uint32_t count, float *scratch, uint8_t *out, uint32_t *bad);

/* A sentence as a message may carry it: whatever is not plain ASCII becomes a question mark. */
void pl_reduce_text(const char *text, char out[static PL_TEXT_MAX + 1]);

#endif
