/* store/journal.h - one journal file: reading it record by record, and appending to a new one.
 *
 * A file is written once, from front to back, under a temporary name that becomes its real one when the head (and
 * whatever was carried over from an older file) is durable. It is never written to again once another follows it.
 * What follows from damage is decided in recover.c; here it is only found.
 */
#ifndef PL_STORE_JOURNAL_H
#define PL_STORE_JOURNAL_H

#include "store/format.h"

/* A place between two records. */
struct pl_spot {
    uint64_t offset;   /* in its file */
    uint64_t next_seq; /* of the record that comes here */
    uint64_t link;     /* of the record before it */
};

struct pl_store_record {
    uint64_t seq;
    uint32_t type;
    const uint8_t *data; /* borrowed: valid until the next read */
    size_t len;
};

/* Caller's memory for one record, or one block of a snapshot. */
struct pl_scratch {
    uint8_t *bytes;
    size_t len;
};

/* Where files are read from. */
struct pl_source {
    struct pl_dir dir;
    const uint8_t *run_id;     /* [PL_RUN_ID_BYTES], borrowed */
    struct pl_scratch scratch; /* what a record or a block is read into */
};

struct pl_scan {
    struct pl_dir dir;
    struct pl_file *file;
    struct pl_scratch scratch;
    char name[PL_FILE_NAME_MAX];
    struct pl_segment_header header;
    uint64_t seed;
    uint64_t size; /* of the file */
    struct pl_spot at;
    struct pl_spot proven; /* everything before it was durable, as the file itself says */
    uint64_t durable_seq;  /* highest number known to be durable, as read so far */
};

enum pl_scan_result {
    PL_SCAN_RECORD,
    PL_SCAN_MARK,
    PL_SCAN_END,    /* the file ends here, at a boundary */
    PL_SCAN_DAMAGE, /* no whole record begins here; the scan stays where it is */
};

/* Opens the file of this generation and reads its head. On failure nothing stays open. INVALID: another run's. */
enum pelago_status pl_scan_open(struct pl_scan *s, const struct pl_source *from, uint64_t generation,
                                struct pl_error *err);
void pl_scan_close(struct pl_scan *s);

/* Goes to a place seen before in this file. */
void pl_scan_seek(struct pl_scan *s, const struct pl_spot *spot);

/* The next thing in the file. LIMIT: an intact record that the scratch memory cannot hold. */
enum pelago_status pl_scan_next(struct pl_scan *s, enum pl_scan_result *result,
                                struct pl_store_record *record, struct pl_error *err);

/* Passes over marks; what is left behind them is s->size - s->at.offset bytes. */
enum pelago_status pl_scan_skip_marks(struct pl_scan *s, struct pl_error *err);

/* After DAMAGE: the highest durable_seq that any intact head behind the damage speaks of; 0 when there is none. */
enum pelago_status pl_scan_proof(struct pl_scan *s, uint64_t *durable_seq, struct pl_error *err);

/* The end of the journal, where records are appended. */
struct pl_journal {
    struct pl_dir dir;
    struct pl_file *file;
    char name[PL_FILE_NAME_MAX]; /* for texts */
    uint64_t generation;
    uint64_t seed;
    struct pl_spot begin;   /* of the first record */
    struct pl_spot durable; /* as of the last good sync */
    struct pl_spot end;
};

/* A new file under the temporary name, with its head written and nothing synced. */
enum pelago_status pl_journal_create(struct pl_journal *j, struct pl_dir dir,
                                     const struct pl_segment_header *h, struct pl_error *err);

/* Writes one record after the last; parts_len is the sum of the parts. The journal is unchanged on failure, but its
 * file has bytes of unknown content after the end. */
enum pelago_status pl_journal_append(struct pl_journal *j, uint32_t type, const struct pl_bytes *parts,
                                     size_t count, uint64_t parts_len, struct pl_error *err);

/* Syncs the file; on success everything up to the end is durable. */
enum pelago_status pl_journal_sync(struct pl_journal *j, struct pl_error *err);

/* Notes in the file, without syncing, that everything before is durable. */
enum pelago_status pl_journal_mark(struct pl_journal *j, struct pl_error *err);

/* Gives the temporary file its name and makes the name durable. */
enum pelago_status pl_journal_publish(struct pl_journal *j, struct pl_error *err);

void pl_journal_close(struct pl_journal *j);

#endif
