/* os/folder.h - a folder of files that appears whole or not at all.
 *
 * It is written under a name of its own beside the final one and renamed when all is on disk. Whoever is killed in
 * between leaves PATH.partial-PID behind, never a PATH that lacks something.
 */
#ifndef PL_OS_FOLDER_H
#define PL_OS_FOLDER_H

#include "os/dir_posix.h"

struct pl_folder {
    struct pl_posix_dir *dir; /* NULL: not begun, or done with */
    char path[PL_PATH_MAX];
    char partial[PL_PATH_MAX];
};

/* INVALID where the path exists and is anything but an empty folder. */
enum pelago_status pl_folder_begin(struct pl_folder *f, const struct pl_alloc *alloc, const char *path,
                                   struct pl_error *err);
struct pl_dir pl_folder_dir(struct pl_folder *f);

/* The files must have been synced. Whether it succeeds or not, the folder is done with afterwards. */
enum pelago_status pl_folder_commit(struct pl_folder *f, struct pl_error *err);
/* Removes what was written; nothing to do after a commit. */
void pl_folder_abandon(struct pl_folder *f);

#endif
