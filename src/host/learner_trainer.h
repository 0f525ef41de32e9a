/* host/learner_trainer.h - the trainer's thread: steps that never wait for anything of ours.
 *
 * Between this thread and the loop's there are a sequence number (learner_steady.h), three rings and a few
 * atomics:
 *
 *   notes    thread -> loop   one for every inner step, and with it the orders that were carried out
 *   orders   loop -> thread   new values to add, copies to take at the boundary between two steps
 *   units    loop -> thread   work units
 *
 * A note is in the ring before the number says that its step's parameters stand, so whoever has drained the
 * ring knows of every step a copy can hold. Orders are carried out when the gradients are complete and the
 * optimizer is about to move every parameter anyway; adding new values takes a fraction of a millisecond a
 * step at most, the rest waits for the next step. When there is no work unit the thread goes on with
 * sequences of a range of its own: it never waits for data.
 *
 * Without a thread (a learner that has stopped training, or a stub) the loop's thread does the same by
 * pl_ltrainer_settle and pl_ltrainer_stub_step.
 */
#ifndef PL_HOST_LEARNER_TRAINER_H
#define PL_HOST_LEARNER_TRAINER_H

#include "host/layout.h"
#include "host/learner_account.h"
#include "host/learner_ring.h"
#include "host/learner_steady.h"
#include "optim/apply.h"
#include "train/trainer.h"

#include <pthread.h>

enum pl_order_kind {
    PL_ORDER_APPLY = 1, /* add a new value to a fragment's parameters */
    PL_ORDER_COPY,      /* copy a fragment's parameters */
    PL_ORDER_WHOLE,     /* copy all parameters, if the number is still the one wanted */
};

/* What goes with the parameters at one moment. */
struct pl_ltrainer_state {
    uint64_t steps;              /* inner steps of this process */
    uint64_t own_sequence;       /* the next of its own range */
    uint64_t inner_step;         /* the optimizer's */
    struct pl_progress progress; /* the trainer's */
};

/* The loop's memory; the thread has it from the ring until it comes back with a note. */
struct pl_order {
    enum pl_order_kind kind;
    uint32_t fragment;       /* APPLY, COPY */
    enum pl_apply_mode mode; /* APPLY */
    float alpha;
    const float *fresh, *base; /* APPLY: the new value; what is subtracted (rebase) */
    float *to;                 /* COPY, WHOLE */
    uint64_t want;             /* WHOLE: number */
    /* Out. */
    struct pl_ltrainer_state state; /* when it was carried out */
    bool good;
    /* The thread's. */
    uint64_t values; /* done so far */
    struct pl_order *next;
};

struct pl_note {
    uint64_t number;         /* the even number that follows */
    uint32_t steps;          /* in it: 1; 0 for one that failed; more when the ring was full meanwhile */
    uint64_t unit_tokens;    /* used of all units ever handed over, in their order */
    uint64_t step_ns;        /* of the last, pacing included */
    double loss;             /* of the last */
    struct pl_order *orders; /* carried out, oldest first */
};

struct pl_ltrainer_unit {
    uint64_t unit;
    uint64_t cursor; /* tokens */
};

struct pl_ltrainer_options {
    const struct pl_alloc *alloc;
    const struct pl_layout *layout;
    struct pl_trainer *trainer; /* NULL: a stub; its parameters are then theta */
    float *theta;
    struct pl_sequences source; /* what the trainer learns from */
    uint32_t seq, unit_sequences;
    uint64_t step_tokens;
    uint64_t own_sequence;    /* the first of its own range */
    uint32_t notes;           /* steps the loop may fall behind before copies are held back; 0: many */
    uint64_t pace_ns;         /* 0: none */
    double speed;             /* 1: as fast as it can */
    void (*bell)(void *user); /* from the thread: there is a note, or it has ended */
    void *user;
};

struct pl_ltrainer {
    struct pl_ltrainer_options o;
    /* Moved by the thread while the number is odd; others read it by pl_steady_copy. */
    float *theta;
    struct pl_ltrainer_state state;
    struct pl_steady steady;
    struct pl_ring notes, orders, units;
    struct {
        _Atomic uint64_t number, tokens, rate, at_ns;
    } clock;
    struct pl_account blocked, blocked_wall; /* without and with what other threads took meanwhile */
    _Atomic uint64_t trained_ns;             /* from the first step on */
    atomic_bool stop, ended;
    pthread_mutex_t lock; /* for the pacing sleep alone; taken by others only to stop */
    pthread_cond_t wake;
    pthread_t thread;
    bool has_thread; /* the loop's */
    /* The thread's own. */
    struct pl_note held; /* not yet in the ring */
    struct pl_order *held_last;
    struct pl_order *todo, *todo_last;
    struct pl_ltrainer_unit unit; /* in use; unit PL_NONE64: none */
    uint64_t unit_tokens;
    uint64_t own_sequence;     /* the next of its own range, those of the step under way taken */
    uint64_t first_ns;         /* of the first step */
    struct pl_watched held_up; /* in the step under way */
    bool begun;                /* with the first step */
    bool unaware;              /* came back, and has not heard where the run is */
    bool unpacked;             /* values were applied that the model's packed weights do not have yet */
    bool moved;
    uint32_t failures;
    struct pl_error failure; /* valid once ended; status OK: it was told to stop */
};

/* False: no memory. */
bool pl_ltrainer_init(struct pl_ltrainer *t, const struct pl_ltrainer_options *o);
/* There is no thread any more. */
void pl_ltrainer_release(struct pl_ltrainer *t);

/* Starts the thread. False: the system gives none. */
bool pl_ltrainer_start(struct pl_ltrainer *t);
/* No step begins after this; one under way ends. A pacing sleep ends at once. */
void pl_ltrainer_stop(struct pl_ltrainer *t);
/* The thread has ended (it was stopped, or failed): takes it back. The loop drains the notes once more
 * afterwards. */
bool pl_ltrainer_ended(const struct pl_ltrainer *t);
void pl_ltrainer_join(struct pl_ltrainer *t);

/* How long a step lasts whose computation took so long. */
uint64_t pl_ltrainer_paced_ns(const struct pl_ltrainer *t, uint64_t spent_ns);

/* Loop. False: there is none. */
bool pl_ltrainer_note(struct pl_ltrainer *t, struct pl_note *note);
void pl_ltrainer_order(struct pl_ltrainer *t, struct pl_order *order);
void pl_ltrainer_unit(struct pl_ltrainer *t, uint64_t unit, uint64_t cursor);
void pl_ltrainer_clock(struct pl_ltrainer *t, uint64_t tokens, uint64_t rate, uint64_t now_ns);

/* Loop, while there is no thread: carries out all orders now; a note brings them back. */
void pl_ltrainer_settle(struct pl_ltrainer *t);
/* Loop, stub: one step with made-up changes, of a few values or (dense) of all. */
void pl_ltrainer_stub_step(struct pl_ltrainer *t, uint64_t step_ns, bool dense);

/* The tokens of the run's clock at that time; PL_NONE64 while it is being written. */
uint64_t pl_ltrainer_clock_at(struct pl_ltrainer *t, uint64_t now_ns);
/* Where the range of a learner's own begins. */
uint64_t pl_ltrainer_own_range(uint64_t identity, uint32_t seq);

#endif
