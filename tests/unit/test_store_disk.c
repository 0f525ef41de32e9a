/* The simulated disk must be as bad as it claims, and never worse: what was synced stays, what was not is lost, kept
 * and torn, all of them, over enough seeds.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "expect_assert.h"
#include "memdisk.h"

static struct counting_alloc memory;
static struct pl_disk *disk;
static struct pl_dir dir;

static int setup(void **state)
{
    (void)state;
    counting_alloc_init(&memory);
    disk = pl_disk_new(&memory.alloc, 1);
    dir = pl_disk_dir(disk);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    pl_disk_free(disk);
    return memory.bytes == 0 ? 0 : -1;
}

static struct pl_file *open_file(const char *name, enum pl_file_mode mode)
{
    struct pl_file *file;
    assert_int_equal(dir.ops->open(dir.self, name, mode, &file), PELAGO_OK);
    return file;
}

static enum pelago_status write_text(struct pl_file *file, uint64_t offset, const char *text)
{
    const struct pl_bytes part = {text, strlen(text)};
    return dir.ops->write_at(dir.self, file, offset, &part, 1);
}

static bool content_is(const char *name, const char *expected)
{
    uint64_t len;
    const uint8_t *bytes = pl_disk_peek(disk, name, &len);
    return bytes != NULL && len == strlen(expected) && memcmp(bytes, expected, len) == 0;
}

static void test_files(void **state)
{
    (void)state;
    struct pl_file *file;
    char into[16];
    uint64_t bytes;
    assert_int_equal(dir.ops->open(dir.self, "a", PL_FILE_READ, &file), PELAGO_NOTFOUND);
    assert_null(pl_disk_peek(disk, "a", &bytes));
    file = open_file("a", PL_FILE_CREATE);
    assert_true(content_is("a", ""));
    const struct pl_bytes parts[] = {{"hel", 3}, {NULL, 0}, {"lo", 2}};
    assert_int_equal(dir.ops->write_at(dir.self, file, 0, parts, 3), PELAGO_OK);
    assert_int_equal(dir.ops->read_at(dir.self, file, 1, into, 4), PELAGO_OK);
    assert_memory_equal(into, "ello", 4);
    assert_int_equal(dir.ops->read_at(dir.self, file, 1, into, 5), PELAGO_SHORT);
    assert_int_equal(dir.ops->read_at(dir.self, file, 6, into, 0), PELAGO_SHORT);
    assert_int_equal(dir.ops->read_at(dir.self, file, 5, into, 0), PELAGO_OK);
    assert_int_equal(write_text(file, 7, "x"), PELAGO_OK);
    assert_int_equal(dir.ops->read_at(dir.self, file, 5, into, 3), PELAGO_OK);
    assert_memory_equal(into, "\0\0x", 3);
    assert_int_equal(dir.ops->truncate(dir.self, file, 2), PELAGO_OK);
    assert_int_equal(dir.ops->size(dir.self, file, &bytes), PELAGO_OK);
    assert_int_equal(bytes, 2);
    assert_int_equal(dir.ops->rename(dir.self, "a", "b"), PELAGO_OK);
    assert_true(content_is("b", "he"));
    assert_null(pl_disk_peek(disk, "a", &bytes));
    assert_int_equal(dir.ops->rename(dir.self, "a", "b"), PELAGO_NOTFOUND);
    assert_int_equal(dir.ops->remove(dir.self, "a"), PELAGO_NOTFOUND);
    assert_int_equal(dir.ops->remove(dir.self, "b"), PELAGO_OK);
    assert_int_equal(pl_disk_used_bytes(disk), 2); /* still open */
    dir.ops->close(dir.self, file);
    assert_int_equal(pl_disk_used_bytes(disk), 0);
    struct pl_disk_counts c = pl_disk_counts(disk);
    assert_int_equal(c.ops[PL_DISK_WRITE], 2);
    assert_int_equal(c.bytes_written, 6);
}

static void test_synced_survives(void **state)
{
    (void)state;
    for (int i = 0; i < 200; i++) {
        struct pl_file *file = open_file("a", PL_FILE_CREATE);
        assert_int_equal(write_text(file, 0, "durable"), PELAGO_OK);
        assert_int_equal(dir.ops->sync(dir.self, file), PELAGO_OK);
        assert_int_equal(dir.ops->sync_dir(dir.self), PELAGO_OK);
        pl_disk_power_cut(disk);
        assert_true(content_is("a", "durable"));
    }
    assert_int_equal(pl_disk_counts(disk).power_cuts, 200);
}

/* Unsynced bytes behind synced ones: every fate occurs, and the synced ones stay. */
static void test_unsynced_is_lost_kept_and_torn(void **state)
{
    (void)state;
    unsigned lost = 0, kept = 0, torn = 0, zeros = 0, reordered = 0;
    uint8_t big[2048];
    memset(big, 'n', sizeof big);
    for (int i = 0; i < 600; i++) {
        struct pl_file *file = open_file("a", PL_FILE_CREATE);
        assert_int_equal(write_text(file, 0, "old"), PELAGO_OK);
        assert_int_equal(dir.ops->sync(dir.self, file), PELAGO_OK);
        assert_int_equal(dir.ops->sync_dir(dir.self), PELAGO_OK);
        const struct pl_bytes part = {big, sizeof big};
        assert_int_equal(dir.ops->write_at(dir.self, file, 3, &part, 1), PELAGO_OK);
        assert_int_equal(write_text(file, 3 + sizeof big, "last"), PELAGO_OK);
        pl_disk_power_cut(disk);
        uint64_t len;
        const uint8_t *bytes = pl_disk_peek(disk, "a", &len);
        assert_true(len >= 3 && len <= 3 + sizeof big + 4);
        assert_memory_equal(bytes, "old", 3);
        unsigned n = 0, z = 0;
        for (size_t k = 3; k < len && k < 3 + sizeof big; k++) {
            n += bytes[k] == 'n';
            z += bytes[k] == 0;
        }
        lost += n == 0;
        kept += n == sizeof big;
        torn += n > 0 && n < sizeof big;
        zeros += z > 0;
        reordered += n < sizeof big && len == 3 + sizeof big + 4 && memcmp(bytes + len - 4, "last", 4) == 0;
    }
    assert_true(lost > 50 && kept > 50 && torn > 50 && zeros > 50 && reordered > 20);
}

static void test_names_may_be_lost(void **state)
{
    (void)state;
    unsigned created = 0, renamed = 0, removed = 0;
    for (int i = 0; i < 300; i++) {
        pl_disk_free(disk);
        disk = pl_disk_new(&memory.alloc, (uint64_t)i);
        dir = pl_disk_dir(disk);
        assert_int_equal(pl_disk_put(disk, "x", "x", 1), PELAGO_OK);
        assert_int_equal(pl_disk_put(disk, "y", "y", 1), PELAGO_OK);
        dir.ops->close(dir.self, open_file("new", PL_FILE_CREATE));
        assert_int_equal(dir.ops->rename(dir.self, "x", "z"), PELAGO_OK);
        assert_int_equal(dir.ops->remove(dir.self, "y"), PELAGO_OK);
        pl_disk_power_cut(disk);
        uint64_t len;
        created += pl_disk_peek(disk, "new", &len) != NULL;
        renamed += pl_disk_peek(disk, "z", &len) != NULL;
        removed += pl_disk_peek(disk, "y", &len) == NULL;
        assert_int_equal(content_is("x", "x") + content_is("z", "x"), 1); /* atomic */
    }
    assert_in_range(created, 50, 250);
    assert_in_range(renamed, 50, 250);
    assert_in_range(removed, 50, 250);
}

static void test_process_death_loses_nothing(void **state)
{
    (void)state;
    struct pl_file *file = open_file("a", PL_FILE_CREATE);
    assert_int_equal(write_text(file, 0, "text"), PELAGO_OK);
    pl_disk_process_died(disk);
    assert_true(content_is("a", "text"));
}

/* After a failed sync the bytes may be seen or not; a later good sync does not promise them. */
static void test_failed_sync(void **state)
{
    (void)state;
    unsigned seen = 0, there = 0;
    for (int i = 0; i < 300; i++) {
        struct pl_file *file = open_file("a", PL_FILE_CREATE);
        assert_int_equal(dir.ops->sync(dir.self, file), PELAGO_OK);
        assert_int_equal(dir.ops->sync_dir(dir.self), PELAGO_OK);
        assert_int_equal(write_text(file, 0, "text"), PELAGO_OK);
        pl_disk_set_fault(disk, PL_DISK_SYNC, (struct pl_disk_fault){0, 1, PELAGO_IO});
        assert_int_equal(dir.ops->sync(dir.self, file), PELAGO_IO);
        assert_int_equal(dir.ops->sync(dir.self, file), PELAGO_OK);
        seen += content_is("a", "text");
        pl_disk_power_cut(disk);
        there += content_is("a", "text");
    }
    assert_true(there > 50 && seen > there + 50 && seen < 300);
}

static void test_faults(void **state)
{
    (void)state;
    struct pl_file *file = open_file("a", PL_FILE_CREATE);
    pl_disk_set_fault(disk, PL_DISK_WRITE, (struct pl_disk_fault){1, 2, PELAGO_IO});
    assert_int_equal(write_text(file, 0, "1"), PELAGO_OK);
    assert_int_equal(write_text(file, 0, "2"), PELAGO_IO);
    assert_int_equal(write_text(file, 0, "3"), PELAGO_IO);
    assert_int_equal(write_text(file, 0, "4"), PELAGO_OK);
    assert_true(content_is("a", "4"));
    pl_disk_set_fault(disk, PL_DISK_META, (struct pl_disk_fault){0, UINT64_MAX, PELAGO_FULL});
    for (int i = 0; i < 5; i++) {
        assert_int_equal(dir.ops->rename(dir.self, "a", "b"), PELAGO_FULL);
        assert_int_equal(dir.ops->remove(dir.self, "a"), PELAGO_FULL);
        assert_int_equal(dir.ops->truncate(dir.self, file, 0), PELAGO_FULL);
        assert_int_equal(dir.ops->sync_dir(dir.self), PELAGO_FULL);
    }
    assert_true(content_is("a", "4"));
    expect_assert(pl_disk_set_fault(disk, PL_DISK_META, (struct pl_disk_fault){0, 1, PELAGO_OK}));
    expect_assert(dir.ops->close(dir.self, NULL));
}

static void test_capacity(void **state)
{
    (void)state;
    struct pl_file *file = open_file("a", PL_FILE_CREATE);
    pl_disk_set_capacity(disk, 6);
    assert_int_equal(write_text(file, 0, "1234"), PELAGO_OK);
    assert_int_equal(write_text(file, 4, "5678"), PELAGO_FULL);
    assert_true(content_is("a", "123456"));
    assert_int_equal(write_text(file, 0, "abcdef"), PELAGO_OK);
    pl_disk_set_capacity(disk, 8);
    assert_int_equal(write_text(file, 6, "gh"), PELAGO_OK);
    assert_int_equal(write_text(file, 20, "z"), PELAGO_FULL);
    assert_int_equal(pl_disk_used_bytes(disk), 8);
}

static void test_dies(void **state)
{
    (void)state;
    struct pl_file *file = open_file("a", PL_FILE_CREATE);
    struct pl_file *other;
    uint64_t bytes;
    char into[1];
    pl_disk_dies_after(disk, 1);
    assert_int_equal(write_text(file, 0, "1"), PELAGO_OK);
    assert_false(pl_disk_is_dead(disk));
    assert_int_equal(write_text(file, 1, "2"), PELAGO_IO);
    assert_true(pl_disk_is_dead(disk));
    assert_int_equal(write_text(file, 2, "3"), PELAGO_IO);
    assert_int_equal(dir.ops->read_at(dir.self, file, 0, into, 1), PELAGO_IO);
    assert_int_equal(dir.ops->size(dir.self, file, &bytes), PELAGO_IO);
    assert_int_equal(dir.ops->sync(dir.self, file), PELAGO_IO);
    assert_int_equal(dir.ops->sync_dir(dir.self), PELAGO_IO);
    assert_int_equal(dir.ops->truncate(dir.self, file, 0), PELAGO_IO);
    assert_int_equal(dir.ops->rename(dir.self, "nothing", "b"), PELAGO_IO);
    assert_int_equal(dir.ops->remove(dir.self, "nothing"), PELAGO_IO);
    assert_int_equal(dir.ops->open(dir.self, "a", PL_FILE_READ, &other), PELAGO_IO);
    assert_int_equal(dir.ops->list(dir.self, NULL, NULL), PELAGO_IO);
    pl_disk_process_died(disk);
    assert_false(pl_disk_is_dead(disk));
    assert_true(content_is("a", "12"));
}

static void test_rot(void **state)
{
    (void)state;
    assert_int_equal(pl_disk_put(disk, "a", "abc", 3), PELAGO_OK);
    assert_true(pl_disk_rot(disk, "a", 1, 3));
    assert_true(content_is("a", "aac"));
    pl_disk_power_cut(disk);
    assert_true(content_is("a", "aac"));
    assert_false(pl_disk_rot(disk, "a", 3, 1));
    assert_false(pl_disk_rot(disk, "b", 0, 1));
}

/* A disk of the same seed does the same. */
static void test_deterministic(void **state)
{
    (void)state;
    uint8_t first[64] = {0};
    for (int round = 0; round < 2; round++) {
        pl_disk_free(disk);
        disk = pl_disk_new(&memory.alloc, 42);
        dir = pl_disk_dir(disk);
        for (size_t i = 0; i < sizeof first; i++) {
            struct pl_file *file = open_file("a", PL_FILE_CREATE);
            assert_int_equal(write_text(file, 0, "some text"), PELAGO_OK);
            pl_disk_power_cut(disk);
            uint64_t len = 99;
            pl_disk_peek(disk, "a", &len);
            if (round == 0)
                first[i] = (uint8_t)len;
            assert_int_equal(first[i], len);
        }
    }
}

static void test_no_memory(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < 40; n++) {
        struct counting_alloc poor;
        struct pl_file *file = NULL;
        counting_alloc_init(&poor);
        poor.fail_at = n;
        poor.fail_times = 1;
        struct pl_disk *d = pl_disk_new(&poor.alloc, 1);
        assert_true(n > 0 || d == NULL);
        if (d == NULL)
            continue;
        const struct pl_dir on = pl_disk_dir(d);
        const struct pl_bytes part = {"0123456789", 10};
        enum pelago_status st = pl_disk_put(d, "p", "p", 1);
        if (st == PELAGO_OK)
            st = on.ops->open(on.self, "a", PL_FILE_CREATE, &file);
        for (uint64_t i = 0; st == PELAGO_OK && i < 40; i++)
            st = on.ops->write_at(on.self, file, 10 * i, &part, 1);
        if (st == PELAGO_OK)
            st = on.ops->truncate(on.self, file, 1000);
        if (st == PELAGO_OK)
            st = on.ops->rename(on.self, "a", "b");
        if (st == PELAGO_OK)
            st = on.ops->remove(on.self, "b");
        assert_int_equal(st, poor.requests > n ? PELAGO_NOMEM : PELAGO_OK);
        pl_disk_free(d);
        assert_int_equal(poor.bytes, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_files, setup, teardown),
        cmocka_unit_test_setup_teardown(test_synced_survives, setup, teardown),
        cmocka_unit_test_setup_teardown(test_unsynced_is_lost_kept_and_torn, setup, teardown),
        cmocka_unit_test_setup_teardown(test_names_may_be_lost, setup, teardown),
        cmocka_unit_test_setup_teardown(test_process_death_loses_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(test_failed_sync, setup, teardown),
        cmocka_unit_test_setup_teardown(test_faults, setup, teardown),
        cmocka_unit_test_setup_teardown(test_capacity, setup, teardown),
        cmocka_unit_test_setup_teardown(test_dies, setup, teardown),
        cmocka_unit_test_setup_teardown(test_rot, setup, teardown),
        cmocka_unit_test_setup_teardown(test_deterministic, setup, teardown),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
