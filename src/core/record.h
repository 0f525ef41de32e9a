/* core/record.h - what a syncer shard writes down so that a crash loses nothing that was announced.
 *
 * A record is metadata only; the host appends the tensors that go with it (ROUND: the merged outer gradient and the
 * encoded update) as further parts of the same journal record. Fields are little-endian, in the order of the structs.
 */
#ifndef PL_CORE_RECORD_H
#define PL_CORE_RECORD_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

enum pl_record_type {
    PL_RECORD_BOOT = 1, /* a new life of the shard; its rounds and incarnations carry this epoch */
    PL_RECORD_ROUND,    /* a fragment went up by one version */
    PL_RECORD_LEASE,    /* a work unit was given out, or is finished: its cursor is at the end */
    PL_RECORD_DONE,     /* every closing round is behind us */
};

/* One learner's part in a round, and what the shard knew of it then. */
struct pl_contributor {
    uint32_t learner;     /* slot, for the host's push buffers; not stored */
    uint64_t identity;    /* contributors stand in ascending order of identity: the order of summation */
    uint64_t incarnation; /* of the process that pushed */
    uint64_t steps;       /* inner steps in the contribution; at least 1 */
    uint64_t tokens;      /* tokens in the contribution */
    uint64_t seen_tokens; /* tokens this process had reported */
    uint64_t past_tokens; /* tokens of this identity's earlier processes */
    uint64_t unit;        /* work unit in use, PL_NONE64 for none */
    uint64_t cursor;      /* tokens of it already used */
};

struct pl_record {
    enum pl_record_type type;
    uint64_t epoch;
    uint64_t clock_tokens; /* the run's token clock, home shard only */
    uint64_t tick;         /* the shard's clock t */
    /* ROUND */
    uint32_t fragment; /* number in the manifest */
    uint64_t round;
    uint64_t version;      /* the new one; it builds on version - 1 */
    uint64_t digest;       /* of the broadcast value at that version */
    uint64_t update_bytes; /* size of the encoded update */
    uint32_t contributor_count;
    const struct pl_contributor *contributors; /* borrowed; valid until the next step */
    /* LEASE */
    uint64_t unit;
    uint64_t cursor;
    uint64_t identity;
};

size_t pl_record_bytes(const struct pl_record *r);
size_t pl_record_bytes_max(uint32_t learners_max);

/* Writes pl_record_bytes(r) bytes. */
size_t pl_record_encode(const struct pl_record *r, uint8_t *out, size_t cap);

/* Reads one record into *r and its contributors into the caller's array; CORRUPT with a text when it does not
 * parse, LIMIT when there are more than contributors_max. */
enum pelago_status pl_record_decode(const uint8_t *bytes, size_t len, struct pl_record *r,
                                    struct pl_contributor *contributors, uint32_t contributors_max,
                                    struct pl_error *err);

#endif
