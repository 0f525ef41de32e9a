/* chaos/proxy_client.c - pl_proxy_ask of proxy.h: one order, one answer, over a plain blocking socket. */
#include "chaos/proxy.h"

#include "base/check.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static int dial(const char *control)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    if (strlen(control) >= sizeof at.sun_path)
        return -1;
    memcpy(at.sun_path, control, strlen(control));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&at, sizeof at) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static bool send_order(int fd, const char *order)
{
    char line[1024];
    size_t len = strlen(order), at = 0;
    if (len + 1 > sizeof line)
        return false;
    memcpy(line, order, len + 1);
    line[len++] = '\n'; /* in the place of the zero */
    while (at < len) {
        ssize_t n = send(fd, line + at, len - at, MSG_NOSIGNAL);
        if (n <= 0)
            return false;
        at += (size_t)n;
    }
    return true;
}

/* Its last line is "ok" or begins with "error". */
static bool is_complete(const char *text, size_t len)
{
    size_t at = len;
    if (len == 0 || text[len - 1] != '\n')
        return false;
    for (at = len - 1; at > 0 && text[at - 1] != '\n'; at--)
        ;
    return (len - at == 3 && memcmp(text + at, "ok\n", 3) == 0) ||
           (len - at > 6 && memcmp(text + at, "error:", 6) == 0);
}

/* What does not fit is read and dropped, all but the last bytes, which say how it ended. */
static bool read_answer(int fd, int timeout_ms, char *text, size_t cap, size_t *len)
{
    *len = 0;
    for (;;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (poll(&p, 1, timeout_ms) <= 0)
            return false;
        if (*len == cap) {
            memmove(text + cap / 2, text + cap - cap / 4, cap / 4);
            *len = cap / 2 + cap / 4;
        }
        ssize_t n = recv(fd, text + *len, cap - *len, 0);
        if (n <= 0)
            return false;
        *len += (size_t)n;
        if (is_complete(text, *len))
            return true;
    }
}

enum pelago_status pl_proxy_ask(const char *control, const char *order, int timeout_ms, char *answer,
                                size_t cap, struct pl_error *err)
{
    char text[8192];
    size_t len = 0;
    int fd = dial(control);
    bool good = fd >= 0 && send_order(fd, order) && read_answer(fd, timeout_ms, text, sizeof text, &len);
    if (fd >= 0)
        close(fd);
    pl_assert(cap > 0);
    answer[0] = '\0';
    if (!good)
        return pl_fail(err, PELAGO_UNREACHABLE, "no proxy answers at %s", control);
    text[len - 1] = '\0';
    if (strncmp(text, "error: ", 7) == 0)
        return pl_fail(err, PELAGO_INVALID, "the proxy refused '%s': %s", order, text + 7);
    size_t keep = len >= 4 ? len - 4 : 0; /* without "\nok" and the new line */
    keep = keep < cap - 1 ? keep : cap - 1;
    memcpy(answer, text, keep);
    answer[keep] = '\0';
    return PELAGO_OK;
}
