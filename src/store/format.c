/* store/format.c - see format.h. The byte tables stand above the functions that write them. */
#include "store/format.h"

#include "base/check.h"
#include "base/hash.h"

#define SEGMENT_MAGIC UINT64_C(0x314a4f47414c4550)  /* "PELAGOJ1" */
#define SNAPSHOT_MAGIC UINT64_C(0x31534f47414c4550) /* "PELAGOS1" */
#define RECORD_MAGIC UINT32_C(0x31524c50)           /* "PLR1" */
#define MARK_MAGIC UINT32_C(0x314d4c50)             /* "PLM1" */

enum { NAME_DIGITS = 16 };

static void put_name(const char *prefix, uint64_t number, char *out)
{
    size_t n = 0;
    while (prefix[n] != '\0') {
        out[n] = prefix[n];
        n++;
    }
    for (int shift = 4 * (NAME_DIGITS - 1); shift >= 0; shift -= 4)
        out[n++] = "0123456789abcdef"[(number >> shift) & 15];
    memcpy(out + n, ".pl", sizeof ".pl");
    pl_assert(n + sizeof ".pl" <= PL_FILE_NAME_MAX);
}

static bool parse_name(const char *name, const char *prefix, uint64_t *number)
{
    for (; *prefix != '\0'; prefix++, name++)
        if (*name != *prefix)
            return false;
    uint64_t value = 0;
    for (int i = 0; i < NAME_DIGITS; i++, name++) {
        if (*name >= '0' && *name <= '9')
            value = value * 16 + (uint64_t)(*name - '0');
        else if (*name >= 'a' && *name <= 'f')
            value = value * 16 + (uint64_t)(*name - 'a' + 10);
        else
            return false;
    }
    *number = value;
    return name[0] == '.' && name[1] == 'p' && name[2] == 'l' && name[3] == '\0' && value < PL_COUNT_MAX;
}

void pl_segment_name(uint64_t generation, char out[static PL_FILE_NAME_MAX])
{
    put_name("journal-", generation, out);
}

void pl_snapshot_name(uint64_t seq, char out[static PL_FILE_NAME_MAX])
{
    put_name("snapshot-", seq, out);
}

bool pl_segment_name_parse(const char *name, uint64_t *generation)
{
    return parse_name(name, "journal-", generation);
}

bool pl_snapshot_name_parse(const char *name, uint64_t *seq)
{
    return parse_name(name, "snapshot-", seq);
}

/*  0 magic u64   8 version u32   12 zero u32   16 run id   32 generation u64   40 owner epoch u64
 * 48 first seq u64   56 durable seq u64   64 link u64   72 checksum of bytes 0..71 */
void pl_segment_header_put(const struct pl_segment_header *h, uint8_t out[static PL_SEGMENT_HEADER_BYTES])
{
    pl_put_le(out + 0, SEGMENT_MAGIC, 8);
    pl_put_le(out + 8, PL_STORE_VERSION, 4);
    pl_put_le(out + 12, 0, 4);
    memcpy(out + 16, h->run_id, PL_RUN_ID_BYTES);
    pl_put_le(out + 32, h->generation, 8);
    pl_put_le(out + 40, h->owner_epoch, 8);
    pl_put_le(out + 48, h->first_seq, 8);
    pl_put_le(out + 56, h->durable_seq, 8);
    pl_put_le(out + 64, h->link, 8);
    pl_put_le(out + 72, pl_hash64(out, 72, 0), 8);
}

enum pelago_status pl_segment_header_get(const uint8_t in[static PL_SEGMENT_HEADER_BYTES], const char *file,
                                         struct pl_segment_header *h, struct pl_error *err)
{
    if (pl_get_le(in, 8) != SEGMENT_MAGIC)
        return pl_fail(err, PELAGO_CORRUPT, "%s does not begin like a journal.", file);
    if (pl_get_le(in + 72, 8) != pl_hash64(in, 72, 0))
        return pl_fail(err, PELAGO_CORRUPT, "%s: the checksum of the file header does not match.", file);
    unsigned version = (unsigned)pl_get_le(in + 8, 4);
    if (version != PL_STORE_VERSION || pl_get_le(in + 12, 4) != 0)
        return pl_fail(err, PELAGO_UNSUPPORTED, "%s has format version %u, this program knows %u.", file,
                       version, (unsigned)PL_STORE_VERSION);
    memcpy(h->run_id, in + 16, PL_RUN_ID_BYTES);
    h->generation = pl_get_le(in + 32, 8);
    h->owner_epoch = pl_get_le(in + 40, 8);
    h->first_seq = pl_get_le(in + 48, 8);
    h->durable_seq = pl_get_le(in + 56, 8);
    h->link = pl_get_le(in + 64, 8);
    if (h->first_seq == 0 || h->durable_seq >= PL_COUNT_MAX || h->durable_seq < h->first_seq - 1 ||
        h->owner_epoch >= PL_COUNT_MAX)
        return pl_fail(err, PELAGO_CORRUPT, "%s: a number in the file header is out of range.", file);
    return PELAGO_OK;
}

uint64_t pl_segment_seed(const uint8_t run_id[static PL_RUN_ID_BYTES], uint64_t generation)
{
    return pl_hash64(run_id, PL_RUN_ID_BYTES, generation);
}

/*  0 magic u32 (record or mark)   4 type u32   8 seq u64   16 length u64   24 durable seq u64   32 link u64
 * 40 payload checksum u64   48 checksum of bytes 0..47 */
void pl_record_header_put(const struct pl_record_header *h, uint64_t seed,
                          uint8_t out[static PL_RECORD_HEADER_BYTES])
{
    pl_put_le(out + 0, h->mark ? MARK_MAGIC : RECORD_MAGIC, 4);
    pl_put_le(out + 4, h->type, 4);
    pl_put_le(out + 8, h->seq, 8);
    pl_put_le(out + 16, h->length, 8);
    pl_put_le(out + 24, h->durable_seq, 8);
    pl_put_le(out + 32, h->link, 8);
    pl_put_le(out + 40, h->payload_hash, 8);
    pl_put_le(out + 48, pl_hash64(out, 48, seed), 8);
}

bool pl_record_header_get(const uint8_t in[static PL_RECORD_HEADER_BYTES], uint64_t seed,
                          struct pl_record_header *h)
{
    uint64_t magic = pl_get_le(in, 4);
    if (magic != RECORD_MAGIC && magic != MARK_MAGIC)
        return false;
    h->mark = magic == MARK_MAGIC;
    h->type = (uint32_t)pl_get_le(in + 4, 4);
    h->seq = pl_get_le(in + 8, 8);
    h->length = pl_get_le(in + 16, 8);
    h->durable_seq = pl_get_le(in + 24, 8);
    h->link = pl_get_le(in + 32, 8);
    h->payload_hash = pl_get_le(in + 40, 8);
    return pl_get_le(in + 48, 8) == pl_hash64(in, 48, seed);
}

uint64_t pl_link_start(const uint8_t run_id[static PL_RUN_ID_BYTES])
{
    return pl_hash64(run_id, PL_RUN_ID_BYTES, 0);
}

uint64_t pl_link_next(const struct pl_record_header *h)
{
    uint8_t bytes[28];
    pl_put_le(bytes + 0, h->seq, 8);
    pl_put_le(bytes + 8, h->type, 4);
    pl_put_le(bytes + 12, h->length, 8);
    pl_put_le(bytes + 20, h->payload_hash, 8);
    return pl_hash64(bytes, sizeof bytes, h->link);
}

uint64_t pl_padded(uint64_t length)
{
    pl_assert(length <= PL_RECORD_BYTES_MAX);
    return (length + 7) & ~UINT64_C(7);
}

size_t pl_snapshot_head_bytes(uint32_t section_count)
{
    pl_assert(section_count <= PL_SECTIONS_MAX);
    return PL_SNAPSHOT_HEADER_BYTES + (size_t)section_count * PL_SECTION_ENTRY_BYTES;
}

uint64_t pl_section_file_bytes(uint64_t length)
{
    pl_assert(length <= PL_SECTION_BYTES_MAX);
    return length + (length + PL_BLOCK_BYTES - 1) / PL_BLOCK_BYTES * PL_HASH_BYTES;
}

static uint64_t snapshot_file_bytes(const struct pl_snapshot_header *h)
{
    uint64_t bytes = pl_snapshot_head_bytes(h->section_count);
    for (uint32_t i = 0; i < h->section_count; i++)
        bytes += pl_section_file_bytes(h->sections[i].length);
    return bytes;
}

uint64_t pl_section_seed(const struct pl_snapshot_header *h, uint32_t index)
{
    uint8_t bytes[40];
    memcpy(bytes, h->run_id, PL_RUN_ID_BYTES);
    pl_put_le(bytes + 16, h->seq, 8);
    pl_put_le(bytes + 24, index, 4);
    pl_put_le(bytes + 28, h->sections[index].tag, 4);
    pl_put_le(bytes + 32, h->sections[index].length, 8);
    return pl_hash64(bytes, sizeof bytes, 0);
}

/* The checksum of a head: all of it but the eight bytes of the checksum itself. */
static uint64_t snapshot_head_hash(const uint8_t *head, uint32_t section_count)
{
    const struct pl_bytes parts[] = {{head, 56}, {head + 64, pl_snapshot_head_bytes(section_count) - 64}};
    return pl_hash64_parts(parts, 2, 0);
}

/*  0 magic u64   8 version u32   12 section count u32   16 run id   32 seq u64   40 link u64   48 file bytes u64
 * 56 checksum   64 table; per section: 0 tag u32   4 zero u32   8 length u64   16 checksum of the last block u64 */
size_t pl_snapshot_header_put(const struct pl_snapshot_header *h, uint8_t out[static PL_SNAPSHOT_HEAD_MAX])
{
    pl_put_le(out + 0, SNAPSHOT_MAGIC, 8);
    pl_put_le(out + 8, PL_STORE_VERSION, 4);
    pl_put_le(out + 12, h->section_count, 4);
    memcpy(out + 16, h->run_id, PL_RUN_ID_BYTES);
    pl_put_le(out + 32, h->seq, 8);
    pl_put_le(out + 40, h->link, 8);
    pl_put_le(out + 48, snapshot_file_bytes(h), 8);
    for (uint32_t i = 0; i < h->section_count; i++) {
        uint8_t *entry = out + pl_snapshot_head_bytes(i);
        pl_put_le(entry + 0, h->sections[i].tag, 4);
        pl_put_le(entry + 4, 0, 4);
        pl_put_le(entry + 8, h->sections[i].length, 8);
        pl_put_le(entry + 16, h->sections[i].hash, 8);
    }
    pl_put_le(out + 56, snapshot_head_hash(out, h->section_count), 8);
    return pl_snapshot_head_bytes(h->section_count);
}

/* The table; its checksum is already known to be right. */
static enum pelago_status get_sections(const uint8_t *head, uint64_t file_bytes, const char *file,
                                       struct pl_snapshot_header *h, struct pl_error *err)
{
    for (uint32_t i = 0; i < h->section_count; i++) {
        const uint8_t *entry = head + pl_snapshot_head_bytes(i);
        h->sections[i].tag = (uint32_t)pl_get_le(entry, 4);
        h->sections[i].length = pl_get_le(entry + 8, 8);
        h->sections[i].hash = pl_get_le(entry + 16, 8);
        if (pl_get_le(entry + 4, 4) != 0 || h->sections[i].length > PL_SECTION_BYTES_MAX)
            return pl_fail(err, PELAGO_CORRUPT, "%s: entry %u of the section table is out of range.", file,
                           i);
    }
    if (snapshot_file_bytes(h) != file_bytes || pl_get_le(head + 48, 8) != file_bytes)
        return pl_fail(err, PELAGO_CORRUPT, "%s has %lu bytes, its table needs %lu.", file, file_bytes,
                       snapshot_file_bytes(h));
    return PELAGO_OK;
}

enum pelago_status pl_snapshot_header_get(struct pl_bytes in, uint64_t file_bytes, const char *file,
                                          struct pl_snapshot_header *h, struct pl_error *err)
{
    const uint8_t *head = in.data;
    if (in.len < PL_SNAPSHOT_HEADER_BYTES || pl_get_le(head, 8) != SNAPSHOT_MAGIC)
        return pl_fail(err, PELAGO_CORRUPT, "%s does not begin like a snapshot.", file);
    h->section_count = (uint32_t)pl_get_le(head + 12, 4);
    if (h->section_count > PL_SECTIONS_MAX || pl_snapshot_head_bytes(h->section_count) > in.len)
        return pl_fail(err, PELAGO_CORRUPT, "%s: %u sections are too many.", file, h->section_count);
    if (pl_get_le(head + 56, 8) != snapshot_head_hash(head, h->section_count))
        return pl_fail(err, PELAGO_CORRUPT, "%s: the checksum of the header does not match.", file);
    unsigned version = (unsigned)pl_get_le(head + 8, 4);
    if (version != PL_STORE_VERSION)
        return pl_fail(err, PELAGO_UNSUPPORTED, "%s has format version %u, this program knows %u.", file,
                       version, (unsigned)PL_STORE_VERSION);
    memcpy(h->run_id, head + 16, PL_RUN_ID_BYTES);
    h->seq = pl_get_le(head + 32, 8);
    h->link = pl_get_le(head + 40, 8);
    if (h->seq >= PL_COUNT_MAX)
        return pl_fail(err, PELAGO_CORRUPT, "%s: the record number %lu is out of range.", file, h->seq);
    return get_sections(head, file_bytes, file, h, err);
}
