/* Reading scripts and matching lines; running them is what tests/proto does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "sim/script_int.h"

#include "base/limits.h"
#include "wire/msg.h"

#include <stdio.h>
#include <string.h>

static bool matches(const char *pattern, const char *text)
{
    struct bindings b = {{{0}}};
    return pl_script_match(pattern, text, &b);
}

static void test_match(void **state)
{
    (void)state;
    assert_true(matches("a b", "a b"));
    assert_false(matches("a b", "a bc"));
    assert_false(matches("a bc", "a b"));
    assert_true(matches("*", ""));
    assert_true(matches("a*", "a"));
    assert_true(matches("*b*d", "abcbd"));
    assert_false(matches("*b*d", "abcb"));
    assert_true(matches("syncer 0 round.merge fragment=1 * contributors=3 *",
                        "syncer 0 round.merge fragment=1 round=1.9 contributors=3 base=0"));
    assert_false(matches("syncer 0 round.merge fragment=1 * contributors=3 *",
                         "syncer 0 round.merge fragment=1 round=1.9 contributors=30 base=0"));
}

static void test_names(void **state)
{
    (void)state;
    struct bindings b = {{{0}}};
    assert_true(pl_script_match("pull round=$r base=$b", "pull round=1.24 base=7", &b));
    assert_string_equal(b.value['r' - 'a'], "1.24");
    assert_false(pl_script_match("* round=$r *", "push round=1.25 steps=3", &b));
    assert_true(pl_script_match("* round=$r *", "push round=1.24 steps=3", &b));
    assert_false(pl_script_match("end $b", "end 78", &b));
    /* A failed match leaves no names behind. */
    assert_false(pl_script_match("x=$x y", "x=5 z", &b));
    assert_string_equal(b.value['x' - 'a'], "");
    /* A name inside a pattern with * is tried at every place. */
    assert_true(pl_script_match("*n=$n end", "n=1 n=2 end", &b));
    assert_string_equal(b.value['n' - 'a'], "2");
}

static struct pl_script *parse(const char *text, struct pl_error *err)
{
    static struct pl_alloc alloc;
    struct pl_script *s;
    alloc = pl_alloc_system();
    enum pelago_status status = pl_script_parse(text, strlen(text), &alloc, &s, err);
    assert_true((status == PELAGO_OK) == (s != NULL));
    return s;
}

static void test_options_and_actions(void **state)
{
    (void)state;
    struct pl_script *s = parse("# a comment\n"
                                "set learners 5   # and another\n"
                                "set step 250ms\n"
                                "set latency 1.5s\n"
                                "until 90s\n"
                                "\n"
                                "at 20s start learner 2\n"
                                "at 10s crash learner 2 wiped\n"
                                "at 10s crash syncer 0 after store\n"
                                "at 30s hold learner 3 UPDATE from syncer 1 down\n"
                                "at 31s reset learner 1 half\n"
                                "at 32s checkpoint learner 1 every 5s\n",
                                NULL);
    assert_non_null(s);
    assert_int_equal(s->options.learners, 5);
    assert_int_equal(s->options.step_ns, 250 * PL_MS);
    assert_int_equal(s->options.latency_ns, 1500 * PL_MS);
    assert_int_equal(s->options.duration_ns, 90 * PL_SEC);
    assert_false(s->to_end);
    assert_int_equal(s->action_count, 6);
    assert_int_equal(s->actions[0].arg, PL_CRASH_WIPE); /* by time, equal times as written */
    assert_true(s->actions[1].syncer);
    assert_int_equal(s->actions[1].arg, PL_CRASH_AFTER_STORE);
    assert_int_equal(s->actions[2].kind, PL_ACT_START);
    assert_int_equal(s->actions[3].type, PL_MSG_UPDATE);
    assert_int_equal(s->actions[3].shard, 1);
    assert_int_equal(s->actions[3].dirs, PL_DIR_DOWN);
    assert_int_equal(s->actions[4].arg, PL_BREAK_HALF);
    assert_int_equal(s->actions[4].shard, PL_NONE32);
    assert_int_equal(s->actions[5].arg, 5 * PL_SEC);
    pl_script_free(s);
}

static void test_expectations(void **state)
{
    (void)state;
    char what[200];
    struct pl_script *s = parse("expect a says hello $n\n"
                                "after 10s\n"
                                "expect b says bye $n\n"
                                "never after 5s a says hello *\n"
                                "finally at least 2 a says *\n"
                                "finally at most 3 a says *\n"
                                "finally exactly 1 before 10s b says *\n",
                                NULL);
    assert_non_null(s);
    pl_script_feed(s, PL_SEC, "a", "says hello 7");
    pl_script_feed(s, 2 * PL_SEC, "b", "says bye 7"); /* too early */
    pl_script_feed(s, 6 * PL_SEC, "a", "says nothing");
    pl_script_feed(s, 11 * PL_SEC, "b", "says bye 8"); /* another one */
    assert_false(pl_script_met(s, what, sizeof(what)));
    assert_string_equal(what,
                        "line 3 of the script: not seen after 10.000000 s, where line 2 begins (seen 1 time "
                        "before): b says bye $n");
    pl_script_feed(s, 12 * PL_SEC, "b", "says bye 7");
    assert_true(pl_script_met(s, what, sizeof(what)));
    pl_script_feed(s, 13 * PL_SEC, "a", "says hello 9");
    assert_false(pl_script_met(s, what, sizeof(what)));
    assert_string_equal(
        what, "line 4 of the script: wanted never, seen 1 time, first at 13.000000 s: a says hello *");
    pl_script_free(s);
}

static void test_count_limits(void **state)
{
    (void)state;
    char what[200];
    struct pl_script *s = parse("finally at most 1 a *\nfinally 1 b *\n", NULL);
    assert_false(pl_script_met(s, what, sizeof(what)));
    assert_string_equal(what, "line 2 of the script: wanted exactly 1 time, seen 0: b *");
    pl_script_feed(s, 1, "b", "x");
    pl_script_feed(s, 1, "a", "x");
    assert_true(pl_script_met(s, what, sizeof(what)));
    pl_script_feed(s, 1, "a", "y");
    assert_false(pl_script_met(s, what, sizeof(what)));
    assert_string_equal(what, "line 1 of the script: wanted at most 1 time, seen 2: a *");
    pl_script_free(s);
}

static void test_what_was_not_seen(void **state)
{
    (void)state;
    char what[200];
    struct pl_script *s = parse("expect a $n\n\nexpect b $n\n", NULL);
    assert_false(pl_script_met(s, what, sizeof(what)));
    assert_string_equal(what, "line 1 of the script: not seen at any time: a $n");
    pl_script_feed(s, 1, "b", "7");
    pl_script_feed(s, 2, "b", "8");
    pl_script_feed(s, 1234567891, "a", "7");
    assert_false(pl_script_met(s, what, sizeof(what)));
    assert_string_equal(
        what,
        "line 3 of the script: not seen after line 1 was met at 1.234567 s (seen 2 times before): b $n");
    pl_script_free(s);
}

static void test_mistakes(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "crash learner 2",
        "set nothing 3",
        "set learners many",
        "set step 5",
        "set step 5h",
        "set learners 4294967296",
        "set learners 3 4",
        "at crash learner 2",
        "at 5s explode learner 2",
        "at 5s crash 2",
        "at 5s freeze syncer 0",
        "at 5s disk-full learner 1",
        "at 5s crash learner",
        "at 5s crash learner 2 gently",
        "at 5s crash syncer 0 after lunch",
        "at 5s step learner 2",
        "at 5s pace learner 2 fast",
        "at 5s cut learner 2 from 0",
        "at 5s checkpoint learner 2 every day",
        "until tomorrow",
        "until the cows come home",
        "after",
        "after 5s x",
        "expect",
        "never after x a",
        "never $x",
        "finally about 3 a",
        "finally at 3 a",
        "finally at least three a",
        "expect aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        char text[200];
        struct pl_error err = {0};
        (void)snprintf(text, sizeof(text), "# first\n%s\n", wrong[i]);
        struct pl_script *s = parse(text, &err);
        if (s != NULL)
            fail_msg("\"%s\" was accepted", wrong[i]);
        assert_int_equal(err.status, PELAGO_INVALID);
        if (strstr(err.text, "line 2 of the script: ") != err.text)
            fail_msg("\"%s\" gave: %s", wrong[i], err.text);
    }
}

/* Somebody who does not exist is found before the run. */
static void test_nobody(void **state)
{
    (void)state;
    static const char *const wrong[] = {"at 1s crash learner 4", "at 1s crash learner 0",
                                        "at 1s crash syncer 1", "at 1s cut learner 1 from syncer 1"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct pl_alloc alloc = pl_alloc_system();
        struct pl_sim_result result = {0};
        struct pl_error err = {0};
        struct pl_script *s = parse(wrong[i], NULL);
        assert_non_null(s);
        assert_int_equal(pl_script_run(s, &alloc, &result, NULL, NULL, &err), PELAGO_INVALID);
        assert_non_null(strstr(err.text, "line 1 of the script: there is no "));
        pl_script_free(s);
    }
}

/* So is what makes no sense, and a script that would always be good. */
static void test_refused(void **state)
{
    (void)state;
    static const char *const wrong[][2] = {
        {"set learners 0", "line 1 of the script: learners is 0, expected 1 to 1000"},
        {"\nset step 2000s\nexpect x", "line 2 of the script: step is 2000s, expected 1ms to 1000s"},
        {"until 500ms", "line 1 of the script: duration is 500ms, expected 1s to 1000000s"},
        {"set quorum 4", "line 1 of the script: quorum is 4, expected 1 to 3"},
        {"set shards 3", "fragments is 2 unless set, and has to be 3 to 200 here"},
        {"after 5s", "the script expects nothing: it has no expect, never or finally"},
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct pl_alloc alloc = pl_alloc_system();
        struct pl_sim_result result = {0};
        struct pl_error err = {0};
        struct pl_script *s = parse(wrong[i][0], NULL);
        assert_non_null(s);
        assert_int_equal(pl_script_run(s, &alloc, &result, NULL, NULL, &err), PELAGO_INVALID);
        assert_string_equal(err.text, wrong[i][1]);
        pl_script_free(s);
    }
}

static void *no_memory(void *user, void *block, size_t old_bytes, size_t new_bytes)
{
    (void)user;
    (void)block;
    (void)old_bytes;
    (void)new_bytes;
    return NULL;
}

static void test_no_memory(void **state)
{
    (void)state;
    struct pl_alloc alloc = {no_memory, NULL};
    struct pl_script *s;
    struct pl_error err;
    assert_int_equal(pl_script_parse("until 5s\n", 9, &alloc, &s, &err), PELAGO_NOMEM);
    assert_null(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_match),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_options_and_actions),
        cmocka_unit_test(test_expectations),
        cmocka_unit_test(test_count_limits),
        cmocka_unit_test(test_what_was_not_seen),
        cmocka_unit_test(test_mistakes),
        cmocka_unit_test(test_nobody),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
