/* cmd/cmd_top.c - pelago top: the state of a run as a live screen. q or Ctrl-C ends it; the terminal is left as it was. */
#include "cmd/cmd.h"

#include "base/num.h"
#include "cmd/cluster_home.h"
#include "cmd/cluster_shards.h"
#include "cmd/options.h"
#include "cmd/run_file.h"
#include "cmd/screen.h"
#include "cmd/text.h"
#include "os/clock.h"

#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/termios.h>
#include <unistd.h>

static const char command[] = "top";
static const uint64_t patience_ns = 2 * PL_SEC;

struct top {
    struct pl_operator who;
    struct pl_cluster_view view;
    struct pl_view_page page, words; /* words: what stands below the state */
    struct pl_screen screen;
    struct termios before;
    bool keys; /* the terminal gives keys one by one */
    bool known;
    uint64_t heard_ns; /* the last answer */
    bool over;         /* the syncer has left, with a last word */
    struct pl_error err;
};

static volatile sig_atomic_t caught;

static void on_signal(int number)
{
    caught = number;
}

/* ---- the terminal ---- */

static void open_terminal(struct top *t)
{
    struct sigaction action = {.sa_handler = on_signal};
    struct termios raw;
    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
    (void)sigaction(SIGHUP, &action, NULL);
    t->keys = isatty(STDIN_FILENO) == 1 && tcgetattr(STDIN_FILENO, &t->before) == 0;
    if (t->keys) {
        raw = t->before;
        raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        (void)tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    }
    printf("\x1b[?1049h\x1b[?25l\x1b[H");
}

static void close_terminal(struct top *t)
{
    printf("\x1b[?25h\x1b[?1049l");
    (void)fflush(stdout);
    if (t->keys)
        (void)tcsetattr(STDIN_FILENO, TCSANOW, &t->before);
}

/* True: the person wants to leave. */
static bool wait_for_key(struct top *t, int ms)
{
    struct pollfd fd = {.fd = t->keys ? STDIN_FILENO : -1, .events = POLLIN};
    char key;
    if (poll(&fd, 1, ms) <= 0 || (fd.revents & (POLLIN | POLLHUP)) == 0)
        return false;
    ssize_t n = read(STDIN_FILENO, &key, 1);
    if (n == 0)
        t->keys = false;
    return n == 1 && (key == 'q' || key == 'Q' || key == 3);
}

/* ---- the loop ---- */

/* What was known before stays where the answer is no status. */
static enum pelago_status take(struct top *t, struct pl_bytes answer)
{
    static struct pl_cluster_view fresh;
    PL_TRY(pl_cluster_view_parse(&fresh, answer, &t->err));
    t->view = fresh;
    t->known = true;
    t->heard_ns = pl_clock_ns();
    return PELAGO_OK;
}

static enum pelago_status look(struct top *t)
{
    struct pl_alloc alloc = pl_alloc_system();
    const struct pl_question q = {.what = PL_ASK_STATUS};
    struct pl_buf answer;
    pl_buf_init(&answer, &alloc, PL_JSON_BYTES_MAX);
    enum pelago_status st = pl_operator_reload(&t->who, &t->err);
    if (st == PELAGO_OK)
        st = pl_operator_ask(&t->who, &q, patience_ns, &answer, &t->err);
    t->over = pl_is_away(st) && pl_operator_last_status(&t->who, &answer);
    if (t->over)
        st = PELAGO_OK;
    else if (pl_is_away(st))
        pl_run_file_advise(t->who.folder, &t->err);
    if (st == PELAGO_OK) {
        pl_run_file_complete(t->who.folder, &answer);
        pl_shards_complete(&t->who, &answer);
    }
    if (st == PELAGO_OK)
        st = take(t, (struct pl_bytes){answer.data, answer.len});
    if (st != PELAGO_OK)
        t->view.silent_s = (double)(pl_clock_ns() - t->heard_ns) * 1e-9;
    pl_buf_release(&answer);
    return st;
}

/* Why there is no answer, whole, or how to leave. */
static void say(struct top *t, enum pelago_status st)
{
    char sentence[sizeof t->err.text + 16];
    t->words.count = 0;
    if (st == PELAGO_OK) {
        pl_page_add(&t->words, "q ends this screen; the run %s", t->over ? "is done" : "goes on");
        return;
    }
    (void)snprintf(sentence, sizeof sentence, "no answer: %s", t->err.text);
    pl_text_clean(sentence);
    pl_page_wrap(&t->words, sentence);
}

/* The words are all there, if need be in place of learners; the last line of a terminal stays free. */
static void draw(struct top *t, enum pelago_status st)
{
    struct pl_view_page *p = &t->page;
    pl_screen_measure(&t->screen);
    p->cols = t->words.cols = t->screen.cols;
    p->count = 0;
    say(t, st);
    uint32_t below = t->words.count + 2;
    uint32_t rows = t->screen.rows > below ? t->screen.rows - below : 0;
    if (t->known)
        pl_cluster_view_page(&t->view, 0, t->screen.color, rows, p);
    p->count = pl_min32(p->count, rows);
    if (p->count > 0)
        pl_page_add(p, "%s", "");
    for (uint32_t i = 0; i < t->words.count; i++)
        pl_page_add(p, "%s", t->words.line[i]);
    pl_screen_draw(&t->screen, p);
}

static int watch(struct top *t, uint64_t every_ns)
{
    bool leave = false;
    open_terminal(t);
    while (caught == 0 && !leave) {
        uint64_t begin = pl_clock_ns();
        enum pelago_status st = look(t);
        draw(t, st);
        uint64_t spent = pl_clock_ns() - begin;
        leave = wait_for_key(t, spent < every_ns ? (int)((every_ns - spent) / PL_MS) : 0);
    }
    close_terminal(t);
    return caught == 0 || caught == SIGINT ? PL_EXIT_OK : 128 + caught;
}

int pl_cmd_top(int argc, char **argv)
{
    static struct top t;
    uint64_t every_ns = PL_SEC;
    const struct pl_option table[] = {
        {"every", "TIME", "between two looks (default: 1s)", PL_OPTION_TIME, &every_ns, 100 * PL_MS,
         3600 * PL_SEC},
    };
    const struct pl_options options = {
        command, "FOLDER [OPTION...]",
        "A live screen of a run. FOLDER is that of the syncer, or the --out of pelago run. q leaves.", table,
        sizeof table / sizeof table[0]};
    struct pl_words words;
    int code;
    if (!pl_options_parse(&options, argc, argv, &words, &code))
        return code;
    if (words.count != 1)
        return pl_usage_error(command, "expected one folder, that of the syncer");
    pl_screen_open(&t.screen);
    if (!t.screen.live)
        return pl_usage_error(command,
                              "this is no terminal; pelago status FOLDER prints the state, --json all of it");
    if (pl_operator_load(&t.who, words.at[0], &t.err) != PELAGO_OK)
        return pl_failure(command, &t.err);
    return watch(&t, every_ns);
}
