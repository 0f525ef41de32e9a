/* model/model.c - memory of a model and its packed weights; the passes are in pass.c. */
#include "model/model.h"

#include "base/check.h"
#include "base/num.h"
#include "model/model_int.h"
#include "model/rotation.h"

#include <string.h>

enum { LOSS_ROWS = 64, PAST_CACHE_BYTES = 512 << 20 };

static const enum pl_memory kinds[PL_MODEL_PARTS] = {
    [PL_MODEL_PARAMS] = PL_MEMORY_PARAMS, [PL_MODEL_GRADS] = PL_MEMORY_GRADS,
    [PL_MODEL_PACKED] = PL_MEMORY_OWN,    [PL_MODEL_WORK] = PL_MEMORY_OWN,
    [PL_MODEL_LOSSES] = PL_MEMORY_SHARED,
};

/* Memory is laid out twice: once to count, once to point. */
struct taker {
    char *at;
    uint64_t used;
};

static void *take(struct taker *t, uint64_t bytes)
{
    void *piece = t->at != NULL ? t->at + t->used : NULL;
    t->used += (bytes + 4095) / 4096 * 4096;
    return piece;
}

static float *take_floats(struct taker *t, uint64_t rows, uint64_t c)
{
    return take(t, rows * c * sizeof(float));
}

/* M rows and the slack that blocks of a product may read. */
static void *take_act(struct taker *t, const struct pl_model *m, uint64_t rows, size_t ld)
{
    return take(t, (rows + PL_ACT_SLACK) * ld * m->engine.ops->act_bytes);
}

static void lay_params(struct pl_model *m, struct taker *t)
{
    m->params = take_floats(t, 1, m->tensors.floats);
}

static void lay_grads(struct pl_model *m, struct taker *t)
{
    m->grads = m->options.train ? take_floats(t, 1, m->tensors.floats) : NULL;
}

static void lay_packed(struct pl_model *m, struct taker *t)
{
    uint32_t count = m->options.config.layers * PL_MATRIX_KINDS + 1;
    for (uint32_t i = 0; i < count; i++)
        m->packed[i].packed =
            take(t, m->engine.ops->weight_bytes(&m->engine, m->packed[i].n, m->packed[i].k));
}

/* Everything of a layer but its input. */
static void lay_layer(struct pl_model *m, struct taker *t, struct pl_layer_acts *l)
{
    const struct pl_model_config *c = &m->options.config;
    const struct pl_acts *a = m->acts;
    uint64_t rows = (uint64_t)m->options.batch * m->options.seq;
    l->mid = take_floats(t, rows, c->width);
    l->x_norm = take_act(t, m, rows, a->ld_c);
    l->qkv = take_act(t, m, rows, a->ld_qkv);
    l->qkv_raw = c->qk_norm ? take_act(t, m, rows, a->ld_qkv) : l->qkv;
    l->att = take_act(t, m, rows, a->ld_hd);
    l->mid_norm = take_act(t, m, rows, a->ld_c);
    l->gate_up = take_act(t, m, rows, a->ld_gu);
    l->x_rstd = take_floats(t, rows, 1);
    l->mid_rstd = take_floats(t, rows, 1);
    l->qk_rstd = c->qk_norm ? take_floats(t, rows, c->heads + c->kv_heads) : NULL;
    l->lse = take_floats(t, rows, c->heads);
}

static void lay_layers(struct pl_model *m, struct taker *t)
{
    struct pl_acts *a = m->acts;
    uint64_t rows = (uint64_t)m->options.batch * m->options.seq;
    bool share = m->options.recompute || !m->options.train;
    for (uint32_t i = 0; i < m->options.config.layers; i++) {
        if (share && i > 0)
            a->layers[i] = a->layers[0];
        else
            lay_layer(m, t, &a->layers[i]);
        a->layers[i].x =
            !m->options.train && i > 1 ? a->layers[i % 2].x : take_floats(t, rows, m->options.config.width);
    }
    a->out = take_floats(t, rows, m->options.config.width);
}

static void lay_work(struct pl_model *m, struct taker *t)
{
    const struct pl_model_config *c = &m->options.config;
    struct pl_acts *a = m->acts;
    uint64_t rows = (uint64_t)m->options.batch * m->options.seq;
    lay_layers(m, t);
    a->cos = take_floats(t, m->options.seq, c->head_dim / 2);
    a->sin = take_floats(t, m->options.seq, c->head_dim / 2);
    a->out_rstd = take_floats(t, rows, 1);
    a->out_norm = take_act(t, m, rows, a->ld_c);
    a->h = take_act(t, m, rows, a->ld_f);
    uint64_t act_logits = m->options.train ? (uint64_t)a->logit_rows * m->engine.ops->act_bytes : 0;
    uint64_t logit_bytes = pl_max64(act_logits, (uint64_t)a->loss_rows * sizeof(float));
    a->logits = take(t, pl_min64(logit_bytes, rows * sizeof(float)) * a->ld_v +
                            PL_ACT_SLACK * a->ld_v * sizeof(float));
    if (!m->options.train)
        return;
    a->dx = take_floats(t, rows, c->width);
    a->dx_act = take_act(t, m, rows, a->ld_c);
    a->dnorm = take_act(t, m, rows, a->ld_c);
    a->datt = take_act(t, m, rows, a->ld_hd);
    a->dqkv = take_act(t, m, rows, a->ld_qkv);
}

static void lay_losses(struct pl_model *m, struct taker *t)
{
    m->acts->losses = take_floats(t, (uint64_t)m->options.batch * m->options.seq, 1);
}

static void (*const lay[PL_MODEL_PARTS])(struct pl_model *m, struct taker *t) = {
    [PL_MODEL_PARAMS] = lay_params, [PL_MODEL_GRADS] = lay_grads,   [PL_MODEL_PACKED] = lay_packed,
    [PL_MODEL_WORK] = lay_work,     [PL_MODEL_LOSSES] = lay_losses,
};

static uint64_t part_bytes(struct pl_model *m, int part)
{
    struct taker count = {0};
    lay[part](m, &count);
    return count.used;
}

static enum pelago_status get_memory(struct pl_model *m, struct pl_error *err)
{
    uint64_t all = 0;
    for (int i = 0; i < PL_MODEL_PARTS; i++)
        all += part_bytes(m, i);
    for (int i = 0; i < PL_MODEL_PARTS; i++) {
        uint64_t bytes = part_bytes(m, i);
        if (bytes > 0 && !pl_engine_memory_new(&m->engine, &m->memory[i], bytes, kinds[i]))
            return pl_fail(err, PELAGO_NOMEM, "the model needs %lu MB of memory, which the %s does not give.",
                           all >> 20, m->engine.ops->device != NULL ? "GPU" : "system");
        lay[i](m, &(struct taker){.at = m->memory[i].at});
    }
    return PELAGO_OK;
}

static enum pelago_status fill_rotation(struct pl_model *m, struct pl_error *err)
{
    const struct pl_model_config *c = &m->options.config;
    size_t floats = (size_t)m->options.seq * (c->head_dim / 2), bytes = floats * sizeof(float);
    float *turns = pl_alloc_zero(&m->alloc, 2, bytes);
    if (turns == NULL)
        return pl_fail(err, PELAGO_NOMEM, "there is no memory for a table of %u positions.", m->options.seq);
    pl_rotation_fill(turns, turns + floats, m->options.seq, c->head_dim, c->rope_theta);
    pl_engine_put(&m->engine, m->acts->cos, turns, bytes);
    pl_engine_put(&m->engine, m->acts->sin, turns + floats, bytes);
    pl_engine_finish(&m->engine);
    pl_alloc_free(&m->alloc, turns, 2 * bytes);
    return pl_engine_check(&m->engine, err);
}

static void set_strides(struct pl_model *m)
{
    const struct pl_model_config *c = &m->options.config;
    struct pl_acts *a = m->acts;
    a->ld_c = pl_act_ld(c->width);
    a->ld_qkv = pl_act_ld((c->heads + 2 * c->kv_heads) * c->head_dim);
    a->ld_hd = pl_act_ld(c->heads * c->head_dim);
    a->ld_gu = pl_act_ld(2 * c->hidden);
    a->ld_f = pl_act_ld(c->hidden);
    a->ld_v = pl_act_ld(c->vocab);
    a->logit_rows = m->engine.ops->logit_rows;
    a->loss_rows = m->engine.ops->device != NULL ? a->logit_rows : LOSS_ROWS;
}

static struct pl_matrix matrix_of(const struct pl_model *m, enum pl_tensor_role role, uint32_t layer,
                                  uint32_t tensors)
{
    struct pl_matrix x = {.first = pl_tensors_find(&m->tensors, role, layer), .tensors = tensors};
    pl_assert(x.first != PL_NONE32);
    for (uint32_t i = 0; i < tensors; i++) {
        const struct pl_tensor *t = &m->tensors.at[x.first + i];
        pl_assert(t->offset == m->tensors.at[x.first].offset + (uint64_t)x.n * t->cols);
        x.n += t->rows;
        x.k = t->cols;
        x.ragged = x.ragged || (i + 1 < tensors && t->rows % PL_PACK_ROWS != 0);
    }
    return x;
}

static void find_matrices(struct pl_model *m)
{
    uint32_t layers = m->options.config.layers;
    for (uint32_t i = 0; i < layers; i++) {
        *pl_model_matrix(m, i, PL_MATRIX_QKV) = matrix_of(m, PL_TENSOR_Q, i, 3);
        *pl_model_matrix(m, i, PL_MATRIX_O) = matrix_of(m, PL_TENSOR_O, i, 1);
        *pl_model_matrix(m, i, PL_MATRIX_GATE_UP) = matrix_of(m, PL_TENSOR_GATE, i, 2);
        *pl_model_matrix(m, i, PL_MATRIX_DOWN) = matrix_of(m, PL_TENSOR_DOWN, i, 1);
    }
    *pl_model_head(m) = matrix_of(m, m->options.config.tied ? PL_TENSOR_EMBED : PL_TENSOR_HEAD, PL_NONE32, 1);
}

static enum pelago_status check_options(const struct pl_model_options *o, struct pl_error *err)
{
    PL_TRY(pl_model_config_check(&o->config, err));
    if (o->batch == 0 || o->batch > PL_BATCH_MAX)
        return pl_fail(err, PELAGO_INVALID, "batch is %u; it must be from 1 to %u.", o->batch,
                       (unsigned)PL_BATCH_MAX);
    if (o->seq == 0 || o->seq > PL_CONTEXT_MAX)
        return pl_fail(err, PELAGO_INVALID, "seq is %u; it must be from 1 to %u.", o->seq,
                       (unsigned)PL_CONTEXT_MAX);
    if ((uint64_t)o->batch * o->seq > PL_PASS_TOKENS_MAX)
        return pl_fail(err, PELAGO_INVALID, "batch x seq is %lu tokens; one pass takes at most %lu.",
                       (uint64_t)o->batch * o->seq, (uint64_t)PL_PASS_TOKENS_MAX);
    return PELAGO_OK;
}

static enum pelago_status build(struct pl_model *m, struct pl_error *err)
{
    uint32_t layers = m->options.config.layers;
    PL_TRY(pl_engine_init(&m->engine, &m->alloc, m->options.backend, m->options.threads, err));
    m->packed = pl_alloc_zero(&m->alloc, layers * PL_MATRIX_KINDS + 1, sizeof *m->packed);
    m->acts = pl_alloc_zero(&m->alloc, 1, sizeof *m->acts);
    if (m->packed == NULL || m->acts == NULL ||
        pl_tensors_init(&m->tensors, &m->alloc, &m->options.config) != PELAGO_OK)
        return pl_fail(err, PELAGO_NOMEM, "there is no memory for a table of %u layers.", layers);
    m->acts->layers = pl_alloc_zero(&m->alloc, layers, sizeof *m->acts->layers);
    if (m->acts->layers == NULL)
        return pl_fail(err, PELAGO_NOMEM, "there is no memory for a table of %u layers.", layers);
    find_matrices(m);
    set_strides(m);
    PL_TRY(get_memory(m, err));
    m->engine.past_cache = m->memory[PL_MODEL_PARAMS].owned_bytes + m->memory[PL_MODEL_GRADS].owned_bytes +
                               m->memory[PL_MODEL_PACKED].owned_bytes >
                           PAST_CACHE_BYTES;
    return fill_rotation(m, err);
}

enum pelago_status pl_model_new(struct pl_model **out, const struct pl_alloc *alloc,
                                const struct pl_model_options *options, struct pl_error *err)
{
    *out = NULL;
    PL_TRY(check_options(options, err));
    struct pl_model *m = pl_alloc_zero(alloc, 1, sizeof *m);
    if (m == NULL)
        return pl_fail(err, PELAGO_NOMEM, "there is no memory for a model.");
    m->alloc = *alloc;
    m->options = *options;
    enum pelago_status status = build(m, err);
    if (status != PELAGO_OK) {
        pl_model_free(m);
        return status;
    }
    *out = m;
    return PELAGO_OK;
}

void pl_model_free(struct pl_model *m)
{
    if (m == NULL)
        return;
    struct pl_alloc alloc = m->alloc;
    uint32_t layers = m->options.config.layers;
    for (int i = 0; i < PL_MODEL_PARTS; i++)
        pl_engine_memory_free(&m->engine, &m->memory[i], kinds[i]);
    if (m->acts != NULL)
        pl_alloc_free(&alloc, m->acts->layers, layers * sizeof *m->acts->layers);
    pl_alloc_free(&alloc, m->acts, sizeof *m->acts);
    pl_alloc_free(&alloc, m->packed, (layers * PL_MATRIX_KINDS + 1) * sizeof *m->packed);
    pl_tensors_release(&m->tensors, &alloc);
    pl_engine_release(&m->engine);
    pl_alloc_free(&alloc, m, sizeof *m);
}

uint64_t pl_model_bytes(const struct pl_model *m)
{
    uint64_t bytes = m->engine.scratch.owned_bytes;
    for (int i = 0; i < PL_MODEL_PARTS; i++)
        bytes += m->memory[i].owned_bytes;
    return bytes;
}

/* Rows of one matrix, in portions that the threads share. */
enum { REFRESH_ROWS = 64 };

struct refresh {
    struct pl_model *m;
    const struct pl_matrix *x;
};

static void refresh_task(void *user, uint32_t task, uint32_t thread)
{
    const struct refresh *r = user;
    uint32_t row0 = task * REFRESH_ROWS;
    (void)thread;
    r->m->engine.ops->weight_pack(&r->m->engine, r->x->packed,
                                  r->m->params + r->m->tensors.at[r->x->first].offset, r->x->n, r->x->k, row0,
                                  pl_min32(REFRESH_ROWS, r->x->n - row0));
}

static void refresh_matrix(struct pl_model *m, const struct pl_matrix *x)
{
    struct refresh r = {m, x};
    pl_pool_run(m->engine.pool, (x->n + REFRESH_ROWS - 1) / REFRESH_ROWS, refresh_task, &r);
}

void pl_model_refresh(struct pl_model *m)
{
    for (uint32_t i = 0; i < m->options.config.layers * PL_MATRIX_KINDS + 1; i++)
        refresh_matrix(m, &m->packed[i]);
}

void pl_model_refresh_rest(struct pl_model *m)
{
    for (uint32_t i = 0; i < m->options.config.layers * PL_MATRIX_KINDS + 1; i++)
        if (m->packed[i].ragged)
            refresh_matrix(m, &m->packed[i]);
}

/* The matrix this tensor is part of, and where its rows begin in it; NULL for a tensor that is no matrix. */
static const struct pl_matrix *matrix_with(struct pl_model *m, uint32_t tensor, uint32_t *row)
{
    uint32_t layer = m->tensors.at[tensor].layer;
    uint32_t first =
        layer == PL_NONE32 ? m->options.config.layers * PL_MATRIX_KINDS : layer * PL_MATRIX_KINDS;
    uint32_t count = layer == PL_NONE32 ? 1 : PL_MATRIX_KINDS;
    for (uint32_t i = first; i < first + count; i++) {
        const struct pl_matrix *x = &m->packed[i];
        if (tensor < x->first || tensor >= x->first + x->tensors)
            continue;
        *row = 0;
        for (uint32_t j = x->first; j < tensor; j++)
            *row += m->tensors.at[j].rows;
        return x;
    }
    return NULL;
}

void pl_model_refresh_rows(struct pl_model *m, uint32_t tensor, uint32_t row0, uint32_t rows)
{
    uint32_t begin = 0;
    const struct pl_matrix *x = matrix_with(m, tensor, &begin);
    if (x == NULL || x->ragged)
        return;
    m->engine.ops->weight_pack(&m->engine, x->packed, m->params + m->tensors.at[x->first].offset, x->n, x->k,
                               begin + row0, rows);
}
