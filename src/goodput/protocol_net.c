/* goodput/protocol_net.c - events in time, connections, bytes on links. See protocol_int.h. */
#include "goodput/protocol_int.h"

#include "base/check.h"
#include "base/num.h"
#include "wire/frame.h"

void *pl_proto_zero(struct pl_proto *h, size_t count, size_t size)
{
    void *block = pl_alloc_zero(&h->alloc, count, size);
    if (block == NULL)
        h->status = PELAGO_NOMEM;
    return block;
}

/* ---- the queue ---- */

static bool before(const struct pl_proto_ev *a, const struct pl_proto_ev *b)
{
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->seq < b->seq;
}

static bool grow(struct pl_proto *h)
{
    uint32_t cap = h->queue_cap == 0 ? 256 : 2 * h->queue_cap;
    void *more =
        h->alloc.resize(h->alloc.user, h->queue, h->queue_cap * sizeof *h->queue, cap * sizeof *h->queue);
    if (more == NULL) {
        h->status = PELAGO_NOMEM;
        return false;
    }
    h->queue = more;
    h->queue_cap = cap;
    return true;
}

void pl_proto_at(struct pl_proto *h, uint64_t delay_ns, const struct pl_proto_ev *ev)
{
    if (h->queue_len == h->queue_cap && !grow(h)) {
        pl_alloc_free(&h->alloc, ev->bytes, ev->len);
        return;
    }
    struct pl_proto_ev add = *ev;
    add.at_ns = h->now_ns + delay_ns;
    add.seq = h->seq++;
    uint32_t i = h->queue_len++;
    for (; i > 0 && before(&add, &h->queue[(i - 1) / 2]); i = (i - 1) / 2)
        h->queue[i] = h->queue[(i - 1) / 2];
    h->queue[i] = add;
}

struct pl_proto_ev pl_proto_pop(struct pl_proto *h)
{
    pl_assert(h->queue_len > 0);
    struct pl_proto_ev top = h->queue[0], last = h->queue[--h->queue_len];
    uint32_t i = 0;
    for (uint32_t child = 1; child < h->queue_len; child = 2 * i + 1) {
        if (child + 1 < h->queue_len && before(&h->queue[child + 1], &h->queue[child]))
            child++;
        if (!before(&h->queue[child], &last))
            break;
        h->queue[i] = h->queue[child];
        i = child;
    }
    h->queue[i] = last;
    return top;
}

/* ---- connections ---- */

static struct pl_proto_conn *conn_of(struct pl_proto *h, uint32_t learner, enum pl_link link)
{
    return &h->learners[learner].conns[link];
}

/* As the syncer numbers them. */
static uint32_t number_of(uint32_t learner, enum pl_link link)
{
    return 2 * learner + (uint32_t)link;
}

void pl_proto_send(struct pl_proto *h, uint32_t learner, enum pl_link link, bool to_syncer,
                   const struct pl_msg *msg)
{
    struct pl_proto_conn *c = conn_of(h, learner, link);
    struct pl_proto_ev ev = {.kind = to_syncer ? PL_PROTO_TO_SYNCER : PL_PROTO_TO_LEARNER,
                             .learner = learner,
                             .link = link,
                             .life = c->life,
                             .len = pl_frame_bytes(msg)};
    ev.bytes = pl_proto_zero(h, 1, ev.len);
    if (ev.bytes == NULL)
        return;
    pl_frame_encode(msg, ev.bytes, ev.len);
    /* A payload takes the link for a while; what is behind it waits. */
    uint64_t *busy = &c->busy_ns[to_syncer ? 0 : 1];
    *busy = pl_max64(*busy, h->now_ns) + (msg->type == PL_MSG_DATA ? h->learners[learner].payload_ns : 0);
    pl_proto_at(h, *busy - h->now_ns + PL_PROTO_LATENCY_NS, &ev);
}

void pl_proto_dial(struct pl_proto *h, uint32_t learner, enum pl_link link)
{
    struct pl_proto_conn *c = conn_of(h, learner, link);
    pl_assert(!c->at_learner);
    c->at_learner = true;
    c->life++;
    c->busy_ns[0] = c->busy_ns[1] = 0;
    pl_proto_at(
        h, PL_PROTO_LATENCY_NS,
        &(struct pl_proto_ev){.kind = PL_PROTO_OPEN, .learner = learner, .link = link, .life = c->life});
}

void pl_proto_hang_up(struct pl_proto *h, uint32_t learner, enum pl_link link, bool by_syncer)
{
    struct pl_proto_conn *c = conn_of(h, learner, link);
    struct pl_proto_ev ev = {.kind = by_syncer ? PL_PROTO_CLOSED_LEARNER : PL_PROTO_CLOSED_SYNCER,
                             .learner = learner,
                             .link = link,
                             .life = c->life};
    uint64_t busy = c->busy_ns[by_syncer ? 1 : 0];
    *(by_syncer ? &c->at_syncer : &c->at_learner) = false;
    pl_proto_at(h, pl_sub_sat(busy, h->now_ns) + PL_PROTO_LATENCY_NS, &ev);
}

static void closed_at_syncer(struct pl_proto *h, uint32_t learner, enum pl_link link)
{
    struct pl_proto_conn *c = conn_of(h, learner, link);
    if (!c->at_syncer)
        return;
    c->at_syncer = false;
    pl_proto_step_syncer(h, &(struct pl_sync_event){.kind = PL_SYNC_EV_CLOSED,
                                                    .u.closed = {.conn = number_of(learner, link)}});
}

static void closed_at_learner(struct pl_proto *h, uint32_t learner, enum pl_link link)
{
    struct pl_proto_conn *c = conn_of(h, learner, link);
    if (!c->at_learner)
        return;
    c->at_learner = false;
    if (h->learners[learner].core != NULL)
        pl_proto_step_learner(
            h, learner,
            &(struct pl_learn_event){.kind = PL_LEARN_EV_CLOSED, .u.conn = {.shard = 0, .link = link}});
}

void pl_proto_cut(struct pl_proto *h, uint32_t learner)
{
    const enum pl_link links[] = {PL_LINK_BULK, PL_LINK_CONTROL};
    h->lost_conns++;
    for (uint32_t i = 0; i < 2; i++) {
        closed_at_syncer(h, learner, links[i]);
        closed_at_learner(h, learner, links[i]);
    }
}

static void opened(struct pl_proto *h, const struct pl_proto_ev *ev)
{
    struct pl_proto_conn *c = conn_of(h, ev->learner, ev->link);
    if (!c->at_learner || c->life != ev->life)
        return;
    if (h->learners[ev->learner].link_down) {
        closed_at_learner(h, ev->learner, ev->link);
        return;
    }
    pl_assert(!c->at_syncer); /* its end was heard of before, on the same way */
    c->at_syncer = true;
    pl_proto_step_syncer(h, &(struct pl_sync_event){.kind = PL_SYNC_EV_OPENED,
                                                    .u.opened = {.conn = number_of(ev->learner, ev->link),
                                                                 .identity = ev->learner + 1}});
    pl_proto_step_learner(
        h, ev->learner,
        &(struct pl_learn_event){.kind = PL_LEARN_EV_OPENED, .u.conn = {.shard = 0, .link = ev->link}});
}

static void message(struct pl_proto *h, const struct pl_proto_ev *ev)
{
    const struct pl_proto_conn *c = conn_of(h, ev->learner, ev->link);
    bool to_syncer = ev->kind == PL_PROTO_TO_SYNCER;
    struct pl_frame frame;
    struct pl_msg msg;
    if (c->life != ev->life || !(to_syncer ? c->at_syncer : c->at_learner))
        return;
    enum pelago_status status = pl_frame_parse(ev->bytes, ev->len, &frame, NULL);
    if (status == PELAGO_OK)
        status = pl_msg_decode(frame.type, frame.payload, frame.payload_len, &msg, NULL);
    pl_assert(status == PELAGO_OK); /* we wrote it */
    if (to_syncer)
        pl_proto_step_syncer(
            h, &(struct pl_sync_event){.kind = PL_SYNC_EV_MSG,
                                       .u.msg = {.conn = number_of(ev->learner, ev->link), .msg = &msg}});
    else if (h->learners[ev->learner].core != NULL)
        pl_proto_step_learner(
            h, ev->learner,
            &(struct pl_learn_event){.kind = PL_LEARN_EV_MSG,
                                     .u.conn = {.shard = 0, .link = ev->link, .msg = &msg}});
}

void pl_proto_conn_event(struct pl_proto *h, const struct pl_proto_ev *ev)
{
    bool current = conn_of(h, ev->learner, ev->link)->life == ev->life;
    if (ev->kind == PL_PROTO_OPEN)
        opened(h, ev);
    else if (ev->kind == PL_PROTO_CLOSED_SYNCER && current)
        closed_at_syncer(h, ev->learner, ev->link);
    else if (ev->kind == PL_PROTO_CLOSED_LEARNER && current)
        closed_at_learner(h, ev->learner, ev->link);
    else if (ev->kind == PL_PROTO_TO_SYNCER || ev->kind == PL_PROTO_TO_LEARNER)
        message(h, ev);
}
