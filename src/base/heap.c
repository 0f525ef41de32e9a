/* base/heap.c - see heap.h. */
#include "base/heap.h"

#include "base/check.h"
#include "base/limits.h"

size_t pl_heap_bytes(uint32_t count)
{
    return (size_t)count * (sizeof(uint64_t) + 2 * sizeof(uint32_t));
}

void pl_heap_init(struct pl_heap *h, void *memory, uint32_t count)
{
    h->key = memory;
    h->at = (uint32_t *)(h->key + count);
    h->item = h->at + count;
    h->count = count;
    h->len = 0;
    for (uint32_t i = 0; i < count; i++) {
        h->key[i] = 0;
        h->at[i] = PL_NONE32;
        h->item[i] = 0;
    }
}

static bool before(const struct pl_heap *h, uint32_t a, uint32_t b)
{
    return h->key[a] < h->key[b] || (h->key[a] == h->key[b] && a < b);
}

static void place(struct pl_heap *h, uint32_t pos, uint32_t item)
{
    h->item[pos] = item;
    h->at[item] = pos;
}

static void sift_up(struct pl_heap *h, uint32_t pos)
{
    uint32_t item = h->item[pos];
    while (pos > 0) {
        uint32_t parent = (pos - 1) / 2;
        if (!before(h, item, h->item[parent]))
            break;
        place(h, pos, h->item[parent]);
        pos = parent;
    }
    place(h, pos, item);
}

static void sift_down(struct pl_heap *h, uint32_t pos)
{
    uint32_t item = h->item[pos];
    for (;;) {
        uint32_t child = 2 * pos + 1;
        if (child >= h->len)
            break;
        if (child + 1 < h->len && before(h, h->item[child + 1], h->item[child]))
            child++;
        if (!before(h, h->item[child], item))
            break;
        place(h, pos, h->item[child]);
        pos = child;
    }
    place(h, pos, item);
}

void pl_heap_set(struct pl_heap *h, uint32_t item, uint64_t key)
{
    pl_assert(item < h->count);
    if (h->at[item] == PL_NONE32)
        place(h, h->len++, item);
    h->key[item] = key;
    sift_up(h, h->at[item]);
    sift_down(h, h->at[item]);
}

void pl_heap_remove(struct pl_heap *h, uint32_t item)
{
    pl_assert(item < h->count);
    uint32_t pos = h->at[item];
    if (pos == PL_NONE32)
        return;
    h->at[item] = PL_NONE32;
    h->len--;
    if (pos == h->len)
        return;
    uint32_t moved = h->item[h->len];
    place(h, pos, moved);
    sift_up(h, pos);
    sift_down(h, h->at[moved]);
}

bool pl_heap_has(const struct pl_heap *h, uint32_t item)
{
    pl_assert(item < h->count);
    return h->at[item] != PL_NONE32;
}

uint32_t pl_heap_top(const struct pl_heap *h)
{
    return h->len > 0 ? h->item[0] : PL_NONE32;
}

uint64_t pl_heap_top_key(const struct pl_heap *h)
{
    return h->len > 0 ? h->key[h->item[0]] : PL_NEVER;
}
