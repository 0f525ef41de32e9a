/* sim/net.h - simulated connections: ordered byte streams with latency, bandwidth, and everything that breaks.
 *
 * A machine has one link with a rate in each direction, shared by all its connections; what control connections
 * have to say goes first. Shards have no limit of their own. Bytes arrive whole, late or not at all, never damaged
 * and never out of order. A stream that is blocked (a partition, a frozen reader) keeps what is under way and
 * delivers it later; one that breaks loses it, and each end hears of that later, or never.
 *
 * Every message is encoded into a frame when sent, and parsed and decoded from bytes when it arrives.
 */
#ifndef PL_SIM_NET_H
#define PL_SIM_NET_H

#include "core/learner.h"
#include "sim/world.h"
#include "wire/msg.h"

struct pl_net;

enum pl_side { PL_SIDE_LEARNER, PL_SIDE_SYNCER };

/* Whoever owns the ends. All are called from the world's loop; they may send and close. */
struct pl_net_ops {
    /* A connection reaches a shard: false refuses it. */
    bool (*accept)(struct pl_world *w, uint32_t conn);
    void (*opened)(struct pl_world *w, uint32_t conn, enum pl_side side);
    /* Not after this side closed. A dial that failed also ends here. */
    void (*closed)(struct pl_world *w, uint32_t conn, enum pl_side side);
    void (*message)(struct pl_world *w, uint32_t conn, enum pl_side side, const struct pl_msg *msg);
    /* The bytes are no message; nothing more will be read from this stream. */
    void (*bad)(struct pl_world *w, uint32_t conn, enum pl_side side, const struct pl_error *error);
    /* There may be room again in this side's bulk send buffer. */
    void (*drained)(struct pl_world *w, uint32_t conn, enum pl_side side);
    /* False: this end reads nothing now (frozen); pl_net_kick when that changes. */
    bool (*reads)(struct pl_world *w, uint32_t conn, enum pl_side side);
};

struct pl_net_setup {
    uint32_t machines, shards;
    uint64_t latency_ns, bandwidth;
    uint64_t seed;
    struct pl_net_ops ops;
};

/* What a connection is, for its owners. */
struct pl_conn_info {
    uint32_t machine, shard;
    enum pl_link link;
    uint32_t owner;      /* of the learner's end: the caller's number */
    uint32_t owner_life; /* ... and which life of it */
    uint32_t tag;        /* of the syncer's end, set by pl_net_set_tag */
};

struct pl_net *pl_net_new(struct pl_world *w, const struct pl_net_setup *setup);

/* PL_NONE32 when there are too many connections: the dial has failed at once. Otherwise opened or closed follows. */
uint32_t pl_net_dial(struct pl_net *n, const struct pl_conn_info *info);
const struct pl_conn_info *pl_net_info(const struct pl_net *n, uint32_t conn);
bool pl_net_up(const struct pl_net *n, uint32_t conn); /* dialling is over */
void pl_net_set_tag(struct pl_net *n, uint32_t conn, uint32_t tag);

/* Sends on an open end; what goes into a dead connection vanishes. An unsent REPORT is replaced by a newer one. */
void pl_net_send(struct pl_net *n, uint32_t conn, enum pl_side side, const struct pl_msg *msg);
void pl_net_send_bytes(struct pl_net *n, uint32_t conn, enum pl_side side, const uint8_t *bytes, size_t len);

/* Whether a bulk frame may be handed over: the send buffer is under PL_NET_BUFFER_BYTES. */
enum { PL_NET_BUFFER_BYTES = 65536 };
bool pl_net_room(const struct pl_net *n, uint32_t conn, enum pl_side side);

/* This side is done: what it sent still goes out, the other side hears of the end after it. */
void pl_net_close(struct pl_net *n, uint32_t conn, enum pl_side side);

/* This side's process is gone; unsent bytes are lost. told: the other side hears of it. */
void pl_net_die(struct pl_net *n, uint32_t conn, enum pl_side side, bool told);

/* Everything under way is lost. A side is told a moment later when its bit (1 << side) is set. */
void pl_net_break(struct pl_net *n, uint32_t conn, uint32_t told);

/* The reader at this side reads again. */
void pl_net_kick(struct pl_net *n, uint32_t conn, enum pl_side side);

/* Calls f for each connection of machine and shard (PL_NONE32: of all); f may close it. */
void pl_net_each(struct pl_net *n, uint32_t machine, uint32_t shard,
                 void (*f)(struct pl_net *n, uint32_t conn, void *user), void *user);

/* Links and paths. dirs: enum pl_direction bits. */
void pl_net_cut(struct pl_net *n, uint32_t machine, uint32_t shard, uint32_t dirs);
void pl_net_heal(struct pl_net *n, uint32_t machine, uint32_t shard, uint32_t dirs);
void pl_net_stall(struct pl_net *n, uint32_t machine, uint32_t dirs);
void pl_net_flow(struct pl_net *n, uint32_t machine, uint32_t dirs);
void pl_net_rate(struct pl_net *n, uint32_t machine, uint64_t bytes_per_s); /* 0: as set up */
void pl_net_delay(struct pl_net *n, uint32_t machine, uint64_t latency_ns); /* 0: as set up */

/* Messages of this type (0: all bulk) wait in their queue, and those behind them on their connection. */
void pl_net_hold(struct pl_net *n, uint32_t machine, uint32_t shard, uint32_t dirs, uint32_t type);
void pl_net_release(struct pl_net *n, uint32_t machine, uint32_t shard, uint32_t dirs, uint32_t type);

#endif
