/* cmd/chaos_cluster.h - which processes a run has now: DIR/run.json, which `pelago run` rewrites whenever it starts one.
 *
 * Only processes that this file names are ever touched, and only while their command line still is that of a pelago
 * learner or syncer. */
#ifndef PL_CMD_CHAOS_CLUSTER_H
#define PL_CMD_CHAOS_CLUSTER_H

#include "base/alloc.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

enum { PL_CLUSTER_PATH = 1024 };

struct pl_cluster_node {
    bool syncer;
    uint32_t number;
    int pid; /* 0: not running now */
    char dir[PL_CLUSTER_PATH];
};

struct pl_cluster {
    const struct pl_alloc *alloc;
    char dir[PL_CLUSTER_PATH];
    struct pl_cluster_node *nodes; /* learners, then syncers */
    uint32_t learners, count, room;
    int run_pid; /* of `pelago run` itself; 0: the file does not say */
    uint64_t stamp[3];
};

enum pelago_status pl_cluster_init(struct pl_cluster *c, const char *dir, const struct pl_alloc *alloc,
                                   struct pl_error *err);
void pl_cluster_release(struct pl_cluster *c);

/* Reads the file if it changed since. NOTFOUND: there is none (yet). After a failure the last good state stays. */
enum pelago_status pl_cluster_refresh(struct pl_cluster *c, struct pl_error *err);

/* NULL: the file does not name it. */
const struct pl_cluster_node *pl_cluster_find(const struct pl_cluster *c, bool syncer, uint32_t number);

/* Sends the signal if the process is this node's. NOTFOUND: there is none now. Anything else but OK: there is one, and err
 * says why nothing was sent. */
enum pelago_status pl_cluster_signal(const struct pl_cluster_node *n, int number, struct pl_error *err);

/* Is any process of the run there? */
bool pl_cluster_lives(const struct pl_cluster *c);

#endif
