/* sim/faults.c - see faults.h. A fault is an action now and, for most, its opposite some time later. */
#include "sim/faults.h"

#include "base/check.h"
#include "base/num.h"
#include "sim/node_learner.h"
#include "sim/node_syncer.h"

static uint64_t between_ms(struct pl_world *w, uint64_t lo_ms, uint64_t hi_ms)
{
    return pl_prng_range(&w->faults_prng, lo_ms * PL_MS, hi_ms * PL_MS);
}

static bool chance(struct pl_world *w, uint32_t percent)
{
    return pl_prng_below(&w->faults_prng, 100) < percent;
}

static uint32_t any_learner(struct pl_world *w)
{
    return 1 + (uint32_t)pl_prng_below(&w->faults_prng, w->o.learners);
}

static uint32_t any_shard(struct pl_world *w)
{
    return (uint32_t)pl_prng_below(&w->faults_prng, w->o.shards);
}

/* Times are relative to now here. The action travels in the event's numbers. */
static uint64_t packed(const struct pl_action *a)
{
    uint32_t shard = a->shard == PL_NONE32 ? 0xff : a->shard;
    return (uint64_t)a->kind | (uint64_t)a->syncer << 8 | (uint64_t)a->node << 16 | (uint64_t)shard << 32 |
           (uint64_t)a->dirs << 40;
}

static void later(struct pl_world *w, const struct pl_sim_ev *ev)
{
    uint32_t shard = (uint32_t)(ev->arg >> 32 & 0xff);
    if (w->healed)
        return;
    pl_world_act(w, &(struct pl_action){.kind = (enum pl_act)(ev->arg & 0xff),
                                        .syncer = (ev->arg >> 8 & 1) != 0,
                                        .node = (uint32_t)(ev->arg >> 16 & 0xffff),
                                        .shard = shard == 0xff ? PL_NONE32 : shard,
                                        .dirs = (uint32_t)(ev->arg >> 40 & 3),
                                        .arg = ev->more});
}

static void act_in(struct pl_world *w, uint64_t delay_ns, const struct pl_action *a)
{
    pl_world_at(
        w, &(struct pl_sim_ev){.at = w->now_ns + delay_ns, .fire = later, .arg = packed(a), .more = a->arg});
}

static void crash_learner(struct pl_world *w, uint64_t down_lo_ms, uint64_t down_hi_ms)
{
    uint32_t node = any_learner(w);
    struct pl_action crash = {.kind = PL_ACT_CRASH, .node = node};
    crash.arg = chance(w, 25) ? PL_CRASH_WIPE : chance(w, 30) ? PL_CRASH_SILENT : PL_CRASH_NOW;
    if (chance(w, 15))
        crash.kind = PL_ACT_QUIT;
    pl_world_act(w, &crash);
    act_in(w, between_ms(w, down_lo_ms, down_hi_ms), &(struct pl_action){.kind = PL_ACT_START, .node = node});
}

static void freeze_learner(struct pl_world *w)
{
    struct pl_action a = {.kind = PL_ACT_FREEZE, .node = any_learner(w)};
    pl_world_act(w, &a);
    a.kind = PL_ACT_THAW;
    uint64_t longest_ms = chance(w, 30) ? 40000 : 5000;
    act_in(w, between_ms(w, 200, longest_ms), &a);
}

static void slow_learner(struct pl_world *w)
{
    struct pl_action a = {.kind = PL_ACT_PACE, .node = any_learner(w)};
    a.arg = pl_prng_range(&w->faults_prng, 1500, 10000);
    pl_world_act(w, &a);
    a.arg = 1000;
    act_in(w, between_ms(w, 2000, 40000), &a);
}

static void crash_syncer(struct pl_world *w)
{
    struct pl_action a = {.kind = PL_ACT_CRASH, .syncer = true, .node = any_shard(w)};
    static const enum pl_crash how[] = {PL_CRASH_NOW, PL_CRASH_NOW, PL_CRASH_SILENT, PL_CRASH_AFTER_STORE,
                                        PL_CRASH_BEFORE_STORE};
    a.arg = how[pl_prng_below(&w->faults_prng, 5)];
    pl_world_act(w, &a);
    a.kind = PL_ACT_START;
    a.arg = 0;
    /* Twice: a crash that waits for a record may come after the first. */
    act_in(w, between_ms(w, 100, 10000), &a);
    act_in(w, between_ms(w, 10000, 20000), &a);
}

static void reset(struct pl_world *w, bool told)
{
    struct pl_action a = {.kind = PL_ACT_RESET, .node = any_learner(w)};
    a.shard = chance(w, 50) ? PL_NONE32 : any_shard(w);
    a.arg = told ? PL_BREAK_TOLD : chance(w, 50) ? PL_BREAK_HALF : PL_BREAK_SILENT;
    pl_world_act(w, &a);
}

static void stall_one(struct pl_world *w, uint32_t node, uint64_t from_ns, uint64_t until_ns)
{
    struct pl_action a = {.kind = PL_ACT_STALL, .node = node};
    a.dirs = (uint32_t)pl_prng_range(&w->faults_prng, 1, 3);
    act_in(w, from_ns, &a);
    a.kind = PL_ACT_FLOW;
    a.dirs = PL_DIR_BOTH;
    act_in(w, until_ns, &a);
}

/* One link; or a random set of them, stopped one after the other and let go in another order. */
static void stall(struct pl_world *w)
{
    if (chance(w, 60)) {
        uint32_t node = any_learner(w);
        stall_one(w, node, 0, between_ms(w, 100, 8000));
        return;
    }
    for (uint32_t i = 1; i <= w->o.learners; i++)
        if (chance(w, 50)) {
            uint64_t from_ns = between_ms(w, 0, 3000);
            stall_one(w, i, from_ns, between_ms(w, 3000, 8000));
        }
}

static void cut(struct pl_world *w)
{
    struct pl_action a = {.kind = PL_ACT_CUT};
    uint32_t dirs = chance(w, 50) ? (uint32_t)PL_DIR_BOTH : (uint32_t)pl_prng_range(&w->faults_prng, 1, 2);
    uint32_t shard = chance(w, 50) ? PL_NONE32 : any_shard(w);
    uint64_t until_ns = between_ms(w, 500, chance(w, 30) ? 60000 : 10000);
    uint32_t sure = any_learner(w);
    for (uint32_t i = 1; i <= w->o.learners; i++) {
        if (i != sure && !chance(w, 25))
            continue;
        a = (struct pl_action){.kind = PL_ACT_CUT, .node = i, .shard = shard, .dirs = dirs};
        pl_world_act(w, &a);
        a.kind = PL_ACT_HEAL;
        act_in(w, until_ns, &a);
    }
}

static void slow_link(struct pl_world *w)
{
    struct pl_action a = {.kind = PL_ACT_SLOW, .node = any_learner(w)};
    a.arg = pl_prng_range(&w->faults_prng, 5, 500);
    pl_world_act(w, &a);
    a.arg = 1000;
    act_in(w, between_ms(w, 2000, 30000), &a);
}

static void fill_disk(struct pl_world *w)
{
    struct pl_action a = {.node = any_shard(w)};
    a.kind = chance(w, 50) ? PL_ACT_DISK_FULL : PL_ACT_SYNC_FAIL;
    a.arg = pl_prng_below(&w->faults_prng, 2000);
    pl_world_act(w, &a);
    a.kind = PL_ACT_DISK_OK;
    act_in(w, between_ms(w, 200, 8000), &a);
}

static void inject(struct pl_world *w, enum pl_sim_fault fault)
{
    switch (fault) {
    case PL_FAULT_LEARNER_CRASH:
        crash_learner(w, 100, 5000);
        break;
    case PL_FAULT_LEARNER_FREEZE:
        freeze_learner(w);
        break;
    case PL_FAULT_LEARNER_STRAGGLE:
        slow_learner(w);
        break;
    case PL_FAULT_LEARNER_AWAY:
        crash_learner(w, 20000, 90000);
        break;
    case PL_FAULT_CLONE:
        pl_world_act(w, &(struct pl_action){.kind = PL_ACT_CLONE, .node = any_learner(w)});
        break;
    case PL_FAULT_SYNCER_CRASH:
        crash_syncer(w);
        break;
    case PL_FAULT_RESET:
        reset(w, true);
        break;
    case PL_FAULT_STALL:
        stall(w);
        break;
    case PL_FAULT_HALF_OPEN:
        reset(w, false);
        break;
    case PL_FAULT_PARTITION:
        cut(w);
        break;
    case PL_FAULT_SLOW_LINK:
        slow_link(w);
        break;
    case PL_FAULT_DISK_FULL:
        fill_disk(w);
        break;
    case PL_FAULT_HOSTILE:
    case PL_FAULT_GARBAGE:
        break; /* those peers do it by themselves */
    }
}

static uint64_t until_next(struct pl_world *w)
{
    uint64_t mean = (uint64_t)w->o.fault_mean_ms * PL_MS;
    return pl_prng_below(&w->faults_prng, mean) + pl_prng_below(&w->faults_prng, mean) + PL_MS;
}

static const uint32_t active_faults = ~(uint32_t)(PL_FAULT_HOSTILE | PL_FAULT_GARBAGE);

static void next_fault(struct pl_world *w, const struct pl_sim_ev *ev)
{
    (void)ev;
    uint32_t on = w->o.faults & active_faults;
    if (w->healed || on == 0)
        return;
    uint32_t skip = (uint32_t)pl_prng_below(&w->faults_prng, (uint64_t)__builtin_popcount(on));
    while (skip-- > 0)
        on &= on - 1;
    w->result->faults_injected++;
    inject(w, (enum pl_sim_fault)(on & (~on + 1)));
    pl_world_at(w, &(struct pl_sim_ev){.at = w->now_ns + until_next(w), .fire = next_fault});
}

void pl_faults_begin(struct pl_world *w)
{
    if ((w->o.faults & active_faults) != 0)
        pl_world_at(w, &(struct pl_sim_ev){.at = w->now_ns + until_next(w), .fire = next_fault});
}

void pl_faults_heal(struct pl_world *w)
{
    static const enum pl_act for_learner[] = {PL_ACT_HEAL, PL_ACT_FLOW, PL_ACT_THAW, PL_ACT_START};
    w->healed = true;
    w->healed_ns = w->now_ns;
    for (uint32_t i = 0; i < w->o.shards; i++) {
        w->syncers[i].crash_at = PL_CRASH_NOW;
        pl_world_act(w, &(struct pl_action){.kind = PL_ACT_DISK_OK, .node = i});
        pl_world_act(w, &(struct pl_action){.kind = PL_ACT_START, .syncer = true, .node = i});
    }
    for (uint32_t i = 1; i <= w->o.learners; i++) {
        for (size_t k = 0; k < sizeof for_learner / sizeof for_learner[0]; k++)
            pl_world_act(w, &(struct pl_action){
                                .kind = for_learner[k], .node = i, .shard = PL_NONE32, .dirs = PL_DIR_BOTH});
        pl_world_act(w, &(struct pl_action){.kind = PL_ACT_PACE, .node = i, .arg = 1000});
        pl_world_act(w, &(struct pl_action){.kind = PL_ACT_SLOW, .node = i, .arg = 1000});
    }
}
