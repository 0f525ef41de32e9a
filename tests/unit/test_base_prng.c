/* test_base_prng.c - randomness that repeats, and hashes that are those everyone else computes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/hash.h"
#include "base/prng.h"
#include "expect_assert.h"
#include "seed.h"

#include <string.h>

static void the_generator_is_xoshiro256_starstar(void **state)
{
    (void)state;
    static const uint64_t expected[] = {11520, 0, 1509978240, UINT64_C(1215971899390074240)};
    struct pl_prng r = {{1, 2, 3, 4}};
    for (unsigned i = 0; i < 4; i++)
        assert_true(pl_prng_next(&r) == expected[i]);
}

static void a_seed_and_a_stream_give_one_sequence(void **state)
{
    (void)state;
    struct pl_prng a, b, other_stream, other_seed;
    uint64_t seed = test_seed();
    pl_prng_seed(&a, seed, 7);
    pl_prng_seed(&b, seed, 7);
    pl_prng_seed(&other_stream, seed, 8);
    pl_prng_seed(&other_seed, seed + 1, 7);
    unsigned same = 0;
    for (unsigned i = 0; i < 1000; i++) {
        uint64_t v = pl_prng_next(&a);
        assert_true(v == pl_prng_next(&b));
        same += v == pl_prng_next(&other_stream);
        same += v == pl_prng_next(&other_seed);
    }
    assert_int_equal(same, 0);
}

static void recorded_seeds_keep_their_meaning(void **state)
{
    (void)state;
    struct pl_prng r;
    pl_prng_seed(&r, 0, 0);
    assert_true(pl_prng_next(&r) == UINT64_C(0xfb5405f7bd79c540));
    pl_prng_seed(&r, 42, 3);
    assert_true(pl_prng_next(&r) == UINT64_C(0x44ad28f44a5c0633));
}

static void below_is_uniform_and_within_its_bound(void **state)
{
    (void)state;
    struct pl_prng r;
    pl_prng_seed(&r, test_seed(), 0);
    for (uint64_t n = 1; n <= 12; n++) {
        unsigned hits[12] = {0};
        for (unsigned i = 0; i < 12000; i++) {
            uint64_t v = pl_prng_below(&r, n);
            assert_true(v < n);
            hits[v]++;
        }
        for (uint64_t v = 0; v < n; v++) /* about ten standard deviations */
            assert_true(hits[v] > 12000 / n - 550 && hits[v] < 12000 / n + 550);
    }
    for (unsigned i = 0; i < 1000; i++)
        assert_true(pl_prng_below(&r, (UINT64_C(1) << 63) + 1) <= UINT64_C(1) << 63);
}

static void ranges_include_both_ends(void **state)
{
    (void)state;
    struct pl_prng r;
    pl_prng_seed(&r, test_seed(), 0);
    unsigned seen = 0;
    for (unsigned i = 0; i < 1000; i++) {
        uint64_t v = pl_prng_range(&r, 5, 8);
        assert_in_range(v, 5, 8);
        seen |= 1u << (v - 5);
    }
    assert_int_equal(seen, 15);
    assert_true(pl_prng_range(&r, 9, 9) == 9);
    assert_true(pl_prng_range(&r, UINT64_MAX, UINT64_MAX) == UINT64_MAX);
    uint64_t all = 0;
    for (unsigned i = 0; i < 200; i++)
        all |= pl_prng_range(&r, 0, UINT64_MAX);
    assert_true(all == UINT64_MAX);
    expect_assert(pl_prng_below(&r, 0));
    expect_assert(pl_prng_range(&r, 2, 1));
}

static void chances_are_in_millionths(void **state)
{
    (void)state;
    struct pl_prng r;
    pl_prng_seed(&r, test_seed(), 0);
    unsigned hits = 0;
    for (unsigned i = 0; i < 10000; i++) {
        assert_false(pl_prng_chance(&r, 0));
        assert_true(pl_prng_chance(&r, 1000000));
        hits += pl_prng_chance(&r, 300000);
    }
    assert_in_range(hits, 2500, 3500);
}

static void hashes_are_xxh3(void **state)
{
    (void)state;
    assert_true(pl_hash64("", 0, 0) == UINT64_C(0x2d06800538d394c2));
    assert_true(pl_hash64("a", 1, 0) == UINT64_C(0xe6c632b61e964e1f));
    assert_true(pl_hash64("abc", 3, 0) == UINT64_C(0x78af5f94892f3950));
    assert_true(pl_hash64("abc", 3, 0) != pl_hash64("abc", 3, 1));
}

static void a_hash_of_parts_is_that_of_the_whole(void **state)
{
    (void)state;
    uint8_t bytes[700];
    struct pl_prng r;
    pl_prng_seed(&r, test_seed(), 0);
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)pl_prng_next(&r);
    for (unsigned n = 0; n < 2000; n++) {
        size_t len = pl_prng_below(&r, sizeof bytes);
        size_t a = pl_prng_range(&r, 0, len);
        size_t b = pl_prng_range(&r, a, len);
        uint64_t seed = pl_prng_below(&r, 2) * pl_prng_next(&r);
        struct pl_bytes parts[] = {{bytes, a}, {bytes + a, b - a}, {NULL, 0}, {bytes + b, len - b}};
        assert_true(pl_hash64_parts(parts, 4, seed) == pl_hash64(bytes, len, seed));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_generator_is_xoshiro256_starstar),
        cmocka_unit_test(a_seed_and_a_stream_give_one_sequence),
        cmocka_unit_test(recorded_seeds_keep_their_meaning),
        cmocka_unit_test(below_is_uniform_and_within_its_bound),
        cmocka_unit_test(ranges_include_both_ends),
        cmocka_unit_test(chances_are_in_millionths),
        cmocka_unit_test(hashes_are_xxh3),
        cmocka_unit_test(a_hash_of_parts_is_that_of_the_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
