/* support/reduce_rig.h - a synchronous run in one process and on one loop: the syncer, learners, and peers that speak the
 * protocol by hand. Real sockets, real TLS, real folders; identities come straight from the run's authority. */
#ifndef PL_TESTS_REDUCE_RIG_H
#define PL_TESTS_REDUCE_RIG_H

#include "host/reduce_host.h"
#include "host/reduce_learner.h"
#include "host/reduce_plan.h"
#include "tempdir.h"

struct reduce_rig {
    struct tempdir dir;
    struct pl_alloc alloc;
    uv_loop_t loop;
    uv_timer_t watchdog;
    bool late;
    struct pl_settings settings;
    struct pl_reduce_plan plan;
    uint64_t settings_digest;
    struct pl_credentials ca;
    char folder[300], data[300], listen[64];
    struct pl_reduce_host *host;
    bool finished, failed, stopped;
    struct pl_error why;
    char log[16384]; /* the last lines */
};

/* A small model of several buckets; the settings may be changed before the first reduce_rig_serve. */
void reduce_rig_init(struct reduce_rig *r, enum pl_algorithm algorithm, uint32_t learners);
void reduce_rig_release(struct reduce_rig *r);
/* Makes the run where there is none, and starts the syncer, on the port it had before. */
void reduce_rig_serve(struct reduce_rig *r);
void reduce_rig_stop(struct reduce_rig *r);
/* Runs the loop until the flag is set; fails the test, with the log, after a minute. */
void reduce_rig_wait(struct reduce_rig *r, const bool *flag);
/* Until the count is reached. */
void reduce_rig_wait_count(struct reduce_rig *r, const uint32_t *count, uint32_t value);
/* Until the syncer's log has this text. */
void reduce_rig_wait_log(struct reduce_rig *r, const char *text);
void reduce_rig_status(struct reduce_rig *r, const char *member, double *value);

/* ---- a peer by hand ---- */

enum { REDUCE_PEER_BUCKETS = 16 };

struct reduce_peer {
    struct reduce_rig *rig;
    struct pl_credentials own;
    struct pl_conn *conn;
    bool opened, closed, is_placed, ended;
    struct pl_msg_place place;
    uint32_t end_code;
    char end_text[PL_TEXT_MAX + 1];
    uint32_t means; /* that came, each time */
    uint64_t mean_round;
    uint8_t *mean[REDUCE_PEER_BUCKETS]; /* the last of each bucket */
    uint32_t gives;
    struct pl_msg_give give;
    uint32_t states;
    uint64_t state_values;
};

void reduce_peer_init(struct reduce_peer *p, struct reduce_rig *r, uint64_t identity);
void reduce_peer_dial(struct reduce_peer *p);
void reduce_peer_enter(struct reduce_peer *p, uint64_t round, bool fresh); /* dials, too */
void reduce_peer_send(struct reduce_peer *p, uint64_t round, uint32_t bucket, const uint8_t *bytes);
void reduce_peer_message(struct reduce_peer *p, const struct pl_msg *msg);
void reduce_peer_drop(struct reduce_peer *p); /* as a broken line */
void reduce_peer_release(struct reduce_peer *p);

/* ---- a whole learner ---- */

struct reduce_learner_rig {
    struct reduce_rig *rig;
    struct pl_learner_host_options o;
    struct pl_reduce_learner *learner;
    char folder[300];
    bool done;
    struct pl_error why;
    char log[16384];
};

/* A folder with identity, settings and the syncer's address; the options may be changed before the start. */
void reduce_learner_init(struct reduce_learner_rig *l, struct reduce_rig *r, uint64_t identity);
void reduce_learner_begin(struct reduce_learner_rig *l);
/* Asks it to leave where it has not ended, waits, frees it. */
void reduce_learner_end(struct reduce_learner_rig *l);

#endif
