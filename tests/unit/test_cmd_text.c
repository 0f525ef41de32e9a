/* Words of a person: what is read, what is refused, what is shown of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/limits.h"
#include "cmd/text.h"

#include <stdlib.h>
#include <string.h>

static void test_numbers(void **state)
{
    (void)state;
    uint64_t v;
    assert_true(pl_text_number("18446744073709551615", &v));
    assert_true(v == UINT64_MAX);
    static const char *const wrong[] = {"", "-1", "+1", " 1", "1 ", "1x", "0x10", "18446744073709551616"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_false(pl_text_number(wrong[i], &v));
}

static void test_times(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t ns;
    } right[] = {{"0s", 0}, {"250ms", 250 * PL_MS}, {"90us", 90 * PL_US}, {"5ns", 5}, {"2s", 2 * PL_SEC}};
    static const char *const wrong[] = {"", "s", "10", "2 s", "2y", "1.5s", "99999999999999s"};
    uint64_t ns;
    for (size_t i = 0; i < sizeof right / sizeof right[0]; i++) {
        assert_true(pl_text_time(right[i].text, &ns));
        assert_true(ns == right[i].ns);
        assert_string_equal(pl_text_of_time(ns).at, right[i].text);
    }
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_false(pl_text_time(wrong[i], &ns));
    assert_true(pl_text_time("3m", &ns) && ns == 180 * PL_SEC && pl_text_time("3min", &ns) &&
                ns == 180 * PL_SEC);
    assert_string_equal(pl_text_of_time(90000 * PL_MS).at, "90s");
    assert_string_equal(pl_text_of_time(UINT64_MAX).at, "18446744073709551615ns");
}

static void test_ranges(void **state)
{
    (void)state;
    uint64_t a, b;
    assert_true(pl_text_range("7", &a, &b) && a == 7 && b == 7);
    assert_true(pl_text_range("1..1000", &a, &b) && a == 1 && b == 1000);
    static const char *const wrong[] = {"", "5..1", "1..", "..2", "1...2", "1-2", "a..b"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_false(pl_text_range(wrong[i], &a, &b));
}

static void test_echo(void **state)
{
    (void)state;
    char sixty[61], longer[100];
    memset(sixty, 'a', 60);
    sixty[60] = '\0';
    assert_string_equal(pl_text_clip(sixty).at, sixty);
    (void)snprintf(longer, sizeof longer, "%sbcd", sixty);
    assert_memory_equal(pl_text_clip(longer).at, sixty, 60);
    assert_string_equal(pl_text_clip(longer).at + 60, "...");
    assert_string_equal(pl_text_clip("a\x1b[31m\n\xc3\xa9~ ").at, "a?[31m???~ ");
}

static void assert_quotes(const char *word, const char *text)
{
    char out[64] = {0};
    FILE *f = fmemopen(out, sizeof out, "w");
    assert_non_null(f);
    pl_text_quote(f, word);
    fclose(f);
    assert_string_equal(out, text);
}

static void test_quotes(void **state)
{
    (void)state;
    assert_quotes("tests/proto/normal_round.txt", "tests/proto/normal_round.txt");
    assert_quotes("a b", "'a b'");
    assert_quotes("it's", "'it'\\''s'");
    assert_quotes("", "''");
    assert_quotes("$(x)", "'$(x)'");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers), cmocka_unit_test(test_times),  cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_echo),    cmocka_unit_test(test_quotes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
