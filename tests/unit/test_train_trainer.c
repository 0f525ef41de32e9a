/* Training steps: accumulation, resuming bit for bit, and what happens when something is wrong. */
#include "expect_assert.h"
#include "os/dir_posix.h"
#include "tempdir.h"
#include "train/trainer.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

enum { STEPS = 20 };

/* Sequence n counts up from n in steps of n % 3 + 1: easy to learn, and different for every n. */
static enum pelago_status count_up(void *self, uint64_t first, uint32_t count, uint32_t seq, int32_t *tokens,
                                   int32_t *targets, struct pl_error *err)
{
    uint32_t vocab = *(const uint32_t *)self;
    (void)err;
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t j = 0; j < seq; j++) {
            uint64_t n = first + i, step = n % 3 + 1;
            tokens[i * seq + j] = (int32_t)((n + j * step) % vocab);
            targets[i * seq + j] = (int32_t)((n + (j + 1) * step) % vocab);
        }
    return PELAGO_OK;
}

static struct pl_trainer_options options_of(enum pl_inner_kind matrices)
{
    struct pl_trainer_options o = {
        .config = {.layers = 2, .width = 48, .heads = 2, .vocab = 96, .context = 32, .tied = true},
        .threads = 2,
        .batch = 4,
        .seq = 24,
        .accumulate = 2,
        .matrices = matrices,
        .rule =
            {.beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .momentum = 0.95f, .weight_decay = 0.1f, .clip = 1},
        .schedule = {.kind = PL_SCHEDULE_COSINE,
                     .peak = 3e-3f,
                     .floor = 0.1f,
                     .warmup_tokens = 1000,
                     .total_tokens = STEPS * 192},
        .z_loss = 1e-4f,
        .seed = 7};
    pl_model_config_complete(&o.config);
    return o;
}

static struct pl_trainer *new_trainer(const struct pl_trainer_options *o)
{
    struct pl_alloc alloc = pl_alloc_system();
    struct pl_trainer *t;
    struct pl_error err = {0};
    if (pl_trainer_new(&t, &alloc, o, &err) != PELAGO_OK)
        fail_msg("%s", err.text);
    return t;
}

static void steps(struct pl_trainer *t, unsigned count, double *losses)
{
    struct pl_sequences source = {count_up, &t->options.config.vocab};
    for (unsigned i = 0; i < count; i++) {
        struct pl_step_report report;
        struct pl_error err = {0};
        if (pl_trainer_step(t, &source, &report, &err) != PELAGO_OK)
            fail_msg("%s", err.text);
        losses[i] = report.loss;
    }
}

static void assert_same_state(struct pl_trainer *a, struct pl_trainer *b)
{
    size_t bytes = a->model->tensors.floats * sizeof(float);
    assert_memory_equal(a->model->params, b->model->params, bytes);
    assert_memory_equal(a->inner.m, b->inner.m, bytes);
    assert_memory_equal(&a->progress, &b->progress, sizeof a->progress);
    for (uint32_t i = 0; i < a->model->tensors.count; i++) {
        const struct pl_tensor *tensor = &a->model->tensors.at[i];
        const float *va = pl_inner_v(&a->inner, i), *vb = pl_inner_v(&b->inner, i);
        assert_int_equal(va == NULL, vb == NULL);
        if (va != NULL)
            assert_memory_equal(va, vb, (size_t)tensor->rows * tensor->cols * sizeof(float));
    }
}

/* ---- resuming ---- */

struct disk {
    struct tempdir temp;
    struct pl_alloc alloc;
    struct pl_posix_dir *posix;
    struct pl_dir dir;
};

static void disk_init(struct disk *d)
{
    struct pl_error err = {0};
    tempdir_init(&d->temp);
    d->alloc = pl_alloc_system();
    assert_int_equal(
        pl_posix_dir_open(&d->posix, &d->alloc, tempdir_path(&d->temp, "run"), PL_POSIX_DIR_CREATE, &err),
        PELAGO_OK);
    d->dir = pl_posix_dir_table(d->posix);
}

static void disk_release(struct disk *d)
{
    pl_posix_dir_close(d->posix);
    tempdir_release(&d->temp);
}

static struct pl_trainer *resume(struct disk *d, uint32_t threads)
{
    struct pl_checkpoint_reader *r;
    struct pl_trainer_options o = {.threads = threads};
    struct pl_error err = {0};
    assert_int_equal(pl_checkpoint_open(&r, d->dir, &d->alloc, PL_NONE64, &err), PELAGO_OK);
    if (pl_trainer_read_options(r, &o, &err) != PELAGO_OK)
        fail_msg("%s", err.text);
    struct pl_trainer *t = new_trainer(&o);
    if (pl_trainer_load(t, r, &err) != PELAGO_OK)
        fail_msg("%s", err.text);
    pl_checkpoint_close(r);
    return t;
}

/* Twenty steps, or ten, a save, a new trainer with another number of threads, and ten more: the same bits. */
static void resumes(const struct pl_trainer_options *o)
{
    double straight[STEPS], parts[STEPS];
    struct disk disk;
    struct pl_error err = {0};
    struct pl_trainer *whole = new_trainer(o), *first = new_trainer(o);
    steps(whole, STEPS, straight);
    steps(first, STEPS / 2, parts);
    disk_init(&disk);
    struct pl_trainer_extra extra = {.keep = 2};
    assert_int_equal(pl_trainer_save(first, disk.dir, &extra, &err), PELAGO_OK);
    pl_trainer_free(first);
    struct pl_trainer *second = resume(&disk, 1);
    assert_memory_equal(&second->options.schedule, &o->schedule, sizeof o->schedule);
    assert_memory_equal(&second->options.rule, &o->rule, sizeof o->rule);
    steps(second, STEPS / 2, parts + STEPS / 2);
    assert_memory_equal(straight, parts, sizeof straight);
    assert_same_state(whole, second);
    assert_true(straight[STEPS - 1] < straight[0]);
    pl_trainer_free(whole);
    pl_trainer_free(second);
    disk_release(&disk);
}

static void test_resume_adamw(void **state)
{
    (void)state;
    struct pl_trainer_options o = options_of(PL_INNER_ADAMW);
    resumes(&o);
}

static void test_resume_muon(void **state)
{
    (void)state;
    struct pl_trainer_options o = options_of(PL_INNER_MUON);
    o.recompute = true;
    o.schedule.kind = PL_SCHEDULE_WSD;
    o.schedule.decay = 0.2f;
    resumes(&o);
}

static void test_resume_with_another_optimizer(void **state)
{
    (void)state;
    struct disk disk;
    struct pl_error err = {0};
    struct pl_checkpoint_reader *r;
    struct pl_trainer_options o = options_of(PL_INNER_MUON);
    struct pl_trainer *muon = new_trainer(&o);
    disk_init(&disk);
    struct pl_trainer_extra extra = {.keep = 2};
    assert_int_equal(pl_trainer_save(muon, disk.dir, &extra, &err), PELAGO_OK);
    o.matrices = PL_INNER_ADAMW;
    struct pl_trainer *adamw = new_trainer(&o);
    assert_int_equal(pl_checkpoint_open(&r, disk.dir, &disk.alloc, PL_NONE64, &err), PELAGO_OK);
    assert_int_not_equal(pl_trainer_load(adamw, r, &err), PELAGO_OK);
    assert_non_null(strstr(err.text, "adam_m.model.layers.0"));
    assert_int_equal(pl_trainer_load_params(adamw, r, &err), PELAGO_OK);
    pl_checkpoint_close(r);
    pl_trainer_free(muon);
    pl_trainer_free(adamw);
    disk_release(&disk);
}

static uint32_t saved_seq(struct disk *d, enum pelago_status expected)
{
    struct pl_checkpoint_reader *r;
    struct pl_error err = {0};
    uint32_t seq = PL_NONE32;
    assert_int_equal(pl_checkpoint_open(&r, d->dir, &d->alloc, PL_NONE64, &err), PELAGO_OK);
    assert_int_equal(pl_trainer_read_seq(r, &seq, &err), expected);
    assert_true(expected == PELAGO_OK || strstr(err.text, "but its model's context is") != NULL);
    pl_checkpoint_close(r);
    return seq;
}

/* Whoever measures a model or goes on with it wants to know; weights of others, and those of runs before, do not say. */
static void test_the_length_of_sequences_is_saved(void **state)
{
    (void)state;
    struct disk disk;
    struct pl_error err = {0};
    struct pl_trainer_options o = options_of(PL_INNER_ADAMW);
    struct pl_trainer *t = new_trainer(&o);
    struct pl_trainer_extra extra = {.keep = 0};
    uint64_t said = o.seq;
    struct pl_member field = pl_trainer_seq_field(&said);
    struct pl_checkpoint bare = {
        .config = &o.config, .tensors = &t->model->tensors, .params = t->model->params, .fields = &field};
    const struct {
        bool says;
        uint64_t seq;
        enum pelago_status status;
        uint32_t expected;
    } cases[] = {{false, 0, PELAGO_OK, 0},
                 {true, o.seq, PELAGO_OK, o.seq},
                 {true, o.config.context, PELAGO_OK, o.config.context},
                 {true, 0, PELAGO_CORRUPT, 0},
                 {true, (uint64_t)o.config.context + 1, PELAGO_CORRUPT, 0},
                 {true, (UINT64_C(1) << 32) + 8, PELAGO_CORRUPT, 0}};
    disk_init(&disk);
    assert_int_equal(pl_trainer_save(t, disk.dir, &extra, &err), PELAGO_OK);
    assert_int_equal(saved_seq(&disk, PELAGO_OK), o.seq);
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        said = cases[i].seq;
        bare.field_count = cases[i].says ? 1 : 0;
        assert_int_equal(pl_checkpoint_save(disk.dir, &disk.alloc, i + 1, &bare, 0, &err), PELAGO_OK);
        assert_int_equal(saved_seq(&disk, cases[i].status), cases[i].expected);
    }
    pl_trainer_free(t);
    disk_release(&disk);
}

/* ---- arithmetic ---- */

static double distance(const struct pl_trainer *a, const struct pl_trainer *b, const float *from)
{
    double apart = 0, moved = 0;
    for (uint64_t i = 0; i < a->model->tensors.floats; i++) {
        double d = (double)a->model->params[i] - (double)b->model->params[i];
        double m = (double)a->model->params[i] - (double)from[i];
        apart += d * d;
        moved += m * m;
    }
    return sqrt(apart / moved);
}

static void test_accumulation(void **state)
{
    (void)state;
    struct pl_alloc alloc = pl_alloc_system();
    struct pl_trainer_options o = options_of(PL_INNER_ADAMW);
    double split[3], whole[3];
    o.backend = "ref"; /* floats: the only difference is the order of sums */
    struct pl_trainer *a = new_trainer(&o);
    size_t floats = a->model->tensors.floats;
    float *from = pl_alloc_zero(&alloc, floats, sizeof *from);
    memcpy(from, a->model->params, floats * sizeof *from);
    o.batch = 8;
    o.accumulate = 1;
    struct pl_trainer *b = new_trainer(&o);
    steps(a, 3, split);
    steps(b, 3, whole);
    for (unsigned i = 0; i < 3; i++)
        assert_true(fabs(split[i] - whole[i]) < 1e-5 * whole[i]);
    assert_true(distance(a, b, from) <
                0.02); /* AdamW's first steps know signs only: a tiny gradient may flip */
    assert_int_equal(a->progress.tokens, b->progress.tokens);
    assert_int_equal(a->progress.sequence, b->progress.sequence);
    pl_alloc_free(&alloc, from, floats * sizeof *from);
    pl_trainer_free(a);
    pl_trainer_free(b);
}

static void test_odd_dimensions(void **state)
{
    (void)state;
    for (unsigned kind = PL_INNER_ADAMW; kind <= PL_INNER_MUON; kind++) {
        struct pl_trainer_options o = options_of((enum pl_inner_kind)kind);
        double best[STEPS], ref[STEPS];
        o.config = (struct pl_model_config){.layers = 2,
                                            .width = 33,
                                            .heads = 3,
                                            .kv_heads = 1,
                                            .head_dim = 10,
                                            .hidden = 37,
                                            .vocab = 61,
                                            .context = 32,
                                            .qk_norm = true};
        pl_model_config_complete(&o.config);
        o.seq = 13;
        o.batch = 3;
        struct pl_trainer *a = new_trainer(&o);
        o.backend = "ref";
        struct pl_trainer *b = new_trainer(&o);
        steps(a, STEPS, best);
        steps(b, STEPS, ref);
        for (unsigned i = 0; i < STEPS; i++)
            assert_true(fabs(best[i] - ref[i]) < 0.02 * ref[i]);
        assert_true(ref[STEPS - 1] < ref[0]);
        pl_trainer_free(a);
        pl_trainer_free(b);
    }
}

static void test_the_clock_sets_the_rate(void **state)
{
    (void)state;
    struct pl_trainer_options o = options_of(PL_INNER_ADAMW);
    struct pl_trainer *t = new_trainer(&o);
    struct pl_sequences source = {count_up, &o.config.vocab};
    struct pl_step_report report;
    struct pl_error err;
    t->progress.clock = 500; /* other learners have seen these */
    assert_int_equal(pl_trainer_step(t, &source, &report, &err), PELAGO_OK);
    assert_int_equal(report.tokens, 192);
    assert_true(report.lr == pl_schedule_lr(&o.schedule, 692));
    assert_int_equal(t->progress.clock, 692);
    assert_int_equal(t->progress.tokens, 192);
    assert_int_equal(t->progress.sequence, 8);
    pl_trainer_free(t);
}

static void test_steps_counted_on_change_nothing_else(void **state)
{
    (void)state;
    struct pl_trainer_options o = options_of(PL_INNER_ADAMW);
    struct pl_trainer *a = new_trainer(&o), *b = new_trainer(&o);
    double losses[2][3];
    b->progress.step = 4883; /* those of the weights it begins with */
    steps(a, 3, losses[0]);
    steps(b, 3, losses[1]);
    assert_memory_equal(losses[0], losses[1], sizeof losses[0]);
    assert_true(a->progress.smooth == b->progress.smooth);
    assert_int_equal(b->progress.step, 4886);
    assert_int_equal(b->inner.step, 3);
    pl_trainer_free(a);
    pl_trainer_free(b);
}

static float rate_of_next_step(struct pl_trainer *t)
{
    struct pl_sequences source = {count_up, &t->options.config.vocab};
    struct pl_step_report report;
    struct pl_error err;
    assert_int_equal(pl_trainer_step(t, &source, &report, &err), PELAGO_OK);
    return report.lr;
}

/* Among others that are past the warm-up, with few moments or none. */
static void test_a_late_one_begins_slowly(void **state)
{
    (void)state;
    struct pl_trainer_options o = options_of(PL_INNER_ADAMW);
    o.schedule.total_tokens = UINT64_C(1) << 40; /* the schedule alone would stay at the peak */
    struct pl_trainer *late = new_trainer(&o);
    late->progress.clock = o.schedule.warmup_tokens;
    pl_trainer_join(late);
    for (uint32_t i = 1; i <= PL_LATE_STEPS + 2; i++) {
        float expected = o.schedule.peak * fminf(1, 0.25f + 0.75f * (float)i / PL_LATE_STEPS);
        assert_true(fabsf(rate_of_next_step(late) / expected - 1) < 1e-4f);
    }
    pl_trainer_join(late); /* another process, which has all the moments */
    assert_true(fabsf(rate_of_next_step(late) / o.schedule.peak - 1) < 1e-4f);
    late->inner.step = 10; /* one that was killed on its way there */
    pl_trainer_join(late);
    assert_true(fabsf(rate_of_next_step(late) / o.schedule.peak - (0.25f + 0.75f * 11 / PL_LATE_STEPS)) <
                1e-4f);
    pl_trainer_free(late);
}

static void test_who_is_there_from_the_start_is_not_late(void **state)
{
    (void)state;
    struct pl_trainer_options o = options_of(PL_INNER_ADAMW);
    struct pl_trainer *first = new_trainer(&o), *second = new_trainer(&o), *alone = new_trainer(&o);
    second->progress.clock = o.schedule.warmup_tokens - 1; /* a little behind the first */
    pl_trainer_join(first);
    pl_trainer_join(second);
    assert_true(rate_of_next_step(first) == pl_schedule_lr(&o.schedule, 192));
    assert_true(rate_of_next_step(second) == pl_schedule_lr(&o.schedule, o.schedule.warmup_tokens - 1 + 192));
    alone->progress.clock =
        2 * o.schedule.warmup_tokens; /* who does not say that it joins others has its own reasons */
    assert_true(rate_of_next_step(alone) == pl_schedule_lr(&o.schedule, 2 * o.schedule.warmup_tokens + 192));
    pl_trainer_free(first);
    pl_trainer_free(second);
    pl_trainer_free(alone);
}

/* ---- things that are wrong ---- */

static void test_a_loss_that_is_no_number(void **state)
{
    (void)state;
    struct pl_alloc alloc = pl_alloc_system();
    struct pl_trainer_options o = options_of(PL_INNER_ADAMW);
    struct pl_trainer *t = new_trainer(&o);
    struct pl_sequences source = {count_up, &o.config.vocab};
    struct pl_step_report report;
    struct pl_error err = {0};
    double losses[3];
    size_t bytes = t->model->tensors.floats * sizeof(float);
    steps(t, 3, losses);
    uint32_t norm = pl_tensors_find(&t->model->tensors, PL_TENSOR_NORM, PL_NONE32);
    t->model->params[t->model->tensors.at[norm].offset] = NAN;
    float *params = pl_alloc_zero(&alloc, bytes, 1), *m = pl_alloc_zero(&alloc, bytes, 1);
    memcpy(params, t->model->params, bytes);
    memcpy(m, t->inner.m, bytes);
    struct pl_progress progress = t->progress;
    assert_int_equal(pl_trainer_step(t, &source, &report, &err), PELAGO_INVALID);
    assert_string_equal(err.text,
                        "the loss of step 4 is not a finite number: try a lower learning rate or a longer "
                        "warm-up");
    assert_memory_equal(params, t->model->params, bytes);
    assert_memory_equal(m, t->inner.m, bytes);
    assert_memory_equal(&progress, &t->progress, sizeof progress);
    assert_int_equal(t->inner.step, 3);
    pl_alloc_free(&alloc, params, bytes);
    pl_alloc_free(&alloc, m, bytes);
    pl_trainer_free(t);
}

static void test_a_token_out_of_range(void **state)
{
    (void)state;
    struct pl_trainer_options o = options_of(PL_INNER_ADAMW);
    struct pl_trainer *t = new_trainer(&o);
    uint32_t larger = o.config.vocab + 1;
    struct pl_sequences source = {count_up, &larger};
    struct pl_step_report report;
    struct pl_error err = {0};
    t->progress.sequence = larger - 10; /* counting up from there passes the last token */
    assert_int_equal(pl_trainer_step(t, &source, &report, &err), PELAGO_INVALID);
    assert_string_equal(err.text,
                        "the data holds token 96, but the model's vocabulary has 96: it belongs to another "
                        "tokenizer");
    assert_int_equal(t->progress.step, 0);
    pl_trainer_free(t);
}

static void refused(const struct pl_trainer_options *o, const char *word)
{
    struct pl_alloc alloc = pl_alloc_system();
    struct pl_trainer *t;
    struct pl_error err = {0};
    assert_int_equal(pl_trainer_new(&t, &alloc, o, &err), PELAGO_INVALID);
    assert_null(t);
    if (strstr(err.text, word) == NULL)
        fail_msg("expected a sentence about '%s', not: %s", word, err.text);
}

static void test_options_are_checked(void **state)
{
    (void)state;
    const struct pl_trainer_options good = options_of(PL_INNER_ADAMW);
    struct pl_trainer_options o = good;
    o.config.heads = 5;
    refused(&o, "heads");
    o = good, o.seq = 33;
    refused(&o, "context of 32");
    o = good, o.seq = 0;
    refused(&o, "0 tokens");
    o = good, o.batch = 0;
    refused(&o, "0 sequences");
    o = good, o.accumulate = 0;
    refused(&o, "0 batches");
    o = good, o.z_loss = -1;
    refused(&o, "z-loss");
    o = good, o.rule.beta1 = 1;
    refused(&o, "beta1");
    o = good, o.schedule.peak = NAN;
    refused(&o, "peak");
    o = good, o.schedule.warmup_tokens = 1 << 20;
    refused(&o, "warm-up");
}

/* A checkpoint whose checksums are right says what no run has: that is a sentence, too, and no division or assertion. */
static void test_what_a_checkpoint_says_is_checked(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 14; i++) {
        struct disk disk;
        struct pl_error err = {0};
        struct pl_checkpoint_reader *r;
        struct pl_trainer_options o = options_of(PL_INNER_ADAMW), read = {.threads = 1};
        struct pl_trainer *t = new_trainer(&o);
        struct pl_trainer_options *bad = &t->options;
        uint32_t *const sizes[] = {&bad->batch, &bad->seq, &bad->accumulate};
        uint64_t *const counts[] = {&t->inner.step, &t->progress.tokens, &t->progress.clock,
                                    &t->progress.sequence};
        const uint32_t was[] = {o.batch, o.seq, o.accumulate};
        if (i < 6)
            *sizes[i % 3] = i < 3 ? 0 : UINT32_MAX;
        else if (i == 6)
            bad->batch = bad->accumulate = 1u << 31; /* times an even length: 0 in 64 bits */
        else if (i == 7)
            bad->z_loss = NAN;
        else if (i == 8)
            bad->schedule.peak = NAN;
        else if (i == 9)
            bad->rule.beta2 = 2;
        else
            *counts[i - 10] = PL_COUNT_MAX;
        disk_init(&disk);
        struct pl_trainer_extra extra = {.keep = 2};
        assert_int_equal(pl_trainer_save(t, disk.dir, &extra, &err), PELAGO_OK);
        assert_int_equal(pl_checkpoint_open(&r, disk.dir, &disk.alloc, PL_NONE64, &err), PELAGO_OK);
        assert_int_equal(pl_trainer_read_options(r, &read, &err), i < 10 ? PELAGO_CORRUPT : PELAGO_OK);
        if (i >= 10)
            assert_int_equal(pl_trainer_load(t, r, &err), PELAGO_CORRUPT);
        assert_non_null(strstr(err.text, "the checkpoint"));
        pl_checkpoint_close(r);
        for (unsigned k = 0; k < 3; k++)
            *sizes[k] = was[k]; /* what is freed is reckoned by them */
        pl_trainer_free(t);
        disk_release(&disk);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_resume_adamw),
        cmocka_unit_test(test_resume_muon),
        cmocka_unit_test(test_resume_with_another_optimizer),
        cmocka_unit_test(test_the_length_of_sequences_is_saved),
        cmocka_unit_test(test_accumulation),
        cmocka_unit_test(test_odd_dimensions),
        cmocka_unit_test(test_the_clock_sets_the_rate),
        cmocka_unit_test(test_steps_counted_on_change_nothing_else),
        cmocka_unit_test(test_a_late_one_begins_slowly),
        cmocka_unit_test(test_who_is_there_from_the_start_is_not_late),
        cmocka_unit_test(test_a_loss_that_is_no_number),
        cmocka_unit_test(test_a_token_out_of_range),
        cmocka_unit_test(test_options_are_checked),
        cmocka_unit_test(test_what_a_checkpoint_says_is_checked),
    };
    return cmocka_run_group_tests_name("train_trainer", tests, NULL, NULL);
}
