/* cmd/cmd_sim_goodput_report.c - one setting of `pelago sim --goodput`: as a table, as JSON, as CSV, as a plot. */
#include "cmd/cmd.h"
#include "cmd/cmd_sim_goodput.h"
#include "cmd/options.h"

#include <inttypes.h>

int pl_goodput_refused(enum pelago_status status, const struct pl_error *err)
{
    return status == PELAGO_INVALID ? pl_refusal("sim", err) : pl_failure("sim", err);
}

int pl_goodput_open(struct pl_whole_file *w, const char *path)
{
    struct pl_error err;
    *w = (struct pl_whole_file){.f = NULL};
    if (path == NULL || pl_whole_open(w, path, &err) == PELAGO_OK)
        return PL_EXIT_OK;
    return pl_failure("sim", &err);
}

int pl_goodput_close(struct pl_whole_file *w, int code)
{
    struct pl_error err;
    if (code != PL_EXIT_OK)
        pl_whole_abandon(w);
    else if (pl_whole_close(w, &err) != PELAGO_OK)
        code = pl_failure("sim", &err);
    return code;
}

int pl_goodput_measure(const struct pl_goodput_call *c, const struct pl_goodput_options *o,
                       pl_goodput_each *each, void *user, struct pl_goodput_seeds *out)
{
    struct pl_alloc alloc = pl_alloc_system();
    struct pl_error err;
    enum pelago_status status = pl_goodput_over_seeds(o, c->first, c->last, &alloc, each, user, out, &err);
    return status == PELAGO_OK ? PL_EXIT_OK : pl_goodput_refused(status, &err);
}

/* ---- CSV ---- */

static void csv_head(FILE *f)
{
    fputs(
        "chips,learners,algorithm,seed,days,goodput,uptime,useful_tokens,lost_stall,lost_repair,lost_spares,"
        "lost_steps,lost_wait,lost_rejoin,lost_overwrite,lost_speed,staleness_mean,failures,stalls,upscales,"
        "outages,rejoins,events\n",
        f);
}

struct csv {
    FILE *f;
    const struct pl_goodput_options *o;
};

static void csv_line(void *user, uint64_t seed, const struct pl_goodput_result *r)
{
    const struct csv *to = user;
    if (to->f == NULL)
        return;
    fprintf(to->f,
            "%" PRIu64 ",%u,%s,%" PRIu64
            ",%g,%.6f,%.6f,%.6g,%.6f,%.6f,%.6f,%.6f,%.6f,%.6f,%.6f,%.6f,%.4f,%" PRIu64 ",%" PRIu64 ",%" PRIu64
            ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 "\n",
            to->o->chips, to->o->learners, pl_goodput_algorithm_name(to->o->algorithm), seed, r->days,
            r->goodput, r->uptime, r->useful_tokens, r->lost_stall, r->lost_repair, r->lost_spares,
            r->lost_steps, r->lost_wait, r->lost_rejoin, r->lost_overwrite, r->lost_speed, r->staleness_mean,
            r->failures, r->stalls, r->upscales, r->outages, r->rejoins, r->events);
}

/* ---- JSON ---- */

static uint32_t bins(const struct pl_goodput_result *r)
{
    uint32_t n = PL_GOODPUT_STALENESS_MAX;
    while (n > 1 && r->staleness[n - 1] <= 0)
        n--;
    return n;
}

static void json_array(const char *name, const double *values, uint32_t count)
{
    printf(",\"%s\":[", name);
    for (uint32_t i = 0; i < count; i++)
        printf("%s%.6f", i == 0 ? "" : ",", values[i]);
    printf("]");
}

static void print_json(const struct pl_goodput_options *o, const struct pl_goodput_seeds *s)
{
    const struct pl_goodput_result *r = &s->mean;
    printf("{\"chips\":%" PRIu64
           ",\"learners\":%u,\"algorithm\":\"%s\",\"days\":%g,\"seeds\":%u,\"goodput\":%.6f,"
           "\"goodput_ci\":%.6f,\"uptime\":%.6f,\"uptime_ci\":%.6f,\"useful_tokens\":%.6g",
           o->chips, o->learners, pl_goodput_algorithm_name(o->algorithm), r->days, s->count, r->goodput,
           s->goodput_ci, r->uptime, s->uptime_ci, r->useful_tokens);
    printf(",\"lost\":{\"stall\":%.6f,\"repair\":%.6f,\"spares\":%.6f,\"steps\":%.6f,\"wait\":%.6f,"
           "\"rejoin\":%.6f,"
           "\"overwrite\":%.6f,\"speed\":%.6f}",
           r->lost_stall, r->lost_repair, r->lost_spares, r->lost_steps, r->lost_wait, r->lost_rejoin,
           r->lost_overwrite, r->lost_speed);
    json_array("cohort", r->cohort, r->learners + 1);
    json_array("staleness", r->staleness, bins(r));
    printf(",\"staleness_mean\":%.4f,\"failures\":%" PRIu64 ",\"stalls\":%" PRIu64 ",\"upscales\":%" PRIu64
           ",\"outages\":%" PRIu64 ",\"rejoins\":%" PRIu64 ",\"events\":%" PRIu64 ",\"bytes\":%" PRIu64 "}\n",
           r->staleness_mean, r->failures, r->stalls, r->upscales, r->outages, r->rejoins, r->events,
           r->bytes);
}

/* ---- a table ---- */

static void print_cohorts(const struct pl_goodput_result *r)
{
    printf("learners at work   ");
    for (uint32_t i = r->learners + 1, shown = 0; i-- > 0 && shown < 10;)
        if (r->cohort[i] >= 0.00005) {
            printf(" %u: %.2f%%", i, 100 * r->cohort[i]);
            shown++;
        }
    printf("\nstaleness in steps ");
    for (uint32_t i = 0, shown = 0; i < PL_GOODPUT_STALENESS_MAX && shown < 10; i++)
        if (r->staleness[i] >= 0.0005) {
            printf(" %u%s: %.2f%%", i, i + 1 < PL_GOODPUT_STALENESS_MAX ? "" : "+", 100 * r->staleness[i]);
            shown++;
        }
    printf("  mean %.1f\n", r->staleness_mean);
}

/* The interval is that of a mean: one seed has none. */
static void print_share(const char *name, double share, double ci, uint32_t seeds)
{
    printf("%-18s %6.2f%%", name, 100 * share);
    if (seeds > 1)
        printf(" +- %.2f", 100 * ci);
    printf("\n");
}

static void print_table(const struct pl_goodput_options *o, const struct pl_goodput_seeds *s)
{
    const struct pl_goodput_result *r = &s->mean;
    printf("%" PRIu64 " chips, %u %s, %s, %g days, %u seed%s\n", o->chips, o->learners,
           o->learners == 1 ? "learner" : "learners", pl_goodput_algorithm_name(o->algorithm), r->days,
           s->count, s->count == 1 ? "" : "s");
    print_share("goodput", r->goodput, s->goodput_ci, s->count);
    print_share("uptime", r->uptime, s->uptime_ci, s->count);
    printf("useful tokens      %.4g\n", r->useful_tokens);
    const struct {
        const char *name;
        double share;
    } lost[] = {{"stalls", r->lost_stall},          {"slices away", r->lost_repair},
                {"warm spares", r->lost_spares},    {"steps in flight", r->lost_steps},
                {"waiting", r->lost_wait},          {"rejoining", r->lost_rejoin},
                {"overwritten", r->lost_overwrite}, {"slow chips", r->lost_speed}};
    for (uint32_t i = 0; i < sizeof lost / sizeof lost[0]; i++)
        if (lost[i].share > 0)
            printf("lost: %-15s %6.2f%%\n", lost[i].name, 100 * lost[i].share);
    print_cohorts(r);
    printf("%" PRIu64 " failures, %" PRIu64 " stalls, %" PRIu64 " to grow back, %" PRIu64 " outages, %" PRIu64
           " rejoins; %" PRIu64 " events, %.1f MB\n",
           r->failures, r->stalls, r->upscales, r->outages, r->rejoins, r->events, (double)r->bytes / 1e6);
}

int pl_goodput_call_run(const struct pl_goodput_call *c)
{
    struct pl_goodput_seeds s;
    struct pl_whole_file file, plot;
    int code = pl_goodput_open(&file, c->csv);
    if (code != PL_EXIT_OK)
        return code;
    code = pl_goodput_open(&plot, c->svg);
    if (code == PL_EXIT_OK) {
        struct csv csv = {file.f, &c->o};
        if (csv.f != NULL)
            csv_head(csv.f);
        code = pl_goodput_measure(c, &c->o, csv_line, &csv, &s);
    }
    if (code == PL_EXIT_OK && plot.f != NULL)
        pl_goodput_svg_run(plot.f, c, &s);
    code = pl_goodput_close(&file, code);
    code = pl_goodput_close(&plot, code);
    if (code == PL_EXIT_OK)
        (c->json ? print_json : print_table)(&c->o, &s);
    return code;
}
