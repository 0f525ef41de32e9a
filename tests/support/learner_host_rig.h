/* support/learner_host_rig.h - a small run on this machine: a syncer in a child process, learners on a loop
 * of the test.
 *
 * The model is tiny and learns bytes of a made-up text. The child ends when it is told to, and when the test
 * is gone.
 */
#ifndef PL_TESTS_LEARNER_HOST_RIG_H
#define PL_TESTS_LEARNER_HOST_RIG_H

#include "host/learner_host.h"
#include "tempdir.h"

#include <sys/types.h>

enum { RUN_RIG_LEARNERS = 64 };

struct rig_learner;

struct run_rig {
    struct tempdir dir;
    struct pl_alloc alloc;
    struct pl_settings settings;
    char data[300];
    struct pl_buf tokenizer;
    uv_loop_t loop;
    struct rig_learner
        *started[RUN_RIG_LEARNERS]; /* learners that a failed test has left behind are stopped in the end */
    /* the syncer: home, and one more shard where the settings say so */
    struct {
        pid_t pid;
        int control; /* closing it ends the child */
        char address[128];
    } shards[2];
    char token[PL_TOKEN_TEXT_MAX];       /* for any number of learners */
    char shard_token[PL_TOKEN_TEXT_MAX]; /* for the other shard */
};

/* Everything but the syncer; the settings may be changed before it is started. */
void run_rig_init(struct run_rig *r);
void run_rig_release(struct run_rig *r);

/* A new run, or the one that is there, on the ports it had; all shards of it. */
void run_rig_syncer(struct run_rig *r);
void run_rig_syncer_kill(struct run_rig *r);                 /* as a power cut would */
void run_rig_shard_start(struct run_rig *r, uint32_t shard); /* one of them, which was killed */
void run_rig_shard_kill(struct run_rig *r, uint32_t shard);

/* A learner of this rig; it must outlive the test that starts it. */
struct rig_learner {
    struct run_rig *rig;
    struct pl_learner_host *host;
    struct pl_learner_host_options o;
    char folder[300];
    bool done;
    struct pl_error why;
    char log[8192]; /* the last lines */
};
/* Options as the test changed them; o.folder "NAME" under the rig's. */
enum pelago_status rig_learner_start(struct rig_learner *l, struct run_rig *r, const char *name,
                                     struct pl_error *err);
void rig_learner_options(struct rig_learner *l, struct run_rig *r, const char *name);
void rig_learner_free(struct rig_learner *l);

/* Runs the loop until the condition holds. False: it did not within so many seconds. */
bool run_rig_until(struct run_rig *r, bool (*holds)(void *user), void *user, unsigned seconds);
bool rig_learner_is_done(void *learner);

#endif
