/* cmd/whole_file.h - a text file that a command writes, such as a table or a plot: it appears whole or not at all.
 *
 * The text is collected in memory and goes out when the file is closed, so that a command that is refused or stopped
 * halfway leaves what was there before. What is no plain file (a terminal, a pipe, /dev/full) is written in place.
 */
#ifndef PL_CMD_WHOLE_FILE_H
#define PL_CMD_WHOLE_FILE_H

#include "base/buf.h"

#include <stdbool.h>
#include <stdio.h>

struct pl_whole_file {
    FILE *f; /* to write to; NULL: not open */
    const char *path;
    struct pl_alloc alloc;
    struct pl_buf text;
};

/* path is borrowed; w does not move until it is closed. A path that can surely not be written is refused here, before any
 * work is done. IO or NOMEM, with a sentence. */
enum pelago_status pl_whole_open(struct pl_whole_file *w, const char *path, struct pl_error *err);
/* Puts the text in place. Not open: OK. */
enum pelago_status pl_whole_close(struct pl_whole_file *w, struct pl_error *err);
void pl_whole_abandon(struct pl_whole_file *w);

/* Both names lead to one file. */
bool pl_whole_same(const char *a, const char *b);

#endif
