/* optim/muon.h - Muon: momentum whose direction is made orthogonal, for matrices (K. Jordan and others, 2024).
 *
 *   m <- mu * m + (1 - mu) * g                 momentum, the only state
 *   u  = mu * m + (1 - mu) * g                 Nesterov's look ahead
 *   x  = u / |u|, then five times x <- (a + b x x^T + c (x x^T)^2) x    (Newton-Schulz)
 *   p <- p * (1 - lr * weight_decay) - lr * 0.2 * sqrt(max(rows, cols)) * x
 *
 * The coefficients are chosen for speed, not for a limit of 1: the singular values of x end between about 0.7 and 1.2.
 * With the factor the update is about as long as AdamW's (arXiv 2502.16982), so that learning rates carry over. A
 * matrix with more rows than columns is transposed on the way, which makes x x^T the smaller of the two products.
 *
 * Nearly all the work is in the matrix products, which the caller's back end does with its own threads. The other
 * parts work on blocks of rows and may be called from tasks of a pool; only pl_muon_orthogonalize uses the pool itself.
 */
#ifndef PL_OPTIM_MUON_H
#define PL_OPTIM_MUON_H

#include "base/pool.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pl_muon_math {
    /* c (m, n) = a (m, k) x b (k, n), or x b^T with b (n, k). c overlaps neither. The same bits every time. */
    void (*matmul)(void *self, float *c, const float *a, const float *b, uint32_t m, uint32_t n, uint32_t k,
                   bool b_transposed);
    /* x (r, c), r <= c, in place: x <- (poly[0] + poly[1] x x^T + poly[2] (x x^T)^2) x, so many times. NULL or false: it is
     * made of matmul here. */
    bool (*polynomial)(void *self, float *x, uint32_t r, uint32_t c, const float *poly, uint32_t times);
    void *self;
};

/* What one step does to one matrix. */
struct pl_muon_step {
    uint32_t rows, cols;
    float momentum;   /* mu, 0 up to below 1 */
    float grad_scale; /* multiplied into the gradient on the way */
    float keep;       /* 1 - lr * weight_decay */
    float step_size;  /* lr * 0.2 * sqrt(max(rows, cols)) */
};

struct pl_muon_step pl_muon_step(uint32_t rows, uint32_t cols, float momentum, float lr, float weight_decay,
                                 float grad_scale);

/* Momentum on n values; returns the sum of the squares of u. */
double pl_muon_momentum(const struct pl_muon_step *s, float *m, const float *g, size_t n);

/* Rows row0 .. row0 + rows - 1 of x = u * scale, into the matrix x: (rows, cols), or (cols, rows) where it is tall.
 * m and g are the whole matrices. Distinct rows may be written at the same time. */
void pl_muon_direction(const struct pl_muon_step *s, const float *m, const float *g, uint32_t row0,
                       uint32_t rows, float scale, float *x);

/* What u of that length is multiplied with. The zero vector stays zero. */
float pl_muon_scale(double norm);

/* Floats of scratch for one matrix: room for x and for pl_muon_orthogonalize. */
uint64_t pl_muon_scratch_floats(uint32_t rows, uint32_t cols);

/* x lies at the start of scratch, as pl_muon_direction wrote it; returns where its orthogonal version lies, in scratch
 * too and of the same shape. */
const float *pl_muon_orthogonalize(const struct pl_muon_step *s, const struct pl_muon_math *math,
                                   struct pl_pool *pool, float *scratch);

/* The update of rows row0 .. row0 + rows - 1 of the matrix p. */
void pl_muon_apply(const struct pl_muon_step *s, float *p, const float *x, uint32_t row0, uint32_t rows);

#endif
