/* goodput/goodput.h - what share of a cluster's time becomes training, under failures: N chips in M learners.
 *
 * A discrete-event simulation without tensors or messages. It jumps from one failure, return or stall to the next, so
 * that its cost grows with the failures and not with chips x time: millions of chips over a month take a second.
 * goodput/protocol.h drives the real core/ state machines through a window of the same timeline. What every constant
 * means, and the figures, are in docs/goodput.md.
 *
 * Goodput: work that entered the model, over what all allocated chips could have done without any failure, wait or
 * difference in speed. Uptime: share of time in which some training step is progressing (PAPER 8.1).
 *
 * Times are seconds in double: nothing here is merged, hashed or replayed between machines. One seed gives one result.
 */
#ifndef PL_GOODPUT_GOODPUT_H
#define PL_GOODPUT_GOODPUT_H

#include "base/alloc.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    PL_GOODPUT_LEARNERS_MAX = 256,
    PL_GOODPUT_STALENESS_MAX =
        64, /* bins of the histogram of staleness, in inner steps; the last holds the rest */
};

enum pl_goodput_algorithm {
    PL_GOODPUT_DECOUPLED,     /* elastic learners that never wait for each other */
    PL_GOODPUT_DILOCO,        /* elastic learners with a barrier every period_steps */
    PL_GOODPUT_DATA_PARALLEL, /* one rigid job over all chips: a failure restarts all of it */
    PL_GOODPUT_DATA_PARALLEL_ELASTIC, /* one elastic job over all chips: a failure drops a slice and stalls all of it */
    PL_GOODPUT_ALGORITHMS,
};

enum pl_goodput_failures {
    PL_GOODPUT_POISSON, /* every chip fails at rate 1 / mtbi_s */
    PL_GOODPUT_WEIBULL, /* a slice's times between failures are Weibull with the same mean and failure_shape */
    PL_GOODPUT_TRACE,   /* as recorded */
    PL_GOODPUT_FAILURE_KINDS,
};

/* Of a positive time with a given mean. */
enum pl_goodput_spread {
    PL_GOODPUT_FIXED,
    PL_GOODPUT_EXPONENTIAL,
    PL_GOODPUT_LOGNORMAL,   /* shape: deviation of the logarithm */
    PL_GOODPUT_EXP_WEIBULL, /* shape k and power a: P(x) = (1 - exp(-(x/s)^k))^a, s from the mean */
    PL_GOODPUT_SPREADS,
};
struct pl_goodput_time {
    enum pl_goodput_spread spread;
    double mean_s;
    double shape, power;
};

/* One line of a recorded trace; times rise. */
struct pl_goodput_event {
    double t_s;
    uint32_t node; /* below trace_nodes */
    bool up;       /* else down */
};

/* How a learner that lost everything comes back with a model. */
enum pl_goodput_rejoin {
    PL_GOODPUT_REJOIN_PEER, /* the model and the optimizer's state over its link */
    PL_GOODPUT_REJOIN_DISK, /* from its own disk; the link brings only what the others did since */
    PL_GOODPUT_REJOINS,
};

/* A learner of its own size; options.sites holds one per learner, or is NULL for equal ones. */
struct pl_goodput_site {
    uint64_t chips;
    double speed;           /* of its chips, 1 is nominal */
    double link_bits_s;     /* 0: options.link_bits_s */
    double mtbi_s;          /* 0: options.mtbi_s */
    double outages_per_day; /* negative: options.outages_per_day */
};

struct pl_goodput_options {
    /* What runs. */
    uint64_t chips; /* all learners together */
    uint32_t learners;
    enum pl_goodput_algorithm algorithm;
    const struct pl_goodput_site *sites; /* [learners], borrowed; NULL: equal shares of chips */
    double days;
    uint64_t seed;

    /* What fails. */
    double mtbi_s; /* mean time between interruptions of one chip */
    enum pl_goodput_failures failures;
    double failure_shape; /* WEIBULL */
    const struct pl_goodput_event
        *trace; /* TRACE: borrowed; copies of it, shifted in time, fill all slices */
    uint32_t trace_count, trace_nodes;
    double trace_scale;         /* TRACE: a second of the trace lasts this long */
    uint32_t slice_chips;       /* chips that leave and return together */
    double domain_loss_per_day; /* correlated: every domain of every learner is lost this often a day */
    uint32_t domain_slices;     /* neighbouring slices lost at once */
    struct pl_goodput_time domain_repair;

    /* What a failure costs. */
    double detect_s;       /* from the failure until the job knows */
    double downscale_s;    /* then until it runs without the slice */
    double upscale_s;      /* stall to take returned slices in */
    double upscale_wait_s; /* a returned slice waits this long for a failure to take it in on the way */
    double restart_s;      /* a rigid job: from knowing until it runs on a replacement */
    struct pl_goodput_time repair; /* until a failed slice is back */
    double
        spare_share; /* of each learner's slices, kept warm: one takes a failed one's place in the same stall */
    double swap_s;   /* instead of downscale_s where a spare keeps the mesh as it is; 0: as downscale_s */
    enum pl_goodput_rejoin rejoin; /* after the loss of all slices of a learner */
    double disk_bytes_s;           /* of REJOIN_DISK, a learner's disks together */
    bool
        rebase; /* what becomes of local work when a new value comes: added to it, else overwritten. The fast mode
                    counts as rebase does; goodput/protocol.h shows what overwriting costs. */

    /* What is slow. */
    double speed_sd; /* deviation of a slice's speed around 1; a learner goes as its slowest slice */
    double stragglers_per_day; /* per learner */
    double straggler_factor;   /* its speed meanwhile, 0 to 1 */
    double straggler_s;        /* how long, exponential */
    double link_bits_s;        /* of a learner's link, each way; 0: no limit */
    double outages_per_day;    /* of a learner's link */
    struct pl_goodput_time outage;

    /* The training. */
    double step_s;          /* an inner step at nominal speed */
    double step_tokens;     /* of all learners together, at full size */
    double model_bytes;     /* what a whole model costs on the link, one way */
    uint32_t period_steps;  /* H */
    uint32_t overlap_steps; /* tau */
    uint32_t quorum;        /* K */
    uint32_t staleness_max; /* cycles of H after which work without the syncer counts no more */
};

struct pl_goodput_result {
    double goodput;       /* 0 to 1 */
    double uptime;        /* 0 to 1 */
    double useful_tokens; /* goodput x what a run without failures would have trained */
    double days;

    /* Where the rest went; with goodput they add up to 1. */
    double lost_stall;     /* detection, reconfiguration, restart */
    double lost_repair;    /* slices away, or waiting to be taken in */
    double lost_spares;    /* slices kept warm */
    double lost_steps;     /* steps in flight when a slice failed */
    double lost_wait;      /* for other learners or the link */
    double lost_rejoin;    /* coming back after the loss of a whole learner */
    double lost_overwrite; /* done and not merged */
    double lost_speed;     /* fast chips at the pace of slow ones, stragglers */

    uint64_t failures, stalls, upscales, outages, rejoins, events;
    uint64_t bytes; /* of memory at the most */
    uint32_t learners;
    double cohort[PL_GOODPUT_LEARNERS_MAX + 1]; /* share of time with so many learners at work */
    double staleness[PL_GOODPUT_STALENESS_MAX]; /* share of contributions that are so many steps old */
    double staleness_mean;
};

/* The constants that reproduce PAPER 8.2 (docs/goodput.md): 1.2 million chips, 8 learners, decoupled, 30 days. */
void pl_goodput_defaults(struct pl_goodput_options *o);

/* "decoupled", ...; NULL for a number that is none. And back: ALGORITHMS when there is none of that name. */
const char *pl_goodput_algorithm_name(enum pl_goodput_algorithm a);
enum pl_goodput_algorithm pl_goodput_algorithm_find(const char *name);

/* INVALID with one sentence that names the field and its range. */
enum pelago_status pl_goodput_check(const struct pl_goodput_options *o, struct pl_error *err);

/* The fast mode. Checks the options first. NOMEM, or INVALID. */
enum pelago_status pl_goodput_run(const struct pl_goodput_options *o, const struct pl_alloc *alloc,
                                  struct pl_goodput_result *out, struct pl_error *err);

#endif
