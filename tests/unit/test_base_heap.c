/* test_base_heap.c - the heap against a naive model. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/heap.h"
#include "base/limits.h"
#include "base/prng.h"
#include "expect_assert.h"
#include "seed.h"

#include <stdlib.h>

enum { COUNT_MAX = 40 };
static uint64_t memory[COUNT_MAX * 2];

/* What the heap should hold: a flag and a key for each item. */
struct model {
    bool in[COUNT_MAX];
    uint64_t key[COUNT_MAX];
    uint32_t count;
};

static uint32_t model_top(const struct model *m)
{
    uint32_t top = PL_NONE32;
    for (uint32_t i = 0; i < m->count; i++)
        if (m->in[i] && (top == PL_NONE32 || m->key[i] < m->key[top]))
            top = i;
    return top;
}

static void check_same(const struct pl_heap *h, const struct model *m)
{
    uint32_t len = 0;
    uint32_t top = model_top(m);
    for (uint32_t i = 0; i < m->count; i++) {
        assert_true(pl_heap_has(h, i) == m->in[i]);
        len += m->in[i];
    }
    assert_int_equal(h->len, len);
    assert_int_equal(pl_heap_top(h), top);
    assert_true(pl_heap_top_key(h) == (top == PL_NONE32 ? PL_NEVER : m->key[top]));
}

static void random_use_agrees_with_the_model(void **state)
{
    (void)state;
    struct pl_prng rng;
    pl_prng_seed(&rng, test_seed(), 0);
    for (uint32_t count = 1; count <= COUNT_MAX; count++) {
        struct pl_heap h;
        struct model m = {.count = count};
        assert_true(pl_heap_bytes(count) <= sizeof memory);
        pl_heap_init(&h, memory, count);
        for (unsigned n = 0; n < 1000; n++) {
            uint32_t item = (uint32_t)pl_prng_below(&rng, count);
            if (pl_prng_chance(&rng, 600000)) {
                m.in[item] = true;
                m.key[item] = pl_prng_below(&rng, 30); /* few keys, many ties */
                pl_heap_set(&h, item, m.key[item]);
            } else {
                m.in[item] = false;
                pl_heap_remove(&h, item);
            }
            check_same(&h, &m);
        }
        for (uint32_t top = pl_heap_top(&h); top != PL_NONE32; top = pl_heap_top(&h)) {
            pl_heap_remove(&h, top);
            m.in[top] = false;
            check_same(&h, &m);
        }
    }
}

static void equal_keys_leave_in_the_order_of_their_numbers(void **state)
{
    (void)state;
    struct pl_heap h;
    pl_heap_init(&h, memory, COUNT_MAX);
    for (uint32_t i = 0; i < COUNT_MAX; i++)
        pl_heap_set(&h, (i * 7) % COUNT_MAX, 5);
    for (uint32_t i = 0; i < COUNT_MAX; i++) {
        assert_int_equal(pl_heap_top(&h), i);
        pl_heap_remove(&h, i);
    }
    assert_int_equal(pl_heap_top(&h), PL_NONE32);
}

static void the_largest_key_is_an_ordinary_key(void **state)
{
    (void)state;
    struct pl_heap h;
    pl_heap_init(&h, memory, 2);
    pl_heap_set(&h, 1, PL_NEVER);
    assert_int_equal(pl_heap_top(&h), 1);
    pl_heap_set(&h, 0, 0);
    assert_int_equal(pl_heap_top(&h), 0);
    assert_true(pl_heap_top_key(&h) == 0);
}

static void memory_is_used_to_its_last_byte_and_no_further(void **state)
{
    (void)state;
    uint32_t count = 7;
    void *block = malloc(pl_heap_bytes(count));
    assert_non_null(block);
    struct pl_heap h;
    pl_heap_init(&h, block, count);
    for (uint32_t i = 0; i < count; i++)
        pl_heap_set(&h, i, i);
    assert_int_equal(h.len, count);
    free(block);
}

static void items_out_of_range_are_asserted(void **state)
{
    (void)state;
    struct pl_heap h;
    pl_heap_init(&h, memory, 3);
    expect_assert((pl_heap_set(&h, 3, 0), 0));
    expect_assert((pl_heap_remove(&h, 3), 0));
    expect_assert(pl_heap_has(&h, PL_NONE32));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_use_agrees_with_the_model),
        cmocka_unit_test(equal_keys_leave_in_the_order_of_their_numbers),
        cmocka_unit_test(the_largest_key_is_an_ordinary_key),
        cmocka_unit_test(memory_is_used_to_its_last_byte_and_no_further),
        cmocka_unit_test(items_out_of_range_are_asserted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
