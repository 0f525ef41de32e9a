/* The end of the budget: FINISH, one closing round per fragment, DONE made durable, everyone dismissed with every
 * version. */
#include "rig_test.h"

#include "core/syncer_int.h"

static struct rig_options options(void)
{
    struct rig_options o = rig_defaults();
    o.budget = 200;
    return o;
}

static enum pl_phase phase(void)
{
    struct pl_sync_view v;
    pl_syncer_view(rig.s, &v);
    return v.phase;
}

/* Steps without answering anything, until the budget is reached. */
static void spend_budget(void)
{
    for (int i = 0; i < 200 && phase() == PL_PHASE_RUNNING; i++)
        rig_tick(&rig, false);
    assert_int_equal(phase(), PL_PHASE_CLOSING);
}

static void start_closing(const struct rig_options *o, uint32_t peers)
{
    rig_init(&rig, o);
    rig_up_many(&rig, peers);
    spend_budget();
}

static void everyone_obeys(uint32_t peers)
{
    for (int n = 0; n < 10; n++)
        for (uint32_t i = 0; i < peers; i++)
            if (rig_live(&rig, i))
                rig_obey(&rig, i);
}

static void test_a_run_ends(void **state)
{
    (void)state;
    struct rig_options o = options();
    start_closing(&o, 3);
    for (uint32_t i = 0; i < 3; i++) {
        expect_sent(rig.peers[i].control, PL_MSG_FINISH);
        assert_true(rig.peers[i].pull[0].open && rig.peers[i].pull[1].open);
    }
    assert_true(rig.peers[0].pull[0].round != rig.peers[0].pull[1].round);
    uint32_t controls[3];
    for (uint32_t i = 0; i < 3; i++)
        controls[i] = rig.peers[i].control;
    rig_forget(&rig);
    everyone_obeys(3);
    assert_int_equal(phase(), PL_PHASE_DONE);
    struct pl_record rec;
    rig_record(&rig, rig.record_count - 1, &rec, NULL);
    assert_int_equal(rec.type, PL_RECORD_DONE);
    for (uint32_t i = 0; i < 3; i++) {
        expect_closed(controls[i], DONE, "the run is complete");
        for (uint32_t f = 0; f < 2; f++)
            assert_int_equal(rig.peers[i].have[f], pl_syncer_version(rig.s, f, NULL));
    }
    assert_true(rig.finished);
    assert_int_equal(rig_effects(&rig, PL_SYNC_FX_MERGE), 2);
    assert_int_equal(rig_effect(&rig, PL_SYNC_FX_MERGE)->u.merge.contributor_count, 3);
}

/* Below K, and a learner with nothing to give: it is the last round, and counts all the same. */
static void test_closing_ignores_the_quorum(void **state)
{
    (void)state;
    struct rig_options o = options();
    o.quorum = 3;
    start_closing(&o, 2);
    rig_skip(&rig, 0, 0);
    rig_push(&rig, 1, 0);
    rig_skip(&rig, 0, 1);
    rig_skip(&rig, 1, 1);
    assert_int_equal(pl_syncer_version(rig.s, 0, NULL), 1);
    assert_int_equal(pl_syncer_version(rig.s, 1, NULL), 0); /* nobody had anything */
    assert_int_equal(phase(), PL_PHASE_DONE);
    everyone_obeys(2);
    assert_true(rig.finished);
}

static void test_the_silent_are_waited_for_up_to_a_deadline(void **state)
{
    (void)state;
    struct rig_options o = options();
    start_closing(&o, 2);
    rig_push(&rig, 0, 0);
    rig_push(&rig, 0, 1);
    rig_rest(&rig, 9 * PL_SEC);
    assert_int_equal(pl_syncer_version(rig.s, 0, NULL), 0);
    rig_rest(&rig, 2 * PL_SEC);
    assert_int_equal(pl_syncer_version(rig.s, 0, NULL), 1);
    expect_sent(rig.peers[1].control, PL_MSG_DROP);
    assert_int_equal(phase(), PL_PHASE_DONE);
    rig_have(&rig, 0, 0);
    rig_have(&rig, 0, 1);
    assert_false(rig_live(&rig, 0));
    assert_true(rig_live(&rig, 1)); /* it does not have the last versions */
    assert_false(rig.finished);
    rig_down(&rig, 1);
    assert_true(rig.finished);
}

static void test_nobody_left(void **state)
{
    (void)state;
    struct rig_options o = options();
    o.fragments = 4;
    start_closing(&o, 2);
    rig_down(&rig, 0);
    rig_down(&rig, 1); /* a blip, or the end of them? */
    rig_advance(&rig, 9 * PL_SEC);
    assert_int_equal(phase(), PL_PHASE_CLOSING);
    rig_advance(&rig, 21 * PL_SEC);
    assert_int_equal(phase(), PL_PHASE_DONE);
    assert_true(rig.finished);
    for (uint32_t f = 0; f < 4; f++)
        assert_int_equal(pl_syncer_version(rig.s, f, NULL), 0);
}

static void test_a_held_push_of_a_dead_learner_is_taken(void **state)
{
    (void)state;
    struct rig_options o = options();
    start_closing(&o, 2);
    rig_push(&rig, 0, 0);
    rig_down(&rig, 0);
    rig_down(&rig, 1);
    rig_advance(&rig, 30 * PL_SEC);
    assert_int_equal(pl_syncer_version(rig.s, 0, NULL), 1);
    assert_int_equal(phase(), PL_PHASE_DONE);
}

/* Every connection is reset while closing; all come back, and nobody's remainder is lost. */
static void test_a_blip_while_closing(void **state)
{
    (void)state;
    struct rig_options o = options();
    start_closing(&o, 2);
    rig_down(&rig, 0);
    rig_down(&rig, 1);
    rig_advance(&rig, PL_SEC);
    rig_up_many(&rig, 2);
    for (int i = 0; i < 60 && phase() != PL_PHASE_DONE; i++)
        everyone_obeys(2);
    assert_int_equal(phase(), PL_PHASE_DONE);
    for (uint32_t f = 0; f < o.fragments; f++)
        assert_int_equal(pl_syncer_version(rig.s, f, NULL), 1);
}

/* The losses of one step must fit its effects, however many closing rounds they end. */
static void test_many_closing_rounds_lose_their_learners(void **state)
{
    (void)state;
    struct rig_options o = options();
    o.fragments = RIG_FRAGMENTS;
    o.period = 2 * RIG_FRAGMENTS;
    o.overlap = RIG_FRAGMENTS - 1;
    o.learners_max = RIG_PEERS;
    o.budget = 2000;
    start_closing(&o, RIG_PEERS);
    for (uint32_t i = 0; i < RIG_PEERS; i++)
        for (uint32_t f = 0; f < RIG_FRAGMENTS; f++)
            if (rig.peers[i].pull[f].open)
                rig_push_header(&rig, i, f, 40000);
    for (uint32_t i = 0; i < RIG_PEERS; i++)
        rig_down(&rig, i);
    rig_advance(&rig, 60 * PL_SEC);
    assert_int_equal(phase(), PL_PHASE_DONE);
}

static void test_who_comes_late_is_asked_too(void **state)
{
    (void)state;
    struct rig_options o = options();
    rig_init(&rig, &o);
    rig_up_many(&rig, 2);
    rig_hello(&rig, 3); /* greeted while the run was on: its WELCOME says so */
    assert_int_equal(rig_sent(&rig, rig.peers[3].control, PL_MSG_WELCOME)->u.welcome.phase, PL_PHASE_RUNNING);
    for (int i = 0; i < 12; i++) {
        rig_report(&rig, 0, 1);
        rig_report(&rig, 1, 1);
        rig_advance(&rig, rig.step_ns);
    }
    assert_int_equal(phase(), PL_PHASE_CLOSING);
    rig_forget(&rig);
    rig_join(&rig, 3);
    expect_sent(rig.peers[3].control, PL_MSG_FINISH);
    assert_true(rig.peers[3].pull[0].open && rig.peers[3].pull[1].open);
    rig_up(&rig, 2);
    assert_int_equal(rig_sent(&rig, rig.peers[2].control, PL_MSG_WELCOME)->u.welcome.phase, PL_PHASE_CLOSING);
    assert_true(rig.peers[2].pull[0].open && rig.peers[2].pull[1].open);
    rig_attach(&rig, 3);
    everyone_obeys(4);
    assert_int_equal(phase(), PL_PHASE_DONE);
    struct pl_learner_view v;
    for (uint32_t m = 0; m < 4; m++) {
        assert_true(pl_syncer_view_learner(rig.s, m, &v));
        assert_int_equal(v.rounds_merged, 2);
    }
    /* And who comes after the end gets the last versions, then is dismissed. */
    rig_restart(&rig, 3);
    memset(rig.peers[3].have, 0, sizeof rig.peers[3].have);
    rig_forget(&rig);
    rig_up(&rig, 3);
    uint32_t c = rig.peers[3].control;
    assert_int_equal(rig_sent(&rig, c, PL_MSG_WELCOME)->u.welcome.phase, PL_PHASE_DONE);
    rig_have(&rig, 3, 0);
    assert_true(rig_live(&rig, 3));
    rig_have(&rig, 3, 1);
    expect_closed(c, DONE, "complete");
    rig_restart(&rig, 3); /* with everything: at once */
    rig_hello(&rig, 3);
    c = rig.peers[3].control;
    rig_forget(&rig);
    rig_join(&rig, 3);
    expect_closed(c, DONE, "complete");
}

/* A learner that reconnects in a closing round is asked again, and its half push is not forgotten. */
static void test_reconnect_while_closing(void **state)
{
    (void)state;
    struct rig_options o = options();
    start_closing(&o, 2);
    rig_push_header(&rig, 1, 0, 40000);
    rig_push_chunk(&rig, 1, 0, 40000, 0);
    uint64_t round = rig.peers[1].pull[0].round;
    rig_close(&rig, rig.peers[1].bulk);
    rig_attach(&rig, 1);
    rig_push_chunk(&rig, 1, 0, 40000, 1);
    rig_push_chunk(&rig, 1, 0, 40000, 2);
    assert_true(rig.pushes[1][0].verified);
    rig_restart(
        &rig, 1); /* a new process: what the old one pushed does not count; it is asked for the same round */
    rig_up(&rig, 1);
    assert_int_equal(rig.peers[1].pull[0].round, round);
    assert_true(rig.peers[1].pull[0].open);
    rig_report(&rig, 1, 3);
    everyone_obeys(2);
    assert_int_equal(phase(), PL_PHASE_DONE);
}

static void test_a_round_on_its_way_when_the_end_comes(void **state)
{
    (void)state;
    struct rig_options o = options();
    rig_init(&rig, &o);
    rig_up_many(&rig, 2);
    rig.hold_merge = true;
    for (int i = 0; i < 40 && !rig_waits(&rig, PL_SYNC_EV_MERGED); i++)
        rig_tick(&rig, true);
    assert_true(rig_waits(&rig, PL_SYNC_EV_MERGED));
    spend_budget();
    uint32_t merging = rig.s->fragments[0].state == ROUND_MERGING ? 0 : 1;
    if (merging == 0) /* rounds close in order: nobody is asked before the merge is through */
        assert_false(rig.s->fragments[0].closing);
    rig.hold_merge = false;
    while (rig_answer(&rig, PL_SYNC_EV_MERGED, true))
        continue;
    everyone_obeys(2);
    assert_int_equal(phase(), PL_PHASE_DONE);
    assert_true(pl_syncer_version(rig.s, merging, NULL) >= 2);
    assert_true(rig.finished);
}

static void test_merge_that_is_not_finite_closes_too(void **state)
{
    (void)state;
    struct rig_options o = options();
    start_closing(&o, 2);
    rig.bad_merge = true;
    everyone_obeys(2);
    assert_int_equal(phase(), PL_PHASE_DONE);
    assert_int_equal(pl_syncer_version(rig.s, 0, NULL), 0);
    assert_true(rig.finished);
}

static void test_done_is_durable_first(void **state)
{
    (void)state;
    struct rig_options o = options();
    start_closing(&o, 2);
    for (uint32_t f = 0; f < 2; f++)
        for (uint32_t i = 0; i < 2; i++) {
            rig.hold_store = i == 1 && f == 1;
            rig_skip(&rig, i, f);
        }
    assert_true(rig_waits(&rig, PL_SYNC_EV_STORED));
    assert_int_equal(phase(), PL_PHASE_CLOSING);
    rig_answer(&rig, PL_SYNC_EV_STORED, false);
    assert_int_equal(phase(), PL_PHASE_CLOSING);
    assert_true(rig_live(&rig, 0));
    rig_rest(&rig, PL_SEC);
    rig_answer(&rig, PL_SYNC_EV_STORED, true);
    assert_int_equal(phase(), PL_PHASE_DONE);
    assert_false(rig_live(&rig, 0));

    /* It stays done. */
    rig.hold_store = false;
    rig_recover(&rig);
    assert_int_equal(phase(), PL_PHASE_DONE);
    assert_false(rig.finished); /* somebody may still call for the last versions */
    rig_advance(&rig, 21 * PL_SEC);
    assert_true(rig.finished);
}

/* After a restart nobody is here yet: the closing rounds wait for who returns, and then do not wait for ever. */
static void test_crash_while_closing(void **state)
{
    (void)state;
    struct rig_options o = options();
    start_closing(&o, 2);
    for (uint32_t i = 0; i < 2; i++)
        rig_push(&rig, i, 0);
    assert_int_equal(pl_syncer_version(rig.s, 0, NULL), 1);
    rig_recover(&rig);
    assert_int_equal(phase(), PL_PHASE_CLOSING); /* by the journal's clock */
    uint64_t boot = rig.now_ns;
    rig_up(&rig, 0);
    rig_rest(&rig, 5 * PL_SEC);
    everyone_obeys(1);
    assert_int_equal(pl_syncer_version(rig.s, 0, NULL), 1); /* the other is waited for */
    rig_up(&rig, 1);                                        /* and nobody else */
    for (int i = 0; i < 60 && phase() != PL_PHASE_DONE; i++)
        everyone_obeys(2);
    assert_int_equal(phase(), PL_PHASE_DONE);
    assert_int_equal(pl_syncer_version(rig.s, 0, NULL), 2);
    assert_int_equal(pl_syncer_version(rig.s, 1, NULL), 1);
    assert_true(rig.finished && rig.now_ns < boot + 15 * PL_SEC);

    rig_release(&rig);
    start_closing(&o, 2);
    for (uint32_t i = 0; i < 2; i++)
        rig_push(&rig, i, 0);
    rig_recover(&rig);
    rig_advance(&rig, 19 * PL_SEC);
    assert_int_equal(phase(), PL_PHASE_CLOSING);
    rig_advance(&rig, 2 * PL_SEC);
    assert_int_equal(phase(), PL_PHASE_DONE);
    assert_true(rig.finished);
}

/* ---- other shards ---- */

static void start_other(uint32_t quorum, uint32_t peers)
{
    struct rig_options o = options();
    o.shards = 2;
    o.shard = 1;
    o.fragments = 4;
    o.quorum = quorum;
    rig_init(&rig, &o);
    for (uint32_t i = 0; i < RIG_PEERS; i++)
        rig.peers[i].incarnation = 1;
    rig_up_many(&rig, peers);
}

/* Everybody goes on until this time since the start. */
static void tick_until(uint64_t ns)
{
    while (rig.now_ns < ns)
        rig_tick(&rig, true);
}

static void test_another_shard_learns_from_its_learners(void **state)
{
    (void)state;
    start_other(1, 4);
    tick_until(rig.now_ns + 21 * PL_SEC);
    assert_int_equal(phase(), PL_PHASE_RUNNING); /* the budget is not its business */
    rig.peers[0].flags = rig.peers[1].flags = 2;
    rig_tick(&rig, true);
    assert_int_equal(phase(), PL_PHASE_RUNNING); /* half of them might be mistaken */
    rig_down(&rig, 3);                           /* two of three */
    assert_int_equal(rig.s->finishing, 2);
    rig_tick(&rig, false);
    assert_int_equal(phase(), PL_PHASE_CLOSING);
    expect_not_sent(rig.peers[2].control, PL_MSG_FINISH); /* that is home's word */
    for (int i = 0; i < 400 && phase() != PL_PHASE_DONE;
         i++) /* the one that left may come back for a while */
        rig_tick(&rig, true);
    assert_int_equal(phase(), PL_PHASE_DONE);
}

static void test_finishing_is_counted_by_presence(void **state)
{
    (void)state;
    start_other(2, 0);
    rig.peers[0].flags = rig.peers[1].flags = 2;
    rig_up(&rig, 0);
    assert_int_equal(rig.s->finishing, 1);
    assert_int_equal(phase(), PL_PHASE_RUNNING); /* one is not K */
    rig_down(&rig, 0);
    assert_int_equal(rig.s->finishing, 0);
    rig_up(&rig, 0);
    rig_up(&rig, 1); /* it comes with HELLO too */
    assert_int_equal(rig.s->finishing, 2);
}

/* The first to call after a restart cannot end the run before the others are back. */
static void test_a_shard_that_just_started_waits(void **state)
{
    (void)state;
    start_other(1, 0);
    uint64_t start = rig.now_ns;
    rig.peers[0].flags = 2;
    rig_up(&rig, 0);
    tick_until(start + 19 * PL_SEC);
    assert_int_equal(phase(), PL_PHASE_RUNNING);
    rig_up(&rig, 1);
    rig_up(&rig, 2);
    tick_until(start + 60 * PL_SEC);
    assert_int_equal(phase(), PL_PHASE_RUNNING); /* one of three */
}

/* Fewer than K are left, and all of them say that the run ends: after a while they are believed. */
static void test_fewer_than_a_quorum_end_it_too(void **state)
{
    (void)state;
    start_other(3, 2);
    tick_until(rig.now_ns + 30 * PL_SEC);
    rig.peers[0].flags = rig.peers[1].flags = 2;
    rig_tick(&rig, true);
    uint64_t since = rig.now_ns;
    tick_until(since + 19 * PL_SEC);
    assert_int_equal(phase(), PL_PHASE_RUNNING);
    tick_until(since + 21 * PL_SEC);
    assert_true(phase() != PL_PHASE_RUNNING);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        rig_unit_test(test_a_run_ends),
        rig_unit_test(test_closing_ignores_the_quorum),
        rig_unit_test(test_the_silent_are_waited_for_up_to_a_deadline),
        rig_unit_test(test_nobody_left),
        rig_unit_test(test_a_held_push_of_a_dead_learner_is_taken),
        rig_unit_test(test_a_blip_while_closing),
        rig_unit_test(test_many_closing_rounds_lose_their_learners),
        rig_unit_test(test_who_comes_late_is_asked_too),
        rig_unit_test(test_reconnect_while_closing),
        rig_unit_test(test_a_round_on_its_way_when_the_end_comes),
        rig_unit_test(test_merge_that_is_not_finite_closes_too),
        rig_unit_test(test_done_is_durable_first),
        rig_unit_test(test_crash_while_closing),
        rig_unit_test(test_another_shard_learns_from_its_learners),
        rig_unit_test(test_finishing_is_counted_by_presence),
        rig_unit_test(test_a_shard_that_just_started_waits),
        rig_unit_test(test_fewer_than_a_quorum_end_it_too),
    };
    return rig_run_tests(tests);
}
