/* cmd/train_args.c - the command line of `pelago train`; see train_args.h. */
#include "cmd/train_args.h"

#include "base/check.h"
#include "cmd/cmd.h"
#include "cmd/options.h"
#include "cmd/text.h"
#include "data/bpe_train.h"
#include "train/dataset.h"

#include <float.h>
#include <math.h>
#include <string.h>

const char pl_train_command[] = "train";

static const char about[] =
    "Trains a model on this machine and saves it, so that `pelago sample`, `eval` and `export` can use it:\n"
    "\n"
    "    pelago train --model 1m --data builtin:tales --tokens 10M --out run\n"
    "\n"
    "What is not given comes from the size of the model. N* is a number of steps, or, with k, M or G, of "
    "tokens.\n"
    "Ctrl-C finishes the step, saves, and leaves with 130 (143 after SIGTERM); --resume goes on from there, "
    "with the\n"
    "very same bits.";

static bool read_span(const char *command, const char *name, const char *text, struct pl_span *out,
                      int *exit_code)
{
    uint64_t thousand = 1000, unit = 0;
    char digits[32];
    if (text == NULL)
        return true;
    size_t len = strlen(text);
    char last = len > 0 ? text[len - 1] : '\0';
    unit = last == 'k'   ? thousand
           : last == 'M' ? thousand * thousand
           : last == 'G' ? thousand * thousand * thousand
                         : 0;
    size_t count = len - (unit > 0 ? 1 : 0);
    *out = (struct pl_span){.given = true, .is_tokens = unit > 0};
    bool good = count > 0 && count < sizeof digits;
    if (good) {
        memcpy(digits, text, count);
        digits[count] = '\0';
        good = pl_text_number(digits, &out->count) && out->count <= PL_COUNT_MAX / (unit > 0 ? unit : 1);
        out->count *= unit > 0 ? unit : 1;
    }
    if (!good)
        *exit_code = pl_usage_error(command, "--%s is '%s', expected steps such as 500 or tokens such as 5M",
                                    name, pl_text_clip(text).at);
    return good;
}

static bool check_words(const struct pl_train_args *a, const char *command, int *exit_code)
{
    enum pl_schedule_kind schedule;
    enum pl_inner_kind optimizer;
    if (a->schedule != NULL && !pl_schedule_of_name(a->schedule, &schedule))
        *exit_code = pl_usage_error(command, "--schedule is '%s', expected cosine, wsd or constant",
                                    pl_text_clip(a->schedule).at);
    else if (a->optimizer != NULL && !pl_optimizer_of_name(a->optimizer, &optimizer))
        *exit_code = pl_usage_error(command, "--optimizer is '%s', expected adamw or muon",
                                    pl_text_clip(a->optimizer).at);
    else if (a->tokens > 0 && a->steps > 0)
        *exit_code = pl_usage_error(command, "--tokens and --steps both say how long to train; give one");
    else if (!isnan(a->min_lr) && !isnan(a->lr_floor))
        *exit_code = pl_usage_error(command, "--min-lr and --lr-floor say the same; give one");
    else if (a->resume && a->out == NULL)
        *exit_code = pl_usage_error(command, "--resume needs --out FOLDER, where the run was saved");
    else if (!a->resume && a->step != PL_NONE64)
        *exit_code = pl_usage_error(command, "--step goes with --resume; --steps says how long to train");
    else
        return true;
    return false;
}

static bool check_reals(const struct pl_train_args *a, const char *command, int *exit_code)
{
    const struct {
        const char *name;
        double value;
        bool good;
        const char *expected;
    } reals[] = {
        {"lr", a->lr, a->lr > 0 && a->lr <= 100, "a rate above 0 and at most 100"},
        {"min-lr", a->min_lr, a->min_lr >= 0 && a->min_lr <= 100, "a rate from 0 to --lr"},
        {"lr-floor", a->lr_floor, a->lr_floor >= 0 && a->lr_floor <= 1, "a share from 0 to 1"},
        {"decay", a->decay, a->decay > 0 && a->decay <= 1, "a share above 0 and at most 1"},
        {"weight-decay", a->weight_decay, a->weight_decay >= 0 && a->weight_decay <= 100, "0 to 100"},
        {"beta1", a->beta1, a->beta1 >= 0 && (float)a->beta1 < 1, "at least 0 and below 1"},
        {"beta2", a->beta2, a->beta2 >= 0 && (float)a->beta2 < 1, "at least 0 and below 1"},
        {"clip", a->clip, a->clip >= 0 && a->clip <= (double)FLT_MAX, "0, for none, or a length above it"},
        {"z-loss", a->z_loss, a->z_loss >= 0 && a->z_loss <= 1, "0 to 1"},
        {"min-lr", a->min_lr, isnan(a->lr) || a->min_lr <= a->lr, "a rate from 0 to --lr"},
    };
    for (unsigned i = 0; i < sizeof reals / sizeof reals[0]; i++)
        if (!isnan(reals[i].value) && !reals[i].good) {
            *exit_code = pl_usage_error(command, "--%s is %g, expected %s", reals[i].name, reals[i].value,
                                        reals[i].expected);
            return false;
        }
    return true;
}

static bool check_names(const struct pl_train_args *a, const char *command, int *exit_code)
{
    struct pl_error err;
    if (pl_engine_backend_check(a->backend, &err) != PELAGO_INVALID &&
        pl_dataset_check_name(a->data, &err) == PELAGO_OK &&
        pl_dataset_check_name(a->valid, &err) == PELAGO_OK)
        return true;
    *exit_code = pl_refusal(command, &err);
    return false;
}

bool pl_train_args_check(struct pl_train_args *a, const char *command, int *exit_code)
{
    return check_words(a, command, exit_code) && check_reals(a, command, exit_code) &&
           check_names(a, command, exit_code) &&
           read_span(command, "warmup", a->warmup_text, &a->warmup, exit_code) &&
           read_span(command, "save-every", a->save_text, &a->save_every, exit_code) &&
           read_span(command, "eval-every", a->eval_text, &a->eval_every, exit_code);
}

bool pl_train_args_vocab_is_small(const struct pl_train_args *a, enum pelago_status opened)
{
    return opened == PELAGO_LIMIT && a->tokenizer == NULL && a->dims.vocab > 0 &&
           a->dims.vocab < PL_BPE_VOCAB_MIN;
}

enum { RUN_OPTIONS_MAX = 16 };

static uint32_t model_options(struct pl_train_args *a, struct pl_option *out)
{
    const struct pl_option table[] = {
        {"model", "NAME", "1m, 5m, 14m, 35m, 124m, 350m or 1b (default: 1m)", PL_OPTION_TEXT, &a->model, 0,
         0},
        {"layers", "N", "... or every dimension by hand: layers", PL_OPTION_U32, &a->dims.layers, 1,
         PL_LAYERS_MAX},
        {"width", "N", "values of a token between the layers", PL_OPTION_U32, &a->dims.width, 1,
         PL_WIDTH_MAX},
        {"heads", "N", "attention heads (default: one for 64 of the width)", PL_OPTION_U32, &a->dims.heads, 1,
         PL_HEADS_MAX},
        {"kv-heads", "N", "heads of keys and values (default: as many)", PL_OPTION_U32, &a->dims.kv_heads, 1,
         PL_HEADS_MAX},
        {"head-dim", "N", "values of a head (default: width / heads)", PL_OPTION_U32, &a->dims.head_dim, 2,
         PL_HEAD_DIM_MAX},
        {"hidden", "N", "width inside the feed-forward part (default: 8/3 of the width)", PL_OPTION_U32,
         &a->dims.hidden, 1, PL_HIDDEN_MAX},
        {"vocab", "N", "tokens the model knows", PL_OPTION_U32, &a->dims.vocab, 2, PL_VOCAB_MAX},
        {"context", "N", "longest sequence the model is for (default: 1024)", PL_OPTION_U32, &a->dims.context,
         1, PL_CONTEXT_MAX},
        {"untied", NULL, "a head of its own instead of the embedding", PL_OPTION_FLAG, &a->untied, 0, 0},
        {"qk-norm", NULL, "RMSNorm on queries and keys", PL_OPTION_FLAG, &a->dims.qk_norm, 0, 0},
        {"data", "NAME", "text (.txt .jsonl .zst), a token file, or builtin:tales (the default)",
         PL_OPTION_TEXT, &a->data, 0, 0},
        {"valid", "NAME", "the same, to validate on (default: a part of the data)", PL_OPTION_TEXT, &a->valid,
         0, 0},
        {"tokenizer", "NAME", "tokenizer.json, its folder, char or byte (default: trained on the data)",
         PL_OPTION_TEXT, &a->tokenizer, 0, 0},
    };
    memcpy(out, table, sizeof table);
    return sizeof table / sizeof table[0];
}

static uint32_t step_options(struct pl_train_args *a, struct pl_option *out)
{
    const struct pl_option table[] = {
        {"tokens", "COUNT", "how long to train (default: 10M)", PL_OPTION_COUNT, &a->tokens, 1, PL_COUNT_MAX},
        {"steps", "N", "... or in steps", PL_OPTION_COUNT, &a->steps, 1, PL_COUNT_MAX},
        {"batch", "N", "sequences of a pass", PL_OPTION_U32, &a->batch, 1, PL_BATCH_MAX},
        {"seq", "N", "tokens of a sequence", PL_OPTION_U32, &a->seq, 1, PL_CONTEXT_MAX},
        {"accumulate", "N", "passes of a step", PL_OPTION_U32, &a->accumulate, 1, 0},
        {"lr", "RATE", "peak learning rate (default: by size, docs/training.md)", PL_OPTION_FLOAT, &a->lr, 0,
         0},
        {"min-lr", "RATE", "last learning rate (default: a tenth of the peak)", PL_OPTION_FLOAT, &a->min_lr,
         0, 0},
        {"lr-floor", "SHARE", "... or as a share of the peak", PL_OPTION_FLOAT, &a->lr_floor, 0, 0},
        {"warmup", "N*", "until the peak is reached (default: 2% of the run)", PL_OPTION_TEXT,
         &a->warmup_text, 0, 0},
        {"schedule", "NAME", "cosine (default), wsd or constant", PL_OPTION_TEXT, &a->schedule, 0, 0},
        {"decay", "SHARE", "wsd: the last part of the run, in which the rate falls (default: 0.2)",
         PL_OPTION_FLOAT, &a->decay, 0, 0},
        {"optimizer", "NAME", "adamw (default), or muon for the matrices", PL_OPTION_TEXT, &a->optimizer, 0,
         0},
        {"weight-decay", "X", "of matrices and embeddings (default: 0.1)", PL_OPTION_FLOAT, &a->weight_decay,
         0, 0},
        {"beta1", "X", "AdamW's (default: 0.9)", PL_OPTION_FLOAT, &a->beta1, 0, 0},
        {"beta2", "X", "AdamW's (default: 0.95; 0.99 up to 20M parameters)", PL_OPTION_FLOAT, &a->beta2, 0,
         0},
        {"clip", "X", "longest gradient; 0: any (default: 1)", PL_OPTION_FLOAT, &a->clip, 0, 0},
        {"z-loss", "X", "weight of log(Z)^2 (default: 0)", PL_OPTION_FLOAT, &a->z_loss, 0, 0},
    };
    memcpy(out, table, sizeof table);
    return sizeof table / sizeof table[0];
}

static uint32_t choice_options(struct pl_train_args *a, struct pl_option *out)
{
    const struct pl_option table[] = {
        {"seed", "N", "of parameters and data order (default: 1)", PL_OPTION_U64, &a->seed, 0, PL_COUNT_MAX},
        {"recompute", NULL, "less memory, a third more work", PL_OPTION_FLAG, &a->recompute, 0, 0},
        {"eval-tokens", "COUNT", "tokens of a validation (default: 100k)", PL_OPTION_COUNT, &a->eval_tokens,
         1, PL_COUNT_MAX},
    };
    memcpy(out, table, sizeof table);
    return sizeof table / sizeof table[0];
}

static uint32_t run_options(struct pl_train_args *a, struct pl_option *out)
{
    const struct pl_option table[] = {
        {"threads", "N", "threads (default: one for each processor)", PL_OPTION_U32, &a->threads, 1,
         PL_POOL_THREADS_MAX},
        {"backend", "NAME", "ref, portable, avx2, avx512, bf16, amx or cuda (default: the best)",
         PL_OPTION_TEXT, &a->backend, 0, 0},
        {"out", "FOLDER", "where to save (default: nowhere)", PL_OPTION_TEXT, &a->out, 0, 0},
        {"save-every", "N*", "between two saves (default: 5 minutes)", PL_OPTION_TEXT, &a->save_text, 0, 0},
        {"keep", "N", "checkpoints to keep; 0: all (default: 2)", PL_OPTION_U32, &a->keep, 0, 0},
        {"eval-every", "N*", "between two validations; 0: only at the end (default: a tenth of the run)",
         PL_OPTION_TEXT, &a->eval_text, 0, 0},
        {"log", "FILE", "append a line of JSON for every step", PL_OPTION_TEXT, &a->log, 0, 0},
        {"quiet", NULL, "only the result", PL_OPTION_FLAG, &a->quiet, 0, 0},
        {"resume", NULL, "go on with the run saved in --out", PL_OPTION_FLAG, &a->resume, 0, 0},
        {"step", "N", "--resume: from the checkpoint of this step (default: the newest)", PL_OPTION_U64,
         &a->step, 0, PL_COUNT_MAX},
    };
    memcpy(out, table, sizeof table);
    return sizeof table / sizeof table[0];
}

void pl_train_args_init(struct pl_train_args *a)
{
    *a = (struct pl_train_args){.seed = PL_NONE64, .step = PL_NONE64, .keep = PL_CHECKPOINTS_KEPT};
    double *reals[] = {&a->lr,    &a->min_lr, &a->lr_floor, &a->decay, &a->weight_decay,
                       &a->beta1, &a->beta2,  &a->clip,     &a->z_loss};
    for (unsigned i = 0; i < sizeof reals / sizeof reals[0]; i++)
        *reals[i] = (double)NAN;
}

uint32_t pl_train_options(struct pl_train_args *a, struct pl_option out[static PL_TRAIN_OPTIONS_MAX])
{
    uint32_t count = model_options(a, out);
    count += step_options(a, out + count);
    count += choice_options(a, out + count);
    pl_assert(count <= PL_TRAIN_OPTIONS_MAX);
    return count;
}

bool pl_train_args_parse(struct pl_train_args *a, int argc, char **argv, int *exit_code)
{
    struct pl_option table[PL_TRAIN_OPTIONS_MAX + RUN_OPTIONS_MAX];
    struct pl_words words;
    pl_train_args_init(a);
    uint32_t count = pl_train_options(a, table);
    count += run_options(a, table + count);
    pl_assert(count <= sizeof table / sizeof table[0]);
    const struct pl_options options = {pl_train_command, "[OPTION...]", about, table, count};
    if (!pl_options_parse(&options, argc, argv, &words, exit_code))
        return false;
    if (words.count == 0)
        return pl_train_args_check(a, pl_train_command, exit_code);
    *exit_code = pl_usage_error(pl_train_command, "unexpected '%s'", pl_text_clip(words.at[0]).at);
    return false;
}
