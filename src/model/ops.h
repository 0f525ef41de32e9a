/* model/ops.h - the operations a back end provides; forward and backward are written in terms of these.
 *
 * Activations ("act") are row-major matrices of floats or of bfloat16, as the back end likes (act_bytes); the stream
 * between the layers (the residual), its gradient, all statistics, parameters and gradients of parameters are floats.
 * A row stride ("ld") counts elements. Rows may be padded (pl_act_ld), and every act buffer has PL_ACT_SLACK readable
 * rows after its last one: blocks of a matrix product may read, never write, beyond the end.
 *
 * Results depend on the arguments alone: not on the number of threads, not on earlier calls. All memory is the
 * caller's, except for scratch that the engine owns. No operation can fail.
 *
 * A back end on a device of its own (a GPU) says so with `device`: then memory comes from there, operations may still be
 * under way when they return, and the host reads results only after finish. Tokens and targets are the host's always.
 */
#ifndef PL_MODEL_OPS_H
#define PL_MODEL_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pl_engine; /* a back end's state: threads, scratch, choice of kernels (model/engine.h) */

enum { PL_ACT_SLACK = 64, PL_PACK_ROWS = 32, PL_LOGIT_ROWS = 512 };

/* Where a product goes. */
enum pl_out {
    PL_OUT_ACT = 1, /* stored as activations */
    PL_OUT_F32,     /* stored as floats */
    PL_OUT_SUM,     /* floats: out = base + product; base may be out itself */
};

/* out (rows, n) = in (rows, k) x W^T, or for dx: out (rows, k) = in (rows, n) x W. W (n, k) is packed. */
struct pl_linear {
    uint32_t rows, n, k;
    const void *weight; /* packed by weight_pack */
    const void *in;     /* act */
    size_t in_ld;
    void *out;
    size_t out_ld;
    enum pl_out kind;
    const float *base; /* PL_OUT_SUM, same ld as out */
};

/* dw (n, k) =  or += dout (rows, n)^T x in (rows, k) */
struct pl_linear_dw {
    uint32_t rows, n, k;
    const void *dout; /* act */
    size_t dout_ld;
    const void *in; /* act */
    size_t in_ld;
    float *dw; /* (n, k) without padding */
    bool accumulate;
};

/* y = x * rstd * w with rstd = 1 / sqrt(mean(x^2) + eps), row by row. */
struct pl_norm {
    uint32_t rows, c;
    const float *x; /* (rows, c) without padding */
    const float *w; /* (c) */
    void *y;        /* act */
    size_t y_ld;
    float *rstd; /* (rows) */
    float eps;
};

/* dx += gradient through the norm; dw = or += its gradient; dx_act (may be NULL) = dx after the addition, as act. */
struct pl_norm_dx {
    uint32_t rows, c;
    const void *dy; /* act */
    size_t dy_ld;
    const float *x;
    const float *w;
    const float *rstd;
    float *dx;       /* (rows, c) */
    float *dw;       /* (c) */
    bool accumulate; /* of dw; dx always accumulates */
    void *dx_act;
    size_t dx_act_ld;
};

/* Queries, keys and values of one row lie side by side: H*D, G*D, G*D values. The first H + G heads are normed (where
 * q_w is not NULL) and turned by their position, which is row % seq; values are copied when out is not in. Rotation in
 * halves: pair i is (x[i], x[i + D/2]), angle position * theta^(-2i/D). The table holds (seq, D/2) cos then sin. */
struct pl_rotary {
    uint32_t rows, seq, heads, kv_heads, head_dim;
    const void *in;         /* act */
    void *out;              /* act; may be in when there is no norm */
    size_t ld;              /* of both */
    const float *cos, *sin; /* (seq, D/2) each */
    const float *q_w, *k_w; /* (D) each or both NULL */
    float *rstd;            /* (rows, H + G) when normed, else NULL */
    float eps;
};

/* d (rows, ld): gradient of out on entry, of in on return. */
struct pl_rotary_dx {
    uint32_t rows, seq, heads, kv_heads, head_dim;
    void *d;        /* act */
    const void *in; /* the forward input; used when normed only */
    size_t ld;
    const float *cos, *sin;
    const float *q_w, *k_w, *rstd;
    float *dq_w, *dk_w; /* (D) each, or NULL */
    bool accumulate;    /* of dq_w, dk_w */
};

/* Causal softmax attention with scale 1/sqrt(D); head h reads key/value head h / (H/G). */
struct pl_attention {
    uint32_t batch, seq, heads, kv_heads, head_dim;
    const void *qkv; /* act (batch*seq, (H + 2G) * D), turned */
    size_t qkv_ld;
    void *out; /* act (batch*seq, H*D) */
    size_t out_ld;
    float *lse; /* (batch, H, seq) log of the sum of exponentials of the scaled scores */
};

struct pl_attention_dx {
    uint32_t batch, seq, heads, kv_heads, head_dim;
    const void *qkv;
    size_t qkv_ld;
    const void *out;
    size_t out_ld; /* also of dout */
    const float *lse;
    const void *dout;
    void *dqkv; /* act, same ld as qkv; all of it is written */
};

/* h = silu(gate) * up; gate and up lie side by side in a row of gu: F, F. */
struct pl_swiglu {
    uint32_t rows, f;
    const void *gu; /* act */
    size_t gu_ld;
    void *h; /* act */
    size_t h_ld;
};

/* dgu from dh; h is computed again on the way, so that nobody has to keep it. dgu may be gu. */
struct pl_swiglu_dx {
    uint32_t rows, f;
    const void *gu;
    size_t gu_ld;
    const void *dh;
    size_t dh_ld; /* also of h */
    void *dgu;    /* act, ld of gu */
    void *h;      /* act, written; may be dh */
};

/* Cross-entropy of one block of rows. On return logits hold scale * d loss / d logits (when scale is not 0), where
 * loss = -log p(target) + z * lse^2. A target below 0 is ignored: loss 0, gradient 0. */
struct pl_xent {
    uint32_t rows, vocab;
    void *logits; /* act, or floats when logits_f32 */
    size_t ld;
    bool logits_f32;
    const int32_t *targets;
    float *loss; /* (rows) -log p(target), without the z term */
    float scale, z;
};

/* Keys and values of the tokens so far, bfloat16, one cache a layer. Keys of a block of positions lie transposed, so that
 * a vector holds the same value of neighbouring positions. */
enum { PL_KV_BLOCK = 16 };

/* Attention of new tokens over the cache: query `row` is at position past + row and sees positions 0 .. past + row, which
 * are in the cache, its own included. Scale and heads as in pl_attention. */
struct pl_decode {
    uint32_t rows, past, heads, kv_heads, head_dim;
    const float *q; /* (rows, H*D), turned */
    size_t q_ld;
    const uint16_t *keys;   /* (G, room / PL_KV_BLOCK, D, PL_KV_BLOCK) */
    const uint16_t *values; /* (G, room, D) */
    uint32_t room;          /* positions there is memory for, a multiple of PL_KV_BLOCK */
    float *out;             /* (rows, H*D) */
    size_t out_ld;
};

/* Who may touch memory of a back end with a device. */
enum pl_memory {
    PL_MEMORY_OWN = 1, /* operations alone */
    PL_MEMORY_SHARED,  /* the host, too; far away for operations: losses */
    PL_MEMORY_PARAMS,  /* the host, too: operations read a copy, which begin takes */
    PL_MEMORY_GRADS,   /* the host, too: operations write a copy, of which home brings parts back */
};

/* Of an engine whose operations run on a device. Failures are told to the engine (pl_engine_fail) and stay. */
struct pl_device {
    bool (*open)(struct pl_engine *e);
    void (*close)(struct pl_engine *e);
    void *(*memory)(struct pl_engine *e, size_t bytes, enum pl_memory kind); /* zeroed, or NULL */
    void (*memory_free)(struct pl_engine *e, void *at, enum pl_memory kind);
    void (*zero)(struct pl_engine *e, void *at, size_t bytes);
    void (*put)(
        struct pl_engine *e, void *at, const void *from,
        size_t bytes); /* between the host and any memory, or from one to another; done when it returns */
    void (*begin)(struct pl_engine *e); /* parameters may have changed; weight_pack has said so */
    void (*home)(struct pl_engine *e, void *grads, size_t bytes); /* this part, until the next finish */
    void (*finish)(struct pl_engine *e); /* all operations are done and their results are here */
    /* x (r, c), r <= c, floats of the host, in place: x <- (poly[0] + poly[1] x x^T + poly[2] (x x^T)^2) x so many times.
     * False: x is as it was, because it is so small that the processor is faster, or because something failed. */
    bool (*polynomial)(struct pl_engine *e, float *x, uint32_t r, uint32_t c, const float *poly,
                       uint32_t times);
};

struct pl_ops {
    size_t act_bytes;               /* 4 float, 2 bfloat16 */
    uint32_t logit_rows;            /* logits that are made at a time */
    const struct pl_device *device; /* NULL: the processor */

    /* Packed weights: bytes for a matrix (n, k), and packing of rows row0 .. row0 + rows - 1, where row0 is a multiple
     * of PL_PACK_ROWS and so is rows unless they are the last. Packing uses one thread: call it inside a task. */
    size_t (*weight_bytes)(const struct pl_engine *e, uint32_t n, uint32_t k);
    void (*weight_pack)(struct pl_engine *e, void *packed, const float *w, uint32_t n, uint32_t k,
                        uint32_t row0, uint32_t rows);

    void (*linear)(struct pl_engine *e, const struct pl_linear *a);
    void (*linear_dx)(struct pl_engine *e, const struct pl_linear *a);
    void (*linear_dw)(struct pl_engine *e, const struct pl_linear_dw *a);
    void (*norm)(struct pl_engine *e, const struct pl_norm *a);
    void (*norm_dx)(struct pl_engine *e, const struct pl_norm_dx *a);
    void (*rotary)(struct pl_engine *e, const struct pl_rotary *a);
    void (*rotary_dx)(struct pl_engine *e, const struct pl_rotary_dx *a);
    void (*attention)(struct pl_engine *e, const struct pl_attention *a);
    void (*attention_dx)(struct pl_engine *e, const struct pl_attention_dx *a);
    void (*swiglu)(struct pl_engine *e, const struct pl_swiglu *a);
    void (*swiglu_dx)(struct pl_engine *e, const struct pl_swiglu_dx *a);
    void (*xent)(struct pl_engine *e, const struct pl_xent *a);
    /* x (rows, c) = table[tokens[row]]; dtable[tokens[row]] += dx[row]. */
    void (*embed)(struct pl_engine *e, float *x, const float *table, const int32_t *tokens, uint32_t rows,
                  uint32_t c);
    void (*embed_dw)(struct pl_engine *e, float *dtable, const float *dx, const int32_t *tokens,
                     uint32_t rows, uint32_t c);
    /* floats (rows, c) to act and back. */
    void (*to_act)(struct pl_engine *e, void *out, size_t out_ld, const float *in, uint32_t rows, uint32_t c);
    void (*to_f32)(struct pl_engine *e, float *out, const void *in, size_t in_ld, uint32_t rows, uint32_t c);
    /* c (m, n) = a (m, k) x b (k, n), or x b^T with b (n, k); floats without padding, in the back end's precision.
     * For Muon. */
    void (*matmul)(struct pl_engine *e, float *c, const float *a, const float *b, uint32_t m, uint32_t n,
                   uint32_t k, bool b_transposed);
    /* y (rows, n) = x (rows, k) x W^T with W bfloat16 row-major and rows small: one token at a time reads every
     * weight once, so this runs at the speed of memory. */
    void (*gemv)(struct pl_engine *e, float *y, const float *x, const uint16_t *w, uint32_t rows, uint32_t n,
                 uint32_t k);
    void (*decode)(struct pl_engine *e, const struct pl_decode *a);
};

/* Padded row length for c columns: a multiple of 32 that is no multiple of 1024, so that the rows of a block do not
 * fall on the same cache lines' sets. */
static inline size_t pl_act_ld(uint32_t c)
{
    size_t ld = ((size_t)c + 31) / 32 * 32;
    return ld % 512 == 0 && ld >= 1024 ? ld + 32 : ld;
}

#endif
