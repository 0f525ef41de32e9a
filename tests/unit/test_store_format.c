/* Names, headers and checksums of the store's files, byte by byte. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/hash.h"
#include "base/prng.h"
#include "store/format.h"

static void test_names(void **state)
{
    (void)state;
    char name[PL_FILE_NAME_MAX];
    uint64_t number = 0;
    pl_segment_name(0x12ab, name);
    assert_string_equal(name, "journal-00000000000012ab.pl");
    assert_true(pl_segment_name_parse(name, &number));
    assert_int_equal(number, 0x12ab);
    assert_false(pl_snapshot_name_parse(name, &number));
    pl_snapshot_name(PL_COUNT_MAX - 1, name);
    assert_string_equal(name, "snapshot-3fffffffffffffff.pl");
    assert_true(pl_snapshot_name_parse(name, &number));
    assert_int_equal(number, PL_COUNT_MAX - 1);
    static const char *const foreign[] = {"",
                                          "journal",
                                          "journal-",
                                          "journal-00000000000012ab",
                                          "journal-00000000000012ab.p",
                                          "journal-00000000000012ab.xl",
                                          "journal-00000000000012ab.px",
                                          "journal-00000000000012abxpl",
                                          "journal-00000000000012ab.plx",
                                          "journal-00000000000012AB.pl",
                                          "journal-00000000000012a:.pl",
                                          "journal-00000000000012a.pl",
                                          "journal-00000000000012ag.pl",
                                          "journal-4000000000000000.pl",
                                          "Journal-00000000000012ab.pl",
                                          "journal.tmp"};
    for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++)
        assert_false(pl_segment_name_parse(foreign[i], &number));
}

static const struct pl_segment_header head = {
    .run_id = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16},
    .generation = 7,
    .owner_epoch = 3,
    .first_seq = 100,
    .durable_seq = 104,
    .link = 0x1122334455667788};

static void rehash_segment(uint8_t bytes[static PL_SEGMENT_HEADER_BYTES])
{
    pl_put_le(bytes + 72, pl_hash64(bytes, 72, 0), 8);
}

static void test_segment_header(void **state)
{
    (void)state;
    uint8_t bytes[PL_SEGMENT_HEADER_BYTES];
    struct pl_segment_header h;
    struct pl_error err;
    pl_segment_header_put(&head, bytes);
    assert_memory_equal(bytes, "PELAGOJ1\1\0\0\0\0\0\0\0\1\2\3", 19);
    assert_int_equal(bytes[32], 7);
    assert_int_equal(bytes[48], 100);
    assert_int_equal(pl_segment_header_get(bytes, "f", &h, NULL), PELAGO_OK);
    assert_memory_equal(&h, &head, sizeof h);
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] ^= 0x40;
        assert_int_equal(pl_segment_header_get(bytes, "f", &h, &err), PELAGO_CORRUPT);
        assert_int_equal(err.text[0], 'f');
        bytes[i] ^= 0x40;
    }
    bytes[8] = 2;
    rehash_segment(bytes);
    assert_int_equal(pl_segment_header_get(bytes, "f", &h, &err), PELAGO_UNSUPPORTED);
    assert_string_equal(err.text, "f has format version 2, this program knows 1.");
    bytes[8] = 1;
    bytes[13] = 1;
    rehash_segment(bytes);
    assert_int_equal(pl_segment_header_get(bytes, "f", &h, NULL), PELAGO_UNSUPPORTED);
}

static void test_segment_header_numbers(void **state)
{
    (void)state;
    static const struct {
        uint64_t first, durable, epoch;
        enum pelago_status expected;
    } cases[] = {
        {1, 0, 1, PELAGO_OK},
        {0, 0, 1, PELAGO_CORRUPT},
        {5, 3, 1, PELAGO_CORRUPT},
        {5, PL_COUNT_MAX, 1, PELAGO_CORRUPT},
        {PL_COUNT_MAX, PL_COUNT_MAX - 1, 1, PELAGO_OK},
        {UINT64_MAX, UINT64_MAX, 1, PELAGO_CORRUPT},
        {1, 0, PL_COUNT_MAX, PELAGO_CORRUPT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint8_t bytes[PL_SEGMENT_HEADER_BYTES];
        struct pl_segment_header h = head;
        h.first_seq = cases[i].first;
        h.durable_seq = cases[i].durable;
        h.owner_epoch = cases[i].epoch;
        pl_segment_header_put(&h, bytes);
        assert_int_equal(pl_segment_header_get(bytes, "f", &h, NULL), cases[i].expected);
    }
}

static void test_record_header(void **state)
{
    (void)state;
    uint8_t bytes[PL_RECORD_HEADER_BYTES];
    struct pl_record_header back;
    for (int mark = 0; mark < 2; mark++) {
        const struct pl_record_header h = {.mark = mark != 0,
                                           .type = 0xfeedface,
                                           .seq = 9,
                                           .length = 1000,
                                           .durable_seq = 8,
                                           .link = 77,
                                           .payload_hash = 88};
        pl_record_header_put(&h, 5, bytes);
        assert_memory_equal(bytes, mark ? "PLM1" : "PLR1", 4);
        assert_true(pl_record_header_get(bytes, 5, &back));
        assert_int_equal(back.mark, h.mark);
        assert_int_equal(back.type, h.type);
        assert_int_equal(back.seq, 9);
        assert_int_equal(back.length, 1000);
        assert_int_equal(back.durable_seq, 8);
        assert_int_equal(back.link, 77);
        assert_int_equal(back.payload_hash, 88);
        assert_false(pl_record_header_get(bytes, 6, &back));
        for (size_t i = 0; i < sizeof bytes; i++) {
            bytes[i] ^= 4;
            assert_false(pl_record_header_get(bytes, 5, &back));
            bytes[i] ^= 4;
        }
    }
}

/* The link depends on everything that makes up the history, and on nothing else. */
static void test_link(void **state)
{
    (void)state;
    const struct pl_record_header h = {.seq = 1, .type = 2, .length = 3, .payload_hash = 4, .link = 5};
    const uint64_t link = pl_link_next(&h);
    struct pl_record_header other = h;
    other.durable_seq = 99;
    assert_int_equal(pl_link_next(&other), link);
    other.seq++;
    assert_int_not_equal(pl_link_next(&other), link);
    other = h;
    other.type++;
    assert_int_not_equal(pl_link_next(&other), link);
    other = h;
    other.length++;
    assert_int_not_equal(pl_link_next(&other), link);
    other = h;
    other.payload_hash++;
    assert_int_not_equal(pl_link_next(&other), link);
    other = h;
    other.link++;
    assert_int_not_equal(pl_link_next(&other), link);
    assert_int_not_equal(pl_segment_seed(head.run_id, 1), pl_segment_seed(head.run_id, 2));
}

static const struct pl_snapshot_header snapshot = {
    .run_id = {9, 8, 7},
    .seq = 12,
    .link = 13,
    .section_count = 3,
    .sections = {{.tag = 1, .length = 10, .hash = 5},
                 {.tag = 2},
                 {.tag = 7, .length = PL_BLOCK_BYTES + 1, .hash = 6}}};

static uint64_t snapshot_bytes(void)
{
    return pl_snapshot_head_bytes(3) + 10 + 8 + PL_BLOCK_BYTES + 1 + 16;
}

static void rehash_snapshot(uint8_t *bytes, uint32_t section_count)
{
    const struct pl_bytes parts[] = {{bytes, 56}, {bytes + 64, pl_snapshot_head_bytes(section_count) - 64}};
    pl_put_le(bytes + 56, pl_hash64_parts(parts, 2, 0), 8);
}

static void test_snapshot_header(void **state)
{
    (void)state;
    uint8_t bytes[PL_SNAPSHOT_HEAD_MAX] = {0};
    struct pl_snapshot_header h = {.seq = 0};
    struct pl_error err;
    const struct pl_bytes in = {bytes, sizeof bytes};
    size_t len = pl_snapshot_header_put(&snapshot, bytes);
    assert_int_equal(len, 64 + 3 * 24);
    assert_memory_equal(bytes, "PELAGOS1\1\0\0\0\3\0\0\0\t\10\7", 19);
    assert_int_equal(pl_snapshot_header_get(in, snapshot_bytes(), "f", &h, &err), PELAGO_OK);
    assert_memory_equal(&h, &snapshot, sizeof h);
    for (size_t i = 0; i < len; i++) {
        bytes[i] ^= 1;
        assert_int_equal(pl_snapshot_header_get(in, snapshot_bytes(), "f", &h, &err), PELAGO_CORRUPT);
        bytes[i] ^= 1;
    }
    for (size_t n = 0; n < len; n++)
        assert_int_equal(pl_snapshot_header_get((struct pl_bytes){bytes, n}, n, "f", &h, &err),
                         PELAGO_CORRUPT);
    assert_int_equal(pl_snapshot_header_get(in, snapshot_bytes() + 1, "f", &h, &err), PELAGO_CORRUPT);
    assert_string_equal(err.text, "f has 65708 bytes, its table needs 65707.");
}

/* Numbers that are wrong under a checksum that is right. */
static void test_snapshot_header_numbers(void **state)
{
    (void)state;
    static const struct {
        size_t at;
        uint64_t value;
        unsigned width;
        enum pelago_status expected;
    } cases[] = {
        {8, 2, 4, PELAGO_UNSUPPORTED},
        {12, PL_SECTIONS_MAX + 1, 4, PELAGO_CORRUPT},
        {12, UINT32_MAX, 4, PELAGO_CORRUPT},
        {32, PL_COUNT_MAX, 8, PELAGO_CORRUPT},
        {48, 100, 8, PELAGO_CORRUPT},
        {64 + 4, 1, 4, PELAGO_CORRUPT},
        {64 + 8, PL_SECTION_BYTES_MAX + 1, 8, PELAGO_CORRUPT},
        {64 + 8, UINT64_MAX, 8, PELAGO_CORRUPT},
        {64 + 8, PL_SECTION_BYTES_MAX, 8, PELAGO_CORRUPT},
        {64 + 8, 11, 8, PELAGO_CORRUPT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint8_t bytes[PL_SNAPSHOT_HEAD_MAX] = {0};
        struct pl_snapshot_header h;
        struct pl_error err;
        pl_snapshot_header_put(&snapshot, bytes);
        pl_put_le(bytes + cases[i].at, cases[i].value, cases[i].width);
        rehash_snapshot(bytes, 3);
        assert_int_equal(
            pl_snapshot_header_get((struct pl_bytes){bytes, sizeof bytes}, snapshot_bytes(), "f", &h, &err),
            cases[i].expected);
    }
}

/* However the parts are cut, the hash is that of the whole. */
static void test_hash_parts(void **state)
{
    (void)state;
    uint8_t bytes[2000];
    struct pl_prng prng;
    pl_prng_seed(&prng, 1, 0);
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)pl_prng_next(&prng);
    for (int i = 0; i < 500; i++) {
        size_t len = (size_t)pl_prng_below(&prng, sizeof bytes + 1);
        size_t a = (size_t)pl_prng_below(&prng, len + 1);
        const struct pl_bytes parts[] = {{bytes, a}, {NULL, 0}, {bytes + a, len - a}};
        assert_int_equal(pl_hash64_parts(parts, 3, 99), pl_hash64(bytes, len, 99));
    }
    assert_int_equal(pl_hash64_parts(NULL, 0, 3), pl_hash64(bytes, 0, 3));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_segment_header),
        cmocka_unit_test(test_segment_header_numbers),
        cmocka_unit_test(test_record_header),
        cmocka_unit_test(test_link),
        cmocka_unit_test(test_snapshot_header),
        cmocka_unit_test(test_snapshot_header_numbers),
        cmocka_unit_test(test_hash_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
