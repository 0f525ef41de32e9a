/* optim/norm.c - see norm.h; the loop is in kernels.inc. */
#include "optim/norm.h"

#include "base/check.h"
#include "optim/kernels.h"

#include <math.h>

double pl_grad_sumsq(const float *g, size_t n)
{
    return pl_kernels()->sumsq(g, n);
}

float pl_grad_clip_scale(double norm, float max_norm)
{
    pl_assert(isfinite(norm) && norm >= 0 && max_norm >= 0);
    double scale = (double)max_norm / (norm + 1e-6);
    return max_norm > 0 && scale < 1 ? (float)scale : 1.0f;
}
