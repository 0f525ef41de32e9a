/* optim/agree.c - see agree.h. */
#include "optim/agree.h"

#include "base/check.h"
#include "optim/merge_robust.h"

#include <math.h>
#include <string.h>

enum {
    LANES = 16,
    WINDOW = 96,  /* samples after which older ones fade */
    OUT_Z = -4,   /* standard errors below 0: it does not count any more */
    BACK_Z = -2,  /* it counts again */
    CHANCE_Z = 3, /* the jury's agreement, in standard deviations of a cosine of unrelated vectors */
};
#define SHARE 0.125  /* of the usual agreement is enough */
#define VAR_MIN 1e-6 /* of a sample: a cosine is not known better than to 0.001 */

size_t pl_agree_doubles(uint32_t count)
{
    return (size_t)count * (PL_AGREE_JURY + 1);
}

void pl_agree_begin(struct pl_agree *a, uint32_t count, const bool *out, double *memory)
{
    uint32_t good = 0, seen = 0;
    for (uint32_t i = 0; i < count; i++)
        good += out == NULL || !out[i] ? 1 : 0;
    *a = (struct pl_agree){.count = count, .dots = memory};
    a->jury_count = good < PL_AGREE_JURY ? good : PL_AGREE_JURY;
    a->squares = memory + (size_t)count * a->jury_count;
    uint32_t next = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (out != NULL && out[i])
            continue;
        /* Spread evenly over those in good standing. */
        if (next < a->jury_count && (uint64_t)seen * a->jury_count >= (uint64_t)next * good)
            a->jury[next++] = i;
        seen++;
    }
    pl_assert(next == a->jury_count);
    memset(a->dots, 0, (size_t)count * a->jury_count * sizeof *a->dots);
    memset(a->squares, 0, count * sizeof *a->squares);
}

static double dot(const float *x, const float *y, size_t len)
{
    float lane[LANES] = {0};
    double sum = 0;
    size_t whole = len - len % LANES;
    for (size_t at = 0; at < whole; at += LANES)
        for (size_t i = 0; i < LANES; i++)
            lane[i] += x[at + i] * y[at + i];
    for (size_t i = 0; i < LANES; i++)
        sum += (double)lane[i];
    for (size_t i = whole; i < len; i++)
        sum += (double)x[i] * (double)y[i];
    return sum;
}

void pl_agree_add(struct pl_agree *a, const float *rows, size_t stride, size_t len)
{
    for (uint32_t i = 0; i < a->count; i++) {
        const float *x = rows + i * stride;
        for (uint32_t k = 0; k < a->jury_count; k++)
            a->dots[(size_t)i * a->jury_count + k] += dot(x, rows + a->jury[k] * stride, len);
        a->squares[i] += dot(x, x, len);
    }
    a->values += len;
}

/* The median cosine of contribution i with the jury, itself left out; between the middle two of an even number. */
static double agreement(const struct pl_agree *a, uint32_t i)
{
    double cosines[PL_AGREE_JURY];
    uint32_t n = 0;
    for (uint32_t k = 0; k < a->jury_count; k++) {
        double lengths = sqrt(a->squares[i]) * sqrt(a->squares[a->jury[k]]);
        if (a->jury[k] != i && lengths > 0)
            cosines[n++] = a->dots[(size_t)i * a->jury_count + k] / lengths;
    }
    if (n == 0)
        return a->squares[i] > 0 ? (double)NAN : 0; /* who sends nothing agrees with nobody */
    double upper = pl_merge_median(cosines, n);
    return n % 2 == 1 ? upper : (cosines[n / 2 - 1] + upper) / 2;
}

bool pl_agree_end(const struct pl_agree *a, float *samples)
{
    double all[PL_AGREE_JURY];
    uint32_t n = 0;
    for (uint32_t i = 0; i < a->count; i++)
        samples[i] = NAN;
    if (a->jury_count < PL_AGREE_COUNT_MIN || a->values == 0)
        return false;
    for (uint32_t k = 0; k < a->jury_count; k++) {
        double v = agreement(a, a->jury[k]);
        if (!isnan(v))
            all[n++] = v;
    }
    if (n < PL_AGREE_COUNT_MIN)
        return false;
    double usual = pl_merge_median(all, n);
    if (n % 2 == 0)
        usual = (usual + all[n / 2 - 1]) / 2;
    if (usual < CHANCE_Z / sqrt((double)a->values))
        return false;
    for (uint32_t i = 0; i < a->count; i++)
        samples[i] = (float)(agreement(a, i) - SHARE * usual);
    return true;
}

double pl_trust_z(const struct pl_trust *t)
{
    if (t->samples < PL_TRUST_SAMPLES_MIN)
        return 0;
    return t->mean / sqrt(fmax(t->var, VAR_MIN) / t->samples);
}

bool pl_trust_add(struct pl_trust *t, float sample)
{
    const bool before = t->out;
    if (isnan(sample))
        return false;
    t->samples += t->samples < WINDOW ? 1 : 0;
    double off = (double)sample - t->mean, share = 1.0 / t->samples;
    t->mean += share * off;
    t->var = (1 - share) * (t->var + share * off * off);
    const double z = pl_trust_z(t);
    t->out = z < (before ? BACK_Z : OUT_Z);
    return t->out != before;
}
