/* codec/codec.c - see codec.h: names, sizes, and the cut into whole blocks or chunks and the last one. */
#include "codec/codec.h"

#include "base/check.h"
#include "base/limits.h"
#include "codec/kernels.h"
#include "codec/scale.h"
#include "codec/topk.h"

enum { FLOAT_BYTES = 4, BF16_BYTES = 2 };

static const bool little_endian = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__;

#define INFINITY_BITS 0x7f800000u
#define BF16_TOP_BITS 0x7f7f8000u /* the smallest that rounds to an infinity */

static const char *const names[] = {
    [PL_CODEC_FP32] = "fp32",     [PL_CODEC_BF16] = "bf16",     [PL_CODEC_INT4] = "int4",
    [PL_CODEC_INT2] = "int2",     [PL_CODEC_INT8] = "int8",     [PL_CODEC_E3M0] = "e3m0",
    [PL_CODEC_TOPK32] = "topk32", [PL_CODEC_TOPK64] = "topk64", [PL_CODEC_TOPK128] = "topk128",
};

const char *pl_codec_name(uint32_t codec)
{
    return codec < sizeof names / sizeof names[0] ? names[codec] : NULL;
}

bool pl_codec_of_name(const char *name, enum pl_codec *codec)
{
    for (uint32_t i = PL_CODEC_FP32; i <= PL_CODEC_LAST; i++)
        if (strcmp(name, names[i]) == 0) {
            *codec = (enum pl_codec)i;
            return true;
        }
    return false;
}

static size_t blocks_bytes(uint32_t codec, size_t n)
{
    static const uint8_t bits[] = {
        [PL_CODEC_INT4] = 4, [PL_CODEC_INT2] = 2, [PL_CODEC_INT8] = 8, [PL_CODEC_E3M0] = 4};
    size_t scales = (n + PL_CODEC_BLOCK - 1) / PL_CODEC_BLOCK;
    return scales * PL_CODEC_SCALE_BYTES + (n * bits[codec] + 7) / 8;
}

static size_t chunks_bytes(uint32_t codec, size_t n)
{
    size_t whole = n / PL_CODEC_CHUNK, left = n % PL_CODEC_CHUNK;
    return whole * pl_topk_bytes(codec, PL_CODEC_CHUNK) + (left > 0 ? pl_topk_bytes(codec, left) : 0);
}

size_t pl_codec_bytes(enum pl_codec codec, size_t n)
{
    pl_assert(pl_codec_name((uint32_t)codec) != NULL && n <= PL_PARAMS_MAX);
    if (codec == PL_CODEC_FP32)
        return n * FLOAT_BYTES;
    if (codec == PL_CODEC_BF16)
        return n * BF16_BYTES;
    return (pl_codec_is_topk((uint32_t)codec) ? chunks_bytes : blocks_bytes)((uint32_t)codec, n);
}

/* Memory is as sent on little-endian machines; elsewhere every value is swapped. */
static void fp32_encode(const float *x, size_t n, uint8_t *out, float *rest)
{
    if (little_endian)
        memcpy(out, x, n * sizeof *x);
    for (size_t i = 0; !little_endian && i < n; i++)
        pl_put_le(out + FLOAT_BYTES * i, pl_float_bits(x[i]), FLOAT_BYTES);
    if (rest != NULL)
        memset(rest, 0, n * sizeof *rest);
}

static void fp32_decode(const uint8_t *bytes, size_t n, float *out)
{
    if (little_endian)
        memcpy(out, bytes, n * sizeof *out);
    for (size_t i = 0; !little_endian && i < n; i++)
        out[i] = pl_bits_float((uint32_t)pl_get_le(bytes + FLOAT_BYTES * i, FLOAT_BYTES));
}

static void blocks_encode(const struct pl_codec_kernels *k, enum pl_codec codec, const float *x, size_t n,
                          uint8_t *out, float *rest)
{
    size_t blocks = n / PL_CODEC_BLOCK, whole = blocks * PL_CODEC_BLOCK;
    k->encode_blocks[codec](x, blocks, out, rest);
    if (whole < n)
        pl_block_encode((uint32_t)codec, x + whole, n - whole, out + pl_codec_bytes(codec, whole),
                        rest != NULL ? rest + whole : NULL);
}

static void blocks_decode(const struct pl_codec_kernels *k, enum pl_codec codec, const uint8_t *bytes,
                          size_t n, float *out)
{
    size_t blocks = n / PL_CODEC_BLOCK, whole = blocks * PL_CODEC_BLOCK;
    k->decode_blocks[codec](bytes, blocks, out);
    if (whole < n)
        pl_block_decode((uint32_t)codec, bytes + pl_codec_bytes(codec, whole), n - whole, out + whole);
}

static size_t chunk_len(size_t n, size_t at)
{
    return n - at < PL_CODEC_CHUNK ? n - at : PL_CODEC_CHUNK;
}

static void chunks_encode(const struct pl_codec_kernels *k, enum pl_codec codec, const float *x, size_t n,
                          uint8_t *out, float *rest)
{
    const size_t stride = pl_codec_bytes(codec, PL_CODEC_CHUNK);
    for (size_t at = 0; at < n; at += PL_CODEC_CHUNK, out += stride)
        pl_topk_encode(k, (uint32_t)codec, x + at, chunk_len(n, at), out, rest != NULL ? rest + at : NULL);
}

/* A chunk's values are added where they belong. */
static void chunks_add(enum pl_codec codec, const uint8_t *bytes, size_t n, float *out)
{
    const size_t stride = pl_codec_bytes(codec, PL_CODEC_CHUNK);
    struct pl_topk_values v;
    for (size_t at = 0; at < n; at += PL_CODEC_CHUNK, bytes += stride) {
        pl_topk_read((uint32_t)codec, bytes, chunk_len(n, at), &v);
        for (uint32_t j = 0; j < v.count; j++)
            out[at + v.index[j]] += v.value[j];
    }
}

static void chunks_decode(enum pl_codec codec, const uint8_t *bytes, size_t n, float *out)
{
    const size_t stride = pl_codec_bytes(codec, PL_CODEC_CHUNK);
    for (size_t at = 0; at < n; at += PL_CODEC_CHUNK, bytes += stride) {
        memset(out + at, 0, chunk_len(n, at) * sizeof *out);
        chunks_add(codec, bytes, chunk_len(n, at), out + at);
    }
}

void pl_codec_encode_by(const struct pl_codec_kernels *k, enum pl_codec codec, const float *x, size_t n,
                        uint8_t *out, float *rest)
{
    if (n == 0)
        return;
    if (codec == PL_CODEC_FP32)
        fp32_encode(x, n, out, rest);
    else if (codec == PL_CODEC_BF16)
        k->bf16_encode(x, n, out, rest);
    else
        (pl_codec_has_blocks((uint32_t)codec) ? blocks_encode : chunks_encode)(k, codec, x, n, out, rest);
}

void pl_codec_decode_by(const struct pl_codec_kernels *k, enum pl_codec codec, const uint8_t *bytes, size_t n,
                        float *out)
{
    if (n == 0)
        return;
    if (codec == PL_CODEC_FP32)
        fp32_decode(bytes, n, out);
    else if (codec == PL_CODEC_BF16)
        k->bf16_decode(bytes, n, out);
    else if (pl_codec_has_blocks((uint32_t)codec))
        blocks_decode(k, codec, bytes, n, out);
    else
        chunks_decode(codec, bytes, n, out);
}

bool pl_codec_takes(enum pl_codec codec, const float *values, size_t n)
{
    return pl_codec_kernels()->top(values, n) < (codec == PL_CODEC_BF16 ? BF16_TOP_BITS : INFINITY_BITS);
}

/* Piece by piece, so that the look for infinities and the encoding find the values in the cache. */
bool pl_codec_encode(enum pl_codec codec, const float *values, size_t n, uint8_t *out)
{
    const struct pl_codec_kernels *k = pl_codec_kernels();
    for (size_t at = 0; at < n; at += PL_CODEC_CHUNK) {
        size_t len = chunk_len(n, at);
        if (!pl_codec_takes(codec, values + at, len))
            return false;
        pl_codec_encode_by(k, codec, values + at, len, out + pl_codec_bytes(codec, at), NULL);
    }
    return true;
}

bool pl_codec_encode_feedback(enum pl_codec codec, float *values, size_t n, uint8_t *out)
{
    if (!pl_codec_takes(codec, values, n))
        return false;
    pl_codec_encode_by(pl_codec_kernels(), codec, values, n, out, values);
    return true;
}

void pl_codec_decode(enum pl_codec codec, const uint8_t *bytes, size_t n, float *out)
{
    pl_codec_decode_by(pl_codec_kernels(), codec, bytes, n, out);
}

void pl_codec_decode_add(enum pl_codec codec, const uint8_t *bytes, size_t n, float *out)
{
    const struct pl_codec_kernels *k = pl_codec_kernels();
    float piece[PL_CODEC_CHUNK];
    if (pl_codec_is_topk((uint32_t)codec)) {
        chunks_add(codec, bytes, n, out);
        return;
    }
    for (size_t at = 0; at < n; at += PL_CODEC_CHUNK) {
        size_t len = chunk_len(n, at);
        pl_codec_decode_by(k, codec, bytes + pl_codec_bytes(codec, at), len, piece);
        k->add(piece, len, out + at);
    }
}
