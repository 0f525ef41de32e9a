/* net/conn.c - the life of a connection: handles, deadlines, handshake, end. Bytes are conn_io.c's.
 *
 * Whatever may call back is done from the loop; a call from above that has consequences only sets wake. After every
 * callback the state is looked at again, since the user may have closed the connection in it.
 */
#include "net/conn_int.h"

#include "base/check.h"
#include "base/num.h"

#include <errno.h>
#include <openssl/err.h>
#include <unistd.h>

enum { READ_AHEAD_BYTES = 64 << 10 };

static void on_handle_closed(uv_handle_t *handle)
{
    pl_conn_release(handle->data);
}

void pl_conn_release(struct pl_conn *c)
{
    pl_assert(c->holders > 0);
    if (--c->holders > 0)
        return;
    pl_assert(c->state == PL_CONN_DEAD && c->listener == NULL && c->dial == NULL);
    SSL_free(c->ssl);
    ERR_clear_error();
    pl_conn_end_batch(c);
    pl_queue_release(&c->out);
    pl_input_release(&c->in, c->alloc);
    pl_bundle_release(c);
    pl_alloc_free(c->alloc, c, sizeof *c);
}

struct pl_conn *pl_conn_new(const struct pl_net_options *o, const struct pl_conn_ops *ops, void *user)
{
    pl_assert(o->loop != NULL && o->alloc != NULL && ops->opened != NULL);
    struct pl_conn *c = pl_alloc_zero(o->alloc, 1, sizeof *c);
    if (c == NULL)
        return NULL;
    c->loop = o->loop;
    c->alloc = o->alloc;
    c->ops = *ops;
    c->user = user;
    c->frame_max = o->frame_max;
    c->handshake_ns = o->handshake_ns > 0 ? o->handshake_ns : PL_CONN_HANDSHAKE_NS;
    c->stall_ns = o->stall_ns > 0 ? o->stall_ns : PL_CONN_STALL_NS;
    c->streams = o->streams;
    c->capture = o->capture;
    c->capture_user = o->capture_user;
    c->rekey_at = PL_CONN_REKEY_BYTES;
    c->born_ns = uv_hrtime();
    c->deadline_ns = c->bucket_ns = c->watch_ns = c->timer_ns = PL_NEVER;
    c->pipe = (struct pl_tls_pipe){.fd = -1, .in_max = PL_CONN_STRANGER_BYTES};
    pl_queue_init(&c->out, o->alloc);
    pl_assert(uv_timer_init(c->loop, &c->timer) == 0 && uv_idle_init(c->loop, &c->wake) == 0);
    c->timer.data = c->wake.data = c;
    c->holders = 2;
    return c;
}

static void on_poll(uv_poll_t *handle, int status, int events)
{
    struct pl_conn *c = handle->data;
    bool readable = status < 0 || (events & UV_READABLE) != 0;
    if (status < 0 || (events & UV_WRITABLE) != 0)
        c->blocked = false;
    if (status < 0)
        c->events = 0; /* libuv has stopped; what is still to be read is read first, then the error shows */
    switch (c->state) {
    case PL_CONN_DIALLING:
        pl_dial_connected(c);
        break;
    case PL_CONN_SILENT:
        pl_listener_first_bytes(c);
        break;
    case PL_CONN_HANDSHAKE:
        if (pl_listener_grants_step(c))
            pl_conn_handshake(c);
        break;
    case PL_CONN_OPEN:
        if (readable && (status < 0 || !pl_bundle_is_paused(c)))
            pl_conn_read(c);
        if (!c->blocked)
            pl_conn_write(c);
        break;
    case PL_CONN_FLUSHING:
    case PL_CONN_LINGER:
        if (readable)
            pl_conn_discard(c);
        pl_conn_write(c);
        break;
    case PL_CONN_DEAD:
        return;
    }
    pl_conn_arm(c);
}

int pl_conn_adopt(struct pl_conn *c, int fd)
{
    pl_assert(!c->has_poll);
    int code = uv_poll_init(c->loop, &c->poll, fd);
    if (code != 0) {
        (void)close(fd);
        return -code;
    }
    c->poll.data = c;
    c->has_poll = true;
    c->events = 0;
    c->holders++;
    c->pipe.fd = fd;
    return 0;
}

void pl_conn_poll(struct pl_conn *c, int events)
{
    if (!c->has_poll || events == c->events)
        return;
    c->events = events;
    if (events == 0)
        pl_assert(uv_poll_stop(&c->poll) == 0);
    else
        pl_assert(uv_poll_start(&c->poll, events, on_poll) == 0);
}

static int wanted_events(const struct pl_conn *c)
{
    switch (c->state) {
    case PL_CONN_SILENT:
        return UV_READABLE;
    case PL_CONN_HANDSHAKE:
        return c->blocked ? UV_WRITABLE : UV_READABLE;
    case PL_CONN_OPEN:
        return (pl_bundle_is_paused(c) || c->member.held || c->member.ended ? 0 : UV_READABLE) |
               (c->blocked ? UV_WRITABLE : 0);
    case PL_CONN_FLUSHING:
    case PL_CONN_LINGER:
        return (c->pipe.eof ? 0 : UV_READABLE) | (c->blocked ? UV_WRITABLE : 0);
    case PL_CONN_DIALLING:
        return c->events; /* dial.c's */
    case PL_CONN_DEAD:
        break;
    }
    return 0;
}

static void on_deadline(struct pl_conn *c)
{
    struct pl_error why;
    (void)pl_fail(&why, PELAGO_IO, "the handshake did not end in time");
    if (c->state == PL_CONN_DIALLING)
        pl_dial_timeout(c);
    else if (c->state == PL_CONN_HANDSHAKE && c->check.dialling)
        (void)pl_fail(&why, PELAGO_IO,
                      "%s took the connection but did not finish the handshake: is it a pelago syncer?",
                      c->peer.address);
    if (c->state == PL_CONN_SILENT || c->state == PL_CONN_HANDSHAKE || c->state == PL_CONN_OPEN)
        pl_conn_fail(c, &why);
    else if (c->state == PL_CONN_FLUSHING || c->state == PL_CONN_LINGER)
        pl_conn_destroy(c);
}

/* Without a processor for a while we are late ourselves, and timers come before sockets: what the peer has sent meanwhile
 * has not been looked at. Its deadlines then move by as much, once. */
static void excuse(struct pl_conn *c, uint64_t now)
{
    uint64_t due = pl_min64(c->deadline_ns, c->watch_ns);
    uint64_t late = pl_sub_sat(now, due);
    if (late < PL_LATE_NS || c->excused) {
        c->excused = c->excused && late > 0;
        return;
    }
    c->excused = true;
    if (c->deadline_ns <= now)
        c->deadline_ns = now + late;
    if (c->watch_ns <= now)
        c->watch_ns = now + late;
}

/* libuv's timers come early by up to a millisecond and more: every deadline is compared with the real clock. */
static void on_timer(uv_timer_t *handle)
{
    struct pl_conn *c = handle->data;
    uint64_t now = uv_hrtime();
    c->timer_ns = PL_NEVER;
    excuse(c, now);
    if (now >= c->deadline_ns) {
        c->deadline_ns = PL_NEVER;
        on_deadline(c);
    }
    if (c->state != PL_CONN_DEAD && now >= c->bucket_ns) {
        c->bucket_ns = PL_NEVER;
        pl_conn_write(c);
    }
    if (now >= c->watch_ns) {
        /* In any state: one that has passed and stays would set the timer to now for ever. */
        c->watch_ns = PL_NEVER;
        if (c->state == PL_CONN_OPEN) {
            c->watched = pl_conn_is_busy(c);
            pl_conn_watch(c, now);
        }
    }
    pl_conn_arm(c);
}

static void set_timer(struct pl_conn *c)
{
    uint64_t at = pl_min64(c->deadline_ns, pl_min64(c->bucket_ns, c->watch_ns));
    if (at >= c->timer_ns) /* it comes early enough, and then sets itself again */
        return;
    uint64_t now = uv_hrtime();
    c->timer_ns = at;
    uv_update_time(c->loop);
    /* Never 0: libuv runs such a timer again before it looks at any socket. */
    uint64_t ms = pl_max64((pl_sub_sat(at, now) + PL_MS - 1) / PL_MS, 1);
    pl_assert(uv_timer_start(&c->timer, on_timer, ms, 0) == 0);
}

void pl_conn_arm(struct pl_conn *c)
{
    if (c->state == PL_CONN_DEAD)
        return;
    if (c->state == PL_CONN_OPEN && c->watch_ns == PL_NEVER && pl_conn_is_busy(c)) {
        uint64_t now = uv_hrtime();
        c->watch_ns = now + pl_min64(PL_SEC, c->stall_ns / 4);
        if (!c->watched)
            pl_conn_mark(c, now);
        c->watched = true;
    }
    pl_conn_poll(c, wanted_events(c));
    set_timer(c);
}

static void on_wake(uv_idle_t *handle)
{
    struct pl_conn *c = handle->data;
    (void)uv_idle_stop(&c->wake);
    if (c->failing && c->state != PL_CONN_DEAD) {
        struct pl_error why = c->why;
        pl_conn_fail(c, &why);
        return;
    }
    if (!c->blocked)
        pl_conn_write(c);
    if (c->state == PL_CONN_OPEN && c->hungry && !pl_bundle_is_paused(c))
        pl_conn_read(c);
    pl_conn_arm(c);
}

void pl_conn_wake(struct pl_conn *c)
{
    if (c->state != PL_CONN_DEAD)
        pl_assert(uv_idle_start(&c->wake, on_wake) == 0);
}

bool pl_conn_begin_tls(struct pl_conn *c, SSL_CTX *ctx, const struct pl_tls_own *own, enum pl_tls_kind kind)
{
    pl_assert(c->ssl == NULL && c->pipe.fd >= 0 && c->has_poll);
    c->ssl = pl_tls_new(ctx, own, kind, &c->pipe, &c->check);
    c->state = PL_CONN_HANDSHAKE;
    c->blocked = false;
    return c->ssl != NULL;
}

static void open_up(struct pl_conn *c)
{
    pl_assert(c->state == PL_CONN_HANDSHAKE && SSL_is_init_finished(c->ssl));
    c->state = PL_CONN_OPEN;
    c->deadline_ns = PL_NEVER;
    c->pipe.in_max = UINT64_MAX;
    SSL_set_read_ahead(c->ssl, 1);
    SSL_set_default_read_buffer_len(c->ssl, READ_AHEAD_BYTES);
    c->peer.role = c->check.name.role;
    c->peer.expired = c->check.expired;
    c->peer.identity = c->check.name.identity;
    c->peer.shard = c->check.name.shard;
    if (!pl_bundle_open(c))
        return;
    pl_tls_own_release(&c->own);
    if (c->listener != NULL)
        pl_listener_opened(c);
    pl_conn_wake(c);
    if (!c->member.is_stream)
        c->ops.opened(c->user, c, &c->peer);
}

/* A refused certificate deserves that its owner reads why: the alert is out, and the socket stays until he has it. */
static void let_alert_arrive(struct pl_conn *c, const struct pl_error *why)
{
    pl_assert(c->deadline_ns != PL_NEVER); /* it ends */
    pl_listener_refused(c, why);
    (void)shutdown(c->pipe.fd, SHUT_WR);
    c->state = PL_CONN_LINGER;
}

void pl_conn_handshake(struct pl_conn *c)
{
    struct pl_error why;
    pl_assert(c->state == PL_CONN_HANDSHAKE);
    ERR_clear_error();
    int result = SSL_do_handshake(c->ssl);
    int error = result == 1 ? SSL_ERROR_NONE : SSL_get_error(c->ssl, result);
    c->blocked = error == SSL_ERROR_WANT_WRITE;
    if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE)
        return;
    if (error == SSL_ERROR_NONE && pl_tls_kind(c->ssl) != PL_TLS_OTHER) {
        open_up(c);
        return;
    }
    if (error == SSL_ERROR_NONE)
        (void)pl_fail(&why, PELAGO_PROTO, "%s speaks TLS but not pelago/1: is it a pelago syncer?",
                      c->peer.address);
    else
        (void)pl_tls_explain(false, &c->pipe, &c->check, c->peer.address, &why);
    if (!c->check.dialling && c->check.why.text[0] != '\0' && !c->pipe.eof && c->listener != NULL)
        let_alert_arrive(c, &why);
    else
        pl_conn_fail(c, &why);
}

void pl_conn_break(struct pl_conn *c, const struct pl_error *why)
{
    if (!c->failing)
        c->why = *why;
    c->failing = true;
    pl_conn_wake(c);
}

void pl_conn_fail(struct pl_conn *c, const struct pl_error *why)
{
    pl_assert(c->state != PL_CONN_DEAD);
    if (c->member.is_stream) {
        pl_bundle_fail(c, why);
        return;
    }
    bool known = c->state == PL_CONN_OPEN || c->state == PL_CONN_DIALLING || c->check.dialling;
    bool over = c->state == PL_CONN_FLUSHING || c->state == PL_CONN_LINGER;
    if (!known && !over && c->listener != NULL)
        pl_listener_refused(c, why);
    struct pl_conn_ops ops = c->ops;
    void *user = c->user;
    pl_conn_destroy(c);
    if (known && !over)
        ops.closed(user, c, why);
}

void pl_conn_destroy(struct pl_conn *c)
{
    pl_assert(c->state != PL_CONN_DEAD);
    c->state = PL_CONN_DEAD;
    if (c->listener != NULL)
        pl_listener_forget(c);
    if (c->dial != NULL)
        pl_dial_cancel(c);
    pl_bundle_leave(c);
    if (c->has_poll)
        uv_close((uv_handle_t *)&c->poll, on_handle_closed);
    if (c->pipe.fd >= 0)
        (void)close(c->pipe.fd);
    c->pipe.fd = -1;
    uv_close((uv_handle_t *)&c->timer, on_handle_closed);
    uv_close((uv_handle_t *)&c->wake, on_handle_closed);
}

void pl_conn_close(struct pl_conn *c, uint64_t flush_ns)
{
    pl_assert(c->state != PL_CONN_DEAD && c->state != PL_CONN_FLUSHING && c->state != PL_CONN_LINGER);
    if (c->state != PL_CONN_OPEN || flush_ns == 0 || c->failing) {
        pl_conn_destroy(c);
        return;
    }
    c->state = PL_CONN_FLUSHING;
    c->deadline_ns = pl_add_sat(uv_hrtime(), flush_ns);
    pl_conn_wake(c);
    if (c->member.bundle != NULL)
        pl_bundle_close(c);
}

void pl_conn_set_user(struct pl_conn *c, void *user)
{
    c->user = user;
}

void pl_conn_set_ops(struct pl_conn *c, const struct pl_conn_ops *ops)
{
    c->ops = *ops;
}

void pl_conn_set_frame_max(struct pl_conn *c, uint32_t payload_bytes)
{
    c->frame_max = payload_bytes;
}

static void set_bucket(struct pl_conn *c, struct pl_bucket *bucket)
{
    c->bucket = bucket;
    c->bucket_ns = PL_NEVER;
    pl_conn_wake(c);
}

void pl_conn_set_bucket(struct pl_conn *c, struct pl_bucket *bucket)
{
    const struct pl_bundle *b = c->member.bundle;
    set_bucket(c, bucket);
    for (uint32_t i = 0; b != NULL && i < b->count; i++)
        set_bucket(b->streams[i], bucket);
}

void pl_conn_pause(struct pl_conn *c, bool paused)
{
    const struct pl_bundle *b = c->member.bundle;
    if (c->paused == paused)
        return;
    c->paused = paused;
    c->hungry = true; /* frames may lie in a buffer already */
    pl_conn_wake(c);
    for (uint32_t i = 0; b != NULL && i < b->count; i++) {
        b->streams[i]->hungry = true;
        pl_conn_wake(b->streams[i]);
    }
}

void pl_conn_view(struct pl_conn *c, struct pl_conn_view *out)
{
    struct tcp_info info = {0};
    socklen_t len = sizeof info;
    const struct pl_bundle *b = c->member.bundle;
    *out = (struct pl_conn_view){.bytes_in = b != NULL ? b->in_place : c->bytes_in,
                                 .bytes_out = b != NULL ? b->out_place : c->bytes_out,
                                 .streams = pl_bundle_streams(c)};
    if (c->pipe.fd >= 0 && getsockopt(c->pipe.fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0)
        out->rtt_ns = (uint64_t)info.tcpi_rtt * PL_US;
}
