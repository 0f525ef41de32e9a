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
    PL_CODEC_LANES = 16,
};

/* Scales are bf16, zero or from 2^-125 on: decoded values are never denormal. The largest still decode to finite
 * values, times 7 and times 1.5. */
#define PL_SCALE_MIN 0x0100u
#define PL_INT4_SCALE_MAX 0x7e12u
#define PL_INT2_SCALE_MAX 0x7f2au

struct pl_codec_kernels {
    /* The largest magnitude as the bits of a float without its sign, where infinity and NaN are larger than any
     * number; 0 for none. */
    uint32_t (*top)(const float *x, size_t n);
    /* rest, where not NULL, receives x - decoded; it may be x. */
    void (*bf16_encode)(const float *x, size_t n, uint8_t *out, float *rest);
    void (*int4_encode_blocks)(const float *x, size_t blocks, uint8_t *out, float *rest);
    void (*int2_encode_blocks)(const float *x, size_t blocks, uint8_t *out, float *rest);
    void (*bf16_decode)(const uint8_t *bytes, size_t n, float *out);
    void (*int4_decode_blocks)(const uint8_t *bytes, size_t blocks, float *out);
    void (*int2_decode_blocks)(const uint8_t *bytes, size_t blocks, float *out);
    /* out += x */
    void (*add)(const float *x, size_t n, float *out);
};

extern const struct pl_codec_kernels pl_codec_portable, pl_codec_avx2, pl_codec_avx512;

/* The fastest that this machine can run. */
const struct pl_codec_kernels *pl_codec_kernels(void);

/* One block of 1 to 256 values: the specification, and everybody's last block. */
void pl_int4_block_encode(const float *x, size_t len, uint8_t *out, float *rest);
void pl_int4_block_decode(const uint8_t *bytes, size_t len, float *out);
void pl_int2_block_encode(const float *x, size_t len, uint8_t *out, float *rest);
void pl_int2_block_decode(const uint8_t *bytes, size_t len, float *out);

/* An array of n finite values, by the kernels of one instruction set. */
void pl_codec_encode_by(const struct pl_codec_kernels *k, enum pl_codec codec, const float *x, size_t n,
                        uint8_t *out, float *rest);
void pl_codec_decode_by(const struct pl_codec_kernels *k, enum pl_codec codec, const uint8_t *bytes, size_t n,
                        float *out);

#endif
