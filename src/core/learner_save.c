/* core/learner_save.c - the protocol's part of a learner's checkpoint, and the invariants of its state.
 *
 * All little-endian:
 *   8 bytes magic "PLLEARN1"
 *   u64 run_id, manifest_digest, steps, tokens, clock_tokens
 *   u32 units, then of each: u64 unit, cursor; none since the syncer is asked, but some in older ones
 *   u32 fragments, then of each: u64 version, digest, last_merged, base_steps, base_tokens
 *   u64 XXH3-64 of everything before
 * A pending push, an update on its way and the incarnation belong to the process and are not saved. Nor are work units: what was
 * trained of them since is reported, and much of it merged, so that whoever went on with them as they were would train on the same
 * text twice. The syncer knows how far they came and hands them out from there.
 */
#include "core/learner_int.h"

#include "base/bytes.h"
#include "base/hash.h"
#include "wire/chunk.h"

static const uint8_t magic[8] = {'P', 'L', 'L', 'E', 'A', 'R', 'N', '1'};

size_t pl_learner_save_bytes(const struct pl_learner *l)
{
    return sizeof magic + 5 * sizeof(uint64_t) + 4 + 4 + (size_t)l->fragment_count * 40 + 8;
}

size_t pl_learner_save(const struct pl_learner *l, uint8_t *out, size_t cap)
{
    pl_assert(l->ready);
    struct pl_writer w = pl_writer_of(out, cap);
    pl_write_bytes(&w, magic, sizeof magic);
    pl_write_u64(&w, l->run_id);
    pl_write_u64(&w, l->manifest_digest);
    pl_write_u64(&w, l->steps);
    pl_write_u64(&w, l->tokens);
    pl_write_u64(&w, l->clock_tokens);
    pl_write_u32(&w, 0);
    pl_write_u32(&w, l->fragment_count);
    for (uint32_t i = 0; i < l->fragment_count; i++) {
        const struct pl_learn_fragment *f = &l->fragments[i];
        pl_assert(f->update.state != PL_UPDATE_APPLYING); /* theta and version would not belong together */
        pl_write_u64(&w, f->version);
        pl_write_u64(&w, f->digest);
        pl_write_u64(&w, f->last_merged);
        pl_write_u64(&w, f->base_steps);
        pl_write_u64(&w, f->base_tokens);
    }
    pl_assert(!w.bad);
    pl_write_u64(&w, pl_hash64(out, pl_writer_len(&w), 0));
    pl_assert(!w.bad);
    pl_assert(pl_writer_len(&w) == pl_learner_save_bytes(l));
    return pl_writer_len(&w);
}

static enum pelago_status check_frame(const uint8_t *bytes, size_t len, struct pl_error *err)
{
    if (len < sizeof magic + 8 || memcmp(bytes, magic, sizeof magic) != 0)
        return pl_fail(err, PELAGO_CORRUPT, "the learner's state does not begin with PLLEARN1");
    if (pl_get_le(bytes + len - 8, 8) != pl_hash64(bytes, len - 8, 0))
        return pl_fail(err, PELAGO_CORRUPT, "the learner's state does not have the checksum it names");
    return PELAGO_OK;
}

static enum pelago_status load_run(struct pl_learner *l, struct pl_reader *r,
                                   const struct pl_msg_manifest *manifest, struct pl_error *err)
{
    uint64_t run_id = pl_read_u64(r);
    l->manifest_digest = pl_read_u64(r);
    l->steps = pl_read_u64(r);
    l->tokens = pl_read_u64(r);
    l->clock_tokens = pl_read_u64(r);
    if (run_id != manifest->run_id)
        return pl_fail(err, PELAGO_INVALID, "the learner's state is of run %lx, the manifest of run %lx",
                       run_id, manifest->run_id);
    if (l->manifest_digest == 0)
        return pl_fail(err, PELAGO_CORRUPT, "the learner's state names no manifest");
    if (l->steps > PL_COUNT_MAX || l->tokens > PL_COUNT_MAX || l->clock_tokens > PL_COUNT_MAX)
        return pl_fail(err, PELAGO_CORRUPT,
                       "the learner's state has steps, tokens or clock_tokens over the limit");
    return PELAGO_OK;
}

/* Those of an older checkpoint are passed over. */
static enum pelago_status skip_units(struct pl_reader *r, struct pl_error *err)
{
    uint32_t count = pl_read_u32(r);
    if (count > PL_UNITS_HELD_MAX)
        return pl_fail(err, PELAGO_CORRUPT, "the learner's state has %u work units, at most %u are expected",
                       (unsigned)count, (unsigned)PL_UNITS_HELD_MAX);
    for (uint32_t i = 0; i < 2 * count; i++)
        (void)pl_read_u64(r);
    return PELAGO_OK;
}

static enum pelago_status load_fragments(struct pl_learner *l, struct pl_reader *r, struct pl_error *err)
{
    uint32_t count = pl_read_u32(r);
    if (count != l->fragment_count)
        return pl_fail(err, PELAGO_INVALID, "the learner's state has %u fragments, the manifest %u",
                       (unsigned)count, (unsigned)l->fragment_count);
    for (uint32_t i = 0; i < count; i++) {
        struct pl_learn_fragment *f = &l->fragments[i];
        f->version = pl_read_u64(r);
        f->digest = pl_read_u64(r);
        f->last_merged = pl_read_u64(r);
        f->base_steps = pl_read_u64(r);
        f->base_tokens = pl_read_u64(r);
        if (f->version > PL_COUNT_MAX || f->base_steps > l->steps || f->base_tokens > l->tokens)
            return pl_fail(err, PELAGO_CORRUPT,
                           "fragment %u of the learner's state has a counter over the limit", (unsigned)i);
    }
    if (r->bad || pl_reader_left(r) != 0)
        return pl_fail(err, PELAGO_CORRUPT, "the learner's state has %s",
                       r->bad ? "too few bytes" : "bytes left over");
    return PELAGO_OK;
}

enum pelago_status pl_learner_load(struct pl_learner *l, const struct pl_msg_manifest *manifest,
                                   const uint8_t *bytes, size_t len, struct pl_error *err)
{
    pl_assert(!l->started);
    pl_assert(!l->ready);
    if (manifest->fragments.count > l->options.fragments_max)
        return pl_fail(err, PELAGO_LIMIT, "the manifest has %u fragments, this learner can take %u",
                       (unsigned)manifest->fragments.count, (unsigned)l->options.fragments_max);
    PL_TRY(check_frame(bytes, len, err));
    struct pl_reader r = pl_reader_of(bytes + sizeof magic, len - sizeof magic - 8);
    pl_learner_take_manifest(l, manifest);
    PL_TRY(load_run(l, &r, manifest, err));
    PL_TRY(skip_units(&r, err));
    PL_TRY(load_fragments(l, &r, err));
    l->ready = true;
    return PELAGO_OK;
}

static void check_session(const struct pl_learner *l, uint32_t shard)
{
    const struct pl_session *s = &l->sessions[shard];
    if (s->state != PL_SESSION_DOWN)
        pl_assert(pl_learner_dialable(l, shard));
    if (s->state != PL_SESSION_LIVE)
        pl_assert(s->bulk == PL_BULK_DOWN);
    if (s->state == PL_SESSION_LIVE) {
        pl_assert(l->ready);
        pl_assert(l->incarnation != 0);
        pl_assert(s->heartbeat_ns > 0);
    }
    if (s->manifest_due) {
        pl_assert(s->state == PL_SESSION_JOINING);
        pl_assert(l->manifest_digest == 0);
    }
    pl_assert((s->state == PL_SESSION_LIVE) == (s->control_retry.up_ns != PL_NEVER));
    pl_assert((s->bulk == PL_BULK_UP) == (s->bulk_retry.up_ns != PL_NEVER));
    pl_assert(s->heard_ns <= l->now_ns);
    pl_assert(s->sent_ns <= l->now_ns);
    pl_assert(s->pinged_ns <= l->now_ns);
}

/* Work is pushed on the version it was done on, and has one outcome. */
static void check_pending(const struct pl_learner *l, const struct pl_learn_fragment *f)
{
    const struct pl_pending *p = &f->pending;
    if (p->state == PL_PENDING_NONE)
        return;
    pl_assert(p->base_version == f->version);
    pl_assert(p->round != 0);
    pl_assert(p->round != f->last_merged);
    pl_assert(p->round != f->want_round);
    pl_assert(f->update.state != PL_UPDATE_APPLYING);
    if (p->state != PL_PENDING_READY)
        return;
    pl_assert(p->steps > f->base_steps);
    pl_assert(p->steps <= l->steps);
    pl_assert(p->tokens >= f->base_tokens);
    pl_assert(p->tokens <= l->tokens);
    pl_assert(p->bytes > 0);
    pl_assert(p->bytes <= f->push_bytes_max);
}

static void check_update(const struct pl_learn_fragment *f)
{
    const struct pl_incoming *u = &f->update;
    if (u->state == PL_UPDATE_NONE) {
        if (f->want_round != 0)
            pl_assert(f->want_base > f->version); /* nothing else keeps a PULL waiting */
        return;
    }
    if (u->from_version != PL_NONE64)
        pl_assert(u->from_version == f->version);
    if (!u->reset)
        pl_assert(u->to_version > f->version);
    pl_assert((u->mask & ~pl_chunk_all(u->bytes)) == 0);
    pl_assert((u->mask == pl_chunk_all(u->bytes)) == (u->state != PL_UPDATE_RECEIVING));
}

void pl_learner_check(const struct pl_learner *l)
{
    pl_assert(l->fragment_count <= l->options.fragments_max);
    pl_assert(l->shard_count <= PL_SHARDS_MAX);
    pl_assert(l->unit_count <= PL_UNITS_HELD_MAX);
    pl_assert(l->process_steps <= l->steps);
    pl_assert(l->process_tokens <= l->tokens);
    if (l->ready)
        pl_assert(l->manifest_digest != 0);
    if (l->want_sent)
        pl_assert(l->sessions[PL_SHARD_HOME].state == PL_SESSION_LIVE);
    for (uint32_t shard = 0; shard < l->shard_count; shard++)
        check_session(l, shard);
    for (uint32_t i = 0; i < l->fragment_count; i++) {
        const struct pl_learn_fragment *f = &l->fragments[i];
        pl_assert(f->shard < l->shard_count);
        pl_assert(f->base_steps <= l->steps);
        pl_assert(f->base_tokens <= l->tokens);
        pl_assert(f->round_min >= f->want_round);
        check_pending(l, f);
        check_update(f);
    }
}
