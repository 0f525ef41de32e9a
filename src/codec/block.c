/* codec/block.c - one block of int4 or int2, value by value: the specification of both formats.
 *
 *   int4   0  u16  scale s, bf16           int2   0  u16  scale s, bf16
 *          2  ...  value i in bits                2  ...  value i in bits
 *                  4 (i mod 2) .. + 3                     2 (i mod 4) .. + 1
 *                  of byte i / 2, in two's                of byte i / 4: bit 0 the sign,
 *                  complement: q s                        bit 1 set for 1.5 s, else 0.5 s
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

void pl_int4_block_encode(const float *x, size_t len, uint8_t *out, float *rest)
{
    uint32_t top = pl_codec_portable.top(x, len);
    pl_assert(len >= 1 && len <= PL_CODEC_BLOCK && top < 0x7f800000u);
    pl_bf16 h = pl_int4_scale(top);
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

void pl_int4_block_decode(const uint8_t *bytes, size_t len, float *out)
{
    float scale = pl_scale_get(bytes);
    bytes += PL_CODEC_SCALE_BYTES;
    for (size_t i = 0; i < len; i++) {
        int nibble = bytes[i / 2] >> 4 * (i % 2) & 15;
        out[i] = (float)(nibble < 8 ? nibble : nibble - 16) * scale;
    }
}

/* The 256th parts of the magnitudes, whose sum cannot overflow, in 16 lanes and a tree over them. */
static float sum_256th(const float *x, size_t len)
{
    float lane[PL_CODEC_LANES] = {0};
    for (size_t i = 0; i < len; i++)
        lane[i % PL_CODEC_LANES] += pl_float_of_bits(pl_float_bits(x[i]) & 0x7fffffffu) * (1.0f / 256.0f);
    for (size_t half = PL_CODEC_LANES / 2; half > 0; half /= 2)
        for (size_t i = 0; i < half; i++)
            lane[i] += lane[i + half];
    return lane[0];
}

void pl_int2_block_encode(const float *x, size_t len, uint8_t *out, float *rest)
{
    pl_assert(len >= 1 && len <= PL_CODEC_BLOCK && pl_codec_portable.top(x, len) < 0x7f800000u);
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

void pl_int2_block_decode(const uint8_t *bytes, size_t len, float *out)
{
    float scale = pl_scale_get(bytes);
    const float level[4] = {0.5f * scale, -0.5f * scale, 1.5f * scale, -1.5f * scale};
    bytes += PL_CODEC_SCALE_BYTES;
    for (size_t i = 0; i < len; i++)
        out[i] = level[bytes[i / 4] >> 2 * (i % 4) & 3];
}
