/* Power cuts while checkpoints are saved: whatever moment the power goes, the newest checkpoint that was saved with OK,
 * or a later one, loads completely; never a mixture, never none. Nothing grows: after the next save there are two.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "checkpoint_rig.h"
#include "seed.h"

enum { SCHEDULES = 1000, CUTS_A_SCHEDULE = 3, STAMPS_MAX = 2000 };

static struct rig rig;
static struct pl_disk *disk;
static struct pl_dir dir;
static uint64_t cuts, kept_new, kept_old;

/* Stamps grow with every save. What is found has the stamp of the last save that returned OK, or a later one. */
struct expected {
    uint64_t saved; /* 0: none */
    uint64_t tried; /* the latest */
    uint64_t step_of[STAMPS_MAX];
};
static struct expected expected;

static void begin(uint64_t seed)
{
    expected = (struct expected){.saved = 0};
    ckrig_init(&rig);
    disk = pl_disk_new(&rig.memory.alloc, seed);
    dir = pl_disk_dir(disk);
}

static void end(void)
{
    pl_disk_free(disk);
    ckrig_release(&rig);
}

static void save(uint64_t step)
{
    struct expected *e = &expected;
    uint64_t stamp = ++e->tried;
    assert_in_range(stamp, 1, STAMPS_MAX - 1);
    e->step_of[stamp] = step;
    ckrig_set(&rig, stamp);
    enum pelago_status st = ckrig_save(&rig, dir, step, 2);
    if (st == PELAGO_OK)
        e->saved = stamp;
    else if (!pl_disk_is_dead(disk))
        fail_msg("without a fault: %s", rig.error.text);
}

/* Loads the newest, checks that it is whole and may be there, and returns its stamp, 0 for none. */
static uint64_t check(void)
{
    const struct expected *e = &expected;
    uint64_t found = 0;
    enum pelago_status st = ckrig_load(&rig, dir, PL_NONE64, &found);
    if (st == PELAGO_NOTFOUND && e->saved == 0) {
        assert_string_equal(rig.error.text, "there is no checkpoint (no file state-*.json)");
        return 0;
    }
    if (st != PELAGO_OK)
        fail_msg("after a cut: %s", rig.error.text);
    uint64_t stamp = rig.tokens / 1000;
    assert_in_range(stamp, e->saved > 0 ? e->saved : 1, e->tried);
    assert_int_equal(found, e->step_of[stamp]);
    ckrig_check(&rig, stamp);
    kept_new += stamp > e->saved;
    kept_old += stamp == e->saved;
    return stamp;
}

static void cut(void)
{
    pl_disk_power_cut(disk);
    pl_disk_dies_after(disk, PL_NEVER);
    cuts++;
    expected.saved = check(); /* what a cut has left stays */
}

static enum pelago_status count_one(void *user, const char *name)
{
    (void)name;
    ++*(unsigned *)user;
    return PELAGO_OK;
}

static void expect_files(unsigned wanted)
{
    unsigned count = 0;
    assert_int_equal(dir.ops->list(dir.self, count_one, &count), PELAGO_OK);
    assert_int_equal(count, wanted);
}

/* Five saves, two of them of the same step. */
static void script(void)
{
    static const uint64_t steps[] = {3, 4, 5, 5, 6};
    for (unsigned i = 0; i < 5 && !pl_disk_is_dead(disk); i++)
        save(steps[i]);
}

static void test_cut_at_every_change(void **state)
{
    (void)state;
    begin(1);
    script();
    struct pl_disk_counts c = pl_disk_counts(disk);
    uint64_t changes = c.ops[PL_DISK_WRITE] + c.ops[PL_DISK_SYNC] + c.ops[PL_DISK_META];
    end();
    assert_true(changes > 150);
    for (uint64_t n = 0; n < changes; n++)
        for (uint64_t seed = 1; seed <= 4; seed++) { /* what is lost differs by seed */
            begin(seed);
            pl_disk_dies_after(disk, n);
            script();
            assert_true(pl_disk_is_dead(disk));
            cut();
            save(7);
            save(8);
            expect_files(8);
            uint64_t last = expected.saved;
            cut(); /* a save that returned OK survives at once */
            assert_int_equal(expected.saved, last);
            end();
        }
    print_message("# %llu cuts; the old checkpoint was found %llu times, the new one %llu times\n",
                  (unsigned long long)cuts, (unsigned long long)kept_old, (unsigned long long)kept_new);
    assert_true(kept_new > 10);
}

/* The process dies while it replaces a checkpoint of the same step, around the rename; its successor, which sees what may
 * not last, loses the power soon. Either one is there in the end: the data of the first must not go too early. */
static void test_process_dies_then_power(void **state)
{
    (void)state;
    unsigned unsure = 0, finished = 0;
    for (uint64_t first = 40; first < 60; first++)
        for (uint64_t second = 0; second < 12; second++)
            for (uint64_t seed = 1; seed <= 4; seed++) {
                begin(seed);
                save(5);
                pl_disk_dies_after(disk, first);
                save(5);
                finished += !pl_disk_is_dead(disk);
                pl_disk_process_died(disk);
                unsure += check() > expected.saved;
                pl_disk_dies_after(disk, second);
                save(6);
                cut();
                end();
            }
    assert_true(unsure > 0 && finished > 0); /* the range has the rename in it */
}

/* Several cuts in a row, processes that die without the power going, and saves of the same step. */
static void run_schedule(uint64_t seed)
{
    struct pl_prng prng;
    pl_prng_seed(&prng, seed, 9);
    begin(seed);
    uint64_t step = 1;
    for (int i = 0; i < CUTS_A_SCHEDULE; i++) {
        pl_disk_dies_after(disk, pl_prng_below(&prng, pl_prng_below(&prng, 2) == 0 ? 120 : 8));
        while (!pl_disk_is_dead(disk)) {
            save(step);
            step += pl_prng_below(&prng, 2);
        }
        uint64_t found;
        if (pl_prng_below(&prng, 3) == 0) {
            pl_disk_process_died(disk);
            pl_disk_dies_after(disk, PL_NEVER);
            found = check(); /* seen, but a later cut may still undo it */
        } else {
            cut();
            found = expected.saved;
        }
        step = found > 0 ? expected.step_of[found] : step;
    }
    save(step + 1);
    save(step + 2);
    expect_files(8);
    cut();
    assert_int_equal(expected.saved, expected.tried);
    end();
}

static void test_random_schedules(void **state)
{
    (void)state;
    uint64_t first = test_seed();
    for (uint64_t seed = first; seed < first + SCHEDULES; seed++)
        run_schedule(seed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cut_at_every_change),
        cmocka_unit_test(test_process_dies_then_power),
        cmocka_unit_test(test_random_schedules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
