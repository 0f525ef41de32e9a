/* cmd/bench_tokenizer.c - pelago bench tokenizer: how fast text becomes tokens, from memory to memory.
 *
 * It is the work of `pelago data encode` without files: documents are cut into chunks, shared out to the threads, and their
 * tokens collected. Every pass begins with new encoders, whose tables of known pieces are empty, as that command begins.
 */
#include "cmd/bench_tokenizer.h"

#include "base/cpu.h"
#include "base/num.h"
#include "cmd/cmd.h"
#include "cmd/options.h"
#include "cmd/text.h"
#include "data/encode.h"
#include "os/clock.h"

#include <stdio.h>
#include <time.h>

static const char command[] = "bench tokenizer";

enum { TEXT_MAX = 32 << 20, PASSES_MIN = 3 };

/* Documents one after the other. */
struct text {
    struct pl_buf bytes;
    struct pl_ids ends; /* where documents end */
};

struct bench {
    const struct pl_alloc *alloc;
    struct pl_tokenizer *tokenizer;
    struct pl_pool *pool;
    struct text text;
    struct pl_ids tokens;
    double seconds;
};

struct figures {
    uint32_t passes;
    uint64_t text_bytes, tokens;
    double fastest_s, all_s; /* one pass, and all of them */
    double least_worked_s;   /* of processor, of all threads together, in one pass */
};

/* ---- text ---- */

/* What does not fit any more is dropped. */
static enum pelago_status keep_text(void *user, const uint8_t *bytes, size_t len, struct pl_error *err)
{
    struct text *t = user;
    len = pl_min64(len, TEXT_MAX - t->bytes.len);
    if (pl_buf_append(&t->bytes, bytes, len) != PELAGO_OK)
        return pl_fail(err, PELAGO_NOMEM, "there is no memory for the text");
    return PELAGO_OK;
}

static enum pelago_status keep_end(void *user, struct pl_error *err)
{
    struct text *t = user;
    if (pl_ids_push(&t->ends, (uint32_t)t->bytes.len) != PELAGO_OK)
        return pl_fail(err, PELAGO_NOMEM, "there is no memory for the text");
    return PELAGO_OK;
}

static enum pelago_status feed(const struct text *t, const struct pl_text_sink *sink, struct pl_error *err)
{
    size_t from = 0;
    for (size_t i = 0; i < t->ends.count; i++) {
        PL_TRY(sink->text(sink->user, t->bytes.data + from, t->ends.at[i] - from, err));
        PL_TRY(sink->end(sink->user, err));
        from = t->ends.at[i];
    }
    return PELAGO_OK;
}

/* ---- passes ---- */

/* Of all threads: neighbours on a shared machine do not count, but for the memory they use. */
static double worked_s(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static enum pelago_status one_pass(struct bench *b, struct pl_encode_result *r, struct pl_error *err)
{
    b->tokens.count = 0;
    struct pl_encode *e = pl_encode_new_list(b->alloc, b->tokenizer, b->pool, &b->tokens);
    if (e == NULL)
        return pl_fail(err, PELAGO_NOMEM, "there is no memory to encode text");
    struct pl_text_sink sink = pl_encode_sink(e);
    enum pelago_status status = feed(&b->text, &sink, err);
    if (status == PELAGO_OK)
        status = pl_encode_finish(e, r, err);
    pl_encode_free(e);
    return status;
}

static enum pelago_status measure(struct bench *b, struct figures *f, struct pl_error *err)
{
    struct pl_encode_result r = {0, 0, 0};
    PL_TRY(one_pass(b, &r, err)); /* the list of tokens gets its memory */
    while (f->passes < PASSES_MIN || f->all_s < b->seconds) {
        double worked = worked_s();
        uint64_t begin = pl_clock_ns();
        PL_TRY(one_pass(b, &r, err));
        double took = (double)(pl_clock_ns() - begin) * 1e-9;
        worked = worked_s() - worked;
        if (f->passes == 0 || took < f->fastest_s)
            f->fastest_s = took;
        if (f->passes == 0 || worked < f->least_worked_s)
            f->least_worked_s = worked;
        f->all_s += took;
        f->passes++;
    }
    f->text_bytes = r.text_bytes;
    f->tokens = r.tokens;
    return PELAGO_OK;
}

static enum pelago_status run(struct bench *b, const char *tokenizer, const struct pl_words *words,
                              struct figures *f, struct pl_error *err)
{
    struct pl_text_sink sink = {keep_text, keep_end, &b->text};
    PL_TRY(pl_tokenizer_load(&b->tokenizer, b->alloc, tokenizer, err));
    PL_TRY(pl_corpus_read(b->alloc, (const char *const *)words->at, words->count, &sink, err));
    return measure(b, f, err);
}

static void print(const struct figures *f, uint32_t threads, bool json)
{
    const double mb = (double)f->text_bytes * 1e-6;
    printf(json ? "{\"bench\":\"tokenizer\",\"threads\":%u,\"passes\":%u,\"text_bytes\":%llu,\"tokens\":%llu,"
                  "\"mb_per_s\":%.2f,\"mb_per_s_mean\":%.2f,\"mb_per_core_s\":%.2f}\n"
                : "%u threads, %u passes over %llu bytes, %llu tokens: %.1f MB/s, %.1f in the mean; "
                  "%.1f MB per second of processor\n",
           threads, f->passes, (unsigned long long)f->text_bytes, (unsigned long long)f->tokens,
           mb / f->fastest_s, mb * f->passes / f->all_s, mb / f->least_worked_s);
}

static int bench(const char *tokenizer, const struct pl_words *words, uint32_t threads, double seconds,
                 bool json)
{
    const struct pl_alloc alloc = pl_alloc_system();
    struct bench b = {.alloc = &alloc, .seconds = seconds};
    struct figures f = {0};
    struct pl_error err = {PELAGO_OK, ""};
    pl_buf_init(&b.text.bytes, &alloc, TEXT_MAX);
    pl_ids_init(&b.text.ends, &alloc);
    pl_ids_init(&b.tokens, &alloc);
    b.pool = pl_pool_new(&alloc, threads);
    enum pelago_status status = b.pool != NULL
                                    ? run(&b, tokenizer, words, &f, &err)
                                    : pl_fail(&err, PELAGO_NOMEM, "the threads could not be started");
    if (status == PELAGO_OK)
        print(&f, threads, json);
    pl_pool_free(b.pool);
    pl_ids_release(&b.tokens);
    pl_ids_release(&b.text.ends);
    pl_buf_release(&b.text.bytes);
    pl_tokenizer_free(b.tokenizer);
    return status == PELAGO_OK ? PL_EXIT_OK : pl_failure(command, &err);
}

int pl_cmd_bench_tokenizer(int argc, char **argv)
{
    const char *tokenizer = NULL;
    uint32_t threads = pl_min32(pl_cpu_count(), PL_POOL_THREADS_MAX);
    double seconds = 5;
    bool json = false;
    const struct pl_option table[] = {
        {"tokenizer", "FILE", "a tokenizer.json, or a folder that holds one or GPT-2's two files",
         PL_OPTION_TEXT, &tokenizer, 0, 0},
        {"threads", "N", "threads (default: one for each processor)", PL_OPTION_U32, &threads, 1,
         PL_POOL_THREADS_MAX},
        {"seconds", "S", "how long to measure, at least (default: 5)", PL_OPTION_FLOAT, &seconds, 0, 0},
        {"json", NULL, "print one line of JSON", PL_OPTION_FLAG, &json, 0, 0},
    };
    const struct pl_options options = {
        command, "--tokenizer FILE [OPTION...] TEXT...",
        "Turns text into tokens, again and again, from memory to memory, and says how fast. The first 32 "
        "MiB\n"
        "of the text are used; the fastest pass counts, and beside it the one with the least processor time.",
        table, sizeof table / sizeof table[0]};
    struct pl_words words;
    int code;
    if (!pl_options_parse(&options, argc, argv, &words, &code))
        return code;
    if (tokenizer == NULL)
        return pl_usage_error(command, "--tokenizer is missing");
    if (words.count == 0)
        return pl_usage_error(command, "there is no text: name at least one file");
    return bench(tokenizer, &words, threads, seconds, json);
}
