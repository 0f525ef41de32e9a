/* model/cpu/x86/kernel_avx512.c - floats throughout, for machines with AVX512. */
#define PL_ACT_BF16 0
#define MM_VECS 4
#define MM_ROWS 6
#include "model/cpu/kernel.h"
#include "model/cpu/mm_simd.inc"

#include "model/cpu/rows.inc"

const struct pl_kernel pl_kernel_avx512 = {
    .name = "avx512",
    .level = PL_CPU_AVX512,
    .act_bytes = 4,
    .k_block = 128,
    MM_TABLE,
    PL_ROWS_TABLE,
};
