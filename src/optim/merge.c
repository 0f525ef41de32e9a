/* optim/merge.c - see merge.h: weights, directions, and chunks handed to a pool; the loops are in merge_kernels.inc.
 *
 * RDA reads the contributions twice: for their norms, and to blend their directions into out, whose norm is taken on
 * the way; then out alone is scaled. Chunks are worked on in waves, so that the sums that wait to be added in order
 * need little memory.
 */
#include "optim/merge.h"

#include "base/check.h"
#include "optim/merge_kernels.h"
#include "optim/merge_robust.h"

#include <float.h>
#include <math.h>
#include <string.h>

_Static_assert(FLT_EVAL_METHOD == 0, "float and double must be evaluated in their own precision");

enum {
    WAVE = 64,     /* chunks of a wave */
    FAR = 1 << 18, /* values of a result that no cache keeps until somebody reads it */
    CHUNK_BLOCKS = PL_MERGE_CHUNK / PL_MERGE_BLOCK,
    PIECE = PL_CODEC_CHUNK, /* values of the result that are still near when their squares are summed */
};

struct job {
    const struct pl_merge_kernels *k;
    struct pl_merge_input in;
    size_t n;
    struct pl_pool *pool;
    const struct pl_merge_work *work;
    double total;   /* of the weights */
    double *share;  /* [count] rounded to float */
    double *norm;   /* [count] squared at first */
    double *sums;   /* [WAVE * count] of the wave's chunks */
    size_t wave;    /* its first chunk */
    uint32_t tasks; /* its chunks */
    double factor;
    float *out;
};

size_t pl_merge_scratch(uint32_t count)
{
    return (size_t)count * (2 + WAVE);
}

size_t pl_merge_scratch_of(enum pl_merge_mode mode, uint32_t count, const struct pl_pool *pool)
{
    size_t simple = pl_merge_scratch(count), robust = count + pl_merge_robust_scratch(mode, count, pool);
    return robust > simple ? robust : simple;
}

double pl_merge_median(double *values, uint32_t n)
{
    pl_assert(n > 0);
    for (uint32_t i = 1; i < n; i++) {
        double v = values[i];
        uint32_t at = i;
        for (; at > 0 && values[at - 1] > v; at--)
            values[at] = values[at - 1];
        values[at] = v;
    }
    return values[n / 2];
}

static size_t chunks(size_t n)
{
    return n / PL_MERGE_CHUNK + (n % PL_MERGE_CHUNK != 0);
}

static size_t chunk_len(const struct job *j, size_t chunk)
{
    size_t left = j->n - chunk * PL_MERGE_CHUNK;
    return left < PL_MERGE_CHUNK ? left : PL_MERGE_CHUNK;
}

/* Runs fn for every chunk, and done, where not NULL, after every wave. */
static void for_chunks(struct job *j, pl_pool_fn *fn, void (*done)(struct job *j))
{
    const size_t all = chunks(j->n);
    for (j->wave = 0; j->wave < all; j->wave += WAVE) {
        j->tasks = all - j->wave < WAVE ? (uint32_t)(all - j->wave) : WAVE;
        if (j->pool != NULL)
            pl_pool_run(j->pool, j->tasks, fn, j);
        for (uint32_t t = 0; j->pool == NULL && t < j->tasks; t++)
            fn(j, t, 0);
        if (done != NULL)
            done(j);
    }
}

static void norms_task(void *user, uint32_t task, uint32_t thread)
{
    (void)thread;
    struct job *j = user;
    size_t chunk = j->wave + task;
    j->k->norms(&j->in, chunk * CHUNK_BLOCKS, chunk_len(j, chunk), j->sums + (size_t)task * j->in.count);
}

static void norms_done(struct job *j)
{
    for (size_t t = 0; t < j->tasks; t++)
        for (uint32_t m = 0; m < j->in.count; m++)
            j->norm[m] += j->sums[t * j->in.count + m];
}

static void blend_task(void *user, uint32_t task, uint32_t thread)
{
    (void)thread;
    struct job *j = user;
    size_t chunk = j->wave + task, at = chunk * PL_MERGE_CHUNK;
    (j->n < FAR ? j->k->blend : j->k->blend_far)(&j->in, j->share, chunk * CHUNK_BLOCKS, chunk_len(j, chunk),
                                                 j->out + at);
}

/* Backwards through the wave: what the norms read last is still in a cache. */
static void direction_task(void *user, uint32_t task, uint32_t thread)
{
    (void)thread;
    struct job *j = user;
    const uint32_t turned = j->tasks - 1 - task;
    size_t chunk = j->wave + turned, at = chunk * PL_MERGE_CHUNK, end = at + chunk_len(j, chunk);
    double sum = 0;
    for (; at < end; at += PIECE) {
        size_t len = end - at < PIECE ? end - at : PIECE;
        j->k->blend(&j->in, j->share, at / PL_MERGE_BLOCK, len, j->out + at);
        sum = j->k->sumsq((struct pl_merge_view){0, (const uint8_t *)(j->out + at)}, len, sum);
    }
    j->sums[turned] = sum;
}

static void direction_done(struct job *j)
{
    for (size_t t = 0; t < j->tasks; t++)
        j->norm[0] += j->sums[t];
}

static void scale_task(void *user, uint32_t task, uint32_t thread)
{
    (void)thread;
    struct job *j = user;
    size_t chunk = j->wave + task;
    j->k->scale(j->factor, chunk_len(j, chunk), j->out + chunk * PL_MERGE_CHUNK);
}

double pl_merge_weight(uint64_t tokens, uint64_t steps)
{
    pl_assert(steps > 0);
    double t = (double)tokens;
    return t * t / (double)steps;
}

static double weight(const struct job *j, uint32_t m)
{
    if (j->work->weights != NULL)
        return j->work->weights[m];
    return j->in.floats != NULL ? pl_merge_weight(j->in.floats[m].tokens, j->in.floats[m].steps)
                                : pl_merge_weight(j->in.encoded[m].tokens, j->in.encoded[m].steps);
}

/* w_m / sum w */
static double share_of(const struct job *j, uint32_t m)
{
    return weight(j, m) / j->total;
}

static void share_by_weight(struct job *j)
{
    for (uint32_t m = 0; m < j->in.count; m++)
        j->share[m] = (double)(float)share_of(j, m);
}

static void take_norms(struct job *j)
{
    memset(j->norm, 0, j->in.count * sizeof *j->norm);
    for_chunks(j, norms_task, norms_done);
    for (uint32_t m = 0; m < j->in.count; m++)
        j->norm[m] = sqrt(j->norm[m]);
}

/* Of those that weigh something, of which there is one; the sums of waves are not in use. */
static double median_norm(struct job *j)
{
    uint32_t n = 0;
    for (uint32_t m = 0; m < j->in.count; m++)
        if (weight(j, m) > 0)
            j->sums[n++] = j->norm[m];
    return pl_merge_median(j->sums, n);
}

/* How long vector m counts as; `usual` is the median norm where there is a reach. */
static double counted_norm(const struct job *j, uint32_t m, double usual)
{
    return j->work->reach != NULL ? fmin(j->norm[m], j->work->reach[m] * usual) : j->norm[m];
}

/* The shares of directions, which add up to 1 over the vectors that have one. Returns the mean norm. */
static double share_by_direction(struct job *j)
{
    double mean_norm = 0, directed = 0;
    take_norms(j);
    const double usual = j->work->reach != NULL ? median_norm(j) : 0;
    for (uint32_t m = 0; m < j->in.count; m++) {
        mean_norm += share_of(j, m) * counted_norm(j, m, usual);
        directed += j->norm[m] >= PL_MERGE_LENGTH_MIN ? share_of(j, m) : 0;
    }
    for (uint32_t m = 0; m < j->in.count; m++) {
        bool has_one = j->norm[m] >= PL_MERGE_LENGTH_MIN && directed > 0;
        j->share[m] = has_one ? (double)(float)(share_of(j, m) / directed / j->norm[m]) : 0;
    }
    return mean_norm;
}

static void merge_radial(struct job *j)
{
    double mean_norm = share_by_direction(j);
    j->norm[0] = 0;
    for_chunks(j, direction_task, direction_done);
    double length = sqrt(j->norm[0]);
    if (length >= PL_MERGE_DIRECTION_MIN) {
        j->factor = mean_norm / length;
        if (j->work->length > 0)
            j->factor *= j->work->length;
        for_chunks(j, scale_task, NULL);
    } else {
        memset(j->out, 0, j->n * sizeof *j->out);
    }
}

/* The weighted mean of vectors that are shortened to their reach, or all made as long as the median one. */
static void merge_levelled(struct job *j, bool all_alike)
{
    take_norms(j);
    const double usual = median_norm(j), shortest = fmax(PL_MERGE_LENGTH_MIN, usual * PL_MERGE_DIRECTION_MIN);
    for (uint32_t m = 0; m < j->in.count; m++) {
        double want = all_alike ? usual : counted_norm(j, m, usual);
        bool as_it_is = all_alike ? j->norm[m] < shortest : want >= j->norm[m];
        j->share[m] = (double)(float)(as_it_is ? share_of(j, m) : share_of(j, m) * (want / j->norm[m]));
    }
    for_chunks(j, blend_task, NULL);
}

static void merge_plain(struct job *j)
{
    share_by_weight(j);
    for_chunks(j, blend_task, NULL);
}

static void merge_as(enum pl_merge_mode mode, struct job *j)
{
    switch (mode) {
    case PL_MERGE_RDA:
        merge_radial(j);
        break;
    case PL_MERGE_MEAN:
        if (j->work->reach != NULL)
            merge_levelled(j, false);
        else
            merge_plain(j);
        break;
    case PL_MERGE_MEDIAN:
        merge_levelled(j, true);
        break;
    case PL_MERGE_TRIMMED:
    case PL_MERGE_CLIPPED:
        for (uint32_t m = 0; m < j->in.count; m++)
            j->share[m] = share_of(j, m);
        pl_merge_robust(mode, &(struct pl_merge_robust){.in = &j->in,
                                                        .n = j->n,
                                                        .pool = j->pool,
                                                        .share = j->share,
                                                        .scratch = j->norm,
                                                        .trim = j->work->trim,
                                                        .out = j->out});
        break;
    }
}

static void merge(enum pl_merge_mode mode, struct job *j, const struct pl_merge_work *work)
{
    j->k = pl_merge_kernels();
    j->work = work;
    j->pool = j->n > PL_MERGE_CHUNK ? work->pool : NULL;
    j->share = work->scratch;
    j->norm = j->share + j->in.count;
    j->sums = j->norm + j->in.count;
    for (uint32_t m = 0; m < j->in.count; m++)
        j->total += weight(j, m);
    if (j->n == 0)
        return;
    if (!(j->total > 0)) {
        memset(j->out, 0, j->n * sizeof *j->out);
    } else {
        merge_as(mode, j);
    }
}

void pl_merge(enum pl_merge_mode mode, const struct pl_contribution *contributions, uint32_t count, size_t n,
              const struct pl_merge_work *work, float *out)
{
    struct job j = {.in = {contributions, NULL, count}, .n = n, .out = out};
    merge(mode, &j, work);
}

void pl_merge_encoded(enum pl_merge_mode mode, const struct pl_encoded_part *parts, uint32_t count, size_t n,
                      const struct pl_merge_work *work, float *out)
{
    struct job j = {.in = {NULL, parts, count}, .n = n, .out = out};
    merge(mode, &j, work);
}

double pl_norm(const float *values, size_t n)
{
    const struct pl_merge_kernels *k = pl_merge_kernels();
    double sum = 0;
    for (size_t at = 0; at < n; at += PL_MERGE_CHUNK) {
        size_t len = n - at < PL_MERGE_CHUNK ? n - at : PL_MERGE_CHUNK;
        sum += k->sumsq((struct pl_merge_view){0, (const uint8_t *)(values + at)}, len, 0);
    }
    return sqrt(sum);
}

bool pl_all_finite(const float *values, size_t n)
{
    return pl_codec_kernels()->top(values, n) < 0x7f800000u;
}
