/* net/bundle.c - see bundle.h: who belongs to a bundle, and how it ends. Segments are segment.c's. */
#include "net/conn_int.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/num.h"

struct pl_conn *pl_bundle_lead(struct pl_conn *c)
{
    return c->member.bundle != NULL ? c->member.bundle->lead : c;
}

uint32_t pl_bundle_streams(const struct pl_conn *lead)
{
    const struct pl_bundle *b = lead->member.bundle;
    uint32_t n = 0;
    for (uint32_t i = 0; b != NULL && i < b->count; i++)
        n += b->streams[i]->member.joined;
    return b != NULL ? n : 1;
}

void pl_bundle_wake(struct pl_conn *lead)
{
    const struct pl_bundle *b = lead->member.bundle;
    for (uint32_t i = 0; i < b->count; i++)
        pl_conn_wake(b->streams[i]);
}

/* --- coming --- */

static void add(struct pl_bundle *b, struct pl_conn *c)
{
    pl_assert(b->count < PL_CONN_STREAMS_MAX && c->member.bundle == NULL);
    b->streams[b->count++] = c;
    b->holders++;
    c->member.bundle = b;
}

static bool say_hello(struct pl_conn *c, uint32_t streams)
{
    uint8_t *room = pl_queue_room(&c->out, PL_BUNDLE_HELLO_BYTES);
    if (room == NULL)
        return false;
    pl_put_le(room, streams, PL_BUNDLE_HELLO_BYTES);
    pl_queue_add(&c->out, PL_BUNDLE_HELLO_BYTES);
    return true;
}

static void join(struct pl_conn *c)
{
    c->member.joined = true;
    c->deadline_ns = PL_NEVER;
    c->pipe.in_max = UINT64_MAX;
    c->bucket = c->member.bundle->lead->bucket;
    pl_conn_wake(c);
}

/* What was queued before the handshake was done is frames, and stays so. */
static bool open_lead(struct pl_conn *c)
{
    struct pl_bundle *b = pl_alloc_zero(c->alloc, 1, sizeof *b);
    if (b == NULL)
        return false;
    b->alloc = c->alloc;
    b->lead = c;
    b->out = c->out;
    pl_queue_init(&c->out, c->alloc);
    add(b, c);
    b->own = c->own;
    c->own = (struct pl_tls_own){NULL, NULL};
    c->member.greeting = c->check.dialling ? PL_BUNDLE_HELLO_BYTES : 0;
    c->member.joined = true;
    if (c->listener != NULL) {
        struct pl_bundle **list = pl_listener_bundles(c->listener);
        b->next = *list;
        *list = b;
    }
    return pl_tls_secret(c->ssl, b->id, sizeof b->id) && (c->check.dialling || say_hello(c, c->streams));
}

static bool same_peer(const struct pl_conn *a, const struct pl_conn *b)
{
    const struct pl_pki_name *x = &a->check.name, *y = &b->check.name;
    return x->run_id == y->run_id && x->role == y->role && x->identity == y->identity && x->shard == y->shard;
}

/* The dialling side says which bundle it means; the accepting side waits to hear it. */
static bool open_stream(struct pl_conn *c)
{
    const struct pl_bundle *b = c->member.bundle;
    c->member.greeting = b != NULL ? PL_BUNDLE_HELLO_BYTES : PL_BUNDLE_ID_BYTES;
    c->deadline_ns = uv_hrtime() + c->handshake_ns;
    c->pipe.in_max = c->pipe.in + PL_CONN_STRANGER_BYTES;
    if (b == NULL)
        return true;
    uint8_t *room = same_peer(c, b->lead) ? pl_queue_room(&c->out, sizeof b->id) : NULL;
    if (room == NULL)
        return false;
    memcpy(room, b->id, sizeof b->id);
    pl_queue_add(&c->out, sizeof b->id);
    return true;
}

bool pl_bundle_open(struct pl_conn *c)
{
    struct pl_error why;
    bool dialling = c->check.dialling;
    enum pl_tls_kind kind = pl_tls_kind(c->ssl);
    pl_assert(c->state == PL_CONN_OPEN);
    c->member.is_stream = kind == PL_TLS_STREAM;
    if (kind != PL_TLS_BUNDLE && kind != PL_TLS_STREAM)
        return true;
    if (!dialling && c->check.name.role == PL_ROLE_NONE) /* its reserve is for those we know */
        (void)pl_fail(&why, PELAGO_PROTO, "it wants several streams but shows no certificate");
    else if (kind == PL_TLS_BUNDLE ? open_lead(c) : open_stream(c))
        return true;
    else
        (void)pl_fail(&why, PELAGO_NOMEM, "out of memory for several streams to %s", c->peer.address);
    if (!dialling)
        c->state = PL_CONN_HANDSHAKE; /* nobody above has heard of it */
    pl_conn_fail(c, &why);
    return false;
}

/* --- greetings --- */

static void dial_others(struct pl_conn *lead, uint32_t allowed)
{
    uint32_t wanted = pl_min32(lead->streams, pl_min32(allowed, PL_CONN_STREAMS_MAX));
    for (uint32_t i = 1; i < wanted; i++) {
        struct pl_conn *c = pl_dial_stream(lead);
        if (c == NULL)
            return; /* fewer will do */
        c->member.is_stream = true;
        add(lead->member.bundle, c);
    }
}

static struct pl_bundle *find(struct pl_conn *c, const uint8_t *id)
{
    struct pl_bundle *found = NULL;
    struct pl_bundle *b = c->listener != NULL ? *pl_listener_bundles(c->listener) : NULL;
    for (; b != NULL; b = b->next)
        if (pl_secret_equal(b->id, id, sizeof b->id))
            found = b;
    return found;
}

static bool accept_stream(struct pl_conn *c, const uint8_t *id)
{
    struct pl_error why;
    struct pl_bundle *b = find(c, id);
    if (b == NULL || b->lead->state != PL_CONN_OPEN || !same_peer(c, b->lead))
        (void)pl_fail(&why, PELAGO_INVALID, "it offers a further stream for a connection that is not there");
    else if (b->count >= c->streams)
        (void)pl_fail(&why, PELAGO_LIMIT, "it has %u streams already, no more are allowed", b->count);
    else if (!say_hello(c, c->streams))
        (void)pl_fail(&why, PELAGO_NOMEM, "out of memory for a further stream");
    else {
        add(b, c);
        join(c);
        return true;
    }
    pl_conn_fail(c, &why);
    return false;
}

bool pl_bundle_greet(struct pl_conn *c)
{
    struct pl_input *in = &c->in;
    struct pl_error why;
    if (in->end - in->at < c->member.greeting)
        return true;
    const uint8_t *bytes = in->bytes + in->at;
    in->at += c->member.greeting;
    c->member.greeting = 0;
    if (!c->check.dialling)
        return accept_stream(c, bytes);
    uint64_t allowed = pl_get_le(bytes, PL_BUNDLE_HELLO_BYTES);
    if (allowed == 0 || allowed > PL_CONN_STREAMS_MAX) {
        (void)pl_fail(&why, PELAGO_PROTO, "%s allows %lu streams: 1 to %u are possible", c->peer.address,
                      allowed, (unsigned)PL_CONN_STREAMS_MAX);
        pl_conn_fail(c, &why);
        return false;
    }
    if (c->member.is_stream)
        join(c);
    else
        dial_others(c, (uint32_t)allowed);
    return true;
}

/* --- going --- */

void pl_bundle_fail(struct pl_conn *c, const struct pl_error *why)
{
    struct pl_conn *lead = c->member.bundle != NULL ? c->member.bundle->lead : NULL;
    bool open = c->state == PL_CONN_OPEN;
    if (open && c->member.joined && lead != NULL && lead->state == PL_CONN_OPEN) {
        pl_conn_fail(lead, why);
        return;
    }
    if (c->listener != NULL && !c->member.joined && c->state <= PL_CONN_OPEN)
        pl_listener_refused(c, why);
    pl_conn_destroy(c);
}

bool pl_bundle_end(struct pl_conn *c)
{
    const struct pl_bundle *b = c->member.bundle;
    c->member.ended = true;
    for (uint32_t i = 0; b != NULL && i < b->count; i++)
        if (b->streams[i]->member.joined && !b->streams[i]->member.ended)
            return false;
    return true;
}

void pl_bundle_close(struct pl_conn *lead)
{
    struct pl_bundle *b = lead->member.bundle;
    for (uint32_t i = b->count; i-- > 0;) {
        struct pl_conn *c = b->streams[i];
        if (c == lead)
            continue;
        if (c->state == PL_CONN_OPEN) {
            c->state = PL_CONN_FLUSHING;
            c->deadline_ns = lead->deadline_ns;
            pl_conn_wake(c);
        } else if (c->state < PL_CONN_OPEN) {
            pl_conn_destroy(c); /* the other side has not heard what it is for */
        }
    }
}

static void unlist(struct pl_bundle *b, struct pl_listener *l)
{
    struct pl_bundle **at = pl_listener_bundles(l);
    while (*at != NULL && *at != b)
        at = &(*at)->next;
    if (*at == b)
        *at = b->next;
}

void pl_bundle_unlist(struct pl_conn *c)
{
    if (c->member.bundle != NULL && c->member.bundle->lead == c && c->listener != NULL)
        unlist(c->member.bundle, c->listener);
}

void pl_bundle_leave(struct pl_conn *c)
{
    struct pl_bundle *b = c->member.bundle;
    uint32_t i = 0;
    if (b == NULL)
        return;
    while (i < b->count && b->streams[i] != c)
        i++;
    pl_assert(i < b->count);
    b->streams[i] = b->streams[--b->count];
    if (b->lead != c)
        return;
    b->lead = NULL;
    for (i = b->count; i-- > 0;)
        if (b->streams[i]->state <= PL_CONN_OPEN)
            pl_conn_destroy(b->streams[i]);
}

void pl_bundle_release(struct pl_conn *c)
{
    struct pl_bundle *b = c->member.bundle;
    pl_tls_own_release(&c->own);
    if (b == NULL || --b->holders > 0)
        return;
    pl_assert(b->count == 0 && b->lead == NULL);
    pl_tls_own_release(&b->own);
    pl_queue_release(&b->out);
    pl_input_release(&b->in, b->alloc);
    pl_alloc_free(b->alloc, b, sizeof *b);
}
