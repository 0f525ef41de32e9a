/* plan/bandwidth.c - the graph of a step, walked in time. */
#include "plan/bandwidth.h"

#include "base/check.h"

#include <math.h>
#include <stdbool.h>

/* What is under way: reduces finish in the order in which they began, so one queue of (step, time) is enough. */
struct walk {
    const struct pl_bandwidth *b;
    double node_s;   /* of a compute node */
    double reduce_s; /* of a layer */
    double now, link_free;
    double arrival[PL_BANDWIDTH_PERIOD_MAX]; /* of what was reduced after step s of the cycle; 0: nothing */
    uint32_t fragments;
};

double pl_bandwidth_ring_gbit(double billions, double bits, uint32_t sites)
{
    pl_assert(sites > 0);
    return 2 * (1 - 1.0 / sites) * billions * bits;
}

/* The fragment reduced after step s of a period, or `fragments` for none. Offsets are spread evenly. Where a period has
 * fewer steps than there are fragments, fragments are merged first (begin), so no step has two. */
static uint32_t fragment_after(const struct walk *w, uint32_t s)
{
    const struct pl_bandwidth *b = w->b;
    if (b->method == PL_BANDWIDTH_DATA_PARALLEL)
        return 0;
    if (b->method == PL_BANDWIDTH_DILOCO)
        return s == b->period - 1 ? 0 : w->fragments;
    uint64_t p = ((uint64_t)s * w->fragments + b->period - 1) / b->period;
    return p < w->fragments && p * b->period / w->fragments == s ? (uint32_t)p : w->fragments;
}

/* Layers of a fragment are strided: p, p + P, p + 2P ... */
static bool holds(const struct walk *w, uint32_t fragment, uint32_t layer)
{
    return fragment < w->fragments && layer % w->fragments == fragment;
}

static void walk_step(struct walk *w, uint32_t s)
{
    const struct pl_bandwidth *b = w->b;
    uint32_t fragment = fragment_after(w, s);
    w->arrival[s] = 0;
    w->now += b->layers * w->node_s;
    for (uint32_t layer = b->layers; layer-- > 0;) {
        w->now += layer > 0 ? 2 * w->node_s : w->node_s;
        if (holds(w, fragment, layer)) {
            w->link_free = fmax(w->link_free, w->now) + w->reduce_s;
            w->arrival[s] = w->link_free;
        }
    }
}

/* Before step s of a cycle: what was reduced after step s - 1 - tau must be there. */
static void wait_before(struct walk *w, uint32_t s)
{
    uint32_t back = (1 + w->b->overlap) % w->b->period;
    w->now = fmax(w->now, w->arrival[(s + w->b->period - back) % w->b->period]);
}

static void begin(struct walk *w, const struct pl_bandwidth *b, double gbit_s)
{
    pl_assert(b->layers > 0 && b->layers <= PL_BANDWIDTH_LAYERS_MAX && gbit_s > 0 && b->step_s > 0);
    pl_assert(b->period > 0 && b->period <= PL_BANDWIDTH_PERIOD_MAX && b->overlap < b->period);
    pl_assert(b->method != PL_BANDWIDTH_DATA_PARALLEL || b->period == 1);
    *w = (struct walk){.b = b, .fragments = 1};
    w->node_s = b->step_s / (3 * b->layers - 1);
    w->reduce_s = b->gbit / b->layers / gbit_s;
    if (b->method == PL_BANDWIDTH_STREAMING) {
        pl_assert(b->fragment_layers > 0);
        w->fragments = (b->layers + b->fragment_layers - 1) / b->fragment_layers;
        w->fragments = w->fragments < b->period ? w->fragments : b->period;
    }
}

double pl_bandwidth_utilisation(const struct pl_bandwidth *b, double gbit_s)
{
    struct walk w;
    begin(&w, b, gbit_s);
    double began = 0;
    for (uint32_t cycle = 0; cycle < 2; cycle++) /* the first one only fills the link */
        for (uint32_t s = 0; s < b->period; s++) {
            wait_before(&w, s);
            if (s == 0)
                began = w.now;
            walk_step(&w, s);
        }
    wait_before(&w, 0);
    return b->period * b->step_s / (w.now - began);
}

double pl_bandwidth_needed(const struct pl_bandwidth *b, double utilisation)
{
    pl_assert(utilisation > 0 && utilisation < 1);
    double low = 1e-6, high = 1e9;
    while (high / low > 1.001) {
        double middle = sqrt(low * high);
        if (pl_bandwidth_utilisation(b, middle) >= utilisation)
            high = middle;
        else
            low = middle;
    }
    return high;
}

double pl_bandwidth_point(uint32_t number)
{
    pl_assert(number <= PL_BANDWIDTH_GRID);
    return pow(10, 4.0 * number / (PL_BANDWIDTH_GRID - 1) - 1);
}

uint32_t pl_bandwidth_needed_point(const struct pl_bandwidth *b, double utilisation)
{
    uint32_t low = 0, high = PL_BANDWIDTH_GRID; /* more rate is never worse */
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (pl_bandwidth_utilisation(b, pl_bandwidth_point(middle)) >= utilisation)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

uint32_t pl_bandwidth_nearest_point(double gbit_s)
{
    double number = (log10(gbit_s) + 1) * (PL_BANDWIDTH_GRID - 1) / 4;
    if (gbit_s > 1000)
        return PL_BANDWIDTH_GRID;
    return number <= 0 ? 0 : (uint32_t)(number + 0.5);
}
