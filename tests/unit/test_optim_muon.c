/* Muon: the momentum by formula, the iteration against the same one in double, and what it is for: a matrix whose
 * singular values are all about 1. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/num.h"
#include "base/prng.h"
#include "optim/muon.h"
#include "expect_assert.h"
#include "seed.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE_MAX = 96, FLOATS_MAX = SIDE_MAX * SIDE_MAX };

static float draw(struct pl_prng *r)
{
    return (float)((int32_t)pl_prng_below(r, 1u << 24) - (1 << 23)) / 8388608.0f;
}

static void plain_matmul(void *self, float *c, const float *a, const float *b, uint32_t m, uint32_t n,
                         uint32_t k, bool b_transposed)
{
    (void)self;
    for (uint32_t i = 0; i < m; i++)
        for (uint32_t j = 0; j < n; j++) {
            double sum = 0;
            for (uint32_t x = 0; x < k; x++)
                sum += (double)a[i * k + x] * (double)(b_transposed ? b[j * k + x] : b[x * n + j]);
            c[i * n + j] = (float)sum;
        }
}

static const struct pl_muon_math math = {.matmul = plain_matmul};

struct rig {
    struct pl_pool *pool;
    struct pl_prng r;
    float g[FLOATS_MAX], m[FLOATS_MAX], p[FLOATS_MAX], u[FLOATS_MAX];
    float scratch[4 * FLOATS_MAX];
};

static int setup(void **state)
{
    static struct rig rig;
    struct pl_alloc alloc = pl_alloc_system();
    rig.pool = pl_pool_new(&alloc, 2);
    pl_prng_seed(&rig.r, test_seed(), 0);
    *state = &rig;
    return rig.pool != NULL ? 0 : -1;
}

static int teardown(void **state)
{
    struct rig *k = *state;
    pl_pool_free(k->pool);
    return 0;
}

/* One whole step, by blocks of 32 rows as inner.c does it. Returns the orthogonal direction. */
static const float *step(struct rig *k, const struct pl_muon_step *s)
{
    size_t n = (size_t)s->rows * s->cols;
    double sum = pl_muon_momentum(s, k->m, k->g, n);
    for (uint32_t row = 0; row < s->rows; row += 32)
        pl_muon_direction(s, k->m, k->g, row, pl_min32(32, s->rows - row), pl_muon_scale(sqrt(sum)),
                          k->scratch);
    const float *x = pl_muon_orthogonalize(s, &math, k->pool, k->scratch);
    for (uint32_t row = 0; row < s->rows; row += 32)
        pl_muon_apply(s, k->p, x, row, pl_min32(32, s->rows - row));
    return x;
}

static void start(struct rig *k, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        k->g[i] = 0.01f * draw(&k->r);
        k->m[i] = 0.01f * draw(&k->r);
        k->p[i] = draw(&k->r);
    }
}

/* Eigenvalues of the symmetric a (n, n), by Jacobi's rotations. */
static void eigenvalues(double *a, uint32_t n)
{
    for (int sweep = 0; sweep < 30; sweep++)
        for (uint32_t p = 0; p + 1 < n; p++)
            for (uint32_t q = p + 1; q < n; q++) {
                double off = a[p * n + q];
                if (fabs(off) < 1e-14)
                    continue;
                double theta = (a[q * n + q] - a[p * n + p]) / (2 * off);
                double t = (theta >= 0 ? 1 : -1) / (fabs(theta) + sqrt(theta * theta + 1));
                double c = 1 / sqrt(t * t + 1), s = t * c;
                for (uint32_t i = 0; i < n; i++) {
                    double x = a[i * n + p], y = a[i * n + q];
                    a[i * n + p] = c * x - s * y;
                    a[i * n + q] = s * x + c * y;
                }
                for (uint32_t i = 0; i < n; i++) {
                    double x = a[p * n + i], y = a[q * n + i];
                    a[p * n + i] = c * x - s * y;
                    a[q * n + i] = s * x + c * y;
                }
            }
}

struct range {
    double low, high;
};

/* Of the singular values of x (r, c), r <= c. */
static struct range singular_range(const float *x, uint32_t r, uint32_t c)
{
    static double a[FLOATS_MAX];
    struct range range = {1e9, 0};
    for (uint32_t i = 0; i < r; i++)
        for (uint32_t j = 0; j < r; j++) {
            a[i * r + j] = 0;
            for (uint32_t k = 0; k < c; k++)
                a[i * r + j] += (double)x[i * c + k] * (double)x[j * c + k];
        }
    eigenvalues(a, r);
    for (uint32_t i = 0; i < r; i++) {
        double value = sqrt(fmax(a[i * r + i], 0));
        range.low = fmin(range.low, value);
        range.high = fmax(range.high, value);
    }
    return range;
}

static void check_singular_values(struct rig *k, uint32_t rows, uint32_t cols)
{
    struct pl_muon_step s = pl_muon_step(rows, cols, 0.95f, 1e-3f, 0, 1);
    start(k, (size_t)rows * cols);
    struct range range = singular_range(step(k, &s), pl_min32(rows, cols), pl_max32(rows, cols));
    if (!(range.low > 0.6 && range.high < 1.25))
        fail_msg("%u x %u: singular values from %.3f to %.3f", rows, cols, range.low, range.high);
}

static void test_singular_values_are_near_one(void **state)
{
    struct rig *k = *state;
    const uint32_t shapes[][2] = {{16, 64}, {64, 16}, {33, 95}, {95, 33}, {1, 77},
                                  {77, 1},  {1, 1},   {2, 3},   {48, 96}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        check_singular_values(k, shapes[i][0], shapes[i][1]);
}

/* x (r, c) after one iteration, in double. */
static void iterate(double *x, uint32_t r, uint32_t c)
{
    static double a[FLOATS_MAX], b[FLOATS_MAX], next[FLOATS_MAX];
    for (uint32_t i = 0; i < r; i++)
        for (uint32_t j = 0; j < r; j++) {
            a[i * r + j] = 0;
            for (uint32_t t = 0; t < c; t++)
                a[i * r + j] += x[i * c + t] * x[j * c + t];
        }
    for (uint32_t i = 0; i < r; i++)
        for (uint32_t j = 0; j < r; j++) {
            b[i * r + j] = -4.7750 * a[i * r + j];
            for (uint32_t t = 0; t < r; t++)
                b[i * r + j] += 2.0315 * a[i * r + t] * a[t * r + j];
        }
    for (uint32_t i = 0; i < r; i++)
        for (uint32_t j = 0; j < c; j++) {
            next[i * c + j] = 3.4445 * x[i * c + j];
            for (uint32_t t = 0; t < r; t++)
                next[i * c + j] += b[i * r + t] * x[t * c + j];
        }
    memcpy(x, next, (size_t)r * c * sizeof x[0]);
}

/* A whole step of the formulas in muon.h, on double copies of g, m and p; the new m and p come back in them. */
static void formula(double *p, double *m, const double *g, const struct pl_muon_step *s, double lr,
                    double decay)
{
    static double x[FLOATS_MAX];
    uint32_t r = pl_min32(s->rows, s->cols), c = pl_max32(s->rows, s->cols);
    double mu = (double)s->momentum, sum = 0;
    for (uint32_t i = 0; i < r * c; i++) {
        uint32_t row = i / s->cols, col = i % s->cols;
        m[i] = mu * m[i] + (1 - mu) * g[i];
        double u = mu * m[i] + (1 - mu) * g[i];
        x[s->rows > s->cols ? col * s->rows + row : i] = u;
        sum += u * u;
    }
    for (uint32_t i = 0; i < r * c; i++)
        x[i] /= sqrt(sum);
    for (int i = 0; i < 5; i++)
        iterate(x, r, c);
    for (uint32_t i = 0; i < r * c; i++) {
        uint32_t row = i / s->cols, col = i % s->cols;
        p[i] -= lr * decay * p[i];
        p[i] -= lr * 0.2 * sqrt((double)c) * x[s->rows > s->cols ? col * s->rows + row : i];
    }
}

static void check_step(struct rig *k, uint32_t rows, uint32_t cols)
{
    static double p[FLOATS_MAX], m[FLOATS_MAX], g[FLOATS_MAX];
    const float lr = 0.02f, decay = 0.1f, grad_scale = 0.5f;
    struct pl_muon_step s = pl_muon_step(rows, cols, 0.9f, lr, decay, grad_scale);
    size_t n = (size_t)rows * cols;
    start(k, n);
    for (size_t i = 0; i < n; i++) {
        p[i] = (double)k->p[i];
        m[i] = (double)k->m[i];
        g[i] = (double)k->g[i] * (double)grad_scale;
    }
    formula(p, m, g, &s, (double)lr, (double)decay);
    step(k, &s);
    for (size_t i = 0; i < n; i++) {
        assert_true(fabs((double)k->m[i] - m[i]) <= 1e-8);
        if (!(fabs((double)k->p[i] - p[i]) <= 1e-5))
            fail_msg("%u x %u, element %zu: got %.9g, expected %.9g", rows, cols, i, (double)k->p[i], p[i]);
    }
}

static void test_a_step_follows_the_formula(void **state)
{
    struct rig *k = *state;
    const uint32_t shapes[][2] = {{8, 40}, {40, 8}, {32, 32}, {31, 67}, {67, 31},
                                  {1, 50}, {50, 1}, {1, 1},   {65, 96}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        check_step(k, shapes[i][0], shapes[i][1]);
}

/* The same matrix, lying and standing: the same iteration, so the same bits. */
static void test_tall_is_wide_transposed(void **state)
{
    struct rig *k = *state;
    enum { R = 37, C = 70 };
    static float wide_p[R * C], g[R * C], p[R * C];
    struct pl_muon_step wide = pl_muon_step(R, C, 0, 0.1f, 0.5f, 1),
                        tall = pl_muon_step(C, R, 0, 0.1f, 0.5f, 1);
    start(k, R * C);
    memcpy(g, k->g, sizeof g);
    memcpy(p, k->p, sizeof p);
    step(k, &wide);
    memcpy(wide_p, k->p, sizeof wide_p);
    for (uint32_t i = 0; i < R; i++)
        for (uint32_t j = 0; j < C; j++) {
            k->g[j * R + i] = g[i * C + j];
            k->p[j * R + i] = p[i * C + j];
        }
    step(k, &tall);
    for (uint32_t i = 0; i < R; i++)
        for (uint32_t j = 0; j < C; j++)
            assert_true(fabsf(k->p[j * R + i] - wide_p[i * C + j]) <
                        1e-6f); /* the norms are summed in another order */
}

static void test_the_length_of_the_gradient_does_not_matter(void **state)
{
    struct rig *k = *state;
    enum { R = 20, C = 30 };
    static float p[R * C], first[R * C];
    start(k, R * C);
    memcpy(p, k->p, sizeof p);
    for (int round = 0; round < 2; round++) {
        struct pl_muon_step s = pl_muon_step(R, C, 0.9f, 0.1f, 0, round == 0 ? 1.0f : 0.25f);
        memset(k->m, 0, sizeof k->m);
        memcpy(k->p, p, sizeof p);
        step(k, &s);
        if (round == 0)
            memcpy(first, k->p, sizeof first);
    }
    for (size_t i = 0; i < R * C; i++)
        assert_true(fabsf(k->p[i] - first[i]) < 1e-6f);
}

static void test_no_gradient_only_decays(void **state)
{
    struct rig *k = *state;
    struct pl_muon_step s = pl_muon_step(5, 9, 0.9f, 0.5f, 0.5f, 1);
    start(k, 45);
    memset(k->g, 0, sizeof k->g);
    memset(k->m, 0, sizeof k->m);
    memcpy(k->u, k->p, sizeof k->u);
    step(k, &s);
    for (size_t i = 0; i < 45; i++)
        assert_true(k->p[i] == k->u[i] * 0.75f);
}

static void test_step_size(void **state)
{
    (void)state;
    struct pl_muon_step s = pl_muon_step(100, 25, 0.9f, 0.5f, 0.25f, 1);
    assert_true(fabsf(s.step_size - 1.0f) < 1e-6f); /* 0.5 * 0.2 * sqrt(100) */
    assert_true(s.keep == 0.875f);
    assert_int_equal(pl_muon_scratch_floats(100, 25), 2 * 2500 + 2 * 625);
    assert_int_equal(pl_muon_scratch_floats(25, 100), 2 * 2500 + 2 * 625);
    assert_true(pl_muon_scale(4) == 0.25f);
    assert_true(isfinite(pl_muon_scale(0)));
    expect_assert(pl_muon_step(0, 5, 0.9f, 1, 0, 1));
    expect_assert(pl_muon_step(5, 5, 1.0f, 1, 0, 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_singular_values_are_near_one),
        cmocka_unit_test(test_a_step_follows_the_formula),
        cmocka_unit_test(test_tall_is_wide_transposed),
        cmocka_unit_test(test_the_length_of_the_gradient_does_not_matter),
        cmocka_unit_test(test_no_gradient_only_decays),
        cmocka_unit_test(test_step_size),
    };
    return cmocka_run_group_tests_name("optim_muon", tests, setup, teardown);
}
