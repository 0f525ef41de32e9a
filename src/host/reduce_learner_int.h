/* host/reduce_learner_int.h - what the files of the synchronous learner share; see reduce_learner.h. */
#ifndef PL_HOST_REDUCE_LEARNER_INT_H
#define PL_HOST_REDUCE_LEARNER_INT_H

#include "base/num.h"
#include "host/reduce_join.h"
#include "host/reduce_learner.h"
#include "host/reduce_train.h"
#include "host/work.h"
#include "net/bucket.h"

/* The buckets of one round, in their order: ready (the thread's), then encoding, encoded, sent, and the means. */
struct pl_reduce_exchange {
    uint64_t round;
    uint32_t encoding;  /* jobs begun */
    uint32_t encoded;   /* done */
    uint32_t sent;      /* on this connection */
    uint32_t got_count; /* means in the gradients */
    bool *got;          /* [buckets] */
    uint8_t *up; /* [buckets][PL_REDUCE_BYTES_MAX] encoded, kept for the case that they must be sent again */
    uint32_t generation;
};

struct pl_reduce_learner {
    struct pl_learner_host_options o;
    struct pl_alloc alloc;
    struct pl_reduce_kit kit;
    struct pl_rtrainer thread;
    bool has_thread;
    uint32_t rank;
    /* connection */
    struct pl_net_options net;
    struct pl_bucket bucket;
    struct pl_conn *conn; /* NULL: none */
    bool up;
    bool placed;  /* on this connection */
    bool settled; /* this process has had the run's state */
    uint64_t tally_ns, redial_ms;
    uint64_t bytes_up, bytes_down;      /* of frames */
    char last_trouble[PL_TEXT_MAX + 1]; /* said once */
    /* values */
    struct pl_reduce_exchange x;
    struct pl_work_queue queue;
    uint32_t jobs;
    struct {
        bool wanted; /* PLACE said so; GIVE goes out when the thread is parked */
        bool active;
        bool spoilt; /* a part has been written */
        uint64_t transfer, at;
    } load;
    struct {
        bool active;
        uint64_t transfer, round, at;
        float *values;  /* [GIVE_VALUES] */
        uint8_t *bytes; /* [PL_REDUCE_BYTES_MAX] */
    } give;
    uint64_t saved_ns;            /* the thread's: the last checkpoint */
    struct pl_rtrainer_note told; /* as of the last TALLY */
    struct pl_average step_ns;
    /* the loop */
    uv_async_t bell;
    uv_timer_t tick, redial;
    uint32_t handles;
    /* the end */
    bool over, quitting, finishing, told_done, orphan;
    struct pl_error why;
};

/* reduce_learner.c */
void pl_rlearn_log(struct pl_reduce_learner *l, const char *format, ...);
/* False: the connection is broken, closed() follows. */
bool pl_rlearn_send(struct pl_reduce_learner *l, const struct pl_msg *msg);
/* The end: OK, or why it may not take part. */
void pl_rlearn_over(struct pl_reduce_learner *l, enum pelago_status status, const char *text);
void pl_rlearn_wind_up(struct pl_reduce_learner *l);

/* reduce_send.c */
enum pelago_status pl_rlearn_values_init(struct pl_reduce_learner *l, struct pl_error *err);
void pl_rlearn_values_free(struct pl_reduce_learner *l);
void pl_rlearn_begin(struct pl_reduce_learner *l, uint64_t round); /* nothing of this round is ready */
void pl_rlearn_look(struct pl_reduce_learner *l);                  /* the thread has rung */
void pl_rlearn_pump(struct pl_reduce_learner *l);
void pl_rlearn_mean(struct pl_reduce_learner *l, const struct pl_msg_reduce *m);
void pl_rlearn_want_state(struct pl_reduce_learner *l);
void pl_rlearn_state(struct pl_reduce_learner *l, const struct pl_msg_state *m);
void pl_rlearn_give(struct pl_reduce_learner *l, const struct pl_msg_give *m);

#endif
