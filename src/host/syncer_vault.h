/* host/syncer_vault.h - the journal of a shard, between syncer_vault.c (writing) and syncer_recover.c (reading).
 *
 *   record    u32 length of the core's part, the core's part (core/record.h); then for ROUND:
 *             u64 digest of the new global value (Theta), u64 token clock when the merge began, f64 effective number of
 *             contributions (optim/rule.h), u32 contributors; of each f32 sample of agreement (NAN none) and u8: 1 it
 *             was left out, 2 its learner had not been compared for long
 *             u32 n: 0, then the merged outer gradient, fp32; else the n encoded contributions that were merged, in the
 *             order of the contributors, each as long as codec and fragment say
 *             the update: u32 length, packed encoding
 *   snapshot  section 1: the core's state; section 2: per fragment theta, momentum, broadcast (fp32), in the order of
 *             section 5; section 3: u64 x 2 tokens x values merged so far, low half first; section 4: what the merge rule
 *             remembers (syncer_trust.c); section 5, before section 2: per fragment u32 its place among the shard's.
 *             Without it, as snapshots were written up to version 0.1, they lie in the order of their numbers.
 *
 * The store belongs to the jobs of one queue; the loop's thread only hands them what to write.
 */
#ifndef PL_HOST_SYNCER_VAULT_H
#define PL_HOST_SYNCER_VAULT_H

#include "base/bits.h"
#include "base/num.h"
#include "host/syncer_host_int.h"

#include <string.h>

enum {
    PL_SECTION_CORE = 1,
    PL_SECTION_VALUES,
    PL_SECTION_COUNTERS,
    PL_SECTION_RULE,
    PL_SECTION_ORDER,
    PL_VAULT_SECTIONS = 5
};
enum { PL_VAULT_COUNTERS_BYTES = 16, PL_ROUND_HEAD_BYTES = 28, PL_OPINION_BYTES = 5 };

/* A record on its way. */
struct pl_store_entry {
    struct pl_store_entry *next;
    uint64_t core_seq;
    uint32_t type;
    struct pl_shard_fragment *fragment; /* ROUND: its staged merge goes with it */
    uint64_t asked_ns;
    uint64_t bytes;
    bool durable;
    size_t len;
    uint8_t core[]; /* u32 length, the core's part; ROUND: what comes before n */
};

struct pl_store_batch {
    struct pl_job job;
    struct pl_syncer_host *h;
    struct pl_store_entry *first;
    uint64_t appended; /* bytes */
    bool synced;
    struct pl_error error;
    bool lost; /* records that were taken for durable are gone: relaxed only */
};

struct pl_snapshot_job {
    struct pl_job job;
    struct pl_syncer_host *h;
    struct pl_buf core;
    uint8_t counters[PL_VAULT_COUNTERS_BYTES];
    struct pl_buf rule;
    struct pl_buf order;       /* section 5 */
    struct pl_values **values; /* [fragment_count] in that order, kept until written */
    uint32_t fragment, array;  /* what comes next */
    uint64_t offset;
    bool begun, ended, good;
    struct pl_error error;
};

struct pl_vault {
    struct pl_store store;
    struct pl_store_options options;
    struct pl_dir_mirror mirror;
    struct pl_dir dir; /* what the store writes to */
    struct pl_work_queue queue;
    bool open;
    /* Of the jobs. */
    uint32_t unsynced;    /* records since the last sync; relaxed */
    uint64_t trusted_seq; /* highest number said to be durable */
    bool wants_snapshot;  /* published by a job's end */
    /* Of the loop's thread. */
    struct pl_store_entry *first, *last; /* not yet with a job */
    struct pl_store_batch batch;
    bool writing;
    uint32_t stores_out; /* STOREs not yet answered */
    struct pl_snapshot_job *snapshot;
    uint64_t snapshot_retry_ns;
    struct pl_average latency; /* from asking to durable */
    struct pl_vault_view view;
    /* While recovering. */
    struct pl_buf section[PL_VAULT_SECTIONS];
    struct pl_contributor *contributors;
    bool loaded;
    struct pl_error refused;
    struct pl_packer *packer;
    float *delta;     /* [largest] */
    uint8_t *encoded; /* [encoded_bytes] */
    uint64_t encoded_bytes;
};

enum pelago_status pl_vault_recover(struct pl_syncer_host *h, struct pl_error *err);

#endif
