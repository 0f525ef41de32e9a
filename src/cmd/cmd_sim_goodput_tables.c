/* cmd/cmd_sim_goodput_tables.c - `pelago sim --goodput --table1`, `--worlds` and `--beyond`: named settings side by side. */
#include "cmd/cmd.h"
#include "cmd/cmd_sim_goodput.h"
#include "goodput/cases.h"
#include "goodput/protocol.h"

#include <inttypes.h>
#include <math.h>

/* ---- table 1 ---- */

static void table1_cell(const struct pl_goodput_call *c, const struct pl_paper_cell *cell,
                        const struct pl_goodput_seeds *s, FILE *csv)
{
    double percent = 100 * s->mean.goodput;
    if (c->json)
        printf("{\"table\":1,\"row\":\"%s\",\"chips\":%" PRIu64
               ",\"goodput\":%.6f,\"goodput_ci\":%.6f,\"uptime\":%.6f,"
               "\"paper\":%.2f,\"difference\":%.3f,\"within\":%s}\n",
               cell->row, cell->chips, s->mean.goodput, s->goodput_ci, s->mean.uptime, cell->percent / 100,
               percent - cell->percent, fabs(percent - cell->percent) <= cell->tolerance ? "true" : "false");
    else
        printf("  %3.0f %5.1f %+5.1f", cell->percent, percent, percent - cell->percent);
    if (csv != NULL)
        fprintf(csv, "\"%s\",%" PRIu64 ",%.2f,%.4f,%.4f,%.4f,%.4f\n", cell->row, cell->chips, cell->percent,
                percent, percent - cell->percent, 100 * s->goodput_ci, 100 * s->mean.uptime);
}

struct worst {
    double rigid, others; /* the largest differences */
    uint32_t outside;
};

static void judge(struct worst *w, const struct pl_paper_cell *cell, double goodput)
{
    double off = fabs(100 * goodput - cell->percent);
    double *worst = cell->tolerance > 3 ? &w->rigid : &w->others;
    *worst = fmax(*worst, off);
    w->outside += off > cell->tolerance ? 1 : 0;
}

static int table1_row(const struct pl_goodput_call *c, uint32_t row, FILE *csv, struct pl_goodput_line *line,
                      struct worst *worst)
{
    double uptime[PL_PAPER_SIZES];
    *line = (struct pl_goodput_line){.name = pl_paper_cell(row, 0).row, .count = PL_PAPER_SIZES};
    if (!c->json)
        printf("%-22s", line->name);
    for (uint32_t size = 0; size < PL_PAPER_SIZES; size++) {
        struct pl_paper_cell cell = pl_paper_cell(row, size);
        struct pl_goodput_options o = c->o;
        struct pl_goodput_options named;
        struct pl_goodput_seeds s;
        pl_paper_options(row, size, &named);
        o.chips = named.chips; /* the constants stay as given */
        o.learners = named.learners;
        o.algorithm = named.algorithm;
        int code = pl_goodput_measure(c, &o, NULL, NULL, &s);
        if (code != PL_EXIT_OK)
            return code;
        table1_cell(c, &cell, &s, csv);
        judge(worst, &cell, s.mean.goodput);
        uptime[size] = s.mean.uptime;
        line->x[size] = (double)cell.chips;
        line->y[size] = 100 * s.mean.goodput;
        line->half[size] = 100 * s.goodput_ci;
        line->mark[size] = cell.percent;
    }
    if (!c->json) {
        printf("\n%-22s", "  uptime");
        for (uint32_t size = 0; size < PL_PAPER_SIZES; size++)
            printf("     %6.2f     ", 100 * uptime[size]);
        printf("\n");
    }
    return PL_EXIT_OK;
}

static int table1_rows(const struct pl_goodput_call *c, FILE *csv, struct pl_goodput_line *lines)
{
    struct worst worst = {0};
    if (csv != NULL)
        fputs("row,chips,paper,goodput,difference,goodput_ci,uptime\n", csv);
    if (!c->json)
        printf("goodput in %%: paper, here, difference\n%-22s  150k            300k            600k          "
               "  1.2M            2.4M\n",
               "");
    for (uint32_t row = 0; row < PL_PAPER_ROWS; row++) {
        int code = table1_row(c, row, csv, &lines[row], &worst);
        if (code != PL_EXIT_OK)
            return code;
    }
    if (!c->json)
        printf("largest difference: %.2f points in the rigid row (at most 4 asked), %.2f in the others (3); "
               "%u of 30 cells outside\n",
               worst.rigid, worst.others, worst.outside);
    return PL_EXIT_OK;
}

int pl_goodput_call_table1(const struct pl_goodput_call *c)
{
    struct pl_goodput_line lines[PL_PAPER_ROWS];
    struct pl_whole_file csv, svg;
    int code = pl_goodput_open(&csv, c->csv);
    if (code != PL_EXIT_OK)
        return code;
    code = pl_goodput_open(&svg, c->svg);
    if (code == PL_EXIT_OK)
        code = table1_rows(c, csv.f, lines);
    if (code == PL_EXIT_OK && svg.f != NULL)
        pl_goodput_svg_lines(svg.f, "goodput over chips; rings: the paper", lines, PL_PAPER_ROWS);
    code = pl_goodput_close(&csv, code);
    return pl_goodput_close(&svg, code);
}

/* ---- worlds and changes ---- */

static const uint64_t sizes[] = {1200000, 2400000};

/* One case at both sizes; goodput and uptime in percent. */
static int both_sizes(const struct pl_goodput_call *c, const struct pl_goodput_case *k, uint32_t learners,
                      enum pl_goodput_algorithm algorithm, struct pl_goodput_seeds s[2])
{
    for (uint32_t i = 0; i < 2; i++) {
        struct pl_goodput_options o = c->o;
        o.chips = sizes[i];
        o.learners = learners;
        o.algorithm = algorithm;
        if (k->set != NULL)
            k->set(&o);
        int code = pl_goodput_measure(c, &o, NULL, NULL, &s[i]);
        if (code != PL_EXIT_OK)
            return code;
    }
    return PL_EXIT_OK;
}

static void json_case(const char *table, const char *name, const char *row,
                      const struct pl_goodput_seeds s[2])
{
    for (uint32_t i = 0; i < 2; i++)
        printf("{\"table\":\"%s\",\"case\":\"%s\",\"row\":\"%s\",\"chips\":%" PRIu64
               ",\"goodput\":%.6f,\"goodput_ci\":%.6f,\"uptime\":%.6f}\n",
               table, name, row, sizes[i], s[i].mean.goodput, s[i].goodput_ci, s[i].mean.uptime);
}

int pl_goodput_call_worlds(const struct pl_goodput_call *c)
{
    static const struct {
        const char *name;
        enum pl_goodput_algorithm algorithm;
        uint32_t learners;
    } rows[] = {{"data parallel", PL_GOODPUT_DATA_PARALLEL, 8},
                {"data parallel, elastic", PL_GOODPUT_DATA_PARALLEL_ELASTIC, 8},
                {"diloco, M=8", PL_GOODPUT_DILOCO, 8},
                {"decoupled, M=8", PL_GOODPUT_DECOUPLED, 8},
                {"decoupled, M=16", PL_GOODPUT_DECOUPLED, 16}};
    uint32_t count;
    const struct pl_goodput_case *worlds = pl_goodput_worlds(&count);
    for (uint32_t w = 0; w < count; w++) {
        if (!c->json)
            printf("%s%s: %s\n%-24s goodput %%: 1.2M    2.4M   uptime %%: 1.2M    2.4M\n", w > 0 ? "\n" : "",
                   worlds[w].name, worlds[w].what, "");
        for (uint32_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
            struct pl_goodput_seeds s[2];
            int code = both_sizes(c, &worlds[w], rows[i].learners, rows[i].algorithm, s);
            if (code != PL_EXIT_OK)
                return code;
            if (c->json)
                json_case("worlds", worlds[w].name, rows[i].name, s);
            else
                printf("%-24s          %6.2f  %6.2f          %7.2f %7.2f\n", rows[i].name,
                       100 * s[0].mean.goodput, 100 * s[1].mean.goodput, 100 * s[0].mean.uptime,
                       100 * s[1].mean.uptime);
        }
    }
    return PL_EXIT_OK;
}

static void print_change(const struct pl_goodput_case *k, const double goodput[2], const double first[2])
{
    printf("%-26s %6.2f (%+6.2f)   %6.2f (%+6.2f)   %s; pelago: %s\n", k->name, 100 * goodput[0],
           100 * (goodput[0] - first[0]), 100 * goodput[1], 100 * (goodput[1] - first[1]), k->what, k->here);
}

static int print_changes(const struct pl_goodput_call *c, const struct pl_goodput_case *cases, uint32_t count)
{
    double first[2] = {0};
    for (uint32_t i = 0; i < count; i++) {
        struct pl_goodput_seeds s[2];
        int code = both_sizes(c, &cases[i], 8, PL_GOODPUT_DECOUPLED, s);
        if (code != PL_EXIT_OK)
            return code;
        for (uint32_t k = 0; k < 2 && i == 0; k++)
            first[k] = s[k].mean.goodput;
        if (c->json)
            json_case("beyond", cases[i].name, cases[i].what, s);
        else
            print_change(&cases[i], (const double[]){s[0].mean.goodput, s[1].mean.goodput}, first);
    }
    return PL_EXIT_OK;
}

/* The same by the protocol's own machines: only what was merged counts. */
static int print_applies(const struct pl_goodput_call *c)
{
    struct pl_alloc alloc = pl_alloc_system();
    uint32_t count;
    const struct pl_goodput_case *cases = pl_goodput_apply_changes(&count);
    double first[2] = {0};
    for (uint32_t i = 0; i < count; i++) {
        struct pl_protocol_result r[2];
        for (uint32_t k = 0; k < 2; k++) {
            struct pl_goodput_options o = c->o;
            struct pl_error err;
            o.chips = sizes[k];
            o.learners = 8;
            o.seed = c->first;
            if (cases[i].set != NULL)
                cases[i].set(&o);
            enum pelago_status status = pl_protocol_run(&o, c->rounds, &alloc, &r[k], &err);
            if (status != PELAGO_OK)
                return pl_goodput_refused(status, &err);
            first[k] = i == 0 ? r[k].goodput : first[k];
            if (c->json)
                printf("{\"table\":\"beyond\",\"protocol\":true,\"case\":\"%s\",\"row\":\"%s\",\"chips\":"
                       "%" PRIu64 ",\"goodput\":%.6f,\"rounds\":%" PRIu64 "}\n",
                       cases[i].name, cases[i].what, sizes[k], r[k].goodput, r[k].rounds);
        }
        if (!c->json)
            print_change(&cases[i], (const double[]){r[0].goodput, r[1].goodput}, first);
    }
    return PL_EXIT_OK;
}

int pl_goodput_call_beyond(const struct pl_goodput_call *c)
{
    uint32_t count;
    const struct pl_goodput_case *cases = pl_goodput_changes(&count);
    if (!c->json)
        printf("goodput in %% with M=8          1.2M              2.4M\n");
    int code = print_changes(c, cases, count);
    if (code != PL_EXIT_OK)
        return code;
    cases = pl_goodput_rough_changes(&count);
    if (!c->json)
        printf("\nwhere every learner is lost as a whole once a day, for 10 min\n");
    code = print_changes(c, cases, count);
    if (code != PL_EXIT_OK)
        return code;
    if (!c->json)
        printf("\nmerged work, by the protocol's own machines over %" PRIu64
               " rounds (the paper does not count what is overwritten)\n",
               c->rounds);
    return print_applies(c);
}
