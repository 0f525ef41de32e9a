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

#include "core/plan.h"
#include "sim/objective.h"
#include "sim/world.h"

struct pl_toy {
    struct pl_objective o;
    struct pl_objective_fragment *fragment;
    struct pl_objective_slice *slices;
    struct pl_plan_tensor *tensors;
    uint32_t tensor_count, slice_count;
    float *origin; /* version 0 */
    float *best;
    float *curve;   /* h */
    float *scratch; /* [values] */
    float rate;     /* inner learning rate at its highest */
    float noise;
    double loss_floor; /* added to every loss, so that a ratio near the optimum means something */
};

struct pl_toy *pl_toy_new(struct pl_world *w);

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
