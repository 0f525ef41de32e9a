/* Which signals are one wish to stop, and which are a second. */
#include "cmd/stop.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>

static void test_one_wish_may_come_twice(void **state)
{
    (void)state;
    struct pl_stop s = {0};
    assert_int_equal(pl_stop_heard(&s, SIGTERM, 1000), PL_STOP_POLITELY);
    assert_int_equal(pl_stop_heard(&s, SIGTERM, 1000), PL_STOP_ECHO);
    assert_int_equal(pl_stop_heard(&s, SIGINT, 1000 + PL_STOP_ECHO_MS - 1), PL_STOP_ECHO);
    assert_int_equal(s.caught, SIGTERM);
}

static void test_a_second_wish_is_heeded_at_once(void **state)
{
    (void)state;
    struct pl_stop s = {0};
    assert_int_equal(pl_stop_heard(&s, SIGINT, 0), PL_STOP_POLITELY);
    /* Echoes do not put it off. */
    for (uint64_t ms = 0; ms < PL_STOP_ECHO_MS; ms++)
        assert_int_equal(pl_stop_heard(&s, SIGINT, ms), PL_STOP_ECHO);
    assert_int_equal(pl_stop_heard(&s, SIGTERM, PL_STOP_ECHO_MS), PL_STOP_AT_ONCE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_wish_may_come_twice),
        cmocka_unit_test(test_a_second_wish_is_heeded_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
