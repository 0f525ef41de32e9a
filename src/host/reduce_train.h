/* host/reduce_train.h - the trainer's thread of a synchronous learner: it trains, and waits for the others.
 *
 * Between this thread and the loop's there are one atomic number, which says how many buckets of which round are final,
 * and a lock with a condition, on which the thread waits: that is what synchronous means. While it waits, or is parked,
 * parameters and moments stand still and belong to the loop; the buckets that `ready` names belong to it as well.
 */
#ifndef PL_HOST_REDUCE_TRAIN_H
#define PL_HOST_REDUCE_TRAIN_H

#include "host/learner_account.h"
#include "host/reduce_plan.h"

#include <pthread.h>

struct pl_rtrainer_options {
    const struct pl_alloc *alloc;
    const struct pl_reduce_plan *plan;
    struct pl_trainer *trainer;
    struct pl_sequences source;
    struct pl_outer_rule outer; /* diloco */
    uint64_t pace_ns;
    double speed;
    /* From the thread, with everything standing: after a round, and at the end. false: *err says why, training ends. */
    bool (*boundary)(void *user, uint64_t rounds, struct pl_error *err);
    void (*bell)(void *user); /* from the thread: there is something to look at */
    void *user;
};

/* What the thread has done. */
struct pl_rtrainer_note {
    uint64_t round;         /* rounds in the state */
    uint64_t steps, tokens; /* of this process */
    double loss;
    uint64_t step_ns;
    uint64_t digest_round, digest;
    bool parked;   /* it waits for a state, or for the first go */
    bool finished; /* all rounds are done, and boundary() had them */
    bool ended;    /* there will be nothing more; failure says why */
};

struct pl_rtrainer {
    struct pl_rtrainer_options o;
    float *anchor, *momentum; /* diloco: [floats] */
    _Atomic uint64_t ready;   /* round << 24 | buckets that are final */
    struct pl_account blocked;
    _Atomic uint64_t trained_ns;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    pthread_t thread;
    bool has_thread; /* the loop's */
    /* Under the lock. */
    bool hold, stop;
    uint64_t released; /* rounds whose means are all there */
    struct pl_rtrainer_note note;
    struct pl_error failure;
    _Atomic uint32_t rank;
    uint64_t round; /* the loop's while the thread is parked, else the thread's */
    /* The thread's. */
    uint64_t begin_ns, slept_ns, blocked_ns, moving_ns, optimizer_ns, first_ns;
    uint32_t parts; /* graded() calls of this step */
};

enum { PL_RTRAINER_READY_BITS = 24 };

enum pelago_status pl_rtrainer_init(struct pl_rtrainer *t, const struct pl_rtrainer_options *o,
                                    struct pl_error *err);
/* The thread begins parked: pl_rtrainer_go lets it train. False: the system gives none. */
bool pl_rtrainer_start(struct pl_rtrainer *t);
/* Ends the thread: a wait or a sleep at once, a pass under way first. Then everything is the loop's. */
void pl_rtrainer_stop(struct pl_rtrainer *t); /* asks */
void pl_rtrainer_join(struct pl_rtrainer *t); /* waits */
void pl_rtrainer_release(struct pl_rtrainer *t);

void pl_rtrainer_note(struct pl_rtrainer *t, struct pl_rtrainer_note *out);
/* Buckets of this round that are final. */
uint32_t pl_rtrainer_ready(const struct pl_rtrainer *t, uint64_t round);
/* All means of this round are in the gradients. */
void pl_rtrainer_release_round(struct pl_rtrainer *t, uint64_t round);

/* The step under way is given up as soon as it waits; parked follows. */
void pl_rtrainer_park(struct pl_rtrainer *t);
/* Parked: the state is that of this round, with what follows from it. */
void pl_rtrainer_settle(struct pl_rtrainer *t, uint64_t round);
/* Parked: the state of the seed. */
void pl_rtrainer_reset(struct pl_rtrainer *t);
void pl_rtrainer_go(struct pl_rtrainer *t, uint32_t rank);

/* The state as one row of floats: parameters (in diloco the anchor), moments, in diloco the outer momentum. */
uint64_t pl_rtrainer_state_floats(const struct pl_rtrainer *t);
void pl_rtrainer_state_read(const struct pl_rtrainer *t, uint64_t at, uint64_t count, float *out);
void pl_rtrainer_state_write(struct pl_rtrainer *t, uint64_t at, uint64_t count, const float *in);

#endif
