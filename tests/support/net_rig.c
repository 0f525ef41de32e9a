/* support/net_rig.c - see net_rig.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "net_rig.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WATCHDOG_MS = 60000, RUN_ID = 0x1234 };

static void *count_resize(void *user, void *block, size_t old_bytes, size_t new_bytes)
{
    struct net_rig *r = user;
    if (new_bytes > 0 && r->fail_at > 0 && --r->fail_at == 0)
        return NULL;
    if (new_bytes == 0) {
        r->blocks -= block != NULL;
        r->bytes -= old_bytes;
        free(block);
        return NULL;
    }
    void *fresh = realloc(block, new_bytes);
    assert_non_null(fresh);
    r->allocations++;
    r->blocks += block == NULL;
    r->bytes += new_bytes - old_bytes;
    return fresh;
}

void net_enrol(const struct pl_credentials *ca, enum pl_role role, uint64_t identity, uint32_t shard,
               uint64_t seconds, struct pl_credentials *out)
{
    uint8_t request[PL_CERTIFICATE_BYTES_MAX], certificate[PL_CERTIFICATE_BYTES_MAX];
    uint32_t request_len, len;
    const struct pl_grant grant = {role, identity, shard, seconds};
    assert_int_equal(pl_pki_new_key(out, NULL), PELAGO_OK);
    memcpy(out->fingerprint, ca->fingerprint, sizeof out->fingerprint);
    assert_int_equal(pl_pki_request(out, request, sizeof request, &request_len, NULL), PELAGO_OK);
    assert_int_equal(
        pl_pki_issue(ca, request, request_len, &grant, certificate, sizeof certificate, &len, NULL),
        PELAGO_OK);
    assert_int_equal(pl_pki_accept(out, certificate, len, NULL), PELAGO_OK);
}

static void on_opened(void *user, struct pl_conn *c, const struct pl_peer *peer)
{
    struct net_side *s = user;
    (void)c;
    s->opened++;
    s->peer = *peer;
}

static void echo(struct net_side *s, const struct pl_frame *frame)
{
    struct pl_msg m, reply;
    assert_int_equal(pl_msg_decode(frame->type, frame->payload, frame->payload_len, &m, NULL), PELAGO_OK);
    reply = m;
    if (m.type == PL_MSG_PING)
        reply = (struct pl_msg){.type = PL_MSG_PONG, .u.pong = {m.u.ping.nonce}};
    assert_true(pl_conn_send(s->conn, &reply));
}

static void on_frame(void *user, struct pl_conn *c, const struct pl_frame *frame)
{
    struct net_side *s = user;
    (void)c;
    s->frames++;
    s->payload_bytes += frame->payload_len;
    if (s->echo)
        echo(s, frame);
    if (s->on_frame != NULL)
        s->on_frame(s, frame);
}

static void on_bad(void *user, struct pl_conn *c, const struct pl_error *err)
{
    struct net_side *s = user;
    (void)c;
    s->bad++;
    s->why = *err;
}

static void on_drained(void *user, struct pl_conn *c)
{
    struct net_side *s = user;
    (void)c;
    s->drained++;
    if (s->on_drained != NULL)
        s->on_drained(s);
}

static void on_closed(void *user, struct pl_conn *c, const struct pl_error *why)
{
    struct net_side *s = user;
    (void)c;
    s->closed++;
    s->why = *why;
    s->conn = NULL;
}

const struct pl_conn_ops net_side_ops = {on_opened, on_frame, on_bad, on_drained, on_closed};

static void on_accepted(void *user, struct pl_conn *c, const struct pl_peer *peer)
{
    struct net_rig *r = user;
    struct net_side *s = &r->accepted[r->accepted_count++ % NET_SIDES];
    *s = (struct net_side){.rig = r, .conn = c, .peer = *peer, .opened = 1, .echo = r->echo};
    pl_conn_set_user(c, s);
    pl_conn_set_ops(c, &net_side_ops);
    if (r->on_accept != NULL)
        r->on_accept(s);
}

static const struct pl_conn_ops accept_ops = {on_accepted, NULL, NULL, NULL, NULL};

static void on_log(void *user, const char *line)
{
    struct net_rig *r = user;
    size_t used = strlen(r->log);
    r->log_lines++;
    (void)snprintf(r->log + used, sizeof r->log - used, "%s\n", line);
}

static void on_watchdog(uv_timer_t *timer)
{
    (void)timer;
    fail_msg("nothing more happens");
}

void net_rig_init(struct net_rig *r)
{
    memset(r, 0, sizeof *r);
    assert_int_equal(uv_loop_init(&r->loop), 0);
    assert_int_equal(uv_timer_init(&r->loop, &r->watchdog), 0);
    r->alloc = (struct pl_alloc){count_resize, r};
    assert_int_equal(pl_pki_new_authority(&r->ca, RUN_ID, NULL), PELAGO_OK);
    net_enrol(&r->ca, PL_ROLE_SHARD, 9, 1, 3600, &r->shard);
    net_enrol(&r->ca, PL_ROLE_LEARNER, 7, 0, 3600, &r->learner);
    assert_int_equal(pl_pki_new_key(&r->stranger, NULL), PELAGO_OK);
    memcpy(r->stranger.fingerprint, r->ca.fingerprint, sizeof r->ca.fingerprint);
    r->server = (struct pl_net_options){.loop = &r->loop,
                                        .alloc = &r->alloc,
                                        .own = &r->shard,
                                        .frame_max = 1 << 20,
                                        .log = on_log,
                                        .log_user = r};
    r->client = (struct pl_net_options){
        .loop = &r->loop, .alloc = &r->alloc, .own = &r->learner, .frame_max = 1 << 20};
}

void net_rig_listen(struct net_rig *r)
{
    struct pl_error err;
    if (pl_listen(&r->listener, &r->server, "127.0.0.1:0", &accept_ops, r, &err) != PELAGO_OK)
        fail_msg("%s", err.text);
    (void)snprintf(r->address, sizeof r->address, "127.0.0.1:%u", (unsigned)pl_listener_port(r->listener));
}

void net_close(struct net_side *side, uint64_t flush_ns)
{
    struct pl_conn *c = side->conn;
    side->conn = NULL;
    if (c != NULL)
        pl_conn_close(c, flush_ns);
}

void net_rig_release(struct net_rig *r)
{
    for (uint32_t i = 0; i < NET_SIDES; i++)
        net_close(&r->accepted[i], 0);
    pl_listener_close(r->listener);
    uv_close((uv_handle_t *)&r->watchdog, NULL);
    assert_int_equal(uv_run(&r->loop, UV_RUN_DEFAULT), 0);
    assert_int_equal(uv_loop_close(&r->loop), 0);
    assert_int_equal(r->blocks, 0);
    assert_int_equal(r->bytes, 0);
}

void net_dial(struct net_rig *r, struct net_side *side)
{
    side->rig = r;
    side->conn = pl_dial(&r->client, r->address, PL_NONE32, &net_side_ops, side);
    assert_non_null(side->conn);
}

void net_wait(struct net_rig *r, const uint32_t *counter, uint32_t value)
{
    assert_int_equal(uv_timer_start(&r->watchdog, on_watchdog, WATCHDOG_MS, 0), 0);
    while (*counter < value)
        (void)uv_run(&r->loop, UV_RUN_ONCE);
    (void)uv_timer_stop(&r->watchdog);
}

static void on_nothing(uv_timer_t *timer)
{
    (void)timer;
}

void net_run_for(struct net_rig *r, uint64_t ns)
{
    uint64_t end = uv_hrtime() + ns;
    for (uint64_t now = uv_hrtime(); now < end; now = uv_hrtime()) {
        uv_update_time(&r->loop);
        /* Again and again: a turn that finds it due already runs it and then waits for whatever comes next. */
        assert_int_equal(uv_timer_start(&r->watchdog, on_nothing, (end - now) / PL_MS + 1, 1), 0);
        (void)uv_run(&r->loop, UV_RUN_ONCE);
    }
    (void)uv_timer_stop(&r->watchdog);
}

struct net_side *net_connect(struct net_rig *r, struct net_side *side)
{
    uint32_t before = r->accepted_count;
    net_dial(r, side);
    net_wait(r, &side->opened, side->opened + 1);
    net_wait(r, &r->accepted_count, before + 1);
    return &r->accepted[before % NET_SIDES];
}

int net_raw(struct net_rig *r, const char *from)
{
    struct sockaddr_in in = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)pl_listener_port(r->listener))};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    if (from != NULL) {
        struct sockaddr_in own = {.sin_family = AF_INET};
        assert_int_equal(inet_pton(AF_INET, from, &own.sin_addr), 1);
        assert_int_equal(bind(fd, (const struct sockaddr *)&own, sizeof own), 0);
    }
    assert_int_equal(inet_pton(AF_INET, "127.0.0.1", &in.sin_addr), 1);
    assert_int_equal(connect(fd, (const struct sockaddr *)&in, sizeof in), 0);
    return fd;
}

bool net_raw_closed(struct net_rig *r, int fd, uint64_t ns)
{
    uint64_t end = uv_hrtime() + ns;
    char byte[256];
    do {
        net_run_for(r, PL_MS);
        ssize_t n = recv(fd, byte, sizeof byte, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN))
            return true;
    } while (uv_hrtime() < end);
    return false;
}

uint32_t net_open_files(void)
{
    uint32_t n = 0;
    DIR *dir = opendir("/proc/self/fd");
    assert_non_null(dir);
    while (readdir(dir) != NULL)
        n++;
    (void)closedir(dir);
    return n;
}

void net_send_ping(struct net_side *side, uint64_t nonce)
{
    const struct pl_msg m = {.type = PL_MSG_PING, .u.ping = {nonce}};
    assert_true(pl_conn_send(side->conn, &m));
}

bool net_send_data(struct net_side *side, const uint8_t *bytes, uint32_t len, uint32_t chunk)
{
    const struct pl_msg m = {.type = PL_MSG_DATA, .u.data = {.index = chunk, .bytes = {bytes, len}}};
    return pl_conn_send(side->conn, &m);
}
