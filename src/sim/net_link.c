/* sim/net_link.c - links that take time, and paths that are cut, stalled or held. */
#include "base/check.h"
#include "base/num.h"
#include "sim/net_int.h"

enum { PACKET_BYTES = 1500, RECORD_BYTES = 16384 };

void pl_seg_push(struct pl_seg_list *l, struct pl_seg *s)
{
    s->next = NULL;
    if (l->last != NULL)
        l->last->next = s;
    else
        l->first = s;
    l->last = s;
}

struct pl_seg *pl_seg_pop(struct pl_seg_list *l)
{
    struct pl_seg *s = l->first;
    if (s != NULL) {
        l->first = s->next;
        if (l->first == NULL)
            l->last = NULL;
    }
    return s;
}

/* One way, with a jitter of up to a quarter. */
uint64_t pl_net_latency(struct pl_net *n, uint32_t machine)
{
    uint64_t ns = n->machines[machine].latency_ns;
    return ns + pl_prng_below(&n->prng, ns / 4 + 1);
}

static bool is_held(const struct pl_net *n, const struct pl_conn *c, uint32_t dir, const struct pl_seg *s)
{
    uint32_t held = pl_net_path(n, c)->held[dir];
    return held != 0 && (((held & 1) != 0 && c->info.link == PL_LINK_BULK) ||
                         (s->type != 0 && (held >> s->type & 1) != 0));
}

/* The next connection with something to send: control first, then bulk, each in turn. PL_NONE32: none. */
static uint32_t next_sender(const struct pl_net *n, const struct pl_machine *m, uint32_t dir)
{
    uint32_t bulk = PL_NONE32;
    for (uint32_t k = 0; k < m->conn_count; k++) {
        uint32_t at = (m->wire[dir].turn + k) % m->conn_count;
        const struct pl_conn *c = &n->conns[m->conns[at]];
        const struct pl_seg *head = c->pipe[dir].out.first;
        if (head == NULL || is_held(n, c, dir, head))
            continue;
        if (c->info.link == PL_LINK_CONTROL)
            return at;
        if (bulk == PL_NONE32)
            bulk = at;
    }
    return bulk;
}

static void wire_free(struct pl_world *w, const struct pl_sim_ev *ev)
{
    w->net->machines[ev->who].wire[ev->arg].armed = false;
    pl_net_pump(w->net, ev->who, (uint32_t)ev->arg);
}

static void transmit(struct pl_net *n, struct pl_machine *m, uint32_t conn, uint32_t dir)
{
    struct pl_conn *c = &n->conns[conn];
    struct pl_pipe *p = &c->pipe[dir];
    struct pl_wire *wire = &m->wire[dir];
    uint32_t piece = pl_min32(p->out.first->len - p->out.first->sent, PACKET_BYTES);
    wire->free_ns = n->w->now_ns + pl_mul_div(piece, PL_SEC, m->rate) + 1;
    p->out.first->sent += piece;
    if (p->out.first->sent < p->out.first->len)
        return; /* others may go between two packets */
    struct pl_seg *s = pl_seg_pop(&p->out);
    p->out_bytes -= s->len;
    n->w->result->wire_bytes[dir] += s->len;
    n->w->result->wire_records[dir] += (s->len + RECORD_BYTES - 1) / RECORD_BYTES;
    uint64_t arrive = wire->free_ns + pl_net_latency(n, c->info.machine);
    s->arrive_ns = p->last_arrive_ns = pl_max64(arrive, p->last_arrive_ns);
    pl_seg_push(&p->fly, s);
    pl_world_at(n->w,
                &(struct pl_sim_ev){
                    .at = s->arrive_ns, .fire = pl_net_arrive, .who = conn, .life = c->life, .arg = dir});
    enum pl_side sender = dir == 0 ? PL_SIDE_LEARNER : PL_SIDE_SYNCER;
    if (c->info.link == PL_LINK_BULK && c->open[sender] && pl_net_room(n, conn, sender))
        n->setup.ops.drained(n->w, conn, sender);
}

void pl_net_pump(struct pl_net *n, uint32_t machine, uint32_t dir)
{
    struct pl_machine *m = &n->machines[machine];
    struct pl_wire *wire = &m->wire[dir];
    while (!wire->stalled) {
        uint32_t at = next_sender(n, m, dir);
        if (at == PL_NONE32)
            return;
        if (wire->free_ns > n->w->now_ns) {
            if (!wire->armed) {
                wire->armed = true;
                pl_world_at(n->w, &(struct pl_sim_ev){
                                      .at = wire->free_ns, .fire = wire_free, .who = machine, .arg = dir});
            }
            return;
        }
        wire->turn = at + 1;
        transmit(n, m, m->conns[at], dir);
    }
}

static void kick_path(struct pl_net *n, uint32_t machine, uint32_t shard)
{
    const struct pl_machine *m = &n->machines[machine];
    for (uint32_t i = 0; i < m->conn_count; i++) {
        const struct pl_conn *c = &n->conns[m->conns[i]];
        if (shard != PL_NONE32 && c->info.shard != shard)
            continue;
        for (uint32_t dir = 0; dir < 2; dir++)
            pl_world_at(n->w, &(struct pl_sim_ev){.at = n->w->now_ns + pl_net_latency(n, machine),
                                                  .fire = pl_net_arrive,
                                                  .who = m->conns[i],
                                                  .life = c->life,
                                                  .arg = dir});
    }
}

static void set_cut(struct pl_net *n, uint32_t machine, uint32_t shard, uint32_t dirs, bool cut)
{
    for (uint32_t s = 0; s < n->setup.shards; s++)
        if (shard == PL_NONE32 || shard == s)
            for (uint32_t dir = 0; dir < 2; dir++)
                if ((dirs >> dir & 1) != 0)
                    n->paths[machine * n->setup.shards + s].cut[dir] = cut;
}

void pl_net_cut(struct pl_net *n, uint32_t machine, uint32_t shard, uint32_t dirs)
{
    set_cut(n, machine, shard, dirs, true);
}

void pl_net_heal(struct pl_net *n, uint32_t machine, uint32_t shard, uint32_t dirs)
{
    set_cut(n, machine, shard, dirs, false);
    kick_path(n, machine, shard);
}

void pl_net_stall(struct pl_net *n, uint32_t machine, uint32_t dirs)
{
    for (uint32_t dir = 0; dir < 2; dir++)
        if ((dirs >> dir & 1) != 0)
            n->machines[machine].wire[dir].stalled = true;
}

void pl_net_flow(struct pl_net *n, uint32_t machine, uint32_t dirs)
{
    for (uint32_t dir = 0; dir < 2; dir++)
        if ((dirs >> dir & 1) != 0) {
            n->machines[machine].wire[dir].stalled = false;
            pl_net_pump(n, machine, dir);
        }
}

void pl_net_rate(struct pl_net *n, uint32_t machine, uint64_t bytes_per_s)
{
    n->machines[machine].rate = bytes_per_s != 0 ? bytes_per_s : n->setup.bandwidth;
}

void pl_net_delay(struct pl_net *n, uint32_t machine, uint64_t latency_ns)
{
    n->machines[machine].latency_ns = latency_ns != 0 ? latency_ns : n->setup.latency_ns;
}

static void set_held(struct pl_net *n, uint32_t machine, uint32_t shard, uint32_t dirs, uint32_t type,
                     bool held)
{
    pl_assert(type < 32);
    for (uint32_t s = 0; s < n->setup.shards; s++)
        for (uint32_t dir = 0; dir < 2; dir++) {
            uint32_t *mask = &n->paths[machine * n->setup.shards + s].held[dir];
            if ((shard == PL_NONE32 || shard == s) && (dirs >> dir & 1) != 0)
                *mask = held ? *mask | UINT32_C(1) << type : *mask & ~(UINT32_C(1) << type);
        }
}

void pl_net_hold(struct pl_net *n, uint32_t machine, uint32_t shard, uint32_t dirs, uint32_t type)
{
    set_held(n, machine, shard, dirs, type, true);
}

void pl_net_release(struct pl_net *n, uint32_t machine, uint32_t shard, uint32_t dirs, uint32_t type)
{
    set_held(n, machine, shard, dirs, type, false);
    pl_net_pump(n, machine, 0);
    pl_net_pump(n, machine, 1);
}
