/* cmd/cmd_status.c - pelago status: what a run is doing now, once or every so often. */
#include "cmd/cmd.h"

#include "cmd/cluster_home.h"
#include "cmd/cluster_shards.h"
#include "cmd/cluster_view.h"
#include "cmd/options.h"
#include "cmd/run_file.h"
#include "train/json.h"

#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char command[] = "status";
static const uint64_t patience_ns = 5 * PL_SEC;

/* JSON on one line, whatever the syncer's layout: one line is one state. */
static enum pelago_status print_json(struct pl_bytes text, struct pl_error *err)
{
    json_t *root = NULL;
    PL_TRY(pl_json_parse(text, "the status", &root, err));
    int failed = json_dumpf(root, stdout, JSON_COMPACT);
    json_decref(root);
    printf("\n");
    return failed == 0 ? PELAGO_OK : pl_fail(err, PELAGO_IO, "the status could not be written");
}

static enum pelago_status print_text(struct pl_bytes text, struct pl_error *err)
{
    static struct pl_cluster_view view;
    static struct pl_view_page page;
    PL_TRY(pl_cluster_view_parse(&view, text, err));
    page.count = 0;
    pl_cluster_view_page(&view, 0, false, PL_VIEW_LINES_MAX, &page);
    for (uint32_t i = 0; i < page.count; i++)
        printf("%s\n", page.line[i]);
    return PELAGO_OK;
}

static enum pelago_status show(struct pl_operator *who, bool json, struct pl_error *err)
{
    struct pl_alloc alloc = pl_alloc_system();
    const struct pl_question q = {.what = PL_ASK_STATUS};
    struct pl_buf answer;
    pl_buf_init(&answer, &alloc, PL_JSON_BYTES_MAX);
    enum pelago_status st = pl_operator_reload(who, err);
    if (st == PELAGO_OK)
        st = pl_operator_ask(who, &q, patience_ns, &answer, err);
    if (pl_is_away(st) && pl_operator_last_status(who, &answer))
        st = PELAGO_OK;
    else if (pl_is_away(st))
        pl_run_file_advise(who->folder, err);
    if (st == PELAGO_OK) {
        pl_run_file_complete(who->folder, &answer);
        pl_shards_complete(who, &answer);
    }
    struct pl_bytes text = {answer.data, answer.len};
    if (st == PELAGO_OK)
        st = json ? print_json(text, err) : print_text(text, err);
    pl_buf_release(&answer);
    (void)fflush(stdout);
    return st;
}

static void wait_for(uint64_t ns)
{
    struct timespec left = {(time_t)(ns / PL_SEC), (long)(ns % PL_SEC)};
    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        ;
}

/* For ever, or until nobody reads: a syncer that is away is said and asked again. */
static int follow(struct pl_operator *who, bool json, uint64_t every_ns)
{
    struct pl_error err;
    while (!ferror(stdout)) {
        if (show(who, json, &err) != PELAGO_OK) {
            (void)pl_failure(command, &err);
            if (json)
                printf("{\"error\": \"unreachable\"}\n");
            (void)fflush(stdout);
        } else if (!json) {
            printf("\n");
        }
        wait_for(every_ns);
    }
    return PL_EXIT_OK;
}

int pl_cmd_status(int argc, char **argv)
{
    static struct pl_operator who;
    bool json = false;
    uint64_t every_ns = 0;
    const struct pl_option table[] = {
        {"json", NULL, "all of it, one line of JSON", PL_OPTION_FLAG, &json, 0, 0},
        {"every", "TIME", "again and again, such as every 5s", PL_OPTION_TIME, &every_ns, 100 * PL_MS,
         86400 * PL_SEC},
    };
    const struct pl_options options = {
        command, "FOLDER [OPTION...]",
        "What a run is doing now. FOLDER is that of the syncer, or the --out of pelago run.", table,
        sizeof table / sizeof table[0]};
    struct pl_words words;
    struct pl_error err;
    int code;
    if (!pl_options_parse(&options, argc, argv, &words, &code))
        return code;
    if (words.count != 1)
        return pl_usage_error(command, "expected one folder, that of the syncer");
    if (pl_operator_load(&who, words.at[0], &err) != PELAGO_OK)
        return pl_failure(command, &err);
    if (every_ns > 0)
        return follow(&who, json, every_ns);
    return show(&who, json, &err) == PELAGO_OK ? PL_EXIT_OK : pl_failure(command, &err);
}
