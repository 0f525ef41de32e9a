/* chaos/shape.h - how a link is misshapen in one direction, and a change of it as words.
 *
 *   rate 25Mbit  latency 50ms  jitter 10ms     a line far away
 *   slice 16  gap 10ms                         so many bytes at once, so long between two of them: a drip
 *   limit 1MB                                  a connection ends after so many bytes
 *   corrupt 1e6                                one bit in so many bytes is turned
 *   slow-close 5s                              an end is told so late
 *   hold on                                    nothing passes, nothing is lost: a partition
 *   drop on                                    bytes vanish; the stream is damaged for good
 *   mute on                                    new connections are taken and never answered
 *   refuse on                                  new connections are reset at once
 *
 * "off" (or 0) takes a key back. The plan, the proxy's control socket and its client share this table.
 */
#ifndef PL_CHAOS_SHAPE_H
#define PL_CHAOS_SHAPE_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum pl_shape_key {
    PL_SHAPE_RATE,       /* bytes a second, shared by the connections of a link */
    PL_SHAPE_LATENCY,    /* ns */
    PL_SHAPE_JITTER,     /* ns, up to so much more, bytes stay in order */
    PL_SHAPE_SLICE,      /* bytes */
    PL_SHAPE_GAP,        /* ns */
    PL_SHAPE_LIMIT,      /* bytes */
    PL_SHAPE_CORRUPT,    /* one bit in so many bytes */
    PL_SHAPE_SLOW_CLOSE, /* ns */
    PL_SHAPE_HOLD,
    PL_SHAPE_DROP,
    PL_SHAPE_MUTE,
    PL_SHAPE_REFUSE,
    PL_SHAPE_KEYS
};

enum { PL_SHAPE_UP = 1, PL_SHAPE_DOWN = 2, PL_SHAPE_BOTH = 3 }; /* up: learner to syncer */

/* Zero: untouched. */
struct pl_shape {
    uint64_t v[PL_SHAPE_KEYS];
};

struct pl_shape_change {
    uint32_t keys; /* bits: which of v are meant */
    struct pl_shape to;
};

/* PL_SHAPE_KEYS when there is no such key. */
enum pl_shape_key pl_shape_find(const char *name);
const char *pl_shape_name(enum pl_shape_key key);

/* Adds one key to a change. INVALID with "rate is 'x', expected ...". */
enum pelago_status pl_shape_set(struct pl_shape_change *change, enum pl_shape_key key, const char *value,
                                struct pl_error *err);

void pl_shape_apply(struct pl_shape *shape, const struct pl_shape_change *change);

/* "rate 125000B latency 50000us": words that pl_shape_set reads back. zero: with every value off. Returns the length. */
size_t pl_shape_print(const struct pl_shape_change *change, bool zero, char *out, size_t cap);

#endif
