/* data/input.c - see input.h. */
#include "data/input.h"

#include "base/check.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

enum { PACKED_BYTES = 256 << 10, READ_BYTES = 1 << 20 };

struct pl_input {
    const struct pl_alloc *alloc;
    const char *path;
    int fd;
    ZSTD_DStream *zstd; /* NULL: plain */
    uint8_t *packed;    /* [PACKED_BYTES] */
    ZSTD_inBuffer in;
    bool inside; /* a frame of zstd has begun and not ended */
};

static enum pelago_status fail_read(struct pl_error *err, const char *path)
{
    enum pelago_status status = errno == ENOENT ? PELAGO_NOTFOUND : PELAGO_IO;
    return pl_fail(err, status, "%s could not be read: %s", path, strerror(errno));
}

static bool ends_in(const char *text, const char *end)
{
    size_t len = strlen(text), n = strlen(end);
    return len >= n && strcmp(text + len - n, end) == 0;
}

static enum pelago_status open_file(struct pl_input *in, struct pl_error *err)
{
    struct stat st;
    if (strcmp(in->path, "-") == 0) {
        in->fd = STDIN_FILENO;
        return PELAGO_OK;
    }
    in->fd = open(in->path, O_RDONLY | O_CLOEXEC);
    if (in->fd < 0)
        return fail_read(err, in->path);
    if (fstat(in->fd, &st) == 0 && S_ISDIR(st.st_mode)) {
        errno = EISDIR;
        return fail_read(err, in->path);
    }
    if (!ends_in(in->path, ".zst"))
        return PELAGO_OK;
    in->zstd = ZSTD_createDStream();
    in->packed = pl_alloc_zero(in->alloc, PACKED_BYTES, 1);
    in->in = (ZSTD_inBuffer){in->packed, 0, 0};
    if (in->zstd == NULL || in->packed == NULL)
        return pl_fail(err, PELAGO_NOMEM, "there is no memory to read %s", in->path);
    return PELAGO_OK;
}

enum pelago_status pl_input_open(struct pl_input **out, const struct pl_alloc *alloc, const char *path,
                                 struct pl_error *err)
{
    struct pl_input *in = pl_alloc_zero(alloc, 1, sizeof *in);
    *out = NULL;
    if (in == NULL)
        return pl_fail(err, PELAGO_NOMEM, "there is no memory to read %s", path);
    in->alloc = alloc;
    in->path = path;
    in->fd = -1;
    enum pelago_status status = open_file(in, err);
    if (status == PELAGO_OK)
        *out = in;
    else
        pl_input_close(in);
    return status;
}

void pl_input_close(struct pl_input *in)
{
    if (in == NULL)
        return;
    if (in->fd > STDIN_FILENO)
        (void)close(in->fd);
    (void)ZSTD_freeDStream(in->zstd);
    pl_alloc_free(in->alloc, in->packed, PACKED_BYTES);
    pl_alloc_free(in->alloc, in, sizeof *in);
}

static enum pelago_status read_plain(struct pl_input *in, void *into, size_t cap, size_t *len,
                                     struct pl_error *err)
{
    ssize_t n;
    do
        n = read(in->fd, into, cap);
    while (n < 0 && errno == EINTR);
    *len = n > 0 ? (size_t)n : 0;
    return n < 0 ? fail_read(err, in->path) : PELAGO_OK;
}

/* Unpacks what is there; nothing may come of it. */
static enum pelago_status unpack(struct pl_input *in, ZSTD_outBuffer *out, struct pl_error *err)
{
    size_t left = ZSTD_decompressStream(in->zstd, out, &in->in);
    if (ZSTD_isError(left))
        return pl_fail(err, PELAGO_CORRUPT, "%s is not good zstd data: %s", in->path,
                       ZSTD_getErrorName(left));
    in->inside = left != 0;
    return PELAGO_OK;
}

static enum pelago_status read_packed(struct pl_input *in, void *into, size_t cap, size_t *len,
                                      struct pl_error *err)
{
    ZSTD_outBuffer out = {into, cap, 0};
    if (in->inside) /* what did not fit before comes without new input */
        PL_TRY(unpack(in, &out, err));
    while (out.pos == 0) {
        if (in->in.pos == in->in.size) {
            size_t n;
            PL_TRY(read_plain(in, in->packed, PACKED_BYTES, &n, err));
            if (n == 0 && in->inside)
                return pl_fail(err, PELAGO_CORRUPT, "%s ends in the middle of its packed data", in->path);
            if (n == 0)
                break;
            in->in.size = n;
            in->in.pos = 0;
        }
        PL_TRY(unpack(in, &out, err));
    }
    *len = out.pos;
    return PELAGO_OK;
}

enum pelago_status pl_input_read(struct pl_input *in, void *into, size_t cap, size_t *len,
                                 struct pl_error *err)
{
    pl_assert(in != NULL && cap > 0);
    *len = 0;
    return in->zstd != NULL ? read_packed(in, into, cap, len, err) : read_plain(in, into, cap, len, err);
}

static enum pelago_status read_rest(struct pl_input *in, struct pl_buf *into, struct pl_error *err)
{
    pl_assert(in != NULL);
    for (;;) {
        size_t room = into->max - into->len, n;
        uint8_t beyond;
        if (room == 0) {
            PL_TRY(pl_input_read(in, &beyond, 1, &n, err));
            if (n > 0)
                return pl_fail(err, PELAGO_LIMIT, "%s is larger than %lu MiB", in->path,
                               (uint64_t)into->max >> 20);
            return PELAGO_OK;
        }
        room = room < READ_BYTES ? room : READ_BYTES;
        if (pl_buf_reserve(into, room) != PELAGO_OK)
            return pl_fail(err, PELAGO_NOMEM, "there is no memory to read %s", in->path);
        PL_TRY(pl_input_read(in, into->data + into->len, room, &n, err));
        into->len += n;
        if (n == 0)
            return PELAGO_OK;
    }
}

enum pelago_status pl_input_read_all(const struct pl_alloc *alloc, const char *path, struct pl_buf *into,
                                     struct pl_error *err)
{
    struct pl_input *in;
    PL_TRY(pl_input_open(&in, alloc, path, err));
    enum pelago_status status = read_rest(in, into, err);
    pl_input_close(in);
    return status;
}
