/* cmd/cmd_sim_plan.h - a plan of `pelago chaos` as a script of the simulator (sim/script.h). */
#ifndef PL_CMD_CMD_SIM_PLAN_H
#define PL_CMD_CMD_SIM_PLAN_H

#include "base/buf.h"
#include "chaos/plan.h"

/* Appends the script. text is what the plan was read from. INVALID: a line that the simulator cannot do, named. */
enum pelago_status pl_sim_plan_script(const struct pl_chaos_plan *plan, const char *text,
                                      const struct pl_alloc *alloc, struct pl_buf *script,
                                      struct pl_error *err);

#endif
