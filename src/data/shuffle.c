/* data/shuffle.c - see shuffle.h. */
#include "data/shuffle.h"

#include "base/check.h"
#include "base/limits.h"
#include "base/prng.h"

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 32) * UINT64_C(0xd6e8feb86659fd93);
    x = (x ^ x >> 32) * UINT64_C(0xd6e8feb86659fd93);
    return x ^ x >> 32;
}

void pl_shuffle_init(struct pl_shuffle *s, uint64_t seed, uint64_t epoch, uint64_t n)
{
    struct pl_prng r;
    pl_assert(n > 0 && n <= PL_COUNT_MAX);
    s->n = n;
    s->half_bits = 1;
    while ((UINT64_C(1) << (2 * s->half_bits)) < n)
        s->half_bits++;
    pl_prng_seed(&r, seed, epoch);
    for (unsigned i = 0; i < PL_SHUFFLE_ROUNDS; i++)
        s->keys[i] = pl_prng_next(&r);
}

static uint64_t permute(const struct pl_shuffle *s, uint64_t i)
{
    uint64_t mask = (UINT64_C(1) << s->half_bits) - 1, left = i >> s->half_bits, right = i & mask;
    for (unsigned round = 0; round < PL_SHUFFLE_ROUNDS; round++) {
        uint64_t next = left ^ (mix(right ^ s->keys[round]) & mask);
        left = right;
        right = next;
    }
    return left << s->half_bits | right;
}

uint64_t pl_shuffle_at(const struct pl_shuffle *s, uint64_t i)
{
    pl_assert(i < s->n);
    do
        i = permute(s, i);
    while (i >= s->n);
    return i;
}

uint64_t pl_shuffle_order(uint64_t seed, uint64_t n, uint64_t position)
{
    struct pl_shuffle s;
    pl_shuffle_init(&s, seed, position / n, n);
    return pl_shuffle_at(&s, position % n);
}
