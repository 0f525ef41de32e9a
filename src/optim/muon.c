/* optim/muon.c - see muon.h. Transposing goes by tiles, so that both sides stay in the cache. */
#include "optim/muon.h"

#include "base/check.h"
#include "base/num.h"
#include "optim/kernels.h"

#include <math.h>
#include <string.h>

enum {
    ITERATIONS = 5,
    TILE = 64,   /* rows and columns transposed at a time */
    BLOCK = 512, /* values of u made at a time */
    POLY_ROWS = 32,
};

static const float coefficient_a = 3.4445f, coefficient_b = -4.7750f, coefficient_c = 2.0315f;

static bool is_tall(const struct pl_muon_step *s)
{
    return s->rows > s->cols;
}

struct pl_muon_step pl_muon_step(uint32_t rows, uint32_t cols, float momentum, float lr, float weight_decay,
                                 float grad_scale)
{
    pl_assert(rows > 0 && cols > 0 && momentum >= 0 && momentum < 1);
    pl_assert(lr >= 0 && weight_decay >= 0 && isfinite(lr) && isfinite(weight_decay) && isfinite(grad_scale));
    return (struct pl_muon_step){
        .rows = rows,
        .cols = cols,
        .momentum = momentum,
        .grad_scale = grad_scale,
        .keep = (float)(1 - (double)lr * (double)weight_decay),
        .step_size = (float)((double)lr * 0.2 * sqrt((double)pl_max32(rows, cols))),
    };
}

/* The share of the raw gradient in momentum and direction. */
static float grad_share(const struct pl_muon_step *s)
{
    return (1.0f - s->momentum) * s->grad_scale;
}

double pl_muon_momentum(const struct pl_muon_step *s, float *m, const float *g, size_t n)
{
    const struct pl_kernels *k = pl_kernels();
    const float share = grad_share(s);
    float u[BLOCK];
    double sum = 0;
    for (size_t at = 0; at < n; at += BLOCK) {
        size_t len = n - at < BLOCK ? n - at : BLOCK;
        k->blend(m + at, s->momentum, m + at, share, g + at, len);
        k->blend(u, s->momentum, m + at, share, g + at, len);
        sum += k->sumsq(u, len);
    }
    return sum;
}

float pl_muon_scale(double norm)
{
    pl_assert(isfinite(norm) && norm >= 0);
    return (float)(1 / fmax(norm, 1e-7));
}

/* A square of a matrix that is being transposed. Between tile and matrix whole rows are copied, so that memory sees
 * lines and not single values: the columns of a matrix lie kilobytes apart. */
struct tile {
    float at[TILE][TILE];
};

static void turn(struct tile *out, const struct tile *in)
{
    for (int i = 0; i < TILE; i++)
        for (int j = 0; j < TILE; j++)
            out->at[i][j] = in->at[j][i];
}

/* How much of a tile lies in the matrix and above row end. */
struct extent {
    uint32_t high, broad;
};

static struct extent extent_of(const struct pl_muon_step *s, uint32_t top, uint32_t end, uint32_t left)
{
    return (struct extent){pl_min32(TILE, end - top), pl_min32(TILE, s->cols - left)};
}

void pl_muon_direction(const struct pl_muon_step *s, const float *m, const float *g, uint32_t row0,
                       uint32_t rows, float scale, float *x)
{
    pl_assert(row0 <= s->rows && rows <= s->rows - row0);
    const struct pl_kernels *k = pl_kernels();
    const float of_m = s->momentum * scale, of_g = grad_share(s) * scale;
    if (!is_tall(s)) {
        size_t at = (size_t)row0 * s->cols;
        k->blend(x + at, of_m, m + at, of_g, g + at, (size_t)rows * s->cols);
        return;
    }
    struct tile lying = {{{0}}}, standing;
    for (uint32_t top = row0; top < row0 + rows; top += TILE)
        for (uint32_t left = 0; left < s->cols; left += TILE) {
            struct extent here = extent_of(s, top, row0 + rows, left);
            for (uint32_t i = 0; i < here.high; i++) {
                size_t at = (size_t)(top + i) * s->cols + left;
                k->blend(lying.at[i], of_m, m + at, of_g, g + at, here.broad);
            }
            turn(&standing, &lying);
            for (uint32_t j = 0; j < here.broad; j++)
                memcpy(x + (size_t)(left + j) * s->rows + top, standing.at[j], here.high * sizeof(float));
        }
}

void pl_muon_apply(const struct pl_muon_step *s, float *p, const float *x, uint32_t row0, uint32_t rows)
{
    pl_assert(row0 <= s->rows && rows <= s->rows - row0);
    const struct pl_kernels *k = pl_kernels();
    if (!is_tall(s)) {
        size_t at = (size_t)row0 * s->cols;
        k->blend(p + at, s->keep, p + at, -s->step_size, x + at, (size_t)rows * s->cols);
        return;
    }
    struct tile lying, standing = {{{0}}};
    for (uint32_t top = row0; top < row0 + rows; top += TILE)
        for (uint32_t left = 0; left < s->cols; left += TILE) {
            struct extent here = extent_of(s, top, row0 + rows, left);
            for (uint32_t j = 0; j < here.broad; j++)
                memcpy(standing.at[j], x + (size_t)(left + j) * s->rows + top, here.high * sizeof(float));
            turn(&lying, &standing);
            for (uint32_t i = 0; i < here.high; i++) {
                float *row = p + (size_t)(top + i) * s->cols + left;
                k->blend(row, s->keep, row, -s->step_size, lying.at[i], here.broad);
            }
        }
}

uint64_t pl_muon_scratch_floats(uint32_t rows, uint32_t cols)
{
    uint64_t r = pl_min32(rows, cols), c = pl_max32(rows, cols);
    return 2 * r * c + 2 * r * r;
}

/* The Newton-Schulz polynomial of a = x x^T, (r, r), in place: a + b A + c A^2, where square = A^2. */
struct polynomial {
    float *a;
    const float *square;
    uint32_t r;
};

static void polynomial_rows(void *user, uint32_t task, uint32_t thread)
{
    (void)thread;
    const struct polynomial *k = user;
    uint32_t first = task * POLY_ROWS, end = pl_min32(first + POLY_ROWS, k->r);
    size_t at = (size_t)first * k->r, n = (size_t)(end - first) * k->r;
    pl_kernels()->blend(k->a + at, coefficient_b, k->a + at, coefficient_c, k->square + at, n);
    for (size_t row = first; row < end; row++)
        k->a[row * k->r + row] += coefficient_a;
}

const float *pl_muon_orthogonalize(const struct pl_muon_step *s, const struct pl_muon_math *math,
                                   struct pl_pool *pool, float *scratch)
{
    const uint32_t r = pl_min32(s->rows, s->cols), c = pl_max32(s->rows, s->cols);
    const float poly[3] = {coefficient_a, coefficient_b, coefficient_c};
    if (math->polynomial != NULL && math->polynomial(math->self, scratch, r, c, poly, ITERATIONS))
        return scratch;
    float *x = scratch, *next = x + (size_t)r * c, *a = next + (size_t)r * c, *square = a + (size_t)r * r;
    for (int i = 0; i < ITERATIONS; i++) {
        math->matmul(math->self, a, x, x, r, r, c, true);
        math->matmul(math->self, square, a, a, r, r, r, true); /* a is symmetric */
        struct polynomial k = {a, square, r};
        pl_pool_run(pool, (r + POLY_ROWS - 1) / POLY_ROWS, polynomial_rows, &k);
        math->matmul(math->self, next, a, x, r, c, r, false);
        float *done = x;
        x = next;
        next = done;
    }
    return x;
}
