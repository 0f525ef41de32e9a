/* host/rate.h - at most so many of something in a second: lines that strangers may cause, questions on one connection.
 *
 * Whole seconds are counted, so that twice as many may come around the turn of one: what is wanted is a bound.
 */
#ifndef PL_HOST_RATE_H
#define PL_HOST_RATE_H

#include "base/limits.h"

#include <stdbool.h>
#include <stdint.h>

struct pl_rate {
    uint64_t since_ns;
    uint32_t count;   /* in this second */
    uint32_t dropped; /* since somebody asked */
};

/* One more: false when it is one too many. */
static inline bool pl_rate_ok(struct pl_rate *r, uint64_t now_ns, uint32_t a_second)
{
    if (now_ns - r->since_ns >= PL_SEC) {
        r->since_ns = now_ns;
        r->count = 0;
    }
    if (r->count >= a_second) {
        r->dropped++;
        return false;
    }
    r->count++;
    return true;
}

/* How many were too many since the last call. */
static inline uint32_t pl_rate_dropped(struct pl_rate *r)
{
    uint32_t dropped = r->dropped;
    r->dropped = 0;
    return dropped;
}

#endif
