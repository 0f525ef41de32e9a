/* data/outfile.h - a file that appears whole or not at all.
 *
 * Bytes go to PATH.tmp beside it. Committing syncs that, renames it to PATH and syncs the folder; anything else removes it,
 * and a file that was there before stays as it was.
 */
#ifndef PL_DATA_OUTFILE_H
#define PL_DATA_OUTFILE_H

#include "base/alloc.h"
#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

struct pl_outfile;

/* The path is copied. The error names the file. */
enum pelago_status pl_outfile_open(struct pl_outfile **out, const struct pl_alloc *alloc, const char *path,
                                   struct pl_error *err);
enum pelago_status pl_outfile_append(struct pl_outfile *f, const void *bytes, size_t len,
                                     struct pl_error *err);
/* Overwrites bytes that were appended before. */
enum pelago_status pl_outfile_write_at(struct pl_outfile *f, uint64_t offset, const void *bytes, size_t len,
                                       struct pl_error *err);
/* Both free f. */
enum pelago_status pl_outfile_commit(struct pl_outfile *f, struct pl_error *err);
void pl_outfile_abandon(struct pl_outfile *f); /* NULL is fine */

/* All of it at once. */
enum pelago_status pl_outfile_write_all(const struct pl_alloc *alloc, const char *path, const void *bytes,
                                        size_t len, struct pl_error *err);

#endif
