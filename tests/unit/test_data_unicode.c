/* UTF-8, classes of characters and NFC: all code points where that is possible, the known hard cases otherwise. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/prng.h"
#include "data/unicode.h"
#include "seed.h"

#include <string.h>

static bool is_surrogate(uint32_t c)
{
    return c >= 0xd800 && c <= 0xdfff;
}

static void every_character_is_read_as_written(void **state)
{
    (void)state;
    for (uint32_t c = 0; c <= 0x10ffff; c++) {
        uint8_t bytes[4];
        uint32_t back;
        size_t len = pl_utf8_write(bytes, c);
        size_t read = pl_utf8_read(bytes, bytes + len, &back);
        if (is_surrogate(c) ? back != PL_CHAR_BAD || read != 1 : back != c || read != len)
            fail_msg("U+%x is read as U+%x of %zu bytes", c, back, read);
        if (len > 1 && (pl_utf8_read(bytes, bytes + len - 1, &back) != 1 || back != PL_CHAR_BAD))
            fail_msg("U+%x without its last byte is read as U+%x", c, back);
        if (!is_surrogate(c) && len > 1 && pl_utf8_unfinished(bytes, len - 1) != len - 1)
            fail_msg("U+%x without its last byte seems finished", c);
        assert_int_equal(pl_utf8_unfinished(bytes, len), 0);
    }
}

static void bad_bytes_stand_alone(void **state)
{
    (void)state;
    static const char *const bad[] = {"\x80",
                                      "\xbf",
                                      "\xc0\x80",
                                      "\xc1\xbf",
                                      "\xe0\x80\x80",
                                      "\xe0\x9f\xbf",
                                      "\xed\xa0\x80",
                                      "\xf0\x80\x80\x80",
                                      "\xf0\x8f\xbf\xbf",
                                      "\xf4\x90\x80\x80",
                                      "\xf5\x80\x80\x80",
                                      "\xff",
                                      "\xc3(",
                                      "\xe2\x82(",
                                      "\xf0\x9f\x98("};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        uint32_t c;
        const uint8_t *text = (const uint8_t *)bad[i];
        assert_int_equal(pl_utf8_read(text, text + strlen(bad[i]), &c), 1);
        assert_true(c == PL_CHAR_BAD);
    }
    assert_int_equal(pl_utf8_unfinished((const uint8_t *)"a\x80\x80\x80", 4), 0);
    assert_int_equal(pl_utf8_unfinished((const uint8_t *)"a\xf0\x9f\x98", 4), 3);
    assert_int_equal(pl_utf8_unfinished((const uint8_t *)"a\xff", 2), 0);
    assert_int_equal(pl_utf8_unfinished((const uint8_t *)"", 0), 0);
}

static void classes_are_those_of_unicode(void **state)
{
    (void)state;
    static const struct {
        uint32_t c;
        enum pl_char_class class;
    } cases[] = {{'a', PL_CHAR_LETTER},    {'Z', PL_CHAR_LETTER},     {'0', PL_CHAR_NUMBER},
                 {' ', PL_CHAR_SPACE},     {'\v', PL_CHAR_SPACE},     {0x1c, PL_CHAR_OTHER},
                 {0x85, PL_CHAR_SPACE},    {0xa0, PL_CHAR_SPACE},     {0xaa, PL_CHAR_LETTER},
                 {0xb2, PL_CHAR_NUMBER},   {0xd7, PL_CHAR_OTHER},     {0xe9, PL_CHAR_LETTER},
                 {0x301, PL_CHAR_OTHER},   {0x663, PL_CHAR_NUMBER},   {0x180e, PL_CHAR_OTHER},
                 {0x200b, PL_CHAR_OTHER},  {0x2028, PL_CHAR_SPACE},   {0x2167, PL_CHAR_NUMBER},
                 {0x3000, PL_CHAR_SPACE},  {0x4e2d, PL_CHAR_LETTER},  {0xac00, PL_CHAR_LETTER},
                 {0xfeff, PL_CHAR_OTHER},  {0x10d42, PL_CHAR_NUMBER}, {0x16100, PL_CHAR_LETTER},
                 {0x1f642, PL_CHAR_OTHER}, {0x323af, PL_CHAR_LETTER}, {0x323b0, PL_CHAR_OTHER},
                 {0x10ffff, PL_CHAR_OTHER}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (pl_char_class(cases[i].c) != cases[i].class)
            fail_msg("U+%x is of class %d", cases[i].c, (int)pl_char_class(cases[i].c));
    uint32_t counts[4] = {0};
    for (uint32_t c = 0; c <= 0x10ffff; c++)
        counts[pl_char_class(c)]++;
    assert_int_equal(counts[PL_CHAR_SPACE], 25);
    assert_int_equal(counts[PL_CHAR_LETTER], 141028); /* Unicode 16 */
    assert_int_equal(counts[PL_CHAR_NUMBER], 1911);
}

/* ---- NFC ---- */

static struct pl_alloc alloc;

static void expect_nfc(const char *text, size_t len, const char *expected, size_t expected_len)
{
    struct pl_buf out;
    alloc = pl_alloc_system();
    pl_buf_init(&out, &alloc, 1 << 20);
    assert_int_equal(pl_nfc_append(&out, (const uint8_t *)text, len), PELAGO_OK);
    if (out.len != expected_len || (expected_len > 0 && memcmp(out.data, expected, out.len) != 0))
        fail_msg("NFC of '%s' is '%.*s', expected '%s'", text, (int)out.len, (const char *)out.data,
                 expected);
    pl_buf_release(&out);
}
#define NFC(text, expected) expect_nfc(text, sizeof(text) - 1, expected, sizeof(expected) - 1)

static void hard_cases_are_composed(void **state)
{
    (void)state;
    NFC("", "");
    NFC("plain text", "plain text");
    NFC("e\u0301", "é");
    NFC("ae\u0301\u0301b", "aé\u0301b");
    NFC("A\u030a", "Å");
    NFC("\u212b", "Å");
    NFC("\u2126", "Ω");
    NFC("\u0344", "\u0308\u0301");
    NFC("q\u0307\u0323", "q\u0323\u0307");
    NFC("d\u0307\u0323", "\u1e0d\u0307");
    NFC("\u1e0b\u0323", "\u1e0d\u0307");
    NFC("\u0301a", "\u0301a");
    NFC("a\u0327\u0301", "\u00e1\u0327");
    NFC("\u0958", "\u0915\u093c"); /* excluded from composition */
    NFC("\ufb2c", "\u05e9\u05bc\u05c1");
    NFC("\u09c7\u09be", "\u09cb");
    NFC("\u1100\u1161\u11a8", "각");
    NFC("\uac00\u11a8", "각");
    NFC("\u1100\u1161\u1161", "\uac00\u1161");
    NFC("\uac01\u11a8", "\uac01\u11a8");
    NFC("\u1100\u0301\u1161", "\u1100\u0301\u1161"); /* a mark stands between */
    NFC("“e\u0301”", "“é”");
    NFC("\xff"
        "e\u0301\x80\u0301x",
        "\xff"
        "é\x80\u0301x");
    NFC("\U00011099\U000110ba", "\U0001109a");
}

static void plain_is_plain(void **state)
{
    (void)state;
    static const char text[] = "naïve “quotes” — 日本語 🙂";
    assert_int_equal(pl_nfc_plain((const uint8_t *)text, sizeof text - 1), sizeof text - 1);
    assert_int_equal(pl_nfc_plain((const uint8_t *)"abe\u0301", 5), 2);
    assert_int_equal(pl_nfc_plain((const uint8_t *)"\u0301", 2), 0);
    assert_int_equal(pl_nfc_plain((const uint8_t *)"x日\u0301", 6), 1);
}

/* Normalizing twice changes nothing more, and a cut before a space changes nothing at all. */
static void random_text_is_stable(void **state)
{
    (void)state;
    static const uint32_t pool[] = {'a',    'e',    ' ',    0x301,  0x323,   0x307,   0x327, 0x30a, 0x344,
                                    0xc5,   0x1100, 0x1161, 0x11a8, 0xac00,  0x958,   0x93c, 0x915, 0x2126,
                                    0x1e0b, 0x5e9,  0x5bc,  0x5c1,  0x1d165, 0x1d15f, 0x4e2d};
    struct pl_prng r;
    pl_prng_seed(&r, test_seed(), 0);
    alloc = pl_alloc_system();
    for (int round = 0; round < 2000; round++) {
        struct pl_buf text, once, twice, parts;
        uint8_t bytes[4];
        pl_buf_init(&text, &alloc, 4096);
        pl_buf_init(&once, &alloc, 4096);
        pl_buf_init(&twice, &alloc, 4096);
        pl_buf_init(&parts, &alloc, 4096);
        for (uint64_t n = pl_prng_range(&r, 1, 60); n > 0; n--) {
            uint32_t c = pool[pl_prng_below(&r, sizeof pool / sizeof pool[0])];
            assert_int_equal(pl_buf_append(&text, bytes, pl_utf8_write(bytes, c)), PELAGO_OK);
        }
        assert_int_equal(pl_nfc_append(&once, text.data, text.len), PELAGO_OK);
        assert_int_equal(pl_nfc_append(&twice, once.data, once.len), PELAGO_OK);
        for (size_t at = 0, stop; at < text.len; at = stop) {
            for (stop = at + 1; stop < text.len && text.data[stop] != ' '; stop++)
                ;
            assert_int_equal(pl_nfc_append(&parts, text.data + at, stop - at), PELAGO_OK);
        }
        assert_int_equal(once.len, twice.len);
        assert_memory_equal(once.data, twice.data, once.len);
        assert_int_equal(once.len, parts.len);
        assert_memory_equal(once.data, parts.data, once.len);
        pl_buf_release(&text);
        pl_buf_release(&once);
        pl_buf_release(&twice);
        pl_buf_release(&parts);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_character_is_read_as_written),
        cmocka_unit_test(bad_bytes_stand_alone),
        cmocka_unit_test(classes_are_those_of_unicode),
        cmocka_unit_test(hard_cases_are_composed),
        cmocka_unit_test(plain_is_plain),
        cmocka_unit_test(random_text_is_stable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
