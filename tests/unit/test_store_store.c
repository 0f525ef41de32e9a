/* The contracts of store/store.h: appending, syncing, files, snapshots, failure and resume. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "memdisk.h"

static struct world world;

static int setup(void **state)
{
    (void)state;
    world_init(&world, 1);
    world.quiet = true;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    world_release(&world);
    return 0;
}

static void append_synced(uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(world_append(&world), PELAGO_OK);
        assert_int_equal(world_sync(&world), PELAGO_OK);
    }
}

static void reopen(void)
{
    world_close(&world);
    assert_int_equal(world_open(&world), PELAGO_OK);
}

struct tally {
    unsigned journals, snapshots, others;
};

static enum pelago_status count_name(void *user, const char *name)
{
    struct tally *t = user;
    uint64_t number;
    t->journals += pl_segment_name_parse(name, &number);
    t->snapshots += pl_snapshot_name_parse(name, &number);
    t->others += !pl_segment_name_parse(name, &number) && !pl_snapshot_name_parse(name, &number);
    return PELAGO_OK;
}

static struct tally count_files(void)
{
    struct tally t = {0};
    const struct pl_dir dir = pl_disk_dir(world.disk);
    assert_int_equal(dir.ops->list(dir.self, count_name, &t), PELAGO_OK);
    return t;
}

static void test_fresh(void **state)
{
    (void)state;
    assert_int_equal(world_open(&world), PELAGO_OK);
    assert_true(world.report.fresh);
    assert_false(world.report.has_snapshot);
    assert_int_equal(pl_store_last_seq(&world.store), 0);
    assert_int_equal(world_sync(&world), PELAGO_OK);
    assert_int_equal(pl_store_failure(&world.store), PELAGO_OK);
    assert_false(pl_store_wants_snapshot(&world.store));
    assert_int_equal(count_files().journals, 1);
    /* Opening again and again leaves one file, which is newer each time. */
    for (int i = 0; i < 10; i++)
        reopen();
    assert_false(world.report.fresh);
    assert_int_equal(count_files().journals, 1);
    assert_int_equal(world.store.journal.generation, 11);
    assert_int_equal(world.store.owner_epoch, 11);
}

static void test_options(void **state)
{
    (void)state;
    const struct pl_store_options good = world.options;
    world.options.record_bytes_max = PL_RECORD_BYTES_MAX + 1;
    assert_int_equal(world_open(&world), PELAGO_INVALID);
    world.options = good;
    world.options.scratch_bytes = pl_store_scratch_bytes(good.record_bytes_max) - 1;
    assert_int_equal(world_open(&world), PELAGO_INVALID);
    assert_non_null(strstr(world.error.text, "131087 bytes; 131088 are needed"));
    world.options.scratch = NULL;
    assert_int_equal(world_open(&world), PELAGO_INVALID);
    world.options = good;
    world.options.segment_bytes = 0;
    assert_int_equal(world_open(&world), PELAGO_INVALID);
    world.options = good;
    world.options.snapshot_after_bytes = 0;
    assert_int_equal(world_open(&world), PELAGO_INVALID);
    assert_int_equal(pl_disk_counts(world.disk).ops[PL_DISK_META], 0);
    assert_int_equal(pl_store_scratch_bytes(100000), 100000 + PL_BLOCK_MEMORY_BYTES);
}

static void test_append_limits(void **state)
{
    (void)state;
    uint8_t data[WORLD_RECORD_BYTES_MAX + 1] = {0};
    struct pl_bytes parts[PL_RECORD_PARTS_MAX + 1];
    uint64_t seq = 0;
    for (size_t i = 0; i <= PL_RECORD_PARTS_MAX; i++)
        parts[i] = (struct pl_bytes){data, 1};
    assert_int_equal(world_open(&world), PELAGO_OK);
    assert_int_equal(pl_store_append(&world.store, 1, parts, PL_RECORD_PARTS_MAX + 1, &seq, &world.error),
                     PELAGO_INVALID);
    parts[0].len = WORLD_RECORD_BYTES_MAX + 1;
    assert_int_equal(pl_store_append(&world.store, 1, parts, 1, &seq, &world.error), PELAGO_LIMIT);
    parts[0].len = SIZE_MAX; /* the sum must not wrap */
    assert_int_equal(pl_store_append(&world.store, 1, parts, 3, &seq, &world.error), PELAGO_LIMIT);
    assert_int_equal(pl_store_last_seq(&world.store), 0);
    assert_int_equal(pl_store_failure(&world.store), PELAGO_OK);
    parts[0].len = 1;
    assert_int_equal(pl_store_append(&world.store, 1, parts, PL_RECORD_PARTS_MAX, &seq, &world.error),
                     PELAGO_OK);
    assert_int_equal(seq, 1);
    parts[0].len = WORLD_RECORD_BYTES_MAX;
    assert_int_equal(pl_store_append(&world.store, 1, parts, 1, &seq, NULL), PELAGO_OK);
    assert_int_equal(pl_store_append(&world.store, 1, NULL, 0, &seq, NULL), PELAGO_OK);
    assert_int_equal(seq, 3);
    world.store.journal.end.next_seq = PL_COUNT_MAX;
    assert_int_equal(pl_store_append(&world.store, 1, NULL, 0, &seq, NULL), PELAGO_LIMIT);
}

/* Durable means: one sync of the file for each sync of the store, and none when there is nothing new. */
static void test_one_sync_each(void **state)
{
    (void)state;
    assert_int_equal(world_open(&world), PELAGO_OK);
    uint64_t before = pl_disk_counts(world.disk).ops[PL_DISK_SYNC];
    uint64_t writes = pl_disk_counts(world.disk).ops[PL_DISK_WRITE];
    append_synced(10);
    assert_int_equal(pl_disk_counts(world.disk).ops[PL_DISK_SYNC] - before, 10);
    assert_int_equal(pl_disk_counts(world.disk).ops[PL_DISK_WRITE] - writes, 20);
    assert_int_equal(world_sync(&world), PELAGO_OK);
    assert_int_equal(pl_disk_counts(world.disk).ops[PL_DISK_SYNC] - before, 10);
    assert_int_equal(world_append(&world), PELAGO_OK);
    assert_int_equal(pl_store_durable_seq(&world.store), 10);
    assert_int_equal(pl_store_last_seq(&world.store), 11);
    /* Closing makes the record durable, and then the mark behind it. */
    world_close(&world);
    assert_int_equal(pl_disk_counts(world.disk).ops[PL_DISK_SYNC] - before, 12);
    for (int i = 0; i < 20; i++) {
        world_power_cut(&world);
        assert_int_equal(world_open(&world), PELAGO_OK);
        assert_int_equal(world.report.replayed, 11);
        world_close(&world);
    }
}

static void test_files_follow_each_other(void **state)
{
    (void)state;
    world.options.segment_bytes = 600;
    world.options.snapshot_after_bytes = 1000000;
    assert_int_equal(world_open(&world), PELAGO_OK);
    append_synced(60);
    unsigned files = count_files().journals;
    assert_true(files > 10);
    reopen();
    assert_int_equal(world.report.replayed, 60);
    assert_true(count_files().journals <= files + 1);
    world.options.verify_all = true;
    reopen();
    assert_int_equal(world.report.spares_bad, 0);
}

/* A file per record: the table does not overflow, the last file grows instead, and a snapshot makes room. */
static void test_many_files(void **state)
{
    (void)state;
    world.options.segment_bytes = 1;
    world.options.snapshot_after_bytes = 1u << 30;
    assert_int_equal(world_open(&world), PELAGO_OK);
    for (int i = 0; i < 300; i++) {
        append_synced(1);
        assert_int_equal(pl_store_wants_snapshot(&world.store), i >= PL_SEGMENTS_MAX / 4);
    }
    assert_int_equal(count_files().journals, PL_SEGMENTS_MAX - 2);
    for (int i = 0; i < 5; i++) {
        reopen();
        append_synced(3);
        assert_true(count_files().journals <= PL_SEGMENTS_MAX);
    }
    /* The same by failures: each resume begins a file. */
    for (int i = 0; i < 5; i++) {
        pl_disk_set_fault(world.disk, PL_DISK_SYNC, (struct pl_disk_fault){0, 1, PELAGO_IO});
        assert_int_equal(world_append(&world), PELAGO_OK);
        assert_int_equal(world_sync(&world), PELAGO_IO);
        assert_int_equal(world_resume(&world), PELAGO_OK);
        append_synced(1);
        assert_true(count_files().journals <= PL_SEGMENTS_MAX);
    }
    assert_int_equal(world_snapshot(&world), PELAGO_OK);
    append_synced(1);
    assert_int_equal(world_snapshot(&world), PELAGO_OK);
    assert_true(count_files().journals <= 3);
    assert_false(pl_store_wants_snapshot(&world.store));
    reopen();
}

static void test_snapshot_policy(void **state)
{
    (void)state;
    world.options.segment_bytes = 5000;
    world.options.snapshot_after_bytes = 20000;
    assert_int_equal(world_open(&world), PELAGO_OK);
    for (int round = 0; round < 4; round++) {
        uint64_t before = pl_disk_counts(world.disk).bytes_written;
        while (!pl_store_wants_snapshot(&world.store))
            append_synced(1);
        uint64_t written = pl_disk_counts(world.disk).bytes_written - before;
        assert_in_range(written, 20000, 26000);
        assert_int_equal(world_snapshot(&world), PELAGO_OK);
        assert_false(pl_store_wants_snapshot(&world.store));
    }
    /* Two snapshots, and the journal since the older of them. */
    struct tally t = count_files();
    assert_int_equal(t.snapshots, 2);
    assert_int_equal(t.others, 0);
    assert_true(t.journals <= 7);
    /* The count goes on where it was after opening. */
    append_synced(5);
    uint64_t bytes = world.store.journal.end.offset;
    reopen();
    assert_int_equal(world.store.journal.end.offset, bytes - 5 * PL_RECORD_HEADER_BYTES);
    while (!pl_store_wants_snapshot(&world.store))
        append_synced(1);
}

static void test_snapshot_is_used(void **state)
{
    (void)state;
    world.filler_bytes = 2 * PL_BLOCK_BYTES + 17;
    assert_int_equal(world_open(&world), PELAGO_OK);
    assert_int_equal(world_snapshot(&world), PELAGO_OK); /* of nothing */
    reopen();
    assert_true(world.report.has_snapshot);
    assert_int_equal(world.report.snapshot_seq, 0);
    append_synced(5);
    assert_int_equal(world_snapshot(&world), PELAGO_OK);
    reopen();
    assert_int_equal(world.report.snapshot_seq, 5);
    assert_int_equal(world.report.replayed, 0);
    append_synced(2);
    reopen();
    assert_int_equal(world.report.replayed, 2);
    assert_int_equal(world.report.carried, 2);
    /* The same record again: the file is replaced. */
    assert_int_equal(world_snapshot(&world), PELAGO_OK);
    assert_int_equal(world_snapshot(&world), PELAGO_OK);
    reopen();
    assert_int_equal(world.report.snapshot_seq, 7);
    assert_int_equal(count_files().snapshots, 2);
}

static void test_snapshot_misuse(void **state)
{
    (void)state;
    struct pl_store *s = &world.store;
    struct pl_section sections[PL_SECTIONS_MAX + 1] = {{.tag = 1, .length = 4}};
    assert_int_equal(world_open(&world), PELAGO_OK);
    assert_int_equal(pl_store_snapshot_write(s, "x", 1, &world.error), PELAGO_INVALID);
    assert_int_equal(pl_store_snapshot_commit(s, &world.error), PELAGO_INVALID);
    assert_int_equal(pl_store_snapshot_begin(s, sections, PL_SECTIONS_MAX + 1, NULL), PELAGO_LIMIT);
    sections[0].length = PL_SECTION_BYTES_MAX + 1;
    assert_int_equal(pl_store_snapshot_begin(s, sections, 1, NULL), PELAGO_LIMIT);
    sections[0].length = 4;
    assert_int_equal(pl_store_snapshot_begin(s, sections, 1, &world.error), PELAGO_OK);
    assert_false(pl_store_wants_snapshot(s));
    assert_int_equal(pl_store_snapshot_begin(s, sections, 1, &world.error), PELAGO_INVALID);
    assert_int_equal(pl_store_snapshot_write(s, "123", 3, &world.error), PELAGO_OK);
    assert_int_equal(pl_store_snapshot_commit(s, &world.error), PELAGO_INVALID);
    assert_non_null(strstr(world.error.text, "section 0 lacks 1 bytes"));
    assert_int_equal(pl_store_snapshot_begin(s, sections, 1, &world.error), PELAGO_OK);
    assert_int_equal(pl_store_snapshot_write(s, "12345", 5, &world.error), PELAGO_INVALID);
    pl_store_snapshot_abort(s); /* nothing to do: a failed one is given up already */
    assert_int_equal(count_files().others, 0);
    assert_int_equal(pl_store_snapshot_begin(s, sections, 1, &world.error), PELAGO_OK);
    pl_store_snapshot_abort(s);
    assert_int_equal(count_files().others, 0);
    /* No sections at all are allowed. */
    assert_int_equal(pl_store_snapshot_begin(s, NULL, 0, &world.error), PELAGO_OK);
    assert_int_equal(pl_store_snapshot_commit(s, &world.error), PELAGO_OK);
    assert_int_equal(count_files().snapshots, 1);
    /* A snapshot that is under way when the store closes leaves nothing. */
    assert_int_equal(pl_store_snapshot_begin(s, sections, 1, &world.error), PELAGO_OK);
    world_close(&world);
    assert_int_equal(count_files().others, 0);
}

static void rot_snapshot(uint64_t seq)
{
    char name[PL_FILE_NAME_MAX];
    pl_snapshot_name(seq, name);
    assert_true(pl_disk_rot(world.disk, name, 150, 1));
}

/* The newest is damaged: the older one and the journal give the same; the next snapshot puts things right. */
static void test_older_snapshot(void **state)
{
    (void)state;
    assert_int_equal(world_open(&world), PELAGO_OK);
    append_synced(3);
    assert_int_equal(world_snapshot(&world), PELAGO_OK);
    append_synced(3);
    assert_int_equal(world_snapshot(&world), PELAGO_OK);
    append_synced(3);
    rot_snapshot(6);
    reopen();
    assert_int_equal(world.report.snapshots_bad, 1);
    assert_int_equal(world.report.snapshot_seq, 3);
    assert_int_equal(world.report.replayed, 6);
    assert_non_null(
        strstr(world.report.snapshot_error.text, "snapshot-0000000000000006.pl: the block at offset"));
    assert_int_equal(count_files().snapshots, 2); /* the evidence stays for now */
    append_synced(1);
    assert_int_equal(world_snapshot(&world), PELAGO_OK);
    assert_int_equal(count_files().snapshots, 2);
    rot_snapshot(10);
    reopen();
    assert_int_equal(world.report.snapshot_seq, 3);
    assert_int_equal(world.report.replayed, 7);
}

/* The only snapshot there ever was is damaged: the whole journal is still there. */
static void test_no_good_snapshot(void **state)
{
    (void)state;
    assert_int_equal(world_open(&world), PELAGO_OK);
    append_synced(3);
    assert_int_equal(world_snapshot(&world), PELAGO_OK);
    append_synced(3);
    rot_snapshot(3);
    reopen();
    assert_false(world.report.has_snapshot);
    assert_int_equal(world.report.snapshots_bad, 1);
    assert_int_equal(world.report.replayed, 6);
}

static void stop_store(enum pl_disk_op op)
{
    pl_disk_set_fault(world.disk, op, (struct pl_disk_fault){0, 1, PELAGO_IO});
    if (op == PL_DISK_WRITE) {
        assert_int_equal(world_append(&world), PELAGO_IO);
    } else {
        assert_int_equal(world_append(&world), PELAGO_OK);
        assert_int_equal(world_sync(&world), PELAGO_IO);
    }
    assert_int_equal(pl_store_failure(&world.store), PELAGO_IO);
}

static void test_stopped(void **state)
{
    (void)state;
    uint64_t seq;
    assert_int_equal(world_open(&world), PELAGO_OK);
    append_synced(3);
    assert_int_equal(world_resume(&world), PELAGO_OK); /* nothing to do */
    stop_store(PL_DISK_WRITE);
    assert_int_equal(pl_store_append(&world.store, 0, NULL, 0, &seq, &world.error), PELAGO_IO);
    assert_non_null(strstr(world.error.text, "stopped after an earlier failure"));
    assert_int_equal(pl_store_sync(&world.store, &world.error), PELAGO_IO);
    assert_int_equal(pl_store_snapshot_begin(&world.store, NULL, 0, &world.error), PELAGO_IO);
    assert_int_equal(world_resume(&world), PELAGO_OK);
    assert_int_equal(pl_store_last_seq(&world.store), 3);
    append_synced(1);
    stop_store(PL_DISK_SYNC);
    assert_int_equal(pl_store_close(&world.store, &world.error), PELAGO_IO);
    world_process_dies(&world);
    assert_int_equal(world_open(&world), PELAGO_OK);
}

/* The record is durable though the mark after it could not be written. */
static void test_mark_fails(void **state)
{
    (void)state;
    assert_int_equal(world_open(&world), PELAGO_OK);
    assert_int_equal(world_append(&world), PELAGO_OK);
    pl_disk_set_fault(world.disk, PL_DISK_WRITE, (struct pl_disk_fault){0, 1, PELAGO_FULL});
    assert_int_equal(world_sync(&world), PELAGO_OK);
    assert_int_equal(pl_store_failure(&world.store), PELAGO_FULL);
    assert_int_equal(world_append(&world), PELAGO_FULL);
    world_power_cut(&world);
    assert_int_equal(world_open(&world), PELAGO_OK);
    assert_int_equal(world.report.replayed, 1);
}

/* Records that were appended, not synced, and survive in the file are carried over by resume. */
static void test_resume_carries(void **state)
{
    (void)state;
    unsigned carried = 0, dropped = 0;
    for (uint64_t seed = 0; seed < 100; seed++) {
        world_release(&world);
        world_init(&world, seed);
        world.options.segment_bytes = seed % 2 == 0 ? 1000 : 100000;
        assert_int_equal(world_open(&world), PELAGO_OK);
        append_synced(4);
        assert_int_equal(world_append(&world), PELAGO_OK);
        stop_store(PL_DISK_SYNC);
        assert_int_equal(world_resume(&world), PELAGO_OK);
        carried += world.last_seq == 6;
        dropped += world.last_seq == 4;
        append_synced(1);
        world_power_cut(&world);
        assert_int_equal(world_open(&world), PELAGO_OK);
    }
    assert_true(carried > 20 && dropped > 20);
}

/* Rot and loss in the file that is being written: resume says so instead of going on. */
static void test_resume_finds_damage(void **state)
{
    (void)state;
    world.options.segment_bytes = 1000000;
    assert_int_equal(world_open(&world), PELAGO_OK);
    append_synced(3);
    stop_store(PL_DISK_WRITE);
    assert_true(pl_disk_rot(world.disk, world.store.journal.name, 90, 1));
    assert_int_equal(world_resume(&world), PELAGO_CORRUPT);
    assert_non_null(strstr(world.error.text, "record 1 at offset 80 was durable"));
    assert_int_equal(world_resume(&world), PELAGO_CORRUPT);
    assert_true(pl_disk_rot(world.disk, world.store.journal.name, 90, 1));
    assert_int_equal(world_resume(&world), PELAGO_OK);
    stop_store(PL_DISK_WRITE);
    const struct pl_dir dir = pl_disk_dir(world.disk);
    assert_int_equal(dir.ops->truncate(dir.self, world.store.journal.file, 10), PELAGO_OK);
    assert_int_equal(world_resume(&world), PELAGO_CORRUPT);
    assert_non_null(strstr(world.error.text, "lost durable bytes"));
}

/* Old snapshots that cannot be removed do not pile up for ever. */
static void test_removal_fails(void **state)
{
    (void)state;
    assert_int_equal(world_open(&world), PELAGO_OK);
    enum pelago_status st = PELAGO_OK;
    unsigned taken = 0;
    for (; st == PELAGO_OK && taken < 100; taken++) {
        append_synced(1);
        const struct pl_section none = {.tag = 1};
        st = pl_store_snapshot_begin(&world.store, &none, 1, &world.error);
        if (st != PELAGO_OK)
            break;
        /* create; rename, sync_dir; then the removals */
        pl_disk_set_fault(world.disk, PL_DISK_META, (struct pl_disk_fault){2, UINT64_MAX, PELAGO_IO});
        assert_int_equal(pl_store_snapshot_commit(&world.store, &world.error), PELAGO_OK);
        struct pl_disk_fault prune_too = {2, UINT64_MAX, PELAGO_IO};
        if (world.store.snapshot_count < PL_SNAPSHOTS_MAX)
            prune_too.times = 0;
        else
            prune_too.after = 0;
        pl_disk_set_fault(world.disk, PL_DISK_META, prune_too);
    }
    assert_int_equal(st, PELAGO_LIMIT);
    assert_int_equal(taken, PL_SNAPSHOTS_MAX);
    assert_non_null(strstr(world.error.text, "old ones cannot be removed"));
    pl_disk_set_fault(world.disk, PL_DISK_META, (struct pl_disk_fault){.times = 0});
    assert_int_equal(pl_store_snapshot_begin(&world.store, NULL, 0, &world.error), PELAGO_OK);
    assert_int_equal(pl_store_snapshot_commit(&world.store, &world.error), PELAGO_OK);
    assert_int_equal(count_files().snapshots, 2);
}

/* Somebody else removed an old snapshot, or put one there that is none. */
static void test_strange_snapshots(void **state)
{
    (void)state;
    const struct pl_dir dir = pl_disk_dir(world.disk);
    assert_int_equal(pl_disk_put(world.disk, "snapshot-0000000000000004.pl", "no", 2), PELAGO_OK);
    assert_int_equal(world_open(&world), PELAGO_CORRUPT);
    assert_int_equal(dir.ops->remove(dir.self, "snapshot-0000000000000004.pl"), PELAGO_OK);
    assert_int_equal(world_open(&world), PELAGO_OK);
    assert_int_equal(pl_disk_put(world.disk, "snapshot-0000000000000004.pl", "no", 2), PELAGO_OK);
    reopen();
    assert_int_equal(world.report.snapshots_bad, 1);
    for (uint64_t i = 0; i < 3; i++) {
        append_synced(1);
        assert_int_equal(world_snapshot(&world), PELAGO_OK);
        assert_int_equal(count_files().snapshots, i == 0 ? 2 : 3);
    }
    assert_int_equal(dir.ops->remove(dir.self, "snapshot-0000000000000002.pl"), PELAGO_OK);
    append_synced(2);
    assert_int_equal(world_snapshot(&world), PELAGO_OK);
    assert_int_equal(count_files().snapshots, 2);
    assert_int_equal(world.store.snapshot_count, 2);
    reopen();
    assert_int_equal(world.report.snapshots_bad, 0);
}

/* Its name could not be made durable: it is not counted on, and the next one replaces it. */
static void test_snapshot_name_fails(void **state)
{
    (void)state;
    assert_int_equal(world_open(&world), PELAGO_OK);
    for (uint64_t n = 0; n < 2; n++) {
        append_synced(1);
        assert_int_equal(pl_store_snapshot_begin(&world.store, NULL, 0, &world.error), PELAGO_OK);
        pl_disk_set_fault(world.disk, PL_DISK_META, (struct pl_disk_fault){n, 1, PELAGO_IO});
        assert_int_equal(pl_store_snapshot_commit(&world.store, &world.error), PELAGO_IO);
        assert_int_equal(pl_store_failure(&world.store), PELAGO_OK);
        assert_int_equal(world.store.snapshot_count, n);
    }
    assert_false(world.store.snapshots[0].good);
    assert_int_equal(world_snapshot(&world), PELAGO_OK);
    assert_int_equal(world.store.snapshot_count, 1);
    assert_true(world.store.snapshots[0].good);
    assert_int_equal(count_files().journals, 3); /* the empty state is the older generation */
}

/* Files of others are left alone. */
static void test_foreign_files(void **state)
{
    (void)state;
    assert_int_equal(pl_disk_put(world.disk, "README", "hello", 5), PELAGO_OK);
    assert_int_equal(pl_disk_put(world.disk, PL_JOURNAL_TEMP, "junk", 4), PELAGO_OK);
    assert_int_equal(pl_disk_put(world.disk, PL_SNAPSHOT_TEMP, "junk", 4), PELAGO_OK);
    assert_int_equal(world_open(&world), PELAGO_OK);
    append_synced(1);
    assert_int_equal(world_snapshot(&world), PELAGO_OK);
    reopen();
    assert_int_equal(count_files().others, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_fresh, setup, teardown),
        cmocka_unit_test_setup_teardown(test_options, setup, teardown),
        cmocka_unit_test_setup_teardown(test_append_limits, setup, teardown),
        cmocka_unit_test_setup_teardown(test_one_sync_each, setup, teardown),
        cmocka_unit_test_setup_teardown(test_files_follow_each_other, setup, teardown),
        cmocka_unit_test_setup_teardown(test_many_files, setup, teardown),
        cmocka_unit_test_setup_teardown(test_snapshot_policy, setup, teardown),
        cmocka_unit_test_setup_teardown(test_snapshot_is_used, setup, teardown),
        cmocka_unit_test_setup_teardown(test_snapshot_misuse, setup, teardown),
        cmocka_unit_test_setup_teardown(test_older_snapshot, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_good_snapshot, setup, teardown),
        cmocka_unit_test_setup_teardown(test_stopped, setup, teardown),
        cmocka_unit_test_setup_teardown(test_mark_fails, setup, teardown),
        cmocka_unit_test_setup_teardown(test_resume_carries, setup, teardown),
        cmocka_unit_test_setup_teardown(test_resume_finds_damage, setup, teardown),
        cmocka_unit_test_setup_teardown(test_removal_fails, setup, teardown),
        cmocka_unit_test_setup_teardown(test_strange_snapshots, setup, teardown),
        cmocka_unit_test_setup_teardown(test_snapshot_name_fails, setup, teardown),
        cmocka_unit_test_setup_teardown(test_foreign_files, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
