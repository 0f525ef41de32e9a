/* sim/node_syncer_data.c - a shard's tensors: contributions in, merges, updates out. See node_syncer.h. */
#include "base/check.h"
#include "base/hash.h"
#include "optim/merge.h"
#include "sim/codec.h"
#include "sim/node_syncer.h"
#include "wire/chunk.h"

#include <string.h>

enum { VERIFY_US = 200 };

static uint32_t local_number(const struct pl_snode *s, uint32_t number)
{
    uint32_t i =
        number / s->options.manifest->shard_count; /* fragments are dealt out in turn (core/plan.h) */
    pl_assert(i < s->fragment_count && s->fragments[i].number == number);
    return i;
}

struct pl_shard_fragment *pl_snode_fragment(struct pl_snode *s, uint32_t number)
{
    return &s->fragments[local_number(s, number)];
}

static struct pl_push_buf *push_of(struct pl_snode *s, uint32_t learner, uint32_t fragment)
{
    pl_assert(learner < s->options.learners_max);
    return &s->pushes[learner * s->fragment_count + local_number(s, fragment)];
}

static void free_push(struct pl_world *w, struct pl_push_buf *p)
{
    pl_alloc_free(&w->alloc, p->bytes, p->size);
    *p = (struct pl_push_buf){0};
}

void pl_snode_set_ring(struct pl_world *w, struct pl_shard_fragment *f, uint64_t version, uint8_t *bytes,
                       uint32_t size)
{
    struct pl_ring_slot *slot = &f->ring[version % PL_RING_MAX];
    pl_alloc_free(&w->alloc, slot->bytes, slot->size);
    *slot = (struct pl_ring_slot){bytes != NULL ? version : 0, bytes, size};
}

static void drop_update(struct pl_world *w, struct pl_staged *g)
{
    pl_alloc_free(&w->alloc, g->update, g->update_bytes);
    g->update = NULL;
    g->update_bytes = 0;
}

void pl_snode_reset_values(struct pl_world *w, struct pl_snode *s)
{
    for (uint32_t i = 0; i < s->fragment_count; i++) {
        struct pl_shard_fragment *f = &s->fragments[i];
        const float *origin = w->objective->origin + w->objective->fragment[f->number].first;
        f->version = 0;
        f->past = (struct pl_rule_past){.rounds = 0};
        memcpy(f->theta, origin, f->count * sizeof(float));
        memcpy(f->broadcast, origin, f->count * sizeof(float));
        memset(f->momentum, 0, f->count * sizeof(float));
        for (uint32_t k = 0; k < PL_RING_MAX; k++)
            pl_snode_set_ring(w, f, k, NULL, 0);
        drop_update(w, &f->staged);
        f->staged.active = false;
    }
    for (uint32_t i = 0; i < s->options.learners_max * s->fragment_count; i++)
        free_push(w, &s->pushes[i]);
}

void pl_snode_keep(struct pl_world *w, struct pl_snode *s, const struct pl_sync_effect *fx)
{
    struct pl_push_buf *p = push_of(s, fx->u.push.learner, fx->u.push.fragment);
    pl_assert(s->delivering != NULL && s->delivering->type == PL_MSG_DATA);
    const struct pl_msg_data *data = &s->delivering->u.data;
    if (p->bytes == NULL) {
        p->bytes = pl_world_zero(w, 1, fx->u.push.bytes);
        if (p->bytes == NULL)
            return;
        p->size = fx->u.push.bytes;
        p->round = fx->u.push.round;
    }
    pl_assert(p->round == fx->u.push.round && p->size == fx->u.push.bytes);
    pl_assert(data->bytes.len == pl_chunk_len(p->size, fx->u.push.index));
    memcpy(p->bytes + pl_chunk_offset(p->size, fx->u.push.index), data->bytes.data, data->bytes.len);
}

static void verified(struct pl_world *w, const struct pl_sim_ev *ev)
{
    struct pl_snode *s = &w->syncers[ev->who];
    if (s->life != ev->life)
        return;
    uint32_t learner = (uint32_t)(ev->arg >> 33), fragment = (uint32_t)ev->arg;
    const struct pl_push_buf *p = push_of(s, learner, fragment);
    if (p->bytes == NULL || p->verify_ns != ev->at)
        return; /* discarded meanwhile */
    pl_snode_step(w, s,
                  &(struct pl_sync_event){.kind = PL_SYNC_EV_VERIFIED,
                                          .now_ns = w->now_ns,
                                          .u.verified = {.learner = learner,
                                                         .fragment = fragment,
                                                         .round = ev->more,
                                                         .good = (ev->arg >> 32 & 1) != 0}});
}

/* With a limit to the cohort, the later pushes of a round are as if their learners had sent SKIP instead: nobody waits for
 * them, and nobody learns that they are slow. Their work stays with them. */
static bool is_too_many(struct pl_world *w, struct pl_snode *s, struct pl_shard_fragment *f, uint64_t round)
{
    uint32_t most = w->plan != NULL ? w->plan->cohort_max : 0;
    struct pl_sync_view view;
    if (most == 0)
        return false;
    pl_syncer_view(s->core, &view);
    if (f->seen_round != round)
        f->seen = 0;
    f->seen_round = round;
    return ++f->seen > most && view.phase == PL_PHASE_RUNNING;
}

/* arg: the machine and the fragment; more: the round. */
static void skipped(struct pl_world *w, const struct pl_sim_ev *ev)
{
    struct pl_snode *s = &w->syncers[ev->who];
    uint32_t machine = (uint32_t)(ev->arg >> 32), number = 0;
    if (s->life != ev->life)
        return;
    for (; number < s->options.conns_max; number++) {
        uint32_t conn = s->conns[number].conn;
        if (conn != PL_NONE32 && pl_net_info(w->net, conn)->machine == machine &&
            pl_net_info(w->net, conn)->link == PL_LINK_CONTROL)
            break;
    }
    if (number == s->options.conns_max)
        return; /* it is gone */
    struct pl_msg msg = {.type = PL_MSG_SKIP, .u.skip = {.fragment = (uint32_t)ev->arg, .round = ev->more}};
    pl_snode_step(w, s,
                  &(struct pl_sync_event){
                      .kind = PL_SYNC_EV_MSG, .now_ns = w->now_ns, .u.msg = {.conn = number, .msg = &msg}});
}

void pl_snode_verify(struct pl_world *w, struct pl_snode *s, const struct pl_sync_effect *fx)
{
    uint32_t fragment = fx->u.push.fragment;
    struct pl_push_buf *p = push_of(s, fx->u.push.learner, fragment);
    pl_assert(p->bytes != NULL && p->round == fx->u.push.round);
    p->verify_ns = w->now_ns + VERIFY_US * PL_US;
    if (is_too_many(w, s, pl_snode_fragment(s, fragment), p->round)) {
        pl_world_at(w, &(struct pl_sim_ev){.at = p->verify_ns,
                                           .fire = skipped,
                                           .who = s->shard,
                                           .life = s->life,
                                           .arg = (uint64_t)s->sender << 32 | fragment,
                                           .more = p->round});
        return;
    }
    bool good = pl_hash64(p->bytes, p->size, 0) == fx->u.push.digest &&
                w->objective->ops->decode(w->objective->self, fragment, p->bytes, p->size, s->scratch);
    pl_world_at(
        w, &(struct pl_sim_ev){.at = p->verify_ns,
                               .fire = verified,
                               .who = s->shard,
                               .life = s->life,
                               .arg = (uint64_t)fx->u.push.learner << 33 | (uint64_t)good << 32 | fragment,
                               .more = fx->u.push.round});
}

void pl_snode_discard(struct pl_world *w, struct pl_snode *s, uint32_t learner, uint32_t fragment)
{
    free_push(w, push_of(s, learner, fragment));
}

struct pl_outer_move pl_snode_outer(const struct pl_objective *o, uint64_t version, uint64_t clock_tokens,
                                    double share)
{
    return pl_outer_at(&o->outer, version, (double)clock_tokens / (double)o->manifest.token_budget, share);
}

/* The outer step on copies, and the update that brings a learner from the old broadcast value to the new one. */
static bool stage(struct pl_world *w, struct pl_snode *s, struct pl_shard_fragment *f)
{
    const struct pl_objective *o = w->objective;
    struct pl_staged *g = &f->staged;
    const struct pl_outer_move move = pl_snode_outer(o, f->version + 1, g->clock_tokens, g->share);
    memcpy(g->theta, f->theta, f->count * sizeof(float));
    memcpy(g->momentum, f->momentum, f->count * sizeof(float));
    pl_outer_step_by(o->pool, &move, g->delta, f->count, g->momentum, g->theta);
    for (uint32_t i = 0; i < f->count; i++)
        g->broadcast[i] = g->theta[i] - f->broadcast[i];
    size_t bytes = pl_all_finite(g->theta, f->count)
                       ? o->ops->encode(o->self, PL_WAY_DOWN, f->number, g->broadcast, s->encoding)
                       : 0;
    memcpy(g->broadcast, f->broadcast, f->count * sizeof(float));
    if (bytes == 0 || !o->ops->add_update(o->self, f->number, s->encoding, bytes, g->broadcast))
        return false;
    g->update = pl_world_zero(w, 1, bytes);
    if (g->update == NULL)
        return false;
    memcpy(g->update, s->encoding, bytes);
    g->update_bytes = (uint32_t)bytes;
    g->digest = pl_sim_digest(g->broadcast, f->count);
    return pl_all_finite(g->broadcast, f->count);
}

static void merge_slices(struct pl_world *w, struct pl_snode *s, struct pl_shard_fragment *f, uint32_t count)
{
    const struct pl_objective *o = w->objective;
    const struct pl_objective_fragment *of = &o->fragment[f->number];
    uint64_t *tokens = s->counts, *steps = s->counts + count;
    for (uint32_t i = 0; i < count; i++) {
        tokens[i] = s->parts[i].tokens;
        steps[i] = s->parts[i].steps;
    }
    pl_rule_weigh(&o->merge, tokens, steps, NULL, count, s->merging, s->weights, s->reach);
    f->staged.effective = pl_rule_effective(s->weights, count);
    const struct pl_merge_work work = {.scratch = s->merging,
                                       .pool = o->pool,
                                       .weights = s->weights,
                                       .reach = o->merge.guard ? s->reach : NULL,
                                       .length = pl_rule_length(&o->merge, &f->past, f->staged.effective),
                                       .trim = (double)o->merge.trim};
    uint32_t at = 0;
    for (uint32_t k = 0; k < of->slice_count; k++) {
        const struct pl_objective_slice *slice = &o->slices[of->slice_first + k];
        for (uint32_t i = 0; i < count; i++)
            s->parts[i].delta = s->scratch + (size_t)i * o->largest + at;
        pl_merge(pl_rule_mode(&o->merge, slice->merge), s->parts, count, slice->count, &work,
                 f->staged.delta + at);
        at += slice->count;
    }
}

static void merged(struct pl_world *w, const struct pl_sim_ev *ev)
{
    struct pl_snode *s = &w->syncers[ev->who];
    if (s->life != ev->life)
        return;
    struct pl_shard_fragment *f = pl_snode_fragment(s, (uint32_t)ev->arg);
    pl_snode_step(w, s,
                  &(struct pl_sync_event){.kind = PL_SYNC_EV_MERGED,
                                          .now_ns = w->now_ns,
                                          .u.merged = {.fragment = f->number,
                                                       .round = ev->more,
                                                       .digest = f->staged.digest,
                                                       .update_bytes = f->staged.update_bytes,
                                                       .good = f->staged.good}});
}

void pl_snode_merge(struct pl_world *w, struct pl_snode *s, const struct pl_sync_effect *fx)
{
    struct pl_shard_fragment *f = pl_snode_fragment(s, fx->u.merge.fragment);
    struct pl_staged *g = &f->staged;
    pl_assert(f->version == fx->u.merge.base_version);
    g->active = true;
    g->round = fx->u.merge.round;
    g->tokens = 0;
    struct pl_sync_view view;
    pl_syncer_view(s->core, &view);
    g->clock_tokens = view.seen_tokens;
    g->contributors = fx->u.merge.contributor_count;
    drop_update(w, g);
    for (uint32_t i = 0; i < fx->u.merge.contributor_count; i++) {
        const struct pl_contributor *c = &fx->u.merge.contributors[i];
        struct pl_push_buf *p = push_of(s, c->learner, f->number);
        pl_assert(p->bytes != NULL && p->round == g->round);
        bool decoded = w->objective->ops->decode(w->objective->self, f->number, p->bytes, p->size,
                                                 s->scratch + (size_t)i * w->objective->largest);
        pl_assert(decoded);
        s->parts[i] = (struct pl_contribution){.tokens = c->tokens, .steps = c->steps};
        g->tokens += c->tokens;
        free_push(w, p);
    }
    g->share = fx->u.merge.closing ? pl_outer_share(f->version + 1, g->clock_tokens, g->tokens) : 1;
    merge_slices(w, s, f, fx->u.merge.contributor_count);
    g->good = pl_all_finite(g->delta, f->count) && stage(w, s, f);
    pl_world_at(w, &(struct pl_sim_ev){.at = w->now_ns + w->o.merge_ns,
                                       .fire = merged,
                                       .who = s->shard,
                                       .life = s->life,
                                       .arg = f->number,
                                       .more = g->round});
}

static void swap(float **a, float **b)
{
    float *t = *a;
    *a = *b;
    *b = t;
}

void pl_snode_publish(struct pl_world *w, struct pl_snode *s, const struct pl_sync_effect *fx)
{
    struct pl_shard_fragment *f = pl_snode_fragment(s, fx->u.publish.fragment);
    struct pl_staged *g = &f->staged;
    pl_assert(g->active && g->good && fx->u.publish.version == f->version + 1);
    swap(&f->theta, &g->theta);
    swap(&f->momentum, &g->momentum);
    swap(&f->broadcast, &g->broadcast);
    f->version++;
    pl_rule_remember(&f->past, g->effective);
    pl_snode_set_ring(w, f, f->version, g->update, g->update_bytes);
    g->update = NULL;
    g->update_bytes = 0;
    g->active = false;
    for (uint32_t i = 0; i < PL_RING_MAX; i++)
        if (f->ring[i].version != 0 && f->ring[i].version < fx->u.publish.oldest)
            pl_snode_set_ring(w, f, i, NULL, 0);
    w->result->merges++;
    w->merged_value_tokens += g->tokens * f->count;
    if (w->curve != NULL) {
        double loss = 0;
        for (uint32_t i = 0; i < w->o.shards; i++)
            for (uint32_t k = 0; k < w->syncers[i].fragment_count; k++)
                loss += pl_toy_fragment_loss(w->toy, w->syncers[i].fragments[k].number,
                                             w->syncers[i].fragments[k].theta);
        pl_curve_add(w->curve, (double)w->merged_value_tokens / w->objective->values, loss);
    }
    if (w->objective->ops->published != NULL)
        w->objective->ops->published(
            w->objective->self,
            &(struct pl_objective_news){.now_ns = w->now_ns,
                                        .fragment = f->number,
                                        .contributors = g->contributors,
                                        .merged_tokens = w->merged_value_tokens / w->objective->values,
                                        .theta = pl_world_thetas(w)});
}

void pl_snode_free_outgoing(struct pl_world *w, struct pl_outgoing *o)
{
    pl_alloc_free(&w->alloc, o, sizeof *o + o->header.bytes);
}

/* The bytes of an update: the whole value, or the chain of encoded updates between two versions. */
struct pl_outgoing *pl_snode_update(struct pl_world *w, struct pl_snode *s,
                                    const struct pl_msg_update *header)
{
    const struct pl_shard_fragment *f = pl_snode_fragment(s, header->fragment);
    struct pl_outgoing *o = pl_world_zero(w, 1, sizeof *o + header->bytes);
    if (o == NULL)
        return NULL;
    o->header = *header;
    pl_assert(header->to_version == f->version);
    if (header->from_version == PL_NONE64) {
        pl_assert(header->bytes == (uint64_t)f->count * 4);
        pl_sim_put_floats(o->payload, f->broadcast, f->count);
        return o;
    }
    uint64_t at = 0;
    for (uint64_t v = header->from_version + 1; v <= header->to_version; v++) {
        const struct pl_ring_slot *slot = &f->ring[v % PL_RING_MAX];
        pl_assert(slot->version == v && at + slot->size <= header->bytes);
        memcpy(o->payload + at, slot->bytes, slot->size);
        at += slot->size;
    }
    pl_assert(at == header->bytes);
    return o;
}
