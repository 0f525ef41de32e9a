/* What a learner does with a new value: each mode by hand, and that rebase loses no work and counts none twice. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/prng.h"
#include "optim/apply.h"
#include "expect_assert.h"
#include "seed.h"

static float apply_one(enum pl_apply_mode mode, float alpha)
{
    float fresh = 8, snapshot = 5, theta = 6, anchor = 4;
    const struct pl_apply a = {mode, alpha, &fresh, &snapshot, &theta, &anchor};
    pl_apply(&a, 1);
    assert_true(anchor == 8.0f);
    return theta;
}

static void test_modes_by_hand(void **state)
{
    (void)state;
    assert_true(apply_one(PL_APPLY_REBASE_MERGED, 0) == 9.0f); /* 6 + (8 - 5) */
    assert_true(apply_one(PL_APPLY_REBASE_KEPT, 0) == 10.0f);  /* 6 + (8 - 4) */
    assert_true(apply_one(PL_APPLY_OVERWRITE, 0) == 8.0f);
    assert_true(apply_one(PL_APPLY_MIX, 0.25f) == 7.5f); /* 0.25 * 6 + 0.75 * 8 */
    assert_true(apply_one(PL_APPLY_MIX, 0) == 8.0f);     /* the paper's overwrite */
    assert_true(apply_one(PL_APPLY_MIX, 1) == 6.0f);
}

static void test_snapshot_only_where_needed(void **state)
{
    (void)state;
    for (enum pl_apply_mode mode = PL_APPLY_REBASE_KEPT; mode <= PL_APPLY_MIX; mode++) {
        float fresh[2] = {1, 2}, theta[2] = {0, 0}, anchor[2] = {0, 0};
        const struct pl_apply a = {mode, 0.5f, fresh, NULL, theta, anchor};
        pl_apply(&a, 2);
        assert_memory_equal(anchor, fresh, sizeof fresh);
    }
    const struct pl_apply nothing = {PL_APPLY_REBASE_MERGED, 0, NULL, NULL, NULL, NULL};
    pl_apply(&nothing, 0);
}

/* The anchor is the new value bit for bit, also a negative zero. */
static void test_anchor_bits(void **state)
{
    (void)state;
    float fresh = -0.0f, snapshot = 1, theta = 1, anchor = 7;
    const struct pl_apply a = {PL_APPLY_REBASE_MERGED, 0, &fresh, &snapshot, &theta, &anchor};
    pl_apply(&a, 1);
    assert_memory_equal(&anchor, &fresh, sizeof fresh);
}

/* One learner alone, outer lr 1: what it has not yet pushed, theta - anchor, is exactly the work since the snapshot when the
 * push was merged, and all of its work when it was not. Integers in floats keep it exact. */
static void test_rebase_keeps_the_books(void **state)
{
    (void)state;
    struct pl_prng r;
    pl_prng_seed(&r, test_seed(), 0);
    float theta = 0, anchor = 0, unpushed = 0;
    for (int round = 0; round < 1000; round++) {
        float before = (float)pl_prng_below(&r, 100), during = (float)pl_prng_below(&r, 100);
        theta += before;
        unpushed += before;
        float snapshot = theta;
        theta += during;
        bool merged = pl_prng_chance(&r, 700000);
        float foreign = (float)pl_prng_below(&r, 100); /* other learners' work */
        float fresh = anchor + foreign + (merged ? unpushed : 0);
        const struct pl_apply a = {
            merged ? PL_APPLY_REBASE_MERGED : PL_APPLY_REBASE_KEPT, 0, &fresh, &snapshot, &theta, &anchor};
        pl_apply(&a, 1);
        unpushed = during + (merged ? 0 : unpushed);
        assert_true(theta - anchor == unpushed);
    }
}

static void test_our_own_mistakes(void **state)
{
    (void)state;
    float x = 1, theta = 1, anchor = 1;
    const struct pl_apply no_mode = {0, 0, &x, &x, &theta, &anchor};
    const struct pl_apply no_snapshot = {PL_APPLY_REBASE_MERGED, 0, &x, NULL, &theta, &anchor};
    const struct pl_apply bad_alpha = {PL_APPLY_MIX, 1.5f, &x, NULL, &theta, &anchor};
    expect_assert((pl_apply(&no_mode, 1), 0));
    expect_assert((pl_apply(&no_snapshot, 1), 0));
    expect_assert((pl_apply(&bad_alpha, 1), 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_modes_by_hand),    cmocka_unit_test(test_snapshot_only_where_needed),
        cmocka_unit_test(test_anchor_bits),      cmocka_unit_test(test_rebase_keeps_the_books),
        cmocka_unit_test(test_our_own_mistakes),
    };
    return cmocka_run_group_tests_name("optim_apply", tests, NULL, NULL);
}
