/* tests/support/memdisk.h - a store on a simulated disk, and an oracle that knows what it must remember.
 *
 * The world appends records whose bytes follow from a counter that is never used twice, so that a record which was
 * dropped and comes back is told from its successor. The "state" a snapshot holds is the number of records and a
 * digest over all of them, plus filler that makes it span blocks. After every opening the oracle compares.
 */
#ifndef PL_TESTS_MEMDISK_H
#define PL_TESTS_MEMDISK_H

#include "base/alloc.h"
#include "sim/disk.h"
#include "store/store.h"

enum {
    WORLD_RECORDS_MAX = 4096,
    WORLD_RECORD_BYTES_MAX = 4000,
    WORLD_TAG_STATE = 1,
    WORLD_TAG_FILLER = 2,
    WORLD_TAG_EMPTY = 3,
};

/* An allocator that counts, and fails from the n-th request on when told to. */
struct counting_alloc {
    struct pl_alloc alloc;
    uint64_t requests;
    uint64_t fail_at;    /* PL_NEVER: none */
    uint64_t fail_times; /* how many in a row */
    int64_t bytes;       /* in use */
};
void counting_alloc_init(struct counting_alloc *a);

struct world {
    struct counting_alloc memory;
    struct pl_disk *disk;
    struct pl_prng prng; /* the script's own */
    struct pl_store store;
    struct pl_store_options options;
    struct pl_store_report report;
    struct pl_error error;
    bool open;
    uint64_t stamp;                      /* last counter used for a record's content */
    uint64_t stamps[WORLD_RECORDS_MAX];  /* [seq] */
    uint64_t digests[WORLD_RECORDS_MAX]; /* [seq] of all records up to it */
    uint64_t last_seq;                   /* appended with OK */
    uint64_t maybe_seq; /* last_seq, or one more whose append failed: a later opening may find it whole */
    uint64_t acked_seq; /* synced with OK, or found by an opening */
    uint64_t filler_bytes;
    bool no_snapshots; /* world_act takes none */
    bool quiet;        /* nothing is appended while a snapshot is written */
    uint64_t read_seq; /* while opening: the state being rebuilt */
    uint64_t read_digest;
    uint64_t filler_read;
    uint8_t snapshot_state[16];
    uint8_t scratch[2 * (PL_BLOCK_MEMORY_BYTES + 64)];
};

/* A fresh disk and nothing on it. The seed decides the disk's whims and the script. */
void world_init(struct world *w, uint64_t seed);
void world_release(struct world *w);

/* The bytes of the record with this stamp; returns the length. */
size_t world_record(uint64_t stamp, uint8_t out[static WORLD_RECORD_BYTES_MAX], uint32_t *type);

/* Opens the store and checks what comes back against the oracle. Fails the test when an acknowledged record is
 * missing or anything differs; returns other failures. */
enum pelago_status world_open(struct world *w);
enum pelago_status world_append(struct world *w);
enum pelago_status world_sync(struct world *w);
/* With appends in between. */
enum pelago_status world_snapshot(struct world *w);
enum pelago_status world_resume(struct world *w);
void world_close(struct world *w);
void world_power_cut(struct world *w);
void world_process_dies(struct world *w);

/* One random action of a running store; resumes when it is stopped. */
enum pelago_status world_act(struct world *w);

#endif
