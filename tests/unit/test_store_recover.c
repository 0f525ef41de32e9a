/* Opening directories that no store would leave: files with right checksums and wrong content, files that are
 * missing, renamed, of another run, too many. Nothing crashes, and each refusal says what is wrong where.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/hash.h"
#include "memdisk.h"
#include "store_forge.h"

static struct world world;
static struct forge forge;

static uint64_t replayed; /* number of the last record handed over */
static enum pelago_status refusal;

/* Something that happens to the disk while record 3, or the first block of a snapshot, is handed over. */
static void (*meanwhile)(void);

static enum pelago_status replay(void *user, const struct pl_store_record *record)
{
    (void)user;
    if (record->seq == 3 && meanwhile != NULL)
        meanwhile();
    assert_int_equal(record->seq, replayed + 1);
    replayed = record->seq;
    return record->seq == 3 ? refusal : PELAGO_OK;
}

static enum pelago_status load(void *user, const struct pl_piece *piece)
{
    (void)user;
    if (meanwhile != NULL)
        meanwhile();
    replayed = pl_get_le(piece->data, 8);
    return refusal;
}

static int setup(void **state)
{
    (void)state;
    world_init(&world, 1);
    refusal = PELAGO_OK;
    meanwhile = NULL;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    world_release(&world);
    return 0;
}

static enum pelago_status open_store(void)
{
    const struct pl_store_reader reader = {load, replay, NULL};
    replayed = 0;
    memset(&world.error, 0, sizeof world.error);
    return pl_store_open(&world.store, pl_disk_dir(world.disk), &world.options, &reader, &world.report,
                         &world.error);
}

/* Opening fails like this, with these words. */
static void expect_refused(enum pelago_status status, const char *words)
{
    assert_int_equal(open_store(), status);
    if (strstr(world.error.text, words) == NULL)
        fail_msg("expected \"%s\", got \"%s\"", words, world.error.text);
    pl_disk_process_died(world.disk);
}

static void test_forged_journal_opens(void **state)
{
    (void)state;
    forge_begin(&forge, 1, 1, 0, pl_link_start(forge_run_id));
    forge_records(&forge, 5);
    forge_store(&forge, world.disk);
    assert_int_equal(open_store(), PELAGO_OK);
    assert_int_equal(replayed, 5);
    assert_int_equal(world.store.owner_epoch, 2);
    assert_int_equal(world.store.journal.generation, 2);
}

/* After two good records comes a header that does not belong there. Nothing vouches for it: it is cut off. */
static void test_heads_that_do_not_fit(void **state)
{
    (void)state;
    for (int i = 0; i < 9; i++) {
        forge_begin(&forge, 1, 1, 0, pl_link_start(forge_run_id));
        forge_records(&forge, 2);
        struct pl_record_header h = forge_header(&forge, 13);
        size_t room = 16;
        if (i == 0)
            h.seq++;
        else if (i == 1)
            h.link++;
        else if (i == 2)
            h.length = 17; /* more than the file has */
        else if (i == 3)
            h.length = PL_RECORD_BYTES_MAX + 1;
        else if (i == 4)
            h.length = UINT64_MAX;
        else if (i == 5)
            h.payload_hash++;
        else if (i == 6)
            room = 0;
        else /* a mark of another record, or with bytes */
            h = (struct pl_record_header){.mark = true,
                                          .seq = i == 7 ? 1 : 2,
                                          .durable_seq = i == 7 ? 1 : 2,
                                          .length = i == 7 ? 0 : 8,
                                          .link = forge.link};
        forge_put(&forge, &h, room);
        forge_store(&forge, world.disk);
        assert_int_equal(open_store(), PELAGO_OK);
        assert_int_equal(replayed, 2);
        assert_int_equal(world.report.tail_seq, 3);
        assert_int_equal(world.report.tail_bytes, PL_RECORD_HEADER_BYTES + room);
        assert_non_null(strstr(world.report.tail_error.text, "record 3 was not finished"));
        world_release(&world);
        world_init(&world, 1);
    }
}

/* Heads that claim the future: durable before they were written. They vouch for what is missing. */
static void test_heads_from_the_future(void **state)
{
    (void)state;
    for (int mark = 0; mark < 2; mark++) {
        forge_begin(&forge, 1, 1, 0, pl_link_start(forge_run_id));
        forge_records(&forge, 2);
        struct pl_record_header h = forge_header(&forge, 0);
        h.mark = mark != 0;
        h.seq = mark ? 2 : 3;
        h.durable_seq = 3;
        forge_put(&forge, &h, 0);
        forge_store(&forge, world.disk);
        expect_refused(PELAGO_CORRUPT, "journal-0000000000000001.pl: record 3 at offset 224 was durable");
    }
}

/* A record number that is the last there is. */
static void test_last_number(void **state)
{
    (void)state;
    forge_begin(&forge, 1, PL_COUNT_MAX - 1, PL_COUNT_MAX - 2, 77);
    forge_records(&forge, 2);
    forge_store(&forge, world.disk);
    forge_snapshot(world.disk, PL_COUNT_MAX - 2, 77, forge_run_id);
    assert_int_equal(open_store(), PELAGO_OK);
    assert_int_equal(replayed, PL_COUNT_MAX - 1);
    assert_true(world.report.tail_bytes > 0);
    uint64_t seq;
    assert_int_equal(pl_store_append(&world.store, 0, NULL, 0, &seq, &world.error), PELAGO_LIMIT);
}

/* File numbers and owners that end where numbers end. */
static void test_no_file_numbers_left(void **state)
{
    (void)state;
    forge_begin(&forge, PL_COUNT_MAX - 2, 1, 0, pl_link_start(forge_run_id));
    forge_records(&forge, 3);
    forge_store(&forge, world.disk);
    assert_int_equal(open_store(), PELAGO_OK);
    pl_disk_process_died(world.disk);
    expect_refused(PELAGO_LIMIT, "no file numbers left");
    world_release(&world);
    world_init(&world, 1);
    forge_begin(&forge, 1, 1, 0, pl_link_start(forge_run_id));
    forge.head.owner_epoch = PL_COUNT_MAX - 1;
    pl_segment_header_put(&forge.head, forge.bytes);
    forge_store(&forge, world.disk);
    expect_refused(PELAGO_LIMIT, "no file numbers left");
}

static void test_record_too_large(void **state)
{
    (void)state;
    forge_begin(&forge, 1, 1, 0, pl_link_start(forge_run_id));
    const struct pl_record_header h = forge_header(&forge, WORLD_RECORD_BYTES_MAX + 1000);
    world.options.record_bytes_max = 100;
    forge_put(&forge, &h, WORLD_RECORD_BYTES_MAX + 1000);
    forge_store(&forge, world.disk);
    assert_int_equal(open_store(), PELAGO_OK); /* blocks need more memory than such records */
    world_release(&world);
    world_init(&world, 1);
    static struct forge large; /* a header alone is believed only if the file has the bytes */
    forge_begin(&forge, 1, 1, 0, pl_link_start(forge_run_id));
    large = forge;
    static uint8_t file[PL_SEGMENT_HEADER_BYTES + PL_RECORD_HEADER_BYTES + 70000];
    static const uint8_t zeros[70000];
    struct pl_record_header big = {.seq = 1, .length = 70000, .link = pl_link_start(forge_run_id)};
    big.payload_hash = pl_hash64(zeros, sizeof zeros, 0);
    memcpy(file, large.bytes, PL_SEGMENT_HEADER_BYTES);
    pl_record_header_put(&big, pl_segment_seed(forge_run_id, 1), file + PL_SEGMENT_HEADER_BYTES);
    assert_int_equal(pl_disk_put(world.disk, "journal-0000000000000001.pl", file, sizeof file), PELAGO_OK);
    expect_refused(PELAGO_LIMIT, "record 1 has 70000 bytes, more than record_bytes_max allows");
}

static void test_wrong_files(void **state)
{
    (void)state;
    forge_begin(&forge, 1, 1, 0, pl_link_start(forge_run_id));
    assert_int_equal(pl_disk_put(world.disk, "journal-0000000000000001.pl", "x", 0), PELAGO_OK);
    expect_refused(PELAGO_CORRUPT, "journal-0000000000000001.pl has 0 bytes");
    assert_int_equal(pl_disk_put(world.disk, "journal-0000000000000001.pl", "x", 1), PELAGO_OK);
    expect_refused(PELAGO_CORRUPT, "journal-0000000000000001.pl has 1 bytes");
    assert_int_equal(pl_disk_put(world.disk, "journal-0000000000000001.pl", forge.bytes + 1, 80), PELAGO_OK);
    expect_refused(PELAGO_CORRUPT, "does not begin like a journal");
    forge.bytes[20] ^= 1;
    assert_int_equal(pl_disk_put(world.disk, "journal-0000000000000001.pl", forge.bytes, 80), PELAGO_OK);
    expect_refused(PELAGO_CORRUPT, "the checksum of the file header does not match");
    forge.bytes[20] ^= 1;
    assert_int_equal(pl_disk_put(world.disk, "journal-0000000000000001.pl", forge.bytes, 80), PELAGO_OK);
    const struct pl_dir dir = pl_disk_dir(world.disk);
    assert_int_equal(dir.ops->rename(dir.self, "journal-0000000000000001.pl", "journal-0000000000000002.pl"),
                     PELAGO_OK);
    expect_refused(PELAGO_CORRUPT, "journal-0000000000000002.pl says that it is file 1; it was renamed");
    assert_int_equal(dir.ops->remove(dir.self, "journal-0000000000000002.pl"), PELAGO_OK);
    forge.bytes[8] = 9;
    pl_put_le(forge.bytes + 72, pl_hash64(forge.bytes, 72, 0), 8);
    forge_store(&forge, world.disk);
    expect_refused(PELAGO_UNSUPPORTED, "has format version 9");
}

static void test_another_run(void **state)
{
    (void)state;
    forge_begin(&forge, 1, 1, 0, pl_link_start(forge_run_id));
    forge_store(&forge, world.disk);
    world.options.run_id[0] = 'x';
    expect_refused(PELAGO_INVALID, "journal-0000000000000001.pl belongs to another run");
    world.options.run_id[0] = 'r';
    uint8_t other[PL_RUN_ID_BYTES] = {1};
    forge_snapshot(world.disk, 0, 0, other);
    expect_refused(PELAGO_INVALID, "snapshot-0000000000000000.pl belongs to another run");
}

static void test_gaps(void **state)
{
    (void)state;
    /* The second file begins too late, too early for its link, or the first lacks its end. */
    forge_begin(&forge, 1, 1, 0, pl_link_start(forge_run_id));
    forge_records(&forge, 5);
    forge_store(&forge, world.disk);
    uint64_t link = forge.link;
    forge_begin(&forge, 2, 7, 6, link);
    forge_store(&forge, world.disk);
    expect_refused(PELAGO_CORRUPT, "journal-0000000000000001.pl: record 6 at offset 440 was durable");
    forge_begin(&forge, 2, 6, 5, link + 1);
    forge_store(&forge, world.disk);
    expect_refused(PELAGO_CORRUPT,
                   "journal-0000000000000002.pl does not continue the file before it, at record 6");
    /* A head that says more is durable than there is. */
    forge_begin(&forge, 2, 6, 8, link);
    forge_records(&forge, 2);
    forge_store(&forge, world.disk);
    expect_refused(PELAGO_CORRUPT, "journal-0000000000000002.pl: record 8 at offset 224 was durable");
    /* The beginning is missing. */
    const struct pl_dir dir = pl_disk_dir(world.disk);
    assert_int_equal(dir.ops->remove(dir.self, "journal-0000000000000001.pl"), PELAGO_OK);
    expect_refused(PELAGO_CORRUPT, "The journal begins with record 6, but record 1 is needed.");
}

static void test_snapshot_and_journal_disagree(void **state)
{
    (void)state;
    forge_begin(&forge, 1, 1, 0, pl_link_start(forge_run_id));
    forge_records(&forge, 3);
    uint64_t link = forge.link;
    forge_records(&forge, 3);
    forge_store(&forge, world.disk);
    forge_snapshot(world.disk, 3, link + 1, forge_run_id);
    expect_refused(PELAGO_CORRUPT, "continues another history than that of record 3");
    forge_snapshot(world.disk, 3, link, forge_run_id); /* in the middle of a file is fine */
    assert_int_equal(open_store(), PELAGO_OK);
    assert_int_equal(world.report.replayed, 3);
    pl_disk_process_died(world.disk);
    forge_snapshot(world.disk, 9, link, forge_run_id);
    expect_refused(PELAGO_CORRUPT, "record 7 at offset");
    /* The first file's history must begin with the run. */
    world_release(&world);
    world_init(&world, 1);
    forge_begin(&forge, 1, 1, 0, 5);
    forge_store(&forge, world.disk);
    expect_refused(PELAGO_CORRUPT, "continues another history than that of record 0");
    forge_snapshot(world.disk, 0, 5, forge_run_id);
    assert_int_equal(open_store(), PELAGO_OK);
}

static void test_journal_missing(void **state)
{
    (void)state;
    forge_snapshot(world.disk, 3, 1, forge_run_id);
    expect_refused(PELAGO_CORRUPT, "There are snapshots, but the journal is missing.");
}

static void test_snapshot_renamed(void **state)
{
    (void)state;
    const struct pl_dir dir = pl_disk_dir(world.disk);
    forge_begin(&forge, 1, 1, 0, pl_link_start(forge_run_id));
    forge_records(&forge, 3);
    forge_store(&forge, world.disk);
    forge_snapshot(world.disk, 3, forge.link, forge_run_id);
    assert_int_equal(
        dir.ops->rename(dir.self, "snapshot-0000000000000003.pl", "snapshot-0000000000000002.pl"), PELAGO_OK);
    assert_int_equal(open_store(), PELAGO_OK);
    assert_int_equal(world.report.snapshots_bad, 1);
    assert_non_null(strstr(world.report.snapshot_error.text, "it was renamed"));
}

/* The head, the table and every block are right, but the table is that of another section. */
static void test_section_of_another_table(void **state)
{
    (void)state;
    uint8_t bytes[PL_SNAPSHOT_HEAD_MAX];
    forge_begin(&forge, 1, 1, 0, pl_link_start(forge_run_id));
    forge_store(&forge, world.disk);
    struct pl_snapshot_header h = {.seq = 0, .link = pl_link_start(forge_run_id), .section_count = 1};
    memcpy(h.run_id, forge_run_id, sizeof forge_run_id);
    h.sections[0].hash = 12345; /* of an empty section */
    size_t len = pl_snapshot_header_put(&h, bytes);
    assert_int_equal(pl_disk_put(world.disk, "snapshot-0000000000000000.pl", bytes, len), PELAGO_OK);
    assert_int_equal(open_store(), PELAGO_OK);
    assert_int_equal(world.report.snapshots_bad, 1);
    assert_non_null(strstr(world.report.snapshot_error.text, "section 0 is not the one its table names"));
}

static void test_newer_snapshot_format(void **state)
{
    (void)state;
    uint8_t bytes[PL_SNAPSHOT_HEAD_MAX];
    struct pl_snapshot_header h = {.seq = 0, .link = pl_link_start(forge_run_id)};
    forge_begin(&forge, 1, 1, 0, pl_link_start(forge_run_id));
    forge_store(&forge, world.disk);
    memcpy(h.run_id, forge_run_id, sizeof forge_run_id);
    size_t len = pl_snapshot_header_put(&h, bytes);
    bytes[8] = 2;
    const struct pl_bytes part = {bytes, 56};
    pl_put_le(bytes + 56, pl_hash64_parts(&part, 1, 0), 8);
    assert_int_equal(pl_disk_put(world.disk, "snapshot-0000000000000000.pl", bytes, len), PELAGO_OK);
    expect_refused(PELAGO_UNSUPPORTED, "snapshot-0000000000000000.pl has format version 2");
}

/* What the caller does not want ends the opening with the caller's status. */
static void test_refused_by_the_caller(void **state)
{
    (void)state;
    forge_begin(&forge, 1, 1, 0, pl_link_start(forge_run_id));
    forge_records(&forge, 3);
    forge_store(&forge, world.disk);
    refusal = PELAGO_STALE;
    expect_refused(PELAGO_STALE, "journal-0000000000000001.pl: record 3 was refused");
    forge_snapshot(world.disk, 3, forge.link, forge_run_id);
    expect_refused(PELAGO_STALE, "snapshot-0000000000000003.pl: section 0 was refused");
    refusal = PELAGO_OK;
    assert_int_equal(open_store(), PELAGO_OK);
    assert_int_equal(replayed, 3);
}

/* Superseded files, in any order of numbers, are ignored and go. */
static void test_void_files(void **state)
{
    (void)state;
    uint64_t bytes;
    forge_begin(&forge, 1, 1, 0, pl_link_start(forge_run_id));
    forge_records(&forge, 2);
    uint64_t link = forge.link;
    forge_records(&forge, 3); /* superseded by file 4 from record 3 on */
    forge_store(&forge, world.disk);
    forge_begin(&forge, 2, 4, 3, 99); /* left over from a failed attempt */
    forge_records(&forge, 5);
    forge_store(&forge, world.disk);
    forge_begin(&forge, 3, 3, 2, 98);
    forge_store(&forge, world.disk);
    forge_begin(&forge, 4, 3, 2, link);
    forge_records(&forge, 1);
    forge_store(&forge, world.disk);
    assert_int_equal(open_store(), PELAGO_OK);
    assert_int_equal(replayed, 3);
    assert_int_equal(world.report.void_bytes, 3 * 72);
    assert_null(pl_disk_peek(world.disk, "journal-0000000000000002.pl", &bytes));
    assert_null(pl_disk_peek(world.disk, "journal-0000000000000003.pl", &bytes));
    assert_non_null(pl_disk_peek(world.disk, "journal-0000000000000001.pl", &bytes));
}

/* A damaged head matters only where the file is needed. */
static void test_damaged_head(void **state)
{
    (void)state;
    forge_begin(&forge, 1, 1, 0, pl_link_start(forge_run_id));
    forge_records(&forge, 4);
    forge_store(&forge, world.disk);
    uint64_t link = forge.link;
    forge_begin(&forge, 2, 5, 4, link);
    forge_records(&forge, 2);
    forge_store(&forge, world.disk);
    assert_true(pl_disk_rot(world.disk, "journal-0000000000000001.pl", 50, 1));
    expect_refused(PELAGO_CORRUPT, "journal-0000000000000001.pl: the checksum of the file header");
    forge_snapshot(world.disk, 4, link, forge_run_id);
    world.options.verify_all = true;
    assert_int_equal(open_store(), PELAGO_OK);
    assert_int_equal(world.report.replayed, 2);
    assert_int_equal(world.report.spares_bad, 1);
    pl_disk_process_died(world.disk);
    assert_true(pl_disk_rot(world.disk, "journal-0000000000000003.pl", 50, 1));
    expect_refused(PELAGO_CORRUPT, "journal-0000000000000003.pl: the checksum of the file header");
}

static void rot_record(void)
{
    assert_true(pl_disk_rot(world.disk, "journal-0000000000000001.pl", 100, 1));
}

static void shorten_journal(void)
{
    assert_int_equal(pl_disk_put(world.disk, "journal-0000000000000001.pl", forge.bytes, 100), PELAGO_OK);
}

static void shorten(const char *name)
{
    const struct pl_dir dir = pl_disk_dir(world.disk);
    struct pl_file *file;
    assert_int_equal(dir.ops->open(dir.self, name, PL_FILE_READ, &file), PELAGO_OK);
    assert_int_equal(dir.ops->truncate(dir.self, file, 100), PELAGO_OK);
    dir.ops->close(dir.self, file);
}

static void shorten_open_journal(void)
{
    shorten("journal-0000000000000001.pl");
}

static void shorten_open_snapshot(void)
{
    shorten("snapshot-0000000000000000.pl");
}

/* The files change while they are read. */
static void test_moving_files(void **state)
{
    (void)state;
    forge_begin(&forge, 1, 1, 0, pl_link_start(forge_run_id));
    forge_records(&forge, 3);
    forge_store(&forge, world.disk);
    meanwhile = rot_record;
    expect_refused(PELAGO_IO, "record 1 could be read once, but not again");
    rot_record();
    meanwhile = shorten_open_journal;
    expect_refused(PELAGO_IO, "journal-0000000000000001.pl: reading 56 bytes at offset 80 failed");
    forge_store(&forge, world.disk);
    meanwhile = shorten_journal; /* another file of that name: the open one is still whole */
    assert_int_equal(open_store(), PELAGO_OK);
}

static void test_moving_snapshot(void **state)
{
    (void)state;
    static uint8_t bytes[2 * PL_BLOCK_BYTES];
    const struct pl_section section = {.tag = 1, .length = sizeof bytes};
    assert_int_equal(open_store(), PELAGO_OK);
    assert_int_equal(pl_store_snapshot_begin(&world.store, &section, 1, NULL), PELAGO_OK);
    assert_int_equal(pl_store_snapshot_write(&world.store, bytes, sizeof bytes, NULL), PELAGO_OK);
    assert_int_equal(pl_store_snapshot_commit(&world.store, NULL), PELAGO_OK);
    assert_int_equal(pl_store_close(&world.store, NULL), PELAGO_OK);
    meanwhile = shorten_open_snapshot;
    expect_refused(PELAGO_IO, "snapshot-0000000000000000.pl cannot be read");
}

/* Every read of an opening that has to look behind a damaged end fails once. */
static void test_reads_behind_damage(void **state)
{
    (void)state;
    enum pelago_status st = PELAGO_IO;
    unsigned failed = 0;
    for (uint64_t n = 0; st != PELAGO_OK; n++) {
        forge_begin(&forge, 1, 1, 0, pl_link_start(forge_run_id));
        forge_records(&forge, 3);
        forge.len -= 8;
        forge_store(&forge, world.disk);
        pl_disk_set_fault(world.disk, PL_DISK_READ, (struct pl_disk_fault){n, 1, PELAGO_IO});
        st = open_store();
        failed += st == PELAGO_IO;
        assert_true(st == PELAGO_OK || st == PELAGO_IO);
        pl_disk_process_died(world.disk);
    }
    assert_true(failed > 10);
    assert_int_equal(replayed, 2);
}

/* Old files with a gap between them do not matter next to a snapshot, and are not blamed when it cannot be read. */
static void test_reads_before_a_gap(void **state)
{
    (void)state;
    bool blamed = false;
    forge_begin(&forge, 1, 1, 0, pl_link_start(forge_run_id));
    forge_records(&forge, 5);
    forge_store(&forge, world.disk);
    forge_records(&forge, 1);
    forge_snapshot(world.disk, 6, forge.link, forge_run_id);
    forge_begin(&forge, 2, 7, 6, forge.link);
    forge_store(&forge, world.disk);
    for (uint64_t n = 0;; n++) {
        pl_disk_set_fault(world.disk, PL_DISK_READ, (struct pl_disk_fault){n, 1, PELAGO_IO});
        if (open_store() == PELAGO_OK)
            break;
        blamed = blamed || strstr(world.error.text, "snapshot-0000000000000006.pl cannot be read") != NULL;
        assert_null(strstr(world.error.text, "damaged"));
        pl_disk_process_died(world.disk);
    }
    assert_true(blamed);
    assert_int_equal(world.report.snapshot_seq, 6);
}

static void test_too_many_files(void **state)
{
    (void)state;
    char name[PL_FILE_NAME_MAX];
    for (uint64_t i = 0; i <= PL_SNAPSHOTS_MAX; i++) {
        pl_snapshot_name(PL_SNAPSHOTS_MAX - i, name); /* listed in falling order */
        assert_int_equal(pl_disk_put(world.disk, name, "x", 1), PELAGO_OK);
    }
    expect_refused(PELAGO_LIMIT, "more than 256 journal files or 16 snapshots");
    world_release(&world);
    world_init(&world, 1);
    for (uint64_t i = 0; i <= PL_SEGMENTS_MAX; i++) {
        pl_segment_name(1000 - i, name);
        assert_int_equal(pl_disk_put(world.disk, name, "x", 1), PELAGO_OK);
    }
    expect_refused(PELAGO_LIMIT, "more than 256 journal files");
}

/* Damage far from the next intact head, further than one piece of memory. */
static void test_proof_is_far_away(void **state)
{
    (void)state;
    static uint8_t file[300000];
    forge_begin(&forge, 1, 1, 0, pl_link_start(forge_run_id));
    memcpy(file, forge.bytes, forge.len);
    size_t at = sizeof file - 200; /* a multiple of eight */
    const struct pl_record_header mark = {.mark = true, .seq = 9, .durable_seq = 9};
    assert_int_equal(at % 8, 0);
    for (size_t shift = 0; shift <= 144; shift += 8) {
        memset(file + PL_SEGMENT_HEADER_BYTES, 0, sizeof file - PL_SEGMENT_HEADER_BYTES);
        pl_record_header_put(&mark, pl_segment_seed(forge_run_id, 1), file + at + shift);
        assert_int_equal(pl_disk_put(world.disk, "journal-0000000000000001.pl", file, sizeof file),
                         PELAGO_OK);
        expect_refused(PELAGO_CORRUPT, "record 1 at offset 80 was durable");
    }
    /* Around the border of the pieces it is read in. */
    size_t border =
        PL_SEGMENT_HEADER_BYTES + pl_store_scratch_bytes(WORLD_RECORD_BYTES_MAX) - PL_BLOCK_MEMORY_BYTES;
    for (size_t i = 0; i < 16; i++) {
        memset(file + PL_SEGMENT_HEADER_BYTES, 0, sizeof file - PL_SEGMENT_HEADER_BYTES);
        pl_record_header_put(&mark, pl_segment_seed(forge_run_id, 1), file + border - 64 + 8 * i);
        assert_int_equal(pl_disk_put(world.disk, "journal-0000000000000001.pl", file, sizeof file),
                         PELAGO_OK);
        expect_refused(PELAGO_CORRUPT, "record 1 at offset 80 was durable");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_forged_journal_opens, setup, teardown),
        cmocka_unit_test_setup_teardown(test_heads_that_do_not_fit, setup, teardown),
        cmocka_unit_test_setup_teardown(test_heads_from_the_future, setup, teardown),
        cmocka_unit_test_setup_teardown(test_last_number, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_file_numbers_left, setup, teardown),
        cmocka_unit_test_setup_teardown(test_record_too_large, setup, teardown),
        cmocka_unit_test_setup_teardown(test_wrong_files, setup, teardown),
        cmocka_unit_test_setup_teardown(test_another_run, setup, teardown),
        cmocka_unit_test_setup_teardown(test_gaps, setup, teardown),
        cmocka_unit_test_setup_teardown(test_snapshot_and_journal_disagree, setup, teardown),
        cmocka_unit_test_setup_teardown(test_journal_missing, setup, teardown),
        cmocka_unit_test_setup_teardown(test_snapshot_renamed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_section_of_another_table, setup, teardown),
        cmocka_unit_test_setup_teardown(test_newer_snapshot_format, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refused_by_the_caller, setup, teardown),
        cmocka_unit_test_setup_teardown(test_void_files, setup, teardown),
        cmocka_unit_test_setup_teardown(test_damaged_head, setup, teardown),
        cmocka_unit_test_setup_teardown(test_moving_files, setup, teardown),
        cmocka_unit_test_setup_teardown(test_moving_snapshot, setup, teardown),
        cmocka_unit_test_setup_teardown(test_reads_behind_damage, setup, teardown),
        cmocka_unit_test_setup_teardown(test_reads_before_a_gap, setup, teardown),
        cmocka_unit_test_setup_teardown(test_too_many_files, setup, teardown),
        cmocka_unit_test_setup_teardown(test_proof_is_far_away, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
