/* The inner optimizer: the right rule on every tensor, clipping, gradients that are not finite, the callback, and the
 * same bits for any number of threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/num.h"
#include "base/prng.h"
#include "optim/adamw.h"
#include "optim/inner.h"
#include "optim/norm.h"
#include "expect_assert.h"
#include "seed.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A small model: embedding, norm, three matrices, one of them tall, and a gap after the norm. */
enum { WIDTH = 200, VOCAB = 3000, GROUPS = 5, FLOATS = VOCAB * WIDTH + 208 + 96 * WIDTH + 2 * 40 * WIDTH };

static const struct pl_param_group table[GROUPS] = {
    {0, VOCAB, WIDTH, PL_INNER_ADAMW, true, 1},
    {VOCAB * WIDTH, 1, WIDTH, PL_INNER_ADAMW, false, 1},
    {VOCAB * WIDTH + 208, 96, WIDTH, PL_INNER_MUON, true, 0.5f},
    {VOCAB * WIDTH + 208 + 96 * WIDTH, 40, WIDTH, PL_INNER_ADAMW, true, 2},
    {VOCAB * WIDTH + 208 + 136 * WIDTH, WIDTH, 40, PL_INNER_MUON, false, 1},
};

static const struct pl_inner_rule usual = {
    .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .momentum = 0.95f, .weight_decay = 0.1f, .clip = 1};

static const float rate = 3e-3f;

static void plain_matmul(void *self, float *c, const float *a, const float *b, uint32_t m, uint32_t n,
                         uint32_t k, bool b_transposed)
{
    (void)self;
    for (uint32_t i = 0; i < m; i++)
        for (uint32_t j = 0; j < n; j++) {
            float sum = 0;
            for (uint32_t x = 0; x < k; x++)
                sum += a[i * k + x] * (b_transposed ? b[j * k + x] : b[x * n + j]);
            c[i * n + j] = sum;
        }
}

struct rig {
    struct pl_alloc alloc;
    struct pl_pool *pool;
    struct pl_inner inner;
    struct pl_prng r;
    float *p, *g; /* [FLOATS] */
};

static struct pl_inner_options options_of(struct pl_pool *pool)
{
    return (struct pl_inner_options){.rule = usual,
                                     .groups = table,
                                     .group_count = GROUPS,
                                     .floats = FLOATS,
                                     .pool = pool,
                                     .math = {.matmul = plain_matmul}};
}

static float draw(struct pl_prng *r)
{
    return (float)((int32_t)pl_prng_below(r, 1u << 24) - (1 << 23)) / 8388608.0f;
}

static void draw_all(struct rig *k, float scale, float *out)
{
    for (size_t i = 0; i < FLOATS; i++)
        out[i] = 0;
    for (int i = 0; i < GROUPS; i++)
        for (size_t j = 0; j < (size_t)table[i].rows * table[i].cols; j++)
            out[table[i].offset + j] = scale * draw(&k->r);
}

static void rig_init(struct rig *k, uint64_t seed, uint32_t threads)
{
    k->alloc = pl_alloc_system();
    k->pool = pl_pool_new(&k->alloc, threads);
    assert_non_null(k->pool);
    struct pl_inner_options o = options_of(k->pool);
    assert_int_equal(pl_inner_init(&k->inner, &k->alloc, &o), PELAGO_OK);
    pl_prng_seed(&k->r, seed, 1);
    k->p = calloc(FLOATS, sizeof *k->p);
    k->g = calloc(FLOATS, sizeof *k->g);
    assert_non_null(k->p);
    assert_non_null(k->g);
    draw_all(k, 1, k->p);
    draw_all(k, 0.01f, k->g);
}

static void rig_release(struct rig *k)
{
    pl_inner_release(&k->inner);
    pl_pool_free(k->pool);
    free(k->p);
    free(k->g);
}

static enum pelago_status rig_step(struct rig *k, struct pl_inner_report *report)
{
    const struct pl_inner_update u = {.params = k->p, .grads = k->g, .lr = rate};
    return pl_inner_step(&k->inner, &u, report);
}

/* What a Muon group must become, without blocks and threads. */
static void muon_alone(struct rig *k, const struct pl_param_group *g, float grad_scale, float *p, float *m)
{
    struct pl_muon_step s = pl_muon_step(g->rows, g->cols, usual.momentum, rate * g->lr_scale,
                                         g->decay ? usual.weight_decay : 0, grad_scale);
    struct pl_muon_math math = {.matmul = plain_matmul};
    float *scratch = calloc(pl_muon_scratch_floats(g->rows, g->cols), sizeof *scratch);
    assert_non_null(scratch);
    double sum = pl_muon_momentum(&s, m, k->g + g->offset, (size_t)g->rows * g->cols);
    pl_muon_direction(&s, m, k->g + g->offset, 0, g->rows, pl_muon_scale(sqrt(sum)), scratch);
    pl_muon_apply(&s, p, pl_muon_orthogonalize(&s, &math, k->pool, scratch), 0, g->rows);
    free(scratch);
}

static void adamw_alone(struct rig *k, const struct pl_param_group *g, float grad_scale, float *p, float *m,
                        float *v)
{
    const struct pl_adamw_rule rule = {usual.beta1, usual.beta2, usual.eps};
    struct pl_adamw_step s =
        pl_adamw_step(&rule, 1, rate * g->lr_scale, g->decay ? usual.weight_decay : 0, grad_scale);
    pl_adamw_update(&s, p, m, v, k->g + g->offset, (size_t)g->rows * g->cols);
}

static void test_each_group_by_its_rule(void **state)
{
    (void)state;
    struct rig k;
    struct pl_inner_report report;
    rig_init(&k, test_seed(), 2);
    float *p = calloc(FLOATS, sizeof *p), *m = calloc(FLOATS, sizeof *m), *v = calloc(FLOATS, sizeof *v);
    assert_true(p != NULL && m != NULL && v != NULL);
    memcpy(p, k.p, FLOATS * sizeof *p);
    assert_int_equal(rig_step(&k, &report), PELAGO_OK);
    assert_true(report.grad_scale < 1 && report.bad_group == PL_NONE32 && k.inner.step == 1);
    for (uint32_t i = 0; i < GROUPS; i++) {
        const struct pl_param_group *g = &table[i];
        size_t n = (size_t)g->rows * g->cols, at = (size_t)g->offset;
        if (g->kind == PL_INNER_ADAMW)
            adamw_alone(&k, g, report.grad_scale, p + at, m + at, v + at);
        else
            muon_alone(&k, g, report.grad_scale, p + at, m + at);
        assert_memory_equal(k.p + at, p + at, n * sizeof *p);
        assert_memory_equal(pl_inner_m(&k.inner, i), m + at, n * sizeof *m);
        if (g->kind == PL_INNER_ADAMW)
            assert_memory_equal(pl_inner_v(&k.inner, i), v + at, n * sizeof *v);
        else
            assert_null(pl_inner_v(&k.inner, i));
    }
    free(p);
    free(m);
    free(v);
    rig_release(&k);
}

static void test_norm_and_clip(void **state)
{
    (void)state;
    struct rig k;
    struct pl_inner_report report;
    rig_init(&k, test_seed(), 2);
    double sum = 0;
    for (size_t i = 0; i < FLOATS; i++)
        sum += (double)k.g[i] * (double)k.g[i];
    assert_int_equal(rig_step(&k, &report), PELAGO_OK);
    assert_true(fabs(report.norm - sqrt(sum)) < 1e-9 * sqrt(sum));
    assert_true(report.grad_scale == pl_grad_clip_scale(report.norm, usual.clip) && report.grad_scale < 1);
    for (size_t i = 0; i < FLOATS; i++)
        k.g[i] *= 0.1f;
    assert_int_equal(rig_step(&k, &report), PELAGO_OK);
    assert_true(report.norm < 1 && report.grad_scale == 1.0f);
    rig_release(&k);
}

static void test_a_bad_gradient_changes_nothing(void **state)
{
    (void)state;
    const float bad[3] = {NAN, INFINITY, -INFINITY};
    struct rig k;
    struct pl_inner_report report;
    rig_init(&k, test_seed(), 2);
    assert_int_equal(rig_step(&k, &report), PELAGO_OK);
    const struct pl_block *owned = &k.inner.owned;
    size_t bytes = FLOATS * sizeof *k.p;
    size_t state_bytes = owned->owned_bytes - (size_t)((char *)owned->at - (char *)owned->owned);
    float *p = malloc(bytes);
    void *moments = malloc(state_bytes);
    assert_true(p != NULL && moments != NULL);
    memcpy(p, k.p, bytes);
    memcpy(moments, owned->at, state_bytes);
    for (uint32_t i = 0; i < GROUPS; i++) {
        size_t at = (size_t)(table[i].offset + pl_prng_below(&k.r, (uint64_t)table[i].rows * table[i].cols));
        float good = k.g[at];
        k.g[at] = bad[i % 3];
        assert_int_equal(rig_step(&k, &report), PELAGO_INVALID);
        assert_int_equal(report.bad_group, i);
        assert_true(!isfinite(report.norm));
        k.g[at] = good;
    }
    assert_memory_equal(k.p, p, bytes);
    assert_memory_equal(owned->at, moments, state_bytes);
    assert_int_equal(k.inner.step, 1);
    free(p);
    free(moments);
    rig_release(&k);
}

static void test_any_number_of_threads_gives_the_same_bits(void **state)
{
    (void)state;
    const uint32_t threads[] = {1, 2, 3, 7};
    const uint64_t seed = test_seed();
    struct rig first;
    double norm[3] = {0};
    for (size_t i = 0; i < sizeof threads / sizeof threads[0]; i++) {
        struct rig k;
        rig_init(&k, seed, threads[i]);
        for (int t = 0; t < 3; t++) {
            struct pl_inner_report report;
            assert_int_equal(rig_step(&k, &report), PELAGO_OK);
            assert_true(i == 0 || report.norm == norm[t]);
            norm[t] = report.norm;
            draw_all(&k, 0.01f, k.g);
        }
        if (i == 0) {
            first = k;
            continue;
        }
        assert_memory_equal(k.p, first.p, FLOATS * sizeof *k.p);
        assert_memory_equal(k.inner.m, first.inner.m, FLOATS * sizeof *k.p);
        rig_release(&k);
    }
    rig_release(&first);
}

/* Step count, m and v are the whole state: another optimizer goes on with them bit for bit. */
static void test_state_can_be_carried_over(void **state)
{
    (void)state;
    struct rig k;
    struct pl_inner other;
    struct pl_inner_report report;
    rig_init(&k, test_seed(), 2);
    assert_int_equal(rig_step(&k, &report), PELAGO_OK);
    struct pl_inner_options o = options_of(k.pool);
    assert_int_equal(pl_inner_init(&other, &k.alloc, &o), PELAGO_OK);
    other.step = k.inner.step;
    for (uint32_t i = 0; i < GROUPS; i++) {
        size_t bytes = (size_t)table[i].rows * table[i].cols * sizeof(float);
        memcpy(pl_inner_m(&other, i), pl_inner_m(&k.inner, i), bytes);
        if (pl_inner_v(&other, i) != NULL)
            memcpy(pl_inner_v(&other, i), pl_inner_v(&k.inner, i), bytes);
    }
    float *p = malloc(FLOATS * sizeof *p);
    assert_non_null(p);
    memcpy(p, k.p, FLOATS * sizeof *p);
    const struct pl_inner_update u = {.params = p, .grads = k.g, .lr = rate};
    assert_int_equal(rig_step(&k, &report), PELAGO_OK);
    assert_int_equal(pl_inner_step(&other, &u, &report), PELAGO_OK);
    assert_memory_equal(p, k.p, FLOATS * sizeof *p);
    free(p);
    pl_inner_release(&other);
    rig_release(&k);
}

struct witness {
    const float *before, *now;
    uint8_t seen[GROUPS][VOCAB]; /* rows; distinct tasks write distinct ones */
};

static void note_rows(void *user, uint32_t group, uint32_t row0, uint32_t rows)
{
    struct witness *w = user;
    const struct pl_param_group *g = &table[group];
    size_t at = (size_t)g->offset + (size_t)row0 * g->cols;
    if (row0 % PL_INNER_ROWS != 0 || (rows % PL_INNER_ROWS != 0 && row0 + rows != g->rows))
        return;                         /* not seen */
    for (uint32_t i = 0; i < rows; i++) /* every row has its new value by now */
        if (memcmp(w->before + at + (size_t)i * g->cols, w->now + at + (size_t)i * g->cols,
                   g->cols * sizeof(float)) != 0)
            w->seen[group][row0 + i]++;
}

static void test_every_row_is_reported_once_after_its_update(void **state)
{
    (void)state;
    static struct witness w;
    struct rig k;
    struct pl_inner_report report;
    rig_init(&k, test_seed(), 2);
    float *before = malloc(FLOATS * sizeof *before);
    assert_non_null(before);
    memcpy(before, k.p, FLOATS * sizeof *before);
    memset(&w, 0, sizeof w);
    w.before = before;
    w.now = k.p;
    const struct pl_inner_update u = {
        .params = k.p, .grads = k.g, .lr = rate, .updated = note_rows, .user = &w};
    assert_int_equal(pl_inner_step(&k.inner, &u, &report), PELAGO_OK);
    for (int i = 0; i < GROUPS; i++)
        for (uint32_t row = 0; row < table[i].rows; row++)
            if (w.seen[i][row] != 1)
                fail_msg("group %d, row %u: reported %u times", i, row, w.seen[i][row]);
    assert_true(k.inner.block_count > GROUPS); /* the embedding was cut */
    free(before);
    rig_release(&k);
}

static void test_gaps_stay_as_they_are(void **state)
{
    (void)state;
    struct rig k;
    struct pl_inner_report report;
    rig_init(&k, test_seed(), 2);
    k.p[VOCAB * WIDTH + WIDTH] = 7;
    k.g[VOCAB * WIDTH + WIDTH] = NAN; /* nobody looks at it */
    assert_int_equal(rig_step(&k, &report), PELAGO_OK);
    assert_true(k.p[VOCAB * WIDTH + WIDTH] == 7 && k.inner.m[VOCAB * WIDTH + WIDTH] == 0);
    rig_release(&k);
}

/* Fails the n-th allocation. */
struct scarce {
    struct pl_alloc system;
    int left;
    size_t held;
};

static void *scarce_resize(void *user, void *block, size_t old_bytes, size_t new_bytes)
{
    struct scarce *s = user;
    if (new_bytes > 0 && s->left-- <= 0)
        return NULL;
    s->held = s->held - old_bytes + new_bytes;
    return s->system.resize(s->system.user, block, old_bytes, new_bytes);
}

static void test_memory_runs_out(void **state)
{
    (void)state;
    struct scarce scarce = {pl_alloc_system(), 0, 0};
    const struct pl_alloc alloc = {scarce_resize, &scarce};
    struct pl_pool *pool = pl_pool_new(&scarce.system, 1);
    struct pl_inner_options o = options_of(pool);
    struct pl_inner inner;
    int tries = 0;
    enum pelago_status status = PELAGO_NOMEM;
    for (; status == PELAGO_NOMEM && tries < 20; tries++) {
        scarce.left = tries;
        status = pl_inner_init(&inner, &alloc, &o);
        if (status == PELAGO_NOMEM)
            assert_int_equal(scarce.held, 0);
    }
    assert_int_equal(status, PELAGO_OK);
    assert_int_equal(tries, 6); /* five allocations */
    assert_int_equal(pl_inner_bytes(&inner), scarce.held);
    /* m for all, v for AdamW's alone */
    size_t adamw = (size_t)(VOCAB * WIDTH + 208 + 40 * WIDTH), scratch = 2 * 96 * WIDTH + 2 * 96 * 96;
    assert_in_range(inner.owned.owned_bytes - (FLOATS + adamw + scratch) * sizeof(float), 0, 4 << 20);
    pl_inner_release(&inner);
    assert_int_equal(scarce.held, 0);
    pl_pool_free(pool);
}

static void refuse(struct pl_inner_rule rule, const char *word)
{
    struct pl_error err = {0};
    assert_int_equal(pl_inner_rule_check(&rule, &err), PELAGO_INVALID);
    if (strstr(err.text, word) == NULL)
        fail_msg("\"%s\" does not speak of %s", err.text, word);
}

#define REFUSE(field, value, word)                                                                           \
    do {                                                                                                     \
        struct pl_inner_rule rule_ = usual;                                                                  \
        rule_.field = (value);                                                                               \
        refuse(rule_, word);                                                                                 \
    } while (0)

static void test_refusals(void **state)
{
    (void)state;
    assert_int_equal(pl_inner_rule_check(&usual, NULL), PELAGO_OK);
    REFUSE(beta1, 1, "beta1");
    REFUSE(beta1, NAN, "beta1");
    REFUSE(beta2, -0.1f, "beta2");
    REFUSE(eps, 0, "eps");
    REFUSE(eps, NAN, "eps");
    REFUSE(momentum, 1, "momentum");
    REFUSE(weight_decay, -1, "weight decay");
    REFUSE(weight_decay, INFINITY, "weight decay");
    REFUSE(clip, -1, "clip");
    REFUSE(clip, INFINITY, "clip");
}

static void test_a_wrong_table_asserts(void **state)
{
    (void)state;
    struct pl_alloc alloc = pl_alloc_system();
    struct pl_pool *pool = pl_pool_new(&alloc, 1);
    struct pl_inner_options o = options_of(pool);
    struct pl_param_group wrong[GROUPS];
    struct pl_inner inner;
    o.groups = wrong;
    memcpy(wrong, table, sizeof wrong);
    wrong[4].rows++; /* beyond the end */
    expect_assert(pl_inner_init(&inner, &alloc, &o));
    memcpy(wrong, table, sizeof wrong);
    wrong[1].rows = 0;
    expect_assert(pl_inner_init(&inner, &alloc, &o));
    memcpy(wrong, table, sizeof wrong);
    o.math.matmul = NULL;
    expect_assert(pl_inner_init(&inner, &alloc, &o));
    pl_pool_free(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_group_by_its_rule),
        cmocka_unit_test(test_norm_and_clip),
        cmocka_unit_test(test_a_bad_gradient_changes_nothing),
        cmocka_unit_test(test_any_number_of_threads_gives_the_same_bits),
        cmocka_unit_test(test_state_can_be_carried_over),
        cmocka_unit_test(test_every_row_is_reported_once_after_its_update),
        cmocka_unit_test(test_gaps_stay_as_they_are),
        cmocka_unit_test(test_memory_runs_out),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_a_wrong_table_asserts),
    };
    return cmocka_run_group_tests_name("optim_inner", tests, NULL, NULL);
}
