/* cmd/chaos_file.h - a plan or a trace from a file. */
#ifndef PL_CMD_CHAOS_FILE_H
#define PL_CMD_CHAOS_FILE_H

#include "base/buf.h"

/* Appends the whole file. NOTFOUND, IO, or LIMIT where it is longer than the buffer may be. */
enum pelago_status pl_chaos_read_file(const char *path, struct pl_buf *out, struct pl_error *err);

#endif
