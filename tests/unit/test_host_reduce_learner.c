/* Whole learners of the synchronous algorithms, with trainers, threads and TLS, in one process. Their result is compared
 * bit for bit with the same arithmetic written down plainly for one thread, also when learners or the syncer are lost
 * and return on the way. */
#include "base/bf16.h"
#include "reduce_rig.h"
#include "train/batches.h"
#include "train/dataset.h"
#include "train/evaluate.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

enum { LEARNERS = 2, THREE = 3 };

/* ---- the same, plainly ---- */

struct plain {
    const struct reduce_rig *r;
    struct pl_dataset *data;
    struct pl_batches batches;
    struct pl_sequences source;
    struct pl_trainer *trainer[LEARNERS];
    uint64_t step;
    float *other;
};

static struct pl_trainer *plain_trainer(const struct reduce_rig *r)
{
    struct pl_trainer_options o = r->settings.trainer;
    struct pl_trainer *t;
    struct pl_error err = {0};
    o.threads = 1;
    if (pl_trainer_new(&t, &r->alloc, &o, &err) != PELAGO_OK)
        fail_msg("%s", err.text);
    return t;
}

static void plain_init(struct plain *p, const struct reduce_rig *r)
{
    struct pl_dataset_options o = {.data = r->data,
                                   .vocab = r->settings.trainer.config.vocab,
                                   .valid_tokens = r->settings.eval_tokens,
                                   .seed = r->settings.trainer.seed,
                                   .threads = 1};
    struct pl_error err = {0};
    *p = (struct plain){.r = r};
    if (pl_dataset_open(&p->data, &r->alloc, &o, &err) != PELAGO_OK)
        fail_msg("%s", err.text);
    assert_int_equal(pl_batches_init(&p->batches, &r->alloc, &p->data->train, r->settings.trainer.seq,
                                     r->settings.trainer.seed, &err),
                     PELAGO_OK);
    p->source = pl_batches_sequences(&p->batches);
    p->other = malloc(r->plan.floats * sizeof *p->other);
}

static void plain_release(struct plain *p)
{
    for (uint32_t i = 0; i < LEARNERS; i++)
        pl_trainer_free(p->trainer[i]);
    pl_batches_release(&p->batches);
    pl_dataset_close(p->data);
    free(p->other);
}

static uint64_t first_sequence(const struct plain *p, uint64_t step, uint32_t rank)
{
    return (step * LEARNERS + rank) * p->r->plan.step_sequences;
}

/* With rank 0's gradients complete: those of rank 1's batch, and the mean of both. */
static bool add_other(void *user)
{
    struct plain *p = user;
    struct pl_trainer *t = p->trainer[0];
    struct pl_model *m = t->model;
    const struct pl_trainer_options *o = &t->options;
    struct pl_batch b = {o->batch, o->seq, t->tokens, t->targets};
    struct pl_pass pass = {.scale = (float)(1.0 / (double)p->r->plan.step_tokens), .z_loss = o->z_loss};
    uint64_t floats = p->r->plan.floats;
    memcpy(p->other, m->grads, floats * sizeof *p->other);
    assert_int_equal(p->source.fetch(p->source.self, first_sequence(p, p->step, 1), o->batch, o->seq,
                                     t->tokens, t->targets, NULL),
                     PELAGO_OK);
    (void)pl_model_train(m, &b, &pass);
    for (uint64_t i = 0; i < floats; i++) {
        float a = pl_bf16_to_float(pl_bf16_of_float(p->other[i]));
        float c = pl_bf16_to_float(pl_bf16_of_float(m->grads[i]));
        m->grads[i] = pl_bf16_to_float(pl_bf16_of_float((a + c) / 2));
    }
    return true;
}

static double plain_step(struct plain *p, uint32_t rank, uint64_t step)
{
    struct pl_trainer *t = p->trainer[rank];
    const struct pl_reduce_plan *plan = &p->r->plan;
    struct pl_step_report report;
    struct pl_error err = {0};
    p->step = step;
    t->progress.step = step;
    t->progress.sequence = first_sequence(p, step, rank);
    t->progress.clock = (step + 1) * LEARNERS * plan->step_tokens - plan->step_tokens;
    if (pl_trainer_step(t, &p->source, &report, &err) != PELAGO_OK)
        fail_msg("%s", err.text);
    return report.loss;
}

static void plain_data_parallel(struct plain *p)
{
    p->trainer[0] = plain_trainer(p->r);
    p->trainer[0]->hooks = (struct pl_trainer_hooks){.reduce = add_other, .user = p};
    double first = plain_step(p, 0, 0), last = first;
    for (uint64_t s = 1; s < p->r->plan.steps; s++)
        last = plain_step(p, 0, s);
    assert_true(last < 0.9 * first);
}

static void plain_diloco(struct plain *p)
{
    uint64_t floats = p->r->plan.floats;
    float *anchor = malloc(floats * sizeof *anchor), *momentum = calloc(floats, sizeof *momentum);
    for (uint32_t i = 0; i < LEARNERS; i++)
        p->trainer[i] = plain_trainer(p->r);
    memcpy(anchor, p->trainer[0]->model->params, floats * sizeof *anchor);
    for (uint64_t s = 0; s < p->r->plan.steps; s++) {
        for (uint32_t i = 0; i < LEARNERS; i++)
            (void)plain_step(p, i, s);
        if ((s + 1) % p->r->plan.period != 0 && s + 1 < p->r->plan.steps)
            continue;
        uint64_t before = s / p->r->plan.period, period = p->r->plan.period, all = p->r->plan.steps;
        double part = (double)(s + 1 - before * period) * (double)(before + 1) / (double)all;
        double share = s + 1 == all && part < 1 ? part : 1; /* the last round may be shorter */
        const struct pl_outer_move move =
            pl_outer_at(&p->r->settings.outer, before + 1, (double)(s + 1) / (double)all, share);
        for (uint64_t i = 0; i < floats; i++) {
            float delta = ((anchor[i] - p->trainer[0]->model->params[i]) +
                           (anchor[i] - p->trainer[1]->model->params[i])) /
                          2;
            pl_outer_step(&move, &delta, 1, &momentum[i], &anchor[i]);
        }
        for (uint32_t i = 0; i < LEARNERS; i++) {
            memcpy(p->trainer[i]->model->params, anchor, floats * sizeof *anchor);
            pl_model_refresh(p->trainer[i]->model);
        }
    }
    free(anchor);
    free(momentum);
}

/* ---- the run ---- */

struct world {
    struct reduce_rig r;
    struct reduce_learner_rig l[THREE];
    uint32_t count;
    struct plain plain;
};

static void begin_with(struct world *w, enum pl_algorithm algorithm, uint32_t count, enum pl_codec up,
                       uint64_t pace_ns)
{
    reduce_rig_init(&w->r, algorithm, count);
    w->r.settings.up = up;
    reduce_rig_serve(&w->r);
    w->count = count;
    for (uint32_t i = 0; i < count; i++) {
        reduce_learner_init(&w->l[i], &w->r, i + 1);
        w->l[i].o.pace_ns = pace_ns;
    }
}

static void start_all(struct world *w)
{
    for (uint32_t i = 0; i < w->count; i++)
        reduce_learner_begin(&w->l[i]);
}

static void end_all(struct world *w)
{
    reduce_rig_wait(&w->r, &w->r.finished);
    for (uint32_t i = 0; i < w->count; i++) {
        reduce_rig_wait(&w->r, &w->l[i].done);
        if (w->l[i].why.status != PELAGO_OK)
            fail_msg("%s", w->l[i].why.text);
        reduce_learner_end(&w->l[i]);
    }
    assert_false(w->r.failed);
}

/* The checkpoint of rank 0 is the model, as anybody can read it. */
static void load_result(struct world *w, struct pl_trainer *t)
{
    struct pl_posix_dir *dir;
    struct pl_checkpoint_reader *reader;
    struct pl_error err = {0};
    assert_int_equal(pl_posix_dir_open(&dir, &w->r.alloc, w->l[0].folder, PL_POSIX_DIR_EXISTING, &err),
                     PELAGO_OK);
    if (pl_checkpoint_open(&reader, pl_posix_dir_table(dir), &w->r.alloc, PL_NONE64, &err) != PELAGO_OK)
        fail_msg("%s", err.text);
    assert_int_equal(pl_checkpoint_step(reader), w->r.plan.steps);
    assert_int_equal(pl_trainer_load(t, reader, &err), PELAGO_OK);
    pl_checkpoint_close(reader);
    pl_posix_dir_close(dir);
}

static void compare(struct world *w)
{
    struct pl_trainer *result = plain_trainer(&w->r);
    plain_init(&w->plain, &w->r);
    if (w->r.plan.algorithm == PL_ALGORITHM_DATA_PARALLEL)
        plain_data_parallel(&w->plain);
    else
        plain_diloco(&w->plain);
    load_result(w, result);
    assert_memory_equal(result->model->params, w->plain.trainer[0]->model->params,
                        w->r.plan.floats * sizeof(float));
    assert_int_equal(result->progress.tokens, w->r.settings.total_tokens);
    pl_trainer_free(result);
    plain_release(&w->plain);
}

static void finish(struct world *w)
{
    for (uint32_t i = 0; i < w->count; i++)
        reduce_learner_end(&w->l[i]);
    reduce_rig_release(&w->r);
}

/* Until this learner has done so many steps in this life. */
static void wait_steps(struct world *w, uint32_t i, uint64_t steps)
{
    struct pl_learner_host_view v = {0};
    while (v.steps < steps) {
        uv_run(&w->r.loop, UV_RUN_ONCE); /* its learners' ticks and bells wake it */
        pl_reduce_learner_view(w->l[i].learner, &v);
        if (w->l[i].done || w->r.failed)
            fail_msg("it ended: %s %s", w->l[i].why.text, w->r.why.text);
    }
}

/* ---- tests ---- */

static void data_parallel_is_the_mean_of_gradients(void **state)
{
    static struct world w;
    (void)state;
    begin_with(&w, PL_ALGORITHM_DATA_PARALLEL, LEARNERS, PL_CODEC_BF16, 0);
    start_all(&w);
    reduce_rig_wait(&w.r, &w.r.finished);
    for (uint32_t i = 0; i < LEARNERS; i++) {
        struct pl_learner_host_view v;
        pl_reduce_learner_view(w.l[i].learner, &v);
        uint64_t values = v.steps * w.r.plan.floats * 2;
        assert_int_equal(v.steps, w.r.plan.steps);
        assert_in_range(v.bytes_up, values, values + values / 50);
        assert_in_range(v.bytes_down, values, values + values / 50);
        assert_true(v.blocked_ns > 0 && v.blocked_ns <= v.trained_ns);
    }
    end_all(&w);
    compare(&w);
    finish(&w);
}

static double validate(struct plain *p, struct pl_trainer *t)
{
    struct pl_evaluation e;
    struct pl_error err = {0};
    if (pl_evaluate(t->model, &p->data->valid, &e, &err) != PELAGO_OK)
        fail_msg("%s", err.text);
    return e.nats / (double)e.tokens;
}

/* But for the rounding of gradients to bf16: the same sequences, rates and sums. */
static void data_parallel_is_one_machine_with_a_larger_batch(void **state)
{
    static struct world w;
    struct pl_trainer_options o;
    struct pl_trainer *one, *result;
    struct pl_error err = {0};
    (void)state;
    begin_with(&w, PL_ALGORITHM_DATA_PARALLEL, LEARNERS, PL_CODEC_BF16, 0);
    start_all(&w);
    end_all(&w);
    plain_init(&w.plain, &w.r);
    o = w.r.settings.trainer;
    o.accumulate = LEARNERS;
    assert_int_equal(pl_trainer_new(&one, &w.r.alloc, &o, &err), PELAGO_OK);
    double before = validate(&w.plain, one);
    for (uint64_t s = 0; s < w.r.plan.steps; s++) {
        struct pl_step_report report;
        assert_int_equal(pl_trainer_step(one, &w.plain.source, &report, &err), PELAGO_OK);
    }
    result = plain_trainer(&w.r);
    load_result(&w, result);
    double a = validate(&w.plain, one), b = validate(&w.plain, result);
    if (!(a < 0.9 * before && b < 1.01 * a && b > 0.99 * a))
        fail_msg("validation: %f at first, %f with one machine, %f with two", before, a, b);
    pl_trainer_free(one);
    pl_trainer_free(result);
    plain_release(&w.plain);
    finish(&w);
}

static void diloco_averages_changes_and_takes_the_outer_step(void **state)
{
    static struct world w;
    (void)state;
    begin_with(&w, PL_ALGORITHM_DILOCO, LEARNERS, PL_CODEC_FP32, 0);
    assert_int_equal(w.r.plan.rounds, 5);
    start_all(&w);
    end_all(&w);
    compare(&w);
    finish(&w);
}

static void three_learners_in_bf16_stay_equal(void **state)
{
    static struct world w;
    double merges;
    (void)state;
    begin_with(&w, PL_ALGORITHM_DILOCO, THREE, PL_CODEC_INT4, 0);
    assert_int_equal(w.r.plan.codec, PL_CODEC_BF16);
    start_all(&w);
    end_all(&w); /* digests are compared after every round and at the end */
    reduce_rig_status(&w.r, "merges", &merges);
    assert_int_equal((uint64_t)merges, w.r.plan.rounds);
    finish(&w);
}

/* As far as others can see, leaving at once and losing all memory is what a crash is. */
static void lose_and_return(uint32_t victim)
{
    static struct world w;
    double transfers;
    memset(&w, 0, sizeof w);
    begin_with(&w, PL_ALGORITHM_DATA_PARALLEL, LEARNERS, PL_CODEC_BF16, 5 * PL_MS);
    start_all(&w);
    wait_steps(&w, victim, 5);
    reduce_learner_end(&w.l[victim]);
    reduce_learner_begin(&w.l[victim]);
    end_all(&w);
    reduce_rig_status(&w.r, "transfers", &transfers);
    assert_int_equal((int)transfers, 1);
    compare(&w);
    finish(&w);
}

static void a_lost_learner_returns_and_nothing_differs(void **state)
{
    (void)state;
    lose_and_return(1);
}

static void so_does_the_one_that_saves(void **state)
{
    (void)state;
    lose_and_return(0);
}

static void a_lost_learner_of_diloco_returns(void **state)
{
    static struct world w;
    (void)state;
    begin_with(&w, PL_ALGORITHM_DILOCO, LEARNERS, PL_CODEC_FP32, 5 * PL_MS);
    start_all(&w);
    wait_steps(&w, 1, 6);
    reduce_learner_end(&w.l[1]);
    reduce_learner_begin(&w.l[1]);
    end_all(&w); /* moments are the other's: the result differs, but everybody has the same */
    finish(&w);
}

static void the_syncer_may_restart(void **state)
{
    static struct world w;
    (void)state;
    begin_with(&w, PL_ALGORITHM_DATA_PARALLEL, LEARNERS, PL_CODEC_BF16, 5 * PL_MS);
    start_all(&w);
    for (uint64_t i = 1; i < 4; i++) {
        wait_steps(&w, 0, 4 * i);
        reduce_rig_stop(&w.r);
        reduce_rig_serve(&w.r);
    }
    end_all(&w);
    compare(&w);
    finish(&w);
}

static void everybody_may_restart(void **state)
{
    static struct world w;
    (void)state;
    begin_with(&w, PL_ALGORITHM_DATA_PARALLEL, LEARNERS, PL_CODEC_BF16, 5 * PL_MS);
    start_all(&w);
    wait_steps(&w, 0, 6);
    for (uint32_t i = 0; i < LEARNERS; i++)
        reduce_learner_end(&w.l[i]);
    reduce_rig_stop(&w.r);
    reduce_rig_serve(&w.r);
    start_all(&w);
    end_all(&w);
    assert_non_null(strstr(w.l[0].log, "the folder has a checkpoint of round"));
    compare(&w);
    finish(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(data_parallel_is_the_mean_of_gradients),
        cmocka_unit_test(data_parallel_is_one_machine_with_a_larger_batch),
        cmocka_unit_test(diloco_averages_changes_and_takes_the_outer_step),
        cmocka_unit_test(three_learners_in_bf16_stay_equal),
        cmocka_unit_test(a_lost_learner_returns_and_nothing_differs),
        cmocka_unit_test(so_does_the_one_that_saves),
        cmocka_unit_test(a_lost_learner_of_diloco_returns),
        cmocka_unit_test(the_syncer_may_restart),
        cmocka_unit_test(everybody_may_restart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
