/* All orders of up to six small events on a shard with two learners: after every one of them the shard's invariants and
 * the host's contract hold (the rig checks), and from wherever it got to, with faults gone, a new version comes out.
 */
#include "rig_test.h"

#include "core/syncer_int.h"

enum { DEPTH = 6, F = 0 };

typedef void event(void);

static void a_pushes(void)
{
    rig_push(&rig, 0, F);
}

static void b_pushes(void)
{
    rig_push(&rig, 1, F);
}

static void b_pushes_half(void)
{
    if (!rig.peers[1].pull[F].open || rig.peers[1].bulk == PL_NONE32)
        return;
    rig_push_header(&rig, 1, F, 40000);
    if (rig.peers[1].bulk != PL_NONE32)
        rig_push_chunk(&rig, 1, F, 40000, 1);
}

static void b_skips(void)
{
    rig_skip(&rig, 1, F);
}

/* The connections of A break, or it comes back. */
static void a_toggles(void)
{
    if (rig_live(&rig, 0))
        rig_down(&rig, 0);
    else if (rig.listening)
        rig_up(&rig, 0);
}

static void b_restarts(void)
{
    if (!rig.listening)
        return;
    rig_restart(&rig, 1);
    rig_up(&rig, 1);
}

static void a_step_passes(void)
{
    rig_tick(&rig, false);
}

static void a_applies(void)
{
    rig_have(&rig, 0, F);
}

static void verified(void)
{
    rig_answer(&rig, PL_SYNC_EV_VERIFIED, true);
}

static void not_verified(void)
{
    rig_answer(&rig, PL_SYNC_EV_VERIFIED, false);
}

static void merged(void)
{
    rig_answer(&rig, PL_SYNC_EV_MERGED, true);
}

static void not_merged(void)
{
    rig_answer(&rig, PL_SYNC_EV_MERGED, false);
}

static void stored(void)
{
    rig_answer(&rig, PL_SYNC_EV_STORED, true);
}

static void not_stored(void)
{
    rig_answer(&rig, PL_SYNC_EV_STORED, false);
}

static void power_cut(void)
{
    rig_recover(&rig);
}

static struct rig_mark marks[DEPTH + 1];
static char path[DEPTH + 1];
static uint64_t orders;

/* Faults end; both learners are there and do as they are told. */
static void heals(void)
{
    rig.hold_verify = rig.hold_merge = rig.hold_store = false;
    for (int i = 0; i < 20 && rig.answers_len > 0; i++) {
        rig_answer(&rig, rig.answers[0].kind, true);
        rig_rest(&rig, 100 * PL_MS);
    }
    rig_rest(&rig, PL_SEC);
    for (uint32_t i = 0; i < 2; i++)
        if (!rig_live(&rig, i) && rig.s->phase != PL_PHASE_DONE)
            rig_up(&rig, i);
    uint64_t version = pl_syncer_version(rig.s, F, NULL);
    uint32_t ticks = 0;
    while (rig.s->phase == PL_PHASE_RUNNING && pl_syncer_version(rig.s, F, NULL) == version && ticks++ < 40)
        rig_tick(&rig, true);
    if (ticks >= 40)
        fail_msg("no new version after the events %s", path);
    for (int i = 0; i < 400 && rig.s->phase == PL_PHASE_CLOSING; i++)
        rig_tick(&rig, true);
    if (rig.s->phase == PL_PHASE_CLOSING)
        fail_msg("the run does not end after the events %s", path);
}

static void explore(event *const *events, uint32_t count, uint32_t depth)
{
    if (depth == DEPTH) {
        orders++;
        heals();
        return;
    }
    rig_mark(&rig, &marks[depth]);
    for (uint32_t i = 0; i < count; i++) {
        path[depth] = (char)('0' + i);
        rig_forget(&rig);
        events[i]();
        explore(events, count, depth + 1);
        rig_rewind(&rig, &marks[depth]);
    }
    path[depth] = '\0';
}

static void explore_all(const struct rig_options *o, event *const *events, uint32_t count, bool hold)
{
    rig_init(&rig, o);
    rig_up_many(&rig, 2);
    assert_true(rig_run_to(&rig, F, 1));
    assert_true(rig_run_to_pull(&rig, 0, F));
    rig.hold_verify = rig.hold_merge = rig.hold_store = hold;
    orders = 0;
    explore(events, count, 0);
    uint64_t all = 1;
    for (uint32_t i = 0; i < DEPTH; i++)
        all *= count;
    assert_int_equal(orders, all);
    for (uint32_t i = 0; i <= DEPTH; i++)
        rig_mark_release(&marks[i]);
}

static struct rig_options options(uint32_t quorum)
{
    struct rig_options o = rig_defaults();
    o.fragments = 1;
    o.learners_max = 2;
    o.quorum = quorum;
    o.period = 3;
    return o;
}

#define EXPLORE(o, hold, ...)                                                                                \
    do {                                                                                                     \
        event *const events_[] = {__VA_ARGS__};                                                              \
        explore_all((o), events_, sizeof events_ / sizeof events_[0], (hold));                               \
    } while (0)

static void test_learners_come_and_go(void **state)
{
    (void)state;
    struct rig_options o = options(2);
    EXPLORE(&o, false, a_pushes, b_pushes, a_toggles, b_restarts, a_step_passes, a_applies);
}

static void test_half_pushes_with_one_as_quorum(void **state)
{
    (void)state;
    struct rig_options o = options(1);
    EXPLORE(&o, false, a_pushes, b_pushes_half, b_skips, a_toggles, a_step_passes);
}

static void test_answers_in_any_order(void **state)
{
    (void)state;
    struct rig_options o = options(1);
    EXPLORE(&o, true, a_pushes, verified, merged, stored, a_step_passes, power_cut);
}

static void test_bad_answers(void **state)
{
    (void)state;
    struct rig_options o = options(1);
    EXPLORE(&o, true, a_pushes, verified, not_verified, merged, not_merged, not_stored);
}

static void test_restarts_while_merging(void **state)
{
    (void)state;
    struct rig_options o = options(1);
    EXPLORE(&o, true, b_pushes, verified, a_step_passes, merged, b_restarts, stored);
}

static void test_the_end_in_any_order(void **state)
{
    (void)state;
    struct rig_options o = options(2);
    o.budget = 200; /* about where the events begin */
    EXPLORE(&o, false, a_pushes, b_pushes, a_toggles, a_step_passes, power_cut);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        rig_unit_test(test_learners_come_and_go),   rig_unit_test(test_half_pushes_with_one_as_quorum),
        rig_unit_test(test_answers_in_any_order),   rig_unit_test(test_bad_answers),
        rig_unit_test(test_restarts_while_merging), rig_unit_test(test_the_end_in_any_order),
    };
    return rig_run_tests(tests);
}
