/* host/syncer_recover.c - a shard's journal read back: the newest snapshot, then every record after it, with the same
 * arithmetic as when they were made. Formats: syncer_vault.h.
 *
 * Every round's digest is compared: what was announced comes back bit for bit, or the start is refused.
 */
#include "host/syncer_vault.h"

#include "base/check.h"
#include "base/fmt.h"
#include "base/num.h"

#include <math.h>
#include <string.h>

/* ---- the snapshot ---- */

/* The fragment whose values come i-th; NULL: the snapshot names none there. What is named twice or left out does not have
 * the digest of its version (finish_load). */
static const struct pl_shard_fragment *fragment_at(const struct pl_syncer_host *h, uint32_t i)
{
    const struct pl_buf *order = &h->vault->section[PL_SECTION_ORDER - PL_SECTION_CORE];
    if (order->len == 0)
        return &h->fragments[i];
    uint64_t place =
        order->len == (size_t)h->fragment_count * 4 ? pl_get_le(order->data + (size_t)i * 4, 4) : UINT64_MAX;
    return place < h->fragment_count ? &h->fragments[place] : NULL;
}

/* Values go straight to their places; the other sections are short and are kept until all is there. */
static enum pelago_status load_values(struct pl_syncer_host *h, const struct pl_piece *piece)
{
    uint64_t at = 0, from = piece->offset, to = piece->offset + piece->len;
    for (uint32_t i = 0; i < h->fragment_count; i++) {
        const struct pl_shard_fragment *f = fragment_at(h, i);
        if (f == NULL)
            return PELAGO_CORRUPT;
        float *arrays[3] = {f->values->theta, f->values->momentum, f->values->broadcast};
        const uint64_t bytes = f->count * sizeof(float);
        for (uint32_t k = 0; k < 3; k++, at += bytes) {
            uint64_t first = pl_max64(at, from), last = pl_min64(at + bytes, to);
            if (first < last)
                memcpy((uint8_t *)arrays[k] + (first - at), piece->data + (first - from), last - first);
        }
    }
    return piece->section_length == at ? PELAGO_OK : PELAGO_CORRUPT;
}

static enum pelago_status load_piece(void *user, const struct pl_piece *piece)
{
    struct pl_syncer_host *h = user;
    struct pl_vault *v = h->vault;
    v->loaded = true;
    if (piece->tag == PL_SECTION_VALUES)
        return load_values(h, piece);
    if (piece->tag < PL_SECTION_CORE || piece->tag >= PL_SECTION_CORE + PL_VAULT_SECTIONS)
        return PELAGO_CORRUPT;
    return pl_buf_append(&v->section[piece->tag - PL_SECTION_CORE], piece->data, piece->len);
}

/* The snapshot is complete when the first record comes, or the end. */
static enum pelago_status finish_load(struct pl_syncer_host *h)
{
    struct pl_vault *v = h->vault;
    const struct pl_buf *core = &v->section[0],
                        *counters = &v->section[PL_SECTION_COUNTERS - PL_SECTION_CORE],
                        *rule = &v->section[PL_SECTION_RULE - PL_SECTION_CORE];
    if (!v->loaded) /* nor was it before: the journal begins at version 0 */
        return h->has_values || pl_origin_fill(h) ? PELAGO_OK : PELAGO_NOMEM;
    v->loaded = false;
    h->has_values = true;
    if (counters->len != PL_VAULT_COUNTERS_BYTES)
        return PELAGO_CORRUPT;
    PL_TRY(pl_trust_load(h, rule->data, rule->len));
    PL_TRY(pl_syncer_load(h->core, core->data, core->len, &v->refused));
    if (h->recorder != NULL)
        pl_recorder_load(h->recorder, core->data, core->len);
    h->value_tokens_lo = pl_get_le(counters->data, 8);
    h->value_tokens_hi = pl_get_le(counters->data + 8, 8);
    for (uint32_t i = 0; i < h->fragment_count; i++) {
        struct pl_shard_fragment *f = &h->fragments[i];
        uint64_t digest;
        f->version = pl_syncer_version(h->core, f->number, &digest);
        if (pl_values_digest(f->values->broadcast, f->count) != digest)
            return pl_fail(&v->refused, PELAGO_CORRUPT,
                           "fragment %u of the snapshot does not have the digest of its version", f->number);
    }
    return PELAGO_OK;
}

/* ---- rounds ---- */

/* A round as the journal has it. */
struct round {
    struct pl_shard_fragment *f;
    uint64_t theta_digest;
    struct pl_round_note note;
    uint32_t part_count;
    const uint8_t *parts[PL_SYNC_CONTRIBUTIONS];
    const uint8_t *delta;
    const uint8_t *update; /* with its length */
    uint32_t update_len;
};

/* Everything in it is a number that anything may follow from but a crash. */
static enum pelago_status read_note(struct pl_syncer_host *h, const struct pl_record *r,
                                    struct pl_reader *rest, struct round *out)
{
    struct pl_round_note *n = &out->note;
    uint64_t clock = pl_read_u64(rest);
    double effective = pl_bits_double(pl_read_u64(rest));
    if (pl_read_u32(rest) != r->contributor_count || !pl_rule_effective_fits(effective, r->contributor_count))
        return PELAGO_CORRUPT;
    if (!pl_note_init(n, &h->alloc, r->contributor_count))
        return PELAGO_NOMEM;
    n->clock_tokens = clock;
    n->effective = effective;
    for (uint32_t i = 0; i < n->count; i++) {
        float sample = pl_bits_float(pl_read_u32(rest));
        uint8_t flags = pl_read_u8(rest);
        n->opinions[i] = (struct pl_opinion){.identity = r->contributors[i].identity,
                                             .sample = sample,
                                             .out = (flags & 1) != 0,
                                             .fresh = (flags & 2) != 0};
        n->closing = (flags & 4) != 0;
        if (flags > 7 || (!isnan(sample) && !(fabsf(sample) <= 2)))
            return PELAGO_CORRUPT;
    }
    return PELAGO_OK;
}

static uint32_t merged_count(const struct pl_round_note *n)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < n->count; i++)
        count += n->opinions[i].out ? 0 : 1;
    return count;
}

static enum pelago_status read_round(struct pl_syncer_host *h, const struct pl_record *r,
                                     struct pl_reader *rest, struct round *out)
{
    if (r->fragment >= h->layout.fragment_count || h->layout.fragments[r->fragment].shard != h->options.shard)
        return PELAGO_CORRUPT;
    out->f = pl_shost_fragment(h, r->fragment);
    out->theta_digest = pl_read_u64(rest);
    PL_TRY(read_note(h, r, rest, out));
    out->part_count = pl_read_u32(rest);
    if (out->part_count > PL_SYNC_CONTRIBUTIONS ||
        (out->part_count != 0 && out->part_count != merged_count(&out->note)))
        return PELAGO_CORRUPT;
    for (uint32_t i = 0; i < out->part_count; i++)
        out->parts[i] = pl_read_bytes(rest, out->f->push_bytes);
    if (out->part_count == 0)
        out->delta = pl_read_bytes(rest, out->f->count * sizeof(float));
    out->update_len = (uint32_t)pl_reader_left(rest);
    out->update = pl_read_bytes(rest, out->update_len);
    if (rest->bad || out->update_len < 4 || pl_get_le(out->update, 4) != out->update_len - 4)
        return PELAGO_CORRUPT;
    for (uint32_t i = 0; i < out->part_count; i++)
        if (!pl_layout_check(&h->layout, out->f->number, h->settings.up, out->parts[i]))
            return PELAGO_CORRUPT;
    return PELAGO_OK;
}

static bool redo(struct pl_syncer_host *h, const struct pl_record *r, const struct round *x,
                 struct pl_values *result)
{
    struct pl_vault *v = h->vault;
    uint64_t tokens[PL_SYNC_CONTRIBUTIONS], steps[PL_SYNC_CONTRIBUTIONS];
    bool fresh[PL_SYNC_CONTRIBUTIONS];
    uint32_t at = 0;
    uint64_t merged_tokens = 0;
    double effective = 0;
    for (uint32_t i = 0; i < r->contributor_count; i++) {
        merged_tokens += r->contributors[i].tokens;
        if (x->part_count == 0 || x->note.opinions[i].out)
            continue;
        fresh[at] = x->note.opinions[i].fresh;
        tokens[at] = r->contributors[i].tokens;
        steps[at++] = r->contributors[i].steps;
    }
    pl_assert(at == x->part_count);
    struct pl_round_work work = {.layout = &h->layout,
                                 .settings = &h->settings,
                                 .alloc = &h->alloc,
                                 .pool = h->pool,
                                 .fragment = x->f->number,
                                 .count = x->f->count,
                                 .contributor_count = x->part_count,
                                 .parts = x->parts,
                                 .tokens = tokens,
                                 .steps = steps,
                                 .fresh = fresh,
                                 .version = r->version,
                                 .clock_tokens = x->note.clock_tokens,
                                 .merged_tokens = merged_tokens,
                                 .closing = x->note.closing,
                                 .past = &x->f->past,
                                 .base = x->f->values,
                                 .delta = v->delta,
                                 .result = result};
    if (x->part_count == 0)
        memcpy(v->delta, x->delta, x->f->count * sizeof(float));
    else if (!pl_merge_parts(&work, &effective))
        return false;
    pl_merge_outer(&work);
    if (pl_unpack(v->packer, x->update + 4, x->update_len - 4, v->encoded, x->f->update_bytes, NULL) !=
            PELAGO_OK ||
        !pl_layout_check(&h->layout, x->f->number, h->settings.down, v->encoded))
        return false;
    pl_merge_apply_update(&work, v->encoded);
    return pl_values_digest(result->broadcast, result->count) == r->digest &&
           pl_values_digest(result->theta, result->count) == x->theta_digest;
}

static enum pelago_status apply_round(struct pl_syncer_host *h, const struct pl_record *r,
                                      const struct round *x)
{
    if (r->version <= x->f->version)
        return PELAGO_OK; /* written twice: its first sync failed and yet reached the disk */
    struct pl_values *result = pl_shost_take_values(h, x->f->count);
    struct pl_shared *update = pl_shared_new(&h->alloc, x->update_len);
    if (result == NULL || update == NULL || r->version != x->f->version + 1 || !redo(h, r, x, result)) {
        pl_values_drop(result, &h->alloc);
        pl_shared_drop(update, &h->alloc);
        return pl_fail(&h->vault->refused, PELAGO_CORRUPT,
                       "version %lu of fragment %u cannot be made again from the journal with the same bits",
                       r->version, r->fragment);
    }
    memcpy(update->bytes, x->update, x->update_len);
    pl_shost_retire_values(h, x->f->values);
    x->f->values = result;
    x->f->version = r->version;
    x->f->renewed = ++h->renewals;
    pl_shost_set_ring(h, x->f, r->version, update);
    pl_trust_remember(h, x->f, &x->note);
    uint64_t tokens = 0;
    for (uint32_t i = 0; i < r->contributor_count; i++)
        tokens += r->contributors[i].tokens;
    pl_shost_count_tokens(h, tokens, x->f->count);
    return PELAGO_OK;
}

static enum pelago_status replay_round(struct pl_syncer_host *h, const struct pl_record *r,
                                       struct pl_reader *rest)
{
    struct round x = {.part_count = 0};
    enum pelago_status st = read_round(h, r, rest, &x);
    if (st == PELAGO_OK)
        st = apply_round(h, r, &x);
    pl_note_release(&x.note, &h->alloc);
    return st;
}

static enum pelago_status replay_record(void *user, const struct pl_store_record *stored)
{
    struct pl_syncer_host *h = user;
    struct pl_vault *v = h->vault;
    struct pl_record record;
    PL_TRY(finish_load(h));
    struct pl_reader rest = pl_reader_of(stored->data, stored->len);
    uint32_t len = pl_read_u32(&rest);
    const uint8_t *core = pl_read_bytes(&rest, len);
    if (core == NULL)
        return PELAGO_CORRUPT;
    PL_TRY(pl_record_decode(core, len, &record, v->contributors, h->options.learners_max, &v->refused));
    if (record.type == PL_RECORD_ROUND)
        PL_TRY(replay_round(h, &record, &rest));
    if (h->recorder != NULL)
        pl_recorder_replay(h->recorder, core, len);
    return pl_syncer_replay(h->core, &record, &v->refused);
}

/* ---- the folders ---- */

static bool is_journal(const char *name)
{
    uint64_t number;
    return pl_segment_name_parse(name, &number) || pl_snapshot_name_parse(name, &number);
}

static enum pelago_status see_journal(void *user, const char *name)
{
    *(bool *)user = *(bool *)user || is_journal(name);
    return PELAGO_OK;
}

/* The mirror becomes what our folder is: so that must be good, and the mirror no further in the same history. A mirror that is
 * damaged is worth less than that. */
static enum pelago_status compare_mirror(struct pl_syncer_host *h, struct pl_dir own, struct pl_dir second,
                                         struct pl_error *err)
{
    struct pl_vault *v = h->vault;
    struct pl_store_sight ours, theirs;
    struct pl_error why;
    enum pelago_status st = pl_store_look(&v->store, second, &v->options, 0, &theirs, &why);
    if (st == PELAGO_CORRUPT)
        pl_shost_log(h, "mirror.damaged %s: it is filled anew", why.text);
    else if (st != PELAGO_OK)
        return pl_fail(err, st, "the journal in the mirror %s cannot be used: %s", h->mirror_path, why.text);
    bool known = st == PELAGO_OK && !theirs.fresh;
    st = pl_store_look(&v->store, own, &v->options, known ? theirs.last_seq : 0, &ours, &why);
    if (st != PELAGO_OK)
        return pl_fail(err, st, "the journal in %s cannot be used: %s The mirror is as it was: --dir %s",
                       h->folder, why.text, h->mirror_path);
    if (known && (theirs.last_seq > ours.last_seq || (ours.passed && ours.at_link != theirs.link)))
        return pl_fail(
            err, PELAGO_INVALID,
            "the mirror %s has what %s lacks: start with --dir %s, or give --mirror another folder",
            h->mirror_path, h->folder, h->mirror_path);
    return PELAGO_OK;
}

static enum pelago_status prepare_mirror(struct pl_syncer_host *h, struct pl_dir own, struct pl_dir second,
                                         struct pl_error *err)
{
    struct pl_vault *v = h->vault;
    bool here = false, there = false;
    enum pelago_status st = own.ops->list(own.self, see_journal, &here);
    if (st == PELAGO_OK)
        st = second.ops->list(second.self, see_journal, &there);
    if (st != PELAGO_OK)
        return pl_fail(err, st, "the journals in %s and %s cannot be listed", h->folder, h->mirror_path);
    if (there && !here)
        return pl_fail(
            err, PELAGO_INVALID,
            "the mirror has a journal and %s has none: start the syncer with the mirror as its folder",
            h->folder);
    if (there)
        PL_TRY(compare_mirror(h, own, second, err));
    st = pl_dir_mirror_fill(own, second, is_journal, v->options.scratch, v->options.scratch_bytes, err);
    if (st != PELAGO_OK && strcmp(pl_posix_dir_reason(h->mirror_dir), "") != 0)
        return pl_fail(err, st, "the mirror %s cannot be filled: %s%s", h->mirror_path,
                       pl_posix_dir_reason(h->mirror_dir), pl_posix_dir_advice(h->mirror_dir));
    return st;
}

static enum pelago_status open_dir(struct pl_syncer_host *h, struct pl_error *err)
{
    struct pl_vault *v = h->vault;
    struct pl_dir own = pl_posix_dir_table(h->journal_dir);
    v->dir = own;
    if (h->mirror_dir == NULL)
        return PELAGO_OK;
    struct pl_dir second = pl_posix_dir_table(h->mirror_dir);
    PL_TRY(prepare_mirror(h, own, second, err));
    pl_dir_mirror_init(&v->mirror, own, second);
    v->dir = pl_dir_mirror_table(&v->mirror);
    return PELAGO_OK;
}

static bool scratch_new(struct pl_syncer_host *h)
{
    struct pl_vault *v = h->vault;
    v->encoded_bytes = 0;
    for (uint32_t i = 0; i < h->fragment_count; i++)
        v->encoded_bytes = pl_max64(v->encoded_bytes, h->fragments[i].update_bytes);
    v->packer = pl_packer_new(&h->alloc);
    v->delta = h->alloc.resize(h->alloc.user, NULL, 0, h->layout.largest * sizeof(float));
    v->encoded = h->alloc.resize(h->alloc.user, NULL, 0, v->encoded_bytes);
    return v->packer != NULL && v->delta != NULL && v->encoded != NULL;
}

static void scratch_free(struct pl_syncer_host *h)
{
    struct pl_vault *v = h->vault;
    pl_packer_free(v->packer);
    pl_alloc_free(&h->alloc, v->delta, h->layout.largest * sizeof(float));
    pl_alloc_free(&h->alloc, v->encoded, v->encoded_bytes);
    v->packer = NULL;
    v->delta = NULL;
    v->encoded = NULL;
    for (uint32_t i = 0; i < PL_VAULT_SECTIONS; i++)
        pl_buf_release(&v->section[i]);
}

static void tell(struct pl_syncer_host *h, const struct pl_store_report *r)
{
    if (r->replayed > 0 || r->has_snapshot)
        pl_shost_log(h, "journal.read snapshot=%lu records=%lu", r->snapshot_seq, r->replayed);
    if (r->snapshots_bad > 0)
        pl_shost_log(h, "journal.damaged snapshots=%u: %s; an older one was used", r->snapshots_bad,
                     r->snapshot_error.text);
    if (r->tail_bytes > 0)
        pl_shost_log(h, "journal.cut bytes=%lu record=%lu: an unfinished write, never announced",
                     r->tail_bytes, r->tail_seq);
}

static enum pelago_status open_store(struct pl_syncer_host *h, struct pl_error *err)
{
    struct pl_vault *v = h->vault;
    struct pl_store_reader reader = {load_piece, replay_record, h};
    struct pl_store_report report;
    struct pl_error why = {.status = PELAGO_OK};
    enum pelago_status st = pl_store_open(&v->store, v->dir, &v->options, &reader, &report, &why);
    v->open = st == PELAGO_OK;
    if (st == PELAGO_OK)
        st = finish_load(h);
    if (st == PELAGO_OK && report.fresh && !h->creating)
        return pl_fail(err, PELAGO_CORRUPT,
                       "%s has a run's settings but no journal; restore it, or start from the mirror",
                       h->folder);
    if (st != PELAGO_OK)
        return pl_fail(err, st, "the journal in %s cannot be used: %s", h->folder,
                       v->refused.text[0] != '\0' ? v->refused.text : why.text);
    v->trusted_seq = pl_store_last_seq(&v->store);
    tell(h, &report);
    return PELAGO_OK;
}

enum pelago_status pl_vault_recover(struct pl_syncer_host *h, struct pl_error *err)
{
    PL_TRY(open_dir(h, err));
    enum pelago_status st = scratch_new(h)
                                ? open_store(h, err)
                                : pl_fail(err, PELAGO_NOMEM, "there is no memory to read the journal");
    scratch_free(h);
    for (uint32_t i = 0; st == PELAGO_OK && i < h->fragment_count; i++) {
        struct pl_shard_fragment *f = &h->fragments[i];
        pl_guard_measure(&h->layout, f->number, f->values->theta, f->own);
    }
    return st;
}
