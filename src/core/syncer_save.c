/* core/syncer_save.c - durable state: what a snapshot holds, and how journal records move it on.
 *
 * Save writes the state as of the last STORED event; records asked for but not yet stored are not in it. Layout:
 *   u32 magic, u32 format, u64 run, u64 manifest digest, u32 shard, u8 flags (1 done, 2 some identity was forgotten)
 *   u64 epoch, tick, clock, forgotten tokens, next_unit, u32 fragments, learners, units
 *   fragments: u64 version, digest
 *   learners:  u64 identity, incarnation, seen_tokens, past_tokens, fragments x u64 last_merged   (by identity)
 *   units:     u64 unit, cursor, identity of the owner (0 none)   (of each learner, in the order given; then the free)
 * The ring of encoded updates is not part of it: after a restart a learner that is behind the snapshot gets the
 * whole value.
 */
#include "core/syncer_int.h"

#include "base/bytes.h"
#include "base/check.h"

enum { SAVE_MAGIC = 0x53594e43, SAVE_FORMAT = 1 };
enum { SAVED_DONE = 1, SAVED_FORGOT = 2 };
enum {
    FIXED_BYTES = 4 + 4 + 8 + 8 + 4 + 1 + 5 * 8 + 3 * 4,
    FRAGMENT_BYTES = 16,
    LEARNER_BYTES = 32,
    UNIT_BYTES = 24
};

/* A finished unit may still be waiting for its record; it is open no more. */
static bool is_open(const struct pl_syncer *s, const struct open_unit *u)
{
    return u->unit != PL_NONE64 && u->cursor < s->manifest->unit_tokens;
}

static uint32_t open_units(const struct pl_syncer *s)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->units_max; i++)
        n += is_open(s, &s->units[i]) ? 1 : 0;
    return n;
}

size_t pl_syncer_save_bytes(const struct pl_syncer *s)
{
    return FIXED_BYTES + (size_t)s->fragment_count * FRAGMENT_BYTES +
           (size_t)s->known * (LEARNER_BYTES + 8 * (size_t)s->fragment_count) +
           (size_t)open_units(s) * UNIT_BYTES;
}

static void save_learner(const struct pl_syncer *s, uint32_t m, struct pl_writer *w)
{
    const struct learner *l = &s->learners[m];
    pl_write_u64(w, l->identity);
    pl_write_u64(w, l->incarnation);
    pl_write_u64(w, l->tokens);
    pl_write_u64(w, l->past_tokens);
    for (uint32_t f = 0; f < s->fragment_count; f++)
        pl_write_u64(w, cell_of(s, m, f)->last_merged);
}

static void save_unit(const struct pl_syncer *s, const struct open_unit *u, uint64_t identity,
                      struct pl_writer *w)
{
    if (!is_open(s, u))
        return;
    pl_write_u64(w, u->unit);
    pl_write_u64(w, u->cursor);
    pl_write_u64(w, identity);
}

/* In the order they were given, which load takes from the order it finds. */
static void save_units_of(const struct pl_syncer *s, uint32_t m, struct pl_writer *w)
{
    uint64_t after = 0;
    for (;;) {
        const struct open_unit *next = NULL;
        for (uint32_t i = 0; i < PL_UNITS_HELD_MAX; i++) {
            uint32_t at = s->learners[m].units[i];
            if (at != PL_NONE32 && s->units[at].given > after &&
                (next == NULL || s->units[at].given < next->given))
                next = &s->units[at];
        }
        if (next == NULL)
            return;
        save_unit(s, next, s->learners[m].identity, w);
        after = next->given;
    }
}

size_t pl_syncer_save(const struct pl_syncer *s, uint8_t *out, size_t cap)
{
    struct pl_writer w = pl_writer_of(out, cap);
    pl_write_u32(&w, SAVE_MAGIC);
    pl_write_u32(&w, SAVE_FORMAT);
    pl_write_u64(&w, s->manifest->run_id);
    pl_write_u64(&w, s->manifest_digest);
    pl_write_u32(&w, s->shard);
    pl_write_u8(&w, (uint8_t)((s->phase == PL_PHASE_DONE ? SAVED_DONE : 0) | (s->forgot ? SAVED_FORGOT : 0)));
    pl_write_u64(&w, s->epoch);
    pl_write_u64(&w, s->tick);
    pl_write_u64(&w, pl_sync_clock(s));
    pl_write_u64(&w, s->forgotten_tokens);
    pl_write_u64(&w, s->next_unit);
    pl_write_u32(&w, s->fragment_count);
    pl_write_u32(&w, s->known);
    pl_write_u32(&w, open_units(s));
    for (uint32_t f = 0; f < s->fragment_count; f++) {
        pl_write_u64(&w, s->fragments[f].version);
        pl_write_u64(&w, s->fragments[f].digest);
    }
    for (uint32_t i = 0; i < s->known; i++)
        save_learner(s, s->by_identity[i], &w);
    for (uint32_t i = 0; i < s->known; i++)
        save_units_of(s, s->by_identity[i], &w);
    for (uint32_t i = 0; i < s->units_max; i++)
        if (s->units[i].owner == PL_NONE32)
            save_unit(s, &s->units[i], 0, &w);
    pl_assert(!w.bad && pl_writer_len(&w) == pl_syncer_save_bytes(s));
    return pl_writer_len(&w);
}

/* ---- load ---- */

static enum pelago_status load_head(const struct pl_syncer *s, struct pl_reader *rd, struct pl_error *err)
{
    uint32_t magic = pl_read_u32(rd), format = pl_read_u32(rd);
    if (magic != SAVE_MAGIC || format != SAVE_FORMAT)
        return pl_fail(err, PELAGO_CORRUPT, "the snapshot is not a syncer's state of format %u",
                       (unsigned)SAVE_FORMAT);
    uint64_t run = pl_read_u64(rd);
    if (run != s->manifest->run_id)
        return pl_fail(err, PELAGO_INVALID, "the snapshot belongs to run %lx, this is run %lx", run,
                       s->manifest->run_id);
    if (pl_read_u64(rd) != s->manifest_digest)
        return pl_fail(err, PELAGO_INVALID, "the snapshot was made with another manifest of run %lx", run);
    uint32_t shard = pl_read_u32(rd);
    if (shard != s->shard)
        return pl_fail(err, PELAGO_INVALID, "the snapshot is of shard %u, this is shard %u", (unsigned)shard,
                       (unsigned)s->shard);
    return PELAGO_OK;
}

static enum pelago_status load_learner(struct pl_syncer *s, struct pl_reader *rd, struct pl_error *err)
{
    uint64_t identity = pl_read_u64(rd);
    uint32_t known = s->known;
    uint32_t m = identity != 0 ? pl_sync_slot_for(s, identity, NULL) : PL_NONE32;
    if (m == PL_NONE32 || s->known == known)
        return pl_fail(err, PELAGO_CORRUPT, "the snapshot names identity %lx twice, or none, or too many",
                       identity);
    struct learner *l = &s->learners[m];
    l->incarnation = pl_read_u64(rd);
    l->tokens = pl_read_u64(rd);
    l->past_tokens = pl_read_u64(rd);
    s->clock_sum = pl_add_sat(s->clock_sum, learner_tokens(l));
    for (uint32_t f = 0; f < s->fragment_count; f++)
        cell_of(s, m, f)->last_merged = pl_read_u64(rd);
    return PELAGO_OK;
}

static uint32_t slot_known(struct pl_syncer *s, uint64_t identity)
{
    for (uint32_t i = 0; i < s->known; i++)
        if (s->learners[s->by_identity[i]].identity == identity)
            return s->by_identity[i];
    return PL_NONE32;
}

static enum pelago_status load_unit(struct pl_syncer *s, struct pl_reader *rd, struct pl_error *err)
{
    uint64_t unit = pl_read_u64(rd);
    struct open_unit *u = pl_sync_unit_room(s);
    if (u == NULL || unit >= s->next_unit || pl_sync_unit_find(s, unit) != NULL)
        return pl_fail(err, PELAGO_CORRUPT,
                       "the snapshot names work unit %lu twice, or too early, or too many", unit);
    *u = (struct open_unit){.unit = unit, .owner = PL_NONE32};
    u->cursor = pl_read_u64(rd);
    if (u->cursor >= s->manifest->unit_tokens)
        return pl_fail(err, PELAGO_CORRUPT, "the snapshot has cursor %lu in an open work unit of %lu tokens",
                       u->cursor, s->manifest->unit_tokens);
    u->recorded = pl_read_u64(rd);
    uint32_t m = slot_known(s, u->recorded);
    if (m != PL_NONE32)
        pl_sync_unit_own(s, u, m);
    return PELAGO_OK;
}

enum pelago_status pl_syncer_load(struct pl_syncer *s, const uint8_t *bytes, size_t len, struct pl_error *err)
{
    struct pl_reader rd = pl_reader_of(bytes, len);
    pl_assert(s->epoch == 0 && s->known == 0);
    PL_TRY(load_head(s, &rd, err));
    uint8_t flags = pl_read_u8(&rd);
    s->phase = (flags & SAVED_DONE) != 0 ? PL_PHASE_DONE : PL_PHASE_RUNNING;
    s->forgot = (flags & SAVED_FORGOT) != 0;
    s->epoch = pl_read_u64(&rd);
    s->tick = pl_read_u64(&rd);
    s->clock_floor = pl_read_u64(&rd);
    s->clock_sum = s->forgotten_tokens = pl_read_u64(&rd);
    s->next_unit = pl_read_u64(&rd);
    uint32_t fragments = pl_read_u32(&rd), learners = pl_read_u32(&rd), units = pl_read_u32(&rd);
    if (fragments != s->fragment_count || learners > s->learners_max || units > s->units_max)
        return pl_fail(
            err, PELAGO_INVALID, "the snapshot has %u fragments and %u learners, %u and at most %u fit",
            (unsigned)fragments, (unsigned)learners, (unsigned)s->fragment_count, (unsigned)s->learners_max);
    for (uint32_t f = 0; f < fragments; f++) {
        s->fragments[f].version = pl_read_u64(&rd);
        s->fragments[f].digest = pl_read_u64(&rd);
    }
    for (uint32_t i = 0; i < learners && !rd.bad; i++)
        PL_TRY(load_learner(s, &rd, err));
    for (uint32_t i = 0; i < units && !rd.bad; i++)
        PL_TRY(load_unit(s, &rd, err));
    if (rd.bad || pl_reader_left(&rd) != 0)
        return pl_fail(err, PELAGO_CORRUPT, "the snapshot's state has %lu bytes, which do not fit it",
                       (uint64_t)len);
    return PELAGO_OK;
}

/* ---- replay ---- */

static void sum_tokens(struct pl_syncer *s)
{
    s->clock_sum = s->forgotten_tokens;
    for (uint32_t i = 0; i < s->known; i++)
        s->clock_sum = pl_add_sat(s->clock_sum, counted_tokens(&s->learners[s->by_identity[i]]));
}

static enum pelago_status replay_contributor(struct pl_syncer *s, uint32_t f, const struct pl_record *r,
                                             const struct pl_contributor *c, struct pl_error *err)
{
    uint32_t m = pl_sync_slot_for(s, c->identity, NULL);
    if (c->identity == 0 || m == PL_NONE32)
        return pl_fail(err, PELAGO_CORRUPT, "a round record names identity %lx, for which there is no room",
                       c->identity);
    struct learner *l = &s->learners[m];
    l->incarnation = c->incarnation;
    l->tokens = c->seen_tokens;
    l->past_tokens = c->past_tokens;
    l->heard_ns = s->replayed;
    if (!pl_mutant(15))
        cell_of(s, m, f)->last_merged = r->round;
    cell_of(s, m, f)->stranger = 0;
    if (is_home(s))
        pl_sync_unit_progress(s, m, c->unit, c->cursor);
    return PELAGO_OK;
}

static enum pelago_status replay_round(struct pl_syncer *s, const struct pl_record *r, struct pl_error *err)
{
    uint32_t f = r->fragment < s->manifest->fragments.count ? s->local_of[r->fragment] : PL_NONE32;
    if (f == PL_NONE32)
        return pl_fail(err, PELAGO_CORRUPT, "a round record is of fragment %u, which shard %u does not own",
                       (unsigned)r->fragment, (unsigned)s->shard);
    struct fragment *fr = &s->fragments[f];
    /* Written again, with a later clock, because the first sync failed; and yet the first one reached the disk. */
    bool again = r->version == fr->version && r->digest == fr->digest;
    if (r->version != fr->version + 1 && !again)
        return pl_fail(err, PELAGO_CORRUPT, "a round record leads fragment %u to version %lu, %lu is next",
                       (unsigned)r->fragment, r->version, fr->version + 1);
    /* Should the table be full, who was merged longest ago makes room, and nobody of this very round. */
    s->replayed++;
    for (uint32_t i = 0; i < r->contributor_count; i++) {
        uint32_t m = slot_known(s, r->contributors[i].identity);
        if (m != PL_NONE32)
            s->learners[m].heard_ns = s->replayed;
    }
    for (uint32_t i = 0; i < r->contributor_count; i++)
        PL_TRY(replay_contributor(s, f, r, &r->contributors[i], err));
    sum_tokens(s);
    if (again)
        return PELAGO_OK;
    pl_sync_ring_add(fr, r->update_bytes, fr->digest);
    fr->version = r->version;
    fr->digest = r->digest;
    return PELAGO_OK;
}

static enum pelago_status replay_lease(struct pl_syncer *s, const struct pl_record *r, struct pl_error *err)
{
    if (r->unit == PL_NONE64 || r->cursor > s->manifest->unit_tokens)
        return pl_fail(err, PELAGO_CORRUPT,
                       "a lease record has work unit %lu and cursor %lu, at most %lu is expected", r->unit,
                       r->cursor, s->manifest->unit_tokens);
    struct open_unit *u = pl_sync_unit_find(s, r->unit);
    if (u != NULL && u->owner != PL_NONE32)
        pl_sync_unit_disown(s, u);
    s->next_unit = pl_max64(s->next_unit, r->unit + 1);
    if (r->cursor == s->manifest->unit_tokens) {
        if (u != NULL)
            u->unit = PL_NONE64; /* finished */
        return PELAGO_OK;
    }
    if (u == NULL)
        u = pl_sync_unit_room(s);
    if (u == NULL)
        return pl_fail(err, PELAGO_CORRUPT, "a lease record names work unit %lu, for which there is no room",
                       r->unit);
    *u =
        (struct open_unit){.unit = r->unit, .cursor = r->cursor, .owner = PL_NONE32, .recorded = r->identity};
    uint32_t m = r->identity != 0 ? pl_sync_slot_for(s, r->identity, NULL) : PL_NONE32;
    if (m != PL_NONE32)
        pl_sync_unit_own(s, u, m);
    return PELAGO_OK;
}

enum pelago_status pl_syncer_replay(struct pl_syncer *s, const struct pl_record *r, struct pl_error *err)
{
    pl_assert(!s->listening);
    if (r->epoch < s->epoch)
        return pl_fail(err, PELAGO_CORRUPT, "a record of epoch %lu follows one of epoch %lu", r->epoch,
                       s->epoch);
    switch (r->type) {
    case PL_RECORD_ROUND:
        PL_TRY(replay_round(s, r, err));
        break;
    case PL_RECORD_LEASE:
        PL_TRY(replay_lease(s, r, err));
        break;
    case PL_RECORD_DONE:
        s->phase = PL_PHASE_DONE;
        break;
    case PL_RECORD_BOOT:
        break;
    }
    s->epoch = r->epoch;
    s->tick = pl_max64(s->tick, r->tick);
    if (!pl_mutant(17))
        s->clock_floor = pl_max64(s->clock_floor, r->clock_tokens);
    return PELAGO_OK;
}
