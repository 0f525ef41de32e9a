/* The data ledger: a unit is recorded before it is told, belongs to one learner at a time, comes back with its cursor,
 * and is given out again before any new one; also across crashes (I13). */
#include "rig_test.h"

#include "core/syncer_int.h"

#include <stdlib.h>

static void start(uint32_t peers)
{
    struct rig_options o = rig_defaults();
    rig_init(&rig, &o);
    rig_up_many(&rig, peers);
    rig_forget(&rig);
}

static void want(uint32_t i)
{
    rig_send(&rig, rig.peers[i].control, &(struct pl_msg){.type = PL_MSG_WANT});
}

/* A report of work on the unit in hand. */
static void work(uint32_t i, uint64_t unit, uint64_t cursor)
{
    rig.peers[i].unit = unit;
    rig.peers[i].cursor = cursor;
    rig_report(&rig, i, 1);
}

static const struct open_unit *unit(uint64_t number)
{
    for (uint32_t i = 0; i < rig.s->units_max; i++)
        if (rig.s->units[i].unit == number)
            return &rig.s->units[i];
    return NULL;
}

static uint64_t cursor(uint64_t number)
{
    const struct open_unit *u = unit(number);
    return u == NULL ? PL_NONE64 : u->cursor;
}

static uint64_t owner(uint64_t number)
{
    const struct open_unit *u = unit(number);
    return u == NULL || u->owner == PL_NONE32 ? 0 : rig.s->learners[u->owner].identity;
}

/* JOIN with two units, in the order of use. */
static void join_holding(uint32_t i, const struct pl_item_held_unit held[static 2])
{
    const struct rig_peer *p = &rig.peers[i];
    uint8_t have[RIG_FRAGMENTS * PL_ITEM_HAVE_BYTES], units[2 * PL_ITEM_HELD_UNIT_BYTES];
    rig_hello(&rig, i);
    for (uint32_t f = 0; f < rig.o.fragments; f++)
        pl_item_have_put(have, f, &(struct pl_item_have){p->have[f], rig_digest(f, p->have[f])});
    for (uint32_t n = 0; n < 2; n++)
        pl_item_held_unit_put(units, n, &held[n]);
    struct pl_msg_join join = {.have = {have, rig.o.fragments}, .units = {units, 2}};
    rig_send(&rig, p->control, &(struct pl_msg){.type = PL_MSG_JOIN, .u.join = join});
}

static void answer_stores(void)
{
    while (rig_answer(&rig, PL_SYNC_EV_STORED, true))
        continue;
}

static void test_recorded_before_told(void **state)
{
    (void)state;
    start(2);
    rig.hold_store = true;
    want(0);
    assert_true(rig_waits(&rig, PL_SYNC_EV_STORED));
    expect_not_sent(rig.peers[0].control, PL_MSG_LEASE);
    want(0); /* once more before the answer: one is enough */
    assert_int_equal(rig_effects(&rig, PL_SYNC_FX_STORE), 1);
    rig_answer(&rig, PL_SYNC_EV_STORED, false);
    rig_rest(&rig, PL_SEC);
    expect_not_sent(rig.peers[0].control, PL_MSG_LEASE);
    rig_answer(&rig, PL_SYNC_EV_STORED, true);
    expect_sent(rig.peers[0].control, PL_MSG_LEASE);
    assert_int_equal(rig.peers[0].unit, 0);
    struct pl_record rec;
    rig_record(&rig, rig.record_count - 1, &rec, NULL);
    assert_int_equal(rec.type, PL_RECORD_LEASE);
    assert_int_equal(rec.identity, 10);
    assert_int_equal(rec.unit, 0);
}

static void test_two_units_each_and_no_unit_twice(void **state)
{
    (void)state;
    start(3);
    for (uint32_t i = 0; i < 3; i++) {
        want(i);
        assert_int_equal(rig.peers[i].unit, 2 * i);
        want(i);
        assert_int_equal(rig.peers[i].unit, 2 * i + 1);
    }
    assert_int_equal(owner(0), 10);
    assert_int_equal(owner(5), 30);
    assert_int_equal(rig.s->next_unit, 6);
}

static void test_progress_and_the_end_of_a_unit(void **state)
{
    (void)state;
    start(2);
    want(0);
    work(0, 0, 40);
    assert_int_equal(cursor(0), 40);
    work(0, 0, 30); /* a cursor never goes back */
    assert_int_equal(cursor(0), 40);
    work(1, 0, 90); /* not its own */
    assert_int_equal(cursor(0), 40);
    work(0, PL_NONE64, 99);
    work(0, 12345, 99);
    assert_int_equal(cursor(0), 40);
    work(0, 0, 1000); /* no further than the end */
    assert_null(unit(0));
    work(0, 0, 5); /* finished for good */
    assert_null(unit(0));
    want(0);
    assert_int_equal(rig.peers[0].unit, 1);
}

/* A report that was merged into a later one may never have said that the first unit was finished. */
static void test_units_are_finished_in_order(void **state)
{
    (void)state;
    start(1);
    want(0);
    want(0);
    work(0, 1, 10);
    assert_null(unit(0));
    assert_int_equal(cursor(1), 10);
    want(0);
    assert_int_equal(rig.peers[0].unit, 2);
    rig.peers[0].unit = 1;
    want(0); /* it holds too few, or it would not ask: the first of its two is finished */
    assert_null(unit(1));
    assert_int_equal(rig.peers[0].unit, 3);
}

static void test_units_of_the_dead_come_back(void **state)
{
    (void)state;
    start(2);
    want(0);
    work(0, 0, 40);
    want(0);
    rig_down(&rig, 0);
    rig_rest(&rig, PL_SEC); /* a short absence: they stay its own */
    assert_int_equal(owner(0), 10);
    rig_rest(&rig, 200 * PL_SEC);
    assert_int_equal(owner(0), 0);
    assert_int_equal(rig_traces(&rig, PL_TRACE_SYNC_UNIT_BACK), 2);
    want(1);
    assert_int_equal(rig.peers[1].unit, 0);
    assert_int_equal(rig.peers[1].cursor, 40);
    want(1);
    assert_int_equal(rig.peers[1].unit, 1);
    want(1); /* (unit 0 counts as done now) */
    assert_int_equal(rig.peers[1].unit, 2);

    /* The first owner returns: what others took is not its own any more. */
    rig.peers[0].unit = 1;
    rig_up(&rig, 0);
    assert_int_equal(owner(1), 20);
    work(0, 1, 90);
    assert_int_equal(cursor(1), 0);
}

static void test_join_says_what_is_held(void **state)
{
    (void)state;
    start(2);
    want(0);
    want(0);
    rig_down(&rig, 0);
    rig.peers[0].unit = 1;
    rig.peers[0].cursor = 60; /* the other one it has lost */
    rig_up(&rig, 0);
    assert_int_equal(owner(0), 0);
    assert_int_equal(owner(1), 10);
    assert_int_equal(cursor(1), 60);
    rig_down(&rig, 0);
    rig_rest(&rig, 200 * PL_SEC);
    assert_int_equal(owner(1), 0);
    rig.peers[0].cursor = 70;
    rig_up(&rig, 0); /* nobody took it meanwhile */
    assert_int_equal(owner(1), 10);
    assert_int_equal(cursor(1), 70);
    rig_down(&rig, 0);
    rig.peers[0].cursor = 100;
    rig_up(&rig, 0);
    assert_null(unit(1));
    rig_down(&rig, 0);
    rig.peers[0].unit = 77; /* never given out */
    rig_up(&rig, 0);
    assert_null(unit(77));
    assert_true(rig_live(&rig, 0));
}

static void test_private_data_takes_no_units(void **state)
{
    (void)state;
    start(0);
    rig.peers[0].flags = 1;
    rig_up(&rig, 0);
    uint32_t c = rig.peers[0].control;
    want(0);
    expect_closed(c, WRONG_STATE, "WANT came, but work units are for learners without private data");
}

static void test_the_learner_leaves_before_it_is_told(void **state)
{
    (void)state;
    start(2);
    rig.hold_store = true;
    want(0);
    rig_down(&rig, 0); /* away: the unit is still its own */
    rig_forget(&rig);
    rig_answer(&rig, PL_SYNC_EV_STORED, true);
    assert_int_equal(rig_effects(&rig, PL_SYNC_FX_SEND), 0);
    assert_int_equal(owner(0), 0);
    answer_stores();
    want(1); /* the next one gets it */
    rig_answer(&rig, PL_SYNC_EV_STORED, true);
    assert_int_equal(rig.peers[1].unit, 0);

    want(1);
    rig_down(&rig, 1);
    rig.peers[1].unit = PL_NONE64;
    rig_up(&rig, 1); /* back without it, while the record is being written */
    assert_int_equal(owner(1), 0);
    rig_answer(&rig, PL_SYNC_EV_STORED, false);
    rig_rest(&rig, PL_SEC);
    answer_stores();
    assert_int_equal(owner(1), 0);
    assert_non_null(unit(1));
    want(1);
    rig_answer(&rig, PL_SYNC_EV_STORED, true);
    assert_int_equal(rig.peers[1].unit, 0); /* its old one, given back as well */
}

/* It lists a unit that was given to another meanwhile, goes on with it all the same, and gets it back for its next
 * WANT: when it uses the unit up before the lease is durable, it still wants another. */
static void test_a_unit_finished_while_its_lease_is_recorded(void **state)
{
    (void)state;
    start(2);
    want(0);
    work(0, 0, 5);
    rig_down(&rig, 0);
    rig_rest(&rig, 400 * PL_SEC);
    want(1);
    assert_int_equal(owner(0), 20);
    rig_up(&rig, 0);
    assert_int_equal(owner(0), 20);
    rig_down(&rig, 1);
    rig_rest(&rig, 400 * PL_SEC);
    rig.hold_store = true;
    rig_forget(&rig);
    want(0);
    assert_int_equal(owner(0), 10);
    work(0, 0, 100);
    rig.hold_store = false;
    answer_stores();
    assert_null(unit(0));
    expect_sent(rig.peers[0].control, PL_MSG_LEASE);
    assert_int_equal(rig.peers[0].unit, 1);
}

/* A unit that is away while its last record is being written is not given out before the next one is durable. */
static void test_coming_back_is_recorded(void **state)
{
    (void)state;
    start(2);
    want(0);
    rig_down(&rig, 0);
    rig.peers[0].unit = PL_NONE64;
    rig.hold_store = true;
    rig_up(&rig, 0);
    assert_int_equal(owner(0), 0);
    assert_true(rig_waits(&rig, PL_SYNC_EV_STORED));
    want(1); /* a new one */
    assert_int_equal(owner(0), 0);
    assert_int_equal(owner(1), 20);
    rig.hold_store = false;
    answer_stores();
    rig_recover(&rig);
    assert_int_equal(owner(0), 0);
    assert_int_equal(owner(1), 20);
    rig.peers[0].unit = 0;
    rig_up(&rig, 0); /* it has it after all, and nobody else took it */
    assert_int_equal(owner(0), 10);
    rig_recover(&rig);
    assert_int_equal(owner(0), 10);
}

static void test_join_with_two_units_finishes_neither(void **state)
{
    (void)state;
    start(1);
    want(0);
    want(0);
    rig_down(&rig, 0);
    join_holding(0, (struct pl_item_held_unit[]){{0, 30}, {1, 0}});
    assert_int_equal(cursor(0), 30);
    assert_int_equal(owner(0), 10);
    assert_int_equal(owner(1), 10);
    work(0, 1, 10); /* but now it is at the second */
    assert_null(unit(0));
    assert_int_equal(cursor(1), 10);
}

/* ---- crashes ---- */

/* More records than a learner can hold units, none of which says that one came back: the newest stand. */
static void test_the_newest_records_stand(void **state)
{
    (void)state;
    start(0);
    void *memory = calloc(1, rig.memory_bytes);
    assert_non_null(memory);
    struct pl_syncer *s = pl_syncer_init(memory, rig.memory_bytes, &rig.so);
    struct pl_error err;
    const uint64_t units[] = {7, 3, 5, 4};
    for (uint32_t i = 0; i < 4; i++) {
        struct pl_record r = {.type = PL_RECORD_LEASE, .epoch = 1, .identity = 10, .unit = units[i]};
        assert_int_equal(pl_syncer_replay(s, &r, &err), PELAGO_OK);
        pl_syncer_check(s);
    }
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(pl_sync_unit_find(s, units[i])->owner != PL_NONE32, i >= 2);
    free(memory);
}

/* A learner comes back without its units while one of them is being recorded, and gets others; then the shard crashes.
 * Wherever that happens: the unit it was told last is its own. */
static void test_a_crash_after_units_came_back(void **state)
{
    (void)state;
    start(0);
    for (uint32_t answers = 0; answers < 8; answers++) {
        struct rig_options o = rig_defaults();
        rig_again(&rig, &o);
        rig_up_many(&rig, 2);
        want(0);
        rig.hold_store = true;
        want(0);
        rig_down(&rig, 0);
        rig.peers[0].unit = PL_NONE64;
        rig_up(&rig, 0);
        for (uint32_t i = 0; i < answers; i++) {
            want(0);
            rig_answer(&rig, PL_SYNC_EV_STORED, true);
        }
        rig.hold_store = false;
        rig_recover(&rig);
        assert_true(answers < 3 || rig.peers[0].unit != PL_NONE64);
        if (rig.peers[0].unit != PL_NONE64)
            assert_int_equal(owner(rig.peers[0].unit), 10);
    }
}

static void test_a_snapshot_keeps_the_order_of_units(void **state)
{
    (void)state;
    start(2);
    want(0);
    want(0);
    want(1);
    work(0, 0, 100);
    want(1); /* unit 3, in the place that unit 0 had: before that of unit 2 */
    assert_true(unit(3) < unit(2));
    work(1, 2, 5);
    rig_snapshot(&rig);
    rig_recover(&rig);
    join_holding(1, (struct pl_item_held_unit[]){{2, 6}, {3, 0}});
    work(1, 2, 7);
    assert_int_equal(cursor(2), 7);
    assert_int_equal(owner(3), 20);
}

static void test_units_of_one_that_never_returns(void **state)
{
    (void)state;
    start(2);
    want(0);
    rig_recover(&rig);
    rig_up(&rig, 1);
    rig_rest(&rig, 30 * PL_SEC);
    assert_int_equal(owner(0), 10); /* it may still come */
    rig_rest(&rig, 60 * PL_SEC);
    assert_int_equal(owner(0), 0);
    want(1);
    assert_int_equal(rig.peers[1].unit, 0);
}

static void test_crash_before_the_record(void **state)
{
    (void)state;
    start(1);
    rig.hold_store = true;
    want(0);
    rig.hold_store = false;
    rig_recover(&rig);
    assert_null(unit(0));
    rig_up(&rig, 0);
    want(0);
    assert_int_equal(rig.peers[0].unit, 0);
}

static void test_crash_between_record_and_telling(void **state)
{
    (void)state;
    start(2);
    want(0); /* unit 0: recorded, told; but think it was not */
    rig.peers[0].unit = PL_NONE64;
    rig_recover(&rig);
    assert_int_equal(owner(0), 10); /* nobody else gets it while its learner may hold it */
    rig_up(&rig, 1);
    want(1);
    assert_int_equal(rig.peers[1].unit, 1);
    rig_up(&rig, 0);
    assert_int_equal(owner(0), 0);
    want(0);
    assert_int_equal(rig.peers[0].unit, 0);
}

static void test_cursors_come_back_with_their_learner(void **state)
{
    (void)state;
    start(1);
    want(0);
    work(0, 0, 50);
    rig_recover(&rig);
    assert_int_equal(cursor(0), 0); /* no round was stored since */
    rig_up(&rig, 0);
    assert_int_equal(cursor(0), 50);
    assert_int_equal(owner(0), 10);
}

/* Any number of units may be finished between two rounds, or without any: the journal never outgrows the table. */
static void test_finished_units_stay_finished(void **state)
{
    (void)state;
    start(1);
    for (uint64_t n = 0; n < 40; n++) {
        want(0);
        assert_int_equal(rig.peers[0].unit, n);
        work(0, n, 100);
    }
    want(0);
    rig_recover(&rig);
    for (uint64_t n = 0; n < 40; n++)
        assert_null(unit(n));
    assert_int_equal(owner(40), 10);
    assert_int_equal(rig.s->next_unit, 41);
    rig_up(&rig, 0);
    want(0);
    assert_int_equal(rig.peers[0].unit, 41);
}

/* Units whose end is being recorded still have their place; a learner that finds no room gets its unit later. */
static void test_a_full_table_serves_later(void **state)
{
    (void)state;
    struct rig_options o = rig_defaults();
    o.learners_max = 1;
    o.quorum = 1;
    rig_init(&rig, &o);
    rig_up(&rig, 0);
    want(0);
    want(0);
    rig.hold_store = true;
    work(0, 0, 100);
    work(0, 1, 100);
    rig_forget(&rig);
    want(0);
    expect_not_sent(rig.peers[0].control, PL_MSG_LEASE);
    uint8_t bytes[RIG_SAVE_BYTES];
    rig_save(&rig, bytes);
    rig.hold_store = false;
    answer_stores();
    expect_sent(rig.peers[0].control, PL_MSG_LEASE);
    assert_int_equal(rig.peers[0].unit, 2);
}

static void test_no_new_units_at_the_end(void **state)
{
    (void)state;
    struct rig_options o = rig_defaults();
    o.budget = 30;
    rig_init(&rig, &o);
    rig_up_many(&rig, 2);
    for (int i = 0; i < 4; i++)
        rig_report(&rig, 0, 1);
    rig_forget(&rig);
    want(0);
    expect_not_sent(rig.peers[0].control, PL_MSG_LEASE);
    assert_true(rig_live(&rig, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        rig_unit_test(test_recorded_before_told),
        rig_unit_test(test_two_units_each_and_no_unit_twice),
        rig_unit_test(test_progress_and_the_end_of_a_unit),
        rig_unit_test(test_units_are_finished_in_order),
        rig_unit_test(test_units_of_the_dead_come_back),
        rig_unit_test(test_join_says_what_is_held),
        rig_unit_test(test_private_data_takes_no_units),
        rig_unit_test(test_the_learner_leaves_before_it_is_told),
        rig_unit_test(test_a_unit_finished_while_its_lease_is_recorded),
        rig_unit_test(test_coming_back_is_recorded),
        rig_unit_test(test_join_with_two_units_finishes_neither),
        rig_unit_test(test_the_newest_records_stand),
        rig_unit_test(test_a_crash_after_units_came_back),
        rig_unit_test(test_a_snapshot_keeps_the_order_of_units),
        rig_unit_test(test_units_of_one_that_never_returns),
        rig_unit_test(test_crash_before_the_record),
        rig_unit_test(test_crash_between_record_and_telling),
        rig_unit_test(test_cursors_come_back_with_their_learner),
        rig_unit_test(test_finished_units_stay_finished),
        rig_unit_test(test_a_full_table_serves_later),
        rig_unit_test(test_no_new_units_at_the_end),
    };
    return rig_run_tests(tests);
}
