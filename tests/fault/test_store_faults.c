/* Everything fails once, and everything fails for good: the n-th read, write, sync and change of a name, for every n;
 * the n-th allocation of the disk; a full disk at every size. The store stops, resumes when the fault is gone, and has
 * lost nothing that was acknowledged; then the power goes, and that is still so.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "memdisk.h"

enum { ACTIONS = 70, PATIENCE = 4 };

static struct world world;

static void no_faults(struct world *w)
{
    for (int op = 0; op < PL_DISK_OPS; op++)
        pl_disk_set_fault(w->disk, (enum pl_disk_op)op, (struct pl_disk_fault){.times = 0});
    pl_disk_set_capacity(w->disk, UINT64_MAX);
    w->memory.fail_at = PL_NEVER;
}

/* Acts on in spite of failures; after a few the world is mended. Returns how many there were. */
static unsigned act(struct world *w)
{
    unsigned failures = 0;
    for (int i = 0; i < ACTIONS; i++) {
        enum pelago_status st = w->open ? world_act(w) : world_open(w);
        if (st == PELAGO_OK)
            continue;
        if (st == PELAGO_CORRUPT)
            fail_msg("nothing is damaged: %s", w->error.text);
        if (++failures == PATIENCE)
            no_faults(w);
    }
    return failures;
}

/* The fault is gone: the store works again, without being opened anew, and remembers. */
static void check_mended(struct world *w)
{
    no_faults(w);
    if (!w->open && world_open(w) != PELAGO_OK)
        fail_msg("open without a fault: %s", w->error.text);
    if (world_resume(w) != PELAGO_OK)
        fail_msg("resume without a fault: %s", w->error.text);
    assert_int_equal(world_append(w), PELAGO_OK);
    assert_int_equal(world_sync(w), PELAGO_OK);
    assert_int_equal(world_snapshot(w), PELAGO_OK);
    world_power_cut(w);
    if (world_open(w) != PELAGO_OK)
        fail_msg("open after a cut: %s", w->error.text);
    world_close(w);
}

static void fail_each(enum pl_disk_op op, uint64_t times, enum pelago_status status, uint64_t seed)
{
    for (uint64_t n = 0;; n++) {
        world_init(&world, seed);
        world.options.segment_bytes = 2000;
        world.options.verify_all = n % 4 == 0;
        pl_disk_set_fault(world.disk, op, (struct pl_disk_fault){n, times, status});
        act(&world);
        bool hit = pl_disk_counts(world.disk).ops[op] > n;
        check_mended(&world);
        world_release(&world);
        if (!hit) {
            assert_true(n > 20);
            return;
        }
    }
}

static void fail_each_both_ways(enum pl_disk_op op, enum pelago_status status)
{
    for (uint64_t seed = 1; seed <= 3; seed++) {
        fail_each(op, 1, status, seed);
        fail_each(op, UINT64_MAX, status, seed);
    }
}

static void test_reads(void **state)
{
    (void)state;
    fail_each_both_ways(PL_DISK_READ, PELAGO_IO);
}

static void test_writes(void **state)
{
    (void)state;
    fail_each_both_ways(PL_DISK_WRITE, PELAGO_IO);
}

static void test_syncs(void **state)
{
    (void)state;
    fail_each_both_ways(PL_DISK_SYNC, PELAGO_IO);
}

static void test_names(void **state)
{
    (void)state;
    fail_each_both_ways(PL_DISK_META, PELAGO_FULL);
}

static void test_allocations(void **state)
{
    (void)state;
    for (uint64_t times = 1; times <= 1000000; times *= 1000000) {
        bool hit = true;
        for (uint64_t n = 0; hit; n += times == 1 ? 1 : 3) {
            world_init(&world, 5);
            world.memory.fail_at = world.memory.requests + n;
            world.memory.fail_times = times;
            act(&world);
            hit = world.memory.fail_at != PL_NEVER && world.memory.requests > world.memory.fail_at;
            hit = hit || world.memory.fail_at == PL_NEVER;
            check_mended(&world);
            world_release(&world);
            assert_true(hit || n > 100);
        }
    }
}

/* The disk fills up while records are written and has room again later; nobody starts anything anew. */
static void test_full(void **state)
{
    (void)state;
    unsigned full = 0;
    for (uint64_t capacity = 0; capacity < 40000; capacity += 97) {
        world_init(&world, capacity);
        world.options.segment_bytes = 3000;
        world.options.snapshot_after_bytes = 20000;
        pl_disk_set_capacity(world.disk, capacity);
        full += act(&world) > 0;
        check_mended(&world);
        world_release(&world);
    }
    assert_true(full > 100);
}

/* Stopped by a full disk, again and again: the room that was there is not eaten by the attempts. */
static void test_full_does_not_leak(void **state)
{
    (void)state;
    world_init(&world, 3);
    assert_int_equal(world_open(&world), PELAGO_OK);
    pl_disk_set_capacity(world.disk, 6000);
    while (world_append(&world) == PELAGO_OK)
        assert_int_equal(world_sync(&world), PELAGO_OK);
    assert_int_equal(pl_store_failure(&world.store), PELAGO_FULL);
    assert_int_equal(pl_disk_used_bytes(world.disk), 6000);
    for (int i = 0; i < 20; i++) {
        world_resume(&world);
        assert_true(pl_disk_used_bytes(world.disk) <= 6000);
    }
    check_mended(&world);
    world_release(&world);
}

/* Several faults at once, by seed, with cuts in between. */
static void test_faults_and_cuts(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 400; seed++) {
        world_init(&world, seed);
        world.options.segment_bytes = 500 + pl_prng_below(&world.prng, 8000);
        for (int life = 0; life < 4; life++) {
            for (int op = 0; op < PL_DISK_OPS; op++)
                pl_disk_set_fault(world.disk, (enum pl_disk_op)op,
                                  (struct pl_disk_fault){pl_prng_below(&world.prng, 60),
                                                         pl_prng_below(&world.prng, 3), PELAGO_IO});
            act(&world);
            no_faults(&world);
            if (pl_prng_below(&world.prng, 2) == 0)
                world_power_cut(&world);
            else
                world_process_dies(&world);
            if (world_open(&world) != PELAGO_OK)
                fail_msg("seed %llu: %s", (unsigned long long)seed, world.error.text);
        }
        check_mended(&world);
        world_release(&world);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads),
        cmocka_unit_test(test_writes),
        cmocka_unit_test(test_syncs),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_allocations),
        cmocka_unit_test(test_full),
        cmocka_unit_test(test_full_does_not_leak),
        cmocka_unit_test(test_faults_and_cuts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
