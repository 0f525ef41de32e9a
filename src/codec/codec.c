/* codec/codec.c - see codec.h: names, sizes, checks, and the cut into whole blocks and the last one. */
#include "codec/codec.h"

#include "base/check.h"
#include "base/limits.h"
#include "codec/kernels.h"
#include "codec/scale.h"

enum { FLOAT_BYTES = 4, BF16_BYTES = 2, PIECE_BLOCKS = 16 };

static const bool little_endian = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__;

#define INFINITY_BITS 0x7f800000u
#define BF16_TOP_BITS 0x7f7f8000u /* the smallest that rounds to an infinity */

static const char *const names[] = {
    [PL_CODEC_FP32] = "fp32",
    [PL_CODEC_BF16] = "bf16",
    [PL_CODEC_INT4] = "int4",
    [PL_CODEC_INT2] = "int2",
};

const char *pl_codec_name(uint32_t codec)
{
    return codec < sizeof names / sizeof names[0] ? names[codec] : NULL;
}

bool pl_codec_of_name(const char *name, enum pl_codec *codec)
{
    for (uint32_t i = PL_CODEC_FP32; i <= PL_CODEC_INT2; i++)
        if (strcmp(name, names[i]) == 0) {
            *codec = (enum pl_codec)i;
            return true;
        }
    return false;
}

static size_t codes_bytes(enum pl_codec codec, size_t values)
{
    return codec == PL_CODEC_INT4 ? (values + 1) / 2 : (values + 3) / 4;
}

size_t pl_codec_bytes(enum pl_codec codec, size_t n)
{
    pl_assert(pl_codec_name((uint32_t)codec) != NULL && n <= PL_PARAMS_MAX);
    if (codec == PL_CODEC_FP32)
        return n * FLOAT_BYTES;
    if (codec == PL_CODEC_BF16)
        return n * BF16_BYTES;
    size_t scales = (n + PL_CODEC_BLOCK - 1) / PL_CODEC_BLOCK;
    return scales * PL_CODEC_SCALE_BYTES + codes_bytes(codec, n);
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
        out[i] = pl_float_of_bits((uint32_t)pl_get_le(bytes + FLOAT_BYTES * i, FLOAT_BYTES));
}

void pl_codec_encode_by(const struct pl_codec_kernels *k, enum pl_codec codec, const float *x, size_t n,
                        uint8_t *out, float *rest)
{
    if (n == 0)
        return;
    if (codec == PL_CODEC_FP32) {
        fp32_encode(x, n, out, rest);
        return;
    }
    if (codec == PL_CODEC_BF16) {
        k->bf16_encode(x, n, out, rest);
        return;
    }
    bool int4 = codec == PL_CODEC_INT4;
    size_t blocks = n / PL_CODEC_BLOCK, whole = blocks * PL_CODEC_BLOCK;
    (int4 ? k->int4_encode_blocks : k->int2_encode_blocks)(x, blocks, out, rest);
    if (whole < n)
        (int4 ? pl_int4_block_encode : pl_int2_block_encode)(
            x + whole, n - whole, out + pl_codec_bytes(codec, whole), rest != NULL ? rest + whole : NULL);
}

void pl_codec_decode_by(const struct pl_codec_kernels *k, enum pl_codec codec, const uint8_t *bytes, size_t n,
                        float *out)
{
    if (n == 0)
        return;
    if (codec == PL_CODEC_FP32) {
        fp32_decode(bytes, n, out);
        return;
    }
    if (codec == PL_CODEC_BF16) {
        k->bf16_decode(bytes, n, out);
        return;
    }
    bool int4 = codec == PL_CODEC_INT4;
    size_t blocks = n / PL_CODEC_BLOCK, whole = blocks * PL_CODEC_BLOCK;
    (int4 ? k->int4_decode_blocks : k->int2_decode_blocks)(bytes, blocks, out);
    if (whole < n)
        (int4 ? pl_int4_block_decode : pl_int2_block_decode)(bytes + pl_codec_bytes(codec, whole), n - whole,
                                                             out + whole);
}

static bool encodable(const struct pl_codec_kernels *k, enum pl_codec codec, const float *x, size_t n)
{
    return k->top(x, n) < (codec == PL_CODEC_BF16 ? BF16_TOP_BITS : INFINITY_BITS);
}

/* Piece by piece, so that the look for infinities and the encoding find the values in the cache. */
bool pl_codec_encode(enum pl_codec codec, const float *values, size_t n, uint8_t *out)
{
    const struct pl_codec_kernels *k = pl_codec_kernels();
    const size_t piece = (size_t)PIECE_BLOCKS * PL_CODEC_BLOCK;
    for (size_t at = 0; at < n; at += piece) {
        size_t len = n - at < piece ? n - at : piece;
        if (!encodable(k, codec, values + at, len))
            return false;
        pl_codec_encode_by(k, codec, values + at, len, out + pl_codec_bytes(codec, at), NULL);
    }
    return true;
}

bool pl_codec_encode_feedback(enum pl_codec codec, float *values, size_t n, uint8_t *out)
{
    const struct pl_codec_kernels *k = pl_codec_kernels();
    if (!encodable(k, codec, values, n))
        return false;
    pl_codec_encode_by(k, codec, values, n, out, values);
    return true;
}

void pl_codec_decode(enum pl_codec codec, const uint8_t *bytes, size_t n, float *out)
{
    pl_codec_decode_by(pl_codec_kernels(), codec, bytes, n, out);
}

void pl_codec_decode_add(enum pl_codec codec, const uint8_t *bytes, size_t n, float *out)
{
    const struct pl_codec_kernels *k = pl_codec_kernels();
    float piece[PIECE_BLOCKS * PL_CODEC_BLOCK];
    const size_t most = sizeof piece / sizeof piece[0];
    for (size_t at = 0; at < n; at += most) {
        size_t len = n - at < most ? n - at : most;
        pl_codec_decode_by(k, codec, bytes + pl_codec_bytes(codec, at), len, piece);
        k->add(piece, len, out + at);
    }
}
