/* cmd/train_args.h - what a person asked of `pelago train`, and what a run is made of once defaults and, where it is
 * resumed, its checkpoint have filled in the rest. */
#ifndef PL_CMD_TRAIN_ARGS_H
#define PL_CMD_TRAIN_ARGS_H

#include "cmd/options.h"
#include "os/dir_posix.h"
#include "train/trainer.h"

extern const char pl_train_command[]; /* "train" */

/* A distance between two saves or evaluations, or a warm-up: "500" steps, or tokens where it has a k, M or G. */
struct pl_span {
    bool given, is_tokens;
    uint64_t count;
};

/* As on the command line; 0, NULL and NaN are not given. */
struct pl_train_args {
    const char *model;
    struct pl_model_config dims;
    bool untied;
    const char *data, *valid, *tokenizer, *backend, *out, *log, *schedule, *optimizer;
    const char *warmup_text, *save_text, *eval_text;
    struct pl_span warmup, save_every, eval_every;
    uint64_t tokens, steps, eval_tokens, seed;
    uint64_t step; /* of the checkpoint to resume; PL_NONE64: the newest */
    uint32_t batch, seq, accumulate, threads, keep;
    uint32_t
        sharers; /* learners that train one model together: the batch of each follows from their number */
    double lr, min_lr, lr_floor, decay, weight_decay, beta1, beta2, clip, z_loss;
    bool recompute, quiet, resume;
};

/* Nothing given. */
void pl_train_args_init(struct pl_train_args *a);
/* The options that say what is trained and how; `run` and `syncer` have them, too. They return how many there are. */
enum { PL_TRAIN_OPTIONS_MAX = 36 };
uint32_t pl_train_options(struct pl_train_args *a, struct pl_option out[static PL_TRAIN_OPTIONS_MAX]);
/* After parsing: words, ranges and spans. False: *exit_code is to be returned, all has been said. */
bool pl_train_args_check(struct pl_train_args *a, const char *command, int *exit_code);

/* False: *exit_code is to be returned, all has been said. */
bool pl_train_args_parse(struct pl_train_args *a, int argc, char **argv, int *exit_code);

/* The data could not be opened because --vocab has no room for the tokenizer that was to be made of it. */
bool pl_train_args_vocab_is_small(const struct pl_train_args *a, enum pelago_status opened);

/* The rest of a run's settings, besides the trainer's own. */
struct pl_train_plan {
    struct pl_trainer_options trainer;
    char model[32];          /* the preset's name, or "custom" */
    char data[PL_PATH_MAX];  /* a full path, or builtin:tales */
    char valid[PL_PATH_MAX]; /* "": held out */
    uint64_t eval_tokens;
    uint64_t total_tokens; /* where it ends: a whole number of steps */
    double seconds;        /* spent so far, for the person */
    struct pl_span save_every, eval_every;
    bool data_changed;  /* by a resume: it is read from its start */
    bool vocab_follows; /* the model takes the tokenizer's vocabulary */
    bool seq_kept; /* weights alone were resumed: the sequences are as long as those they were trained with */
};

/* The fields a checkpoint keeps of the plan. */
enum { PL_TRAIN_PLAN_FIELDS = 6 };
uint32_t pl_train_plan_fields(struct pl_train_plan *p, struct pl_member fields[static PL_TRAIN_PLAN_FIELDS]);

/* The peak rate of a learner that shares its model with others, or of so many trainers that step as one. */
float pl_train_plan_learner_rate(const struct pl_trainer_options *o, uint32_t trainers);

/* A new run. The vocabulary may still be 0 (vocab_follows). */
enum pelago_status pl_train_plan_new(struct pl_train_plan *p, const struct pl_train_args *a,
                                     struct pl_error *err);
/* A saved one, with what the person wants otherwise. *fresh: the checkpoint holds weights alone, as an import leaves them,
 * and everything else is as for a new run. */
enum pelago_status pl_train_plan_resume(struct pl_train_plan *p, const struct pl_train_args *a,
                                        struct pl_checkpoint_reader *r, bool *fresh, struct pl_error *err);
/* When the data is known: the vocabulary, and whether all fits together. */
enum pelago_status pl_train_plan_settle(struct pl_train_plan *p, uint32_t data_vocab, struct pl_error *err);

/* Steps between two events; 0: never. */
uint64_t pl_span_steps(const struct pl_span *span, uint64_t step_tokens);

#endif
