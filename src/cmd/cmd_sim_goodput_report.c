/* cmd/cmd_sim_goodput_report.c - one setting of `pelago sim --goodput`: as a table, as JSON, as CSV, as a plot. */
#include "cmd/cmd.h"
#include "cmd/cmd_sim_goodput.h"
#include "cmd/options.h"
#include "cmd/text.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

int pl_goodput_refused(enum pelago_status status, const struct pl_error *err)
{
    return status == PELAGO_INVALID ? pl_refusal("sim", err) : pl_failure("sim", err);
}

FILE *pl_goodput_create(const char *path)
{
    FILE *f = fopen(path, "we");
    if (f == NULL)
        (void)pl_usage_error("sim", "%s cannot be written: %s", pl_text_clip(path).at, strerror(errno));
    return f;
}

int pl_goodput_close(FILE *f, const char *path)
{
    bool good = ferror(f) == 0;
    if (fclose(f) == 0 && good)
        return PL_EXIT_OK;
    (void)pl_usage_error("sim", "%s cannot be written", pl_text_clip(path).at);
    return PL_EXIT_FAILED;
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

static void print_table(const struct pl_goodput_options *o, const struct pl_goodput_seeds *s)
{
    const struct pl_goodput_result *r = &s->mean;
    printf("%" PRIu64 " chips, %u %s, %s, %g days, %u seed%s\n", o->chips, o->learners,
           o->learners == 1 ? "learner" : "learners", pl_goodput_algorithm_name(o->algorithm), r->days,
           s->count, s->count == 1 ? "" : "s");
    printf(
        "goodput            %6.2f%% +- %.2f\nuptime             %6.2f%% +- %.2f\nuseful tokens      %.4g\n",
        100 * r->goodput, 100 * s->goodput_ci, 100 * r->uptime, 100 * s->uptime_ci, r->useful_tokens);
    const struct {
        const char *name;
        double share;
    } lost[] = {{"stalls", r->lost_stall},          {"slices away", r->lost_repair},
                {"warm spares", r->lost_spares},    {"steps in flight", r->lost_steps},
                {"waiting", r->lost_wait},          {"rejoining", r->lost_rejoin},
                {"overwritten", r->lost_overwrite}, {"slow chips", r->lost_speed}};
    for (uint32_t i = 0; i < sizeof lost / sizeof lost[0]; i++)
        if (lost[i].share > 0)
            printf("lost: %-12s %6.2f%%\n", lost[i].name, 100 * lost[i].share);
    print_cohorts(r);
    printf("%" PRIu64 " failures, %" PRIu64 " stalls, %" PRIu64 " to grow back, %" PRIu64 " outages, %" PRIu64
           " rejoins; %" PRIu64 " events, %.1f MB\n",
           r->failures, r->stalls, r->upscales, r->outages, r->rejoins, r->events, (double)r->bytes / 1e6);
}

int pl_goodput_call_run(const struct pl_goodput_call *c)
{
    struct pl_goodput_seeds s;
    struct csv csv = {NULL, &c->o};
    if (c->csv != NULL) {
        csv.f = pl_goodput_create(c->csv);
        if (csv.f == NULL)
            return PL_EXIT_FAILED;
        csv_head(csv.f);
    }
    int code = pl_goodput_measure(c, &c->o, csv_line, &csv, &s);
    if (csv.f != NULL) {
        int closed = pl_goodput_close(csv.f, c->csv);
        code = code == PL_EXIT_OK ? closed : code;
    }
    if (code != PL_EXIT_OK)
        return code;
    (c->json ? print_json : print_table)(&c->o, &s);
    return c->svg != NULL ? pl_goodput_svg_run(c->svg, c, &s) : PL_EXIT_OK;
}
