/* model/cpu/vec.h - a vector of floats as wide as the compiler's target allows, for code written once.
 *
 * vf has VF_LANES lanes: 16 with AVX-512, 8 with AVX2, otherwise 4 of the compiler's own vectors. It adds, subtracts,
 * multiplies and divides by the usual operators, also with a float. Everything else is below.
 *
 * Loads and stores take the number of lanes n, 0 .. VF_LANES. A constant VF_LANES costs nothing; fewer is the end of a
 * row: nothing beyond lane n is read or written, and lanes from n on are zero after a load. VF_EACH calls a step for
 * each vector of a row that way. The names are short because formulas are made of them; no source outside the kernels
 * includes this.
 */
#ifndef PL_MODEL_CPU_VEC_H
#define PL_MODEL_CPU_VEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define VF_INLINE static inline __attribute__((always_inline))

/* step(i, n, ...) for i = 0, VF_LANES, ...; n is VF_LANES, or what is left at the end of the c values. */
#define VF_EACH(c, step, ...)                                                                                \
    do {                                                                                                     \
        size_t i_ = 0, c_ = (c);                                                                             \
        for (; i_ + VF_LANES <= c_; i_ += VF_LANES)                                                          \
            step(i_, VF_LANES, __VA_ARGS__);                                                                 \
        if (i_ < c_)                                                                                         \
            step(i_, c_ - i_, __VA_ARGS__);                                                                  \
    } while (0)

/* The same for rows that are c long, c a constant: written out. */
#define VF_EACH_OF(c, step, ...)                                                                             \
    do {                                                                                                     \
        _Static_assert((c) % VF_LANES == 0, "whole vectors");                                                \
        _Pragma("GCC unroll 32") for (size_t i_ = 0; i_ < (c); i_ += VF_LANES)                               \
            step(i_, VF_LANES, __VA_ARGS__);                                                                 \
    } while (0)

/* The same for sums: step(i, n, &acc[0 .. 3] in turn, ...), because one addition waits for the previous one. */
#define VF_EACH_ACC(c, acc, step, ...)                                                                       \
    do {                                                                                                     \
        const size_t lanes_ = VF_LANES, c_ = (c);                                                            \
        size_t i_ = 0;                                                                                       \
        for (; i_ + 4 * lanes_ <= c_; i_ += 4 * lanes_) {                                                    \
            step(i_, VF_LANES, &(acc)[0], __VA_ARGS__);                                                      \
            step(i_ + lanes_, VF_LANES, &(acc)[1], __VA_ARGS__);                                             \
            step(i_ + 2 * lanes_, VF_LANES, &(acc)[2], __VA_ARGS__);                                         \
            step(i_ + 3 * lanes_, VF_LANES, &(acc)[3], __VA_ARGS__);                                         \
        }                                                                                                    \
        for (; i_ + lanes_ <= c_; i_ += lanes_)                                                              \
            step(i_, VF_LANES, &(acc)[0], __VA_ARGS__);                                                      \
        if (i_ < c_)                                                                                         \
            step(i_, c_ - i_, &(acc)[1], __VA_ARGS__);                                                       \
    } while (0)

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
/* ---- AVX-512 ---- */
#include <immintrin.h>

enum { VF_LANES = 16 };
typedef __m512 vf;

/* Whether n is known to be all lanes. A mask costs less than a branch, so other n are not compared. */
#define VF_IS_FULL(n) (__builtin_constant_p(n) && (n) == VF_LANES)

VF_INLINE __mmask16 vf_mask(size_t n)
{
    return (__mmask16)((1u << n) - 1u);
}

VF_INLINE vf vf_set(float x)
{
    return _mm512_set1_ps(x);
}

VF_INLINE vf vf_load(const float *p, size_t n)
{
    return VF_IS_FULL(n) ? _mm512_loadu_ps(p) : _mm512_maskz_loadu_ps(vf_mask(n), p);
}

VF_INLINE void vf_store(float *p, vf v, size_t n)
{
    if (VF_IS_FULL(n))
        _mm512_storeu_ps(p, v);
    else
        _mm512_mask_storeu_ps(p, vf_mask(n), v);
}

/* bfloat16 to float: the upper half of each lane. */
VF_INLINE vf vf_load_bf16(const uint16_t *p, size_t n)
{
    __m256i half =
        VF_IS_FULL(n) ? _mm256_loadu_si256((const __m256i *)p) : _mm256_maskz_loadu_epi16(vf_mask(n), p);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

/* Two vectors' worth of bfloat16, those at even and those at odd places. */
VF_INLINE void vf_load_bf16_pair(const uint16_t *p, vf *even, vf *odd)
{
    __m512i both = _mm512_loadu_si512(p);
    *even = _mm512_castsi512_ps(_mm512_slli_epi32(both, 16));
    *odd = _mm512_castsi512_ps(_mm512_and_si512(both, _mm512_set1_epi32((int)0xffff0000)));
}

/* Lanes below n of v, the others of fill. */
VF_INLINE vf vf_first(vf v, vf fill, size_t n)
{
    return VF_IS_FULL(n) ? v : _mm512_mask_mov_ps(fill, vf_mask(n), v);
}

/* a * b + c, rounded once where the machine can. */
VF_INLINE vf vf_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
}

/* The greater and the smaller; b where it is NaN. */
VF_INLINE vf vf_max(vf a, vf b)
{
    return _mm512_max_ps(a, b);
}

VF_INLINE vf vf_min(vf a, vf b)
{
    return _mm512_min_ps(a, b);
}

VF_INLINE float vf_sum(vf v)
{
    return _mm512_reduce_add_ps(v);
}

/* The sums of four vectors' lanes, with half the instructions. */
VF_INLINE void vf_sum4(float sums[4], vf a, vf b, vf c, vf d)
{
    vf ac = _mm512_unpacklo_ps(a, c) + _mm512_unpackhi_ps(a, c);
    vf bd = _mm512_unpacklo_ps(b, d) + _mm512_unpackhi_ps(b, d);
    vf abcd = _mm512_unpacklo_ps(ac, bd) + _mm512_unpackhi_ps(ac, bd);
    __m256 half = _mm256_add_ps(_mm512_castps512_ps256(abcd), _mm512_extractf32x8_ps(abcd, 1));
    _mm_storeu_ps(sums, _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1)));
}

VF_INLINE float vf_max_lane(vf v)
{
    return _mm512_reduce_max_ps(v);
}

/* Nearest whole number. */
VF_INLINE vf vf_round(vf v)
{
    return _mm512_roundscale_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

/* v * 2^n for whole n of -150 .. 128. */
VF_INLINE vf vf_scale2(vf v, vf n)
{
    return _mm512_scalef_ps(v, n);
}

/* Rows become columns: pairs of rows, of pairs, of fours, of eights change places. */
VF_INLINE void vf_turn(vf v[VF_LANES])
{
    vf pairs[16], fours[16], eights[16];
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) {
        pairs[i] = _mm512_unpacklo_ps(v[i], v[i + 1]);
        pairs[i + 1] = _mm512_unpackhi_ps(v[i], v[i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4)
#pragma GCC unroll 2
        for (int j = 0; j < 2; j++) {
            __m512d low = _mm512_castps_pd(pairs[i + j]), high = _mm512_castps_pd(pairs[i + j + 2]);
            fours[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(low, high));
            fours[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low, high));
        }
#pragma GCC unroll 2
    for (int i = 0; i < 16; i += 8)
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) {
            eights[i + j] = _mm512_shuffle_f32x4(fours[i + j], fours[i + j + 4], 0x88);
            eights[i + j + 4] = _mm512_shuffle_f32x4(fours[i + j], fours[i + j + 4], 0xdd);
        }
#pragma GCC unroll 8
    for (int j = 0; j < 8; j++) {
        v[j] = _mm512_shuffle_f32x4(eights[j], eights[j + 8], 0x88);
        v[j + 8] = _mm512_shuffle_f32x4(eights[j], eights[j + 8], 0xdd);
    }
}

#ifdef __AVX512BF16__
VF_INLINE void vf_store_bf16(uint16_t *p, vf v, size_t n)
{
    __m256i half = (__m256i)_mm512_cvtneps_pbh(v);
    if (VF_IS_FULL(n))
        _mm256_storeu_si256((__m256i *)p, half);
    else
        _mm256_mask_storeu_epi16(p, vf_mask(n), half);
}

/* Lanes of acc plus those of v rounded to bfloat16, in any arrangement: for a sum of all lanes. */
VF_INLINE vf vf_add_bf16(vf acc, vf v)
{
    const __m512bh ones = (__m512bh)_mm512_set1_epi16(0x3f80);
    __m512i rounded = _mm512_zextsi256_si512((__m256i)_mm512_cvtneps_pbh(v));
    return _mm512_dpbf16_ps(acc, (__m512bh)rounded, ones);
}
#endif

/* 2^v and 1/v for results that become bfloat16: relative error 4e-6 near 0 growing by 6e-8 |v|, and 6e-5. Overflow
 * and underflow come out as infinity and zero without a clamp. The polynomial is exact at both ends of 0 .. 1. */
VF_INLINE vf vf_exp2_fast(vf v)
{
    vf f = _mm512_reduce_ps(v, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    vf p = vf_fma(vf_set(0.013555747f), f, vf_set(0.05203237f));
    p = vf_fma(p, f, vf_set(0.24137977f));
    p = vf_fma(p, f, vf_set(0.69303215f));
    return _mm512_scalef_ps(vf_fma(p, f, vf_set(1.0f)), v);
}

VF_INLINE vf vf_recip_fast(vf v)
{
    return _mm512_rcp14_ps(v);
}

#elif defined(__AVX2__) && defined(__FMA__)
/* ---- AVX2 ---- */
#include <immintrin.h>

enum { VF_LANES = 8 };
typedef __m256 vf;

VF_INLINE __m256i vf_mask(size_t n)
{
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), lane);
}

VF_INLINE vf vf_set(float x)
{
    return _mm256_set1_ps(x);
}

VF_INLINE vf vf_load(const float *p, size_t n)
{
    return n == VF_LANES ? _mm256_loadu_ps(p) : _mm256_maskload_ps(p, vf_mask(n));
}

VF_INLINE void vf_store(float *p, vf v, size_t n)
{
    if (n == VF_LANES)
        _mm256_storeu_ps(p, v);
    else
        _mm256_maskstore_ps(p, vf_mask(n), v);
}

VF_INLINE vf vf_load_bf16(const uint16_t *p, size_t n)
{
    __m128i half = _mm_setzero_si128();
    if (n == VF_LANES)
        half = _mm_loadu_si128((const __m128i *)p);
    else
        memcpy(&half, p, n * sizeof *p);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}

VF_INLINE void vf_load_bf16_pair(const uint16_t *p, vf *even, vf *odd)
{
    __m256i both = _mm256_loadu_si256((const __m256i *)p);
    *even = _mm256_castsi256_ps(_mm256_slli_epi32(both, 16));
    *odd = _mm256_castsi256_ps(_mm256_and_si256(both, _mm256_set1_epi32((int)0xffff0000)));
}

VF_INLINE vf vf_first(vf v, vf fill, size_t n)
{
    return n == VF_LANES ? v : _mm256_blendv_ps(fill, v, _mm256_castsi256_ps(vf_mask(n)));
}

VF_INLINE vf vf_fma(vf a, vf b, vf c)
{
    return _mm256_fmadd_ps(a, b, c);
}

VF_INLINE vf vf_max(vf a, vf b)
{
    return _mm256_max_ps(a, b);
}

VF_INLINE vf vf_min(vf a, vf b)
{
    return _mm256_min_ps(a, b);
}

VF_INLINE float vf_sum(vf v)
{
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

VF_INLINE void vf_sum4(float sums[4], vf a, vf b, vf c, vf d)
{
    vf abcd = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
    _mm_storeu_ps(sums, _mm_add_ps(_mm256_castps256_ps128(abcd), _mm256_extractf128_ps(abcd, 1)));
}

VF_INLINE float vf_max_lane(vf v)
{
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}

VF_INLINE vf vf_round(vf v)
{
    return _mm256_round_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

VF_INLINE void vf_turn(vf v[VF_LANES])
{
    vf pairs[8], fours[8];
#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2) {
        pairs[i] = _mm256_unpacklo_ps(v[i], v[i + 1]);
        pairs[i + 1] = _mm256_unpackhi_ps(v[i], v[i + 1]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4)
#pragma GCC unroll 2
        for (int j = 0; j < 2; j++) {
            fours[i + 2 * j] = _mm256_shuffle_ps(pairs[i + j], pairs[i + j + 2], 0x44);
            fours[i + 2 * j + 1] = _mm256_shuffle_ps(pairs[i + j], pairs[i + j + 2], 0xee);
        }
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
        v[j] = _mm256_permute2f128_ps(fours[j], fours[j + 4], 0x20);
        v[j + 4] = _mm256_permute2f128_ps(fours[j], fours[j + 4], 0x31);
    }
}

VF_INLINE vf vf_power2(__m256i n)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}

/* In two factors, so that neither leaves the range of an exponent. */
VF_INLINE vf vf_scale2(vf v, vf n)
{
    __m256i whole = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(whole, 1);
    return v * vf_power2(half) * vf_power2(_mm256_sub_epi32(whole, half));
}

#else
/* ---- any compiler with vectors ---- */
enum { VF_LANES = 4 };
typedef float vf __attribute__((vector_size(16)));
typedef int32_t vf_int __attribute__((vector_size(16)));

VF_INLINE vf vf_set(float x)
{
    return (vf){x, x, x, x};
}

VF_INLINE vf vf_load(const float *p, size_t n)
{
    vf v = {0};
    memcpy(&v, p, n * sizeof *p);
    return v;
}

VF_INLINE void vf_store(float *p, vf v, size_t n)
{
    memcpy(p, &v, n * sizeof *p);
}

VF_INLINE vf vf_load_bf16(const uint16_t *p, size_t n)
{
    uint16_t half[VF_LANES] = {0};
    memcpy(half, p, n * sizeof *p);
    return (vf)((vf_int){half[0], half[1], half[2], half[3]} << 16);
}

VF_INLINE void vf_load_bf16_pair(const uint16_t *p, vf *even, vf *odd)
{
    vf_int both;
    memcpy(&both, p, sizeof both);
    vf low = (vf)(both << 16), high = (vf)(both & (int32_t)0xffff0000);
    const uint16_t first = 1;
    bool little = *(const unsigned char *)&first == 1;
    *even = little ? low : high;
    *odd = little ? high : low;
}

VF_INLINE vf vf_choose(vf_int mask, vf yes, vf no)
{
    return (vf)((mask & (vf_int)yes) | (~mask & (vf_int)no));
}

VF_INLINE vf vf_first(vf v, vf fill, size_t n)
{
    return n == VF_LANES ? v : vf_choose((vf_int){0, 1, 2, 3} < (int32_t)n, v, fill);
}

VF_INLINE vf vf_fma(vf a, vf b, vf c)
{
    return a * b + c;
}

VF_INLINE vf vf_max(vf a, vf b)
{
    return vf_choose(a > b, a, b);
}

VF_INLINE vf vf_min(vf a, vf b)
{
    return vf_choose(a < b, a, b);
}

VF_INLINE float vf_sum(vf v)
{
    return (v[0] + v[2]) + (v[1] + v[3]);
}

VF_INLINE void vf_sum4(float sums[4], vf a, vf b, vf c, vf d)
{
    sums[0] = vf_sum(a);
    sums[1] = vf_sum(b);
    sums[2] = vf_sum(c);
    sums[3] = vf_sum(d);
}

VF_INLINE float vf_max_lane(vf v)
{
    float a = v[0] > v[1] ? v[0] : v[1], b = v[2] > v[3] ? v[2] : v[3];
    return a > b ? a : b;
}

#ifdef __clang__
#define VF_SHUFFLE(a, b, i, j, k, l) __builtin_shufflevector(a, b, i, j, k, l)
#else
#define VF_SHUFFLE(a, b, i, j, k, l) __builtin_shuffle(a, b, (vf_int){i, j, k, l})
#endif

VF_INLINE void vf_turn(vf v[VF_LANES])
{
    vf low01 = VF_SHUFFLE(v[0], v[1], 0, 4, 1, 5), high01 = VF_SHUFFLE(v[0], v[1], 2, 6, 3, 7);
    vf low23 = VF_SHUFFLE(v[2], v[3], 0, 4, 1, 5), high23 = VF_SHUFFLE(v[2], v[3], 2, 6, 3, 7);
    v[0] = VF_SHUFFLE(low01, low23, 0, 1, 4, 5);
    v[1] = VF_SHUFFLE(low01, low23, 2, 3, 6, 7);
    v[2] = VF_SHUFFLE(high01, high23, 0, 1, 4, 5);
    v[3] = VF_SHUFFLE(high01, high23, 2, 3, 6, 7);
}

/* Truncation of a positive number; the same for all |v| < 256, except that halves may go either way. */
VF_INLINE vf vf_round(vf v)
{
    vf_int whole = __builtin_convertvector(v + 256.5f, vf_int) - 256;
    return __builtin_convertvector(whole, vf);
}

VF_INLINE vf vf_scale2(vf v, vf n)
{
    vf_int whole = __builtin_convertvector(n, vf_int), half = whole >> 1;
    return v * (vf)((half + 127) << 23) * (vf)((whole - half + 127) << 23);
}
#endif

/* The value, which the compiler can no longer trace: it may reorder sums, and must not do so across this. */
VF_INLINE vf vf_opaque(vf v)
{
#if defined(__x86_64__)
    __asm__("" : "+x"(v));
#elif defined(__aarch64__)
    __asm__("" : "+w"(v));
#else
    __asm__("" : "+m"(v));
#endif
    return v;
}

/* e^v, relative error below 2e-7; 0 below -104, infinity from 88.4 or 88.8 on, NaN of NaN. v = n ln 2 + r, with ln 2 in two
 * parts of which the first times n is exact; e^r by Cephes' polynomial. */
VF_INLINE vf vf_exp(vf v)
{
    v = vf_min(vf_set(89.0f), vf_max(vf_set(-104.0f), v));
    vf n = vf_round(v * 1.44269504f);
    vf r = vf_opaque(vf_fma(n, vf_set(-0.693359375f), v));
    r = vf_fma(n, vf_set(2.12194440e-4f), r);
    vf p = vf_fma(vf_set(1.9875691500e-4f), r, vf_set(1.3981999507e-3f));
    p = vf_fma(p, r, vf_set(8.3334519073e-3f));
    p = vf_fma(p, r, vf_set(4.1665795894e-2f));
    p = vf_fma(p, r, vf_set(1.6666665459e-1f));
    p = vf_fma(p, r, vf_set(5.0000001201e-1f));
    return vf_scale2(vf_fma(p * r, r, r) + 1.0f, n);
}

/* out = in, without bringing out's lines into the cache where the instruction set and the alignment allow. */
VF_INLINE void vf_copy_past(float *out, const float *in, size_t n)
{
#ifdef __AVX512F__
    if ((uintptr_t)out % 64 == 0 && n % 16 == 0) {
        for (size_t i = 0; i < n; i += 16)
            _mm512_stream_ps(out + i, _mm512_loadu_ps(in + i));
        return;
    }
#endif
    memcpy(out, in, n * sizeof *out);
}

static void vf_fence(void)
{
#ifdef __AVX512F__
    _mm_sfence();
#endif
}

#endif
