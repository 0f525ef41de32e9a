/* host/syncer_conns.c - connections of a shard: who calls, what they say, and updates on their way down.
 *
 * The first frame decides. HELLO and ATTACH are for the core, from learners with a certificate of this run; ENROL and ASK
 * are for the door, on the home shard; everything else is refused with a sentence. What a stranger may cost is bounded
 * by net/conn.h; what stays of one that was refused is a line in the log.
 *
 * An update is not copied for each learner: a connection holds references to the ring's updates, or to the values of a
 * version, and takes the next chunk when the socket has room.
 */
#include "host/syncer_host_int.h"

#include "base/check.h"
#include "base/fmt.h"
#include "base/num.h"
#include "os/clock.h"
#include "wire/chunk.h"

#include <string.h>

enum {
    FRONT_BYTES_MIN = 16 << 10,
    FRAME_SLACK = 64,
    QUESTIONS_MAX = 20, /* on one connection, a second */
};
#define SILENCE_NS (5 * PL_SEC)    /* a visitor that says nothing */
#define DOOR_IDLE_NS (30 * PL_SEC) /* a member at the door, between two questions */
#define FLUSH_NS (2 * PL_SEC)      /* for the last words on a connection */

/* ---- members ---- */

struct pl_islander *pl_shost_member(struct pl_syncer_host *h, uint64_t identity)
{
    for (uint32_t i = 0; i < h->options.learners_max; i++)
        if (h->members[i].identity == identity)
            return &h->members[i];
    return NULL;
}

/* A place in the table: a free one, or that of the identity that has been away longest. NULL: all are connected. */
static struct pl_islander *make_place(struct pl_syncer_host *h)
{
    struct pl_islander *best = NULL;
    for (uint32_t i = 0; i < h->options.learners_max; i++) {
        struct pl_islander *m = &h->members[i];
        if (m->identity == 0)
            return m;
        if (m->conns == 0 && (best == NULL || m->heard_ns < best->heard_ns))
            best = m;
    }
    return best;
}

/* Finds or makes. */
static struct pl_islander *meet(struct pl_syncer_host *h, const struct pl_peer *peer, uint64_t now_ns)
{
    struct pl_islander *m = pl_shost_member(h, peer->identity);
    if (m == NULL) {
        m = make_place(h);
        if (m == NULL)
            return NULL;
        struct pl_claim *claims = m->claims;
        *m = (struct pl_islander){.identity = peer->identity, .known_ns = now_ns, .claims = claims};
        memset(claims, 0, h->fragment_count * sizeof *claims);
    }
    memcpy(m->address, peer->address, sizeof m->address);
    m->conns++;
    m->heard_ns = now_ns;
    return m;
}

/* What passes by on its way to the core, for status. */
static void note(struct pl_islander *m, bool bulk, const struct pl_msg *msg, uint64_t now_ns)
{
    m->heard_ns = now_ns;
    if (msg->type == PL_MSG_REPORT) {
        m->loss_micro = msg->u.report.loss_micro;
        m->step_ns = msg->u.report.step_ns;
    }
    m->greetings += msg->type == PL_MSG_HELLO ? 1 : 0;
    /* Of its control connection, which the bulk connection may outlive or not. */
    m->leaves = !bulk && msg->type == PL_MSG_CLOSE && msg->u.close.code == PL_REASON_LEAVING;
}

/* ---- visitors ---- */

static void free_outgoing(struct pl_syncer_host *h, struct pl_outgoing *o)
{
    pl_values_drop(o->full, &h->alloc);
    for (uint32_t i = 0; i < o->chain_count; i++)
        pl_shared_drop(o->chain[i], &h->alloc);
    pl_alloc_free(&h->alloc, o, sizeof *o);
}

/* What does not fit breaks the connection; closed() follows. */
static void say(struct pl_visitor *g, const struct pl_msg *msg)
{
    if (!pl_conn_send(g->conn, msg))
        return;
    uint64_t bytes = pl_frame_bytes(msg);
    g->h->counters.bytes_out += bytes;
    if (g->member != NULL)
        g->member->bytes_out += bytes;
}

static void count_frame(struct pl_visitor *g, const struct pl_frame *frame)
{
    g->h->counters.bytes_in += frame->total;
    if (g->member != NULL)
        g->member->bytes_in += frame->total;
}

void pl_visitor_drop(struct pl_visitor *g)
{
    struct pl_syncer_host *h = g->h;
    while (g->first != NULL) {
        struct pl_outgoing *o = g->first;
        g->first = o->next;
        free_outgoing(h, o);
    }
    if (g->kind == PL_VISITOR_CORE)
        h->conns[g->number] = NULL;
    if (g->kind == PL_VISITOR_DOOR)
        pl_door_keeper_forget(h->door, g);
    if (g->member != NULL)
        g->member->conns--;
    if (g->prev != NULL)
        g->prev->next = g->next;
    else
        h->visitors = g->next;
    if (g->next != NULL)
        g->next->prev = g->prev;
    h->visitor_count--;
    pl_alloc_free(&h->alloc, g, sizeof *g);
}

static void close_visitor(struct pl_visitor *g, uint64_t flush_ns)
{
    pl_conn_close(g->conn, flush_ns);
    pl_visitor_drop(g);
}

void pl_visitor_refuse(struct pl_visitor *g, enum pl_reason reason, const char *text)
{
    struct pl_syncer_host *h = g->h;
    struct pl_blob blob = {(const uint8_t *)text, (uint32_t)strlen(text)};
    struct pl_msg msg = {.type = PL_MSG_REFUSE, .u.refuse = {.code = reason, .text = blob}};
    pl_assert(g->kind != PL_VISITOR_CORE);
    h->counters.refused++;
    pl_shost_log_stranger(h, "refused address=%s identity=%lu: %s", g->peer.address, g->peer.identity, text);
    say(g, &msg);
    close_visitor(g, FLUSH_NS);
}

static uint32_t free_number(const struct pl_syncer_host *h)
{
    for (uint32_t i = 0; i < h->options.conns_max; i++)
        if (h->conns[i] == NULL)
            return i;
    return PL_NONE32;
}

/* A learner's first frame: from here on it is the core's. False: refused, and gone. */
static bool admit(struct pl_visitor *g, uint8_t type, uint64_t now_ns)
{
    struct pl_syncer_host *h = g->h;
    if (g->peer.role != PL_ROLE_LEARNER) {
        pl_visitor_refuse(g, PL_REASON_DENIED,
                          g->peer.role == PL_ROLE_NONE
                              ? "a learner needs a certificate of this run; join with a token first"
                              : "only learners take part; this certificate is for something else");
        return false;
    }
    struct pl_islander *m = pl_shost_member(h, g->peer.identity);
    if (m != NULL && now_ns < m->shut_until_ns) {
        pl_visitor_refuse(g, PL_REASON_DENIED,
                          "what this learner sent before could not be believed; try again later");
        return false;
    }
    uint32_t number = free_number(h);
    m = number == PL_NONE32 || !h->listening ? NULL : meet(h, &g->peer, now_ns);
    if (m == NULL) {
        pl_visitor_refuse(g, PL_REASON_FULL,
                          h->listening ? "there is no room for another learner; try again later"
                                       : "the syncer is just starting; try again in a moment");
        return false;
    }
    pl_door_keeper_met(h->door, g->peer.identity);
    g->member = m;
    g->kind = PL_VISITOR_CORE;
    g->number = number;
    g->bulk = type == PL_MSG_ATTACH;
    h->conns[number] = g;
    pl_conn_set_frame_max(g->conn, g->bulk ? h->frame_bulk : h->frame_front);
    pl_shost_step(h, &(struct pl_sync_event){.kind = PL_SYNC_EV_OPENED,
                                             .u.opened = {.conn = number, .identity = g->peer.identity}});
    return true;
}

static void bad_bytes(struct pl_visitor *g, const struct pl_error *err)
{
    struct pl_syncer_host *h = g->h;
    if (g->kind != PL_VISITOR_CORE) {
        pl_visitor_refuse(g, PL_REASON_BAD_FRAME, err->text);
        return;
    }
    h->counters.refused++;
    pl_guard_blame(h, g->member);
    pl_shost_log(h, "learner.refused learner=%lu address=%s: %s", g->peer.identity, g->peer.address,
                 err->text);
    pl_shost_step(
        h, &(struct pl_sync_event){.kind = PL_SYNC_EV_BAD, .u.bad = {.conn = g->number, .error = err}});
}

static void core_message(struct pl_visitor *g, const struct pl_msg *msg, uint64_t now_ns)
{
    struct pl_syncer_host *h = g->h;
    struct pl_error err;
    if (!pl_guard_claims_ok(h, g->member, msg, now_ns, &err)) {
        bad_bytes(g, &err);
        return;
    }
    note(g->member, g->bulk, msg, now_ns);
    h->delivering = msg;
    pl_shost_step(h,
                  &(struct pl_sync_event){.kind = PL_SYNC_EV_MSG, .u.msg = {.conn = g->number, .msg = msg}});
    h->delivering = NULL;
}

/* A shard that is not home has no door, but its operator may look in. */
static void tell_operator(struct pl_visitor *g)
{
    struct pl_buf text;
    pl_buf_init(&text, &g->h->alloc, PL_CHUNK_BYTES_MAX);
    enum pelago_status st = pl_syncer_host_status(g->h, true, &text);
    if (st == PELAGO_OK) {
        const struct pl_blob bytes = {text.data, (uint32_t)text.len};
        say(g, &(struct pl_msg){.type = PL_MSG_ANSWER, .u.answer = {.what = PL_ASK_STATUS, .bytes = bytes}});
    } else {
        pl_visitor_refuse(g, PL_REASON_FULL,
                          st == PELAGO_LIMIT ? "the syncer's status is longer than one answer may be"
                                             : "the syncer has no memory for its status now");
    }
    pl_buf_release(&text);
}

static bool is_for_every_shard(const struct pl_visitor *g, const struct pl_msg *msg)
{
    return msg->type == PL_MSG_ASK && msg->u.ask.what == PL_ASK_STATUS && g->peer.role == PL_ROLE_OPERATOR;
}

static void door_message(struct pl_visitor *g, const struct pl_msg *msg, uint64_t now_ns)
{
    bool home = g->h->door != NULL;
    g->kind = PL_VISITOR_DOOR;
    if (!home && !is_for_every_shard(g, msg))
        pl_visitor_refuse(g, PL_REASON_WRONG_STATE, "this is not the home shard; the door is at shard 0");
    else if (!pl_rate_ok(&g->questions, now_ns, QUESTIONS_MAX))
        pl_visitor_refuse(g, PL_REASON_DENIED, "too many questions in a second; ask more slowly");
    else if (!home)
        tell_operator(g);
    else if (!pl_door_keeper_answer(g->h->door, g->conn, &g->peer, g, msg, now_ns))
        close_visitor(g, FLUSH_NS);
}

void pl_visitor_answered(struct pl_visitor *g, bool good)
{
    g->active_ns = pl_clock_ns();
    if (!good)
        close_visitor(g, FLUSH_NS);
}

/* ---- callbacks ---- */

static void on_opened(void *user, struct pl_conn *conn, const struct pl_peer *peer)
{
    struct pl_syncer_host *h = user;
    bool turned_away = h->stopping;
    if (!turned_away && pl_conn_is_too_many(conn)) {
        turned_away = true;
        h->counters.refused++;
        pl_shost_log_stranger(h, "refused address=%s identity=%lu: it has %u connections already",
                              peer->address, peer->identity, (unsigned)PL_CONNS_OF_ONE);
    }
    struct pl_visitor *g = turned_away ? NULL : pl_alloc_zero(&h->alloc, 1, sizeof *g);
    if (g == NULL) {
        pl_conn_close(conn, 0);
        return;
    }
    g->h = h;
    g->conn = conn;
    g->peer = *peer;
    g->active_ns = pl_clock_ns();
    g->next = h->visitors;
    if (g->next != NULL)
        g->next->prev = g;
    h->visitors = g;
    h->visitor_count++;
    pl_conn_set_user(conn, g);
}

static void on_frame(void *user, struct pl_conn *conn, const struct pl_frame *frame)
{
    struct pl_visitor *g = user;
    struct pl_msg msg;
    struct pl_error err;
    uint64_t now_ns = pl_clock_ns();
    (void)conn;
    g->active_ns = now_ns;
    count_frame(g, frame);
    if (pl_msg_decode(frame->type, frame->payload, frame->payload_len, &msg, &err) != PELAGO_OK) {
        bad_bytes(g, &err);
        return;
    }
    if (g->peer.expired && msg.type != PL_MSG_ENROL) {
        /* Closed, not refused: it renews its certificate and comes again. */
        pl_shost_log_stranger(g->h, "visitor.expired identity=%lu address=%s", g->peer.identity,
                              g->peer.address);
        close_visitor(g, 0);
        return;
    }
    bool for_core = msg.type == PL_MSG_HELLO || msg.type == PL_MSG_ATTACH;
    bool for_door = msg.type == PL_MSG_ENROL || msg.type == PL_MSG_ASK;
    if (g->kind == PL_VISITOR_NEW && for_core && !admit(g, msg.type, now_ns))
        return;
    if (g->kind == PL_VISITOR_CORE)
        core_message(g, &msg, now_ns);
    else if (for_door)
        door_message(g, &msg, now_ns);
    else
        pl_visitor_refuse(g, PL_REASON_WRONG_STATE, "the first message must be HELLO, ATTACH, ENROL or ASK");
}

static void on_bad(void *user, struct pl_conn *conn, const struct pl_error *err)
{
    (void)conn;
    bad_bytes(user, err);
}

static void pump(struct pl_visitor *g);

static void on_drained(void *user, struct pl_conn *conn)
{
    (void)conn;
    pump(user);
}

static void on_closed(void *user, struct pl_conn *conn, const struct pl_error *why)
{
    struct pl_visitor *g = user;
    struct pl_syncer_host *h = g->h;
    (void)conn;
    bool core = g->kind == PL_VISITOR_CORE;
    uint32_t number = g->number;
    if (core && !h->stopping)
        pl_shost_log_stranger(h, "learner.disconnected learner=%lu address=%s %s: %s", g->peer.identity,
                              g->peer.address, g->bulk ? "bulk" : "control", why->text);
    pl_visitor_drop(g);
    if (core)
        pl_shost_step(h, &(struct pl_sync_event){.kind = PL_SYNC_EV_CLOSED, .u.closed = {.conn = number}});
}

static const struct pl_conn_ops visitor_ops = {
    .opened = on_opened, .frame = on_frame, .bad = on_bad, .drained = on_drained, .closed = on_closed};

static void on_log(void *user, const char *line)
{
    struct pl_syncer_host *h = user;
    pl_shost_log(h, "%s", line);
}

enum pelago_status pl_shost_listen(struct pl_syncer_host *h, struct pl_error *err)
{
    const struct pl_array *all = &h->manifest.msg.fragments;
    h->frame_front = pl_max32(FRONT_BYTES_MIN, FRAME_SLACK + all->count * PL_ITEM_PARTIAL_BYTES);
    h->frame_bulk = h->frame_front;
    uint32_t down = 0;
    for (uint32_t i = 0; i < all->count; i++) {
        struct pl_item_fragment f = pl_item_fragment_at(all, i);
        h->frame_bulk = pl_max32(h->frame_bulk, FRAME_SLACK + pl_chunk_bytes(f.push_bytes_max));
        down = pl_max32(down, pl_chunk_bytes(f.full_bytes));
    }
    h->chunk_bytes = down;
    h->chunk = pl_alloc_zero(&h->alloc, 1, h->chunk_bytes);
    if (h->chunk == NULL)
        return pl_fail(err, PELAGO_NOMEM, "there is no memory for a chunk of %u bytes", down);
    h->net = (struct pl_net_options){.loop = h->o.loop,
                                     .alloc = h->o.alloc, /* connections that still flush outlive the host */
                                     .own = &h->own,
                                     .frame_max = h->frame_front,
                                     .conns_max = h->options.conns_max + 512,
                                     .log = on_log,
                                     .log_user = h};
    return pl_listen(&h->listener, &h->net, h->o.listen, &visitor_ops, h, err);
}

/* ---- effects ---- */

void pl_shost_send(struct pl_syncer_host *h, uint32_t number, const struct pl_msg *msg)
{
    struct pl_visitor *g = h->conns[number];
    pl_assert(g != NULL);
    say(g, msg);
}

void pl_shost_close(struct pl_syncer_host *h, const struct pl_sync_effect *fx)
{
    struct pl_visitor *g = h->conns[fx->u.close.conn];
    pl_assert(g != NULL);
    struct pl_blob text = {(const uint8_t *)fx->u.close.text, (uint32_t)strlen(fx->u.close.text)};
    struct pl_msg msg = {.type = fx->u.close.refuse ? PL_MSG_REFUSE : PL_MSG_CLOSE};
    if (fx->u.close.refuse)
        msg.u.refuse = (struct pl_msg_refuse){.code = fx->u.close.reason, .text = text};
    else
        msg.u.close = (struct pl_msg_close){.code = fx->u.close.reason, .text = text};
    bool fault = fx->u.close.reason != PL_REASON_LEAVING && fx->u.close.reason != PL_REASON_DONE &&
                 fx->u.close.reason != PL_REASON_REPLACED;
    bool lie = fx->u.close.reason == PL_REASON_BAD_MESSAGE || fx->u.close.reason == PL_REASON_WRONG_STATE;
    if (lie && g->member != NULL)
        pl_guard_blame(h, g->member);
    if (fault) {
        h->counters.refused += fx->u.close.refuse ? 1 : 0;
        pl_shost_log_stranger(h, "learner.closed learner=%lu address=%s reason=%s: %s", g->peer.identity,
                              g->peer.address, pl_reason_name(fx->u.close.reason), fx->u.close.text);
    }
    say(g, &msg);
    close_visitor(g, FLUSH_NS);
}

/* The chunk's bytes: where they lie, or put together from two updates. */
static const uint8_t *chunk_at(struct pl_syncer_host *h, const struct pl_outgoing *o, uint64_t offset,
                               uint32_t len)
{
    if (o->full != NULL)
        return (const uint8_t *)o->full->broadcast + offset;
    uint32_t filled = 0;
    uint64_t start = 0;
    for (uint32_t i = 0; i < o->chain_count && filled < len; i++) {
        const struct pl_shared *u = o->chain[i];
        uint64_t at = offset + filled;
        if (at >= start && at < start + u->len) {
            uint32_t n = (uint32_t)pl_min64(len - filled, start + u->len - at);
            if (n == len)
                return u->bytes + (at - start);
            memcpy(h->chunk + filled, u->bytes + (at - start), n);
            filled += n;
        }
        start += u->len;
    }
    pl_assert(filled == len);
    return h->chunk;
}

static void send_chunk(struct pl_visitor *g, struct pl_outgoing *o)
{
    uint32_t i = (uint32_t)__builtin_ctzll(~o->there);
    uint64_t bytes = o->header.bytes;
    uint32_t len = pl_chunk_len(bytes, i);
    o->there |= UINT64_C(1) << i;
    struct pl_msg msg = {.type = PL_MSG_DATA,
                         .u.data = {.fragment = o->header.fragment,
                                    .id = o->header.to_version,
                                    .index = i,
                                    .bytes = {chunk_at(g->h, o, pl_chunk_offset(bytes, i), len), len}}};
    say(g, &msg);
}

/* Hands over chunks as long as the socket's queue has room. */
static void pump(struct pl_visitor *g)
{
    while (g->first != NULL && pl_conn_room(g->conn)) {
        struct pl_outgoing *o = g->first;
        if (!o->header_sent) {
            o->header_sent = true;
            say(g, &(struct pl_msg){.type = PL_MSG_UPDATE, .u.update = o->header});
        } else if (o->there != pl_chunk_all(o->header.bytes)) {
            send_chunk(g, o);
        } else {
            g->first = o->next;
            if (g->first == NULL)
                g->last = NULL;
            free_outgoing(g->h, o);
        }
    }
}

static void take_chain(struct pl_shard_fragment *f, struct pl_outgoing *o)
{
    uint64_t bytes = 0;
    for (uint64_t v = o->header.from_version + 1; v <= o->header.to_version; v++) {
        const struct pl_ring_slot *slot = &f->ring[v % PL_RING_MAX];
        pl_assert(slot->version == v && o->chain_count < PL_RING_MAX);
        o->chain[o->chain_count++] = pl_shared_keep(slot->update);
        bytes += slot->update->len;
    }
    pl_assert(bytes == o->header.bytes);
}

/* Nothing of it has been sent yet, and the core has decided anew: whoever says over and over that it has, or lacks, a
 * fragment must not make the list grow. */
static void forget_unsent(struct pl_visitor *g, uint32_t fragment)
{
    struct pl_outgoing **at = &g->first, *last = NULL;
    while (*at != NULL) {
        struct pl_outgoing *o = *at;
        if (o->header.fragment == fragment && !o->header_sent) {
            *at = o->next;
            free_outgoing(g->h, o);
            continue;
        }
        last = o;
        at = &o->next;
    }
    g->last = last;
}

/* Without memory the connection is broken off; the learner comes back for what it lacks. */
void pl_shost_deliver(struct pl_syncer_host *h, const struct pl_sync_effect *fx)
{
    struct pl_visitor *g = h->conns[fx->u.deliver.conn];
    struct pl_shard_fragment *f = pl_shost_fragment(h, fx->u.deliver.header.fragment);
    struct pl_outgoing *o = pl_alloc_zero(&h->alloc, 1, sizeof *o);
    pl_assert(g != NULL && fx->u.deliver.header.to_version == f->version);
    if (o == NULL) {
        struct pl_error why;
        (void)pl_fail(&why, PELAGO_NOMEM, "the machine has no memory left for an update");
        pl_shost_fail(h, &why);
        return;
    }
    o->header = fx->u.deliver.header;
    o->there = fx->u.deliver.mask;
    if (o->header.from_version == PL_NONE64) {
        pl_assert(o->header.bytes == f->count * sizeof(float));
        o->full = pl_values_keep(f->values);
    } else {
        take_chain(f, o);
    }
    forget_unsent(g, o->header.fragment);
    if (g->last != NULL)
        g->last->next = o;
    else
        g->first = o;
    g->last = o;
    pump(g);
}

/* ---- now and then ---- */

void pl_shost_sweep(struct pl_syncer_host *h)
{
    uint64_t now_ns = pl_clock_ns();
    for (struct pl_visitor *g = h->visitors, *next; g != NULL; g = next) {
        next = g->next;
        uint64_t silent = now_ns - g->active_ns;
        if (g->kind == PL_VISITOR_NEW && silent > SILENCE_NS)
            pl_visitor_refuse(g, PL_REASON_NO_HELLO, pl_reason_text(PL_REASON_NO_HELLO));
        else if (g->kind == PL_VISITOR_DOOR && silent > DOOR_IDLE_NS)
            close_visitor(g, 0);
    }
}

void pl_shost_dismiss(struct pl_syncer_host *h)
{
    const char *text = pl_reason_text(PL_REASON_LEAVING);
    struct pl_blob blob = {(const uint8_t *)text, (uint32_t)strlen(text)};
    struct pl_msg msg = {.type = PL_MSG_CLOSE, .u.close = {.code = PL_REASON_LEAVING, .text = blob}};
    while (h->visitors != NULL) {
        struct pl_visitor *g = h->visitors;
        if (g->kind == PL_VISITOR_CORE)
            say(g, &msg);
        close_visitor(g, g->kind == PL_VISITOR_CORE ? FLUSH_NS : 0);
    }
}
