/* model/cpu/x86/kernel_amx.c - products on AMX tiles: 16 x 16 floats += 16 x 32 by 32 x 16 bfloat16 each 16 cycles.
 *
 * Eight tiles: four of c (32 x 32), two of a, two of b, so that each loaded tile is used twice. The left operand's
 * 32 rows stay in the first-level cache while panels of b stream from the second level.
 *
 * Palette 1 is written down here instead of asked for: CPUID's palette leaves read zero on some virtual machines.
 */
#define PL_ACT_BF16 1
#include "model/cpu/kernel.h"
#include "model/cpu/x86/pack_bf16.inc"

#include "model/cpu/rows.inc"

struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};
_Static_assert(sizeof(struct tile_config) == 64, "the size the instruction reads");

/* All eight tiles full: 16 rows of 64 bytes. Static, because the compiler does not know that the instruction reads it
 * all. */
static const struct tile_config config = {
    .palette = 1,
    .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
    .rows = {16, 16, 16, 16, 16, 16, 16, 16},
};

static void amx_begin(void)
{
    static _Thread_local bool configured;
    if (!configured)
        _tile_loadconfig(&config);
    configured = true;
}

static inline void prefetch_tile(const uint16_t *tile)
{
#pragma GCC unroll 16
    for (size_t row = 0; row < 16; row++)
        _mm_prefetch((const char *)(tile + row * 32), _MM_HINT_T0);
}

enum { SUM_ROWS = 3, SUM_STEPS = 11 }; /* together at least the 32 rows of a block */

/* SUM_ROWS rows of sums are called into the first-level cache. */
static inline void prefetch_sums(const float *sums, size_t ld, uint32_t step)
{
    sums += (size_t)SUM_ROWS * step * ld;
#pragma GCC unroll 3
    for (size_t row = 0; row < SUM_ROWS; row++) {
        __builtin_prefetch(sums + row * ld, 1);
        __builtin_prefetch(sums + row * ld + 16, 1);
    }
}

/* c (32, 32) = or += a (32, k) x one panel. The first two tiles of the next step are loaded before this step's last
 * products: their own last readers are two products back, so that they wait for nobody (docs/speed.md). Meanwhile the next
 * but one block of b comes into the first-level cache, and so does `next`, the sums of the next panel. */
static inline void mm_block(float *c, size_t c_ld, const uint16_t *a, size_t a_ld, const uint16_t *panel,
                            uint32_t k, bool accumulate, const float *next)
{
    size_t c_bytes = c_ld * sizeof *c, a_bytes = a_ld * sizeof *a;
    float *c_low = c + 16 * c_ld;
    const uint16_t *a_low = a + 16 * a_ld;
    if (accumulate) {
        _tile_loadd(0, c, c_bytes);
        _tile_loadd(1, c + 16, c_bytes);
        _tile_loadd(2, c_low, c_bytes);
        _tile_loadd(3, c_low + 16, c_bytes);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    _tile_loadd(4, a, a_bytes);
    _tile_loadd(6, panel, 64);
    for (uint32_t step = 0; step + 1 < k / TILE_K; step++) {
        _tile_loadd(7, panel + BLOCK_VALUES / 2, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(5, a_low, a_bytes);
        prefetch_tile(panel + (size_t)2 * BLOCK_VALUES);
        _tile_dpbf16ps(1, 4, 7);
        a += TILE_K;
        a_low += TILE_K;
        _tile_loadd(4, a, a_bytes);
        _tile_dpbf16ps(2, 5, 6);
        prefetch_tile(panel + (size_t)2 * BLOCK_VALUES + BLOCK_VALUES / 2);
        panel += BLOCK_VALUES;
        _tile_loadd(6, panel, 64);
        _tile_dpbf16ps(3, 5, 7);
        if (step < SUM_STEPS)
            prefetch_sums(next, c_ld, step);
    }
    _tile_loadd(7, panel + BLOCK_VALUES / 2, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(5, a_low, a_bytes);
    prefetch_tile(panel + (size_t)2 * BLOCK_VALUES);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    prefetch_tile(panel + (size_t)2 * BLOCK_VALUES + BLOCK_VALUES / 2);
    _tile_dpbf16ps(3, 5, 7);
    _tile_stored(0, c, c_bytes);
    _tile_stored(1, c + 16, c_bytes);
    _tile_stored(2, c_low, c_bytes);
    _tile_stored(3, c_low + 16, c_bytes);
}

static void mm_product(const struct pl_mm *m)
{
    pl_assert(m->base == NULL || m->base == m->c);
    for (uint32_t row = 0; row < m->m; row += 32)
        for (uint32_t p = 0; p < m->panels; p++) {
            float *c = m->c + (size_t)row * m->c_ld + (size_t)p * PL_PANEL;
            mm_block(c, m->c_ld, (const uint16_t *)m->a + (size_t)row * m->a_ld, m->a_ld,
                     (const uint16_t *)((const char *)m->b + p * m->b_stride), m->k, m->base != NULL,
                     p + 1 < m->panels ? c + PL_PANEL : c);
        }
}

const struct pl_kernel pl_kernel_amx = {
    .name = "amx",
    .level = PL_CPU_AMX,
    .act_bytes = 2,
    .k_block = 384,
    .thread_begin = amx_begin,
    .mm = mm_product,
    PACK_TABLE,
    PL_ROWS_TABLE,
};
