/* lab/world.h - the real objective of a simulated run: one real trainer a learner, behind the table of sim/objective.h.
 *
 * The simulated nodes hold values in fragment order, a trainer holds its model's block; before a step the fragments that
 * were changed from outside are written into the block, after it all are read back. Moments, schedule and data are the
 * trainer's own. Fragments, encodings and their envelopes are those of host/: what travels in the simulated world has the
 * bytes that would travel in a real one.
 */
#ifndef PL_LAB_WORLD_H
#define PL_LAB_WORLD_H

#include "codec/pack.h"
#include "host/layout.h"
#include "lab/data.h"
#include "sim/objective.h"

/* What a learner's checkpoint keeps beside the parameters. */
struct pl_lab_saved {
    float *moments; /* [2 * floats of the model] */
    uint64_t inner_step;
    struct pl_progress progress;
};

struct pl_lab_learner {
    struct pl_lab_world *world;
    uint32_t number;            /* from 0 on */
    struct pl_trainer *trainer; /* NULL: it has not been started */
    struct pl_lab_saved saved;
    const uint64_t *sequences; /* of the step at hand */
    uint32_t taken;
    bool begun; /* this life has made a step */
};

struct pl_lab_world {
    const struct pl_lab *lab;
    const struct pl_lab_row *row;
    struct pl_settings settings; /* the row's, with this run's seed */
    struct pl_lab_text text;
    struct pl_layout layout;
    struct pl_manifest manifest;
    struct pl_objective objective;
    struct pl_objective_fragment *fragments;
    struct pl_objective_slice *slices;
    uint32_t learner_count;
    struct pl_lab_learner *learners;
    struct pl_model *judge; /* evaluates; its threads merge, too */
    struct pl_packer *packer;
    float *origin;
    uint8_t *raw; /* one fragment, encoded */
    size_t raw_bytes;
    uint64_t next_eval;
    struct pl_lab_result *result;
    struct pl_error failure; /* the first one inside the run */
};

enum pelago_status pl_lab_world_init(struct pl_lab_world *w, const struct pl_lab *lab,
                                     const struct pl_lab_row *row, uint64_t seed,
                                     struct pl_lab_result *result, struct pl_error *err);
void pl_lab_world_release(struct pl_lab_world *w); /* also after a failure */

/* The loss of a model's block of parameters on the text to be judged by; not a number after a failure. */
double pl_lab_judge(struct pl_lab_world *w, const float *block);

/* A trainer for so many sequences a step. */
enum pelago_status pl_lab_trainer(const struct pl_lab_world *w, uint32_t batch, struct pl_trainer **out,
                                  struct pl_error *err);

/* How the run goes on without a syncer: one trainer at the global batch (lab/alone.c). */
enum pelago_status pl_lab_alone(struct pl_lab_world *w, struct pl_error *err);

/* lab/faults.c: kills and returns, appended to actions by time: by the row's log of failures; of anybody, at random
 * intervals of the row's means, until the virtual time `until_ns`, stops among them. */
enum pelago_status pl_lab_log(const struct pl_lab_row *row, const struct pl_alloc *alloc,
                              struct pl_action *actions, uint32_t max, uint32_t *count, struct pl_error *err);
enum pelago_status pl_lab_rates(const struct pl_lab_row *row, uint64_t seed, uint64_t until_ns,
                                const struct pl_alloc *alloc, struct pl_action *actions, uint32_t max,
                                uint32_t *count, struct pl_error *err);

#endif
