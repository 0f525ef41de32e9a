/* sim/act.c - performs an action on the world: pl_world_act of world.h. */
#include "base/check.h"
#include "base/num.h"
#include "sim/disk.h"
#include "sim/node_learner.h"
#include "sim/node_syncer.h"

static const char *const names[] = {
    [PL_ACT_CRASH] = "crash",
    [PL_ACT_START] = "start",
    [PL_ACT_ABSENT] = "absent",
    [PL_ACT_QUIT] = "quit",
    [PL_ACT_CLONE] = "clone",
    [PL_ACT_FREEZE] = "freeze",
    [PL_ACT_THAW] = "thaw",
    [PL_ACT_PACE] = "pace",
    [PL_ACT_STEP] = "step",
    [PL_ACT_CHECKPOINT] = "checkpoint",
    [PL_ACT_CUT] = "cut",
    [PL_ACT_HEAL] = "heal",
    [PL_ACT_STALL] = "stall",
    [PL_ACT_FLOW] = "flow",
    [PL_ACT_SLOW] = "slow",
    [PL_ACT_BANDWIDTH] = "bandwidth",
    [PL_ACT_LATENCY] = "latency",
    [PL_ACT_RESET] = "reset",
    [PL_ACT_HOLD] = "hold",
    [PL_ACT_RELEASE] = "release",
    [PL_ACT_REPEAT] = "repeat",
    [PL_ACT_DISK_FULL] = "disk full",
    [PL_ACT_SYNC_FAIL] = "sync fail",
    [PL_ACT_DISK_OK] = "disk ok",
};

static bool on_syncer(const struct pl_action *a)
{
    return a->syncer || a->kind == PL_ACT_DISK_FULL || a->kind == PL_ACT_SYNC_FAIL ||
           a->kind == PL_ACT_DISK_OK;
}

static void act_on_syncer(struct pl_world *w, const struct pl_action *a)
{
    struct pl_snode *s = &w->syncers[a->node];
    if (a->kind == PL_ACT_CRASH && (a->arg == PL_CRASH_AFTER_STORE || a->arg == PL_CRASH_BEFORE_STORE)) {
        s->crash_at = (enum pl_crash)a->arg;
    } else if (a->kind == PL_ACT_CRASH) {
        pl_snode_crash(w, s, a->arg != PL_CRASH_SILENT);
    } else if (a->kind == PL_ACT_START) {
        pl_snode_start(w, s);
    } else if (a->kind == PL_ACT_DISK_FULL) {
        pl_disk_set_capacity(s->disk, pl_disk_used_bytes(s->disk) + a->arg);
    } else if (a->kind == PL_ACT_SYNC_FAIL) {
        pl_disk_set_fault(s->disk, PL_DISK_SYNC, (struct pl_disk_fault){0, UINT64_MAX, PELAGO_IO});
    } else {
        pl_disk_set_capacity(s->disk, UINT64_MAX);
        pl_disk_set_fault(s->disk, PL_DISK_SYNC, (struct pl_disk_fault){0, 0, PELAGO_OK});
    }
}

static void break_conn(struct pl_net *n, uint32_t conn, void *user)
{
    const enum pl_break *how = user;
    pl_net_break(n, conn, *how == PL_BREAK_TOLD ? 3 : *how == PL_BREAK_HALF ? 1 << PL_SIDE_SYNCER : 0);
}

static void repeat_push(struct pl_world *w, uint32_t host, uint32_t shard)
{
    const struct pl_lnode *p = &w->procs[w->hosts[host].primary];
    for (uint32_t s = 0; s < w->o.shards; s++) {
        uint32_t conn = p->conns[s][PL_LINK_BULK];
        if ((shard == PL_NONE32 || shard == s) && p->alive && conn != PL_NONE32 && p->repeat_len[s] > 0 &&
            pl_net_up(w->net, conn))
            pl_net_send_bytes(w->net, conn, PL_SIDE_LEARNER, p->repeat[s], p->repeat_len[s]);
    }
}

static void quit(struct pl_world *w, uint32_t host)
{
    for (uint32_t i = 2 * host; i < 2 * host + 2; i++)
        if (w->procs[i].alive && !w->hosts[host].frozen) {
            w->procs[i].quitting = true;
            pl_lnode_step(w, &w->procs[i],
                          &(struct pl_learn_event){.kind = PL_LEARN_EV_QUIT, .now_ns = w->now_ns});
        }
}

static void set_checkpoint(struct pl_world *w, uint32_t host, uint64_t every_ns)
{
    if (every_ns != 0)
        w->hosts[host].checkpoint_ns = every_ns;
    for (uint32_t i = 2 * host; i < 2 * host + 2; i++)
        w->procs[i].checkpoint_due_ns = w->now_ns;
}

static void act_on_net(struct pl_world *w, const struct pl_action *a, uint32_t machine)
{
    struct pl_net *n = w->net;
    enum pl_break how = (enum pl_break)a->arg;
    if (a->kind == PL_ACT_CUT)
        pl_net_cut(n, machine, a->shard, a->dirs);
    else if (a->kind == PL_ACT_HEAL)
        pl_net_heal(n, machine, a->shard, a->dirs);
    else if (a->kind == PL_ACT_STALL)
        pl_net_stall(n, machine, a->dirs);
    else if (a->kind == PL_ACT_FLOW)
        pl_net_flow(n, machine, a->dirs);
    else if (a->kind == PL_ACT_SLOW)
        pl_net_rate(n, machine, pl_max64(1, pl_mul_div(w->o.bandwidth, a->arg, 1000)));
    else if (a->kind == PL_ACT_BANDWIDTH)
        pl_net_rate(n, machine, a->arg);
    else if (a->kind == PL_ACT_LATENCY)
        pl_net_delay(n, machine, a->arg);
    else if (a->kind == PL_ACT_RESET)
        pl_net_each(n, machine, a->shard, break_conn, &how);
    else if (a->kind == PL_ACT_HOLD)
        pl_net_hold(n, machine, a->shard, a->dirs, a->type);
    else if (a->kind == PL_ACT_RELEASE)
        pl_net_release(n, machine, a->shard, a->dirs, a->type);
}

static void act_on_learner(struct pl_world *w, const struct pl_action *a, uint32_t host)
{
    struct pl_host *h = &w->hosts[host];
    if (a->kind == PL_ACT_CRASH)
        pl_host_crash(w, host, a->arg == PL_CRASH_WIPE, a->arg != PL_CRASH_SILENT);
    else if (a->kind == PL_ACT_START)
        pl_host_start(w, host, false);
    else if (a->kind == PL_ACT_ABSENT)
        h->absent = true;
    else if (a->kind == PL_ACT_QUIT)
        quit(w, host);
    else if (a->kind == PL_ACT_CLONE)
        pl_host_start(w, host, true);
    else if (a->kind == PL_ACT_FREEZE)
        pl_host_freeze(w, host);
    else if (a->kind == PL_ACT_THAW)
        pl_host_thaw(w, host);
    else if (a->kind == PL_ACT_PACE)
        h->pace_permille = (uint32_t)a->arg;
    else if (a->kind == PL_ACT_STEP)
        h->step_fixed_ns = a->arg;
    else if (a->kind == PL_ACT_CHECKPOINT)
        set_checkpoint(w, host, a->arg);
    else if (a->kind == PL_ACT_REPEAT)
        repeat_push(w, host, a->shard);
    else
        act_on_net(w, a, host);
}

void pl_world_act(struct pl_world *w, const struct pl_action *a)
{
    pl_world_note(w, (uint64_t)a->kind << 32 | a->node, a->arg);
    pl_world_line(w, "world", PL_NONE64, "%s %s %lu", names[a->kind], on_syncer(a) ? "syncer" : "learner",
                  (uint64_t)a->node);
    if (on_syncer(a)) {
        pl_assert(a->node < w->o.shards);
        act_on_syncer(w, a);
    } else {
        pl_assert(a->node >= 1 && a->node <= w->o.learners);
        act_on_learner(w, a, a->node - 1);
    }
}
