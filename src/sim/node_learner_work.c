/* sim/node_learner_work.c - a learner's values: inner steps, copies, updates. See node_learner.h. */
#include "base/check.h"
#include "base/hash.h"
#include "base/num.h"
#include "codec/feedback.h"
#include "optim/apply.h"
#include "sim/codec.h"
#include "sim/node_learner.h"
#include "wire/chunk.h"

#include <math.h>
#include <string.h>

enum { BUILD_MS = 20, COPY_US_MAX = 2000, ENCODE_US_MAX = 4000, DECODE_US_MAX = 2000, IDLE_APPLY_US = 500 };

static struct pl_host *host_of(const struct pl_world *w, const struct pl_lnode *p)
{
    return &w->hosts[p->host];
}

static uint64_t up_to_us(struct pl_world *w, const struct pl_lnode *p, uint32_t us)
{
    return (1 + pl_prng_below(&host_of(w, p)->prng, us)) * PL_US;
}

/* ---- copies ---- */

static void copied(struct pl_world *w, const struct pl_sim_ev *ev)
{
    struct pl_lnode *p = &w->procs[ev->who];
    if (!pl_lnode_awake(w, p, ev))
        return;
    uint32_t fragment = (uint32_t)ev->arg;
    const struct pl_lfrag *f = &p->frags[fragment];
    if (!f->pending || f->round != ev->more)
        return;
    pl_checks_copied(w->checks, w->now_ns, p->host + 1, p->process, fragment, f->round, f->digest,
                     &f->copied);
    pl_lnode_step(w, p,
                  &(struct pl_learn_event){.kind = PL_LEARN_EV_COPIED,
                                           .now_ns = w->now_ns,
                                           .u.copied = {.fragment = fragment,
                                                        .round = f->round,
                                                        .steps = f->copy_steps,
                                                        .tokens = f->copy_tokens,
                                                        .bytes = f->bytes,
                                                        .digest = f->digest}});
}

/* Beside the computation: theta stands still until the step ends. */
static void copy_now(struct pl_world *w, const struct pl_sim_ev *ev)
{
    struct pl_lnode *p = &w->procs[ev->who];
    if (!pl_lnode_awake(w, p, ev))
        return;
    uint32_t fragment = (uint32_t)ev->arg;
    struct pl_lfrag *f = &p->frags[fragment];
    if (!f->pending || f->round != ev->more)
        return;
    const struct pl_objective *o = w->objective;
    const struct pl_objective_fragment *tf = &o->fragment[fragment];
    uint8_t *encoded = p->encoded + p->encoded_at[fragment];
    memcpy(p->v.snapshot + tf->first, p->v.theta + tf->first, tf->count * sizeof(float));
    for (uint32_t i = tf->first; i < tf->first + tf->count; i++)
        p->v.new_residual[i] = p->v.anchor[i] - p->v.theta[i];
    pl_feedback_add(p->v.new_residual + tf->first, p->v.residual + tf->first, tf->count, o->feedback_decay);
    f->bytes = o->ops->encode(o->self, PL_WAY_UP, fragment, p->v.new_residual + tf->first, encoded);
    pl_assert(f->bytes > 0);
    pl_feedback_keep(p->v.snapshot + tf->first, p->v.new_residual + tf->first, tf->count, o->feedback_local);
    if (w->toy != NULL) {
        bool fine = o->ops->decode(o->self, fragment, encoded, f->bytes, p->scratch);
        pl_assert(fine);
        f->push = pl_toy_project(tf->first, p->scratch, tf->count);
    }
    f->copy_steps = pl_learner_steps(p->core);
    f->copy_tokens = pl_learner_tokens(p->core);
    f->digest = pl_hash64(encoded, f->bytes, 0);
    f->copied = f->work;
    pl_lnode_later(w, p, up_to_us(w, p, ENCODE_US_MAX), copied, fragment, f->round);
}

void pl_lnode_copy(struct pl_world *w, struct pl_lnode *p, const struct pl_learn_effect *fx)
{
    struct pl_lfrag *f = &p->frags[fx->u.push.fragment];
    pl_assert(!f->pending);
    f->pending = true;
    f->round = fx->u.push.round;
    pl_lnode_later(w, p, up_to_us(w, p, COPY_US_MAX), copy_now, fx->u.push.fragment, f->round);
}

void pl_lnode_cancel(struct pl_world *w, struct pl_lnode *p, const struct pl_learn_effect *fx)
{
    (void)w;
    pl_assert(p->frags[fx->u.push.fragment].round == fx->u.push.round);
    p->frags[fx->u.push.fragment].pending = false;
}

/* ---- updates ---- */

void pl_lnode_forget(struct pl_world *w, struct pl_lnode *p, uint32_t fragment)
{
    struct pl_lfrag *f = &p->frags[fragment];
    pl_alloc_free(&w->alloc, f->update, f->update_bytes);
    f->update = NULL;
    f->update_bytes = 0;
}

void pl_lnode_keep(struct pl_world *w, struct pl_lnode *p, const struct pl_learn_effect *fx)
{
    struct pl_lfrag *f = &p->frags[fx->u.update.fragment];
    pl_assert(p->delivering != NULL && p->delivering->type == PL_MSG_DATA);
    const struct pl_blob *data = &p->delivering->u.data.bytes;
    if (f->update == NULL) {
        f->update = pl_world_zero(w, 1, fx->u.update.bytes);
        if (f->update == NULL)
            return;
        f->update_bytes = fx->u.update.bytes;
    }
    pl_assert(f->update_bytes == fx->u.update.bytes);
    pl_assert(data->len == pl_chunk_len(f->update_bytes, fx->u.update.index));
    memcpy(f->update + pl_chunk_offset(f->update_bytes, fx->u.update.index), data->data, data->len);
}

/* The new value into p->v.fresh; false when the bytes are no chain of updates. */
static bool decode_value(struct pl_world *w, struct pl_lnode *p, uint32_t fragment, bool full)
{
    const struct pl_objective *o = w->objective;
    const struct pl_objective_fragment *tf = &o->fragment[fragment];
    const struct pl_lfrag *f = &p->frags[fragment];
    float *fresh = p->v.fresh + tf->first;
    if (full) {
        if (f->update_bytes != (uint64_t)tf->count * 4)
            return false;
        pl_sim_get_floats(fresh, f->update, tf->count);
        return true;
    }
    memcpy(fresh, p->v.anchor + tf->first, tf->count * sizeof(float));
    for (uint64_t at = 0, each; at < f->update_bytes; at += each) {
        each = o->ops->update_bytes(o->self, fragment, f->update + at, f->update_bytes - at);
        if (each == 0 || !o->ops->add_update(o->self, fragment, f->update + at, each, fresh))
            return false;
    }
    return true;
}

static void decoded(struct pl_world *w, const struct pl_sim_ev *ev)
{
    struct pl_lnode *p = &w->procs[ev->who];
    if (!pl_lnode_awake(w, p, ev))
        return;
    uint32_t fragment = (uint32_t)ev->arg;
    const struct pl_objective_fragment *tf = &w->objective->fragment[fragment];
    const struct pl_lfrag *f = &p->frags[fragment];
    if (f->update == NULL || f->decode_version != ev->more)
        return;
    bool good = decode_value(w, p, fragment, f->decode_full) &&
                pl_sim_digest(p->v.fresh + tf->first, tf->count) == f->decode_digest;
    pl_lnode_step(
        w, p,
        &(struct pl_learn_event){.kind = PL_LEARN_EV_DECODED,
                                 .now_ns = w->now_ns,
                                 .u.decoded = {.fragment = fragment, .version = ev->more, .good = good}});
}

void pl_lnode_decode(struct pl_world *w, struct pl_lnode *p, const struct pl_learn_effect *fx)
{
    struct pl_lfrag *f = &p->frags[fx->u.update.fragment];
    pl_assert(f->update != NULL && f->update_bytes == fx->u.update.bytes);
    f->decode_full = fx->u.update.from_version == PL_NONE64;
    f->decode_version = fx->u.update.to_version;
    f->decode_digest = fx->u.update.digest;
    pl_lnode_later(w, p, up_to_us(w, p, DECODE_US_MAX), decoded, fx->u.update.fragment, f->decode_version);
}

static enum pl_apply_mode mode_of(const struct pl_world *w, enum pl_outcome outcome)
{
    if (outcome == PL_OUTCOME_DISCARD || w->objective->manifest.apply == 1)
        return PL_APPLY_OVERWRITE;
    if (w->objective->manifest.apply == 2)
        return PL_APPLY_MIX;
    return outcome == PL_OUTCOME_MERGED ? PL_APPLY_REBASE_MERGED : PL_APPLY_REBASE_KEPT;
}

/* What is in theta - anchor now, as the values themselves say. */
static void keep_books(struct pl_lfrag *f, enum pl_apply_mode mode, enum pl_outcome outcome)
{
    if (mode == PL_APPLY_REBASE_MERGED)
        pl_work_remove(&f->work, &f->copied);
    else if (mode != PL_APPLY_REBASE_KEPT)
        pl_work_clear(&f->work);
    if (outcome == PL_OUTCOME_MERGED)
        f->merged += f->push;
    if (outcome == PL_OUTCOME_DISCARD) {
        f->worked = f->merged = 0;
        f->applied = 0;
    }
    f->applied++;
}

static void check_books(struct pl_world *w, struct pl_lnode *p, uint32_t fragment)
{
    const struct pl_objective_fragment *tf = &w->objective->fragment[fragment];
    const struct pl_lfrag *f = &p->frags[fragment];
    uint64_t identity = p->host + 1;
    pl_checks_anchor(w->checks, w->now_ns, identity, p->process, fragment, f->apply_version,
                     pl_sim_digest(p->v.anchor + tf->first, tf->count));
    if (w->toy == NULL || w->objective->manifest.apply != 0)
        return;
    struct pl_check_balance b = {
        .worked = f->worked,
        .merged = f->merged,
        .residual = pl_toy_project(tf->first, p->v.residual + tf->first, tf->count),
        .local = pl_toy_project(tf->first, p->v.anchor + tf->first, tf->count) -
                 pl_toy_project(tf->first, p->v.theta + tf->first, tf->count),
        /* A few roundings of numbers below 8 per value and apply. */
        .tolerance_abs = 2e-6 * tf->count * (f->applied + 4),
    };
    pl_checks_balance(w->checks, w->now_ns, identity, p->process, fragment, &b);
}

static void apply_one(struct pl_world *w, struct pl_lnode *p, uint32_t fragment)
{
    const struct pl_objective_fragment *tf = &w->objective->fragment[fragment];
    struct pl_lfrag *f = &p->frags[fragment];
    struct pl_apply a = {
        .mode = mode_of(w, f->outcome),
        .alpha = (float)w->objective->manifest.mix_ppm / 1e6f,
        .fresh = p->v.fresh + tf->first,
        .snapshot = p->v.snapshot + tf->first,
        .theta = p->v.theta + tf->first,
        .anchor = p->v.anchor + tf->first,
    };
    pl_assert(f->outcome != PL_OUTCOME_MERGED || f->round == f->apply_round);
    f->apply_due = false;
    p->touched[fragment] = true;
    pl_apply(&a, tf->count);
    if (f->commit_residual)
        memcpy(p->v.residual + tf->first, p->v.new_residual + tf->first, tf->count * sizeof(float));
    if (f->outcome == PL_OUTCOME_DISCARD)
        memset(p->v.residual + tf->first, 0, tf->count * sizeof(float));
    keep_books(f, a.mode, f->outcome);
    f->pending = false;
    pl_lnode_forget(w, p, fragment);
    check_books(w, p, fragment);
    pl_lnode_step(w, p,
                  &(struct pl_learn_event){.kind = PL_LEARN_EV_APPLIED,
                                           .now_ns = w->now_ns,
                                           .u.applied = {.fragment = fragment,
                                                         .version = f->apply_version,
                                                         .steps = pl_learner_steps(p->core),
                                                         .tokens = pl_learner_tokens(p->core)}});
}

/* Between two steps: everything that waits, also what comes of it. */
static void apply_all(struct pl_world *w, struct pl_lnode *p)
{
    uint32_t life = p->life;
    for (bool again = true; again;) {
        again = false;
        for (uint32_t i = 0; i < w->objective->fragments; i++)
            if (p->frags[i].apply_due && w->status == PELAGO_OK && p->life == life) {
                apply_one(w, p, i);
                again = true;
            }
    }
}

static void apply_idle(struct pl_world *w, const struct pl_sim_ev *ev)
{
    struct pl_lnode *p = &w->procs[ev->who];
    if (pl_lnode_awake(w, p, ev) && !p->stepping)
        apply_all(w, p);
}

void pl_lnode_apply(struct pl_world *w, struct pl_lnode *p, const struct pl_learn_effect *fx)
{
    struct pl_lfrag *f = &p->frags[fx->u.update.fragment];
    pl_assert(!f->apply_due);
    f->apply_due = true;
    f->apply_round = fx->u.update.round;
    f->apply_version = fx->u.update.to_version;
    f->outcome = fx->u.update.outcome;
    f->commit_residual = fx->u.update.commit_residual;
    if (!p->stepping)
        pl_lnode_later(w, p, IDLE_APPLY_US * PL_US, apply_idle, 0, 0);
}

/* ---- steps ---- */

static void ready(struct pl_world *w, const struct pl_sim_ev *ev)
{
    struct pl_lnode *p = &w->procs[ev->who];
    if (!pl_lnode_awake(w, p, ev))
        return;
    const struct pl_objective *t = w->objective;
    for (uint32_t i = 0; i < t->fragments; i++)
        p->digests[i] = pl_sim_digest(t->origin + t->fragment[i].first, t->fragment[i].count);
    uint32_t life = p->life;
    pl_lnode_step(w, p,
                  &(struct pl_learn_event){
                      .kind = PL_LEARN_EV_READY, .now_ns = w->now_ns, .u.ready = {.digests = p->digests}});
    if (p->life == life && !p->stepping && !p->stopped)
        pl_lnode_begin_steps(w, p);
}

void pl_lnode_manifest(struct pl_world *w, struct pl_lnode *p)
{
    const struct pl_objective *t = w->objective;
    memcpy(p->v.theta, t->origin, t->values * sizeof(float));
    memcpy(p->v.anchor, t->origin, t->values * sizeof(float));
    memset(p->v.residual, 0, t->values * sizeof(float));
    pl_lnode_later(w, p, BUILD_MS * PL_MS, ready, 0, 0);
}

/* The run's token clock: as last told, advanced at the last known rate. */
static uint64_t clock_tokens(const struct pl_world *w, const struct pl_lnode *p)
{
    return p->clock_tokens + pl_mul_div(p->clock_rate, w->now_ns - p->clock_ns, PL_SEC);
}

static void step_done(struct pl_world *w, const struct pl_sim_ev *ev);

static void next_step(struct pl_world *w, struct pl_lnode *p)
{
    struct pl_host *h = host_of(w, p);
    uint64_t ns = h->step_fixed_ns;
    if (ns == 0) {
        ns = pl_mul_div(h->step_ns, h->pace_permille, 1000);
        ns += pl_prng_below(&h->prng, ns / 16 + 1);
        if ((w->o.faults & PL_FAULT_LEARNER_STRAGGLE) != 0 && !w->healed && pl_prng_chance(&h->prng, 10000))
            ns *= 2 + pl_prng_below(&h->prng, 8);
    }
    p->drawn_ns = ns;
    p->due_ns = w->now_ns + ns;
    p->excused_ns = 0;
    pl_lnode_later(w, p, ns, step_done, 0, 0);
}

void pl_lnode_begin_steps(struct pl_world *w, struct pl_lnode *p)
{
    p->stepping = true;
    p->lag_ns = 0;
    next_step(w, p);
}

/* In millionths; what is no number is 0. */
static uint64_t micro(double loss)
{
    return loss > 0 && loss < 1e9 ? (uint64_t)(loss * 1e6) : 0;
}

static double train(struct pl_world *w, struct pl_lnode *p, uint64_t tokens)
{
    const struct pl_objective *o = w->objective;
    memset(p->worked, 0, o->fragments * sizeof *p->worked);
    double loss = o->ops->step(
        o->self, &(struct pl_objective_step){.process = p->index,
                                             .host = p->host,
                                             .clock_tokens = clock_tokens(w, p),
                                             .sequences = p->sequences,
                                             .sequence_count = o->seq > 0 ? o->step_sequences[p->host] : 0,
                                             .theta = p->v.theta,
                                             .touched = p->touched,
                                             .noise = &p->noise,
                                             .worked = p->worked});
    p->trained++;
    for (uint32_t i = 0; i < o->fragments; i++) {
        p->frags[i].worked += p->worked[i];
        pl_work_step(&p->frags[i].work, pl_step_id(p->process, p->trained), tokens);
    }
    return loss;
}

static void end_step(struct pl_world *w, struct pl_lnode *p)
{
    uint32_t life = p->life;
    uint64_t tokens = pl_lnode_feed(w, p);
    struct pl_item_held_unit unit = pl_lnode_used(w, p, tokens);
    double loss = train(w, p, tokens);
    if (!isfinite(loss)) {
        pl_world_fail(w, PL_SIM_CORRECTNESS, "learner %lu: a step went wrong", (uint64_t)p->host + 1);
        return;
    }
    w->result->trained_tokens += tokens;
    pl_checks_step(w->checks, w->now_ns, p->host + 1, p->process, tokens, p->drawn_ns, p->excused_ns);
    pl_lnode_step(w, p,
                  &(struct pl_learn_event){.kind = PL_LEARN_EV_STEP,
                                           .now_ns = w->now_ns,
                                           .u.step = {.tokens = tokens,
                                                      .loss_micro = micro(loss),
                                                      .step_ns = p->drawn_ns + p->excused_ns,
                                                      .unit = unit.unit,
                                                      .cursor = unit.cursor}});
    if (p->life == life)
        apply_all(w, p);
}

static void step_done(struct pl_world *w, const struct pl_sim_ev *ev)
{
    struct pl_lnode *p = &w->procs[ev->who];
    if (!pl_lnode_awake(w, p, ev))
        return;
    if (p->stopped) { /* an unfinished step is given up */
        p->stepping = false;
        apply_all(w, p);
        return;
    }
    if (p->lag_ns > 0) { /* it was frozen meanwhile: the computation takes as much longer */
        p->due_ns += p->lag_ns;
        p->excused_ns += p->lag_ns;
        p->lag_ns = 0;
        pl_lnode_later(w, p, p->due_ns - w->now_ns, step_done, 0, 0);
        return;
    }
    uint32_t life = p->life;
    end_step(w, p);
    if (p->life != life || w->status != PELAGO_OK)
        return;
    if (w->now_ns >= p->checkpoint_due_ns && host_of(w, p)->primary == p->index)
        pl_lnode_checkpoint(w, p);
    if (p->stopped)
        p->stepping = false;
    else
        next_step(w, p);
}
