/* The order of training: a permutation for every n, another one for every seed and epoch, the same for ever. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/limits.h"
#include "data/shuffle.h"
#include "expect_assert.h"
#include "seed.h"

#include <string.h>

enum { N_MAX = 5000 };

static void check_bijection(uint64_t seed, uint64_t epoch, uint64_t n)
{
    static uint8_t seen[N_MAX];
    struct pl_shuffle s;
    memset(seen, 0, sizeof seen);
    pl_shuffle_init(&s, seed, epoch, n);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t to = pl_shuffle_at(&s, i);
        if (to >= n || seen[to] != 0)
            fail_msg("n %llu, seed %llu: %llu goes to %llu", (unsigned long long)n, (unsigned long long)seed,
                     (unsigned long long)i, (unsigned long long)to);
        seen[to] = 1;
    }
}

static void every_n_is_permuted(void **state)
{
    (void)state;
    uint64_t seed = test_seed();
    for (uint64_t n = 1; n <= 300; n++)
        check_bijection(seed, n, n);
    for (uint64_t n = 300; n <= N_MAX; n += 470)
        check_bijection(seed + n, 0, n);
}

static void large_numbers_stay_inside(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {UINT64_C(1) << 32, (UINT64_C(1) << 40) + 1, PL_COUNT_MAX};
    uint64_t seed = test_seed();
    for (size_t k = 0; k < 3; k++) {
        struct pl_shuffle s;
        pl_shuffle_init(&s, seed, k, sizes[k]);
        for (uint64_t i = 0; i < 1000; i++)
            assert_true(pl_shuffle_at(&s, sizes[k] - 1 - i) < sizes[k]);
    }
}

/* A good shuffle of 1000 leaves about one item in its place and moves an item about 333 places. */
static void it_looks_shuffled(void **state)
{
    (void)state;
    uint64_t fixed = 0, moved = 0, next = 0;
    for (uint64_t seed = 0; seed < 100; seed++) {
        uint64_t before = 0;
        for (uint64_t i = 0; i < 1000; i++) {
            uint64_t to = pl_shuffle_order(seed, 1000, i);
            fixed += to == i;
            moved += to > i ? to - i : i - to;
            next += i > 0 && to == before + 1;
            before = to;
        }
    }
    assert_in_range(fixed, 50, 200);
    assert_in_range(moved / 100000, 320, 347);
    assert_in_range(next, 50, 200);
}

static void epochs_and_seeds_differ(void **state)
{
    (void)state;
    unsigned same_epoch = 0, same_seed = 0;
    for (uint64_t i = 0; i < 1000; i++) {
        same_epoch += pl_shuffle_order(7, 1000, i) == pl_shuffle_order(7, 1000, 1000 + i);
        same_seed += pl_shuffle_order(7, 1000, i) == pl_shuffle_order(8, 1000, i);
    }
    assert_true(same_epoch < 20 && same_seed < 20);
}

/* Resumed runs depend on these. */
static void the_order_never_changes(void **state)
{
    (void)state;
    static const uint64_t expected[8] = {983736, 413406, 530683, 936542, 844394, 236706, 98880, 799031};
    for (uint64_t i = 0; i < 8; i++)
        assert_int_equal(pl_shuffle_order(42, 1000003, i), expected[i]);
}

static void what_is_outside_is_our_bug(void **state)
{
    (void)state;
    struct pl_shuffle s;
    pl_shuffle_init(&s, 1, 0, 10);
    expect_assert(pl_shuffle_at(&s, 10));
    expect_assert((pl_shuffle_init(&s, 1, 0, 0), 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_n_is_permuted),     cmocka_unit_test(large_numbers_stay_inside),
        cmocka_unit_test(it_looks_shuffled),       cmocka_unit_test(epochs_and_seeds_differ),
        cmocka_unit_test(the_order_never_changes), cmocka_unit_test(what_is_outside_is_our_bug),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
