/* sim/net_int.h - inside of the simulated network: net.c (connections), net_link.c (links and paths). */
#ifndef PL_SIM_NET_INT_H
#define PL_SIM_NET_INT_H

#include "sim/net.h"

/* Bytes on their way, or the news that no more will come (fin). */
struct pl_seg {
    struct pl_seg *next;
    uint64_t arrive_ns;
    uint32_t len;
    uint32_t sent; /* bytes that are through the wire */
    uint8_t type;  /* enum pl_msg_type, 0 for bytes that are no frame */
    bool fin;
    uint8_t bytes[];
};

struct pl_seg_list {
    struct pl_seg *first, *last;
};

/* One direction of a connection. */
struct pl_pipe {
    struct pl_seg_list out; /* in the sender's buffer */
    struct pl_seg_list fly; /* between the machines */
    uint64_t out_bytes;
    uint64_t last_arrive_ns;
    struct pl_buf rx; /* the beginning of a frame */
    bool deaf;        /* something unreadable came: nothing after it counts */
};

enum pl_conn_state { PL_CONN_FREE, PL_CONN_DIALING, PL_CONN_UP };

struct pl_conn {
    struct pl_conn_info info;
    enum pl_conn_state state;
    uint32_t life;
    bool open[2];           /* by side */
    bool dead;              /* what is sent vanishes */
    struct pl_pipe pipe[2]; /* by direction: 0 up, 1 down */
};

/* One direction of a machine's link. */
struct pl_wire {
    uint64_t free_ns; /* the last byte handed over is through then */
    bool stalled, armed;
    uint32_t turn; /* where the search for the next segment begins */
};

struct pl_machine {
    struct pl_wire wire[2];
    uint64_t rate, latency_ns;
    uint32_t *conns; /* indices of its connections, in order of dialling */
    uint32_t conn_count;
};

/* Between a machine and a shard. */
struct pl_path {
    bool cut[2];
    uint32_t held[2]; /* bit t: messages of type t; bit 0: all bulk */
};

enum { PL_NET_CONNS_PER_MACHINE = 48 };

struct pl_net {
    struct pl_world *w;
    struct pl_net_setup setup;
    struct pl_prng prng;
    struct pl_conn *conns;
    uint32_t conn_max;
    uint32_t next_free;
    struct pl_machine *machines;
    struct pl_path *paths; /* [machine * shards + shard] */
};

static inline struct pl_path *pl_net_path(const struct pl_net *n, const struct pl_conn *c)
{
    return &n->paths[c->info.machine * n->setup.shards + c->info.shard];
}

static inline uint32_t pl_dir_from(enum pl_side side)
{
    return side == PL_SIDE_LEARNER ? 0 : 1;
}

static inline enum pl_side pl_side_at_end(uint32_t dir)
{
    return dir == 0 ? PL_SIDE_SYNCER : PL_SIDE_LEARNER;
}

/* net.c: bytes arrive. */
void pl_net_arrive(struct pl_world *w, const struct pl_sim_ev *ev);

/* net_link.c: puts what is waiting onto the wire, as far as the wire is free. */
void pl_net_pump(struct pl_net *n, uint32_t machine, uint32_t dir);
uint64_t pl_net_latency(struct pl_net *n, uint32_t machine);
void pl_seg_push(struct pl_seg_list *l, struct pl_seg *s);
struct pl_seg *pl_seg_pop(struct pl_seg_list *l);

#endif
