/* codec/kernels.h - the loops of the codecs, once per instruction set; for codec/, the merge kernels and tests only.
 *
 * Functions whose name ends in _blocks work on whole blocks of 256 values; the shorter last block of an array is the
 * portable code's for everybody. Every variant gives the same bytes and floats: the operations are + - * /,
 * comparisons and conversions, correctly rounded, never contracted, and every sum has its fixed lanes. A variant may
 * be entered only on a machine that has its instructions (base/cpu.h).
 */
#ifndef PL_CODEC_KERNELS_H
#define PL_CODEC_KERNELS_H

#include "codec/codec.h"

enum {
    PL_CODEC_SCALE_BYTES = 2,
    PL_INT4_BLOCK_BYTES = PL_CODEC_SCALE_BYTES + PL_CODEC_BLOCK / 2,
    PL_INT2_BLOCK_BYTES = PL_CODEC_SCALE_BYTES + PL_CODEC_BLOCK / 4,
    PL_INT8_BLOCK_BYTES = PL_CODEC_SCALE_BYTES + PL_CODEC_BLOCK,
    PL_E3M0_BLOCK_BYTES = PL_INT4_BLOCK_BYTES,
    PL_CODEC_BLOCK_KINDS = PL_CODEC_E3M0 + 1, /* codecs of blocks are numbered from int4 to e3m0 */
    PL_CODEC_LANES = 16,
};

/* Scales are bf16, zero or from 2^-125 on (e3m0: 2^-120): decoded values are never denormal. The largest still decode
 * to finite values, times 7, 1.5, 127 and 1. */
#define PL_SCALE_MIN 0x0100u
#define PL_E3M0_SCALE_MIN 0x0380u
#define PL_INT4_SCALE_MAX 0x7e12u
#define PL_INT2_SCALE_MAX 0x7f2au
#define PL_INT8_SCALE_MAX 0x7c01u
#define PL_BF16_MAX 0x7f7fu /* of e3m0 and the magnitudes of top-k */

static inline bool pl_codec_has_blocks(uint32_t codec)
{
    return codec >= PL_CODEC_INT4 && codec <= PL_CODEC_E3M0;
}

/* rest, where not NULL, receives x - decoded; it may be x. */
typedef void pl_encode_blocks_fn(const float *x, size_t blocks, uint8_t *out, float *rest);
typedef void pl_decode_blocks_fn(const uint8_t *bytes, size_t blocks, float *out);

struct pl_codec_kernels {
    /* The largest magnitude as the bits of a float without its sign, where infinity and NaN are larger than any
     * number; 0 for none. */
    uint32_t (*top)(const float *x, size_t n);
    void (*bf16_encode)(const float *x, size_t n, uint8_t *out, float *rest);
    void (*bf16_decode)(const uint8_t *bytes, size_t n, float *out);
    pl_encode_blocks_fn *encode_blocks[PL_CODEC_BLOCK_KINDS];
    pl_decode_blocks_fn *decode_blocks[PL_CODEC_BLOCK_KINDS];
    /* The places of the k largest magnitudes of a whole chunk, in order; of equal ones the first. 1 <= k <= 256. */
    void (*topk_select)(const float *x, uint32_t k, uint16_t *index);
    /* Is a half byte 8, which stands for nothing in int4 and e3m0? */
    bool (*any_nibble_8)(const uint8_t *codes, size_t n);
    /* out += x */
    void (*add)(const float *x, size_t n, float *out);
};

extern const struct pl_codec_kernels pl_codec_portable, pl_codec_avx2, pl_codec_avx512;

/* The fastest that this machine can run. */
const struct pl_codec_kernels *pl_codec_kernels(void);

/* One block of 1 to 256 values: the specification, and everybody's last block. */
void pl_block_encode(uint32_t codec, const float *x, size_t len, uint8_t *out, float *rest);
void pl_block_decode(uint32_t codec, const uint8_t *bytes, size_t len, float *out);

/* An array of n finite values, by the kernels of one instruction set. */
void pl_codec_encode_by(const struct pl_codec_kernels *k, enum pl_codec codec, const float *x, size_t n,
                        uint8_t *out, float *rest);
void pl_codec_decode_by(const struct pl_codec_kernels *k, enum pl_codec codec, const uint8_t *bytes, size_t n,
                        float *out);

#endif
