/* cmd/cmd_sim.h - inside of `pelago sim`: cmd_sim.c reads the flags, cmd_sim_options.c those that change what a seed
 * draws, the others do what they ask. */
#ifndef PL_CMD_CMD_SIM_H
#define PL_CMD_CMD_SIM_H

#include "sim/sim.h"

#include <stdio.h>

enum { PL_SIM_OVERRIDES_MAX = 32, PL_SIM_JOBS_MAX = 256, PL_SIM_TWICE_PERCENT = 5 };

/* The flags of one call. */
struct pl_sim_call {
    uint64_t first, last; /* seeds */
    bool seed, seeds;     /* which of the two was given */
    bool trace, shrink, bench, scale, marks, help, shorter, list;
    const char *script, *plan, *experiment, *row, *results, *folder, *backend;
    uint32_t mutant, twice_percent, jobs, threads;
    struct {
        uint32_t option; /* in cmd_sim_options.c's table */
        uint64_t value;
    } overrides[PL_SIM_OVERRIDES_MAX]; /* options given besides the seed, each once */
    uint32_t override_count;
};

/* One sentence on stderr, "pelago sim: " before and "." after it; returns PL_EXIT_USAGE. */
int pl_sim_usage_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The same of a file and why it cannot be read, an errno; returns PL_EXIT_FAILED. */
int pl_sim_cannot_read(const char *path, int error);

/* Is there such a flag in the table of options? */
bool pl_sim_is_option(const char *flag);
/* Notes the value of one; 0, or the exit code after saying what is wrong. */
int pl_sim_override(struct pl_sim_call *call, const char *flag, const char *value);
const char *pl_sim_override_name(const struct pl_sim_call *call, uint32_t i);
void pl_sim_print_options(FILE *out); /* the table, for --help */

/* The seed's options with the overrides on top. What was drawn is made to fit what was given: no quorum above the
 * learners asked for. 0, or the exit code after saying which override is out of its range. */
int pl_sim_call_options(const struct pl_sim_call *call, uint64_t seed, struct pl_sim_options *o);

/* "reproduce: pelago sim --seed 42 --learners 3", with a new line. */
void pl_sim_print_reproduce(FILE *out, const struct pl_sim_call *call, uint64_t first, uint64_t last);

/* The same for options that shrinking found: every flag that makes o from its seed. */
void pl_sim_print_flags(FILE *out, const struct pl_sim_options *o);
void pl_sim_print_common(FILE *out,
                         const struct pl_sim_call *call); /* flags that are no option, and the new line */

/* Each returns the exit code. */
int pl_sim_one(const struct pl_sim_call *call);
int pl_sim_many(const struct pl_sim_call *call);
int pl_sim_smallest(const struct pl_sim_call *call);
int pl_sim_conversation(const struct pl_sim_call *call);
int pl_sim_rehearsal(const struct pl_sim_call *call);  /* of a plan of `pelago chaos` */
int pl_sim_experiment(const struct pl_sim_call *call); /* of experiments/: real training in virtual time */
int pl_sim_bench(void);
int pl_sim_scale(void);
int pl_sim_goodput(int argc, char **argv); /* reads its own flags */

int pl_sim_out_of_memory(void);
void pl_sim_print_line(void *user, uint64_t now_ns, const char *who, const char *text);
void pl_sim_print_marks(const struct pl_sim_call *call); /* nothing unless asked for */

#endif
