/* tests/support/tokenizer_rig.h - small tokenizers for tests, and ways to spoil them. */
#ifndef PL_TESTS_TOKENIZER_RIG_H
#define PL_TESTS_TOKENIZER_RIG_H

#include "data/tokenizer_train.h"

/* Trained on the text; fails the test when that does. */
struct pl_tokenizer *rig_train(const struct pl_alloc *alloc, enum pl_train_kind kind, const char *text,
                               uint32_t vocab);

/* Its tokenizer.json with the first `from` replaced by `to`, zero-terminated; the test fails when it is not there. free() it. */
char *rig_replace(const struct pl_tokenizer *t, const char *from, const char *to);

/* English with names and numbers, long enough for a few hundred merges. */
extern const char rig_text[];

#endif
