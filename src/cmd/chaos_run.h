/* cmd/chaos_run.h - inside of `pelago chaos DIR`: cmd_chaos.c makes the plan, chaos_run.c keeps its time, chaos_act.c does
 * what it says, and writes that down. */
#ifndef PL_CMD_CHAOS_RUN_H
#define PL_CMD_CHAOS_RUN_H

#include "base/buf.h"
#include "chaos/schedule.h"
#include "cmd/chaos_cluster.h"

#include <stdio.h>

/* A process that gets a share of the time only: stopped and continued PL_SLOW_PERIOD by period. */
struct pl_slow {
    bool syncer;
    uint32_t number;
    uint32_t percent; /* 0: free */
    bool stopped;
    uint64_t edge_ns;
};

struct pl_chaos_run {
    struct pl_cluster *cluster;
    const struct pl_alloc *alloc;
    const char *proxy;       /* the proxy's control socket */
    int log;                 /* file descriptor */
    struct pl_buf unwritten; /* lines that a full disk did not take */
    FILE *say;               /* lines for a person; NULL: none */
    uint64_t start_ns;
    struct pl_slow *slow;
    uint32_t slow_count, slow_room;
    uint64_t done;           /* actions */
    uint64_t late;           /* of these, what they were for was not there any more, which is no failure */
    uint64_t failed;         /* and those that could not be done */
    bool proxy_answered;     /* then one that does not any more has gone with its run */
    char first_failure[320]; /* "learner 2: why"; failed > 0 */
};

#define PL_SLOW_PERIOD (20 * PL_MS)

/* chaos_act.c: does it and writes it down; a failure is written down too. */
void pl_chaos_act(struct pl_chaos_run *r, const struct pl_chaos_event *ev);
/* Everything that could have been left behind. The exit code: a child that is still held down is a failure. */
int pl_chaos_heal_all(struct pl_chaos_run *r, struct pl_error *err);
/* Throttled processes whose edge has come; returns the time of the next, PL_NEVER. */
uint64_t pl_chaos_throttle(struct pl_chaos_run *r, uint64_t now_ns);

/* chaos_log.c: one JSON line. pid 0: none. */
enum pelago_status pl_chaos_log_open(struct pl_chaos_run *r, const char *path, struct pl_error *err);
void pl_chaos_log(struct pl_chaos_run *r, const char *action, const char *target, int pid, bool ok,
                  const char *text);
bool pl_chaos_log_close(struct pl_chaos_run *r); /* false: lines were lost */

/* chaos_run.c: the whole plan in real time; returns the exit code, not OK with a sentence where an action failed. */
int pl_chaos_perform(struct pl_chaos_run *r, const struct pl_chaos_plan *plan, struct pl_error *err);

#endif
