/* train/trainer.c - see trainer.h. */
#include "train/trainer.h"

#include "base/check.h"
#include "base/fmt.h"
#include "train/trainer_int.h"

#include <math.h>

enum { ACCUMULATE_MAX = 1 << 16 };
static const double smoothing = 0.05; /* share of a new loss in the running average */

/* ---- options ---- */

enum pelago_status pl_trainer_options_check(const struct pl_trainer_options *o, struct pl_error *err)
{
    PL_TRY(pl_model_config_check(&o->config, err));
    PL_TRY(pl_schedule_check(&o->schedule, err));
    PL_TRY(pl_inner_rule_check(&o->rule, err));
    if (o->seq == 0 || o->seq > o->config.context)
        return pl_fail(err, PELAGO_INVALID,
                       "sequences have %u tokens, expected 1 to the model's context of %u", o->seq,
                       o->config.context);
    if (o->batch == 0 || o->batch > PL_BATCH_MAX || (uint64_t)o->batch * o->seq > PL_PASS_TOKENS_MAX)
        return pl_fail(err, PELAGO_INVALID,
                       "a batch has %u sequences of %u tokens, expected at least 1 and at most %lu tokens",
                       o->batch, o->seq, (uint64_t)PL_PASS_TOKENS_MAX);
    if (o->accumulate == 0 || o->accumulate > ACCUMULATE_MAX)
        return pl_fail(err, PELAGO_INVALID, "a step has %u batches, expected 1 to %u", o->accumulate,
                       (unsigned)ACCUMULATE_MAX);
    if (!(o->z_loss >= 0 && o->z_loss <= 1))
        return pl_fail(err, PELAGO_INVALID, "the z-loss is out of range, expected 0 to 1");
    if (o->matrices != PL_INNER_ADAMW && o->matrices != PL_INNER_MUON)
        return pl_fail(err, PELAGO_INVALID, "the optimizer must be adamw or muon");
    return PELAGO_OK;
}

uint64_t pl_trainer_options_tokens(const struct pl_trainer_options *o)
{
    return (uint64_t)o->batch * o->seq * o->accumulate;
}

/* ---- construction ---- */

static void repack(void *user, uint32_t group, uint32_t row0, uint32_t rows)
{
    pl_model_refresh_rows(user, group, row0, rows);
}

static void matmul(void *self, float *c, const float *a, const float *b, uint32_t m, uint32_t n, uint32_t k,
                   bool b_transposed)
{
    struct pl_trainer *t = self;
    struct pl_engine *e = t->products.ops != NULL ? &t->products : &t->model->engine;
    e->ops->matmul(e, c, a, b, m, n, k, b_transposed);
}

static bool polynomial(void *self, float *x, uint32_t r, uint32_t c, const float *poly, uint32_t times)
{
    struct pl_trainer *t = self;
    struct pl_engine *e = &t->model->engine;
    return e->ops->device->polynomial(e, x, r, c, poly, times);
}

static struct pl_param_group group_of(const struct pl_trainer *t, const struct pl_tensor *tensor)
{
    return (struct pl_param_group){.offset = tensor->offset,
                                   .rows = tensor->rows,
                                   .cols = tensor->cols,
                                   .kind = tensor->group == PL_GROUP_MATRIX ? t->options.matrices
                                                                            : PL_INNER_ADAMW,
                                   .decay = tensor->group != PL_GROUP_NORM,
                                   .lr_scale = 1};
}

static enum pelago_status new_inner(struct pl_trainer *t, struct pl_error *err)
{
    const struct pl_tensors *tensors = &t->model->tensors;
    t->groups = pl_alloc_zero(&t->alloc, tensors->count, sizeof *t->groups);
    if (t->groups == NULL)
        return pl_fail(err, PELAGO_NOMEM, "there is no memory for the optimizer");
    for (uint32_t i = 0; i < tensors->count; i++)
        t->groups[i] = group_of(t, &tensors->at[i]);
    struct pl_inner_options o = {.rule = t->options.rule,
                                 .groups = t->groups,
                                 .group_count = tensors->count,
                                 .floats = tensors->floats,
                                 .pool = t->model->engine.pool,
                                 .math = {.matmul = matmul, .self = t}};
    if (t->model->engine.ops->device != NULL && t->options.matrices == PL_INNER_MUON) {
        PL_TRY(pl_engine_init(&t->products, &t->alloc, NULL, t->options.threads, err));
        o.math.polynomial = polynomial;
    }
    if (pl_inner_init(&t->inner, &t->alloc, &o) != PELAGO_OK)
        return pl_fail(err, PELAGO_NOMEM,
                       "the optimizer of %lu parameters needs more memory than the system gives",
                       tensors->params);
    return PELAGO_OK;
}

/* adam_m.NAME and adam_v.NAME, or muon_m.NAME, for every tensor. */
static enum pelago_status name_spans(struct pl_trainer *t, struct pl_error *err)
{
    const struct pl_tensors *tensors = &t->model->tensors;
    t->spans = pl_alloc_zero(&t->alloc, 2 * (size_t)tensors->count, sizeof *t->spans);
    t->names = pl_alloc_zero(&t->alloc, 2 * (size_t)tensors->count, sizeof *t->names);
    if (t->spans == NULL || t->names == NULL)
        return pl_fail(err, PELAGO_NOMEM, "there is no memory for the optimizer");
    for (uint32_t i = 0; i < tensors->count; i++) {
        const struct pl_tensor *tensor = &tensors->at[i];
        float *moments[2] = {pl_inner_m(&t->inner, i), pl_inner_v(&t->inner, i)};
        const char *kinds[2] = {moments[1] != NULL ? "adam_m" : "muon_m", "adam_v"};
        for (unsigned j = 0; j < 2 && moments[j] != NULL; j++) {
            uint32_t at = t->span_count++;
            (void)pl_fmt(t->names[at], sizeof t->names[at], "%s.%s", kinds[j], tensor->name);
            t->spans[at] = (struct pl_named_span){t->names[at], tensor->rows, tensor->cols, moments[j]};
        }
    }
    return PELAGO_OK;
}

static enum pelago_status build(struct pl_trainer *t, struct pl_error *err)
{
    const struct pl_trainer_options *o = &t->options;
    struct pl_model_options model = {.config = o->config,
                                     .backend = o->backend,
                                     .threads = o->threads,
                                     .batch = o->batch,
                                     .seq = o->seq,
                                     .train = true,
                                     .recompute = o->recompute};
    size_t count = (size_t)o->batch * o->seq;
    PL_TRY(pl_trainer_options_check(o, err));
    PL_TRY(pl_model_new(&t->model, &t->alloc, &model, err));
    PL_TRY(new_inner(t, err));
    PL_TRY(name_spans(t, err));
    t->tokens = pl_alloc_zero(&t->alloc, count, sizeof *t->tokens);
    t->targets = pl_alloc_zero(&t->alloc, count, sizeof *t->targets);
    if (t->tokens == NULL || t->targets == NULL)
        return pl_fail(err, PELAGO_NOMEM, "there is no memory for a batch of %u x %u tokens", o->batch,
                       o->seq);
    pl_tensors_fill(&t->model->tensors, t->model->params, o->seed);
    pl_model_refresh(t->model);
    return PELAGO_OK;
}

enum pelago_status pl_trainer_new(struct pl_trainer **out, const struct pl_alloc *alloc,
                                  const struct pl_trainer_options *options, struct pl_error *err)
{
    *out = NULL;
    struct pl_trainer *t = pl_alloc_zero(alloc, 1, sizeof *t);
    if (t == NULL)
        return pl_fail(err, PELAGO_NOMEM, "there is no memory for a trainer");
    t->alloc = *alloc;
    t->options = *options;
    enum pelago_status st = build(t, err);
    if (st != PELAGO_OK) {
        pl_trainer_free(t);
        return st;
    }
    *out = t;
    return PELAGO_OK;
}

void pl_trainer_free(struct pl_trainer *t)
{
    if (t == NULL)
        return;
    struct pl_alloc alloc = t->alloc;
    size_t batch_bytes = (size_t)t->options.batch * t->options.seq * sizeof *t->tokens;
    uint32_t tensors = t->model != NULL ? t->model->tensors.count : 0;
    pl_alloc_free(&alloc, t->tokens, batch_bytes);
    pl_alloc_free(&alloc, t->targets, batch_bytes);
    pl_alloc_free(&alloc, t->spans, 2 * (size_t)tensors * sizeof *t->spans);
    pl_alloc_free(&alloc, t->names, 2 * (size_t)tensors * sizeof *t->names);
    pl_inner_release(&t->inner);
    if (t->products.ops != NULL)
        pl_engine_release(&t->products);
    pl_alloc_free(&alloc, t->groups, tensors * sizeof *t->groups);
    pl_model_free(t->model);
    pl_alloc_free(&alloc, t, sizeof *t);
}

uint64_t pl_trainer_bytes(const struct pl_trainer *t)
{
    return pl_model_bytes(t->model) + pl_inner_bytes(&t->inner);
}

/* ---- a step ---- */

enum pelago_status pl_batch_check(const struct pl_batch *b, uint32_t vocab, struct pl_error *err)
{
    size_t count = (size_t)b->batch * b->seq;
    for (size_t i = 0; i < count; i++) {
        int32_t bad = (uint32_t)b->tokens[i] >= vocab ? b->tokens[i] : b->targets[i];
        if ((uint32_t)b->tokens[i] >= vocab || (b->targets[i] >= 0 && (uint32_t)b->targets[i] >= vocab))
            return pl_fail(
                err, PELAGO_INVALID,
                "the data holds token %u, but the model's vocabulary has %u: it belongs to another "
                "tokenizer",
                (unsigned)bad, vocab);
    }
    return PELAGO_OK;
}

/* Of the step at hand or of the one before it: what is broken stays broken. */
static enum pelago_status check_engines(const struct pl_trainer *t, struct pl_error *err)
{
    struct pl_error why;
    enum pelago_status st = pl_engine_check(&t->model->engine, &why);
    if (st == PELAGO_OK)
        st = pl_engine_check(&t->products, &why);
    return st == PELAGO_OK ? st : pl_fail(err, st, "step %lu failed: %s", t->progress.step + 1, why.text);
}

/* Gradients of one step are in the model afterwards, the sum of its losses in *loss. */
static enum pelago_status pass_batches(struct pl_trainer *t, const struct pl_sequences *source, double *loss,
                                       struct pl_error *err)
{
    const struct pl_trainer_options *o = &t->options;
    struct pl_batch batch = {o->batch, o->seq, t->tokens, t->targets};
    struct pl_pass pass = {.scale = (float)(1.0 / (double)pl_trainer_options_tokens(o)),
                           .z_loss = o->z_loss,
                           .user = t->hooks.user};
    *loss = 0;
    for (uint32_t i = 0; i < o->accumulate; i++) {
        uint64_t first = t->progress.sequence + (uint64_t)i * o->batch;
        PL_TRY(source->fetch(source->self, first, o->batch, o->seq, t->tokens, t->targets, err));
        PL_TRY(pl_batch_check(&batch, o->config.vocab, err));
        pass.accumulate = i > 0;
        pass.graded = i + 1 == o->accumulate ? t->hooks.graded : NULL;
        *loss += pl_model_train(t->model, &batch, &pass);
        PL_TRY(check_engines(t, err));
    }
    if (!isfinite(*loss))
        return pl_fail(
            err, PELAGO_INVALID,
            "the loss of step %lu is not a finite number: try a lower learning rate or a longer warm-up",
            t->progress.step + 1);
    return PELAGO_OK;
}

static enum pelago_status move_params(struct pl_trainer *t, float lr, struct pl_inner_report *report,
                                      struct pl_error *err)
{
    struct pl_inner_update update = {
        .params = t->model->params, .grads = t->model->grads, .lr = lr, .updated = repack, .user = t->model};
    if (pl_inner_step(&t->inner, &update, report) != PELAGO_OK) {
        pl_assert(report->bad_group < t->model->tensors.count);
        return pl_fail(
            err, PELAGO_INVALID,
            "the gradient of %s in step %lu is not finite: try a lower learning rate or a longer warm-up",
            t->model->tensors.at[report->bad_group].name, t->progress.step + 1);
    }
    pl_model_refresh_rest(t->model);
    return PELAGO_OK;
}

void pl_trainer_join(struct pl_trainer *t)
{
    t->late = t->inner.step < PL_LATE_STEPS && pl_schedule_is_warm(&t->options.schedule, t->progress.clock);
}

/* From a quarter on: the syncer measures contributions by rate and steps (host/syncer_guard.c), and should not take the first
 * ones of a whole crowd of late ones for the usual length. */
static float share_of_rate(const struct pl_trainer *t)
{
    uint64_t step = t->inner.step;
    return t->late && step < PL_LATE_STEPS ? 0.25f + 0.75f * (float)(step + 1) / (float)PL_LATE_STEPS : 1.0f;
}

enum pelago_status pl_trainer_step(struct pl_trainer *t, const struct pl_sequences *source,
                                   struct pl_step_report *report, struct pl_error *err)
{
    struct pl_progress *p = &t->progress;
    struct pl_inner_report inner;
    uint64_t tokens = pl_trainer_options_tokens(&t->options);
    double sum;
    PL_TRY(pass_batches(t, source, &sum, err));
    float lr = share_of_rate(t) * pl_schedule_lr(&t->options.schedule, p->clock + tokens);
    if (t->hooks.reduce != NULL && !t->hooks.reduce(t->hooks.user))
        return pl_fail(err, PELAGO_STALE, "step %lu was given up", p->step + 1);
    if (t->hooks.moving != NULL)
        t->hooks.moving(t->hooks.user);
    enum pelago_status moved = move_params(t, lr, &inner, err);
    if (t->hooks.standing != NULL)
        t->hooks.standing(t->hooks.user);
    if (moved != PELAGO_OK) {
        pl_model_refresh(t->model); /* moving() may have changed what the optimizer then left alone */
        return moved;
    }
    double loss = sum / (double)tokens;
    *report = (struct pl_step_report){
        .tokens = tokens, .loss = loss, .norm = inner.norm, .lr = lr, .clipped = inner.grad_scale < 1};
    p->smooth = p->tokens == 0 ? loss : p->smooth + smoothing * (loss - p->smooth);
    p->step++;
    p->tokens += tokens;
    p->clock += tokens;
    p->sequence += (uint64_t)t->options.batch * t->options.accumulate;
    return PELAGO_OK;
}
