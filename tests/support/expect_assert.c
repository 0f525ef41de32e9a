/* support/expect_assert.c - see expect_assert.h. */
#include "expect_assert.h"

jmp_buf expect_assert_jump;
const char *expect_assert_expr;

_Noreturn void expect_assert_handler(const char *expr, const char *file, int line)
{
    (void)file;
    (void)line;
    expect_assert_expr = expr;
    longjmp(expect_assert_jump, 1);
}
