/* The fast mode against closed forms: renewal reward, occupancy, independence, barriers, links, speed. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "goodput_rig.h"

/* A rigid job: up for an exponential time T, down for R; what fails meanwhile is part of it. Its reserve is two
 * slices of 100 when a repair takes no time. */
static void test_rigid_renewal(void **state)
{
    (void)state;
    const double t_s[] = {210, 50, 13};
    for (int i = 0; i < 3; i++) {
        struct pl_goodput_options o;
        goodput_quiet(&o);
        o.algorithm = PL_GOODPUT_DATA_PARALLEL;
        o.mtbi_s = t_s[i] * (double)o.chips * 0.99; /* 99 of 100 slices are in use */
        o.detect_s = 10;
        o.restart_s = 60;
        struct pl_goodput_result r = goodput_run(&o);
        goodput_assert_near(r.uptime, t_s[i] / (t_s[i] + 70), 0.005);
        goodput_assert_near(r.goodput, 0.99 * r.uptime, 0.001);
    }
}

/* Whole steps only: of an exponential time T, step / (exp(step / T) - 1) counts. */
static void test_lost_steps(void **state)
{
    (void)state;
    struct pl_goodput_options o;
    goodput_quiet(&o);
    o.algorithm = PL_GOODPUT_DATA_PARALLEL_ELASTIC;
    o.mtbi_s = 20 * (double)o.chips;
    o.step_s = 10;
    o.detect_s = 5;
    struct pl_goodput_result r = goodput_run(&o);
    goodput_assert_near(r.goodput, 10 / (exp(0.5) - 1) / 25, 0.005);
    goodput_assert_near(r.lost_stall, 0.2, 0.005);
}

/* Slices up for a on average and away for r: a / (a + r) of them are there, whatever the spread of r (M/G/infinity). */
static void test_repair_occupancy(void **state)
{
    (void)state;
    const struct pl_goodput_time repairs[] = {{PL_GOODPUT_FIXED, 5000, 1, 1},
                                              {PL_GOODPUT_EXPONENTIAL, 5000, 1, 1},
                                              {PL_GOODPUT_LOGNORMAL, 5000, 1, 1},
                                              {PL_GOODPUT_EXP_WEIBULL, 5000, 0.7, 2}};
    for (int i = 0; i < 4; i++) {
        struct pl_goodput_options o;
        goodput_quiet(&o);
        o.chips = 10000;
        o.mtbi_s = 20000 * 10; /* a slice of 10 chips every 20000 s */
        o.repair = repairs[i];
        o.days = 60;
        o.step_s = 1e-3;
        struct pl_goodput_result r = goodput_run(&o);
        goodput_assert_near(r.goodput, 0.8, 0.004);
        goodput_assert_near(r.lost_repair, 0.2, 0.004);
    }
}

/* Learners stall independently: none runs as often as the product says. */
static void test_uptime_product(void **state)
{
    (void)state;
    struct pl_goodput_options o;
    goodput_quiet(&o);
    o.mtbi_s = 50 * (double)o.chips;
    o.detect_s = 50;
    struct pl_goodput_result one = goodput_run(&o);
    goodput_assert_near(one.uptime, 0.5, 0.005);
    o.learners = 4;
    o.chips *= 4;
    struct pl_goodput_result four = goodput_run(&o);
    goodput_assert_near(four.uptime, 1 - 1.0 / 16, 0.005);
    const double binomial[] = {1, 4, 6, 4, 1};
    for (int i = 0; i <= 4; i++)
        goodput_assert_near(four.cohort[i], binomial[i] / 16, 0.01);
}

/* A slice that returned after r grows back after a wait W, unless a failure came within it: the stall of u is paid
 * with probability exp(-W / T). */
static void test_growing_back(void **state)
{
    (void)state;
    struct pl_goodput_options o;
    goodput_quiet(&o);
    o.mtbi_s = 200 * (double)o.chips;
    o.repair.mean_s = 3;
    o.detect_s = 2;
    o.upscale_s = 20;
    o.upscale_wait_s = 100;
    o.days = 60;
    struct pl_goodput_result r = goodput_run(&o);
    double often = (double)r.upscales / (double)(r.stalls - r.upscales);
    goodput_assert_near(often, exp(-100.0 / 200), 0.02);
    goodput_assert_near(r.lost_stall, (2 + 20 * often) / (200 + 2 + 20 * often), 0.005);
}

/* A spare takes the place at once: nothing grows back, and the stall is the shorter one. */
static void test_spares(void **state)
{
    (void)state;
    struct pl_goodput_options o;
    goodput_quiet(&o);
    o.mtbi_s = 200 * (double)o.chips * 0.95;
    o.repair.mean_s = 60;
    o.detect_s = 2;
    o.downscale_s = 50;
    o.upscale_s = 50;
    o.upscale_wait_s = 10;
    o.spare_share = 0.05;
    o.swap_s = 8;
    struct pl_goodput_result r = goodput_run(&o);
    assert_int_equal(r.upscales, 0);
    goodput_assert_near(r.lost_spares / r.uptime, 0.05, 1e-9);
    goodput_assert_near(r.uptime, 200.0 / 210, 0.005);
}

/* Two learners, one half as fast: DiLoCo goes as the slower, decoupled learners each as they can. */
static void test_barrier(void **state)
{
    (void)state;
    const struct pl_goodput_site sites[] = {{500, 1, 0, 0, -1}, {500, 0.5, 0, 0, -1}};
    struct pl_goodput_options o;
    goodput_quiet(&o);
    o.learners = 2;
    o.step_s = 1;
    o.days = 1;
    goodput_assert_near(goodput_run(&o).goodput, 1, 1e-9);
    o.algorithm = PL_GOODPUT_DILOCO;
    goodput_assert_near(goodput_run(&o).goodput, 1, 1e-6);
    o.link_bits_s = 1e9;
    o.model_bytes = 3e9; /* out and in: 48 s, for 24 steps of a second */
    goodput_assert_near(goodput_run(&o).goodput, 24.0 / 72, 0.001);
    o.link_bits_s = 0;
    o.sites = sites;
    o.algorithm = PL_GOODPUT_DATA_PARALLEL_ELASTIC;
    goodput_assert_near(goodput_run(&o).goodput, 1 / 1.5, 1e-6);
    o.algorithm = PL_GOODPUT_DECOUPLED;
    goodput_assert_near(goodput_run(&o).goodput, 1, 1e-6);
}

/* One job over two sites sends its gradients every step, and stands still while a link is down. */
static void test_job_over_sites(void **state)
{
    (void)state;
    struct pl_goodput_options o;
    goodput_quiet(&o);
    o.learners = 2;
    o.algorithm = PL_GOODPUT_DATA_PARALLEL_ELASTIC;
    o.step_s = 1;
    o.link_bits_s = 16e9;
    o.model_bytes = 3e9; /* 3 s */
    goodput_assert_near(goodput_run(&o).goodput, 0.25, 1e-6);
    o.link_bits_s = 0;
    o.outages_per_day = 86400.0 / 2 / 900; /* one of the two every 900 s */
    o.outage = (struct pl_goodput_time){PL_GOODPUT_EXPONENTIAL, 100, 1, 1};
    goodput_assert_near(goodput_run(&o).goodput, 0.9, 0.01);
    o.mtbi_s = 20.0 * (double)o.chips; /* a mesh formed anew meanwhile does not bring the link back */
    goodput_assert_near(goodput_run(&o).lost_wait, 0.1, 0.01);
    o.mtbi_s = 1e12;
    o.algorithm = PL_GOODPUT_DECOUPLED;
    o.staleness_max = 1000;
    o.period_steps = 4096;
    goodput_assert_near(goodput_run(&o).goodput, 1, 1e-6);
}

/* Work done without the syncer for longer than the bound is lost, and with it what was in hand when the link broke (27 s)
 * and what is done until the new value is there (7 s): E[X + 34; X > b] of exponential outages, b from 93 to 143 s by fragment. */
static void test_late_work(void **state)
{
    (void)state;
    struct pl_goodput_options o;
    goodput_quiet(&o);
    o.learners = 8;
    o.step_s = 1;
    o.period_steps = 50;
    o.staleness_max = 2; /* 100 s */
    o.outages_per_day = 86400.0 / 900;
    o.outage = (struct pl_goodput_time){PL_GOODPUT_EXPONENTIAL, 100, 1, 1};
    struct pl_goodput_result r = goodput_run(&o);
    goodput_assert_near(r.lost_overwrite, 2 * (327 * exp(-0.93) - 377 * exp(-1.43)) / 1000, 0.003);
    o.quorum = 8; /* without it nobody merges, so nothing gets old */
    goodput_assert_near(goodput_run(&o).lost_overwrite, 0, 1e-9);
    o.learners = o.quorum = 1;
    goodput_assert_near(goodput_run(&o).goodput, 1, 1e-9);
    o.step_s = 0.05; /* a return takes longer than the bound */
    goodput_assert_near(goodput_run(&o).goodput, 1, 1e-9);
    o.learners = o.quorum = 8;
    goodput_assert_near(goodput_run(&o).lost_overwrite, 0, 1e-9);
}

/* Half of all time links are down for long; a step that a failure took then is not lost once more with the outage, so what
 * is overwritten is half of what no failure took, and 55 s around each outage (in hand 30, until the new value 25). */
static void test_late_work_is_lost_once(void **state)
{
    (void)state;
    struct pl_goodput_options o;
    goodput_quiet(&o);
    o.learners = 8;
    o.step_s = 10;
    o.period_steps = 2;
    o.staleness_max = 1;
    o.mtbi_s = 20.0 * (double)o.chips / o.learners;
    o.outages_per_day = 86.4;
    o.outage = (struct pl_goodput_time){PL_GOODPUT_FIXED, 1000, 1, 1};
    struct pl_goodput_result r = goodput_run(&o);
    goodput_assert_near(r.lost_steps, 1 - 0.5 / expm1(0.5), 0.01);
    goodput_assert_near(r.lost_overwrite / (r.lost_overwrite + r.goodput),
                        0.5 + 55.0 / 2000 / (1 - r.lost_steps), 0.005);
}

static void test_stragglers(void **state)
{
    (void)state;
    struct pl_goodput_options o;
    goodput_quiet(&o);
    o.stragglers_per_day = 86400.0 / 900;
    o.straggler_s = 100;
    o.straggler_factor = 0.25;
    struct pl_goodput_result r = goodput_run(&o);
    goodput_assert_near(r.lost_speed, 0.1 * 0.75, 0.006);
    goodput_assert_near(r.uptime, 1, 1e-9);
}

/* The slowest of 100 normals is 2.51 deviations below the mean, of 10,000 it is 3.85. */
static void test_slowest_slice(void **state)
{
    (void)state;
    struct pl_goodput_options o;
    goodput_quiet(&o);
    o.speed_sd = 0.02;
    o.learners = 200;
    o.chips = 200000;
    o.days = 0.01;
    goodput_assert_near(goodput_run(&o).lost_speed, 0.02 * 2.51, 0.002);
    o.learners = 20;
    o.chips = 2000000;
    goodput_assert_near(goodput_run(&o).lost_speed, 0.02 * 3.85, 0.003);
}

/* Everything of a learner lost, once a day: it is away, then fetches a model; its own disk is faster. */
static void test_rejoin(void **state)
{
    (void)state;
    struct pl_goodput_options o;
    goodput_quiet(&o);
    o.learners = 4;
    o.domain_slices = 1000;
    o.domain_loss_per_day = 86400.0 / 9000;
    o.domain_repair = (struct pl_goodput_time){PL_GOODPUT_FIXED, 600, 1, 1};
    o.step_s = 2;
    o.link_bits_s = 8e9;
    o.model_bytes = 1e11; /* 100 s on the link */
    o.disk_bytes_s = 3e11;
    struct pl_goodput_result peer = goodput_run(&o);
    assert_true(peer.rejoins > 500);
    double cycle_s = 30 * 86400.0 * 4 / (double)peer.rejoins;
    goodput_assert_near(peer.lost_rejoin, 300 / cycle_s, 0.001);
    goodput_assert_near(peer.lost_repair, 600 / cycle_s, 0.003);
    o.rejoin = PL_GOODPUT_REJOIN_DISK;
    struct pl_goodput_result disk = goodput_run(&o);
    goodput_assert_near(disk.lost_rejoin, 101 / cycle_s, 0.001);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rigid_renewal),    cmocka_unit_test(test_lost_steps),
        cmocka_unit_test(test_repair_occupancy), cmocka_unit_test(test_uptime_product),
        cmocka_unit_test(test_growing_back),     cmocka_unit_test(test_spares),
        cmocka_unit_test(test_barrier),          cmocka_unit_test(test_job_over_sites),
        cmocka_unit_test(test_late_work),        cmocka_unit_test(test_late_work_is_lost_once),
        cmocka_unit_test(test_stragglers),       cmocka_unit_test(test_slowest_slice),
        cmocka_unit_test(test_rejoin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
