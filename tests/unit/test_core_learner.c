/* The learner's sessions: joining, reconnecting, work units, the clock, timers, and every way out. */
#include "learner_rig.h"

#include "base/num.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

static int setup(void **state)
{
    static struct lrig r;
    lrig_init(&r, NULL);
    *state = &r;
    return 0;
}

static int teardown(void **state)
{
    lrig_release(*state);
    return 0;
}

static struct pl_msg plain(uint8_t type)
{
    return (struct pl_msg){.type = type};
}

static void joins_from_nothing(void **state)
{
    struct lrig *r = *state;
    assert_true(pl_learner_deadline(r->l) == 0);
    lrig_start(r);
    assert_int_equal(r->out.count, 1);
    assert_int_equal(r->out.fx[0].kind, PL_LEARN_FX_CONNECT);
    assert_true(pl_learner_deadline(r->l) == PL_NEVER);
    lrig_opened(r, 0, PL_LINK_CONTROL);
    const struct pl_msg *m = lrig_sent(r, 0, PL_MSG_HELLO);
    assert_non_null(m);
    assert_true(m->u.hello.run_id == 0 && m->u.hello.incarnation == 0 && m->u.hello.manifest_digest == 0);
    assert_true(m->u.hello.nonce == 9 && m->u.hello.flags == 0);
    lrig_msg(r, 0, PL_LINK_CONTROL, lrig_welcome(0));
    lrig_expect_quiet(r);
    lrig_msg(r, 0, PL_LINK_CONTROL, (struct pl_msg){.type = PL_MSG_MANIFEST, .u.manifest = r->manifest});
    assert_true(lrig_find(r, PL_LEARN_FX_MANIFEST)->u.manifest.manifest->run_id == RIG_RUN);
    assert_int_equal(lrig_find(r, PL_LEARN_FX_CONNECT)->u.conn.shard, 1);
    lrig_opened(r, 1, PL_LINK_CONTROL);
    assert_true(lrig_sent(r, 1, PL_MSG_HELLO)->u.hello.incarnation == RIG_INCARNATION);
    assert_true(lrig_sent(r, 1, PL_MSG_HELLO)->u.hello.manifest_digest == RIG_DIGEST);
    lrig_msg(r, 1, PL_LINK_CONTROL, lrig_welcome(1));
    lrig_expect_quiet(r);
    assert_false(pl_learner_live(r->l, 0));
    lrig_ready(r);
    const struct pl_msg_join *home = &lrig_sent(r, 0, PL_MSG_JOIN)->u.join;
    const struct pl_msg_join *other = &lrig_sent(r, 1, PL_MSG_JOIN)->u.join;
    assert_int_equal(home->have.count, 2);
    assert_int_equal(other->have.count, 1);
    assert_true(pl_item_have_at(&home->have, 0).digest == 100 &&
                pl_item_have_at(&home->have, 1).digest == 102);
    assert_true(pl_item_have_at(&other->have, 0).digest == 101 &&
                pl_item_have_at(&other->have, 0).version == 0);
    assert_int_equal(lrig_count(r, PL_LEARN_FX_CONNECT), 2);
    assert_non_null(lrig_sent(r, 0, PL_MSG_WANT));
    assert_null(lrig_sent(r, 1, PL_MSG_WANT));
    assert_true(pl_learner_live(r->l, 0) && pl_learner_live(r->l, 1) && !pl_learner_live(r->l, 2));
    lrig_opened(r, 0, PL_LINK_BULK);
    assert_true(lrig_sent(r, 0, PL_MSG_ATTACH)->u.attach.incarnation == RIG_INCARNATION);
    assert_int_equal(lrig_sent(r, 0, PL_MSG_ATTACH)->u.attach.partial.count, 0);
    lrig_msg(r, 0, PL_LINK_BULK, plain(PL_MSG_ATTACHED));
    lrig_expect_quiet(r);
    uint64_t digest;
    assert_true(pl_learner_version(r->l, 2, &digest) == 0 && digest == 102);
}

static void reports_cumulative_counters_of_the_process(void **state)
{
    struct lrig *r = *state;
    lrig_live(r);
    lrig_trained(r, 10);
    lrig_trained(r, 20);
    for (uint32_t shard = 0; shard < 2; shard++) {
        const struct pl_msg_report *m = &lrig_sent(r, shard, PL_MSG_REPORT)->u.report;
        assert_true(m->steps == 2 && m->tokens == 30 && m->unit == PL_NONE64 && m->step_ns == PL_MS &&
                    m->flags == 0);
    }
    assert_true(pl_learner_steps(r->l) == 2 && pl_learner_tokens(r->l) == 30);
    lrig_closed(r, 0, PL_LINK_CONTROL);
    lrig_trained(r, 5);
    assert_null(lrig_sent(r, 0, PL_MSG_REPORT));
    assert_true(lrig_sent(r, 1, PL_MSG_REPORT)->u.report.tokens == 35);
    lrig_timeout(r);
    lrig_opened(r, 0, PL_LINK_CONTROL);
    const struct pl_msg_hello *h = &lrig_sent(r, 0, PL_MSG_HELLO)->u.hello;
    assert_true(h->steps == 3 && h->tokens == 35 && h->incarnation == RIG_INCARNATION &&
                h->run_id == RIG_RUN);
}

static void loses_control_and_comes_back(void **state)
{
    struct lrig *r = *state;
    lrig_live(r);
    lrig_closed(r, 1, PL_LINK_CONTROL);
    lrig_expect_disconnect(r, 1, PL_LINK_BULK, PL_REASON_LEAVING, "control connection has ended");
    assert_true(pl_learner_live(r->l, 0) && !pl_learner_live(r->l, 1));
    uint64_t wait = pl_learner_deadline(r->l) - r->now_ns;
    assert_true(wait >= 50 * PL_MS && wait <= 100 * PL_MS);
    lrig_closed(r, 1, PL_LINK_CONTROL); /* late */
    lrig_expect_quiet(r);
    lrig_closed(r, 1, PL_LINK_BULK);
    lrig_expect_quiet(r);
    lrig_timeout(r);
    assert_int_equal(lrig_find(r, PL_LEARN_FX_CONNECT)->u.conn.shard, 1);
    lrig_join(r, 1);
    lrig_opened(r, 1, PL_LINK_CONTROL); /* nobody asked */
    lrig_expect_quiet(r);
    lrig_opened(r, 1, PL_LINK_BULK);
    lrig_expect_quiet(r);
}

static void loses_bulk_alone(void **state)
{
    struct lrig *r = *state;
    lrig_live(r);
    lrig_closed(r, 0, PL_LINK_BULK);
    lrig_expect_quiet(r);
    assert_true(pl_learner_live(r->l, 0));
    lrig_timeout(r);
    assert_int_equal(lrig_find(r, PL_LEARN_FX_CONNECT)->u.conn.link, PL_LINK_BULK);
    lrig_opened(r, 0, PL_LINK_BULK);
    assert_non_null(lrig_sent(r, 0, PL_MSG_ATTACH));
    for (int i = 0; i < 8; i++) { /* PINGs are answered, ATTACHED does not come */
        lrig_timeout(r);
        if (lrig_find(r, PL_LEARN_FX_DISCONNECT) != NULL)
            break;
        lrig_msg(r, 0, PL_LINK_CONTROL, plain(PL_MSG_PONG));
        lrig_msg(r, 1, PL_LINK_CONTROL, plain(PL_MSG_PONG));
    }
    lrig_expect_disconnect(r, 0, PL_LINK_BULK, PL_REASON_LEASE_EXPIRED, "no ATTACHED came within 4000 ms");
    assert_true(pl_learner_live(r->l, 0));
}

/* A life of the home shard's control connection, from the dialling on. The pause after it. */
static uint64_t pause_after(struct lrig *r, uint64_t life_ns)
{
    lrig_timeout(r);
    assert_non_null(lrig_find(r, PL_LEARN_FX_CONNECT));
    lrig_join(r, 0);
    r->now_ns += life_ns;
    lrig_closed(r, 0, PL_LINK_CONTROL);
    return pl_learner_deadline(r->l) - r->now_ns;
}

/* So many diallings that fail. */
static void fail_dialling(struct lrig *r, uint32_t times)
{
    for (uint32_t i = 0; i < times; i++) {
        lrig_timeout(r);
        lrig_closed(r, 0, PL_LINK_CONTROL);
    }
}

static void backs_off_with_a_bound_and_resets_when_it_lasted(void **state)
{
    struct lrig *r = *state;
    lrig_start(r);
    for (uint32_t i = 0; i < 12; i++) {
        lrig_closed(r, 0, PL_LINK_CONTROL);
        uint64_t wait = pl_learner_deadline(r->l) - r->now_ns;
        uint64_t full = pl_min64(100 * PL_MS << pl_min32(i, 7), 2 * PL_SEC);
        assert_true(wait >= full / 2 && wait <= full);
        lrig_timeout(r);
        assert_non_null(lrig_find(r, PL_LEARN_FX_CONNECT));
    }
    lrig_opened(r, 0, PL_LINK_CONTROL);
    lrig_msg(r, 0, PL_LINK_CONTROL, lrig_welcome(0));
    lrig_msg(r, 0, PL_LINK_CONTROL, (struct pl_msg){.type = PL_MSG_MANIFEST, .u.manifest = r->manifest});
    lrig_ready(r);
    lrig_closed(r, 0, PL_LINK_CONTROL); /* was live for no time: nothing is taken back */
    assert_true(pl_learner_deadline(r->l) - r->now_ns >= 1 * PL_SEC);
    assert_true(pause_after(r, 900 * PL_MS) >= 1 * PL_SEC);
    assert_true(pause_after(r, 1 * PL_SEC) <= 100 * PL_MS);
}

/* A syncer that is away for a second every few: each time its learners look for it as if it were the first. */
static void short_outages_do_not_add_up(void **state)
{
    struct lrig *r = *state;
    lrig_home_live(r);
    r->now_ns += 7 * PL_SEC;
    lrig_closed(r, 0, PL_LINK_CONTROL);
    for (uint32_t i = 0; i < 10; i++) {
        fail_dialling(r, 6);
        assert_true(pl_learner_deadline(r->l) - r->now_ns > 100 * PL_MS);
        assert_true(pause_after(r, 2 * PL_SEC) <= 100 * PL_MS);
    }
}

static void a_link_that_breaks_at_once_is_dialled_ever_more_seldom(void **state)
{
    struct lrig *r = *state;
    lrig_home_live(r);
    lrig_closed(r, 0, PL_LINK_CONTROL);
    for (uint32_t i = 0; i < 8; i++)
        (void)pause_after(r, 900 * PL_MS);
    assert_true(pl_learner_deadline(r->l) - r->now_ns >= 1 * PL_SEC);
}

/* A syncer that drops learners, because it has too much to do for instance, is left in peace. */
static void a_syncer_that_hangs_up_is_dialled_ever_more_seldom(void **state)
{
    struct lrig *r = *state;
    lrig_home_live(r);
    for (uint32_t i = 0; i < 9; i++) {
        r->now_ns += 9 * PL_SEC;
        lrig_msg(r, 0, PL_LINK_CONTROL,
                 (struct pl_msg){.type = PL_MSG_CLOSE, .u.close.code = PL_REASON_LEASE_EXPIRED});
        uint64_t wait = pl_learner_deadline(r->l) - r->now_ns;
        uint64_t full = pl_min64(100 * PL_MS << pl_min32(i, 7), 10 * PL_SEC);
        assert_true(wait >= full / 2 && wait <= full);
        lrig_timeout(r);
        lrig_join(r, 0);
    }
}

/* However long the line was down before, and the other way round: each has its own bound. */
static void a_break_waits_less_than_a_hang_up(void **state)
{
    struct lrig *r = *state;
    lrig_home_live(r);
    lrig_closed(r, 0, PL_LINK_CONTROL);
    fail_dialling(r, 10);
    assert_true(pl_learner_deadline(r->l) - r->now_ns <= 2 * PL_SEC);
    lrig_timeout(r);
    lrig_join(r, 0);
    lrig_msg(r, 0, PL_LINK_CONTROL,
             (struct pl_msg){.type = PL_MSG_CLOSE, .u.close.code = PL_REASON_LEASE_EXPIRED});
    assert_true(pl_learner_deadline(r->l) - r->now_ns >= 5 * PL_SEC);
    fail_dialling(r, 1);
    assert_true(pl_learner_deadline(r->l) - r->now_ns <= 2 * PL_SEC);
}

static void reconnects_between_manifest_and_ready(void **state)
{
    struct lrig *r = *state;
    lrig_start(r);
    lrig_opened(r, 0, PL_LINK_CONTROL);
    lrig_msg(r, 0, PL_LINK_CONTROL, lrig_welcome(0));
    lrig_msg(r, 0, PL_LINK_CONTROL, (struct pl_msg){.type = PL_MSG_MANIFEST, .u.manifest = r->manifest});
    lrig_closed(r, 0, PL_LINK_CONTROL);
    lrig_timeout(r);
    lrig_opened(r, 0, PL_LINK_CONTROL);
    lrig_msg(r, 0, PL_LINK_CONTROL, lrig_welcome(0));
    lrig_expect_quiet(r);
    lrig_timeout(r); /* building takes long: the syncer hears from us */
    assert_non_null(lrig_sent(r, 0, PL_MSG_PING));
    lrig_msg(r, 0, PL_LINK_CONTROL, plain(PL_MSG_MANIFEST));
    lrig_expect_disconnect(r, 0, PL_LINK_CONTROL, PL_REASON_WRONG_STATE, "expected was CLOCK or FINISH");
    lrig_timeout(r);
    lrig_opened(r, 0, PL_LINK_CONTROL);
    lrig_msg(r, 0, PL_LINK_CONTROL, lrig_welcome(0));
    lrig_ready(r);
    assert_non_null(lrig_sent(r, 0, PL_MSG_JOIN));
}

static void keeps_a_session_alive(void **state)
{
    struct lrig *r = *state;
    lrig_home_live(r);
    uint64_t begin = r->now_ns;
    lrig_timeout(r);
    assert_true(r->now_ns == begin + PL_SEC);
    assert_non_null(lrig_sent(r, 0, PL_MSG_PING));
    lrig_msg(r, 0, PL_LINK_CONTROL, (struct pl_msg){.type = PL_MSG_PING, .u.ping = {.nonce = 5}});
    assert_true(lrig_sent(r, 0, PL_MSG_PONG)->u.pong.nonce == 5);
    lrig_msg(r, 0, PL_LINK_BULK, (struct pl_msg){.type = PL_MSG_PING, .u.ping = {.nonce = 6}});
    assert_true(lrig_sent(r, 0, PL_MSG_PONG)->u.pong.nonce == 6);
    assert_int_equal(lrig_find(r, PL_LEARN_FX_SEND)->u.conn.link, PL_LINK_BULK);
}

static void gives_up_a_silent_shard(void **state)
{
    struct lrig *r = *state;
    lrig_home_live(r);
    uint64_t heard = r->now_ns;
    uint32_t pings = 0;
    while (lrig_find(r, PL_LEARN_FX_DISCONNECT) == NULL) {
        lrig_timeout(r);
        pings += lrig_sent(r, 0, PL_MSG_PING) != NULL;
    }
    lrig_expect_disconnect(r, 0, PL_LINK_CONTROL, PL_REASON_LEASE_EXPIRED, "nothing was heard for 4000 ms");
    assert_true(r->now_ns == heard + 4 * PL_SEC);
    assert_int_equal(pings, 3);
}

static void pings_a_shard_that_only_listens(void **state)
{
    struct lrig *r = *state;
    lrig_home_live(r);
    uint32_t pings = 0;
    for (int i = 0; i < 39; i++) { /* reports go out all the time; nothing comes back */
        r->now_ns += 100 * PL_MS;
        lrig_trained(r, 1);
        if (pl_learner_deadline(r->l) > r->now_ns)
            continue;
        lrig_event(r, (struct pl_learn_event){.kind = PL_LEARN_EV_TIMEOUT});
        pings += lrig_sent(r, 0, PL_MSG_PING) != NULL;
    }
    assert_int_equal(pings, 3);
    assert_true(pl_learner_live(r->l, 0));
    lrig_timeout(r);
    lrig_expect_disconnect(r, 0, PL_LINK_CONTROL, PL_REASON_LEASE_EXPIRED, "nothing was heard");
}

static void gives_up_a_shard_that_does_not_welcome(void **state)
{
    struct lrig *r = *state;
    lrig_start(r);
    lrig_opened(r, 0, PL_LINK_CONTROL);
    lrig_timeout(r);
    lrig_expect_disconnect(r, 0, PL_LINK_CONTROL, PL_REASON_LEASE_EXPIRED,
                           "no WELCOME came within 10 seconds");
}

static void takes_work_units(void **state)
{
    struct lrig *r = *state;
    lrig_live(r);
    struct pl_msg lease = {.type = PL_MSG_LEASE, .u.lease = {.unit = 3, .cursor = 100}};
    lrig_msg(r, 0, PL_LINK_CONTROL, lease);
    assert_true(lrig_find(r, PL_LEARN_FX_UNIT)->u.unit.unit == 3 &&
                lrig_find(r, PL_LEARN_FX_UNIT)->u.unit.cursor == 100);
    assert_non_null(lrig_sent(r, 0, PL_MSG_WANT));
    lrig_msg(r, 0, PL_LINK_CONTROL, lease); /* told twice */
    lrig_expect_quiet(r);
    lease.u.lease.unit = 4;
    lease.u.lease.cursor = 0;
    lrig_msg(r, 0, PL_LINK_CONTROL, lease);
    assert_null(lrig_sent(r, 0, PL_MSG_WANT));
    lease.u.lease.unit = 5;
    lrig_msg(r, 0, PL_LINK_CONTROL, lease); /* more than asked for */
    lrig_expect_quiet(r);
    struct pl_learn_event step = {.kind = PL_LEARN_EV_STEP,
                                  .u.step = {.tokens = 500, .unit = 3, .cursor = 600}};
    lrig_event(r, step);
    assert_true(lrig_sent(r, 0, PL_MSG_REPORT)->u.report.cursor == 600);
    assert_null(lrig_sent(r, 0, PL_MSG_WANT));
    lrig_closed(r, 0, PL_LINK_CONTROL);
    lrig_timeout(r);
    lrig_opened(r, 0, PL_LINK_CONTROL);
    lrig_msg(r, 0, PL_LINK_CONTROL, lrig_welcome(0));
    const struct pl_msg_join *join = &lrig_sent(r, 0, PL_MSG_JOIN)->u.join;
    assert_int_equal(join->units.count, 2);
    assert_true(pl_item_held_unit_at(&join->units, 0).unit == 3 &&
                pl_item_held_unit_at(&join->units, 0).cursor == 600);
    assert_true(pl_item_held_unit_at(&join->units, 1).unit == 4);
    step.u.step.cursor = 1000; /* used up */
    lrig_event(r, step);
    assert_non_null(lrig_sent(r, 0, PL_MSG_WANT));
    lease.u.lease.cursor = 1000;
    lrig_msg(r, 0, PL_LINK_CONTROL, lease);
    lrig_expect_disconnect(r, 0, PL_LINK_CONTROL, PL_REASON_BAD_MESSAGE,
                           "LEASE.cursor is 1000, below unit_tokens 1000");
}

static void takes_no_units_with_private_data(void **state)
{
    struct lrig *r = *state;
    lrig_release(r);
    struct pl_learn_options o = {.nonce = 1, .fragments_max = 3, .local_data = true};
    lrig_init(r, &o);
    lrig_live(r);
    lrig_trained(r, 1);
    assert_null(lrig_sent(r, 0, PL_MSG_WANT));
    assert_int_equal(lrig_sent(r, 0, PL_MSG_REPORT)->u.report.flags, 1);
    lrig_msg(r, 0, PL_LINK_CONTROL, plain(PL_MSG_LEASE));
    lrig_expect_disconnect(r, 0, PL_LINK_CONTROL, PL_REASON_WRONG_STATE, "LEASE came");
}

static void follows_the_clock_forwards_only(void **state)
{
    struct lrig *r = *state;
    lrig_live(r);
    struct pl_msg clock = {.type = PL_MSG_CLOCK, .u.clock = {.clock_tokens = 500, .rate = 7}};
    lrig_msg(r, 0, PL_LINK_CONTROL, clock);
    assert_true(lrig_find(r, PL_LEARN_FX_CLOCK)->u.clock.tokens == 500 &&
                lrig_find(r, PL_LEARN_FX_CLOCK)->u.clock.rate == 7);
    clock.u.clock.clock_tokens = 499;
    lrig_msg(r, 0, PL_LINK_CONTROL, clock);
    lrig_expect_quiet(r);
    lrig_closed(r, 0, PL_LINK_CONTROL);
    lrig_timeout(r);
    lrig_opened(r, 0, PL_LINK_CONTROL);
    struct pl_msg welcome = lrig_welcome(0);
    welcome.u.welcome.clock_tokens = 900;
    lrig_msg(r, 0, PL_LINK_CONTROL, welcome);
    assert_true(lrig_find(r, PL_LEARN_FX_CLOCK)->u.clock.tokens == 900);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(joins_from_nothing),
        TEST(reports_cumulative_counters_of_the_process),
        TEST(loses_control_and_comes_back),
        TEST(loses_bulk_alone),
        TEST(backs_off_with_a_bound_and_resets_when_it_lasted),
        TEST(short_outages_do_not_add_up),
        TEST(a_link_that_breaks_at_once_is_dialled_ever_more_seldom),
        TEST(a_syncer_that_hangs_up_is_dialled_ever_more_seldom),
        TEST(a_break_waits_less_than_a_hang_up),
        TEST(reconnects_between_manifest_and_ready),
        TEST(keeps_a_session_alive),
        TEST(gives_up_a_silent_shard),
        TEST(pings_a_shard_that_only_listens),
        TEST(gives_up_a_shard_that_does_not_welcome),
        TEST(takes_work_units),
        TEST(takes_no_units_with_private_data),
        TEST(follows_the_clock_forwards_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
