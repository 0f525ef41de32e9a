/* The n-th allocation of a simulated run fails, for every n: the run ends with NOMEM, and nothing stays allocated. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include "sim/sim.h"

#include <stdio.h>
#include <string.h>

struct counting {
    struct pl_alloc system;
    uint64_t calls;   /* allocations so far */
    uint64_t fail_at; /* this one fails ... */
    bool for_ever;    /* ... and all after it */
    uint64_t blocks, bytes;
};

static void *counting_resize(void *user, void *block, size_t old_bytes, size_t new_bytes)
{
    struct counting *c = user;
    if (new_bytes > 0) {
        uint64_t n = c->calls++;
        if (n == c->fail_at || (c->for_ever && n > c->fail_at))
            return NULL;
    }
    void *fresh = c->system.resize(c->system.user, block, old_bytes, new_bytes);
    if (new_bytes > 0 && fresh == NULL)
        return NULL;
    c->blocks += (new_bytes > 0 ? 1u : 0u);
    c->blocks -= (block != NULL ? 1u : 0u);
    c->bytes += new_bytes - (block != NULL ? old_bytes : 0);
    return fresh;
}

static void short_run(struct pl_sim_options *o)
{
    pl_sim_draw(3, o);
    o->duration_ns = 6 * PL_SEC;
    o->learners = 2;
    o->shards = 1;
    o->fragments = 2;
    o->period_steps = 2;
    o->quorum = 1;
    o->apply = 0;
    o->dimensions = 64;
    o->step_ns = 300 * PL_MS;
    o->speed_spread_permille = 200;
    o->latency_ns = 5 * PL_MS;
    o->bandwidth = 100000;
    o->checkpoint_ns = PL_SEC;
    o->local_data_permille = 0;
    o->faults = PL_FAULT_LEARNER_CRASH | PL_FAULT_SYNCER_CRASH | PL_FAULT_RESET | PL_FAULT_LEARNER_FREEZE |
                PL_FAULT_HOSTILE | PL_FAULT_DISK_FULL;
    o->fault_mean_ms = 500;
}

static enum pelago_status run(struct counting *c, struct pl_sim_result *result)
{
    struct pl_sim_options o;
    struct pl_alloc alloc = {counting_resize, c};
    short_run(&o);
    return pl_sim_run(&o, NULL, &alloc, result);
}

static void fail_each(uint64_t first, uint64_t stride, bool for_ever)
{
    struct pl_sim_result result;
    uint64_t n = first;
    for (;; n += stride) {
        struct counting c = {.system = pl_alloc_system(), .fail_at = n, .for_ever = for_ever};
        enum pelago_status status = run(&c, &result);
        if (c.blocks != 0 || c.bytes != 0)
            fail_msg("allocation %llu failed and %llu blocks were left", (unsigned long long)n,
                     (unsigned long long)c.blocks);
        if (c.calls <= n)
            break; /* the run was over before */
        if (status != PELAGO_NOMEM)
            fail_msg("allocation %llu failed, but the run says %s: %s", (unsigned long long)n,
                     pl_status_name(status), result.what);
    }
    printf("# %llu allocations\n", (unsigned long long)n);
    assert_true(n > 500);
}

static void nothing_is_left_when_nothing_fails(void **state)
{
    (void)state;
    struct counting c = {.system = pl_alloc_system(), .fail_at = UINT64_MAX};
    struct pl_sim_result result;
    assert_int_equal(run(&c, &result), PELAGO_OK);
    if (result.exit != PL_SIM_OK)
        fail_msg("the run fails without any lack of memory: %s", result.what);
    assert_true(result.faults_injected > 0);
    assert_int_equal(c.blocks, 0);
    assert_int_equal(c.bytes, 0);
}

static void one_allocation_fails(void **state)
{
    (void)state;
    fail_each(0, 1, false);
}

static void all_allocations_fail_from_one_on(void **state)
{
    (void)state;
    fail_each(1, 7, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_left_when_nothing_fails),
        cmocka_unit_test(one_allocation_fails),
        cmocka_unit_test(all_allocations_fail_from_one_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
