/* The manifest: every number that must not be 0, every fragment's place, the digest. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "core/manifest.h"

#include <string.h>

enum { FRAGMENTS = 4 };

static uint8_t items[FRAGMENTS * PL_ITEM_FRAGMENT_BYTES];
static struct pl_msg_manifest manifest;

static void put(uint32_t i, uint32_t shard, uint32_t offset, uint64_t bytes)
{
    pl_item_fragment_put(items, i, &(struct pl_item_fragment){shard, offset, bytes, bytes, bytes});
}

static int setup(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < FRAGMENTS; i++)
        put(i, i % 2, i / 2, 100);
    manifest = (struct pl_msg_manifest){.run_id = 1,
                                        .shard_count = 2,
                                        .quorum = 1,
                                        .overlap_steps = 1,
                                        .period_steps = 2,
                                        .token_budget = 1,
                                        .unit_tokens = 1,
                                        .step_tokens_max = 1,
                                        .fragments = {items, FRAGMENTS}};
    return 0;
}

static void expect(const char *text)
{
    struct pl_error err = {.text = ""};
    assert_int_equal(pl_manifest_check(&manifest, &err), PELAGO_INVALID);
    assert_string_equal(err.text, text);
    assert_int_equal(pl_manifest_check(&manifest, NULL), PELAGO_INVALID);
    setup(NULL);
}

static void test_valid(void **state)
{
    (void)state;
    assert_int_equal(pl_manifest_check(&manifest, NULL), PELAGO_OK);
    assert_int_equal(pl_manifest_shard_fragments(&manifest, 0), 2);
    assert_int_equal(pl_manifest_shard_fragments(&manifest, 1), 2);
    assert_int_equal(pl_manifest_shard_fragments(&manifest, 2), 0);
}

static void test_numbers(void **state)
{
    (void)state;
    manifest.run_id = 0;
    expect("MANIFEST.run_id is 0, at least 1 is expected");
    manifest.shard_count = 0;
    expect("MANIFEST.shard_count is 0, at least 1 is expected");
    manifest.quorum = 0;
    expect("MANIFEST.quorum is 0, at least 1 is expected");
    manifest.overlap_steps = 0;
    expect("MANIFEST.overlap_steps is 0, at least 1 is expected");
    manifest.period_steps = 0;
    expect("MANIFEST.period_steps is 0, at least 1 is expected");
    manifest.token_budget = 0;
    expect("MANIFEST.token_budget is 0, at least 1 is expected");
    manifest.unit_tokens = 0;
    expect("MANIFEST.unit_tokens is 0, at least 1 is expected");
    manifest.step_tokens_max = 0;
    expect("MANIFEST.step_tokens_max is 0, at least 1 is expected");
    manifest.fragments.count = 0;
    expect("MANIFEST.fragments is 0, at least 1 is expected");
    manifest.shard_count = 5;
    expect("MANIFEST.shard_count is 5, more than the 4 fragments");
}

static void test_fragments(void **state)
{
    (void)state;
    put(1, 2, 0, 100);
    expect("MANIFEST.fragments[1].shard is 2, below 2 is expected");
    put(3, 1, 2, 100);
    expect("MANIFEST.fragments[3].offset is 2, below period_steps 2 is expected");
    put(2, 0, 0, 100);
    expect("MANIFEST.fragments[2].offset 0 is taken by fragment 0 of its shard");
    for (uint32_t k = 0; k < 3; k++) {
        pl_item_fragment_put(items, 2, &(struct pl_item_fragment){0, 1, k != 0, k != 1, k != 2});
        expect("MANIFEST.fragments[2] has a size of 0 bytes");
    }
    manifest.shard_count = 3;
    expect("MANIFEST.fragments gives shard 2 nothing");
}

static void test_digest(void **state)
{
    (void)state;
    uint8_t scratch[1024];
    uint64_t digest = pl_manifest_digest(&manifest, scratch, sizeof scratch);
    assert_true(digest != 0);
    assert_int_equal(pl_manifest_digest(&manifest, scratch, sizeof scratch), digest);
    manifest.gamma_ppm++;
    assert_true(pl_manifest_digest(&manifest, scratch, sizeof scratch) != digest);
    manifest.gamma_ppm--;
    put(3, 1, 1, 101);
    assert_true(pl_manifest_digest(&manifest, scratch, sizeof scratch) != digest);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_valid, setup),
        cmocka_unit_test_setup(test_numbers, setup),
        cmocka_unit_test_setup(test_fragments, setup),
        cmocka_unit_test_setup(test_digest, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
