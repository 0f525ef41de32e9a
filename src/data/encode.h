/* data/encode.h - documents to a token file with all cores: after every document comes the tokenizer's end-of-text token, if it
 * has one.
 *
 *     pl_tokens_create(&writer, ...);
 *     struct pl_encode *e = pl_encode_new(alloc, tokenizer, pool, writer);
 *     struct pl_text_sink sink = pl_encode_sink(e);
 *     pl_corpus_read(..., &sink, err);           or any other source of documents
 *     pl_encode_finish(e, &result, err);
 *     pl_encode_free(e);
 *     pl_tokens_commit(writer, result.text_bytes, result.documents, err);
 */
#ifndef PL_DATA_ENCODE_H
#define PL_DATA_ENCODE_H

#include "base/pool.h"
#include "data/corpus.h"
#include "data/ids.h"
#include "data/tokenizer.h"
#include "data/tokens.h"

struct pl_encode_result {
    uint64_t tokens, text_bytes, documents;
};

struct pl_encode;

/* Everything given is borrowed. NULL when memory runs out. */
struct pl_encode *pl_encode_new(const struct pl_alloc *alloc, const struct pl_tokenizer *t,
                                struct pl_pool *pool, struct pl_tokens_writer *writer);
/* The same, but the tokens are appended to a list in memory. */
struct pl_encode *pl_encode_new_list(const struct pl_alloc *alloc, const struct pl_tokenizer *t,
                                     struct pl_pool *pool, struct pl_ids *list);
void pl_encode_free(struct pl_encode *e); /* NULL is fine */
struct pl_text_sink pl_encode_sink(struct pl_encode *e);
enum pelago_status pl_encode_finish(struct pl_encode *e, struct pl_encode_result *result,
                                    struct pl_error *err);

/* All of it: text files to a token file, which appears whole or not at all. */
enum pelago_status pl_encode_files(const struct pl_alloc *alloc, const struct pl_tokenizer *t,
                                   struct pl_pool *pool, const char *const *paths, size_t count,
                                   const char *out_path, struct pl_encode_result *result,
                                   struct pl_error *err);

#endif
