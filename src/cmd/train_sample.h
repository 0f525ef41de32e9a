/* cmd/train_sample.h - a few words from a model, for the end of a training run. */
#ifndef PL_CMD_TRAIN_SAMPLE_H
#define PL_CMD_TRAIN_SAMPLE_H

#include "data/tokenizer.h"
#include "model/tensors.h"

/* Appends at most max_tokens tokens as text, up to the end of a text: what `pelago sample` begins with. On failure there is
 * simply less of it. */
void pl_train_sample(const struct pl_alloc *alloc, const struct pl_model_config *config,
                     const struct pl_tensors *tensors, const float *params,
                     const struct pl_tokenizer *tokenizer, uint32_t max_tokens, struct pl_buf *out);

#endif
