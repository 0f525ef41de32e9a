/* cmd/run_cluster.h - the processes of one `pelago run` and what is seen of them. For cmd_run.c and its parts.
 *
 *   cmd_run.c       from begin to end: folder, processes, evaluation
 *   run_cluster.c   which processes there are; starting, restarting, stopping; run.json
 *   run_proxy.c     --proxy: a proxy between learners and syncer
 *   run_totals.c    what the syncers count, over their restarts
 *   run_show.c      the status that comes in, the screen, plain lines
 *   run_report.c    evaluation, sample, report
 *
 * Nothing here waits for a syncer: its state comes from a child, `pelago status --json --every`, through a pipe.
 */
#ifndef PL_CMD_RUN_CLUSTER_H
#define PL_CMD_RUN_CLUSTER_H

#include "cmd/cluster_view.h"
#include "cmd/run_args.h"
#include "cmd/run_children.h"
#include "cmd/run_history.h"
#include "cmd/run_totals.h"
#include "cmd/screen.h"
#include "host/settings.h"
#include "net/address.h"

enum { PL_RUN_STATUS_BYTES_MAX = 1 << 20, PL_RUN_WORD_MAX = 32 };

struct pl_run_process {
    struct pl_child child;
    char folder[PL_PATH_MAX];
    char stats[PL_PATH_MAX];
    char pace[PL_RUN_ITEM_MAX], speed[PL_RUN_ITEM_MAX], max_up[PL_RUN_ITEM_MAX], shard[PL_RUN_WORD_MAX];
    char address[PL_ADDRESS_MAX]; /* of its port at the proxy */
    uint64_t identity;            /* of a learner, once it has one */
};

/* --proxy */
struct pl_run_proxy {
    struct pl_child child; /* pelago chaos proxy */
    char to[PL_ADDRESS_MAX], ports[PL_RUN_WORD_MAX];
    char state[PL_PATH_MAX], control[PL_PATH_MAX]; /* OUT/proxy.json, OUT/proxy.sock */
};

struct pl_run {
    struct pl_run_args args;
    struct pl_settings settings;
    struct pl_alloc alloc;
    struct pl_posix_dir *folder; /* OUT, locked while this process is at work in it */
    char program[PL_PATH_MAX];
    char home[PL_PATH_MAX], log[PL_PATH_MAX];                  /* OUT/syncer, OUT/log */
    char learner_token[PL_PATH_MAX], shard_token[PL_PATH_MAX]; /* "@OUT/..." */
    char threads[PL_RUN_WORD_MAX], relaxed[PL_RUN_WORD_MAX], checkpoint[PL_RUN_WORD_MAX],
        stub[PL_RUN_WORD_MAX];
    struct pl_run_process *syncers, *learners; /* [settings.shards], [settings.learners] */
    struct pl_child watcher;                   /* pelago status */
    struct pl_run_proxy proxy;
    int pipe_in, pipe_out;
    struct pl_buf status; /* a line that is coming in */
    struct pl_cluster_view view;
    struct pl_view_page page;
    struct pl_screen screen;
    struct pl_run_history history;
    struct pl_run_totals totals;           /* of what the syncers count, over their restarts */
    bool time_is_past;                     /* it goes on without the --time of before */
    uint64_t begin_ns, drawn_ns, heard_ns; /* heard: the last status */
    uint64_t kept_ns;                      /* when totals were written to run.json */
    uint64_t ends_at_s;                    /* the date at which --time is over; 0: without */
    bool known;                            /* view holds a status */
    bool ending;                           /* no process is started again */
    bool moved;                            /* processes came or went: run.json is to be written */
    pid_t home_told;                       /* the process that was told to leave at the end */
    struct pl_error err;
};

/* 0, or the number of the signal that asks us to end. */
int pl_run_caught(void);
/* Nothing is left that would have to stop: from now on a signal ends this process, with a sentence. */
void pl_run_heed_at_end(void);

/* run_cluster.c */
enum pelago_status pl_run_prepare(struct pl_run *r); /* words, names, signals; settings are known */
enum pelago_status pl_run_start(struct pl_run *r, struct pl_run_process *p);
/* One turn: waits for at most ms, takes what came, starts again what died, shows. Not OK: a process cannot work; the
 * sentence is its own. */
enum pelago_status pl_run_turn(struct pl_run *r, int ms);
void pl_run_tell(struct pl_run *r, bool learners, int number);
bool pl_run_alive(const struct pl_run *r, bool learners); /* is one of them running? */
bool pl_run_complete(const struct pl_run *r);             /* every syncer left with 0 */
double pl_run_seconds(const struct pl_run *r);
void pl_run_write_json(struct pl_run *r);
void pl_run_release(struct pl_run *r);

/* run_proxy.c: all of them do nothing without --proxy. Start comes after the home shard's address is known and before the
 * learners start. Tend is not OK once the proxy is gone. */
enum pelago_status pl_run_proxy_start(struct pl_run *r);
enum pelago_status pl_run_proxy_tend(struct pl_run *r, uint64_t now_ns);
void pl_run_proxy_stop(struct pl_run *r);

/* run_show.c */
void pl_run_take_status(struct pl_run *r);                     /* from the pipe */
void pl_run_take_view(struct pl_run *r, struct pl_bytes json); /* one status */
void pl_run_take_last_status(struct pl_run *r); /* what the shards left when the run was complete */
void pl_run_show(struct pl_run *r, bool now);
void pl_run_show_end(struct pl_run *r, bool complete); /* the last page: what has become of the run */
/* Said when it happens, and kept for the report. */
void pl_run_event(struct pl_run *r, const char *name, const char *what);

/* run_report.c: PL_EXIT_OK, or the code after saying what is wrong. */
int pl_run_report(struct pl_run *r);

#endif
