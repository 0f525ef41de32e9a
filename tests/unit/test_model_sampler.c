/* test_model_sampler.c - which token comes next: the options keep the right ones, and draws have the right frequencies. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/prng.h"
#include "model/sampler.h"
#include "seed.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VOCAB_MAX = 3000 };

static struct pl_alloc alloc;
static const struct pl_sampler_options all = {.temperature = 1, .top_p = 1};

static struct pl_sampler sampler_of(uint32_t vocab, struct pl_sampler_options o)
{
    struct pl_sampler s;
    struct pl_error err = {0};
    if (pl_sampler_init(&s, &alloc, vocab, &o, &err) != PELAGO_OK)
        fail_msg("%s", err.text);
    return s;
}

/* ---- what may come at all, by sorting ---- */

struct entry {
    double p;
    uint32_t id;
};

static int by_likelihood(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    if (x->p != y->p)
        return x->p > y->p ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

/* Probabilities of all tokens after the options, in p; returns how many can come. */
static uint32_t expected(const float *logits, uint32_t vocab, struct pl_sampler_options o, double *p)
{
    static struct entry e[VOCAB_MAX];
    double max = -(double)INFINITY, sum = 0, mass = 0;
    uint32_t n = vocab;
    for (uint32_t i = 0; i < vocab; i++)
        max = fmax(max, (double)logits[i]);
    for (uint32_t i = 0; i < vocab; i++)
        e[i] = (struct entry){exp(((double)logits[i] - max) / o.temperature), i};
    qsort(e, vocab, sizeof *e, by_likelihood);
    if (o.top_k > 0 && o.top_k < n)
        n = o.top_k;
    for (uint32_t i = 0; i < n; i++)
        sum += e[i].p;
    uint32_t kept = 0;
    while (kept < n && (kept == 0 || mass < o.top_p * sum))
        mass += e[kept++].p;
    while (kept > 1 && e[kept - 1].p < o.min_p * e[0].p)
        mass -= e[--kept].p;
    memset(p, 0, vocab * sizeof *p);
    for (uint32_t i = 0; i < kept; i++)
        p[e[i].id] = e[i].p / mass;
    return kept;
}

/* Chi-square of draws against probabilities; bins with few expected draws are taken together. */
static void check_frequencies(struct pl_sampler *s, const float *logits, const double *p, uint32_t draws)
{
    static uint32_t seen[VOCAB_MAX];
    double chi = 0, rest_p = 0;
    uint32_t rest = 0, bins = 0;
    memset(seen, 0, sizeof seen);
    for (uint32_t i = 0; i < draws; i++) {
        uint32_t id = pl_sampler_pick(s, logits);
        assert_true(id < s->vocab);
        if (p[id] <= 0)
            fail_msg("token %u came, which cannot", id);
        seen[id]++;
    }
    for (uint32_t i = 0; i < s->vocab; i++) {
        if (p[i] * draws < 10) {
            rest_p += p[i];
            rest += seen[i];
            continue;
        }
        chi += pow(seen[i] - p[i] * draws, 2) / (p[i] * draws);
        bins++;
    }
    if (rest_p * draws >= 1) {
        chi += pow(rest - rest_p * draws, 2) / (rest_p * draws);
        bins++;
    }
    /* Six deviations of the distribution's normal approximation: once in a hundred million times by chance. */
    double limit = bins + 6 * sqrt(2.0 * bins) + 20;
    if (!(chi < limit))
        fail_msg("chi-square is %g with %u bins, expected below %g", chi, bins, limit);
}

static void random_logits(float *logits, uint32_t vocab, double spread, struct pl_prng *r)
{
    for (uint32_t i = 0; i < vocab; i++)
        logits[i] = (float)((double)pl_prng_below(r, 1000000) * 1e-6 * spread);
}

static void draws_have_the_right_frequencies(void **state)
{
    static const struct {
        uint32_t vocab;
        double spread;
        struct pl_sampler_options o;
    } cases[] = {
        {1, 1, {.temperature = 1, .top_p = 1}},
        {2, 3, {.temperature = 1, .top_p = 1}},
        {50, 4, {.temperature = 1, .top_p = 1}},
        {50, 4, {.temperature = 0.5, .top_p = 1}},
        {50, 4, {.temperature = 3, .top_p = 0.7}},
        {200, 6, {.temperature = 0.8, .top_p = 0.95}},
        {200, 6, {.temperature = 1, .top_p = 1, .top_k = 7}},
        {200, 6, {.temperature = 1, .top_p = 0.5, .top_k = 30}},
        {200, 6, {.temperature = 1, .top_p = 1, .min_p = 0.2}},
        {200, 6, {.temperature = 1.2, .top_p = 0.9, .top_k = 100, .min_p = 0.1}},
        {3000, 10, {.temperature = 1, .top_p = 0.9}},
        {3000, 0, {.temperature = 1, .top_p = 0.5}},
        {3000, 300, {.temperature = 0.1, .top_p = 1}},
    };
    static float logits[VOCAB_MAX];
    static double p[VOCAB_MAX];
    const uint64_t seed = test_seed();
    struct pl_prng r;
    (void)state;
    pl_prng_seed(&r, seed, 0);
    for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct pl_sampler s = sampler_of(cases[i].vocab, cases[i].o);
        random_logits(logits, cases[i].vocab, cases[i].spread, &r);
        pl_sampler_seed(&s, seed, i);
        uint32_t kept = expected(logits, cases[i].vocab, cases[i].o, p);
        printf("# case %u: %u of %u tokens\n", i, kept, cases[i].vocab);
        check_frequencies(&s, logits, p, 20000);
        pl_sampler_release(&s);
    }
}

/* So many draws that all come that can: they must be the first `kept` ids. */
static void assert_comes(const float *logits, uint32_t vocab, struct pl_sampler_options o, uint32_t kept)
{
    struct pl_sampler s = sampler_of(vocab, o);
    uint64_t seen = 0;
    for (uint32_t i = 0; i < 2000; i++)
        seen |= UINT64_C(1) << pl_sampler_pick(&s, logits);
    assert_int_equal(seen, (UINT64_C(1) << kept) - 1);
    pl_sampler_release(&s);
}

static void top_p_keeps_the_smallest_set(void **state)
{
    /* 0.4, 0.3, 0.2, 0.1 */
    const float logits[] = {logf(4), logf(3), logf(2), logf(1)};
    (void)state;
    assert_comes(logits, 4, (struct pl_sampler_options){.temperature = 1, .top_p = 0}, 1);
    assert_comes(logits, 4, (struct pl_sampler_options){.temperature = 1, .top_p = 0.39}, 1);
    assert_comes(logits, 4, (struct pl_sampler_options){.temperature = 1, .top_p = 0.41}, 2);
    assert_comes(logits, 4, (struct pl_sampler_options){.temperature = 1, .top_p = 0.69}, 2);
    assert_comes(logits, 4, (struct pl_sampler_options){.temperature = 1, .top_p = 0.71}, 3);
    assert_comes(logits, 4, (struct pl_sampler_options){.temperature = 1, .top_p = 0.91}, 4);
    assert_comes(logits, 4, (struct pl_sampler_options){.temperature = 1, .top_p = 1}, 4);
    /* Of the two that top-k leaves the first has 4/7. */
    assert_comes(logits, 4, (struct pl_sampler_options){.temperature = 1, .top_p = 0.56, .top_k = 2}, 1);
    assert_comes(logits, 4, (struct pl_sampler_options){.temperature = 1, .top_p = 0.58, .top_k = 2}, 2);
    assert_comes(logits, 4, (struct pl_sampler_options){.temperature = 1, .top_p = 1, .top_k = 3}, 3);
    assert_comes(logits, 4, (struct pl_sampler_options){.temperature = 1, .top_p = 1, .top_k = 9}, 4);
    assert_comes(logits, 4, (struct pl_sampler_options){.temperature = 1, .top_p = 1, .min_p = 0.49}, 3);
    assert_comes(logits, 4, (struct pl_sampler_options){.temperature = 1, .top_p = 1, .min_p = 0.51}, 2);
    assert_comes(logits, 4, (struct pl_sampler_options){.temperature = 1, .top_p = 1, .min_p = 1}, 1);
}

/* Among equals the lower id counts as likelier, however many there are. */
static void equals_are_kept_by_id(void **state)
{
    float logits[64];
    (void)state;
    for (uint32_t i = 0; i < 64; i++)
        logits[i] = 2.5f;
    assert_comes(logits, 64, (struct pl_sampler_options){.temperature = 1, .top_p = 1, .top_k = 5}, 5);
    assert_comes(logits, 64, (struct pl_sampler_options){.temperature = 1, .top_p = 0.249}, 16);
}

/* Sets against sorting, for many random cases with ties. */
static void the_kept_set_is_that_of_sorting(void **state)
{
    static float logits[VOCAB_MAX];
    static double p[VOCAB_MAX];
    const uint64_t seed = test_seed();
    struct pl_prng r;
    (void)state;
    pl_prng_seed(&r, seed, 1);
    for (uint32_t round = 0; round < 300; round++) {
        uint32_t vocab = (uint32_t)pl_prng_range(&r, 1, 400);
        const struct pl_sampler_options o = {.temperature = 1,
                                             .top_p = 0.05 + 0.0009 * (double)pl_prng_below(&r, 1000),
                                             .top_k = (uint32_t)pl_prng_below(&r, 2 * vocab)};
        for (uint32_t i = 0; i < vocab; i++)
            logits[i] = (float)pl_prng_below(&r, 20) * 0.37f;
        struct pl_sampler s = sampler_of(vocab, o);
        uint32_t kept = expected(logits, vocab, o, p);
        pl_sampler_seed(&s, seed, round);
        for (uint32_t i = 0; i < 100; i++)
            if (p[pl_sampler_pick(&s, logits)] <= 0)
                fail_msg("round %u: a token came that is not among the %u likeliest", round, kept);
        pl_sampler_release(&s);
    }
}

static void temperature_zero_takes_the_greatest(void **state)
{
    const float logits[] = {-3, 7, 7, 6.999999f, -INFINITY};
    struct pl_sampler s = sampler_of(5, (struct pl_sampler_options){.temperature = 0, .top_p = 1});
    (void)state;
    for (uint32_t i = 0; i < 100; i++)
        assert_int_equal(pl_sampler_pick(&s, logits), 1);
    pl_sampler_release(&s);
    s = sampler_of(5, (struct pl_sampler_options){.temperature = 0.01, .top_p = 1});
    for (uint32_t i = 0; i < 100; i++)
        assert_in_range(pl_sampler_pick(&s, logits), 1, 3);
    pl_sampler_release(&s);
}

static void extreme_logits_are_no_problem(void **state)
{
    const float huge[] = {3e38f, -3e38f, -INFINITY, 3e38f}, low[] = {-3e38f, -INFINITY, -3.1e38f};
    const struct pl_sampler_options options[] = {{.temperature = 1, .top_p = 1},
                                                 {.temperature = 100, .top_p = 0.9},
                                                 {.temperature = 0.01, .top_p = 0.5, .top_k = 3}};
    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        struct pl_sampler s = sampler_of(4, options[i]);
        for (uint32_t j = 0; j < 50; j++)
            assert_int_equal(pl_sampler_pick(&s, huge) % 3, 0);
        pl_sampler_release(&s);
        s = sampler_of(3, options[i]);
        assert_int_equal(pl_sampler_pick(&s, low), 0);
        pl_sampler_release(&s);
    }
}

static void what_is_no_number_is_said(void **state)
{
    const double temperatures[] = {0, 1};
    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        struct pl_sampler s =
            sampler_of(3, (struct pl_sampler_options){.temperature = temperatures[i], .top_p = 0.9});
        assert_int_equal(pl_sampler_pick(&s, (const float[]){1, NAN, 2}), PL_NONE32);
        assert_int_equal(pl_sampler_pick(&s, (const float[]){NAN, 1, 2}), PL_NONE32);
        assert_int_equal(pl_sampler_pick(&s, (const float[]){1, 2, INFINITY}), PL_NONE32);
        assert_int_equal(pl_sampler_pick(&s, (const float[]){-INFINITY, -INFINITY, -INFINITY}), PL_NONE32);
        assert_int_equal(pl_sampler_pick(&s, (const float[]){-INFINITY, -INFINITY, 5}), 2);
        pl_sampler_release(&s);
    }
}

static void a_seed_repeats_itself(void **state)
{
    static float logits[VOCAB_MAX];
    uint32_t first[200], same = 0;
    struct pl_prng r;
    struct pl_sampler s = sampler_of(VOCAB_MAX, all);
    (void)state;
    pl_prng_seed(&r, 5, 0);
    random_logits(logits, VOCAB_MAX, 3, &r);
    pl_sampler_seed(&s, 11, 2);
    for (uint32_t i = 0; i < 200; i++)
        first[i] = pl_sampler_pick(&s, logits);
    pl_sampler_seed(&s, 11, 2);
    for (uint32_t i = 0; i < 200; i++)
        assert_int_equal(pl_sampler_pick(&s, logits), first[i]);
    pl_sampler_seed(&s, 11, 3);
    for (uint32_t i = 0; i < 200; i++)
        same += pl_sampler_pick(&s, logits) == first[i];
    assert_true(same < 50);
    pl_sampler_release(&s);
}

static void bad_options_get_a_sentence(void **state)
{
    static const struct {
        struct pl_sampler_options o;
        const char *word;
    } cases[] = {
        {{.temperature = -1, .top_p = 1}, "temperature"},
        {{.temperature = 0.001, .top_p = 1}, "temperature"},
        {{.temperature = 1e9, .top_p = 1}, "temperature"},
        {{.temperature = (double)NAN, .top_p = 1}, "temperature"},
        {{.temperature = 1, .top_p = 1.5}, "top-p"},
        {{.temperature = 1, .top_p = -0.1}, "top-p"},
        {{.temperature = 1, .top_p = (double)NAN}, "top-p"},
        {{.temperature = 1, .top_p = 1, .min_p = 2}, "min-p"},
    };
    (void)state;
    for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct pl_sampler s;
        struct pl_error err;
        assert_int_equal(pl_sampler_init(&s, &alloc, 10, &cases[i].o, &err), PELAGO_INVALID);
        assert_non_null(strstr(err.text, cases[i].word));
        pl_sampler_release(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(draws_have_the_right_frequencies),
        cmocka_unit_test(top_p_keeps_the_smallest_set),
        cmocka_unit_test(equals_are_kept_by_id),
        cmocka_unit_test(the_kept_set_is_that_of_sorting),
        cmocka_unit_test(temperature_zero_takes_the_greatest),
        cmocka_unit_test(extreme_logits_are_no_problem),
        cmocka_unit_test(what_is_no_number_is_said),
        cmocka_unit_test(a_seed_repeats_itself),
        cmocka_unit_test(bad_options_get_a_sentence),
    };
    alloc = pl_alloc_system();
    return cmocka_run_group_tests_name("model sampler", tests, NULL, NULL);
}
