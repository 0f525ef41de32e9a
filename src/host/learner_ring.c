/* host/learner_ring.c - see learner_ring.h. */
#include "host/learner_ring.h"

#include "base/check.h"

#include <string.h>

bool pl_ring_init(struct pl_ring *r, const struct pl_alloc *alloc, uint32_t items, uint32_t item_bytes)
{
    uint32_t size = 1;
    pl_assert(items > 0 && items <= 1u << 20 && item_bytes > 0);
    while (size < items)
        size *= 2;
    r->items = pl_alloc_zero(alloc, size, item_bytes);
    r->item_bytes = item_bytes;
    r->mask = size - 1;
    atomic_init(&r->put, 0);
    atomic_init(&r->taken, 0);
    return r->items != NULL;
}

void pl_ring_release(struct pl_ring *r, const struct pl_alloc *alloc)
{
    if (r->items != NULL)
        pl_alloc_free(alloc, r->items, ((size_t)r->mask + 1) * r->item_bytes);
    r->items = NULL;
}

static uint8_t *item_at(const struct pl_ring *r, uint32_t index)
{
    return r->items + (size_t)(index & r->mask) * r->item_bytes;
}

bool pl_ring_put(struct pl_ring *r, const void *item)
{
    uint32_t put = atomic_load_explicit(&r->put, memory_order_relaxed);
    if (put - atomic_load_explicit(&r->taken, memory_order_acquire) > r->mask)
        return false;
    memcpy(item_at(r, put), item, r->item_bytes);
    atomic_store_explicit(&r->put, put + 1, memory_order_release);
    return true;
}

const void *pl_ring_peek(const struct pl_ring *r)
{
    uint32_t taken = atomic_load_explicit(&r->taken, memory_order_relaxed);
    if (atomic_load_explicit(&r->put, memory_order_acquire) == taken)
        return NULL;
    return item_at(r, taken);
}

bool pl_ring_take(struct pl_ring *r, void *item)
{
    const void *oldest = pl_ring_peek(r);
    if (oldest == NULL)
        return false;
    memcpy(item, oldest, r->item_bytes);
    uint32_t taken = atomic_load_explicit(&r->taken, memory_order_relaxed);
    atomic_store_explicit(&r->taken, taken + 1, memory_order_release);
    return true;
}
