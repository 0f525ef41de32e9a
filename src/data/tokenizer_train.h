/* data/tokenizer_train.h - makes a tokenizer from text, the same one whatever the number of threads.
 *
 *     struct pl_tokenizer_trainer *tr = pl_tokenizer_trainer_new(alloc, pool, PL_TRAIN_BPE, 8192);
 *     struct pl_text_sink sink = pl_tokenizer_trainer_sink(tr);
 *     pl_corpus_read(..., &sink, err);           or any other source of documents
 *     pl_tokenizer_trainer_finish(tr, &tokenizer, err);
 *     pl_tokenizer_trainer_free(tr);
 */
#ifndef PL_DATA_TOKENIZER_TRAIN_H
#define PL_DATA_TOKENIZER_TRAIN_H

#include "base/pool.h"
#include "data/corpus.h"
#include "data/tokenizer.h"

enum pl_train_kind {
    PL_TRAIN_BPE = 1, /* merges of bytes, cut as GPT-2 does; a pair must occur twice to become a token */
    PL_TRAIN_CHARS,   /* a token for every character of the text, in the order of Unicode */
    PL_TRAIN_BYTES,   /* a token for every byte; needs no text */
};

struct pl_tokenizer_trainer;

/* Token 0 is <|endoftext|>. vocab counts in BPE only: from PL_BPE_VOCAB_MIN to PL_VOCAB_MAX. NULL when memory runs out. */
struct pl_tokenizer_trainer *pl_tokenizer_trainer_new(const struct pl_alloc *alloc, struct pl_pool *pool,
                                                      enum pl_train_kind kind, uint32_t vocab);
void pl_tokenizer_trainer_free(struct pl_tokenizer_trainer *tr); /* NULL is fine */
struct pl_text_sink pl_tokenizer_trainer_sink(struct pl_tokenizer_trainer *tr);
enum pelago_status pl_tokenizer_trainer_finish(struct pl_tokenizer_trainer *tr, struct pl_tokenizer **out,
                                               struct pl_error *err);
/* Bytes of text it has seen. */
uint64_t pl_tokenizer_trainer_bytes(const struct pl_tokenizer_trainer *tr);

#endif
