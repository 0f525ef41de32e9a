/* Matrix products on every back end against the reference. */
#include "op_cases.h"

int main(void)
{
    static const struct op_case *const cases[] = {&op_linear, &op_linear_dx, &op_linear_dw, &op_matmul,
                                                  &op_gemv};
    return op_main("products", cases, sizeof cases / sizeof *cases);
}
