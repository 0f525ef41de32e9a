/* test_model_tensors.c - the table of tensors: order, names, places, and what training starts from. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/hash.h"
#include "base/prng.h"
#include "expect_assert.h"
#include "model/tensors.h"
#include "seed.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct pl_alloc alloc;

static struct pl_tensors tensors_of(const struct pl_model_config *c)
{
    struct pl_tensors t;
    assert_int_equal(pl_tensors_init(&t, &alloc, c), PELAGO_OK);
    return t;
}

/* Odd sizes on purpose: no dimension is a multiple of 16. */
static const struct pl_model_config small = {.layers = 2,
                                             .width = 10,
                                             .heads = 4,
                                             .kv_heads = 2,
                                             .head_dim = 6,
                                             .hidden = 7,
                                             .vocab = 13,
                                             .context = 8,
                                             .qk_norm = true,
                                             .rope_theta = 10000.0f,
                                             .norm_eps = 1e-5f};

static void the_table_reads_like_llama(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        enum pl_tensor_role role;
        enum pl_tensor_group group;
        uint32_t rows, cols;
        uint64_t offset;
    } expected[] = {
        {"model.embed_tokens.weight", PL_TENSOR_EMBED, PL_GROUP_EMBED, 13, 10, 0},
        {"model.layers.0.input_layernorm.weight", PL_TENSOR_ATTN_NORM, PL_GROUP_NORM, 1, 10, 144},
        {"model.layers.0.self_attn.q_proj.weight", PL_TENSOR_Q, PL_GROUP_MATRIX, 24, 10, 160},
        {"model.layers.0.self_attn.k_proj.weight", PL_TENSOR_K, PL_GROUP_MATRIX, 12, 10, 400},
        {"model.layers.0.self_attn.v_proj.weight", PL_TENSOR_V, PL_GROUP_MATRIX, 12, 10, 520},
        {"model.layers.0.self_attn.q_norm.weight", PL_TENSOR_Q_NORM, PL_GROUP_NORM, 1, 6, 640},
        {"model.layers.0.self_attn.k_norm.weight", PL_TENSOR_K_NORM, PL_GROUP_NORM, 1, 6, 656},
        {"model.layers.0.self_attn.o_proj.weight", PL_TENSOR_O, PL_GROUP_MATRIX, 10, 24, 672},
        {"model.layers.0.post_attention_layernorm.weight", PL_TENSOR_MLP_NORM, PL_GROUP_NORM, 1, 10, 912},
        {"model.layers.0.mlp.gate_proj.weight", PL_TENSOR_GATE, PL_GROUP_MATRIX, 7, 10, 928},
        {"model.layers.0.mlp.up_proj.weight", PL_TENSOR_UP, PL_GROUP_MATRIX, 7, 10, 998},
        {"model.layers.0.mlp.down_proj.weight", PL_TENSOR_DOWN, PL_GROUP_MATRIX, 10, 7, 1072},
        {"model.layers.1.input_layernorm.weight", PL_TENSOR_ATTN_NORM, PL_GROUP_NORM, 1, 10, 1152},
    };
    struct pl_tensors t = tensors_of(&small);
    uint32_t known = sizeof expected / sizeof expected[0];
    assert_int_equal(t.count, 1 + 2 * 11 + 2);
    for (uint32_t i = 0; i < known; i++) {
        assert_string_equal(t.at[i].name, expected[i].name);
        assert_int_equal(t.at[i].role, expected[i].role);
        assert_int_equal(t.at[i].group, expected[i].group);
        assert_int_equal(t.at[i].rows, expected[i].rows);
        assert_int_equal(t.at[i].cols, expected[i].cols);
        assert_int_equal(t.at[i].offset, expected[i].offset);
    }
    assert_int_equal(t.at[0].layer, PL_NONE32);
    assert_int_equal(t.at[11].layer, 0);
    assert_int_equal(t.at[12].layer, 1);
    assert_string_equal(t.at[23].name, "model.norm.weight");
    assert_int_equal(t.at[23].layer, PL_NONE32);
    assert_string_equal(t.at[24].name, "lm_head.weight");
    assert_int_equal(t.at[24].group, PL_GROUP_EMBED);
    assert_int_equal(t.at[24].rows, 13);
    pl_tensors_release(&t, &alloc);
    assert_null(t.at);
}

static void optional_tensors_are_left_out(void **state)
{
    (void)state;
    struct pl_model_config c = small;
    c.tied = true;
    c.qk_norm = false;
    struct pl_tensors t = tensors_of(&c);
    assert_int_equal(t.count, 1 + 2 * 9 + 1);
    assert_int_equal(pl_tensors_find_name(&t, "lm_head.weight"), PL_NONE32);
    assert_int_equal(pl_tensors_find(&t, PL_TENSOR_HEAD, PL_NONE32), PL_NONE32);
    assert_int_equal(pl_tensors_find(&t, PL_TENSOR_Q_NORM, 0), PL_NONE32);
    pl_tensors_release(&t, &alloc);
}

/* Order, gaps, groups, and the sum, for one table. */
static void check_places(const struct pl_model_config *c, const struct pl_tensors *t)
{
    uint64_t end = 0, params = 0;
    for (uint32_t i = 0; i < t->count; i++) {
        const struct pl_tensor *x = &t->at[i];
        bool joined = x->role == PL_TENSOR_K || x->role == PL_TENSOR_V || x->role == PL_TENSOR_UP;
        assert_true(x->offset == (joined ? end : (end + 15) / 16 * 16));
        end = x->offset + (uint64_t)x->rows * x->cols;
        params += (uint64_t)x->rows * x->cols;
        assert_true((x->init_std > 0) == (x->group != PL_GROUP_NORM));
        assert_int_equal(pl_tensors_find(t, x->role, x->layer), i);
        assert_int_equal(pl_tensors_find_name(t, x->name), i);
    }
    assert_true(t->floats == (end + 15) / 16 * 16);
    assert_true(t->params == params);
    assert_true(pl_model_config_params(c) == params);
}

static void places_and_sums_agree_for_any_shape(void **state)
{
    (void)state;
    struct pl_prng r;
    pl_prng_seed(&r, test_seed(), 0);
    for (unsigned n = 0; n < 200; n++) {
        uint32_t kv_heads = (uint32_t)pl_prng_range(&r, 1, 4);
        struct pl_model_config c = {.layers = (uint32_t)pl_prng_range(&r, 1, 5),
                                    .width = (uint32_t)pl_prng_range(&r, 1, 70),
                                    .heads = kv_heads * (uint32_t)pl_prng_range(&r, 1, 4),
                                    .kv_heads = kv_heads,
                                    .head_dim = 2 * (uint32_t)pl_prng_range(&r, 1, 20),
                                    .hidden = (uint32_t)pl_prng_range(&r, 1, 100),
                                    .vocab = (uint32_t)pl_prng_range(&r, 2, 300),
                                    .tied = pl_prng_chance(&r, 500000),
                                    .qk_norm = pl_prng_chance(&r, 500000)};
        pl_model_config_complete(&c);
        struct pl_tensors t = tensors_of(&c);
        check_places(&c, &t);
        pl_tensors_release(&t, &alloc);
    }
    for (uint32_t i = 0; pl_model_config_preset_name(i) != NULL; i++) {
        struct pl_model_config c;
        assert_int_equal(pl_model_config_preset(pl_model_config_preset_name(i), &c, NULL), PELAGO_OK);
        struct pl_tensors t = tensors_of(&c);
        check_places(&c, &t);
        pl_tensors_release(&t, &alloc);
    }
}

static void the_deepest_model_fits_the_table(void **state)
{
    (void)state;
    struct pl_model_config c = small;
    c.layers = PL_LAYERS_MAX;
    struct pl_tensors t = tensors_of(&c);
    assert_in_range(t.count, 1, PL_TENSORS_MAX);
    assert_string_equal(t.at[t.count - 6].name, "model.layers.255.post_attention_layernorm.weight");
    check_places(&c, &t);
    pl_tensors_release(&t, &alloc);
}

/* Mean and deviation of one tensor, within six standard errors of what they should be. */
static void check_normal(const float *w, uint64_t n, double std)
{
    double sum = 0, squares = 0;
    for (uint64_t i = 0; i < n; i++) {
        sum += (double)w[i];
        squares += (double)w[i] * (double)w[i];
    }
    assert_true(fabs(sum / (double)n) < 6 * std / sqrt((double)n));
    assert_true(fabs(squares / (double)n / (std * std) - 1) < 6 * sqrt(2 / (double)n));
}

static void training_starts_from_small_normal_weights(void **state)
{
    (void)state;
    struct pl_model_config c;
    assert_int_equal(pl_model_config_preset("1m", &c, NULL), PELAGO_OK);
    struct pl_tensors t = tensors_of(&c);
    float *block = malloc(t.floats * sizeof *block);
    assert_non_null(block);
    pl_tensors_fill(&t, block, test_seed());
    for (uint32_t i = 0; i < t.count; i++) {
        const struct pl_tensor *x = &t.at[i];
        uint64_t n = (uint64_t)x->rows * x->cols;
        bool residual = x->role == PL_TENSOR_O || x->role == PL_TENSOR_DOWN;
        if (x->group == PL_GROUP_NORM)
            for (uint64_t k = 0; k < n; k++)
                assert_true(block[x->offset + k] == 1.0f);
        else
            check_normal(block + x->offset, n, residual ? 0.02 / sqrt(2.0 * 4) : 0.02);
    }
    free(block);
    pl_tensors_release(&t, &alloc);
}

static void every_float_of_the_block_is_written(void **state)
{
    (void)state;
    struct pl_tensors t = tensors_of(&small);
    size_t bytes = t.floats * sizeof(float);
    float *a = malloc(bytes), *b = malloc(bytes);
    assert_true(a != NULL && b != NULL);
    memset(a, 0xff, bytes);
    memset(b, 0x33, bytes);
    pl_tensors_fill(&t, a, 5);
    pl_tensors_fill(&t, b, 5);
    assert_memory_equal(a, b, bytes);
    for (uint32_t i = 0; i < t.count; i++) {
        uint64_t end = t.at[i].offset + (uint64_t)t.at[i].rows * t.at[i].cols;
        uint64_t next = i + 1 < t.count ? t.at[i + 1].offset : t.floats;
        for (; end < next; end++)
            assert_true(a[end] == 0.0f);
    }
    pl_tensors_fill(&t, b, 6);
    assert_memory_not_equal(a, b, bytes);
    free(a);
    free(b);
    pl_tensors_release(&t, &alloc);
}

/* The same start everywhere, and tensors that do not repeat each other. */
static void the_start_depends_on_seed_and_index_alone(void **state)
{
    (void)state;
    struct pl_tensors t = tensors_of(&small);
    float *block = malloc(t.floats * sizeof *block);
    assert_non_null(block);
    pl_tensors_fill(&t, block, 42);
    uint32_t k = pl_tensors_find(&t, PL_TENSOR_K, 0), v = pl_tensors_find(&t, PL_TENSOR_V, 0);
    assert_memory_not_equal(block + t.at[k].offset, block + t.at[v].offset, 120 * sizeof *block);
    assert_true(pl_hash64(block, t.floats * sizeof *block, 0) == UINT64_C(0x5d6bc8eccd131b39));
    free(block);
    pl_tensors_release(&t, &alloc);
}

static void *no_memory(void *user, void *block, size_t old_bytes, size_t new_bytes)
{
    (void)user, (void)block, (void)old_bytes, (void)new_bytes;
    return NULL;
}

static void failure_and_misuse(void **state)
{
    (void)state;
    struct pl_alloc none = {no_memory, NULL};
    struct pl_tensors t;
    assert_int_equal(pl_tensors_init(&t, &none, &small), PELAGO_NOMEM);
    assert_int_equal(t.count, 0);
    pl_tensors_release(&t, &none);
    struct pl_model_config bad = small;
    bad.heads = 0;
    expect_assert(pl_tensors_init(&t, &alloc, &bad));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_table_reads_like_llama),
        cmocka_unit_test(optional_tensors_are_left_out),
        cmocka_unit_test(places_and_sums_agree_for_any_shape),
        cmocka_unit_test(the_deepest_model_fits_the_table),
        cmocka_unit_test(training_starts_from_small_normal_weights),
        cmocka_unit_test(every_float_of_the_block_is_written),
        cmocka_unit_test(the_start_depends_on_seed_and_index_alone),
        cmocka_unit_test(failure_and_misuse),
    };
    alloc = pl_alloc_system();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
