/* Checkers history and durable: a good history passes, each violation made by hand is seen. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "check_rig.h"

static int setup(void **state)
{
    static struct check_rig rig;
    crig_init(&rig, 2, 1);
    for (uint32_t i = 0; i < RIG_LEARNERS; i++)
        crig_join(&rig, 0, i, 100 + rig.process[i]);
    *state = &rig;
    return 0;
}

static int teardown(void **state)
{
    crig_free(*state);
    return 0;
}

static void test_good(void **state)
{
    struct check_rig *r = *state;
    crig_round(r, 1, 4, 7);
    crig_round(r, 0, 8, 7);
    crig_round(r, 1, 12, 5);
    pl_checks_end(r->c, r->now);
    crig_fine(r);
    assert_int_equal(pl_checks_merged_tokens(r->c, 0), 3 * 3 * RIG_STEP_TOKENS);
}

/* Everything of a round up to, not with, the record. */
static void until_merged(struct check_rig *r, uint64_t tick)
{
    for (uint32_t i = 0; i < 2; i++) {
        crig_step(r, i);
        crig_pull(r, i, 0, tick);
        crig_copy(r, i, 0);
        crig_push(r, i, 0);
    }
    crig_tick(r, 0, tick);
    crig_effect(r, 0, crig_merge_effect(r, 0, 3));
    crig_merged(r, 0, crig_digest(0, r->version[0] + 1));
}

static void test_update_with_another_digest(void **state)
{
    struct check_rig *r = *state;
    crig_round(r, 0, 8, 7);
    struct pl_sync_effect fx = crig_deliver_effect(r, 0, 0, r->round[0]);
    fx.u.deliver.header.digest++;
    crig_effect(r, 0, fx);
    crig_failed(r, "history");
}

static void test_update_to_an_older_version_digest(void **state)
{
    struct check_rig *r = *state;
    crig_round(r, 0, 8, 7);
    crig_round(r, 0, 16, 7);
    pl_checks_anchor(r->c, r->now, r->identities[1], r->process[1], 0, 1, crig_digest(0, 1));
    crig_fine(r);
    pl_checks_anchor(r->c, r->now, r->identities[1], r->process[1], 0, 1, crig_digest(0, 2));
    crig_failed(r, "history");
}

static void test_anchor_of_the_future(void **state)
{
    struct check_rig *r = *state;
    pl_checks_anchor(r->c, r->now, r->identities[1], r->process[1], 0, 1, crig_digest(0, 1));
    crig_failed(r, "history");
}

static void test_record_without_merge(void **state)
{
    struct check_rig *r = *state;
    crig_store(r, 0, (struct pl_record){.type = PL_RECORD_ROUND, .version = 1, .digest = 5}, true);
    crig_failed(r, "history");
}

static void test_version_skipped(void **state)
{
    struct check_rig *r = *state;
    until_merged(r, 8);
    r->version[0]++;
    crig_store_round(r, 0, 3, true);
    crig_failed(r, "history");
}

static void test_recovered_with_another_digest(void **state)
{
    struct check_rig *r = *state;
    crig_round(r, 0, 8, 7);
    crig_crash(r, 0);
    pl_checks_recovered(r->c, 0, r->now, 0, 1, crig_digest(0, 1) + 1);
    crig_failed(r, "history");
}

static void test_published_before_durable(void **state)
{
    struct check_rig *r = *state;
    until_merged(r, 8);
    crig_store_round(r, 0, 3, false);
    crig_publish(r, 0);
    crig_failed(r, "durable");
}

static void test_announced_version_lost(void **state)
{
    struct check_rig *r = *state;
    crig_round(r, 0, 8, 7);
    crig_crash(r, 0);
    pl_checks_recovered(r->c, 0, r->now, 0, 0, crig_digest(0, 0));
    crig_failed(r, "durable");
}

static void test_unannounced_version_may_go_or_stay(void **state)
{
    struct check_rig *r = *state;
    until_merged(r, 8);
    crig_store_round(r, 0, 3, false);
    crig_crash(r, 0);
    crig_boot(r, 0); /* gone: at version 0 */
    crig_fine(r);
    for (uint32_t i = 0; i < 2; i++)
        crig_join(r, 0, i, 100 + r->process[i]);
    until_merged(r, 16);
    crig_store_round(r, 0, 3, true);
    crig_crash(r, 0);
    r->version[0] = 1; /* stays: durable, not announced */
    crig_boot(r, 0);
    crig_fine(r);
    crig_crash(r, 0);
    r->version[0] = 0; /* but then it has been seen */
    crig_boot(r, 0);
    crig_failed(r, "durable");
}

static void test_replayed_record_differs(void **state)
{
    struct check_rig *r = *state;
    crig_round(r, 0, 8, 7);
    crig_crash(r, 0);
    struct pl_sync_effect fx = crig_merge_effect(r, 0, 7);
    struct pl_record record = {.type = PL_RECORD_ROUND,
                               .epoch = 1,
                               .fragment = 0,
                               .round = r->round[0],
                               .version = 1,
                               .digest = crig_digest(0, 1),
                               .update_bytes = 50,
                               .contributor_count = fx.u.merge.contributor_count,
                               .contributors = r->contributors};
    pl_checks_replayed(r->c, 0, r->now, &record);
    crig_fine(r);
    r->contributors[1].tokens++;
    pl_checks_replayed(r->c, 0, r->now, &record);
    crig_failed(r, "durable");
}

static void test_record_out_of_nowhere(void **state)
{
    struct check_rig *r = *state;
    crig_crash(r, 0);
    struct pl_record record = {.type = PL_RECORD_ROUND, .version = 1};
    pl_checks_replayed(r->c, 0, r->now, &record);
    crig_failed(r, "durable");
}

static void test_epoch_used_twice(void **state)
{
    struct check_rig *r = *state;
    crig_crash(r, 0);
    r->epoch[0]--;
    crig_boot(r, 0);
    crig_failed(r, "durable");
}

static void test_listens_too_early(void **state)
{
    struct check_rig *r = *state;
    crig_crash(r, 0);
    crig_event(r, 0, (struct pl_sync_event){.kind = PL_SYNC_EV_BOOT});
    crig_store(r, 0, (struct pl_record){.type = PL_RECORD_BOOT, .epoch = 9}, false);
    crig_effect(r, 0, (struct pl_sync_effect){.kind = PL_SYNC_FX_LISTEN});
    crig_failed(r, "durable");
}

static void test_lease_told_too_early(void **state)
{
    struct check_rig *r = *state;
    struct pl_msg lease = {.type = PL_MSG_LEASE, .u.lease = {.unit = 3}};
    crig_store(r, 0, (struct pl_record){.type = PL_RECORD_LEASE, .unit = 3, .identity = 11}, true);
    crig_send(r, 0, 0, lease);
    crig_fine(r);
    crig_store(r, 0, (struct pl_record){.type = PL_RECORD_LEASE, .unit = 4, .identity = 12}, false);
    lease.u.lease.unit = 4;
    crig_send(r, 0, 2, lease);
    crig_failed(r, "durable");
}

static void test_done_told_too_early(void **state)
{
    struct check_rig *r = *state;
    crig_store(r, 0, (struct pl_record){.type = PL_RECORD_DONE}, false);
    crig_effect(r, 0,
                (struct pl_sync_effect){.kind = PL_SYNC_FX_CLOSE, .u.close = {.reason = PL_REASON_DONE}});
    crig_failed(r, "durable");
}

/* ---- memory ---- */

struct budget {
    int left; /* allocations until one fails */
    int live; /* blocks not given back */
};

static void *budget_resize(void *user, void *block, size_t old_bytes, size_t new_bytes)
{
    struct budget *b = user;
    struct pl_alloc system = pl_alloc_system();
    if (new_bytes != 0 && b->left-- <= 0)
        return NULL;
    void *p = system.resize(system.user, block, old_bytes, new_bytes);
    b->live += block == NULL && p != NULL ? 1 : block != NULL && new_bytes == 0 ? -1 : 0;
    return p;
}

/* The n-th allocation fails, for every n: nothing leaks, and the checks say that they are no longer complete. */
static void test_no_memory(void **state)
{
    (void)state;
    struct check_rig r;
    crig_init(&r, 2, 1);
    struct pl_check_setup options = {.manifest = &r.manifest,
                                     .identities = r.identities,
                                     .identity_count = RIG_LEARNERS,
                                     .learners_max = 8,
                                     .conns_max = 16};
    crig_free(&r);
    bool complete = false;
    int failures = 0;
    for (int n = 0; !complete; n++) {
        struct budget b = {.left = n};
        r.alloc = (struct pl_alloc){budget_resize, &b};
        r.version[0] = r.version[1] = r.epoch[0] = 0;
        for (uint32_t i = 0; i < RIG_LEARNERS; i++)
            for (uint32_t p = 0; p < 2; p++)
                r.work[i][p] = (struct pl_work){0};
        r.c = pl_checks_new(&r.alloc, &options);
        if (r.c != NULL) {
            crig_boot(&r, 0);
            for (uint32_t i = 0; i < RIG_LEARNERS; i++)
                crig_join(&r, 0, i, 100 + r.process[i]);
            crig_round(&r, 0, 8, 7);
            complete = pl_checks_status(r.c) == PELAGO_OK;
            assert_null(pl_checks_failure(r.c));
        }
        failures += complete ? 0 : 1;
        pl_checks_free(r.c);
        assert_int_equal(b.live, 0);
    }
    assert_true(failures > 20);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_memory),
        TEST(test_good),
        TEST(test_update_with_another_digest),
        TEST(test_update_to_an_older_version_digest),
        TEST(test_anchor_of_the_future),
        TEST(test_record_without_merge),
        TEST(test_version_skipped),
        TEST(test_recovered_with_another_digest),
        TEST(test_published_before_durable),
        TEST(test_announced_version_lost),
        TEST(test_unannounced_version_may_go_or_stay),
        TEST(test_replayed_record_differs),
        TEST(test_record_out_of_nowhere),
        TEST(test_epoch_used_twice),
        TEST(test_listens_too_early),
        TEST(test_lease_told_too_early),
        TEST(test_done_told_too_early),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
