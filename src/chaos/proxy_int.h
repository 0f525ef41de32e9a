/* chaos/proxy_int.h - inside of the proxy: proxy.c owns links and connections, proxy_flow.c moves bytes, proxy_control.c
 * takes orders. */
#ifndef PL_CHAOS_PROXY_INT_H
#define PL_CHAOS_PROXY_INT_H

#include "base/prng.h"
#include "chaos/proxy.h"
#include "chaos/shape.h"

#include <sys/types.h>
#include <uv.h>

enum { UP, DOWN };        /* flows: learner to syncer, syncer to learner */
enum { LEARNER, SYNCER }; /* sides; flow UP reads at LEARNER and writes at SYNCER */
enum { PROXY_READ_BYTES = 256 << 10, PACKET_BYTES = 1460 };

struct chunk {
    struct chunk *next;
    uint64_t due_ns;
    uint32_t len, at; /* at: bytes of it that are gone */
    uint8_t data[];
};

enum flow_end { FLOW_OPEN, FLOW_FIN, FLOW_RESET };

/* Bytes on their way from one socket to the other. */
struct flow {
    struct pair *pair;
    uint32_t dir;
    struct chunk *head, *tail;
    uint64_t queued;    /* bytes, with what they are kept in */
    uint64_t due_ns;    /* of the last chunk: times never go back, bytes stay in order */
    uint64_t drip_ns;   /* no byte before this */
    uint64_t end_ns;    /* no end before this */
    uint64_t passed;    /* bytes written, for `limit` */
    uint64_t flip_in;   /* bytes until the next turned bit ... */
    uint64_t flip_rate; /* ... drawn with this setting */
    enum flow_end end;  /* what the sender did, after the queued bytes */
    bool reading, writing, done;
    uv_write_t write;
    uint32_t write_len;
    uv_shutdown_t shutdown;
};

struct pair {
    struct link *link;
    struct pair *prev, *next;
    uv_tcp_t side[2];
    bool closed[2];
    uint32_t handles;
    uv_connect_t connect;
    bool connected, waiting, mute, half_open, gone;
    struct flow flow[2];
};

/* The line of a link in one direction: when it will have carried what was sent. */
struct line {
    uint64_t free_ns;
    bool busy; /* somebody was waiting for it after the last pump */
    bool waited_for;
};

struct link_stats {
    uint64_t accepted, open, refused, failed, resets;
    uint64_t bytes[2], dropped, flipped;
};

struct link {
    struct pl_proxy *proxy;
    uint32_t learner, shard, port;
    uv_tcp_t listener;
    uv_timer_t timer;
    struct pl_shape shape[2];
    struct line line[2];
    struct pair *first, *last;
    struct link_stats stats;
};

struct control_client;

struct pl_proxy {
    const struct pl_proxy_options *o;
    const struct pl_alloc *alloc;
    uv_loop_t loop;
    bool loop_made;
    struct link *links;
    uint32_t link_count, link_room, shards;
    struct sockaddr_storage to[PL_PROXY_TARGETS_MAX];
    uint64_t queued; /* bytes of all flows */
    struct pl_prng prng;
    uint8_t *scratch; /* PROXY_READ_BYTES; libuv reads into it and hands it over at once */
    uv_pipe_t control;
    bool controlled;
    dev_t control_dev; /* of the socket file that is ours; no ino: there is none */
    ino_t control_ino;
    struct control_client *clients;
    uv_signal_t signals[2];
    bool signalled;
};

/* proxy.c */
void pl_proxy_stop(struct pl_proxy *p);
void pl_link_reset(struct link *l, bool syncer_only); /* syncer_only: half-open */
void pl_link_reshape(struct link *l);                 /* after its shape was changed */
void pl_pair_end(struct pair *pair, bool reset);      /* both sides; the pair goes away on its own */

/* proxy_flow.c */
void pl_flow_init(struct flow *f, struct pair *pair, uint32_t dir);
void pl_flow_begin(struct flow *f);   /* starts reading */
void pl_flow_release(struct flow *f); /* drops what is queued */
void pl_link_pump(struct link *l);    /* moves what may move and arms the timer for what may move later */
void pl_link_woken(uv_timer_t *timer);
static inline bool pl_link_is(const struct link *l, enum pl_shape_key key)
{
    return l->shape[UP].v[key] != 0 || l->shape[DOWN].v[key] != 0;
}

/* proxy_control.c */
enum pelago_status pl_control_open(struct pl_proxy *p, struct pl_error *err);
void pl_control_close(struct pl_proxy *p);

#endif
