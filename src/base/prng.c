/* base/prng.c - see prng.h. Algorithms: Blackman and Vigna's xoshiro256**, Steele's splitmix64. */
#include "base/prng.h"

#include "base/check.h"

static uint64_t splitmix(uint64_t *x)
{
    uint64_t z = (*x += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

void pl_prng_seed(struct pl_prng *r, uint64_t seed, uint64_t stream)
{
    uint64_t x = stream;
    x = seed ^ splitmix(&x);
    for (int i = 0; i < 4; i++)
        r->s[i] = splitmix(&x);
}

static uint64_t rotl(uint64_t v, int k)
{
    return (v << k) | (v >> (64 - k));
}

uint64_t pl_prng_next(struct pl_prng *r)
{
    uint64_t *s = r->s;
    uint64_t result = rotl(s[1] * 5, 7) * 9;
    uint64_t t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotl(s[3], 45);
    return result;
}

uint64_t pl_prng_below(struct pl_prng *r, uint64_t n)
{
    pl_assert(n > 0);
    uint64_t cut = UINT64_MAX - UINT64_MAX % n;
    uint64_t v;
    do
        v = pl_prng_next(r);
    while (v >= cut);
    return v % n;
}

uint64_t pl_prng_range(struct pl_prng *r, uint64_t lo, uint64_t hi)
{
    pl_assert(lo <= hi);
    uint64_t span = hi - lo;
    return span == UINT64_MAX ? pl_prng_next(r) : lo + pl_prng_below(r, span + 1);
}

bool pl_prng_chance(struct pl_prng *r, uint32_t ppm)
{
    return pl_prng_below(r, 1000000) < ppm;
}
