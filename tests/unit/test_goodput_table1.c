/* The bars of docs/goodput.md: the paper's table 1 from one set of constants, uptime, and what goes beyond it. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "goodput/cases.h"
#include "goodput_rig.h"

static void test_every_cell(void **state)
{
    (void)state;
    for (uint32_t row = 0; row < PL_PAPER_ROWS; row++)
        for (uint32_t size = 0; size < PL_PAPER_SIZES; size++) {
            struct pl_paper_cell cell = pl_paper_cell(row, size);
            struct pl_goodput_options o;
            pl_paper_options(row, size, &o);
            double percent = 100 * goodput_run(&o).goodput;
            if (fabs(percent - cell.percent) > cell.tolerance)
                fail_msg("%s, %lu chips: %.2f%%, the paper has %.0f%%", cell.row, (unsigned long)cell.chips,
                         percent, cell.percent);
        }
}

/* Nothing but algorithm, chips and learners differs between cells. */
static void test_one_set_of_constants(void **state)
{
    (void)state;
    for (uint32_t row = 0; row < PL_PAPER_ROWS; row++)
        for (uint32_t size = 0; size < PL_PAPER_SIZES; size++) {
            struct pl_goodput_options o, plain;
            pl_paper_options(row, size, &o);
            pl_goodput_defaults(&plain);
            plain.chips = o.chips;
            plain.learners = o.learners;
            plain.algorithm = o.algorithm;
            assert_memory_equal(&o, &plain, sizeof o);
        }
}

static double uptime(uint64_t chips, uint32_t learners)
{
    struct pl_goodput_options o;
    double sum = 0;
    pl_goodput_defaults(&o);
    o.chips = chips;
    o.learners = learners;
    for (o.seed = 1; o.seed <= 3; o.seed++)
        sum += goodput_run(&o).uptime;
    return 100 * sum / 3;
}

static void test_uptime(void **state)
{
    (void)state;
    assert_true(uptime(1200000, 4) >= 99.8);
    assert_true(uptime(2400000, 4) >= 99.4);
    assert_true(uptime(1200000, 8) >= 99.95);
    assert_true(uptime(2400000, 8) >= 99.95);
    assert_true(uptime(2400000, 16) >= 99.95);
}

/* Each change helps at both sizes, and together they pass 95% with 8 learners. */
static void test_beyond(void **state)
{
    (void)state;
    uint32_t count;
    const struct pl_goodput_case *cases = pl_goodput_changes(&count);
    double best8 = 0;
    assert_true(count >= 3 && cases[0].set == NULL);
    for (uint64_t chips = 1200000; chips <= 2400000; chips *= 2) {
        double base = 0;
        for (uint32_t i = 0; i < count; i++) {
            struct pl_goodput_options o;
            pl_goodput_defaults(&o);
            o.chips = chips;
            if (cases[i].set != NULL)
                cases[i].set(&o);
            double goodput = goodput_run(&o).goodput;
            base = i == 0 ? goodput : base;
            assert_true(i == 0 || goodput > base + 0.01);
            if (chips == 1200000 && o.learners == 8)
                best8 = fmax(best8, goodput);
        }
    }
    assert_true(best8 >= 0.95);
}

/* Harsher worlds hurt, and never a decoupled run as much as one job over all chips. */
static void test_worlds(void **state)
{
    (void)state;
    uint32_t count;
    const struct pl_goodput_case *worlds = pl_goodput_worlds(&count);
    assert_int_equal(count, 4);
    for (uint32_t i = 0; i < count; i++) {
        struct pl_goodput_options o;
        pl_goodput_defaults(&o);
        o.days = 10;
        double plain = goodput_run(&o).goodput;
        if (worlds[i].set != NULL)
            worlds[i].set(&o);
        double decoupled = goodput_run(&o).goodput;
        o.algorithm = PL_GOODPUT_DATA_PARALLEL_ELASTIC;
        double one_job = goodput_run(&o).goodput;
        assert_true(decoupled <= plain + 0.002);
        assert_true(one_job < decoupled - 0.2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_cell), cmocka_unit_test(test_one_set_of_constants),
        cmocka_unit_test(test_uptime),     cmocka_unit_test(test_beyond),
        cmocka_unit_test(test_worlds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
