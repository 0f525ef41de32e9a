/* sim/swarm.c - options from a seed. Swarm testing: each run has only some of the faults and its own proportions, so
 * that no fault always hides another. */
#include "base/num.h"
#include "base/prng.h"
#include "sim/codec.h"
#include "sim/world.h"

#define CYCLE_NS_MAX (20 * PL_SEC)

/* Between lo and hi, every factor of two equally likely. */
static uint64_t scaled(struct pl_prng *r, uint64_t lo, uint64_t hi)
{
    uint64_t doublings = 0;
    while (lo << (doublings + 1) <= hi)
        doublings++;
    uint64_t base = lo << pl_prng_below(r, doublings + 1);
    return pl_min64(hi, base + pl_prng_below(r, base));
}

static void draw_size(struct pl_prng *r, struct pl_sim_options *o)
{
    o->learners = (uint32_t)(pl_prng_chance(r, 300000) ? pl_prng_range(r, 1, 3) : pl_prng_range(r, 2, 12));
    o->shards = (uint32_t)(pl_prng_chance(r, 600000) ? 1 : pl_prng_range(r, 2, 3));
    /* At least a dozen cycles in a run: with fewer, chance decides how well it learns. */
    o->step_ns = scaled(r, 100 * PL_MS, 2000 * PL_MS);
    uint32_t period_max = (uint32_t)pl_clamp64(CYCLE_NS_MAX / o->step_ns, 6, 24);
    o->fragments = (uint32_t)pl_prng_range(r, o->shards, pl_min32(24, period_max * o->shards));
    o->dimensions = (uint32_t)pl_prng_range(r, pl_max64(64, 8 * (uint64_t)o->fragments), 256);
    if (pl_prng_chance(r, 80000)) { /* values large enough to travel in several chunks */
        o->fragments = o->shards;
        o->dimensions = (uint32_t)pl_prng_range(r, 5000, 12000) * o->shards;
        o->learners = pl_min32(o->learners, 5);
    }
    uint32_t each = (o->fragments + o->shards - 1) / o->shards;
    o->period_steps = (uint32_t)pl_prng_range(r, pl_max64(each, 2), period_max);
    o->quorum = (uint32_t)pl_prng_range(r, 1, o->learners);
    if (pl_prng_chance(r, 400000))
        o->quorum = (o->learners + 1) / 2;
}

static void draw_times(struct pl_prng *r, struct pl_sim_options *o)
{
    o->duration_ns = 300 * PL_SEC;
    o->speed_spread_permille = (uint32_t)(pl_prng_chance(r, 300000) ? 0 : pl_prng_below(r, 2000));
    o->latency_ns = pl_min64(scaled(r, PL_MS, 200 * PL_MS), o->step_ns);
    /* Enough for a period's traffic, a little or a lot. */
    uint64_t fragment = pl_sim_encoded_bytes(o->dimensions / o->fragments) + 200;
    uint64_t step_bytes = fragment * o->fragments / o->period_steps + 150 * (uint64_t)o->shards;
    o->bandwidth = pl_mul_div(step_bytes, PL_SEC, o->step_ns) * scaled(r, 3, 400);
    o->checkpoint_ns = scaled(r, 4 * PL_SEC, 64 * PL_SEC);
    o->merge_ns = scaled(r, 100 * PL_US, 50 * PL_MS);
    o->sync_ns = scaled(r, 100 * PL_US, 30 * PL_MS);
}

void pl_sim_draw(uint64_t seed, struct pl_sim_options *o)
{
    struct pl_prng r;
    pl_prng_seed(&r, seed, PL_STREAM_SWARM);
    *o = (struct pl_sim_options){.seed = seed, .step_tokens = 100};
    draw_size(&r, o);
    draw_times(&r, o);
    o->overlap_steps = (uint32_t)pl_prng_range(&r, 1, 3);
    o->gamma_ppm = (uint32_t)pl_prng_below(&r, 1000001);
    o->staleness_max = (uint32_t)pl_prng_range(&r, 1, 4);
    o->apply = pl_prng_chance(&r, 700000) ? 0 : (uint32_t)pl_prng_range(&r, 1, 2);
    /* A learner whose step is longer than a third of the period gets each version when the next is already there: it
     * has nothing to contribute to in time, whatever the protocol does. */
    o->period_steps = pl_max32(o->period_steps, 6);
    o->speed_spread_permille = pl_min32(o->speed_spread_permille, 1000 * (o->period_steps / 3 - 1));
    o->local_data_permille = pl_prng_chance(&r, 300000) ? (uint32_t)pl_prng_below(&r, 1001) : 0;
    o->fault_mean_ms = (uint32_t)scaled(&r, 1000, 16000);
    if (!pl_prng_chance(&r, 100000))
        for (uint32_t bit = 1; bit <= PL_FAULT_GARBAGE; bit <<= 1)
            o->faults |= pl_prng_chance(&r, 350000) ? bit : 0;
}

#define RANGE(field, lo, hi)                                                                                 \
    {                                                                                                        \
        offsetof(struct pl_sim_options, field), o->field, lo, hi                                             \
    }

bool pl_sim_find_wrong(const struct pl_sim_options *o, struct pl_sim_wrong *wrong)
{
    const uint32_t each = (o->fragments + o->shards - 1) / pl_max32(o->shards, 1);
    const struct pl_sim_wrong range[] = {
        RANGE(learners, 1, 1000),
        RANGE(shards, 1, 16),
        RANGE(fragments, o->shards, 200),
        RANGE(quorum, 1, o->learners),
        RANGE(overlap_steps, 1, PL_PERIOD_STEPS_MAX),
        RANGE(period_steps, pl_max32(each, 1), PL_PERIOD_STEPS_MAX),
        RANGE(gamma_ppm, 0, 1000000),
        RANGE(staleness_max, 0, 1024),
        RANGE(apply, 0, 2),
        RANGE(faults, 0, 2 * PL_FAULT_GARBAGE - 1),
        RANGE(fault_mean_ms, 1, 1000000000),
        RANGE(duration_ns, PL_SEC, 1000000 * PL_SEC),
        RANGE(step_ns, PL_MS, 1000 * PL_SEC),
        RANGE(speed_spread_permille, 0, 100000),
        RANGE(latency_ns, PL_US, 100 * PL_SEC),
        RANGE(bandwidth, 100, UINT64_C(1) << 40),
        RANGE(dimensions, pl_max64(64, 2 * (uint64_t)o->fragments), 1 << 20),
        RANGE(local_data_permille, 0, 1000),
        RANGE(checkpoint_ns, PL_MS, 1000000 * PL_SEC),
        RANGE(merge_ns, 1, 1000 * PL_SEC),
        RANGE(sync_ns, 1, 1000 * PL_SEC),
        RANGE(step_tokens, 1, 1000000),
        RANGE(budget_tokens, 0, PL_COUNT_MAX),
    };
    for (size_t i = 0; i < sizeof range / sizeof range[0]; i++)
        if (range[i].value < range[i].lo || range[i].value > range[i].hi) {
            *wrong = range[i];
            return true;
        }
    return false;
}
