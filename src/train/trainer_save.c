/* train/trainer_save.c - a trainer's options and progress as fields of a checkpoint; see trainer.h. */
#include "base/check.h"
#include "train/trainer.h"

#include <string.h>

enum { NAME_BYTES = 16, FIELDS = 26, EXTRA_MAX = 32 };

/* The values as fields have them. */
struct saved {
    struct pl_progress progress;
    uint64_t optimizer_step, seed, batch, seq, accumulate;
    bool recompute;
    double z_loss;
    char optimizer[NAME_BYTES];
    double beta1, beta2, eps, momentum, weight_decay, clip;
    char schedule[NAME_BYTES];
    double peak, floor, decay;
    uint64_t warmup_tokens, total_tokens;
};

static uint32_t list_progress(struct saved *s, struct pl_member *out)
{
    const struct pl_member fields[] = {
        {"progress.step", PL_MEMBER_COUNT, &s->progress.step, 0, false},
        {"progress.tokens", PL_MEMBER_COUNT, &s->progress.tokens, 0, false},
        {"progress.clock", PL_MEMBER_COUNT, &s->progress.clock, 0, false},
        {"progress.sequence", PL_MEMBER_COUNT, &s->progress.sequence, 0, false},
        {"progress.smooth_loss", PL_MEMBER_REAL, &s->progress.smooth, 0, false},
        {"optimizer.step", PL_MEMBER_COUNT, &s->optimizer_step, 0, false},
    };
    memcpy(out, fields, sizeof fields);
    return sizeof fields / sizeof fields[0];
}

struct pl_member pl_trainer_seq_field(uint64_t *seq)
{
    return (struct pl_member){"seq", PL_MEMBER_COUNT, seq, 0, false};
}

static uint32_t list_options(struct saved *s, struct pl_member *out)
{
    const struct pl_member fields[] = {
        {"seed", PL_MEMBER_BITS, &s->seed, 0, false},
        {"batch", PL_MEMBER_COUNT, &s->batch, 0, false},
        pl_trainer_seq_field(&s->seq),
        {"accumulate", PL_MEMBER_COUNT, &s->accumulate, 0, false},
        {"recompute", PL_MEMBER_FLAG, &s->recompute, 0, false},
        {"z_loss", PL_MEMBER_REAL, &s->z_loss, 0, false},
        {"optimizer.kind", PL_MEMBER_TEXT, s->optimizer, NAME_BYTES, false},
        {"optimizer.beta1", PL_MEMBER_REAL, &s->beta1, 0, false},
        {"optimizer.beta2", PL_MEMBER_REAL, &s->beta2, 0, false},
        {"optimizer.eps", PL_MEMBER_REAL, &s->eps, 0, false},
        {"optimizer.momentum", PL_MEMBER_REAL, &s->momentum, 0, false},
        {"optimizer.weight_decay", PL_MEMBER_REAL, &s->weight_decay, 0, false},
        {"optimizer.clip", PL_MEMBER_REAL, &s->clip, 0, false},
        {"schedule.kind", PL_MEMBER_TEXT, s->schedule, NAME_BYTES, false},
        {"schedule.peak", PL_MEMBER_REAL, &s->peak, 0, false},
        {"schedule.floor", PL_MEMBER_REAL, &s->floor, 0, false},
        {"schedule.decay", PL_MEMBER_REAL, &s->decay, 0, false},
        {"schedule.warmup_tokens", PL_MEMBER_COUNT, &s->warmup_tokens, 0, false},
        {"schedule.total_tokens", PL_MEMBER_COUNT, &s->total_tokens, 0, false},
    };
    memcpy(out, fields, sizeof fields);
    return sizeof fields / sizeof fields[0];
}

/* ---- words for enums ---- */

static const struct {
    const char *name;
    enum pl_schedule_kind kind;
} schedules[] = {
    {"constant", PL_SCHEDULE_CONSTANT}, {"cosine", PL_SCHEDULE_COSINE}, {"wsd", PL_SCHEDULE_WSD}};
enum { SCHEDULES = sizeof schedules / sizeof schedules[0] };

const char *pl_schedule_name(enum pl_schedule_kind kind)
{
    for (unsigned i = 0; i < SCHEDULES; i++)
        if (schedules[i].kind == kind)
            return schedules[i].name;
    return "none";
}

bool pl_schedule_of_name(const char *name, enum pl_schedule_kind *kind)
{
    for (unsigned i = 0; i < SCHEDULES; i++)
        if (strcmp(schedules[i].name, name) == 0) {
            *kind = schedules[i].kind;
            return true;
        }
    return false;
}

const char *pl_optimizer_name(enum pl_inner_kind matrices)
{
    return matrices == PL_INNER_MUON ? "muon" : "adamw";
}

bool pl_optimizer_of_name(const char *name, enum pl_inner_kind *matrices)
{
    bool muon = strcmp(name, "muon") == 0;
    *matrices = muon ? PL_INNER_MUON : PL_INNER_ADAMW;
    return muon || strcmp(name, "adamw") == 0;
}

/* ---- saving ---- */

static void put_word(char out[static NAME_BYTES], const char *word)
{
    pl_assert(strlen(word) < NAME_BYTES);
    memcpy(out, word, strlen(word) + 1);
}

static struct saved saved_of(const struct pl_trainer *t)
{
    const struct pl_trainer_options *o = &t->options;
    struct saved s = {.progress = t->progress,
                      .optimizer_step = t->inner.step,
                      .seed = o->seed,
                      .batch = o->batch,
                      .seq = o->seq,
                      .accumulate = o->accumulate,
                      .recompute = o->recompute,
                      .z_loss = (double)o->z_loss,
                      .beta1 = (double)o->rule.beta1,
                      .beta2 = (double)o->rule.beta2,
                      .eps = (double)o->rule.eps,
                      .momentum = (double)o->rule.momentum,
                      .weight_decay = (double)o->rule.weight_decay,
                      .clip = (double)o->rule.clip,
                      .peak = (double)o->schedule.peak,
                      .floor = (double)o->schedule.floor,
                      .decay = (double)o->schedule.decay,
                      .warmup_tokens = o->schedule.warmup_tokens,
                      .total_tokens = o->schedule.total_tokens};
    put_word(s.optimizer, pl_optimizer_name(o->matrices));
    put_word(s.schedule, pl_schedule_name(o->schedule.kind));
    return s;
}

enum pelago_status pl_trainer_save(struct pl_trainer *t, struct pl_dir dir,
                                   const struct pl_trainer_extra *extra, struct pl_error *err)
{
    struct saved saved = saved_of(t);
    struct pl_member fields[FIELDS + EXTRA_MAX];
    uint32_t count = list_progress(&saved, fields);
    count += list_options(&saved, fields + count);
    pl_assert(count <= FIELDS && extra->field_count <= EXTRA_MAX);
    for (uint32_t i = 0; i < extra->field_count; i++)
        fields[count++] = extra->fields[i];
    struct pl_checkpoint c = {.config = &t->options.config,
                              .tensors = &t->model->tensors,
                              .params = t->model->params,
                              .spans = t->spans,
                              .span_count = t->span_count,
                              .fields = fields,
                              .field_count = count,
                              .tokenizer = extra->tokenizer,
                              .rewinds = extra->rewinds,
                              .rewinds_to = extra->rewinds_to};
    return pl_checkpoint_save(dir, &t->alloc, t->progress.step, &c, extra->keep, err);
}

/* ---- loading ---- */

static enum pelago_status fit(uint64_t value, const char *name, uint32_t *out, struct pl_error *err)
{
    *out = (uint32_t)value;
    if (value == 0 || value > UINT32_MAX)
        return pl_fail(err, PELAGO_CORRUPT, "the checkpoint's %s is %lu, which is out of range", name, value);
    return PELAGO_OK;
}

enum pelago_status pl_trainer_read_options(struct pl_checkpoint_reader *r, struct pl_trainer_options *o,
                                           struct pl_error *err)
{
    struct saved s = {.batch = 0};
    struct pl_member fields[FIELDS];
    uint32_t count = list_options(&s, fields);
    PL_TRY(pl_checkpoint_read_fields(r, fields, count, err));
    o->config = *pl_checkpoint_config(r);
    PL_TRY(fit(s.batch, "batch", &o->batch, err));
    PL_TRY(fit(s.seq, "seq", &o->seq, err));
    PL_TRY(fit(s.accumulate, "accumulate", &o->accumulate, err));
    if (!pl_optimizer_of_name(s.optimizer, &o->matrices) ||
        !pl_schedule_of_name(s.schedule, &o->schedule.kind))
        return pl_fail(err, PELAGO_CORRUPT,
                       "the checkpoint's optimizer is %s and its schedule %s: one is unknown", s.optimizer,
                       s.schedule);
    o->recompute = s.recompute;
    o->z_loss = (float)s.z_loss;
    o->seed = s.seed;
    o->rule = (struct pl_inner_rule){.beta1 = (float)s.beta1,
                                     .beta2 = (float)s.beta2,
                                     .eps = (float)s.eps,
                                     .momentum = (float)s.momentum,
                                     .weight_decay = (float)s.weight_decay,
                                     .clip = (float)s.clip};
    o->schedule.peak = (float)s.peak;
    o->schedule.floor = (float)s.floor;
    o->schedule.decay = (float)s.decay;
    o->schedule.warmup_tokens = s.warmup_tokens;
    o->schedule.total_tokens = s.total_tokens;
    struct pl_error why;
    if (pl_trainer_options_check(o, &why) != PELAGO_OK)
        return pl_fail(err, PELAGO_CORRUPT, "the checkpoint of step %lu has settings that no run has: %s",
                       pl_checkpoint_step(r), why.text);
    return PELAGO_OK;
}

enum pelago_status pl_trainer_read_seq(struct pl_checkpoint_reader *r, uint32_t *seq, struct pl_error *err)
{
    const uint32_t context = pl_checkpoint_config(r)->context;
    uint64_t saved = PL_NONE64;
    struct pl_member field = pl_trainer_seq_field(&saved);
    field.optional = true;
    *seq = 0;
    PL_TRY(pl_checkpoint_read_fields(r, &field, 1, err));
    if (saved == PL_NONE64)
        return PELAGO_OK;
    if (saved == 0 || saved > context)
        return pl_fail(err, PELAGO_CORRUPT,
                       "the checkpoint of step %lu was trained with sequences of %lu tokens, but its model's "
                       "context is %u",
                       pl_checkpoint_step(r), saved, context);
    *seq = (uint32_t)saved;
    return PELAGO_OK;
}

enum pelago_status pl_trainer_load_params(struct pl_trainer *t, struct pl_checkpoint_reader *r,
                                          struct pl_error *err)
{
    PL_TRY(pl_checkpoint_read_params(r, &t->model->tensors, t->model->params, err));
    pl_model_refresh(t->model);
    return PELAGO_OK;
}

/* Counters that a run can still add to: half of what a file may hold is more than any run has seen. */
static enum pelago_status check_progress(const struct saved *s, uint64_t step, struct pl_error *err)
{
    const uint64_t counts[] = {s->progress.step, s->progress.tokens, s->progress.clock, s->progress.sequence,
                               s->optimizer_step};
    if (s->progress.step != step)
        return pl_fail(err, PELAGO_CORRUPT, "the checkpoint of step %lu says that it is of step %lu", step,
                       s->progress.step);
    for (unsigned i = 0; i < sizeof counts / sizeof counts[0]; i++)
        if (counts[i] > PL_COUNT_MAX / 2)
            return pl_fail(err, PELAGO_CORRUPT,
                           "the checkpoint of step %lu counts up to %lu, further than any run comes", step,
                           counts[i]);
    return PELAGO_OK;
}

enum pelago_status pl_trainer_load(struct pl_trainer *t, struct pl_checkpoint_reader *r, struct pl_error *err)
{
    struct saved s = {.batch = 0};
    struct pl_member fields[FIELDS];
    uint32_t count = list_progress(&s, fields);
    PL_TRY(pl_checkpoint_read_fields(r, fields, count, err));
    PL_TRY(check_progress(&s, pl_checkpoint_step(r), err));
    PL_TRY(pl_checkpoint_read_spans(r, t->spans, t->span_count, err));
    PL_TRY(pl_trainer_load_params(t, r, err));
    t->progress = s.progress;
    t->inner.step = s.optimizer_step;
    return PELAGO_OK;
}
