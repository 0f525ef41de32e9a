/* os/dir_posix.h - the table of store/file.h on a real directory.
 *
 * Names are those of files directly inside it. What the table cannot say, because it knows statuses only, is kept here:
 * the system's own words for the last failure.
 */
#ifndef PL_OS_DIR_POSIX_H
#define PL_OS_DIR_POSIX_H

#include "base/alloc.h"
#include "store/file.h"

#include <stdbool.h>

enum { PL_PATH_MAX = 4096 }; /* bytes of a path, with the final zero */

struct pl_posix_dir;

enum pl_posix_dir_flags {
    PL_POSIX_DIR_EXISTING = 0,
    PL_POSIX_DIR_CREATE = 1, /* makes it, and the folders above it, where they are missing */
};

/* alloc is borrowed and outlives the directory. */
enum pelago_status pl_posix_dir_open(struct pl_posix_dir **out, const struct pl_alloc *alloc,
                                     const char *path, enum pl_posix_dir_flags flags, struct pl_error *err);
void pl_posix_dir_close(struct pl_posix_dir *d); /* NULL is fine; files of it must be closed before */

struct pl_dir pl_posix_dir_table(struct pl_posix_dir *d);

/* Takes the folder for this process until it is closed or the process ends: no other one can, meanwhile. path and
 * option, which chooses it, are for the sentence. STALE: another process has it. An empty file `pelago.lock` is in the folder while it is held; one that a killed
 * process left behind holds nothing. INVALID: there is something else by that name, which is left alone. */
enum pelago_status pl_posix_dir_lock(struct pl_posix_dir *d, const char *path, const char *option,
                                     struct pl_error *err);

/* OK where a file can be made and written: it is tried, and nothing is left of it. A file `pelago.probe` that is there already
 * is left alone, and nothing is tried. */
enum pelago_status pl_posix_dir_probe(struct pl_posix_dir *d);

/* Bytes that may still be written where the folder is; PL_NONE64 where the system does not say. */
uint64_t pl_posix_dir_free_bytes(const struct pl_posix_dir *d);

/* "Permission denied" for the last operation of the table that failed; "" before any did. */
const char *pl_posix_dir_reason(const struct pl_posix_dir *d);
/* "; make room there, or choose another folder": what to do about it, or "". */
const char *pl_posix_dir_advice(const struct pl_posix_dir *d);

/* An empty file that only its owner may read or write, for secrets: what is written to it later stays so. An old one of
 * that name is removed. */
enum pelago_status pl_posix_dir_make_secret(struct pl_posix_dir *d, const char *name);

/* Makes durable that a name came or went: the folder that holds this path is synced. */
enum pelago_status pl_posix_sync_parent(const char *path, struct pl_error *err);

#endif
