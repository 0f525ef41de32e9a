/* test_base_buf.c - the allocator seam, and a buffer that knows its maximum. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/prng.h"
#include "expect_assert.h"
#include "seed.h"

#include <stdlib.h>
#include <string.h>

/* Counts what is held, and fails once `left` resizes were granted. */
struct counting {
    size_t held;
    unsigned left;
};

static void *counting_resize(void *user, void *block, size_t old_bytes, size_t new_bytes)
{
    struct counting *c = user;
    if (new_bytes == 0) {
        c->held -= old_bytes;
        free(block);
        return NULL;
    }
    if (c->left == 0)
        return NULL;
    c->left--;
    void *moved = malloc(new_bytes); /* always moves, so that stale pointers show */
    assert_non_null(moved);
    if (block != NULL)
        memcpy(moved, block, old_bytes < new_bytes ? old_bytes : new_bytes);
    free(block);
    c->held += new_bytes - old_bytes;
    return moved;
}

static void the_system_allocator_gives_and_takes(void **state)
{
    (void)state;
    struct pl_alloc a = pl_alloc_system();
    uint8_t *p = pl_alloc_zero(&a, 5, 3);
    assert_non_null(p);
    for (unsigned i = 0; i < 15; i++)
        assert_int_equal(p[i], 0);
    memset(p, 7, 15);
    p = a.resize(a.user, p, 15, 1000);
    assert_non_null(p);
    assert_int_equal(p[14], 7);
    pl_alloc_free(&a, p, 1000);
    pl_alloc_free(&a, NULL, 0);
}

static void sizes_that_overflow_or_are_zero_give_no_memory(void **state)
{
    (void)state;
    struct counting c = {0, 100};
    struct pl_alloc a = {counting_resize, &c};
    assert_null(pl_alloc_zero(&a, SIZE_MAX / 2 + 1, 2));
    assert_null(pl_alloc_zero(&a, 3, SIZE_MAX / 2));
    assert_null(pl_alloc_zero(&a, 0, 8));
    assert_null(pl_alloc_zero(&a, 8, 0));
    assert_int_equal(c.left, 100);
    c.left = 0;
    assert_null(pl_alloc_zero(&a, 1, 1));
}

static void a_buffer_is_a_queue_of_bytes(void **state)
{
    (void)state;
    enum { MAX = 5000 };
    static uint8_t model[MAX];
    size_t len = 0;
    uint8_t next = 0;
    struct counting c = {0, UINT32_MAX};
    struct pl_alloc a = {counting_resize, &c};
    struct pl_prng rng;
    struct pl_buf b;
    pl_prng_seed(&rng, test_seed(), 0);
    pl_buf_init(&b, &a, MAX);
    for (unsigned n = 0; n < 3000; n++) {
        uint8_t more[600];
        size_t want = pl_prng_below(&rng, sizeof more);
        for (size_t i = 0; i < want; i++)
            more[i] = next++;
        enum pelago_status status = pl_buf_append(&b, more, want);
        assert_int_equal(status, want <= MAX - len ? PELAGO_OK : PELAGO_LIMIT);
        if (status == PELAGO_OK) {
            memcpy(model + len, more, want);
            len += want;
        }
        size_t gone = pl_prng_below(&rng, 2) * pl_prng_range(&rng, 0, len);
        pl_buf_consume(&b, gone);
        memmove(model, model + gone, len - gone);
        len -= gone;
        assert_int_equal(b.len, len);
        assert_true(b.cap <= MAX && c.held == b.cap);
        if (len > 0)
            assert_memory_equal(b.data, model, len);
    }
    pl_buf_release(&b);
    assert_int_equal(c.held, 0);
    assert_null(b.data);
    pl_buf_release(&b);
}

static void the_maximum_is_exact(void **state)
{
    (void)state;
    static const size_t maxima[] = {0, 1, 10, 255, 256, 257, 1000};
    static uint8_t bytes[1001];
    struct counting c = {0, UINT32_MAX};
    struct pl_alloc a = {counting_resize, &c};
    for (size_t i = 0; i < sizeof maxima / sizeof *maxima; i++) {
        struct pl_buf b;
        pl_buf_init(&b, &a, maxima[i]);
        assert_int_equal(pl_buf_append(&b, bytes, maxima[i] + 1), PELAGO_LIMIT);
        assert_int_equal(pl_buf_append(&b, bytes, maxima[i]), PELAGO_OK);
        assert_int_equal(b.len, maxima[i]);
        assert_true(b.cap <= maxima[i]);
        assert_int_equal(pl_buf_append(&b, bytes, 0), PELAGO_OK);
        assert_int_equal(pl_buf_append(&b, bytes, 1), PELAGO_LIMIT);
        assert_int_equal(pl_buf_reserve(&b, SIZE_MAX), PELAGO_LIMIT);
        pl_buf_release(&b);
    }
    assert_int_equal(c.held, 0);
}

static void a_failed_allocation_changes_nothing(void **state)
{
    (void)state;
    static uint8_t bytes[300] = {1, 2, 3};
    struct counting c = {0, 0};
    struct pl_alloc a = {counting_resize, &c};
    struct pl_buf b;
    pl_buf_init(&b, &a, 10000);
    assert_int_equal(pl_buf_append(&b, bytes, 3), PELAGO_NOMEM);
    assert_int_equal(b.len, 0);
    c.left = 1;
    assert_int_equal(pl_buf_append(&b, bytes, 3), PELAGO_OK);
    assert_int_equal(pl_buf_append(&b, bytes, 300), PELAGO_NOMEM);
    assert_int_equal(b.len, 3);
    assert_memory_equal(b.data, bytes, 3);
    c.left = 1;
    assert_int_equal(pl_buf_append(&b, bytes, 300), PELAGO_OK);
    assert_int_equal(b.len, 303);
    expect_assert((pl_buf_consume(&b, 304), 0));
    pl_buf_release(&b);
    assert_int_equal(c.held, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_system_allocator_gives_and_takes),
        cmocka_unit_test(sizes_that_overflow_or_are_zero_give_no_memory),
        cmocka_unit_test(a_buffer_is_a_queue_of_bytes),
        cmocka_unit_test(the_maximum_is_exact),
        cmocka_unit_test(a_failed_allocation_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
