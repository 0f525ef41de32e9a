/* store/journal.c - see journal.h; the layout is in format.c and docs/journal.md. */
#include "store/journal.h"

#include "base/check.h"
#include "base/hash.h"
#include "base/num.h"

static enum pelago_status scan_read(struct pl_scan *s, uint64_t offset, void *into, size_t len,
                                    struct pl_error *err)
{
    pl_assert(offset <= s->size);
    pl_assert(len <= s->size - offset);
    enum pelago_status st = s->dir.ops->read_at(s->dir.self, s->file, offset, into, len);
    if (st != PELAGO_OK)
        return pl_fail(err, st == PELAGO_SHORT ? PELAGO_IO : st,
                       "%s: reading %lu bytes at offset %lu failed: %s.", s->name, (uint64_t)len, offset,
                       pl_status_text(st));
    return PELAGO_OK;
}

static enum pelago_status scan_head(struct pl_scan *s, const uint8_t run_id[static PL_RUN_ID_BYTES],
                                    uint64_t generation, struct pl_error *err)
{
    uint8_t head[PL_SEGMENT_HEADER_BYTES];
    enum pelago_status st = s->dir.ops->size(s->dir.self, s->file, &s->size);
    if (st != PELAGO_OK)
        return pl_fail(err, st, "%s: its size cannot be read: %s.", s->name, pl_status_text(st));
    if (s->size < sizeof head)
        return pl_fail(err, PELAGO_CORRUPT, "%s has %lu bytes, too few for its header.", s->name, s->size);
    PL_TRY(scan_read(s, 0, head, sizeof head, err));
    PL_TRY(pl_segment_header_get(head, s->name, &s->header, err));
    if (memcmp(s->header.run_id, run_id, PL_RUN_ID_BYTES) != 0)
        return pl_fail(err, PELAGO_INVALID, "%s belongs to another run.", s->name);
    if (s->header.generation != generation)
        return pl_fail(err, PELAGO_CORRUPT, "%s says that it is file %lx; it was renamed.", s->name,
                       s->header.generation);
    return PELAGO_OK;
}

enum pelago_status pl_scan_open(struct pl_scan *s, const struct pl_source *from, uint64_t generation,
                                struct pl_error *err)
{
    const struct pl_dir dir = from->dir;
    *s = (struct pl_scan){.dir = dir, .scratch = from->scratch};
    pl_segment_name(generation, s->name);
    enum pelago_status st = dir.ops->open(dir.self, s->name, PL_FILE_READ, &s->file);
    if (st != PELAGO_OK)
        return pl_fail(err, st, "%s cannot be opened: %s.", s->name, pl_status_text(st));
    st = scan_head(s, from->run_id, generation, err);
    if (st != PELAGO_OK) {
        pl_scan_close(s);
        return st;
    }
    s->seed = pl_segment_seed(from->run_id, generation);
    s->durable_seq = s->header.durable_seq;
    s->at = (struct pl_spot){PL_SEGMENT_HEADER_BYTES, s->header.first_seq, s->header.link};
    s->proven = s->at;
    return PELAGO_OK;
}

void pl_scan_close(struct pl_scan *s)
{
    if (s->file != NULL)
        s->dir.ops->close(s->dir.self, s->file);
    s->file = NULL;
}

void pl_scan_seek(struct pl_scan *s, const struct pl_spot *spot)
{
    pl_assert(spot->offset <= s->size);
    s->at = *spot;
}

/* Is this intact head the one that belongs here, and is there room for what it announces? */
static bool head_fits(const struct pl_scan *s, const struct pl_record_header *h)
{
    if (h->link != s->at.link)
        return false;
    if (h->mark)
        return h->seq == s->at.next_seq - 1 && h->durable_seq == h->seq && h->length == 0;
    return h->seq == s->at.next_seq && h->seq < PL_COUNT_MAX && h->durable_seq < h->seq &&
           h->length <= PL_RECORD_BYTES_MAX &&
           pl_padded(h->length) <= s->size - s->at.offset - PL_RECORD_HEADER_BYTES;
}

static void advance(struct pl_scan *s, const struct pl_record_header *h)
{
    s->at.offset += PL_RECORD_HEADER_BYTES;
    if (!h->mark) {
        s->at.offset += pl_padded(h->length);
        s->at.link = pl_link_next(h);
        s->at.next_seq++;
    }
    s->durable_seq = pl_max64(s->durable_seq, h->durable_seq);
    if (s->durable_seq >= s->at.next_seq - 1)
        s->proven = s->at;
}

/* The head at this place; false: there is none that belongs here. */
static enum pelago_status next_head(struct pl_scan *s, struct pl_record_header *h, bool *fits,
                                    struct pl_error *err)
{
    uint8_t head[PL_RECORD_HEADER_BYTES];
    *fits = false;
    if (s->size - s->at.offset < sizeof head)
        return PELAGO_OK;
    PL_TRY(scan_read(s, s->at.offset, head, sizeof head, err));
    *fits = pl_record_header_get(head, s->seed, h) && head_fits(s, h);
    return PELAGO_OK;
}

enum pelago_status pl_scan_skip_marks(struct pl_scan *s, struct pl_error *err)
{
    for (;;) {
        struct pl_record_header h;
        bool fits;
        PL_TRY(next_head(s, &h, &fits, err));
        if (!fits || !h.mark)
            return PELAGO_OK;
        advance(s, &h);
    }
}

enum pelago_status pl_scan_next(struct pl_scan *s, enum pl_scan_result *result,
                                struct pl_store_record *record, struct pl_error *err)
{
    struct pl_record_header h;
    bool fits;
    *result = s->at.offset == s->size ? PL_SCAN_END : PL_SCAN_DAMAGE;
    PL_TRY(next_head(s, &h, &fits, err));
    if (!fits)
        return PELAGO_OK;
    if (h.mark) {
        *result = PL_SCAN_MARK;
        advance(s, &h);
        return PELAGO_OK;
    }
    uint64_t padded = pl_padded(h.length);
    if (padded > s->scratch.len)
        return pl_fail(err, PELAGO_LIMIT, "%s: record %lu has %lu bytes, more than record_bytes_max allows.",
                       s->name, h.seq, h.length);
    PL_TRY(scan_read(s, s->at.offset + PL_RECORD_HEADER_BYTES, s->scratch.bytes, (size_t)padded, err));
    if (pl_hash64(s->scratch.bytes, (size_t)padded, 0) != h.payload_hash)
        return PELAGO_OK;
    *result = PL_SCAN_RECORD;
    *record = (struct pl_store_record){h.seq, h.type, s->scratch.bytes, (size_t)h.length};
    advance(s, &h);
    return PELAGO_OK;
}

enum pelago_status pl_scan_proof(struct pl_scan *s, uint64_t *durable_seq, struct pl_error *err)
{
    struct pl_record_header h;
    *durable_seq = 0;
    uint64_t offset = s->at.offset; /* heads lie at multiples of eight, and so does this */
    while (s->size - offset >= PL_RECORD_HEADER_BYTES) {
        size_t chunk = (size_t)pl_min64(s->scratch.len, s->size - offset);
        PL_TRY(scan_read(s, offset, s->scratch.bytes, chunk, err));
        size_t i = 0;
        for (; chunk - i >= PL_RECORD_HEADER_BYTES; i += 8)
            if (pl_record_header_get(s->scratch.bytes + i, s->seed, &h))
                *durable_seq = pl_max64(*durable_seq, h.durable_seq);
        offset += i;
    }
    return PELAGO_OK;
}

enum pelago_status pl_journal_create(struct pl_journal *j, struct pl_dir dir,
                                     const struct pl_segment_header *h, struct pl_error *err)
{
    uint8_t head[PL_SEGMENT_HEADER_BYTES];
    const struct pl_bytes part = {head, sizeof head};
    *j = (struct pl_journal){.dir = dir, .generation = h->generation};
    pl_segment_name(h->generation, j->name);
    j->seed = pl_segment_seed(h->run_id, h->generation);
    j->begin = (struct pl_spot){PL_SEGMENT_HEADER_BYTES, h->first_seq, h->link};
    j->durable = j->begin;
    j->end = j->begin;
    enum pelago_status st = dir.ops->open(dir.self, PL_JOURNAL_TEMP, PL_FILE_CREATE, &j->file);
    if (st == PELAGO_OK) {
        pl_segment_header_put(h, head);
        st = dir.ops->write_at(dir.self, j->file, 0, &part, 1);
    }
    if (st == PELAGO_OK)
        return PELAGO_OK;
    pl_journal_close(j);
    return pl_fail(err, st, "%s cannot be created: %s.", j->name, pl_status_text(st));
}

enum pelago_status pl_journal_append(struct pl_journal *j, uint32_t type, const struct pl_bytes *parts,
                                     size_t count, uint64_t parts_len, struct pl_error *err)
{
    static const uint8_t zeros[8];
    uint8_t head[PL_RECORD_HEADER_BYTES];
    struct pl_bytes all[PL_RECORD_PARTS_MAX + 2];
    pl_assert(count <= PL_RECORD_PARTS_MAX);
    pl_assert(j->end.next_seq < PL_COUNT_MAX);
    all[0] = (struct pl_bytes){head, sizeof head};
    for (size_t i = 0; i < count; i++)
        all[1 + i] = parts[i];
    all[1 + count] = (struct pl_bytes){zeros, (size_t)(pl_padded(parts_len) - parts_len)};
    const struct pl_record_header h = {.type = type,
                                       .seq = j->end.next_seq,
                                       .length = parts_len,
                                       .durable_seq = j->durable.next_seq - 1,
                                       .link = j->end.link,
                                       .payload_hash = pl_hash64_parts(all + 1, count + 1, 0)};
    pl_record_header_put(&h, j->seed, head);
    enum pelago_status st = j->dir.ops->write_at(j->dir.self, j->file, j->end.offset, all, count + 2);
    if (st != PELAGO_OK)
        return pl_fail(err, st, "%s: record %lu could not be written at offset %lu: %s.", j->name, h.seq,
                       j->end.offset, pl_status_text(st));
    j->end.offset += sizeof head + pl_padded(parts_len);
    j->end.link = pl_link_next(&h);
    j->end.next_seq++;
    return PELAGO_OK;
}

enum pelago_status pl_journal_sync(struct pl_journal *j, struct pl_error *err)
{
    enum pelago_status st = j->dir.ops->sync(j->dir.self, j->file);
    if (st != PELAGO_OK)
        return pl_fail(err, st, "%s: syncing failed, records %lu to %lu are not durable: %s.", j->name,
                       j->durable.next_seq, j->end.next_seq - 1, pl_status_text(st));
    j->durable = j->end;
    return PELAGO_OK;
}

enum pelago_status pl_journal_mark(struct pl_journal *j, struct pl_error *err)
{
    uint8_t head[PL_RECORD_HEADER_BYTES];
    const struct pl_bytes part = {head, sizeof head};
    const struct pl_record_header h = {.mark = true,
                                       .seq = j->end.next_seq - 1,
                                       .durable_seq = j->durable.next_seq - 1,
                                       .link = j->end.link};
    pl_assert(j->durable.next_seq == j->end.next_seq);
    pl_record_header_put(&h, j->seed, head);
    enum pelago_status st = j->dir.ops->write_at(j->dir.self, j->file, j->end.offset, &part, 1);
    if (st != PELAGO_OK)
        return pl_fail(err, st, "%s: a mark could not be written at offset %lu: %s.", j->name, j->end.offset,
                       pl_status_text(st));
    j->end.offset += sizeof head;
    return PELAGO_OK;
}

enum pelago_status pl_journal_publish(struct pl_journal *j, struct pl_error *err)
{
    enum pelago_status st = j->dir.ops->rename(j->dir.self, PL_JOURNAL_TEMP, j->name);
    if (st == PELAGO_OK)
        st = j->dir.ops->sync_dir(j->dir.self);
    if (st != PELAGO_OK)
        return pl_fail(err, st, "%s could not be given its name: %s.", j->name, pl_status_text(st));
    return PELAGO_OK;
}

void pl_journal_close(struct pl_journal *j)
{
    if (j->file != NULL)
        j->dir.ops->close(j->dir.self, j->file);
    j->file = NULL;
}
