/* bench/trainer_bench.h - how fast this machine trains a model: full steps (forward, backward, clipping, AdamW) on
 * random tokens, timed one by one.
 *
 * A step whose loss or gradient is not finite is an error, not a time.
 *
 * Only base, model and optim are used, so that build/bench_trainer, which is this and a main(), is a small static
 * program that runs on any machine it is copied to; `pelago bench trainer` is the same.
 */
#ifndef PL_BENCH_TRAINER_BENCH_H
#define PL_BENCH_TRAINER_BENCH_H

#include "model/model.h"

struct pl_trainer_bench {
    struct pl_model_config config;
    const char *model;   /* the preset's name, for the record */
    const char *backend; /* NULL: the best */
    uint32_t batch, seq, threads;
    double seconds; /* at least so long, and at least 3 steps, after one step to warm up */
    bool recompute;
};

struct pl_trainer_result {
    const char *backend;
    uint32_t threads, steps;
    uint64_t params;
    double
        tokens_per_s; /* of the fastest third of the steps: neighbours on a shared machine slow the others */
    double tokens_per_s_mean; /* of all steps */
    double step_ms;           /* of the fastest third */
    double pass_ms, optim_ms; /* its two parts */
    double tflops;            /* model operations a second at tokens_per_s, in 10^12 */
    double bytes_per_param;   /* all memory the trainer took */
    uint64_t bytes;
    uint64_t
        max_rss_bytes; /* most memory this process ever held, as the system counts it; 0: it does not say */
    double loss_first, loss_last;
};

enum pelago_status pl_trainer_bench_run(const struct pl_trainer_bench *b, struct pl_trainer_result *r,
                                        struct pl_error *err);

/* One line, without its end; PL_BENCH_LINE_MAX bytes are always enough. */
enum { PL_BENCH_LINE_MAX = 1024 };
void pl_trainer_result_json(const struct pl_trainer_bench *b, const struct pl_trainer_result *r, char *out,
                            size_t cap);
void pl_trainer_result_text(const struct pl_trainer_bench *b, const struct pl_trainer_result *r, char *out,
                            size_t cap);

#endif
