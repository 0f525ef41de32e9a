/* support/op_cases.h - the operations of model/ops.h as cases for op_rig.h. */
#ifndef PL_TEST_OP_CASES_H
#define PL_TEST_OP_CASES_H

#include "op_rig.h"

#define OP_SHAPES(table) table, sizeof table / sizeof *table

/* The most that rounding to bfloat16 changes a number, relatively: 2^-8. */
#define OP_ROUNDED 3.95e-3

/* op_product.c */
extern const struct op_case op_linear, op_linear_dx, op_linear_dw, op_matmul, op_gemv;
/* op_heads.c */
extern const struct op_case op_rotary, op_rotary_dx, op_attention, op_attention_dx, op_decode;
/* op_rows.c */
extern const struct op_case op_norm, op_norm_dx, op_swiglu, op_swiglu_dx, op_xent, op_embed, op_embed_dw,
    op_to_act, op_to_f32;

/* For an array of pointers. */
#define OP_ALL_CASES                                                                                         \
    &op_linear, &op_linear_dx, &op_linear_dw, &op_matmul, &op_gemv, &op_rotary, &op_rotary_dx,               \
        &op_attention, &op_attention_dx, &op_decode, &op_norm, &op_norm_dx, &op_swiglu, &op_swiglu_dx,       \
        &op_xent, &op_embed, &op_embed_dw, &op_to_act, &op_to_f32

#endif
