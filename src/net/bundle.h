/* net/bundle.h - one connection whose bytes travel over several TLS connections, for long fat links.
 *
 * A single TCP connection sends at most a window per round trip, and one lost packet halves it. A bundle has a lead, the
 * connection everybody above knows, and up to seven more streams that only carry bytes. The queue of the lead is cut into
 * segments, and each stream takes the next one when its socket has room; so no stream waits for another. The receiver
 * takes segments in their order; a stream that is ahead keeps what it has, up to a bound, and then is not read.
 *
 * On the wire, inside TLS (ALPN says which of the two a connection is, tls.h):
 *   accepting side, first on every stream: u32 streams it allows. The dialling side then dials the others, and uses a
 *     stream once it has heard this there.
 *   dialling side, first on every stream but the lead: 16 bytes that only the two ends of the lead know (exported from its
 *     TLS). The stream must show the same identity as the lead.
 *   then, both: segments of u64 place of the first byte, u32 length (1 to PL_SEGMENT_BYTES), bytes.
 * A stream that breaks after it was joined breaks the connection; one that cannot be made is done without.
 */
#ifndef PL_NET_BUNDLE_H
#define PL_NET_BUNDLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pl_bundle;
struct pl_conn;
struct pl_error;

enum {
    PL_SEGMENT_HEADER_BYTES = 12,
    PL_SEGMENT_BYTES = 60 << 10,
    PL_BUNDLE_ID_BYTES = 16,
    PL_BUNDLE_HELLO_BYTES = 4,
    PL_STREAM_AHEAD_BYTES = 1 << 20, /* what a stream that is ahead may hold, beside the kernel's buffer */
};

/* In every connection. */
struct pl_member {
    struct pl_bundle *bundle; /* NULL: none, or not yet */
    bool is_stream;           /* not the lead; nobody above knows of it */
    bool joined;              /* segments may go out here */
    bool ended;               /* the peer has taken leave here */
    bool held;                /* not read because it is too far ahead */
    uint32_t greeting;        /* bytes that must come before segments */
    uint64_t at;              /* place of the next byte of the segment that is coming in */
    uint32_t left;            /* bytes of it */
};

/* The handshake is done and said so. False: it cannot be, and c is gone. */
bool pl_bundle_open(struct pl_conn *c);

/* The connection itself: the lead, or c. NULL: it is gone. */
struct pl_conn *pl_bundle_lead(struct pl_conn *c);
bool pl_bundle_is_paused(const struct pl_conn *c); /* nothing is to be read here now */

/* Reads the greeting once it is there. False: c is gone. */
bool pl_bundle_greet(struct pl_conn *c);
/* Takes segments in their order from all streams and hands over frames. False: nothing more is to be read now. */
bool pl_bundle_pump(struct pl_conn *c, uint64_t *turn_frames);
bool pl_bundle_reserve(struct pl_conn *c);  /* room to read into; false without memory */
bool pl_bundle_is_ahead(struct pl_conn *c); /* too far */
/* The peer took leave on this stream. True: on all of them. */
bool pl_bundle_end(struct pl_conn *c);

/* The next segment into c's own queue. False: there is none for it. */
bool pl_bundle_refill(struct pl_conn *c);
bool pl_bundle_is_empty(const struct pl_conn *c); /* nothing is left that c would have to send */
void pl_bundle_wake(struct pl_conn *lead);        /* all streams that may have something to do */

/* A stream failed: with it the connection, if it was joined. */
void pl_bundle_fail(struct pl_conn *c, const struct pl_error *why);
void pl_bundle_close(struct pl_conn *lead); /* flushing; streams follow the lead */
void pl_bundle_unlist(struct pl_conn *c);   /* no more streams may join */
void pl_bundle_leave(struct pl_conn *c);    /* c dies; a lead takes its streams along */
void pl_bundle_release(struct pl_conn *c);  /* c's memory goes */

/* Of all streams together. */
size_t pl_bundle_queued(const struct pl_conn *lead);
bool pl_bundle_owes(const struct pl_conn *lead); /* something has begun to come in */
uint32_t pl_bundle_streams(const struct pl_conn *lead);

#endif
