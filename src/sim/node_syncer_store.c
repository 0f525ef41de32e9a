/* sim/node_syncer_store.c - a shard's journal: records with their tensors, snapshots, recovery. See node_syncer.h.
 *
 *   record    u32 length of the core's part, the core's part (core/record.h);
 *             ROUND: u64 token clock when the merge began, f64 effective number of contributions, f64 share of the usual work, merged outer gradient (fp32), encoded update
 *   snapshot  section 1: the core's state; section 2: per fragment theta, momentum, broadcast (fp32);
 *             section 3: the update ring, per entry u32 fragment, u64 version, encoded update
 */
#include "sim/node_syncer.h"

#include "base/bits.h"
#include "base/check.h"
#include "base/hash.h"
#include "base/num.h"
#include "store/store.h"

#include <string.h>

enum {
    SECTION_CORE = 1,
    SECTION_VALUES,
    SECTION_RING,
    SECTIONS = 3,
    JOURNAL_BYTES_MIN = 32768,
    SEQ_BITS = 40
};
#define SEQ_MASK ((UINT64_C(1) << SEQ_BITS) - 1)

struct pl_vault {
    struct pl_store store;
    struct pl_store_options options;
    uint64_t resumed;    /* how often, in this life or before */
    size_t record_bytes; /* the largest core's part */
    uint8_t *record;     /* one encoded core's part */
    uint8_t *floats;     /* a fragment as bytes */
    struct pl_contributor *contributors;
    /* while recovering */
    struct pl_world *w;
    struct pl_snode *s;
    struct pl_buf section[SECTIONS];
    bool loaded;
    struct pl_error refused; /* what the core said about a record */
};

bool pl_snode_vault_init(struct pl_world *w, struct pl_snode *s)
{
    struct pl_vault *v = pl_world_zero(w, 1, sizeof *v);
    if (v == NULL)
        return false;
    uint64_t largest = w->objective->largest, model = (uint64_t)w->objective->values * 4;
    s->vault = v;
    v->w = w;
    v->s = s;
    v->record_bytes = pl_record_bytes_max(s->options.learners_max);
    v->options.record_bytes_max = 20 + v->record_bytes + 4 * largest + w->objective->update_bytes_max;
    v->options.snapshot_after_bytes = pl_max64(2 * model, JOURNAL_BYTES_MIN);
    v->options.segment_bytes = v->options.snapshot_after_bytes / 2;
    v->options.scratch_bytes = pl_store_scratch_bytes(v->options.record_bytes_max);
    pl_put_le(v->options.run_id, w->objective->manifest.run_id, 8);
    v->options.scratch = pl_world_zero(w, 1, v->options.scratch_bytes);
    v->record = pl_world_zero(w, 1, v->record_bytes);
    v->floats = pl_world_zero(w, largest, 4);
    v->contributors = pl_world_zero(w, s->options.learners_max, sizeof *v->contributors);
    for (uint32_t i = 0; i < SECTIONS; i++)
        pl_buf_init(&v->section[i], &w->alloc, UINT64_C(1) << 30);
    s->disk = pl_disk_new(&w->alloc, w->o.seed * 64 + s->shard);
    if (s->disk == NULL)
        w->status = PELAGO_NOMEM;
    return w->status == PELAGO_OK;
}

/* A disk that says NOMEM means this program, not the simulated one. */
static bool worked(struct pl_world *w, enum pelago_status status)
{
    if (status == PELAGO_NOMEM)
        w->status = PELAGO_NOMEM;
    return status == PELAGO_OK;
}

/* ---- records ---- */

/* Appends; 0 when the disk does not want to. A record that is asked for again because its sync failed may be durable
 * after all: then it stands there twice, which replay understands. */
static uint64_t append(struct pl_world *w, struct pl_snode *s, const struct pl_record *r)
{
    struct pl_vault *v = s->vault;
    struct pl_error err;
    uint8_t head[4];
    uint64_t seq = 0;
    size_t len = pl_record_encode(r, v->record, v->record_bytes);
    pl_put_le(head, len, 4);
    uint8_t note[24];
    struct pl_bytes parts[5] = {{head, sizeof head}, {v->record, len}};
    size_t count = 2;
    if (r->type == PL_RECORD_ROUND) {
        const struct pl_shard_fragment *f = pl_snode_fragment(s, r->fragment);
        pl_assert(f->staged.active && f->staged.round == r->round && f->staged.digest == r->digest);
        pl_put_le(note, f->staged.clock_tokens, 8);
        pl_put_le(note + 8, pl_double_bits(f->staged.effective), 8);
        pl_put_le(note + 16, pl_double_bits(f->staged.share), 8);
        parts[count++] = (struct pl_bytes){note, sizeof note};
        pl_sim_put_floats(v->floats, f->staged.delta, f->count);
        parts[count++] = (struct pl_bytes){v->floats, (size_t)f->count * 4};
        parts[count++] = (struct pl_bytes){f->staged.update, f->staged.update_bytes};
    }
    if (pl_store_failure(&v->store) != PELAGO_OK) {
        if (!worked(w, pl_store_resume(&v->store, &err)))
            return 0;
        v->resumed++; /* what was in doubt may be gone, and its number may be given again */
    }
    if (!worked(w, pl_store_append(&v->store, (uint32_t)r->type, parts, count, &seq, &err)))
        return 0;
    return seq;
}

/* arg: the core's number, with bit 63 for a ROUND; more: the store's number, 0 when it was not even written, and above
 * it how often the store was resumed by then. */
static void synced(struct pl_world *w, const struct pl_sim_ev *ev)
{
    struct pl_snode *s = &w->syncers[ev->who];
    struct pl_error err;
    if (s->life != ev->life)
        return;
    bool round = (ev->arg >> 63) != 0;
    uint64_t seq = ev->more & SEQ_MASK;
    bool durable = seq != 0 && ev->more >> SEQ_BITS == s->vault->resumed;
    if (durable && round && s->crash_at == PL_CRASH_BEFORE_STORE) {
        pl_snode_crash(w, s, true);
        return;
    }
    if (durable && pl_store_durable_seq(&s->vault->store) < seq)
        durable = worked(w, pl_store_sync(&s->vault->store, &err));
    if (durable && round && s->crash_at == PL_CRASH_AFTER_STORE) {
        pl_snode_crash(w, s, true);
        return;
    }
    s->stores_out--;
    pl_snode_step(w, s,
                  &(struct pl_sync_event){.kind = PL_SYNC_EV_STORED,
                                          .now_ns = w->now_ns,
                                          .u.stored = {.seq = ev->arg & INT64_MAX, .durable = durable}});
}

void pl_snode_store(struct pl_world *w, struct pl_snode *s, const struct pl_sync_effect *fx)
{
    const struct pl_record *r = fx->u.store.record;
    uint64_t seq = append(w, s, r);
    s->stores_out++;
    pl_world_at(w, &(struct pl_sim_ev){.at = w->now_ns + w->o.sync_ns,
                                       .fire = synced,
                                       .who = s->shard,
                                       .life = s->life,
                                       .arg = fx->u.store.seq | (uint64_t)(r->type == PL_RECORD_ROUND) << 63,
                                       .more = s->vault->resumed << SEQ_BITS | seq});
}

/* ---- snapshots ---- */

static bool fill_sections(struct pl_world *w, struct pl_snode *s)
{
    struct pl_vault *v = s->vault;
    size_t core = pl_syncer_save_bytes(s->core);
    for (uint32_t i = 0; i < SECTIONS; i++)
        v->section[i].len = 0;
    enum pelago_status status = pl_buf_reserve(&v->section[0], core);
    if (status == PELAGO_OK)
        v->section[0].len = pl_syncer_save(s->core, v->section[0].data, core);
    for (uint32_t i = 0; i < s->fragment_count && status == PELAGO_OK; i++) {
        const struct pl_shard_fragment *f = &s->fragments[i];
        const float *arrays[] = {f->theta, f->momentum, f->broadcast};
        for (uint32_t k = 0; k < 3 && status == PELAGO_OK; k++) {
            pl_sim_put_floats(v->floats, arrays[k], f->count);
            status = pl_buf_append(&v->section[1], v->floats, (size_t)f->count * 4);
        }
        for (uint32_t k = 0; k < PL_RING_MAX && status == PELAGO_OK; k++) {
            uint8_t head[12];
            if (f->ring[k].version == 0)
                continue;
            pl_put_le(head, f->number, 4);
            pl_put_le(head + 4, f->ring[k].version, 8);
            status = pl_buf_append(&v->section[2], head, sizeof head);
            if (status == PELAGO_OK)
                status = pl_buf_append(&v->section[2], f->ring[k].bytes, f->ring[k].size);
        }
    }
    return worked(w, status);
}

void pl_snode_snapshot(struct pl_world *w, struct pl_snode *s)
{
    struct pl_vault *v = s->vault;
    struct pl_error err;
    pl_checks_queue(w->checks, w->now_ns, "journal", pl_disk_used_bytes(s->disk),
                    16 * v->options.snapshot_after_bytes + (UINT64_C(1) << 20));
    if (!pl_store_wants_snapshot(&v->store) || pl_store_failure(&v->store) != PELAGO_OK ||
        !fill_sections(w, s))
        return;
    struct pl_section sections[SECTIONS];
    for (uint32_t i = 0; i < SECTIONS; i++)
        sections[i] = (struct pl_section){.tag = SECTION_CORE + i, .length = v->section[i].len};
    if (!worked(w, pl_store_snapshot_begin(&v->store, sections, SECTIONS, &err)))
        return;
    for (uint32_t i = 0; i < SECTIONS; i++)
        if (!worked(w, pl_store_snapshot_write(&v->store, v->section[i].data, v->section[i].len, &err)))
            return;
    worked(w, pl_store_snapshot_commit(&v->store, &err));
}

/* ---- recovery ---- */

static enum pelago_status load_piece(void *user, const struct pl_piece *piece)
{
    struct pl_vault *v = user;
    if (piece->tag < SECTION_CORE || piece->tag >= SECTION_CORE + SECTIONS)
        return PELAGO_CORRUPT;
    struct pl_buf *b = &v->section[piece->tag - SECTION_CORE];
    if (piece->offset == 0)
        b->len = 0;
    v->loaded = true;
    return pl_buf_append(b, piece->data, piece->len);
}

static enum pelago_status load_values(struct pl_snode *s, struct pl_vault *v)
{
    struct pl_reader values = pl_reader_of(v->section[1].data, v->section[1].len);
    for (uint32_t i = 0; i < s->fragment_count; i++) {
        struct pl_shard_fragment *f = &s->fragments[i];
        float *arrays[] = {f->theta, f->momentum, f->broadcast};
        uint64_t digest;
        f->version = pl_syncer_version(s->core, f->number, &digest);
        for (uint32_t k = 0; k < 3; k++) {
            const uint8_t *bytes = pl_read_bytes(&values, (size_t)f->count * 4);
            if (bytes == NULL)
                return PELAGO_CORRUPT;
            pl_sim_get_floats(arrays[k], bytes, f->count);
        }
    }
    return PELAGO_OK;
}

static enum pelago_status keep_update(struct pl_vault *v, struct pl_shard_fragment *f, uint64_t version,
                                      const uint8_t *bytes, size_t size)
{
    uint8_t *copy = pl_world_zero(v->w, 1, size);
    if (copy == NULL)
        return PELAGO_NOMEM;
    memcpy(copy, bytes, size);
    pl_snode_set_ring(v->w, f, version, copy, (uint32_t)size);
    return PELAGO_OK;
}

static enum pelago_status load_ring(struct pl_snode *s, struct pl_vault *v)
{
    const struct pl_objective *o = v->w->objective;
    struct pl_reader r = pl_reader_of(v->section[2].data, v->section[2].len);
    while (pl_reader_left(&r) > 0) {
        uint32_t number = pl_read_u32(&r);
        uint64_t version = pl_read_u64(&r);
        if (r.bad || number >= o->fragments)
            return PELAGO_CORRUPT;
        struct pl_shard_fragment *f = pl_snode_fragment(s, number);
        size_t left = pl_reader_left(&r), size = o->ops->update_bytes(o->self, number, r.at, left);
        const uint8_t *bytes = pl_read_bytes(&r, size);
        if (bytes == NULL || size == 0)
            return PELAGO_CORRUPT;
        PL_TRY(keep_update(v, f, version, bytes, size));
    }
    return PELAGO_OK;
}

/* The snapshot is complete when the first record comes, or the end. */
static enum pelago_status finish_load(struct pl_vault *v)
{
    if (!v->loaded)
        return PELAGO_OK;
    v->loaded = false;
    PL_TRY(pl_syncer_load(v->s->core, v->section[0].data, v->section[0].len, &v->refused));
    PL_TRY(load_values(v->s, v));
    return load_ring(v->s, v);
}

/* The same arithmetic as when the round was merged, from what was written down. */
static enum pelago_status replay_round(struct pl_vault *v, const struct pl_record *r, struct pl_reader *rest)
{
    const struct pl_objective *o = v->w->objective;
    struct pl_shard_fragment *f = pl_snode_fragment(v->s, r->fragment);
    uint64_t clock_tokens = pl_read_u64(rest);
    double effective = pl_bits_double(pl_read_u64(rest));
    double share = pl_bits_double(pl_read_u64(rest));
    const uint8_t *delta = pl_read_bytes(rest, (size_t)f->count * 4);
    size_t size = pl_reader_left(rest);
    const uint8_t *update = pl_read_bytes(rest, size);
    if (delta == NULL || update == NULL || size == 0 || !(share >= 0 && share <= 1))
        return PELAGO_CORRUPT;
    if (r->version <= f->version)
        return PELAGO_OK; /* written twice: its first sync failed and yet reached the disk */
    float *scratch = f->staged.delta;
    pl_sim_get_floats(scratch, delta, f->count);
    const struct pl_outer_move move = pl_snode_outer(o, r->version, clock_tokens, share);
    pl_outer_step(&move, scratch, f->count, f->momentum, f->theta);
    if (!o->ops->add_update(o->self, f->number, update, size, f->broadcast))
        return PELAGO_CORRUPT;
    f->version = r->version;
    pl_rule_remember(&f->past, effective);
    if (pl_sim_digest(f->broadcast, f->count) != r->digest)
        return PELAGO_CORRUPT;
    return keep_update(v, f, r->version, update, size);
}

static enum pelago_status replay_record(void *user, const struct pl_store_record *stored)
{
    struct pl_vault *v = user;
    struct pl_record record;
    PL_TRY(finish_load(v));
    struct pl_reader rest = pl_reader_of(stored->data, stored->len);
    uint32_t len = pl_read_u32(&rest);
    const uint8_t *core = pl_read_bytes(&rest, len);
    if (core == NULL)
        return PELAGO_CORRUPT;
    PL_TRY(pl_record_decode(core, len, &record, v->contributors, v->s->options.learners_max, &v->refused));
    if (record.type == PL_RECORD_ROUND)
        PL_TRY(replay_round(v, &record, &rest));
    pl_checks_replayed(v->w->checks, v->s->shard, v->w->now_ns, &record);
    return pl_syncer_replay(v->s->core, &record, &v->refused);
}

bool pl_snode_recover(struct pl_world *w, struct pl_snode *s)
{
    struct pl_vault *v = s->vault;
    struct pl_store_reader reader = {load_piece, replay_record, v};
    struct pl_store_report report;
    struct pl_error err = {PELAGO_OK, ""};
    v->loaded = false;
    v->refused.text[0] = '\0';
    enum pelago_status status =
        pl_store_open(&v->store, pl_disk_dir(s->disk), &v->options, &reader, &report, &err);
    if (status == PELAGO_OK)
        status = finish_load(v);
    if (status == PELAGO_CORRUPT || status == PELAGO_INVALID || status == PELAGO_LIMIT) {
        pl_world_fail(w, PL_SIM_CORRECTNESS, "recovery of syncer %lu: %s", (uint64_t)s->shard,
                      v->refused.text[0] != '\0' ? v->refused.text : err.text);
        return false;
    }
    return worked(w, status);
}
