/* A plan of `pelago chaos` as a script of the simulator; tests/e2e/chaos.sh does the same plans to real processes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "cmd/cmd_sim_plan.h"
#include "sim/script.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum pelago_status translate(const char *text, char *out, size_t cap, struct pl_error *err)
{
    struct pl_alloc alloc = pl_alloc_system();
    struct pl_chaos_plan plan;
    struct pl_buf script;
    if (pl_chaos_plan_parse(&plan, text, strlen(text), &alloc, err) != PELAGO_OK)
        fail_msg("%s", err->text);
    pl_buf_init(&script, &alloc, 1 << 20);
    enum pelago_status status = pl_sim_plan_script(&plan, text, &alloc, &script, err);
    snprintf(out, cap, "%.*s", (int)script.len, (const char *)script.data);
    pl_buf_release(&script);
    pl_chaos_plan_release(&plan);
    return status;
}

static void test_verbs(void **state)
{
    (void)state;
    static const struct {
        const char *plan, *script;
    } cases[] = {
        {"at 10s kill learner 2", "at 10.000s crash learner 2\nat 11.000s start learner 2\n"},
        {"at 10s kill learner 2 for 5s", "at 10.000s crash learner 2\nat 15.000s start learner 2\n"},
        {"down learner 2\nat 5s up learner 2", "at 0.000s absent learner 2\nat 5.000s start learner 2\n"},
        {"at 1s kill syncer 0", "at 1.000s crash syncer 0\nat 2.000s start syncer 0\n"},
        {"at 1s stop learner 1 for 2s", "at 1.000s freeze learner 1\nat 3.000s thaw learner 1\n"},
        {"at 1s slow-cpu learner 1 to 25% for 2s",
         "at 1.000s pace learner 1 4000\nat 3.000s pace learner 1 1000\n"},
        {"at 1s partition learner 1 in for 2s",
         "at 1.000s cut learner 1 down\nat 3.000s heal learner 1 down\n"},
        {"at 1s link learner 1 rate 1Mbit latency 40ms jitter 10ms for 2s",
         "at 1.000s bandwidth learner 1 125000\nat 1.000s latency learner 1 40000us\n"
         "at 3.000s bandwidth learner 1 0\nat 3.000s latency learner 1 0us\n"},
        {"at 1s reset link learner 1\nat 2s half-open learner 1",
         "at 1.000s reset learner 1\nat 2.000s reset learner 1 half\n"},
        {"at 1s fill-disk syncer 0 for 2s", "at 1.000s disk-full syncer 0\nat 3.000s disk-ok syncer 0\n"},
        {"at 1s terminate learner 3", "at 1.000s quit learner 3\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char script[2000];
        struct pl_error err;
        struct pl_script *parsed;
        struct pl_alloc alloc = pl_alloc_system();
        assert_int_equal(translate(cases[i].plan, script, sizeof script, &err), PELAGO_OK);
        if (strstr(script, cases[i].script) == NULL)
            fail_msg("%s gives %s", cases[i].plan, script);
        if (pl_script_parse(script, strlen(script), &alloc, &parsed, &err) != PELAGO_OK)
            fail_msg("%s: %s", cases[i].plan, err.text);
        pl_script_free(parsed);
    }
}

static void test_cluster(void **state)
{
    (void)state;
    char script[2000];
    struct pl_error err;
    assert_int_equal(translate("kill learner 7\nkill syncer 2", script, sizeof script, &err), PELAGO_OK);
    assert_non_null(strstr(script, "set learners 7\nset shards 3\nset fragments 3\n"));
    assert_int_equal(translate("sim set learners 6\nat 1s kill all learners\nsim never syncer 9 *", script,
                               sizeof script, &err),
                     PELAGO_OK);
    assert_non_null(strstr(script, "crash learner 6\n"));
    assert_null(strstr(script, "crash learner 7\n"));
    assert_non_null(strstr(script, "\nnever syncer 9 *\n"));
}

static void test_refusals(void **state)
{
    (void)state;
    static const char *const plans[] = {"\ndrip learner 1",
                                        "\ncorrupt learner 1 1 in 100",
                                        "\nlimit-data learner 1 1MB",
                                        "\nslow-close learner 1 1s",
                                        "\nmute learner 1",
                                        "\nlink learner 1 corrupt 100",
                                        "\nlink learner 1 rate 1Mbit out",
                                        "\nlink learner 1 latency 10ms jitter 10ms",
                                        "\nstop syncer 0 for 1s",
                                        "\nslow-cpu syncer 0 to 30% for 1s",
                                        "\nterminate syncer 0",
                                        "\nfill-disk learner 1 for 1s"};
    for (size_t i = 0; i < sizeof plans / sizeof plans[0]; i++) {
        char script[2000];
        struct pl_error err = {PELAGO_OK, ""};
        assert_int_equal(translate(plans[i], script, sizeof script, &err), PELAGO_INVALID);
        assert_non_null(strstr(err.text, "line 2 of the plan: the simulator"));
    }
}

static char *read_file(const char *path)
{
    char *text = calloc(1, 1 << 16);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    size_t len = fread(text, 1, (1 << 16) - 1, f);
    fclose(f);
    assert_true(len > 0);
    return text;
}

/* Every example is rehearsed to its end, with all checkers watching. */
static void test_examples(void **state)
{
    (void)state;
    struct pl_alloc alloc = pl_alloc_system();
    static char script[1 << 18];
    uint32_t count = 0;
    DIR *d = opendir("examples/chaos");
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        char path[300];
        struct pl_script *parsed;
        struct pl_sim_result result;
        struct pl_error err;
        if (strstr(e->d_name, ".plan") == NULL)
            continue;
        snprintf(path, sizeof path, "examples/chaos/%s", e->d_name);
        char *text = read_file(path);
        assert_int_equal(translate(text, script, sizeof script, &err), PELAGO_OK);
        assert_int_equal(pl_script_parse(script, strlen(script), &alloc, &parsed, &err), PELAGO_OK);
        assert_int_equal(pl_script_run(parsed, &alloc, &result, NULL, NULL, &err), PELAGO_OK);
        if (result.exit != PL_SIM_OK)
            fail_msg("%s: %s", path, result.what);
        pl_script_free(parsed);
        free(text);
        count++;
    }
    closedir(d);
    assert_true(count >= 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_verbs),
        cmocka_unit_test(test_cluster),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_examples),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
