/* cmd/cmd_import.c - pelago import: a Hugging Face folder as a checkpoint of step 0, without optimizer state. */
#include "cmd/cmd.h"

#include "cmd/options.h"
#include "cmd/unfinished.h"
#include "cmd/weights.h"
#include "os/folder.h"
#include "train/checkpoint.h"

#include <inttypes.h>
#include <stdio.h>

static const char command[] = "import";

static int write_out(struct pl_weights *w, const char *out)
{
    const struct pl_checkpoint checkpoint = {.config = &w->config,
                                             .tensors = &w->tensors,
                                             .params = w->params,
                                             .tokenizer = {w->tokenizer.data, w->tokenizer.len}};
    struct pl_folder folder;
    struct pl_error err;
    if (pl_folder_begin(&folder, &w->alloc, out, &err) != PELAGO_OK)
        return pl_failure(command, &err);
    pl_unfinished_folder(&folder);
    if (pl_checkpoint_save(pl_folder_dir(&folder), &w->alloc, 0, &checkpoint, 0, &err) != PELAGO_OK) {
        int code = pl_failure_at(command, out, folder.dir, &err);
        pl_folder_abandon(&folder);
        pl_unfinished_end();
        return code;
    }
    enum pelago_status st = pl_folder_commit(&folder, &err);
    pl_unfinished_end();
    if (st != PELAGO_OK)
        return pl_failure(command, &err);
    printf("%s: a checkpoint of step 0 with %" PRIu64 " parameters%s\n", out, w->tensors.params,
           w->tokenizer.len > 0 ? " and a tokenizer" : "");
    return PL_EXIT_OK;
}

/* It can be read, and the model knows all of its tokens. */
static enum pelago_status check_tokenizer(const struct pl_weights *w, struct pl_error *err)
{
    struct pl_tokenizer *t;
    PL_TRY(pl_weights_tokenizer(w, &t, err));
    uint32_t vocab = pl_tokenizer_vocab(t);
    pl_tokenizer_free(t);
    if (vocab > w->config.vocab)
        return pl_fail(err, PELAGO_INVALID, "%s has %u tokens, but the model's vocabulary is %u",
                       w->tokenizer_name, vocab, w->config.vocab);
    return PELAGO_OK;
}

static int import_from(const char *from, const char *out)
{
    struct pl_alloc alloc = pl_alloc_system();
    struct pl_posix_dir *dir;
    struct pl_weights weights;
    struct pl_error err;
    if (pl_posix_dir_open(&dir, &alloc, from, PL_POSIX_DIR_EXISTING, &err) != PELAGO_OK)
        return pl_failure(command, &err);
    int code;
    enum pelago_status st = pl_weights_load_hf(&weights, pl_posix_dir_table(dir), &err);
    if (st == PELAGO_OK && weights.tokenizer.len > 0)
        st = check_tokenizer(&weights, &err);
    if (st != PELAGO_OK)
        code = pl_failure_at(command, from, dir, &err);
    else
        code = write_out(&weights, out);
    pl_weights_release(&weights);
    pl_posix_dir_close(dir);
    return code;
}

int pl_cmd_import(int argc, char **argv)
{
    const char *out = NULL;
    const struct pl_option table[] = {
        {"out", "FOLDER", "where to write; must not exist yet, or be empty", PL_OPTION_TEXT, &out, 0, 0},
    };
    const struct pl_options options = {
        command, "FOLDER --out CHECKPOINTS",
        "Reads a Hugging Face folder (config.json, safetensors in one file or several, tokenizer.json) and\n"
        "writes a checkpoint that train, eval and sample take. Llama and Qwen3 models, F32, BF16 or F16.",
        table, sizeof table / sizeof table[0]};
    struct pl_words words;
    int code;
    if (!pl_options_parse(&options, argc, argv, &words, &code))
        return code;
    if (words.count != 1 || out == NULL)
        return pl_usage_error(command, "expected one Hugging Face folder and --out FOLDER");
    return import_from(words.at[0], out);
}
