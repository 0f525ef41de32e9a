/* The outer optimizer, by hand and against the closed form of plain SGD. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/hash.h"
#include "base/prng.h"
#include "optim/outer.h"
#include "seed.h"

/* All values are small binary fractions, so every figure below is exact. */
static void test_two_steps_by_hand(void **state)
{
    (void)state;
    const struct pl_outer_move rule = {.lr = 0.5f, .keep = 0.5f, .gain = 1, .ahead = 0.5f};
    float delta[2] = {1, -2}, momentum[2] = {0, 4}, theta[2] = {10, 10};
    pl_outer_step(&rule, delta, 2, momentum, theta);
    /* momentum 0.5 * 0 + 1 = 1; theta 10 - 0.5 * (1 + 0.5 * 1) = 9.25 */
    assert_true(momentum[0] == 1.0f && theta[0] == 9.25f);
    /* momentum 0.5 * 4 - 2 = 0; theta 10 - 0.5 * (-2 + 0) = 11 */
    assert_true(momentum[1] == 0.0f && theta[1] == 11.0f);
    pl_outer_step(&rule, delta, 2, momentum, theta);
    /* momentum 0.5 * 1 + 1 = 1.5; theta 9.25 - 0.5 * (1 + 0.75) = 8.375 */
    assert_true(momentum[0] == 1.5f && theta[0] == 8.375f);
    /* momentum 0 - 2 = -2; theta 11 - 0.5 * (-2 - 1) = 12.5 */
    assert_true(momentum[1] == -2.0f && theta[1] == 12.5f);
}

static void test_no_momentum_is_plain_sgd(void **state)
{
    (void)state;
    enum { N = 1000 };
    static float delta[N], momentum[N], theta[N], want[N];
    const struct pl_outer_move rule = {.lr = 0.7f, .keep = 0, .gain = 1, .ahead = 0};
    struct pl_prng r;
    pl_prng_seed(&r, test_seed(), 0);
    for (size_t i = 0; i < N; i++) {
        delta[i] = (float)pl_prng_below(&r, 1u << 24) / 1e9f;
        momentum[i] = (float)pl_prng_below(&r, 1u << 24); /* whatever was there before */
        theta[i] = (float)pl_prng_below(&r, 1u << 24) / 1e7f;
        want[i] = theta[i] - rule.lr * delta[i];
    }
    pl_outer_step(&rule, delta, N, momentum, theta);
    assert_memory_equal(theta, want, sizeof want);
    assert_memory_equal(momentum, delta, sizeof delta);
}

static void test_learning_rate_one_takes_the_mean(void **state)
{
    (void)state;
    /* lr 1, mu 0: theta becomes anchor - (anchor - learner) = the learner's value. */
    const struct pl_outer_move rule = {.lr = 1, .keep = 0, .gain = 1, .ahead = 0};
    float anchor = 3, learner = 2.5f, momentum = 0;
    float delta = anchor - learner;
    pl_outer_step(&rule, &delta, 1, &momentum, &anchor);
    assert_true(anchor == learner);
}

static void test_empty(void **state)
{
    (void)state;
    const struct pl_outer_move rule = {.lr = 1, .keep = 0.5f, .gain = 1, .ahead = 0.5f};
    float momentum = 1, theta = 2, delta = 3;
    pl_outer_step(&rule, &delta, 0, &momentum, &theta);
    assert_true(momentum == 1 && theta == 2);
}

/* Ten steps; made as the golden hash of test_optim_merge.c says. */
static const uint64_t golden = UINT64_C(0x61787650b13d9bb9);

static void test_golden_hash(void **state)
{
    (void)state;
    enum { N = 10007 };
    static float delta[N], momentum[N], theta[N];
    const struct pl_outer_move rule = {.lr = 0.7f, .keep = 0.9f, .gain = 1, .ahead = 0.9f};
    struct pl_prng r;
    pl_prng_seed(&r, 7, 8);
    for (int step = 0; step < 10; step++) {
        for (size_t i = 0; i < N; i++)
            delta[i] = ((float)pl_prng_below(&r, 1u << 24) - 8388608.0f) / 1e9f;
        pl_outer_step(&rule, delta, N, momentum, theta);
    }
    uint64_t got = pl_hash64(theta, sizeof theta, pl_hash64(momentum, sizeof momentum, 0));
    print_message("# outer %016llx\n", (unsigned long long)got);
    assert_true(got == golden);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_steps_by_hand),
        cmocka_unit_test(test_no_momentum_is_plain_sgd),
        cmocka_unit_test(test_learning_rate_one_takes_the_mean),
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_golden_hash),
    };
    return cmocka_run_group_tests_name("optim_outer", tests, NULL, NULL);
}
