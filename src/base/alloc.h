/* base/alloc.h - the one way to get memory outside the pure layers (Lua's realloc shape).
 *
 * Passing the allocator in lets tests count and fail it. Sizes are the caller's; old_bytes is given back on free.
 */
#ifndef PL_BASE_ALLOC_H
#define PL_BASE_ALLOC_H

#include <stddef.h>

struct pl_alloc {
    /* new_bytes == 0 frees and returns NULL; otherwise NULL means failure and the old block stays valid. */
    void *(*resize)(void *user, void *block, size_t old_bytes, size_t new_bytes);
    void *user;
};

/* malloc and free. */
struct pl_alloc pl_alloc_system(void);

/* Zeroed memory for count x size bytes, or NULL when it fails or the product overflows. */
void *pl_alloc_zero(const struct pl_alloc *a, size_t count, size_t size);
void pl_alloc_free(const struct pl_alloc *a, void *block, size_t bytes);

/* Gives pages of the system's allocator that hold nothing back to the system, where it knows how to. Takes milliseconds and
 * holds other threads up that allocate meanwhile. */
void pl_alloc_trim(void);

/* From here on blocks of a megabyte and more are the system's own pages and go back to it when they are freed, where the
 * system's allocator knows how to: what a process has is then what it uses. For the beginning of a process. */
void pl_alloc_map_large(void);

#endif
