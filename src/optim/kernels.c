/* optim/kernels.c - the loops for any machine, and the choice between the variants.
 *
 * Vectors of 16 bytes are there on every 64-bit machine; elsewhere the compiler makes do.
 */
#include "optim/kernels.h"

#include "base/cpu.h"

#include <math.h>

typedef float vec __attribute__((vector_size(16)));
typedef double wide __attribute__((vector_size(16)));

static inline vec root_of(vec x)
{
    return (vec){sqrtf(x[0]), sqrtf(x[1]), sqrtf(x[2]), sqrtf(x[3])};
}

#define VEC_SQRT root_of
#define KERNELS pl_kernels_portable
#include "optim/kernels.inc"

const struct pl_kernels *pl_kernels(void)
{
#ifdef __x86_64__
    if (pl_cpu_level() >= PL_CPU_AVX512)
        return &pl_kernels_avx512;
    if (pl_cpu_level() >= PL_CPU_AVX2)
        return &pl_kernels_avx2;
#endif
    return &pl_kernels_portable;
}
