/* tales_rig.h - the tales open for all tests of a program, and a story as a string. */
#ifndef TALES_RIG_H
#define TALES_RIG_H

#include "data/tales.h"

/* For cmocka_run_group_tests. */
int tales_rig_open(void **state);
int tales_rig_close(void **state);

const struct pl_tales *tales_rig(void);
/* Story `index` of the training split, zero-terminated; for free(). */
char *tales_rig_text(uint64_t seed, uint64_t index);

#endif
