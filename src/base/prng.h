/* base/prng.h - seeded randomness (xoshiro256** filled by splitmix64). Not for secrets.
 *
 * One stream per purpose: pl_prng_seed(&r, seed, stream) gives independent streams for one seed.
 */
#ifndef PL_BASE_PRNG_H
#define PL_BASE_PRNG_H

#include <stdbool.h>
#include <stdint.h>

struct pl_prng {
    uint64_t s[4];
};

void pl_prng_seed(struct pl_prng *r, uint64_t seed, uint64_t stream);
uint64_t pl_prng_next(struct pl_prng *r);

/* Uniform in [0, n); n > 0. */
uint64_t pl_prng_below(struct pl_prng *r, uint64_t n);

/* Uniform in [lo, hi], both included; lo <= hi. */
uint64_t pl_prng_range(struct pl_prng *r, uint64_t lo, uint64_t hi);

/* True with probability ppm / 1,000,000. */
bool pl_prng_chance(struct pl_prng *r, uint32_t ppm);

#endif
