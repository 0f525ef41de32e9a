/* sim/node_learner_life.c - a learner's processes: start, checkpoint, freeze, end. See node_learner.h. */
#include "base/check.h"
#include "base/num.h"
#include "sim/node_learner.h"

#include <string.h>

enum { RESTART_MS = 1000 };

static bool zero_floats(struct pl_world *w, float **arrays[], size_t count)
{
    for (size_t i = 0; i < count; i++)
        *arrays[i] = pl_world_zero(w, w->objective->values, sizeof(float));
    return w->status == PELAGO_OK;
}

static uint32_t step_sequences(const struct pl_world *w, uint32_t host)
{
    return w->objective->seq > 0 ? w->objective->step_sequences[host] : 1;
}

bool pl_lnode_init(struct pl_world *w, uint32_t index)
{
    struct pl_lnode *p = &w->procs[index];
    if (w->toy == NULL && index % 2 != 0)
        return true; /* clones are for the toy: a second set of values each would be a lot of memory */
    uint32_t fragments = w->objective->fragments;
    struct pl_learn_options o = {.fragments_max = fragments};
    p->index = index;
    p->host = index / 2;
    p->memory_bytes = pl_learner_bytes(&o);
    p->memory = pl_world_zero(w, 1, p->memory_bytes);
    p->fxs.max = pl_learner_effects_max(&o);
    p->fxs.fx = pl_world_zero(w, p->fxs.max, sizeof *p->fxs.fx);
    p->frags = pl_world_zero(w, fragments, sizeof *p->frags);
    p->worked = pl_world_zero(w, fragments, sizeof *p->worked);
    p->touched = pl_world_zero(w, fragments, sizeof *p->touched);
    p->sequences = pl_world_zero(w, step_sequences(w, p->host), sizeof *p->sequences);
    p->digests = pl_world_zero(w, fragments, sizeof *p->digests);
    p->scratch = pl_world_zero(w, w->objective->largest, sizeof *p->scratch);
    p->encoded_at = pl_world_zero(w, fragments, sizeof *p->encoded_at);
    float **arrays[] = {&p->v.theta,    &p->v.anchor,       &p->v.residual,
                        &p->v.snapshot, &p->v.new_residual, &p->v.fresh};
    if (!zero_floats(w, arrays, sizeof arrays / sizeof arrays[0]))
        return false;
    uint32_t at = 0;
    for (uint32_t i = 0; i < fragments; i++) {
        p->encoded_at[i] = at;
        at += w->objective->fragment[i].push_bytes_max;
    }
    p->encoded = pl_world_zero(w, 1, at);
    for (uint32_t i = 0; i < w->o.shards; i++)
        p->queue[i] = pl_world_zero(w, fragments, sizeof **p->queue);
    memset(p->conns, 0xff, sizeof p->conns);
    return w->status == PELAGO_OK;
}

bool pl_host_init(struct pl_world *w, uint32_t host)
{
    struct pl_host *h = &w->hosts[host];
    struct pl_checkpoint *c = &h->checkpoint;
    pl_prng_seed(&h->prng, w->o.seed, PL_STREAM_TRAINER + host);
    uint64_t others = w->o.learners > 1 ? w->o.learners - 1 : 1;
    h->step_ns =
        w->o.step_ns + pl_mul_div(w->o.step_ns, (uint64_t)w->o.speed_spread_permille * host, 1000 * others);
    h->pace_permille = 1000;
    h->checkpoint_ns = w->o.checkpoint_ns;
    h->local_data = pl_prng_chance(&h->prng, w->o.local_data_permille * 1000) || w->objective->local_data;
    float **arrays[] = {&c->theta, &c->anchor, &c->residual};
    c->frags = pl_world_zero(w, w->objective->fragments, sizeof *c->frags);
    return zero_floats(w, arrays, 3);
}

/* ---- checkpoints ---- */

static void copy_values(struct pl_world *w, float *to, const float *from)
{
    memcpy(to, from, w->objective->values * sizeof(float));
}

/* What a checkpoint keeps of a fragment's books; the pending push and the update are not among it. */
static void copy_books(struct pl_world *w, struct pl_lfrag *to, const struct pl_lfrag *from)
{
    for (uint32_t i = 0; i < w->objective->fragments; i++)
        to[i] = (struct pl_lfrag){.work = from[i].work,
                                  .worked = from[i].worked,
                                  .merged = from[i].merged,
                                  .applied = from[i].applied};
}

/* Between two steps, with no APPLY outstanding; replaces the old one as a whole. */
void pl_lnode_checkpoint(struct pl_world *w, struct pl_lnode *p)
{
    struct pl_host *h = &w->hosts[p->host];
    struct pl_checkpoint *c = &h->checkpoint;
    size_t bytes = pl_learner_save_bytes(p->core);
    uint8_t *core = pl_world_zero(w, 1, bytes);
    if (core == NULL)
        return;
    size_t saved = pl_learner_save(p->core, core, bytes);
    pl_assert(saved == bytes);
    pl_alloc_free(&w->alloc, c->core, c->core_bytes);
    c->core = core;
    c->core_bytes = bytes;
    copy_values(w, c->theta, p->v.theta);
    copy_values(w, c->anchor, p->v.anchor);
    copy_values(w, c->residual, p->v.residual);
    copy_books(w, c->frags, p->frags);
    c->own_sequence = p->own_sequence;
    if (w->objective->ops->save != NULL)
        w->objective->ops->save(w->objective->self, p->index, p->host);
    c->valid = true;
    p->checkpoint_due_ns = w->now_ns + h->checkpoint_ns;
    pl_world_line(w, "learner", p->host + 1, "checkpoint.write steps=%lu", pl_learner_steps(p->core));
}

/* ---- start and end ---- */

static void free_updates(struct pl_world *w, struct pl_lnode *p)
{
    for (uint32_t i = 0; i < w->objective->fragments; i++)
        pl_lnode_forget(w, p, i);
}

void pl_lnode_end(struct pl_world *w, struct pl_lnode *p, bool told)
{
    pl_assert(p->alive);
    p->alive = p->stepping = false;
    p->life++;
    p->deferred_len = 0;
    for (uint32_t shard = 0; shard < w->o.shards; shard++)
        for (uint32_t link = 0; link < 2; link++)
            if (p->conns[shard][link] != PL_NONE32) {
                uint32_t conn = p->conns[shard][link];
                p->conns[shard][link] = PL_NONE32;
                pl_net_die(w->net, conn, PL_SIDE_LEARNER, told);
            }
    memset(p->queue_len, 0, sizeof p->queue_len);
    free_updates(w, p);
    pl_checks_learn_end(w->checks, w->now_ns, p->host + 1, p->process);
}

static struct pl_lnode *free_slot(struct pl_world *w, uint32_t host)
{
    for (uint32_t i = 2 * host; i < 2 * host + 2; i++)
        if (!w->procs[i].alive)
            return &w->procs[i];
    return NULL;
}

bool pl_host_running(const struct pl_world *w, uint32_t host)
{
    const struct pl_lnode *pair = &w->procs[2 * (size_t)host];
    return pair[0].alive || pair[1].alive;
}

static void load_checkpoint(struct pl_world *w, struct pl_lnode *p)
{
    const struct pl_checkpoint *c = &w->hosts[p->host].checkpoint;
    struct pl_error err = {PELAGO_OK, ""};
    enum pelago_status status =
        pl_learner_load(p->core, &w->objective->manifest, c->core, c->core_bytes, &err);
    if (status != PELAGO_OK)
        pl_world_fail(w, PL_SIM_CORRECTNESS, "checkpoint of learner %lu: %s", (uint64_t)p->host + 1,
                      err.text);
    copy_values(w, p->v.theta, c->theta);
    copy_values(w, p->v.anchor, c->anchor);
    copy_values(w, p->v.residual, c->residual);
    copy_books(w, p->frags, c->frags);
    p->own_sequence = c->own_sequence;
    if (w->objective->ops->load != NULL)
        w->objective->ops->load(w->objective->self, p->index, p->host);
}

static void begin(struct pl_world *w, struct pl_lnode *p)
{
    struct pl_host *h = &w->hosts[p->host];
    struct pl_learn_options o = {.fragments_max = w->objective->fragments, .local_data = h->local_data};
    o.nonce = pl_prng_next(&w->nodes_prng); /* one after the other: initialisers have no order */
    o.seed = pl_prng_next(&w->nodes_prng);
    p->process = ++w->processes;
    p->alive = true;
    p->stopped = p->quitting = p->stepping = false;
    p->armed_ns = PL_NEVER;
    p->trained = 0;
    p->unit_count = p->feed_count = 0;
    p->feed_used = p->feed_told = 0;
    p->clock_tokens = p->clock_rate = 0;
    p->clock_ns = w->now_ns;
    p->checkpoint_due_ns = w->now_ns + h->checkpoint_ns;
    pl_prng_seed(&p->noise, w->o.seed, PL_STREAM_TRAINER * UINT64_C(1000) + p->process);
    memset(p->frags, 0, w->objective->fragments * sizeof *p->frags);
    memset(p->touched, 1, w->objective->fragments * sizeof *p->touched);
    if (w->objective->ops->begin != NULL)
        w->objective->ops->begin(w->objective->self, p->index, p->host);
    p->core = pl_learner_init(p->memory, p->memory_bytes, &o);
    h->primary = p->index;
    pl_checks_learn_start(w->checks, w->now_ns, p->host + 1, p->process);
}

void pl_host_start(struct pl_world *w, uint32_t host, bool clone)
{
    struct pl_host *h = &w->hosts[host];
    struct pl_lnode *p = free_slot(w, host);
    if (h->done || p == NULL || pl_host_running(w, host) != clone || (clone && w->toy == NULL))
        return;
    bool warm = h->checkpoint.valid;
    begin(w, p);
    if (w->processes > w->o.learners)
        w->result->rejoins++;
    if (warm)
        load_checkpoint(w, p);
    uint32_t life = p->life;
    pl_lnode_step(w, p, &(struct pl_learn_event){.kind = PL_LEARN_EV_START, .now_ns = w->now_ns});
    if (warm && p->life == life && !p->stopped)
        pl_lnode_begin_steps(w, p);
}

static void restart(struct pl_world *w, const struct pl_sim_ev *ev)
{
    pl_host_start(w, ev->who, false);
}

/* DONE or FATAL: the connections it still has were closed by the core. */
void pl_lnode_over(struct pl_world *w, struct pl_lnode *p, bool fatal)
{
    struct pl_host *h = &w->hosts[p->host];
    bool complete = !fatal && !p->quitting;
    pl_lnode_end(w, p, true);
    h->done = h->done || complete;
    if (complete)
        h->primary = p->index;
    bool scripted = w->plan != NULL && w->plan->action_count > 0;
    if (!h->done && !scripted && !pl_host_running(w, p->host))
        pl_world_at(
            w, &(struct pl_sim_ev){.at = w->now_ns + RESTART_MS * PL_MS, .fire = restart, .who = p->host});
}

void pl_host_crash(struct pl_world *w, uint32_t host, bool wipe, bool told)
{
    for (uint32_t i = 2 * host; i < 2 * host + 2; i++)
        if (w->procs[i].alive)
            pl_lnode_end(w, &w->procs[i], told);
    w->hosts[host].frozen = false;
    if (wipe)
        w->hosts[host].checkpoint.valid = false;
}

/* ---- freeze ---- */

void pl_host_freeze(struct pl_world *w, uint32_t host)
{
    struct pl_host *h = &w->hosts[host];
    if (h->frozen)
        return;
    h->frozen = true;
    h->frozen_since_ns = w->now_ns;
}

static void wake(struct pl_world *w, struct pl_lnode *p, uint64_t lag_ns)
{
    p->lag_ns += p->stepping ? lag_ns : 0;
    uint32_t count = p->deferred_len;
    p->deferred_len = 0;
    for (uint32_t i = 0; i < count; i++) {
        p->deferred[i].at = w->now_ns;
        pl_world_at(w, &p->deferred[i]);
    }
    for (uint32_t shard = 0; shard < w->o.shards; shard++)
        for (uint32_t link = 0; link < 2; link++)
            if (p->conns[shard][link] != PL_NONE32)
                pl_net_kick(w->net, p->conns[shard][link], PL_SIDE_LEARNER);
}

void pl_host_thaw(struct pl_world *w, uint32_t host)
{
    struct pl_host *h = &w->hosts[host];
    if (!h->frozen)
        return;
    h->frozen = false;
    for (uint32_t i = 2 * host; i < 2 * host + 2; i++)
        if (w->procs[i].alive)
            wake(w, &w->procs[i], w->now_ns - h->frozen_since_ns);
}
