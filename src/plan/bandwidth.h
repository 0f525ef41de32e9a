/* plan/bandwidth.h - how many Gbit/s a way of training needs so that chips compute for a given share of the time.
 *
 * The step is the graph that Streaming DiLoCo describes (PAPER 11.2): per layer forward, backward of the activations,
 * backward of the weights, reduce; the first layer has no backward of activations, hence 4L-1 nodes. All compute nodes
 * last equally long and run one after the other; one reduce at a time is on the link. The methods differ in which
 * layers are reduced after which step, and in the step before which the result must be there. Failures, latency
 * and speeds are goodput/'s and plan/plan.h's affair; here is only the race between computing and sending.
 */
#ifndef PL_PLAN_BANDWIDTH_H
#define PL_PLAN_BANDWIDTH_H

#include <stdint.h>

enum {
    PL_BANDWIDTH_GRID = 50, /* points of the published grid, 0.1 to 1000 Gbit/s */
    PL_BANDWIDTH_LAYERS_MAX = 1024,
    PL_BANDWIDTH_PERIOD_MAX = 1000,
};

enum pl_bandwidth_method {
    PL_BANDWIDTH_DATA_PARALLEL, /* every layer after every step */
    PL_BANDWIDTH_DILOCO,        /* every layer after every period */
    PL_BANDWIDTH_STREAMING,     /* fragments of layers spread over the period */
};

struct pl_bandwidth {
    enum pl_bandwidth_method method;
    uint32_t layers;
    double step_s;            /* of computing alone */
    double gbit;              /* on the link for one reduce of the whole model */
    uint32_t period;          /* H, in steps; data-parallel: 1 */
    uint32_t overlap;         /* tau: steps that may pass before the result is waited for */
    uint32_t fragment_layers; /* of a streaming fragment */
};

/* Gbit on one site's link, each way, for one all-reduce of `billions` of parameters over `sites` in a ring: 2 (1 - 1/R). */
double pl_bandwidth_ring_gbit(double billions, double bits, uint32_t sites);

/* Computing time over all time, once the run is steady. 0 < gbit_s. */
double pl_bandwidth_utilisation(const struct pl_bandwidth *b, double gbit_s);

/* The smallest rate with at least this utilisation, 0 < utilisation < 1, to a thousandth. */
double pl_bandwidth_needed(const struct pl_bandwidth *b, double utilisation);

/* The same on the published grid: the number of the first point that is enough, GRID where none is. And its points; the point
 * GRID lies one step beyond the last. */
uint32_t pl_bandwidth_needed_point(const struct pl_bandwidth *b, double utilisation);
double pl_bandwidth_point(uint32_t number);
uint32_t pl_bandwidth_nearest_point(double gbit_s); /* beyond 1000: GRID */

#endif
