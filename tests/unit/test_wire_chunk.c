/* test_wire_chunk.c - chunks cover a transfer exactly, whatever its size. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/prng.h"
#include "expect_assert.h"
#include "seed.h"
#include "wire/chunk.h"

/* What the page says, checked for one size. */
static void check_size(uint64_t total)
{
    uint32_t each = pl_chunk_bytes(total);
    uint32_t count = pl_chunk_count(total);
    uint64_t end = 0;
    assert_true(each >= PL_CHUNK_BYTES_MIN && each <= PL_CHUNK_BYTES_MAX && each % 4096 == 0);
    assert_true(count >= 1 && count <= PL_CHUNKS_MAX);
    /* No larger than 64 chunks need. */
    assert_true(each == PL_CHUNK_BYTES_MIN || (uint64_t)(each - 4096) * PL_CHUNKS_MAX < total);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t len = pl_chunk_len(total, i);
        assert_true(pl_chunk_offset(total, i) == end);
        assert_true(i + 1 < count ? len == each : len >= 1 && len <= each);
        end += len;
    }
    assert_true(end == total);
    uint64_t all = 0;
    for (uint32_t i = 0; i < count; i++)
        all |= UINT64_C(1) << i;
    assert_true(pl_chunk_all(total) == all);
}

static void small_transfers_are_covered_exactly(void **state)
{
    (void)state;
    for (uint64_t total = 1; total <= 3 * PL_CHUNK_BYTES_MIN; total++)
        check_size(total);
    assert_int_equal(pl_chunk_count(PL_CHUNK_BYTES_MIN), 1);
    assert_int_equal(pl_chunk_count(PL_CHUNK_BYTES_MIN + 1), 2);
}

static void sizes_around_every_step_are_covered_exactly(void **state)
{
    (void)state;
    for (uint64_t pages = 1; pages <= PL_TRANSFER_BYTES_MAX / 4096; pages += pages < 600 ? 1 : pages / 7) {
        check_size(pages * 4096 - 1);
        check_size(pages * 4096);
        if (pages * 4096 < PL_TRANSFER_BYTES_MAX)
            check_size(pages * 4096 + 1);
    }
    for (uint64_t each = PL_CHUNK_BYTES_MIN; each < PL_CHUNK_BYTES_MAX; each += 4096 * 61)
        for (uint64_t off = 0; off < 3; off++)
            check_size(each * PL_CHUNKS_MAX - 1 + off);
}

static void random_sizes_are_covered_exactly(void **state)
{
    (void)state;
    struct pl_prng rng;
    pl_prng_seed(&rng, test_seed(), 0);
    for (unsigned n = 0; n < 20000; n++)
        check_size(pl_prng_range(&rng, 1, PL_TRANSFER_BYTES_MAX >> pl_prng_below(&rng, 20)));
}

static void the_ends_of_the_range_hold(void **state)
{
    (void)state;
    check_size(PL_TRANSFER_BYTES_MAX);
    assert_int_equal(pl_chunk_bytes(PL_TRANSFER_BYTES_MAX), PL_CHUNK_BYTES_MAX);
    assert_int_equal(pl_chunk_count(PL_TRANSFER_BYTES_MAX), PL_CHUNKS_MAX);
    assert_true(pl_chunk_all(PL_TRANSFER_BYTES_MAX) == UINT64_MAX);
    expect_assert(pl_chunk_bytes(0));
    expect_assert(pl_chunk_bytes(PL_TRANSFER_BYTES_MAX + 1));
    expect_assert(pl_chunk_offset(1, 1));
    expect_assert(pl_chunk_len(PL_CHUNK_BYTES_MIN + 1, 2));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_transfers_are_covered_exactly),
        cmocka_unit_test(sizes_around_every_step_are_covered_exactly),
        cmocka_unit_test(random_sizes_are_covered_exactly),
        cmocka_unit_test(the_ends_of_the_range_hold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
