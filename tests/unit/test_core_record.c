/* Journal records of a shard: every type comes back as it was written; damage is found or harmless. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/bytes.h"
#include "core/record.h"
#include "expect_assert.h"

#include <stdlib.h>
#include <string.h>

enum { PARTS = 3 };

static const struct pl_contributor parts[PARTS] = {
    {.learner = 7,
     .identity = 10,
     .incarnation = 1,
     .steps = 2,
     .tokens = 3,
     .seen_tokens = 4,
     .past_tokens = 5,
     .unit = 6,
     .cursor = 7},
    {.learner = 1,
     .identity = 20,
     .incarnation = 11,
     .steps = 12,
     .tokens = 0,
     .seen_tokens = 14,
     .unit = UINT64_MAX},
    {.learner = 3, .identity = UINT64_MAX, .incarnation = UINT64_MAX, .steps = UINT64_MAX, .cursor = 9},
};

static const struct pl_record records[] = {
    {.type = PL_RECORD_BOOT, .epoch = 1, .clock_tokens = 2, .tick = 3},
    {.type = PL_RECORD_ROUND,
     .epoch = 4,
     .clock_tokens = UINT64_MAX,
     .tick = 5,
     .fragment = 6,
     .round = 7,
     .version = 8,
     .digest = 9,
     .update_bytes = 10,
     .contributor_count = PARTS,
     .contributors = parts},
    {.type = PL_RECORD_ROUND, .version = 1, .contributors = parts},
    {.type = PL_RECORD_LEASE, .epoch = 1, .unit = 2, .cursor = 3, .identity = 4},
    {.type = PL_RECORD_DONE, .epoch = UINT64_MAX, .clock_tokens = 1, .tick = 0},
};
enum { RECORDS = sizeof records / sizeof records[0] };

static void assert_same(const struct pl_record *a, const struct pl_record *b)
{
    assert_int_equal(a->type, b->type);
    assert_int_equal(a->epoch, b->epoch);
    assert_int_equal(a->clock_tokens, b->clock_tokens);
    assert_int_equal(a->tick, b->tick);
    assert_int_equal(a->fragment, b->fragment);
    assert_int_equal(a->round, b->round);
    assert_int_equal(a->version, b->version);
    assert_int_equal(a->digest, b->digest);
    assert_int_equal(a->update_bytes, b->update_bytes);
    assert_int_equal(a->unit, b->unit);
    assert_int_equal(a->cursor, b->cursor);
    assert_int_equal(a->identity, b->identity);
    assert_int_equal(a->contributor_count, b->contributor_count);
    for (uint32_t i = 0; i < a->contributor_count; i++) {
        struct pl_contributor x = a->contributors[i], y = b->contributors[i];
        assert_int_equal(y.learner, UINT32_MAX); /* a slot means nothing after a restart */
        x.learner = y.learner;
        assert_memory_equal(&x, &y, sizeof x);
    }
}

static void test_round_trip(void **state)
{
    (void)state;
    uint8_t bytes[512];
    struct pl_contributor back[PARTS];
    memset(back, 0, sizeof back);
    for (size_t i = 0; i < RECORDS; i++) {
        struct pl_record r;
        size_t len = pl_record_encode(&records[i], bytes, sizeof bytes);
        assert_int_equal(len, pl_record_bytes(&records[i]));
        assert_true(len <= pl_record_bytes_max(PARTS));
        assert_int_equal(pl_record_decode(bytes, len, &r, back, PARTS, NULL), PELAGO_OK);
        assert_same(&records[i], &r);
    }
    assert_int_equal(pl_record_bytes_max(PARTS), pl_record_bytes(&records[1]));
}

static void test_encode_needs_room(void **state)
{
    (void)state;
    uint8_t bytes[512];
    expect_assert(pl_record_encode(&records[1], bytes, pl_record_bytes(&records[1]) - 1));
}

static void test_wrong_lengths(void **state)
{
    (void)state;
    uint8_t bytes[512];
    struct pl_contributor back[PARTS];
    for (size_t i = 0; i < RECORDS; i++) {
        size_t len = pl_record_encode(&records[i], bytes, sizeof bytes);
        for (size_t n = 0; n < len; n++) {
            struct pl_record r;
            struct pl_error err;
            uint8_t *exact = malloc(n > 0 ? n : 1);
            memcpy(exact, bytes, n);
            assert_int_equal(pl_record_decode(exact, n, &r, back, PARTS, &err), PELAGO_CORRUPT);
            assert_true(err.text[0] != '\0');
            free(exact);
        }
        struct pl_record r;
        bytes[len] = 0;
        assert_int_equal(pl_record_decode(bytes, len + 1, &r, back, PARTS, NULL), PELAGO_CORRUPT);
    }
}

static void test_what_is_refused(void **state)
{
    (void)state;
    uint8_t bytes[512];
    struct pl_contributor back[PARTS];
    struct pl_record r;
    struct pl_error err;
    size_t len = pl_record_encode(&records[1], bytes, sizeof bytes);
    assert_int_equal(pl_record_decode(bytes, len, &r, back, PARTS - 1, &err), PELAGO_LIMIT);
    assert_string_equal(err.text, "a round record has 3 contributors, at most 2 are expected");
    for (uint32_t type = 0; type < 7; type++) {
        bytes[0] = (uint8_t)type;
        enum pelago_status status = pl_record_decode(bytes, len, &r, back, PARTS, &err);
        assert_int_equal(status, type == PL_RECORD_ROUND ? PELAGO_OK : PELAGO_CORRUPT);
    }
    bytes[0] = 9;
    pl_record_decode(bytes, len, &r, back, PARTS, &err);
    assert_string_equal(err.text, "a record has type 9, 1 to 4 are expected");
    bytes[0] = PL_RECORD_ROUND;
    const size_t first = 28 + 40;
    pl_put_le(bytes + first + 64, 10, 8); /* the second has the identity of the first */
    assert_int_equal(pl_record_decode(bytes, len, &r, back, PARTS, &err), PELAGO_CORRUPT);
    assert_string_equal(err.text, "contributor 1 of a round record is out of order or empty");
    pl_put_le(bytes + first + 64, 20, 8);
    pl_put_le(bytes + first + 16, 0, 8); /* no steps */
    assert_int_equal(pl_record_decode(bytes, len, &r, back, PARTS, &err), PELAGO_CORRUPT);
    assert_string_equal(err.text, "contributor 0 of a round record is out of order or empty");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_encode_needs_room),
        cmocka_unit_test(test_wrong_lengths),
        cmocka_unit_test(test_what_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
