/* A learner's speed: tokens over the time that passed, whoever had the processor. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/limits.h"
#include "host/speed.h"

/* A look every second; steps of so many tokens end at multiples of step_ms. */
static uint64_t steady(struct pl_speed *s, uint64_t step_ms, uint64_t tokens, unsigned seconds)
{
    uint64_t now = 0;
    for (unsigned i = 0; i <= seconds; i++) {
        now = 1000 + i * PL_SEC;
        pl_speed_look(s, tokens * (UINT64_C(1000) * i / step_ms), now);
    }
    return now;
}

static void assert_speed(const struct pl_speed *s, uint64_t now_ns, double lowest, double highest)
{
    double speed = pl_speed_now(s, now_ns);
    if (speed < lowest || speed > highest)
        fail_msg("%f tokens a second, expected %f to %f", speed, lowest, highest);
}

static void steps_of_any_length_have_their_speed(void **state)
{
    static const uint64_t lengths_ms[] = {10, 250, 1000, 3000, 40000};
    (void)state;
    for (size_t i = 0; i < sizeof lengths_ms / sizeof lengths_ms[0]; i++) {
        struct pl_speed s = {0};
        uint64_t now = steady(&s, lengths_ms[i], lengths_ms[i], 401); /* a thousand a second */
        assert_speed(&s, now, 990, 1010);
    }
}

/* A learner that has the processor a tenth of the time: steps of a millisecond, a hundred in a row, then none for nine
 * tenths. Twenty of them are no faster than two. */
static void waiting_for_the_processor_is_time(void **state)
{
    struct pl_speed s = {0};
    uint64_t now = 0, tokens = 0;
    (void)state;
    for (unsigned ms = 0; ms < 60000; ms++) {
        now += PL_MS;
        tokens += ms % 1000 < 100 ? 50 : 0;
        if (ms % 10 == 0)
            pl_speed_look(&s, tokens, now);
    }
    assert_speed(&s, now, 4500, 5500);
}

static void the_first_seconds_are_no_less(void **state)
{
    struct pl_speed s = {0};
    (void)state;
    assert_speed(&s, 0, 0, 0);
    assert_speed(&s, steady(&s, 100, 100, 0), 0, 0);
    s = (struct pl_speed){0};
    assert_speed(&s, steady(&s, 100, 100, 2), 999, 1001);
}

static void a_new_process_and_an_absence_begin_anew(void **state)
{
    struct pl_speed s = {0};
    uint64_t now = steady(&s, 100, 100, 30);
    (void)state;
    pl_speed_look(&s, 100, now + PL_SEC); /* fewer: another process */
    assert_speed(&s, now + PL_SEC, 0, 0);
    pl_speed_look(&s, 1100, now + 2 * PL_SEC);
    assert_speed(&s, now + 2 * PL_SEC, 999, 1001);
    pl_speed_begin(&s);
    pl_speed_look(&s, 61100, now + 62 * PL_SEC); /* what it did while it was away */
    pl_speed_look(&s, 62100, now + 63 * PL_SEC);
    assert_speed(&s, now + 63 * PL_SEC, 999, 1001);
}

static void silence_fades(void **state)
{
    struct pl_speed s = {0};
    uint64_t now = steady(&s, 100, 100, 30);
    (void)state;
    assert_speed(&s, now + 2 * PL_SEC, 990, 1010);
    assert_speed(&s, now + 13 * PL_SEC, 300, 450);
    assert_speed(&s, now + 120 * PL_SEC, 0, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_of_any_length_have_their_speed),
        cmocka_unit_test(waiting_for_the_processor_is_time),
        cmocka_unit_test(the_first_seconds_are_no_less),
        cmocka_unit_test(a_new_process_and_an_absence_begin_anew),
        cmocka_unit_test(silence_fades),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
