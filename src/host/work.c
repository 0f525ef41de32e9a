/* host/work.c - see work.h. */
#include "host/work.h"

#include "base/check.h"

static void run(uv_work_t *work)
{
    struct pl_job *j = work->data;
    j->run(j);
}

static void start(uv_loop_t *loop, struct pl_job *j);

/* The next one begins before done() of this one, which may free the job or add others. */
static void finished(uv_work_t *work, int status)
{
    struct pl_job *j = work->data;
    struct pl_work_queue *q = j->queue;
    pl_assert(status == 0);
    if (q != NULL) {
        pl_assert(q->first == j);
        q->first = j->next;
        q->length--;
        if (q->first == NULL)
            q->last = NULL;
        else
            start(q->loop, q->first);
    }
    j->done(j);
}

static void start(uv_loop_t *loop, struct pl_job *j)
{
    j->work.data = j;
    int status = uv_queue_work(loop, &j->work, run, finished);
    pl_assert(status == 0);
}

void pl_work_queue_init(struct pl_work_queue *q, uv_loop_t *loop)
{
    *q = (struct pl_work_queue){.loop = loop};
}

void pl_work_add(struct pl_work_queue *q, struct pl_job *j)
{
    j->queue = q;
    j->next = NULL;
    q->length++;
    if (q->last != NULL) {
        q->last->next = j;
        q->last = j;
        return;
    }
    q->first = q->last = j;
    start(q->loop, j);
}

void pl_work_start(uv_loop_t *loop, struct pl_job *j)
{
    j->queue = NULL;
    j->next = NULL;
    start(loop, j);
}

bool pl_work_idle(const struct pl_work_queue *q)
{
    return q->first == NULL;
}
