/* codec/portable.c - the codecs' loops for any machine, and the choice between the variants. */
#include "base/cpu.h"
#include "codec/kernels.h"
#include "codec/scale.h"

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

static void int4_encode_blocks(const float *x, size_t blocks, uint8_t *out, float *rest)
{
    for (size_t b = 0; b < blocks; b++)
        pl_int4_block_encode(x + b * PL_CODEC_BLOCK, PL_CODEC_BLOCK, out + b * PL_INT4_BLOCK_BYTES,
                             rest != NULL ? rest + b * PL_CODEC_BLOCK : NULL);
}

static void int2_encode_blocks(const float *x, size_t blocks, uint8_t *out, float *rest)
{
    for (size_t b = 0; b < blocks; b++)
        pl_int2_block_encode(x + b * PL_CODEC_BLOCK, PL_CODEC_BLOCK, out + b * PL_INT2_BLOCK_BYTES,
                             rest != NULL ? rest + b * PL_CODEC_BLOCK : NULL);
}

static void int4_decode_blocks(const uint8_t *bytes, size_t blocks, float *out)
{
    for (size_t b = 0; b < blocks; b++)
        pl_int4_block_decode(bytes + b * PL_INT4_BLOCK_BYTES, PL_CODEC_BLOCK, out + b * PL_CODEC_BLOCK);
}

static void int2_decode_blocks(const uint8_t *bytes, size_t blocks, float *out)
{
    for (size_t b = 0; b < blocks; b++)
        pl_int2_block_decode(bytes + b * PL_INT2_BLOCK_BYTES, PL_CODEC_BLOCK, out + b * PL_CODEC_BLOCK);
}

static void add(const float *x, size_t n, float *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] += x[i];
}

const struct pl_codec_kernels pl_codec_portable = {
    top,         bf16_encode,        int4_encode_blocks, int2_encode_blocks,
    bf16_decode, int4_decode_blocks, int2_decode_blocks, add,
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
