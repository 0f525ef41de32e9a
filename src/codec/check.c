/* codec/check.c - whether bytes from outside are an encoding: every value finite, every bit that means nothing zero.
 *
 * An encoding that passes is the only one of its values but for the choice of a scale, so that nobody can hide
 * anything in it.
 */
#include "codec/codec.h"

#include "base/check.h"
#include "codec/kernels.h"
#include "codec/scale.h"
#include "codec/topk.h"

/* Several numbers in a word: adding the exponent's lowest bit to an exponent of all ones, which an infinity or a NaN has,
 * carries into the bit of the sign, and no further. */
static uint64_t carries(uint64_t word, uint64_t exponents, uint64_t lowest)
{
    return ((word & exponents) + lowest) & (exponents + lowest);
}

/* No early exit: encodings are nearly always good. */
static bool finite(const uint8_t *bytes, size_t n, uint64_t exponents, uint64_t lowest)
{
    uint64_t bad = 0, last = 0;
    size_t at = 0;
    for (; at + 8 <= n; at += 8)
        bad |= carries(pl_load_le64(bytes + at), exponents, lowest);
    for (size_t i = at; i < n; i++)
        last |= (uint64_t)bytes[i] << 8 * (i - at);
    return (bad | carries(last, exponents, lowest)) == 0;
}

static bool fp32_check(const uint8_t *bytes, size_t n)
{
    return finite(bytes, 4 * n, UINT64_C(0x7f8000007f800000), UINT64_C(0x0080000000800000));
}

static bool bf16_check(const uint8_t *bytes, size_t n)
{
    return finite(bytes, 2 * n, UINT64_C(0x7f807f807f807f80), UINT64_C(0x0080008000800080));
}

static bool any_bit(const uint8_t *bytes, size_t n)
{
    uint8_t all = 0;
    for (size_t i = 0; i < n; i++)
        all |= bytes[i];
    return all != 0;
}

static bool any_nibble_8(const uint8_t *codes, size_t n)
{
    return pl_codec_kernels()->any_nibble_8(codes, n);
}

/* Is one of the eight bytes 0x80, which stands for nothing in int8? The lowest zero byte of t is found exactly. */
static bool byte_80(uint64_t word)
{
    const uint64_t ones = UINT64_C(0x0101010101010101);
    uint64_t t = word ^ 0x80 * ones;
    return ((t - ones) & ~t & 0x80 * ones) != 0;
}

static bool any_byte_80(const uint8_t *bytes, size_t n)
{
    bool found = false;
    size_t at = 0;
    for (; at + 8 <= n; at += 8)
        found |= byte_80(pl_load_le64(bytes + at));
    for (; at < n; at++)
        found |= bytes[at] == 0x80;
    return found;
}

/* What a block of a codec may be. No code but the lowest number of two's complement, or minus zero, is ever wrong. */
static const struct {
    uint32_t scale_min, scale_max;
    uint8_t bits;
    bool (*any_wrong)(const uint8_t *codes, size_t count); /* NULL: every code means something */
} rules[] = {
    [PL_CODEC_INT4] = {PL_SCALE_MIN, PL_INT4_SCALE_MAX, 4, any_nibble_8},
    [PL_CODEC_INT2] = {PL_SCALE_MIN, PL_INT2_SCALE_MAX, 2, NULL},
    [PL_CODEC_INT8] = {PL_SCALE_MIN, PL_INT8_SCALE_MAX, 8, any_byte_80},
    [PL_CODEC_E3M0] = {PL_E3M0_SCALE_MIN, PL_BF16_MAX, 4, any_nibble_8},
};

static bool block_check(uint32_t codec, const uint8_t *bytes, size_t len)
{
    const uint32_t h = (uint32_t)pl_get_le(bytes, PL_CODEC_SCALE_BYTES);
    const uint8_t *codes = bytes + PL_CODEC_SCALE_BYTES;
    const size_t bits = len * rules[codec].bits, count = (bits + 7) / 8;
    if (h == 0)
        return !any_bit(codes, count);
    return h >= rules[codec].scale_min && h <= rules[codec].scale_max &&
           (rules[codec].any_wrong == NULL || !rules[codec].any_wrong(codes, count)) &&
           (bits % 8 == 0 || codes[count - 1] >> bits % 8 == 0);
}

bool pl_codec_check(enum pl_codec codec, const uint8_t *bytes, size_t n)
{
    pl_assert(pl_codec_name((uint32_t)codec) != NULL);
    if (codec == PL_CODEC_FP32)
        return fp32_check(bytes, n);
    if (codec == PL_CODEC_BF16)
        return bf16_check(bytes, n);
    const bool topk = pl_codec_is_topk((uint32_t)codec);
    const size_t unit = topk ? PL_CODEC_CHUNK : PL_CODEC_BLOCK, stride = pl_codec_bytes(codec, unit);
    for (size_t at = 0; at < n; at += unit, bytes += stride)
        if (!(topk ? pl_topk_check : block_check)((uint32_t)codec, bytes, n - at < unit ? n - at : unit))
            return false;
    return true;
}
