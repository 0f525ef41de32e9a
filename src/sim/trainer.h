/* sim/trainer.h - the toy model: tensors, fragments, manifest, and a quadratic with a known optimum.
 *
 *   f(x) = 1/2 sum h_i (x_i - best_i)^2,  h_i between 1/condition and 1
 *
 * Values stand in fragment order, so that a fragment is one range. An inner step is plain SGD with noise in the
 * gradient; its rate follows the run's token clock: constant, then down to nothing at the budget. So runs compare at
 * equal merged tokens: when a token was merged hardly matters, nor how well an offline learner guesses the clock.
 * Only + - * / on floats: every machine and compiler gets the same numbers.
 */
#ifndef PL_SIM_TRAINER_H
#define PL_SIM_TRAINER_H

#include "base/prng.h"
#include "core/plan.h"
#include "optim/outer.h"
#include "optim/rule.h"
#include "sim/world.h"

struct pl_toy_fragment {
    uint32_t first; /* value */
    uint32_t count; /* values */
    uint32_t slice_first, slice_count;
    uint32_t shard;
};

struct pl_toy {
    struct pl_msg_manifest manifest;
    uint64_t manifest_digest;
    uint32_t values, fragments;
    uint32_t largest; /* values of the largest fragment */
    struct pl_toy_fragment *fragment;
    struct pl_plan_tensor *tensors;
    struct pl_slice *slices;
    uint32_t tensor_count, slice_count;
    float *origin; /* version 0 */
    float *best;
    float *curve; /* h */
    float rate;   /* inner learning rate at its highest */
    float noise;
    struct pl_merge_rule merge;
    struct pl_outer_rule outer;
    double loss_floor; /* added to every loss, so that a ratio near the optimum means something */
};

struct pl_toy *pl_toy_new(struct pl_world *w);

/* Learning rate at this many tokens of the run. */
float pl_toy_rate(const struct pl_toy *t, uint64_t clock_tokens);

/* One inner step on all values; moved[fragment] -= the projection of what it did (sim/check.h, balance). */
void pl_toy_step(const struct pl_toy *t, float rate, struct pl_prng *noise, float *theta, double *worked);

/* f + loss_floor over one fragment (the floor in proportion to its size). */
double pl_toy_fragment_loss(const struct pl_toy *t, uint32_t fragment, const float *theta);

/* Projection of n values from `first` on onto a fixed vector of +1 and -1. */
double pl_toy_project(uint32_t first, const float *values, uint32_t n);

/* Loss against merged tokens, as one run saw it; for comparing at equal tokens. */
enum { PL_CURVE_POINTS_MAX = 2048 };
struct pl_curve {
    uint32_t count;
    uint32_t every; /* one of this many is kept */
    uint32_t skipped;
    struct {
        double tokens, loss;
    } point[PL_CURVE_POINTS_MAX];
};
void pl_curve_add(struct pl_curve *c, double tokens, double loss);
double pl_curve_at(const struct pl_curve *c, double tokens);

#endif
