/* model/sampler.c - see sampler.h.
 *
 * With fifty thousand tokens a sort would take as long as a good part of the model's pass, so nothing is sorted: the
 * candidates are split around one of them, as quicksort does, and only the side in which the limit lies is split again.
 */
#include "model/sampler.h"

#include "base/check.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum pelago_status pl_sampler_options_check(const struct pl_sampler_options *o, struct pl_error *err)
{
    if (!(o->temperature == 0 || (o->temperature >= 0.01 && o->temperature <= 100)))
        return pl_fail(err, PELAGO_INVALID,
                       "the temperature must be 0 (always the likeliest) or from 0.01 to 100");
    if (!(o->top_p >= 0 && o->top_p <= 1))
        return pl_fail(err, PELAGO_INVALID, "top-p must be from 0 to 1");
    if (!(o->min_p >= 0 && o->min_p <= 1))
        return pl_fail(err, PELAGO_INVALID, "min-p must be from 0 to 1");
    return PELAGO_OK;
}

enum pelago_status pl_sampler_init(struct pl_sampler *s, const struct pl_alloc *alloc, uint32_t vocab,
                                   const struct pl_sampler_options *options, struct pl_error *err)
{
    pl_assert(vocab > 0);
    *s = (struct pl_sampler){.alloc = *alloc, .options = *options, .vocab = vocab};
    PL_TRY(pl_sampler_options_check(options, err));
    s->weights = pl_alloc_zero(alloc, vocab, sizeof *s->weights);
    s->candidates = pl_alloc_zero(alloc, vocab, sizeof *s->candidates);
    if (s->weights == NULL || s->candidates == NULL) {
        pl_sampler_release(s);
        return pl_fail(err, PELAGO_NOMEM, "there is no memory for %u candidates", vocab);
    }
    pl_sampler_seed(s, 0, 0);
    return PELAGO_OK;
}

void pl_sampler_release(struct pl_sampler *s)
{
    pl_alloc_free(&s->alloc, s->weights, s->vocab * sizeof *s->weights);
    pl_alloc_free(&s->alloc, s->candidates, s->vocab * sizeof *s->candidates);
    s->weights = NULL;
    s->candidates = NULL;
}

void pl_sampler_seed(struct pl_sampler *s, uint64_t seed, uint64_t stream)
{
    pl_prng_seed(&s->random, seed, stream);
}

/* Uniform in [0, 1). */
static double unit(struct pl_prng *r)
{
    return (double)(pl_prng_next(r) >> 11) * 0x1p-53;
}

/* The greatest. Several at a time, because the compiler may not change the order of comparisons by itself. */
static float greatest(const float *logits, uint32_t count)
{
    enum { LANES = 8 };
    float top[LANES];
    uint32_t i = 0;
    for (uint32_t j = 0; j < LANES; j++)
        top[j] = -INFINITY;
    for (; i + LANES <= count; i += LANES)
        for (uint32_t j = 0; j < LANES; j++)
            top[j] = logits[i + j] > top[j] ? logits[i + j] : top[j];
    for (; i < count; i++)
        top[0] = logits[i] > top[0] ? logits[i] : top[0];
    for (uint32_t j = 1; j < LANES; j++)
        top[0] = top[j] > top[0] ? top[j] : top[0];
    return top[0];
}

/* False where one is NaN or plus infinity, or none is above minus infinity. */
static bool are_numbers(const float *logits, uint32_t count, float max)
{
    uint32_t good = 0;
    for (uint32_t i = 0; i < count; i++)
        good += logits[i] <= FLT_MAX;
    return good == count && max >= -FLT_MAX;
}

/* e^x for x <= 0, relative error below 1e-5, 0 below -87; without a branch or a call, so that the compiler makes vectors
 * of it. x is n ln 2 + r with n the nearest whole number, and 2^n goes straight into the exponent. */
static inline float exp_negative(float x)
{
    float y = x > -87.0f ? x : -87.0f;
    int32_t n = (int32_t)(y * 1.44269504f - 0.5f);
    float r = y - (float)n * 0.693147182f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    int32_t bits = (n + 127) << 23;
    float power;
    memcpy(&power, &bits, sizeof power);
    return x > -87.0f ? p * power : 0.0f;
}

/* Weights of all tokens, the greatest 1; returns their sum. */
static double fill_weights(float *weights, const float *logits, uint32_t count, float max, float by)
{
    double sum = 0;
    for (uint32_t i = 0; i < count; i++)
        weights[i] = exp_negative((logits[i] - max) * by);
    for (uint32_t i = 0; i < count; i++)
        sum += (double)weights[i];
    return sum;
}

static uint32_t pick_greatest(const float *logits, uint32_t count, float max)
{
    uint32_t i = 0;
    while (i + 1 < count && logits[i] != max)
        i++;
    return i;
}

/* ---- choosing the likeliest without sorting ---- */

/* A candidate is one number: the bits of its weight, which grow with it because it is positive, and below them the
 * inverse of its id. The likelier of two is the greater one, and no two are equal. */
static uint64_t candidate_of(float weight, uint32_t id)
{
    uint32_t bits;
    memcpy(&bits, &weight, sizeof bits);
    return (uint64_t)bits << 32 | (UINT32_MAX - id);
}

static double weight_of(uint64_t candidate)
{
    uint32_t bits = (uint32_t)(candidate >> 32);
    float weight;
    memcpy(&weight, &bits, sizeof weight);
    return (double)weight;
}

static uint32_t id_of(uint64_t candidate)
{
    return UINT32_MAX - (uint32_t)candidate;
}

static void swap(uint64_t *a, uint64_t *b)
{
    uint64_t t = *a;
    *a = *b;
    *b = t;
}

/* Puts the middle one of three at lo. */
static void choose_pivot(uint64_t *c, uint32_t lo, uint32_t hi)
{
    uint64_t *a = &c[lo], *b = &c[lo + (hi - lo) / 2], *d = &c[hi - 1];
    if (*b > *a)
        swap(a, b);
    if (*d > *b)
        swap(b, d);
    if (*b > *a)
        swap(a, b);
    swap(a, b);
}

/* Puts those of [lo, hi) that are likelier than the pivot in front of it; returns where it is, and their sum. Every one
 * is swapped, because half the guesses of a branch would be wrong. */
static uint32_t split(uint64_t *c, uint32_t lo, uint32_t hi, double *sum)
{
    choose_pivot(c, lo, hi);
    const uint64_t pivot = c[lo];
    uint32_t end = lo + 1;
    for (uint32_t i = end; i < hi; i++) {
        uint64_t x = c[i];
        c[i] = c[end];
        c[end] = x;
        end += x > pivot ? 1 : 0;
    }
    end--;
    swap(&c[lo], &c[end]);
    *sum = 0;
    for (uint32_t i = lo; i < end; i++)
        *sum += weight_of(c[i]);
    return end;
}

/* Moves the likeliest to the front, as few as are `count` or weigh `mass` (both above 0), or all. Returns how many. */
static uint32_t keep_likeliest(uint64_t *c, uint32_t n, uint32_t count, double mass)
{
    uint32_t lo = 0, hi = n;
    double kept = 0, sum;
    while (lo < hi) { /* those before lo stay and are too few, those up to hi are enough or all */
        uint32_t pivot = split(c, lo, hi, &sum);
        if (pivot >= count || kept + sum >= mass) {
            hi = pivot;
            continue;
        }
        kept += sum + weight_of(c[pivot]);
        lo = pivot + 1;
        if (lo >= count || kept >= mass)
            return lo;
    }
    return lo;
}

/* ---- drawing ---- */

static uint32_t draw_from_all(struct pl_sampler *s, double sum)
{
    double at = unit(&s->random) * sum;
    uint32_t last = 0;
    for (uint32_t i = 0; i < s->vocab; i++) {
        if (s->weights[i] <= 0)
            continue;
        last = i;
        at -= (double)s->weights[i];
        if (at < 0)
            break;
    }
    return last;
}

static double sum_of(const uint64_t *c, uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += weight_of(c[i]);
    return sum;
}

static uint32_t draw(struct pl_prng *random, const uint64_t *c, uint32_t n)
{
    double at = unit(random) * sum_of(c, n);
    uint32_t i = 0;
    for (; i + 1 < n; i++) {
        at -= weight_of(c[i]);
        if (at < 0)
            break;
    }
    return id_of(c[i]);
}

/* Candidates are the tokens that may be among the likeliest at all: with top_p alone those that weigh less than their
 * share of what may be left out cannot be, and they are most of them. */
static uint32_t fill_candidates(struct pl_sampler *s, double sum)
{
    const struct pl_sampler_options *o = &s->options;
    float least = FLT_MIN;
    uint32_t n = 0;
    if (o->top_k == 0)
        least = fmaxf(least, (float)((1 - o->top_p) * 0.999 * sum / s->vocab));
    for (uint32_t i = 0; i < s->vocab; i++) {
        s->candidates[n] = candidate_of(s->weights[i], i);
        n += s->weights[i] >= least ? 1 : 0;
    }
    return n;
}

static uint32_t drop_below(uint64_t *c, uint32_t n, double least)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++)
        if (weight_of(c[i]) >= least)
            c[kept++] = c[i];
    return kept;
}

uint32_t pl_sampler_pick(struct pl_sampler *s, const float *logits)
{
    const struct pl_sampler_options *o = &s->options;
    float max = greatest(logits, s->vocab);
    if (!are_numbers(logits, s->vocab, max))
        return PL_NONE32;
    if (o->temperature == 0)
        return pick_greatest(logits, s->vocab, max);
    double sum = fill_weights(s->weights, logits, s->vocab, max, (float)(1 / o->temperature));
    if (o->top_k == 0 && o->top_p >= 1 && o->min_p <= 0)
        return draw_from_all(s, sum);
    uint32_t n = fill_candidates(s, sum);
    if (o->top_k > 0) {
        n = keep_likeliest(s->candidates, n, o->top_k, (double)INFINITY);
        sum = sum_of(s->candidates, n);
    }
    if (o->top_p < 1)
        n = keep_likeliest(s->candidates, n, PL_NONE32, fmax(o->top_p * sum, DBL_MIN));
    if (o->min_p > 0)
        n = drop_below(s->candidates, n, o->min_p);
    pl_assert(n > 0);
    return draw(&s->random, s->candidates, n);
}
