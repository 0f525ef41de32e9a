/* The table of file operations on a real directory: each promise of store/file.h that can be seen without a power cut. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "memdisk.h"
#include "os/clock.h"
#include "os/dir_posix.h"
#include "tempdir.h"

static struct tempdir temp;
static struct counting_alloc memory;
static struct pl_posix_dir *posix;
static struct pl_dir dir;

static int set_up(void **state)
{
    (void)state;
    struct pl_error err;
    counting_alloc_init(&memory);
    tempdir_init(&temp);
    assert_int_equal(pl_posix_dir_open(&posix, &memory.alloc, temp.path, PL_POSIX_DIR_EXISTING, &err),
                     PELAGO_OK);
    dir = pl_posix_dir_table(posix);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    pl_posix_dir_close(posix);
    pl_posix_dir_close(NULL);
    tempdir_release(&temp);
    assert_int_equal(memory.bytes, 0);
    return 0;
}

static struct pl_file *create(const char *name)
{
    struct pl_file *f;
    assert_int_equal(dir.ops->open(dir.self, name, PL_FILE_CREATE, &f), PELAGO_OK);
    return f;
}

static void test_write_and_read(void **state)
{
    (void)state;
    char text[16] = "";
    uint64_t bytes = 0;
    const struct pl_bytes parts[] = {{"ab", 2}, {NULL, 0}, {"cde", 3}, {"", 0}, {"f", 1}};
    struct pl_file *f = create("file");
    assert_int_equal(dir.ops->write_at(dir.self, f, 2, parts, 5), PELAGO_OK);
    assert_int_equal(dir.ops->size(dir.self, f, &bytes), PELAGO_OK);
    assert_int_equal(bytes, 8);
    assert_int_equal(dir.ops->sync(dir.self, f), PELAGO_OK);
    assert_int_equal(dir.ops->read_at(dir.self, f, 0, text, 8), PELAGO_OK);
    assert_memory_equal(text, "\0\0abcdef", 8);
    assert_int_equal(dir.ops->read_at(dir.self, f, 1, text, 8), PELAGO_SHORT);
    assert_int_equal(dir.ops->read_at(dir.self, f, 100, text, 0), PELAGO_OK);
    assert_int_equal(dir.ops->truncate(dir.self, f, 3), PELAGO_OK);
    assert_int_equal(dir.ops->size(dir.self, f, &bytes), PELAGO_OK);
    assert_int_equal(bytes, 3);
    dir.ops->close(dir.self, f);
    f = create("file"); /* emptied */
    assert_int_equal(dir.ops->size(dir.self, f, &bytes), PELAGO_OK);
    assert_int_equal(bytes, 0);
    dir.ops->close(dir.self, f);
}

/* More parts than one system call takes from us, of all lengths. */
static void test_many_parts(void **state)
{
    (void)state;
    static uint8_t source[5000], back[5000];
    struct pl_bytes parts[75];
    size_t at = 0;
    for (size_t i = 0; i < sizeof source; i++)
        source[i] = (uint8_t)(i * 7 + i / 256);
    for (size_t i = 0; i < 75; i++) {
        parts[i] = (struct pl_bytes){source + at, i};
        at += i;
    }
    struct pl_file *f = create("parts");
    assert_int_equal(dir.ops->write_at(dir.self, f, 0, parts, 75), PELAGO_OK);
    assert_int_equal(dir.ops->read_at(dir.self, f, 0, back, at), PELAGO_OK);
    assert_memory_equal(back, source, at);
    dir.ops->close(dir.self, f);
}

/* The file may not grow past a limit: the kernel writes a beginning and the rest fails. */
static void test_short_write(void **state)
{
    (void)state;
    static uint8_t source[10000];
    struct rlimit old, small;
    uint64_t bytes = 0;
    struct pl_file *f = create("short");
    const struct pl_bytes parts[] = {{source, 3000}, {source, 7000}};
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small = (struct rlimit){5000, old.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    enum pelago_status st = dir.ops->write_at(dir.self, f, 0, parts, 2);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    (void)signal(SIGXFSZ, handler);
    assert_int_equal(st, PELAGO_FULL);
    assert_int_equal(dir.ops->size(dir.self, f, &bytes), PELAGO_OK);
    assert_int_equal(bytes, 5000);
    dir.ops->close(dir.self, f);
}

static void test_full_disk(void **state)
{
    (void)state;
    const struct pl_bytes part = {"x", 1};
    assert_int_equal(symlink("/dev/full", tempdir_path(&temp, "full")), 0);
    struct pl_file *f = create("full");
    assert_int_equal(dir.ops->write_at(dir.self, f, 0, &part, 1), PELAGO_FULL);
    assert_string_equal(pl_posix_dir_reason(posix), "No space left on device");
    dir.ops->close(dir.self, f);
}

static void test_names(void **state)
{
    (void)state;
    struct pl_file *f;
    const char *const refused[] = {"",
                                   ".",
                                   "..",
                                   "a/b",
                                   "/etc/passwd",
                                   "../x",
                                   "0123456789012345678901234567890123456789012345678901234567890123"};
    for (unsigned i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        assert_int_equal(dir.ops->open(dir.self, refused[i], PL_FILE_CREATE, &f), PELAGO_INVALID);
        assert_null(f);
        assert_int_equal(dir.ops->remove(dir.self, refused[i]), PELAGO_INVALID);
        assert_int_equal(dir.ops->rename(dir.self, refused[i], "x"), PELAGO_INVALID);
        assert_int_equal(dir.ops->rename(dir.self, "x", refused[i]), PELAGO_INVALID);
    }
    assert_string_equal(pl_posix_dir_reason(posix), "");
    assert_int_equal(dir.ops->open(dir.self, "none", PL_FILE_READ, &f), PELAGO_NOTFOUND);
    assert_int_equal(dir.ops->remove(dir.self, "none"), PELAGO_NOTFOUND);
    assert_int_equal(dir.ops->rename(dir.self, "none", "x"), PELAGO_NOTFOUND);
    assert_string_equal(pl_posix_dir_reason(posix), "No such file or directory");
}

/* Nobody writes to the pipe: waiting for that would be for ever. */
static void test_what_is_no_file(void **state)
{
    (void)state;
    struct pl_file *f;
    char path[512];
    (void)snprintf(path, sizeof path, "%s/pipe", temp.path);
    assert_int_equal(mkfifo(path, 0600), 0);
    (void)snprintf(path, sizeof path, "%s/folder", temp.path);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(dir.ops->open(dir.self, "pipe", PL_FILE_READ, &f), PELAGO_IO);
    assert_null(f);
    assert_int_equal(dir.ops->open(dir.self, "pipe", PL_FILE_CREATE, &f), PELAGO_IO);
    assert_int_equal(dir.ops->open(dir.self, "folder", PL_FILE_READ, &f), PELAGO_IO);
    assert_string_equal(pl_posix_dir_reason(posix), "Is a directory");
    assert_int_equal(dir.ops->open(dir.self, "folder", PL_FILE_CREATE, &f), PELAGO_IO);
    assert_null(f);
    assert_int_equal(rmdir(path), 0);
}

static void test_rename_and_remove(void **state)
{
    (void)state;
    char text[4] = "";
    tempdir_put(&temp, "old", "old", 3);
    tempdir_put(&temp, "new", "new", 3);
    assert_int_equal(dir.ops->rename(dir.self, "new", "old"), PELAGO_OK);
    assert_int_equal(dir.ops->sync_dir(dir.self), PELAGO_OK);
    struct pl_file *f;
    assert_int_equal(dir.ops->open(dir.self, "old", PL_FILE_READ, &f), PELAGO_OK);
    assert_int_equal(dir.ops->read_at(dir.self, f, 0, text, 3), PELAGO_OK);
    assert_string_equal(text, "new");
    const struct pl_bytes part = {"x", 1};
    assert_int_equal(dir.ops->write_at(dir.self, f, 0, &part, 1), PELAGO_IO); /* opened for reading */
    dir.ops->close(dir.self, f);
    assert_int_equal(dir.ops->remove(dir.self, "old"), PELAGO_OK);
    assert_int_equal(tempdir_count(&temp), 0);
}

static enum pelago_status count_name(void *user, const char *name)
{
    unsigned *seen = user;
    if (strcmp(name, "stop") == 0)
        return PELAGO_STALE;
    assert_true(strcmp(name, "a") == 0 || strcmp(name, "b") == 0);
    seen[name[0] - 'a']++;
    return PELAGO_OK;
}

static void test_list(void **state)
{
    (void)state;
    unsigned seen[2] = {0, 0};
    tempdir_put(&temp, "a", "", 0);
    tempdir_put(&temp, "b", "", 0);
    tempdir_put(&temp, "0123456789012345678901234567890123456789012345678901234567890123", "", 0);
    assert_int_equal(mkdir(tempdir_path(&temp, "folder"), 0777), 0);
    for (int i = 1; i <= 2; i++) { /* twice: a listing starts at the beginning */
        assert_int_equal(dir.ops->list(dir.self, count_name, seen), PELAGO_OK);
        assert_int_equal(seen[0], i);
        assert_int_equal(seen[1], i);
    }
    tempdir_put(&temp, "stop", "", 0);
    assert_int_equal(dir.ops->list(dir.self, count_name, seen), PELAGO_STALE);
}

static void test_close_on_exec(void **state)
{
    (void)state;
    struct pl_file *f = create("file");
    unsigned open_files = 0;
    for (int fd = 3; fd < 64; fd++) {
        int flags = fcntl(fd, F_GETFD);
        char link[64], target[512] = "";
        (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        if (flags < 0 || readlink(link, target, sizeof target - 1) < 0 || strstr(target, temp.path) == NULL)
            continue;
        assert_true((flags & FD_CLOEXEC) != 0);
        open_files++;
    }
    assert_int_equal(open_files, 2); /* the directory and the file */
    dir.ops->close(dir.self, f);
}

static void test_open_folder(void **state)
{
    (void)state;
    struct pl_posix_dir *d;
    struct pl_error err;
    const char *deep = tempdir_path(&temp, "x/y//z/");
    assert_int_equal(pl_posix_dir_open(&d, &memory.alloc, deep, PL_POSIX_DIR_EXISTING, &err),
                     PELAGO_NOTFOUND);
    assert_non_null(strstr(
        err.text, "x/y//z/ cannot be opened: No such file or directory; give the name of one that is there"));
    for (int i = 0; i < 2; i++) { /* made, and already there */
        assert_int_equal(pl_posix_dir_open(&d, &memory.alloc, deep, PL_POSIX_DIR_CREATE, &err), PELAGO_OK);
        pl_posix_dir_close(d);
    }
    tempdir_put(&temp, "file", "", 0);
    const char *file = tempdir_path(&temp, "file");
    assert_int_equal(pl_posix_dir_open(&d, &memory.alloc, file, PL_POSIX_DIR_CREATE, &err), PELAGO_IO);
    assert_non_null(strstr(err.text, "Not a directory"));
    const char *inside = tempdir_path(&temp, "file/x");
    assert_int_equal(pl_posix_dir_open(&d, &memory.alloc, inside, PL_POSIX_DIR_CREATE, &err), PELAGO_IO);
    assert_non_null(
        strstr(err.text, "file/x cannot be made: Not a directory; what should be a folder is a file"));
    assert_int_equal(pl_posix_dir_open(&d, &memory.alloc, "", PL_POSIX_DIR_CREATE, &err), PELAGO_NOTFOUND);
    static char longest[PL_PATH_MAX + 8];
    memset(longest, 'a', sizeof longest - 1);
    assert_int_equal(pl_posix_dir_open(&d, &memory.alloc, longest, PL_POSIX_DIR_CREATE, &err), PELAGO_LIMIT);
    assert_int_equal(pl_posix_sync_parent(longest, &err), PELAGO_LIMIT);
    assert_int_equal(pl_posix_sync_parent("relative", &err), PELAGO_OK);
    assert_int_equal(pl_posix_sync_parent("/", &err), PELAGO_OK);
    assert_int_equal(pl_posix_sync_parent("/no/such/folder", &err), PELAGO_NOTFOUND);
}

static void test_lock(void **state)
{
    (void)state;
    struct pl_posix_dir *other;
    struct pl_error err;
    assert_int_equal(pl_posix_dir_open(&other, &memory.alloc, temp.path, PL_POSIX_DIR_EXISTING, &err),
                     PELAGO_OK);
    tempdir_put(&temp, "pelago.lock", "", 0); /* left behind: it holds nothing */
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pl_posix_dir_lock(other, "here", "--dir", &err), PELAGO_OK);
        assert_int_equal(pl_posix_dir_lock(posix, "here", "--dir", &err), PELAGO_STALE);
        assert_string_equal(err.text,
                            "another pelago is at work in here: end it, or choose another with --dir FOLDER");
        pl_posix_dir_close(other);
        assert_int_equal(tempdir_count(&temp), 0);
        assert_int_equal(pl_posix_dir_open(&other, &memory.alloc, temp.path, PL_POSIX_DIR_EXISTING, &err),
                         PELAGO_OK);
    }
    assert_int_equal(pl_posix_dir_lock(posix, "here", "--dir", &err), PELAGO_OK);
    pl_posix_dir_close(other);
    assert_int_equal(tempdir_count(&temp), 1);
    assert_true(pl_posix_dir_free_bytes(posix) > 0);
}

/* The first `count` files hold what was put into them. */
static void expect_mine(const char *const *names, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        char text[8] = "";
        int fd = open(tempdir_path(&temp, names[i]), O_RDONLY);
        assert_true(fd >= 0);
        assert_int_equal(read(fd, text, sizeof text), 4);
        assert_string_equal(text, "mine");
        (void)close(fd);
    }
}

/* What somebody else has put into the folder stays, whatever its name. */
static void test_lock_and_probe_take_nothing(void **state)
{
    (void)state;
    static const char *const names[] = {"lock", "probe", "pelago.lock", "pelago.probe", "aim"};
    struct pl_error err;
    for (unsigned i = 0; i < 5; i++)
        tempdir_put(&temp, names[i], "mine", 4);
    assert_int_equal(pl_posix_dir_lock(posix, "here", "--dir", &err), PELAGO_INVALID);
    assert_string_equal(err.text,
                        "the file pelago.lock in here is not pelago's: move it away, or use another folder");
    assert_int_equal(pl_posix_dir_probe(posix), PELAGO_OK);
    expect_mine(names, 5);
    assert_int_equal(dir.ops->remove(dir.self, "pelago.lock"), PELAGO_OK);
    assert_int_equal(dir.ops->remove(dir.self, "pelago.probe"), PELAGO_OK);
    for (unsigned i = 2; i < 4; i++)
        assert_int_equal(symlink("aim", tempdir_path(&temp, names[i])), 0);
    assert_int_equal(pl_posix_dir_lock(posix, "here", "--dir", &err), PELAGO_IO);
    assert_int_equal(pl_posix_dir_probe(posix), PELAGO_OK);
    expect_mine(names, 5);
    for (unsigned i = 2; i < 4; i++)
        assert_int_equal(dir.ops->remove(dir.self, names[i]), PELAGO_OK);
    assert_int_equal(pl_posix_dir_probe(posix), PELAGO_OK);
    assert_int_equal(pl_posix_dir_lock(posix, "here", "--dir", &err), PELAGO_OK);
    assert_int_equal(tempdir_count(&temp), 4); /* three of them, and the lock */
}

static void test_no_memory(void **state)
{
    (void)state;
    struct pl_posix_dir *d;
    struct pl_file *f;
    struct pl_error err;
    memory.fail_at = memory.requests;
    memory.fail_times = 2;
    assert_int_equal(dir.ops->open(dir.self, "x", PL_FILE_CREATE, &f), PELAGO_NOMEM);
    assert_int_equal(pl_posix_dir_open(&d, &memory.alloc, temp.path, PL_POSIX_DIR_EXISTING, &err),
                     PELAGO_NOMEM);
    assert_int_equal(tempdir_count(&temp), 0);
}

static void test_clock(void **state)
{
    (void)state;
    uint64_t before = pl_clock_ns();
    for (int i = 0; i < 1000; i++) {
        uint64_t now = pl_clock_ns();
        assert_true(now >= before);
        before = now;
    }
    assert_true(before > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_write_and_read, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_many_parts, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_short_write, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_full_disk, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_names, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_what_is_no_file, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_rename_and_remove, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_list, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_close_on_exec, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_open_folder, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_lock, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_lock_and_probe_take_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_no_memory, set_up, tear_down),
        cmocka_unit_test(test_clock),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
