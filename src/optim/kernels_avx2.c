/* optim/kernels_avx2.c - the loops with vectors of 8 floats. */
#include <immintrin.h>

typedef __m256 vec;
typedef __m256d wide;
#define VEC_SQRT _mm256_sqrt_ps
#define KERNELS pl_kernels_avx2
#include "optim/kernels.inc"
