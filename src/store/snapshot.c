/* store/snapshot.c - see snapshot.h; the layout is in format.c and docs/journal.md. */
#include "store/snapshot.h"

#include "base/check.h"
#include "base/hash.h"
#include "base/num.h"

static enum pelago_status write_failed(const struct pl_snapshot_writer *w, enum pelago_status st,
                                       struct pl_error *err)
{
    return pl_fail(err, st, "The snapshot of record %lu could not be written: %s.", w->header.seq,
                   pl_status_text(st));
}

/* Goes on to the next section that lacks bytes; empty ones are complete at once. */
static void next_section(struct pl_snapshot_writer *w)
{
    while (w->left == 0) {
        w->header.sections[w->section].hash = w->chain;
        if (++w->section == w->header.section_count)
            return;
        w->left = w->header.sections[w->section].length;
        w->chain = pl_section_seed(&w->header, w->section);
    }
}

enum pelago_status pl_snapshot_create(struct pl_snapshot_writer *w, struct pl_dir dir,
                                      const struct pl_snapshot_header *header, uint8_t *block,
                                      struct pl_error *err)
{
    *w = (struct pl_snapshot_writer){.dir = dir, .block = block, .header = *header};
    enum pelago_status st = dir.ops->open(dir.self, PL_SNAPSHOT_TEMP, PL_FILE_CREATE, &w->file);
    if (st != PELAGO_OK)
        return write_failed(w, st, err);
    w->offset = pl_snapshot_head_bytes(header->section_count);
    if (header->section_count > 0) {
        w->left = w->header.sections[0].length;
        w->chain = pl_section_seed(&w->header, 0);
        next_section(w);
    }
    return PELAGO_OK;
}

static enum pelago_status write_block(struct pl_snapshot_writer *w, struct pl_error *err)
{
    pl_assert(w->block_len > 0);
    pl_assert(w->block_len <= PL_BLOCK_BYTES);
    w->chain = pl_hash64(w->block, w->block_len, w->chain);
    pl_put_le(w->block + w->block_len, w->chain, PL_HASH_BYTES);
    const struct pl_bytes part = {w->block, w->block_len + PL_HASH_BYTES};
    enum pelago_status st = w->dir.ops->write_at(w->dir.self, w->file, w->offset, &part, 1);
    if (st != PELAGO_OK)
        return write_failed(w, st, err);
    w->offset += part.len;
    w->block_len = 0;
    return PELAGO_OK;
}

enum pelago_status pl_snapshot_write(struct pl_snapshot_writer *w, const void *data, size_t len,
                                     struct pl_error *err)
{
    const uint8_t *from = data;
    pl_assert(w->file != NULL);
    while (len > 0) {
        if (w->left == 0)
            return pl_fail(err, PELAGO_INVALID, "The snapshot's sections are shorter than the bytes given.");
        size_t n = (size_t)pl_min64(pl_min64(len, w->left), PL_BLOCK_BYTES - w->block_len);
        memcpy(w->block + w->block_len, from, n);
        w->block_len += n;
        w->left -= n;
        from += n;
        len -= n;
        if (w->block_len == PL_BLOCK_BYTES || w->left == 0)
            PL_TRY(write_block(w, err));
        next_section(w);
    }
    return PELAGO_OK;
}

enum pelago_status pl_snapshot_finish(struct pl_snapshot_writer *w, struct pl_error *err)
{
    uint8_t head[PL_SNAPSHOT_HEAD_MAX];
    pl_assert(w->file != NULL);
    if (w->left > 0)
        return pl_fail(err, PELAGO_INVALID, "The snapshot's section %u lacks %lu bytes.", w->section,
                       w->left);
    pl_assert(w->section == w->header.section_count);
    pl_assert(w->block_len == 0);
    const struct pl_bytes part = {head, pl_snapshot_header_put(&w->header, head)};
    enum pelago_status st = w->dir.ops->write_at(w->dir.self, w->file, 0, &part, 1);
    if (st == PELAGO_OK)
        st = w->dir.ops->sync(w->dir.self, w->file);
    return st == PELAGO_OK ? PELAGO_OK : write_failed(w, st, err);
}

void pl_snapshot_discard(struct pl_snapshot_writer *w)
{
    if (w->file == NULL)
        return;
    w->dir.ops->close(w->dir.self, w->file);
    w->file = NULL;
    w->dir.ops->remove(w->dir.self, PL_SNAPSHOT_TEMP);
}

struct reading {
    const struct pl_source *from;
    const struct pl_snapshot_header *header;
    struct pl_file *file;
    const char *name;
    uint64_t offset;
    pl_load_fn *load;
    void *user;
};

static enum pelago_status read_failed(const char *name, enum pelago_status st, struct pl_error *err)
{
    return pl_fail(err, st == PELAGO_SHORT ? PELAGO_IO : st, "%s cannot be read: %s.", name,
                   pl_status_text(st));
}

static enum pelago_status read_section(struct reading *r, uint32_t index, struct pl_error *err)
{
    const struct pl_section *section = &r->header->sections[index];
    const struct pl_dir dir = r->from->dir;
    uint8_t *block = r->from->scratch.bytes;
    struct pl_piece piece = {section->tag, section->length, 0, block, 0};
    uint64_t chain = pl_section_seed(r->header, index);
    do {
        piece.len = (size_t)pl_min64(PL_BLOCK_BYTES, section->length - piece.offset);
        if (piece.len > 0) {
            size_t bytes = piece.len + PL_HASH_BYTES;
            enum pelago_status st = dir.ops->read_at(dir.self, r->file, r->offset, block, bytes);
            if (st != PELAGO_OK)
                return read_failed(r->name, st, err);
            chain = pl_hash64(block, piece.len, chain);
            if (chain != pl_get_le(block + piece.len, PL_HASH_BYTES))
                return pl_fail(err, PELAGO_CORRUPT, "%s: the block at offset %lu (section %u) is damaged.",
                               r->name, r->offset, index);
            r->offset += bytes;
        }
        if (r->load != NULL) {
            enum pelago_status st = r->load(r->user, &piece);
            if (st != PELAGO_OK)
                return pl_fail(err, st, "%s: section %u was refused: %s.", r->name, index,
                               pl_status_text(st));
        }
        piece.offset += piece.len;
    } while (piece.offset < section->length);
    if (chain != section->hash)
        return pl_fail(err, PELAGO_CORRUPT, "%s: section %u is not the one its table names.", r->name, index);
    return PELAGO_OK;
}

static enum pelago_status read_head(const struct reading *r, uint64_t seq, struct pl_snapshot_header *header,
                                    struct pl_error *err)
{
    const struct pl_dir dir = r->from->dir;
    uint64_t size = 0;
    enum pelago_status st = dir.ops->size(dir.self, r->file, &size);
    const struct pl_bytes head = {r->from->scratch.bytes, (size_t)pl_min64(size, PL_SNAPSHOT_HEAD_MAX)};
    if (st == PELAGO_OK)
        st = dir.ops->read_at(dir.self, r->file, 0, r->from->scratch.bytes, head.len);
    if (st != PELAGO_OK)
        return read_failed(r->name, st, err);
    PL_TRY(pl_snapshot_header_get(head, size, r->name, header, err));
    if (memcmp(header->run_id, r->from->run_id, PL_RUN_ID_BYTES) != 0)
        return pl_fail(err, PELAGO_INVALID, "%s belongs to another run.", r->name);
    if (header->seq != seq)
        return pl_fail(err, PELAGO_CORRUPT, "%s says that it is of record %lx; it was renamed.", r->name,
                       header->seq);
    return PELAGO_OK;
}

enum pelago_status pl_snapshot_read(const struct pl_source *from, uint64_t seq,
                                    struct pl_snapshot_header *header, pl_load_fn *load, void *user,
                                    struct pl_error *err)
{
    char name[PL_FILE_NAME_MAX];
    struct reading r = {from, header, NULL, name, 0, load, user};
    pl_assert(from->scratch.len >= PL_BLOCK_MEMORY_BYTES);
    pl_snapshot_name(seq, name);
    enum pelago_status st = from->dir.ops->open(from->dir.self, name, PL_FILE_READ, &r.file);
    if (st != PELAGO_OK)
        return read_failed(name, st, err);
    st = read_head(&r, seq, header, err);
    if (st == PELAGO_OK)
        r.offset = pl_snapshot_head_bytes(header->section_count);
    for (uint32_t i = 0; st == PELAGO_OK && i < header->section_count; i++)
        st = read_section(&r, i, err);
    from->dir.ops->close(from->dir.self, r.file);
    return st;
}
