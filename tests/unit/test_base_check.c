/* test_base_check.c - what a failed assertion does, and the hooks of test builds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/check.h"
#include "expect_assert.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static jmp_buf jump;
static const char *seen_expr, *seen_file;
static int seen_line;

static void note_and_jump(const char *expr, const char *file, int line)
{
    seen_expr = expr;
    seen_file = file;
    seen_line = line;
    longjmp(jump, 1);
}

static void a_handler_learns_what_failed_and_where(void **state)
{
    (void)state;
    pl_assert_handler *before = pl_assert_set_handler(note_and_jump);
    int line = __LINE__ + 2;
    if (setjmp(jump) == 0) {
        pl_assert(1 + 1 == 3);
        pl_assert_set_handler(before);
        fail_msg("the assertion returned");
    }
    assert_string_equal(seen_expr, "1 + 1 == 3");
    assert_string_equal(strrchr(seen_file, '/') != NULL ? strrchr(seen_file, '/') + 1 : seen_file,
                        "test_base_check.c");
    assert_int_equal(seen_line, line);
    assert_true(pl_assert_set_handler(NULL) == note_and_jump);
    assert_true(pl_assert_set_handler(NULL) == before);
}

static void an_assertion_that_holds_evaluates_once(void **state)
{
    (void)state;
    int n = 0;
    pl_assert(++n == 1);
    assert_int_equal(n, 1);
}

static void return_to_caller(const char *expr, const char *file, int line)
{
    (void)expr;
    (void)file;
    (void)line;
}

/* The signal that ends a child whose assertion fails; what it writes to stderr goes to text. */
static int signal_of_child(pl_assert_handler *handler, char *text, size_t cap)
{
    int pipe_fds[2];
    assert_int_equal(pipe(pipe_fds), 0);
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        signal(SIGABRT, SIG_DFL);
        dup2(pipe_fds[1], STDERR_FILENO);
        pl_assert_set_handler(handler);
        pl_assert_failed("x > 0", "file.c", 12);
    }
    close(pipe_fds[1]);
    size_t len = 0;
    for (ssize_t n = 1; n > 0 && len < cap - 1; len += (size_t)(n > 0 ? n : 0))
        n = read(pipe_fds[0], text + len, cap - 1 - len);
    text[len] = '\0';
    close(pipe_fds[0]);
    int status = 0;
    assert_true(waitpid(child, &status, 0) == child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void without_a_handler_the_process_prints_and_aborts(void **state)
{
    (void)state;
    char text[200];
    assert_int_equal(signal_of_child(NULL, text, sizeof text), SIGABRT);
    assert_string_equal(text, "pelago: assertion failed: x > 0 (file.c:12)\n");
}

static void a_handler_that_returns_aborts_too(void **state)
{
    (void)state;
    char text[200];
    assert_int_equal(signal_of_child(return_to_caller, text, sizeof text), SIGABRT);
    assert_string_equal(text, "");
}

#ifdef PL_TEST_HOOKS
static void one_mutant_at_a_time_and_marks_count(void **state)
{
    (void)state;
    assert_false(pl_mutant(0) || pl_mutant(3));
    pl_mutant_choose(3);
    assert_true(pl_mutant(3));
    assert_false(pl_mutant(4) || pl_mutant(0));
    pl_mutant_choose(0);
    assert_false(pl_mutant(3));
    PL_MARK("test.first");
    PL_MARK("test.second");
    PL_MARK("test.first");
    unsigned long hits = 0;
    unsigned found = 0;
    const char *name;
    for (unsigned i = 0; (name = pl_mark_at(i, &hits)) != NULL; i++) {
        found += strcmp(name, "test.first") == 0 && hits == 2;
        found += strcmp(name, "test.second") == 0 && hits == 1;
    }
    assert_int_equal(found, 2);
}
#else
static void no_mutant_can_be_chosen_in_this_build(void **state)
{
    (void)state;
    assert_false(pl_mutant(1));
    PL_MARK("test.first");
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_handler_learns_what_failed_and_where),
        cmocka_unit_test(an_assertion_that_holds_evaluates_once),
        cmocka_unit_test(without_a_handler_the_process_prints_and_aborts),
        cmocka_unit_test(a_handler_that_returns_aborts_too),
#ifdef PL_TEST_HOOKS
        cmocka_unit_test(one_mutant_at_a_time_and_marks_count),
#else
        cmocka_unit_test(no_mutant_can_be_chosen_in_this_build),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
