/* support/net_rig.h - real sockets on loopback for the tests of net/: one loop, a listener, and what both sides saw.
 *
 * Credentials of a small run are made once per rig. Every wait is for something to happen, with a watchdog behind it.
 */
#ifndef PL_TEST_NET_RIG_H
#define PL_TEST_NET_RIG_H

#include "net/conn.h"

enum { NET_SIDES = 64 };

struct net_rig;

/* One end of a connection and what happened to it. */
struct net_side {
    struct net_rig *rig;
    struct pl_conn *conn; /* NULL before and after */
    struct pl_peer peer;
    uint32_t opened, frames, bad, drained, closed;
    uint64_t payload_bytes;
    struct pl_error why; /* of bad or closed */
    bool echo;           /* sends back PONG for PING, DATA for DATA */
    void (*on_frame)(struct net_side *side, const struct pl_frame *frame);
    void (*on_drained)(struct net_side *side);
    void *user;
};

struct net_rig {
    uv_loop_t loop;
    struct pl_alloc alloc;           /* counts */
    uint64_t blocks, bytes, fail_at; /* alive; fail_at: the n-th allocation from now fails, 0 none */
    uint64_t allocations;
    struct pl_credentials ca, shard, learner,
        stranger; /* stranger: a key and the fingerprint, no certificate */
    struct pl_net_options server, client;
    struct pl_listener *listener;
    char address[PL_ADDRESS_MAX]; /* of the listener, to dial */
    struct net_side accepted[NET_SIDES];
    uint32_t accepted_count;
    bool echo; /* for accepted ones */
    void (*on_accept)(struct net_side *side);
    char log[4096]; /* lines, each with its newline */
    uint32_t log_lines;
    uv_timer_t watchdog;
};

extern const struct pl_conn_ops net_side_ops;

void net_rig_init(struct net_rig *r);
void net_rig_listen(struct net_rig *r);
/* Closes what is left, and asserts that nothing of the allocator's is. */
void net_rig_release(struct net_rig *r);

/* A member of the run of this ca. */
void net_enrol(const struct pl_credentials *ca, enum pl_role role, uint64_t identity, uint32_t shard,
               uint64_t seconds, struct pl_credentials *out);

void net_dial(struct net_rig *r, struct net_side *side); /* to the listener, with r->client */
/* Runs the loop until *counter >= value; fails the test after a few seconds. */
void net_wait(struct net_rig *r, const uint32_t *counter, uint32_t value);
void net_run_for(struct net_rig *r, uint64_t ns);
/* Dials and waits until both sides are open; returns the accepted one. */
struct net_side *net_connect(struct net_rig *r, struct net_side *side);
void net_close(struct net_side *side, uint64_t flush_ns);

/* A plain blocking TCP connection to the listener. from: a loopback address to come from, or NULL. */
int net_raw(struct net_rig *r, const char *from);
/* Runs the loop until the raw socket is closed by the other side; true if it was within ns. */
bool net_raw_closed(struct net_rig *r, int fd, uint64_t ns);

uint32_t net_open_files(void);
void net_send_ping(struct net_side *side, uint64_t nonce);
/* DATA with a payload of these bytes. */
bool net_send_data(struct net_side *side, const uint8_t *bytes, uint32_t len, uint32_t chunk);

#endif
