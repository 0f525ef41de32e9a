/* core/syncer.h - one syncer shard as a pure state machine.
 *
 * Events in, effects out: the host (the simulator, later one with sockets and disks) stamps every event with the time, calls
 * pl_syncer_step, and performs the effects in order. Tensors never pass through: the shard knows fragments by
 * number, version and digest; the host moves and merges bytes. The shard decides in integers only and owns no
 * memory, clock, file or socket.
 *
 * The life of a round is told in ARCHITECTURE.md; the rules it keeps are numbered in docs/invariants.md.
 * A peer's mistake is answered by a CLOSE effect with a reason, never by an assertion.
 */
#ifndef PL_CORE_SYNCER_H
#define PL_CORE_SYNCER_H

#include "core/manifest.h"
#include "core/record.h"
#include "core/trace.h"
#include "wire/msg.h"

#include <stdbool.h>

struct pl_syncer;

struct pl_sync_options {
    const struct pl_msg_manifest *manifest; /* borrowed for the shard's life, with its arrays; validated */
    uint64_t manifest_digest;               /* pl_manifest_digest of it */
    uint32_t shard;                         /* which shard this is; 0 is home */
    uint32_t learners_max;                  /* identities it can know at once */
    uint32_t conns_max;                     /* connection numbers the host uses are below this */
};

enum pl_sync_ev {
    PL_SYNC_EV_BOOT = 1, /* the store has been read (load, replay); begin a new life */
    PL_SYNC_EV_OPENED,   /* a peer's connection is up and authenticated as this identity */
    PL_SYNC_EV_CLOSED,   /* ... is gone; not sent for connections closed by a CLOSE effect */
    PL_SYNC_EV_MSG,      /* a decoded message arrived */
    PL_SYNC_EV_BAD,      /* bytes arrived that are no message; the text says why */
    PL_SYNC_EV_VERIFIED, /* answer to VERIFY */
    PL_SYNC_EV_MERGED,   /* answer to MERGE */
    PL_SYNC_EV_STORED,   /* answer to STORE */
    PL_SYNC_EV_TIMEOUT,  /* the deadline has passed */
    PL_SYNC_EV_FINISH,   /* an operator ends the run now, as if its budget were reached; home shard only */
    PL_SYNC_EV_DOUBT, /* what a learner says it did is believed no more, or again; also allowed before BOOT */
};

struct pl_sync_event {
    enum pl_sync_ev kind;
    uint64_t now_ns; /* never goes back */
    union {
        struct {
            /* The epoch is at least that, up to PL_EPOCH_LEAST_MAX: who begins from an older copy of the store than the
             * last life wrote to must not name rounds and incarnations as that did. 0: the next one will do. */
            uint64_t epoch_least;
        } boot;
        struct {
            uint32_t conn;
            uint64_t identity; /* from the peer's certificate; not 0 */
        } opened;
        struct {
            uint32_t conn;
        } closed;
        struct {
            uint32_t conn;
            const struct pl_msg *msg; /* borrowed for the step; passed pl_msg_decode */
        } msg;
        struct {
            uint32_t conn;
            const struct pl_error *error;
        } bad;
        struct {
            uint32_t learner;
            uint32_t fragment;
            uint64_t round;
            bool good; /* digest equal, decodable, finite */
        } verified;
        struct {
            uint32_t fragment;
            uint64_t round;
            uint64_t digest; /* of broadcast at the new version */
            uint64_t update_bytes;
            bool good; /* false: the result was not finite; nothing changed */
        } merged;
        struct {
            uint64_t seq;
            bool durable; /* false: it could not be written; it will be asked again */
        } stored;
        struct {
            uint64_t identity; /* one that is not known is nothing to the shard */
            bool doubted;
        } doubt;
    } u;
};

enum pl_sync_fx {
    PL_SYNC_FX_LISTEN = 1, /* the new life is durable: accept connections */
    PL_SYNC_FX_SEND,       /* one message on one connection */
    PL_SYNC_FX_CLOSE,      /* send CLOSE (or REFUSE) with reason and text, then drop the connection */
    PL_SYNC_FX_KEEP,   /* put the chunk of the DATA message just delivered into the learner's push buffer */
    PL_SYNC_FX_VERIFY, /* the push is complete: check digest and numbers, then say VERIFIED */
    PL_SYNC_FX_DISCARD, /* free the learner's push buffer for this fragment; its VERIFY is off: no VERIFIED follows */
    PL_SYNC_FX_MERGE, /* combine these pushes in this order, free their buffers, say MERGED; do not commit */
    PL_SYNC_FX_STORE, /* make this record (with the staged merge for ROUND) durable, then say STORED */
    PL_SYNC_FX_PUBLISH,  /* commit the staged merge: it is durable */
    PL_SYNC_FX_DELIVER,  /* send an UPDATE header and the chunks not in mask on a bulk connection */
    PL_SYNC_FX_FINISHED, /* the run is complete and everyone here has it */
    PL_SYNC_FX_TRACE,    /* one line for humans */
};

struct pl_sync_effect {
    enum pl_sync_fx kind;
    union {
        struct {
            uint32_t conn;
            struct pl_msg msg; /* arrays borrowed until the next step */
        } send;
        struct {
            uint32_t conn;
            enum pl_reason reason;
            bool refuse; /* send REFUSE instead of CLOSE */
            char text[PL_TEXT_MAX + 1];
        } close;
        struct {
            uint32_t learner;
            uint32_t fragment;
            uint64_t round;
            uint64_t bytes;  /* KEEP, VERIFY: size of the whole push */
            uint64_t digest; /* VERIFY */
            uint64_t steps;  /* VERIFY: as the PUSH that was accepted claims */
            uint32_t index;  /* KEEP: chunk number */
        } push;
        struct {
            uint32_t fragment;
            uint64_t round;
            uint64_t base_version;
            bool closing; /* the fragment's last: it takes what is left of everybody's work */
            uint32_t contributor_count;
            const struct pl_contributor *contributors; /* by identity; borrowed until the next step */
        } merge;
        struct {
            uint64_t seq;
            const struct pl_record *record; /* borrowed until the next step */
        } store;
        struct {
            uint32_t fragment;
            uint64_t version;
            uint64_t oldest; /* encoded updates from this version on are still wanted for chains */
        } publish;
        struct {
            uint32_t conn;
            struct pl_msg_update header;
            uint64_t mask;
        } deliver;
        struct pl_trace trace;
    } u;
};

struct pl_sync_fxs {
    struct pl_sync_effect *fx; /* caller's array of pl_syncer_effects_max entries */
    uint32_t count;
    uint32_t max;
};

size_t pl_syncer_bytes(const struct pl_sync_options *o);
uint32_t pl_syncer_effects_max(const struct pl_sync_options *o);

/* Into caller memory of pl_syncer_bytes, aligned to 8. Options were checked with pl_manifest_check. */
struct pl_syncer *pl_syncer_init(void *memory, size_t bytes, const struct pl_sync_options *o);

/* Cannot fail. May leave work for a deadline of "now" when there is more than fits into one step. */
void pl_syncer_step(struct pl_syncer *s, const struct pl_sync_event *ev, struct pl_sync_fxs *out);

/* When to send TIMEOUT; PL_NEVER for not at all. */
uint64_t pl_syncer_deadline(const struct pl_syncer *s);

/* Version 0 follows from the seed: the host tells its digest per fragment of this shard before BOOT. */
void pl_syncer_set_origin(struct pl_syncer *s, uint32_t fragment, uint64_t digest);

/* Durable state: save between steps; load into a fresh shard, then replay the records after it, then BOOT. */
size_t pl_syncer_save_bytes(const struct pl_syncer *s);
size_t pl_syncer_save(const struct pl_syncer *s, uint8_t *out, size_t cap);
enum pelago_status pl_syncer_load(struct pl_syncer *s, const uint8_t *bytes, size_t len,
                                  struct pl_error *err);
enum pelago_status pl_syncer_replay(struct pl_syncer *s, const struct pl_record *r, struct pl_error *err);

/* Asserts every invariant that can be seen from inside; for tests and the simulator. */
void pl_syncer_check(const struct pl_syncer *s);

enum pl_phase { PL_PHASE_RUNNING, PL_PHASE_CLOSING, PL_PHASE_DONE };

/* What status pages show. */
struct pl_sync_view {
    uint64_t epoch, tick, interval_ns, clock_tokens, rate_tokens;
    uint64_t seen_tokens; /* the token clock as far as this shard has heard; at home it is the clock */
    uint64_t rounds_merged, rounds_void, rounds_busy;
    uint64_t rounds_graced; /* of those merged: at their deadline, without whoever was missing */
    uint64_t grace_late_ns; /* the longest time by which a merge began after its deadline */
    uint64_t sync_ns;       /* from the start of a merge until it is announced, running average */
    uint32_t known, live, quorum;
    uint32_t overlap_eff; /* tau_eff of the K-th best learner */
    uint32_t period_eff;  /* H times the stretch: docs/decisions/0002 */
    enum pl_phase phase;
    bool reborn; /* the store had a life before this one */
};
struct pl_learner_view {
    uint64_t identity, incarnation, nonce, steps, tokens, lead_ns, step_ns;
    uint64_t rounds_pulled, rounds_merged;
    uint32_t stride;
    bool live;
};
void pl_syncer_view(struct pl_syncer *s, struct pl_sync_view *out); /* uses the shard's scratch memory */
bool pl_syncer_view_learner(const struct pl_syncer *s, uint32_t learner,
                            struct pl_learner_view *out); /* false: free */
bool pl_syncer_view_identity(const struct pl_syncer *s, uint64_t identity,
                             struct pl_learner_view *out); /* false: not known */
uint64_t pl_syncer_version(const struct pl_syncer *s, uint32_t fragment, uint64_t *digest);

#endif
