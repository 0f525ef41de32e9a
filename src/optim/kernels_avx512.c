/* optim/kernels_avx512.c - the loops with vectors of 16 floats. */
#include <immintrin.h>

typedef __m512 vec;
typedef __m512d wide;
#define VEC_SQRT _mm512_sqrt_ps
#define KERNELS pl_kernels_avx512
#include "optim/kernels.inc"
