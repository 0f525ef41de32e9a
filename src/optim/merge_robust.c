/* optim/merge_robust.c - trimmed mean and centred clipping; see merge_robust.h and merge.h.
 *
 * Centred clipping (Karimireddy, He, Jaggi 2021) wants a centre to begin with and a radius. Both come from the round
 * itself: the centre from zero in three steps, the radius as the median distance, so that there is nothing to remember
 * and nothing to tune.
 */
#include "optim/merge_robust.h"

#include "base/check.h"
#include "codec/kernels.h"

#include <math.h>
#include <string.h>

enum {
    WAVE = 64, /* chunks whose sums wait to be added in order */
    CHUNK_BLOCKS = PL_MERGE_CHUNK / PL_MERGE_BLOCK,
    LANES = 16,
    ROUNDS = 3,                            /* of the centre */
    TRIM_DOUBLES = PL_MERGE_BLOCK / 2 + 2, /* of a contribution: a block of floats, a value, a number */
};

struct job {
    const struct pl_merge_robust *how;
    uint32_t count;
    double *factor; /* [count] CLIPPED: share times how much of the way to its vector the centre goes */
    double *far;    /* [count] squared distances at first */
    double *sums;   /* [WAVE * count] */
    double *rooms;  /* TRIMMED: [threads][count * TRIM_DOUBLES] */
    uint32_t drop;  /* TRIMMED: at either end, of those that weigh something */
    size_t wave;
    uint32_t tasks;
};

size_t pl_merge_robust_scratch(enum pl_merge_mode mode, uint32_t count, const struct pl_pool *pool)
{
    uint32_t threads = pool != NULL ? pl_pool_threads(pool) : 1;
    if (mode == PL_MERGE_CLIPPED)
        return (size_t)count * (2 + WAVE);
    return mode == PL_MERGE_TRIMMED ? (size_t)threads * count * TRIM_DOUBLES : 0;
}

static void for_chunks(struct job *j, pl_pool_fn *fn, void (*done)(struct job *j))
{
    const size_t all = (j->how->n + PL_MERGE_CHUNK - 1) / PL_MERGE_CHUNK;
    for (j->wave = 0; j->wave < all; j->wave += WAVE) {
        j->tasks = all - j->wave < WAVE ? (uint32_t)(all - j->wave) : WAVE;
        if (j->how->pool != NULL)
            pl_pool_run(j->how->pool, j->tasks, fn, j);
        for (uint32_t t = 0; j->how->pool == NULL && t < j->tasks; t++)
            fn(j, t, 0);
        if (done != NULL)
            done(j);
    }
}

/* Values of a block: all, or what is left of the slice. */
static size_t block_len(const struct job *j, size_t block)
{
    size_t left = j->how->n - block * PL_MERGE_BLOCK;
    return left < PL_MERGE_BLOCK ? left : PL_MERGE_BLOCK;
}

/* One past the last block of a chunk. */
static size_t end_block(const struct job *j, size_t chunk)
{
    size_t all = (j->how->n + PL_MERGE_BLOCK - 1) / PL_MERGE_BLOCK, end = (chunk + 1) * CHUNK_BLOCKS;
    return end < all ? end : all;
}

/* Of a top-k, only whole chunks can be read: a block is cut from its own. */
static void read_from_chunk(const struct job *j, uint32_t m, size_t block, size_t len, float *x)
{
    float chunk[PL_CODEC_CHUNK];
    const struct pl_encoded_part *part = &j->how->in->encoded[m];
    const size_t at = block * PL_MERGE_BLOCK, begin = at - at % PL_CODEC_CHUNK, left = j->how->n - begin;
    pl_codec_decode(part->codec, part->bytes + pl_codec_bytes(part->codec, begin),
                    left < PL_CODEC_CHUNK ? left : PL_CODEC_CHUNK, chunk);
    memcpy(x, chunk + (at - begin), len * sizeof *x);
}

static void read_block(const struct job *j, uint32_t m, size_t block, size_t len, float *x)
{
    const struct pl_merge_input *in = j->how->in;
    if (in->floats == NULL && pl_codec_is_topk((uint32_t)in->encoded[m].codec)) {
        read_from_chunk(j, m, block, len, x);
        return;
    }
    struct pl_merge_view v = pl_merge_view(in, m, block);
    if (v.codec == 0)
        memcpy(x, v.bytes, len * sizeof *x);
    else
        pl_codec_decode((enum pl_codec)v.codec, v.bytes, len, x);
}

/* ---- trimmed mean ---- */

/* What one thread works with. */
struct trimming {
    double *values;  /* [count] of one value, sorted */
    uint32_t *order; /* [count] whose they are */
    float *room;     /* [count][PL_MERGE_BLOCK] */
};

/* How many are left out at either end. A share such as 0.35 is a little less as a float, and 0.35 of 20 would be 6: what is missing
 * from a whole number by no more than a float's rounding is that number. Somebody stays. */
static uint32_t dropped(double trim, uint32_t count)
{
    const double rounding = 1.0 / (1 << 22);
    uint32_t drop = (uint32_t)(trim * count * (1 + rounding));
    return 2 * drop < count ? drop : (count - 1) / 2;
}

/* Of value i of every contribution that weighs something: sorted, and the ends dropped. */
static float trim_value(const struct job *j, const struct trimming *t, size_t i)
{
    double sum = 0, weight = 0;
    uint32_t n = 0;
    for (uint32_t m = 0; m < j->count; m++) {
        if (!(j->how->share[m] > 0))
            continue;
        double v = (double)t->room[(size_t)m * PL_MERGE_BLOCK + i];
        uint32_t at = n++;
        for (; at > 0 && t->values[at - 1] > v; at--) {
            t->values[at] = t->values[at - 1];
            t->order[at] = t->order[at - 1];
        }
        t->values[at] = v;
        t->order[at] = m;
    }
    for (uint32_t k = j->drop; k < n - j->drop; k++) {
        sum += j->how->share[t->order[k]] * t->values[k];
        weight += j->how->share[t->order[k]];
    }
    return weight > 0 ? (float)(sum / weight) : 0;
}

static void trim_task(void *user, uint32_t task, uint32_t thread)
{
    const struct job *j = user;
    double *own = j->rooms + (size_t)thread * j->count * TRIM_DOUBLES;
    const struct trimming t = {.values = own,
                               .order = (uint32_t *)(void *)(own + j->count),
                               .room = (float *)(void *)(own + 2 * (size_t)j->count)};
    size_t chunk = j->wave + task;
    for (size_t b = chunk * CHUNK_BLOCKS; b < end_block(j, chunk); b++) {
        size_t len = block_len(j, b);
        for (uint32_t m = 0; m < j->count; m++)
            read_block(j, m, b, len, t.room + (size_t)m * PL_MERGE_BLOCK);
        for (size_t i = 0; i < len; i++)
            j->how->out[b * PL_MERGE_BLOCK + i] = trim_value(j, &t, i);
    }
}

/* ---- centred clipping ---- */

/* |v - c|^2 of one block, in 16 lanes. */
static double far_block(const float *x, const float *centre, size_t len)
{
    double lane[LANES] = {0};
    for (size_t i = 0; i < len; i++) {
        double d = (double)x[i] - (double)centre[i];
        lane[i % LANES] += d * d;
    }
    for (size_t half = LANES / 2; half > 0; half /= 2)
        for (size_t i = 0; i < half; i++)
            lane[i] += lane[i + half];
    return lane[0];
}

static void far_task(void *user, uint32_t task, uint32_t thread)
{
    (void)thread;
    const struct job *j = user;
    float x[PL_MERGE_BLOCK];
    size_t chunk = j->wave + task;
    double *sums = j->sums + (size_t)task * j->count;
    memset(sums, 0, j->count * sizeof *sums);
    for (uint32_t m = 0; m < j->count; m++)
        for (size_t b = chunk * CHUNK_BLOCKS; b < end_block(j, chunk); b++) {
            read_block(j, m, b, block_len(j, b), x);
            sums[m] += far_block(x, j->how->out + b * PL_MERGE_BLOCK, block_len(j, b));
        }
}

static void far_done(struct job *j)
{
    for (size_t t = 0; t < j->tasks; t++)
        for (uint32_t m = 0; m < j->count; m++)
            j->far[m] += j->sums[t * j->count + m];
}

static void pull_task(void *user, uint32_t task, uint32_t thread)
{
    (void)thread;
    const struct job *j = user;
    float x[PL_MERGE_BLOCK];
    size_t chunk = j->wave + task;
    for (size_t b = chunk * CHUNK_BLOCKS; b < end_block(j, chunk); b++) {
        double sum[PL_MERGE_BLOCK] = {0};
        size_t len = block_len(j, b);
        float *centre = j->how->out + b * PL_MERGE_BLOCK;
        for (uint32_t m = 0; m < j->count; m++) {
            read_block(j, m, b, len, x);
            for (size_t i = 0; i < len; i++)
                sum[i] += j->factor[m] * ((double)x[i] - (double)centre[i]);
        }
        for (size_t i = 0; i < len; i++)
            centre[i] = (float)((double)centre[i] + sum[i]);
    }
}

static void pull_centre(struct job *j)
{
    uint32_t n = 0;
    memset(j->far, 0, j->count * sizeof *j->far);
    for_chunks(j, far_task, far_done);
    for (uint32_t m = 0; m < j->count; m++) {
        j->far[m] = sqrt(j->far[m]);
        if (j->how->share[m] > 0)
            j->sums[n++] = j->far[m];
    }
    const double radius = pl_merge_median(j->sums, n);
    for (uint32_t m = 0; m < j->count; m++)
        j->factor[m] = j->how->share[m] * (j->far[m] > radius ? radius / j->far[m] : 1);
    for_chunks(j, pull_task, NULL);
}

void pl_merge_robust(enum pl_merge_mode mode, const struct pl_merge_robust *how)
{
    struct job j = {.how = how, .count = how->in->count};
    pl_assert(j.count > 0 && (mode == PL_MERGE_TRIMMED || mode == PL_MERGE_CLIPPED));
    if (mode == PL_MERGE_TRIMMED) {
        pl_assert(how->trim >= 0 && how->trim < 0.5);
        uint32_t weighty = 0;
        for (uint32_t m = 0; m < j.count; m++)
            weighty += how->share[m] > 0 ? 1 : 0;
        pl_assert(weighty > 0);
        j.rooms = how->scratch;
        j.drop = dropped(how->trim, weighty);
        for_chunks(&j, trim_task, NULL);
        return;
    }
    j.factor = how->scratch;
    j.far = j.factor + j.count;
    j.sums = j.far + j.count;
    memset(how->out, 0, how->n * sizeof *how->out);
    for (uint32_t k = 0; k < ROUNDS; k++)
        pull_centre(&j);
}
