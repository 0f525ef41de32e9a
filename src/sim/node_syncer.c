/* sim/node_syncer.c - see node_syncer.h. Effects are performed at once or answered by a later event; no effect steps
 * the core again from within. */
#include "sim/node_syncer.h"

#include "base/check.h"
#include "base/num.h"
#include "optim/merge.h"
#include "wire/chunk.h"

#include <string.h>

enum { CHECK_EVERY_STEPS = 64, BOOT_RETRY_MS = 500 };

static bool init_fragments(struct pl_world *w, struct pl_snode *s)
{
    const struct pl_objective *t = w->objective;
    s->fragments = pl_world_zero(w, t->fragments, sizeof *s->fragments);
    if (s->fragments == NULL)
        return false;
    for (uint32_t i = 0; i < t->fragments; i++) {
        if (t->fragment[i].shard != s->shard)
            continue;
        struct pl_shard_fragment *f = &s->fragments[s->fragment_count++];
        f->number = i;
        f->count = t->fragment[i].count;
        float **arrays[] = {&f->theta,           &f->momentum,         &f->broadcast,   &f->staged.theta,
                            &f->staged.momentum, &f->staged.broadcast, &f->staged.delta};
        for (size_t k = 0; k < sizeof arrays / sizeof arrays[0]; k++)
            *arrays[k] = pl_world_zero(w, f->count, sizeof(float));
    }
    return w->status == PELAGO_OK;
}

bool pl_snode_init(struct pl_world *w, uint32_t shard)
{
    struct pl_snode *s = &w->syncers[shard];
    uint32_t machines = w->o.learners + w->hostile_count;
    s->shard = shard;
    s->options = (struct pl_sync_options){.manifest = &w->objective->manifest,
                                          .manifest_digest = w->objective->manifest_digest,
                                          .shard = shard,
                                          .learners_max = machines + 2,
                                          .conns_max = 8 * machines + 16};
    uint32_t learners = s->options.learners_max;
    s->armed_ns = PL_NEVER;
    s->memory_bytes = pl_syncer_bytes(&s->options);
    s->memory = pl_world_zero(w, 1, s->memory_bytes);
    s->fxs.max = pl_syncer_effects_max(&s->options);
    s->fxs.fx = pl_world_zero(w, s->fxs.max, sizeof *s->fxs.fx);
    s->conns = pl_world_zero(w, s->options.conns_max, sizeof *s->conns);
    s->scratch = pl_world_zero(w, (size_t)learners * w->objective->largest, sizeof(float));
    s->parts = pl_world_zero(w, learners, sizeof *s->parts);
    enum pl_merge_mode mode = pl_rule_mode(&w->objective->merge, PL_MERGE_RDA);
    s->merging =
        pl_world_zero(w, pl_merge_scratch_of(mode, learners, w->objective->pool), sizeof *s->merging);
    s->weights = pl_world_zero(w, learners, sizeof *s->weights);
    s->reach = pl_world_zero(w, learners, sizeof *s->reach);
    s->counts = pl_world_zero(w, 2 * (size_t)learners, sizeof *s->counts);
    s->encoding = pl_world_zero(w, 1, w->objective->update_bytes_max);
    if (w->status != PELAGO_OK || !init_fragments(w, s))
        return false;
    s->pushes = pl_world_zero(w, (size_t)learners * s->fragment_count, sizeof *s->pushes);
    for (uint32_t i = 0; i < s->options.conns_max; i++)
        s->conns[i].conn = PL_NONE32;
    return pl_snode_vault_init(w, s);
}

static void timer_fired(struct pl_world *w, const struct pl_sim_ev *ev)
{
    struct pl_snode *s = &w->syncers[ev->who];
    if (s->life != ev->life || ev->at != s->armed_ns)
        return;
    s->armed_ns = PL_NEVER;
    pl_snode_step(w, s, &(struct pl_sync_event){.kind = PL_SYNC_EV_TIMEOUT, .now_ns = w->now_ns});
}

static void arm(struct pl_world *w, struct pl_snode *s)
{
    uint64_t deadline = pl_syncer_deadline(s->core);
    if (deadline == PL_NEVER)
        return;
    deadline = pl_max64(deadline, w->now_ns);
    if (deadline >= s->armed_ns)
        return;
    s->armed_ns = deadline;
    pl_world_at(w,
                &(struct pl_sim_ev){.at = deadline, .fire = timer_fired, .who = s->shard, .life = s->life});
}

static const char *peer_kind(const struct pl_world *w, uint32_t machine)
{
    return machine < w->o.learners ? "learner" : "hostile";
}

static void send(struct pl_world *w, struct pl_snode *s, uint32_t number, const struct pl_msg *msg)
{
    uint32_t conn = s->conns[number].conn;
    pl_assert(conn != PL_NONE32);
    if (pl_world_tracing(w)) {
        char text[PL_SIM_TEXT_MAX];
        uint32_t machine = pl_net_info(w->net, conn)->machine;
        pl_msg_print(msg, text, sizeof text);
        pl_world_line(w, "syncer", s->shard, "sends %s to %s %lu", text, peer_kind(w, machine),
                      (uint64_t)machine + 1);
    }
    pl_net_send(w->net, conn, PL_SIDE_SYNCER, msg);
}

static void free_number(struct pl_world *w, struct pl_snode *s, uint32_t number)
{
    struct pl_sync_conn *c = &s->conns[number];
    while (c->first != NULL) {
        struct pl_outgoing *o = c->first;
        c->first = o->next;
        pl_snode_free_outgoing(w, o);
    }
    *c = (struct pl_sync_conn){.conn = PL_NONE32};
}

static void close_conn(struct pl_world *w, struct pl_snode *s, const struct pl_sync_effect *fx)
{
    struct pl_blob text = {(const uint8_t *)fx->u.close.text, (uint32_t)strlen(fx->u.close.text)};
    struct pl_msg msg = {.type = fx->u.close.refuse ? PL_MSG_REFUSE : PL_MSG_CLOSE};
    if (fx->u.close.refuse)
        msg.u.refuse = (struct pl_msg_refuse){.code = fx->u.close.reason, .text = text};
    else
        msg.u.close = (struct pl_msg_close){.code = fx->u.close.reason, .text = text};
    uint32_t conn = s->conns[fx->u.close.conn].conn;
    send(w, s, fx->u.close.conn, &msg);
    free_number(w, s, fx->u.close.conn);
    if (w->status == PELAGO_OK)
        pl_net_close(w->net, conn, PL_SIDE_SYNCER);
}

static void send_data(struct pl_world *w, struct pl_snode *s, uint32_t number, struct pl_outgoing *o)
{
    uint32_t i = (uint32_t)__builtin_ctzll(~o->there);
    uint64_t bytes = o->header.bytes;
    o->there |= UINT64_C(1) << i;
    struct pl_msg msg = {
        .type = PL_MSG_DATA,
        .u.data = {.fragment = o->header.fragment,
                   .id = o->header.to_version,
                   .index = i,
                   .bytes = {o->payload + pl_chunk_offset(bytes, i), pl_chunk_len(bytes, i)}},
    };
    send(w, s, number, &msg);
}

/* Hands over chunks as long as the connection's buffer has room. */
static void pump(struct pl_world *w, struct pl_snode *s, uint32_t number)
{
    struct pl_sync_conn *c = &s->conns[number];
    while (c->first != NULL && pl_net_room(w->net, c->conn, PL_SIDE_SYNCER) && w->status == PELAGO_OK) {
        struct pl_outgoing *o = c->first;
        if (!o->header_sent) {
            o->header_sent = true;
            send(w, s, number, &(struct pl_msg){.type = PL_MSG_UPDATE, .u.update = o->header});
        } else if (o->there != pl_chunk_all(o->header.bytes)) {
            send_data(w, s, number, o);
        } else {
            c->first = o->next;
            if (c->first == NULL)
                c->last = NULL;
            pl_snode_free_outgoing(w, o);
        }
    }
}

void pl_snode_pump(struct pl_world *w, uint32_t conn)
{
    const struct pl_conn_info *info = pl_net_info(w->net, conn);
    pump(w, &w->syncers[info->shard], info->tag);
}

static void deliver(struct pl_world *w, struct pl_snode *s, const struct pl_sync_effect *fx)
{
    struct pl_sync_conn *c = &s->conns[fx->u.deliver.conn];
    struct pl_outgoing *o = pl_snode_update(w, s, &fx->u.deliver.header);
    if (o == NULL)
        return;
    o->there = fx->u.deliver.mask;
    if (c->last != NULL)
        c->last->next = o;
    else
        c->first = o;
    c->last = o;
    pump(w, s, fx->u.deliver.conn);
}

static void trace(struct pl_world *w, struct pl_snode *s, const struct pl_trace *t)
{
    char text[PL_SIM_TEXT_MAX];
    if (!pl_world_tracing(w))
        return;
    pl_trace_print(t, text, sizeof text);
    pl_world_line(w, "syncer", s->shard, "%s", text);
}

static void perform(struct pl_world *w, struct pl_snode *s, const struct pl_sync_effect *fx)
{
    switch (fx->kind) {
    case PL_SYNC_FX_LISTEN:
        s->listening = true;
        break;
    case PL_SYNC_FX_SEND:
        send(w, s, fx->u.send.conn, &fx->u.send.msg);
        break;
    case PL_SYNC_FX_CLOSE:
        close_conn(w, s, fx);
        break;
    case PL_SYNC_FX_KEEP:
        pl_snode_keep(w, s, fx);
        break;
    case PL_SYNC_FX_VERIFY:
        pl_snode_verify(w, s, fx);
        break;
    case PL_SYNC_FX_DISCARD:
        pl_snode_discard(w, s, fx->u.push.learner, fx->u.push.fragment);
        break;
    case PL_SYNC_FX_MERGE:
        pl_snode_merge(w, s, fx);
        break;
    case PL_SYNC_FX_STORE:
        pl_snode_store(w, s, fx);
        break;
    case PL_SYNC_FX_PUBLISH:
        pl_snode_publish(w, s, fx);
        break;
    case PL_SYNC_FX_DELIVER:
        deliver(w, s, fx);
        break;
    case PL_SYNC_FX_FINISHED:
        s->finished = true;
        break;
    case PL_SYNC_FX_TRACE:
        trace(w, s, &fx->u.trace);
        break;
    }
}

void pl_snode_step(struct pl_world *w, struct pl_snode *s, const struct pl_sync_event *ev)
{
    pl_world_note(w, (uint64_t)ev->kind << 8 | s->shard, ev->now_ns);
    pl_checks_sync_event(w->checks, s->shard, ev);
    s->fxs.count = 0;
    s->delivering = ev->kind == PL_SYNC_EV_MSG ? ev->u.msg.msg : NULL;
    pl_syncer_step(s->core, ev, &s->fxs);
    pl_checks_sync_effects(w->checks, s->shard, w->now_ns, &s->fxs);
    for (uint32_t i = 0; i < s->fxs.count && w->status == PELAGO_OK; i++) {
        pl_world_note(w, s->fxs.fx[i].kind, i);
        perform(w, s, &s->fxs.fx[i]);
    }
    s->delivering = NULL;
    if (++s->steps % CHECK_EVERY_STEPS == 0)
        pl_syncer_check(s->core);
    arm(w, s);
    if (s->stores_out == 0 && w->status == PELAGO_OK)
        pl_snode_snapshot(w, s);
}

static void try_start(struct pl_world *w, const struct pl_sim_ev *ev)
{
    struct pl_snode *s = &w->syncers[ev->who];
    if (s->life == ev->life && !s->up)
        pl_snode_start(w, s);
}

/* Reads the disk and begins a new life. */
void pl_snode_start(struct pl_world *w, struct pl_snode *s)
{
    const struct pl_objective *t = w->objective;
    if (s->up)
        return;
    pl_snode_reset_values(w, s);
    s->core = pl_syncer_init(s->memory, s->memory_bytes, &s->options);
    for (uint32_t i = 0; i < s->fragment_count; i++) {
        const struct pl_shard_fragment *f = &s->fragments[i];
        pl_syncer_set_origin(s->core, f->number,
                             pl_sim_digest(t->origin + t->fragment[f->number].first, f->count));
    }
    if (!pl_snode_recover(w, s)) {
        pl_world_at(w, &(struct pl_sim_ev){.at = w->now_ns + BOOT_RETRY_MS * PL_MS,
                                           .fire = try_start,
                                           .who = s->shard,
                                           .life = s->life});
        return;
    }
    for (uint32_t i = 0; i < s->fragment_count; i++) {
        const struct pl_shard_fragment *f = &s->fragments[i];
        uint64_t digest, version = pl_syncer_version(s->core, f->number, &digest);
        pl_assert(version == f->version);
        pl_checks_recovered(w->checks, s->shard, w->now_ns, f->number, version,
                            pl_sim_digest(f->broadcast, f->count));
    }
    s->up = true;
    w->result->syncer_boots++;
    pl_snode_step(w, s, &(struct pl_sync_event){.kind = PL_SYNC_EV_BOOT, .now_ns = w->now_ns});
}

void pl_snode_crash(struct pl_world *w, struct pl_snode *s, bool told)
{
    s->life++;
    s->crash_at = PL_CRASH_NOW;
    if (!s->up)
        return;
    s->up = s->listening = false;
    s->armed_ns = PL_NEVER;
    s->stores_out = 0;
    for (uint32_t i = 0; i < s->options.conns_max; i++)
        if (s->conns[i].conn != PL_NONE32) {
            uint32_t conn = s->conns[i].conn;
            free_number(w, s, i);
            pl_net_die(w->net, conn, PL_SIDE_SYNCER, told);
        }
    pl_disk_power_cut(s->disk);
    pl_checks_sync_crash(w->checks, s->shard, w->now_ns);
}

bool pl_snode_accept(struct pl_world *w, uint32_t conn)
{
    struct pl_snode *s = &w->syncers[pl_net_info(w->net, conn)->shard];
    if (!s->up || !s->listening)
        return false;
    for (uint32_t i = 0; i < s->options.conns_max; i++)
        if (s->conns[i].conn == PL_NONE32) {
            s->conns[i] = (struct pl_sync_conn){.conn = conn};
            pl_net_set_tag(w->net, conn, i);
            return true;
        }
    return false;
}

void pl_snode_opened(struct pl_world *w, uint32_t conn)
{
    const struct pl_conn_info *info = pl_net_info(w->net, conn);
    pl_snode_step(w, &w->syncers[info->shard],
                  &(struct pl_sync_event){.kind = PL_SYNC_EV_OPENED,
                                          .now_ns = w->now_ns,
                                          .u.opened = {.conn = info->tag, .identity = info->machine + 1}});
}

void pl_snode_closed(struct pl_world *w, uint32_t conn)
{
    const struct pl_conn_info *info = pl_net_info(w->net, conn);
    struct pl_snode *s = &w->syncers[info->shard];
    uint32_t number = info->tag;
    free_number(w, s, number);
    pl_snode_step(w, s,
                  &(struct pl_sync_event){
                      .kind = PL_SYNC_EV_CLOSED, .now_ns = w->now_ns, .u.closed = {.conn = number}});
}

void pl_snode_message(struct pl_world *w, uint32_t conn, const struct pl_msg *msg)
{
    const struct pl_conn_info *info = pl_net_info(w->net, conn);
    struct pl_snode *s = &w->syncers[info->shard];
    if (pl_world_tracing(w)) {
        char text[PL_SIM_TEXT_MAX];
        pl_msg_print(msg, text, sizeof text);
        pl_world_line(w, "syncer", s->shard, "gets %s from %s %lu", text, peer_kind(w, info->machine),
                      (uint64_t)info->machine + 1);
    }
    s->sender = info->machine;
    pl_snode_step(w, s,
                  &(struct pl_sync_event){
                      .kind = PL_SYNC_EV_MSG, .now_ns = w->now_ns, .u.msg = {.conn = info->tag, .msg = msg}});
}

void pl_snode_bad(struct pl_world *w, uint32_t conn, const struct pl_error *error)
{
    const struct pl_conn_info *info = pl_net_info(w->net, conn);
    pl_snode_step(w, &w->syncers[info->shard],
                  &(struct pl_sync_event){.kind = PL_SYNC_EV_BAD,
                                          .now_ns = w->now_ns,
                                          .u.bad = {.conn = info->tag, .error = error}});
}
