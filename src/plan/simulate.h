/* plan/simulate.h - a plan played through: failures by goodput/, exchanges over each link one by one.
 *
 * The exchange of every fragment is an event of its own: pulled one lead ahead, sent behind whatever the link still holds,
 * late or in time, answered; strides grow and shrink as in core/syncer_clock.c, rates vary, outages hold the link.
 * What comes out are the intervals and delays that loss is counted from, instead of formulas for them.
 */
#ifndef PL_PLAN_SIMULATE_H
#define PL_PLAN_SIMULATE_H

#include "base/alloc.h"
#include "plan/plan.h"

struct pl_plan_simulated {
    double goodput, efficiency, time_s;
    uint64_t exchanges, late;
};

/* planned: an outcome of pl_plan_evaluate for `in`. INVALID or NOMEM. */
enum pelago_status pl_plan_simulate(const struct pl_plan_input *in, const struct pl_plan_outcome *planned,
                                    uint64_t seed, const struct pl_alloc *alloc,
                                    struct pl_plan_simulated *out, struct pl_error *err);

/* A scenario drawn by seed: 2 to 8 sites of different size, speed, links and failures. */
void pl_plan_scenario(uint64_t seed, struct pl_plan_input *out);

/* The single changes of P, H or a codec that a plan must stand against: fills the i-th, false after the last. */
bool pl_plan_change(const struct pl_plan_choice *from, uint32_t i, struct pl_plan_choice *out);

#endif
