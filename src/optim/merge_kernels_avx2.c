/* optim/merge_kernels_avx2.c - the loops of the merge with vectors of 32 bytes. Codes become floats in registers. */
#include <immintrin.h>

#include "codec/kernels.h"

typedef __m256 vec;
typedef __m256d wide;
enum { SUMS = 8 };
#define WIDEN _mm256_cvtps_pd
#define NARROW _mm256_cvtpd_ps
#define SPREAD _mm256_set1_ps
#define SPREAD_WIDE _mm256_set1_pd
#define STORE_SUM(to, x, far) ((far) ? _mm256_stream_ps(to, x) : store(to, x))
#define STORES_DONE _mm_sfence
#define SQUARE_ADD(x, y) _mm256_fmadd_pd((x), (x), (y))
#include "optim/merge_wide.inc"

#define INLINE static inline __attribute__((always_inline))

INLINE void add_bf16(vec s[static SUMS], const uint8_t *bytes, float share)
{
    for (size_t i = 0; i < SUMS; i++) {
        __m256i h = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(bytes + 16 * i)));
        s[i] += SPREAD(share) * _mm256_castsi256_ps(_mm256_slli_epi32(h, 16));
    }
}

/* Each half byte is moved to the top of its own word, and comes down with its sign. */
INLINE void add_int4(vec s[static SUMS], const uint8_t *codes, float scale, float share)
{
    const __m256i shifts = _mm256_setr_epi32(28, 24, 20, 16, 12, 8, 4, 0);
    for (size_t i = 0; i < SUMS; i++) {
        int word;
        memcpy(&word, codes + 4 * i, sizeof word);
        __m256i q = _mm256_srai_epi32(_mm256_sllv_epi32(_mm256_set1_epi32(word), shifts), 28);
        s[i] += SPREAD(share) * (_mm256_cvtepi32_ps(q) * SPREAD(scale));
    }
}

INLINE void add_int8(vec s[static SUMS], const uint8_t *codes, float scale, float share)
{
    for (size_t i = 0; i < SUMS; i++) {
        __m256i q = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(codes + 8 * i)));
        s[i] += SPREAD(share) * (_mm256_cvtepi32_ps(q) * SPREAD(scale));
    }
}

/* The same with the levels looked up; the sign is on top of the word already. */
INLINE void add_e3m0(vec s[static SUMS], const uint8_t *codes, float scale, float share)
{
    const __m256i shifts = _mm256_setr_epi32(28, 24, 20, 16, 12, 8, 4, 0);
    const __m256 levels = _mm256_setr_ps(0, 0x1p-6f, 0x1p-5f, 0x1p-4f, 0x1p-3f, 0x1p-2f, 0x1p-1f, 1);
    const __m256 shares = SPREAD(share) * (levels * SPREAD(scale));
    for (size_t i = 0; i < SUMS; i++) {
        int word;
        memcpy(&word, codes + 4 * i, sizeof word);
        __m256i top = _mm256_sllv_epi32(_mm256_set1_epi32(word), shifts);
        __m256 sign = _mm256_and_ps(_mm256_castsi256_ps(top), SPREAD(-0.0f));
        s[i] += _mm256_xor_ps(_mm256_permutevar8x32_ps(shares, _mm256_srli_epi32(top, 28)), sign);
    }
}

/* Of an index the low three bits count: two of our own, and one of our neighbour's that changes nothing. */
INLINE void add_int2(vec s[static SUMS], const uint8_t *codes, float scale, float share)
{
    const __m256i shifts = _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14);
    const __m256 levels = _mm256_setr_ps(0.5f, -0.5f, 1.5f, -1.5f, 0.5f, -0.5f, 1.5f, -1.5f);
    const __m256 shares = SPREAD(share) * (levels * SPREAD(scale));
    for (size_t i = 0; i < SUMS; i++) {
        uint16_t word;
        memcpy(&word, codes + 2 * i, sizeof word);
        s[i] += _mm256_permutevar8x32_ps(shares, _mm256_srlv_epi32(_mm256_set1_epi32(word), shifts));
    }
}

/* The numbers that the halves of `bytes` bytes stand for in a table of 16, added up. */
INLINE int sum_halves(const uint8_t *codes, size_t bytes, __m128i table)
{
    const __m256i half = _mm256_set1_epi8(15), numbers = _mm256_broadcastsi128_si256(table);
    __m256i sum = _mm256_setzero_si256();
    for (size_t i = 0; i < bytes; i += sizeof sum) {
        __m256i x = _mm256_loadu_si256((const __m256i *)(codes + i));
        __m256i low = _mm256_shuffle_epi8(numbers, _mm256_and_si256(x, half));
        __m256i high = _mm256_shuffle_epi8(numbers, _mm256_and_si256(_mm256_srli_epi16(x, 4), half));
        sum = _mm256_add_epi64(sum, _mm256_sad_epu8(_mm256_add_epi8(low, high), _mm256_setzero_si256()));
    }
    __m128i two = _mm_add_epi64(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
    return _mm_cvtsi128_si32(_mm_add_epi64(two, _mm_unpackhi_epi64(two, two)));
}

static double sum_int4(const uint8_t *codes)
{
    const __m128i squares = _mm_setr_epi8(0, 1, 4, 9, 16, 25, 36, 49, 64, 49, 36, 25, 16, 9, 4, 1);
    return sum_halves(codes, PL_CODEC_BLOCK / 2, squares);
}

static double sum_int8(const uint8_t *codes)
{
    __m256i sum = _mm256_setzero_si256();
    for (size_t i = 0; i < PL_CODEC_BLOCK; i += 16) {
        __m256i q = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(codes + i)));
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(q, q));
    }
    __m128i a = _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
    a = _mm_add_epi32(a, _mm_shuffle_epi32(a, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(a, _mm_shuffle_epi32(a, 0xb1)));
}

/* The squares are powers of four; the smaller and, in units of 256, the larger ones. */
static double sum_e3m0(const uint8_t *codes)
{
    const __m128i small = _mm_setr_epi8(0, 1, 4, 16, 64, 0, 0, 0, 0, 1, 4, 16, 64, 0, 0, 0);
    const __m128i large = _mm_setr_epi8(0, 0, 0, 0, 0, 1, 4, 16, 0, 0, 0, 0, 0, 1, 4, 16);
    int sum =
        sum_halves(codes, PL_CODEC_BLOCK / 2, small) + 256 * sum_halves(codes, PL_CODEC_BLOCK / 2, large);
    return sum * 0x1p-12;
}

/* A quarter for every value, and two more for the large ones. */
static double sum_int2(const uint8_t *codes)
{
    const __m128i large = _mm_setr_epi8(0, 0, 1, 1, 0, 0, 1, 1, 1, 1, 2, 2, 1, 1, 2, 2);
    return 0.25 * PL_CODEC_BLOCK + 2.0 * sum_halves(codes, PL_CODEC_BLOCK / 4, large);
}

#define MIXED(x) (x)
#define SORTED(x) (x)
#define ADD_BF16 add_bf16
#define ADD_INT4 add_int4
#define ADD_INT2 add_int2
#define ADD_INT8 add_int8
#define ADD_E3M0 add_e3m0
#define BLEND_NIBBLES blend_tiles
#define SUM_INT4 sum_int4
#define SUM_INT2 sum_int2
#define SUM_INT8 sum_int8
#define SUM_E3M0 sum_e3m0
#define CODEC pl_codec_avx2
#define KERNELS pl_merge_avx2
#include "optim/merge_kernels.inc"
