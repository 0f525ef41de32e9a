/* host/learner_apply.c - new values on their way into the parameters: orders to the trainer's thread. The anchor changes
 * here, by a pointer, when the order is back.
 *
 * The thread adds differences, a piece at a time, with steps in between. A value that replaces what is there (local work
 * that does not count any more) could not be written in pieces: the counters would not be those of the parameters. So a
 * worker copies the fragment first, at one moment, and the difference from that copy is added: what was there then is gone,
 * what was learned since stays, and the counters begin at that moment.
 */
#include "host/learner_host_int.h"

#include "base/check.h"

#include <math.h>
#include <stddef.h>

enum { TRIES = 50, PAUSE_MS = 2 }; /* of the copy: longer than an optimizer phase */

static enum pl_apply_mode mode_of(const struct pl_learner_host *h, enum pl_outcome outcome)
{
    if (outcome == PL_OUTCOME_DISCARD || h->settings.apply == 1)
        return PL_APPLY_OVERWRITE;
    if (h->settings.apply == 2)
        return PL_APPLY_MIX;
    return outcome == PL_OUTCOME_MERGED ? PL_APPLY_REBASE_MERGED : PL_APPLY_REBASE_KEPT;
}

static void give_order(struct pl_learner_host *h, struct pl_lapply *a)
{
    a->order.base = a->base->at;
    pl_ltrainer_order(&h->lt, &a->order);
    if (!h->stepping)
        pl_lhost_ring(h);
}

/* ---- replacing ---- */

static struct pl_lapply *of_job(struct pl_job *job)
{
    return (struct pl_lapply *)(void *)((uint8_t *)job - offsetof(struct pl_lapply, job));
}

/* Worker. What is not finite cannot be taken away by a difference. */
static void copy_beside(struct pl_job *job)
{
    struct pl_lapply *a = of_job(job);
    uint64_t number;
    for (unsigned i = 0; i < TRIES && !a->copied; i++) {
        if (i > 0)
            uv_sleep(PAUSE_MS);
        a->copied = pl_steady_copy(&a->h->lt.steady, a->spans, a->span_count, PL_NONE64, &number);
    }
    for (uint64_t i = 0; a->copied && i < a->copy->count; i++)
        a->copied = isfinite(a->copy->at[i]);
}

static void copied_beside(struct pl_job *job)
{
    struct pl_lapply *a = of_job(job);
    struct pl_learner_host *h = a->h;
    pl_lhost_drain(h); /* the core must know of every step the copy holds */
    pl_alloc_free(&h->alloc, a->spans, a->span_count * sizeof *a->spans);
    if (a->copied) {
        a->order.mode = PL_APPLY_REBASE_MERGED;
        pl_vec_drop(h, a->base);
        a->base = a->copy;
    } else {
        pl_vec_drop(h, a->copy);
    }
    a->copy = NULL;
    if (h->over)
        pl_lhost_applied(h, a); /* nobody takes orders any more */
    else
        give_order(h, a);
    pl_lhost_job_done(h);
}

/* False: it goes without, at one moment. */
static bool begin_replacing(struct pl_learner_host *h, struct pl_lapply *a)
{
    a->h = h;
    a->copy = pl_vec_new(h, a->fresh->count);
    if (a->copy != NULL)
        a->spans = pl_lhost_spans(h, a->order.fragment, a->copy->at, &a->state, &a->span_count);
    if (a->spans == NULL) {
        pl_vec_drop(h, a->copy);
        a->copy = NULL;
        return false;
    }
    a->job.run = copy_beside;
    a->job.done = copied_beside;
    pl_lhost_job(h, NULL, &a->job);
    return true;
}

/* ---- applying ---- */

/* Beside theta: all is said, or what is not stays in theta. */
static bool leaves_nothing(const struct pl_settings *s)
{
    return (s->up == PL_CODEC_FP32 && !(s->selective > 0)) || s->feedback_local >= 1;
}

static void take_residual(struct pl_learner_host *h, struct pl_lapply *a, const struct pl_learn_effect *fx)
{
    struct pl_lfragment *f = &h->fragments[fx->u.update.fragment];
    if (fx->u.update.commit_residual)
        a->residual = leaves_nothing(&h->settings) ? NULL : pl_vec_hold(f->copy->left);
    else if (fx->u.update.outcome != PL_OUTCOME_DISCARD)
        a->residual = pl_vec_hold(f->residual);
}

void pl_lhost_apply(struct pl_learner_host *h, const struct pl_learn_effect *fx)
{
    uint32_t fragment = fx->u.update.fragment;
    enum pl_outcome outcome = fx->u.update.outcome;
    struct pl_lfragment *f = &h->fragments[fragment];
    struct pl_lapply *a = &f->apply;
    pl_assert(f->fresh != NULL && !f->applying);
    pl_assert(outcome != PL_OUTCOME_MERGED ||
              (f->copy != NULL && !f->copy->busy && f->copy->round == fx->u.update.round));
    *a = (struct pl_lapply){.version = fx->u.update.to_version, .fresh = f->fresh};
    f->fresh = NULL;
    a->base = pl_vec_hold(outcome == PL_OUTCOME_MERGED ? f->copy->snapshot : f->anchor);
    take_residual(h, a, fx);
    if (f->copy != NULL) {
        pl_lhost_unqueue(h, fragment);
        pl_lhost_copy_free(f->copy);
        f->copy = NULL;
    }
    a->order = (struct pl_order){.kind = PL_ORDER_APPLY,
                                 .fragment = fragment,
                                 .mode = mode_of(h, outcome),
                                 .alpha = (float)h->settings.mix_ppm / 1e6f,
                                 .fresh = a->fresh->at};
    f->applying = true;
    h->applies++;
    bool replaces = outcome == PL_OUTCOME_DISCARD && h->settings.apply == 0 && h->stepping;
    if (!replaces || !begin_replacing(h, a))
        give_order(h, a);
}

void pl_lhost_applied(struct pl_learner_host *h, struct pl_lapply *a)
{
    uint32_t fragment = a->order.fragment;
    struct pl_lfragment *f = &h->fragments[fragment];
    uint64_t steps = a->copied ? a->state.steps : a->order.state.steps, version = a->version;
    pl_assert(f->applying && h->applies > 0 && steps <= h->told);
    struct pl_vec *anchor =
        h->over ? a->fresh : f->anchor; /* the core hears of it no more: then it was not */
    struct pl_vec *residual = h->over ? a->residual : f->residual;
    f->anchor = h->over ? f->anchor : a->fresh;
    f->residual = h->over ? f->residual : a->residual;
    pl_vec_drop(h, anchor);
    pl_vec_drop(h, residual);
    f->applying = false;
    h->applies--;
    pl_vec_drop(h, a->base);
    pl_lhost_step(h,
                  &(struct pl_learn_event){.kind = PL_LEARN_EV_APPLIED,
                                           .u.applied = {.fragment = fragment,
                                                         .version = version,
                                                         .steps = h->base_steps + steps,
                                                         .tokens = h->base_tokens + steps * h->step_tokens}});
}
