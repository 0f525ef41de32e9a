/* Power cuts: whatever moment the power goes, every acknowledged record comes back with its bytes, nothing torn is
 * accepted, and numbers only grow. The oracle of tests/support/memdisk.h compares after every opening.
 *
 * Random schedules are numbered from the seed on; PL_SEED with the number of a failed one runs it first.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "memdisk.h"
#include "seed.h"

enum { CUTS_WANTED = 10000, SCHEDULES = 2600, CUTS_A_SCHEDULE = 3, OPENING_CHANGES = 10 };

/* Schedules that failed once; they run every time. */
static const uint64_t recorded[] = {
    290596963937, /* a new file got its name although that of the file before it was not durable */
};

static struct world world;
static uint64_t cuts;
static uint64_t tails;     /* openings that cut off an unfinished end */
static uint64_t carried;   /* openings that carried records over */
static uint64_t snapshots; /* openings from a snapshot */
static uint64_t schedule_seed;

static void check_open(struct world *w)
{
    enum pelago_status st = world_open(w);
    if (st != PELAGO_OK && !pl_disk_is_dead(w->disk))
        fail_msg("open after a cut: %s", w->error.text);
    tails += w->report.tail_bytes > 0;
    carried += w->report.carried > 0;
    snapshots += w->report.has_snapshot;
    if (pl_disk_is_dead(w->disk))
        return;
    assert_int_equal(w->report.snapshots_bad, 0);
    if (w->report.spares_bad > 0)
        fail_msg("after a cut: %s", w->report.spare_error.text);
}

/* The power goes and the store is opened again; again and again when it goes while opening. */
static void cut_and_open(struct world *w)
{
    do {
        if (pl_prng_below(&w->prng, 8) == 0) {
            world_process_dies(w);
        } else {
            world_power_cut(w);
            cuts++;
        }
        if (pl_prng_below(&w->prng, 4) == 0)
            pl_disk_dies_after(w->disk, pl_prng_below(&w->prng, 12));
        check_open(w);
    } while (!w->open || pl_disk_is_dead(w->disk));
}

/* Acts until the disk dies or so many times. */
static void act(struct world *w, uint32_t times)
{
    for (uint32_t i = 0; i < times && !pl_disk_is_dead(w->disk); i++) {
        enum pelago_status st = w->open ? world_act(w) : world_open(w);
        if (st != PELAGO_OK && !pl_disk_is_dead(w->disk))
            fail_msg("without a fault: %s", w->error.text);
    }
}

static void world_begin(struct world *w, uint64_t seed)
{
    world_init(w, seed);
    w->options.verify_all = pl_prng_below(&w->prng, 4) == 0;
    w->options.segment_bytes = 200 + pl_prng_below(&w->prng, 20000);
    w->options.snapshot_after_bytes = 2000 + pl_prng_below(&w->prng, 40000);
    w->filler_bytes =
        pl_prng_below(&w->prng, 8) == 0 ? 3 * PL_BLOCK_BYTES + 5 : pl_prng_below(&w->prng, 3000);
}

/* One script, cut at each of its changes in turn. */
static void test_cut_at_every_change(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 12; seed++) {
        world_begin(&world, seed);
        act(&world, 120);
        struct pl_disk_counts c = pl_disk_counts(world.disk);
        uint64_t changes = c.ops[PL_DISK_WRITE] + c.ops[PL_DISK_SYNC] + c.ops[PL_DISK_META];
        world_release(&world);
        assert_true(changes > 100);
        for (uint64_t n = 0; n < changes; n++) {
            world_begin(&world, seed);
            pl_disk_dies_after(world.disk, n);
            act(&world, 120);
            assert_true(pl_disk_is_dead(world.disk));
            cut_and_open(&world);
            act(&world, 10);
            cut_and_open(&world);
            world_release(&world);
        }
    }
}

/* A record longer than a quarter of a file, so that what follows begins behind it instead of carrying it; then the
 * process dies at one change of an opening, and the power goes at one change of the next. */
static void die_then_cut(uint64_t seed, uint64_t process_dies_after, uint64_t power_goes_after)
{
    world_init(&world, seed);
    world.options.segment_bytes = 200;
    assert_int_equal(world_open(&world), PELAGO_OK);
    assert_int_equal(world_append(&world), PELAGO_OK);
    world_process_dies(&world);
    pl_disk_dies_after(world.disk, process_dies_after);
    check_open(&world);
    world_process_dies(&world);
    pl_disk_dies_after(world.disk, power_goes_after);
    check_open(&world);
    world_power_cut(&world);
    cuts++;
    check_open(&world);
    assert_true(world.open);
    world_release(&world);
}

/* What an opening left behind may be seen without being durable; the next one must not build on it as it is. */
static void test_cut_after_a_dead_opening(void **state)
{
    (void)state;
    uint8_t data[WORLD_RECORD_BYTES_MAX];
    uint32_t type;
    assert_true(world_record(1, data, &type) > 50);
    for (uint64_t seed = 1; seed <= 16; seed++)
        for (uint64_t n = 0; n < OPENING_CHANGES; n++)
            for (uint64_t m = 0; m < OPENING_CHANGES; m++)
                die_then_cut(seed, n, m);
}

static void run_schedule(uint64_t seed)
{
    world_begin(&world, seed);
    for (int i = 0; i < CUTS_A_SCHEDULE; i++) {
        pl_disk_dies_after(world.disk, pl_prng_below(&world.prng, 150));
        act(&world, 100);
        cut_and_open(&world);
    }
    /* The power stays: all is as it should be, and there are few files. */
    pl_disk_dies_after(world.disk, PL_NEVER);
    act(&world, 20);
    world_close(&world);
    assert_int_equal(world_open(&world), PELAGO_OK);
    assert_true(world.store.snapshot_count <= 2);
    world_release(&world);
}

static void test_recorded_schedules(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof recorded / sizeof recorded[0]; i++)
        run_schedule(schedule_seed = recorded[i]);
}

static void test_random_schedules(void **state)
{
    (void)state;
    uint64_t first = test_seed();
    for (schedule_seed = first; schedule_seed < first + SCHEDULES; schedule_seed++)
        run_schedule(schedule_seed);
}

static int print_schedule(void **state)
{
    (void)state;
    print_message("# last schedule: PL_SEED=%llu\n", (unsigned long long)schedule_seed);
    return 0;
}

/* The tests above must have been what they say they are. */
static void test_enough_cuts(void **state)
{
    (void)state;
    print_message(
        "# %llu power cuts; openings: %llu cut a tail, %llu carried records, %llu from a snapshot\n",
        (unsigned long long)cuts, (unsigned long long)tails, (unsigned long long)carried,
        (unsigned long long)snapshots);
    assert_true(cuts >= CUTS_WANTED);
    assert_true(tails > 500);
    assert_true(carried > 500);
    assert_true(snapshots > 500);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cut_at_every_change),
        cmocka_unit_test(test_cut_after_a_dead_opening),
        cmocka_unit_test_teardown(test_recorded_schedules, print_schedule),
        cmocka_unit_test_teardown(test_random_schedules, print_schedule),
        cmocka_unit_test(test_enough_cuts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
