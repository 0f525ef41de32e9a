/* goodput/seeds.h - the same setting with several seeds: means and 95% confidence intervals. */
#ifndef PL_GOODPUT_SEEDS_H
#define PL_GOODPUT_SEEDS_H

#include "goodput/goodput.h"

enum { PL_GOODPUT_SEEDS_MAX = 1000 };

struct pl_goodput_seeds {
    uint32_t count;
    struct pl_goodput_result mean; /* of every share; counts and bytes are those of the last seed */
    double goodput_ci, uptime_ci;  /* half widths by Student's t; 0 for one seed */
};

/* Called after each seed; may be NULL. */
typedef void pl_goodput_each(void *user, uint64_t seed, const struct pl_goodput_result *r);

/* o->seed is not used. INVALID also for no seed or more than PL_GOODPUT_SEEDS_MAX. */
enum pelago_status pl_goodput_over_seeds(const struct pl_goodput_options *o, uint64_t first, uint64_t last,
                                         const struct pl_alloc *alloc, pl_goodput_each *each, void *user,
                                         struct pl_goodput_seeds *out, struct pl_error *err);

/* Half width of the 95% interval of the mean of count values, from their sum and sum of squares; 0 below two. */
double pl_goodput_interval(uint32_t count, double sum, double squares);

#endif
