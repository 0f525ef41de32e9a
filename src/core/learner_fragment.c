/* core/learner_fragment.c - a fragment's way up: PULL, copy, push, DROP.
 *
 * A PULL is answered when the learner's version is the one the round builds on. A PULL that comes before
 * its update waits; until that update has been applied the older pending must stay, because the update
 * may say that it was merged. Only a PULL on the present version proves the older pending's round void.
 */
#include "core/learner_int.h"

#include "base/num.h"

struct pl_learn_fragment *pl_learner_owned(struct pl_learner *l, uint32_t shard, enum pl_link link,
                                           const char *what, uint32_t fragment, struct pl_learn_fxs *out)
{
    if (fragment < l->fragment_count && l->fragments[fragment].shard == shard)
        return &l->fragments[fragment];
    pl_learner_disconnect(l, shard, link, out, PL_REASON_BAD_MESSAGE,
                          "%s.fragment is %u, expected was a fragment of shard %u", what, (unsigned)fragment,
                          (unsigned)shard);
    return NULL;
}

void pl_learner_cancel(struct pl_learner *l, uint32_t fragment, struct pl_learn_fxs *out)
{
    struct pl_pending *p = &l->fragments[fragment].pending;
    if (p->state == PL_PENDING_NONE)
        return;
    struct pl_learn_effect *fx = pl_learner_emit(out, PL_LEARN_FX_CANCEL);
    fx->u.push.fragment = fragment;
    fx->u.push.round = p->round;
    p->state = PL_PENDING_NONE;
}

/* A shard that does not hear it will ask again, or close the round without us. */
static void skip(struct pl_learner *l, uint32_t fragment, uint64_t round, struct pl_learn_fxs *out)
{
    uint32_t shard = l->fragments[fragment].shard;
    PL_LEARN_TRACE(out, LEARN_SKIP, fragment, round);
    if (l->sessions[shard].state != PL_SESSION_LIVE)
        return;
    struct pl_msg msg = {.type = PL_MSG_SKIP, .u.skip = {.fragment = fragment, .round = round}};
    pl_learner_send(l, shard, &msg, out);
}

static void copy(struct pl_learner *l, uint32_t fragment, uint64_t round, uint64_t base,
                 struct pl_learn_fxs *out)
{
    struct pl_learn_fragment *f = &l->fragments[fragment];
    pl_assert(f->pending.state == PL_PENDING_NONE);
    f->pending = (struct pl_pending){.state = PL_PENDING_COPYING, .round = round, .base_version = base};
    struct pl_learn_effect *fx = pl_learner_emit(out, PL_LEARN_FX_COPY);
    fx->u.push.fragment = fragment;
    fx->u.push.round = round;
    PL_LEARN_TRACE(out, LEARN_COPY, fragment, round, base);
}

void pl_learner_serve(struct pl_learner *l, uint32_t fragment, struct pl_learn_fxs *out)
{
    struct pl_learn_fragment *f = &l->fragments[fragment];
    uint64_t round = f->want_round;
    if (round == 0)
        return;
    if (f->version > f->want_base || round == f->last_merged) {
        PL_MARK("learner.pull_stale");
        f->want_round = 0;
        return;
    }
    bool ahead = f->version < f->want_base && !pl_mutant(10);
    if (ahead || f->update.state != PL_UPDATE_NONE)
        return;
    f->want_round = 0;
    f->returning = false;
    if (f->pending.state != PL_PENDING_NONE)
        PL_MARK("learner.pull_cancels_pending");
    pl_learner_cancel(l, fragment, out);
    if (l->steps == f->base_steps)
        skip(l, fragment, round, out);
    else
        copy(l, fragment, round, f->want_base, out);
}

void pl_learner_on_pull(struct pl_learner *l, uint32_t shard, const struct pl_msg_pull *m,
                        struct pl_learn_fxs *out)
{
    struct pl_learn_fragment *f = pl_learner_owned(l, shard, PL_LINK_CONTROL, "PULL", m->fragment, out);
    if (f == NULL)
        return;
    if (m->round == 0) { /* last_merged 0 means "none" */
        pl_learner_disconnect(l, shard, PL_LINK_CONTROL, out, PL_REASON_BAD_MESSAGE,
                              "PULL.round is 0, at least 1 is expected");
        return;
    }
    bool pending = f->pending.state != PL_PENDING_NONE && f->pending.round == m->round;
    if (m->round < f->round_min || pending || f->want_round == m->round) {
        PL_MARK("learner.pull_again");
        return;
    }
    f->round_min = m->round;
    f->want_round = m->round;
    f->want_base = m->base_version;
    pl_learner_serve(l, m->fragment, out);
    if (f->want_round != 0) {
        PL_MARK("learner.pull_waits");
        PL_LEARN_TRACE(out, LEARN_WAIT, m->fragment, m->round, m->base_version, f->version);
    }
}

void pl_learner_on_drop(struct pl_learner *l, uint32_t shard, const struct pl_msg_drop *m,
                        struct pl_learn_fxs *out)
{
    struct pl_learn_fragment *f = pl_learner_owned(l, shard, PL_LINK_CONTROL, "DROP", m->fragment, out);
    if (f == NULL)
        return;
    bool pending = f->pending.state != PL_PENDING_NONE && f->pending.round == m->round;
    bool wanted = f->want_round != 0 && f->want_round == m->round;
    if (!pending && !wanted)
        return;
    PL_MARK("learner.drop");
    /* A PULL of this round that comes again must not meet the copy just cancelled. */
    f->round_min = pl_max64(f->round_min, pl_add_sat(m->round, 1));
    if (wanted)
        f->want_round = 0;
    else
        pl_learner_cancel(l, m->fragment, out);
}

void pl_learner_push(struct pl_learner *l, uint32_t fragment, struct pl_learn_fxs *out)
{
    const struct pl_learn_fragment *f = &l->fragments[fragment];
    const struct pl_pending *p = &f->pending;
    pl_assert(p->state == PL_PENDING_READY);
    pl_assert(p->steps > f->base_steps);
    pl_assert(p->tokens >= f->base_tokens);
    struct pl_learn_effect *fx = pl_learner_emit(out, PL_LEARN_FX_PUSH);
    fx->u.push.fragment = fragment;
    fx->u.push.round = p->round;
    fx->u.push.shard = f->shard;
    fx->u.push.header = !p->listed;
    fx->u.push.mask = p->listed ? p->there : 0;
    fx->u.push.push = (struct pl_msg_push){.fragment = fragment,
                                           .round = p->round,
                                           .base_version = p->base_version,
                                           .steps = p->steps - f->base_steps,
                                           .tokens = p->tokens - f->base_tokens,
                                           .bytes = p->bytes,
                                           .digest = p->digest};
    PL_LEARN_TRACE(out, LEARN_PUSH, fragment, p->round, p->steps - f->base_steps, p->tokens - f->base_tokens);
}

void pl_learner_copied(struct pl_learner *l, const struct pl_learn_event *ev, struct pl_learn_fxs *out)
{
    uint32_t fragment = ev->u.copied.fragment;
    pl_assert(fragment < l->fragment_count);
    struct pl_learn_fragment *f = &l->fragments[fragment];
    struct pl_pending *p = &f->pending;
    if (p->state != PL_PENDING_COPYING || p->round != ev->u.copied.round) {
        PL_MARK("learner.copied_late"); /* cancelled while the host was at it */
        return;
    }
    if (ev->u.copied.bytes == 0) {
        PL_MARK("learner.copy_failed");
        p->state = PL_PENDING_NONE;
        skip(l, fragment, p->round, out);
        return;
    }
    pl_assert(ev->u.copied.bytes <= f->push_bytes_max);
    pl_assert(ev->u.copied.steps >= f->base_steps);
    pl_assert(ev->u.copied.steps <= l->steps);
    pl_assert(ev->u.copied.tokens >= f->base_tokens);
    pl_assert(ev->u.copied.tokens <= l->tokens);
    if (ev->u.copied.steps == f->base_steps) {
        pl_learner_cancel(l, fragment, out);
        skip(l, fragment, p->round, out);
        return;
    }
    p->state = PL_PENDING_READY;
    p->steps = ev->u.copied.steps;
    p->tokens = ev->u.copied.tokens;
    p->bytes = ev->u.copied.bytes;
    p->digest = ev->u.copied.digest;
    p->listed = false;
    if (l->sessions[f->shard].bulk == PL_BULK_UP)
        pl_learner_push(l, fragment, out);
}
