/* train/tales_stream.h - the built-in tales as an endless stream of tokens, made when they are read.
 *
 * The stream is a row of chunks of a fixed number of tokens; chunk c begins with a story of its own, so any place can be
 * reached without making what lies before it. Some chunks are kept; missing ones are made by all threads at once.
 */
#ifndef PL_TRAIN_TALES_STREAM_H
#define PL_TRAIN_TALES_STREAM_H

#include "base/alloc.h"
#include "base/pool.h"
#include "data/tales.h"
#include "data/tokenizer.h"
#include "train/stream.h"

struct pl_tales_tokens;

/* All but the seed are borrowed. */
enum pelago_status pl_tales_tokens_new(struct pl_tales_tokens **out, const struct pl_alloc *alloc,
                                       const struct pl_tales *tales, const struct pl_tokenizer *tokenizer,
                                       struct pl_pool *pool, uint64_t seed, struct pl_error *err);
void pl_tales_tokens_free(struct pl_tales_tokens *s); /* NULL is fine */
struct pl_stream pl_tales_tokens_stream(struct pl_tales_tokens *s);

#endif
