/* tests/unit/test_host_trust.c - merge rules, outer optimizers and doubt in a syncer's host: every one of them comes back
 * from the journal with the same bits, and who led another way for long is remembered. */
#include "syncer_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>

static struct syncer_rig rig;

static void compare_after_restart(void)
{
    uint64_t versions[16], digests[16], again[16], again_digests[16];
    syncer_rig_versions(&rig, versions, digests);
    syncer_rig_stop(&rig);
    syncer_rig_start(&rig);
    syncer_rig_versions(&rig, again, again_digests);
    for (uint32_t f = 0; f < rig.run.layout.fragment_count; f++)
        assert_true(again[f] >= versions[f] && (again[f] > versions[f] || again_digests[f] == digests[f]));
}

/* The journal is read with the same arithmetic, or the start is refused: rules and outer optimizers in turn. */
static void every_rule_replays(void **state)
{
    (void)state;
    for (enum pl_rule_kind kind = PL_RULE_RDA; kind <= PL_RULE_NORM_MEDIAN; kind++) {
        syncer_rig_init(&rig, 3);
        struct pl_settings *s = &rig.run.settings;
        s->merge = (struct pl_merge_rule){.kind = kind, .trim = 0.4f, .stale = 2, .guard = kind % 2 == 0};
        s->outer = (struct pl_outer_rule){.lr = 0.5f,
                                          .mu = 0.5f,
                                          .kind = (enum pl_outer_kind)((unsigned)kind % 3),
                                          .delay = 2,
                                          .warmup = 4,
                                          .decay = 1,
                                          .floor = 0.1f};
        s->up = kind % 2 == 0 ? PL_CODEC_INT4
                              : PL_CODEC_FP32; /* contributions, or the gradient, in the journal */
        syncer_rig_create(&rig);
        syncer_rig_start(&rig);
        for (uint64_t i = 1; i <= 3; i++)
            syncer_rig_island(&rig, i);
        syncer_rig_reach(&rig, 4);
        compare_after_restart();
        syncer_rig_reach(&rig, island_version(&rig.islands[0]) + 2);
        compare_after_restart();
        syncer_rig_release(&rig);
    }
}

static bool is_finished(struct syncer_rig *r)
{
    return r->finished;
}

/* Closing merges take less of the momentum by what they have of the usual work: from contributions and from the gradient in
 * the journal. */
static void closing_merges_replay(void **state)
{
    (void)state;
    for (int whole = 0; whole < 2; whole++) {
        syncer_rig_init(&rig, 2);
        struct pl_settings *s = &rig.run.settings;
        s->outer = (struct pl_outer_rule){.lr = 0.5f, .mu = 0.9f};
        s->up = whole ? PL_CODEC_FP32 : PL_CODEC_INT4;
        s->total_tokens = s->trainer.schedule.total_tokens = 20000;
        syncer_rig_create(&rig);
        syncer_rig_start(&rig);
        for (uint64_t i = 1; i <= 2; i++)
            syncer_rig_island(&rig, i);
        syncer_rig_until(&rig, is_finished);
        compare_after_restart();
        syncer_rig_release(&rig);
    }
}

static void backwards(struct island *is, uint32_t fragment, float *values)
{
    for (uint64_t i = 0; i < is->run->layout.fragments[fragment].values; i++)
        values[i] = -values[i];
}

static bool doubted_and_turned_away(struct syncer_rig *r)
{
    return syncer_rig_logged(r, "learner.doubted learner=5") && syncer_rig_count(r, "pushes_refused") > 0;
}

static bool one_snapshot(struct syncer_rig *r)
{
    return syncer_rig_count(r, "snapshots") >= 1;
}

static void a_learner_that_leads_back_is_doubted_for_good(void **state)
{
    (void)state;
    for (int snapshots = 0; snapshots < 2; snapshots++) {
        syncer_rig_init(&rig, 5);
        rig.options.snapshot_bytes = snapshots ? 1 << 18 : 0;
        syncer_rig_create(&rig);
        syncer_rig_start(&rig);
        for (uint64_t i = 1; i <= 4; i++)
            syncer_rig_island(&rig, i);
        syncer_rig_island(&rig, 5)->bend_values = backwards;
        syncer_rig_until(&rig, doubted_and_turned_away);
        assert_true(syncer_rig_logged(&rig, "it is not merged until they agree"));
        assert_true(syncer_rig_logged(&rig, "lead another way than the others' ("));
        if (snapshots)
            syncer_rig_until(&rig, one_snapshot);
        assert_int_equal(syncer_rig_count(&rig, "doubted"), 1);
        compare_after_restart();
        assert_int_equal(syncer_rig_count(&rig, "doubted"), 1);
        syncer_rig_reach(&rig, island_version(&rig.islands[0]) + 1);
        for (uint64_t i = 1; i <= 4; i++) {
            char text[64];
            (void)snprintf(text, sizeof text, "learner.doubted learner=%u", (unsigned)i);
            assert_false(syncer_rig_logged(&rig, text));
        }
        syncer_rig_release(&rig);
    }
}

/* It can come back: contributions that agree are seen while they are not merged. */
static bool counts_again(struct syncer_rig *r)
{
    return syncer_rig_logged(r, "learner.counts learner=5");
}

static void who_stops_lying_counts_again(void **state)
{
    (void)state;
    syncer_rig_init(&rig, 5);
    syncer_rig_create(&rig);
    syncer_rig_start(&rig);
    for (uint64_t i = 1; i <= 4; i++)
        syncer_rig_island(&rig, i);
    struct island *liar = syncer_rig_island(&rig, 5);
    liar->bend_values = backwards;
    syncer_rig_until(&rig, doubted_and_turned_away);
    liar->bend_values = NULL;
    syncer_rig_until(&rig, counts_again);
    syncer_rig_release(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rule_replays),
        cmocka_unit_test(closing_merges_replay),
        cmocka_unit_test(a_learner_that_leads_back_is_doubted_for_good),
        cmocka_unit_test(who_stops_lying_counts_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
