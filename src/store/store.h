/* store/store.h - a journal with snapshots in one directory: what a syncer must not forget.
 *
 * Records are numbered 1, 2, 3 ...; append gives a number, sync makes it durable, and only then may anybody be told.
 * Opening loads the newest good snapshot, replays every record after it and leaves the store ready to append;
 * whatever was replayed is durable by then. docs/journal.md is the specification of the files and says exactly which
 * damage is cut off, which is refused, and why.
 *
 * Guarantees, as long as the directory keeps the promises of store/file.h:
 *   S1  a record whose sync returned OK is replayed by every later open, with the same bytes, in order;
 *   S2  nothing is replayed that was not appended whole;
 *   S3  numbers only grow: a record is never replaced by another once its sync returned OK or it was replayed;
 *   S4  a flipped byte never changes what is loaded or replayed: it is refused (CORRUPT), harmless, or reported.
 *
 * The store owns no memory but this struct and the scratch it is given. It is not for several threads, and two
 * stores must not be open on one directory.
 */
#ifndef PL_STORE_STORE_H
#define PL_STORE_STORE_H

#include "store/snapshot.h"

struct pl_store_options {
    uint8_t run_id[PL_RUN_ID_BYTES];
    uint64_t record_bytes_max;     /* payload of the largest record */
    uint64_t segment_bytes;        /* a journal file this large is followed by a new one */
    uint64_t snapshot_after_bytes; /* of journal since the last snapshot; twice the model's bytes */
    bool verify_all; /* open reads also what recovery does not need, and reports what is damaged */
    void *scratch;   /* pl_store_scratch_bytes(record_bytes_max); the store's until it is closed */
    size_t scratch_bytes;
};

typedef enum pelago_status pl_replay_fn(void *user, const struct pl_store_record *record);

/* What open hands the stored state to. Anything but OK ends it with that status. */
struct pl_store_reader {
    pl_load_fn *load; /* pieces of a snapshot that was checked as a whole before */
    pl_replay_fn *replay;
    void *user;
};

/* What open found. Nothing of it is an error, all of it is worth telling a person. */
struct pl_store_report {
    bool fresh;             /* there was nothing */
    bool has_snapshot;      /* one was loaded */
    uint64_t snapshot_seq;  /* ... the state after this record */
    uint64_t replayed;      /* records after it */
    uint64_t carried;       /* records of the last file that were written once more, into the new one */
    uint32_t snapshots_bad; /* newer ones that were passed over because they are damaged */
    uint32_t spares_bad;    /* damaged files that were not needed this time; only with verify_all */
    uint64_t tail_bytes;    /* cut off at the end: an unfinished write, never known to be durable */
    uint64_t tail_seq;      /* ... the first record that is missing by it */
    uint64_t void_bytes;    /* after the last record that counts in older files: left by unfinished writes */
    struct pl_error snapshot_error, tail_error, spare_error; /* the first of each kind, in words */
};

struct pl_segment {
    uint64_t generation;
    uint64_t first_seq;
    uint64_t bytes;
    bool bad; /* the head is damaged: first_seq is unknown */
};

struct pl_snapshot_slot {
    uint64_t seq;
    bool good; /* false: damaged, or its name may not be durable */
};

/* Private, here for its size only. */
struct pl_store {
    struct pl_dir dir;
    struct pl_store_options options;
    struct pl_scratch scratch; /* for reading */
    uint8_t *block;            /* for the snapshot that is being written */
    struct pl_journal journal;
    enum pelago_status failed; /* OK, or what made resume necessary */
    uint64_t generation_next;
    uint64_t owner_epoch;
    struct pl_segment segments[PL_SEGMENTS_MAX]; /* by generation; the last is the journal's, once open */
    uint32_t segment_count;
    struct pl_snapshot_slot snapshots[PL_SNAPSHOTS_MAX]; /* by seq */
    uint32_t snapshot_count;
    struct pl_snapshot_writer snapshot;
};

size_t pl_store_scratch_bytes(uint64_t record_bytes_max);

/* CORRUPT: what is needed is damaged, and the text names file, offset and record. INVALID: bad options, or another
 * run's directory. LIMIT: a record is larger than the options allow. On failure nothing of the journal or the
 * snapshots is gone; a temporary file, or a journal file that repeats what is durable, may have come. */
enum pelago_status pl_store_open(struct pl_store *s, struct pl_dir dir,
                                 const struct pl_store_options *options, const struct pl_store_reader *reader,
                                 struct pl_store_report *report, struct pl_error *err);

/* What an opening would find, read in the same way and with the same complaints; nothing is changed. s is not open
 * afterwards. */
struct pl_store_sight {
    bool fresh;        /* there is nothing */
    uint64_t last_seq; /* of the last record that counts */
    uint64_t link;     /* the history up to it */
    bool passed; /* the history up to `at` was read: it is no older than what a snapshot stands for ... */
    uint64_t at_link; /* ... and is this */
};
enum pelago_status pl_store_look(struct pl_store *s, struct pl_dir dir,
                                 const struct pl_store_options *options, uint64_t at,
                                 struct pl_store_sight *out, struct pl_error *err);

/* Makes everything durable, as far as that works, and closes the files. The store is closed in any case. */
enum pelago_status pl_store_close(struct pl_store *s, struct pl_error *err);

/* Adds a record of count parts; not durable yet. LIMIT and INVALID leave the store as it was. Any other failure
 * stops it: append, sync and snapshot_begin then return that failure until pl_store_resume succeeds. */
enum pelago_status pl_store_append(struct pl_store *s, uint32_t type, const struct pl_bytes *parts,
                                   size_t count, uint64_t *seq, struct pl_error *err);

/* Makes every appended record durable. After a failure none of those since the last good sync may be announced. */
enum pelago_status pl_store_sync(struct pl_store *s, struct pl_error *err);

/* Tries to go on after a failure, for instance when a full disk has room again: reads back what was appended and
 * not known to be durable, and begins a new file with it. When it returns OK, everything up to pl_store_last_seq is
 * durable; records after that are gone, and the caller appends them again. Otherwise try again later. */
enum pelago_status pl_store_resume(struct pl_store *s, struct pl_error *err);

/* A snapshot of the state after the last appended record. begin fixes that record (and makes the journal durable);
 * write takes the sections' bytes one after the other; records may be appended meanwhile. commit makes it durable
 * and removes what neither it nor the snapshot before it needs. When begin, write, flush or commit fail, the snapshot is
 * given up; the journal goes on unless begin failed in it. */
enum pelago_status pl_store_snapshot_begin(struct pl_store *s, const struct pl_section *sections,
                                           uint32_t count, struct pl_error *err);
enum pelago_status pl_store_snapshot_write(struct pl_store *s, const void *data, size_t len,
                                           struct pl_error *err);
/* Syncs what was written so far, so that commit has less to wait for; records wait behind either. */
enum pelago_status pl_store_snapshot_flush(struct pl_store *s, struct pl_error *err);
enum pelago_status pl_store_snapshot_commit(struct pl_store *s, struct pl_error *err);
void pl_store_snapshot_abort(struct pl_store *s);

/* Is it time for one? */
bool pl_store_wants_snapshot(const struct pl_store *s);

uint64_t pl_store_last_seq(const struct pl_store *s);    /* appended */
uint64_t pl_store_durable_seq(const struct pl_store *s); /* durable */

/* What stopped the store; OK while it works. */
enum pelago_status pl_store_failure(const struct pl_store *s);

#endif
