/* Pushes that are wrong, late, for another round, on another base, or not what their digest says. */
#include "rig_test.h"

#include "core/syncer_int.h"

enum { F = 0 }; /* the fragment looked at */

static void start_with(const struct rig_options *o, uint32_t peers)
{
    rig_init(&rig, o);
    rig_up_many(&rig, peers);
    assert_true(rig_run_to_pull(&rig, 0, F));
    for (uint32_t i = 1; i < peers; i++)
        assert_int_equal(rig.peers[i].pull[F].round, rig.peers[0].pull[F].round);
    rig_forget(&rig);
}

/* K 2, everyone has been asked for fragment 0, nobody has answered, the round is not due yet. */
static void start(uint32_t peers)
{
    struct rig_options o = rig_defaults();
    start_with(&o, peers);
}

/* Until the round is due; nobody answers. */
static void run_to_due(void)
{
    for (int i = 0; i < 20 && rig_traced(&rig, PL_TRACE_SYNC_DUE) == NULL; i++)
        rig_tick(&rig, false);
    assert_non_null(rig_traced(&rig, PL_TRACE_SYNC_DUE));
}

static const struct pl_sync_effect *merged(void)
{
    return rig_effect(&rig, PL_SYNC_FX_MERGE);
}

static uint64_t version(void)
{
    return pl_syncer_version(rig.s, F, NULL);
}

static struct pl_msg push_of(uint32_t i)
{
    const struct rig_pull *p = &rig.peers[i].pull[F];
    return (struct pl_msg){.type = PL_MSG_PUSH,
                           .u.push = {.fragment = F,
                                      .round = p->round,
                                      .base_version = p->base,
                                      .steps = 1,
                                      .tokens = 10,
                                      .bytes = 40000,
                                      .digest = 5}};
}

static void expect_push_refused(struct pl_msg msg, enum pl_reason reason, const char *words)
{
    uint8_t before[RIG_SAVE_BYTES], after[RIG_SAVE_BYTES];
    uint32_t control = rig.peers[1].control, bulk = rig.peers[1].bulk;
    size_t len = rig_save(&rig, before);
    rig_send(&rig, bulk, &msg);
    const struct pl_sync_effect *fx = rig_closed(&rig, control);
    assert_non_null(fx);
    assert_int_equal(fx->u.close.reason, reason);
    if (strstr(fx->u.close.text, words) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", fx->u.close.text, words);
    assert_int_equal(rig_save(&rig, after), len);
    assert_memory_equal(before, after, len);
    assert_int_equal(rig.s->fragments[F].waiting, 1); /* not waited for any longer */
    rig_release(&rig);
    start(2);
}

static void test_implausible_pushes(void **state)
{
    (void)state;
    start(2);
    struct pl_msg msg = push_of(1);
    msg.u.push.steps = 0;
    expect_push_refused(msg, PL_REASON_BAD_MESSAGE, "PUSH.steps is 0, at least 1");
    msg = push_of(1);
    msg.u.push.tokens = 1001;
    expect_push_refused(msg, PL_REASON_BAD_MESSAGE, "PUSH.tokens is 1001 in 1 steps, at most 1000 a step");
    msg = push_of(1);
    msg.u.push.bytes = 0;
    expect_push_refused(msg, PL_REASON_BAD_MESSAGE, "PUSH.bytes is 0, between 1 and 40000");
    msg = push_of(1);
    msg.u.push.bytes = 40001;
    expect_push_refused(msg, PL_REASON_BAD_MESSAGE, "PUSH.bytes is 40001, between 1 and 40000");
    for (int field = 0; field < 4; field++) {
        msg = push_of(1);
        rig_send(&rig, rig.peers[1].bulk, &msg);
        rig_send(&rig, rig.peers[1].bulk, &msg); /* the very same is no mistake */
        assert_true(rig_live(&rig, 1));
        uint64_t *fields[] = {&msg.u.push.steps, &msg.u.push.tokens, &msg.u.push.bytes, &msg.u.push.digest};
        (*fields[field])--;
        if (field == 0)
            msg.u.push.steps = 2;
        expect_push_refused(msg, PL_REASON_WRONG_STATE, "came twice and differs");
    }
    static const uint8_t zeros[1 << 14];
    struct pl_msg data = {.type = PL_MSG_DATA, .u.data = {F, rig.peers[1].pull[F].round, 3, {zeros, 1}}};
    msg = push_of(1);
    rig_send(&rig, rig.peers[1].bulk, &msg);
    expect_push_refused(data, PL_REASON_BAD_MESSAGE,
                        "DATA.index 3 with 1 bytes does not fit a push of 40000 bytes");
    rig_send(&rig, rig.peers[1].bulk, &msg);
    data.u.data.index = 1;
    expect_push_refused(data, PL_REASON_BAD_MESSAGE, "DATA.index 1 with 1 bytes does not fit");
}

/* Steps over the product's range: no limit can be computed, so none is applied; nothing overflows. */
static void test_enormous_steps(void **state)
{
    (void)state;
    start(2);
    struct pl_msg msg = push_of(1);
    msg.u.push.steps = PL_COUNT_MAX;
    msg.u.push.tokens = PL_COUNT_MAX;
    rig_send(&rig, rig.peers[1].bulk, &msg);
    assert_true(rig_live(&rig, 1));
    rig.peers[0].steps = rig.peers[0].tokens = PL_COUNT_MAX;
    rig_report(&rig, 0, 0);
    assert_true(rig_live(&rig, 0));
}

/* Fragments of another shard, by number. */
static void test_fragments_of_another_shard(void **state)
{
    (void)state;
    static const struct pl_msg wrong[] = {
        {.type = PL_MSG_SKIP, .u.skip.fragment = 1},
        {.type = PL_MSG_HAVE, .u.got.fragment = 1},
        {.type = PL_MSG_FETCH, .u.fetch.fragment = 1},
    };
    struct rig_options o = rig_defaults();
    o.shards = 2;
    for (size_t i = 0; i < 3; i++) {
        rig_init(&rig, &o);
        rig_up(&rig, 0);
        uint32_t c = rig.peers[0].control;
        rig_send(&rig, c, &wrong[i]);
        expect_closed(c, BAD_MESSAGE, ".fragment is 1, which shard 0 does not own");
        rig_release(&rig);
    }
    rig_init(&rig, &o);
}

static void test_pushes_of_other_rounds(void **state)
{
    (void)state;
    start(2);
    uint64_t first = rig.peers[0].pull[F].round;
    struct pl_msg old = push_of(0);
    rig_push(&rig, 0, F);
    rig_push(&rig, 1, F);
    run_to_due();
    assert_int_equal(version(), 1);
    rig_forget(&rig);
    rig_send(&rig, rig.peers[0].bulk, &old); /* again, after it was merged: its UPDATE says all */
    expect_not_sent(rig.peers[0].control, PL_MSG_DROP);
    rig_obey(&rig, 0);
    rig_obey(&rig, 1);
    assert_true(rig_run_to_pull(&rig, 0, F));
    old.u.push.round = PL_ROUND(1, 1);
    rig_send(&rig, rig.peers[0].bulk, &old); /* another round than the one asked for */
    expect_sent(rig.peers[0].control, PL_MSG_DROP);
    rig_push_header(&rig, 0, F, 40000);
    uint64_t round = rig.peers[0].pull[F].round;
    rig.peers[0].pull[F].round = first;
    rig_push_chunk(&rig, 0, F, 40000, 0); /* a chunk of the first round: not of this push */
    assert_false(rig.pushes[0][F].used);
    rig.peers[0].pull[F].round = round;
    rig_push_chunk(&rig, 0, F, 40000, 0);
    assert_true(rig.pushes[0][F].used);
}

static void test_verified_when_its_learner_is_gone(void **state)
{
    (void)state;
    start(2);
    rig.hold_verify = true;
    rig_push(&rig, 0, F);
    rig_down(&rig, 0);
    rig_answer(&rig, PL_SYNC_EV_VERIFIED, true);
    rig.hold_verify = false;
    assert_int_equal(rig.s->fragments[F].held, 1);
    rig_up(&rig, 0);
    rig_push(&rig, 1, F);
    run_to_due();
    assert_int_equal(merged()->u.merge.contributor_count, 2);
}

static void test_wrong_base(void **state)
{
    (void)state;
    start(3);
    struct pl_msg msg = push_of(1);
    msg.u.push.base_version = 5;
    rig_send(&rig, rig.peers[1].bulk, &msg);
    expect_sent(rig.peers[1].control, PL_MSG_DROP);
    assert_true(rig_live(&rig, 1)); /* no mistake: control and bulk may overtake each other */
    rig_push(&rig, 0, F);
    rig_push(&rig, 2, F);
    run_to_due();
    assert_int_equal(merged()->u.merge.contributor_count, 2);
}

static void test_bad_content(void **state)
{
    (void)state;
    start(3);
    rig.bad_verify = true;
    uint32_t control = rig.peers[1].control;
    rig_push(&rig, 1, F);
    expect_closed(control, BAD_CONTENT, "push of fragment 0 cannot be believed");
    /* With the largest number it is whole behind a learner's own words. */
    const char *text = rig_closed(&rig, control)->u.close.text;
    assert_string_equal(text + strlen(text) - 12, "syncer's log");
    assert_true(strlen("the shard closed: BAD_CONTENT (") + strlen(text) + strlen("123456789)") <=
                PL_TEXT_MAX);
    assert_false(rig.pushes[1][F].used);
    rig.bad_verify = false;

    /* Its learner is gone before the answer: nobody is left to be told. */
    rig.hold_verify = true;
    rig_push(&rig, 2, F);
    rig_down(&rig, 2);
    rig_forget(&rig);
    assert_true(rig_answer(&rig, PL_SYNC_EV_VERIFIED, false));
    assert_int_equal(rig_effects(&rig, PL_SYNC_FX_CLOSE), 0);
    assert_int_equal(rig_effects(&rig, PL_SYNC_FX_DISCARD), 1);
}

static void test_verified_after_the_round(void **state)
{
    (void)state;
    start(3);
    rig_push(&rig, 0, F);
    rig_push(&rig, 1, F);
    rig.hold_verify = true;
    rig_push(&rig, 2, F);
    run_to_due();
    rig_advance(&rig, 100 * PL_MS);
    assert_int_equal(merged()->u.merge.contributor_count, 2);
    assert_false(rig.pushes[2][F].used);
    rig_forget(&rig);
    assert_true(rig_answer(&rig, PL_SYNC_EV_VERIFIED, true)); /* it is of no use any more */
    assert_int_equal(rig_traces(&rig, PL_TRACE_SYNC_HELD), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        rig_unit_test(test_implausible_pushes),
        rig_unit_test(test_enormous_steps),
        rig_unit_test(test_fragments_of_another_shard),
        rig_unit_test(test_pushes_of_other_rounds),
        rig_unit_test(test_verified_when_its_learner_is_gone),
        rig_unit_test(test_wrong_base),
        rig_unit_test(test_bad_content),
        rig_unit_test(test_verified_after_the_round),
    };
    return rig_run_tests(tests);
}
