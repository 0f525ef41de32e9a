/* model/cpu/kernel_portable.c - floats throughout, with the vectors any compiler target has. */
#define PL_ACT_BF16 0
#define MM_VECS 2
#define MM_ROWS 4
#include "model/cpu/kernel.h"
#include "model/cpu/mm_simd.inc"

#include "model/cpu/rows.inc"

const struct pl_kernel pl_kernel_portable = {
    .name = "portable",
    .level = PL_CPU_PORTABLE,
    .act_bytes = 4,
    .k_block = 512,
    MM_TABLE,
    PL_ROWS_TABLE,
};
