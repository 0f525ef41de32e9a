/* host/reduce_join.c - see reduce_join.h. */
#include "host/reduce_join.h"

#include "base/check.h"
#include "base/fmt.h"
#include "base/hash.h"
#include "host/join.h"
#include "os/clock.h"

#include <string.h>

#define TRY_NS (10 * PL_SEC) /* of one attempt */
enum { RENEW_BELOW_S = 12 * 3600 };

/* A certificate that ends soon is renewed while it can be; a run shorter than a certificate's life needs no more. */
static void renew(struct pl_reduce_kit *k)
{
    struct pl_credentials own = k->own;
    struct pl_error err;
    if (pl_pki_seconds_left(&own) >= RENEW_BELOW_S ||
        pl_door_renew(&k->alloc, k->address, TRY_NS, &own, &err) != PELAGO_OK)
        return; /* where it has ended already, the syncer says so in better words */
    k->own = own;
    (void)pl_home_save_credentials(k->dir, "credentials", &own, &err);
}

static enum pelago_status join(struct pl_reduce_kit *k, const struct pl_learner_host_options *o,
                               struct pl_error *err)
{
    struct pl_join j = {.alloc = &k->alloc,
                        .dir = k->dir,
                        .folder = o->folder,
                        .token = o->token,
                        .data = o->data,
                        .local_data = o->local_data,
                        .role = PL_ROLE_LEARNER,
                        .log = o->log,
                        .user = o->user};
    enum pelago_status st = pl_join(&j, err);
    if (st == PELAGO_OK)
        st = pl_join_tokenizer(&j, &k->tokenizer, err);
    k->own = j.own;
    k->settings = j.settings;
    k->settings_digest = j.settings_digest;
    k->choice = j.choice;
    memcpy(k->address, j.home, sizeof k->address);
    memset(&j.own, 0, sizeof j.own);
    return st;
}

/* ---- data and trainer ---- */

static enum pelago_status open_data(struct pl_reduce_kit *k, const struct pl_learner_host_options *o,
                                    struct pl_error *err)
{
    const struct pl_settings *s = &k->settings;
    const char *data = pl_data_choice_name(&k->choice, s);
    char line[PL_DATA_CHOICE_LINE_MAX];
    /* What the run keeps back for validation is kept back here too, unless it has a file of its own for that. */
    struct pl_dataset_options d = {.data = data,
                                   .valid = s->valid[0] != '\0' ? data : NULL,
                                   .json = {k->tokenizer.data, k->tokenizer.len},
                                   .vocab = s->trainer.config.vocab,
                                   .valid_tokens = s->eval_tokens,
                                   .seed = s->trainer.seed,
                                   .threads = o->threads};
    pl_data_choice_line(&k->choice, s, line);
    if (o->log != NULL)
        o->log(o->user, line);
    PL_TRY(pl_dataset_open(&k->data, &k->alloc, &d, err));
    if (k->data->vocab > s->trainer.config.vocab)
        return pl_fail(
            err, PELAGO_INVALID,
            "the tokens of %s go up to %u, the run's vocabulary has %u: it was made with another tokenizer",
            data, k->data->vocab, s->trainer.config.vocab);
    PL_TRY(pl_batches_init(&k->batches, &k->alloc, &k->data->train, s->trainer.seq, s->trainer.seed, err));
    k->has_batches = true;
    return PELAGO_OK;
}

enum pelago_status pl_reduce_join(struct pl_reduce_kit *k, const struct pl_learner_host_options *o,
                                  struct pl_error *err)
{
    *k = (struct pl_reduce_kit){.alloc = *o->alloc};
    pl_buf_init(&k->tokenizer, &k->alloc, PL_TOKENIZER_BYTES_MAX);
    PL_TRY(pl_posix_dir_open(&k->dir, &k->alloc, o->folder, PL_POSIX_DIR_CREATE, err));
    PL_TRY(pl_posix_dir_lock(k->dir, o->folder, "--dir", err));
    PL_TRY(join(k, o, err));
    renew(k);
    PL_TRY(pl_reduce_plan_init(&k->plan, &k->alloc, &k->settings, err));
    PL_TRY(open_data(k, o, err));
    struct pl_trainer_options options = k->settings.trainer;
    options.backend = o->backend;
    options.threads = o->threads;
    return pl_trainer_new(&k->trainer, &k->alloc, &options, err);
}

void pl_reduce_kit_release(struct pl_reduce_kit *k)
{
    pl_trainer_free(k->trainer);
    if (k->has_batches)
        pl_batches_release(&k->batches);
    pl_dataset_close(k->data);
    pl_buf_release(&k->tokenizer);
    pl_posix_dir_close(k->dir);
    memset(&k->own, 0, sizeof k->own);
}

/* ---- checkpoints ---- */

static const char outer_name[] = "outer_momentum";

/* u64 step, u64 XXH3-64 of what follows, the floats. */
enum { OUTER_HEAD = 16 };

static enum pelago_status save_outer(struct pl_reduce_kit *k, uint64_t step, const float *momentum,
                                     struct pl_error *err)
{
    size_t body = k->plan.floats * sizeof(float), bytes = OUTER_HEAD + body;
    uint8_t *all = pl_alloc_zero(&k->alloc, 1, bytes);
    if (all == NULL)
        return pl_fail(err, PELAGO_NOMEM, "there is no memory to save the outer momentum");
    bool finite = pl_codec_encode(PL_CODEC_FP32, momentum, k->plan.floats, all + OUTER_HEAD);
    pl_put_le(all, step, 8);
    pl_put_le(all + 8, pl_hash64(all + OUTER_HEAD, body, 0), 8);
    enum pelago_status st = finite
                                ? pl_home_write(k->dir, outer_name, (struct pl_bytes){all, bytes}, false, err)
                                : pl_fail(err, PELAGO_INVALID, "the outer momentum is not finite");
    pl_alloc_free(&k->alloc, all, bytes);
    return st;
}

/* Without the right one the momentum begins at zero again, which costs a little progress and nothing else. */
static void load_outer(struct pl_reduce_kit *k, uint64_t step, float *momentum)
{
    size_t body = k->plan.floats * sizeof(float);
    struct pl_buf bytes;
    pl_buf_init(&bytes, &k->alloc, OUTER_HEAD + body);
    if (pl_home_read(k->dir, outer_name, &bytes, NULL) == PELAGO_OK && bytes.len == OUTER_HEAD + body &&
        pl_get_le(bytes.data, 8) == step &&
        pl_get_le(bytes.data + 8, 8) == pl_hash64(bytes.data + OUTER_HEAD, body, 0) &&
        pl_codec_check(PL_CODEC_FP32, bytes.data + OUTER_HEAD, k->plan.floats))
        pl_codec_decode(PL_CODEC_FP32, bytes.data + OUTER_HEAD, k->plan.floats, momentum);
    pl_buf_release(&bytes);
}

enum pelago_status pl_reduce_save(struct pl_reduce_kit *k, uint64_t round, const float *momentum,
                                  struct pl_error *err)
{
    struct pl_settings *s = &k->settings;
    double seconds = 0;
    const struct pl_member fields[] = {
        {"run.model", PL_MEMBER_TEXT, s->model, sizeof s->model, false},
        {"run.data", PL_MEMBER_TEXT, s->data, sizeof s->data, false},
        {"run.valid", PL_MEMBER_TEXT, s->valid, sizeof s->valid, false},
        {"run.eval_tokens", PL_MEMBER_COUNT, &s->eval_tokens, 0, false},
        {"run.total_tokens", PL_MEMBER_COUNT, &s->total_tokens, 0, false},
        {"run.seconds", PL_MEMBER_REAL, &seconds, 0, false},
    };
    /* The run may have gone back to an older state than that of a checkpoint of ours. */
    struct pl_trainer_extra extra = {.fields = fields,
                                     .field_count = sizeof fields / sizeof fields[0],
                                     .tokenizer = {k->tokenizer.data, k->tokenizer.len},
                                     .keep = PL_CHECKPOINTS_KEPT,
                                     .rewinds = true,
                                     .rewinds_to = pl_reduce_steps(&k->plan, round)};
    struct pl_dir dir = pl_posix_dir_table(k->dir);
    struct pl_progress *p = &k->trainer->progress;
    uint64_t step = pl_reduce_steps(&k->plan, round);
    struct pl_error why;
    p->step = step;
    p->tokens = p->clock = pl_reduce_tokens(&k->plan, round);
    if (momentum != NULL)
        PL_TRY(save_outer(k, step, momentum, err));
    enum pelago_status st = pl_trainer_save(k->trainer, dir, &extra, &why);
    if (st != PELAGO_OK)
        return pl_fail(err, st, "the model could not be saved: %s (%s%s)", why.text,
                       pl_posix_dir_reason(k->dir), pl_posix_dir_advice(k->dir));
    return PELAGO_OK;
}

enum pelago_status pl_reduce_load(struct pl_reduce_kit *k, float *momentum, uint64_t *round,
                                  struct pl_error *err)
{
    struct pl_dir dir = pl_posix_dir_table(k->dir);
    struct pl_checkpoint_reader *r = NULL;
    uint64_t step;
    PL_TRY(pl_checkpoint_newest(dir, PL_NONE64, &step, err));
    enum pelago_status st = pl_checkpoint_open(&r, dir, &k->alloc, step, err);
    if (st == PELAGO_OK)
        st = pl_trainer_load(k->trainer, r, err);
    pl_checkpoint_close(r);
    PL_TRY(pl_checkpoint_advise(dir, &k->alloc, step, st, err));
    *round = step == k->plan.steps ? k->plan.rounds : step / k->plan.period;
    if (pl_reduce_steps(&k->plan, *round) != step)
        return pl_fail(err, PELAGO_INVALID, "the checkpoint of step %lu is not one of this run's rounds",
                       step);
    if (momentum != NULL)
        load_outer(k, step, momentum);
    return PELAGO_OK;
}
