/* train/files.h - small files of a directory, whole: read at once, written and synced at once. */
#ifndef PL_TRAIN_FILES_H
#define PL_TRAIN_FILES_H

#include "base/buf.h"
#include "store/file.h"

/* Appends the file to the buffer, whose maximum is the limit. The sentence names the file. */
enum pelago_status pl_files_read(struct pl_dir dir, const char *name, struct pl_buf *into,
                                 struct pl_error *err);
/* A new file, synced; its name is not. Removed again when it cannot be finished. */
enum pelago_status pl_files_write(struct pl_dir dir, const char *name, struct pl_bytes content,
                                  struct pl_error *err);
/* NOTFOUND, too, comes with a sentence. */
enum pelago_status pl_files_size(struct pl_dir dir, const char *name, uint64_t *bytes, struct pl_error *err);

/* "model.safetensors cannot be written: no space left" */
enum pelago_status pl_files_fail(struct pl_error *err, enum pelago_status status, const char *name,
                                 const char *verb);

#endif
