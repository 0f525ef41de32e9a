/* Plans unrolled, and recorded traces turned into plans. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/limits.h"
#include "chaos/schedule.h"
#include "chaos/trace.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct pl_alloc alloc;
static const uint32_t learner_numbers[] = {1, 2, 3, 4, 5, 6, 7, 8}, syncer_numbers[] = {0, 1};

struct unrolled {
    struct pl_chaos_plan plan;
    struct pl_chaos_schedule schedule;
    struct pl_error err;
};

static enum pelago_status begin(struct unrolled *u, const char *text, uint32_t learners)
{
    alloc = pl_alloc_system();
    if (pl_chaos_plan_parse(&u->plan, text, strlen(text), &alloc, &u->err) != PELAGO_OK)
        fail_msg("%s", u->err.text);
    return pl_chaos_schedule_init(&u->schedule, &u->plan, learner_numbers, learners, syncer_numbers, 2,
                                  &alloc, &u->err);
}

static void end(struct unrolled *u)
{
    pl_chaos_schedule_release(&u->schedule);
    pl_chaos_plan_release(&u->plan);
}

/* "10 kill learner 2;" for every event. */
static const char *unroll(const char *text, uint32_t learners)
{
    static char out[8192];
    struct unrolled u;
    struct pl_chaos_event ev;
    size_t len = 0;
    out[0] = '\0';
    if (begin(&u, text, learners) != PELAGO_OK)
        fail_msg("%s", u.err.text);
    while (pl_chaos_schedule_next(&u.schedule, &ev) && len < sizeof out - 100)
        len += (size_t)snprintf(out + len, sizeof out - len, "%g %s %s%u;", (double)ev.at_ns * 1e-9,
                                ev.undo ? pl_chaos_verb_undo_name(ev.action->verb)
                                        : pl_chaos_verb_name(ev.action->verb),
                                ev.action->target.syncer ? "s" : "", ev.node);
    end(&u);
    return out;
}

static void test_order(void **state)
{
    (void)state;
    assert_string_equal(unroll("at 3s kill learner 2\nat 1s stop learner 1 for 1s\nat 2s kill syncer 1", 4),
                        "1 stop 1;2 continue 1;2 kill s1;3 kill 2;");
    assert_string_equal(unroll("until 10s\nevery 3s kill learner 2", 4), "3 kill 2;6 kill 2;9 kill 2;");
    assert_string_equal(unroll("every 3s from 4s to 9s kill learner 2", 4), "7 kill 2;");
    assert_string_equal(unroll("at 1s partition learners 1,3-4", 4),
                        "1 partition 1;1 partition 3;1 partition 4;");
}

/* At `until` everything still open is healed; without it, what has no end of its own stays. */
static void test_ends(void **state)
{
    (void)state;
    assert_string_equal(unroll("until 9s\nat 1s stop learner 1\nat 2s partition learner 2 for 1h", 4),
                        "1 stop 1;2 partition 2;9 heal 2;9 continue 1;");
    assert_string_equal(unroll("at 1s stop learner 1", 4), "1 stop 1;");
    /* The same action again moves its end; an explicit end replaces it. */
    assert_string_equal(unroll("at 1s stop learner 1 for 5s\nat 3s stop learner 1 for 5s", 4),
                        "1 stop 1;3 stop 1;8 continue 1;");
    assert_string_equal(unroll("at 1s stop learner 1 for 5s\nat 3s continue learner 1", 4),
                        "1 stop 1;3 continue 1;");
    assert_string_equal(
        unroll(
            "at 1s partition learner 1 for 5s\nat 1s corrupt learner 1 1 in 9 for 5s\nat 3s clear learner 1",
            4),
        "1 partition 1;1 corrupt 1;3 clear 1;");
}

static void test_drain(void **state)
{
    (void)state;
    struct unrolled u;
    struct pl_chaos_event ev;
    assert_int_equal(begin(&u, "at 1s stop learner 1\nat 2s down learner 3 for 9s\nat 3s kill learner 4", 4),
                     PELAGO_OK);
    for (uint32_t i = 0; i < 3; i++)
        assert_true(pl_chaos_schedule_next(&u.schedule, &ev));
    assert_true(pl_chaos_schedule_drain(&u.schedule, &ev) && ev.undo && ev.node == 3);
    assert_true(pl_chaos_schedule_drain(&u.schedule, &ev) && ev.undo && ev.node == 1);
    assert_false(pl_chaos_schedule_drain(&u.schedule, &ev));
    end(&u);
}

static void test_picks(void **state)
{
    (void)state;
    char first[8192];
    snprintf(first, sizeof first, "%s", unroll("seed 5\nuntil 300s\nevery 1s kill random learner", 8));
    assert_string_equal(unroll("seed 5\nuntil 300s\nevery 1s kill random learner", 8), first);
    assert_string_not_equal(unroll("seed 6\nuntil 300s\nevery 1s kill random learner", 8), first);
    for (uint32_t l = 1; l <= 8; l++) {
        char word[16];
        uint32_t seen = 0;
        snprintf(word, sizeof word, "kill %u;", l);
        for (const char *p = first; (p = strstr(p, word)) != NULL; p++)
            seen++;
        assert_true(seen > 15 && seen < 70); /* 37.5 expected */
    }
    /* Half of five is two, different ones; who is held down is not picked, and only they come up. */
    const char *half = unroll("at 1s stop half learners", 5);
    unsigned a, b;
    assert_int_equal(sscanf(half, "1 stop %u;1 stop %u;", &a, &b), 2);
    assert_int_not_equal(a, b);
    assert_string_equal(unroll("at 1s down learners 1-2\nat 2s up learner 2\nat 3s up random learner", 3),
                        "1 down 1;1 down 2;2 up 2;3 up 1;");
    assert_non_null(strstr(unroll("at 1s down learners 1-2\nat 2s kill random learner", 3), "2 kill 3;"));
    assert_string_equal(unroll("at 1s down all learners\nat 2s kill random learner", 2),
                        "1 down 1;1 down 2;");
}

/* Exponential intervals have the mean asked for. */
static void test_about(void **state)
{
    (void)state;
    struct unrolled u;
    struct pl_chaos_event ev;
    uint64_t count = 0, last = 0;
    double squares = 0;
    assert_int_equal(begin(&u, "seed 3\nuntil 20000s\nabout every 10s kill random learner", 4), PELAGO_OK);
    while (pl_chaos_schedule_next(&u.schedule, &ev)) {
        double gap = (double)(ev.at_ns - last) * 1e-9;
        squares += gap * gap;
        last = ev.at_ns;
        count++;
    }
    assert_true(count > 1850 && count < 2150);
    assert_true(squares / (double)count > 150 &&
                squares / (double)count < 260); /* 2 x mean^2; fixed ones give 100 */
    end(&u);
}

static void test_nobody(void **state)
{
    (void)state;
    struct unrolled u;
    assert_int_equal(begin(&u, "\nat 1s kill learner 5", 4), PELAGO_INVALID);
    assert_string_equal(u.err.text, "line 2 of the plan: the run has no learner 5");
    end(&u);
    assert_int_equal(begin(&u, "at 1s kill learner 1-9", 8), PELAGO_INVALID);
    end(&u);
    assert_int_equal(begin(&u, "at 1s kill random learner", 0), PELAGO_INVALID);
    end(&u);
}

/* ---- traces ---- */

static enum pelago_status convert(const char *csv, uint32_t learners, bool fold, double scale,
                                  uint64_t skip_s, char *out, size_t cap, struct pl_error *err)
{
    struct pl_trace_options o = {.learners = learners, .fold = fold, .time_scale = scale, .skip_s = skip_s};
    struct pl_buf plan;
    alloc = pl_alloc_system();
    pl_buf_init(&plan, &alloc, PL_CHAOS_TEXT_MAX);
    enum pelago_status status = pl_trace_to_plan(csv, strlen(csv), &o, &alloc, &plan, err);
    snprintf(out, cap, "%.*s", (int)plan.len, (const char *)plan.data);
    pl_buf_release(&plan);
    return status;
}

static void test_trace_slots(void **state)
{
    (void)state;
    char plan[1000];
    struct pl_error err;
    /* a and b are there at first; c comes when nobody is needed, and again when a learner is free. */
    static const char csv[] =
        "t_s,event,node,cause\n0,up,a,x\n0,up,b,x\n100,up,c,x\n200,down,b,x\n250,down,c,x\n300,up,c,x\n"
        "400,down,a,x\n500,down,c,x\n600,up,b,x\n";
    assert_int_equal(convert(csv, 2, false, 100, 0, plan, sizeof plan, &err), PELAGO_OK);
    assert_string_equal(plan, "at 2.000s down learner 2\nat 3.000s up learner 2\nat 4.000s down learner 1\n"
                              "at 5.000s down learner 2\nat 6.000s up learner 1\n");
    /* A third learner has no node until c comes. */
    assert_int_equal(convert(csv, 3, false, 100, 0, plan, sizeof plan, &err), PELAGO_OK);
    assert_memory_equal(plan, "at 0.000s down learner 3\nat 1.000s up learner 3\nat 2.000s down learner 2\n",
                        70);
    /* From 350 s on: a and c are up. */
    assert_int_equal(convert(csv, 2, false, 1, 350, plan, sizeof plan, &err), PELAGO_OK);
    assert_string_equal(plan,
                        "at 50.000s down learner 1\nat 150.000s down learner 2\nat 250.000s up learner 1\n");
}

static void test_trace_fold(void **state)
{
    (void)state;
    char plan[1000];
    struct pl_error err;
    /* Nodes that are down first were up before. Both are learner 1; the second never comes back. */
    static const char csv[] =
        "t_s,event,node,cause\n10,down,a,x\n20,down,b,x\n30,up,a,x\n40,down,a,x\n50,up,a,x\n";
    assert_int_equal(convert(csv, 1, true, 1, 0, plan, sizeof plan, &err), PELAGO_OK);
    assert_string_equal(plan,
                        "at 10.000s down learner 1\nat 30.000s up learner 1\nat 40.000s down learner 1\n"
                        "at 50.000s up learner 1\n");
    assert_int_equal(convert(csv, 2, true, 1, 0, plan, sizeof plan, &err), PELAGO_OK);
    assert_non_null(strstr(plan, "at 20.000s kill learner 2\n"));
}

static void test_trace_bad(void **state)
{
    (void)state;
    static const char *const bad[] = {"",          "t_s,event,node,cause\n", "x,up,a,c\n", "1,sideways,a,c\n",
                                      "1,up,,c\n", "5,up,a,c\n3,up,b,c\n",   "1,up",       "1"};
    char plan[1000];
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct pl_error err = {PELAGO_OK, ""};
        assert_int_equal(convert(bad[i], 2, false, 1, 0, plan, sizeof plan, &err), PELAGO_INVALID);
        assert_non_null(strstr(err.text, "the trace"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),       cmocka_unit_test(test_ends),
        cmocka_unit_test(test_drain),       cmocka_unit_test(test_picks),
        cmocka_unit_test(test_about),       cmocka_unit_test(test_nobody),
        cmocka_unit_test(test_trace_slots), cmocka_unit_test(test_trace_fold),
        cmocka_unit_test(test_trace_bad),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
