/* sim/disk_node.h - the content of one file on the simulated disk: what is seen, what is kept, what lies between.
 *
 * For sim/disk.c only. Both contents have the same capacity, so that syncing and losing need no memory and cannot
 * fail for lack of it.
 */
#ifndef PL_SIM_DISK_NODE_H
#define PL_SIM_DISK_NODE_H

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/prng.h"
#include "base/status.h"

struct pl_disk_change {
    bool truncate;
    uint64_t offset; /* the new length, for a truncate */
    uint8_t *data;   /* owned; NULL for a truncate */
    size_t len;
};

struct pl_disk_node {
    uint8_t *seen;
    uint8_t *kept;
    size_t cap; /* of both */
    size_t seen_len;
    size_t kept_len;
    struct pl_disk_change *changes; /* since the last sync, in order */
    size_t change_count;
    size_t change_cap;
    bool reachable;
};

/* Room for one more element of an array; array is the address of the pointer to it. */
bool pl_disk_reserve_one(const struct pl_alloc *a, void *array, size_t count, size_t *cap,
                         size_t element_bytes);

/* NOMEM leaves the node as it was. */
enum pelago_status pl_disk_node_put(const struct pl_alloc *a, struct pl_disk_node *n, const void *bytes,
                                    size_t len);
enum pelago_status pl_disk_node_resize(const struct pl_alloc *a, struct pl_disk_node *n, uint64_t bytes);
/* Writes the first len bytes of the parts. */
enum pelago_status pl_disk_node_write(const struct pl_alloc *a, struct pl_disk_node *n, uint64_t offset,
                                      const struct pl_bytes *parts, size_t len);

/* All changes become durable. */
void pl_disk_node_sync(const struct pl_alloc *a, struct pl_disk_node *n);
/* Any part of them does, in any order; the rest is forgotten, though it may still be seen. */
void pl_disk_node_lose(const struct pl_alloc *a, struct pl_disk_node *n, struct pl_prng *prng);
/* What is seen becomes what is kept. */
void pl_disk_node_revert(struct pl_disk_node *n);

void pl_disk_node_free(const struct pl_alloc *a, struct pl_disk_node *n);

#endif
