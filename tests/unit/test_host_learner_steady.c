/* What the trainer's thread and the others share: copies beside a moving owner are of one moment or none; a
 * ring keeps order and loses nothing; the account of times is never too low; a watch knows
 * waiting from being interrupted. Meant for a build with -fsanitize=thread, too. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/resource.h>
#include <cmocka.h>

#include "base/check.h"
#include "base/limits.h"
#include "base/prng.h"
#include "host/learner_account.h"
#include "host/learner_ring.h"
#include "host/learner_steady.h"
#include "seed.h"

/* ---- copies ---- */

enum { WORDS = 50001, MOVES_MIN = 200, COPIES = 200 };

static struct {
    struct pl_steady steady;
    uint32_t words[WORDS];
    uint32_t moves;
    atomic_bool stop;
} shared;

/* Writes its count everywhere while it moves, and lets the others have a look from time to time. */
static void *owner_main(void *unused)
{
    (void)unused;
    for (uint32_t k = 1; k < MOVES_MIN || !atomic_load(&shared.stop); k++) {
        pl_steady_move(&shared.steady);
        for (uint32_t i = 0; i < WORDS; i++)
            shared.words[i] = k;
        shared.moves = k;
        pl_steady_stand(&shared.steady);
        for (uint32_t i = 0; i < k % 8; i++)
            sched_yield();
    }
    return NULL;
}

static void test_copies_are_of_one_moment(void **state)
{
    (void)state;
    static uint32_t first[WORDS / 2], second[WORDS - WORDS / 2];
    uint32_t moves = 0;
    const struct pl_steady_span spans[] = {
        {shared.words, first, sizeof first},
        {shared.words + WORDS / 2, second, sizeof second}, /* begins in the middle of a word of 8 bytes */
        {&shared.moves, &moves, sizeof moves},
    };
    pthread_t owner;
    memset(&shared, 0, sizeof shared);
    assert_int_equal(pthread_create(&owner, NULL, owner_main, NULL), 0);
    uint64_t number = 0, last = 0;
    uint32_t copies = 0;
    while (copies < COPIES) {
        if (!pl_steady_copy(&shared.steady, spans, 3, PL_NONE64, &number)) {
            sched_yield();
            continue;
        }
        copies++;
        assert_true(number % 2 == 0 && number >= last);
        last = number;
        assert_int_equal(moves, number / 2);
        for (uint32_t i = 0; i < WORDS / 2; i++)
            assert_int_equal(first[i], moves);
        for (uint32_t i = 0; i < WORDS - WORDS / 2; i++)
            assert_int_equal(second[i], moves);
    }
    atomic_store(&shared.stop, true);
    pthread_join(owner, NULL);
    assert_true(pl_steady_copy(&shared.steady, spans, 3, PL_NONE64, &number));
    assert_true(moves >= MOVES_MIN - 1);
}

static void test_a_copy_of_another_moment_is_refused(void **state)
{
    (void)state;
    struct pl_steady steady = {.number = 0};
    uint32_t from = 7, to = 0;
    uint64_t number = 99;
    const struct pl_steady_span span = {&from, &to, sizeof from};
    assert_true(pl_steady_copy(&steady, &span, 1, 0, &number));
    assert_int_equal(to, 7);
    assert_int_equal(number, 0);
    assert_false(pl_steady_copy(&steady, &span, 1, 2, &number));
    pl_steady_move(&steady);
    assert_false(pl_steady_copy(&steady, &span, 1, PL_NONE64, &number));
    pl_steady_stand(&steady);
    assert_false(pl_steady_copy(&steady, &span, 1, 0, &number));
    assert_true(pl_steady_copy(&steady, &span, 1, 2, &number));
    assert_int_equal(number, 2);
}

static void test_every_length_and_place(void **state)
{
    (void)state;
    struct pl_steady steady = {.number = 0};
    uint32_t from[40], to[40];
    uint64_t number;
    for (uint32_t i = 0; i < 40; i++)
        from[i] = i + 1;
    for (uint32_t at = 0; at < 4; at++)
        for (uint32_t into = 0; into < 4; into++)
            for (uint32_t n = 0; n < 30; n++) {
                const struct pl_steady_span span = {from + at, to + into, n * sizeof from[0]};
                memset(to, 0, sizeof to);
                assert_true(pl_steady_copy(&steady, &span, 1, PL_NONE64, &number));
                for (uint32_t i = 0; i < 40; i++)
                    assert_int_equal(to[i], i >= into && i < into + n ? i - into + at + 1 : 0);
            }
}

/* ---- the ring ---- */

enum { ITEMS = 200000 };

struct item {
    uint64_t number, square;
};

static struct pl_ring ring;

static void *producer_main(void *unused)
{
    (void)unused;
    for (uint64_t i = 0; i < ITEMS;) {
        struct item item = {i, i * i};
        if (pl_ring_put(&ring, &item))
            i++;
        else
            sched_yield();
    }
    return NULL;
}

static void test_a_ring_between_two_threads(void **state)
{
    (void)state;
    struct pl_alloc alloc = pl_alloc_system();
    pthread_t producer;
    assert_true(pl_ring_init(&ring, &alloc, 100, sizeof(struct item)));
    assert_int_equal(pthread_create(&producer, NULL, producer_main, NULL), 0);
    for (uint64_t i = 0; i < ITEMS;) {
        struct item item;
        if (!pl_ring_take(&ring, &item)) {
            sched_yield();
            continue;
        }
        assert_int_equal(item.number, i);
        assert_int_equal(item.square, i * i);
        i++;
    }
    pthread_join(producer, NULL);
    assert_null(pl_ring_peek(&ring));
    pl_ring_release(&ring, &alloc);
}

static void test_a_ring_says_full_and_empty(void **state)
{
    (void)state;
    struct pl_alloc alloc = pl_alloc_system();
    struct pl_ring r;
    uint32_t item;
    assert_true(pl_ring_init(&r, &alloc, 3, sizeof item)); /* rounded up to 4 */
    for (uint32_t round = 0; round < 10; round++) {
        for (uint32_t i = 0; i < 4; i++) {
            item = round * 4 + i;
            assert_true(pl_ring_put(&r, &item));
        }
        assert_false(pl_ring_put(&r, &item));
        assert_int_equal(*(const uint32_t *)pl_ring_peek(&r), round * 4);
        for (uint32_t i = 0; i < 4; i++) {
            assert_true(pl_ring_take(&r, &item));
            assert_int_equal(item, round * 4 + i);
        }
        assert_false(pl_ring_take(&r, &item));
    }
    pl_ring_release(&r, &alloc);
}

/* ---- the account ---- */

static void test_quantiles_are_never_too_low(void **state)
{
    (void)state;
    static struct pl_account a;
    static uint64_t times[10000];
    struct pl_prng r;
    uint64_t sum = 0;
    pl_prng_seed(&r, test_seed(), 1);
    memset(&a, 0, sizeof a);
    assert_int_equal(pl_account_quantile(&a, 999000), 0);
    for (uint32_t i = 0; i < 10000; i++) {
        times[i] = pl_prng_next(&r) >> (20 + pl_prng_below(&r, 44));
        sum += times[i];
        pl_account_add(&a, times[i]);
    }
    for (uint32_t share = 500000; share < 1000000; share += 33300) {
        uint64_t q = pl_account_quantile(&a, share);
        uint32_t within = 0, below = 0;
        for (uint32_t i = 0; i < 10000; i++) {
            within += times[i] <= q;
            below += times[i] + times[i] / 7 + 1 < q;
        }
        assert_true((uint64_t)within * 100 >= share);
        assert_true((uint64_t)below * 100 <= share); /* and at most an eighth too high */
    }
    for (uint64_t limit = 1; limit < UINT64_C(1) << 40; limit *= 7) {
        uint64_t above = pl_account_above(&a, limit);
        uint32_t surely = 0, perhaps = 0;
        for (uint32_t i = 0; i < 10000; i++) {
            surely += times[i] > limit;
            perhaps += times[i] + times[i] / 7 + 1 > limit;
        }
        assert_true(above >= surely && above <= perhaps);
    }
    assert_int_equal(a.steps, 10000);
    assert_int_equal(a.sum_ns, sum);
    pl_account_add(&a, UINT64_MAX); /* too much for a bucket is the most of one */
    assert_int_equal(pl_account_quantile(&a, 1000000), UINT64_MAX / 2);
}

/* ---- watches ---- */

static void stay_on(int processor)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)processor, &set);
    pl_assert(pthread_setaffinity_np(pthread_self(), sizeof set, &set) == 0);
}

struct rival {
    int processor;
    atomic_bool stop;
    struct pl_watched busy, waiting;
};

static void *keep_busy(void *user)
{
    struct rival *r = user;
    stay_on(r->processor);
    while (!atomic_load(&r->stop))
        continue;
    return NULL;
}

static int64_t interruptions(void)
{
    struct rusage r = {0};
    pl_assert(getrusage(RUSAGE_THREAD, &r) == 0);
    return r.ru_nivcsw;
}

/* On a thread of its own, which stays on one processor. */
static void *watch_both(void *user)
{
    struct rival *r = user;
    struct pl_watch w;
    stay_on(r->processor);
    pl_watch_start(&w);
    for (int64_t end = interruptions() + 5; interruptions() < end;)
        continue;
    pl_watch_stop(&w, &r->busy);
    atomic_store(&r->stop, true);

    pl_watch_start(&w);
    (void)poll(NULL, 0, 2);
    pl_watch_stop(&w, &r->waiting);
    return NULL;
}

static void test_what_others_take_is_not_ours_but_waiting_is(void **state)
{
    (void)state;
    struct rival r = {.processor = sched_getcpu()};
    pthread_t rival, watched;
    assert_int_equal(pthread_create(&rival, NULL, keep_busy, &r), 0);
    assert_int_equal(pthread_create(&watched, NULL, watch_both, &r), 0);
    assert_int_equal(pthread_join(watched, NULL), 0);
    assert_int_equal(pthread_join(rival, NULL), 0);
    assert_true(r.busy.own_ns > 0 && r.busy.own_ns < r.busy.wall_ns);
    assert_true(r.waiting.wall_ns >= 2 * PL_MS && r.waiting.own_ns == r.waiting.wall_ns);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_copies_are_of_one_moment),
        cmocka_unit_test(test_a_copy_of_another_moment_is_refused),
        cmocka_unit_test(test_every_length_and_place),
        cmocka_unit_test(test_a_ring_between_two_threads),
        cmocka_unit_test(test_a_ring_says_full_and_empty),
        cmocka_unit_test(test_quantiles_are_never_too_low),
        cmocka_unit_test(test_what_others_take_is_not_ours_but_waiting_is),
    };
    return cmocka_run_group_tests_name("host/learner_steady", tests, NULL, NULL);
}
