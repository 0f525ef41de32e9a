/* cmd/plan_args.h - the command line of `pelago plan`, and the file that says the same. */
#ifndef PL_CMD_PLAN_ARGS_H
#define PL_CMD_PLAN_ARGS_H

#include "cmd/options.h"
#include "model/config.h"
#include "plan/plan.h"

extern const char pl_plan_command[]; /* "plan" */

struct pl_plan_args {
    const char *config, *model, *wan, *syncer, *write, *seeds, *up, *down;
    const char *sites, *chips, *tflops, *link, *latency, *mtbi, *outages, *price, *egress; /* lists */
    uint64_t params, tokens, batch, memory, syncer_rate, deadline_ns, repair_ns, outage_ns;
    uint32_t slice, quorum, fragments, period;
    bool json, bandwidth, check;
    struct pl_conf conf;
    struct pl_model_config shape; /* of the model, given or derived from params */
};

/* False: *exit_code is to be returned, all has been said. Release conf in any case. */
bool pl_plan_args_parse(struct pl_plan_args *a, int argc, char **argv, int *exit_code);

/* What the arguments ask for, checked. INVALID with a sentence. */
enum pelago_status pl_plan_args_input(struct pl_plan_args *a, struct pl_plan_input *in, struct pl_error *err);

#endif
