/* os/map.c - see map.h. */
#include "os/map.h"

#include "os/errors.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static enum pelago_status fail_errno(struct pl_error *err, const char *what, const char *path)
{
    int code = errno;
    return pl_fail(err, pl_os_status(code), "%s cannot be %s: %s", path, what, strerror(code));
}

static enum pelago_status map_fd(struct pl_map *map, int fd, const char *path, struct pl_error *err)
{
    struct stat info;
    if (fstat(fd, &info) != 0)
        return fail_errno(err, "read", path);
    if (!S_ISREG(info.st_mode))
        return pl_fail(err, PELAGO_INVALID, "%s cannot be read: it is not a regular file", path);
    if (info.st_size == 0)
        return PELAGO_OK;
    void *at = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        return fail_errno(err, "mapped", path);
    map->data = at;
    map->len = (size_t)info.st_size;
    return PELAGO_OK;
}

enum pelago_status pl_map_open(struct pl_map *map, const char *path, struct pl_error *err)
{
    *map = (struct pl_map){NULL, 0};
    int fd;
    do
        fd = open(path, O_RDONLY | O_CLOEXEC);
    while (fd < 0 && errno == EINTR);
    if (fd < 0)
        return fail_errno(err, "opened", path);
    enum pelago_status st = map_fd(map, fd, path, err);
    (void)close(fd);
    return st;
}

void pl_map_close(struct pl_map *map)
{
    if (map->data != NULL)
        (void)munmap((void *)map->data, map->len);
    *map = (struct pl_map){NULL, 0};
}
