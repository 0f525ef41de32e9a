/* What a learner trains on: options, the folder's memory of them, and files that are not there any more. */
#include "host/data_choice.h"
#include "tempdir.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct tempdir temp;
static struct pl_posix_dir *dir;
static struct pl_alloc memory;
static struct pl_data_choice choice;
static struct pl_error error;
static char text_path[PL_PATH_MAX];

static int set_up(void **state)
{
    (void)state;
    memory = pl_alloc_system();
    tempdir_init(&temp);
    tempdir_put(&temp, "diary.txt", "x", 1);
    assert_non_null(realpath(tempdir_path(&temp, "diary.txt"), text_path));
    return pl_posix_dir_open(&dir, &memory, temp.path, PL_POSIX_DIR_EXISTING, NULL);
}

static int tear_down(void **state)
{
    (void)state;
    pl_posix_dir_close(dir);
    tempdir_release(&temp);
    return 0;
}

static enum pelago_status choose(const char *data, const char *local_data)
{
    memset(&choice, 'x', sizeof choice);
    return pl_data_choice_make(&choice, dir, &memory, data, local_data, &error);
}

static void expect(const char *data, const char *local_data, bool local, bool remembered, const char *name)
{
    if (choose(data, local_data) != PELAGO_OK)
        fail_msg("%s", error.text);
    assert_string_equal(choice.name, name);
    assert_int_equal(choice.local, local);
    assert_int_equal(choice.remembered, remembered);
}

static void expect_failure(enum pelago_status status, const char *sentence)
{
    assert_int_equal(choose(NULL, NULL), status);
    if (strncmp(error.text, sentence, strlen(sentence)) != 0)
        fail_msg("\"%s\" does not begin with \"%s\"", error.text, sentence);
    assert_true(strlen(error.text) < PL_TEXT_MAX); /* nothing was cut off */
}

static void test_an_option_is_remembered(void **state)
{
    (void)state;
    char relative[PL_PATH_MAX], before[PL_PATH_MAX];
    expect(NULL, NULL, false, false, "");
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(temp.path), 0);
    (void)snprintf(relative, sizeof relative, "../%s/diary.txt", strrchr(temp.path, '/') + 1);
    expect(NULL, relative, true, false, text_path);
    assert_int_equal(chdir(before), 0);
    for (int i = 0; i < 2; i++)
        expect(NULL, NULL, true, true, text_path);
    expect("builtin:tales", NULL, false, false, "builtin:tales");
    expect(NULL, NULL, false, true, "builtin:tales");
    expect(NULL, "builtin:tales", true, false, "builtin:tales");
    expect(text_path, NULL, false, false, text_path);
    expect(NULL, NULL, false, true, text_path);
}

/* The ending of a name says what a text is, and a link may lead elsewhere tomorrow: it is not followed. */
static void test_a_link_keeps_its_name(void **state)
{
    (void)state;
    char folder[PL_PATH_MAX], link[PL_PATH_MAX], above[2 * PL_PATH_MAX + 64];
    assert_non_null(realpath(temp.path, folder));
    assert_int_equal(symlink(text_path, tempdir_path(&temp, "train.jsonl")), 0);
    assert_int_equal(symlink(folder, tempdir_path(&temp, "current")), 0);
    assert_true(snprintf(link, sizeof link, "%s/train.jsonl", folder) < (int)sizeof link);
    expect(NULL, tempdir_path(&temp, "train.jsonl"), true, false, link);
    expect(NULL, tempdir_path(&temp, "current/train.jsonl"), true, false, link);
    (void)snprintf(above, sizeof above, "%s/current/../%s/train.jsonl", folder, strrchr(folder, '/') + 1);
    expect(NULL, above, true, false, link);
    assert_int_equal(unlink(tempdir_path(&temp, "current")), 0);
}

static void test_what_is_not_there_changes_nothing(void **state)
{
    (void)state;
    expect(NULL, text_path, true, false, text_path);
    assert_int_equal(choose("/no/such/file", NULL), PELAGO_NOTFOUND);
    assert_string_equal(error.text, "/no/such/file could not be read: No such file or directory");
    assert_int_equal(choose(NULL, "/"), PELAGO_INVALID);
    assert_string_equal(error.text, "/ is a folder, not a text or a token file");
    tempdir_put(&temp, "nothing.txt", "", 0);
    assert_int_equal(choose(NULL, tempdir_path(&temp, "nothing.txt")), PELAGO_INVALID);
    assert_non_null(strstr(error.text, "nothing.txt is empty, not a text or a token file"));
    expect(NULL, NULL, true, true, text_path);
}

static void test_data_that_is_gone(void **state)
{
    (void)state;
    char sentence[PL_TEXT_MAX];
    expect(NULL, text_path, true, false, text_path);
    assert_int_equal(unlink(text_path) + mkfifo(text_path, 0600), 0);
    expect_failure(PELAGO_INVALID,
                   "this learner's private text is no file any more: give --local-data PATH again");
    assert_int_equal(unlink(text_path), 0);
    tempdir_put(&temp, "diary.txt", "x", 1);
    expect(NULL, text_path, true, false, text_path);
    assert_int_equal(unlink(text_path), 0);
    expect_failure(PELAGO_NOTFOUND, "this learner's private text cannot be read (No such file or directory): "
                                    "give --local-data PATH again; it was ");
    tempdir_put(&temp, "data", "data /no/such/file\n", 19);
    (void)snprintf(sentence, sizeof sentence, "%s",
                   "the run's data on this machine cannot be read (No such file or directory): give --data "
                   "PATH again; it was /no/such/file");
    expect_failure(PELAGO_NOTFOUND, sentence);
    static char longest[PL_PATH_MAX + 32];
    size_t len = (size_t)snprintf(longest, sizeof longest, "local-data /%0*u\n", PL_PATH_MAX - 2, 7);
    tempdir_put(&temp, "data", longest, len);
    assert_int_equal(choose(NULL, NULL), PELAGO_IO);
    assert_string_equal(error.text + strlen(error.text) - 12, "000000000007");
    assert_non_null(strstr(error.text, "; it was ...0000"));
}

/* It cannot be read twice, and a pipe's name leads nowhere else. */
static void test_a_stream_is_over(void **state)
{
    (void)state;
    int ends[2];
    char name[64];
    expect(NULL, "-", true, false, "-");
    expect_failure(PELAGO_NOTFOUND,
                   "this learner's private text came in a stream, which is over: give --local-data");
    assert_int_equal(pipe(ends), 0);
    (void)snprintf(name, sizeof name, "/dev/fd/%d", ends[0]);
    expect(NULL, name, true, false, name);
    (void)close(ends[0]);
    (void)close(ends[1]);
    expect_failure(PELAGO_NOTFOUND, "this learner's private text came in a stream");
}

static void test_a_damaged_memory(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t len;
    } damaged[] = {{"", 0},
                   {"\n", 1},
                   {"local-data ", 11},
                   {"local-data \n", 12},
                   {"local-data /tmp", 15}, /* cut off */
                   {"local-data tmp\n", 15},
                   {"local-data /t\0p\n", 16},
                   {"local-data/tmp\n", 15},
                   {"secret-data /tmp\n", 17},
                   {"{\"data\": \"/tmp\"}\n", 17}};
    static char longest[3 * PL_PATH_MAX];
    static const char sentence[] =
        "the folder's file data does not say what to train on: give --local-data PATH";
    for (size_t i = 0; i < sizeof damaged / sizeof damaged[0]; i++) {
        tempdir_put(&temp, "data", damaged[i].text, damaged[i].len);
        expect_failure(PELAGO_CORRUPT, sentence);
    }
    for (size_t len = PL_PATH_MAX + 12; len < sizeof longest; len += PL_PATH_MAX / 2) {
        (void)snprintf(longest, sizeof longest, "local-data /%0*u\n", (int)len - 13, 7);
        tempdir_put(&temp, "data", longest, len);
        expect_failure(PELAGO_CORRUPT, sentence);
    }
    expect(NULL, text_path, true, false, text_path); /* who says it again goes on */
    expect(NULL, NULL, true, true, text_path);
}

static void test_the_line(void **state)
{
    (void)state;
    static struct pl_settings settings = {.data = "builtin:tales"};
    char line[PL_DATA_CHOICE_LINE_MAX];
    expect(NULL, NULL, false, false, "");
    pl_data_choice_line(&choice, &settings, line);
    assert_string_equal(line, "learner.data private=false remembered=false name=\"builtin:tales\"");
    choice = (struct pl_data_choice){.local = true, .remembered = true, .name = "/a \"b\n.txt"};
    pl_data_choice_line(&choice, &settings, line);
    assert_string_equal(line, "learner.data private=true remembered=true name=\"/a ?b?.txt\": private text, "
                              "which stays on this machine");
    memset(choice.name, 'x', sizeof choice.name - 1);
    pl_data_choice_line(&choice, &settings, line);
    assert_non_null(strstr(line, "xx\": private text, which stays on this machine"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_an_option_is_remembered, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_link_keeps_its_name, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_what_is_not_there_changes_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_data_that_is_gone, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_stream_is_over, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_damaged_memory, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_the_line, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
