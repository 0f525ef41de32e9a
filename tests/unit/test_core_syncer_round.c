/* The life of a round: pulls, pushes, quorum by identity, grace, merge, store, publish; and everything that can go
 * wrong on the way. */
#include "rig_test.h"

#include "core/grace.h"
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

static enum round_state state_of(uint32_t f)
{
    return rig.s->fragments[f].state;
}

static void test_normal_round(void **state)
{
    (void)state;
    start(3);
    uint64_t round = rig.peers[0].pull[F].round;
    for (uint32_t i = 3; i > 0; i--) /* the order of arrival does not matter */
        assert_true(rig_push(&rig, i - 1, F));
    assert_int_equal(rig_traces(&rig, PL_TRACE_SYNC_HELD), 3);
    assert_null(merged());
    run_to_due();
    assert_int_equal(merged()->u.merge.contributor_count, 3);
    assert_int_equal(merged()->u.merge.round, round);
    assert_int_equal(merged()->u.merge.base_version, 0);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(merged()->u.merge.contributors[i].identity, rig_identity(i)); /* I14 */
    assert_int_equal(merged()->u.merge.contributors[0].steps, rig.peers[0].pushed[F]);
    assert_int_equal(merged()->u.merge.contributors[0].tokens, 10 * rig.peers[0].pushed[F]);
    assert_int_equal(version(), 1);
    struct pl_record rec;
    struct pl_contributor parts[RIG_PEERS];
    assert_int_equal(rig_record(&rig, rig.record_count - 1, &rec, parts), 3);
    assert_int_equal(rec.type, PL_RECORD_ROUND);
    assert_int_equal(rec.version, 1);
    assert_int_equal(rec.digest, rig_digest(F, 1));
    for (uint32_t i = 0; i < 3; i++) {
        const struct pl_msg_update *u = &rig.peers[i].update[F].header;
        assert_true(rig.peers[i].update[F].open);
        assert_int_equal(u->from_version, 0);
        assert_int_equal(u->to_version, 1);
        assert_int_equal(u->last_merged, round);
        assert_int_equal(u->bytes, rig.update_bytes);
        assert_int_equal(u->digest, rig_digest(F, 1));
        expect_not_sent(rig.peers[i].control, PL_MSG_DROP);
    }
    struct pl_learner_view v;
    pl_syncer_view_learner(rig.s, 0, &v);
    assert_int_equal(v.rounds_merged, 1);
}

/* Everyone obeys for a hundred rounds: versions only grow, one a cycle, and nobody misses one. */
static void test_many_rounds(void **state)
{
    (void)state;
    struct rig_options o = rig_defaults();
    rig_init(&rig, &o);
    rig_up_many(&rig, 3);
    assert_true(rig_run_to(&rig, 0, 50));
    assert_true(rig_run_to(&rig, 1, 50));
    struct pl_sync_view v;
    pl_syncer_view(rig.s, &v);
    assert_in_range(v.rounds_merged, 100, 102);
    assert_int_equal(v.rounds_void + v.rounds_busy, 0);
    assert_in_range(v.tick, 4 * 49, 4 * 53);
    struct pl_learner_view l;
    pl_syncer_view_learner(rig.s, 2, &l);
    assert_true(l.rounds_merged + 2 >= v.rounds_merged);
}

static uint64_t expected_grace(void)
{
    struct pl_grace_in in = {.step_ns = rig.s->interval,
                             .quorum_ns = rig.s->quorum_wait.mean,
                             .sync_ns = rig.s->sync_time.mean,
                             .overlap_steps = rig.o.overlap,
                             .gamma_ppm = rig.o.gamma_ppm,
                             .stretch = 1};
    return pl_grace_ns(&in);
}

static void test_straggler_in_grace(void **state)
{
    (void)state;
    start(3);
    rig_push(&rig, 0, F);
    rig_push(&rig, 1, F);
    run_to_due();
    assert_null(merged());
    assert_int_equal(state_of(F), ROUND_GRACE);
    uint64_t grace = rig_traced(&rig, PL_TRACE_SYNC_QUORUM)->arg[3];
    assert_int_equal(grace, expected_grace());
    assert_in_range(grace, 40 * PL_MS, 50 * PL_MS); /* half of one step */
    rig_advance_until(&rig, rig.s->fragments[F].grace_until_ns - 1);
    rig_push(&rig, 2, F);
    assert_int_equal(merged()->u.merge.contributor_count, 3);
}

static void test_straggler_past_grace(void **state)
{
    (void)state;
    start(3);
    uint64_t round = rig.peers[0].pull[F].round;
    rig_push(&rig, 0, F);
    rig_push(&rig, 2, F);
    rig_push_header(&rig, 1, F, 40000);
    rig_push_chunk(&rig, 1, F, 40000, 2);
    run_to_due();
    assert_null(merged());
    uint64_t until = rig.s->fragments[F].grace_until_ns;
    rig_advance_until(&rig, until - 1);
    assert_null(merged());
    rig_advance_until(&rig, until);
    assert_int_equal(merged()->u.merge.contributor_count, 2);
    assert_int_equal(merged()->u.merge.contributors[1].identity, 30);
    struct pl_sync_view v;
    pl_syncer_view(rig.s, &v);
    assert_int_equal(v.rounds_graced, 1);
    assert_int_equal(v.grace_late_ns, 0);
    assert_int_equal(rig_sent(&rig, rig.peers[1].control, PL_MSG_DROP)->u.drop.round, round);
    assert_false(rig.pushes[1][F].used);
    assert_int_equal(rig.peers[1].update[F].header.last_merged, 0); /* its work stays with it */

    /* What was on its way when the round closed: ignored, then answered by DROP once more. */
    rig_forget(&rig);
    uint8_t before[RIG_SAVE_BYTES], after[RIG_SAVE_BYTES];
    size_t len = rig_save(&rig, before);
    rig_push_chunk(&rig, 1, F, 40000, 0);
    rig_push_header(&rig, 1, F, 40000);
    assert_non_null(rig_traced(&rig, PL_TRACE_SYNC_LATE));
    expect_sent(rig.peers[1].control, PL_MSG_DROP);
    assert_int_equal(rig_effects(&rig, PL_SYNC_FX_KEEP), 0);
    assert_int_equal(rig_save(&rig, after), len);
    assert_memory_equal(before, after, len);
    assert_true(rig_live(&rig, 1));
}

/* A loop that was busy with something else comes late to a round's end; by how much is kept. */
static void test_late_host_is_seen(void **state)
{
    (void)state;
    start(3);
    rig_push(&rig, 0, F);
    rig_push(&rig, 1, F);
    run_to_due();
    rig.now_ns = rig.s->fragments[F].grace_until_ns + 70 * PL_MS;
    rig_advance(&rig, 0);
    assert_int_equal(merged()->u.merge.contributor_count, 2);
    struct pl_sync_view v;
    pl_syncer_view(rig.s, &v);
    assert_int_equal(v.rounds_graced, 1);
    assert_int_equal(v.grace_late_ns, 70 * PL_MS);
}

static void test_no_slack_no_grace(void **state)
{
    (void)state;
    struct rig_options o = rig_defaults();
    o.gamma_ppm = 0;
    start_with(&o, 3);
    rig_push(&rig, 0, F);
    rig_push(&rig, 1, F);
    run_to_due();
    assert_int_equal(merged()->u.merge.contributor_count, 2);
}

static void test_due_before_quorum(void **state)
{
    (void)state;
    start(3);
    rig_push(&rig, 0, F);
    run_to_due();
    assert_int_equal(state_of(F), ROUND_OPEN);
    rig_advance(&rig, 50 * PL_MS);
    rig_push(&rig, 1, F);
    assert_int_equal(state_of(F), ROUND_GRACE);
    assert_int_equal(rig.s->quorum_wait.mean > 40 * PL_MS, true);
    rig_skip(&rig, 2, F); /* nothing to contribute: nobody is left to wait for */
    assert_int_equal(merged()->u.merge.contributor_count, 2);
}

static void test_skip(void **state)
{
    (void)state;
    start(3);
    uint32_t c = rig.peers[2].control;
    rig_send(&rig, c,
             &(struct pl_msg){.type = PL_MSG_SKIP, .u.skip = {F, PL_ROUND(1, 1)}}); /* another round */
    assert_int_equal(rig.s->fragments[F].waiting, 3);
    rig_push_header(&rig, 2, F, 40000);
    rig_push_chunk(&rig, 2, F, 40000, 0);
    rig_skip(&rig, 2, F); /* changed its mind in the middle */
    assert_int_equal(rig.s->fragments[F].waiting, 2);
    assert_false(rig.pushes[2][F].used);
    rig_send(&rig, c,
             &(struct pl_msg){.type = PL_MSG_SKIP, .u.skip = {F, rig.peers[2].pull[F].round}}); /* twice */
    rig_push(&rig, 0, F);
    rig_push(&rig, 1, F);
    run_to_due();
    assert_int_equal(merged()->u.merge.contributor_count, 2);
}

/* ---- quorum by identity ---- */

static void test_quorum_counts_identities(void **state)
{
    (void)state;
    start(2);
    rig_push(&rig, 0, F);
    rig.peers[0].pushed[F] = 0;
    rig_push_header(&rig, 0, F, 100); /* the same again, on the same connection */
    rig_push_chunk(&rig, 0, F, 100, 0);
    assert_int_equal(rig.s->fragments[F].held, 1);
    rig_attach(&rig, 0); /* and on a second connection */
    rig_push_header(&rig, 0, F, 100);
    rig_push_chunk(&rig, 0, F, 100, 0);
    assert_int_equal(rig.s->fragments[F].held, 1);
    run_to_due();
    assert_int_equal(state_of(F), ROUND_OPEN);
    rig_restart(&rig, 0); /* and as a second process: it replaces the first */
    rig_up(&rig, 0);
    assert_int_equal(rig.s->fragments[F].held, 0);
    rig_push(&rig, 1, F);
    rig_tick(&rig, false);
    assert_null(merged());
}

static void test_quorum_lost_in_grace(void **state)
{
    (void)state;
    struct rig_options o = rig_defaults();
    o.period = 8;
    start_with(&o, 3);
    rig_push(&rig, 0, F);
    rig_push(&rig, 1, F);
    run_to_due();
    assert_int_equal(state_of(F), ROUND_GRACE);
    rig_restart(&rig, 1);
    rig_hello(&rig, 1);
    assert_int_equal(rig.s->fragments[F].held, 1);
    rig_tick(&rig, false);
    assert_null(merged());
    assert_int_equal(state_of(F), ROUND_OPEN);
    rig_push(&rig, 2, F);
    assert_int_equal(merged()->u.merge.contributor_count, 2);
    assert_int_equal(merged()->u.merge.contributors[1].identity, 30);
}

/* ---- dying and coming back ---- */

static void test_a_dead_learner_holds_nobody_up(void **state)
{
    (void)state;
    start(3);
    rig_push(&rig, 0, F);
    rig_push(&rig, 1, F);
    run_to_due();
    assert_null(merged());
    rig_down(&rig, 2);
    assert_int_equal(merged()->u.merge.contributor_count, 2); /* at once, not after the grace */
}

static void test_a_held_push_outlives_its_learner(void **state)
{
    (void)state;
    start(3);
    rig_push(&rig, 2, F);
    rig_down(&rig, 2);
    rig_push(&rig, 0, F);
    rig_skip(&rig, 1, F);
    run_to_due();
    assert_int_equal(merged()->u.merge.contributor_count, 2);
    rig_up(&rig, 2);
    assert_int_equal(rig.peers[2].update[F].header.last_merged, rig.peers[2].pull[F].round);
}

static void test_push_is_resumed_after_a_reconnect(void **state)
{
    (void)state;
    struct rig_options o = rig_defaults();
    o.period = 32; /* time enough */
    o.overlap = 10;
    start_with(&o, 2);
    const uint64_t bytes = 40000;
    rig_push_header(&rig, 1, F, bytes);
    rig_push_chunk(&rig, 1, F, bytes, 1);
    rig_close(&rig, rig.peers[1].bulk);
    rig_forget(&rig);
    rig_attach(&rig, 1);
    const struct pl_msg *attached = rig_sent(&rig, rig.peers[1].bulk, PL_MSG_ATTACHED);
    assert_int_equal(attached->u.attached.partial.count, 1);
    struct pl_item_partial p = pl_item_partial_at(&attached->u.attached.partial, 0);
    assert_int_equal(p.fragment, F);
    assert_int_equal(p.id, rig.peers[1].pull[F].round);
    assert_int_equal(p.bytes, bytes);
    assert_int_equal(p.digest, rig.peers[1].identity);
    assert_int_equal(p.mask, 2);
    rig_push_chunk(&rig, 1, F, bytes, 1); /* a chunk twice is kept once */
    assert_int_equal(rig_effects(&rig, PL_SYNC_FX_KEEP), 0);
    rig_push_chunk(&rig, 1, F, bytes, 0);

    /* Now the whole session breaks; the half push waits, and counts again when its learner is back. */
    rig_down(&rig, 1);
    assert_int_equal(rig.s->fragments[F].waiting, 1);
    rig_forget(&rig);
    rig_up(&rig, 1);
    assert_int_equal(rig.s->fragments[F].waiting, 2);
    const struct pl_msg *pull = rig_sent(&rig, rig.peers[1].control, PL_MSG_PULL);
    assert_true(pull == NULL || pull->u.pull.fragment != F); /* it was answered already */
    attached = rig_sent(&rig, rig.peers[1].bulk, PL_MSG_ATTACHED);
    assert_int_equal(pl_item_partial_at(&attached->u.attached.partial, 0).mask, 3);
    rig_push_chunk(&rig, 1, F, bytes, 2);
    assert_true(rig.pushes[1][F].verified);
    rig_push(&rig, 0, F);
    run_to_due();
    assert_int_equal(merged()->u.merge.contributor_count, 2);
}

static void test_an_unanswered_pull_is_repeated(void **state)
{
    (void)state;
    start(2);
    rig_down(&rig, 1);
    rig_forget(&rig);
    rig.peers[1].pull[F].open = false; /* it was lost with the connection */
    rig_up(&rig, 1);
    expect_sent(rig.peers[1].control, PL_MSG_PULL);
    rig_push(&rig, 1, F);
    rig_push(&rig, 0, F);
    run_to_due();
    assert_int_equal(merged()->u.merge.contributor_count, 2);
}

/* ---- more than one thing at once ---- */

static void test_superseded_round(void **state)
{
    (void)state;
    struct rig_options o = rig_defaults();
    o.quorum = 2;
    start_with(&o, 2);
    uint64_t round = rig.peers[0].pull[F].round;
    rig_push(&rig, 0, F);
    rig_push_header(&rig, 1, F, 40000);
    rig_push_chunk(&rig, 1, F, 40000, 1);
    run_to_due();
    for (int i = 0; i < 20 && rig.peers[0].pull[F].round == round; i++)
        rig_tick(&rig, false);
    assert_true(rig.peers[0].pull[F].round > round);
    assert_int_equal(rig_traced(&rig, PL_TRACE_SYNC_VOID)->arg[1], round);
    assert_false(rig.pushes[0][F].used || rig.pushes[1][F].used);
    assert_int_equal(version(), 0);
    rig_push_chunk(&rig, 1, F, 40000, 0); /* of the old round, by its number: nothing */
    assert_false(rig.pushes[1][F].used);
    struct pl_sync_view v;
    pl_syncer_view(rig.s, &v);
    assert_true(v.rounds_void >= 1);
    assert_true(rig_run_to(&rig, F, 1));
}

static void test_busy_at_due_and_deferred_pulls(void **state)
{
    (void)state;
    start(2);
    rig.hold_merge = true;
    rig_push(&rig, 0, F);
    rig_push(&rig, 1, F);
    run_to_due();
    assert_true(rig_waits(&rig, PL_SYNC_EV_MERGED));
    uint64_t round = rig.peers[0].pull[F].round;
    rig_forget(&rig);
    for (int i = 0; i < 20 && rig_traces(&rig, PL_TRACE_SYNC_BUSY) == 0; i++)
        rig_tick(&rig, false);
    assert_int_equal(rig_traces(&rig, PL_TRACE_SYNC_BUSY), 1);
    assert_int_equal(rig.peers[0].pull[F].round, round); /* nobody was asked meanwhile */

    /* Next cycle: the merge comes back between the pull's time and the due tick. */
    for (int i = 0; i < 20 && rig.s->fragments[F].deferred_tick == 0; i++)
        rig_tick(&rig, false);
    assert_true(rig.s->fragments[F].deferred_tick > 0);
    uint64_t rounds_busy = rig.s->rounds_busy;
    rig.hold_merge = false;
    rig_forget(&rig);
    assert_true(rig_answer(&rig, PL_SYNC_EV_MERGED, true));
    assert_int_equal(version(), 1);
    for (uint32_t i = 0; i < 2; i++) {
        expect_sent(rig.peers[i].control, PL_MSG_PULL);
        assert_int_equal(rig.peers[i].pull[F].base, 1); /* the version that is on its way */
        assert_true(rig.peers[i].update[F].open);
        rig_obey(&rig, i);
    }
    run_to_due();
    assert_int_equal(version(), 2);
    struct pl_sync_view v;
    pl_syncer_view(rig.s, &v);
    assert_int_equal(v.rounds_busy, rounds_busy);
}

static void test_merge_that_is_not_finite(void **state)
{
    (void)state;
    start(2);
    rig.bad_merge = true;
    rig_push(&rig, 0, F);
    rig_push(&rig, 1, F);
    run_to_due();
    assert_non_null(merged());
    assert_int_equal(version(), 0);
    assert_int_equal(rig_effects(&rig, PL_SYNC_FX_STORE), 0);
    assert_int_equal(state_of(F), ROUND_IDLE);
    assert_int_equal(rig_traced(&rig, PL_TRACE_SYNC_VOID)->arg[1], rig.peers[0].pull[F].round);
    rig.bad_merge = false;
    assert_true(rig_run_to(&rig, F, 1)); /* nothing was lost by it */
}

static void test_store_failure_is_retried(void **state)
{
    (void)state;
    start(2);
    rig.hold_store = true;
    rig_push(&rig, 0, F);
    rig_push(&rig, 1, F);
    run_to_due();
    assert_true(rig_waits(&rig, PL_SYNC_EV_STORED));
    for (int i = 0; i < 3; i++) {
        assert_true(rig_answer(&rig, PL_SYNC_EV_STORED, false));
        assert_non_null(rig_traced(&rig, PL_TRACE_SYNC_STORE_FAILED));
        rig_rest(&rig, 499 * PL_MS);
        assert_false(rig_waits(&rig, PL_SYNC_EV_STORED));
        rig_rest(&rig, PL_MS);
        assert_true(rig_waits(&rig, PL_SYNC_EV_STORED));
    }
    assert_int_equal(rig_effects(&rig, PL_SYNC_FX_PUBLISH), 0);
    assert_int_equal(rig_effects(&rig, PL_SYNC_FX_DELIVER), 0); /* I4 */
    assert_int_equal(version(), 0);
    rig_answer(&rig, PL_SYNC_EV_STORED, true);
    assert_int_equal(version(), 1);
    assert_int_equal(rig_effects(&rig, PL_SYNC_FX_DELIVER), 2);
}

/* One learner's death sets two rounds free in the same step: the list of contributors serves one merge at a time. */
static void test_two_merges_at_once(void **state)
{
    (void)state;
    struct rig_options o = rig_defaults();
    o.period = 4;
    o.overlap = 3;
    o.gamma_ppm = 1000000;
    o.fragments = 4;
    rig_init(&rig, &o);
    rig_up_many(&rig, 3);
    rig.hold_merge = true;
    for (int i = 0; i < 400 && rig_effects(&rig, PL_SYNC_FX_MERGE) == 0; i++) {
        uint32_t in_grace = 0;
        for (uint32_t f = 0; f < 4; f++)
            in_grace += state_of(f) == ROUND_GRACE && rig.s->fragments[f].waiting > 0 ? 1 : 0;
        if (in_grace >= 2) {
            rig_down(&rig, 2);
            break;
        }
        if (i % 10 == 0)
            for (uint32_t p = 0; p < 3; p++)
                rig_report(&rig, p, 1);
        rig_advance(&rig, 10 * PL_MS);
        for (uint32_t f = 0; f < 4; f++) /* half a step late for the first round, in time for the second */
            if (in_grace > 0 ||
                (state_of(f) == ROUND_OPEN && rig.now_ns >= rig.s->fragments[f].due_ns + 50 * PL_MS)) {
                rig_push(&rig, 0, f);
                rig_push(&rig, 1, f);
            }
    }
    assert_int_equal(rig_effects(&rig, PL_SYNC_FX_MERGE), 2);
    while (rig_answer(&rig, PL_SYNC_EV_MERGED, true))
        continue;
    assert_int_equal(rig_effects(&rig, PL_SYNC_FX_PUBLISH), 2);
}

/* After a restart the clock may stand before what it was: a push for a round of the earlier life is only late. */
static void test_push_of_an_earlier_life(void **state)
{
    (void)state;
    struct rig_options o = rig_defaults();
    o.quorum = 3; /* never reached: no record carries the clock */
    rig_init(&rig, &o);
    rig_up_many(&rig, 3);
    for (int i = 0; i < 30; i++)
        rig_tick(&rig, false);
    assert_true(rig_run_to_pull(&rig, 0, F));
    rig_recover(&rig);
    rig_up(&rig, 0);
    rig_forget(&rig);
    rig_push_header(&rig, 0, F, 100);
    assert_true(rig_live(&rig, 0));
    expect_sent(rig.peers[0].control, PL_MSG_DROP);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        rig_unit_test(test_normal_round),
        rig_unit_test(test_many_rounds),
        rig_unit_test(test_straggler_in_grace),
        rig_unit_test(test_straggler_past_grace),
        rig_unit_test(test_late_host_is_seen),
        rig_unit_test(test_no_slack_no_grace),
        rig_unit_test(test_due_before_quorum),
        rig_unit_test(test_skip),
        rig_unit_test(test_quorum_counts_identities),
        rig_unit_test(test_quorum_lost_in_grace),
        rig_unit_test(test_a_dead_learner_holds_nobody_up),
        rig_unit_test(test_a_held_push_outlives_its_learner),
        rig_unit_test(test_push_is_resumed_after_a_reconnect),
        rig_unit_test(test_an_unanswered_pull_is_repeated),
        rig_unit_test(test_superseded_round),
        rig_unit_test(test_busy_at_due_and_deferred_pulls),
        rig_unit_test(test_merge_that_is_not_finite),
        rig_unit_test(test_store_failure_is_retried),
        rig_unit_test(test_two_merges_at_once),
        rig_unit_test(test_push_of_an_earlier_life),
    };
    return rig_run_tests(tests);
}
