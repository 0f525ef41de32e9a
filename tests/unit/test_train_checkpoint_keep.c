/* Which checkpoints stay: all that are good, however many, and those that a run went back from until it has a new one. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "checkpoint_rig.h"
#include "train/checkpoint_int.h"

static struct rig rig;
static struct pl_disk *disk;
static struct pl_dir dir;

static int set_up(void **state)
{
    (void)state;
    ckrig_init(&rig);
    disk = pl_disk_new(&rig.memory.alloc, 1);
    dir = pl_disk_dir(disk);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    pl_disk_free(disk);
    ckrig_release(&rig);
    return 0;
}

static bool has(const char *name)
{
    uint64_t len;
    return pl_disk_peek(disk, name, &len) != NULL;
}

static enum pelago_status rewind_to(uint64_t rewinds_to, uint64_t step, uint32_t keep)
{
    ckrig_set(&rig, 100 + step);
    rig.checkpoint.rewinds = true;
    rig.checkpoint.rewinds_to = rewinds_to;
    return ckrig_save(&rig, dir, step, keep);
}

static void expect_rewound(uint64_t step)
{
    uint64_t found;
    if (ckrig_load(&rig, dir, PL_NONE64, &found) != PELAGO_OK)
        fail_msg("%s", rig.error.text);
    assert_int_equal(found, step);
    ckrig_check(&rig, 100 + step);
}

/* Given up are all after the one it goes back to, before and behind the new one, and one of the same step. */
static void test_rewind(void **state)
{
    (void)state;
    for (uint64_t step = 6; step <= 10; step++) {
        for (uint64_t old = 4; old < 10; old++)
            ckrig_must_save(&rig, dir, old, 0);
        assert_int_equal(rewind_to(5, step, 0), PELAGO_OK);
        expect_rewound(step);
        assert_int_equal(ckrig_file_count(dir), 12); /* 4, 5 and the new one */
        ckrig_must_load(&rig, dir, 5, 5);
        assert_int_equal(rewind_to(3, 4, 1), PELAGO_OK);
        assert_int_equal(ckrig_file_count(dir), 4);
    }
}

/* Until the new one is on the disk, none of those it takes the place of is touched. */
static void test_failed_rewind_loses_nothing(void **state)
{
    (void)state;
    for (uint64_t step = 5; step < 9; step++)
        ckrig_must_save(&rig, dir, step, 0);
    uint64_t used = pl_disk_used_bytes(disk);
    for (uint64_t room = 0; room < used / 4 - 8; room += 997) {
        pl_disk_set_capacity(disk, used + room);
        assert_int_equal(rewind_to(5, 6, 2), PELAGO_FULL);
        assert_int_equal(ckrig_file_count(dir), 16);
        for (uint64_t step = 5; step < 9; step++)
            ckrig_must_load(&rig, dir, step, step);
    }
    pl_disk_set_capacity(disk, UINT64_MAX);
    assert_int_equal(rewind_to(5, 6, 2), PELAGO_OK);
    expect_rewound(6);
    assert_int_equal(ckrig_file_count(dir), 8);
}

/* The power goes at every change: the newest is the one it was, or the new one, and whole; so is the one it went back to. */
static void test_cut_rewind(void **state)
{
    (void)state;
    bool alive = false;
    for (uint64_t changes = 0; !alive; changes++) {
        pl_disk_free(disk);
        disk = pl_disk_new(&rig.memory.alloc, changes + 1);
        dir = pl_disk_dir(disk);
        for (uint64_t step = 5; step < 9; step++)
            ckrig_must_save(&rig, dir, step, 0);
        pl_disk_dies_after(disk, changes);
        bool saved = rewind_to(5, 10, 2) == PELAGO_OK;
        alive = !pl_disk_is_dead(disk);
        pl_disk_power_cut(disk);
        pl_disk_dies_after(disk, PL_NEVER);
        ckrig_must_load(&rig, dir, 5, 5);
        uint64_t newest = 0, found;
        assert_int_equal(pl_checkpoint_newest(dir, PL_NONE64, &newest, NULL), PELAGO_OK);
        assert_true(newest == 10 || (newest == 8 && !saved));
        assert_int_equal(ckrig_load(&rig, dir, newest, &found), PELAGO_OK);
        assert_true(changes < 1000);
        assert_int_equal(rewind_to(5, 10, 2), PELAGO_OK);
        expect_rewound(10);
        assert_int_equal(ckrig_file_count(dir), 8);
    }
}

/* More files than any list of a fixed length would have, with the states last, as a folder may list them. */
static void test_thousands_are_kept(void **state)
{
    (void)state;
    enum { COUNT = 1500 };
    char name[PL_FILE_NAME_MAX];
    for (unsigned kind = 0; kind <= PL_CKPT_STATE; kind++)
        for (uint64_t step = 0; step < COUNT; step++) {
            const struct pl_ckpt_name n = {(enum pl_ckpt_kind)kind, step, 0};
            pl_ckpt_name_put(&n, name);
            assert_int_equal(pl_disk_put(disk, name, "x", 1), PELAGO_OK);
        }
    ckrig_must_save(&rig, dir, COUNT, 0);
    assert_int_equal(ckrig_file_count(dir), 4 * (COUNT + 1));
    for (uint64_t n = 0; n < 10; n++) { /* where there is no memory for the list, nothing is removed */
        rig.memory.fail_at = rig.memory.requests + n;
        rig.memory.fail_times = UINT64_MAX;
        ckrig_set(&rig, COUNT + 1);
        assert_int_equal(ckrig_save(&rig, dir, COUNT + 1, 0), PELAGO_NOMEM);
        rig.memory.fail_at = PL_NEVER;
        assert_int_equal(ckrig_file_count(dir), 4 * (COUNT + 1));
    }
    ckrig_must_save(&rig, dir, COUNT + 1, 3);
    assert_int_equal(ckrig_file_count(dir), 4 * 3);
}

/* What a save reads does not grow with the number of checkpoints that are kept. */
static void test_many_cost_no_reading(void **state)
{
    (void)state;
    uint64_t reads[2];
    for (uint64_t step = 0; step < 40; step++) {
        uint64_t before = pl_disk_counts(disk).ops[PL_DISK_READ];
        ckrig_must_save(&rig, dir, step, 0);
        if (step == 1 || step == 39)
            reads[step == 39] = pl_disk_counts(disk).ops[PL_DISK_READ] - before;
    }
    assert_int_equal(reads[0], reads[1]);
}

/* Saved again without an optimizer: the file of the first time goes. */
static void test_same_step_with_fewer_files(void **state)
{
    (void)state;
    ckrig_must_save(&rig, dir, 7, 0);
    ckrig_set(&rig, 7);
    rig.checkpoint.span_count = 0;
    assert_int_equal(ckrig_save(&rig, dir, 7, 0), PELAGO_OK);
    assert_false(has("optimizer-00000007.safetensors"));
    assert_int_equal(ckrig_file_count(dir), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_rewind, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_failed_rewind_loses_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_cut_rewind, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_thousands_are_kept, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_many_cost_no_reading, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_same_step_with_fewer_files, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("train_checkpoint_keep", tests, NULL, NULL);
}
