/* host/link_bench.h - how fast one connection is, TLS and all: a side that takes bytes and a side that sends them.
 *
 * The receiver measures, from the end of the first frame to the end of the last; the sender learns it in the answer to
 * its last word. Credentials are made for the occasion.
 */
#ifndef PL_HOST_LINK_BENCH_H
#define PL_HOST_LINK_BENCH_H

#include "net/conn.h"

/* A run of two: one listens, the other sends. */
enum pelago_status pl_link_bench_credentials(struct pl_credentials *shard, struct pl_credentials *learner,
                                             struct pl_error *err);

/* Serves one connection until it is over. ready is told the port. */
enum pelago_status pl_link_bench_serve(const struct pl_credentials *own, const char *address,
                                       void (*ready)(void *user, uint32_t port), void *user,
                                       struct pl_error *err);

struct pl_link_bench {
    const struct pl_credentials *own;
    const char *address;
    uint32_t streams;     /* as in pl_net_options */
    uint32_t frame_bytes; /* payload of a frame, at most PL_CHUNK_BYTES_MAX */
    double seconds;
};
struct pl_link_result {
    uint64_t bytes;   /* of payload, without the first frame */
    uint64_t span_ns; /* at the receiver */
    uint64_t rtt_ns;
    uint32_t streams; /* that carried it at the end */
    double cpu_s;     /* of the sender */
};
enum pelago_status pl_link_bench_send(const struct pl_link_bench *b, struct pl_link_result *r,
                                      struct pl_error *err);

#endif
