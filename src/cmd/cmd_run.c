/* cmd/cmd_run.c - pelago run: a cluster on this machine, from an empty folder to a report.
 *
 *   OUT/syncer      the home shard's folder; syncer-1 ... further shards
 *   OUT/learner-1   ...
 *   OUT/log/        what each process said
 *   OUT/run.json    which process is which
 *   OUT/            at the end: the model as a checkpoint, report.json, report.md
 */
#include "cmd/cmd.h"

#include "base/fmt.h"
#include "cmd/cluster_home.h"
#include "cmd/run_cluster.h"
#include "cmd/text.h"
#include "cmd/train_view.h"
#include "host/home.h"
#include "os/clock.h"
#include "train/json.h"

#include <signal.h>
#include <string.h>

enum { LEARNERS = 4, TURN_MS = 100 };
static const uint64_t start_ns = 120 * PL_SEC, ask_ns = 3 * PL_SEC, ask_again_ns = 5 * PL_SEC;
static const uint64_t learners_leave_ns = 10 * PL_SEC, syncers_leave_ns = 10 * PL_SEC;

/* ---- the folder ---- */

static enum pelago_status make_folders(struct pl_run *r)
{
    const char *const folders[] = {r->args.out, r->log};
    for (unsigned i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        struct pl_posix_dir *dir = NULL;
        PL_TRY(pl_posix_dir_open(&dir, &r->alloc, folders[i], PL_POSIX_DIR_CREATE, &r->err));
        pl_posix_dir_close(dir);
    }
    return PELAGO_OK;
}

/* Two of us in one folder would each write down their own processes. */
static enum pelago_status take_folder(struct pl_run *r)
{
    PL_TRY(make_folders(r));
    PL_TRY(pl_posix_dir_open(&r->folder, &r->alloc, r->args.out, PL_POSIX_DIR_EXISTING, &r->err));
    return pl_posix_dir_lock(r->folder, r->args.out, "--out", &r->err);
}

static enum pelago_status name_paths(struct pl_run *r)
{
    char path[PL_PATH_MAX];
    PL_TRY(pl_path_join(r->home, r->args.out, "syncer", &r->err));
    PL_TRY(pl_path_join(r->log, r->args.out, "log", &r->err));
    PL_TRY(pl_path_join(path, r->args.out, "learner.token", &r->err));
    (void)snprintf(r->learner_token, sizeof r->learner_token, "@%.4094s", path);
    PL_TRY(pl_path_join(path, r->args.out, "shard.token", &r->err));
    (void)snprintf(r->shard_token, sizeof r->shard_token, "@%.4094s", path);
    return PELAGO_OK;
}

/* Options about this machine that are not given again are those of before. */
static void recall_text(const struct pl_json *j, const char *name, const char **into)
{
    const json_t *value = pl_json_find(j, name);
    if (*into == NULL && json_is_string(value) && json_string_length(value) > 0)
        *into = json_string_value(value);
}

static void recall_number(const struct pl_json *j, const char *name, uint32_t *into)
{
    uint32_t value;
    if (*into == 0 && pl_json_u32(j, name, &value) == PELAGO_OK)
        *into = value;
}

/* Texts stay in the tree, which lives as long as the process. */
static void recall_machine(struct pl_run *r)
{
    struct pl_posix_dir *dir = NULL;
    struct pl_buf text;
    static json_t *root;
    struct pl_error err;
    pl_buf_init(&text, &r->alloc, PL_JSON_BYTES_MAX);
    if (pl_posix_dir_open(&dir, &r->alloc, r->args.out, PL_POSIX_DIR_EXISTING, NULL) == PELAGO_OK &&
        pl_home_read(dir, "run.json", &text, NULL) == PELAGO_OK &&
        pl_json_parse((struct pl_bytes){text.data, text.len}, "run.json", &root, NULL) == PELAGO_OK) {
        const struct pl_json j = {root, "run.json", &err};
        r->time_is_past = r->args.time_ns == 0 && json_is_integer(pl_json_find(&j, "ends_at"));
        recall_number(&j, "machine.threads", &r->args.threads);
        r->args.proxy = r->args.proxy || json_is_true(pl_json_find(&j, "machine.proxy"));
        recall_number(&j, "machine.relaxed", &r->args.relaxed);
        recall_text(&j, "machine.pace", &r->args.pace);
        recall_text(&j, "machine.speed", &r->args.speed);
        recall_text(&j, "machine.max-up", &r->args.max_up);
        recall_text(&j, "machine.backend", &r->args.backend);
        recall_text(&j, "machine.listen", &r->args.listen);
    }
    pl_totals_recall(&r->totals, json_object_get(root, "totals"));
    pl_posix_dir_close(dir);
    pl_buf_release(&text);
}

/* PL_EXIT_OK, or the code after saying what is wrong. */
static int resume(struct pl_run *r)
{
    struct pl_posix_dir *dir = NULL;
    if (!pl_path_exists(r->home, "settings.json")) {
        (void)pl_fail(&r->err, PELAGO_NOTFOUND, "%s holds no run to go on with; without --resume one begins",
                      pl_text_clip(r->args.out).at);
        return pl_failure(pl_run_command, &r->err);
    }
    enum pelago_status st = pl_posix_dir_open(&dir, &r->alloc, r->home, PL_POSIX_DIR_EXISTING, &r->err);
    if (st == PELAGO_OK)
        st = pl_home_load_settings(dir, &r->alloc, &r->settings, NULL, &r->err);
    pl_posix_dir_close(dir);
    if (st != PELAGO_OK)
        return pl_failure(pl_run_command, &r->err);
    if (pl_cluster_refuse_changes(&r->args.cluster, r->home, &r->settings, &r->err) != PELAGO_OK)
        return pl_refusal(pl_run_command, &r->err);
    int code = PL_EXIT_OK;
    if (pl_run_args_check_lists(&r->args, r->settings.learners, &code))
        recall_machine(r);
    return code;
}

/* A beginning that failed or was killed leaves these. */
static enum pelago_status see_name(void *user, const char *name)
{
    static const char unfinished[] = "syncer.partial-";
    (void)user;
    return strcmp(name, "log") == 0 || strncmp(name, unfinished, sizeof unfinished - 1) == 0 ? PELAGO_OK
                                                                                             : PELAGO_STALE;
}

/* Files of a run are written under plain names: in a folder of other things they would take the place of some. */
static enum pelago_status check_free(struct pl_run *r)
{
    struct pl_posix_dir *dir = NULL;
    if (pl_path_exists(r->home, "settings.json"))
        return pl_fail(&r->err, PELAGO_INVALID,
                       "%s holds a run: --resume goes on with it, another --out begins anew",
                       pl_text_clip(r->args.out).at);
    if (pl_posix_dir_open(&dir, &r->alloc, r->args.out, PL_POSIX_DIR_EXISTING, NULL) != PELAGO_OK)
        return PELAGO_OK;
    const struct pl_dir table = pl_posix_dir_table(dir);
    enum pelago_status st = table.ops->list(table.self, see_name, NULL);
    pl_posix_dir_close(dir);
    return st == PELAGO_OK ? st
                           : pl_fail(&r->err, PELAGO_INVALID,
                                     "%s is there and not empty: give a run a folder of its own with --out",
                                     pl_text_clip(r->args.out).at);
}

static int begin(struct pl_run *r)
{
    if (check_free(r) != PELAGO_OK)
        return pl_refusal(pl_run_command, &r->err);
    if (r->args.cluster.learners == 0)
        r->args.cluster.learners = LEARNERS;
    int code;
    if (!pl_run_args_check_lists(&r->args, r->args.cluster.learners, &code))
        return code;
    struct pl_train_plan plan;
    if (pl_cluster_settings(&r->args.cluster, &plan, &r->settings, &r->err) != PELAGO_OK)
        return pl_refusal(pl_run_command, &r->err);
    if (r->settings.quorum > r->settings.learners) {
        (void)pl_fail(&r->err, PELAGO_INVALID, "--quorum is %u, which %u learners never are",
                      r->settings.quorum, r->settings.learners);
        return pl_refusal(pl_run_command, &r->err);
    }
    if (!r->args.quiet && !r->screen.live)
        printf("a new run in %s: reading the data and its tokenizer\n", pl_text_clip(r->args.out).at);
    enum pelago_status st = make_folders(r);
    if (st == PELAGO_OK)
        st = pl_cluster_create(&r->args.cluster, r->home, &r->settings, &r->err);
    if (pl_train_args_vocab_is_small(&r->args.cluster.train, st))
        return pl_refusal(pl_run_command, &r->err);
    return st == PELAGO_OK ? PL_EXIT_OK : pl_failure(pl_run_command, &r->err);
}

/* ---- starting ---- */

/* A token for our own processes, in a file that only we can read. Asked for once; a run that goes on still has it. */
static enum pelago_status fetch_token(struct pl_run *r, enum pl_role role, const char *name)
{
    static struct pl_operator who;
    struct pl_posix_dir *dir = NULL;
    struct pl_buf answer;
    const struct pl_question q = {.what = PL_ASK_INVITE, .uses = PL_LEARNERS_MAX, .role = role};
    pl_buf_init(&answer, &r->alloc, PL_TOKEN_TEXT_MAX);
    enum pelago_status st = pl_operator_load(&who, r->home, &r->err);
    if (st == PELAGO_OK)
        st = pl_operator_ask(&who, &q, ask_ns, &answer, &r->err);
    if (st == PELAGO_OK)
        st = pl_posix_dir_open(&dir, &r->alloc, r->args.out, PL_POSIX_DIR_EXISTING, &r->err);
    if (st == PELAGO_OK)
        st = pl_home_write(dir, name, (struct pl_bytes){answer.data, answer.len}, true, &r->err);
    pl_posix_dir_close(dir);
    pl_buf_release(&answer);
    return st;
}

/* The home shard may need a moment, or be killed in it: it is asked until it answers. */
static enum pelago_status wait_for_token(struct pl_run *r, enum pl_role role, const char *name)
{
    uint64_t begin_ns = pl_clock_ns();
    while (!pl_path_exists(r->args.out, name)) {
        PL_TRY(pl_run_turn(r, TURN_MS));
        if (pl_run_caught() != 0)
            return PELAGO_OK;
        if (!pl_path_exists(r->home, "address"))
            continue;
        enum pelago_status st = fetch_token(r, role, name);
        bool later = pl_is_away(st) || st == PELAGO_NOTFOUND;
        if (st != PELAGO_OK && (!later || pl_clock_ns() - begin_ns > start_ns))
            return st;
    }
    return PELAGO_OK;
}

static enum pelago_status start_all(struct pl_run *r)
{
    PL_TRY(pl_run_start(r, &r->syncers[0]));
    PL_TRY(wait_for_token(r, PL_ROLE_LEARNER, "learner.token"));
    if (r->settings.shards > 1)
        PL_TRY(wait_for_token(r, PL_ROLE_SHARD, "shard.token"));
    if (pl_run_caught() != 0)
        return PELAGO_OK;
    PL_TRY(pl_run_proxy_start(r));
    if (pl_run_caught() != 0)
        return PELAGO_OK;
    for (uint32_t i = 1; i < r->settings.shards; i++)
        PL_TRY(pl_run_start(r, &r->syncers[i]));
    for (uint32_t i = 0; i < r->settings.learners; i++)
        PL_TRY(pl_run_start(r, &r->learners[i]));
    return pl_child_start(&r->watcher, r->program, pl_clock_ns(), &r->err);
}

/* ---- stopping ---- */

/* Tells them to leave; those who have not after a while are killed. */
static void dismiss(struct pl_run *r, bool learners, uint64_t patience_ns)
{
    uint64_t begin_ns = pl_clock_ns();
    pl_run_tell(r, learners, SIGTERM);
    while (pl_run_alive(r, learners) && pl_clock_ns() - begin_ns < patience_ns)
        (void)pl_run_turn(r, TURN_MS);
    pl_run_tell(r, learners, SIGKILL);
    while (pl_run_alive(r, learners))
        (void)pl_run_turn(r, TURN_MS);
}

static void stop_all(struct pl_run *r)
{
    bool complete = pl_run_complete(r); /* not of those who were told to leave */
    r->ending = true;
    dismiss(r, true, learners_leave_ns);
    dismiss(r, false, syncers_leave_ns);
    pl_run_proxy_stop(r);
    pl_child_tell(&r->watcher, SIGKILL);
    pl_run_show_end(r, complete);
    pl_run_write_json(r);
}

/* Learners hear of the end by themselves; only those who do not are told. */
static void let_leave(struct pl_run *r)
{
    uint64_t begin_ns = pl_clock_ns();
    r->ending = true;
    while (pl_run_alive(r, true) && pl_clock_ns() - begin_ns < learners_leave_ns)
        (void)pl_run_turn(r, TURN_MS);
    stop_all(r);
}

static int say_stopped(struct pl_run *r)
{
    printf("stopped");
    if (r->known)
        printf(" at %s of %s tokens", pl_view_count((double)r->view.tokens).at,
               pl_view_count((double)r->settings.total_tokens).at);
    printf("; to go on: pelago run --resume --out ");
    pl_text_quote(stdout, r->args.out);
    printf("\n");
    return 128 + pl_run_caught();
}

/* Whoever asked while the last learners left wants no minutes of judging. */
static int say_unjudged(const struct pl_run *r)
{
    printf("the run is complete; to judge its model: pelago run --resume --out ");
    pl_text_quote(stdout, r->args.out);
    printf("\n");
    return 128 + pl_run_caught();
}

/* ---- the whole ---- */

/* The time is over: closing rounds take everybody's remainder. Asked again where the answer was lost; it is the same end. */
static void end_in_time(struct pl_run *r, uint64_t *asked_ns)
{
    static struct pl_operator who;
    const struct pl_question q = {.what = PL_ASK_FINISH};
    uint64_t now = pl_clock_ns();
    struct pl_buf answer;
    if (r->args.time_ns == 0 || now - r->begin_ns < r->args.time_ns || now - *asked_ns < ask_again_ns)
        return;
    if (*asked_ns == 0)
        pl_run_event(r, "the time", "is over; what everybody has is merged, then the run ends");
    *asked_ns = now;
    pl_buf_init(&answer, &r->alloc, PL_JSON_BYTES_MAX);
    if (pl_operator_load(&who, r->home, NULL) == PELAGO_OK)
        (void)pl_operator_ask(&who, &q, ask_ns, &answer, NULL);
    pl_buf_release(&answer);
}

static int watch(struct pl_run *r)
{
    uint64_t asked_ns = 0;
    if (r->time_is_past)
        fprintf(stderr,
                "pelago run: the --time of before has stopped; the run goes on to its %s tokens unless "
                "--time is said again\n",
                pl_view_count((double)r->settings.total_tokens).at);
    enum pelago_status st = start_all(r);
    while (st == PELAGO_OK && pl_run_caught() == 0 && !pl_run_complete(r)) {
        end_in_time(r, &asked_ns);
        st = pl_run_turn(r, TURN_MS);
    }
    if (st != PELAGO_OK) {
        struct pl_error why = r->err;
        stop_all(r);
        return pl_failure(pl_run_command, &why);
    }
    if (pl_run_caught() != 0 && !pl_run_complete(r)) {
        stop_all(r);
        return say_stopped(r);
    }
    let_leave(r);
    return pl_run_caught() != 0 ? say_unjudged(r) : pl_run_report(r);
}

/* Every syncer said its last word: nothing is left to train. */
static bool is_complete(const struct pl_run *r)
{
    for (uint32_t i = 0; i < r->settings.shards; i++)
        if (!pl_path_exists(r->syncers[i].folder, "status.json"))
            return false;
    return true;
}

/* A report that is there has more to say than one that begins now. */
static int report_again(struct pl_run *r)
{
    if (!pl_path_exists(r->args.out, "report.json"))
        return pl_run_report(r);
    pl_run_take_last_status(r);
    if (r->known && r->view.tokens < r->settings.total_tokens) {
        printf("the run ended after its time with %s of %s tokens, and cannot go on; to train its model on "
               "alone: "
               "pelago train --resume --out ",
               pl_view_count((double)r->view.tokens).at, pl_view_count((double)r->settings.total_tokens).at);
        pl_text_quote(stdout, r->args.out);
        printf("\nits report: ");
    } else {
        printf("the run has its tokens already; its report: ");
    }
    pl_text_quote(stdout, r->args.out);
    printf("/report.md\n");
    return PL_EXIT_OK;
}

static int run(struct pl_run *r)
{
    pl_screen_open(&r->screen);
    if (name_paths(r) != PELAGO_OK)
        return pl_failure(pl_run_command, &r->err);
    int code = r->args.resume ? resume(r) : begin(r);
    if (code != PL_EXIT_OK)
        return code;
    if (take_folder(r) != PELAGO_OK || pl_run_prepare(r) != PELAGO_OK)
        return pl_failure(pl_run_command, &r->err);
    return is_complete(r) ? report_again(r) : watch(r);
}

int pl_cmd_run(int argc, char **argv)
{
    static struct pl_run r; /* the history is large */
    int code;
    r.alloc = pl_alloc_system();
    if (pl_run_args_parse(&r.args, argc, argv, &code))
        code = run(&r);
    pl_run_release(&r);
    pl_conf_release(&r.args.conf);
    return code;
}
