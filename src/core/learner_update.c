/* core/learner_update.c - a fragment's way down: UPDATE, chunks, decoding, the outcome, APPLIED.
 *
 * The outcome (ARCHITECTURE, life of a round, 7) is decided once, when the value has been
 * decoded, and from that moment no pending of the fragment is left: nothing that arrives while the host
 * applies the value can change what happens to local work.
 */
#include "core/learner_int.h"

#include "base/num.h"
#include "wire/chunk.h"

enum { RESET_FLAG = 1, APPLY_REBASE = 0 };

static uint64_t bytes_max(const struct pl_learn_fragment *f, const struct pl_msg_update *m)
{
    if (m->from_version == PL_NONE64)
        return f->full_bytes + f->full_bytes / 16 + 4096; /* a little for the codec's framing */
    uint64_t product;
    return pl_mul_overflow(f->update_bytes_max, m->to_version - m->from_version, &product) ? UINT64_MAX
                                                                                           : product;
}

/* False after disconnecting: the header is wrong whatever we hold. */
static bool check_header(struct pl_learner *l, uint32_t shard, const struct pl_msg_update *m,
                         const struct pl_learn_fragment *f, struct pl_learn_fxs *out)
{
    if (m->from_version != PL_NONE64 && m->to_version <= m->from_version) {
        pl_learner_disconnect(l, shard, PL_LINK_BULK, out, PL_REASON_BAD_MESSAGE,
                              "UPDATE.to_version is %lu, above from_version %lu is expected", m->to_version,
                              m->from_version);
        return false;
    }
    uint64_t max = bytes_max(f, m);
    if (m->bytes == 0 || m->bytes > max) {
        pl_learner_disconnect(l, shard, PL_LINK_BULK, out, PL_REASON_BAD_MESSAGE,
                              "UPDATE.bytes is %lu, 1 to %lu is expected of fragment %u", m->bytes, max,
                              (unsigned)m->fragment);
        return false;
    }
    return true;
}

static bool coming(const struct pl_learn_fragment *f)
{
    return f->update.state == PL_UPDATE_DECODING || f->update.state == PL_UPDATE_APPLYING;
}

/* Whether the value leads on from what we hold. After a reconnect a header may have crossed our JOIN; the
 * syncer sends again when it hears HAVE. */
static bool fits(const struct pl_learn_fragment *f, const struct pl_msg_update *m)
{
    if (coming(f))
        return false;
    if (m->from_version != PL_NONE64 && m->from_version != f->version)
        return false;
    return (m->flags & RESET_FLAG) != 0 || m->to_version > f->version;
}

static uint64_t coming_digest(const struct pl_learn_fragment *f)
{
    return coming(f) ? f->update.digest : f->digest;
}

/* The shard names another digest for the version we hold or are about to: it has lost what it once announced
 * (relaxed durability) and took our HAVE for its own. The next JOIN tells it. */
static bool contradicts(const struct pl_learn_fragment *f, const struct pl_msg_update *m)
{
    uint64_t version = coming(f) ? f->update.to_version : f->version;
    return (m->flags & RESET_FLAG) == 0 && m->to_version == version && m->digest != coming_digest(f);
}

static struct pl_learn_effect *emit_update(const struct pl_learner *l, uint32_t fragment,
                                           enum pl_learn_fx kind, struct pl_learn_fxs *out)
{
    const struct pl_incoming *u = &l->fragments[fragment].update;
    struct pl_learn_effect *fx = pl_learner_emit(out, kind);
    fx->u.update.fragment = fragment;
    fx->u.update.from_version = u->from_version;
    fx->u.update.to_version = u->to_version;
    fx->u.update.digest = u->digest;
    fx->u.update.bytes = u->bytes;
    return fx;
}

static void forget(struct pl_learner *l, uint32_t fragment, struct pl_learn_fxs *out)
{
    (void)emit_update(l, fragment, PL_LEARN_FX_FORGET, out);
    l->fragments[fragment].update.state = PL_UPDATE_NONE;
}

/* A header comes while an update is half here: its chunks stay when it is the same one. False after
 * disconnecting. */
static bool continue_or_replace(struct pl_learner *l, uint32_t shard, const struct pl_msg_update *m,
                                uint64_t *mask, struct pl_learn_fxs *out)
{
    const struct pl_incoming *u = &l->fragments[m->fragment].update;
    bool alike = u->to_version == m->to_version && u->digest == m->digest && u->bytes == m->bytes;
    if (alike && u->from_version == m->from_version) {
        PL_MARK("learner.update_resumed");
        *mask = u->mask;
        return true;
    }
    forget(l, m->fragment, out);
    if (!alike) {
        PL_MARK("learner.update_replaced");
        return true;
    }
    /* ATTACH could not say which payload its chunks are of, and the shard sends only the others. */
    PL_MARK("learner.update_mixed_up");
    pl_learner_disconnect(l, shard, PL_LINK_BULK, out, PL_REASON_LEAVING,
                          "the update of fragment %u continues another payload, it must start over",
                          (unsigned)m->fragment);
    pl_learner_serve(l, m->fragment, out);
    return false;
}

void pl_learner_on_update(struct pl_learner *l, uint32_t shard, const struct pl_msg_update *m,
                          struct pl_learn_fxs *out)
{
    struct pl_learn_fragment *f = pl_learner_owned(l, shard, PL_LINK_BULK, "UPDATE", m->fragment, out);
    if (f == NULL || !check_header(l, shard, m, f, out))
        return;
    if (!fits(f, m)) {
        PL_MARK("learner.update_ignored");
        if (contradicts(f, m)) {
            PL_MARK("learner.other_history");
            pl_learner_disconnect(l, shard, PL_LINK_CONTROL, out, PL_REASON_WRONG_STATE,
                                  "UPDATE.digest of fragment %u at version %lu is %lx, this learner has %lx",
                                  (unsigned)m->fragment, m->to_version, m->digest, coming_digest(f));
        }
        return;
    }
    struct pl_incoming *u = &f->update;
    if (m->from_version == PL_NONE64)
        f->fetching = false;
    uint64_t mask = 0;
    if (u->state == PL_UPDATE_RECEIVING && !continue_or_replace(l, shard, m, &mask, out))
        return;
    *u = (struct pl_incoming){.state = PL_UPDATE_RECEIVING,
                              .reset = (m->flags & RESET_FLAG) != 0,
                              .from_version = m->from_version,
                              .to_version = m->to_version,
                              .digest = m->digest,
                              .bytes = m->bytes,
                              .last_merged = m->last_merged,
                              .mask = mask};
}

void pl_learner_on_data(struct pl_learner *l, uint32_t shard, const struct pl_msg_data *m,
                        struct pl_learn_fxs *out)
{
    struct pl_learn_fragment *f = pl_learner_owned(l, shard, PL_LINK_BULK, "DATA", m->fragment, out);
    if (f == NULL)
        return;
    struct pl_incoming *u = &f->update;
    if (u->state != PL_UPDATE_RECEIVING || m->id != u->to_version) {
        PL_MARK("learner.data_ignored");
        return;
    }
    uint32_t count = pl_chunk_count(u->bytes);
    if (m->index >= count) {
        pl_learner_disconnect(l, shard, PL_LINK_BULK, out, PL_REASON_BAD_MESSAGE,
                              "DATA.index is %u, the update of fragment %u has %u chunks", (unsigned)m->index,
                              (unsigned)m->fragment, (unsigned)count);
        return;
    }
    uint32_t len = pl_chunk_len(u->bytes, m->index);
    if (m->bytes.len != len) {
        pl_learner_disconnect(l, shard, PL_LINK_BULK, out, PL_REASON_BAD_MESSAGE,
                              "DATA.bytes has %u bytes, chunk %u of the update of fragment %u has %u",
                              (unsigned)m->bytes.len, (unsigned)m->index, (unsigned)m->fragment,
                              (unsigned)len);
        return;
    }
    uint64_t bit = UINT64_C(1) << m->index;
    if ((u->mask & bit) != 0)
        return;
    u->mask |= bit;
    emit_update(l, m->fragment, PL_LEARN_FX_KEEP, out)->u.update.index = m->index;
    if (u->mask != pl_chunk_all(u->bytes))
        return;
    u->state = PL_UPDATE_DECODING;
    (void)emit_update(l, m->fragment, PL_LEARN_FX_DECODE, out);
}

/* A chain may fail because our anchor is not what we think: the full value heals that. A full value that
 * fails is the syncer's fault; the next session, after a pause, tries again. */
static void decode_failed(struct pl_learner *l, uint32_t fragment, struct pl_learn_fxs *out)
{
    struct pl_learn_fragment *f = &l->fragments[fragment];
    bool full = f->update.from_version == PL_NONE64;
    forget(l, fragment, out);
    if (l->sessions[f->shard].state != PL_SESSION_LIVE)
        return; /* the next JOIN starts over */
    if (full) {
        PL_MARK("learner.full_value_bad");
        pl_learner_disconnect(
            l, f->shard, PL_LINK_CONTROL, out, PL_REASON_BAD_CONTENT,
            "the full value of fragment %u at version %lu does not have the digest it names",
            (unsigned)fragment, f->update.to_version);
        return;
    }
    if (f->fetching)
        return;
    PL_MARK("learner.fetch");
    f->fetching = true;
    struct pl_msg msg = {.type = PL_MSG_FETCH, .u.fetch = {.fragment = fragment}};
    pl_learner_send(l, f->shard, &msg, out);
    PL_LEARN_TRACE(out, LEARN_FETCH, fragment, f->update.to_version);
}

/* Versions that came out while we were here were not sent because the line is thin: they do not count, however many
 * they are. Those that came out while we were away are no more than that time has cycles. */
static bool too_stale(const struct pl_learner *l, const struct pl_learn_fragment *f)
{
    const struct pl_session *s = &l->sessions[f->shard];
    if (!f->returning || f->update.to_version - f->joined_version <= l->staleness_max)
        return false;
    if (s->left_tick == 0 || s->back_tick == PL_NONE64 ||
        pl_sub_sat(s->back_tick, s->left_tick) >= (uint64_t)l->staleness_max * l->period_steps)
        return true;
    PL_MARK("learner.held_back");
    return false;
}

/* The push that we know of is in the new value. */
static bool push_merged(const struct pl_learn_fragment *f)
{
    return f->pending.state == PL_PENDING_READY && f->pending.round == f->update.last_merged;
}

static enum pl_outcome outcome(const struct pl_learner *l, const struct pl_learn_fragment *f)
{
    const struct pl_incoming *u = &f->update;
    if (u->reset) {
        PL_MARK("learner.reset");
        return PL_OUTCOME_DISCARD;
    }
    if (too_stale(l, f)) {
        /* Also where the last push was merged: what came after it is as old as everything else. */
        PL_MARK("learner.too_stale");
        return PL_OUTCOME_DISCARD;
    }
    if (push_merged(f))
        return PL_OUTCOME_MERGED;
    if (u->last_merged != f->last_merged) {
        /* Work was merged that this state does not remember pushing: what theta holds of it would count
         * again. */
        PL_MARK("learner.old_checkpoint");
        if (!pl_mutant(7))
            return PL_OUTCOME_DISCARD;
    }
    return PL_OUTCOME_KEPT;
}

static void trace_outcome(const struct pl_learner *l, uint32_t fragment, struct pl_learn_fxs *out)
{
    const struct pl_learn_fragment *f = &l->fragments[fragment];
    uint64_t version = f->update.to_version;
    if (f->update.outcome == PL_OUTCOME_MERGED)
        PL_LEARN_TRACE(out, LEARN_MERGED, fragment, f->pending.round, version);
    else if (f->update.outcome == PL_OUTCOME_KEPT)
        PL_LEARN_TRACE(out, LEARN_KEPT, fragment, version, l->steps - f->base_steps);
    else
        PL_LEARN_TRACE(out, LEARN_DISCARD, fragment, version,
                       l->steps - (push_merged(f) ? f->pending.steps : f->base_steps));
}

void pl_learner_decoded(struct pl_learner *l, const struct pl_learn_event *ev, struct pl_learn_fxs *out)
{
    uint32_t fragment = ev->u.decoded.fragment;
    pl_assert(fragment < l->fragment_count);
    struct pl_learn_fragment *f = &l->fragments[fragment];
    struct pl_incoming *u = &f->update;
    pl_assert(u->state == PL_UPDATE_DECODING);
    pl_assert(u->to_version == ev->u.decoded.version);
    if (!ev->u.decoded.good) {
        decode_failed(l, fragment, out);
        pl_learner_serve(l, fragment, out);
        return;
    }
    u->state = PL_UPDATE_APPLYING;
    u->outcome = outcome(l, f);
    trace_outcome(l, fragment, out);
    bool merged = u->outcome == PL_OUTCOME_MERGED;
    if (merged) {
        u->steps = f->pending.steps;
        u->tokens = f->pending.tokens;
        f->pending.state = PL_PENDING_NONE; /* the host frees it when it applies */
    }
    pl_learner_cancel(l, fragment, out);
    struct pl_learn_effect *fx = emit_update(l, fragment, PL_LEARN_FX_APPLY, out);
    fx->u.update.outcome = u->outcome;
    fx->u.update.commit_residual = merged || (pl_mutant(8) && u->outcome == PL_OUTCOME_KEPT);
    fx->u.update.round = merged ? f->pending.round : 0;
}

static void reset_counters(struct pl_learner *l, struct pl_learn_fragment *f, const struct pl_learn_event *ev)
{
    if (l->apply != APPLY_REBASE || f->update.outcome == PL_OUTCOME_DISCARD) {
        f->base_steps = ev->u.applied.steps;
        f->base_tokens = ev->u.applied.tokens;
    } else if (f->update.outcome == PL_OUTCOME_MERGED && !pl_mutant(9)) {
        f->base_steps = f->update.steps;
        f->base_tokens = f->update.tokens;
    }
}

void pl_learner_applied(struct pl_learner *l, const struct pl_learn_event *ev, struct pl_learn_fxs *out)
{
    uint32_t fragment = ev->u.applied.fragment;
    pl_assert(fragment < l->fragment_count);
    struct pl_learn_fragment *f = &l->fragments[fragment];
    pl_assert(f->update.state == PL_UPDATE_APPLYING);
    pl_assert(f->update.to_version == ev->u.applied.version);
    pl_assert(ev->u.applied.steps >= f->base_steps);
    pl_assert(ev->u.applied.steps <= l->steps);
    pl_assert(ev->u.applied.tokens >= f->base_tokens);
    pl_assert(ev->u.applied.tokens <= l->tokens);
    reset_counters(l, f, ev);
    f->version = f->update.to_version;
    f->digest = f->update.digest;
    f->last_merged = f->update.last_merged;
    f->update.state = PL_UPDATE_NONE;
    f->returning = f->returning && f->update.older;
    if (l->sessions[f->shard].state == PL_SESSION_LIVE) {
        struct pl_msg msg = {.type = PL_MSG_HAVE, .u.got = {.fragment = fragment, .version = f->version}};
        pl_learner_send(l, f->shard, &msg, out);
    }
    pl_learner_serve(l, fragment, out);
}
