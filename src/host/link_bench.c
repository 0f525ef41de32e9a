/* host/link_bench.c - see link_bench.h. The last word is a PING; the PONG's number is the receiver's time. */
#include "host/link_bench.h"

#include "base/check.h"

#include <sys/resource.h>

enum { RUN_ID = 1, IDENTITY = 1, CERTIFICATE_S = 24 * 3600 };

struct end {
    const struct pl_link_bench *b;
    struct pl_link_result *r;
    uv_loop_t loop;
    uv_timer_t timer;
    struct pl_conn *conn;
    struct pl_listener *listener;
    uint8_t *payload;
    size_t frame_bytes;
    uint64_t first_ns, last_ns; /* receiver */
    bool timed;                 /* the timer is to be closed */
    bool asked, done;
    struct pl_error err;
};

static enum pelago_status enrol(const struct pl_credentials *ca, enum pl_role role,
                                struct pl_credentials *out, struct pl_error *err)
{
    uint8_t request[PL_CERTIFICATE_BYTES_MAX], certificate[2 * PL_CERTIFICATE_BYTES_MAX];
    uint32_t request_len, len;
    const struct pl_grant grant = {role, IDENTITY, 0, CERTIFICATE_S};
    PL_TRY(pl_pki_new_key(out, err));
    memcpy(out->fingerprint, ca->fingerprint, sizeof out->fingerprint);
    PL_TRY(pl_pki_request(out, request, sizeof request, &request_len, err));
    PL_TRY(pl_pki_issue(ca, request, request_len, &grant, certificate, sizeof certificate, &len, err));
    return pl_pki_accept(out, certificate, len, err);
}

enum pelago_status pl_link_bench_credentials(struct pl_credentials *shard, struct pl_credentials *learner,
                                             struct pl_error *err)
{
    struct pl_credentials ca;
    PL_TRY(pl_pki_new_authority(&ca, RUN_ID, err));
    PL_TRY(enrol(&ca, PL_ROLE_SHARD, shard, err));
    return enrol(&ca, PL_ROLE_LEARNER, learner, err);
}

static double cpu_seconds(void)
{
    struct rusage u;
    (void)getrusage(RUSAGE_SELF, &u);
    return (double)u.ru_utime.tv_sec + (double)u.ru_stime.tv_sec +
           1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static void on_bad(void *user, struct pl_conn *c, const struct pl_error *err)
{
    struct end *e = user;
    e->err = *err;
    e->conn = NULL;
    pl_conn_close(c, 0);
}

static void finish(struct end *e)
{
    if (e->listener != NULL)
        pl_listener_close(e->listener);
    if (e->timed)
        uv_close((uv_handle_t *)&e->timer, NULL);
    (void)uv_run(&e->loop, UV_RUN_DEFAULT);
    pl_assert(uv_loop_close(&e->loop) == 0);
}

/* --- receiving --- */

static void on_visitor(void *user, struct pl_conn *c, const struct pl_peer *peer)
{
    struct end *e = user;
    (void)peer;
    if (e->conn != NULL || e->done)
        pl_conn_close(c, 0);
    else
        e->conn = c;
}

static void on_received(void *user, struct pl_conn *c, const struct pl_frame *frame)
{
    struct end *e = user;
    uint64_t now = uv_hrtime();
    const struct pl_msg pong = {.type = PL_MSG_PONG, .u.pong = {e->last_ns - e->first_ns}};
    if (frame->type == PL_MSG_PING) {
        (void)pl_conn_send(c, &pong);
        return;
    }
    e->first_ns = e->first_ns == 0 ? now : e->first_ns;
    e->last_ns = now;
}

static void on_receiver_closed(void *user, struct pl_conn *c, const struct pl_error *why)
{
    struct end *e = user;
    (void)c;
    (void)why;
    e->done = true;
    e->conn = NULL;
}

static void on_drained_idle(void *user, struct pl_conn *c)
{
    (void)user;
    (void)c;
}

enum pelago_status pl_link_bench_serve(const struct pl_credentials *own, const char *address,
                                       void (*ready)(void *user, uint32_t port), void *user,
                                       struct pl_error *err)
{
    static const struct pl_conn_ops ops = {on_visitor, on_received, on_bad, on_drained_idle,
                                           on_receiver_closed};
    const struct pl_alloc alloc = pl_alloc_system();
    struct end e = {.err = {.status = PELAGO_OK}};
    pl_assert(uv_loop_init(&e.loop) == 0);
    const struct pl_net_options o = {
        .loop = &e.loop, .alloc = &alloc, .own = own, .frame_max = PL_FRAME_BYTES_MAX};
    enum pelago_status st = pl_listen(&e.listener, &o, address, &ops, &e, err);
    if (st == PELAGO_OK) {
        ready(user, pl_listener_port(e.listener));
        while (!e.done && e.err.status == PELAGO_OK)
            (void)uv_run(&e.loop, UV_RUN_ONCE);
        if (e.err.status != PELAGO_OK)
            st = pl_fail(err, e.err.status, "%s", e.err.text);
    }
    finish(&e);
    return st;
}

/* --- sending --- */

static void push(void *user, struct pl_conn *c)
{
    struct end *e = user;
    const struct pl_msg m = {.type = PL_MSG_DATA, .u.data = {.bytes = {e->payload, e->b->frame_bytes}}};
    e->frame_bytes = pl_msg_payload_bytes(&m);
    while (!e->asked && pl_conn_room(c) && pl_conn_send(c, &m))
        e->r->bytes += e->frame_bytes;
}

static void on_time(uv_timer_t *timer)
{
    struct end *e = timer->data;
    const struct pl_msg ping = {.type = PL_MSG_PING};
    if (e->conn == NULL || e->asked)
        return;
    e->asked = true;
    (void)pl_conn_send(e->conn, &ping);
}

static void on_opened(void *user, struct pl_conn *c, const struct pl_peer *peer)
{
    struct end *e = user;
    (void)peer;
    uv_update_time(&e->loop);
    pl_assert(uv_timer_start(&e->timer, on_time, (uint64_t)(e->b->seconds * 1000), 0) == 0);
    push(user, c);
}

static void on_answer(void *user, struct pl_conn *c, const struct pl_frame *frame)
{
    struct end *e = user;
    struct pl_msg m;
    struct pl_conn_view view;
    if (pl_msg_decode(frame->type, frame->payload, frame->payload_len, &m, &e->err) != PELAGO_OK)
        return;
    pl_conn_view(c, &view);
    e->r->rtt_ns = view.rtt_ns;
    e->r->streams = view.streams;
    e->r->span_ns = m.type == PL_MSG_PONG ? m.u.pong.nonce : 0;
    e->r->bytes -= e->frame_bytes; /* the time begins when the first is there */
    e->done = true;
    e->conn = NULL;
    pl_conn_close(c, PL_SEC);
}

static void on_closed(void *user, struct pl_conn *c, const struct pl_error *why)
{
    struct end *e = user;
    (void)c;
    e->err = *why;
    e->conn = NULL;
}

static enum pelago_status run_sender(struct end *e, const struct pl_alloc *alloc, struct pl_error *err)
{
    static const struct pl_conn_ops ops = {on_opened, on_answer, on_bad, push, on_closed};
    const struct pl_net_options o = {.loop = &e->loop,
                                     .alloc = alloc,
                                     .own = e->b->own,
                                     .frame_max = PL_FRAME_BYTES_MAX,
                                     .streams = (uint8_t)e->b->streams};
    e->conn = pl_dial(&o, e->b->address, PL_NONE32, &ops, e);
    if (e->conn == NULL)
        return pl_fail(err, PELAGO_NOMEM, "out of memory for a connection");
    double before = cpu_seconds();
    while (!e->done && e->err.status == PELAGO_OK)
        (void)uv_run(&e->loop, UV_RUN_ONCE);
    e->r->cpu_s = cpu_seconds() - before;
    if (e->err.status != PELAGO_OK)
        return pl_fail(err, e->err.status, "%s", e->err.text);
    if (e->r->span_ns == 0)
        return pl_fail(err, PELAGO_LIMIT, "too little was sent to measure: give it more seconds");
    return PELAGO_OK;
}

enum pelago_status pl_link_bench_send(const struct pl_link_bench *b, struct pl_link_result *r,
                                      struct pl_error *err)
{
    const struct pl_alloc alloc = pl_alloc_system();
    struct end e = {.b = b, .r = r, .timed = true, .err = {.status = PELAGO_OK}};
    pl_assert(b->frame_bytes > 0 && b->frame_bytes <= PL_CHUNK_BYTES_MAX && b->streams <= UINT8_MAX);
    *r = (struct pl_link_result){0};
    e.payload = pl_alloc_zero(&alloc, 1, b->frame_bytes);
    if (e.payload == NULL)
        return pl_fail(err, PELAGO_NOMEM, "out of memory for a frame");
    pl_random(e.payload, b->frame_bytes);
    pl_assert(uv_loop_init(&e.loop) == 0 && uv_timer_init(&e.loop, &e.timer) == 0);
    e.timer.data = &e;
    enum pelago_status st = run_sender(&e, &alloc, err);
    finish(&e);
    pl_alloc_free(&alloc, e.payload, b->frame_bytes);
    return st;
}
