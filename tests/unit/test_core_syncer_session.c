/* Who is here: greetings, incarnations, leases, replaced and broken connections, a full table; and that a peer's mistake
 * closes its own connections with a reason that names the field, and changes nothing else (I16). */
#include "rig_test.h"

#include "expect_assert.h"
#include "wire/frame.h"

static struct rig_options options(void)
{
    return rig_defaults();
}

static void start(uint32_t peers)
{
    struct rig_options o = options();
    rig_init(&rig, &o);
    rig_up_many(&rig, peers);
    rig_forget(&rig);
}

static void test_boot_is_durable_before_listening(void **state)
{
    (void)state;
    struct rig_options o = options();
    rig_init(&rig, &o);
    assert_true(rig.listening);
    assert_non_null(rig_effect(&rig, PL_SYNC_FX_LISTEN));
    struct pl_record rec;
    rig_record(&rig, 0, &rec, NULL);
    assert_int_equal(rec.type, PL_RECORD_BOOT);
    assert_int_equal(rec.epoch, 1);
    assert_int_equal(rig_traced(&rig, PL_TRACE_SYNC_BOOT)->arg[0], 1);
    assert_true(pl_syncer_deadline(rig.s) == PL_NEVER);

    rig.hold_store = true;
    rig_recover(&rig);
    assert_false(rig.listening);
    rig_answer(&rig, PL_SYNC_EV_STORED, false);
    assert_false(rig.listening);
    rig_advance(&rig, 400 * PL_MS);
    assert_false(rig_waits(&rig, PL_SYNC_EV_STORED)); /* not asked again in a hurry */
    rig_advance(&rig, 200 * PL_MS);
    assert_true(rig_answer(&rig, PL_SYNC_EV_STORED, true));
    assert_true(rig.listening);
    assert_int_equal(rig_traced(&rig, PL_TRACE_SYNC_BOOT)->arg[0], 2);
}

static void test_hello_join_attach(void **state)
{
    (void)state;
    start(0);
    rig_hello(&rig, 0);
    uint32_t control = rig.peers[0].control;
    const struct pl_msg *welcome = rig_sent(&rig, control, PL_MSG_WELCOME);
    assert_non_null(welcome);
    assert_int_equal(welcome->u.welcome.incarnation, (UINT64_C(1) << 32) + 1);
    assert_int_equal(welcome->u.welcome.run_id, rig.manifest.run_id);
    assert_int_equal(welcome->u.welcome.heartbeat_ns, PL_SEC);
    expect_not_sent(control, PL_MSG_MANIFEST); /* it named the right digest */
    rig_join(&rig, 0);
    assert_non_null(rig_traced(&rig, PL_TRACE_SYNC_JOIN));
    rig_attach(&rig, 0);
    expect_sent(rig.peers[0].bulk, PL_MSG_ATTACHED);
    struct pl_learner_view v;
    assert_true(pl_syncer_view_learner(rig.s, 0, &v));
    assert_true(v.live);
    assert_int_equal(v.identity, 10);
    assert_int_equal(v.stride, 1);
    assert_false(pl_syncer_view_learner(rig.s, 1, &v));
}

static void test_manifest_is_sent_to_who_lacks_it(void **state)
{
    (void)state;
    start(0);
    uint32_t c = rig_open(&rig, 10);
    rig_send(&rig, c, &(struct pl_msg){.type = PL_MSG_HELLO, .u.hello = {.nonce = 5}});
    expect_sent(c, PL_MSG_MANIFEST);
    assert_int_equal(rig_sent(&rig, c, PL_MSG_WELCOME)->u.welcome.manifest_digest, rig.so.manifest_digest);
}

static void test_same_nonce_same_incarnation(void **state)
{
    (void)state;
    start(1);
    uint64_t first = rig.peers[0].incarnation;
    uint32_t old = rig.peers[0].control, old_bulk = rig.peers[0].bulk;
    rig.peers[0].incarnation = 0; /* its WELCOME was lost: the HELLO is repeated */
    rig_hello(&rig, 0);
    assert_int_equal(rig.peers[0].incarnation, first);
    expect_closed(old, REPLACED, "newer connection of the same process");
    expect_closed(old_bulk, REPLACED, "newer connection of the same process");
    rig_join(&rig, 0);
    struct pl_sync_view v;
    pl_syncer_view(rig.s, &v);
    assert_int_equal(v.live, 1);
    assert_int_equal(v.known, 1);
}

static void test_new_process_fences_the_old(void **state)
{
    (void)state;
    start(1);
    uint64_t first = rig.peers[0].incarnation;
    uint32_t old = rig.peers[0].control;
    rig_restart(&rig, 0);
    rig_up(&rig, 0);
    assert_true(rig.peers[0].incarnation > first);
    expect_closed(old, FENCED, "newer process");
    assert_non_null(rig_traced(&rig, PL_TRACE_SYNC_FENCE));

    rig_forget(&rig);
    uint8_t before[RIG_SAVE_BYTES], after[RIG_SAVE_BYTES];
    size_t len = rig_save(&rig, before);
    uint32_t c = rig_open(&rig, 10);
    rig_send(&rig, c,
             &(struct pl_msg){.type = PL_MSG_HELLO, .u.hello = {.incarnation = first, .nonce = 100}});
    expect_closed(c, FENCED, "HELLO.incarnation 100000001 is older than 100000002");
    assert_true(rig_closed(&rig, c)->u.close.refuse);
    assert_true(rig_live(&rig, 0)); /* the one that took over stays */
    assert_int_equal(rig_save(&rig, after), len);
    assert_memory_equal(before, after, len);
}

static void test_other_shards_take_over_by_incarnation(void **state)
{
    (void)state;
    struct rig_options o = options();
    o.shards = 2;
    o.shard = 1;
    rig_init(&rig, &o);
    uint32_t c = rig_open(&rig, 10);
    rig_send(&rig, c, &(struct pl_msg){.type = PL_MSG_HELLO, .u.hello = {.nonce = 100}});
    expect_closed(c, WRONG_STATE, "HELLO.incarnation is 0, shard 0 must be asked");
    rig.peers[0].incarnation = 7;
    rig_up(&rig, 0);
    uint32_t old = rig.peers[0].control;
    assert_int_equal(rig.peers[0].incarnation, 7);
    rig.peers[0].incarnation = 9;
    rig_up(&rig, 0);
    expect_closed(old, FENCED, "newer process");
    assert_true(rig_live(&rig, 0));
}

static void test_a_second_bulk_connection_replaces_the_first(void **state)
{
    (void)state;
    start(1);
    uint32_t old = rig.peers[0].bulk;
    rig_attach(&rig, 0);
    expect_closed(old, REPLACED, "newer connection");
    assert_true(rig_live(&rig, 0));
    rig_close(&rig, rig.peers[0].bulk); /* loses no learner */
    assert_true(rig_live(&rig, 0));
    assert_int_equal(rig_traces(&rig, PL_TRACE_SYNC_LOST), 0);
}

static void test_leases_and_greetings_expire(void **state)
{
    (void)state;
    start(1);
    uint32_t silent = rig_open(&rig, 20), control = rig.peers[0].control, bulk = rig.peers[0].bulk;
    rig_advance(&rig, 3 * PL_SEC);
    rig_send(&rig, control, &(struct pl_msg){.type = PL_MSG_PING, .u.ping.nonce = 77});
    assert_int_equal(rig_sent(&rig, control, PL_MSG_PONG)->u.pong.nonce, 77);
    rig_advance(&rig, 2001 * PL_MS);
    expect_closed(silent, NO_HELLO, "within 5000 ms");
    assert_true(rig_live(&rig, 0));
    rig_send(&rig, bulk, &(struct pl_msg){.type = PL_MSG_PONG}); /* also a sign of life */
    rig_advance(&rig, 600 * PL_SEC);
    expect_closed(control, LEASE_EXPIRED, "nothing was heard for");
    expect_closed(bulk, LEASE_EXPIRED, "nothing was heard for");
    assert_int_equal(rig_traced(&rig, PL_TRACE_SYNC_LOST)->arg[1], PL_REASON_LEASE_EXPIRED);
    rig_hello(&rig, 1); /* greeted, and then nothing */
    control = rig.peers[1].control;
    rig_advance(&rig, 600 * PL_SEC);
    expect_closed(control, LEASE_EXPIRED, "nothing was heard");
}

/* A learner that always took its time keeps its lease. */
static void test_leases_follow_the_learner(void **state)
{
    (void)state;
    start(1);
    uint64_t gap = PL_SEC;
    for (int i = 0; i < 60 && gap < 30 * PL_SEC; i++, gap += gap / 8) {
        rig_advance(&rig, gap);
        rig_send(&rig, rig.peers[0].control, &(struct pl_msg){.type = PL_MSG_PING});
    }
    assert_true(rig_live(&rig, 0));
    rig_advance(&rig, 60 * PL_SEC);
    assert_true(rig_live(&rig, 0));
}

static void test_goodbye(void **state)
{
    (void)state;
    start(2);
    struct pl_msg bye = {.type = PL_MSG_CLOSE, .u.close.code = PL_REASON_LEAVING};
    uint32_t bulk = rig.peers[0].bulk, control = rig.peers[0].control;
    rig_send(&rig, bulk, &bye);
    expect_closed(bulk, LEAVING, "as the learner asked");
    assert_true(rig_live(&rig, 0));
    rig_send(&rig, control, &bye);
    expect_closed(control, LEAVING, "as the learner asked");
    bulk = rig.peers[1].bulk;
    rig_close(&rig, rig.peers[1].control); /* broken: the bulk connection has no meaning alone */
    expect_closed(bulk, LEAVING, "control connection is gone");
    struct pl_sync_view v;
    pl_syncer_view(rig.s, &v);
    assert_int_equal(v.live, 0);
    assert_int_equal(v.known, 2);
    uint32_t c = rig_open(&rig, 30);
    rig_close(&rig, c); /* before any greeting */
}

/* ---- mistakes ---- */

struct mistake {
    const char *words;
    enum pl_reason reason;
    bool bulk;
    struct pl_msg msg;
};

#define M(type_) .msg.type = PL_MSG_##type_
#define BAD(why, words_) .reason = PL_REASON_##why, .words = words_

static const struct mistake mistakes[] = {
    {BAD(WRONG_STATE, "HELLO came, REPORT, SKIP, HAVE"), M(HELLO)},
    {BAD(WRONG_STATE, "JOIN came, REPORT, SKIP, HAVE"), M(JOIN)},
    {BAD(WRONG_STATE, "PULL came"), M(PULL)},
    {BAD(WRONG_STATE, "PUSH came"), M(PUSH)},
    {BAD(WRONG_STATE, "WELCOME came"), M(WELCOME)},
    {BAD(WRONG_STATE, "REPORT came, PUSH or DATA is expected"), .bulk = true, M(REPORT)},
    {BAD(WRONG_STATE, "ATTACH came, PUSH or DATA is expected"), .bulk = true, M(ATTACH)},
    {BAD(WRONG_STATE, "UPDATE came, PUSH or DATA is expected"), .bulk = true, M(UPDATE)},
    {BAD(BAD_MESSAGE, "REPORT.steps went back from 5 to 4"), M(REPORT),
     .msg.u.report = {.steps = 4, .tokens = 50}},
    {BAD(BAD_MESSAGE, "REPORT.tokens went back from 50 to 49"), M(REPORT),
     .msg.u.report = {.steps = 5, .tokens = 49}},
    {BAD(BAD_MESSAGE, "REPORT.tokens grew by 2001 in 2 steps, at most 1000"), M(REPORT),
     .msg.u.report = {.steps = 7, .tokens = 2051}},
    {BAD(BAD_MESSAGE, "REPORT.tokens grew by 1 in 0 steps"), M(REPORT),
     .msg.u.report = {.steps = 5, .tokens = 51}},
    {BAD(BAD_MESSAGE, "SKIP.fragment is 2, which shard 0 does not own"), M(SKIP), .msg.u.skip.fragment = 2},
    {BAD(BAD_MESSAGE, "HAVE.fragment is 2, which shard 0 does not own"), M(HAVE), .msg.u.got.fragment = 2},
    {BAD(WRONG_STATE, "HAVE.version is 9, fragment 1 is at 0"), M(HAVE), .msg.u.got = {1, 9}},
    {BAD(BAD_MESSAGE, "FETCH.fragment is 4095, which shard 0 does not own"), M(FETCH),
     .msg.u.fetch.fragment = 4095},
    {BAD(BAD_MESSAGE, "PUSH.fragment is 2, which shard 0 does not own"), .bulk = true, M(PUSH),
     .msg.u.push.fragment = 2},
    {BAD(BAD_MESSAGE, "DATA.fragment is 2, which shard 0 does not own"), .bulk = true, M(DATA),
     .msg.u.data.fragment = 2},
    {BAD(WRONG_STATE, "PUSH.round 7.3 was never asked for"), .bulk = true, M(PUSH),
     .msg.u.push.round = PL_ROUND(7, 3)},
    {BAD(WRONG_STATE, "PUSH.round 1.999 was never asked for"), .bulk = true, M(PUSH),
     .msg.u.push.round = PL_ROUND(1, 999)},
};

static void test_a_mistake_closes_its_peer_and_changes_nothing(void **state)
{
    (void)state;
    uint8_t before[RIG_SAVE_BYTES], after[RIG_SAVE_BYTES];
    for (size_t i = 0; i < sizeof mistakes / sizeof mistakes[0]; i++) {
        start(2);
        rig_report(&rig, 0, 5);
        rig_forget(&rig);
        uint32_t control = rig.peers[0].control, bulk = rig.peers[0].bulk, bystander = rig.peers[1].control;
        size_t len = rig_save(&rig, before);
        rig_send(&rig, mistakes[i].bulk ? bulk : control, &mistakes[i].msg);
        const struct pl_sync_effect *fx = rig_closed(&rig, control);
        assert_non_null(fx);
        assert_non_null(rig_closed(&rig, bulk));
        if (strstr(fx->u.close.text, mistakes[i].words) == NULL)
            fail_msg("\"%s\" does not say \"%s\"", fx->u.close.text, mistakes[i].words);
        assert_int_equal(fx->u.close.reason, mistakes[i].reason);
        assert_true(rig.conns[bystander].open);
        for (uint32_t k = 0; k < rig.log_len; k++)
            assert_true(rig.log[k].kind == PL_SYNC_FX_CLOSE || rig.log[k].kind == PL_SYNC_FX_TRACE);
        assert_int_equal(rig_save(&rig, after), len);
        assert_memory_equal(before, after, len);
        rig_release(&rig);
    }
}

/* Before HELLO or ATTACH: the connection alone is at stake. */
static void test_first_messages_that_are_wrong(void **state)
{
    (void)state;
    static const struct mistake firsts[] = {
        {BAD(WRONG_STATE, "the first message is PING, HELLO or ATTACH is expected"), M(PING)},
        {BAD(WRONG_STATE, "the first message is CLOSE"), M(CLOSE)},
        {BAD(WRONG_RUN, "HELLO.run_id is 5, this is run abc"), M(HELLO), .msg.u.hello = {.run_id = 5}},
        {BAD(BAD_MESSAGE, "HELLO.tokens is 2001 in 2 steps, at most 1000"), M(HELLO),
         .msg.u.hello = {.steps = 2, .tokens = 2001}},
        {BAD(WRONG_STATE, "ATTACH came before HELLO"), M(ATTACH)},
        {BAD(BAD_MESSAGE, "HELLO.incarnation 100000003 was never given"), M(HELLO),
         .msg.u.hello = {.incarnation = 0x100000003}},
    };
    uint8_t before[RIG_SAVE_BYTES], after[RIG_SAVE_BYTES];
    for (size_t i = 0; i < sizeof firsts / sizeof firsts[0]; i++) {
        start(2);
        size_t len = rig_save(&rig, before);
        uint32_t c = rig_open(&rig, 5); /* sorts before the others, and is unknown */
        rig_send(&rig, c, &firsts[i].msg);
        const struct pl_sync_effect *fx = rig_closed(&rig, c);
        assert_non_null(fx);
        assert_int_equal(fx->u.close.reason, firsts[i].reason);
        assert_non_null(strstr(fx->u.close.text, firsts[i].words));
        assert_int_equal(rig.log_len, 1);
        assert_int_equal(rig_save(&rig, after), len); /* no slot was made for it */
        assert_memory_equal(before, after, len);
        rig_release(&rig);
    }
    start(1);
    uint32_t c = rig_open(&rig, 99); /* an identity after all known */
    rig_send(&rig, c, &(struct pl_msg){.type = PL_MSG_ATTACH});
    expect_closed(c, WRONG_STATE, "ATTACH came before HELLO");
    c = rig_open(&rig, 10);
    rig_send(&rig, c, &(struct pl_msg){.type = PL_MSG_ATTACH, .u.attach.incarnation = 3});
    expect_closed(c, WRONG_STATE, "ATTACH.incarnation is 3, 100000001 is expected");
    assert_true(rig_live(&rig, 0));
    rig_down(&rig, 0);
    c = rig_open(&rig, 10); /* known, but away */
    rig_send(&rig, c,
             &(struct pl_msg){.type = PL_MSG_ATTACH, .u.attach.incarnation = rig.peers[0].incarnation});
    expect_closed(c, WRONG_STATE, "ATTACH came before HELLO");
}

static void test_greeted_learners_that_are_wrong(void **state)
{
    (void)state;
    start(0);
    rig_hello(&rig, 0);
    uint32_t c = rig.peers[0].control;
    rig_send(&rig, c, &(struct pl_msg){.type = PL_MSG_REPORT});
    expect_closed(c, WRONG_STATE, "REPORT came, JOIN is expected");

    rig_hello(&rig, 0);
    c = rig.peers[0].control;
    rig_send(&rig, c, &(struct pl_msg){.type = PL_MSG_JOIN});
    expect_closed(c, BAD_MESSAGE, "JOIN.have has 0 entries, this shard has 2 fragments");

    rig.peers[0].flags = 1; /* private data, and yet a unit */
    rig_hello(&rig, 0);
    c = rig.peers[0].control;
    rig.peers[0].flags = 0;
    rig.peers[0].unit = 3;
    rig_join(&rig, 0);
    expect_closed(c, BAD_MESSAGE, "JOIN.units has 1 entries, none are expected");

    rig.peers[0].unit = PL_NONE64;
    rig_hello(&rig, 0);
    rig_attach(&rig, 0); /* a bulk connection before JOIN is fine; a push there is as good as late */
    uint32_t bulk = rig.peers[0].bulk;
    expect_sent(bulk, PL_MSG_ATTACHED);
    rig_send(&rig, bulk, &(struct pl_msg){.type = PL_MSG_PUSH});
    rig_send(&rig, bulk, &(struct pl_msg){.type = PL_MSG_DATA});
    assert_true(rig.conns[bulk].open);
    rig_join(&rig, 0);
    assert_true(rig.conns[bulk].open);
}

static void test_units_are_for_the_home_shard(void **state)
{
    (void)state;
    struct rig_options o = options();
    o.shards = 2;
    o.shard = 1;
    rig_init(&rig, &o);
    rig.peers[0].incarnation = 7;
    rig_hello(&rig, 0);
    uint32_t c = rig.peers[0].control;
    uint8_t have[PL_ITEM_HAVE_BYTES], unit[PL_ITEM_HELD_UNIT_BYTES];
    pl_item_have_put(have, 0, &(struct pl_item_have){0, rig_digest(1, 0)});
    pl_item_held_unit_put(unit, 0, &(struct pl_item_held_unit){0, 0});
    rig_send(&rig, c,
             &(struct pl_msg){.type = PL_MSG_JOIN, .u.join = {.have = {have, 1}, .units = {unit, 1}}});
    expect_closed(c, BAD_MESSAGE, "JOIN.units has 1 entries");
    rig_up(&rig, 0);
    c = rig.peers[0].control;
    rig_send(&rig, c, &(struct pl_msg){.type = PL_MSG_WANT});
    expect_closed(c, WRONG_STATE, "WANT came, but work units are");
}

static void test_bytes_that_are_no_message(void **state)
{
    (void)state;
    start(2);
    uint8_t frame[64];
    struct pl_msg ping = {.type = PL_MSG_PING};
    size_t len = pl_frame_encode(&ping, frame, sizeof frame);
    rig_bytes(&rig, rig.peers[0].control, frame, len);
    assert_true(rig_live(&rig, 0));
    rig_bytes(&rig, rig.peers[0].control, frame, len - 1); /* not all there yet */
    assert_true(rig_live(&rig, 0));
    frame[len - 1] ^= 1;
    uint32_t control = rig.peers[0].control, bulk = rig.peers[0].bulk;
    rig_bytes(&rig, control, frame, len);
    expect_closed(control, BAD_FRAME, "");
    expect_closed(bulk, BAD_FRAME, "");
    uint32_t c = rig_open(&rig, 50);
    rig_bytes(&rig, c, (const uint8_t *)"GET / HTTP/1.1\r\n\r\n", 18);
    expect_closed(c, BAD_FRAME, "");
    bulk = rig.peers[1].bulk;
    rig_bytes(&rig, bulk, (const uint8_t *)"PLPLPLPLPLPLPLPLPLPL", 20);
    expect_closed(bulk, BAD_FRAME, "");
    assert_false(rig_live(&rig, 1));
}

/* Nobody can make the sums overflow, nor the clock leave what the wire can carry. */
static void test_huge_claims_saturate(void **state)
{
    (void)state;
    start(0);
    uint64_t last = 0;
    for (uint32_t i = 0; i < 12; i++) {
        struct rig_peer *p = &rig.peers[i % 3];
        p->steps = PL_COUNT_MAX / rig.manifest.step_tokens_max;
        p->tokens = p->steps * rig.manifest.step_tokens_max;
        rig_hello(&rig, i % 3);
        assert_true(rig_live(&rig, i % 3));
        struct pl_sync_view v;
        pl_syncer_view(rig.s, &v);
        assert_true(v.clock_tokens >= last && v.clock_tokens <= PL_COUNT_MAX);
        last = v.clock_tokens;
        rig_restart(&rig, i % 3);
    }
    assert_int_equal(last, PL_COUNT_MAX);
    uint32_t c = rig_open(&rig, 77);
    struct pl_msg hello = {.type = PL_MSG_HELLO,
                           .u.hello = {.nonce = 1, .steps = PL_COUNT_MAX, .tokens = PL_COUNT_MAX}};
    rig_send(&rig, c, &hello);
    expect_closed(c, BAD_MESSAGE, "HELLO.tokens is");
}

/* ---- a full table ---- */

static void test_the_longest_away_is_forgotten(void **state)
{
    (void)state;
    start(4);
    uint32_t c = rig_open(&rig, 99);
    rig_send(&rig, c, &(struct pl_msg){.type = PL_MSG_HELLO, .u.hello = {.nonce = 1}});
    expect_closed(c, FULL, "4 learners are here, that is the limit");
    for (uint32_t i = 0; i < 4; i++)
        rig_report(&rig, i, 7);
    struct pl_sync_view before, after;
    rig_advance(&rig, PL_MS);
    rig_down(&rig, 2); /* away first: has been heard of last at the same time, but */
    rig_advance(&rig, PL_MS);
    rig_report(&rig, 1, 1);
    rig_down(&rig, 1);
    pl_syncer_view(rig.s, &before);
    rig_up(&rig, 4);
    assert_true(rig_live(&rig, 4));
    pl_syncer_view(rig.s, &after);
    assert_int_equal(after.clock_tokens, before.clock_tokens); /* its tokens stay in the clock */
    assert_int_equal(after.known, 4);
    struct pl_learner_view v;
    bool found[6] = {false};
    for (uint32_t m = 0; m < 4; m++) {
        assert_true(pl_syncer_view_learner(rig.s, m, &v));
        found[v.identity / 10 - 1] = true;
    }
    assert_true(found[0] && found[1] && !found[2] && found[3] && found[4]);

    /* It comes back as a stranger: nobody remembers what of it was merged. */
    rig_up(&rig, 2);
    assert_true(rig_live(&rig, 2));
    pl_syncer_view(rig.s, &after);
    assert_int_equal(after.known, 4);
}

static void test_who_is_being_merged_is_not_forgotten(void **state)
{
    (void)state;
    struct rig_options o = options();
    o.learners_max = 2;
    o.quorum = 2;
    rig_init(&rig, &o);
    rig_up_many(&rig, 2);
    rig.hold_merge = true;
    for (int i = 0; i < 50 && !rig_waits(&rig, PL_SYNC_EV_MERGED); i++)
        rig_tick(&rig, true);
    assert_true(rig_waits(&rig, PL_SYNC_EV_MERGED));
    rig_down(&rig, 0);
    rig_forget(&rig);
    uint32_t c = rig_open(&rig, 99);
    rig_send(&rig, c, &(struct pl_msg){.type = PL_MSG_HELLO, .u.hello = {.nonce = 1}});
    expect_closed(c, FULL, "2 learners are here");
    rig.hold_merge = false;
    while (rig_answer(&rig, PL_SYNC_EV_MERGED, true))
        continue;
    c = rig_open(&rig, 99);
    rig_send(&rig, c, &(struct pl_msg){.type = PL_MSG_HELLO, .u.hello = {.nonce = 1}});
    assert_true(rig.conns[c].open);
}

/* What the old process pushed and was not merged does not count any more, nor does a half push. */
static void test_pushes_of_a_fenced_process_are_forgotten(void **state)
{
    (void)state;
    struct rig_options o = options();
    o.quorum = 2;
    o.learners_max = 3;
    rig_init(&rig, &o);
    rig_up_many(&rig, 3);
    assert_true(rig_run_to_pull(&rig, 0, 0));
    rig_push(&rig, 0, 0);
    assert_true(rig.pushes[0][0].used);
    rig_restart(&rig, 0);
    rig_hello(&rig, 0);
    assert_false(rig.pushes[0][0].used);
    assert_true(rig_run_to_pull(&rig, 1, 0));
    rig_push_header(&rig, 1, 0, 40000);
    rig_push_chunk(&rig, 1, 0, 40000, 1);
    assert_true(rig.pushes[1][0].used);
    rig_restart(&rig, 1);
    rig_hello(&rig, 1);
    assert_false(rig.pushes[1][0].used);
}

static void test_the_hosts_mistakes_are_asserted(void **state)
{
    (void)state;
    start(1);
    struct pl_sync_event twice = {.kind = PL_SYNC_EV_OPENED, .now_ns = rig.now_ns, .u.opened = {0, 10}};
    struct pl_sync_event unknown = {.kind = PL_SYNC_EV_CLOSED, .now_ns = rig.now_ns, .u.closed = {40}};
    struct pl_sync_event backwards = {.kind = PL_SYNC_EV_TIMEOUT, .now_ns = rig.now_ns - 1};
    struct pl_sync_event reborn = {.kind = PL_SYNC_EV_BOOT, .now_ns = rig.now_ns};
    struct pl_sync_event unasked = {.kind = PL_SYNC_EV_STORED, .now_ns = rig.now_ns, .u.stored = {99, true}};
    expect_assert(pl_syncer_step(rig.s, &twice, &rig.fxs));
    expect_assert(pl_syncer_step(rig.s, &unknown, &rig.fxs));
    expect_assert(pl_syncer_step(rig.s, &backwards, &rig.fxs));
    expect_assert(pl_syncer_step(rig.s, &reborn, &rig.fxs));
    expect_assert(pl_syncer_step(rig.s, &unasked, &rig.fxs));
    expect_assert(pl_syncer_set_origin(rig.s, 0, 1));
    pl_assert_set_handler(rig_test_assert);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        rig_unit_test(test_boot_is_durable_before_listening),
        rig_unit_test(test_hello_join_attach),
        rig_unit_test(test_manifest_is_sent_to_who_lacks_it),
        rig_unit_test(test_same_nonce_same_incarnation),
        rig_unit_test(test_new_process_fences_the_old),
        rig_unit_test(test_other_shards_take_over_by_incarnation),
        rig_unit_test(test_a_second_bulk_connection_replaces_the_first),
        rig_unit_test(test_leases_and_greetings_expire),
        rig_unit_test(test_leases_follow_the_learner),
        rig_unit_test(test_goodbye),
        rig_unit_test(test_a_mistake_closes_its_peer_and_changes_nothing),
        rig_unit_test(test_first_messages_that_are_wrong),
        rig_unit_test(test_greeted_learners_that_are_wrong),
        rig_unit_test(test_units_are_for_the_home_shard),
        rig_unit_test(test_bytes_that_are_no_message),
        rig_unit_test(test_huge_claims_saturate),
        rig_unit_test(test_the_longest_away_is_forgotten),
        rig_unit_test(test_who_is_being_merged_is_not_forgotten),
        rig_unit_test(test_pushes_of_a_fenced_process_are_forgotten),
        rig_unit_test(test_the_hosts_mistakes_are_asserted),
    };
    return rig_run_tests(tests);
}
