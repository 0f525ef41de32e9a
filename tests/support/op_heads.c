/* support/op_heads.c - operations on the heads of queries, keys and values: rotary and attention, both ways. */
#include "op_cases.h"

#include "model/cpu/ref.h"

#include <math.h>

/* batch, seq, heads, kv_heads, head_dim: groups of 1 to 4 heads, sequences around the borders of blocks. */
static const uint32_t shapes[][OP_DIMS] = {
    {1, 1, 1, 1, 16},    {1, 2, 1, 1, 2},    {3, 1, 2, 1, 32},   {1, 3, 2, 2, 16},   {2, 5, 4, 1, 16},
    {1, 7, 3, 1, 64},    {1, 11, 2, 1, 80},  {2, 13, 1, 1, 128}, {1, 14, 4, 2, 32},  {1, 15, 2, 2, 64},
    {2, 16, 2, 1, 16},   {1, 17, 4, 4, 32},  {1, 19, 4, 1, 80},  {3, 27, 2, 1, 64},  {1, 28, 1, 1, 80},
    {1, 29, 2, 2, 128},  {2, 31, 4, 1, 64},  {1, 32, 2, 1, 64},  {1, 33, 4, 2, 128}, {1, 47, 3, 3, 48},
    {2, 48, 2, 1, 10},   {1, 61, 4, 1, 16},  {1, 63, 1, 1, 64},  {1, 64, 4, 2, 64},  {2, 65, 2, 1, 80},
    {1, 67, 4, 4, 16},   {1, 95, 2, 2, 32},  {1, 96, 2, 1, 128}, {1, 97, 1, 1, 96},  {1, 127, 2, 1, 32},
    {1, 128, 4, 1, 64},  {2, 129, 2, 2, 16}, {1, 131, 3, 1, 24}, {1, 160, 2, 1, 80}, {1, 191, 1, 1, 112},
    {1, 193, 2, 1, 128}, {1, 200, 4, 2, 32}, {1, 257, 1, 1, 32}, {1, 520, 1, 1, 16}, {1, 65, 2, 1, 160},
    {1, 70, 1, 1, 256},
};

static uint32_t rows_of(const struct op_rig *r)
{
    return r->shape[0] * r->shape[1];
}

static uint32_t qkv_cols(const struct op_rig *r)
{
    return (r->shape[2] + 2 * r->shape[3]) * r->shape[4];
}

static uint32_t turned_heads(const struct op_rig *r)
{
    return r->shape[2] + r->shape[3];
}

/* ---- rotary: plain, in place, normed (for the way back: overwriting and accumulating) ---- */

enum { ROTARY_PLAIN, ROTARY_IN_PLACE, ROTARY_NORMED, ROTARY_VARIANTS };
enum { ROTARY_DX_PLAIN, ROTARY_DX_NORMED, ROTARY_DX_NORMED_SUM, ROTARY_DX_VARIANTS };

static void angles(struct op_rig *r)
{
    const uint32_t half = r->shape[4] / 2;
    struct op_buf *c = op_in(r, "cos", OP_F32, r->shape[1], half, 1);
    struct op_buf *s = op_in(r, "sin", OP_F32, r->shape[1], half, 1);
    for (uint32_t i = 0; i < r->shape[1] * half; i++) {
        const double angle = i / half * pow(10000, -(double)(i % half) / half);
        c->values[i] = (float)cos(angle);
        s->values[i] = (float)sin(angle);
    }
}

static void head_weights(struct op_rig *r)
{
    op_in(r, "q_w", OP_F32, 1, r->shape[4], 1);
    op_in(r, "k_w", OP_F32, 1, r->shape[4], 1);
}

static void rotary_setup(struct op_rig *r)
{
    struct op_buf *in = op_in(r, "in", OP_ACT, rows_of(r), qkv_cols(r), 1.5);
    struct op_buf *out = op_out(r, "out", OP_ACT, rows_of(r), qkv_cols(r), 1e-6, OP_ROUNDED);
    angles(r);
    if (r->variant == ROTARY_IN_PLACE)
        op_share(r, out, in);
    if (r->variant == ROTARY_NORMED) {
        head_weights(r);
        op_out(r, "rstd", OP_F32, rows_of(r), turned_heads(r), 1e-6, 1e-6);
    }
}

static void rotary_call(struct op_rig *r, struct pl_engine *e)
{
    struct pl_rotary a = {
        .rows = rows_of(r), .seq = r->shape[1], .heads = r->shape[2], .kv_heads = r->shape[3]};
    a.head_dim = r->shape[4];
    a.in = op_at(r, "in");
    a.out = op_at(r, "out");
    a.ld = op_ld_of(r, "in");
    a.cos = op_at(r, "cos");
    a.sin = op_at(r, "sin");
    a.q_w = op_at(r, "q_w");
    a.k_w = op_at(r, "k_w");
    a.rstd = op_at(r, "rstd");
    a.eps = 1e-5f;
    e->ops->rotary(e, &a);
}

/* 1 / sqrt(mean + eps) of each turned head of the values in x (rows, H + 2G, D). */
static void fill_rstd(const struct op_rig *r, const struct op_buf *x, struct op_buf *rstd)
{
    const uint32_t d = r->shape[4];
    for (uint32_t i = 0; i < rstd->rows * rstd->cols; i++) {
        const float *head = x->values + (size_t)(i / rstd->cols) * x->cols + (size_t)(i % rstd->cols) * d;
        double sum = 0;
        for (uint32_t j = 0; j < d; j++)
            sum += (double)head[j] * (double)head[j];
        rstd->values[i] = (float)(1 / sqrt(sum / d + 1e-5));
    }
}

static void rotary_dx_setup(struct op_rig *r)
{
    op_inout(r, "d", OP_ACT, rows_of(r), qkv_cols(r), 2e-6, OP_ROUNDED);
    angles(r);
    if (r->variant == ROTARY_DX_PLAIN)
        return;
    struct op_buf *in = op_in(r, "in", OP_ACT, rows_of(r), qkv_cols(r), 1.5);
    struct op_buf *rstd = op_in(r, "rstd", OP_F32, rows_of(r), turned_heads(r), 1);
    fill_rstd(r, in, rstd);
    head_weights(r);
    if (r->variant == ROTARY_DX_NORMED) {
        op_out(r, "dq_w", OP_F32, 1, r->shape[4], 3e-6, 3e-6);
        op_out(r, "dk_w", OP_F32, 1, r->shape[4], 3e-6, 3e-6);
    } else {
        op_inout(r, "dq_w", OP_F32, 1, r->shape[4], 3e-6, 3e-6);
        op_inout(r, "dk_w", OP_F32, 1, r->shape[4], 3e-6, 3e-6);
    }
}

static void rotary_dx_call(struct op_rig *r, struct pl_engine *e)
{
    struct pl_rotary_dx a = {
        .rows = rows_of(r), .seq = r->shape[1], .heads = r->shape[2], .kv_heads = r->shape[3]};
    a.head_dim = r->shape[4];
    a.d = op_at(r, "d");
    a.in = op_at(r, "in");
    a.ld = op_ld_of(r, "d");
    a.cos = op_at(r, "cos");
    a.sin = op_at(r, "sin");
    a.q_w = op_at(r, "q_w");
    a.k_w = op_at(r, "k_w");
    a.rstd = op_at(r, "rstd");
    a.dq_w = op_at(r, "dq_w");
    a.dk_w = op_at(r, "dk_w");
    a.accumulate = r->variant == ROTARY_DX_NORMED_SUM;
    e->ops->rotary_dx(e, &a);
}

/* ---- attention: flat scores, and sharp ones up to hundreds, where an exponential without its maximum overflows ---- */

static const double deviations[] = {1, 6};
static const double tolerances[] = {5e-6, 1.5e-4};

static void attention_setup(struct op_rig *r)
{
    op_in(r, "qkv", OP_ACT, rows_of(r), qkv_cols(r), deviations[r->variant]);
    op_out(r, "out", OP_ACT, rows_of(r), r->shape[2] * r->shape[4], tolerances[r->variant], 1.5 * OP_ROUNDED);
    /* With bfloat16 the sum is that of the rounded terms, which is what they are divided by. */
    op_out(r, "lse", OP_F32, r->shape[0] * r->shape[2], r->shape[1], 1e-6, 2e-3)->floor =
        deviations[r->variant] * deviations[r->variant];
}

static void attention_call(struct op_rig *r, struct pl_engine *e)
{
    struct pl_attention a = {
        .batch = r->shape[0], .seq = r->shape[1], .heads = r->shape[2], .kv_heads = r->shape[3]};
    a.head_dim = r->shape[4];
    a.qkv = op_at(r, "qkv");
    a.qkv_ld = op_ld_of(r, "qkv");
    a.out = op_at(r, "out");
    a.out_ld = op_ld_of(r, "out");
    a.lse = op_at(r, "lse");
    e->ops->attention(e, &a);
}

/* out and lse are ref's own for this qkv. */
static void attention_dx_setup(struct op_rig *r)
{
    struct op_buf *qkv = op_in(r, "qkv", OP_ACT, rows_of(r), qkv_cols(r), deviations[r->variant]);
    struct op_buf *out = op_in(r, "out", OP_ACT, rows_of(r), r->shape[2] * r->shape[4], 1);
    struct op_buf *lse = op_in(r, "lse", OP_F32, r->shape[0] * r->shape[2], r->shape[1], 1);
    struct pl_attention a = {
        .batch = r->shape[0], .seq = r->shape[1], .heads = r->shape[2], .kv_heads = r->shape[3]};
    a.head_dim = r->shape[4];
    a.qkv = qkv->values;
    a.qkv_ld = qkv->cols;
    a.out = out->values;
    a.out_ld = out->cols;
    a.lse = lse->values;
    pl_ops_ref.attention(NULL, &a);
    op_round(r, out);
    op_in(r, "dout", OP_ACT, rows_of(r), r->shape[2] * r->shape[4], 1);
    op_out(r, "dqkv", OP_ACT, rows_of(r), qkv_cols(r), tolerances[r->variant], 3 * OP_ROUNDED)->floor = 1;
}

static void attention_dx_call(struct op_rig *r, struct pl_engine *e)
{
    struct pl_attention_dx a = {.batch = r->shape[0], .seq = r->shape[1], .heads = r->shape[2]};
    a.kv_heads = r->shape[3];
    a.head_dim = r->shape[4];
    a.qkv = op_at(r, "qkv");
    a.qkv_ld = op_ld_of(r, "qkv");
    a.out = op_at(r, "out");
    a.out_ld = op_ld_of(r, "out");
    a.lse = op_at(r, "lse");
    a.dout = op_at(r, "dout");
    a.dqkv = op_at(r, "dqkv");
    e->ops->attention_dx(e, &a);
}

/* ---- decode: queries at the end of a cache whose unused positions are NaN ---- */

/* rows, past, heads, kv_heads, head_dim */
static const uint32_t decode_shapes[][OP_DIMS] = {
    {1, 0, 1, 1, 2},     {1, 0, 2, 1, 16},    {1, 1, 1, 1, 16},   {2, 0, 2, 2, 32},   {1, 2, 4, 1, 64},
    {3, 5, 3, 1, 10},    {1, 7, 2, 1, 80},    {1, 14, 2, 2, 64},  {1, 15, 4, 2, 32},  {1, 16, 1, 1, 128},
    {1, 17, 2, 1, 24},   {8, 0, 2, 1, 64},    {8, 8, 4, 4, 16},   {7, 9, 2, 1, 48},   {5, 28, 3, 3, 96},
    {1, 30, 4, 1, 64},   {1, 31, 2, 1, 32},   {1, 32, 2, 2, 80},  {1, 33, 1, 1, 112}, {4, 61, 2, 1, 64},
    {1, 63, 2, 1, 16},   {1, 64, 4, 2, 64},   {2, 65, 1, 1, 128}, {1, 100, 2, 1, 6},  {1, 127, 4, 1, 32},
    {1, 128, 2, 2, 64},  {3, 129, 3, 1, 80},  {1, 191, 2, 1, 64}, {1, 255, 1, 1, 16}, {1, 256, 2, 1, 32},
    {8, 250, 4, 2, 128}, {1, 300, 2, 1, 100}, {1, 511, 2, 2, 16}, {2, 512, 4, 1, 64}, {1, 700, 1, 1, 72},
    {6, 1020, 2, 1, 32},
};

static uint32_t decode_room(const struct op_rig *r)
{
    return ((r->shape[0] + r->shape[1] - 1) / PL_KV_BLOCK + 1 + r->serial % 2) * PL_KV_BLOCK;
}

static void decode_setup(struct op_rig *r)
{
    const uint32_t used = r->shape[0] + r->shape[1], g = r->shape[3], d = r->shape[4], room = decode_room(r);
    const double deviation = deviations[r->variant], tolerance = tolerances[r->variant];
    struct op_buf *q = op_in(r, "q", OP_F32, r->shape[0], r->shape[2] * d, deviation);
    struct op_buf *keys = op_in(r, "keys", OP_BF16, g * (room / PL_KV_BLOCK) * d, PL_KV_BLOCK, deviation);
    struct op_buf *values = op_in(r, "values", OP_BF16, g * room, d, deviation);
    struct op_buf *out = op_out(r, "out", OP_F32, r->shape[0], r->shape[2] * d, tolerance, tolerance);
    q->ld = op_ld(r, q->cols);
    out->ld = op_ld(r, out->cols + 1);
    for (size_t i = 0; i < (size_t)g * room * d; i++) {
        if (i / PL_KV_BLOCK / d % (room / PL_KV_BLOCK) * PL_KV_BLOCK + i % PL_KV_BLOCK >= used)
            keys->values[i] = nanf("");
        if (i / d % room >= used)
            values->values[i] = nanf("");
    }
}

static void decode_call(struct op_rig *r, struct pl_engine *e)
{
    struct pl_decode a = {
        .rows = r->shape[0], .past = r->shape[1], .heads = r->shape[2], .kv_heads = r->shape[3]};
    a.head_dim = r->shape[4];
    a.q = op_at(r, "q");
    a.q_ld = op_ld_of(r, "q");
    a.keys = op_at(r, "keys");
    a.values = op_at(r, "values");
    a.room = decode_room(r);
    a.out = op_at(r, "out");
    a.out_ld = op_ld_of(r, "out");
    e->ops->decode(e, &a);
}

const struct op_case op_rotary = {"rotary",     OP_SHAPES(shapes), ROTARY_VARIANTS,
                                  rotary_setup, rotary_call,       false};
const struct op_case op_rotary_dx = {"rotary_dx",     OP_SHAPES(shapes), ROTARY_DX_VARIANTS,
                                     rotary_dx_setup, rotary_dx_call,    false};
const struct op_case op_attention = {"attention",     OP_SHAPES(shapes), 2,
                                     attention_setup, attention_call,    false};
const struct op_case op_attention_dx = {"attention_dx",     OP_SHAPES(shapes), 2,
                                        attention_dx_setup, attention_dx_call, false};
const struct op_case op_decode = {"decode", OP_SHAPES(decode_shapes), 2, decode_setup, decode_call, true};
