/* sim/disk_node.c - see disk_node.h. */
#include "sim/disk_node.h"

#include "base/num.h"

#include <string.h>

enum { SECTOR_BYTES = 512 };

bool pl_disk_reserve_one(const struct pl_alloc *a, void *array, size_t count, size_t *cap,
                         size_t element_bytes)
{
    void *block;
    if (count < *cap)
        return true;
    size_t more = *cap == 0 ? 8 : *cap * 2;
    memcpy(&block, array, sizeof block);
    block = a->resize(a->user, block, *cap * element_bytes, more * element_bytes);
    if (block == NULL)
        return false;
    memcpy(array, &block, sizeof block);
    *cap = more;
    return true;
}

static bool reserve_content(const struct pl_alloc *a, struct pl_disk_node *n, size_t need)
{
    if (need <= n->cap)
        return true;
    size_t more = n->cap == 0 ? 256 : n->cap;
    while (more < need)
        more *= 2;
    uint8_t *seen = pl_alloc_zero(a, more, 1);
    uint8_t *kept = pl_alloc_zero(a, more, 1);
    if (seen == NULL || kept == NULL) {
        pl_alloc_free(a, seen, more);
        pl_alloc_free(a, kept, more);
        return false;
    }
    if (n->cap > 0) {
        memcpy(seen, n->seen, n->seen_len);
        memcpy(kept, n->kept, n->kept_len);
    }
    pl_alloc_free(a, n->seen, n->cap);
    pl_alloc_free(a, n->kept, n->cap);
    n->seen = seen;
    n->kept = kept;
    n->cap = more;
    return true;
}

static void set_length(uint8_t *content, size_t *len, size_t to)
{
    if (to > *len)
        memset(content + *len, 0, to - *len);
    *len = to;
}

static void put_bytes(uint8_t *content, size_t *len, uint64_t offset, const uint8_t *bytes, size_t n)
{
    if (n == 0)
        return;
    if (offset + n > *len)
        set_length(content, len, (size_t)offset + n);
    memcpy(content + offset, bytes, n);
}

static void forget_changes(const struct pl_alloc *a, struct pl_disk_node *n)
{
    for (size_t i = 0; i < n->change_count; i++)
        pl_alloc_free(a, n->changes[i].data, n->changes[i].len);
    n->change_count = 0;
}

void pl_disk_node_free(const struct pl_alloc *a, struct pl_disk_node *n)
{
    forget_changes(a, n);
    pl_alloc_free(a, n->changes, n->change_cap * sizeof n->changes[0]);
    pl_alloc_free(a, n->seen, n->cap);
    pl_alloc_free(a, n->kept, n->cap);
    pl_alloc_free(a, n, sizeof *n);
}

enum pelago_status pl_disk_node_resize(const struct pl_alloc *a, struct pl_disk_node *n, uint64_t bytes)
{
    if (!pl_disk_reserve_one(a, &n->changes, n->change_count, &n->change_cap, sizeof n->changes[0]))
        return PELAGO_NOMEM;
    if (!reserve_content(a, n, (size_t)bytes))
        return PELAGO_NOMEM;
    n->changes[n->change_count++] = (struct pl_disk_change){.truncate = true, .offset = bytes};
    set_length(n->seen, &n->seen_len, (size_t)bytes);
    return PELAGO_OK;
}

enum pelago_status pl_disk_node_write(const struct pl_alloc *a, struct pl_disk_node *n, uint64_t offset,
                                      const struct pl_bytes *parts, size_t len)
{
    if (len == 0)
        return PELAGO_OK;
    if (!pl_disk_reserve_one(a, &n->changes, n->change_count, &n->change_cap, sizeof n->changes[0]) ||
        !reserve_content(a, n, (size_t)offset + len))
        return PELAGO_NOMEM;
    uint8_t *data = pl_alloc_zero(a, len, 1);
    if (data == NULL)
        return PELAGO_NOMEM;
    for (size_t done = 0; done < len; parts++) {
        size_t some = (size_t)pl_min64(parts->len, len - done);
        if (some > 0)
            memcpy(data + done, parts->data, some);
        done += some;
    }
    put_bytes(n->seen, &n->seen_len, offset, data, len);
    n->changes[n->change_count++] = (struct pl_disk_change){.offset = offset, .data = data, .len = len};
    return PELAGO_OK;
}

static void keep(struct pl_disk_node *n, const struct pl_disk_change *c)
{
    if (c->truncate)
        set_length(n->kept, &n->kept_len, (size_t)c->offset);
    else
        put_bytes(n->kept, &n->kept_len, c->offset, c->data, c->len);
}

/* Some sectors of a write arrive; the others read as before, as zeros or as noise. */
static void keep_sectors(struct pl_prng *prng, struct pl_disk_node *n, const struct pl_disk_change *c)
{
    uint64_t lost_as = pl_prng_below(prng, 3);
    for (size_t at = 0; at < c->len;) {
        size_t some = SECTOR_BYTES - (size_t)((c->offset + at) % SECTOR_BYTES);
        uint8_t lost[SECTOR_BYTES] = {0};
        some = (size_t)pl_min64(some, c->len - at);
        if (pl_prng_below(prng, 2) == 0) {
            put_bytes(n->kept, &n->kept_len, c->offset + at, c->data + at, some);
        } else if (lost_as > 0) {
            for (size_t i = 0; lost_as == 2 && i < some; i++)
                lost[i] = (uint8_t)pl_prng_next(prng);
            put_bytes(n->kept, &n->kept_len, c->offset + at, lost, some);
        }
        at += some;
    }
}

static void keep_some(struct pl_prng *prng, struct pl_disk_node *n, const struct pl_disk_change *c)
{
    uint64_t fate = pl_prng_below(prng, 4);
    if (fate == 0)
        return;
    if (fate == 1 || c->truncate)
        keep(n, c);
    else if (fate == 2)
        put_bytes(n->kept, &n->kept_len, c->offset, c->data, (size_t)pl_prng_below(prng, c->len));
    else
        keep_sectors(prng, n, c);
}

void pl_disk_node_sync(const struct pl_alloc *a, struct pl_disk_node *n)
{
    for (size_t i = 0; i < n->change_count; i++)
        keep(n, &n->changes[i]);
    forget_changes(a, n);
}

void pl_disk_node_lose(const struct pl_alloc *a, struct pl_disk_node *n, struct pl_prng *prng)
{
    uint64_t fate = pl_prng_below(prng, 4);
    if (fate > 1 && pl_prng_below(prng, 2) == 0) {
        for (size_t i = n->change_count; i > 1; i--) {
            size_t j = (size_t)pl_prng_below(prng, i);
            struct pl_disk_change swap = n->changes[i - 1];
            n->changes[i - 1] = n->changes[j];
            n->changes[j] = swap;
        }
    }
    for (size_t i = 0; i < n->change_count; i++) {
        if (fate == 0)
            keep(n, &n->changes[i]);
        else if (fate > 1)
            keep_some(prng, n, &n->changes[i]);
    }
    if (n->change_count > 0 && n->kept_len < n->seen_len && pl_prng_below(prng, 4) == 0)
        set_length(n->kept, &n->kept_len, n->seen_len);
    forget_changes(a, n);
}

void pl_disk_node_revert(struct pl_disk_node *n)
{
    if (n->kept_len > 0)
        memcpy(n->seen, n->kept, n->kept_len);
    n->seen_len = n->kept_len;
}

enum pelago_status pl_disk_node_put(const struct pl_alloc *a, struct pl_disk_node *n, const void *bytes,
                                    size_t len)
{
    if (!reserve_content(a, n, len))
        return PELAGO_NOMEM;
    put_bytes(n->kept, &n->kept_len, 0, bytes, len);
    pl_disk_node_revert(n);
    return PELAGO_OK;
}
