/* The merge: worked examples of RDA and of the weight, the corners of RDA, properties over random shapes, and one golden hash. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/hash.h"
#include "base/prng.h"
#include "optim/merge.h"
#include "expect_assert.h"
#include "seed.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { N_MAX = 1100, M_MAX = 40 };
#define SCRATCH(count) (66 * (count)) /* test_scratch says so */

static void assert_near(double got, double want, double tolerance)
{
    if (!(fabs(got - want) <= tolerance))
        fail_msg("got %.17g, expected %.17g within %.3g", got, want, tolerance);
}

/* In [-1, 1), a multiple of 2^-23: exact, and no libm. */
static float draw_value(struct pl_prng *r)
{
    return (float)((int32_t)pl_prng_below(r, 1u << 24) - (1 << 23)) / 8388608.0f;
}

static void draw_values(struct pl_prng *r, float scale, float *out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = scale * draw_value(r);
}

static struct pl_contribution draw_contribution(struct pl_prng *r, const float *v, uint64_t tokens_max,
                                                uint64_t steps_max)
{
    struct pl_contribution c = {.delta = v};
    c.tokens = pl_prng_range(r, 1, tokens_max);
    c.steps = pl_prng_range(r, 1, steps_max);
    return c;
}

/* A merge of vectors with given weights: steps 1 and tokens t weigh t^2, so weights are given as roots. */
static void merge_two(enum pl_merge_mode mode, const float *a, uint64_t root_a, const float *b,
                      uint64_t root_b, size_t n, float *out)
{
    const struct pl_contribution c[2] = {{a, root_a, 1}, {b, root_b, 1}};
    double scratch[SCRATCH(2)];
    pl_merge(mode, c, 2, n, &(struct pl_merge_work){.scratch = scratch}, out);
}

static void test_weight(void **state)
{
    (void)state;
    assert_true(pl_merge_weight(10, 2) == 50.0);
    assert_true(pl_merge_weight(0, 7) == 0.0);
    assert_true(pl_merge_weight(1, 3) == 1.0 / 3.0);
    assert_true(pl_merge_weight(UINT64_MAX, 1) == 0x1p128); /* far from double's end */
    /* Equal tokens: fewer, larger steps weigh more. */
    assert_true(pl_merge_weight(100, 4) > pl_merge_weight(100, 5));
}

static void test_weight_without_steps_asserts(void **state)
{
    (void)state;
    expect_assert(pl_merge_weight(1, 0));
}

static void test_rda_weights_three_to_one(void **state)
{
    (void)state;
    const float a[2] = {2, 0}, b[2] = {0, 2};
    /* tokens 6 / steps 12 = 3 and tokens 1 / steps 1 = 1. */
    const struct pl_contribution c[2] = {{a, 6, 12}, {b, 1, 1}};
    double scratch[SCRATCH(2)];
    float out[2];
    pl_merge(PL_MERGE_RDA, c, 2, 2, &(struct pl_merge_work){.scratch = scratch}, out);
    assert_near((double)out[0], 1.897366596, 1e-6);
    assert_near((double)out[1], 0.632455532, 1e-6);
    pl_merge(PL_MERGE_MEAN, c, 2, 2, &(struct pl_merge_work){.scratch = scratch}, out);
    assert_true(out[0] == 1.5f && out[1] == 0.5f);
}

static void test_rda_orthogonal_keeps_norm(void **state)
{
    (void)state;
    enum { M = 8 };
    float v[M][M] = {{0}};
    struct pl_contribution c[M];
    double scratch[SCRATCH(M)];
    float out[M];
    for (unsigned m = 0; m < M; m++) {
        v[m][m] = 3.0f;
        c[m] = (struct pl_contribution){v[m], 100, 4};
    }
    pl_merge(PL_MERGE_RDA, c, M, M, &(struct pl_merge_work){.scratch = scratch}, out);
    assert_near(pl_norm(out, M), 3.0, 1e-6);
    /* What RDA is for: the plain mean's norm falls as R / sqrt(M). */
    pl_merge(PL_MERGE_MEAN, c, M, M, &(struct pl_merge_work){.scratch = scratch}, out);
    assert_near(pl_norm(out, M), 3.0 / sqrt(8.0), 1e-6);
}

static void test_equal_vectors_give_the_vector(void **state)
{
    (void)state;
    struct pl_prng r;
    pl_prng_seed(&r, test_seed(), 1);
    static float v[N_MAX], out[N_MAX];
    draw_values(&r, 0.01f, v, N_MAX);
    struct pl_contribution c[M_MAX];
    double scratch[SCRATCH(M_MAX)];
    for (uint32_t m = 0; m < M_MAX; m++)
        c[m] = draw_contribution(&r, v, 1000000, 50);
    /* Forty roundings of a running sum; 3 epsilon, as it was, one seed in 25 exceeds (112910863629). */
    for (uint32_t count = 1; count <= M_MAX; count++) {
        pl_merge(PL_MERGE_MEAN, c, count, N_MAX, &(struct pl_merge_work){.scratch = scratch}, out);
        for (size_t i = 0; i < N_MAX; i++)
            assert_near((double)out[i], (double)v[i], (double)(10 * FLT_EPSILON * fabsf(v[i])));
        pl_merge(PL_MERGE_RDA, c, count, N_MAX, &(struct pl_merge_work){.scratch = scratch}, out);
        for (size_t i = 0; i < N_MAX; i++)
            assert_near((double)out[i], (double)v[i], (double)(10 * FLT_EPSILON * fabsf(v[i])));
    }
}

static void test_zero_vectors(void **state)
{
    (void)state;
    const float zero[3] = {0, -0.0f, 0}, v[3] = {0, 4, 3};
    float out[3] = {9, 9, 9};
    merge_two(PL_MERGE_RDA, zero, 1, zero, 1, 3, out);
    assert_true(out[0] == 0 && out[1] == 0 && out[2] == 0);
    /* No direction, but it counts in the mean norm: half of 5, along v. */
    merge_two(PL_MERGE_RDA, zero, 1, v, 1, 3, out);
    assert_near((double)out[0], 0.0, 0);
    assert_near((double)out[1], 2.0, 1e-6);
    assert_near((double)out[2], 1.5, 1e-6);
    /* However little v weighs beside it: the one direction there is has not cancelled. */
    merge_two(PL_MERGE_RDA, zero, 100000, v, 1, 3, out);
    assert_near((double)out[1], 4e-10, 1e-15);
    assert_near((double)out[2], 3e-10, 1e-15);
}

static void test_no_contribution_and_no_weight(void **state)
{
    (void)state;
    const float v[2] = {1, 2};
    const struct pl_contribution c[2] = {{v, 0, 1}, {v, 0, 5}};
    double scratch[SCRATCH(2)];
    for (enum pl_merge_mode mode = PL_MERGE_RDA; mode <= PL_MERGE_MEAN; mode++) {
        for (uint32_t count = 0; count <= 2; count++) {
            float out[2] = {9, 9};
            pl_merge(mode, c, count, 2, &(struct pl_merge_work){.scratch = scratch}, out);
            assert_true(out[0] == 0 && out[1] == 0);
        }
    }
}

static void test_weightless_contribution_changes_nothing(void **state)
{
    (void)state;
    const float v[3] = {1, -2, 0.5f}, huge[3] = {1e30f, 1e30f, -1e30f};
    float with[3], without[3];
    double scratch[SCRATCH(2)];
    for (enum pl_merge_mode mode = PL_MERGE_RDA; mode <= PL_MERGE_MEAN; mode++) {
        const struct pl_contribution c[2] = {{v, 10, 2}, {huge, 0, 2}};
        pl_merge(mode, c, 1, 3, &(struct pl_merge_work){.scratch = scratch}, without);
        pl_merge(mode, c, 2, 3, &(struct pl_merge_work){.scratch = scratch}, with);
        assert_memory_equal(with, without, sizeof with);
    }
}

static void test_cancelling_directions_give_zero(void **state)
{
    (void)state;
    const float a[2] = {3, 4}, b[2] = {-6, -8};
    float out[2] = {9, 9};
    merge_two(PL_MERGE_RDA, a, 1, b, 1, 2, out); /* opposite, of unequal norm */
    assert_true(out[0] == 0 && out[1] == 0);
    merge_two(PL_MERGE_MEAN, a, 1, b, 1, 2, out);
    assert_true(out[0] == -1.5f && out[1] == -2.0f);

    /* Three at 120 degrees: the sum is not exactly zero, but it is only rounding; it must not be blown up. */
    const float t[3][2] = {{1, 0}, {-0.5f, 0.8660254038f}, {-0.5f, -0.8660254038f}};
    const struct pl_contribution c[3] = {{t[0], 1, 1}, {t[1], 1, 1}, {t[2], 1, 1}};
    double scratch[SCRATCH(3)];
    pl_merge(PL_MERGE_RDA, c, 3, 2, &(struct pl_merge_work){.scratch = scratch}, out);
    assert_true(out[0] == 0 && out[1] == 0);

    /* Nearly opposite, but by more than rounding: a direction is left and keeps the norm. */
    const float p[2] = {1, 0.001f}, q[2] = {-1, 0.001f};
    merge_two(PL_MERGE_RDA, p, 1, q, 1, 2, out);
    assert_near((double)out[0], 0.0, 1e-9);
    assert_near((double)out[1], 1.0000005, 1e-6);
}

static void test_extreme_values(void **state)
{
    (void)state;
    const float tiny[2] = {0x1p-100f, 0}, large[2] = {0, FLT_MAX}, dust[2] = {0x1p-101f, 0};
    float out[2];
    merge_two(PL_MERGE_RDA, tiny, 1, tiny, 1, 2, out);
    assert_true(out[0] == 0x1p-100f && out[1] == 0);
    merge_two(PL_MERGE_RDA, large, 1, large, 1, 2, out);
    assert_true(out[0] == 0);
    assert_near((double)out[1] / (double)FLT_MAX, 1.0, 1e-6);
    /* A huge vector does not drown a tiny one's direction, nor the other way round. */
    merge_two(PL_MERGE_RDA, tiny, 1, large, 1, 2, out);
    assert_near((double)out[0] / (double)out[1], 1.0, 1e-5);
    assert_true(pl_all_finite(out, 2));
    /* Below 2^-100 there is no direction, but a length that counts. */
    merge_two(PL_MERGE_RDA, dust, 1, dust, 1, 2, out);
    assert_true(out[0] == 0 && out[1] == 0);
    merge_two(PL_MERGE_RDA, dust, 1, (const float[2]){0, 0x1p-100f}, 1, 2, out);
    assert_true(out[0] == 0 && out[1] == 0x1.8p-101f);
}

static void test_all_finite(void **state)
{
    (void)state;
    float v[37];
    for (unsigned i = 0; i < 37; i++)
        v[i] = i % 2 != 0 ? FLT_MAX : -FLT_TRUE_MIN;
    assert_true(pl_all_finite(v, 37));
    assert_true(pl_all_finite(NULL, 0));
    const float bad[] = {INFINITY, -INFINITY, NAN};
    for (unsigned i = 0; i < 37; i++) {
        for (unsigned b = 0; b < 3; b++) {
            float good = v[i];
            v[i] = bad[b];
            assert_false(pl_all_finite(v, 37));
            assert_true(pl_all_finite(v, i)); /* not past the end */
            v[i] = good;
        }
    }
}

/* The contract of the lanes, written out independently of the code. */
static double norm_by_contract(const float *v, size_t n)
{
    double total = 0, chunk = 0;
    for (size_t block = 0; block < n; block += 256) {
        double lane[16] = {0}, s8[8], s4[4];
        for (size_t i = block; i < n && i < block + 256; i++)
            lane[i % 16] += (double)v[i] * (double)v[i];
        for (int i = 0; i < 8; i++)
            s8[i] = lane[i] + lane[i + 8];
        for (int i = 0; i < 4; i++)
            s4[i] = s8[i] + s8[i + 4];
        if (block % 32768 == 0) {
            total += chunk;
            chunk = 0;
        }
        chunk += (s4[0] + s4[2]) + (s4[1] + s4[3]);
    }
    return sqrt(total + chunk);
}

static const size_t shapes[] = {0, 1, 2, 15, 16, 17, 31, 33, 255, 511, 512, 513, 528, 1000, 1024, 1025};

static void test_norm_lanes(void **state)
{
    (void)state;
    static float v[N_MAX];
    struct pl_prng r;
    pl_prng_seed(&r, test_seed(), 2);
    draw_values(&r, 1.0f, v, N_MAX);
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
        assert_true(pl_norm(v, shapes[s]) == norm_by_contract(v, shapes[s]));
}

/* Draws count vectors of n values and checks what must hold for any of them. */
static void check_properties(struct pl_prng *r, uint32_t count, size_t n)
{
    static float v[M_MAX][N_MAX], out[N_MAX + 1], again[N_MAX];
    struct pl_contribution c[M_MAX];
    double scratch[SCRATCH(M_MAX)], weights = 0, norms = 0;
    for (uint32_t m = 0; m < count; m++) {
        draw_values(r, pl_prng_chance(r, 100000) ? 0.0f : 1.0f / (float)pl_prng_range(r, 1, 1000), v[m], n);
        c[m] = draw_contribution(r, v[m], 1u << 20, 64);
        weights += pl_merge_weight(c[m].tokens, c[m].steps);
        norms += pl_merge_weight(c[m].tokens, c[m].steps) * pl_norm(v[m], n);
    }
    double mean_norm = norms / weights;

    out[n] = 12345.0f; /* nothing is written behind the end */
    pl_merge(PL_MERGE_RDA, c, count, n, &(struct pl_merge_work){.scratch = scratch}, out);
    if (n > 0 && pl_norm(out, n) != 0) /* opposite directions do occur for n = 1 */
        assert_near(pl_norm(out, n), mean_norm, 1e-6 * mean_norm);
    else
        assert_true(n <= 2 || mean_norm == 0);
    pl_merge(PL_MERGE_RDA, c, count, n, &(struct pl_merge_work){.scratch = scratch}, again);
    assert_memory_equal(out, again, n * sizeof out[0]);

    pl_merge(PL_MERGE_MEAN, c, count, n, &(struct pl_merge_work){.scratch = scratch}, out);
    for (size_t i = 0; i < n; i++) {
        float lo = v[0][i], hi = v[0][i];
        for (uint32_t m = 1; m < count; m++) {
            lo = fminf(lo, v[m][i]);
            hi = fmaxf(hi, v[m][i]);
        }
        float slack = 4 * FLT_EPSILON * fmaxf(fabsf(lo), fabsf(hi));
        assert_true(out[i] >= lo - slack && out[i] <= hi + slack);
    }
    assert_true(out[n] == 12345.0f);
}

static void test_properties_over_shapes(void **state)
{
    (void)state;
    struct pl_prng r;
    pl_prng_seed(&r, test_seed(), 3);
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
        for (uint32_t count = 1; count <= M_MAX; count += count < 12 ? 1 : 5)
            check_properties(&r, count, shapes[s]);
}

/* Scaling every vector by a power of two scales the result by it, exactly; a scale of all weights changes little. */
static void test_scaling(void **state)
{
    (void)state;
    enum { N = 300, M = 5 };
    static float v[M][N], twice[M][N], out[N], out_twice[N];
    struct pl_contribution c[M], d[M];
    double scratch[SCRATCH(M)];
    struct pl_prng r;
    pl_prng_seed(&r, test_seed(), 4);
    for (unsigned m = 0; m < M; m++) {
        draw_values(&r, 1.0f, v[m], N);
        for (size_t i = 0; i < N; i++)
            twice[m][i] = 2 * v[m][i];
        c[m] = (struct pl_contribution){v[m], pl_prng_range(&r, 1, 1000), 1};
        d[m] = (struct pl_contribution){twice[m], c[m].tokens, 1};
    }
    for (enum pl_merge_mode mode = PL_MERGE_RDA; mode <= PL_MERGE_MEAN; mode++) {
        pl_merge(mode, c, M, N, &(struct pl_merge_work){.scratch = scratch}, out);
        pl_merge(mode, d, M, N, &(struct pl_merge_work){.scratch = scratch}, out_twice);
        for (size_t i = 0; i < N; i++)
            assert_true(out_twice[i] == 2 * out[i]);
    }
}

enum { GOLDEN_N = 100003, GOLDEN_M = 9 };

static uint64_t hash_merge(enum pl_merge_mode mode, const struct pl_contribution *c, uint64_t before)
{
    static float out[GOLDEN_N];
    double scratch[SCRATCH(GOLDEN_M)];
    pl_merge(mode, c, GOLDEN_M, GOLDEN_N, &(struct pl_merge_work){.scratch = scratch}, out);
    assert_true(pl_norm(out, GOLDEN_N) > 0);
    return pl_hash64(out, sizeof out, before);
}

/* One hash for every compiler, level, machine and instruction set, of two merges: nine vectors of all sizes and weights;
 * and two heavy pairs that cancel, v and -v, beside five light vectors, so that an error in the last bit of a sum
 * shows. To make the hashes anew after a deliberate change of the arithmetic: build this test by gcc and clang at -O0, -O2
 * and -O3, with -ffp-contract=off, and run it with every PELAGO_CPU; all print the same two numbers, which belong here. */
static const uint64_t golden_rda = UINT64_C(0x5bea22e179e21019);
static const uint64_t golden_mean = UINT64_C(0x7dadedd0d5c26b97);

static void test_golden_hash(void **state)
{
    (void)state;
    static float v[GOLDEN_M][GOLDEN_N];
    struct pl_contribution c[GOLDEN_M];
    struct pl_prng r;
    pl_prng_seed(&r, 7, 7);
    for (unsigned m = 0; m < GOLDEN_M; m++) {
        draw_values(&r, 0.001f * (float)(m + 1), v[m], GOLDEN_N);
        c[m] = draw_contribution(&r, v[m], UINT64_C(1) << 40, 100);
    }
    uint64_t rda = hash_merge(PL_MERGE_RDA, c, 0);
    uint64_t mean = hash_merge(PL_MERGE_MEAN, c, 0);

    for (unsigned m = 0; m < GOLDEN_M; m++) {
        bool heavy = m < 4;
        for (size_t i = 0; i < GOLDEN_N; i++)
            v[m][i] = m == 1 || m == 3 ? -v[m - 1][i] : heavy ? v[m][i] : v[m][i] / 32768.0f;
        c[m].tokens = heavy ? 1000000007 : 4000037;
        c[m].steps = heavy ? 1 : 1 + m;
    }
    rda = hash_merge(PL_MERGE_RDA, c, rda);
    mean = hash_merge(PL_MERGE_MEAN, c, mean);
    print_message("# rda %016llx mean %016llx\n", (unsigned long long)rda, (unsigned long long)mean);
    assert_true(rda == golden_rda);
    assert_true(mean == golden_mean);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_weight),
        cmocka_unit_test(test_weight_without_steps_asserts),
        cmocka_unit_test(test_rda_weights_three_to_one),
        cmocka_unit_test(test_rda_orthogonal_keeps_norm),
        cmocka_unit_test(test_equal_vectors_give_the_vector),
        cmocka_unit_test(test_zero_vectors),
        cmocka_unit_test(test_no_contribution_and_no_weight),
        cmocka_unit_test(test_weightless_contribution_changes_nothing),
        cmocka_unit_test(test_cancelling_directions_give_zero),
        cmocka_unit_test(test_extreme_values),
        cmocka_unit_test(test_all_finite),
        cmocka_unit_test(test_norm_lanes),
        cmocka_unit_test(test_properties_over_shapes),
        cmocka_unit_test(test_scaling),
        cmocka_unit_test(test_golden_hash),
    };
    return cmocka_run_group_tests_name("optim_merge", tests, NULL, NULL);
}
