/* model/cpu/x86/kernel_avx2.c - floats throughout, for machines with AVX2. */
#define PL_ACT_BF16 0
#define MM_VECS 2
#define MM_ROWS 6
#include "model/cpu/kernel.h"
#include "model/cpu/mm_simd.inc"

#include "model/cpu/rows.inc"

const struct pl_kernel pl_kernel_avx2 = {
    .name = "avx2",
    .level = PL_CPU_AVX2,
    .act_bytes = 4,
    .k_block = 512,
    MM_TABLE,
    PL_ROWS_TABLE,
};
