/* net/conn_io.c - bytes of an open connection: records to frames, frames to records, and who takes too long.
 *
 * A turn is bounded in both directions; what is left over is done in the next one, after everybody else had theirs. With
 * read-ahead OpenSSL holds bytes that the socket no longer shows, so whoever stops early sets hungry and wakes himself.
 */
#include "net/conn_int.h"

#include "base/check.h"
#include "base/num.h"

#include <errno.h>
#include <openssl/err.h>

enum {
    SCRATCH_BYTES = 16 << 10,
    RECORD_OVERHEAD = 22, /* header, content type and tag */
};

/* --- reading --- */

struct pl_input *pl_conn_frames(struct pl_conn *c)
{
    return c->member.bundle != NULL ? &c->member.bundle->in : &c->in;
}

static bool is_bundled(const struct pl_conn *c)
{
    return c->member.bundle != NULL || c->member.is_stream;
}

/* Room for at least one byte of what is needed. The frame's length has been checked when need was set. */
static bool make_space(struct pl_conn *c)
{
    if (is_bundled(c))
        return pl_bundle_reserve(c);
    pl_assert(c->in.need <= PL_FRAME_HEADER_BYTES + (size_t)PL_FRAME_BYTES_MAX);
    return pl_input_reserve(&c->in, c->alloc, pl_max64(PL_INPUT_BYTES, c->in.need));
}

void pl_conn_spoil(struct pl_conn *c, const struct pl_error *err)
{
    if (c->spoilt || c->state != PL_CONN_OPEN)
        return;
    c->spoilt = true;
    c->ops.bad(c->user, c, err);
}

static bool is_too_long(const struct pl_conn *c, size_t frame_bytes, struct pl_error *err)
{
    if (frame_bytes <= PL_FRAME_HEADER_BYTES + (size_t)c->frame_max)
        return false;
    (void)pl_fail(err, PELAGO_LIMIT, "a frame announces a payload of %lu bytes, at most %u are allowed here",
                  (uint64_t)(frame_bytes - PL_FRAME_HEADER_BYTES), c->frame_max);
    return true;
}

/* Hands over one frame. False: there is none, or nobody wants it now. */
static bool deliver_one(struct pl_conn *c)
{
    struct pl_input *in = pl_conn_frames(c);
    struct pl_frame frame;
    struct pl_error err;
    if (in->end - in->at < pl_max64(in->need, 1) || c->paused || c->spoilt || c->state != PL_CONN_OPEN)
        return false;
    const uint8_t *bytes = in->bytes + in->at;
    enum pelago_status st = pl_frame_parse(bytes, in->end - in->at, &frame, &err);
    if ((st == PELAGO_OK || st == PELAGO_SHORT) && is_too_long(c, frame.need, &err))
        st = PELAGO_LIMIT;
    if (st == PELAGO_SHORT) {
        in->need = frame.need;
        return false;
    }
    if (st != PELAGO_OK) {
        pl_conn_spoil(c, &err);
        return false;
    }
    in->at += frame.total;
    in->need = 0;
    in->frames++;
    in->large = in->large || frame.total > PL_INPUT_BYTES;
    if (c->capture != NULL)
        c->capture(c->capture_user, false, bytes, frame.total);
    c->ops.frame(c->user, c, &frame);
    return true;
}

bool pl_conn_deliver(struct pl_conn *c, uint64_t *turn_frames)
{
    while (*turn_frames < PL_CONN_TURN_FRAMES && deliver_one(c))
        ++*turn_frames;
    return c->state == PL_CONN_OPEN && !c->paused && !c->spoilt;
}

static void end_of_stream(struct pl_conn *c, int error)
{
    struct pl_error why;
    if (error == SSL_ERROR_ZERO_RETURN && is_bundled(c) && !pl_bundle_end(c))
        return; /* the others may still bring something */
    if (error == SSL_ERROR_ZERO_RETURN)
        (void)pl_fail(&why, PELAGO_IO, "%s closed the connection", c->peer.address);
    else
        (void)pl_tls_explain(true, &c->pipe, &c->check, c->peer.address, &why);
    pl_conn_fail(c, &why);
}

void pl_conn_fail_no_memory(struct pl_conn *c)
{
    struct pl_error why;
    (void)pl_fail(&why, PELAGO_NOMEM, "out of memory for a frame of %lu bytes from %s",
                  (uint64_t)pl_conn_frames(c)->need, c->peer.address);
    pl_conn_fail(c, &why);
}

/* Reads one record's worth. False: the socket has nothing more, or the connection is over. */
static bool fill_input(struct pl_conn *c, size_t *turn_bytes)
{
    struct pl_input *in = &c->in;
    size_t n = 0;
    if (!make_space(c)) {
        pl_conn_fail_no_memory(c);
        return false;
    }
    ERR_clear_error();
    c->pipe.starved = false;
    if (SSL_read_ex(c->ssl, in->bytes + in->end, in->cap - in->end, &n) == 1) {
        pl_assert(n > 0 && n <= in->cap - in->end);
        in->end += n;
        c->bytes_in += n;
        *turn_bytes += n;
        return true;
    }
    int error = SSL_get_error(c->ssl, 0);
    if (error == SSL_ERROR_WANT_READ) {
        *turn_bytes += PL_CONN_RECORD_BYTES; /* a record without data costs as much as one with */
        return !c->pipe.starved;
    }
    if (error == SSL_ERROR_WANT_WRITE)
        c->blocked = true;
    else
        end_of_stream(c, error);
    return false;
}

/* False: nothing more is to be read now. */
static bool hand_over(struct pl_conn *c, uint64_t *turn_frames)
{
    return is_bundled(c) ? pl_bundle_pump(c, turn_frames) : pl_conn_deliver(c, turn_frames);
}

void pl_conn_read(struct pl_conn *c)
{
    struct pl_input *in = &c->in;
    size_t turn_bytes = 0;
    uint64_t turn_frames = 0;
    pl_assert(c->state == PL_CONN_OPEN && c->ssl != NULL);
    c->hungry = false;
    while (hand_over(c, &turn_frames) && !c->member.ended) {
        if (turn_bytes >= PL_CONN_TURN_BYTES || turn_frames >= PL_CONN_TURN_FRAMES) {
            c->hungry = true;
            pl_conn_wake(c);
            break;
        }
        if ((is_bundled(c) && pl_bundle_is_ahead(c)) || !fill_input(c, &turn_bytes))
            break;
    }
    if (c->state == PL_CONN_OPEN && in->at == in->end && in->cap <= PL_INPUT_BYTES)
        pl_input_release(in, c->alloc);
}

void pl_conn_discard(struct pl_conn *c)
{
    uint8_t scratch[SCRATCH_BYTES];
    ssize_t n = 1;
    pl_assert(c->state == PL_CONN_FLUSHING || c->state == PL_CONN_LINGER);
    for (size_t turn = 0; turn < PL_CONN_TURN_BYTES && n > 0; turn += SCRATCH_BYTES)
        n = recv(c->pipe.fd, scratch, sizeof scratch, 0);
    if (n == 0)
        c->pipe.eof = true;
    if ((n == 0 && c->state == PL_CONN_LINGER) || (n < 0 && errno != EAGAIN && errno != EINTR))
        pl_conn_destroy(c);
}

/* --- writing --- */

/* Where frames wait; a stream's own queue holds segments. */
static struct pl_queue *frames_out(struct pl_conn *c)
{
    return c->member.bundle != NULL ? &c->member.bundle->out : &c->out;
}

static bool has_room(struct pl_conn *c)
{
    return frames_out(c)->bytes < (c->listener != NULL ? pl_listener_room(c->listener) : PL_CONN_ROOM_BYTES);
}

/* A listener's connections share what may be queued: there may be less room than after our own last frame. */
bool pl_conn_room(struct pl_conn *c)
{
    bool room = has_room(c);
    c->full = c->full || !room;
    return room;
}

/* On this socket. */
static size_t waiting(const struct pl_conn *c)
{
    const struct pl_tls_batch *b = c->pipe.batch;
    return c->out.bytes + (b != NULL ? b->end - b->at : 0);
}

size_t pl_conn_queued(const struct pl_conn *c)
{
    return c->member.bundle != NULL ? pl_bundle_queued(c) : waiting(c);
}

/* Room for a frame in the queue, or NULL: the connection is broken. */
static uint8_t *make_room(struct pl_conn *c, struct pl_queue *q, size_t bytes)
{
    struct pl_error why;
    if (q->bytes >= PL_CONN_ROOM_BYTES && q->bytes + bytes > PL_CONN_QUEUE_BYTES) {
        (void)pl_fail(&why, PELAGO_LIMIT, "%s takes nothing: %lu bytes wait for it already", c->peer.address,
                      (uint64_t)q->bytes);
        pl_conn_break(c, &why);
        return NULL;
    }
    uint8_t *room = pl_queue_room(q, bytes);
    if (room == NULL) {
        (void)pl_fail(&why, PELAGO_NOMEM, "out of memory for a frame of %lu bytes to %s", (uint64_t)bytes,
                      c->peer.address);
        pl_conn_break(c, &why);
    }
    return room;
}

bool pl_conn_send(struct pl_conn *c, const struct pl_msg *msg)
{
    struct pl_bundle *b = c->member.bundle;
    struct pl_queue *q = b != NULL ? &b->out : &c->out;
    size_t bytes = pl_frame_bytes(msg);
    pl_assert(c->state <= PL_CONN_OPEN && !c->member.is_stream);
    if (c->failing)
        return false;
    if (c->deaf)
        return true; /* lost like anything else on a broken line; closed() is on its way */
    uint8_t *room = make_room(c, q, bytes);
    if (room == NULL)
        return false;
    bytes = pl_frame_encode(msg, room, bytes);
    pl_queue_add(q, bytes);
    if (c->capture != NULL)
        c->capture(c->capture_user, true, room, bytes);
    c->full = c->full || !has_room(c);
    if (b != NULL)
        pl_bundle_wake(c);
    else if (c->state == PL_CONN_OPEN && !c->blocked && c->bucket_ns == PL_NEVER)
        pl_conn_wake(c);
    return true;
}

/* The write side is gone; a last word of the peer may still be there to be read. */
static void go_deaf(struct pl_conn *c)
{
    if (c->state != PL_CONN_OPEN || c->spoilt || c->paused || c->member.is_stream) {
        end_of_stream(c, SSL_ERROR_SSL);
        return;
    }
    c->deaf = true;
    c->retry = 0;
    pl_queue_release(&c->out);
    if (c->member.bundle != NULL)
        pl_queue_release(&c->member.bundle->out);
    pl_conn_end_batch(c);
    c->hungry = true;
    pl_conn_wake(c);
}

/* AES-GCM must not see too much under one key; each side changes its own. */
static void change_key(struct pl_conn *c)
{
    if (c->bytes_out < c->rekey_at || c->retry != 0)
        return;
    c->rekey_at = c->bytes_out + PL_CONN_REKEY_BYTES;
    (void)SSL_key_update(c->ssl, SSL_KEY_UPDATE_NOT_REQUESTED);
}

/* It began a message of the handshake's kind (a change of keys) and keeps the rest to itself: OpenSSL writes nothing until that
 * has come, and the socket would be writable all the time. Nobody honest cuts five bytes in two. */
static void half_a_word(struct pl_conn *c)
{
    struct pl_error why;
    (void)pl_fail(&why, PELAGO_PROTO, "%s sent half of a change of keys", c->peer.address);
    pl_conn_fail(c, &why);
}

/* One record of at most allowed bytes. False: the socket takes no more now, or the connection is over. */
static bool write_record(struct pl_conn *c, uint64_t allowed, size_t *turn_bytes)
{
    size_t n, written = 0;
    const uint8_t *bytes = pl_queue_front(&c->out, &n);
    pl_assert(n > 0 && c->retry <= n && allowed > 0);
    n = (size_t)pl_min64(n, pl_min64(allowed, PL_CONN_RECORD_BYTES));
    if (c->retry != 0)
        n = c->retry; /* OpenSSL has encrypted it already */
    change_key(c);
    ERR_clear_error();
    if (SSL_write_ex(c->ssl, bytes, n, &written) == 1) {
        pl_queue_take(&c->out, written);
        c->retry = 0;
        c->bytes_out += written;
        *turn_bytes += written;
        if (c->bucket != NULL)
            pl_bucket_spend(c->bucket, written + RECORD_OVERHEAD);
        return true;
    }
    int error = SSL_get_error(c->ssl, 0);
    if (error == SSL_ERROR_WANT_WRITE) {
        c->blocked = true;
        c->retry = n;
    } else if (error == SSL_ERROR_WANT_READ) {
        half_a_word(c);
    } else {
        go_deaf(c);
    }
    return false;
}

/* Several records are worth a batch; without memory for it they go one by one. */
static void begin_batch(struct pl_conn *c)
{
    if (c->pipe.batch != NULL || c->out.bytes <= PL_CONN_RECORD_BYTES)
        return;
    struct pl_tls_batch *b = c->alloc->resize(c->alloc->user, NULL, 0, sizeof *b);
    if (b != NULL)
        b->at = b->end = 0;
    c->pipe.batch = b;
}

void pl_conn_end_batch(struct pl_conn *c)
{
    pl_alloc_free(c->alloc, c->pipe.batch, sizeof *c->pipe.batch);
    c->pipe.batch = NULL;
}

/* False: the connection is over. */
static bool flush_batch(struct pl_conn *c)
{
    if (pl_tls_flush(&c->pipe)) {
        if (c->out.bytes == 0)
            pl_conn_end_batch(c);
        return true;
    }
    c->blocked = true;
    if (c->pipe.error != 0)
        go_deaf(c);
    return c->pipe.error == 0;
}

/* Bytes the bucket lets go; 0: the timer is set for when it does again. */
static uint64_t ask_bucket(struct pl_conn *c)
{
    uint64_t wait = 0;
    if (c->bucket == NULL)
        return UINT64_MAX;
    uint64_t now = uv_hrtime(), allowed = pl_bucket_allows(c->bucket, now, &wait);
    if (allowed == 0)
        c->bucket_ns = now + wait;
    return allowed;
}

static void begin_linger(struct pl_conn *c)
{
    pl_assert(c->state == PL_CONN_FLUSHING && waiting(c) == 0);
    ERR_clear_error();
    (void)SSL_shutdown(c->ssl); /* close_notify; whether it gets through no longer matters */
    (void)shutdown(c->pipe.fd, SHUT_WR);
    c->state = PL_CONN_LINGER;
    if (c->pipe.eof)
        pl_conn_destroy(c);
}

static bool is_all_out(const struct pl_conn *c)
{
    return c->out.bytes == 0 && pl_bundle_is_empty(c) && (c->pipe.batch == NULL || c->pipe.batch->end == 0);
}

static bool may_write(const struct pl_conn *c)
{
    return !c->blocked && c->bucket_ns == PL_NEVER;
}

/* A stream takes its next segment only when it can send it: others may be faster. */
static bool has_output(struct pl_conn *c)
{
    return may_write(c) && (c->out.bytes > 0 || pl_bundle_refill(c));
}

static void tell_drained(struct pl_conn *c)
{
    struct pl_conn *lead = pl_bundle_lead(c);
    if (lead == NULL || lead->state != PL_CONN_OPEN || !lead->full || !has_room(lead))
        return;
    lead->full = false;
    lead->ops.drained(lead->user, lead);
}

/* Nobody had more to send. */
static void rest(struct pl_conn *c)
{
    struct pl_conn *lead = pl_bundle_lead(c);
    if (c->out.bytes == 0)
        pl_queue_trim(&c->out);
    if (lead != NULL && lead->state != PL_CONN_DEAD && frames_out(lead)->bytes == 0)
        pl_queue_trim(frames_out(lead));
}

void pl_conn_write(struct pl_conn *c)
{
    size_t turn_bytes = 0;
    if (c->state != PL_CONN_OPEN && c->state != PL_CONN_FLUSHING)
        return;
    if (has_output(c)) {
        begin_batch(c);
        pl_sock_pace(c, uv_hrtime());
    }
    while (has_output(c)) {
        if (turn_bytes >= PL_CONN_TURN_BYTES) {
            pl_conn_wake(c);
            break;
        }
        uint64_t allowed = ask_bucket(c);
        if (allowed > 0 && !write_record(c, allowed, &turn_bytes))
            break;
    }
    if (c->state == PL_CONN_DEAD || c->deaf || !flush_batch(c))
        return;
    if (c->state == PL_CONN_FLUSHING && is_all_out(c))
        begin_linger(c);
    else
        tell_drained(c);
    rest(c);
}

/* --- watching --- */

/* Somebody without an identity must finish something now and then; others only what they have begun. */
static bool is_nameless(const struct pl_conn *c)
{
    return c->peer.role == PL_ROLE_NONE && !c->check.dialling;
}

/* Streams owe nothing by themselves: one may have to wait for another. */
static bool owes_input(const struct pl_conn *c)
{
    if (c->paused || c->spoilt || c->member.is_stream)
        return false;
    if (c->member.bundle != NULL)
        return pl_bundle_owes(c);
    return is_nameless(c) || c->in.end > c->in.at || SSL_has_pending(c->ssl);
}

bool pl_conn_is_busy(const struct pl_conn *c)
{
    const struct pl_bundle *b = c->member.bundle;
    return owes_input(c) || waiting(c) > 0 || c->in.cap > PL_INPUT_BYTES ||
           (b != NULL && b->lead == c && b->in.cap > PL_INPUT_BYTES);
}

static uint64_t input_so_far(const struct pl_conn *c)
{
    return c->member.bundle != NULL ? c->member.bundle->in_place : c->pipe.in;
}

static void mark_input(struct pl_conn *c, uint64_t now_ns)
{
    c->marks.in = input_so_far(c);
    c->marks.frames = pl_conn_frames(c)->frames;
    c->marks.in_ns = now_ns;
}

static void mark_output(struct pl_conn *c, uint64_t now_ns)
{
    c->marks.out = c->pipe.out;
    c->marks.out_ns = now_ns;
}

void pl_conn_mark(struct pl_conn *c, uint64_t now_ns)
{
    mark_input(c, now_ns);
    mark_output(c, now_ns);
}

/* What was large goes back when nothing large has come for a while. */
static void shrink(struct pl_input *in, const struct pl_alloc *alloc)
{
    if (in->at == in->end && in->cap > PL_INPUT_BYTES && !in->large)
        pl_input_release(in, alloc);
    in->large = false;
}

void pl_conn_watch(struct pl_conn *c, uint64_t now_ns)
{
    struct pl_error why = {.text = ""};
    uint64_t in = input_so_far(c);
    pl_assert(c->state == PL_CONN_OPEN && c->marks.out <= c->pipe.out);
    bool enough = !is_nameless(c) && in - c->marks.in >= PL_CONN_STALL_BYTES;
    if (!owes_input(c) || enough || pl_conn_frames(c)->frames != c->marks.frames)
        mark_input(c, now_ns);
    if (waiting(c) == 0 || c->pipe.out - c->marks.out >= PL_CONN_STALL_BYTES || c->bucket_ns != PL_NEVER)
        mark_output(c, now_ns);
    if (now_ns - c->marks.in_ns >= c->stall_ns)
        (void)pl_fail(&why, PELAGO_LIMIT, "%s has not sent a whole frame for %lu s", c->peer.address,
                      c->stall_ns / PL_SEC);
    else if (now_ns - c->marks.out_ns >= c->stall_ns)
        (void)pl_fail(&why, PELAGO_LIMIT, "%s has taken next to nothing of %lu bytes for %lu s",
                      c->peer.address, (uint64_t)pl_conn_queued(c), c->stall_ns / PL_SEC);
    if (why.text[0] != '\0') {
        pl_conn_fail(c, &why);
        return;
    }
    shrink(&c->in, c->alloc);
    if (pl_conn_frames(c) != &c->in && !c->member.is_stream)
        shrink(pl_conn_frames(c), c->alloc);
}
