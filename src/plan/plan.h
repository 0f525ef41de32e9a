/* plan/plan.h - what a run over given sites and links should be set to, and what to expect of it.
 *
 * Every site is one learner. A plan is fragments P, period H, overlap tau, a codec each way and shards of the syncer. It is
 * found by trying all combinations of a short list with a model of closed formulas: failures (plan/failures.c), links
 * (plan/evaluate.c), loss (plan/quality.h). plan/simulate.h answers the same question by playing it through, and a test
 * holds the two within 5%. Nothing here trains, measures or asks a network.
 */
#ifndef PL_PLAN_PLAN_H
#define PL_PLAN_PLAN_H

#include "base/status.h"
#include "codec/codec.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    PL_PLAN_SITES_MAX = 64,
    PL_PLAN_NAME_MAX = 40, /* with the final zero */
};

struct pl_plan_site {
    char name[PL_PLAN_NAME_MAX];
    uint64_t chips;
    double tflops;      /* that one chip sustains in training */
    double link_bits_s; /* to the syncer, each way */
    double latency_s;   /* there and back */
    double mtbi_s;      /* mean time between interruptions of one chip */
    double outages_per_day;
    double price;  /* of a chip for an hour */
    double egress; /* of a GB over its link, either way */
};

/* What the plan may not change; 0: it may. */
struct pl_plan_choice {
    uint32_t fragments, period;
    enum pl_codec up, down;
};

struct pl_plan_input {
    double params, tokens;
    double batch_tokens; /* of one learner's step */
    uint32_t site_count;
    struct pl_plan_site sites[PL_PLAN_SITES_MAX];
    uint32_t slice_chips; /* chips that fail and return together */
    double repair_s, outage_s;
    double deadline_s; /* 0: none */
    uint32_t quorum;
    double syncer_bytes, syncer_bits_s; /* memory and link of one host of the syncer */
    struct pl_plan_choice fixed;
};

/* Of one site under a choice. */
struct pl_plan_site_outcome {
    double step_s;
    double tokens_s;       /* without any failure */
    double goodput;        /* share of them that enters the model */
    uint32_t stride;       /* takes part in every stride-th cycle */
    double link_load;      /* share of its link's rate in use, the busier way */
    double exchange_s;     /* from copying a fragment to having its merge */
    double interval_steps; /* own steps between two merges of a fragment */
    double overlap_steps;  /* own steps that hide an exchange */
    double efficiency;     /* share of tokens that counts against data-parallel training */
    double hours, cost;    /* of the run; cost with its traffic */
    double gigabytes;      /* over its link, both ways */
};

/* Of a choice. */
struct pl_plan_outcome {
    struct pl_plan_choice choice;
    uint32_t overlap; /* tau */
    double tick_s;    /* of the syncer's clock: the step of the quorum's slowest */
    double cycle_s;   /* in which every fragment is exchanged once */
    double goodput, efficiency;
    double tokens_s; /* that count */
    double time_s;   /* until the tokens are trained to the loss that data-parallel training would have */
    double cost;
    struct pl_plan_site_outcome sites[PL_PLAN_SITES_MAX];
};

enum pl_plan_bottleneck {
    PL_PLAN_CHIPS,    /* more chips make it shorter, nothing else does much */
    PL_PLAN_LINKS,    /* of the site named */
    PL_PLAN_FAILURES, /* at the site named */
    PL_PLAN_SYNCER,   /* its link: all shards that a run can have are not enough */
};

/* What one site brings: the run with it against the best plan without it. */
struct pl_plan_worth {
    double costs;  /* what it costs in the plan */
    double brings; /* what the others cost less because the run is shorter */
    double hours_without;
};

struct pl_plan {
    struct pl_plan_outcome best;
    uint32_t shards;
    double shard_bytes, shard_bits_s; /* memory; traffic each way */
    enum pl_plan_bottleneck bottleneck;
    uint32_t bottleneck_site;
    double bottleneck_share;                       /* of the time that would be saved without it */
    bool priced;                                   /* else cost is in hours of the average chip */
    struct pl_plan_worth worth[PL_PLAN_SITES_MAX]; /* of a plan with several sites */
};

/* Sites without names, one interruption a year and chip, slices of 4 chips, no outage, quorum 1, hosts of 64 GB and 10 Gbit/s. */
void pl_plan_defaults(struct pl_plan_input *in);
/* Of one learner's step, as the scaling laws advise (PAPER 11.5). */
double pl_plan_batch(double params, uint32_t learners);

/* What may stand in a field of a site, by the name of its option: "1 kbit/s to 1000 Tbit/s". */
const char *pl_plan_expected(const char *name);

/* INVALID with one sentence that names the field and its range. */
enum pelago_status pl_plan_check(const struct pl_plan_input *in, struct pl_error *err);

/* The best plan. INVALID also when no choice moves a fragment over some link in its period. */
enum pelago_status pl_plan_make(const struct pl_plan_input *in, struct pl_plan *out, struct pl_error *err);

/* What a full choice (nothing 0) gives. INVALID with a sentence when a link cannot carry it. in was checked. */
enum pelago_status pl_plan_evaluate(const struct pl_plan_input *in, const struct pl_plan_choice *choice,
                                    struct pl_plan_outcome *out, struct pl_error *err);

/* Share of allocated time that becomes training at a site: stalls, slices away, outages longer than the syncer waits. */
double pl_plan_goodput(const struct pl_plan_input *in, uint32_t site, double step_s, double cycle_s,
                       double model_bits);

/* The lists tried: the number of entries, and one. */
uint32_t pl_plan_periods(void);
uint32_t pl_plan_period(uint32_t i); /* fragments come from the same list */

#endif
