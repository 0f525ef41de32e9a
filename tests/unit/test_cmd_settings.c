/* Defaults of a run that follow from other options. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/hash.h"
#include "base/num.h"
#include "cmd/cluster_args.h"
#include "tempdir.h"
#include "tokenizer_rig.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct pl_settings settings_of(struct pl_cluster_args *a)
{
    struct pl_train_plan plan;
    struct pl_settings s;
    struct pl_error err;
    assert_int_equal(pl_cluster_settings(a, &plan, &s, &err), PELAGO_OK);
    return s;
}

static struct pl_cluster_args args_for(uint32_t learners)
{
    struct pl_cluster_args a;
    pl_cluster_args_init(&a);
    a.train.model = "1m";
    a.learners = learners;
    return a;
}

static void the_rate_follows_the_batch_and_not_the_number_of_learners(void **state)
{
    (void)state;
    const struct {
        uint32_t batch;
        float rate;
    } scouted[] = {{4, 0.0018f}, {8, 0.002f}, {16, 0.0025f}, {32, 0.003f}, {64, 0.0035f}};
    for (size_t i = 0; i < sizeof scouted / sizeof scouted[0]; i++) {
        struct pl_cluster_args two = args_for(2), eight = args_for(8);
        two.train.batch = eight.train.batch = scouted[i].batch;
        float rate = settings_of(&two).trainer.schedule.peak;
        assert_true(fabsf(rate / scouted[i].rate - 1) < 0.08f);
        assert_true(fabsf(settings_of(&eight).trainer.schedule.peak - rate) < 1e-9f);
    }
}

/* All together take more the more they are, each takes less; a large model's batch is cut into passes as before. */
static void learners_share_the_batch(void **state)
{
    (void)state;
    const struct {
        const char *model;
        uint32_t learners, batch, accumulate;
    } want[] = {
        {"1m", 1, 16, 1},  {"1m", 2, 10, 1},   {"1m", 4, 6, 1},    {"1m", 8, 4, 1},
        {"1m", 64, 1, 1},  {"1m", 4096, 1, 1}, {"124m", 1, 8, 4},  {"124m", 2, 7, 3},
        {"124m", 8, 8, 1}, {"350m", 8, 8, 2},  {"350m", 27, 7, 1},
    };
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        struct pl_cluster_args a = args_for(want[i].learners);
        a.train.model = want[i].model;
        struct pl_settings s = settings_of(&a);
        assert_int_equal(s.trainer.batch, want[i].batch);
        assert_int_equal(s.trainer.accumulate, want[i].accumulate);
    }
    struct pl_cluster_args given = args_for(8);
    given.train.batch = 16;
    assert_int_equal(settings_of(&given).trainer.batch, 16);
}

static void a_rate_that_is_given_stays(void **state)
{
    (void)state;
    struct pl_cluster_args a = args_for(8);
    a.train.lr = 0.003;
    assert_true(fabsf(settings_of(&a).trainer.schedule.peak - 0.003f) < 1e-9f);
}

static void data_parallel_is_one_trainer_with_the_batch_of_all(void **state)
{
    (void)state;
    struct pl_cluster_args one = args_for(1), four = args_for(4);
    four.algorithm = "data_parallel";
    one.train.batch = 64;
    four.train.batch = 16;
    float alone = settings_of(&one).trainer.schedule.peak;
    assert_true(fabsf(settings_of(&four).trainer.schedule.peak / alone - 1) < 1e-5f);
}

static void the_last_rate_stays_what_was_asked_for(void **state)
{
    (void)state;
    struct pl_cluster_args a = args_for(4);
    a.train.min_lr = 1e-4;
    struct pl_schedule s = settings_of(&a).trainer.schedule;
    assert_true(fabsf(s.peak * s.floor - 1e-4f) < 1e-9f);
}

static void muon_has_a_rate_and_a_momentum_of_its_own(void **state)
{
    (void)state;
    struct pl_cluster_args few = args_for(2), many = args_for(8), given = args_for(8), adamw = args_for(8);
    few.train.optimizer = many.train.optimizer = given.train.optimizer = "muon";
    few.train.batch = 32;
    many.train.batch = 8;
    given.outer_momentum = 0.7;
    assert_true(fabsf(settings_of(&few).trainer.schedule.peak - 0.008f) < 1e-6f);
    assert_true(fabsf(settings_of(&many).trainer.schedule.peak - 0.008f) < 1e-6f);
    assert_true(fabsf(settings_of(&many).outer.mu - 0.5f) < 1e-6f);
    assert_true(fabsf(settings_of(&given).outer.mu - 0.7f) < 1e-6f);
    assert_true(fabsf(settings_of(&adamw).outer.mu - 0.8f) < 1e-6f);
}

static void a_machine_alone_knows_muon_too(void **state)
{
    struct pl_train_plan plan;
    struct pl_train_args adamw, muon;
    struct pl_error err;
    (void)state;
    pl_train_args_init(&adamw);
    pl_train_args_init(&muon);
    adamw.model = muon.model = "1m";
    muon.optimizer = "muon";
    assert_int_equal(pl_train_plan_new(&plan, &adamw, &err), PELAGO_OK);
    float rate = plan.trainer.schedule.peak;
    assert_int_equal(pl_train_plan_new(&plan, &muon, &err), PELAGO_OK);
    assert_true(fabsf(plan.trainer.schedule.peak - 2 * rate) < 1e-6f);
}

/* Its share of the peak depends on options that need not be repeated. */
static void a_run_goes_on_with_the_last_rate_it_began_with(void **state)
{
    struct pl_error err;
    (void)state;
    struct pl_cluster_args first = args_for(8), again = args_for(0);
    first.train.min_lr = again.train.min_lr = 1e-4;
    first.train.batch = 4;
    struct pl_settings s = settings_of(&first);
    assert_int_equal(pl_cluster_refuse_changes(&again, "", &s, &err), PELAGO_OK);
    again.train.min_lr = 2e-4;
    assert_int_equal(pl_cluster_refuse_changes(&again, "", &s, &err), PELAGO_INVALID);
    assert_non_null(strstr(err.text, "--min-lr"));
}

/* A warm-up in steps is in steps of that run, whose batch follows from options that need not be repeated either. */
static void a_run_goes_on_with_its_warm_up(void **state)
{
    struct pl_error err;
    (void)state;
    struct pl_cluster_args first = args_for(8), again = args_for(0);
    first.train.warmup = again.train.warmup = (struct pl_span){.given = true, .count = 100};
    struct pl_settings s = settings_of(&first);
    assert_int_equal(pl_cluster_refuse_changes(&again, "", &s, &err), PELAGO_OK);
    again.train.warmup = (struct pl_span){.given = true, .is_tokens = true, .count = UINT64_C(100) * 4 * 256};
    assert_int_equal(pl_cluster_refuse_changes(&again, "", &s, &err), PELAGO_OK);
    again.train.warmup.count = 7;
    assert_int_equal(pl_cluster_refuse_changes(&again, "", &s, &err), PELAGO_INVALID);
    assert_non_null(strstr(err.text, "--warmup"));
}

/* The option leads to a tokenizer: what it leads to is what counts, not that it is given. */
static void a_run_goes_on_with_the_tokenizer_it_has(void **state)
{
    struct tempdir dir;
    struct pl_alloc alloc = pl_alloc_system();
    struct pl_error err;
    (void)state;
    tempdir_init(&dir);
    const struct {
        enum pl_train_kind kind;
        const char *name, *file; /* beside byte and char: the files of all three */
    } runs[] = {{PL_TRAIN_BYTES, "byte", "byte.json"},
                {PL_TRAIN_CHARS, "char", "char.json"},
                {PL_TRAIN_BPE, "none", "bpe.json"}};
    struct pl_tokenizer *all[3];
    for (size_t i = 0; i < 3; i++) {
        all[i] = rig_train(&alloc, runs[i].kind, rig_text, 300);
        struct pl_bytes json = pl_tokenizer_json(all[i]);
        tempdir_put(&dir, runs[i].file, json.data, json.len);
    }
    for (size_t i = 0; i < 3; i++) {
        struct pl_bytes json = pl_tokenizer_json(all[i]);
        struct pl_cluster_args first = args_for(8), again = args_for(0);
        struct pl_settings s = settings_of(&first);
        s.tokenizer_digest = pl_hash64(json.data, json.len, 0);
        tempdir_put(&dir, "tokenizer.json", json.data, json.len);
        for (size_t k = 0; k < 3; k++) {
            again.train.tokenizer = tempdir_path(&dir, runs[k].file);
            enum pelago_status want = k == i ? PELAGO_OK : PELAGO_INVALID;
            assert_int_equal(pl_cluster_refuse_changes(&again, dir.path, &s, &err), want);
            if (k == 2)
                continue;
            again.train.tokenizer = runs[k].name;
            assert_int_equal(pl_cluster_refuse_changes(&again, dir.path, &s, &err), want);
            if (k != i)
                assert_non_null(strstr(err.text, "--tokenizer is not what the run in this folder has"));
        }
        again.train.tokenizer = dir.path; /* a folder that holds one */
        assert_int_equal(pl_cluster_refuse_changes(&again, dir.path, &s, &err), PELAGO_OK);
        again.train.tokenizer = tempdir_path(&dir, "nowhere.json");
        assert_int_equal(pl_cluster_refuse_changes(&again, dir.path, &s, &err), PELAGO_INVALID);
        assert_non_null(strstr(err.text, "nowhere.json"));
        assert_non_null(strstr(err.text, "leave --tokenizer out to go on with the run"));
    }
    for (size_t i = 0; i < 3; i++)
        pl_tokenizer_free(all[i]);
    tempdir_release(&dir);
}

/* Written otherwise it is the same; a folder that has lost its own goes by the digest; a run of token files
 * has none. */
static void a_tokenizer_is_compared_by_what_it_does(void **state)
{
    struct tempdir dir;
    struct pl_alloc alloc = pl_alloc_system();
    struct pl_error err;
    bool differs;
    (void)state;
    tempdir_init(&dir);
    struct pl_tokenizer *t = rig_train(&alloc, PL_TRAIN_BPE, rig_text, 300);
    struct pl_bytes json = pl_tokenizer_json(t);
    uint64_t digest = pl_hash64(json.data, json.len, 0);
    char *spaced = rig_replace(t, "{", "{ \n");
    const char *path = tempdir_path(&dir, "named.json");
    tempdir_put(&dir, "tokenizer.json", json.data, json.len);
    tempdir_put(&dir, "named.json", spaced, strlen(spaced));
    assert_int_equal(pl_cluster_tokenizer_differs(path, dir.path, digest, &differs, &err), PELAGO_OK);
    assert_false(differs);
    assert_int_equal(pl_cluster_tokenizer_differs(path, dir.path, 0, &differs, &err), PELAGO_OK);
    assert_true(differs);
    tempdir_put(&dir, "tokenizer.json", "{", 1);
    assert_int_equal(pl_cluster_tokenizer_differs(path, dir.path, digest, &differs, &err), PELAGO_OK);
    assert_true(differs);
    tempdir_put(&dir, "named.json", json.data, json.len);
    assert_int_equal(pl_cluster_tokenizer_differs(path, dir.path, digest, &differs, &err), PELAGO_OK);
    assert_false(differs);
    tempdir_put(&dir, "named.json", json.data, json.len / 2);
    assert_int_not_equal(pl_cluster_tokenizer_differs(path, dir.path, digest, &differs, &err), PELAGO_OK);
    free(spaced);
    pl_tokenizer_free(t);
    tempdir_release(&dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_rate_follows_the_batch_and_not_the_number_of_learners),
        cmocka_unit_test(learners_share_the_batch),
        cmocka_unit_test(a_rate_that_is_given_stays),
        cmocka_unit_test(data_parallel_is_one_trainer_with_the_batch_of_all),
        cmocka_unit_test(the_last_rate_stays_what_was_asked_for),
        cmocka_unit_test(muon_has_a_rate_and_a_momentum_of_its_own),
        cmocka_unit_test(a_machine_alone_knows_muon_too),
        cmocka_unit_test(a_run_goes_on_with_the_last_rate_it_began_with),
        cmocka_unit_test(a_run_goes_on_with_its_warm_up),
        cmocka_unit_test(a_run_goes_on_with_the_tokenizer_it_has),
        cmocka_unit_test(a_tokenizer_is_compared_by_what_it_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
