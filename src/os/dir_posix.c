/* os/dir_posix.c - see dir_posix.h. Interrupted calls are repeated, short reads and writes are continued. */
#include "os/dir_posix.h"

#include "base/check.h"
#include "base/fmt.h"
#include "base/num.h"
#include "os/errors.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>

enum { PARTS_AT_ONCE = 16, LOCK_ATTEMPTS = 100 };
static const char lock_name[] = "pelago.lock", probe_name[] = "pelago.probe";

struct pl_file {
    int fd;
};

struct pl_posix_dir {
    struct pl_alloc alloc;
    int fd;
    int lock; /* -1: not held */
    int last_error;
};

static enum pelago_status failed(struct pl_posix_dir *d, int code)
{
    d->last_error = code;
    return pl_os_status(code);
}

/* A name of this directory and nowhere else. */
static bool is_name(const char *name)
{
    size_t len = strlen(name);
    return len > 0 && len < PL_FILE_NAME_MAX && strchr(name, '/') == NULL && strcmp(name, ".") != 0 &&
           strcmp(name, "..") != 0;
}

static int open_retry(int dir, const char *name, int flags)
{
    int fd;
    do
        fd = openat(dir, name, flags | O_CLOEXEC, 0666);
    while (fd < 0 && errno == EINTR);
    return fd;
}

static int sync_retry(int fd)
{
    int result;
    do
        result = fsync(fd);
    while (result != 0 && errno == EINTR);
    return result;
}

/* A pipe in the place of a file would be waited for, a folder opens and cannot be read. 0, or what to say. */
static int not_a_file(int fd)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return errno;
    if (S_ISDIR(st.st_mode))
        return EISDIR;
    return S_ISFIFO(st.st_mode) ? ESPIPE : 0;
}

static enum pelago_status posix_open(void *self, const char *name, enum pl_file_mode mode,
                                     struct pl_file **out)
{
    struct pl_posix_dir *d = self;
    *out = NULL;
    if (!is_name(name))
        return PELAGO_INVALID;
    struct pl_file *file = pl_alloc_zero(&d->alloc, 1, sizeof *file);
    if (file == NULL)
        return failed(d, ENOMEM);
    /* Without O_NONBLOCK opening a pipe would wait already; it changes nothing for files. */
    file->fd =
        open_retry(d->fd, name, mode == PL_FILE_READ ? O_RDONLY | O_NONBLOCK : O_RDWR | O_CREAT | O_TRUNC);
    int code = file->fd < 0 ? errno : not_a_file(file->fd);
    if (code != 0) {
        if (file->fd >= 0)
            (void)close(file->fd);
        pl_alloc_free(&d->alloc, file, sizeof *file);
        return failed(d, code);
    }
    *out = file;
    return PELAGO_OK;
}

static void posix_close(void *self, struct pl_file *file)
{
    struct pl_posix_dir *d = self;
    (void)close(file->fd); /* what matters was synced; EINTR leaves it closed on Linux */
    pl_alloc_free(&d->alloc, file, sizeof *file);
}

static enum pelago_status posix_read_at(void *self, struct pl_file *file, uint64_t offset, void *into,
                                        size_t len)
{
    struct pl_posix_dir *d = self;
    uint8_t *at = into;
    while (len > 0) {
        ssize_t n = pread(file->fd, at, len, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return failed(d, errno);
        if (n == 0)
            return PELAGO_SHORT;
        at += n;
        offset += (uint64_t)n;
        len -= (size_t)n;
    }
    return PELAGO_OK;
}

/* Writes all of them, however often it takes; the entries, none of them empty, are used up. */
static enum pelago_status write_all(struct pl_posix_dir *d, int fd, uint64_t offset, struct iovec *at,
                                    int count)
{
    while (count > 0) {
        ssize_t n = pwritev(fd, at, count, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return failed(d, n < 0 ? errno : EIO);
        offset += (uint64_t)n;
        for (size_t left = (size_t)n; left > 0;) {
            size_t used = (size_t)pl_min64(left, at->iov_len);
            at->iov_base = (uint8_t *)at->iov_base + used;
            at->iov_len -= used;
            left -= used;
            if (at->iov_len == 0) {
                at++;
                count--;
            }
        }
    }
    return PELAGO_OK;
}

static enum pelago_status posix_write_at(void *self, struct pl_file *file, uint64_t offset,
                                         const struct pl_bytes *parts, size_t count)
{
    struct iovec some[PARTS_AT_ONCE];
    for (size_t next = 0; next < count;) {
        uint64_t bytes = 0;
        int n = 0;
        for (; next < count && n < PARTS_AT_ONCE; next++) {
            if (parts[next].len == 0)
                continue;
            some[n++] = (struct iovec){(void *)parts[next].data, parts[next].len};
            bytes += parts[next].len;
        }
        PL_TRY(write_all(self, file->fd, offset, some, n));
        offset += bytes;
    }
    return PELAGO_OK;
}

static enum pelago_status posix_sync(void *self, struct pl_file *file)
{
    struct stat info;
    if (sync_retry(file->fd) != 0 || fstat(file->fd, &info) != 0)
        return failed(self, errno);
    if (info.st_nlink > 0)
        return PELAGO_OK;
    (void)failed(self, ENOENT); /* somebody removed it: nobody will ever read what is in it */
    return PELAGO_IO;
}

static enum pelago_status posix_size(void *self, struct pl_file *file, uint64_t *bytes)
{
    struct stat info;
    if (fstat(file->fd, &info) != 0)
        return failed(self, errno);
    *bytes = (uint64_t)info.st_size;
    return PELAGO_OK;
}

static enum pelago_status posix_truncate(void *self, struct pl_file *file, uint64_t bytes)
{
    int result;
    do
        result = ftruncate(file->fd, (off_t)bytes);
    while (result != 0 && errno == EINTR);
    return result == 0 ? PELAGO_OK : failed(self, errno);
}

static enum pelago_status posix_rename(void *self, const char *from, const char *to)
{
    struct pl_posix_dir *d = self;
    if (!is_name(from) || !is_name(to))
        return PELAGO_INVALID;
    return renameat(d->fd, from, d->fd, to) == 0 ? PELAGO_OK : failed(d, errno);
}

static enum pelago_status posix_remove(void *self, const char *name)
{
    struct pl_posix_dir *d = self;
    if (!is_name(name))
        return PELAGO_INVALID;
    return unlinkat(d->fd, name, 0) == 0 ? PELAGO_OK : failed(d, errno);
}

static enum pelago_status list_stream(struct pl_posix_dir *d, DIR *stream, pl_file_name_fn *fn, void *user)
{
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(stream);
        if (entry == NULL)
            return errno == 0 ? PELAGO_OK : failed(d, errno);
        if (entry->d_type != DT_DIR && is_name(entry->d_name))
            PL_TRY(fn(user, entry->d_name));
    }
}

static enum pelago_status posix_list(void *self, pl_file_name_fn *fn, void *user)
{
    struct pl_posix_dir *d = self;
    int fd = open_retry(d->fd, ".", O_RDONLY | O_DIRECTORY);
    DIR *stream = fd >= 0 ? fdopendir(fd) : NULL;
    if (stream == NULL) {
        int code = errno;
        if (fd >= 0)
            (void)close(fd);
        return failed(d, code);
    }
    enum pelago_status st = list_stream(d, stream, fn, user);
    (void)closedir(stream);
    return st;
}

static enum pelago_status posix_sync_dir(void *self)
{
    struct pl_posix_dir *d = self;
    return sync_retry(d->fd) == 0 ? PELAGO_OK : failed(d, errno);
}

static const struct pl_file_ops posix_ops = {
    .open = posix_open,
    .close = posix_close,
    .read_at = posix_read_at,
    .write_at = posix_write_at,
    .sync = posix_sync,
    .size = posix_size,
    .truncate = posix_truncate,
    .rename = posix_rename,
    .remove = posix_remove,
    .list = posix_list,
    .sync_dir = posix_sync_dir,
};

enum pelago_status pl_posix_sync_parent(const char *path, struct pl_error *err)
{
    char parent[PL_PATH_MAX] = ".";
    size_t len = strlen(path);
    if (len >= sizeof parent)
        return pl_fail(err, PELAGO_LIMIT, "a path is longer than %u bytes", (unsigned)PL_PATH_MAX - 1);
    while (len > 1 && path[len - 1] == '/')
        len--;
    while (len > 0 && path[len - 1] != '/')
        len--;
    if (len > 0) {
        memcpy(parent, path, len);
        parent[len] = '\0';
    }
    int fd = open_retry(AT_FDCWD, parent, O_RDONLY | O_DIRECTORY);
    int code = fd < 0 || sync_retry(fd) != 0 ? errno : 0;
    if (fd >= 0)
        (void)close(fd);
    if (code != 0)
        return pl_fail(err, pl_os_status(code), "%s cannot be synced: %s", parent, strerror(code));
    return PELAGO_OK;
}

static enum pelago_status make_one(const char *path, struct pl_error *err)
{
    if (mkdir(path, 0777) == 0)
        return pl_posix_sync_parent(path, err);
    int code = errno;
    if (code == EEXIST)
        return PELAGO_OK; /* as a folder or not: opening it will tell */
    return pl_fail(err, pl_os_status(code), "the folder %s cannot be made: %s%s", path, strerror(code),
                   pl_os_advice(code));
}

static enum pelago_status make_all(const char *path, struct pl_error *err)
{
    char prefix[PL_PATH_MAX];
    size_t len = strlen(path);
    if (len >= sizeof prefix)
        return pl_fail(err, PELAGO_LIMIT, "a path is longer than %u bytes", (unsigned)PL_PATH_MAX - 1);
    for (size_t i = 1; i <= len; i++) {
        if (path[i] != '/' && path[i] != '\0')
            continue;
        memcpy(prefix, path, i);
        prefix[i] = '\0';
        PL_TRY(make_one(prefix, err));
    }
    return PELAGO_OK;
}

enum pelago_status pl_posix_dir_open(struct pl_posix_dir **out, const struct pl_alloc *alloc,
                                     const char *path, enum pl_posix_dir_flags flags, struct pl_error *err)
{
    *out = NULL;
    if (flags == PL_POSIX_DIR_CREATE)
        PL_TRY(make_all(path, err));
    struct pl_posix_dir *d = pl_alloc_zero(alloc, 1, sizeof *d);
    if (d == NULL)
        return pl_fail(err, PELAGO_NOMEM, "the folder %s cannot be opened: out of memory", path);
    d->alloc = *alloc;
    d->lock = -1;
    d->fd = open_retry(AT_FDCWD, path, O_RDONLY | O_DIRECTORY);
    if (d->fd < 0) {
        int code = errno;
        pl_alloc_free(alloc, d, sizeof *d);
        return pl_fail(err, pl_os_status(code), "the folder %s cannot be opened: %s%s", path, strerror(code),
                       pl_os_advice(code));
    }
    *out = d;
    return PELAGO_OK;
}

void pl_posix_dir_close(struct pl_posix_dir *d)
{
    if (d == NULL)
        return;
    struct pl_alloc alloc = d->alloc;
    if (d->lock >= 0) {
        (void)unlinkat(d->fd, lock_name, 0); /* while it is still held: nobody else's goes */
        (void)close(d->lock);
    }
    (void)close(d->fd);
    pl_alloc_free(&alloc, d, sizeof *d);
}

/* What pelago makes to lock is an empty file: anything else by that name is somebody's, and would be removed in the end. */
static bool is_ours(int fd)
{
    struct stat info;
    return fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_size == 0;
}

/* The file that was locked may have lost its name to a process that ended just then. */
static bool has_lock_name(const struct pl_posix_dir *d, int fd)
{
    struct stat held, named;
    return fstat(fd, &held) == 0 && fstatat(d->fd, lock_name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
           held.st_dev == named.st_dev && held.st_ino == named.st_ino;
}

enum pelago_status pl_posix_dir_lock(struct pl_posix_dir *d, const char *path, const char *option,
                                     struct pl_error *err)
{
    pl_assert(d->lock < 0);
    for (int i = 0; i < LOCK_ATTEMPTS; i++) {
        int fd = open_retry(d->fd, lock_name, O_RDWR | O_CREAT | O_NOFOLLOW);
        if (fd >= 0 && !is_ours(fd)) {
            (void)close(fd);
            return pl_fail(err, PELAGO_INVALID,
                           "the file %s in %s is not pelago's: move it away, or use another folder",
                           lock_name, path);
        }
        if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0) {
            if (has_lock_name(d, fd)) {
                d->lock = fd;
                return PELAGO_OK;
            }
            (void)close(fd);
            continue;
        }
        int code = errno;
        if (fd >= 0)
            (void)close(fd);
        if (fd >= 0 && code == EWOULDBLOCK)
            break;
        return pl_fail(err, pl_os_status(code), "the folder %s cannot be written to: %s%s", path,
                       strerror(code), pl_os_advice(code));
    }
    return pl_fail(err, PELAGO_STALE,
                   "another pelago is at work in %s: end it, or choose another with %s FOLDER", path, option);
}

enum pelago_status pl_posix_dir_probe(struct pl_posix_dir *d)
{
    int fd = open_retry(d->fd, probe_name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW);
    if (fd < 0)
        return errno == EEXIST ? PELAGO_OK : failed(d, errno);
    (void)unlinkat(d->fd, probe_name, 0);
    struct iovec part = {(void *)probe_name, sizeof probe_name};
    enum pelago_status st = write_all(d, fd, 0, &part, 1);
    if (st == PELAGO_OK && sync_retry(fd) != 0)
        st = failed(d, errno);
    (void)close(fd);
    return st;
}

enum pelago_status pl_posix_dir_make_secret(struct pl_posix_dir *d, const char *name)
{
    if (!is_name(name))
        return PELAGO_INVALID;
    if (unlinkat(d->fd, name, 0) != 0 && errno != ENOENT)
        return failed(d, errno);
    int fd = openat(d->fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return failed(d, errno);
    (void)close(fd);
    return PELAGO_OK;
}

uint64_t pl_posix_dir_free_bytes(const struct pl_posix_dir *d)
{
    struct statvfs info;
    uint64_t bytes;
    if (fstatvfs(d->fd, &info) != 0 || info.f_blocks == 0 ||
        pl_mul_overflow((uint64_t)info.f_bavail, (uint64_t)info.f_frsize, &bytes))
        return PL_NONE64;
    return bytes;
}

struct pl_dir pl_posix_dir_table(struct pl_posix_dir *d)
{
    return (struct pl_dir){&posix_ops, d};
}

const char *pl_posix_dir_reason(const struct pl_posix_dir *d)
{
    return d->last_error != 0 ? strerror(d->last_error) : "";
}

const char *pl_posix_dir_advice(const struct pl_posix_dir *d)
{
    return pl_os_advice(d->last_error);
}
