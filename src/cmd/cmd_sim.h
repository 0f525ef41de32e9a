/* cmd/cmd_sim.h - inside of `pelago sim`: cmd_sim.c reads the flags, the others do what they ask. */
#ifndef PL_CMD_CMD_SIM_H
#define PL_CMD_CMD_SIM_H

#include "sim/sim.h"

#include <stdio.h>

enum { PL_SIM_OVERRIDES_MAX = 32 };

/* The flags of one call. */
struct pl_sim_call {
    uint64_t first, last; /* seeds */
    bool trace, shrink, bench, scale, help;
    const char *script;
    uint32_t mutant, twice_percent, jobs;
    struct {
        uint32_t option; /* in cmd_sim.c's table */
        const char *value;
    } overrides[PL_SIM_OVERRIDES_MAX]; /* options given besides the seed, in order; checked */
    uint32_t override_count;
};

/* The seed's options with the overrides on top. */
void pl_sim_call_options(const struct pl_sim_call *call, uint64_t seed, struct pl_sim_options *o);

/* "reproduce: pelago sim --seed 42 --learners 3", with a new line. */
void pl_sim_print_reproduce(FILE *out, const struct pl_sim_call *call, uint64_t seed);

/* Every flag that makes o from its seed. */
void pl_sim_print_flags(FILE *out, const struct pl_sim_options *o);

/* Each returns the exit code. */
int pl_sim_one(const struct pl_sim_call *call);
int pl_sim_many(const struct pl_sim_call *call);
int pl_sim_smallest(const struct pl_sim_call *call);
int pl_sim_conversation(const struct pl_sim_call *call);
int pl_sim_bench(void);
int pl_sim_scale(void);

/* One seed, perhaps twice; prints nothing. */
int pl_sim_try(const struct pl_sim_call *call, const struct pl_sim_options *o, const struct pl_sim_plan *plan,
               struct pl_sim_result *result);

void pl_sim_print_line(void *user, uint64_t now_ns, const char *who, const char *text);

#endif
