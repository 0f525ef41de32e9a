/* net/conn.h - one TLS 1.3 connection that carries frames, on a libuv loop.
 *
 * Everybody above sees opened, frame, drained, closed; nobody else knows sockets, OpenSSL or certificates. A side
 * that accepts knows the peer's role and identity from its certificate, or that it has none (then only the door is
 * open to it: host/door.h). A side that dials knows that the peer is a shard of the run whose authority it pins.
 *
 * Sending copies into a queue with a bound; whoever sends bulk asks pl_conn_room first and goes on in drained().
 * Receiving holds one frame at most, and no more than frame_max says. Before the handshake is done a connection may
 * send 16 KiB and take PL_CONN_HANDSHAKE_NS; after it, a frame that has begun must make progress (PL_CONN_STALL_NS).
 *
 * What closed() says, by status: UNREACHABLE, IO and NOTFOUND (no such host) may be gone in a moment, dial again; INVALID (bad address,
 * not our syncer), PROTO (no pelago there) and STALE (our certificate has expired) need a person or a new certificate;
 * LIMIT, too slow or too much queued. In TLS 1.3 the side that dials is done before the other has seen its
 * certificate: a refused one gets opened() and then closed() with the reason.
 *
 * All functions are for the loop's thread. Callbacks come from the loop, never from inside a call of this page.
 */
#ifndef PL_NET_CONN_H
#define PL_NET_CONN_H

#include "base/alloc.h"
#include "net/address.h"
#include "net/bucket.h"
#include "net/pki.h"
#include "wire/frame.h"

#include <uv.h>

struct pl_conn;
struct pl_listener;

enum {
    /* pl_conn_room while less than this is queued; where a listener has many connections, less: all of them together
     * queue PL_CONN_POOL_BYTES, or the smaller of the two each. */
    PL_CONN_ROOM_BYTES = 256 << 10,
    PL_CONN_ROOM_BYTES_MIN = 32 << 10,
    PL_CONN_POOL_BYTES = 64 << 20,
    PL_CONN_QUEUE_BYTES = 4 << 20, /* without asking for room: a peer that lets this much pile up is closed */
    PL_CONN_STRANGER_BYTES = 16 << 10, /* what may come before the handshake is done */
    PL_CONN_STALL_BYTES = 4096,
    PL_CONN_STREAMS_MAX = 8,    /* TLS connections that may carry one connection's bytes */
    PL_CONN_STREAMS_AUTO = 255, /* 1 on a short way, 4 where a round trip takes PL_CONN_FAR_NS or more */
};
#define PL_CONN_FAR_NS (20 * PL_MS)
#define PL_LATE_NS (50 * PL_MS) /* a timer that comes so late says that we were away ourselves, not others */
#define PL_CONN_HANDSHAKE_NS (5 * PL_SEC)
/* For so long less than PL_CONN_STALL_BYTES of a frame that has begun may come (from a peer without identity: the
 * whole frame must be there), or as little be taken of what is queued. */
#define PL_CONN_STALL_NS (30 * PL_SEC)

struct pl_peer {
    enum pl_role role; /* PL_ROLE_NONE: it showed no certificate */
    uint64_t identity;
    uint32_t shard;               /* of a PL_ROLE_SHARD */
    bool expired;                 /* its certificate has run out: good for renewing it, and nothing else */
    char address[PL_ADDRESS_MAX]; /* for logs and status */
};

struct pl_conn_ops {
    /* The handshake is done. */
    void (*opened)(void *user, struct pl_conn *c, const struct pl_peer *peer);
    /* A whole frame with the right checksum; its payload is valid during the call and has not been decoded. */
    void (*frame)(void *user, struct pl_conn *c, const struct pl_frame *frame);
    /* Bytes that are no frame. Nothing more is read; the connection waits to be closed. */
    void (*bad)(void *user, struct pl_conn *c, const struct pl_error *err);
    /* There is room again after pl_conn_room said there was none. */
    void (*drained)(void *user, struct pl_conn *c);
    /* It is over, or could not be made; why says what happened and what to do. The last callback: c is gone. Not after
     * pl_conn_close. */
    void (*closed)(void *user, struct pl_conn *c, const struct pl_error *why);
};

struct pl_net_options {
    uv_loop_t *loop;              /* borrowed */
    const struct pl_alloc *alloc; /* borrowed */
    const struct pl_credentials
        *own;           /* read during the call only; certificate may be empty on a side that enrols */
    uint32_t frame_max; /* payload bytes accepted until pl_conn_set_frame_max */
    uint64_t handshake_ns, stall_ns; /* 0: the constants above */
    /* Dialling: over how many TLS connections the bytes travel; 0 and 1: one. Fewer where the other side allows fewer or
     * further ones cannot be made; nobody above sees a difference but speed. Listening: how many it allows; 0: the most. */
    uint8_t streams;
    /* Sees every frame before it is encrypted and after it was decrypted, in the order of the connection; may be NULL. */
    void (*capture)(void *user, bool sent, const void *bytes, size_t len);
    void *capture_user;
    /* listeners only; 0: 4096, 256, 64 */
    uint32_t conns_max;       /* authenticated ones and those in the handshake together */
    uint32_t handshakes_max;  /* of them in the handshake; the oldest gives way */
    uint32_t per_address_max; /* in the handshake or without identity, per IP address */
    /* Where lines about refused strangers go: "refused 10.0.0.7: ..."; may be NULL. At most a few lines a second. */
    void (*log)(void *user, const char *line);
    void *log_user;
};

/* Listens on "host:port" (port 0: any free one). ops.opened is called for each connection that got through; the user
 * pointer of a new connection is listener_user until pl_conn_set_user. The sentence of a failure says what to do:
 * port taken, no permission, no such address. */
enum pelago_status pl_listen(struct pl_listener **out, const struct pl_net_options *o, const char *address,
                             const struct pl_conn_ops *ops, void *listener_user, struct pl_error *err);
/* Could it, now? With the same sentences; for whoever has something to write down first. */
enum pelago_status pl_listen_check(const char *address, struct pl_error *err);
void pl_listener_close(struct pl_listener *l); /* NULL is fine; connections stay */
uint32_t pl_listener_port(const struct pl_listener *l);
/* For opened(): members are never turned out to make room for others, so that nobody may be many of them. A learner has two
 * connections, and as many again while a line breaks. */
enum { PL_CONNS_OF_ONE = 32 };
bool pl_conn_is_too_many(const struct pl_conn *c);
/* Counters for status: accepted, refused, in handshake. */
struct pl_listener_view {
    uint64_t accepted, refused;
    uint32_t handshaking, open;
};
void pl_listener_view(const struct pl_listener *l, struct pl_listener_view *out);

/* Dials "host:port"; opened or closed follows. NULL only without memory. expect: the peer must be a shard of this
 * number (PL_NONE32: any). */
struct pl_conn *pl_dial(const struct pl_net_options *o, const char *address, uint32_t expect_shard,
                        const struct pl_conn_ops *ops, void *user);

/* Queues a message; also before opened(). One frame of any size is taken while there is room; without it no more than
 * PL_CONN_QUEUE_BYTES in all. False: nothing was queued and the connection is broken (closed() follows). */
bool pl_conn_send(struct pl_conn *c, const struct pl_msg *msg);
bool pl_conn_room(struct pl_conn *c);
size_t pl_conn_queued(const struct pl_conn *c); /* bytes not yet handed to the system */

/* Sends what is queued, for at most flush_ns, then closes; 0 closes at once. With flush_ns it also waits so long for
 * the peer to take leave, because what arrives at a closed socket destroys what the peer has not read yet. No callback
 * follows; c must not be used any more (a frame in hand stays valid until its callback returns). */
void pl_conn_close(struct pl_conn *c, uint64_t flush_ns);

void pl_conn_set_user(struct pl_conn *c, void *user);
void pl_conn_set_ops(struct pl_conn *c, const struct pl_conn_ops *ops);
void pl_conn_set_frame_max(struct pl_conn *c, uint32_t payload_bytes);
void pl_conn_pause(struct pl_conn *c, bool paused); /* reading: back-pressure */

void pl_conn_set_bucket(struct pl_conn *c, struct pl_bucket *bucket); /* borrowed; NULL: none */

struct pl_conn_view {
    uint64_t bytes_in, bytes_out; /* of frames, without TLS */
    uint64_t rtt_ns;              /* as the kernel measures it; 0: unknown */
    uint32_t streams;             /* that carry it now */
};
void pl_conn_view(struct pl_conn *c, struct pl_conn_view *out);

#endif
