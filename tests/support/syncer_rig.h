/* support/syncer_rig.h - a syncer's host on loopback with islands around it, on one loop, in a folder of its own. Every
 * wait is for something to happen, with a watchdog behind it.
 */
#ifndef PL_TEST_SYNCER_RIG_H
#define PL_TEST_SYNCER_RIG_H

#include "host/syncer_host.h"
#include "island_rig.h"
#include "tempdir.h"

enum { RIG_ISLANDS = 16, RIG_LOG_BYTES = 1 << 16 };

struct syncer_rig {
    struct tempdir temp;
    char folder[PL_PATH_MAX];
    struct island_run run;
    uv_loop_t loop;
    struct pl_syncer_host_options options; /* change before syncer_rig_start */
    char listen[PL_ADDRESS_MAX];           /* the port is kept over restarts */
    struct pl_syncer_host *host;
    struct island islands[RIG_ISLANDS];
    uint32_t island_count;
    bool finished, failed, stopped;
    struct pl_error why;
    char log[RIG_LOG_BYTES];
    size_t log_len;
};

/* Settings are those of r->run, which may be changed between the two. */
void syncer_rig_init(struct syncer_rig *r, uint32_t learners);
void syncer_rig_create(struct syncer_rig *r);
void syncer_rig_start(struct syncer_rig *r);
void syncer_rig_stop(struct syncer_rig *r);
void syncer_rig_release(struct syncer_rig *r);

/* A member by the run's own authority, without the door. */
void syncer_rig_member(struct syncer_rig *r, enum pl_role role, uint64_t identity,
                       struct pl_credentials *out);
struct island *syncer_rig_island(struct syncer_rig *r, uint64_t identity); /* started */

/* Turns the loop until it holds; fails the test, with the log, when it does not in time. */
void syncer_rig_until(struct syncer_rig *r, bool (*holds)(struct syncer_rig *r));
/* Until every island has every fragment at this version. */
void syncer_rig_reach(struct syncer_rig *r, uint64_t version);
bool syncer_rig_logged(const struct syncer_rig *r, const char *text);

/* A number out of status, by the path train/json.h understands. */
uint64_t syncer_rig_count(struct syncer_rig *r, const char *member);
/* Versions and digests of all fragments, from status. */
void syncer_rig_versions(struct syncer_rig *r, uint64_t *versions, uint64_t *digests);

/* Calls fn(user) on a thread of its own while the loop turns: for what blocks. */
void syncer_rig_beside(struct syncer_rig *r, void (*fn)(void *user), void *user);

/* Dials with these credentials, says one message (NULL: nothing), and waits for the end of the connection: the code and
 * text of REFUSE or CLOSE, 0 where it ended without. */
struct rig_call {
    uint32_t code;
    char text[PL_TEXT_MAX + 1];
    bool closed;
    struct pl_conn *conn;
    const struct pl_msg *msg;
    uint32_t times, answers;
};
/* Dials and sends msg so many times (NULL: says nothing); out is filled as the loop runs. */
void syncer_rig_dial(struct syncer_rig *r, const struct pl_credentials *own, const struct pl_msg *msg,
                     uint32_t times, struct rig_call *out);
void syncer_rig_wait(struct syncer_rig *r, struct rig_call *call); /* until its connection is over */
/* Both, with one message. */
void syncer_rig_call(struct syncer_rig *r, const struct pl_credentials *own, const struct pl_msg *msg,
                     struct rig_call *out);

#endif
