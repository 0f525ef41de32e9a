/* cmd/cmd_data.c - `pelago data`: tokenizers and token files. A subcommand each, with an option table of its own. */
#include "base/alloc.h"
#include "base/cpu.h"
#include "base/limits.h"
#include "base/num.h"
#include "base/pool.h"
#include "cmd/cmd.h"
#include "cmd/options.h"
#include "cmd/text.h"
#include "cmd/unfinished.h"
#include "cmd/whole_file.h"
#include "data/bpe_train.h"
#include "data/encode.h"
#include "data/tokenizer_train.h"
#include "os/clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define COUNT(array) ((uint32_t)(sizeof(array) / sizeof(array)[0]))

static const char *const *paths_of(const struct pl_words *words)
{
    return (const char *const *)words->at;
}

static double seconds_since(uint64_t start_ns)
{
    return (double)(pl_clock_ns() - start_ns) / (double)PL_SEC;
}

static double megabytes_per_second(uint64_t bytes, double seconds)
{
    return seconds > 0 ? (double)bytes / 1e6 / seconds : 0;
}

/* 0 threads is all processors. NULL after saying so. */
static struct pl_pool *new_pool(const char *command, const struct pl_alloc *alloc, uint32_t threads)
{
    uint32_t all = pl_min32(pl_cpu_count(), PL_POOL_THREADS_MAX);
    struct pl_pool *pool = pl_pool_new(alloc, threads > 0 ? threads : all);
    struct pl_error err;
    if (pool == NULL) {
        (void)pl_fail(&err, PELAGO_NOMEM, "the threads could not be started");
        (void)pl_failure(command, &err);
    }
    return pool;
}

/* ---- a file must not be written over what it is made from ---- */

/* Whether `in`, a file, or a file of that name in the folder `in` is what will be written. */
static bool is_overwritten(const char *out, const char *in, const char *name)
{
    char path[4096];
    int len = snprintf(path, sizeof path, "%s%s%s", in, name[0] != '\0' ? "/" : "", name);
    return len > 0 && (size_t)len < sizeof path && pl_whole_same(out, path);
}

/* PL_EXIT_OK, or the exit code after saying what is wrong. tokenizer may be NULL. */
static int check_out(const char *command, const char *out, const struct pl_words *words,
                     const char *tokenizer)
{
    static const char *const names[] = {"",          "tokenizer.json", "encoder.json",
                                        "vocab.bpe", "vocab.json",     "merges.txt"};
    for (uint32_t i = 0; i < words->count; i++)
        if (is_overwritten(out, words->at[i], ""))
            return pl_usage_error(command, "--out is %s, which is also to be read: give it another name",
                                  pl_text_clip(out).at);
    for (uint32_t i = 0; tokenizer != NULL && i < COUNT(names); i++)
        if (is_overwritten(out, tokenizer, names[i]))
            return pl_usage_error(command, "--out is %s, which is the tokenizer: give it another name",
                                  pl_text_clip(out).at);
    return PL_EXIT_OK;
}

/* ---- tokenizer ---- */

static bool read_kind(const char *name, enum pl_train_kind *kind)
{
    static const char *const names[] = {"bpe", "char", "byte"};
    static const enum pl_train_kind kinds[] = {PL_TRAIN_BPE, PL_TRAIN_CHARS, PL_TRAIN_BYTES};
    for (uint32_t i = 0; i < COUNT(names); i++)
        if (strcmp(name, names[i]) == 0) {
            *kind = kinds[i];
            return true;
        }
    return false;
}

static enum pelago_status train(struct pl_tokenizer_trainer *trainer, const struct pl_alloc *alloc,
                                const struct pl_words *words, const char *out, struct pl_error *err)
{
    struct pl_text_sink sink = pl_tokenizer_trainer_sink(trainer);
    struct pl_tokenizer *t = NULL;
    uint64_t start = pl_clock_ns();
    if (words->count > 0)
        PL_TRY(pl_corpus_read(alloc, paths_of(words), words->count, &sink, err));
    PL_TRY(pl_tokenizer_trainer_finish(trainer, &t, err));
    pl_unfinished_file(out);
    enum pelago_status status = pl_tokenizer_save(t, out, err);
    pl_unfinished_end();
    if (status == PELAGO_OK)
        printf("%s: %" PRIu32 " tokens from %.1f MB of text in %.1f s\n", out, pl_tokenizer_vocab(t),
               (double)pl_tokenizer_trainer_bytes(trainer) / 1e6, seconds_since(start));
    pl_tokenizer_free(t);
    return status;
}

static int cmd_tokenizer(int argc, char **argv)
{
    const char *out = NULL, *kind_name = "bpe";
    uint32_t vocab = 8192, threads = 0;
    const struct pl_option table[] = {
        {"out", "FILE", "the tokenizer.json to write", PL_OPTION_TEXT, &out, 0, 0},
        {"vocab", "N", "tokens of a bpe tokenizer, <|endoftext|> included (default 8192)", PL_OPTION_U32,
         &vocab, PL_BPE_VOCAB_MIN, PL_VOCAB_MAX},
        {"kind", "KIND", "bpe (default), char: the characters of the text, byte: needs no text",
         PL_OPTION_TEXT, &kind_name, 0, 0},
        {"threads", "N", "threads (default: one for each processor)", PL_OPTION_U32, &threads, 1,
         PL_POOL_THREADS_MAX},
    };
    const struct pl_options o = {
        "data tokenizer", "--out FILE [OPTION...] TEXT...",
        "Makes a tokenizer from text: .txt or .jsonl, each perhaps packed as .zst, or - for\n"
        "standard input. Python's tokenizers and transformers load it, too.",
        table, COUNT(table)};
    struct pl_words words;
    enum pl_train_kind kind;
    struct pl_error err = {PELAGO_OK, ""};
    struct pl_alloc alloc = pl_alloc_system();
    int code;
    if (!pl_options_parse(&o, argc, argv, &words, &code))
        return code;
    if (!read_kind(kind_name, &kind))
        return pl_usage_error(o.command, "--kind is '%s', expected bpe, char or byte",
                              pl_text_clip(kind_name).at);
    if (out == NULL)
        return pl_usage_error(o.command, "--out is missing: the file to write");
    if (words.count == 0 && kind != PL_TRAIN_BYTES)
        return pl_usage_error(o.command, "there is no text: name at least one file, or - for standard input");
    if ((code = check_out(o.command, out, &words, NULL)) != PL_EXIT_OK)
        return code;
    struct pl_pool *pool = new_pool(o.command, &alloc, threads);
    if (pool == NULL)
        return PL_EXIT_FAILED;
    struct pl_tokenizer_trainer *trainer = pl_tokenizer_trainer_new(&alloc, pool, kind, vocab);
    enum pelago_status status = trainer != NULL ? train(trainer, &alloc, &words, out, &err)
                                                : pl_fail(&err, PELAGO_NOMEM, "there is not enough memory");
    pl_tokenizer_trainer_free(trainer);
    pl_pool_free(pool);
    return status == PELAGO_OK ? PL_EXIT_OK : pl_failure(o.command, &err);
}

/* ---- encode ---- */

static enum pelago_status encode(const struct pl_alloc *alloc, struct pl_pool *pool,
                                 const struct pl_tokenizer *t, const struct pl_words *words, const char *out,
                                 struct pl_error *err)
{
    struct pl_encode_result r = {0, 0, 0};
    uint64_t start = pl_clock_ns();
    pl_unfinished_file(out);
    enum pelago_status status = pl_encode_files(alloc, t, pool, paths_of(words), words->count, out, &r, err);
    pl_unfinished_end();
    PL_TRY(status);
    double seconds = seconds_since(start);
    printf("%s: %" PRIu64 " tokens of %" PRIu64
           " documents, %.3f bytes a token, %.1f MB in %.2f s, %.1f MB/s with %" PRIu32 " threads\n",
           out, r.tokens, r.documents, (double)r.text_bytes / (double)r.tokens, (double)r.text_bytes / 1e6,
           seconds, megabytes_per_second(r.text_bytes, seconds), pl_pool_threads(pool));
    return PELAGO_OK;
}

static int cmd_encode(int argc, char **argv)
{
    const char *out = NULL, *tokenizer = NULL;
    uint32_t threads = 0;
    const struct pl_option table[] = {
        {"tokenizer", "FILE", "a tokenizer.json, or a folder that holds one or GPT-2's two files",
         PL_OPTION_TEXT, &tokenizer, 0, 0},
        {"out", "FILE", "the token file to write", PL_OPTION_TEXT, &out, 0, 0},
        {"threads", "N", "threads (default: one for each processor)", PL_OPTION_U32, &threads, 1,
         PL_POOL_THREADS_MAX},
    };
    const struct pl_options o = {
        "data encode", "--tokenizer FILE --out FILE.tok TEXT...",
        "Turns text into a token file: .txt with lines <|endoftext|> between documents, .jsonl\n"
        "with a field \"text\", each perhaps packed as .zst, or - for standard input.",
        table, COUNT(table)};
    struct pl_words words;
    struct pl_error err = {PELAGO_OK, ""};
    struct pl_alloc alloc = pl_alloc_system();
    struct pl_tokenizer *t = NULL;
    int code;
    if (!pl_options_parse(&o, argc, argv, &words, &code))
        return code;
    if (tokenizer == NULL || out == NULL)
        return pl_usage_error(o.command, "--%s is missing", tokenizer == NULL ? "tokenizer" : "out");
    if (words.count == 0)
        return pl_usage_error(o.command, "there is no text: name at least one file, or - for standard input");
    if ((code = check_out(o.command, out, &words, tokenizer)) != PL_EXIT_OK)
        return code;
    struct pl_pool *pool = new_pool(o.command, &alloc, threads);
    if (pool == NULL)
        return PL_EXIT_FAILED;
    enum pelago_status status = pl_tokenizer_load(&t, &alloc, tokenizer, &err);
    if (status == PELAGO_OK)
        status = encode(&alloc, pool, t, &words, out, &err);
    pl_tokenizer_free(t);
    pl_pool_free(pool);
    return status == PELAGO_OK ? PL_EXIT_OK : pl_failure(o.command, &err);
}

/* ---- info ---- */

static void print_info(const char *path, const struct pl_tokens_info *i, bool json)
{
    if (json) {
        printf("{\"tokens\": %" PRIu64 ", \"documents\": %" PRIu64 ", \"text_bytes\": %" PRIu64
               ", \"vocab\": %" PRIu32 ", \"token_bytes\": %" PRIu32 ", \"tokenizer_digest\": \"%016" PRIx64
               "\"}\n",
               i->tokens, i->documents, i->text_bytes, i->vocab, i->token_bytes, i->tokenizer_digest);
        return;
    }
    printf("%s\n", path);
    printf("  tokens            %" PRIu64 "\n", i->tokens);
    printf("  documents         %" PRIu64 "\n", i->documents);
    printf("  bytes of text     %" PRIu64 " (%.3f a token)\n", i->text_bytes,
           (double)i->text_bytes / (double)i->tokens);
    printf("  vocabulary        %" PRIu32 "\n", i->vocab);
    printf("  bytes a token     %" PRIu32 "\n", i->token_bytes);
    printf("  tokenizer digest  %016" PRIx64 "\n", i->tokenizer_digest);
    printf("  every block of tokens is whole\n");
}

static int cmd_info(int argc, char **argv)
{
    bool json = false;
    const struct pl_option table[] = {{"json", NULL, "print JSON", PL_OPTION_FLAG, &json, 0, 0}};
    const struct pl_options o = {"data info", "[--json] FILE.tok",
                                 "Says what a token file holds, after checking all of it.", table,
                                 COUNT(table)};
    struct pl_words words;
    struct pl_error err = {PELAGO_OK, ""};
    struct pl_alloc alloc = pl_alloc_system();
    struct pl_tokens *tokens = NULL;
    int code;
    if (!pl_options_parse(&o, argc, argv, &words, &code))
        return code;
    if (words.count != 1)
        return pl_usage_error(o.command, "expected one token file, got %" PRIu32, words.count);
    enum pelago_status status = pl_tokens_open(&tokens, &alloc, words.at[0], &err);
    if (status == PELAGO_OK)
        status = pl_tokens_check(tokens, &err);
    if (status == PELAGO_OK)
        print_info(words.at[0], pl_tokens_info(tokens), json);
    pl_tokens_close(tokens);
    return status == PELAGO_OK ? PL_EXIT_OK : pl_failure(o.command, &err);
}

/* ---- decode ---- */

enum { DECODE_TOKENS = 4096 };

/* The end of a text gets its line back, as `data encode` found it. */
static void print_tokens(const struct pl_tokenizer *t, const int32_t *ids, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct pl_bytes bytes = pl_tokenizer_bytes(t, (uint32_t)ids[i]);
        (void)fwrite(bytes.data, 1, bytes.len, stdout);
        if ((uint32_t)ids[i] == pl_tokenizer_end_of_text(t))
            (void)fputc('\n', stdout);
    }
}

static enum pelago_status decode(struct pl_tokens *tokens, const struct pl_tokenizer *t, uint64_t from,
                                 uint64_t count, struct pl_error *err)
{
    const struct pl_tokens_info *info = pl_tokens_info(tokens);
    int32_t ids[DECODE_TOKENS];
    if (from > info->tokens)
        return pl_fail(err, PELAGO_INVALID, "--from is %lu, but the file has %lu tokens", from, info->tokens);
    if (info->tokenizer_digest != pl_tokenizer_digest(t) || info->vocab != pl_tokenizer_vocab(t))
        return pl_fail(err, PELAGO_INVALID, "the token file was made with another tokenizer");
    count = pl_min64(count, info->tokens - from);
    while (count > 0 && ferror(stdout) == 0) {
        uint64_t n = pl_min64(count, DECODE_TOKENS);
        PL_TRY(pl_tokens_fetch(tokens, from, n, ids, NULL, err));
        print_tokens(t, ids, (size_t)n);
        from += n;
        count -= n;
    }
    return PELAGO_OK;
}

static int cmd_decode(int argc, char **argv)
{
    const char *tokenizer = NULL;
    uint64_t from = 0, count = UINT64_MAX;
    const struct pl_option table[] = {
        {"tokenizer", "FILE", "the tokenizer it was made with", PL_OPTION_TEXT, &tokenizer, 0, 0},
        {"from", "N", "the first token (default 0)", PL_OPTION_COUNT, &from, 0, 0},
        {"count", "N", "how many tokens (default: all)", PL_OPTION_COUNT, &count, 0, 0},
    };
    const struct pl_options o = {
        "data decode", "--tokenizer FILE [OPTION...] FILE.tok",
        "Prints the text of a token file; the line <|endoftext|> stands between documents.", table,
        COUNT(table)};
    struct pl_words words;
    struct pl_error err = {PELAGO_OK, ""};
    struct pl_alloc alloc = pl_alloc_system();
    struct pl_tokenizer *t = NULL;
    struct pl_tokens *tokens = NULL;
    int code;
    if (!pl_options_parse(&o, argc, argv, &words, &code))
        return code;
    if (tokenizer == NULL)
        return pl_usage_error(o.command, "--tokenizer is missing");
    if (words.count != 1)
        return pl_usage_error(o.command, "expected one token file, got %" PRIu32, words.count);
    enum pelago_status status = pl_tokenizer_load(&t, &alloc, tokenizer, &err);
    if (status == PELAGO_OK)
        status = pl_tokens_open(&tokens, &alloc, words.at[0], &err);
    if (status == PELAGO_OK)
        status = decode(tokens, t, from, count, &err);
    bool beyond = tokens != NULL && from > pl_tokens_info(tokens)->tokens;
    pl_tokens_close(tokens);
    pl_tokenizer_free(t);
    if (beyond)
        return pl_refusal(o.command, &err);
    return status == PELAGO_OK ? PL_EXIT_OK : pl_failure(o.command, &err);
}

/* ---- the table ---- */

static const struct {
    const char *name;
    int (*main)(int argc, char **argv);
    const char *help;
} jobs[] = {
    {"tokenizer", cmd_tokenizer, "make a tokenizer from text"},
    {"encode", cmd_encode, "turn text into a token file"},
    {"info", cmd_info, "what a token file holds, and whether it is whole"},
    {"decode", cmd_decode, "print the text of a token file"},
    {"tales", pl_cmd_data_tales, "print stories of the built-in corpus"},
};

static void print_help(void)
{
    printf("usage: pelago data COMMAND [OPTION...]\n\n");
    for (uint32_t i = 0; i < COUNT(jobs); i++)
        printf("  %-10s %s\n", jobs[i].name, jobs[i].help);
    printf("\npelago data COMMAND --help says more.\n");
}

int pl_cmd_data(int argc, char **argv)
{
    if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        print_help();
        return PL_EXIT_OK;
    }
    for (uint32_t i = 0; argc > 1 && i < COUNT(jobs); i++)
        if (strcmp(jobs[i].name, argv[1]) == 0)
            return jobs[i].main(argc - 1, argv + 1);
    if (argc > 1)
        return pl_usage_error("data", "there is no '%s'; see pelago data --help", pl_text_clip(argv[1]).at);
    return pl_usage_error("data",
                          "say what to do: tokenizer, encode, info, decode or tales; see pelago data --help");
}
