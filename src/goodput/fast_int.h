/* goodput/fast_int.h - inside of the fast mode, for its files, goodput/protocol.c and tests.
 *
 *   fast.c          the learners made and freed, the loop, the result
 *   fast_learner.c  what a failure, a return, a stall's end does to one learner
 *   fast_group.c    what learners do to each other: barrier, links, how many are at work
 *   fast_trace.c    a recorded trace spread over the slices
 *
 * A learner is always in one mode, and its time goes into the accounts of that mode when it is settled: before
 * anything about it changes.
 */
#ifndef PL_GOODPUT_FAST_INT_H
#define PL_GOODPUT_FAST_INT_H

#include "base/heap.h"
#include "goodput/draw.h"
#include "goodput/goodput.h"

enum pl_fast_mode {
    PL_FAST_RUN,
    PL_FAST_STALL,   /* detection and reconfiguration, or restart */
    PL_FAST_WAIT,    /* for the other learners or the link */
    PL_FAST_STARVED, /* no slice is left, or too few for a rigid job */
    PL_FAST_REJOIN,  /* all was lost: a model is fetched */
};

enum pl_fast_slice {
    PL_FAST_ACTIVE,  /* in the mesh */
    PL_FAST_SPARE,   /* kept warm */
    PL_FAST_WAITING, /* back, to be taken in */
    PL_FAST_DEAD,
    PL_FAST_LIVING = PL_FAST_DEAD,
};

enum pl_fast_stream {
    PL_FAST_FAILURES,
    PL_FAST_REPAIRS,
    PL_FAST_PACE,
    PL_FAST_LINK,
    PL_FAST_DOMAIN,
    PL_FAST_STREAMS
};

/* Seconds of a learner, or of the share of its slices named. */
struct pl_fast_books {
    double useful, stall, repair, spares, steps, wait, rejoin, overwrite, speed;
};

struct pl_fast_trace_event {
    uint64_t at_ns;
    uint32_t slice;
    bool up;
};

struct pl_fast_learner {
    /* what it is */
    uint32_t index, slices;
    uint32_t target; /* slices in use at full size; the others are spares */
    double weight;   /* share of all there is */
    double fail_s;   /* mean time between failures of all its slices */
    double rejoin_s, comm_s, outages_per_day;
    double speed; /* of its slowest slice, mean of all 1 */
    struct pl_prng prng[PL_FAST_STREAMS];
    struct pl_draw slice_life; /* WEIBULL */

    /* its slices */
    uint8_t *slice; /* [slices] enum pl_fast_slice */
    uint32_t *list[PL_FAST_LIVING],
        *place; /* [slices] those of each kind that live; a slice's place in its list */
    uint32_t count[PL_FAST_LIVING];
    void *returns_memory, *fails_memory;
    struct pl_heap returns, fails; /* [slices] by time; fails: WEIBULL */
    struct pl_fast_trace_event *trace;
    uint32_t trace_count, trace_at;

    /* what it does */
    enum pl_fast_mode mode;
    bool straggling, link_down, arrived, lost_all;
    bool step_lost; /* the last stall interrupted a step */
    uint64_t since_ns;
    uint64_t stall_began_ns;
    uint64_t fail_ns, mode_end_ns, upscale_ns, straggle_ns, link_ns, domain_ns,
        barrier_ns;     /* PL_NEVER: none */
    double phase;       /* of the step in progress, 0 to 1 */
    double round_steps; /* left until the barrier */
    double unmerged; /* useful and in nobody's hands but its own since its link broke; of what is measured */
    uint64_t link_broke_ns;
    double link_broke_merging_s; /* merging_s then */
    double stale_steps;          /* contributions still to come that are stale_age old */
    double stale_age;
    struct pl_fast_books books;
};

struct pl_fast {
    const struct pl_goodput_options *o;
    struct pl_alloc alloc;
    struct pl_draw repair, domain_repair, outage;
    uint32_t count; /* learners that run by themselves: 1 for data parallel */
    struct pl_fast_learner *learners;
    void *heap_memory;
    struct pl_heap heap;       /* learners by their next event; item `count` is the end of a barrier */
    uint64_t now_ns, began_ns; /* measured from began_ns */
    uint32_t running, joined;  /* in RUN; ... with the link up */
    uint64_t counted_ns;
    double merging_s; /* of all time, with enough learners joined for the quorum: versions advance */
    double up_s, cohort_s[PL_GOODPUT_LEARNERS_MAX + 1];
    double stale[PL_GOODPUT_STALENESS_MAX], stale_sum, contributions;
    struct pl_goodput_result counts; /* failures and the like */
    uint64_t bytes;
    /* Called after anything about a learner changed; may be NULL. */
    void (*watch)(void *user, const struct pl_fast *f, const struct pl_fast_learner *l);
    void *watch_user;
};

#define PL_FAST_SECOND 1e9

enum pelago_status pl_fast_init(struct pl_fast *f, const struct pl_goodput_options *o,
                                const struct pl_alloc *alloc);
void pl_fast_release(struct pl_fast *f);
void pl_fast_until(struct pl_fast *f, uint64_t end_ns);
void pl_fast_forget(struct pl_fast *f); /* measure from now on */
void pl_fast_result(struct pl_fast *f, struct pl_goodput_result *out);

/* fast_learner.c */
uint64_t pl_fast_after(const struct pl_fast *f, double s);
void pl_fast_settle(struct pl_fast *f, struct pl_fast_learner *l);
void pl_fast_begin(struct pl_fast *f, struct pl_fast_learner *l); /* its first timers */
void pl_fast_fire(struct pl_fast *f, struct pl_fast_learner *l);  /* whatever is due now */
void pl_fast_arm(struct pl_fast *f, struct pl_fast_learner *l);
void pl_fast_move_slice(struct pl_fast_learner *l, uint32_t i, enum pl_fast_slice to);
void pl_fast_form_mesh(struct pl_fast_learner *l); /* of what is there */
double pl_fast_pace(const struct pl_fast *f, const struct pl_fast_learner *l);
bool pl_fast_rigid(const struct pl_fast *f);
bool pl_fast_one_job(const struct pl_goodput_options *o); /* over all sites: data parallel */

/* fast_group.c */
void pl_fast_enter(struct pl_fast *f, struct pl_fast_learner *l, enum pl_fast_mode mode);
void pl_fast_count(struct pl_fast *f); /* the time since the last change of running and joined */
void pl_fast_link(struct pl_fast *f, struct pl_fast_learner *l);
void pl_fast_arrive(struct pl_fast *f, struct pl_fast_learner *l);
void pl_fast_barrier(struct pl_fast *f);
void pl_fast_barrier_over(struct pl_fast *f);
void pl_fast_stale(struct pl_fast *f, struct pl_fast_learner *l, double steps);

/* fast_trace.c */
double pl_fast_trace_away(const struct pl_goodput_options *o); /* share of the nodes, on average */
enum pelago_status pl_fast_trace_spread(struct pl_fast *f, struct pl_fast_learner *l, uint64_t first_slice);

void *pl_fast_zero(struct pl_fast *f, size_t count, size_t size); /* counted */

#endif
