/* test_model_config.c - presets, completion, and one sentence for each bad dimension. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "model/config.h"

#include <math.h>
#include <string.h>

static struct pl_model_config preset(const char *name)
{
    struct pl_model_config c;
    struct pl_error err = {.status = PELAGO_OK};
    assert_int_equal(pl_model_config_preset(name, &c, &err), PELAGO_OK);
    return c;
}

static void presets_are_what_they_are_called(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint32_t layers, width, heads, kv_heads, head_dim, hidden, vocab, context;
        uint64_t params;
    } expected[] = {
        {"1m", 4, 128, 4, 4, 32, 352, 2048, 1024, 1066112},
        {"5m", 5, 256, 4, 4, 64, 704, 4096, 1024, 5065472},
        {"14m", 6, 384, 6, 6, 64, 1024, 8192, 1024, 13767552},
        {"35m", 10, 512, 8, 8, 64, 1376, 8192, 1024, 35826176},
        {"124m", 12, 768, 12, 12, 64, 2048, 50304, 1024, 123587328},
        {"350m", 24, 1024, 16, 16, 64, 2752, 50304, 1024, 355124224},
        {"1b", 16, 2048, 32, 8, 64, 8192, 50304, 2048, 1076168704},
    };
    uint32_t count = sizeof expected / sizeof expected[0];
    for (uint32_t i = 0; i < count; i++) {
        assert_string_equal(pl_model_config_preset_name(i), expected[i].name);
        struct pl_model_config c = preset(expected[i].name);
        assert_int_equal(pl_model_config_check(&c, NULL), PELAGO_OK);
        assert_int_equal(c.layers, expected[i].layers);
        assert_int_equal(c.width, expected[i].width);
        assert_int_equal(c.heads, expected[i].heads);
        assert_int_equal(c.kv_heads, expected[i].kv_heads);
        assert_int_equal(c.head_dim, expected[i].head_dim);
        assert_int_equal(c.hidden, expected[i].hidden);
        assert_int_equal(c.vocab, expected[i].vocab);
        assert_int_equal(c.context, expected[i].context);
        assert_true(c.tied && !c.qk_norm && c.rope_theta == 10000.0f && c.norm_eps == 1e-5f);
        assert_true(pl_model_config_params(&c) == expected[i].params);
    }
    assert_null(pl_model_config_preset_name(count));
}

static void an_unknown_preset_is_answered_with_the_list(void **state)
{
    (void)state;
    struct pl_model_config c = {.layers = 77};
    struct pl_error err = {.status = PELAGO_OK};
    assert_int_equal(pl_model_config_preset("7b", &c, &err), PELAGO_NOTFOUND);
    assert_string_equal(err.text,
                        "the presets are 1m, 5m, 14m, 35m, 124m, 350m, 1b; there is none called 7b");
    assert_int_equal(c.layers, 77);
    assert_int_equal(pl_model_config_preset("", &c, NULL), PELAGO_NOTFOUND);
}

static void completion_fills_only_what_is_missing(void **state)
{
    (void)state;
    struct pl_model_config c = {.layers = 2, .width = 320, .vocab = 100};
    pl_model_config_complete(&c);
    assert_int_equal(c.heads, 5);
    assert_int_equal(c.kv_heads, 5);
    assert_int_equal(c.head_dim, 64);
    assert_int_equal(c.hidden, 864); /* 853.3 */
    assert_int_equal(c.context, 1024);
    assert_true(c.rope_theta == 10000.0f && c.norm_eps == 1e-5f);
    assert_int_equal(pl_model_config_check(&c, NULL), PELAGO_OK);

    struct pl_model_config given = {.layers = 3,
                                    .width = 96,
                                    .heads = 6,
                                    .kv_heads = 2,
                                    .head_dim = 32,
                                    .hidden = 77,
                                    .vocab = 11,
                                    .context = 5,
                                    .qk_norm = true,
                                    .rope_theta = 500000.0f,
                                    .norm_eps = 1e-6f};
    struct pl_model_config completed = given;
    pl_model_config_complete(&completed);
    assert_memory_equal(&completed, &given, sizeof given);
    assert_int_equal(pl_model_config_check(&given, NULL), PELAGO_OK);

    struct pl_model_config narrow = {.layers = 1, .width = 20, .vocab = 9};
    pl_model_config_complete(&narrow);
    assert_int_equal(narrow.heads, 1);
    assert_int_equal(narrow.head_dim, 20);
    assert_int_equal(narrow.hidden, 64); /* 53.3 */
    assert_int_equal(pl_model_config_check(&narrow, NULL), PELAGO_OK);
}

static void expect_sentence(struct pl_model_config c, const char *sentence)
{
    struct pl_error err = {.status = PELAGO_OK};
    assert_int_equal(pl_model_config_check(&c, &err), PELAGO_INVALID);
    assert_int_equal(err.status, PELAGO_INVALID);
    assert_string_equal(err.text, sentence);
    assert_int_equal(pl_model_config_check(&c, NULL), PELAGO_INVALID);
}

#define EXPECT(field, value, sentence)                                                                       \
    do {                                                                                                     \
        struct pl_model_config bad_ = preset("1m");                                                          \
        bad_.field = (value);                                                                                \
        expect_sentence(bad_, sentence);                                                                     \
    } while (0)

static void a_dimension_out_of_range_is_named(void **state)
{
    (void)state;
    EXPECT(layers, 0, "the model's layers is 0, expected 1 to 256");
    EXPECT(layers, 257, "the model's layers is 257, expected 1 to 256");
    EXPECT(width, 0, "the model's width is 0, expected 1 to 65536");
    EXPECT(width, 65537, "the model's width is 65537, expected 1 to 65536");
    EXPECT(heads, 0, "the model's heads is 0, expected 1 to 1024");
    EXPECT(heads, 1025, "the model's heads is 1025, expected 1 to 1024");
    EXPECT(kv_heads, 0, "the model's kv_heads is 0, expected 1 to 1024");
    EXPECT(head_dim, 0, "the model's head_dim is 0, expected 2 to 256");
    EXPECT(head_dim, 258, "the model's head_dim is 258, expected 2 to 256");
    EXPECT(hidden, 0, "the model's hidden is 0, expected 1 to 1048576");
    EXPECT(hidden, UINT32_MAX, "the model's hidden is 4294967295, expected 1 to 1048576");
    EXPECT(vocab, 1, "the model's vocab is 1, expected 2 to 16777216");
    EXPECT(vocab, 16777217, "the model's vocab is 16777217, expected 2 to 16777216");
    EXPECT(context, 0, "the model's context is 0, expected 1 to 1048576");
    EXPECT(context, 1048577, "the model's context is 1048577, expected 1 to 1048576");
}

static void what_must_divide_is_named(void **state)
{
    (void)state;
    EXPECT(kv_heads, 3, "the model's kv_heads is 3, expected a number that divides its heads (4)");
    EXPECT(kv_heads, 8, "the model's kv_heads is 8, expected a number that divides its heads (4)");
    EXPECT(head_dim, 33, "the model's head_dim is 33, expected an even number");
    struct pl_model_config c = {.layers = 2, .width = 200, .vocab = 100};
    pl_model_config_complete(&c);
    expect_sentence(
        c, "the model's width is 200, expected a multiple of its heads (3) unless head_dim is given");
    c.head_dim = 64;
    assert_int_equal(pl_model_config_check(&c, NULL), PELAGO_OK);
}

static void real_numbers_must_make_sense(void **state)
{
    (void)state;
    static const char theta[] = "the model's rope_theta is out of range, expected 1 to 1e12";
    static const char eps[] = "the model's norm_eps is out of range, expected 1e-12 to 0.1";
    EXPECT(rope_theta, 0.5f, theta);
    EXPECT(rope_theta, -10000.0f, theta);
    EXPECT(rope_theta, INFINITY, theta);
    EXPECT(rope_theta, NAN, theta);
    EXPECT(norm_eps, 0.0f, eps);
    EXPECT(norm_eps, -1e-5f, eps);
    EXPECT(norm_eps, 1.0f, eps);
    EXPECT(norm_eps, NAN, eps);
}

static void limits_that_are_fine_alone_may_be_too_much_together(void **state)
{
    (void)state;
    struct pl_model_config c = {.layers = 256,
                                .width = 65536,
                                .heads = 1024,
                                .head_dim = 256,
                                .hidden = 1 << 20,
                                .vocab = 1 << 24,
                                .context = 1 << 20,
                                .qk_norm = true};
    struct pl_error err = {.status = PELAGO_OK};
    pl_model_config_complete(&c);
    assert_int_equal(pl_model_config_check(&c, &err), PELAGO_INVALID);
    assert_string_equal(err.text,
                        "the model would have 72567801184256 parameters, expected fewer than 1099511627776");
    c.layers = 2;
    c.vocab = 4096;
    assert_int_equal(pl_model_config_check(&c, NULL), PELAGO_OK);
}

static void work_per_token_counts_each_matrix_once(void **state)
{
    (void)state;
    struct pl_model_config c = {
        .layers = 3, .width = 8, .heads = 2, .kv_heads = 1, .head_dim = 4, .hidden = 10, .vocab = 16};
    pl_model_config_complete(&c);
    double layer = 8 * 8 + 2 * 4 * 8 + 8 * 8 + 3 * 8 * 10;
    double expected = 6 * (3 * layer + 16 * 8) + 6 * 3 * 2 * 4 * 100;
    assert_true(pl_model_config_flops(&c, 100) == expected);
    c.tied = true; /* the head is a product all the same */
    assert_true(pl_model_config_flops(&c, 100) == expected);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(presets_are_what_they_are_called),
        cmocka_unit_test(an_unknown_preset_is_answered_with_the_list),
        cmocka_unit_test(completion_fills_only_what_is_missing),
        cmocka_unit_test(a_dimension_out_of_range_is_named),
        cmocka_unit_test(what_must_divide_is_named),
        cmocka_unit_test(real_numbers_must_make_sense),
        cmocka_unit_test(limits_that_are_fine_alone_may_be_too_much_together),
        cmocka_unit_test(work_per_token_counts_each_matrix_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
