/* model/cpu/kernel.h - what one instruction set must provide; everything above is written once (gemm.c, attention.c,
 * cpu_ops.c) in terms of this table.
 *
 * Matrix products. c (m, n) = a (m, k) x b (k, n), c in floats. The left operand a is row-major activations; the right
 * operand b is packed into panels of PL_PANEL columns, each panel contiguous and k rounded up to k_step, padded with
 * zeros, so that panel j of a matrix with depth k starts at j * pl_panel_bytes(kernel, k).
 *
 * Row kernels work on rows row0 .. row1-1 of the operation's arguments (model/ops.h) in one thread.
 *
 * Two element types (float, bfloat16) and four instruction sets share one source each: rows.inc for row kernels,
 * mm_simd.inc for products in floats. A file such as x86/kernel_avx512.c sets a few macros and includes them.
 */
#ifndef PL_MODEL_CPU_KERNEL_H
#define PL_MODEL_CPU_KERNEL_H

#include "base/cpu.h"
#include "model/ops.h"

enum { PL_PANEL = 32 };

/* c (m, panels * PL_PANEL) = base + a x b; base lies like c. Reads a's rows up to m rounded up to m_step and writes as
 * many rows of c; k is a multiple of k_step, and not 0. b_stride: bytes from panel to panel. */
struct pl_mm {
    float *c;
    size_t c_ld;
    const void *a;
    size_t a_ld;
    const void *b;
    size_t b_stride;
    uint32_t m, panels, k;
    const float *base; /* NULL: nothing is added. In bfloat16 otherwise c itself; in floats anything */
};

/* Scores to probabilities, for q_rows query rows of one head. Row i may see visible(i) = first_visible + i keys. */
struct pl_softmax {
    float *s; /* (q_rows, s_ld) raw scores */
    size_t s_ld;
    void *p; /* act (q_rows, p_ld): exp(scale * s - max), zero from visible(i) up to cols */
    size_t p_ld;
    uint32_t q_rows, cols, first_visible;
    float scale;
    float *lse; /* (q_rows) */
    float *inv; /* (q_rows) 1 / sum */
};

/* The same rows going back. p = exp(scale * s - lse); ds = p * (dp - delta) * scale; both zero where not visible. */
struct pl_softmax_dx {
    const float *s, *dp; /* (q_rows, s_ld) */
    size_t s_ld;
    void *p, *ds; /* act (q_rows, p_ld) */
    size_t p_ld;
    uint32_t q_rows, cols, first_visible;
    float scale;
    const float *lse, *delta; /* (q_rows) */
};

struct pl_kernel {
    const char *name;
    enum pl_cpu_level level;
    uint32_t act_bytes; /* 4 or 2 */
    uint32_t m_step;    /* rows of one block of a and c */
    uint32_t m_block;   /* rows that one product had best be given at a time, a multiple of m_step */
    uint32_t n_step;    /* panels that are multiplied side by side */
    uint32_t k_step;    /* depth of a panel is rounded up to this */
    uint32_t
        k_block; /* depth after which a long product pauses to keep its operands in the first-level cache */

    void (*thread_begin)(void); /* NULL, or in each thread before its first product; cheap when repeated */
    /* b (k, cols) packed from x (cols, k) row-major: b is x transposed; or from x (k, cols): b is x. cols <= PL_PANEL:
     * one panel, missing columns zero. x is act, or float in the _f32 forms, which may write past the cache. */
    void (*pack_t)(void *panel, const void *x, size_t ld, uint32_t cols, uint32_t k);
    void (*pack_n)(void *panel, const void *x, size_t ld, uint32_t cols, uint32_t k);
    void (*pack_t_f32)(void *panel, const float *x, size_t ld, uint32_t cols, uint32_t k, bool past_cache);
    void (*pack_n_f32)(void *panel, const float *x, size_t ld, uint32_t cols, uint32_t k, bool past_cache);
    /* a (m, k) with stride a_ld from act x (k, m) row-major: a is x transposed. Rows and columns missing from a full
     * block (m to m_step, k to k_step) become zero. */
    void (*transpose)(void *a, size_t a_ld, const void *x, size_t ld, uint32_t m, uint32_t k);
    /* out (cols, rows) = in (rows, cols) transposed, floats. */
    void (*turn_f32)(float *out, size_t out_ld, const float *in, size_t in_ld, uint32_t rows, uint32_t cols);
    void (*mm)(const struct pl_mm *a);

    void (*norm)(const struct pl_norm *a, uint32_t row0, uint32_t row1);
    /* dw (c) receives the sum over these rows only (overwritten); the caller adds the parts in order. */
    void (*norm_dx)(const struct pl_norm_dx *a, uint32_t row0, uint32_t row1, float *dw);
    void (*rotary)(const struct pl_rotary *a, uint32_t row0, uint32_t row1);
    /* dqk_w (2 * D): parts of dq_w then dk_w, overwritten; NULL without norm. */
    void (*rotary_dx)(const struct pl_rotary_dx *a, uint32_t row0, uint32_t row1, float *dqk_w);
    void (*swiglu)(const struct pl_swiglu *a, uint32_t row0, uint32_t row1);
    void (*swiglu_dx)(const struct pl_swiglu_dx *a, uint32_t row0, uint32_t row1);
    void (*xent)(const struct pl_xent *a, uint32_t row0, uint32_t row1);
    void (*softmax)(const struct pl_softmax *a);
    void (*softmax_dx)(const struct pl_softmax_dx *a);

    /* Plain rows: out = in; out (act) = in * factor; sum += in; dot[i] = sum(a[i] * b[i]) of act rows. */
    void (*to_act)(void *out, size_t out_ld, const float *in, size_t in_ld, uint32_t rows, uint32_t c);
    void (*to_f32)(float *out, size_t out_ld, const void *in, size_t in_ld, uint32_t rows, uint32_t c);
    void (*scale_to_act)(void *out, size_t out_ld, const float *in, size_t in_ld, const float *factor,
                         uint32_t rows, uint32_t c); /* factor (rows) */
    void (*sum_f32)(float *out, size_t out_ld, const float *base, size_t base_ld, const float *in,
                    size_t in_ld, uint32_t rows, uint32_t c); /* out = base + in */
    void (*copy_past)(float *out, size_t out_ld, const float *in, size_t in_ld, uint32_t rows,
                      uint32_t c); /* out = in, past the cache */
    void (*fence)(void);           /* after writing past the cache, before another thread may read it; */
    void (*dot)(float *dot, const void *a, const void *b, size_t ld, uint32_t rows, uint32_t c);
    /* Rows row0 .. row1-1 of the weight: y (rows, n) columns row0 .. row1-1. */
    void (*gemv)(float *y, const float *x, const uint16_t *w, uint32_t rows, uint32_t n, uint32_t k,
                 uint32_t row0, uint32_t row1);
    void (*decode)(const struct pl_decode *a, uint32_t head0, uint32_t head1);
};

static inline uint32_t pl_round_up(uint32_t x, uint32_t step)
{
    return (x + step - 1) / step * step;
}

static inline size_t pl_panel_bytes(const struct pl_kernel *kernel, uint32_t k)
{
    return (size_t)PL_PANEL * pl_round_up(k, kernel->k_step) * kernel->act_bytes;
}

extern const struct pl_kernel pl_kernel_portable;
extern const struct pl_kernel pl_kernel_avx2;
extern const struct pl_kernel pl_kernel_avx512;
extern const struct pl_kernel pl_kernel_bf16;
extern const struct pl_kernel pl_kernel_amx;

#endif
