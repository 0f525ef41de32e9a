/* lab/world.c - see world.h. */
#include "lab/world.h"

#include "base/check.h"
#include "base/num.h"
#include "codec/feedback.h"
#include "os/clock.h"
#include "train/evaluate.h"
#include "train/trainer.h"

#include <math.h>
#include <string.h>

enum { JUDGE_BATCH = 16 };

static void fail(struct pl_lab_world *w, const struct pl_error *err)
{
    if (w->failure.status == PELAGO_OK)
        w->failure = *err;
}

/* ---- judging ---- */

double pl_lab_judge(struct pl_lab_world *w, const float *block)
{
    struct pl_evaluation e;
    struct pl_error err;
    uint64_t began = pl_clock_ns();
    memcpy(w->judge->params, block, w->layout.tensors.floats * sizeof *block);
    pl_model_refresh(w->judge);
    enum pelago_status st = pl_evaluate(w->judge, &w->text.valid_stream, &e, &err);
    w->result->eval_s += (double)(pl_clock_ns() - began) / 1e9;
    if (st != PELAGO_OK) {
        fail(w, &err);
        return (double)NAN;
    }
    w->result->eval_tokens = e.tokens;
    return e.nats / (double)e.tokens;
}

static double judge_fragments(struct pl_lab_world *w, const float *const *theta)
{
    for (uint32_t i = 0; i < w->layout.fragment_count; i++)
        pl_layout_scatter(&w->layout, i, theta[i], w->origin); /* version 0 is not needed any more */
    return pl_lab_judge(w, w->origin);
}

/* ---- codecs, as in host/ ---- */

static size_t encode(void *self, enum pl_way way, uint32_t fragment, float *values, uint8_t *out)
{
    struct pl_lab_world *w = self;
    enum pl_codec codec = way == PL_WAY_UP ? w->settings.up : w->settings.down;
    size_t raw = pl_layout_encoded_bytes(&w->layout, fragment, codec);
    pl_assert(raw <= w->raw_bytes);
    if (!pl_layout_encode_feedback(&w->layout, fragment, codec, w->settings.selective, values, w->raw))
        return 0;
    if (way == PL_WAY_UP)
        return pl_pack(w->packer, w->raw, raw, pl_feedback_squeezes(codec, w->settings.selective), out);
    size_t len = pl_pack(w->packer, w->raw, raw, pl_feedback_squeezes(codec, w->settings.selective), out + 4);
    pl_put_le(out, len, 4);
    return 4 + len;
}

static bool unpack(struct pl_lab_world *w, uint32_t fragment, enum pl_codec codec, const uint8_t *bytes,
                   size_t len)
{
    size_t raw = pl_layout_encoded_bytes(&w->layout, fragment, codec);
    return pl_unpack(w->packer, bytes, len, w->raw, raw, NULL) == PELAGO_OK &&
           pl_layout_check(&w->layout, fragment, codec, w->raw);
}

static bool decode(void *self, uint32_t fragment, const uint8_t *bytes, size_t len, float *out)
{
    struct pl_lab_world *w = self;
    if (!unpack(w, fragment, w->settings.up, bytes, len))
        return false;
    memset(out, 0, w->fragments[fragment].count * sizeof *out);
    pl_layout_decode_add(&w->layout, fragment, w->settings.up, w->raw, out);
    return true;
}

static size_t update_bytes(void *self, uint32_t fragment, const uint8_t *bytes, size_t len)
{
    (void)self;
    (void)fragment;
    uint64_t whole = len >= 4 ? 4 + pl_get_le(bytes, 4) : 0;
    return whole <= len ? (size_t)whole : 0;
}

static bool add_update(void *self, uint32_t fragment, const uint8_t *bytes, size_t len, float *values)
{
    struct pl_lab_world *w = self;
    if (len < 4 || !unpack(w, fragment, w->settings.down, bytes + 4, len - 4))
        return false;
    pl_layout_decode_add(&w->layout, fragment, w->settings.down, w->raw, values);
    return true;
}

/* ---- training ---- */

enum pelago_status pl_lab_trainer(const struct pl_lab_world *w, uint32_t batch, struct pl_trainer **out,
                                  struct pl_error *err)
{
    struct pl_trainer_options o = w->settings.trainer;
    o.backend = w->lab->backend;
    o.threads = w->lab->threads;
    o.batch = batch;
    return pl_trainer_new(out, &w->lab->alloc, &o, err);
}

/* Whatever number the trainer asks for, it gets the next of the step's. */
static enum pelago_status fetch(void *self, uint64_t first, uint32_t count, uint32_t seq, int32_t *tokens,
                                int32_t *targets, struct pl_error *err)
{
    struct pl_lab_learner *l = self;
    (void)first;
    for (uint32_t i = 0; i < count; i++) {
        size_t at = (size_t)i * seq;
        PL_TRY(pl_lab_text_fetch(&l->world->text, l->number, l->sequences[l->taken++], seq, tokens + at,
                                 targets + at, err));
    }
    return PELAGO_OK;
}

static void write_block(const struct pl_lab_world *w, const struct pl_objective_step *s,
                        struct pl_model *model)
{
    bool any = false;
    for (uint32_t i = 0; i < w->layout.fragment_count; i++)
        if (s->touched[i]) {
            pl_layout_scatter(&w->layout, i, s->theta + w->fragments[i].first, model->params);
            s->touched[i] = false;
            any = true;
        }
    if (any)
        pl_model_refresh(model);
}

static double step(void *self, const struct pl_objective_step *s)
{
    struct pl_lab_world *w = self;
    struct pl_lab_learner *l = &w->learners[s->host];
    struct pl_step_report report;
    struct pl_error err;
    pl_assert(s->host < w->learner_count && s->sequence_count == w->row->batches[s->host]);
    if (w->failure.status != PELAGO_OK)
        return (double)NAN;
    pl_assert(l->trainer != NULL);
    write_block(w, s, l->trainer->model);
    l->sequences = s->sequences;
    l->taken = 0;
    l->trainer->progress.clock = pl_max64(l->trainer->progress.clock, s->clock_tokens);
    if (!l->begun)
        pl_trainer_join(l->trainer);
    l->begun = true;
    uint64_t began = pl_clock_ns();
    enum pelago_status st = pl_trainer_step(l->trainer, &(struct pl_sequences){fetch, l}, &report, &err);
    w->result->trainer_s += (double)(pl_clock_ns() - began) / 1e9;
    if (st != PELAGO_OK) {
        fail(w, &err);
        return (double)NAN;
    }
    pl_assert(l->taken == s->sequence_count);
    for (uint32_t i = 0; i < w->layout.fragment_count; i++)
        pl_layout_gather(&w->layout, i, l->trainer->model->params, s->theta + w->fragments[i].first);
    w->result->tokens += report.tokens;
    w->result->steps++;
    w->result->steps_of[s->host]++;
    return report.loss;
}

static double loss(void *self, const float *const *theta)
{
    struct pl_lab_world *w = self;
    double judged = judge_fragments(w, theta);
    w->result->value_digest = pl_values_digest(w->origin, w->layout.tensors.floats);
    return judged;
}

/* ---- a learner's life ---- */

/* The moments of all tensors, between the optimizer and an array. */
static void copy_moments(struct pl_trainer *t, float *saved, bool load)
{
    const struct pl_tensors *tensors = &t->model->tensors;
    for (uint32_t i = 0; i < tensors->count; i++) {
        const struct pl_tensor *tensor = &tensors->at[i];
        float *both[2] = {pl_inner_m(&t->inner, i), pl_inner_v(&t->inner, i)};
        size_t bytes = (size_t)tensor->rows * tensor->cols * sizeof(float);
        for (uint32_t k = 0; k < 2 && both[k] != NULL; k++) {
            float *at = saved != NULL ? saved + k * tensors->floats + tensor->offset : NULL;
            if (at == NULL)
                memset(both[k], 0, bytes);
            else
                memcpy(load ? both[k] : at, load ? at : both[k], bytes);
        }
    }
}

static void begin(void *self, uint32_t process, uint32_t host)
{
    struct pl_lab_world *w = self;
    struct pl_lab_learner *l = &w->learners[host];
    struct pl_error err;
    (void)process;
    if (l->trainer == NULL) {
        if (pl_lab_trainer(w, w->row->batches[host], &l->trainer, &err) != PELAGO_OK)
            fail(w, &err);
        return;
    }
    copy_moments(l->trainer, NULL, true);
    l->begun = false;
    l->trainer->inner.step = 0;
    l->trainer->progress = (struct pl_progress){0};
}

static void save(void *self, uint32_t process, uint32_t host)
{
    struct pl_lab_world *w = self;
    struct pl_lab_learner *l = &w->learners[host];
    (void)process;
    if (l->saved.moments == NULL)
        l->saved.moments = pl_alloc_zero(&w->lab->alloc, 2 * w->layout.tensors.floats, sizeof(float));
    if (l->saved.moments == NULL) {
        struct pl_error err;
        (void)pl_fail(&err, PELAGO_NOMEM, "there is no memory for a checkpoint");
        fail(w, &err);
        return;
    }
    copy_moments(l->trainer, l->saved.moments, false);
    l->saved.inner_step = l->trainer->inner.step;
    l->saved.progress = l->trainer->progress;
}

static void load(void *self, uint32_t process, uint32_t host)
{
    const struct pl_lab_world *w = self;
    struct pl_lab_learner *l = &w->learners[host];
    (void)process;
    pl_assert(host < w->learner_count);
    if (l->trainer == NULL || l->saved.moments == NULL)
        return;
    copy_moments(l->trainer, l->saved.moments, true);
    l->trainer->inner.step = l->saved.inner_step;
    l->trainer->progress = l->saved.progress;
}

static void published(void *self, const struct pl_objective_news *news)
{
    struct pl_lab_world *w = self;
    struct pl_lab_result *r = w->result;
    pl_assert(news->contributors <= PL_LAB_LEARNERS_MAX);
    r->outer_steps++;
    r->cohorts[news->contributors]++;
    if (w->row->eval_every == 0 || news->merged_tokens < w->next_eval || r->point_count == PL_LAB_POINTS_MAX)
        return;
    w->next_eval = news->merged_tokens / w->row->eval_every * w->row->eval_every + w->row->eval_every;
    r->points[r->point_count++] = (struct pl_lab_point){(double)news->now_ns / 1e9, news->merged_tokens,
                                                        judge_fragments(w, news->theta)};
}

static const struct pl_objective_ops ops = {.encode = encode,
                                            .decode = decode,
                                            .update_bytes = update_bytes,
                                            .add_update = add_update,
                                            .step = step,
                                            .loss = loss,
                                            .begin = begin,
                                            .save = save,
                                            .load = load,
                                            .published = published};

/* ---- making one ---- */

static enum pelago_status make_judge(struct pl_lab_world *w, struct pl_error *err)
{
    struct pl_model_options o = {.config = w->settings.trainer.config,
                                 .backend = w->lab->backend,
                                 .threads = w->lab->threads,
                                 .batch = JUDGE_BATCH,
                                 .seq = w->settings.trainer.seq};
    return pl_model_new(&w->judge, &w->lab->alloc, &o, err);
}

static void describe_fragments(struct pl_lab_world *w)
{
    const struct pl_layout *l = &w->layout;
    uint32_t first = 0;
    for (uint32_t i = 0; i < l->fragment_count; i++) {
        const struct pl_layout_fragment *f = &l->fragments[i];
        struct pl_item_fragment item = pl_item_fragment_at(&w->manifest.msg.fragments, i);
        w->fragments[i] = (struct pl_objective_fragment){.first = first,
                                                         .count = (uint32_t)f->values,
                                                         .slice_first = f->slice_first,
                                                         .slice_count = f->slice_count,
                                                         .shard = f->shard,
                                                         .push_bytes_max = (uint32_t)item.push_bytes_max,
                                                         .update_bytes_max = (uint32_t)item.update_bytes_max};
        first += (uint32_t)f->values;
        w->objective.update_bytes_max =
            pl_max32(w->objective.update_bytes_max, w->fragments[i].update_bytes_max);
        w->raw_bytes = (size_t)pl_max64(w->raw_bytes, pl_max64(item.push_bytes_max, item.update_bytes_max));
    }
    for (uint32_t i = 0; i < l->slice_count; i++)
        w->slices[i] = (struct pl_objective_slice){(uint32_t)l->slices[i].count, l->slices[i].merge};
    pl_assert(first == l->tensors.params);
    w->objective.values = first;
}

static enum pelago_status make_arrays(struct pl_lab_world *w, struct pl_error *err)
{
    const struct pl_alloc *a = &w->lab->alloc;
    w->learner_count = w->settings.learners + w->row->joiners;
    w->fragments = pl_alloc_zero(a, w->layout.fragment_count, sizeof *w->fragments);
    w->slices = pl_alloc_zero(a, w->layout.slice_count, sizeof *w->slices);
    w->learners = pl_alloc_zero(a, w->learner_count, sizeof *w->learners);
    w->origin = pl_alloc_zero(a, w->layout.tensors.floats, sizeof(float));
    w->packer = pl_packer_new(a);
    if (w->fragments == NULL || w->slices == NULL || w->learners == NULL || w->origin == NULL ||
        w->packer == NULL)
        return pl_fail(err, PELAGO_NOMEM, "there is no memory for %u learners", w->learner_count);
    describe_fragments(w);
    w->raw = pl_alloc_zero(a, 1, w->raw_bytes);
    if (w->raw == NULL)
        return pl_fail(err, PELAGO_NOMEM, "there is no memory for a fragment");
    for (uint32_t i = 0; i < w->learner_count; i++)
        w->learners[i] = (struct pl_lab_learner){.world = w, .number = i};
    return PELAGO_OK;
}

/* Version 0 in fragment order; then `origin` is free for the judge. */
static void fill_objective(struct pl_lab_world *w, float *values)
{
    for (uint32_t i = 0; i < w->layout.fragment_count; i++)
        pl_layout_gather(&w->layout, i, w->origin, values + w->fragments[i].first);
    w->objective.ops = &ops;
    w->objective.self = w;
    w->objective.manifest = w->manifest.msg;
    w->objective.manifest_digest = w->manifest.digest;
    w->objective.fragments = w->layout.fragment_count;
    w->objective.largest = (uint32_t)w->layout.largest;
    w->objective.fragment = w->fragments;
    w->objective.slices = w->slices;
    w->objective.origin = values;
    w->objective.feedback_decay = w->settings.feedback_decay;
    w->objective.feedback_local = w->settings.feedback_local;
    w->objective.merge = w->settings.merge;
    w->objective.outer = pl_settings_outer_rule(&w->settings);
    w->objective.pool = w->judge->engine.pool;
    w->objective.seq = w->settings.trainer.seq;
    w->objective.step_sequences = w->row->batches;
    w->objective.local_data = w->row->split;
}

static enum pelago_status build(struct pl_lab_world *w, uint64_t seed, struct pl_error *err)
{
    PL_TRY(pl_lab_text_open(&w->text, w->lab, w->row, seed, err));
    PL_TRY(pl_layout_init(&w->layout, &w->lab->alloc, &w->settings, err));
    PL_TRY(pl_layout_manifest(&w->layout, &w->settings, &w->manifest, err));
    PL_TRY(make_judge(w, err));
    w->result->backend = w->judge->engine.name;
    PL_TRY(make_arrays(w, err));
    pl_layout_origin(&w->layout, w->settings.trainer.seed, w->origin);
    float *values = pl_alloc_zero(&w->lab->alloc, w->objective.values, sizeof *values);
    if (values == NULL)
        return pl_fail(err, PELAGO_NOMEM, "there is no memory for the model");
    fill_objective(w, values);
    return PELAGO_OK;
}

enum pelago_status pl_lab_world_init(struct pl_lab_world *w, const struct pl_lab *lab,
                                     const struct pl_lab_row *row, uint64_t seed,
                                     struct pl_lab_result *result, struct pl_error *err)
{
    *w = (struct pl_lab_world){.lab = lab, .row = row, .settings = row->settings, .result = result};
    w->layout.alloc = lab->alloc;
    w->settings.trainer.seed = seed;
    w->settings.run_id = seed + 1;
    enum pelago_status st = build(w, seed, err);
    if (st != PELAGO_OK)
        pl_lab_world_release(w);
    return st;
}

void pl_lab_world_release(struct pl_lab_world *w)
{
    const struct pl_alloc *a = &w->lab->alloc;
    for (uint32_t i = 0; w->learners != NULL && i < w->learner_count; i++) {
        pl_trainer_free(w->learners[i].trainer);
        pl_alloc_free(a, w->learners[i].saved.moments, 2 * w->layout.tensors.floats * sizeof(float));
    }
    pl_alloc_free(a, w->learners, w->learner_count * sizeof *w->learners);
    pl_alloc_free(a, w->raw, w->raw_bytes);
    pl_packer_free(w->packer);
    pl_alloc_free(a, (void *)w->objective.origin, w->objective.values * sizeof(float));
    pl_alloc_free(a, w->origin, w->layout.tensors.floats * sizeof(float));
    pl_alloc_free(a, w->slices, w->layout.slice_count * sizeof *w->slices);
    pl_alloc_free(a, w->fragments, w->layout.fragment_count * sizeof *w->fragments);
    if (w->judge != NULL)
        pl_model_free(w->judge);
    pl_manifest_release(&w->manifest, a);
    pl_layout_release(&w->layout);
    pl_lab_text_close(&w->text);
}
