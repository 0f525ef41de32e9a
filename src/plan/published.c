/* plan/published.c - the tables, and the assumptions behind each headline. */
#include "plan/published.h"

#include "base/check.h"

const double pl_published_targets[PL_PUBLISHED_TARGETS] = {0.5, 0.8, 0.9, 0.95, 0.99};

/* Layers, seconds of a step, and H or tau; streaming has H = 100 and fragments of 3 layers. */
#define DP(layers, step_s)                                                                                   \
    {                                                                                                        \
        PL_BANDWIDTH_DATA_PARALLEL, layers, step_s, 0, 1, 0, 0                                               \
    }
#define DL(layers, step_s, period)                                                                           \
    {                                                                                                        \
        PL_BANDWIDTH_DILOCO, layers, step_s, 0, period, 0, 0                                                 \
    }
#define ST(layers, step_s, overlap)                                                                          \
    {                                                                                                        \
        PL_BANDWIDTH_STREAMING, layers, step_s, 0, 100, overlap, 3                                           \
    }

static const struct pl_published_row rows[PL_PUBLISHED_ROWS] = {
    {"4", "1B", "data-parallel", DP(24, 0.1), 1, 1, {86.8, 152.6, 184.2, 222.3, 569.0}},
    {"4", "1B", "DiLoCo H=100", DL(24, 0.1, 100), 1, 1, {1.4, 6.2, 13.3, 23.3, 86.8}},
    {"4", "1B", "streaming", ST(24, 0.1, 0), 1, 1, {1.4, 5.2, 9.1, 16.0, 28.1}},
    {"4", "1B", "streaming, tau 1", ST(24, 0.1, 1), 1, 1, {1.4, 4.3, 6.2, 9.1, 11.0}},
    {"4", "1B", "streaming, tau 1, FP4", ST(24, 0.1, 1), 1, 0.25, {0.4, 0.9, 1.7, 2.0, 3.0}},
    {"4", "10B", "data-parallel", DP(48, 0.8), 10, 1, {104.8, 222.3, 222.3, 268.3, 471.5}},
    {"4", "10B", "DiLoCo H=100", DL(48, 0.8, 100), 10, 1, {1.7, 7.5, 16.0, 33.9, 104.8}},
    {"4", "10B", "streaming", ST(48, 0.8, 0), 10, 1, {1.7, 5.2, 9.1, 13.3, 19.3}},
    {"4", "10B", "streaming, tau 1", ST(48, 0.8, 1), 10, 1, {1.7, 3.6, 5.2, 6.2, 7.5}},
    {"4", "10B", "streaming, tau 1, FP4", ST(48, 0.8, 1), 10, 0.25, {0.4, 0.9, 1.4, 1.4, 1.7}},
    {"4", "100B", "data-parallel", DP(108, 4.9), 100, 1, {184.2, 323.8, 390.7, 390.7, 471.5}},
    {"4", "100B", "DiLoCo H=100", DL(108, 4.9, 100), 100, 1, {3.0, 11.0, 23.3, 49.4, 184.2}},
    {"4", "100B", "streaming", ST(108, 4.9, 0), 100, 1, {2.4, 6.2, 9.1, 11.0, 19.3}},
    {"4", "100B", "streaming, tau 1", ST(108, 4.9, 1), 100, 1, {1.7, 3.6, 4.3, 5.2, 5.2}},
    {"4", "100B", "streaming, tau 1, FP4", ST(108, 4.9, 1), 100, 0.25, {0.5, 0.9, 1.1, 1.1, 1.4}},
    {"6", "10B", "data-parallel", DP(48, 0.8), 10, 1, {104.8, 184.2, 222.3, 222.3, 390.7}},
    {"6", "10B", "DiLoCo H=10", DL(48, 0.8, 10), 10, 1, {16.0, 49.4, 86.8, 152.6, 222.3}},
    {"6", "10B", "DiLoCo H=50", DL(48, 0.8, 50), 10, 1, {3.0, 11.0, 23.3, 41.0, 126.5}},
    {"6", "10B", "DiLoCo H=100", DL(48, 0.8, 100), 10, 1, {1.4, 6.2, 13.3, 23.3, 86.8}},
    {"6", "10B", "DiLoCo H=300", DL(48, 0.8, 300), 10, 1, {0.5, 2.0, 4.3, 9.1, 41.0}},
    {"6", "Llama 405B", "data-parallel", DP(126, 26), 405, 1, {126.5, 222.3, 268.3, 323.8, 323.8}},
    {"6", "Llama 405B", "DiLoCo H=100", DL(126, 26, 100), 405, 1, {2.0, 7.5, 16.0, 33.9, 126.5}},
    {"6", "Llama 405B", "DiLoCo H=300", DL(126, 26, 300), 405, 1, {0.7, 3.0, 6.2, 13.3, 59.6}},
    {"6", "DeepSeek-V3", "data-parallel", DP(61, 20), 671, 1, {323.8, 569.0, 686.6, 686.6, 1200}},
    {"6", "DeepSeek-V3", "DiLoCo H=100", DL(61, 20, 100), 671, 1, {4.3, 16.0, 41.0, 72.0, 268.3}},
    {"6", "DeepSeek-V3", "DiLoCo H=300", DL(61, 20, 300), 671, 1, {1.7, 6.2, 13.3, 28.1, 126.5}},
};

const struct pl_published_row *pl_published_row(uint32_t number)
{
    pl_assert(number < PL_PUBLISHED_ROWS);
    return &rows[number];
}

struct pl_bandwidth pl_published_setup(const struct pl_published_row *row, double bits)
{
    struct pl_bandwidth setup = row->setup;
    setup.gbit = row->billions * bits * row->bits_share;
    return setup;
}

int pl_published_steps(const struct pl_published_row *row, uint32_t target, double bits)
{
    pl_assert(target < PL_PUBLISHED_TARGETS);
    struct pl_bandwidth setup = pl_published_setup(row, bits);
    uint32_t point = pl_bandwidth_needed_point(&setup, pl_published_targets[target]);
    return (int)point - (int)pl_bandwidth_nearest_point(row->gbit_s[target]);
}

double pl_bandwidth_decoupled(double billions, double bits, uint32_t period, double step_s)
{
    pl_assert(period > 0 && step_s > 0);
    return billions * bits / period / step_s;
}

/* int4 with one bf16 scale for 256 values (codec/codec.h); P = H = 24; steps of 1 s; data-parallel sends bf16 in a ring. */
static const double int4_bits = 4 + 16.0 / 256, bf16_bits = 16;

void pl_published_headlines(struct pl_headlines *out)
{
    struct pl_bandwidth eight_sites = DP(36, 1), regions = DP(48, 1);
    eight_sites.gbit = pl_bandwidth_ring_gbit(5, bf16_bits, 8);
    regions.gbit = pl_bandwidth_ring_gbit(12, bf16_bits, 4);
    out->data_parallel_gbit_s = pl_bandwidth_needed(&eight_sites, 0.95);
    out->decoupled_gbit_s = pl_bandwidth_decoupled(5, int4_bits, 24, 1);
    out->region_low_gbit_s = pl_bandwidth_decoupled(12, int4_bits, 24, 1);
    out->region_high_gbit_s = 2 * out->region_low_gbit_s;
    out->region_speedup = 1 / pl_bandwidth_utilisation(&regions, 5);
}
