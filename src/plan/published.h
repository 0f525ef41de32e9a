/* plan/published.h - the published bandwidth figures, and what plan/bandwidth.h gives in their place.
 *
 * Two tables (PAPER 11.2 Table 4, PAPER 11.5 Table 6) are compared cell by cell on the grid on which they were published,
 * with one set of assumptions for all of them. Two headlines of the blog post (PAPER 10) have a setup of their own each.
 * docs/planner.md argues for every assumption.
 */
#ifndef PL_PLAN_PUBLISHED_H
#define PL_PLAN_PUBLISHED_H

#include "plan/bandwidth.h"

enum {
    PL_PUBLISHED_TARGETS = 5,
    PL_PUBLISHED_ROWS = 26, /* of both tables */
};

/* Utilisations that the tables ask for: 0.5 0.8 0.9 0.95 0.99. */
extern const double pl_published_targets[PL_PUBLISHED_TARGETS];

/* Bits on the link per parameter and reduce: bf16 gradients or parameters between two sites are 16, and four fifths of
 * that puts every cell within a step of the grid. The sources do not say what their simulator counts. */
#define PL_PUBLISHED_BITS 12.8

struct pl_published_row {
    const char *table, *model, *method;
    struct pl_bandwidth setup;           /* gbit is filled in by _setup */
    double billions;                     /* of parameters */
    double bits_share;                   /* of 16 bits; FP4 is a quarter */
    double gbit_s[PL_PUBLISHED_TARGETS]; /* as published; above 1000: "1000+" */
};
const struct pl_published_row *pl_published_row(uint32_t number);
struct pl_bandwidth pl_published_setup(const struct pl_published_row *row, double bits);

/* Points of the grid by which the model lies above the published cell. */
int pl_published_steps(const struct pl_published_row *row, uint32_t target, double bits);

/* The blog's two headlines. */
struct pl_headlines {
    double data_parallel_gbit_s; /* 8 sites; published: 198 */
    double decoupled_gbit_s;     /* 8 sites; published: 0.84 */
    double region_low_gbit_s;    /* 12B over 4 regions, one learner in a region; published: 2 */
    double region_high_gbit_s;   /* two learners in a region; published: 5 */
    double region_speedup;       /* over data-parallel on the published 5 Gbit/s; published: more than 20 */
};
void pl_published_headlines(struct pl_headlines *out);

/* Gbit/s each way that a decoupled learner of so many billions of parameters needs to keep its period: it never
 * waits, so nothing but the bytes of a cycle over the time of a cycle counts. */
double pl_bandwidth_decoupled(double billions, double bits, uint32_t period, double step_s);

#endif
