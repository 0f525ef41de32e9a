/* cmd/weights.c - see weights.h. */
#include "cmd/weights.h"

#include "base/fmt.h"
#include "cmd/options.h"
#include "host/settings.h"
#include "train/checkpoint.h"
#include "train/files.h"
#include "train/hf.h"
#include "train/json.h"
#include "train/trainer.h"

static void begin(struct pl_weights *w)
{
    *w = (struct pl_weights){.alloc = pl_alloc_system()};
    pl_buf_init(&w->tokenizer, &w->alloc, PL_TOKENIZER_BYTES_MAX);
}

static enum pelago_status make_room(struct pl_weights *w, struct pl_error *err)
{
    enum pelago_status st = pl_tensors_init(&w->tensors, &w->alloc, &w->config);
    if (st == PELAGO_OK) {
        w->params = pl_alloc_zero(&w->alloc, w->tensors.floats, sizeof w->params[0]);
        st = w->params != NULL ? PELAGO_OK : PELAGO_NOMEM;
    }
    if (st != PELAGO_OK)
        return pl_fail(err, st, "there is not enough memory for a model of %lu parameters",
                       pl_model_config_params(&w->config));
    return PELAGO_OK;
}

static enum pelago_status read_checkpoint(struct pl_weights *w, struct pl_checkpoint_reader *r,
                                          struct pl_error *err)
{
    w->config = *pl_checkpoint_config(r);
    w->step = pl_checkpoint_step(r);
    PL_TRY(pl_trainer_read_seq(r, &w->seq, err));
    PL_TRY(make_room(w, err));
    PL_TRY(pl_checkpoint_read_params(r, &w->tensors, w->params, err));
    (void)pl_fmt(w->tokenizer_name, sizeof w->tokenizer_name, "%s", pl_checkpoint_tokenizer_name(r));
    return pl_checkpoint_has_tokenizer(r) ? pl_checkpoint_read_tokenizer(r, &w->tokenizer, err) : PELAGO_OK;
}

enum pelago_status pl_weights_load_checkpoint(struct pl_weights *w, struct pl_dir dir, uint64_t step,
                                              struct pl_error *err)
{
    struct pl_checkpoint_reader *r;
    begin(w);
    enum pelago_status st = pl_checkpoint_open(&r, dir, &w->alloc, step, err);
    if (st == PELAGO_OK)
        st = read_checkpoint(w, r, err);
    pl_checkpoint_close(r);
    return pl_checkpoint_advise(dir, &w->alloc, step, st, err);
}

enum pelago_status pl_weights_load_hf(struct pl_weights *w, struct pl_dir dir, struct pl_error *err)
{
    begin(w);
    PL_TRY(pl_hf_read_config(dir, &w->alloc, &w->config, err));
    PL_TRY(make_room(w, err));
    PL_TRY(pl_hf_read_params(dir, &w->alloc, &w->tensors, w->params, err));
    (void)pl_fmt(w->tokenizer_name, sizeof w->tokenizer_name, "tokenizer.json");
    return pl_hf_read_tokenizer(dir, &w->tokenizer, err);
}

static bool has_file(struct pl_dir dir, const char *name)
{
    struct pl_file *file;
    if (dir.ops->open(dir.self, name, PL_FILE_READ, &file) != PELAGO_OK)
        return false;
    dir.ops->close(dir.self, file);
    return true;
}

/* NULL: the folder's run has its model at the syncer. */
static const char *synchronous(const struct pl_weights *w, struct pl_dir dir)
{
    struct pl_settings s;
    struct pl_buf text;
    pl_buf_init(&text, &w->alloc, PL_JSON_BYTES_MAX);
    bool known = pl_files_read(dir, "settings.json", &text, NULL) == PELAGO_OK &&
                 pl_settings_parse((const char *)text.data, text.len, &s, NULL) == PELAGO_OK;
    pl_buf_release(&text);
    return known && s.algorithm != PL_ALGORITHM_DECOUPLED ? pl_algorithm_name(s.algorithm) : NULL;
}

/* Folders of a run get their checkpoint when it ends. */
static enum pelago_status fail_without_model(const struct pl_weights *w, struct pl_dir dir,
                                             struct pl_error *err)
{
    const char *algorithm = has_file(dir, "operator") ? synchronous(w, dir) : NULL;
    if (has_file(dir, "run.json"))
        return pl_fail(err, PELAGO_NOTFOUND,
                       "this is a run that has not ended: its model comes at its end, and pelago run "
                       "--resume --out FOLDER goes on with it");
    if (algorithm != NULL)
        return pl_fail(err, PELAGO_NOTFOUND,
                       "this is the folder of a syncer: the model of a %s run is in the folder of a learner, "
                       "the --dir of the one that joined first",
                       algorithm);
    if (has_file(dir, "operator"))
        return pl_fail(err, PELAGO_NOTFOUND,
                       "this is the folder of a syncer without a model, which comes at the end of the run: "
                       "pelago status FOLDER says how far it is");
    return pl_fail(err, PELAGO_NOTFOUND,
                   "this is neither a folder of checkpoints (no state-*.json) nor a Hugging Face folder (no "
                   "config.json)");
}

enum pelago_status pl_weights_load(struct pl_weights *w, struct pl_dir dir, uint64_t step,
                                   struct pl_error *err)
{
    uint64_t newest;
    begin(w);
    enum pelago_status st = pl_checkpoint_newest(dir, PL_NONE64, &newest, err);
    if (st == PELAGO_OK || step != PL_NONE64)
        return pl_weights_load_checkpoint(w, dir, step, err);
    if (st == PELAGO_NOTFOUND)
        st = pl_weights_load_hf(w, dir, err);
    if (st == PELAGO_NOTFOUND && w->config.layers == 0)
        return fail_without_model(w, dir, err);
    return st;
}

enum pelago_status pl_weights_tokenizer(const struct pl_weights *w, struct pl_tokenizer **out,
                                        struct pl_error *err)
{
    struct pl_error why;
    *out = NULL;
    if (w->tokenizer.len == 0)
        return pl_fail(err, PELAGO_NOTFOUND, "the model has no tokenizer beside it");
    enum pelago_status st = pl_tokenizer_parse(out, &w->alloc, w->tokenizer.data, w->tokenizer.len, &why);
    if (st != PELAGO_OK)
        return pl_fail(err, st, "%s: %s", w->tokenizer_name, why.text);
    return PELAGO_OK;
}

void pl_weights_release(struct pl_weights *w)
{
    pl_buf_release(&w->tokenizer);
    pl_alloc_free(&w->alloc, w->params, w->tensors.floats * sizeof w->params[0]);
    if (w->tensors.at != NULL)
        pl_tensors_release(&w->tensors, &w->alloc);
    *w = (struct pl_weights){.alloc = pl_alloc_system()};
    pl_buf_init(&w->tokenizer, &w->alloc, PL_TOKENIZER_BYTES_MAX);
}

int pl_failure_at(const char *command, const char *path, const struct pl_posix_dir *dir,
                  const struct pl_error *err)
{
    struct pl_error whole;
    const char *reason = dir != NULL && err->status == PELAGO_IO ? pl_posix_dir_reason(dir) : "";
    (void)pl_fail(&whole, err->status, "%s: %s%s%s%s", path, err->text, reason[0] != '\0' ? " (" : "", reason,
                  reason[0] != '\0' ? ")" : "");
    return pl_failure(command, &whole);
}
