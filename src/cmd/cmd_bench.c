/* cmd/cmd_bench.c - pelago bench: how fast this machine is, in training and in generating text. */
#include "bench/infer_bench.h"
#include "bench/trainer_bench.h"
#include "cmd/cmd.h"
#include "cmd/options.h"
#include "cmd/text.h"

#include <stdio.h>
#include <string.h>

static const char trainer[] = "bench trainer";

static int run_trainer(struct pl_trainer_bench *b, bool json)
{
    struct pl_trainer_result r;
    struct pl_error err;
    char line[PL_BENCH_LINE_MAX];
    if (pl_model_config_preset(b->model, &b->config, &err) != PELAGO_OK ||
        pl_trainer_bench_run(b, &r, &err) != PELAGO_OK)
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
        {"backend", "NAME", "ref, portable, avx2, avx512, bf16 or amx (default: the best)", PL_OPTION_TEXT,
         &b.backend, 0, 0},
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
    if (pl_model_config_preset(b->model, &b->config, &err) != PELAGO_OK ||
        pl_infer_bench_run(b, &r, &err) != PELAGO_OK)
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

int pl_cmd_bench(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "trainer") == 0)
        return bench_trainer(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "sample") == 0)
        return bench_sample(argc - 1, argv + 1);
    if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        printf(
            "usage: pelago bench trainer|sample [OPTION...]\n\nHow fast this machine trains, and how fast it "
            "generates text; pelago bench trainer --help says more.\n");
        return PL_EXIT_OK;
    }
    return pl_usage_error("bench", "expected what to measure: trainer or sample");
}
