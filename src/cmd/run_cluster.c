/* cmd/run_cluster.c - see run_cluster.h. */
#include "cmd/run_cluster.h"

#include "base/fmt.h"
#include "base/num.h"
#include "cmd/cluster_home.h"
#include "cmd/stop.h"
#include "cmd/text.h"
#include "host/home.h"
#include "os/clock.h"
#include "train/json.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

static const char status_every[] = "1s";
static const uint64_t watcher_pause_ns = PL_SEC, keep_ns = 5 * PL_SEC;

/* ---- signals: blocked, but while we wait ---- */

static struct pl_stop wish; /* the handlers', which keep each other out */
static sigset_t while_waiting;

static void on_signal(int number)
{
    if (number == SIGCHLD || number == SIGWINCH)
        return;
    if (pl_stop_heard(&wish, number, pl_clock_ns() / PL_MS) == PL_STOP_AT_ONCE)
        _exit(128 + number); /* children go with us */
}

int pl_run_caught(void)
{
    return wish.caught;
}

/* Judging waits for nothing that a signal could end in between: it ends all of it. */
static void leave_unjudged(int number)
{
    static const char said[] =
        "\npelago run: stopped before the model was judged; the same with --resume judges it\n";
    ssize_t n = write(STDERR_FILENO, said, sizeof said - 1);
    (void)n;
    _exit(128 + number);
}

void pl_run_heed_at_end(void)
{
    const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction action = {.sa_handler = leave_unjudged};
    (void)sigfillset(&action.sa_mask);
    for (unsigned i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if (numbers[i] != SIGHUP || pl_stop_hangs_up())
            (void)sigaction(numbers[i], &action, NULL);
    (void)sigprocmask(SIG_SETMASK, &while_waiting, NULL);
}

static void heed_signals(void)
{
    const int numbers[] = {SIGCHLD, SIGWINCH, SIGINT, SIGTERM, SIGHUP};
    struct sigaction action = {.sa_handler = on_signal};
    sigset_t blocked;
    (void)sigemptyset(&blocked);
    (void)sigfillset(&action.sa_mask);
    for (unsigned i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        if (numbers[i] == SIGHUP && !pl_stop_hangs_up())
            continue;
        (void)sigaction(numbers[i], &action, NULL);
        (void)sigaddset(&blocked, numbers[i]);
    }
    (void)sigprocmask(SIG_BLOCK, &blocked, &while_waiting);
    (void)signal(SIGPIPE, SIG_IGN);
}

double pl_run_seconds(const struct pl_run *r)
{
    return (double)(pl_clock_ns() - r->begin_ns) * 1e-9;
}

/* ---- which processes there are ---- */

static enum pelago_status name_process(struct pl_run *r, struct pl_run_process *p, const char *name)
{
    char file[32];
    (void)snprintf(p->child.name, sizeof p->child.name, "%s", name);
    p->child.out = -1;
    PL_TRY(pl_path_join(p->folder, r->args.out, name, &r->err));
    (void)pl_fmt(file, sizeof file, "%s.log", name);
    PL_TRY(pl_path_join(p->child.log, r->log, file, &r->err));
    (void)pl_fmt(file, sizeof file, "%s.stats", name);
    return pl_path_join(p->stats, r->log, file, &r->err);
}

static void words(struct pl_child *c, const char *const *list)
{
    for (; *list != NULL; list++)
        (void)pl_child_word(c, *list);
}
#define WORDS(child, ...) words(child, (const char *const[]){__VA_ARGS__, NULL})

/* An option that was given, or nothing. */
static void option(struct pl_child *c, const char *name, const char *value)
{
    if (value != NULL && value[0] != '\0')
        WORDS(c, name, value);
}

static enum pelago_status plan_syncer(struct pl_run *r, uint32_t shard)
{
    struct pl_run_process *p = &r->syncers[shard];
    char name[24];
    (void)snprintf(name, sizeof name, shard == 0 ? "syncer" : "syncer-%u", shard);
    PL_TRY(name_process(r, p, name));
    (void)snprintf(p->shard, sizeof p->shard, "%u", shard);
    WORDS(&p->child, "pelago", "syncer", "--dir", p->folder, "--listen",
          r->args.listen != NULL && shard == 0 ? r->args.listen : "127.0.0.1:0", "--linger", "0s");
    option(&p->child, "--relaxed", r->relaxed);
    if (shard > 0)
        WORDS(&p->child, "--shard", p->shard, "--join", r->shard_token);
    else
        option(&p->child, "--record", r->args.record);
    return PELAGO_OK;
}

static enum pelago_status plan_learner(struct pl_run *r, uint32_t index)
{
    struct pl_run_process *p = &r->learners[index];
    char name[24];
    (void)snprintf(name, sizeof name, "learner-%u", index + 1);
    PL_TRY(name_process(r, p, name));
    WORDS(&p->child, "pelago", "learner", "--dir", p->folder, "--join", r->learner_token, "--threads",
          r->threads);
    if (r->args.pace != NULL && pl_list_item(r->args.pace, index, p->pace))
        option(&p->child, "--pace", p->pace);
    if (r->args.speed != NULL && pl_list_item(r->args.speed, index, p->speed))
        option(&p->child, "--speed", p->speed);
    if (r->args.max_up != NULL && pl_list_item(r->args.max_up, index, p->max_up))
        option(&p->child, "--max-up", p->max_up);
    option(&p->child, "--backend", r->args.backend);
    option(&p->child, "--checkpoint-every", r->checkpoint);
    option(&p->child, "--stub-step", r->stub);
    option(&p->child, "--stats", r->args.stats ? p->stats : NULL);
    return PELAGO_OK;
}

static enum pelago_status plan_watcher(struct pl_run *r)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return pl_fail(&r->err, PELAGO_IO, "there is no pipe for the status: %s", strerror(errno));
    r->pipe_in = ends[0];
    r->pipe_out = ends[1];
    (void)fcntl(r->pipe_in, F_SETFL, O_NONBLOCK);
    r->watcher.out = r->pipe_out;
    (void)snprintf(r->watcher.name, sizeof r->watcher.name, "status");
    WORDS(&r->watcher, "pelago", "status", r->home, "--json", "--every", status_every);
    return pl_path_join(r->watcher.log, r->log, "status.log", &r->err);
}

static void number_words(struct pl_run *r)
{
    uint32_t threads = r->args.threads;
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    if (threads == 0)
        threads = (uint32_t)pl_max64(1, (uint64_t)(processors > 0 ? processors : 1) / r->settings.learners);
    (void)snprintf(r->threads, sizeof r->threads, "%u", threads);
    if (r->args.relaxed > 0)
        (void)snprintf(r->relaxed, sizeof r->relaxed, "%u", r->args.relaxed);
    if (r->args.checkpoint_ns > 0)
        (void)snprintf(r->checkpoint, sizeof r->checkpoint, "%" PRIu64 "ms", r->args.checkpoint_ns / PL_MS);
    if (r->args.stub_ns > 0)
        (void)snprintf(r->stub, sizeof r->stub, "%" PRIu64 "us", r->args.stub_ns / PL_US);
}

static enum pelago_status find_program(struct pl_run *r)
{
    ssize_t n = readlink("/proc/self/exe", r->program, sizeof r->program - 1);
    r->program[n > 0 ? n : 0] = '\0';
    /* One that was replaced on disk meanwhile still runs, under this name. */
    if (n <= 0 || access(r->program, X_OK) != 0)
        (void)pl_fmt(r->program, sizeof r->program, "/proc/self/exe");
    return PELAGO_OK;
}

enum pelago_status pl_run_prepare(struct pl_run *r)
{
    uint32_t shards = r->settings.shards, learners = r->settings.learners;
    r->pipe_in = r->pipe_out = -1;
    r->begin_ns = pl_clock_ns();
    r->ends_at_s = r->args.time_ns > 0 ? pl_add_sat(pl_date_s(), r->args.time_ns / PL_SEC) : 0;
    pl_buf_init(&r->status, &r->alloc, PL_RUN_STATUS_BYTES_MAX);
    r->syncers = pl_alloc_zero(&r->alloc, shards, sizeof *r->syncers);
    r->learners = pl_alloc_zero(&r->alloc, learners, sizeof *r->learners);
    if (r->syncers == NULL || r->learners == NULL)
        return pl_fail(&r->err, PELAGO_NOMEM, "there is no memory for %u learners", learners);
    number_words(r);
    PL_TRY(find_program(r));
    for (uint32_t i = 0; i < shards; i++)
        PL_TRY(plan_syncer(r, i));
    for (uint32_t i = 0; i < learners; i++)
        PL_TRY(plan_learner(r, i));
    PL_TRY(plan_watcher(r));
    heed_signals();
    return PELAGO_OK;
}

void pl_run_release(struct pl_run *r)
{
    if (r->pipe_in > 0)
        (void)close(r->pipe_in);
    if (r->pipe_out > 0)
        (void)close(r->pipe_out);
    if (r->status.alloc != NULL)
        pl_buf_release(&r->status);
    pl_alloc_free(&r->alloc, r->syncers, r->settings.shards * sizeof *r->syncers);
    pl_alloc_free(&r->alloc, r->learners, r->settings.learners * sizeof *r->learners);
    pl_posix_dir_close(r->folder);
}

/* ---- run.json: for chaos, and for a person who wonders which process is which ---- */

static json_t *process_json(const struct pl_run_process *p)
{
    json_t *j = json_object();
    (void)pl_json_put(j, "name", json_string(p->child.name));
    /* No number for one that is not there: to a careless reader 0 would be a whole group of processes. */
    (void)pl_json_put(j, "pid", p->child.pid > 0 ? json_integer(p->child.pid) : json_null());
    (void)pl_json_put(j, "identity", json_integer((json_int_t)p->identity));
    (void)pl_json_put(j, "folder", json_string(p->folder));
    (void)pl_json_put(j, "log", json_string(p->child.log));
    (void)pl_json_put(j, "starts", json_integer(p->child.starts));
    (void)pl_json_put(j, "kills", json_integer(p->child.kills));
    return j;
}

static json_t *processes_json(const struct pl_run_process *list, uint32_t count)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < count; i++)
        (void)json_array_append_new(array, process_json(&list[i]));
    return array;
}

static json_t *machine_json(const struct pl_run *r)
{
    const struct pl_run_args *a = &r->args;
    json_t *j = json_object();
    (void)pl_json_put(j, "threads", json_integer(a->threads));
    (void)pl_json_put(j, "relaxed", json_integer(a->relaxed));
    (void)pl_json_put(j, "proxy", json_boolean(a->proxy));
    (void)pl_json_put(j, "pace", json_string(a->pace != NULL ? a->pace : ""));
    (void)pl_json_put(j, "speed", json_string(a->speed != NULL ? a->speed : ""));
    (void)pl_json_put(j, "max-up", json_string(a->max_up != NULL ? a->max_up : ""));
    (void)pl_json_put(j, "backend", json_string(a->backend != NULL ? a->backend : ""));
    (void)pl_json_put(j, "listen", json_string(a->listen != NULL ? a->listen : ""));
    return j;
}

void pl_run_write_json(struct pl_run *r)
{
    struct pl_posix_dir *dir = NULL;
    struct pl_buf text;
    json_t *root = json_object();
    pl_buf_init(&text, &r->alloc, PL_JSON_BYTES_MAX);
    (void)pl_json_put(root, "pid", json_integer(getpid()));
    (void)pl_json_put(root, "run", pl_json_bits_value(r->settings.run_id));
    if (r->ends_at_s > 0)
        (void)pl_json_put(root, "ends_at", json_integer((json_int_t)r->ends_at_s));
    (void)pl_json_put(root, "machine", machine_json(r));
    (void)pl_json_put(root, "totals", pl_totals_json(&r->totals));
    if (r->proxy.child.pid > 0)
        (void)pl_json_put(root, "proxy", json_integer(r->proxy.child.pid));
    (void)pl_json_put(root, "syncers", processes_json(r->syncers, r->settings.shards));
    (void)pl_json_put(root, "learners", processes_json(r->learners, r->settings.learners));
    if (pl_json_print(root, 6, &text) == PELAGO_OK &&
        pl_posix_dir_open(&dir, &r->alloc, r->args.out, PL_POSIX_DIR_EXISTING, NULL) == PELAGO_OK)
        (void)pl_home_write(dir, "run.json", (struct pl_bytes){text.data, text.len}, false, NULL);
    pl_posix_dir_close(dir);
    pl_buf_release(&text);
    json_decref(root);
}

/* ---- one turn ---- */

enum pelago_status pl_run_start(struct pl_run *r, struct pl_run_process *p)
{
    bool again = p->child.starts > 0;
    PL_TRY(pl_child_start(&p->child, r->program, pl_clock_ns(), &r->err));
    if (again)
        pl_run_event(r, p->child.name, "is started again");
    r->moved = true;
    return PELAGO_OK;
}

static enum pelago_status give_up(struct pl_run *r, const struct pl_child *c)
{
    char said[PL_TEXT_MAX];
    if (pl_child_last_words(c, said, sizeof said))
        return pl_fail(&r->err, PELAGO_IO, "%s cannot work; it says: %s", c->name, said);
    return pl_fail(&r->err, PELAGO_IO, "%s %s again and again; its log is %s", c->name,
                   pl_child_why(c->status).at, c->log);
}

/* Chaos keeps a machine down by a file of its name in OUT/hold (docs/chaos.md). */
static bool held(const struct pl_run *r, const char *name)
{
    char path[PL_PATH_MAX + 64];
    (void)pl_fmt(path, sizeof path, "%s/hold/%s", r->args.out,
                 strcmp(name, "syncer") == 0 ? "syncer-0" : name);
    return access(path, F_OK) == 0;
}

/* A learner whose own files are broken is no reason to stop the others, as long as they are enough for a quorum. Baselines
 * want everybody. */
static bool is_spare(const struct pl_run *r, const struct pl_run_process *p)
{
    uint32_t able = 0;
    if (p < r->learners || p >= r->learners + r->settings.learners ||
        r->settings.algorithm != PL_ALGORITHM_DECOUPLED)
        return false;
    for (uint32_t i = 0; i < r->settings.learners; i++)
        able += r->learners[i].child.state != PL_CHILD_FAILED;
    return able > 0 && able >= r->settings.quorum;
}

static enum pelago_status tend(struct pl_run *r, struct pl_run_process *p, uint64_t now)
{
    bool ended = pl_child_reap(&p->child, now);
    if (ended) {
        r->moved = true;
        if (!p->child.told && p->child.state != PL_CHILD_DONE)
            pl_run_event(r, p->child.name, pl_child_why(p->child.status).at);
    }
    if (p->child.state == PL_CHILD_FAILED && !r->ending) {
        if (!is_spare(r, p))
            return give_up(r, &p->child);
        if (ended)
            pl_run_event(r, p->child.name, "cannot work and is left out: its log says why");
    }
    if (p->child.state == PL_CHILD_WAITING && !r->ending && now >= p->child.again_ns &&
        !held(r, p->child.name))
        return pl_run_start(r, p);
    return PELAGO_OK;
}

/* Its own mistakes matter to nobody: it is started again after a while. */
static void tend_watcher(struct pl_run *r, uint64_t now)
{
    struct pl_child *c = &r->watcher;
    if (pl_child_reap(c, now)) {
        c->again_ns = now + watcher_pause_ns;
        c->state = PL_CHILD_WAITING;
    }
    if (c->state == PL_CHILD_WAITING && !r->ending && now >= c->again_ns)
        (void)pl_child_start(c, r->program, now, NULL);
}

/* With several shards, home waits for the others at the end: tell it when they are done. Should it be wrong to leave, it
 * does not leave with 0, and is started again. */
static void tend_home(struct pl_run *r)
{
    const struct pl_child *home = &r->syncers[0].child;
    if (r->settings.shards == 1 || home->state != PL_CHILD_RUNNING || home->pid == r->home_told ||
        strcmp(r->view.phase, "done") != 0)
        return;
    for (uint32_t i = 1; i < r->settings.shards; i++)
        if (r->syncers[i].child.state != PL_CHILD_DONE)
            return;
    (void)kill(home->pid, SIGTERM);
    r->home_told = home->pid;
}

static void wait_for(struct pl_run *r, int ms)
{
    struct pollfd fd = {.fd = r->pipe_in, .events = POLLIN};
    struct timespec limit = {ms / 1000, (long)(ms % 1000) * 1000000};
    (void)ppoll(&fd, 1, &limit, &while_waiting);
}

enum pelago_status pl_run_turn(struct pl_run *r, int ms)
{
    wait_for(r, ms);
    uint64_t now = pl_clock_ns();
    for (uint32_t i = 0; i < r->settings.shards; i++)
        PL_TRY(tend(r, &r->syncers[i], now));
    for (uint32_t i = 0; i < r->settings.learners; i++)
        PL_TRY(tend(r, &r->learners[i], now));
    PL_TRY(pl_run_proxy_tend(r, now));
    tend_watcher(r, now);
    if (r->moved || (r->known && now - r->kept_ns >= keep_ns)) {
        pl_run_write_json(r);
        r->kept_ns = now;
    }
    r->moved = false;
    pl_run_take_status(r);
    tend_home(r);
    pl_run_show(r, false);
    return PELAGO_OK;
}

/* ---- the end ---- */

void pl_run_tell(struct pl_run *r, bool learners, int number)
{
    for (uint32_t i = 0; i < (learners ? r->settings.learners : r->settings.shards); i++)
        pl_child_tell(learners ? &r->learners[i].child : &r->syncers[i].child, number);
}

bool pl_run_alive(const struct pl_run *r, bool learners)
{
    const struct pl_run_process *list = learners ? r->learners : r->syncers;
    for (uint32_t i = 0; i < (learners ? r->settings.learners : r->settings.shards); i++)
        if (list[i].child.state == PL_CHILD_RUNNING)
            return true;
    return false;
}

bool pl_run_complete(const struct pl_run *r)
{
    for (uint32_t i = 0; i < r->settings.shards; i++)
        if (r->syncers[i].child.state != PL_CHILD_DONE || r->syncers[i].child.told ||
            r->syncers[i].child.status != 0)
            return false;
    return true;
}
