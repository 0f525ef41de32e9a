/* core/learner.h - one learner as a pure state machine: sessions with every shard, pulls, pushes,
 * updates, outcomes.
 *
 * Events in, effects out, as in core/syncer.h. The trainer never waits for this machine: it tells of each
 * inner step and is told, between steps, which new values to take. The machine decides what a new value
 * does to local work (ARCHITECTURE, life of a round, 7); the arithmetic is optim/apply.h, done by the host.
 *
 * Counters: `steps` and `tokens` of the whole life of this learner's checkpointed state (they continue
 * after a restart from a checkpoint). A fragment's own counters are differences to the values at its last
 * reset.
 */
#ifndef PL_CORE_LEARNER_H
#define PL_CORE_LEARNER_H

#include "core/manifest.h"
#include "core/trace.h"
#include "wire/msg.h"

#include <stdbool.h>

struct pl_learner;

struct pl_learn_options {
    uint64_t nonce;         /* drawn once per process */
    uint64_t seed;          /* of the jitter of reconnects */
    uint32_t fragments_max; /* the largest manifest it can take */
    bool local_data;        /* private data: takes no work units */
};

enum pl_link { PL_LINK_CONTROL, PL_LINK_BULK };

enum pl_learn_ev {
    PL_LEARN_EV_START = 1, /* begin; after pl_learner_load when there is a checkpoint */
    PL_LEARN_EV_OPENED,    /* a connection we asked for is up */
    PL_LEARN_EV_CLOSED,    /* ... is gone or could not be made; not sent for those we DISCONNECTed */
    PL_LEARN_EV_MSG,       /* a decoded message arrived */
    PL_LEARN_EV_BAD,       /* bytes arrived that are no message */
    PL_LEARN_EV_READY,     /* answer to MANIFEST: version 0 is in place */
    PL_LEARN_EV_STEP,      /* the trainer finished an inner step */
    PL_LEARN_EV_COPIED,    /* answer to COPY: the fragment was copied and encoded */
    PL_LEARN_EV_DECODED,   /* answer to DECODE */
    PL_LEARN_EV_APPLIED,   /* answer to APPLY */
    PL_LEARN_EV_QUIT,      /* leave politely */
    PL_LEARN_EV_TIMEOUT,   /* the deadline has passed */
};

struct pl_learn_event {
    enum pl_learn_ev kind;
    uint64_t now_ns; /* never goes back */
    union {
        struct {
            uint32_t shard;
            enum pl_link link;
            const struct pl_msg *msg;     /* MSG: borrowed for the step */
            const struct pl_error *error; /* BAD */
        } conn;                           /* OPENED, CLOSED, MSG, BAD */
        struct {
            const uint64_t *digests; /* READY: of version 0, one per fragment of the manifest */
        } ready;
        struct {
            uint64_t tokens; /* of this step */
            uint64_t loss_micro;
            uint64_t step_ns; /* its duration */
            uint64_t unit;    /* work unit in use, PL_NONE64 for none */
            uint64_t cursor;  /* tokens of it already used */
        } step;
        struct {
            uint32_t fragment;
            uint64_t round;
            uint64_t steps;  /* pl_learner_steps at the moment of the copy */
            uint64_t tokens; /* pl_learner_tokens at the moment of the copy */
            uint64_t bytes;  /* of the encoded contribution; 0: it could not be encoded */
            uint64_t digest;
        } copied;
        struct {
            uint32_t fragment;
            uint64_t version;
            bool good; /* decoded and the new anchor has the digest the header named */
        } decoded;
        struct {
            uint32_t fragment;
            uint64_t version;
            uint64_t steps; /* at the moment the new value took effect */
            uint64_t tokens;
        } applied;
    } u;
};

/* What a new value does to local work (docs/protocol.md, "the outcome"). */
enum pl_outcome {
    PL_OUTCOME_MERGED, /* the pending push is in it: commit the new residual; theta += new - snapshot */
    PL_OUTCOME_KEPT,   /* it is not: keep the old residual; theta += new - anchor */
    PL_OUTCOME_DISCARD /* local work does not count any more: theta = new, residual = 0 */
};

enum pl_learn_fx {
    PL_LEARN_FX_CONNECT = 1, /* dial a shard; answer OPENED or CLOSED */
    PL_LEARN_FX_DISCONNECT,  /* send CLOSE with reason and text, then drop the connection or the dialling */
    PL_LEARN_FX_SEND,     /* one message; an unsent REPORT to the same shard may be replaced by a newer one */
    PL_LEARN_FX_MANIFEST, /* the run's manifest: build version 0, then say READY */
    PL_LEARN_FX_COPY,   /* copy this fragment when parameters stand still, encode anchor - theta + residual */
    PL_LEARN_FX_PUSH,   /* send the chunks not in mask of the encoded contribution; header first when told */
    PL_LEARN_FX_CANCEL, /* drop snapshot, encoded bytes and new residual of this round; stop sending */
    PL_LEARN_FX_KEEP,   /* put the chunk of the DATA message just delivered into the update buffer */
    PL_LEARN_FX_DECODE, /* the update is complete: decode it onto a copy of the anchor, check the digest */
    PL_LEARN_FX_FORGET, /* free the update buffer of this fragment */
    PL_LEARN_FX_APPLY,  /* between steps: take the decoded value, free what it came in, then say APPLIED */
    PL_LEARN_FX_UNIT,   /* a work unit for the trainer */
    PL_LEARN_FX_CLOCK,  /* the run's token clock: the learning-rate schedule follows it */
    PL_LEARN_FX_STOP,   /* the budget is reached: no more inner steps */
    PL_LEARN_FX_DONE,   /* leave: the run is complete, or QUIT was served */
    PL_LEARN_FX_FATAL,  /* leave: this process may not take part; the text says why */
    PL_LEARN_FX_TRACE,
};

struct pl_learn_effect {
    enum pl_learn_fx kind;
    union {
        struct {
            uint32_t shard;
            enum pl_link link;
            enum pl_reason reason;      /* DISCONNECT */
            struct pl_msg msg;          /* SEND; arrays borrowed until the next step */
            char text[PL_TEXT_MAX + 1]; /* DISCONNECT, FATAL, DONE */
        } conn;
        struct {
            const struct pl_msg_manifest *manifest; /* borrowed until the next step: the host keeps a copy */
        } manifest;
        struct {
            uint32_t fragment;
            uint64_t round;
            uint32_t shard;          /* PUSH */
            bool header;             /* PUSH: send the header first */
            struct pl_msg_push push; /* PUSH */
            uint64_t mask;           /* PUSH: chunks already there */
        } push;                      /* COPY, PUSH, CANCEL */
        struct {
            uint32_t fragment;
            uint64_t from_version; /* PL_NONE64: the payload is the full value */
            uint64_t to_version;
            uint64_t digest;
            uint64_t bytes;          /* of the whole payload */
            uint32_t index;          /* KEEP: chunk number */
            enum pl_outcome outcome; /* APPLY */
            bool commit_residual;    /* APPLY: the pending's new residual is the residual from now on */
            uint64_t round;          /* APPLY, MERGED: the pending round */
        } update;                    /* KEEP, DECODE, FORGET, APPLY */
        struct {
            uint64_t unit;
            uint64_t cursor;
        } unit;
        struct {
            uint64_t tokens;
            uint64_t rate;
        } clock;
        struct pl_trace trace;
    } u;
};

struct pl_learn_fxs {
    struct pl_learn_effect *fx; /* caller's array of pl_learner_effects_max entries */
    uint32_t count;
    uint32_t max;
};

size_t pl_learner_bytes(const struct pl_learn_options *o);
uint32_t pl_learner_effects_max(const struct pl_learn_options *o);
struct pl_learner *pl_learner_init(void *memory, size_t bytes, const struct pl_learn_options *o);
void pl_learner_step(struct pl_learner *l, const struct pl_learn_event *ev, struct pl_learn_fxs *out);
uint64_t pl_learner_deadline(const struct pl_learner *l);
void pl_learner_check(const struct pl_learner *l);

/* Inner steps and tokens of this learner's state, counted by the STEP events delivered so far. */
uint64_t pl_learner_steps(const struct pl_learner *l);
uint64_t pl_learner_tokens(const struct pl_learner *l);
uint64_t pl_learner_version(const struct pl_learner *l, uint32_t fragment, uint64_t *digest);
bool pl_learner_live(const struct pl_learner *l, uint32_t shard);

/* The protocol's part of a checkpoint: per fragment version, digest, counters, last merged round; clock, run. Consistent with the tensors when the host saves both between two steps with no APPLY
 * outstanding. A pending push is not saved: after a restart local work is kept only if the syncer's last
 * merged round is the one saved. Load before START; the manifest was kept by the host and passed pl_manifest_check. */
size_t pl_learner_save_bytes(const struct pl_learner *l);
size_t pl_learner_save(const struct pl_learner *l, uint8_t *out, size_t cap);
enum pelago_status pl_learner_load(struct pl_learner *l, const struct pl_msg_manifest *manifest,
                                   const uint8_t *bytes, size_t len, struct pl_error *err);

#endif
