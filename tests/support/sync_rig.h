/* support/sync_rig.h - a small host around one syncer shard, in memory, for tests and the fuzzer.
 *
 * It owns the memory, stamps time, sends messages through encode, frame and decode, performs effects and checks the
 * host's side of the contract: buffers that are verified are complete, what is merged was verified, what is published
 * is durable, nothing is sent on a closed connection, every message is within its limits. After every step the
 * shard's own invariants are checked; a deadline of "now" that never passes is a failure.
 *
 * VERIFY, MERGE and STORE are answered at once, held back, or answered badly, as told. Effects since the last
 * rig_forget are kept, so that a test can ask what was sent. The whole world can be marked and rewound.
 *
 * Peers are scripted learners: they do what a test tells them and nothing by themselves. Failures are assertions
 * (base/check.h), so that the fuzzer can use the rig without cmocka.
 */
#ifndef PL_TEST_SYNC_RIG_H
#define PL_TEST_SYNC_RIG_H

#include "core/syncer.h"

enum {
    RIG_PEERS = 16,
    RIG_FRAGMENTS = 16,
    RIG_CONNS = 48,
    RIG_ANSWERS = 64,
    RIG_LOG = 8192,
    RIG_RECORD_BYTES = 2048,
    RIG_SAVE_BYTES = 8192,
};

struct rig_options {
    uint32_t fragments, shards, shard, quorum, overlap, period, gamma_ppm, learners_max;
    uint64_t budget, unit_tokens, step_tokens_max, full_bytes, push_bytes_max;
};

struct rig_conn {
    bool open;
    uint32_t peer; /* PL_NONE32: opened by hand */
};

struct rig_pull {
    bool open;
    uint64_t round, base, at_ns;
};

struct rig_update {
    bool open;
    struct pl_msg_update header;
};

/* A scripted learner. Tests may change any field. */
struct rig_peer {
    uint64_t identity, nonce, incarnation, steps, tokens, unit, cursor;
    uint32_t flags, control, bulk;
    uint64_t have[RIG_FRAGMENTS];   /* version it says it holds, by fragment number */
    uint64_t pushed[RIG_FRAGMENTS]; /* steps at its last push */
    struct rig_pull pull[RIG_FRAGMENTS];
    struct rig_update update[RIG_FRAGMENTS];
};

struct rig_answer {
    enum pl_sync_ev kind; /* VERIFIED, MERGED or STORED */
    uint32_t learner, fragment;
    uint64_t round, seq;
};

/* What the host holds of a learner's push. */
struct rig_push {
    bool used, verified;
    uint64_t round, bytes, mask;
};

/* The host's side of a fragment. */
struct rig_fragment {
    uint64_t version; /* published */
    uint64_t oldest;  /* encoded updates from this version on are kept */
    bool staged, durable;
};

struct rig {
    struct rig_options o;
    uint64_t now_ns, step_ns, update_bytes;
    bool hold_verify, hold_merge, hold_store; /* keep answers until rig_answer */
    bool bad_verify, bad_merge, bad_store;    /* answers given by themselves are "no" */
    bool listening, finished;
    uint32_t spins;       /* steps in a row whose deadline was now */
    uint32_t steps_full;  /* steps whose effects did not fit */
    uint32_t answers_len; /* waiting, oldest first */
    struct rig_answer answers[RIG_ANSWERS];
    struct rig_conn conns[RIG_CONNS];
    struct rig_peer peers[RIG_PEERS];
    struct rig_push pushes[RIG_PEERS][RIG_FRAGMENTS];
    struct rig_fragment fragments[RIG_FRAGMENTS];
    uint64_t boots;
    size_t snapshot_len;
    uint32_t record_count; /* durable, after the snapshot */
    uint32_t log_len;
    size_t pool_len;
    /* not part of a mark */
    struct pl_syncer *s;
    struct pl_msg_manifest manifest;
    struct pl_sync_options so;
    struct pl_sync_fxs fxs;
    struct rig_store *store;
    void *memory;
    size_t memory_bytes;
    struct pl_sync_effect *log;
    uint8_t *pool;   /* what messages in the log point into */
    uint8_t *frames; /* one message on its way */
};

struct rig_options rig_defaults(void); /* 1 shard, 2 fragments, K 2, tau 1, H 4, 4 identities */
void rig_init(struct rig *r, const struct rig_options *o); /* and boots it */
void rig_again(struct rig *r,
               const struct rig_options *o); /* the same, in the memory of a used one: faster */
void rig_release(struct rig *r);

/* ---- events ---- */

void rig_step(struct rig *r, const struct pl_sync_event *ev);
uint32_t rig_open(struct rig *r, uint64_t identity);
void rig_close(struct rig *r, uint32_t conn);
void rig_send(struct rig *r, uint32_t conn, const struct pl_msg *msg);
/* Bytes as they come from a stream: whole frames are messages, the first bad one ends it, a rest is dropped. */
void rig_bytes(struct rig *r, uint32_t conn, const uint8_t *bytes, size_t len);
void rig_advance(struct rig *r, uint64_t ns);
void rig_advance_until(struct rig *r, uint64_t at_ns);
/* The oldest answer of this kind that waits; false when there is none. */
bool rig_answer(struct rig *r, enum pl_sync_ev kind, bool good);
bool rig_waits(const struct rig *r, enum pl_sync_ev kind);

/* ---- durability ---- */

size_t rig_save(const struct rig *r, uint8_t out[static RIG_SAVE_BYTES]);
void rig_snapshot(struct rig *r); /* the journal begins anew after it */
/* Power cut and restart: the snapshot and the durable records, then BOOT. Connections and answers are gone. */
void rig_recover(struct rig *r);
/* The state that the snapshot and the durable records give, in a shard of its own, before BOOT. */
size_t rig_save_recovered(const struct rig *r, uint8_t out[static RIG_SAVE_BYTES]);
uint32_t rig_record(const struct rig *r, uint32_t i, struct pl_record *out,
                    struct pl_contributor *contributors);

/* ---- what happened since the last rig_forget ---- */

void rig_forget(struct rig *r);
/* The last one, NULL for none. */
const struct pl_msg *rig_sent(const struct rig *r, uint32_t conn, uint8_t type);
const struct pl_sync_effect *rig_effect(const struct rig *r, enum pl_sync_fx kind);
uint32_t rig_effects(const struct rig *r, enum pl_sync_fx kind);
uint32_t rig_sent_count(const struct rig *r, uint32_t conn, uint8_t type);
const struct pl_trace *rig_traced(const struct rig *r, enum pl_trace_code code);
uint32_t rig_traces(const struct rig *r, enum pl_trace_code code);
/* The text of the CLOSE or REFUSE of this connection, NULL when it was not closed. */
const struct pl_sync_effect *rig_closed(const struct rig *r, uint32_t conn);

/* ---- peers ---- */

uint64_t rig_digest(uint32_t fragment, uint64_t version);
uint64_t rig_identity(uint32_t i); /* of peer i: 10, 20, ... */
void rig_hello(struct rig *r, uint32_t i);
void rig_join(struct rig *r, uint32_t i);
void rig_attach(struct rig *r, uint32_t i);
void rig_up(struct rig *r, uint32_t i); /* all three */
void rig_up_many(struct rig *r, uint32_t count);
void rig_down(struct rig *r, uint32_t i);    /* its connections break */
void rig_restart(struct rig *r, uint32_t i); /* a new process of it, not yet connected */
bool rig_live(const struct rig *r, uint32_t i);
void rig_report(struct rig *r, uint32_t i, uint64_t steps);
void rig_push_header(struct rig *r, uint32_t i, uint32_t fragment, uint64_t bytes);
void rig_push_chunk(struct rig *r, uint32_t i, uint32_t fragment, uint64_t bytes, uint32_t index);
bool rig_push(struct rig *r, uint32_t i, uint32_t fragment); /* answers its open pull, in one chunk */
bool rig_skip(struct rig *r, uint32_t i, uint32_t fragment);
bool rig_have(struct rig *r, uint32_t i, uint32_t fragment); /* applies its open update */
void rig_obey(struct rig *r, uint32_t i);                    /* applies all updates, answers all pulls */
/* Time passes; connected peers do nothing but say that they are there. */
void rig_rest(struct rig *r, uint64_t ns);
/* Every connected peer does a step and reports it, and one step of time passes; then, with obey, all answer. */
void rig_tick(struct rig *r, bool obey);
/* Goes on, with everyone obeying, until the fragment has this version; false after 1000 ticks. */
bool rig_run_to(struct rig *r, uint32_t fragment, uint64_t version);
/* Goes on until peer i has an open pull of the fragment; nobody answers meanwhile. */
bool rig_run_to_pull(struct rig *r, uint32_t i, uint32_t fragment);

/* ---- marks ---- */

struct rig_mark {
    struct rig rig;
    uint8_t *memory;
};
void rig_mark(const struct rig *r, struct rig_mark *m); /* m zeroed before its first use */
void rig_rewind(struct rig *r, const struct rig_mark *m);
void rig_mark_release(struct rig_mark *m);

#endif
