/* base/alloc.c - the only place that calls the C library's allocator. */
#include "base/alloc.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

enum { LINE = 64, LARGE = 1 << 20 };

/* Large blocks begin a line of the cache: loops that store past the cache need it (optim/merge_kernels.h). */
static void *system_resize(void *user, void *block, size_t old_bytes, size_t new_bytes)
{
    (void)user;
    (void)old_bytes;
    if (new_bytes == 0) {
        free(block);
        return NULL;
    }
    if (block == NULL && new_bytes >= LARGE && new_bytes <= SIZE_MAX - LINE)
        return aligned_alloc(LINE, (new_bytes + LINE - 1) / LINE * LINE);
    return realloc(block, new_bytes);
}

struct pl_alloc pl_alloc_system(void)
{
    return (struct pl_alloc){system_resize, NULL};
}

void *pl_alloc_zero(const struct pl_alloc *a, size_t count, size_t size)
{
    if (count == 0 || size == 0 || count > SIZE_MAX / size)
        return NULL;
    void *block = a->resize(a->user, NULL, 0, count * size);
    if (block != NULL)
        memset(block, 0, count * size);
    return block;
}

void pl_alloc_free(const struct pl_alloc *a, void *block, size_t bytes)
{
    if (block != NULL)
        a->resize(a->user, block, bytes, 0);
}

void pl_alloc_trim(void)
{
#ifdef __GLIBC__
    (void)malloc_trim(0);
#endif
}

/* Without it the C library raises its bound to the largest block that was ever freed, and such blocks then leave holes. */
void pl_alloc_map_large(void)
{
#ifdef __GLIBC__
    (void)mallopt(M_MMAP_THRESHOLD, LARGE);
#endif
}
