/* data/shuffle.h - a seeded order of 0 .. n-1 that takes no memory: training order is a function of seed and position.
 *
 * A balanced Feistel network permutes the next power of four; numbers that fall outside are sent through again until they fall
 * inside, so it stays a permutation. Every epoch has its own.
 */
#ifndef PL_DATA_SHUFFLE_H
#define PL_DATA_SHUFFLE_H

#include <stdint.h>

enum { PL_SHUFFLE_ROUNDS = 6 };

struct pl_shuffle {
    uint64_t n;
    uint32_t half_bits;
    uint64_t keys[PL_SHUFFLE_ROUNDS];
};

/* n from 1 to 2^62. */
void pl_shuffle_init(struct pl_shuffle *s, uint64_t seed, uint64_t epoch, uint64_t n);
/* Where i < n goes. */
uint64_t pl_shuffle_at(const struct pl_shuffle *s, uint64_t i);

/* Item number `position` of an endless run over n items: each epoch of n positions has every item once. */
uint64_t pl_shuffle_order(uint64_t seed, uint64_t n, uint64_t position);

#endif
