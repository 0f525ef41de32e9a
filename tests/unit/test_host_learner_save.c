/* A learner's own checkpoint: what is read is what was written; whatever is damaged, cut off or of somebody
 * else is not used, and never believed about its sizes; the one before stays until the new one is in its
 * place. */
#include "base/prng.h"
#include "host/learner_host_int.h"
#include "memdisk.h"
#include "seed.h"
#include "tempdir.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FRAGMENTS = 5 };

/* One learner's values, without the learner. */
struct bundle {
    struct pl_learner_host h; /* for its allocator alone */
    struct pl_trainer *trainer;
    struct pl_vec *anchors[FRAGMENTS], *residuals[FRAGMENTS];
    bool there[FRAGMENTS];
    struct pl_buf core;
    struct pl_ltrainer_state state;
    struct pl_steady steady;
    struct pl_lsave save;
};

static struct tempdir temp;
static struct counting_alloc memory;
static struct pl_settings settings;
static struct pl_layout layout;
static struct pl_posix_dir *posix;
static struct pl_dir dir;
static struct pl_prng prng;

static void fill(float *at, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        at[i] = (float)pl_prng_below(&prng, 1000000) * 1e-5f - 3;
}

static void make_bundle(struct bundle *b, bool filled)
{
    struct pl_error err = {PELAGO_OK, ""};
    memset(b, 0, sizeof *b);
    b->h.alloc = memory.alloc;
    if (pl_trainer_new(&b->trainer, &memory.alloc, &settings.trainer, &err) != PELAGO_OK)
        fail_msg("%s", err.text);
    pl_buf_init(&b->core, &memory.alloc, 1 << 20);
    for (uint32_t i = 0; i < FRAGMENTS; i++) {
        b->anchors[i] = pl_vec_new(&b->h, layout.fragments[i].values);
        bool has = !filled || i != 2; /* one has no residual */
        b->residuals[i] = has ? pl_vec_new(&b->h, layout.fragments[i].values) : NULL;
        memset(b->anchors[i]->at, 0, layout.fragments[i].values * sizeof(float));
        if (filled)
            fill(b->anchors[i]->at, layout.fragments[i].values);
        if (filled && has)
            fill(b->residuals[i]->at, layout.fragments[i].values);
    }
    b->save = (struct pl_lsave){.alloc = &memory.alloc,
                                .layout = &layout,
                                .trainer = b->trainer,
                                .run_id = 5,
                                .identity = 6,
                                .manifest_digest = 7,
                                .steady = &b->steady,
                                .state = &b->state,
                                .core = &b->core,
                                .theta = b->trainer->model->params,
                                .anchors = b->anchors,
                                .residuals = b->residuals,
                                .residual_there = b->there};
}

/* Different numbers everywhere. */
static void fill_bundle(struct bundle *b, uint64_t step)
{
    const struct pl_tensors *t = &layout.tensors;
    fill(b->save.theta, t->floats);
    for (uint32_t i = 0; i < t->count; i++) {
        fill(pl_inner_m(&b->trainer->inner, i), (uint64_t)t->at[i].rows * t->at[i].cols);
        if (pl_inner_v(&b->trainer->inner, i) != NULL)
            fill(pl_inner_v(&b->trainer->inner, i), (uint64_t)t->at[i].rows * t->at[i].cols);
    }
    b->core.len = 0;
    for (uint32_t i = 0; i < 300; i++) {
        uint8_t byte = (uint8_t)pl_prng_next(&prng);
        assert_int_equal(pl_buf_append(&b->core, &byte, 1), PELAGO_OK);
    }
    b->state =
        (struct pl_ltrainer_state){.own_sequence = 11,
                                   .inner_step = step,
                                   .progress = {.step = step, .tokens = 13, .clock = 14, .smooth = 1.5}};
}

static void release_bundle(struct bundle *b)
{
    for (uint32_t i = 0; i < FRAGMENTS; i++) {
        pl_vec_drop(&b->h, b->anchors[i]);
        pl_vec_drop(&b->h, b->residuals[i]);
    }
    pl_buf_release(&b->core);
    pl_trainer_free(b->trainer);
}

static void same_floats(const float *a, const float *b, uint64_t n)
{
    assert_memory_equal(a, b, n * sizeof(float));
}

static void same_bundle(const struct bundle *a, const struct bundle *b)
{
    const struct pl_tensors *t = &layout.tensors;
    same_floats(a->save.theta, b->save.theta, t->floats);
    for (uint32_t i = 0; i < t->count; i++) {
        uint64_t n = (uint64_t)t->at[i].rows * t->at[i].cols;
        struct pl_inner *ia = &a->trainer->inner, *ib = &b->trainer->inner;
        same_floats(pl_inner_m(ia, i), pl_inner_m(ib, i), n);
        if (pl_inner_v(ia, i) != NULL)
            same_floats(pl_inner_v(ia, i), pl_inner_v(ib, i), n);
    }
    for (uint32_t i = 0; i < FRAGMENTS; i++) {
        same_floats(a->anchors[i]->at, b->anchors[i]->at, layout.fragments[i].values);
        assert_int_equal(b->there[i], a->residuals[i] != NULL);
        if (b->there[i])
            same_floats(a->residuals[i]->at, b->residuals[i]->at, layout.fragments[i].values);
    }
    assert_int_equal(a->core.len, b->core.len);
    assert_memory_equal(a->core.data, b->core.data, a->core.len);
    assert_int_equal(a->state.own_sequence, b->state.own_sequence);
    assert_int_equal(a->state.inner_step, b->state.inner_step);
    assert_memory_equal(&a->state.progress, &b->state.progress, sizeof a->state.progress);
}

static int set_up(void **state)
{
    (void)state;
    struct pl_error err = {PELAGO_OK, ""};
    counting_alloc_init(&memory);
    tempdir_init(&temp);
    pl_prng_seed(&prng, test_seed(), 1);
    settings = (struct pl_settings){.total_tokens = 1000};
    settings.trainer.config =
        (struct pl_model_config){.layers = 1, .width = 32, .vocab = 64, .context = 16, .tied = true};
    pl_model_config_complete(&settings.trainer.config);
    settings.trainer.threads = settings.trainer.batch = settings.trainer.accumulate = 1;
    settings.trainer.seq = 8;
    settings.trainer.matrices = PL_INNER_MUON; /* some tensors have one moment, some two */
    settings.trainer.rule =
        (struct pl_inner_rule){.beta1 = 0.9f, .beta2 = 0.99f, .eps = 1e-8f, .momentum = 0.9f};
    settings.trainer.schedule = (struct pl_schedule){.kind = PL_SCHEDULE_CONSTANT, .peak = 1e-3f};
    pl_settings_defaults(&settings);
    settings.fragments = FRAGMENTS;
    if (pl_layout_init(&layout, &memory.alloc, &settings, &err) != PELAGO_OK ||
        pl_posix_dir_open(&posix, &memory.alloc, temp.path, PL_POSIX_DIR_EXISTING, &err) != PELAGO_OK)
        fail_msg("%s", err.text);
    dir = pl_posix_dir_table(posix);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    pl_posix_dir_close(posix);
    pl_layout_release(&layout);
    tempdir_release(&temp);
    assert_int_equal(memory.bytes, 0);
    return 0;
}

static void write_it(struct bundle *b)
{
    struct pl_error err = {PELAGO_OK, ""};
    if (pl_lsave_write(&b->save, dir, &err) != PELAGO_OK)
        fail_msg("%s", err.text);
}

static enum pelago_status read_it(struct bundle *b, const char *name)
{
    struct pl_error err = {PELAGO_OK, ""};
    b->core.len = 0;
    enum pelago_status st = pl_lsave_read(&b->save, dir, name, &err);
    assert_int_equal(st == PELAGO_OK, err.text[0] == '\0');
    return st;
}

static void test_there_and_back(void **state)
{
    (void)state;
    struct bundle first, second, back;
    make_bundle(&first, true);
    make_bundle(&second, true);
    make_bundle(&back, false);
    fill_bundle(&first, 100);
    fill_bundle(&second, 200);
    assert_int_equal(read_it(&back, PL_LSAVE_NAME), PELAGO_NOTFOUND);
    write_it(&first);
    assert_int_equal(tempdir_count(&temp), 1);
    assert_int_equal(read_it(&back, PL_LSAVE_NAME), PELAGO_OK);
    same_bundle(&first, &back);
    write_it(&second);
    assert_int_equal(tempdir_count(&temp), 2);
    assert_int_equal(read_it(&back, PL_LSAVE_NAME), PELAGO_OK);
    same_bundle(&second, &back);
    assert_int_equal(read_it(&back, PL_LSAVE_OLD), PELAGO_OK);
    same_bundle(&first, &back);
    write_it(&first); /* never more than two */
    assert_int_equal(tempdir_count(&temp), 2);
    release_bundle(&first);
    release_bundle(&second);
    release_bundle(&back);
}

static void test_of_somebody_else(void **state)
{
    (void)state;
    struct bundle b;
    make_bundle(&b, true);
    fill_bundle(&b, 1);
    write_it(&b);
    uint64_t *const fields[] = {&b.save.run_id, &b.save.identity, &b.save.manifest_digest};
    for (unsigned i = 0; i < 3; i++) {
        ++*fields[i];
        assert_int_equal(read_it(&b, PL_LSAVE_NAME), PELAGO_INVALID);
        --*fields[i];
    }
    release_bundle(&b);
}

/* Any bit that is not as it was written, and any end that is not the end. */
static void test_damage_is_seen(void **state)
{
    (void)state;
    struct bundle b, back;
    make_bundle(&b, true);
    make_bundle(&back, false);
    fill_bundle(&b, 1);
    write_it(&b);
    FILE *f = fopen(tempdir_path(&temp, PL_LSAVE_NAME), "rb");
    assert_non_null(f);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    size_t len = (size_t)ftell(f);
    uint8_t *bytes = malloc(len);
    rewind(f);
    assert_int_equal(fread(bytes, 1, len, f), len);
    assert_int_equal(fclose(f), 0);
    for (unsigned i = 0; i < 150; i++) {
        size_t at = i < 30 ? i * 4 : (size_t)pl_prng_below(&prng, len);
        uint8_t bit = (uint8_t)(1u << pl_prng_below(&prng, 8));
        bytes[at] ^= bit;
        tempdir_put(&temp, "other", bytes, len);
        assert_int_equal(read_it(&back, "other"), PELAGO_CORRUPT);
        bytes[at] ^= bit;
    }
    for (unsigned i = 0; i < 50; i++) {
        tempdir_put(&temp, "other", bytes, i == 0 ? len - 1 : (size_t)pl_prng_below(&prng, len));
        assert_int_equal(read_it(&back, "other"), PELAGO_CORRUPT);
    }
    tempdir_put(&temp, "other", bytes, len);
    assert_int_equal(read_it(&back, "other"), PELAGO_OK);
    free(bytes);
    release_bundle(&b);
    release_bundle(&back);
}

/* Where it cannot be written, what there was is untouched. */
static void test_a_failed_save_costs_nothing(void **state)
{
    (void)state;
    struct bundle first, second, back;
    struct pl_error err = {PELAGO_OK, ""};
    make_bundle(&first, true);
    make_bundle(&second, true);
    make_bundle(&back, false);
    fill_bundle(&first, 100);
    fill_bundle(&second, 200);
    write_it(&first);
    for (unsigned i = 0; i < 2; i++) { /* the file's own memory, and that of the writing */
        memory.fail_at = memory.requests + i;
        memory.fail_times = 1;
        assert_int_equal(pl_lsave_write(&second.save, dir, &err), PELAGO_NOMEM);
        memory.fail_at = PL_NEVER;
        assert_true(err.text[0] != '\0');
        assert_int_equal(tempdir_count(&temp), 1);
    }
    assert_int_equal(read_it(&back, PL_LSAVE_NAME), PELAGO_OK);
    same_bundle(&first, &back);
    release_bundle(&first);
    release_bundle(&second);
    release_bundle(&back);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_there_and_back, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_of_somebody_else, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_damage_is_seen, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_failed_save_costs_nothing, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("host/learner_save", tests, NULL, NULL);
}
