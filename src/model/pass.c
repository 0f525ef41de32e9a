/* model/pass.c - forward and backward through the transformer, in terms of model/ops.h alone.
 *
 * One layer:  x -> norm -> q k v -> rotation -> attention -> out projection -> + x = mid
 *             mid -> norm -> gate, up -> silu(gate) * up = h -> down projection -> + mid = next x
 * The stream x stays in floats; what is multiplied is in the back end's activations.
 */
#include "base/check.h"
#include "base/num.h"
#include "model/model_int.h"

#include <math.h>
#include <string.h>

/* One pass over one batch. */
struct pass {
    struct pl_model *m;
    struct pl_engine *e;
    const struct pl_ops *ops;
    const struct pl_model_config *c;
    struct pl_acts *a;
    uint32_t batch, seq, rows; /* B, T, M */
    bool accumulate;
    uint64_t home; /* gradients from here on are with the host */
};

static struct pass pass_of(struct pl_model *m, const struct pl_batch *b)
{
    pl_assert(b->batch <= m->options.batch && b->seq <= m->options.seq && b->batch > 0 && b->seq > 0);
    return (struct pass){.m = m,
                         .e = &m->engine,
                         .ops = m->engine.ops,
                         .c = &m->options.config,
                         .a = m->acts,
                         .batch = b->batch,
                         .seq = b->seq,
                         .rows = b->batch * b->seq,
                         .home = m->tensors.floats};
}

static float *param(const struct pass *p, enum pl_tensor_role role, uint32_t layer)
{
    return p->m->params + p->m->tensors.at[pl_tensors_find(&p->m->tensors, role, layer)].offset;
}

static float *grad(const struct pass *p, enum pl_tensor_role role, uint32_t layer)
{
    return p->m->grads + p->m->tensors.at[pl_tensors_find(&p->m->tensors, role, layer)].offset;
}

/* ---- forward ---- */

static void norm(const struct pass *p, const float *x, enum pl_tensor_role role, uint32_t layer, void *y,
                 float *rstd)
{
    p->ops->norm(p->e, &(struct pl_norm){.rows = p->rows,
                                         .c = p->c->width,
                                         .x = x,
                                         .w = param(p, role, layer),
                                         .y = y,
                                         .y_ld = p->a->ld_c,
                                         .rstd = rstd,
                                         .eps = p->c->norm_eps});
}

/* y (M, n) as activations, or added to base where there is one. */
static void project(const struct pass *p, const struct pl_matrix *w, const void *x, size_t x_ld, void *y,
                    size_t y_ld, const float *base)
{
    p->ops->linear(p->e, &(struct pl_linear){.rows = p->rows,
                                             .n = w->n,
                                             .k = w->k,
                                             .weight = w->packed,
                                             .in = x,
                                             .in_ld = x_ld,
                                             .out = y,
                                             .out_ld = y_ld,
                                             .kind = base != NULL ? PL_OUT_SUM : PL_OUT_ACT,
                                             .base = base});
}

static void rotate(const struct pass *p, uint32_t layer, const struct pl_layer_acts *l)
{
    const struct pl_model_config *c = p->c;
    p->ops->rotary(p->e, &(struct pl_rotary){.rows = p->rows,
                                             .seq = p->seq,
                                             .heads = c->heads,
                                             .kv_heads = c->kv_heads,
                                             .head_dim = c->head_dim,
                                             .in = l->qkv_raw,
                                             .out = l->qkv,
                                             .ld = p->a->ld_qkv,
                                             .cos = p->a->cos,
                                             .sin = p->a->sin,
                                             .q_w = c->qk_norm ? param(p, PL_TENSOR_Q_NORM, layer) : NULL,
                                             .k_w = c->qk_norm ? param(p, PL_TENSOR_K_NORM, layer) : NULL,
                                             .rstd = l->qk_rstd,
                                             .eps = c->norm_eps});
}

/* All that the way back needs of a layer, up to gate_up. */
static void layer_inside(const struct pass *p, uint32_t layer)
{
    const struct pl_model_config *c = p->c;
    struct pl_acts *a = p->a;
    struct pl_layer_acts *l = &a->layers[layer];
    norm(p, l->x, PL_TENSOR_ATTN_NORM, layer, l->x_norm, l->x_rstd);
    project(p, pl_model_matrix(p->m, layer, PL_MATRIX_QKV), l->x_norm, a->ld_c, l->qkv_raw, a->ld_qkv, NULL);
    rotate(p, layer, l);
    p->ops->attention(p->e, &(struct pl_attention){.batch = p->batch,
                                                   .seq = p->seq,
                                                   .heads = c->heads,
                                                   .kv_heads = c->kv_heads,
                                                   .head_dim = c->head_dim,
                                                   .qkv = l->qkv,
                                                   .qkv_ld = a->ld_qkv,
                                                   .out = l->att,
                                                   .out_ld = a->ld_hd,
                                                   .lse = l->lse});
    project(p, pl_model_matrix(p->m, layer, PL_MATRIX_O), l->att, a->ld_hd, l->mid, c->width, l->x);
    norm(p, l->mid, PL_TENSOR_MLP_NORM, layer, l->mid_norm, l->mid_rstd);
    project(p, pl_model_matrix(p->m, layer, PL_MATRIX_GATE_UP), l->mid_norm, a->ld_c, l->gate_up, a->ld_gu,
            NULL);
}

static void layer_forward(const struct pass *p, uint32_t layer)
{
    struct pl_acts *a = p->a;
    struct pl_layer_acts *l = &a->layers[layer];
    float *next = layer + 1 < p->c->layers ? a->layers[layer + 1].x : a->out;
    layer_inside(p, layer);
    p->ops->swiglu(p->e, &(struct pl_swiglu){.rows = p->rows,
                                             .f = p->c->hidden,
                                             .gu = l->gate_up,
                                             .gu_ld = a->ld_gu,
                                             .h = a->h,
                                             .h_ld = a->ld_f});
    project(p, pl_model_matrix(p->m, layer, PL_MATRIX_DOWN), a->h, a->ld_f, next, p->c->width, l->mid);
}

static void forward(const struct pass *p, const int32_t *tokens)
{
    pl_engine_begin(p->e);
    p->ops->embed(p->e, p->a->layers[0].x, param(p, PL_TENSOR_EMBED, PL_NONE32), tokens, p->rows,
                  p->c->width);
    for (uint32_t i = 0; i < p->c->layers; i++)
        layer_forward(p, i);
    norm(p, p->a->out, PL_TENSOR_NORM, PL_NONE32, p->a->out_norm, p->a->out_rstd);
}

static void *act_row(const struct pass *p, void *act, uint32_t row, size_t ld)
{
    return (char *)act + row * ld * p->ops->act_bytes;
}

/* logits of rows row0 .. row0 + rows - 1 into memory for them alone. */
static void head(const struct pass *p, uint32_t row0, uint32_t rows, void *logits, size_t ld,
                 enum pl_out kind)
{
    const struct pl_matrix *w = pl_model_head(p->m);
    p->ops->linear(p->e, &(struct pl_linear){.rows = rows,
                                             .n = w->n,
                                             .k = w->k,
                                             .weight = w->packed,
                                             .in = act_row(p, p->a->out_norm, row0, p->a->ld_c),
                                             .in_ld = p->a->ld_c,
                                             .out = logits,
                                             .out_ld = ld,
                                             .kind = kind});
}

static double sum_losses(const struct pass *p)
{
    double sum = 0;
    pl_engine_finish(p->e);
    if (pl_engine_check(p->e, NULL) != PELAGO_OK)
        return (double)NAN;
    for (uint32_t i = 0; i < p->rows; i++)
        sum += (double)p->a->losses[i];
    return sum;
}

double pl_model_loss(struct pl_model *m, const struct pl_batch *b, float *losses)
{
    struct pass p = pass_of(m, b);
    forward(&p, b->tokens);
    for (uint32_t row = 0; row < p.rows; row += p.a->loss_rows) {
        uint32_t rows = pl_min32(p.a->loss_rows, p.rows - row);
        head(&p, row, rows, p.a->logits, p.a->ld_v, PL_OUT_F32);
        p.ops->xent(p.e, &(struct pl_xent){.rows = rows,
                                           .vocab = p.c->vocab,
                                           .logits = p.a->logits,
                                           .ld = p.a->ld_v,
                                           .logits_f32 = true,
                                           .targets = b->targets + row,
                                           .loss = p.a->losses + row});
    }
    double sum = sum_losses(&p);
    for (uint32_t i = 0; losses != NULL && i < p.rows; i++)
        losses[i] = p.a->losses[i];
    return sum;
}

void pl_model_logits(struct pl_model *m, const struct pl_batch *b, float *logits)
{
    struct pass p = pass_of(m, b);
    forward(&p, b->tokens);
    for (uint32_t row = 0; row < p.rows; row += p.a->loss_rows) {
        uint32_t rows = pl_min32(p.a->loss_rows, p.rows - row);
        head(&p, row, rows, p.a->logits, p.a->ld_v, PL_OUT_F32);
        for (uint32_t i = 0; i < rows; i++)
            pl_engine_put(p.e, logits + (size_t)(row + i) * p.c->vocab, (float *)p.a->logits + i * p.a->ld_v,
                          p.c->vocab * sizeof(float));
    }
    pl_engine_finish(p.e);
}

/* ---- backward ---- */

/* dx (M, k) as activations from dy (M, n), and the gradient of the weight. */
static void project_dx(const struct pass *p, const struct pl_matrix *w, const void *dy, size_t dy_ld,
                       void *dx, size_t dx_ld)
{
    p->ops->linear_dx(p->e, &(struct pl_linear){.rows = p->rows,
                                                .n = w->n,
                                                .k = w->k,
                                                .weight = w->packed,
                                                .in = dy,
                                                .in_ld = dy_ld,
                                                .out = dx,
                                                .out_ld = dx_ld,
                                                .kind = PL_OUT_ACT});
}

static void project_dw(const struct pass *p, const struct pl_matrix *w, const void *dy, size_t dy_ld,
                       const void *x, size_t x_ld)
{
    p->ops->linear_dw(p->e, &(struct pl_linear_dw){.rows = p->rows,
                                                   .n = w->n,
                                                   .k = w->k,
                                                   .dout = dy,
                                                   .dout_ld = dy_ld,
                                                   .in = x,
                                                   .in_ld = x_ld,
                                                   .dw = p->m->grads + p->m->tensors.at[w->first].offset,
                                                   .accumulate = p->accumulate});
}

/* The stream's gradient gains what comes through a norm; dx_act follows it. */
static void norm_dx(const struct pass *p, const float *x, const float *rstd, enum pl_tensor_role role,
                    uint32_t layer)
{
    p->ops->norm_dx(p->e, &(struct pl_norm_dx){.rows = p->rows,
                                               .c = p->c->width,
                                               .dy = p->a->dnorm,
                                               .dy_ld = p->a->ld_c,
                                               .x = x,
                                               .w = param(p, role, layer),
                                               .rstd = rstd,
                                               .dx = p->a->dx,
                                               .dw = grad(p, role, layer),
                                               .accumulate = p->accumulate,
                                               .dx_act = p->a->dx_act,
                                               .dx_act_ld = p->a->ld_c});
}

static void mlp_dx(const struct pass *p, uint32_t layer)
{
    struct pl_acts *a = p->a;
    struct pl_layer_acts *l = &a->layers[layer];
    const struct pl_matrix *down = pl_model_matrix(p->m, layer, PL_MATRIX_DOWN);
    const struct pl_matrix *gate_up = pl_model_matrix(p->m, layer, PL_MATRIX_GATE_UP);
    project_dx(p, down, a->dx_act, a->ld_c, a->h, a->ld_f);
    p->ops->swiglu_dx(p->e, &(struct pl_swiglu_dx){.rows = p->rows,
                                                   .f = p->c->hidden,
                                                   .gu = l->gate_up,
                                                   .gu_ld = a->ld_gu,
                                                   .dh = a->h,
                                                   .dh_ld = a->ld_f,
                                                   .dgu = l->gate_up,
                                                   .h = a->h});
    project_dw(p, down, a->dx_act, a->ld_c, a->h, a->ld_f);
    project_dx(p, gate_up, l->gate_up, a->ld_gu, a->dnorm, a->ld_c);
    project_dw(p, gate_up, l->gate_up, a->ld_gu, l->mid_norm, a->ld_c);
    norm_dx(p, l->mid, l->mid_rstd, PL_TENSOR_MLP_NORM, layer);
}

static void rotate_dx(const struct pass *p, uint32_t layer, const struct pl_layer_acts *l)
{
    const struct pl_model_config *c = p->c;
    bool normed = c->qk_norm;
    p->ops->rotary_dx(p->e, &(struct pl_rotary_dx){.rows = p->rows,
                                                   .seq = p->seq,
                                                   .heads = c->heads,
                                                   .kv_heads = c->kv_heads,
                                                   .head_dim = c->head_dim,
                                                   .d = p->a->dqkv,
                                                   .in = l->qkv_raw,
                                                   .ld = p->a->ld_qkv,
                                                   .cos = p->a->cos,
                                                   .sin = p->a->sin,
                                                   .q_w = normed ? param(p, PL_TENSOR_Q_NORM, layer) : NULL,
                                                   .k_w = normed ? param(p, PL_TENSOR_K_NORM, layer) : NULL,
                                                   .rstd = l->qk_rstd,
                                                   .dq_w = normed ? grad(p, PL_TENSOR_Q_NORM, layer) : NULL,
                                                   .dk_w = normed ? grad(p, PL_TENSOR_K_NORM, layer) : NULL,
                                                   .accumulate = p->accumulate});
}

static void attention_dx(const struct pass *p, uint32_t layer)
{
    const struct pl_model_config *c = p->c;
    struct pl_acts *a = p->a;
    struct pl_layer_acts *l = &a->layers[layer];
    const struct pl_matrix *o = pl_model_matrix(p->m, layer, PL_MATRIX_O);
    const struct pl_matrix *qkv = pl_model_matrix(p->m, layer, PL_MATRIX_QKV);
    project_dx(p, o, a->dx_act, a->ld_c, a->datt, a->ld_hd);
    project_dw(p, o, a->dx_act, a->ld_c, l->att, a->ld_hd);
    p->ops->attention_dx(p->e, &(struct pl_attention_dx){.batch = p->batch,
                                                         .seq = p->seq,
                                                         .heads = c->heads,
                                                         .kv_heads = c->kv_heads,
                                                         .head_dim = c->head_dim,
                                                         .qkv = l->qkv,
                                                         .qkv_ld = a->ld_qkv,
                                                         .out = l->att,
                                                         .out_ld = a->ld_hd,
                                                         .lse = l->lse,
                                                         .dout = a->datt,
                                                         .dqkv = a->dqkv});
    rotate_dx(p, layer, l);
    project_dx(p, qkv, a->dqkv, a->ld_qkv, a->dnorm, a->ld_c);
    project_dw(p, qkv, a->dqkv, a->ld_qkv, l->x_norm, a->ld_c);
    norm_dx(p, l->x, l->x_rstd, PL_TENSOR_ATTN_NORM, layer);
}

static void layer_backward(const struct pass *p, uint32_t layer)
{
    /* The last layer's activations are still there from the way forward. */
    if (p->m->options.recompute && layer + 1 < p->c->layers)
        layer_inside(p, layer);
    mlp_dx(p, layer);
    attention_dx(p, layer);
}

/* Losses, the head's gradient and that of its input, logit_rows at a time. */
static void head_train(const struct pass *p, const struct pl_batch *b, const struct pl_pass *how)
{
    struct pl_acts *a = p->a;
    const struct pl_matrix *w = pl_model_head(p->m);
    float *dw = p->m->grads + p->m->tensors.at[w->first].offset;
    for (uint32_t row = 0; row < p->rows; row += a->logit_rows) {
        uint32_t rows = pl_min32(a->logit_rows, p->rows - row);
        head(p, row, rows, a->logits, a->ld_v, PL_OUT_ACT);
        p->ops->xent(p->e, &(struct pl_xent){.rows = rows,
                                             .vocab = p->c->vocab,
                                             .logits = a->logits,
                                             .ld = a->ld_v,
                                             .targets = b->targets + row,
                                             .loss = a->losses + row,
                                             .scale = how->scale,
                                             .z = how->z_loss});
        p->ops->linear_dx(p->e, &(struct pl_linear){.rows = rows,
                                                    .n = w->n,
                                                    .k = w->k,
                                                    .weight = w->packed,
                                                    .in = a->logits,
                                                    .in_ld = a->ld_v,
                                                    .out = act_row(p, a->dnorm, row, a->ld_c),
                                                    .out_ld = a->ld_c,
                                                    .kind = PL_OUT_ACT});
        p->ops->linear_dw(p->e, &(struct pl_linear_dw){.rows = rows,
                                                       .n = w->n,
                                                       .k = w->k,
                                                       .dout = a->logits,
                                                       .dout_ld = a->ld_v,
                                                       .in = act_row(p, a->out_norm, row, a->ld_c),
                                                       .in_ld = a->ld_c,
                                                       .dw = dw,
                                                       .accumulate = p->accumulate || row > 0});
    }
}

/* Whoever is told of gradients may change them at once (all-reduce), so that each comes home once. */
static void bring_home(struct pass *p, uint64_t from)
{
    pl_engine_home(p->e, p->m->grads + from, p->home - from);
    p->home = from;
}

/* All that comes after this tensor in the block is final, and so is the tensor. */
static void graded(struct pass *p, const struct pl_pass *how, enum pl_tensor_role role, uint32_t layer)
{
    uint64_t from = p->m->tensors.at[pl_tensors_find(&p->m->tensors, role, layer)].offset;
    if (how->graded == NULL)
        return;
    bring_home(p, from);
    pl_engine_finish(p->e);
    if (pl_engine_check(p->e, NULL) == PELAGO_OK) /* else nobody must take what is there for gradients */
        how->graded(how->user, from);
}

double pl_model_train(struct pl_model *m, const struct pl_batch *b, const struct pl_pass *how)
{
    struct pass p = pass_of(m, b);
    size_t stream = (size_t)p.rows * p.c->width;
    pl_assert(m->options.train);
    p.accumulate = how->accumulate;
    forward(&p, b->tokens);
    head_train(&p, b, how);
    pl_engine_zero(p.e, p.a->dx, stream * sizeof(float));
    norm_dx(&p, p.a->out, p.a->out_rstd, PL_TENSOR_NORM, PL_NONE32);
    graded(&p, how, PL_TENSOR_NORM, PL_NONE32);
    for (uint32_t i = p.c->layers; i-- > 0;) {
        layer_backward(&p, i);
        graded(&p, how, PL_TENSOR_ATTN_NORM, i);
    }
    float *dtable = grad(&p, PL_TENSOR_EMBED, PL_NONE32);
    if (!p.c->tied && !how->accumulate)
        pl_engine_zero(p.e, dtable, (size_t)p.c->vocab * p.c->width * sizeof(float));
    p.ops->embed_dw(p.e, dtable, p.a->dx, b->tokens, p.rows, p.c->width);
    graded(&p, how, PL_TENSOR_EMBED, PL_NONE32);
    bring_home(&p, 0);
    return sum_losses(&p);
}
