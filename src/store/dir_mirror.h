/* store/dir_mirror.h - one directory that is two: everything written goes to both, and is durable when both say so.
 *
 * Reading and listing use the first; the second only has to be there when the first is not any more. It must hold
 * what the first holds before the pair is used: pl_dir_mirror_fill sees to that. A failure of either is a failure of
 * the pair: what one of the two cannot keep is not kept. So a second directory that is full or gone holds up whoever
 * waits for durability, and nobody else.
 *
 * Like all of store/ it owns no memory but the struct.
 */
#ifndef PL_STORE_DIR_MIRROR_H
#define PL_STORE_DIR_MIRROR_H

#include "store/file.h"

enum { PL_MIRROR_FILES_MAX = 8 }; /* open at once */

struct pl_mirror_file {
    bool used;
    struct pl_file *first, *second; /* second NULL: opened for reading */
};

/* Private, here for its size only. */
struct pl_dir_mirror {
    struct pl_dir first, second;
    struct pl_mirror_file files[PL_MIRROR_FILES_MAX];
};

/* Both directories are borrowed. */
void pl_dir_mirror_init(struct pl_dir_mirror *m, struct pl_dir first, struct pl_dir second);
struct pl_dir pl_dir_mirror_table(struct pl_dir_mirror *m);

/* Which names pl_dir_mirror_fill is about. */
typedef bool pl_mirror_name_fn(const char *name);

/* Makes the second directory hold the files of the first, byte for byte and durably, and no others of those names.
 * Files that are equal already are only read. Copies are made under names of their own and take their places when all are
 * whole: where that fails, or ends in the middle, the second directory is what it was. Only between the renames at the end it
 * may be neither, and of a journal's files, whose names have the order of time, it is then an older state of the first, unless
 * the first no longer has what follows the second's. scratch is used in two halves. */
enum pelago_status pl_dir_mirror_fill(struct pl_dir first, struct pl_dir second, pl_mirror_name_fn *about,
                                      void *scratch, size_t scratch_bytes, struct pl_error *err);

#endif
