/* Agreement and trust: synthetic cohorts of honest learners are left alone for thousands of rounds, liars are found. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/prng.h"
#include "optim/agree.h"
#include "seed.h"

#include <math.h>
#include <string.h>

enum { M = 8, N = 2048 };

static float rows[M][N], common[N];
static double memory[M * (PL_AGREE_JURY + 1)];

static float draw(struct pl_prng *r)
{
    float sum = 0;
    for (int i = 0; i < 4; i++)
        sum += (float)((int32_t)pl_prng_below(r, 1u << 24) - (1 << 23)) / 8388608.0f;
    return sum;
}

/* What a learner is like: how much of the common direction it has (negative: backwards), beside noise of 1. */
struct kind {
    float signal;
    float length;
    bool same_noise; /* as learner 0: two that lie alike */
};

static void draw_round(struct pl_prng *r, const struct kind *kinds, uint32_t count)
{
    for (size_t i = 0; i < N; i++)
        common[i] = draw(r);
    for (uint32_t m = 0; m < count; m++)
        for (size_t i = 0; i < N; i++) {
            float noise = kinds[m].same_noise ? 0.05f * draw(r) : draw(r);
            rows[m][i] = kinds[m].length * (kinds[m].signal * common[i] + noise);
        }
}

/* Rounds until the first `liars` learners are all out; 0: they never are. Nobody else may be. */
static uint32_t rounds_until_out(struct pl_prng *r, const struct kind *kinds, uint32_t count, uint32_t liars,
                                 uint32_t rounds)
{
    struct pl_trust trust[M] = {{0}};
    struct pl_agree a;
    float samples[M];
    for (uint32_t t = 1; t <= rounds; t++) {
        uint32_t caught = 0;
        bool out[M];
        draw_round(r, kinds, count);
        for (uint32_t m = 0; m < count; m++)
            out[m] = trust[m].out;
        pl_agree_begin(&a, count, out, memory);
        pl_agree_add(&a, rows[0], N, N / 2);
        pl_agree_add(&a, rows[0] + N / 2, N, N / 2);
        (void)pl_agree_end(&a, samples);
        for (uint32_t m = 0; m < count; m++) {
            (void)pl_trust_add(&trust[m], samples[m]);
            if (m >= liars && trust[m].out)
                fail_msg("honest learner %u is out after %u rounds, z %g", m, t, pl_trust_z(&trust[m]));
            caught += m < liars && trust[m].out ? 1 : 0;
        }
        if (liars > 0 && caught == liars)
            return t;
    }
    return 0;
}

static void test_honest_stay(void **state)
{
    (void)state;
    struct pl_prng r;
    pl_prng_seed(&r, test_seed(), 1);
    struct kind kinds[M];
    /* From strangers (cosine 0) to close ones; equal, and with unequal batches: more noise, or other data. */
    const float signals[] = {0, 0.05f, 0.1f, 0.2f, 0.5f};
    for (uint32_t count = 1; count <= M; count++)
        for (unsigned s = 0; s < 5; s++)
            for (unsigned unequal = 0; unequal < 2; unequal++) {
                for (uint32_t m = 0; m < count; m++)
                    kinds[m] = (struct kind){unequal ? signals[s] * (0.4f + 0.6f * (float)m / M) : signals[s],
                                             1 + (float)(m % 3), false};
                assert_int_equal(rounds_until_out(&r, kinds, count, 0, 120), 0);
            }
}

static void test_long_run_of_honest(void **state)
{
    (void)state;
    struct pl_prng r;
    struct kind kinds[M];
    pl_prng_seed(&r, test_seed(), 2);
    for (uint32_t m = 0; m < M; m++)
        kinds[m] = (struct kind){0.15f, 1, false};
    assert_int_equal(rounds_until_out(&r, kinds, M, 0, 3000), 0);
}

static void test_liars_are_found(void **state)
{
    (void)state;
    struct pl_prng r;
    struct kind kinds[M];
    pl_prng_seed(&r, test_seed(), 3);
    const struct kind liars[] = {{-0.4f, 1, false}, {-1, 16, true}, {-0.4f, 1, true}, {0, 1, false}};
    for (unsigned k = 0; k < 4; k++) {
        for (uint32_t m = 0; m < M; m++)
            kinds[m] = m < 2 ? liars[k] : (struct kind){0.4f, 1, false};
        uint32_t rounds = rounds_until_out(&r, kinds, M, 2, 400);
        print_message("# liar %u: out after %u rounds\n", k, rounds);
        assert_in_range(rounds, PL_TRUST_SAMPLES_MIN, 200);
    }
}

/* Who stops lying counts again. */
static void test_coming_back(void **state)
{
    (void)state;
    struct pl_trust t = {0};
    uint32_t n = 0;
    while (!t.out && n++ < 100)
        (void)pl_trust_add(&t, n % 2 == 0 ? -0.2f : -0.1f);
    assert_int_equal(n, PL_TRUST_SAMPLES_MIN);
    assert_false(pl_trust_add(&t, NAN));
    for (n = 0; t.out && n < 1000; n++)
        (void)pl_trust_add(&t, n % 2 == 0 ? 0.2f : 0.1f);
    assert_in_range(n, 5, 100);
}

/* Who was honest for long has credit, but not for ever. */
static void test_a_sleeper(void **state)
{
    (void)state;
    struct pl_trust t = {0};
    uint32_t n = 0;
    for (int i = 0; i < 1000; i++)
        assert_false(pl_trust_add(&t, i % 2 == 0 ? 0.15f : 0.05f));
    while (!t.out && n < 1000)
        (void)pl_trust_add(&t, n++ % 2 == 0 ? -0.15f : -0.05f);
    print_message("# out %u rounds after it began to lie\n", n);
    assert_in_range(n, 50, 150);
}

/* Of one and of two nothing is said; a zero vector agrees with nobody; a jury in discord says nothing. */
static void test_corners(void **state)
{
    (void)state;
    struct pl_prng r;
    struct pl_agree a;
    float samples[M];
    const struct kind close[M] = {{1, 1, false}, {1, 1, false}, {1, 1, false}, {1, 1, false}};
    const bool out[M] = {false, false, false, true};
    pl_prng_seed(&r, test_seed(), 4);
    draw_round(&r, close, 4);
    for (uint32_t count = 1; count <= 2; count++) {
        pl_agree_begin(&a, count, NULL, memory);
        pl_agree_add(&a, rows[0], N, N);
        assert_false(pl_agree_end(&a, samples));
        assert_true(isnan(samples[0]));
    }
    memset(rows[3], 0, sizeof rows[3]);
    pl_agree_begin(&a, 4, out, memory); /* out, and yet compared */
    pl_agree_add(&a, rows[0], N, N);
    assert_true(pl_agree_end(&a, samples));
    assert_int_equal(a.jury_count, 3);
    assert_true(samples[0] > 0.2f && samples[1] > 0.2f && samples[2] > 0.2f && samples[3] < 0);
    memset(rows, 0, sizeof rows);
    pl_agree_begin(&a, 4, NULL, memory);
    pl_agree_add(&a, rows[0], N, N);
    assert_false(pl_agree_end(&a, samples));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_honest_stay),     cmocka_unit_test(test_long_run_of_honest),
        cmocka_unit_test(test_liars_are_found), cmocka_unit_test(test_coming_back),
        cmocka_unit_test(test_a_sleeper),       cmocka_unit_test(test_corners),
    };
    return cmocka_run_group_tests_name("optim_agree", tests, NULL, NULL);
}
