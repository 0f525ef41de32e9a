/* Random times: means, and quantiles against closed forms. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "goodput/draw.h"
#include "seed.h"

enum { DRAWS = 200000 };

static void mean_and_deviation(const struct pl_draw *d, struct pl_prng *r, double *mean, double *deviation)
{
    double sum = 0, squares = 0;
    for (int i = 0; i < DRAWS; i++) {
        double x = pl_draw_next(d, r);
        assert_true(x >= 0 && isfinite(x));
        sum += x;
        squares += x * x;
    }
    *mean = sum / DRAWS;
    *deviation = sqrt(fmax(squares / DRAWS - *mean * *mean, 0));
}

/* Whatever the spread, the mean is what was asked for. */
static void test_means(void **state)
{
    (void)state;
    const struct pl_goodput_time times[] = {
        {PL_GOODPUT_FIXED, 42, 1, 1},           {PL_GOODPUT_EXPONENTIAL, 3600, 1, 1},
        {PL_GOODPUT_LOGNORMAL, 600, 0.8, 1},    {PL_GOODPUT_EXP_WEIBULL, 3600, 0.7, 2},
        {PL_GOODPUT_EXP_WEIBULL, 10, 2.5, 0.5}, {PL_GOODPUT_EXP_WEIBULL, 1, 1, 1},
    };
    struct pl_prng r;
    pl_prng_seed(&r, test_seed(), 0);
    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++) {
        struct pl_draw d;
        double mean, deviation;
        pl_draw_init(&d, &times[i]);
        mean_and_deviation(&d, &r, &mean, &deviation);
        /* Six deviations of a mean, and 0.1% for the sum that replaces an integral. */
        assert_true(fabs(mean - times[i].mean_s) <= 6 * deviation / sqrt(DRAWS) + 1e-3 * times[i].mean_s);
    }
}

static void test_weibull(void **state)
{
    (void)state;
    struct pl_prng r;
    pl_prng_seed(&r, test_seed(), 1);
    const double shapes[] = {0.5, 1, 3};
    for (size_t i = 0; i < 3; i++) {
        struct pl_draw d;
        uint32_t below = 0;
        double scale = 100 / tgamma(1 + 1 / shapes[i]);
        pl_draw_init_weibull(&d, 100, shapes[i]);
        for (int k = 0; k < DRAWS; k++)
            below += pl_draw_next(&d, &r) < scale ? 1 : 0;
        assert_true(fabs((double)below / DRAWS - (1 - exp(-1))) < 6 * 0.5 / sqrt(DRAWS));
    }
}

/* Exponentiated Weibull: the median is s (-ln(1 - 0.5^(1/a)))^(1/k). */
static void test_exp_weibull_median(void **state)
{
    (void)state;
    struct pl_prng r;
    struct pl_draw d;
    uint32_t below = 0;
    pl_prng_seed(&r, test_seed(), 2);
    pl_draw_init(&d, &(struct pl_goodput_time){PL_GOODPUT_EXP_WEIBULL, 3600, 0.7, 2});
    double median = d.scale * pow(-log(1 - sqrt(0.5)), 1 / 0.7);
    for (int k = 0; k < DRAWS; k++)
        below += pl_draw_next(&d, &r) < median ? 1 : 0;
    assert_true(fabs((double)below / DRAWS - 0.5) < 6 * 0.5 / sqrt(DRAWS));
}

static void test_unit_stays_inside(void **state)
{
    (void)state;
    struct pl_prng r;
    pl_prng_seed(&r, test_seed(), 3);
    for (int i = 0; i < DRAWS; i++) {
        double u = pl_draw_unit(&r);
        assert_true(u > 0 && u < 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_means),
        cmocka_unit_test(test_weibull),
        cmocka_unit_test(test_exp_weibull_median),
        cmocka_unit_test(test_unit_stays_inside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
