/* The grace window: a worked example, its caps, and the ends of the number range. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/limits.h"
#include "base/prng.h"
#include "core/grace.h"
#include "seed.h"

static uint64_t grace(uint64_t step_ns, uint64_t quorum_ns, uint64_t sync_ns, uint32_t overlap_steps,
                      uint32_t gamma_ppm)
{
    const struct pl_grace_in in = {step_ns, quorum_ns, sync_ns, overlap_steps, gamma_ppm, 1};
    return pl_grace_ns(&in);
}

static void test_paper(void **state)
{
    (void)state;
    /* 0.8 * (2 * 1 s - (0.3 s + 0.5 s)) = 0.96 s */
    assert_int_equal(grace(PL_SEC, 300 * PL_MS, 500 * PL_MS, 2, 800000), 960 * PL_MS);
    /* Negative slack. */
    assert_int_equal(grace(PL_SEC, 1500 * PL_MS, 501 * PL_MS, 2, 800000), 0);
    assert_int_equal(grace(PL_SEC, 1500 * PL_MS, 500 * PL_MS, 2, 800000), 0);
    /* One nanosecond of slack is less than one of grace. */
    assert_int_equal(grace(PL_SEC, 2 * PL_SEC - 1, 0, 2, 800000), 0);
    assert_int_equal(grace(PL_SEC, 2 * PL_SEC - 5, 0, 2, 800000), 4);
}

static void test_never_over_one_step(void **state)
{
    (void)state;
    assert_int_equal(grace(PL_SEC, 0, 0, 12, 800000), PL_SEC);
    assert_int_equal(grace(PL_SEC, 0, 0, 2, 500000), PL_SEC);
    assert_int_equal(grace(PL_SEC, 0, 0, 2, 499999), 999998000);
    assert_int_equal(grace(PL_SEC, 0, 0, 1, UINT32_MAX), PL_SEC);
}

/* Where the period is stretched, so is its step; the slack still counts. */
static void test_stretched(void **state)
{
    (void)state;
    struct pl_grace_in in = {
        .step_ns = PL_SEC, .quorum_ns = PL_SEC, .overlap_steps = 12, .gamma_ppm = 800000, .stretch = 4};
    assert_int_equal(pl_grace_ns(&in), 4 * PL_SEC);
    in.quorum_ns = 10 * PL_SEC;
    assert_int_equal(pl_grace_ns(&in), 1600 * PL_MS);
    in = (struct pl_grace_in){UINT64_MAX / 2, 0, 0, UINT32_MAX, UINT32_MAX, 64};
    assert_int_equal(pl_grace_ns(&in), UINT64_MAX);
}

static void test_nothing_measured_yet(void **state)
{
    (void)state;
    assert_int_equal(grace(0, 0, 0, 2, 800000), 0);
    assert_int_equal(grace(PL_SEC, 0, 0, 0, 800000), 0);
    assert_int_equal(grace(PL_SEC, 0, 0, 2, 0), 0);
}

static void test_ends_of_the_range(void **state)
{
    (void)state;
    assert_int_equal(grace(UINT64_MAX, 0, 0, UINT32_MAX, UINT32_MAX), UINT64_MAX);
    assert_int_equal(grace(UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT32_MAX, 1000000), 0);
    assert_int_equal(grace(PL_SEC, UINT64_MAX, UINT64_MAX, 2, 800000), 0);
    assert_int_equal(grace(UINT64_MAX, 0, 0, 1, 1000000), UINT64_MAX);
    assert_int_equal(grace(UINT64_MAX, 0, 0, 1, 1), UINT64_MAX / 1000000);
}

/* Against the formula in 128 bits, where that does not saturate. */
static void test_against_wide_arithmetic(void **state)
{
    (void)state;
    __extension__ typedef __int128 wide;
    struct pl_prng r;
    pl_prng_seed(&r, test_seed(), 0);
    for (int i = 0; i < 100000; i++) {
        uint64_t step = pl_prng_next(&r) >> pl_prng_range(&r, 13, 63);
        uint64_t quorum = pl_prng_next(&r) >> pl_prng_range(&r, 2, 63);
        uint64_t sync = pl_prng_next(&r) >> pl_prng_range(&r, 2, 63);
        uint32_t tau = (uint32_t)pl_prng_below(&r, PL_PERIOD_STEPS_MAX),
                 gamma = (uint32_t)pl_prng_below(&r, 1000001);
        wide want = ((wide)step * tau - ((wide)quorum + sync)) * gamma / 1000000;
        want = want < 0 ? 0 : want > step ? step : want;
        assert_true(grace(step, quorum, sync, tau, gamma) == (uint64_t)want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_paper),
        cmocka_unit_test(test_never_over_one_step),
        cmocka_unit_test(test_stretched),
        cmocka_unit_test(test_nothing_measured_yet),
        cmocka_unit_test(test_ends_of_the_range),
        cmocka_unit_test(test_against_wide_arithmetic),
    };
    return cmocka_run_group_tests_name("core_grace", tests, NULL, NULL);
}
