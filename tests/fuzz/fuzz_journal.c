/* Fuzz target: a store directory of arbitrary bytes.
 *
 * The input is a program for the directory: put a file of raw bytes, build a journal or a snapshot whose checksums
 * are right and whose numbers come from the input, or take a real store's files and patch them, with or without
 * repairing the checksum. Then the store is opened. Whatever opens must keep its promises: numbers without gaps, and
 * after some more life the same again when it is opened a second time.
 */
#include "base/alloc.h"
#include "base/check.h"
#include "base/hash.h"
#include "base/num.h"
#include "sim/disk.h"
#include "store/store.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { RECORD_BYTES_MAX = 2000, FILE_BYTES_MAX = 8192 };

static const uint8_t run_id[PL_RUN_ID_BYTES] = {'f', 'u', 'z', 'z'};
static uint8_t scratch[2 * (PL_BLOCK_MEMORY_BYTES + 64)];
static uint8_t file[FILE_BYTES_MAX];
static struct pl_store store;

struct seen {
    uint64_t last_seq;
    uint64_t digest;
};

static enum pelago_status load(void *user, const struct pl_piece *piece)
{
    struct seen *seen = user;
    pl_assert(piece->offset + piece->len <= piece->section_length);
    seen->digest = pl_hash64(piece->data, piece->len, seen->digest);
    return PELAGO_OK;
}

static enum pelago_status replay(void *user, const struct pl_store_record *record)
{
    struct seen *seen = user;
    pl_assert(seen->last_seq == 0 || record->seq == seen->last_seq + 1);
    seen->last_seq = record->seq;
    seen->digest = pl_hash64(record->data, record->len, seen->digest + record->type);
    return PELAGO_OK;
}

static enum pelago_status open_store(struct pl_disk *disk, bool verify_all, struct seen *seen)
{
    struct pl_store_report report;
    struct pl_error err;
    const struct pl_store_reader reader = {load, replay, seen};
    struct pl_store_options options = {.record_bytes_max = RECORD_BYTES_MAX,
                                       .segment_bytes = 4096,
                                       .snapshot_after_bytes = 20000,
                                       .verify_all = verify_all,
                                       .scratch = scratch,
                                       .scratch_bytes = sizeof scratch};
    memcpy(options.run_id, run_id, sizeof run_id);
    *seen = (struct seen){0, 0};
    enum pelago_status st = pl_store_open(&store, pl_disk_dir(disk), &options, &reader, &report, &err);
    pl_assert(st == PELAGO_OK || err.text[0] != '\0');
    if (st == PELAGO_OK && seen->last_seq > 0)
        pl_assert(pl_store_last_seq(&store) == seen->last_seq);
    return st;
}

static void live(void)
{
    const struct pl_bytes part = {"record", 6};
    const struct pl_section section = {.tag = 1, .length = 5};
    uint64_t seq;
    for (int i = 0; i < 3; i++)
        if (pl_store_append(&store, 1, &part, 1, &seq, NULL) == PELAGO_OK)
            pl_assert(pl_store_sync(&store, NULL) == PELAGO_OK);
    if (pl_store_snapshot_begin(&store, &section, 1, NULL) == PELAGO_OK) {
        pl_assert(pl_store_snapshot_write(&store, "state", 5, NULL) == PELAGO_OK);
        pl_assert(pl_store_snapshot_commit(&store, NULL) == PELAGO_OK);
    }
    if (pl_store_append(&store, 2, &part, 1, &seq, NULL) == PELAGO_OK)
        pl_assert(pl_store_sync(&store, NULL) == PELAGO_OK);
}

static void put(struct pl_disk *disk, bool journal, uint64_t number, size_t len)
{
    char name[PL_FILE_NAME_MAX];
    if (journal)
        pl_segment_name(number, name);
    else
        pl_snapshot_name(number, name);
    pl_assert(pl_disk_put(disk, name, file, len) == PELAGO_OK);
}

/* A number that is small, or near the end of what there is. */
static uint64_t number_from(struct pl_reader *in)
{
    uint8_t b = pl_read_u8(in);
    return b < 240 ? b % 16 : b < 248 ? PL_COUNT_MAX - 248 + b : pl_read_u64(in);
}

static void put_raw(struct pl_disk *disk, struct pl_reader *in)
{
    uint8_t kind = pl_read_u8(in);
    uint64_t number = number_from(in) % PL_COUNT_MAX;
    size_t len = (size_t)pl_min64(pl_read_le(in, 2) % FILE_BYTES_MAX, pl_reader_left(in));
    const uint8_t *bytes = pl_read_bytes(in, len);
    if (len > 0 && bytes != NULL)
        memcpy(file, bytes, len);
    put(disk, kind % 2 == 0, number, len);
}

/* Records whose checksums are right; links and numbers mostly so. */
static void put_journal(struct pl_disk *disk, struct pl_reader *in)
{
    struct pl_segment_header h = {.generation = number_from(in) % PL_COUNT_MAX,
                                  .owner_epoch = number_from(in),
                                  .first_seq = number_from(in),
                                  .durable_seq = number_from(in),
                                  .link = pl_link_start(run_id)};
    memcpy(h.run_id, run_id, sizeof run_id);
    pl_segment_header_put(&h, file);
    size_t at = PL_SEGMENT_HEADER_BYTES;
    uint64_t seq = h.first_seq;
    uint64_t link = h.link;
    for (uint8_t left = pl_read_u8(in) % 32; left > 0; left--) {
        uint8_t how = pl_read_u8(in);
        struct pl_record_header r = {.mark = how % 4 == 0, .seq = seq, .durable_seq = seq - 1, .link = link};
        size_t len = r.mark ? 0 : pl_read_u8(in);
        size_t padded = (size_t)pl_padded(len);
        if (at + PL_RECORD_HEADER_BYTES + padded > sizeof file)
            break;
        uint8_t *payload = file + at + PL_RECORD_HEADER_BYTES;
        memset(payload, how, padded);
        r.length = how == 255 ? number_from(in) : len;
        r.payload_hash = r.mark ? 0 : pl_hash64(payload, padded, how == 254);
        r.seq = how == 253 ? number_from(in) : r.mark ? seq - 1 : seq;
        r.durable_seq = how % 8 == 7 ? number_from(in) : r.durable_seq;
        r.link = how == 252 ? number_from(in) : r.link;
        pl_record_header_put(&r, pl_segment_seed(run_id, h.generation), file + at);
        at += PL_RECORD_HEADER_BYTES + padded;
        link = r.mark ? link : pl_link_next(&r);
        seq += r.mark ? 0 : 1;
    }
    put(disk, true, h.generation, at);
}

static void put_snapshot(struct pl_disk *disk, struct pl_reader *in)
{
    uint64_t number = number_from(in) % PL_COUNT_MAX;
    struct pl_snapshot_header h = {.seq = pl_read_u8(in) % 4 == 0 ? number_from(in) : number,
                                   .link = pl_link_start(run_id),
                                   .section_count = 1};
    memcpy(h.run_id, run_id, sizeof run_id);
    h.sections[0].length = pl_read_u8(in) % 4 == 0 ? number_from(in) % PL_SECTION_BYTES_MAX : 8;
    h.sections[0].tag = pl_read_u8(in);
    size_t head = pl_snapshot_head_bytes(1);
    memset(file + head, 7, 8);
    h.sections[0].hash = pl_hash64(file + head, 8, pl_section_seed(&h, 0));
    pl_put_le(file + head + 8, h.sections[0].hash, 8);
    uint8_t bytes[PL_SNAPSHOT_HEAD_MAX];
    memcpy(file, bytes, pl_snapshot_header_put(&h, bytes));
    put(disk, false, number, head + 16);
}

struct choice {
    uint32_t left;
    char name[PL_FILE_NAME_MAX];
};

static enum pelago_status choose(void *user, const char *name)
{
    struct choice *c = user;
    if (c->left-- > 0)
        return PELAGO_OK;
    memcpy(c->name, name, strlen(name) + 1);
    return PELAGO_STALE;
}

/* Changes some bytes of some file, and repairs the checksum of the head when asked to. */
static void patch(struct pl_disk *disk, struct pl_reader *in)
{
    const struct pl_dir dir = pl_disk_dir(disk);
    struct choice c = {.left = pl_read_u8(in) % 8};
    if (dir.ops->list(dir.self, choose, &c) != PELAGO_STALE)
        return;
    uint64_t len = 0;
    const uint8_t *bytes = pl_disk_peek(disk, c.name, &len);
    uint64_t at = pl_read_le(in, 2);
    uint64_t number;
    uint8_t how = pl_read_u8(in);
    if (bytes == NULL || len > sizeof file || len < PL_SEGMENT_HEADER_BYTES)
        return;
    memcpy(file, bytes, (size_t)len);
    file[at % len] ^= how;
    if (how % 2 == 0 && pl_segment_name_parse(c.name, &number))
        pl_put_le(file + 72, pl_hash64(file, 72, 0), 8);
    size_t keep = how % 16 == 3 ? (size_t)(at % len) : (size_t)len;
    pl_assert(pl_disk_put(disk, c.name, file, keep) == PELAGO_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct pl_alloc alloc = pl_alloc_system();
    struct pl_disk *disk = pl_disk_new(&alloc, 1);
    struct pl_reader in = pl_reader_of(data, size);
    struct seen before;
    struct seen after;
    for (int i = 0; i < 12 && pl_reader_left(&in) > 0; i++) {
        uint8_t what = pl_read_u8(&in) % 8;
        if (what == 0) {
            put_raw(disk, &in);
        } else if (what == 1) {
            put_journal(disk, &in);
        } else if (what == 2) {
            put_snapshot(disk, &in);
        } else if (what < 6) {
            patch(disk, &in);
        } else if (open_store(disk, false, &before) == PELAGO_OK) {
            live();
            if (what == 6)
                pl_store_close(&store, NULL);
            pl_disk_process_died(disk);
        }
    }
    enum pelago_status st = open_store(disk, true, &before);
    if (st == PELAGO_OK) {
        pl_disk_power_cut(disk);
        st = open_store(disk, false, &after); /* LIMIT: the last file number there is was used up */
        pl_assert(st == PELAGO_OK || st == PELAGO_LIMIT);
    }
    if (st == PELAGO_OK) {
        pl_assert(after.last_seq == before.last_seq && after.digest == before.digest);
        live();
        pl_disk_power_cut(disk);
        st = open_store(disk, true, &after);
        pl_assert(st == PELAGO_OK || st == PELAGO_LIMIT);
    }
    pl_disk_free(disk);
    return 0;
}
