/* codec/topk.h - chunks of the top-k codecs: the k largest magnitudes of 4096 values, and where they are.
 *
 * Of a chunk of len values k' = len k / 4096 are sent, rounded up, in places i_0 < i_1 < ...:
 *
 *   0  u16   lower magnitude, bf16; 0: zero, or not in use
 *   2  u16   upper magnitude, bf16, larger than the lower one; 0: the whole chunk is zero, and so are all its bytes
 *   4  ...   codes of 2 bits: bit 0 the sign, bit 1 set for the upper magnitude
 *      ...   the low b bits of each place, b = 12 - log2 k
 *      ...   the high bits, as bits that are set: bit (i_j >> b) + j for the j-th place
 *
 * Codes and low bits are packed from the lowest bit of the first byte on; each part begins with a byte, and bits that
 * mean nothing are zero. The places are Elias and Fano's code of a rising sequence: 8 bits each for 64 of 4096, where
 * the least possible is 7.4.
 */
#ifndef PL_CODEC_TOPK_H
#define PL_CODEC_TOPK_H

#include "codec/kernels.h"

enum { PL_TOPK_MAX = 128 }; /* values of a chunk that are sent at most */

/* What a chunk says. */
struct pl_topk_values {
    uint32_t count; /* 0: all is zero */
    uint16_t index[PL_TOPK_MAX];
    float value[PL_TOPK_MAX];
};

/* len is 1 to 4096 in all of these. */
size_t pl_topk_bytes(uint32_t codec, size_t len);
/* x is finite. rest as in kernels.h. */
void pl_topk_encode(const struct pl_codec_kernels *kernels, uint32_t codec, const float *x, size_t len,
                    uint8_t *out, float *rest);
bool pl_topk_check(uint32_t codec, const uint8_t *bytes, size_t len);
/* bytes have passed the check. */
void pl_topk_read(uint32_t codec, const uint8_t *bytes, size_t len, struct pl_topk_values *out);

/* The specification of kernels->topk_select, for any length; k <= len. */
void pl_topk_select(const float *x, size_t len, uint32_t k, uint16_t *index);

/* The end of a choice, the same for all: of `found` places in order with their magnitudes, all above the limit and the first
 * at it, k together. limit is the k-th largest. */
static inline void pl_topk_take(const uint32_t *magnitudes, const uint32_t *places, uint32_t found,
                                uint32_t limit, uint32_t k, uint16_t *index)
{
    uint32_t equal = k, n = 0; /* so many of those at the limit are taken */
    for (uint32_t j = 0; j < found; j++)
        equal -= magnitudes[j] > limit;
    for (uint32_t j = 0; j < found && n < k; j++) {
        bool at_limit = magnitudes[j] == limit && equal > 0;
        index[n] = (uint16_t)places[j];
        n += magnitudes[j] > limit || at_limit;
        equal -= at_limit;
    }
}

#endif
