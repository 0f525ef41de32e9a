/* bench/trainer_bench.c - see trainer_bench.h. The optimizer is set up as train/trainer.c does it, which is not linked here:
 * decay for all but norms, the usual rule, AdamW for every tensor. */
#include "bench/trainer_bench.h"

#include "base/prng.h"
#include "optim/inner.h"

#include <math.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

enum { STEPS_MAX = 4096, STEPS_MIN = 3 };

struct bench {
    const struct pl_trainer_bench *b;
    struct pl_alloc alloc;
    struct pl_model *m;
    struct pl_inner inner;
    struct pl_param_group *groups;
    int32_t *tokens, *targets;
    double pass_s[STEPS_MAX], optim_s[STEPS_MAX];
};

static double now_s(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static uint64_t max_rss_bytes(void)
{
    struct rusage use;
    return getrusage(RUSAGE_SELF, &use) == 0 ? (uint64_t)use.ru_maxrss * 1024 : 0;
}

static void repack(void *user, uint32_t group, uint32_t row0, uint32_t rows)
{
    pl_model_refresh_rows(user, group, row0, rows);
}

static enum pelago_status prepare(struct bench *x, struct pl_error *err)
{
    const struct pl_trainer_bench *b = x->b;
    struct pl_model_options o = {.config = b->config,
                                 .backend = b->backend,
                                 .threads = b->threads,
                                 .batch = b->batch,
                                 .seq = b->seq,
                                 .train = true,
                                 .recompute = b->recompute};
    PL_TRY(pl_model_new(&x->m, &x->alloc, &o, err));
    size_t count = (size_t)b->batch * b->seq;
    x->groups = pl_alloc_zero(&x->alloc, x->m->tensors.count, sizeof *x->groups);
    x->tokens = pl_alloc_zero(&x->alloc, count, sizeof *x->tokens);
    x->targets = pl_alloc_zero(&x->alloc, count, sizeof *x->targets);
    if (x->groups == NULL || x->tokens == NULL || x->targets == NULL)
        return pl_fail(err, PELAGO_NOMEM, "there is no memory for a batch.");
    for (uint32_t i = 0; i < x->m->tensors.count; i++) {
        const struct pl_tensor *t = &x->m->tensors.at[i];
        x->groups[i] = (struct pl_param_group){.offset = t->offset,
                                               .rows = t->rows,
                                               .cols = t->cols,
                                               .kind = PL_INNER_ADAMW,
                                               .decay = t->group != PL_GROUP_NORM,
                                               .lr_scale = 1};
    }
    struct pl_inner_options inner = {.rule = pl_inner_rule_usual(x->m->tensors.params),
                                     .groups = x->groups,
                                     .group_count = x->m->tensors.count,
                                     .floats = x->m->tensors.floats,
                                     .pool = x->m->engine.pool};
    if (pl_inner_init(&x->inner, &x->alloc, &inner) != PELAGO_OK)
        return pl_fail(err, PELAGO_NOMEM, "there is no memory for the optimizer's state.");
    pl_tensors_fill(&x->m->tensors, x->m->params, 1);
    pl_model_refresh(x->m);
    return PELAGO_OK;
}

/* A step that moves nothing is a fast one: it does not count, and neither does what comes after it. */
static enum pelago_status one_step(struct bench *x, struct pl_prng *random, uint32_t step, double *loss,
                                   struct pl_error *err)
{
    const struct pl_trainer_bench *b = x->b;
    size_t count = (size_t)b->batch * b->seq;
    for (size_t i = 0; i < count; i++) {
        x->tokens[i] = (int32_t)pl_prng_below(random, b->config.vocab);
        x->targets[i] = (x->tokens[i] + 1) % (int32_t)b->config.vocab;
    }
    struct pl_batch batch = {b->batch, b->seq, x->tokens, x->targets};
    struct pl_pass pass = {.scale = 1.0f / (float)count};
    struct pl_inner_update update = {
        .params = x->m->params, .grads = x->m->grads, .lr = 1e-3f, .updated = repack, .user = x->m};
    struct pl_inner_report report;
    double begin = now_s(), sum = pl_model_train(x->m, &batch, &pass), middle = now_s();
    enum pelago_status moved = pl_inner_step(&x->inner, &update, &report);
    pl_model_refresh_rest(x->m);
    x->pass_s[step] = middle - begin;
    x->optim_s[step] = now_s() - middle;
    *loss = sum / (double)count;
    PL_TRY(pl_engine_check(&x->m->engine, err));
    if (!isfinite(*loss))
        return pl_fail(err, PELAGO_INVALID,
                       "the loss of a step is not a finite number: nothing was measured.");
    if (moved != PELAGO_OK)
        return pl_fail(err, PELAGO_INVALID, "the gradient of %s is not finite: nothing was measured.",
                       x->m->tensors.at[report.bad_group].name);
    return PELAGO_OK;
}

/* Steps sorted by duration, fastest first; there are few. */
static void sort_steps(struct bench *x, uint32_t steps)
{
    for (uint32_t i = 1; i < steps; i++)
        for (uint32_t j = i; j > 0 && x->pass_s[j] + x->optim_s[j] < x->pass_s[j - 1] + x->optim_s[j - 1];
             j--) {
            double p = x->pass_s[j], o = x->optim_s[j];
            x->pass_s[j] = x->pass_s[j - 1], x->optim_s[j] = x->optim_s[j - 1];
            x->pass_s[j - 1] = p, x->optim_s[j - 1] = o;
        }
}

static void summarise(struct bench *x, uint32_t steps, struct pl_trainer_result *r)
{
    const struct pl_trainer_bench *b = x->b;
    double tokens = (double)b->batch * b->seq, all = 0, pass = 0, optim = 0;
    uint32_t third = (steps + 2) / 3;
    for (uint32_t i = 0; i < steps; i++)
        all += x->pass_s[i] + x->optim_s[i];
    sort_steps(x, steps);
    for (uint32_t i = 0; i < third; i++)
        pass += x->pass_s[i], optim += x->optim_s[i];
    r->backend = x->m->engine.name;
    r->threads = pl_pool_threads(x->m->engine.pool);
    r->steps = steps;
    r->params = x->m->tensors.params;
    r->tokens_per_s = tokens * third / (pass + optim);
    r->tokens_per_s_mean = tokens * steps / all;
    r->pass_ms = pass / third * 1e3;
    r->optim_ms = optim / third * 1e3;
    r->step_ms = r->pass_ms + r->optim_ms;
    r->tflops = r->tokens_per_s * pl_model_config_flops(&b->config, b->seq) * 1e-12;
    r->bytes = pl_model_bytes(x->m) + pl_inner_bytes(&x->inner);
    r->bytes_per_param = (double)r->bytes / (double)r->params;
    r->max_rss_bytes = max_rss_bytes();
}

static enum pelago_status measure(struct bench *x, struct pl_trainer_result *r, struct pl_error *err)
{
    struct pl_prng random;
    uint32_t steps = 0;
    pl_prng_seed(&random, 1, 0);
    PL_TRY(one_step(x, &random, 0, &r->loss_first, err));
    for (double begin = now_s(); steps < STEPS_MAX && (steps < STEPS_MIN || now_s() - begin < x->b->seconds);
         steps++)
        PL_TRY(one_step(x, &random, steps, &r->loss_last, err));
    summarise(x, steps, r);
    return PELAGO_OK;
}

enum pelago_status pl_trainer_bench_run(const struct pl_trainer_bench *b, struct pl_trainer_result *r,
                                        struct pl_error *err)
{
    struct pl_alloc alloc = pl_alloc_system();
    struct bench *x = pl_alloc_zero(&alloc, 1, sizeof *x);
    if (x == NULL)
        return pl_fail(err, PELAGO_NOMEM, "there is no memory for a benchmark.");
    size_t batch_bytes = (size_t)b->batch * b->seq * sizeof *x->tokens;
    x->b = b;
    x->alloc = alloc;
    *r = (struct pl_trainer_result){0};
    enum pelago_status status = prepare(x, err);
    if (status == PELAGO_OK)
        status = measure(x, r, err);
    pl_inner_release(&x->inner);
    if (x->m != NULL)
        pl_alloc_free(&alloc, x->groups, x->m->tensors.count * sizeof *x->groups);
    pl_alloc_free(&alloc, x->tokens, batch_bytes);
    pl_alloc_free(&alloc, x->targets, batch_bytes);
    pl_model_free(x->m);
    pl_alloc_free(&alloc, x, sizeof *x);
    return status;
}
