/* tests/support/chaos_rig.c - see chaos_rig.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "chaos_rig.h"

#include "os/clock.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct sockaddr_in loopback(uint32_t port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return at;
}

static void *run(void *user)
{
    pl_proxy_run(user);
    return NULL;
}

void chaos_rig_init(struct chaos_rig *r)
{
    struct sockaddr_in at = loopback(0);
    socklen_t len = sizeof at;
    struct pl_error err;
    memset(r, 0, sizeof *r);
    tempdir_init(&r->dir);
    r->alloc = pl_alloc_system();
    r->server = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(r->server, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(r->server, 16), 0);
    assert_int_equal(getsockname(r->server, (struct sockaddr *)&at, &len), 0);
    snprintf(r->to, sizeof r->to, "127.0.0.1:%u", ntohs(at.sin_port));
    snprintf(r->control, sizeof r->control, "%s", tempdir_path(&r->dir, "proxy.sock"));
    snprintf(r->state, sizeof r->state, "%s", tempdir_path(&r->dir, "proxy.json"));
    r->options = (struct pl_proxy_options){.listen = "127.0.0.1:0",
                                           .to = r->to,
                                           .learners = 2,
                                           .control = r->control,
                                           .state = r->state,
                                           .seed = 3};
    if (pl_proxy_new(&r->proxy, &r->options, &r->alloc, &err) != PELAGO_OK)
        fail_msg("%s", err.text);
    assert_int_equal(pthread_create(&r->thread, NULL, run, r->proxy), 0);
}

void chaos_rig_release(struct chaos_rig *r)
{
    chaos_rig_tell(r, "stop");
    pthread_join(r->thread, NULL);
    pl_proxy_free(r->proxy);
    close(r->server);
    tempdir_release(&r->dir);
}

void chaos_rig_tell(struct chaos_rig *r, const char *order)
{
    char answer[4096];
    struct pl_error err;
    if (pl_proxy_ask(r->control, order, 10000, answer, sizeof answer, &err) != PELAGO_OK)
        fail_msg("%s: %s", order, err.text);
}

uint64_t chaos_rig_stat(struct chaos_rig *r, const char *name)
{
    char answer[4096], key[64];
    struct pl_error err;
    assert_int_equal(pl_proxy_ask(r->control, "stats 1", 10000, answer, sizeof answer, &err), PELAGO_OK);
    snprintf(key, sizeof key, "\"%s\":", name);
    const char *at = strstr(answer, key);
    assert_non_null(at);
    return strtoull(at + strlen(key), NULL, 10);
}

void chaos_rig_await(struct chaos_rig *r, const char *name, uint64_t least)
{
    double until = chaos_now() + 20;
    while (chaos_rig_stat(r, name) < least)
        assert_true(chaos_now() < until);
}

static void set_timeout(int fd)
{
    struct timeval t = {10, 0};
    int on = 1;
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t), 0);
    assert_int_equal(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on), 0);
}

int chaos_rig_dial(struct chaos_rig *r, uint32_t learner)
{
    struct sockaddr_in at = loopback(pl_proxy_port(r->proxy, learner, 0));
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
    set_timeout(fd);
    return fd;
}

int chaos_rig_accept(struct chaos_rig *r)
{
    int fd = accept(r->server, NULL, NULL);
    assert_true(fd >= 0);
    set_timeout(fd);
    return fd;
}

struct chaos_ends chaos_rig_connect(struct chaos_rig *r)
{
    int client = chaos_rig_dial(r, 1);
    return (struct chaos_ends){client, chaos_rig_accept(r)};
}

void chaos_ends_close(struct chaos_ends *e)
{
    close(e->client);
    close(e->server);
}

void chaos_send(int fd, const void *bytes, size_t len)
{
    for (size_t at = 0; at < len;) {
        ssize_t n = send(fd, (const char *)bytes + at, len - at, MSG_NOSIGNAL);
        assert_true(n > 0);
        at += (size_t)n;
    }
}

void chaos_recv(int fd, void *bytes, size_t len)
{
    for (size_t at = 0; at < len;) {
        ssize_t n = recv(fd, (char *)bytes + at, len - at, 0);
        assert_true(n > 0);
        at += (size_t)n;
    }
}

double chaos_now(void)
{
    return (double)pl_clock_ns() * 1e-9;
}
