/* struct pl_work and the checkers about contributions: once, staleness, ledger, units,
 * fence, manners. */
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

/* Two learners' pushes of fragment 0 are here for this tick. */
static void gather(struct check_rig *r, uint64_t tick)
{
    for (uint32_t i = 0; i < 2; i++) {
        crig_step(r, i);
        crig_pull(r, i, 0, tick);
        crig_copy(r, i, 0);
        crig_push(r, i, 0);
    }
    crig_tick(r, 0, tick);
}

static void test_work(void **state)
{
    (void)state;
    struct pl_work w = {0}, copied;
    for (uint64_t n = 1; n <= 5; n++)
        pl_work_step(&w, pl_step_id(1, n), 10);
    assert_int_equal(w.range_count, 1);
    copied = w;
    pl_work_step(&w, pl_step_id(1, 6), 7);
    pl_work_step(&w, pl_step_id(4, 1), 10); /* went on from a checkpoint */
    assert_int_equal(w.steps, 7);
    assert_int_equal(w.range_count, 2);
    pl_work_remove(&w, &copied);
    assert_int_equal(w.steps, 2);
    assert_int_equal(w.tokens, 17);
    assert_int_equal(w.range_count, 2);
    assert_int_equal(w.range[0].first, pl_step_id(1, 6));
    pl_work_clear(&w);
    assert_int_equal(w.steps + w.tokens + w.range_count, 0);
    for (uint64_t process = 1; process <= 20; process++)
        pl_work_step(&w, pl_step_id(process, 1), 1);
    assert_int_equal(w.steps, 20);
    assert_int_equal(w.range_count, PL_WORK_RANGES_MAX);
    assert_int_equal(w.range[0].first, pl_step_id(13, 1));
}

static void test_good(void **state)
{
    struct check_rig *r = *state;
    for (uint64_t tick = 4; tick <= 40; tick += 4)
        crig_round(r, tick % 8 == 4 ? 1 : 0, tick, tick % 3 == 0 ? 7 : 3);
    crig_fine(r);
}

static void test_work_merged_twice(void **state)
{
    struct check_rig *r = *state;
    crig_round(r, 0, 8, 7);
    r->work[0][0] = r->copied[0][0]; /* as after an old checkpoint whose work was kept */
    crig_round(r, 0, 16, 7);
    crig_failed(r, "once");
}

static void test_merged_in_another_fragment_is_fine(void **state)
{
    struct check_rig *r = *state;
    crig_round(r, 1, 4, 7);
    crig_round(r, 0, 8, 7);
    crig_fine(r);
}

static void test_lost_merge_may_come_again(void **state)
{
    struct check_rig *r = *state;
    gather(r, 8);
    crig_effect(r, 0, crig_merge_effect(r, 0, 3));
    crig_crash(r, 0);
    crig_boot(r, 0);
    for (uint32_t i = 0; i < RIG_LEARNERS; i++)
        crig_join(r, 0, i, 100 + r->process[i]);
    crig_round(r, 0, 16, 3);
    crig_fine(r);
}

static void test_surviving_merge_counts(void **state)
{
    struct check_rig *r = *state;
    gather(r, 8);
    crig_effect(r, 0, crig_merge_effect(r, 0, 3));
    crig_merged(r, 0, crig_digest(0, 1));
    crig_store_round(r, 0, 3, true);
    crig_crash(r, 0);
    r->version[0] = 1;
    crig_boot(r, 0);
    for (uint32_t i = 0; i < RIG_LEARNERS; i++)
        crig_join(r, 0, i, 100 + r->process[i]);
    crig_fine(r);
    crig_round(r, 0, 16, 3); /* with the same steps: nobody took them out */
    crig_failed(r, "once");
}

static void test_push_nobody_copied(void **state)
{
    struct check_rig *r = *state;
    crig_step(r, 0);
    crig_pull(r, 0, 0, 8);
    crig_copy(r, 0, 0);
    r->push[0][0].digest++;
    crig_push(r, 0, 0);
    crig_tick(r, 0, 8);
    crig_effect(r, 0, crig_merge_effect(r, 0, 1));
    crig_failed(r, "once");
}

static void test_merge_during_merge(void **state)
{
    struct check_rig *r = *state;
    gather(r, 8);
    crig_effect(r, 0, crig_merge_effect(r, 0, 3));
    crig_fine(r);
    crig_effect(r, 0, crig_merge_effect(r, 0, 3));
    crig_failed(r, "once");
}

static void test_merge_onto_an_old_version(void **state)
{
    struct check_rig *r = *state;
    crig_round(r, 0, 8, 7);
    gather(r, 16);
    struct pl_sync_effect fx = crig_merge_effect(r, 0, 3);
    fx.u.merge.base_version = 0;
    crig_effect(r, 0, fx);
    crig_failed(r, "staleness");
}

static void test_push_on_an_old_version(void **state)
{
    struct check_rig *r = *state;
    crig_round(r, 0, 8, 7);
    for (uint32_t i = 0; i < 2; i++) {
        crig_step(r, i);
        crig_pull(r, i, 0, 16);
        crig_copy(r, i, 0);
        r->push[i][0].base_version -= i;
        crig_push(r, i, 0);
    }
    crig_tick(r, 0, 16);
    crig_effect(r, 0, crig_merge_effect(r, 0, 3));
    crig_failed(r, "staleness");
}

/* A learner process joins with fragment 0 at a version and takes another. */
static void returns(struct check_rig *r, uint64_t have_version, uint64_t to, enum pl_outcome outcome)
{
    uint8_t have[2 * PL_ITEM_HAVE_BYTES];
    for (uint32_t p = 0; p < 2; p++) {
        struct pl_item_have item = {p == 0 ? have_version : 0, 0};
        pl_item_have_put(have, p, &item);
    }
    struct pl_learn_effect fx[2] = {{.kind = PL_LEARN_FX_SEND}, {.kind = PL_LEARN_FX_APPLY}};
    fx[0].u.conn.msg = (struct pl_msg){.type = PL_MSG_JOIN, .u.join = {.have = {have, 2}}};
    fx[1].u.update.fragment = 0;
    fx[1].u.update.to_version = to;
    fx[1].u.update.outcome = outcome;
    struct pl_learn_fxs fxs = {fx, 2, 2};
    pl_checks_learn_effects(r->c, r->identities[2], r->process[2], r->now, &fxs);
}

static void test_old_work_kept(void **state)
{
    struct check_rig *r = *state;
    returns(r, 3, 5, PL_OUTCOME_KEPT);
    returns(r, 3, 9, PL_OUTCOME_DISCARD);
    returns(r, 3, 9, PL_OUTCOME_MERGED);
    crig_fine(r);
    returns(r, 3, 9,
            PL_OUTCOME_KEPT); /* the clock did not go on without it: it was not sent what lies between */
    crig_fine(r);
    crig_tick(r, 0, 100);
    returns(r, 3, 6, PL_OUTCOME_KEPT);
    crig_failed(r, "staleness");
}

static void test_good_work_dropped(void **state)
{
    struct check_rig *r = *state;
    returns(r, 3, 4, PL_OUTCOME_DISCARD); /* a process's first value: its checkpoint may be old */
    crig_fine(r);
    returns(r, 3, 5, PL_OUTCOME_DISCARD);
    crig_failed(r, "staleness");
}

static void test_weight_is_not_the_work(void **state)
{
    struct check_rig *r = *state;
    crig_step(r, 0);
    crig_step(r, 1);
    crig_pull(r, 0, 0, 8);
    crig_pull(r, 1, 0, 8);
    crig_copy(r, 0, 0);
    crig_copy(r, 1, 0);
    r->push[1][0].steps++; /* a counter that was not reset: header and merge agree, the work does not */
    crig_push(r, 0, 0);
    crig_push(r, 1, 0);
    crig_tick(r, 0, 8);
    crig_effect(r, 0, crig_merge_effect(r, 0, 3));
    crig_failed(r, "ledger");
}

static void test_record_is_not_the_merge(void **state)
{
    struct check_rig *r = *state;
    gather(r, 8);
    crig_effect(r, 0, crig_merge_effect(r, 0, 3));
    crig_merged(r, 0, crig_digest(0, 1));
    crig_store_round(r, 0, 1, true);
    crig_failed(r, "ledger");
}

static void clock_says(struct check_rig *r, uint64_t tokens)
{
    crig_send(r, 0, 0, (struct pl_msg){.type = PL_MSG_CLOCK, .u.clock = {.clock_tokens = tokens}});
}

static void test_token_clock_goes_back(void **state)
{
    struct check_rig *r = *state;
    pl_checks_step(r->c, r->now, 11, 1, 500, PL_SEC, 0);
    clock_says(r, 400);
    clock_says(r, 500);
    crig_fine(r);
    clock_says(r, 499);
    crig_failed(r, "ledger");
}

static void test_token_clock_counts_too_much(void **state)
{
    struct check_rig *r = *state;
    pl_checks_step(r->c, r->now, 11, 1, 500, PL_SEC, 0);
    clock_says(r, 501);
    crig_failed(r, "ledger");
}

static void test_token_clock_lost_in_a_crash(void **state)
{
    struct check_rig *r = *state;
    struct pl_trace t = {PL_TRACE_SYNC_BOOT, {2, 0, 400, 0}};
    crig_store(r, 0,
               (struct pl_record){.type = PL_RECORD_LEASE, .unit = 1, .identity = 11, .clock_tokens = 400},
               true);
    crig_store(r, 0,
               (struct pl_record){.type = PL_RECORD_LEASE, .unit = 2, .identity = 11, .clock_tokens = 500},
               false);
    crig_crash(r, 0);
    crig_effect(r, 0, (struct pl_sync_effect){.kind = PL_SYNC_FX_TRACE, .u.trace = t});
    crig_fine(r);
    t.arg[2] = 399;
    crig_effect(r, 0, (struct pl_sync_effect){.kind = PL_SYNC_FX_TRACE, .u.trace = t});
    crig_failed(r, "ledger");
}

static void test_learners_clock_goes_back(void **state)
{
    struct check_rig *r = *state;
    struct pl_learn_effect fx = {.kind = PL_LEARN_FX_CLOCK, .u.clock = {.tokens = 10}};
    struct pl_learn_fxs fxs = {&fx, 1, 1};
    pl_checks_learn_effects(r->c, 11, 1, r->now, &fxs);
    fx.u.clock.tokens = 9;
    pl_checks_learn_effects(r->c, 11, 7, r->now, &fxs); /* another process */
    crig_fine(r);
    fx.u.clock.tokens = 8;
    pl_checks_learn_effects(r->c, 11, 7, r->now, &fxs);
    crig_failed(r, "ledger");
}

static void lease(struct check_rig *r, uint32_t learner, uint64_t unit, uint64_t cursor)
{
    crig_store(r, 0,
               (struct pl_record){.type = PL_RECORD_LEASE, .unit = unit, .identity = r->identities[learner]},
               true);
    crig_send(r, 0, 2 * learner, (struct pl_msg){.type = PL_MSG_LEASE, .u.lease = {unit, cursor}});
}

static void report(struct check_rig *r, uint32_t learner, uint64_t unit, uint64_t cursor)
{
    crig_message(r, 0, 2 * learner,
                 (struct pl_msg){.type = PL_MSG_REPORT, .u.report = {.unit = unit, .cursor = cursor}});
}

static void test_units_good(void **state)
{
    struct check_rig *r = *state;
    lease(r, 0, 0, 0);
    lease(r, 1, 1, 0);
    report(r, 0, 0, 300);
    crig_leave(r, 0, 0);
    lease(r, 1, 0, 300); /* continued by somebody */
    report(r, 1, 0, 1000);
    lease(r, 2, 2, 0);
    crig_fine(r);
}

static void test_unit_with_two(void **state)
{
    struct check_rig *r = *state;
    lease(r, 0, 0, 0);
    lease(r, 1, 0, 0);
    crig_failed(r, "units");
}

static void test_unit_used_up(void **state)
{
    struct check_rig *r = *state;
    lease(r, 0, 0, 0);
    report(r, 0, 0, 1000);
    lease(r, 1, 0, 1000);
    crig_failed(r, "units");
}

static void test_unit_begun_again(void **state)
{
    struct check_rig *r = *state;
    lease(r, 0, 0, 0);
    report(r, 0, 0, 300);
    crig_leave(r, 0, 0);
    lease(r, 1, 0, 200);
    crig_failed(r, "units");
}

static void test_fence_good(void **state)
{
    struct check_rig *r = *state;
    crig_leave(r, 0, 0);
    crig_join(r, 0, 0, 101); /* the same process again */
    crig_leave(r, 0, 0);
    r->process[0] = 9;
    crig_join(r, 0, 0, 109);
    crig_round(r, 0, 8, 7);
    crig_fine(r);
}

static void test_old_process_welcomed(void **state)
{
    struct check_rig *r = *state;
    crig_leave(r, 0, 0);
    r->process[0] = 9;
    crig_join(r, 0, 0, 109);
    crig_leave(r, 0, 0);
    r->process[0] = 1;
    crig_join(r, 0, 0, 101);
    crig_failed(r, "fence");
}

static void test_push_of_an_old_process(void **state)
{
    struct check_rig *r = *state;
    gather(r, 8);
    crig_leave(r, 0, 0);
    r->process[0] = 9;
    crig_join(r, 0, 0, 109);
    r->process[0] = 1;
    crig_effect(r, 0, crig_merge_effect(r, 0, 3));
    crig_failed(r, "fence");
}

static void test_two_processes_one_incarnation(void **state)
{
    struct check_rig *r = *state;
    crig_leave(r, 0, 0);
    r->process[0] = 9;
    crig_join(r, 0, 0, 101);
    crig_failed(r, "fence");
}

static void test_identity_twice_in_a_merge(void **state)
{
    struct check_rig *r = *state;
    gather(r, 8);
    struct pl_sync_effect fx = crig_merge_effect(r, 0, 3);
    r->contributors[1] = r->contributors[0];
    crig_effect(r, 0, fx);
    assert_non_null(pl_checks_failure(r->c));
}

static void test_message_of_an_old_process(void **state)
{
    struct check_rig *r = *state;
    /* A second connection of learner 11 is welcomed with a newer incarnation; the first one goes on. */
    crig_event(r, 0, (struct pl_sync_event){.kind = PL_SYNC_EV_OPENED, .u.opened = {9, 11}});
    crig_message(r, 0, 9, (struct pl_msg){.type = PL_MSG_HELLO, .u.hello = {.nonce = 77}});
    crig_send(r, 0, 9, (struct pl_msg){.type = PL_MSG_WELCOME, .u.welcome = {.incarnation = 150}});
    crig_fine(r);
    report(r, 0, PL_NONE64, 0);
    crig_effects(r, 0, NULL, 0);
    crig_failed(r, "fence");
}

static struct pl_sync_effect close_fx(uint32_t conn, enum pl_reason reason)
{
    return (struct pl_sync_effect){.kind = PL_SYNC_FX_CLOSE,
                                   .u.close = {.conn = conn, .reason = reason, .text = "what was expected"}};
}

static void bad_bytes(struct check_rig *r, uint32_t conn)
{
    struct pl_error error = {.text = "no frame"};
    crig_event(r, 0, (struct pl_sync_event){.kind = PL_SYNC_EV_BAD, .u.bad = {conn, &error}});
}

static void test_manners_good(void **state)
{
    struct check_rig *r = *state;
    bad_bytes(r, 0);
    struct pl_sync_effect fx[2] = {close_fx(0, PL_REASON_BAD_FRAME), close_fx(1, PL_REASON_BAD_FRAME)};
    crig_effects(r, 0, fx, 2);
    crig_message(r, 0, 2, (struct pl_msg){.type = PL_MSG_LEASE}); /* not for learners to say */
    crig_effect(r, 0, close_fx(2, PL_REASON_WRONG_STATE));
    crig_effect(r, 0, close_fx(4, PL_REASON_LEASE_EXPIRED)); /* a timer: nobody spoke */
    crig_fine(r);
}

static void test_bad_bytes_ignored(void **state)
{
    struct check_rig *r = *state;
    bad_bytes(r, 0);
    crig_effects(r, 0, NULL, 0);
    crig_failed(r, "manners");
}

static void test_wrong_message_ignored(void **state)
{
    struct check_rig *r = *state;
    crig_message(r, 0, 1, (struct pl_msg){.type = PL_MSG_REPORT}); /* on the bulk connection */
    crig_effects(r, 0, NULL, 0);
    crig_failed(r, "manners");
}

static void test_somebody_else_is_blamed(void **state)
{
    struct check_rig *r = *state;
    bad_bytes(r, 0);
    struct pl_sync_effect fx[2] = {close_fx(0, PL_REASON_BAD_FRAME), close_fx(2, PL_REASON_BAD_FRAME)};
    crig_effects(r, 0, fx, 2);
    crig_failed(r, "manners");
}

static void test_closed_without_a_word(void **state)
{
    struct check_rig *r = *state;
    struct pl_sync_effect fx = close_fx(0, PL_REASON_LEASE_EXPIRED);
    fx.u.close.text[0] = '\0';
    crig_effect(r, 0, fx);
    crig_failed(r, "manners");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_work),
        TEST(test_good),
        TEST(test_work_merged_twice),
        TEST(test_merged_in_another_fragment_is_fine),
        TEST(test_lost_merge_may_come_again),
        TEST(test_surviving_merge_counts),
        TEST(test_push_nobody_copied),
        TEST(test_merge_during_merge),
        TEST(test_merge_onto_an_old_version),
        TEST(test_push_on_an_old_version),
        TEST(test_old_work_kept),
        TEST(test_good_work_dropped),
        TEST(test_weight_is_not_the_work),
        TEST(test_record_is_not_the_merge),
        TEST(test_token_clock_goes_back),
        TEST(test_token_clock_counts_too_much),
        TEST(test_token_clock_lost_in_a_crash),
        TEST(test_learners_clock_goes_back),
        TEST(test_units_good),
        TEST(test_unit_with_two),
        TEST(test_unit_used_up),
        TEST(test_unit_begun_again),
        TEST(test_fence_good),
        TEST(test_old_process_welcomed),
        TEST(test_push_of_an_old_process),
        TEST(test_two_processes_one_incarnation),
        TEST(test_identity_twice_in_a_merge),
        TEST(test_message_of_an_old_process),
        TEST(test_manners_good),
        TEST(test_bad_bytes_ignored),
        TEST(test_wrong_message_ignored),
        TEST(test_somebody_else_is_blamed),
        TEST(test_closed_without_a_word),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
