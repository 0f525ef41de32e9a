/* Folders that appear whole or not at all, and files as memory. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "memdisk.h"
#include "os/folder.h"
#include "os/map.h"
#include "tempdir.h"

static struct tempdir temp;
static struct counting_alloc memory;
static struct pl_folder folder;
static struct pl_error err;

static int set_up(void **state)
{
    (void)state;
    counting_alloc_init(&memory);
    tempdir_init(&temp);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    tempdir_release(&temp);
    assert_int_equal(memory.bytes, 0);
    return 0;
}

static void put_file(const char *name)
{
    struct pl_file *f;
    const struct pl_dir dir = pl_folder_dir(&folder);
    const struct pl_bytes part = {name, strlen(name)};
    assert_int_equal(dir.ops->open(dir.self, name, PL_FILE_CREATE, &f), PELAGO_OK);
    assert_int_equal(dir.ops->write_at(dir.self, f, 0, &part, 1), PELAGO_OK);
    dir.ops->close(dir.self, f);
}

static bool exists(const char *name)
{
    return access(tempdir_path(&temp, name), F_OK) == 0;
}

static void test_commit(void **state)
{
    (void)state;
    const char *const ways[] = {"new", "new2///", "deep/er"};
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(pl_folder_begin(&folder, &memory.alloc, tempdir_path(&temp, ways[i]), &err),
                         PELAGO_OK);
        put_file("one");
        put_file("two");
        assert_false(exists(ways[i]));
        assert_int_equal(pl_folder_commit(&folder, &err), PELAGO_OK);
        pl_folder_abandon(&folder); /* has nothing to do */
    }
    assert_true(exists("new/one") && exists("new2/two") && exists("deep/er/two"));
    assert_int_equal(tempdir_count(&temp), 3);
}

static void test_empty_folder_is_taken(void **state)
{
    (void)state;
    assert_int_equal(mkdir(tempdir_path(&temp, "empty"), 0777), 0);
    assert_int_equal(pl_folder_begin(&folder, &memory.alloc, tempdir_path(&temp, "empty"), &err), PELAGO_OK);
    put_file("one");
    assert_int_equal(pl_folder_commit(&folder, &err), PELAGO_OK);
    assert_true(exists("empty/one"));
}

static void test_abandon(void **state)
{
    (void)state;
    assert_int_equal(pl_folder_begin(&folder, &memory.alloc, tempdir_path(&temp, "new"), &err), PELAGO_OK);
    put_file("one");
    put_file("two");
    pl_folder_abandon(&folder);
    assert_int_equal(tempdir_count(&temp), 0);
}

static void test_refused(void **state)
{
    (void)state;
    static char longest[PL_PATH_MAX];
    tempdir_put(&temp, "file", "x", 1);
    assert_int_equal(mkdir(tempdir_path(&temp, "used"), 0777), 0);
    tempdir_put(&temp, "used/x", "x", 1);
    assert_int_equal(pl_folder_begin(&folder, &memory.alloc, tempdir_path(&temp, "file"), &err),
                     PELAGO_INVALID);
    assert_non_null(strstr(err.text, "file exists and is not a folder"));
    assert_int_equal(pl_folder_begin(&folder, &memory.alloc, tempdir_path(&temp, "used"), &err),
                     PELAGO_INVALID);
    assert_non_null(strstr(err.text, "used exists and is not empty"));
    assert_int_equal(pl_folder_begin(&folder, &memory.alloc, "", &err), PELAGO_INVALID);
    memset(longest, 'a', sizeof longest - 1);
    assert_int_equal(pl_folder_begin(&folder, &memory.alloc, longest, &err), PELAGO_INVALID);
    assert_int_equal(tempdir_count(&temp), 2);
}

/* Somebody else takes the name while we write. */
static void test_name_taken(void **state)
{
    (void)state;
    assert_int_equal(pl_folder_begin(&folder, &memory.alloc, tempdir_path(&temp, "new"), &err), PELAGO_OK);
    put_file("one");
    assert_int_equal(mkdir(tempdir_path(&temp, "new"), 0777), 0);
    tempdir_put(&temp, "new/x", "x", 1);
    assert_int_equal(pl_folder_commit(&folder, &err), PELAGO_IO);
    assert_non_null(strstr(err.text, "cannot take its place"));
    assert_int_equal(tempdir_count(&temp), 1);
}

static void test_map(void **state)
{
    (void)state;
    struct pl_map map;
    tempdir_put(&temp, "file", "some bytes", 10);
    tempdir_put(&temp, "empty", "", 0);
    assert_int_equal(pl_map_open(&map, tempdir_path(&temp, "file"), &err), PELAGO_OK);
    assert_int_equal(map.len, 10);
    assert_memory_equal(map.data, "some bytes", 10);
    pl_map_close(&map);
    assert_null(map.data);
    pl_map_close(&map);
    assert_int_equal(pl_map_open(&map, tempdir_path(&temp, "empty"), &err), PELAGO_OK);
    assert_true(map.data == NULL && map.len == 0);
    assert_int_equal(pl_map_open(&map, tempdir_path(&temp, "none"), &err), PELAGO_NOTFOUND);
    assert_non_null(strstr(err.text, "none cannot be opened: No such file or directory"));
    assert_int_equal(pl_map_open(&map, temp.path, &err), PELAGO_INVALID);
    assert_non_null(strstr(err.text, "it is not a regular file"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_commit, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_empty_folder_is_taken, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_abandon, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_name_taken, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_map, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
