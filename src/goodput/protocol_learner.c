/* goodput/protocol_learner.c - performs what core/learner asks, and trains as the fast mode says: a step takes its
 * time, is lost when a slice fails under it, and goes on after a planned stall. */
#include "goodput/protocol_int.h"

#include "base/check.h"
#include "base/num.h"
#include "wire/chunk.h"

#include <math.h>
#include <string.h>

#define COPY_NS (2 * PL_MS)
#define BUILD_NS (20 * PL_MS)
#define DECODE_NS (2 * PL_MS)

static const uint8_t payload[PL_PROTO_PUSH_BYTES];

/* ---- effects ---- */

static void reply(struct pl_proto *h, uint32_t i, uint64_t delay_ns, struct pl_proto_ev ev)
{
    ev.learner = i;
    ev.life = h->learners[i].process;
    pl_proto_at(h, delay_ns, &ev);
}

static void push(struct pl_proto *h, uint32_t i, const struct pl_learn_effect *fx)
{
    const struct pl_msg_push *p = &fx->u.push.push;
    h->learners[i].frags[p->fragment].base = p->base_version;
    if (fx->u.push.header)
        pl_proto_send(h, i, PL_LINK_BULK, true, &(struct pl_msg){.type = PL_MSG_PUSH, .u.push = *p});
    if (fx->u.push.mask == 0)
        pl_proto_send(h, i, PL_LINK_BULK, true,
                      &(struct pl_msg){.type = PL_MSG_DATA,
                                       .u.data = {.fragment = p->fragment,
                                                  .id = p->round,
                                                  .bytes = {payload, PL_PROTO_PUSH_BYTES}}});
}

/* Between two steps: when one is being computed, at its end; in a stall nobody can reach the values. */
static void apply(struct pl_proto *h, uint32_t i, const struct pl_learn_effect *fx)
{
    struct pl_proto_frag *f = &h->learners[i].frags[fx->u.update.fragment];
    pl_assert(!f->apply_due);
    f->apply_due = true;
    f->apply_version = fx->u.update.to_version;
    f->outcome = fx->u.update.outcome;
    h->discards += f->outcome == PL_OUTCOME_DISCARD ? 1 : 0;
    if (!h->learners[i].stepping && h->learners[i].running)
        reply(h, i, PL_MS, (struct pl_proto_ev){.kind = PL_PROTO_APPLIED, .fragment = fx->u.update.fragment});
}

static void hang_up(struct pl_proto *h, uint32_t i, const struct pl_learn_effect *fx)
{
    if (!h->learners[i].conns[fx->u.conn.link].at_learner)
        return;
    const struct pl_msg msg = {
        .type = PL_MSG_CLOSE,
        .u.close = {.code = fx->u.conn.reason,
                    .text = {(const uint8_t *)fx->u.conn.text, (uint32_t)strlen(fx->u.conn.text)}}};
    pl_proto_send(h, i, fx->u.conn.link, true, &msg);
    pl_proto_hang_up(h, i, fx->u.conn.link, false);
}

static void copy_now(struct pl_proto *h, uint32_t i, uint32_t fragment)
{
    struct pl_proto_learner *l = &h->learners[i];
    struct pl_proto_frag *f = &l->frags[fragment];
    f->copy_due = false;
    reply(h, i, COPY_NS,
          (struct pl_proto_ev){.kind = PL_PROTO_COPIED,
                               .fragment = fragment,
                               .a = f->round,
                               .b = pl_learner_steps(l->core),
                               .c = pl_learner_tokens(l->core)});
}

static void copy(struct pl_proto *h, uint32_t i, const struct pl_learn_effect *fx)
{
    struct pl_proto_frag *f = &h->learners[i].frags[fx->u.push.fragment];
    f->pending = f->copy_due = true;
    f->round = fx->u.push.round;
    if (h->learners[i].running)
        copy_now(h, i, fx->u.push.fragment);
}

static void perform(struct pl_proto *h, uint32_t i, const struct pl_learn_effect *fx)
{
    switch (fx->kind) {
    case PL_LEARN_FX_CONNECT:
        pl_proto_dial(h, i, fx->u.conn.link);
        break;
    case PL_LEARN_FX_DISCONNECT:
        hang_up(h, i, fx);
        break;
    case PL_LEARN_FX_SEND:
        if (h->learners[i].conns[fx->u.conn.link].at_learner)
            pl_proto_send(h, i, fx->u.conn.link, true, &fx->u.conn.msg);
        break;
    case PL_LEARN_FX_MANIFEST:
        reply(h, i, BUILD_NS, (struct pl_proto_ev){.kind = PL_PROTO_READY});
        break;
    case PL_LEARN_FX_COPY:
        copy(h, i, fx);
        break;
    case PL_LEARN_FX_PUSH:
        push(h, i, fx);
        break;
    case PL_LEARN_FX_CANCEL:
        h->learners[i].frags[fx->u.push.fragment].pending = false;
        h->learners[i].frags[fx->u.push.fragment].copy_due = false;
        break;
    case PL_LEARN_FX_DECODE:
        reply(h, i, DECODE_NS,
              (struct pl_proto_ev){
                  .kind = PL_PROTO_DECODED, .fragment = fx->u.update.fragment, .a = fx->u.update.to_version});
        break;
    case PL_LEARN_FX_APPLY:
        apply(h, i, fx);
        break;
    case PL_LEARN_FX_KEEP:
    case PL_LEARN_FX_FORGET:
    case PL_LEARN_FX_UNIT:
    case PL_LEARN_FX_CLOCK:
    case PL_LEARN_FX_TRACE:
        break;
    case PL_LEARN_FX_STOP:
    case PL_LEARN_FX_DONE:
    case PL_LEARN_FX_FATAL:
        pl_assert(fx->kind == PL_LEARN_FX_TRACE); /* the budget has no end here, and nobody is refused */
        break;
    }
}

void pl_proto_step_learner(struct pl_proto *h, uint32_t i, struct pl_learn_event *ev)
{
    struct pl_proto_learner *l = &h->learners[i];
    ev->now_ns = h->now_ns;
    l->fxs.count = 0;
    h->events++;
    pl_learner_step(l->core, ev, &l->fxs);
    for (uint32_t k = 0; k < l->fxs.count; k++)
        perform(h, i, &l->fxs.fx[k]);
    uint64_t deadline = pl_learner_deadline(l->core);
    if (deadline == PL_NEVER)
        pl_heap_remove(&h->timers, i);
    else
        pl_heap_set(&h->timers, i, pl_max64(deadline, h->now_ns));
}

/* ---- the trainer ---- */

static void apply_one(struct pl_proto *h, uint32_t i, uint32_t fragment)
{
    struct pl_proto_learner *l = &h->learners[i];
    struct pl_proto_frag *f = &l->frags[fragment];
    if (!f->apply_due)
        return;
    f->apply_due = f->pending = false;
    pl_proto_step_learner(h, i,
                          &(struct pl_learn_event){.kind = PL_LEARN_EV_APPLIED,
                                                   .u.applied = {.fragment = fragment,
                                                                 .version = f->apply_version,
                                                                 .steps = pl_learner_steps(l->core),
                                                                 .tokens = pl_learner_tokens(l->core)}});
}

static void apply_all(struct pl_proto *h, uint32_t i)
{
    for (uint32_t k = 0; k < h->fragments; k++)
        apply_one(h, i, k);
}

/* From now on as the fast mode says; the step in hand goes on from where it is. */
static void resume(struct pl_proto *h, uint32_t i)
{
    struct pl_proto_learner *l = &h->learners[i];
    l->since_ns = h->now_ns;
    l->step_life++;
    l->stepping = l->core != NULL && l->ready && l->running;
    if (!l->stepping)
        return;
    double left_s = fmax(1 - l->progress, 0) * h->o->step_s / l->pace;
    pl_proto_at(h, (uint64_t)(left_s * PL_FAST_SECOND),
                &(struct pl_proto_ev){.kind = PL_PROTO_STEP, .learner = i, .life = l->step_life});
}

static void step_done(struct pl_proto *h, uint32_t i)
{
    struct pl_proto_learner *l = &h->learners[i];
    double tokens = l->share * h->fast.learners[i].weight * h->o->learners * PL_PROTO_STEP_TOKENS;
    uint64_t ns = (uint64_t)(h->o->step_s / l->pace * PL_FAST_SECOND);
    l->stepping = false;
    l->progress = 0;
    h->steps++;
    pl_proto_step_learner(h, i,
                          &(struct pl_learn_event){.kind = PL_LEARN_EV_STEP,
                                                   .u.step = {.tokens = (uint64_t)lround(tokens),
                                                              .loss_micro = 1000000,
                                                              .step_ns = ns,
                                                              .unit = PL_NONE64}});
    apply_all(h, i);
    resume(h, i);
}

void pl_proto_start(struct pl_proto *h, uint32_t i)
{
    struct pl_proto_learner *l = &h->learners[i];
    const struct pl_learn_options o = {.nonce = ++h->processes,
                                       .seed = h->o->seed + h->processes,
                                       .fragments_max = h->fragments,
                                       .local_data = true};
    l->process = h->processes;
    l->ready = false;
    l->progress = 0;
    memset(l->frags, 0, h->fragments * sizeof *l->frags);
    l->core = pl_learner_init(l->memory, l->bytes, &o);
    pl_proto_step_learner(h, i, &(struct pl_learn_event){.kind = PL_LEARN_EV_START});
}

static void lose(struct pl_proto *h, uint32_t i)
{
    struct pl_proto_learner *l = &h->learners[i];
    l->core = NULL;
    l->ready = l->stepping = false;
    l->step_life++;
    pl_heap_remove(&h->timers, i);
    pl_proto_cut(h, i);
}

/* What waited for the end of a stall. */
static void catch_up(struct pl_proto *h, uint32_t i)
{
    apply_all(h, i);
    for (uint32_t k = 0; k < h->fragments; k++)
        if (h->learners[i].frags[k].copy_due)
            copy_now(h, i, k);
}

void pl_proto_follow(void *user, const struct pl_fast *f, const struct pl_fast_learner *from)
{
    struct pl_proto *h = user;
    struct pl_proto_learner *l = &h->learners[from->index];
    bool running = from->mode == PL_FAST_RUN, was_running = l->running,
         lost = from->lost_all || from->mode == PL_FAST_REJOIN;
    h->now_ns = f->now_ns;
    if (l->stepping)
        l->progress += (double)(h->now_ns - l->since_ns) / PL_FAST_SECOND * l->pace / h->o->step_s;
    if (was_running && !running && from->step_lost)
        l->progress = 0;
    l->running = running;
    l->pace = pl_fast_pace(f, from);
    l->share = (double)from->count[PL_FAST_ACTIVE] / from->slices;
    if (from->link_down && !l->link_down)
        pl_proto_cut(h, from->index);
    l->link_down = from->link_down;
    if (lost && l->core != NULL)
        lose(h, from->index);
    else if (!lost && l->core == NULL)
        pl_proto_start(h, from->index);
    if (running && !was_running && l->core != NULL)
        catch_up(h, from->index);
    resume(h, from->index);
}

/* ---- answers ---- */

void pl_proto_learner_event(struct pl_proto *h, const struct pl_proto_ev *ev)
{
    struct pl_proto_learner *l = &h->learners[ev->learner];
    uint64_t life = ev->kind == PL_PROTO_STEP ? l->step_life : l->process;
    struct pl_learn_event out = {0};
    if (l->core == NULL || ev->life != life)
        return;
    if (ev->kind == PL_PROTO_STEP) {
        step_done(h, ev->learner);
        return;
    }
    if (ev->kind == PL_PROTO_APPLIED) {
        if (!l->stepping && l->running)
            apply_one(h, ev->learner, ev->fragment);
        return;
    }
    if (ev->kind == PL_PROTO_READY) {
        out = (struct pl_learn_event){.kind = PL_LEARN_EV_READY, .u.ready = {.digests = h->digests}};
    } else if (ev->kind == PL_PROTO_COPIED) {
        const struct pl_proto_frag *f = &l->frags[ev->fragment];
        if (!f->pending || f->round != ev->a)
            return;
        out = (struct pl_learn_event){
            .kind = PL_LEARN_EV_COPIED,
            .u.copied = {ev->fragment, ev->a, ev->b, ev->c, PL_PROTO_PUSH_BYTES, PL_PROTO_DIGEST}};
    } else {
        out = (struct pl_learn_event){.kind = PL_LEARN_EV_DECODED, .u.decoded = {ev->fragment, ev->a, true}};
    }
    pl_proto_step_learner(h, ev->learner, &out);
    if (ev->kind == PL_PROTO_READY) {
        l->ready = true;
        resume(h, ev->learner);
    }
}
