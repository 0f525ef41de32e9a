/* Rotary positions and attention on every back end against the reference. */
#include "op_cases.h"

int main(void)
{
    static const struct op_case *const cases[] = {&op_rotary, &op_rotary_dx, &op_attention, &op_attention_dx,
                                                  &op_decode};
    return op_main("heads", cases, sizeof cases / sizeof *cases);
}
