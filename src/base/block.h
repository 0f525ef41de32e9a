/* base/block.h - large aligned memory: 2 MiB alignment and huge pages where the system grants them.
 *
 * The first touch of a page and the walk to find it both cost more than the arithmetic on it, so the trainer takes
 * its memory once, in a few large blocks. Contents start as zero.
 */
#ifndef PL_BASE_BLOCK_H
#define PL_BASE_BLOCK_H

#include "base/alloc.h"

struct pl_block {
    void *at;    /* aligned */
    void *owned; /* what the allocator gave */
    size_t owned_bytes;
};

/* False when memory runs out; the block is then empty. */
_Bool pl_block_new(struct pl_block *b, const struct pl_alloc *alloc, size_t bytes);
void pl_block_free(struct pl_block *b, const struct pl_alloc *alloc);

#endif
