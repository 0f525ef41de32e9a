/* train/files.c - see files.h. */
#include "train/files.h"

enum pelago_status pl_files_fail(struct pl_error *err, enum pelago_status status, const char *name,
                                 const char *verb)
{
    if (status == PELAGO_NOTFOUND)
        return pl_fail(err, status, "%s is not there", name);
    return pl_fail(err, status, "%s cannot be %s: %s", name, verb, pl_status_text(status));
}

static enum pelago_status read_open(struct pl_dir dir, struct pl_file *file, struct pl_buf *into)
{
    uint64_t bytes;
    PL_TRY(dir.ops->size(dir.self, file, &bytes));
    if (bytes > into->max - into->len)
        return PELAGO_LIMIT;
    PL_TRY(pl_buf_reserve(into, (size_t)bytes));
    if (bytes > 0)
        PL_TRY(dir.ops->read_at(dir.self, file, 0, into->data + into->len, (size_t)bytes));
    into->len += (size_t)bytes;
    return PELAGO_OK;
}

enum pelago_status pl_files_read(struct pl_dir dir, const char *name, struct pl_buf *into,
                                 struct pl_error *err)
{
    struct pl_file *file;
    enum pelago_status st = dir.ops->open(dir.self, name, PL_FILE_READ, &file);
    if (st == PELAGO_OK) {
        st = read_open(dir, file, into);
        dir.ops->close(dir.self, file);
    }
    return st == PELAGO_OK ? st : pl_files_fail(err, st, name, "read");
}

enum pelago_status pl_files_write(struct pl_dir dir, const char *name, struct pl_bytes content,
                                  struct pl_error *err)
{
    struct pl_file *file;
    enum pelago_status st = dir.ops->open(dir.self, name, PL_FILE_CREATE, &file);
    if (st == PELAGO_OK) {
        st = dir.ops->write_at(dir.self, file, 0, &content, 1);
        if (st == PELAGO_OK)
            st = dir.ops->sync(dir.self, file);
        dir.ops->close(dir.self, file);
        if (st != PELAGO_OK)
            (void)dir.ops->remove(dir.self, name);
    }
    return st == PELAGO_OK ? st : pl_files_fail(err, st, name, "written");
}

enum pelago_status pl_files_size(struct pl_dir dir, const char *name, uint64_t *bytes, struct pl_error *err)
{
    struct pl_file *file;
    enum pelago_status st = dir.ops->open(dir.self, name, PL_FILE_READ, &file);
    if (st == PELAGO_OK) {
        st = dir.ops->size(dir.self, file, bytes);
        dir.ops->close(dir.self, file);
    }
    return st == PELAGO_OK ? st : pl_files_fail(err, st, name, "read");
}
