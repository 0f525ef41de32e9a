/* cmd/cmd_bench.c - pelago bench: how fast this machine is, in training, in generating text, in making tokens, in merging, in
 * encoding and in sending. */
#include "base/cpu.h"
#include "base/num.h"
#include "bench/codec_bench.h"
#include "bench/infer_bench.h"
#include "bench/merge_bench.h"
#include "bench/trainer_bench.h"
#include "cmd/bench_link.h"
#include "cmd/bench_tokenizer.h"
#include "cmd/cmd.h"
#include "cmd/options.h"
#include "cmd/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char trainer[] = "bench trainer";

static int run_trainer(struct pl_trainer_bench *b, bool json)
{
    struct pl_trainer_result r;
    struct pl_error err;
    char line[PL_BENCH_LINE_MAX];
    if (pl_model_config_preset(b->model, &b->config, &err) != PELAGO_OK)
        return pl_refusal(trainer, &err);
    if (pl_trainer_bench_run(b, &r, &err) != PELAGO_OK)
        return pl_failure(trainer, &err);
    (json ? pl_trainer_result_json : pl_trainer_result_text)(b, &r, line, sizeof line);
    puts(line);
    return PL_EXIT_OK;
}

static int bench_trainer(int argc, char **argv)
{
    struct pl_trainer_bench b = {.model = "14m", .batch = 8, .seq = 256, .seconds = 5};
    bool json = false;
    const struct pl_option table[] = {
        {"model", "PRESET", "1m, 5m, 14m, 35m, 124m, 350m or 1b (default: 14m)", PL_OPTION_TEXT, &b.model, 0,
         0},
        {"batch", "N", "sequences of a step (default: 8)", PL_OPTION_U32, &b.batch, 1, PL_BATCH_MAX},
        {"seq", "N", "tokens of a sequence (default: 256)", PL_OPTION_U32, &b.seq, 1, PL_CONTEXT_MAX},
        {"threads", "N", "threads (default: one for each processor)", PL_OPTION_U32, &b.threads, 1,
         PL_POOL_THREADS_MAX},
        {"backend", "NAME", "ref, portable, avx2, avx512, bf16, amx or cuda (default: the best)",
         PL_OPTION_TEXT, &b.backend, 0, 0},
        {"seconds", "S", "how long to measure, at least (default: 5)", PL_OPTION_FLOAT, &b.seconds, 0, 0},
        {"recompute", NULL, "compute activations again on the way back, to save memory", PL_OPTION_FLAG,
         &b.recompute, 0, 0},
        {"json", NULL, "print one line of JSON", PL_OPTION_FLAG, &json, 0, 0},
    };
    const struct pl_options options = {
        trainer, "[OPTION...]",
        "Trains a model on random tokens and says how many it took a second: whole steps,\n"
        "forward, backward, clipping and AdamW. The fastest third of the steps counts.",
        table, sizeof table / sizeof table[0]};
    struct pl_words words;
    int code;
    if (!pl_options_parse(&options, argc, argv, &words, &code))
        return code;
    if (words.count > 0)
        return pl_usage_error(trainer, "unexpected '%s'", pl_text_clip(words.at[0]).at);
    struct pl_error err;
    if (pl_engine_backend_check(b.backend, &err) == PELAGO_INVALID)
        return pl_refusal(trainer, &err);
    return run_trainer(&b, json);
}

static const char sample[] = "bench sample";

static int run_sample(struct pl_infer_bench *b, bool json)
{
    struct pl_infer_result r;
    struct pl_error err;
    char line[PL_INFER_LINE_MAX];
    if (pl_model_config_preset(b->model, &b->config, &err) != PELAGO_OK)
        return pl_refusal(sample, &err);
    if (pl_infer_bench_run(b, &r, &err) != PELAGO_OK)
        return pl_failure(sample, &err);
    (json ? pl_infer_result_json : pl_infer_result_text)(b, &r, line, sizeof line);
    puts(line);
    return PL_EXIT_OK;
}

static int bench_sample(int argc, char **argv)
{
    struct pl_infer_bench b = {.model = "124m", .tokens = 256, .seconds = 5};
    bool json = false;
    const struct pl_option table[] = {
        {"model", "PRESET", "1m, 5m, 14m, 35m, 124m, 350m or 1b (default: 124m)", PL_OPTION_TEXT, &b.model, 0,
         0},
        {"tokens", "N", "tokens of a text (default: 256)", PL_OPTION_U32, &b.tokens, 1, PL_CONTEXT_MAX},
        {"threads", "N", "threads (default: one for each processor)", PL_OPTION_U32, &b.threads, 1,
         PL_POOL_THREADS_MAX},
        {"backend", "NAME", "ref, portable, avx2 or avx512 (default: the best)", PL_OPTION_TEXT, &b.backend,
         0, 0},
        {"seconds", "S", "how long to measure, at least (default: 5)", PL_OPTION_FLOAT, &b.seconds, 0, 0},
        {"json", NULL, "print one line of JSON", PL_OPTION_FLAG, &json, 0, 0},
    };
    const struct pl_options options = {
        sample, "[OPTION...]",
        "Generates text with a model of random weights, one token after the other, and compares with the\n"
        "speed at which the same threads read as many bytes. The fastest tenth counts.",
        table, sizeof table / sizeof table[0]};
    struct pl_words words;
    int code;
    if (!pl_options_parse(&options, argc, argv, &words, &code))
        return code;
    if (words.count > 0)
        return pl_usage_error(sample, "unexpected '%s'", pl_text_clip(words.at[0]).at);
    struct pl_error err;
    if (pl_engine_backend_check(b.backend, &err) == PELAGO_INVALID)
        return pl_refusal(sample, &err);
    return run_sample(&b, json);
}

static const char merge[] = "bench merge";

/* Four fifths of what the system says is there; 2 GB where it does not say. */
static uint64_t memory_to_use(void)
{
    uint64_t kilobytes = 0;
    char line[128];
    FILE *f = fopen("/proc/meminfo", "r");
    while (f != NULL && kilobytes == 0 && fgets(line, sizeof line, f) != NULL)
        (void)sscanf(line, "MemAvailable: %" SCNu64, &kilobytes);
    if (f != NULL)
        (void)fclose(f);
    return kilobytes > 0 ? kilobytes / 5 * 4096 : UINT64_C(2) << 30;
}

static int run_merge(const struct pl_merge_bench *b, bool json)
{
    struct pl_merge_result r;
    struct pl_error err;
    char line[PL_MERGE_LINE_MAX];
    bool missed = false;
    if (pl_merge_bench_run(b, &r, &err) != PELAGO_OK)
        return pl_failure(merge, &err);
    if (!json)
        printf("%u contributions of %.1fM values in %u slices, %u thread%s, %s, %u rounds\n", r.contributions,
               (double)r.values * 1e-6, r.slices, r.threads, r.threads == 1 ? "" : "s", r.cpu, r.rounds);
    for (uint32_t i = 0; i < r.count; i++) {
        (json ? pl_merge_row_json : pl_merge_row_text)(&r, i, line);
        puts(line);
        missed = missed || pl_merge_row_missed(&r, i);
    }
    return missed ? PL_EXIT_FAILED : PL_EXIT_OK;
}

static int bench_merge(int argc, char **argv)
{
    struct pl_merge_bench b = {.contributions = 8, .seconds = 10};
    uint32_t megabytes = 0;
    bool json = false, quick = false;
    const struct pl_option table[] = {
        {"threads", "N", "threads (default: one for each processor)", PL_OPTION_U32, &b.threads, 1,
         PL_POOL_THREADS_MAX},
        {"contributions", "N", "contributions to a merge (default: 8)", PL_OPTION_U32, &b.contributions, 1,
         PL_MERGE_BENCH_CONTRIBUTIONS_MAX},
        {"memory", "MB", "memory to use at most; fewer values where 124M do not fit (default: what is free)",
         PL_OPTION_U32, &megabytes, 1, 0},
        {"seconds", "S", "how long to measure, at least (default: 10)", PL_OPTION_FLOAT, &b.seconds, 0, 0},
        {"short", NULL, "three rounds of at most 512 MB, no bar: that it works", PL_OPTION_FLAG, &quick, 0,
         0},
        {"json", NULL, "print a line of JSON for each row", PL_OPTION_FLAG, &json, 0, 0},
    };
    const struct pl_options options = {
        merge, "[OPTION...]",
        "Merges contributions of 124M values, slice by slice, as a syncer does, and compares with the\n"
        "triad of the same run: two arrays read and one written. Of every slice the fastest round counts.\n"
        "Leaves with 1 where a row misses its bar.",
        table, sizeof table / sizeof table[0]};
    struct pl_words words;
    int code;
    if (!pl_options_parse(&options, argc, argv, &words, &code))
        return code;
    if (words.count > 0)
        return pl_usage_error(merge, "unexpected '%s'", pl_text_clip(words.at[0]).at);
    b.threads = b.threads > 0 ? b.threads : pl_cpu_count();
    b.memory_max = megabytes > 0 ? (uint64_t)megabytes << 20 : memory_to_use();
    b.judge = !quick;
    if (quick) {
        b.memory_max = pl_min64(b.memory_max, UINT64_C(512) << 20);
        b.seconds = 0;
    }
    return run_merge(&b, json);
}

static const char codec[] = "bench codec";

static int run_codec(const struct pl_codec_bench *b, bool json)
{
    struct pl_codec_result r;
    struct pl_error err;
    char line[PL_CODEC_LINE_MAX];
    if (pl_codec_bench_run(b, &r, &err) != PELAGO_OK)
        return pl_failure(codec, &err);
    if (!json) {
        printf("%.1fM values, one thread, %s, triad %.1f GB/s, %u turns\n", (double)r.values * 1e-6, r.cpu,
               r.triad_gb_per_s, r.turns);
        pl_codec_head_text(line);
        puts(line);
    }
    for (uint32_t i = 0; i < r.count; i++) {
        (json ? pl_codec_row_json : pl_codec_row_text)(&r, i, line);
        puts(line);
    }
    return PL_EXIT_OK;
}

static int bench_codec(int argc, char **argv)
{
    struct pl_codec_bench b = {.seconds = 5};
    double selective = 0;
    bool json = false;
    const struct pl_option table[] = {
        {"selective", "X", "hold back blocks that changed less than X times the usual (default: 0)",
         PL_OPTION_FLOAT, &selective, 0, 0},
        {"seconds", "S", "how long to measure, at least (default: 5)", PL_OPTION_FLOAT, &b.seconds, 0, 0},
        {"json", NULL, "print a line of JSON for each codec", PL_OPTION_FLAG, &json, 0, 0},
    };
    const struct pl_options options = {
        codec, "[OPTION...]",
        "What each codec makes of changes of mixed scales: bits a value, also with zstd, the share of the\n"
        "squares that is lost at once, the length of what waits after rounds of error feedback, and speed.",
        table, sizeof table / sizeof table[0]};
    struct pl_words words;
    int code;
    if (!pl_options_parse(&options, argc, argv, &words, &code))
        return code;
    if (words.count > 0)
        return pl_usage_error(codec, "unexpected '%s'", pl_text_clip(words.at[0]).at);
    if (!(selective >= 0 && (float)selective < 1))
        return pl_usage_error(codec, "--selective is %g, expected at least 0 and below 1", selective);
    b.selective = (float)selective;
    return run_codec(&b, json);
}

int pl_cmd_bench(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "trainer") == 0)
        return bench_trainer(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "sample") == 0)
        return bench_sample(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "merge") == 0)
        return bench_merge(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "codec") == 0)
        return bench_codec(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "link") == 0)
        return pl_cmd_bench_link(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "tokenizer") == 0)
        return pl_cmd_bench_tokenizer(argc - 1, argv + 1);
    if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        puts("usage: pelago bench trainer|sample|tokenizer|merge|codec|link [OPTION...]\n\n"
             "How fast this machine trains, generates text, makes tokens, merges, encodes\n"
             "and sends; pelago bench trainer --help says more.");
        return PL_EXIT_OK;
    }
    return pl_usage_error("bench",
                          "expected what to measure: trainer, sample, tokenizer, merge, codec or link");
}
