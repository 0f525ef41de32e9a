/* core/syncer.c - memory, dispatch, timers, stores and views of a syncer shard. See syncer.h and syncer_int.h.
 *
 * A step handles its event, then does what has become due: pulls, ticks, grace windows, leases, stores,
 * announcements, closing rounds. What does not fit into the effect array waits for the next step; the deadline is
 * then "now", so nothing is forgotten.
 */
#include "core/syncer_int.h"

#include "base/check.h"

#include <string.h>

enum { STORE_RETRY_MS = 500 };
#define RETURN_NS                                                                                            \
    (60 * PL_SEC) /* after a restart no times are measured yet: so long may a learner take to return */

static size_t aligned(size_t bytes)
{
    return (bytes + 7) & ~(size_t)7;
}

static uint32_t timer_count(const struct pl_sync_options *o, uint32_t fragments)
{
    return o->learners_max + o->conns_max + fragments;
}

/* Carves the parts out of one block; with block NULL it only measures. */
static size_t lay_out(struct pl_syncer *s, uint8_t *block, const struct pl_sync_options *o,
                      uint32_t fragments)
{
    size_t at = aligned(sizeof *s);
    const size_t n = o->learners_max;
#define PART(field, count)                                                                                   \
    do {                                                                                                     \
        if (block != NULL)                                                                                   \
            s->field = (void *)(block + at);                                                                 \
        at += aligned(sizeof *s->field * (size_t)(count));                                                   \
    } while (0)
    PART(conns, o->conns_max);
    PART(learners, n);
    PART(by_identity, n);
    PART(fragments, fragments);
    PART(cells, n * fragments);
    PART(due_fragment, o->manifest->period_steps);
    PART(local_of, o->manifest->fragments.count);
    PART(announce, fragments);
    PART(units, PL_UNITS_HELD_MAX * n);
    PART(sort_scratch, n);
    PART(contributors, n);
    PART(item_scratch, (size_t)fragments * PL_ITEM_PARTIAL_BYTES);
#undef PART
    if (block != NULL) {
        pl_heap_init(&s->timers, block + at, timer_count(o, fragments));
        pl_heap_init(&s->pulls, block + at + pl_heap_bytes(timer_count(o, fragments)), o->learners_max);
    }
    return at + pl_heap_bytes(timer_count(o, fragments)) + pl_heap_bytes(o->learners_max);
}

size_t pl_syncer_bytes(const struct pl_sync_options *o)
{
    struct pl_syncer none;
    return lay_out(&none, NULL, o, pl_manifest_shard_fragments(o->manifest, o->shard));
}

/* Room that one item of due work may need: a merge drops and discards every learner's push. */
static uint32_t effects_reserve(uint32_t learners_max, uint32_t fragments)
{
    return 3 * learners_max + 3 * fragments + 32;
}

uint32_t pl_syncer_effects_max(const struct pl_sync_options *o)
{
    return 3 * effects_reserve(o->learners_max, pl_manifest_shard_fragments(o->manifest, o->shard));
}

static void init_fragments(struct pl_syncer *s)
{
    uint32_t f = 0;
    for (uint32_t t = 0; t < s->period; t++)
        s->due_fragment[t] = PL_NONE32;
    for (uint32_t i = 0; i < s->manifest->fragments.count; i++) {
        struct pl_item_fragment item = pl_item_fragment_at(&s->manifest->fragments, i);
        s->local_of[i] = PL_NONE32;
        if (item.shard != s->shard)
            continue;
        pl_assert(s->due_fragment[item.offset] == PL_NONE32);
        s->fragments[f].number = i;
        s->fragments[f].offset = item.offset;
        s->fragments[f].full_bytes = item.full_bytes;
        s->fragments[f].push_bytes_max = item.push_bytes_max;
        s->due_fragment[item.offset] = f;
        s->local_of[i] = f++;
    }
    pl_assert(f == s->fragment_count);
}

struct pl_syncer *pl_syncer_init(void *memory, size_t bytes, const struct pl_sync_options *o)
{
    pl_assert(memory != NULL && bytes >= pl_syncer_bytes(o));
    pl_assert(o->learners_max > 0 && o->learners_max <= PL_LEARNERS_MAX && o->conns_max > 0);
    struct pl_syncer *s = memory;
    memset(memory, 0, bytes);
    s->fragment_count = pl_manifest_shard_fragments(o->manifest, o->shard);
    lay_out(s, memory, o, s->fragment_count);
    s->manifest = o->manifest;
    s->manifest_digest = o->manifest_digest;
    s->shard = o->shard;
    s->learners_max = o->learners_max;
    s->conns_max = o->conns_max;
    s->quorum = o->manifest->quorum;
    s->stretch = 1;
    s->overlap = o->manifest->overlap_steps;
    s->period = o->manifest->period_steps;
    s->units_max = PL_UNITS_HELD_MAX * o->learners_max;
    for (uint32_t i = 0; i < s->units_max; i++)
        s->units[i].unit = PL_NONE64;
    init_fragments(s);
    return s;
}

void pl_syncer_set_origin(struct pl_syncer *s, uint32_t fragment, uint64_t digest)
{
    pl_assert(fragment < s->manifest->fragments.count && s->local_of[fragment] != PL_NONE32);
    pl_assert(s->epoch == 0);
    s->fragments[s->local_of[fragment]].digest = digest;
}

/* ---- effects ---- */

struct pl_sync_effect *pl_sync_emit(struct pl_sync_fxs *out, enum pl_sync_fx kind)
{
    pl_assert(out->count < out->max);
    struct pl_sync_effect *fx = &out->fx[out->count++];
    memset(fx, 0, sizeof *fx);
    fx->kind = kind;
    return fx;
}

void pl_sync_send(struct pl_sync_fxs *out, uint32_t conn, const struct pl_msg *msg)
{
    struct pl_sync_effect *fx = pl_sync_emit(out, PL_SYNC_FX_SEND);
    fx->u.send.conn = conn;
    fx->u.send.msg = *msg;
}

void pl_sync_trace(struct pl_sync_fxs *out, enum pl_trace_code code, const uint64_t arg[static 4])
{
    struct pl_trace *t = &pl_sync_emit(out, PL_SYNC_FX_TRACE)->u.trace;
    t->code = code;
    memcpy(t->arg, arg, sizeof t->arg);
}

void pl_sync_store_want(struct pl_syncer *s, bool *again)
{
    pl_assert(!*again);
    *again = true;
    s->stores_wanted++;
}

uint64_t pl_sync_store(struct pl_syncer *s, bool *again, const struct pl_record *r, struct pl_sync_fxs *out)
{
    pl_assert(*again && !s->record_used && s->stores_wanted > 0);
    *again = false;
    s->stores_wanted--;
    s->record_used = true;
    s->record = *r;
    s->record.epoch = s->epoch;
    s->record.clock_tokens = pl_sync_clock(s);
    s->record.tick = s->tick;
    struct pl_sync_effect *fx = pl_sync_emit(out, PL_SYNC_FX_STORE);
    fx->u.store.seq = ++s->store_seq;
    fx->u.store.record = &s->record;
    return s->store_seq;
}

/* ---- stores: one a step, in a fixed order of urgency ---- */

static void store_boot(struct pl_syncer *s, struct pl_sync_fxs *out)
{
    s->boot_seq = pl_sync_store(s, &s->boot_again, &(struct pl_record){.type = PL_RECORD_BOOT}, out);
}

static bool store_some(struct pl_syncer *s, struct pl_sync_fxs *out)
{
    if (s->stores_wanted == 0 || s->record_used || s->contributors_used != 0 || s->now < s->retry_ns)
        return false;
    if (s->boot_again) {
        store_boot(s, out);
        return true;
    }
    for (uint32_t f = 0; f < s->fragment_count; f++)
        if (s->fragments[f].store_again) {
            pl_sync_store_round(s, f, out);
            return true;
        }
    if (s->done_again) {
        pl_sync_store_done(s, out);
        return true;
    }
    return pl_sync_unit_store_again(s, out);
}

/* A learner that does not return after the restart loses its units like any other that is gone for long. */
static void await_owners(struct pl_syncer *s)
{
    for (uint32_t i = 0; i < s->units_max; i++)
        if (s->units[i].unit != PL_NONE64 && s->units[i].owner != PL_NONE32)
            pl_heap_set(&s->timers, pl_sync_lease_timer(s, s->units[i].owner), pl_add_sat(s->now, RETURN_NS));
}

static void stored_boot(struct pl_syncer *s, struct pl_sync_fxs *out)
{
    s->boot_seq = 0;
    s->listening = true;
    await_owners(s);
    pl_sync_emit(out, PL_SYNC_FX_LISTEN);
    TRACE(out, BOOT, s->epoch, s->tick, pl_sync_clock(s));
}

static uint32_t fragment_of_seq(const struct pl_syncer *s, uint64_t seq)
{
    for (uint32_t f = 0; f < s->fragment_count; f++)
        if (s->fragments[f].state == ROUND_STORING && s->fragments[f].store_seq == seq)
            return f;
    return PL_NONE32;
}

static void store_failed(struct pl_syncer *s, uint64_t seq, struct pl_sync_fxs *out)
{
    PL_MARK("syncer.store_failed");
    uint32_t f = fragment_of_seq(s, seq);
    s->retry_ns = s->now + STORE_RETRY_MS * PL_MS;
    TRACE(out, STORE_FAILED, seq);
    if (seq == s->boot_seq)
        pl_sync_store_want(s, &s->boot_again);
    else if (f != PL_NONE32)
        pl_sync_store_want(s, &s->fragments[f].store_again);
    else if (seq == s->done_seq)
        pl_sync_store_want(s, &s->done_again);
    else
        pl_sync_unit_store_failed(s, seq);
}

static void stored(struct pl_syncer *s, uint64_t seq, bool durable, struct pl_sync_fxs *out)
{
    pl_assert(seq != 0 && seq <= s->store_seq);
    if (!durable) {
        store_failed(s, seq, out);
        return;
    }
    uint32_t f = fragment_of_seq(s, seq);
    if (seq == s->boot_seq)
        stored_boot(s, out);
    else if (f != PL_NONE32)
        pl_sync_round_stored(s, f, out);
    else if (seq == s->done_seq)
        pl_sync_done_stored(s, out);
    else if (!pl_mutant(1))
        pl_sync_unit_stored(s, seq, out);
}

/* ---- timers ---- */

uint32_t pl_sync_lease_timer(const struct pl_syncer *s, uint32_t m)
{
    pl_assert(m < s->learners_max);
    return m;
}

uint32_t pl_sync_greet_timer(const struct pl_syncer *s, uint32_t conn)
{
    pl_assert(conn < s->conns_max);
    return s->learners_max + conn;
}

uint32_t pl_sync_grace_timer(const struct pl_syncer *s, uint32_t f)
{
    pl_assert(f < s->fragment_count);
    return s->learners_max + s->conns_max + f;
}

/* Fires the first due timer. A grace window may only end when the step's contributor list is free. */
static bool timer_some(struct pl_syncer *s, struct pl_sync_fxs *out)
{
    uint32_t item = pl_heap_top(&s->timers);
    uint32_t grace0 = s->learners_max + s->conns_max;
    if (item == PL_NONE32 || pl_heap_top_key(&s->timers) > s->now)
        return false;
    if (item >= grace0 && s->contributors_used != 0)
        return false;
    pl_heap_remove(&s->timers, item);
    if (item >= grace0)
        pl_sync_grace_over(s, item - grace0, out);
    else if (item >= s->learners_max)
        pl_sync_greet_expired(s, item - s->learners_max, out);
    else
        pl_sync_lease_expired(s, item, out);
    return true;
}

static bool pull_some(struct pl_syncer *s, struct pl_sync_fxs *out)
{
    if (!pl_sync_pull_ready(s))
        return false;
    pl_sync_pull_next(s, out);
    return true;
}

static bool tick_some(struct pl_syncer *s, struct pl_sync_fxs *out)
{
    if (!pl_sync_tick_ready(s))
        return false;
    pl_sync_tick(s, out);
    return true;
}

/* Pulls go before the tick they are for; everything else in any fixed order. */
static void do_due_work(struct pl_syncer *s, struct pl_sync_fxs *out)
{
    const uint32_t reserve = effects_reserve(s->learners_max, s->fragment_count);
    while (out->max - out->count >= reserve) {
        bool did = timer_some(s, out) || pull_some(s, out) || tick_some(s, out) || store_some(s, out) ||
                   pl_sync_announce_some(s, out) || pl_sync_closing_some(s, out);
        if (!did) {
            s->more_work = false;
            return;
        }
    }
    s->more_work = true;
    PL_MARK("syncer.effects_full");
}

uint64_t pl_syncer_deadline(const struct pl_syncer *s)
{
    uint64_t at = pl_heap_top_key(&s->timers);
    at = pl_min64(at, pl_sync_tick_due_ns(s));
    at = pl_min64(at, pl_sync_pull_due_ns(s));
    at = pl_min64(at, pl_sync_agreed_ns(s));
    at = pl_min64(at, pl_sync_closing_due_ns(s));
    if (s->stores_wanted > 0)
        at = pl_min64(at, s->retry_ns);
    if (s->more_work)
        at = s->now;
    return pl_max64(at, s->now);
}

/* ---- the step ---- */

static void boot(struct pl_syncer *s, uint64_t epoch_least)
{
    pl_assert(s->boot_seq == 0 && !s->boot_again && !s->listening);
    s->reborn = s->epoch > 0;
    if (!pl_mutant(14))
        s->epoch = pl_max64(s->epoch + 1, pl_min64(epoch_least, PL_EPOCH_LEAST_MAX));
    else
        s->epoch = 1;
    s->tick_ns = s->rate_ns = s->boot_ns = s->now;
    s->agreed_ns = PL_NEVER;
    pl_sync_await(s);
    s->rate_tokens = pl_sync_clock(s);
    pl_sync_store_want(s, &s->boot_again);
}

void pl_syncer_step(struct pl_syncer *s, const struct pl_sync_event *ev, struct pl_sync_fxs *out)
{
    pl_assert(ev->now_ns >= s->now);
    pl_assert(out->max >= 3 * effects_reserve(s->learners_max, s->fragment_count));
    s->now = ev->now_ns;
    out->count = 0;
    s->contributors_used = 0;
    s->record_used = false;
    switch (ev->kind) {
    case PL_SYNC_EV_BOOT:
        boot(s, ev->u.boot.epoch_least);
        break;
    case PL_SYNC_EV_OPENED:
        pl_sync_opened(s, ev->u.opened.conn, ev->u.opened.identity);
        break;
    case PL_SYNC_EV_CLOSED:
        pl_sync_closed(s, ev->u.closed.conn, out);
        break;
    case PL_SYNC_EV_MSG:
        pl_sync_message(s, ev->u.msg.conn, ev->u.msg.msg, out);
        break;
    case PL_SYNC_EV_BAD:
        pl_sync_bad_bytes(s, ev->u.bad.conn, ev->u.bad.error, out);
        break;
    case PL_SYNC_EV_VERIFIED:
        pl_sync_verified(s, ev, out);
        break;
    case PL_SYNC_EV_MERGED:
        pl_sync_merged(s, ev, out);
        break;
    case PL_SYNC_EV_STORED:
        stored(s, ev->u.stored.seq, ev->u.stored.durable, out);
        break;
    case PL_SYNC_EV_TIMEOUT:
        break;
    case PL_SYNC_EV_FINISH:
        pl_assert(is_home(s));
        s->ending = true;
        break;
    case PL_SYNC_EV_DOUBT:
        pl_sync_doubt(s, ev->u.doubt.identity, ev->u.doubt.doubted);
        if (!s->listening)
            return;
        break;
    }
    pl_sync_maybe_close(s, out);
    do_due_work(s, out);
}

/* ---- views ---- */

static uint64_t overlap_of(const struct pl_syncer *s, uint32_t m)
{
    return pl_sync_overlap_eff(s, m);
}

void pl_syncer_view(struct pl_syncer *s, struct pl_sync_view *out)
{
    *out = (struct pl_sync_view){
        .epoch = s->epoch,
        .reborn = s->reborn,
        .tick = s->tick,
        .interval_ns = s->interval,
        .clock_tokens = pl_sync_clock(s),
        .rate_tokens = s->rate,
        .seen_tokens = pl_min64(pl_max64(s->clock_floor, s->clock_sum), PL_COUNT_MAX),
        .rounds_merged = s->rounds_merged,
        .rounds_void = s->rounds_void,
        .rounds_busy = s->rounds_busy,
        .rounds_graced = s->rounds_graced,
        .grace_late_ns = s->grace_late_ns,
        .sync_ns = s->sync_time.mean,
        .known = s->known,
        .live = s->live,
        .quorum = s->quorum,
        .overlap_eff = (uint32_t)pl_sync_kth(s, s->quorum, overlap_of),
        .period_eff = s->period * s->stretch,
        .phase = s->phase,
    };
}

bool pl_syncer_view_learner(const struct pl_syncer *s, uint32_t learner, struct pl_learner_view *out)
{
    pl_assert(learner < s->learners_max);
    const struct learner *l = &s->learners[learner];
    if (l->state == LEARNER_FREE)
        return false;
    *out = (struct pl_learner_view){
        .identity = l->identity,
        .incarnation = l->incarnation,
        .nonce = l->nonce,
        .steps = l->steps,
        .tokens = l->tokens,
        .lead_ns = pl_sync_lead(s, learner),
        .step_ns = l->step.mean,
        .rounds_pulled = l->rounds_pulled,
        .rounds_merged = l->rounds_merged,
        .stride = l->stride,
        .live = l->state == LEARNER_LIVE,
    };
    return true;
}

bool pl_syncer_view_identity(const struct pl_syncer *s, uint64_t identity, struct pl_learner_view *out)
{
    uint32_t at = pl_sync_place_of(s, identity);
    return at < s->known && pl_syncer_view_learner(s, s->by_identity[at], out) && out->identity == identity;
}

uint64_t pl_syncer_version(const struct pl_syncer *s, uint32_t fragment, uint64_t *digest)
{
    pl_assert(fragment < s->manifest->fragments.count && s->local_of[fragment] != PL_NONE32);
    const struct fragment *fr = &s->fragments[s->local_of[fragment]];
    if (digest != NULL)
        *digest = fr->digest;
    return fr->version;
}
