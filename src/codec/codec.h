/* codec/codec.h - arrays of floats in fewer bytes: pure functions, the same bits on every machine.
 *
 * An encoding has a size that follows from codec and count alone. The scalar code is the specification
 * (docs/codecs.md); the faster ones give the same bytes and the same floats. A fragment is encoded slice by slice, one
 * encoding behind the other, so that blocks never span two tensors and a slice can be found without decoding what
 * lies before it.
 *
 *   fp32     4 bytes a value, little-endian
 *   bf16     2 bytes a value, little-endian, rounded to nearest even
 *   int8     blocks of 256 values, the last shorter: bf16 scale, then a byte a value; -127 .. 127
 *   int4     the same with two values a byte, low half first; -7 .. 7
 *   e3m0     the same, the half byte being a sign and an exponent: 0, 1/64, 1/32 ... 1 of the scale
 *   int2     the same with four values a byte, low bits first; 0.5 -0.5 1.5 -1.5 of the scale
 *   topk64   chunks of 4096 values, the last shorter: the 64 largest as one of two magnitudes with a sign, and where they
 *            are; all others are zero. Also topk32 and topk128
 *
 * What an encoding loses can be kept and added to what is encoded next: codec/feedback.h.
 */
#ifndef PL_CODEC_CODEC_H
#define PL_CODEC_CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* As numbered in the manifest. */
enum pl_codec {
    PL_CODEC_FP32 = 1,
    PL_CODEC_BF16 = 2,
    PL_CODEC_INT4 = 3,
    PL_CODEC_INT2 = 4,
    PL_CODEC_INT8 = 5,
    PL_CODEC_E3M0 = 6,
    PL_CODEC_TOPK32 = 7,
    PL_CODEC_TOPK64 = 8,
    PL_CODEC_TOPK128 = 9,
    PL_CODEC_LAST = PL_CODEC_TOPK128,
};

enum {
    PL_CODEC_BLOCK = 256, /* values that share a scale */
    PL_CODEC_CHUNK =
        4096, /* values of which the largest are chosen; an array may be cut at multiples of it */
};

/* "fp32" ...; NULL for a number that is none. */
const char *pl_codec_name(uint32_t codec);
bool pl_codec_of_name(const char *name, enum pl_codec *codec);
static inline bool pl_codec_is_topk(uint32_t codec)
{
    return codec >= PL_CODEC_TOPK32 && codec <= PL_CODEC_TOPK128;
}

/* All of them, for a sentence. */
#define PL_CODEC_NAMES "fp32, bf16, int8, int4, e3m0, int2, topk128, topk64 or topk32"

/* Bytes of n values; n is at most PL_PARAMS_MAX. */
size_t pl_codec_bytes(enum pl_codec codec, size_t n);

/* Whether all values are finite, and none is too large for the codec: bf16's largest number is 0.4% below float's, the
 * others take every finite value. */
bool pl_codec_takes(enum pl_codec codec, const float *values, size_t n);

/* Writes pl_codec_bytes. False: the codec does not take them; out is then unspecified. */
bool pl_codec_encode(enum pl_codec codec, const float *values, size_t n, uint8_t *out);

/* As above, and what was lost replaces the values: values[i] -= decoded[i]. On false values are as before. */
bool pl_codec_encode_feedback(enum pl_codec codec, float *values, size_t n, uint8_t *out);

/* Would every decoded value be finite, and is every bit that means nothing zero? For bytes from a peer or a file, of
 * pl_codec_bytes(codec, n). */
bool pl_codec_check(enum pl_codec codec, const uint8_t *bytes, size_t n);

/* bytes have passed pl_codec_check. */
void pl_codec_decode(enum pl_codec codec, const uint8_t *bytes, size_t n, float *out);

/* out[i] += decoded[i], rounded once each; where top-k has nothing to say out stays as it is. */
void pl_codec_decode_add(enum pl_codec codec, const uint8_t *bytes, size_t n, float *out);

#endif
