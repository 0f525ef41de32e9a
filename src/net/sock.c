/* net/sock.c - what every socket of a connection is set to.
 *
 * No option here is needed for correctness, so failures are ignored: an old kernel or a strange socket is only slower.
 */
#include "net/conn_int.h"

#include "base/num.h"

enum {
    KEEPALIVE_IDLE_S = 15,
    KEEPALIVE_EVERY_S = 5,
    KEEPALIVE_COUNT = 4,
    USER_TIMEOUT_MS = 45000,   /* unacknowledged for so long: the path is dead */
    NOTSENT_BYTES = 128 << 10, /* at least so much may wait in the kernel ... */
    NOTSENT_BYTES_MAX = 4 << 20,
    NOTSENT_A_SECOND =
        32, /* ... and on a fast line what goes out in 31 ms, since we may not get the processor sooner */
};

#define PACE_NS (50 * PL_MS)

int pl_sock_new(int family)
{
    return socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

static void set(int fd, int level, int option, int value)
{
    (void)setsockopt(fd, level, option, &value, sizeof value);
}

void pl_sock_tune(int fd)
{
    set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set(fd, IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_IDLE_S);
    set(fd, IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_EVERY_S);
    set(fd, IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_COUNT);
    set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, USER_TIMEOUT_MS);
    set(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, NOTSENT_BYTES);
}

void pl_sock_pace(struct pl_conn *c, uint64_t now_ns)
{
    struct pl_pace *p = &c->pace;
    uint64_t span = now_ns - p->at_ns;
    if (span < PACE_NS)
        return;
    uint64_t rate = pl_mul_div(c->pipe.out - p->out, PL_SEC, span);
    uint64_t most = pl_clamp64(rate / NOTSENT_A_SECOND, NOTSENT_BYTES, NOTSENT_BYTES_MAX);
    bool idle = span > 10 * PACE_NS; /* this says nothing about the line */
    *p = (struct pl_pace){now_ns, c->pipe.out, p->most};
    if (idle || (most <= p->most + p->most / 4 && most >= p->most / 2))
        return;
    p->most = (uint32_t)most;
    set(c->pipe.fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, (int)most);
}
