/* test_base_cpu.c - the instruction sets found, lowered by the environment and never raised.
 *
 * The answer is computed once per process, so each setting of PELAGO_CPU is asked for in a child of its own.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/cpu.h"
#include "expect_assert.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LEVELS = PL_CPU_AMX + 1, FAST = 16 };

/* What a fresh process with that PELAGO_CPU (NULL: none) finds: its level, and FAST when bf16 is fast. */
static int level_in_child(const char *setting)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (setting != NULL)
            setenv("PELAGO_CPU", setting, 1);
        else
            unsetenv("PELAGO_CPU");
        _exit((int)pl_cpu_level() | (pl_cpu_bf16_is_fast() ? FAST : 0));
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void names_and_levels_belong_together(void **state)
{
    (void)state;
    static const char *const names[LEVELS] = {"portable", "avx2", "avx512", "bf16", "amx"};
    for (int i = 0; i < LEVELS; i++) {
        enum pl_cpu_level level = PL_CPU_PORTABLE;
        assert_string_equal(pl_cpu_level_name((enum pl_cpu_level)i), names[i]);
        assert_true(pl_cpu_level_of_name(names[i], &level));
        assert_int_equal(level, i);
    }
    enum pl_cpu_level untouched = PL_CPU_AVX512;
    static const char *const wrong[] = {"", "AVX2", "avx", "avx5122", "avx2 ", "sse"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_false(pl_cpu_level_of_name(wrong[i], &untouched));
    assert_int_equal(untouched, PL_CPU_AVX512);
    expect_assert(pl_cpu_level_name((enum pl_cpu_level)LEVELS));
}

static void the_environment_lowers_and_never_raises(void **state)
{
    (void)state;
    int best = level_in_child(NULL) & ~FAST;
    assert_in_range(best, PL_CPU_PORTABLE, PL_CPU_AMX);
    for (int i = 0; i < LEVELS; i++) {
        int got = level_in_child(pl_cpu_level_name((enum pl_cpu_level)i));
        assert_int_equal(got & ~FAST, i < best ? i : best);
        if (i < PL_CPU_BF16)
            assert_int_equal(got & FAST, 0);
    }
    assert_int_equal(level_in_child("") & ~FAST, best);
    assert_int_equal(level_in_child("fastest") & ~FAST, best);
}

#ifdef __x86_64__
static void the_answer_agrees_with_the_compilers(void **state)
{
    (void)state;
    int best = level_in_child(NULL) & ~FAST;
    bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    assert_int_equal(best >= PL_CPU_AVX2, avx2);
    assert_int_equal(best >= PL_CPU_AVX512, avx512);
}
#endif

static void *ask_level(void *level)
{
    *(enum pl_cpu_level *)level = pl_cpu_level();
    return NULL;
}

static void many_threads_may_ask_at_once(void **state)
{
    (void)state;
    pthread_t threads[8];
    enum pl_cpu_level levels[8];
    for (int i = 0; i < 8; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, ask_level, &levels[i]), 0);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(levels[i], pl_cpu_level());
    }
}

static void processors_are_those_we_may_run_on(void **state)
{
    (void)state;
    cpu_set_t before, one;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    assert_int_equal(pl_cpu_count(), CPU_COUNT(&before));
    size_t first = 0;
    while (!CPU_ISSET(first, &before))
        first++;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(pl_cpu_count(), 1);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_and_levels_belong_together),
        cmocka_unit_test(the_environment_lowers_and_never_raises),
#ifdef __x86_64__
        cmocka_unit_test(the_answer_agrees_with_the_compilers),
#endif
        cmocka_unit_test(many_threads_may_ask_at_once),
        cmocka_unit_test(processors_are_those_we_may_run_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
