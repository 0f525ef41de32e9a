/* test_base_num.c - integer arithmetic at its edges, and running averages. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/num.h"
#include "base/prng.h"
#include "seed.h"

static void saturation_and_overflow_at_the_edges(void **state)
{
    (void)state;
    uint64_t out;
    assert_false(pl_mul_overflow(UINT64_C(1) << 32, UINT32_MAX, &out));
    assert_true(out == UINT64_C(0xffffffff00000000));
    assert_true(pl_mul_overflow(UINT64_C(1) << 32, UINT64_C(1) << 32, &out));
    assert_false(pl_add_overflow(UINT64_MAX - 1, 1, &out));
    assert_true(out == UINT64_MAX);
    assert_true(pl_add_overflow(UINT64_MAX, 1, &out));
    assert_true(pl_add_sat(UINT64_MAX - 1, 1) == UINT64_MAX && pl_add_sat(UINT64_MAX, 1) == UINT64_MAX);
    assert_true(pl_add_sat(2, 3) == 5);
    assert_true(pl_sub_sat(3, 5) == 0 && pl_sub_sat(5, 5) == 0 && pl_sub_sat(5, 3) == 2);
    assert_true(pl_min64(1, 2) == 1 && pl_min64(2, 1) == 1 && pl_max64(1, 2) == 2 && pl_max64(2, 1) == 2);
    assert_true(pl_min32(1, 2) == 1 && pl_min32(2, 1) == 1 && pl_max32(1, 2) == 2 && pl_max32(2, 1) == 2);
    assert_true(pl_clamp64(1, 2, 4) == 2 && pl_clamp64(3, 2, 4) == 3 && pl_clamp64(5, 2, 4) == 4);
}

/* a * b / c bit by bit, without a wide type: remainder and quotient of a running sum. */
static uint64_t slow_mul_div(uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t q = 0, r = 0;
    for (int bit = 63; bit >= 0; bit--) {
        uint64_t add_r = (b >> bit & 1) != 0 ? a % c : 0;
        uint64_t add_q = (b >> bit & 1) != 0 ? a / c : 0;
        if (q > UINT64_MAX / 2)
            return UINT64_MAX;
        q *= 2;
        for (int i = 0; i < 2; i++) { /* r = r + r, then r + add_r, modulo c */
            uint64_t by = i == 0 ? r : add_r;
            bool carry = r >= c - by && by > 0;
            r = carry ? r - (c - by) : r + by;
            if (carry && ++q == 0)
                return UINT64_MAX;
        }
        if (pl_add_overflow(q, add_q, &q))
            return UINT64_MAX;
    }
    return q;
}

static void mul_div_is_exact_and_saturates(void **state)
{
    (void)state;
    assert_true(pl_mul_div(UINT64_MAX, UINT64_MAX, UINT64_MAX) == UINT64_MAX);
    assert_true(pl_mul_div(UINT64_MAX, 2, 1) == UINT64_MAX);
    assert_true(pl_mul_div(UINT64_MAX, 3, 4) == UINT64_MAX / 4 * 3 + 2);
    assert_true(pl_mul_div(7, 3, 2) == 10);
    assert_true(pl_mul_div(0, UINT64_MAX, 1) == 0);
    struct pl_prng rng;
    pl_prng_seed(&rng, test_seed(), 0);
    for (unsigned n = 0; n < 20000; n++) {
        uint64_t a = pl_prng_next(&rng) >> pl_prng_below(&rng, 64);
        uint64_t b = pl_prng_next(&rng) >> pl_prng_below(&rng, 64);
        uint64_t c = (pl_prng_next(&rng) >> pl_prng_below(&rng, 64)) | 1;
        assert_true(pl_mul_div(a, b, c) == slow_mul_div(a, b, c));
    }
}

static void an_average_starts_with_its_first_sample(void **state)
{
    (void)state;
    struct pl_average a = {0, 0};
    pl_average_add(&a, 1000);
    assert_true(a.mean == 1000 && a.dev == 250);
    pl_average_add(&a, 1800);
    assert_true(a.mean == 1100 && a.dev == 250 - 62 + 200);
    pl_average_add(&a, 300);
    assert_true(a.mean == 1000 && a.dev == 388 - 97 + 200);
    struct pl_average zero = {0, 0};
    pl_average_add(&zero, 0);
    assert_true(zero.mean == 1);
}

static void an_average_comes_near_a_steady_sample(void **state)
{
    (void)state;
    static const uint64_t samples[] = {1, 100, 1000000, UINT64_MAX / 2, UINT64_MAX};
    for (unsigned from = 0; from < 5; from++)
        for (unsigned to = 0; to < 5; to++) {
            struct pl_average a = {0, 0};
            pl_average_add(&a, samples[from]);
            for (unsigned n = 0; n < 2000; n++)
                pl_average_add(&a, samples[to]);
            uint64_t off = a.mean > samples[to] ? a.mean - samples[to] : samples[to] - a.mean;
            assert_true(off < 8 && a.dev < 8);
        }
}

static void an_average_stays_within_its_samples(void **state)
{
    (void)state;
    struct pl_prng rng;
    pl_prng_seed(&rng, test_seed(), 0);
    struct pl_average a = {0, 0};
    for (unsigned n = 0; n < 10000; n++) {
        pl_average_add(&a, pl_prng_range(&rng, 500, 1500));
        assert_in_range(a.mean, 500, 1500);
        assert_true(a.dev <= 1000);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(saturation_and_overflow_at_the_edges),
        cmocka_unit_test(mul_div_is_exact_and_saturates),
        cmocka_unit_test(an_average_starts_with_its_first_sample),
        cmocka_unit_test(an_average_comes_near_a_steady_sample),
        cmocka_unit_test(an_average_stays_within_its_samples),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
