/* chaos/proxy.c - listeners, links and connections of the proxy; see proxy.h and proxy_int.h. */
#include "chaos/proxy_int.h"

#include "base/check.h"
#include "base/fmt.h"
#include "base/limits.h"
#include "base/num.h"

#include <signal.h>
#include <string.h>

enum { BACKLOG = 128, HOST_MAX = 256 };

/* ---- sockets ---- */

/* Loopback's segments of 64 kB would not fit the small buffers of a slow line, and the sender would wait for its timers. */
static void use_packets(uv_tcp_t *tcp)
{
    int bytes = PACKET_BYTES;
    uv_os_fd_t fd;
    if (uv_fileno((const uv_handle_t *)tcp, &fd) == 0)
        (void)setsockopt(fd, IPPROTO_TCP, TCP_MAXSEG, &bytes, sizeof bytes);
}

/* ---- connections ---- */

static void unlink_pair(struct pair *pair)
{
    struct link *l = pair->link;
    *(pair->prev != NULL ? &pair->prev->next : &l->first) = pair->next;
    *(pair->next != NULL ? &pair->next->prev : &l->last) = pair->prev;
    l->stats.open--;
}

static void on_side_closed(uv_handle_t *handle)
{
    struct flow *f = handle->data;
    struct pair *pair = f->pair;
    if (--pair->handles > 0)
        return;
    pl_assert(pair->gone);
    pl_flow_release(&pair->flow[UP]);
    pl_flow_release(&pair->flow[DOWN]);
    pl_alloc_free(pair->link->proxy->alloc, pair, sizeof *pair);
}

static void close_side(struct pair *pair, uint32_t side, bool reset)
{
    if (pair->closed[side])
        return;
    pair->closed[side] = true;
    uv_tcp_t *tcp = &pair->side[side];
    if (!reset || uv_tcp_close_reset(tcp, on_side_closed) != 0)
        if (!uv_is_closing((uv_handle_t *)tcp))
            uv_close((uv_handle_t *)tcp, on_side_closed);
}

void pl_pair_end(struct pair *pair, bool reset)
{
    if (pair->gone)
        return;
    pair->gone = true;
    unlink_pair(pair);
    close_side(pair, LEARNER, reset);
    close_side(pair, SYNCER, reset);
}

static void on_connected(uv_connect_t *req, int status)
{
    struct pair *pair = req->data;
    if (pair->gone || pair->half_open)
        return;
    if (status < 0) {
        pair->link->stats.failed++;
        pl_pair_end(pair, true);
        return;
    }
    pair->connected = true;
    (void)uv_tcp_nodelay(&pair->side[SYNCER], 1);
    pl_flow_begin(&pair->flow[UP]);
    pl_flow_begin(&pair->flow[DOWN]);
    pl_link_reshape(pair->link);
}

/* A handshake needs both directions. */
static void dial(struct pair *pair)
{
    struct link *l = pair->link;
    pair->waiting = pl_link_is(l, PL_SHAPE_HOLD);
    if (pair->waiting)
        return;
    pair->connect.data = pair;
    if (uv_tcp_connect(&pair->connect, &pair->side[SYNCER], (struct sockaddr *)&l->proxy->to[l->shard],
                       on_connected) != 0) {
        l->stats.failed++;
        pl_pair_end(pair, true);
    }
}

static struct pair *new_pair(struct link *l)
{
    struct pair *pair = pl_alloc_zero(l->proxy->alloc, 1, sizeof *pair);
    if (pair == NULL)
        return NULL;
    pair->link = l;
    pl_flow_init(&pair->flow[UP], pair, UP);
    pl_flow_init(&pair->flow[DOWN], pair, DOWN);
    (void)uv_tcp_init(&l->proxy->loop, &pair->side[LEARNER]);
    /* Without a descriptor it is made at connect, with large segments. */
    if (uv_tcp_init_ex(&l->proxy->loop, &pair->side[SYNCER], l->proxy->to[l->shard].ss_family) == 0)
        use_packets(&pair->side[SYNCER]);
    else
        (void)uv_tcp_init(&l->proxy->loop, &pair->side[SYNCER]);
    pair->side[LEARNER].data = &pair->flow[UP];
    pair->side[SYNCER].data = &pair->flow[DOWN];
    pair->handles = 2;
    pair->prev = l->last;
    *(l->last != NULL ? &l->last->next : &l->first) = pair;
    l->last = pair;
    l->stats.open++;
    return pair;
}

static void on_connection(uv_stream_t *listener, int status)
{
    struct link *l = listener->data;
    struct pair *pair = status == 0 ? new_pair(l) : NULL;
    if (pair == NULL)
        return;
    l->stats.accepted++;
    if (uv_accept(listener, (uv_stream_t *)&pair->side[LEARNER]) != 0) {
        pl_pair_end(pair, false);
        return;
    }
    (void)uv_tcp_nodelay(&pair->side[LEARNER], 1);
    if (pl_link_is(l, PL_SHAPE_REFUSE)) {
        l->stats.refused++;
        pl_pair_end(pair, true);
        return;
    }
    pair->mute = pl_link_is(l, PL_SHAPE_MUTE);
    if (pair->mute)
        pl_flow_begin(&pair->flow[UP]); /* to hear when it gives up */
    else
        dial(pair);
}

/* ---- links ---- */

/* A line of this rate does not hold megabytes in the kernel either. */
static void size_buffers(struct link *l, struct pair *pair)
{
    for (uint32_t dir = 0; dir < 2; dir++) {
        uint64_t rate = l->shape[dir].v[PL_SHAPE_RATE];
        int bytes = (int)pl_clamp64(rate / 20, 128 << 10, 1 << 20);
        uint32_t from = dir == UP ? LEARNER : SYNCER;
        if (rate > 0 && !pair->closed[from])
            (void)uv_recv_buffer_size((uv_handle_t *)&pair->side[from], &bytes);
    }
}

void pl_link_reshape(struct link *l)
{
    for (struct pair *p = l->first, *next; p != NULL; p = next) {
        next = p->next;
        if (p->waiting)
            dial(p);
        if (p->connected)
            size_buffers(l, p);
    }
    pl_link_pump(l);
}

void pl_link_reset(struct link *l, bool syncer_only)
{
    for (struct pair *p = l->first, *next; p != NULL; p = next) {
        next = p->next;
        l->stats.resets++;
        if (!syncer_only || !p->connected) {
            pl_pair_end(p, true);
            continue;
        }
        /* The learner's end stays, reads into the void and is never answered. */
        p->half_open = true;
        pl_flow_release(&p->flow[UP]);
        if (!p->flow[DOWN].writing)
            pl_flow_release(&p->flow[DOWN]);
        close_side(p, SYNCER, true);
        if (!p->flow[UP].reading && p->flow[UP].end == FLOW_OPEN)
            pl_flow_begin(&p->flow[UP]);
    }
}

/* ---- addresses ---- */

/* "host:port" or "[host]:port". */
static enum pelago_status split_address(const char *text, size_t len, char host[HOST_MAX], char port[16],
                                        struct pl_error *err)
{
    size_t colon = len;
    while (colon > 0 && text[colon - 1] != ':')
        colon--;
    size_t host_len = colon > 0 ? colon - 1 : 0, port_len = len - colon, skip = 0;
    if (host_len >= 2 && text[0] == '[' && text[host_len - 1] == ']') {
        skip = 1;
        host_len -= 2;
    }
    if (host_len == 0 || host_len >= HOST_MAX || port_len == 0 || port_len >= 6 ||
        strspn(text + colon, "0123456789") < port_len)
        return pl_fail(err, PELAGO_INVALID,
                       "'%s' is no address: host:port is expected, such as 127.0.0.1:7000",
                       len < 100 ? text : "...");
    memcpy(host, text + skip, host_len);
    host[host_len] = '\0';
    memcpy(port, text + colon, port_len);
    port[port_len] = '\0';
    return PELAGO_OK;
}

static enum pelago_status resolve(struct pl_proxy *p, const char *text, size_t len,
                                  struct sockaddr_storage *out, struct pl_error *err)
{
    char host[HOST_MAX], port[16];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    uv_getaddrinfo_t req;
    PL_TRY(split_address(text, len, host, port, err));
    int r = uv_getaddrinfo(&p->loop, &req, NULL, host, port, &hints);
    if (r != 0)
        return pl_fail(err, PELAGO_UNREACHABLE, "the address of %s cannot be found: %s", host,
                       uv_strerror(r));
    memset(out, 0, sizeof *out);
    memcpy(out, req.addrinfo->ai_addr, pl_min64(req.addrinfo->ai_addrlen, sizeof *out));
    uv_freeaddrinfo(req.addrinfo);
    return PELAGO_OK;
}

static enum pelago_status resolve_targets(struct pl_proxy *p, struct pl_error *err)
{
    for (const char *at = p->o->to;; at++) {
        size_t len = strcspn(at, ",");
        if (p->shards == PL_PROXY_TARGETS_MAX)
            return pl_fail(err, PELAGO_INVALID, "more than %u addresses are given", PL_PROXY_TARGETS_MAX);
        PL_TRY(resolve(p, at, len, &p->to[p->shards++], err));
        at += len;
        if (*at == '\0')
            return PELAGO_OK;
    }
}

static uint32_t port_of(const struct sockaddr_storage *a)
{
    uint16_t port = a->ss_family == AF_INET6 ? ((const struct sockaddr_in6 *)a)->sin6_port
                                             : ((const struct sockaddr_in *)a)->sin_port;
    return ntohs(port);
}

static void set_port(struct sockaddr_storage *a, uint32_t port)
{
    if (a->ss_family == AF_INET6)
        ((struct sockaddr_in6 *)a)->sin6_port = htons((uint16_t)port);
    else
        ((struct sockaddr_in *)a)->sin_port = htons((uint16_t)port);
}

/* ---- listening ---- */

static enum pelago_status listen_link(struct link *l, const struct sockaddr_storage *at, struct pl_error *err)
{
    struct sockaddr_storage bound;
    int len = sizeof bound;
    (void)uv_tcp_init(&l->proxy->loop, &l->listener);
    (void)uv_timer_init(&l->proxy->loop, &l->timer);
    l->listener.data = l->timer.data = l;
    l->proxy->link_count++;
    int r = uv_tcp_bind(&l->listener, (const struct sockaddr *)at, 0);
    if (r == 0)
        use_packets(&l->listener);
    if (r == 0)
        r = uv_listen((uv_stream_t *)&l->listener, BACKLOG, on_connection);
    if (r == 0)
        r = uv_tcp_getsockname(&l->listener, (struct sockaddr *)&bound, &len);
    if (r != 0)
        return pl_fail(err, PELAGO_IO, "port %u cannot be listened on: %s%s", port_of(at), uv_strerror(r),
                       r == UV_EADDRINUSE ? "; choose another, or 0 for a free one" : "");
    l->port = port_of(&bound);
    return PELAGO_OK;
}

static enum pelago_status listen_all(struct pl_proxy *p, struct pl_error *err)
{
    struct sockaddr_storage at;
    uint64_t links = (uint64_t)p->o->learners * p->shards;
    if (links == 0 || links > PL_PROXY_LINKS_MAX)
        return pl_fail(err, PELAGO_INVALID, "%lu ports are wanted, expected 1 to %u", links,
                       PL_PROXY_LINKS_MAX);
    PL_TRY(resolve(p, p->o->listen, strlen(p->o->listen), &at, err));
    uint32_t first = port_of(&at);
    if (first + links > 65536)
        return pl_fail(err, PELAGO_INVALID, "%lu ports from %u on are more than there are", links, first);
    p->links = pl_alloc_zero(p->alloc, links, sizeof *p->links);
    if (p->links == NULL)
        return pl_fail(err, PELAGO_NOMEM, "there is no memory for %lu links", links);
    p->link_room = (uint32_t)links;
    for (uint32_t i = 0; i < links; i++) {
        struct link *l = &p->links[i];
        *l = (struct link){.proxy = p, .learner = 1 + i / p->shards, .shard = i % p->shards};
        if (first != 0)
            set_port(&at, first + i);
        PL_TRY(listen_link(l, &at, err));
    }
    return PELAGO_OK;
}

/* {"control":...,"links":[{"learner":1,"shard":0,"listen":"127.0.0.1:41001","to":"127.0.0.1:7000"}, ...]} */
static void put_state(const struct pl_proxy *p, FILE *f)
{
    const char *end = strrchr(p->o->listen, ':');
    fprintf(f, "{\"pid\":%d,\"control\":\"%s\",\"links\":[", (int)uv_os_getpid(),
            p->o->control != NULL ? p->o->control : "");
    for (uint32_t i = 0; i < p->link_count; i++) {
        const struct link *l = &p->links[i];
        const char *to = p->o->to;
        for (uint32_t shard = 0; shard < l->shard; shard++)
            to = strchr(to, ',') + 1;
        fprintf(f, "%s\n{\"learner\":%u,\"shard\":%u,\"listen\":\"%.*s:%u\",\"to\":\"%.*s\"}",
                i > 0 ? "," : "", l->learner, l->shard, (int)(end - p->o->listen), p->o->listen, l->port,
                (int)strcspn(to, ","), to);
    }
    fprintf(f, "]}\n");
}

/* Appears whole: whoever waits for it may read it at once. */
static enum pelago_status write_state(struct pl_proxy *p, struct pl_error *err)
{
    char partial[1024];
    if (p->o->state == NULL)
        return PELAGO_OK;
    if (strlen(p->o->state) > sizeof partial - 16)
        return pl_fail(err, PELAGO_INVALID, "the path of the state file is too long");
    pl_fmt(partial, sizeof partial, "%s.partial", p->o->state);
    FILE *f = fopen(partial, "w");
    if (f != NULL)
        put_state(p, f);
    bool good = f != NULL && ferror(f) == 0;
    if (f != NULL && fclose(f) != 0)
        good = false;
    if (!good || rename(partial, p->o->state) != 0)
        return pl_fail(err, PELAGO_IO, "the state file %s cannot be written", p->o->state);
    return PELAGO_OK;
}

/* ---- the whole ---- */

static void on_signal(uv_signal_t *handle, int number)
{
    (void)number;
    pl_proxy_stop(handle->data);
}

static void watch_signals(struct pl_proxy *p)
{
    static const int numbers[2] = {SIGINT, SIGTERM};
    for (uint32_t i = 0; i < 2; i++) {
        (void)uv_signal_init(&p->loop, &p->signals[i]);
        p->signals[i].data = p;
        (void)uv_signal_start(&p->signals[i], on_signal, numbers[i]);
    }
    p->signalled = true;
}

static enum pelago_status start(struct pl_proxy *p, struct pl_error *err)
{
    if (strpbrk(p->o->to, "\"\\") != NULL || strpbrk(p->o->listen, "\"\\") != NULL ||
        (p->o->control != NULL && strpbrk(p->o->control, "\"\\") != NULL))
        return pl_fail(err, PELAGO_INVALID, "addresses and paths with \" or \\ are not taken");
    p->scratch = pl_alloc_zero(p->alloc, 1, PROXY_READ_BYTES);
    if (uv_loop_init(&p->loop) != 0 || p->scratch == NULL)
        return pl_fail(err, PELAGO_NOMEM, "there is no memory for the proxy");
    p->loop_made = true;
    pl_prng_seed(&p->prng, p->o->seed, 0x70726f78);
    PL_TRY(resolve_targets(p, err));
    PL_TRY(listen_all(p, err));
    if (p->o->control != NULL)
        PL_TRY(pl_control_open(p, err));
    if (p->o->signals)
        watch_signals(p);
    return write_state(p, err);
}

enum pelago_status pl_proxy_new(struct pl_proxy **out, const struct pl_proxy_options *o,
                                const struct pl_alloc *alloc, struct pl_error *err)
{
    *out = NULL;
    struct pl_proxy *p = pl_alloc_zero(alloc, 1, sizeof *p);
    if (p == NULL)
        return pl_fail(err, PELAGO_NOMEM, "there is no memory for the proxy");
    p->o = o;
    p->alloc = alloc;
    enum pelago_status status = start(p, err);
    if (status != PELAGO_OK)
        pl_proxy_free(p);
    else
        *out = p;
    return status;
}

void pl_proxy_run(struct pl_proxy *p)
{
    (void)signal(SIGPIPE, SIG_IGN);
    (void)uv_run(&p->loop, UV_RUN_DEFAULT);
}

void pl_proxy_stop(struct pl_proxy *p)
{
    uv_stop(&p->loop);
}

static void close_all(struct pl_proxy *p)
{
    for (uint32_t i = 0; i < p->link_count; i++) {
        struct link *l = &p->links[i];
        while (l->first != NULL)
            pl_pair_end(l->first, true);
        uv_close((uv_handle_t *)&l->listener, NULL);
        uv_close((uv_handle_t *)&l->timer, NULL);
    }
    if (p->controlled)
        pl_control_close(p);
    for (uint32_t i = 0; p->signalled && i < 2; i++)
        uv_close((uv_handle_t *)&p->signals[i], NULL);
    (void)uv_run(&p->loop, UV_RUN_DEFAULT);
    int r = uv_loop_close(&p->loop);
    pl_assert(r == 0);
}

void pl_proxy_free(struct pl_proxy *p)
{
    if (p == NULL)
        return;
    if (p->loop_made)
        close_all(p);
    pl_alloc_free(p->alloc, p->links, p->link_room * sizeof *p->links);
    pl_alloc_free(p->alloc, p->scratch, PROXY_READ_BYTES);
    pl_alloc_free(p->alloc, p, sizeof *p);
}

uint32_t pl_proxy_port(const struct pl_proxy *p, uint32_t learner, uint32_t shard)
{
    pl_assert(learner >= 1 && learner <= p->o->learners && shard < p->shards);
    return p->links[(learner - 1) * p->shards + shard].port;
}
