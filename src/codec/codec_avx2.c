/* codec/codec_avx2.c - the codecs' loops with vectors of 32 bytes. */
#include <immintrin.h>

#include "codec/scale.h"
#include "codec/topk.h"

#define WIDTH ((size_t)8)
#define VECTORS (PL_CODEC_BLOCK / WIDTH)
#define TURN (4 * WIDTH)
#define INLINE static inline __attribute__((always_inline))

static __m256i magnitude(__m256 x)
{
    return _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(0x7fffffff));
}

static uint32_t most_of(__m256i x)
{
    __m128i a = _mm_max_epu32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    a = _mm_max_epu32(a, _mm_shuffle_epi32(a, 0x4e));
    a = _mm_max_epu32(a, _mm_shuffle_epi32(a, 0xb1));
    return (uint32_t)_mm_cvtsi128_si32(a);
}

static uint32_t top(const float *x, size_t n)
{
    __m256i a = _mm256_setzero_si256(), b = a;
    size_t i = 0;
    for (; i + 2 * WIDTH <= n; i += 2 * WIDTH) {
        a = _mm256_max_epu32(a, magnitude(_mm256_loadu_ps(x + i)));
        b = _mm256_max_epu32(b, magnitude(_mm256_loadu_ps(x + i + WIDTH)));
    }
    uint32_t most = most_of(_mm256_max_epu32(a, b)), rest = pl_codec_portable.top(x + i, n - i);
    return most > rest ? most : rest;
}

/* 16 integers below 2^16 as 16 words. */
static __m256i pack_words(__m256i a, __m256i b)
{
    return _mm256_permute4x64_epi64(_mm256_packus_epi32(a, b), 0xd8);
}

static __m256i bf16_of(__m256i bits)
{
    __m256i even = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    return _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), even), 16);
}

static void bf16_encode(const float *x, size_t n, uint8_t *out, float *rest)
{
    size_t i = 0;
    for (; i + 2 * WIDTH <= n; i += 2 * WIDTH) {
        __m256 v0 = _mm256_loadu_ps(x + i), v1 = _mm256_loadu_ps(x + i + WIDTH);
        __m256i h0 = bf16_of(_mm256_castps_si256(v0)), h1 = bf16_of(_mm256_castps_si256(v1));
        _mm256_storeu_si256((__m256i *)(out + 2 * i), pack_words(h0, h1));
        if (rest != NULL) {
            _mm256_storeu_ps(rest + i, v0 - _mm256_castsi256_ps(_mm256_slli_epi32(h0, 16)));
            _mm256_storeu_ps(rest + i + WIDTH, v1 - _mm256_castsi256_ps(_mm256_slli_epi32(h1, 16)));
        }
    }
    pl_codec_portable.bf16_encode(x + i, n - i, out + 2 * i, rest != NULL ? rest + i : NULL);
}

static void bf16_decode(const uint8_t *bytes, size_t n, float *out)
{
    size_t i = 0;
    for (; i + WIDTH <= n; i += WIDTH) {
        __m256i h = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(bytes + 2 * i)));
        _mm256_storeu_ps(out + i, _mm256_castsi256_ps(_mm256_slli_epi32(h, 16)));
    }
    pl_codec_portable.bf16_decode(bytes + 2 * i, n - i, out + i);
}

/* 32 small integers as bytes, in order. */
static __m256i pack_bytes(const __m256i q[static 4])
{
    __m256i mixed = _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
    return _mm256_permutevar8x32_epi32(mixed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
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

static uint32_t block_top(const float *x)
{
    __m256i most = _mm256_setzero_si256();
    for (size_t i = 0; i < VECTORS; i++)
        most = _mm256_max_epu32(most, magnitude(_mm256_loadu_ps(x + i * WIDTH)));
    return most_of(most);
}

/* 32 numbers below 16 as 16 bytes, two in one. */
static __m128i pack_nibbles(__m256i bytes)
{
    __m256i pairs = _mm256_maddubs_epi16(bytes, _mm256_set1_epi16(0x1001)); /* low + 16 high */
    return _mm_packus_epi16(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1));
}

/* Four vectors in scales, as integers. */
INLINE void to_integers(const float *x, float scale, __m256i q[static 4], float *rest)
{
    const __m256 inverse = _mm256_set1_ps(pl_scale_inverse(scale));
    for (size_t i = 0; i < 4; i++) {
        __m256 v = _mm256_loadu_ps(x + i * WIDTH);
        q[i] = _mm256_cvtps_epi32(v * inverse);
        if (rest != NULL)
            _mm256_storeu_ps(rest + i * WIDTH, v - _mm256_cvtepi32_ps(q[i]) * _mm256_set1_ps(scale));
    }
}

INLINE void int8_encode_block(const float *x, uint8_t *out, float *rest)
{
    pl_bf16 h = pl_int8_scale(block_top(x));
    pl_put_le(out, h, PL_CODEC_SCALE_BYTES);
    out += PL_CODEC_SCALE_BYTES;
    for (size_t at = 0; at < PL_CODEC_BLOCK; at += TURN) {
        __m256i q[4];
        to_integers(x + at, pl_bf16_to_float(h), q, rest != NULL ? rest + at : NULL);
        _mm256_storeu_si256((__m256i *)(out + at), pack_bytes(q));
    }
}

ENCODE_BLOCKS(int8, PL_INT8_BLOCK_BYTES)

static void int8_decode_blocks(const uint8_t *bytes, size_t blocks, float *out)
{
    for (size_t b = 0; b < blocks; b++, bytes += PL_INT8_BLOCK_BYTES, out += PL_CODEC_BLOCK) {
        const __m256 scale = _mm256_set1_ps(pl_scale_get(bytes));
        const uint8_t *codes = bytes + PL_CODEC_SCALE_BYTES;
        for (size_t i = 0; i < VECTORS; i++) {
            __m256i q = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(codes + i * WIDTH)));
            _mm256_storeu_ps(out + i * WIDTH, _mm256_cvtepi32_ps(q) * scale);
        }
    }
}

INLINE void int4_encode_block(const float *x, uint8_t *out, float *rest)
{
    pl_bf16 h = pl_int4_scale(block_top(x));
    pl_put_le(out, h, PL_CODEC_SCALE_BYTES);
    out += PL_CODEC_SCALE_BYTES;
    for (size_t at = 0; at < PL_CODEC_BLOCK; at += TURN) {
        __m256i q[4];
        to_integers(x + at, pl_bf16_to_float(h), q, rest != NULL ? rest + at : NULL);
        __m256i nibbles = _mm256_and_si256(pack_bytes(q), _mm256_set1_epi8(15));
        _mm_storeu_si128((__m128i *)(out + at / 2), pack_nibbles(nibbles));
    }
}

ENCODE_BLOCKS(int4, PL_INT4_BLOCK_BYTES)

/* Each half byte is moved to the top of its own word, and comes down with its sign. */
static void int4_decode_blocks(const uint8_t *bytes, size_t blocks, float *out)
{
    const __m256i shifts = _mm256_setr_epi32(28, 24, 20, 16, 12, 8, 4, 0);
    for (size_t b = 0; b < blocks; b++, bytes += PL_INT4_BLOCK_BYTES, out += PL_CODEC_BLOCK) {
        const __m256 scale = _mm256_set1_ps(pl_scale_get(bytes));
        const uint8_t *codes = bytes + PL_CODEC_SCALE_BYTES;
        for (size_t i = 0; i < VECTORS; i++) {
            __m256i all = _mm256_set1_epi32((int)pl_get_le(codes + i * WIDTH / 2, 4));
            __m256i q = _mm256_srai_epi32(_mm256_sllv_epi32(all, shifts), 28);
            _mm256_storeu_ps(out + i * WIDTH, _mm256_cvtepi32_ps(q) * scale);
        }
    }
}

/* What the levels of e3m0 mean, in scales. */
INLINE __m256 e3m0_levels(void)
{
    return _mm256_setr_ps(0, 0x1p-6f, 0x1p-5f, 0x1p-4f, 0x1p-3f, 0x1p-2f, 0x1p-1f, 1);
}

INLINE void e3m0_encode_block(const float *x, uint8_t *out, float *rest)
{
    const __m256i bias = _mm256_set1_epi32(PL_E3M0_BIAS), half = _mm256_set1_epi32(PL_E3M0_HALF);
    const __m256i below = _mm256_set1_epi32(PL_E3M0_LEAST_BITS - 1), one = _mm256_set1_epi32(1);
    pl_bf16 h = pl_e3m0_scale(block_top(x));
    const __m256 scale = _mm256_set1_ps(pl_bf16_to_float(h)), levels = e3m0_levels() * scale;
    const __m256 inverse = _mm256_set1_ps(pl_scale_inverse(pl_bf16_to_float(h)));
    pl_put_le(out, h, PL_CODEC_SCALE_BYTES);
    out += PL_CODEC_SCALE_BYTES;
    for (size_t at = 0; at < PL_CODEC_BLOCK; at += TURN) {
        __m256i code[4];
        for (size_t i = 0; i < 4; i++) {
            __m256 v = _mm256_loadu_ps(x + at + i * WIDTH);
            __m256i y = _mm256_castps_si256(_mm256_castsi256_ps(magnitude(v)) * inverse);
            __m256i there = _mm256_cmpgt_epi32(y, below); /* both are positive as integers */
            __m256i level = _mm256_sub_epi32(_mm256_srli_epi32(_mm256_add_epi32(y, half), 23), bias);
            __m256i sign = _mm256_and_si256(_mm256_srli_epi32(_mm256_castps_si256(v), 31), there);
            level = _mm256_and_si256(_mm256_max_epi32(level, one), there);
            code[i] = _mm256_or_si256(level, _mm256_slli_epi32(sign, 3));
            __m256 value = _mm256_permutevar8x32_ps(levels, level);
            value = _mm256_xor_ps(value, _mm256_castsi256_ps(_mm256_slli_epi32(sign, 31)));
            if (rest != NULL)
                _mm256_storeu_ps(rest + at + i * WIDTH, v - value);
        }
        _mm_storeu_si128((__m128i *)(out + at / 2), pack_nibbles(pack_bytes(code)));
    }
}

ENCODE_BLOCKS(e3m0, PL_E3M0_BLOCK_BYTES)

/* Each half byte is moved to the top of its own word, where its sign is the word's. */
static void e3m0_decode_blocks(const uint8_t *bytes, size_t blocks, float *out)
{
    const __m256i shifts = _mm256_setr_epi32(28, 24, 20, 16, 12, 8, 4, 0);
    const __m256 minus = _mm256_set1_ps(-0.0f);
    for (size_t b = 0; b < blocks; b++, bytes += PL_E3M0_BLOCK_BYTES, out += PL_CODEC_BLOCK) {
        const __m256 levels = e3m0_levels() * _mm256_set1_ps(pl_scale_get(bytes));
        const uint8_t *codes = bytes + PL_CODEC_SCALE_BYTES;
        for (size_t i = 0; i < VECTORS; i++) {
            __m256i all = _mm256_set1_epi32((int)pl_get_le(codes + i * WIDTH / 2, 4));
            __m256i top = _mm256_sllv_epi32(all, shifts);
            __m256 value = _mm256_permutevar8x32_ps(levels, _mm256_srli_epi32(top, 28)); /* 3 bits count */
            __m256 sign = _mm256_and_ps(_mm256_castsi256_ps(top), minus);
            _mm256_storeu_ps(out + i * WIDTH, _mm256_xor_ps(value, sign));
        }
    }
}

/* Lanes 0 to 7 and 8 to 15. */
static float sum_lanes(__m256 low, __m256 high)
{
    __m256 a = low + high;
    __m128 b = _mm256_castps256_ps128(a) + _mm256_extractf128_ps(a, 1);
    b += _mm_movehl_ps(b, b);
    return b[0] + b[1];
}

static float sum_256th(const float *x)
{
    const __m256 part = _mm256_set1_ps(1.0f / 256.0f);
    __m256 low = _mm256_setzero_ps(), high = low;
    for (size_t i = 0; i < PL_CODEC_BLOCK; i += 2 * WIDTH) {
        low += _mm256_castsi256_ps(magnitude(_mm256_loadu_ps(x + i))) * part;
        high += _mm256_castsi256_ps(magnitude(_mm256_loadu_ps(x + i + WIDTH))) * part;
    }
    return sum_lanes(low, high);
}

/* Two bits each of 32 integers as 8 bytes. */
static uint64_t pack_pairs(const __m256i code[static 4])
{
    __m256i two = _mm256_maddubs_epi16(pack_bytes(code), _mm256_set1_epi16(0x0401));
    __m256i four = _mm256_madd_epi16(two, _mm256_set1_epi32(0x00100001));
    __m128i words = _mm_packus_epi32(_mm256_castsi256_si128(four), _mm256_extracti128_si256(four, 1));
    return (uint64_t)_mm_cvtsi128_si64(_mm_packus_epi16(words, words));
}

INLINE void int2_encode_block(const float *x, uint8_t *out, float *rest)
{
    pl_bf16 h = pl_int2_scale(sum_256th(x), PL_CODEC_BLOCK);
    const __m256 scale = _mm256_set1_ps(pl_bf16_to_float(h));
    const __m256i below = _mm256_set1_epi32((int)((uint32_t)h << 16) - 1); /* both are positive as integers */
    const __m256i sign_bit = _mm256_set1_epi32(h == 0 ? 0 : 1), large_bit = _mm256_slli_epi32(sign_bit, 1);
    const __m256 values = _mm256_setr_ps(0.5f, -0.5f, 1.5f, -1.5f, 0.5f, -0.5f, 1.5f, -1.5f) * scale;
    pl_put_le(out, h, PL_CODEC_SCALE_BYTES);
    out += PL_CODEC_SCALE_BYTES;
    for (size_t at = 0; at < PL_CODEC_BLOCK; at += TURN) {
        __m256i code[4];
        for (size_t i = 0; i < 4; i++) {
            __m256 v = _mm256_loadu_ps(x + at + i * WIDTH);
            __m256i large = _mm256_and_si256(_mm256_cmpgt_epi32(magnitude(v), below), large_bit);
            __m256i sign = _mm256_and_si256(_mm256_srli_epi32(_mm256_castps_si256(v), 31), sign_bit);
            code[i] = _mm256_or_si256(large, sign);
            if (rest != NULL)
                _mm256_storeu_ps(rest + at + i * WIDTH, v - _mm256_permutevar8x32_ps(values, code[i]));
        }
        pl_put_le(out + at / 4, pack_pairs(code), 8);
    }
}

ENCODE_BLOCKS(int2, PL_INT2_BLOCK_BYTES)

static void int2_decode_blocks(const uint8_t *bytes, size_t blocks, float *out)
{
    const __m256i shifts = _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14);
    for (size_t b = 0; b < blocks; b++, bytes += PL_INT2_BLOCK_BYTES, out += PL_CODEC_BLOCK) {
        const __m256 scale = _mm256_set1_ps(pl_scale_get(bytes));
        const __m256 values = _mm256_setr_ps(0.5f, -0.5f, 1.5f, -1.5f, 0.5f, -0.5f, 1.5f, -1.5f) * scale;
        const uint8_t *codes = bytes + PL_CODEC_SCALE_BYTES;
        for (size_t i = 0; i < VECTORS; i++) {
            __m256i all = _mm256_set1_epi32((int)pl_get_le(codes + i * WIDTH / 4, 2));
            __m256 v = _mm256_permutevar8x32_ps(values, _mm256_srlv_epi32(all, shifts)); /* 3 bits count */
            _mm256_storeu_ps(out + i * WIDTH, v);
        }
    }
}

/* How many of n numbers below 2^31 are larger; n is a multiple of 8. */
INLINE uint32_t count_above(const uint32_t *x, size_t n, uint32_t limit)
{
    const __m256i below = _mm256_set1_epi32((int)limit);
    __m256i count = _mm256_setzero_si256();
    for (size_t i = 0; i < n; i += WIDTH)
        count =
            _mm256_sub_epi32(count, _mm256_cmpgt_epi32(_mm256_loadu_si256((const __m256i *)(x + i)), below));
    __m128i a = _mm_add_epi32(_mm256_castsi256_si128(count), _mm256_extracti128_si256(count, 1));
    a = _mm_add_epi32(a, _mm_shuffle_epi32(a, 0x4e));
    return (uint32_t)_mm_cvtsi128_si32(_mm_add_epi32(a, _mm_shuffle_epi32(a, 0xb1)));
}

/* The k-th largest of them, as far as its bits from `last` on go: k at least are as large. Bit by bit from the top. */
INLINE uint32_t kth_largest(const uint32_t *x, size_t n, uint32_t k, int last)
{
    uint32_t limit = 0;
    for (int bit = 30; bit >= last; bit--)
        if (count_above(x, n, (limit | 1u << bit) - 1) >= k)
            limit |= 1u << bit;
    return limit;
}

/* Of every 256th value the largest is known, from all over the chunk, because neighbours are of like size. The k-th of these 256 is not above the k-th of all, and hardly below it:
 * what is as large is set aside, and of that the k largest are found. */
static void topk_select(const float *x, uint32_t k, uint16_t *index)
{
    uint32_t most[PL_CODEC_BLOCK], near[PL_CODEC_CHUNK + WIDTH], places[PL_CODEC_CHUNK], found = 0;
    for (size_t g = 0; g < PL_CODEC_BLOCK; g += WIDTH) {
        __m256i m = _mm256_setzero_si256();
        for (size_t i = 0; i < PL_CODEC_CHUNK; i += PL_CODEC_BLOCK)
            m = _mm256_max_epu32(m, magnitude(_mm256_loadu_ps(x + g + i)));
        _mm256_storeu_si256((__m256i *)(most + g), m);
    }
    const uint32_t least = kth_largest(most, PL_CODEC_BLOCK, k, 16);
    const __m256i below = _mm256_set1_epi32((int)least - 1);
    for (size_t i = 0; i < PL_CODEC_CHUNK; i += WIDTH) {
        __m256i m = magnitude(_mm256_loadu_ps(x + i));
        unsigned large = (unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpgt_epi32(m, below)));
        for (; large != 0; large &= large - 1) {
            uint32_t at = (uint32_t)i + (uint32_t)__builtin_ctz(large);
            near[found] = pl_float_bits(x[at]) & 0x7fffffffu;
            places[found++] = at;
        }
    }
    _mm256_storeu_si256((__m256i *)(near + found), _mm256_setzero_si256());
    const uint32_t limit = kth_largest(near, (found + WIDTH - 1) / WIDTH * WIDTH, k, 0);
    pl_topk_take(near, places, found, limit, k, index);
}

/* With the 8 of each half turned into 0, the halves that are zero are looked for. */
static bool any_nibble_8(const uint8_t *codes, size_t n)
{
    const __m256i low = _mm256_set1_epi8(15), high = _mm256_slli_epi16(low, 4),
                  eights = _mm256_set1_epi8((char)0x88);
    const __m256i zero = _mm256_setzero_si256();
    __m256i found = zero;
    size_t i = 0;
    for (; i + 32 <= n; i += 32) {
        __m256i t = _mm256_xor_si256(_mm256_loadu_si256((const __m256i *)(codes + i)), eights);
        found = _mm256_or_si256(found, _mm256_cmpeq_epi8(_mm256_and_si256(t, low), zero));
        found = _mm256_or_si256(found, _mm256_cmpeq_epi8(_mm256_and_si256(t, high), zero));
    }
    return _mm256_testz_si256(found, found) == 0 || pl_codec_portable.any_nibble_8(codes + i, n - i);
}

static void add(const float *x, size_t n, float *out)
{
    size_t i = 0;
    for (; i + WIDTH <= n; i += WIDTH)
        _mm256_storeu_ps(out + i, _mm256_loadu_ps(out + i) + _mm256_loadu_ps(x + i));
    pl_codec_portable.add(x + i, n - i, out + i);
}

const struct pl_codec_kernels pl_codec_avx2 = {
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
