/* Options from a file and from the command line: one table, one set of rules, and who wins. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "cmd/cmd.h"
#include "cmd/options.h"
#include "tempdir.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static bool flag;
static const char *text, *list, *config;
static uint32_t u32;
static uint64_t rate, span, steps;
static struct pl_conf conf;
static struct pl_words words;
static char said[512];

static const struct pl_option table[] = {
    {"flag", NULL, "", PL_OPTION_FLAG, &flag, 0, 0},
    {"text", "WORD", "", PL_OPTION_TEXT, &text, 0, 0},
    {"list", "X,Y", "", PL_OPTION_LIST, &list, 0, 0},
    {"u32", "N", "", PL_OPTION_U32, &u32, 1, 256},
    {"max-up", "RATE", "", PL_OPTION_RATE, &rate, 1000, 0},
    {"span", "TIME", "", PL_OPTION_TIME, &span, 0, 0},
    {"config", "FILE", "", PL_OPTION_TEXT, &config, 0, 0},
    {"steps", "N", "", PL_OPTION_U64, &steps, 1, PL_COUNT_MAX},
};
static const struct pl_options options = {"test", "", "", table, 8};

/* Up to 14 words after a file of this text, NULL at the end; what is said on stderr is in said. */
static int parse(const char *yaml, const char *const *given)
{
    static char *argv[20];
    static char name[] = "test", option[] = "--config";
    struct tempdir dir;
    int argc = 1, code = -1, keep = dup(STDERR_FILENO);
    tempdir_init(&dir);
    tempdir_put(&dir, "c.yaml", yaml, strlen(yaml));
    argv[0] = name;
    for (; given[argc - 1] != NULL; argc++)
        argv[argc] = (char *)(uintptr_t)given[argc - 1];
    argv[argc++] = option;
    argv[argc++] = (char *)(uintptr_t)tempdir_path(&dir, "c.yaml");
    flag = false;
    text = list = config = NULL;
    u32 = 0;
    rate = span = 0;
    int file = open(tempdir_path(&dir, "said"), O_RDWR | O_CREAT, 0600);
    assert_true(dup2(file, STDERR_FILENO) >= 0);
    bool good = pl_options_parse_with_file(&options, &conf, argc, argv, &words, &code);
    assert_true(dup2(keep, STDERR_FILENO) >= 0);
    ssize_t n = pread(file, said, sizeof said - 1, 0);
    said[n > 0 ? n : 0] = '\0';
    (void)close(file);
    (void)close(keep);
    tempdir_release(&dir);
    return good ? PL_EXIT_OK : code;
}
#define PARSE(yaml, ...) parse(yaml, (const char *const[]){__VA_ARGS__, NULL})

static void the_file_sets_options(void **state)
{
    (void)state;
    assert_int_equal(
        PARSE("flag: true\ntext: a b\nlist: [1, 2]\nu32: 7\nmax-up: 20Mbit\nspan: 24h\n", "word"),
        PL_EXIT_OK);
    assert_true(flag);
    assert_string_equal(text, "a b");
    assert_string_equal(list, "1,2");
    assert_int_equal(u32, 7);
    assert_true(rate == 2500000 && span == 24 * 3600 * PL_SEC);
    assert_int_equal(words.count, 1);
    assert_string_equal(words.at[0], "word");
    pl_conf_release(&conf);
}

static void the_command_line_goes_over_it(void **state)
{
    (void)state;
    assert_int_equal(PARSE("u32: 7\ntext: file\n", "--u32", "9", "--text=line"), PL_EXIT_OK);
    assert_int_equal(u32, 9);
    assert_string_equal(text, "line");
    pl_conf_release(&conf);
}

/* A value that looks like the option is one; "--" ends the options. */
static void config_is_found_where_it_is_an_option(void **state)
{
    (void)state;
    assert_int_equal(PARSE("u32: 7\n", "--text", "--config"), PL_EXIT_OK);
    assert_string_equal(text, "--config");
    assert_int_equal(u32, 7);
    pl_conf_release(&conf);
    assert_int_equal(PARSE("u32: 7\n", "--"), PL_EXIT_OK);
    assert_int_equal(u32, 0);
    assert_int_equal(words.count, 2);
    pl_conf_release(&conf);
}

static void mistakes_name_file_line_and_key(void **state)
{
    (void)state;
    static const struct {
        const char *yaml, *sentence;
    } wrong[] = {
        {"text: a\nu32: 257\n", "c.yaml, line 2: u32 is 257, expected 1 to 256.\n"},
        {"u32: 30s\n", "c.yaml, line 1: u32 is '30s', expected a whole number, from 1 to 256.\n"},
        {"steps: 0\n", "c.yaml, line 1: steps is 0, expected at least 1.\n"},
        {"steps: x\n", "c.yaml, line 1: steps is 'x', expected a whole number, at least 1.\n"},
        {"steps: 5000000000000000000\n",
         "c.yaml, line 1: steps is 5000000000000000000, expected 1 to 4611686018427387904.\n"},
        {"flag: yes\n", "c.yaml, line 1: flag is 'yes', expected true or false.\n"},
        {"flags: true\n", "c.yaml, line 1: there is no key 'flags'"},
        {"config: x\n", "c.yaml, line 1: there is no key 'config'"},
        {"text: [a, b]\n", "c.yaml, line 1: text is one value, not a list.\n"},
        {"max-up: 20\n", "c.yaml, line 1: max-up is '20', expected a rate such as"},
        {"max-up: 1kbit\n", "c.yaml, line 1: max-up is 1kbit, expected at least 1000 bytes a second.\n"},
        {"text: ''\n", "c.yaml, line 1: text needs a value.\n"},
        {"u32: 1\nu32: 2\n", "c.yaml, line 2: u32 was given before"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        if (PARSE(wrong[i].yaml, "word") != PL_EXIT_USAGE)
            fail_msg("taken: %s", wrong[i].yaml);
        if (strstr(said, wrong[i].sentence) == NULL)
            fail_msg("expected: %s\ngot: %s", wrong[i].sentence, said);
        pl_conf_release(&conf);
    }
}

static void rates_have_units(void **state)
{
    (void)state;
    static const struct {
        const char *given;
        uint64_t bytes;
    } right[] = {
        {"500kbit", 62500}, {"1Gbit", 125000000}, {"2MB", 2000000}, {"3kB", 3000}, {"1GB", 1000000000}};
    static const char *const wrong[] = {
        "", "20", "Mbit", "1.5Mbit", "20 Mbit", "20mbit", "99999999999999999GB"};
    struct pl_error err;
    for (size_t i = 0; i < sizeof right / sizeof right[0]; i++) {
        assert_int_equal(pl_option_set(&table[4], "--", right[i].given, &err), PELAGO_OK);
        assert_true(rate == right[i].bytes);
    }
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_int_equal(pl_option_set(&table[4], "--", wrong[i], &err), PELAGO_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_file_sets_options),
        cmocka_unit_test(the_command_line_goes_over_it),
        cmocka_unit_test(config_is_found_where_it_is_an_option),
        cmocka_unit_test(mistakes_name_file_line_and_key),
        cmocka_unit_test(rates_have_units),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
