/* tests/unit/test_host_door.c - the door from both sides, over real sockets: tokens, certificates, questions. */
#include "syncer_rig.h"

#include "base/check.h"
#include "host/door.h"
#include "host/door_keeper.h"
#include "os/clock.h"
#include "train/json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <string.h>

static struct syncer_rig rig;

enum { CALLS = 4 };
static struct rig_call calls[CALLS];

/* One blocking call of host/door.h, made beside the loop. */
struct visit {
    struct pl_token token;
    enum pl_role role;
    uint32_t shard;
    struct pl_credentials own;
    struct pl_question q;
    struct pl_buf answer;
    enum pelago_status status;
    struct pl_error err;
    int64_t skew_s;
};

static void do_enrol(void *user)
{
    struct visit *v = user;
    v->status = pl_door_enrol(&rig.run.alloc, &v->token, v->role, v->shard, 10 * PL_SEC, &v->own, &v->skew_s,
                              &v->err);
}

static void do_renew(void *user)
{
    struct visit *v = user;
    v->status = pl_door_renew(&rig.run.alloc, rig.listen, 10 * PL_SEC, &v->own, &v->err);
}

static void do_ask(void *user)
{
    struct visit *v = user;
    v->answer.len = 0;
    v->status = pl_door_ask(&rig.run.alloc, rig.listen, &v->own, &v->q, 10 * PL_SEC, &v->answer, &v->err);
}

static void invite(enum pl_role role, uint64_t uses, uint64_t seconds, struct pl_token *out)
{
    char text[PL_TOKEN_TEXT_MAX];
    struct pl_error err = {.text = ""};
    if (pl_syncer_host_invite(rig.host, role, uses, seconds, text, &err) != PELAGO_OK)
        fail_msg("%s", err.text);
    assert_int_equal(pl_token_parse(text, out, &err), PELAGO_OK);
    assert_string_equal(out->address, rig.listen);
}

static void open_rig(void)
{
    syncer_rig_init(&rig, 1);
    rig.run.settings.shards = 2;
    syncer_rig_create(&rig);
    syncer_rig_start(&rig);
}

static void expect_refusal(struct visit *v, const char *part)
{
    assert_int_equal(v->status, PELAGO_DENIED);
    if (strstr(v->err.text, part) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", v->err.text, part);
}

static void a_token_makes_as_many_identities_as_it_says(void **state)
{
    (void)state;
    struct visit v = {.role = PL_ROLE_LEARNER};
    open_rig();
    invite(PL_ROLE_LEARNER, 2, 0, &v.token);
    for (uint64_t i = 1; i <= 2; i++) {
        syncer_rig_beside(&rig, do_enrol, &v);
        if (v.status != PELAGO_OK)
            fail_msg("%s", v.err.text);
        assert_int_equal(v.own.identity, i);
        assert_int_equal(v.own.role, PL_ROLE_LEARNER);
        assert_int_equal(v.own.run_id, rig.run.settings.run_id);
        assert_true(v.skew_s >= -2 && v.skew_s <= 2);
        assert_true(pl_pki_seconds_left(&v.own) > 80000 && pl_pki_seconds_left(&v.own) <= 86400);
    }
    syncer_rig_beside(&rig, do_enrol, &v);
    expect_refusal(&v, "used up");
    assert_true(syncer_rig_logged(&rig, "used up"));
    assert_int_equal(syncer_rig_count(&rig, "door.identities"), 2);
    syncer_rig_release(&rig);
}

/* The answer was lost on its way: the same key is the same identity, and nobody else's use is spent. */
static void an_attempt_may_be_repeated(void **state)
{
    (void)state;
    struct visit v = {.role = PL_ROLE_LEARNER}, other = {.role = PL_ROLE_LEARNER};
    open_rig();
    invite(PL_ROLE_LEARNER, 1, 0, &v.token);
    other.token = v.token;
    for (unsigned i = 0; i < 3; i++) {
        syncer_rig_beside(&rig, do_enrol, &v);
        assert_int_equal(v.status, PELAGO_OK);
        assert_int_equal(v.own.identity, 1);
        v.own.role = PL_ROLE_NONE; /* as if it had not heard */
        v.role = PL_ROLE_OPERATOR; /* nor does it become somebody else by that */
        if (i == 1) {
            syncer_rig_stop(&rig); /* nor by the syncer's death */
            syncer_rig_start(&rig);
        }
    }
    syncer_rig_beside(&rig, do_enrol, &other);
    expect_refusal(&other, "used up");
    assert_int_equal(syncer_rig_count(&rig, "door.identities"), 1);
    syncer_rig_release(&rig);
}

/* Identities and uses are counted on disk: a restart gives none twice. */
static void uses_and_identities_survive_a_restart(void **state)
{
    (void)state;
    struct visit v = {.role = PL_ROLE_LEARNER}, once = {.role = PL_ROLE_LEARNER};
    open_rig();
    invite(PL_ROLE_LEARNER, 3, 0, &v.token);
    invite(PL_ROLE_LEARNER, 1, 0, &once.token);
    syncer_rig_beside(&rig, do_enrol, &once);
    assert_int_equal(once.status, PELAGO_OK);
    for (uint64_t i = 2; i <= 4; i++) {
        syncer_rig_stop(&rig);
        syncer_rig_start(&rig);
        syncer_rig_beside(&rig, do_enrol, &v);
        assert_int_equal(v.status, PELAGO_OK);
        assert_int_equal(v.own.identity, i);
    }
    syncer_rig_beside(&rig, do_enrol, &once);
    expect_refusal(&once, "used up");
    syncer_rig_release(&rig);
}

static void wrong_expired_and_foreign_tokens_each_have_their_sentence(void **state)
{
    (void)state;
    struct visit v = {.role = PL_ROLE_LEARNER}, shard = {.role = PL_ROLE_LEARNER};
    open_rig();
    invite(PL_ROLE_LEARNER, 5, 0, &v.token);
    v.token.secret[3] ^= 1;
    syncer_rig_beside(&rig, do_enrol, &v);
    expect_refusal(&v, "wrong");
    v.token.secret[3] ^= 1;
    v.token.number += 100;
    syncer_rig_beside(&rig, do_enrol, &v);
    expect_refusal(&v, "no such invitation");
    v.token.number -= 100;
    v.token.fingerprint[0] ^= 1; /* another run's syncer: we notice, it does not matter what it says */
    syncer_rig_beside(&rig, do_enrol, &v);
    assert_int_not_equal(v.status, PELAGO_OK);
    v.token.fingerprint[0] ^= 1;
    invite(PL_ROLE_SHARD, 1, 0, &shard.token);
    syncer_rig_beside(&rig, do_enrol, &shard);
    expect_refusal(&shard, "for shards");
    shard.role = PL_ROLE_SHARD;
    shard.shard = 2;
    syncer_rig_beside(&rig, do_enrol, &shard);
    expect_refusal(&shard, "no such shard");
    shard.shard = 1;
    syncer_rig_beside(&rig, do_enrol, &shard);
    assert_int_equal(shard.status, PELAGO_OK);
    assert_int_equal(shard.own.shard, 1);
    syncer_rig_beside(&rig, do_enrol, &v);
    assert_int_equal(v.status, PELAGO_OK);
    syncer_rig_release(&rig);
}

/* Ten wrong tokens from one address, and even a right one has to wait. */
static void who_guesses_is_slowed_down(void **state)
{
    (void)state;
    struct visit v = {.role = PL_ROLE_LEARNER};
    open_rig();
    invite(PL_ROLE_LEARNER, 5, 0, &v.token);
    for (int i = 0; i < PL_DOOR_FAILURES_MAX; i++) {
        v.token.secret[0]++;
        syncer_rig_beside(&rig, do_enrol, &v);
        expect_refusal(&v, "wrong");
    }
    v.token.secret[0] = (uint8_t)(v.token.secret[0] - PL_DOOR_FAILURES_MAX);
    syncer_rig_beside(&rig, do_enrol, &v);
    expect_refusal(&v, "try again in a minute");
    assert_int_equal(syncer_rig_count(&rig, "door.enrolled"), 0);
    syncer_rig_release(&rig);
}

static void a_certificate_is_renewed_by_whoever_holds_it(void **state)
{
    (void)state;
    struct visit v = {.role = PL_ROLE_LEARNER}, nobody = {.role = PL_ROLE_LEARNER};
    open_rig();
    invite(PL_ROLE_LEARNER, 1, 0, &v.token);
    syncer_rig_beside(&rig, do_enrol, &v);
    assert_int_equal(v.status, PELAGO_OK);
    struct pl_credentials before = v.own;
    syncer_rig_beside(&rig, do_renew, &v);
    assert_int_equal(v.status, PELAGO_OK);
    assert_int_equal(v.own.identity, before.identity);
    assert_memory_equal(v.own.key, before.key, before.key_len);
    nobody.own = before;
    nobody.own.certificate_len = 0;
    syncer_rig_beside(&rig, do_renew, &nobody);
    expect_refusal(&nobody, "without one, enrol");
    syncer_rig_release(&rig);
}

/* A learner that was away for longer than its certificate lasts: nothing but the door, and there a new one. */
static void an_expired_certificate_can_only_be_renewed(void **state)
{
    (void)state;
    struct visit v = {.role = PL_ROLE_LEARNER};
    struct pl_credentials ca;
    struct pl_posix_dir *dir;
    struct pl_error err;
    uint8_t request[PL_CERTIFICATE_BYTES_MAX], issued[PL_CERTIFICATE_BYTES_MAX];
    uint32_t request_len, issued_len;
    open_rig();
    pl_buf_init(&v.answer, &rig.run.alloc, 1 << 20);
    invite(PL_ROLE_LEARNER, 1, 0, &v.token);
    syncer_rig_beside(&rig, do_enrol, &v);
    assert_int_equal(v.status, PELAGO_OK);
    assert_int_equal(pl_posix_dir_open(&dir, &rig.run.alloc, rig.folder, PL_POSIX_DIR_EXISTING, &err),
                     PELAGO_OK);
    assert_int_equal(pl_home_load_credentials(dir, "authority", &rig.run.alloc, &ca, &err), PELAGO_OK);
    pl_posix_dir_close(dir);
    const struct pl_grant gone = {.role = PL_ROLE_LEARNER, .identity = v.own.identity, .seconds = 0};
    assert_int_equal(pl_pki_request(&v.own, request, sizeof request, &request_len, &err), PELAGO_OK);
    assert_int_equal(pl_pki_issue(&ca, request, request_len, &gone, issued, sizeof issued, &issued_len, &err),
                     PELAGO_OK);
    assert_int_equal(pl_pki_accept(&v.own, issued, issued_len, &err), PELAGO_OK);
    v.q.what = PL_ASK_STATUS;
    syncer_rig_beside(&rig, do_ask, &v);
    assert_int_not_equal(v.status, PELAGO_OK);
    syncer_rig_beside(&rig, do_renew, &v);
    assert_int_equal(v.status, PELAGO_OK);
    syncer_rig_beside(&rig, do_ask, &v);
    assert_int_equal(v.status, PELAGO_OK);
    pl_buf_release(&v.answer);
    syncer_rig_release(&rig);
}

static void ask(struct visit *v, enum pl_ask what)
{
    v->q.what = what;
    syncer_rig_beside(&rig, do_ask, v);
}

static bool answered(const struct visit *v, const char *part)
{
    return v->status == PELAGO_OK && memmem(v->answer.data, v->answer.len, part, strlen(part)) != NULL;
}

static bool is_finished(struct syncer_rig *r)
{
    return r->finished;
}

static void questions_are_answered_by_role(void **state)
{
    (void)state;
    struct visit learner = {.role = PL_ROLE_LEARNER}, operator= {.role = PL_ROLE_OPERATOR},
                 shard = {.role = PL_ROLE_SHARD, .shard = 1}, made = {.role = PL_ROLE_LEARNER};
    struct visit *all[] = {&learner, &operator, & shard };
    open_rig();
    for (size_t i = 0; i < 3; i++) {
        pl_buf_init(&all[i]->answer, &rig.run.alloc, 1 << 24);
        invite(all[i]->role, 1, 0, &all[i]->token);
        syncer_rig_beside(&rig, do_enrol, all[i]);
        assert_int_equal(all[i]->status, PELAGO_OK);
        ask(all[i], PL_ASK_SETTINGS);
        assert_true(answered(all[i], "\"run_id\""));
        ask(all[i], PL_ASK_TOKENIZER);
        assert_true(answered(all[i], "{\"tokenizer\": true}"));
        ask(all[i], PL_ASK_STATUS);
        assert_true(answered(all[i], "\"fragments\""));
        all[i]->q.what = (enum pl_ask)99;
        syncer_rig_beside(&rig, do_ask, all[i]);
        expect_refusal(all[i], "not known");
    }
    ask(&learner, PL_ASK_INVITE);
    expect_refusal(&learner, "only an operator");
    ask(&learner, PL_ASK_FINISH);
    expect_refusal(&learner, "only an operator");
    learner.q.text = "10.0.0.1:7441";
    ask(&learner, PL_ASK_ANNOUNCE);
    expect_refusal(&learner, "only a shard");
    learner.q.text = NULL;
    static const char *const undialable[] = {"10.0.0.1", "10.0.0.1:0", "*:7441",
                                             ":7441",    "a b:7441",   "h:99999"};
    for (size_t i = 0; i < sizeof undialable / sizeof undialable[0]; i++) {
        shard.q.text = undialable[i];
        ask(&shard, PL_ASK_ANNOUNCE);
        expect_refusal(&shard, "nobody can dial");
    }
    ask(&learner, PL_ASK_ADDRESSES);
    assert_true(answered(&learner, "\"\""));
    shard.q.text = "10.0.0.1:7441";
    ask(&shard, PL_ASK_ANNOUNCE);
    assert_int_equal(shard.status, PELAGO_OK);
    ask(&learner, PL_ASK_ADDRESSES);
    assert_true(answered(&learner, rig.listen) && answered(&learner, "10.0.0.1:7441"));
    operator.q =(struct pl_question){.uses = 1, .role = PL_ROLE_LEARNER};
    ask(&operator, PL_ASK_INVITE);
    char text[PL_TOKEN_TEXT_MAX] = "";
    memcpy(text, operator.answer.data, operator.answer.len);
    assert_int_equal(pl_token_parse(text, &made.token, NULL), PELAGO_OK);
    syncer_rig_beside(&rig, do_enrol, &made);
    assert_int_equal(made.status, PELAGO_OK);
    ask(&operator, PL_ASK_FINISH);
    assert_int_equal(operator.status, PELAGO_OK);
    syncer_rig_until(&rig, is_finished);
    for (size_t i = 0; i < 3; i++)
        pl_buf_release(&all[i]->answer);
    syncer_rig_release(&rig);
}

static unsigned occurrences(const struct visit *v, const char *part)
{
    unsigned count = 0;
    const uint8_t *at = v->answer.data, *end = at + v->answer.len;
    while ((at = memmem(at, (size_t)(end - at), part, strlen(part))) != NULL) {
        at++;
        count++;
    }
    return count;
}

/* Where learners call from is between each of them and the operator. */
static void members_are_not_told_where_the_others_are(void **state)
{
    (void)state;
    struct visit operator= {.role = PL_ROLE_OPERATOR}, learner = {.role = PL_ROLE_LEARNER};
    syncer_rig_init(&rig, 2);
    syncer_rig_create(&rig);
    syncer_rig_start(&rig);
    for (uint64_t i = 11; i <= 12; i++)
        syncer_rig_island(&rig, i);
    syncer_rig_reach(&rig, 1);
    struct visit *all[] = {&operator, & learner };
    for (size_t i = 0; i < 2; i++) {
        pl_buf_init(&all[i]->answer, &rig.run.alloc, 1 << 20);
        invite(all[i]->role, 1, 0, &all[i]->token);
        syncer_rig_beside(&rig, do_enrol, all[i]);
        ask(all[i], PL_ASK_STATUS);
        assert_true(answered(all[i], "\"identity\": 11") && answered(all[i], "\"identity\": 12"));
    }
    assert_int_equal(occurrences(&operator, "\"address\""), 3); /* the syncer's is nobody's secret */
    assert_int_equal(occurrences(&learner, "\"address\""), 1);
    for (size_t i = 0; i < 2; i++)
        pl_buf_release(&all[i]->answer);
    syncer_rig_release(&rig);
}

/* The status is dear. A member with many connections is told it as seldom as one with a single one. */
static void a_member_asks_for_the_status_slowly(void **state)
{
    (void)state;
    struct pl_credentials own;
    const struct pl_msg question = {.type = PL_MSG_ASK, .u.ask.what = PL_ASK_STATUS};
    uint64_t begin = pl_clock_ns();
    unsigned answers = 0, refused = 0;
    open_rig();
    syncer_rig_member(&rig, PL_ROLE_LEARNER, 9, &own);
    for (unsigned i = 0; i < CALLS; i++)
        syncer_rig_dial(&rig, &own, &question, 20, &calls[i]);
    for (unsigned i = 0; i < CALLS; i++) {
        syncer_rig_wait(&rig, &calls[i]);
        answers += calls[i].answers;
        refused += calls[i].code == PL_REASON_DENIED ? 1 : 0;
    }
    uint64_t seconds = (pl_clock_ns() - begin) / PL_SEC;
    assert_int_equal(refused, CALLS);
    assert_in_range(answers, 1, PL_DOOR_STATUS_MAX * (seconds + 2));
    assert_non_null(strstr(calls[0].text, "twice a second"));
    syncer_rig_release(&rig);
}

/* An operator ends the run with learners in it: what they have done is merged. */
static void an_operator_ends_the_run(void **state)
{
    (void)state;
    struct visit operator= {.role = PL_ROLE_OPERATOR};
    syncer_rig_init(&rig, 2);
    syncer_rig_create(&rig);
    syncer_rig_start(&rig);
    syncer_rig_island(&rig, 1);
    syncer_rig_island(&rig, 2);
    syncer_rig_reach(&rig, 2);
    pl_buf_init(&operator.answer, &rig.run.alloc, 1 << 20);
    invite(PL_ROLE_OPERATOR, 1, 0, &operator.token);
    syncer_rig_beside(&rig, do_enrol, &operator);
    ask(&operator, PL_ASK_FINISH);
    assert_int_equal(operator.status, PELAGO_OK);
    syncer_rig_until(&rig, is_finished);
    assert_true(rig.islands[0].done && rig.islands[1].done);
    pl_buf_release(&operator.answer);
    syncer_rig_release(&rig);
}

/* ---- many at once ---- */

enum { RUSH = 12 };

static void *enrol_beside(void *user)
{
    do_enrol(user);
    return NULL;
}

static void rush(void *user)
{
    struct visit *v = user;
    pthread_t threads[RUSH];
    for (unsigned i = 0; i < RUSH; i++)
        pl_assert(pthread_create(&threads[i], NULL, enrol_beside, &v[i]) == 0);
    for (unsigned i = 0; i < RUSH; i++)
        pl_assert(pthread_join(threads[i], NULL) == 0);
}

/* One token, more callers than uses, all at the same time: each use is somebody's, no identity is given twice. */
static void a_rush_is_served_once_each(void **state)
{
    (void)state;
    static struct visit v[RUSH];
    bool given[RUSH + 1] = {false};
    unsigned good = 0;
    open_rig();
    memset(v, 0, sizeof v);
    invite(PL_ROLE_LEARNER, RUSH - 2, 0, &v[0].token);
    for (unsigned i = 0; i < RUSH; i++) {
        v[i].token = v[0].token;
        v[i].role = PL_ROLE_LEARNER;
    }
    syncer_rig_beside(&rig, rush, v);
    for (unsigned i = 0; i < RUSH; i++) {
        if (v[i].status != PELAGO_OK) {
            expect_refusal(&v[i], "used up");
            continue;
        }
        good++;
        assert_in_range(v[i].own.identity, 1, RUSH - 2);
        assert_false(given[v[i].own.identity]);
        given[v[i].own.identity] = true;
    }
    assert_int_equal(good, RUSH - 2);
    assert_int_equal(syncer_rig_count(&rig, "door.identities"), RUSH - 2);
    syncer_rig_release(&rig);
}

static bool all_are_answered_twice(struct syncer_rig *r)
{
    (void)r;
    bool all = true;
    for (unsigned i = 0; i < CALLS; i++)
        all = all && calls[i].answers == 2;
    return all;
}

/* A request is no secret: without the token's, whoever repeats it gets nothing. */
static void a_request_alone_opens_nothing(void **state)
{
    (void)state;
    struct pl_token token;
    struct pl_credentials own = {.role = PL_ROLE_NONE};
    struct rig_call call;
    uint8_t request[PL_CERTIFICATE_BYTES_MAX], wrong[PL_SECRET_BYTES] = {1};
    uint32_t len;
    open_rig();
    invite(PL_ROLE_LEARNER, 1, 0, &token);
    assert_int_equal(pl_pki_new_key(&own, NULL), PELAGO_OK);
    memcpy(own.fingerprint, token.fingerprint, sizeof own.fingerprint);
    assert_int_equal(pl_pki_request(&own, request, sizeof request, &len, NULL), PELAGO_OK);
    struct pl_msg msg = {.type = PL_MSG_ENROL,
                         .u.enrol = {.token = token.number,
                                     .role = PL_ROLE_LEARNER,
                                     .secret = {token.secret, sizeof token.secret},
                                     .request = {request, len}}};
    syncer_rig_dial(&rig, &own, &msg, 2, &calls[0]);
    for (unsigned i = 1; i < CALLS; i++)
        calls[i].answers = 2;
    syncer_rig_until(&rig, all_are_answered_twice);
    msg.u.enrol.secret.data = wrong;
    syncer_rig_call(&rig, &own, &msg, &call);
    assert_int_equal(call.code, PL_REASON_DENIED);
    assert_non_null(strstr(call.text, "the token is wrong"));
    assert_int_equal(call.answers, 0);
    syncer_rig_release(&rig);
}

/* Several calls with one request, made before any of them is answered, are one identity. Then the syncer stops while a
 * further one may be waiting. */
static void who_calls_again_too_early_is_the_same(void **state)
{
    (void)state;
    struct pl_token token;
    struct pl_credentials own = {.role = PL_ROLE_NONE};
    struct rig_call late;
    uint8_t request[PL_CERTIFICATE_BYTES_MAX];
    uint32_t len;
    open_rig();
    invite(PL_ROLE_LEARNER, 1, 0, &token);
    assert_int_equal(pl_pki_new_key(&own, NULL), PELAGO_OK);
    memcpy(own.fingerprint, token.fingerprint, sizeof own.fingerprint);
    assert_int_equal(pl_pki_request(&own, request, sizeof request, &len, NULL), PELAGO_OK);
    const struct pl_msg msg = {.type = PL_MSG_ENROL,
                               .u.enrol = {.token = token.number,
                                           .role = PL_ROLE_LEARNER,
                                           .secret = {token.secret, sizeof token.secret},
                                           .request = {request, len}}};
    for (unsigned i = 0; i < CALLS; i++)
        syncer_rig_dial(&rig, &own, &msg, 2, &calls[i]);
    syncer_rig_until(&rig, all_are_answered_twice);
    assert_int_equal(syncer_rig_count(&rig, "door.identities"), 1);
    assert_int_equal(syncer_rig_count(&rig, "door.enrolled"), 1);
    syncer_rig_dial(&rig, &own, &msg, 1, &late);
    syncer_rig_stop(&rig);
    syncer_rig_wait(&rig, &late);
    for (unsigned i = 0; i < CALLS; i++)
        syncer_rig_wait(&rig, &calls[i]);
    syncer_rig_start(&rig);
    syncer_rig_release(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_token_makes_as_many_identities_as_it_says),
        cmocka_unit_test(an_attempt_may_be_repeated),
        cmocka_unit_test(uses_and_identities_survive_a_restart),
        cmocka_unit_test(wrong_expired_and_foreign_tokens_each_have_their_sentence),
        cmocka_unit_test(who_guesses_is_slowed_down),
        cmocka_unit_test(a_certificate_is_renewed_by_whoever_holds_it),
        cmocka_unit_test(an_expired_certificate_can_only_be_renewed),
        cmocka_unit_test(questions_are_answered_by_role),
        cmocka_unit_test(members_are_not_told_where_the_others_are),
        cmocka_unit_test(a_member_asks_for_the_status_slowly),
        cmocka_unit_test(an_operator_ends_the_run),
        cmocka_unit_test(a_rush_is_served_once_each),
        cmocka_unit_test(who_calls_again_too_early_is_the_same),
        cmocka_unit_test(a_request_alone_opens_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
