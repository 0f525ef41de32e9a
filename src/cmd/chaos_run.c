/* cmd/chaos_run.c - a plan in real time. One thread sleeps until the next action, the next edge of a throttled process, or
 * a look at whether the run is still there. Whatever ends it, what it did is taken back first. */
#include "cmd/chaos_run.h"

#include "base/check.h"
#include "base/num.h"
#include "cmd/cmd.h"
#include "os/clock.h"

#include <poll.h>
#include <signal.h>
#include <string.h>

enum { GONE_LOOKS = 10 };

static volatile sig_atomic_t interrupted;

static void on_signal(int number)
{
    (void)number;
    interrupted = 1;
}

/* Both signals are blocked except while we sleep, so that none is missed. */
static void catch_signals(sigset_t *sleeping)
{
    struct sigaction action = {.sa_handler = on_signal};
    sigset_t ours;
    sigemptyset(&ours);
    sigaddset(&ours, SIGINT);
    sigaddset(&ours, SIGTERM);
    sigprocmask(SIG_BLOCK, &ours, sleeping);
    sigdelset(sleeping, SIGINT);
    sigdelset(sleeping, SIGTERM);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

static void sleep_until(uint64_t at_ns, const sigset_t *sleeping)
{
    uint64_t wait = pl_sub_sat(at_ns, pl_clock_ns());
    struct timespec t = {(time_t)(wait / PL_SEC), (long)(wait % PL_SEC)};
    (void)ppoll(NULL, 0, &t, sleeping);
}

static enum pelago_status make_schedule(struct pl_chaos_run *r, const struct pl_chaos_plan *plan,
                                        struct pl_chaos_schedule *s, struct pl_error *err)
{
    uint32_t numbers[PL_CHAOS_NODES_MAX];
    const struct pl_cluster *c = r->cluster;
    pl_assert(c->count <= PL_CHAOS_NODES_MAX); /* in all: pl_cluster_refresh takes no more */
    for (uint32_t i = 0; i < c->count; i++)
        numbers[i] = c->nodes[i].number;
    return pl_chaos_schedule_init(s, plan, numbers, c->learners, numbers + c->learners,
                                  c->count - c->learners, r->alloc, err);
}

/* Until the plan's end, a signal, or the end of the run. True: the run ended first. A plan that says when it ends lasts so
 * long, though nothing may be left to do. */
static bool keep_time(struct pl_chaos_run *r, struct pl_chaos_schedule *s, const sigset_t *sleeping)
{
    struct pl_chaos_event ev;
    uint64_t until_ns = s->plan->until_ns == PL_NEVER ? 0 : r->start_ns + s->plan->until_ns;
    uint64_t look_ns = r->start_ns + PL_SEC;
    uint32_t gone = 0;
    bool more = pl_chaos_schedule_next(s, &ev);
    while (!interrupted && gone < GONE_LOOKS) {
        uint64_t now = pl_clock_ns(), due = more ? r->start_ns + ev.at_ns : until_ns;
        if (now >= due && !more)
            break;
        if (now >= due) {
            pl_chaos_act(r, &ev);
            more = pl_chaos_schedule_next(s, &ev);
            continue;
        }
        if (now >= look_ns) {
            bool there = pl_cluster_refresh(r->cluster, NULL) == PELAGO_OK && pl_cluster_lives(r->cluster);
            gone = there ? 0 : gone + 1;
            look_ns = now + PL_SEC / 2;
        }
        sleep_until(pl_min64(pl_min64(due, look_ns), pl_chaos_throttle(r, now)), sleeping);
    }
    /* An end that was fetched is no longer among those the schedule still knows. */
    if (more && ev.undo)
        pl_chaos_act(r, &ev);
    return gone == GONE_LOOKS;
}

static void sum_up(struct pl_chaos_run *r, const char *why)
{
    char text[160];
    (void)snprintf(text, sizeof text, "%s: %llu action%s, %llu too late, %llu failed", why,
                   (unsigned long long)r->done, r->done == 1 ? "" : "s", (unsigned long long)r->late,
                   (unsigned long long)r->failed);
    pl_chaos_log(r, "end", "plan", 0, true, text);
}

int pl_chaos_perform(struct pl_chaos_run *r, const struct pl_chaos_plan *plan, struct pl_error *err)
{
    struct pl_chaos_schedule s;
    struct pl_chaos_event ev;
    sigset_t sleeping;
    if (make_schedule(r, plan, &s, err) != PELAGO_OK) {
        pl_chaos_schedule_release(&s);
        return PL_EXIT_USAGE;
    }
    r->slow_room = r->cluster->count;
    r->slow = pl_alloc_zero(r->alloc, r->slow_room, sizeof *r->slow);
    if (r->slow == NULL) {
        pl_chaos_schedule_release(&s);
        (void)pl_fail(err, PELAGO_NOMEM, "there is no memory for %u processes", r->slow_room);
        return PL_EXIT_FAILED;
    }
    catch_signals(&sleeping);
    pl_chaos_log(r, "begin", "plan", 0, true, "");
    bool ended = keep_time(r, &s, &sleeping);
    while ((interrupted || ended) && pl_chaos_schedule_drain(&s, &ev))
        pl_chaos_act(r, &ev);
    sum_up(r, ended ? "the run ended" : interrupted ? "interrupted" : "the plan ended");
    pl_chaos_schedule_release(&s);
    pl_alloc_free(r->alloc, r->slow, r->slow_room * sizeof *r->slow);
    if (r->failed == 0)
        return PL_EXIT_OK;
    (void)pl_fail(err, PELAGO_IO, "%lu of %lu action%s could not be done, the first of them on %s", r->failed,
                  r->done, r->done == 1 ? "" : "s", r->first_failure);
    return PL_EXIT_FAILED;
}
