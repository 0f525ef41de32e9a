/* cmd/cmd_sim.c - `pelago sim`: flags in, one of the jobs of cmd_sim.h out. */
#include "cmd/cmd_sim.h"

#include "base/check.h"
#include "cmd/cmd.h"
#include "cmd/text.h"
#include "model/engine.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

int pl_sim_usage_error(const char *format, ...)
{
    va_list args;
    fputs("pelago sim: ", stderr);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputs(".\n", stderr);
    return PL_EXIT_USAGE;
}

int pl_sim_cannot_read(const char *path, int error)
{
    (void)pl_sim_usage_error("%s cannot be read: %s", pl_text_clip(path).at, strerror(error));
    return PL_EXIT_FAILED;
}

static void print_help(void)
{
    printf("usage: pelago sim [--seed N | --seeds A..B | --script FILE | --plan FILE |\n"
           "                   --experiment FILE] [OPTION...]\n\n"
           "  --seed N           one run (default 1)\n"
           "  --seeds A..B       many runs\n"
           "  --trace            print what everybody does\n"
           "  --shrink           find a smaller setting that fails in the same way\n"
           "  --script FILE      run a conversation of tests/proto\n"
           "  --plan FILE        rehearse a plan of pelago chaos; --trace prints its script\n"
           "  --experiment FILE  train for real in virtual time: every row and seed of a\n"
           "                     file of experiments/\n"
           "  --row NAME         ... this row alone\n"
           "  --short            ... with few tokens: minutes instead of hours\n"
           "  --list             ... train nothing: say of each row and seed whether the\n"
           "                     results have it\n"
           "  --results FILE     ... a line of JSON for each run; those that are there are\n"
           "                     not run again (default experiments/results.jsonl)\n"
           "  --folder DIR       ... where the token files are (default build/experiments)\n"
           "  --threads N        ... threads of the trainer (default: all)\n"
           "  --backend NAME     ... its back end (default: the best processor)\n"
           "  --twice-percent N  run this share of the seeds twice and compare (default %d)\n"
           "  --jobs N           processes for --seeds (default 1)\n"
           "  --bench            speed and scale, as JSON\n"
           "  --scale            scale alone, as JSON\n"
           "  --goodput          a cluster of many chips that fail; see --goodput --help\n"
           "  --mutant N         switch on a planted fault (test builds only)\n"
           "  --marks            print how often each rare path was taken (test builds only)\n"
           "  -h, --help         this page\n\n"
           "Everything else is drawn from the seed, unless said here (times as 250ms, 2s):\n",
           PL_SIM_TWICE_PERCENT);
    pl_sim_print_options(stdout);
    printf("\nexit: 0 good, 1 not done, 2 wrong usage, 3 an assertion failed, 4 liveness,\n"
           "5 correctness\n");
}

/* Flags without a value; NULL when it is not one. */
static bool *find_switch(struct pl_sim_call *call, const char *flag)
{
    const struct {
        const char *name;
        bool *at;
    } switches[] = {{"trace", &call->trace},   {"shrink", &call->shrink}, {"bench", &call->bench},
                    {"scale", &call->scale},   {"marks", &call->marks},   {"help", &call->help},
                    {"short", &call->shorter}, {"list", &call->list}};
    for (size_t i = 0; i < sizeof switches / sizeof switches[0]; i++)
        if (strcmp(switches[i].name, flag) == 0)
            return switches[i].at;
    return NULL;
}

static int set_seed(struct pl_sim_call *call, const char *value)
{
    if (!pl_text_number(value, &call->first))
        return pl_sim_usage_error("--seed is '%s', expected a number", pl_text_clip(value).at);
    call->last = call->first;
    call->seed = true;
    return PL_EXIT_OK;
}

static int set_seeds(struct pl_sim_call *call, const char *value)
{
    if (!pl_text_range(value, &call->first, &call->last))
        return pl_sim_usage_error("--seeds is '%s', expected A..B with A <= B", pl_text_clip(value).at);
    call->seeds = true;
    return PL_EXIT_OK;
}

static int set_small(const char *flag, const char *value, uint32_t min, uint32_t max, uint32_t *out)
{
    uint64_t v;
    if (!pl_text_number(value, &v))
        return pl_sim_usage_error("--%s is '%s', expected %u to %u", flag, pl_text_clip(value).at, min, max);
    if (v < min || v > max)
        return pl_sim_usage_error("--%s is %" PRIu64 ", expected %u to %u", flag, v, min, max);
    *out = (uint32_t)v;
    return PL_EXIT_OK;
}

static int set_twice(struct pl_sim_call *call, const char *value)
{
    return set_small("twice-percent", value, 0, 100, &call->twice_percent);
}

static int set_jobs(struct pl_sim_call *call, const char *value)
{
    return set_small("jobs", value, 1, PL_SIM_JOBS_MAX, &call->jobs);
}

/* 0 is none. */
static int set_mutant(struct pl_sim_call *call, const char *value)
{
#ifdef PL_TEST_HOOKS
    return set_small("mutant", value, 0, PL_MUTANTS, &call->mutant);
#else
    (void)call;
    (void)value;
    return pl_sim_usage_error(
        "this build has no planted faults; scripts/build.sh hooks makes build-hooks/pelago, which has");
#endif
}

static int set_script(struct pl_sim_call *call, const char *value)
{
    call->script = value;
    return PL_EXIT_OK;
}

static int set_plan(struct pl_sim_call *call, const char *value)
{
    call->plan = value;
    return PL_EXIT_OK;
}

static int set_experiment(struct pl_sim_call *call, const char *value)
{
    call->experiment = value;
    return PL_EXIT_OK;
}

static int set_row(struct pl_sim_call *call, const char *value)
{
    call->row = value;
    return PL_EXIT_OK;
}

static int set_results(struct pl_sim_call *call, const char *value)
{
    call->results = value;
    return PL_EXIT_OK;
}

static int set_folder(struct pl_sim_call *call, const char *value)
{
    call->folder = value;
    return PL_EXIT_OK;
}

static int set_threads(struct pl_sim_call *call, const char *value)
{
    return set_small("threads", value, 1, PL_SIM_JOBS_MAX, &call->threads);
}

static int set_backend(struct pl_sim_call *call, const char *value)
{
    struct pl_error err;
    call->backend = value;
    return pl_engine_backend_check(value, &err) == PELAGO_OK ? PL_EXIT_OK
                                                             : pl_sim_usage_error("%s", err.text);
}

static const struct {
    const char *flag;
    int (*set)(struct pl_sim_call *call, const char *value);
} valued[] = {{"seed", set_seed},       {"seeds", set_seeds},           {"twice-percent", set_twice},
              {"jobs", set_jobs},       {"mutant", set_mutant},         {"script", set_script},
              {"plan", set_plan},       {"experiment", set_experiment}, {"row", set_row},
              {"results", set_results}, {"folder", set_folder},         {"threads", set_threads},
              {"backend", set_backend}};
enum { VALUED = sizeof valued / sizeof valued[0] };

/* One flag and its value, NULL or empty when none was found. *took: the value was used. 0, or the exit code after saying what
 * is wrong. */
static int set_flag(struct pl_sim_call *call, const char *flag, const char *value, bool *took)
{
    bool *on = find_switch(call, flag);
    uint32_t i = 0;
    while (i < VALUED && strcmp(valued[i].flag, flag) != 0)
        i++;
    *took = on == NULL;
    if (on != NULL) {
        *on = true;
        return PL_EXIT_OK;
    }
    if (i == VALUED && !pl_sim_is_option(flag))
        return pl_sim_usage_error("there is no option --%s; see pelago sim --help", pl_text_clip(flag).at);
    if (value == NULL || value[0] == '\0')
        return pl_sim_usage_error("--%s needs a value", flag);
    return i < VALUED ? valued[i].set(call, value) : pl_sim_override(call, flag, value);
}

/* "--flag=value". */
static int set_joined(struct pl_sim_call *call, const char *word)
{
    char flag[64];
    size_t len = strcspn(word, "=");
    bool took;
    (void)snprintf(flag, sizeof flag, "%.*s", (int)(len < sizeof flag ? len : sizeof flag - 1), word);
    int code = set_flag(call, flag, word + len + 1, &took);
    if (code == PL_EXIT_OK && !took)
        return pl_sim_usage_error("--%s takes no value", flag);
    return code;
}

/* What was asked for that is not drawn from the seed, as bits. */
enum asked {
    ASKED_SEED = 1 << 0,
    ASKED_SEEDS = 1 << 1,
    ASKED_TRACE = 1 << 2,
    ASKED_SHRINK = 1 << 3,
    ASKED_SCRIPT = 1 << 4,
    ASKED_BENCH = 1 << 5,
    ASKED_SCALE = 1 << 6,
    ASKED_MARKS = 1 << 7,
    ASKED_OPTION = 1 << 8,
    ASKED_JOBS = 1 << 9, /* more than one */
    ASKED_PLAN = 1 << 10,
    ASKED_EXPERIMENT = 1 << 11,
};

static const struct {
    uint32_t one, others;
} excluded[] = {
    {ASKED_BENCH, ~(uint32_t)ASKED_BENCH},
    {ASKED_SCALE, ~(uint32_t)ASKED_SCALE},
    {ASKED_SCRIPT, ASKED_SEED | ASKED_SEEDS | ASKED_SHRINK | ASKED_OPTION},
    {ASKED_PLAN, ASKED_SEED | ASKED_SEEDS | ASKED_SHRINK | ASKED_OPTION | ASKED_SCRIPT},
    {ASKED_EXPERIMENT, ~(uint32_t)(ASKED_EXPERIMENT | ASKED_SEED | ASKED_SEEDS)},
    {ASKED_SEEDS, ASKED_SEED | ASKED_TRACE},
    {ASKED_SHRINK, ASKED_TRACE},
    {ASKED_MARKS, ASKED_JOBS},
};

static const char *name_of(const struct pl_sim_call *call, uint32_t bit)
{
    static const char *const names[] = {"seed",  "seeds", "trace", "shrink", "script", "bench",
                                        "scale", "marks", "",      "jobs",   "plan",   "experiment"};
    return bit == ASKED_OPTION ? pl_sim_override_name(call, 0) : names[__builtin_ctz(bit)];
}

static int check_together(const struct pl_sim_call *call)
{
    const bool on[] = {call->seed,     call->seeds,          call->trace,
                       call->shrink,   call->script != NULL, call->bench,
                       call->scale,    call->marks,          call->override_count > 0,
                       call->jobs > 1, call->plan != NULL,   call->experiment != NULL};
    uint32_t asked = 0;
    for (uint32_t i = 0; i < sizeof on / sizeof on[0]; i++)
        asked |= (on[i] ? 1U : 0U) << i;
    for (size_t i = 0; i < sizeof excluded / sizeof excluded[0]; i++) {
        uint32_t clash = (asked & excluded[i].one) != 0 ? asked & excluded[i].others : 0;
        if (clash != 0)
            return pl_sim_usage_error("--%s and --%s do not go together", name_of(call, excluded[i].one),
                                      name_of(call, clash & (~clash + 1)));
    }
    if (call->experiment == NULL &&
        (call->row != NULL || call->results != NULL || call->folder != NULL || call->shorter || call->list ||
         call->threads > 0 || call->backend != NULL))
        return pl_sim_usage_error(
            "--row, --short, --list, --results, --folder, --threads and --backend go with --experiment");
#ifndef PL_TEST_HOOKS
    if (call->marks)
        return pl_sim_usage_error(
            "this build has no marks; scripts/build.sh hooks makes build-hooks/pelago, which has");
#endif
    return PL_EXIT_OK;
}

static int read_flags(struct pl_sim_call *call, int argc, char **argv)
{
    *call = (struct pl_sim_call){.first = 1, .last = 1, .twice_percent = PL_SIM_TWICE_PERCENT, .jobs = 1};
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i], *next = i + 1 < argc ? argv[i + 1] : NULL;
        bool took = false;
        if (word == NULL)
            break;
        if (strcmp(word, "-h") == 0)
            word = "--help";
        if (strncmp(word, "--", 2) != 0 || word[2] == '\0')
            return pl_sim_usage_error("'%s' is not an option; options begin with --", pl_text_clip(word).at);
        if (next != NULL && strncmp(next, "--", 2) == 0)
            next = NULL;
        int code =
            strchr(word, '=') != NULL ? set_joined(call, word + 2) : set_flag(call, word + 2, next, &took);
        if (code != PL_EXIT_OK)
            return code;
        i += took ? 1 : 0;
    }
    return call->help ? PL_EXIT_OK : check_together(call);
}

/* It has options of its own. */
static bool asks_goodput(int argc, char **argv)
{
    int i = 1;
    while (i < argc && strcmp(argv[i], "--goodput") != 0)
        i++;
    return i < argc;
}

int pl_cmd_sim(int argc, char **argv)
{
    struct pl_sim_call call;
    if (asks_goodput(argc, argv))
        return pl_sim_goodput(argc, argv);
    int code = read_flags(&call, argc, argv);
    if (code != PL_EXIT_OK)
        return code;
    if (call.help) {
        print_help();
        return PL_EXIT_OK;
    }
#ifdef PL_TEST_HOOKS
    pl_mutant_choose(call.mutant);
#endif
    if (call.bench)
        return pl_sim_bench();
    if (call.scale)
        return pl_sim_scale();
    if (call.script != NULL)
        return pl_sim_conversation(&call);
    if (call.plan != NULL)
        return pl_sim_rehearsal(&call);
    if (call.experiment != NULL)
        return pl_sim_experiment(&call);
    if (call.shrink)
        return pl_sim_smallest(&call);
    return call.seeds ? pl_sim_many(&call) : pl_sim_one(&call);
}
