/* sim/codec.c - see codec.h. */
#include "sim/codec.h"

#include "base/bits.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/hash.h"
#include "optim/merge.h"

#include <string.h>

static float magnitude(float f)
{
    return f < 0 ? -f : f;
}

/* Rounded to nearest, ties away from zero; within -127 ... 127. */
static int8_t quantised(float value, float scale)
{
    float q = value / scale;
    q = q > 127.0f ? 127.0f : q < -127.0f ? -127.0f : q;
    return (int8_t)(q < 0 ? q - 0.5f : q + 0.5f);
}

bool pl_sim_encode(const float *values, size_t n, uint8_t *out)
{
    if (!pl_all_finite(values, n))
        return false;
    for (size_t at = 0; at < n; at += PL_SIM_BLOCK) {
        size_t len = n - at < PL_SIM_BLOCK ? n - at : PL_SIM_BLOCK;
        float top = 0;
        for (size_t i = 0; i < len; i++)
            top = magnitude(values[at + i]) > top ? magnitude(values[at + i]) : top;
        float scale = top / 127.0f;
        pl_put_le(out, pl_float_bits(scale), 4);
        for (size_t i = 0; i < len; i++)
            out[4 + i] = scale > 0 ? (uint8_t)quantised(values[at + i], scale) : 0;
        out += 4 + len;
    }
    return true;
}

bool pl_sim_decode(const uint8_t *bytes, size_t len, float *values, size_t n)
{
    if (len != pl_sim_encoded_bytes(n))
        return false;
    for (size_t at = 0; at < n; at += PL_SIM_BLOCK) {
        size_t count = n - at < PL_SIM_BLOCK ? n - at : PL_SIM_BLOCK;
        float scale = pl_bits_float((uint32_t)pl_get_le(bytes, 4));
        for (size_t i = 0; i < count; i++)
            values[at + i] = scale * (float)(int8_t)bytes[4 + i];
        bytes += 4 + count;
    }
    return pl_all_finite(values, n);
}

void pl_sim_put_floats(uint8_t *out, const float *values, size_t n)
{
    for (size_t i = 0; i < n; i++)
        pl_put_le(out + 4 * i, pl_float_bits(values[i]), 4);
}

void pl_sim_get_floats(float *values, const uint8_t *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        values[i] = pl_bits_float((uint32_t)pl_get_le(bytes + 4 * i, 4));
}

uint64_t pl_sim_digest(const float *values, size_t n)
{
    const float one = 1.0f;
    pl_assert(pl_get_le((const uint8_t *)&one, 4) == 0x3f800000); /* little-endian: memory is as sent */
    return pl_hash64(values, n * sizeof *values, 0);
}
