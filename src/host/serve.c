/* host/serve.c - see serve.h. */
#include "host/serve.h"

#include "base/fmt.h"
#include "base/num.h"

#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { FILES_EXTRA = 640 }; /* the journal, strangers in the handshake, what the loop needs */

static void print(const char *host, uint32_t port, char out[static PL_ADDRESS_MAX])
{
    bool v6 = strchr(host, ':') != NULL;
    (void)pl_fmt(out, PL_ADDRESS_MAX, v6 ? "[%s]:%u" : "%s:%u", host, port);
}

enum pelago_status pl_serve_address(const char *advertise, const char *listen, uint32_t port,
                                    char out[static PL_ADDRESS_MAX], struct pl_error *err)
{
    struct pl_address at;
    char *host = at.host;
    if (advertise != NULL) {
        PL_TRY(pl_address_dialable(advertise, err));
        (void)pl_fmt(out, PL_ADDRESS_MAX, "%s", advertise);
        return PELAGO_OK;
    }
    PL_TRY(pl_address_parse(listen, &at, err));
    if (pl_address_is_every(host) && (gethostname(host, sizeof at.host) != 0 || host[0] == '\0'))
        (void)pl_fmt(host, sizeof at.host, "localhost");
    host[sizeof at.host - 1] = '\0';
    print(host, port, out);
    return PELAGO_OK;
}

enum pelago_status pl_serve_bound(const char *listen, uint32_t port, char out[static PL_ADDRESS_MAX],
                                  struct pl_error *err)
{
    struct pl_address at;
    PL_TRY(pl_address_parse(listen, &at, err));
    print(at.host, port, out);
    return PELAGO_OK;
}

enum pelago_status pl_serve_near(const char *bound, char out[static PL_ADDRESS_MAX], struct pl_error *err)
{
    struct pl_address at;
    PL_TRY(pl_address_parse(bound, &at, err));
    bool v6 = strcmp(at.host, "::") == 0;
    (void)pl_fmt(out, PL_ADDRESS_MAX,
                 v6                             ? "[%s]:%s"
                 : strchr(at.host, ':') != NULL ? "[%s]:%s"
                                                : "%s:%s",
                 v6                             ? "::1"
                 : pl_address_is_every(at.host) ? "127.0.0.1"
                                                : at.host,
                 at.port);
    return PELAGO_OK;
}

/* The soft limit is small for the sake of programs that use select(); we may have what the hard one allows. */
enum pelago_status pl_serve_files(uint32_t conns, struct pl_error *err)
{
    struct rlimit limit;
    uint64_t wanted = (uint64_t)conns + FILES_EXTRA;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted)
        return PELAGO_OK;
    limit.rlim_cur = limit.rlim_max == RLIM_INFINITY ? wanted : pl_min64(limit.rlim_max, wanted);
    if (setrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur >= wanted)
        return PELAGO_OK;
    return pl_fail(
        err, PELAGO_LIMIT,
        "only %lu files may be open here, so about %lu learners can be connected; raise the hard limit "
        "(ulimit -Hn) for more",
        (uint64_t)limit.rlim_cur, (uint64_t)limit.rlim_cur / 2);
}
