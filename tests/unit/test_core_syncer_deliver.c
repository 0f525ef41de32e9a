/* Updates on their way down: chains and whole values, what is sent next, resumption, reset, fetch, many learners. */
#include "rig_test.h"

#include "core/syncer_int.h"

enum { F = 0 };

static void start_with(uint32_t fragments, uint32_t peers)
{
    struct rig_options o = rig_defaults();
    o.fragments = fragments;
    o.period = fragments > 4 ? fragments : 4;
    rig_init(&rig, &o);
    rig_up_many(&rig, peers);
}

static void start(uint32_t peers)
{
    start_with(1, peers);
}

static const struct pl_msg_update *update_of(uint32_t i)
{
    return &rig.peers[i].update[F].header;
}

static void test_chain_or_whole_value(void **state)
{
    (void)state;
    start(2);
    rig.update_bytes = 60;
    rig_up(&rig, 2);
    rig_down(&rig, 2);
    assert_true(rig_run_to(&rig, F, 3));
    rig_up(&rig, 2); /* three versions of 60 bytes behind; the whole value has 400 */
    assert_int_equal(update_of(2)->from_version, 0);
    assert_int_equal(update_of(2)->to_version, 3);
    assert_int_equal(update_of(2)->bytes, 180);
    assert_int_equal(update_of(2)->flags, 0);
    rig_down(&rig, 2);
    assert_true(rig_run_to(&rig, F, 6));
    rig_up(&rig, 2); /* six behind: only three updates are kept, as many as fit into half of its bytes */
    assert_int_equal(update_of(2)->from_version, PL_NONE64);
    assert_int_equal(update_of(2)->bytes, 400);
    assert_int_equal(rig.s->fragments[F].ring_count, 3);

    rig_down(&rig, 2);
    rig.peers[2].have[F] = 5;
    rig_up(&rig, 2);
    assert_int_equal(update_of(2)->from_version, 5);
    assert_int_equal(update_of(2)->bytes, 60);
}

/* What is expected of a line is what it then gets. */
static void test_a_visit_is_as_long_as_expected(void **state)
{
    (void)state;
    static struct fragment fr;
    for (uint64_t bytes = 1; bytes <= 500; bytes += 13)
        for (uint32_t behind = 1; behind <= PL_RING_MAX + 2; behind++) {
            uint64_t chain;
            fr = (struct fragment){.full_bytes = 400, .new_bytes = bytes};
            for (; fr.version < behind; fr.version++)
                pl_sync_ring_add(&fr, bytes, 0);
            uint64_t sent = pl_sync_chain(&fr, 0, &chain) ? chain : fr.full_bytes;
            if (sent != pl_sync_visit_bytes(&fr, behind))
                fail_msg("%lu updates of %lu bytes: %lu sent, %lu expected", (unsigned long)behind, bytes,
                         sent, pl_sync_visit_bytes(&fr, behind));
        }
}

/* An update larger than the whole value is kept (it is the newest) and never sent: the value itself is shorter. */
static void test_an_update_longer_than_the_value(void **state)
{
    (void)state;
    start(2);
    rig.update_bytes = 1000;
    assert_true(rig_run_to(&rig, F, 1));
    assert_int_equal(rig.s->fragments[F].ring_count, 1);
    assert_int_equal(update_of(0)->from_version, PL_NONE64);
    assert_int_equal(update_of(0)->bytes, 400);
}

static void test_many_small_updates(void **state)
{
    (void)state;
    start(2);
    rig.update_bytes = 1;
    assert_true(rig_run_to(&rig, F, 20));
    assert_int_equal(rig.s->fragments[F].ring_count, PL_RING_MAX);
    rig.peers[2].have[F] = 4;
    rig_up(&rig, 2);
    assert_int_equal(update_of(2)->from_version, 4);
    assert_int_equal(update_of(2)->bytes, 16);
    rig.peers[3].have[F] = 3;
    rig_up(&rig, 3);
    assert_int_equal(update_of(3)->from_version, PL_NONE64);
}

/* ---- reset ---- */

static void join_with(uint32_t i, uint64_t version, uint64_t digest)
{
    uint8_t have[RIG_FRAGMENTS * PL_ITEM_HAVE_BYTES];
    rig_hello(&rig, i);
    for (uint32_t f = 0; f < rig.o.fragments; f++)
        pl_item_have_put(have, f, &(struct pl_item_have){0, rig_digest(f, 0)});
    pl_item_have_put(have, F, &(struct pl_item_have){version, digest});
    rig_send(&rig, rig.peers[i].control,
             &(struct pl_msg){.type = PL_MSG_JOIN, .u.join = {.have = {have, rig.o.fragments}}});
    rig_attach(&rig, i);
}

static void test_a_wrong_history_is_reset(void **state)
{
    (void)state;
    start(2);
    rig.update_bytes = 60;
    assert_true(rig_run_to(&rig, F, 3));
    const struct {
        uint64_t version, digest;
        bool reset;
    } cases[] = {
        {3, rig_digest(F, 3), false}, /* up to date: nothing is sent */
        {3, 1, true},                 /* the same version, other bits */
        {2, rig_digest(F, 2), false},
        {2, 1, true},
        {9, rig_digest(F, 9), true},
        {0, 1, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        rig_restart(&rig, 2);
        join_with(2, cases[i].version, cases[i].digest);
        bool behind = cases[i].version != 3 || cases[i].reset;
        assert_int_equal(rig.peers[2].update[F].open, behind);
        if (!behind)
            continue;
        assert_int_equal(update_of(2)->flags, cases[i].reset ? 1 : 0);
        assert_int_equal(update_of(2)->from_version == PL_NONE64, cases[i].reset);
        assert_int_equal(update_of(2)->to_version, 3);
        rig_have(&rig, 2, F);
        assert_int_equal(cell_of(rig.s, 2, F)->reset, 0);
        assert_int_equal(cell_of(rig.s, 2, F)->acked, 3);
    }
}

static void test_fetch(void **state)
{
    (void)state;
    start(2);
    assert_true(rig_run_to(&rig, F, 1));
    rig_forget(&rig);
    struct pl_msg fetch = {.type = PL_MSG_FETCH, .u.fetch.fragment = F};
    rig_send(&rig, rig.peers[0].control, &fetch); /* the chain did not give the digest */
    assert_int_equal(update_of(0)->from_version, PL_NONE64);
    assert_int_equal(update_of(0)->bytes, 400);
    assert_int_equal(update_of(0)->flags, 0);
    rig_have(&rig, 0, F);
    assert_int_equal(rig.s->learners[0].behind, 0);

    /* Even with everything up to date, all that is fetched comes, a few at a time. */
    rig_release(&rig);
    start_with(8, 2);
    rig_forget(&rig);
    for (uint32_t f = 0; f < 8; f++)
        rig_send(&rig, rig.peers[1].control, &(struct pl_msg){.type = PL_MSG_FETCH, .u.fetch.fragment = f});
    assert_in_range(rig_effects(&rig, PL_SYNC_FX_DELIVER), 2, 4);
    assert_true(rig.s->learners[1].backlog);
    for (uint32_t n = 0; n < 8; n++)
        for (uint32_t f = 0; f < 8; f++)
            rig_have(&rig, 1, f);
    assert_int_equal(rig_effects(&rig, PL_SYNC_FX_DELIVER), 8);
    assert_int_equal(rig.s->learners[1].behind, 0);
}

/* ---- what is sent, and when ---- */

static void test_a_few_at_a_time_and_the_newest(void **state)
{
    (void)state;
    start_with(8, 2);
    for (uint32_t f = 0; f < 8; f++)
        assert_true(rig_run_to(&rig, f, 2));
    rig_forget(&rig);
    rig_up(&rig, 2); /* eight fragments behind, tau 1: few of them at once, those whose rounds come first */
    assert_in_range(rig.s->learners[2].sending, 2, 4);
    assert_true(rig.s->learners[2].backlog);
    for (uint32_t i = 1; i <= 2; i++)
        assert_true(rig.peers[2].update[rig.s->due_fragment[(rig.s->tick + i) % rig.s->period]].open);
    uint32_t sent = rig_effects(&rig, PL_SYNC_FX_DELIVER);
    for (uint32_t i = 1; !rig.peers[2].update[F].open; i++) { /* one came, one goes */
        rig_have(&rig, 2, rig.s->due_fragment[(rig.s->tick + i) % rig.s->period]);
        assert_int_equal(rig_effects(&rig, PL_SYNC_FX_DELIVER), sent + i);
    }

    /* A newer version comes while an older one is on its way: it is sent after HAVE, from there. */
    uint64_t going = update_of(2)->to_version;
    for (int i = 0; i < 100 && pl_syncer_version(rig.s, F, NULL) == going; i++) {
        for (uint32_t p = 0; p < 2; p++) {
            rig_report(&rig, p, 1);
            rig_obey(&rig, p);
        }
        rig_advance(&rig, 50 * PL_MS);
        rig_send(&rig, rig.peers[2].control, &(struct pl_msg){.type = PL_MSG_PING});
    }
    assert_int_equal(update_of(2)->to_version, going);
    for (uint32_t n = 0; n < 8; n++)
        for (uint32_t f = 0; f < 8; f++)
            rig_have(&rig, 2, f);
    assert_int_equal(update_of(2)->from_version, going);
    assert_int_equal(update_of(2)->to_version, going + 1);
    assert_int_equal(rig.s->learners[2].behind, 0);
}

/* With a stride of four: every fourth version, the one its own round builds on, and nothing between. One that was away for
 * longer than that explains gets the newest at once. */
static void test_a_stride_holds_versions_back(void **state)
{
    (void)state;
    start(3);
    uint32_t got = 0;
    for (uint64_t v = 1; v <= 16; v++) {
        rig.s->learners[2].stride = 4; /* it does well: the syncer would halve it */
        assert_true(rig_run_to(&rig, F, v));
        rig_have(&rig, 2, F);
        got += rig.peers[2].have[F] == v ? 1 : 0;
        assert_true(v - rig.peers[2].have[F] <= 4);
        assert_int_equal(rig.peers[0].update[F].header.to_version, v);
    }
    assert_in_range(got, 4, 5); /* one pull was older than the stride */
    assert_in_range(rig.s->learners[2].rounds_merged, 4, 5);

    rig_down(&rig, 2);
    assert_true(rig_run_to(&rig, F, 25));
    rig.s->learners[2].stride = 8;
    rig_up(&rig, 2);
    assert_int_equal(update_of(2)->to_version, 25);
}

/* Where nobody has a smaller stride no version comes between its rounds: it is sent what there is at once, not a period
 * before its next round. */
static void test_a_stride_that_all_have_holds_nothing_back(void **state)
{
    (void)state;
    start(3);
    assert_true(rig_run_to(&rig, F, 2));
    for (int i = 0; i < 40; i++) {
        for (uint32_t m = 0; m < 3; m++)
            rig.s->learners[m].stride = 4;
        rig_tick(&rig, true);
        for (uint32_t m = 0; i > 8 && m < 3; m++)
            assert_int_equal(rig.peers[m].update[F].header.to_version, pl_syncer_version(rig.s, F, NULL));
    }
    struct pl_sync_view v;
    pl_syncer_view(rig.s, &v);
    assert_int_equal(v.period_eff, 4 * rig.s->period);
}

/* A closing round is for everybody: who was not sent the version it builds on gets it then. */
static void test_a_stride_does_not_outlast_the_run(void **state)
{
    (void)state;
    start(3);
    assert_true(rig_run_to(&rig, F, 1));
    rig_have(&rig, 2, F);
    for (uint64_t v = 2; v <= 6; v++) {
        rig.s->learners[2].stride = 64;
        assert_true(rig_run_to(&rig, F, v));
    }
    assert_true(rig.peers[2].have[F] < 6);
    rig_step(&rig, &(struct pl_sync_event){.kind = PL_SYNC_EV_FINISH, .now_ns = rig.now_ns});
    for (int i = 0; i < 200 && !rig.finished; i++)
        rig_tick(&rig, true);
    assert_true(rig.finished);
    assert_int_equal(rig.peers[2].have[F], pl_syncer_version(rig.s, F, NULL));
}

/* HAVE of an older version than the one on its way (applied around a reconnect): what it lacks is sent again. */
static void test_have_of_an_older_version(void **state)
{
    (void)state;
    start(2);
    assert_true(rig_run_to(&rig, F, 2));
    rig_up(&rig, 2);
    assert_int_equal(update_of(2)->from_version, 0);
    rig_forget(&rig);
    rig_send(&rig, rig.peers[2].control, &(struct pl_msg){.type = PL_MSG_HAVE, .u.got = {F, 1}});
    assert_int_equal(update_of(2)->from_version, 1);
    assert_int_equal(update_of(2)->to_version, 2);
    rig_have(&rig, 2, F);
    assert_int_equal(cell_of(rig.s, 2, F)->acked, 2);
    rig_forget(&rig);
    rig_send(&rig, rig.peers[2].control, &(struct pl_msg){.type = PL_MSG_HAVE, .u.got = {F, 2}}); /* twice */
    assert_int_equal(rig_effects(&rig, PL_SYNC_FX_DELIVER), 0);
}

static void attach_with(uint32_t i, const struct pl_item_partial *items, uint32_t count)
{
    uint8_t bytes[8 * PL_ITEM_PARTIAL_BYTES];
    for (uint32_t k = 0; k < count; k++)
        pl_item_partial_put(bytes, k, &items[k]);
    struct rig_peer *p = &rig.peers[i];
    p->bulk = rig_open(&rig, p->identity);
    rig.conns[p->bulk].peer = i;
    rig_send(&rig, p->bulk,
             &(struct pl_msg){.type = PL_MSG_ATTACH,
                              .u.attach = {.incarnation = p->incarnation, .partial = {bytes, count}}});
}

static void test_updates_are_resumed(void **state)
{
    (void)state;
    struct rig_options o = rig_defaults();
    o.fragments = 1;
    o.full_bytes = 100000;
    rig_init(&rig, &o);
    rig.update_bytes = 40000; /* three chunks */
    rig_up_many(&rig, 2);
    assert_true(rig_run_to(&rig, F, 1));
    rig_up(&rig, 2);
    const struct pl_msg_update u = *update_of(2);
    assert_int_equal(u.bytes, 40000);
    rig_close(&rig, rig.peers[2].bulk);
    assert_int_equal(rig.s->learners[2].sending, 0);
    const struct pl_item_partial items[] = {
        {F, 1, u.digest, 40000, 5},
        {F, 1, u.digest, 40000, 1},    /* named twice: the first counts */
        {4000, 1, u.digest, 40000, 1}, /* not ours */
    };
    rig_forget(&rig);
    attach_with(2, items, 3);
    const struct pl_sync_effect *fx = rig_effect(&rig, PL_SYNC_FX_DELIVER);
    assert_int_equal(fx->u.deliver.mask, 5);
    assert_int_equal(fx->u.deliver.header.bytes, 40000);

    rig_close(&rig, rig.peers[2].bulk); /* a mask with chunks that do not exist */
    attach_with(2, &(struct pl_item_partial){F, 1, u.digest, 40000, UINT64_MAX}, 1);
    assert_int_equal(rig_effect(&rig, PL_SYNC_FX_DELIVER)->u.deliver.mask, 7);

    const struct pl_item_partial others[] = {
        {F, 2, u.digest, 40000, 5}, {F, 1, 77, 40000, 5}, {F, 1, u.digest, 40001, 5}};
    for (size_t i = 0; i < 3; i++) { /* of something else: begun anew */
        rig_close(&rig, rig.peers[2].bulk);
        attach_with(2, &others[i], 1);
        assert_int_equal(rig_effect(&rig, PL_SYNC_FX_DELIVER)->u.deliver.mask, 0);
    }
    rig_have(&rig, 2, F);
    rig_close(&rig, rig.peers[2].bulk); /* it has it by now */
    rig_forget(&rig);
    attach_with(2, items, 1);
    assert_null(rig_effect(&rig, PL_SYNC_FX_DELIVER));
}

static void test_without_a_bulk_connection_nothing_is_sent(void **state)
{
    (void)state;
    start(2);
    assert_true(rig_run_to(&rig, F, 1));
    rig_hello(&rig, 2);
    rig_join(&rig, 2);
    rig_forget(&rig);
    rig_send(&rig, rig.peers[2].control, &(struct pl_msg){.type = PL_MSG_FETCH, .u.fetch.fragment = F});
    assert_int_equal(rig_effects(&rig, PL_SYNC_FX_DELIVER), 0);
    rig_attach(&rig, 2);
    assert_int_equal(update_of(2)->from_version, PL_NONE64);
}

/* A learner that is asked while its update is on its way builds on it; one that is far behind is not asked. */
static void test_pulls_wait_for_updates(void **state)
{
    (void)state;
    start(3);
    assert_true(rig_run_to(&rig, F, 1));
    rig_down(&rig, 2);
    assert_true(rig_run_to(&rig, F, 2));
    rig_forget(&rig);
    rig.peers[2].pull[F].open = false;
    rig_hello(&rig, 2);
    rig_join(&rig, 2);
    rig_attach(&rig, 2);
    assert_true(rig.peers[2].update[F].open);
    for (int i = 0; i < 40; i++) { /* it reports, and applies nothing */
        for (uint32_t p = 0; p < 3; p++)
            rig_report(&rig, p, 1);
        rig_advance(&rig, 100 * PL_MS);
        rig_obey(&rig, 0);
        rig_obey(&rig, 1);
    }
    assert_true(rig.peers[2].pull[F].base <= update_of(2)->to_version);
    assert_true(pl_syncer_version(rig.s, F, NULL) > update_of(2)->to_version);
}

/* Announcing the same fragment twice before the first is through; sixteen learners at once. */
static void test_announcements_reach_everybody(void **state)
{
    (void)state;
    struct rig_options o = rig_defaults();
    o.learners_max = 16;
    o.fragments = 1;
    o.quorum = 1;
    rig_init(&rig, &o);
    rig_up_many(&rig, 16);
    assert_true(rig_run_to(&rig, F, 5));
    uint64_t v = pl_syncer_version(rig.s, F, NULL);
    for (uint32_t i = 0; i < 16; i++) {
        rig_have(&rig, i, F);
        assert_int_equal(rig.peers[i].have[F], v);
    }
}

static void test_a_fragment_waits_once_to_be_announced(void **state)
{
    (void)state;
    start_with(2, 1);
    pl_sync_announce(rig.s, 0);
    pl_sync_announce(rig.s, 1);
    pl_sync_announce(rig.s, 1);
    assert_int_equal(rig.s->announce_len, 2);
    rig_rest(&rig, PL_MS);
    assert_int_equal(rig.s->announce_len, 0);
}

/* What it fetches and then has after all is not sent; what it lists before JOIN is not known to be missing yet. */
static void test_fetched_and_had(void **state)
{
    (void)state;
    start_with(8, 2);
    for (uint32_t f = 0; f < 8; f++)
        rig_send(&rig, rig.peers[1].control, &(struct pl_msg){.type = PL_MSG_FETCH, .u.fetch.fragment = f});
    assert_false(rig.peers[1].update[7].open);
    rig_send(&rig, rig.peers[1].control, &(struct pl_msg){.type = PL_MSG_HAVE, .u.got = {7, 0}});
    for (uint32_t n = 0; n < 8; n++)
        for (uint32_t f = 0; f < 7; f++)
            rig_have(&rig, 1, f);
    assert_int_equal(rig.s->learners[1].behind, 0);
    rig_hello(&rig, 2);
    const struct pl_item_partial item = {F, 0, rig_digest(F, 0), 400, 1};
    rig_forget(&rig);
    attach_with(2, &item, 1);
    assert_int_equal(rig_effects(&rig, PL_SYNC_FX_DELIVER), 0);
    rig_join(&rig, 2);
    assert_int_equal(rig_effects(&rig, PL_SYNC_FX_DELIVER), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        rig_unit_test(test_chain_or_whole_value),
        cmocka_unit_test(test_a_visit_is_as_long_as_expected),
        rig_unit_test(test_an_update_longer_than_the_value),
        rig_unit_test(test_many_small_updates),
        rig_unit_test(test_a_wrong_history_is_reset),
        rig_unit_test(test_fetch),
        rig_unit_test(test_a_few_at_a_time_and_the_newest),
        rig_unit_test(test_a_stride_holds_versions_back),
        rig_unit_test(test_a_stride_that_all_have_holds_nothing_back),
        rig_unit_test(test_a_stride_does_not_outlast_the_run),
        rig_unit_test(test_have_of_an_older_version),
        rig_unit_test(test_updates_are_resumed),
        rig_unit_test(test_without_a_bulk_connection_nothing_is_sent),
        rig_unit_test(test_pulls_wait_for_updates),
        rig_unit_test(test_announcements_reach_everybody),
        rig_unit_test(test_a_fragment_waits_once_to_be_announced),
        rig_unit_test(test_fetched_and_had),
    };
    return rig_run_tests(tests);
}
