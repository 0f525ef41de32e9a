/* bench/main.c - build/bench_trainer: `pelago bench trainer` as a static program of base, model and optim alone, to be
 * copied to any machine and run there. Always prints one line of JSON. */
#include "bench/trainer_bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int say_usage(void)
{
    fprintf(stderr,
            "usage: bench_trainer [--model PRESET] [--batch N] [--seq N] [--threads N] [--backend NAME]\n"
            "                     [--seconds S] [--recompute] [--json]\n"
            "PRESET is 1m, 5m, 14m, 35m, 124m, 350m or 1b; NAME ref, portable, avx2, avx512, bf16 or amx.\n");
    return 2;
}

static bool read_number(const char *text, double max, double *out)
{
    char *end;
    *out = strtod(text, &end);
    return end != text && *end == '\0' && *out >= 0 && *out <= max;
}

/* One option that has a value. */
static bool set(struct pl_trainer_bench *b, const char *name, const char *value)
{
    uint32_t *whole = strcmp(name, "--batch") == 0     ? &b->batch
                      : strcmp(name, "--seq") == 0     ? &b->seq
                      : strcmp(name, "--threads") == 0 ? &b->threads
                                                       : NULL;
    double number;
    if (strcmp(name, "--model") == 0)
        b->model = value;
    else if (strcmp(name, "--backend") == 0)
        b->backend = value;
    else if (strcmp(name, "--seconds") == 0)
        return read_number(value, 1e6, &b->seconds);
    else if (whole == NULL || !read_number(value, 1e6, &number) || number != (double)(uint32_t)number)
        return false;
    else
        *whole = (uint32_t)number;
    return true;
}

static bool parse(struct pl_trainer_bench *b, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--recompute") == 0)
            b->recompute = true;
        else if (strcmp(argv[i], "--json") == 0)
            continue;
        else if (i + 1 == argc || !set(b, argv[i], argv[i + 1]))
            return false;
        else
            i++;
    }
    return true;
}

int main(int argc, char **argv)
{
    struct pl_trainer_bench b = {.model = "14m", .batch = 8, .seq = 256, .seconds = 5};
    struct pl_trainer_result r;
    struct pl_error err;
    char line[PL_BENCH_LINE_MAX];
    if (!parse(&b, argc, argv))
        return say_usage();
    if (pl_model_config_preset(b.model, &b.config, &err) != PELAGO_OK ||
        pl_trainer_bench_run(&b, &r, &err) != PELAGO_OK) {
        fprintf(stderr, "bench_trainer: %s\n", err.text);
        return 1;
    }
    pl_trainer_result_json(&b, &r, line, sizeof line);
    return puts(line) < 0 || fflush(stdout) != 0;
}
