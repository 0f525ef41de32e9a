/* net/segment.c - see bundle.h: a queue of frames cut into segments, and segments put in order again.
 *
 * Within a stream places only grow, so the next byte that is wanted is the next one of some stream, and nothing has to be
 * sorted: whoever has it gives it, as much as is there, also before the rest of its segment has come.
 */
#include "net/conn_int.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/num.h"

enum { SEGMENTS_A_SECOND = 100, SEGMENT_BYTES_MIN = 4096 };

/* --- out --- */

bool pl_bundle_is_empty(const struct pl_conn *c)
{
    return c->member.bundle == NULL || !c->member.joined || c->member.bundle->out.bytes == 0;
}

static void cut(struct pl_queue *from, uint8_t *to, size_t n)
{
    while (n > 0) {
        size_t piece;
        const uint8_t *bytes = pl_queue_front(from, &piece);
        piece = (size_t)pl_min64(piece, n);
        memcpy(to, bytes, piece);
        pl_queue_take(from, piece);
        to += piece;
        n -= piece;
    }
}

/* At a limited rate short ones: every stream is in the middle of one, and only the oldest is of use to the receiver. */
static uint64_t segment_bytes(const struct pl_conn *c)
{
    if (c->bucket == NULL || c->bucket->bytes_per_s == 0)
        return PL_SEGMENT_BYTES;
    return pl_clamp64(c->bucket->bytes_per_s / SEGMENTS_A_SECOND, SEGMENT_BYTES_MIN, PL_SEGMENT_BYTES);
}

bool pl_bundle_refill(struct pl_conn *c)
{
    struct pl_bundle *b = c->member.bundle;
    if (pl_bundle_is_empty(c) || c->deaf)
        return false;
    size_t n = (size_t)pl_min64(b->out.bytes, segment_bytes(c));
    uint8_t *room = pl_queue_room(&c->out, PL_SEGMENT_HEADER_BYTES + n);
    if (room == NULL) {
        struct pl_error why;
        (void)pl_fail(&why, PELAGO_NOMEM, "out of memory for a segment of %lu bytes", (uint64_t)n);
        pl_conn_break(b->lead != NULL ? b->lead : c, &why);
        return false;
    }
    pl_put_le(room, b->out_place, 8);
    pl_put_le(room + 8, n, 4);
    cut(&b->out, room + PL_SEGMENT_HEADER_BYTES, n);
    pl_queue_add(&c->out, PL_SEGMENT_HEADER_BYTES + n);
    b->out_place += n;
    return true;
}

size_t pl_bundle_queued(const struct pl_conn *lead)
{
    const struct pl_bundle *b = lead->member.bundle;
    size_t n = b->out.bytes;
    for (uint32_t i = 0; i < b->count; i++) {
        const struct pl_tls_batch *batch = b->streams[i]->pipe.batch;
        n += b->streams[i]->out.bytes + (batch != NULL ? batch->end - batch->at : 0);
    }
    return n;
}

/* --- in --- */

bool pl_bundle_is_paused(const struct pl_conn *c)
{
    const struct pl_conn *lead = c->member.bundle != NULL ? c->member.bundle->lead : c;
    return lead == NULL || lead->paused || lead->spoilt;
}

bool pl_bundle_owes(const struct pl_conn *lead)
{
    const struct pl_bundle *b = lead->member.bundle;
    bool owes = b->in.end > b->in.at;
    for (uint32_t i = 0; i < b->count && !owes; i++) {
        const struct pl_conn *c = b->streams[i];
        owes = c->member.joined && (c->in.end > c->in.at || c->member.left > 0 || SSL_has_pending(c->ssl));
    }
    return owes;
}

bool pl_bundle_reserve(struct pl_conn *c)
{
    struct pl_input *in = &c->in;
    size_t want = in->end - in->at + PL_CONN_RECORD_BYTES, cap = PL_INPUT_BYTES;
    while (cap < want)
        cap *= 2;
    pl_assert(cap <= 2 * (size_t)PL_STREAM_AHEAD_BYTES);
    in->large = in->large || cap > PL_INPUT_BYTES;
    return pl_input_reserve(in, c->alloc, in->cap - in->at >= want ? in->cap - in->at : cap);
}

bool pl_bundle_is_ahead(struct pl_conn *c)
{
    c->member.held = c->in.end - c->in.at >= PL_STREAM_AHEAD_BYTES;
    return c->member.held;
}

/* False: it is no segment of this stream. */
static bool read_header(struct pl_conn *c, struct pl_error *err)
{
    const struct pl_bundle *b = c->member.bundle;
    struct pl_member *m = &c->member;
    const uint8_t *bytes = c->in.bytes + c->in.at;
    uint64_t place = pl_get_le(bytes, 8), len = pl_get_le(bytes + 8, 4), end;
    if (len == 0 || len > PL_SEGMENT_BYTES || place < m->at || place < b->in_place ||
        pl_add_overflow(place, len, &end)) {
        (void)pl_fail(err, PELAGO_PROTO, "a segment of %lu bytes at place %lu, where %lu is the next", len,
                      place, b->in_place);
        return false;
    }
    m->at = place;
    m->left = (uint32_t)len;
    c->in.at += PL_SEGMENT_HEADER_BYTES;
    return true;
}

/* Moves bytes of a stream to the frames. False: it has none that are wanted now. */
static bool feed(struct pl_conn *c, struct pl_conn *lead)
{
    struct pl_bundle *b = c->member.bundle;
    struct pl_member *m = &c->member;
    struct pl_error err;
    struct pl_input *from = &c->in, *to = &b->in;
    if (c->state != PL_CONN_OPEN || m->greeting > 0)
        return false;
    if (m->left == 0 && from->end - from->at >= PL_SEGMENT_HEADER_BYTES && !read_header(c, &err)) {
        pl_conn_spoil(lead, &err);
        return false;
    }
    uint64_t n = pl_min64(m->left, from->end - from->at);
    if (n == 0 || m->at != b->in_place)
        return false;
    if (!pl_input_reserve(to, b->alloc, pl_max64(PL_INPUT_BYTES, to->need))) {
        pl_conn_fail_no_memory(lead);
        return false;
    }
    n = pl_min64(n, to->cap - to->end);
    memcpy(to->bytes + to->end, from->bytes + from->at, (size_t)n);
    to->end += n;
    from->at += n;
    m->at += n;
    m->left -= (uint32_t)n;
    b->in_place += n;
    return n > 0;
}

static void read_again(struct pl_conn *c)
{
    if (!c->member.held)
        return;
    c->member.held = false;
    c->hungry = true;
    pl_conn_wake(c);
}

bool pl_bundle_pump(struct pl_conn *c, uint64_t *turn_frames)
{
    bool moved = true;
    if (c->member.greeting > 0 && !pl_bundle_greet(c))
        return false;
    struct pl_bundle *b = c->member.bundle;
    if (b == NULL)
        return true; /* more of its greeting must come */
    struct pl_conn *lead = b->lead;
    if (lead == NULL || !pl_conn_deliver(lead, turn_frames))
        return false;
    while (moved && *turn_frames < PL_CONN_TURN_FRAMES) {
        moved = false;
        for (uint32_t i = 0; i < b->count; i++)
            while (feed(b->streams[i], lead)) {
                moved = true;
                read_again(b->streams[i]);
                if (!pl_conn_deliver(lead, turn_frames))
                    return false;
            }
    }
    return lead->state == PL_CONN_OPEN && !lead->spoilt && c->state == PL_CONN_OPEN;
}
