/* plan/plan_int.h - what the formulas, the simulation and the checks of a plan share. */
#ifndef PL_PLAN_PLAN_INT_H
#define PL_PLAN_PLAN_INT_H

#include "plan/plan.h"

#define PL_PLAN_FULL_BITS 32  /* of a parameter sent as it is */
#define PL_PLAN_MERGE_S 5e-10 /* of one value of one contribution: decode, merge, encode (docs/speed.md) */

/* Seconds of a step at a site: 6 operations a parameter and token. */
double pl_plan_step(const struct pl_plan_input *in, uint32_t site);

/* Bits of a parameter that go down to a learner so many versions behind: the differences, or the value where that is less. */
double pl_plan_down_bits(const struct pl_plan_choice *c, uint32_t versions);

#endif
