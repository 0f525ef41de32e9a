/* test_base_pool.c - each task runs exactly once, whoever is awake, and nothing is lost between loops. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/pool.h"
#include "base/prng.h"
#include "expect_assert.h"
#include "seed.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/resource.h>

enum { TASKS_MAX = 1000 };

struct tally {
    uint32_t hits
        [TASKS_MAX]; /* by task; plain memory, so that the thread sanitizer sees two threads at one task */
    uint32_t input;
    uint64_t by_thread[PL_POOL_THREADS_MAX];
    uint32_t threads;
};

static void count(void *user, uint32_t task, uint32_t thread)
{
    struct tally *t = user;
    pl_assert(task < TASKS_MAX && thread < t->threads);
    t->hits[task] += t->input;
    t->by_thread[thread]++;
}

static void run_and_check(struct pl_pool *pool, struct tally *t, uint32_t tasks, uint32_t input)
{
    memset(t->hits, 0, sizeof t->hits);
    t->input = input;
    t->threads = pl_pool_threads(pool);
    pl_pool_run(pool, tasks, count, t);
    for (uint32_t i = 0; i < TASKS_MAX; i++)
        assert_int_equal(t->hits[i], i < tasks ? input : 0);
}

static void every_task_runs_once(void **state)
{
    (void)state;
    struct pl_alloc alloc = pl_alloc_system();
    static const uint32_t teams[] = {1, 2, 3, 8, 40};
    for (size_t k = 0; k < sizeof teams / sizeof teams[0]; k++) {
        struct pl_pool *pool = pl_pool_new(&alloc, teams[k]);
        assert_non_null(pool);
        assert_int_equal(pl_pool_threads(pool), teams[k]);
        struct tally t = {.input = 0};
        for (uint32_t tasks = 0; tasks <= 20; tasks++)
            run_and_check(pool, &t, tasks, tasks + 1);
        run_and_check(pool, &t, TASKS_MAX, 7);
        uint64_t sum = 0;
        for (uint32_t i = 0; i < teams[k]; i++)
            sum += t.by_thread[i];
        assert_int_equal(sum, 20 * 21 / 2 + TASKS_MAX);
        pl_pool_free(pool);
    }
}

/* Short loops back to back, now and then with a pause in which workers fall asleep: late workers meet later loops. */
static void loops_do_not_mix(void **state)
{
    (void)state;
    struct pl_alloc alloc = pl_alloc_system();
    struct pl_prng r;
    pl_prng_seed(&r, test_seed(), 0);
    static const uint32_t teams[] = {2, 3, 6};
    for (size_t k = 0; k < sizeof teams / sizeof teams[0]; k++) {
        struct pl_pool *pool = pl_pool_new(&alloc, teams[k]);
        assert_non_null(pool);
        struct tally t = {.input = 0};
        for (uint32_t loop = 1; loop <= 3000; loop++) {
            uint32_t tasks = (uint32_t)pl_prng_below(&r, 12);
            run_and_check(pool, &t, tasks, loop);
            if (pl_prng_chance(&r, 50000))
                for (uint32_t i = (uint32_t)pl_prng_below(&r, 2000); i > 0; i--)
                    sched_yield();
        }
        pl_pool_free(pool);
    }
}

/* Sums by task what the task before in the earlier loop has left: sees stale memory if a loop ends too early. */
struct relay {
    uint64_t from[64], to[64];
};

static void pass_on(void *user, uint32_t task, uint32_t thread)
{
    struct relay *r = user;
    (void)thread;
    r->to[task] = r->from[(task + 1) % 64] + r->from[(task + 63) % 64];
}

static void a_loop_sees_all_of_the_one_before(void **state)
{
    (void)state;
    struct pl_alloc alloc = pl_alloc_system();
    struct relay one = {.from = {1}}, many = one;
    struct pl_pool *pool = pl_pool_new(&alloc, 4);
    assert_non_null(pool);
    for (unsigned loop = 0; loop < 2000; loop++) {
        for (uint32_t i = 0; i < 64; i++)
            pass_on(&one, i, 0);
        pl_pool_run(pool, 64, pass_on, &many);
        assert_memory_equal(one.to, many.to, sizeof one.to);
        memcpy(one.from, one.to, sizeof one.to);
        memcpy(many.from, many.to, sizeof many.to);
    }
    pl_pool_free(pool);
}

/* All tasks wait for each other: they end only when every thread of the team has come, asleep or not. */
struct meeting {
    atomic_uint arrived;
    unsigned expected;
};

static void meet(void *user, uint32_t task, uint32_t thread)
{
    struct meeting *m = user;
    (void)task, (void)thread;
    atomic_fetch_add(&m->arrived, 1);
    while (atomic_load(&m->arrived) < m->expected)
        sched_yield();
}

static void everybody_comes(void **state)
{
    (void)state;
    struct pl_alloc alloc = pl_alloc_system();
    for (uint32_t threads = 2; threads <= 5; threads++) {
        struct pl_pool *pool = pl_pool_new(&alloc, threads);
        assert_non_null(pool);
        for (unsigned loop = 0; loop < 100; loop++) {
            struct meeting m = {.expected = threads};
            pl_pool_run(pool, threads, meet, &m);
            assert_int_equal(atomic_load(&m.arrived), threads);
        }
        pl_pool_free(pool);
    }
}

static void note_thread(void *user, uint32_t task, uint32_t thread)
{
    pthread_t *who = user;
    pl_assert(thread == 0);
    who[task] = pthread_self();
}

static void small_loops_stay_with_the_caller(void **state)
{
    (void)state;
    struct pl_alloc alloc = pl_alloc_system();
    for (uint32_t threads = 1; threads <= 4; threads++) {
        pthread_t who[3];
        struct pl_pool *pool = pl_pool_new(&alloc, threads);
        assert_non_null(pool);
        pl_pool_run(pool, 0, note_thread, NULL);
        uint32_t tasks = threads == 1 ? 3 : 1;
        pl_pool_run(pool, tasks, note_thread, who);
        for (uint32_t i = 0; i < tasks; i++)
            assert_true(pthread_equal(who[i], pthread_self()));
        pl_pool_free(pool);
    }
}

struct nest {
    struct pl_pool *pool;
};

static void run_again(void *user, uint32_t task, uint32_t thread)
{
    struct nest *n = user;
    (void)task, (void)thread;
    pl_pool_run(n->pool, 1, run_again, n);
}

static void misuse_is_noticed(void **state)
{
    (void)state;
    struct pl_alloc alloc = pl_alloc_system();
    struct nest n = {pl_pool_new(&alloc, 1)};
    assert_non_null(n.pool);
    expect_assert((pl_pool_run(n.pool, 1, run_again, &n), 0));
    pl_pool_free(n.pool);
    pl_pool_free(NULL);
    expect_assert(pl_pool_new(&alloc, 0));
    expect_assert(pl_pool_new(&alloc, PL_POOL_THREADS_MAX + 1));
}

static void *no_memory(void *user, void *block, size_t old_bytes, size_t new_bytes)
{
    (void)user, (void)block, (void)old_bytes, (void)new_bytes;
    return NULL;
}

/* An address space that has no room for the threads' stacks; not under sanitizers, which need it themselves. */
static void running_out_is_no_disaster(void **state)
{
    (void)state;
    struct pl_alloc none = {no_memory, NULL}, alloc = pl_alloc_system();
    assert_null(pl_pool_new(&none, 2));
#ifndef TEST_SANITIZED
    struct rlimit before, tight;
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    tight = before;
    tight.rlim_cur = (rlim_t)64 << 20; /* a few stacks of 8 MiB, not 255 */
    assert_int_equal(setrlimit(RLIMIT_AS, &tight), 0);
    struct pl_pool *pool = pl_pool_new(&alloc, PL_POOL_THREADS_MAX);
    assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
    assert_null(pool);
#endif
    struct pl_pool *after = pl_pool_new(&alloc, 3);
    assert_non_null(after);
    struct tally t = {.input = 0};
    run_and_check(after, &t, 100, 1);
    pl_pool_free(after);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_task_runs_once),
        cmocka_unit_test(loops_do_not_mix),
        cmocka_unit_test(a_loop_sees_all_of_the_one_before),
        cmocka_unit_test(everybody_comes),
        cmocka_unit_test(small_loops_stay_with_the_caller),
        cmocka_unit_test(misuse_is_noticed),
        cmocka_unit_test(running_out_is_no_disaster),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
