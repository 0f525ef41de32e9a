/* cmd/chaos_file.c - see chaos_file.h. */
#include "cmd/chaos_file.h"

#include "cmd/text.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum pelago_status pl_chaos_read_file(const char *path, struct pl_buf *out, struct pl_error *err)
{
    struct stat about;
    char block[1 << 14];
    size_t n;
    enum pelago_status status = PELAGO_OK;
    if (stat(path, &about) == 0 && S_ISDIR(about.st_mode))
        return pl_fail(err, PELAGO_INVALID, "%s is a folder, expected a file", pl_text_clip(path).at);
    FILE *f = fopen(path, "rb");
    if (f == NULL)
        return pl_fail(err, PELAGO_NOTFOUND, "%s cannot be read: %s", pl_text_clip(path).at, strerror(errno));
    while (status == PELAGO_OK && (n = fread(block, 1, sizeof block, f)) > 0)
        status = pl_buf_append(out, block, n);
    bool failed = ferror(f) != 0;
    (void)fclose(f);
    if (failed)
        return pl_fail(err, PELAGO_IO, "%s cannot be read", pl_text_clip(path).at);
    return status == PELAGO_OK ? status : pl_fail(err, status, "%s is too long", pl_text_clip(path).at);
}
