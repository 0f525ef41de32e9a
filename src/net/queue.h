/* net/queue.h - bytes on their way out: a list of blocks, small frames side by side, a large one in a block of its own.
 *
 * A frame lies in one piece, so that it can be encoded in place; what is taken out need not follow frames.
 */
#ifndef PL_NET_QUEUE_H
#define PL_NET_QUEUE_H

#include "base/alloc.h"

#include <stdint.h>

struct pl_block;

struct pl_queue {
    const struct pl_alloc *alloc; /* borrowed */
    struct pl_block *head, *tail;
    struct pl_block
        *spare; /* the last one that was emptied: a large frame costs a third more in fresh memory */
    size_t bytes;
};

void pl_queue_init(struct pl_queue *q, const struct pl_alloc *alloc);
void pl_queue_release(struct pl_queue *q);
void pl_queue_trim(
    struct pl_queue *q); /* gives back what is kept for the next frame; for a queue that rests */

/* Room for n bytes behind the last ones, or NULL without memory; pl_queue_add says how many of them count. */
uint8_t *pl_queue_room(struct pl_queue *q, size_t n);
void pl_queue_add(struct pl_queue *q, size_t n);

/* The first bytes, as many as lie in one piece; NULL and 0 when there are none. */
const uint8_t *pl_queue_front(const struct pl_queue *q, size_t *n);
void pl_queue_take(struct pl_queue *q, size_t n); /* drops n of the front's bytes */

#endif
