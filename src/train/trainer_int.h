/* train/trainer_int.h - shared by the trainer and the evaluation. */
#ifndef PL_TRAIN_TRAINER_INT_H
#define PL_TRAIN_TRAINER_INT_H

#include "model/model.h"

/* INVALID with a sentence where a token or a target is not in the vocabulary. */
enum pelago_status pl_batch_check(const struct pl_batch *b, uint32_t vocab, struct pl_error *err);

#endif
