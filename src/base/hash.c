/* base/hash.c - the one translation unit that includes xxhash (header only, no run-time library). */
#include "base/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t pl_hash64(const void *bytes, size_t len, uint64_t seed)
{
    return XXH3_64bits_withSeed(bytes, len, seed);
}

uint64_t pl_hash64_parts(const struct pl_bytes *parts, size_t count, uint64_t seed)
{
    XXH3_state_t state = {.seed = 0}; /* reset compares with what was there before */
    XXH3_64bits_reset_withSeed(&state, seed);
    for (size_t i = 0; i < count; i++)
        if (parts[i].len > 0)
            XXH3_64bits_update(&state, parts[i].data, parts[i].len);
    return XXH3_64bits_digest(&state);
}
