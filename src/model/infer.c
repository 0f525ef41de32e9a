/* model/infer.c - see infer.h.
 *
 * The pass is that of pass.c with ops.h's gemv for every matrix: q k v in one product and gate up in one, as they lie
 * side by side in the block. Five loops of the threads a layer (four products and attention over the cache); norms,
 * rotation and SwiGLU of a row or eight take less time than waking anybody.
 */
#include "model/infer.h"

#include "base/bf16.h"
#include "base/check.h"
#include "base/num.h"
#include "base/block.h"
#include "model/engine.h"
#include "model/rotation.h"

#include <string.h>

/* Tokens of one pass: as many as meet a weight while it is in the registers or the first-level cache. */
enum { ROWS_MAX = 8 };

struct layer {
    const pl_bf16 *qkv;          /* ((H + 2G) * D, C) */
    const pl_bf16 *o;            /* (C, H*D) */
    const pl_bf16 *gate_up;      /* (2F, C) */
    const pl_bf16 *down;         /* (C, F) */
    float *attn_norm, *mlp_norm; /* (C) each */
    float *q_norm, *k_norm;      /* (D) each, or NULL */
    pl_bf16 *keys, *values;      /* the cache, as struct pl_decode has it */
};

struct pl_infer {
    struct pl_alloc alloc;
    struct pl_model_config config;
    struct pl_engine engine;
    struct layer *layers; /* L */
    uint32_t context, room, position;
    struct pl_block memory;
    pl_bf16 *weights; /* every tensor at its offset in the block of parameters */
    uint64_t floats;
    const pl_bf16 *embed, *head; /* (V, C) */
    float *norm;                 /* (C) the last one */
    float *cos, *sin;            /* (context, D/2) */
    float *x, *normed, *sum;     /* (ROWS_MAX, C) the stream, its norm, what is added to it */
    float *qkv_raw, *qkv;        /* (ROWS_MAX, (H + 2G) * D); the same memory without qk_norm */
    float *att;                  /* (ROWS_MAX, H*D) */
    float *gate_up, *h;          /* (ROWS_MAX, 2F), (ROWS_MAX, F) */
    float *rstd;                 /* (ROWS_MAX, H + G) of a row or its heads */
    float *logits;               /* (V) */
};

/* ---- memory: laid out twice, once to count and once to point ---- */

static void *take(struct pl_infer *inf, uint64_t *used, uint64_t count, size_t size)
{
    void *piece = inf->memory.at != NULL ? (char *)inf->memory.at + *used : NULL;
    *used += (count * size + 63) / 64 * 64;
    return piece;
}

static float *take_floats(struct pl_infer *inf, uint64_t *used, uint64_t rows, uint64_t cols)
{
    return take(inf, used, rows * cols, sizeof(float));
}

static void lay_layer(struct pl_infer *inf, uint64_t *used, struct layer *l)
{
    const struct pl_model_config *c = &inf->config;
    uint64_t cached = (uint64_t)c->kv_heads * inf->room * c->head_dim;
    l->attn_norm = take_floats(inf, used, 1, c->width);
    l->mlp_norm = take_floats(inf, used, 1, c->width);
    l->q_norm = c->qk_norm ? take_floats(inf, used, 1, c->head_dim) : NULL;
    l->k_norm = c->qk_norm ? take_floats(inf, used, 1, c->head_dim) : NULL;
    l->keys = take(inf, used, cached, sizeof(pl_bf16));
    l->values = take(inf, used, cached, sizeof(pl_bf16));
}

static uint64_t lay(struct pl_infer *inf)
{
    const struct pl_model_config *c = &inf->config;
    uint64_t used = 0, qkv_cols = (uint64_t)(c->heads + 2 * c->kv_heads) * c->head_dim;
    inf->weights = take(inf, &used, inf->floats, sizeof(pl_bf16));
    for (uint32_t i = 0; i < c->layers; i++)
        lay_layer(inf, &used, &inf->layers[i]);
    inf->norm = take_floats(inf, &used, 1, c->width);
    inf->cos = take_floats(inf, &used, inf->context, c->head_dim / 2);
    inf->sin = take_floats(inf, &used, inf->context, c->head_dim / 2);
    inf->x = take_floats(inf, &used, ROWS_MAX, c->width);
    inf->normed = take_floats(inf, &used, ROWS_MAX, c->width);
    inf->sum = take_floats(inf, &used, ROWS_MAX, c->width);
    inf->qkv = take_floats(inf, &used, ROWS_MAX, qkv_cols);
    inf->qkv_raw = c->qk_norm ? take_floats(inf, &used, ROWS_MAX, qkv_cols) : inf->qkv;
    inf->att = take_floats(inf, &used, ROWS_MAX, (uint64_t)c->heads * c->head_dim);
    inf->gate_up = take_floats(inf, &used, ROWS_MAX, 2 * (uint64_t)c->hidden);
    inf->h = take_floats(inf, &used, ROWS_MAX, c->hidden);
    inf->rstd = take_floats(inf, &used, ROWS_MAX, c->heads + c->kv_heads);
    inf->logits = take_floats(inf, &used, 1, c->vocab);
    return used;
}

/* ---- weights ---- */

enum { ROUND_FLOATS = 1 << 16 };

struct rounding {
    pl_bf16 *to;
    const float *from;
    uint64_t count;
};

static void round_task(void *user, uint32_t task, uint32_t thread)
{
    const struct rounding *r = user;
    uint64_t end = pl_min64(r->count, ((uint64_t)task + 1) * ROUND_FLOATS);
    (void)thread;
    for (uint64_t i = (uint64_t)task * ROUND_FLOATS; i < end; i++)
        r->to[i] = pl_bf16_of_float(r->from[i]);
}

static const struct pl_tensor *tensor_of(const struct pl_tensors *t, enum pl_tensor_role role, uint32_t layer)
{
    uint32_t index = pl_tensors_find(t, role, layer);
    pl_assert(index != PL_NONE32);
    return &t->at[index];
}

static const pl_bf16 *matrix(const struct pl_infer *inf, const struct pl_tensors *t, enum pl_tensor_role role,
                             uint32_t layer)
{
    return inf->weights + tensor_of(t, role, layer)->offset;
}

static void copy_norm(float *to, const struct pl_tensors *t, enum pl_tensor_role role, uint32_t layer,
                      const float *params)
{
    const struct pl_tensor *tensor = tensor_of(t, role, layer);
    memcpy(to, params + tensor->offset, tensor->cols * sizeof *to);
}

static void fill_layer(struct pl_infer *inf, uint32_t index, const struct pl_tensors *t, const float *params)
{
    struct layer *l = &inf->layers[index];
    l->qkv = matrix(inf, t, PL_TENSOR_Q, index);
    l->o = matrix(inf, t, PL_TENSOR_O, index);
    l->gate_up = matrix(inf, t, PL_TENSOR_GATE, index);
    l->down = matrix(inf, t, PL_TENSOR_DOWN, index);
    copy_norm(l->attn_norm, t, PL_TENSOR_ATTN_NORM, index, params);
    copy_norm(l->mlp_norm, t, PL_TENSOR_MLP_NORM, index, params);
    if (inf->config.qk_norm) {
        copy_norm(l->q_norm, t, PL_TENSOR_Q_NORM, index, params);
        copy_norm(l->k_norm, t, PL_TENSOR_K_NORM, index, params);
    }
}

static void fill(struct pl_infer *inf, const struct pl_tensors *t, const float *params)
{
    const struct pl_model_config *c = &inf->config;
    struct rounding r = {inf->weights, params, inf->floats};
    pl_pool_run(inf->engine.pool, (uint32_t)((inf->floats + ROUND_FLOATS - 1) / ROUND_FLOATS), round_task,
                &r);
    for (uint32_t i = 0; i < c->layers; i++)
        fill_layer(inf, i, t, params);
    inf->embed = matrix(inf, t, PL_TENSOR_EMBED, PL_NONE32);
    inf->head = c->tied ? inf->embed : matrix(inf, t, PL_TENSOR_HEAD, PL_NONE32);
    copy_norm(inf->norm, t, PL_TENSOR_NORM, PL_NONE32, params);
    pl_rotation_fill(inf->cos, inf->sin, inf->context, c->head_dim, c->rope_theta);
}

/* ---- life ---- */

/* Few rows go through the operations between the products, so floats are fast enough. */
static enum pelago_status start_engine(struct pl_infer *inf, const struct pl_infer_options *o,
                                       struct pl_error *err)
{
    PL_TRY(pl_engine_init(&inf->engine, &inf->alloc, o->backend, o->threads, err));
    if (inf->engine.ops->device != NULL) { /* one token at a time is the processor's */
        pl_engine_release(&inf->engine);
        PL_TRY(pl_engine_init(&inf->engine, &inf->alloc, NULL, o->threads, err));
    }
    if (inf->engine.ops->act_bytes == sizeof(float))
        return PELAGO_OK;
    pl_engine_release(&inf->engine);
    return pl_engine_init(&inf->engine, &inf->alloc, "avx512", o->threads, err);
}

static enum pelago_status build(struct pl_infer *inf, const struct pl_infer_options *o,
                                const struct pl_tensors *t, const float *params, struct pl_error *err)
{
    PL_TRY(start_engine(inf, o, err));
    inf->layers = pl_alloc_zero(&inf->alloc, o->config.layers, sizeof *inf->layers);
    if (inf->layers == NULL)
        return pl_fail(err, PELAGO_NOMEM, "there is no memory for a table of %u layers.", o->config.layers);
    uint64_t bytes = lay(inf);
    if (!pl_block_new(&inf->memory, &inf->alloc, bytes))
        return pl_fail(err, PELAGO_NOMEM,
                       "the model and %u positions need %lu MB of memory, which the system does not give.",
                       o->context, bytes >> 20);
    (void)lay(inf);
    fill(inf, t, params);
    return PELAGO_OK;
}

enum pelago_status pl_infer_new(struct pl_infer **out, const struct pl_alloc *alloc,
                                const struct pl_infer_options *o, const struct pl_tensors *tensors,
                                const float *params, struct pl_error *err)
{
    *out = NULL;
    PL_TRY(pl_model_config_check(&o->config, err));
    if (o->context == 0 || o->context > PL_CONTEXT_MAX)
        return pl_fail(err, PELAGO_INVALID, "context is %u; it must be from 1 to %u.", o->context,
                       (unsigned)PL_CONTEXT_MAX);
    pl_assert(tensors->params == pl_model_config_params(&o->config));
    struct pl_infer *inf = pl_alloc_zero(alloc, 1, sizeof *inf);
    if (inf == NULL)
        return pl_fail(err, PELAGO_NOMEM, "there is no memory for a model.");
    inf->alloc = *alloc;
    inf->config = o->config;
    inf->context = o->context;
    inf->room = (o->context + PL_KV_BLOCK - 1) / PL_KV_BLOCK * PL_KV_BLOCK;
    inf->floats = tensors->floats;
    enum pelago_status status = build(inf, o, tensors, params, err);
    if (status != PELAGO_OK) {
        pl_infer_free(inf);
        return status;
    }
    *out = inf;
    return PELAGO_OK;
}

void pl_infer_free(struct pl_infer *inf)
{
    if (inf == NULL)
        return;
    struct pl_alloc alloc = inf->alloc;
    pl_block_free(&inf->memory, &alloc);
    pl_alloc_free(&alloc, inf->layers, inf->config.layers * sizeof *inf->layers);
    pl_engine_release(&inf->engine);
    pl_alloc_free(&alloc, inf, sizeof *inf);
}

/* ---- the pass ---- */

static void norm(struct pl_infer *inf, const float *x, const float *w, uint32_t rows)
{
    uint32_t c = inf->config.width;
    inf->engine.ops->norm(&inf->engine, &(struct pl_norm){.rows = rows,
                                                          .c = c,
                                                          .x = x,
                                                          .w = w,
                                                          .y = inf->normed,
                                                          .y_ld = c,
                                                          .rstd = inf->rstd,
                                                          .eps = inf->config.norm_eps});
}

/* y (rows, n) = x (rows, k) x W^T */
static void product(struct pl_infer *inf, float *y, const float *x, const pl_bf16 *w, uint32_t rows,
                    uint32_t n, uint32_t k)
{
    inf->engine.ops->gemv(&inf->engine, y, x, w, rows, n, k);
}

/* The same, added to the stream. */
static void product_add(struct pl_infer *inf, const float *x, const pl_bf16 *w, uint32_t rows, uint32_t k)
{
    size_t count = (size_t)rows * inf->config.width;
    product(inf, inf->sum, x, w, rows, inf->config.width, k);
    for (size_t i = 0; i < count; i++)
        inf->x[i] += inf->sum[i];
}

static void rotate(struct pl_infer *inf, const struct layer *l, uint32_t rows)
{
    const struct pl_model_config *c = &inf->config;
    size_t first = (size_t)inf->position * (c->head_dim / 2);
    inf->engine.ops->rotary(&inf->engine,
                            &(struct pl_rotary){.rows = rows,
                                                .seq = rows,
                                                .heads = c->heads,
                                                .kv_heads = c->kv_heads,
                                                .head_dim = c->head_dim,
                                                .in = inf->qkv_raw,
                                                .out = inf->qkv,
                                                .ld = (size_t)(c->heads + 2 * c->kv_heads) * c->head_dim,
                                                .cos = inf->cos + first,
                                                .sin = inf->sin + first,
                                                .q_w = l->q_norm,
                                                .k_w = l->k_norm,
                                                .rstd = c->qk_norm ? inf->rstd : NULL,
                                                .eps = c->norm_eps});
}

/* One row's keys and values to their place in the cache. */
static void store(const struct pl_infer *inf, const struct layer *l, const float *keys, size_t position)
{
    const struct pl_model_config *c = &inf->config;
    const size_t d = c->head_dim, block = position / PL_KV_BLOCK, lane = position % PL_KV_BLOCK;
    const float *values = keys + c->kv_heads * d;
    pl_bf16 rounded[PL_HEAD_DIM_MAX];
    for (size_t g = 0; g < c->kv_heads; g++) {
        pl_bf16 *k = l->keys + (g * inf->room + block * PL_KV_BLOCK) * d + lane;
        pl_bf16 *v = l->values + (g * inf->room + position) * d;
        for (size_t i = 0; i < d; i++)
            v[i] = pl_bf16_of_float(values[g * d + i]);
        for (size_t i = 0; i < d; i++)
            rounded[i] = pl_bf16_of_float(keys[g * d + i]);
        for (size_t i = 0; i < d; i++)
            k[i * PL_KV_BLOCK] = rounded[i];
    }
}

static void attention(struct pl_infer *inf, const struct layer *l, uint32_t rows)
{
    const struct pl_model_config *c = &inf->config;
    const uint32_t q = c->heads * c->head_dim, ld = q + 2 * c->kv_heads * c->head_dim;
    norm(inf, inf->x, l->attn_norm, rows);
    product(inf, inf->qkv_raw, inf->normed, l->qkv, rows, ld, c->width);
    rotate(inf, l, rows);
    for (uint32_t r = 0; r < rows; r++)
        store(inf, l, inf->qkv + (size_t)r * ld + q, inf->position + r);
    inf->engine.ops->decode(&inf->engine, &(struct pl_decode){.rows = rows,
                                                              .past = inf->position,
                                                              .heads = c->heads,
                                                              .kv_heads = c->kv_heads,
                                                              .head_dim = c->head_dim,
                                                              .q = inf->qkv,
                                                              .q_ld = ld,
                                                              .keys = l->keys,
                                                              .values = l->values,
                                                              .room = inf->room,
                                                              .out = inf->att,
                                                              .out_ld = q});
    product_add(inf, inf->att, l->o, rows, q);
}

static void feed_forward(struct pl_infer *inf, const struct layer *l, uint32_t rows)
{
    const uint32_t f = inf->config.hidden;
    norm(inf, inf->x, l->mlp_norm, rows);
    product(inf, inf->gate_up, inf->normed, l->gate_up, rows, 2 * f, inf->config.width);
    inf->engine.ops->swiglu(
        &inf->engine,
        &(struct pl_swiglu){
            .rows = rows, .f = f, .gu = inf->gate_up, .gu_ld = 2 * (size_t)f, .h = inf->h, .h_ld = f});
    product_add(inf, inf->h, l->down, rows, f);
}

static void advance(struct pl_infer *inf, const uint32_t *tokens, uint32_t rows)
{
    const size_t c = inf->config.width;
    for (uint32_t r = 0; r < rows; r++) {
        pl_assert(tokens[r] < inf->config.vocab);
        for (size_t i = 0; i < c; i++)
            inf->x[r * c + i] = pl_bf16_to_float(inf->embed[tokens[r] * c + i]);
    }
    for (uint32_t i = 0; i < inf->config.layers; i++) {
        attention(inf, &inf->layers[i], rows);
        feed_forward(inf, &inf->layers[i], rows);
    }
    inf->position += rows;
}

const float *pl_infer_step(struct pl_infer *inf, const uint32_t *tokens, uint32_t count)
{
    uint32_t rows = 0;
    pl_assert(count > 0 && count <= inf->context - inf->position);
    for (uint32_t done = 0; done < count; done += rows) {
        rows = pl_min32(ROWS_MAX, count - done);
        advance(inf, tokens + done, rows);
    }
    norm(inf, inf->x + (size_t)(rows - 1) * inf->config.width, inf->norm, 1);
    product(inf, inf->logits, inf->normed, inf->head, 1, inf->config.vocab, inf->config.width);
    return inf->logits;
}

uint32_t pl_infer_position(const struct pl_infer *inf)
{
    return inf->position;
}

void pl_infer_rewind(struct pl_infer *inf, uint32_t position)
{
    pl_assert(position <= inf->position);
    inf->position = position;
}

uint32_t pl_infer_context(const struct pl_infer *inf)
{
    return inf->context;
}

const char *pl_infer_backend(const struct pl_infer *inf)
{
    return inf->engine.name;
}

uint32_t pl_infer_threads(const struct pl_infer *inf)
{
    return pl_pool_threads(inf->engine.pool);
}

uint64_t pl_infer_token_bytes(const struct pl_infer *inf)
{
    const struct pl_model_config *c = &inf->config;
    uint64_t params = pl_model_config_params(c), table = (uint64_t)c->vocab * c->width;
    return (c->tied ? params : params - table) * sizeof(pl_bf16);
}

struct pl_pool *pl_infer_pool(struct pl_infer *inf)
{
    return inf->engine.pool;
}
