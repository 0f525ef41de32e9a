/* support/amx_emulate.h - the AMX instructions a kernel uses, in plain C, and those for bfloat16 in AVX-512's own, for
 * machines without them.
 *
 * Include it before the kernel's source, with PL_AMX_EMULATE defined: the intrinsics' names become macros. Each thread
 * has eight tiles of 16 rows of 64 bytes, configured as the hardware wants it; using a tile that is not configured, or
 * shapes that do not fit, is an assertion. Sums are formed in the order Intel documents for TDPBF16PS: the even and
 * the odd halves of the pairs apart, by fused steps in float.
 */
#ifndef PL_TEST_AMX_EMULATE_H
#define PL_TEST_AMX_EMULATE_H

#ifdef PL_AMX_EMULATE

#include "base/bf16.h"
#include "base/check.h"

#include <immintrin.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { AMX_TILES = 8, AMX_ROWS = 16, AMX_ROW_BYTES = 64 };

struct amx_tile {
    uint32_t rows, row_bytes;
    unsigned char at[AMX_ROWS][AMX_ROW_BYTES];
};

static _Thread_local struct amx_tile amx_tiles[AMX_TILES];

/* 64 bytes: palette, start row, 14 reserved, bytes a row of 16 tiles (16 bits each), rows of 16 tiles (8 bits each). */
static inline void amx_configure(const void *config)
{
    const unsigned char *c = config;
    pl_assert(c[0] == 1);
    memset(amx_tiles, 0, sizeof amx_tiles);
    for (int i = 0; i < AMX_TILES; i++) {
        amx_tiles[i].row_bytes = (uint32_t)c[16 + 2 * i] | (uint32_t)c[17 + 2 * i] << 8;
        amx_tiles[i].rows = c[48 + i];
        pl_assert(amx_tiles[i].rows <= AMX_ROWS && amx_tiles[i].row_bytes <= AMX_ROW_BYTES);
    }
}

static inline void amx_release(void)
{
    memset(amx_tiles, 0, sizeof amx_tiles);
}

static inline struct amx_tile *amx_tile(int tile)
{
    pl_assert(tile >= 0 && tile < AMX_TILES && amx_tiles[tile].rows > 0 && amx_tiles[tile].row_bytes > 0);
    return &amx_tiles[tile];
}

static inline void amx_zero(int tile)
{
    struct amx_tile *t = amx_tile(tile);
    memset(t->at, 0, sizeof t->at);
}

static inline void amx_load(int tile, const void *base, size_t stride)
{
    struct amx_tile *t = amx_tile(tile);
    memset(t->at, 0, sizeof t->at);
    for (uint32_t i = 0; i < t->rows; i++)
        memcpy(t->at[i], (const unsigned char *)base + i * stride, t->row_bytes);
}

static inline void amx_store(int tile, void *base, size_t stride)
{
    const struct amx_tile *t = amx_tile(tile);
    for (uint32_t i = 0; i < t->rows; i++)
        memcpy((unsigned char *)base + i * stride, t->at[i], t->row_bytes);
}

/* One row as floats. */
static inline void amx_widen(float *out, const struct amx_tile *t, uint32_t row)
{
    uint16_t bits[AMX_ROW_BYTES / 2];
    memcpy(bits, t->at[row], sizeof bits);
    for (int i = 0; i < AMX_ROW_BYTES / 2; i++)
        out[i] = pl_bf16_to_float(bits[i]);
}

/* c (M, N) floats += a (M, 2K) x b, where row k of b holds elements 2k and 2k+1 of each of its N columns. What lies
 * beyond the configured columns is zero and stays zero. */
static inline void amx_multiply(int c_tile, int a_tile, int b_tile)
{
    struct amx_tile *c = amx_tile(c_tile);
    const struct amx_tile *a = amx_tile(a_tile), *b = amx_tile(b_tile);
    const uint32_t pairs = a->row_bytes / 4;
    float wide[AMX_ROWS][AMX_ROW_BYTES / 2], left[AMX_ROW_BYTES / 2], out[AMX_ROW_BYTES / 4];
    pl_assert(c_tile != a_tile && c_tile != b_tile && a_tile != b_tile);
    pl_assert(a->rows == c->rows && b->rows == pairs && b->row_bytes == c->row_bytes);
    for (uint32_t k = 0; k < pairs; k++)
        amx_widen(wide[k], b, k);
    for (uint32_t m = 0; m < c->rows; m++) {
        float even[AMX_ROW_BYTES / 4] = {0}, odd[AMX_ROW_BYTES / 4] = {0};
        amx_widen(left, a, m);
        for (uint32_t k = 0; k < pairs; k++) {
            for (int i = 0; i < AMX_ROW_BYTES / 4; i++) {
                even[i] = fmaf(left[2 * k], wide[k][2 * i], even[i]);
                odd[i] = fmaf(left[2 * k + 1], wide[k][2 * i + 1], odd[i]);
            }
        }
        memcpy(out, c->at[m], sizeof out);
        for (int i = 0; i < AMX_ROW_BYTES / 4; i++)
            out[i] += even[i] + odd[i];
        memcpy(c->at[m], out, sizeof out);
    }
}

/* To the nearest, halves to even; what is below the normal range becomes zero, a NaN stays one. */
static inline __m256i bf16_round(__m512 v)
{
    __m512i bits = _mm512_castps_si512(v),
            odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
    rounded = _mm512_mask_mov_epi32(rounded, _mm512_fpclass_ps_mask(v, 0x81),
                                    _mm512_or_si512(bits, _mm512_set1_epi32(0x400000)));
    rounded = _mm512_mask_and_epi32(rounded, _mm512_fpclass_ps_mask(v, 0x20), bits,
                                    _mm512_set1_epi32((int)0x80000000));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16));
}

static inline __m512i bf16_round2(__m512 high, __m512 low)
{
    return _mm512_inserti64x4(_mm512_castsi256_si512(bf16_round(low)), bf16_round(high), 1);
}

static inline __m512 bf16_dot(__m512 acc, __m512i a, __m512i b)
{
    const __m512i upper = _mm512_set1_epi32((int)0xffff0000);
    __m512 a_odd = _mm512_castsi512_ps(_mm512_and_si512(a, upper)),
           a_even = _mm512_castsi512_ps(_mm512_slli_epi32(a, 16));
    __m512 b_odd = _mm512_castsi512_ps(_mm512_and_si512(b, upper)),
           b_even = _mm512_castsi512_ps(_mm512_slli_epi32(b, 16));
    return _mm512_fmadd_ps(a_odd, b_odd, _mm512_fmadd_ps(a_even, b_even, acc));
}

#undef _mm512_cvtneps_pbh
#undef _mm512_cvtne2ps_pbh
#undef _mm512_dpbf16_ps
#define _mm512_cvtneps_pbh(v) bf16_round(v)
#define _mm512_cvtne2ps_pbh(high, low) bf16_round2(high, low)
#define _mm512_dpbf16_ps(acc, a, b) bf16_dot(acc, (__m512i)(a), (__m512i)(b))

#undef _tile_loadconfig
#undef _tile_release
#undef _tile_zero
#undef _tile_loadd
#undef _tile_stream_loadd
#undef _tile_stored
#undef _tile_dpbf16ps
#define _tile_loadconfig(config) amx_configure(config)
#define _tile_release() amx_release()
#define _tile_zero(tile) amx_zero(tile)
#define _tile_loadd(tile, base, stride) amx_load(tile, base, (size_t)(stride))
#define _tile_stream_loadd(tile, base, stride) amx_load(tile, base, (size_t)(stride))
#define _tile_stored(tile, base, stride) amx_store(tile, base, (size_t)(stride))
#define _tile_dpbf16ps(c, a, b) amx_multiply(c, a, b)

#endif
#endif
