/* optim/merge_kernels.h - the loops of the merge, once per instruction set; for merge.c, outer.c and tests only.
 *
 * Every variant gives the same bits (merge.h says in which order things are summed). A variant may be entered only on
 * a machine that has its instructions (base/cpu.h).
 */
#ifndef PL_OPTIM_MERGE_KERNELS_H
#define PL_OPTIM_MERGE_KERNELS_H

#include "codec/kernels.h"
#include "optim/merge.h"
#include "optim/outer.h"

enum {
    PL_MERGE_BLOCK = PL_CODEC_BLOCK, /* values of a block */
    PL_MERGE_CHUNK = 1 << 15,        /* values of a chunk */
    PL_MERGE_GROUP = 16,             /* contributions that are summed in float */
};

/* Values of one contribution from a block's start on. codec 0 means floats of this machine. */
struct pl_merge_view {
    uint32_t codec;
    const uint8_t *bytes;
};

/* All contributions, in either form: the other is NULL. */
struct pl_merge_input {
    const struct pl_contribution *floats;
    const struct pl_encoded_part *encoded;
    uint32_t count;
};

/* Of every codec but top-k, whose values are reached chunk by chunk. */
static inline size_t pl_merge_block_bytes(uint32_t codec)
{
    static const uint16_t bytes[] = {
        [0] = PL_CODEC_BLOCK * sizeof(float),  [PL_CODEC_FP32] = PL_CODEC_BLOCK * 4,
        [PL_CODEC_BF16] = PL_CODEC_BLOCK * 2,  [PL_CODEC_INT4] = PL_INT4_BLOCK_BYTES,
        [PL_CODEC_INT2] = PL_INT2_BLOCK_BYTES, [PL_CODEC_INT8] = PL_INT8_BLOCK_BYTES,
        [PL_CODEC_E3M0] = PL_E3M0_BLOCK_BYTES,
    };
    return bytes[codec];
}

static inline struct pl_merge_view pl_merge_view(const struct pl_merge_input *in, uint32_t m, size_t block)
{
    if (in->floats != NULL)
        return (struct pl_merge_view){0, (const uint8_t *)(in->floats[m].delta + block * PL_MERGE_BLOCK)};
    uint32_t codec = (uint32_t)in->encoded[m].codec;
    return (struct pl_merge_view){codec, in->encoded[m].bytes + block * pl_merge_block_bytes(codec)};
}

struct pl_merge_kernels {
    /* The blocks' sums of squares, added in order to `before`. */
    double (*sumsq)(struct pl_merge_view v, size_t len, double before);
    /* Below, where a contribution is in top-k, `block` is the first of a chunk. */
    /* sums[m] = the same of every contribution, from 0 on, for len values from that block on. */
    void (*norms)(const struct pl_merge_input *in, size_t block, size_t len, double *sums);
    /* out[i] = sum over m of share[m] * v[m][i] for len values from that block on; out is theirs. There is a
     * contribution at least. Shares are numbers that a float can be. */
    void (*blend)(const struct pl_merge_input *in, const double *share, size_t block, size_t len, float *out);
    /* The same for a result that nobody reads soon: past the cache where out begins a line of it. Memory is then not
     * read before it is written. */
    void (*blend_far)(const struct pl_merge_input *in, const double *share, size_t block, size_t len,
                      float *out);
    /* x[i] = (float)(factor * x[i]) */
    void (*scale)(double factor, size_t n, float *x);
    /* See outer.h. */
    void (*outer)(const struct pl_outer_move *move, const float *delta, size_t n, float *momentum,
                  float *theta);
};

extern const struct pl_merge_kernels pl_merge_portable, pl_merge_avx2, pl_merge_avx512;

/* The fastest that this machine can run. */
const struct pl_merge_kernels *pl_merge_kernels(void);

#endif
