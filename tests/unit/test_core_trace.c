/* Trace lines: every code prints all its arguments, and is cut, never overrun. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "core/trace.h"
#include "expect_assert.h"
#include "wire/msg.h"

#include <stdlib.h>
#include <string.h>

static void expect(enum pl_trace_code code, const uint64_t arg[4], const char *text)
{
    char line[256];
    struct pl_trace t = {.code = code};
    memcpy(t.arg, arg, sizeof t.arg);
    assert_int_equal(pl_trace_print(&t, line, sizeof line), strlen(text));
    assert_string_equal(line, text);
}

static void test_lines(void **state)
{
    (void)state;
    expect(PL_TRACE_SYNC_MERGE, (uint64_t[4]){3, PL_ROUND(1, 27), 4, 6},
           "round.merge fragment=3 round=1.27 contributors=4 base=6");
    expect(PL_TRACE_SYNC_JOIN, (uint64_t[4]){1, 0x100000002, 0},
           "learner.join learner=1 incarnation=1.2 behind=0");
    expect(PL_TRACE_SYNC_FENCE, (uint64_t[4]){1, 0, PL_NONE64},
           "learner.fence learner=1 old=none new=4294967295.4294967295");
    expect(PL_TRACE_SYNC_LOST, (uint64_t[4]){1, PL_REASON_FENCED}, "learner.lost learner=1 reason=FENCED");
    expect(PL_TRACE_SYNC_LOST, (uint64_t[4]){1, 0}, "learner.lost learner=1 reason=none");
    expect(PL_TRACE_SYNC_LOST, (uint64_t[4]){1, 77}, "learner.lost learner=1 reason=77");
    expect(PL_TRACE_SYNC_PUBLISH, (uint64_t[4]){1, 2, 0xabc},
           "version.publish fragment=1 version=2 digest=abc");
    expect(PL_TRACE_SYNC_DONE, (uint64_t[4]){UINT64_MAX}, "run.done clock_tokens=18446744073709551615");
}

static void test_every_line_in_every_length(void **state)
{
    (void)state;
    for (int code = 0; code < PL_TRACE_COUNT; code++) {
        struct pl_trace t = {.code = (enum pl_trace_code)code, .arg = {111, UINT64_MAX, 333, 444}};
        char whole[256];
        size_t len = pl_trace_print(&t, whole, sizeof whole);
        assert_int_equal(len, strlen(whole));
        assert_null(strchr(whole, '%'));
        assert_non_null(strstr(whole, "=111"));
        for (size_t cap = 1; cap <= len + 1; cap++) {
            char *line = malloc(cap);
            assert_int_equal(pl_trace_print(&t, line, cap), cap - 1);
            assert_memory_equal(line, whole, cap - 1);
            assert_int_equal(line[cap - 1], 0);
            free(line);
        }
    }
}

static void test_unknown_codes_are_bugs(void **state)
{
    (void)state;
    char line[16];
    struct pl_trace t = {.code = PL_TRACE_COUNT};
    expect_assert(pl_trace_print(&t, line, sizeof line));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_every_line_in_every_length),
        cmocka_unit_test(test_unknown_codes_are_bugs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
