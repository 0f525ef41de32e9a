/* codec/portable.c - the codecs' loops for any machine, and the choice between the variants. */
#include "base/cpu.h"
#include "codec/kernels.h"
#include "codec/scale.h"
#include "codec/topk.h"

static uint32_t top(const float *x, size_t n)
{
    uint32_t most = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t magnitude = pl_float_bits(x[i]) & 0x7fffffffu;
        most = magnitude > most ? magnitude : most;
    }
    return most;
}

static void bf16_encode(const float *x, size_t n, uint8_t *out, float *rest)
{
    for (size_t i = 0; i < n; i++) {
        pl_bf16 h = pl_bf16_of_float(x[i]);
        pl_put_le(out + 2 * i, h, 2);
        if (rest != NULL)
            rest[i] = x[i] - pl_bf16_to_float(h);
    }
}

static void bf16_decode(const uint8_t *bytes, size_t n, float *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = pl_scale_get(bytes + 2 * i);
}

#define BLOCKS(name, codec, bytes_of_one)                                                                    \
    static void name##_encode_blocks(const float *x, size_t blocks, uint8_t *out, float *rest)               \
    {                                                                                                        \
        for (size_t b = 0; b < blocks; b++)                                                                  \
            pl_block_encode(codec, x + b * PL_CODEC_BLOCK, PL_CODEC_BLOCK, out + b * (bytes_of_one),         \
                            rest != NULL ? rest + b * PL_CODEC_BLOCK : NULL);                                \
    }                                                                                                        \
    static void name##_decode_blocks(const uint8_t *bytes, size_t blocks, float *out)                        \
    {                                                                                                        \
        for (size_t b = 0; b < blocks; b++)                                                                  \
            pl_block_decode(codec, bytes + b * (bytes_of_one), PL_CODEC_BLOCK, out + b * PL_CODEC_BLOCK);    \
    }

BLOCKS(int4, PL_CODEC_INT4, PL_INT4_BLOCK_BYTES)
BLOCKS(int2, PL_CODEC_INT2, PL_INT2_BLOCK_BYTES)
BLOCKS(int8, PL_CODEC_INT8, PL_INT8_BLOCK_BYTES)
BLOCKS(e3m0, PL_CODEC_E3M0, PL_E3M0_BLOCK_BYTES)

static void topk_select(const float *x, uint32_t k, uint16_t *index)
{
    pl_topk_select(x, PL_CODEC_CHUNK, k, index);
}

/* Is one of the sixteen nibbles 8, which stands for nothing? The lowest zero nibble of t is found exactly. */
static bool nibble_8(uint64_t word)
{
    const uint64_t ones = UINT64_C(0x1111111111111111);
    uint64_t t = word ^ 8 * ones;
    return ((t - ones) & ~t & 8 * ones) != 0;
}

static bool any_nibble_8(const uint8_t *bytes, size_t n)
{
    bool found = false;
    size_t at = 0;
    for (; at + 8 <= n; at += 8)
        found |= nibble_8(pl_load_le64(bytes + at));
    for (; at < n; at++)
        found |= nibble_8(bytes[at]);
    return found;
}

static void add(const float *x, size_t n, float *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] += x[i];
}

const struct pl_codec_kernels pl_codec_portable = {
    .top = top,
    .bf16_encode = bf16_encode,
    .bf16_decode = bf16_decode,
    .encode_blocks = {[PL_CODEC_INT4] = int4_encode_blocks,
                      [PL_CODEC_INT2] = int2_encode_blocks,
                      [PL_CODEC_INT8] = int8_encode_blocks,
                      [PL_CODEC_E3M0] = e3m0_encode_blocks},
    .decode_blocks = {[PL_CODEC_INT4] = int4_decode_blocks,
                      [PL_CODEC_INT2] = int2_decode_blocks,
                      [PL_CODEC_INT8] = int8_decode_blocks,
                      [PL_CODEC_E3M0] = e3m0_decode_blocks},
    .topk_select = topk_select,
    .any_nibble_8 = any_nibble_8,
    .add = add,
};

const struct pl_codec_kernels *pl_codec_kernels(void)
{
#ifdef __x86_64__
    if (pl_cpu_level() >= PL_CPU_AVX512)
        return &pl_codec_avx512;
    if (pl_cpu_level() >= PL_CPU_AVX2)
        return &pl_codec_avx2;
#endif
    return &pl_codec_portable;
}
