/* Configuration files: what is read, and the sentence for everything that is refused. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "conf/conf.h"
#include "tempdir.h"

#include <stdio.h>
#include <string.h>

static struct pl_conf conf;
static struct pl_error err;

static enum pelago_status parse(const char *text)
{
    struct pl_alloc alloc = pl_alloc_system();
    err = (struct pl_error){PELAGO_OK, ""};
    return pl_conf_parse(&conf, &alloc, "run.yaml", (struct pl_bytes){text, strlen(text)}, &err);
}

static const char *value_of(const char *key)
{
    for (uint32_t i = 0; i < conf.count; i++)
        if (strcmp(conf.entries[i].key, key) == 0)
            return conf.entries[i].value;
    return NULL;
}

static void keys_and_values_are_read(void **state)
{
    (void)state;
    assert_int_equal(parse("# a run\n"
                           "model: 14m\n"
                           "tokens: 100M   # a comment\n"
                           "data: \"a: b # c\"\n"
                           "name: 'it''s'\n"
                           "quiet: no\n"
                           "empty: ''\n"
                           "pace: 30s\n"),
                     PELAGO_OK);
    assert_int_equal(conf.count, 7);
    assert_string_equal(value_of("model"), "14m");
    assert_string_equal(value_of("tokens"), "100M");
    assert_string_equal(value_of("data"), "a: b # c");
    assert_string_equal(value_of("name"), "it's");
    assert_string_equal(value_of("quiet"), "no");
    assert_string_equal(value_of("empty"), "");
    assert_string_equal(value_of("pace"), "30s");
    assert_int_equal(conf.entries[0].line, 2);
    assert_int_equal(conf.entries[6].line, 8);
    pl_conf_release(&conf);
}

static void lists_become_values_with_commas(void **state)
{
    (void)state;
    assert_int_equal(parse("speed: [1, 0.5, 1]\npace:\n  - 100ms\n  - 50ms\nlast: x\n"), PELAGO_OK);
    assert_string_equal(value_of("speed"), "1,0.5,1");
    assert_string_equal(value_of("pace"), "100ms,50ms");
    assert_string_equal(value_of("last"), "x");
    assert_true(conf.entries[0].is_list && conf.entries[1].is_list && !conf.entries[2].is_list);
    pl_conf_release(&conf);
}

/* Escapes that grow: every text still fits where it was reserved. */
static void escapes_fit(void **state)
{
    char text[4096] = "\"\\L\": \"", *at = text + strlen(text);
    (void)state;
    for (unsigned i = 0; i < 1000; i++) {
        memcpy(at, "\\P", 2);
        at += 2;
    }
    memcpy(at, "\"", 2);
    assert_int_equal(parse(text), PELAGO_OK);
    assert_int_equal(strlen(conf.entries[0].key), 3);
    assert_int_equal(strlen(conf.entries[0].value), 3000);
    pl_conf_release(&conf);
}

static void what_is_refused_says_where(void **state)
{
    (void)state;
    static const struct {
        const char *text, *sentence;
    } wrong[] = {
        {"", "run.yaml is empty"},
        {"# nothing\n", "run.yaml is empty"},
        {"---\n", "line 2: expected lines of the form"},
        {"just a word\n", "line 1: expected lines of the form"},
        {"- a\n- b\n", "line 1: expected lines of the form"},
        {"a: 1\na: 2\n", "line 2: a was given before"},
        {"a: 1\nb: *a\n", "line 2: b is an alias"},
        {"a: &x 1\nb: *x\n", "line 1: a has an anchor or a tag"},
        {"a: !!int 1\n", "line 1: a has an anchor or a tag"},
        {"a: [*x]\n", "run.yaml, line 1"},
        {"a:\n  b: 1\n", "line 1: a has keys of its own"},
        {"a: {b: 1}\n", "line 1: a has keys of its own"},
        {"a: [1, [2]]\n", "line 1: a is a list of something else"},
        {"a: [1, {b: 2}]\n", "line 1: a is a list of something else"},
        {"a: []\n", "line 1: a is an empty list"},
        {"a: ['1,2']\n", "line 1: a value of the list a has a comma"},
        {"a:\nb: 1\n", "line 1: a has no value"},
        {"a: ~\n", "line 1: a has no value"},
        {"a: null\n", "line 1: a has no value"},
        {"a: [1, ~]\n", "line 1: a has no value"},
        {"a: |\n  text\n", "line 1: a goes over several lines"},
        {"a: one\n  two\n", "line 1: a goes over several lines"},
        {"a: \"one\\ntwo\"\n", "line 1: a has a control character"},
        {"a: 1\n\tb: 2\n", "line 2: there is a tab"},
        {"a: 1\n---\nb: 2\n", "line 2: a second document begins"},
        {"a: 1\n...\nb: 2\n", "run.yaml, line 3"},
        {"? [a]\n: 1\n", "line 1: a key is a word"},
        {"a: b: c\n", "run.yaml, line 1"},
        {"a: \xff\n", "run.yaml is not text in UTF-8"},
        {"a: @x\n", "run.yaml, line 1"},
        {"a: [1, 2\nb: 3\n", "line 1: a goes over several lines"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        if (parse(wrong[i].text) != PELAGO_INVALID)
            fail_msg("taken: %s", wrong[i].text);
        if (strstr(err.text, wrong[i].sentence) == NULL)
            fail_msg("for: %s\nexpected: %s\ngot: %s", wrong[i].text, wrong[i].sentence, err.text);
        assert_int_equal(conf.count, 0);
    }
}

static void sizes_have_limits(void **state)
{
    static char text[PL_CONF_BYTES_MAX + 64];
    struct pl_alloc alloc = pl_alloc_system();
    (void)state;
    memset(text, '#', sizeof text);
    assert_int_equal(pl_conf_parse(&conf, &alloc, "x", (struct pl_bytes){text, PL_CONF_BYTES_MAX + 1}, &err),
                     PELAGO_LIMIT);
    size_t len = 0;
    for (unsigned i = 0; i <= PL_CONF_KEYS_MAX; i++)
        len += (size_t)snprintf(text + len, sizeof text - len, "key%u: 1\n", i);
    assert_int_equal(pl_conf_parse(&conf, &alloc, "x", (struct pl_bytes){text, len}, &err), PELAGO_INVALID);
    assert_non_null(strstr(err.text, "more than 128 keys"));
    len = (size_t)snprintf(text, sizeof text, "a: ");
    memset(text + len, 'x', PL_CONF_VALUE_MAX);
    assert_int_equal(
        pl_conf_parse(&conf, &alloc, "x", (struct pl_bytes){text, len + PL_CONF_VALUE_MAX}, &err),
        PELAGO_INVALID);
    assert_non_null(strstr(err.text, "longer than 4095 bytes"));
    assert_int_equal(
        pl_conf_parse(&conf, &alloc, "x", (struct pl_bytes){text, len + PL_CONF_VALUE_MAX - 1}, &err),
        PELAGO_OK);
    pl_conf_release(&conf);
}

static void files_are_read_and_named(void **state)
{
    struct pl_alloc alloc = pl_alloc_system();
    struct tempdir dir;
    static const char text[] = "a: 1\n", bad[] = "a: 1\nb\n";
    (void)state;
    tempdir_init(&dir);
    tempdir_put(&dir, "good.yaml", text, sizeof text - 1);
    tempdir_put(&dir, "bad.yaml", bad, sizeof bad - 1);
    assert_int_equal(pl_conf_read(&conf, &alloc, tempdir_path(&dir, "good.yaml"), &err), PELAGO_OK);
    assert_string_equal(value_of("a"), "1");
    pl_conf_release(&conf);
    assert_int_equal(pl_conf_read(&conf, &alloc, tempdir_path(&dir, "bad.yaml"), &err), PELAGO_INVALID);
    assert_non_null(strstr(err.text, "bad.yaml, line"));
    assert_int_equal(pl_conf_read(&conf, &alloc, tempdir_path(&dir, "none.yaml"), &err), PELAGO_NOTFOUND);
    assert_int_equal(pl_conf_read(&conf, &alloc, dir.path, &err), PELAGO_IO);
    tempdir_release(&dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_and_values_are_read),
        cmocka_unit_test(lists_become_values_with_commas),
        cmocka_unit_test(escapes_fit),
        cmocka_unit_test(what_is_refused_says_where),
        cmocka_unit_test(sizes_have_limits),
        cmocka_unit_test(files_are_read_and_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
