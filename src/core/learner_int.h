/* core/learner_int.h - the learner's state and what its files share; for them and their tests only.
 *
 * learner.c           events in: dispatch, trainer's steps, timers
 * learner_session.c   connections with shards: dial, HELLO ... JOIN, ATTACH, loss, back-off, the ways out
 * learner_fragment.c  PULL, copy, push, DROP
 * learner_update.c    UPDATE, chunks, the outcome, APPLIED
 * learner_save.c      the checkpoint's part, and the invariants
 *
 * All state is plain data in the caller's memory: no pointer is kept, neither into events nor into itself.
 */
#ifndef PL_CORE_LEARNER_INT_H
#define PL_CORE_LEARNER_INT_H

#include "core/learner.h"

#include "base/check.h"
#include "base/prng.h"

enum { PL_SHARD_HOME = 0 };

enum pl_session_state {
    PL_SESSION_DOWN,     /* no connection; dialled when control.at_ns has come */
    PL_SESSION_DIALING,  /* CONNECT is out */
    PL_SESSION_GREETING, /* HELLO is out */
    PL_SESSION_JOINING,  /* welcome; waits for MANIFEST or READY */
    PL_SESSION_LIVE,     /* JOIN is out: takes part */
    PL_SESSION_DONE,     /* the shard said DONE: never dialled again */
};

enum pl_bulk_state { PL_BULK_DOWN, PL_BULK_DIALING, PL_BULK_ATTACHING, PL_BULK_UP };

/* When to dial a link again. */
struct pl_retry {
    uint64_t at_ns;
    uint64_t up_ns; /* since when the link is in use, PL_NEVER when it is not */
    uint32_t tries; /* in a row that did not last */
};

struct pl_session {
    enum pl_session_state state;
    enum pl_bulk_state bulk; /* not DOWN only while LIVE */
    bool manifest_due;       /* JOINING: WELCOME named a manifest we do not have */
    uint64_t manifest_digest;
    uint64_t heartbeat_ns;
    uint64_t greeted_ns;  /* HELLO went out */
    uint64_t attached_ns; /* ATTACH went out */
    uint64_t heard_ns, sent_ns, pinged_ns;
    uint64_t tick;      /* of the shard's last CLOCK; 0 none */
    uint64_t left_tick; /* what that was at the last JOIN: we were in touch until then, at least */
    uint64_t back_tick; /* of the first CLOCK since; PL_NONE64: it has not come */
    struct pl_retry control_retry, bulk_retry;
};

enum pl_pending_state { PL_PENDING_NONE, PL_PENDING_COPYING, PL_PENDING_READY };

/* A contribution from its copy to its outcome. */
struct pl_pending {
    enum pl_pending_state state;
    uint64_t round;
    uint64_t base_version;
    uint64_t steps, tokens; /* of the learner's life, at the copy */
    uint64_t bytes, digest; /* of the encoded contribution */
    uint64_t there;         /* while ATTACHED is read: chunks the syncer has */
    bool listed;            /* while ATTACHED is read: the syncer has the header */
};

enum pl_update_state { PL_UPDATE_NONE, PL_UPDATE_RECEIVING, PL_UPDATE_DECODING, PL_UPDATE_APPLYING };

struct pl_incoming {
    enum pl_update_state state;
    enum pl_outcome outcome; /* APPLYING */
    bool reset;
    bool older; /* came before the last JOIN: shows nothing about how far we are behind */
    uint64_t from_version, to_version, digest, bytes, last_merged;
    uint64_t mask;          /* chunks that are here */
    uint64_t steps, tokens; /* APPLYING, MERGED: the pending's at the copy */
};

struct pl_learn_fragment {
    /* From the manifest. */
    uint32_t shard;
    uint64_t full_bytes, push_bytes_max, update_bytes_max;
    /* What the checkpoint keeps. */
    uint64_t version, digest;
    uint64_t last_merged; /* as the last applied UPDATE said; 0 for none */
    uint64_t base_steps,
        base_tokens; /* of the learner's life, at the last reset of this fragment's counters */
    /* What it does not. */
    bool returning;                 /* since JOIN nothing has shown that we are not behind */
    uint64_t joined_version;        /* returning: what JOIN said we have */
    bool fetching;                  /* FETCH is out, not yet answered */
    uint64_t round_min;             /* PULLs of earlier rounds are old news */
    uint64_t want_round, want_base; /* a PULL that waits for its base; round 0 for none */
    struct pl_pending pending;
    struct pl_incoming update;
};

struct pl_learner {
    struct pl_learn_options options;
    struct pl_prng prng;
    uint64_t now_ns;
    bool started, over;
    bool ready;                                    /* the model is in place */
    bool finishing;                                /* no more inner steps */
    bool want_sent;                                /* WANT is out in home's session */
    uint64_t run_id, incarnation, manifest_digest; /* 0: not known yet */
    uint32_t shard_count, fragment_count;          /* 1 and 0 until the manifest is known */
    uint32_t staleness_max, period_steps;
    uint8_t apply;
    uint64_t unit_tokens;
    uint64_t steps, tokens;                 /* of the learner's life */
    uint64_t process_steps, process_tokens; /* of this process */
    uint64_t clock_tokens, clock_rate;
    struct {
        uint64_t loss_micro, step_ns, unit, cursor;
    } last; /* of the last step, for REPORT */
    struct pl_item_held_unit units[PL_UNITS_HELD_MAX];
    uint32_t unit_count;
    uint32_t scratch_used; /* bytes of arrays in messages sent by this step */
    struct pl_session sessions[PL_SHARDS_MAX];
    struct pl_learn_fragment fragments[]; /* options.fragments_max of them, then the scratch */
};

/* Room for the arrays of one step: every JOIN's list together, or one ATTACH. */
static inline size_t pl_learner_scratch_bytes(const struct pl_learn_options *o)
{
    return (size_t)o->fragments_max * PL_ITEM_PARTIAL_BYTES +
           (size_t)PL_UNITS_HELD_MAX * PL_ITEM_HELD_UNIT_BYTES;
}

/* learner.c: effects. */
struct pl_learn_effect *pl_learner_emit(struct pl_learn_fxs *out, enum pl_learn_fx kind);
void pl_learner_trace(struct pl_learn_fxs *out, enum pl_trace_code code, const uint64_t arg[static 4]);
void pl_learner_send(struct pl_learner *l, uint32_t shard, const struct pl_msg *msg,
                     struct pl_learn_fxs *out);
void pl_learner_send_bulk(uint32_t shard, const struct pl_msg *msg, struct pl_learn_fxs *out);
#define PL_LEARN_TRACE(out, code, ...)                                                                       \
    pl_learner_trace(out, PL_TRACE_##code, (const uint64_t[4]){__VA_ARGS__})

/* learner.c: what several messages cause. */
void pl_learner_finish(struct pl_learner *l, struct pl_learn_fxs *out);
void pl_learner_report_to(struct pl_learner *l, uint32_t shard, struct pl_learn_fxs *out);
void pl_learner_clock(struct pl_learner *l, uint64_t tokens, uint64_t rate, struct pl_learn_fxs *out);
void pl_learner_ask_unit(struct pl_learner *l, struct pl_learn_fxs *out);

/* learner_session.c */
bool pl_learner_link_open(const struct pl_session *s, enum pl_link link);
uint64_t pl_learner_silence_ns(const struct pl_session *s);
bool pl_learner_dialable(const struct pl_learner *l, uint32_t shard);
void pl_learner_dial(struct pl_learner *l, uint32_t shard, struct pl_learn_fxs *out);
void pl_learner_dial_bulk(struct pl_learner *l, uint32_t shard, struct pl_learn_fxs *out);
void pl_learner_opened(struct pl_learner *l, uint32_t shard, enum pl_link link, struct pl_learn_fxs *out);
void pl_learner_broke(struct pl_learner *l, uint32_t shard, enum pl_link link, struct pl_learn_fxs *out);
void pl_learner_on_welcome(struct pl_learner *l, uint32_t shard, const struct pl_msg_welcome *m,
                           struct pl_learn_fxs *out);
void pl_learner_on_manifest(struct pl_learner *l, uint32_t shard, const struct pl_msg_manifest *m,
                            struct pl_learn_fxs *out);
void pl_learner_on_attached(struct pl_learner *l, uint32_t shard, const struct pl_msg_attached *m,
                            struct pl_learn_fxs *out);
/* REFUSE and CLOSE. */
void pl_learner_on_close(struct pl_learner *l, uint32_t shard, enum pl_link link,
                         const struct pl_msg_close *m, struct pl_learn_fxs *out);
void pl_learner_ready(struct pl_learner *l, const uint64_t *digests, struct pl_learn_fxs *out);
void pl_learner_quit(struct pl_learner *l, struct pl_learn_fxs *out);
void pl_learner_take_manifest(struct pl_learner *l, const struct pl_msg_manifest *m);

/* Ends a link (control: the session with it) for the peer's fault or silence; the text says which. */
void pl_learner_disconnect(struct pl_learner *l, uint32_t shard, enum pl_link link, struct pl_learn_fxs *out,
                           enum pl_reason reason, const char *format, ...);

/* learner_fragment.c */
/* The fragment a message of this shard names, or NULL after disconnecting: no such fragment there. */
struct pl_learn_fragment *pl_learner_owned(struct pl_learner *l, uint32_t shard, enum pl_link link,
                                           const char *what, uint32_t fragment, struct pl_learn_fxs *out);
void pl_learner_on_pull(struct pl_learner *l, uint32_t shard, const struct pl_msg_pull *m,
                        struct pl_learn_fxs *out);
void pl_learner_on_drop(struct pl_learner *l, uint32_t shard, const struct pl_msg_drop *m,
                        struct pl_learn_fxs *out);
void pl_learner_copied(struct pl_learner *l, const struct pl_learn_event *ev, struct pl_learn_fxs *out);
/* Answers a waiting PULL if its time has come. */
void pl_learner_serve(struct pl_learner *l, uint32_t fragment, struct pl_learn_fxs *out);
void pl_learner_push(struct pl_learner *l, uint32_t fragment, struct pl_learn_fxs *out);
void pl_learner_cancel(struct pl_learner *l, uint32_t fragment, struct pl_learn_fxs *out);

/* learner_update.c */
void pl_learner_on_update(struct pl_learner *l, uint32_t shard, const struct pl_msg_update *m,
                          struct pl_learn_fxs *out);
void pl_learner_on_data(struct pl_learner *l, uint32_t shard, const struct pl_msg_data *m,
                        struct pl_learn_fxs *out);
void pl_learner_decoded(struct pl_learner *l, const struct pl_learn_event *ev, struct pl_learn_fxs *out);
void pl_learner_applied(struct pl_learner *l, const struct pl_learn_event *ev, struct pl_learn_fxs *out);

#endif
