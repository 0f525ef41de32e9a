/* The benchmark of whole steps: figures that fit together, and none at all for steps that move nothing. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "bench/trainer_bench.h"
#include "model/cpu/ref.h"
#include "model/engine.h"

#include <math.h>
#include <string.h>

/* ref's operations, one of which writes what is no number: forward, so that the loss is none, or into a gradient. */
static struct pl_ops broken;

static const struct pl_ops *load(struct pl_error *err)
{
    (void)err;
    return &broken;
}

static void embed(struct pl_engine *e, float *x, const float *table, const int32_t *tokens, uint32_t rows,
                  uint32_t c)
{
    pl_ops_ref.embed(e, x, table, tokens, rows, c);
    x[0] = NAN;
}

static void embed_dw(struct pl_engine *e, float *dtable, const float *dx, const int32_t *tokens,
                     uint32_t rows, uint32_t c)
{
    pl_ops_ref.embed_dw(e, dtable, dx, tokens, rows, c);
    dtable[0] = INFINITY;
}

static enum pelago_status run(const char *backend, struct pl_trainer_result *r, struct pl_error *err)
{
    struct pl_trainer_bench b = {
        .config = {.layers = 1, .width = 16, .heads = 2, .vocab = 32, .context = 16, .tied = true},
        .model = "tiny",
        .backend = backend,
        .batch = 2,
        .seq = 8,
        .threads = 1};
    pl_model_config_complete(&b.config);
    return pl_trainer_bench_run(&b, r, err);
}

static void test_steps_are_timed(void **state)
{
    (void)state;
    struct pl_trainer_result r;
    struct pl_error err = {0};
    if (run("ref", &r, &err) != PELAGO_OK)
        fail_msg("%s", err.text);
    assert_int_equal(r.steps, 3);
    assert_true(r.tokens_per_s >= r.tokens_per_s_mean && r.tokens_per_s_mean > 0);
    assert_true(isfinite(r.loss_first) && r.loss_first != r.loss_last);
}

static void expect_refused(const char *sentence)
{
    struct pl_trainer_result r;
    struct pl_error err = {0};
    pl_engine_offer("broken", load);
    assert_int_equal(run("broken", &r, &err), PELAGO_INVALID);
    if (strstr(err.text, sentence) == NULL)
        fail_msg("expected '%s' in: %s", sentence, err.text);
    pl_engine_offer(NULL, NULL);
}

static void test_a_loss_that_is_no_number(void **state)
{
    (void)state;
    broken = pl_ops_ref;
    broken.embed = embed;
    expect_refused("the loss of a step is not a finite number");
}

static void test_a_gradient_that_is_no_number(void **state)
{
    (void)state;
    broken = pl_ops_ref;
    broken.embed_dw = embed_dw;
    expect_refused("the gradient of model.embed_tokens.weight is not finite");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steps_are_timed),
        cmocka_unit_test(test_a_loss_that_is_no_number),
        cmocka_unit_test(test_a_gradient_that_is_no_number),
    };
    return cmocka_run_group_tests_name("bench_trainer", tests, NULL, NULL);
}
