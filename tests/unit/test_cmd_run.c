/* The parts of `pelago run` that need no cluster: lists, children, the history, run.json. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "cmd/cluster_view.h"
#include "cmd/run_args.h"
#include "cmd/run_children.h"
#include "cmd/run_file.h"
#include "cmd/run_history.h"
#include "os/clock.h"
#include "tempdir.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- lists ---- */

static void lists_have_one_value_or_many(void **state)
{
    char item[PL_RUN_ITEM_MAX];
    (void)state;
    assert_int_equal(pl_list_count("1"), 1);
    assert_int_equal(pl_list_count("1,0.5,1"), 3);
    assert_true(pl_list_item("100ms", 7, item));
    assert_string_equal(item, "100ms");
    assert_true(pl_list_item("1,0.5,2", 1, item));
    assert_string_equal(item, "0.5");
    assert_true(pl_list_item("1,0.5,2", 2, item));
    assert_string_equal(item, "2");
    assert_false(pl_list_item("1,0.5,2", 3, item));
    assert_false(pl_list_item("1,,2", 1, item));
    assert_false(pl_list_item("", 0, item));
    assert_false(pl_list_item("a value that is longer than any number is", 0, item));
}

/* ---- children ---- */

enum { LEFT_0 = 0, LEFT_1 = 1 << 8, LEFT_2 = 2 << 8, KILLED = SIGKILL, CRASHED = SIGSEGV }; /* of waitpid */

static void ended(struct pl_child *c, int status, uint64_t lived_ns)
{
    static uint64_t now = 1000 * PL_SEC;
    c->state = PL_CHILD_RUNNING;
    c->started_ns = now;
    now += lived_ns;
    pl_child_ended(c, status, now);
    c->again_ns -= now; /* how long it waits */
}

static void the_killed_return_at_once_however_often(void **state)
{
    struct pl_child c = {.name = "learner-1"};
    (void)state;
    for (unsigned i = 1; i <= 1000; i++) {
        ended(&c, KILLED, PL_MS);
        assert_int_equal(c.state, PL_CHILD_WAITING);
        assert_int_equal(c.again_ns, 0);
        assert_int_equal(c.kills, i);
    }
}

static void who_fails_at_once_again_and_again_is_given_up(void **state)
{
    struct pl_child c = {.name = "learner-1"};
    uint64_t last = 0;
    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        ended(&c, i % 2 == 0 ? LEFT_1 : CRASHED, PL_SEC);
        assert_int_equal(c.state, PL_CHILD_WAITING);
        assert_true(c.again_ns > last && c.again_ns <= 2 * PL_SEC);
        last = c.again_ns;
    }
    ended(&c, LEFT_1, PL_SEC);
    assert_int_equal(c.state, PL_CHILD_FAILED);
}

static void a_long_life_forgives(void **state)
{
    struct pl_child c = {.name = "learner-1"};
    (void)state;
    for (unsigned i = 0; i < 20; i++) {
        ended(&c, LEFT_1, i % 4 == 3 ? 60 * PL_SEC : PL_SEC);
        assert_int_equal(c.state, PL_CHILD_WAITING);
    }
}

static void good_ends_and_wrong_questions_are_final(void **state)
{
    struct pl_child c = {.name = "learner-1"};
    (void)state;
    ended(&c, LEFT_0, PL_SEC);
    assert_int_equal(c.state, PL_CHILD_DONE);
    ended(&c, LEFT_2, 60 * PL_SEC);
    assert_int_equal(c.state, PL_CHILD_FAILED);
    c.told = true;
    ended(&c, 128 + SIGTERM, PL_SEC);
    assert_int_equal(c.state, PL_CHILD_DONE);
}

static void wait_for_end(struct pl_child *c)
{
    while (!pl_child_reap(c, pl_clock_ns()))
        (void)usleep(1000);
}

/* A real process: its log, its last words, and that a group of its own keeps Ctrl-C away. */
static void a_child_has_a_log_and_last_words(void **state)
{
    static const char script[] = "echo 2026 a line; echo 'pelago learner: no luck.' >&2; echo more; exit 1";
    struct pl_child c = {.name = "sh", .out = -1};
    struct pl_error err;
    struct tempdir dir;
    char said[100];
    (void)state;
    tempdir_init(&dir);
    (void)snprintf(c.log, sizeof c.log, "%s", tempdir_path(&dir, "log"));
    assert_false(pl_child_last_words(&c, said, sizeof said));
    assert_true(pl_child_word(&c, "pelago") && pl_child_word(&c, "-c") && pl_child_word(&c, script));
    assert_int_equal(pl_child_start(&c, "/bin/sh", pl_clock_ns(), &err), PELAGO_OK);
    wait_for_end(&c);
    assert_int_equal(c.state, PL_CHILD_WAITING);
    assert_string_equal(pl_child_why(c.status).at, "left with 1");
    assert_true(pl_child_last_words(&c, said, sizeof said));
    assert_string_equal(said, "pelago learner: no luck.");
    tempdir_release(&dir);
}

static void a_child_is_told_and_leaves(void **state)
{
    struct pl_child c = {.name = "sleep", .out = -1, .log = "/dev/null"};
    struct pl_error err;
    (void)state;
    assert_true(pl_child_word(&c, "pelago") && pl_child_word(&c, "1000"));
    assert_int_equal(pl_child_start(&c, "/bin/sleep", pl_clock_ns(), &err), PELAGO_OK);
    assert_false(pl_child_reap(&c, pl_clock_ns()));
    pl_child_tell(&c, SIGTERM);
    wait_for_end(&c);
    assert_int_equal(c.state, PL_CHILD_DONE);
    assert_string_equal(pl_child_why(c.status).at, "was killed (signal 15)");
    assert_int_equal(pl_child_start(&c, "/nonexistent", pl_clock_ns(), &err), PELAGO_OK);
    wait_for_end(&c);
    assert_int_equal(WEXITSTATUS(c.status), 127);
}

static void words_have_a_bound(void **state)
{
    struct pl_child c = {.name = "x"};
    (void)state;
    for (unsigned i = 0; i + 1 < PL_CHILD_WORDS_MAX; i++)
        assert_true(pl_child_word(&c, "w"));
    assert_false(pl_child_word(&c, "w"));
    assert_null(c.argv[PL_CHILD_WORDS_MAX - 1]);
}

/* ---- the history ---- */

static struct pl_run_history history;

static void the_curve_keeps_its_size_and_its_ends(void **state)
{
    (void)state;
    memset(&history, 0, sizeof history);
    for (unsigned i = 0; i <= 100000; i++) {
        const struct pl_curve_point p = {
            .seconds = i, .tokens = UINT64_C(1000) * i, .loss = 1, .alive = 4, .training = 4};
        pl_history_look(&history, &p);
    }
    assert_in_range(history.points, PL_CURVE_POINTS / 2 - 1, PL_CURVE_POINTS);
    assert_true(history.curve[0].seconds < 1e-9);
    assert_true(history.curve[history.points - 1].seconds > 99000);
    for (uint32_t i = 1; i < history.points; i++)
        assert_true(history.curve[i].seconds > history.curve[i - 1].seconds);
    assert_true(history.rate > 999 && history.rate < 1001);
}

static void a_syncer_that_knows_less_does_not_spoil_the_rate(void **state)
{
    (void)state;
    memset(&history, 0, sizeof history);
    for (unsigned i = 1; i <= 30; i++) {
        uint64_t tokens = UINT64_C(500) * i - (i == 15 ? 3000 : 0);
        pl_history_look(&history, &(struct pl_curve_point){.seconds = i, .tokens = tokens, .training = 1});
        assert_true(history.rate >= 0 && history.rate < 501);
    }
    assert_true(history.rate > 499 && history.rate < 501);
}

/* A minute without a syncer; what was trained in it comes within seconds of its return. */
static void an_outage_is_in_no_rate(void **state)
{
    (void)state;
    memset(&history, 0, sizeof history);
    for (unsigned i = 1; i <= 120; i++) {
        struct pl_curve_point p = {
            .seconds = i, .epoch = i < 80 ? 1 : 2, .tokens = UINT64_C(500) * i, .training = 1};
        if (i >= 20 && i < 80)
            continue;
        if (i >= 80 && i < 83)
            p.tokens = 500 * 20;
        pl_history_look(&history, &p);
        assert_true(history.rate >= 0 && history.rate < 501);
        assert_true(i < 80 || i >= 90 || history.rate < 1e-9); /* nobody knows */
    }
    assert_true(history.rate > 499);
}

/* Half a minute of start; then one learner, and after eight seconds all five. Whoever counts that time says that the run
 * takes many times as long as it does. */
static void a_start_is_in_no_rate(void **state)
{
    uint64_t tokens = 0;
    (void)state;
    memset(&history, 0, sizeof history);
    for (unsigned i = 1; i <= 60; i++) {
        uint32_t training = i < 30 ? 0 : i < 34 ? 1 : i < 38 ? 2 : 5;
        tokens += UINT64_C(100) * training;
        const struct pl_curve_point p = {
            .seconds = i, .epoch = 1, .tokens = tokens, .alive = 5, .training = training};
        pl_history_look(&history, &p);
        assert_true(history.rate < 1e-9 || (history.rate > 499 && history.rate < 501));
    }
    assert_true(history.rate > 499);
}

/* A run that goes on has tokens before anybody trains; and where learners never stop coming, a rate comes all the same. */
static void a_rate_comes_once_somebody_trains(void **state)
{
    (void)state;
    memset(&history, 0, sizeof history);
    for (unsigned i = 1; i <= 20; i++)
        pl_history_look(&history, &(struct pl_curve_point){.seconds = i, .epoch = 3, .tokens = 5000});
    assert_true(history.rate < 1e-9);
    for (unsigned i = 21; i <= 60; i++)
        pl_history_look(&history, &(struct pl_curve_point){.seconds = i,
                                                           .epoch = 3,
                                                           .tokens = 5000 + UINT64_C(100) * (i - 20),
                                                           .training = i - 20});
    assert_true(history.rate > 99 && history.rate < 101);
}

/* ---- run.json ---- */

static void complete(const struct tempdir *t, const char *run_json, struct pl_buf *status,
                     struct pl_cluster_view *view)
{
    static const char said[] =
        "{\"run\": \"00000000000000aa\", \"phase\": \"running\", \"tokens\": 500, \"total_tokens\": 1000,"
        " \"learners\": [{\"identity\": 70}, {\"identity\": 8}]}";
    status->len = 0;
    assert_int_equal(pl_buf_append(status, said, sizeof said - 1), PELAGO_OK);
    tempdir_put(t, "run.json", run_json, strlen(run_json));
    pl_run_file_complete(tempdir_path(t, "syncer"), status);
    assert_int_equal(pl_cluster_view_parse(view, (struct pl_bytes){status->data, status->len}, NULL),
                     PELAGO_OK);
    assert_int_equal(view->learner_count, 2);
    assert_int_equal(view->learners[0].identity, 70);
}

static void learners_have_the_names_of_their_processes(void **state)
{
    (void)state;
    static struct pl_cluster_view view;
    struct pl_alloc alloc = pl_alloc_system();
    struct pl_buf status;
    struct tempdir t;
    tempdir_init(&t);
    pl_buf_init(&status, &alloc, 1 << 16);
    assert_int_equal(mkdir(tempdir_path(&t, "syncer"), 0700), 0);
    complete(&t,
             "{\"run\": \"00000000000000aa\", \"learners\": [{\"name\": \"learner-1\", \"identity\": 70},"
             " {\"name\": \"learner-2\", \"identity\": 0}]}",
             &status, &view);
    assert_string_equal(view.learners[0].name, "learner-1");
    assert_string_equal(view.learners[1].name, ""); /* one from elsewhere */
    assert_int_equal(view.expected, 2);
    complete(&t,
             "{\"run\": \"00000000000000bb\", \"learners\": [{\"name\": \"learner-1\", \"identity\": 70}]}",
             &status, &view);
    assert_string_equal(view.learners[0].name, ""); /* another run */
    assert_true(view.time_left_s < 0);
    complete(&t, "{\"run\": \"00000000000000aa\", \"ends_at\": 99000000000, \"learners\": []}", &status,
             &view);
    assert_true(view.time_left_s > 90000000000);
    complete(&t, "{\"run\": \"00000000000000aa\", \"ends_at\": 99, \"learners\": []}", &status, &view);
    assert_true(view.time_left_s >= 0 && view.time_left_s < 1e-9); /* over */
    complete(&t, "{\"run\": 5, \"learners\": 7", &status, &view);
    assert_string_equal(view.learners[0].name, ""); /* half written */
    pl_buf_release(&status);
    tempdir_release(&t);
}

static void the_newest_events_are_kept(void **state)
{
    char text[32];
    (void)state;
    memset(&history, 0, sizeof history);
    assert_null(pl_history_at(&history, 0));
    for (unsigned i = 0; i < PL_RUN_EVENTS + 10; i++)
        (void)pl_history_event(&history, i, "event %u", i);
    assert_string_equal(pl_history_at(&history, 0)->text, "event 10");
    (void)snprintf(text, sizeof text, "event %u", PL_RUN_EVENTS + 9);
    assert_string_equal(pl_history_at(&history, PL_RUN_EVENTS - 1)->text, text);
    assert_null(pl_history_at(&history, PL_RUN_EVENTS));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_have_one_value_or_many),
        cmocka_unit_test(the_killed_return_at_once_however_often),
        cmocka_unit_test(who_fails_at_once_again_and_again_is_given_up),
        cmocka_unit_test(a_long_life_forgives),
        cmocka_unit_test(good_ends_and_wrong_questions_are_final),
        cmocka_unit_test(a_child_has_a_log_and_last_words),
        cmocka_unit_test(a_child_is_told_and_leaves),
        cmocka_unit_test(words_have_a_bound),
        cmocka_unit_test(the_curve_keeps_its_size_and_its_ends),
        cmocka_unit_test(a_syncer_that_knows_less_does_not_spoil_the_rate),
        cmocka_unit_test(an_outage_is_in_no_rate),
        cmocka_unit_test(a_start_is_in_no_rate),
        cmocka_unit_test(a_rate_comes_once_somebody_trains),
        cmocka_unit_test(learners_have_the_names_of_their_processes),
        cmocka_unit_test(the_newest_events_are_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
