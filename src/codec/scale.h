/* codec/scale.h - the one number that a block shares, and how it is chosen.
 *
 * Only / * and comparisons on floats, in this order, so that every machine chooses alike.
 */
#ifndef PL_CODEC_SCALE_H
#define PL_CODEC_SCALE_H

#include "base/bf16.h"
#include "base/bytes.h"
#include "base/bits.h"
#include "codec/kernels.h"

#include <float.h>

_Static_assert(FLT_EVAL_METHOD == 0, "float must be evaluated in its own precision");

static inline float pl_scale_get(const uint8_t *bytes)
{
    return pl_bf16_to_float((pl_bf16)pl_get_le(bytes, 2));
}

/* Eight bytes, the first lowest. */
static inline uint64_t pl_load_le64(const uint8_t *p)
{
    uint64_t word;
    memcpy(&word, p, sizeof word);
    return __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? word : __builtin_bswap64(word);
}

/* To bf16, with nothing between zero and PL_SCALE_MIN. */
static inline pl_bf16 pl_scale_settle(float scale)
{
    pl_bf16 h = pl_bf16_of_float(scale);
    return h < PL_SCALE_MIN ? 0 : h;
}

/* A seventh of the largest magnitude. No finite one gives more than PL_INT4_SCALE_MAX, and nothing divided by the
 * scale exceeds 7.03, so that rounding stays within 7. */
static inline pl_bf16 pl_int4_scale(uint32_t top_bits)
{
    return pl_scale_settle(pl_bits_float(top_bits) / 7.0f);
}

/* Of int8: here nothing exceeds 127.497 scales, which rounds to 127. */
static inline pl_bf16 pl_int8_scale(uint32_t top_bits)
{
    return pl_scale_settle(pl_bits_float(top_bits) / 127.0f);
}

/* e3m0 as bits of floats: half of the least level, 2^-7; half a mantissa; and the exponent of 2^-7, from which the levels
 * count. */
#define PL_E3M0_LEAST_BITS 0x3c000000u
#define PL_E3M0_HALF 0x00400000u
#define PL_E3M0_BIAS 120u

/* Of e3m0: the largest magnitude itself, which is 1.004 scales at most. */
static inline pl_bf16 pl_e3m0_scale(uint32_t top_bits)
{
    if (top_bits >= PL_BF16_MAX << 16)
        return (pl_bf16)PL_BF16_MAX;
    pl_bf16 h = pl_bf16_of_float(pl_bits_float(top_bits));
    return h < PL_E3M0_SCALE_MIN ? 0 : h;
}

/* 5/4 of the mean magnitude, given the sum of the 256th parts of len magnitudes: within 0.3% of what is best for a
 * normal distribution, and whatever the values are, what is lost is shorter than they. */
static inline pl_bf16 pl_int2_scale(float sum_256th, size_t len)
{
    pl_bf16 h = pl_scale_settle(sum_256th * (320.0f / (float)len));
    return h < PL_INT2_SCALE_MAX ? h : (pl_bf16)PL_INT2_SCALE_MAX;
}

/* What a value is multiplied with to be counted in scales; exact for the scale zero as well. */
static inline float pl_scale_inverse(float scale)
{
    return scale > 0 ? 1.0f / scale : 0.0f;
}

#endif
