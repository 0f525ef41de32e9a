/* cmd/cluster_save.c - see cluster_save.h. */
#include "cmd/cluster_save.h"

#include "cmd/cluster_home.h"
#include "cmd/train_args.h"
#include "host/home.h"
#include "train/checkpoint.h"

#include <string.h>

/* The tokenizer of the folder, where it has one: shards other than home do not. */
static enum pelago_status read_tokenizer(const char *folder, const struct pl_settings *s, struct pl_buf *out,
                                         struct pl_error *err)
{
    struct pl_posix_dir *dir = NULL;
    if (s->tokenizer_digest == 0 || !pl_path_exists(folder, "tokenizer.json"))
        return PELAGO_OK;
    PL_TRY(pl_posix_dir_open(&dir, out->alloc, folder, PL_POSIX_DIR_EXISTING, err));
    enum pelago_status st = pl_home_read(dir, "tokenizer.json", out, err);
    pl_posix_dir_close(dir);
    return st;
}

/* A later one is of a syncer that knew of more tokens before it was started again, or of somebody who trained on. */
static enum pelago_status save(struct pl_posix_dir *dir, const struct pl_alloc *alloc, uint64_t step,
                               const struct pl_checkpoint *c, struct pl_error *err)
{
    struct pl_error why;
    uint64_t newest;
    if (pl_checkpoint_newest(pl_posix_dir_table(dir), PL_NONE64, &newest, NULL) == PELAGO_OK && newest > step)
        return PELAGO_OK;
    enum pelago_status st = pl_checkpoint_save(pl_posix_dir_table(dir), alloc, step, c, 1, &why);
    if (st != PELAGO_OK)
        return pl_fail(err, st, "the model could not be saved: %s (%s%s)", why.text, pl_posix_dir_reason(dir),
                       pl_posix_dir_advice(dir));
    return PELAGO_OK;
}

enum pelago_status pl_cluster_save_params(const struct pl_cluster_model *m, const char *folder,
                                          struct pl_error *err)
{
    struct pl_alloc alloc = pl_alloc_system();
    struct pl_posix_dir *dir = NULL;
    const struct pl_settings *s = m->settings;
    struct pl_train_plan plan = {.eval_tokens = s->eval_tokens, .total_tokens = s->total_tokens};
    struct pl_member fields[PL_TRAIN_PLAN_FIELDS + 1];
    uint64_t seq = s->trainer.seq;
    uint32_t count = pl_train_plan_fields(&plan, fields);
    fields[count++] = pl_trainer_seq_field(&seq);
    memcpy(plan.model, s->model, sizeof plan.model);
    memcpy(plan.data, s->data, sizeof plan.data);
    memcpy(plan.valid, s->valid, sizeof plan.valid);
    const struct pl_checkpoint c = {.config = &s->trainer.config,
                                    .tensors = m->tensors,
                                    .params = m->params,
                                    .fields = fields,
                                    .field_count = count,
                                    .tokenizer = m->tokenizer};
    PL_TRY(pl_posix_dir_open(&dir, &alloc, folder, PL_POSIX_DIR_EXISTING, err));
    enum pelago_status st = save(dir, &alloc, m->tokens / pl_trainer_options_tokens(&s->trainer), &c, err);
    pl_posix_dir_close(dir);
    return st;
}

static enum pelago_status save_block(const struct pl_syncer_host *h, const struct pl_layout *layout,
                                     float *block, uint64_t tokens, const char *folder, struct pl_error *err)
{
    struct pl_alloc alloc = pl_alloc_system();
    const struct pl_settings *s = pl_syncer_host_settings(h);
    struct pl_buf tokenizer;
    pl_buf_init(&tokenizer, &alloc, PL_TOKENIZER_BYTES_MAX);
    enum pelago_status st = read_tokenizer(folder, s, &tokenizer, err);
    pl_layout_origin(layout, s->trainer.seed, block);
    pl_syncer_host_values(h, block);
    if (st == PELAGO_OK)
        st = pl_cluster_save_params(&(struct pl_cluster_model){.settings = s,
                                                               .tensors = &layout->tensors,
                                                               .params = block,
                                                               .tokens = tokens,
                                                               .tokenizer = {tokenizer.data, tokenizer.len}},
                                    folder, err);
    pl_buf_release(&tokenizer);
    return st;
}

enum pelago_status pl_cluster_save(const struct pl_syncer_host *h, uint64_t tokens, const char *folder,
                                   struct pl_error *err)
{
    struct pl_alloc alloc = pl_alloc_system();
    const struct pl_settings *s = pl_syncer_host_settings(h);
    struct pl_layout layout;
    PL_TRY(pl_layout_init(&layout, &alloc, s, err));
    float *block = pl_alloc_zero(&alloc, layout.tensors.floats, sizeof *block);
    enum pelago_status st = PELAGO_OK;
    if (block == NULL) {
        st = pl_fail(err, PELAGO_NOMEM, "there is not enough memory to save the model");
    } else {
        st = save_block(h, &layout, block, tokens, folder, err);
    }
    pl_alloc_free(&alloc, block, layout.tensors.floats * sizeof *block);
    pl_layout_release(&layout);
    return st;
}
