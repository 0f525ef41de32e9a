/* base/hash.h - XXH3-64: frames, records, digests of fragments. Detects damage, not malice. */
#ifndef PL_BASE_HASH_H
#define PL_BASE_HASH_H

#include "base/bytes.h"

uint64_t pl_hash64(const void *bytes, size_t len, uint64_t seed);

/* The hash of the parts joined together: how they were cut makes no difference. */
uint64_t pl_hash64_parts(const struct pl_bytes *parts, size_t count, uint64_t seed);

#endif
