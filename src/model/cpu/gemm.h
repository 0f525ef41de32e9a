/* model/cpu/gemm.h - whole matrix products: cut into blocks that fit the caches, shared among the threads.
 *
 * Every element of a result is summed by one thread in one order (blocks of k in sequence), whatever the cut.
 */
#ifndef PL_MODEL_CPU_GEMM_H
#define PL_MODEL_CPU_GEMM_H

#include "model/engine.h"

void pl_gemm_linear(struct pl_engine *e, const struct pl_linear *a);
void pl_gemm_linear_dx(struct pl_engine *e, const struct pl_linear *a);
void pl_gemm_linear_dw(struct pl_engine *e, const struct pl_linear_dw *a);
void pl_gemm_matmul(struct pl_engine *e, float *c, const float *a, const float *b, uint32_t m, uint32_t n,
                    uint32_t k, bool b_transposed);

size_t pl_gemm_weight_bytes(const struct pl_kernel *kernel, uint32_t n, uint32_t k);
void pl_gemm_weight_pack(struct pl_engine *e, void *packed, const float *w, uint32_t n, uint32_t k,
                         uint32_t row0, uint32_t rows);

#endif
