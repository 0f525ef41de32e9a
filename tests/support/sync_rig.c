/* support/sync_rig.c - see sync_rig.h. The host: events, effects, answers, crash and recovery. */
#include "sync_rig.h"

#include "base/check.h"
#include "base/num.h"
#include "wire/chunk.h"
#include "wire/frame.h"

#include <stdlib.h>
#include <string.h>

enum { FRAME_BYTES = 1 << 17, POOL_BYTES = 1 << 20, SPINS_MAX = 10000, RECORDS_MAX = 4096 };

/* Outside the marks: records are written once per number, so going back needs only the count. */
struct rig_store {
    uint8_t snapshot[RIG_SAVE_BYTES];
    uint8_t asked[RIG_ANSWERS][RIG_RECORD_BYTES]; /* by seq, not yet durable */
    size_t asked_len[RIG_ANSWERS];
    uint8_t record[RECORDS_MAX][RIG_RECORD_BYTES];
    size_t record_len[RECORDS_MAX];
    uint8_t fragments[RIG_FRAGMENTS * PL_ITEM_FRAGMENT_BYTES];
};

static void *zeroed(size_t bytes)
{
    void *p = calloc(1, bytes);
    pl_assert(p != NULL);
    return p;
}

static void make_manifest(struct rig *r)
{
    const struct rig_options *o = &r->o;
    for (uint32_t i = 0; i < o->fragments; i++) {
        uint32_t per = (o->fragments + o->shards - 1) / o->shards;
        struct pl_item_fragment item = {i % o->shards, i / o->shards * o->period / per, o->full_bytes,
                                        o->push_bytes_max, o->full_bytes};
        pl_item_fragment_put(r->store->fragments, i, &item);
    }
    r->manifest = (struct pl_msg_manifest){.run_id = 0xabc,
                                           .seed = 7,
                                           .shard_count = o->shards,
                                           .quorum = o->quorum,
                                           .overlap_steps = o->overlap,
                                           .period_steps = o->period,
                                           .gamma_ppm = o->gamma_ppm,
                                           .staleness_max = 2,
                                           .token_budget = o->budget,
                                           .unit_tokens = o->unit_tokens,
                                           .step_tokens_max = o->step_tokens_max,
                                           .fragments = {r->store->fragments, o->fragments}};
    struct pl_error err;
    pl_assert(pl_manifest_check(&r->manifest, &err) == PELAGO_OK);
    r->so =
        (struct pl_sync_options){.manifest = &r->manifest,
                                 .manifest_digest = pl_manifest_digest(&r->manifest, r->frames, FRAME_BYTES),
                                 .shard = o->shard,
                                 .learners_max = o->learners_max,
                                 .conns_max = RIG_CONNS};
}

static bool owned(const struct rig *r, uint32_t fragment)
{
    return fragment % r->o.shards == r->o.shard;
}

static void fresh_shard(const struct rig *r, void *memory, struct pl_syncer **s)
{
    *s = pl_syncer_init(memory, r->memory_bytes, &r->so);
    for (uint32_t f = 0; f < r->o.fragments; f++)
        if (owned(r, f))
            pl_syncer_set_origin(*s, f, rig_digest(f, 0));
}

static void boot(struct rig *r)
{
    r->boots++;
    rig_step(r, &(struct pl_sync_event){.kind = PL_SYNC_EV_BOOT, .now_ns = r->now_ns});
}

static void begin(struct rig *r, const struct rig_options *o)
{
    r->o = *o;
    pl_assert(o->fragments <= RIG_FRAGMENTS && o->learners_max <= RIG_PEERS);
    r->now_ns = 1000 * PL_SEC;
    r->step_ns = 100 * PL_MS;
    r->update_bytes = 100;
    make_manifest(r);
    r->memory_bytes = pl_syncer_bytes(&r->so);
    r->memory = zeroed(r->memory_bytes);
    r->fxs.max = pl_syncer_effects_max(&r->so);
    r->fxs.fx = zeroed(r->fxs.max * sizeof *r->fxs.fx);
    for (uint32_t i = 0; i < RIG_PEERS; i++)
        r->peers[i] = (struct rig_peer){.identity = rig_identity(i),
                                        .nonce = 100 + i,
                                        .unit = PL_NONE64,
                                        .control = PL_NONE32,
                                        .bulk = PL_NONE32};
    fresh_shard(r, r->memory, &r->s);
    boot(r);
}

/* The large blocks; what they held before does not matter. */
static void make_blocks(struct rig *r)
{
    r->store = zeroed(sizeof *r->store);
    r->frames = zeroed(FRAME_BYTES);
    r->pool = zeroed(POOL_BYTES);
    r->log = zeroed(RIG_LOG * sizeof *r->log);
}

void rig_init(struct rig *r, const struct rig_options *o)
{
    memset(r, 0, sizeof *r);
    make_blocks(r);
    begin(r, o);
}

void rig_again(struct rig *r, const struct rig_options *o)
{
    struct rig before = *r;
    free(r->memory);
    free(r->fxs.fx);
    memset(r, 0, sizeof *r);
    r->store = before.store;
    r->frames = before.frames;
    r->pool = before.pool;
    r->log = before.log;
    begin(r, o);
}

void rig_release(struct rig *r)
{
    void *blocks[] = {r->store, r->frames, r->pool, r->log, r->memory, r->fxs.fx};
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++)
        free(blocks[i]);
    memset(r, 0, sizeof *r);
}

/* ---- the log ---- */

void rig_forget(struct rig *r)
{
    r->log_len = 0;
    r->pool_len = 0;
}

static const void *pooled(struct rig *r, const void *bytes, size_t len)
{
    if (len == 0 || r->pool_len + len > POOL_BYTES)
        return NULL;
    uint8_t *at = r->pool + r->pool_len;
    memcpy(at, bytes, len);
    r->pool_len += (len + 7) & ~(size_t)7;
    return at;
}

/* A copy that outlives the step. Arrays that matter to tests come along. */
static void keep(struct rig *r, const struct pl_sync_effect *fx)
{
    if (r->log_len == RIG_LOG)
        return;
    struct pl_sync_effect *copy = &r->log[r->log_len++];
    *copy = *fx;
    if (fx->kind == PL_SYNC_FX_SEND && fx->u.send.msg.type == PL_MSG_ATTACHED) {
        struct pl_array *a = &copy->u.send.msg.u.attached.partial;
        a->items = pooled(r, a->items, a->count * PL_ITEM_PARTIAL_BYTES);
    }
    if (fx->kind == PL_SYNC_FX_MERGE)
        copy->u.merge.contributors = pooled(r, fx->u.merge.contributors,
                                            fx->u.merge.contributor_count * sizeof(struct pl_contributor));
    if (fx->kind == PL_SYNC_FX_STORE)
        copy->u.store.record = pooled(r, fx->u.store.record, sizeof *fx->u.store.record);
}

/* ---- effects ---- */

static void wait_for(struct rig *r, const struct rig_answer *a)
{
    pl_assert(r->answers_len < RIG_ANSWERS);
    r->answers[r->answers_len++] = *a;
}

static void encodes(struct rig *r, const struct pl_msg *msg)
{
    struct pl_frame frame;
    size_t len = pl_frame_encode(msg, r->frames, FRAME_BYTES);
    pl_assert(pl_frame_parse(r->frames, len, &frame, NULL) == PELAGO_OK);
    pl_assert((pl_msg_info(msg->type)->sender & PL_SENDER_SYNCER) != 0);
}

static void tell_peer(struct rig *r, struct rig_peer *p, const struct pl_msg *msg)
{
    if (msg->type == PL_MSG_WELCOME)
        p->incarnation = msg->u.welcome.incarnation;
    else if (msg->type == PL_MSG_PULL)
        p->pull[msg->u.pull.fragment] =
            (struct rig_pull){true, msg->u.pull.round, msg->u.pull.base_version, r->now_ns};
    else if (msg->type == PL_MSG_DROP && p->pull[msg->u.drop.fragment].round == msg->u.drop.round)
        p->pull[msg->u.drop.fragment].open = false;
    else if (msg->type == PL_MSG_LEASE) {
        p->unit = msg->u.lease.unit;
        p->cursor = msg->u.lease.cursor;
    } else if (msg->type == PL_MSG_FINISH) {
        p->flags |= 2;
    }
}

static void do_send(struct rig *r, const struct pl_sync_effect *fx)
{
    const struct rig_conn *c = &r->conns[fx->u.send.conn];
    pl_assert(c->open);
    encodes(r, &fx->u.send.msg);
    if (c->peer != PL_NONE32)
        tell_peer(r, &r->peers[c->peer], &fx->u.send.msg);
}

static void gone(struct rig *r, uint32_t conn)
{
    uint32_t i = r->conns[conn].peer;
    r->conns[conn].open = false;
    if (i == PL_NONE32)
        return;
    if (r->peers[i].control == conn)
        r->peers[i].control = PL_NONE32;
    if (r->peers[i].bulk == conn)
        r->peers[i].bulk = PL_NONE32;
}

static void do_close(struct rig *r, const struct pl_sync_effect *fx)
{
    struct pl_blob text = {(const uint8_t *)fx->u.close.text, (uint32_t)strlen(fx->u.close.text)};
    struct pl_msg msg = {.type = PL_MSG_CLOSE, .u.close = {.code = fx->u.close.reason, .text = text}};
    pl_assert(r->conns[fx->u.close.conn].open && text.len > 0);
    encodes(r, &msg);
    gone(r, fx->u.close.conn);
}

static void do_keep(struct rig *r, const struct pl_sync_effect *fx)
{
    struct rig_push *p = &r->pushes[fx->u.push.learner][fx->u.push.fragment];
    if (!p->used)
        *p = (struct rig_push){.used = true, .round = fx->u.push.round, .bytes = fx->u.push.bytes};
    pl_assert(p->round == fx->u.push.round && p->bytes == fx->u.push.bytes);
    pl_assert(fx->u.push.index < pl_chunk_count(p->bytes) && (p->mask >> fx->u.push.index & 1) == 0);
    p->mask |= UINT64_C(1) << fx->u.push.index;
}

static void do_verify(struct rig *r, const struct pl_sync_effect *fx)
{
    struct rig_push *p = &r->pushes[fx->u.push.learner][fx->u.push.fragment];
    pl_assert(p->used && !p->verified && p->round == fx->u.push.round && p->bytes == fx->u.push.bytes);
    pl_assert(p->mask == pl_chunk_all(p->bytes));
    wait_for(r, &(struct rig_answer){.kind = PL_SYNC_EV_VERIFIED,
                                     .learner = fx->u.push.learner,
                                     .fragment = fx->u.push.fragment,
                                     .round = p->round});
}

static void do_discard(struct rig *r, const struct pl_sync_effect *fx)
{
    struct rig_push *p = &r->pushes[fx->u.push.learner][fx->u.push.fragment];
    pl_assert(!p->used || p->round == fx->u.push.round);
    *p = (struct rig_push){.used = false};
}

static void do_merge(struct rig *r, const struct pl_sync_effect *fx)
{
    struct rig_fragment *f = &r->fragments[fx->u.merge.fragment];
    const struct pl_contributor *c = fx->u.merge.contributors;
    pl_assert(!f->staged && fx->u.merge.base_version == f->version && fx->u.merge.contributor_count > 0);
    for (uint32_t i = 0; i < fx->u.merge.contributor_count; i++) {
        struct rig_push *p = &r->pushes[c[i].learner][fx->u.merge.fragment];
        pl_assert(i == 0 || c[i - 1].identity < c[i].identity);
        pl_assert(p->used && p->verified && p->round == fx->u.merge.round && c[i].steps > 0);
        *p = (struct rig_push){.used = false};
    }
    wait_for(r, &(struct rig_answer){
                    .kind = PL_SYNC_EV_MERGED, .fragment = fx->u.merge.fragment, .round = fx->u.merge.round});
}

static void do_store(struct rig *r, const struct pl_sync_effect *fx)
{
    const struct pl_record *rec = fx->u.store.record;
    uint32_t at = (uint32_t)(fx->u.store.seq % RIG_ANSWERS);
    if (rec->type == PL_RECORD_ROUND)
        pl_assert(r->fragments[rec->fragment].staged &&
                  rec->version == r->fragments[rec->fragment].version + 1);
    pl_assert(pl_record_bytes(rec) <= pl_record_bytes_max(r->o.learners_max));
    r->store->asked_len[at] = pl_record_encode(rec, r->store->asked[at], RIG_RECORD_BYTES);
    wait_for(r, &(struct rig_answer){.kind = PL_SYNC_EV_STORED,
                                     .seq = fx->u.store.seq,
                                     .fragment = rec->type == PL_RECORD_ROUND ? rec->fragment : PL_NONE32});
}

static void do_publish(struct rig *r, const struct pl_sync_effect *fx)
{
    struct rig_fragment *f = &r->fragments[fx->u.publish.fragment];
    pl_assert(f->staged && f->durable && fx->u.publish.version == f->version + 1);
    pl_assert(fx->u.publish.oldest < fx->u.publish.version);
    f->version++;
    f->oldest = pl_max64(f->oldest, fx->u.publish.oldest);
    f->staged = f->durable = false;
}

static void do_deliver(struct rig *r, const struct pl_sync_effect *fx)
{
    const struct pl_msg_update *u = &fx->u.deliver.header;
    const struct rig_conn *c = &r->conns[fx->u.deliver.conn];
    struct pl_msg msg = {.type = PL_MSG_UPDATE, .u.update = *u};
    pl_assert(c->open && u->to_version == r->fragments[u->fragment].version);
    pl_assert((fx->u.deliver.mask & ~pl_chunk_all(u->bytes)) == 0);
    if (u->from_version == PL_NONE64)
        pl_assert(u->bytes == r->o.full_bytes);
    else
        pl_assert(u->from_version < u->to_version && u->from_version >= r->fragments[u->fragment].oldest);
    encodes(r, &msg);
    if (c->peer != PL_NONE32)
        r->peers[c->peer].update[u->fragment] = (struct rig_update){true, *u};
}

static void perform(struct rig *r, const struct pl_sync_effect *fx)
{
    switch (fx->kind) {
    case PL_SYNC_FX_LISTEN:
        pl_assert(!r->listening);
        r->listening = true;
        break;
    case PL_SYNC_FX_SEND:
        do_send(r, fx);
        break;
    case PL_SYNC_FX_CLOSE:
        do_close(r, fx);
        break;
    case PL_SYNC_FX_KEEP:
        do_keep(r, fx);
        break;
    case PL_SYNC_FX_VERIFY:
        do_verify(r, fx);
        break;
    case PL_SYNC_FX_DISCARD:
        do_discard(r, fx);
        break;
    case PL_SYNC_FX_MERGE:
        do_merge(r, fx);
        break;
    case PL_SYNC_FX_STORE:
        do_store(r, fx);
        break;
    case PL_SYNC_FX_PUBLISH:
        do_publish(r, fx);
        break;
    case PL_SYNC_FX_DELIVER:
        do_deliver(r, fx);
        break;
    case PL_SYNC_FX_FINISHED:
        pl_assert(!r->finished);
        r->finished = true;
        break;
    case PL_SYNC_FX_TRACE: {
        char line[256];
        pl_assert(pl_trace_print(&fx->u.trace, line, sizeof line) == strlen(line));
        break;
    }
    }
}

/* ---- answers ---- */

static bool held_back(const struct rig *r, enum pl_sync_ev kind)
{
    return (kind == PL_SYNC_EV_VERIFIED && r->hold_verify) || (kind == PL_SYNC_EV_MERGED && r->hold_merge) ||
           (kind == PL_SYNC_EV_STORED && r->hold_store);
}

static void answer_stored(struct rig *r, const struct rig_answer *a, bool good, struct pl_sync_event *ev)
{
    ev->u.stored.seq = a->seq;
    ev->u.stored.durable = good;
    if (!good)
        return;
    uint32_t at = (uint32_t)(a->seq % RIG_ANSWERS);
    pl_assert(r->record_count < RECORDS_MAX);
    memcpy(r->store->record[r->record_count], r->store->asked[at], r->store->asked_len[at]);
    r->store->record_len[r->record_count++] = r->store->asked_len[at];
    if (a->fragment != PL_NONE32)
        r->fragments[a->fragment].durable = true;
}

static void answer(struct rig *r, uint32_t index, bool good)
{
    struct rig_answer a = r->answers[index];
    struct pl_sync_event ev = {.kind = a.kind, .now_ns = r->now_ns};
    r->answers_len--;
    memmove(&r->answers[index], &r->answers[index + 1], (r->answers_len - index) * sizeof a);
    if (a.kind == PL_SYNC_EV_VERIFIED) {
        struct rig_push *p = &r->pushes[a.learner][a.fragment];
        ev.u.verified.learner = a.learner;
        ev.u.verified.fragment = a.fragment;
        ev.u.verified.round = a.round;
        ev.u.verified.good = good;
        p->verified = p->verified || (good && p->used && p->round == a.round);
    } else if (a.kind == PL_SYNC_EV_MERGED) {
        ev.u.merged.fragment = a.fragment;
        ev.u.merged.round = a.round;
        ev.u.merged.digest = rig_digest(a.fragment, r->fragments[a.fragment].version + 1);
        ev.u.merged.update_bytes = r->update_bytes;
        ev.u.merged.good = good;
        r->fragments[a.fragment].staged = good;
    } else {
        answer_stored(r, &a, good, &ev);
    }
    rig_step(r, &ev);
}

bool rig_waits(const struct rig *r, enum pl_sync_ev kind)
{
    for (uint32_t i = 0; i < r->answers_len; i++)
        if (r->answers[i].kind == kind)
            return true;
    return false;
}

bool rig_answer(struct rig *r, enum pl_sync_ev kind, bool good)
{
    for (uint32_t i = 0; i < r->answers_len; i++)
        if (r->answers[i].kind == kind) {
            answer(r, i, good);
            return true;
        }
    return false;
}

static bool answer_next(struct rig *r)
{
    for (uint32_t i = 0; i < r->answers_len; i++) {
        enum pl_sync_ev kind = r->answers[i].kind;
        if (held_back(r, kind))
            continue;
        bool bad = (kind == PL_SYNC_EV_VERIFIED && r->bad_verify) ||
                   (kind == PL_SYNC_EV_MERGED && r->bad_merge) || (kind == PL_SYNC_EV_STORED && r->bad_store);
        answer(r, i, !bad);
        return true;
    }
    return false;
}

/* ---- the step ---- */

static void step_once(struct rig *r, const struct pl_sync_event *ev)
{
    pl_syncer_step(r->s, ev, &r->fxs);
    pl_assert(r->fxs.count <= r->fxs.max);
    pl_syncer_check(r->s);
    r->spins = pl_syncer_deadline(r->s) <= r->now_ns ? r->spins + 1 : 0;
    r->steps_full += r->spins > 0 && 3 * (r->fxs.max - r->fxs.count) < r->fxs.max ? 1 : 0;
    pl_assert(r->spins < SPINS_MAX);
    for (uint32_t i = 0; i < r->fxs.count; i++) {
        keep(r, &r->fxs.fx[i]);
        perform(r, &r->fxs.fx[i]);
    }
}

/* Steps, and then does what an idle host would do at once: passed deadlines and answers. */
void rig_step(struct rig *r, const struct pl_sync_event *ev)
{
    step_once(r, ev);
    while (pl_syncer_deadline(r->s) <= r->now_ns)
        step_once(r, &(struct pl_sync_event){.kind = PL_SYNC_EV_TIMEOUT, .now_ns = r->now_ns});
    answer_next(r); /* steps again, and so answers the next one */
}

uint32_t rig_open(struct rig *r, uint64_t identity)
{
    pl_assert(r->listening);
    for (uint32_t c = 0; c < RIG_CONNS; c++) {
        if (r->conns[c].open)
            continue;
        r->conns[c] = (struct rig_conn){true, PL_NONE32};
        rig_step(r, &(struct pl_sync_event){.kind = PL_SYNC_EV_OPENED,
                                            .now_ns = r->now_ns,
                                            .u.opened = {.conn = c, .identity = identity}});
        return c;
    }
    return PL_NONE32;
}

void rig_close(struct rig *r, uint32_t conn)
{
    pl_assert(r->conns[conn].open);
    gone(r, conn);
    rig_step(r, &(struct pl_sync_event){
                    .kind = PL_SYNC_EV_CLOSED, .now_ns = r->now_ns, .u.closed = {.conn = conn}});
}

static void bad_bytes(struct rig *r, uint32_t conn, const struct pl_error *err)
{
    rig_step(r, &(struct pl_sync_event){
                    .kind = PL_SYNC_EV_BAD, .now_ns = r->now_ns, .u.bad = {.conn = conn, .error = err}});
}

void rig_bytes(struct rig *r, uint32_t conn, const uint8_t *bytes, size_t len)
{
    size_t at = 0;
    while (r->conns[conn].open) {
        struct pl_frame frame;
        struct pl_msg msg;
        struct pl_error err;
        enum pelago_status status = pl_frame_parse(bytes + at, len - at, &frame, &err);
        if (status == PELAGO_SHORT)
            return;
        if (status == PELAGO_OK)
            status = pl_msg_decode(frame.type, frame.payload, frame.payload_len, &msg, &err);
        if (status != PELAGO_OK) {
            bad_bytes(r, conn, &err);
            return;
        }
        at += frame.total;
        rig_step(r, &(struct pl_sync_event){
                        .kind = PL_SYNC_EV_MSG, .now_ns = r->now_ns, .u.msg = {.conn = conn, .msg = &msg}});
    }
}

void rig_send(struct rig *r, uint32_t conn, const struct pl_msg *msg)
{
    pl_assert(conn < RIG_CONNS && r->conns[conn].open);
    size_t cap = pl_frame_bytes(msg);
    uint8_t *bytes = zeroed(cap);
    rig_bytes(r, conn, bytes, pl_frame_encode(msg, bytes, cap));
    free(bytes);
}

void rig_advance_until(struct rig *r, uint64_t at_ns)
{
    while (pl_syncer_deadline(r->s) <= at_ns) {
        r->now_ns = pl_max64(r->now_ns, pl_syncer_deadline(r->s));
        rig_step(r, &(struct pl_sync_event){.kind = PL_SYNC_EV_TIMEOUT, .now_ns = r->now_ns});
    }
    r->now_ns = at_ns;
}

void rig_advance(struct rig *r, uint64_t ns)
{
    rig_advance_until(r, r->now_ns + ns);
}

/* ---- durability ---- */

size_t rig_save(const struct rig *r, uint8_t out[static RIG_SAVE_BYTES])
{
    return pl_syncer_save(r->s, out, RIG_SAVE_BYTES);
}

void rig_snapshot(struct rig *r)
{
    r->snapshot_len = rig_save(r, r->store->snapshot);
    r->record_count = 0;
}

uint32_t rig_record(const struct rig *r, uint32_t i, struct pl_record *out,
                    struct pl_contributor *contributors)
{
    struct pl_error err;
    pl_assert(i < r->record_count);
    pl_assert(pl_record_decode(r->store->record[i], r->store->record_len[i], out, contributors, RIG_PEERS,
                               &err) == PELAGO_OK);
    return out->contributor_count;
}

static void read_store(const struct rig *r, struct pl_syncer *s)
{
    struct pl_error err;
    struct pl_contributor contributors[RIG_PEERS];
    struct pl_record rec;
    if (r->snapshot_len > 0)
        pl_assert(pl_syncer_load(s, r->store->snapshot, r->snapshot_len, &err) == PELAGO_OK);
    for (uint32_t i = 0; i < r->record_count; i++) {
        rig_record(r, i, &rec, contributors);
        pl_assert(pl_syncer_replay(s, &rec, &err) == PELAGO_OK);
    }
    pl_syncer_check(s);
}

size_t rig_save_recovered(const struct rig *r, uint8_t out[static RIG_SAVE_BYTES])
{
    struct pl_syncer *s;
    void *memory = zeroed(r->memory_bytes);
    fresh_shard(r, memory, &s);
    read_store(r, s);
    size_t len = pl_syncer_save(s, out, RIG_SAVE_BYTES);
    free(memory);
    return len;
}

void rig_recover(struct rig *r)
{
    uint64_t published[RIG_FRAGMENTS];
    for (uint32_t f = 0; f < r->o.fragments; f++)
        published[f] = r->fragments[f].version;
    r->listening = r->finished = false;
    r->answers_len = 0;
    memset(r->pushes, 0, sizeof r->pushes);
    for (uint32_t c = 0; c < RIG_CONNS; c++)
        if (r->conns[c].open)
            gone(r, c);
    fresh_shard(r, r->memory, &r->s);
    read_store(r, r->s);
    for (uint32_t f = 0; f < r->o.fragments; f++) {
        if (!owned(r, f))
            continue;
        uint64_t digest, version = pl_syncer_version(r->s, f, &digest);
        pl_assert(version >= published[f] && version <= published[f] + 1); /* I4 */
        pl_assert(digest == rig_digest(f, version));
        r->fragments[f] = (struct rig_fragment){.version = version};
    }
    boot(r);
}
