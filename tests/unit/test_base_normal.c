/* test_base_normal.c - normal deviates: their law, and their bits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/hash.h"
#include "base/normal.h"
#include "seed.h"

#include <math.h>

static void the_tables_close(void **state)
{
    (void)state;
    struct pl_normal n;
    pl_normal_init(&n);
    for (int i = 1; i < PL_NORMAL_LAYERS; i++) {
        assert_true(n.x[i] > n.x[i + 1] && n.y[i] < n.y[i + 1]);
        assert_true(fabs(n.y[i] - exp(-n.x[i] * n.x[i] / 2)) < 1e-14);
    }
    /* The top layer has the area of all others: the constants fit each other. */
    int top = PL_NORMAL_LAYERS - 1;
    assert_true(fabs(n.x[top] * (1 - n.y[top]) / (n.x[1] * (n.y[2] - n.y[1])) - 1) < 1e-8);
    assert_true(fabs(n.x[0] * n.y[1] / (n.x[1] * (n.y[2] - n.y[1])) - 1) < 1e-12);
}

/* Share of a normal variable between a and b. */
static double share(double a, double b)
{
    return (erf(b / sqrt(2)) - erf(a / sqrt(2))) / 2;
}

static void the_law_is_normal(void **state)
{
    (void)state;
    enum { SAMPLES = 4000000, BINS = 90 };
    static uint32_t bins[BINS]; /* of width 0.1 from -4.5 to 4.5 */
    struct pl_normal n;
    struct pl_prng r;
    double sum = 0, squares = 0, fourth = 0;
    uint32_t beyond = 0;
    pl_normal_init(&n);
    pl_prng_seed(&r, test_seed(), 0);
    for (int i = 0; i < SAMPLES; i++) {
        double v = pl_normal_next(&n, &r);
        sum += v;
        squares += v * v;
        fourth += v * v * v * v;
        if (fabs(v) < 4.5)
            bins[(int)floor((v + 4.5) * 10)]++;
        beyond += fabs(v) > 3.6541528853610088;
    }
    /* Each within six standard deviations. */
    assert_true(fabs(sum / SAMPLES) < 6 / sqrt(SAMPLES));
    assert_true(fabs(squares / SAMPLES - 1) < 6 * sqrt(2.0 / SAMPLES));
    assert_true(fabs(fourth / SAMPLES - 3) < 6 * sqrt(96.0 / SAMPLES));
    for (int i = 0; i < BINS; i++) {
        double expected = SAMPLES * share(i / 10.0 - 4.5, i / 10.0 - 4.4);
        assert_true(fabs(bins[i] - expected) < 6 * sqrt(expected) + 6);
    }
    double tail = SAMPLES * 2 * share(3.6541528853610088, 40);
    assert_true(fabs(beyond - tail) < 6 * sqrt(tail));
}

static void the_bits_are_the_same_everywhere(void **state)
{
    (void)state;
    static float values[100000];
    struct pl_normal n;
    struct pl_prng r;
    pl_normal_init(&n);
    pl_prng_seed(&r, 1, 2);
    for (int i = 0; i < 100000; i++)
        values[i] = (float)pl_normal_next(&n, &r);
    assert_true(pl_hash64(&n, sizeof n, 0) == UINT64_C(0x1f44f42e2777b44a));
    assert_true(pl_hash64(values, sizeof values, 0) == UINT64_C(0x789796fc6ce94a79));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_tables_close),
        cmocka_unit_test(the_law_is_normal),
        cmocka_unit_test(the_bits_are_the_same_everywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
