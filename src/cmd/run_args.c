/* cmd/run_args.c - see run_args.h. */
#include "cmd/run_args.h"

#include "base/pool.h"
#include "cmd/cmd.h"
#include "cmd/text.h"
#include "model/engine.h"
#include "net/address.h"

#include <string.h>

const char pl_run_command[] = "run";

static const char about[] =
    "A cluster on this machine: a syncer and learners as processes that train one model, watched and started "
    "again\n"
    "when they die, with an evaluation, a sample and a report at the end:\n"
    "\n"
    "    pelago run --learners 4 --threads 1 --model 1m --data builtin:tales --tokens 10M --out DIR\n"
    "\n"
    "Ctrl-C stops everything politely; pelago run --resume --out DIR goes on. DIR then holds the model "
    "(pelago sample\n"
    "DIR), report.md, report.json and the logs. X* may be one value for all learners or a list with one for "
    "each:\n"
    "--speed 1,1,0.5,1.";

uint32_t pl_list_count(const char *list)
{
    uint32_t count = 1;
    for (; *list != '\0'; list++)
        count += *list == ',' ? 1 : 0;
    return count;
}

bool pl_list_item(const char *list, uint32_t index, char out[static PL_RUN_ITEM_MAX])
{
    if (pl_list_count(list) == 1)
        index = 0;
    for (; index > 0; index--) {
        list += strcspn(list, ",");
        if (*list == '\0')
            return false;
        list++;
    }
    size_t len = strcspn(list, ",");
    if (len == 0 || len >= PL_RUN_ITEM_MAX)
        return false;
    memcpy(out, list, len);
    out[len] = '\0';
    return true;
}

/* Every value of the list is read as the learner will read it. */
static bool check_list(uint32_t learners, const struct pl_option *as, const char *list, int *code)
{
    char item[PL_RUN_ITEM_MAX];
    struct pl_error err;
    uint32_t count = list != NULL ? pl_list_count(list) : 0;
    if (count > 1 && learners > 0 && count != learners) {
        *code =
            pl_usage_error(pl_run_command, "--%s has %u values, expected one, or one for each of %u learners",
                           as->name, count, learners);
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        bool good = pl_list_item(list, i, item);
        if (good && pl_option_set(as, "--", item, &err) == PELAGO_OK)
            continue;
        *code = good
                    ? pl_usage_error(pl_run_command, "%s", err.text)
                    : pl_usage_error(pl_run_command, "--%s is '%s', expected values with commas between them",
                                     as->name, pl_text_clip(list).at);
        return false;
    }
    return true;
}

bool pl_run_args_check_lists(const struct pl_run_args *a, uint32_t learners, int *code)
{
    uint64_t whole;
    double real = 1;
    const struct pl_option pace = {"pace", "TIME", "", PL_OPTION_TIME, &whole, 0, 3600 * PL_SEC};
    const struct pl_option rate = {"max-up", "RATE", "", PL_OPTION_RATE, &whole, 1000, 0};
    const struct pl_option speed = {"speed", "X", "", PL_OPTION_FLOAT, &real, 0, 0};
    return check_list(learners, &pace, a->pace, code) && check_list(learners, &rate, a->max_up, code) &&
           check_list(learners, &speed, a->speed, code);
}

/* What its processes would refuse is refused before anything is written. */
static bool check_words(const struct pl_run_args *a, int *code)
{
    struct pl_address listen;
    struct pl_error err;
    enum pelago_status st = pl_engine_backend_check(a->backend, &err);
    if (st == PELAGO_OK && a->listen != NULL)
        st = pl_address_parse(a->listen, &listen, &err);
    if (st != PELAGO_OK)
        *code = st == PELAGO_INVALID ? pl_refusal(pl_run_command, &err) : pl_failure(pl_run_command, &err);
    return st == PELAGO_OK;
}

static bool check(struct pl_run_args *a, const struct pl_words *words, int *code)
{
    if (words->count > 0)
        *code = pl_usage_error(pl_run_command, "unexpected '%s'", pl_text_clip(words->at[0]).at);
    else if (a->out == NULL)
        *code = pl_usage_error(pl_run_command,
                               "--out FOLDER is needed: the run, its logs and its report go there");
    else if (a->cluster.learners > PL_RUN_LEARNERS_MAX)
        *code = pl_usage_error(pl_run_command, "--learners is %u, expected 1 to %u on one machine",
                               a->cluster.learners, (unsigned)PL_RUN_LEARNERS_MAX);
    else if (a->proxy && a->cluster.shards > 1)
        *code = pl_usage_error(pl_run_command, "--proxy stands in front of one syncer, not of %u shards",
                               a->cluster.shards);
    else
        return pl_run_args_check_lists(a, a->cluster.learners, code) && check_words(a, code) &&
               pl_cluster_args_check(&a->cluster, pl_run_command, code);
    return false;
}

bool pl_run_args_parse(struct pl_run_args *a, int argc, char **argv, int *exit_code)
{
    const struct pl_option own[] = {
        {"out", "FOLDER", "everything of the run: processes' folders, logs, report, model", PL_OPTION_TEXT,
         &a->out, 0, 0},
        {"threads", "N", "of each learner (default: the processors, shared out)", PL_OPTION_U32, &a->threads,
         1, PL_POOL_THREADS_MAX},
        {"resume", NULL, "go on with the run in --out", PL_OPTION_FLAG, &a->resume, 0, 0},
        {"quiet", NULL, "only the result", PL_OPTION_FLAG, &a->quiet, 0, 0},
        {"time", "TIME", "end after this long, as if all tokens were trained (default: no limit)",
         PL_OPTION_TIME, &a->time_ns, PL_SEC, 0},
        {"pace", "TIME*", "a step takes at least this long, such as 100ms", PL_OPTION_LIST, &a->pace, 0, 0},
        {"speed", "X*", "0.5 makes every step take twice as long", PL_OPTION_LIST, &a->speed, 0, 0},
        {"max-up", "RATE*", "what a learner may send, such as 20Mbit", PL_OPTION_LIST, &a->max_up, 0, 0},
        {"backend", "NAME", "of the learners: ref, portable, avx2, avx512, bf16, amx or cuda", PL_OPTION_TEXT,
         &a->backend, 0, 0},
        {"relaxed", "N", "sync the journal every N records only", PL_OPTION_U32, &a->relaxed, 1, 1000000},
        {"listen", "ADDRESS", "of the syncer (default: 127.0.0.1, any port); others can then join, too",
         PL_OPTION_TEXT, &a->listen, 0, 0},
        {"proxy", NULL, "learners dial through a pelago chaos proxy, so that chaos can break links",
         PL_OPTION_FLAG, &a->proxy, 0, 0},
        {"record", "FILE", "the syncer's events, for pelago replay", PL_OPTION_TEXT, &a->record, 0, 0},
        {"checkpoint-every", "TIME", "of each learner (default: seconds, later 60s)", PL_OPTION_TIME,
         &a->checkpoint_ns, PL_SEC, 0},
        {"stats", NULL, "learners write figures about themselves to log/learner-N.stats", PL_OPTION_FLAG,
         &a->stats, 0, 0},
        {"stub-step", "TIME", "tests of scale: learners without a trainer", PL_OPTION_TIME, &a->stub_ns,
         PL_MS, 3600 * PL_SEC},
        {"config", "FILE", "YAML with any of these options, key: value; the command line goes over it",
         PL_OPTION_TEXT, &a->config, 0, 0},
    };
    struct pl_option table[PL_CLUSTER_OPTIONS_MAX + sizeof own / sizeof own[0]];
    struct pl_words words;
    uint32_t count = sizeof own / sizeof own[0];
    *a = (struct pl_run_args){.out = NULL};
    pl_cluster_args_init(&a->cluster);
    memcpy(table, own, sizeof own);
    count += pl_cluster_options(&a->cluster, table + count);
    const struct pl_options options = {pl_run_command, "--out FOLDER [OPTION...]", about, table, count};
    return pl_options_parse_with_file(&options, &a->conf, argc, argv, &words, exit_code) &&
           check(a, &words, exit_code);
}
