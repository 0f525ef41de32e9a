/* Finite differences for every operation of the reference back end.
 *
 * ref.c is compiled here once more with double in place of float, so that the step can be small: with central
 * differences of fourth order at h = 1e-5 the rest of the series (h^4) and the rounding (1e-16 / h) are below 1e-10.
 *
 * A case maps a few input vectors to one output vector; the loss is a fixed random combination of the outputs. For
 * each input its slope along a few random directions u is compared with the inner product of u and the gradient that
 * the backward operation gives; they may differ by 1e-7 of |gradient| |u|.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/bf16.h"
#include "base/check.h"
#include "base/prng.h"
#include "seed.h"

#ifdef __clang__
#pragma clang diagnostic ignored "-Wkeyword-macro"
#endif
#define float double
#define pl_ops_ref ops
#include "model/cpu/ref.c"

#define STEP 1e-5
#define TOLERANCE 1e-7

enum { INPUTS = 3, DIMS = 5, DIRECTIONS = 4, ARENA = 1 << 17, PAD = 3 };

/* One case at one shape. Vectors lie in the arena. */
struct point {
    uint32_t dim[DIMS];
    bool accumulate, normed;
    size_t len[INPUTS], out_len;
    size_t cols; /* of input 0, when its rows are padded by PAD; else 0 */
    double *in[INPUTS], *grad[INPUTS];
    double *out, *dout; /* dout: the random combination, which is the gradient of the loss */
    double *save, *cos, *sin, *work;
    int32_t *ids;
    uint16_t *bf16;
    double z;
};

struct diff_case {
    const char *name;
    const uint32_t (*shapes)[DIMS];
    uint32_t shape_count;
    bool normed;
    unsigned adds;                     /* bit i: the gradient of input i is always added to what is there */
    unsigned may_add;                  /* bit i: when told to accumulate */
    void (*prepare)(struct point *p);  /* says the lengths, makes tables */
    void (*forward)(struct point *p);  /* in -> out */
    void (*backward)(struct point *p); /* dout -> grad */
};

static double arena[ARENA];
static size_t arena_used;
static struct pl_prng prng;

static double *take(size_t n)
{
    double *at = arena + arena_used;
    assert_true(arena_used + n <= ARENA);
    arena_used += n;
    return at;
}

/* Near a normal deviate. */
static double draw(void)
{
    double sum = -3;
    for (int i = 0; i < 6; i++)
        sum += (double)(pl_prng_next(&prng) >> 11) * 0x1p-53;
    return sum * 1.414;
}

static double *take_random(size_t n)
{
    double *v = take(n);
    for (size_t i = 0; i < n; i++)
        v[i] = draw();
    return v;
}

static int32_t *take_ids(size_t n, uint32_t below, bool some_negative)
{
    int32_t *ids = (int32_t *)take((n + 1) / 2);
    for (size_t i = 0; i < n; i++)
        ids[i] = some_negative && i % 3 == 2 ? -1 : (int32_t)pl_prng_below(&prng, below);
    return ids;
}

static void lengths(struct point *p, size_t out, size_t a, size_t b, size_t c)
{
    p->out_len = out;
    p->len[0] = a;
    p->len[1] = b;
    p->len[2] = c;
}

/* ---- products: rows, n, k ---- */

static void linear_prepare(struct point *p)
{
    const size_t rows = p->dim[0], n = p->dim[1], k = p->dim[2];
    lengths(p, rows * n, rows * k, n * k, 0);
    p->work = take_random(rows * n);
}

static void linear_forward(struct point *p)
{
    struct pl_linear a = {.rows = p->dim[0],
                          .n = p->dim[1],
                          .k = p->dim[2],
                          .weight = p->in[1],
                          .in = p->in[0],
                          .in_ld = p->dim[2],
                          .out = p->out,
                          .out_ld = p->dim[1],
                          .kind = PL_OUT_SUM,
                          .base = p->work};
    ops.linear(NULL, &a);
}

static void linear_backward(struct point *p)
{
    struct pl_linear a = {.rows = p->dim[0],
                          .n = p->dim[1],
                          .k = p->dim[2],
                          .weight = p->in[1],
                          .in = p->dout,
                          .in_ld = p->dim[1],
                          .out = p->grad[0],
                          .out_ld = p->dim[2],
                          .kind = p->accumulate ? PL_OUT_SUM : PL_OUT_ACT,
                          .base = p->grad[0]};
    struct pl_linear_dw dw = {.rows = p->dim[0],
                              .n = p->dim[1],
                              .k = p->dim[2],
                              .dout = p->dout,
                              .dout_ld = p->dim[1],
                              .in = p->in[0],
                              .in_ld = p->dim[2],
                              .dw = p->grad[1],
                              .accumulate = p->accumulate};
    ops.linear_dx(NULL, &a);
    ops.linear_dw(NULL, &dw);
}

static void matmul_prepare(struct point *p)
{
    const size_t m = p->dim[0], n = p->dim[1], k = p->dim[2];
    lengths(p, m * n, m * k, 0, 0);
    p->work = take_random(n * k);
}

static void matmul_forward(struct point *p)
{
    ops.matmul(NULL, p->out, p->in[0], p->work, p->dim[0], p->dim[1], p->dim[2], p->dim[3] != 0);
}

/* The gradient of a is another product, with b the other way round. */
static void matmul_backward(struct point *p)
{
    ops.matmul(NULL, p->grad[0], p->dout, p->work, p->dim[0], p->dim[2], p->dim[1], p->dim[3] == 0);
}

static void gemv_prepare(struct point *p)
{
    const size_t rows = p->dim[0], n = p->dim[1], k = p->dim[2];
    lengths(p, rows * n, rows * k, 0, 0);
    p->bf16 = (uint16_t *)take(n * k / 4 + 1);
    for (size_t i = 0; i < n * k; i++)
        p->bf16[i] = (uint16_t)(0x3f00 + pl_prng_below(&prng, 0x100)); /* 0.5 to 2 */
}

static void gemv_forward(struct point *p)
{
    ops.gemv(NULL, p->out, p->in[0], p->bf16, p->dim[0], p->dim[1], p->dim[2]);
}

static void gemv_backward(struct point *p)
{
    const size_t rows = p->dim[0], n = p->dim[1], k = p->dim[2];
    memset(p->grad[0], 0, rows * k * sizeof *p->grad[0]);
    for (size_t r = 0; r < rows; r++)
        for (size_t j = 0; j < n; j++)
            for (size_t i = 0; i < k; i++)
                p->grad[0][r * k + i] += p->dout[r * n + j] * (double)pl_bf16_to_float(p->bf16[j * k + i]);
}

/* ---- norm: rows, c ---- */

static void norm_prepare(struct point *p)
{
    const size_t rows = p->dim[0], c = p->dim[1];
    lengths(p, rows * (c + PAD), rows * c, c, 0);
    p->save = take(rows);
    p->work = take(rows * (c + PAD));
}

static void norm_forward(struct point *p)
{
    struct pl_norm a = {.rows = p->dim[0],
                        .c = p->dim[1],
                        .x = p->in[0],
                        .w = p->in[1],
                        .y = p->out,
                        .y_ld = p->dim[1] + PAD,
                        .rstd = p->save,
                        .eps = 1e-3};
    ops.norm(NULL, &a);
}

static void norm_backward(struct point *p)
{
    const size_t c = p->dim[1];
    struct pl_norm_dx a = {.rows = p->dim[0],
                           .c = p->dim[1],
                           .dy = p->dout,
                           .dy_ld = c + PAD,
                           .x = p->in[0],
                           .w = p->in[1],
                           .rstd = p->save,
                           .dx = p->grad[0],
                           .dw = p->grad[1],
                           .accumulate = p->accumulate,
                           .dx_act = p->accumulate ? p->work : NULL,
                           .dx_act_ld = c + PAD};
    ops.norm_dx(NULL, &a);
    for (size_t r = 0; r < p->dim[0] && p->accumulate; r++)
        assert_memory_equal(p->work + r * (c + PAD), p->grad[0] + r * c, c * sizeof *p->work);
}

/* ---- rotary: batch, seq, heads, kv_heads, head_dim ---- */

static size_t qkv_width(const struct point *p)
{
    return (p->dim[2] + 2 * p->dim[3]) * p->dim[4];
}

static void rotary_prepare(struct point *p)
{
    const size_t rows = p->dim[0] * p->dim[1], seq = p->dim[1], d = p->dim[4];
    const size_t values = rows * (qkv_width(p) + PAD);
    lengths(p, values, values, p->normed ? d : 0, p->normed ? d : 0);
    p->cols = qkv_width(p);
    p->save = take(rows * (p->dim[2] + p->dim[3]));
    p->cos = take(seq * d / 2);
    p->sin = take(seq * d / 2);
    for (size_t i = 0; i < seq * d / 2; i++) {
        const double angle = (double)(i / (d / 2)) * pow(100, -2.0 * (double)(i % (d / 2)) / (double)d);
        p->cos[i] = cos(angle);
        p->sin[i] = sin(angle);
    }
}

static void rotary_forward(struct point *p)
{
    const bool n = p->normed;
    struct pl_rotary a = {.rows = p->dim[0] * p->dim[1],
                          .seq = p->dim[1],
                          .heads = p->dim[2],
                          .kv_heads = p->dim[3],
                          .head_dim = p->dim[4],
                          .in = p->in[0],
                          .out = p->out,
                          .ld = qkv_width(p) + PAD,
                          .cos = p->cos,
                          .sin = p->sin,
                          .q_w = n ? p->in[1] : NULL,
                          .k_w = n ? p->in[2] : NULL,
                          .rstd = n ? p->save : NULL,
                          .eps = 1e-3};
    ops.rotary(NULL, &a);
}

static void rotary_backward(struct point *p)
{
    const bool n = p->normed;
    struct pl_rotary_dx a = {.rows = p->dim[0] * p->dim[1],
                             .seq = p->dim[1],
                             .heads = p->dim[2],
                             .kv_heads = p->dim[3],
                             .head_dim = p->dim[4],
                             .d = p->grad[0],
                             .in = p->in[0],
                             .ld = qkv_width(p) + PAD,
                             .cos = p->cos,
                             .sin = p->sin,
                             .q_w = n ? p->in[1] : NULL,
                             .k_w = n ? p->in[2] : NULL,
                             .rstd = n ? p->save : NULL,
                             .dq_w = n ? p->grad[1] : NULL,
                             .dk_w = n ? p->grad[2] : NULL,
                             .accumulate = p->accumulate};
    memcpy(p->grad[0], p->dout, p->len[0] * sizeof *p->dout);
    ops.rotary_dx(NULL, &a);
}

/* ---- attention: batch, seq, heads, kv_heads, head_dim ---- */

static void attention_prepare(struct point *p)
{
    const size_t rows = p->dim[0] * p->dim[1];
    lengths(p, rows * (p->dim[2] * p->dim[4] + PAD), rows * (qkv_width(p) + PAD), 0, 0);
    p->cols = qkv_width(p);
    p->save = take(rows * p->dim[2]);
}

static void attention_forward(struct point *p)
{
    struct pl_attention a = {.batch = p->dim[0],
                             .seq = p->dim[1],
                             .heads = p->dim[2],
                             .kv_heads = p->dim[3],
                             .head_dim = p->dim[4],
                             .qkv = p->in[0],
                             .qkv_ld = qkv_width(p) + PAD,
                             .out = p->out,
                             .out_ld = p->dim[2] * p->dim[4] + PAD,
                             .lse = p->save};
    ops.attention(NULL, &a);
}

static void attention_backward(struct point *p)
{
    struct pl_attention_dx a = {.batch = p->dim[0],
                                .seq = p->dim[1],
                                .heads = p->dim[2],
                                .kv_heads = p->dim[3],
                                .head_dim = p->dim[4],
                                .qkv = p->in[0],
                                .qkv_ld = qkv_width(p) + PAD,
                                .out = p->out,
                                .out_ld = p->dim[2] * p->dim[4] + PAD,
                                .lse = p->save,
                                .dout = p->dout,
                                .dqkv = p->grad[0]};
    ops.attention_dx(NULL, &a);
}

/* ---- swiglu: rows, f ---- */

static void swiglu_prepare(struct point *p)
{
    const size_t rows = p->dim[0], f = p->dim[1];
    lengths(p, rows * (f + PAD), rows * (2 * f + PAD), 0, 0);
    p->cols = 2 * f;
    p->work = take(rows * (f + PAD));
}

static void swiglu_forward(struct point *p)
{
    struct pl_swiglu a = {.rows = p->dim[0],
                          .f = p->dim[1],
                          .gu = p->in[0],
                          .gu_ld = 2 * p->dim[1] + PAD,
                          .h = p->out,
                          .h_ld = p->dim[1] + PAD};
    ops.swiglu(NULL, &a);
}

static void swiglu_backward(struct point *p)
{
    const size_t rows = p->dim[0], f = p->dim[1];
    struct pl_swiglu_dx a = {.rows = p->dim[0],
                             .f = p->dim[1],
                             .gu = p->in[0],
                             .gu_ld = 2 * f + PAD,
                             .dh = p->dout,
                             .dh_ld = f + PAD,
                             .dgu = p->grad[0],
                             .h = p->work};
    ops.swiglu_dx(NULL, &a);
    for (size_t r = 0; r < rows; r++)
        assert_memory_equal(p->work + r * (f + PAD), p->out + r * (f + PAD), f * sizeof *p->out);
}

/* ---- cross-entropy: rows, vocab; the loss of the operation plus z * lse^2, which it leaves out ---- */

static void xent_prepare(struct point *p)
{
    lengths(p, p->dim[0], p->dim[0] * (p->dim[1] + PAD), 0, 0);
    p->cols = p->dim[1];
    p->ids = take_ids(p->dim[0], p->dim[1], true);
    p->z = p->dim[2] != 0 ? 0.05 : 0;
    p->work = take(p->len[0]);
}

static void xent_forward(struct point *p)
{
    struct pl_xent a = {.rows = p->dim[0], .vocab = p->dim[1], .logits = p->work, .ld = p->cols + PAD};
    a.targets = p->ids;
    a.loss = p->out;
    a.z = p->z;
    memcpy(p->work, p->in[0], p->len[0] * sizeof *p->work);
    ops.xent(NULL, &a);
    assert_memory_equal(p->work, p->in[0], p->len[0] * sizeof *p->work); /* scale 0: nothing asked for */
    for (size_t r = 0; r < p->dim[0]; r++) {
        double sum = 0;
        for (size_t i = 0; i < p->dim[1]; i++)
            sum += exp(p->in[0][r * (p->dim[1] + PAD) + i]);
        if (p->ids[r] >= 0)
            p->out[r] += p->z * log(sum) * log(sum);
        else
            assert_true(p->out[r] == 0);
    }
}

/* The operation knows one factor for all rows, so every row is run by its own weight in the loss. */
static void xent_backward(struct point *p)
{
    for (size_t r = 0; r < p->dim[0]; r++) {
        const size_t ld = p->dim[1] + PAD;
        struct pl_xent a = {.rows = 1,
                            .vocab = p->dim[1],
                            .logits = p->grad[0] + r * ld,
                            .ld = ld,
                            .targets = p->ids + r,
                            .loss = p->work,
                            .scale = p->dout[r],
                            .z = p->z};
        memcpy(p->grad[0] + r * ld, p->in[0] + r * ld, p->dim[1] * sizeof(double));
        ops.xent(NULL, &a);
    }
}

/* ---- embedding: rows, c, vocab ---- */

static void embed_prepare(struct point *p)
{
    lengths(p, p->dim[0] * p->dim[1], p->dim[2] * p->dim[1], 0, 0);
    p->ids = take_ids(p->dim[0], p->dim[2], false);
}

static void embed_forward(struct point *p)
{
    ops.embed(NULL, p->out, p->in[0], p->ids, p->dim[0], p->dim[1]);
}

static void embed_backward(struct point *p)
{
    ops.embed_dw(NULL, p->grad[0], p->dout, p->ids, p->dim[0], p->dim[1]);
}

/* ---- conversions, there and back: rows, c ---- */

static void convert_prepare(struct point *p)
{
    lengths(p, p->dim[0] * p->dim[1], p->dim[0] * p->dim[1], 0, 0);
    p->work = take(p->dim[0] * (p->dim[1] + PAD));
}

static void convert_forward(struct point *p)
{
    ops.to_act(NULL, p->work, p->dim[1] + PAD, p->in[0], p->dim[0], p->dim[1]);
    ops.to_f32(NULL, p->out, p->work, p->dim[1] + PAD, p->dim[0], p->dim[1]);
}

static void convert_backward(struct point *p)
{
    memcpy(p->grad[0], p->dout, p->len[0] * sizeof *p->dout);
}

/* ---- the table ---- */

static const uint32_t product_shapes[][DIMS] = {{1, 1, 1},   {3, 5, 7},    {8, 1, 13},    {1, 17, 4},
                                                {11, 10, 9}, {2, 3, 5, 1}, {7, 13, 1, 1}, {16, 6, 20, 1}};
static const uint32_t row_shapes[][DIMS] = {{1, 1}, {1, 2}, {2, 3}, {5, 16}, {7, 31}, {16, 13}};
static const uint32_t head_shapes[][DIMS] = {{1, 1, 1, 1, 2}, {1, 5, 2, 1, 4},   {2, 7, 4, 2, 6},
                                             {3, 4, 4, 1, 8}, {1, 13, 3, 3, 16}, {2, 3, 6, 2, 10}};
static const uint32_t loss_shapes[][DIMS] = {{1, 1, 0}, {1, 5, 0}, {4, 7, 1}, {9, 31, 0}, {6, 64, 1}};
static const uint32_t embed_shapes[][DIMS] = {{1, 1, 1}, {5, 3, 2}, {17, 8, 5}, {3, 7, 40}};

#define SHAPES(table) table, sizeof table / sizeof *table

static const struct diff_case cases[] = {
    {"linear", SHAPES(product_shapes), false, 0, 3, linear_prepare, linear_forward, linear_backward},
    {"matmul", SHAPES(product_shapes), false, 0, 0, matmul_prepare, matmul_forward, matmul_backward},
    {"gemv", SHAPES(product_shapes), false, 0, 0, gemv_prepare, gemv_forward, gemv_backward},
    {"norm", SHAPES(row_shapes), false, 1, 2, norm_prepare, norm_forward, norm_backward},
    {"rotary", SHAPES(head_shapes), false, 0, 0, rotary_prepare, rotary_forward, rotary_backward},
    {"rotary, normed", SHAPES(head_shapes), true, 0, 6, rotary_prepare, rotary_forward, rotary_backward},
    {"attention", SHAPES(head_shapes), false, 0, 0, attention_prepare, attention_forward, attention_backward},
    {"swiglu", SHAPES(row_shapes), false, 0, 0, swiglu_prepare, swiglu_forward, swiglu_backward},
    {"xent", SHAPES(loss_shapes), false, 0, 0, xent_prepare, xent_forward, xent_backward},
    {"embed", SHAPES(embed_shapes), false, 1, 0, embed_prepare, embed_forward, embed_backward},
    {"conversions", SHAPES(row_shapes), false, 0, 0, convert_prepare, convert_forward, convert_backward},
};

/* ---- the check ---- */

static double loss_at(const struct diff_case *c, struct point *p)
{
    double sum = 0;
    c->forward(p);
    for (size_t i = 0; i < p->out_len; i++)
        sum += p->dout[i] * p->out[i];
    return sum;
}

/* The loss with input i moved by h along u. */
static double loss_moved(const struct diff_case *c, struct point *p, int i, const double *u, double h)
{
    double *here = p->in[i];
    const size_t mark = arena_used;
    p->in[i] = take(p->len[i]);
    for (size_t j = 0; j < p->len[i]; j++)
        p->in[i][j] = here[j] + h * u[j];
    const double loss = loss_at(c, p);
    p->in[i] = here;
    arena_used = mark;
    return loss;
}

static void check_input(const struct diff_case *c, struct point *p, int i)
{
    for (int k = 0; k < DIRECTIONS; k++) {
        const size_t mark = arena_used;
        const double *u = take_random(p->len[i]);
        const double near = loss_moved(c, p, i, u, STEP) - loss_moved(c, p, i, u, -STEP);
        const double far = loss_moved(c, p, i, u, 2 * STEP) - loss_moved(c, p, i, u, -2 * STEP);
        const double slope = (8 * near - far) / (12 * STEP);
        const double expected = dot(p->grad[i], u, p->len[i]);
        const double size = sqrt(dot(p->grad[i], p->grad[i], p->len[i]) * dot(u, u, p->len[i]));
        if (!(fabs(slope - expected) <= TOLERANCE * (size + 1e-3)))
            fail_msg(
                "%s %u %u %u %u %u: slope along a direction of input %d is %.12g, its gradient says %.12g",
                c->name, p->dim[0], p->dim[1], p->dim[2], p->dim[3], p->dim[4], i, slope, expected);
        arena_used = mark;
    }
}

/* A gradient that is added to starts at 0.25; one that is overwritten starts as NaN. */
static void gradients(const struct diff_case *c, struct point *p)
{
    const unsigned adds = c->adds | (p->accumulate ? c->may_add : 0);
    for (int i = 0; i < INPUTS; i++)
        for (size_t j = 0; j < p->len[i]; j++)
            p->grad[i][j] = adds >> i & 1 ? 0.25 : nan("");
    c->backward(p);
    for (int i = 0; i < INPUTS; i++)
        for (size_t j = 0; j < p->len[i] && (adds >> i & 1); j++)
            p->grad[i][j] -= 0.25;
}

/* The padding of a row is no input: its gradient is zero, whatever the operation left there. */
static void forget_padding(struct point *p)
{
    for (size_t j = 0; j < p->len[0] && p->cols > 0; j++)
        if (j % (p->cols + PAD) >= p->cols)
            p->grad[0][j] = 0;
}

static void check_point(const struct diff_case *c, const uint32_t *dims, bool accumulate)
{
    struct point p = {.accumulate = accumulate, .normed = c->normed};
    arena_used = 0;
    memset(arena, 0, sizeof arena);
    memcpy(p.dim, dims, sizeof p.dim);
    c->prepare(&p);
    for (int i = 0; i < INPUTS; i++) {
        p.in[i] = take_random(p.len[i]);
        p.grad[i] = take(p.len[i]);
    }
    p.out = take(p.out_len);
    p.dout = take_random(p.out_len);
    loss_at(c, &p);
    gradients(c, &p);
    forget_padding(&p);
    for (int i = 0; i < INPUTS; i++)
        if (p.len[i] > 0)
            check_input(c, &p, i);
}

static void test_case(void **state)
{
    const struct diff_case *c = *state;
    for (uint32_t s = 0; s < c->shape_count; s++) {
        check_point(c, c->shapes[s], false);
        check_point(c, c->shapes[s], true);
    }
}

int main(void)
{
    struct CMUnitTest tests[sizeof cases / sizeof *cases];
    pl_prng_seed(&prng, test_seed(), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        tests[i] = (struct CMUnitTest){cases[i].name, test_case, NULL, NULL, (void *)(uintptr_t)&cases[i]};
    return cmocka_run_group_tests_name("finite differences", tests, NULL, NULL);
}
