/* model/cpu/x86/kernel_bf16.c - AVX-512 dot products of bfloat16 pairs (vdpbf16ps), for machines without AMX on which
 * they are faster than floats (AMD from Zen 4 on). Operands are packed as for AMX. */
#define PL_ACT_BF16 1
#include "model/cpu/kernel.h"
#include "model/cpu/x86/pack_bf16.inc"

#include "model/cpu/rows.inc"

enum { MM_ROWS = 8 };

static inline __m512bh pair_at(const uint16_t *a)
{
    int32_t pair;
    memcpy(&pair, a, sizeof pair);
    return (__m512bh)_mm512_set1_epi32(pair);
}

/* c (MM_ROWS, 32) = or += a (MM_ROWS, k) x one panel. */
static inline __attribute__((always_inline)) void mm_block(float *c, size_t c_ld, const uint16_t *a,
                                                           size_t a_ld, const uint16_t *panel, uint32_t k,
                                                           bool accumulate)
{
    __m512 acc[MM_ROWS][2];
#pragma GCC unroll 8
    for (int r = 0; r < MM_ROWS; r++)
#pragma GCC unroll 2
        for (int v = 0; v < 2; v++)
            acc[r][v] =
                accumulate ? _mm512_loadu_ps(c + (size_t)r * c_ld + (size_t)(v * 16)) : _mm512_setzero_ps();
    for (uint32_t i = 0; i < k; i += TILE_K, panel += BLOCK_VALUES)
        for (size_t ii = 0; ii < TILE_K; ii += 2) {
            __m512bh left = (__m512bh)_mm512_loadu_si512(panel + ii * TILE_COLS);
            __m512bh right = (__m512bh)_mm512_loadu_si512(panel + ii * TILE_COLS + BLOCK_VALUES / 2);
#pragma GCC unroll 8
            for (int r = 0; r < MM_ROWS; r++) {
                __m512bh pair = pair_at(a + (size_t)r * a_ld + i + ii);
                acc[r][0] = _mm512_dpbf16_ps(acc[r][0], pair, left);
                acc[r][1] = _mm512_dpbf16_ps(acc[r][1], pair, right);
            }
        }
#pragma GCC unroll 8
    for (int r = 0; r < MM_ROWS; r++)
#pragma GCC unroll 2
        for (int v = 0; v < 2; v++)
            _mm512_storeu_ps(c + (size_t)r * c_ld + (size_t)(v * 16), acc[r][v]);
}

static void mm_product(const struct pl_mm *m)
{
    pl_assert(m->base == NULL || m->base == m->c);
    for (uint32_t p = 0; p < m->panels; p++) {
        const uint16_t *panel = (const uint16_t *)((const char *)m->b + p * m->b_stride);
        for (uint32_t row = 0; row < m->m; row += MM_ROWS)
            mm_block(m->c + (size_t)row * m->c_ld + (size_t)p * PL_PANEL, m->c_ld,
                     (const uint16_t *)m->a + (size_t)row * m->a_ld, m->a_ld, panel, m->k, m->base != NULL);
    }
}

const struct pl_kernel pl_kernel_bf16 = {
    .name = "bf16",
    .level = PL_CPU_BF16,
    .act_bytes = 2,
    .k_block = 512,
    .mm = mm_product,
    PACK_TABLE,
    PL_ROWS_TABLE,
};
