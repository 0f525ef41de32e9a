/* base/bf16.h - bfloat16 as the upper half of a float, rounded to nearest even. NaN stays NaN. */
#ifndef PL_BASE_BF16_H
#define PL_BASE_BF16_H

#include "base/bits.h"

#include <stdint.h>
#include <string.h>

typedef uint16_t pl_bf16;

static inline float pl_bf16_to_float(pl_bf16 h)
{
    return pl_bits_float((uint32_t)h << 16);
}

static inline pl_bf16 pl_bf16_of_float(float f)
{
    uint32_t bits = pl_float_bits(f);
    uint32_t rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
    uint32_t is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
    return (pl_bf16)((is_nan ? bits | 0x00400000u : rounded) >> 16);
}

#endif
