/* support/syncer_rig.c - see syncer_rig.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "net_rig.h"
#include "syncer_rig.h"

#include "host/home.h"
#include "os/clock.h"
#include "train/json.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define PATIENCE_NS (60 * PL_SEC)

static void on_log(void *user, const char *line)
{
    struct syncer_rig *r = user;
    size_t len = strlen(line);
    if (r->log_len + len + 2 > sizeof r->log)
        return;
    memcpy(r->log + r->log_len, line, len);
    r->log[r->log_len + len] = '\n';
    r->log_len += len + 1;
    r->log[r->log_len] = '\0';
}

static void on_finished(void *user)
{
    struct syncer_rig *r = user;
    r->finished = true;
}

static void on_failed(void *user, const struct pl_error *why)
{
    struct syncer_rig *r = user;
    r->failed = true;
    r->why = *why;
}

static void on_stopped(void *user)
{
    struct syncer_rig *r = user;
    r->stopped = true;
}

void syncer_rig_init(struct syncer_rig *r, uint32_t learners)
{
    memset(r, 0, sizeof *r);
    tempdir_init(&r->temp);
    (void)snprintf(r->folder, sizeof r->folder, "%s/syncer", r->temp.path);
    (void)snprintf(r->listen, sizeof r->listen, "127.0.0.1:0");
    island_run_defaults(&r->run, learners);
    assert_int_equal(uv_loop_init(&r->loop), 0);
    r->options = (struct pl_syncer_host_options){.loop = &r->loop,
                                                 .alloc = &r->run.alloc,
                                                 .folder = r->folder,
                                                 .listen = r->listen,
                                                 .learners_max = 32,
                                                 .threads = 1,
                                                 .log = on_log,
                                                 .finished = on_finished,
                                                 .failed = on_failed,
                                                 .user = r};
}

void syncer_rig_create(struct syncer_rig *r)
{
    static const char tokenizer[] = "{\"tokenizer\": true}";
    struct pl_error err = {.text = ""};
    island_run_build(&r->run);
    if (pl_syncer_host_create(&r->run.alloc, r->folder, &r->run.settings,
                              (struct pl_bytes){tokenizer, sizeof tokenizer - 1}, &err) != PELAGO_OK)
        fail_msg("%s", err.text);
}

void syncer_rig_start(struct syncer_rig *r)
{
    struct pl_error err = {.text = ""};
    if (pl_syncer_host_start(&r->host, &r->options, &err) != PELAGO_OK)
        fail_msg("%s\n%s", err.text, r->log);
    (void)snprintf(r->listen, sizeof r->listen, "%s", pl_syncer_host_address(r->host));
    r->stopped = r->failed = false;
}

static bool has_stopped(struct syncer_rig *r)
{
    return r->stopped;
}

void syncer_rig_stop(struct syncer_rig *r)
{
    pl_syncer_host_stop(r->host, on_stopped, r);
    r->host = NULL;
    syncer_rig_until(r, has_stopped);
}

void syncer_rig_release(struct syncer_rig *r)
{
    for (uint32_t i = 0; i < r->island_count; i++)
        island_stop(&r->islands[i]);
    if (r->host != NULL)
        syncer_rig_stop(r);
    (void)uv_run(&r->loop, UV_RUN_DEFAULT);
    for (uint32_t i = 0; i < r->island_count; i++)
        island_release(&r->islands[i]);
    assert_int_equal(uv_loop_close(&r->loop), 0);
    island_run_release(&r->run);
    tempdir_release(&r->temp);
}

void syncer_rig_member(struct syncer_rig *r, enum pl_role role, uint64_t identity, struct pl_credentials *out)
{
    struct pl_posix_dir *dir;
    struct pl_credentials ca;
    assert_int_equal(pl_posix_dir_open(&dir, &r->run.alloc, r->folder, PL_POSIX_DIR_EXISTING, NULL),
                     PELAGO_OK);
    assert_int_equal(pl_home_load_credentials(dir, "authority", &r->run.alloc, &ca, NULL), PELAGO_OK);
    pl_posix_dir_close(dir);
    *out = (struct pl_credentials){.run_id = ca.run_id};
    net_enrol(&ca, role, identity, 0, 3600, out);
}

struct island *syncer_rig_island(struct syncer_rig *r, uint64_t identity)
{
    struct pl_credentials own;
    assert_true(r->island_count < RIG_ISLANDS);
    struct island *is = &r->islands[r->island_count++];
    syncer_rig_member(r, PL_ROLE_LEARNER, identity, &own);
    island_start(is, &r->run, &r->loop, &own, r->listen);
    return is;
}

static void on_tick(uv_timer_t *timer)
{
    (void)timer;
}

static void on_tick_closed(uv_handle_t *handle)
{
    *(bool *)handle->data = true;
}

void syncer_rig_until(struct syncer_rig *r, bool (*holds)(struct syncer_rig *r))
{
    uint64_t end = pl_clock_ns() + PATIENCE_NS;
    uv_timer_t tick;
    bool closed = false;
    (void)uv_timer_init(&r->loop, &tick);
    tick.data = &closed;
    (void)uv_timer_start(&tick, on_tick, 10, 10);
    while (!holds(r)) {
        if (pl_clock_ns() > end)
            fail_msg("it did not happen in time; the log:\n%s", r->log);
        (void)uv_run(&r->loop, UV_RUN_ONCE);
    }
    uv_close((uv_handle_t *)&tick, on_tick_closed);
    while (!closed)
        (void)uv_run(&r->loop, UV_RUN_ONCE);
}

static uint64_t wanted_version;

static bool all_there(struct syncer_rig *r)
{
    for (uint32_t i = 0; i < r->island_count; i++)
        if (island_version(&r->islands[i]) < wanted_version)
            return false;
    return true;
}

void syncer_rig_reach(struct syncer_rig *r, uint64_t version)
{
    wanted_version = version;
    syncer_rig_until(r, all_there);
}

bool syncer_rig_logged(const struct syncer_rig *r, const char *text)
{
    return strstr(r->log, text) != NULL;
}

static json_t *status(struct syncer_rig *r)
{
    struct pl_buf text;
    json_t *root = NULL;
    pl_buf_init(&text, &r->run.alloc, 1 << 24);
    assert_int_equal(pl_syncer_host_status(r->host, true, &text), PELAGO_OK);
    assert_int_equal(pl_json_parse((struct pl_bytes){text.data, text.len}, "status", &root, NULL), PELAGO_OK);
    pl_buf_release(&text);
    return root;
}

uint64_t syncer_rig_count(struct syncer_rig *r, const char *member)
{
    json_t *root = status(r);
    const struct pl_json j = {root, "status", NULL};
    uint64_t v = 0;
    if (pl_json_count(&j, member, UINT64_MAX, &v) != PELAGO_OK)
        fail_msg("status has no count %s", member);
    json_decref(root);
    return v;
}

void syncer_rig_versions(struct syncer_rig *r, uint64_t *versions, uint64_t *digests)
{
    json_t *root = status(r), *item;
    size_t index;
    json_array_foreach(json_object_get(root, "fragments"), index, item)
    {
        uint64_t fragment = (uint64_t)json_integer_value(json_object_get(item, "fragment"));
        versions[fragment] = (uint64_t)json_integer_value(json_object_get(item, "version"));
        assert_true(pl_json_bits_of(json_object_get(item, "digest"), &digests[fragment]));
    }
    json_decref(root);
}

/* ---- beside the loop ---- */

struct beside {
    void (*fn)(void *user);
    void *user;
    atomic_bool over;
};
static struct beside *beside_now;

static void *beside_run(void *arg)
{
    struct beside *b = arg;
    b->fn(b->user);
    atomic_store(&b->over, true);
    return NULL;
}

static bool beside_over(struct syncer_rig *r)
{
    (void)r;
    return atomic_load(&beside_now->over);
}

void syncer_rig_beside(struct syncer_rig *r, void (*fn)(void *user), void *user)
{
    struct beside b = {.fn = fn, .user = user};
    pthread_t thread;
    beside_now = &b;
    assert_int_equal(pthread_create(&thread, NULL, beside_run, &b), 0);
    syncer_rig_until(r, beside_over);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

/* ---- one call ---- */

static void call_opened(void *user, struct pl_conn *c, const struct pl_peer *peer)
{
    struct rig_call *k = user;
    (void)peer;
    for (uint32_t i = 0; k->msg != NULL && i < k->times; i++)
        (void)pl_conn_send(c, k->msg);
}

static void call_frame(void *user, struct pl_conn *c, const struct pl_frame *frame)
{
    struct rig_call *k = user;
    struct pl_msg m;
    (void)c;
    assert_int_equal(pl_msg_decode(frame->type, frame->payload, frame->payload_len, &m, NULL), PELAGO_OK);
    k->answers += m.type == PL_MSG_ANSWER || m.type == PL_MSG_ENROLLED ? 1 : 0;
    if (m.type != PL_MSG_REFUSE && m.type != PL_MSG_CLOSE)
        return;
    const struct pl_blob *text = m.type == PL_MSG_REFUSE ? &m.u.refuse.text : &m.u.close.text;
    k->code = m.type == PL_MSG_REFUSE ? m.u.refuse.code : m.u.close.code;
    memcpy(k->text, text->data, text->len);
    k->text[text->len] = '\0';
}

static void call_bad(void *user, struct pl_conn *c, const struct pl_error *err)
{
    (void)user;
    (void)c;
    fail_msg("%s", err->text);
}

static void call_drained(void *user, struct pl_conn *c)
{
    (void)user;
    (void)c;
}

static void call_closed(void *user, struct pl_conn *c, const struct pl_error *why)
{
    struct rig_call *k = user;
    (void)c;
    (void)why;
    k->closed = true;
}

static struct rig_call *call_now;

static bool call_over(struct syncer_rig *r)
{
    (void)r;
    return call_now->closed;
}

void syncer_rig_dial(struct syncer_rig *r, const struct pl_credentials *own, const struct pl_msg *msg,
                     uint32_t times, struct rig_call *out)
{
    static const struct pl_conn_ops ops = {call_opened, call_frame, call_bad, call_drained, call_closed};
    const struct pl_net_options net = {
        .loop = &r->loop, .alloc = &r->run.alloc, .own = own, .frame_max = 1 << 20};
    *out = (struct rig_call){.msg = msg, .times = times};
    out->conn = pl_dial(&net, r->listen, 0, &ops, out);
    assert_non_null(out->conn);
}

void syncer_rig_wait(struct syncer_rig *r, struct rig_call *call)
{
    call_now = call;
    syncer_rig_until(r, call_over);
}

void syncer_rig_call(struct syncer_rig *r, const struct pl_credentials *own, const struct pl_msg *msg,
                     struct rig_call *out)
{
    syncer_rig_dial(r, own, msg, 1, out);
    syncer_rig_wait(r, out);
}
