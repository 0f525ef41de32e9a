/* store/store.c - the running store: appending, syncing, new files, snapshots, removal of old files.
 *
 * Every change of file goes through pl_store_begin_segment: a new file appears under its name only when it is
 * complete and durable, and its head then makes void whatever older files hold from its first record on. So a
 * failure at any moment leaves either the old end of the journal or the new one, and never a mixture.
 */
#include "store/store_int.h"

#include "base/check.h"
#include "base/num.h"

size_t pl_store_scratch_bytes(uint64_t record_bytes_max)
{
    pl_assert(record_bytes_max <= PL_RECORD_BYTES_MAX);
    uint64_t reading = pl_max64(pl_padded(record_bytes_max), PL_BLOCK_MEMORY_BYTES);
    return (size_t)reading + PL_BLOCK_MEMORY_BYTES;
}

uint64_t pl_store_last_seq(const struct pl_store *s)
{
    return s->journal.end.next_seq - 1;
}

uint64_t pl_store_durable_seq(const struct pl_store *s)
{
    return s->journal.durable.next_seq - 1;
}

enum pelago_status pl_store_failure(const struct pl_store *s)
{
    return s->failed;
}

uint64_t pl_store_segment_last(const struct pl_store *s, uint32_t index)
{
    return index + 1 < s->segment_count ? s->segments[index + 1].first_seq - 1 : PL_COUNT_MAX;
}

void pl_store_remove_segment_file(const struct pl_store *s, uint64_t generation)
{
    char name[PL_FILE_NAME_MAX];
    pl_segment_name(generation, name);
    s->dir.ops->remove(s->dir.self, name);
}

/* What always holds between two calls. */
static void check_journal(const struct pl_journal *j)
{
    pl_assert(j->file != NULL);
    pl_assert(j->begin.next_seq <= j->durable.next_seq);
    pl_assert(j->durable.next_seq <= j->end.next_seq);
    pl_assert(j->begin.offset <= j->durable.offset);
    pl_assert(j->durable.offset <= j->end.offset);
    pl_assert(j->end.offset % 8 == 0);
}

static void check_tables(const struct pl_store *s)
{
    pl_assert(s->segment_count > 0);
    for (uint32_t i = 1; i < s->segment_count; i++) {
        pl_assert(s->segments[i - 1].generation < s->segments[i].generation);
        pl_assert(s->segments[i - 1].first_seq <= s->segments[i].first_seq);
    }
    pl_assert(s->segments[s->segment_count - 1].generation == s->journal.generation);
    pl_assert(s->segments[s->segment_count - 1].first_seq == s->journal.begin.next_seq);
    pl_assert(s->journal.generation < s->generation_next);
    for (uint32_t i = 1; i < s->snapshot_count; i++)
        pl_assert(s->snapshots[i - 1].seq < s->snapshots[i].seq);
}

/* Stops the store until resume. */
static enum pelago_status stop(struct pl_store *s, enum pelago_status st)
{
    pl_assert(st != PELAGO_OK);
    s->failed = st;
    PL_MARK("store.stopped");
    return st;
}

static enum pelago_status check_running(const struct pl_store *s, struct pl_error *err)
{
    if (s->failed == PELAGO_OK)
        return PELAGO_OK;
    return pl_fail(err, s->failed, "The journal stopped after an earlier failure: %s.",
                   pl_status_text(s->failed));
}

/* Puts a published file into the table; the files it makes void go. */
static void adopt_segment(struct pl_store *s, const struct pl_journal *j)
{
    while (s->segment_count > 0 && s->segments[s->segment_count - 1].first_seq >= j->begin.next_seq)
        pl_store_remove_segment_file(s, s->segments[--s->segment_count].generation);
    pl_assert(s->segment_count < PL_SEGMENTS_MAX);
    s->segments[s->segment_count++] =
        (struct pl_segment){.generation = j->generation, .first_seq = j->begin.next_seq};
}

/* Copies the records up to last_seq, as they are, into the new file. */
static enum pelago_status carry_records(struct pl_journal *to, struct pl_scan *from, uint64_t last_seq,
                                        struct pl_error *err)
{
    while (to->end.next_seq <= last_seq) {
        enum pl_scan_result result;
        struct pl_store_record r;
        PL_TRY(pl_scan_next(from, &result, &r, err));
        if (result == PL_SCAN_END || result == PL_SCAN_DAMAGE)
            return pl_fail(err, PELAGO_IO, "%s: record %lu could be read once, but not again.", from->name,
                           to->end.next_seq);
        if (result == PL_SCAN_RECORD) {
            const struct pl_bytes part = {r.data, r.len};
            PL_TRY(pl_journal_append(to, r.type, &part, 1, r.len, err));
        }
    }
    return PELAGO_OK;
}

enum pelago_status pl_store_begin_segment(struct pl_store *s, const struct pl_spot *start,
                                          struct pl_scan *carry, uint64_t last_seq, struct pl_error *err)
{
    struct pl_journal next;
    if (s->generation_next >= PL_COUNT_MAX || s->owner_epoch >= PL_COUNT_MAX)
        return pl_fail(err, PELAGO_LIMIT, "The journal has no file numbers left.");
    struct pl_segment_header h = {.generation = s->generation_next++,
                                  .owner_epoch = s->owner_epoch,
                                  .first_seq = start->next_seq,
                                  .durable_seq = last_seq,
                                  .link = start->link};
    pl_assert(last_seq + 1 >= start->next_seq);
    memcpy(h.run_id, s->options.run_id, PL_RUN_ID_BYTES);
    PL_TRY(pl_journal_create(&next, s->dir, &h, err));
    enum pelago_status st = PELAGO_OK;
    if (carry != NULL)
        PL_TRY_TO(failed, st, carry_records(&next, carry, last_seq, err));
    pl_assert(next.end.next_seq == last_seq + 1);
    PL_TRY_TO(failed, st, pl_journal_sync(&next, err));
    PL_TRY_TO(failed, st, pl_journal_publish(&next, err));
    pl_journal_close(&s->journal);
    adopt_segment(s, &next);
    s->journal = next;
    check_journal(&s->journal);
    check_tables(s);
    return PELAGO_OK;
failed:
    /* If only the name could not be made durable, the file may come back after a power cut. That is harmless: it
     * holds nothing but durable history, and the next file will have a higher number. */
    pl_journal_close(&next);
    s->dir.ops->remove(s->dir.self, PL_JOURNAL_TEMP);
    pl_store_remove_segment_file(s, next.generation);
    return st;
}

enum pelago_status pl_store_sync(struct pl_store *s, struct pl_error *err)
{
    PL_TRY(check_running(s, err));
    if (s->journal.durable.next_seq == s->journal.end.next_seq)
        return PELAGO_OK;
    enum pelago_status st = pl_journal_sync(&s->journal, err);
    if (st != PELAGO_OK)
        return stop(s, st);
    /* The records are durable whatever becomes of the mark; only what follows needs resume. */
    st = pl_journal_mark(&s->journal, NULL);
    if (st != PELAGO_OK)
        stop(s, st);
    check_journal(&s->journal);
    return PELAGO_OK;
}

/* A new file for the records after the last, which is made durable first. */
static enum pelago_status rotate(struct pl_store *s, struct pl_error *err)
{
    PL_TRY(pl_store_sync(s, err));
    PL_TRY(check_running(s, err));
    const struct pl_spot start = s->journal.end;
    s->segments[s->segment_count - 1].bytes = start.offset;
    enum pelago_status st = pl_store_begin_segment(s, &start, NULL, start.next_seq - 1, err);
    return st == PELAGO_OK ? PELAGO_OK : stop(s, st);
}

/* Two entries of the table stay free: for the file of the next snapshot and of the next opening. */
static bool file_is_full(const struct pl_store *s)
{
    return s->journal.end.offset >= s->options.segment_bytes &&
           s->journal.end.next_seq > s->journal.begin.next_seq && s->segment_count + 2 < PL_SEGMENTS_MAX;
}

enum pelago_status pl_store_append(struct pl_store *s, uint32_t type, const struct pl_bytes *parts,
                                   size_t count, uint64_t *seq, struct pl_error *err)
{
    PL_TRY(check_running(s, err));
    if (count > PL_RECORD_PARTS_MAX)
        return pl_fail(err, PELAGO_INVALID, "A record of %lu parts; at most %u are possible.",
                       (uint64_t)count, (unsigned)PL_RECORD_PARTS_MAX);
    uint64_t len = 0;
    for (size_t i = 0; i < count; i++)
        len = pl_add_sat(len, parts[i].len);
    if (len > s->options.record_bytes_max)
        return pl_fail(err, PELAGO_LIMIT, "A record of %lu bytes; record_bytes_max is %lu.", len,
                       s->options.record_bytes_max);
    if (s->journal.end.next_seq >= PL_COUNT_MAX)
        return pl_fail(err, PELAGO_LIMIT, "The journal has no record numbers left.");
    if (file_is_full(s))
        PL_TRY(rotate(s, err));
    *seq = s->journal.end.next_seq;
    enum pelago_status st = pl_journal_append(&s->journal, type, parts, count, len, err);
    check_journal(&s->journal);
    return st == PELAGO_OK ? PELAGO_OK : stop(s, st);
}

bool pl_store_carry_whole(const struct pl_store *s, uint64_t bytes)
{
    return bytes <= s->options.segment_bytes / 4 || s->segment_count + 1 >= PL_SEGMENTS_MAX;
}

/* A scan of the journal's own file, which is open already. */
static enum pelago_status scan_journal(struct pl_store *s, struct pl_scan *scan, struct pl_error *err)
{
    const struct pl_journal *j = &s->journal;
    *scan = (struct pl_scan){.dir = s->dir,
                             .file = j->file,
                             .scratch = s->scratch,
                             .seed = j->seed,
                             .at = pl_store_carry_whole(s, j->end.offset) ? j->begin : j->durable,
                             .durable_seq = j->durable.next_seq - 1};
    memcpy(scan->name, j->name, sizeof scan->name);
    enum pelago_status st = s->dir.ops->size(s->dir.self, j->file, &scan->size);
    if (st != PELAGO_OK)
        return pl_fail(err, st, "%s: its size cannot be read: %s.", j->name, pl_status_text(st));
    if (scan->size < scan->at.offset)
        return pl_fail(err, PELAGO_CORRUPT, "%s lost durable bytes: it ends at offset %lu instead of %lu.",
                       j->name, scan->size, scan->at.offset);
    return PELAGO_OK;
}

enum pelago_status pl_store_resume(struct pl_store *s, struct pl_error *err)
{
    struct pl_scan scan;
    struct pl_store_record record;
    enum pl_scan_result result = PL_SCAN_MARK;
    if (s->failed == PELAGO_OK)
        return PELAGO_OK;
    PL_TRY(scan_journal(s, &scan, err));
    const struct pl_spot start = scan.at;
    /* Not beyond the end: a record whose append failed may lie there whole, but the caller was told otherwise. */
    while ((result == PL_SCAN_MARK || result == PL_SCAN_RECORD) && scan.at.next_seq < s->journal.end.next_seq)
        PL_TRY(pl_scan_next(&scan, &result, &record, err));
    uint64_t last_seq = scan.at.next_seq - 1;
    if (last_seq < pl_store_durable_seq(s))
        return pl_fail(err, PELAGO_CORRUPT, "%s: record %lu at offset %lu was durable and is damaged.",
                       s->journal.name, scan.at.next_seq, scan.at.offset);
    /* What is left of a failed write takes room on a full disk. If this fails, the new file still makes it void. */
    s->dir.ops->truncate(s->dir.self, s->journal.file, scan.at.offset);
    s->segments[s->segment_count - 1].bytes = scan.at.offset;
    pl_scan_seek(&scan, &start);
    PL_TRY(pl_store_begin_segment(s, &start, &scan, last_seq, err));
    s->failed = PELAGO_OK;
    PL_MARK("store.resumed");
    return PELAGO_OK;
}

enum pelago_status pl_store_close(struct pl_store *s, struct pl_error *err)
{
    pl_store_snapshot_abort(s);
    enum pelago_status st = pl_store_sync(s, err);
    /* Once more, so that the mark after the last record is durable, too. */
    if (st == PELAGO_OK && s->failed == PELAGO_OK && s->journal.end.offset != s->journal.durable.offset)
        st = pl_journal_sync(&s->journal, err);
    pl_journal_close(&s->journal);
    return st;
}

/* Keeps the table sorted; an entry of the same number is replaced. */
static void note_snapshot(struct pl_store *s, uint64_t seq, bool good)
{
    uint32_t i = s->snapshot_count;
    while (i > 0 && s->snapshots[i - 1].seq > seq)
        i--;
    if (i == 0 || s->snapshots[i - 1].seq != seq) {
        pl_assert(s->snapshot_count < PL_SNAPSHOTS_MAX);
        memmove(&s->snapshots[i + 1], &s->snapshots[i], (s->snapshot_count - i) * sizeof s->snapshots[0]);
        s->snapshot_count++;
        i++;
    }
    s->snapshots[i - 1] = (struct pl_snapshot_slot){seq, good};
}

static enum pelago_status check_snapshot(struct pl_store *s, const struct pl_section *sections,
                                         uint32_t count, struct pl_error *err)
{
    if (s->snapshot.file != NULL)
        return pl_fail(err, PELAGO_INVALID, "A snapshot is being written already.");
    if (count > PL_SECTIONS_MAX)
        return pl_fail(err, PELAGO_LIMIT, "A snapshot of %u sections; at most %u are possible.", count,
                       (unsigned)PL_SECTIONS_MAX);
    for (uint32_t i = 0; i < count; i++)
        if (sections[i].length > PL_SECTION_BYTES_MAX)
            return pl_fail(err, PELAGO_LIMIT,
                           "Section %u of the snapshot has %lu bytes, which is over the limit.", i,
                           sections[i].length);
    if (s->snapshot_count == PL_SNAPSHOTS_MAX)
        pl_store_prune(s);
    if (s->snapshot_count == PL_SNAPSHOTS_MAX)
        return pl_fail(err, PELAGO_LIMIT, "There are %u snapshots, and old ones cannot be removed.",
                       s->snapshot_count);
    return PELAGO_OK;
}

enum pelago_status pl_store_snapshot_begin(struct pl_store *s, const struct pl_section *sections,
                                           uint32_t count, struct pl_error *err)
{
    PL_TRY(check_running(s, err));
    PL_TRY(check_snapshot(s, sections, count, err));
    /* Snapshots end where a file ends, so that opening reads no file that holds only what the snapshot covers. */
    bool rotates = s->journal.end.next_seq > s->journal.begin.next_seq && s->segment_count < PL_SEGMENTS_MAX;
    PL_TRY(rotates ? rotate(s, err) : pl_store_sync(s, err));
    struct pl_snapshot_header h = {
        .seq = pl_store_last_seq(s), .link = s->journal.end.link, .section_count = count};
    memcpy(h.run_id, s->options.run_id, PL_RUN_ID_BYTES);
    pl_assert(pl_store_durable_seq(s) == h.seq); /* a snapshot never covers what a cut could take back */
    for (uint32_t i = 0; i < count; i++)
        h.sections[i] = (struct pl_section){.tag = sections[i].tag, .length = sections[i].length};
    return pl_snapshot_create(&s->snapshot, s->dir, &h, s->block, err);
}

void pl_store_snapshot_abort(struct pl_store *s)
{
    pl_snapshot_discard(&s->snapshot);
}

enum pelago_status pl_store_snapshot_write(struct pl_store *s, const void *data, size_t len,
                                           struct pl_error *err)
{
    if (s->snapshot.file == NULL)
        return pl_fail(err, PELAGO_INVALID, "No snapshot is being written.");
    enum pelago_status st = pl_snapshot_write(&s->snapshot, data, len, err);
    if (st != PELAGO_OK)
        pl_store_snapshot_abort(s);
    return st;
}

enum pelago_status pl_store_snapshot_flush(struct pl_store *s, struct pl_error *err)
{
    if (s->snapshot.file == NULL)
        return pl_fail(err, PELAGO_INVALID, "No snapshot is being written.");
    enum pelago_status st = s->dir.ops->sync(s->dir.self, s->snapshot.file);
    if (st == PELAGO_OK)
        return st;
    pl_store_snapshot_abort(s);
    return pl_fail(err, st, "The snapshot cannot be synced: %s.", pl_status_text(st));
}

enum pelago_status pl_store_snapshot_commit(struct pl_store *s, struct pl_error *err)
{
    char name[PL_FILE_NAME_MAX];
    uint64_t seq = s->snapshot.header.seq;
    if (s->snapshot.file == NULL)
        return pl_fail(err, PELAGO_INVALID, "No snapshot is being written.");
    enum pelago_status st = pl_snapshot_finish(&s->snapshot, err);
    if (st != PELAGO_OK) {
        pl_store_snapshot_abort(s);
        return st;
    }
    pl_snapshot_name(seq, name);
    st = s->dir.ops->rename(s->dir.self, PL_SNAPSHOT_TEMP, name);
    if (st == PELAGO_OK) {
        st = s->dir.ops->sync_dir(s->dir.self);
        note_snapshot(s, seq, st == PELAGO_OK);
    }
    pl_store_snapshot_abort(s); /* the temporary name is gone, or useless */
    if (st != PELAGO_OK)
        return pl_fail(err, st, "%s could not be given its name: %s.", name, pl_status_text(st));
    pl_store_prune(s);
    return PELAGO_OK;
}

/* The newest good snapshot with a number below this; false when there is none. */
static bool good_before(const struct pl_store *s, uint64_t before, uint64_t *seq)
{
    for (uint32_t i = s->snapshot_count; i > 0; i--) {
        if (s->snapshots[i - 1].good && s->snapshots[i - 1].seq < before) {
            *seq = s->snapshots[i - 1].seq;
            return true;
        }
    }
    return false;
}

/* Older than both kept ones, or damaged and replaced by a newer one. */
static void prune_snapshots(struct pl_store *s, uint64_t newest, uint64_t previous)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < s->snapshot_count; i++) {
        const struct pl_snapshot_slot slot = s->snapshots[i];
        bool wanted = slot.good ? slot.seq >= previous : slot.seq > newest;
        if (!wanted) {
            char name[PL_FILE_NAME_MAX];
            pl_snapshot_name(slot.seq, name);
            enum pelago_status st = s->dir.ops->remove(s->dir.self, name);
            wanted = st != PELAGO_OK && st != PELAGO_NOTFOUND;
        }
        if (wanted)
            s->snapshots[kept++] = slot;
    }
    s->snapshot_count = kept;
}

void pl_store_prune(struct pl_store *s)
{
    uint64_t newest;
    uint64_t previous;
    if (!good_before(s, UINT64_MAX, &newest))
        return;
    if (!good_before(s, newest, &previous))
        previous = 0; /* the empty state before record 1 is the older generation */
    prune_snapshots(s, newest, previous);
    uint32_t gone = 0;
    while (gone + 1 < s->segment_count && pl_store_segment_last(s, gone) <= previous)
        pl_store_remove_segment_file(s, s->segments[gone++].generation);
    memmove(&s->segments[0], &s->segments[gone], (s->segment_count - gone) * sizeof s->segments[0]);
    s->segment_count -= gone;
    check_tables(s);
}

bool pl_store_wants_snapshot(const struct pl_store *s)
{
    uint64_t newest = 0;
    uint64_t bytes = s->journal.end.offset - PL_SEGMENT_HEADER_BYTES;
    uint32_t files = 1;
    if (s->snapshot.file != NULL)
        return false;
    good_before(s, UINT64_MAX, &newest);
    for (uint32_t i = 0; i + 1 < s->segment_count; i++) {
        if (pl_store_segment_last(s, i) > newest) {
            bytes += s->segments[i].bytes;
            files++;
        }
    }
    return bytes >= s->options.snapshot_after_bytes || files > PL_SEGMENTS_MAX / 4;
}
