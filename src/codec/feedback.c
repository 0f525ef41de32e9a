/* codec/feedback.c - see feedback.h. Sums of squares have their fixed lanes, so that every machine holds back the same
 * blocks. */
#include "codec/feedback.h"

#include "base/check.h"
#include "codec/kernels.h"

#include <string.h>

float pl_feedback_decay(enum pl_codec codec)
{
    return pl_codec_is_topk((uint32_t)codec) ? 0.95f : 1.0f;
}

void pl_feedback_keep(float *snapshot, float *residual, size_t n, float local)
{
    for (size_t i = 0; local > 0 && i < n; i++) {
        float kept = local * residual[i];
        snapshot[i] += kept;
        residual[i] -= kept;
    }
}

void pl_feedback_add(float *change, const float *residual, size_t n, float decay)
{
    for (size_t i = 0; i < n; i++)
        change[i] += decay * residual[i];
}

bool pl_feedback_squeezes(enum pl_codec codec, float selective)
{
    return selective > 0 || (codec != PL_CODEC_FP32 && codec != PL_CODEC_BF16);
}

/* Of up to a chunk; squares of floats are exact in double. */
static double squares(const float *x, size_t n)
{
    double lane[PL_CODEC_LANES] = {0};
    size_t i = 0;
    for (; i + PL_CODEC_LANES <= n; i += PL_CODEC_LANES)
        for (size_t l = 0; l < PL_CODEC_LANES; l++)
            lane[l] += (double)x[i + l] * (double)x[i + l];
    for (size_t l = 0; i + l < n; l++)
        lane[l] += (double)x[i + l] * (double)x[i + l];
    for (size_t half = PL_CODEC_LANES / 2; half > 0; half /= 2)
        for (size_t l = 0; l < half; l++)
            lane[l] += lane[l + half];
    return lane[0];
}

static size_t unit_of(enum pl_codec codec)
{
    return pl_codec_is_topk((uint32_t)codec) ? PL_CODEC_CHUNK : PL_CODEC_BLOCK;
}

/* The least mean square of a block that is sent. */
static double least_mean(const float *values, size_t n, float selective)
{
    double all = 0;
    for (size_t at = 0; at < n; at += PL_CODEC_CHUNK)
        all += squares(values + at, n - at < PL_CODEC_CHUNK ? n - at : PL_CODEC_CHUNK);
    return (double)selective * (double)selective * (all / (double)n);
}

bool pl_feedback_encode(enum pl_codec codec, float *values, size_t n, float selective, uint8_t *out)
{
    pl_assert(selective >= 0 && selective < 1);
    const size_t unit = unit_of(codec);
    if (!(selective > 0) || n <= unit)
        return pl_codec_encode_feedback(codec, values, n, out);
    if (!pl_codec_takes(codec, values, n))
        return false;
    const struct pl_codec_kernels *k = pl_codec_kernels();
    const double least = least_mean(values, n, selective);
    for (size_t at = 0; at < n; at += unit) {
        const size_t len = n - at < unit ? n - at : unit, bytes = pl_codec_bytes(codec, len);
        if (squares(values + at, len) < least * (double)len)
            memset(out, 0, bytes);
        else
            pl_codec_encode_by(k, codec, values + at, len, out, values + at);
        out += bytes;
    }
    return true;
}
