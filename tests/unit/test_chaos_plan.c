/* Plans: what a line means, and the sentence for one that means nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/limits.h"
#include "base/prng.h"
#include "chaos/plan.h"
#include "chaos/units.h"
#include "seed.h"

#include <stdio.h>
#include <string.h>

static struct pl_alloc alloc;

static enum pelago_status parse(const char *text, struct pl_chaos_plan *plan, struct pl_error *err)
{
    alloc = pl_alloc_system();
    return pl_chaos_plan_parse(plan, text, strlen(text), &alloc, err);
}

/* The only rule of a plan of one line, with an until behind it. */
static struct pl_chaos_rule one(const char *line)
{
    char text[300];
    struct pl_chaos_plan plan;
    struct pl_error err;
    snprintf(text, sizeof text, "%s\nuntil 1h\n", line);
    if (parse(text, &plan, &err) != PELAGO_OK)
        fail_msg("%s: %s", line, err.text);
    assert_int_equal(plan.rule_count, 1);
    struct pl_chaos_rule rule = plan.rules[0];
    pl_chaos_plan_release(&plan);
    return rule;
}

static void test_when(void **state)
{
    (void)state;
    struct pl_chaos_rule r = one("at 1.5s kill learner 2");
    assert_int_equal(r.from_ns, 1500 * PL_MS);
    assert_int_equal(r.every_ns, 0);
    r = one("kill learner 2");
    assert_int_equal(r.from_ns, 0);
    r = one("every 15s kill random learner");
    assert_int_equal(r.every_ns, 15 * PL_SEC);
    assert_false(r.about);
    assert_true(r.to_ns == PL_NEVER);
    r = one("about every 2m from 10s to 1h kill random learner # comment");
    assert_true(r.about);
    assert_int_equal(r.every_ns, 120 * PL_SEC);
    assert_int_equal(r.from_ns, 10 * PL_SEC);
    assert_int_equal(r.to_ns, 3600 * PL_SEC);
}

static void test_whom(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        bool syncer;
        enum pl_chaos_pick pick;
    } cases[] = {
        {"kill learner 2", false, PL_PICK_LISTED},
        {"kill random learner", false, PL_PICK_RANDOM},
        {"kill learner random", false, PL_PICK_RANDOM},
        {"kill half of the learners", false, PL_PICK_HALF},
        {"kill half learners", false, PL_PICK_HALF},
        {"kill all learners", false, PL_PICK_ALL},
        {"kill learners all", false, PL_PICK_ALL},
        {"kill syncer 0", true, PL_PICK_LISTED},
        {"kill syncer random", true, PL_PICK_RANDOM},
        {"partition learners 1,2 for 60s", false, PL_PICK_LISTED},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct pl_chaos_rule r = one(cases[i].line);
        assert_int_equal(r.action.target.syncer, cases[i].syncer);
        assert_int_equal(r.action.target.pick, cases[i].pick);
    }
    struct pl_chaos_rule r = one("stop learners 1,5-8,20 for 3s");
    assert_int_equal(r.action.target.range_count, 3);
    assert_int_equal(r.action.target.ranges[1].first, 5);
    assert_int_equal(r.action.target.ranges[1].last, 8);
}

static void test_what(void **state)
{
    (void)state;
    struct pl_chaos_rule r = one("at 5s link learner 2 rate 1Mbit latency 50ms jitter 10ms out for 3s");
    assert_int_equal(r.action.verb, PL_CHAOS_LINK);
    assert_int_equal(r.action.dirs, PL_SHAPE_UP);
    assert_int_equal(r.action.for_ns, 3 * PL_SEC);
    assert_int_equal(r.action.change.to.v[PL_SHAPE_RATE], 125000);
    assert_int_equal(r.action.change.to.v[PL_SHAPE_LATENCY], 50 * PL_MS);
    assert_int_equal(r.action.change.keys, 1 << PL_SHAPE_RATE | 1 << PL_SHAPE_LATENCY | 1 << PL_SHAPE_JITTER);
    r = one("slow-cpu learner 3 to 30% for 20s");
    assert_int_equal(r.action.percent, 30);
    r = one("kill learner 3 for 20s");
    assert_int_equal(r.action.verb, PL_CHAOS_DOWN);
    r = one("partition learner 3 in");
    assert_int_equal(r.action.dirs, PL_SHAPE_DOWN);
    assert_int_equal(r.action.change.to.v[PL_SHAPE_HOLD], 1);
    r = one("corrupt learner 3 1 in 1e6 bytes out");
    assert_int_equal(r.action.change.to.v[PL_SHAPE_CORRUPT], 1000000);
    r = one("drip learner 3");
    assert_int_equal(r.action.change.to.v[PL_SHAPE_SLICE], 16);
    r = one("drip learner 3 100 bytes every 50ms for 1s");
    assert_int_equal(r.action.change.to.v[PL_SHAPE_GAP], 50 * PL_MS);
    r = one("limit-data learner 3 64kB");
    assert_int_equal(r.action.change.to.v[PL_SHAPE_LIMIT], 64000);
    r = one("slow-close learner 1 2s");
    assert_int_equal(r.action.change.to.v[PL_SHAPE_SLOW_CLOSE], 2 * PL_SEC);
    assert_int_equal(one("reset link learner 2").action.verb, PL_CHAOS_RESET);
    assert_int_equal(one("reset learner 2").action.verb, PL_CHAOS_RESET);
    assert_int_equal(one("half-open learner 2").action.verb, PL_CHAOS_HALF_OPEN);
    assert_int_equal(one("fill-disk syncer 0 for 10s").action.verb, PL_CHAOS_FILL_DISK);
    assert_int_equal(one("mute learner 2 for 10s").action.verb, PL_CHAOS_MUTE);
}

static void test_whole(void **state)
{
    (void)state;
    struct pl_chaos_plan plan;
    struct pl_error err;
    static const char text[] =
        "# a plan\r\n\nrandom seed 7\nuntil 30m\n  sim set learners 8\nat 1s kill learner 1\nsim expect x";
    assert_int_equal(parse(text, &plan, &err), PELAGO_OK);
    assert_int_equal(plan.seed, 7);
    assert_int_equal(plan.until_ns, 1800 * PL_SEC);
    assert_int_equal(plan.rule_count, 1);
    assert_int_equal(plan.rules[0].action.line, 6);
    assert_int_equal(plan.sim_line_count, 2);
    assert_memory_equal(text + plan.sim_lines[0].at, "set learners 8", plan.sim_lines[0].len);
    assert_memory_equal(text + plan.sim_lines[1].at, "expect x", plan.sim_lines[1].len);
    pl_chaos_plan_release(&plan);
    assert_int_equal(parse("", &plan, &err), PELAGO_OK);
    pl_chaos_plan_release(&plan);
}

static void test_bad(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"kill", "learner or syncer is expected"},
        {"kill learner", "a number such as 2"},
        {"kill learner x", "not 'x'"},
        {"kill learner 2,", "a number such as 2"},
        {"kill learner 3-2", "a number such as 2"},
        {"kill learner 99999999", "a number such as 2"},
        {"kill learner 1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1", "at most 16"},
        {"\n\nat kill learner 2", "line 3 of the plan"},
        {"at 10 kill learner 2", "a time such as"},
        {"at 10s", "another action is expected"},
        {"at 10s dance learner 2", "not 'dance'"},
        {"at 10s kill learner 2 gently", "not 'gently'"},
        {"at 10s kill learner 2 for", "after 'for'"},
        {"at 10s kill learner 2 for 0s", "after 'for'"},
        {"about 3s kill learner 1", "every is expected"},
        {"every 0s kill learner 1", "at least 1ms"},
        {"every 3s kill learner 1", "it has no end"},
        {"slow-cpu learner 1 to 30%", "lasts only while the plan runs"},
        {"slow-cpu learner 1 to 0% for 1s", "1% to 100%"},
        {"slow-cpu learner 1 for 1s", "to 30% is expected"},
        {"link learner 1", "or other keys"},
        {"link learner 1 rate", "rate is ''"},
        {"link learner 1 rate 5", "a rate such as 25Mbit"},
        {"link learner 1 colour red", "not 'colour'"},
        {"partition syncer 0", "links are those of learners"},
        {"duplicate learner 1", "delivers bytes once and in order"},
        {"at 3s reorder learner 1", "delivers bytes once and in order"},
        {"corrupt learner 1", "1 in 1e6 bytes"},
        {"corrupt learner 1 1 in 0", "1 in 1e6 bytes"},
        {"limit-data learner 1", "a number of bytes"},
        {"drip learner 1 5 bytes", "16 bytes every 10ms"},
        {"seed", "seed NUMBER"},
        {"seed 1 2", "seed NUMBER"},
        {"until", "a time such as"},
        {"random walk", "seed is expected"},
        {"at 1s kill learner \x01", "not ASCII"},
        {"kill a b c d e f g h i j k l m n o p q r s t u v w x y z", "more than 24 words"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct pl_chaos_plan plan;
        struct pl_error err = {PELAGO_OK, ""};
        if (parse(cases[i].text, &plan, &err) != PELAGO_INVALID || strstr(err.text, cases[i].says) == NULL)
            fail_msg("%s: '%s' does not say '%s'", cases[i].text, err.text, cases[i].says);
        assert_non_null(strstr(err.text, "of the plan"));
        assert_null(plan.rules);
    }
}

static void test_units(void **state)
{
    (void)state;
    uint64_t v;
    uint32_t p;
    char text[40];
    assert_true(pl_unit_time("250ms", &v) && v == 250 * PL_MS);
    assert_true(pl_unit_time("1.5h", &v) && v == 5400 * PL_SEC);
    assert_true(pl_unit_time("2min", &v) && v == 120 * PL_SEC && pl_unit_time("2m", &v) && v == 120 * PL_SEC);
    assert_true(pl_unit_time("30066666.600s", &v) && v == UINT64_C(30066666600) * PL_MS);
    assert_true(pl_unit_time("0", &v) && v == 0);
    assert_true(pl_unit_rate("25Mbit/s", &v) && v == 3125000);
    assert_true(pl_unit_rate("10kB", &v) && v == 10000);
    assert_true(pl_unit_bytes("1.5MB", &v) && v == 1500000);
    assert_true(pl_unit_number("1e6", &v) && v == 1000000);
    assert_true(pl_unit_percent("30%", &p) && p == 30);
    static const char *const bad[] = {"",    "s",    "-1s",     "1", "1.s", "1e99s", "99999999999999999999s",
                                      "1 s", "1sec", "9999999h"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_false(pl_unit_time(bad[i], &v) && v < PL_COUNT_MAX && strcmp(bad[i], "9999999h") != 0);
    assert_false(pl_unit_percent("101%", &p));
    assert_false(pl_unit_rate("Mbit", &v));
    pl_unit_put_time(text, sizeof text, 12345 * PL_MS);
    assert_string_equal(text, "12.345s");
}

/* A change in words is the same change. */
static void test_shape_words(void **state)
{
    (void)state;
    struct pl_shape_change change = {.keys = 0}, back = {.keys = 0};
    struct pl_error err;
    char words[400], *next;
    for (uint32_t key = 0; key < PL_SHAPE_KEYS; key++) {
        change.keys |= 1U << key;
        change.to.v[key] = key >= PL_SHAPE_HOLD ? 1 : 1000 * (key + 7);
    }
    pl_shape_print(&change, false, words, sizeof words);
    for (char *at = words; at != NULL; at = next) {
        char *value = strchr(at, ' ');
        assert_non_null(value);
        *value++ = '\0';
        next = strchr(value, ' ');
        if (next != NULL)
            *next++ = '\0';
        assert_int_equal(pl_shape_set(&back, pl_shape_find(at), value, &err), PELAGO_OK);
    }
    assert_memory_equal(&back, &change, sizeof back);
    struct pl_shape shape = {{0}};
    pl_shape_apply(&shape, &change);
    assert_memory_equal(&shape, &change.to, sizeof shape);
    pl_shape_print(&change, true, words, sizeof words);
    assert_null(strstr(words, "on"));
}

/* Lines of words that a plan may have, in any order: read or refused with a sentence, never more. */
static void test_random(void **state)
{
    (void)state;
    static const char *const words[] = {
        "at",    "every",   "about",     "10s",       "5m",    "kill", "stop", "learner",  "syncer",
        "2",     "0",       "1,3-4",     "random",    "half",  "all",  "for",  "link",     "rate",
        "1Mbit", "latency", "partition", "in",        "out",   "to",   "30%",  "slow-cpu", "corrupt",
        "1",     "1e6",     "bytes",     "from",      "until", "seed", "drip", "sim",      "reset",
        "#",     "\n",      "clear",     "fill-disk", "\t"};
    struct pl_prng prng;
    uint32_t good = 0;
    pl_prng_seed(&prng, test_seed(), 1);
    for (uint32_t i = 0; i < 20000; i++) {
        char text[300];
        size_t len = 0;
        struct pl_chaos_plan plan;
        struct pl_error err = {PELAGO_OK, ""};
        for (uint64_t n = pl_prng_below(&prng, 14); n > 0; n--)
            len += (size_t)snprintf(text + len, sizeof text - len, "%s ",
                                    words[pl_prng_below(&prng, sizeof words / sizeof words[0])]);
        text[len] = '\0';
        if (parse(text, &plan, &err) == PELAGO_OK) {
            good++;
            pl_chaos_plan_release(&plan);
        } else {
            assert_true(strlen(err.text) > 10);
        }
    }
    assert_true(good > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_when),        cmocka_unit_test(test_whom),   cmocka_unit_test(test_what),
        cmocka_unit_test(test_whole),       cmocka_unit_test(test_bad),    cmocka_unit_test(test_units),
        cmocka_unit_test(test_shape_words), cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
