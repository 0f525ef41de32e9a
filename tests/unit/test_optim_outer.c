/* The outer optimizer, by hand and against the closed form of plain SGD. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/hash.h"
#include "base/prng.h"
#include "codec/feedback.h"
#include "optim/outer.h"
#include "seed.h"

#include <math.h>
#include <string.h>

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

static void assert_move(struct pl_outer_move m, float lr, float keep, float gain, float ahead)
{
    assert_true(m.lr == lr && m.keep == keep && m.gain == gain && m.ahead == ahead);
}

static void test_kinds(void **state)
{
    (void)state;
    struct pl_outer_rule rule = {.lr = 0.5f, .mu = 0.25f, .kind = PL_OUTER_NESTEROV};
    assert_move(pl_outer_at(&rule, 1, 0, 1), 0.5f, 0.25f, 1, 0.25f);
    assert_move(pl_outer_at(&rule, 1000, 2, 1), 0.5f, 0.25f, 1, 0.25f);
    assert_move(pl_outer_at(&rule, 1000, 1, 0.5), 0.5f, 0.25f, 1, 0.125f); /* half of the usual work */
    assert_true(pl_outer_share(10, 4000, 200) == 0.5 && pl_outer_share(10, 4000, 500) == 1);
    assert_true(pl_outer_share(1, 0, 0) == 0);
    rule.kind = PL_OUTER_PLAIN;
    assert_move(pl_outer_at(&rule, 3, 0, 1), 0.5f, 0.25f, 1, 0);
    rule.kind = PL_OUTER_DELAYED;
    rule.delay = 4;
    assert_move(pl_outer_at(&rule, 1, 0, 1), 0.125f, 0.25f, 0.25f, 0);
    assert_move(pl_outer_at(&rule, 2, 0, 1), 0.125f, 1, 0.25f, 0);
    assert_move(pl_outer_at(&rule, 4, 0, 1), 0.125f, 1, 0.25f, 1);
    assert_move(pl_outer_at(&rule, 5, 0, 1), 0.125f, 0.25f, 0.25f, 0);
    rule.delay = 1; /* is nesterov */
    assert_move(pl_outer_at(&rule, 7, 0, 1), 0.5f, 0.25f, 1, 0.25f);
}

static void test_warmup_and_decay(void **state)
{
    (void)state;
    const struct pl_outer_rule rule = {.lr = 0.5f, .mu = 0.5f, .warmup = 3, .decay = 0.25f, .floor = 0.5f};
    const float mu[] = {0.125f, 0.25f, 0.375f, 0.5f, 0.5f};
    for (uint64_t v = 1; v <= 5; v++)
        assert_move(pl_outer_at(&rule, v, 0.75, 1), 0.5f, mu[v - 1], 1, mu[v - 1]);
    assert_true(pl_outer_at(&rule, 35, 0.875, 1).lr == 0.375f);
    assert_true(pl_outer_at(&rule, 20, 1, 1).lr == 0.25f);
    assert_true(pl_outer_at(&rule, 200, 1.5, 1).lr == 0.25f);
}

/* Where merges are few the first steps go further, while there is little momentum; a rate that is higher than that stays. */
static void test_first_rate(void **state)
{
    (void)state;
    struct pl_outer_rule rule = {.lr = 0.5f, .mu = 0.5f, .warmup = 3, .first = 1};
    const float lr[] = {0.875f, 0.75f, 0.625f, 0.5f, 0.5f};
    for (uint64_t v = 1; v <= 5; v++) { /* of three in all, of four and a half, of six */
        assert_true(pl_outer_at(&rule, v, (double)v / 3, 1).lr == lr[v - 1]);
        assert_true(pl_outer_at(&rule, v, (double)v / 4.5, 1).lr == (lr[v - 1] + 0.5f) / 2);
        assert_true(pl_outer_at(&rule, v, (double)v / 6, 1).lr == 0.5f);
    }
    assert_true(pl_outer_at(&rule, 1, 0, 1).lr == 0.5f);
    rule.first = 0.25f;
    assert_true(pl_outer_at(&rule, 1, 0.5, 1).lr == 0.5f);
    rule.first = -1;
    assert_int_equal(pl_outer_check(&rule, NULL), PELAGO_INVALID);
}

/* A fragment's first merge comes any time in its first period. With the number that is planned every fragment's rate is the same; what
 * was seen counts where periods are stretched, or are more. */
static void test_first_rate_of_early_and_late_fragments(void **state)
{
    (void)state;
    struct pl_outer_rule rule = {.lr = 0.5f, .mu = 0.5f, .warmup = 20, .first = 1, .planned = 54};
    for (uint64_t v = 1; v <= 54; v++) /* the last fragment of a period, and the first of 24 */
        for (int late = 0; late < 2; late++) {
            double periods = (double)(v - 1) + (late ? 1 : 1.0 / 24);
            assert_true(pl_outer_at(&rule, v, periods / 54, 1).lr == 0.5f);
            rule.planned = 20;
            float want = v <= 20 ? (float)(1 - 0.5 * (double)v / 21) : 0.5f;
            assert_true(v > 20 || fabsf(pl_outer_at(&rule, v, periods / 20, 1).lr - want) < 1e-6f);
            rule.planned = 54;
        }
    /* Periods stretched by five: known from the second merge on, wherever the first came. */
    assert_true(pl_outer_at(&rule, 2, 1.05 / 10, 1).lr > 0.9f &&
                pl_outer_at(&rule, 1, 1.0 / 10, 1).lr > 0.9f);
    /* Five times the merges that were planned, since most learners are away. */
    rule.planned = 10;
    assert_true(pl_outer_at(&rule, 2, 1.05 / 50, 1).lr == 0.5f);
}

/* In the last quarter of the run come number / 4 merges: of five on the rate falls to its floor, of one not at all. */
static void test_few_merges_keep_their_rate(void **state)
{
    (void)state;
    struct pl_outer_rule rule = {.lr = 0.5f, .decay = 0.25f, .floor = 0.5f};
    assert_true(pl_outer_at(&rule, 12, 1, 1).lr == 0.375f); /* three merges: half of the way */
    assert_true(pl_outer_at(&rule, 4, 1, 1).lr == 0.5f);
    assert_true(pl_outer_at(&rule, 1, 1, 1).lr == 0.5f);
    assert_true(pl_outer_at(&rule, 3, 0.75, 1).lr == 0.5f);
    assert_true(pl_outer_at(&rule, 7, 0.875, 1).lr > 0.375f);
    rule.decay = 1;
    assert_true(pl_outer_at(&rule, 1, 0, 1).lr == 0.5f);
}

/* PAPER 11.3 by hand: theta -= lr g / N at every step; at every third also m = mu m + mean(g), theta -= lr mu m. So N equal
 * ones go as far as one step of nesterov. */
static void test_delayed_is_what_it_says(void **state)
{
    (void)state;
    const struct pl_outer_rule rule = {.lr = 0.5f, .mu = 0.5f, .kind = PL_OUTER_DELAYED, .delay = 3};
    float momentum = 0, theta = 10;
    double m = 0, want = 10, sum = 0;
    for (uint64_t v = 1; v <= 12; v++) {
        float g = (float)(v % 5) - 1;
        const struct pl_outer_move move = pl_outer_at(&rule, v, 0, 1);
        pl_outer_step(&move, &g, 1, &momentum, &theta);
        sum += (double)g;
        want -= 0.5 * (double)g / 3;
        if (v % 3 == 0) {
            m = 0.5 * m + sum / 3;
            want -= 0.5 * 0.5 * m;
            sum = 0;
        }
        assert_true(fabs((double)theta - want) < 1e-5);
    }
    assert_true(fabs((double)momentum - m) < 1e-5);
}

/* The sum of a few numbers is nearly normal; divided by another such number it has heavy tails. */
static float draw(struct pl_prng *r, bool heavy)
{
    float sum = 0, other = 0.25f;
    for (int i = 0; i < 6; i++) {
        sum += ((float)pl_prng_below(r, 1u << 24) - 8388608.0f) / 8388608.0f;
        other += (float)pl_prng_below(r, 1u << 24) / 50331648.0f;
    }
    return heavy ? sum / (other * other) : sum;
}

/* With feedback that does not fade, what learners did arrives in full, however few the bits: no rate has to make up. Of
 * a top-k, whose feedback fades, a part is lost for good: its gain makes up for that. */
static void test_what_arrives_through_a_codec(void **state)
{
    (void)state;
    enum { N = 8192, ROUNDS = 200 };
    static float change[N], residual[N], got[N], base[N];
    static double did[N], arrived[N];
    static uint8_t bytes[4 * N];
    struct pl_prng r;
    pl_prng_seed(&r, test_seed(), 9);
    for (enum pl_codec codec = PL_CODEC_FP32; codec <= PL_CODEC_LAST; codec++)
        for (int heavy = 0; heavy < 2; heavy++) {
            double both = 0, square = 0;
            memset(residual, 0, sizeof residual);
            memset(did, 0, sizeof did);
            memset(arrived, 0, sizeof arrived);
            for (size_t i = 0; i < N; i++)
                base[i] = 0.3f * draw(&r, heavy != 0);
            for (int t = 0; t < ROUNDS; t++) {
                for (size_t i = 0; i < N; i++) {
                    change[i] = base[i] + draw(&r, heavy != 0);
                    did[i] += (double)change[i];
                }
                pl_feedback_add(change, residual, N, pl_feedback_decay(codec));
                memcpy(residual, change, sizeof residual);
                assert_true(pl_codec_encode_feedback(codec, residual, N, bytes));
                pl_codec_decode(codec, bytes, N, got);
                for (size_t i = 0; i < N; i++)
                    arrived[i] += (double)got[i];
            }
            for (size_t i = 0; i < N; i++) {
                both += did[i] * arrived[i];
                square += did[i] * did[i];
            }
            print_message("# %s, %s tails: %.3f arrives\n", pl_codec_name((uint32_t)codec),
                          heavy ? "heavy" : "light", both / square);
            assert_true(fabs(both / square * (double)pl_outer_codec_gain(codec) - 1) < 0.17);
        }
}

static void test_names_and_ranges(void **state)
{
    (void)state;
    struct pl_error err;
    struct pl_outer_rule good = {.lr = 0.7f, .mu = 0.9f, .kind = PL_OUTER_DELAYED, .delay = 2}, bad = good;
    enum pl_outer_kind kind;
    for (enum pl_outer_kind k = PL_OUTER_NESTEROV; k <= PL_OUTER_DELAYED; k++)
        assert_true(pl_outer_of_name(pl_outer_name(k), &kind) && kind == k);
    assert_false(pl_outer_of_name("adam", &kind));
    assert_int_equal(pl_outer_check(&good, &err), PELAGO_OK);
    bad.delay = 0;
    assert_int_equal(pl_outer_check(&bad, &err), PELAGO_INVALID);
    assert_non_null(strstr(err.text, "outer_delay is 0, expected 1 to"));
    bad = good;
    bad.decay = 1.5f;
    assert_int_equal(pl_outer_check(&bad, &err), PELAGO_INVALID);
    bad = good;
    bad.floor = NAN;
    assert_int_equal(pl_outer_check(&bad, &err), PELAGO_INVALID);
    bad = good;
    bad.mu = 1;
    assert_int_equal(pl_outer_check(&bad, &err), PELAGO_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_steps_by_hand),
        cmocka_unit_test(test_no_momentum_is_plain_sgd),
        cmocka_unit_test(test_learning_rate_one_takes_the_mean),
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_golden_hash),
        cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_warmup_and_decay),
        cmocka_unit_test(test_first_rate),
        cmocka_unit_test(test_first_rate_of_early_and_late_fragments),
        cmocka_unit_test(test_few_merges_keep_their_rate),
        cmocka_unit_test(test_delayed_is_what_it_says),
        cmocka_unit_test(test_what_arrives_through_a_codec),
        cmocka_unit_test(test_names_and_ranges),
    };
    return cmocka_run_group_tests_name("optim_outer", tests, NULL, NULL);
}
