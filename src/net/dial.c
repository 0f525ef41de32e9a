/* net/dial.c - from "host:port" to a connected socket: every address of the name, one after the other.
 *
 * Names are looked up on libuv's worker threads. When and how often to dial again is decided above.
 */
#include "net/conn_int.h"

#include "base/check.h"
#include "base/fmt.h"

#include <errno.h>
#include <unistd.h>

#define CONNECT_LAST_NS (10 * PL_SEC)
#define CONNECT_NEXT_NS (3 * PL_SEC) /* where there is another address to try */

enum { STREAMS_FAR = 4 };

struct pl_dial {
    struct pl_address address;
    SSL_CTX *ctx; /* borrowed */
    struct addrinfo *list, *at;
    uv_getaddrinfo_t request;
    bool resolving;
    int error; /* errno of the last attempt */
};

static void free_dial(struct pl_conn *c)
{
    struct pl_dial *d = c->dial;
    c->dial = NULL;
    if (d == NULL)
        return;
    if (d->list != NULL)
        freeaddrinfo(d->list);
    pl_alloc_free(c->alloc, d, sizeof *d);
}

void pl_dial_cancel(struct pl_conn *c)
{
    /* The thread may be at it: the callback comes in any case, and lets go. */
    if (c->dial->resolving)
        (void)uv_cancel((uv_req_t *)&c->dial->request);
    else
        free_dial(c);
}

static enum pelago_status explain(const struct pl_conn *c, int code, struct pl_error *err)
{
    const char *who = c->peer.address;
    switch (code) {
    case ECONNREFUSED:
        return pl_fail(err, PELAGO_UNREACHABLE,
                       "nobody listens at %s: is the syncer running, and is this its port?", who);
    case ETIMEDOUT:
        return pl_fail(err, PELAGO_UNREACHABLE,
                       "%s does not answer: is the machine up, and does its firewall let this port through?",
                       who);
    case ENETUNREACH:
    case EHOSTUNREACH:
    case EADDRNOTAVAIL:
        return pl_fail(
            err, PELAGO_UNREACHABLE,
            "%s cannot be reached from here: is this machine's network up, and is the address right?", who);
    case EACCES:
    case EPERM:
        return pl_fail(err, PELAGO_UNREACHABLE,
                       "this machine does not allow a connection to %s: look at its firewall rules", who);
    case EMFILE:
    case ENFILE:
        return pl_fail(err, PELAGO_UNREACHABLE,
                       "no socket for %s: too many files are open; raise the limit (ulimit -n)", who);
    default:
        return pl_fail(err, PELAGO_UNREACHABLE, "no connection to %s: %s", who, strerror(code));
    }
}

static enum pelago_status explain_name(const struct pl_conn *c, int code, struct pl_error *err)
{
    const char *host = c->dial->address.host;
    if (code == UV_EAI_NONAME || code == UV_EAI_NODATA || code == UV_EAI_ADDRFAMILY)
        return pl_fail(err, PELAGO_NOTFOUND, "there is no host named %s: is it spelled right?", host);
    if (code == UV_EAI_AGAIN)
        return pl_fail(err, PELAGO_NOTFOUND,
                       "the name %s cannot be looked up now: is this machine's network and name service up?",
                       host);
    return pl_fail(err, PELAGO_NOTFOUND, "the name %s cannot be looked up: %s", host, uv_strerror(code));
}

/* Begins the attempt at one address; an errno when it failed at once. */
static int attempt(struct pl_conn *c, const struct addrinfo *a)
{
    int fd = pl_sock_new(a->ai_family);
    if (fd < 0)
        return errno;
    if (connect(fd, a->ai_addr, a->ai_addrlen) != 0 && errno != EINPROGRESS) {
        int code = errno;
        (void)close(fd);
        return code;
    }
    int code = pl_conn_adopt(c, fd);
    if (code == 0)
        pl_conn_poll(c, UV_WRITABLE);
    return code;
}

static void try_next(struct pl_conn *c)
{
    struct pl_dial *d = c->dial;
    struct pl_error why;
    pl_assert(c->state == PL_CONN_DIALLING && !c->has_poll && c->pipe.fd < 0);
    while (d->at != NULL) {
        const struct addrinfo *a = d->at;
        d->at = a->ai_next;
        d->error = attempt(c, a);
        if (d->error == 0) {
            c->deadline_ns = uv_hrtime() + (d->at != NULL ? CONNECT_NEXT_NS : CONNECT_LAST_NS);
            pl_conn_arm(c);
            return;
        }
    }
    (void)explain(c, d->error, &why);
    pl_conn_break(c, &why);
}

static void on_attempt_closed(uv_handle_t *handle)
{
    struct pl_conn *c = handle->data;
    if (c->state != PL_CONN_DEAD)
        try_next(c);
    pl_conn_release(c);
}

static void give_up_attempt(struct pl_conn *c, int code)
{
    pl_assert(code != 0 && c->has_poll);
    c->dial->error = code;
    c->deadline_ns = PL_NEVER;
    c->has_poll = false;
    c->events = 0;
    uv_close((uv_handle_t *)&c->poll, on_attempt_closed);
    (void)close(c->pipe.fd);
    c->pipe.fd = -1;
}

void pl_dial_timeout(struct pl_conn *c)
{
    if (c->has_poll)
        give_up_attempt(c, ETIMEDOUT);
}

/* A port of the range that the system gives out can be connected to itself when nobody listens there. */
static bool is_own_echo(int fd)
{
    struct sockaddr_storage own = {0}, peer = {0};
    socklen_t own_len = sizeof own, peer_len = sizeof peer;
    return getsockname(fd, (struct sockaddr *)&own, &own_len) == 0 &&
           getpeername(fd, (struct sockaddr *)&peer, &peer_len) == 0 && own_len == peer_len &&
           memcmp(&own, &peer, own_len) == 0;
}

/* The first round trip is behind us. Whoever has no identity gets one stream in any case. */
static void choose_streams(struct pl_conn *c)
{
    struct pl_conn_view view;
    pl_conn_view(c, &view);
    if (c->streams == PL_CONN_STREAMS_AUTO)
        c->streams = view.rtt_ns >= PL_CONN_FAR_NS ? STREAMS_FAR : 1;
    if (c->own.certificate == NULL)
        c->streams = 1;
}

void pl_dial_connected(struct pl_conn *c)
{
    int code = 0;
    socklen_t len = sizeof code;
    if (getsockopt(c->pipe.fd, SOL_SOCKET, SO_ERROR, &code, &len) != 0)
        code = errno;
    if (code == 0 && is_own_echo(c->pipe.fd))
        code = ECONNREFUSED;
    if (code != 0) {
        give_up_attempt(c, code);
        return;
    }
    pl_sock_tune(c->pipe.fd);
    c->deadline_ns = uv_hrtime() + c->handshake_ns;
    choose_streams(c);
    enum pl_tls_kind kind = c->member.is_stream ? PL_TLS_STREAM
                            : c->streams > 1    ? PL_TLS_BUNDLE
                                                : PL_TLS_FRAMES;
    bool begun = pl_conn_begin_tls(c, c->dial->ctx, &c->own, kind);
    free_dial(c);
    if (begun) {
        pl_conn_handshake(c);
    } else {
        struct pl_error why;
        (void)pl_fail(&why, PELAGO_NOMEM, "out of memory for a connection to %s", c->peer.address);
        pl_conn_fail(c, &why);
    }
}

static void on_resolved(uv_getaddrinfo_t *request, int status, struct addrinfo *list)
{
    struct pl_conn *c = request->data;
    struct pl_error why;
    pl_assert(c->dial->resolving && c->dial->list == NULL);
    c->dial->resolving = false;
    c->dial->list = c->dial->at = list;
    if (c->state == PL_CONN_DEAD) {
        free_dial(c);
    } else if (status != 0) {
        (void)explain_name(c, status, &why);
        pl_conn_break(c, &why);
    } else {
        try_next(c);
    }
    pl_conn_release(c);
}

static void look_up(struct pl_conn *c)
{
    struct pl_dial *d = c->dial;
    struct pl_error why;
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST};
    if (getaddrinfo(d->address.host, d->address.port, &hints, &d->list) == 0) {
        d->at = d->list;
        try_next(c);
        return;
    }
    hints.ai_flags = 0;
    d->list = NULL;
    d->request.data = c;
    int code = uv_getaddrinfo(c->loop, &d->request, on_resolved, d->address.host, d->address.port, &hints);
    d->resolving = code == 0;
    if (d->resolving) {
        c->holders++;
    } else {
        (void)explain_name(c, code, &why);
        pl_conn_break(c, &why);
    }
}

/* Everything that can be wrong before a packet is sent. */
static enum pelago_status prepare(struct pl_conn *c, const char *address, struct pl_error *err)
{
    struct pl_dial *d = c->dial;
    PL_TRY(pl_address_parse(address, &d->address, err));
    if (d->address.host[0] == '\0' || strcmp(d->address.host, "*") == 0 || strcmp(d->address.port, "0") == 0)
        return pl_fail(err, PELAGO_INVALID, "%s is nothing to connect to: say the syncer's host and port",
                       address);
    d->ctx = pl_tls_dialling(err);
    return d->ctx != NULL ? PELAGO_OK : PELAGO_INVALID;
}

static struct pl_conn *new_dial(const struct pl_net_options *o, const char *address,
                                const struct pl_conn_ops *ops, void *user)
{
    struct pl_conn *c = pl_conn_new(o, ops, user);
    if (c == NULL)
        return NULL;
    c->state = PL_CONN_DIALLING;
    c->check.dialling = true;
    c->dial = pl_alloc_zero(o->alloc, 1, sizeof *c->dial);
    if (c->dial == NULL) {
        pl_conn_destroy(c);
        return NULL;
    }
    pl_fmt(c->peer.address, sizeof c->peer.address, "%s", address);
    return c;
}

struct pl_conn *pl_dial(const struct pl_net_options *o, const char *address, uint32_t expect_shard,
                        const struct pl_conn_ops *ops, void *user)
{
    struct pl_error why;
    struct pl_conn *c = new_dial(o, address, ops, user);
    if (c == NULL)
        return NULL;
    c->check.expect_shard = expect_shard;
    memcpy(c->check.fingerprint, o->own->fingerprint, sizeof c->check.fingerprint);
    if (prepare(c, address, &why) == PELAGO_OK && pl_tls_own_load(&c->own, o->own, &why) == PELAGO_OK)
        look_up(c);
    else
        pl_conn_break(c, &why);
    return c;
}

struct pl_conn *pl_dial_stream(struct pl_conn *lead)
{
    const struct pl_net_options o = {.loop = lead->loop,
                                     .alloc = lead->alloc,
                                     .handshake_ns = lead->handshake_ns,
                                     .stall_ns = lead->stall_ns};
    struct sockaddr_storage peer = {0};
    socklen_t len = sizeof peer;
    struct pl_error why;
    char address[PL_ADDRESS_MAX];
    if (getpeername(lead->pipe.fd, (struct sockaddr *)&peer, &len) != 0)
        return NULL;
    pl_address_print((const struct sockaddr *)&peer, address); /* a name might lead to another machine now */
    struct pl_conn *c = new_dial(&o, address, &lead->ops, NULL);
    if (c == NULL)
        return NULL;
    c->member.is_stream = true;
    c->check.expect_shard = lead->check.expect_shard;
    memcpy(c->check.fingerprint, lead->check.fingerprint, sizeof c->check.fingerprint);
    pl_tls_own_share(&c->own, &lead->member.bundle->own);
    if (prepare(c, address, &why) == PELAGO_OK)
        look_up(c);
    else
        pl_conn_break(c, &why);
    return c;
}
