/* The shard's clock (the two wrong clocks of I19 are shown not to be ours), the run's token clock, leads and
 * strides. */
#include "rig_test.h"

#include "base/num.h"
#include "base/prng.h"
#include "core/syncer_int.h"
#include "seed.h"

#include <stdlib.h>

static struct rig_options options(uint32_t quorum, uint32_t learners)
{
    struct rig_options o = rig_defaults();
    o.quorum = quorum;
    o.learners_max = learners;
    return o;
}

static uint64_t tick_now(void)
{
    struct pl_sync_view v;
    pl_syncer_view(rig.s, &v);
    return v.tick;
}

static uint64_t interval_now(void)
{
    struct pl_sync_view v;
    pl_syncer_view(rig.s, &v);
    return v.interval_ns;
}

/* Wrong clock one: "a tick for K new reports" would tick four times a step here. */
static void test_eight_out_of_phase_tick_once_a_step(void **state)
{
    (void)state;
    struct rig_options o = options(2, 8);
    rig_init(&rig, &o);
    rig_up_many(&rig, 8);
    rig.step_ns = 800 * PL_MS;
    for (int i = 0; i < 80; i++) {
        rig_report(&rig, (uint32_t)i % 8, 1);
        rig_advance(&rig, 100 * PL_MS);
    }
    uint64_t at = tick_now();
    for (int i = 0; i < 160; i++) {
        rig_report(&rig, (uint32_t)i % 8, 1);
        rig_advance(&rig, 100 * PL_MS);
    }
    assert_in_range(tick_now() - at, 19, 20); /* 16 seconds of 800 ms steps */
}

/* Wrong clock two: "the K-th largest step count" would stand still until the others have caught up. */
static void test_the_clock_goes_on_when_the_fastest_dies(void **state)
{
    (void)state;
    struct rig_options o = options(1, 4);
    rig_init(&rig, &o);
    rig_up_many(&rig, 3);
    for (int i = 0; i < 200; i++) { /* the first one does five steps in the time of one of the others */
        rig.step_ns = 20 * PL_MS;
        rig_report(&rig, 0, 1);
        rig.step_ns = 100 * PL_MS;
        if (i % 5 == 0) {
            rig_report(&rig, 1, 1);
            rig_report(&rig, 2, 1);
        }
        rig_advance(&rig, 20 * PL_MS);
    }
    assert_in_range(tick_now(), 190, 201);
    assert_int_equal(interval_now(), 20 * PL_MS);
    rig_down(&rig, 0);
    uint64_t at = tick_now();
    for (int i = 0; i < 20; i++) {
        rig_report(&rig, 1, 1);
        rig_report(&rig, 2, 1);
        rig_advance(&rig, 100 * PL_MS);
    }
    assert_in_range(tick_now() - at, 18, 21);
    assert_in_range(interval_now(), 90 * PL_MS, 110 * PL_MS);
}

static void test_one_identity_is_no_quorum(void **state)
{
    (void)state;
    struct rig_options o = options(2, 4);
    rig_init(&rig, &o);
    rig_up_many(&rig, 3);
    rig_tick(&rig, false);
    rig_tick(&rig, false);
    uint64_t at = tick_now();
    assert_true(at > 0);
    rig_rest(&rig, PL_SEC);
    uint64_t rested = tick_now();
    for (int i = 0; i < 50; i++) {
        rig_report(&rig, 1, 1);
        rig_rest(&rig, 100 * PL_MS);
    }
    assert_int_equal(tick_now(), rested);
    rig_report(&rig, 2, 1);
    assert_int_equal(tick_now(), rested + 1); /* overdue, and now two have reported */
    rig_report(&rig, 1, 0);                   /* a report without a step is none */
    rig_report(&rig, 2, 1);
    rig_rest(&rig, PL_SEC);
    assert_int_equal(tick_now(), rested + 1);
    rig_down(&rig, 0);
    rig_down(&rig, 1); /* fewer than K are here */
    rig_report(&rig, 2, 1);
    rig_rest(&rig, PL_SEC);
    assert_int_equal(tick_now(), rested + 1);
    assert_int_equal(interval_now() > 0, true);
}

/* A lost learner's report does not count for the quorum of the next tick. */
static void test_a_lost_reporter_does_not_count(void **state)
{
    (void)state;
    struct rig_options o = options(2, 4);
    rig_init(&rig, &o);
    rig_up_many(&rig, 3);
    for (int i = 0; i < 3; i++)
        rig_tick(&rig, false);
    rig_rest(&rig, PL_SEC);
    uint64_t at = tick_now();
    rig_report(&rig, 0, 1);
    rig_down(&rig, 0);
    rig_report(&rig, 1, 1);
    rig_rest(&rig, PL_SEC);
    assert_int_equal(tick_now(), at);
    rig_report(&rig, 2, 1);
    assert_int_equal(tick_now(), at + 1);
}

/* One pause of a minute counts as a few steps; a learner back from an absence is not measured across it. */
static void test_step_times_are_measured_here(void **state)
{
    (void)state;
    struct rig_options o = options(1, 4);
    rig_init(&rig, &o);
    rig_up(&rig, 0);
    rig.step_ns = 0; /* claims no time at all for its first step: at least a microsecond it is */
    rig_report(&rig, 0, 1);
    assert_int_equal(interval_now(), PL_US);
    rig_release(&rig);

    rig_init(&rig, &o);
    rig_up(&rig, 0);
    rig_report(&rig, 0, 1);
    assert_int_equal(interval_now(), 100 * PL_MS);
    rig.step_ns = PL_US; /* what it says later does not matter */
    for (int i = 0; i < 20; i++) {
        rig_advance(&rig, 200 * PL_MS);
        rig_report(&rig, 0, 2); /* two steps in one report */
    }
    assert_in_range(interval_now(), 99 * PL_MS, 101 * PL_MS);
    rig_rest(&rig, 3 * PL_SEC);
    rig_report(&rig, 0, 1);
    rig_advance(&rig, 100 * PL_MS);
    rig_report(&rig, 0, 1);
    rig_advance(&rig, 100 * PL_MS);
    assert_in_range(interval_now(), 100 * PL_MS, 140 * PL_MS);
    rig_down(&rig, 0);
    rig_advance(&rig, 60 * PL_SEC);
    uint64_t before = interval_now();
    rig.peers[0].steps += 100;
    rig_up(&rig, 0);
    rig_report(&rig, 0, 1);
    rig_advance(&rig, 100 * PL_MS);
    rig_report(&rig, 0, 1);
    assert_in_range(interval_now(), before - before / 8, before + before / 8);
}

static void test_token_clock_and_rate(void **state)
{
    (void)state;
    struct rig_options o = options(2, 4);
    rig_init(&rig, &o);
    rig_up_many(&rig, 2);
    uint32_t c = rig.peers[0].control;
    rig_forget(&rig);
    for (int i = 0; i < 10; i++)
        rig_tick(&rig, false); /* a second: 10 steps of 10 tokens by two */
    assert_int_equal(rig_sent(&rig, c, PL_MSG_CLOCK)->u.clock.tick, tick_now() - 1);
    assert_in_range(rig_sent_count(&rig, c, PL_MSG_CLOCK), 9, 10);
    struct pl_sync_view v;
    pl_syncer_view(rig.s, &v);
    assert_int_equal(v.clock_tokens, 200);
    for (int i = 0; i < 100; i++)
        rig_tick(&rig, false);
    pl_syncer_view(rig.s, &v);
    assert_in_range(v.rate_tokens, 190, 210);
    rig_forget(&rig);
    for (int i = 0; i < 10; i++)
        rig_report(&rig, 0, 0); /* the same moment: one answer is enough */
    assert_in_range(rig_sent_count(&rig, c, PL_MSG_CLOCK), 0, 1);

    /* Steps done while away come with HELLO; what is older than known takes nothing away. */
    rig_down(&rig, 1);
    rig.peers[1].steps += 5;
    rig.peers[1].tokens += 50;
    uint64_t before = v.clock_tokens;
    rig_up(&rig, 1);
    pl_syncer_view(rig.s, &v);
    assert_int_equal(v.clock_tokens, before + 50);
    rig_restart(&rig, 1);
    rig_up(&rig, 1);
    rig_report(&rig, 1, 1);
    pl_syncer_view(rig.s, &v);
    assert_int_equal(v.clock_tokens, before + 60);
}

/* Two learners train on for a minute while the shard is down. What they bring is in the clock; the rate is what comes in
 * from then on. */
static void test_the_rate_knows_no_absence(void **state)
{
    (void)state;
    struct pl_sync_view v;
    struct rig_options o = options(2, 4);
    rig_init(&rig, &o);
    rig_up_many(&rig, 2);
    for (int i = 0; i < 100; i++)
        rig_tick(&rig, false); /* 200 tokens a second */
    pl_syncer_view(rig.s, &v);
    uint64_t before = v.clock_tokens;
    rig_snapshot(&rig);
    rig_recover(&rig);
    for (uint32_t i = 0; i < 2; i++) {
        rig.peers[i].steps += 600;
        rig.peers[i].tokens += 6000;
        rig_up(&rig, i);
        for (int k = 0; k < 3; k++) /* one comes after the other */
            rig_advance(&rig, 100 * PL_MS);
    }
    for (int i = 0; i < 100; i++) {
        rig_tick(&rig, false);
        pl_syncer_view(rig.s, &v);
        assert_in_range(v.rate_tokens, 0, 220);
    }
    assert_in_range(v.rate_tokens, 190, 210);
    assert_in_range(v.clock_tokens, before + 12000, before + 14100);
}

static void doubt(uint64_t identity, bool doubted)
{
    rig_step(&rig, &(struct pl_sync_event){.kind = PL_SYNC_EV_DOUBT,
                                           .now_ns = rig.now_ns,
                                           .u.doubt = {.identity = identity, .doubted = doubted}});
}

/* What a doubted learner claims drives neither clock. The token clock does not go back: it waits for the others. */
static void test_a_doubted_learner_drives_no_clock(void **state)
{
    (void)state;
    struct rig_options o = options(1, 4);
    struct pl_sync_view v;
    rig_init(&rig, &o);
    rig_up_many(&rig, 2);
    for (int i = 0; i < 10; i++)
        rig_tick(&rig, false);
    pl_syncer_view(rig.s, &v);
    const uint64_t before = v.clock_tokens;
    rig_report(&rig, 1, 30);
    pl_syncer_view(rig.s, &v);
    assert_int_equal(v.clock_tokens, before + 300);
    doubt(rig.peers[1].identity, true);
    doubt(rig.peers[1].identity, true); /* twice is once */
    doubt(999999, true);                /* nobody */
    pl_syncer_check(rig.s);
    pl_syncer_view(rig.s, &v);
    assert_int_equal(v.clock_tokens, before + 300);
    const uint64_t tick = tick_now();
    for (int i = 0; i < 20; i++) { /* alone its reports make no tick, and no tokens */
        rig_report(&rig, 0, 0);    /* it is alive */
        rig_report(&rig, 1, 1);
        rig_advance(&rig, 100 * PL_MS);
    }
    assert_int_equal(tick_now(), tick);
    pl_syncer_view(rig.s, &v);
    assert_int_equal(v.clock_tokens, before + 300);
    rig_report(&rig, 0, 45); /* before + 300 are the other's own tokens plus 400 */
    pl_syncer_view(rig.s, &v);
    assert_int_equal(v.clock_tokens, pl_max64(before + 300, before / 2 + 450));
    doubt(rig.peers[1].identity, false);
    pl_syncer_check(rig.s);
    pl_syncer_view(rig.s, &v);
    assert_int_equal(v.clock_tokens, before + 450 + 300 + 200);
}

/* ---- the K-th smallest ---- */

static uint64_t values[RIG_PEERS];

static uint64_t value_of(const struct pl_syncer *s, uint32_t m)
{
    (void)s;
    return values[m];
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void test_kth_smallest(void **state)
{
    (void)state;
    struct rig_options o = options(2, 8);
    struct pl_prng rng;
    pl_prng_seed(&rng, test_seed(), 1);
    rig_init(&rig, &o);
    rig_up_many(&rig, 8);
    for (int round = 0; round < 3000; round++) {
        uint64_t sorted[8];
        uint32_t n = 0;
        for (uint32_t m = 0; m < 8; m++) {
            values[m] = pl_prng_below(&rng, round % 2 == 0 ? 4 : 1000000);
            if (values[m] != 0) /* 0 says: not known */
                sorted[n++] = values[m];
        }
        qsort(sorted, n, sizeof sorted[0], compare);
        for (uint32_t k = 1; k <= 8; k++)
            assert_int_equal(pl_sync_kth(rig.s, k, value_of), k <= n ? sorted[k - 1] : 0);
    }
}

/* ---- leads ---- */

/* Every peer answers a pull after its own delay and does a step every 100 ms. */
static uint64_t delay_ns[RIG_PEERS];
static bool stalled[RIG_PEERS]; /* does nothing at all */

static void run_delayed(uint64_t ns)
{
    uint64_t end = rig.now_ns + ns;
    while (rig.now_ns < end) {
        for (uint32_t i = 0; i < RIG_PEERS; i++) {
            if (!rig_live(&rig, i) || stalled[i])
                continue;
            if ((rig.now_ns / (10 * PL_MS)) % 10 == i % 10)
                rig_report(&rig, i, 1);
            for (uint32_t f = 0; f < rig.o.fragments; f++) {
                rig_have(&rig, i, f);
                const struct rig_pull *p = &rig.peers[i].pull[f];
                if (p->open && p->base == rig.peers[i].have[f] && rig.now_ns >= p->at_ns + delay_ns[i])
                    rig_push(&rig, i, f);
            }
        }
        rig_advance(&rig, 10 * PL_MS);
    }
}

static struct pl_learner_view view_of(uint32_t i)
{
    struct pl_learner_view v;
    for (uint32_t m = 0; m < rig.o.learners_max; m++)
        if (pl_syncer_view_learner(rig.s, m, &v) && v.identity == rig_identity(i))
            return v;
    fail_msg("peer %u is not known", i);
    return v;
}

static void test_a_slow_link_is_asked_earlier(void **state)
{
    (void)state;
    struct rig_options o = options(2, 4);
    o.period = 16;
    o.overlap = 2;
    rig_init(&rig, &o);
    rig_up_many(&rig, 3);
    delay_ns[0] = delay_ns[1] = 10 * PL_MS;
    delay_ns[2] = 350 * PL_MS; /* three and a half steps */
    run_delayed(30 * PL_SEC);
    struct pl_learner_view fast = view_of(0), slow = view_of(2);
    assert_true(fast.lead_ns < 100 * PL_MS);
    assert_true(slow.lead_ns >= 350 * PL_MS && slow.lead_ns <= 700 * PL_MS);
    assert_int_equal(slow.stride, 1);
    uint64_t pulled = slow.rounds_pulled, merged = slow.rounds_merged;
    rig_forget(&rig);
    run_delayed(30 * PL_SEC);
    slow = view_of(2);
    assert_true(slow.rounds_pulled - pulled >= 30);
    assert_true((slow.rounds_merged - merged) * 100 >= (slow.rounds_pulled - pulled) * 95); /* I8 */
    struct pl_sync_view v;
    pl_syncer_view(rig.s, &v);
    assert_int_equal(v.overlap_eff, 2); /* of the K-th best */
    assert_int_equal(v.period_eff, 16);
    assert_in_range(pl_sync_overlap_eff(rig.s, 2), 4, 8);
}

/* A link that cannot keep up is asked for fewer cycles, and for all again once it is better. */
static void test_strides(void **state)
{
    (void)state;
    struct rig_options o = options(1, 4);
    o.period = 8;
    o.fragments = 1;
    rig_init(&rig, &o);
    rig_up_many(&rig, 2);
    delay_ns[0] = 10 * PL_MS;
    delay_ns[1] = 900 * PL_MS; /* more than a whole period of 800 ms */
    run_delayed(60 * PL_SEC);
    struct pl_learner_view slow = view_of(1);
    assert_true(slow.stride >= 2);
    assert_non_null(rig_traced(&rig, PL_TRACE_SYNC_STRIDE));
    uint64_t pulled = slow.rounds_pulled;
    run_delayed(64 * 800 * PL_MS);
    assert_in_range(view_of(1).rounds_pulled - pulled, 1, 33);
    delay_ns[1] = 10 * PL_MS;
    run_delayed(2500 * PL_SEC);
    assert_int_equal(view_of(1).stride, 1);
}

/* Pushes that are late because the learner stands still say nothing about its line; as late while it trains, they do. */
static void test_a_stall_is_no_slow_line(void **state)
{
    (void)state;
    for (int stalls = 1; stalls >= 0; stalls--) {
        struct rig_options o = options(1, 4);
        o.period = 8;
        o.fragments = 1;
        rig_init(&rig, &o);
        rig_up_many(&rig, 2);
        delay_ns[0] = delay_ns[1] = 10 * PL_MS;
        for (int i = 0; i < 10; i++) {
            run_delayed(4 * PL_SEC);
            stalled[1] = stalls != 0;
            delay_ns[1] = 1200 * PL_MS; /* a period and a half */
            run_delayed(1200 * PL_MS);
            stalled[1] = false;
            delay_ns[1] = 10 * PL_MS;
        }
        assert_int_equal(rig_traced(&rig, PL_TRACE_SYNC_STRIDE) != NULL, !stalls);
        rig_release(&rig);
    }
}

/* Peer 2's line: the update it carries now, and how much of it has passed. Bytes a 10 ms, both ways alike. */
static struct {
    uint32_t fragment; /* PL_NONE32: none */
    uint64_t passed, bytes;
} thin = {.fragment = PL_NONE32};

/* In the order they come due, which is nearly the order they were sent in. */
static void run_thin_line(void)
{
    const struct rig_peer *p = &rig.peers[2];
    for (uint32_t i = 0; i < rig.o.fragments && thin.fragment == PL_NONE32; i++) {
        uint32_t f = (uint32_t)((tick_now() + 1 + i) % rig.o.fragments);
        if (!p->update[f].open)
            continue;
        thin.fragment = f;
        thin.passed = 0;
    }
    if (thin.fragment == PL_NONE32)
        return;
    thin.passed += thin.bytes;
    if (thin.passed < p->update[thin.fragment].header.bytes)
        return;
    rig_have(&rig, 2, thin.fragment);
    thin.fragment = PL_NONE32;
}

static void run_thin(uint64_t ns)
{
    uint64_t end = rig.now_ns + ns;
    while (rig.now_ns < end) {
        rig_forget(&rig);
        if (rig.now_ns % PL_SEC < 10 * PL_MS)
            rig_snapshot(&rig); /* a long run: its log and journal are not kept */
        for (uint32_t i = 0; i < 3; i++) {
            if ((rig.now_ns / (10 * PL_MS)) % 10 == i)
                rig_report(&rig, i, 1);
            if (i < 2) {
                rig_obey(&rig, i);
                continue;
            }
            run_thin_line();
            for (uint32_t f = 0; f < rig.o.fragments; f++) {
                const struct rig_pull *pull = &rig.peers[i].pull[f];
                if (pull->open && pull->base == rig.peers[i].have[f] &&
                    rig.now_ns >= pull->at_ns + 50 * PL_MS)
                    rig_push(&rig, i, f);
            }
        }
        rig_advance(&rig, 10 * PL_MS);
    }
}

/* A line that carries half of all updates, beside fast ones: its learner is sent less and merged, all its fragments in
 * turn; when the line is better it gets everything again. */
static void test_a_thin_line_is_sent_less(void **state)
{
    (void)state;
    struct rig_options o = options(1, 4);
    o.period = o.fragments = 16;
    rig_init(&rig, &o);
    rig_up_many(&rig, 3);
    thin.fragment = PL_NONE32;
    thin.bytes = 5; /* an update of 100 bytes every 100 ms is twice that; a whole value has 400 */
    run_thin(60 * PL_SEC);
    uint64_t before = view_of(2).rounds_merged, versions[16], cycles = 128;
    for (uint32_t f = 0; f < 16; f++)
        versions[f] = cell_of(rig.s, 2, f)->last_merged;
    run_thin(cycles * 1600 * PL_MS);
    assert_in_range(view_of(2).stride, 4, 32); /* now and then a smaller one is tried */
    assert_true(view_of(2).rounds_merged - before >=
                cycles); /* one of its fragments in every cycle, at least */
    for (uint32_t f = 0; f < 16; f++)
        assert_true(cell_of(rig.s, 2, f)->last_merged > versions[f]);
    assert_int_equal(view_of(0).stride, 1);
    assert_true(view_of(0).rounds_merged >= cycles * 16);
    thin.bytes = 1000;
    run_thin(300 * PL_SEC);
    assert_int_equal(view_of(2).stride, 1);
}

/* Pushes that come too slowly for the stride raise it, though this one is in time; it is no good round of the new stride. */
static void test_a_slow_push_is_no_good_round(void **state)
{
    (void)state;
    struct rig_options o = options(1, 4);
    rig_init(&rig, &o);
    rig_up_many(&rig, 2);
    delay_ns[0] = delay_ns[1] = 10 * PL_MS;
    run_delayed(10 * PL_SEC);
    struct learner *l = &rig.s->learners[1];
    l->up_slow = 4;
    rig.fxs.count = 0;
    pl_sync_lead_hit(rig.s, 1, 0, 10 * PL_MS, &rig.fxs);
    assert_int_equal(l->stride, 2);
    assert_int_equal(l->good_rounds, 0);
    l->stride = PL_STRIDE_MAX; /* as far as it goes: nothing is raised, and nothing was good */
    l->up_slow = 4;
    pl_sync_lead_hit(rig.s, 1, 0, 10 * PL_MS, &rig.fxs);
    assert_int_equal(l->stride, PL_STRIDE_MAX);
    assert_int_equal(l->good_rounds, 0);
}

/* Alone, with a link that needs longer than a period, a learner is merged all the same: its own next pull does not cut off
 * the push before for ever. */
static void test_a_slow_link_alone_gets_through(void **state)
{
    (void)state;
    struct rig_options o = options(1, 4);
    o.period = 8;
    rig_init(&rig, &o);
    rig_up_many(&rig, 1);
    delay_ns[0] = 1300 * PL_MS;
    run_delayed(200 * PL_SEC);
    struct pl_learner_view v = view_of(0);
    assert_true(v.stride >= 2);
    assert_true(v.rounds_merged >= 10);
}

/* A period of one tick: the next pull comes after the round before, not in its place. */
static void test_a_period_of_one(void **state)
{
    (void)state;
    struct rig_options o = options(2, 4);
    o.period = o.fragments = 1;
    rig_init(&rig, &o);
    rig_up_many(&rig, 2);
    delay_ns[0] = delay_ns[1] = 10 * PL_MS;
    run_delayed(30 * PL_SEC);
    assert_true(pl_syncer_version(rig.s, 0, NULL) >= 200);
    assert_true(rig.s->rounds_void <= 20);
}

/* Sixteen learners are asked for half the fragments in one moment: more than fits into one step, and none is lost. */
static void test_more_work_than_fits_into_a_step(void **state)
{
    (void)state;
    struct rig_options o = options(16, 16);
    o.period = o.fragments = 16;
    o.overlap = 8;
    rig_init(&rig, &o);
    rig_up_many(&rig, 16);
    uint32_t pulled = 0, full = rig.steps_full;
    rig_tick(&rig, false);
    rig_tick(&rig, false);
    for (uint32_t i = 0; i < 16; i++)
        for (uint32_t f = 0; f < 16; f++)
            pulled += rig.peers[i].pull[f].open ? 1 : 0;
    assert_true(pulled >= 16 * 8);
    assert_true(rig.steps_full > full);
    for (uint32_t f = 0; f < 16; f++)
        assert_true(rig_run_to(&rig, f, 2));
}

/* A learner that has not done a step yet is not asked; nor is anybody once the run is over. */
static void test_reports_without_steps(void **state)
{
    (void)state;
    struct rig_options o = options(1, 4);
    o.budget = 500;
    rig_init(&rig, &o);
    rig_up_many(&rig, 2);
    rig_report(&rig, 0, 0);
    assert_int_equal(interval_now(), 0);
    assert_false(pl_heap_has(&rig.s->pulls, 0));
    for (int i = 0; i < 40; i++)
        rig_tick(&rig, false);
    assert_false(pl_heap_has(&rig.s->pulls, 0));
    assert_int_equal(rig.s->phase, PL_PHASE_CLOSING);
}

/* Nobody is asked who has not done a step, has no bulk connection, or has too much on its way already. */
static void test_who_is_not_asked(void **state)
{
    (void)state;
    struct rig_options o = options(1, 4);
    o.fragments = 4;
    rig_init(&rig, &o);
    rig_up_many(&rig, 2);
    rig_hello(&rig, 2);
    rig_join(&rig, 2); /* no bulk connection */
    for (int i = 0; i < 12; i++) {
        rig_report(&rig, 0, 1);
        rig_report(&rig, 2, 1);
        rig_advance(&rig, 100 * PL_MS);
    }
    for (uint32_t f = 0; f < 4; f++) {
        assert_false(rig.peers[1].pull[f].open);
        assert_false(rig.peers[2].pull[f].open);
    }
    assert_in_range(view_of(0).rounds_pulled, 3, 12);
    uint32_t open = 0; /* tau 1: it never has more than three to answer */
    for (uint32_t m = 0; m < 4; m++)
        open = pl_max32(open, rig.s->learners[m].pulls_out);
    assert_in_range(open, 1, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        rig_unit_test(test_eight_out_of_phase_tick_once_a_step),
        rig_unit_test(test_the_clock_goes_on_when_the_fastest_dies),
        rig_unit_test(test_one_identity_is_no_quorum),
        rig_unit_test(test_a_lost_reporter_does_not_count),
        rig_unit_test(test_step_times_are_measured_here),
        rig_unit_test(test_token_clock_and_rate),
        rig_unit_test(test_the_rate_knows_no_absence),
        rig_unit_test(test_a_doubted_learner_drives_no_clock),
        rig_unit_test(test_kth_smallest),
        rig_unit_test(test_a_slow_link_is_asked_earlier),
        rig_unit_test(test_strides),
        rig_unit_test(test_a_stall_is_no_slow_line),
        rig_unit_test(test_a_thin_line_is_sent_less),
        rig_unit_test(test_a_slow_push_is_no_good_round),
        rig_unit_test(test_a_slow_link_alone_gets_through),
        rig_unit_test(test_a_period_of_one),
        rig_unit_test(test_more_work_than_fits_into_a_step),
        rig_unit_test(test_reports_without_steps),
        rig_unit_test(test_who_is_not_asked),
    };
    return rig_run_tests(tests);
}
