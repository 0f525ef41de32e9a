/* net/address.c - see address.h. */
#include "net/address.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/fmt.h"

#include <stdlib.h>
#include <string.h>
#include <uv.h>

static enum pelago_status parse_port(const char *text, struct pl_address *out, struct pl_error *err)
{
    unsigned v = 0;
    size_t n = strlen(text);
    bool good = n > 0 && n < sizeof out->port;
    for (size_t i = 0; i < n && good; i++) {
        good = text[i] >= '0' && text[i] <= '9';
        v = v * 10 + (unsigned)(text[i] - '0');
    }
    if (!good || v > 65535)
        return pl_fail(err, PELAGO_INVALID, "the port is a number from 0 to 65535, as in 10.0.0.7:7441");
    memcpy(out->port, text, n + 1);
    return PELAGO_OK;
}

static bool host_is_plausible(const char *host, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)host[i] <= ' ' || (unsigned char)host[i] == 0x7f || host[i] == '/' ||
            host[i] == '[' || host[i] == ']')
            return false;
    return n < PL_HOST_MAX;
}

enum pelago_status pl_address_parse(const char *text, struct pl_address *out, struct pl_error *err)
{
    *out = (struct pl_address){.host = ""};
    const char *host = text, *colon = strrchr(text, ':'), *end = colon;
    if (colon == NULL)
        return pl_fail(err, PELAGO_INVALID,
                       "an address is written host:port, as in 10.0.0.7:7441; there is no port");
    if (text[0] == '[') {
        host = text + 1;
        end = colon - 1;
        if (end < host || *end != ']')
            return pl_fail(err, PELAGO_INVALID,
                           "an IPv6 address is written in brackets, as in [fe80::1]:7441");
    } else if (memchr(text, ':', (size_t)(colon - text)) != NULL) {
        return pl_fail(err, PELAGO_INVALID, "an IPv6 address is written in brackets, as in [fe80::1]:7441");
    }
    size_t n = (size_t)(end - host);
    if (!host_is_plausible(host, n))
        return pl_fail(err, PELAGO_INVALID,
                       "an address is written host:port, as in 10.0.0.7:7441; this host is none");
    memcpy(out->host, host, n);
    return parse_port(colon + 1, out, err);
}

bool pl_address_is_every(const char *host)
{
    static const char *const names[] = {"", "*", "0.0.0.0", "::"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(host, names[i]) == 0)
            return true;
    return false;
}

enum pelago_status pl_address_dialable(const char *text, struct pl_error *err)
{
    struct pl_address address;
    struct pl_error why = {.text = "it names no host and port of its own"};
    if (pl_address_parse(text, &address, &why) == PELAGO_OK && !pl_address_is_every(address.host) &&
        strtoul(address.port, NULL, 10) != 0)
        return PELAGO_OK;
    return pl_fail(err, PELAGO_INVALID, "nobody can dial the address %s: %s", text, why.text);
}

/* The IPv4 address inside an IPv6 one, or NULL. */
static const uint8_t *mapped(const struct sockaddr_in6 *in6)
{
    static const uint8_t lead[12] = {[10] = 0xff, [11] = 0xff};
    const uint8_t *bytes = in6->sin6_addr.s6_addr;
    return memcmp(bytes, lead, sizeof lead) == 0 ? bytes + sizeof lead : NULL;
}

static void print_v4(const uint8_t *b, unsigned port, char *out)
{
    pl_fmt(out, PL_ADDRESS_MAX, "%u.%u.%u.%u:%u", (unsigned)b[0], (unsigned)b[1], (unsigned)b[2],
           (unsigned)b[3], port);
}

void pl_address_print(const struct sockaddr *sa, char out[static PL_ADDRESS_MAX])
{
    if (sa->sa_family == AF_INET) {
        struct sockaddr_in in;
        memcpy(&in, sa, sizeof in);
        print_v4((const uint8_t *)&in.sin_addr, ntohs(in.sin_port), out);
    } else if (sa->sa_family == AF_INET6) {
        struct sockaddr_in6 in6;
        char text[INET6_ADDRSTRLEN] = "";
        memcpy(&in6, sa, sizeof in6);
        const uint8_t *v4 = mapped(&in6);
        (void)inet_ntop(AF_INET6, &in6.sin6_addr, text, sizeof text);
        if (v4 != NULL)
            print_v4(v4, ntohs(in6.sin6_port), out);
        else
            pl_fmt(out, PL_ADDRESS_MAX, "[%s]:%u", text, (unsigned)ntohs(in6.sin6_port));
    } else {
        pl_fmt(out, PL_ADDRESS_MAX, "an unknown address");
    }
}

uint32_t pl_address_port(const struct sockaddr_storage *sa)
{
    struct sockaddr_in in;
    struct sockaddr_in6 in6;
    memcpy(&in, sa, sizeof in);
    memcpy(&in6, sa, sizeof in6);
    return sa->ss_family == AF_INET6 ? ntohs(in6.sin6_port) : ntohs(in.sin_port);
}

uint64_t pl_address_owner(const struct sockaddr *sa)
{
    struct sockaddr_in in;
    struct sockaddr_in6 in6;
    if (sa->sa_family == AF_INET) {
        memcpy(&in, sa, sizeof in);
        return pl_get_le((const uint8_t *)&in.sin_addr, 4);
    }
    if (sa->sa_family != AF_INET6)
        return 0;
    memcpy(&in6, sa, sizeof in6);
    const uint8_t *v4 = mapped(&in6);
    return v4 != NULL ? pl_get_le(v4, 4) : pl_get_le(in6.sin6_addr.s6_addr, 8);
}
