/* net/sock.c - what every socket of a connection is set to.
 *
 * No option here is needed for correctness, so failures are ignored: an old kernel or a strange socket is only slower.
 */
#include "net/conn_int.h"

enum {
    KEEPALIVE_IDLE_S = 15,
    KEEPALIVE_EVERY_S = 5,
    KEEPALIVE_COUNT = 4,
    USER_TIMEOUT_MS = 45000,   /* unacknowledged for so long: the path is dead */
    NOTSENT_BYTES = 128 << 10, /* what is cancelled leaves quickly: little waits in the kernel */
};

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
