/* tests/support/lab_rig.h - a small experiment in a folder of its own: a text a tiny model can learn, and rows of it. */
#ifndef PL_TESTS_LAB_RIG_H
#define PL_TESTS_LAB_RIG_H

#include "lab/experiment.h"
#include "tempdir.h"

struct lab_rig {
    struct tempdir dir;
    struct pl_lab lab;
    struct pl_lab_experiment experiment;
    char error[256];
};

/* The texts `one` and `two` of so many tokens, and nothing read yet. */
void lab_rig_init(struct lab_rig *r);
void lab_rig_release(struct lab_rig *r);

/* Reads an experiment: what all tests have in common (a model of some thousand parameters, few tokens), then these lines.
 * False: r->error says why. */
bool lab_rig_read(struct lab_rig *r, const char *lines);

/* A row of it; false: r->error says why. */
bool lab_rig_row(struct lab_rig *r, const char *name, struct pl_lab_row *row);

/* Runs it; anything but success fails the test. */
void lab_rig_run(struct lab_rig *r, const char *name, uint64_t seed, struct pl_lab_result *result);

#endif
