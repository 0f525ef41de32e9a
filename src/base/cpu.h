/* base/cpu.h - which instructions this machine has, asked once.
 *
 * PELAGO_CPU in the environment lowers the answer ("portable", "avx2", "avx512", "bf16", "amx") for tests and
 * comparisons; it never raises it.
 */
#ifndef PL_BASE_CPU_H
#define PL_BASE_CPU_H

#include <stdbool.h>
#include <stdint.h>

enum pl_cpu_level {
    PL_CPU_PORTABLE = 0, /* whatever the compiler's baseline is */
    PL_CPU_AVX2,         /* AVX2, FMA, F16C */
    PL_CPU_AVX512,       /* F, BW, DQ, VL */
    PL_CPU_BF16,         /* and AVX512_BF16 */
    PL_CPU_AMX,          /* and AMX-TILE, AMX-BF16, with the system's permission to use them */
};

/* The highest level this process may use. Asks the system for AMX's permission on the first call. */
enum pl_cpu_level pl_cpu_level(void);
/* Whether bf16 dot products are worth using without AMX: twice as fast as fp32 on AMD, half as fast on Intel. */
bool pl_cpu_bf16_is_fast(void);
const char *pl_cpu_level_name(enum pl_cpu_level level);
/* False for an unknown name. */
bool pl_cpu_level_of_name(const char *name, enum pl_cpu_level *level);
uint32_t pl_cpu_count(void); /* processors this process may run on */

#endif
