/* tests/unit/test_host_guard.c - what is believed: how long a contribution is; how many steps a learner did, by a clock of the
 * test's own, and what of that outlives the syncer's process. */
#include "syncer_rig.h"

#include "host/syncer_host_int.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

static struct syncer_rig rig;

/* ---- norms ---- */

/* Back after a long absence near the end of a run: hundreds of steps, made in one direction when the rate was ten times as
 * high. So long a vector of as few steps as everybody's is no honest one. */
static void long_work_of_many_steps_is_believed(void **state)
{
    (void)state;
    struct pl_error err;
    syncer_rig_init(&rig, 3);
    rig.run.settings.trainer.schedule = (struct pl_schedule){
        .kind = PL_SCHEDULE_COSINE, .peak = 1e-2f, .floor = 0.1f, .total_tokens = 1000, .warmup_tokens = 1};
    syncer_rig_create(&rig);
    syncer_rig_start(&rig);
    struct pl_syncer_host *h = rig.host;
    struct pl_shard_fragment *f = pl_shost_fragment(h, 0);
    uint32_t slices = h->layout.fragments[0].slice_count;
    double norms[64];
    assert_true(slices <= 64);
    for (uint32_t i = 0; i < PL_GATE_HISTORY; i++) {
        for (uint32_t k = 0; k < slices; k++)
            norms[k] = 10 + i % 3;
        assert_true(pl_guard_norms_ok(h, f, 4, norms, &err));
        f->rates[i] = 1e-3f; /* as if it were the run's end: a tenth of the peak */
    }
    for (uint32_t k = 0; k < slices; k++)
        norms[k] = 10 * 200 * 10;
    assert_true(pl_guard_norms_ok(h, f, 800, norms, &err));
    assert_false(pl_guard_norms_ok(h, f, 4, norms, &err));
    assert_non_null(strstr(err.text, "times as long as usual"));
    for (uint32_t k = 0; k < slices; k++)
        norms[k] = 10 * 200 * 10 * 16.0;
    assert_false(pl_guard_norms_ok(h, f, 800, norms, &err));
    syncer_rig_release(&rig);
}

/* The rate has fallen since the others came, and what top-k held back was learned when it was higher. */
static void a_rate_that_falls_makes_nobody_a_liar(void **state)
{
    (void)state;
    struct pl_error err;
    syncer_rig_init(&rig, 3);
    rig.run.settings.trainer.schedule = (struct pl_schedule){
        .kind = PL_SCHEDULE_COSINE, .peak = 1e-2f, .floor = 0.1f, .total_tokens = 1000, .warmup_tokens = 1};
    syncer_rig_create(&rig);
    syncer_rig_start(&rig);
    struct pl_shard_fragment *f = pl_shost_fragment(rig.host, 0);
    uint32_t slices = rig.host->layout.fragments[0].slice_count;
    double norms[64];
    assert_true(slices <= 64);
    for (uint32_t i = 0; i < PL_GATE_HISTORY; i++) {
        for (uint32_t k = 0; k < slices; k++)
            norms[k] = 10;
        assert_true(pl_guard_norms_ok(rig.host, f, 4, norms, &err));
        f->rates[i] = 1e-3f; /* now it is a sixth of that */
    }
    for (uint32_t k = 0; k < slices; k++)
        norms[k] = 100;
    assert_true(pl_guard_norms_ok(rig.host, f, 4, norms, &err));
    for (uint32_t k = 0; k < slices; k++)
        norms[k] = 1000;
    assert_false(pl_guard_norms_ok(rig.host, f, 4, norms, &err));
    syncer_rig_release(&rig);
}

static void assert_measured(void)
{
    const struct pl_syncer_host *h = rig.host;
    double own[64];
    for (uint32_t i = 0; i < h->fragment_count; i++) {
        const struct pl_shard_fragment *f = &h->fragments[i];
        uint32_t slices = h->layout.fragments[f->number].slice_count;
        assert_true(slices <= 64);
        pl_guard_measure(&h->layout, f->number, f->values->theta, own);
        for (uint32_t k = 0; k < slices; k++)
            assert_true(own[k] > 0);
        assert_memory_equal(f->own, own, slices * sizeof *own);
    }
}

/* The loop never walks over parameters: whoever makes a version says how long they are. */
static void each_version_comes_measured(void **state)
{
    (void)state;
    syncer_rig_init(&rig, 3);
    syncer_rig_create(&rig);
    syncer_rig_start(&rig);
    assert_measured();
    for (uint64_t i = 1; i <= 3; i++)
        syncer_rig_island(&rig, i);
    syncer_rig_reach(&rig, 2);
    assert_measured();
    syncer_rig_stop(&rig);
    syncer_rig_start(&rig);
    assert_measured();
    syncer_rig_release(&rig);
}

/* ---- claims ---- */

/* Three islands have been here and reported; from now on the usual step is 64 ms, so that one of 1 ms is believed. */
static void begin_claims(void)
{
    syncer_rig_init(&rig, 3);
    syncer_rig_create(&rig);
    syncer_rig_start(&rig);
    for (uint64_t i = 1; i <= 3; i++)
        syncer_rig_island(&rig, i);
    syncer_rig_reach(&rig, 1);
    rig.host->usual_step_ns = 64 * PL_MS;
    rig.host->usual_ns = rig.host->last_now_ns; /* the loop stands still, nobody looks again */
}

static bool claim_ok(struct pl_islander *m, struct pl_msg msg, uint64_t now_ns)
{
    struct pl_error err;
    bool good = pl_guard_claims_ok(rig.host, m, &msg, now_ns, &err);
    if (!good)
        assert_non_null(strstr(err.text, "nobody is that fast"));
    return good;
}

static struct pl_learner_view view_of(uint64_t identity)
{
    struct pl_learner_view v;
    assert_true(pl_syncer_view_identity(rig.host->core, identity, &v));
    return v;
}

/* So many steps more than the core has heard of. It hears of none of these: the loop stands still. */
static bool report_ok(struct pl_islander *m, uint64_t more, uint64_t now_ns)
{
    const struct pl_msg msg = {.type = PL_MSG_REPORT, .u.report.steps = view_of(m->identity).steps + more};
    return claim_ok(m, msg, now_ns);
}

static struct pl_msg hello_of(uint64_t identity, uint64_t steps_more)
{
    struct pl_learner_view v = view_of(identity);
    uint64_t most = rig.run.manifest.msg.step_tokens_max;
    return (struct pl_msg){.type = PL_MSG_HELLO,
                           .u.hello = {.incarnation = v.incarnation,
                                       .steps = v.steps + steps_more,
                                       .tokens = v.tokens + steps_more * most}};
}

/* The first island, just back. */
static struct pl_islander greeted(uint64_t now_ns)
{
    struct pl_islander m = {.identity = 1, .known_ns = now_ns};
    assert_true(claim_ok(&m, hello_of(1, 0), now_ns));
    return m;
}

/* Many small lies are no better than a large one: 64 steps, and then one a millisecond. */
static void reports_come_no_faster_than_steps_can(void **state)
{
    (void)state;
    begin_claims();
    uint64_t now = rig.host->last_now_ns, steps = 64, count = 0;
    struct pl_islander m = greeted(now);
    assert_true(report_ok(&m, 64, now));
    assert_false(report_ok(&m, 1, now));
    for (uint32_t i = 0; i < 100000; i++) { /* for a second, every 10 us */
        now += 10 * PL_US;
        steps += report_ok(&m, 64, now) ? 64 : 0;
    }
    assert_in_range(steps, 64 + 900, 64 + 1000);
    m = greeted(now);
    for (uint32_t i = 0; i < 1000; i++)
        count += report_ok(&m, 0, now) ? 1 : 0; /* that nothing was done is not said without end either */
    assert_int_equal(count, 64);
    syncer_rig_release(&rig);
}

static void honest_reports_are_believed(void **state)
{
    (void)state;
    begin_claims();
    uint64_t now = rig.host->last_now_ns;
    struct pl_islander m = greeted(now);
    for (uint32_t i = 0; i < 10000; i++) /* 32 times as fast as usual */
        assert_true(report_ok(&m, 1, now += 2 * PL_MS));
    now += 20 * PL_SEC; /* a line, or the syncer, that stood still: all of it at once */
    for (uint32_t i = 0; i < 10000; i++)
        assert_true(report_ok(&m, 1, now));
    now += 2 * PL_SEC;
    assert_true(report_ok(&m, 1000, now)); /* only the last of many reports was sent */
    for (uint32_t i = 0; i < 1000; i++)    /* out of step: two at once, then a pause */
        assert_true(report_ok(&m, 1, now += (i % 2) * 4 * PL_MS));
    syncer_rig_release(&rig);
}

/* An hour of small steps earns no more than one of silence does, and neither can be spent twice. */
static void time_is_not_saved_up(void **state)
{
    (void)state;
    begin_claims();
    uint64_t now = rig.host->last_now_ns;
    struct pl_islander m = greeted(now);
    for (uint32_t i = 0; i < 56250; i++)
        assert_true(report_ok(&m, 1, now += 64 * PL_MS));
    assert_false(report_ok(&m, 64 + 128, now));
    now += 3600 * PL_SEC;
    for (uint32_t i = 0; i < 360; i++)
        assert_true(report_ok(&m, 10000, now));
    assert_false(report_ok(&m, 64 + 128, now));
    syncer_rig_release(&rig);
}

/* With one learner or two nothing is usual, and a step takes its time all the same. */
static void the_first_learner_has_a_bound(void **state)
{
    (void)state;
    begin_claims();
    uint64_t now = rig.host->last_now_ns;
    rig.host->usual_step_ns = 0;
    struct pl_islander m = greeted(now);
    assert_true(report_ok(&m, 64, now));
    assert_false(report_ok(&m, 1, now));
    assert_true(report_ok(&m, 10000, now + PL_SEC));
    assert_false(report_ok(&m, 10001, now + 2 * PL_SEC));
    syncer_rig_release(&rig);
}

/* Back after an hour: an hour's work is believed, once. */
static void an_absence_is_believed_as_long_as_it_was(void **state)
{
    (void)state;
    begin_claims();
    struct pl_islander *m = pl_shost_member(rig.host, 1);
    uint64_t hour = 3600 * PL_SEC / (64 * PL_MS), back = rig.host->last_now_ns + 3600 * PL_SEC;
    assert_true(claim_ok(m, hello_of(1, hour), back));
    assert_false(claim_ok(m, hello_of(1, 2 * hour), back));
    struct pl_msg hello = hello_of(1, hour);
    hello.u.hello.incarnation--; /* one of before: the core turns it away, and it changes nothing */
    assert_true(claim_ok(m, hello, back));
    hello = hello_of(1, 65);
    hello.u.hello.incarnation = 0; /* nor is a new process a way around */
    hello.u.hello.nonce = 5;
    uint64_t steps = hello.u.hello.tokens / rig.run.manifest.msg.step_tokens_max;
    assert_false(claim_ok(m, hello, back));
    assert_true(claim_ok(m, hello, back + steps * PL_MS));
    syncer_rig_release(&rig);
}

/* What a greeting says of steps is worth nothing until the core has taken it: it may turn it away, with another run's
 * number in it, and the reports after it begin where the core is. */
static void a_greeting_that_is_turned_away_prepares_nothing(void **state)
{
    (void)state;
    begin_claims();
    uint64_t now = rig.host->last_now_ns;
    struct pl_islander m = greeted(now);
    struct pl_msg hello = hello_of(1, 0);
    hello.u.hello.run_id = 1;
    hello.u.hello.steps += UINT64_C(1) << 40;
    assert_true(claim_ok(&m, hello, now));
    assert_false(report_ok(&m, UINT64_C(1) << 39, now + PL_SEC));
    uint64_t steps = view_of(1).tokens / rig.run.manifest.msg.step_tokens_max;
    rig.host->usual_step_ns =
        64 * PL_SEC; /* so that what it has done already is too much for a second time */
    hello = hello_of(1, 0);
    hello.u.hello.incarnation = 0;
    hello.u.hello.nonce = 99; /* not the one that the core knows, however often it is said */
    hello.u.hello.tokens += 64 * rig.run.manifest.msg.step_tokens_max;
    assert_true(steps > 2);
    assert_false(claim_ok(&m, hello, now + PL_SEC));
    hello.u.hello.tokens = 0;
    hello.u.hello.run_id = 1;
    assert_true(claim_ok(&m, hello, now + PL_SEC));
    hello.u.hello.tokens = view_of(1).tokens + 64 * rig.run.manifest.msg.step_tokens_max;
    assert_false(claim_ok(&m, hello, now + PL_SEC));
    syncer_rig_release(&rig);
}

/* What is merged is counted, over and over. */
static void merged_steps_come_no_faster_than_steps_can(void **state)
{
    (void)state;
    begin_claims();
    uint64_t now = rig.host->last_now_ns, merged = 0, refused = 0;
    struct pl_claim claims[16] = {{.merging_round = 0}};
    struct pl_islander m = {.identity = 77, .known_ns = now, .claims = claims};
    const struct pl_msg push = {.type = PL_MSG_PUSH, .u.push = {.fragment = 0, .steps = 64}};
    for (uint32_t i = 0; i < 1000; i++) { /* 64 steps every 16 ms: four times what is believed */
        rig.host->last_now_ns = rig.host->usual_ns = now += 16 * PL_MS;
        if (!claim_ok(&m, push, now)) {
            refused++;
            continue;
        }
        pl_guard_merged(rig.host, &m, &claims[0], 64);
        merged += 64;
    }
    assert_in_range(merged, 15000, 16000 + 64);
    assert_true(refused > 700);
    syncer_rig_release(&rig);
}

static bool is_written(struct syncer_rig *r)
{
    char path[sizeof r->folder + 8];
    (void)snprintf(path, sizeof path, "%s/heard", r->folder);
    FILE *f = fopen(path, "rb");
    if (f != NULL)
        (void)fclose(f);
    return f != NULL && r->host->jobs == 0;
}

static void restart_with_what_was_heard(void)
{
    pl_heard_save(rig.host);
    syncer_rig_until(&rig, is_written);
    syncer_rig_stop(&rig);
    rig.log_len = 0;
}

static bool greeting_refused(struct syncer_rig *r)
{
    return syncer_rig_logged(r, "HELLO.steps claims") && island_version(&r->islands[0]) >= 2;
}

/* The syncer has forgotten who did how much, and when: nobody can make a past out of it. */
static void a_restart_is_no_chance_to_claim_a_past(void **state)
{
    (void)state;
    begin_claims();
    restart_with_what_was_heard();
    struct island *liar = &rig.islands[2];
    liar->steps = UINT64_C(1) << 30;
    liar->tokens = liar->steps * rig.run.manifest.msg.step_tokens_max;
    syncer_rig_start(&rig);
    syncer_rig_until(&rig, greeting_refused);
    assert_true(syncer_rig_count(&rig, "tokens") < liar->tokens / 1000);
    syncer_rig_release(&rig);
}

/* An hour away, the syncer's own absence in it: the file says how long it was. Without it nobody waits for ever. */
static void an_absence_over_a_restart_is_believed(void **state)
{
    (void)state;
    char path[sizeof rig.folder + 8];
    begin_claims();
    restart_with_what_was_heard();
    syncer_rig_start(&rig);
    struct pl_syncer_host *h = rig.host;
    uint64_t most = rig.run.manifest.msg.step_tokens_max, hour = 3600 * PL_SEC / (5 * PL_MS);
    struct pl_msg hello = {.type = PL_MSG_HELLO,
                           .u.hello = {.steps = hour, .tokens = hour * most, .nonce = 1}};
    struct pl_islander m = {.identity = 1, .known_ns = h->start_ns}, other = {.identity = 78};
    assert_in_range(pl_heard_step_ns(h), PL_MS, PL_SEC);
    assert_false(claim_ok(&m, hello, h->start_ns));
    h->start_s += 3600;
    assert_false(claim_ok(&other, hello, h->start_ns)); /* who was never here had no hour */
    assert_true(claim_ok(&m, hello, h->start_ns));
    syncer_rig_stop(&rig);
    (void)snprintf(path, sizeof path, "%s/heard", rig.folder);
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fputc('x', f), 'x');
    assert_int_equal(fclose(f), 0);
    syncer_rig_start(&rig);
    h = rig.host;
    assert_true(syncer_rig_logged(&rig, "heard.damaged"));
    assert_int_equal(pl_heard_step_ns(h), 0);
    m = (struct pl_islander){.identity = 1, .known_ns = h->start_ns};
    assert_false(claim_ok(&m, hello, h->start_ns));
    assert_true(claim_ok(&m, hello, h->start_ns + 3600 * PL_SEC / 50)); /* 100 us a step at the least */
    syncer_rig_release(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(long_work_of_many_steps_is_believed),
        cmocka_unit_test(a_rate_that_falls_makes_nobody_a_liar),
        cmocka_unit_test(each_version_comes_measured),
        cmocka_unit_test(reports_come_no_faster_than_steps_can),
        cmocka_unit_test(honest_reports_are_believed),
        cmocka_unit_test(time_is_not_saved_up),
        cmocka_unit_test(the_first_learner_has_a_bound),
        cmocka_unit_test(an_absence_is_believed_as_long_as_it_was),
        cmocka_unit_test(a_greeting_that_is_turned_away_prepares_nothing),
        cmocka_unit_test(merged_steps_come_no_faster_than_steps_can),
        cmocka_unit_test(a_restart_is_no_chance_to_claim_a_past),
        cmocka_unit_test(an_absence_over_a_restart_is_believed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
