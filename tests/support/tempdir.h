/* tests/support/tempdir.h - a folder of a test's own, and what is in it. */
#ifndef PL_TESTS_TEMPDIR_H
#define PL_TESTS_TEMPDIR_H

#include <stddef.h>

struct tempdir {
    char path[256];
};

void tempdir_init(struct tempdir *t);
void tempdir_release(struct tempdir *t); /* with everything inside */

/* PATH/name; the text lives until the eighth next call. */
const char *tempdir_path(const struct tempdir *t, const char *name);
void tempdir_put(const struct tempdir *t, const char *name, const void *bytes, size_t len);
/* Files and folders directly inside. */
unsigned tempdir_count(const struct tempdir *t);

#endif
