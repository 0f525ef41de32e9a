/* host/reduce_join.h - what a learner of a synchronous run needs before it can train: a folder, an identity, the run's
 * settings and tokenizer, data, a trainer. Blocking, with patience for a syncer that is about to start. */
#ifndef PL_HOST_REDUCE_JOIN_H
#define PL_HOST_REDUCE_JOIN_H

#include "host/home.h"
#include "host/learner_host.h"
#include "host/reduce_plan.h"
#include "host/data_choice.h"
#include "train/batches.h"
#include "train/dataset.h"

struct pl_reduce_kit {
    struct pl_alloc alloc;
    struct pl_posix_dir *dir;
    struct pl_credentials own;
    char address[PL_ADDRESS_MAX]; /* of the syncer */
    struct pl_settings settings;
    uint64_t settings_digest;
    struct pl_data_choice choice; /* what it trains on */
    struct pl_buf tokenizer;      /* no bytes: none */
    struct pl_reduce_plan plan;
    struct pl_dataset *data;
    struct pl_batches batches;
    bool has_batches;
    struct pl_trainer *trainer;
};

/* On failure the kit can only be released. */
enum pelago_status pl_reduce_join(struct pl_reduce_kit *k, const struct pl_learner_host_options *o,
                                  struct pl_error *err);
void pl_reduce_kit_release(struct pl_reduce_kit *k);

/* The checkpoint of the trainer as it stands, with tokenizer and what `pelago eval` and `sample` want to know; momentum:
 * of the outer optimizer, NULL for none. Older ones are removed. */
enum pelago_status pl_reduce_save(struct pl_reduce_kit *k, uint64_t round, const float *momentum,
                                  struct pl_error *err);
/* The newest checkpoint into trainer and momentum. NOTFOUND: there is none; *round is its round. */
enum pelago_status pl_reduce_load(struct pl_reduce_kit *k, float *momentum, uint64_t *round,
                                  struct pl_error *err);

#endif
