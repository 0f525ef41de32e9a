/* Every byte of every file of a store is flipped, in several ways: never is anything else loaded or replayed than what
 * was stored. The store refuses to open and names the file, or passes over a damaged snapshot, or reports bytes
 * of no use where a mark was that nobody needs.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "memdisk.h"

enum { FILES_MAX = 16 };
static const uint8_t flips[] = {0x01, 0x80, 0x10, 0x5a, 0xff};

struct image {
    char name[PL_FILE_NAME_MAX];
    uint8_t bytes[3 * PL_BLOCK_BYTES];
    size_t len;
};

static struct world world;
static struct image images[FILES_MAX];
static uint32_t image_count;
static struct {
    uint64_t corrupt, snapshot, spare, tail, void_bytes;
} outcomes;

static enum pelago_status take(void *user, const char *name)
{
    (void)user;
    uint64_t len = 0;
    assert_in_range(image_count, 0, FILES_MAX - 1);
    struct image *image = &images[image_count++];
    const uint8_t *bytes = pl_disk_peek(world.disk, name, &len);
    assert_non_null(bytes);
    assert_in_range(len, 1, sizeof image->bytes);
    memcpy(image->bytes, bytes, len);
    image->len = (size_t)len;
    memcpy(image->name, name, strlen(name) + 1);
    return PELAGO_OK;
}

static void append_synced(uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(world_append(&world), PELAGO_OK);
        assert_int_equal(world_sync(&world), PELAGO_OK);
    }
}

/* Two snapshots and several journal files; the process then dies or says goodbye. */
static void make_store(uint64_t filler_bytes, bool goodbye)
{
    world_init(&world, 11);
    world.filler_bytes = filler_bytes;
    world.quiet = true;
    world.options.segment_bytes = 600;
    assert_int_equal(world_open(&world), PELAGO_OK);
    append_synced(3);
    assert_int_equal(world_snapshot(&world), PELAGO_OK);
    append_synced(3);
    assert_int_equal(world_snapshot(&world), PELAGO_OK);
    append_synced(4);
    if (goodbye)
        world_close(&world);
    else
        world_process_dies(&world);
    image_count = 0;
    const struct pl_dir dir = pl_disk_dir(world.disk);
    assert_int_equal(dir.ops->list(dir.self, take, NULL), PELAGO_OK);
}

/* The disk as it was. */
static void restore(void)
{
    pl_disk_free(world.disk);
    world.disk = pl_disk_new(&world.memory.alloc, 1);
    world.open = false;
    world.last_seq = world.acked_seq = 10;
    world.maybe_seq = world.last_seq;
    for (uint32_t i = 0; i < image_count; i++)
        assert_int_equal(pl_disk_put(world.disk, images[i].name, images[i].bytes, images[i].len), PELAGO_OK);
}

/* Opens a store with damage in this file. Whatever opens has passed the oracle: all ten records are there. */
static void check_detected(const struct image *image, size_t offset, uint8_t bits)
{
    const struct pl_store_report *r = &world.report;
    enum pelago_status st = world_open(&world);
    if (st != PELAGO_OK) {
        assert_int_equal(st, PELAGO_CORRUPT);
        assert_non_null(strstr(world.error.text, image->name));
        outcomes.corrupt++;
        return;
    }
    outcomes.snapshot += r->snapshots_bad > 0;
    outcomes.spare += r->spares_bad > 0;
    outcomes.tail += r->tail_bytes > 0;
    outcomes.void_bytes += r->void_bytes > 0;
    if (r->snapshots_bad + r->spares_bad == 0 && r->tail_bytes + r->void_bytes == 0)
        fail_msg("%s: byte %u xor %u was not noticed", image->name, (unsigned)offset, bits);
    if (r->snapshots_bad > 0) {
        assert_non_null(strstr(r->snapshot_error.text, image->name));
        assert_int_equal(r->snapshot_seq, 3);
    }
    if (r->spares_bad > 0)
        assert_non_null(strstr(r->spare_error.text, image->name));
    if (r->tail_bytes > 0) {
        assert_int_equal(r->tail_seq, 11);
        assert_non_null(strstr(r->tail_error.text, image->name));
    }
}

static void flip_all(bool goodbye)
{
    memset(&outcomes, 0, sizeof outcomes);
    make_store(40, goodbye);
    world.options.verify_all = true;
    restore();
    assert_int_equal(world_open(&world), PELAGO_OK);
    assert_int_equal(world.report.snapshots_bad + world.report.spares_bad, 0);
    assert_int_equal(world.report.tail_bytes + world.report.void_bytes, 0);
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < image_count; i++) {
        for (size_t at = 0; at < images[i].len; at++) {
            for (size_t k = 0; k < sizeof flips; k++) {
                restore();
                assert_true(pl_disk_rot(world.disk, images[i].name, at, flips[k]));
                check_detected(&images[i], at, flips[k]);
            }
        }
        bytes += images[i].len;
    }
    print_message(
        "# %llu bytes of %u files, each flipped %u ways: %llu refused, %llu older snapshot, %llu spare\n",
        (unsigned long long)bytes, image_count, (unsigned)sizeof flips, (unsigned long long)outcomes.corrupt,
        (unsigned long long)outcomes.snapshot, (unsigned long long)outcomes.spare);
    print_message("# %llu last mark, %llu last mark of an older file\n", (unsigned long long)outcomes.tail,
                  (unsigned long long)outcomes.void_bytes);
    assert_true(outcomes.corrupt > 1000 && outcomes.snapshot > 100 && outcomes.spare > 100);
    assert_int_equal(outcomes.tail, PL_RECORD_HEADER_BYTES * sizeof flips);
    world_release(&world);
}

static void test_every_byte_after_goodbye(void **state)
{
    (void)state;
    flip_all(true);
}

static void test_every_byte_after_death(void **state)
{
    (void)state;
    flip_all(false);
}

/* Sections of several blocks: around every boundary, and anywhere. */
static void test_large_snapshot(void **state)
{
    (void)state;
    make_store(2 * PL_BLOCK_BYTES + 77, true);
    world.options.verify_all = false;
    struct pl_prng prng;
    pl_prng_seed(&prng, 4, 0);
    for (uint32_t i = 0; i < image_count; i++) {
        uint64_t seq;
        if (!pl_snapshot_name_parse(images[i].name, &seq) || seq != 6)
            continue;
        for (uint32_t k = 0; k < 300; k++) {
            size_t at = (size_t)pl_prng_below(&prng, images[i].len);
            if (k < 90) /* the end of the first and second block, and of the file */
                at = k < 60 ? (k / 30 + 1) * (size_t)PL_BLOCK_BYTES + 140 + k % 30
                            : images[i].len - 1 - k % 30;
            restore();
            assert_true(pl_disk_rot(world.disk, images[i].name, at, 0x20));
            assert_int_equal(world_open(&world), PELAGO_OK);
            assert_int_equal(world.report.snapshots_bad, 1);
            assert_int_equal(world.report.snapshot_seq, 3);
            assert_int_equal(world.report.replayed, 7);
        }
    }
    world_release(&world);
}

/* Both snapshots damaged: the journal goes back to the first of them only. */
static void test_both_snapshots(void **state)
{
    (void)state;
    make_store(40, true);
    restore();
    for (uint32_t i = 0; i < image_count; i++) {
        uint64_t seq;
        if (pl_snapshot_name_parse(images[i].name, &seq))
            assert_true(pl_disk_rot(world.disk, images[i].name, 100, 1));
    }
    assert_int_equal(world_open(&world), PELAGO_CORRUPT);
    assert_non_null(strstr(world.error.text, "record 1 is needed"));
    world_release(&world);
}

/* A file cut short, at every length: the same promise. Only the loss of whole records from the end of the newest
 * journal file, marks and all, cannot be seen. A longer file is noticed, too. */
static void test_every_length(void **state)
{
    (void)state;
    make_store(40, true);
    world.options.verify_all = true;
    const struct pl_store_report *r = &world.report;
    uint64_t unseen = 0;
    for (uint32_t i = 0; i < image_count; i++) {
        size_t whole = images[i].len;
        for (size_t len = 0; len < whole; len++) {
            images[i].len = len;
            restore();
            world.acked_seq = 0;
            if (world_open(&world) == PELAGO_OK && r->snapshots_bad + r->spares_bad == 0 &&
                r->tail_bytes == 0)
                unseen += world.acked_seq < 10;
        }
        images[i].len = whole + 8;
        restore();
        assert_int_equal(world_open(&world), PELAGO_OK);
        assert_true(r->snapshots_bad + r->spares_bad > 0 || r->tail_bytes + r->void_bytes == 8);
        images[i].len = whole;
    }
    assert_in_range(unseen, 1, 8);
    world_release(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_byte_after_goodbye),
        cmocka_unit_test(test_every_byte_after_death),
        cmocka_unit_test(test_large_snapshot),
        cmocka_unit_test(test_both_snapshots),
        cmocka_unit_test(test_every_length),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
