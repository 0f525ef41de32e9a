/* sim/node_learner.c - see node_learner.h. As with the syncer, no effect steps the core from within. */
#include "sim/node_learner.h"

#include "base/check.h"
#include "base/num.h"
#include "wire/chunk.h"
#include "wire/frame.h"

#include <string.h>

enum { CHECK_EVERY_STEPS = 64, DIAL_FAILED_MS = 100 };

bool pl_lnode_awake(struct pl_world *w, struct pl_lnode *p, const struct pl_sim_ev *ev)
{
    if (p->life != ev->life)
        return false;
    if (!w->hosts[p->host].frozen)
        return true;
    if (p->deferred_len == p->deferred_cap) {
        uint32_t cap = p->deferred_cap == 0 ? 16 : p->deferred_cap * 2;
        void *more = w->alloc.resize(w->alloc.user, p->deferred, p->deferred_cap * sizeof *p->deferred,
                                     cap * sizeof *p->deferred);
        if (more == NULL) {
            w->status = PELAGO_NOMEM;
            return false;
        }
        p->deferred = more;
        p->deferred_cap = cap;
    }
    p->deferred[p->deferred_len++] = *ev;
    return false;
}

void pl_lnode_later(struct pl_world *w, struct pl_lnode *p, uint64_t delay_ns,
                    void (*fire)(struct pl_world *w, const struct pl_sim_ev *ev), uint64_t arg, uint64_t more)
{
    pl_world_at(w, &(struct pl_sim_ev){.at = w->now_ns + delay_ns,
                                       .fire = fire,
                                       .who = p->index,
                                       .life = p->life,
                                       .arg = arg,
                                       .more = more});
}

static void timer_fired(struct pl_world *w, const struct pl_sim_ev *ev)
{
    struct pl_lnode *p = &w->procs[ev->who];
    if (!pl_lnode_awake(w, p, ev) || ev->arg != p->armed_ns)
        return;
    p->armed_ns = PL_NEVER;
    pl_lnode_step(w, p, &(struct pl_learn_event){.kind = PL_LEARN_EV_TIMEOUT, .now_ns = w->now_ns});
}

static void arm(struct pl_world *w, struct pl_lnode *p)
{
    uint64_t deadline = pl_learner_deadline(p->core);
    if (deadline == PL_NEVER)
        return;
    deadline = pl_max64(deadline, w->now_ns);
    if (deadline >= p->armed_ns)
        return;
    p->armed_ns = deadline;
    pl_lnode_later(w, p, deadline - w->now_ns, timer_fired, deadline, 0);
}

static void send(struct pl_world *w, struct pl_lnode *p, uint32_t conn, const struct pl_msg *msg)
{
    if (pl_world_tracing(w)) {
        char text[PL_SIM_TEXT_MAX];
        pl_msg_print(msg, text, sizeof text);
        pl_world_line(w, "learner", p->host + 1, "sends %s to syncer %lu", text,
                      (uint64_t)pl_net_info(w->net, conn)->shard);
    }
    pl_net_send(w->net, conn, PL_SIDE_LEARNER, msg);
}

/* ---- pushes on their way ---- */

static void unqueue(struct pl_lnode *p, uint32_t shard, uint32_t fragment)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < p->queue_len[shard]; i++)
        if (p->queue[shard][i] != fragment)
            p->queue[shard][kept++] = p->queue[shard][i];
    p->queue_len[shard] = kept;
    p->frags[fragment].sending = false;
}

/* Remembers frames so that a script can send them once more. */
static void remember(struct pl_world *w, struct pl_lnode *p, uint32_t shard, const struct pl_msg *msg)
{
    if (w->plan == NULL || w->plan->action_count == 0 || w->toy == NULL)
        return;
    size_t add = pl_frame_bytes(msg), old = p->repeat_len[shard];
    size_t keep = msg->type == PL_MSG_PUSH ? 0 : old;
    uint8_t *bytes = pl_world_zero(w, 1, keep + add);
    if (bytes == NULL)
        return;
    if (keep > 0)
        memcpy(bytes, p->repeat[shard], keep);
    pl_frame_encode(msg, bytes + keep, add);
    pl_alloc_free(&w->alloc, p->repeat[shard], old);
    p->repeat[shard] = bytes;
    p->repeat_len[shard] = keep + add;
}

static void send_next(struct pl_world *w, struct pl_lnode *p, uint32_t shard, uint32_t fragment)
{
    struct pl_lfrag *f = &p->frags[fragment];
    struct pl_msg msg;
    uint64_t bytes = f->header.bytes;
    if (f->header_due) {
        f->header_due = false;
        msg = (struct pl_msg){.type = PL_MSG_PUSH, .u.push = f->header};
    } else {
        uint32_t i = (uint32_t)__builtin_ctzll(~f->there);
        f->there |= UINT64_C(1) << i;
        const uint8_t *from = p->encoded + p->encoded_at[fragment] + pl_chunk_offset(bytes, i);
        msg = (struct pl_msg){
            .type = PL_MSG_DATA,
            .u.data = {
                .fragment = fragment, .id = f->round, .index = i, .bytes = {from, pl_chunk_len(bytes, i)}}};
    }
    remember(w, p, shard, &msg);
    send(w, p, p->conns[shard][PL_LINK_BULK], &msg);
}

static void pump(struct pl_world *w, struct pl_lnode *p, uint32_t shard)
{
    uint32_t conn = p->conns[shard][PL_LINK_BULK];
    while (p->queue_len[shard] > 0 && conn != PL_NONE32 && pl_net_room(w->net, conn, PL_SIDE_LEARNER) &&
           w->status == PELAGO_OK) {
        uint32_t fragment = p->queue[shard][0];
        const struct pl_lfrag *f = &p->frags[fragment];
        if (f->header_due || f->there != pl_chunk_all(f->header.bytes))
            send_next(w, p, shard, fragment);
        else
            unqueue(p, shard, fragment);
    }
}

void pl_lnode_drained(struct pl_world *w, uint32_t conn)
{
    const struct pl_conn_info *info = pl_net_info(w->net, conn);
    struct pl_lnode *p = &w->procs[info->owner];
    if (p->life == info->owner_life)
        pump(w, p, info->shard);
}

static void push(struct pl_world *w, struct pl_lnode *p, const struct pl_learn_effect *fx)
{
    uint32_t fragment = fx->u.push.fragment, shard = fx->u.push.shard;
    struct pl_lfrag *f = &p->frags[fragment];
    pl_assert(f->pending && f->round == fx->u.push.round);
    unqueue(p, shard, fragment);
    f->sending = true;
    f->header_due = fx->u.push.header;
    f->header = fx->u.push.push;
    f->there = fx->u.push.mask;
    p->queue[shard][p->queue_len[shard]++] = fragment;
    pump(w, p, shard);
}

static void cancel(struct pl_world *w, struct pl_lnode *p, const struct pl_learn_effect *fx)
{
    unqueue(p, w->objective->fragment[fx->u.push.fragment].shard, fx->u.push.fragment);
    pl_lnode_cancel(w, p, fx);
}

/* ---- connections ---- */

static void dial_failed(struct pl_world *w, const struct pl_sim_ev *ev)
{
    struct pl_lnode *p = &w->procs[ev->who];
    if (!pl_lnode_awake(w, p, ev))
        return;
    pl_lnode_step(
        w, p,
        &(struct pl_learn_event){.kind = PL_LEARN_EV_CLOSED,
                                 .now_ns = w->now_ns,
                                 .u.conn = {.shard = (uint32_t)ev->arg, .link = (enum pl_link)ev->more}});
}

static void dial(struct pl_world *w, struct pl_lnode *p, const struct pl_learn_effect *fx)
{
    uint32_t *at = &p->conns[fx->u.conn.shard][fx->u.conn.link];
    pl_assert(*at == PL_NONE32);
    *at = pl_net_dial(w->net, &(struct pl_conn_info){.machine = p->host,
                                                     .shard = fx->u.conn.shard,
                                                     .link = fx->u.conn.link,
                                                     .owner = p->index,
                                                     .owner_life = p->life});
    if (*at == PL_NONE32)
        pl_lnode_later(w, p, DIAL_FAILED_MS * PL_MS, dial_failed, fx->u.conn.shard, fx->u.conn.link);
}

static void forget_conn(struct pl_lnode *p, uint32_t shard, enum pl_link link)
{
    p->conns[shard][link] = PL_NONE32;
    if (link == PL_LINK_BULK) {
        while (p->queue_len[shard] > 0)
            unqueue(p, shard, p->queue[shard][0]);
    }
}

static void hang_up(struct pl_world *w, struct pl_lnode *p, const struct pl_learn_effect *fx)
{
    uint32_t conn = p->conns[fx->u.conn.shard][fx->u.conn.link];
    if (conn == PL_NONE32)
        return;
    struct pl_msg msg = {
        .type = PL_MSG_CLOSE,
        .u.close = {.code = fx->u.conn.reason,
                    .text = {(const uint8_t *)fx->u.conn.text, (uint32_t)strlen(fx->u.conn.text)}}};
    if (pl_net_up(w->net, conn))
        send(w, p, conn, &msg);
    forget_conn(p, fx->u.conn.shard, fx->u.conn.link);
    if (w->status == PELAGO_OK)
        pl_net_close(w->net, conn, PL_SIDE_LEARNER);
}

/* ---- the core ---- */

static void trace(struct pl_world *w, struct pl_lnode *p, const struct pl_trace *t)
{
    char text[PL_SIM_TEXT_MAX];
    if (!pl_world_tracing(w))
        return;
    pl_trace_print(t, text, sizeof text);
    pl_world_line(w, "learner", p->host + 1, "%s", text);
}

static void perform_values(struct pl_world *w, struct pl_lnode *p, const struct pl_learn_effect *fx)
{
    if (fx->kind == PL_LEARN_FX_MANIFEST)
        pl_lnode_manifest(w, p);
    else if (fx->kind == PL_LEARN_FX_COPY)
        pl_lnode_copy(w, p, fx);
    else if (fx->kind == PL_LEARN_FX_KEEP)
        pl_lnode_keep(w, p, fx);
    else if (fx->kind == PL_LEARN_FX_DECODE)
        pl_lnode_decode(w, p, fx);
    else if (fx->kind == PL_LEARN_FX_FORGET)
        pl_lnode_forget(w, p, fx->u.update.fragment);
    else if (fx->kind == PL_LEARN_FX_APPLY)
        pl_lnode_apply(w, p, fx);
    else if (fx->kind == PL_LEARN_FX_UNIT)
        pl_lnode_unit(p, fx->u.unit.unit, fx->u.unit.cursor);
}

static void perform(struct pl_world *w, struct pl_lnode *p, const struct pl_learn_effect *fx)
{
    switch (fx->kind) {
    case PL_LEARN_FX_CONNECT:
        dial(w, p, fx);
        break;
    case PL_LEARN_FX_DISCONNECT:
        hang_up(w, p, fx);
        break;
    case PL_LEARN_FX_SEND:
        /* None: closed while the process was frozen, and it has not heard of it yet. */
        if (p->conns[fx->u.conn.shard][fx->u.conn.link] != PL_NONE32)
            send(w, p, p->conns[fx->u.conn.shard][fx->u.conn.link], &fx->u.conn.msg);
        break;
    case PL_LEARN_FX_PUSH:
        push(w, p, fx);
        break;
    case PL_LEARN_FX_CANCEL:
        cancel(w, p, fx);
        break;
    case PL_LEARN_FX_CLOCK:
        p->clock_tokens = fx->u.clock.tokens;
        p->clock_rate = fx->u.clock.rate;
        p->clock_ns = w->now_ns;
        break;
    case PL_LEARN_FX_STOP:
        p->stopped = true;
        break;
    case PL_LEARN_FX_DONE:
    case PL_LEARN_FX_FATAL:
        pl_world_line(w, "learner", p->host + 1, "%s %s",
                      fx->kind == PL_LEARN_FX_DONE ? "leaves" : "gives up", fx->u.conn.text);
        pl_lnode_over(w, p, fx->kind == PL_LEARN_FX_FATAL);
        break;
    case PL_LEARN_FX_TRACE:
        trace(w, p, &fx->u.trace);
        break;
    case PL_LEARN_FX_MANIFEST:
    case PL_LEARN_FX_COPY:
    case PL_LEARN_FX_KEEP:
    case PL_LEARN_FX_DECODE:
    case PL_LEARN_FX_FORGET:
    case PL_LEARN_FX_APPLY:
    case PL_LEARN_FX_UNIT:
        perform_values(w, p, fx);
        break;
    }
}

void pl_lnode_step(struct pl_world *w, struct pl_lnode *p, const struct pl_learn_event *ev)
{
    uint32_t life = p->life;
    uint64_t identity = (uint64_t)p->host + 1;
    pl_world_note(w, (uint64_t)ev->kind << 16 | p->index, ev->now_ns);
    pl_checks_learn_event(w->checks, identity, p->process, ev);
    p->fxs.count = 0;
    p->delivering = ev->kind == PL_LEARN_EV_MSG ? ev->u.conn.msg : NULL;
    pl_learner_step(p->core, ev, &p->fxs);
    pl_checks_learn_effects(w->checks, identity, p->process, w->now_ns, &p->fxs);
    for (uint32_t i = 0; i < p->fxs.count && w->status == PELAGO_OK && p->life == life; i++) {
        pl_world_note(w, p->fxs.fx[i].kind, i);
        perform(w, p, &p->fxs.fx[i]);
    }
    p->delivering = NULL;
    if (p->life != life)
        return;
    if (++p->core_steps % CHECK_EVERY_STEPS == 0)
        pl_learner_check(p->core);
    arm(w, p);
}

/* The process at the learner's end, or NULL when it is gone. */
static struct pl_lnode *owner_of(struct pl_world *w, uint32_t conn)
{
    const struct pl_conn_info *info = pl_net_info(w->net, conn);
    struct pl_lnode *p = &w->procs[info->owner];
    return p->life == info->owner_life ? p : NULL;
}

static struct pl_learn_event conn_event(const struct pl_world *w, uint32_t conn, enum pl_learn_ev kind)
{
    const struct pl_conn_info *info = pl_net_info(w->net, conn);
    return (struct pl_learn_event){
        .kind = kind, .now_ns = w->now_ns, .u.conn = {.shard = info->shard, .link = info->link}};
}

static void opened_late(struct pl_world *w, const struct pl_sim_ev *ev);

void pl_lnode_opened(struct pl_world *w, uint32_t conn)
{
    struct pl_lnode *p = owner_of(w, conn);
    if (p == NULL)
        return;
    if (w->hosts[p->host].frozen) {
        pl_lnode_later(w, p, 0, opened_late, conn, 0);
        return;
    }
    struct pl_learn_event ev = conn_event(w, conn, PL_LEARN_EV_OPENED);
    pl_lnode_step(w, p, &ev);
}

/* Kept while the process was frozen; by now the connection may be another one, or none. */
static void opened_late(struct pl_world *w, const struct pl_sim_ev *ev)
{
    struct pl_lnode *p = &w->procs[ev->who];
    if (!pl_lnode_awake(w, p, ev))
        return;
    for (uint32_t shard = 0; shard < w->o.shards; shard++)
        for (uint32_t link = 0; link < 2; link++)
            if (p->conns[shard][link] == ev->arg)
                pl_lnode_opened(w, (uint32_t)ev->arg);
}

static void closed_late(struct pl_world *w, const struct pl_sim_ev *ev)
{
    struct pl_lnode *p = &w->procs[ev->who];
    if (!pl_lnode_awake(w, p, ev))
        return;
    pl_lnode_step(
        w, p,
        &(struct pl_learn_event){.kind = PL_LEARN_EV_CLOSED,
                                 .now_ns = w->now_ns,
                                 .u.conn = {.shard = (uint32_t)ev->arg, .link = (enum pl_link)ev->more}});
}

void pl_lnode_closed(struct pl_world *w, uint32_t conn)
{
    struct pl_lnode *p = owner_of(w, conn);
    if (p == NULL)
        return;
    struct pl_learn_event ev = conn_event(w, conn, PL_LEARN_EV_CLOSED);
    forget_conn(p, ev.u.conn.shard, ev.u.conn.link);
    if (w->hosts[p->host].frozen)
        pl_lnode_later(w, p, 0, closed_late, ev.u.conn.shard, ev.u.conn.link);
    else
        pl_lnode_step(w, p, &ev);
}

void pl_lnode_message(struct pl_world *w, uint32_t conn, const struct pl_msg *msg)
{
    struct pl_lnode *p = owner_of(w, conn);
    if (p == NULL)
        return;
    struct pl_learn_event ev = conn_event(w, conn, PL_LEARN_EV_MSG);
    ev.u.conn.msg = msg;
    if (pl_world_tracing(w)) {
        char text[PL_SIM_TEXT_MAX];
        pl_msg_print(msg, text, sizeof text);
        pl_world_line(w, "learner", p->host + 1, "gets %s from syncer %lu", text, (uint64_t)ev.u.conn.shard);
    }
    pl_lnode_step(w, p, &ev);
}

void pl_lnode_bad(struct pl_world *w, uint32_t conn, const struct pl_error *error)
{
    struct pl_lnode *p = owner_of(w, conn);
    if (p == NULL)
        return;
    struct pl_learn_event ev = conn_event(w, conn, PL_LEARN_EV_BAD);
    ev.u.conn.error = error;
    pl_lnode_step(w, p, &ev);
}

bool pl_lnode_reads(struct pl_world *w, uint32_t conn)
{
    const struct pl_lnode *p = owner_of(w, conn);
    return p == NULL || !w->hosts[p->host].frozen;
}
