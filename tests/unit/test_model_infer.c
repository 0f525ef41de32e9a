/* test_model_infer.c - generation gives the logits of the training pass, token by token or in portions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/bf16.h"
#include "base/normal.h"
#include "expect_assert.h"
#include "model/infer.h"
#include "model/model.h"
#include "seed.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct pl_alloc alloc;

struct shape {
    const char *name;
    struct pl_model_config config;
    uint32_t tokens;
    uint64_t seed; /* 0: fresh */
};

/* Sequences go over the borders of blocks of the cache (16 positions) and of chunks of the softmax (256). */
static const struct shape shapes[] = {
    {"plain, tied",
     {.layers = 2,
      .width = 64,
      .heads = 4,
      .kv_heads = 4,
      .head_dim = 16,
      .hidden = 96,
      .vocab = 97,
      .tied = true},
     37,
     0},
    {"grouped heads, own head",
     {.layers = 2, .width = 48, .heads = 4, .kv_heads = 2, .head_dim = 32, .hidden = 80, .vocab = 130},
     50,
     0},
    {"normed queries, one key head",
     {.layers = 3,
      .width = 64,
      .heads = 4,
      .kv_heads = 1,
      .head_dim = 16,
      .hidden = 64,
      .vocab = 64,
      .tied = true,
      .qk_norm = true},
     33,
     0},
    {"odd sizes",
     {.layers = 2,
      .width = 37,
      .heads = 3,
      .kv_heads = 3,
      .head_dim = 10,
      .hidden = 53,
      .vocab = 131,
      .qk_norm = true,
      .rope_theta = 500000,
      .norm_eps = 1e-6f},
     19,
     0},
    {"as small as can be", /* few values may all be near zero, where a relative error says nothing: so not any values */
     {.layers = 1,
      .width = 1,
      .heads = 1,
      .kv_heads = 1,
      .head_dim = 2,
      .hidden = 1,
      .vocab = 2,
      .tied = true},
     5,
     1},
    {"long",
     {.layers = 1,
      .width = 32,
      .heads = 2,
      .kv_heads = 1,
      .head_dim = 16,
      .hidden = 32,
      .vocab = 40,
      .tied = true},
     300,
     0},
};
enum { SHAPES = sizeof shapes / sizeof shapes[0], TOKENS_MAX = 300 };

/* A model of the reference back end with random weights that bfloat16 can hold, and what it says about random tokens. */
struct oracle {
    struct pl_model_config config;
    struct pl_model *m;
    uint32_t count;
    uint32_t tokens[TOKENS_MAX];
    float *logits; /* (count, V) */
};

/* Large enough that attention has favourites and that every part of the model matters. */
static void fill_params(struct pl_model *m, struct pl_prng *r)
{
    struct pl_normal normal;
    pl_normal_init(&normal);
    for (uint32_t i = 0; i < m->tensors.count; i++) {
        const struct pl_tensor *t = &m->tensors.at[i];
        float *p = m->params + t->offset;
        double deviation = t->group == PL_GROUP_NORM    ? 0.3
                           : t->role == PL_TENSOR_EMBED ? 1
                                                        : 1 / sqrt(t->cols);
        for (uint64_t j = 0; j < (uint64_t)t->rows * t->cols; j++) {
            double mean = t->group == PL_GROUP_NORM ? 1 : 0;
            p[j] = pl_bf16_to_float(pl_bf16_of_float((float)(mean + deviation * pl_normal_next(&normal, r))));
        }
    }
    pl_model_refresh(m);
}

static void oracle_init(struct oracle *o, const struct shape *s, uint64_t seed)
{
    struct pl_error err = {0};
    struct pl_prng r;
    int32_t tokens[TOKENS_MAX];
    pl_prng_seed(&r, seed, 0);
    *o = (struct oracle){.config = s->config, .count = s->tokens};
    pl_model_config_complete(&o->config);
    const struct pl_model_options options = {
        .config = o->config, .backend = "ref", .threads = 1, .batch = 1, .seq = s->tokens};
    if (pl_model_new(&o->m, &alloc, &options, &err) != PELAGO_OK)
        fail_msg("%s", err.text);
    fill_params(o->m, &r);
    for (uint32_t i = 0; i < o->count; i++) {
        tokens[i] = (int32_t)pl_prng_below(&r, o->config.vocab);
        o->tokens[i] = (uint32_t)tokens[i];
    }
    o->logits = malloc((size_t)o->count * o->config.vocab * sizeof *o->logits);
    assert_non_null(o->logits);
    pl_model_logits(o->m, &(struct pl_batch){.batch = 1, .seq = o->count, .tokens = tokens}, o->logits);
}

static void oracle_release(struct oracle *o)
{
    free(o->logits);
    pl_model_free(o->m);
}

static struct pl_infer *infer_of(const struct oracle *o, const char *backend, uint32_t threads)
{
    const struct pl_infer_options options = {
        .config = o->config, .backend = backend, .threads = threads, .context = o->count};
    struct pl_infer *inf = NULL;
    struct pl_error err = {0};
    if (pl_infer_new(&inf, &alloc, &options, &o->m->tensors, o->m->params, &err) != PELAGO_OK)
        fail_msg("%s", err.text);
    return inf;
}

/* Norm of the difference over norm of what is right. */
static double difference(const float *got, const float *right, uint32_t count)
{
    double off = 0, all = 0;
    for (uint32_t i = 0; i < count; i++) {
        off += pow((double)got[i] - (double)right[i], 2);
        all += pow((double)right[i], 2);
    }
    return sqrt(off / all);
}

/* Keys and values are kept as bfloat16, everything else is exact up to floats' rounding. */
static const double tolerance = 1e-2, tolerance_mean = 4e-3;

static void compare_shape(const struct shape *s, const char *backend, uint32_t portion, uint64_t seed)
{
    struct oracle o;
    double sum = 0, worst = 0;
    uint32_t steps = 0;
    oracle_init(&o, s, seed);
    struct pl_infer *inf = infer_of(&o, backend, 2);
    for (uint32_t at = 0; at < o.count; steps++) {
        uint32_t count = o.count - at < portion ? o.count - at : portion;
        const float *logits = pl_infer_step(inf, o.tokens + at, count);
        at += count;
        assert_int_equal(pl_infer_position(inf), at);
        double d = difference(logits, o.logits + (size_t)(at - 1) * o.config.vocab, o.config.vocab);
        sum += d;
        worst = d > worst ? d : worst;
        if (!(d < tolerance))
            fail_msg("%s on %s, portions of %u, position %u: off by %g", s->name, backend, portion, at - 1,
                     d);
    }
    if (!(sum / steps < tolerance_mean))
        fail_msg("%s on %s, portions of %u: off by %g in the mean", s->name, backend, portion, sum / steps);
    printf("# %s, %s, portions of %u: off by %.1e at worst\n", s->name, backend, portion, worst);
    pl_infer_free(inf);
    oracle_release(&o);
}

static void it_says_what_training_says(void **state)
{
    static const uint32_t portions[] = {1, 3, 8, 11, TOKENS_MAX};
    const uint64_t seed = test_seed();
    bool usable;
    const char *backend;
    (void)state;
    for (uint32_t b = 0; (backend = pl_engine_backend_name(b, &usable)) != NULL; b++)
        for (uint32_t s = 0; usable && s < SHAPES; s++)
            for (uint32_t p = 0; p < sizeof portions / sizeof *portions; p++)
                compare_shape(&shapes[s], backend, portions[p],
                              shapes[s].seed != 0 ? shapes[s].seed : seed + s);
}

/* The cache is the only thing rounded that the oracle does not round: a sequence of one token, whose attention is its
 * own value, shows the rest exactly enough to see a wrong epsilon. */
static void a_changed_epsilon_shows(void **state)
{
    struct oracle o;
    struct shape s = {.config = shapes[2].config, .tokens = 1};
    (void)state;
    s.config.norm_eps = 0.1f;
    oracle_init(&o, &s, 1);
    struct pl_infer *inf = infer_of(&o, NULL, 1);
    assert_true(difference(pl_infer_step(inf, o.tokens, 1), o.logits, o.config.vocab) < tolerance_mean);
    pl_infer_free(inf);
    o.config.norm_eps = 0.05f;
    inf = infer_of(&o, NULL, 1);
    assert_true(difference(pl_infer_step(inf, o.tokens, 1), o.logits, o.config.vocab) > tolerance_mean);
    pl_infer_free(inf);
    oracle_release(&o);
}

static void threads_do_not_change_the_bits(void **state)
{
    struct oracle o;
    (void)state;
    oracle_init(&o, &shapes[1], test_seed());
    struct pl_infer *one = infer_of(&o, NULL, 1), *three = infer_of(&o, NULL, 3);
    assert_int_equal(pl_infer_threads(one), 1);
    assert_int_equal(pl_infer_threads(three), 3);
    for (uint32_t i = 0; i < o.count; i++)
        assert_memory_equal(pl_infer_step(one, o.tokens + i, 1), pl_infer_step(three, o.tokens + i, 1),
                            o.config.vocab * sizeof(float));
    pl_infer_free(one);
    pl_infer_free(three);
    oracle_release(&o);
}

static void it_forgets_what_it_is_told_to(void **state)
{
    struct oracle o;
    float *first;
    (void)state;
    oracle_init(&o, &shapes[0], test_seed());
    struct pl_infer *inf = infer_of(&o, NULL, 2);
    size_t bytes = o.config.vocab * sizeof *first;
    first = malloc(bytes);
    assert_non_null(first);
    memcpy(first, pl_infer_step(inf, o.tokens, 9), bytes);
    pl_infer_step(inf, o.tokens + 9, 20);
    pl_infer_rewind(inf, 8);
    assert_int_equal(pl_infer_position(inf), 8);
    assert_true(difference(pl_infer_step(inf, o.tokens + 8, 1), first, o.config.vocab) < 1e-5);
    pl_infer_rewind(inf, 0);
    assert_memory_equal(pl_infer_step(inf, o.tokens, 9), first, bytes);
    free(first);
    pl_infer_free(inf);
    oracle_release(&o);
}

static void the_full_context_is_an_end(void **state)
{
    struct oracle o;
    (void)state;
    oracle_init(&o, &shapes[0], 1);
    struct pl_infer *inf = infer_of(&o, NULL, 1);
    assert_int_equal(pl_infer_context(inf), o.count);
    pl_infer_step(inf, o.tokens, o.count);
    expect_assert(pl_infer_step(inf, o.tokens, 1));
    pl_infer_free(inf);
    oracle_release(&o);
}

static void bad_options_get_a_sentence(void **state)
{
    struct oracle o;
    struct pl_infer *inf;
    struct pl_error err;
    (void)state;
    oracle_init(&o, &shapes[0], 1);
    struct pl_infer_options options = {.config = o.config, .threads = 1};
    assert_int_equal(pl_infer_new(&inf, &alloc, &options, &o.m->tensors, o.m->params, &err), PELAGO_INVALID);
    assert_non_null(strstr(err.text, "context is 0"));
    assert_null(inf);
    options.context = 8;
    options.backend = "abacus";
    assert_int_equal(pl_infer_new(&inf, &alloc, &options, &o.m->tensors, o.m->params, &err), PELAGO_INVALID);
    assert_non_null(strstr(err.text, "abacus"));
    assert_null(inf);
    oracle_release(&o);
}

/* Fails the allocation whose number is in `left`, and counts what is in use. */
struct scarce {
    struct pl_alloc inner;
    long left, blocks;
};

static void *scarce_resize(void *user, void *block, size_t old_bytes, size_t new_bytes)
{
    struct scarce *s = user;
    if (new_bytes > 0 && s->left-- == 0)
        return NULL;
    if (new_bytes == 0 && block != NULL)
        s->blocks--;
    if (new_bytes > 0 && block == NULL)
        s->blocks++;
    return s->inner.resize(s->inner.user, block, old_bytes, new_bytes);
}

static void memory_that_runs_out_is_given_back(void **state)
{
    struct oracle o;
    struct scarce s = {.inner = alloc};
    const struct pl_alloc poor = {scarce_resize, &s};
    enum pelago_status status = PELAGO_NOMEM;
    long fails = 0;
    (void)state;
    oracle_init(&o, &shapes[0], 1);
    const struct pl_infer_options options = {.config = o.config, .threads = 1, .context = 8};
    for (; status != PELAGO_OK; fails++) {
        struct pl_infer *inf;
        struct pl_error err = {0};
        s.left = fails;
        status = pl_infer_new(&inf, &poor, &options, &o.m->tensors, o.m->params, &err);
        assert_true(status == PELAGO_OK || (status == PELAGO_NOMEM && err.text[0] != '\0' && inf == NULL));
        pl_infer_free(inf);
        assert_int_equal(s.blocks, 0);
    }
    assert_true(fails > 3);
    oracle_release(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_says_what_training_says),         cmocka_unit_test(a_changed_epsilon_shows),
        cmocka_unit_test(threads_do_not_change_the_bits),     cmocka_unit_test(it_forgets_what_it_is_told_to),
        cmocka_unit_test(the_full_context_is_an_end),         cmocka_unit_test(bad_options_get_a_sentence),
        cmocka_unit_test(memory_that_runs_out_is_given_back),
    };
    alloc = pl_alloc_system();
    return cmocka_run_group_tests_name("model infer", tests, NULL, NULL);
}
