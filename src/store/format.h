/* store/format.h - the bytes of a store: names, headers, checksums. docs/journal.md is the specification.
 *
 * Everything is little-endian. Nothing here reads or writes a file. A header that decodes was written by this
 * program, whole: its own checksum is tested first, so that no length or number of a damaged one is ever used.
 */
#ifndef PL_STORE_FORMAT_H
#define PL_STORE_FORMAT_H

#include "store/file.h"

enum {
    PL_RUN_ID_BYTES = 16,
    PL_STORE_VERSION = 1,
    PL_SEGMENT_HEADER_BYTES = 80,
    PL_RECORD_HEADER_BYTES = 56,
    PL_SNAPSHOT_HEADER_BYTES = 64,
    PL_SECTION_ENTRY_BYTES = 24,
    PL_BLOCK_BYTES = 64 * 1024, /* data of one snapshot block; its checksum follows it */
    PL_HASH_BYTES = 8,
};

#define PL_JOURNAL_TEMP "journal.tmp"
#define PL_SNAPSHOT_TEMP "snapshot.tmp"

/* "journal-<16 hex digits>.pl" and "snapshot-<16 hex digits>.pl". */
void pl_segment_name(uint64_t generation, char out[static PL_FILE_NAME_MAX]);
void pl_snapshot_name(uint64_t seq, char out[static PL_FILE_NAME_MAX]);
/* False when the name is not one of ours. */
bool pl_segment_name_parse(const char *name, uint64_t *generation);
bool pl_snapshot_name_parse(const char *name, uint64_t *seq);

/* The head of a journal file. Files are numbered by generation; a file stands for the records from first_seq on, so
 * that whatever an older file holds from there on is void. */
struct pl_segment_header {
    uint8_t run_id[PL_RUN_ID_BYTES];
    uint64_t generation;
    uint64_t owner_epoch; /* grows with every opening of the store: who wrote this */
    uint64_t first_seq;
    uint64_t durable_seq; /* every record up to this one was durable before the file got its name */
    uint64_t link;        /* of record first_seq - 1 */
};

void pl_segment_header_put(const struct pl_segment_header *h, uint8_t out[static PL_SEGMENT_HEADER_BYTES]);
/* CORRUPT or UNSUPPORTED, with a text that names the file. */
enum pelago_status pl_segment_header_get(const uint8_t in[static PL_SEGMENT_HEADER_BYTES], const char *file,
                                         struct pl_segment_header *h, struct pl_error *err);

/* The head of a record, or, as a mark, the note that everything up to seq is durable. */
struct pl_record_header {
    bool mark;
    uint32_t type;         /* the caller's; 0 in a mark */
    uint64_t seq;          /* in a mark: of the record before it */
    uint64_t length;       /* of the payload, without padding */
    uint64_t durable_seq;  /* known to be durable when this was written */
    uint64_t link;         /* of the record before this one */
    uint64_t payload_hash; /* over payload and padding */
};

/* Checksums of records depend on the run and the file, so that none is valid in another place. */
uint64_t pl_segment_seed(const uint8_t run_id[static PL_RUN_ID_BYTES], uint64_t generation);
void pl_record_header_put(const struct pl_record_header *h, uint64_t seed,
                          uint8_t out[static PL_RECORD_HEADER_BYTES]);
bool pl_record_header_get(const uint8_t in[static PL_RECORD_HEADER_BYTES], uint64_t seed,
                          struct pl_record_header *h);

/* The chain: a number that stands for the whole history up to a record, wherever its bytes lie. */
uint64_t pl_link_start(const uint8_t run_id[static PL_RUN_ID_BYTES]);
uint64_t pl_link_next(const struct pl_record_header *h);

/* Bytes a payload takes in the file; length <= PL_RECORD_BYTES_MAX. */
uint64_t pl_padded(uint64_t length);

struct pl_section {
    uint32_t tag; /* the caller's */
    uint64_t length;
    uint64_t hash; /* of its last block; filled by the store */
};

struct pl_snapshot_header {
    uint8_t run_id[PL_RUN_ID_BYTES];
    uint64_t seq;  /* the state after this record */
    uint64_t link; /* of that record */
    uint32_t section_count;
    struct pl_section sections[PL_SECTIONS_MAX];
};

/* Bytes of head and table for so many sections; of a section's blocks in the file. */
size_t pl_snapshot_head_bytes(uint32_t section_count);
uint64_t pl_section_file_bytes(uint64_t length);
enum { PL_SNAPSHOT_HEAD_MAX = PL_SNAPSHOT_HEADER_BYTES + PL_SECTIONS_MAX * PL_SECTION_ENTRY_BYTES };

/* The checksum a section's first block starts from. */
uint64_t pl_section_seed(const struct pl_snapshot_header *h, uint32_t index);

/* Returns the bytes written. */
size_t pl_snapshot_header_put(const struct pl_snapshot_header *h, uint8_t out[static PL_SNAPSHOT_HEAD_MAX]);
/* in[len] is the beginning of a file of file_bytes; len is PL_SNAPSHOT_HEAD_MAX or all there is. */
enum pelago_status pl_snapshot_header_get(struct pl_bytes in, uint64_t file_bytes, const char *file,
                                          struct pl_snapshot_header *h, struct pl_error *err);

#endif
