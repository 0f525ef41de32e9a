/* bench/infer_bench.h - how fast this machine generates text with a model of random weights, and how fast it could.
 *
 * A token needs every weight once, so memory sets the limit: bytes of the weights / bytes a second that the same threads
 * read from an array of the same size. Both are measured in turns, in one run, and the share is what counts. A token's
 * time includes choosing it (temperature 0.8, top-p 0.95).
 */
#ifndef PL_BENCH_INFER_BENCH_H
#define PL_BENCH_INFER_BENCH_H

#include "model/config.h"

#include <stddef.h>

struct pl_infer_bench {
    struct pl_model_config config;
    const char *model;   /* the preset's name, for the record */
    const char *backend; /* NULL: the best */
    uint32_t threads;    /* 0: all processors */
    uint32_t tokens;     /* of one text; then the next begins */
    double seconds;      /* at least so long, and at least one text */
};

struct pl_infer_result {
    const char *backend;
    uint32_t threads, tokens;
    uint64_t params, token_bytes;
    double tokens_per_s;      /* of the fastest tenth: neighbours on a shared machine slow the others */
    double tokens_per_s_mean; /* of all */
    double token_ms;          /* of the fastest tenth */
    double pick_ms;           /* of it, choosing the token */
    double read_gb_per_s;     /* 10^9 bytes, of the fastest tenth of the readings */
    double share;             /* of the tokens a second that reading would allow */
};

enum pelago_status pl_infer_bench_run(const struct pl_infer_bench *b, struct pl_infer_result *r,
                                      struct pl_error *err);

/* One line, without its end; PL_INFER_LINE_MAX bytes are always enough. */
enum { PL_INFER_LINE_MAX = 1024 };
void pl_infer_result_json(const struct pl_infer_bench *b, const struct pl_infer_result *r, char *out,
                          size_t cap);
void pl_infer_result_text(const struct pl_infer_bench *b, const struct pl_infer_result *r, char *out,
                          size_t cap);

#endif
