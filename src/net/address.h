/* net/address.h - "host:port" as a person writes it, and socket addresses as a person reads them. */
#ifndef PL_NET_ADDRESS_H
#define PL_NET_ADDRESS_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sockaddr;
struct sockaddr_storage;

enum {
    PL_HOST_MAX = 256,    /* with the final zero */
    PL_ADDRESS_MAX = 272, /* "host:port" or "[v6]:port", with the final zero */
};

struct pl_address {
    char host[PL_HOST_MAX]; /* without brackets; "" and "*" stand for every address of this machine */
    char port[6];
};

/* "host:port", "10.0.0.7:7441", "[fe80::1]:7441", "*:7441". INVALID with a sentence that shows how it is written. */
enum pelago_status pl_address_parse(const char *text, struct pl_address *out, struct pl_error *err);

/* Does this host stand for every address of the machine? */
bool pl_address_is_every(const char *host);

/* The same for one that others dial: it names one host, and its port is not 0. */
enum pelago_status pl_address_dialable(const char *text, struct pl_error *err);

/* "10.0.0.7:7441" or "[fe80::1]:7441"; an IPv4 address in IPv6 clothes is shown as what it is. */
void pl_address_print(const struct sockaddr *sa, char out[static PL_ADDRESS_MAX]);
uint32_t pl_address_port(const struct sockaddr_storage *sa);

/* Whom a limit per address means: the IPv4 address, or the upper 64 bits of an IPv6 one, which belong to one customer. */
uint64_t pl_address_owner(const struct sockaddr *sa);

#endif
