/* test_base_bf16.c - bfloat16: all values come back, all roundings are to the nearest and even ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/bf16.h"
#include "base/prng.h"
#include "seed.h"

#include <math.h>

static float float_of_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static uint32_t bits_of_float(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

static void every_value_comes_back(void **state)
{
    (void)state;
    for (uint32_t h = 0; h <= 0xffff; h++) {
        float f = pl_bf16_to_float((pl_bf16)h);
        assert_int_equal(bits_of_float(f), h << 16);
        pl_bf16 back = pl_bf16_of_float(f);
        if (isnan(f))
            assert_true(isnan(pl_bf16_to_float(back)) && (back & 0x8000) == (h & 0x8000));
        else
            assert_int_equal(back, h);
    }
}

/* Between each two neighbours: the middle goes to the even one, a bit less down, a bit more up (away from zero). */
static void halves_go_to_even(void **state)
{
    (void)state;
    for (uint32_t h = 0; h <= 0xffff; h++) {
        if ((h & 0x7f80) == 0x7f80)
            continue;
        uint32_t base = h << 16;
        assert_int_equal(pl_bf16_of_float(float_of_bits(base | 1)), h);
        assert_int_equal(pl_bf16_of_float(float_of_bits(base | 0x7fff)), h);
        assert_int_equal(pl_bf16_of_float(float_of_bits(base | 0x8000)), h + (h & 1));
        assert_int_equal(pl_bf16_of_float(float_of_bits(base | 0x8001)), h + 1);
        assert_int_equal(pl_bf16_of_float(float_of_bits(base | 0xffff)), h + 1);
    }
}

static void too_large_becomes_infinity(void **state)
{
    (void)state;
    assert_int_equal(pl_bf16_of_float(float_of_bits(0x7f7fffff)), 0x7f80);
    assert_int_equal(pl_bf16_of_float(float_of_bits(0xff7fffff)), 0xff80);
    assert_int_equal(pl_bf16_of_float(INFINITY), 0x7f80);
    assert_int_equal(pl_bf16_of_float(-INFINITY), 0xff80);
    assert_int_equal(pl_bf16_of_float(float_of_bits(0x7f7f7fff)), 0x7f7f);
}

static void nan_stays_nan(void **state)
{
    (void)state;
    static const uint32_t nans[] = {0x7f800001, 0x7fffffff, 0xff800001, 0xffffffff, 0x7fc00000, 0x7f80ffff};
    for (size_t i = 0; i < sizeof nans / sizeof nans[0]; i++) {
        pl_bf16 h = pl_bf16_of_float(float_of_bits(nans[i]));
        assert_true(isnan(pl_bf16_to_float(h)));
        assert_int_equal(h >> 15, nans[i] >> 31);
    }
}

static void no_neighbour_is_nearer(void **state)
{
    (void)state;
    struct pl_prng r;
    pl_prng_seed(&r, test_seed(), 0);
    for (unsigned i = 0; i < 200000; i++) {
        uint32_t bits = (uint32_t)pl_prng_next(&r);
        if ((bits & 0x7f000000) == 0x7f000000)
            continue; /* infinity is no neighbour one can subtract */
        double f = (double)float_of_bits(bits);
        pl_bf16 h = pl_bf16_of_float((float)f);
        double off = fabs((double)pl_bf16_to_float(h) - f);
        for (int step = -1; step <= 1; step += 2) {
            uint32_t magnitude = h & 0x7fff;
            if (magnitude == 0 && step < 0)
                continue;
            pl_bf16 other = (pl_bf16)((uint32_t)h + (uint32_t)step);
            double other_off = fabs((double)pl_bf16_to_float(other) - f);
            assert_true(off < other_off || (off == other_off && (h & 1) == 0));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_value_comes_back),     cmocka_unit_test(halves_go_to_even),
        cmocka_unit_test(too_large_becomes_infinity), cmocka_unit_test(nan_stays_nan),
        cmocka_unit_test(no_neighbour_is_nearer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
