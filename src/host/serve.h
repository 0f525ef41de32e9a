/* host/serve.h - what every syncer's host does before it serves: the address that learners dial, room for open files. */
#ifndef PL_HOST_SERVE_H
#define PL_HOST_SERVE_H

#include "net/address.h"

/* As learners dial whoever listens there on this port: as it was told (advertise, may be NULL), or where it listens; every
 * address of this machine is called by the machine's name. INVALID with a sentence for what nobody can dial. */
enum pelago_status pl_serve_address(const char *advertise, const char *listen, uint32_t port,
                                    char out[static PL_ADDRESS_MAX], struct pl_error *err);

/* "host:port" of whoever listens there on this port, as --listen takes it. */
enum pelago_status pl_serve_bound(const char *listen, uint32_t port, char out[static PL_ADDRESS_MAX],
                                  struct pl_error *err);
/* The same as this machine dials it, whatever others do. */
enum pelago_status pl_serve_near(const char *bound, char out[static PL_ADDRESS_MAX], struct pl_error *err);

/* Raises the limit of open files for so many connections; LIMIT with a sentence where fewer are allowed. */
enum pelago_status pl_serve_files(uint32_t conns, struct pl_error *err);

#endif
