/* cmd/cmd_sim.c - `pelago sim`: flags in, one of the jobs of cmd_sim.h out. */
#include "cmd/cmd_sim.h"

#include "base/check.h"
#include "base/limits.h"
#include "cmd/cmd.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

enum kind { NUMBER32, NUMBER64, TIME, TIME_MS };

struct option {
    const char *flag;
    size_t offset; /* in struct pl_sim_options */
    enum kind kind;
    const char *help;
};

#define OPTION(flag, field, kind, help)                                                                      \
    {                                                                                                        \
        flag, offsetof(struct pl_sim_options, field), kind, help                                             \
    }

static const struct option options[] = {
    OPTION("duration", duration_ns, TIME, "how long the run is without faults"),
    OPTION("learners", learners, NUMBER32, "learners"),
    OPTION("shards", shards, NUMBER32, "syncer shards"),
    OPTION("fragments", fragments, NUMBER32, "P, fragments of the model"),
    OPTION("quorum", quorum, NUMBER32, "K, contributions a merge needs"),
    OPTION("overlap", overlap_steps, NUMBER32, "tau, steps that hide one exchange"),
    OPTION("period", period_steps, NUMBER32, "H, ticks between two rounds of a fragment"),
    OPTION("gamma-ppm", gamma_ppm, NUMBER32, "share of the slack the grace window may use"),
    OPTION("staleness", staleness_max, NUMBER32, "versions a returning learner's work may be behind"),
    OPTION("apply", apply, NUMBER32, "0 rebase, 1 overwrite, 2 mix"),
    OPTION("faults", faults, NUMBER32, "sum of fault classes, 0 for none (src/sim/sim.h)"),
    OPTION("fault-mean", fault_mean_ms, TIME_MS, "mean time between two faults"),
    OPTION("step", step_ns, TIME, "inner step of the fastest learner"),
    OPTION("spread-permille", speed_spread_permille, NUMBER32,
           "how much longer the slowest learner's step is"),
    OPTION("latency", latency_ns, TIME, "one way"),
    OPTION("bandwidth", bandwidth, NUMBER64, "bytes a second, each learner and direction"),
    OPTION("dimensions", dimensions, NUMBER32, "values of the toy model"),
    OPTION("local-data-permille", local_data_permille, NUMBER32, "learners with private data"),
    OPTION("checkpoint", checkpoint_ns, TIME, "between two checkpoints of a learner"),
    OPTION("merge-time", merge_ns, TIME, "how long a merge takes"),
    OPTION("sync-time", sync_ns, TIME, "how long an fsync takes"),
    OPTION("step-tokens", step_tokens, NUMBER32, "tokens of an inner step"),
    OPTION("budget", budget_tokens, NUMBER64, "tokens of the run, 0 for what fits duration"),
};
enum { OPTIONS = sizeof options / sizeof options[0] };

static bool read_digits(const char **text, uint64_t *out)
{
    uint64_t v = 0;
    const char *p = *text;
    if (*p < '0' || *p > '9')
        return false;
    for (; *p >= '0' && *p <= '9'; p++)
        if (__builtin_mul_overflow(v, UINT64_C(10), &v) ||
            __builtin_add_overflow(v, (uint64_t)(*p - '0'), &v))
            return false;
    *text = p;
    *out = v;
    return true;
}

static bool read_number(const char *text, uint64_t *out)
{
    return read_digits(&text, out) && *text == '\0';
}

/* "250ms", "2s", "90us", "5ns": a number and a unit. */
static bool read_time(const char *text, uint64_t *ns)
{
    static const struct {
        const char *name;
        uint64_t ns;
    } units[] = {{"ns", 1}, {"us", PL_US}, {"ms", PL_MS}, {"s", PL_SEC}};
    uint64_t v;
    if (!read_digits(&text, &v))
        return false;
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (strcmp(text, units[i].name) == 0)
            return !__builtin_mul_overflow(v, units[i].ns, ns);
    return false;
}

/* "7" or "1..1000". */
static bool read_range(const char *text, uint64_t *first, uint64_t *last)
{
    if (!read_digits(&text, first))
        return false;
    *last = *first;
    if (*text == '\0')
        return true;
    if (strncmp(text, "..", 2) != 0)
        return false;
    return read_number(text + 2, last) && *last >= *first;
}

static bool set_option(struct pl_sim_options *o, const struct option *option, const char *text)
{
    uint64_t v;
    bool timed = option->kind == TIME || option->kind == TIME_MS;
    if (!(timed ? read_time(text, &v) : read_number(text, &v)))
        return false;
    if (option->kind == TIME_MS)
        v /= PL_MS;
    uint8_t *at = (uint8_t *)o + option->offset;
    if (option->kind == NUMBER64 || option->kind == TIME) {
        memcpy(at, &v, sizeof v);
        return true;
    }
    uint32_t small = (uint32_t)v;
    memcpy(at, &small, sizeof small);
    return v <= UINT32_MAX;
}

/* Its place in the table; OPTIONS when there is none. */
static uint32_t find_option(const char *flag)
{
    uint32_t i = 0;
    while (i < OPTIONS && strcmp(options[i].flag, flag) != 0)
        i++;
    return i;
}

void pl_sim_call_options(const struct pl_sim_call *call, uint64_t seed, struct pl_sim_options *o)
{
    pl_sim_draw(seed, o);
    for (uint32_t i = 0; i < call->override_count; i++)
        set_option(o, &options[call->overrides[i].option], call->overrides[i].value);
}

void pl_sim_print_reproduce(FILE *out, const struct pl_sim_call *call, uint64_t seed)
{
    fprintf(out, "reproduce: pelago sim --seed %" PRIu64, seed);
    for (uint32_t i = 0; i < call->override_count; i++)
        fprintf(out, " --%s %s", options[call->overrides[i].option].flag, call->overrides[i].value);
    if (call->mutant != 0)
        fprintf(out, " --mutant %u", call->mutant);
    fprintf(out, "\n");
}

void pl_sim_print_flags(FILE *out, const struct pl_sim_options *o)
{
    struct pl_sim_options drawn;
    pl_sim_draw(o->seed, &drawn);
    fprintf(out, "--seed %" PRIu64, o->seed);
    for (size_t i = 0; i < OPTIONS; i++) {
        size_t width = options[i].kind == NUMBER64 || options[i].kind == TIME ? 8 : 4;
        const uint8_t *now = (const uint8_t *)o + options[i].offset;
        const uint8_t *then = (const uint8_t *)&drawn + options[i].offset;
        uint64_t v = 0;
        uint32_t small = 0;
        if (memcmp(now, then, width) == 0)
            continue;
        memcpy(width == 8 ? (void *)&v : (void *)&small, now, width);
        fprintf(out, " --%s %" PRIu64 "%s", options[i].flag, width == 8 ? v : small,
                options[i].kind == TIME      ? "ns"
                : options[i].kind == TIME_MS ? "ms"
                                             : "");
    }
}

/* One sentence with the offending word in it. */
static int usage_error(const char *before, const char *what, const char *after)
{
    fprintf(stderr, "pelago sim: %s%s%s\n", before, what, after);
    return PL_EXIT_USAGE;
}

static void print_help(void)
{
    printf("usage: pelago sim [--seed N | --seeds A..B] [OPTION...]\n\n"
           "  --seed N           one run (default 1)\n"
           "  --seeds A..B       many runs\n"
           "  --trace            print what everybody does\n"
           "  --shrink           find a smaller setting that fails in the same way\n"
           "  --script FILE      run a conversation of tests/proto\n"
           "  --twice-percent N  run this share of the seeds twice and compare (default 5)\n"
           "  --jobs N           processes (default 1)\n"
           "  --bench            speed and scale, as JSON\n"
           "  --scale            scale alone, as JSON\n"
           "  --mutant N         switch on a planted fault (test builds only)\n\n"
           "Everything else is drawn from the seed, unless said here (times as 250ms, 2s):\n");
    for (size_t i = 0; i < OPTIONS; i++)
        printf("  --%-19s %s\n", options[i].flag, options[i].help);
    printf("\nexit: 0 good, 2 wrong usage, 3 an assertion failed, 4 liveness, 5 correctness\n");
}

/* Flags without a value; NULL when it is not one. */
static bool *find_switch(struct pl_sim_call *call, const char *flag)
{
    const struct {
        const char *name;
        bool *at;
    } switches[] = {{"trace", &call->trace},
                    {"shrink", &call->shrink},
                    {"bench", &call->bench},
                    {"scale", &call->scale},
                    {"help", &call->help}};
    for (size_t i = 0; i < sizeof switches / sizeof switches[0]; i++)
        if (strcmp(switches[i].name, flag) == 0)
            return switches[i].at;
    return NULL;
}

static bool set_small(const char *value, uint32_t max, uint32_t *out)
{
    uint64_t v;
    if (!read_number(value, &v) || v > max)
        return false;
    *out = (uint32_t)v;
    return true;
}

/* 0, or the exit code after saying what is wrong. */
static int set_flag(struct pl_sim_call *call, const char *flag, const char *value)
{
    struct pl_sim_options scratch;
    bool good;
    if (strcmp(flag, "seed") == 0) {
        good = read_number(value, &call->first);
        call->last = call->first;
    } else if (strcmp(flag, "seeds") == 0) {
        good = read_range(value, &call->first, &call->last);
    } else if (strcmp(flag, "twice-percent") == 0) {
        good = set_small(value, 100, &call->twice_percent);
    } else if (strcmp(flag, "jobs") == 0) {
        good = set_small(value, 256, &call->jobs) && call->jobs > 0;
    } else if (strcmp(flag, "mutant") == 0) {
        good = set_small(value, 1000, &call->mutant);
    } else if (strcmp(flag, "script") == 0) {
        call->script = value;
        good = true;
    } else {
        uint32_t option = find_option(flag);
        if (option == OPTIONS)
            return usage_error("there is no option --", flag, "; 'pelago sim --help' lists them.");
        good = set_option(&scratch, &options[option], value) && call->override_count < PL_SIM_OVERRIDES_MAX;
        if (good) {
            call->overrides[call->override_count].option = option;
            call->overrides[call->override_count++].value = value;
        }
    }
    return good ? PL_EXIT_OK : usage_error("the value of --", flag, " cannot be read.");
}

static int read_flags(struct pl_sim_call *call, int argc, char **argv)
{
    *call = (struct pl_sim_call){.first = 1, .last = 1, .twice_percent = 5, .jobs = 1};
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "--", 2) != 0)
            return usage_error("'", argv[i], "' is not an option; options begin with --.");
        bool *on = find_switch(call, argv[i] + 2);
        if (on != NULL) {
            *on = true;
            continue;
        }
        if (i + 1 == argc)
            return usage_error("--", argv[i] + 2, " is no option, or lacks its value.");
        int code = set_flag(call, argv[i] + 2, argv[i + 1]);
        if (code != PL_EXIT_OK)
            return code;
        i++;
    }
    struct pl_sim_options o;
    struct pl_error err;
    pl_sim_call_options(call, call->first, &o);
    if (call->first == call->last && call->script == NULL && pl_sim_check_options(&o, &err) != PELAGO_OK)
        return usage_error("option ", err.text, ".");
    return PL_EXIT_OK;
}

int pl_cmd_sim(int argc, char **argv)
{
    struct pl_sim_call call;
    int code = read_flags(&call, argc, argv);
    if (code != PL_EXIT_OK)
        return code;
    if (call.help) {
        print_help();
        return PL_EXIT_OK;
    }
#ifdef PL_TEST_HOOKS
    pl_mutant_choose(call.mutant);
#else
    if (call.mutant != 0)
        return usage_error("--", "mutant", " needs a test build (meson -Dtest_hooks=true).");
#endif
    if (call.bench)
        return pl_sim_bench();
    if (call.scale)
        return pl_sim_scale();
    if (call.script != NULL)
        return pl_sim_conversation(&call);
    if (call.shrink)
        return pl_sim_smallest(&call);
    return call.first == call.last ? pl_sim_one(&call) : pl_sim_many(&call);
}
