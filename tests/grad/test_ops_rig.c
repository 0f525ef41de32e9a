/* The rig that compares back ends must itself be able to fail: ref with one planted fault is found each time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "model/cpu/ref.h"
#include "op_cases.h"
#include "seed.h"

enum { LINEAR_SHAPES = 20 }; /* the small ones suffice */

static struct op_backends backends; /* one: a copy of ref, with a fault */
static struct pl_ops faulty;
static uint64_t seed;

static void norm_right(struct pl_engine *e, const struct pl_norm *a)
{
    pl_ops_ref.norm(e, a);
}

static void norm_off_in_one_element(struct pl_engine *e, const struct pl_norm *a)
{
    pl_ops_ref.norm(e, a);
    ((float *)a->y)[(a->rows - 1) * a->y_ld + a->c - 1] *= 1.0001f;
}

static void norm_leaves_a_row(struct pl_engine *e, const struct pl_norm *a)
{
    struct pl_norm most = *a;
    most.rows--;
    pl_ops_ref.norm(e, &most);
}

static void norm_writes_behind(struct pl_engine *e, const struct pl_norm *a)
{
    pl_ops_ref.norm(e, a);
    ((float *)a->y)[a->rows * a->y_ld] = 1;
}

static void norm_writes_behind_floats(struct pl_engine *e, const struct pl_norm *a)
{
    pl_ops_ref.norm(e, a);
    a->rstd[a->rows] = 1;
}

static void norm_writes_in_front(struct pl_engine *e, const struct pl_norm *a)
{
    pl_ops_ref.norm(e, a);
    a->rstd[-1] = 1;
}

static void norm_writes_its_input(struct pl_engine *e, const struct pl_norm *a)
{
    pl_ops_ref.norm(e, a);
    ((float *)(uintptr_t)a->w)[0] = 1;
}

static void norm_knows_its_threads(struct pl_engine *e, const struct pl_norm *a)
{
    pl_ops_ref.norm(e, a);
    if (e == &backends.at[0].one)
        a->rstd[0] *= 1 + 2e-7f;
}

static void linear_right(struct pl_engine *e, const struct pl_linear *a)
{
    pl_ops_ref.linear(e, a);
}

static void linear_uses_the_padding(struct pl_engine *e, const struct pl_linear *a)
{
    pl_ops_ref.linear(e, a);
    if (a->in_ld > a->k)
        *(float *)a->out += 0 * ((const float *)a->in)[a->k];
}

static void linear_uses_the_slack(struct pl_engine *e, const struct pl_linear *a)
{
    pl_ops_ref.linear(e, a);
    *(float *)a->out += 0 * ((const float *)a->in)[a->rows * a->in_ld];
}

static void linear_forgets_the_base(struct pl_engine *e, const struct pl_linear *a)
{
    struct pl_linear other = *a;
    other.kind = PL_OUT_F32;
    pl_ops_ref.linear(e, &other);
}

static void linear_clears_first(struct pl_engine *e, const struct pl_linear *a)
{
    for (size_t r = 0; r < a->rows; r++)
        for (size_t j = 0; j < a->n; j++)
            ((float *)a->out)[r * a->out_ld + j] = 0; /* and with it the base that lies there */
    pl_ops_ref.linear(e, a);
}

static void linear_writes_float_padding(struct pl_engine *e, const struct pl_linear *a)
{
    pl_ops_ref.linear(e, a);
    if (a->out_ld > a->n)
        ((float *)a->out)[a->n] = 0;
}

static const struct {
    const char *name;
    void (*norm)(struct pl_engine *e, const struct pl_norm *a);
    void (*linear)(struct pl_engine *e, const struct pl_linear *a);
} faults[] = {
    {"one element is off", norm_off_in_one_element, linear_right},
    {"a row is left out", norm_leaves_a_row, linear_right},
    {"behind the activations", norm_writes_behind, linear_right},
    {"behind the floats", norm_writes_behind_floats, linear_right},
    {"in front of the floats", norm_writes_in_front, linear_right},
    {"over an input", norm_writes_its_input, linear_right},
    {"threads make a difference", norm_knows_its_threads, linear_right},
    {"padding is used", norm_right, linear_uses_the_padding},
    {"slack is used", norm_right, linear_uses_the_slack},
    {"the base is forgotten", norm_right, linear_forgets_the_base},
    {"the base is cleared", norm_right, linear_clears_first},
    {"padding of floats is written", norm_right, linear_writes_float_padding},
};

static uint32_t failures(void)
{
    struct op_case few = op_linear;
    few.shape_count = LINEAR_SHAPES;
    backends.count = 1;
    backends.at[0].name = "ref with a fault";
    backends.at[0].many.ops = backends.at[0].one.ops = &faulty;
    return op_check(&op_norm, &backends, seed, true) + op_check(&few, &backends, seed, true);
}

static void test_no_fault(void **state)
{
    (void)state;
    faulty = pl_ops_ref;
    assert_int_equal(failures(), 0);
}

static void test_faults(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        faulty = pl_ops_ref;
        faulty.norm = faults[i].norm;
        faulty.linear = faults[i].linear;
        if (failures() == 0)
            fail_msg("not found: %s", faults[i].name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_no_fault), cmocka_unit_test(test_faults)};
    seed = test_seed();
    return cmocka_run_group_tests_name("the rig", tests, NULL, NULL);
}
