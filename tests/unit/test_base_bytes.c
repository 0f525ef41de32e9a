/* test_base_bytes.c - little-endian integers and cursors that stay within their bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/bytes.h"

static void integers_are_little_endian(void **state)
{
    (void)state;
    uint8_t b[8] = {0};
    pl_put_le(b, UINT64_C(0x8877665544332211), 8);
    for (uint8_t i = 0; i < 8; i++)
        assert_int_equal(b[i], 0x11 * (i + 1));
    for (unsigned width = 1; width <= 8; width++) {
        uint8_t back[9] = {0};
        uint64_t v = pl_get_le(b, width);
        assert_true(v == (UINT64_C(0x8877665544332211) & (UINT64_MAX >> (64 - 8 * width))));
        back[width] = 0xee;
        pl_put_le(back, v, width);
        assert_memory_equal(back, b, width);
        assert_int_equal(back[width], 0xee);
    }
}

static void a_reader_reads_to_its_end(void **state)
{
    (void)state;
    static const uint8_t b[] = {1, 2, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 'a', 'b'};
    struct pl_reader r = pl_reader_of(b, sizeof b);
    assert_int_equal(pl_read_u8(&r), 1);
    assert_int_equal(pl_read_u32(&r), 2);
    assert_true(pl_read_u64(&r) == 3);
    assert_int_equal(pl_reader_left(&r), 2);
    assert_ptr_equal(pl_read_bytes(&r, 2), b + 13);
    assert_ptr_equal(pl_read_bytes(&r, 0), b + sizeof b);
    assert_false(r.bad);
}

static void a_reader_past_its_end_stays_bad(void **state)
{
    (void)state;
    static const uint8_t b[] = {1, 2, 3};
    struct pl_reader r = pl_reader_of(b, sizeof b);
    assert_int_equal(pl_read_u32(&r), 0);
    assert_true(r.bad);
    assert_int_equal(pl_read_u8(&r), 0);
    assert_null(pl_read_bytes(&r, 0));
    assert_int_equal(pl_reader_left(&r), 3);
    r = pl_reader_of(b, sizeof b);
    assert_null(pl_read_bytes(&r, SIZE_MAX));
    assert_true(r.bad);
    r = pl_reader_of(NULL, 0);
    assert_int_equal(pl_reader_left(&r), 0);
    assert_int_equal(pl_read_u8(&r), 0);
    assert_true(r.bad);
}

static void a_writer_writes_to_its_end(void **state)
{
    (void)state;
    static const uint8_t expected[] = {1, 2, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 'a', 'b'};
    uint8_t b[sizeof expected];
    struct pl_writer w = pl_writer_of(b, sizeof b);
    pl_write_u8(&w, 1);
    pl_write_u32(&w, 2);
    pl_write_u64(&w, 3);
    pl_write_bytes(&w, "ab", 2);
    pl_write_bytes(&w, NULL, 0);
    assert_false(w.bad);
    assert_int_equal(pl_writer_len(&w), sizeof b);
    assert_memory_equal(b, expected, sizeof b);
}

static void a_writer_past_its_end_stays_bad_and_writes_nothing(void **state)
{
    (void)state;
    uint8_t b[4] = {9, 9, 9, 9};
    struct pl_writer w = pl_writer_of(b, 3);
    pl_write_u32(&w, 0);
    assert_true(w.bad);
    pl_write_u8(&w, 0);
    pl_write_bytes(&w, "x", 1);
    assert_null(pl_write_room(&w, 0));
    assert_int_equal(pl_writer_len(&w), 0);
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(b[i], 9);
    w = pl_writer_of(NULL, 0);
    pl_write_bytes(&w, NULL, 0);
    assert_false(w.bad);
    assert_null(pl_write_room(&w, 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(integers_are_little_endian),
        cmocka_unit_test(a_reader_reads_to_its_end),
        cmocka_unit_test(a_reader_past_its_end_stays_bad),
        cmocka_unit_test(a_writer_writes_to_its_end),
        cmocka_unit_test(a_writer_past_its_end_stays_bad_and_writes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
