/* store/file.h - the few file operations durability needs, as a table.
 *
 * A struct pl_dir is one directory of one store. The simulator's disk (sim/disk.h) implements the table in memory
 * and loses what was not synced; a real file system does the same, only more rarely. The store relies on exactly
 * what is promised here and on nothing else:
 *
 * - written bytes are seen by later reads at once, and survive a power cut only after sync() of that file returned
 *   OK; until then any part of them may be lost, in any order;
 * - after a failed sync() nothing written since the last good one may be believed, even if it can be read back;
 * - rename() replaces its target atomically; created, renamed and removed names survive only after sync_dir().
 *
 * Operations return OK, IO, FULL (no space), NOTFOUND (no such name), SHORT (read past the end), NOMEM.
 */
#ifndef PL_STORE_FILE_H
#define PL_STORE_FILE_H

#include "base/bytes.h"
#include "base/status.h"

enum { PL_FILE_NAME_MAX = 64 }; /* bytes of a name in a directory, with the final zero */

enum pl_file_mode {
    PL_FILE_READ = 1, /* an existing file */
    PL_FILE_CREATE,   /* a new, empty file for reading and writing; an existing one is emptied */
};

struct pl_file; /* belongs to the implementation */

/* Anything but OK ends the listing and is returned from it. */
typedef enum pelago_status pl_file_name_fn(void *user, const char *name);

struct pl_file_ops {
    enum pelago_status (*open)(void *self, const char *name, enum pl_file_mode mode, struct pl_file **out);
    void (*close)(void *self, struct pl_file *file);
    /* Exactly len bytes, or SHORT. */
    enum pelago_status (*read_at)(void *self, struct pl_file *file, uint64_t offset, void *into, size_t len);
    /* All parts one after the other as one write, growing the file as needed; on failure any part may be there. */
    enum pelago_status (*write_at)(void *self, struct pl_file *file, uint64_t offset,
                                   const struct pl_bytes *parts, size_t count);
    enum pelago_status (*sync)(void *self, struct pl_file *file);
    enum pelago_status (*size)(void *self, struct pl_file *file, uint64_t *bytes);
    enum pelago_status (*truncate)(void *self, struct pl_file *file, uint64_t bytes);
    enum pelago_status (*rename)(void *self, const char *from, const char *to);
    enum pelago_status (*remove)(void *self, const char *name);
    enum pelago_status (*list)(void *self, pl_file_name_fn *fn, void *user); /* in any order */
    enum pelago_status (*sync_dir)(void *self);
};

struct pl_dir {
    const struct pl_file_ops *ops; /* borrowed */
    void *self;
};

#endif
