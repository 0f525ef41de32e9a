/* codec/block.c - one block of int8, int4, e3m0 or int2, value by value: the specification of these formats.
 *
 *   0  u16  scale s, bf16
 *   2  ...  codes, the first in the lowest bits of the first byte
 *
 *   int8   8 bits  q in two's complement, -127 .. 127: q s
 *   int4   4 bits  q in two's complement, -7 .. 7: q s
 *   e3m0   4 bits  bit 3 the sign, the others L: 2^(L - 7) s, or 0 where L is 0
 *   int2   2 bits  bit 0 the sign, bit 1 set for 1.5 s, else 0.5 s
 *
 * Where s is zero all bits are zero and mean zeros. Bits behind the last value are zero.
 */
#include "base/check.h"
#include "codec/kernels.h"
#include "codec/scale.h"

/* To the nearest integer, ties to even, for magnitudes below 2^22: the sum has no room for a fraction. */
static float nearest(float x)
{
    const float shift = 12582912.0f; /* 1.5 * 2^23 */
    return (x + shift) - shift;
}

static uint32_t magnitude(float x)
{
    return pl_float_bits(x) & 0x7fffffffu;
}

static void int8_encode(const float *x, size_t len, uint8_t *out, float *rest)
{
    pl_bf16 h = pl_int8_scale(pl_codec_portable.top(x, len));
    float scale = pl_bf16_to_float(h), inverse = pl_scale_inverse(scale);
    pl_put_le(out, h, PL_CODEC_SCALE_BYTES);
    for (size_t i = 0; i < len; i++) {
        int q = (int)nearest(x[i] * inverse);
        out[PL_CODEC_SCALE_BYTES + i] = (uint8_t)q;
        if (rest != NULL)
            rest[i] = x[i] - (float)q * scale;
    }
}

static void int8_decode(const uint8_t *bytes, size_t len, float *out)
{
    float scale = pl_scale_get(bytes);
    for (size_t i = 0; i < len; i++)
        out[i] = (float)(int8_t)bytes[PL_CODEC_SCALE_BYTES + i] * scale;
}

static void int4_encode(const float *x, size_t len, uint8_t *out, float *rest)
{
    pl_bf16 h = pl_int4_scale(pl_codec_portable.top(x, len));
    float scale = pl_bf16_to_float(h);
    float inverse = pl_scale_inverse(scale);
    pl_put_le(out, h, PL_CODEC_SCALE_BYTES);
    out += PL_CODEC_SCALE_BYTES;
    memset(out, 0, (len + 1) / 2);
    for (size_t i = 0; i < len; i++) {
        int q = (int)nearest(x[i] * inverse);
        out[i / 2] = (uint8_t)(out[i / 2] | ((unsigned)q & 15u) << 4 * (i % 2));
        if (rest != NULL)
            rest[i] = x[i] - (float)q * scale;
    }
}

static void int4_decode(const uint8_t *bytes, size_t len, float *out)
{
    float scale = pl_scale_get(bytes);
    bytes += PL_CODEC_SCALE_BYTES;
    for (size_t i = 0; i < len; i++) {
        int nibble = bytes[i / 2] >> 4 * (i % 2) & 15;
        out[i] = (float)(nibble < 8 ? nibble : nibble - 16) * scale;
    }
}

/* The nearest level in the sense of the difference: a magnitude of y scales rounds up from 1.5 times a level on, and from
 * half of the least level on. Half a mantissa is added, and what carries into the exponent is kept. */
static unsigned e3m0_level(float y)
{
    uint32_t bits = pl_float_bits(y);
    if (bits < PL_E3M0_LEAST_BITS)
        return 0;
    uint32_t exponent = (bits + PL_E3M0_HALF) >> 23;
    return exponent <= PL_E3M0_BIAS ? 1 : exponent - PL_E3M0_BIAS;
}

static float e3m0_value(unsigned code, float scale)
{
    unsigned level = code & 7;
    float value = level == 0 ? 0.0f : scale * pl_bits_float((PL_E3M0_BIAS + level) << 23);
    return (code & 8) != 0 ? -value : value;
}

static void e3m0_encode(const float *x, size_t len, uint8_t *out, float *rest)
{
    pl_bf16 h = pl_e3m0_scale(pl_codec_portable.top(x, len));
    float scale = pl_bf16_to_float(h), inverse = pl_scale_inverse(scale);
    pl_put_le(out, h, PL_CODEC_SCALE_BYTES);
    out += PL_CODEC_SCALE_BYTES;
    memset(out, 0, (len + 1) / 2);
    for (size_t i = 0; i < len; i++) {
        unsigned level = e3m0_level(pl_bits_float(magnitude(x[i])) * inverse);
        unsigned code = level == 0 ? 0 : level | (pl_float_bits(x[i]) >> 31) << 3;
        out[i / 2] = (uint8_t)(out[i / 2] | code << 4 * (i % 2));
        if (rest != NULL)
            rest[i] = x[i] - e3m0_value(code, scale);
    }
}

static void e3m0_decode(const uint8_t *bytes, size_t len, float *out)
{
    float scale = pl_scale_get(bytes);
    bytes += PL_CODEC_SCALE_BYTES;
    for (size_t i = 0; i < len; i++)
        out[i] = e3m0_value(bytes[i / 2] >> 4 * (i % 2) & 15, scale);
}

/* The 256th parts of the magnitudes, whose sum cannot overflow, in 16 lanes and a tree over them. */
static float sum_256th(const float *x, size_t len)
{
    float lane[PL_CODEC_LANES] = {0};
    for (size_t i = 0; i < len; i++)
        lane[i % PL_CODEC_LANES] += pl_bits_float(magnitude(x[i])) * (1.0f / 256.0f);
    for (size_t half = PL_CODEC_LANES / 2; half > 0; half /= 2)
        for (size_t i = 0; i < half; i++)
            lane[i] += lane[i + half];
    return lane[0];
}

static void int2_encode(const float *x, size_t len, uint8_t *out, float *rest)
{
    pl_bf16 h = pl_int2_scale(sum_256th(x, len), len);
    float scale = pl_bf16_to_float(h);
    const float level[4] = {0.5f * scale, -0.5f * scale, 1.5f * scale, -1.5f * scale};
    pl_put_le(out, h, PL_CODEC_SCALE_BYTES);
    out += PL_CODEC_SCALE_BYTES;
    memset(out, 0, (len + 3) / 4);
    for (size_t i = 0; h != 0 && i < len; i++) {
        uint32_t bits = pl_float_bits(x[i]);
        unsigned code = bits >> 31 | ((bits & 0x7fffffffu) >= (uint32_t)h << 16 ? 2u : 0u);
        out[i / 4] = (uint8_t)(out[i / 4] | code << 2 * (i % 4));
        if (rest != NULL)
            rest[i] = x[i] - level[code];
    }
    if (h == 0 && rest != NULL)
        memmove(rest, x, len * sizeof *x);
}

static void int2_decode(const uint8_t *bytes, size_t len, float *out)
{
    float scale = pl_scale_get(bytes);
    const float level[4] = {0.5f * scale, -0.5f * scale, 1.5f * scale, -1.5f * scale};
    bytes += PL_CODEC_SCALE_BYTES;
    for (size_t i = 0; i < len; i++)
        out[i] = level[bytes[i / 4] >> 2 * (i % 4) & 3];
}

void pl_block_encode(uint32_t codec, const float *x, size_t len, uint8_t *out, float *rest)
{
    static void (*const by[])(const float *x, size_t len, uint8_t *out, float *rest) = {
        [PL_CODEC_INT4] = int4_encode,
        [PL_CODEC_INT2] = int2_encode,
        [PL_CODEC_INT8] = int8_encode,
        [PL_CODEC_E3M0] = e3m0_encode,
    };
    pl_assert(len >= 1 && len <= PL_CODEC_BLOCK && pl_codec_portable.top(x, len) < 0x7f800000u);
    by[codec](x, len, out, rest);
}

void pl_block_decode(uint32_t codec, const uint8_t *bytes, size_t len, float *out)
{
    static void (*const by[])(const uint8_t *bytes, size_t len, float *out) = {
        [PL_CODEC_INT4] = int4_decode,
        [PL_CODEC_INT2] = int2_decode,
        [PL_CODEC_INT8] = int8_decode,
        [PL_CODEC_E3M0] = e3m0_decode,
    };
    by[codec](bytes, len, out);
}
