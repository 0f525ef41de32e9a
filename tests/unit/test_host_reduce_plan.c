/* Rounds, steps and buckets of the synchronous algorithms; and the order in which the way back finishes gradients. */
#include "base/prng.h"
#include "host/reduce_plan.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

static struct pl_settings settings_of(enum pl_algorithm algorithm, bool tied)
{
    struct pl_settings s = {
        .run_id = 1,
        .trainer =
            {.config = {.layers = 5, .width = 192, .heads = 3, .vocab = 600, .context = 32, .tied = tied},
             .threads = 2,
             .batch = 3,
             .seq = 8,
             .accumulate = 2,
             .matrices = PL_INNER_ADAMW,
             .rule = {.beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .momentum = 0.95f, .clip = 1},
             .schedule = {.kind = PL_SCHEDULE_CONSTANT, .peak = 1e-3f, .total_tokens = 10000},
             .seed = 3},
        .total_tokens = 10000,
        .learners = 4};
    pl_settings_defaults(&s);
    s.algorithm = algorithm;
    pl_model_config_complete(&s.trainer.config);
    return s;
}

static struct pl_reduce_plan plan_of(const struct pl_settings *s)
{
    struct pl_alloc alloc = pl_alloc_system();
    struct pl_reduce_plan p;
    struct pl_error err = {0};
    if (pl_reduce_plan_init(&p, &alloc, s, &err) != PELAGO_OK)
        fail_msg("%s", err.text);
    return p;
}

/* ---- arithmetic ---- */

static void tokens_are_those_of_all_learners(void **state)
{
    (void)state;
    struct pl_settings s = settings_of(PL_ALGORITHM_DATA_PARALLEL, true);
    struct pl_reduce_plan p = plan_of(&s);
    assert_int_equal(p.step_tokens, 48);
    assert_int_equal(p.step_sequences, 6);
    assert_int_equal(p.steps, 53); /* 52 x 192 = 9984 are not enough */
    assert_int_equal(p.rounds, 53);
    assert_int_equal(pl_reduce_tokens(&p, 53), 53 * 192);
    assert_true(pl_reduce_compares(&p, 50) && pl_reduce_compares(&p, 53));
    assert_false(pl_reduce_compares(&p, 0) || pl_reduce_compares(&p, 49) || pl_reduce_compares(&p, 51));
}

static void the_last_round_may_be_shorter(void **state)
{
    (void)state;
    struct pl_settings s = settings_of(PL_ALGORITHM_DILOCO, true);
    struct pl_reduce_plan p = plan_of(&s);
    assert_int_equal(p.period, 24);
    assert_int_equal(p.rounds, 3);
    assert_int_equal(pl_reduce_steps(&p, 2), 48);
    assert_int_equal(pl_reduce_steps(&p, 3), 53);
    assert_int_equal(p.codec, PL_CODEC_BF16);
    s.up = PL_CODEC_FP32;
    p = plan_of(&s);
    assert_int_equal(p.codec, PL_CODEC_FP32);
    assert_int_equal(p.bucket_values, PL_REDUCE_BYTES_MAX / 4);
    s.algorithm = PL_ALGORITHM_DATA_PARALLEL;
    p = plan_of(&s);
    assert_int_equal(p.codec, PL_CODEC_BF16);
}

static void a_decoupled_run_has_no_plan(void **state)
{
    struct pl_alloc alloc = pl_alloc_system();
    struct pl_settings s = settings_of(PL_ALGORITHM_DECOUPLED, true);
    struct pl_reduce_plan p;
    struct pl_error err;
    (void)state;
    assert_int_equal(pl_reduce_plan_init(&p, &alloc, &s, &err), PELAGO_INVALID);
    assert_string_equal(err.text, "the run is decoupled, not a synchronous one");
}

static void buckets_cover_the_block_from_its_end(void **state)
{
    (void)state;
    struct pl_settings s = settings_of(PL_ALGORITHM_DATA_PARALLEL, false);
    struct pl_reduce_plan p = plan_of(&s);
    uint64_t end = p.floats;
    assert_true(p.buckets > 3);
    for (uint32_t b = 0; b < p.buckets; b++) {
        struct pl_reduce_range r = pl_reduce_bucket(&p, b);
        assert_int_equal(r.first + r.count, end);
        assert_true(r.bytes == 2 * r.count && r.bytes <= PL_REDUCE_BYTES_MAX);
        /* Ready exactly when its first value is final. */
        assert_int_equal(pl_reduce_ready(&p, r.first), b + 1);
        assert_int_equal(pl_reduce_ready(&p, r.first + 1), b);
        end = r.first;
    }
    assert_int_equal(end, 0);
    assert_int_equal(pl_reduce_ready(&p, p.floats), 0);
}

/* ---- the mean ---- */

static void a_bad_part_is_named(void **state)
{
    (void)state;
    struct pl_settings s = settings_of(PL_ALGORITHM_DATA_PARALLEL, true);
    struct pl_reduce_plan p = plan_of(&s);
    uint32_t last = p.buckets - 1, bad = 9;
    struct pl_reduce_range r = pl_reduce_bucket(&p, last);
    uint8_t *a = calloc(1, r.bytes), *b = calloc(1, r.bytes), *out = malloc(r.bytes);
    float *scratch = malloc(p.bucket_values * sizeof *scratch);
    const uint8_t *parts[3] = {a, b, a};
    a[1] = 0x40; /* 2.0 */
    b[1] = 0xc0; /* -2.0 */
    assert_true(pl_reduce_mean(&p, last, parts, 3, scratch, out, &bad));
    assert_int_equal(out[0] | out[1] << 8, 0x3f2b); /* 2/3 in bf16 */
    b[r.bytes - 2] = 0xc0;
    b[r.bytes - 1] = 0x7f; /* not a number */
    assert_false(pl_reduce_mean(&p, last, parts, 3, scratch, out, &bad));
    assert_int_equal(bad, 1);
    free(a);
    free(b);
    free(out);
    free(scratch);
}

/* ---- the order of the way back ---- */

struct watch {
    struct pl_trainer *trainer;
    float *early; /* as they were when they were called final */
    uint64_t from;
    uint32_t calls;
    bool reduced;
};

static void graded(void *user, uint64_t from)
{
    struct watch *w = user;
    assert_true(from < w->from);
    memcpy(w->early + from, w->trainer->model->grads + from, (w->from - from) * sizeof(float));
    w->from = from;
    w->calls++;
}

static bool reduce(void *user)
{
    struct watch *w = user;
    assert_int_equal(w->from, 0);
    assert_memory_equal(w->early, w->trainer->model->grads,
                        w->trainer->model->tensors.floats * sizeof(float));
    w->reduced = true;
    return false;
}

static enum pelago_status some_tokens(void *self, uint64_t first, uint32_t count, uint32_t seq,
                                      int32_t *tokens, int32_t *targets, struct pl_error *err)
{
    struct pl_prng r;
    (void)self;
    (void)err;
    pl_prng_seed(&r, first, 1);
    for (uint32_t i = 0; i < count * seq; i++) {
        tokens[i] = (int32_t)pl_prng_below(&r, 600);
        targets[i] = (int32_t)pl_prng_below(&r, 600);
    }
    return PELAGO_OK;
}

/* What is called final is final, last layer first, and only on the way back of the last batch; a step that is given up has
 * changed nothing. */
static void watch_a_step(bool tied)
{
    struct pl_alloc alloc = pl_alloc_system();
    struct pl_settings s = settings_of(PL_ALGORITHM_DATA_PARALLEL, tied);
    struct pl_sequences source = {some_tokens, NULL};
    struct pl_step_report report;
    struct pl_error err = {0};
    struct watch w = {0};
    if (pl_trainer_new(&w.trainer, &alloc, &s.trainer, &err) != PELAGO_OK)
        fail_msg("%s", err.text);
    size_t bytes = w.trainer->model->tensors.floats * sizeof(float);
    float *before = malloc(bytes);
    memcpy(before, w.trainer->model->params, bytes);
    w.early = malloc(bytes);
    w.from = w.trainer->model->tensors.floats;
    w.trainer->hooks = (struct pl_trainer_hooks){.graded = graded, .reduce = reduce, .user = &w};
    assert_int_equal(pl_trainer_step(w.trainer, &source, &report, &err), PELAGO_STALE);
    assert_true(w.reduced);
    assert_int_equal(w.calls, s.trainer.config.layers + 2);
    assert_int_equal(w.trainer->progress.step, 0);
    assert_memory_equal(before, w.trainer->model->params, bytes);
    pl_trainer_free(w.trainer);
    free(w.early);
    free(before);
}

static void gradients_become_final_from_the_end(void **state)
{
    (void)state;
    watch_a_step(true);
}

static void so_they_do_with_a_head_of_its_own(void **state)
{
    (void)state;
    watch_a_step(false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_are_those_of_all_learners),
        cmocka_unit_test(the_last_round_may_be_shorter),
        cmocka_unit_test(a_decoupled_run_has_no_plan),
        cmocka_unit_test(buckets_cover_the_block_from_its_end),
        cmocka_unit_test(a_bad_part_is_named),
        cmocka_unit_test(gradients_become_final_from_the_end),
        cmocka_unit_test(so_they_do_with_a_head_of_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
