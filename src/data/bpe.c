/* data/bpe.c - see bpe.h.
 *
 * Short pieces, which are nearly all, keep the ranks of their pairs in an array: finding the lowest is a short scan, and
 * a merge looks up two pairs. Long ones (rows of dashes, text without spaces) use a heap of places and a linked list, so that
 * their cost grows with n log n.
 */
#include "data/bpe.h"

#include "base/check.h"
#include "base/heap.h"
#include "base/limits.h"

#include <string.h>

enum { SHORT_MAX = 64 };

static uint32_t slot_of(const struct pl_merges *m, uint32_t left, uint32_t right)
{
    uint64_t h = (left * UINT64_C(0x9e3779b97f4a7c15)) ^ (right * UINT64_C(0xc2b2ae3d27d4eb4f));
    return (uint32_t)((h * UINT64_C(0xff51afd7ed558ccd)) >> 32) & m->mask;
}

enum pelago_status pl_merges_init(struct pl_merges *m, const struct pl_alloc *alloc, uint32_t count)
{
    uint32_t size = 16;
    pl_assert(count < UINT32_C(1) << 30);
    while (size < 2 * count)
        size *= 2;
    *m = (struct pl_merges){alloc, pl_alloc_zero(alloc, size, sizeof *m->slots), size - 1, 0};
    if (m->slots == NULL)
        return PELAGO_NOMEM;
    for (uint32_t i = 0; i < size; i++)
        m->slots[i].made = PL_NONE32;
    return PELAGO_OK;
}

void pl_merges_release(struct pl_merges *m)
{
    if (m->slots != NULL)
        pl_alloc_free(m->alloc, m->slots, ((size_t)m->mask + 1) * sizeof *m->slots);
    m->slots = NULL;
}

/* The slot of the pair, or the empty one where it would be. */
static struct pl_merge *find(const struct pl_merges *m, uint32_t left, uint32_t right)
{
    uint32_t i = slot_of(m, left, right);
    for (;; i = (i + 1) & m->mask) {
        struct pl_merge *slot = &m->slots[i];
        if (slot->made == PL_NONE32 || (slot->left == left && slot->right == right))
            return slot;
    }
}

void pl_merges_put(struct pl_merges *m, uint32_t left, uint32_t right, uint32_t rank, uint32_t made)
{
    struct pl_merge *slot = find(m, left, right);
    pl_assert(made != PL_NONE32 && rank != PL_NONE32);
    if (slot->made == PL_NONE32)
        m->count++;
    pl_assert(m->count <= m->mask);
    *slot = (struct pl_merge){left, right, rank, made};
}

/* PL_NONE32 when the pair does not merge. */
static uint32_t rank_of(const struct pl_merges *m, uint32_t left, uint32_t right, uint32_t *made)
{
    const struct pl_merge *slot = find(m, left, right);
    *made = slot->made;
    return slot->made == PL_NONE32 ? PL_NONE32 : slot->rank;
}

/* Returns how many tokens are left of the n <= SHORT_MAX. */
static size_t apply_short(const struct pl_merges *m, uint32_t *ids, size_t n)
{
    uint32_t ranks[SHORT_MAX], made[SHORT_MAX]; /* of the pair (i, i + 1) */
    for (size_t i = 0; i + 1 < n; i++)
        ranks[i] = rank_of(m, ids[i], ids[i + 1], &made[i]);
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++)
            if (ranks[i] < ranks[best])
                best = i;
        if (ranks[best] == PL_NONE32)
            break;
        ids[best] = made[best];
        n--;
        memmove(&ids[best + 1], &ids[best + 2], (n - best - 1) * sizeof *ids);
        memmove(&ranks[best], &ranks[best + 1], (n - best - 1) * sizeof *ranks);
        memmove(&made[best], &made[best + 1], (n - best - 1) * sizeof *made);
        if (best > 0)
            ranks[best - 1] = rank_of(m, ids[best - 1], ids[best], &made[best - 1]);
        if (best + 1 < n)
            ranks[best] = rank_of(m, ids[best], ids[best + 1], &made[best]);
    }
    return n;
}

/* Places of a long piece, linked both ways; the heap holds those whose pair with the next one merges, by rank. */
struct chain {
    const struct pl_merges *merges;
    uint32_t *ids, *before, *after; /* [n] */
    struct pl_heap heap;
};

static void consider(struct chain *c, uint32_t place)
{
    uint32_t made, next = c->after[place];
    uint32_t rank = next == PL_NONE32 ? PL_NONE32 : rank_of(c->merges, c->ids[place], c->ids[next], &made);
    if (rank == PL_NONE32)
        pl_heap_remove(&c->heap, place);
    else
        pl_heap_set(&c->heap, place, rank);
}

static void merge_at(struct chain *c, uint32_t place)
{
    uint32_t next = c->after[place], made;
    (void)rank_of(c->merges, c->ids[place], c->ids[next], &made);
    pl_assert(made != PL_NONE32);
    c->ids[place] = made;
    c->after[place] = c->after[next];
    if (c->after[next] != PL_NONE32)
        c->before[c->after[next]] = place;
    pl_heap_remove(&c->heap, next);
    consider(c, place);
    if (c->before[place] != PL_NONE32)
        consider(c, c->before[place]);
}

static size_t apply_long(struct chain *c, uint32_t n)
{
    size_t left = 0;
    for (uint32_t i = 0; i < n; i++) {
        c->before[i] = i > 0 ? i - 1 : PL_NONE32;
        c->after[i] = i + 1 < n ? i + 1 : PL_NONE32;
    }
    for (uint32_t i = 0; i < n; i++)
        consider(c, i);
    for (uint32_t top; (top = pl_heap_top(&c->heap)) != PL_NONE32;)
        merge_at(c, top);
    for (uint32_t i = 0; i != PL_NONE32; i = c->after[i])
        c->ids[left++] = c->ids[i];
    return left;
}

enum pelago_status pl_merges_apply(const struct pl_merges *m, struct pl_ids *ids, size_t from,
                                   struct pl_buf *scratch)
{
    size_t n = ids->count - from;
    pl_assert(from <= ids->count);
    if (n <= SHORT_MAX) {
        ids->count = from + apply_short(m, ids->at + from, n);
        return PELAGO_OK;
    }
    if (n > INT32_MAX)
        return PELAGO_LIMIT;
    size_t heap_bytes = pl_heap_bytes((uint32_t)n), links = n * sizeof(uint32_t);
    scratch->len = 0;
    PL_TRY(pl_buf_reserve(scratch, heap_bytes + 2 * links));
    struct chain c = {.merges = m, .ids = ids->at + from};
    pl_heap_init(&c.heap, scratch->data, (uint32_t)n);
    c.before = (uint32_t *)(void *)(scratch->data + heap_bytes);
    c.after = c.before + n;
    ids->count = from + apply_long(&c, (uint32_t)n);
    return PELAGO_OK;
}
