/* model/infer.h - a model for generating text: one token, or the few of a prompt, at a time.
 *
 * Weights are bfloat16, one copy, made from a block of parameters that is not needed afterwards; everything else is in
 * floats. Keys and values of the tokens so far are kept (bfloat16), so that a new token costs one pass over the weights,
 * and memory's speed is the limit. What comes out is what the training pass gives for the same tokens and the same
 * rounded weights, up to rounding.
 */
#ifndef PL_MODEL_INFER_H
#define PL_MODEL_INFER_H

#include "model/tensors.h"

#include <stdint.h>

struct pl_infer_options {
    struct pl_model_config config;
    const char *backend; /* NULL: the best; bf16 and amx stand for avx512, whose activations are floats */
    uint32_t threads;    /* 0: all processors */
    uint32_t context;    /* positions of the cache, 1 .. PL_CONTEXT_MAX */
};

struct pl_infer;

/* tensors and params are those of the config; both are only read, and only here. */
enum pelago_status pl_infer_new(struct pl_infer **out, const struct pl_alloc *alloc,
                                const struct pl_infer_options *options, const struct pl_tensors *tensors,
                                const float *params, struct pl_error *err);
void pl_infer_free(struct pl_infer *inf); /* NULL is fine */

/* Appends tokens (each below V) and returns the V logits for what follows the last of them; they stay until the next
 * step. count from 1 to what is left of the context. */
const float *pl_infer_step(struct pl_infer *inf, const uint32_t *tokens, uint32_t count);

/* Tokens so far; and forgetting all but the first of them. */
uint32_t pl_infer_position(const struct pl_infer *inf);
void pl_infer_rewind(struct pl_infer *inf, uint32_t position);

uint32_t pl_infer_context(const struct pl_infer *inf);
const char *pl_infer_backend(const struct pl_infer *inf);
uint32_t pl_infer_threads(const struct pl_infer *inf);
/* Bytes of weights that one token reads: all, but of the embedding one row where the head is a matrix of its own. */
uint64_t pl_infer_token_bytes(const struct pl_infer *inf);

/* The threads, for work in between; borrowed. */
struct pl_pool *pl_infer_pool(struct pl_infer *inf);

#endif
