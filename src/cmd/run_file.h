/* cmd/run_file.h - what OUT/run.json of a `pelago run` knows beside its syncer's status: learners, their names, and --time. */
#ifndef PL_CMD_RUN_FILE_H
#define PL_CMD_RUN_FILE_H

#include "base/buf.h"

/* Adds it to the status of the home shard in this folder: `time_left_s`, `expected`, and `name` to learners (docs/status.md). The
 * text stays as it is where there is no run.json of the same run beside the folder. */
void pl_run_file_complete(const char *home, struct pl_buf *status);

/* The syncer of that folder does not answer, as err says: where a `pelago run` started it, the sentence then says how the run
 * goes on. */
void pl_run_file_advise(const char *home, struct pl_error *err);

#endif
