/* host/reduce_host_int.h - what the files of the synchronous syncer share; see reduce_host.h. All of it belongs to the
 * loop's thread, but for what a job names. */
#ifndef PL_HOST_REDUCE_HOST_INT_H
#define PL_HOST_REDUCE_HOST_INT_H

#include "host/door_keeper.h"
#include "host/home.h"
#include "host/rate.h"
#include "host/reduce_host.h"
#include "host/reduce_plan.h"
#include "host/speed.h"
#include "host/work.h"

enum { PL_REDUCE_LEARNERS_MAX = 1024 };

/* ---- connections ---- */

/* A mean that one learner has still to get. */
struct pl_reduce_ticket {
    uint64_t round;
    uint32_t bucket;
};

struct pl_reduce_guest {
    struct pl_reduce_guest *next, *prev;
    struct pl_reduce_host *h;
    struct pl_conn *conn;
    struct pl_peer peer;
    bool entered, at_door;
    bool leaves; /* it has said goodbye */
    bool held;   /* its state is for somebody with no room for it now: we do not listen */
    uint64_t heard_ns;
    struct pl_rate questions;         /* at the door */
    struct pl_reduce_ticket *tickets; /* [ticket_max] a ring; once it has entered */
    uint32_t ticket_first, ticket_count;
};

/* ---- places ---- */

/* A learner's place; the one at index i has rank i. */
struct pl_seat {
    uint64_t identity;
    struct pl_reduce_guest *guest; /* NULL: it is lost, everybody waits */
    bool has;    /* it holds the run's state: of this round, or of the one before and will get the means */
    bool fresh;  /* as in ENTER */
    bool wants;  /* it is ready for the state */
    bool spoilt; /* a part of a state was sent to it */
    bool finished;
    uint64_t round; /* of what it holds, as in ENTER or TALLY */
    uint64_t joins;
    struct pl_msg_tally tally;
    struct pl_speed speed;        /* by its tallies */
    uint64_t bytes_in, bytes_out; /* of frames */
};

struct pl_reduce_transfer {
    bool active;
    uint64_t number;
    uint64_t donor, target; /* identities */
    uint64_t begin_ns;
};

/* ---- rounds ---- */

struct pl_reduce_slot {
    uint8_t **parts; /* [learners] encoded, by rank; NULL: not there yet */
    uint32_t have;
    bool merging, complete;
    uint8_t *mean; /* encoded; memory is kept from round to round */
};

struct pl_reduce_store {
    uint64_t round; /* PL_NONE64: none */
    uint32_t complete;
    struct pl_reduce_slot *slots; /* [buckets] */
};

struct pl_reduce_host {
    struct pl_syncer_host_options o;
    struct pl_alloc alloc;
    struct pl_posix_dir *dir, *door_dir; /* door_dir: of the same folder, for the door's worker */
    struct pl_settings settings;
    uint64_t settings_digest;
    struct pl_reduce_plan plan;
    struct pl_credentials own;
    char address[PL_ADDRESS_MAX];
    char bound[PL_ADDRESS_MAX]; /* where it listens, port and all */
    struct pl_listener *listener;
    struct pl_net_options net;
    struct pl_door_keeper *door;
    struct pl_rate strangers; /* lines about them */
    struct pl_reduce_guest *guests;
    uint32_t guest_count;
    uint64_t start_ns, placed_ns;

    struct pl_seat *seats; /* [plan.learners], in the order of identities */
    uint32_t seat_count;
    bool placed;      /* the round is known, and everybody's place */
    bool done, ended; /* the run is complete; ended: or has failed */
    bool finish_due;  /* an operator said so, or an earlier process */
    uint64_t round;   /* under way */
    struct pl_reduce_transfer transfer;
    uint64_t digest_round, digest;
    uint64_t lost, joins, transfers;

    struct pl_reduce_store stores[2]; /* by round % 2: this one and the one before */
    uint8_t **parts;                  /* [2][buckets][learners], the slots' */
    void *spare;                      /* free parts: a list through their first bytes */
    uint32_t generation;              /* results of jobs of an older one are dropped */
    struct pl_work_queue queue;
    uint64_t bytes_in, bytes_out; /* of frames, all connections */
    float *scratch;               /* [bucket_values] of the job that runs */
    uint32_t jobs;

    uv_timer_t sweep;
    bool sweeping, stopping;
    uint32_t closing; /* handles */
    void (*stopped)(void *user);
    void *stopped_user;
};

/* reduce_host.c */
void pl_rhost_log(struct pl_reduce_host *h, const char *format, ...);
void pl_rhost_fail(struct pl_reduce_host *h, const struct pl_error *why); /* ends the run for everybody */
void pl_rhost_complete(struct pl_reduce_host *h,
                       const char *text); /* it is over, for everybody and for ever */
void pl_rhost_stop_check(struct pl_reduce_host *h);
/* False: the connection is broken, closed() follows. */
bool pl_rguest_send(struct pl_reduce_guest *g, const struct pl_msg *msg);
/* Sends END and closes; the guest is gone then. */
void pl_rguest_dismiss(struct pl_reduce_guest *g, enum pl_reason reason, const char *text);

/* reduce_seats.c */
struct pl_seat *pl_rhost_seat(struct pl_reduce_host *h, uint64_t identity); /* NULL: it has none */
struct pl_seat *pl_rguest_seat(struct pl_reduce_guest *g);                  /* of one that has entered */
uint32_t pl_rhost_present(const struct pl_reduce_host *h);
void pl_rhost_enter(struct pl_reduce_guest *g, const struct pl_msg_enter *m);
void pl_rhost_left(struct pl_reduce_guest *g); /* an entered one is gone */
void pl_rhost_give(struct pl_reduce_guest *g, const struct pl_msg_give *m);
void pl_rhost_state(struct pl_reduce_guest *g, const struct pl_msg *m);
void pl_rhost_tally(struct pl_reduce_guest *g, const struct pl_msg_tally *m);
void pl_rhost_flow(struct pl_reduce_guest *g); /* a transfer's target has room again */

/* reduce_rounds.c */
enum pelago_status pl_rhost_rounds_init(struct pl_reduce_host *h, struct pl_error *err);
void pl_rhost_rounds_free(struct pl_reduce_host *h);
void pl_rhost_rounds_clear(struct pl_reduce_host *h, uint64_t round); /* this one begins, nothing is there */
void pl_rhost_reduce(struct pl_reduce_guest *g, const struct pl_msg_reduce *m);
void pl_rguest_pump(struct pl_reduce_guest *g);
uint32_t pl_rhost_ticket_max(const struct pl_reduce_host *h);

#endif
