/* The simulator's codec: sizes, error bounds, determinism, and bytes that are no values. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/bytes.h"
#include "base/prng.h"
#include "sim/codec.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { VALUES_MAX = 300 };

static void size_is_one_byte_a_value_and_a_scale_per_block(void **state)
{
    (void)state;
    assert_int_equal(pl_sim_encoded_bytes(1), 5);
    assert_int_equal(pl_sim_encoded_bytes(64), 68);
    assert_int_equal(pl_sim_encoded_bytes(65), 73);
    assert_int_equal(pl_sim_encoded_bytes(256), 272);
}

static void error_is_within_half_a_step(void **state)
{
    (void)state;
    const uint64_t seed = 7;
    struct pl_prng r;
    pl_prng_seed(&r, seed, 1);
    printf("# seed %llu\n", (unsigned long long)seed);
    for (size_t n = 1; n <= VALUES_MAX; n += 7) {
        float in[VALUES_MAX], out[VALUES_MAX];
        uint8_t bytes[2 * VALUES_MAX];
        for (size_t i = 0; i < n; i++)
            in[i] = (float)((double)pl_prng_below(&r, 2000001) / 1e6 - 1.0);
        assert_true(pl_sim_encode(in, n, bytes));
        assert_true(pl_sim_decode(bytes, pl_sim_encoded_bytes(n), out, n));
        for (size_t i = 0; i < n; i++)
            assert_true(fabs((double)in[i] - (double)out[i]) <= 0.5 / 127 + 1e-6);
    }
}

static void zeros_stay_zero_and_extremes_survive(void **state)
{
    (void)state;
    float in[4] = {0, 0, 0, 0}, out[4];
    uint8_t bytes[8];
    assert_true(pl_sim_encode(in, 4, bytes));
    assert_true(pl_sim_decode(bytes, 8, out, 4));
    assert_memory_equal(in, out, sizeof in);
    const float extreme[4] = {3.4e38f, -3.4e38f, 1e-45f, 0};
    assert_true(pl_sim_encode(extreme, 4, bytes));
    assert_true(pl_sim_decode(bytes, 8, out, 4));
    assert_true(out[0] > 3.3e38f && out[1] < -3.3e38f && out[2] == 0.0f);
    const float tiny[4] = {1e-45f, -1e-45f, 0, 0}; /* the scale itself is rounded to zero or to a denormal */
    assert_true(pl_sim_encode(tiny, 4, bytes));
    assert_true(pl_sim_decode(bytes, 8, out, 4));
}

static void what_is_not_finite_is_refused(void **state)
{
    (void)state;
    float in[2] = {1, INFINITY}, out[2];
    uint8_t bytes[6];
    assert_false(pl_sim_encode(in, 2, bytes));
    in[1] = NAN;
    assert_false(pl_sim_encode(in, 2, bytes));
    in[1] = 2;
    assert_true(pl_sim_encode(in, 2, bytes));
    pl_put_le(bytes, 0x7fc00000, 4);
    assert_false(pl_sim_decode(bytes, 6, out, 2));
    pl_put_le(bytes, 0x7f7fffff, 4); /* the largest float times 127 */
    assert_false(pl_sim_decode(bytes, 6, out, 2));
}

static void a_wrong_length_is_refused(void **state)
{
    (void)state;
    const float in[3] = {1, 2, 3};
    float out[3];
    uint8_t bytes[8] = {0};
    assert_true(pl_sim_encode(in, 3, bytes));
    assert_true(pl_sim_decode(bytes, 7, out, 3));
    assert_false(pl_sim_decode(bytes, 6, out, 3));
    assert_false(pl_sim_decode(bytes, 8, out, 3));
}

static void floats_travel_bit_for_bit(void **state)
{
    (void)state;
    const float in[5] = {0.1f, -0.0f, 1e-40f, 3e38f, -7};
    float out[5];
    uint8_t bytes[20];
    pl_sim_put_floats(bytes, in, 5);
    pl_sim_get_floats(out, bytes, 5);
    assert_memory_equal(in, out, sizeof in);
    assert_true(pl_sim_digest(in, 5) == pl_sim_digest(out, 5));
    out[4] = -8;
    assert_true(pl_sim_digest(in, 5) != pl_sim_digest(out, 5));
}

/* What is lost now goes out later: the sum of what was decoded follows the sum of what was meant. */
static void error_feedback_loses_nothing(void **state)
{
    (void)state;
    float residual[8] = {0}, delta[8], decoded[8];
    double meant[8] = {0}, sent[8] = {0};
    uint8_t bytes[12];
    for (int round = 0; round < 1000; round++) {
        for (int i = 0; i < 8; i++) {
            float work = i == 0 ? 1.0f : 0.001f * (float)i;
            meant[i] += (double)work;
            delta[i] = work + residual[i];
        }
        assert_true(pl_sim_encode(delta, 8, bytes));
        assert_true(pl_sim_decode(bytes, sizeof bytes, decoded, 8));
        for (int i = 0; i < 8; i++) {
            residual[i] = delta[i] - decoded[i];
            sent[i] += (double)decoded[i];
        }
    }
    for (int i = 0; i < 8; i++)
        assert_true(fabs(meant[i] - sent[i]) < 0.02);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(size_is_one_byte_a_value_and_a_scale_per_block),
        cmocka_unit_test(error_is_within_half_a_step),
        cmocka_unit_test(zeros_stay_zero_and_extremes_survive),
        cmocka_unit_test(what_is_not_finite_is_refused),
        cmocka_unit_test(a_wrong_length_is_refused),
        cmocka_unit_test(floats_travel_bit_for_bit),
        cmocka_unit_test(error_feedback_loses_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
