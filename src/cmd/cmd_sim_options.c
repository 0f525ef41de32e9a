/* cmd/cmd_sim_options.c - the flags of `pelago sim` that change what a seed draws: one table for reading, for printing
 * and for the help page. */
#include "base/check.h"
#include "base/limits.h"
#include "base/num.h"
#include "cmd/cmd.h"
#include "cmd/cmd_sim.h"
#include "cmd/text.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

enum kind { NUMBER32, NUMBER64, TIME, TIME_MS, FAULTS };

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
    OPTION("faults", faults, FAULTS, "none, all, or names joined by commas (below)"),
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
_Static_assert((int)OPTIONS <= (int)PL_SIM_OVERRIDES_MAX, "every option may be given");

static const struct {
    const char *name;
    enum pl_sim_fault bit;
    const char *help;
} faults[] = {
    {"crash", PL_FAULT_LEARNER_CRASH, "a learner is killed; it has its checkpoint or nothing"},
    {"freeze", PL_FAULT_LEARNER_FREEZE, "a learner stops for a while"},
    {"straggle", PL_FAULT_LEARNER_STRAGGLE, "a learner's steps become slow"},
    {"away", PL_FAULT_LEARNER_AWAY, "a learner is gone for long"},
    {"clone", PL_FAULT_CLONE, "a second process of a learner starts"},
    {"power", PL_FAULT_SYNCER_CRASH, "a syncer loses power, and what it had not synced"},
    {"reset", PL_FAULT_RESET, "connections are reset"},
    {"stall", PL_FAULT_STALL, "a link stops for a while"},
    {"half-open", PL_FAULT_HALF_OPEN, "one end of a connection is gone without a word"},
    {"partition", PL_FAULT_PARTITION, "learners are cut off, both ways or one way"},
    {"slow", PL_FAULT_SLOW_LINK, "a link has a fraction of its bandwidth"},
    {"disk", PL_FAULT_DISK_FULL, "a syncer's disk is full, or its syncs fail"},
    {"hostile", PL_FAULT_HOSTILE, "an enrolled peer sends well-formed nonsense"},
    {"garbage", PL_FAULT_GARBAGE, "an enrolled peer sends bytes that are no frames"},
};
enum { FAULT_NAMES = sizeof faults / sizeof faults[0], ALL_FAULTS = (1 << FAULT_NAMES) - 1 };
_Static_assert((int)ALL_FAULTS == 2 * (int)PL_FAULT_GARBAGE - 1, "every class of faults has a name");

/* ---- values ---- */

/* The bit of the name with this length; 0 when there is none. */
static uint32_t fault_named(const char *name, size_t len)
{
    for (size_t i = 0; i < FAULT_NAMES; i++)
        if (strlen(faults[i].name) == len && strncmp(faults[i].name, name, len) == 0)
            return (uint32_t)faults[i].bit;
    return 0;
}

static bool read_faults(const char *text, uint64_t *out)
{
    uint64_t v = 0;
    if (strcmp(text, "none") == 0 || strcmp(text, "all") == 0) {
        *out = text[0] == 'a' ? ALL_FAULTS : 0;
        return true;
    }
    if (pl_text_number(text, out))
        return *out <= ALL_FAULTS;
    for (bool more = true; more;) {
        size_t len = strcspn(text, ",");
        uint32_t bit = fault_named(text, len);
        if (bit == 0)
            return false;
        v |= bit;
        more = text[len] == ',';
        text += len + (more ? 1 : 0);
    }
    *out = v;
    return true;
}

static bool read_value(enum kind kind, const char *text, uint64_t *out)
{
    switch (kind) {
    case NUMBER32:
        return pl_text_number(text, out) && *out <= UINT32_MAX;
    case NUMBER64:
        return pl_text_number(text, out);
    case TIME:
        return pl_text_time(text, out);
    case TIME_MS:
        if (!pl_text_time(text, out) || *out % PL_MS != 0)
            return false;
        *out /= PL_MS;
        return *out <= UINT32_MAX;
    case FAULTS:
        return read_faults(text, out);
    }
    return false;
}

static const char *expectation(enum kind kind)
{
    switch (kind) {
    case NUMBER32:
    case NUMBER64:
        break;
    case TIME:
        return "a time such as 250ms or 2s";
    case TIME_MS:
        return "a time of whole milliseconds such as 250ms or 2s";
    case FAULTS:
        return "none, all, or names such as crash,power; pelago sim --help lists them";
    }
    return "a number";
}

static void print_faults(FILE *out, uint64_t v)
{
    const char *between = "";
    if (v == 0 || v == ALL_FAULTS) {
        fputs(v == 0 ? "none" : "all", out);
        return;
    }
    for (size_t i = 0; i < FAULT_NAMES; i++)
        if ((v & (uint64_t)faults[i].bit) != 0) {
            fprintf(out, "%s%s", between, faults[i].name);
            between = ",";
        }
}

static void print_value(FILE *out, enum kind kind, uint64_t v)
{
    if (kind == FAULTS)
        print_faults(out, v);
    else if (kind == TIME || kind == TIME_MS)
        fputs(pl_text_of_time(kind == TIME ? v : v * PL_MS).at, out);
    else
        fprintf(out, "%" PRIu64, v);
}

/* ---- fields ---- */

static bool is_wide(enum kind kind)
{
    return kind == NUMBER64 || kind == TIME;
}

static uint64_t load(const struct pl_sim_options *o, const struct option *option)
{
    const uint8_t *at = (const uint8_t *)o + option->offset;
    uint64_t wide = 0;
    uint32_t narrow = 0;
    if (!is_wide(option->kind)) {
        memcpy(&narrow, at, sizeof narrow);
        return narrow;
    }
    memcpy(&wide, at, sizeof wide);
    return wide;
}

static void store(struct pl_sim_options *o, const struct option *option, uint64_t v)
{
    uint8_t *at = (uint8_t *)o + option->offset;
    uint32_t narrow = (uint32_t)v;
    pl_assert(is_wide(option->kind) || v <= UINT32_MAX);
    if (is_wide(option->kind))
        memcpy(at, &v, sizeof v);
    else
        memcpy(at, &narrow, sizeof narrow);
}

static const struct option *at_offset(size_t offset)
{
    uint32_t i = 0;
    while (i < OPTIONS && options[i].offset != offset)
        i++;
    pl_assert(i < OPTIONS);
    return &options[i];
}

static bool is_given(const struct pl_sim_call *call, size_t offset)
{
    for (uint32_t i = 0; i < call->override_count; i++)
        if (options[call->overrides[i].option].offset == offset)
            return true;
    return false;
}
#define GIVEN(call, field) is_given(call, offsetof(struct pl_sim_options, field))

/* ---- flags ---- */

static uint32_t find_option(const char *flag)
{
    uint32_t i = 0;
    while (i < OPTIONS && strcmp(options[i].flag, flag) != 0)
        i++;
    return i;
}

bool pl_sim_is_option(const char *flag)
{
    return find_option(flag) < OPTIONS;
}

const char *pl_sim_override_name(const struct pl_sim_call *call, uint32_t i)
{
    pl_assert(i < call->override_count);
    return options[call->overrides[i].option].flag;
}

int pl_sim_override(struct pl_sim_call *call, const char *flag, const char *value)
{
    uint32_t option = find_option(flag), i = 0;
    uint64_t v;
    pl_assert(option < OPTIONS);
    if (!read_value(options[option].kind, value, &v))
        return pl_sim_usage_error("--%s is '%s', expected %s", flag, pl_text_clip(value).at,
                                  expectation(options[option].kind));
    while (i < call->override_count && call->overrides[i].option != option)
        i++;
    if (i == call->override_count)
        call->override_count++;
    call->overrides[i].option = option;
    call->overrides[i].value = v;
    return PL_EXIT_OK;
}

/* What was drawn follows what was given. */
static bool fit(const struct pl_sim_call *call, struct pl_sim_options *o, struct pl_sim_wrong *wrong)
{
    if (GIVEN(call, fragments) && !GIVEN(call, shards))
        o->shards = pl_min32(o->shards, pl_max32(o->fragments, 1));
    if (GIVEN(call, period_steps) && !GIVEN(call, fragments))
        o->fragments = (uint32_t)pl_min64(o->fragments, (uint64_t)o->shards * pl_max32(o->period_steps, 1));
    while (pl_sim_find_wrong(o, wrong)) {
        if (is_given(call, wrong->offset))
            return false;
        store(o, at_offset(wrong->offset), pl_clamp64(wrong->value, wrong->lo, wrong->hi));
    }
    return true;
}

int pl_sim_call_options(const struct pl_sim_call *call, uint64_t seed, struct pl_sim_options *o)
{
    struct pl_sim_wrong wrong;
    pl_sim_draw(seed, o);
    for (uint32_t i = 0; i < call->override_count; i++)
        store(o, &options[call->overrides[i].option], call->overrides[i].value);
    if (fit(call, o, &wrong))
        return PL_EXIT_OK;
    const struct option *option = at_offset(wrong.offset);
    fprintf(stderr, "pelago sim: --%s is ", option->flag);
    print_value(stderr, option->kind, wrong.value);
    fprintf(stderr, ", expected ");
    print_value(stderr, option->kind, wrong.lo);
    fprintf(stderr, " to ");
    print_value(stderr, option->kind, wrong.hi);
    if (wrong.offset == offsetof(struct pl_sim_options, quorum))
        fprintf(stderr, ", for there are %" PRIu32 " learners", o->learners);
    if (call->first != call->last)
        fprintf(stderr, " (seed %" PRIu64 ")", seed);
    fprintf(stderr, ".\n");
    return PL_EXIT_USAGE;
}

/* ---- printing ---- */

void pl_sim_print_common(FILE *out, const struct pl_sim_call *call)
{
    if (call->twice_percent != PL_SIM_TWICE_PERCENT)
        fprintf(out, " --twice-percent %" PRIu32, call->twice_percent);
    if (call->mutant != 0)
        fprintf(out, " --mutant %" PRIu32, call->mutant);
    fprintf(out, "\n");
}

void pl_sim_print_reproduce(FILE *out, const struct pl_sim_call *call, uint64_t first, uint64_t last)
{
    if (first == last)
        fprintf(out, "reproduce: pelago sim --seed %" PRIu64, first);
    else
        fprintf(out, "reproduce: pelago sim --seeds %" PRIu64 "..%" PRIu64, first, last);
    for (uint32_t i = 0; i < call->override_count; i++) {
        const struct option *option = &options[call->overrides[i].option];
        fprintf(out, " --%s ", option->flag);
        print_value(out, option->kind, call->overrides[i].value);
    }
    pl_sim_print_common(out, call);
}

void pl_sim_print_flags(FILE *out, const struct pl_sim_options *o)
{
    struct pl_sim_options drawn;
    pl_sim_draw(o->seed, &drawn);
    fprintf(out, "--seed %" PRIu64, o->seed);
    for (size_t i = 0; i < OPTIONS; i++) {
        uint64_t v = load(o, &options[i]);
        if (v == load(&drawn, &options[i]))
            continue;
        fprintf(out, " --%s ", options[i].flag);
        print_value(out, options[i].kind, v);
    }
}

void pl_sim_print_options(FILE *out)
{
    for (size_t i = 0; i < OPTIONS; i++)
        fprintf(out, "  --%-19s %s\n", options[i].flag, options[i].help);
    fprintf(out, "\nFaults:\n");
    for (size_t i = 0; i < FAULT_NAMES; i++)
        fprintf(out, "  %-21s %s\n", faults[i].name, faults[i].help);
}
