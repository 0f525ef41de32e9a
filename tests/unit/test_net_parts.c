/* test_net_parts.c - the parts of a connection that need no socket: addresses, the queue, the bucket, the books. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/num.h"
#include "base/prng.h"
#include "net/conn_int.h"
#include "seed.h"

#include <stdlib.h>
#include <string.h>

static void addresses_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *text, *host, *port;
    } good[] = {
        {"10.0.0.7:7447", "10.0.0.7", "7447"},
        {"[fe80::1%eth0]:1", "fe80::1%eth0", "1"},
        {"*:0", "*", "0"},
        {":65535", "", "65535"},
        {"host.example:00080", "host.example", "00080"},
    };
    static const char *const bad[] = {"",       "x",    "x:",   "x:y",   "x:70000", "x:123456", "::1:5",
                                      "[::1]5", "[::1", "[x:1", "a/b:1", "a[b:1",   "\x01:1",   "x:1 "};
    struct pl_address a;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_int_equal(pl_address_parse(good[i].text, &a, NULL), PELAGO_OK);
        assert_string_equal(a.host, good[i].host);
        assert_string_equal(a.port, good[i].port);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (pl_address_parse(bad[i], &a, NULL) != PELAGO_INVALID)
            fail_msg("taken: %s", bad[i]);
    char longest[300];
    memset(longest, 'a', sizeof longest);
    memcpy(longest + 255, ":1", 3);
    assert_int_equal(pl_address_parse(longest, &a, NULL), PELAGO_OK);
    memcpy(longest + 256, ":1", 3);
    longest[255] = 'a';
    assert_int_equal(pl_address_parse(longest, &a, NULL), PELAGO_INVALID);
}

static void assert_printed(const char *ip, bool v6, const char *expected, uint64_t *owner)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(80)};
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_port = htons(80)};
    char out[PL_ADDRESS_MAX];
    assert_int_equal(
        inet_pton(v6 ? AF_INET6 : AF_INET, ip, v6 ? (void *)&in6.sin6_addr : (void *)&in.sin_addr), 1);
    const struct sockaddr *sa = v6 ? (const struct sockaddr *)&in6 : (const struct sockaddr *)&in;
    pl_address_print(sa, out);
    assert_string_equal(out, expected);
    *owner = pl_address_owner(sa);
}

static void addresses_are_printed_and_belong_to_somebody(void **state)
{
    (void)state;
    uint64_t a, b, c;
    assert_printed("10.0.0.7", false, "10.0.0.7:80", &a);
    assert_printed("::ffff:10.0.0.7", true, "10.0.0.7:80", &b);
    assert_true(a == b);
    assert_printed("10.0.0.8", false, "10.0.0.8:80", &b);
    assert_true(a != b);
    assert_printed("2001:db8:1:2::1", true, "[2001:db8:1:2::1]:80", &a);
    assert_printed("2001:db8:1:2:ffff::", true, "[2001:db8:1:2:ffff::]:80", &b);
    assert_printed("2001:db8:1:3::1", true, "[2001:db8:1:3::1]:80", &c);
    assert_true(a == b && a != c);
}

static void a_queue_gives_back_what_was_put_in(void **state)
{
    (void)state;
    struct pl_alloc alloc = pl_alloc_system();
    struct pl_queue q;
    struct pl_prng in, out, sizes;
    uint64_t seed = test_seed(), put = 0, taken = 0;
    pl_prng_seed(&sizes, seed, 1);
    pl_prng_seed(&in, seed, 2);
    pl_prng_seed(&out, seed, 2);
    pl_queue_init(&q, &alloc);
    for (unsigned i = 0; i < 3000; i++) {
        size_t n = (size_t)pl_prng_below(&sizes, i % 50 == 0 ? 200000 : 5000) + 1, have;
        uint8_t *room = pl_queue_room(&q, n);
        n -= (size_t)pl_prng_below(&sizes, n); /* less may come than was asked for, but not nothing */
        for (size_t k = 0; k < n; k++)
            room[k] = (uint8_t)pl_prng_next(&in);
        pl_queue_add(&q, n);
        put += n;
        for (uint64_t budget = pl_prng_below(&sizes, 12000); budget > 0 && q.bytes > 0;) {
            const uint8_t *front = pl_queue_front(&q, &have);
            size_t take = (size_t)pl_min64(have, budget);
            for (size_t k = 0; k < take; k++)
                assert_int_equal(front[k], (uint8_t)pl_prng_next(&out));
            pl_queue_take(&q, take);
            taken += take;
            budget -= take;
        }
        assert_int_equal(q.bytes, put - taken);
    }
    pl_queue_release(&q);
    size_t n;
    assert_null(pl_queue_front(&q, &n));
    assert_int_equal(n, 0);
}

struct books {
    unsigned requests;
    size_t bytes; /* in use */
};

static void *booked_resize(void *user, void *block, size_t old_bytes, size_t new_bytes)
{
    struct books *b = user;
    const struct pl_alloc system = pl_alloc_system();
    b->requests += new_bytes > 0;
    b->bytes += new_bytes - old_bytes;
    return system.resize(system.user, block, old_bytes, new_bytes);
}

/* Frames of a megabyte come in memory of their own, which is dear when it is new. */
static void a_busy_queue_keeps_one_block_and_a_resting_one_none(void **state)
{
    (void)state;
    enum { LARGE = 1 << 20, FRAMES = 100 };
    struct books memory = {0};
    const struct pl_alloc alloc = {booked_resize, &memory};
    struct pl_queue q;
    pl_queue_init(&q, &alloc);
    for (unsigned i = 0; i < FRAMES; i++) {
        assert_non_null(pl_queue_room(&q, LARGE));
        pl_queue_add(&q, LARGE);
        pl_queue_take(&q, LARGE);
        assert_int_equal(memory.requests, 1);
    }
    assert_non_null(
        pl_queue_room(&q, 2 * LARGE)); /* the spare one is too small, and goes when this is empty */
    pl_queue_add(&q, 2 * LARGE);
    pl_queue_take(&q, 2 * LARGE);
    assert_int_equal(memory.requests, 2);
    assert_true(memory.bytes > 2 * LARGE && memory.bytes < 3 * LARGE);
    assert_non_null(pl_queue_room(&q, 10));
    pl_queue_add(&q, 10);
    pl_queue_trim(&q); /* what is in use stays */
    assert_true(memory.bytes > 2 * LARGE);
    pl_queue_take(&q, 10);
    pl_queue_trim(&q);
    assert_int_equal(memory.bytes, 0);
    pl_queue_release(&q);
}

/* Whoever sends what he may and waits as he is told sends at the rate, whatever the clock's steps. */
static void a_bucket_keeps_its_rate(void **state)
{
    (void)state;
    static const uint64_t rates[] = {1000, 12500, 125000, 2500000, 125000000, UINT64_C(12500000000)};
    struct pl_prng p;
    pl_prng_seed(&p, test_seed(), 1);
    for (unsigned i = 0; i < sizeof rates / sizeof *rates; i++) {
        struct pl_bucket b = {.bytes_per_s = rates[i]};
        uint64_t now = 12345, start = now, sent = 0, wait, span = 100 * PL_SEC;
        while (now - start < span) {
            uint64_t allowed = pl_bucket_allows(&b, now, &wait);
            assert_true((allowed == 0) == (wait > 0));
            if (allowed > 0) {
                uint64_t n = pl_min64(allowed, 16384) + 22;
                pl_bucket_spend(&b, n);
                sent += n;
                now += PL_US;
            } else {
                now += wait + pl_prng_below(&p, PL_MS);
            }
        }
        double ratio = (double)sent / ((double)rates[i] * (double)(now - start) * 1e-9);
        if (ratio < 0.97 || ratio > 1.03)
            fail_msg("rate %llu: %.4f", (unsigned long long)rates[i], ratio);
    }
    struct pl_bucket none = {0};
    uint64_t wait;
    assert_true(pl_bucket_allows(&none, 1, &wait) == UINT64_MAX);
    pl_bucket_spend(&none, 5);
    assert_int_equal(none.credit, 0);
}

static void a_bucket_saves_up_little(void **state)
{
    (void)state;
    struct pl_bucket b = {.bytes_per_s = 1000000};
    uint64_t wait;
    (void)pl_bucket_allows(&b, 1, &wait);
    assert_int_equal(pl_bucket_allows(&b, 1000 * PL_SEC, &wait), 80000);
    assert_int_equal(pl_bucket_allows(&b, PL_SEC, &wait), 10000); /* a clock that goes back starts anew */
}

enum { GUESTS = 60 };

static void the_books_of_a_listener_add_up(void **state)
{
    (void)state;
    static struct pl_guests g;
    static struct pl_conn conns[GUESTS];
    int where[GUESTS]; /* the list; -1: none */
    struct pl_prng p;
    pl_prng_seed(&p, test_seed(), 1);
    memset(&g, 0, sizeof g);
    for (unsigned i = 0; i < GUESTS; i++)
        where[i] = -1;
    for (uint64_t now = PL_SEC, turn = 0; turn < 20000; turn++, now += 20 * PL_MS) {
        unsigned i = (unsigned)pl_prng_below(&p, GUESTS), counts[PL_GUEST_LISTS] = {0}, of[7] = {0};
        if (where[i] < 0) {
            conns[i] = (struct pl_conn){
                .owner = pl_prng_below(&p, 7) << 20, .born_ns = now, .handshake_ns = 5 * PL_SEC};
            pl_guests_add(&g, &conns[i]);
            where[i] = PL_GUEST_SILENT;
        } else if (where[i] < PL_GUEST_MEMBER && pl_prng_below(&p, 2) == 0) {
            where[i] += 1 + (int)pl_prng_below(&p, (uint64_t)(PL_GUEST_MEMBER - where[i]));
            pl_guests_move(&g, &conns[i], (enum pl_guest_list)where[i]);
        } else {
            pl_guests_remove(&g, &conns[i]);
            where[i] = -1;
        }
        for (unsigned k = 0; k < GUESTS; k++) {
            if (where[k] >= 0)
                counts[where[k]]++;
            if (where[k] >= 0 && where[k] < PL_GUEST_MEMBER)
                of[conns[k].owner >> 20]++;
        }
        assert_int_equal(pl_guests_handshaking(&g), counts[0] + counts[1]);
        assert_int_equal(pl_guests_all(&g), counts[0] + counts[1] + counts[2] + counts[3]);
        for (uint64_t k = 0; k < 7; k++)
            assert_int_equal(pl_guests_of(&g, k << 20), of[k]);
        const struct pl_conn *old = pl_guests_oldest(&g, now, true),
                             *own = pl_guests_oldest_of(&g, now, 3 << 20);
        assert_true(old == NULL || old->guest.list < PL_GUEST_MEMBER);
        assert_true(own == NULL ||
                    (own->owner == 3 << 20 && old != NULL && old->guest.list <= own->guest.list));
    }
}

static void who_gives_way_when(void **state)
{
    (void)state;
    static struct pl_guests g;
    static struct pl_conn c[3];
    memset(&g, 0, sizeof g);
    for (unsigned i = 0; i < 3; i++) {
        c[i] = (struct pl_conn){.born_ns = 100 * PL_SEC, .handshake_ns = 5 * PL_SEC};
        pl_guests_add(&g, &c[i]);
    }
    pl_guests_move(&g, &c[1], PL_GUEST_ACTIVE);
    pl_guests_move(&g, &c[0], PL_GUEST_NAMELESS);
    assert_null(pl_guests_oldest(&g, 100 * PL_SEC + 249 * PL_MS, true));
    assert_ptr_equal(pl_guests_oldest(&g, 100 * PL_SEC + 250 * PL_MS, true), &c[2]);
    pl_guests_remove(&g, &c[2]);
    assert_null(pl_guests_oldest(&g, 101 * PL_SEC - 1, true));
    assert_ptr_equal(pl_guests_oldest(&g, 101 * PL_SEC, true), &c[1]);
    pl_guests_remove(&g, &c[1]);
    assert_null(pl_guests_oldest(&g, 105 * PL_SEC - 1, true));
    assert_null(pl_guests_oldest(&g, 105 * PL_SEC, false));
    assert_ptr_equal(pl_guests_oldest(&g, 105 * PL_SEC, true), &c[0]);
    pl_guests_move(&g, &c[0], PL_GUEST_MEMBER);
    assert_null(pl_guests_oldest(&g, 1000 * PL_SEC, true));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses_are_read),
        cmocka_unit_test(addresses_are_printed_and_belong_to_somebody),
        cmocka_unit_test(a_queue_gives_back_what_was_put_in),
        cmocka_unit_test(a_busy_queue_keeps_one_block_and_a_resting_one_none),
        cmocka_unit_test(a_bucket_keeps_its_rate),
        cmocka_unit_test(a_bucket_saves_up_little),
        cmocka_unit_test(the_books_of_a_listener_add_up),
        cmocka_unit_test(who_gives_way_when),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
