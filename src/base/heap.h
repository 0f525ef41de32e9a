/* base/heap.h - an indexed binary min-heap over caller memory.
 *
 * Items are the numbers 0..count-1; each is in the heap at most once, with a uint64_t key. Equal keys leave in
 * the order of their numbers, so that two machines agree. Everything is O(log count).
 */
#ifndef PL_BASE_HEAP_H
#define PL_BASE_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pl_heap {
    uint64_t *key;  /* [count] by item */
    uint32_t *at;   /* [count] item -> position, PL_NONE32 when absent */
    uint32_t *item; /* [count] position -> item */
    uint32_t count;
    uint32_t len;
};

/* Bytes pl_heap_init wants for count items (aligned to 8). */
size_t pl_heap_bytes(uint32_t count);
void pl_heap_init(struct pl_heap *h, void *memory, uint32_t count);

/* Inserts the item or moves it to its new key. */
void pl_heap_set(struct pl_heap *h, uint32_t item, uint64_t key);
void pl_heap_remove(struct pl_heap *h, uint32_t item); /* does nothing when absent */
bool pl_heap_has(const struct pl_heap *h, uint32_t item);

/* The item with the smallest key, PL_NONE32 when empty; its key, PL_NEVER when empty. */
uint32_t pl_heap_top(const struct pl_heap *h);
uint64_t pl_heap_top_key(const struct pl_heap *h);

#endif
