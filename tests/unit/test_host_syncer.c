/* tests/unit/test_host_syncer.c - the syncer's host with real sockets, TLS and files: rounds, the end, the recorder,
 * hostile learners, strangers. */
#include "syncer_rig.h"

#include "base/num.h"
#include "host/home.h"
#include "host/recorder.h"
#include "host/syncer_host_int.h"
#include "net_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct syncer_rig rig;

static void islands_are_merged_and_hold_the_same_versions(void **state)
{
    (void)state;
    syncer_rig_init(&rig, 3);
    rig.run.settings.quorum = 2;
    rig.options.threads = 2;
    syncer_rig_create(&rig);
    syncer_rig_start(&rig);
    for (uint64_t i = 1; i <= 3; i++)
        syncer_rig_island(&rig, i);
    syncer_rig_reach(&rig, 5);
    uint64_t versions[16], digests[16];
    syncer_rig_versions(&rig, versions, digests);
    for (uint32_t f = 0; f < rig.run.layout.fragment_count; f++)
        for (uint32_t i = 0; i < 3; i++)
            if (rig.islands[i].fragments[f].version == versions[f])
                assert_true(rig.islands[i].fragments[f].digest == digests[f]);
    assert_true(syncer_rig_count(&rig, "merges") >= 20);
    assert_int_equal(syncer_rig_count(&rig, "alive"), 3);
    assert_int_equal(syncer_rig_count(&rig, "connected"), 3);
    assert_true(syncer_rig_count(&rig, "merged_tokens") > 0);
    assert_false(rig.failed);
    syncer_rig_release(&rig);
}

/* All codecs; also a fragment whose contributions are longer than its values, so that the journal has the gradient. */
static void every_codec_gives_the_same_bits_to_everybody(void **state)
{
    (void)state;
    for (uint32_t i = PL_CODEC_FP32; i <= PL_CODEC_LAST; i++) {
        syncer_rig_init(&rig, 2);
        rig.run.settings.up = (enum pl_codec)i;
        rig.run.settings.down = (enum pl_codec)(PL_CODEC_LAST + 1 - i);
        rig.run.settings.selective = i % 2 == 0 ? 0.2f : 0;
        syncer_rig_create(&rig);
        syncer_rig_start(&rig);
        syncer_rig_island(&rig, 1);
        syncer_rig_island(&rig, 2);
        syncer_rig_reach(&rig, 2);
        syncer_rig_stop(&rig);
        syncer_rig_start(&rig); /* replay compares every digest */
        syncer_rig_reach(&rig, 3);
        syncer_rig_release(&rig);
    }
}

static bool is_finished(struct syncer_rig *r)
{
    return r->finished;
}

/* The global value of a linear model pulled to zero is smaller at the end; the host hands it out as one block. */
static void the_run_ends_at_its_budget(void **state)
{
    (void)state;
    syncer_rig_init(&rig, 2);
    rig.run.settings.total_tokens = 20000;
    rig.run.settings.trainer.schedule.total_tokens = 20000;
    syncer_rig_create(&rig);
    syncer_rig_start(&rig);
    syncer_rig_island(&rig, 1);
    syncer_rig_island(&rig, 2);
    syncer_rig_until(&rig, is_finished);
    assert_true(rig.islands[0].done && rig.islands[1].done);
    assert_true(syncer_rig_count(&rig, "tokens") >= 20000);
    float *block = calloc(rig.run.layout.tensors.floats, sizeof *block);
    float *values = calloc(rig.run.layout.largest, sizeof *values);
    pl_syncer_host_values(rig.host, block);
    for (uint32_t f = 0; f < rig.run.layout.fragment_count; f++) {
        pl_layout_gather(&rig.run.layout, f, block, values);
        for (uint64_t i = 0; i < rig.run.layout.fragments[f].values; i++)
            assert_true(fabsf(values[i] - rig.islands[0].fragments[f].anchor[i]) < 0.05f);
    }
    free(block);
    free(values);
    syncer_rig_release(&rig);
}

static void a_recording_steps_through_a_fresh_core(void **state)
{
    (void)state;
    struct pl_replay_report report;
    struct pl_error err = {.text = ""};
    syncer_rig_init(&rig, 2);
    syncer_rig_create(&rig);
    for (int life = 0; life < 2; life++) { /* the second begins with a journal */
        char path[PL_PATH_MAX];
        (void)snprintf(path, sizeof path, "%s/record-%d", rig.temp.path, life);
        rig.options.record = path;
        syncer_rig_start(&rig);
        if (life == 0) {
            syncer_rig_island(&rig, 1);
            syncer_rig_island(&rig, 2);
        }
        syncer_rig_reach(&rig, island_version(&rig.islands[0]) + 3);
        uint64_t merges = syncer_rig_count(&rig, "merges");
        syncer_rig_stop(&rig);
        if (pl_recorder_run(&rig.run.alloc, path, NULL, NULL, &report, &err) != PELAGO_OK)
            fail_msg("%s", err.text);
        assert_true(report.events > 100 && report.messages > 50 && !report.cut);
        assert_true(report.view.rounds_merged >= merges);
        assert_true(life == 0 ? report.records == 0 : report.records > 12);
    }
    rig.options.record = NULL;
    syncer_rig_release(&rig);
}

/* One byte of an event changed: what the core makes of it is not asked. */
static void a_damaged_recording_is_noticed(void **state)
{
    (void)state;
    struct pl_replay_report report;
    struct pl_error err;
    char path[PL_PATH_MAX];
    syncer_rig_init(&rig, 1);
    syncer_rig_create(&rig);
    (void)snprintf(path, sizeof path, "%s/record", rig.temp.path);
    rig.options.record = path;
    syncer_rig_start(&rig);
    syncer_rig_island(&rig, 1);
    syncer_rig_reach(&rig, 1);
    syncer_rig_stop(&rig);
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, -20, SEEK_END), 0); /* of the last event; its hash is behind it */
    int c = fgetc(f);
    assert_int_equal(fseek(f, -20, SEEK_END), 0);
    assert_int_equal(fputc(c ^ 1, f), c ^ 1);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(pl_recorder_run(&rig.run.alloc, path, NULL, NULL, &report, &err), PELAGO_CORRUPT);
    assert_non_null(strstr(err.text, "its bytes are damaged"));
    assert_int_equal(pl_recorder_run(&rig.run.alloc, "/nonexistent", NULL, NULL, &report, &err),
                     PELAGO_NOTFOUND);
    assert_int_equal(pl_recorder_run(&rig.run.alloc, "/proc/self/exe", NULL, NULL, &report, &err),
                     PELAGO_CORRUPT);
    syncer_rig_release(&rig);
}

/* ---- hostile learners ---- */

static bool refused_three_times(struct syncer_rig *r)
{
    return syncer_rig_count(r, "pushes_refused") >= 3 && island_version(&r->islands[0]) >= 4;
}

/* Its digest does not match: refused each time, and it has to wait longer each time; the others go on. */
static void a_push_that_does_not_match_its_digest_is_refused(void **state)
{
    (void)state;
    syncer_rig_init(&rig, 2);
    syncer_rig_create(&rig);
    syncer_rig_start(&rig);
    syncer_rig_island(&rig, 1);
    syncer_rig_island(&rig, 2)->spoil = true;
    syncer_rig_until(&rig, refused_three_times);
    assert_true(syncer_rig_logged(&rig, "reason=BAD_CONTENT"));
    assert_true(syncer_rig_logged(&rig, "try again later")); /* it is kept out for a while */
    assert_true(syncer_rig_logged(&rig, "does not match its digest"));
    syncer_rig_release(&rig);
}

static bool huge_refused(struct syncer_rig *r)
{
    return syncer_rig_logged(r, "times as long as usual") && island_version(&r->islands[0]) >= 4;
}

static float largest_anchor(const struct island *is)
{
    float largest = 0;
    for (uint32_t f = 0; f < is->run->layout.fragment_count; f++)
        for (uint64_t i = 0; i < is->run->layout.fragments[f].values; i++)
            largest = fmaxf(largest, fabsf(is->fragments[f].anchor[i]));
    return largest;
}

/* A million times too long, from the very first round on: never merged. */
static void a_push_a_million_times_too_long_is_refused(void **state)
{
    (void)state;
    syncer_rig_init(&rig, 3);
    rig.run.settings.up = PL_CODEC_BF16;
    syncer_rig_create(&rig);
    syncer_rig_start(&rig);
    syncer_rig_island(&rig, 1);
    syncer_rig_island(&rig, 2);
    syncer_rig_island(&rig, 3)->scale = 1e6f;
    syncer_rig_until(&rig, huge_refused);
    assert_true(largest_anchor(&rig.islands[0]) < 2);
    syncer_rig_release(&rig);
}

/* Many steps may go far: whoever says afterwards that it did many is still measured by what it said first. */
static void a_second_push_does_not_make_the_first_one_longer(void **state)
{
    (void)state;
    syncer_rig_init(&rig, 3);
    rig.run.settings.up = PL_CODEC_BF16;
    syncer_rig_create(&rig);
    syncer_rig_start(&rig);
    syncer_rig_island(&rig, 1);
    syncer_rig_island(&rig, 2);
    struct island *liar = syncer_rig_island(&rig, 3);
    liar->scale = 1e6f;
    liar->again_steps = UINT64_C(1) << 50;
    syncer_rig_until(&rig, huge_refused);
    assert_true(largest_anchor(&rig.islands[0]) < 2);
    syncer_rig_release(&rig);
}

static bool claim_refused(struct syncer_rig *r)
{
    return syncer_rig_logged(r, "PUSH.steps claims") && island_version(&r->islands[0]) >= 4;
}

static bool greeting_refused(struct syncer_rig *r)
{
    return syncer_rig_logged(r, "HELLO.steps claims") && island_version(&r->islands[0]) >= 2;
}

/* Somebody who was never here cannot have trained for longer than the run lives: one greeting would end it. */
static void a_newcomer_that_claims_a_past_is_refused(void **state)
{
    (void)state;
    syncer_rig_init(&rig, 3);
    syncer_rig_create(&rig);
    syncer_rig_start(&rig);
    for (uint64_t i = 1; i <= 3; i++)
        syncer_rig_island(&rig, i);
    syncer_rig_reach(&rig, 1);
    struct island *liar = syncer_rig_island(&rig, 4);
    liar->steps = UINT64_C(1) << 30;
    liar->tokens = liar->steps * rig.run.manifest.msg.step_tokens_max;
    syncer_rig_until(&rig, greeting_refused);
    assert_true(syncer_rig_count(&rig, "tokens") < liar->tokens / 1000);
    syncer_rig_release(&rig);
}

static void steps_nobody_can_have_done_are_refused(void **state)
{
    (void)state;
    syncer_rig_init(&rig, 4);
    syncer_rig_create(&rig);
    syncer_rig_start(&rig);
    for (uint64_t i = 1; i <= 4; i++)
        syncer_rig_island(&rig, i);
    syncer_rig_reach(&rig, 1);
    rig.islands[3].claim_steps = 1000000;
    syncer_rig_until(&rig, claim_refused);
    assert_true(syncer_rig_logged(&rig, "nobody is that fast"));
    syncer_rig_release(&rig);
}

/* A first life is no restart, after which everybody is believed once: not even the first lie is merged. */
static void nobody_is_believed_at_the_beginning_of_a_run(void **state)
{
    (void)state;
    struct pl_learner_view view;
    syncer_rig_init(&rig, 4);
    syncer_rig_create(&rig);
    syncer_rig_start(&rig);
    for (uint64_t i = 1; i <= 4; i++)
        syncer_rig_island(&rig, i)->claim_steps = i < 4 ? 0 : 1000000;
    syncer_rig_until(&rig, claim_refused);
    assert_true(pl_syncer_view_identity(rig.host->core, 4, &view));
    assert_int_equal(view.rounds_merged, 0);
    syncer_rig_release(&rig);
}

static uint32_t waiting_for(const struct syncer_rig *r, const struct island *is)
{
    uint32_t count = 0;
    for (const struct pl_visitor *g = r->host->visitors; g != NULL; g = g->next)
        for (const struct pl_outgoing *o = g->first; o != NULL && g->peer.identity == is->own.identity;
             o = o->next)
            count++;
    return count;
}

static uint32_t turns_left;

static bool a_few_turns(struct syncer_rig *r)
{
    (void)r;
    return turns_left-- == 0;
}

/* It reads nothing, asks for a value and says that it has it, without end: what waits for it does not grow. */
static void asking_over_and_over_takes_no_memory(void **state)
{
    (void)state;
    enum { ROUNDS = 400, PAIRS = 100 };
    syncer_rig_init(&rig, 2);
    syncer_rig_create(&rig);
    syncer_rig_start(&rig);
    syncer_rig_island(&rig, 1);
    struct island *greedy = syncer_rig_island(&rig, 2);
    syncer_rig_reach(&rig, 2);
    uint32_t most = 0;
    for (uint32_t i = 0; i < ROUNDS && greedy->control != NULL && greedy->bulk != NULL; i++) {
        pl_conn_pause(greedy->bulk, true);
        for (uint32_t k = 0; k < PAIRS && pl_conn_room(greedy->control); k++) {
            uint64_t version = rig.islands[0].fragments[0].version;
            (void)pl_conn_send(greedy->control, &(struct pl_msg){.type = PL_MSG_FETCH, .u.fetch = {0}});
            (void)pl_conn_send(greedy->control, &(struct pl_msg){.type = PL_MSG_HAVE, .u.got = {0, version}});
        }
        turns_left = 20;
        syncer_rig_until(&rig, a_few_turns);
        most = pl_max32(most, waiting_for(&rig, greedy));
    }
    print_message("# at most %u updates waited, of %u fragments\n", most, rig.run.layout.fragment_count);
    assert_in_range(most, 1, rig.run.layout.fragment_count + 1);
    if (greedy->bulk != NULL)
        pl_conn_pause(greedy->bulk, false);
    syncer_rig_release(&rig);
}

/* A learner that never answers holds nobody up. */
static void a_silent_learner_delays_no_round(void **state)
{
    (void)state;
    syncer_rig_init(&rig, 2);
    rig.run.settings.quorum = 1;
    syncer_rig_create(&rig);
    syncer_rig_start(&rig);
    syncer_rig_island(&rig, 1);
    syncer_rig_island(&rig, 2)->mute = true;
    syncer_rig_reach(&rig, 6);
    assert_int_equal(rig.islands[1].pushes, 0);
    syncer_rig_release(&rig);
}

/* ---- strangers ---- */

static void strangers_are_refused_with_a_sentence(void **state)
{
    (void)state;
    struct pl_credentials learner, operator, nobody = {.role = PL_ROLE_NONE};
    struct rig_call call;
    const struct pl_msg hello = {.type = PL_MSG_HELLO, .u.hello.run_id = 0x600d};
    const struct pl_msg report = {.type = PL_MSG_REPORT};
    const struct pl_msg ask = {.type = PL_MSG_ASK, .u.ask.what = 3};
    syncer_rig_init(&rig, 1);
    syncer_rig_create(&rig);
    syncer_rig_start(&rig);
    syncer_rig_member(&rig, PL_ROLE_LEARNER, 9, &learner);
    syncer_rig_member(&rig, PL_ROLE_OPERATOR, 10, &operator);
    assert_int_equal(pl_pki_new_key(&nobody, NULL), PELAGO_OK);
    memcpy(nobody.fingerprint, learner.fingerprint, sizeof nobody.fingerprint);
    syncer_rig_call(&rig, &nobody, &hello, &call);
    assert_int_equal(call.code, PL_REASON_DENIED);
    assert_non_null(strstr(call.text, "join with a token"));
    syncer_rig_call(&rig, &nobody, &ask, &call);
    assert_int_equal(call.code, PL_REASON_DENIED);
    syncer_rig_call(&rig, &operator, & hello, &call);
    assert_int_equal(call.code, PL_REASON_DENIED);
    syncer_rig_call(&rig, &learner, &report, &call);
    assert_int_equal(call.code, PL_REASON_WRONG_STATE);
    syncer_rig_call(&rig, &learner, NULL, &call);
    assert_int_equal(call.code, PL_REASON_NO_HELLO);
    assert_true(syncer_rig_logged(&rig, "refused address=127.0.0.1"));
    assert_int_equal(syncer_rig_count(&rig, "known"), 0);
    assert_int_equal(syncer_rig_count(&rig, "refused"), 4); /* the door counts for itself */
    syncer_rig_release(&rig);
}

/* An answer may be dear, and one connection could ask for nothing but them. */
static void questions_are_asked_slowly(void **state)
{
    (void)state;
    struct pl_credentials operator;
    struct rig_call call;
    const struct pl_msg ask = {.type = PL_MSG_ASK, .u.ask.what = 3};
    syncer_rig_init(&rig, 1);
    syncer_rig_create(&rig);
    syncer_rig_start(&rig);
    syncer_rig_member(&rig, PL_ROLE_OPERATOR, 10, &operator);
    syncer_rig_dial(&rig, &operator, & ask, 100, &call);
    syncer_rig_wait(&rig, &call);
    assert_int_equal(call.code, PL_REASON_DENIED);
    assert_non_null(strstr(call.text, "more slowly"));
    assert_in_range(call.answers, 1, 60); /* 20 in a second, and a slow machine may take two or three */
    syncer_rig_release(&rig);
}

static struct rig_call crowd[40];

static uint32_t turned_away(void)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < sizeof crowd / sizeof crowd[0]; i++)
        count += crowd[i].closed ? 1 : 0;
    return count;
}

static bool some_are_turned_away(struct syncer_rig *r)
{
    return turned_away() >= 8 && syncer_rig_logged(r, "connections already");
}

/* The places are for everybody: one certificate takes a few of them only, and another still gets in. */
static void nobody_takes_every_place(void **state)
{
    (void)state;
    struct pl_credentials many;
    syncer_rig_init(&rig, 1);
    syncer_rig_create(&rig);
    syncer_rig_start(&rig);
    syncer_rig_member(&rig, PL_ROLE_LEARNER, 9, &many);
    for (uint32_t i = 0; i < sizeof crowd / sizeof crowd[0]; i++)
        syncer_rig_dial(&rig, &many, NULL, 0, &crowd[i]);
    syncer_rig_until(&rig, some_are_turned_away);
    assert_int_equal(turned_away(), 8);
    syncer_rig_island(&rig, 1);
    syncer_rig_reach(&rig, 2);
    for (uint32_t i = 0; i < sizeof crowd / sizeof crowd[0]; i++)
        if (!crowd[i].closed)
            pl_conn_close(crowd[i].conn, 0);
    syncer_rig_release(&rig);
}

static void a_message_with_a_wrong_field_is_refused(void **state)
{
    (void)state;
    struct pl_credentials learner;
    struct rig_call call;
    const struct pl_msg other_run = {.type = PL_MSG_HELLO, .u.hello.run_id = 1};
    syncer_rig_init(&rig, 1);
    syncer_rig_create(&rig);
    syncer_rig_start(&rig);
    syncer_rig_member(&rig, PL_ROLE_LEARNER, 9, &learner);
    syncer_rig_call(&rig, &learner, &other_run, &call);
    assert_int_equal(call.code, PL_REASON_WRONG_RUN);
    assert_true(syncer_rig_logged(&rig, "WRONG_RUN"));
    syncer_rig_release(&rig);
}

static void a_folder_is_taken_by_one_syncer_and_a_port_too(void **state)
{
    (void)state;
    struct pl_syncer_host *again;
    struct pl_error err;
    syncer_rig_init(&rig, 1);
    syncer_rig_create(&rig);
    syncer_rig_start(&rig);
    assert_int_equal(pl_syncer_host_start(&again, &rig.options, &err), PELAGO_STALE);
    assert_int_equal(pl_syncer_host_create(&rig.run.alloc, rig.folder, &rig.run.settings,
                                           (struct pl_bytes){NULL, 0}, &err),
                     PELAGO_INVALID);
    struct pl_syncer_host_options other = rig.options;
    char folder[PL_PATH_MAX];
    (void)snprintf(folder, sizeof folder, "%s/other", rig.temp.path);
    assert_int_equal(
        pl_syncer_host_create(&rig.run.alloc, folder, &rig.run.settings, (struct pl_bytes){NULL, 0}, &err),
        PELAGO_OK);
    other.folder = folder;
    assert_int_not_equal(pl_syncer_host_start(&again, &other, &err), PELAGO_OK);
    assert_non_null(strstr(err.text, strrchr(rig.listen, ':') + 1));
    syncer_rig_release(&rig);
}

/* ---- more than one shard ---- */

static struct pl_syncer_host *second;
static bool second_stopped;

static void on_second_stopped(void *user)
{
    (void)user;
    second_stopped = true;
}

static bool second_is_gone(struct syncer_rig *r)
{
    (void)r;
    return second_stopped;
}

static bool knows_the_second(struct syncer_rig *r)
{
    return syncer_rig_logged(r, "shard.address shard=1");
}

static bool merged_at_both(struct syncer_rig *r)
{
    return island_version(&r->islands[0]) >= 2 && island_version(&r->islands[1]) >= 2;
}

/* What the command line does for `pelago syncer --shard 1 --join TOKEN`, without the door. */
static void make_second_folder(const char *folder)
{
    struct pl_posix_dir *dir;
    struct pl_credentials ca, own = {.role = PL_ROLE_NONE};
    struct pl_buf text;
    assert_int_equal(pl_posix_dir_open(&dir, &rig.run.alloc, rig.folder, PL_POSIX_DIR_EXISTING, NULL),
                     PELAGO_OK);
    assert_int_equal(pl_home_load_credentials(dir, "authority", &rig.run.alloc, &ca, NULL), PELAGO_OK);
    pl_posix_dir_close(dir);
    own.run_id = ca.run_id;
    net_enrol(&ca, PL_ROLE_SHARD, 50, 1, 3600, &own);
    pl_buf_init(&text, &rig.run.alloc, 1 << 20);
    assert_int_equal(pl_settings_print(&rig.run.settings, &text), PELAGO_OK);
    assert_int_equal(pl_posix_dir_open(&dir, &rig.run.alloc, folder, PL_POSIX_DIR_CREATE, NULL), PELAGO_OK);
    assert_int_equal(pl_home_save_credentials(dir, "credentials", &own, NULL), PELAGO_OK);
    assert_int_equal(pl_home_write(dir, "settings.json", (struct pl_bytes){text.data, text.len}, false, NULL),
                     PELAGO_OK);
    assert_int_equal(
        pl_home_write(dir, "home", (struct pl_bytes){rig.listen, strlen(rig.listen)}, false, NULL),
        PELAGO_OK);
    pl_posix_dir_close(dir);
    pl_buf_release(&text);
}

struct look_in {
    struct pl_alloc alloc;
    struct pl_credentials own;
    enum pelago_status status;
    struct pl_buf said;
    struct pl_error err;
};

static void look_in(void *user)
{
    struct look_in *l = user;
    const struct pl_question q = {.what = PL_ASK_STATUS, .shard = 1};
    pl_buf_init(&l->said, &l->alloc, 1 << 20);
    l->status =
        pl_door_ask(&l->alloc, pl_syncer_host_address(second), &l->own, &q, 60 * PL_SEC, &l->said, &l->err);
}

/* A shard that is not home has no door, but says to the operator how it is. */
static void only_the_operator_looks_into_a_further_shard(void)
{
    struct look_in l = {.alloc = pl_alloc_system(), .err = {.text = ""}};
    syncer_rig_member(&rig, PL_ROLE_LEARNER, 77, &l.own);
    syncer_rig_beside(&rig, look_in, &l);
    assert_true(l.status != PELAGO_OK);
    assert_non_null(strstr(l.err.text, "this is not the home shard"));
    pl_buf_release(&l.said);
    syncer_rig_member(&rig, PL_ROLE_OPERATOR, 78, &l.own);
    syncer_rig_beside(&rig, look_in, &l);
    assert_int_equal(l.status, PELAGO_OK);
    assert_int_equal(pl_buf_append(&l.said, "", 1), PELAGO_OK);
    assert_non_null(strstr((const char *)l.said.data, "\"shard\": 1"));
    pl_buf_release(&l.said);
}

/* Each merges its own fragments; the second finds home by itself and goes on without it. */
static void two_shards_share_the_fragments(void **state)
{
    (void)state;
    char folder[PL_PATH_MAX];
    struct pl_error err = {.text = ""};
    struct pl_credentials own;
    syncer_rig_init(&rig, 1);
    rig.run.settings.shards = 2;
    syncer_rig_create(&rig);
    syncer_rig_start(&rig);
    (void)snprintf(folder, sizeof folder, "%s/second", rig.temp.path);
    make_second_folder(folder);
    struct pl_syncer_host_options o = rig.options;
    o.folder = folder;
    o.listen = "127.0.0.1:0";
    o.shard = 1;
    if (pl_syncer_host_start(&second, &o, &err) != PELAGO_OK)
        fail_msg("%s", err.text);
    syncer_rig_until(&rig, knows_the_second);
    struct island *home = syncer_rig_island(&rig, 1);
    while (home->incarnation == 0)
        (void)uv_run(&rig.loop, UV_RUN_ONCE);
    struct island *other = &rig.islands[rig.island_count++];
    *other = (struct island){.shard = 1};
    syncer_rig_member(&rig, PL_ROLE_LEARNER, 1, &own);
    island_start(other, &rig.run, &rig.loop, &own, pl_syncer_host_address(second));
    other->incarnation = home->incarnation;
    syncer_rig_until(&rig, merged_at_both);
    only_the_operator_looks_into_a_further_shard();
    syncer_rig_stop(&rig);
    uint64_t version = island_version(other);
    while (island_version(other) < version + 2)
        (void)uv_run(&rig.loop, UV_RUN_ONCE);
    second_stopped = false;
    pl_syncer_host_stop(second, on_second_stopped, NULL);
    syncer_rig_until(&rig, second_is_gone);
    syncer_rig_release(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(islands_are_merged_and_hold_the_same_versions),
        cmocka_unit_test(every_codec_gives_the_same_bits_to_everybody),
        cmocka_unit_test(the_run_ends_at_its_budget),
        cmocka_unit_test(a_recording_steps_through_a_fresh_core),
        cmocka_unit_test(a_damaged_recording_is_noticed),
        cmocka_unit_test(a_push_that_does_not_match_its_digest_is_refused),
        cmocka_unit_test(a_push_a_million_times_too_long_is_refused),
        cmocka_unit_test(a_second_push_does_not_make_the_first_one_longer),
        cmocka_unit_test(a_newcomer_that_claims_a_past_is_refused),
        cmocka_unit_test(steps_nobody_can_have_done_are_refused),
        cmocka_unit_test(nobody_is_believed_at_the_beginning_of_a_run),
        cmocka_unit_test(asking_over_and_over_takes_no_memory),
        cmocka_unit_test(a_silent_learner_delays_no_round),
        cmocka_unit_test(strangers_are_refused_with_a_sentence),
        cmocka_unit_test(questions_are_asked_slowly),
        cmocka_unit_test(nobody_takes_every_place),
        cmocka_unit_test(a_message_with_a_wrong_field_is_refused),
        cmocka_unit_test(a_folder_is_taken_by_one_syncer_and_a_port_too),
        cmocka_unit_test(two_shards_share_the_fragments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
