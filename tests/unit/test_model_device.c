/* Back ends with a device of their own: what the model, the trainer and generation do with one (support/fake_device.h). */
#include "fake_device.h"
#include "model/infer.h"
#include "train/trainer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 2, SEQ = 9, ROWS = BATCH * SEQ };

static struct pl_model_config config(bool tied)
{
    struct pl_model_config c = {
        .layers = 2, .width = 24, .heads = 2, .vocab = 40, .context = 16, .tied = tied, .qk_norm = !tied};
    pl_model_config_complete(&c);
    return c;
}

static struct pl_model *new_model(const char *backend, bool tied, bool recompute)
{
    struct pl_alloc alloc = pl_alloc_system();
    struct pl_model_options o = {.config = config(tied),
                                 .backend = backend,
                                 .threads = 2,
                                 .batch = BATCH,
                                 .seq = SEQ,
                                 .train = true,
                                 .recompute = recompute};
    struct pl_model *m = NULL;
    struct pl_error err = {0};
    if (pl_model_new(&m, &alloc, &o, &err) != PELAGO_OK)
        fail_msg("%s", err.text);
    pl_tensors_fill(&m->tensors, m->params, 3);
    pl_model_refresh(m);
    return m;
}

static int32_t tokens[ROWS], targets[ROWS];
static const struct pl_batch batch = {BATCH, SEQ, tokens, targets};

static int fill_batch(void **state)
{
    (void)state;
    for (int i = 0; i < ROWS; i++) {
        tokens[i] = (i * 7 + 3) % 40;
        targets[i] = i % 5 == 4 ? -1 : (i * 11 + 1) % 40;
    }
    pl_engine_offer("fake", fake_device_load);
    fake_device = (struct fake_device){0};
    return 0;
}

/* ---- the same bits as ref ---- */

static void same_pass(bool tied, bool recompute, bool accumulate)
{
    struct pl_model *a = new_model("ref", tied, recompute), *b = new_model("fake", tied, recompute);
    struct pl_pass pass = {.scale = 0.1f, .z_loss = 1e-3f};
    for (int turn = 0; turn < 2; turn++) {
        double ref = pl_model_train(a, &batch, &pass), fake = pl_model_train(b, &batch, &pass);
        assert_true(isfinite(ref));
        assert_memory_equal(&ref, &fake, sizeof ref);
        assert_memory_equal(a->grads, b->grads, a->tensors.floats * sizeof(float));
        pass.accumulate = accumulate;
    }
    pl_model_free(a);
    pl_model_free(b);
}

static void test_pass(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++)
        same_pass(i & 1, (i & 2) != 0, (i & 4) != 0);
}

static void test_losses_and_logits(void **state)
{
    (void)state;
    static float losses[2][ROWS], logits[2][ROWS * 40];
    const char *names[2] = {"ref", "fake"};
    fake_device.logit_rows = 7; /* several pieces, the last shorter */
    for (int i = 0; i < 2; i++) {
        struct pl_model *m = new_model(names[i], true, false);
        m->params[0] += 0.5f; /* a change that was made known is seen */
        pl_model_refresh(m);
        assert_true(isfinite(pl_model_loss(m, &batch, losses[i])));
        pl_model_logits(m, &batch, logits[i]);
        pl_model_free(m);
    }
    assert_memory_equal(losses[0], losses[1], sizeof losses[0]);
    assert_memory_equal(logits[0], logits[1], sizeof logits[0]);
}

/* Gradients are here when the pass says so, and what is done to them then stays: all-reduce puts means there meanwhile. */
struct seen {
    struct pl_model *m;
    uint64_t from;
};

static void negate_graded(void *user, uint64_t from)
{
    struct seen *s = user;
    for (uint64_t i = from; i < s->from; i++)
        s->m->grads[i] = -s->m->grads[i];
    s->from = from;
}

static void test_graded(void **state)
{
    (void)state;
    struct pl_model *a = new_model("ref", true, false), *b = new_model("fake", true, false);
    struct seen seen = {.m = b, .from = b->tensors.floats};
    struct pl_pass plain = {.scale = 0.1f}, told = {.scale = 0.1f, .graded = negate_graded, .user = &seen};
    (void)pl_model_train(a, &batch, &plain);
    (void)pl_model_train(b, &batch, &told);
    assert_int_equal(seen.from, 0);
    for (uint64_t i = 0; i < b->tensors.floats; i++)
        a->grads[i] = -a->grads[i];
    assert_memory_equal(a->grads, b->grads, b->tensors.floats * sizeof(float));
    fake_device.breaks = true; /* and nobody is told of what a broken device made */
    seen.from = b->tensors.floats;
    (void)pl_model_train(b, &batch, &told);
    assert_int_equal(seen.from, b->tensors.floats);
    pl_model_free(a);
    pl_model_free(b);
}

/* ---- training ---- */

static enum pelago_status fetch(void *self, uint64_t first, uint32_t count, uint32_t seq, int32_t *to,
                                int32_t *next, struct pl_error *err)
{
    (void)self;
    (void)err;
    for (uint32_t i = 0; i < count * seq; i++) {
        to[i] = (int32_t)((first * 5 + i) % 40);
        next[i] = (int32_t)((first * 5 + i + 1) % 40);
    }
    return PELAGO_OK;
}

static struct pl_trainer *new_trainer(const char *backend, enum pl_inner_kind matrices)
{
    struct pl_trainer_options o = {
        .config = config(true),
        .backend = backend,
        .threads = 1,
        .batch = BATCH,
        .seq = SEQ,
        .accumulate = 2,
        .matrices = matrices,
        .rule =
            {.beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .momentum = 0.95f, .weight_decay = 0.1f, .clip = 1},
        .schedule = {.kind = PL_SCHEDULE_COSINE, .peak = 3e-3f, .floor = 0.1f, .total_tokens = 1000},
        .seed = 5};
    struct pl_alloc alloc = pl_alloc_system();
    struct pl_trainer *t = NULL;
    struct pl_error err = {0};
    if (pl_trainer_new(&t, &alloc, &o, &err) != PELAGO_OK)
        fail_msg("%s", err.text);
    return t;
}

static double last_loss(const char *backend, enum pl_inner_kind matrices)
{
    const struct pl_sequences source = {fetch, NULL};
    struct pl_trainer *t = new_trainer(backend, matrices);
    struct pl_step_report report = {0};
    struct pl_error err = {0};
    for (int i = 0; i < 10; i++)
        if (pl_trainer_step(t, &source, &report, &err) != PELAGO_OK)
            fail_msg("%s", err.text);
    pl_trainer_free(t);
    return report.loss;
}

/* Muon's products are the processor's best here, so they are close to ref's and no more. */
static void test_training(void **state)
{
    (void)state;
    double ref = last_loss("ref", PL_INNER_ADAMW), fake = last_loss("fake", PL_INNER_ADAMW);
    assert_memory_equal(&ref, &fake, sizeof ref);
    assert_true(fabs(last_loss("ref", PL_INNER_MUON) - last_loss("fake", PL_INNER_MUON)) < 0.02);
}

/* ---- when something is wrong ---- */

static void test_broken(void **state)
{
    (void)state;
    const struct pl_sequences source = {fetch, NULL};
    struct pl_trainer *t = new_trainer("fake", PL_INNER_ADAMW);
    struct pl_step_report report;
    struct pl_error err = {0};
    assert_int_equal(pl_trainer_step(t, &source, &report, &err), PELAGO_OK);
    fake_device.breaks = true;
    assert_int_equal(pl_trainer_step(t, &source, &report, &err), PELAGO_IO);
    assert_string_equal(err.text, "step 2 failed: the fake device broke");
    fake_device.breaks = false; /* and it stays broken */
    assert_int_equal(pl_trainer_step(t, &source, &report, &err), PELAGO_IO);
    pl_trainer_free(t);
}

static void test_not_there(void **state)
{
    (void)state;
    struct pl_alloc alloc = pl_alloc_system();
    struct pl_model_options o = {
        .config = config(true), .backend = "fake", .threads = 1, .batch = 1, .seq = 4, .train = true};
    struct pl_model *m = NULL;
    struct pl_error err = {0};
    fake_device.absent = true;
    assert_int_equal(pl_engine_backend_check("fake", &err), PELAGO_UNSUPPORTED);
    assert_int_equal(pl_model_new(&m, &alloc, &o, &err), PELAGO_UNSUPPORTED);
    assert_string_equal(err.text, "the fake device is absent");
    fake_device = (struct fake_device){.closed = true};
    assert_int_equal(pl_model_new(&m, &alloc, &o, &err), PELAGO_UNSUPPORTED);
    assert_string_equal(err.text, "the fake device is closed");
    for (uint32_t left = 1; left <= PL_MODEL_PARTS; left++) {
        fake_device = (struct fake_device){.memory_left = left};
        assert_int_equal(pl_model_new(&m, &alloc, &o, &err), PELAGO_NOMEM);
        assert_null(m);
        assert_int_equal(fake_device_pieces(), 0);
    }
    assert_int_equal(pl_engine_backend_check("fuke", &err), PELAGO_INVALID);
    assert_non_null(strstr(err.text, "amx, fake"));
}

/* One token at a time is the processor's. */
static void test_generation(void **state)
{
    (void)state;
    struct pl_alloc alloc = pl_alloc_system();
    struct pl_model *m = new_model("fake", true, false);
    struct pl_infer_options o = {.config = config(true), .backend = "fake", .threads = 1, .context = 8};
    struct pl_infer *inf = NULL;
    struct pl_error err = {0};
    if (pl_infer_new(&inf, &alloc, &o, &m->tensors, m->params, &err) != PELAGO_OK)
        fail_msg("%s", err.text);
    assert_string_not_equal(pl_infer_backend(inf), "fake");
    pl_infer_free(inf);
    pl_model_free(m);
}

static int none_left(void **state)
{
    (void)state;
    fake_device = (struct fake_device){0};
    return fake_device_pieces() == 0 ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_pass, fill_batch, none_left),
        cmocka_unit_test_setup_teardown(test_losses_and_logits, fill_batch, none_left),
        cmocka_unit_test_setup_teardown(test_graded, fill_batch, none_left),
        cmocka_unit_test_setup_teardown(test_training, fill_batch, none_left),
        cmocka_unit_test_setup_teardown(test_broken, fill_batch, none_left),
        cmocka_unit_test_setup_teardown(test_not_there, fill_batch, none_left),
        cmocka_unit_test_setup_teardown(test_generation, fill_batch, none_left),
    };
    return cmocka_run_group_tests_name("model_device", tests, NULL, NULL);
}
