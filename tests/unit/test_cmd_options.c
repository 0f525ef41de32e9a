/* The option table: what is read, what is refused, what is left as words. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/limits.h"
#include "cmd/cmd.h"
#include "cmd/options.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static bool flag;
static const char *text;
static uint32_t u32;
static uint64_t u64, count, time_ns;
static double number;

static const struct pl_option table[] = {
    {"flag", NULL, "a flag", PL_OPTION_FLAG, &flag, 0, 0},
    {"text", "WORD", "a word", PL_OPTION_TEXT, &text, 0, 0},
    {"u32", "N", "a small number", PL_OPTION_U32, &u32, 1, 256},
    {"u64", "N", "a number", PL_OPTION_U64, &u64, 5, 0},
    {"count", "N", "a count", PL_OPTION_COUNT, &count, 0, 0},
    {"number", "X", "any number", PL_OPTION_FLOAT, &number, 0, 0},
    {"time", "T", "a time", PL_OPTION_TIME, &time_ns, PL_MS, PL_SEC},
};
static const struct pl_options options = {"test", "[OPTION...] WORD...", "Tests options.", table, 7};

static struct pl_words words;
static char *argv_of_call[16];

enum { HELPED = -1 }; /* do not go on, and that is fine */

/* Up to 14 words, NULL at the end. */
static int parse(const char *const *given)
{
    int argc = 1, code = -1;
    static char name[] = "test";
    argv_of_call[0] = name;
    flag = false;
    text = NULL;
    u32 = 0;
    u64 = count = time_ns = 0;
    number = 0;
    for (; given[argc - 1] != NULL; argc++)
        argv_of_call[argc] = (char *)(uintptr_t)given[argc - 1];
    bool go = pl_options_parse(&options, argc, argv_of_call, &words, &code);
    return go ? PL_EXIT_OK : code == PL_EXIT_OK ? HELPED : code;
}
#define PARSE(...) parse((const char *const[]){__VA_ARGS__, NULL})

static void every_kind_is_read(void **state)
{
    (void)state;
    assert_int_equal(PARSE("a", "--flag", "--text", "word", "b", "--u32=256", "--u64", "18446744073709551615",
                           "-", "--number", "-3.5e-4", "--time", "250ms"),
                     PL_EXIT_OK);
    assert_true(flag);
    assert_string_equal(text, "word");
    assert_int_equal(u32, 256);
    assert_true(u64 == UINT64_MAX);
    assert_true(number < -3.49e-4 && number > -3.51e-4);
    assert_true(time_ns == 250 * PL_MS);
    assert_int_equal(words.count, 3);
    assert_string_equal(words.at[0], "a");
    assert_string_equal(words.at[1], "b");
    assert_string_equal(words.at[2], "-");
}

static void counts_have_units(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t value;
    } right[] = {{"0", 0},           {"4096", 4096},    {"5k", 5000},
                 {"5K", 5000},       {"10M", 10000000}, {"1.5M", 1500000},
                 {"2G", 2000000000}, {"0.25k", 250},    {"18446744073709551615", UINT64_MAX}};
    static const char *const wrong[] = {"",    "k",     "5m", "1.5", "1.k", ".5k",          "1.2345k",
                                        "5kk", "1..5k", "-1", "1e6", "5 k", "99999999999G", "0x10"};
    for (size_t i = 0; i < sizeof right / sizeof right[0]; i++) {
        assert_int_equal(PARSE("--count", right[i].text), PL_EXIT_OK);
        assert_true(count == right[i].value);
    }
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_int_equal(PARSE("--count", wrong[i]), PL_EXIT_USAGE);
}

static void wrong_values_are_refused(void **state)
{
    (void)state;
    static const char *const wrong[][2] = {
        {"--u32", "0"},     {"--u32", "257"},      {"--u32", "x"},      {"--u32", "4294967297"},
        {"--u64", "4"},     {"--number", "nan"},   {"--number", "inf"}, {"--number", "1e999"},
        {"--number", "1 "}, {"--number", "0x1p3"}, {"--number", "-"},   {"--time", "2s"},
        {"--time", "1us"},  {"--time", "250"},     {"--text", ""},      {"--flag=1", "a"},
        {"--unknown", "a"}, {"-u32", "1"},         {"--u", "1"},        {"---u32", "1"}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        if (PARSE(wrong[i][0], wrong[i][1]) != PL_EXIT_USAGE)
            fail_msg("%s %s was taken", wrong[i][0], wrong[i][1]);
    assert_int_equal(PARSE("--u32"), PL_EXIT_USAGE);
}

static void dashes_end_the_options(void **state)
{
    (void)state;
    assert_int_equal(PARSE("--flag", "--", "--flag", "--help", "--"), PL_EXIT_OK);
    assert_int_equal(words.count, 3);
    assert_string_equal(words.at[0], "--flag");
    assert_string_equal(words.at[2], "--");
}

static void help_stops_everything(void **state)
{
    (void)state;
    int out = dup(STDOUT_FILENO), nowhere = open("/dev/null", O_WRONLY); /* the page is no TAP */
    (void)fflush(stdout);
    assert_true(dup2(nowhere, STDOUT_FILENO) >= 0);
    int first = PARSE("--wrong", "--help"), second = PARSE("-h");
    (void)fflush(stdout);
    assert_true(dup2(out, STDOUT_FILENO) >= 0);
    (void)close(out);
    (void)close(nowhere);
    assert_int_equal(first, HELPED);
    assert_int_equal(second, HELPED);
}

/* What a help page says, by way of a file in place of stdout. */
static void read_help(const struct pl_options *o, char *out, size_t cap)
{
    FILE *page = tmpfile();
    int before = dup(STDOUT_FILENO);
    assert_non_null(page);
    (void)fflush(stdout);
    assert_true(dup2(fileno(page), STDOUT_FILENO) >= 0);
    pl_options_help(o);
    (void)fflush(stdout);
    assert_true(dup2(before, STDOUT_FILENO) >= 0);
    (void)close(before);
    rewind(page);
    out[fread(out, 1, cap - 1, page)] = '\0';
    (void)fclose(page);
}

static void help_goes_on_in_the_next_line(void **state)
{
    static const char long_help[] =
        "a sentence that goes on and on, so that in one line it would not fit into 80 columns "
        "with what stands before it; and then some more of it";
    static const char about[] =
        "Sentences of which the first line ends, as it happens, where it is a little too wide.\n"
        "They go on:\n\n    a line to copy\n\nAnd end.";
    static const char to_copy[] =
        "As here:\n\n"
        "    pelago test --with-an-option of-some-width --and-another of-the-same-width --out DIR\n"
        "    a-word-that-is-wider-than-any-line-of-this-page-can-be-and-has-no-place-at-which-to-end\n"
        "And end.";
    static const struct pl_option long_table[] = {
        {"text", "WORD", long_help, PL_OPTION_TEXT, &text, 0, 0},
        {"a-name-that-is-wide", "FOLDER", "of something", PL_OPTION_TEXT, &text, 0, 0},
    };
    const struct pl_options o = {"test", "WORD", about, long_table, 2};
    const struct pl_options copied = {"test", "WORD", to_copy, long_table, 2};
    char page[2048];
    (void)state;
    read_help(&o, page, sizeof page);
    for (const char *line = page; *line != '\0'; line += strcspn(line, "\n") + 1)
        assert_in_range(strcspn(line, "\n"), 0, 80);
    assert_non_null(
        strstr(page, "\n\nSentences of which the first line ends, as it happens, where it is a little too\n"
                     "wide. They go on:\n\n    a line to copy\n\nAnd end.\n\n  --text"));
    assert_non_null(strstr(page,
                           "  --text WORD            a sentence that goes on and on, so that in one line it\n"
                           "                         would not fit into 80 columns with what stands before\n"
                           "                         it; and then some more of it\n"));
    assert_non_null(strstr(page, "  --a-name-that-is-wide FOLDER\n                         of something\n"));
    read_help(&copied, page, sizeof page);
    assert_non_null(
        strstr(page, "\n    pelago test --with-an-option of-some-width --and-another of-the-same-width \\\n"
                     "        --out DIR\n    a-word-that-is-"));
    assert_non_null(strstr(page, "-to-end\nAnd end.\n"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_is_read),       cmocka_unit_test(counts_have_units),
        cmocka_unit_test(wrong_values_are_refused), cmocka_unit_test(dashes_end_the_options),
        cmocka_unit_test(help_stops_everything),    cmocka_unit_test(help_goes_on_in_the_next_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
