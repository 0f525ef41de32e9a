/* cmd/run_args.h - the command line of `pelago run`. */
#ifndef PL_CMD_RUN_ARGS_H
#define PL_CMD_RUN_ARGS_H

#include "cmd/cluster_args.h"

extern const char pl_run_command[]; /* "run" */

enum {
    PL_RUN_LEARNERS_MAX = 2048, /* processes on one machine */
    PL_RUN_ITEM_MAX = 32,       /* bytes of one value of a list, with the final zero */
};

struct pl_run_args {
    struct pl_cluster_args cluster;
    const char *out, *config, *pace, *speed, *max_up, *backend, *record, *listen;
    uint32_t threads, relaxed;
    uint64_t checkpoint_ns, stub_ns, time_ns;
    bool quiet, resume, stats, proxy;
    struct pl_conf conf;
};

/* False: *exit_code is to be returned, all has been said. Release conf in any case. */
bool pl_run_args_parse(struct pl_run_args *a, int argc, char **argv, int *exit_code);

/* One value, or one for each of so many learners, 0: not known yet. False as above. */
bool pl_run_args_check_lists(const struct pl_run_args *a, uint32_t learners, int *exit_code);

/* Value number `index` of a list of one or more: a single one is for everybody. False: there is no such value, or it is
 * too long. */
bool pl_list_item(const char *list, uint32_t index, char out[static PL_RUN_ITEM_MAX]);
uint32_t pl_list_count(const char *list);

#endif
