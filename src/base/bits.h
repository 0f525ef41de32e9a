/* base/bits.h - floats and doubles as the numbers their bits are, and back: for files, hashes and arithmetic on exponents. */
#ifndef PL_BASE_BITS_H
#define PL_BASE_BITS_H

#include <stdint.h>
#include <string.h>

static inline uint32_t pl_float_bits(float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits;
}

static inline float pl_bits_float(uint32_t bits)
{
    float v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

static inline uint64_t pl_double_bits(double v)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits;
}

static inline double pl_bits_double(uint64_t bits)
{
    double v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

#endif
