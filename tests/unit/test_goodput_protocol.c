/* The protocol's own machines and the fast mode over the same window agree. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "goodput/protocol.h"
#include "goodput_rig.h"

static struct pl_protocol_result run(const struct pl_goodput_options *o, uint64_t rounds)
{
    struct pl_alloc alloc = pl_alloc_system();
    struct pl_protocol_result r;
    struct pl_error err = {PELAGO_OK, ""};
    if (pl_protocol_run(o, rounds, &alloc, &r, &err) != PELAGO_OK)
        fail_msg("%s", err.text);
    assert_true(r.rounds >= rounds);
    return r;
}

static void expect_agreement(const struct pl_goodput_options *o)
{
    struct pl_protocol_result r = run(o, 10000);
    assert_true(r.fast.failures > 100);
    goodput_assert_near(100 * r.goodput, 100 * r.fast.goodput, 0.5);
}

static void test_agreement(void **state)
{
    (void)state;
    struct pl_goodput_options o;
    pl_goodput_defaults(&o);
    expect_agreement(&o);
    o.quorum = 8;
    expect_agreement(&o);
    o.quorum = 1;
    o.chips = 2400000;
    o.learners = 4;
    o.seed = 2;
    expect_agreement(&o);
}

/* Outages, stragglers, uneven chips, whole learners lost. */
static void test_agreement_in_trouble(void **state)
{
    (void)state;
    struct pl_goodput_options o;
    pl_goodput_defaults(&o);
    o.outages_per_day = 40;
    o.outage.mean_s = 60;
    o.stragglers_per_day = 10;
    o.speed_sd = 0.01;
    expect_agreement(&o);
    o.learners = 4;
    o.outages_per_day = 0;
    o.domain_slices = 1000000;
    o.domain_loss_per_day = 2;
    o.domain_repair.mean_s = 600;
    expect_agreement(&o);
}

/* Nothing that one learner does without the syncer gets old: nobody else merges. */
static void test_agreement_alone(void **state)
{
    (void)state;
    struct pl_goodput_options o;
    pl_goodput_defaults(&o);
    o.chips = 1500;
    o.learners = 1;
    o.mtbi_s = 1e5;
    o.outages_per_day = 40;
    o.outage.mean_s = 200;
    expect_agreement(&o);
}

/* Without failures everybody is in every round, and everything is merged. */
static void test_quiet(void **state)
{
    (void)state;
    struct pl_goodput_options o;
    pl_goodput_defaults(&o);
    o.mtbi_s = 1e12;
    struct pl_protocol_result r = run(&o, 2000);
    goodput_assert_near(r.goodput, 1, 0.002);
    goodput_assert_near(r.cohort[8], 1, 1e-9);
    goodput_assert_near(r.behind[0], 1, 1e-9);
    assert_int_equal(r.discards, 0);
    /* Overwriting costs the steps between a push and the value that answers it. */
    o.rebase = false;
    assert_true(run(&o, 2000).goodput < 0.97);
}

static void test_repeats(void **state)
{
    (void)state;
    struct pl_goodput_options o;
    pl_goodput_defaults(&o);
    struct pl_protocol_result a = run(&o, 1000), b = run(&o, 1000);
    assert_memory_equal(&a, &b, sizeof a);
}

static void test_refuses(void **state)
{
    (void)state;
    struct pl_alloc alloc = pl_alloc_system();
    struct pl_goodput_options o;
    struct pl_protocol_result r;
    struct pl_error err;
    pl_goodput_defaults(&o);
    o.algorithm = PL_GOODPUT_DILOCO;
    assert_int_equal(pl_protocol_run(&o, 100, &alloc, &r, &err), PELAGO_INVALID);
    assert_non_null(strstr(err.text, "algorithm is diloco, expected decoupled"));
    pl_goodput_defaults(&o);
    assert_int_equal(pl_protocol_run(&o, 0, &alloc, &r, &err), PELAGO_INVALID);
    assert_int_equal(pl_protocol_run(&o, UINT64_MAX, &alloc, &r, &err), PELAGO_INVALID);
    assert_non_null(strstr(err.text, "rounds is 18446744073709551615, expected 1 to 10000000"));
    assert_int_equal(pl_protocol_run(&o, 5000000, &alloc, &r, &err), PELAGO_INVALID);
    assert_non_null(strstr(err.text, "expected at most 1250000 with 8 learners"));
    o.step_s = 1e6;
    assert_int_equal(pl_protocol_run(&o, 10, &alloc, &r, &err), PELAGO_INVALID);
    assert_non_null(strstr(err.text, "step is 1000000 seconds, expected at most 600"));
    pl_goodput_defaults(&o);
    o.days = 0.01;
    assert_int_equal(pl_protocol_run(&o, 10000, &alloc, &r, &err), PELAGO_INVALID);
    assert_non_null(strstr(err.text, "days is too short"));
}

/* Each of the first allocations fails in turn; later ones, which carry messages, now and then. */
static void test_out_of_memory(void **state)
{
    (void)state;
    for (uint32_t at = 1; at < 3000; at += at < 120 ? 1 : 97) {
        struct goodput_memory m;
        struct pl_goodput_options o;
        struct pl_protocol_result r;
        struct pl_error err;
        goodput_memory_init(&m, at);
        pl_goodput_defaults(&o);
        o.chips = 12000;
        o.learners = 2;
        o.days = 1;
        assert_int_equal(pl_protocol_run(&o, 1000, &m.alloc, &r, &err), PELAGO_NOMEM);
        assert_int_equal(m.held, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_agreement),       cmocka_unit_test(test_agreement_in_trouble),
        cmocka_unit_test(test_agreement_alone), cmocka_unit_test(test_quiet),
        cmocka_unit_test(test_repeats),         cmocka_unit_test(test_refuses),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
