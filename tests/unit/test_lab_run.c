/* Real training in virtual time: the same seed is the same run, variants are paired, speeds are exact, what was killed
 * comes back, and one learner whose every step is merged is plain training. */
#include "lab/data.h"
#include "lab/world.h"
#include "lab_rig.h"
#include "sim/objective.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

static int setup(void **state)
{
    static struct lab_rig rig;
    lab_rig_init(&rig);
    *state = &rig;
    return 0;
}

static int teardown(void **state)
{
    lab_rig_release(*state);
    return 0;
}

static void read_lines(struct lab_rig *r, const char *lines)
{
    if (!lab_rig_read(r, lines))
        fail_msg("%s", r->error);
}

static void test_the_same_seed_gives_the_same_run(void **state)
{
    struct lab_rig *r = *state;
    static struct pl_lab_result a, b, other;
    read_lines(r, "rows: [m4]\ntrain.tokens: 8192\nlearners: 4\n");
    lab_rig_run(r, "m4", 1, &a);
    lab_rig_run(r, "m4", 1, &b);
    lab_rig_run(r, "m4", 2, &other);
    assert_true(a.outer_steps > 8 && a.bytes_up > 0 && a.bytes_down > 0);
    assert_int_equal(a.value_digest, b.value_digest);
    assert_int_equal(a.trace_hash, b.trace_hash);
    assert_memory_equal(&a.loss, &b.loss, sizeof a.loss);
    assert_int_not_equal(a.value_digest, other.value_digest);
    assert_true(a.merged_tokens >= 8192 && a.tokens >= a.merged_tokens);
}

/* The number of threads is not part of the result. */
static void test_threads_do_not_change_a_run(void **state)
{
    struct lab_rig *r = *state;
    static struct pl_lab_result one, two;
    read_lines(r, "rows: [m2]\ntrain.tokens: 4096\nlearners: 2\n");
    lab_rig_run(r, "m2", 1, &one);
    r->lab.threads = 2;
    lab_rig_run(r, "m2", 1, &two);
    r->lab.threads = 1;
    assert_int_equal(one.value_digest, two.value_digest);
}

static void fetch(struct lab_rig *r, const char *row_name, uint64_t seed, uint32_t learner, uint64_t number,
                  int32_t *tokens)
{
    struct pl_lab_row row;
    struct pl_lab_text text;
    struct pl_error err;
    int32_t targets[16];
    if (!lab_rig_row(r, row_name, &row))
        fail_msg("%s", r->error);
    assert_int_equal(pl_lab_text_open(&text, &r->lab, &row, seed, &err), PELAGO_OK);
    assert_int_equal(pl_lab_text_fetch(&text, learner, number, 16, tokens, targets, &err), PELAGO_OK);
    pl_lab_text_close(&text);
}

static void test_variants_of_a_seed_see_the_same_data(void **state)
{
    struct lab_rig *r = *state;
    int32_t a[16], b[16];
    read_lines(r, "rows: [m1, m8]\ntrain.tokens: 8192\nm1/learners: 1\nm8/learners: 8\nm8/sync.up: fp32\n");
    for (uint64_t number = 0; number < 40; number++) {
        fetch(r, "m1", 7, 0, number, a);
        fetch(r, "m8", 7, 5, number, b);
        assert_memory_equal(a, b, sizeof a);
        fetch(r, "m8", 8, 5, number, b);
        assert_int_not_equal(memcmp(a, b, sizeof a), 0);
    }
}

/* Learners with one text each: none reads what another of the same text reads. */
static void test_split_learners_read_their_own_text(void **state)
{
    struct lab_rig *r = *state;
    int32_t a[16], b[16];
    read_lines(r, "rows: [split]\ntrain.tokens: 8192\nlearners: 4\nsplit: true\n");
    assert_false(lab_rig_read(r, "rows: [split]\ndata: [one, two]\nlearners: 4\n")); /* given twice */
    static const char lines[] = "rows: [split]\ntrain.tokens: 8192\nlearners: 4\nsplit/data: [one, two]\n"
                                "split/split: true\n";
    read_lines(r, lines);
    fetch(r, "split", 1, 0, PL_SEQUENCE_OWN | 1, a);
    fetch(r, "split", 1, 2, PL_SEQUENCE_OWN | 0, b);
    assert_int_not_equal(memcmp(a, b, sizeof a), 0);
    static struct pl_lab_result result;
    lab_rig_run(r, "split", 1, &result);
    assert_true(isfinite(result.loss) && result.merged_tokens >= 8192);
}

/* Every step is merged alone and as it is: what the syncer has is what the one learner has. */
static void test_one_learner_is_plain_training(void **state)
{
    struct lab_rig *r = *state;
    static struct pl_lab_result plain, merged;
    read_lines(r, "rows: [dp, m1]\ntrain.tokens: 20480\nlearners: 1\ndp/algorithm: data_parallel\n"
                  "m1/sync.up: fp32\nm1/sync.down: fp32\nm1/sync.outer_lr: 1\nm1/sync.outer_momentum: 0\n"
                  "m1/sync.outer_decay: 0\n");
    lab_rig_run(r, "dp", 1, &plain);
    lab_rig_run(r, "m1", 1, &merged);
    assert_int_equal(plain.tokens, 20480);
    assert_true(plain.loss < 3.9); /* of log 64 = 4.16: it has learnt something */
    if (!(fabs(merged.loss / plain.loss - 1) < 0.01))
        fail_msg("loss %f with a syncer, %f without", merged.loss, plain.loss);
}

static void test_speeds_are_exact(void **state)
{
    struct lab_rig *r = *state;
    static struct pl_lab_result result;
    read_lines(
        r, "rows: [uneven]\ntrain.tokens: 16384\nlearners: 4\nspeeds: [1, 0.5, 0.25]\nbatches: [2, 2, 4]\n");
    lab_rig_run(r, "uneven", 1, &result);
    assert_true(result.steps_of[0] > 20);
    assert_in_range(result.steps_of[1] * 2, result.steps_of[0] - 3, result.steps_of[0] + 3);
    assert_in_range(result.steps_of[2] * 4, result.steps_of[0] - 7, result.steps_of[0] + 7);
    assert_in_range(result.steps_of[3], result.steps_of[0] - 1, result.steps_of[0] + 1);
    uint64_t sequences =
        2 * (result.steps_of[0] + result.steps_of[1] + result.steps_of[3]) + 4 * result.steps_of[2];
    assert_int_equal(result.tokens, sequences * 16);
}

static void test_a_killed_learner_comes_back(void **state)
{
    struct lab_rig *r = *state;
    static struct pl_lab_result calm, killed, gone;
    static const char back[] = "t_s,event,node,cause\n0,up,a,x\n0,up,b,x\n20,down,b,x\n35,up,b,x\n";
    static const char away[] = "t_s,event,node,cause\n0,up,a,x\n0,up,b,x\n20,down,b,x\n";
    char lines[1024];
    tempdir_put(&r->dir, "back.csv", back, sizeof back - 1);
    tempdir_put(&r->dir, "away.csv", away, sizeof away - 1);
    (void)snprintf(lines, sizeof lines,
                   "rows: [calm, back, away]\ntrain.tokens: 10240\nlearners: 2\ncheckpoint_s: 5\n"
                   "back/trace: %s\naway/trace: %s\n",
                   tempdir_path(&r->dir, "back.csv"), tempdir_path(&r->dir, "away.csv"));
    read_lines(r, lines);
    lab_rig_run(r, "calm", 1, &calm);
    lab_rig_run(r, "back", 1, &killed);
    lab_rig_run(r, "away", 1, &gone);
    assert_int_equal(calm.rejoins, 0);
    assert_int_equal(killed.rejoins, 1);
    assert_int_equal(gone.rejoins, 0);
    uint64_t low = killed.steps_of[0] < killed.steps_of[1] ? 0 : 1; /* the one that was down */
    assert_true(killed.steps_of[low] > gone.steps_of[low] + 10);
    assert_true(killed.virtual_s > calm.virtual_s && gone.virtual_s > killed.virtual_s);
    assert_true(killed.merged_tokens + 2 * 64 * 16 >= 10240); /* all but what died between two checkpoints */
}

/* Kills at random moments, the same for the same seed; who was killed comes back. */
static void test_anybody_is_killed_now_and_then(void **state)
{
    struct lab_rig *r = *state;
    static struct pl_lab_result calm, killed, again;
    read_lines(r, "rows: [calm, killed]\ntrain.tokens: 20480\nlearners: 4\ncheckpoint_s: 5\n"
                  "killed/kill_every_s: 15\nkilled/restart_s: 3\n");
    lab_rig_run(r, "calm", 1, &calm);
    lab_rig_run(r, "killed", 1, &killed);
    lab_rig_run(r, "killed", 1, &again);
    assert_true(killed.rejoins >= 2 && killed.virtual_s > calm.virtual_s);
    assert_int_equal(killed.trace_hash, again.trace_hash);
}

/* Who is stopped comes back as the process it was. */
static void test_anybody_is_stopped_now_and_then(void **state)
{
    struct lab_rig *r = *state;
    static struct pl_lab_result calm, stopped;
    read_lines(r, "rows: [calm, stopped]\ntrain.tokens: 20480\nlearners: 4\n"
                  "stopped/stop_every_s: 5\nstopped/stop_s: 3\n");
    lab_rig_run(r, "calm", 1, &calm);
    lab_rig_run(r, "stopped", 1, &stopped);
    assert_int_equal(stopped.rejoins, 0);
    assert_true(stopped.virtual_s > 1.05 * calm.virtual_s);
    assert_int_equal(stopped.tokens, stopped.merged_tokens); /* nothing dies */
}

static void test_late_learners_make_it_faster(void **state)
{
    struct lab_rig *r = *state;
    static struct pl_lab_result alone, joined;
    read_lines(r, "rows: [alone, joined]\ntrain.tokens: 10240\nlearners: 2\npoints: 10\njoined/joiners: 2\n");
    lab_rig_run(r, "alone", 1, &alone);
    lab_rig_run(r, "joined", 1, &joined);
    assert_in_range(alone.point_count, 8, 12);
    assert_true(joined.virtual_s < 0.85 * alone.virtual_s && joined.virtual_s > 0.7 * alone.virtual_s);
    assert_true(joined.steps_of[2] > 0 && joined.steps_of[3] > 0);
}

/* The others come too late, and their work goes out with a later merge. */
static void test_cohorts_are_as_asked_for(void **state)
{
    struct lab_rig *r = *state;
    static struct pl_lab_result result;
    read_lines(r, "rows: [two]\ntrain.tokens: 10240\nlearners: 8\ncohort: 2\nsync.gamma_ppm: 0\n");
    lab_rig_run(r, "two", 1, &result);
    assert_true(result.cohorts[2] * 10 >= result.outer_steps * 7);
    for (uint32_t n = 3; n < 8; n++)
        assert_int_equal(result.cohorts[n], 0); /* all 8 are in the closing rounds alone */
    assert_true(result.cohorts[8] <= 4 && result.merged_tokens >= 10240);
}

/* A simulated syncer takes the outer step that a real one with the row's settings takes. */
static void test_outer_steps_are_those_of_the_host(void **state)
{
    struct lab_rig *r = *state;
    static struct pl_lab_row row;
    static struct pl_lab_world w;
    static struct pl_lab_result result;
    struct pl_error err;
    read_lines(r, "rows: [few]\nlearners: 2\ntrain.tokens: 8192\nsync.up: topk64\nsync.feedback_decay: 0.95\n"
                  "sync.codec_lr: true\nsync.outer_lr: 0.7\nsync.outer_first: 1\nsync.outer_momentum: 0.8\n");
    assert_true(lab_rig_row(r, "few", &row));
    assert_int_equal(pl_lab_world_init(&w, &r->lab, &row, 1, &result, &err), PELAGO_OK);
    assert_in_range(pl_settings_merges(&w.settings), 10, 30);
    for (uint64_t v = 1; v <= 30; v++)
        for (uint64_t tokens = 100; tokens <= 8192; tokens += 1000) {
            const double progress = (double)tokens / (double)w.objective.manifest.token_budget;
            struct pl_outer_move lab = pl_outer_at(&w.objective.outer, v, progress, 0.5);
            struct pl_outer_move host = pl_settings_outer(&w.settings, v, tokens, 0.5);
            assert_memory_equal(&lab, &host, sizeof lab);
        }
    assert_true(pl_settings_outer(&w.settings, 1, 100, 1).lr > 0.9f * pl_outer_codec_gain(PL_CODEC_TOPK64));
    pl_lab_world_release(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_the_same_seed_gives_the_same_run, setup, teardown),
        cmocka_unit_test_setup_teardown(test_threads_do_not_change_a_run, setup, teardown),
        cmocka_unit_test_setup_teardown(test_variants_of_a_seed_see_the_same_data, setup, teardown),
        cmocka_unit_test_setup_teardown(test_split_learners_read_their_own_text, setup, teardown),
        cmocka_unit_test_setup_teardown(test_one_learner_is_plain_training, setup, teardown),
        cmocka_unit_test_setup_teardown(test_speeds_are_exact, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_killed_learner_comes_back, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cohorts_are_as_asked_for, setup, teardown),
        cmocka_unit_test_setup_teardown(test_anybody_is_killed_now_and_then, setup, teardown),
        cmocka_unit_test_setup_teardown(test_anybody_is_stopped_now_and_then, setup, teardown),
        cmocka_unit_test_setup_teardown(test_late_learners_make_it_faster, setup, teardown),
        cmocka_unit_test_setup_teardown(test_outer_steps_are_those_of_the_host, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
