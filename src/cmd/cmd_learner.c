/* cmd/cmd_learner.c - pelago learner: takes part in a run. A token is all a volunteer needs; model, data and everything else
 * come from the syncer.
 *
 * SIGTERM or Ctrl-C leaves politely and within a second: what is not merged is kept in the folder, and the same command
 * without --join goes on with it. A step that takes longer is given up. A second signal ends the process at once (stop.h).
 */
#include "cmd/cmd.h"

#include "base/fmt.h"
#include "base/pool.h"
#include "cmd/cluster_home.h"
#include "cmd/learner_line.h"
#include "cmd/options.h"
#include "cmd/stop.h"
#include "cmd/text.h"
#include "data/input.h"
#include "host/join.h"
#include "host/learner_host.h"
#include "host/reduce_learner.h"
#include "model/engine.h"
#include "net/address.h"
#include "os/clock.h"
#include "os/errors.h"
#include "train/dataset.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

static const char command[] = "learner";
static const uint64_t stats_ms = 1000, progress_ms = 60000;

struct learner {
    const char *join, *address, *dir, *data, *local_data, *backend, *config, *stats, *capture;
    bool stub_dense;
    uint32_t threads, nice, streams;
    uint64_t max_up, pace_ns, checkpoint_ns, stub_ns, patience_ns;
    double speed;
    struct pl_conf conf;
    struct pl_alloc alloc;
    char folder[PL_PATH_MAX];
    char token[PL_TOKEN_TEXT_MAX]; /* "": none */
    uv_loop_t loop;
    uv_signal_t signals[PL_STOP_SIGNALS];
    uv_timer_t timer, progress;
    struct pl_learner_host_view said; /* in the last line about progress */
    uint64_t said_ns;
    FILE *stats_file, *capture_file;
    struct pl_settings settings;
    struct pl_learner_host *host;     /* or */
    struct pl_reduce_learner *reduce; /* of the synchronous algorithms */
    bool complete;                    /* the run was over before we came */
    bool done;
    struct pl_stop stop;
    struct pl_error err;
};

/* ---- who we are ---- */

/* ~/.pelago/ and the beginning of the authority's fingerprint: one folder a run. */
static enum pelago_status default_folder(struct learner *l, const struct pl_token *token)
{
    const char *home = getenv("HOME");
    uint64_t run = 0;
    for (unsigned i = 0; i < 8; i++)
        run = run << 8 | token->fingerprint[i];
    size_t len = home != NULL && home[0] == '/'
                     ? pl_fmt(l->folder, sizeof l->folder, "%s/.pelago/%lx", home, run)
                     : pl_fmt(l->folder, sizeof l->folder, "pelago-learner");
    if (len + 1 >= sizeof l->folder)
        return pl_fail(&l->err, PELAGO_LIMIT, "the name of the home folder is too long; give --dir FOLDER");
    return PELAGO_OK;
}

static enum pelago_status choose_folder(struct learner *l)
{
    struct pl_token token;
    if (l->dir != NULL && strlen(l->dir) >= sizeof l->folder)
        return pl_fail(&l->err, PELAGO_LIMIT, "the name of the folder is too long");
    (void)pl_fmt(l->folder, sizeof l->folder, "%s", l->dir != NULL ? l->dir : "");
    if (l->address != NULL)
        PL_TRY(pl_address_parse(l->address, &(struct pl_address){.port = ""}, &l->err));
    if (l->join == NULL)
        return PELAGO_OK;
    PL_TRY(pl_token_given(l->join, l->token, &l->err));
    PL_TRY(pl_token_parse(l->token, &token, &l->err));
    if (l->address != NULL) {
        if (strlen(l->address) >= sizeof token.address)
            return pl_fail(&l->err, PELAGO_LIMIT, "--address is longer than %u bytes",
                           (unsigned)sizeof token.address - 1);
        (void)pl_fmt(token.address, sizeof token.address, "%s", l->address);
        pl_token_print(&token, l->token);
    }
    return l->dir != NULL ? PELAGO_OK : default_folder(l, &token);
}

/* ---- files of the command line ---- */

/* A token is used up by joining: what would end us afterwards is found before. */
static enum pelago_status check_text(struct learner *l, const char *name)
{
    struct pl_input *in;
    if (l->join == NULL || name == NULL || strncmp(name, "builtin:", 8) == 0 || strcmp(name, "-") == 0)
        return PELAGO_OK;
    PL_TRY(pl_input_open(&in, &l->alloc, name, &l->err));
    pl_input_close(in);
    return PELAGO_OK;
}

static bool open_file(struct learner *l, const char *path, const char *mode, FILE **out)
{
    *out = path != NULL ? fopen(path, mode) : NULL;
    if (path == NULL || *out != NULL)
        return true;
    int code = errno;
    (void)pl_fail(&l->err, PELAGO_IO, "%s cannot be written: %s%s", pl_text_clip(path).at, strerror(code),
                  pl_os_advice(code));
    return false;
}

/* What an earlier session has captured is not lost before there is something to put in its place. */
static enum pelago_status check_files(struct learner *l)
{
    PL_TRY(check_text(l, l->data));
    PL_TRY(check_text(l, l->local_data));
    if (!open_file(l, l->stats, "ae", &l->stats_file) || !open_file(l, l->capture, "ae", &l->capture_file))
        return l->err.status;
    return PELAGO_OK;
}

/* ---- joining ---- */

/* What the run is decides which kind of learner this becomes. */
static enum pelago_status join(struct learner *l)
{
    struct pl_join j = {.alloc = &l->alloc,
                        .folder = l->folder,
                        .token = l->token[0] != '\0' ? l->token : NULL,
                        .address = l->address,
                        .data = l->data,
                        .local_data = l->local_data,
                        .role = PL_ROLE_LEARNER,
                        .patience_ns = l->patience_ns,
                        .log = pl_log_line};
    enum pelago_status st = pl_join_folder(&j, &l->err);
    l->complete = st == PELAGO_OK && j.complete;
    l->settings = j.settings;
    memset(&j.own, 0, sizeof j.own);
    return st;
}

/* ---- two kinds of learners behind one face ---- */

static enum pelago_status host_start(struct learner *l, const struct pl_learner_host_options *o)
{
    if (l->settings.algorithm == PL_ALGORITHM_DECOUPLED)
        return pl_learner_host_start(&l->host, o, &l->err);
    return pl_reduce_learner_start(&l->reduce, o, &l->err);
}

static void host_quit(struct learner *l)
{
    if (l->host != NULL)
        pl_learner_host_quit(l->host);
    else
        pl_reduce_learner_quit(l->reduce);
}

static void host_view(struct learner *l, struct pl_learner_host_view *out)
{
    if (l->host != NULL)
        pl_learner_host_view(l->host, out);
    else
        pl_reduce_learner_view(l->reduce, out);
}

/* ---- while it runs ---- */

/* Of every fragment the version it builds on, in the order of fragments. */
static void write_versions(const struct learner *l)
{
    uint64_t version, digest;
    for (uint32_t i = 0; l->host != NULL && pl_learner_host_version(l->host, i, &version, &digest); i++)
        fprintf(l->stats_file, "%s[%" PRIu64 ", \"%016" PRIx64 "\"]", i > 0 ? ", " : "", version, digest);
}

static void write_stats(struct learner *l)
{
    struct pl_learner_host_view v;
    if (l->stats_file == NULL)
        return;
    host_view(l, &v);
    fprintf(l->stats_file,
            "{\"pid\": %ld, \"identity\": %" PRIu64 ", \"steps\": %" PRIu64 ", \"tokens\": %" PRIu64
            ", \"loss\": %.6f, \"step_ns\": %" PRIu64 ", \"steps_timed\": %" PRIu64
            ", \"blocked_ns\": %" PRIu64 ", \"blocked_max_ns\": %" PRIu64 ", \"blocked_p999_ns\": %" PRIu64
            ", \"blocked_above_1ms\": %" PRIu64 ", \"trained_ns\": %" PRIu64 ", \"bytes_up\": %" PRIu64
            ", \"bytes_down\": %" PRIu64 ", \"live\": %s, \"versions\": [",
            (long)getpid(), v.identity, v.steps, v.tokens, v.loss, v.step_ns, v.steps_timed, v.blocked_ns,
            v.blocked_max_ns, v.blocked_p999_ns, v.blocked_above_1ms, v.trained_ns, v.bytes_up, v.bytes_down,
            v.live ? "true" : "false");
    write_versions(l);
    fprintf(l->stats_file, "]}\n");
    (void)fflush(l->stats_file);
}

static void on_timer(uv_timer_t *timer)
{
    write_stats(timer->data);
}

/* The first fragment that is none ends the count; the synchronous algorithms have none at all. */
static uint64_t count_merges(const struct learner *l)
{
    uint64_t version, digest, sum = 0;
    for (uint32_t i = 0; l->host != NULL && pl_learner_host_version(l->host, i, &version, &digest); i++)
        sum += version;
    return l->host != NULL ? sum : PL_NONE64;
}

static void on_progress(uv_timer_t *timer)
{
    struct learner *l = timer->data;
    struct pl_learner_host_view now;
    char line[PL_TEXT_MAX];
    uint64_t now_ns = pl_clock_ns();
    host_view(l, &now);
    pl_learner_line(&now, &l->said, (double)(now_ns - l->said_ns) * 1e-9, count_merges(l), line, sizeof line);
    pl_log_line(NULL, line);
    l->said = now;
    l->said_ns = now_ns;
}

static void on_signal(uv_signal_t *handle, int number)
{
    struct learner *l = handle->data;
    enum pl_stop_wish wish = pl_stop_heard(&l->stop, number, uv_now(handle->loop));
    if (wish == PL_STOP_AT_ONCE)
        _exit(128 + number);
    if (wish == PL_STOP_ECHO)
        return;
    pl_log_line(NULL, "learner.leave a signal asked for it");
    host_quit(l);
}

static void on_done(void *user, const struct pl_error *why)
{
    struct learner *l = user;
    if (why != NULL)
        l->err = *why;
    l->done = true;
    uv_stop(&l->loop);
}

/* The default is not easily guessed, and it is what goes on after an end. */
static void say_folder(const struct learner *l, const char *before)
{
    char line[PL_TEXT_MAX + PL_PATH_MAX];
    (void)pl_fmt(line, sizeof line, "%s: pelago learner --dir %s", before, l->folder);
    pl_log_line(NULL, line);
}

/* What this learner says to the syncers, for whoever wants to look at it. */
static void on_capture(void *user, bool sent, const void *bytes, size_t len)
{
    const struct learner *l = user;
    if (sent)
        (void)fwrite(bytes, 1, len, l->capture_file);
}

static enum pelago_status begin(struct learner *l)
{
    const struct pl_learner_host_options o = {.loop = &l->loop,
                                              .alloc = &l->alloc,
                                              .folder = l->folder,
                                              .token = l->token[0] != '\0' ? l->token : NULL,
                                              .local_data = l->local_data,
                                              .data = l->data,
                                              .threads = l->threads,
                                              .backend = l->backend,
                                              .up_bytes_per_s = l->max_up,
                                              .streams = l->streams,
                                              .pace_ns = l->pace_ns,
                                              .speed = l->speed,
                                              .checkpoint_ns = l->checkpoint_ns,
                                              .stub_step_ns = l->stub_ns,
                                              .stub_dense = l->stub_dense,
                                              .capture = l->capture_file != NULL ? on_capture : NULL,
                                              .log = pl_log_line,
                                              .done = on_done,
                                              .user = l};
    if (l->dir == NULL)
        say_folder(l, "learner.folder to go on later");
    PL_TRY(host_start(l, &o));
    (void)uv_timer_init(&l->loop, &l->timer);
    (void)uv_timer_init(&l->loop, &l->progress);
    l->timer.data = l->progress.data = l;
    host_view(l, &l->said);
    l->said_ns = pl_clock_ns();
    (void)uv_timer_start(&l->progress, on_progress, progress_ms, progress_ms);
    pl_stop_listen(&l->loop, l->signals, on_signal, l);
    if (l->stats_file != NULL)
        (void)uv_timer_start(&l->timer, on_timer, stats_ms, stats_ms);
    return PELAGO_OK;
}

/* ---- the end ---- */

static void say_how_it_went(struct learner *l)
{
    struct pl_learner_host_view v;
    char line[PL_TEXT_MAX];
    host_view(l, &v);
    (void)pl_fmt(line, sizeof line,
                 "learner.end identity=%lu steps=%lu tokens=%lu bytes_up=%lu bytes_down=%lu", v.identity,
                 v.steps, v.tokens, v.bytes_up, v.bytes_down);
    pl_log_line(NULL, line);
}

/* A step or a checkpoint under way took too long: nothing waits for it, not even the end of the threads. What must be on
 * the disk is there; what a checkpoint has in its unfinished file was never put in the place of the one before. */
static _Noreturn void end_beside_work(const struct learner *l)
{
    (void)fflush(NULL);
    _exit(128 + l->stop.caught);
}

static int serve(struct learner *l)
{
    if (pl_work_loop(&l->loop, &l->err) != PELAGO_OK)
        return pl_failure(command, &l->err);
    if (l->capture_file != NULL && ftruncate(fileno(l->capture_file), 0) != 0 && errno != EINVAL) {
        (void)pl_fail(&l->err, PELAGO_IO, "%s cannot be emptied: %s", pl_text_clip(l->capture).at,
                      strerror(errno));
        return pl_failure(command, &l->err);
    }
    enum pelago_status st = begin(l);
    if (st != PELAGO_OK)
        return st == PELAGO_INVALID ? pl_refusal(command, &l->err) : pl_failure(command, &l->err);
    if (!l->done)
        (void)uv_run(&l->loop, UV_RUN_DEFAULT);
    write_stats(l);
    say_how_it_went(l);
    if (l->stop.caught != 0)
        say_folder(l, "learner.stop to go on");
    if (l->host != NULL && !pl_learner_host_idle(l->host))
        end_beside_work(l);
    pl_learner_host_free(l->host);
    pl_reduce_learner_free(l->reduce);
    if (l->stop.caught != 0)
        return 128 + l->stop.caught;
    if (l->err.status != PELAGO_OK)
        return pl_failure(command, &l->err);
    pl_log_line(NULL, "learner.complete the run is complete; thank you");
    if (pl_join_note_complete(&l->alloc, l->folder, &l->err) != PELAGO_OK)
        pl_log_line(NULL, l->err.text); /* a later start would ask again */
    return PL_EXIT_OK;
}

/* ---- the command line ---- */

static const char about[] =
    "Takes part in a run:\n"
    "\n"
    "    pelago learner --join TOKEN            (pelago invite makes tokens)\n"
    "    pelago learner --dir FOLDER            (goes on, after whatever ended it)\n"
    "\n"
    "It dials out and needs no open port. Ctrl-C leaves politely, within a second. With --local-data it "
    "trains on\n"
    "text of this machine, of which nothing leaves it but changes of the model's weights; the folder "
    "remembers\n"
    "where it is.";

static bool check(struct learner *l, const struct pl_words *words, int *code)
{
    if (words->count > 0)
        *code = pl_usage_error(command, "unexpected '%s'", pl_text_clip(words->at[0]).at);
    else if (l->join == NULL && l->dir == NULL)
        *code = pl_usage_error(command,
                               "--join TOKEN is needed, or --dir FOLDER of a learner that took part before");
    else if (!(l->speed > 0 && l->speed <= 1))
        *code = pl_usage_error(command, "--speed is %g, expected above 0 and at most 1", l->speed);
    else if (l->data != NULL && l->local_data != NULL)
        *code = pl_usage_error(command,
                               "--data and --local-data exclude each other: the run's data, or private data");
    else if (pl_engine_backend_check(l->backend, &l->err) == PELAGO_INVALID ||
             pl_dataset_check_name(l->data, &l->err) != PELAGO_OK ||
             pl_dataset_check_name(l->local_data, &l->err) != PELAGO_OK)
        *code = pl_refusal(command, &l->err);
    else
        return true;
    return false;
}

static bool parse(struct learner *l, int argc, char **argv, int *code)
{
    const struct pl_option table[] = {
        {"join", "TOKEN", "who invited you; @FILE reads the token from a file", PL_OPTION_TEXT, &l->join, 0,
         0},
        {"address", "HOST:PORT",
         "the syncer is here, whatever token or folder say (it has moved; a tunnel); kept for later starts",
         PL_OPTION_TEXT, &l->address, 0, 0},
        {"dir", "FOLDER", "identity and checkpoint (default: one for each run in ~/.pelago; it says which)",
         PL_OPTION_TEXT, &l->dir, 0, 0},
        {"data", "NAME",
         "where this machine has the run's data (default: as before, else as the run calls it)",
         PL_OPTION_TEXT, &l->data, 0, 0},
        {"local-data", "NAME",
         "private text to train on instead, also in later starts; it never leaves this machine",
         PL_OPTION_TEXT, &l->local_data, 0, 0},
        {"threads", "N", "threads (default: one for each processor)", PL_OPTION_U32, &l->threads, 1,
         PL_POOL_THREADS_MAX},
        {"backend", "NAME", "ref, portable, avx2, avx512, bf16, amx or cuda (default: the best)",
         PL_OPTION_TEXT, &l->backend, 0, 0},
        {"max-up", "RATE", "send contributions no faster, such as 20Mbit or 2MB a second (default: any)",
         PL_OPTION_RATE, &l->max_up, 1000, 0},
        {"streams", "N",
         "TLS connections that carry its bulk (default: 4 where a round trip takes 20 ms, else 1)",
         PL_OPTION_U32, &l->streams, 1, PL_CONN_STREAMS_MAX},
        {"nice", "N", "leave the processor to others: 1 to 19 (default: 0)", PL_OPTION_U32, &l->nice, 0, 19},
        {"pace", "TIME", "a step takes at least this long", PL_OPTION_TIME, &l->pace_ns, 0, 3600 * PL_SEC},
        {"speed", "X", "1, or less: 0.5 makes every step take twice as long", PL_OPTION_FLOAT, &l->speed, 0,
         0},
        {"checkpoint-every", "TIME", "between two checkpoints of its own (default: seconds, later 60s)",
         PL_OPTION_TIME, &l->checkpoint_ns, PL_SEC, 0},
        {"patience", "TIME", "for a syncer that is not there when it joins (default: 60s)", PL_OPTION_TIME,
         &l->patience_ns, 0, 0},
        {"stats", "FILE", "append a line of JSON about itself every second", PL_OPTION_TEXT, &l->stats, 0, 0},
        {"capture", "FILE", "write all that is said to the syncers there, as it is before encryption",
         PL_OPTION_TEXT, &l->capture, 0, 0},
        {"stub-step", "TIME", "tests of scale: no trainer, steps by the clock, made-up changes",
         PL_OPTION_TIME, &l->stub_ns, PL_MS, 3600 * PL_SEC},
        {"stub-dense", NULL, "with it: changes of every value, which fill updates as training does",
         PL_OPTION_FLAG, &l->stub_dense, 0, 0},
        {"config", "FILE", "YAML with any of these options, key: value; the command line goes over it",
         PL_OPTION_TEXT, &l->config, 0, 0},
    };
    const struct pl_options options = {command, "--join TOKEN [OPTION...]", about, table,
                                       sizeof table / sizeof table[0]};
    struct pl_words words;
    return pl_options_parse_with_file(&options, &l->conf, argc, argv, &words, code) && check(l, &words, code);
}

int pl_cmd_learner(int argc, char **argv)
{
    static struct learner l;
    int code = PL_EXIT_OK;
    l.alloc = pl_alloc_system();
    l.speed = 1;
    l.patience_ns = 60 * PL_SEC;
    (void)signal(SIGPIPE, SIG_IGN);
    if (parse(&l, argc, argv, &code)) {
        errno = 0;
        if (l.nice > 0 && nice((int)l.nice) == -1 && errno != 0)
            pl_log_line(NULL, "learner.nice the system did not allow it; going on");
        enum pelago_status st = choose_folder(&l);
        if (st == PELAGO_OK)
            st = check_files(&l);
        if (st == PELAGO_OK)
            st = join(&l);
        if (st != PELAGO_OK)
            code = st == PELAGO_INVALID ? pl_refusal(command, &l.err) : pl_failure(command, &l.err);
        else if (l.complete)
            pl_log_line(NULL, "learner.complete the run of this folder is complete already; nothing to do");
        else
            code = serve(&l);
    }
    if (l.stats_file != NULL)
        (void)fclose(l.stats_file);
    if (l.capture_file != NULL)
        (void)fclose(l.capture_file);
    pl_conf_release(&l.conf);
    return code;
}
