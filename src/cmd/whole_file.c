/* cmd/whole_file.c - see whole_file.h. */
#include "cmd/whole_file.h"

#include "cmd/text.h"
#include "data/outfile.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BYTES_MAX = 64 << 20, FOLDER_MAX = 4096 };

static enum pelago_status refuse(const char *path, int why, struct pl_error *err)
{
    return pl_fail(err, PELAGO_IO, "%s cannot be written: %s", pl_text_clip(path).at, strerror(why));
}

/* The folder of a file that is to be made; 0 or errno. */
static int check_folder(const char *path)
{
    char folder[FOLDER_MAX];
    const char *slash = strrchr(path, '/');
    size_t len = slash != NULL ? (size_t)(slash - path) + 1 : 2;
    if (len >= sizeof folder)
        return ENAMETOOLONG;
    memcpy(folder, slash != NULL ? path : "./", len);
    folder[len] = '\0';
    return access(folder, W_OK | X_OK) == 0 ? 0 : errno;
}

static bool is_plain(const char *path)
{
    struct stat about;
    return stat(path, &about) != 0 || S_ISREG(about.st_mode);
}

static int check_path(const char *path)
{
    struct stat about;
    if (stat(path, &about) != 0)
        return errno == ENOENT ? check_folder(path) : errno;
    if (S_ISDIR(about.st_mode))
        return EISDIR;
    if (access(path, W_OK) != 0)
        return errno;
    return S_ISREG(about.st_mode) ? check_folder(path) : 0;
}

static ssize_t collect(void *cookie, const char *bytes, size_t len)
{
    return pl_buf_append(cookie, bytes, len) == PELAGO_OK ? (ssize_t)len : 0;
}

enum pelago_status pl_whole_open(struct pl_whole_file *w, const char *path, struct pl_error *err)
{
    int why = check_path(path);
    *w = (struct pl_whole_file){.path = path, .alloc = pl_alloc_system()};
    if (why != 0)
        return refuse(path, why, err);
    pl_buf_init(&w->text, &w->alloc, BYTES_MAX);
    w->f = fopencookie(&w->text, "w", (cookie_io_functions_t){.write = collect});
    return w->f != NULL ? PELAGO_OK : pl_fail(err, PELAGO_NOMEM, "out of memory");
}

static enum pelago_status write_in_place(const struct pl_whole_file *w, struct pl_error *err)
{
    int fd = open(w->path, O_WRONLY | O_CLOEXEC);
    bool good = fd >= 0;
    for (size_t at = 0; good && at < w->text.len;) {
        ssize_t n = write(fd, w->text.data + at, w->text.len - at);
        good = n > 0 || (n < 0 && errno == EINTR);
        at += n > 0 ? (size_t)n : 0;
    }
    int why = good ? 0 : errno;
    if (fd >= 0 && close(fd) != 0 && good)
        why = errno;
    return why == 0 ? PELAGO_OK : refuse(w->path, why, err);
}

enum pelago_status pl_whole_close(struct pl_whole_file *w, struct pl_error *err)
{
    if (w->f == NULL)
        return PELAGO_OK;
    bool whole = ferror(w->f) == 0;
    whole = fclose(w->f) == 0 && whole;
    w->f = NULL;
    enum pelago_status st =
        !whole ? pl_fail(err, PELAGO_NOMEM, "there is no memory to write %s", pl_text_clip(w->path).at)
        : is_plain(w->path) ? pl_outfile_write_all(&w->alloc, w->path, w->text.data, w->text.len, err)
                            : write_in_place(w, err);
    pl_buf_release(&w->text);
    return st;
}

void pl_whole_abandon(struct pl_whole_file *w)
{
    if (w->f == NULL)
        return;
    (void)fclose(w->f);
    w->f = NULL;
    pl_buf_release(&w->text);
}

bool pl_whole_same(const char *a, const char *b)
{
    struct stat x, y;
    if (strcmp(a, b) == 0)
        return true;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}
