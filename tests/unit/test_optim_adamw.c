/* AdamW against its formula in double, its variants against each other, and the norm that clipping needs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/cpu.h"
#include "base/hash.h"
#include "base/prng.h"
#include "optim/kernels.h"
#include "optim/norm.h"
#include "expect_assert.h"
#include "seed.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { N = 1000, VARIANTS_MAX = 3 };

static const struct pl_adamw_rule usual = {.beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f};

/* In [-1, 1), a multiple of 2^-23. */
static float draw(struct pl_prng *r)
{
    return (float)((int32_t)pl_prng_below(r, 1u << 24) - (1 << 23)) / 8388608.0f;
}

static void draw_all(struct pl_prng *r, float scale, float *out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = scale * draw(r);
}

/* The variants this machine can run. */
static size_t list_variants(const struct pl_kernels *all[VARIANTS_MAX])
{
    size_t count = 0;
    all[count++] = &pl_kernels_portable;
#ifdef __x86_64__
    if (pl_cpu_level() >= PL_CPU_AVX2)
        all[count++] = &pl_kernels_avx2;
    if (pl_cpu_level() >= PL_CPU_AVX512)
        all[count++] = &pl_kernels_avx512;
#endif
    return count;
}

static void assert_close(double got, double want, double relative, double absolute)
{
    if (!(fabs(got - want) <= relative * fabs(want) + absolute))
        fail_msg("got %.9g, expected %.9g", got, want);
}

struct wide {
    double p, m, v;
};

/* The formula of adamw.h as it is printed there. */
static void formula(struct wide *x, double g, const struct pl_adamw_rule *rule, int t, double lr,
                    double decay)
{
    double beta1 = (double)rule->beta1, beta2 = (double)rule->beta2;
    x->p *= 1 - lr * decay;
    x->m += (1 - beta1) * (g - x->m);
    x->v = beta2 * x->v + (1 - beta2) * g * g;
    double root = sqrt(x->v) / sqrt(1 - pow(beta2, t)) + (double)rule->eps;
    x->p -= lr / (1 - pow(beta1, t)) * x->m / root;
}

static void test_first_step_by_hand(void **state)
{
    (void)state;
    const struct pl_adamw_rule rule = {.beta1 = 0.5f, .beta2 = 0.75f, .eps = 1.0f};
    float p = 10, m = 0, v = 0, g = 8;
    struct pl_adamw_step s = pl_adamw_step(&rule, 1, 0.5f, 0.5f, 0.25f);
    pl_adamw_update(&s, &p, &m, &v, &g, 1);
    /* g 2; m 1; v 1; root sqrt(1) / sqrt(1/4) + 1 = 3; p 10 * 3/4 - (1/2 / 1/2) * 1 / 3 */
    assert_true(m == 1.0f && v == 1.0f);
    assert_close((double)p, 7.5 - 1.0 / 3, 1e-7, 0);
}

static void test_many_steps_follow_the_formula(void **state)
{
    (void)state;
    static float p[N], m[N], v[N], g[N];
    static struct wide want[N];
    const float lr = 3e-3f, decay = 0.1f, grad_scale = 0.37f;
    struct pl_prng r;
    pl_prng_seed(&r, test_seed(), 0);
    draw_all(&r, 1, p, N);
    memset(m, 0, sizeof m);
    memset(v, 0, sizeof v);
    for (size_t i = 0; i < N; i++)
        want[i] = (struct wide){(double)p[i], 0, 0};
    for (int t = 1; t <= 100; t++) {
        draw_all(&r, 0.01f, g, N);
        struct pl_adamw_step s = pl_adamw_step(&usual, (uint64_t)t, lr, decay, grad_scale);
        pl_adamw_update(&s, p, m, v, g, N);
        for (size_t i = 0; i < N; i++)
            formula(&want[i], (double)g[i] * (double)grad_scale, &usual, t, (double)lr, (double)decay);
    }
    for (size_t i = 0; i < N; i++) {
        assert_close((double)p[i], want[i].p, 1e-5, 1e-6);
        assert_close((double)m[i], want[i].m, 1e-5, 1e-8);
        assert_close((double)v[i], want[i].v, 1e-5, 0);
    }
}

static void test_late_steps_have_no_correction(void **state)
{
    (void)state;
    struct pl_adamw_step s = pl_adamw_step(&usual, UINT64_C(1) << 40, 0.25f, 0, 1);
    assert_true(s.step_size == 0.25f && s.root_scale == 1.0f && s.keep == 1.0f);
}

static void test_no_rate_moves_nothing(void **state)
{
    (void)state;
    float p = 3, m = 1, v = 4, g = 5;
    struct pl_adamw_step s = pl_adamw_step(&usual, 3, 0, 0.5f, 1);
    pl_adamw_update(&s, &p, &m, &v, &g, 1);
    assert_true(p == 3.0f && m > 1.0f && v > 4.0f);
}

/* Values from all over the range, so that zeros, denormals and overflow to infinity occur; no NaN, whose bits differ. */
static float draw_wild(struct pl_prng *r)
{
    float x = ldexpf(draw(r), (int)pl_prng_below(r, 200) - 149);
    return pl_prng_chance(r, 100000) ? 0.0f : x;
}

/* What every variant must equal bit for bit: one element after the other, each operation rounded to float. */
static void plain_adamw(const struct pl_adamw_step *s, float *p, float *m, float *v, const float *g, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float grad = g[i] * s->grad_scale;
        m[i] = m[i] + (grad - m[i]) * s->gain1;
        m[i] = (m[i] + 1e-25f) - 1e-25f;
        v[i] = v[i] * s->beta2 + grad * s->gain2 * grad;
        v[i] = (v[i] + 1e-30f) - 1e-30f;
        float root = sqrtf(v[i]) * s->root_scale + s->eps;
        p[i] = p[i] * s->keep - m[i] * s->step_size / root;
    }
}

static void check_adamw(const struct pl_kernels *k, struct pl_prng *r, size_t n, size_t shift)
{
    static float start[4][N], want[4][N], got[4][N];
    struct pl_adamw_step s = pl_adamw_step(&usual, pl_prng_range(r, 1, 100), 1e-3f, 0.1f, 0.7f);
    for (size_t i = 0; i < N; i++)
        for (int a = 0; a < 4; a++)
            start[a][i] = a == 2 ? fabsf(draw_wild(r)) : draw_wild(r);
    memcpy(want, start, sizeof want);
    memcpy(got, start, sizeof got);
    plain_adamw(&s, want[0] + shift, want[1] + shift, want[2] + shift, want[3] + shift, n);
    k->adamw(&s, got[0] + shift, got[1] + shift, got[2] + shift, got[3] + shift, n);
    assert_memory_equal(got, want, sizeof want); /* and nothing beyond the span has changed */
}

static void check_blend(const struct pl_kernels *k, struct pl_prng *r, size_t n, size_t shift)
{
    static float x[N], y[N], want[N], got[N];
    float a = draw(r), b = draw(r);
    for (size_t i = 0; i < N; i++) {
        x[i] = draw_wild(r);
        y[i] = draw_wild(r);
        want[i] = i >= shift && i < shift + n ? a * x[i] + b * y[i] : x[i];
    }
    memcpy(got, x, sizeof got);
    k->blend(got + shift, a, got + shift, b, y + shift, n);
    assert_memory_equal(got, want, sizeof want);
    memcpy(got, x, sizeof got);
    k->blend(got + shift, a, x + shift, b, y + shift, n);
    assert_memory_equal(got, want, sizeof want);
}

static void test_variants_give_the_same_bits(void **state)
{
    (void)state;
    struct pl_prng r;
    pl_prng_seed(&r, test_seed(), 0);
    const struct pl_kernels *all[VARIANTS_MAX];
    for (size_t variants = list_variants(all), i = 0; i < variants; i++)
        for (size_t n = 0; n < 80; n++) {
            check_adamw(all[i], &r, n, (size_t)pl_prng_below(&r, 20));
            check_blend(all[i], &r, n, (size_t)pl_prng_below(&r, 20));
        }
}

static void test_moments_never_become_denormal(void **state)
{
    (void)state;
    float p = 1, m = 1, v = 1;
    const float g = 0;
    for (uint64_t t = 1; t <= 3000; t++) {
        struct pl_adamw_step s = pl_adamw_step(&usual, t, 1e-3f, 0, 1);
        pl_adamw_update(&s, &p, &m, &v, &g, 1);
        assert_true(fpclassify(m) != FP_SUBNORMAL && fpclassify(v) != FP_SUBNORMAL);
        assert_true(fpclassify(m * s.step_size) != FP_SUBNORMAL);
    }
    assert_true(m >= 0 && m < 1e-31f && v >= 0 && v < 1e-35f);
}

static void test_wrong_arguments_assert(void **state)
{
    (void)state;
    const struct pl_adamw_rule wrong = {.beta1 = 1, .beta2 = 0.9f, .eps = 1e-8f};
    expect_assert(pl_adamw_step(&usual, 0, 1, 0, 1));
    expect_assert(pl_adamw_step(&wrong, 1, 1, 0, 1));
    expect_assert(pl_adamw_step(&usual, 1, -1, 0, 1));
    expect_assert(pl_adamw_step(&usual, 1, 1, 0, NAN));
}

/* Twenty steps; the hash is of what gcc 12 gave on x86-64. */
static const uint64_t golden = UINT64_C(0xd873b472049e767d);

static void test_golden_hash(void **state)
{
    (void)state;
    static float p[10007], m[10007], v[10007], g[10007];
    struct pl_prng r;
    pl_prng_seed(&r, 11, 12);
    draw_all(&r, 1, p, 10007);
    memset(m, 0, sizeof m);
    memset(v, 0, sizeof v);
    for (uint64_t t = 1; t <= 20; t++) {
        draw_all(&r, 0.02f, g, 10007);
        struct pl_adamw_step s = pl_adamw_step(&usual, t, 3e-4f, 0.1f, 0.5f);
        pl_adamw_update(&s, p, m, v, g, 10007);
    }
    uint64_t got = pl_hash64(p, sizeof p, pl_hash64(m, sizeof m, pl_hash64(v, sizeof v, 0)));
    print_message("# adamw %016llx\n", (unsigned long long)got);
    assert_true(got == golden);
}

/* The order that norm.h promises. */
static double sum_by_lanes(const float *g, size_t n)
{
    double lane[16] = {0};
    for (size_t i = 0; i < n; i++)
        lane[i % 16] += (double)g[i] * (double)g[i];
    for (int half = 8; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            lane[i] += lane[i + half];
    return lane[0];
}

static void test_sum_of_squares(void **state)
{
    (void)state;
    static float g[N];
    struct pl_prng r;
    pl_prng_seed(&r, test_seed(), 0);
    const struct pl_kernels *all[VARIANTS_MAX];
    const size_t variants = list_variants(all);
    for (size_t n = 0; n <= N; n += n < 70 ? 1 : 93) {
        draw_all(&r, ldexpf(1, (int)pl_prng_below(&r, 60) - 30), g, N);
        double want = sum_by_lanes(g, n);
        assert_true(pl_grad_sumsq(g, n) == want);
        for (size_t i = 0; i < variants; i++)
            assert_true(all[i]->sumsq(g, n) == want);
    }
}

static void test_sum_is_finite_when_the_values_are(void **state)
{
    (void)state;
    const float bad[3] = {NAN, INFINITY, -INFINITY};
    float g[50];
    for (size_t i = 0; i < 50; i++)
        g[i] = FLT_MAX;
    assert_true(isfinite(pl_grad_sumsq(g, 50)));
    for (size_t i = 0; i < 50; i++)
        for (int k = 0; k < 3; k++) {
            g[i] = bad[k];
            assert_true(!isfinite(pl_grad_sumsq(g, 50)));
            g[i] = FLT_MAX;
        }
}

static void test_clip_scale(void **state)
{
    (void)state;
    assert_true(pl_grad_clip_scale(0.5, 1) == 1.0f);
    assert_true(pl_grad_clip_scale(1e9, 0) == 1.0f); /* 0: no clipping */
    assert_true(pl_grad_clip_scale(0, 1) == 1.0f);
    assert_close((double)pl_grad_clip_scale(4, 1), 0.25, 1e-6, 0);
    assert_true(4 * (double)pl_grad_clip_scale(4, 1) <= 1); /* never longer than asked for */
    expect_assert(pl_grad_clip_scale((double)NAN, 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first_step_by_hand),
        cmocka_unit_test(test_many_steps_follow_the_formula),
        cmocka_unit_test(test_late_steps_have_no_correction),
        cmocka_unit_test(test_no_rate_moves_nothing),
        cmocka_unit_test(test_variants_give_the_same_bits),
        cmocka_unit_test(test_moments_never_become_denormal),
        cmocka_unit_test(test_wrong_arguments_assert),
        cmocka_unit_test(test_golden_hash),
        cmocka_unit_test(test_sum_of_squares),
        cmocka_unit_test(test_sum_is_finite_when_the_values_are),
        cmocka_unit_test(test_clip_scale),
    };
    return cmocka_run_group_tests_name("optim_adamw", tests, NULL, NULL);
}
