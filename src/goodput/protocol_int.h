/* goodput/protocol_int.h - inside of the protocol mode.
 *
 *   protocol.c          the window: made, run, measured
 *   protocol_net.c      events in time, connections, bytes on links
 *   protocol_syncer.c   performs what core/syncer asks
 *   protocol_learner.c  performs what core/learner asks, and trains
 *
 * No effect steps a core from within: answers are events.
 */
#ifndef PL_GOODPUT_PROTOCOL_INT_H
#define PL_GOODPUT_PROTOCOL_INT_H

#include "base/heap.h"
#include "core/learner.h"
#include "core/syncer.h"
#include "goodput/fast_int.h"
#include "goodput/protocol.h"

enum {
    PL_PROTO_PUSH_BYTES = 20, /* what stands for a fragment */
    PL_PROTO_FULL_BYTES = 64,
    PL_PROTO_DIGEST = 7,            /* of version 0 */
    PL_PROTO_STEP_TOKENS = 1000000, /* of one learner at full size, if all are equal */
};
#define PL_PROTO_LATENCY_NS (20 * PL_MS)

enum pl_proto_kind {
    PL_PROTO_OPEN,      /* a connection asked for is up */
    PL_PROTO_TO_SYNCER, /* a message arrives */
    PL_PROTO_TO_LEARNER,
    PL_PROTO_CLOSED_SYNCER, /* the other end is gone */
    PL_PROTO_CLOSED_LEARNER,
    PL_PROTO_STEP, /* an inner step ends */
    PL_PROTO_VERIFIED,
    PL_PROTO_MERGED,
    PL_PROTO_STORED,
    PL_PROTO_READY,
    PL_PROTO_COPIED,
    PL_PROTO_DECODED,
    PL_PROTO_APPLIED,
};

struct pl_proto_ev {
    uint64_t at_ns, seq;
    enum pl_proto_kind kind;
    uint32_t learner, fragment;
    enum pl_link link;
    uint64_t life;    /* of the connection, the process or the step; another one: too late */
    uint64_t a, b, c; /* round or version; for COPIED steps and tokens too */
    uint8_t *bytes;   /* TO_SYNCER, TO_LEARNER: a frame; owned */
    size_t len;
};

struct pl_proto_conn {
    uint64_t life;              /* grows with every dial */
    bool at_learner, at_syncer; /* this end has it */
    uint64_t busy_ns[2];        /* to the syncer, to the learner: the link is taken until */
};

struct pl_proto_frag {
    bool pending, copy_due, apply_due;
    uint64_t round, apply_version;
    enum pl_outcome outcome;
    uint64_t base; /* version the last push builds on */
};

struct pl_proto_learner {
    void *memory;
    size_t bytes;
    struct pl_learner *core; /* NULL: lost */
    struct pl_learn_fxs fxs;
    struct pl_proto_frag *frags; /* [P] */
    struct pl_proto_conn conns[2];
    uint64_t process;    /* number, never reused */
    uint64_t payload_ns; /* a fragment on its link */
    /* the trainer */
    bool ready, running, link_down;
    double pace, share;
    double progress; /* of the step in hand, at since_ns */
    uint64_t since_ns, step_life;
    bool stepping;
};

struct pl_proto {
    const struct pl_goodput_options *o;
    struct pl_alloc alloc;
    struct pl_fast fast;
    enum pelago_status status;
    uint64_t now_ns, seq;
    struct pl_proto_ev *queue; /* a heap by (at_ns, seq) */
    uint32_t queue_len, queue_cap;
    uint32_t fragments;
    struct pl_msg_manifest manifest;
    uint8_t *fragment_items;
    uint64_t *digests; /* [P] of version 0 */
    struct pl_sync_options sync_options;
    void *syncer_memory;
    size_t syncer_bytes;
    struct pl_syncer *syncer;
    struct pl_sync_fxs sync_fxs;
    struct pl_proto_learner *learners;
    void *timers_memory;
    struct pl_heap timers; /* deadlines: learners, then the syncer */
    /* what is measured */
    uint64_t processes, rounds, events, steps, discards, lost_conns;
    double tokens; /* merged, per fragment */
    uint64_t contributions, cohort[PL_GOODPUT_LEARNERS_MAX + 1], behind[4];
};

/* protocol_net.c */
void *pl_proto_zero(struct pl_proto *h, size_t count, size_t size); /* NULL: h->status says so */
void pl_proto_at(struct pl_proto *h, uint64_t delay_ns, const struct pl_proto_ev *ev);
struct pl_proto_ev pl_proto_pop(struct pl_proto *h);
void pl_proto_send(struct pl_proto *h, uint32_t learner, enum pl_link link, bool to_syncer,
                   const struct pl_msg *msg);
void pl_proto_dial(struct pl_proto *h, uint32_t learner, enum pl_link link);
void pl_proto_hang_up(struct pl_proto *h, uint32_t learner, enum pl_link link, bool by_syncer);
void pl_proto_cut(struct pl_proto *h, uint32_t learner); /* both ends hear of it */
void pl_proto_conn_event(struct pl_proto *h, const struct pl_proto_ev *ev);

/* protocol_syncer.c */
void pl_proto_step_syncer(struct pl_proto *h, struct pl_sync_event *ev);
void pl_proto_syncer_event(struct pl_proto *h, const struct pl_proto_ev *ev);

/* protocol_learner.c */
void pl_proto_step_learner(struct pl_proto *h, uint32_t i, struct pl_learn_event *ev);
void pl_proto_learner_event(struct pl_proto *h, const struct pl_proto_ev *ev);
void pl_proto_start(struct pl_proto *h, uint32_t i);
void pl_proto_follow(void *user, const struct pl_fast *f,
                     const struct pl_fast_learner *l); /* what the fast mode says */

#endif
