/* data/bpe.h - byte pair merges: a table of pairs, and the rule that turns a piece of text into tokens.
 *
 * A piece starts as one token a byte. Again and again the neighbouring pair of the lowest rank, the leftmost of equals, is
 * replaced by the token it makes, until no pair is in the table.
 */
#ifndef PL_DATA_BPE_H
#define PL_DATA_BPE_H

#include "base/alloc.h"
#include "base/buf.h"
#include "data/ids.h"

struct pl_merge {
    uint32_t left, right; /* tokens */
    uint32_t rank, made;  /* the lower the earlier; the token they make */
};

/* Open addressing; filled once, then read by many threads. */
struct pl_merges {
    const struct pl_alloc *alloc;
    struct pl_merge *slots; /* [mask + 1] */
    uint32_t mask, count;
};

/* Room for `count` merges, below 2^30. OK or NOMEM. */
enum pelago_status pl_merges_init(struct pl_merges *m, const struct pl_alloc *alloc, uint32_t count);
void pl_merges_release(struct pl_merges *m);
/* A pair that is there already takes the new rank and result. */
void pl_merges_put(struct pl_merges *m, uint32_t left, uint32_t right, uint32_t rank, uint32_t made);

/* Turns ids->at[from .. count) into merged tokens in place. scratch: for long pieces, kept between calls.
 * OK, NOMEM, or LIMIT for a piece of 2^31 tokens or more. */
enum pelago_status pl_merges_apply(const struct pl_merges *m, struct pl_ids *ids, size_t from,
                                   struct pl_buf *scratch);

#endif
