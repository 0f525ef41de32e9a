/* host/door.c - see door.h. One call is one connection on a loop of its own: dial, say one thing, wait for one answer. */
#include "host/door.h"

#include "base/check.h"
#include "os/clock.h"

#include <string.h>

struct call {
    uv_loop_t loop;
    uv_timer_t timer;
    struct pl_conn *conn; /* NULL: gone */
    const struct pl_msg *question;
    uint8_t expected; /* type of the answer */
    enum pelago_status (*take)(void *user, const struct pl_msg *answer, struct pl_error *err);
    void *user;
    enum pelago_status status;
    struct pl_error *err;
    bool over;
};

static void finish(struct call *c, enum pelago_status status)
{
    if (c->over)
        return;
    c->over = true;
    c->status = status;
    if (c->conn != NULL)
        pl_conn_close(c->conn, 0);
    c->conn = NULL;
    uv_stop(&c->loop);
}

static void on_opened(void *user, struct pl_conn *conn, const struct pl_peer *peer)
{
    struct call *c = user;
    (void)peer;
    (void)pl_conn_send(conn, c->question); /* where it does not fit, closed() follows */
}

static void refused(struct call *c, const struct pl_msg_refuse *r)
{
    char text[PL_TEXT_MAX + 1] = "";
    pl_assert(r->text.len <= PL_TEXT_MAX);
    if (r->text.len > 0)
        memcpy(text, r->text.data, r->text.len);
    (void)pl_fail(c->err, PELAGO_DENIED, "the syncer refused: %s",
                  text[0] != '\0' ? text : pl_reason_text(r->code));
    finish(c, PELAGO_DENIED);
}

static void on_frame(void *user, struct pl_conn *conn, const struct pl_frame *frame)
{
    struct call *c = user;
    struct pl_msg msg;
    (void)conn;
    if (!pl_msg_allowed(frame->type, PL_CHANNEL_DOOR, PL_SENDER_SYNCER)) {
        finish(c, pl_fail(c->err, PELAGO_PROTO, "the syncer sent something that does not belong here: %s",
                          pl_msg_info(frame->type)->name));
        return;
    }
    enum pelago_status st = pl_msg_decode(frame->type, frame->payload, frame->payload_len, &msg, c->err);
    if (st != PELAGO_OK)
        finish(c, st);
    else if (msg.type == PL_MSG_REFUSE)
        refused(c, &msg.u.refuse);
    else if (msg.type == c->expected)
        finish(c, c->take(c->user, &msg, c->err));
    else
        finish(c, pl_fail(c->err, PELAGO_PROTO, "the syncer answered something else than was asked"));
}

static void on_bad(void *user, struct pl_conn *conn, const struct pl_error *err)
{
    struct call *c = user;
    (void)conn;
    finish(c, pl_fail(c->err, err->status, "%s", err->text));
}

static void on_drained(void *user, struct pl_conn *conn)
{
    (void)user;
    (void)conn;
}

static void on_closed(void *user, struct pl_conn *conn, const struct pl_error *why)
{
    struct call *c = user;
    (void)conn;
    c->conn = NULL;
    finish(c, pl_fail(c->err, why->status == PELAGO_OK ? PELAGO_UNREACHABLE : why->status, "%s", why->text));
}

static const struct pl_conn_ops ops = {on_opened, on_frame, on_bad, on_drained, on_closed};

static void on_timeout(uv_timer_t *timer)
{
    struct call *c = timer->data;
    finish(c, pl_fail(c->err, PELAGO_UNREACHABLE, "the syncer did not answer in time"));
}

static void close_handle(uv_handle_t *handle, void *user)
{
    (void)user;
    if (!uv_is_closing(handle))
        uv_close(handle, NULL);
}

/* Dials, asks, waits. */
static enum pelago_status perform(struct call *c, const struct pl_alloc *alloc, const char *address,
                                  uint32_t shard, const struct pl_credentials *own, uint64_t patience_ns)
{
    struct pl_net_options net = {
        .loop = &c->loop, .alloc = alloc, .own = own, .frame_max = PL_FRAME_BYTES_MAX};
    if (uv_loop_init(&c->loop) != 0)
        return pl_fail(c->err, PELAGO_NOMEM, "there is no memory for a connection");
    (void)uv_timer_init(&c->loop, &c->timer);
    c->timer.data = c;
    c->conn = pl_dial(&net, address, shard, &ops, c);
    if (c->conn == NULL) {
        c->status = pl_fail(c->err, PELAGO_NOMEM, "there is no memory for a connection");
    } else {
        (void)uv_timer_start(&c->timer, on_timeout, patience_ns / PL_MS + 1, 0);
        (void)uv_run(&c->loop, UV_RUN_DEFAULT);
    }
    uv_close((uv_handle_t *)&c->timer, NULL);
    (void)uv_run(&c->loop, UV_RUN_DEFAULT); /* what the connection still has to close */
    if (uv_loop_close(&c->loop) != 0) {
        uv_walk(&c->loop, close_handle, NULL);
        (void)uv_run(&c->loop, UV_RUN_DEFAULT);
        (void)uv_loop_close(&c->loop);
    }
    return c->status;
}

/* ---- questions ---- */

struct answer {
    uint32_t what;
    struct pl_buf *out;
};

static enum pelago_status take_answer(void *user, const struct pl_msg *msg, struct pl_error *err)
{
    struct answer *a = user;
    if (msg->u.answer.what != a->what)
        return pl_fail(err, PELAGO_PROTO, "the syncer answered another question");
    enum pelago_status st = pl_buf_append(a->out, msg->u.answer.bytes.data, msg->u.answer.bytes.len);
    return st == PELAGO_OK
               ? st
               : pl_fail(err, st, "the syncer's answer of %u bytes is too long", msg->u.answer.bytes.len);
}

enum pelago_status pl_door_ask(const struct pl_alloc *alloc, const char *address,
                               const struct pl_credentials *own, const struct pl_question *q,
                               uint64_t patience_ns, struct pl_buf *out, struct pl_error *err)
{
    struct answer a = {q->what, out};
    struct pl_msg msg = {
        .type = PL_MSG_ASK,
        .u.ask = {.what = q->what, .uses = q->uses, .seconds = q->seconds, .role = (uint8_t)q->role}};
    if (q->text != NULL) {
        if (strlen(q->text) > PL_TEXT_MAX)
            return pl_fail(err, PELAGO_LIMIT, "the address is longer than %u bytes", (unsigned)PL_TEXT_MAX);
        msg.u.ask.text = (struct pl_blob){(const uint8_t *)q->text, (uint32_t)strlen(q->text)};
    }
    struct call c = {
        .question = &msg, .expected = PL_MSG_ANSWER, .take = take_answer, .user = &a, .err = err};
    return perform(&c, alloc, address, q->shard, own, patience_ns);
}

/* ---- enrolment ---- */

struct enrolment {
    struct pl_credentials *own;
    int64_t *skew_s;
};

static enum pelago_status take_certificate(void *user, const struct pl_msg *msg, struct pl_error *err)
{
    struct enrolment *e = user;
    const struct pl_msg_enrolled *m = &msg->u.enrolled;
    PL_TRY(pl_pki_accept(e->own, m->certificate.data, m->certificate.len, err));
    if (e->own->identity != m->identity)
        return pl_fail(err, PELAGO_PROTO, "the certificate names another identity than the syncer's answer");
    if (e->skew_s != NULL)
        *e->skew_s = (int64_t)pl_date_s() - (int64_t)m->time_s;
    return PELAGO_OK;
}

static enum pelago_status enrol(const struct pl_alloc *alloc, const char *address,
                                const struct pl_msg_enrol *ask, uint64_t patience_ns,
                                struct pl_credentials *own, int64_t *skew_s, struct pl_error *err)
{
    uint8_t request[PL_CERTIFICATE_BYTES_MAX];
    struct enrolment e = {own, skew_s};
    uint32_t len;
    PL_TRY(pl_pki_request(own, request, sizeof request, &len, err));
    struct pl_msg msg = {.type = PL_MSG_ENROL, .u.enrol = *ask};
    msg.u.enrol.request = (struct pl_blob){request, len};
    struct call c = {
        .question = &msg, .expected = PL_MSG_ENROLLED, .take = take_certificate, .user = &e, .err = err};
    return perform(&c, alloc, address, 0, own, patience_ns);
}

enum pelago_status pl_door_enrol(const struct pl_alloc *alloc, const struct pl_token *token,
                                 enum pl_role role, uint32_t shard, uint64_t patience_ns,
                                 struct pl_credentials *own, int64_t *skew_s, struct pl_error *err)
{
    if (own->key_len == 0 || own->role != PL_ROLE_NONE) {
        *own = (struct pl_credentials){.role = PL_ROLE_NONE};
        PL_TRY(pl_pki_new_key(own, err));
    }
    memcpy(own->fingerprint, token->fingerprint, sizeof own->fingerprint);
    struct pl_msg_enrol ask = {.token = token->number,
                               .secret = {token->secret, sizeof token->secret},
                               .role = (uint8_t)role,
                               .shard = shard};
    return enrol(alloc, token->address, &ask, patience_ns, own, skew_s, err);
}

enum pelago_status pl_door_renew(const struct pl_alloc *alloc, const char *address, uint64_t patience_ns,
                                 struct pl_credentials *own, struct pl_error *err)
{
    struct pl_msg_enrol ask = {.token = 0, .role = (uint8_t)own->role, .shard = own->shard};
    return enrol(alloc, address, &ask, patience_ns, own, NULL, err);
}
