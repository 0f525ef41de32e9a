/* host/learner_ring.h - a queue of fixed-size items from one thread to one other, without locks.
 *
 * Nobody waits: a full ring says so, and what then happens is the producer's affair.
 */
#ifndef PL_HOST_LEARNER_RING_H
#define PL_HOST_LEARNER_RING_H

#include "base/alloc.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct pl_ring {
    uint8_t *items;
    uint32_t item_bytes;
    uint32_t mask;        /* items - 1; a power of two of them */
    char gap1[64];        /* what different threads write lies on different cache lines */
    _Atomic uint32_t put; /* written by the producer alone */
    char gap2[64];
    _Atomic uint32_t taken; /* written by the consumer alone */
    char gap3[64];
};

/* Room for at least `items`. False: no memory. */
bool pl_ring_init(struct pl_ring *r, const struct pl_alloc *alloc, uint32_t items, uint32_t item_bytes);
void pl_ring_release(struct pl_ring *r, const struct pl_alloc *alloc);

/* Producer. False: full. What was written before is seen by whoever takes the item. */
bool pl_ring_put(struct pl_ring *r, const void *item);
/* Consumer. False: empty. */
bool pl_ring_take(struct pl_ring *r, void *item);
/* Consumer: the oldest item without taking it; NULL: empty. */
const void *pl_ring_peek(const struct pl_ring *r);

#endif
