/* host/learner_account.c - see learner_account.h. */
#include "host/learner_account.h"

#include "base/check.h"
#include "base/limits.h"
#include "base/num.h"
#include "os/clock.h"

#include <sys/resource.h>
#include <time.h>

/* Below 8 every number has a bucket; above, the three bits after the leading one choose it. */
static uint32_t bucket_of(uint64_t ns)
{
    if (ns < 8)
        return (uint32_t)ns;
    uint32_t log = 63 - (uint32_t)__builtin_clzll(ns);
    return (log - 2) * 8 + (uint32_t)(ns >> (log - 3) & 7);
}

/* The largest number of the bucket. */
static uint64_t bucket_top(uint32_t bucket)
{
    if (bucket < 8)
        return bucket;
    uint32_t log = bucket / 8 + 2;
    return ((UINT64_C(9) + bucket % 8) << (log - 3)) - 1;
}

static void bump(_Atomic uint64_t *counter, uint64_t by)
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + by,
                          memory_order_relaxed);
}

void pl_account_add(struct pl_account *a, uint64_t ns)
{
    ns = pl_min64(ns, UINT64_MAX / 2);
    uint32_t bucket = bucket_of(ns);
    pl_assert(bucket < PL_ACCOUNT_BUCKETS && bucket_top(bucket) >= ns);
    bump(&a->steps, 1);
    bump(&a->sum_ns, ns);
    bump(&a->bucket[bucket], 1);
    if (ns > atomic_load_explicit(&a->max_ns, memory_order_relaxed))
        atomic_store_explicit(&a->max_ns, ns, memory_order_relaxed);
}

uint64_t pl_account_quantile(const struct pl_account *a, uint32_t share_ppm)
{
    uint64_t steps = 0, seen = 0;
    for (uint32_t i = 0; i < PL_ACCOUNT_BUCKETS; i++)
        steps += atomic_load_explicit(&a->bucket[i], memory_order_relaxed);
    if (steps == 0)
        return 0;
    uint64_t wanted = pl_max64(pl_mul_div(steps, share_ppm, 1000000), 1);
    if (pl_mul_div(wanted, 1000000, steps) < share_ppm)
        wanted++;
    for (uint32_t i = 0; i < PL_ACCOUNT_BUCKETS; i++) {
        seen += atomic_load_explicit(&a->bucket[i], memory_order_relaxed);
        if (seen >= wanted)
            return pl_min64(bucket_top(i), atomic_load_explicit(&a->max_ns, memory_order_relaxed));
    }
    return atomic_load_explicit(&a->max_ns, memory_order_relaxed);
}

uint64_t pl_account_above(const struct pl_account *a, uint64_t ns)
{
    uint64_t above = 0;
    for (uint32_t i = bucket_of(ns); i < PL_ACCOUNT_BUCKETS; i++)
        if (bucket_top(i) > ns)
            above += atomic_load_explicit(&a->bucket[i], memory_order_relaxed);
    return above;
}

/* ---- watches ---- */

static uint64_t cpu_ns(void)
{
    struct timespec t = {0};
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * PL_SEC + (uint64_t)t.tv_nsec;
}

static int64_t times_waited(void)
{
    struct rusage r = {0};
    (void)getrusage(RUSAGE_THREAD, &r);
    return r.ru_nvcsw;
}

void pl_watch_start(struct pl_watch *w)
{
    w->waited = times_waited();
    w->cpu_ns = cpu_ns();
    w->wall_ns = pl_clock_ns();
}

void pl_watch_stop(const struct pl_watch *w, struct pl_watched *sum)
{
    uint64_t wall = pl_clock_ns() - w->wall_ns;
    uint64_t own = wall;
    if (times_waited() == w->waited)
        own = pl_min64(wall, cpu_ns() - w->cpu_ns);
    sum->wall_ns += wall;
    sum->own_ns += own;
}
