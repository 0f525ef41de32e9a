#include "bench/infer_bench.h"

#include "base/check.h"
#include "base/num.h"
#include "base/pool.h"
#include "bench/read.h"
#include "base/block.h"
#include "model/infer.h"
#include "model/sampler.h"

#include <stdio.h>
#include <time.h>

enum {
    TIMES_MAX = 1 << 16,
    READ_BYTES = 1 << 20, /* of one task */
};

/* Durations of one kind of work. */
struct times {
    double s[TIMES_MAX];
    uint32_t count;
};

struct bench {
    const struct pl_infer_bench *b;
    struct pl_alloc alloc;
    struct pl_tensors tensors;
    struct pl_block params, array;
    struct pl_infer *inf;
    struct pl_sampler sampler;
    uint32_t token;
    struct times tokens, picks, reads;
};

static double now_s(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void note(struct times *t, double seconds)
{
    if (t->count < TIMES_MAX)
        t->s[t->count++] = seconds;
}

static double mean(const struct times *t, uint32_t count)
{
    double sum = 0;
    for (uint32_t i = 0; i < count; i++)
        sum += t->s[i];
    return sum / count;
}

/* Shell sort: there are a few thousand. */
static void sort(struct times *t)
{
    for (uint32_t gap = t->count / 2; gap > 0; gap /= 2)
        for (uint32_t i = gap; i < t->count; i++)
            for (uint32_t j = i; j >= gap && t->s[j] < t->s[j - gap]; j -= gap) {
                double x = t->s[j];
                t->s[j] = t->s[j - gap];
                t->s[j - gap] = x;
            }
}

/* Mean of the fastest tenth. */
static double fast_mean(struct times *t)
{
    sort(t);
    return mean(t, (t->count + 9) / 10);
}

/* ---- reading ---- */

struct reading {
    const char *at;
    uint64_t bytes;
    pl_read_fn *read;
    uint64_t sums[PL_POOL_THREADS_MAX]; /* so that the compiler cannot leave the reading out */
};

static void read_task(void *user, uint32_t task, uint32_t thread)
{
    struct reading *r = user;
    uint64_t first = (uint64_t)task * READ_BYTES;
    r->sums[thread] += r->read(r->at + first, pl_min64(READ_BYTES, r->bytes - first));
}

static void read_array(struct bench *x, uint64_t bytes)
{
    struct reading r = {.at = x->array.at, .bytes = bytes, .read = pl_read_choose()};
    double begin = now_s();
    pl_pool_run(pl_infer_pool(x->inf), (uint32_t)((bytes + READ_BYTES - 1) / READ_BYTES), read_task, &r);
    note(&x->reads, now_s() - begin);
}

/* ---- generating ---- */

static void one_token(struct bench *x)
{
    if (pl_infer_position(x->inf) == x->b->tokens)
        pl_infer_rewind(x->inf, 0);
    double begin = now_s();
    const float *logits = pl_infer_step(x->inf, &x->token, 1);
    double middle = now_s();
    x->token = pl_sampler_pick(&x->sampler, logits);
    pl_assert(x->token != PL_NONE32);
    double end = now_s();
    note(&x->tokens, end - begin);
    note(&x->picks, end - middle);
}

static enum pelago_status prepare(struct bench *x, struct pl_error *err)
{
    const struct pl_infer_bench *b = x->b;
    const struct pl_infer_options o = {
        .config = b->config, .backend = b->backend, .threads = b->threads, .context = b->tokens};
    const struct pl_sampler_options how = {.temperature = 0.8, .top_p = 0.95};
    if (pl_tensors_init(&x->tensors, &x->alloc, &b->config) != PELAGO_OK ||
        !pl_block_new(&x->params, &x->alloc, x->tensors.floats * sizeof(float)))
        return pl_fail(err, PELAGO_NOMEM, "there is no memory for %lu parameters.",
                       pl_model_config_params(&b->config));
    pl_tensors_fill(&x->tensors, x->params.at, 1);
    enum pelago_status status = pl_infer_new(&x->inf, &x->alloc, &o, &x->tensors, x->params.at, err);
    pl_block_free(&x->params, &x->alloc);
    PL_TRY(status);
    PL_TRY(pl_sampler_init(&x->sampler, &x->alloc, b->config.vocab, &how, err));
    if (!pl_block_new(&x->array, &x->alloc, pl_infer_token_bytes(x->inf)))
        return pl_fail(err, PELAGO_NOMEM, "there is no memory for an array to read.");
    return PELAGO_OK;
}

/* The pages must be real ones, and different: a page of zeros that was never written is one and the same. */
static void touch(struct bench *x, uint64_t bytes)
{
    uint64_t *p = x->array.at;
    for (uint64_t i = 0; i < bytes / sizeof *p; i++)
        p[i] = i;
}

static void measure(struct bench *x, struct pl_infer_result *r)
{
    const uint64_t bytes = pl_infer_token_bytes(x->inf) / PL_READ_STEP * PL_READ_STEP;
    touch(x, bytes);
    one_token(x);
    read_array(x, bytes);
    x->tokens.count = x->picks.count = x->reads.count = 0;
    for (double begin = now_s(); x->tokens.count < x->b->tokens || now_s() - begin < x->b->seconds;) {
        read_array(x, bytes);
        one_token(x);
    }
    double read_s, token_s;
    r->tokens = x->tokens.count;
    r->tokens_per_s_mean = 1 / mean(&x->tokens, x->tokens.count);
    read_s = fast_mean(&x->reads);
    token_s = fast_mean(&x->tokens);
    r->tokens_per_s = 1 / token_s;
    r->token_ms = token_s * 1e3;
    r->pick_ms = fast_mean(&x->picks) * 1e3;
    r->read_gb_per_s = (double)bytes / read_s * 1e-9;
    r->share = read_s / token_s;
    r->backend = pl_infer_backend(x->inf);
    r->threads = pl_infer_threads(x->inf);
    r->params = x->tensors.params;
    r->token_bytes = pl_infer_token_bytes(x->inf);
}

enum pelago_status pl_infer_bench_run(const struct pl_infer_bench *b, struct pl_infer_result *r,
                                      struct pl_error *err)
{
    struct pl_alloc alloc = pl_alloc_system();
    struct bench *x = pl_alloc_zero(&alloc, 1, sizeof *x);
    if (x == NULL)
        return pl_fail(err, PELAGO_NOMEM, "there is no memory for a benchmark.");
    x->b = b;
    x->alloc = alloc;
    *r = (struct pl_infer_result){0};
    enum pelago_status status = prepare(x, err);
    if (status == PELAGO_OK)
        measure(x, r);
    pl_block_free(&x->array, &alloc);
    pl_sampler_release(&x->sampler);
    pl_infer_free(x->inf);
    pl_block_free(&x->params, &alloc);
    pl_tensors_release(&x->tensors, &alloc);
    pl_alloc_free(&alloc, x, sizeof *x);
    return status;
}

void pl_infer_result_json(const struct pl_infer_bench *b, const struct pl_infer_result *r, char *out,
                          size_t cap)
{
    (void)snprintf(
        out, cap,
        "{\"bench\":\"sample\",\"model\":\"%s\",\"backend\":\"%s\",\"threads\":%u,\"params\":%llu,"
        "\"tokens\":%u,\"tokens_per_s\":%.1f,\"tokens_per_s_mean\":%.1f,\"token_ms\":%.3f,\"pick_ms\":%.3f,"
        "\"token_bytes\":%llu,\"read_gb_per_s\":%.2f,\"share\":%.3f}",
        b->model, r->backend, r->threads, (unsigned long long)r->params, r->tokens, r->tokens_per_s,
        r->tokens_per_s_mean, r->token_ms, r->pick_ms, (unsigned long long)r->token_bytes, r->read_gb_per_s,
        r->share);
}

void pl_infer_result_text(const struct pl_infer_bench *b, const struct pl_infer_result *r, char *out,
                          size_t cap)
{
    (void)snprintf(out, cap,
                   "%s, %s, %u thread%s: %.0f tokens/s, one stream (%.2f ms a token); memory is read at %.1f "
                   "GB/s, which "
                   "would allow %.0f: %.0f%%",
                   b->model, r->backend, r->threads, r->threads == 1 ? "" : "s", r->tokens_per_s, r->token_ms,
                   r->read_gb_per_s, r->tokens_per_s / r->share, r->share * 100);
}
