/* chaos/proxy.h - a user-space TCP proxy that makes links bad: slow, far, cut, half-open, damaged (chaos/shape.h says how).
 *
 * One process serves many learners: a listening port for each learner and shard, a "link". What passes is not looked
 * into. Buffers are bounded; a full one stops the reading, so the sender feels the link as it would feel a real one. The
 * rate is shared by all connections of a link and direction, in turns; everything else is per connection.
 *
 * It cannot do what only a network can: connects succeed at once (the kernel answers for us), so a partition shows as
 * silence after them, and a dead syncer as a reset.
 *
 * One thread, one libuv loop. pl_proxy_run blocks it.
 */
#ifndef PL_CHAOS_PROXY_H
#define PL_CHAOS_PROXY_H

#include "base/alloc.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

enum { PL_PROXY_LINKS_MAX = 4096, PL_PROXY_TARGETS_MAX = 64 };

struct pl_proxy_options {
    const char *listen;  /* "127.0.0.1:0"; with a port, links get it and the ones after it */
    const char *to;      /* "host:port", or several with commas: the shards 0, 1, ... */
    uint32_t learners;   /* links to each of them, numbered from 1 */
    const char *state;   /* a JSON file that says the ports, written once all listen; NULL: none */
    const char *control; /* a Unix socket for orders; NULL: none */
    uint64_t seed;       /* of jitter and corruption */
    bool signals;        /* leave on SIGINT and SIGTERM */
};

struct pl_proxy;

/* Listens; the sentence of a failure says what to do. options and alloc are borrowed until pl_proxy_free. */
enum pelago_status pl_proxy_new(struct pl_proxy **out, const struct pl_proxy_options *o,
                                const struct pl_alloc *alloc, struct pl_error *err);

/* Until a signal or the order "stop". */
void pl_proxy_run(struct pl_proxy *p);

/* After run, or instead of it. NULL is fine. */
void pl_proxy_free(struct pl_proxy *p);

uint32_t pl_proxy_port(const struct pl_proxy *p, uint32_t learner, uint32_t shard); /* learner from 1 */

/* ---- the other end of the control socket ---- */

/* One order (see docs/chaos.md), blocking for at most timeout_ms. OK: answer holds what came before "ok", without the
 * last new line, cut to cap. UNREACHABLE: nobody answers there. INVALID: the proxy refused, err says why. */
enum pelago_status pl_proxy_ask(const char *control, const char *order, int timeout_ms, char *answer,
                                size_t cap, struct pl_error *err);

#endif
