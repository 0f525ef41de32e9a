/* The fast mode as a machine: it repeats itself, its books balance under random settings, its cost grows with the
 * failures, traces are followed to the second, memory that runs out is answered, nonsense is refused by name. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/prng.h"
#include "goodput/seeds.h"
#include "goodput_rig.h"
#include "seed.h"

static double between(struct pl_prng *r, double low, double high)
{
    return low + (high - low) * (double)(pl_prng_next(r) >> 11) * 0x1p-53;
}

static void draw_options(struct pl_prng *r, struct pl_goodput_options *o)
{
    goodput_quiet(o);
    o->seed = pl_prng_next(r);
    o->days = between(r, 0.1, 2);
    o->learners = (uint32_t)pl_prng_range(r, 1, 8);
    o->slice_chips = (uint32_t)pl_prng_range(r, 1, 20);
    o->chips = pl_prng_range(r, 8, 400) * o->slice_chips;
    o->algorithm = (enum pl_goodput_algorithm)pl_prng_below(r, PL_GOODPUT_ALGORITHMS);
    o->failures = (enum pl_goodput_failures)pl_prng_below(r, 2);
    o->failure_shape = between(r, 0.5, 4);
    o->mtbi_s = between(r, 50, 5000) * (double)o->chips;
    o->repair =
        (struct pl_goodput_time){(enum pl_goodput_spread)pl_prng_below(r, 4), between(r, 1, 20000), 0.8, 2};
    o->detect_s = between(r, 0, 20);
    o->downscale_s = between(r, 0, 20);
    o->upscale_s = between(r, 0, 20);
    o->upscale_wait_s = between(r, 0, 200);
    o->restart_s = between(r, 0, 100);
    o->spare_share = pl_prng_below(r, 2) != 0 ? between(r, 0, 0.3) : 0;
    o->swap_s = between(r, 0, 10);
    o->domain_slices = (uint32_t)pl_prng_range(r, 1, 100);
    o->domain_loss_per_day = pl_prng_below(r, 2) != 0 ? between(r, 0, 5) : 0;
    o->speed_sd = pl_prng_below(r, 2) != 0 ? 0.01 : 0;
    o->stragglers_per_day = between(r, 0, 50);
    o->outages_per_day = pl_prng_below(r, 2) != 0 ? between(r, 0, 50) : 0;
    o->link_bits_s = pl_prng_below(r, 2) != 0 ? 4e12 : 0; /* carries a fragment a period */
    o->step_s = between(r, 0.1, 10);
    o->period_steps = (uint32_t)pl_prng_range(r, 2, 50);
    o->quorum = (uint32_t)pl_prng_range(r, 1, o->learners);
}

enum { TRACE_MAX = 60 };

/* Ups and downs in any order, also of nodes that are so already. */
static void draw_trace(struct pl_prng *r, struct pl_goodput_options *o,
                       struct pl_goodput_event trace[TRACE_MAX])
{
    double at_s = 0;
    o->failures = PL_GOODPUT_TRACE;
    o->trace = trace;
    o->trace_count = (uint32_t)pl_prng_range(r, 1, TRACE_MAX);
    o->trace_nodes = (uint32_t)pl_prng_range(r, 1, o->chips / o->slice_chips);
    o->trace_scale = between(r, 0.1, 10);
    for (uint32_t i = 0; i < o->trace_count; i++) {
        at_s += between(r, 0, 1000);
        trace[i] = (struct pl_goodput_event){at_s, (uint32_t)pl_prng_below(r, o->trace_nodes),
                                             pl_prng_below(r, 2) != 0};
    }
}

static void test_books_balance(void **state)
{
    (void)state;
    struct pl_prng r;
    pl_prng_seed(&r, test_seed(), 0);
    for (int i = 0; i < 300; i++) {
        struct pl_goodput_options o;
        struct pl_goodput_event trace[TRACE_MAX];
        draw_options(&r, &o);
        if (i % 3 == 0)
            draw_trace(&r, &o, trace);
        struct pl_goodput_result a = goodput_run(&o), b = goodput_run(&o);
        assert_memory_equal(&a, &b, sizeof a);
    }
}

static void test_seeds_differ(void **state)
{
    (void)state;
    struct pl_goodput_options o;
    pl_goodput_defaults(&o);
    o.days = 2;
    double first = goodput_run(&o).goodput;
    o.seed = 2;
    assert_true(fabs(first - goodput_run(&o).goodput) > 0);
}

/* 10 times the failures cost 10 times the events; 16 times the chips with 16 times their life cost nothing more. */
static void test_cost_follows_failures(void **state)
{
    (void)state;
    struct pl_goodput_options o;
    pl_goodput_defaults(&o);
    o.days = 3;
    struct pl_goodput_result base = goodput_run(&o);
    o.mtbi_s /= 10;
    struct pl_goodput_result often = goodput_run(&o);
    double more = (double)often.failures / (double)base.failures;
    goodput_assert_near(more, 10, 0.5);
    assert_true((double)often.events <= 1.1 * more * (double)base.events);
    pl_goodput_defaults(&o);
    o.days = 3;
    o.chips *= 16;
    o.mtbi_s *= 16;
    struct pl_goodput_result large = goodput_run(&o);
    assert_true((double)large.events <= 1.1 * (double)base.events);
}

static void test_largest(void **state)
{
    (void)state;
    struct pl_goodput_options o;
    pl_goodput_defaults(&o);
    o.chips = 2400000;
    o.learners = 16;
    struct pl_goodput_result r = goodput_run(&o);
    assert_true(r.bytes < 10 << 20);
    assert_true(r.events < 5 * r.failures);
}

static void test_weibull_rate(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct pl_goodput_options o;
        goodput_quiet(&o);
        o.failures = PL_GOODPUT_WEIBULL;
        o.failure_shape = (const double[]){0.6, 1, 3}[i];
        o.mtbi_s = 1000 * 10; /* a slice of 10 chips every 1000 s, 100 slices */
        o.days = 10;
        goodput_assert_near((double)goodput_run(&o).failures / (100 * 864.0), 1, 0.03);
    }
}

/* ---- traces ---- */

static void test_trace(void **state)
{
    (void)state;
    const struct pl_goodput_event trace[] = {
        {100, 0, false}, {150, 1, false}, {300, 0, true}, {350, 1, true}, {999, 1, true}};
    struct pl_goodput_options o;
    goodput_quiet(&o);
    o.chips = 20; /* two slices, as many as nodes */
    o.failures = PL_GOODPUT_TRACE;
    o.trace = trace;
    o.trace_count = 5;
    o.trace_nodes = 2;
    o.days = 999.0 / 86400;
    struct pl_goodput_result r = goodput_run(&o);
    assert_int_equal(r.failures, 2);
    assert_int_equal(r.rejoins, 1); /* both were away from 150 to 300 */
    goodput_assert_near(r.goodput, 1 - 400.0 / 2 / 999, 1e-3);
    goodput_assert_near(r.uptime, 1 - 150.0 / 999, 1e-3);
    /* Twice as slow, over the same share of the trace. */
    o.trace_scale = 2;
    o.days *= 2;
    goodput_assert_near(goodput_run(&o).goodput, r.goodput, 1e-3);
    /* Many copies that begin at different points, round and round. */
    o.trace_scale = 1;
    o.chips = 20 * 100;
    o.days = 1;
    goodput_assert_near(goodput_run(&o).goodput, 1 - 400.0 / 2 / 999, 0.01);
}

/* A rigid job takes its reserve from the trace: 98 of 1000 slices are away on average. */
static void test_trace_rigid(void **state)
{
    (void)state;
    struct pl_goodput_event trace[20];
    for (uint32_t i = 0; i < 10; i++) {
        trace[2 * i] = (struct pl_goodput_event){100 * i + 1, i, false};
        trace[2 * i + 1] = (struct pl_goodput_event){100 * i + 99, i, true};
    }
    struct pl_goodput_options o;
    goodput_quiet(&o);
    o.chips = 10000;
    o.algorithm = PL_GOODPUT_DATA_PARALLEL;
    o.failures = PL_GOODPUT_TRACE;
    o.trace = trace;
    o.trace_count = 20;
    o.trace_nodes = 10;
    o.days = 1;
    struct pl_goodput_result r = goodput_run(&o);
    assert_true(r.uptime > 0.99);
    goodput_assert_near(r.lost_spares, 0.139, 0.005); /* 98 + 4 x 9.9 + 1 */
}

/* ---- what cannot be ---- */

static void expect_refused(const struct pl_goodput_options *o, const char *word)
{
    struct pl_error err = {PELAGO_OK, ""};
    struct pl_goodput_result r;
    struct pl_alloc alloc = pl_alloc_system();
    assert_int_equal(pl_goodput_run(o, &alloc, &r, &err), PELAGO_INVALID);
    assert_non_null(strstr(err.text, word));
    assert_non_null(strstr(err.text, "expected"));
}

#define REFUSED(field, value, word)                                                                          \
    do {                                                                                                     \
        struct pl_goodput_options o_;                                                                        \
        pl_goodput_defaults(&o_);                                                                            \
        o_.field = value;                                                                                    \
        expect_refused(&o_, word);                                                                           \
    } while (0)

static void test_nonsense(void **state)
{
    (void)state;
    REFUSED(chips, 0, "chips");
    REFUSED(chips, 100, "learners"); /* one slice for eight */
    REFUSED(learners, 0, "learners");
    REFUSED(learners, 257, "learners");
    REFUSED(quorum, 9, "quorum");
    REFUSED(quorum, 0, "quorum");
    REFUSED(overlap_steps, 25, "overlap");
    REFUSED(period_steps, 0, "period");
    REFUSED(slice_chips, 0, "slice");
    REFUSED(mtbi_s, -1, "mtbi");
    REFUSED(mtbi_s, (double)NAN, "mtbi");
    REFUSED(days, 0, "days");
    REFUSED(days, (double)INFINITY, "days");
    REFUSED(detect_s, -1, "detect");
    REFUSED(repair.mean_s, -1, "repair");
    REFUSED(repair.shape, 0, "repair-shape");
    REFUSED(spare_share, 0.9, "spares");
    REFUSED(speed_sd, -0.1, "speed-sd");
    REFUSED(outages_per_day, -1, "outages");
    REFUSED(link_bits_s, -1, "link-rate");
    REFUSED(step_s, 0, "step");
    REFUSED(straggler_factor, 0, "straggler-factor");
    REFUSED(failures, PL_GOODPUT_TRACE, "trace");
    REFUSED(algorithm, PL_GOODPUT_ALGORITHMS, "algorithm");
    REFUSED(days, 1e-300, "days");
    REFUSED(link_bits_s, 1e-300, "link-rate is 0 bit/s, expected 0 (no limit) or at least 694444445:");
}

/* What would take hours or fill the memory. */
static void test_too_much(void **state)
{
    (void)state;
    const struct pl_goodput_event often[] = {{1e-300, 0, false}};
    struct pl_goodput_options o;
    REFUSED(mtbi_s, 1, "days asks for more than 500000000 events, expected at most 104 seconds");
    REFUSED(stragglers_per_day, 1e5 * (o_.days = 36500) / 36500, "days");
    REFUSED(outages_per_day, 1e5 * (o_.days = 36500) / 36500, "days");
    REFUSED(domain_loss_per_day, 1e4, "days");
    REFUSED(chips, 1000000000 * (o_.slice_chips = 1), "slice is 1, expected at least 34");
    pl_goodput_defaults(&o);
    o.algorithm = PL_GOODPUT_DILOCO;
    o.step_s = 1e-3;
    o.period_steps = 2;
    expect_refused(&o, "days");
    pl_goodput_defaults(&o);
    o.failures = PL_GOODPUT_TRACE;
    o.trace = often;
    o.trace_count = o.trace_nodes = 1;
    expect_refused(&o, "days");
}

static void test_nonsense_in_lists(void **state)
{
    (void)state;
    const struct pl_goodput_event back[] = {{10, 0, false}, {5, 0, true}}, other[] = {{10, 7, false}};
    struct pl_goodput_site sites[8];
    struct pl_goodput_options o;
    pl_goodput_defaults(&o);
    o.failures = PL_GOODPUT_TRACE;
    o.trace = back;
    o.trace_count = 2;
    o.trace_nodes = 1;
    expect_refused(&o, "trace event 2");
    o.trace = other;
    o.trace_count = 1;
    expect_refused(&o, "trace event 1");
    o.trace_nodes = 1U << 30;
    expect_refused(&o, "nodes");
    pl_goodput_defaults(&o);
    for (int i = 0; i < 8; i++)
        sites[i] = (struct pl_goodput_site){1000, 1, 0, 0, -1};
    o.sites = sites;
    sites[3].chips = 0;
    expect_refused(&o, "chips of learner 4");
    sites[3].chips = 1000;
    sites[7].speed = -1;
    expect_refused(&o, "speed of learner 8");
    sites[7].speed = 1;
    sites[0].link_bits_s = -1;
    expect_refused(&o, "learner 1");
}

static void test_names(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < PL_GOODPUT_ALGORITHMS; i++) {
        const char *name = pl_goodput_algorithm_name((enum pl_goodput_algorithm)i);
        assert_int_equal(pl_goodput_algorithm_find(name), i);
    }
    assert_null(pl_goodput_algorithm_name(PL_GOODPUT_ALGORITHMS));
    assert_int_equal(pl_goodput_algorithm_find("fsdp"), PL_GOODPUT_ALGORITHMS);
}

/* Every allocation fails in turn: the answer is NOMEM, and nothing stays. */
static void test_out_of_memory(void **state)
{
    (void)state;
    const struct pl_goodput_event trace[] = {{10, 0, false}, {20, 0, true}};
    enum pelago_status status = PELAGO_NOMEM;
    uint32_t at = 1;
    for (; status != PELAGO_OK; at++) {
        struct goodput_memory m;
        struct pl_goodput_options o;
        struct pl_goodput_result r;
        struct pl_error err;
        goodput_memory_init(&m, at);
        goodput_quiet(&o);
        o.learners = 3;
        o.failures = at % 2 != 0 ? PL_GOODPUT_WEIBULL : PL_GOODPUT_TRACE;
        o.trace = trace;
        o.trace_count = 2;
        o.trace_nodes = 1;
        o.days = 0.01;
        status = pl_goodput_run(&o, &m.alloc, &r, &err);
        assert_true(status == PELAGO_OK || status == PELAGO_NOMEM);
        assert_int_equal(m.held, 0);
    }
    assert_true(at > 15);
}

/* ---- several seeds ---- */

static void collect(void *user, uint64_t seed, const struct pl_goodput_result *r)
{
    double *into = user;
    into[seed - 3] = r->goodput;
}

static void test_intervals(void **state)
{
    (void)state;
    struct pl_alloc alloc = pl_alloc_system();
    struct pl_goodput_options o;
    struct pl_goodput_seeds s;
    double got[5], sum = 0, squares = 0;
    pl_goodput_defaults(&o);
    o.days = 1;
    assert_int_equal(pl_goodput_over_seeds(&o, 3, 7, &alloc, collect, got, &s, NULL), PELAGO_OK);
    for (int i = 0; i < 5; i++) {
        sum += got[i];
        squares += got[i] * got[i];
    }
    assert_int_equal(s.count, 5);
    goodput_assert_sound(&s.mean);
    goodput_assert_near(s.mean.goodput, sum / 5, 1e-12);
    goodput_assert_near(s.goodput_ci, 2.776 * sqrt((squares - sum * sum / 5) / 4 / 5), 1e-9);
    goodput_assert_near(pl_goodput_interval(1, 5, 25), 0, 0);
    assert_int_equal(pl_goodput_over_seeds(&o, 7, 3, &alloc, NULL, NULL, &s, NULL), PELAGO_INVALID);
    assert_int_equal(pl_goodput_over_seeds(&o, 0, UINT64_MAX, &alloc, NULL, NULL, &s, NULL), PELAGO_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_books_balance), cmocka_unit_test(test_seeds_differ),
        cmocka_unit_test(test_largest),       cmocka_unit_test(test_cost_follows_failures),
        cmocka_unit_test(test_weibull_rate),  cmocka_unit_test(test_trace),
        cmocka_unit_test(test_trace_rigid),   cmocka_unit_test(test_nonsense),
        cmocka_unit_test(test_too_much),      cmocka_unit_test(test_nonsense_in_lists),
        cmocka_unit_test(test_names),         cmocka_unit_test(test_out_of_memory),
        cmocka_unit_test(test_intervals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
