/* optim/merge.c - see merge.h. RDA passes twice over the contributions, once for the length of the mean
 * direction and once to write the result: that needs no memory of the slice's size and rounds to float only
 * once. */
#include "optim/merge.h"

#include "base/check.h"

#include <float.h>
#include <math.h>
#include <string.h>

_Static_assert(FLT_EVAL_METHOD == 0, "float and double must be evaluated in their own precision");

enum {
    LANES = 16,
    BLOCK = 32 * LANES, /* values blended at a time; a multiple of LANES, so that blocks do not move lanes */
};

struct lanes {
    double sum[LANES];
};

static double lanes_total(struct lanes *k)
{
    for (unsigned half = LANES / 2; half > 0; half /= 2)
        for (unsigned i = 0; i < half; i++)
            k->sum[i] += k->sum[i + half];
    return k->sum[0];
}

static void lanes_add_squares(struct lanes *k, const double *x, size_t n)
{
    for (size_t at = 0; at < n; at += LANES) {
        size_t len = n - at < LANES ? n - at : LANES;
        for (size_t i = 0; i < len; i++)
            k->sum[i] += x[at + i] * x[at + i];
    }
}

double pl_norm(const float *values, size_t n)
{
    struct lanes k = {{0}};
    double wide[BLOCK];
    for (size_t at = 0; at < n; at += BLOCK) {
        size_t len = n - at < BLOCK ? n - at : BLOCK;
        for (size_t i = 0; i < len; i++)
            wide[i] = (double)values[at + i];
        lanes_add_squares(&k, wide, len);
    }
    return sqrt(lanes_total(&k));
}

bool pl_all_finite(const float *values, size_t n)
{
    const uint32_t exponent = UINT32_C(0x7f800000);
    uint32_t found = 0; /* no early exit: the array is nearly always finite, and this loop vectorises */
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        found |= (bits & exponent) == exponent;
    }
    return found == 0;
}

double pl_merge_weight(uint64_t tokens, uint64_t steps)
{
    pl_assert(steps > 0);
    double t = (double)tokens;
    return t * t / (double)steps;
}

/* out[i] = sum over m of share[m] * delta_m[at + i], for one block. */
static void blend(const struct pl_contribution *c, const double *share, uint32_t count, size_t at, size_t len,
                  double out[static BLOCK])
{
    pl_assert(len <= BLOCK);
    memset(out, 0, BLOCK * sizeof out[0]);
    for (uint32_t m = 0; m < count; m++) {
        const float *v = c[m].delta + at;
        double s = share[m];
        for (size_t i = 0; i < len; i++)
            out[i] += s * (double)v[i];
    }
}

static void blend_to_float(const struct pl_contribution *c, const double *share, uint32_t count, size_t n,
                           double scale, float *out)
{
    double block[BLOCK];
    for (size_t at = 0; at < n; at += BLOCK) {
        size_t len = n - at < BLOCK ? n - at : BLOCK;
        blend(c, share, count, at, len, block);
        for (size_t i = 0; i < len; i++)
            out[at + i] = (float)(scale * block[i]);
    }
}

static double blend_norm(const struct pl_contribution *c, const double *share, uint32_t count, size_t n)
{
    struct lanes k = {{0}};
    double block[BLOCK];
    for (size_t at = 0; at < n; at += BLOCK) {
        size_t len = n - at < BLOCK ? n - at : BLOCK;
        blend(c, share, count, at, len, block);
        lanes_add_squares(&k, block, len);
    }
    return sqrt(lanes_total(&k));
}

/* share[m] = w_m / sum w. False when there is no weight at all. */
static bool share_by_weight(const struct pl_contribution *c, uint32_t count, double *share)
{
    double total = 0;
    for (uint32_t m = 0; m < count; m++) {
        share[m] = pl_merge_weight(c[m].tokens, c[m].steps);
        total += share[m];
    }
    if (!(total > 0))
        return false;
    for (uint32_t m = 0; m < count; m++)
        share[m] /= total;
    return true;
}

struct radial {
    double mean_norm;
    double directed; /* shares of the vectors that have a direction: 1 but for zero vectors */
};

/* Divides each share by its vector's norm, so that directions are blended. */
static struct radial share_by_direction(const struct pl_contribution *c, uint32_t count, size_t n,
                                        double *share)
{
    struct radial r = {0, 0};
    for (uint32_t m = 0; m < count; m++) {
        double norm = pl_norm(c[m].delta, n);
        r.mean_norm += share[m] * norm;
        if (norm > 0) {
            r.directed += share[m];
            share[m] /= norm;
        } else {
            share[m] = 0;
        }
    }
    return r;
}

/* What blended directions are multiplied by; 0 where they cancel or there is none. */
static double radial_scale(const struct pl_contribution *c, uint32_t count, size_t n, double *share)
{
    struct radial r = share_by_direction(c, count, n, share);
    double length = blend_norm(c, share, count, n);
    return length > 0 && length >= PL_MERGE_DIRECTION_MIN * r.directed ? r.mean_norm / length : 0;
}

void pl_merge(enum pl_merge_mode mode, const struct pl_contribution *contributions, uint32_t count, size_t n,
              double *share, float *out)
{
    pl_assert(mode == PL_MERGE_RDA || mode == PL_MERGE_MEAN);
    double scale = 0;
    if (share_by_weight(contributions, count, share))
        scale = mode == PL_MERGE_RDA ? radial_scale(contributions, count, n, share) : 1;
    if (scale > 0)
        blend_to_float(contributions, share, count, n, scale, out);
    else
        for (size_t i = 0; i < n; i++)
            out[i] = 0;
}
