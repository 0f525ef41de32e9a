/* host/data_choice.h - what a learner trains on: what it is told when it starts, else what its folder remembers, else the
 * run's own data. It does not read a byte of it.
 *
 * The folder's file `data` is one line, the option's name and where the data is: "data PATH" or "local-data PATH". An
 * option replaces it; nothing else does, so that who has once given private data never trains on other data by leaving an
 * option out. PATH does not depend on where a process is started; "builtin:..." stands for itself, "-" for a stream, of
 * which nothing is left.
 */
#ifndef PL_HOST_DATA_CHOICE_H
#define PL_HOST_DATA_CHOICE_H

#include "host/home.h"

enum { PL_DATA_CHOICE_LINE_MAX = 2 * PL_TEXT_MAX };

struct pl_data_choice {
    bool local;             /* private data: no work units, no text leaves */
    bool remembered;        /* the folder says so, nobody else did */
    char name[PL_PATH_MAX]; /* "": the run's own */
};

/* data, local_data: the options, at most one is not NULL; what they say is kept in the folder first. NOTFOUND or IO where the
 * data cannot be read, CORRUPT where the folder's file cannot be understood. */
enum pelago_status pl_data_choice_make(struct pl_data_choice *out, struct pl_posix_dir *dir,
                                       const struct pl_alloc *alloc, const char *data, const char *local_data,
                                       struct pl_error *err);
const char *pl_data_choice_name(const struct pl_data_choice *s, const struct pl_settings *settings);
/* "learner.data ...", for the log. */
void pl_data_choice_line(const struct pl_data_choice *s, const struct pl_settings *settings,
                         char out[static PL_DATA_CHOICE_LINE_MAX]);

#endif
