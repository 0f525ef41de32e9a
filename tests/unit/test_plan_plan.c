/* Plans: what makes no sense is refused in one sentence, what makes sense holds against its simulation. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "plan/quality.h"
#include "plan/simulate.h"
#include "plan/wan.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static struct pl_plan_input in;
static struct pl_plan plan;

/* Three equal sites of 256 chips and a 7B model on links that are ample. */
static int begin(void **state)
{
    (void)state;
    pl_plan_defaults(&in);
    in.params = 7e9;
    in.tokens = 140e9;
    in.batch_tokens = 1e6;
    in.site_count = 3;
    for (uint32_t i = 0; i < 3; i++) {
        in.sites[i].chips = 256;
        (void)snprintf(in.sites[i].name, sizeof in.sites[i].name, "s%u", i + 1);
    }
    return 0;
}

static void assert_refused(const char *sentence)
{
    struct pl_error err = {PELAGO_OK, ""};
    assert_int_equal(pl_plan_make(&in, &plan, &err), PELAGO_INVALID);
    if (strstr(err.text, sentence) == NULL)
        print_message("said: %s\n", err.text);
    assert_non_null(strstr(err.text, sentence));
}

static void make(void)
{
    struct pl_error err;
    enum pelago_status st = pl_plan_make(&in, &plan, &err);
    if (st != PELAGO_OK)
        print_message("said: %s\n", err.text);
    assert_int_equal(st, PELAGO_OK);
}

/* ---- nonsense ---- */

static void test_zero_chips(void **state)
{
    (void)state;
    in.sites[1].chips = 0;
    assert_refused("chips of s2 is 0, expected a slice (4) to 100000000");
}

static void test_negative_rate(void **state)
{
    (void)state;
    in.sites[2].link_bits_s = -1e6;
    assert_refused("link of s3 is out of its range, expected 1 kbit/s to 1000 Tbit/s");
    in.sites[2].link_bits_s = (double)NAN;
    assert_refused("link of s3 is out of its range");
}

static void test_quorum_larger_than_the_sites(void **state)
{
    (void)state;
    in.quorum = 4;
    assert_refused("quorum is 4, expected 1 to 3, the sites");
    in.quorum = 0;
    assert_refused("quorum is 0, expected 1 to 3");
}

static void test_fragment_larger_than_a_link_moves(void **state)
{
    (void)state;
    in.fixed = (struct pl_plan_choice){4, 4, PL_CODEC_FP32, PL_CODEC_FP32};
    in.sites[0].link_bits_s = 100e6;
    assert_refused("link of s1 is 100000 kbit/s, expected at least ");
    in.fixed = (struct pl_plan_choice){0, 0, 0, 0};
    in.sites[0].link_bits_s = 10e3;
    assert_refused("a fragment must be moved in its period");
    in.sites[0].link_bits_s = 20e6;
    assert_refused("a fragment must be merged ten times in the run");
}

static void test_other_nonsense(void **state)
{
    (void)state;
    const struct {
        double *field, value;
        const char *sentence;
    } cases[] = {
        {&in.params, 0, "params is out of its range, expected 1000 to 1000G"},
        {&in.tokens, -1, "tokens is out of its range, expected 1000 to 1e18"},
        {&in.batch_tokens, 0, "batch is out of its range, expected 1 to 10G tokens"},
        {&in.repair_s, -1, "repair is out of its range, expected 0 to 1e8 seconds"},
        {&in.outage_s, 1e9, "outage is out of its range, expected 0 to 1e8 seconds"},
        {&in.deadline_s, -5, "deadline is out of its range"},
        {&in.syncer_bytes, 0, "syncer-memory is out of its range"},
        {&in.syncer_bits_s, 0, "syncer-link is out of its range"},
        {&in.sites[0].tflops, 0, "tflops of s1 is out of its range"},
        {&in.sites[0].latency_s, -1, "latency of s1 is out of its range, expected 0 to 600 seconds"},
        {&in.sites[0].mtbi_s, 0, "mtbi of s1 is out of its range"},
        {&in.sites[0].outages_per_day, -1, "outages of s1 is out of its range, expected 0 to 10000 a day"},
        {&in.sites[0].price, -1, "price of s1 is out of its range"},
        {&in.sites[0].egress, (double)INFINITY, "egress of s1 is out of its range"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        double before = *cases[i].field;
        *cases[i].field = cases[i].value;
        assert_refused(cases[i].sentence);
        *cases[i].field = before;
    }
    double tokens = in.tokens, params = in.params;
    in.tokens = in.batch_tokens / 2;
    assert_refused("a step of one learner (batch)");
    in.tokens = tokens;
    in.fixed.fragments = 2000;
    in.params = 1500;
    assert_refused("fragments is 2000, expected 1 to 1500, the parameters");
    in.params = params;
    in.fixed.fragments = 50;
    in.fixed.period = 40;
    assert_refused("fragments is 50, expected 1 to 40, the period");
    in.fixed.period = 5000;
    assert_refused("period is 5000, expected 1 to 4096");
    in.fixed = (struct pl_plan_choice){0, 0, 0, 0};
    in.site_count = 0;
    assert_refused("sites is 0, expected 1 to 64");
    in.site_count = 3;
    in.slice_chips = 0;
    assert_refused("slice is 0, expected 1 to ");
    in.slice_chips = 4;
    in.batch_tokens = 1;
    in.sites[0].chips = 100000000;
    assert_refused("a step of s1 takes 0 ms, expected 1 to 100000000");
}

/* ---- sense ---- */

static void test_what_is_given_is_kept(void **state)
{
    (void)state;
    in.fixed = (struct pl_plan_choice){30, 60, PL_CODEC_BF16, PL_CODEC_INT2};
    make();
    assert_int_equal(plan.best.choice.fragments, 30);
    assert_int_equal(plan.best.choice.period, 60);
    assert_int_equal(plan.best.choice.up, PL_CODEC_BF16);
    assert_int_equal(plan.best.choice.down, PL_CODEC_INT2);
    in.fixed = (struct pl_plan_choice){2000, 0, 0, 0};
    make();
    assert_int_equal(plan.best.choice.fragments, 2000);
}

static void test_thinner_links_never_help(void **state)
{
    (void)state;
    double before = 0;
    for (double link = 100e9; link > 60e6; link /= 2) {
        for (uint32_t i = 0; i < in.site_count; i++)
            in.sites[i].link_bits_s = link;
        make();
        assert_true(plan.best.time_s >= before * 0.98); /* ties within two per cent go to fewer bits */
        before = fmax(before, plan.best.time_s);
        for (uint32_t i = 0; i < in.site_count; i++)
            assert_true(plan.best.sites[i].link_load > 0 && plan.best.sites[i].link_load <= 0.8 + 1e-9);
    }
}

static void test_bottleneck(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < in.site_count; i++)
        in.sites[i].link_bits_s = 1e12;
    in.syncer_bits_s = 1e13;
    make();
    assert_int_equal(plan.bottleneck, PL_PLAN_CHIPS);
    in.sites[1].mtbi_s = 2e4;
    make();
    assert_int_equal(plan.bottleneck, PL_PLAN_FAILURES);
    assert_int_equal(plan.bottleneck_site, 1);
    in.sites[1].mtbi_s = 1e8;
    in.sites[2].link_bits_s = 100e6;
    make();
    assert_int_equal(plan.bottleneck, PL_PLAN_LINKS);
    assert_int_equal(plan.bottleneck_site, 2);
    in.sites[2].link_bits_s = 1e12;
    in.syncer_bits_s = 1e6;
    make();
    assert_int_equal(plan.bottleneck, PL_PLAN_SYNCER);
}

static void test_shards_follow_memory_and_link(void **state)
{
    (void)state;
    in.syncer_bytes = 1e12;
    in.syncer_bits_s = 1e13;
    make();
    assert_int_equal(plan.shards, 1);
    assert_true(plan.shard_bytes >= 16 * in.params);
    in.syncer_bytes = 20e9;
    make();
    assert_true(plan.shards >= 6 && plan.shard_bytes <= in.syncer_bytes);
    in.syncer_bytes = 1e12;
    in.syncer_bits_s = plan.shard_bits_s * plan.shards / 3;
    make();
    assert_true(plan.shards >= 3 && plan.shard_bits_s <= in.syncer_bits_s * 1.001);
}

static void test_a_dear_site_is_not_worth_it(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < in.site_count; i++)
        in.sites[i].price = 2;
    in.sites[1].price = 8;
    make();
    assert_true(plan.priced);
    assert_true(plan.worth[1].costs > 3 * plan.worth[1].brings);
    assert_true(plan.worth[0].costs < plan.worth[0].brings * 1.05);
    assert_true(plan.worth[1].hours_without > plan.best.time_s / 3600 * 1.2);
    double sum = 0;
    for (uint32_t i = 0; i < in.site_count; i++)
        sum += plan.best.sites[i].cost;
    assert_true(fabs(sum / plan.best.cost - 1) < 1e-9);
}

static void test_one_site_alone(void **state)
{
    (void)state;
    in.site_count = 1;
    make();
    assert_false(plan.priced);
    assert_true(fabs(plan.best.cost / (256 * plan.best.time_s / 3600) - 1) < 1e-9);
}

static void test_the_clock_is_the_quorums(void **state)
{
    (void)state;
    in.sites[1].tflops = 100;
    in.sites[2].tflops = 50;
    for (in.quorum = 1; in.quorum <= 3; in.quorum++) {
        make();
        assert_true(fabs(plan.best.tick_s - plan.best.sites[in.quorum - 1].step_s) < 1e-12);
    }
}

/* ---- losses ---- */

static void test_losses_are_as_published(void **state)
{
    (void)state;
    double h30_to_h100 = pl_quality_period(100) - pl_quality_period(30);
    assert_true(fabs(h30_to_h100 - 0.0068) < 0.0002);
    assert_true(pl_quality_overlap(0.1) < 0.002);
    assert_true(fabs(pl_quality_learners(2.4e9, 4) - 0.002) < 0.002); /* +0.3% */
    assert_true(fabs(pl_quality_learners(35e6, 8) - 0.039) < 0.01);   /* +3.9% */
    assert_true(pl_quality_learners(1e11, 8) >= 0);
    assert_true(fabs(pl_quality_bits(PL_CODEC_INT4) - 4.0625) < 1e-9);
    assert_true(fabs(pl_quality_tokens(0) - 1) < 1e-12);
    assert_true(fabs(pl_quality_tokens(0.01) - 0.813) < 0.001);
}

/* ---- the bars ---- */

static void test_plans_hold_against_their_simulation(void **state)
{
    (void)state;
    struct pl_alloc alloc = pl_alloc_system();
    for (uint64_t seed = 1; seed <= 10; seed++) {
        struct pl_plan_simulated s;
        struct pl_error err;
        pl_plan_scenario(seed, &in);
        make();
        assert_int_equal(pl_plan_simulate(&in, &plan.best, seed, &alloc, &s, &err), PELAGO_OK);
        print_message("# seed %u: goodput %.4f, simulated %.4f; time %.0f s, simulated %.0f s\n",
                      (unsigned)seed, plan.best.goodput, s.goodput, plan.best.time_s, s.time_s);
        assert_true(fabs(plan.best.goodput / s.goodput - 1) <= 0.05);
        assert_true(fabs(plan.best.time_s / s.time_s - 1) <= 0.05);
    }
}

/* One scenario here; `pelago plan --check` does it for ten. */
static void test_no_single_change_is_better(void **state)
{
    (void)state;
    struct pl_alloc alloc = pl_alloc_system();
    struct pl_plan_simulated here, there;
    struct pl_plan_choice c;
    struct pl_plan_outcome o;
    struct pl_error err;
    uint32_t tried = 0;
    pl_plan_scenario(7, &in);
    make();
    assert_int_equal(pl_plan_simulate(&in, &plan.best, 7, &alloc, &here, &err), PELAGO_OK);
    for (uint32_t i = 0; pl_plan_change(&plan.best.choice, i, &c); i++) {
        if (c.fragments > c.period || pl_plan_evaluate(&in, &c, &o, &err) != PELAGO_OK)
            continue;
        assert_int_equal(pl_plan_simulate(&in, &o, 7, &alloc, &there, &err), PELAGO_OK);
        assert_true(here.time_s <= there.time_s * 1.05);
        tried++;
    }
    assert_true(tried > 20);
}

/* ---- measured links ---- */

static void test_links_of_a_grid(void **state)
{
    (void)state;
    static const char text[] = "src_region,src_tier,dst_region,dst_tier,throughput_sent_bits_per_second,"
                               "throughput_received_bits_per_second,cpu\n"
                               "a,PREMIUM,b,PREMIUM,6,5000000000,1\n"
                               "a,PREMIUM,b,STANDARD,6,3000000000,1\n"
                               "b,PREMIUM,a,PREMIUM,6,4000000000,1\n"
                               "a,PREMIUM,c,PREMIUM,6,4000000000,1\n"
                               "c,PREMIUM,a,PREMIUM";
    struct pl_wan_link link;
    assert_true(pl_wan_known(text, strlen(text)));
    assert_true(pl_wan_find(text, strlen(text), "a", "b", &link));
    assert_true(fabs(link.bits_s - 4e9) < 1 && link.latency_s < 0);
    assert_false(pl_wan_find(text, strlen(text), "a", "c", &link));
    assert_false(pl_wan_find(text, strlen(text), "a", "d", &link));
}

static void test_links_of_pairs(void **state)
{
    (void)state;
    static const char text[] =
        "region_a,region_b,delay_ms,bandwidth_gbps\nOregon,Ohio,49,1.10\nOhio,Paris,x,-1\n";
    struct pl_wan_link link;
    assert_true(pl_wan_known(text, strlen(text)));
    assert_true(pl_wan_find(text, strlen(text), "Ohio", "Oregon", &link));
    assert_true(fabs(link.bits_s - 1.1e9) < 1 && fabs(link.latency_s - 0.049) < 1e-9);
    assert_false(pl_wan_find(text, strlen(text), "Ohio", "Paris", &link));
    assert_false(pl_wan_known("x", 1));
    assert_false(pl_wan_find("x", 1, "a", "b", &link));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_zero_chips, begin),
        cmocka_unit_test_setup(test_negative_rate, begin),
        cmocka_unit_test_setup(test_quorum_larger_than_the_sites, begin),
        cmocka_unit_test_setup(test_fragment_larger_than_a_link_moves, begin),
        cmocka_unit_test_setup(test_other_nonsense, begin),
        cmocka_unit_test_setup(test_what_is_given_is_kept, begin),
        cmocka_unit_test_setup(test_thinner_links_never_help, begin),
        cmocka_unit_test_setup(test_bottleneck, begin),
        cmocka_unit_test_setup(test_shards_follow_memory_and_link, begin),
        cmocka_unit_test_setup(test_a_dear_site_is_not_worth_it, begin),
        cmocka_unit_test_setup(test_one_site_alone, begin),
        cmocka_unit_test_setup(test_the_clock_is_the_quorums, begin),
        cmocka_unit_test(test_losses_are_as_published),
        cmocka_unit_test(test_plans_hold_against_their_simulation),
        cmocka_unit_test(test_no_single_change_is_better),
        cmocka_unit_test(test_links_of_a_grid),
        cmocka_unit_test(test_links_of_pairs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
