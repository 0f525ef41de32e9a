/* What a person sees of a run, in `pelago run`, top, status, train, a report and a learner's log: pages, lines, the screen. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/limits.h"
#include "cmd/cluster_view.h"
#include "cmd/learner_line.h"
#include "cmd/run_report.h"
#include "cmd/screen.h"
#include "cmd/train_view.h"
#include "os/clock.h"
#include "tempdir.h"

#include <pty.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static struct pl_cluster_view view;
static struct pl_view_page page;

static const char status[] = "{\"run\": \"00ff\", \"model\": \"1m\", \"algorithm\": \"decoupled\", "
                             "\"phase\": \"running\", \"tokens\": 2500000, "
                             "\"total_tokens\": 10000000, \"loss\": 2.5, \"tokens_per_s\": 1000, "
                             "\"goodput\": 0.97, \"merged_alive\": 0.5, "
                             "\"known\": 3, \"alive\": 2, \"connected\": 2, \"bytes_up\": 12345678, "
                             "\"bytes_down\": 1000, \"lost\": 4, "
                             "\"uptime_s\": 61, \"something\": [1, {}], \"learners\": ["
                             "{\"identity\": 7, \"alive\": true, \"connected\": true, \"steps\": 10, "
                             "\"loss\": 2.25, \"tokens_per_s\": 400},"
                             "{\"identity\": 8, \"alive\": true, \"connected\": true, \"steps\": 0},"
                             "{\"identity\": 9, \"alive\": false, \"connected\": false, \"steps\": 5}]}";

static void parse_status(const char *text)
{
    struct pl_error err;
    assert_int_equal(pl_cluster_view_parse(&view, (struct pl_bytes){text, strlen(text)}, &err), PELAGO_OK);
}

static void a_status_is_read_and_shown(void **state)
{
    (void)state;
    parse_status(status);
    assert_int_equal(view.learner_count, 3);
    assert_int_equal(view.alive, 2);
    page.count = 0;
    pl_cluster_view_page(&view, 0, false, 50, &page);
    assert_non_null(strstr(page.line[0], "run 00ff  running  up 1m 01s  decoupled  model 1m"));
    assert_non_null(strstr(page.line[1], "2.50M of 10.0M  [####............]"));
    assert_non_null(strstr(page.line[1], "25%  1000 tokens/s  ETA 2h 05m"));
    assert_non_null(strstr(page.line[2], "2.5000   goodput 97.0%   merged/alive 50.0%   alive 2 of 3"));
    assert_non_null(strstr(page.line[3], "up 12.3 MB"));
    assert_int_equal(page.count, 9);
    assert_non_null(strstr(page.line[6], "training"));
    assert_non_null(strstr(page.line[7], "joining"));
    assert_non_null(strstr(page.line[8], "away"));
    page.count = 0;
    pl_cluster_view_line(&view, 2000, &page);
    assert_non_null(strstr(page.line[0], "2000 tokens/s  alive 2 of 3"));
    assert_non_null(strstr(page.line[0], "ETA 1h 02m"));
}

static void assert_eta(double rate, double time_left_s, const char *expected)
{
    view.time_left_s = time_left_s;
    page.count = 0;
    pl_cluster_view_line(&view, rate, &page);
    assert_non_null(strstr(page.line[0], expected));
}

static void the_end_is_of_tokens_or_of_time(void **state)
{
    (void)state;
    parse_status(status);
    assert_true(view.time_left_s < 0);
    assert_eta(2000, 61, "ETA 1m 01s");
    assert_eta(2000, 0, "ETA 0s");
    assert_eta(2000, 10000, "ETA 1h 02m");
    view.tokens_per_s = 0;
    assert_eta(0, 61, "ETA 1m 01s");
    assert_eta(0, -1, "ETA -");
    assert_eta(0, -1, "  - tokens/s  ");
    view.tokens_per_s =
        1000; /* of the time before learners trained: it is not asked where somebody watches */
    assert_eta(-1, -1, "- tokens/s  alive 2 of 3");
    assert_eta(-1, -1, "ETA -");
    assert_eta(-1, 61, "ETA 1m 01s");
}

/* A syncer that has just come back: it counts from its own start, and nobody has trained since. */
static void no_rate_is_shown_before_one_is_measured(void **state)
{
    (void)state;
    parse_status(
        "{\"phase\": \"running\", \"tokens\": 2500000, \"total_tokens\": 10000000, \"tokens_per_s\": 0, "
        "\"known\": 1, \"alive\": 1, \"learners\": [{\"identity\": 7, \"alive\": true, "
        "\"connected\": true, \"steps\": 10, \"tokens_per_s\": 0.0, \"bytes_up\": 1}]}");
    page.count = 0;
    pl_cluster_view_page(&view, 0, false, 50, &page);
    assert_non_null(strstr(page.line[1], "25%  - tokens/s  ETA -"));
    assert_non_null(strstr(page.line[6], " 7           training        -      10        -  "));
}

static void sentences_are_wrapped(void **state)
{
    static const char sentence[] =
        "no answer: nobody listens at 127.0.0.1:7441: is the syncer running, and is this "
        "its port?";
    (void)state;
    page.count = 0;
    pl_page_wrap(&page, sentence);
    assert_int_equal(page.count, 2);
    assert_string_equal(page.line[0],
                        "no answer: nobody listens at 127.0.0.1:7441: is the syncer running, and is this");
    assert_string_equal(page.line[1], "its port?");
    page.cols = 8;
    page.count = 0;
    pl_page_wrap(&page, "an end, abcdefghijklmno 1234567 is");
    static const char *const lines[] = {"an end,", "abcdefg", "hijklmn", "o", "1234567", "is"};
    assert_int_equal(page.count, 6);
    for (uint32_t i = 0; i < 6; i++)
        assert_string_equal(page.line[i], lines[i]);
    page.cols = 1;
    pl_page_wrap(&page, "ab");
    assert_int_equal(page.count, 8);
    page.cols = 1000;
    page.count = 0;
    for (int i = 0; i < 200; i++)
        pl_page_wrap(&page, sentence);
    assert_int_equal(page.count, PL_VIEW_LINES_MAX);
    page.cols = 0;
}

static void assert_widths(bool color)
{
    page.count = 0;
    pl_cluster_view_page(&view, 0, color, 50, &page);
    for (uint32_t i = 0; i < page.count; i++) {
        char whole[PL_VIEW_LINE_MAX], cut[PL_VIEW_LINE_MAX];
        memcpy(whole, page.line[i], sizeof whole);
        memcpy(cut, page.line[i], sizeof cut);
        pl_screen_cut(cut, 79);
        assert_string_equal(cut, whole);
    }
}

static void learners_come_by_the_numbers_in_their_names(void **state)
{
    static const char *const sorted[] = {"learner-1", "learner-2", "learner-10", "", ""};
    static const uint64_t identities[] = {5, 1, 2, 9, 4};
    (void)state;
    parse_status("{\"learners\": [{\"identity\": 9}, {\"identity\": 1, \"name\": \"learner-2\"},"
                 " {\"identity\": 2, \"name\": \"learner-10\"}, {\"identity\": 4},"
                 " {\"identity\": 5, \"name\": \"learner-1\"}]}");
    assert_int_equal(view.learner_count, 5);
    for (uint32_t i = 0; i < 5; i++) {
        assert_string_equal(view.learners[i].name, sorted[i]);
        assert_int_equal(view.learners[i].identity, identities[i]);
    }
}

/* The widest figures that a run of some months comes to. */
static void a_page_fits_80_columns(void **state)
{
    struct pl_view_learner *l = &view.learners[0];
    (void)state;
    parse_status(status);
    (void)snprintf(view.run, sizeof view.run, "0123456789abcdef");
    (void)snprintf(view.model, sizeof view.model, "tales-14m");
    view.tokens = 99400000;
    view.total_tokens = 999000000000;
    view.time_left_s = 400 * 86400.0;
    view.uptime_s = 100 * 86400.0;
    view.tokens_per_s = 99900;
    view.loss = 99.12345;
    view.goodput = view.merged_alive = 1;
    view.known = view.alive = 256;
    view.bytes_up = view.bytes_down = UINT64_C(998999000000);
    view.lost = view.rejoined = 99999;
    view.refused = 999999;
    *l = (struct pl_view_learner){.alive = true,
                                  .connected = true,
                                  .loss = 98.76543,
                                  .tokens_per_s = 99.9e6,
                                  .merged_share = 1,
                                  .steps = 9999999,
                                  .bytes_up = UINT64_C(999400000000),
                                  .bytes_down = UINT64_C(99900000),
                                  .name = "learner-256",
                                  .note = "returning",
                                  .rejoined = 12345678};
    assert_widths(false);
    assert_non_null(strstr(page.line[1], "ETA 115d"));
    assert_non_null(strstr(page.line[6], " 12345678"));
    assert_widths(true);
    (void)snprintf(view.phase, sizeof view.phase, "done");
    assert_widths(true);
}

static void a_page_without_an_answer_claims_nothing(void **state)
{
    (void)state;
    parse_status(status);
    view.silent_s = 65;
    view.time_left_s = 1000;
    page.count = 0;
    pl_cluster_view_page(&view, 2000, false, 50, &page);
    assert_string_equal(page.line[0], "pelago  run 00ff  no answer for 1m 05s  model 1m");
    assert_non_null(strstr(page.line[1], "25%  - tokens/s  ETA -"));
    assert_string_equal(page.line[6],
                        " 7           -          2.2500      10        -  0.0 kB  0.0 kB      -        0");
    for (uint32_t i = 0; i < page.count; i++)
        assert_null(strstr(page.line[i], "training"));
    page.count = 0;
    pl_cluster_view_page(&view, 2000, true, 50, &page);
    assert_non_null(strstr(page.line[6], " -          2.2500")); /* in no colour */
    page.count = 0;
    pl_cluster_view_line(&view, 2000, &page);
    assert_non_null(strstr(page.line[0], "  - tokens/s  "));
    assert_non_null(strstr(page.line[0], "  ETA -"));
    (void)snprintf(view.run, sizeof view.run, "0123456789abcdef");
    (void)snprintf(view.model, sizeof view.model, "tales-14m");
    view.silent_s = 100 * 86400.0;
    assert_widths(false);
}

/* Status has nothing but the syncer's word, `pelago run` knows the processes: both say the same of an end. */
static void a_complete_run_has_no_eta_and_nobody_is_away(void **state)
{
    (void)state;
    parse_status(status);
    (void)snprintf(view.phase, sizeof view.phase, "done");
    page.count = 0;
    pl_cluster_view_page(&view, 0, false, 50, &page);
    assert_non_null(strstr(page.line[1], "25%  the time was over"));
    view.tokens = view.total_tokens;
    page.count = 0;
    pl_cluster_view_page(&view, 0, false, 50, &page);
    assert_non_null(strstr(page.line[1], "100%  the run is complete"));
    assert_null(strstr(page.line[1], "ETA"));
    for (uint32_t i = 6; i < 9; i++)
        assert_non_null(strstr(page.line[i], " done "));
}

static void what_a_terminal_would_obey_is_not_shown(void **state)
{
    (void)state;
    parse_status("{\"model\": \"\\u001b[2Jx\", \"loss\": -1e300, \"tokens\": -5, \"alive\": 1e300, "
                 "\"learners\": [1, {}]}");
    assert_int_equal(view.tokens, 0);
    assert_int_equal(view.alive, 0);
    page.count = 0;
    pl_cluster_view_page(&view, 0, false, 50, &page);
    for (uint32_t i = 0; i < page.count; i++)
        assert_null(strchr(page.line[i], '\x1b'));
}

static void no_status_is_refused(void **state)
{
    static const char *const wrong[] = {"", "[]", "{", "{} {}", "\xff"};
    struct pl_error err;
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_int_equal(pl_cluster_view_parse(&view, (struct pl_bytes){wrong[i], strlen(wrong[i])}, &err),
                         PELAGO_CORRUPT);
}

static void a_small_terminal_shows_fewer_learners(void **state)
{
    (void)state;
    parse_status(status);
    page.count = 0;
    pl_cluster_view_page(&view, 0, false, 10, &page);
    assert_true(page.count <= 10);
    page.count = 0;
    pl_cluster_view_page(&view, 0, false, 9, &page);
    assert_int_equal(page.count, 9); /* all of them, to the last line */
    assert_null(strstr(page.line[8], "more"));
    page.count = 0;
    pl_cluster_view_page(&view, 0, false, 8, &page);
    assert_int_equal(page.count, 8);
    assert_non_null(strstr(page.line[7], "... and 2 more"));
}

static void a_wide_terminal_has_a_long_bar(void **state)
{
    (void)state;
    parse_status(status);
    page.count = 0;
    page.cols = 120;
    pl_cluster_view_page(&view, 0, false, 50, &page);
    assert_non_null(strstr(page.line[1], " [##############..........................................]"));
    page.count = 0;
    page.cols = 1000;
    pl_cluster_view_page(&view, 0, true, 50, &page);
    assert_true(strlen(page.line[1]) < 160);
    page.cols = 0;
}

static void the_first_page_says_who_is_expected(void **state)
{
    (void)state;
    parse_status("{\"phase\": \"running\", \"expected\": 22}");
    page.count = 0;
    pl_cluster_view_page(&view, 0, false, 50, &page);
    assert_non_null(strstr(page.line[2], "alive 0 of 22"));
    parse_status("{\"phase\": \"running\", \"expected\": 2, \"known\": 3, \"alive\": 3}");
    page.count = 0;
    pl_cluster_view_line(&view, 0, &page);
    assert_non_null(strstr(page.line[0], "alive 3 of 3"));
}

static void lines_are_cut_by_columns(void **state)
{
    static const struct {
        const char *line;
        uint32_t cols;
        const char *cut;
    } cases[] = {{"abcdef", 10, "abcdef"},
                 {"abcdef", 3, "abc"},
                 {"\x1b[1mab\x1b[0mcd", 3, "\x1b[1mab\x1b[0mc"},
                 {"ab\x1b[31mcd\x1b[0m", 2, "ab\x1b[31m\x1b[0m"},
                 {"\xc3\xa4\xc3\xb6\xc3\xbc", 2, "\xc3\xa4\xc3\xb6"},
                 {"ab\x1b[3", 5, "ab\x1b[3"},
                 {"\x1b", 5, "\x1b"},
                 {"", 5, ""}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char line[64];
        (void)snprintf(line, sizeof line, "%s", cases[i].line);
        pl_screen_cut(line, cases[i].cols);
        assert_string_equal(line, cases[i].cut);
    }
}

/* What is left out where there are 80 columns are the share of the peak and the memory. */
static void the_line_of_training_fits_80_columns(void **state)
{
    const struct pl_train_view v = {.total_tokens = 99900000,
                                    .total_steps = 123456,
                                    .rate = 12345,
                                    .flops_token = 1e6,
                                    .peak_flops = 1e12};
    const struct pl_progress p = {.step = 100000, .tokens = 10000000, .smooth = 10.5};
    char line[256];
    (void)state;
    pl_train_view_line(&v, &p, UINT32_MAX, line, sizeof line);
    assert_non_null(strstr(line, "12.3k tokens/s, 1% of peak  2h 01m left  "));
    assert_non_null(strstr(line, " GB"));
    pl_train_view_line(&v, &p, 80, line, sizeof line);
    assert_string_equal(line, "step 100000/123456  10.0M of 99.9M  loss 10.500  12.3k tokens/s  2h 01m left");
    assert_true(strlen(line) < 80);
}

/* What is said while stdout is a terminal that had this size and gets another. */
static size_t said_at_resize(const struct winsize *from, const struct winsize *to, char *out, size_t cap)
{
    struct pl_screen screen = {.live = true};
    int outer, inner, before = dup(STDOUT_FILENO);
    assert_int_equal(openpty(&outer, &inner, NULL, NULL, from), 0);
    (void)fflush(stdout);
    assert_true(dup2(inner, STDOUT_FILENO) >= 0);
    pl_screen_measure(&screen);
    screen.drawn = 5;
    (void)ioctl(inner, TIOCSWINSZ, to);
    pl_screen_measure(&screen);
    printf("%u", screen.drawn);
    (void)fflush(stdout);
    ssize_t n = read(outer, out, cap - 1);
    assert_true(dup2(before, STDOUT_FILENO) >= 0);
    (void)close(before);
    (void)close(inner);
    (void)close(outer);
    out[n > 0 ? n : 0] = '\0';
    return screen.drawn;
}

/* Clearing everything at once, a terminal would keep the old page among the lines to scroll back to. */
static void another_size_clears_the_page_and_leaves_no_copy(void **state)
{
    const struct winsize wide = {.ws_row = 24, .ws_col = 80}, narrow = {.ws_row = 20, .ws_col = 60};
    char said[128];
    (void)state;
    assert_int_equal(said_at_resize(&wide, &wide, said, sizeof said), 5);
    assert_string_equal(said, "5");
    assert_int_equal(said_at_resize(&wide, &narrow, said, sizeof said), 0);
    assert_string_equal(said, "\x1b[H\x1b[K\x1b[2H\x1b[J\x1b[H0");
}

static void a_report_has_units_and_the_settings_of_work(void **state)
{
    static struct pl_run run;
    struct pl_alloc alloc = pl_alloc_system();
    const struct pl_run_result result = {.seconds = 61};
    struct pl_buf text;
    (void)state;
    run.known = true;
    run.view.bytes_up = 45100000;
    run.view.bytes_down = 1200000000;
    run.args.time_ns = 90 * PL_SEC;
    run.settings.trainer.batch = 8;
    run.settings.trainer.seq = 256;
    run.settings.trainer.accumulate = 2;
    run.settings.trainer.seed = 7;
    run.settings.algorithm = PL_ALGORITHM_DECOUPLED;
    pl_buf_init(&text, &alloc, 1 << 16);
    assert_int_equal(pl_report_md(&run, &result, &text), PELAGO_OK);
    assert_int_equal(pl_buf_append(&text, "", 1), PELAGO_OK);
    assert_non_null(strstr((char *)text.data, "| bytes up, down | 45.1 MB, 1.2 GB |\n"));
    assert_non_null(strstr((char *)text.data, "| at most this long | 1m 30s |\n"));
    assert_non_null(strstr((char *)text.data, "| batch x sequence x accumulate | 8 x 256 x 2 |\n"));
    assert_non_null(strstr((char *)text.data, "| seed | 7 |\n"));
    pl_buf_release(&text);
}

/* What is drawn, by way of a file in place of stdout: the page that stays, or one while the run goes on. */
enum drawn { GOING_ON, STOPPED, COMPLETE };
static void draw_run(struct pl_run *run, enum drawn what, char *out, size_t cap)
{
    FILE *file = tmpfile();
    int before = dup(STDOUT_FILENO);
    assert_non_null(file);
    (void)fflush(stdout);
    assert_true(dup2(fileno(file), STDOUT_FILENO) >= 0);
    if (what == GOING_ON)
        pl_run_show(run, true);
    else
        pl_run_show_end(run, what == COMPLETE);
    (void)fflush(stdout);
    assert_true(dup2(before, STDOUT_FILENO) >= 0);
    (void)close(before);
    rewind(file);
    out[fread(out, 1, cap - 1, file)] = '\0';
    (void)fclose(file);
}

static void the_last_page_is_of_the_end(void **state)
{
    static const char ended[] = "{\"phase\": \"done\", \"tokens\": 1000000, \"total_tokens\": 1000000}";
    static struct pl_run run;
    char shown[8192];
    struct tempdir t;
    (void)state;
    tempdir_init(&t);
    tempdir_put(&t, "status.json", ended, sizeof ended - 1);
    run.alloc = pl_alloc_system();
    pl_buf_init(&run.status, &run.alloc, PL_RUN_STATUS_BYTES_MAX);
    (void)snprintf(run.home, sizeof run.home, "%s", tempdir_path(&t, "."));
    run.pipe_in = -1;
    run.begin_ns = pl_clock_ns() - 3600 * PL_SEC; /* the syncer's uptime is of its last start */
    run.screen.live = true;
    pl_run_take_view(&run, (struct pl_bytes){status, strlen(status)});
    draw_run(&run, GOING_ON, shown, sizeof shown);
    assert_non_null(strstr(shown, "  running  up 1h 00m  "));
    assert_null(strstr(shown, "answer"));
    run.heard_ns -= 10 * PL_SEC;
    draw_run(&run, GOING_ON, shown, sizeof shown);
    assert_non_null(strstr(shown, "  no answer for 10s  "));
    assert_non_null(strstr(shown, "(the syncer has not answered for 10s; learners train on)"));
    assert_null(strstr(shown, "running"));
    run.ending = true;
    draw_run(&run, STOPPED, shown, sizeof shown);
    assert_non_null(strstr(shown, "  stopped  up 1h 00m  "));
    assert_non_null(strstr(shown, "25%  stopped"));
    assert_null(strstr(shown, "ETA"));
    assert_null(strstr(shown, " 400 ")); /* nobody has a speed any more */
    assert_null(strstr(shown, "Ctrl-C"));
    draw_run(&run, COMPLETE, shown, sizeof shown);
    assert_non_null(strstr(shown, "  done  "));
    assert_non_null(strstr(shown, "loss    2.5000 "));
    assert_non_null(strstr(shown, "1.00M of 1.00M  [################] 100%  the run is complete"));
    assert_null(strstr(shown, "Ctrl-C"));
    assert_int_equal(run.screen.drawn, 0);
    pl_buf_release(&run.status);
    tempdir_release(&t);
}

static void a_learner_says_how_it_goes_on(void **state)
{
    const struct pl_learner_host_view before = {.tokens = 40000};
    const struct pl_learner_host_view now = {.tokens = 100000, .steps = 50, .loss = 2.5, .live = true};
    char line[128];
    (void)state;
    pl_learner_line(&now, &before, 60, 12, line, sizeof line);
    assert_string_equal(line, "learner.progress step=50 loss=2.5000 tokens_per_s=1000 merges=12 live=1");
    pl_learner_line(&before, &now, 0, PL_NONE64, line, sizeof line);
    assert_string_equal(line, "learner.progress step=0 loss=0.0000 tokens_per_s=0 live=0");
}

static void a_sample_is_made_harmless(void **state)
{
    struct pl_alloc alloc = pl_alloc_system();
    struct pl_buf text;
    static const char raw[] = "a\x1b[2J\xc3\xa4\xff\n\xc2\x9b";
    (void)state;
    pl_buf_init(&text, &alloc, 100);
    assert_int_equal(pl_buf_append(&text, raw, sizeof raw - 1), PELAGO_OK);
    pl_report_clean(&text);
    assert_int_equal(text.len, 10);
    assert_memory_equal(text.data, "a?[2J\xc3\xa4?\n?", 11 - 1);
    assert_int_equal(pl_buf_append(&text, "\n \n", 3), PELAGO_OK);
    pl_report_clean(&text);
    assert_int_equal(text.len, 10); /* it is quoted */
    text.len = 0;
    assert_int_equal(pl_buf_append(&text, "\n\n", 2), PELAGO_OK);
    pl_report_clean(&text);
    assert_int_equal(text.len, 0);
    pl_buf_release(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_status_is_read_and_shown),
        cmocka_unit_test(the_end_is_of_tokens_or_of_time),
        cmocka_unit_test(no_rate_is_shown_before_one_is_measured),
        cmocka_unit_test(sentences_are_wrapped),
        cmocka_unit_test(a_page_without_an_answer_claims_nothing),
        cmocka_unit_test(learners_come_by_the_numbers_in_their_names),
        cmocka_unit_test(a_page_fits_80_columns),
        cmocka_unit_test(a_complete_run_has_no_eta_and_nobody_is_away),
        cmocka_unit_test(what_a_terminal_would_obey_is_not_shown),
        cmocka_unit_test(no_status_is_refused),
        cmocka_unit_test(a_small_terminal_shows_fewer_learners),
        cmocka_unit_test(a_wide_terminal_has_a_long_bar),
        cmocka_unit_test(the_first_page_says_who_is_expected),
        cmocka_unit_test(lines_are_cut_by_columns),
        cmocka_unit_test(the_line_of_training_fits_80_columns),
        cmocka_unit_test(another_size_clears_the_page_and_leaves_no_copy),
        cmocka_unit_test(a_report_has_units_and_the_settings_of_work),
        cmocka_unit_test(the_last_page_is_of_the_end),
        cmocka_unit_test(a_learner_says_how_it_goes_on),
        cmocka_unit_test(a_sample_is_made_harmless),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
