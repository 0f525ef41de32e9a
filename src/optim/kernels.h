/* optim/kernels.h - the loops over parameters that exist once per instruction set; for this folder and its tests only.
 *
 * Every variant gives the same bits: elements are independent or summed in a fixed number of lanes, and the operations
 * are + - * / sqrt and conversions, all correctly rounded and never contracted. A variant may be entered only on a
 * machine that has its instructions (base/cpu.h); those of x86 do not exist elsewhere.
 */
#ifndef PL_OPTIM_KERNELS_H
#define PL_OPTIM_KERNELS_H

#include "optim/adamw.h"

struct pl_kernels {
    /* See adamw.h. */
    void (*adamw)(const struct pl_adamw_step *s, float *p, float *m, float *v, const float *g, size_t n);
    /* See norm.h. */
    double (*sumsq)(const float *g, size_t n);
    /* out = a * x + b * y; out may be x or y. */
    void (*blend)(float *out, float a, const float *x, float b, const float *y, size_t n);
};

extern const struct pl_kernels pl_kernels_portable, pl_kernels_avx2, pl_kernels_avx512;

/* The fastest that this machine can run. */
const struct pl_kernels *pl_kernels(void);

#endif
