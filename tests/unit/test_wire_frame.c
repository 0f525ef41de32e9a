/* test_wire_frame.c - frames: what is accepted, what each wrong byte leads to, and how early. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "expect_assert.h"
#include "seed.h"
#include "wire/frame.h"
#include "wire_gen.h"

#include <stdlib.h>
#include <string.h>

static const uint8_t types[] = {
#define MSG_BEGIN(NAME, name, number, channel, sender, doc) number,
#include "wire/messages.def"
};
enum { TYPE_COUNT = sizeof types };

static struct wire_gen gen;
static uint8_t bytes[1 << 16];

static size_t ping_frame(void)
{
    struct pl_msg m = {.type = PL_MSG_PING, .u.ping = {42}};
    return pl_frame_encode(&m, bytes, sizeof bytes);
}

static void assert_parse(size_t len, enum pelago_status status, const char *text)
{
    struct pl_frame frame;
    struct pl_error err = {PELAGO_OK, ""};
    assert_int_equal(pl_frame_parse(bytes, len, &frame, &err), status);
    assert_string_equal(err.text, text);
    assert_int_equal(pl_frame_parse(bytes, len, &frame, NULL), status);
}

static void every_message_passes_through_a_frame(void **state)
{
    (void)state;
    wire_gen_init(&gen, test_seed(), 20);
    for (unsigned n = 0; n < 50 * TYPE_COUNT; n++) {
        struct pl_msg m, back;
        struct pl_frame frame;
        wire_gen_msg(&gen, types[n % TYPE_COUNT], &m);
        size_t len = pl_frame_encode(&m, bytes, sizeof bytes);
        assert_int_equal(len, pl_frame_bytes(&m));
        assert_int_equal(pl_frame_parse(bytes, sizeof bytes, &frame, NULL), PELAGO_OK);
        assert_int_equal(frame.total, len);
        assert_int_equal(frame.type, m.type);
        assert_int_equal(frame.payload_len, len - PL_FRAME_HEADER_BYTES);
        assert_ptr_equal(frame.payload, bytes + PL_FRAME_HEADER_BYTES);
        assert_int_equal(pl_msg_decode(frame.type, frame.payload, frame.payload_len, &back, NULL), PELAGO_OK);
        assert_null(wire_msg_difference(&m, &back));
    }
}

static void a_frame_not_yet_complete_says_what_it_needs(void **state)
{
    (void)state;
    size_t len = ping_frame();
    struct pl_frame frame;
    assert_int_equal(pl_frame_parse(NULL, 0, &frame, NULL), PELAGO_SHORT);
    assert_int_equal(frame.need, PL_FRAME_HEADER_BYTES);
    for (size_t have = 0; have < len; have++) {
        assert_int_equal(pl_frame_parse(bytes, have, &frame, NULL), PELAGO_SHORT);
        assert_int_equal(frame.need, have < 8 ? PL_FRAME_HEADER_BYTES : len);
        assert_int_equal(frame.total, 0);
    }
    assert_parse(20, PELAGO_SHORT, "a frame of 24 bytes has 20 so far");
    assert_parse(len, PELAGO_OK, "");
    assert_parse(len + 1, PELAGO_OK, "");
}

static void every_flipped_bit_is_noticed(void **state)
{
    (void)state;
    uint8_t *stream = calloc(1, PL_FRAME_HEADER_BYTES + PL_MSG_DATA_BYTES_MAX);
    assert_non_null(stream);
    wire_gen_init(&gen, test_seed(), 5);
    for (unsigned t = 0; t < TYPE_COUNT; t++) {
        struct pl_msg m;
        struct pl_frame frame;
        wire_gen_msg(&gen, types[t], &m);
        size_t len = pl_frame_encode(&m, bytes, sizeof bytes);
        memcpy(stream, bytes, len);
        for (size_t bit = 0; bit < 8 * len; bit++) {
            stream[bit / 8] ^= (uint8_t)(1u << bit % 8);
            enum pelago_status status = pl_frame_parse(stream, len, &frame, NULL);
            /* A length that grew within its limit shows only once the bytes it asks for are there. */
            if (status == PELAGO_SHORT)
                status = pl_frame_parse(stream, frame.need, &frame, NULL);
            assert_true(status == PELAGO_PROTO || status == PELAGO_LIMIT);
            stream[bit / 8] = bytes[bit / 8];
        }
        memset(stream, 0, len);
    }
    free(stream);
}

static void wrong_magic_shows_at_the_first_byte(void **state)
{
    (void)state;
    ping_frame();
    bytes[0] = 'G';
    for (size_t len = 1; len <= 24; len++)
        assert_parse(len, PELAGO_PROTO, "frame byte 0 is 0x47, 0x50 is expected: not this protocol");
    bytes[0] = 'P';
    bytes[1] = 'O';
    assert_parse(1, PELAGO_SHORT, "a frame of 16 bytes has 1 so far");
    assert_parse(2, PELAGO_PROTO, "frame byte 1 is 0x4f, 0x4c is expected: not this protocol");
}

static void another_version_is_named(void **state)
{
    (void)state;
    ping_frame();
    for (unsigned version = 0; version < 256; version++) {
        bytes[2] = (uint8_t)version;
        struct pl_frame frame;
        assert_int_equal(pl_frame_parse(bytes, 3, &frame, NULL),
                         version == PL_PROTOCOL_VERSION ? PELAGO_SHORT : PELAGO_PROTO);
    }
    bytes[2] = 2;
    assert_parse(
        3, PELAGO_PROTO,
        "the frame is of protocol version 2, this build speaks version 1: use the same version of pelago on "
        "both sides");
    assert_parse(
        24, PELAGO_PROTO,
        "the frame is of protocol version 2, this build speaks version 1: use the same version of pelago on "
        "both sides");
}

static void unknown_types_are_refused_by_the_header(void **state)
{
    (void)state;
    ping_frame();
    for (unsigned type = 0; type < 256; type++) {
        bytes[3] = (uint8_t)type;
        struct pl_frame frame;
        assert_int_equal(pl_frame_parse(bytes, 4, &frame, NULL),
                         pl_msg_info((uint8_t)type) != NULL ? PELAGO_SHORT : PELAGO_PROTO);
    }
    bytes[3] = 99;
    assert_parse(4, PELAGO_PROTO, "message type 99 is not known");
}

static void lengths_over_the_limit_are_refused_by_the_header(void **state)
{
    (void)state;
    ping_frame();
    for (unsigned t = 0; t < TYPE_COUNT; t++) {
        struct pl_frame frame;
        uint32_t max = pl_msg_info(types[t])->payload_max;
        bytes[3] = types[t];
        pl_put_le(bytes + 4, max, 4);
        assert_int_equal(pl_frame_parse(bytes, 8, &frame, NULL), PELAGO_SHORT);
        assert_int_equal(frame.need, PL_FRAME_HEADER_BYTES + max);
        pl_put_le(bytes + 4, max + 1, 4);
        assert_int_equal(pl_frame_parse(bytes, 7, &frame, NULL), PELAGO_SHORT);
        assert_int_equal(pl_frame_parse(bytes, 8, &frame, NULL), PELAGO_LIMIT);
        pl_put_le(bytes + 4, UINT32_MAX, 4);
        assert_int_equal(pl_frame_parse(bytes, 16, &frame, NULL), PELAGO_LIMIT);
    }
    bytes[3] = PL_MSG_PULL;
    pl_put_le(bytes + 4, 21, 4);
    assert_parse(16, PELAGO_LIMIT, "the PULL frame announces a payload of 21 bytes, at most 20 are allowed");
}

static void a_checksum_that_does_not_fit_is_refused(void **state)
{
    (void)state;
    size_t len = ping_frame();
    uint64_t seed = pl_hash64(bytes, 8, 0);
    assert_true(pl_get_le(bytes + 8, 8) == pl_hash64(bytes + 16, 8, seed));
    bytes[16] ^= 1;
    struct pl_frame frame;
    struct pl_error err = {PELAGO_OK, ""};
    assert_int_equal(pl_frame_parse(bytes, len, &frame, &err), PELAGO_PROTO);
    assert_non_null(strstr(err.text, "the PING frame's checksum is "));
}

static void frames_that_do_not_fit_are_asserted(void **state)
{
    (void)state;
    struct pl_msg m = {.type = PL_MSG_PING};
    assert_int_equal(pl_frame_encode(&m, bytes, 24), 24);
    expect_assert(pl_frame_encode(&m, bytes, 23));
    expect_assert(pl_frame_encode(&m, bytes, 15));
    m.type = PL_MSG_WANT;
    assert_int_equal(pl_frame_encode(&m, bytes, 16), 16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_message_passes_through_a_frame),
        cmocka_unit_test(a_frame_not_yet_complete_says_what_it_needs),
        cmocka_unit_test(every_flipped_bit_is_noticed),
        cmocka_unit_test(wrong_magic_shows_at_the_first_byte),
        cmocka_unit_test(another_version_is_named),
        cmocka_unit_test(unknown_types_are_refused_by_the_header),
        cmocka_unit_test(lengths_over_the_limit_are_refused_by_the_header),
        cmocka_unit_test(a_checksum_that_does_not_fit_is_refused),
        cmocka_unit_test(frames_that_do_not_fit_are_asserted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
