/* os/folder.c - see folder.h. */
#include "os/folder.h"

#include "base/check.h"
#include "base/fmt.h"
#include "os/errors.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static enum pelago_status see_one(void *user, const char *name)
{
    (void)user;
    (void)name;
    return PELAGO_STALE;
}

/* What is there under the final name may be replaced: nothing, or a folder without files. */
static enum pelago_status check_free(const struct pl_folder *f, const struct pl_alloc *alloc,
                                     struct pl_error *err)
{
    struct stat info;
    struct pl_posix_dir *d;
    if (lstat(f->path, &info) != 0)
        return PELAGO_OK;
    if (!S_ISDIR(info.st_mode))
        return pl_fail(err, PELAGO_INVALID, "%s exists and is not a folder", f->path);
    PL_TRY(pl_posix_dir_open(&d, alloc, f->path, PL_POSIX_DIR_EXISTING, err));
    const struct pl_dir table = pl_posix_dir_table(d);
    enum pelago_status st = table.ops->list(table.self, see_one, NULL);
    pl_posix_dir_close(d);
    if (st != PELAGO_OK)
        return pl_fail(err, PELAGO_INVALID, "the folder %s exists and is not empty: give another one",
                       f->path);
    return PELAGO_OK;
}

enum pelago_status pl_folder_begin(struct pl_folder *f, const struct pl_alloc *alloc, const char *path,
                                   struct pl_error *err)
{
    size_t len = strlen(path);
    *f = (struct pl_folder){.dir = NULL};
    while (len > 1 && path[len - 1] == '/')
        len--;
    if (len == 0 || len + 32 > sizeof f->path)
        return pl_fail(err, PELAGO_INVALID, "the path of a folder to write must have 1 to %u bytes",
                       (unsigned)sizeof f->path - 32);
    memcpy(f->path, path, len);
    pl_fmt(f->partial, sizeof f->partial, "%s.partial-%lu", f->path, (uint64_t)getpid());
    PL_TRY(check_free(f, alloc, err));
    return pl_posix_dir_open(&f->dir, alloc, f->partial, PL_POSIX_DIR_CREATE, err);
}

struct pl_dir pl_folder_dir(struct pl_folder *f)
{
    pl_assert(f->dir != NULL);
    return pl_posix_dir_table(f->dir);
}

static enum pelago_status take_place(struct pl_folder *f, struct pl_error *err)
{
    const struct pl_dir table = pl_folder_dir(f);
    enum pelago_status st = table.ops->sync_dir(table.self);
    if (st != PELAGO_OK)
        return pl_fail(err, st, "the folder %s cannot be synced: %s", f->partial,
                       pl_posix_dir_reason(f->dir));
    if (rename(f->partial, f->path) != 0) {
        int code = errno;
        return pl_fail(err, pl_os_status(code), "the folder %s cannot take its place: %s", f->path,
                       strerror(code));
    }
    return PELAGO_OK;
}

enum pelago_status pl_folder_commit(struct pl_folder *f, struct pl_error *err)
{
    enum pelago_status st = take_place(f, err);
    if (st != PELAGO_OK) {
        pl_folder_abandon(f);
        return st;
    }
    pl_posix_dir_close(f->dir);
    f->dir = NULL;
    return pl_posix_sync_parent(f->path, err);
}

struct one_name {
    char text[PL_FILE_NAME_MAX];
};

static enum pelago_status take_name(void *user, const char *name)
{
    struct one_name *one = user;
    memcpy(one->text, name, strlen(name) + 1);
    return PELAGO_STALE;
}

void pl_folder_abandon(struct pl_folder *f)
{
    struct one_name one;
    if (f->dir == NULL)
        return;
    const struct pl_dir table = pl_folder_dir(f);
    while (table.ops->list(table.self, take_name, &one) == PELAGO_STALE)
        if (table.ops->remove(table.self, one.text) != PELAGO_OK)
            break;
    pl_posix_dir_close(f->dir);
    f->dir = NULL;
    (void)rmdir(f->partial);
}
