/* tests/unit/test_store_mirror.c - a store on two disks at once: what was acknowledged is on either of them alone. */
#include "base/prng.h"
#include "seed.h"
#include "sim/disk.h"
#include "store/dir_mirror.h"
#include "store/store.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

enum { RECORD_BYTES = 200, SCRATCH_BYTES = 4096 };

struct pair {
    struct pl_alloc alloc;
    struct pl_disk *disk[2];
    struct pl_dir_mirror mirror;
    struct pl_store store;
    struct pl_store_options options;
    uint8_t scratch[2 * PL_BLOCK_MEMORY_BYTES + 4096];
    uint64_t last, acked; /* records */
    uint64_t replayed;
};

static enum pelago_status load(void *user, const struct pl_piece *piece)
{
    struct pair *p = user;
    assert_int_equal(piece->len, 8);
    p->replayed = pl_get_le(piece->data, 8);
    return PELAGO_OK;
}

static enum pelago_status replay(void *user, const struct pl_store_record *r)
{
    struct pair *p = user;
    p->replayed++;
    assert_int_equal(r->len, RECORD_BYTES);
    assert_int_equal(pl_get_le(r->data, 8), p->replayed);
    return PELAGO_OK;
}

static enum pelago_status open_on(struct pair *p, struct pl_dir dir)
{
    struct pl_store_report report;
    struct pl_error err;
    p->replayed = 0;
    p->options = (struct pl_store_options){.record_bytes_max = RECORD_BYTES,
                                           .segment_bytes = 4000,
                                           .snapshot_after_bytes = 12000,
                                           .scratch = p->scratch,
                                           .scratch_bytes = pl_store_scratch_bytes(RECORD_BYTES)};
    assert_true(p->options.scratch_bytes <= sizeof p->scratch);
    memcpy(p->options.run_id, "mirrored run 001", sizeof p->options.run_id);
    return pl_store_open(&p->store, dir, &p->options, &(struct pl_store_reader){load, replay, p}, &report,
                         &err);
}

static void pair_init(struct pair *p, uint64_t seed)
{
    memset(p, 0, sizeof *p);
    p->alloc = pl_alloc_system();
    for (int i = 0; i < 2; i++) {
        p->disk[i] = pl_disk_new(&p->alloc, seed + (uint64_t)i);
        assert_non_null(p->disk[i]);
    }
    pl_dir_mirror_init(&p->mirror, pl_disk_dir(p->disk[0]), pl_disk_dir(p->disk[1]));
}

static void pair_release(struct pair *p)
{
    pl_disk_free(p->disk[0]);
    pl_disk_free(p->disk[1]);
}

static enum pelago_status append(struct pair *p)
{
    uint8_t bytes[RECORD_BYTES] = {0};
    uint64_t seq;
    pl_put_le(bytes, p->last + 1, 8);
    enum pelago_status st =
        pl_store_append(&p->store, 1, &(struct pl_bytes){bytes, sizeof bytes}, 1, &seq, NULL);
    p->last += st == PELAGO_OK ? 1 : 0;
    return st;
}

static enum pelago_status sync_all(struct pair *p)
{
    enum pelago_status st = pl_store_sync(&p->store, NULL);
    if (st == PELAGO_OK)
        p->acked = p->last;
    return st;
}

static enum pelago_status snapshot(struct pair *p)
{
    uint8_t state[8];
    struct pl_section section = {.tag = 1, .length = sizeof state};
    pl_put_le(state, p->last, 8);
    PL_TRY(pl_store_snapshot_begin(&p->store, &section, 1, NULL));
    p->acked = p->last; /* begin makes the journal durable */
    PL_TRY(pl_store_snapshot_write(&p->store, state, sizeof state, NULL));
    return pl_store_snapshot_commit(&p->store, NULL);
}

/* Goes on until a disk fails or the script is over. */
static void script(struct pair *p, struct pl_prng *prng, uint32_t actions)
{
    for (uint32_t i = 0; i < actions; i++) {
        enum pelago_status st = append(p);
        if (st == PELAGO_OK && pl_prng_chance(prng, 400000))
            st = sync_all(p);
        if (st == PELAGO_OK && pl_store_wants_snapshot(&p->store))
            st = snapshot(p);
        if (st != PELAGO_OK)
            return;
    }
}

/* Both lose power at a random moment; afterwards either of them alone has every acknowledged record. */
static void either_disk_alone_has_what_was_acknowledged(void **state)
{
    (void)state;
    uint64_t seed = test_seed();
    for (uint64_t round = 0; round < 200; round++) {
        struct pl_prng prng;
        struct pair *p = malloc(sizeof *p);
        assert_non_null(p);
        pl_prng_seed(&prng, seed, round);
        pair_init(p, seed + 2 * round);
        assert_int_equal(open_on(p, pl_dir_mirror_table(&p->mirror)), PELAGO_OK);
        pl_disk_dies_after(p->disk[pl_prng_below(&prng, 2)], pl_prng_below(&prng, 200));
        script(p, &prng, 150);
        pl_disk_power_cut(p->disk[0]);
        pl_disk_power_cut(p->disk[1]);
        uint64_t acked = p->acked;
        for (int i = 0; i < 2; i++) {
            assert_int_equal(open_on(p, pl_disk_dir(p->disk[i])), PELAGO_OK);
            assert_true(p->replayed >= acked);
            (void)pl_store_close(&p->store, NULL);
        }
        pair_release(p);
        free(p);
    }
}

static void a_failure_of_the_second_is_a_failure_and_heals(void **state)
{
    (void)state;
    static struct pair p;
    const enum pl_disk_op ops[] = {PL_DISK_WRITE, PL_DISK_SYNC, PL_DISK_META};
    for (size_t k = 0; k < sizeof ops / sizeof ops[0]; k++) {
        pair_init(&p, 5 + k);
        assert_int_equal(open_on(&p, pl_dir_mirror_table(&p.mirror)), PELAGO_OK);
        assert_int_equal(append(&p), PELAGO_OK);
        assert_int_equal(sync_all(&p), PELAGO_OK);
        pl_disk_set_fault(p.disk[1], ops[k], (struct pl_disk_fault){0, UINT64_MAX, PELAGO_FULL});
        enum pelago_status st = PELAGO_OK;
        for (int i = 0; i < 100 && st == PELAGO_OK; i++) {
            st = append(&p);
            if (st == PELAGO_OK)
                st = sync_all(&p);
        }
        assert_int_equal(st, PELAGO_FULL);
        assert_int_not_equal(pl_store_resume(&p.store, NULL), PELAGO_OK);
        pl_disk_set_fault(p.disk[1], ops[k], (struct pl_disk_fault){0, 0, PELAGO_OK});
        assert_int_equal(pl_store_resume(&p.store, NULL), PELAGO_OK);
        p.last = pl_store_last_seq(&p.store);
        assert_int_equal(append(&p), PELAGO_OK);
        assert_int_equal(sync_all(&p), PELAGO_OK);
        assert_int_equal(pl_store_close(&p.store, NULL), PELAGO_OK);
        uint64_t acked = p.acked;
        for (int i = 0; i < 2; i++) {
            assert_int_equal(open_on(&p, pl_disk_dir(p.disk[i])), PELAGO_OK);
            assert_int_equal(p.replayed, acked);
            assert_int_equal(pl_store_close(&p.store, NULL), PELAGO_OK);
        }
        pair_release(&p);
    }
}

/* What was written of a snapshot can be synced before it is complete; when that fails, it is given up, and the journal goes
 * on. */
static void a_snapshot_can_be_flushed_in_between(void **state)
{
    (void)state;
    static struct pair p;
    uint8_t half[4] = {3, 0, 0, 0}, rest[4] = {0};
    struct pl_section section = {.tag = 1, .length = 8};
    struct pl_error err;
    pair_init(&p, 21);
    assert_int_equal(open_on(&p, pl_dir_mirror_table(&p.mirror)), PELAGO_OK);
    assert_int_equal(pl_store_snapshot_flush(&p.store, &err), PELAGO_INVALID);
    for (int i = 0; i < 3; i++)
        assert_int_equal(append(&p), PELAGO_OK);
    for (int round = 0; round < 2; round++) {
        assert_int_equal(pl_store_snapshot_begin(&p.store, &section, 1, &err), PELAGO_OK);
        assert_int_equal(pl_store_snapshot_write(&p.store, half, sizeof half, &err), PELAGO_OK);
        if (round == 0) {
            pl_disk_set_fault(p.disk[1], PL_DISK_SYNC, (struct pl_disk_fault){0, 1, PELAGO_IO});
            assert_int_equal(pl_store_snapshot_flush(&p.store, &err), PELAGO_IO);
            assert_int_equal(pl_store_snapshot_write(&p.store, rest, sizeof rest, &err), PELAGO_INVALID);
            continue;
        }
        assert_int_equal(pl_store_snapshot_flush(&p.store, &err), PELAGO_OK);
        assert_int_equal(pl_store_snapshot_write(&p.store, rest, sizeof rest, &err), PELAGO_OK);
        assert_int_equal(pl_store_snapshot_commit(&p.store, &err), PELAGO_OK);
    }
    assert_int_equal(append(&p), PELAGO_OK);
    assert_int_equal(pl_store_close(&p.store, &err), PELAGO_OK);
    assert_int_equal(open_on(&p, pl_disk_dir(p.disk[1])), PELAGO_OK);
    assert_int_equal(p.replayed, 4);
    assert_int_equal(pl_store_close(&p.store, &err), PELAGO_OK);
    pair_release(&p);
}

static bool about_a(const char *name)
{
    return name[0] == 'a';
}

static void fill(struct pair *p, size_t scratch_bytes)
{
    uint8_t scratch[SCRATCH_BYTES];
    struct pl_error err = {.text = ""};
    assert_int_equal(pl_dir_mirror_fill(pl_disk_dir(p->disk[0]), pl_disk_dir(p->disk[1]), about_a, scratch,
                                        scratch_bytes, &err),
                     PELAGO_OK);
}

static void expect_file(const struct pl_disk *d, const char *name, const char *content)
{
    uint64_t bytes;
    const uint8_t *at = pl_disk_peek(d, name, &bytes);
    assert_non_null(at);
    assert_int_equal(bytes, strlen(content));
    assert_memory_equal(at, content, bytes);
}

static void filling_copies_what_differs_and_removes_what_is_not_there(void **state)
{
    (void)state;
    static struct pair p;
    const size_t scratches[] = {2, 3, 8, SCRATCH_BYTES};
    for (size_t k = 0; k < sizeof scratches / sizeof scratches[0]; k++) {
        pair_init(&p, 9);
        assert_int_equal(pl_disk_put(p.disk[0], "a1", "hello world", 11), PELAGO_OK);
        assert_int_equal(pl_disk_put(p.disk[0], "a2", "equal bytes", 11), PELAGO_OK);
        assert_int_equal(pl_disk_put(p.disk[0], "a3", "longer than before", 18), PELAGO_OK);
        assert_int_equal(pl_disk_put(p.disk[0], "a4", "one differenc.", 14), PELAGO_OK);
        assert_int_equal(pl_disk_put(p.disk[0], "b1", "not our business", 16), PELAGO_OK);
        assert_int_equal(pl_disk_put(p.disk[1], "a2", "equal bytes", 11), PELAGO_OK);
        assert_int_equal(pl_disk_put(p.disk[1], "a3", "long", 4), PELAGO_OK);
        assert_int_equal(pl_disk_put(p.disk[1], "a4", "one difference", 14), PELAGO_OK);
        assert_int_equal(pl_disk_put(p.disk[1], "a9", "an older run's", 14), PELAGO_OK);
        assert_int_equal(pl_disk_put(p.disk[1], "b2", "nor is this", 11), PELAGO_OK);
        fill(&p, scratches[k]);
        pl_disk_power_cut(p.disk[1]); /* it is durable */
        uint64_t written = pl_disk_counts(p.disk[1]).bytes_written;
        expect_file(p.disk[1], "a1", "hello world");
        expect_file(p.disk[1], "a2", "equal bytes");
        expect_file(p.disk[1], "a3", "longer than before");
        expect_file(p.disk[1], "a4", "one differenc.");
        expect_file(p.disk[1], "b2", "nor is this");
        uint64_t none;
        assert_null(pl_disk_peek(p.disk[1], "a9", &none));
        assert_null(pl_disk_peek(p.disk[1], "b1", &none));
        fill(&p, scratches[k]); /* the second time nothing is written */
        assert_int_equal(pl_disk_counts(p.disk[1]).bytes_written, written);
        pair_release(&p);
    }
}

static void filling_tells_what_it_could_not_copy(void **state)
{
    (void)state;
    static struct pair p;
    uint8_t scratch[64];
    struct pl_error err;
    const enum pl_disk_op ops[] = {PL_DISK_WRITE, PL_DISK_SYNC, PL_DISK_META};
    for (size_t k = 0; k < sizeof ops / sizeof ops[0]; k++) {
        pair_init(&p, 11);
        assert_int_equal(pl_disk_put(p.disk[0], "a1", "hello", 5), PELAGO_OK);
        pl_disk_set_fault(p.disk[1], ops[k], (struct pl_disk_fault){0, UINT64_MAX, PELAGO_IO});
        assert_int_equal(pl_dir_mirror_fill(pl_disk_dir(p.disk[0]), pl_disk_dir(p.disk[1]), about_a, scratch,
                                            sizeof scratch, &err),
                         PELAGO_IO);
        assert_non_null(strstr(err.text, "mirror"));
        pair_release(&p);
    }
}

static bool about_all(const char *name)
{
    return strchr(name, '.') != NULL;
}

/* Two disks with the same records, synced, and a store that is closed. */
static void both_have_records(struct pair *p, uint64_t seed)
{
    pair_init(p, seed);
    assert_int_equal(open_on(p, pl_dir_mirror_table(&p->mirror)), PELAGO_OK);
    for (int i = 0; i < 30; i++)
        assert_int_equal(append(p), PELAGO_OK);
    assert_int_equal(sync_all(p), PELAGO_OK);
    assert_int_equal(pl_store_close(&p->store, NULL), PELAGO_OK);
}

/* Records that only the first has, synced. */
static void go_on_alone(struct pair *p, uint32_t records)
{
    assert_int_equal(open_on(p, pl_disk_dir(p->disk[0])), PELAGO_OK);
    p->last = p->acked = p->replayed;
    for (uint32_t i = 0; i < records; i++)
        assert_int_equal(append(p), PELAGO_OK);
    assert_int_equal(sync_all(p), PELAGO_OK);
    if (records % 3 == 0)
        assert_int_equal(snapshot(p), PELAGO_OK);
    assert_int_equal(pl_store_close(&p->store, NULL), PELAGO_OK);
}

/* The second loses power at every moment of being filled: alone it has what it had, or more. */
static void a_mirror_that_is_filled_is_always_a_whole_one(void **state)
{
    (void)state;
    static struct pair p;
    uint8_t scratch[SCRATCH_BYTES];
    for (uint32_t records = 1; records <= 12; records++) {
        bool done = false;
        for (uint64_t changes = 0; !done; changes++) {
            both_have_records(&p, 31 + changes);
            uint64_t before = p.acked;
            go_on_alone(&p, records);
            pl_disk_dies_after(p.disk[1], changes);
            done = pl_dir_mirror_fill(pl_disk_dir(p.disk[0]), pl_disk_dir(p.disk[1]), about_all, scratch,
                                      sizeof scratch, &(struct pl_error){.text = ""}) == PELAGO_OK;
            pl_disk_power_cut(p.disk[1]);
            assert_int_equal(open_on(&p, pl_disk_dir(p.disk[1])), PELAGO_OK);
            assert_true(p.replayed >= before && p.replayed <= p.acked && (!done || p.replayed == p.acked));
            assert_int_equal(pl_store_close(&p.store, NULL), PELAGO_OK);
            /* And what was left behind is in nobody's way. */
            assert_int_equal(pl_dir_mirror_fill(pl_disk_dir(p.disk[0]), pl_disk_dir(p.disk[1]), about_all,
                                                scratch, sizeof scratch, &(struct pl_error){.text = ""}),
                             PELAGO_OK);
            assert_int_equal(pl_disk_used_bytes(p.disk[0]), pl_disk_used_bytes(p.disk[1]));
            pair_release(&p);
        }
    }
}

/* ---- looking ---- */

static struct pl_store_sight look(struct pair *p, int disk, uint64_t at)
{
    struct pl_store_sight sight;
    struct pl_error err = {.text = ""};
    if (pl_store_look(&p->store, pl_disk_dir(p->disk[disk]), &p->options, at, &sight, &err) != PELAGO_OK)
        fail_msg("%s", err.text);
    return sight;
}

static void looking_tells_who_is_ahead_and_changes_nothing(void **state)
{
    (void)state;
    static struct pair p;
    for (uint32_t records = 1; records <= 12; records++) {
        both_have_records(&p, 77 + records);
        uint64_t before = p.acked;
        go_on_alone(&p, records);
        struct pl_disk_counts counts[2] = {pl_disk_counts(p.disk[0]), pl_disk_counts(p.disk[1])};
        struct pl_store_sight second = look(&p, 1, 0), first = look(&p, 0, second.last_seq);
        assert_int_equal(first.last_seq, p.acked);
        assert_int_equal(second.last_seq, before);
        bool hidden = records % 3 == 0; /* behind a snapshot, and not read */
        assert_true(first.passed != hidden && (hidden || first.at_link == second.link) &&
                    first.link != second.link);
        assert_false(look(&p, 1, first.last_seq).passed);
        for (int i = 0; i < 2; i++)
            assert_int_equal(pl_disk_counts(p.disk[i]).bytes_written, counts[i].bytes_written);
        /* Another history of the same length. */
        assert_int_equal(open_on(&p, pl_disk_dir(p.disk[1])), PELAGO_OK);
        for (uint32_t i = 0; i <= records; i++) {
            uint64_t seq;
            assert_int_equal(pl_store_append(&p.store, 2, &(struct pl_bytes){"other", 5}, 1, &seq, NULL),
                             PELAGO_OK);
        }
        assert_int_equal(pl_store_close(&p.store, NULL), PELAGO_OK);
        second = look(&p, 1, first.last_seq);
        assert_true(second.last_seq == first.last_seq + 1 && second.passed && second.at_link != first.link);
        pair_release(&p);
    }
}

static void looking_finds_rot_and_nothing(void **state)
{
    (void)state;
    static struct pair p;
    struct pl_store_sight sight;
    pair_init(&p, 5);
    assert_int_equal(open_on(&p, pl_disk_dir(p.disk[0])), PELAGO_OK);
    for (int i = 0; i < 5; i++)
        assert_int_equal(append(&p), PELAGO_OK);
    assert_int_equal(sync_all(&p), PELAGO_OK);
    assert_int_equal(pl_store_close(&p.store, NULL), PELAGO_OK);
    assert_true(look(&p, 1, 0).fresh && !look(&p, 0, 0).fresh);
    assert_true(pl_disk_rot(p.disk[0], "journal-0000000000000001.pl", 300, 1));
    assert_int_equal(pl_store_look(&p.store, pl_disk_dir(p.disk[0]), &p.options, 0, &sight, NULL),
                     PELAGO_CORRUPT);
    pair_release(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(either_disk_alone_has_what_was_acknowledged),
        cmocka_unit_test(a_failure_of_the_second_is_a_failure_and_heals),
        cmocka_unit_test(a_snapshot_can_be_flushed_in_between),
        cmocka_unit_test(filling_copies_what_differs_and_removes_what_is_not_there),
        cmocka_unit_test(filling_tells_what_it_could_not_copy),
        cmocka_unit_test(a_mirror_that_is_filled_is_always_a_whole_one),
        cmocka_unit_test(looking_tells_who_is_ahead_and_changes_nothing),
        cmocka_unit_test(looking_finds_rot_and_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
