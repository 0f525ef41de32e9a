/* cmd/cmd_sim_goodput.c - `pelago sim --goodput`: flags in, one of the jobs of cmd_sim_goodput.h out. */
#include "cmd/cmd_sim_goodput.h"

#include "base/limits.h"
#include "cmd/cmd.h"
#include "cmd/cmd_sim.h"
#include "cmd/options.h"
#include "cmd/text.h"
#include "goodput/protocol.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

/* As a person gives them. */
struct words {
    const char *algorithm, *failures, *repair_spread, *rejoin, *apply, *seeds;
    uint64_t seed;
    bool goodput;
};

/* Times are read in nanoseconds; the options have seconds. */
enum {
    TIME_MTBI,
    TIME_DETECT,
    TIME_DOWNSCALE,
    TIME_UPSCALE,
    TIME_UPSCALE_WAIT,
    TIME_RESTART,
    TIME_REPAIR,
    TIME_SWAP,
    TIME_DOMAIN_REPAIR,
    TIME_STRAGGLER,
    TIME_OUTAGE,
    TIME_STEP,
    TIMES
};

/* Everything the flags fill. */
struct input {
    struct pl_goodput_call call;
    struct words w;
    uint64_t ns[TIMES];
};

static void time_fields(struct pl_goodput_options *o, double *at[TIMES])
{
    at[TIME_MTBI] = &o->mtbi_s;
    at[TIME_DETECT] = &o->detect_s;
    at[TIME_DOWNSCALE] = &o->downscale_s;
    at[TIME_UPSCALE] = &o->upscale_s;
    at[TIME_UPSCALE_WAIT] = &o->upscale_wait_s;
    at[TIME_RESTART] = &o->restart_s;
    at[TIME_REPAIR] = &o->repair.mean_s;
    at[TIME_SWAP] = &o->swap_s;
    at[TIME_DOMAIN_REPAIR] = &o->domain_repair.mean_s;
    at[TIME_STRAGGLER] = &o->straggler_s;
    at[TIME_OUTAGE] = &o->outage.mean_s;
    at[TIME_STEP] = &o->step_s;
}

static const char *const failure_names[PL_GOODPUT_FAILURE_KINDS] = {"poisson", "weibull", "trace"};
static const char *const spread_names[PL_GOODPUT_SPREADS] = {"fixed", "exponential", "lognormal",
                                                             "exp-weibull"};
static const char *const rejoin_names[PL_GOODPUT_REJOINS] = {"peer", "disk"};
static const char *const apply_names[] = {"overwrite", "rebase"};

/* NULL leaves *out as it is. */
static int choose(const char *flag, const char *word, const char *const *names, uint32_t count, uint32_t *out)
{
    if (word == NULL)
        return PL_EXIT_OK;
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(names[i], word) == 0) {
            *out = i;
            return PL_EXIT_OK;
        }
    char all[128] = "";
    for (uint32_t i = 0, len = 0; i < count; i++)
        len += (uint32_t)snprintf(all + len, sizeof all - len, "%s%s",
                                  i == 0          ? ""
                                  : i + 1 < count ? ", "
                                                  : " or ",
                                  names[i]);
    return pl_usage_error("sim", "--%s is '%s', expected %s", flag, pl_text_clip(word).at, all);
}

static int take_words(struct pl_goodput_call *c, const struct words *w)
{
    uint32_t failures = c->o.failures, spread = c->o.repair.spread, rejoin = c->o.rejoin,
             rebase = c->o.rebase;
    int code = choose("failures", w->failures, failure_names, PL_GOODPUT_FAILURE_KINDS, &failures);
    if (code == PL_EXIT_OK)
        code = choose("repair-spread", w->repair_spread, spread_names, PL_GOODPUT_SPREADS, &spread);
    if (code == PL_EXIT_OK)
        code = choose("rejoin", w->rejoin, rejoin_names, PL_GOODPUT_REJOINS, &rejoin);
    if (code == PL_EXIT_OK)
        code = choose("apply", w->apply, apply_names, 2, &rebase);
    if (code != PL_EXIT_OK)
        return code;
    c->o.failures = c->trace != NULL ? PL_GOODPUT_TRACE : (enum pl_goodput_failures)failures;
    c->o.repair.spread = (enum pl_goodput_spread)spread;
    c->o.rejoin = (enum pl_goodput_rejoin)rejoin;
    c->o.rebase = rebase != 0;
    c->first = c->last = w->seed;
    if (w->seeds != NULL && !pl_text_range(w->seeds, &c->first, &c->last))
        return pl_usage_error("sim", "--seeds is '%s', expected A..B with A <= B", pl_text_clip(w->seeds).at);
    if (w->algorithm != NULL)
        c->o.algorithm = pl_goodput_algorithm_find(w->algorithm);
    if (c->o.algorithm == PL_GOODPUT_ALGORITHMS)
        return pl_usage_error("sim",
                              "--algorithm is '%s', expected decoupled, diloco, data_parallel or "
                              "data_parallel_elastic",
                              pl_text_clip(w->algorithm).at);
    return PL_EXIT_OK;
}

static const char about[] =
    "What share of a large cluster's time becomes training, under failures (docs/goodput.md).\n"
    "Without options: 1.2 million chips, 8 learners, decoupled, 30 days, with the constants that\n"
    "reproduce the paper's table 1.";

/* An option: where in struct input its value goes. */
struct spec {
    const char *name, *value, *help;
    enum pl_option_kind kind;
    size_t at;
    uint64_t min, max; /* of whole numbers; goodput/options.c has the ranges of the others */
};
#define SECOND UINT64_C(1000000000) /* in ns */
#define AT(field) offsetof(struct input, field)
#define TIME(which) offsetof(struct input, ns) + (which) * sizeof(uint64_t)

static const struct spec specs[] = {
    {"goodput", NULL, "this simulation", PL_OPTION_FLAG, AT(w.goodput), 0, 0},
    {"chips", "N", "of all learners together: 1200000 or 1.2M", PL_OPTION_COUNT, AT(call.o.chips), 1,
     1000000000},
    {"learners", "N", "M; sites that one job spans for data_parallel", PL_OPTION_U32, AT(call.o.learners), 1,
     PL_GOODPUT_LEARNERS_MAX},
    {"algorithm", "NAME", "decoupled, diloco, data_parallel, data_parallel_elastic", PL_OPTION_TEXT,
     AT(w.algorithm), 0, 0},
    {"days", "N", "how long, in days", PL_OPTION_FLOAT, AT(call.o.days), 0, 0},
    {"seed", "N", "one run", PL_OPTION_U64, AT(w.seed), 0, 0},
    {"seeds", "A..B", "several, with 95% intervals; goes over --seed", PL_OPTION_TEXT, AT(w.seeds), 0, 0},
    {"mtbi", "TIME", "mean time between interruptions of a chip", PL_OPTION_TIME, TIME(TIME_MTBI), SECOND,
     10000000000 * SECOND},
    {"failures", "KIND", "poisson or weibull", PL_OPTION_TEXT, AT(w.failures), 0, 0},
    {"failure-shape", "X", "of weibull", PL_OPTION_FLOAT, AT(call.o.failure_shape), 0, 0},
    {"trace", "FILE", "failures as recorded: lines of t_s,event,node,cause; a node is a slice",
     PL_OPTION_TEXT, AT(call.trace), 0, 0},
    {"trace-scale", "X", "a second of the trace lasts X", PL_OPTION_FLOAT, AT(call.o.trace_scale), 0, 0},
    {"slice", "CHIPS", "that leave and return together", PL_OPTION_U32, AT(call.o.slice_chips), 1, 1 << 30},
    {"detect", "TIME", "from a failure until the job knows", PL_OPTION_TIME, TIME(TIME_DETECT), 0,
     1000000 * SECOND},
    {"downscale", "TIME", "then until it runs without the slice", PL_OPTION_TIME, TIME(TIME_DOWNSCALE), 0,
     1000000 * SECOND},
    {"upscale", "TIME", "stall to take returned slices in", PL_OPTION_TIME, TIME(TIME_UPSCALE), 0,
     1000000 * SECOND},
    {"upscale-wait", "TIME", "a returned slice waits so long for a stall that takes it in anyway",
     PL_OPTION_TIME, TIME(TIME_UPSCALE_WAIT), 0, 100000000 * SECOND},
    {"restart", "TIME", "of a rigid job, after detection", PL_OPTION_TIME, TIME(TIME_RESTART), 0,
     1000000 * SECOND},
    {"repair", "TIME", "mean until a failed slice is back", PL_OPTION_TIME, TIME(TIME_REPAIR), 0,
     100000000 * SECOND},
    {"repair-spread", "KIND", "fixed, exponential, lognormal or exp-weibull", PL_OPTION_TEXT,
     AT(w.repair_spread), 0, 0},
    {"repair-shape", "X", "of lognormal and exp-weibull", PL_OPTION_FLOAT, AT(call.o.repair.shape), 0, 0},
    {"repair-power", "X", "of exp-weibull", PL_OPTION_FLOAT, AT(call.o.repair.power), 0, 0},
    {"spares", "SHARE", "of a learner's slices, kept warm", PL_OPTION_FLOAT, AT(call.o.spare_share), 0, 0},
    {"swap", "TIME", "to put a spare in, instead of --downscale", PL_OPTION_TIME, TIME(TIME_SWAP), 0,
     1000000 * SECOND},
    {"domain-loss", "N", "correlated: losses a day of each group of slices", PL_OPTION_FLOAT,
     AT(call.o.domain_loss_per_day), 0, 0},
    {"domain-slices", "N", "slices of such a group", PL_OPTION_U32, AT(call.o.domain_slices), 1, 1 << 30},
    {"domain-repair", "TIME", "mean until it is back", PL_OPTION_TIME, TIME(TIME_DOMAIN_REPAIR), 0,
     100000000 * SECOND},
    {"speed-sd", "X", "deviation of a slice's speed, as a share of it", PL_OPTION_FLOAT, AT(call.o.speed_sd),
     0, 0},
    {"stragglers", "N", "times a day that a learner is slow", PL_OPTION_FLOAT, AT(call.o.stragglers_per_day),
     0, 0},
    {"straggler-factor", "X", "its speed meanwhile, 1 being full", PL_OPTION_FLOAT,
     AT(call.o.straggler_factor), 0, 0},
    {"straggler-time", "TIME", "mean length of one", PL_OPTION_TIME, TIME(TIME_STRAGGLER), 1,
     10000000 * SECOND},
    {"link-rate", "BITS", "of a learner's link a second, as 100e9; 0: no limit", PL_OPTION_FLOAT,
     AT(call.o.link_bits_s), 0, 0},
    {"outages", "N", "of a learner's link, times a day", PL_OPTION_FLOAT, AT(call.o.outages_per_day), 0, 0},
    {"outage", "TIME", "mean length", PL_OPTION_TIME, TIME(TIME_OUTAGE), 0, 100000000 * SECOND},
    {"rejoin", "WAY", "peer or disk: where a lost learner gets its model", PL_OPTION_TEXT, AT(w.rejoin), 0,
     0},
    {"disk-rate", "BYTES", "a second, of a learner's disks together", PL_OPTION_FLOAT,
     AT(call.o.disk_bytes_s), 0, 0},
    {"apply", "WAY", "rebase or overwrite, with --protocol: local work when a new value comes",
     PL_OPTION_TEXT, AT(w.apply), 0, 0},
    {"step", "TIME", "an inner step", PL_OPTION_TIME, TIME(TIME_STEP), SECOND / 1000, 1000000 * SECOND},
    {"step-tokens", "N", "tokens of a step, all learners at full size", PL_OPTION_FLOAT,
     AT(call.o.step_tokens), 0, 0},
    {"model-bytes", "N", "bytes of the whole model on the link, one way", PL_OPTION_FLOAT,
     AT(call.o.model_bytes), 0, 0},
    {"period", "N", "H, steps", PL_OPTION_U32, AT(call.o.period_steps), 1, PL_PERIOD_STEPS_MAX},
    {"overlap", "N", "tau, steps", PL_OPTION_U32, AT(call.o.overlap_steps), 0, PL_PERIOD_STEPS_MAX},
    {"quorum", "N", "K, learners", PL_OPTION_U32, AT(call.o.quorum), 1, PL_GOODPUT_LEARNERS_MAX},
    {"staleness", "N", "cycles of H after which work without the syncer is lost", PL_OPTION_U32,
     AT(call.o.staleness_max), 1, 1000},
    {"protocol", NULL, "a window driven by the protocol's own state machines, beside the fast mode",
     PL_OPTION_FLAG, AT(call.protocol), 0, 0},
    {"rounds", "N", "of that window, at least", PL_OPTION_U64, AT(call.rounds), 1, PL_PROTOCOL_ROUNDS_MAX},
    {"table1", NULL, "the paper's table 1 beside ours; it has its own chips, learners, algorithms",
     PL_OPTION_FLAG, AT(call.table1), 0, 0},
    {"worlds", NULL, "the same at 1.2M and 2.4M chips with uneven chips, correlated loss, broken links",
     PL_OPTION_FLAG, AT(call.worlds), 0, 0},
    {"beyond", NULL, "changes that go beyond the paper, and what they bring", PL_OPTION_FLAG, AT(call.beyond),
     0, 0},
    {"json", NULL, "one JSON object a line", PL_OPTION_FLAG, AT(call.json), 0, 0},
    {"csv", "FILE", "a line per seed; with --table1 a line per cell", PL_OPTION_TEXT, AT(call.csv), 0, 0},
    {"svg", "FILE", "a plot of it", PL_OPTION_TEXT, AT(call.svg), 0, 0},
};
enum { SPECS = sizeof specs / sizeof specs[0], HELP_MAX = 128 };

/* The help page says what holds without the option: what stands there before anything is read. */
static void describe(char text[static HELP_MAX], const struct spec *spec, const void *value)
{
    struct pl_text t = {""};
    if (spec->kind == PL_OPTION_U32)
        (void)snprintf(t.at, sizeof t.at, "%u", *(const uint32_t *)value);
    else if (spec->kind == PL_OPTION_TIME)
        t = pl_text_of_time(*(const uint64_t *)value);
    else if (spec->kind == PL_OPTION_U64 || spec->kind == PL_OPTION_COUNT)
        (void)snprintf(t.at, sizeof t.at, "%" PRIu64, *(const uint64_t *)value);
    else if (spec->kind == PL_OPTION_FLOAT)
        (void)snprintf(t.at, sizeof t.at, "%g", *(const double *)value);
    (void)snprintf(text, HELP_MAX, t.at[0] != '\0' ? "%s (default: %s)" : "%s", spec->help, t.at);
}

static bool parse(struct input *in, int argc, char **argv, int *code)
{
    struct pl_option table[SPECS];
    char help[SPECS][HELP_MAX];
    for (uint32_t i = 0; i < SPECS; i++) {
        describe(help[i], &specs[i], (uint8_t *)in + specs[i].at);
        table[i] = (struct pl_option){.name = specs[i].name,
                                      .value = specs[i].value,
                                      .help = help[i],
                                      .kind = specs[i].kind,
                                      .into = (uint8_t *)in + specs[i].at,
                                      .min = specs[i].min,
                                      .max = specs[i].max};
    }
    const struct pl_options options = {"sim", "--goodput [OPTION...]", about, table, SPECS};
    struct pl_words words;
    if (!pl_options_parse(&options, argc, argv, &words, code))
        return false;
    if (words.count > 0)
        *code = pl_usage_error("sim", "'%s' is not an option; options begin with --",
                               pl_text_clip(words.at[0]).at);
    return words.count == 0;
}

/* What does not go together, and files that would be written over each other. */
static int check_call(const struct pl_goodput_call *c)
{
    if (c->table1 + c->worlds + c->beyond + c->protocol > 1)
        return pl_usage_error("sim", "--table1, --worlds, --beyond and --protocol do not go together");
    if ((c->csv != NULL || c->svg != NULL) && (c->worlds || c->beyond || c->protocol))
        return pl_usage_error("sim", "--%s is written of one setting or of --table1 only; --json has all",
                              c->csv != NULL ? "csv" : "svg");
    if (c->csv != NULL && c->svg != NULL && pl_whole_same(c->csv, c->svg))
        return pl_usage_error("sim", "--csv and --svg are the same file, expected two");
    if (c->trace != NULL && ((c->csv != NULL && pl_whole_same(c->csv, c->trace)) ||
                             (c->svg != NULL && pl_whole_same(c->svg, c->trace))))
        return pl_usage_error("sim", "--%s would be written over --trace, expected another file",
                              c->csv != NULL && pl_whole_same(c->csv, c->trace) ? "csv" : "svg");
    return PL_EXIT_OK;
}

static int read_call(struct input *in, int argc, char **argv, bool *go_on)
{
    struct pl_goodput_call *c = &in->call;
    double *seconds[TIMES];
    uint64_t before[TIMES];
    int code = PL_EXIT_OK;
    *in = (struct input){.w.seed = 1, .call.rounds = 10000};
    pl_goodput_defaults(&c->o);
    time_fields(&c->o, seconds);
    for (uint32_t i = 0; i < TIMES; i++)
        before[i] = in->ns[i] = (uint64_t)(*seconds[i] * 1e9);
    *go_on = parse(in, argc, argv, &code);
    if (!*go_on)
        return code;
    for (uint32_t i = 0; i < TIMES; i++)
        if (in->ns[i] != before[i])
            *seconds[i] = (double)in->ns[i] / 1e9;
    code = take_words(c, &in->w);
    return code == PL_EXIT_OK ? check_call(c) : code;
}

static int do_call(struct pl_goodput_call *c)
{
    if (c->table1)
        return pl_goodput_call_table1(c);
    if (c->worlds)
        return pl_goodput_call_worlds(c);
    if (c->beyond)
        return pl_goodput_call_beyond(c);
    return c->protocol ? pl_goodput_call_protocol(c) : pl_goodput_call_run(c);
}

int pl_sim_goodput(int argc, char **argv)
{
    struct input in;
    bool go_on;
    int code = read_call(&in, argc, argv, &go_on);
    if (!go_on || code != PL_EXIT_OK)
        return code;
    if (in.call.trace != NULL)
        code = pl_goodput_trace_read(&in.call);
    if (code == PL_EXIT_OK)
        code = do_call(&in.call);
    pl_goodput_trace_free(&in.call);
    return code;
}
