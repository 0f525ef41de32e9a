/* sim/net.c - connections: dialling, sending, arriving, ending. See net.h; links are in net_link.c. */
#include "base/bytes.h"
#include "base/check.h"
#include "base/num.h"
#include "sim/net_int.h"
#include "wire/frame.h"

#include <string.h>

enum { RX_BYTES_MAX = 1 << 20, CONTROL_QUEUE_BYTES_MAX = 1 << 18, DIAL_TIMEOUT_S = 3 };

static void free_segs(struct pl_net *n, struct pl_seg_list *l)
{
    struct pl_seg *s;
    while ((s = pl_seg_pop(l)) != NULL)
        pl_alloc_free(&n->w->alloc, s, sizeof *s + s->len);
}

static void drop_bytes(struct pl_net *n, struct pl_pipe *p)
{
    free_segs(n, &p->out);
    free_segs(n, &p->fly);
    p->out_bytes = 0;
}

struct pl_net *pl_net_new(struct pl_world *w, const struct pl_net_setup *setup)
{
    struct pl_net *n = pl_world_zero(w, 1, sizeof *n);
    if (n == NULL)
        return NULL;
    n->w = w;
    n->setup = *setup;
    n->conn_max = setup->machines * PL_NET_CONNS_PER_MACHINE;
    n->conns = pl_world_zero(w, n->conn_max, sizeof *n->conns);
    n->machines = pl_world_zero(w, setup->machines, sizeof *n->machines);
    n->paths = pl_world_zero(w, (size_t)setup->machines * setup->shards, sizeof *n->paths);
    if (n->conns == NULL || n->machines == NULL || n->paths == NULL)
        return NULL;
    pl_prng_seed(&n->prng, setup->seed, PL_STREAM_NET);
    for (uint32_t i = 0; i < setup->machines; i++) {
        struct pl_machine *m = &n->machines[i];
        m->rate = setup->bandwidth;
        m->latency_ns = setup->latency_ns;
        m->conns = pl_world_zero(w, PL_NET_CONNS_PER_MACHINE, sizeof *m->conns);
        if (m->conns == NULL)
            return NULL;
    }
    return n;
}

const struct pl_conn_info *pl_net_info(const struct pl_net *n, uint32_t conn)
{
    return &n->conns[conn].info;
}

bool pl_net_up(const struct pl_net *n, uint32_t conn)
{
    return n->conns[conn].state == PL_CONN_UP;
}

void pl_net_set_tag(struct pl_net *n, uint32_t conn, uint32_t tag)
{
    n->conns[conn].info.tag = tag;
}

static void release_conn(struct pl_net *n, uint32_t conn)
{
    struct pl_conn *c = &n->conns[conn];
    struct pl_machine *m = &n->machines[c->info.machine];
    for (uint32_t dir = 0; dir < 2; dir++) {
        drop_bytes(n, &c->pipe[dir]);
        pl_buf_release(&c->pipe[dir].rx);
    }
    uint32_t at = 0;
    while (m->conns[at] != conn)
        at++;
    memmove(&m->conns[at], &m->conns[at + 1], (m->conn_count - at - 1) * sizeof *m->conns);
    m->conn_count--;
    c->state = PL_CONN_FREE;
    c->life++;
}

/* This end is no more; the connection goes when both ends are gone. */
static void end_side(struct pl_net *n, uint32_t conn, enum pl_side side)
{
    struct pl_conn *c = &n->conns[conn];
    c->open[side] = false;
    if (!c->open[0] && !c->open[1])
        release_conn(n, conn);
}

static void tell_closed(struct pl_net *n, uint32_t conn, enum pl_side side)
{
    struct pl_conn *c = &n->conns[conn];
    if (!c->open[side])
        return;
    struct pl_world *w = n->w;
    uint32_t life = c->life;
    n->setup.ops.closed(w, conn, side);
    if (c->life == life && c->open[side])
        end_side(n, conn, side);
}

static void closed_event(struct pl_world *w, const struct pl_sim_ev *ev)
{
    if (w->net->conns[ev->who].life == ev->life)
        tell_closed(w->net, ev->who, (enum pl_side)ev->arg);
}

static void tell_closed_later(struct pl_net *n, uint32_t conn, enum pl_side side, uint64_t delay_ns)
{
    pl_world_at(n->w, &(struct pl_sim_ev){.at = n->w->now_ns + delay_ns,
                                          .fire = closed_event,
                                          .who = conn,
                                          .life = n->conns[conn].life,
                                          .arg = (uint64_t)side});
}

static void answered(struct pl_world *w, const struct pl_sim_ev *ev)
{
    struct pl_conn *c = &w->net->conns[ev->who];
    if (c->life != ev->life || !c->open[PL_SIDE_LEARNER])
        return;
    if (c->dead) /* a dial always ends: by its answer, or by the time it may take */
        tell_closed_later(w->net, ev->who, PL_SIDE_LEARNER, DIAL_TIMEOUT_S * PL_SEC);
    else
        w->net->setup.ops.opened(w, ev->who, PL_SIDE_LEARNER);
}

/* The first packet of a dial reaches the shard, or does not. */
static void called(struct pl_world *w, const struct pl_sim_ev *ev)
{
    struct pl_net *n = w->net;
    struct pl_conn *c = &n->conns[ev->who];
    if (c->life != ev->life)
        return;
    c->dead = false; /* nothing to break yet */
    const struct pl_path *path = pl_net_path(n, c);
    const struct pl_machine *m = &n->machines[c->info.machine];
    uint64_t back_ns = pl_net_latency(n, c->info.machine);
    if (path->cut[0] || path->cut[1] || m->wire[0].stalled || m->wire[1].stalled) {
        tell_closed_later(n, ev->who, PL_SIDE_LEARNER, DIAL_TIMEOUT_S * PL_SEC);
        return;
    }
    if (!n->setup.ops.accept(w, ev->who)) {
        tell_closed_later(n, ev->who, PL_SIDE_LEARNER, back_ns);
        return;
    }
    c->state = PL_CONN_UP;
    c->open[PL_SIDE_SYNCER] = true;
    pl_world_at(
        w, &(struct pl_sim_ev){.at = w->now_ns + back_ns, .fire = answered, .who = ev->who, .life = c->life});
    c->pipe[1].last_arrive_ns = w->now_ns + back_ns;
    n->setup.ops.opened(w, ev->who, PL_SIDE_SYNCER);
}

uint32_t pl_net_dial(struct pl_net *n, const struct pl_conn_info *info)
{
    struct pl_machine *m = &n->machines[info->machine];
    if (m->conn_count == PL_NET_CONNS_PER_MACHINE)
        return PL_NONE32;
    while (n->conns[n->next_free].state != PL_CONN_FREE)
        n->next_free = (n->next_free + 1) % n->conn_max;
    uint32_t conn = n->next_free;
    n->next_free = (conn + 1) % n->conn_max;
    struct pl_conn *c = &n->conns[conn];
    uint32_t life = c->life;
    *c = (struct pl_conn){.info = *info, .state = PL_CONN_DIALING, .life = life};
    c->open[PL_SIDE_LEARNER] = true;
    for (uint32_t dir = 0; dir < 2; dir++)
        pl_buf_init(&c->pipe[dir].rx, &n->w->alloc, RX_BYTES_MAX);
    m->conns[m->conn_count++] = conn;
    pl_world_at(n->w, &(struct pl_sim_ev){.at = n->w->now_ns + pl_net_latency(n, info->machine),
                                          .fire = called,
                                          .who = conn,
                                          .life = life});
    return conn;
}

static struct pl_seg *new_seg(struct pl_net *n, size_t len)
{
    struct pl_seg *s = n->w->alloc.resize(n->w->alloc.user, NULL, 0, sizeof *s + len);
    if (s == NULL) {
        n->w->status = PELAGO_NOMEM;
        return NULL;
    }
    *s = (struct pl_seg){.len = (uint32_t)len};
    return s;
}

static void queue_seg(struct pl_net *n, uint32_t conn, enum pl_side side, struct pl_seg *s)
{
    struct pl_conn *c = &n->conns[conn];
    uint32_t dir = pl_dir_from(side);
    struct pl_pipe *p = &c->pipe[dir];
    pl_seg_push(&p->out, s);
    p->out_bytes += s->len;
    bool bulk = c->info.link == PL_LINK_BULK;
    pl_checks_queue(n->w->checks, n->w->now_ns, bulk ? "bulk send buffer" : "control send buffer",
                    p->out_bytes, bulk ? PL_NET_BUFFER_BYTES + RX_BYTES_MAX : CONTROL_QUEUE_BYTES_MAX);
    pl_net_pump(n, c->info.machine, dir);
}

/* Cumulative counters: only the newest report matters. */
static bool replace_report(struct pl_pipe *p, const struct pl_msg *msg)
{
    for (struct pl_seg *s = p->out.first; s != NULL; s = s->next)
        if (s->type == PL_MSG_REPORT && s->sent == 0) {
            pl_frame_encode(msg, s->bytes, s->len);
            return true;
        }
    return false;
}

void pl_net_send(struct pl_net *n, uint32_t conn, enum pl_side side, const struct pl_msg *msg)
{
    struct pl_conn *c = &n->conns[conn];
    pl_assert(c->open[side]);
    if (c->dead || (msg->type == PL_MSG_REPORT && replace_report(&c->pipe[pl_dir_from(side)], msg)))
        return;
    struct pl_seg *s = new_seg(n, pl_frame_bytes(msg));
    if (s == NULL)
        return;
    pl_frame_encode(msg, s->bytes, s->len);
    s->type = msg->type;
    queue_seg(n, conn, side, s);
}

void pl_net_send_bytes(struct pl_net *n, uint32_t conn, enum pl_side side, const uint8_t *bytes, size_t len)
{
    pl_assert(n->conns[conn].open[side]);
    struct pl_seg *s = n->conns[conn].dead ? NULL : new_seg(n, len);
    if (s == NULL)
        return;
    memcpy(s->bytes, bytes, len);
    queue_seg(n, conn, side, s);
}

bool pl_net_room(const struct pl_net *n, uint32_t conn, enum pl_side side)
{
    return n->conns[conn].pipe[pl_dir_from(side)].out_bytes < PL_NET_BUFFER_BYTES;
}

void pl_net_close(struct pl_net *n, uint32_t conn, enum pl_side side)
{
    struct pl_conn *c = &n->conns[conn];
    pl_assert(c->open[side]);
    enum pl_side other = side == PL_SIDE_LEARNER ? PL_SIDE_SYNCER : PL_SIDE_LEARNER;
    if (!c->dead && c->open[other]) {
        struct pl_seg *fin = new_seg(n, 0);
        if (fin == NULL)
            return;
        fin->fin = true;
        queue_seg(n, conn, side, fin);
    }
    end_side(n, conn, side);
}

void pl_net_die(struct pl_net *n, uint32_t conn, enum pl_side side, bool told)
{
    struct pl_conn *c = &n->conns[conn];
    struct pl_pipe *p = &c->pipe[pl_dir_from(side)];
    free_segs(n, &p->out);
    p->out_bytes = 0;
    if (told) {
        pl_net_close(n, conn, side);
        return;
    }
    c->dead = true;
    end_side(n, conn, side);
}

void pl_net_break(struct pl_net *n, uint32_t conn, uint32_t told)
{
    struct pl_conn *c = &n->conns[conn];
    c->dead = true;
    for (uint32_t dir = 0; dir < 2; dir++)
        drop_bytes(n, &c->pipe[dir]);
    for (uint32_t side = 0; side < 2; side++)
        if ((told >> side & 1) != 0)
            tell_closed_later(n, conn, (enum pl_side)side, pl_net_latency(n, c->info.machine));
}

/* One message, or the reason why the bytes are none. False: nothing more to read now. */
static bool read_frame(struct pl_net *n, uint32_t conn, uint32_t dir, const uint8_t *bytes, size_t len,
                       size_t *used)
{
    struct pl_conn *c = &n->conns[conn];
    enum pl_side side = pl_side_at_end(dir);
    struct pl_frame frame;
    struct pl_msg msg;
    struct pl_error error;
    enum pelago_status status = pl_frame_parse(bytes, len, &frame, &error);
    if (status == PELAGO_SHORT)
        return false;
    if (status == PELAGO_OK) {
        *used = frame.total;
        pl_world_note(n->w, pl_get_le(bytes + 8, 8), conn);
        status = pl_msg_decode(frame.type, frame.payload, frame.payload_len, &msg, &error);
    }
    if (status != PELAGO_OK) {
        c->pipe[dir].deaf = true;
        n->setup.ops.bad(n->w, conn, side, &error);
        return false;
    }
    uint32_t life = c->life;
    n->setup.ops.message(n->w, conn, side, &msg);
    return c->life == life && c->open[side] && n->w->status == PELAGO_OK;
}

static void read_segment(struct pl_net *n, uint32_t conn, uint32_t dir, const struct pl_seg *s)
{
    struct pl_conn *c = &n->conns[conn];
    uint32_t life = c->life;
    struct pl_buf *rx = &c->pipe[dir].rx;
    if (c->pipe[dir].deaf)
        return;
    const uint8_t *bytes = s->bytes;
    size_t len = s->len, at = 0, used = 0;
    bool joined = rx->len > 0; /* otherwise frames are read where they are, without a copy */
    if (joined) {
        enum pelago_status status = pl_buf_append(rx, s->bytes, s->len);
        if (status != PELAGO_OK) {
            n->w->status = status;
            return;
        }
        bytes = rx->data;
        len = rx->len;
    }
    while (at < len && read_frame(n, conn, dir, bytes + at, len - at, &used))
        at += used;
    if (c->life != life || c->pipe[dir].deaf || at == len) {
        if (c->life == life)
            rx->len = 0;
        return;
    }
    if (joined)
        pl_buf_consume(rx, at);
    else if (pl_buf_append(rx, bytes + at, len - at) != PELAGO_OK)
        n->w->status = PELAGO_NOMEM;
}

/* True when the head of the stream was taken. */
static bool arrive_one(struct pl_net *n, uint32_t conn, uint32_t dir)
{
    struct pl_conn *c = &n->conns[conn];
    enum pl_side side = pl_side_at_end(dir);
    struct pl_pipe *p = &c->pipe[dir];
    if (p->fly.first == NULL || p->fly.first->arrive_ns > n->w->now_ns || pl_net_path(n, c)->cut[dir])
        return false;
    if (c->open[side] && !n->setup.ops.reads(n->w, conn, side))
        return false;
    struct pl_seg *s = pl_seg_pop(&p->fly);
    if (c->open[side]) {
        if (s->fin)
            tell_closed(n, conn, side);
        else
            read_segment(n, conn, dir, s);
    }
    pl_alloc_free(&n->w->alloc, s, sizeof *s + s->len);
    return true;
}

void pl_net_arrive(struct pl_world *w, const struct pl_sim_ev *ev)
{
    struct pl_net *n = w->net;
    const struct pl_conn *c = &n->conns[ev->who];
    while (w->status == PELAGO_OK && c->life == ev->life && arrive_one(n, ev->who, (uint32_t)ev->arg))
        ;
}

void pl_net_kick(struct pl_net *n, uint32_t conn, enum pl_side side)
{
    uint32_t dir = side == PL_SIDE_SYNCER ? 0 : 1;
    pl_world_at(
        n->w,
        &(struct pl_sim_ev){
            .at = n->w->now_ns, .fire = pl_net_arrive, .who = conn, .life = n->conns[conn].life, .arg = dir});
}

void pl_net_each(struct pl_net *n, uint32_t machine, uint32_t shard,
                 void (*f)(struct pl_net *n, uint32_t conn, void *user), void *user)
{
    for (uint32_t i = 0; i < n->conn_max; i++) {
        const struct pl_conn *c = &n->conns[i];
        if (c->state == PL_CONN_FREE || (machine != PL_NONE32 && c->info.machine != machine) ||
            (shard != PL_NONE32 && c->info.shard != shard))
            continue;
        f(n, i, user);
    }
}
