/* base/normal.c - see normal.h. Compiled without contraction, as all of base. */
#include "base/normal.h"

#include "base/check.h"

#include <string.h>

/* Where the tail begins, and the area of each layer, for 256 layers. */
static const double tail_start = 3.6541528853610088;
static const double layer_area = 0.00492867323399;
static const double ln2 = 0.69314718055994530942;

static double power_of_two(int e)
{
    pl_assert(e > -1023 && e < 1024);
    uint64_t bits = (uint64_t)(e + 1023) << 52;
    double v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

/* exp(-v) for v from 0 to 700: 2^-k times the series of the rest, which is below ln 2. */
static double exp_minus(double v)
{
    int k = (int)(v / ln2);
    double rest = k * ln2 - v, term = 1, sum = 1;
    for (int i = 1; i <= 18; i++) {
        term = term * rest / i;
        sum += term;
    }
    return sum * power_of_two(-k);
}

/* ln(v) for normal v > 0: exponent, and 2 atanh((m-1)/(m+1)) of the mantissa. */
static double ln(double v)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    int e = (int)(bits >> 52) - 1023;
    double m = v / power_of_two(e); /* 1 to 2 */
    double z = (m - 1) / (m + 1), zz = z * z, power = z, sum = z;
    for (int i = 3; i <= 35; i += 2) {
        power *= zz;
        sum += power / i;
    }
    return e * ln2 + 2 * sum;
}

/* Newton's method from above: it falls until rounding stops it. */
static double root(double v)
{
    double s = v > 1 ? v : 1, next = (s + v / s) / 2;
    while (next < s) {
        s = next;
        next = (s + v / s) / 2;
    }
    return s;
}

void pl_normal_init(struct pl_normal *n)
{
    double y = exp_minus(tail_start * tail_start / 2);
    n->x[0] = layer_area / y;
    n->y[0] = 0;
    n->x[1] = tail_start;
    n->y[1] = y;
    for (int i = 2; i < PL_NORMAL_LAYERS; i++) {
        n->y[i] = n->y[i - 1] + layer_area / n->x[i - 1];
        n->x[i] = root(-2 * ln(n->y[i]));
    }
    n->x[PL_NORMAL_LAYERS] = 0;
    n->y[PL_NORMAL_LAYERS] = 1;
}

/* Uniform in (0, 1]. */
static double uniform(struct pl_prng *r)
{
    return (double)((pl_prng_next(r) >> 11) + 1) * 0x1p-53;
}

/* Marsaglia's method for what lies beyond the base's edge. */
static double tail(struct pl_prng *r)
{
    double x, y;
    do {
        x = -ln(uniform(r)) / tail_start;
        y = -ln(uniform(r));
    } while (2 * y <= x * x);
    return tail_start + x;
}

double pl_normal_next(const struct pl_normal *n, struct pl_prng *r)
{
    for (;;) {
        uint64_t bits = pl_prng_next(r);
        unsigned layer = bits & (PL_NORMAL_LAYERS - 1);
        double sign = (bits & PL_NORMAL_LAYERS) != 0 ? -1.0 : 1.0;
        double x = (double)(bits >> 11) * 0x1p-53 * n->x[layer];
        if (x < n->x[layer + 1])
            return sign * x;
        if (layer == 0)
            return sign * tail(r);
        double y = n->y[layer] + uniform(r) * (n->y[layer + 1] - n->y[layer]);
        if (y < exp_minus(x * x / 2))
            return sign * x;
    }
}
