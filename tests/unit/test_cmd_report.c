/* What a run has counted over restarts and shards, on the page of `pelago run` and in its report. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "cmd/run_report.h"
#include "os/clock.h"
#include "tempdir.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static struct pl_run run;

static void begin(uint32_t shards)
{
    memset(&run, 0, sizeof run);
    run.alloc = pl_alloc_system();
    run.begin_ns = pl_clock_ns();
    run.settings.shards = shards;
}

/* A status as the watcher prints it. */
static void hear(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void hear(const char *format, ...)
{
    char text[2048];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    assert_in_range(n, 1, sizeof text - 1);
    pl_run_take_view(&run, (struct pl_bytes){text, (size_t)n});
    assert_true(run.known);
}

static void hear_life(unsigned epoch, double uptime_s, unsigned bytes, unsigned lost)
{
    hear("{\"phase\": \"running\", \"shards\": 1, \"epoch\": %u, \"uptime_s\": %f, \"bytes_up\": %u, "
         "\"bytes_down\": %u, \"lost\": %u, \"joins\": %u, \"known\": 4, \"refused\": %u}",
         epoch, uptime_s, bytes, 2 * bytes, lost, 4 + lost, 10 * lost);
}

static void assert_total(uint64_t bytes, uint64_t lost)
{
    assert_int_equal(run.view.bytes_up, bytes);
    assert_int_equal(run.view.bytes_down, 2 * bytes);
    assert_int_equal(run.view.lost, lost);
    assert_int_equal(run.view.rejoined, lost);
    assert_int_equal(run.view.refused, 10 * lost);
}

static void what_was_counted_before_a_restart_stays(void **state)
{
    (void)state;
    begin(1);
    hear_life(1, 5, 1000, 1);
    hear_life(1, 6, 3000, 2);
    assert_total(3000, 2);
    hear_life(2, 1, 200, 0);
    hear_life(2, 2, 500, 1);
    assert_total(3500, 3);
    hear_life(3, 9, 900000, 0); /* it came further before it was seen than the one before had lived */
    assert_total(903500, 3);
}

/* A baseline says no epoch. */
static void a_younger_process_is_another_one(void **state)
{
    (void)state;
    begin(1);
    hear_life(0, 50, 1000, 1);
    hear_life(0, 1, 1200, 0);
    assert_total(2200, 1);
    hear_life(0, 2, 100, 0);
    assert_total(2300, 1);
}

static void hear_shards(unsigned epoch, unsigned bytes, unsigned merged)
{
    hear("{\"phase\": \"running\", \"shards\": 2, \"epoch\": 1, \"bytes_up\": 100, \"tokens\": 1000, "
         "\"merged_tokens\": 480, \"goodput\": 0.48, \"contributors\": 90, \"contributors_alive\": 100, "
         "\"others\": [{\"shard\": 1, \"epoch\": %u, \"bytes_up\": %u, \"merged_tokens\": %u, "
         "\"contributors\": 50, \"contributors_alive\": 100}]}",
         epoch, bytes, merged);
}

static void every_shard_has_its_part(void **state)
{
    (void)state;
    begin(2);
    hear("{\"phase\": \"running\", \"shards\": 2, \"epoch\": 1, \"tokens\": 1000, \"merged_tokens\": 480, "
         "\"goodput\": 0.48}");
    assert_true(run.view.goodput < 0); /* of one part nothing is known of the whole */
    hear_shards(1, 70, 470);
    assert_true(run.view.goodput > 0.9499 && run.view.goodput < 0.9501);
    assert_int_equal(run.view.merged_tokens, 950);
    assert_int_equal(run.view.bytes_up, 170);
    hear_shards(2, 5, 500); /* it was killed alone */
    assert_int_equal(run.view.bytes_up, 175);
    hear("{\"phase\": \"running\", \"shards\": 2, \"epoch\": 1, \"bytes_up\": 100, \"tokens\": 1000, "
         "\"merged_tokens\": 480}"); /* it is away */
    assert_int_equal(run.view.bytes_up, 175);
    assert_int_equal(run.view.merged_tokens, 980);
    assert_true(run.view.goodput > 0.97);
}

/* At the end each shard's last word is in its folder, and home's has nothing of the others. */
static void the_last_words_of_all_shards_count(void **state)
{
    static const char home[] = "{\"phase\": \"done\", \"shards\": 2, \"epoch\": 1, \"bytes_up\": 150, "
                               "\"tokens\": 1000, \"total_tokens\": 1000, \"merged_tokens\": 500}";
    static const char other[] = "{\"phase\": \"done\", \"shard\": 1, \"shards\": 2, \"epoch\": 1, "
                                "\"bytes_up\": 90, \"tokens\": 0, \"merged_tokens\": 500}";
    static struct pl_run_process syncers[2];
    struct tempdir t;
    (void)state;
    tempdir_init(&t);
    assert_int_equal(mkdir(tempdir_path(&t, "one"), 0700), 0);
    tempdir_put(&t, "status.json", home, sizeof home - 1);
    tempdir_put(&t, "one/status.json", other, sizeof other - 1);
    begin(2);
    run.syncers = syncers;
    (void)snprintf(run.home, sizeof run.home, "%s", tempdir_path(&t, "."));
    (void)snprintf(syncers[1].folder, sizeof syncers[1].folder, "%s", tempdir_path(&t, "one"));
    hear_shards(1, 70, 470);
    pl_run_take_last_status(&run);
    pl_run_take_last_status(&run); /* as often as anybody wants */
    assert_int_equal(run.view.bytes_up, 240);
    assert_int_equal(run.view.merged_tokens, 1000);
    assert_true(run.view.goodput > 0.999);
    tempdir_release(&t);
}

static void totals_survive_pelago_run(void **state)
{
    static struct pl_run_totals before;
    (void)state;
    begin(1);
    hear_life(1, 5, 1000, 1);
    hear_life(2, 1, 200, 1);
    json_t *kept = pl_totals_json(&run.totals);
    pl_totals_recall(&before, kept);
    assert_false(before.partial);
    begin(1);
    run.totals = before;
    hear_life(2, 2, 300, 1); /* the same process, as after a look at a complete run */
    assert_total(1300, 2);
    hear_life(3, 1, 50, 0);
    assert_total(1350, 2);
    json_decref(kept);
    pl_totals_recall(&before, NULL);
    assert_true(before.partial);
    json_t *odd = json_pack("[i, {s:i}, {s:i, s:s}]", 7, "shard", 9999, "shard", -1, "now", "x");
    assert_non_null(odd);
    pl_totals_recall(&before, odd);
    begin(1);
    run.totals = before;
    hear_life(1, 1, 5, 0);
    assert_total(5, 0);
    json_decref(odd);
}

/* ---- the report ---- */

static struct pl_buf text;

static const char *report(enum pelago_status (*print)(const struct pl_run *r, const struct pl_run_result *e,
                                                      struct pl_buf *out))
{
    const struct pl_run_result result = {.seconds = 61};
    text.len = 0;
    assert_int_equal(print(&run, &result, &text), PELAGO_OK);
    assert_int_equal(pl_buf_append(&text, "", 1), PELAGO_OK);
    return (const char *)text.data;
}

static void a_report_is_of_the_whole_run(void **state)
{
    static struct pl_run_process syncers[2];
    (void)state;
    begin(2);
    pl_buf_init(&text, &run.alloc, 1 << 16);
    (void)snprintf(syncers[0].child.name, sizeof syncers[0].child.name, "syncer");
    (void)snprintf(syncers[1].child.name, sizeof syncers[1].child.name, "syncer-1");
    syncers[0].child.starts = 3;
    syncers[0].child.kills = 2;
    run.syncers = syncers;
    run.settings.algorithm = PL_ALGORITHM_DECOUPLED;
    run.args.resume = true;
    hear_shards(1, 70000000, 470);
    hear_shards(2, 5000000, 480);
    run.view.merged_alive = 1; /* of the last rounds */
    const char *said = report(pl_report_md);
    assert_non_null(strstr(said, "| bytes up, down | 75.0 MB, "));
    assert_non_null(strstr(said, "| goodput | 96.0% |\n"));
    assert_non_null(strstr(said, "| merged / alive, mean of the run | 63.3% |\n")); /* 190 of 300 */
    assert_non_null(strstr(said, "| syncer | 3 | 2 |\n| syncer-1 | 0 | 0 |\n"));
    assert_null(strstr(said, "so are bytes"));
    said = report(pl_report_json);
    assert_non_null(strstr(said, "\"bytes_up\": 75000100"));
    assert_non_null(strstr(said, "\"merged_alive\": 0.633333"));
    assert_non_null(strstr(said, "\"kills\": 2"));
    run.totals.partial = true;
    assert_non_null(strstr(report(pl_report_md), "so are bytes, "));
    pl_buf_release(&text);
}

/* All are merged always: nothing is counted. */
static void a_baseline_has_its_syncers_word(void **state)
{
    (void)state;
    begin(1);
    pl_buf_init(&text, &run.alloc, 1 << 16);
    hear("{\"phase\": \"done\", \"shards\": 1, \"tokens\": 1000, \"merged_tokens\": 1000, \"merged_alive\": "
         "1}");
    static struct pl_run_process syncer;
    run.syncers = &syncer;
    assert_non_null(strstr(report(pl_report_md), "| merged / alive, mean of the run | 100.0% |\n"));
    pl_buf_release(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_counted_before_a_restart_stays),
        cmocka_unit_test(a_younger_process_is_another_one),
        cmocka_unit_test(every_shard_has_its_part),
        cmocka_unit_test(the_last_words_of_all_shards_count),
        cmocka_unit_test(totals_survive_pelago_run),
        cmocka_unit_test(a_report_is_of_the_whole_run),
        cmocka_unit_test(a_baseline_has_its_syncers_word),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
