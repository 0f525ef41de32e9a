/* net/listen.c - sockets that accept, and how strangers are let in: a few per turn, within the limits of guests.h.
 *
 * A stranger costs a structure and a file descriptor until its first byte looks like TLS, and nothing once it is refused.
 * Where everybody in the handshake is making progress the next ones wait in the kernel: throwing out whoever is nearly
 * done would let nobody in when a thousand learners come back at once.
 */
#include "net/conn_int.h"

#include "base/check.h"
#include "base/fmt.h"
#include "base/num.h"

#include <errno.h>
#include <openssl/err.h>
#include <unistd.h>

enum {
    SOCKETS_MAX = 4,
    ACCEPT_BATCH = 32,
    STEPS_A_TURN =
        8, /* of handshakes, a few tenths of a millisecond each: a rush must not hold up the others */
    BACKLOG = 4096,
    LINES_A_SECOND = 5,
    CONNS_MAX = 4096,
    HANDSHAKES_MAX = 256,
    PER_ADDRESS_MAX = 64,
    LINE_MAX_BYTES = PL_ADDRESS_MAX + PL_TEXT_MAX + 64,
};
#define PAUSE_NS (50 * PL_MS)

struct pl_socket {
    uv_poll_t poll;
    int fd;
};

struct pl_listener {
    struct pl_net_options o;
    struct pl_conn_ops ops;
    void *user;
    SSL_CTX *ctx;
    X509 *authority;
    struct pl_socket sockets[SOCKETS_MAX];
    uint32_t socket_count, holders, port;
    uv_timer_t timer;
    uv_prepare_t turn;
    uint32_t steps; /* in this turn of the loop */
    bool paused, closed;
    uint64_t resume_ns; /* when paused: try again */
    struct pl_guests guests;
    struct pl_bundle *bundles;
    uint64_t accepted, refused;
    uint64_t second_ns; /* the second in which lines were written */
    uint32_t lines;
    uint64_t unsaid; /* refusals without a line */
};

static void on_accept(uv_poll_t *handle, int status, int events);
static void on_timer(uv_timer_t *handle);

/* --- the log --- */

static void say(struct pl_listener *l, const char *line)
{
    if (l->o.log != NULL)
        l->o.log(l->o.log_user, line);
}

static void say_unsaid(struct pl_listener *l)
{
    char line[LINE_MAX_BYTES];
    if (l->unsaid == 0)
        return;
    pl_fmt(line, sizeof line, "refused %lu more connections", l->unsaid);
    l->unsaid = 0;
    say(l, line);
}

static void start_timer(struct pl_listener *l, uint64_t after_ns)
{
    uv_update_time(l->o.loop);
    pl_assert(uv_timer_start(&l->timer, on_timer, (after_ns + PL_MS - 1) / PL_MS, 0) == 0);
}

static void log_refusal(struct pl_listener *l, const char *address, const char *why)
{
    char line[LINE_MAX_BYTES];
    uint64_t now = uv_hrtime();
    l->refused++;
    if (now - l->second_ns >= PL_SEC) {
        say_unsaid(l);
        l->second_ns = now;
        l->lines = 0;
    }
    if (l->lines >= LINES_A_SECOND) {
        l->unsaid++;
        if (!uv_is_active((uv_handle_t *)&l->timer))
            start_timer(l, PL_SEC);
        return;
    }
    l->lines++;
    size_t n = strlen(address);
    bool named =
        strncmp(why, address, n) == 0 && why[n] == ':'; /* sentences about a peer begin with its address */
    pl_fmt(line, sizeof line, named ? "refused %s" : "refused %s: %s", named ? why : address, why);
    say(l, line);
}

void pl_listener_refused(struct pl_conn *c, const struct pl_error *why)
{
    log_refusal(c->listener, c->peer.address, why->text);
}

/* --- pausing --- */

static void poll_all(struct pl_listener *l, bool on)
{
    for (uint32_t i = 0; i < l->socket_count; i++)
        pl_assert((on ? uv_poll_start(&l->sockets[i].poll, UV_READABLE, on_accept)
                      : uv_poll_stop(&l->sockets[i].poll)) == 0);
}

static void pause_accepting(struct pl_listener *l)
{
    pl_assert(!l->paused && !l->closed);
    l->paused = true;
    l->resume_ns = uv_hrtime() + PAUSE_NS;
    poll_all(l, false);
    start_timer(l, PAUSE_NS);
}

static void resume(struct pl_listener *l)
{
    if (l->paused && !l->closed) {
        l->paused = false;
        poll_all(l, true);
    }
}

static void on_timer(uv_timer_t *handle)
{
    struct pl_listener *l = handle->data;
    uint64_t now = uv_hrtime();
    if (now - l->second_ns >= PL_SEC)
        say_unsaid(l);
    if (l->paused && now >= l->resume_ns)
        resume(l);
    if (l->paused)
        start_timer(l, pl_sub_sat(l->resume_ns, now));
    else if (l->unsaid > 0)
        start_timer(l, PL_SEC / 10);
}

/* --- strangers --- */

static void on_turn(uv_prepare_t *handle)
{
    struct pl_listener *l = handle->data;
    l->steps = 0;
}

bool pl_listener_grants_step(const struct pl_conn *c)
{
    return c->listener == NULL || c->listener->steps++ < STEPS_A_TURN;
}

static void evict(struct pl_conn *c)
{
    struct pl_error why;
    (void)pl_fail(&why, PELAGO_LIMIT, "it took too long and gave way to a newer connection");
    pl_conn_fail(c, &why);
}

/* Whether one more can be taken, or turned away with a reason; else it waits in the kernel. */
static bool is_worth_accepting(const struct pl_listener *l, uint64_t now)
{
    const struct pl_guests *g = &l->guests;
    bool full = pl_guests_all(g) >= l->o.conns_max;
    if (pl_guests_handshaking(g) < l->o.handshakes_max && !full)
        return true;
    return pl_guests_oldest(g, now, full) != NULL || pl_guests_handshaking(g) == 0;
}

/* NULL: there is room now. Else why there is none. */
static const char *make_room(struct pl_listener *l, uint64_t owner, uint64_t now)
{
    struct pl_guests *g = &l->guests;
    if (pl_guests_of(g, owner) >= l->o.per_address_max) {
        struct pl_conn *c = pl_guests_oldest_of(g, now, owner);
        if (c == NULL)
            return "too many connections from this address at once; try again in a few seconds";
        evict(c);
    }
    if (pl_guests_handshaking(g) >= l->o.handshakes_max) {
        struct pl_conn *c = pl_guests_oldest(g, now, false);
        if (c == NULL)
            return "too many handshakes at once; try again in a few seconds";
        evict(c);
    }
    if (pl_guests_all(g) >= l->o.conns_max) {
        struct pl_conn *c = pl_guests_oldest(g, now, true);
        if (c == NULL)
            return "every place is taken: raise the syncer's limit of connections";
        evict(c);
    }
    return NULL;
}

static void let_in(struct pl_listener *l, int fd, const char *address, uint64_t owner)
{
    struct pl_conn *c = pl_conn_new(&l->o, &l->ops, l->user);
    if (c == NULL || pl_conn_adopt(c, fd) != 0) {
        if (c == NULL)
            (void)close(fd);
        log_refusal(l, address, "out of memory");
        if (c != NULL)
            pl_conn_destroy(c);
        return;
    }
    memcpy(c->peer.address, address, sizeof c->peer.address);
    c->state = PL_CONN_SILENT;
    c->listener = l;
    c->owner = owner;
    c->check.authority = l->authority;
    c->check.expect_shard = PL_NONE32;
    c->deadline_ns = c->born_ns + c->handshake_ns;
    pl_guests_add(&l->guests, c);
    pl_assert(pl_guests_handshaking(&l->guests) <= l->o.handshakes_max);
    pl_assert(pl_guests_all(&l->guests) <= l->o.conns_max);
    pl_sock_tune(fd);
    pl_conn_arm(c);
}

static void take(struct pl_listener *l, int fd, const struct sockaddr *from)
{
    char address[PL_ADDRESS_MAX];
    uint64_t owner = pl_address_owner(from);
    pl_address_print(from, address);
    const char *why = make_room(l, owner, uv_hrtime());
    if (l->closed || why != NULL) {
        (void)close(fd);
        if (!l->closed)
            log_refusal(l, address, why);
        return;
    }
    let_in(l, fd, address, owner);
}

static void on_accept(uv_poll_t *handle, int status, int events)
{
    struct pl_listener *l = handle->data;
    const struct pl_socket *s = (const struct pl_socket *)handle;
    (void)status;
    (void)events;
    for (unsigned i = 0; i < ACCEPT_BATCH && !l->closed && !l->paused; i++) {
        struct sockaddr_storage from = {0};
        socklen_t len = sizeof from;
        if (!is_worth_accepting(l, uv_hrtime())) {
            pause_accepting(l);
            return;
        }
        int fd = accept4(s->fd, (struct sockaddr *)&from, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            take(l, fd, (const struct sockaddr *)&from);
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            log_refusal(l, "new connections", "too many files are open; raise the limit (ulimit -n)");
            pause_accepting(l);
            return;
        } else if (errno != EINTR && errno != ECONNABORTED) {
            return;
        }
    }
}

void pl_listener_first_bytes(struct pl_conn *c)
{
    struct pl_listener *l = c->listener;
    struct pl_error why;
    uint8_t first[2];
    pl_assert(l != NULL && c->state == PL_CONN_SILENT);
    ssize_t n = recv(c->pipe.fd, first, sizeof first, MSG_PEEK);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0)
        (void)pl_fail(&why, PELAGO_IO, "it left without a word");
    else if (first[0] != 22 || (n > 1 && first[1] != 3)) /* a TLS record of type handshake, version 3.x */
        (void)pl_fail(&why, PELAGO_PROTO, "it does not speak TLS");
    else if (!pl_listener_grants_step(c))
        return;
    else if (!pl_conn_begin_tls(c, l->ctx, NULL, PL_TLS_OTHER))
        (void)pl_fail(&why, PELAGO_NOMEM, "out of memory");
    else {
        pl_guests_move(&l->guests, c, PL_GUEST_ACTIVE);
        pl_conn_handshake(c);
        return;
    }
    pl_conn_fail(c, &why);
}

void pl_listener_opened(struct pl_conn *c)
{
    struct pl_listener *l = c->listener;
    pl_assert(l != NULL);
    l->accepted += !c->member.is_stream;
    pl_guests_move(&l->guests, c, c->peer.role == PL_ROLE_NONE ? PL_GUEST_NAMELESS : PL_GUEST_MEMBER);
    resume(l);
}

void pl_listener_forget(struct pl_conn *c)
{
    struct pl_listener *l = c->listener;
    pl_assert(l != NULL);
    pl_bundle_unlist(c);
    pl_guests_remove(&l->guests, c);
    c->listener = NULL;
    resume(l);
}

size_t pl_listener_room(const struct pl_listener *l)
{
    uint32_t conns = pl_max32(1, pl_guests_all(&l->guests));
    return (size_t)pl_clamp64(PL_CONN_POOL_BYTES / conns, PL_CONN_ROOM_BYTES_MIN, PL_CONN_ROOM_BYTES);
}

struct pl_bundle **pl_listener_bundles(struct pl_listener *l)
{
    return &l->bundles;
}

/* --- the listener itself --- */

static void release(struct pl_listener *l)
{
    pl_assert(l->holders > 0);
    if (--l->holders > 0)
        return;
    SSL_CTX_free(l->ctx);
    X509_free(l->authority);
    pl_alloc_free(l->o.alloc, l, sizeof *l);
}

static void on_handle_closed(uv_handle_t *handle)
{
    release(handle->data);
}

void pl_listener_close(struct pl_listener *l)
{
    if (l == NULL)
        return;
    pl_assert(!l->closed);
    say_unsaid(l);
    l->closed = true;
    for (int list = 0; list < PL_GUEST_LISTS; list++) {
        struct pl_conn *c;
        while ((c = l->guests.lists[list].first) != NULL) {
            pl_listener_forget(c);
            bool lost = c->member.is_stream && c->member.bundle == NULL; /* no connection claims it */
            if (list < PL_GUEST_NAMELESS || lost)                        /* nobody above knows of it */
                pl_conn_destroy(c);
        }
    }
    for (uint32_t i = 0; i < l->socket_count; i++) {
        uv_close((uv_handle_t *)&l->sockets[i].poll, on_handle_closed);
        (void)close(l->sockets[i].fd);
    }
    uv_close((uv_handle_t *)&l->timer, on_handle_closed);
    uv_close((uv_handle_t *)&l->turn, on_handle_closed);
}

bool pl_conn_is_too_many(const struct pl_conn *c)
{
    return c->listener != NULL && c->peer.role != PL_ROLE_NONE &&
           pl_guests_members(&c->listener->guests, &c->peer) > PL_CONNS_OF_ONE;
}

uint32_t pl_listener_port(const struct pl_listener *l)
{
    return l->port;
}

void pl_listener_view(const struct pl_listener *l, struct pl_listener_view *out)
{
    uint32_t handshaking = pl_guests_handshaking(&l->guests);
    *out = (struct pl_listener_view){l->accepted, l->refused, handshaking,
                                     pl_guests_all(&l->guests) - handshaking};
}

static enum pelago_status explain(int code, const char *address, struct pl_error *err)
{
    if (code == EADDRINUSE)
        return pl_fail(
            err, PELAGO_IO,
            "%s is taken: another program listens there already, perhaps another syncer; choose another port "
            "with --listen",
            address);
    if (code == EACCES || code == EPERM)
        return pl_fail(
            err, PELAGO_IO,
            "no permission to listen on %s: ports below 1024 need special rights; choose a higher one",
            address);
    if (code == EADDRNOTAVAIL || code == EAFNOSUPPORT)
        return pl_fail(err, PELAGO_NOTFOUND,
                       "this machine has no such address: %s; use one of its own, or *:PORT for all of them",
                       address);
    return pl_fail(err, PELAGO_IO, "cannot listen on %s: %s", address, strerror(code));
}

/* A listening socket, or -1 and errno. */
static int open_socket(const struct addrinfo *a, bool v6_only)
{
    int fd = pl_sock_new(a->ai_family), yes = 1;
    if (fd < 0)
        return -1;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (v6_only && a->ai_family == AF_INET6)
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &yes, sizeof yes);
    if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0)
        return fd;
    int code = errno;
    (void)close(fd);
    errno = code;
    return -1;
}

/* With port 0 the first socket chooses and the others follow. */
static void set_port(struct sockaddr *sa, uint32_t port)
{
    struct sockaddr_in in;
    struct sockaddr_in6 in6;
    if (sa->sa_family == AF_INET) {
        memcpy(&in, sa, sizeof in);
        in.sin_port = htons((uint16_t)port);
        memcpy(sa, &in, sizeof in);
    } else if (sa->sa_family == AF_INET6) {
        memcpy(&in6, sa, sizeof in6);
        in6.sin6_port = htons((uint16_t)port);
        memcpy(sa, &in6, sizeof in6);
    }
}

static int add_socket(struct pl_listener *l, struct addrinfo *a, bool v6_only)
{
    struct pl_socket *s = &l->sockets[l->socket_count];
    struct sockaddr_storage bound = {0};
    socklen_t len = sizeof bound;
    if (l->port != 0)
        set_port(a->ai_addr, l->port);
    s->fd = open_socket(a, v6_only);
    if (s->fd < 0)
        return errno;
    int code = uv_poll_init(l->o.loop, &s->poll, s->fd);
    if (code != 0 || getsockname(s->fd, (struct sockaddr *)&bound, &len) != 0) {
        (void)close(s->fd);
        return code != 0 ? -code : EIO;
    }
    s->poll.data = l;
    l->port = pl_address_port(&bound);
    l->socket_count++;
    l->holders++;
    return 0;
}

/* To be freed where it is OK. */
static enum pelago_status find_addresses(const char *text, struct addrinfo **list, struct pl_error *err)
{
    struct pl_address address;
    const struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    PL_TRY(pl_address_parse(text, &address, err));
    bool any = address.host[0] == '\0' || strcmp(address.host, "*") == 0;
    int code = getaddrinfo(any ? NULL : address.host, address.port, &hints, list);
    if (code == 0)
        return PELAGO_OK;
    return pl_fail(err, PELAGO_NOTFOUND, "there is no host named %s to listen on: %s", address.host,
                   gai_strerror(code));
}

static enum pelago_status open_sockets(struct pl_listener *l, const char *text, struct pl_error *err)
{
    struct addrinfo *list = NULL;
    PL_TRY(find_addresses(text, &list, err));
    int error = EADDRNOTAVAIL;
    for (struct addrinfo *a = list; a != NULL && l->socket_count < SOCKETS_MAX; a = a->ai_next) {
        int e = add_socket(l, a, list->ai_next != NULL);
        error = e != 0 && l->socket_count == 0 ? e : error;
        if (e == EADDRINUSE || e == EACCES) {
            freeaddrinfo(list);
            return explain(e, text, err);
        }
    }
    freeaddrinfo(list);
    return l->socket_count > 0 ? PELAGO_OK : explain(error, text, err);
}

enum pelago_status pl_listen_check(const char *address, struct pl_error *err)
{
    struct addrinfo *list = NULL;
    PL_TRY(find_addresses(address, &list, err));
    int error = 0, opened = 0;
    for (const struct addrinfo *a = list; a != NULL; a = a->ai_next) {
        int fd = open_socket(a, list->ai_next != NULL);
        error = fd < 0 && (error == 0 || errno == EADDRINUSE || errno == EACCES) ? errno : error;
        opened += fd >= 0 ? 1 : 0;
        if (fd >= 0)
            (void)close(fd);
    }
    freeaddrinfo(list);
    return opened > 0 && error != EADDRINUSE && error != EACCES ? PELAGO_OK : explain(error, address, err);
}

static void set_limits(struct pl_net_options *o)
{
    o->conns_max = o->conns_max > 0 ? o->conns_max : CONNS_MAX;
    o->handshakes_max = o->handshakes_max > 0 ? o->handshakes_max : HANDSHAKES_MAX;
    o->per_address_max = o->per_address_max > 0 ? o->per_address_max : PER_ADDRESS_MAX;
    if (o->streams == 0 || o->streams > PL_CONN_STREAMS_MAX)
        o->streams = PL_CONN_STREAMS_MAX;
}

enum pelago_status pl_listen(struct pl_listener **out, const struct pl_net_options *o, const char *address,
                             const struct pl_conn_ops *ops, void *listener_user, struct pl_error *err)
{
    *out = NULL;
    struct pl_listener *l = pl_alloc_zero(o->alloc, 1, sizeof *l);
    if (l == NULL)
        return pl_fail(err, PELAGO_NOMEM, "out of memory for a listener");
    l->o = *o;
    l->o.own = NULL;
    l->ops = *ops;
    l->user = listener_user;
    set_limits(&l->o);
    pl_assert(uv_timer_init(o->loop, &l->timer) == 0 && uv_prepare_init(o->loop, &l->turn) == 0);
    pl_assert(uv_prepare_start(&l->turn, on_turn) == 0);
    l->timer.data = l->turn.data = l;
    l->holders = 2;
    l->ctx = pl_tls_new_listening(o->own, l->o.streams > 1, err);
    l->authority = pl_pki_load_certificate(o->own->authority, o->own->authority_len);
    enum pelago_status st =
        l->ctx != NULL && l->authority != NULL ? open_sockets(l, address, err) : PELAGO_INVALID;
    ERR_clear_error();
    if (st != PELAGO_OK) {
        pl_listener_close(l);
        return st;
    }
    poll_all(l, true);
    *out = l;
    return PELAGO_OK;
}
