/* support/expect_assert.h - a test that an assertion fires.
 *
 *   expect_assert(pl_heap_set(&h, 99, 1));
 *
 * fails the test when the expression returns. It may run only while no other handler is installed.
 */
#ifndef PL_TEST_EXPECT_ASSERT_H
#define PL_TEST_EXPECT_ASSERT_H

#include "base/check.h"

#include <setjmp.h>

extern jmp_buf expect_assert_jump;
extern const char *expect_assert_expr; /* what failed last */
_Noreturn void expect_assert_handler(const char *expr, const char *file, int line);

#define expect_assert(expression)                                                                            \
    do {                                                                                                     \
        pl_assert_set_handler(expect_assert_handler);                                                        \
        if (setjmp(expect_assert_jump) == 0) {                                                               \
            (void)(expression);                                                                              \
            pl_assert_set_handler(NULL);                                                                     \
            fail_msg("no assertion fired in: %s", #expression);                                              \
        }                                                                                                    \
        pl_assert_set_handler(NULL);                                                                         \
    } while (0)

#endif
