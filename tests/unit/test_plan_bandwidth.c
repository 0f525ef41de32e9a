/* The bandwidth model: what must hold of any such graph, and the published figures within their bars. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "plan/published.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const struct pl_bandwidth streaming = {.method = PL_BANDWIDTH_STREAMING,
                                              .layers = 24,
                                              .step_s = 0.1,
                                              .gbit = 16,
                                              .period = 100,
                                              .overlap = 0,
                                              .fragment_layers = 3};

/* A barrier and nothing hidden but the backward pass: DiLoCo in closed form. */
static void test_diloco_in_closed_form(void **state)
{
    (void)state;
    struct pl_bandwidth b = streaming;
    b.method = PL_BANDWIDTH_DILOCO;
    const double gbit_s = 2, sending_s = b.gbit / gbit_s;
    const double hidden_s = b.step_s * (2.0 * b.layers - 3) / (3.0 * b.layers - 1);
    const double computing_s = b.period * b.step_s;
    double want = computing_s / (computing_s + sending_s - hidden_s);
    assert_true(fabs(pl_bandwidth_utilisation(&b, gbit_s) - want) < 1e-9);
}

static void test_more_rate_and_more_overlap_never_hurt(void **state)
{
    (void)state;
    for (uint32_t overlap = 0; overlap < 10; overlap++) {
        struct pl_bandwidth b = streaming, later = streaming;
        b.overlap = overlap;
        later.overlap = overlap + 1;
        double before = 0;
        for (uint32_t k = 0; k < PL_BANDWIDTH_GRID; k++) {
            double u = pl_bandwidth_utilisation(&b, pl_bandwidth_point(k));
            assert_true(u >= before && u <= 1 + 1e-9);
            assert_true(pl_bandwidth_utilisation(&later, pl_bandwidth_point(k)) >= u - 1e-9);
            before = u;
        }
    }
}

static void test_the_needed_rate_is_the_edge(void **state)
{
    (void)state;
    for (uint32_t t = 0; t < PL_PUBLISHED_TARGETS; t++) {
        double u = pl_published_targets[t], rate = pl_bandwidth_needed(&streaming, u);
        assert_true(pl_bandwidth_utilisation(&streaming, rate) >= u);
        assert_true(pl_bandwidth_utilisation(&streaming, rate * 0.998) < u);
        uint32_t point = pl_bandwidth_needed_point(&streaming, u);
        assert_true(pl_bandwidth_point(point) >= rate * 0.998 && pl_bandwidth_point(point - 1) < rate);
    }
}

static void test_the_grid(void **state)
{
    (void)state;
    assert_true(fabs(pl_bandwidth_point(0) - 0.1) < 1e-12);
    assert_true(fabs(pl_bandwidth_point(PL_BANDWIDTH_GRID - 1) - 1000) < 1e-9);
    for (uint32_t k = 0; k < PL_BANDWIDTH_GRID - 1; k++)
        assert_int_equal(pl_bandwidth_nearest_point(pl_bandwidth_point(k)), k);
    assert_int_equal(pl_bandwidth_nearest_point(0.01), 0);
    assert_int_equal(pl_bandwidth_nearest_point(1001), PL_BANDWIDTH_GRID);
}

static void test_no_rate_is_enough_where_the_grid_ends(void **state)
{
    (void)state;
    struct pl_bandwidth b = streaming;
    b.gbit = 1e6;
    assert_int_equal(pl_bandwidth_needed_point(&b, 0.99), PL_BANDWIDTH_GRID);
}

/* The bar of the tables: every cell within one step of their grid, with one set of assumptions. */
static void test_published_cells(void **state)
{
    (void)state;
    uint32_t cells = 0, same = 0;
    for (uint32_t r = 0; r < PL_PUBLISHED_ROWS; r++)
        for (uint32_t t = 0; t < PL_PUBLISHED_TARGETS; t++, cells++) {
            const struct pl_published_row *row = pl_published_row(r);
            int steps = pl_published_steps(row, t, PL_PUBLISHED_BITS);
            if (abs(steps) > 1)
                print_message("table %s, %s, %s, target %u: %+d steps\n", row->table, row->model, row->method,
                              t, steps);
            assert_true(abs(steps) <= 1);
            same += steps == 0;
        }
    assert_int_equal(cells, 130);
    assert_true(same >= 80);
}

static void assert_within(double value, double published, double share)
{
    assert_true(fabs(value / published - 1) <= share);
}

static void test_headlines(void **state)
{
    (void)state;
    struct pl_headlines h;
    pl_published_headlines(&h);
    assert_within(h.data_parallel_gbit_s, 198, 0.2);
    assert_within(h.decoupled_gbit_s, 0.84, 0.2);
    assert_within(h.region_low_gbit_s, 2, 0.2);
    assert_within(h.region_high_gbit_s, 5, 0.2);
    assert_true(h.region_speedup > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_diloco_in_closed_form),
        cmocka_unit_test(test_more_rate_and_more_overlap_never_hurt),
        cmocka_unit_test(test_the_needed_rate_is_the_edge),
        cmocka_unit_test(test_the_grid),
        cmocka_unit_test(test_no_rate_is_enough_where_the_grid_ends),
        cmocka_unit_test(test_published_cells),
        cmocka_unit_test(test_headlines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
