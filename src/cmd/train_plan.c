/* cmd/train_plan.c - from what was asked for to the settings of a run: presets, defaults, and checkpoints; see
 * train_args.h. */
#include "base/fmt.h"
#include "base/num.h"
#include "cmd/train_args.h"
#include "train/dataset.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { VOCAB_UNIT = 32 };
static const uint64_t default_tokens = 10000000, default_eval_tokens = 100000;

/* What goes well with a model of up to so many parameters, beside pl_inner_rule_usual. */
static const struct {
    uint64_t params;
    uint32_t batch, seq, accumulate;
    float lr;
} sizes[] = {
    {2000000, 16, 256, 1, 4e-3f},     {9000000, 16, 256, 1, 2e-3f},  {20000000, 16, 256, 1, 1e-3f},
    {60000000, 32, 256, 1, 1e-3f},    {200000000, 8, 512, 4, 6e-4f}, {600000000, 8, 512, 8, 3e-4f},
    {UINT64_MAX, 4, 1024, 16, 2e-4f},
};

static unsigned size_of(const struct pl_model_config *c)
{
    unsigned i = 0;
    while (pl_model_config_params(c) > sizes[i].params)
        i++;
    return i;
}

/* Scouted, docs/merge.md: with Muon 0.008 is within 0.3% of the best for steps of 8 to 64 sequences of 1m, whoever takes
 * them. */
static float optimizer_rate(const struct pl_trainer_options *o)
{
    return o->matrices == PL_INNER_MUON ? 2 : 1;
}

/* With AdamW about 0.0018, 0.002, 0.0025, 0.003 and 0.0035 were best for steps of 4, 8, 16, 32 and 64 sequences of 1m; where
 * one number of sequences was scouted with two numbers of learners, the rate was the same (docs/merge.md). */
float pl_train_plan_learner_rate(const struct pl_trainer_options *o, uint32_t trainers)
{
    unsigned size = size_of(&o->config);
    if (o->matrices == PL_INNER_MUON)
        return sizes[size].lr * optimizer_rate(o);
    double usual = (double)sizes[size].batch * sizes[size].accumulate * sizes[size].seq;
    double step = (double)pl_trainer_options_tokens(o) * trainers;
    return sizes[size].lr * 0.63f * (float)pow(step / usual, 0.25);
}

/* Sixteen to 32 sequences of all learners together were best for 1m, whatever their number, and the published law lets that sum
 * grow with the third root of it (docs/merge.md): a learner's share falls with the two thirds. */
static void choose_batch(struct pl_trainer_options *o, unsigned size, uint32_t sharers)
{
    double share = sizes[size].batch * sizes[size].accumulate * pow(sharers, -2.0 / 3);
    uint32_t sequences = pl_max32(1, (uint32_t)lround(share));
    o->accumulate = (sequences + sizes[size].batch - 1) / sizes[size].batch;
    o->batch = (sequences + o->accumulate - 1) / o->accumulate;
}

/* ---- the model ---- */

static bool has_shape(const struct pl_model_config *dims)
{
    return dims->layers > 0 || dims->width > 0 || dims->heads > 0 || dims->kv_heads > 0 ||
           dims->head_dim > 0 || dims->hidden > 0;
}

/* Dimensions that follow from others are forgotten where those others are given. */
static void overlay(struct pl_model_config *c, const struct pl_model_config *dims)
{
    if (dims->width > 0)
        c->heads = c->kv_heads = c->head_dim = c->hidden = 0;
    if (dims->heads > 0)
        c->kv_heads = c->head_dim = 0;
    c->layers = dims->layers > 0 ? dims->layers : c->layers;
    c->width = dims->width > 0 ? dims->width : c->width;
    c->heads = dims->heads > 0 ? dims->heads : c->heads;
    c->kv_heads = dims->kv_heads > 0 ? dims->kv_heads : c->kv_heads;
    c->head_dim = dims->head_dim > 0 ? dims->head_dim : c->head_dim;
    c->hidden = dims->hidden > 0 ? dims->hidden : c->hidden;
    c->vocab = dims->vocab > 0 ? dims->vocab : c->vocab;
    c->context = dims->context > 0 ? dims->context : c->context;
    c->qk_norm = c->qk_norm || dims->qk_norm;
}

static enum pelago_status choose_model(struct pl_train_plan *p, const struct pl_train_args *a,
                                       struct pl_error *err)
{
    struct pl_model_config *c = &p->trainer.config;
    const char *preset = a->model != NULL ? a->model : has_shape(&a->dims) ? NULL : "1m";
    bool small =
        a->tokenizer != NULL && (strcmp(a->tokenizer, "char") == 0 || strcmp(a->tokenizer, "byte") == 0);
    *c = (struct pl_model_config){.tied = true};
    if (preset != NULL)
        PL_TRY(pl_model_config_preset(preset, c, err));
    else if (a->dims.layers == 0 || a->dims.width == 0)
        return pl_fail(err, PELAGO_INVALID,
                       "dimensions such as --heads change those of --model NAME, such as --model 1m; without "
                       "--model, --layers and --width are needed");
    overlay(c, &a->dims);
    c->tied = !a->untied;
    p->vocab_follows = a->dims.vocab == 0 && (small || c->vocab == 0);
    if (p->vocab_follows && a->tokenizer == NULL)
        return pl_fail(err, PELAGO_INVALID, "--vocab is needed, or a --tokenizer that has one");
    if (p->vocab_follows)
        c->vocab = VOCAB_UNIT; /* until the tokenizer is known */
    pl_model_config_complete(c);
    (void)pl_fmt(p->model, sizeof p->model, "%s", preset != NULL && !has_shape(&a->dims) ? preset : "custom");
    return pl_model_config_check(c, err);
}

/* ---- how it is trained ---- */

static float or_else(double given, float otherwise)
{
    return isnan(given) ? otherwise : (float)given;
}

static void choose_rule(struct pl_trainer_options *o, const struct pl_train_args *a)
{
    o->rule.beta1 = or_else(a->beta1, o->rule.beta1);
    o->rule.beta2 = or_else(a->beta2, o->rule.beta2);
    o->rule.weight_decay = or_else(a->weight_decay, o->rule.weight_decay);
    o->rule.clip = or_else(a->clip, o->rule.clip);
    o->z_loss = or_else(a->z_loss, o->z_loss);
    o->threads = a->threads;
    o->backend = a->backend;
    o->recompute = o->recompute || a->recompute;
    o->batch = a->batch > 0 ? a->batch : o->batch;
    o->accumulate = a->accumulate > 0 ? a->accumulate : o->accumulate;
}

/* The end of the run, as a whole number of steps. */
static void choose_end(struct pl_train_plan *p, const struct pl_train_args *a, uint64_t otherwise)
{
    uint64_t step = pl_trainer_options_tokens(&p->trainer);
    uint64_t wanted = a->tokens > 0 ? a->tokens : otherwise;
    if (a->steps > 0 && pl_mul_overflow(a->steps, step, &wanted))
        wanted = PL_COUNT_MAX;
    wanted = pl_min64(wanted, PL_COUNT_MAX - step);
    p->total_tokens = (wanted + step - 1) / step * step;
}

static void choose_schedule(struct pl_train_plan *p, const struct pl_train_args *a, uint64_t warmup)
{
    struct pl_schedule *s = &p->trainer.schedule;
    if (a->schedule != NULL)
        (void)pl_schedule_of_name(a->schedule, &s->kind);
    s->peak = or_else(a->lr, s->peak);
    s->floor = or_else(a->lr_floor, s->floor);
    if (!isnan(a->min_lr))
        s->floor = (float)a->min_lr / s->peak;
    s->decay = or_else(a->decay, s->decay);
    s->total_tokens = p->total_tokens;
    s->warmup_tokens = warmup;
    if (a->warmup.given &&
        pl_mul_overflow(a->warmup.count, a->warmup.is_tokens ? 1 : pl_trainer_options_tokens(&p->trainer),
                        &s->warmup_tokens))
        s->warmup_tokens = UINT64_MAX;
}

/* When to validate and to save; the defaults are a tenth of the run, and the clock. */
static void choose_spans(struct pl_train_plan *p, const struct pl_train_args *a)
{
    p->eval_tokens = a->eval_tokens > 0 ? a->eval_tokens : p->eval_tokens;
    p->save_every = a->save_every;
    p->eval_every = a->eval_every;
    if (!p->eval_every.given)
        p->eval_every = (struct pl_span){
            true, true, pl_max64(p->total_tokens / 10, pl_min64(p->eval_tokens, PL_COUNT_MAX / 4) * 4)};
}

static enum pelago_status set_path(char *out, const char *name, struct pl_error *err)
{
    char full[PL_PATH_MAX];
    const char *text = name;
    if (name == NULL)
        text = "";
    else if (strcmp(name, PL_DATASET_TALES) != 0 && strcmp(name, "-") != 0 && realpath(name, full) != NULL)
        text = full;
    if (strlen(text) >= PL_PATH_MAX)
        return pl_fail(err, PELAGO_LIMIT, "the name of the data is too long");
    memcpy(out, text, strlen(text) + 1);
    return PELAGO_OK;
}

enum pelago_status pl_train_plan_new(struct pl_train_plan *p, const struct pl_train_args *a,
                                     struct pl_error *err)
{
    struct pl_trainer_options *o = &p->trainer;
    *p = (struct pl_train_plan){.eval_tokens = default_eval_tokens};
    PL_TRY(choose_model(p, a, err));
    unsigned size = size_of(&o->config);
    choose_batch(o, size, pl_max32(1, a->sharers));
    o->seq = a->seq > 0 ? a->seq : pl_min32(sizes[size].seq, o->config.context);
    o->matrices = PL_INNER_ADAMW;
    o->seed = a->seed != PL_NONE64 ? a->seed : 1;
    o->rule = pl_inner_rule_usual(pl_model_config_params(&o->config));
    o->schedule = (struct pl_schedule){
        .kind = PL_SCHEDULE_COSINE, .peak = sizes[size].lr, .floor = 0.1f, .decay = 0.2f};
    if (a->optimizer != NULL)
        (void)pl_optimizer_of_name(a->optimizer, &o->matrices);
    o->schedule.peak *= optimizer_rate(o);
    choose_rule(o, a);
    PL_TRY(set_path(p->data, a->data != NULL ? a->data : PL_DATASET_TALES, err));
    PL_TRY(set_path(p->valid, a->valid, err));
    choose_end(p, a, default_tokens);
    choose_schedule(p, a, p->total_tokens / 50);
    choose_spans(p, a);
    return pl_trainer_options_check(o, err);
}

/* ---- resuming ---- */

uint32_t pl_train_plan_fields(struct pl_train_plan *p, struct pl_member fields[static PL_TRAIN_PLAN_FIELDS])
{
    const struct pl_member list[PL_TRAIN_PLAN_FIELDS] = {
        {"run.model", PL_MEMBER_TEXT, p->model, sizeof p->model, false},
        {"run.data", PL_MEMBER_TEXT, p->data, sizeof p->data, false},
        {"run.valid", PL_MEMBER_TEXT, p->valid, sizeof p->valid, false},
        {"run.eval_tokens", PL_MEMBER_COUNT, &p->eval_tokens, 0, false},
        {"run.total_tokens", PL_MEMBER_COUNT, &p->total_tokens, 0, false},
        {"run.seconds", PL_MEMBER_REAL, &p->seconds, 0, false},
    };
    memcpy(fields, list, sizeof list);
    return PL_TRAIN_PLAN_FIELDS;
}

/* Of a model that is there already nothing can be chosen. */
static bool asks_for_model(const struct pl_train_args *a)
{
    return has_shape(&a->dims) || a->dims.vocab > 0 || a->dims.context > 0 || a->untied || a->dims.qk_norm;
}

/* What would make another run of it. */
static enum pelago_status refuse_changes(const struct pl_train_args *a, const struct pl_trainer_options *o,
                                         struct pl_error *err)
{
    const struct {
        const char *name;
        bool given;
    } fixed[] = {
        {"model", a->model != NULL},
        {"seed", a->seed != PL_NONE64 && a->seed != o->seed},
        {"seq", a->seq > 0 && a->seq != o->seq},
        {"optimizer", a->optimizer != NULL && strcmp(a->optimizer, pl_optimizer_name(o->matrices)) != 0},
        {"tokenizer", a->tokenizer != NULL},
        {"layers and the other dimensions", asks_for_model(a)}};
    for (unsigned i = 0; i < sizeof fixed / sizeof fixed[0]; i++)
        if (fixed[i].given)
            return pl_fail(err, PELAGO_INVALID,
                           "--%s cannot be changed by --resume: the saved run has its own", fixed[i].name);
    return PELAGO_OK;
}

/* Weights from elsewhere: a new run in all but its first parameters. */
static enum pelago_status adopt(struct pl_train_plan *p, const struct pl_train_args *a,
                                struct pl_checkpoint_reader *r, struct pl_error *err)
{
    const struct pl_model_config *config = pl_checkpoint_config(r);
    struct pl_train_args asked = *a;
    uint32_t seq;
    if (a->model != NULL || asks_for_model(a))
        return pl_fail(err, PELAGO_INVALID,
                       "imported weights have their dimensions: --model, --context, --untied and the like "
                       "cannot change them");
    if (a->tokenizer != NULL && pl_checkpoint_has_tokenizer(r))
        return pl_fail(err, PELAGO_INVALID,
                       "imported weights have their tokenizer: --tokenizer cannot change it");
    asked.dims = *config;
    asked.untied = !config->tied;
    PL_TRY(pl_trainer_read_seq(r, &seq, err));
    asked.seq = a->seq > 0 ? a->seq : seq;
    PL_TRY(pl_train_plan_new(p, &asked, err));
    p->seq_kept = a->seq == 0 && seq > 0;
    p->trainer.config = *config;
    p->vocab_follows = false;
    return PELAGO_OK;
}

enum pelago_status pl_train_plan_resume(struct pl_train_plan *p, const struct pl_train_args *a,
                                        struct pl_checkpoint_reader *r, bool *fresh, struct pl_error *err)
{
    struct pl_member fields[PL_TRAIN_PLAN_FIELDS];
    *fresh = !pl_checkpoint_has_optimizer(r);
    if (*fresh)
        return adopt(p, a, r, err);
    *p = (struct pl_train_plan){.eval_tokens = default_eval_tokens};
    PL_TRY(pl_trainer_read_options(r, &p->trainer, err));
    PL_TRY(pl_checkpoint_read_fields(r, fields, pl_train_plan_fields(p, fields), err));
    PL_TRY(refuse_changes(a, &p->trainer, err));
    choose_rule(&p->trainer, a);
    char saved[PL_PATH_MAX];
    memcpy(saved, p->data, sizeof saved);
    if (a->data != NULL)
        PL_TRY(set_path(p->data, a->data, err));
    p->data_changed = strcmp(saved, p->data) != 0;
    if (a->valid != NULL)
        PL_TRY(set_path(p->valid, a->valid, err));
    uint64_t total = p->total_tokens;
    if (a->tokens > 0 || a->steps > 0)
        choose_end(p, a, total);
    choose_schedule(p, a, p->trainer.schedule.warmup_tokens);
    choose_spans(p, a);
    return pl_trainer_options_check(&p->trainer, err);
}

/* ---- when the data is known ---- */

enum pelago_status pl_train_plan_settle(struct pl_train_plan *p, uint32_t data_vocab, struct pl_error *err)
{
    struct pl_model_config *c = &p->trainer.config;
    uint32_t rounded = (data_vocab + VOCAB_UNIT - 1) / VOCAB_UNIT * VOCAB_UNIT;
    if (p->vocab_follows)
        c->vocab = rounded;
    if (data_vocab > c->vocab)
        return pl_fail(err, PELAGO_INVALID,
                       "the tokenizer has %u tokens, but the model's vocabulary is %u: --vocab %u would do",
                       data_vocab, c->vocab, rounded);
    return pl_trainer_options_check(&p->trainer, err);
}

uint64_t pl_span_steps(const struct pl_span *span, uint64_t step_tokens)
{
    if (!span->is_tokens || span->count == 0)
        return span->count;
    return (span->count + step_tokens - 1) / step_tokens;
}
