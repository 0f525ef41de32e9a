/* Signals while a file or a folder is written: what is half there goes, what is finished stays. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "cmd/unfinished.h"
#include "data/outfile.h"
#include "tempdir.h"

static struct tempdir temp;
static struct pl_alloc alloc;
static struct pl_error err;

/* What a process does until a signal ends it. It must not return. */
typedef void child(int number);

static void must(bool good)
{
    if (!good)
        _exit(99);
}

/* How the process ended: its exit code, or minus the signal that killed it. */
static int run(child *what, int number)
{
    int status;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)signal(number, SIG_DFL); /* a shell's background job is started with some that are ignored */
        what(number);
        _exit(98);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static void half_a_file(int number)
{
    struct pl_outfile *f;
    pl_unfinished_file(tempdir_path(&temp, "x.tok"));
    must(pl_outfile_open(&f, &alloc, tempdir_path(&temp, "x.tok"), &err) == PELAGO_OK);
    must(pl_outfile_append(f, "some", 4, &err) == PELAGO_OK);
    must(access(tempdir_path(&temp, "x.tok.tmp"), F_OK) == 0);
    (void)raise(number);
}

static void whole_file(int number)
{
    pl_unfinished_file(tempdir_path(&temp, "x.tok"));
    must(pl_outfile_write_all(&alloc, tempdir_path(&temp, "x.tok"), "all", 3, &err) == PELAGO_OK);
    (void)raise(number);
}

static void file_and_end(int number)
{
    pl_unfinished_file(tempdir_path(&temp, "y.tok"));
    pl_unfinished_end();
    pl_unfinished_end();
    tempdir_put(&temp, "y.tok.tmp", "somebody's", 10);
    (void)raise(number);
}

static void test_files(void **state)
{
    (void)state;
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(run(half_a_file, numbers[i]), 128 + numbers[i]);
        assert_int_equal(tempdir_count(&temp), 0);
    }
    assert_int_equal(run(whole_file, SIGTERM), 143);
    assert_int_equal(tempdir_count(&temp), 1);
    assert_int_equal(access(tempdir_path(&temp, "x.tok"), F_OK), 0);
    assert_int_equal(run(file_and_end, SIGTERM), -SIGTERM);
    assert_int_equal(tempdir_count(&temp), 2);
}

static struct pl_folder folder;

static void begin_folder(void)
{
    must(pl_folder_begin(&folder, &alloc, tempdir_path(&temp, "out"), &err) == PELAGO_OK);
    pl_unfinished_folder(&folder);
    for (unsigned i = 0; i < 200; i++) { /* more names than are read at once */
        char name[40];
        struct pl_file *f;
        const struct pl_dir dir = pl_folder_dir(&folder);
        (void)snprintf(name, sizeof name, "a file of some name %u", i);
        must(dir.ops->open(dir.self, name, PL_FILE_CREATE, &f) == PELAGO_OK);
        dir.ops->close(dir.self, f);
    }
}

static void half_a_folder(int number)
{
    begin_folder();
    (void)raise(number);
}

static void whole_folder(int number)
{
    begin_folder();
    must(pl_folder_commit(&folder, &err) == PELAGO_OK);
    (void)raise(number);
}

static void test_folders(void **state)
{
    (void)state;
    struct tempdir out;
    assert_int_equal(run(half_a_folder, SIGINT), 130);
    assert_int_equal(tempdir_count(&temp), 0);
    assert_int_equal(run(whole_folder, SIGINT), 130);
    assert_int_equal(tempdir_count(&temp), 1);
    (void)snprintf(out.path, sizeof out.path, "%s", tempdir_path(&temp, "out"));
    assert_int_equal(tempdir_count(&out), 200);
}

static void ignored(int number)
{
    (void)signal(number, SIG_IGN);
    pl_unfinished_file(tempdir_path(&temp, "x.tok"));
    tempdir_put(&temp, "x.tok.tmp", "some", 4);
    (void)raise(number);
    _exit(7);
}

static void test_what_is_ignored_stays_ignored(void **state)
{
    (void)state;
    assert_int_equal(run(ignored, SIGHUP), 7);
    assert_int_equal(tempdir_count(&temp), 1);
}

static int set_up(void **state)
{
    (void)state;
    alloc = pl_alloc_system();
    tempdir_init(&temp);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    tempdir_release(&temp);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_files, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_folders, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_what_is_ignored_stays_ignored, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("cmd_unfinished", tests, NULL, NULL);
}
