#include "reduce_rig.h"

#include "base/buf.h"
#include "base/fmt.h"
#include "data/tokens.h"
#include "host/home.h"
#include "net_rig.h"
#include "train/json.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WATCHDOG_MS = 60000, VOCAB = 96, DATA_TOKENS = 40000 };

/* ---- the rig ---- */

static void append(char *log, size_t cap, const char *line)
{
    size_t len = strlen(log), more = strlen(line) + 1;
    if (len + more + 1 > cap) {
        memmove(log, log + cap / 2, len + 1 - cap / 2);
        len = strlen(log);
    }
    snprintf(log + len, cap - len, "%s\n", line);
}

static void on_log(void *user, const char *line)
{
    struct reduce_rig *r = user;
    append(r->log, sizeof r->log, line);
}

static void on_finished(void *user)
{
    struct reduce_rig *r = user;
    r->finished = true;
}

static void on_failed(void *user, const struct pl_error *why)
{
    struct reduce_rig *r = user;
    r->failed = true;
    r->why = *why;
}

static void on_stopped(void *user)
{
    struct reduce_rig *r = user;
    r->stopped = true;
}

static void on_watchdog(uv_timer_t *timer)
{
    struct reduce_rig *r = timer->data;
    r->late = true;
}

/* A row that a model can learn: it counts, in steps that change now and then. */
static void write_data(struct reduce_rig *r)
{
    struct pl_tokens_writer *w;
    struct pl_error err = {0};
    uint32_t at = 0;
    if (pl_tokens_create(&w, &r->alloc, r->data, VOCAB, 0, &err) != PELAGO_OK)
        fail_msg("%s", err.text);
    for (uint32_t i = 0; i < DATA_TOKENS; i++) {
        at = (at + 1 + i / 64 % 3) % VOCAB;
        assert_int_equal(pl_tokens_append(w, &at, 1, &err), PELAGO_OK);
    }
    assert_int_equal(pl_tokens_commit(w, DATA_TOKENS, 1, &err), PELAGO_OK);
}

static void tiny(struct pl_settings *s, const char *data)
{
    s->run_id = 77;
    snprintf(s->model, sizeof s->model, "custom");
    snprintf(s->data, sizeof s->data, "%s", data);
    s->trainer = (struct pl_trainer_options){
        .config = {.layers = 2, .width = 256, .heads = 4, .vocab = VOCAB, .context = 32, .tied = true},
        .batch = 2,
        .seq = 16,
        .accumulate = 1,
        .matrices = PL_INNER_ADAMW,
        .rule =
            {.beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .momentum = 0.95f, .weight_decay = 0.1f, .clip = 1},
        .schedule = {.kind = PL_SCHEDULE_COSINE, .peak = 1e-3f, .floor = 0.1f, .warmup_tokens = 64},
        .seed = 5};
    pl_model_config_complete(&s->trainer.config);
}

void reduce_rig_init(struct reduce_rig *r, enum pl_algorithm algorithm, uint32_t learners)
{
    memset(r, 0, sizeof *r);
    r->alloc = pl_alloc_system();
    tempdir_init(&r->dir);
    snprintf(r->folder, sizeof r->folder, "%s", tempdir_path(&r->dir, "syncer"));
    snprintf(r->data, sizeof r->data, "%s", tempdir_path(&r->dir, "data.tokens"));
    snprintf(r->listen, sizeof r->listen, "127.0.0.1:0");
    write_data(r);
    tiny(&r->settings, r->data);
    r->settings.learners = learners;
    r->settings.eval_tokens = 256;
    r->settings.total_tokens = 20 * pl_trainer_options_tokens(&r->settings.trainer) * learners;
    r->settings.trainer.schedule.total_tokens = r->settings.total_tokens;
    pl_settings_defaults(&r->settings);
    r->settings.algorithm = algorithm;
    r->settings.fragments = 1;
    r->settings.up = PL_CODEC_BF16;
    r->settings.period = 4;
    r->settings.overlap = 1;
    assert_int_equal(uv_loop_init(&r->loop), 0);
    assert_int_equal(uv_timer_init(&r->loop, &r->watchdog), 0);
    r->watchdog.data = r;
}

void reduce_rig_release(struct reduce_rig *r)
{
    if (r->host != NULL)
        reduce_rig_stop(r);
    uv_close((uv_handle_t *)&r->watchdog, NULL);
    while (uv_run(&r->loop, UV_RUN_ONCE) != 0)
        ;
    assert_int_equal(uv_loop_close(&r->loop), 0);
    tempdir_release(&r->dir);
}

static void create(struct reduce_rig *r)
{
    struct pl_error err = {0};
    struct pl_posix_dir *dir;
    struct pl_settings read;
    if (pl_syncer_host_create(&r->alloc, r->folder, &r->settings, (struct pl_bytes){NULL, 0}, &err) !=
        PELAGO_OK)
        fail_msg("%s", err.text);
    assert_int_equal(pl_posix_dir_open(&dir, &r->alloc, r->folder, PL_POSIX_DIR_EXISTING, &err), PELAGO_OK);
    assert_int_equal(pl_home_load_credentials(dir, "authority", &r->alloc, &r->ca, &err), PELAGO_OK);
    assert_int_equal(pl_home_load_settings(dir, &r->alloc, &read, &r->settings_digest, &err), PELAGO_OK);
    pl_posix_dir_close(dir);
}

void reduce_rig_serve(struct reduce_rig *r)
{
    struct pl_error err = {0};
    const struct pl_syncer_host_options o = {.loop = &r->loop,
                                             .alloc = &r->alloc,
                                             .folder = r->folder,
                                             .listen = r->listen,
                                             .log = on_log,
                                             .finished = on_finished,
                                             .failed = on_failed,
                                             .user = r};
    if (r->settings_digest == 0)
        create(r);
    r->finished = r->failed = r->stopped = false;
    if (pl_reduce_plan_init(&r->plan, &r->alloc, &r->settings, &err) != PELAGO_OK)
        fail_msg("%s", err.text);
    if (pl_reduce_host_start(&r->host, &o, &err) != PELAGO_OK)
        fail_msg("%s", err.text);
    snprintf(r->listen, sizeof r->listen, "%s", pl_reduce_host_address(r->host));
}

void reduce_rig_stop(struct reduce_rig *r)
{
    pl_reduce_host_stop(r->host, on_stopped, r);
    reduce_rig_wait(r, &r->stopped);
    r->host = NULL;
}

/* ---- waiting ---- */

typedef bool holds_fn(const void *what);

static void wait_for(struct reduce_rig *r, holds_fn *holds, const void *what)
{
    r->late = false;
    assert_int_equal(uv_timer_start(&r->watchdog, on_watchdog, WATCHDOG_MS, 0), 0);
    while (!holds(what)) {
        uv_run(&r->loop, UV_RUN_ONCE);
        if (r->late)
            fail_msg("what was waited for did not happen; the syncer says:\n%s", r->log);
    }
    uv_timer_stop(&r->watchdog);
}

static bool is_set(const void *what)
{
    return *(const bool *)what;
}

void reduce_rig_wait(struct reduce_rig *r, const bool *flag)
{
    wait_for(r, is_set, flag);
}

struct counted {
    const uint32_t *count;
    uint32_t value;
};

static bool is_reached(const void *what)
{
    const struct counted *c = what;
    return *c->count >= c->value;
}

void reduce_rig_wait_count(struct reduce_rig *r, const uint32_t *count, uint32_t value)
{
    struct counted c = {count, value};
    wait_for(r, is_reached, &c);
}

struct logged {
    const char *log, *text;
};

static bool is_logged(const void *what)
{
    const struct logged *l = what;
    return strstr(l->log, l->text) != NULL;
}

void reduce_rig_wait_log(struct reduce_rig *r, const char *text)
{
    struct logged l = {r->log, text};
    wait_for(r, is_logged, &l);
}

void reduce_rig_status(struct reduce_rig *r, const char *member, double *value)
{
    struct pl_buf text;
    json_t *root;
    pl_buf_init(&text, &r->alloc, 1 << 20);
    assert_int_equal(pl_reduce_host_status(r->host, true, &text), PELAGO_OK);
    assert_int_equal(pl_json_parse((struct pl_bytes){text.data, text.len}, "status", &root, NULL), PELAGO_OK);
    struct pl_json j = {root, "status", NULL};
    assert_int_equal(pl_json_real(&j, member, value), PELAGO_OK);
    json_decref(root);
    pl_buf_release(&text);
}

/* ---- a peer by hand ---- */

static void take_mean(struct reduce_peer *p, const struct pl_msg_reduce *m)
{
    assert_true(m->bucket < REDUCE_PEER_BUCKETS);
    p->means++;
    p->mean_round = m->round;
    free(p->mean[m->bucket]);
    p->mean[m->bucket] = malloc(m->bytes.len);
    memcpy(p->mean[m->bucket], m->bytes.data, m->bytes.len);
}

static void peer_opened(void *user, struct pl_conn *conn, const struct pl_peer *peer)
{
    struct reduce_peer *p = user;
    (void)conn;
    (void)peer;
    p->opened = true;
}

static void peer_frame(void *user, struct pl_conn *conn, const struct pl_frame *frame)
{
    struct reduce_peer *p = user;
    struct pl_msg m;
    struct pl_error err;
    (void)conn;
    if (pl_msg_decode(frame->type, frame->payload, frame->payload_len, &m, &err) != PELAGO_OK)
        fail_msg("%s", err.text);
    if (m.type == PL_MSG_PLACE) {
        p->place = m.u.place;
        p->is_placed = true;
    } else if (m.type == PL_MSG_REDUCE) {
        take_mean(p, &m.u.reduce);
    } else if (m.type == PL_MSG_GIVE) {
        p->give = m.u.give;
        p->gives++;
    } else if (m.type == PL_MSG_STATE) {
        assert_int_equal(m.u.state.at, p->state_values);
        p->state_values += m.u.state.bytes.len / 4;
        p->states++;
    } else if (m.type == PL_MSG_END) {
        p->end_code = m.u.end.code;
        memcpy(p->end_text, m.u.end.text.data, m.u.end.text.len);
        p->end_text[m.u.end.text.len] = '\0';
        p->ended = true;
    }
}

static void peer_bad(void *user, struct pl_conn *conn, const struct pl_error *err)
{
    (void)user;
    (void)conn;
    fail_msg("%s", err->text);
}

static void peer_drained(void *user, struct pl_conn *conn)
{
    (void)user;
    (void)conn;
}

static void peer_closed(void *user, struct pl_conn *conn, const struct pl_error *why)
{
    struct reduce_peer *p = user;
    (void)conn;
    (void)why;
    p->conn = NULL;
    p->closed = true;
}

static const struct pl_conn_ops peer_ops = {peer_opened, peer_frame, peer_bad, peer_drained, peer_closed};

void reduce_peer_init(struct reduce_peer *p, struct reduce_rig *r, uint64_t identity)
{
    *p = (struct reduce_peer){.rig = r};
    net_enrol(&r->ca, PL_ROLE_LEARNER, identity, 0, 86400, &p->own);
}

void reduce_peer_dial(struct reduce_peer *p)
{
    const struct pl_net_options o = {
        .loop = &p->rig->loop, .alloc = &p->rig->alloc, .own = &p->own, .frame_max = PL_MSG_STATE_BYTES_MAX};
    p->opened = p->closed = p->is_placed = p->ended = false;
    p->conn = pl_dial(&o, p->rig->listen, 0, &peer_ops, p);
    assert_non_null(p->conn);
    reduce_rig_wait(p->rig, &p->opened);
}

void reduce_peer_message(struct reduce_peer *p, const struct pl_msg *msg)
{
    assert_true(pl_conn_send(p->conn, msg));
}

void reduce_peer_enter(struct reduce_peer *p, uint64_t round, bool fresh)
{
    struct pl_msg msg = {.type = PL_MSG_ENTER,
                         .u.enter = {.run_id = p->rig->settings.run_id,
                                     .settings_digest = p->rig->settings_digest,
                                     .round = round,
                                     .flags = fresh ? 1 : 0}};
    reduce_peer_dial(p);
    reduce_peer_message(p, &msg);
}

void reduce_peer_send(struct reduce_peer *p, uint64_t round, uint32_t bucket, const uint8_t *bytes)
{
    struct pl_msg msg = {.type = PL_MSG_REDUCE,
                         .u.reduce = {.round = round,
                                      .bucket = bucket,
                                      .bytes = {bytes, pl_reduce_bucket(&p->rig->plan, bucket).bytes}}};
    reduce_peer_message(p, &msg);
}

void reduce_peer_drop(struct reduce_peer *p)
{
    if (p->conn != NULL)
        pl_conn_close(p->conn, 0);
    p->conn = NULL;
}

void reduce_peer_release(struct reduce_peer *p)
{
    reduce_peer_drop(p);
    for (unsigned i = 0; i < REDUCE_PEER_BUCKETS; i++)
        free(p->mean[i]);
}

/* ---- a whole learner ---- */

static void learner_log(void *user, const char *line)
{
    struct reduce_learner_rig *l = user;
    append(l->log, sizeof l->log, line);
}

static void learner_done(void *user, const struct pl_error *why)
{
    struct reduce_learner_rig *l = user;
    l->done = true;
    l->why = *why;
}

void reduce_learner_init(struct reduce_learner_rig *l, struct reduce_rig *r, uint64_t identity)
{
    struct pl_posix_dir *dir, *home;
    struct pl_credentials own;
    struct pl_error err = {0};
    struct pl_buf text;
    char name[32];
    memset(l, 0, sizeof *l);
    l->rig = r;
    snprintf(name, sizeof name, "learner%u", (unsigned)identity);
    snprintf(l->folder, sizeof l->folder, "%s", tempdir_path(&r->dir, name));
    net_enrol(&r->ca, PL_ROLE_LEARNER, identity, 0, 86400, &own);
    assert_int_equal(pl_posix_dir_open(&dir, &r->alloc, l->folder, PL_POSIX_DIR_CREATE, &err), PELAGO_OK);
    assert_int_equal(pl_posix_dir_open(&home, &r->alloc, r->folder, PL_POSIX_DIR_EXISTING, &err), PELAGO_OK);
    pl_buf_init(&text, &r->alloc, 1 << 20);
    assert_int_equal(pl_home_read(home, "settings.json", &text, &err), PELAGO_OK);
    assert_int_equal(pl_home_write(dir, "settings.json", (struct pl_bytes){text.data, text.len}, false, &err),
                     PELAGO_OK);
    assert_int_equal(
        pl_home_write(dir, "address", (struct pl_bytes){r->listen, strlen(r->listen)}, false, &err),
        PELAGO_OK);
    assert_int_equal(pl_home_save_credentials(dir, "credentials", &own, &err), PELAGO_OK);
    pl_buf_release(&text);
    pl_posix_dir_close(home);
    pl_posix_dir_close(dir);
    l->o = (struct pl_learner_host_options){.loop = &r->loop,
                                            .alloc = &r->alloc,
                                            .folder = l->folder,
                                            .threads = 1,
                                            .speed = 1,
                                            .log = learner_log,
                                            .done = learner_done,
                                            .user = l};
}

void reduce_learner_begin(struct reduce_learner_rig *l)
{
    struct pl_error err = {0};
    l->done = false;
    if (pl_reduce_learner_start(&l->learner, &l->o, &err) != PELAGO_OK)
        fail_msg("%s", err.text);
}

void reduce_learner_end(struct reduce_learner_rig *l)
{
    if (l->learner == NULL)
        return;
    if (!l->done)
        pl_reduce_learner_quit(l->learner);
    reduce_rig_wait(l->rig, &l->done);
    pl_reduce_learner_free(l->learner);
    l->learner = NULL;
}
