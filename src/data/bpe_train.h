/* data/bpe_train.h - finds the merges of a byte-level vocabulary from counted words.
 *
 * Every word starts as its bytes. Again and again the pair of neighbours that occurs most often becomes a token, of equals the
 * one with the lower numbers. Given the same counts, Hugging Face's BpeTrainer finds the same merges.
 */
#ifndef PL_DATA_BPE_TRAIN_H
#define PL_DATA_BPE_TRAIN_H

#include "data/words.h"

/* Token 0 is for the end of a text and has no bytes here; tokens from 1 on are the words of `tokens`, in order: first the 256
 * bytes, in the order of the characters that stand for them, then what the merges make. */
struct pl_bpe_model {
    struct pl_words_table tokens;
    struct pl_buf merges; /* uint32_t left, right, one pair after the other */
};

enum { PL_BPE_VOCAB_MIN = 257 };

void pl_bpe_model_init(struct pl_bpe_model *m, const struct pl_alloc *alloc);
void pl_bpe_model_release(struct pl_bpe_model *m);
/* At most `vocab` tokens, token 0 included; fewer when no pair occurs min_count times any more. OK, NOMEM or LIMIT.
 * vocab >= PL_BPE_VOCAB_MIN. The model is as _init left it. */
enum pelago_status pl_bpe_train(struct pl_bpe_model *m, const struct pl_words_table *words, uint32_t vocab,
                                uint64_t min_count);

#endif
