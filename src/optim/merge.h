/* optim/merge.h - one outer gradient from many contributions, as floats or still encoded.
 *
 * Works on one slice: a contiguous array, the rows of one tensor that belong to one fragment. Every machine, instruction
 * set and number of threads gives the same bits, because the order of each sum is part of the contract:
 *
 *   shares               of the contributions are rounded to float;
 *   over contributions   in the order given (by learner identity, never by arrival), in groups of 16. In a group, from 0
 *                        on, each product of a share and a value and each sum is rounded to float; the groups are added
 *                        in double, and the result is rounded to float;
 *   sums of squares      blocks of 256 values, from the slice's start. In a block 16 double lanes, lane i takes values
 *                        i, i + 16, ...; then lane i += lane i + 8, then + 4, + 2, + 1. The blocks of a chunk (128
 *                        blocks, 2^15 values) are added in order, and the chunks are added in order;
 *   rounding             of every product and every sum (-ffp-contract=off), to nearest, denormals kept.
 *
 * The only operations are + * / sqrt and conversions, all correctly rounded. Blocks are those of the codecs on purpose:
 * within a block of int4 or int2 every sum of squares is exact in double, so that it may be taken from the codes in
 * integers. Chunks are the tasks of the pool. docs/merge.md has the arithmetic.
 */
#ifndef PL_OPTIM_MERGE_H
#define PL_OPTIM_MERGE_H

#include "base/merge_mode.h"
#include "base/pool.h"
#include "codec/codec.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pl_contribution {
    const float *delta; /* [n] borrowed, finite: the caller has asked pl_all_finite */
    uint64_t tokens;
    uint64_t steps; /* at least 1: a push of no steps was refused before */
};

/* A contribution as it came: the bytes of this slice alone. */
struct pl_encoded_part {
    enum pl_codec codec;
    const uint8_t *bytes; /* [pl_codec_bytes(codec, n)] borrowed, any alignment; has passed pl_codec_check */
    uint64_t tokens;
    uint64_t steps;
};

/* What a merge works with. scratch belongs to one merge at a time. All that is not set is not there. */
struct pl_merge_work {
    double *scratch; /* [pl_merge_scratch(count)] for the largest count; TRIMMED: of pl_merge_scratch_of */
    struct pl_pool *pool;  /* borrowed, not in use by anybody else; NULL: the calling thread alone */
    const double *weights; /* [count] at least 0; NULL: pl_merge_weight of each */
    const double
        *reach;    /* [count] a vector counts as no longer than so many times the median norm of the slice;
                              NULL: as long as it is. RDA and MEAN only */
    double length; /* RDA: the result's length times this; 0: as it is */
    double trim;   /* TRIMMED: this share of the contributions at either end; 0 to below 0.5 */
};

/* Doubles of scratch for so many contributions. */
size_t pl_merge_scratch(uint32_t count);
size_t pl_merge_scratch_of(enum pl_merge_mode mode, uint32_t count, const struct pl_pool *pool);

/* tokens^2 / steps (arXiv 2604.21428, algorithm 2, line 9): the weight of a contribution, formed here and nowhere else.
 * steps > 0; no tokens weigh 0. */
double pl_merge_weight(uint64_t tokens, uint64_t steps);

/* Merges count contributions of n values into out, which overlaps none of them.
 *
 * PL_MERGE_MEAN: the sum of v w / sum w.
 * PL_MERGE_RDA: (sum w |v| / sum w) * phi(u), u = sum w phi(v) / sum w, phi(x) = x / |x|. A vector shorter than
 * PL_MERGE_LENGTH_MIN has no direction: it counts in the mean norm, and not in u, whose weights are of those that have
 * one. The length of u is that of its floats; the last product is formed in double. Directions cancel where |u| is below
 * PL_MERGE_DIRECTION_MIN: what is left is rounding noise, and the result is zero.
 * With `reach`, |v| is min(|v|, reach * median); MEAN takes v shortened to that.
 * PL_MERGE_TRIMMED: for every value, floor(trim * n) of the n contributions that weigh something are left out at either
 * end, then the weighted mean of the rest. A trim that is a float's rounding below a whole number over n counts as that. Few contributions (floor = 0) give the bits of sums in double, not of MEAN's groups.
 * PL_MERGE_CLIPPED: from c = 0, three times: r = the median of |v - c|; c += sum w (v - c) min(1, r / |v - c|) / sum w.
 * PL_MERGE_MEDIAN: the sum of w phi(v) / sum w, times the median norm. A vector shorter than PL_MERGE_LENGTH_MIN, or than
 * PL_MERGE_DIRECTION_MIN of the median, stays as it is: made so much longer, its share would be no float.
 * The median of n is the (n / 2)-th from 0, by size: of two the larger, of eight the fifth. Only those that weigh
 * something are counted.
 * No contribution, or no weight at all: the result is zero.
 *
 * Finite values near the end of float's range can merge to an infinity; ask pl_all_finite about out. */
void pl_merge(enum pl_merge_mode mode, const struct pl_contribution *contributions, uint32_t count, size_t n,
              const struct pl_merge_work *work, float *out);

/* The bits of decoding every part and calling pl_merge, without the memory to decode into. */
void pl_merge_encoded(enum pl_merge_mode mode, const struct pl_encoded_part *parts, uint32_t count, size_t n,
                      const struct pl_merge_work *work, float *out);

/* 2^-20. A float vector's direction is known to about 2^-24; M unrelated ones average to 1 / sqrt(M), far above. */
#define PL_MERGE_DIRECTION_MIN (1.0 / 1048576.0)

/* 2^-100: below it the share of a direction leaves the range of a float. */
#define PL_MERGE_LENGTH_MIN (1.0 / 1267650600228229401496703205376.0)

/* The Euclidean norm, summed as above. */
double pl_norm(const float *values, size_t n);

/* No infinity and no NaN among the n values. */
bool pl_all_finite(const float *values, size_t n);

#endif
