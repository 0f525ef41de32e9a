/* plan/quality.c - see quality.h. */
#include "plan/quality.h"

#include "base/check.h"

#include <math.h>

/* PAPER 11.2: from H = 30 to 100 Streaming DiLoCo loses 0.3 to 0.85% at 35M to 1B, 0.68% in the mean: 0.39% a doubling.
 * Below 30 a tenth of a per cent a doubling, and nothing is gained below 10: H = 1 is worst (PAPER 11.5). */
double pl_quality_period(double steps)
{
    const double flat = 10, knee = 30, slow = 0.001, fast = 0.0039;
    if (steps <= flat)
        return 0;
    if (steps <= knee)
        return slow * log2(steps / flat);
    return slow * log2(knee / flat) + fast * log2(steps / knee);
}

/* PAPER 11.4: a merge that comes a whole period of 30 steps late costs 2.69 against 2.67 where own work is kept, as pelago
 * does. In line with PAPER 11.2: less than 0.2% for 10 steps of 100. */
double pl_quality_overlap(double share)
{
    return 0.0075 * share;
}

/* PAPER 7, Table 10: bf16 and int4 0.09%, and int8, which lies between them; e3m0 is what Streaming DiLoCo sends without a
 * loss it could see (PAPER 11.2). int2 with error feedback: DESIGN 5, 4.498 against 4.483; five seeds of our own had 0.34%
 * both ways, 0.07% up alone. Of top-k nobody published what it costs alone: no plan chooses it, and who asks for it is told the best that was scouted for 1m
 * with 54 merges of a fragment (docs/results.md); with more merges it should cost less. */
double pl_quality_codec(enum pl_codec codec)
{
    switch (codec) {
    case PL_CODEC_FP32:
        return 0;
    case PL_CODEC_BF16:
    case PL_CODEC_INT8:
    case PL_CODEC_INT4:
    case PL_CODEC_E3M0:
        return 0.0009;
    case PL_CODEC_INT2:
        return 0.0035;
    case PL_CODEC_TOPK128:
    case PL_CODEC_TOPK64:
    case PL_CODEC_TOPK32:
        return 0.08;
    }
    pl_assert_failed("a codec has a cost", __FILE__, __LINE__);
}

/* PAPER 11.5: fits L = A N^a for 1, 2, 4 and 8 learners against data-parallel's; between them by the logarithm of the
 * count, beyond 8 as from 4 to 8. A gain is not counted. */
double pl_quality_learners(double params, double count)
{
    static const double a_fit[] = {18.363, 18.768, 19.762, 21.051},
                        power[] = {-.0961, -.0969, -.0992, -.1018};
    const double a_dp = 18.129, power_dp = -.0953;
    double doublings = log2(count);
    unsigned low = doublings < 1 ? 0 : doublings < 2 ? 1 : 2;
    double logs[2];
    for (unsigned i = 0; i < 2; i++)
        logs[i] = log(a_fit[low + i] / a_dp) + (power[low + i] - power_dp) * log(params);
    double loss = expm1(logs[0] + (doublings - low) * (logs[1] - logs[0]));
    return fmax(loss, 0);
}

double pl_quality_tokens(double loss)
{
    return pow(1 + loss, -1 / 0.048);
}

double pl_quality_bits(enum pl_codec codec)
{
    enum { BLOCKS = 1024 };
    return 8.0 * (double)pl_codec_bytes(codec, (size_t)BLOCKS * PL_CODEC_BLOCK) / (BLOCKS * PL_CODEC_BLOCK);
}
