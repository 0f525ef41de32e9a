/* host/work.c - see work.h. */
#include "host/work.h"

#include "base/check.h"

#include <pthread.h>

enum { WORKERS = 4 }; /* of libuv, unless UV_THREADPOOL_SIZE says otherwise */

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

static void *wait_for(void *lock)
{
    pl_assert(pthread_mutex_lock(lock) == 0 && pthread_mutex_unlock(lock) == 0);
    return NULL;
}

static bool workers_can_be_had(void)
{
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_t threads[WORKERS];
    unsigned count = 0;
    pl_assert(pthread_mutex_lock(&lock) == 0);
    while (count < WORKERS && pthread_create(&threads[count], NULL, wait_for, &lock) == 0)
        count++;
    pl_assert(pthread_mutex_unlock(&lock) == 0);
    for (unsigned i = 0; i < count; i++)
        pl_assert(pthread_join(threads[i], NULL) == 0);
    return count == WORKERS;
}

enum pelago_status pl_work_loop(uv_loop_t *loop, struct pl_error *err)
{
    if (!workers_can_be_had())
        return pl_fail(
            err, PELAGO_LIMIT,
            "the system gives no threads: raise the limit of memory (ulimit -v) or of processes (ulimit -u)");
    int code = uv_loop_init(loop);
    if (code != 0)
        return pl_fail(err, PELAGO_LIMIT,
                       "there is nothing to wait for events with: %s; more files may have to be "
                       "open (ulimit -n)",
                       uv_strerror(code));
    return PELAGO_OK;
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
