/* cmd/cmd_train.c - pelago train: one machine, no syncer.
 *
 * Nothing is written before everything that can be checked has been checked: options, data, tokenizer, memory. Ctrl-C,
 * SIGTERM, a closed terminal or a pipe nobody reads end the loop after the step under way, with a save; a second signal
 * ends the process at once, which costs what was done since the last save and never a file, because checkpoints appear
 * whole or not at all.
 */
#include "cmd/cmd.h"

#include "base/num.h"
#include "cmd/options.h"
#include "cmd/peak.h"
#include "cmd/stop.h"
#include "cmd/text.h"
#include "cmd/train_args.h"
#include "cmd/train_sample.h"
#include "cmd/train_view.h"
#include "cmd/weights.h"
#include "data/unicode.h"
#include "os/clock.h"
#include "train/batches.h"
#include "train/dataset.h"
#include "train/evaluate.h"

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

enum { SAMPLE_TOKENS = 80 };
static const uint64_t save_ns = 300 * PL_SEC; /* between two saves, unless told otherwise */

struct run {
    struct pl_train_args args;
    struct pl_train_plan plan;
    struct pl_alloc alloc;
    struct pl_posix_dir *dir;
    struct pl_checkpoint_reader *saved; /* while resuming */
    struct pl_buf json;                 /* the saved run's tokenizer */
    struct pl_dataset *data;
    struct pl_trainer *trainer;
    struct pl_batches batches;
    struct pl_train_view view;
    uint64_t saved_step, saved_ns; /* the last save; PL_NONE64: none */
    bool goes_back;                /* there are later checkpoints than the one resumed */
    bool fresh;                    /* only the parameters come from the checkpoint */
    struct pl_error err;
};

/* ---- signals ---- */

static volatile sig_atomic_t caught;

static void on_signal(int number)
{
    if (caught != 0 && number != SIGPIPE) /* of those there is one for every line nobody reads */
        _exit(128 + number);
    if (caught == 0)
        caught = number;
}

static void heed_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal};
    const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE};
    (void)sigemptyset(&action.sa_mask);
    for (unsigned i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if (numbers[i] != SIGHUP || pl_stop_hangs_up())
            (void)sigaction(numbers[i], &action, NULL);
}

/* ---- getting ready ---- */

/* The folder is ours alone, and can be written to. */
static enum pelago_status take_folder(struct run *r)
{
    PL_TRY(pl_posix_dir_open(&r->dir, &r->alloc, r->args.out,
                             r->args.resume ? PL_POSIX_DIR_EXISTING : PL_POSIX_DIR_CREATE, &r->err));
    PL_TRY(pl_posix_dir_lock(r->dir, r->args.out, "--out", &r->err));
    enum pelago_status st = pl_posix_dir_probe(r->dir);
    return st == PELAGO_OK ? st
                           : pl_fail(&r->err, st, "the folder %s cannot be written to: %s%s", r->args.out,
                                     pl_posix_dir_reason(r->dir), pl_posix_dir_advice(r->dir));
}

static enum pelago_status check_space(struct run *r)
{
    uint64_t needed = r->trainer->model->tensors.params * sizeof(float);
    uint64_t room = r->dir != NULL ? pl_posix_dir_free_bytes(r->dir) : PL_NONE64;
    for (uint32_t i = 0; i < r->trainer->span_count; i++)
        needed += (uint64_t)r->trainer->spans[i].rows * r->trainer->spans[i].cols * sizeof(float);
    if (needed <= room)
        return PELAGO_OK;
    return pl_fail(&r->err, PELAGO_FULL,
                   "no space left in %s: a checkpoint needs %lu bytes, and there are %lu", r->args.out,
                   needed, room);
}

/* A folder that has a run already is not written to by another one. */
static enum pelago_status refuse_old_run(struct run *r)
{
    struct pl_error err;
    uint64_t step;
    if (pl_checkpoint_newest(pl_posix_dir_table(r->dir), PL_NONE64, &step, &err) != PELAGO_OK)
        return PELAGO_OK;
    return pl_fail(&r->err, PELAGO_INVALID,
                   "%s holds a run of %lu steps: --resume goes on with it, another --out begins anew",
                   r->args.out, step);
}

static enum pelago_status open_saved(struct run *r)
{
    struct pl_dir dir = pl_posix_dir_table(r->dir);
    uint64_t newest;
    enum pelago_status st = pl_checkpoint_open(&r->saved, dir, &r->alloc, r->args.step, &r->err);
    if (st == PELAGO_OK && pl_checkpoint_has_tokenizer(r->saved))
        st = pl_checkpoint_read_tokenizer(r->saved, &r->json, &r->err);
    if (st != PELAGO_OK)
        return pl_checkpoint_advise(dir, &r->alloc, r->args.step, st, &r->err);
    r->goes_back = pl_checkpoint_newest(dir, PL_NONE64, &newest, NULL) == PELAGO_OK &&
                   newest > pl_checkpoint_step(r->saved);
    return pl_train_plan_resume(&r->plan, &r->args, r->saved, &r->fresh, &r->err);
}

static enum pelago_status open_data(struct run *r)
{
    const struct pl_train_plan *p = &r->plan;
    struct pl_dataset_options o = {.data = p->data,
                                   .valid = p->valid[0] != '\0' ? p->valid : NULL,
                                   .tokenizer = r->args.tokenizer,
                                   .json = {r->json.data, r->json.len},
                                   .vocab = p->trainer.config.vocab,
                                   .valid_tokens = p->eval_tokens,
                                   .seed = p->trainer.seed,
                                   .threads = p->trainer.threads};
    PL_TRY(pl_dataset_open(&r->data, &r->alloc, &o, &r->err));
    return pl_train_plan_settle(&r->plan, r->data->vocab, &r->err);
}

/* Weights without an optimizer's state begin a training of their own, whose steps are counted on from theirs: its checkpoints
 * come after the one it began with, and the next --resume finds them. */
static enum pelago_status load_saved(struct run *r)
{
    enum pelago_status st = r->fresh ? pl_trainer_load_params(r->trainer, r->saved, &r->err)
                                     : pl_trainer_load(r->trainer, r->saved, &r->err);
    if (r->fresh)
        r->trainer->progress.step = pl_checkpoint_step(r->saved);
    return pl_checkpoint_advise(pl_posix_dir_table(r->dir), &r->alloc, r->args.step, st, &r->err);
}

static enum pelago_status open_trainer(struct run *r)
{
    const struct pl_trainer_options *o = &r->plan.trainer;
    PL_TRY(pl_batches_init(&r->batches, &r->alloc, &r->data->train, o->seq, o->seed, &r->err));
    PL_TRY(pl_trainer_new(&r->trainer, &r->alloc, o, &r->err));
    if (r->saved != NULL)
        PL_TRY(load_saved(r));
    if (r->plan.data_changed)
        r->trainer->progress.sequence = 0;
    r->saved_step = r->saved != NULL && !r->fresh ? r->trainer->progress.step : PL_NONE64;
    pl_checkpoint_close(r->saved);
    r->saved = NULL;
    return check_space(r);
}

/* PL_EXIT_OK, or the exit code after saying what is wrong: 2 for what was asked, 1 for what was found. */
static int prepare(struct run *r)
{
    if (!r->args.resume && pl_train_plan_new(&r->plan, &r->args, &r->err) != PELAGO_OK)
        return pl_refusal(pl_train_command, &r->err);
    enum pelago_status st = r->args.out != NULL ? take_folder(r) : PELAGO_OK;
    if (st == PELAGO_OK && r->args.resume)
        st = open_saved(r);
    else if (st == PELAGO_OK && r->dir != NULL)
        st = refuse_old_run(r);
    if (st == PELAGO_INVALID)
        return pl_refusal(pl_train_command, &r->err);
    if (st == PELAGO_OK) {
        st = open_data(r);
        if (pl_train_args_vocab_is_small(&r->args, st))
            return pl_refusal(pl_train_command, &r->err);
    }
    if (st == PELAGO_OK)
        st = open_trainer(r);
    return st == PELAGO_OK ? PL_EXIT_OK : pl_failure(pl_train_command, &r->err);
}

/* ---- words at the start ---- */

static void say_going_on(struct run *r)
{
    char seq[96] = "";
    if (r->plan.seq_kept)
        (void)snprintf(seq, sizeof seq, ", with sequences of %u tokens, as the model was trained with",
                       r->plan.trainer.seq);
    pl_train_view_say(&r->view, "going on after step %" PRIu64 "%s%s", r->trainer->progress.step, seq,
                      r->plan.data_changed ? ", with other data" : "");
}

static void introduce(struct run *r)
{
    const struct pl_model_config *c = &r->plan.trainer.config;
    const struct pl_trainer_options *o = &r->plan.trainer;
    struct pl_engine *engine = &r->trainer->model->engine;
    struct pl_train_view *v = &r->view;
    char peak[40] = "";
    v->peak_flops = r->args.quiet ? 0 : pl_peak_flops(engine);
    if (v->peak_flops > 0)
        (void)snprintf(peak, sizeof peak, ", peak %.2f TFLOP/s", v->peak_flops * 1e-12);
    pl_train_view_say(v, "model %s: %s parameters, %u layers x %u, vocabulary %u%s; %s, %u thread%s%s",
                      r->plan.model, pl_view_count((double)r->trainer->model->tensors.params).at, c->layers,
                      c->width, c->vocab, c->tied ? "" : ", untied", engine->name,
                      pl_pool_threads(engine->pool), pl_pool_threads(engine->pool) == 1 ? "" : "s", peak);
    uint64_t train = r->data->train.tokens, valid = r->data->valid.tokens;
    pl_train_view_say(v, "data %s: %s tokens to train on%s, %s to validate", pl_text_clip(r->plan.data).at,
                      train == PL_NONE64 ? "any number of" : pl_view_count((double)train).at,
                      train != PL_NONE64 && train < r->plan.total_tokens ? ", more than once" : "",
                      pl_view_count(valid > 0 ? (double)valid - 1 : 0).at);
    pl_train_view_say(
        v, "%s tokens in %" PRIu64 " steps of %" PRIu64 ", %s, rate up to %.2g; %s%s",
        pl_view_count((double)r->plan.total_tokens).at, r->plan.total_tokens / pl_trainer_options_tokens(o),
        pl_trainer_options_tokens(o), pl_optimizer_name(o->matrices), (double)o->schedule.peak,
        r->args.out != NULL ? "saved in " : "not saved (no --out)", r->args.out != NULL ? r->args.out : "");
    if (r->trainer->progress.step > 0)
        say_going_on(r);
    if (r->goes_back)
        pl_train_view_say(v,
                          "the first save takes the place of the later checkpoints, which are removed then");
}

/* ---- saving and validating ---- */

static enum pelago_status save(struct run *r)
{
    struct pl_member fields[PL_TRAIN_PLAN_FIELDS];
    struct pl_tokenizer *t = r->data->tokenizer;
    struct pl_train_plan plan = r->plan;
    plan.seconds += (double)(pl_clock_ns() - r->view.begin_ns) * 1e-9;
    struct pl_trainer_extra extra = {.fields = fields,
                                     .field_count = pl_train_plan_fields(&plan, fields),
                                     .tokenizer =
                                         t != NULL ? pl_tokenizer_json(t) : (struct pl_bytes){NULL, 0},
                                     .keep = r->args.keep,
                                     .rewinds = r->goes_back,
                                     .rewinds_to = r->args.step};
    if (r->dir == NULL || r->saved_step == r->trainer->progress.step)
        return PELAGO_OK;
    PL_TRY(pl_trainer_save(r->trainer, pl_posix_dir_table(r->dir), &extra, &r->err));
    r->goes_back = false;
    r->saved_step = r->trainer->progress.step;
    r->saved_ns = pl_clock_ns();
    return PELAGO_OK;
}

/* One that fails is said and not the end: the next may work, and hours of training are worth trying. */
static void save_now_and_then(struct run *r)
{
    uint64_t every = pl_span_steps(&r->plan.save_every, pl_trainer_options_tokens(&r->plan.trainer));
    uint64_t step = r->trainer->progress.step;
    bool due =
        r->plan.save_every.given ? every > 0 && step % every == 0 : pl_clock_ns() - r->saved_ns >= save_ns;
    if (r->dir == NULL || !due || save(r) == PELAGO_OK)
        return;
    r->saved_ns = pl_clock_ns();
    pl_train_view_rest(&r->view);
    (void)pl_failure_at(pl_train_command, r->args.out, r->dir, &r->err);
    pl_train_view_say(&r->view, "step %" PRIu64 " is not saved; training goes on, and the next save is tried",
                      step);
}

static double bits_per_byte(const struct pl_dataset *d, double nats)
{
    return d->valid_bytes > 0 ? nats / d->valid_bytes / log(2) : 0;
}

static enum pelago_status validate(struct run *r, struct pl_evaluation *e)
{
    const struct pl_progress *p = &r->trainer->progress;
    PL_TRY(pl_evaluate(r->trainer->model, &r->data->valid, e, &r->err));
    pl_train_view_log_valid(&r->view, p, e->nats / (double)e->tokens, bits_per_byte(r->data, e->nats));
    return PELAGO_OK;
}

static enum pelago_status validate_now_and_then(struct run *r)
{
    struct pl_evaluation e;
    uint64_t every = pl_span_steps(&r->plan.eval_every, pl_trainer_options_tokens(&r->plan.trainer));
    uint64_t step = r->trainer->progress.step;
    if (every == 0 || step % every != 0 || step >= r->view.total_steps || r->data->valid.tokens < 2)
        return PELAGO_OK;
    PL_TRY(validate(r, &e));
    pl_train_view_say(&r->view, "step %" PRIu64 ": validation loss %.4f, %.4f bits a byte", step,
                      e.nats / (double)e.tokens, bits_per_byte(r->data, e.nats));
    return PELAGO_OK;
}

/* ---- the loop and its end ---- */

static enum pelago_status train(struct run *r)
{
    struct pl_sequences source = pl_batches_sequences(&r->batches);
    struct pl_step_report report;
    while (r->trainer->progress.tokens < r->plan.total_tokens && caught == 0) {
        uint64_t begin = pl_clock_ns();
        PL_TRY(pl_trainer_step(r->trainer, &source, &report, &r->err));
        pl_train_view_step(&r->view, &r->trainer->progress, &report, pl_clock_ns() - begin);
        PL_TRY(validate_now_and_then(r));
        save_now_and_then(r);
    }
    return PELAGO_OK;
}

/* What a terminal may obey, and what is no text, is not shown. */
static void print_clean(const uint8_t *at, const uint8_t *end)
{
    while (at < end) {
        uint32_t c;
        size_t len = pl_utf8_read(at, end, &c);
        bool plain = c != PL_CHAR_BAD && c >= ' ' && (c < 0x7f || c > 0x9f);
        if (plain)
            (void)fwrite(at, 1, len, stdout);
        else
            putchar(c == '\n' ? ' ' : '?');
        at += len;
    }
}

static void show_sample(struct run *r)
{
    struct pl_model *m = r->trainer->model;
    struct pl_buf text;
    pl_buf_init(&text, &r->alloc, 1 << 16);
    if (r->data->tokenizer != NULL)
        pl_train_sample(&r->alloc, &m->options.config, &m->tensors, m->params, r->data->tokenizer,
                        pl_min32(SAMPLE_TOKENS, r->plan.trainer.seq), &text);
    if (text.len > 0) {
        printf("it says: \"");
        print_clean(text.data, text.data + text.len);
        printf("\"\n");
    }
    pl_buf_release(&text);
}

static enum pelago_status show_result(struct run *r)
{
    struct pl_evaluation e;
    if (r->data->valid.tokens < 2) {
        printf("trained %s tokens: loss %.4f; there was too little text to validate on\n",
               pl_view_count((double)r->trainer->progress.tokens).at, r->trainer->progress.smooth);
        return PELAGO_OK;
    }
    PL_TRY(validate(r, &e));
    printf("validation: loss %.4f nats a token, perplexity %.2f, %.4f bits a byte (%" PRIu64 " tokens)\n",
           e.nats / (double)e.tokens, exp(e.nats / (double)e.tokens), bits_per_byte(r->data, e.nats),
           e.tokens);
    if (r->data->valid_floor > 0)
        printf("the tales' own entropy, the floor: %.4f nats a token, %.4f bits a byte\n",
               r->data->valid_floor / (double)e.tokens, bits_per_byte(r->data, r->data->valid_floor));
    return PELAGO_OK;
}

/* A command of ours that ends with the run's folder, as a shell takes it. */
static void say_command(const char *words, const char *folder)
{
    printf("%s", words);
    if (folder != NULL) {
        printf(" ");
        pl_text_quote(stdout, folder);
    }
    printf("\n");
}

static void say_what_next(const struct run *r)
{
    char longer[96];
    (void)snprintf(longer, sizeof longer, "to train on: pelago train --resume --tokens %s --out",
                   pl_view_count(2 * (double)r->plan.total_tokens).at);
    if (r->data->tokenizer != NULL)
        say_command("saved; to read more of it: pelago sample", r->args.out);
    else
        say_command("saved, without a tokenizer: it can be measured, not read", NULL);
    say_command(longer, r->args.out);
}

static int finish(struct run *r)
{
    const struct pl_train_view *v = &r->view;
    pl_train_view_rest(&r->view);
    if (save(r) != PELAGO_OK)
        return pl_failure_at(pl_train_command, r->args.out, r->dir, &r->err);
    if (caught != 0) {
        printf("stopped after step %" PRIu64 "; ", r->trainer->progress.step);
        say_command(r->dir != NULL ? "saved, to go on: pelago train --resume --out" : "nothing was saved",
                    r->args.out);
        return 128 + caught;
    }
    if (v->tokens > 0)
        pl_train_view_say(&r->view, "%s tokens in %s, %s tokens/s", pl_view_count((double)v->tokens).at,
                          pl_view_time((double)(pl_clock_ns() - v->begin_ns) * 1e-9).at,
                          pl_view_count((double)v->tokens / ((double)v->busy_ns * 1e-9)).at);
    if (show_result(r) != PELAGO_OK)
        return pl_failure(pl_train_command, &r->err);
    if (!r->args.quiet)
        show_sample(r);
    if (r->dir != NULL && !r->args.quiet)
        say_what_next(r);
    return PL_EXIT_OK;
}

/* The step that failed has changed nothing; what was saved before is still good. */
static int give_up(struct run *r)
{
    pl_train_view_rest(&r->view);
    int code = pl_failure(pl_train_command, &r->err);
    if (r->dir != NULL && r->saved_step != PL_NONE64)
        fprintf(stderr, "pelago train: step %" PRIu64 " is saved in %s.\n", r->saved_step, r->args.out);
    return code;
}

/* The number of the step that ends the run. */
static uint64_t last_step(const struct run *r)
{
    const struct pl_progress *p = &r->trainer->progress;
    uint64_t step = pl_trainer_options_tokens(&r->plan.trainer);
    return p->step + (r->plan.total_tokens - p->tokens + step - 1) / step;
}

static int run(struct run *r)
{
    int code = prepare(r);
    if (code != PL_EXIT_OK)
        return code;
    if (r->trainer->progress.tokens >= r->plan.total_tokens) {
        uint64_t tokens = r->trainer->progress.tokens;
        printf("the run has its %" PRIu64 " tokens already; --tokens %" PRIu64 " goes on.\n", tokens,
               2 * tokens);
        return PL_EXIT_OK;
    }
    if (!pl_train_view_open_log(&r->view, r->args.log))
        return PL_EXIT_FAILED;
    struct pl_train_view *v = &r->view;
    v->quiet = r->args.quiet;
    v->live = isatty(STDOUT_FILENO) != 0;
    v->total_tokens = r->plan.total_tokens;
    v->total_steps = last_step(r);
    v->flops_token = pl_model_config_flops(&r->plan.trainer.config, r->plan.trainer.seq);
    introduce(r);
    heed_signals();
    v->begin_ns = v->shown_ns = r->saved_ns = pl_clock_ns();
    code = train(r) == PELAGO_OK ? finish(r) : give_up(r);
    if (!pl_train_view_close_log(v) && code == PL_EXIT_OK) {
        (void)pl_fail(&r->err, PELAGO_IO, "the log %s could not be written completely", r->args.log);
        code = pl_failure(pl_train_command, &r->err);
    }
    return code;
}

/* How long the part of a path is that ends with the first folder that is not there; 0: all are. */
static size_t first_missing(const char *path)
{
    char part[PL_PATH_MAX];
    size_t len = strlen(path);
    for (size_t i = 1; len < sizeof part && i <= len; i++) {
        if (path[i] != '/' && path[i] != '\0')
            continue;
        memcpy(part, path, i);
        part[i] = '\0';
        if (access(part, F_OK) != 0)
            return i;
    }
    return 0;
}

/* Folders made for a run that saved nothing are taken away again; one that holds anything stays. */
static void remove_folders(const char *path, size_t first)
{
    char part[PL_PATH_MAX];
    size_t len = strlen(path);
    for (; first > 0 && len < sizeof part && len >= first; len--) {
        if (path[len] != '/' && path[len] != '\0')
            continue;
        memcpy(part, path, len);
        part[len] = '\0';
        if (rmdir(part) != 0)
            return;
    }
}

static void release(struct run *r, size_t missing)
{
    (void)pl_train_view_close_log(&r->view);
    pl_checkpoint_close(r->saved);
    bool opened = r->dir != NULL;
    pl_posix_dir_close(r->dir);
    if (opened)
        remove_folders(r->args.out, missing);
    pl_batches_release(&r->batches);
    pl_trainer_free(r->trainer);
    pl_dataset_close(r->data);
    pl_buf_release(&r->json);
    pl_alloc_free(&r->alloc, r, sizeof *r);
}

int pl_cmd_train(int argc, char **argv)
{
    struct pl_alloc alloc = pl_alloc_system();
    struct run *r = pl_alloc_zero(&alloc, 1, sizeof *r);
    int code;
    if (r == NULL) {
        struct pl_error err;
        (void)pl_fail(&err, PELAGO_NOMEM, "there is no memory");
        return pl_failure(pl_train_command, &err);
    }
    r->alloc = alloc;
    pl_buf_init(&r->json, &r->alloc, PL_TOKENIZER_BYTES_MAX);
    bool good = pl_train_args_parse(&r->args, argc, argv, &code);
    size_t missing = good && r->args.out != NULL ? first_missing(r->args.out) : 0;
    if (good)
        code = run(r);
    release(r, missing);
    return code;
}
