/* base/num.h - integer arithmetic that cannot overflow silently, and running averages in integers.
 *
 * Decisions are made in integers so that every machine decides alike.
 */
#ifndef PL_BASE_NUM_H
#define PL_BASE_NUM_H

#include <stdbool.h>
#include <stdint.h>

static inline bool pl_mul_overflow(uint64_t a, uint64_t b, uint64_t *out)
{
    return __builtin_mul_overflow(a, b, out);
}

static inline bool pl_add_overflow(uint64_t a, uint64_t b, uint64_t *out)
{
    return __builtin_add_overflow(a, b, out);
}

static inline uint64_t pl_min64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}
static inline uint64_t pl_max64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}
static inline uint32_t pl_min32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}
static inline uint32_t pl_max32(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

static inline uint64_t pl_clamp64(uint64_t v, uint64_t lo, uint64_t hi)
{
    return v < lo ? lo : v > hi ? hi : v;
}

/* a - b, or 0 when b is larger. */
static inline uint64_t pl_sub_sat(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

/* a + b, or UINT64_MAX. */
static inline uint64_t pl_add_sat(uint64_t a, uint64_t b)
{
    uint64_t sum;
    return pl_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

/* a * b / c without overflow of the product, saturating; c > 0. Long division by hand: a 128-bit "/" would call
 * into the compiler's library, which pure layers do not link. */
static inline uint64_t pl_mul_div(uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t product;
    if (!pl_mul_overflow(a, b, &product))
        return product / c;
    __extension__ typedef unsigned __int128 wide;
    wide w = (wide)a * b;
    uint64_t rest = (uint64_t)(w >> 64), low = (uint64_t)w, quotient = 0;
    if (rest >= c)
        return UINT64_MAX;
    for (int bit = 63; bit >= 0; bit--) {
        uint64_t carry = rest >> 63;
        rest = rest << 1 | (low >> bit & 1);
        quotient <<= 1;
        if (carry != 0 || rest >= c) {
            rest -= c;
            quotient |= 1;
        }
    }
    return quotient;
}

/* A running average and mean deviation, as TCP keeps for round trips: gains 1/8 and 1/4. Zero means no sample. */
struct pl_average {
    uint64_t mean;
    uint64_t dev;
};

static inline void pl_average_add(struct pl_average *a, uint64_t sample)
{
    if (a->mean == 0) {
        a->mean = sample > 0 ? sample : 1;
        a->dev = sample / 4;
        return;
    }
    uint64_t off = sample > a->mean ? sample - a->mean : a->mean - sample;
    a->dev = a->dev - a->dev / 4 + off / 4;
    a->mean = sample > a->mean ? a->mean + off / 8 : a->mean - off / 8;
}

#endif
