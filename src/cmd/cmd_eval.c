/* cmd/cmd_eval.c - pelago eval: the loss of a model on a text, and its score on multiple choice. */
#include "cmd/cmd.h"

#include "base/num.h"
#include "cmd/options.h"
#include "cmd/text.h"
#include "cmd/weights.h"
#include "train/choices.h"
#include "train/dataset.h"
#include "train/evaluate.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

static const char command[] = "eval";

struct eval {
    const char *from, *data, *choices, *backend;
    uint64_t step, tokens, limit;
    uint32_t batch, seq, threads;
    bool json;
    struct pl_alloc alloc;
    struct pl_posix_dir *dir;
    struct pl_weights weights;
    struct pl_model *model;
    struct pl_choices *questions; /* of --choices */
    struct pl_error err;
};

/* ---- the model ---- */

static enum pelago_status load(struct eval *e)
{
    PL_TRY(pl_posix_dir_open(&e->dir, &e->alloc, e->from, PL_POSIX_DIR_EXISTING, &e->err));
    return pl_weights_load(&e->weights, pl_posix_dir_table(e->dir), e->step, &e->err);
}

/* Of positions it was not trained for a model knows nothing; how far an imported one was trained nobody says. */
static uint32_t usual_seq(const struct eval *e)
{
    if (e->weights.seq > 0)
        return e->weights.seq;
    return pl_min32(e->choices != NULL ? 1024 : 256, e->weights.config.context);
}

static enum pelago_status build(struct eval *e)
{
    struct pl_model_options o = {.config = e->weights.config, .backend = e->backend, .threads = e->threads};
    e->seq = e->seq > 0 ? e->seq : usual_seq(e);
    o.seq = e->seq;
    o.batch = e->batch;
    PL_TRY(pl_model_new(&e->model, &e->alloc, &o, &e->err));
    memcpy(e->model->params, e->weights.params, e->weights.tensors.floats * sizeof(float));
    pl_model_refresh(e->model);
    return PELAGO_OK;
}

/* ---- loss ---- */

static void print_loss(const struct eval *e, const struct pl_dataset *d, const struct pl_evaluation *v)
{
    double loss = v->nats / (double)v->tokens, floor = d->valid_floor / (double)v->tokens;
    double bits = d->valid_bytes > 0 ? 1 / d->valid_bytes / log(2) : 0;
    if (e->json) {
        printf("{\"eval\": \"loss\", \"step\": %" PRIu64 ", \"seq\": %u, \"tokens\": %" PRIu64
               ", \"loss\": %.6f, \"perplexity\": %.4f",
               e->weights.step, e->seq, v->tokens, loss, exp(loss));
        if (bits > 0)
            printf(", \"bits_per_byte\": %.6f", v->nats * bits);
        if (d->valid_floor > 0)
            printf(", \"floor_loss\": %.6f, \"floor_bits_per_byte\": %.6f", floor, d->valid_floor * bits);
        printf("}\n");
        return;
    }
    printf("loss %.4f nats a token, perplexity %.2f", loss, exp(loss));
    if (bits > 0)
        printf(", %.4f bits a byte", v->nats * bits);
    printf(" (%" PRIu64 " tokens of %s, in sequences of %u)\n", v->tokens, e->data, e->seq);
    if (d->valid_floor > 0)
        printf("the tales' own entropy, the floor: %.4f nats a token, %.4f bits a byte\n", floor,
               d->valid_floor * bits);
}

static enum pelago_status eval_loss(struct eval *e)
{
    struct pl_dataset_options o = {.valid = e->data,
                                   .json = {e->weights.tokenizer.data, e->weights.tokenizer.len},
                                   .vocab = e->weights.config.vocab,
                                   .valid_tokens = e->tokens,
                                   .threads = e->threads};
    struct pl_dataset *d;
    struct pl_evaluation v;
    PL_TRY(pl_dataset_open(&d, &e->alloc, &o, &e->err));
    enum pelago_status st = pl_evaluate(e->model, &d->valid, &v, &e->err);
    if (st == PELAGO_OK)
        print_loss(e, d, &v);
    pl_dataset_close(d);
    return st;
}

/* ---- choices ---- */

static void show_progress(void *user, uint64_t done, uint64_t total)
{
    (void)user;
    fprintf(stderr, "\r%3.0f%%%s", 100.0 * (double)done / (double)total, done == total ? "\r\x1b[K" : "");
}

static void print_choices(const struct eval *e, const struct pl_choices_result *r)
{
    double questions = (double)r->questions, endings = (double)r->endings;
    if (e->json) {
        printf("{\"eval\": \"choices\", \"step\": %" PRIu64 ", \"seq\": %u, \"questions\": %" PRIu64
               ", \"endings\": %" PRIu64,
               e->weights.step, e->seq, r->questions, r->endings);
        if (r->questions > 0)
            printf(", \"accuracy\": %.6f, \"accuracy_per_byte\": %.6f, \"chance\": %.6f",
                   (double)r->right / questions, (double)r->right_per_byte / questions,
                   r->chance / questions);
        if (r->endings > 0)
            printf(", \"ending_accuracy\": %.6f, \"ending_perplexity\": %.4f", (double)r->greedy / endings,
                   exp(r->ending_nats / endings));
        printf("}\n");
        return;
    }
    if (r->questions > 0)
        printf("accuracy %.2f%% by likelihood, %.2f%% by likelihood a byte; chance is %.2f%% (%" PRIu64
               " questions of %s)\n",
               100 * (double)r->right / questions, 100 * (double)r->right_per_byte / questions,
               100 * r->chance / questions, r->questions, e->choices);
    if (r->endings > 0)
        printf("accuracy %.2f%%, perplexity of an ending %.2f (%" PRIu64 " endings of %s)\n",
               100 * (double)r->greedy / endings, exp(r->ending_nats / endings), r->endings, e->choices);
}

static enum pelago_status eval_choices(struct eval *e)
{
    struct pl_tokenizer *t;
    struct pl_choices_result result;
    bool live = isatty(STDERR_FILENO) != 0;
    PL_TRY(pl_weights_tokenizer(&e->weights, &t, &e->err));
    enum pelago_status st =
        pl_choices_score(e->questions, e->model, t, live ? show_progress : NULL, NULL, &result, &e->err);
    pl_tokenizer_free(t);
    if (st == PELAGO_OK)
        print_choices(e, &result);
    return st;
}

/* ---- all together ---- */

/* Before anything is computed: a loss may take long. */
static enum pelago_status check_tokenizer(struct eval *e)
{
    if (e->choices == NULL || e->weights.tokenizer.len > 0)
        return PELAGO_OK;
    return pl_fail(&e->err, PELAGO_INVALID, "the model in %s has no tokenizer to read the questions with",
                   e->from);
}

static int run(struct eval *e)
{
    if (e->choices != NULL &&
        pl_choices_read(&e->questions, &e->alloc, e->choices, e->limit, &e->err) != PELAGO_OK)
        return pl_failure(command, &e->err);
    if (load(e) != PELAGO_OK)
        return e->dir != NULL ? pl_failure_at(command, e->from, e->dir, &e->err)
                              : pl_failure(command, &e->err);
    if (e->seq > e->weights.config.context)
        return pl_usage_error(command, "--seq is %u, but the model's context is %u", e->seq,
                              e->weights.config.context);
    enum pelago_status st = check_tokenizer(e);
    if (st == PELAGO_OK)
        st = build(e);
    if (st == PELAGO_OK && e->data != NULL)
        st = eval_loss(e);
    if (st == PELAGO_OK && e->choices != NULL)
        st = eval_choices(e);
    return st == PELAGO_OK ? PL_EXIT_OK : pl_failure(command, &e->err);
}

int pl_cmd_eval(int argc, char **argv)
{
    struct eval e = {.step = PL_NONE64, .tokens = 1000000, .limit = PL_NONE64, .batch = 16};
    const struct pl_option table[] = {
        {"data", "NAME", "text (.txt .jsonl .zst), a token file, or builtin:tales", PL_OPTION_TEXT, &e.data,
         0, 0},
        {"tokens", "COUNT", "at most so many tokens of it (default: 1M)", PL_OPTION_COUNT, &e.tokens, 1,
         PL_COUNT_MAX},
        {"choices", "FILE", "questions with several options, or with one ending each", PL_OPTION_TEXT,
         &e.choices, 0, 0},
        {"limit", "N", "only the first questions", PL_OPTION_U64, &e.limit, 1, PL_COUNT_MAX},
        {"step", "N", "the checkpoint of this step (default: the newest)", PL_OPTION_U64, &e.step, 0,
         PL_COUNT_MAX},
        {"seq", "N",
         "tokens of a sequence (default: as the model was trained with; of an imported one 256, for choices "
         "1024, or its context)",
         PL_OPTION_U32, &e.seq, 1, PL_CONTEXT_MAX},
        {"batch", "N", "sequences of a pass (default: 16)", PL_OPTION_U32, &e.batch, 1, PL_BATCH_MAX},
        {"threads", "N", "threads (default: one for each processor)", PL_OPTION_U32, &e.threads, 1,
         PL_POOL_THREADS_MAX},
        {"backend", "NAME", "ref, portable, avx2, avx512, bf16, amx or cuda (default: the best)",
         PL_OPTION_TEXT, &e.backend, 0, 0},
        {"json", NULL, "print a line of JSON for each", PL_OPTION_FLAG, &e.json, 0, 0},
    };
    const struct pl_options options = {command, "FOLDER --data NAME | --choices FILE [OPTION...]",
                                       "Measures a model, from a folder of checkpoints or a Hugging Face "
                                       "folder: its loss on a text, or how often it\n"
                                       "finds the likeliest of several continuations to be the right one. A "
                                       "file of choices has, for each question, a\n"
                                       "line \"<gold> <n>\" and n lines \"context<TAB>continuation\", with "
                                       "\\n, \\t and \\\\ for line end, tab, backslash.",
                                       table, sizeof table / sizeof table[0]};
    struct pl_words words;
    int code;
    if (!pl_options_parse(&options, argc, argv, &words, &code))
        return code;
    if (words.count != 1 || (e.data == NULL && e.choices == NULL))
        return pl_usage_error(command, "expected one folder, and --data NAME or --choices FILE");
    if (pl_engine_backend_check(e.backend, &e.err) == PELAGO_INVALID ||
        pl_dataset_check_name(e.data, &e.err) != PELAGO_OK)
        return pl_refusal(command, &e.err);
    e.from = words.at[0];
    e.alloc = pl_alloc_system();
    e.weights.alloc = e.alloc;
    pl_buf_init(&e.weights.tokenizer, &e.weights.alloc, 0);
    code = run(&e);
    pl_model_free(e.model);
    pl_choices_free(e.questions);
    pl_weights_release(&e.weights);
    pl_posix_dir_close(e.dir);
    return code;
}
