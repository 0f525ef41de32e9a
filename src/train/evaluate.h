/* train/evaluate.h - the loss of a model on a fixed row of tokens.
 *
 * The tokens are cut into windows of the model's sequence length, one after the other; each token but the first is
 * predicted once, from what its window has before it.
 */
#ifndef PL_TRAIN_EVALUATE_H
#define PL_TRAIN_EVALUATE_H

#include "model/model.h"
#include "train/stream.h"

struct pl_evaluation {
    uint64_t tokens; /* predicted */
    double nats;     /* sum of their losses */
};

/* All of the stream, which ends; one of fewer than two tokens is INVALID, as is a loss that is not finite. The model may
 * be one that is being trained: its parameters and gradients stay as they are. */
enum pelago_status pl_evaluate(struct pl_model *m, const struct pl_stream *stream, struct pl_evaluation *out,
                               struct pl_error *err);

#endif
