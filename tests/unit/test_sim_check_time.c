/* The checkers about time and about agreement with the naive model: hostage, clock, progress, merged95, bounds,
 * balance, model. */
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

static void later(struct check_rig *r, uint64_t ms)
{
    r->now += ms * PL_MS;
    pl_checks_tick(r->c, r->now);
}

/* ---- hostage ---- */

static void test_steps_in_time(void **state)
{
    struct check_rig *r = *state;
    pl_checks_step(r->c, 5 * PL_SEC, 11, 1, 10, PL_SEC, 0);
    pl_checks_step(r->c, 6 * PL_SEC, 11, 1, 10, PL_SEC, 0);
    pl_checks_step(r->c, 9 * PL_SEC, 11, 1, 10, PL_SEC, 2 * PL_SEC); /* was frozen for two seconds */
    pl_checks_step(r->c, 9 * PL_SEC, 11, 8, 10, PL_SEC, 0);          /* a clone begins */
    pl_checks_step(r->c, 10 * PL_SEC, 11, 1, 10, PL_SEC, 0);
    pl_checks_step(r->c, 11 * PL_SEC, 11, 8, 10, 2 * PL_SEC, 0);
    crig_fine(r);
}

static void test_step_held_up(void **state)
{
    struct check_rig *r = *state;
    pl_checks_step(r->c, 5 * PL_SEC, 11, 1, 10, PL_SEC, 0);
    pl_checks_step(r->c, 6 * PL_SEC + 1, 11, 1, 10, PL_SEC, 0);
    crig_failed(r, "hostage");
}

static void quorum_at_due(struct check_rig *r)
{
    for (uint32_t i = 0; i < RIG_LEARNERS; i++) {
        crig_step(r, i);
        crig_pull(r, i, 0, 8);
        crig_copy(r, i, 0);
    }
    crig_push(r, 0, 0);
    crig_push(r, 1, 0);
    crig_tick(r, 0, 8);
}

static void test_merge_within_grace(void **state)
{
    struct check_rig *r = *state;
    quorum_at_due(r);
    later(r, RIG_INTERVAL_MS);
    struct pl_sync_effect fx[2] = {crig_merge_effect(r, 0, 3), {.kind = PL_SYNC_FX_SEND}};
    fx[1].u.send.conn = 4;
    fx[1].u.send.msg = (struct pl_msg){.type = PL_MSG_DROP, .u.drop = {0, r->round[0]}};
    crig_effects(r, 0, fx, 2);
    later(r, 10000);
    crig_fine(r);
}

static void test_merge_waits_too_long(void **state)
{
    struct check_rig *r = *state;
    quorum_at_due(r);
    later(r, RIG_INTERVAL_MS);
    crig_fine(r);
    later(r, 1);
    crig_failed(r, "hostage");
}

static void test_grace_of_an_hour(void **state)
{
    struct check_rig *r = *state;
    pl_checks_step(r->c, r->now, 11, 1, 10, PL_SEC, 0);
    quorum_at_due(r);
    struct pl_trace t = {PL_TRACE_SYNC_QUORUM, {0, r->round[0], 2, 4 * PL_SEC}};
    crig_effect(r, 0, (struct pl_sync_effect){.kind = PL_SYNC_FX_TRACE, .u.trace = t});
    crig_fine(r);
    t.arg[3] = 3600 * PL_SEC;
    crig_effect(r, 0, (struct pl_sync_effect){.kind = PL_SYNC_FX_TRACE, .u.trace = t});
    crig_failed(r, "hostage");
}

static void test_no_quorum_may_wait(void **state)
{
    struct check_rig *r = *state;
    crig_step(r, 0);
    crig_pull(r, 0, 0, 8);
    crig_copy(r, 0, 0);
    crig_push(r, 0, 0);
    crig_tick(r, 0, 8);
    later(r, 60000);
    crig_fine(r);
}

/* ---- clock ---- */

/* Three learners with one-second steps for n seconds; `every` ticks in that many milliseconds, 0: no ticks. */
static void train(struct check_rig *r, uint32_t seconds, uint32_t every_ms)
{
    static uint64_t tick, steps;
    for (uint32_t i = 0; i < seconds; i++) {
        steps++;
        for (uint32_t m = 0; m < RIG_LEARNERS; m++) {
            pl_checks_step(r->c, r->now, r->identities[m], r->process[m], 10, PL_SEC, 0);
            crig_message(r, 0, 2 * m, (struct pl_msg){.type = PL_MSG_REPORT, .u.report = {.steps = steps}});
        }
        for (uint32_t ms = 0; ms < 1000; ms += 100) {
            r->now += 100 * PL_MS;
            if (every_ms != 0 && r->now / PL_MS % every_ms == 0)
                crig_tick(r, 0, ++tick);
            crig_effects(r, 0, NULL, 0);
        }
    }
}

static void test_clock_right(void **state)
{
    struct check_rig *r = *state;
    pl_checks_calm(r->c, r->now, 0);
    train(r, 100, 1000);
    crig_fine(r);
}

static void test_clock_too_fast(void **state)
{
    struct check_rig *r = *state;
    pl_checks_calm(r->c, r->now, 0);
    train(r, 100, 500);
    crig_failed(r, "clock");
}

static void test_clock_not_judged_in_storm(void **state)
{
    struct check_rig *r = *state;
    train(r, 100, 500);
    crig_fine(r);
}

static void test_clock_stalls(void **state)
{
    struct check_rig *r = *state;
    pl_checks_calm(r->c, r->now, 0);
    train(r, 40, 1000);
    crig_fine(r);
    train(r, 10, 0);
    crig_failed(r, "clock");
}

/* ---- progress ---- */

static void test_progress_good(void **state)
{
    struct check_rig *r = *state;
    crig_round(r, 1, 4, 7);
    pl_checks_calm(r->c, r->now, 20 * PL_SEC);
    assert_false(pl_checks_all_contributed(r->c));
    crig_round(r, 0, 8, 7);
    crig_round(r, 1, 12, 3);
    assert_false(pl_checks_all_contributed(r->c));
    crig_round(r, 1, 20, 6);
    assert_true(pl_checks_all_contributed(r->c));
    later(r, 60000);
    crig_fine(r);
}

static void test_progress_missing(void **state)
{
    struct check_rig *r = *state;
    pl_checks_calm(r->c, r->now, 20 * PL_SEC);
    crig_round(r, 0, 8, 7);
    crig_round(r, 1, 12, 3); /* learner 13 never is in fragment 1 */
    later(r, 10000);
    crig_fine(r);
    later(r, 60000);
    crig_failed(r, "progress");
    assert_int_equal(pl_checks_failure(r->c)->exit, PL_SIM_LIVENESS);
}

/* ---- merged95 ---- */

static void rounds(struct check_rig *r, uint32_t count, uint32_t left_out_every)
{
    pl_checks_calm(r->c, r->now, 0);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t tick = 8 + 8 * (uint64_t)i;
        r->now += 8 * PL_SEC;
        crig_round(r, 0, tick, left_out_every != 0 && i % left_out_every == 0 ? 3 : 7);
    }
    pl_checks_end(r->c, r->now);
}

static void test_merged95_good(void **state)
{
    struct check_rig *r = *state;
    rounds(r, 120, 25);
    crig_fine(r);
}

static void test_merged95_bad(void **state)
{
    struct check_rig *r = *state;
    rounds(r, 120, 10);
    crig_failed(r, "merged95");
}

/* ---- bounds, balance ---- */

static void test_bounds(void **state)
{
    struct check_rig *r = *state;
    pl_checks_queue(r->c, r->now, "send buffer", 100, 100);
    crig_fine(r);
    pl_checks_queue(r->c, r->now, "send buffer", 101, 100);
    crig_failed(r, "bounds");
}

static void test_balance(void **state)
{
    struct check_rig *r = *state;
    struct pl_check_balance b = {
        .worked = 10, .merged = 7, .residual = 1, .local = 2.000001, .tolerance_abs = 1e-5};
    pl_checks_balance(r->c, r->now, 11, 1, 0, &b);
    crig_fine(r);
    b.residual = 0.9; /* what quantisation left behind is gone */
    pl_checks_balance(r->c, r->now, 11, 1, 0, &b);
    crig_failed(r, "balance");
}

static void test_balance_not_a_number(void **state)
{
    struct check_rig *r = *state;
    double zero = 0.0;
    struct pl_check_balance b = {.worked = zero / zero, .tolerance_abs = 1};
    pl_checks_balance(r->c, r->now, 11, 1, 0, &b);
    crig_failed(r, "balance");
}

/* ---- model ---- */

static void test_model_push_left_out(void **state)
{
    struct check_rig *r = *state;
    quorum_at_due(r);
    crig_push(r, 2, 0);
    crig_effect(r, 0, crig_merge_effect(r, 0, 3)); /* three are held */
    crig_failed(r, "model");
}

static void test_model_no_quorum(void **state)
{
    struct check_rig *r = *state;
    crig_step(r, 0);
    crig_pull(r, 0, 0, 8);
    crig_copy(r, 0, 0);
    crig_push(r, 0, 0);
    crig_tick(r, 0, 8);
    crig_effect(r, 0, crig_merge_effect(r, 0, 1));
    crig_failed(r, "model");
}

static void test_model_merged_before_due(void **state)
{
    struct check_rig *r = *state;
    quorum_at_due(r);
    crig_tick(r, 0, 7);
    crig_effect(r, 0, crig_merge_effect(r, 0, 3));
    crig_failed(r, "model");
}

static void test_model_forgotten_drop(void **state)
{
    struct check_rig *r = *state;
    quorum_at_due(r);
    crig_effect(r, 0, crig_merge_effect(r, 0, 3)); /* learner 13 was asked and is not told */
    crig_failed(r, "model");
}

static void test_model_drop_of_a_held_push(void **state)
{
    struct check_rig *r = *state;
    quorum_at_due(r);
    crig_send(r, 0, 0, (struct pl_msg){.type = PL_MSG_DROP, .u.drop = {0, r->round[0]}});
    crig_failed(r, "model");
}

static void test_model_wrong_last_merged(void **state)
{
    struct check_rig *r = *state;
    crig_round(r, 0, 8, 7);
    crig_round(r, 0, 16, 3);
    struct pl_sync_effect fx = crig_deliver_effect(r, 2, 0, r->last_merged[2][0]);
    fx.u.deliver.header.from_version = PL_NONE64;
    crig_effect(r, 0, fx);
    crig_fine(r);
    fx.u.deliver.header.last_merged = r->round[0];
    crig_effect(r, 0, fx);
    crig_failed(r, "model");
}

static void test_model_last_merged_survives_a_crash(void **state)
{
    struct check_rig *r = *state;
    crig_round(r, 0, 8, 7);
    crig_crash(r, 0);
    crig_boot(r, 0);
    crig_join(r, 0, 1, 102);
    struct pl_sync_effect fx = crig_deliver_effect(r, 1, 0, r->last_merged[1][0]);
    fx.u.deliver.header.from_version = PL_NONE64;
    crig_effect(r, 0, fx);
    crig_fine(r);
    fx.u.deliver.header.last_merged = 0;
    crig_effect(r, 0, fx);
    crig_failed(r, "model");
}

static void test_model_pull_twice(void **state)
{
    struct check_rig *r = *state;
    crig_pull(r, 0, 0, 8);
    crig_fine(r);
    crig_pull(r, 0, 0, 8);
    crig_failed(r, "model");
}

static void test_model_pull_on_a_wrong_base(void **state)
{
    struct check_rig *r = *state;
    crig_round(r, 0, 8, 7);
    r->version[0] = 0;
    crig_pull(r, 0, 0, 16);
    crig_failed(r, "model");
}

static void test_model_pull_when_not_due(void **state)
{
    struct check_rig *r = *state;
    crig_pull(r, 0, 0, 9);
    crig_failed(r, "model");
}

static void test_model_reset_of_an_honest_learner(void **state)
{
    struct check_rig *r = *state;
    crig_round(r, 0, 8, 7);
    struct pl_sync_effect fx = crig_deliver_effect(r, 0, 0, r->round[0]);
    fx.u.deliver.header.from_version = PL_NONE64;
    fx.u.deliver.header.flags = 1;
    crig_effect(r, 0, fx);
    crig_failed(r, "model");
}

static void test_model_closing_round(void **state)
{
    struct check_rig *r = *state;
    struct pl_trace t = {PL_TRACE_SYNC_CLOSING, {0, 0, 0, 0}};
    crig_effect(r, 0, (struct pl_sync_effect){.kind = PL_SYNC_FX_TRACE, .u.trace = t});
    for (uint32_t i = 0; i < RIG_LEARNERS; i++) {
        crig_step(r, i);
        crig_pull(r, i, 0, 9);
        crig_copy(r, i, 0);
    }
    crig_push(r, 0, 0); /* fewer than K may be merged now, but not while others may still answer */
    crig_message(r, 0, 2, (struct pl_msg){.type = PL_MSG_SKIP, .u.skip = {0, r->round[0]}});
    crig_fine(r);
    crig_effect(r, 0, crig_merge_effect(r, 0, 1));
    crig_failed(r, "model");
}

static void test_model_waits_for_nobody(void **state)
{
    struct check_rig *r = *state;
    quorum_at_due(r);
    later(r, 10);
    crig_effects(r, 0, NULL, 0);
    crig_fine(r);        /* learner 13 may still answer */
    crig_leave(r, 0, 2); /* it is gone */
    crig_effects(r, 0, NULL, 0);
    crig_fine(r);
    later(r, 10);
    crig_effects(r, 0, NULL, 0);
    crig_failed(r, "model");
}

static void test_model_superseded_round(void **state)
{
    struct check_rig *r = *state;
    crig_step(r, 0);
    crig_pull(r, 0, 0, 8);
    crig_copy(r, 0, 0);
    crig_push(r, 0, 0);
    crig_tick(r, 0, 8); /* no quorum; the next round begins */
    struct pl_sync_effect fx = {.kind = PL_SYNC_FX_DISCARD};
    fx.u.push.learner = 0;
    crig_effect(r, 0, fx);
    crig_round(r, 0, 16, 7);
    crig_fine(r);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_steps_in_time),
        TEST(test_step_held_up),
        TEST(test_merge_within_grace),
        TEST(test_merge_waits_too_long),
        TEST(test_grace_of_an_hour),
        TEST(test_no_quorum_may_wait),
        TEST(test_clock_right),
        TEST(test_clock_too_fast),
        TEST(test_clock_not_judged_in_storm),
        TEST(test_clock_stalls),
        TEST(test_progress_good),
        TEST(test_progress_missing),
        TEST(test_merged95_good),
        TEST(test_merged95_bad),
        TEST(test_bounds),
        TEST(test_balance),
        TEST(test_balance_not_a_number),
        TEST(test_model_push_left_out),
        TEST(test_model_no_quorum),
        TEST(test_model_merged_before_due),
        TEST(test_model_forgotten_drop),
        TEST(test_model_drop_of_a_held_push),
        TEST(test_model_wrong_last_merged),
        TEST(test_model_last_merged_survives_a_crash),
        TEST(test_model_pull_twice),
        TEST(test_model_pull_on_a_wrong_base),
        TEST(test_model_pull_when_not_due),
        TEST(test_model_reset_of_an_honest_learner),
        TEST(test_model_closing_round),
        TEST(test_model_waits_for_nobody),
        TEST(test_model_superseded_round),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
