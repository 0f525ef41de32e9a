/* Operations that work row by row on every back end against the reference. */
#include "op_cases.h"

int main(void)
{
    static const struct op_case *const cases[] = {&op_norm,      &op_norm_dx, &op_swiglu,
                                                  &op_swiglu_dx, &op_xent,    &op_embed,
                                                  &op_embed_dw,  &op_to_act,  &op_to_f32};
    return op_main("rows", cases, sizeof cases / sizeof *cases);
}
