/* cmd/unfinished.h - what a command has half written goes when a signal ends it.
 *
 * Between a begin and its end SIGINT, SIGTERM and SIGHUP remove the file or folder and leave with 128 + the signal's number;
 * one that was ignored (nohup) stays ignored. Files and folders that took their final names before are left alone. One at a
 * time; SIGKILL and a power cut still leave the unfinished one behind, under a name that says so.
 */
#ifndef PL_CMD_UNFINISHED_H
#define PL_CMD_UNFINISHED_H

#include "os/folder.h"

/* PATH.tmp, which data/outfile.h is about to write. */
void pl_unfinished_file(const char *path);
/* The folder, which has been begun; it is copied. */
void pl_unfinished_folder(const struct pl_folder *f);
/* It is finished, or was given up. */
void pl_unfinished_end(void);

#endif
