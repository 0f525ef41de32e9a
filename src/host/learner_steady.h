/* host/learner_steady.h - memory that one thread moves now and then, and others copy without stopping it.
 *
 * A sequence number is odd while the owner moves the memory and even while it stands. Whoever copies looks at
 * the number before and after: a copy that was overtaken is no copy, and is taken again when the memory
 * stands once more. The owner never waits and never looks whether anybody copies. The copying itself may race
 * with the owner: see the comment at copy_words() for why that is sound.
 */
#ifndef PL_HOST_LEARNER_STEADY_H
#define PL_HOST_LEARNER_STEADY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pl_steady {
    char gap1[64]; /* alone on its cache line */
    _Atomic uint64_t number;
    char gap2[64];
};

/* From one place to another. Both begin at a multiple of 4 bytes, and bytes is one. */
struct pl_steady_span {
    const void *from;
    void *to;
    size_t bytes;
};

/* The owner: before it moves anything, and when everything stands again. */
static inline void pl_steady_move(struct pl_steady *s)
{
    (void)atomic_fetch_add_explicit(&s->number, 1, memory_order_acq_rel);
}
static inline void pl_steady_stand(struct pl_steady *s)
{
    (void)atomic_fetch_add_explicit(&s->number, 1, memory_order_release);
}

static inline uint64_t pl_steady_now(const struct pl_steady *s)
{
    return atomic_load_explicit(&s->number, memory_order_acquire);
}

/* Copies all spans as they were at one moment, whose number is put into *number. False: the owner was moving,
 * or began to; what is in the destinations then means nothing. want: only at this number; PL_NONE64: any. */
bool pl_steady_copy(struct pl_steady *s, const struct pl_steady_span *spans, uint32_t count, uint64_t want,
                    uint64_t *number);

#endif
