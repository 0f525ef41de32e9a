/* test_wire_msg.c - every message of the table: there and back, at its limits, one over, cut short, too long. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/bytes.h"
#include "expect_assert.h"
#include "seed.h"
#include "wire/msg.h"
#include "wire_gen.h"

#include <stdio.h>
#include <string.h>

static const uint8_t types[] = {
#define MSG_BEGIN(NAME, name, number, channel, sender, doc) number,
#include "wire/messages.def"
};
enum { TYPE_COUNT = sizeof types };

static struct wire_gen gen;
static uint8_t bytes[1 << 16];

static void assert_refused(uint8_t type, const uint8_t *payload, size_t len, const char *text)
{
    struct pl_msg m;
    struct pl_error err = {PELAGO_OK, ""};
    assert_int_equal(pl_msg_decode(type, payload, len, &m, &err), PELAGO_PROTO);
    assert_int_equal(err.status, PELAGO_PROTO);
    assert_string_equal(err.text, text);
    assert_int_equal(pl_msg_decode(type, payload, len, &m, NULL), PELAGO_PROTO);
}

static void assert_accepted(uint8_t type, const uint8_t *payload, size_t len)
{
    struct pl_msg m;
    struct pl_error err = {PELAGO_OK, ""};
    if (pl_msg_decode(type, payload, len, &m, &err) != PELAGO_OK)
        fail_msg("refused: %s", err.text);
}

static void every_message_comes_back_as_it_was(void **state)
{
    (void)state;
    wire_gen_init(&gen, test_seed(), 9);
    for (unsigned n = 0; n < 200 * TYPE_COUNT; n++) {
        struct pl_msg m, back;
        struct pl_error err = {PELAGO_OK, ""};
        wire_gen_msg(&gen, types[n % TYPE_COUNT], &m);
        size_t len = pl_msg_encode(&m, bytes, sizeof bytes);
        assert_int_equal(len, pl_msg_payload_bytes(&m));
        assert_true(len <= pl_msg_info(m.type)->payload_max);
        if (pl_msg_decode(m.type, bytes, len, &back, &err) != PELAGO_OK)
            fail_msg("refused: %s", err.text);
        const char *field = wire_msg_difference(&m, &back);
        if (field != NULL)
            fail_msg("%s differs after the way there and back", field);
    }
}

static void a_message_cut_anywhere_is_refused(void **state)
{
    (void)state;
    wire_gen_init(&gen, test_seed(), 3);
    for (unsigned n = 0; n < 10 * TYPE_COUNT; n++) {
        struct pl_msg m;
        uint8_t type = types[n % TYPE_COUNT];
        wire_gen_msg(&gen, type, &m);
        size_t len = pl_msg_encode(&m, bytes, sizeof bytes);
        const char *name = pl_msg_info(type)->name;
        for (size_t cut = 0; cut < len; cut++) {
            struct pl_error err = {PELAGO_OK, ""};
            assert_int_equal(pl_msg_decode(type, bytes, cut, &m, &err), PELAGO_PROTO);
            assert_memory_equal(err.text, name, strlen(name));
            assert_non_null(strstr(err.text, "left"));
        }
        bytes[len] = 0;
        bytes[len + 1] = 1;
        char text[PL_TEXT_MAX];
        snprintf(text, sizeof text, "%s has 2 bytes after its last field", name);
        assert_refused(type, bytes, len + 2, text);
    }
}

/* Writes an empty message (all zero, arrays without items) and returns where field number `at` begins. */
static size_t empty_payload(const struct pl_msg_info *info, uint32_t at, size_t *len)
{
    static const uint8_t width[] = {0, 1, 4, 8, 0, 4, 4, 4};
    size_t offset = 0;
    *len = 0;
    for (uint32_t i = 0; i < info->field_count; i++) {
        if (i == at)
            offset = *len;
        *len += width[info->fields[i].kind];
    }
    memset(bytes, 0, sizeof bytes);
    return offset;
}

static void numbers_one_over_their_limit_are_refused(void **state)
{
    (void)state;
    unsigned over = 0;
    for (unsigned t = 0; t < TYPE_COUNT; t++) {
        const struct pl_msg_info *info = pl_msg_info(types[t]);
        for (uint32_t i = 0; i < info->field_count; i++) {
            const struct pl_field *f = &info->fields[i];
            if (f->kind > PL_FIELD_U64)
                continue;
            unsigned width = f->kind == PL_FIELD_U8 ? 1 : f->kind == PL_FIELD_U32 ? 4 : 8;
            size_t len;
            size_t at = empty_payload(info, i, &len);
            pl_put_le(bytes + at, f->limit, width);
            assert_accepted(types[t], bytes, len);
            pl_put_le(bytes + at, f->limit + 1, width);
            if (pl_get_le(bytes + at, width) <= f->limit)
                continue;
            char text[PL_TEXT_MAX];
            snprintf(text, sizeof text, "%s.%s is %llu, at most %llu is allowed", info->name, f->name,
                     (unsigned long long)f->limit + 1, (unsigned long long)f->limit);
            assert_refused(types[t], bytes, len, text);
            over++;
        }
    }
    assert_true(over > 40);
}

static void counts_and_lengths_one_over_their_limit_are_refused(void **state)
{
    (void)state;
    unsigned over = 0;
    for (unsigned t = 0; t < TYPE_COUNT; t++) {
        const struct pl_msg_info *info = pl_msg_info(types[t]);
        for (uint32_t i = 0; i < info->field_count; i++) {
            const struct pl_field *f = &info->fields[i];
            if (f->kind < PL_FIELD_ARRAY)
                continue;
            const char *noun = f->kind == PL_FIELD_ARRAY ? "count" : "length";
            size_t len;
            size_t at = empty_payload(info, i, &len);
            pl_put_le(bytes + at, f->limit + 1, 4);
            char text[PL_TEXT_MAX];
            snprintf(text, sizeof text, "%s.%s has a %s of %llu, at most %llu is allowed", info->name,
                     f->name, noun, (unsigned long long)f->limit + 1, (unsigned long long)f->limit);
            assert_refused(types[t], bytes, len, text);
            /* Within the limit, but more than the bytes that are there. */
            pl_put_le(bytes + at, f->limit, 4);
            struct pl_msg m;
            struct pl_error err = {PELAGO_OK, ""};
            assert_int_equal(pl_msg_decode(types[t], bytes, len, &m, &err), PELAGO_PROTO);
            assert_non_null(strstr(err.text, f->name));
            assert_non_null(strstr(err.text, "but only"));
            over++;
        }
    }
    assert_true(over >= 9);
}

/* Field k of the second of two zero items. */
static void check_item_field(uint8_t type, const struct pl_msg_info *info, uint32_t i, uint32_t k,
                             unsigned *over)
{
    const struct pl_field *array = &info->fields[i];
    const struct pl_field *f = &array->item->fields[k];
    size_t len;
    size_t at = empty_payload(info, i, &len);
    pl_put_le(bytes + at, 2, 4);
    len += 2 * array->item->bytes;
    at += 4 + array->item->bytes;
    for (uint32_t j = 0; j < k; j++) {
        uint8_t kind = array->item->fields[j].kind;
        at += kind == PL_FIELD_U8 ? 1 : kind == PL_FIELD_U32 ? 4 : kind == PL_FIELD_U64 ? 8 : PL_NAME_MAX;
    }
    assert_accepted(type, bytes, len);
    if (f->kind == PL_FIELD_NAME)
        return;
    unsigned width = f->kind == PL_FIELD_U8 ? 1 : f->kind == PL_FIELD_U32 ? 4 : 8;
    pl_put_le(bytes + at, f->limit, width);
    assert_accepted(type, bytes, len);
    pl_put_le(bytes + at, f->limit + 1, width);
    if (f->limit == UINT64_MAX)
        return;
    char text[PL_TEXT_MAX];
    snprintf(text, sizeof text, "%s.%s[1].%s is %llu, at most %llu is allowed", info->name, array->name,
             f->name, (unsigned long long)f->limit + 1, (unsigned long long)f->limit);
    assert_refused(type, bytes, len, text);
    ++*over;
}

static void item_fields_one_over_their_limit_are_refused(void **state)
{
    (void)state;
    unsigned over = 0;
    for (unsigned t = 0; t < TYPE_COUNT; t++) {
        const struct pl_msg_info *info = pl_msg_info(types[t]);
        for (uint32_t i = 0; i < info->field_count; i++)
            for (uint32_t k = 0; info->fields[i].item != NULL && k < info->fields[i].item->field_count; k++)
                check_item_field(types[t], info, i, k, &over);
    }
    assert_true(over >= 10);
}

static void names_are_text_and_then_zeros(void **state)
{
    (void)state;
    struct pl_item_tensor tensor = {"", 1, 1, 0};
    struct pl_msg m = {.type = PL_MSG_MANIFEST};
    uint8_t item[PL_ITEM_TENSOR_BYTES];
    memset(tensor.name, 'w', PL_NAME_MAX - 1);
    pl_item_tensor_put(item, 0, &tensor);
    m.u.manifest.tensors = (struct pl_array){item, 1};
    size_t len = pl_msg_encode(&m, bytes, sizeof bytes);
    uint8_t *name = bytes + len - PL_ITEM_TENSOR_BYTES;
    assert_accepted(m.type, bytes, len);
    name[PL_NAME_MAX - 1] = 'w';
    assert_refused(m.type, bytes, len,
                   "MANIFEST.tensors[0].name has no final zero byte, at most 63 bytes of text are allowed");
    name[PL_NAME_MAX - 1] = 0;
    name[7] = 0;
    assert_refused(m.type, bytes, len,
                   "MANIFEST.tensors[0].name has bytes after its first zero, only zeros are expected there");
    name[7] = '\n';
    assert_refused(m.type, bytes, len, "MANIFEST.tensors[0].name is not printable UTF-8");
    memset(name, 0, PL_NAME_MAX);
    assert_accepted(m.type, bytes, len);
    tensor.name[PL_NAME_MAX - 1] = 'w';
    pl_item_tensor_put(item, 0, &tensor);
    expect_assert(pl_msg_encode(&m, bytes, sizeof bytes));
}

static size_t refuse_with_text(const void *text, size_t text_len)
{
    pl_put_le(bytes, PL_REASON_FULL, 4);
    pl_put_le(bytes + 4, text_len, 4);
    memcpy(bytes + 8, text, text_len);
    return 8 + text_len;
}

static void texts_are_printable_utf8(void **state)
{
    (void)state;
    static const char *const good[] = {"",
                                       "plain ~",
                                       "\xc2\xa0",
                                       "\xdf\xbf",
                                       "\xe0\xa0\x80",
                                       "\xed\x9f\xbf",
                                       "\xee\x80\x80",
                                       "\xf0\x90\x80\x80",
                                       "\xf4\x8f\xbf\xbf"};
    static const char *const bad[] = {"\x1f",
                                      "\x7f",
                                      "\x80",
                                      "\xbf",
                                      "\xc0\x80",
                                      "\xc1\xbf",
                                      "\xc2\x80",
                                      "\xc2\x9f",
                                      "\xc3",
                                      "\xc3(",
                                      "\xe0\x9f\xbf",
                                      "\xe1\x80",
                                      "\xe1\x80(",
                                      "\xe1(\x80",
                                      "\xed\xa0\x80",
                                      "\xf0\x8f\xbf\xbf",
                                      "\xf1\x80\x80",
                                      "\xf4\x90\x80\x80",
                                      "\xf5\x80\x80\x80",
                                      "\xff"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_accepted(PL_MSG_REFUSE, bytes, refuse_with_text(good[i], strlen(good[i])));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[8] = "abc", expected[PL_TEXT_MAX];
        memcpy(text + 3, bad[i], strlen(bad[i]));
        snprintf(expected, sizeof expected,
                 "REFUSE.text has byte 0x%x at position 3, printable UTF-8 is expected",
                 (unsigned)(uint8_t)bad[i][0]);
        assert_refused(PL_MSG_REFUSE, bytes, refuse_with_text(text, 3 + strlen(bad[i])), expected);
    }
    assert_refused(PL_MSG_REFUSE, bytes, refuse_with_text("a\0b", 3),
                   "REFUSE.text has byte 0x0 at position 1, printable UTF-8 is expected");
}

/* The bytes themselves, so that a change of the format cannot go unnoticed. */
static void the_bytes_of_a_message_are_these(void **state)
{
    (void)state;
    static const uint8_t pull[] = {3, 0, 0, 0, 24, 0, 0, 0, 0, 1, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0};
    struct pl_msg m = {.type = PL_MSG_PULL,
                       .u.pull = {.fragment = 3, .round = PL_ROUND(1, 24), .base_version = 7}};
    assert_int_equal(pl_msg_encode(&m, bytes, sizeof bytes), sizeof pull);
    assert_memory_equal(bytes, pull, sizeof pull);

    static const uint8_t join[] = {1,    0,    0,    0,    5,    0,    0,    0,    0, 0, 0, 0,
                                   0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0, 0, 0, 0};
    struct pl_item_have have = {5, UINT64_C(0x1122334455667788)};
    uint8_t items[PL_ITEM_HAVE_BYTES];
    pl_item_have_put(items, 0, &have);
    m = (struct pl_msg){.type = PL_MSG_JOIN, .u.join.have = {items, 1}};
    assert_int_equal(pl_msg_encode(&m, bytes, sizeof bytes), sizeof join);
    assert_memory_equal(bytes, join, sizeof join);

    static const uint8_t close_bytes[] = {7, 0, 0, 0, 2, 0, 0, 0, 'h', 'i'};
    m = (struct pl_msg){.type = PL_MSG_CLOSE, .u.close = {PL_REASON_FENCED, {(const uint8_t *)"hi", 2}}};
    assert_int_equal(pl_msg_encode(&m, bytes, sizeof bytes), sizeof close_bytes);
    assert_memory_equal(bytes, close_bytes, sizeof close_bytes);
}

static void the_largest_and_the_smallest_messages_are_accepted(void **state)
{
    (void)state;
    static uint8_t fragments[PL_FRAGMENTS_MAX * PL_ITEM_FRAGMENT_BYTES],
        tensors[PL_TENSORS_MAX * PL_ITEM_TENSOR_BYTES];
    static uint8_t out[PL_MSG_MANIFEST_BYTES_MAX + 1];
    struct pl_msg m = {.type = PL_MSG_MANIFEST};
    m.u.manifest.fragments = (struct pl_array){fragments, PL_FRAGMENTS_MAX};
    m.u.manifest.tensors = (struct pl_array){tensors, PL_TENSORS_MAX};
    assert_int_equal(pl_msg_encode(&m, out, sizeof out), PL_MSG_MANIFEST_BYTES_MAX);
    assert_int_equal(pl_msg_info(PL_MSG_DATA)->payload_max, PL_CHUNK_BYTES_MAX + 20);
    assert_int_equal(pl_msg_info(PL_MSG_WANT)->payload_max, 0);
    m = (struct pl_msg){.type = PL_MSG_WANT};
    assert_int_equal(pl_msg_encode(&m, NULL, 0), 0);
    assert_int_equal(pl_msg_info(PL_MSG_CLOSE)->payload_max, 4 + 4 + PL_TEXT_MAX);
}

static void our_own_mistakes_are_asserted(void **state)
{
    (void)state;
    struct pl_msg m = {.type = PL_MSG_PULL, .u.pull = {.fragment = PL_FRAGMENTS_MAX}};
    expect_assert(pl_msg_encode(&m, bytes, sizeof bytes));
    m.u.pull.fragment = 0;
    assert_int_equal(pl_msg_encode(&m, bytes, 20), 20);
    expect_assert(pl_msg_encode(&m, bytes, 19));
    m.type = 0;
    expect_assert(pl_msg_encode(&m, bytes, sizeof bytes));
    expect_assert(pl_msg_payload_bytes(&m));
    char line[8];
    expect_assert(pl_msg_print(&m, line, sizeof line));
    struct pl_array array = {bytes, 1};
    pl_item_partial_at(&array, 0);
    expect_assert(pl_item_partial_at(&array, 1).mask);
}

static void unknown_numbers_have_no_info(void **state)
{
    (void)state;
    bool known[256] = {false};
    for (unsigned t = 0; t < TYPE_COUNT; t++) {
        assert_false(known[types[t]]);
        known[types[t]] = true;
    }
    for (unsigned type = 0; type < 256; type++) {
        assert_true((pl_msg_info((uint8_t)type) != NULL) == known[type]);
        if (!known[type]) {
            char text[PL_TEXT_MAX];
            snprintf(text, sizeof text, "message type %u is not known", type);
            assert_refused((uint8_t)type, bytes, 0, text);
            assert_false(pl_msg_allowed((uint8_t)type, PL_CHANNEL_CONTROL, PL_SENDER_LEARNER));
        }
    }
    assert_string_equal(pl_msg_info(PL_MSG_HAVE)->name, "HAVE");
}

static void each_message_has_its_channel_and_sender(void **state)
{
    (void)state;
#define MSG_BEGIN(NAME, name, number, chan, from, doc)                                                       \
    for (int c = PL_CHANNEL_CONTROL; c <= PL_CHANNEL_DOOR; c *= 2)                                           \
        for (int s = PL_SENDER_LEARNER; s <= PL_SENDER_SYNCER; s++) {                                        \
            bool channel_ok = ((int)PL_CHANNEL_##chan & c) != 0;                                             \
            bool sender_ok = PL_SENDER_##from == PL_SENDER_EITHER || s == (int)PL_SENDER_##from;             \
            assert_true(pl_msg_allowed(number, (enum pl_channel)c, (enum pl_sender)s) ==                     \
                        (channel_ok && sender_ok));                                                          \
        }
#include "wire/messages.def"
    assert_true(pl_msg_allowed(PL_MSG_PING, PL_CHANNEL_BULK, PL_SENDER_SYNCER));
    assert_false(pl_msg_allowed(PL_MSG_DATA, PL_CHANNEL_CONTROL, PL_SENDER_LEARNER));
    assert_false(pl_msg_allowed(PL_MSG_PULL, PL_CHANNEL_CONTROL, PL_SENDER_LEARNER));
}

static void reasons_have_names_and_texts(void **state)
{
    (void)state;
    assert_string_equal(pl_reason_name(PL_REASON_FENCED), "FENCED");
    assert_string_equal(pl_reason_text(PL_REASON_FENCED), "a newer process of this learner has taken over");
    unsigned known = 0, listed = 0;
#define X(name, value, text)                                                                                 \
    assert_string_equal(pl_reason_name(value), #name);                                                       \
    assert_string_equal(pl_reason_text(value), text);                                                        \
    assert_in_range(value, 1, 255);                                                                          \
    listed++;
#include "wire/reasons.def"
#undef X
    for (uint32_t code = 0; code < 1000; code++)
        known += strcmp(pl_reason_name(code), "UNKNOWN") != 0;
    assert_int_equal(known, listed);
    assert_string_equal(pl_reason_text(0), "a reason this build does not know");
}

static void rounds_are_epoch_and_tick(void **state)
{
    (void)state;
    uint64_t last_tick = (UINT64_C(1) << 40) - 1;
    uint64_t round = PL_ROUND(5, last_tick);
    assert_true(pl_round_epoch(round) == 5 && pl_round_tick(round) == last_tick);
    assert_true(PL_ROUND(6, 0) == round + 1);
}

static void assert_prints(const struct pl_msg *m, const char *text)
{
    char line[400];
    assert_int_equal(pl_msg_print(m, line, sizeof line), strlen(text));
    assert_string_equal(line, text);
}

static void messages_print_as_one_line(void **state)
{
    (void)state;
    struct pl_msg m = {.type = PL_MSG_PULL,
                       .u.pull = {.fragment = 3, .round = PL_ROUND(1, 24), .base_version = 7}};
    assert_prints(&m, "PULL fragment=3 round=1.24 base_version=7");
    m = (struct pl_msg){.type = PL_MSG_UPDATE, .u.update = {2, PL_NONE64, 9, 0xabc, PL_ROUND(1, 8), 4096, 1}};
    assert_prints(
        &m, "UPDATE fragment=2 from_version=none to_version=9 digest=abc last_merged=1.8 bytes=4096 flags=1");
    m = (struct pl_msg){.type = PL_MSG_JOIN, .u.join.have = {bytes, 12}};
    assert_prints(&m, "JOIN have[12] units[0]");
    m = (struct pl_msg){.type = PL_MSG_DATA,
                        .u.data = {.fragment = 1, .id = 2, .index = 3, .bytes = {bytes, 77}}};
    assert_prints(&m, "DATA fragment=1 id=2 index=3 bytes[77]");
    m = (struct pl_msg){.type = PL_MSG_CLOSE, .u.close = {2, {(const uint8_t *)"bye", 3}}};
    assert_prints(&m, "CLOSE code=DONE text=\"bye\"");
    m.u.close.text = (struct pl_blob){NULL, 0};
    assert_prints(&m, "CLOSE code=DONE text=\"\"");
    m.u.close.code = 200;
    assert_prints(&m, "CLOSE code=200 text=\"\"");
    m = (struct pl_msg){.type = PL_MSG_ATTACH, .u.attach = {.incarnation = UINT64_C(3) << 32 | 7}};
    assert_prints(&m, "ATTACH incarnation=3.7 partial[0]");
    m = (struct pl_msg){.type = PL_MSG_WANT};
    assert_prints(&m, "WANT");
    m = (struct pl_msg){.type = PL_MSG_HELLO, .u.hello = {.manifest_digest = 255, .flags = 1}};
    assert_prints(&m, "HELLO run_id=0 incarnation=none nonce=0 manifest_digest=ff flags=1 steps=0 tokens=0");
    char line[10];
    assert_int_equal(pl_msg_print(&m, line, sizeof line), 9);
    assert_string_equal(line, "HELLO run");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_message_comes_back_as_it_was),
        cmocka_unit_test(a_message_cut_anywhere_is_refused),
        cmocka_unit_test(numbers_one_over_their_limit_are_refused),
        cmocka_unit_test(counts_and_lengths_one_over_their_limit_are_refused),
        cmocka_unit_test(item_fields_one_over_their_limit_are_refused),
        cmocka_unit_test(names_are_text_and_then_zeros),
        cmocka_unit_test(texts_are_printable_utf8),
        cmocka_unit_test(the_bytes_of_a_message_are_these),
        cmocka_unit_test(the_largest_and_the_smallest_messages_are_accepted),
        cmocka_unit_test(our_own_mistakes_are_asserted),
        cmocka_unit_test(unknown_numbers_have_no_info),
        cmocka_unit_test(each_message_has_its_channel_and_sender),
        cmocka_unit_test(reasons_have_names_and_texts),
        cmocka_unit_test(rounds_are_epoch_and_tick),
        cmocka_unit_test(messages_print_as_one_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
