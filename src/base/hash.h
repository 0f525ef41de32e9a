/* base/hash.h - XXH3-64: frames, records, digests of fragments. Detects damage, not malice. */
#ifndef PL_BASE_HASH_H
#define PL_BASE_HASH_H

#include "base/bytes.h"

uint64_t pl_hash64(const void *bytes, size_t len, uint64_t seed);

/* The hash of the parts joined together: how they were cut makes no difference. */
uint64_t pl_hash64_parts(const struct pl_bytes *parts, size_t count, uint64_t seed);

/* The same hash of bytes that come one piece after the other. */
struct pl_hasher {
    _Alignas(64) uint8_t state[576];
};
void pl_hasher_begin(struct pl_hasher *h, uint64_t seed);
void pl_hasher_add(struct pl_hasher *h, const void *bytes, size_t len);
uint64_t pl_hasher_end(const struct pl_hasher *h);

#endif
