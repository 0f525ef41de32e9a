/* What a shard says of its learners, where it is more than what they reported. */
#include "syncer_rig.h"

#include "os/clock.h"
#include "train/json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static struct syncer_rig rig;

/* All that it was asked for, and the other was asked for some of that. */
static bool one_has_pushed(struct syncer_rig *r)
{
    bool asked = false;
    for (uint32_t f = 0; f < r->run.layout.fragment_count; f++)
        asked = asked || r->islands[0].fragments[f].asked.round != 0;
    return asked && r->islands[1].pushes >= r->run.layout.fragment_count &&
           syncer_rig_count(r, "verify_ns") > 0;
}

static bool one_is_left(struct syncer_rig *r)
{
    return syncer_rig_count(r, "alive") == 1;
}

static bool both_are_merged(struct syncer_rig *r)
{
    return syncer_rig_count(r, "merges") > 0;
}

/* It is merged with the other, who is the only one alive: no more than all of those who were there. */
static void whoever_left_after_its_push_was_there(void **state)
{
    (void)state;
    syncer_rig_init(&rig, 2);
    rig.run.settings.quorum = 2;
    syncer_rig_create(&rig);
    syncer_rig_start(&rig);
    syncer_rig_island(&rig, 1)->mute = true;
    struct island *other = syncer_rig_island(&rig, 2);
    syncer_rig_until(&rig, one_has_pushed);
    island_stop(other);
    rig.island_count--; /* the test's own from here on */
    syncer_rig_until(&rig, one_is_left);
    island_speak(&rig.islands[0]);
    syncer_rig_until(&rig, both_are_merged);
    assert_true(syncer_rig_count(&rig, "contributors") >= 2);
    assert_int_equal(syncer_rig_count(&rig, "contributors_alive"), syncer_rig_count(&rig, "contributors"));
    assert_int_equal(syncer_rig_count(&rig, "lost"), 1); /* it did not say goodbye */
    island_release(other);
    syncer_rig_release(&rig);
}

static double speed;

static bool has_a_speed(struct syncer_rig *r)
{
    struct pl_buf text;
    json_t *root = NULL;
    pl_buf_init(&text, &r->run.alloc, 1 << 24);
    assert_int_equal(pl_syncer_host_status(r->host, true, &text), PELAGO_OK);
    assert_int_equal(pl_json_parse((struct pl_bytes){text.data, text.len}, "status", &root, NULL), PELAGO_OK);
    json_t *learner = json_array_get(json_object_get(root, "learners"), 0);
    speed = json_number_value(json_object_get(learner, "tokens_per_s"));
    json_decref(root);
    pl_buf_release(&text);
    return speed > 0;
}

/* Every second it is seen how far everybody has come, and nobody was faster than the time there was for its tokens. */
static void a_learner_has_a_speed_after_some_seconds(void **state)
{
    (void)state;
    syncer_rig_init(&rig, 1);
    syncer_rig_create(&rig);
    syncer_rig_start(&rig);
    uint64_t begin_ns = pl_clock_ns();
    syncer_rig_island(&rig, 1);
    syncer_rig_until(&rig, has_a_speed);
    double most = 2 * (double)rig.islands[0].tokens; /* in a second; one look may come early */
    assert_true(pl_clock_ns() - begin_ns > PL_SEC && speed <= most);
    syncer_rig_release(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whoever_left_after_its_push_was_there),
        cmocka_unit_test(a_learner_has_a_speed_after_some_seconds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
