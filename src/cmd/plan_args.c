/* cmd/plan_args.c - see plan_args.h. */
#include "cmd/plan_args.h"

#include "base/check.h"
#include "base/limits.h"
#include "cmd/cmd.h"
#include "cmd/run_args.h"
#include "cmd/text.h"
#include "cmd/whole_file.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

const char pl_plan_command[] = "plan";
enum { OPTIONS_MAX = 48 };

static const char about[] =
    "What to expect of a run over several sites, before it is paid for: fragments, period, codecs, shards "
    "of\n"
    "the syncer, utilisation, goodput, time, cost, the bottleneck, and the configuration to begin with.\n"
    "\n"
    "    pelago plan --params 12G --chips 256,256,128 --tflops 200 --link 5Gbit,5Gbit,500Mbit\n"
    "    pelago plan --config examples/plan/four-regions.yaml --write run.yaml\n"
    "\n"
    "Every site is one learner. X* may be one value for all sites or a list with one for each. "
    "docs/planner.md\n"
    "says what is assumed.";

static uint32_t site_options(struct pl_plan_args *a, struct pl_option *out)
{
    const struct pl_option table[] = {
        {"sites", "NAME*", "their names; regions, with --wan (default: site-1, site-2, ...)", PL_OPTION_LIST,
         &a->sites, 0, 0},
        {"chips", "N*", "chips of a site", PL_OPTION_LIST, &a->chips, 0, 0},
        {"tflops", "X*", "TFLOP/s that a chip sustains in training (default: 200)", PL_OPTION_LIST,
         &a->tflops, 0, 0},
        {"link", "RATE*", "to the syncer, each way, such as 500Mbit (default: 10Gbit)", PL_OPTION_LIST,
         &a->link, 0, 0},
        {"latency", "TIME*", "there and back (default: 50ms)", PL_OPTION_LIST, &a->latency, 0, 0},
        {"mtbi", "TIME*", "mean time between interruptions of one chip (default: 365d)", PL_OPTION_LIST,
         &a->mtbi, 0, 0},
        {"outages", "X*", "of its link, times a day (default: 0)", PL_OPTION_LIST, &a->outages, 0, 0},
        {"price", "X*", "of a chip for an hour, in any money (default: cost is counted in chip-hours)",
         PL_OPTION_LIST, &a->price, 0, 0},
        {"egress", "X*", "of a GB over the link, in the same money (default: 0)", PL_OPTION_LIST, &a->egress,
         0, 0},
    };
    memcpy(out, table, sizeof table);
    return sizeof table / sizeof table[0];
}

static uint32_t run_options(struct pl_plan_args *a, struct pl_option *out)
{
    const uint64_t billion = 1000000000, long_ns = billion * billion / 10; /* 1e8 seconds */
    const struct pl_option table[] = {
        {"params", "COUNT", "parameters of the model, such as 12G", PL_OPTION_COUNT, &a->params, 1000,
         1000 * billion},
        {"model", "NAME", "... or a preset: 1m, 5m, 14m, 35m, 124m, 350m or 1b", PL_OPTION_TEXT, &a->model, 0,
         0},
        {"tokens", "COUNT", "how long to train (default: 20 a parameter)", PL_OPTION_COUNT, &a->tokens, 1000,
         billion * billion},
        {"batch", "COUNT", "tokens of one learner's step (default: by the scaling laws)", PL_OPTION_COUNT,
         &a->batch, 1, 10 * billion},
        {"slice", "N", "chips that fail and return together (default: 4)", PL_OPTION_U32, &a->slice, 1,
         1 << 20},
        {"repair", "TIME", "until a failed slice is back (default: 60min)", PL_OPTION_TIME, &a->repair_ns, 0,
         long_ns},
        {"outage", "TIME", "how long an outage lasts (default: 5min)", PL_OPTION_TIME, &a->outage_ns, 0,
         long_ns},
        {"deadline", "TIME", "until the run must be done", PL_OPTION_TIME, &a->deadline_ns, 1, 100 * long_ns},
        {"wan", "FILE", "measured links (CSV of Skyplane or of pairs); --sites are its regions",
         PL_OPTION_TEXT, &a->wan, 0, 0},
        {"syncer", "NAME", "the region of the syncer (default: the site that is best)", PL_OPTION_TEXT,
         &a->syncer, 0, 0},
        {"syncer-memory", "COUNT", "bytes of one host of the syncer (default: 64G)", PL_OPTION_COUNT,
         &a->memory, billion / 1000, 1000000 * billion},
        {"syncer-link", "RATE", "of one host of the syncer (default: 10Gbit)", PL_OPTION_RATE,
         &a->syncer_rate, 125, 125000 * billion},
        {"quorum", "N", "learners a merge needs (default: 1)", PL_OPTION_U32, &a->quorum, 1,
         PL_PLAN_SITES_MAX},
        {"fragments", "N", "P, given instead of chosen", PL_OPTION_U32, &a->fragments, 1, PL_FRAGMENTS_MAX},
        {"period", "N", "H, given instead of chosen", PL_OPTION_U32, &a->period, 1, PL_PERIOD_STEPS_MAX},
        {"up", "CODEC", "given instead of chosen: " PL_CODEC_NAMES, PL_OPTION_TEXT, &a->up, 0, 0},
        {"down", "CODEC", "the same for the way down", PL_OPTION_TEXT, &a->down, 0, 0},
    };
    memcpy(out, table, sizeof table);
    return sizeof table / sizeof table[0];
}

/* What would be ignored is refused, and a file that would be written over what it is made from. */
static int check_together(const struct pl_plan_args *a)
{
    if (a->check && a->bandwidth)
        return pl_usage_error(pl_plan_command, "--check and --bandwidth do not go together");
    if ((a->check || a->bandwidth) &&
        (a->chips != NULL || a->params > 0 || a->model != NULL || a->write != NULL))
        return pl_usage_error(pl_plan_command,
                              "--%s plans nothing of yours, expected no chips, params, model or "
                              "write with it",
                              a->check ? "check" : "bandwidth");
    if (a->seeds != NULL && !a->check)
        return pl_usage_error(pl_plan_command, "--seeds goes with --check only: a plan draws nothing");
    if (a->syncer != NULL && a->wan == NULL)
        return pl_usage_error(pl_plan_command, "--syncer names a region of --wan, which is not given");
    if (a->write != NULL && a->config != NULL && pl_whole_same(a->write, a->config))
        return pl_usage_error(pl_plan_command, "--write would go over --config, expected another file");
    if (a->write != NULL && a->wan != NULL && pl_whole_same(a->write, a->wan))
        return pl_usage_error(pl_plan_command, "--write would go over --wan, expected another file");
    return PL_EXIT_OK;
}

bool pl_plan_args_parse(struct pl_plan_args *a, int argc, char **argv, int *exit_code)
{
    const struct pl_option own[] = {
        {"write", "FILE", "the configuration for pelago syncer and pelago run", PL_OPTION_TEXT, &a->write, 0,
         0},
        {"json", NULL, "print JSON", PL_OPTION_FLAG, &a->json, 0, 0},
        {"bandwidth", NULL, "the published bandwidth tables beside the model's", PL_OPTION_FLAG,
         &a->bandwidth, 0, 0},
        {"check", NULL, "plans of random scenarios against their simulation, without any sites of yours",
         PL_OPTION_FLAG, &a->check, 0, 0},
        {"seeds", "A..B", "... of these seeds (default: 1..10)", PL_OPTION_TEXT, &a->seeds, 0, 0},
        {"config", "FILE", "YAML with any of these options, key: value; the command line goes over it",
         PL_OPTION_TEXT, &a->config, 0, 0},
    };
    struct pl_option table[OPTIONS_MAX];
    uint32_t count = site_options(a, table);
    count += run_options(a, table + count);
    pl_assert(count + sizeof own / sizeof own[0] <= OPTIONS_MAX);
    memcpy(table + count, own, sizeof own);
    count += sizeof own / sizeof own[0];
    const struct pl_options options = {pl_plan_command, "[OPTION...]", about, table, count};
    struct pl_words words;
    struct pl_plan_input usual;
    pl_plan_defaults(&usual);
    *a = (struct pl_plan_args){.repair_ns = (uint64_t)(usual.repair_s * 1e9),
                               .outage_ns = (uint64_t)(usual.outage_s * 1e9)};
    pl_conf_init(&a->conf);
    if (!pl_options_parse_with_file(&options, &a->conf, argc, argv, &words, exit_code))
        return false;
    if (words.count > 0)
        *exit_code = pl_usage_error(pl_plan_command, "unexpected '%s'", pl_text_clip(words.at[0]).at);
    else
        *exit_code = check_together(a);
    return *exit_code == PL_EXIT_OK;
}

/* ---- lists ---- */

/* One field of every site from a list; times and rates arrive in ns and bytes a second. */
struct list {
    const char *name, *values, *example;
    enum pl_option_kind kind;
    size_t at; /* a double of pl_plan_site */
    double unit;
};

static enum pelago_status count_sites(const struct list *lists, size_t count, const struct pl_plan_args *a,
                                      struct pl_plan_input *in, struct pl_error *err)
{
    const char *first = a->sites != NULL ? "sites" : "chips";
    in->site_count = pl_list_count(a->sites != NULL ? a->sites : a->chips);
    if (in->site_count > PL_PLAN_SITES_MAX)
        return pl_fail(err, PELAGO_INVALID, "--%s has %u values, expected 1 to %u", first, in->site_count,
                       (unsigned)PL_PLAN_SITES_MAX);
    for (size_t i = 0; i < count; i++) {
        uint32_t n = lists[i].values != NULL ? pl_list_count(lists[i].values) : 1;
        if (n > 1 && n != in->site_count)
            return pl_fail(err, PELAGO_INVALID,
                           "--%s has %u values, expected one, or one for each of the %u %s", lists[i].name, n,
                           in->site_count, first);
    }
    return PELAGO_OK;
}

static enum pelago_status read_item(const struct list *l, uint32_t i, double *out, struct pl_error *err)
{
    char item[PL_RUN_ITEM_MAX];
    uint64_t whole = 0;
    const struct pl_option as = {
        l->name, "X", "", l->kind, l->kind == PL_OPTION_FLOAT ? (void *)out : (void *)&whole, 0, 0};
    if (!pl_list_item(l->values, i, item))
        return pl_fail(err, PELAGO_INVALID, "--%s is '%s', expected values with commas between them", l->name,
                       pl_text_clip(l->values).at);
    if (pl_option_set(&as, "", item, err) != PELAGO_OK)
        return pl_fail(err, PELAGO_INVALID, "--%s is '%s', expected %s, such as %s", l->name,
                       pl_text_clip(item).at, pl_plan_expected(l->name), l->example);
    if (l->kind != PL_OPTION_FLOAT)
        *out = (double)whole * l->unit;
    return PELAGO_OK;
}

static enum pelago_status read_names(const struct pl_plan_args *a, struct pl_plan_input *in,
                                     struct pl_error *err)
{
    for (uint32_t i = 0; i < in->site_count; i++) {
        char item[PL_RUN_ITEM_MAX];
        if (a->sites != NULL && !pl_list_item(a->sites, i, item))
            return pl_fail(err, PELAGO_INVALID, "--sites is '%s', expected names of at most %u letters",
                           pl_text_clip(a->sites).at, (unsigned)PL_RUN_ITEM_MAX - 1);
        if (a->sites == NULL)
            (void)snprintf(item, sizeof item, "site-%u", i + 1);
        pl_text_clean(item);
        (void)snprintf(in->sites[i].name, sizeof in->sites[i].name, "%s", item);
    }
    return PELAGO_OK;
}

static enum pelago_status read_sites(const struct pl_plan_args *a, struct pl_plan_input *in,
                                     struct pl_error *err)
{
    const struct list lists[] = {
        {"tflops", a->tflops, "200", PL_OPTION_FLOAT, offsetof(struct pl_plan_site, tflops), 1},
        {"link", a->link, "500Mbit", PL_OPTION_RATE, offsetof(struct pl_plan_site, link_bits_s), 8},
        {"latency", a->latency, "50ms", PL_OPTION_TIME, offsetof(struct pl_plan_site, latency_s), 1e-9},
        {"mtbi", a->mtbi, "365d", PL_OPTION_TIME, offsetof(struct pl_plan_site, mtbi_s), 1e-9},
        {"outages", a->outages, "0.5", PL_OPTION_FLOAT, offsetof(struct pl_plan_site, outages_per_day), 1},
        {"price", a->price, "2.50", PL_OPTION_FLOAT, offsetof(struct pl_plan_site, price), 1},
        {"egress", a->egress, "0.02", PL_OPTION_FLOAT, offsetof(struct pl_plan_site, egress), 1},
        {"chips", a->chips, "256", PL_OPTION_COUNT, 0, 1},
    };
    const size_t count = sizeof lists / sizeof lists[0];
    if (a->chips == NULL)
        return pl_fail(err, PELAGO_INVALID, "--chips is not given, expected one number for each site");
    PL_TRY(count_sites(lists, count, a, in, err));
    PL_TRY(read_names(a, in, err));
    for (uint32_t i = 0; i < in->site_count; i++) {
        double v;
        for (size_t k = 0; k + 1 < count; k++)
            if (lists[k].values != NULL) {
                PL_TRY(read_item(&lists[k], i, &v, err));
                memcpy((char *)&in->sites[i] + lists[k].at, &v, sizeof v);
            }
        PL_TRY(read_item(&lists[count - 1], i, &v, err));
        in->sites[i].chips = (uint64_t)fmin(v, 1e18);
    }
    return PELAGO_OK;
}

/* ---- the model ---- */

/* Layers grow with the width, 128 of it a layer: 12 width^2 parameters each, and the embedding. */
static void shape_of(double params, struct pl_model_config *out)
{
    bool large = params >= 1e8;
    *out =
        (struct pl_model_config){.vocab = large ? 32768 : 4096, .context = large ? 2048 : 1024, .tied = true};
    double width = cbrt(params * 128 / 12);
    while (width > 128 && 12 * width * width * width / 128 + out->vocab * width > params)
        width *= 0.99;
    out->width = (uint32_t)fmax(floor(width / 64 + 0.5), 1) * 64;
    out->layers = (uint32_t)fmin(fmax(floor(width / 128 + 0.5), 1), PL_LAYERS_MAX);
    pl_model_config_complete(out);
}

static enum pelago_status read_model(struct pl_plan_args *a, struct pl_plan_input *in, struct pl_error *err)
{
    if (a->model != NULL && a->params > 0)
        return pl_fail(err, PELAGO_INVALID,
                       "--params and --model both say how large it is, expected one of them");
    if (a->model == NULL && a->params == 0)
        return pl_fail(err, PELAGO_INVALID, "--params is not given, expected 1000 to 1000G, or --model");
    if (a->model != NULL) {
        if (pl_model_config_preset(a->model, &a->shape, err) != PELAGO_OK)
            return PELAGO_INVALID;
        in->params = (double)pl_model_config_params(&a->shape);
    } else {
        in->params = (double)a->params;
        shape_of(in->params, &a->shape);
    }
    in->tokens = a->tokens > 0 ? (double)a->tokens : 20 * in->params;
    in->batch_tokens = a->batch > 0 ? (double)a->batch : pl_plan_batch(in->params, in->site_count);
    return PELAGO_OK;
}

static enum pelago_status read_codec(const char *name, const char *word, enum pl_codec *out,
                                     struct pl_error *err)
{
    if (word == NULL || pl_codec_of_name(word, out))
        return PELAGO_OK;
    return pl_fail(err, PELAGO_INVALID, "--%s is '%s', expected " PL_CODEC_NAMES, name,
                   pl_text_clip(word).at);
}

enum pelago_status pl_plan_args_input(struct pl_plan_args *a, struct pl_plan_input *in, struct pl_error *err)
{
    const double ns = 1e-9;
    pl_plan_defaults(in);
    in->slice_chips = a->slice > 0 ? a->slice : in->slice_chips;
    in->quorum = a->quorum > 0 ? a->quorum : in->quorum;
    in->repair_s = (double)a->repair_ns * ns;
    in->outage_s = (double)a->outage_ns * ns;
    in->deadline_s = (double)a->deadline_ns * ns;
    in->syncer_bytes = a->memory > 0 ? (double)a->memory : in->syncer_bytes;
    in->syncer_bits_s = a->syncer_rate > 0 ? (double)a->syncer_rate * 8 : in->syncer_bits_s;
    in->fixed = (struct pl_plan_choice){.fragments = a->fragments, .period = a->period};
    PL_TRY(read_codec("up", a->up, &in->fixed.up, err));
    PL_TRY(read_codec("down", a->down, &in->fixed.down, err));
    PL_TRY(read_sites(a, in, err));
    PL_TRY(read_model(a, in, err));
    return pl_plan_check(in, err);
}
