/* cmd/cmd_sample.c - pelago sample: text that a model goes on with, shown as it comes.
 *
 * The text begins after <|endoftext|>, where the tokenizer has it, because that is what stands before every text that
 * was trained on. It ends at the next one, at --tokens, at --context, or at Ctrl-C.
 */
#include "cmd/cmd.h"

#include "base/num.h"
#include "base/pool.h"
#include "cmd/options.h"
#include "cmd/text.h"
#include "cmd/weights.h"
#include "data/tokenizer.h"
#include "model/engine.h"
#include "model/infer.h"
#include "model/sampler.h"
#include "os/clock.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

static const char command[] = "sample";
enum { PROMPT_BYTES_MAX = 16 << 20, PIECE_BYTES_MAX = 1 << 20 };

struct sample {
    const char *from, *prompt, *backend;
    uint64_t step, seed;
    uint32_t tokens, count, threads;
    uint32_t context; /* most tokens of a text with its prompt */
    uint32_t longest; /* the model's context */
    bool as_trained;  /* context is what the model was trained with, not what was asked for or all there is */
    struct pl_sampler_options how;
    struct pl_alloc alloc;
    struct pl_posix_dir *dir;
    struct pl_weights weights;
    struct pl_buf text; /* the prompt; then pieces of what comes */
    struct pl_tokenizer *tokenizer;
    struct pl_ids ids; /* the prompt's tokens */
    struct pl_infer *inf;
    struct pl_sampler sampler;
    bool careful;                 /* stdout is a terminal */
    uint8_t last;                 /* byte shown */
    uint64_t made, steps;         /* tokens; passes for one of them */
    uint64_t steps_ns, prompt_ns; /* time of those, and of prompts */
    struct pl_error err;
};

/* ---- Ctrl-C ---- */

static volatile sig_atomic_t interrupted; /* the signal's number */

static void on_signal(int number)
{
    if (interrupted != 0)
        _exit(128 + number);
    interrupted = number;
}

static void listen(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    (void)sigemptyset(&action.sa_mask);
    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
}

/* ---- getting ready ---- */

static enum pelago_status read_stdin(struct sample *s)
{
    size_t n;
    do {
        PL_TRY(pl_buf_reserve(&s->text, 4096));
        n = fread(s->text.data + s->text.len, 1, 4096, stdin);
        s->text.len += n;
    } while (n > 0);
    if (ferror(stdin))
        return pl_fail(&s->err, PELAGO_IO, "the prompt could not be read from the standard input");
    if (s->text.len > 0 && s->text.data[s->text.len - 1] == '\n')
        s->text.len--;
    return PELAGO_OK;
}

static enum pelago_status read_prompt(struct sample *s)
{
    enum pelago_status st;
    if (strcmp(s->prompt, "-") == 0)
        st = read_stdin(s);
    else
        st = pl_buf_append(&s->text, s->prompt, strlen(s->prompt));
    if (st == PELAGO_LIMIT)
        return pl_fail(&s->err, st, "the prompt is longer than %u MB", PROMPT_BYTES_MAX >> 20);
    return st;
}

/* Of positions it was not trained for a model knows nothing: beyond them it writes only who asks for it. */
static enum pelago_status choose_context(struct sample *s)
{
    uint32_t trained = s->weights.seq;
    s->longest = s->weights.config.context;
    if (s->context > s->longest)
        return pl_fail(&s->err, PELAGO_INVALID, "--context is %u, but the model's context is %u", s->context,
                       s->longest);
    s->as_trained = s->context == 0 && trained > 0 && trained < s->longest;
    if (s->context == 0)
        s->context = trained > 0 ? trained : s->longest;
    return PELAGO_OK;
}

static enum pelago_status load(struct sample *s)
{
    PL_TRY(pl_posix_dir_open(&s->dir, &s->alloc, s->from, PL_POSIX_DIR_EXISTING, &s->err));
    PL_TRY(pl_weights_load(&s->weights, pl_posix_dir_table(s->dir), s->step, &s->err));
    PL_TRY(choose_context(s));
    return pl_weights_tokenizer(&s->weights, &s->tokenizer, &s->err);
}

/* What a text begins with: <|endoftext|>, or at least a token that may be anywhere. */
static enum pelago_status push_start(struct sample *s, struct pl_encoder *e)
{
    uint32_t end = pl_tokenizer_end_of_text(s->tokenizer);
    if (end != PL_NONE32)
        return pl_ids_push(&s->ids, end);
    return s->text.len > 0 ? PELAGO_OK : pl_encoder_run(e, "\n", 1, PL_SPECIALS_AS_TEXT, &s->ids, &s->err);
}

static enum pelago_status encode(struct sample *s)
{
    struct pl_encoder *e = pl_encoder_new(&s->alloc, s->tokenizer);
    enum pelago_status st = e != NULL ? push_start(s, e) : PELAGO_NOMEM;
    if (st == PELAGO_OK && s->text.len > 0)
        st = pl_encoder_run(e, s->text.data, s->text.len, PL_SPECIALS_FIND, &s->ids, &s->err);
    pl_encoder_free(e);
    return st;
}

static enum pelago_status refuse_length(struct sample *s)
{
    uint64_t count = s->ids.count;
    if (count > s->longest)
        return pl_fail(&s->err, PELAGO_LIMIT,
                       "the prompt has %lu tokens, but the model's context has room for %u", count,
                       s->longest);
    if (s->as_trained)
        return pl_fail(&s->err, PELAGO_LIMIT,
                       "the prompt has %lu tokens, but the model was trained with sequences of %u: --context "
                       "%u lets it read on",
                       count, s->context, s->longest);
    return pl_fail(&s->err, PELAGO_LIMIT, "the prompt has %lu tokens, more than --context %u", count,
                   s->context);
}

static enum pelago_status check_ids(struct sample *s)
{
    const struct pl_model_config *c = &s->weights.config;
    if (s->ids.count == 0)
        return pl_fail(&s->err, PELAGO_INVALID, "the prompt has no tokens");
    if (s->ids.count > s->context)
        return refuse_length(s);
    for (size_t i = 0; i < s->ids.count; i++)
        if (s->ids.at[i] >= c->vocab)
            return pl_fail(&s->err, PELAGO_INVALID,
                           "the tokenizer gives token %u, but the model's vocabulary has %u: they do not "
                           "belong together",
                           s->ids.at[i], c->vocab);
    return PELAGO_OK;
}

static enum pelago_status build(struct sample *s)
{
    const struct pl_model_config c = s->weights.config;
    const struct pl_infer_options o = {.config = c,
                                       .backend = s->backend,
                                       .threads = s->threads,
                                       .context = (uint32_t)pl_min64(s->context, s->ids.count + s->tokens)};
    PL_TRY(pl_infer_new(&s->inf, &s->alloc, &o, &s->weights.tensors, s->weights.params, &s->err));
    pl_weights_release(&s->weights);
    /* A vocabulary may be padded: what has no token must not come. */
    return pl_sampler_init(&s->sampler, &s->alloc, pl_min32(c.vocab, pl_tokenizer_vocab(s->tokenizer)),
                           &s->how, &s->err);
}

static enum pelago_status prepare(struct sample *s)
{
    if (s->prompt != NULL)
        PL_TRY(read_prompt(s));
    PL_TRY(load(s));
    PL_TRY(encode(s));
    PL_TRY(check_ids(s));
    return build(s);
}

/* ---- writing ---- */

/* A terminal must not obey what a model says: control characters, those of one byte and those of two, become ?. */
static void defuse(uint8_t *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        bool plain = text[i] >= 0x20 && text[i] != 0x7f;
        bool two = text[i] == 0xc2 && i + 1 < len && text[i + 1] < 0xa0;
        if (two)
            text[i + 1] = '?';
        if (two || (!plain && text[i] != '\n' && text[i] != '\t'))
            text[i] = '?';
    }
}

/* Shows what is in the buffer and empties it. False when nobody takes it, which is said at the end (main.c). */
static bool show(struct sample *s)
{
    size_t len = s->text.len;
    s->text.len = 0;
    if (len == 0)
        return true;
    s->last = s->text.data[len - 1];
    if (s->careful)
        defuse(s->text.data, len);
    return fwrite(s->text.data, 1, len, stdout) == len && fflush(stdout) == 0;
}

/* The rest of the text, and the end of a line where it has none. */
static enum pelago_status finish_text(struct sample *s, struct pl_decoder *d)
{
    PL_TRY(pl_decoder_finish(d, &s->text));
    uint8_t last = s->text.len > 0 ? s->text.data[s->text.len - 1] : s->last;
    if (last != '\n')
        PL_TRY(pl_buf_append(&s->text, "\n", 1));
    (void)show(s);
    return PELAGO_OK;
}

/* The prompt, and a line before it from the second text on. */
static enum pelago_status begin_text(struct sample *s, uint32_t number)
{
    struct pl_decoder d = {.held_len = 0};
    uint32_t end = pl_tokenizer_end_of_text(s->tokenizer);
    s->text.len = 0;
    s->last = '\0';
    if (number > 0)
        printf("---\n");
    for (size_t i = 0; s->prompt != NULL && i < s->ids.count; i++)
        if (i > 0 || s->ids.at[i] != end)
            PL_TRY(pl_decoder_push(&d, s->tokenizer, s->ids.at[i], &s->text));
    return pl_decoder_finish(&d, &s->text);
}

/* ---- generating ---- */

static void say_full(const struct sample *s)
{
    if (s->as_trained)
        fprintf(stderr,
                "pelago sample: the text ends at %u tokens, the length the model was trained with; --context "
                "%u lets it go on.\n",
                s->context, s->longest);
    else
        fprintf(stderr, "pelago sample: the %scontext of %u tokens is full.\n",
                s->context == s->longest ? "model's " : "", s->context);
}

/* The prompt is read once: later texts only need its last token again. */
static const float *read_tokens(struct sample *s, uint32_t number)
{
    uint32_t count = (uint32_t)s->ids.count, known = number > 0 ? count - 1 : 0;
    uint64_t begin = pl_clock_ns();
    pl_infer_rewind(s->inf, known);
    const float *logits = pl_infer_step(s->inf, s->ids.at + known, count - known);
    s->prompt_ns += pl_clock_ns() - begin;
    return logits;
}

static enum pelago_status go_on(struct sample *s, const float *logits)
{
    struct pl_decoder d = {.held_len = 0};
    uint32_t end = pl_tokenizer_end_of_text(s->tokenizer), made = 0;
    bool full = false;
    while (interrupted == 0) {
        uint32_t token = pl_sampler_pick(&s->sampler, logits);
        if (token == PL_NONE32)
            return pl_fail(&s->err, PELAGO_INVALID,
                           "the model's output is not a number: its weights are damaged");
        if (token == end)
            break;
        made++;
        s->made++;
        PL_TRY(pl_decoder_push(&d, s->tokenizer, token, &s->text));
        if (!show(s) || made == s->tokens)
            break;
        full = pl_infer_position(s->inf) == pl_infer_context(s->inf);
        if (full)
            break;
        logits = pl_infer_step(s->inf, &token, 1);
        s->steps++;
    }
    PL_TRY(finish_text(s, &d));
    if (full)
        say_full(s);
    return PELAGO_OK;
}

static enum pelago_status generate(struct sample *s)
{
    for (uint32_t i = 0; i < s->count && interrupted == 0; i++) {
        PL_TRY(begin_text(s, i));
        if (!show(s))
            break;
        pl_sampler_seed(&s->sampler, s->seed, i);
        const float *logits = read_tokens(s, i);
        uint64_t begin = pl_clock_ns();
        enum pelago_status st = go_on(s, logits);
        s->steps_ns += pl_clock_ns() - begin;
        PL_TRY(st);
    }
    return PELAGO_OK;
}

static void report(const struct sample *s)
{
    fprintf(stderr, "pelago sample: %llu token%s", (unsigned long long)s->made, s->made == 1 ? "" : "s");
    if (s->steps > 0 && s->steps_ns > 0)
        fprintf(stderr, ", %.1f tokens/s with %u thread%s", (double)s->steps / ((double)s->steps_ns * 1e-9),
                pl_infer_threads(s->inf), pl_infer_threads(s->inf) == 1 ? "" : "s");
    if (s->prompt != NULL)
        fprintf(stderr, "; the prompt's %llu took %.2f s", (unsigned long long)s->ids.count,
                (double)s->prompt_ns * 1e-9);
    fprintf(stderr, ".\n");
}

/* Returns the exit code. */
static int fail(const struct sample *s)
{
    if (s->longest > 0 && s->context > s->longest)
        return pl_refusal(command, &s->err);
    return s->dir == NULL ? pl_failure(command, &s->err) : pl_failure_at(command, s->from, s->dir, &s->err);
}

static int run(struct sample *s)
{
    s->alloc = pl_alloc_system();
    s->careful = isatty(STDOUT_FILENO) == 1;
    s->weights.alloc = s->alloc;
    pl_buf_init(&s->weights.tokenizer, &s->alloc, 0);
    pl_buf_init(&s->text, &s->alloc, PROMPT_BYTES_MAX + PIECE_BYTES_MAX);
    pl_ids_init(&s->ids, &s->alloc);
    listen();
    enum pelago_status st = prepare(s);
    if (st == PELAGO_OK)
        st = generate(s);
    if (st == PELAGO_OK)
        report(s);
    else if (s->err.text[0] == '\0')
        (void)pl_fail(&s->err, st, "%s", pl_status_text(st));
    int code = interrupted != 0 ? 128 + interrupted : PL_EXIT_OK;
    if (st != PELAGO_OK)
        code = fail(s);
    pl_sampler_release(&s->sampler);
    pl_infer_free(s->inf);
    pl_ids_release(&s->ids);
    pl_tokenizer_free(s->tokenizer);
    pl_buf_release(&s->text);
    pl_weights_release(&s->weights);
    pl_posix_dir_close(s->dir);
    return code;
}

int pl_cmd_sample(int argc, char **argv)
{
    struct sample s = {
        .step = PL_NONE64, .seed = 1, .tokens = 200, .count = 1, .how = {.temperature = 0.8, .top_p = 0.95}};
    const struct pl_option table[] = {
        {"prompt", "TEXT", "what to go on with; - reads it from the standard input (default: a new text)",
         PL_OPTION_ANY_TEXT, &s.prompt, 0, 0},
        {"tokens", "N", "tokens of a text at most (default: 200)", PL_OPTION_U32, &s.tokens, 1,
         PL_CONTEXT_MAX},
        {"context", "N",
         "tokens of a text with its prompt at most (default: as the model was trained with; of an imported "
         "one its context)",
         PL_OPTION_U32, &s.context, 1, PL_CONTEXT_MAX},
        {"temperature", "X", "0 takes the likeliest token always, 1 follows the model (default: 0.8)",
         PL_OPTION_FLOAT, &s.how.temperature, 0, 0},
        {"top-p", "X", "only the likeliest tokens, as few as have this probability (default: 0.95)",
         PL_OPTION_FLOAT, &s.how.top_p, 0, 0},
        {"top-k", "N", "only the N likeliest tokens (default: all)", PL_OPTION_U32, &s.how.top_k, 1,
         PL_VOCAB_MAX},
        {"min-p", "X", "only tokens with this share of the likeliest one's probability (default: 0)",
         PL_OPTION_FLOAT, &s.how.min_p, 0, 0},
        {"seed", "N", "the same seed gives the same text (default: 1)", PL_OPTION_U64, &s.seed, 0, 0},
        {"count", "N", "texts to make (default: 1)", PL_OPTION_U32, &s.count, 1, 1000000},
        {"step", "N", "the checkpoint of this step (default: the newest)", PL_OPTION_U64, &s.step, 0,
         PL_COUNT_MAX},
        {"threads", "N", "threads (default: one for each processor)", PL_OPTION_U32, &s.threads, 1,
         PL_POOL_THREADS_MAX},
        {"backend", "NAME", "ref, portable, avx2 or avx512 (default: the best)", PL_OPTION_TEXT, &s.backend,
         0, 0},
    };
    const struct pl_options options = {
        command, "FOLDER [OPTION...]",
        "Lets a model write: one of a folder of checkpoints, or a Hugging Face folder. A text ends at\n"
        "<|endoftext|>, at --tokens, or at --context: a model knows nothing of positions it was not trained "
        "for.\n"
        "Ctrl-C ends it, too, and leaves with 130.",
        table, sizeof table / sizeof table[0]};
    struct pl_words words;
    int code;
    if (!pl_options_parse(&options, argc, argv, &words, &code))
        return code;
    if (words.count != 1)
        return pl_usage_error(command, "expected one folder with a model");
    if (pl_sampler_options_check(&s.how, &s.err) != PELAGO_OK)
        return pl_usage_error(command, "%s", s.err.text);
    if (pl_engine_backend_check(s.backend, &s.err) == PELAGO_INVALID)
        return pl_refusal(command, &s.err);
    s.from = words.at[0];
    return run(&s);
}
