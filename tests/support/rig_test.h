/* support/rig_test.h - the rig under cmocka: assertions become failures of the test, and what tests expect of it. */
#ifndef PL_TEST_RIG_TEST_H
#define PL_TEST_RIG_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/check.h"
#include "sync_rig.h"

#include <stdio.h>
#include <string.h>

/* The world of the running test. */
static struct rig rig;

static inline void rig_test_assert(const char *expr, const char *file, int line)
{
    fprintf(stderr, "assertion failed: %s\n", expr);
    _fail(file, line);
}

static inline int rig_test_teardown(void **state)
{
    (void)state;
    if (rig.memory != NULL)
        rig_release(&rig);
    return 0;
}

#define rig_unit_test(name) cmocka_unit_test_teardown(name, rig_test_teardown)
#define rig_run_tests(tests)                                                                                 \
    (pl_assert_set_handler(rig_test_assert), cmocka_run_group_tests(tests, NULL, NULL))

#define expect_sent(conn, type) assert_non_null(rig_sent(&rig, (conn), (type)))
#define expect_not_sent(conn, type) assert_null(rig_sent(&rig, (conn), (type)))

/* The connection was closed for this reason, with a text that has these words in it. */
#define expect_closed(conn, why, words)                                                                      \
    do {                                                                                                     \
        const struct pl_sync_effect *closed_ = rig_closed(&rig, (conn));                                     \
        assert_non_null(closed_);                                                                            \
        assert_string_equal(pl_reason_name(closed_->u.close.reason), pl_reason_name(PL_REASON_##why));       \
        if (strstr(closed_->u.close.text, (words)) == NULL)                                                  \
            fail_msg("\"%s\" does not say \"%s\"", closed_->u.close.text, (words));                          \
    } while (0)

#endif
