/* The learner's ways out, and its answers to whatever does not belong where it comes. */
#include "learner_rig.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

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

static struct pl_msg closing(uint8_t type, uint32_t code)
{
    struct pl_blob text = {.data = (const uint8_t *)"because", .len = 7};
    if (type == PL_MSG_REFUSE)
        return (struct pl_msg){.type = type, .u.refuse = {.code = code, .text = text}};
    return (struct pl_msg){.type = type, .u.close = {.code = code, .text = text}};
}

static struct pl_msg plain(uint8_t type)
{
    return (struct pl_msg){.type = type};
}

static void finishes_and_is_done_with_every_shard(void **state)
{
    struct lrig *r = *state;
    lrig_live(r);
    lrig_msg(r, 0, PL_LINK_CONTROL, plain(PL_MSG_FINISH));
    assert_int_equal(lrig_count(r, PL_LEARN_FX_STOP), 1);
    assert_int_equal(lrig_sent(r, 0, PL_MSG_REPORT)->u.report.flags, 2);
    assert_int_equal(lrig_sent(r, 1, PL_MSG_REPORT)->u.report.flags, 2);
    lrig_msg(r, 0, PL_LINK_CONTROL, plain(PL_MSG_FINISH));
    lrig_expect_quiet(r);
    lrig_closed(r, 1, PL_LINK_CONTROL);
    lrig_timeout(r);
    lrig_opened(r, 1, PL_LINK_CONTROL);
    assert_int_equal(lrig_sent(r, 1, PL_MSG_HELLO)->u.hello.flags, 2);
    lrig_msg(r, 1, PL_LINK_CONTROL, lrig_welcome(1));
    lrig_msg(r, 0, PL_LINK_CONTROL, closing(PL_MSG_CLOSE, PL_REASON_DONE));
    assert_int_equal(lrig_count(r, PL_LEARN_FX_DISCONNECT), 2);
    assert_null(lrig_find(r, PL_LEARN_FX_DONE));
    lrig_closed(r, 0, PL_LINK_CONTROL); /* late */
    lrig_expect_quiet(r);
    lrig_msg(r, 1, PL_LINK_CONTROL, closing(PL_MSG_CLOSE, PL_REASON_DONE));
    assert_string_equal(lrig_find(r, PL_LEARN_FX_DONE)->u.conn.text, "the run is complete");
    assert_true(pl_learner_deadline(r->l) == PL_NEVER);
    lrig_trained(r, 1); /* nothing matters any more */
    lrig_expect_quiet(r);
}

static void is_told_of_the_end_by_welcome(void **state)
{
    struct lrig *r = *state;
    lrig_start(r);
    lrig_opened(r, 0, PL_LINK_CONTROL);
    struct pl_msg welcome = lrig_welcome(0);
    welcome.u.welcome.phase = 1;
    lrig_msg(r, 0, PL_LINK_CONTROL, welcome);
    assert_non_null(lrig_find(r, PL_LEARN_FX_STOP));
    lrig_msg(r, 0, PL_LINK_CONTROL, closing(PL_MSG_CLOSE, PL_REASON_DONE));
    assert_non_null(lrig_find(r, PL_LEARN_FX_DONE));
}

static void quits_politely(void **state)
{
    struct lrig *r = *state;
    lrig_home_live(r);
    lrig_event(r, (struct pl_learn_event){.kind = PL_LEARN_EV_QUIT});
    assert_int_equal(lrig_count(r, PL_LEARN_FX_DISCONNECT), 3); /* two links of home, one dialling */
    lrig_expect_disconnect(r, 0, PL_LINK_BULK, PL_REASON_LEAVING, "");
    assert_int_equal(r->out.fx[r->out.count - 1].kind, PL_LEARN_FX_DONE);
    assert_true(pl_learner_deadline(r->l) == PL_NEVER);
}

static void leaves_when_fenced_or_of_another_run(void **state)
{
    struct lrig *r = *state;
    static const struct {
        uint8_t type;
        enum pl_link link;
        enum pl_reason code;
        const char *words;
    } cases[] = {
        {PL_MSG_REFUSE, PL_LINK_CONTROL, PL_REASON_FENCED,
         "a newer process of this learner has taken over (because)"},
        {PL_MSG_REFUSE, PL_LINK_CONTROL, PL_REASON_WRONG_RUN, "another run"},
        {PL_MSG_CLOSE, PL_LINK_CONTROL, PL_REASON_FENCED, "shard 0: a newer process"},
        {PL_MSG_CLOSE, PL_LINK_BULK, PL_REASON_FENCED, "newer process"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        lrig_release(r);
        lrig_init(r, NULL);
        if (cases[i].type == PL_MSG_CLOSE) {
            lrig_live(r);
        } else {
            lrig_start(r);
            lrig_opened(r, 0, PL_LINK_CONTROL);
        }
        lrig_msg(r, 0, cases[i].link, closing(cases[i].type, cases[i].code));
        lrig_expect_fatal(r, cases[i].words);
    }
    lrig_release(r);
    lrig_init(r, NULL);
    lrig_live(r);
    struct pl_msg silent = {.type = PL_MSG_CLOSE, .u.close = {.code = PL_REASON_FENCED}};
    lrig_msg(r, 1, PL_LINK_CONTROL, silent);
    lrig_expect_fatal(r, "shard 1: a newer process");
}

/* A sentence as long as one may be does not end within a word. */
static void a_long_reason_ends_with_a_word(void **state)
{
    struct lrig *r = *state;
    char text[PL_TEXT_MAX + 1], expected[PL_TEXT_MAX + 1];
    struct pl_msg msg = closing(PL_MSG_CLOSE, PL_REASON_BAD_CONTENT);
    memset(text, 'x', sizeof text);
    for (unsigned i = 9; i < PL_TEXT_MAX; i += 10)
        text[i] = ' ';
    msg.u.close.text = (struct pl_blob){.data = (const uint8_t *)text, .len = PL_TEXT_MAX};
    lrig_live(r);
    lrig_msg(r, 1, PL_LINK_CONTROL, msg);
    (void)snprintf(expected, sizeof expected, "the shard closed: BAD_CONTENT (%.159s ...)", text);
    lrig_expect_disconnect(r, 1, PL_LINK_CONTROL, PL_REASON_LEAVING, expected);
    memset(text, 'y', sizeof text);
    for (unsigned i = 1; i + 1 < PL_TEXT_MAX; i += 2) /* nor is one word cut within a character */
        memcpy(text + i, "\xc3\xa9", 2);
    msg.u.close.code = PL_REASON_FENCED;
    lrig_msg(r, 0, PL_LINK_CONTROL, msg);
    lrig_expect_fatal(r, "\xc3\xa9 ...)");
}

static void tries_again_when_refused_or_closed_for_now(void **state)
{
    struct lrig *r = *state;
    lrig_start(r);
    lrig_opened(r, 0, PL_LINK_CONTROL);
    lrig_msg(r, 0, PL_LINK_CONTROL, closing(PL_MSG_REFUSE, PL_REASON_FULL));
    lrig_expect_disconnect(r, 0, PL_LINK_CONTROL, PL_REASON_LEAVING, "the shard closed: FULL (because)");
    lrig_timeout(r);
    assert_non_null(lrig_find(r, PL_LEARN_FX_CONNECT));
    lrig_release(r);
    lrig_init(r, NULL);
    lrig_live(r);
    lrig_msg(r, 1, PL_LINK_BULK, closing(PL_MSG_CLOSE, PL_REASON_DONE));
    lrig_expect_disconnect(r, 1, PL_LINK_BULK, PL_REASON_LEAVING, "DONE");
    assert_true(pl_learner_live(r->l, 1));
    lrig_msg(r, 1, PL_LINK_CONTROL, closing(PL_MSG_CLOSE, PL_REASON_LEASE_EXPIRED));
    lrig_expect_disconnect(r, 1, PL_LINK_CONTROL, PL_REASON_LEAVING, "LEASE_EXPIRED");
    lrig_msg(r, 1, PL_LINK_CONTROL, plain(PL_MSG_FINISH)); /* late */
    lrig_expect_quiet(r);
}

static void refuses_a_wrong_welcome(void **state)
{
    struct lrig *r = *state;
    struct pl_msg m[6];
    static const char *const words[6] = {"WELCOME.shard is 1, dialled was shard 0",
                                         "WELCOME.run_id is 0",
                                         "WELCOME.incarnation is 0",
                                         "WELCOME.manifest_digest is 0",
                                         "WELCOME.heartbeat_ns is 0",
                                         "WELCOME.incarnation is 5, this process"};
    for (int i = 0; i < 6; i++)
        m[i] = lrig_welcome(0);
    m[0].u.welcome.shard = 1;
    m[1].u.welcome.run_id = 0;
    m[2].u.welcome.incarnation = 0;
    m[3].u.welcome.manifest_digest = 0;
    m[4].u.welcome.heartbeat_ns = 0;
    m[5].u.welcome.incarnation = 5;
    lrig_home_live(r);
    for (int i = 0; i < 6; i++) {
        lrig_closed(r, 0, PL_LINK_CONTROL);
        lrig_timeout(r);
        lrig_opened(r, 0, PL_LINK_CONTROL);
        lrig_msg(r, 0, PL_LINK_CONTROL, m[i]);
        lrig_expect_disconnect(r, 0, PL_LINK_CONTROL, PL_REASON_BAD_MESSAGE, words[i]);
        lrig_timeout(r);
    }
}

static void leaves_when_run_or_manifest_changed(void **state)
{
    struct lrig *r = *state;
    lrig_home_live(r);
    lrig_opened(r, 1, PL_LINK_CONTROL);
    struct pl_msg m = lrig_welcome(1);
    m.u.welcome.manifest_digest++;
    lrig_msg(r, 1, PL_LINK_CONTROL, m);
    lrig_expect_fatal(r, "the run's manifest changed: shard 1 has 4445, this learner 4444");
    assert_int_equal(lrig_count(r, PL_LEARN_FX_DISCONNECT), 3);
    lrig_release(r);
    lrig_init(r, NULL);
    lrig_home_live(r);
    lrig_opened(r, 1, PL_LINK_CONTROL);
    m.u.welcome.run_id = 0x78;
    lrig_msg(r, 1, PL_LINK_CONTROL, m);
    lrig_expect_fatal(r, "shard 1 belongs to run 78, this learner to run 77");
}

static void leaves_when_the_manifest_is_wrong(void **state)
{
    struct lrig *r = *state;
    static const char *const words[3] = {
        "MANIFEST.quorum is 0", "MANIFEST.run_id is 78, WELCOME said 77",
        "MANIFEST.fragments has 3 entries, this learner can take 2: use the same version of pelago"};
    for (int i = 0; i < 3; i++) {
        lrig_release(r);
        struct pl_learn_options o = {.nonce = 1, .fragments_max = i == 2 ? 2 : 3};
        lrig_init(r, &o);
        r->manifest.quorum = i == 0 ? 0 : 1;
        r->manifest.run_id = i == 1 ? 0x78 : RIG_RUN;
        lrig_start(r);
        lrig_opened(r, 0, PL_LINK_CONTROL);
        lrig_msg(r, 0, PL_LINK_CONTROL, lrig_welcome(0));
        lrig_msg(r, 0, PL_LINK_CONTROL, (struct pl_msg){.type = PL_MSG_MANIFEST, .u.manifest = r->manifest});
        lrig_expect_disconnect(r, 0, PL_LINK_CONTROL, PL_REASON_BAD_MESSAGE, words[i]);
        lrig_expect_fatal(r, words[i]);
    }
}

/* Every message in every state it does not belong to. */
static void answers_messages_out_of_place(void **state)
{
    struct lrig *r = *state;
    enum { GREETING, JOINING, LIVE, LIVE_OTHER, ATTACHING, UP, PLACES };
    static const char *const words[PLACES] = {"WELCOME or REFUSE",
                                              "MANIFEST",
                                              "CLOCK, PULL, DROP, LEASE or FINISH",
                                              "CLOCK, PULL, DROP, LEASE or FINISH",
                                              "ATTACHED",
                                              "UPDATE or DATA"};
    static const uint8_t fine[PLACES][8] = {
        {PL_MSG_WELCOME, PL_MSG_REFUSE, PL_MSG_PING, PL_MSG_PONG, PL_MSG_CLOSE},
        {PL_MSG_MANIFEST, PL_MSG_CLOCK, PL_MSG_FINISH, PL_MSG_PING, PL_MSG_PONG, PL_MSG_CLOSE},
        {PL_MSG_CLOCK, PL_MSG_FINISH, PL_MSG_PULL, PL_MSG_DROP, PL_MSG_LEASE, PL_MSG_PING, PL_MSG_PONG,
         PL_MSG_CLOSE},
        {PL_MSG_CLOCK, PL_MSG_FINISH, PL_MSG_PULL, PL_MSG_DROP, PL_MSG_PING, PL_MSG_PONG, PL_MSG_CLOSE},
        {PL_MSG_ATTACHED, PL_MSG_PING, PL_MSG_PONG, PL_MSG_CLOSE},
        {PL_MSG_UPDATE, PL_MSG_DATA, PL_MSG_PING, PL_MSG_PONG, PL_MSG_CLOSE}};
    for (int place = 0; place < PLACES; place++) {
        for (unsigned type = 0; type <= PL_MSG_CLOSE + 1; type++) {
            if (type != 0 && memchr(fine[place], (int)type, sizeof fine[place]) != NULL)
                continue;
            lrig_release(r);
            lrig_init(r, NULL);
            if (place <= JOINING) {
                lrig_start(r);
                lrig_opened(r, 0, PL_LINK_CONTROL);
                if (place == JOINING)
                    lrig_msg(r, 0, PL_LINK_CONTROL, lrig_welcome(0));
            } else {
                lrig_live(r);
            }
            if (place == ATTACHING) {
                lrig_closed(r, 0, PL_LINK_BULK);
                lrig_timeout(r);
                lrig_opened(r, 0, PL_LINK_BULK);
            }
            enum pl_link link = place >= ATTACHING ? PL_LINK_BULK : PL_LINK_CONTROL;
            lrig_msg(r, place == LIVE_OTHER, link, plain((uint8_t)type));
            lrig_expect_disconnect(r, place == LIVE_OTHER, link, PL_REASON_WRONG_STATE, words[place]);
        }
    }
}

static void answers_bytes_that_are_no_message(void **state)
{
    struct lrig *r = *state;
    lrig_live(r);
    struct pl_error err = {.status = PELAGO_PROTO, .text = "PULL.round is cut short"};
    struct pl_learn_event bad = {.kind = PL_LEARN_EV_BAD,
                                 .u.conn = {.shard = 0, .link = PL_LINK_BULK, .error = &err}};
    lrig_event(r, bad);
    lrig_expect_disconnect(r, 0, PL_LINK_BULK, PL_REASON_BAD_FRAME, "PULL.round is cut short");
    assert_true(pl_learner_live(r->l, 0));
    lrig_event(r, bad); /* late */
    lrig_expect_quiet(r);
    bad.u.conn.link = PL_LINK_CONTROL;
    lrig_event(r, bad);
    lrig_expect_disconnect(r, 0, PL_LINK_CONTROL, PL_REASON_BAD_FRAME, "cut short");
    assert_false(pl_learner_live(r->l, 0));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(finishes_and_is_done_with_every_shard),
        TEST(is_told_of_the_end_by_welcome),
        TEST(quits_politely),
        TEST(leaves_when_fenced_or_of_another_run),
        TEST(a_long_reason_ends_with_a_word),
        TEST(tries_again_when_refused_or_closed_for_now),
        TEST(refuses_a_wrong_welcome),
        TEST(leaves_when_run_or_manifest_changed),
        TEST(leaves_when_the_manifest_is_wrong),
        TEST(answers_messages_out_of_place),
        TEST(answers_bytes_that_are_no_message),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
