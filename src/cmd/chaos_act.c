/* cmd/chaos_act.c - one action on one node of a real cluster: signals, hold files, orders to the proxy, a full disk.
 *
 * `pelago run` restarts a child that dies, unless DIR/hold/learner-2 (or syncer-0) is there: it waits for the file to go.
 * slow-cpu needs no root and no cgroup: the process is stopped and continued, 50 times a second.
 */
#include "base/check.h"
#include "base/fmt.h"
#include "base/num.h"
#include "chaos/proxy.h"
#include "cmd/chaos_run.h"
#include "cmd/cmd.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { FILL_MAX_MIB = 1024, ASK_MS = 2000 };

static const char *role_of(bool syncer)
{
    return syncer ? "syncer" : "learner";
}

/* ---- held down ---- */

static void hold_path(const struct pl_chaos_run *r, bool syncer, uint32_t number, char *out, size_t cap)
{
    (void)snprintf(out, cap, "%s/hold/%s-%u", r->cluster->dir, role_of(syncer), number);
}

static enum pelago_status hold(const struct pl_chaos_run *r, bool syncer, uint32_t number,
                               struct pl_error *err)
{
    char path[PL_CLUSTER_PATH + 64];
    (void)snprintf(path, sizeof path, "%s/hold", r->cluster->dir);
    (void)mkdir(path, 0755);
    hold_path(r, syncer, number, path, sizeof path);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0)
        return pl_fail(err, PELAGO_IO, "%s cannot be made: %s", path, strerror(errno));
    close(fd);
    return PELAGO_OK;
}

static enum pelago_status release(const struct pl_chaos_run *r, bool syncer, uint32_t number,
                                  struct pl_error *err)
{
    char path[PL_CLUSTER_PATH + 64];
    hold_path(r, syncer, number, path, sizeof path);
    if (unlink(path) != 0 && errno != ENOENT)
        return pl_fail(err, PELAGO_IO, "%s cannot be removed: %s", path, strerror(errno));
    return PELAGO_OK;
}

/* ---- slow ---- */

static struct pl_slow *find_slow(struct pl_chaos_run *r, bool syncer, uint32_t number)
{
    for (uint32_t i = 0; i < r->slow_count; i++)
        if (r->slow[i].syncer == syncer && r->slow[i].number == number)
            return &r->slow[i];
    if (r->slow_count == r->slow_room)
        return NULL;
    r->slow[r->slow_count] = (struct pl_slow){.syncer = syncer, .number = number};
    return &r->slow[r->slow_count++];
}

static enum pelago_status set_slow(struct pl_chaos_run *r, const struct pl_cluster_node *n, uint32_t percent,
                                   struct pl_error *err)
{
    struct pl_slow *s = find_slow(r, n->syncer, n->number);
    pl_assert(s != NULL);
    s->percent = percent == 100 ? 0 : percent;
    s->edge_ns = 0;
    s->stopped = false;
    return pl_cluster_signal(n, SIGCONT, err);
}

uint64_t pl_chaos_throttle(struct pl_chaos_run *r, uint64_t now_ns)
{
    uint64_t next = PL_NEVER;
    for (uint32_t i = 0; i < r->slow_count; i++) {
        struct pl_slow *s = &r->slow[i];
        const struct pl_cluster_node *n = pl_cluster_find(r->cluster, s->syncer, s->number);
        if (s->percent == 0 || n == NULL)
            continue;
        if (now_ns >= s->edge_ns) {
            uint64_t run = PL_SLOW_PERIOD * s->percent / 100;
            s->stopped = !s->stopped;
            s->edge_ns = now_ns + (s->stopped ? PL_SLOW_PERIOD - run : run);
            (void)pl_cluster_signal(n, s->stopped ? SIGSTOP : SIGCONT, NULL);
        }
        next = pl_min64(next, s->edge_ns);
    }
    return next;
}

/* ---- a full disk ---- */

static enum pelago_status fill_path(const struct pl_cluster_node *n, char *out, size_t cap,
                                    struct pl_error *err)
{
    if (n->dir[0] == '\0')
        return pl_fail(err, PELAGO_INVALID, "run.json does not say where its folder is");
    (void)snprintf(out, cap, "%s/chaos-fill", n->dir);
    return PELAGO_OK;
}

/* Only a small file system of its own may be filled: others live on the rest. */
static enum pelago_status check_small(const struct pl_cluster_node *n, struct pl_error *err)
{
    struct stat here, root;
    struct statvfs fs;
    if (stat(n->dir, &here) != 0 || stat("/", &root) != 0 || statvfs(n->dir, &fs) != 0)
        return pl_fail(err, PELAGO_IO, "%s cannot be looked at: %s", n->dir, strerror(errno));
    uint64_t mib = (uint64_t)fs.f_blocks * fs.f_frsize >> 20;
    if (here.st_dev == root.st_dev || mib > FILL_MAX_MIB)
        return pl_fail(
            err, PELAGO_DENIED,
            "%s is not on a small file system of its own (at most 1 GiB): mount a tmpfs there first", n->dir);
    return PELAGO_OK;
}

static enum pelago_status fill(const struct pl_cluster_node *n, struct pl_error *err)
{
    char path[PL_CLUSTER_PATH + 16], block[1 << 16];
    PL_TRY(fill_path(n, path, sizeof path, err));
    PL_TRY(check_small(n, err));
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0)
        return pl_fail(err, PELAGO_IO, "%s cannot be made: %s", path, strerror(errno));
    memset(block, 0, sizeof block);
    for (size_t size = sizeof block; size > 0;)
        if (write(fd, block, size) <= 0)
            size /= 2;
    close(fd);
    return PELAGO_OK;
}

static enum pelago_status free_disk(const struct pl_cluster_node *n, struct pl_error *err)
{
    char path[PL_CLUSTER_PATH + 16];
    PL_TRY(fill_path(n, path, sizeof path, err));
    if (unlink(path) != 0 && errno != ENOENT)
        return pl_fail(err, PELAGO_IO, "%s cannot be removed: %s", path, strerror(errno));
    return PELAGO_OK;
}

/* ---- links ---- */

static enum pelago_status ask_proxy(struct pl_chaos_run *r, const struct pl_chaos_event *ev,
                                    struct pl_error *err)
{
    static const char *const sides[] = {"", "up ", "down ", ""};
    const struct pl_chaos_action *a = ev->action;
    char order[512], answer[256], words[400];
    if (a->verb == PL_CHAOS_RESET || a->verb == PL_CHAOS_HALF_OPEN || a->verb == PL_CHAOS_CLEAR) {
        (void)snprintf(order, sizeof order, "%s %u", pl_chaos_verb_name(a->verb), ev->node);
    } else {
        pl_shape_print(&a->change, ev->undo, words, sizeof words);
        (void)snprintf(order, sizeof order, "set %u %s%s", ev->node, sides[a->dirs], words);
    }
    enum pelago_status status = pl_proxy_ask(r->proxy, order, ASK_MS, answer, sizeof answer, err);
    if (status == PELAGO_UNREACHABLE && r->proxy_answered && access(r->proxy, F_OK) != 0)
        return pl_fail(err, PELAGO_NOTFOUND, "the proxy has ended with its run");
    r->proxy_answered = r->proxy_answered || status == PELAGO_OK;
    if (status == PELAGO_UNREACHABLE)
        return pl_fail(err, status, "no proxy answers at %s: links can be broken only in a run with --proxy",
                       r->proxy);
    return status;
}

/* ---- one action ---- */

static enum pelago_status take_down(struct pl_chaos_run *r, const struct pl_cluster_node *n,
                                    struct pl_error *err)
{
    PL_TRY(hold(r, n->syncer, n->number, err));
    return pl_cluster_signal(n, SIGKILL, err);
}

static enum pelago_status act_on_process(struct pl_chaos_run *r, const struct pl_chaos_event *ev,
                                         const struct pl_cluster_node *n, struct pl_error *err)
{
    switch ((uint32_t)ev->action->verb) {
    case PL_CHAOS_KILL:
        return pl_cluster_signal(n, SIGKILL, err);
    case PL_CHAOS_TERMINATE:
        return pl_cluster_signal(n, SIGTERM, err);
    case PL_CHAOS_DOWN:
        return ev->undo ? release(r, n->syncer, n->number, err) : take_down(r, n, err);
    case PL_CHAOS_UP:
        return release(r, n->syncer, n->number, err);
    case PL_CHAOS_STOP:
        return pl_cluster_signal(n, ev->undo ? SIGCONT : SIGSTOP, err);
    case PL_CHAOS_CONTINUE:
        return pl_cluster_signal(n, SIGCONT, err);
    case PL_CHAOS_SLOW_CPU:
        return set_slow(r, n, ev->undo ? 100 : ev->action->percent, err);
    case PL_CHAOS_FILL_DISK:
        return ev->undo ? free_disk(n, err) : fill(n, err);
    case PL_CHAOS_FREE_DISK:
        return free_disk(n, err);
    default:
        pl_assert_failed("every verb is a link's or a process's", __FILE__, __LINE__);
    }
}

/* What a person wants to know besides the verb. */
static void describe(const struct pl_chaos_event *ev, char *out, size_t cap)
{
    static const char *const sides[] = {"", ", out", ", in", ""};
    const struct pl_chaos_action *a = ev->action;
    int at = 0;
    out[0] = '\0';
    if (ev->undo)
        return;
    if (a->verb == PL_CHAOS_SLOW_CPU)
        at = snprintf(out, cap, "to %u%%", a->percent);
    else if (a->change.keys != 0)
        at = (int)pl_shape_print(&a->change, false, out, cap);
    if (pl_chaos_verb_is_link(a->verb))
        at += snprintf(out + at, cap - (size_t)at, "%s", sides[a->dirs]);
    if (a->for_ns > 0)
        (void)snprintf(out + at, cap - (size_t)at, "%sfor %.3f s", at > 0 ? ", " : "",
                       (double)a->for_ns * 1e-9);
}

/* A victim that is dead already, or a run that has just ended, is what chaos is about. Everything else that was not done
 * is not what the plan says, and whoever reads a result must know. */
static void count(struct pl_chaos_run *r, enum pelago_status status, const char *target, const char *why)
{
    r->done++;
    if (status == PELAGO_NOTFOUND)
        r->late++;
    else if (status != PELAGO_OK && r->failed++ == 0)
        (void)pl_fmt(r->first_failure, sizeof r->first_failure, "%s: %s", target, why);
}

void pl_chaos_act(struct pl_chaos_run *r, const struct pl_chaos_event *ev)
{
    const struct pl_chaos_action *a = ev->action;
    struct pl_error err = {PELAGO_OK, ""};
    char target[32], text[256];
    (void)pl_cluster_refresh(r->cluster, NULL);
    const struct pl_cluster_node *n = pl_cluster_find(r->cluster, a->target.syncer, ev->node);
    enum pelago_status status;
    if (pl_chaos_verb_is_link(a->verb))
        status = ask_proxy(r, ev, &err);
    else if (n == NULL)
        status = pl_fail(&err, PELAGO_INVALID, "run.json does not name it");
    else
        status = act_on_process(r, ev, n, &err);
    describe(ev, text, sizeof text);
    (void)snprintf(target, sizeof target, "%s %u", role_of(a->target.syncer), ev->node);
    count(r, status, target, err.text);
    pl_chaos_log(r, ev->undo ? pl_chaos_verb_undo_name(a->verb) : pl_chaos_verb_name(a->verb), target,
                 n != NULL ? n->pid : 0, status == PELAGO_OK, status == PELAGO_OK ? text : err.text);
}

/* ---- after a chaos that was itself killed ---- */

static void remove_holds(struct pl_chaos_run *r)
{
    char path[PL_CLUSTER_PATH + 300];
    (void)snprintf(path, sizeof path, "%s/hold", r->cluster->dir);
    DIR *d = opendir(path);
    for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL;)
        if (strncmp(e->d_name, "learner-", 8) == 0 || strncmp(e->d_name, "syncer-", 7) == 0) {
            (void)snprintf(path, sizeof path, "%s/hold/%s", r->cluster->dir, e->d_name);
            bool ok = unlink(path) == 0;
            const char *why = ok ? "" : strerror(errno);
            count(r, ok ? PELAGO_OK : PELAGO_IO, path, why);
            pl_chaos_log(r, "up", e->d_name, 0, ok, why);
        }
    if (d != NULL)
        closedir(d);
}

int pl_chaos_heal_all(struct pl_chaos_run *r, struct pl_error *err)
{
    struct pl_error why = {PELAGO_OK, ""};
    char answer[64], target[32];
    for (uint32_t i = 0; i < r->cluster->count; i++) {
        const struct pl_cluster_node *n = &r->cluster->nodes[i];
        (void)snprintf(target, sizeof target, "%s %u", role_of(n->syncer), n->number);
        bool ok = pl_cluster_signal(n, SIGCONT, &why) == PELAGO_OK;
        pl_chaos_log(r, "continue", target, n->pid, ok, ok ? "" : why.text);
        (void)free_disk(n, NULL);
    }
    remove_holds(r);
    if (access(r->proxy, F_OK) == 0) {
        bool ok = pl_proxy_ask(r->proxy, "clear all", ASK_MS, answer, sizeof answer, &why) == PELAGO_OK;
        pl_chaos_log(r, "clear", "all links", 0, ok, ok ? "" : why.text);
    }
    if (r->failed == 0)
        return PL_EXIT_OK;
    (void)pl_fail(err, PELAGO_IO, "not everything could be taken back; remove by hand %s", r->first_failure);
    return PL_EXIT_FAILED;
}
