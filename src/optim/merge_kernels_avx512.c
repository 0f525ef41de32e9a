/* optim/merge_kernels_avx512.c - the loops of the merge with vectors of 64 bytes; codes are blended as they are.
 *
 * Sixteen codes, eight bytes of int4, are put into every lane pair and shifted, and then looked up among the shares of the
 * numbers they can mean. A pair of lanes holds values i and i + 8 of the sixteen: tiles are summed in that order. Where all
 * contributions are of four bits, the codes stay where they are, and the sums are put in order at the end.
 */
#include <immintrin.h>

#include "codec/kernels.h"
#include "codec/scale.h"
#include "optim/merge_kernels.h"

typedef __m512 vec;
typedef __m512d wide;
enum { SUMS = 16 };
#define WIDEN _mm512_cvtps_pd
#define NARROW _mm512_cvtpd_ps
#define SPREAD _mm512_set1_ps
#define SPREAD_WIDE _mm512_set1_pd
#define STORE_SUM(to, x, far) ((far) ? _mm512_stream_ps(to, x) : store(to, x))
#define STORES_DONE _mm_sfence
#define SQUARE_ADD(x, y) _mm512_fmadd_pd((x), (x), (y))
#include "optim/merge_wide.inc"

#define INLINE static inline __attribute__((always_inline))

INLINE __m512 mixed(__m512 x)
{
    return _mm512_permutexvar_ps(_mm512_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15), x);
}

INLINE __m512 sorted(__m512 x)
{
    return _mm512_permutexvar_ps(_mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15), x);
}

INLINE int load_word(const uint8_t *from)
{
    int word;
    memcpy(&word, from, sizeof word);
    return word;
}

INLINE void add_bf16(vec s[static SUMS], const uint8_t *bytes, float share)
{
    for (size_t i = 0; i < SUMS; i++) {
        __m512i h = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(bytes + 32 * i)));
        s[i] += SPREAD(share) * mixed(_mm512_castsi512_ps(_mm512_slli_epi32(h, 16)));
    }
}

/* Of an index the low four bits count. */
INLINE void add_nibbles(vec s[static SUMS], const uint8_t *codes, __m512 shares)
{
    const __m512i shifts = _mm512_setr_epi32(0, 0, 4, 4, 8, 8, 12, 12, 16, 16, 20, 20, 24, 24, 28, 28);
    for (size_t i = 0; i < SUMS; i++) {
        long long pair;
        memcpy(&pair, codes + 8 * i, sizeof pair);
        __m512i word = _mm512_set1_epi64(pair);
        s[i] += _mm512_permutexvar_ps(_mm512_srlv_epi32(word, shifts), shares);
    }
}

/* In scales: what the codes mean. */
INLINE __m512 int4_steps(void)
{
    return _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1);
}

INLINE __m512 e3m0_steps(void)
{
    return _mm512_setr_ps(0, 0x1p-6f, 0x1p-5f, 0x1p-4f, 0x1p-3f, 0x1p-2f, 0x1p-1f, 1, 0, -0x1p-6f, -0x1p-5f,
                          -0x1p-4f, -0x1p-3f, -0x1p-2f, -0x1p-1f, -1);
}

INLINE void add_int4(vec s[static SUMS], const uint8_t *codes, float scale, float share)
{
    add_nibbles(s, codes, SPREAD(share) * (int4_steps() * SPREAD(scale)));
}

INLINE void add_e3m0(vec s[static SUMS], const uint8_t *codes, float scale, float share)
{
    add_nibbles(s, codes, SPREAD(share) * (e3m0_steps() * SPREAD(scale)));
}

/* Code j of word l of 64 bytes to lane l of sum j. Codes come down by products: the units that shift have to look up as
 * well, those that multiply are free. */
INLINE void add_words(vec s[static 8], const uint8_t *codes, __m512 shares)
{
    const __m512i words = _mm512_loadu_si512(codes);
    for (size_t i = 0; i < 2; i++) {
        vec *four = s + 4 * i;
        __m512i x = _mm512_srli_epi32(words, 16 * (unsigned)i);
        four[0] += _mm512_permutexvar_ps(x, shares);
        for (unsigned j = 1; j < 4; j++) {
            __m512i down = _mm512_set1_epi16((short)(1 << (16 - 4 * j)));
            four[j] += _mm512_permutexvar_ps(_mm512_mulhi_epu16(x, down), shares);
        }
    }
}

/* From lane l of sum j to value 8 l + j. In each of three steps one bit of j goes into the number of the lane, and one of l
 * into that of the vector: the second bit of l for the first of j, the third for the third, the fourth for the second. */
INLINE void store_words(float *to, const vec s[static 8], bool far)
{
    const __m512i below = _mm512_setr_epi32(0, 1, 16, 17, 8, 9, 24, 25, 2, 3, 18, 19, 10, 11, 26, 27);
    const __m512i above = _mm512_add_epi32(below, _mm512_set1_epi32(4));
    vec a[8], b[8];
    for (size_t i = 0; i < 8; i += 2) {
        a[i] = _mm512_unpacklo_ps(s[i], s[i + 1]);
        a[i + 1] = _mm512_unpackhi_ps(s[i], s[i + 1]);
    }
    for (size_t i = 0; i < 4; i++) {
        b[i] = _mm512_shuffle_f32x4(a[i], a[i + 4], 0x88);
        b[i + 4] = _mm512_shuffle_f32x4(a[i], a[i + 4], 0xdd);
    }
    for (size_t i = 0; i < 4; i++) {
        const vec *pair = b + 4 * (i / 2) + i % 2;
        STORE_SUM(to + 16 * i, _mm512_permutex2var_ps(pair[0], below, pair[2]), far);
        STORE_SUM(to + 16 * (i + 4), _mm512_permutex2var_ps(pair[0], above, pair[2]), far);
    }
}

/* A block of one group of int4 and e3m0. */
INLINE void blend_nibbles(const struct pl_merge_input *in, const double *share, size_t block, float *out,
                          bool far)
{
    vec s[SUMS];
    uint32_t m = 0;
    for (size_t i = 0; i < SUMS; i++)
        s[i] = (vec){0};
    do {
        struct pl_merge_view v = pl_merge_view(in, m, block);
        __m512 steps = v.codec == PL_CODEC_INT4 ? int4_steps() : e3m0_steps();
        __m512 shares = SPREAD((float)share[m]) * (steps * SPREAD(pl_scale_get(v.bytes)));
        add_words(s, v.bytes + PL_CODEC_SCALE_BYTES, shares);
        add_words(s + 8, v.bytes + PL_CODEC_SCALE_BYTES + 64, shares);
    } while (++m < in->count);
    store_words(out, s, far);
    store_words(out + PL_MERGE_BLOCK / 2, s + 8, far);
}

INLINE void add_int8(vec s[static SUMS], const uint8_t *codes, float scale, float share)
{
    for (size_t i = 0; i < SUMS; i++) {
        __m512i q = _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(codes + 16 * i)));
        s[i] += SPREAD(share) * mixed(_mm512_cvtepi32_ps(q) * SPREAD(scale));
    }
}

/* Here too: two bits of our own, and two of our neighbour's that change nothing. */
INLINE void add_int2(vec s[static SUMS], const uint8_t *codes, float scale, float share)
{
    const __m512i shifts = _mm512_setr_epi32(0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30);
    const __m512 levels = _mm512_broadcast_f32x4(_mm_setr_ps(0.5f, -0.5f, 1.5f, -1.5f));
    const __m512 shares = SPREAD(share) * (levels * SPREAD(scale));
    for (size_t i = 0; i < SUMS; i++) {
        __m512i word = _mm512_set1_epi32(load_word(codes + 4 * i));
        s[i] += _mm512_permutexvar_ps(_mm512_srlv_epi32(word, shifts), shares);
    }
}

/* The numbers that the halves of 64 bytes stand for in a table of 16, added up. */
INLINE __m512i sum_halves(const uint8_t *codes, __m128i table)
{
    const __m512i half = _mm512_set1_epi8(15), numbers = _mm512_broadcast_i32x4(table);
    __m512i x = _mm512_loadu_si512(codes);
    __m512i low = _mm512_shuffle_epi8(numbers, _mm512_and_si512(x, half));
    __m512i high = _mm512_shuffle_epi8(numbers, _mm512_and_si512(_mm512_srli_epi16(x, 4), half));
    return _mm512_sad_epu8(_mm512_add_epi8(low, high), _mm512_setzero_si512());
}

static double sum_int4(const uint8_t *codes)
{
    const __m128i squares = _mm_setr_epi8(0, 1, 4, 9, 16, 25, 36, 49, 64, 49, 36, 25, 16, 9, 4, 1);
    __m512i sum = _mm512_add_epi64(sum_halves(codes, squares), sum_halves(codes + 64, squares));
    return (double)_mm512_reduce_add_epi64(sum);
}

static double sum_int8(const uint8_t *codes)
{
    __m512i sum = _mm512_setzero_si512();
    for (size_t i = 0; i < PL_CODEC_BLOCK; i += 32) {
        __m512i q = _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)(codes + i)));
        sum = _mm512_add_epi32(sum, _mm512_madd_epi16(q, q));
    }
    return _mm512_reduce_add_epi32(sum);
}

/* The squares are powers of four; the smaller and, in units of 256, the larger ones. */
static double sum_e3m0(const uint8_t *codes)
{
    const __m128i small = _mm_setr_epi8(0, 1, 4, 16, 64, 0, 0, 0, 0, 1, 4, 16, 64, 0, 0, 0);
    const __m128i large = _mm_setr_epi8(0, 0, 0, 0, 0, 1, 4, 16, 0, 0, 0, 0, 0, 1, 4, 16);
    __m512i low = _mm512_add_epi64(sum_halves(codes, small), sum_halves(codes + 64, small));
    __m512i high = _mm512_add_epi64(sum_halves(codes, large), sum_halves(codes + 64, large));
    __m512i sum = _mm512_add_epi64(low, _mm512_slli_epi64(high, 8));
    return (double)_mm512_reduce_add_epi64(sum) * 0x1p-12;
}

/* A quarter for every value, and two more for the large ones. */
static double sum_int2(const uint8_t *codes)
{
    const __m128i large = _mm_setr_epi8(0, 0, 1, 1, 0, 0, 1, 1, 1, 1, 2, 2, 1, 1, 2, 2);
    return 0.25 * PL_CODEC_BLOCK + 2.0 * (double)_mm512_reduce_add_epi64(sum_halves(codes, large));
}

#define MIXED mixed
#define SORTED sorted
#define ADD_BF16 add_bf16
#define ADD_INT4 add_int4
#define ADD_INT2 add_int2
#define ADD_INT8 add_int8
#define ADD_E3M0 add_e3m0
#define BLEND_NIBBLES blend_nibbles
#define SUM_INT4 sum_int4
#define SUM_INT2 sum_int2
#define SUM_INT8 sum_int8
#define SUM_E3M0 sum_e3m0
#define CODEC pl_codec_avx512
#define KERNELS pl_merge_avx512
#include "optim/merge_kernels.inc"
