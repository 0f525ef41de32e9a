/* cmd/cmd_export.c - pelago export: a checkpoint as a Hugging Face folder. */
#include "cmd/cmd.h"

#include "cmd/options.h"
#include "cmd/text.h"
#include "cmd/unfinished.h"
#include "cmd/weights.h"
#include "os/folder.h"
#include "train/hf.h"

#include <inttypes.h>
#include <string.h>

static const char command[] = "export";

static enum pelago_status write_folder(struct pl_weights *w, struct pl_folder *folder, enum pl_dtype dtype,
                                       struct pl_error *err)
{
    const struct pl_hf_model model = {.config = &w->config,
                                      .tensors = &w->tensors,
                                      .params = w->params,
                                      .dtype = dtype,
                                      .tokenizer = {w->tokenizer.data, w->tokenizer.len}};
    return pl_hf_export(pl_folder_dir(folder), &w->alloc, &model, err);
}

static int write_out(struct pl_weights *w, const char *out, enum pl_dtype dtype)
{
    struct pl_folder folder;
    struct pl_error err;
    if (pl_folder_begin(&folder, &w->alloc, out, &err) != PELAGO_OK)
        return pl_failure(command, &err);
    pl_unfinished_folder(&folder);
    if (write_folder(w, &folder, dtype, &err) != PELAGO_OK) {
        int code = pl_failure_at(command, out, folder.dir, &err);
        pl_folder_abandon(&folder);
        pl_unfinished_end();
        return code;
    }
    enum pelago_status st = pl_folder_commit(&folder, &err);
    pl_unfinished_end();
    if (st != PELAGO_OK)
        return pl_failure(command, &err);
    printf("%s: %s, %" PRIu64 " parameters as %s, from step %" PRIu64 "%s\n", out,
           w->config.qk_norm ? "Qwen3ForCausalLM" : "LlamaForCausalLM", w->tensors.params,
           pl_dtype_name(dtype), w->step, w->tokenizer.len > 0 ? ", with its tokenizer" : "");
    return PL_EXIT_OK;
}

static int export_from(const char *from, uint64_t step, const char *out, enum pl_dtype dtype)
{
    struct pl_alloc alloc = pl_alloc_system();
    struct pl_posix_dir *dir;
    struct pl_weights weights;
    struct pl_error err;
    if (pl_posix_dir_open(&dir, &alloc, from, PL_POSIX_DIR_EXISTING, &err) != PELAGO_OK)
        return pl_failure(command, &err);
    int code;
    if (pl_weights_load_checkpoint(&weights, pl_posix_dir_table(dir), step, &err) != PELAGO_OK)
        code = pl_failure_at(command, from, dir, &err);
    else
        code = write_out(&weights, out, dtype);
    pl_weights_release(&weights);
    pl_posix_dir_close(dir);
    return code;
}

int pl_cmd_export(int argc, char **argv)
{
    const char *out = NULL, *dtype = "f32";
    uint64_t step = PL_NONE64;
    const struct pl_option table[] = {
        {"out", "FOLDER", "where to write; must not exist yet, or be empty", PL_OPTION_TEXT, &out, 0, 0},
        {"dtype", "TYPE", "bf16 halves the size, f32 loses nothing (default: f32)", PL_OPTION_TEXT, &dtype, 0,
         0},
        {"step", "N", "the checkpoint of this step (default: the newest)", PL_OPTION_U64, &step, 0,
         PL_COUNT_MAX},
    };
    const struct pl_options options = {
        command, "CHECKPOINTS --out FOLDER [OPTION...]",
        "Writes a checkpoint as a folder that Hugging Face transformers loads.", table,
        sizeof table / sizeof table[0]};
    struct pl_words words;
    int code;
    if (!pl_options_parse(&options, argc, argv, &words, &code))
        return code;
    if (words.count != 1 || out == NULL)
        return pl_usage_error(command, "expected one folder of checkpoints and --out FOLDER");
    if (strcmp(dtype, "bf16") != 0 && strcmp(dtype, "f32") != 0)
        return pl_usage_error(command, "--dtype is bf16 or f32, not '%s'", pl_text_clip(dtype).at);
    return export_from(words.at[0], step, out, strcmp(dtype, "bf16") == 0 ? PL_DTYPE_BF16 : PL_DTYPE_F32);
}
