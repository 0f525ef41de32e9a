/* model/cpu/attention.c - one task is one key/value head of one sequence with all query heads that read it.
 *
 * Keys and values of the head are packed once. Then QUERY_BLOCK rows of queries at a time meet all keys they may see:
 * scores (QUERY_BLOCK, T) in scratch, softmax over whole rows, product with the values. The way back computes the
 * scores again from the saved log-sum (Dao et al., FlashAttention 2) and adds up the gradients of keys and values in
 * floats, query block after query block, so that their order is fixed.
 */
#include "model/cpu/attention.h"

#include "base/check.h"
#include "base/num.h"
#include "model/cpu/kernel.h"
#include "model/cpu/run.h"

#include <math.h>
#include <string.h>

enum { QUERY_BLOCK = 64 };

/* The dimensions both directions share. */
struct shape {
    const struct pl_kernel *kernel;
    uint32_t batch, seq, heads, kv_heads, head_dim;
    uint32_t group;      /* query heads per key/value head */
    uint32_t dim_panels; /* panels of D columns */
    uint32_t key_panels; /* panels of T columns */
    uint32_t depth_dim;  /* D rounded to the kernel's step */
    uint32_t depth_keys; /* T likewise */
    uint32_t score_ld;   /* floats of a row of scores */
    uint32_t dim_ld;     /* floats of a row of a product with D columns */
    float scale;
};

static struct shape shape_of(const struct pl_engine *e, uint32_t batch, uint32_t seq, uint32_t heads,
                             uint32_t kv_heads, uint32_t head_dim)
{
    const struct pl_kernel *kernel = e->kernel;
    uint32_t key_panels = (seq + PL_PANEL - 1) / PL_PANEL, dim_panels = (head_dim + PL_PANEL - 1) / PL_PANEL;
    return (struct shape){
        .kernel = kernel,
        .batch = batch,
        .seq = seq,
        .heads = heads,
        .kv_heads = kv_heads,
        .head_dim = head_dim,
        .group = heads / kv_heads,
        .dim_panels = dim_panels,
        .key_panels = key_panels,
        .depth_dim = pl_round_up(head_dim, kernel->k_step),
        .depth_keys = pl_round_up(seq, kernel->k_step),
        .score_ld = key_panels * PL_PANEL + 16,
        .dim_ld = dim_panels * PL_PANEL,
        .scale = 1.0f / sqrtf((float)head_dim),
    };
}

/* Scratch is taken piece by piece; with at == NULL only the sum is made. */
struct taker {
    char *at;
    size_t used;
};

static void *take(struct taker *t, size_t bytes)
{
    void *piece = t->at != NULL ? t->at + t->used : NULL;
    t->used += (bytes + 63) / 64 * 64;
    return piece;
}

/* A left operand whose depth is no multiple of the kernel's step is copied, padded with zeros. */
static const void *left_operand(const struct shape *s, const void *x, size_t *ld, uint32_t rows, void *copy)
{
    size_t bytes = s->kernel->act_bytes, row_bytes = s->depth_dim * bytes;
    if (s->depth_dim == s->head_dim)
        return x;
    for (uint32_t r = 0; r < rows; r++) {
        char *to = (char *)copy + r * row_bytes;
        memcpy(to, (const char *)x + r * *ld * bytes, s->head_dim * bytes);
        memset(to + s->head_dim * bytes, 0, row_bytes - s->head_dim * bytes);
    }
    *ld = s->depth_dim;
    return copy;
}

/* b (D, keys): panels of 32 keys. */
static void pack_rows_t(const struct shape *s, char *to, const char *x, size_t ld)
{
    for (uint32_t key = 0; key < s->seq; key += PL_PANEL, to += pl_panel_bytes(s->kernel, s->head_dim))
        s->kernel->pack_t(to, x + key * ld * s->kernel->act_bytes, ld, pl_min32(PL_PANEL, s->seq - key),
                          s->head_dim);
}

/* b (rows, D): panels of 32 values. */
static void pack_rows_n(const struct shape *s, char *to, const char *x, size_t ld, uint32_t rows)
{
    for (uint32_t d = 0; d < s->head_dim; d += PL_PANEL, to += pl_panel_bytes(s->kernel, rows))
        s->kernel->pack_n(to, x + (size_t)d * s->kernel->act_bytes, ld, pl_min32(PL_PANEL, s->head_dim - d),
                          rows);
}

/* scores (rows, keys) = x (rows, D) x packed keys. */
static void times_keys(const struct shape *s, float *scores, const void *x, size_t ld, uint32_t rows,
                       uint32_t keys, const void *packed)
{
    s->kernel->mm(&(struct pl_mm){.c = scores,
                                  .c_ld = s->score_ld,
                                  .a = x,
                                  .a_ld = ld,
                                  .b = packed,
                                  .b_stride = pl_panel_bytes(s->kernel, s->head_dim),
                                  .m = rows,
                                  .panels = (keys + PL_PANEL - 1) / PL_PANEL,
                                  .k = s->depth_dim});
}

/* c (rows, D) = or += a (rows, depth) x packed (depth_of_panel, D). */
static void times_rows(const struct shape *s, float *c, const void *a, size_t a_ld, uint32_t rows,
                       uint32_t depth, const void *packed, uint32_t depth_of_panel, bool accumulate)
{
    s->kernel->mm(&(struct pl_mm){.c = c,
                                  .c_ld = s->dim_ld,
                                  .a = a,
                                  .a_ld = a_ld,
                                  .b = packed,
                                  .b_stride = pl_panel_bytes(s->kernel, depth_of_panel),
                                  .m = rows,
                                  .panels = s->dim_panels,
                                  .k = pl_round_up(depth, s->kernel->k_step),
                                  .base = accumulate ? c : NULL});
}

static size_t panels_t_bytes(const struct shape *s)
{
    return s->key_panels * pl_panel_bytes(s->kernel, s->head_dim);
}

static size_t panels_n_bytes(const struct shape *s, uint32_t rows)
{
    return s->dim_panels * pl_panel_bytes(s->kernel, rows);
}

struct forward_scratch {
    char *keys, *values, *left, *probs;
    float *scores, *product, *inv;
};

static size_t take_forward(const struct shape *s, char *memory, struct forward_scratch *f)
{
    struct taker t = {.at = memory};
    size_t act = s->kernel->act_bytes;
    f->keys = take(&t, panels_t_bytes(s));
    f->values = take(&t, panels_n_bytes(s, s->seq));
    f->left = take(&t, (size_t)QUERY_BLOCK * s->depth_dim * act);
    f->probs = take(&t, QUERY_BLOCK * (size_t)s->score_ld * act);
    f->scores = take(&t, QUERY_BLOCK * (size_t)s->score_ld * sizeof(float));
    f->product = take(&t, QUERY_BLOCK * (size_t)s->dim_ld * sizeof(float));
    f->inv = take(&t, QUERY_BLOCK * sizeof(float));
    return t.used;
}

struct forward {
    const struct pl_engine *e;
    const struct pl_attention *a;
    struct shape s;
};

static void forward_block(const struct forward *f, const struct forward_scratch *w, uint32_t b, uint32_t h,
                          uint32_t q0)
{
    const struct shape *s = &f->s;
    const struct pl_attention *a = f->a;
    uint32_t rows = pl_min32(QUERY_BLOCK, s->seq - q0), keys = q0 + rows;
    size_t row = (size_t)b * s->seq + q0, ld = a->qkv_ld, act = s->kernel->act_bytes;
    const char *q = (const char *)a->qkv + (row * a->qkv_ld + (size_t)h * s->head_dim) * act;
    const void *left = left_operand(s, q, &ld, rows, w->left);
    times_keys(s, w->scores, left, ld, rows, keys, w->keys);
    s->kernel->softmax(&(struct pl_softmax){.s = w->scores,
                                            .s_ld = s->score_ld,
                                            .p = w->probs,
                                            .p_ld = s->score_ld,
                                            .q_rows = rows,
                                            .cols = pl_round_up(keys, s->kernel->k_step),
                                            .first_visible = q0 + 1,
                                            .scale = s->scale,
                                            .lse = a->lse + ((size_t)b * s->heads + h) * s->seq + q0,
                                            .inv = w->inv});
    times_rows(s, w->product, w->probs, s->score_ld, rows, keys, w->values, s->seq, false);
    s->kernel->scale_to_act((char *)a->out + (row * a->out_ld + (size_t)h * s->head_dim) * act, a->out_ld,
                            w->product, s->dim_ld, w->inv, rows, s->head_dim);
}

static void forward_task(void *user, uint32_t task, uint32_t thread)
{
    const struct forward *f = user;
    const struct shape *s = &f->s;
    uint32_t b = task / s->kv_heads, g = task % s->kv_heads;
    struct forward_scratch w;
    size_t act = s->kernel->act_bytes;
    const char *first = (const char *)f->a->qkv + (size_t)b * s->seq * f->a->qkv_ld * act;
    (void)take_forward(s, pl_engine_thread_scratch(f->e, thread), &w);
    pack_rows_t(s, w.keys, first + (size_t)(s->heads + g) * s->head_dim * act, f->a->qkv_ld);
    pack_rows_n(s, w.values, first + (size_t)(s->heads + s->kv_heads + g) * s->head_dim * act, f->a->qkv_ld,
                s->seq);
    for (uint32_t h = g * s->group; h < (g + 1) * s->group; h++)
        for (uint32_t q0 = 0; q0 < s->seq; q0 += QUERY_BLOCK)
            forward_block(f, &w, b, h, q0);
}

void pl_cpu_attention(struct pl_engine *e, const struct pl_attention *a)
{
    struct forward f = {e, a, shape_of(e, a->batch, a->seq, a->heads, a->kv_heads, a->head_dim)};
    struct forward_scratch w;
    if (pl_engine_reserve(e, take_forward(&f.s, NULL, &w), 0))
        pl_cpu_run(e, a->batch * a->kv_heads, forward_task, &f);
}

struct back_scratch {
    char *keys_t, *values_t, *keys_n; /* packed once a head */
    char *left, *probs, *dscores;     /* per block of queries */
    char *rows_n, *turned;
    float *scores, *dprobs, *product, *delta;
    float *dkeys, *dvalues; /* sums over all queries, (T, D) */
};

static size_t take_back(const struct shape *s, char *memory, struct back_scratch *f)
{
    struct taker t = {.at = memory};
    size_t act = s->kernel->act_bytes, keys = (size_t)s->key_panels * PL_PANEL;
    f->keys_t = take(&t, panels_t_bytes(s));
    f->values_t = take(&t, panels_t_bytes(s));
    f->keys_n = take(&t, panels_n_bytes(s, s->seq));
    f->left = take(&t, (size_t)QUERY_BLOCK * s->depth_dim * act);
    f->probs = take(&t, QUERY_BLOCK * (size_t)s->score_ld * act);
    f->dscores = take(&t, QUERY_BLOCK * (size_t)s->score_ld * act);
    f->rows_n = take(&t, panels_n_bytes(s, QUERY_BLOCK));
    f->turned = take(&t, (keys + PL_PANEL) * QUERY_BLOCK * act);
    f->scores = take(&t, QUERY_BLOCK * (size_t)s->score_ld * sizeof(float));
    f->dprobs = take(&t, QUERY_BLOCK * (size_t)s->score_ld * sizeof(float));
    f->product = take(&t, QUERY_BLOCK * (size_t)s->dim_ld * sizeof(float));
    f->delta = take(&t, QUERY_BLOCK * sizeof(float));
    f->dkeys = take(&t, keys * s->dim_ld * sizeof(float));
    f->dvalues = take(&t, keys * s->dim_ld * sizeof(float));
    return t.used;
}

struct back {
    const struct pl_engine *e;
    const struct pl_attention_dx *a;
    struct shape s;
};

/* sum (keys, D) += x (rows, keys)^T x y (rows, D). */
static void add_turned(const struct shape *s, const struct back_scratch *w, float *sum, const void *x,
                       const char *y, size_t y_ld, uint32_t rows, uint32_t keys)
{
    pack_rows_n(s, w->rows_n, y, y_ld, rows);
    s->kernel->transpose(w->turned, QUERY_BLOCK, x, s->score_ld, keys, rows);
    times_rows(s, sum, w->turned, QUERY_BLOCK, keys, rows, w->rows_n, rows, true);
}

static void back_block(const struct back *f, const struct back_scratch *w, uint32_t b, uint32_t h,
                       uint32_t q0)
{
    const struct shape *s = &f->s;
    const struct pl_attention_dx *a = f->a;
    uint32_t rows = pl_min32(QUERY_BLOCK, s->seq - q0), keys = q0 + rows;
    size_t row = (size_t)b * s->seq + q0, act = s->kernel->act_bytes, q_ld = a->qkv_ld, d_ld = a->out_ld;
    size_t q_at = (row * a->qkv_ld + (size_t)h * s->head_dim) * act;
    size_t o_at = (row * a->out_ld + (size_t)h * s->head_dim) * act;
    const char *q = (const char *)a->qkv + q_at, *dout = (const char *)a->dout + o_at;

    const void *left = left_operand(s, q, &q_ld, rows, w->left);
    times_keys(s, w->scores, left, q_ld, rows, keys, w->keys_t);
    left = left_operand(s, dout, &d_ld, rows, w->left);
    times_keys(s, w->dprobs, left, d_ld, rows, keys, w->values_t);
    s->kernel->dot(w->delta, dout, (const char *)a->out + o_at, a->out_ld, rows, s->head_dim);
    s->kernel->softmax_dx(&(struct pl_softmax_dx){.s = w->scores,
                                                  .dp = w->dprobs,
                                                  .s_ld = s->score_ld,
                                                  .p = w->probs,
                                                  .ds = w->dscores,
                                                  .p_ld = s->score_ld,
                                                  .q_rows = rows,
                                                  .cols = pl_round_up(keys, s->kernel->k_step),
                                                  .first_visible = q0 + 1,
                                                  .scale = s->scale,
                                                  .lse = a->lse + ((size_t)b * s->heads + h) * s->seq + q0,
                                                  .delta = w->delta});

    times_rows(s, w->product, w->dscores, s->score_ld, rows, keys, w->keys_n, s->seq, false);
    s->kernel->to_act((char *)a->dqkv + q_at, a->qkv_ld, w->product, s->dim_ld, rows, s->head_dim);
    add_turned(s, w, w->dvalues, w->probs, dout, a->out_ld, rows, keys);
    add_turned(s, w, w->dkeys, w->dscores, q, a->qkv_ld, rows, keys);
}

static void back_task(void *user, uint32_t task, uint32_t thread)
{
    const struct back *f = user;
    const struct shape *s = &f->s;
    const struct pl_attention_dx *a = f->a;
    uint32_t b = task / s->kv_heads, g = task % s->kv_heads;
    struct back_scratch w;
    size_t act = s->kernel->act_bytes, first = (size_t)b * s->seq * a->qkv_ld * act;
    size_t k_at = first + (size_t)(s->heads + g) * s->head_dim * act;
    size_t v_at = k_at + (size_t)s->kv_heads * s->head_dim * act;
    (void)take_back(s, pl_engine_thread_scratch(f->e, thread), &w);
    pack_rows_t(s, w.keys_t, (const char *)a->qkv + k_at, a->qkv_ld);
    pack_rows_t(s, w.values_t, (const char *)a->qkv + v_at, a->qkv_ld);
    pack_rows_n(s, w.keys_n, (const char *)a->qkv + k_at, a->qkv_ld, s->seq);
    memset(w.dkeys, 0, (size_t)s->key_panels * PL_PANEL * s->dim_ld * sizeof(float));
    memset(w.dvalues, 0, (size_t)s->key_panels * PL_PANEL * s->dim_ld * sizeof(float));
    for (uint32_t h = g * s->group; h < (g + 1) * s->group; h++)
        for (uint32_t q0 = 0; q0 < s->seq; q0 += QUERY_BLOCK)
            back_block(f, &w, b, h, q0);
    s->kernel->to_act((char *)a->dqkv + k_at, a->qkv_ld, w.dkeys, s->dim_ld, s->seq, s->head_dim);
    s->kernel->to_act((char *)a->dqkv + v_at, a->qkv_ld, w.dvalues, s->dim_ld, s->seq, s->head_dim);
}

void pl_cpu_attention_dx(struct pl_engine *e, const struct pl_attention_dx *a)
{
    struct back f = {e, a, shape_of(e, a->batch, a->seq, a->heads, a->kv_heads, a->head_dim)};
    struct back_scratch w;
    if (pl_engine_reserve(e, take_back(&f.s, NULL, &w), 0))
        pl_cpu_run(e, a->batch * a->kv_heads, back_task, &f);
}
