/* net/bucket.h - how much may be sent now, so that the bytes of a second stay under a rate. */
#ifndef PL_NET_BUCKET_H
#define PL_NET_BUCKET_H

#include <stdint.h>

/* Bytes a second this process may send on all connections that share the bucket; 0: no limit. Credit comes with time, at
 * most 80 ms of it is kept, and nobody sends for less than a packet's worth: small records cost more than they carry. */
struct pl_bucket {
    uint64_t bytes_per_s;
    uint64_t at_ns; /* private */
    int64_t credit; /* private */
};

/* Bytes that may go out now; 0: not before *wait_ns have passed. */
uint64_t pl_bucket_allows(struct pl_bucket *b, uint64_t now_ns, uint64_t *wait_ns);
void pl_bucket_spend(struct pl_bucket *b, uint64_t bytes); /* may go below zero: a record is sent whole */

#endif
