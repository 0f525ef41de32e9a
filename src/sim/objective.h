/* sim/objective.h - what a simulated cluster trains, as a table: shape of the run, codecs, inner steps.
 *
 * The simulated nodes know fragments of so many values, and ask the table for everything that depends on what the
 * values are: the toy quadratic of sim/trainer.h, or whatever a caller hands in through struct pl_sim_plan (lab/ hands
 * in the real trainer). Merge, outer step, apply, frames, journal and both cores are the same for all.
 *
 * Values stand in fragment order, slice behind slice, so that a fragment is one range. Everything here is borrowed
 * for the run; no function is called by two threads at once, and each must give the same result for the same calls.
 */
#ifndef PL_SIM_OBJECTIVE_H
#define PL_SIM_OBJECTIVE_H

#include "base/merge_mode.h"
#include "base/pool.h"
#include "base/prng.h"
#include "optim/outer.h"
#include "optim/rule.h"
#include "wire/msg.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum pl_way { PL_WAY_UP, PL_WAY_DOWN }; /* a contribution, an update */

struct pl_objective_fragment {
    uint32_t first; /* value */
    uint32_t count; /* values */
    uint32_t slice_first, slice_count;
    uint32_t shard;
    uint32_t push_bytes_max, update_bytes_max; /* as in the manifest */
};

struct pl_objective_slice {
    uint32_t count; /* values */
    enum pl_merge_mode merge;
};

/* A sequence that no work unit holds: the learner's own, in this order from 0 on. */
#define PL_SEQUENCE_OWN (UINT64_C(1) << 63)

/* One inner step of a learner's process. */
struct pl_objective_step {
    uint32_t process; /* its place: below two for each learner */
    uint32_t host;    /* the learner, from 0 on */
    uint64_t clock_tokens;
    const uint64_t *sequences; /* what it learns from; none where the objective has no sequences */
    uint32_t sequence_count;
    float *theta;  /* [values] in and out */
    bool *touched; /* [fragments] changed since this process's last step, by others; the step clears them */
    struct pl_prng *noise; /* of this process */
    double *worked;        /* [fragments] toy: minus the projection of what the step did is added */
};

/* What a merge brought. */
struct pl_objective_news {
    uint64_t now_ns;
    uint32_t fragment, contributors;
    uint64_t merged_tokens;    /* of the run so far: over all values, a fragment's tokens count by its size */
    const float *const *theta; /* [fragments] the syncers' values now */
};

struct pl_objective_ops {
    /* Writes at most push_bytes_max or update_bytes_max and returns how many; values keep what was lost. 0: a value cannot
     * be encoded. */
    size_t (*encode)(void *self, enum pl_way way, uint32_t fragment, float *values, uint8_t *out);
    /* A contribution from a peer; false: it is none. */
    bool (*decode)(void *self, uint32_t fragment, const uint8_t *bytes, size_t len, float *out);
    /* Bytes of the first update of a chain; 0: there is none. */
    size_t (*update_bytes)(void *self, uint32_t fragment, const uint8_t *bytes, size_t len);
    /* Adds exactly one update; false: it is none. */
    bool (*add_update)(void *self, uint32_t fragment, const uint8_t *bytes, size_t len, float *values);
    /* Returns the step's loss; not finite ends the run. */
    double (*step)(void *self, const struct pl_objective_step *step);
    double (*loss)(void *self, const float *const *theta); /* [fragments] of the syncers' values at the end */
    /* What follows may be NULL. A process begins with nothing but its parameters; its inner state is written to its
     * machine's checkpoint, and read from it. */
    void (*begin)(void *self, uint32_t process, uint32_t host);
    void (*save)(void *self, uint32_t process, uint32_t host);
    void (*load)(void *self, uint32_t process, uint32_t host);
    void (*published)(void *self, const struct pl_objective_news *news);
};

struct pl_objective {
    const struct pl_objective_ops *ops;
    void *self;
    struct pl_msg_manifest manifest;
    uint64_t manifest_digest;
    uint32_t values, fragments;
    uint32_t largest;          /* values of the largest fragment */
    uint32_t update_bytes_max; /* of all fragments */
    const struct pl_objective_fragment *fragment;
    const struct pl_objective_slice *slices;
    const float *origin;  /* version 0 */
    float feedback_decay; /* of what encodings lost on the way up (codec/feedback.h) */
    float feedback_local; /* what of it stays in a learner's own values */
    struct pl_merge_rule merge;
    struct pl_outer_rule outer;
    struct pl_pool *pool; /* for merges; may be NULL */
    /* Data. seq 0: steps have pl_sim_options.step_tokens, a tenth more or less, and no sequences. */
    uint32_t seq;                   /* tokens of a sequence; a work unit holds whole ones */
    const uint32_t *step_sequences; /* [learners] of one step */
    bool local_data;                /* every learner has sequences of its own and takes no units */
};

#endif
