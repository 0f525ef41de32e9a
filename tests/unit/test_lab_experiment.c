/* Files of rows: what they mean, what is refused, and that a finished run is known again. */
#include "lab_rig.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

static int setup(void **state)
{
    static struct lab_rig rig;
    lab_rig_init(&rig);
    *state = &rig;
    return 0;
}

static int teardown(void **state)
{
    lab_rig_release(*state);
    return 0;
}

static struct pl_lab_row row_of(struct lab_rig *r, const char *lines, const char *name)
{
    static struct pl_lab_row row;
    if (!lab_rig_read(r, lines) || !lab_rig_row(r, name, &row))
        fail_msg("%s", r->error);
    return row;
}

static void test_a_row_goes_over_what_all_have(void **state)
{
    struct lab_rig *r = *state;
    static const char lines[] =
        "rows: [a, b]\ntokens_per_param: 2\nlearners: 2\nb/learners: 4\nb/sync.up: int2\n"
        "sync.up: bf16\nb/against: a\nb/bar: 0.5\nb/sync.outer_lr: 1\n";
    struct pl_lab_row a = row_of(r, lines, "a");
    struct pl_lab_row b = row_of(r, lines, "b");
    assert_int_equal(a.settings.learners, 2);
    assert_int_equal(a.settings.trainer.batch, 4);
    assert_int_equal(a.settings.up, PL_CODEC_BF16);
    assert_true(isnan(a.bar) && a.against[0] == '\0');
    assert_int_equal(b.settings.learners, 4);
    assert_int_equal(b.batches[3], 2);
    assert_int_equal(b.settings.up, PL_CODEC_INT2);
    assert_true(b.settings.outer.lr == 1 && b.bar == 0.5);
    assert_string_equal(b.against, "a");
    assert_int_equal(a.settings.total_tokens, b.settings.total_tokens);
    assert_int_equal(a.settings.total_tokens % (8 * 16), 0);
    assert_int_equal(r->experiment.last_seed, 3);
}

static void test_what_goes_well_with_a_codec(void **state)
{
    struct lab_rig *r = *state;
    static const char lines[] = "rows: [dense, sparse, many, kept]\nlearners: 2\ntrain.tokens: 200000\n"
                                "sparse/sync.up: topk64\nmany/sync.up: topk64\nmany/train.tokens: 210000\n"
                                "kept/sync.up: topk64\nkept/sync.feedback_decay: 0.95\n"
                                "kept/sync.feedback_local: 0\nkept/sync.outer_warmup: 7\n";
    struct pl_settings s = row_of(r, lines, "dense").settings;
    assert_true(s.feedback_decay == 1 && s.feedback_local == 0 && s.merge.kind == PL_RULE_RDA);
    s = row_of(r, lines, "sparse").settings;
    assert_true(s.feedback_decay == 1 && s.feedback_local == 1 && s.merge.kind == PL_RULE_MEAN);
    assert_true(s.outer.lr == 2);
    assert_int_equal(s.outer.warmup, 120); /* of 4 steps each */
    assert_int_equal(pl_settings_merges(&s), 390);
    s = row_of(r, lines, "many").settings;
    assert_int_equal(pl_settings_merges(&s), 410);
    assert_true(s.feedback_local == 0);
    s = row_of(r, lines, "kept").settings;
    assert_true(s.feedback_decay > 0.94f && s.feedback_decay < 0.96f && s.feedback_local == 0);
    assert_int_equal(s.outer.warmup, 7);
}

static void test_the_momentum_goes_with_the_inner_optimizer(void **state)
{
    struct lab_rig *r = *state;
    static const char lines[] = "rows: [adamw, muon, given]\nlearners: 2\nmuon/train.optimizer: muon\n"
                                "given/train.optimizer: muon\ngiven/sync.outer_momentum: 0.7\n";
    assert_true(fabsf(row_of(r, lines, "adamw").settings.outer.mu - 0.8f) < 1e-6f);
    assert_true(fabsf(row_of(r, lines, "muon").settings.outer.mu - 0.5f) < 1e-6f);
    assert_true(fabsf(row_of(r, lines, "given").settings.outer.mu - 0.7f) < 1e-6f);
}

static void test_what_is_refused(void **state)
{
    struct lab_rig *r = *state;
    struct pl_lab_row row;
    const struct {
        const char *lines, *sentence;
    } wrong[] = {
        {"learners: 2\n", "has no rows"},
        {"rows: [a]\nb/learners: 2\n", "for a row that"},
        {"rows: [a]\nlearners: two\n", "not a number"},
        {"rows: [a]\nlearners: 2.5\n", "not a whole number"},
        {"rows: [a]\nlearners: 1000\n", "in its range"},
        {"rows: [a]\nsync.nothing: 1\n", "there is no setting sync.nothing"},
        {"rows: [a]\nsync.up: int17\n", "does not know"},
        {"rows: [a]\nalgorithm: diloco\n", "expected decoupled or data_parallel"},
        {"rows: [a]\nsplit: yes\n", "true or false"},
        {"rows: [a]\na/sync.period: fast\n", "of the setting's type"},
        {"rows: [a]\nsync.outer_momentum: 2\n", "outer momentum"},
        {"rows: [a]\nspeeds: [1, 0]\nlearners: 2\n", "numbers from 0.001 to 1000"},
        {"rows: [a]\nspeeds: [1, 1e300]\nlearners: 2\n", "numbers from 0.001 to 1000"},
        {"rows: [a]\nbatches: [1, 1e300]\nlearners: 2\n", "whole numbers from 1 to 65536"},
        {"rows: [a]\nbatches: [8.7]\nlearners: 2\n", "whole numbers from 1 to 65536"},
        {"rows: [a]\nbatches: [8, 0.5]\nlearners: 2\n", "whole numbers from 1 to 65536"},
        {"rows: [a]\na/data: [builtin:tales, builtin:tales]\nshares: [1, 1e-300]\n",
         "numbers from 0.001 to 1000"},
        {"rows: [a]\npoints: 2.5\n", "not a whole number"},
        {"rows: [a]\npoints: 1e300\n", "in its range"},
        {"rows: [a]\ntrain.tokens: 4000000000000000000\n", "31 years of virtual time"},
        {"rows: [a]\na/data: [one, three]\n", "needs texts"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        bool good = lab_rig_read(r, wrong[i].lines) && lab_rig_row(r, "a", &row);
        if (good || strstr(r->error, wrong[i].sentence) == NULL)
            fail_msg("case %zu: %s", i, good ? "was taken" : r->error);
    }
}

/* A text that is not there is replaced by the tales, and the row says so. */
static void test_a_missing_text_becomes_tales(void **state)
{
    struct lab_rig *r = *state;
    struct pl_lab_row row = row_of(r, "rows: [a]\na/data: three\n", "a");
    assert_string_equal(row.domains[0], "builtin:tales");
    assert_string_equal(row.settings.data, "builtin:tales");
}

static void test_a_text_is_not_read_twice(void **state)
{
    struct lab_rig *r = *state;
    static struct pl_lab_result result;
    struct pl_error err;
    struct pl_lab_row row = row_of(r, "rows: [a]\ntrain.tokens: 100000\n", "a");
    assert_int_equal(pl_lab_run(&r->lab, &row, 1, &result, &err), PELAGO_INVALID);
    assert_non_null(strstr(err.text, "nothing twice"));
}

/* Also where each learner has a text of its own, as far as the fastest of those that share one comes. */
static void test_an_own_text_is_not_read_twice(void **state)
{
    struct lab_rig *r = *state;
    static struct pl_lab_result result;
    struct pl_error err;
    static const char lines[] = "rows: [fits, long, uneven]\nlearners: 2\nsplit: true\ntrain.tokens: 1000\n"
                                "fits/data: [one, two]\nlong/data: [one, two]\nuneven/data: [one, two]\n"
                                "long/train.tokens: 130000\nuneven/train.tokens: 90000\n"
                                "uneven/speeds: [1, 0.4]\n";
    const char *const names[] = {"fits", "long", "uneven"};
    for (size_t i = 0; i < 3; i++) {
        struct pl_lab_row row = row_of(r, lines, names[i]);
        assert_int_equal(pl_lab_run(&r->lab, &row, 1, &result, &err), i == 0 ? PELAGO_OK : PELAGO_INVALID);
        assert_true(i == 0 || strstr(err.text, "nothing twice") != NULL);
    }
}

static uint64_t key_of(struct lab_rig *r, const char *lines, const char *name)
{
    struct pl_lab_row row = row_of(r, lines, name);
    return pl_lab_row_key(&row, &r->lab.alloc);
}

static void test_a_key_is_all_that_makes_the_result(void **state)
{
    struct lab_rig *r = *state;
    uint64_t key = key_of(r, "rows: [a]\nlearners: 2\n", "a");
    assert_int_not_equal(key, 0);
    assert_int_equal(key, key_of(r, "rows: [b]\nlearners: 2\nb/against: b\nbar: 3\n", "b"));
    assert_int_not_equal(key, key_of(r, "rows: [a]\nlearners: 2\nsync.up: fp32\n", "a"));
    assert_int_not_equal(key, key_of(r, "rows: [a]\nlearners: 2\nspeeds: [1, 0.5]\n", "a"));
    assert_int_not_equal(key, key_of(r, "rows: [a]\nlearners: 2\nlatency_ms: 1\n", "a"));
    static const char alone[] = "rows: [a]\nlearners: 2\nalgorithm: data_parallel\n";
    static const char other[] = "rows: [a]\nlearners: 2\nalgorithm: data_parallel\nsync.up: fp32\n";
    assert_int_equal(key_of(r, alone, "a"), key_of(r, other, "a"));
}

static void test_a_finished_run_is_known(void **state)
{
    struct lab_rig *r = *state;
    static struct pl_lab_result result;
    struct pl_buf line, again;
    struct pl_lab_row row = row_of(r, "rows: [a]\ntrain.tokens: 1024\nlearners: 2\npoints: 2\n", "a");
    uint64_t key = pl_lab_row_key(&row, &r->lab.alloc);
    lab_rig_run(r, "a", 2, &result);
    pl_buf_init(&line, &r->lab.alloc, 1 << 20);
    pl_buf_init(&again, &r->lab.alloc, 1 << 20);
    assert_int_equal(pl_lab_line(&r->experiment, &row, 2, &result, &r->lab.alloc, &line), PELAGO_OK);
    const char *text = (const char *)line.data;
    assert_null(memchr(text, '\n', line.len));
    assert_true(pl_lab_line_is(text, line.len, key, 2));
    assert_false(pl_lab_line_is(text, line.len, key, 3));
    assert_false(pl_lab_line_is(text, line.len, key + 1, 2));
    assert_false(pl_lab_line_is(text, line.len - 1, key, 2)); /* cut off by a crash */
    assert_true(pl_lab_line_named(&r->experiment, &row, text, line.len));
    (void)snprintf(row.name, sizeof row.name, "other");
    assert_false(pl_lab_line_named(&r->experiment, &row, text, line.len));
    assert_int_equal(pl_lab_line_rename(&r->experiment, &row, text, line.len, &again), PELAGO_OK);
    assert_true(pl_lab_line_named(&r->experiment, &row, (const char *)again.data, again.len));
    assert_true(pl_lab_line_is((const char *)again.data, again.len, key, 2));
    pl_buf_release(&line);
    pl_buf_release(&again);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_row_goes_over_what_all_have, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_goes_well_with_a_codec, setup, teardown),
        cmocka_unit_test_setup_teardown(test_the_momentum_goes_with_the_inner_optimizer, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_missing_text_becomes_tales, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_text_is_not_read_twice, setup, teardown),
        cmocka_unit_test_setup_teardown(test_an_own_text_is_not_read_twice, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_key_is_all_that_makes_the_result, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_finished_run_is_known, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
