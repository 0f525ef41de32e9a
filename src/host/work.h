/* host/work.h - jobs off the loop's thread: encoding, merging, checksums, disk writes.
 *
 * run() happens on a worker of libuv's pool and may touch only what the job names; done() follows on the loop's thread.
 * A queue runs its jobs one after the other, in the order they came: what a disk or a fragment needs. The caller owns the
 * job's memory and embeds it at the beginning of its own struct; it is busy until done().
 */
#ifndef PL_HOST_WORK_H
#define PL_HOST_WORK_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct pl_job {
    void (*run)(struct pl_job *j);
    void (*done)(struct pl_job *j);
    /* private */
    uv_work_t work;
    struct pl_work_queue *queue;
    struct pl_job *next;
};

struct pl_work_queue {
    uv_loop_t *loop;
    struct pl_job *first, *last; /* the first is running */
    uint32_t length;
};

/* A loop, and proof that its workers can be had: libuv aborts where it cannot start them. LIMIT with a sentence. */
enum pelago_status pl_work_loop(uv_loop_t *loop, struct pl_error *err);

void pl_work_queue_init(struct pl_work_queue *q, uv_loop_t *loop);
/* After those in the queue. */
void pl_work_add(struct pl_work_queue *q, struct pl_job *j);
/* At once, beside everything else. */
void pl_work_start(uv_loop_t *loop, struct pl_job *j);
bool pl_work_idle(const struct pl_work_queue *q);

#endif
