/* Cutting text: GPT-2's pattern by hand does what pcre2 does with it, and a cut between letter and space changes nothing. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/prng.h"
#include "data/split.h"
#include "data/unicode.h"
#include "seed.h"

#include <string.h>

static struct pl_alloc alloc;
static struct pl_error err;

/* Pieces joined by bars. */
static enum pelago_status join(void *user, const uint8_t *piece, size_t len, struct pl_error *e)
{
    struct pl_buf *out = user;
    (void)e;
    if (out->len > 0)
        PL_TRY(pl_buf_append(out, "|", 1));
    return pl_buf_append(out, piece, len);
}

static struct pl_buf run(const struct pl_split *s, const void *text, size_t len)
{
    struct pl_buf out;
    struct pl_split_scratch *scratch = pl_split_scratch_new(&alloc, s);
    pl_buf_init(&out, &alloc, 1 << 20);
    assert_non_null(scratch);
    assert_int_equal(pl_split_run(s, scratch, text, len, join, &out, &err), PELAGO_OK);
    pl_split_scratch_free(scratch);
    return out;
}

static struct pl_split *make(enum pl_split_kind kind, const char *pattern)
{
    struct pl_split *s = pl_split_new(&alloc);
    assert_non_null(s);
    assert_int_equal(pl_split_add(s, kind, pattern, &err), PELAGO_OK);
    return s;
}

static void expect(const struct pl_split *s, const char *text, const char *expected)
{
    struct pl_buf out = run(s, text, strlen(text));
    if (out.len != strlen(expected) || (out.len > 0 && memcmp(out.data, expected, out.len) != 0))
        fail_msg("'%s' is cut into '%.*s', expected '%s'", text, (int)out.len, (const char *)out.data,
                 expected);
    pl_buf_release(&out);
}

static int set_up(void **state)
{
    (void)state;
    alloc = pl_alloc_system();
    return 0;
}

static void the_pattern_of_gpt2(void **state)
{
    (void)state;
    struct pl_split *s = make(PL_SPLIT_BY_GPT2, NULL);
    expect(s, "", "");
    expect(s, "Hello world", "Hello| world");
    expect(s, "I'll don't we've 'sup", "I|'ll| don|'t| we|'ve| '|sup");
    expect(s, "'S''s", "'|S|''|s");
    expect(s, "a  b", "a| | b");
    expect(s, "a \n b ", "a| \n| b| ");
    expect(s, "a\nb\n", "a|\n|b|\n");
    expect(s, "   ", "   ");
    expect(s, "x1y22 33!", "x|1|y|22| 33|!");
    expect(s, " ?!. -", " ?!.| -");
    expect(s, "a\u00a0\u00a0b", "a|\u00a0|\u00a0|b");
    expect(s, "naïve — “x”", "naïve| —| “|x|”");
    expect(s, "日本\xff語", "日本|\xff|語");
    expect(s, "'", "'");
    expect(s, "'r", "'|r");
    expect(s, "'re", "'re");
    assert_true(pl_split_is_gpt2(s) && pl_split_allows_cuts(s));
    pl_split_free(s);
}

static void other_patterns(void **state)
{
    (void)state;
    struct pl_split *s = make(PL_SPLIT_BY_REGEX, "\\d{1,3}");
    expect(s, "a12345b6", "a|123|45|b|6");
    expect(s, "none", "none");
    assert_false(pl_split_allows_cuts(s));
    pl_split_free(s);
    s = make(PL_SPLIT_BY_REGEX_ONLY, "[a-z]+");
    expect(s, "ab 12 cd", "ab|cd");
    pl_split_free(s);
    s = make(PL_SPLIT_BY_DIGIT, NULL);
    expect(s, "a12½b", "a|1|2|½|b");
    pl_split_free(s);
    s = make(PL_SPLIT_BY_DIGITS, NULL);
    expect(s, "a12½b7", "a|12½|b|7");
    assert_int_equal(pl_split_add(s, PL_SPLIT_BY_GPT2, NULL, &err), PELAGO_OK);
    expect(s, "a 12 b7", "a| |12| b|7");
    assert_true(pl_split_allows_cuts(s) && !pl_split_is_gpt2(s));
    pl_split_free(s);
    s = make(PL_SPLIT_PREFIX, NULL);
    expect(s, "ab", " ab");
    expect(s, " ab", " ab");
    assert_int_equal(pl_split_add(s, PL_SPLIT_PREFIX, NULL, &err), PELAGO_UNSUPPORTED);
    pl_split_free(s);
    s = make(PL_SPLIT_BY_REGEX, "\\s"); /* U+180E is no white space */
    expect(s, "a\u180e\u2003b", "a\u180e|\u2003|b");
    pl_split_free(s);
}

static void bad_patterns_are_refused(void **state)
{
    (void)state;
    struct pl_split *s = pl_split_new(&alloc);
    static const char *const patterns[] = {"(", "a*", "(?=x)", "\\w+", "\\bx", "\\h", "[", "x|", "*"};
    for (size_t i = 0; i < sizeof patterns / sizeof patterns[0]; i++) {
        err.text[0] = '\0';
        enum pelago_status status = pl_split_add(s, PL_SPLIT_BY_REGEX, patterns[i], &err);
        if ((status != PELAGO_INVALID && status != PELAGO_UNSUPPORTED) ||
            strstr(err.text, "pre_tokenizer") == NULL)
            fail_msg("'%s' gets %s: %s", patterns[i], pl_status_name(status), err.text);
    }
    for (int i = 0; i < PL_SPLIT_STEPS_MAX; i++)
        assert_int_equal(pl_split_add(s, PL_SPLIT_BY_DIGIT, NULL, &err), PELAGO_OK);
    assert_int_equal(pl_split_add(s, PL_SPLIT_BY_DIGIT, NULL, &err), PELAGO_LIMIT);
    pl_split_free(s);
}

/* ---- at random ---- */

static const char *const parts[] = {"'s", "'ll",  "'",    "a",      "Zw",     "word",   " ",        "  ",
                                    "\n", "\t",   "\r\n", "1",      "234",    ".",      "-",        "#!",
                                    "é",  "ß",    "٣",    "½",      "\u00a0", "\u2003", "\xc2\x85", "—",
                                    "“",  "日本", "🙂", "\u0301", "_",      "x"};

static size_t random_text(struct pl_prng *r, uint8_t *text, size_t cap)
{
    size_t len = 0;
    for (uint64_t n = pl_prng_range(r, 1, 60); n > 0; n--) {
        const char *part = parts[pl_prng_below(r, sizeof parts / sizeof parts[0])];
        if (len + strlen(part) > cap)
            break;
        memcpy(text + len, part, strlen(part));
        len += strlen(part);
    }
    return len;
}

static void by_hand_is_as_by_pcre2(void **state)
{
    (void)state;
    struct pl_prng r;
    struct pl_split *hand = make(PL_SPLIT_BY_GPT2, NULL);
    struct pl_split *regex = make(PL_SPLIT_BY_REGEX, "(?:" PL_SPLIT_GPT2 ")");
    struct pl_split *same = make(PL_SPLIT_BY_REGEX, PL_SPLIT_GPT2);
    assert_true(pl_split_is_gpt2(same) && !pl_split_is_gpt2(regex));
    assert_true(pl_split_digest(same) == pl_split_digest(hand) &&
                pl_split_digest(regex) != pl_split_digest(hand));
    pl_prng_seed(&r, test_seed(), 0);
    for (int i = 0; i < 20000; i++) {
        uint8_t text[400];
        size_t len = random_text(&r, text, sizeof text);
        struct pl_buf a = run(hand, text, len), b = run(regex, text, len);
        if (a.len != b.len || memcmp(a.data, b.data, a.len) != 0)
            fail_msg("by hand '%.*s', by pcre2 '%.*s'", (int)a.len, (const char *)a.data, (int)b.len,
                     (const char *)b.data);
        pl_buf_release(&a);
        pl_buf_release(&b);
    }
    pl_split_free(hand);
    pl_split_free(regex);
    pl_split_free(same);
}

static bool is_cut(const uint8_t *text, size_t at)
{
    uint8_t c = text[at - 1] | 0x20;
    return text[at] == ' ' && c >= 'a' && c <= 'z';
}

static void cuts_change_nothing(void **state)
{
    (void)state;
    struct pl_prng r;
    unsigned cuts = 0;
    struct pl_split *s = make(PL_SPLIT_BY_DIGIT, NULL);
    assert_int_equal(pl_split_add(s, PL_SPLIT_BY_GPT2, NULL, &err), PELAGO_OK);
    pl_prng_seed(&r, test_seed(), 1);
    for (int i = 0; i < 5000; i++) {
        uint8_t text[400];
        size_t len = random_text(&r, text, sizeof text);
        struct pl_buf whole = run(s, text, len);
        for (size_t at = 1; at < len; at++) {
            if (!is_cut(text, at))
                continue;
            struct pl_buf a = run(s, text, at), b = run(s, text + at, len - at);
            assert_int_equal(a.len + 1 + b.len, whole.len);
            assert_memory_equal(a.data, whole.data, a.len);
            assert_memory_equal(b.data, whole.data + a.len + 1, b.len);
            pl_buf_release(&a);
            pl_buf_release(&b);
            cuts++;
        }
        pl_buf_release(&whole);
    }
    assert_true(cuts > 1000);
    pl_split_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_pattern_of_gpt2),      cmocka_unit_test(other_patterns),
        cmocka_unit_test(bad_patterns_are_refused), cmocka_unit_test(by_hand_is_as_by_pcre2),
        cmocka_unit_test(cuts_change_nothing),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
