/* test_base_fmt.c - formatting without stdio, and the statuses that use it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/fmt.h"
#include "base/status.h"
#include "expect_assert.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void every_directive_writes_what_printf_writes(void **state)
{
    (void)state;
    static const uint64_t values[] = {0, 1, 9, 10, 4095, UINT32_MAX, UINT64_C(1) << 40, UINT64_MAX};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        char own[200], theirs[200];
        size_t len =
            pl_fmt(own, sizeof own, "%u|%lu|%lx|%s|%%.", (unsigned)values[i], values[i], values[i], "text");
        snprintf(theirs, sizeof theirs, "%u|%" PRIu64 "|%" PRIx64 "|%s|%%.", (unsigned)values[i], values[i],
                 values[i], "text");
        assert_string_equal(own, theirs);
        assert_int_equal(len, strlen(theirs));
    }
    char empty[1];
    assert_int_equal(pl_fmt(empty, sizeof empty, "%s", ""), 0);
}

static void a_long_text_is_cut(void **state)
{
    (void)state;
    for (size_t cap = 1; cap < 20; cap++) {
        char out[20];
        memset(out, '#', sizeof out);
        assert_int_equal(pl_fmt(out, cap, "ab%scd%lu", "xyz", (uint64_t)123456), cap - 1 < 13 ? cap - 1 : 13);
        assert_memory_equal(out, "abxyzcd123456", cap - 1 < 13 ? cap - 1 : 13);
        assert_int_equal(out[cap - 1 < 13 ? cap - 1 : 13], '\0');
        if (cap < sizeof out)
            assert_int_equal(out[cap], '#');
    }
}

static void unknown_directives_are_asserted(void **state)
{
    (void)state;
    char out[20];
    expect_assert(pl_fmt(out, sizeof out, "%d", 1));
    expect_assert(pl_fmt(out, sizeof out, "%ld", (uint64_t)1));
    expect_assert(pl_fmt(out, sizeof out, "%"));
    expect_assert(pl_fmt(out, 0, "x"));
}

static void statuses_have_names_and_texts(void **state)
{
    (void)state;
    assert_string_equal(pl_status_name(PELAGO_STALE), "STALE");
    assert_string_equal(pl_status_text(PELAGO_STALE), "based on a version too old to use");
    assert_int_equal(PELAGO_OK, 0);
#define X(name, value, text)                                                                                 \
    assert_string_equal(pl_status_name(PELAGO_##name), #name);                                               \
    assert_string_equal(pl_status_text(PELAGO_##name), text);                                                \
    assert_true((value) <= 0);
#include "base/status.def"
#undef X
    assert_string_equal(pl_status_name((enum pelago_status)77), "UNKNOWN");
    assert_string_equal(pl_status_text((enum pelago_status)77), "unknown status");
}

static void a_failure_fills_the_error_and_returns_its_status(void **state)
{
    (void)state;
    struct pl_error err = {PELAGO_OK, ""};
    assert_int_equal(pl_fail(&err, PELAGO_LIMIT, "%s is %u", "x", 5u), PELAGO_LIMIT);
    assert_int_equal(err.status, PELAGO_LIMIT);
    assert_string_equal(err.text, "x is 5");
    assert_int_equal(pl_fail(NULL, PELAGO_IO, "%s", "nobody reads it"), PELAGO_IO);
    char longer[PL_TEXT_MAX + 50];
    memset(longer, 'y', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    pl_fail(&err, PELAGO_IO, "%s", longer);
    assert_int_equal(strlen(err.text), PL_TEXT_MAX);
}

static enum pelago_status try_twice(enum pelago_status first, enum pelago_status second, int *reached)
{
    enum pelago_status status;
    PL_TRY(first);
    ++*reached;
    PL_TRY_TO(end, status, second);
    ++*reached;
end:
    return status;
}

static void the_two_macros_leave_at_the_first_failure(void **state)
{
    (void)state;
    int reached = 0;
    assert_int_equal(try_twice(PELAGO_IO, PELAGO_FULL, &reached), PELAGO_IO);
    assert_int_equal(reached, 0);
    assert_int_equal(try_twice(PELAGO_OK, PELAGO_FULL, &reached), PELAGO_FULL);
    assert_int_equal(reached, 1);
    assert_int_equal(try_twice(PELAGO_OK, PELAGO_OK, &reached), PELAGO_OK);
    assert_int_equal(reached, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_directive_writes_what_printf_writes),
        cmocka_unit_test(a_long_text_is_cut),
        cmocka_unit_test(unknown_directives_are_asserted),
        cmocka_unit_test(statuses_have_names_and_texts),
        cmocka_unit_test(a_failure_fills_the_error_and_returns_its_status),
        cmocka_unit_test(the_two_macros_leave_at_the_first_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
