/* cmd/cmd_syncer.c - pelago syncer: one shard of the syncer, and with shard 0 the run itself.
 *
 * A folder that is empty or not there begins a run; one that has a run goes on with it, and options that say something
 * else are refused. At the end of the run the global model is written into the folder as a checkpoint, so that `pelago
 * eval`, `sample` and `export` take it. The process then stays until the learners have heard of the end.
 */
#include "cmd/cmd.h"

#include "base/fmt.h"
#include "base/num.h"
#include "cmd/cluster_args.h"
#include "cmd/cluster_home.h"
#include "cmd/cluster_save.h"
#include "cmd/stop.h"
#include "cmd/text.h"
#include "host/home.h"
#include "host/join.h"
#include "host/reduce_host.h"
#include "host/syncer_host.h"
#include "host/work.h"
#include "net/address.h"
#include "os/clock.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

static const char command[] = "syncer";
static const uint64_t join_patience_ns = 60 * PL_SEC, linger_step_ms = 100;
static const uint64_t linger_max_ns = 10 * PL_SEC, linger_shards_ns = 600 * PL_SEC;
static const uint64_t default_linger_ns = 5 * PL_SEC;
static const char default_listen[] = "0.0.0.0:7441";

/* The final model on its way to the disk: learners hear of the end meanwhile, and status answers. */
struct save {
    struct pl_job job; /* first */
    struct syncer *s;
    uint64_t tokens; /* trained when the run ended */
    enum pelago_status status;
    struct pl_error err;
};

struct syncer {
    struct pl_cluster_args args;
    const char *dir, *listen, *advertise, *mirror, *record, *join, *home, *config;
    uint32_t relaxed, shard, learners_max, threads;
    struct pl_conf conf;
    struct pl_alloc alloc;
    struct pl_settings settings;
    char kept_listen[PL_ADDRESS_MAX];    /* where it listened before */
    char kept_advertise[PL_ADDRESS_MAX]; /* how it said to be dialled */
    bool is_new;
    uv_loop_t loop;
    uv_signal_t signals[PL_STOP_SIGNALS];
    uv_timer_t linger;
    uint64_t finished_ns, linger_ns; /* PL_NONE64: --linger is not given */
    bool finished, stopping, failed, saving, stop_due;
    struct save save;
    struct pl_stop stop;
    struct pl_syncer_host *host;   /* or */
    struct pl_reduce_host *reduce; /* of the synchronous algorithms */
    struct pl_error err;
};

/* ---- two kinds of syncers behind one face ---- */

static enum pelago_status host_start(struct syncer *s, const struct pl_syncer_host_options *o)
{
    if (s->settings.algorithm == PL_ALGORITHM_DECOUPLED)
        return pl_syncer_host_start(&s->host, o, &s->err);
    return pl_reduce_host_start(&s->reduce, o, &s->err);
}

static const char *host_address(const struct syncer *s)
{
    return s->host != NULL ? pl_syncer_host_address(s->host) : pl_reduce_host_address(s->reduce);
}

static const char *host_bound(const struct syncer *s)
{
    return s->host != NULL ? pl_syncer_host_bound(s->host) : pl_reduce_host_bound(s->reduce);
}

static enum pelago_status host_invite(struct syncer *s, uint64_t uses, char out[static PL_TOKEN_TEXT_MAX])
{
    if (s->host != NULL)
        return pl_syncer_host_invite(s->host, PL_ROLE_LEARNER, uses, 0, out, &s->err);
    return pl_reduce_host_invite(s->reduce, PL_ROLE_LEARNER, uses, 0, out, &s->err);
}

static enum pelago_status host_status(struct syncer *s, struct pl_buf *out)
{
    return s->host != NULL ? pl_syncer_host_status(s->host, true, out)
                           : pl_reduce_host_status(s->reduce, true, out);
}

/* Learners that are connected now. */
static uint32_t host_connected(const struct syncer *s)
{
    return s->host != NULL ? pl_syncer_host_connected(s->host) : pl_reduce_host_connected(s->reduce);
}

/* The last state of a run that is complete, for whoever comes too late to ask. */
static void keep_status(struct syncer *s)
{
    struct pl_posix_dir *dir = NULL;
    struct pl_buf text;
    pl_buf_init(&text, &s->alloc, PL_JSON_BYTES_MAX);
    if (host_status(s, &text) == PELAGO_OK &&
        pl_posix_dir_open(&dir, &s->alloc, s->dir, PL_POSIX_DIR_EXISTING, NULL) == PELAGO_OK)
        (void)pl_home_write(dir, "status.json", (struct pl_bytes){text.data, text.len}, false, NULL);
    pl_posix_dir_close(dir);
    pl_buf_release(&text);
}

/* ---- the end ---- */

static void on_stopped(void *user)
{
    struct syncer *s = user;
    uv_stop(&s->loop);
}

static void stop(struct syncer *s)
{
    if (s->stopping)
        return;
    if (s->saving) { /* the worker reads the host's values */
        s->stop_due = true;
        return;
    }
    s->stopping = true;
    if (s->host != NULL)
        pl_syncer_host_stop(s->host, on_stopped, s);
    else
        pl_reduce_host_stop(s->reduce, on_stopped, s);
}

static void on_signal(uv_signal_t *handle, int number)
{
    struct syncer *s = handle->data;
    enum pl_stop_wish wish = pl_stop_heard(&s->stop, number, uv_now(handle->loop));
    if (wish == PL_STOP_AT_ONCE)
        _exit(128 + number);
    if (wish == PL_STOP_ECHO)
        return;
    if (s->finished && !s->saving && !s->failed) /* a run whose model is not there yet is not over */
        keep_status(s);
    pl_log_line(NULL, "syncer.stop a signal asked for it; what is announced is on disk");
    stop(s);
    uv_update_time(handle->loop);
    s->stop.at_ms =
        uv_now(handle->loop); /* on a busy disk this took a while: the same wish may only be read now */
}

static void on_failed(void *user, const struct pl_error *why)
{
    struct syncer *s = user;
    s->failed = true;
    s->err = *why;
    stop(s);
}

/* Learners hear of the end on their connections and then leave; those who are away have --linger to come back and hear of
 * it. Where there are other shards, home stays longer: only it can tell a learner where they are, and they may not be
 * done. A signal ends that wait, and the run is complete all the same. */
static void on_linger(uv_timer_t *timer)
{
    struct syncer *s = timer->data;
    bool many = s->settings.shards > 1 && s->shard == 0;
    uint64_t since = pl_clock_ns() - s->finished_ns;
    bool over = since > pl_max64(s->linger_ns, many ? linger_shards_ns : linger_max_ns);
    if (!over && (many || since < s->linger_ns || host_connected(s) > 0))
        return;
    uv_timer_stop(timer);
    keep_status(s);
    stop(s);
}

/* Worker. The values stand: nothing is merged any more. */
static void save_model(struct pl_job *job)
{
    struct save *v = (struct save *)job;
    v->status = pl_cluster_save(v->s->host, v->tokens, v->s->dir, &v->err);
}

static void model_saved(struct pl_job *job)
{
    struct save *v = (struct save *)job;
    struct syncer *s = v->s;
    s->saving = false;
    if (v->status != PELAGO_OK) {
        s->failed = true;
        s->err = v->err;
        s->stop_due = true;
    } else {
        char line[PL_TEXT_MAX + PL_PATH_MAX];
        (void)pl_fmt(line, sizeof line, "run.saved the folder holds the global model: pelago sample %s",
                     s->dir);
        pl_log_line(NULL, line);
        if (s->stop_due)
            keep_status(s);
    }
    if (s->stop_due)
        stop(s);
    else
        (void)uv_timer_start(&s->linger, on_linger, linger_step_ms, linger_step_ms);
}

static void on_finished(void *user)
{
    struct syncer *s = user;
    if (s->finished)
        return;
    s->finished = true;
    s->finished_ns = pl_clock_ns();
    pl_log_line(NULL, "run.complete the token budget is reached and every fragment is merged");
    if (s->host == NULL) {
        pl_log_line(NULL, "run.saved the learner that joined first has the model: pelago sample DIR, with "
                          "its --dir");
        (void)uv_timer_start(&s->linger, on_linger, linger_step_ms, linger_step_ms);
        return;
    }
    s->saving = true;
    s->save = (struct save){
        .job = {.run = save_model, .done = model_saved}, .s = s, .tokens = pl_syncer_host_tokens(s->host)};
    pl_work_start(&s->loop, &s->save.job);
}

/* ---- the folder ---- */

/* A further shard: identity and settings come from home. */
static enum pelago_status make_shard(struct syncer *s)
{
    char token[PL_TOKEN_TEXT_MAX];
    if (s->join == NULL)
        return pl_fail(&s->err, PELAGO_INVALID,
                       "--shard %u needs --join TOKEN, which pelago invite FOLDER --role shard makes",
                       s->shard);
    PL_TRY(pl_token_given(s->join, token, &s->err));
    struct pl_join j = {.alloc = &s->alloc,
                        .folder = s->dir,
                        .token = token,
                        .address = s->home,
                        .role = PL_ROLE_SHARD,
                        .shard = s->shard,
                        .patience_ns = join_patience_ns,
                        .log = pl_log_line};
    enum pelago_status st = pl_join_folder(&j, &s->err);
    s->settings = j.settings;
    memset(&j.own, 0, sizeof j.own);
    return st;
}

/* What an earlier start wrote down; "": nothing. */
static void recall_line(const struct syncer *s, const char *name, char out[static PL_ADDRESS_MAX])
{
    char path[PL_PATH_MAX];
    if (pl_path_join(path, s->dir, name, NULL) != PELAGO_OK ||
        pl_path_read_line(path, out, PL_ADDRESS_MAX, NULL) != PELAGO_OK)
        out[0] = '\0';
}

/* "host:0" is any port, but the same again: learners know no other. */
static const char *choose_listen(const struct syncer *s)
{
    const char *colon = s->listen != NULL ? strrchr(s->listen, ':') : NULL;
    bool any = colon != NULL && strcmp(colon, ":0") == 0;
    if (s->listen == NULL)
        return s->kept_listen[0] != '\0' ? s->kept_listen : default_listen;
    size_t host = any ? (size_t)(colon - s->listen) + 1 : 0;
    return any && s->kept_listen[0] != '\0' && strncmp(s->kept_listen, s->listen, host) == 0 ? s->kept_listen
                                                                                             : s->listen;
}

static enum pelago_status load_settings(struct syncer *s)
{
    struct pl_posix_dir *dir = NULL;
    PL_TRY(pl_posix_dir_open(&dir, &s->alloc, s->dir, PL_POSIX_DIR_EXISTING, &s->err));
    enum pelago_status st = pl_home_load_settings(dir, &s->alloc, &s->settings, NULL, &s->err);
    pl_posix_dir_close(dir);
    if (st == PELAGO_OK)
        recall_line(s, "listen", s->kept_listen);
    if (st == PELAGO_OK)
        recall_line(s, "advertise", s->kept_advertise);
    /* Whoever listens elsewhere is dialled otherwise, too. */
    if (s->advertise == NULL && s->kept_advertise[0] != '\0' && strcmp(choose_listen(s), s->kept_listen) == 0)
        s->advertise = s->kept_advertise;
    return st;
}

/* PL_EXIT_OK, or the code after saying what is wrong: 2 for what was asked, 1 for what was found. */
static int create(struct syncer *s)
{
    struct pl_train_plan plan;
    if (pl_cluster_settings(&s->args, &plan, &s->settings, &s->err) != PELAGO_OK)
        return pl_refusal(command, &s->err);
    enum pelago_status st = pl_listen_check(choose_listen(s), &s->err); /* before anything is written */
    if (st == PELAGO_INVALID)
        return pl_refusal(command, &s->err);
    if (st == PELAGO_OK) {
        pl_log_line(NULL, "syncer.create a new run; reading the data and its tokenizer");
        st = pl_cluster_create(&s->args, s->dir, &s->settings, &s->err);
    }
    if (pl_train_args_vocab_is_small(&s->args.train, st))
        return pl_refusal(command, &s->err);
    return st == PELAGO_OK ? PL_EXIT_OK : pl_failure(command, &s->err);
}

/* A folder without settings may still be somebody's: nothing begins in it, and it is said what is missing. */
static enum pelago_status check_lost(struct syncer *s)
{
    struct pl_posix_dir *dir = NULL;
    struct pl_credentials own = {.role = PL_ROLE_NONE};
    if (!pl_path_exists(s->dir, "authority") && !pl_path_exists(s->dir, "credentials"))
        return PELAGO_OK;
    if (pl_posix_dir_open(&dir, &s->alloc, s->dir, PL_POSIX_DIR_EXISTING, NULL) == PELAGO_OK)
        (void)pl_home_load_credentials(dir, "credentials", &s->alloc, &own, NULL);
    pl_posix_dir_close(dir);
    bool learner = own.role == PL_ROLE_LEARNER;
    memset(&own, 0, sizeof own);
    if (learner)
        return pl_fail(&s->err, PELAGO_INVALID, "%s is a learner's folder: give another --dir",
                       pl_text_clip(s->dir).at);
    return pl_fail(&s->err, PELAGO_CORRUPT,
                   "%s has a run, but its settings.json is missing: put it back, from the mirror's or a "
                   "learner's folder",
                   pl_text_clip(s->dir).at);
}

/* The same. */
static int prepare(struct syncer *s)
{
    s->is_new = !pl_path_exists(s->dir, "settings.json");
    enum pelago_status st = s->is_new && s->join == NULL ? check_lost(s) : PELAGO_OK;
    if (st != PELAGO_OK)
        return st == PELAGO_INVALID ? pl_refusal(command, &s->err) : pl_failure(command, &s->err);
    if (!s->is_new) {
        st = load_settings(s);
        if (st == PELAGO_OK &&
            pl_cluster_refuse_changes(&s->args, s->dir, &s->settings, &s->err) != PELAGO_OK)
            return pl_refusal(command, &s->err);
    } else if (s->shard > 0 || s->join != NULL) {
        st = make_shard(s);
    } else {
        return create(s);
    }
    if (st == PELAGO_OK && s->shard >= s->settings.shards) {
        st = pl_fail(&s->err, PELAGO_INVALID, "--shard is %u, but the run has %u: they count from 0",
                     s->shard, s->settings.shards);
    }
    if (st == PELAGO_INVALID)
        return pl_refusal(command, &s->err);
    return st == PELAGO_OK ? PL_EXIT_OK : pl_failure(command, &s->err);
}

/* ---- running ---- */

/* For later starts; one that cannot be written costs no more than saying it again. "" takes it away. */
static void keep_line(struct syncer *s, const char *folder, const char *name, const char *line)
{
    struct pl_posix_dir *dir = NULL;
    if (pl_posix_dir_open(&dir, &s->alloc, folder, PL_POSIX_DIR_EXISTING, NULL) == PELAGO_OK)
        (void)pl_home_write(dir, name, (struct pl_bytes){line, strlen(line)}, false, NULL);
    pl_posix_dir_close(dir);
}

/* For choose_listen, after a restart here or from the mirror; how others dial it is true of this machine alone. */
static void keep_addresses(struct syncer *s)
{
    keep_line(s, s->dir, "listen", host_bound(s));
    if (s->mirror != NULL)
        keep_line(s, s->mirror, "listen", host_bound(s));
    if (s->advertise != NULL || s->kept_advertise[0] != '\0')
        keep_line(s, s->dir, "advertise", s->advertise != NULL ? s->advertise : "");
}

/* How the next one joins. Only where the run is new: tokens that nobody asked for are doors left open. */
static enum pelago_status introduce(struct syncer *s)
{
    char token[PL_TOKEN_TEXT_MAX], line[PL_TEXT_MAX];
    uint32_t uses = s->settings.learners;
    (void)pl_fmt(line, sizeof line, "syncer.listen address=%s on=%s run=%lx", host_address(s), host_bound(s),
                 s->settings.run_id);
    pl_log_line(NULL, line);
    if (s->shard > 0)
        return PELAGO_OK;
    if (s->is_new) {
        PL_TRY(host_invite(s, uses, token));
        printf("To take part, on any machine%s:\n\n    pelago learner --join %s\n\n",
               uses > 1 ? "" : " (one learner; pelago invite makes more tokens)", token);
    }
    printf("To watch: pelago top ");
    pl_text_quote(stdout, s->dir);
    printf("    more tokens: pelago invite ");
    pl_text_quote(stdout, s->dir);
    printf("\n");
    (void)fflush(stdout);
    return PELAGO_OK;
}

static enum pelago_status begin(struct syncer *s)
{
    const char *listen = choose_listen(s);
    const struct pl_syncer_host_options o = {.loop = &s->loop,
                                             .alloc = &s->alloc,
                                             .folder = s->dir,
                                             .mirror = s->mirror,
                                             .listen = listen,
                                             .advertise = s->advertise,
                                             .home = s->home,
                                             .shard = s->shard,
                                             .relaxed = s->relaxed,
                                             .learners_max = s->learners_max,
                                             .threads = s->threads,
                                             .record = s->record,
                                             .log = pl_log_line,
                                             .finished = on_finished,
                                             .failed = on_failed,
                                             .user = s};
    /* Reading a journal takes as long as it is large, and the loop that hears of signals is not running:
     * until here they end the process at once, which costs no more than kill -9. */
    PL_TRY(host_start(s, &o));
    pl_stop_listen(&s->loop, s->signals, on_signal, s);
    keep_addresses(s);
    return introduce(s);
}

static enum pelago_status open_loop(struct syncer *s)
{
    PL_TRY(pl_work_loop(&s->loop, &s->err));
    (void)uv_timer_init(&s->loop, &s->linger);
    s->linger.data = s;
    return PELAGO_OK;
}

static int serve(struct syncer *s)
{
    enum pelago_status st = open_loop(s);
    if (st == PELAGO_OK)
        st = begin(s);
    if (st == PELAGO_OK)
        (void)uv_run(&s->loop, UV_RUN_DEFAULT);
    if (st != PELAGO_OK || s->failed)
        return st == PELAGO_INVALID ? pl_refusal(command, &s->err) : pl_failure(command, &s->err);
    pl_log_line(NULL, s->finished ? "syncer.end the run is complete"
                                  : "syncer.end stopped; the same command goes on");
    return s->finished || s->stop.caught == 0 ? PL_EXIT_OK : 128 + s->stop.caught;
}

/* ---- the command line ---- */

static const char about[] =
    "Begins a run in an empty folder, or goes on with the run of a folder:\n"
    "\n"
    "    pelago syncer --dir run --model 14m --data builtin:tales --tokens 100M --learners 4\n"
    "    pelago syncer --dir run\n"
    "\n"
    "It prints how learners join. What is trained is said once, when the run begins; learners get it from "
    "here.\n"
    "Ctrl-C or SIGTERM ends it politely; learners train on meanwhile and the same command goes on. When the "
    "tokens\n"
    "are trained the folder holds the model: pelago sample FOLDER, eval, export.";

static bool parse(struct syncer *s, int argc, char **argv, int *code)
{
    const struct pl_option own[] = {
        {"dir", "FOLDER", "the run's folder", PL_OPTION_TEXT, &s->dir, 0, 0},
        {"listen", "ADDRESS", "host:port to listen on (default: as before, else 0.0.0.0:7441)",
         PL_OPTION_TEXT, &s->listen, 0, 0},
        {"advertise", "ADDRESS",
         "host:port as learners dial it (default: as before; from --listen and the host's name)",
         PL_OPTION_TEXT, &s->advertise, 0, 0},
        {"mirror", "FOLDER", "gets every byte of the journal before it is announced", PL_OPTION_TEXT,
         &s->mirror, 0, 0},
        {"relaxed", "N", "sync the journal every N records only (default: every one, before it is announced)",
         PL_OPTION_U32, &s->relaxed, 1, 1000000},
        {"shard", "N", "which shard of the syncer this is; 0 is home (default: 0)", PL_OPTION_U32, &s->shard,
         0, PL_SHARDS_MAX - 1},
        {"join", "TOKEN", "further shards: a token of pelago invite --role shard; @FILE reads it from there",
         PL_OPTION_TEXT, &s->join, 0, 0},
        {"home", "HOST:PORT",
         "further shards: the home shard is here, whatever token or folder say; kept for later starts",
         PL_OPTION_TEXT, &s->home, 0, 0},
        {"learners-max", "N", "identities at once (default: 1024)", PL_OPTION_U32, &s->learners_max, 1,
         PL_LEARNERS_MAX},
        {"merge-threads", "N", "threads of one merge (default: 2)", PL_OPTION_U32, &s->threads, 1, 256},
        {"linger", "TIME", "stay this long after the end, for learners that are away (default: 5s)",
         PL_OPTION_TIME, &s->linger_ns, 0, 0},
        {"record", "FILE", "write every event of the protocol there, for pelago replay", PL_OPTION_TEXT,
         &s->record, 0, 0},
        {"config", "FILE", "YAML with any of these options, key: value; the command line goes over it",
         PL_OPTION_TEXT, &s->config, 0, 0},
    };
    struct pl_option table[PL_CLUSTER_OPTIONS_MAX + sizeof own / sizeof own[0]];
    uint32_t count = sizeof own / sizeof own[0];
    memcpy(table, own, sizeof own);
    count += pl_cluster_options(&s->args, table + count);
    const struct pl_options options = {command, "--dir FOLDER [OPTION...]", about, table, count};
    struct pl_words words;
    if (!pl_options_parse_with_file(&options, &s->conf, argc, argv, &words, code))
        return false;
    if (words.count > 0)
        *code = pl_usage_error(command, "unexpected '%s'", pl_text_clip(words.at[0]).at);
    else if (s->dir == NULL)
        *code = pl_usage_error(command, "--dir FOLDER is needed: the run lives there");
    else if (s->home != NULL && s->shard == 0)
        *code = pl_usage_error(command, "--home is for a further shard, which --shard N says");
    else if ((s->advertise != NULL && pl_address_dialable(s->advertise, &s->err) != PELAGO_OK) ||
             (s->home != NULL && pl_address_dialable(s->home, &s->err) != PELAGO_OK))
        *code = pl_refusal(command, &s->err); /* now: a run once made refuses the corrected line */
    else
        return pl_cluster_args_check(&s->args, command, code);
    return false;
}

/* It has said its last word, and nobody asked for more. Of several shards home is needed as long as one of the others is not
 * done, which it does not know. */
static bool is_over(const struct syncer *s)
{
    return s->linger_ns == PL_NONE64 && s->settings.shards == 1 && pl_path_exists(s->dir, "status.json");
}

static int say_over(const struct syncer *s)
{
    printf("the run in ");
    pl_text_quote(stdout, s->dir);
    printf(" is complete already; with --linger 1h learners that have not heard of it could still call\n");
    return PL_EXIT_OK;
}

static int work(struct syncer *s)
{
    int code = prepare(s);
    if (code != PL_EXIT_OK)
        return code;
    if (is_over(s))
        return say_over(s);
    if (s->linger_ns == PL_NONE64)
        s->linger_ns = default_linger_ns;
    return serve(s);
}

int pl_cmd_syncer(int argc, char **argv)
{
    static struct syncer s; /* settings and configuration are large */
    int code;
    pl_alloc_map_large(); /* versions of fragments come and go */
    s.alloc = pl_alloc_system();
    s.learners_max = 1024;
    s.threads = 2;
    s.linger_ns = PL_NONE64;
    pl_cluster_args_init(&s.args);
    (void)signal(SIGPIPE, SIG_IGN);
    if (parse(&s, argc, argv, &code))
        code = work(&s);
    pl_conf_release(&s.conf);
    return code;
}
