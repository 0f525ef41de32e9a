/* os/map.h - a whole file as read-only memory.
 *
 * The bytes are those of the file, not a copy: whoever shortens the file while it is mapped takes the ground away from
 * under the reader (SIGBUS). Token files are written once and renamed into place, so nobody does.
 */
#ifndef PL_OS_MAP_H
#define PL_OS_MAP_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

struct pl_map {
    const uint8_t *data; /* NULL where the file is empty */
    size_t len;
};

/* A regular file. The sentence names the path and says what the system said. */
enum pelago_status pl_map_open(struct pl_map *map, const char *path, struct pl_error *err);
void pl_map_close(struct pl_map *map);

#endif
