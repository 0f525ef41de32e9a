/* codec/codec_avx512.c - the codecs' loops with vectors of 64 bytes. A block of 256 values fits into 16 registers: it is
 * read once, for its scale and for its codes. */
#include <immintrin.h>

#include "codec/scale.h"
#include "codec/topk.h"

#define WIDTH ((size_t)16)
#define VECTORS (PL_CODEC_BLOCK / WIDTH)
#define INLINE static inline __attribute__((always_inline))

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

/* Over blocks, once with and once without what is lost. */
#define ENCODE_BLOCKS(name, bytes_of_one)                                                                    \
    static void name##_encode_blocks(const float *x, size_t blocks, uint8_t *out, float *rest)               \
    {                                                                                                        \
        if (rest != NULL)                                                                                    \
            for (size_t b = 0; b < blocks; b++)                                                              \
                name##_encode_block(x + b * PL_CODEC_BLOCK, out + b * (bytes_of_one),                        \
                                    rest + b * PL_CODEC_BLOCK);                                              \
        else                                                                                                 \
            for (size_t b = 0; b < blocks; b++)                                                              \
                name##_encode_block(x + b * PL_CODEC_BLOCK, out + b * (bytes_of_one), NULL);                 \
    }

/* A block in registers, and the largest magnitude of it. */
INLINE uint32_t load_block(const float *x, __m512 v[static VECTORS])
{
    __m512i most = _mm512_setzero_si512();
    for (size_t i = 0; i < VECTORS; i++) {
        v[i] = _mm512_loadu_ps(x + i * WIDTH);
        most = _mm512_max_epu32(most, magnitude(v[i]));
    }
    return _mm512_reduce_max_epu32(most);
}

INLINE void int8_encode_block(const float *x, uint8_t *out, float *rest)
{
    __m512 v[VECTORS];
    pl_bf16 h = pl_int8_scale(load_block(x, v));
    float scale = pl_bf16_to_float(h);
    __m512 inverse = _mm512_set1_ps(pl_scale_inverse(scale));
    pl_put_le(out, h, PL_CODEC_SCALE_BYTES);
    out += PL_CODEC_SCALE_BYTES;
    for (size_t i = 0; i < VECTORS; i++) {
        __m512i q = _mm512_cvtps_epi32(v[i] * inverse);
        _mm_storeu_si128((__m128i *)(out + i * WIDTH), _mm512_cvtepi32_epi8(q));
        if (rest != NULL)
            _mm512_storeu_ps(rest + i * WIDTH, v[i] - _mm512_cvtepi32_ps(q) * _mm512_set1_ps(scale));
    }
}

ENCODE_BLOCKS(int8, PL_INT8_BLOCK_BYTES)

static void int8_decode_blocks(const uint8_t *bytes, size_t blocks, float *out)
{
    for (size_t b = 0; b < blocks; b++, bytes += PL_INT8_BLOCK_BYTES, out += PL_CODEC_BLOCK) {
        const __m512 scale = _mm512_set1_ps(pl_scale_get(bytes));
        const uint8_t *codes = bytes + PL_CODEC_SCALE_BYTES;
        for (size_t i = 0; i < VECTORS; i++) {
            __m512i q = _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(codes + i * WIDTH)));
            _mm512_storeu_ps(out + i * WIDTH, _mm512_cvtepi32_ps(q) * scale);
        }
    }
}

/* The low halves of 16 integers as 8 bytes, two in one. */
static __m128i pack_nibbles(__m512i q)
{
    __m512i low = _mm512_and_si512(q, _mm512_set1_epi32(15));
    return _mm512_cvtepi64_epi8(_mm512_or_si512(low, _mm512_srli_epi64(low, 28)));
}

INLINE void int4_encode_block(const float *x, uint8_t *out, float *rest)
{
    __m512 v[VECTORS];
    pl_bf16 h = pl_int4_scale(load_block(x, v));
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

ENCODE_BLOCKS(int4, PL_INT4_BLOCK_BYTES)

/* What the half bytes of e3m0 mean, in scales. */
INLINE __m512 e3m0_steps(void)
{
    return _mm512_setr_ps(0, 0x1p-6f, 0x1p-5f, 0x1p-4f, 0x1p-3f, 0x1p-2f, 0x1p-1f, 1, 0, -0x1p-6f, -0x1p-5f,
                          -0x1p-4f, -0x1p-3f, -0x1p-2f, -0x1p-1f, -1);
}

INLINE void e3m0_encode_block(const float *x, uint8_t *out, float *rest)
{
    const __m512i bias = _mm512_set1_epi32(PL_E3M0_BIAS), half = _mm512_set1_epi32(PL_E3M0_HALF);
    const __m512i least = _mm512_set1_epi32(PL_E3M0_LEAST_BITS), one = _mm512_set1_epi32(1);
    __m512 v[VECTORS];
    pl_bf16 h = pl_e3m0_scale(load_block(x, v));
    float scale = pl_bf16_to_float(h);
    __m512 inverse = _mm512_set1_ps(pl_scale_inverse(scale));
    __m512 values = e3m0_steps() * _mm512_set1_ps(scale);
    pl_put_le(out, h, PL_CODEC_SCALE_BYTES);
    out += PL_CODEC_SCALE_BYTES;
    for (size_t i = 0; i < VECTORS; i++) {
        __m512i y = _mm512_castps_si512(_mm512_castsi512_ps(magnitude(v[i])) * inverse);
        __m512i level = _mm512_sub_epi32(_mm512_srli_epi32(_mm512_add_epi32(y, half), 23), bias);
        __m512i sign = _mm512_slli_epi32(_mm512_srli_epi32(_mm512_castps_si512(v[i]), 31), 3);
        __mmask16 there = _mm512_cmpge_epu32_mask(y, least);
        __m512i code = _mm512_maskz_or_epi32(there, _mm512_max_epi32(level, one), sign);
        _mm_storel_epi64((__m128i *)(out + i * WIDTH / 2), pack_nibbles(code));
        if (rest != NULL)
            _mm512_storeu_ps(rest + i * WIDTH, v[i] - _mm512_permutexvar_ps(code, values));
    }
}

ENCODE_BLOCKS(e3m0, PL_E3M0_BLOCK_BYTES)

/* A value is looked up among the sixteen that its half byte can mean. */
INLINE void decode_nibbles(const uint8_t *bytes, size_t blocks, __m512 steps, float *out)
{
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

static void int4_decode_blocks(const uint8_t *bytes, size_t blocks, float *out)
{
    const __m512 steps = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1);
    decode_nibbles(bytes, blocks, steps, out);
}

static void e3m0_decode_blocks(const uint8_t *bytes, size_t blocks, float *out)
{
    decode_nibbles(bytes, blocks, e3m0_steps(), out);
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

INLINE void int2_encode_block(const float *x, uint8_t *out, float *rest)
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

ENCODE_BLOCKS(int2, PL_INT2_BLOCK_BYTES)

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

/* How many of n numbers below 2^31 are at least as large; n is a multiple of 16. */
INLINE uint32_t count_from(const uint32_t *x, size_t n, uint32_t limit)
{
    const __m512i least = _mm512_set1_epi32((int)limit);
    uint32_t count = 0;
    for (size_t i = 0; i < n; i += WIDTH)
        count += (uint32_t)__builtin_popcount(_mm512_cmpge_epi32_mask(_mm512_loadu_si512(x + i), least));
    return count;
}

/* The k-th largest of them, as far as its bits from `last` on go: k at least are as large. Bit by bit from the top. */
INLINE uint32_t kth_largest(const uint32_t *x, size_t n, uint32_t k, int last)
{
    uint32_t limit = 0;
    for (int bit = 30; bit >= last; bit--)
        if (count_from(x, n, limit | 1u << bit) >= k)
            limit |= 1u << bit;
    return limit;
}

/* Of every 256th value the largest is known, from all over the chunk, because neighbours are of like size. The k-th of these 256 is not above the k-th of all, and hardly below it:
 * what is as large is set aside, and of that the k largest are found. */
static void topk_select(const float *x, uint32_t k, uint16_t *index)
{
    uint32_t most[PL_CODEC_BLOCK], near[PL_CODEC_CHUNK + WIDTH], places[PL_CODEC_CHUNK + WIDTH], found = 0;
    for (size_t g = 0; g < PL_CODEC_BLOCK; g += WIDTH) {
        __m512i m = _mm512_setzero_si512();
        for (size_t i = 0; i < PL_CODEC_CHUNK; i += PL_CODEC_BLOCK)
            m = _mm512_max_epu32(m, magnitude(_mm512_loadu_ps(x + g + i)));
        _mm512_storeu_si512(most + g, m);
    }
    const __m512i least = _mm512_set1_epi32((int)kth_largest(most, PL_CODEC_BLOCK, k, 16));
    __m512i at = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    for (size_t i = 0; i < PL_CODEC_CHUNK; i += WIDTH) {
        __m512i m = magnitude(_mm512_loadu_ps(x + i));
        __mmask16 large = _mm512_cmpge_epi32_mask(m, least);
        _mm512_storeu_si512(places + found, _mm512_maskz_compress_epi32(large, at));
        found += (uint32_t)__builtin_popcount(large);
        at = _mm512_add_epi32(at, _mm512_set1_epi32(WIDTH));
    }
    _mm512_storeu_si512(near + found, _mm512_setzero_si512());
    for (uint32_t j = 0; j < found; j++)
        near[j] = pl_float_bits(x[places[j]]) & 0x7fffffffu;
    const uint32_t limit = kth_largest(near, (found + WIDTH - 1) / WIDTH * WIDTH, k, 0);
    pl_topk_take(near, places, found, limit, k, index);
}

/* With the 8 of each half turned into 0, a byte with such a half has none of its bits. */
static bool any_nibble_8(const uint8_t *codes, size_t n)
{
    const __m512i low = _mm512_set1_epi8(15), high = _mm512_slli_epi16(low, 4),
                  eights = _mm512_set1_epi8((char)0x88);
    __mmask64 found = 0;
    size_t i = 0;
    for (; i + 64 <= n; i += 64) {
        __m512i t = _mm512_xor_si512(_mm512_loadu_si512(codes + i), eights);
        found |= _mm512_testn_epi8_mask(t, low) | _mm512_testn_epi8_mask(t, high);
    }
    return found != 0 || pl_codec_portable.any_nibble_8(codes + i, n - i);
}

static void add(const float *x, size_t n, float *out)
{
    size_t i = 0;
    for (; i + WIDTH <= n; i += WIDTH)
        _mm512_storeu_ps(out + i, _mm512_loadu_ps(out + i) + _mm512_loadu_ps(x + i));
    pl_codec_portable.add(x + i, n - i, out + i);
}

const struct pl_codec_kernels pl_codec_avx512 = {
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
