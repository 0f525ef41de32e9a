/* sim/node_learner.h - the host of one simulated learner process: performs what core/learner asks, and trains.
 *
 * A machine (struct pl_host) has a disk with one checkpoint and up to two processes: the second is a clone, started
 * while the first still lives. The trainer never waits: a step ends when it was drawn to end, whatever the network
 * does; only a freeze moves it. Copies are taken beside a step, new values are applied between two.
 *
 *   node_learner.c        events in, effects out, connections
 *   node_learner_work.c   steps, copies, updates
 *   node_learner_feed.c   work units, and which sequences a step learns from
 *   node_learner_life.c   start, checkpoint, freeze, end
 */
#ifndef PL_SIM_NODE_LEARNER_H
#define PL_SIM_NODE_LEARNER_H

#include "sim/net.h"
#include "sim/trainer.h"

/* What the host holds for one fragment besides the values. */
struct pl_lfrag {
    /* the pending push */
    bool pending;
    uint64_t round;
    uint64_t copy_steps, copy_tokens, digest;
    uint64_t bytes; /* of its encoding */
    struct pl_work copied;
    double push; /* projection of the decoded contribution */
    /* ... being sent */
    bool sending, header_due;
    uint64_t there; /* chunks the syncer has or that are sent */
    struct pl_msg_push header;
    /* the update */
    uint8_t *update;
    uint64_t update_bytes;
    bool decode_full;
    uint64_t decode_version, decode_digest;
    bool apply_due;
    uint64_t apply_round, apply_version;
    enum pl_outcome outcome;
    bool commit_residual;
    /* the truth about theta - anchor, for sim/check.h */
    struct pl_work work;
    double worked, merged;
    uint32_t applied;
};

/* Arrays over all values, in fragment order. */
struct pl_lvalues {
    float *theta, *anchor, *residual; /* kept by a checkpoint */
    float *snapshot, *new_residual, *fresh;
};

struct pl_checkpoint {
    bool valid;
    uint8_t *core;
    size_t core_bytes;
    float *theta, *anchor, *residual;
    struct pl_lfrag *frags; /* work, worked, merged, applied only */
    uint64_t own_sequence;
};

struct pl_host {
    bool local_data;
    bool absent; /* not started with the others */
    bool frozen;
    bool done;        /* its process saw the end of the run */
    uint32_t primary; /* process that owns the disk */
    uint32_t pace_permille;
    uint64_t step_ns;       /* of its trainer, as drawn */
    uint64_t step_fixed_ns; /* not 0: instead, without jitter */
    uint64_t checkpoint_ns;
    uint64_t frozen_since_ns;
    struct pl_checkpoint checkpoint;
    struct pl_prng prng;
};

struct pl_lnode {
    uint32_t index, host;
    bool alive, stepping, stopped, quitting;
    uint32_t life;
    uint64_t process; /* number, never reused */
    uint64_t armed_ns;
    uint64_t core_steps;
    void *memory;
    size_t memory_bytes;
    struct pl_learner *core;
    struct pl_learn_fxs fxs;
    const struct pl_msg *delivering;
    struct pl_lvalues v;
    struct pl_lfrag *frags;
    double *worked;    /* [fragments] projection of this step */
    uint64_t *digests; /* [fragments] */
    float *scratch;    /* [largest fragment] */
    uint8_t *encoded;  /* contributions, each at encoded_at[fragment] */
    uint32_t *encoded_at;
    uint32_t conns[PL_SHARDS_MAX][2]; /* PL_NONE32: none */
    uint32_t *queue[PL_SHARDS_MAX];   /* fragments to send, in order */
    uint32_t queue_len[PL_SHARDS_MAX];
    /* the trainer */
    struct pl_prng noise;
    uint64_t trained; /* inner steps of this process */
    bool *touched;    /* [fragments] theta was changed since its last step */
    uint64_t drawn_ns, lag_ns, excused_ns, due_ns;
    struct pl_item_held_unit units[PL_UNITS_HELD_MAX];
    uint32_t unit_count;
    /* Sequences: what the trainer takes from; what the core was told may be a step behind it. */
    struct pl_item_held_unit feed[PL_UNITS_HELD_MAX];
    uint32_t feed_count;
    uint64_t feed_used, feed_told; /* tokens of all units ever */
    uint64_t own_sequence;         /* the next of its own */
    uint64_t *sequences;           /* of one step */
    uint64_t clock_tokens, clock_rate, clock_ns;
    uint64_t checkpoint_due_ns;
    struct pl_sim_ev *deferred; /* what came while frozen */
    uint32_t deferred_len, deferred_cap;
    uint8_t *repeat[PL_SHARDS_MAX]; /* the frames of the last complete push, for PL_ACT_REPEAT */
    size_t repeat_len[PL_SHARDS_MAX];
};

bool pl_lnode_init(struct pl_world *w, uint32_t index);
bool pl_host_init(struct pl_world *w, uint32_t host);
void pl_lnode_step(struct pl_world *w, struct pl_lnode *p, const struct pl_learn_event *ev);

/* Events of a process go through this: false when they are for another life, or kept until it is thawed. */
bool pl_lnode_awake(struct pl_world *w, struct pl_lnode *p, const struct pl_sim_ev *ev);
void pl_lnode_later(struct pl_world *w, struct pl_lnode *p, uint64_t delay_ns,
                    void (*fire)(struct pl_world *w, const struct pl_sim_ev *ev), uint64_t arg,
                    uint64_t more);

/* For struct pl_net_ops, the learner's side. */
void pl_lnode_opened(struct pl_world *w, uint32_t conn);
void pl_lnode_closed(struct pl_world *w, uint32_t conn);
void pl_lnode_message(struct pl_world *w, uint32_t conn, const struct pl_msg *msg);
void pl_lnode_bad(struct pl_world *w, uint32_t conn, const struct pl_error *error);
void pl_lnode_drained(struct pl_world *w, uint32_t conn);
bool pl_lnode_reads(struct pl_world *w, uint32_t conn);

/* node_learner_work.c */
void pl_lnode_begin_steps(struct pl_world *w, struct pl_lnode *p);
void pl_lnode_manifest(struct pl_world *w, struct pl_lnode *p);
void pl_lnode_copy(struct pl_world *w, struct pl_lnode *p, const struct pl_learn_effect *fx);
void pl_lnode_cancel(struct pl_world *w, struct pl_lnode *p, const struct pl_learn_effect *fx);
void pl_lnode_keep(struct pl_world *w, struct pl_lnode *p, const struct pl_learn_effect *fx);
void pl_lnode_decode(struct pl_world *w, struct pl_lnode *p, const struct pl_learn_effect *fx);
void pl_lnode_forget(struct pl_world *w, struct pl_lnode *p, uint32_t fragment);
void pl_lnode_apply(struct pl_world *w, struct pl_lnode *p, const struct pl_learn_effect *fx);

/* node_learner_feed.c */
void pl_lnode_unit(struct pl_lnode *p, uint64_t unit, uint64_t cursor);
/* What the next step learns from: its tokens, and sequences where the objective has some. */
uint64_t pl_lnode_feed(struct pl_world *w, struct pl_lnode *p);
/* The unit in use and where it stands, after a step of so many tokens; unit PL_NONE64: none. */
struct pl_item_held_unit pl_lnode_used(const struct pl_world *w, struct pl_lnode *p, uint64_t tokens);

/* node_learner_life.c */
void pl_host_start(struct pl_world *w, uint32_t host, bool clone);
void pl_host_crash(struct pl_world *w, uint32_t host, bool wipe, bool told);
void pl_host_freeze(struct pl_world *w, uint32_t host);
void pl_host_thaw(struct pl_world *w, uint32_t host);
bool pl_host_running(const struct pl_world *w, uint32_t host);
void pl_lnode_end(struct pl_world *w, struct pl_lnode *p, bool told);
void pl_lnode_over(struct pl_world *w, struct pl_lnode *p, bool fatal); /* it leaves by itself */
void pl_lnode_checkpoint(struct pl_world *w, struct pl_lnode *p);

#endif
