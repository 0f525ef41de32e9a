/* data/input.h - the bytes of a file, one after the other: plain, packed by zstd (the name ends in .zst), or "-", which is
 * standard input. */
#ifndef PL_DATA_INPUT_H
#define PL_DATA_INPUT_H

#include "base/alloc.h"
#include "base/buf.h"
#include "base/status.h"

struct pl_input;

/* The path is borrowed while the input is open. Errors of all three name it. */
enum pelago_status pl_input_open(struct pl_input **out, const struct pl_alloc *alloc, const char *path,
                                 struct pl_error *err);
/* At most cap bytes, cap > 0; *len 0 at the end only. CORRUPT when the packed bytes are damaged or end too early. */
enum pelago_status pl_input_read(struct pl_input *in, void *into, size_t cap, size_t *len,
                                 struct pl_error *err);
void pl_input_close(struct pl_input *in); /* NULL is fine */

/* All of a file, appended; LIMIT when the buffer's maximum is less. */
enum pelago_status pl_input_read_all(const struct pl_alloc *alloc, const char *path, struct pl_buf *into,
                                     struct pl_error *err);

#endif
