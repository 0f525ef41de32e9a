/* A fragment's way up and down: pulls, pushes, updates, the outcome and the counters after it. */
#include "learner_rig.h"

#include "expect_assert.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

static int setup(void **state)
{
    static struct lrig r;
    lrig_init(&r, NULL);
    lrig_live(&r);
    *state = &r;
    return 0;
}

static int teardown(void **state)
{
    lrig_release(*state);
    return 0;
}

static void again(struct lrig *r)
{
    lrig_release(r);
    lrig_init(r, NULL);
    lrig_live(r);
}

static void reconnect(struct lrig *r, uint32_t shard)
{
    lrig_closed(r, shard, PL_LINK_CONTROL);
    lrig_timeout(r);
    assert_non_null(lrig_find(r, PL_LEARN_FX_CONNECT));
    lrig_opened(r, shard, PL_LINK_CONTROL);
    lrig_msg(r, shard, PL_LINK_CONTROL, lrig_welcome(shard));
}

static void train(struct lrig *r, uint32_t steps)
{
    for (uint32_t i = 0; i < steps; i++)
        lrig_trained(r, 100);
}

/* PULL, COPIED: one push is on its way. */
static const struct pl_msg_push *push(struct lrig *r, uint32_t fragment, uint64_t round, uint64_t base)
{
    lrig_pull(r, fragment, round, base);
    assert_non_null(lrig_find(r, PL_LEARN_FX_COPY));
    lrig_copied(r, fragment, round, 5000);
    const struct pl_learn_effect *fx = lrig_find(r, PL_LEARN_FX_PUSH);
    assert_non_null(fx);
    assert_true(fx->u.push.header && fx->u.push.mask == 0 && fx->u.push.round == round);
    return &fx->u.push.push;
}

static void drop(struct lrig *r, uint32_t fragment, uint64_t round)
{
    lrig_msg(r, fragment == 1, PL_LINK_CONTROL,
             (struct pl_msg){.type = PL_MSG_DROP, .u.drop = {.fragment = fragment, .round = round}});
}

static void pushes_what_was_pulled(void **state)
{
    struct lrig *r = *state;
    train(r, 3);
    lrig_pull(r, 1, 50, 0);
    const struct pl_learn_effect *fx = lrig_find(r, PL_LEARN_FX_COPY);
    assert_true(fx->u.push.fragment == 1 && fx->u.push.round == 50);
    train(r, 2); /* the trainer does not wait; the copy was made before */
    lrig_event(r,
               (struct pl_learn_event){
                   .kind = PL_LEARN_EV_COPIED,
                   .u.copied = {
                       .fragment = 1, .round = 50, .steps = 4, .tokens = 400, .bytes = 5000, .digest = 77}});
    fx = lrig_find(r, PL_LEARN_FX_PUSH);
    assert_true(fx->u.push.fragment == 1 && fx->u.push.shard == 1 && fx->u.push.header);
    const struct pl_msg_push *p = &fx->u.push.push;
    assert_true(p->fragment == 1 && p->round == 50 && p->base_version == 0 && p->steps == 4 &&
                p->tokens == 400);
    assert_true(p->bytes == 5000 && p->digest == 77);
}

static void skips_when_it_has_nothing(void **state)
{
    struct lrig *r = *state;
    lrig_pull(r, 0, 50, 0);
    assert_true(lrig_sent(r, 0, PL_MSG_SKIP)->u.skip.round == 50);
    assert_null(lrig_find(r, PL_LEARN_FX_COPY));
    lrig_pull(r, 0, 50, 0); /* the SKIP was lost: it is said again */
    assert_non_null(lrig_sent(r, 0, PL_MSG_SKIP));
    train(r, 1);
    lrig_pull(r, 0, 51, 0);
    lrig_copied(r, 0, 51, 0); /* could not be encoded */
    assert_true(lrig_sent(r, 0, PL_MSG_SKIP)->u.skip.round == 51);
    lrig_pull(r, 0, 52, 0);
    lrig_event(r, (struct pl_learn_event){
                      .kind = PL_LEARN_EV_COPIED,
                      .u.copied = {.fragment = 0, .round = 52, .bytes = 10}}); /* no step in it */
    assert_true(lrig_find(r, PL_LEARN_FX_CANCEL)->u.push.round == 52);
    assert_true(lrig_sent(r, 0, PL_MSG_SKIP)->u.skip.round == 52);
}

static void ignores_duplicate_and_old_pulls(void **state)
{
    struct lrig *r = *state;
    train(r, 1);
    push(r, 0, 50, 0);
    lrig_pull(r, 0, 50, 0);
    lrig_expect_quiet(r);
    lrig_pull(r, 0, 49, 0);
    lrig_expect_quiet(r);
    lrig_pull(r, 0, 60, 1);
    assert_null(lrig_find(r, PL_LEARN_FX_COPY));
    lrig_pull(r, 0, 60, 1); /* it waits already */
    lrig_expect_quiet(r);
    lrig_copied(r, 0, 50, 5000); /* answered already */
    lrig_expect_quiet(r);
}

static void a_newer_pull_on_the_same_base_cancels(void **state)
{
    struct lrig *r = *state;
    train(r, 1);
    push(r, 0, 50, 0);
    lrig_pull(r, 0, 58, 0);
    assert_true(lrig_find(r, PL_LEARN_FX_CANCEL)->u.push.round == 50);
    assert_true(lrig_find(r, PL_LEARN_FX_COPY)->u.push.round == 58);
    lrig_copied(r, 0, 50, 5000); /* late */
    lrig_expect_quiet(r);
    lrig_copied(r, 0, 58, 5000);
    assert_true(lrig_find(r, PL_LEARN_FX_PUSH)->u.push.push.steps == 1);
}

static void drops_a_push_and_keeps_the_work(void **state)
{
    struct lrig *r = *state;
    train(r, 2);
    push(r, 0, 50, 0);
    drop(r, 0, 49);
    lrig_expect_quiet(r);
    drop(r, 0, 50);
    assert_true(lrig_find(r, PL_LEARN_FX_CANCEL)->u.push.round == 50);
    drop(r, 0, 50);
    lrig_expect_quiet(r);
    lrig_pull(r, 0, 50, 0); /* that round is over */
    lrig_expect_quiet(r);
    train(r, 1);
    assert_true(push(r, 0, 58, 0)->steps == 3);
    lrig_pull(r, 0, 66, 1);
    drop(r, 0, 66); /* while it waits for its base */
    lrig_expect_quiet(r);
    lrig_decide(r, lrig_update(0, 0, 1, 58));
    lrig_applied(r, 0, 1);
    assert_null(lrig_find(r, PL_LEARN_FX_COPY));
}

static void merged_work_leaves_the_counters(void **state)
{
    struct lrig *r = *state;
    train(r, 2);
    push(r, 0, 50, 0);
    train(r, 3);
    const struct pl_learn_effect *fx = lrig_decide(r, lrig_update(0, 0, 1, 50));
    assert_int_equal(fx->u.update.outcome, PL_OUTCOME_MERGED);
    assert_true(fx->u.update.commit_residual && fx->u.update.round == 50);
    assert_true(fx->u.update.from_version == 0 && fx->u.update.to_version == 1 &&
                fx->u.update.digest == 1001);
    assert_null(lrig_find(r, PL_LEARN_FX_CANCEL));
    drop(r, 0, 50); /* too late to matter */
    lrig_expect_quiet(r);
    train(r, 1);
    lrig_applied(r, 0, 1);
    assert_true(lrig_sent(r, 0, PL_MSG_HAVE)->u.got.version == 1);
    uint64_t digest;
    assert_true(pl_learner_version(r->l, 0, &digest) == 1 && digest == 1001);
    const struct pl_msg_push *p = push(r, 0, 58, 1);
    assert_true(p->steps == 4 && p->tokens == 400 && p->base_version == 1);
}

static void kept_work_stays_in_the_counters(void **state)
{
    struct lrig *r = *state;
    train(r, 2);
    push(r, 0, 50, 0);
    train(r, 3);
    const struct pl_learn_effect *fx = lrig_decide(r, lrig_update(0, 0, 1, 0));
    assert_int_equal(fx->u.update.outcome, PL_OUTCOME_KEPT);
    assert_false(fx->u.update.commit_residual);
    assert_true(lrig_find(r, PL_LEARN_FX_CANCEL)->u.push.round == 50);
    lrig_applied(r, 0, 1);
    assert_true(push(r, 0, 58, 1)->steps == 5);
    lrig_decide(r, lrig_update(0, 1, 2, 58));
    lrig_applied(r, 0, 2);
    train(r, 1); /* last_merged is now known: the next update without us keeps */
    fx = lrig_decide(r, lrig_update(0, 2, 3, 58));
    assert_int_equal(fx->u.update.outcome, PL_OUTCOME_KEPT);
    lrig_applied(r, 0, 3);
    assert_true(push(r, 0, 66, 3)->steps == 1);
}

static void an_update_cancels_a_copy_in_progress(void **state)
{
    struct lrig *r = *state;
    train(r, 2);
    lrig_pull(r, 0, 50, 0);
    const struct pl_learn_effect *fx =
        lrig_decide(r, lrig_update(0, 0, 1, 50)); /* cannot be: it was not pushed */
    assert_int_equal(fx->u.update.outcome, PL_OUTCOME_DISCARD);
    assert_true(lrig_find(r, PL_LEARN_FX_CANCEL)->u.push.round == 50);
    lrig_copied(r, 0, 50, 5000);
    lrig_expect_quiet(r);
    lrig_applied(r, 0, 1);
}

static void discards_what_a_reset_or_unknown_merge_says(void **state)
{
    struct lrig *r = *state;
    for (int reset = 0; reset < 2; reset++) {
        again(r);
        train(r, 2);
        push(r, 0, 50, 0);
        struct pl_msg m = lrig_update(0, 0, 1, reset ? 50 : 44);
        m.u.update.flags = (uint32_t)reset;
        const struct pl_learn_effect *fx = lrig_decide(r, m);
        assert_int_equal(fx->u.update.outcome, PL_OUTCOME_DISCARD);
        assert_false(fx->u.update.commit_residual);
        assert_non_null(lrig_find(r, PL_LEARN_FX_CANCEL));
        train(r, 1);
        lrig_applied(r, 0, 1);
        lrig_pull(r, 0, 58, 1);
        assert_non_null(lrig_sent(r, 0, PL_MSG_SKIP));
        train(r, 1);
        lrig_pull(r, 0, 66, 1);
        lrig_copied(r, 0, 66, 5000);
        assert_true(lrig_find(r, PL_LEARN_FX_PUSH)->u.push.push.steps == 1);
    }
}

static void a_stale_return_discards(void **state)
{
    struct lrig *r = *state;
    for (uint64_t behind = 2; behind <= 3; behind++) {
        again(r);
        lrig_decide(r, lrig_update(0, 0, 1, 0));
        lrig_applied(r, 0, 1);
        train(r, 2);
        reconnect(r, 0);
        lrig_opened(r, 0, PL_LINK_BULK);
        lrig_msg(r, 0, PL_LINK_BULK, (struct pl_msg){.type = PL_MSG_ATTACHED});
        const struct pl_learn_effect *fx = lrig_decide(r, lrig_update(0, 1, 1 + behind, 0));
        assert_int_equal(fx->u.update.outcome, behind > 2 ? PL_OUTCOME_DISCARD : PL_OUTCOME_KEPT);
        lrig_applied(r, 0, 1 + behind);
    }
    /* Many versions behind, but away for less than two cycles of eight ticks: it was not sent them while it was here. */
    for (uint64_t away = 15; away <= 16; away++) {
        again(r);
        lrig_msg(r, 0, PL_LINK_CONTROL, (struct pl_msg){.type = PL_MSG_CLOCK, .u.clock.tick = 100});
        train(r, 2);
        reconnect(r, 0);
        lrig_opened(r, 0, PL_LINK_BULK);
        lrig_msg(r, 0, PL_LINK_BULK, (struct pl_msg){.type = PL_MSG_ATTACHED});
        for (uint64_t later = 0; later < 100; later += 50) /* the first one tells how long it was away */
            lrig_msg(r, 0, PL_LINK_CONTROL,
                     (struct pl_msg){.type = PL_MSG_CLOCK, .u.clock.tick = 100 + away + later});
        const struct pl_learn_effect *fx = lrig_decide(r, lrig_update(0, PL_NONE64, 9, 0));
        assert_int_equal(fx->u.update.outcome, away > 15 ? PL_OUTCOME_DISCARD : PL_OUTCOME_KEPT);
        lrig_applied(r, 0, 9);
    }
    again(r); /* a learner that was there all the time is only slow */
    lrig_pull(r, 0, 50, 0);
    train(r, 2);
    assert_int_equal(lrig_decide(r, lrig_update(0, 0, 3, 0))->u.update.outcome, PL_OUTCOME_KEPT);
    for (uint64_t behind = 2; behind <= 3;
         behind++) { /* a push that was merged does not make younger what came after it */
        again(r);
        train(r, 2);
        push(r, 0, 50, 0);
        train(r, 1);
        reconnect(r, 0);
        lrig_opened(r, 0, PL_LINK_BULK);
        lrig_msg(r, 0, PL_LINK_BULK, (struct pl_msg){.type = PL_MSG_ATTACHED});
        assert_int_equal(lrig_decide(r, lrig_update(0, 0, behind, 50))->u.update.outcome,
                         behind > 2 ? PL_OUTCOME_DISCARD : PL_OUTCOME_MERGED);
        lrig_applied(r, 0, behind);
    }
}

static void overwriting_resets_the_counters_always(void **state)
{
    struct lrig *r = *state;
    for (uint8_t apply = 1; apply <= 2; apply++) {
        lrig_release(r);
        lrig_init(r, NULL);
        r->manifest.apply = apply;
        lrig_live(r);
        train(r, 2);
        push(r, 0, 50, 0);
        train(r, 1);
        assert_int_equal(lrig_decide(r, lrig_update(0, 0, 1, 50))->u.update.outcome, PL_OUTCOME_MERGED);
        lrig_applied(r, 0, 1);
        lrig_pull(r, 0, 58, 1);
        assert_non_null(lrig_sent(r, 0, PL_MSG_SKIP));
    }
}

/* The PULL of the next round overtakes the UPDATE that says the pending push was merged. */
static void a_pull_waits_for_its_base(void **state)
{
    struct lrig *r = *state;
    train(r, 2);
    push(r, 0, 50, 0);
    train(r, 1);
    lrig_pull(r, 0, 58, 1);
    assert_null(lrig_find(r, PL_LEARN_FX_COPY));
    assert_null(lrig_find(r, PL_LEARN_FX_CANCEL));
    lrig_deliver(r, lrig_update(0, 0, 1, 50));
    lrig_pull(r, 0, 66, 1); /* while it decodes */
    assert_null(lrig_find(r, PL_LEARN_FX_COPY));
    lrig_decoded(r, 0, 1, true);
    assert_int_equal(lrig_find(r, PL_LEARN_FX_APPLY)->u.update.outcome, PL_OUTCOME_MERGED);
    lrig_applied(r, 0, 1);
    assert_true(lrig_find(r, PL_LEARN_FX_COPY)->u.push.round == 66);
    lrig_copied(r, 0, 66, 5000);
    assert_true(lrig_find(r, PL_LEARN_FX_PUSH)->u.push.push.steps == 1);
    lrig_pull(r, 0, 74, 0); /* on a version that is past */
    lrig_expect_quiet(r);
}

static void a_pull_that_waited_too_long_is_forgotten(void **state)
{
    struct lrig *r = *state;
    train(r, 1);
    lrig_pull(r, 0, 50, 1);
    lrig_decide(r, lrig_update(0, 0, 2, 0));
    lrig_closed(r, 0, PL_LINK_CONTROL); /* nobody to tell */
    lrig_applied(r, 0, 2);
    lrig_expect_quiet(r);
    again(r);
    lrig_pull(r, 0, 50, 1);
    lrig_decide(r, lrig_update(0, 0, 1, 0));
    lrig_closed(r, 0, PL_LINK_CONTROL);
    lrig_applied(r, 0, 1);
    assert_null(lrig_find(r, PL_LEARN_FX_SEND)); /* SKIP, but to nobody */
    again(r);
    lrig_pull(r, 0, 50, 1); /* the round it waits for turns out to be merged */
    lrig_decide(r, lrig_update(0, 0, 1, 50));
    lrig_applied(r, 0, 1);
    assert_null(lrig_sent(r, 0, PL_MSG_SKIP));
}

static void a_push_survives_reconnects(void **state)
{
    struct lrig *r = *state;
    train(r, 2);
    lrig_pull(r, 0, 50, 0);
    lrig_closed(r, 0, PL_LINK_CONTROL);
    lrig_copied(r, 0, 50, 40000);
    lrig_expect_quiet(r);
    lrig_timeout(r);
    lrig_opened(r, 0, PL_LINK_CONTROL);
    lrig_msg(r, 0, PL_LINK_CONTROL, lrig_welcome(0));
    lrig_pull(r, 0, 50, 0); /* asked again */
    lrig_expect_quiet(r);
    lrig_opened(r, 0, PL_LINK_BULK);
    lrig_msg(r, 0, PL_LINK_BULK, (struct pl_msg){.type = PL_MSG_ATTACHED});
    const struct pl_learn_effect *fx = lrig_find(r, PL_LEARN_FX_PUSH);
    assert_true(fx->u.push.header && fx->u.push.mask == 0 && fx->u.push.push.steps == 2);
}

static void a_push_goes_on_where_it_stopped(void **state)
{
    struct lrig *r = *state;
    struct pl_item_partial item[] = {{.fragment = 0, .id = 50, .digest = 500, .bytes = 40000, .mask = 5},
                                     {.fragment = 0, .id = 50, .digest = 500, .bytes = 40000, .mask = 7},
                                     {.fragment = 0, .id = 49, .digest = 500, .bytes = 40000, .mask = 5},
                                     {.fragment = 0, .id = 50, .digest = 501, .bytes = 40000, .mask = 5},
                                     {.fragment = 0, .id = 50, .digest = 500, .bytes = 39999, .mask = 5},
                                     {.fragment = 2, .id = 50, .digest = 500, .bytes = 40000, .mask = 5},
                                     {.fragment = 0, .id = 50, .digest = 500, .bytes = 40000, .mask = 8},
                                     {.fragment = 1, .id = 50, .digest = 500, .bytes = 40000, .mask = 1},
                                     {.fragment = 3, .id = 50, .digest = 500, .bytes = 40000, .mask = 1}};
    train(r, 2);
    lrig_pull(r, 0, 50, 0);
    lrig_copied(r, 0, 50, 40000);
    for (uint32_t i = 0; i < sizeof item / sizeof item[0]; i++) {
        uint8_t bytes[PL_ITEM_PARTIAL_BYTES];
        pl_item_partial_put(bytes, 0, &item[i]);
        lrig_closed(r, 0, PL_LINK_BULK);
        do { /* others are PINGed meanwhile */
            lrig_msg(r, 0, PL_LINK_CONTROL, (struct pl_msg){.type = PL_MSG_PONG});
            lrig_msg(r, 1, PL_LINK_CONTROL, (struct pl_msg){.type = PL_MSG_PONG});
            lrig_timeout(r);
        } while (lrig_find(r, PL_LEARN_FX_CONNECT) == NULL);
        lrig_opened(r, 0, PL_LINK_BULK);
        lrig_msg(
            r, 0, PL_LINK_BULK,
            (struct pl_msg){.type = PL_MSG_ATTACHED, .u.attached.partial = {.items = bytes, .count = 1}});
        const struct pl_learn_effect *fx = lrig_find(r, PL_LEARN_FX_PUSH);
        if (i == 0)
            assert_true(!fx->u.push.header && fx->u.push.mask == 5);
        else if (i == 1)
            assert_null(fx);
        else if (i <= 5)
            assert_true(fx->u.push.header && fx->u.push.mask == 0);
        else if (i == 6)
            lrig_expect_disconnect(r, 0, PL_LINK_BULK, PL_REASON_BAD_MESSAGE, "ATTACHED.partial.mask is 8");
        else
            lrig_expect_disconnect(r, 0, PL_LINK_BULK, PL_REASON_BAD_MESSAGE, "ATTACHED.partial.fragment is");
    }
}

static void a_wrong_host_is_noticed(void **state)
{
    struct lrig *r = *state;
    train(r, 1);
    lrig_pull(r, 0, 50, 0);
    expect_assert(lrig_copied(r, 0, 50, RIG_FULL_BYTES + 1));
    expect_assert(lrig_decoded(r, 0, 1, true));
    expect_assert(lrig_applied(r, 0, 1));
    expect_assert(lrig_copied(r, 3, 50, 1));
    expect_assert(lrig_ready(r));
    expect_assert(lrig_start(r));
    r->now_ns--;
    expect_assert(lrig_trained(r, 1));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(pushes_what_was_pulled),
        TEST(skips_when_it_has_nothing),
        TEST(ignores_duplicate_and_old_pulls),
        TEST(a_newer_pull_on_the_same_base_cancels),
        TEST(drops_a_push_and_keeps_the_work),
        TEST(merged_work_leaves_the_counters),
        TEST(kept_work_stays_in_the_counters),
        TEST(an_update_cancels_a_copy_in_progress),
        TEST(discards_what_a_reset_or_unknown_merge_says),
        TEST(a_stale_return_discards),
        TEST(overwriting_resets_the_counters_always),
        TEST(a_pull_waits_for_its_base),
        TEST(a_pull_that_waited_too_long_is_forgotten),
        TEST(a_push_survives_reconnects),
        TEST(a_push_goes_on_where_it_stopped),
        TEST(a_wrong_host_is_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
