/* train/trainer.h - model, optimizer and schedule in one step function.
 *
 * A step takes the next batch x accumulate sequences of a source, adds up their gradients and lets the optimizer move
 * the parameters. Everything a later step depends on is in the model, the optimizer and struct pl_progress; a
 * checkpoint holds all three, so a run that was interrupted goes on with the same bits, on any number of threads.
 *
 * It knows no files but through train/checkpoint.h, no clock and no printing: `pelago train` and a learner drive it.
 */
#ifndef PL_TRAIN_TRAINER_H
#define PL_TRAIN_TRAINER_H

#include "model/model.h"
#include "optim/inner.h"
#include "optim/schedule.h"
#include "train/checkpoint.h"
#include "train/stream.h"

struct pl_trainer_options {
    struct pl_model_config config;
    const char *backend; /* NULL: the best; borrowed */
    uint32_t threads;    /* 0: all processors */
    uint32_t batch, seq; /* sequences and tokens of one pass */
    uint32_t accumulate; /* passes of one step */
    bool recompute;
    enum pl_inner_kind matrices; /* the rest is always AdamW's */
    struct pl_inner_rule rule;
    struct pl_schedule schedule;
    float z_loss;  /* 0: none */
    uint64_t seed; /* of the first parameters and the order of the data */
};

/* OK, or INVALID with a sentence that names what is wrong. */
enum pelago_status pl_trainer_options_check(const struct pl_trainer_options *o, struct pl_error *err);
/* Tokens of one step. */
uint64_t pl_trainer_options_tokens(const struct pl_trainer_options *o);

struct pl_progress {
    uint64_t step;     /* steps done; may be set before the first, where weights had some already */
    uint64_t tokens;   /* seen in those done here */
    uint64_t clock;    /* the schedule's: tokens of the whole run, which may have more learners; may be set */
    uint64_t sequence; /* number of the next sequence of the source; may be set */
    double smooth;     /* running average of the loss; 0 before the first step */
};

/* For whoever shares parameters or gradients with the trainer; NULL members are not called.
 *
 * graded() comes on the way back of a step's last batch, as in struct pl_pass: a part of the gradients is final. reduce()
 * is called with all of them complete and may change them; false gives the step up, which then fails with STALE and has
 * changed nothing. moving() is called before the optimizer changes the parameters, standing() when they are done
 * changing. What moving() does to the parameters needs no pl_model_refresh: the optimizer packs every row after it.
 * Neither of the two is called for a step that fails before. */
struct pl_trainer_hooks {
    void (*graded)(void *user, uint64_t from);
    bool (*reduce)(void *user);
    void (*moving)(void *user);
    void (*standing)(void *user);
    void *user;
};

struct pl_trainer {
    struct pl_trainer_options options;
    struct pl_alloc alloc;
    struct pl_model *model;
    struct pl_inner inner;
    struct pl_progress progress;
    struct pl_trainer_hooks hooks; /* may be set */
    /* Private from here. */
    struct pl_param_group *groups; /* one a tensor */
    int32_t *tokens, *targets;     /* (batch, seq) */
    struct pl_named_span *spans;   /* of the optimizer, for checkpoints */
    char (*names)[PL_ST_NAME_MAX];
    uint32_t span_count;
    struct pl_engine products; /* Muon's, on the processor, where the model has a device */
    bool late;                 /* its rate still rises; pl_trainer_join */
};

enum { PL_LATE_STEPS = 20 };

/* Parameters as the seed has them, nothing done yet. */
enum pelago_status pl_trainer_new(struct pl_trainer **out, const struct pl_alloc *alloc,
                                  const struct pl_trainer_options *options, struct pl_error *err);
void pl_trainer_free(struct pl_trainer *t); /* NULL is fine */

/* Before the first step of a process that trains beside others, with the clock set. Moments of few steps say little of where
 * to go and nothing of how far: whoever has fewer than PL_LATE_STEPS when the schedule's own warm-up is over (a newcomer, or
 * one whose disk had none) begins with less of the rate, which is whole after that many. */
void pl_trainer_join(struct pl_trainer *t);

struct pl_step_report {
    uint64_t tokens; /* of this step */
    double loss;     /* mean, nats a token */
    double norm;     /* of the gradient, before clipping */
    float lr;
    bool clipped;
};

/* One step. On any failure parameters, moments and progress are as before: what the source says, NOMEM, IO for a device that
 * failed, STALE where reduce() gave it up, or INVALID for a token out of range, a loss or a gradient that is not a number. */
enum pelago_status pl_trainer_step(struct pl_trainer *t, const struct pl_sequences *source,
                                   struct pl_step_report *report, struct pl_error *err);

/* Words for the two choices: constant, cosine, wsd; adamw, muon. False: there is no such word. */
const char *pl_schedule_name(enum pl_schedule_kind kind);
bool pl_schedule_of_name(const char *name, enum pl_schedule_kind *kind);
const char *pl_optimizer_name(enum pl_inner_kind matrices);
bool pl_optimizer_of_name(const char *name, enum pl_inner_kind *matrices);

/* Bytes of model and optimizer. */
uint64_t pl_trainer_bytes(const struct pl_trainer *t);

/* ---- checkpoints ---- */

/* What the caller adds to the trainer's own. */
struct pl_trainer_extra {
    const struct pl_member *fields;
    uint32_t field_count;
    struct pl_bytes tokenizer; /* no bytes: none */
    uint32_t keep;             /* checkpoints, as for pl_checkpoint_save */
    bool rewinds;              /* as in struct pl_checkpoint */
    uint64_t rewinds_to;
};

enum pelago_status pl_trainer_save(struct pl_trainer *t, struct pl_dir dir,
                                   const struct pl_trainer_extra *extra, struct pl_error *err);
/* The options a run was saved with, checked; backend and threads are left as they are. */
enum pelago_status pl_trainer_read_options(struct pl_checkpoint_reader *r, struct pl_trainer_options *o,
                                           struct pl_error *err);
/* Tokens of the sequences the parameters were trained with, never more than the model's context; 0: the checkpoint does not
 * say, as weights that were imported do not. */
enum pelago_status pl_trainer_read_seq(struct pl_checkpoint_reader *r, uint32_t *seq, struct pl_error *err);
/* For who saves parameters without a trainer: the field that says so. seq is borrowed. */
struct pl_member pl_trainer_seq_field(uint64_t *seq);
/* Parameters, moments and progress into a trainer of such options. After a failure the trainer can only be freed. */
enum pelago_status pl_trainer_load(struct pl_trainer *t, struct pl_checkpoint_reader *r,
                                   struct pl_error *err);
/* Parameters alone: for a model that was imported, or to begin anew from a trained one. */
enum pelago_status pl_trainer_load_params(struct pl_trainer *t, struct pl_checkpoint_reader *r,
                                          struct pl_error *err);

#endif
