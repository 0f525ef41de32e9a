/* host/learner_link.c - a learner's connections: two to every shard, and what goes over them.
 *
 * Control messages are queued at once; only reports wait when there is no room, the newest taking the place
 * of the one before. Pushes go on the bulk connection chunk by chunk, as there is room.
 */
#include "host/learner_host_int.h"

#include "base/check.h"
#include "os/clock.h"
#include "wire/chunk.h"

#include <string.h>

#define FLUSH_NS (300 * PL_MS) /* for what was queued before a connection is closed */

static struct pl_llink *link_of(struct pl_learner_host *h, const struct pl_learn_effect *fx)
{
    pl_assert(fx->u.conn.shard < h->settings.shards);
    return &h->shards[fx->u.conn.shard].links[fx->u.conn.link];
}

static void put(struct pl_llink *l, const struct pl_msg *msg)
{
    l->h->bytes_up += pl_frame_bytes(msg);
    (void)pl_conn_send(l->conn, msg); /* where it does not fit, closed() follows */
}

/* ---- pushes ---- */

static void unqueue(struct pl_lshard *s, uint32_t fragment)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < s->queue_len; i++)
        if (s->queue[i] != fragment)
            s->queue[kept++] = s->queue[i];
    s->queue_len = kept;
}

void pl_lhost_unqueue(struct pl_learner_host *h, uint32_t fragment)
{
    unqueue(&h->shards[h->layout.fragments[fragment].shard], fragment);
}

/* The header, or the next chunk. False: all is sent. */
static bool send_next(struct pl_llink *l, uint32_t fragment)
{
    struct pl_lfragment *f = &l->h->fragments[fragment];
    const struct pl_lcopy *c = f->copy;
    uint64_t bytes = f->header.bytes;
    if (f->header_due) {
        f->header_due = false;
        put(l, &(struct pl_msg){.type = PL_MSG_PUSH, .u.push = f->header});
        return true;
    }
    if (f->there == pl_chunk_all(bytes))
        return false;
    uint32_t i = (uint32_t)__builtin_ctzll(~f->there);
    f->there |= UINT64_C(1) << i;
    struct pl_msg msg = {.type = PL_MSG_DATA,
                         .u.data = {.fragment = fragment,
                                    .id = c->round,
                                    .index = i,
                                    .bytes = {c->bytes + pl_chunk_offset(bytes, i), pl_chunk_len(bytes, i)}}};
    put(l, &msg);
    return true;
}

static void pump(struct pl_learner_host *h, uint32_t shard)
{
    struct pl_lshard *s = &h->shards[shard];
    struct pl_llink *l = &s->links[PL_LINK_BULK];
    while (s->queue_len > 0 && l->up && pl_conn_room(l->conn))
        if (!send_next(l, s->queue[0]))
            unqueue(s, s->queue[0]);
}

void pl_lhost_push(struct pl_learner_host *h, const struct pl_learn_effect *fx)
{
    uint32_t fragment = fx->u.push.fragment;
    struct pl_lfragment *f = &h->fragments[fragment];
    struct pl_lshard *s = &h->shards[fx->u.push.shard];
    pl_assert(f->copy != NULL && f->copy->round == fx->u.push.round && f->copy->len == fx->u.push.push.bytes);
    unqueue(s, fragment);
    f->header_due = fx->u.push.header;
    f->header = fx->u.push.push;
    f->there = fx->u.push.mask;
    s->queue[s->queue_len++] = fragment;
    pump(h, fx->u.push.shard);
}

/* ---- what a connection says ---- */

static struct pl_learn_event event_of(const struct pl_llink *l, enum pl_learn_ev kind)
{
    return (struct pl_learn_event){.kind = kind, .u.conn = {.shard = l->shard, .link = l->link}};
}

static void on_opened(void *user, struct pl_conn *conn, const struct pl_peer *peer)
{
    struct pl_llink *l = user;
    struct pl_learn_event ev = event_of(l, PL_LEARN_EV_OPENED);
    (void)peer;
    pl_assert(l->conn == conn);
    l->up = true;
    pl_lhost_step(l->h, &ev);
}

static void on_frame(void *user, struct pl_conn *conn, const struct pl_frame *frame)
{
    struct pl_llink *l = user;
    struct pl_msg msg;
    struct pl_error err;
    struct pl_learn_event ev = event_of(l, PL_LEARN_EV_MSG);
    pl_assert(l->conn == conn);
    l->h->bytes_down += frame->total;
    if (pl_msg_decode(frame->type, frame->payload, frame->payload_len, &msg, &err) == PELAGO_OK) {
        ev.u.conn.msg = &msg;
        if (msg.type == PL_MSG_UPDATE)
            pl_lhost_value_comes(l->h, msg.u.update.fragment);
    } else {
        ev.kind = PL_LEARN_EV_BAD;
        ev.u.conn.error = &err;
    }
    pl_lhost_step(l->h, &ev);
}

static void on_bad(void *user, struct pl_conn *conn, const struct pl_error *err)
{
    struct pl_llink *l = user;
    struct pl_learn_event ev = event_of(l, PL_LEARN_EV_BAD);
    pl_assert(l->conn == conn);
    ev.u.conn.error = err;
    pl_lhost_step(l->h, &ev);
}

static void on_drained(void *user, struct pl_conn *conn)
{
    struct pl_llink *l = user;
    pl_assert(l->conn == conn);
    if (l->report_due) {
        l->report_due = false;
        put(l, &l->report);
    }
    if (l->link == PL_LINK_BULK)
        pump(l->h, l->shard);
}

static void forget(struct pl_llink *l)
{
    l->conn = NULL;
    l->up = l->report_due = l->asking = l->failed = false;
    if (l->link == PL_LINK_BULK)
        l->h->shards[l->shard].queue_len = 0;
}

/* Nobody may be looking when it is said first, and a syncer that has moved is not found by waiting. */
static void say_trouble(const struct pl_llink *l, bool was_up, const char *why)
{
    struct pl_trouble *t = &l->h->shards[l->shard].trouble;
    uint64_t now = pl_clock_ns();
    if (!pl_trouble_is_due(t, why, now))
        return;
    pl_lhost_log(l->h, "%s shard %u: %s", was_up ? "lost" : "cannot reach", (unsigned)l->shard, why);
    uint64_t minutes = (now - t->since_ns) / (60 * PL_SEC);
    if (minutes > 0)
        pl_lhost_log(l->h, "shard %u has been away for %lu min; training goes on%s", (unsigned)l->shard,
                     minutes, l->shard == 0 ? "; if it has moved, start again with --address HOST:PORT" : "");
}

static void on_closed(void *user, struct pl_conn *conn, const struct pl_error *why)
{
    struct pl_llink *l = user;
    struct pl_learner_host *h = l->h;
    struct pl_learn_event ev = event_of(l, PL_LEARN_EV_CLOSED);
    pl_assert(l->conn == conn);
    bool was_up = l->up;
    forget(l);
    if (l->link == PL_LINK_CONTROL)
        say_trouble(l, was_up, why->text);
    if (l->link == PL_LINK_CONTROL && l->shard == 0)
        pl_lhost_door_closed(h, was_up && !pl_learner_live(h->core, 0));
    if (!was_up && l->shard != 0)
        h->shards[l->shard].address[0] = '\0'; /* it may have moved */
    pl_lhost_step(h, &ev);
}

static const struct pl_conn_ops ops = {on_opened, on_frame, on_bad, on_drained, on_closed};

/* ---- what the core asks for ---- */

static void dial(struct pl_llink *l)
{
    struct pl_learner_host *h = l->h;
    l->asking = false;
    l->conn = pl_dial(&h->net[l->link], h->shards[l->shard].address, l->shard, &ops, l);
    if (l->conn == NULL) {
        l->failed = true;
        pl_lhost_ring(h);
    } else if (l->link == PL_LINK_BULK && h->bucket.bytes_per_s > 0) {
        pl_conn_set_bucket(l->conn, &h->bucket);
    }
}

void pl_lhost_connect(struct pl_learner_host *h, const struct pl_learn_effect *fx)
{
    struct pl_llink *l = link_of(h, fx);
    pl_assert(l->conn == NULL && !l->asking);
    if (h->shards[l->shard].address[0] != '\0') {
        dial(l);
        return;
    }
    l->asking = true;
    pl_lhost_door_addresses(h);
}

void pl_lhost_links_addressed(struct pl_learner_host *h)
{
    for (uint32_t i = 0; i < h->settings.shards; i++)
        for (uint32_t j = 0; j < 2; j++) {
            struct pl_llink *l = &h->shards[i].links[j];
            if (l->asking && h->shards[i].address[0] != '\0')
                dial(l);
            else if (l->asking)
                l->failed = true;
        }
    pl_lhost_ring(h);
}

void pl_lhost_links_later(struct pl_learner_host *h)
{
    for (uint32_t i = 0; i < h->settings.shards; i++)
        for (uint32_t j = 0; j < 2; j++) {
            struct pl_llink *l = &h->shards[i].links[j];
            struct pl_learn_event ev = event_of(l, PL_LEARN_EV_CLOSED);
            if (!l->failed)
                continue;
            forget(l);
            pl_lhost_step(h, &ev);
        }
}

void pl_lhost_disconnect(struct pl_learner_host *h, const struct pl_learn_effect *fx)
{
    struct pl_llink *l = link_of(h, fx);
    struct pl_msg msg = {
        .type = PL_MSG_CLOSE,
        .u.close = {.code = fx->u.conn.reason,
                    .text = {(const uint8_t *)fx->u.conn.text, (uint32_t)strlen(fx->u.conn.text)}}};
    if (fx->u.conn.link == PL_LINK_CONTROL && fx->u.conn.reason != PL_REASON_DONE)
        pl_lhost_log(h, "left shard %u: %s", fx->u.conn.shard, fx->u.conn.text);
    if (l->conn != NULL) {
        if (l->up)
            put(l, &msg);
        pl_conn_set_bucket(l->conn, NULL); /* it may outlive us by its last words */
        pl_conn_close(l->conn, l->up ? FLUSH_NS : 0);
    }
    forget(l);
}

void pl_lhost_send(struct pl_learner_host *h, const struct pl_learn_effect *fx)
{
    struct pl_llink *l = link_of(h, fx);
    if (!l->up)
        return;
    bool report = fx->u.conn.msg.type == PL_MSG_REPORT;
    if (report && !pl_conn_room(l->conn)) {
        l->report = fx->u.conn.msg;
        l->report_due = true;
        return;
    }
    if (report)
        l->report_due = false;
    put(l, &fx->u.conn.msg);
}

/* Those the core has not closed itself. */
void pl_lhost_links_close(struct pl_learner_host *h)
{
    for (uint32_t i = 0; i < h->settings.shards; i++)
        for (uint32_t j = 0; j < 2; j++) {
            struct pl_llink *l = &h->shards[i].links[j];
            if (l->conn != NULL) {
                pl_conn_set_bucket(l->conn, NULL);
                pl_conn_close(l->conn, l->up ? FLUSH_NS : 0);
            }
            forget(l);
        }
}
