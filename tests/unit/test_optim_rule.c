/* The merge rules: what contributions weigh and how far they reach, rda_n, and each rule's arithmetic by hand, at cohorts of
 * 1, 2, 4 and 8. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/prng.h"
#include "optim/merge.h"
#include "optim/rule.h"
#include "seed.h"

#include <math.h>
#include <string.h>

enum { M = 8, N = 4000, SCRATCH = 131 * M };

static float v[M][N], out[N], other[N];
static double scratch[SCRATCH];

static void assert_near(double got, double want, double tolerance)
{
    if (!(fabs(got - want) <= tolerance))
        fail_msg("got %.17g, expected %.17g within %.3g", got, want, tolerance);
}

/* Nearly at right angles to each other, as PAPER 3.6 says of outer gradients. */
static void draw_vectors(struct pl_prng *r, double length)
{
    for (unsigned m = 0; m < M; m++) {
        for (size_t i = 0; i < N; i++)
            v[m][i] = (float)((int32_t)pl_prng_below(r, 1u << 24) - (1 << 23)) / 8388608.0f;
        float scale = (float)(length / pl_norm(v[m], N));
        for (size_t i = 0; i < N; i++)
            v[m][i] *= scale;
    }
}

static void merge(enum pl_merge_mode mode, uint32_t count, const struct pl_merge_work *more, float *to)
{
    struct pl_contribution c[M];
    struct pl_merge_work work = *more;
    for (unsigned m = 0; m < M; m++)
        c[m] = (struct pl_contribution){v[m], 100, 4};
    work.scratch = scratch;
    pl_merge(mode, c, count, N, &work, to);
}

/* A syncer refused its own journal: of equal weights n may come out above their number. */
static void test_effective_fits_its_number(void **state)
{
    (void)state;
    double w[64];
    unsigned above = 0;
    for (uint32_t count = 1; count <= 64; count++)
        for (uint64_t steps = 1; steps <= 64; steps++) {
            for (uint32_t i = 0; i < count; i++)
                w[i] = (double)(steps * 1275 * 1275);
            double n = pl_rule_effective(w, count);
            above += n > count;
            assert_true(pl_rule_effective_fits(n, count));
        }
    assert_true(above > 0);
    const double never[] = {-1e-300, (double)NAN, (double)INFINITY, 7.0000001};
    for (size_t i = 0; i < sizeof never / sizeof never[0]; i++)
        assert_false(pl_rule_effective_fits(never[i], 7));
}

static void test_names(void **state)
{
    (void)state;
    enum pl_rule_kind kind;
    for (enum pl_rule_kind k = PL_RULE_RDA; k <= PL_RULE_NORM_MEDIAN; k++)
        assert_true(pl_rule_of_name(pl_rule_name(k), &kind) && kind == k);
    assert_false(pl_rule_of_name("krum", &kind));
    const struct pl_merge_rule rda = {.kind = PL_RULE_RDA_N}, mean = {.kind = PL_RULE_MEAN},
                               trimmed = {.kind = PL_RULE_TRIMMED};
    /* Embeddings stay a mean where RDA is the rule. */
    assert_int_equal(pl_rule_mode(&rda, PL_MERGE_RDA), PL_MERGE_RDA);
    assert_int_equal(pl_rule_mode(&rda, PL_MERGE_MEAN), PL_MERGE_MEAN);
    assert_int_equal(pl_rule_mode(&mean, PL_MERGE_RDA), PL_MERGE_MEAN);
    assert_int_equal(pl_rule_mode(&trimmed, PL_MERGE_MEAN), PL_MERGE_TRIMMED);
}

static void test_ranges(void **state)
{
    (void)state;
    struct pl_error err;
    struct pl_merge_rule r = {.trim = 0.25f};
    assert_int_equal(pl_rule_check(&r, &err), PELAGO_OK);
    r.trim = 0.5f;
    assert_int_equal(pl_rule_check(&r, &err), PELAGO_INVALID);
    r = (struct pl_merge_rule){.stale = 0.5f};
    assert_int_equal(pl_rule_check(&r, &err), PELAGO_INVALID);
    r.stale = NAN;
    assert_int_equal(pl_rule_check(&r, &err), PELAGO_INVALID);
}

static void test_weights(void **state)
{
    (void)state;
    const struct pl_merge_rule plain = {.kind = PL_RULE_RDA}, guard = {.guard = true}, stale = {.stale = 2};
    /* A claim of 64 times the steps; batches of 8, 8, 4 and 2; one that was away for long. */
    const uint64_t steps[4] = {24, 24, 24, 64 * 24}, tokens[4] = {2400, 2400, 2400, 64 * 2400};
    const uint64_t alike[4] = {24, 24, 24, 24}, batches[4] = {1920, 1920, 960, 480};
    const bool fresh[4] = {false, false, false, true};
    double w[4], reach[4], room[4];
    pl_rule_weigh(&plain, tokens, steps, NULL, 4, room, w, reach);
    assert_true(w[3] == 64 * w[0] && w[0] == pl_merge_weight(2400, 24));
    pl_rule_weigh(&guard, tokens, steps, NULL, 4, room, w, reach);
    assert_true(w[3] == PL_RULE_WEIGHT_MAX * w[0] && w[0] == pl_merge_weight(2400, 24));
    pl_rule_weigh(&guard, tokens, steps, fresh, 4, room, w, reach);
    assert_true(w[3] == w[0] && w[0] == pl_merge_weight(2400, 24));
    assert_true(reach[0] == PL_RULE_REACH && reach[3] == PL_RULE_STEPS_MAX * PL_RULE_REACH);
    pl_rule_weigh(&stale, tokens, steps, NULL, 4, room, w, reach);
    assert_near(w[3], 2 * w[0], 1e-9 * w[0]);
    pl_rule_weigh(&guard, batches, alike, NULL, 4, room, w, reach);
    for (unsigned i = 0; i < 4; i++)
        assert_true(w[i] == pl_merge_weight(batches[i], 24)); /* mixed machines are left alone */
}

/* One and two contributions are never bounded: there is nobody to say what is usual. */
static void test_weights_of_one_and_two(void **state)
{
    (void)state;
    const struct pl_merge_rule guard = {.guard = true};
    const uint64_t steps[2] = {1, 2400}, tokens[2] = {100, 240000};
    const bool fresh[2] = {true, true};
    double w[2], reach[2], room[2];
    for (uint32_t count = 1; count <= 2; count++) {
        pl_rule_weigh(&guard, tokens, steps, fresh, count, room, w, reach);
        for (uint32_t i = 0; i < count; i++)
            assert_true(w[i] == pl_merge_weight(tokens[i], steps[i]) && reach[i] >= PL_RULE_REACH);
    }
}

static void test_rda_n(void **state)
{
    (void)state;
    const struct pl_merge_rule n = {.kind = PL_RULE_RDA_N}, rda = {.kind = PL_RULE_RDA};
    const double equal[M] = {2, 2, 2, 2, 2, 2, 2, 2}, one[M] = {5};
    struct pl_rule_past past = {.rounds = 0};
    assert_near(pl_rule_effective(equal, M), M, 1e-12);
    assert_near(pl_rule_effective(one, M), 1, 1e-12);
    assert_true(pl_rule_effective(one + 1, M - 1) == 0);
    assert_true(pl_rule_length(&n, &past, 1) == 1); /* the first round is the usual one */
    for (int i = 0; i < 100; i++)
        pl_rule_remember(&past, 8);
    assert_near(past.usual, 8, 1e-12);
    for (uint32_t count = 1; count <= M; count *= 2)
        assert_near(pl_rule_length(&n, &past, count), sqrt(count / 8.0), 1e-12);
    assert_true(pl_rule_length(&n, &past, 9) == 1 && pl_rule_length(&rda, &past, 1) == 1);
    for (int i = 0; i < 1000; i++)
        pl_rule_remember(&past, 2);
    assert_near(past.usual, 2, 1e-3); /* a run that shrinks finds a new usual number */
}

/* PAPER 3.6: the mean's length falls as R / sqrt(M), RDA keeps R; the others lie where they should. */
static void test_lengths_of_nearly_orthogonal(void **state)
{
    (void)state;
    struct pl_prng r;
    pl_prng_seed(&r, test_seed(), 1);
    draw_vectors(&r, 3.0);
    for (uint32_t count = 1; count <= M; count *= 2) {
        const double mean = 3 / sqrt(count);
        merge(PL_MERGE_MEAN, count, &(struct pl_merge_work){0}, out);
        assert_near(pl_norm(out, N), mean, 0.05 * mean);
        merge(PL_MERGE_RDA, count, &(struct pl_merge_work){0}, out);
        assert_near(pl_norm(out, N), 3, 1e-5);
        merge(PL_MERGE_RDA, count, &(struct pl_merge_work){.length = 0.5}, out);
        assert_near(pl_norm(out, N), 1.5, 1e-5);
        merge(PL_MERGE_MEDIAN, count, &(struct pl_merge_work){0}, out);
        assert_near(pl_norm(out, N), mean, 0.05 * mean);
        merge(PL_MERGE_CLIPPED, count, &(struct pl_merge_work){0}, out);
        assert_near(pl_norm(out, N), mean, 0.05 * mean);
        merge(PL_MERGE_TRIMMED, count, &(struct pl_merge_work){.trim = 0.25}, out);
        assert_true(pl_norm(out, N) < 1.4 * mean && pl_norm(out, N) > 0.7 * mean);
    }
}

/* Of one contribution every rule makes that contribution. */
static void test_one_alone(void **state)
{
    (void)state;
    struct pl_prng r;
    const double reach[1] = {PL_RULE_REACH};
    pl_prng_seed(&r, test_seed(), 2);
    draw_vectors(&r, 0.1);
    for (enum pl_merge_mode mode = PL_MERGE_RDA; mode <= PL_MERGE_MEDIAN; mode++) {
        merge(mode, 1, &(struct pl_merge_work){.trim = 0.25, .reach = reach}, out);
        for (size_t i = 0; i < N; i++)
            assert_near((double)out[i], (double)v[0][i], 1e-6 * fabs((double)v[0][i]));
    }
}

/* Where nobody is out of reach the guard changes no bit: cohorts of 1, 2, 4 and 8, lengths from 1 to 2.9 apart. */
static void test_reach_leaves_honest_alone(void **state)
{
    (void)state;
    struct pl_prng r;
    double reach[M];
    pl_prng_seed(&r, test_seed(), 3);
    draw_vectors(&r, 1);
    for (unsigned m = 0; m < M; m++) {
        reach[m] = PL_RULE_REACH;
        float scale = 1 + 1.9f * (float)m / M;
        for (size_t i = 0; i < N; i++)
            v[m][i] *= scale;
    }
    for (uint32_t count = 1; count <= M; count *= 2)
        for (enum pl_merge_mode mode = PL_MERGE_RDA; mode <= PL_MERGE_MEAN; mode++) {
            merge(mode, count, &(struct pl_merge_work){0}, out);
            merge(mode, count, &(struct pl_merge_work){.reach = reach}, other);
            assert_memory_equal(out, other, sizeof out);
        }
}

/* Two of eight a thousand times too long: bounded by every rule but the plain ones. */
static void test_two_of_eight_too_long(void **state)
{
    (void)state;
    struct pl_prng r;
    double reach[M];
    pl_prng_seed(&r, test_seed(), 4);
    draw_vectors(&r, 1);
    for (unsigned m = 0; m < M; m++)
        reach[m] = PL_RULE_REACH;
    for (unsigned m = 0; m < 2; m++)
        for (size_t i = 0; i < N; i++)
            v[m][i] *= 1000;
    merge(PL_MERGE_RDA, M, &(struct pl_merge_work){0}, out);
    assert_true(pl_norm(out, N) > 200);
    merge(PL_MERGE_RDA, M, &(struct pl_merge_work){.reach = reach}, out);
    assert_near(pl_norm(out, N), (6 + 2 * PL_RULE_REACH) / M, 1e-4);
    merge(PL_MERGE_MEAN, M, &(struct pl_merge_work){.reach = reach}, out);
    assert_true(pl_norm(out, N) < 1);
    merge(PL_MERGE_MEDIAN, M, &(struct pl_merge_work){0}, out);
    assert_true(pl_norm(out, N) < 0.5);
    merge(PL_MERGE_CLIPPED, M, &(struct pl_merge_work){0}, out);
    assert_true(pl_norm(out, N) < 0.6);
    merge(PL_MERGE_TRIMMED, M, &(struct pl_merge_work){.trim = 0.25}, out);
    assert_true(pl_norm(out, N) < 1.5);
}

/* Once an infinite share times a zero: what is next to nothing beside the others is not made as long as they are. */
static void test_median_of_very_unequal(void **state)
{
    (void)state;
    struct pl_prng r;
    pl_prng_seed(&r, test_seed(), 6);
    draw_vectors(&r, 1e30);
    for (size_t i = 0; i < N; i++)
        v[0][i] = i == 0 ? 1e-20f : 0;
    merge(PL_MERGE_MEDIAN, M, &(struct pl_merge_work){0}, out);
    assert_true(pl_all_finite(out, N));
    assert_true(pl_norm(out, N) > 1e29);
}

static void test_trimmed_by_hand(void **state)
{
    (void)state;
    const float a[3] = {1, 5, -7}, b[3] = {2, 5, 0}, c[3] = {3, 1, 1}, d[3] = {1000, -5, 2};
    const struct pl_contribution all[4] = {{a, 1, 1}, {b, 1, 1}, {c, 1, 1}, {d, 1, 1}};
    const double weights[4] = {1, 3, 1, 1};
    struct pl_merge_work work = {.scratch = scratch, .trim = 0.25};
    float got[3];
    pl_merge(PL_MERGE_TRIMMED, all, 4, 3, &work, got);
    assert_true(got[0] == 2.5f && got[1] == 3 && got[2] == 0.5f);
    work.weights = weights; /* of what is left: (3 * 2 + 3) / 4 */
    pl_merge(PL_MERGE_TRIMMED, all, 4, 3, &work, got);
    assert_true(got[0] == 2.25f);
    work = (struct pl_merge_work){.scratch = scratch, .trim = 0.49};
    pl_merge(PL_MERGE_TRIMMED, all, 2, 3, &work, got); /* of two nobody is left out */
    assert_true(got[0] == 1.5f);
}

/* Seven of twenty are 0.35 of them, also as a float; who weighs nothing is not among those that are counted. */
static void test_trimmed_counts(void **state)
{
    (void)state;
    enum { MANY = 20 };
    static float one[MANY];
    static double room[131 * MANY], weights[MANY];
    struct pl_contribution all[MANY];
    float got;
    for (uint32_t m = 0; m < MANY; m++) { /* 0, 0 ... 0, 100, 200 ... 700, 100000, 900 ... 1400 */
        one[m] = m < 6 ? 0 : m == 13 ? 100000 : 100.0f * (float)(m - 5);
        weights[m] = 1;
        all[m] = (struct pl_contribution){&one[m], 1, 1};
    }
    struct pl_merge_work work = {.scratch = room, .weights = weights, .trim = (double)0.35f};
    pl_merge(PL_MERGE_TRIMMED, all, MANY, 1, &work, &got);
    assert_true(got == 450); /* of 200 to 700 */
    for (uint32_t m = 0; m < 16; m++)
        weights[m] = 0;
    work.trim = 0.25; /* of four, one at either end */
    pl_merge(PL_MERGE_TRIMMED, all, MANY, 1, &work, &got);
    assert_true(got == 1250);
    work.trim = (double)nextafterf(0.5f, 0); /* somebody stays */
    pl_merge(PL_MERGE_TRIMMED, all, MANY, 1, &work, &got);
    assert_true(got == 1250);
}

static void test_weights_given(void **state)
{
    (void)state;
    const float a[2] = {1, 0}, b[2] = {0, 1};
    const struct pl_contribution c[2] = {{a, 1, 1}, {b, 1, 1}};
    const double zero[2] = {0, 0}, first[2] = {2, 0};
    struct pl_merge_work work = {.scratch = scratch, .weights = zero, .trim = 0.25};
    float got[2];
    for (enum pl_merge_mode mode = PL_MERGE_RDA; mode <= PL_MERGE_MEDIAN; mode++) {
        work.weights = zero;
        pl_merge(mode, c, 2, 2, &work, got);
        assert_true(got[0] == 0 && got[1] == 0);
        work.weights = first;
        pl_merge(mode, c, 2, 2, &work, got);
        assert_true(got[0] == 1 && got[1] == 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_effective_fits_its_number),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_weights),
        cmocka_unit_test(test_weights_of_one_and_two),
        cmocka_unit_test(test_rda_n),
        cmocka_unit_test(test_lengths_of_nearly_orthogonal),
        cmocka_unit_test(test_one_alone),
        cmocka_unit_test(test_reach_leaves_honest_alone),
        cmocka_unit_test(test_two_of_eight_too_long),
        cmocka_unit_test(test_median_of_very_unequal),
        cmocka_unit_test(test_trimmed_by_hand),
        cmocka_unit_test(test_trimmed_counts),
        cmocka_unit_test(test_weights_given),
    };
    return cmocka_run_group_tests_name("optim_rule", tests, NULL, NULL);
}
