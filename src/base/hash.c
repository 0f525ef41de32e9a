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

_Static_assert(sizeof(XXH3_state_t) <= sizeof(struct pl_hasher), "pl_hasher has room for xxhash's state");
_Static_assert(_Alignof(XXH3_state_t) <= _Alignof(struct pl_hasher), "and lies where xxhash wants it");

void pl_hasher_begin(struct pl_hasher *h, uint64_t seed)
{
    memset(h, 0, sizeof *h);
    XXH3_64bits_reset_withSeed((XXH3_state_t *)(void *)h->state, seed);
}

void pl_hasher_add(struct pl_hasher *h, const void *bytes, size_t len)
{
    if (len > 0)
        XXH3_64bits_update((XXH3_state_t *)(void *)h->state, bytes, len);
}

uint64_t pl_hasher_end(const struct pl_hasher *h)
{
    return XXH3_64bits_digest((const XXH3_state_t *)(const void *)h->state);
}
