/* net/conn_int.h - a connection from inside, for conn*.c, dial.c and listen.c.
 *
 * One handle each of libuv: poll (the socket), timer (the nearest of all deadlines), wake (what a call from above put
 * off to the loop: a write, a failure, bytes that wait inside OpenSSL). The memory goes when the last of them is closed.
 */
#ifndef PL_NET_CONN_INT_H
#define PL_NET_CONN_INT_H

#include "net/bundle.h"
#include "net/conn.h"
#include "net/guests.h"
#include "net/queue.h"
#include "net/tls.h"

enum pl_conn_state {
    PL_CONN_DIALLING = 1, /* name, then connect: dial.c decides */
    PL_CONN_SILENT,       /* accepted, and not a byte has come */
    PL_CONN_HANDSHAKE,
    PL_CONN_OPEN,
    PL_CONN_FLUSHING, /* closed from above; the queue goes out */
    PL_CONN_LINGER,   /* everything is out; waits for the peer's end of the stream */
    PL_CONN_DEAD,     /* waits for libuv to let go */
};

enum {
    PL_CONN_TURN_BYTES = 256 << 10, /* read or written before others have their turn */
    PL_CONN_TURN_FRAMES = 256,
    PL_CONN_RECORD_BYTES = 16 << 10, /* the largest TLS record */
};

/* Sent under one key: far below what AES-GCM allows (RFC 8446 section 5.5). */
#define PL_CONN_REKEY_BYTES (UINT64_C(1) << 36)

struct pl_input {
    uint8_t *bytes;
    size_t cap, at, end; /* a frame or a part of one lies in at ... end */
    size_t need;         /* bytes of it wanted before it is worth parsing */
    uint64_t frames;     /* delivered so far */
    bool large;          /* more than the usual buffer holds came since the last look */
};
enum { PL_INPUT_BYTES = 32 << 10 }; /* the usual buffer: a record, and what is left of a frame before it */

/* What the watch compares: less than enough since then is a stall. */
struct pl_marks {
    uint64_t in, out, frames;
    uint64_t in_ns, out_ns;
};

/* How fast bytes go out, and how many may wait in the kernel for it. */
struct pl_pace {
    uint64_t at_ns, out; /* the last look */
    uint32_t most;
};

struct pl_dial;

struct pl_bundle {
    const struct pl_alloc *alloc;
    uint32_t holders;                             /* connections whose memory still points here */
    struct pl_conn *lead;                         /* NULL: it is gone */
    struct pl_conn *streams[PL_CONN_STREAMS_MAX]; /* those alive, the lead among them */
    uint32_t count;
    uint8_t id[PL_BUNDLE_ID_BYTES];
    struct pl_queue out;    /* frames not yet cut into segments */
    struct pl_input in;     /* frames put together */
    uint64_t in_place;      /* of the next byte that is wanted */
    uint64_t out_place;     /* of the first byte in out */
    struct pl_tls_own own;  /* dialling side: for the streams to come */
    struct pl_bundle *next; /* in the listener's list */
};

struct pl_conn {
    uv_loop_t *loop;
    const struct pl_alloc *alloc;
    struct pl_conn_ops ops;
    void *user;
    enum pl_conn_state state;
    bool failing; /* wake ends it with why */
    struct pl_error why;
    struct pl_peer peer;

    uv_poll_t poll;
    uv_timer_t timer;
    uv_idle_t wake;
    int events;       /* polled for */
    bool has_poll;    /* poll is initialised */
    uint32_t holders; /* handles and requests of libuv that still point here */

    struct pl_tls_pipe pipe;
    struct pl_tls_check check;
    SSL *ssl;

    uint32_t frame_max;
    struct pl_input in; /* frames; segments where it is a stream of a bundle */
    bool paused;
    bool spoilt; /* what came is no frame; nothing more is read */
    bool hungry; /* there is more, in the buffer or in OpenSSL's, and the socket may not say so */
    struct pl_queue out;
    size_t retry;      /* bytes of the SSL_write that must be repeated; 0: none */
    bool blocked;      /* the socket takes nothing more now */
    bool full;         /* there was no room; drained is owed */
    bool deaf;         /* the peer takes nothing more; what it has sent is still read */
    uint64_t rekey_at; /* bytes_out at which the sending key changes */
    struct pl_bucket *bucket;
    struct pl_pace pace;
    uint64_t bytes_in, bytes_out;

    uint64_t handshake_ns, stall_ns; /* spans */
    uint64_t born_ns;
    uint64_t deadline_ns; /* of the handshake or the flush */
    uint64_t bucket_ns;   /* when the bucket allows more */
    uint64_t watch_ns;    /* when to look for a stall */
    bool watched;         /* marks are of the present busy time */
    bool excused;         /* a deadline was moved, because we came late to it ourselves */
    uint64_t timer_ns;    /* for when the timer is set; PL_NEVER: it is not */
    struct pl_marks marks;

    struct pl_member member;
    struct pl_tls_own own; /* dialling side, until it is open */
    uint8_t streams; /* dialling side: how many are wanted; accepting side: how many a bundle may have */
    void (*capture)(void *user, bool sent, const void *bytes, size_t len);
    void *capture_user;

    struct pl_dial *dial;         /* dialling side, until connected */
    struct pl_listener *listener; /* accepting side; NULL when it is closed */
    uint64_t owner;               /* pl_address_owner */
    struct pl_guest guest;        /* its place in the listener's books */
};

/* conn.c */
struct pl_conn *pl_conn_new(const struct pl_net_options *o, const struct pl_conn_ops *ops, void *user);
/* Takes fd over, also on failure, which is an errno. */
int pl_conn_adopt(struct pl_conn *c, int fd);
void pl_conn_poll(struct pl_conn *c, int events);
void pl_conn_arm(struct pl_conn *c);  /* polls and sets the timer as the state wants it */
void pl_conn_wake(struct pl_conn *c); /* soon, from the loop */
/* The handshake begins; needs pipe.fd and check. False without memory. */
bool pl_conn_begin_tls(struct pl_conn *c, SSL_CTX *ctx, const struct pl_tls_own *own, enum pl_tls_kind kind);
void pl_conn_handshake(struct pl_conn *c);
/* Ends it: tells the user (or the log, where nobody above knows of it yet). From the loop only. */
void pl_conn_fail(struct pl_conn *c, const struct pl_error *why);
void pl_conn_break(struct pl_conn *c,
                   const struct pl_error *why); /* the same, put off; the first reason counts */
void pl_conn_destroy(struct pl_conn *c);
void pl_conn_release(struct pl_conn *c); /* one holder less */

/* input.c */
/* Room for cap bytes from at on. False without memory. */
bool pl_input_reserve(struct pl_input *in, const struct pl_alloc *alloc, size_t cap);
void pl_input_release(struct pl_input *in, const struct pl_alloc *alloc);

/* conn_io.c; from the loop only */
struct pl_input *pl_conn_frames(struct pl_conn *c); /* where the frames of a connection lie */
/* Hands over what frames there are, some at a time. False: nothing more is to be read now. */
bool pl_conn_deliver(struct pl_conn *c, uint64_t *turn_frames);
void pl_conn_spoil(struct pl_conn *c, const struct pl_error *err); /* bad() */
void pl_conn_fail_no_memory(struct pl_conn *c);
void pl_conn_read(struct pl_conn *c);
void pl_conn_write(struct pl_conn *c);
void pl_conn_end_batch(struct pl_conn *c);
void pl_conn_discard(struct pl_conn *c);
void pl_conn_mark(struct pl_conn *c, uint64_t now_ns);  /* begins to look for stalls */
void pl_conn_watch(struct pl_conn *c, uint64_t now_ns); /* looks for them; may end it */
bool pl_conn_is_busy(const struct pl_conn *c);          /* there is something to watch */

/* dial.c */
/* One more stream for this bundle, or NULL without memory; nobody above hears of it. */
struct pl_conn *pl_dial_stream(struct pl_conn *lead);
void pl_dial_connected(struct pl_conn *c);
void pl_dial_timeout(struct pl_conn *c);
void pl_dial_cancel(struct pl_conn *c);

/* listen.c */
void pl_listener_first_bytes(struct pl_conn *c);
/* Whether a step of a handshake may be done in this turn of the loop; if not, the socket will ask again. */
bool pl_listener_grants_step(const struct pl_conn *c);
void pl_listener_opened(struct pl_conn *c);                              /* before ops.opened */
void pl_listener_refused(struct pl_conn *c, const struct pl_error *why); /* counts and logs */
void pl_listener_forget(struct pl_conn *c);
size_t pl_listener_room(const struct pl_listener *l); /* a connection's share of what may be queued */
struct pl_bundle **pl_listener_bundles(struct pl_listener *l); /* those that streams may join */

/* sock.c */
int pl_sock_new(int family); /* non-blocking, closed on exec; -1 and errno */
void pl_sock_tune(int fd);
void pl_sock_pace(struct pl_conn *c, uint64_t now_ns); /* while it sends: what may wait in the kernel */

#endif
