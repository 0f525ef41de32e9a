/* base/pool.c - see pool.h.
 *
 * One 64-bit word, the ticket, holds the number of the loop and the next task to hand out. A thread takes a task by
 * advancing the ticket, which fails when the loop has changed meanwhile: nobody has to wait for a thread that slept
 * through a loop. The loop's description (function, user, tasks) may change only while the ticket is closed; it is
 * written with release and read with acquire, so whoever read a newer description also finds the ticket closed or
 * newer, and takes nothing.
 *
 * Sleepers are counted before they look at the ticket for the last time, and the caller looks at the count after it
 * has opened the ticket (both in the one total order of seq_cst): one of the two sees the other, no wakeup is lost.
 */
#include "base/pool.h"

#include "base/check.h"
#include "base/cpu.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>

enum {
    SPINS = 1500,       /* 20 to 60 microseconds on machines where a pause takes 15 to 40 nanoseconds */
    SPINS_CROWDED = 20, /* where there are more threads than processors, somebody else needs ours */
    LINE = 64,          /* keeps what different threads write on different cache lines */
    CLOSED = -1,        /* as the next task of a ticket: none */
};

struct worker {
    struct pl_pool *pool;
    uint32_t thread;
    pthread_t id;
};

struct pl_pool {
    struct pl_alloc alloc;
    uint32_t threads;
    unsigned spins;
    char gap1[LINE];
    _Atomic uint64_t ticket; /* loop number << 32 | next task */
    _Atomic(pl_pool_fn *) fn;
    _Atomic(void *) user;
    _Atomic uint32_t tasks;
    atomic_bool running;
    char gap2[LINE];
    _Atomic uint32_t pending; /* tasks of this loop that are not done */
    char gap3[LINE];
    _Atomic uint32_t sleepers;
    atomic_bool caller_sleeps;
    atomic_bool stop;
    pthread_mutex_t lock;
    pthread_cond_t opened; /* a new loop, or stop */
    pthread_cond_t done;   /* pending is zero */
    struct worker workers[];
};

static size_t pool_bytes(uint32_t threads)
{
    return sizeof(struct pl_pool) + threads * sizeof(struct worker);
}

static void relax(void)
{
#if defined __x86_64__
    __builtin_ia32_pause();
#elif defined __aarch64__
    __asm__ volatile("isb" ::: "memory");
#endif
}

static uint32_t loop_of(uint64_t ticket)
{
    return (uint32_t)(ticket >> 32);
}

static uint64_t ticket_of(uint32_t loop, uint32_t next)
{
    return (uint64_t)loop << 32 | next;
}

/* Does tasks of the current loop until none is left to take. Returns the number of the loop that has none left. */
static uint32_t work(struct pl_pool *p, uint32_t thread)
{
    uint32_t finished = 0;
    uint64_t ticket = atomic_load_explicit(&p->ticket, memory_order_acquire);
    for (;;) {
        pl_pool_fn *fn = atomic_load_explicit(&p->fn, memory_order_acquire);
        void *user = atomic_load_explicit(&p->user, memory_order_acquire);
        uint32_t tasks = atomic_load_explicit(&p->tasks, memory_order_acquire);
        uint32_t next = (uint32_t)ticket;
        if (next >= tasks)
            break;
        if (!atomic_compare_exchange_weak_explicit(&p->ticket, &ticket, ticket + 1, memory_order_acq_rel,
                                                   memory_order_acquire))
            continue;
        fn(user, next, thread);
        finished++;
        ticket = atomic_load_explicit(&p->ticket, memory_order_acquire);
    }
    /* While something of ours is pending the loop cannot end, so these all belong to it. */
    bool last = finished > 0 && atomic_fetch_sub(&p->pending, finished) == finished;
    if (last && atomic_load(&p->caller_sleeps)) {
        pthread_mutex_lock(&p->lock);
        pthread_cond_signal(&p->done);
        pthread_mutex_unlock(&p->lock);
    }
    return loop_of(ticket);
}

/* Waits for a loop other than the one seen. False: the pool is going away. */
static bool wait_for_loop(struct pl_pool *p, uint32_t seen)
{
    for (unsigned i = 0; i < p->spins; i++) {
        if (loop_of(atomic_load_explicit(&p->ticket, memory_order_relaxed)) != seen)
            return true;
        relax();
    }
    pthread_mutex_lock(&p->lock);
    atomic_fetch_add(&p->sleepers, 1);
    while (loop_of(atomic_load(&p->ticket)) == seen && !atomic_load(&p->stop))
        pthread_cond_wait(&p->opened, &p->lock);
    atomic_fetch_sub(&p->sleepers, 1);
    bool stop = atomic_load(&p->stop);
    pthread_mutex_unlock(&p->lock);
    return !stop;
}

static void *worker_main(void *argument)
{
    struct worker *w = argument;
    uint32_t seen;
    do
        seen = work(w->pool, w->thread);
    while (wait_for_loop(w->pool, seen));
    return NULL;
}

static void open_loop(struct pl_pool *p, uint32_t tasks, pl_pool_fn *fn, void *user)
{
    pl_assert(atomic_load(&p->pending) == 0);
    uint32_t loop = loop_of(atomic_load_explicit(&p->ticket, memory_order_relaxed));
    atomic_store(&p->ticket, ticket_of(loop, (uint32_t)CLOSED));
    atomic_store_explicit(&p->fn, fn, memory_order_release);
    atomic_store_explicit(&p->user, user, memory_order_release);
    atomic_store_explicit(&p->tasks, tasks, memory_order_release);
    atomic_store_explicit(&p->pending, tasks, memory_order_relaxed);
    atomic_store(&p->ticket, ticket_of(loop + 1, 0));
    if (atomic_load(&p->sleepers) > 0) {
        pthread_mutex_lock(&p->lock);
        pthread_cond_broadcast(&p->opened);
        pthread_mutex_unlock(&p->lock);
    }
}

static void wait_until_done(struct pl_pool *p)
{
    for (unsigned i = 0; i < p->spins; i++) {
        if (atomic_load_explicit(&p->pending, memory_order_acquire) == 0)
            return;
        relax();
    }
    pthread_mutex_lock(&p->lock);
    atomic_store(&p->caller_sleeps, true);
    while (atomic_load(&p->pending) != 0)
        pthread_cond_wait(&p->done, &p->lock);
    atomic_store(&p->caller_sleeps, false);
    pthread_mutex_unlock(&p->lock);
}

void pl_pool_run(struct pl_pool *p, uint32_t tasks, pl_pool_fn *fn, void *user)
{
    if (tasks == 0)
        return;
    bool nested = atomic_exchange_explicit(&p->running, true, memory_order_relaxed);
    pl_assert(!nested);
    if (tasks == 1 || p->threads == 1) {
        for (uint32_t i = 0; i < tasks; i++)
            fn(user, i, 0);
    } else {
        open_loop(p, tasks, fn, user);
        work(p, 0);
        wait_until_done(p);
    }
    atomic_store_explicit(&p->running, false, memory_order_relaxed);
}

/* Starts workers 1 .. threads-1 with all signals blocked: those are the main thread's business. Returns how many
 * threads the pool has, the caller's included. */
static uint32_t start_workers(struct pl_pool *p)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    uint32_t n = 1;
    for (; n < p->threads; n++) {
        struct worker *w = &p->workers[n];
        *w = (struct worker){.pool = p, .thread = n};
        if (pthread_create(&w->id, NULL, worker_main, w) != 0)
            break;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return n;
}

static void destroy(struct pl_pool *p, uint32_t started)
{
    pthread_mutex_lock(&p->lock);
    atomic_store(&p->stop, true);
    pthread_cond_broadcast(&p->opened);
    pthread_mutex_unlock(&p->lock);
    for (uint32_t n = 1; n < started; n++)
        pthread_join(p->workers[n].id, NULL);
    pthread_cond_destroy(&p->done);
    pthread_cond_destroy(&p->opened);
    pthread_mutex_destroy(&p->lock);
    struct pl_alloc alloc = p->alloc;
    pl_alloc_free(&alloc, p, pool_bytes(p->threads));
}

struct pl_pool *pl_pool_new(const struct pl_alloc *alloc, uint32_t threads)
{
    pl_assert(threads >= 1 && threads <= PL_POOL_THREADS_MAX);
    struct pl_pool *p = pl_alloc_zero(alloc, 1, pool_bytes(threads));
    if (p == NULL)
        return NULL;
    p->alloc = *alloc;
    p->threads = threads;
    p->spins = threads <= pl_cpu_count() ? SPINS : SPINS_CROWDED;
    atomic_init(&p->ticket, ticket_of(0, (uint32_t)CLOSED));
    /* With default attributes these cannot fail on any system we build for. */
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->opened, NULL);
    pthread_cond_init(&p->done, NULL);
    uint32_t started = start_workers(p);
    if (started < threads) {
        destroy(p, started);
        return NULL;
    }
    return p;
}

void pl_pool_free(struct pl_pool *p)
{
    if (p != NULL)
        destroy(p, p->threads);
}

uint32_t pl_pool_threads(const struct pl_pool *p)
{
    return p->threads;
}
