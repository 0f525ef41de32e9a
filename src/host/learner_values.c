/* host/learner_values.c - a learner's fragments: copy and encode, decode. learner_apply.c does the rest.
 *
 * A copy is taken by a worker while the parameters stand (learner_steady.h). One that the optimizer overtook
 * is tried again when the next step's note comes, and after a few times the trainer's thread takes it at the
 * boundary. Encoding and decoding are jobs of a queue each, with a packer each. A newcomer waits here for the run's values.
 */
#include "host/learner_host_int.h"

#include "base/check.h"
#include "base/hash.h"
#include "codec/feedback.h"
#include "os/clock.h"
#include "wire/chunk.h"

#include <string.h>

enum { TRIES_BESIDE = 6 };           /* copies overtaken before one is taken at the boundary */
#define FIRST_VALUE_NS (10 * PL_SEC) /* where something was merged the syncer sends at once */
#define VALUES_NS (60 * PL_SEC)

/* ---- arrays ---- */

static size_t vec_bytes(uint64_t count)
{
    return sizeof(struct pl_vec) + (size_t)count * sizeof(float);
}

struct pl_vec *pl_vec_new(struct pl_learner_host *h, uint64_t count)
{
    struct pl_vec *v = h->alloc.resize(h->alloc.user, NULL, 0, vec_bytes(count));
    if (v == NULL)
        return NULL;
    v->refs = 1;
    v->count = count;
    return v;
}

struct pl_vec *pl_vec_hold(struct pl_vec *v)
{
    if (v != NULL)
        v->refs++;
    return v;
}

void pl_vec_drop(struct pl_learner_host *h, struct pl_vec *v)
{
    if (v == NULL)
        return;
    pl_assert(v->refs > 0);
    if (--v->refs == 0)
        pl_alloc_free(&h->alloc, v, vec_bytes(v->count));
}

static uint64_t values_of(const struct pl_learner_host *h, uint32_t fragment)
{
    return h->layout.fragments[fragment].values;
}

/* ---- a contribution ---- */

void pl_lhost_copy_free(struct pl_lcopy *c)
{
    struct pl_learner_host *h = c->h;
    pl_assert(!c->busy);
    if (c->waits)
        h->copies_waiting--;
    pl_vec_drop(h, c->snapshot);
    pl_vec_drop(h, c->left);
    pl_vec_drop(h, c->anchor);
    pl_vec_drop(h, c->residual);
    pl_alloc_free(&h->alloc, c->spans, c->span_count * sizeof *c->spans);
    pl_alloc_free(&h->alloc, c->bytes, c->bytes_cap);
    pl_alloc_free(&h->alloc, c, sizeof *c);
}

struct pl_steady_span *pl_lhost_spans(struct pl_learner_host *h, uint32_t fragment, float *to,
                                      struct pl_ltrainer_state *state, uint32_t *count)
{
    const struct pl_layout_fragment *f = &h->layout.fragments[fragment];
    *count = f->slice_count + 1;
    struct pl_steady_span *spans = pl_alloc_zero(&h->alloc, *count, sizeof *spans);
    if (spans == NULL)
        return NULL;
    for (uint32_t i = 0; i < f->slice_count; i++) {
        const struct pl_layout_slice *s = &h->layout.slices[f->slice_first + i];
        spans[i] =
            (struct pl_steady_span){h->lt.theta + s->offset, to + s->first, (size_t)s->count * sizeof(float)};
    }
    spans[f->slice_count] = (struct pl_steady_span){&h->lt.state, state, sizeof *state};
    return spans;
}

static struct pl_lcopy *new_copy(struct pl_learner_host *h, uint32_t fragment, uint64_t round)
{
    struct pl_lfragment *f = &h->fragments[fragment];
    struct pl_lcopy *c = pl_alloc_zero(&h->alloc, 1, sizeof *c);
    if (c == NULL)
        return NULL;
    c->h = h;
    c->fragment = fragment;
    c->round = round;
    c->anchor = pl_vec_hold(f->anchor);
    c->residual = pl_vec_hold(f->residual);
    c->snapshot = pl_vec_new(h, values_of(h, fragment));
    c->left = pl_vec_new(h, values_of(h, fragment));
    size_t raw = (size_t)pl_layout_encoded_bytes(&h->layout, fragment, h->settings.up);
    c->bytes_cap = pl_pack_bytes_max(raw);
    c->bytes = pl_alloc_zero(&h->alloc, 1, c->bytes_cap);
    if (c->snapshot != NULL)
        c->spans = pl_lhost_spans(h, fragment, c->snapshot->at, &c->state, &c->span_count);
    if (c->spans != NULL && c->left != NULL && c->bytes != NULL)
        return c;
    pl_lhost_copy_free(c);
    return NULL;
}

static void say_copied(struct pl_lcopy *c)
{
    struct pl_learner_host *h = c->h;
    uint64_t steps = c->state.steps;
    pl_lhost_step(h, &(struct pl_learn_event){.kind = PL_LEARN_EV_COPIED,
                                              .u.copied = {.fragment = c->fragment,
                                                           .round = c->round,
                                                           .steps = h->base_steps + steps,
                                                           .tokens = h->base_tokens + steps * h->step_tokens,
                                                           .bytes = c->good ? c->len : 0,
                                                           .digest = c->digest}});
}

/* Whether somebody still waits for it; else it is gone. */
static bool wanted(struct pl_lcopy *c)
{
    c->busy = false;
    if (!c->cancelled && !c->h->over)
        return true;
    if (!c->cancelled)
        c->h->fragments[c->fragment].copy = NULL;
    pl_lhost_copy_free(c);
    return false;
}

/* anchor - theta and the residual, then the codec; what it loses stays, beside theta or in it. Worker. */
static void encode(struct pl_job *job)
{
    struct pl_lcopy *c = (struct pl_lcopy *)job;
    const struct pl_learner_host *h = c->h;
    const struct pl_settings *s = &h->settings;
    const float *anchor = c->anchor->at;
    float *theta = c->snapshot->at;
    float *delta = c->left->at;
    size_t n = (size_t)c->left->count;
    size_t raw_bytes = (size_t)pl_layout_encoded_bytes(&h->layout, c->fragment, h->settings.up);
    uint8_t *raw = pl_alloc_zero(&h->alloc, 1, raw_bytes);
    for (size_t i = 0; i < n; i++)
        delta[i] = anchor[i] - theta[i];
    if (c->residual != NULL)
        pl_feedback_add(delta, c->residual->at, n, s->feedback_decay);
    c->good =
        raw != NULL && pl_layout_encode_feedback(&h->layout, c->fragment, s->up, s->selective, delta, raw);
    if (c->good) {
        bool squeeze = h->trainer != NULL && pl_feedback_squeezes(s->up, s->selective);
        c->len = pl_pack(h->packer_up, raw, raw_bytes, squeeze, c->bytes);
        c->digest = pl_hash64(c->bytes, c->len, 0);
        pl_feedback_keep(theta, delta, n, s->feedback_local);
    }
    pl_alloc_free(&h->alloc, raw, raw_bytes);
}

static void encoded(struct pl_job *job)
{
    struct pl_lcopy *c = (struct pl_lcopy *)job;
    struct pl_learner_host *h = c->h;
    pl_lhost_drain(h);
    if (wanted(c)) {
        struct pl_lfragment *f = &h->fragments[c->fragment];
        bool good = c->good;
        say_copied(c);
        if (!good && f->copy == c) { /* the core has dropped it */
            f->copy = NULL;
            pl_lhost_copy_free(c);
        }
    }
    pl_lhost_job_done(h);
}

static void begin_encoding(struct pl_lcopy *c)
{
    c->busy = true;
    c->job.run = encode;
    c->job.done = encoded;
    pl_lhost_job(c->h, &c->h->encoding, &c->job);
}

/* ---- the copy itself ---- */

static void copy_beside(struct pl_job *job)
{
    struct pl_lcopy *c = (struct pl_lcopy *)job;
    uint64_t number;
    c->good = pl_steady_copy(&c->h->lt.steady, c->spans, c->span_count, PL_NONE64, &number);
}

static void copied_beside(struct pl_job *job)
{
    struct pl_lcopy *c = (struct pl_lcopy *)job;
    struct pl_learner_host *h = c->h;
    pl_lhost_drain(h); /* the core must know of every step the copy holds */
    if (wanted(c)) {
        if (c->good) {
            begin_encoding(c);
        } else {
            c->tries++;
            c->waits = true;
            h->copies_waiting++;
            if (pl_steady_now(&h->lt.steady) == h->number) /* it stands again, and its note is drained */
                pl_lhost_ring(h);
        }
    }
    pl_lhost_job_done(h);
}

static void begin_copy(struct pl_lcopy *c)
{
    struct pl_learner_host *h = c->h;
    c->busy = true;
    if (c->tries >= TRIES_BESIDE && h->stepping) {
        c->order = (struct pl_order){.kind = PL_ORDER_COPY, .fragment = c->fragment, .to = c->snapshot->at};
        pl_ltrainer_order(&h->lt, &c->order);
        return;
    }
    c->job.run = copy_beside;
    c->job.done = copied_beside;
    pl_lhost_job(h, NULL, &c->job);
}

void pl_lhost_copies_again(struct pl_learner_host *h)
{
    for (uint32_t i = 0; i < h->layout.fragment_count && h->copies_waiting > 0 && !h->over; i++) {
        struct pl_lcopy *c = h->fragments[i].copy;
        if (c == NULL || !c->waits)
            continue;
        c->waits = false;
        h->copies_waiting--;
        begin_copy(c);
    }
}

static void copied_at_boundary(struct pl_lcopy *c)
{
    c->state = c->order.state;
    if (wanted(c))
        begin_encoding(c);
}

void pl_lhost_copy(struct pl_learner_host *h, const struct pl_learn_effect *fx)
{
    struct pl_lfragment *f = &h->fragments[fx->u.push.fragment];
    pl_assert(f->copy == NULL);
    f->copy = new_copy(h, fx->u.push.fragment, fx->u.push.round);
    if (f->copy != NULL) {
        begin_copy(f->copy);
        return;
    }
    pl_lhost_log(h, "there is no memory to copy fragment %u; this round goes without it",
                 (unsigned)fx->u.push.fragment);
    f->failed_round = fx->u.push.round;
    h->failures_due = true;
    pl_lhost_ring(h);
}

void pl_lhost_cancel(struct pl_learner_host *h, const struct pl_learn_effect *fx)
{
    struct pl_lfragment *f = &h->fragments[fx->u.push.fragment];
    struct pl_lcopy *c = f->copy;
    pl_lhost_unqueue(h, fx->u.push.fragment);
    f->copy = NULL;
    if (c == NULL)
        return;
    pl_assert(c->round == fx->u.push.round);
    c->cancelled = true;
    if (!c->busy)
        pl_lhost_copy_free(c);
}

/* ---- updates ---- */

void pl_lhost_forget(struct pl_learner_host *h, uint32_t fragment)
{
    struct pl_lfragment *f = &h->fragments[fragment];
    pl_alloc_free(&h->alloc, f->update, (size_t)f->update_bytes);
    f->update = NULL;
    f->update_bytes = 0;
    pl_vec_drop(h, f->fresh);
    f->fresh = NULL;
}

void pl_lhost_keep_chunk(struct pl_learner_host *h, const struct pl_learn_effect *fx)
{
    struct pl_lfragment *f = &h->fragments[fx->u.update.fragment];
    pl_assert(h->delivering != NULL && h->delivering->type == PL_MSG_DATA);
    pl_lhost_value_comes(h, fx->u.update.fragment);
    const struct pl_blob *data = &h->delivering->u.data.bytes;
    if (f->update == NULL) {
        f->update = h->alloc.resize(h->alloc.user, NULL, 0, (size_t)fx->u.update.bytes);
        if (f->update == NULL)
            return; /* decoding then fails, and the value is asked for again */
        f->update_bytes = fx->u.update.bytes;
    }
    pl_assert(f->update_bytes == fx->u.update.bytes);
    pl_assert(data->len == pl_chunk_len(f->update_bytes, fx->u.update.index));
    memcpy(f->update + pl_chunk_offset(f->update_bytes, fx->u.update.index), data->data, data->len);
}

/* A chain: u32 length and an envelope, one behind the other. */
static bool decode_chain(struct pl_ldecode *d, uint8_t *raw, size_t raw_bytes)
{
    const struct pl_learner_host *h = d->h;
    struct pl_reader r = pl_reader_of(d->bytes, (size_t)d->len);
    memcpy(d->fresh->at, d->anchor->at, (size_t)d->fresh->count * sizeof(float));
    while (pl_reader_left(&r) > 0) {
        uint32_t len = pl_read_u32(&r);
        const uint8_t *bytes = pl_read_bytes(&r, len);
        if (bytes == NULL || pl_unpack(h->packer_down, bytes, len, raw, raw_bytes, NULL) != PELAGO_OK ||
            !pl_layout_check(&h->layout, d->fragment, h->settings.down, raw))
            return false;
        pl_layout_decode_add(&h->layout, d->fragment, h->settings.down, raw, d->fresh->at);
    }
    return true;
}

/* Worker. */
static void decode(struct pl_job *job)
{
    struct pl_ldecode *d = (struct pl_ldecode *)job;
    const struct pl_learner_host *h = d->h;
    uint64_t n = d->fresh->count;
    if (d->full) {
        d->good = d->len == n * sizeof(float);
        if (d->good)
            memcpy(d->fresh->at, d->bytes, (size_t)d->len);
    } else {
        size_t raw_bytes = (size_t)pl_layout_encoded_bytes(&h->layout, d->fragment, h->settings.down);
        uint8_t *raw = pl_alloc_zero(&h->alloc, 1, raw_bytes);
        d->good = raw != NULL && decode_chain(d, raw, raw_bytes);
        pl_alloc_free(&h->alloc, raw, raw_bytes);
    }
    d->good = d->good && pl_values_digest(d->fresh->at, n) == d->digest;
}

static void free_decode(struct pl_ldecode *d)
{
    struct pl_learner_host *h = d->h;
    pl_alloc_free(&h->alloc, d->bytes, (size_t)d->len);
    pl_vec_drop(h, d->anchor);
    pl_vec_drop(h, d->fresh);
    pl_alloc_free(&h->alloc, d, sizeof *d);
}

static void say_decoded(struct pl_learner_host *h, uint32_t fragment, uint64_t version, bool good)
{
    pl_lhost_step(
        h, &(struct pl_learn_event){.kind = PL_LEARN_EV_DECODED,
                                    .u.decoded = {.fragment = fragment, .version = version, .good = good}});
}

static void decoded(struct pl_job *job)
{
    struct pl_ldecode *d = (struct pl_ldecode *)job;
    struct pl_learner_host *h = d->h;
    uint32_t fragment = d->fragment;
    uint64_t version = d->version;
    bool good = d->good;
    pl_lhost_drain(h);
    if (good && !h->over) {
        h->fragments[fragment].fresh = d->fresh;
        d->fresh = NULL;
    }
    free_decode(d);
    say_decoded(h, fragment, version, good);
    pl_lhost_job_done(h);
}

void pl_lhost_decode(struct pl_learner_host *h, const struct pl_learn_effect *fx)
{
    uint32_t fragment = fx->u.update.fragment;
    struct pl_lfragment *f = &h->fragments[fragment];
    struct pl_ldecode *d = pl_alloc_zero(&h->alloc, 1, sizeof *d);
    struct pl_vec *fresh = d != NULL ? pl_vec_new(h, values_of(h, fragment)) : NULL;
    pl_assert(f->fresh == NULL);
    if (fresh == NULL || f->update == NULL) {
        pl_lhost_log(h, "there is no memory for the update of fragment %u; it will be asked for again",
                     (unsigned)fragment);
        pl_alloc_free(&h->alloc, d, d != NULL ? sizeof *d : 0);
        pl_vec_drop(h, fresh);
        f->failed_decode = true;
        f->failed_version = fx->u.update.to_version;
        h->failures_due = true;
        pl_lhost_ring(h);
        return;
    }
    *d = (struct pl_ldecode){.h = h,
                             .fragment = fragment,
                             .version = fx->u.update.to_version,
                             .digest = fx->u.update.digest,
                             .full = fx->u.update.from_version == PL_NONE64,
                             .bytes = f->update,
                             .len = f->update_bytes,
                             .anchor = pl_vec_hold(f->anchor),
                             .fresh = fresh};
    f->update = NULL;
    f->update_bytes = 0;
    d->job.run = decode;
    d->job.done = decoded;
    pl_lhost_job(h, &h->decoding, &d->job);
}

/* ---- what comes back ---- */

void pl_lhost_order_back(struct pl_learner_host *h, struct pl_order *order)
{
    switch (order->kind) {
    case PL_ORDER_APPLY:
        pl_lhost_applied(h, (struct pl_lapply *)order);
        break;
    case PL_ORDER_COPY:
        copied_at_boundary((struct pl_lcopy *)(void *)((uint8_t *)order - offsetof(struct pl_lcopy, order)));
        break;
    case PL_ORDER_WHOLE:
        h->keep.state = order->state;
        pl_lhost_keep_copied(h, order->good);
        break;
    }
}

/* What failed at once: the core hears of it after the step that asked for it. */
void pl_lhost_values_later(struct pl_learner_host *h)
{
    if (!h->failures_due)
        return;
    h->failures_due = false;
    for (uint32_t i = 0; i < h->layout.fragment_count; i++) {
        struct pl_lfragment *f = &h->fragments[i];
        uint64_t round = f->failed_round;
        bool decoding = f->failed_decode;
        f->failed_round = 0;
        f->failed_decode = false;
        if (round != 0)
            pl_lhost_step(h, &(struct pl_learn_event){.kind = PL_LEARN_EV_COPIED,
                                                      .u.copied = {.fragment = i, .round = round}});
        if (decoding)
            say_decoded(h, i, f->failed_version, false);
    }
}

/* ---- the first step of a newcomer ---- */

/* A run that is past its warm-up has left its first values behind: steps on them would be dropped, and what the moments
 * learned from them would stay. */
void pl_lhost_values_await(struct pl_learner_host *h)
{
    uint64_t now = pl_clock_ns(), clock = pl_ltrainer_clock_at(&h->lt, now);
    h->awaited.on = true;
    h->awaited.ahead =
        h->trainer != NULL && clock != PL_NONE64 && pl_schedule_is_warm(&h->settings.trainer.schedule, clock);
    h->awaited.last_ns = now;
    if (h->awaited.ahead)
        pl_lhost_log(h, "the run is under way: waiting for its values before the first step");
}

/* Or a part of it. Of those that are here already new versions keep coming, whatever becomes of the others. */
void pl_lhost_value_comes(struct pl_learner_host *h, uint32_t fragment)
{
    uint64_t digest;
    if (fragment >= h->layout.fragment_count || pl_learner_version(h->core, fragment, &digest) > 0)
        return;
    h->awaited.some = true;
    h->awaited.last_ns = pl_clock_ns();
}

static uint32_t fragments_that_came(const struct pl_learner_host *h)
{
    uint32_t came = 0;
    uint64_t digest;
    for (uint32_t i = 0; i < h->layout.fragment_count; i++)
        came += pl_learner_version(h->core, i, &digest) > 0;
    return came;
}

/* With the last value, or when nothing has come for long: where nothing has been merged yet nothing will, and a quorum may
 * wait for us. */
bool pl_lhost_values_are_here(struct pl_learner_host *h)
{
    if (!h->awaited.on)
        return false;
    uint64_t patience = h->awaited.some ? VALUES_NS : FIRST_VALUE_NS;
    bool all = fragments_that_came(h) == h->layout.fragment_count;
    bool in_vain = pl_clock_ns() - h->awaited.last_ns >= patience;
    if (h->awaited.ahead && !all && !in_vain)
        return false;
    if (h->awaited.ahead && !all)
        pl_lhost_log(h, "no value has come for %lu s: beginning with what is here", patience / PL_SEC);
    h->awaited.on = false;
    return true;
}

void pl_lhost_values_release(struct pl_learner_host *h)
{
    for (uint32_t i = 0; h->fragments != NULL && i < h->layout.fragment_count; i++) {
        struct pl_lfragment *f = &h->fragments[i];
        if (f->copy != NULL)
            pl_lhost_copy_free(f->copy);
        pl_lhost_forget(h, i);
        pl_vec_drop(h, f->anchor);
        pl_vec_drop(h, f->residual);
    }
}
