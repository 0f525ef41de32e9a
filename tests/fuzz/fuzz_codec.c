/* Fuzz target: encodings and envelopes of arbitrary bytes, and arbitrary floats to encode.
 *
 * The first byte says what the rest is: an envelope to open, an encoding to check, or floats. What passes a check must
 * keep its promises: finite values, the same by every instruction set, merges by every rule that equal those of decoded
 * values. Floats are encoded whole and selectively: each block is then as in the whole, or held back.
 */
#include "base/alloc.h"
#include "base/bytes.h"
#include "base/check.h"
#include "codec/feedback.h"
#include "codec/kernels.h"
#include "codec/pack.h"
#include "optim/merge.h"
#include "optim/merge_kernels.h"

#include <math.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { N_MAX = 4500, RAW_MAX = 4 * N_MAX, M = 5 };

static struct pl_packer *packer;

static void open_envelope(struct pl_reader *in)
{
    static uint8_t raw[RAW_MAX + 1];
    struct pl_error err = {0};
    size_t raw_bytes = (size_t)pl_read_le(in, 2) % (RAW_MAX + 1), len = pl_reader_left(in);
    raw[raw_bytes] = 0xa5;
    enum pelago_status status = pl_unpack(packer, in->at, len, raw, raw_bytes, &err);
    pl_assert(raw[raw_bytes] == 0xa5);
    pl_assert(status == PELAGO_OK || (status == PELAGO_CORRUPT && err.text[0] != '\0'));
    if (status != PELAGO_OK)
        return;
    static uint8_t again[RAW_MAX + 1], back[RAW_MAX];
    size_t packed = pl_pack(packer, raw, raw_bytes, true, again);
    pl_assert(packed <= pl_pack_bytes_max(raw_bytes));
    pl_assert(pl_unpack(packer, again, packed, back, raw_bytes, NULL) == PELAGO_OK);
    pl_assert(memcmp(raw, back, raw_bytes) == 0);
}

/* As many values as there are bytes for. */
static size_t values_in(enum pl_codec codec, size_t bytes)
{
    size_t n = 0;
    while (n < N_MAX && pl_codec_bytes(codec, n + 1) <= bytes)
        n++;
    return n;
}

static void merge_it(enum pl_codec codec, const uint8_t *bytes, const float *decoded, size_t n)
{
    static float want[N_MAX], got[N_MAX];
    static double scratch[131 * M];
    static const float zeros[N_MAX];
    static const uint8_t held_back[RAW_MAX]; /* zeros in every codec */
    const struct pl_merge_work work = {.scratch = scratch, .trim = 0.25};
    const struct pl_contribution c[M] = {
        {decoded, 5, 2}, {zeros, 7, 1}, {decoded, 3, 1}, {decoded, 0, 1}, {zeros, 1, 9}};
    const struct pl_encoded_part p[M] = {{codec, bytes, 5, 2},
                                         {codec, held_back, 7, 1},
                                         {codec, bytes, 3, 1},
                                         {codec, bytes, 0, 1},
                                         {codec, held_back, 1, 9}};
    for (enum pl_merge_mode mode = PL_MERGE_RDA; mode <= PL_MERGE_MEDIAN; mode++) {
        pl_assert(pl_merge_scratch_of(mode, M, NULL) <= sizeof scratch / sizeof scratch[0]);
        pl_merge(mode, c, M, n, &work, want);
        pl_merge_encoded(mode, p, M, n, &work, got);
        pl_assert(memcmp(got, want, n * sizeof(float)) == 0);
    }
}

/* The bytes lie in memory of exactly their size, so that reading past them is noticed. */
static void check_encoding(struct pl_reader *in)
{
    static float values[N_MAX], slow[N_MAX];
    enum pl_codec codec = (enum pl_codec)(PL_CODEC_FP32 + pl_read_u8(in) % PL_CODEC_LAST);
    size_t n = values_in(codec, pl_reader_left(in)), len = pl_codec_bytes(codec, n);
    if (n == 0)
        return;
    struct pl_alloc alloc = pl_alloc_system();
    uint8_t *bytes = pl_alloc_zero(&alloc, 1, len);
    pl_assert(bytes != NULL);
    memcpy(bytes, in->at, len);
    if (pl_codec_check(codec, bytes, n)) {
        pl_codec_decode(codec, bytes, n, values);
        pl_codec_decode_by(&pl_codec_portable, codec, bytes, n, slow);
        pl_assert(memcmp(values, slow, n * sizeof(float)) == 0);
        for (size_t i = 0; i < n; i++)
            pl_assert(isfinite(values[i]));
        merge_it(codec, bytes, values, n);
    }
    pl_alloc_free(&alloc, bytes, len);
}

static bool is_held_back(const uint8_t *bytes, size_t len, const float *rest, const float *values, size_t n)
{
    bool zero = true;
    for (size_t i = 0; i < len; i++)
        zero = zero && bytes[i] == 0;
    return zero && memcmp(rest, values, n * sizeof(float)) == 0;
}

/* whole, whole_rest: encoded with nothing held back. */
static void encode_selectively(enum pl_codec codec, const float *values, size_t n, float selective,
                               const uint8_t *whole, const float *whole_rest)
{
    static float rest[N_MAX];
    static uint8_t bytes[RAW_MAX];
    const size_t unit = pl_codec_is_topk((uint32_t)codec) ? PL_CODEC_CHUNK : PL_CODEC_BLOCK;
    memcpy(rest, values, n * sizeof(float));
    pl_assert(pl_feedback_encode(codec, rest, n, selective, bytes) && pl_codec_check(codec, bytes, n));
    for (size_t at = 0; at < n; at += unit) {
        const size_t left = n - at < unit ? n - at : unit, from = pl_codec_bytes(codec, at);
        const size_t len = pl_codec_bytes(codec, left);
        pl_assert((memcmp(bytes + from, whole + from, len) == 0 &&
                   memcmp(rest + at, whole_rest + at, left * sizeof(float)) == 0) ||
                  is_held_back(bytes + from, len, rest + at, values + at, left));
    }
}

static void encode_floats(struct pl_reader *in)
{
    static float values[N_MAX], rest[N_MAX], slow_rest[N_MAX];
    static uint8_t bytes[RAW_MAX], slow[RAW_MAX];
    const uint8_t choice = pl_read_u8(in);
    enum pl_codec codec = (enum pl_codec)(PL_CODEC_FP32 + choice % PL_CODEC_LAST);
    const float selective = (float)(choice / PL_CODEC_LAST) / 32;
    size_t n = values_in(PL_CODEC_FP32, pl_reader_left(in)), len = pl_codec_bytes(codec, n);
    if (n > 0)
        memcpy(values, in->at, n * sizeof(float));
    memcpy(rest, values, n * sizeof(float));
    if (!pl_codec_encode_feedback(codec, rest, n, bytes)) {
        pl_assert(memcmp(rest, values, n * sizeof(float)) == 0);
        return;
    }
    pl_assert(pl_codec_check(codec, bytes, n));
    pl_codec_encode_by(&pl_codec_portable, codec, values, n, slow, slow_rest);
    pl_assert(memcmp(bytes, slow, len) == 0 && memcmp(rest, slow_rest, n * sizeof(float)) == 0);
    encode_selectively(codec, values, n, selective, bytes, rest);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct pl_alloc alloc = pl_alloc_system();
    struct pl_reader in = pl_reader_of(data, size);
    if (packer == NULL)
        packer = pl_packer_new(&alloc);
    pl_assert(packer != NULL);
    switch (pl_read_u8(&in) % 3) {
    case 0:
        open_envelope(&in);
        break;
    case 1:
        check_encoding(&in);
        break;
    default:
        encode_floats(&in);
        break;
    }
    return 0;
}
