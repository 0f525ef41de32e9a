/* data/outfile.c - see outfile.h. */
#include "data/outfile.h"

#include "base/check.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct pl_outfile {
    const struct pl_alloc *alloc;
    char *path, *temp; /* one block: the path, then PATH.tmp */
    size_t path_bytes; /* of that block */
    int fd;
    uint64_t len;
};

static enum pelago_status fail(struct pl_error *err, const char *path)
{
    enum pelago_status status = errno == ENOSPC || errno == EDQUOT ? PELAGO_FULL : PELAGO_IO;
    return pl_fail(err, status, "%s could not be written: %s", path, strerror(errno));
}

static void free_file(struct pl_outfile *f)
{
    pl_alloc_free(f->alloc, f->path, f->path_bytes);
    pl_alloc_free(f->alloc, f, sizeof *f);
}

enum pelago_status pl_outfile_open(struct pl_outfile **out, const struct pl_alloc *alloc, const char *path,
                                   struct pl_error *err)
{
    static const char suffix[] = ".tmp";
    size_t len = strlen(path);
    struct pl_outfile *f = pl_alloc_zero(alloc, 1, sizeof *f);
    char *block = pl_alloc_zero(alloc, 2, len + sizeof suffix);
    *out = NULL;
    if (f == NULL || block == NULL) {
        pl_alloc_free(alloc, f, sizeof *f);
        pl_alloc_free(alloc, block, 2 * (len + sizeof suffix));
        return pl_fail(err, PELAGO_NOMEM, "there is no memory to write %s", path);
    }
    *f = (struct pl_outfile){alloc, block, block + len + 1, 2 * (len + sizeof suffix), -1, 0};
    memcpy(f->path, path, len);
    memcpy(f->temp, path, len);
    memcpy(f->temp + len, suffix, sizeof suffix);
    f->fd = open(f->temp, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (f->fd < 0) {
        enum pelago_status status = fail(err, path);
        free_file(f);
        return status;
    }
    *out = f;
    return PELAGO_OK;
}

enum pelago_status pl_outfile_write_at(struct pl_outfile *f, uint64_t offset, const void *bytes, size_t len,
                                       struct pl_error *err)
{
    const uint8_t *at = bytes;
    while (len > 0) {
        ssize_t n = pwrite(f->fd, at, len, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return fail(err, f->path);
        at += n;
        len -= (size_t)n;
        offset += (uint64_t)n;
    }
    return PELAGO_OK;
}

enum pelago_status pl_outfile_append(struct pl_outfile *f, const void *bytes, size_t len,
                                     struct pl_error *err)
{
    pl_assert(f != NULL);
    PL_TRY(pl_outfile_write_at(f, f->len, bytes, len, err));
    f->len += len;
    return PELAGO_OK;
}

void pl_outfile_abandon(struct pl_outfile *f)
{
    if (f == NULL)
        return;
    (void)close(f->fd);
    (void)unlink(f->temp);
    free_file(f);
}

/* The folder that holds the path; the path's own bytes are cut for the moment of the call. */
static int sync_folder(char *path)
{
    char *slash = strrchr(path, '/');
    char first = slash != NULL ? slash[1] : '\0';
    if (slash != NULL)
        slash[1] = '\0';
    int fd = open(slash != NULL ? path : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (slash != NULL)
        slash[1] = first;
    if (fd < 0)
        return -1;
    int result = fsync(fd);
    /* Some file systems do not sync folders: then there is nothing more to do. */
    if (result != 0 && (errno == EINVAL || errno == ENOTSUP))
        result = 0;
    (void)close(fd);
    return result;
}

enum pelago_status pl_outfile_commit(struct pl_outfile *f, struct pl_error *err)
{
    enum pelago_status status = PELAGO_OK;
    if (fsync(f->fd) != 0 || rename(f->temp, f->path) != 0) {
        status = fail(err, f->path);
        pl_outfile_abandon(f);
        return status;
    }
    if (sync_folder(f->path) != 0)
        status = fail(err, f->path);
    (void)close(f->fd);
    free_file(f);
    return status;
}

enum pelago_status pl_outfile_write_all(const struct pl_alloc *alloc, const char *path, const void *bytes,
                                        size_t len, struct pl_error *err)
{
    struct pl_outfile *f;
    PL_TRY(pl_outfile_open(&f, alloc, path, err));
    enum pelago_status status = pl_outfile_append(f, bytes, len, err);
    if (status == PELAGO_OK)
        return pl_outfile_commit(f, err);
    pl_outfile_abandon(f);
    return status;
}
