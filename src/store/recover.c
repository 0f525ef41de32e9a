/* store/recover.c - pl_store_open: which files count, what is loaded and replayed, what is cut off.
 *
 * The order of things is the argument: nothing is changed in the directory before all that is needed has been read
 * and found good; then the names that were seen are made durable and a new journal file begins, and only when that is
 * durable do files go that it or a snapshot made useless.
 *
 * Torn or rotten? A record that is damaged although something written later says that it was durable (a mark or a
 * record behind it, the head of a newer file, a snapshot) is rot, and the store refuses to open. Damage that nobody
 * vouches for is the unfinished end of the journal and is cut off. Since a mark follows every sync, an acknowledged
 * record is vouched for at once; docs/journal.md names the one case that stays ambiguous.
 */
#include "store/store_int.h"

#include "base/check.h"
#include "base/num.h"

struct recovery {
    struct pl_store *store;
    const struct pl_store_reader *reader;
    struct pl_store_report *report;
    uint64_t base_seq;         /* what the snapshot covers; 0 without one */
    uint64_t base_link;        /* of that record */
    enum pelago_status unread; /* CORRUPT, or why a snapshot that may be good could not be read */
    struct pl_error unread_error;
    uint32_t start;      /* first file in the table that is needed */
    struct pl_scan last; /* of the newest file; open after a good replay, unless the store is fresh */
    struct pl_store_sight *sight; /* NULL: it is to be opened */
    uint64_t sight_at;
    uint64_t void_generations[PL_SEGMENTS_MAX]; /* superseded files, to be removed at the end */
    uint32_t void_count;
};

static enum pelago_status add_name(void *user, const char *name)
{
    struct pl_store *s = user;
    uint64_t number;
    if (pl_segment_name_parse(name, &number)) {
        if (s->segment_count == PL_SEGMENTS_MAX)
            return PELAGO_LIMIT;
        uint32_t i = s->segment_count++;
        for (; i > 0 && s->segments[i - 1].generation > number; i--)
            s->segments[i] = s->segments[i - 1];
        s->segments[i] = (struct pl_segment){.generation = number};
    } else if (pl_snapshot_name_parse(name, &number)) {
        if (s->snapshot_count == PL_SNAPSHOTS_MAX)
            return PELAGO_LIMIT;
        uint32_t i = s->snapshot_count++;
        for (; i > 0 && s->snapshots[i - 1].seq > number; i--)
            s->snapshots[i] = s->snapshots[i - 1];
        s->snapshots[i] = (struct pl_snapshot_slot){number, true};
    }
    return PELAGO_OK;
}

static struct pl_source source_of(const struct pl_store *s)
{
    return (struct pl_source){s->dir, s->options.run_id, s->scratch};
}

/* Reads the heads of all journal files. A damaged one is noted; whether that matters depends on the snapshot. */
static enum pelago_status read_heads(struct recovery *r, struct pl_error *err)
{
    struct pl_store *s = r->store;
    const struct pl_source source = source_of(s);
    for (uint32_t i = 0; i < s->segment_count; i++) {
        struct pl_segment *segment = &s->segments[i];
        struct pl_scan scan;
        struct pl_error why;
        enum pelago_status st = pl_scan_open(&scan, &source, segment->generation, &why);
        s->generation_next = segment->generation + 1;
        segment->bad = st == PELAGO_CORRUPT;
        if (segment->bad)
            continue;
        if (st != PELAGO_OK)
            return pl_fail(err, st, "%s", why.text);
        segment->first_seq = scan.header.first_seq;
        segment->bytes = scan.size;
        s->owner_epoch = pl_max64(s->owner_epoch, scan.header.owner_epoch);
        pl_scan_close(&scan);
    }
    return PELAGO_OK;
}

/* Takes superseded files out of the table: a newer one begins at or before their first record. A damaged file is
 * taken to hold the record before the good one after it, so that the table stays sorted and nobody removes it early. */
static void drop_void(struct recovery *r)
{
    struct pl_store *s = r->store;
    uint64_t first_after = PL_COUNT_MAX;
    uint32_t kept = PL_SEGMENTS_MAX;
    for (uint32_t i = s->segment_count; i > 0; i--) {
        struct pl_segment segment = s->segments[i - 1];
        if (segment.bad) {
            segment.first_seq = first_after - 1;
        } else if (segment.first_seq >= first_after) {
            r->void_generations[r->void_count++] = segment.generation;
            continue;
        } else {
            first_after = segment.first_seq;
        }
        s->segments[--kept] = segment;
    }
    s->segment_count = PL_SEGMENTS_MAX - kept;
    memmove(&s->segments[0], &s->segments[kept], s->segment_count * sizeof s->segments[0]);
}

/* Fills the store's tables from the directory. */
static enum pelago_status list_files(struct recovery *r, struct pl_error *err)
{
    struct pl_store *s = r->store;
    enum pelago_status st = s->dir.ops->list(s->dir.self, add_name, s);
    if (st == PELAGO_LIMIT)
        return pl_fail(err, st, "The directory has more than %u journal files or %u snapshots.",
                       (unsigned)PL_SEGMENTS_MAX, (unsigned)PL_SNAPSHOTS_MAX);
    if (st != PELAGO_OK)
        return pl_fail(err, st, "The directory cannot be listed: %s.", pl_status_text(st));
    PL_TRY(read_heads(r, err));
    drop_void(r);
    if (s->segment_count == 0 && s->snapshot_count > 0)
        return pl_fail(err, PELAGO_CORRUPT, "There are snapshots, but the journal is missing.");
    return PELAGO_OK;
}

/* Finds the newest snapshot that is whole. Damaged ones are passed over: an older one and more of the journal give
 * the same state. */
static enum pelago_status choose_snapshot(struct recovery *r, struct pl_error *err)
{
    struct pl_store *s = r->store;
    const struct pl_source source = source_of(s);
    for (uint32_t i = s->snapshot_count; i > 0; i--) {
        struct pl_snapshot_header h;
        struct pl_error why;
        enum pelago_status st = pl_snapshot_read(&source, s->snapshots[i - 1].seq, &h, NULL, NULL, &why);
        if (st == PELAGO_INVALID || st == PELAGO_UNSUPPORTED)
            return pl_fail(err, st, "%s", why.text);
        if (st == PELAGO_OK) {
            r->report->has_snapshot = true;
            r->base_seq = r->report->snapshot_seq = h.seq;
            r->base_link = h.link;
            return PELAGO_OK;
        }
        PL_MARK("store.snapshot_passed_over");
        s->snapshots[i - 1].good = false;
        if (st != PELAGO_CORRUPT) {
            r->unread = st;
            r->unread_error = why;
        }
        if (r->report->snapshots_bad++ == 0)
            r->report->snapshot_error = why;
    }
    return PELAGO_OK;
}

/* The newest file that begins at or before the first record wanted; all from there on must be good. */
static enum pelago_status find_start(struct recovery *r, struct pl_error *err)
{
    const struct pl_store *s = r->store;
    const struct pl_source source = source_of(s);
    uint32_t i = s->segment_count;
    while (i > 0 && (s->segments[i - 1].bad || s->segments[i - 1].first_seq > r->base_seq + 1)) {
        i--;
        if (s->segments[i].bad) {
            struct pl_scan scan;
            enum pelago_status st = pl_scan_open(&scan, &source, s->segments[i].generation, err);
            pl_scan_close(&scan);
            if (st == PELAGO_OK) /* PL_DEFENSIVE: it was damaged a moment ago */
                st = pl_fail(err, PELAGO_IO, "%s changed while it was read.", scan.name);
            return st;
        }
    }
    if (i == 0)
        return pl_fail(err, r->unread, "The journal begins with record %lu, but record %lu is needed.%s%s",
                       s->segments[0].first_seq, r->base_seq + 1, r->report->snapshots_bad > 0 ? " " : "",
                       r->report->snapshots_bad > 0 ? r->report->snapshot_error.text : "");
    r->start = i - 1;
    return PELAGO_OK;
}

/* The history of the journal and that of the snapshot must be the same. */
static enum pelago_status check_base(const struct recovery *r, const struct pl_scan *scan,
                                     struct pl_error *err)
{
    if (r->sight != NULL && scan->at.next_seq - 1 == r->sight_at) {
        r->sight->passed = true;
        r->sight->at_link = scan->at.link;
    }
    if (scan->at.next_seq - 1 == r->base_seq && scan->at.link != r->base_link)
        return pl_fail(err, PELAGO_CORRUPT, "%s continues another history than that of record %lu.",
                       scan->name, r->base_seq);
    return PELAGO_OK;
}

static enum pelago_status replay_one(struct recovery *r, const struct pl_scan *scan,
                                     const struct pl_store_record *record, struct pl_error *err)
{
    PL_TRY(check_base(r, scan, err));
    if (record->seq <= r->base_seq || r->sight != NULL)
        return PELAGO_OK;
    enum pelago_status st = r->reader->replay(r->reader->user, record);
    if (st != PELAGO_OK)
        return pl_fail(err, st, "%s: record %lu was refused: %s.", scan->name, record->seq,
                       pl_status_text(st));
    r->report->replayed++;
    return PELAGO_OK;
}

static enum pelago_status rotten(const struct pl_scan *scan, struct pl_error *err)
{
    return pl_fail(err, PELAGO_CORRUPT, "%s: record %lu at offset %lu was durable and is damaged.",
                   scan->name, scan->at.next_seq, scan->at.offset);
}

/* The scan can read no further. Fine for the newest file, when nobody says that there was more. */
static enum pelago_status check_tail(struct recovery *r, struct pl_scan *scan, uint64_t must_reach,
                                     struct pl_error *err)
{
    uint64_t proof;
    must_reach = pl_max64(must_reach, scan->durable_seq);
    if (scan->at.next_seq <= must_reach)
        return rotten(scan, err);
    if (scan->at.offset == scan->size)
        return PELAGO_OK;
    PL_TRY(pl_scan_proof(scan, &proof, err));
    if (scan->at.next_seq <= proof)
        return rotten(scan, err);
    PL_MARK("store.tail_cut");
    r->report->tail_bytes = scan->size - scan->at.offset;
    r->report->tail_seq = scan->at.next_seq;
    pl_fail(
        &r->report->tail_error, PELAGO_OK,
        "%s: cut off %lu bytes at offset %lu, where record %lu was not finished and not known to be durable.",
        scan->name, r->report->tail_bytes, scan->at.offset, scan->at.next_seq);
    return PELAGO_OK;
}

/* Reads a file up to the record before the next one begins; the newest up to its end. */
static enum pelago_status replay_file(struct recovery *r, struct pl_scan *scan, uint32_t index,
                                      struct pl_error *err)
{
    const struct pl_store *s = r->store;
    bool newest = index + 1 == s->segment_count;
    uint64_t last_seq = pl_store_segment_last(s, index);
    PL_TRY(check_base(r, scan, err));
    while (scan->at.next_seq <= last_seq) {
        enum pl_scan_result result;
        struct pl_store_record record;
        PL_TRY(pl_scan_next(scan, &result, &record, err));
        if (result == PL_SCAN_RECORD)
            PL_TRY(replay_one(r, scan, &record, err));
        else if (result != PL_SCAN_MARK)
            return check_tail(r, scan, newest ? r->base_seq : last_seq, err);
    }
    PL_TRY(pl_scan_skip_marks(scan, err));
    r->report->void_bytes += scan->size - scan->at.offset;
    return PELAGO_OK;
}

/* Leaves the newest file open in r->last. */
static enum pelago_status replay(struct recovery *r, struct pl_error *err)
{
    const struct pl_store *s = r->store;
    const struct pl_source source = source_of(s);
    for (uint32_t i = r->start; i < s->segment_count; i++) {
        uint64_t link = r->last.at.link;
        pl_scan_close(&r->last);
        PL_TRY(pl_scan_open(&r->last, &source, s->segments[i].generation, err));
        if (i > r->start && r->last.header.link != link)
            return pl_fail(err, PELAGO_CORRUPT, "%s does not continue the file before it, at record %lu.",
                           r->last.name, r->last.header.first_seq);
        PL_TRY(replay_file(r, &r->last, i, err));
    }
    return PELAGO_OK;
}

/* Chooses the newest good snapshot, loads it, and replays the journal from there. */
static enum pelago_status read_state(struct recovery *r, struct pl_error *err)
{
    struct pl_store *s = r->store;
    r->base_link = pl_link_start(s->options.run_id);
    r->report->fresh = s->segment_count == 0;
    if (r->report->fresh)
        return PELAGO_OK;
    PL_TRY(choose_snapshot(r, err));
    PL_TRY(find_start(r, err));
    if (r->report->has_snapshot && r->sight == NULL) {
        const struct pl_source source = source_of(s);
        struct pl_snapshot_header h;
        PL_TRY(pl_snapshot_read(&source, r->base_seq, &h, r->reader->load, r->reader->user, err));
    }
    return replay(r, err);
}

/* A snapshot that could not be read may be good, and nobody knows whether the journal's damage matters with it: it may be
 * a gap before that snapshot, between old files that could not be removed. So that is what is wrong, not the damage. */
static enum pelago_status blame_unread(const struct recovery *r, enum pelago_status st, struct pl_error *err)
{
    if (st == PELAGO_CORRUPT && r->unread != PELAGO_CORRUPT)
        return pl_fail(err, r->unread, "%s", r->unread_error.text);
    return st;
}

/* A file whose name is seen was whole and synced before it got that name, but the name itself may hang in the air: the
 * process before this one may have died between the rename and the sync of the directory. The next file must not have
 * its name first. Its head vouches for records that lie only in the files before it, so a power cut that kept the
 * newer name and lost the older one would leave a journal with a hole that somebody swears was never there. */
static enum pelago_status settle_names(const struct pl_store *s, struct pl_error *err)
{
    enum pelago_status st = s->dir.ops->sync_dir(s->dir.self);
    if (st != PELAGO_OK)
        return pl_fail(err, st, "The names in the directory cannot be made durable: %s.", pl_status_text(st));
    return PELAGO_OK;
}

/* Begins the new journal file and removes what nobody needs. */
static enum pelago_status begin_journal(struct recovery *r, struct pl_error *err)
{
    struct pl_store *s = r->store;
    s->owner_epoch++;
    if (r->report->fresh) {
        const struct pl_spot start = {0, 1, r->base_link};
        return pl_store_begin_segment(s, &start, NULL, 0, err);
    }
    struct pl_spot start = r->last.proven;
    uint64_t last_seq = r->last.at.next_seq - 1;
    pl_assert(last_seq >= r->base_seq);
    pl_assert(start.next_seq >= r->last.header.first_seq);
    pl_assert(start.next_seq <= last_seq + 1);
    if (pl_store_carry_whole(s, r->last.at.offset))
        start = (struct pl_spot){PL_SEGMENT_HEADER_BYTES, r->last.header.first_seq, r->last.header.link};
    r->report->carried = last_seq + 1 - start.next_seq;
    pl_scan_seek(&r->last, &start);
    PL_TRY(settle_names(s, err));
    PL_TRY(pl_store_begin_segment(s, &start, &r->last, last_seq, err));
    for (uint32_t i = 0; i < r->void_count; i++)
        pl_store_remove_segment_file(s, r->void_generations[i]);
    pl_store_prune(s);
    return PELAGO_OK;
}

static void note_spare(struct recovery *r, const struct pl_error *why)
{
    if (r->report->spares_bad++ == 0)
        r->report->spare_error = *why;
}

static enum pelago_status verify_segment(struct recovery *r, uint32_t index, struct pl_error *err)
{
    const struct pl_store *s = r->store;
    const struct pl_source source = source_of(s);
    enum pl_scan_result result = PL_SCAN_MARK;
    struct pl_store_record record;
    struct pl_scan scan;
    PL_TRY(pl_scan_open(&scan, &source, s->segments[index].generation, err));
    enum pelago_status st = PELAGO_OK;
    while (st == PELAGO_OK && scan.at.next_seq <= pl_store_segment_last(s, index)) {
        st = pl_scan_next(&scan, &result, &record, err);
        if (st == PELAGO_OK && result != PL_SCAN_MARK && result != PL_SCAN_RECORD)
            st = rotten(&scan, err);
    }
    if (st == PELAGO_OK)
        st = pl_scan_skip_marks(&scan, err);
    if (st == PELAGO_OK)
        r->report->void_bytes += scan.size - scan.at.offset;
    pl_scan_close(&scan);
    return st;
}

/* Reads what recovery did not need, for the report. */
static void verify_spares(struct recovery *r)
{
    const struct pl_store *s = r->store;
    const struct pl_source source = source_of(s);
    struct pl_error why;
    for (uint32_t i = 0; i + 1 < s->segment_count; i++)
        if ((s->segments[i].bad || s->segments[i].first_seq <= r->base_seq) &&
            verify_segment(r, i, &why) != PELAGO_OK)
            note_spare(r, &why);
    for (uint32_t i = 0; i < s->snapshot_count; i++) {
        struct pl_snapshot_header h;
        if (s->snapshots[i].seq < r->base_seq &&
            pl_snapshot_read(&source, s->snapshots[i].seq, &h, NULL, NULL, &why) != PELAGO_OK)
            note_spare(r, &why);
    }
}

static enum pelago_status check_options(const struct pl_store_options *o, struct pl_error *err)
{
    if (o->record_bytes_max > PL_RECORD_BYTES_MAX)
        return pl_fail(err, PELAGO_INVALID, "record_bytes_max is %lu; at most %lu is possible.",
                       o->record_bytes_max, (uint64_t)PL_RECORD_BYTES_MAX);
    if (o->scratch == NULL || o->scratch_bytes < pl_store_scratch_bytes(o->record_bytes_max))
        return pl_fail(err, PELAGO_INVALID, "The scratch memory has %lu bytes; %lu are needed.",
                       o->scratch == NULL ? 0 : (uint64_t)o->scratch_bytes,
                       (uint64_t)pl_store_scratch_bytes(o->record_bytes_max));
    if (o->segment_bytes == 0 || o->snapshot_after_bytes == 0)
        return pl_fail(err, PELAGO_INVALID, "segment_bytes and snapshot_after_bytes must not be 0.");
    return PELAGO_OK;
}

static void begin_reading(struct pl_store *s, struct pl_dir dir, const struct pl_store_options *options)
{
    *s = (struct pl_store){.dir = dir, .options = *options, .generation_next = 1};
    size_t reading = pl_store_scratch_bytes(options->record_bytes_max) - PL_BLOCK_MEMORY_BYTES;
    s->scratch = (struct pl_scratch){options->scratch, reading};
    s->block = (uint8_t *)options->scratch + reading;
}

enum pelago_status pl_store_open(struct pl_store *s, struct pl_dir dir,
                                 const struct pl_store_options *options, const struct pl_store_reader *reader,
                                 struct pl_store_report *report, struct pl_error *err)
{
    struct recovery r = {.store = s, .reader = reader, .report = report, .unread = PELAGO_CORRUPT};
    *report = (struct pl_store_report){0};
    PL_TRY(check_options(options, err));
    begin_reading(s, dir, options);
    dir.ops->remove(dir.self, PL_JOURNAL_TEMP);
    dir.ops->remove(dir.self, PL_SNAPSHOT_TEMP);
    enum pelago_status st = list_files(&r, err);
    if (st == PELAGO_OK)
        st = blame_unread(&r, read_state(&r, err), err);
    if (st == PELAGO_OK)
        st = begin_journal(&r, err);
    pl_scan_close(&r.last);
    if (st == PELAGO_OK && options->verify_all)
        verify_spares(&r);
    return st;
}

enum pelago_status pl_store_look(struct pl_store *s, struct pl_dir dir,
                                 const struct pl_store_options *options, uint64_t at,
                                 struct pl_store_sight *out, struct pl_error *err)
{
    struct pl_store_report report = {0};
    struct recovery r = {
        .store = s, .report = &report, .unread = PELAGO_CORRUPT, .sight = out, .sight_at = at};
    *out = (struct pl_store_sight){.fresh = false};
    PL_TRY(check_options(options, err));
    begin_reading(s, dir, options);
    enum pelago_status st = list_files(&r, err);
    if (st == PELAGO_OK)
        st = blame_unread(&r, read_state(&r, err), err);
    out->fresh = report.fresh;
    if (st == PELAGO_OK && !report.fresh) {
        out->last_seq = r.last.at.next_seq - 1;
        out->link = r.last.at.link;
    }
    pl_scan_close(&r.last);
    return st;
}
