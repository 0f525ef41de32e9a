/* codec/codec_avx512.c - the codecs' loops with vectors of 64 bytes. A block of 256 values fits into 16 registers: it is
 * read once, for its scale and for its codes. */
#include <immintrin.h>

#include "codec/scale.h"

#define WIDTH ((size_t)16)
#define VECTORS (PL_CODEC_BLOCK / WIDTH)

static __mmask16 first(size_t n)
{
    return (__mmask16)((1u << n) - 1);
}

static __m512i magnitude(__m512 x)
{
    return _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fffffff));
}

static uint32_t top(const float *x, size_t n)
{
    __m512i a = _mm512_setzero_si512(), b = a;
    size_t i = 0;
    for (; i + 2 * WIDTH <= n; i += 2 * WIDTH) {
        a = _mm512_max_epu32(a, magnitude(_mm512_loadu_ps(x + i)));
        b = _mm512_max_epu32(b, magnitude(_mm512_loadu_ps(x + i + WIDTH)));
    }
    for (; i < n; i += WIDTH) {
        __mmask16 left = first(n - i < WIDTH ? n - i : WIDTH);
        a = _mm512_max_epu32(a, magnitude(_mm512_maskz_loadu_ps(left, x + i)));
    }
    return _mm512_reduce_max_epu32(_mm512_max_epu32(a, b));
}

static void bf16_encode(const float *x, size_t n, uint8_t *out, float *rest)
{
    const __m512i half = _mm512_set1_epi32(0x7fff), one = _mm512_set1_epi32(1);
    size_t i = 0;
    for (; i + WIDTH <= n; i += WIDTH) {
        __m512 value = _mm512_loadu_ps(x + i);
        __m512i bits = _mm512_castps_si512(value);
        __m512i even = _mm512_and_si512(_mm512_srli_epi32(bits, 16), one);
        __m512i h = _mm512_srli_epi32(_mm512_add_epi32(_mm512_add_epi32(bits, half), even), 16);
        _mm256_storeu_si256((__m256i *)(out + 2 * i), _mm512_cvtepi32_epi16(h));
        if (rest != NULL)
            _mm512_storeu_ps(rest + i, value - _mm512_castsi512_ps(_mm512_slli_epi32(h, 16)));
    }
    pl_codec_portable.bf16_encode(x + i, n - i, out + 2 * i, rest != NULL ? rest + i : NULL);
}

static void bf16_decode(const uint8_t *bytes, size_t n, float *out)
{
    size_t i = 0;
    for (; i + WIDTH <= n; i += WIDTH) {
        __m512i h = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(bytes + 2 * i)));
        _mm512_storeu_ps(out + i, _mm512_castsi512_ps(_mm512_slli_epi32(h, 16)));
    }
    pl_codec_portable.bf16_decode(bytes + 2 * i, n - i, out + i);
}

/* The low halves of 16 integers as 8 bytes, two in one. */
static __m128i pack_nibbles(__m512i q)
{
    __m512i low = _mm512_and_si512(q, _mm512_set1_epi32(15));
    return _mm512_cvtepi64_epi8(_mm512_or_si512(low, _mm512_srli_epi64(low, 28)));
}

static inline __attribute__((always_inline)) void int4_encode_block(const float *x, uint8_t *out, float *rest)
{
    __m512 v[VECTORS];
    __m512i most = _mm512_setzero_si512();
    for (size_t i = 0; i < VECTORS; i++) {
        v[i] = _mm512_loadu_ps(x + i * WIDTH);
        most = _mm512_max_epu32(most, magnitude(v[i]));
    }
    pl_bf16 h = pl_int4_scale(_mm512_reduce_max_epu32(most));
    float scale = pl_bf16_to_float(h);
    __m512 inverse = _mm512_set1_ps(pl_scale_inverse(scale));
    pl_put_le(out, h, PL_CODEC_SCALE_BYTES);
    out += PL_CODEC_SCALE_BYTES;
    for (size_t i = 0; i < VECTORS; i++) {
        __m512i q = _mm512_cvtps_epi32(v[i] * inverse);
        _mm_storel_epi64((__m128i *)(out + i * WIDTH / 2), pack_nibbles(q));
        if (rest != NULL)
            _mm512_storeu_ps(rest + i * WIDTH, v[i] - _mm512_cvtepi32_ps(q) * _mm512_set1_ps(scale));
    }
}

static void int4_encode_blocks(const float *x, size_t blocks, uint8_t *out, float *rest)
{
    if (rest != NULL)
        for (size_t b = 0; b < blocks; b++)
            int4_encode_block(x + b * PL_CODEC_BLOCK, out + b * PL_INT4_BLOCK_BYTES,
                              rest + b * PL_CODEC_BLOCK);
    else
        for (size_t b = 0; b < blocks; b++)
            int4_encode_block(x + b * PL_CODEC_BLOCK, out + b * PL_INT4_BLOCK_BYTES, NULL);
}

/* A value is looked up among the sixteen that its half byte can mean. */
static void int4_decode_blocks(const uint8_t *bytes, size_t blocks, float *out)
{
    const __m512 steps = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1);
    for (size_t b = 0; b < blocks; b++, bytes += PL_INT4_BLOCK_BYTES, out += PL_CODEC_BLOCK) {
        __m512 values = steps * _mm512_set1_ps(pl_scale_get(bytes));
        const uint8_t *codes = bytes + PL_CODEC_SCALE_BYTES;
        for (size_t i = 0; i < VECTORS; i++) {
            __m512i pair = _mm512_cvtepu8_epi64(_mm_loadl_epi64((const __m128i *)(codes + i * WIDTH / 2)));
            __m512i code = _mm512_or_si512(pair, _mm512_slli_epi64(pair, 28)); /* only 4 bits are looked at */
            _mm512_storeu_ps(out + i * WIDTH, _mm512_permutexvar_ps(code, values));
        }
    }
}

static float sum_lanes(__m512 x)
{
    __m256 a = _mm512_castps512_ps256(x) + _mm512_extractf32x8_ps(x, 1);
    __m128 b = _mm256_castps256_ps128(a) + _mm256_extractf128_ps(a, 1);
    b += _mm_movehl_ps(b, b);
    return b[0] + b[1];
}

/* Two bits each of 16 integers as 4 bytes. */
static uint32_t pack_pairs(__m512i code)
{
    __m512i two = _mm512_or_si512(code, _mm512_srli_epi64(code, 30)); /* 4 bits in each half of 16 bytes */
    __m512i four = _mm512_or_si512(two, _mm512_bsrli_epi128(_mm512_slli_epi64(two, 4), 8));
    const __m512i low = _mm512_setr_epi64(0, 2, 4, 6, 0, 2, 4, 6);
    __m128i bytes = _mm512_cvtepi64_epi8(_mm512_permutexvar_epi64(low, four));
    return (uint32_t)_mm_cvtsi128_si32(bytes);
}

static inline __attribute__((always_inline)) void int2_encode_block(const float *x, uint8_t *out, float *rest)
{
    __m512 v[VECTORS], sum = _mm512_setzero_ps();
    for (size_t i = 0; i < VECTORS; i++) {
        v[i] = _mm512_loadu_ps(x + i * WIDTH);
        sum += _mm512_castsi512_ps(magnitude(v[i])) * _mm512_set1_ps(1.0f / 256.0f);
    }
    pl_bf16 h = pl_int2_scale(sum_lanes(sum), PL_CODEC_BLOCK);
    const __m512i limit = _mm512_set1_epi32((int)((uint32_t)h << 16));
    const __m512i keep = _mm512_set1_epi32(h == 0 ? 0 : -1); /* without a scale all bits are zero */
    const __m512 levels = _mm512_setr_ps(0.5f, -0.5f, 1.5f, -1.5f, 0.5f, -0.5f, 1.5f, -1.5f, 0.5f, -0.5f,
                                         1.5f, -1.5f, 0.5f, -0.5f, 1.5f, -1.5f);
    const __m512 values = levels * _mm512_set1_ps(pl_bf16_to_float(h));
    pl_put_le(out, h, PL_CODEC_SCALE_BYTES);
    out += PL_CODEC_SCALE_BYTES;
    for (size_t i = 0; i < VECTORS; i++) {
        __m512i code = _mm512_srli_epi32(_mm512_castps_si512(v[i]), 31);
        __mmask16 large = _mm512_cmpge_epu32_mask(magnitude(v[i]), limit);
        code = _mm512_mask_or_epi32(code, large, code, _mm512_set1_epi32(2));
        code = _mm512_and_si512(code, keep);
        pl_put_le(out + i * WIDTH / 4, pack_pairs(code), 4);
        if (rest != NULL)
            _mm512_storeu_ps(rest + i * WIDTH, v[i] - _mm512_permutexvar_ps(code, values));
    }
}

static void int2_encode_blocks(const float *x, size_t blocks, uint8_t *out, float *rest)
{
    if (rest != NULL)
        for (size_t b = 0; b < blocks; b++)
            int2_encode_block(x + b * PL_CODEC_BLOCK, out + b * PL_INT2_BLOCK_BYTES,
                              rest + b * PL_CODEC_BLOCK);
    else
        for (size_t b = 0; b < blocks; b++)
            int2_encode_block(x + b * PL_CODEC_BLOCK, out + b * PL_INT2_BLOCK_BYTES, NULL);
}

static void int2_decode_blocks(const uint8_t *bytes, size_t blocks, float *out)
{
    const __m512 levels = _mm512_setr_ps(0.5f, -0.5f, 1.5f, -1.5f, 0.5f, -0.5f, 1.5f, -1.5f, 0.5f, -0.5f,
                                         1.5f, -1.5f, 0.5f, -0.5f, 1.5f, -1.5f);
    const __m512i shifts = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    for (size_t b = 0; b < blocks; b++, bytes += PL_INT2_BLOCK_BYTES, out += PL_CODEC_BLOCK) {
        __m512 values = levels * _mm512_set1_ps(pl_scale_get(bytes)); /* four times the four there are */
        const uint8_t *codes = bytes + PL_CODEC_SCALE_BYTES;
        for (size_t i = 0; i < VECTORS; i++) {
            __m512i all = _mm512_set1_epi32((int)pl_get_le(codes + i * WIDTH / 4, 4));
            _mm512_storeu_ps(out + i * WIDTH, _mm512_permutexvar_ps(_mm512_srlv_epi32(all, shifts), values));
        }
    }
}

static void add(const float *x, size_t n, float *out)
{
    size_t i = 0;
    for (; i + WIDTH <= n; i += WIDTH)
        _mm512_storeu_ps(out + i, _mm512_loadu_ps(out + i) + _mm512_loadu_ps(x + i));
    pl_codec_portable.add(x + i, n - i, out + i);
}

const struct pl_codec_kernels pl_codec_avx512 = {
    top,         bf16_encode,        int4_encode_blocks, int2_encode_blocks,
    bf16_decode, int4_decode_blocks, int2_decode_blocks, add,
};
