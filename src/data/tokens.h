/* data/tokens.h - a file of token ids, as training reads it.
 *
 * All numbers are little-endian.
 *
 *      0   8  "PELAGOTK"
 *      8   4  version, 1
 *     12   4  bytes of a token, 2 or 4
 *     16   4  vocabulary: every token is below it
 *     20   4  bytes of a block, 1048576
 *     24   8  tokens
 *     32   8  bytes of the text they came from, without what separated documents: for bits per byte
 *     40   8  documents
 *     48   8  digest of the tokenizer (tokenizer.h)
 *     56   8  XXH3-64 of the table of blocks
 *     64  24  zeros
 *     88   8  XXH3-64 of the bytes 0..87
 *     96      the tokens, then zeros up to a multiple of 8
 *             table of blocks: XXH3-64 of each block of tokens, the last one perhaps shorter; nothing follows
 *
 * A file is mapped, not read. Its header, size and table are checked when it is opened, a block of tokens when it is first
 * used: nothing is believed before, and a file of any size opens at once.
 */
#ifndef PL_DATA_TOKENS_H
#define PL_DATA_TOKENS_H

#include "base/alloc.h"
#include "base/status.h"

#include <stdint.h>
#include <stddef.h>

enum { PL_TOKENS_HEADER_BYTES = 96, PL_TOKENS_BLOCK_BYTES = 1 << 20 };

struct pl_tokens_info {
    uint32_t token_bytes; /* 2 or 4 */
    uint32_t vocab;
    uint64_t tokens;
    uint64_t text_bytes;
    uint64_t documents;
    uint64_t tokenizer_digest;
};

/* ---- reading; threads may share it ---- */

struct pl_tokens;

/* Errors of all of these name the file, and the place in it. */
enum pelago_status pl_tokens_open(struct pl_tokens **out, const struct pl_alloc *alloc, const char *path,
                                  struct pl_error *err);
void pl_tokens_close(struct pl_tokens *t); /* NULL is fine */
const struct pl_tokens_info *pl_tokens_info(const struct pl_tokens *t);

/* The tokens at .. at+n-1 and, unless targets is NULL, those one further: at+1 .. at+n. INVALID when the file ends before. */
enum pelago_status pl_tokens_fetch(struct pl_tokens *t, uint64_t at, uint64_t n, int32_t *inputs,
                                   int32_t *targets, struct pl_error *err);
/* Checks every block. */
enum pelago_status pl_tokens_check(struct pl_tokens *t, struct pl_error *err);

/* ---- writing ---- */

struct pl_tokens_writer;

/* vocab from 1; two bytes a token where they are enough. The file appears when it is committed (data/outfile.h). */
enum pelago_status pl_tokens_create(struct pl_tokens_writer **out, const struct pl_alloc *alloc,
                                    const char *path, uint32_t vocab, uint64_t tokenizer_digest,
                                    struct pl_error *err);
/* Every id is below vocab. */
enum pelago_status pl_tokens_append(struct pl_tokens_writer *w, const uint32_t *ids, size_t count,
                                    struct pl_error *err);
/* Both free w. */
enum pelago_status pl_tokens_commit(struct pl_tokens_writer *w, uint64_t text_bytes, uint64_t documents,
                                    struct pl_error *err);
void pl_tokens_abandon(struct pl_tokens_writer *w); /* NULL is fine */

#endif
