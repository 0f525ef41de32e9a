/* tests/unit/test_host_trouble.c - when it is said that a shard cannot be reached. */
#include "host/trouble.h"

#include "base/limits.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define MINUTE (60 * PL_SEC)

/* An attempt a second from minute `from` to before minute `to`: how often one was told of. */
static unsigned tell(struct pl_trouble *t, uint64_t from, uint64_t to)
{
    unsigned said = 0;
    for (uint64_t s = from * 60; s < to * 60; s++)
        said += pl_trouble_is_due(t, "nobody listens", 5 * MINUTE + s * PL_SEC) ? 1 : 0;
    return said;
}

static void what_lasts_is_said_again_at_rising_intervals(void **state)
{
    (void)state;
    struct pl_trouble t = {0};
    assert_int_equal(tell(&t, 0, 1), 1);
    assert_int_equal(tell(&t, 1, 2), 1);
    assert_int_equal(tell(&t, 2, 3), 0);
    assert_int_equal(tell(&t, 3, 4), 1);
    assert_int_equal(tell(&t, 4, 7), 0);
    assert_int_equal(tell(&t, 7, 15), 1);
    assert_int_equal(tell(&t, 15, 25), 1);
    assert_int_equal(tell(&t, 25, 26), 1); /* ten minutes after the one before, not sixteen */
    assert_int_equal(tell(&t, 26, 35), 0);
    assert_int_equal(tell(&t, 35, 95), 6);
    assert_int_equal(t.since_ns, 5 * MINUTE);
}

static void what_changes_is_said_at_once(void **state)
{
    (void)state;
    struct pl_trouble t = {0};
    assert_true(pl_trouble_is_due(&t, "one", MINUTE));
    assert_true(pl_trouble_is_due(&t, "other", MINUTE + 1));
    assert_false(pl_trouble_is_due(&t, "other", MINUTE + 2));
    assert_true(pl_trouble_is_due(&t, "other", 2 * MINUTE));
    assert_int_equal(t.since_ns, MINUTE);
}

static void what_is_over_begins_anew(void **state)
{
    (void)state;
    struct pl_trouble t = {0};
    assert_true(pl_trouble_is_due(&t, "one", MINUTE));
    pl_trouble_over(&t);
    assert_true(pl_trouble_is_due(&t, "one", MINUTE + 9));
    assert_int_equal(t.since_ns, MINUTE + 9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_lasts_is_said_again_at_rising_intervals),
        cmocka_unit_test(what_changes_is_said_at_once),
        cmocka_unit_test(what_is_over_begins_anew),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
