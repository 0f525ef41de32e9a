/* sim/node_syncer.h - the host of one simulated syncer shard: performs what core/syncer asks, with real merges, the
 * real journal, and a disk that can lose power.
 *
 *   node_syncer.c        events in, effects out, connections
 *   node_syncer_data.c   the tensors: pushes, merges, updates
 *   node_syncer_store.c  the journal: records, snapshots, recovery
 */
#ifndef PL_SIM_NODE_SYNCER_H
#define PL_SIM_NODE_SYNCER_H

#include "sim/disk.h"
#include "optim/merge.h"
#include "sim/codec.h"
#include "sim/net.h"
#include "sim/trainer.h"

/* A contribution, as far as it has arrived. */
struct pl_push_buf {
    uint8_t *bytes;
    uint64_t size;
    uint64_t round;
    uint64_t verify_ns; /* when the check under way ends */
};

/* An update on its way down one bulk connection. */
struct pl_outgoing {
    struct pl_outgoing *next;
    struct pl_msg_update header;
    uint64_t there; /* chunks the learner has or that are sent */
    bool header_sent;
    uint8_t payload[];
};

struct pl_sync_conn {
    uint32_t conn; /* of the network; PL_NONE32: the number is free */
    struct pl_outgoing *first, *last;
};

/* A merge that is not yet published. */
struct pl_staged {
    bool active, good;
    uint64_t round, digest;
    uint64_t tokens;
    uint64_t clock_tokens; /* of the run, when the merge began */
    double effective;      /* number of contributions (optim/rule.h) */
    double share;          /* of the usual work (optim/outer.h); 1 but for a closing merge */
    uint32_t contributors;
    float *theta, *momentum, *broadcast, *delta;
    uint8_t *update; /* [update_bytes]; NULL: none */
    uint32_t update_bytes;
};

struct pl_ring_slot {
    uint64_t version; /* the encoded update leads to this version; 0 none */
    uint8_t *bytes;
    uint32_t size;
};

struct pl_shard_fragment {
    uint32_t number, count;
    uint64_t version;
    uint64_t seen_round; /* pushes of this round that are checked or being checked */
    uint32_t seen;
    float *theta, *momentum, *broadcast;
    struct pl_rule_past past;
    struct pl_staged staged;
    struct pl_ring_slot ring[PL_RING_MAX];
};

struct pl_vault; /* the store, in node_syncer_store.c */

struct pl_snode {
    uint32_t shard;
    bool up, listening, finished;
    uint32_t life;
    uint64_t armed_ns;
    uint64_t steps; /* of the core */
    struct pl_disk *disk;
    struct pl_vault *vault;
    uint32_t stores_out; /* STORE effects not yet answered */
    enum pl_crash crash_at;
    struct pl_sync_options options;
    void *memory;
    size_t memory_bytes;
    struct pl_syncer *core;
    struct pl_sync_fxs fxs;
    const struct pl_msg *delivering;     /* the message of the step at hand */
    uint32_t sender;                     /* the machine it came from */
    struct pl_shard_fragment *fragments; /* of this shard, by number */
    uint32_t fragment_count;
    struct pl_push_buf *pushes; /* [learner * fragment_count + local fragment] */
    struct pl_sync_conn *conns; /* [options.conns_max] */
    float *scratch;             /* [learners_max][largest] decoded pushes */
    struct pl_contribution *parts;
    double *merging; /* scratch of pl_merge */
    double *weights, *reach;
    uint64_t *counts;  /* [2][learners_max] tokens and steps of the contributions at hand */
    uint8_t *encoding; /* [update_bytes_max] an update being made */
};

bool pl_snode_init(struct pl_world *w, uint32_t shard);
void pl_snode_start(struct pl_world *w, struct pl_snode *s);
void pl_snode_crash(struct pl_world *w, struct pl_snode *s, bool told);
void pl_snode_step(struct pl_world *w, struct pl_snode *s, const struct pl_sync_event *ev);

/* For struct pl_net_ops, the syncer's side. */
bool pl_snode_accept(struct pl_world *w, uint32_t conn);
void pl_snode_opened(struct pl_world *w, uint32_t conn);
void pl_snode_closed(struct pl_world *w, uint32_t conn);
void pl_snode_message(struct pl_world *w, uint32_t conn, const struct pl_msg *msg);
void pl_snode_bad(struct pl_world *w, uint32_t conn, const struct pl_error *error);
void pl_snode_pump(struct pl_world *w, uint32_t conn);

/* node_syncer_data.c */
struct pl_shard_fragment *pl_snode_fragment(struct pl_snode *s, uint32_t number);
void pl_snode_reset_values(struct pl_world *w,
                           struct pl_snode *s); /* version 0; memory of a dead process freed */
/* The outer step that makes this version when the run's clock stands there. */
struct pl_outer_move pl_snode_outer(const struct pl_objective *o, uint64_t version, uint64_t clock_tokens,
                                    double share);
void pl_snode_keep(struct pl_world *w, struct pl_snode *s, const struct pl_sync_effect *fx);
void pl_snode_verify(struct pl_world *w, struct pl_snode *s, const struct pl_sync_effect *fx);
void pl_snode_discard(struct pl_world *w, struct pl_snode *s, uint32_t learner, uint32_t fragment);
void pl_snode_merge(struct pl_world *w, struct pl_snode *s, const struct pl_sync_effect *fx);
void pl_snode_publish(struct pl_world *w, struct pl_snode *s, const struct pl_sync_effect *fx);
struct pl_outgoing *pl_snode_update(struct pl_world *w, struct pl_snode *s,
                                    const struct pl_msg_update *header);
void pl_snode_free_outgoing(struct pl_world *w, struct pl_outgoing *o);
/* bytes is the ring's from now on; NULL: empties the slot. */
void pl_snode_set_ring(struct pl_world *w, struct pl_shard_fragment *f, uint64_t version, uint8_t *bytes,
                       uint32_t size);

/* node_syncer_store.c */
bool pl_snode_vault_init(struct pl_world *w, struct pl_snode *s);
void pl_snode_store(struct pl_world *w, struct pl_snode *s, const struct pl_sync_effect *fx);
void pl_snode_snapshot(struct pl_world *w, struct pl_snode *s); /* when it is time and nothing is in doubt */
bool pl_snode_recover(struct pl_world *w, struct pl_snode *s);  /* false: try again later */

#endif
