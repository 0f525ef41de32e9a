/* cmd/run_show.c - what a person sees of `pelago run`: a live page on a terminal, a line every few seconds elsewhere. */
#include "cmd/run_cluster.h"

#include "base/num.h"
#include "cmd/cluster_home.h"
#include "cmd/train_view.h"
#include "host/home.h"
#include "os/clock.h"

#include <string.h>
#include <unistd.h>

enum { EVENTS_SHOWN = 5, ROWS_MIN = 8 };
static const uint64_t live_ns = 250 * PL_MS, plain_ns = 5 * PL_SEC, stale_ns = 4 * PL_SEC,
                      returning_ns = 2 * PL_SEC;

/* ---- the status that comes in ---- */

/* Which identity a learner has is in its folder. */
static void find_identity(struct pl_run *r, struct pl_run_process *p)
{
    struct pl_posix_dir *dir = NULL;
    static struct pl_credentials own;
    if (p->identity != 0 || !pl_path_exists(p->folder, "credentials"))
        return;
    if (pl_posix_dir_open(&dir, &r->alloc, p->folder, PL_POSIX_DIR_EXISTING, NULL) == PELAGO_OK &&
        pl_home_load_credentials(dir, "credentials", &r->alloc, &own, NULL) == PELAGO_OK) {
        p->identity = own.identity;
        r->moved = true; /* run.json says it */
    }
    pl_posix_dir_close(dir);
}

/* Nothing where the syncer's word is as good. */
static const char *note_of(const struct pl_run_process *p, const struct pl_view_learner *l)
{
    const struct pl_child *c = &p->child;
    if (c->state == PL_CHILD_WAITING || c->state == PL_CHILD_FAILED)
        return "dead";
    if (c->state == PL_CHILD_DONE)
        return c->status == 0 ? "done" : "stopped";
    return c->starts > 1 && (!l->alive || pl_clock_ns() - c->started_ns < returning_ns) ? "returning" : "";
}

/* Names instead of numbers, and what we know better than the syncer: whether the process is there. */
static void name_learners(struct pl_run *r)
{
    for (uint32_t i = 0; i < r->settings.learners; i++) {
        struct pl_run_process *p = &r->learners[i];
        find_identity(r, p);
        for (uint32_t k = 0; p->identity != 0 && k < r->view.learner_count; k++) {
            struct pl_view_learner *l = &r->view.learners[k];
            if (l->identity != p->identity)
                continue;
            (void)snprintf(l->name, sizeof l->name, "%s", p->child.name);
            (void)snprintf(l->note, sizeof l->note, "%s", note_of(p, l));
        }
    }
    pl_cluster_view_sort(&r->view);
}

static uint32_t training(const struct pl_cluster_view *v)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < v->learner_count; i++)
        count += v->learners[i].alive && v->learners[i].steps > 0 ? 1 : 0;
    return count;
}

void pl_run_take_view(struct pl_run *r, struct pl_bytes json)
{
    static struct pl_cluster_view fresh;
    static const char error[] = "{\"error\"";
    if (json.len >= sizeof error && memcmp(json.data, error, sizeof error - 1) == 0)
        return;
    if (pl_cluster_view_parse(&fresh, json, NULL) != PELAGO_OK)
        return;
    pl_totals_complete(&r->totals, &fresh);
    fresh.expected = r->settings.learners;
    const struct pl_curve_point point = {.seconds = pl_run_seconds(r),
                                         .loss = fresh.loss,
                                         .epoch = fresh.epoch,
                                         .tokens = fresh.tokens,
                                         .alive = fresh.alive,
                                         .training = training(&fresh)};
    if (fresh.loss <= 0)
        fresh.loss = r->view.loss; /* nobody trains: the last one is shown */
    r->view = fresh;
    r->known = true;
    name_learners(r);
    r->heard_ns = pl_clock_ns();
    pl_history_look(&r->history, &point);
}

void pl_run_take_status(struct pl_run *r)
{
    ssize_t n = 1;
    while (n > 0) {
        if (pl_buf_reserve(&r->status, 4096) != PELAGO_OK)
            r->status.len = 0; /* a line longer than any status */
        n = pl_buf_reserve(&r->status, 4096) == PELAGO_OK
                ? read(r->pipe_in, r->status.data + r->status.len, 4096)
                : 0;
        r->status.len += n > 0 ? (size_t)n : 0;
    }
    for (;;) {
        const char *text = (const char *)r->status.data;
        const char *end = r->status.len > 0 ? memchr(text, '\n', r->status.len) : NULL;
        if (end == NULL)
            return;
        pl_run_take_view(r, (struct pl_bytes){text, (size_t)(end - text)});
        pl_buf_consume(&r->status, (size_t)(end - text) + 1);
    }
}

static bool read_last_status(struct pl_run *r, const char *folder, struct pl_buf *text)
{
    struct pl_posix_dir *dir = NULL;
    text->len = 0;
    bool good = pl_posix_dir_open(&dir, &r->alloc, folder, PL_POSIX_DIR_EXISTING, NULL) == PELAGO_OK &&
                pl_home_read(dir, "status.json", text, NULL) == PELAGO_OK;
    pl_posix_dir_close(dir);
    return good;
}

/* What the watcher saw last may be a second older. Home comes last: its word is about the whole run. */
void pl_run_take_last_status(struct pl_run *r)
{
    static struct pl_cluster_view other;
    struct pl_buf text;
    pl_buf_init(&text, &r->alloc, PL_JSON_BYTES_MAX);
    for (uint32_t i = 1; i < r->settings.shards; i++)
        if (read_last_status(r, r->syncers[i].folder, &text) &&
            pl_cluster_view_parse(&other, (struct pl_bytes){text.data, text.len}, NULL) == PELAGO_OK)
            pl_totals_look(&r->totals, &other.shard[0]);
    if (read_last_status(r, r->home, &text))
        pl_run_take_view(r, (struct pl_bytes){text.data, text.len});
    pl_buf_release(&text);
}

/* ---- showing ---- */

/* As it was measured here; below 0: nobody knows yet, and the syncer's word is of the time before learners trained, too. */
static double rate_of(const struct pl_run *r)
{
    return r->history.rate > 0 ? r->history.rate : -1;
}

/* 0 for a syncer of whom an answer is not overdue. */
static double silent_s(const struct pl_run *r, uint64_t now)
{
    bool stale = r->known && !r->ending && now - r->heard_ns > stale_ns;
    return stale ? (double)(now - r->heard_ns) * 1e-9 : 0;
}

static void draw_page(struct pl_run *r)
{
    struct pl_view_page *p = &r->page;
    uint64_t count = r->history.event_count, shown = pl_min64(count, EVENTS_SHOWN);
    bool stale = r->view.silent_s > 0;
    p->count = 0;
    pl_screen_measure(&r->screen);
    p->cols = r->screen.cols;
    /* What stands below: a line that is empty, events, two sentences. The last line of a terminal stays free. */
    uint32_t tail = 2 + (uint32_t)shown + (r->ending ? 0 : 1) + (stale ? 1 : 0);
    uint32_t rows = r->screen.rows > tail + ROWS_MIN ? r->screen.rows - tail : ROWS_MIN;
    name_learners(r);
    r->view.uptime_s = pl_run_seconds(r); /* ours: that of a syncer begins anew when it is started again */
    if (r->known)
        pl_cluster_view_page(&r->view, rate_of(r), r->screen.color, rows, p);
    else
        pl_page_add(p, "starting a syncer and %u learners ...", r->settings.learners);
    if (stale)
        pl_page_add(p, "(the syncer has not answered for %s; learners train on)",
                    pl_view_time(r->view.silent_s).at);
    pl_page_add(p, "%s", "");
    for (uint64_t i = count - shown; i < count; i++) {
        const struct pl_run_event *e = &r->history.events[i % PL_RUN_EVENTS];
        pl_page_add(p, "%8s  %s", pl_view_time(e->seconds).at, e->text);
    }
    if (!r->ending)
        pl_page_add(p, "%8s  Ctrl-C stops; the run can go on later", pl_view_time(pl_run_seconds(r)).at);
    pl_screen_draw(&r->screen, p);
}

static void print_line(struct pl_run *r)
{
    r->page.count = 0;
    pl_cluster_view_line(&r->view, rate_of(r), &r->page);
    printf("%8s  %s\n", pl_view_time(pl_run_seconds(r)).at, r->page.line[0]);
    (void)fflush(stdout);
}

void pl_run_show(struct pl_run *r, bool now)
{
    uint64_t clock = pl_clock_ns();
    if (r->args.quiet || (!now && clock - r->drawn_ns < (r->screen.live ? live_ns : plain_ns)))
        return;
    if (!r->screen.live && !r->known)
        return;
    r->drawn_ns = clock;
    r->view.silent_s = silent_s(r, clock);
    if (r->screen.live)
        draw_page(r);
    else
        print_line(r);
}

void pl_run_show_end(struct pl_run *r, bool complete)
{
    pl_run_take_status(r);
    if (complete)
        pl_run_take_last_status(r);
    else
        (void)snprintf(r->view.phase, sizeof r->view.phase, "stopped");
    pl_run_show(r, r->screen.live);
    r->screen.drawn = 0; /* the last page stays; what is said next stands below it */
}

void pl_run_event(struct pl_run *r, const char *name, const char *what)
{
    double seconds = pl_run_seconds(r);
    const char *text = pl_history_event(&r->history, seconds, "%s %s", name, what);
    if (r->args.quiet)
        return;
    if (r->screen.live) {
        pl_run_show(r, true);
    } else {
        printf("%8s  %s\n", pl_view_time(seconds).at, text);
        (void)fflush(stdout);
    }
}
