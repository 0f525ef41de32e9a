/* support/op_product.c - matrix products: linear, linear_dx, linear_dw, matmul, gemv.
 *
 * Inputs are exact in the back end's precision and sums are floats everywhere, so that products stored as floats must
 * agree closely in bfloat16 too; only what is stored as bfloat16 activations is rounded, by at most 2^-8.
 */
#include "op_cases.h"

#define SUM_TOLERANCE 3e-6
#define ROUNDED_TOLERANCE OP_ROUNDED

/* rows, n, k: small, odd, prime, and around the borders of blocks: 14, 16, 28, 32, 64, 256, 384, 512. */
static const uint32_t shapes[][OP_DIMS] = {
    {1, 1, 1},       {1, 2, 3},      {2, 1, 5},      {3, 7, 2},      {5, 3, 31},    {7, 5, 13},
    {13, 17, 19},    {14, 16, 32},   {15, 33, 31},   {16, 32, 64},   {17, 31, 33},  {27, 29, 63},
    {28, 32, 65},    {29, 64, 32},   {31, 37, 41},   {32, 32, 32},   {33, 65, 127}, {63, 64, 16},
    {64, 63, 128},   {65, 96, 1},    {67, 1, 67},    {1, 512, 64},   {1, 64, 512},  {3, 100, 511},
    {2, 96, 513},    {4, 290, 1030}, {40, 70, 512},  {30, 129, 600}, {100, 61, 97}, {127, 48, 80},
    {128, 96, 64},   {129, 32, 100}, {257, 34, 66},  {300, 5, 40},   {6, 513, 70},  {2, 1100, 36},
    {96, 384, 48},   {80, 200, 160}, {511, 12, 33},  {512, 40, 31},  {513, 33, 17}, {1030, 9, 20},
    {260, 260, 130}, {12, 1025, 10}, {600, 300, 96}, {40, 3000, 33}, {5, 70, 4200}, {33, 70, 384},
    {33, 70, 385},   {385, 33, 17},  {64, 96, 768},
};

/* Variants: each kind of output, and the sum in place. */
enum { LINEAR_ACT, LINEAR_F32, LINEAR_SUM, LINEAR_SUM_IN_PLACE, LINEAR_VARIANTS };

static const enum pl_out kinds[LINEAR_VARIANTS] = {PL_OUT_ACT, PL_OUT_F32, PL_OUT_SUM, PL_OUT_SUM};

static void product_out(struct op_rig *r, uint32_t rows, uint32_t cols)
{
    const enum pl_out kind = kinds[r->variant];
    const size_t ld = r->serial / LINEAR_VARIANTS % 2 == 0 ? cols : op_ld(r, cols);
    struct op_buf *base = kind == PL_OUT_SUM ? op_in(r, "base", OP_F32, rows, cols, 2) : NULL;
    struct op_buf *out = op_out(r, "out", kind == PL_OUT_ACT ? OP_ACT : OP_F32, rows, cols, SUM_TOLERANCE,
                                kind == PL_OUT_ACT ? ROUNDED_TOLERANCE : SUM_TOLERANCE);
    if (kind != PL_OUT_ACT)
        out->ld = ld;
    if (base != NULL)
        base->ld = ld;
    if (r->variant == LINEAR_SUM_IN_PLACE)
        op_share(r, out, base);
}

static void linear_setup(struct op_rig *r)
{
    op_in(r, "weight", OP_WEIGHT, r->shape[1], r->shape[2], 1);
    op_in(r, "in", OP_ACT, r->shape[0], r->shape[2], 1);
    product_out(r, r->shape[0], r->shape[1]);
}

static void linear_dx_setup(struct op_rig *r)
{
    op_in(r, "weight", OP_WEIGHT, r->shape[1], r->shape[2], 1);
    op_in(r, "in", OP_ACT, r->shape[0], r->shape[1], 1);
    product_out(r, r->shape[0], r->shape[2]);
}

static struct pl_linear linear_args(struct op_rig *r)
{
    struct pl_linear a = {.rows = r->shape[0], .n = r->shape[1], .k = r->shape[2], .kind = kinds[r->variant]};
    a.weight = op_at(r, "weight");
    a.in = op_at(r, "in");
    a.in_ld = op_ld_of(r, "in");
    a.out = op_at(r, "out");
    a.out_ld = op_ld_of(r, "out");
    a.base = op_at(r, "base");
    return a;
}

static void linear_call(struct op_rig *r, struct pl_engine *e)
{
    const struct pl_linear a = linear_args(r);
    e->ops->linear(e, &a);
}

static void linear_dx_call(struct op_rig *r, struct pl_engine *e)
{
    const struct pl_linear a = linear_args(r);
    e->ops->linear_dx(e, &a);
}

/* Variants: overwrite, accumulate. */
static void linear_dw_setup(struct op_rig *r)
{
    op_in(r, "dout", OP_ACT, r->shape[0], r->shape[1], 1);
    op_in(r, "in", OP_ACT, r->shape[0], r->shape[2], 1);
    if (r->variant == 0)
        op_out(r, "dw", OP_F32, r->shape[1], r->shape[2], SUM_TOLERANCE, SUM_TOLERANCE);
    else
        op_inout(r, "dw", OP_F32, r->shape[1], r->shape[2], SUM_TOLERANCE, SUM_TOLERANCE);
}

static void linear_dw_call(struct op_rig *r, struct pl_engine *e)
{
    struct pl_linear_dw a = {
        .rows = r->shape[0], .n = r->shape[1], .k = r->shape[2], .accumulate = r->variant == 1};
    a.dout = op_at(r, "dout");
    a.dout_ld = op_ld_of(r, "dout");
    a.in = op_at(r, "in");
    a.in_ld = op_ld_of(r, "in");
    a.dw = op_at(r, "dw");
    e->ops->linear_dw(e, &a);
}

/* Variants: b, b transposed. Floats in, but the back end may round them. */
static void matmul_setup(struct op_rig *r)
{
    const uint32_t m = r->shape[0], n = r->shape[1], k = r->shape[2];
    op_round(r, op_in(r, "a", OP_F32, m, k, 1));
    op_round(r, r->variant == 0 ? op_in(r, "b", OP_F32, k, n, 1) : op_in(r, "b", OP_F32, n, k, 1));
    op_out(r, "c", OP_F32, m, n, SUM_TOLERANCE, SUM_TOLERANCE);
}

static void matmul_call(struct op_rig *r, struct pl_engine *e)
{
    e->ops->matmul(e, op_at(r, "c"), op_at(r, "a"), op_at(r, "b"), r->shape[0], r->shape[1], r->shape[2],
                   r->variant == 1);
}

/* Few rows, as when sampling. */
static const uint32_t gemv_shapes[][OP_DIMS] = {
    {1, 1, 1},    {1, 1, 2},     {1, 2, 1},    {1, 3, 7},     {1, 5, 15},   {1, 7, 16},  {1, 8, 17},
    {1, 15, 31},  {1, 16, 32},   {1, 17, 33},  {1, 31, 63},   {1, 32, 64},  {1, 33, 65}, {1, 64, 128},
    {1, 67, 129}, {1, 200, 384}, {1, 255, 97}, {1, 3, 1000},  {2, 1, 1},    {2, 13, 31}, {2, 16, 64},
    {2, 129, 48}, {3, 5, 130},   {3, 64, 47},  {4, 32, 32},   {4, 97, 101}, {5, 7, 512}, {5, 300, 11},
    {7, 31, 513}, {8, 64, 80},   {8, 77, 19},  {1, 1000, 96},
};

static void gemv_setup(struct op_rig *r)
{
    op_round(r, op_in(r, "x", OP_F32, r->shape[0], r->shape[2], 1));
    op_in(r, "w", OP_BF16, r->shape[1], r->shape[2], 1);
    op_out(r, "y", OP_F32, r->shape[0], r->shape[1], SUM_TOLERANCE, SUM_TOLERANCE);
}

static void gemv_call(struct op_rig *r, struct pl_engine *e)
{
    e->ops->gemv(e, op_at(r, "y"), op_at(r, "x"), op_at(r, "w"), r->shape[0], r->shape[1], r->shape[2]);
}

const struct op_case op_linear = {"linear",     OP_SHAPES(shapes), LINEAR_VARIANTS,
                                  linear_setup, linear_call,       false};
const struct op_case op_linear_dx = {"linear_dx",     OP_SHAPES(shapes), LINEAR_VARIANTS,
                                     linear_dx_setup, linear_dx_call,    false};
const struct op_case op_linear_dw = {"linear_dw",     OP_SHAPES(shapes), 2,
                                     linear_dw_setup, linear_dw_call,    false};
const struct op_case op_matmul = {"matmul", OP_SHAPES(shapes), 2, matmul_setup, matmul_call, false};
const struct op_case op_gemv = {"gemv", OP_SHAPES(gemv_shapes), 1, gemv_setup, gemv_call, true};
