/* cmd/cluster_args.h - what makes a run of several learners: the options of `pelago train` and those of the protocol, and
 * from them the run's settings. `pelago syncer` and `pelago run` share it. */
#ifndef PL_CMD_CLUSTER_ARGS_H
#define PL_CMD_CLUSTER_ARGS_H

#include "cmd/options.h"
#include "cmd/train_args.h"
#include "host/settings.h"

/* As on the command line; 0, NULL and NaN are not given. */
struct pl_cluster_args {
    struct pl_train_args train;
    const char *algorithm, *up, *down, *apply, *merge, *outer, *guard;
    uint32_t learners, shards, fragments, period, overlap, quorum, staleness;
    uint32_t outer_delay, outer_warmup;
    double outer_lr, outer_momentum, outer_decay, outer_floor, outer_first, merge_trim, merge_stale;
    double feedback_decay, feedback_local, selective;
    bool codec_lr;
};

enum { PL_CLUSTER_OPTIONS_MAX = PL_TRAIN_OPTIONS_MAX + 32 };

void pl_cluster_args_init(struct pl_cluster_args *a);
/* How many there are. */
uint32_t pl_cluster_options(struct pl_cluster_args *a, struct pl_option out[static PL_CLUSTER_OPTIONS_MAX]);
/* False: *exit_code is to be returned, all has been said. */
bool pl_cluster_args_check(struct pl_cluster_args *a, const char *command, int *exit_code);

/* The settings of a new run. What was asked wrongly is INVALID, and nothing has been read then. The vocabulary may still
 * be open: pl_cluster_open_data settles it. */
enum pelago_status pl_cluster_settings(const struct pl_cluster_args *a, struct pl_train_plan *plan,
                                       struct pl_settings *s, struct pl_error *err);
/* Opens the data as it will be trained on, trains or loads the tokenizer, and fills in what depends on it: vocabulary,
 * digest. The text of tokenizer.json is appended to tokenizer; none: there is no tokenizer. */
enum pelago_status pl_cluster_open_data(const struct pl_cluster_args *a, struct pl_train_plan *plan,
                                        struct pl_settings *s, struct pl_buf *tokenizer,
                                        struct pl_error *err);

/* Both of the above, and the folder of the home shard with all that belongs into it. */
enum pelago_status pl_cluster_create(const struct pl_cluster_args *a, const char *folder,
                                     struct pl_settings *s, struct pl_error *err);

/* A run that exists goes on as it began: INVALID with a sentence that names the first option given that says
 * otherwise. folder is the home shard's, or a further shard's. */
enum pelago_status pl_cluster_refuse_changes(const struct pl_cluster_args *a, const char *folder,
                                             const struct pl_settings *s, struct pl_error *err);
/* The same for --tokenizer: digest is that of the settings; a failure is of reading what the option names. */
enum pelago_status pl_cluster_tokenizer_differs(const char *name, const char *folder, uint64_t digest,
                                                bool *differs, struct pl_error *err);

#endif
