#include "base/block.h"

#include "base/num.h"

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

enum { SMALL = 1 << 20 };
static const size_t huge = (size_t)2 << 20;

_Bool pl_block_new(struct pl_block *b, const struct pl_alloc *alloc, size_t bytes)
{
    size_t align = bytes < SMALL ? 64 : huge;
    uint64_t padded;
    *b = (struct pl_block){0};
    if (pl_add_overflow(bytes, 2 * (uint64_t)align, &padded))
        return false;
    b->owned = alloc->resize(alloc->user, NULL, 0, padded);
    if (b->owned == NULL)
        return false;
    b->owned_bytes = padded;
    b->at = (char *)b->owned + (align - (uintptr_t)b->owned % align) % align;
#ifdef MADV_HUGEPAGE
    if (align == huge) /* before the first touch; a wish, not a need */
        (void)madvise(b->at, (bytes + huge - 1) / huge * huge, MADV_HUGEPAGE);
#endif
    memset(b->at, 0, bytes);
    return true;
}

void pl_block_free(struct pl_block *b, const struct pl_alloc *alloc)
{
    if (b->owned != NULL)
        pl_alloc_free(alloc, b->owned, b->owned_bytes);
    *b = (struct pl_block){0};
}
