/* Every allocation of a trainer, a dataset and a validation fails once: NOMEM with a sentence, and nothing is leaked. */
#include "memdisk.h"
#include "tempdir.h"
#include "train/batches.h"
#include "train/dataset.h"
#include "train/evaluate.h"
#include "train/trainer.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

static struct pl_trainer_options options_of(uint32_t vocab)
{
    struct pl_trainer_options o = {
        .config = {.layers = 1, .width = 16, .heads = 1, .vocab = vocab, .context = 8},
        .backend = "portable",
        .threads = 1,
        .batch = 2,
        .seq = 8,
        .accumulate = 1,
        .matrices = PL_INNER_MUON,
        .rule = {.beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .momentum = 0.95f},
        .schedule = {.kind = PL_SCHEDULE_CONSTANT, .peak = 1e-3f},
    };
    pl_model_config_complete(&o.config);
    return o;
}

/* Text to a step and a validation, as `pelago train` does it. */
static enum pelago_status train(const struct pl_alloc *alloc, const char *path, struct pl_error *err)
{
    struct pl_dataset_options data = {.data = path, .tokenizer = "byte", .valid_tokens = 20, .threads = 1};
    struct pl_dataset *d = NULL;
    struct pl_trainer *t = NULL;
    struct pl_batches b = {.row = NULL};
    struct pl_step_report report;
    struct pl_evaluation valid;
    enum pelago_status st = pl_dataset_open(&d, alloc, &data, err);
    if (st == PELAGO_OK)
        st = pl_batches_init(&b, alloc, &d->train, 8, 1, err);
    if (st == PELAGO_OK) {
        struct pl_trainer_options o = options_of(d->vocab);
        st = pl_trainer_new(&t, alloc, &o, err);
    }
    struct pl_sequences source = pl_batches_sequences(&b);
    if (st == PELAGO_OK)
        st = pl_trainer_step(t, &source, &report, err);
    if (st == PELAGO_OK)
        st = pl_evaluate(t->model, &d->valid, &valid, err);
    pl_trainer_free(t);
    pl_batches_release(&b);
    pl_dataset_close(d);
    return st;
}

static void test_each_allocation_fails_once(void **state)
{
    (void)state;
    static const char text[] =
        "a line of a poem about the sea, and another one about the sand and the wind in it\n"
        "<|endoftext|>\nand the end of it, which is longer than one would think at first\n";
    struct counting_alloc memory;
    struct tempdir temp;
    struct pl_error err;
    uint64_t failures = 0;
    tempdir_init(&temp);
    tempdir_put(&temp, "text", text, sizeof text - 1);
    for (uint64_t n = 0;; n++) {
        counting_alloc_init(&memory);
        memory.fail_at = n;
        memory.fail_times = 1;
        err = (struct pl_error){0};
        enum pelago_status st = train(&memory.alloc, tempdir_path(&temp, "text"), &err);
        assert_int_equal(memory.bytes, 0);
        if (memory.requests <= n) {
            assert_int_equal(st, PELAGO_OK);
            break;
        }
        if (st == PELAGO_OK)
            continue; /* what could do without it */
        failures++;
        assert_int_equal(st, PELAGO_NOMEM);
        assert_true(err.text[0] != '\0');
    }
    assert_true(failures > 20);
    tempdir_release(&temp);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_each_allocation_fails_once)};
    return cmocka_run_group_tests_name("trainer_alloc", tests, NULL, NULL);
}
