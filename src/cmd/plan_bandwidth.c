/* cmd/plan_bandwidth.c - pelago plan --bandwidth: published rates, the model's, and how many steps of their grid apart. */
#include "cmd/cmd.h"
#include "cmd/plan_print.h"
#include "plan/published.h"

#include <stdlib.h>
#include <string.h>

static void print_cells(const struct pl_published_row *row)
{
    struct pl_bandwidth setup = pl_published_setup(row, PL_PUBLISHED_BITS);
    for (uint32_t t = 0; t < PL_PUBLISHED_TARGETS; t++) {
        uint32_t point = pl_bandwidth_needed_point(&setup, pl_published_targets[t]);
        int steps = pl_published_steps(row, t, PL_PUBLISHED_BITS);
        char published[16], model[16];
        (void)snprintf(published, sizeof published, row->gbit_s[t] > 1000 ? "1000+" : "%.1f", row->gbit_s[t]);
        (void)snprintf(model, sizeof model, point >= PL_BANDWIDTH_GRID ? "1000+" : "%.1f",
                       pl_bandwidth_point(point));
        printf(" %6s %6s %2s", published, model, steps == 0 ? "" : steps > 0 ? "+1" : "-1");
    }
}

static void print_table(const char *table)
{
    printf("%-11s %-22s", "", "");
    for (uint32_t t = 0; t < PL_PUBLISHED_TARGETS; t++)
        printf("%10.0f%%      ", 100 * pl_published_targets[t]);
    printf("\n");
    for (uint32_t r = 0; r < PL_PUBLISHED_ROWS; r++) {
        const struct pl_published_row *row = pl_published_row(r);
        if (strcmp(row->table, table) != 0)
            continue;
        printf("%-11s %-22s", row->model, row->method);
        print_cells(row);
        printf("\n");
    }
    printf("\n");
}

/* Cells of a table (NULL: of both) that differ by so many steps; the last also counts all beyond it. */
static void count_steps(const char *table, double bits, uint32_t counts[static 3])
{
    memset(counts, 0, 3 * sizeof counts[0]);
    for (uint32_t r = 0; r < PL_PUBLISHED_ROWS; r++)
        for (uint32_t t = 0; t < PL_PUBLISHED_TARGETS; t++) {
            if (table != NULL && strcmp(pl_published_row(r)->table, table) != 0)
                continue;
            int steps = abs(pl_published_steps(pl_published_row(r), t, bits));
            counts[steps < 2 ? steps : 2]++;
        }
}

/* What other numbers of bits would do: the one number that is fitted. */
static void print_sweep(void)
{
    static const double bits[] = {11, 12, PL_PUBLISHED_BITS, 13.4, 16};
    printf("bits on the link per parameter and reduce   the same / one step / more: Table 4   Table 6\n");
    for (size_t i = 0; i < sizeof bits / sizeof bits[0]; i++) {
        uint32_t four[3], six[3];
        count_steps("4", bits[i], four);
        count_steps("6", bits[i], six);
        printf("%6.1f %61u / %2u / %2u   %2u / %2u / %2u\n", bits[i], four[0], four[1], four[2], six[0],
               six[1], six[2]);
    }
    printf("\n");
}

static void print_text(const struct pl_headlines *h, const uint32_t counts[static 3])
{
    printf("Gbit/s for a compute utilisation of 50 to 99%%: published, the model's, steps of their grid "
           "between them.\n\n"
           "Streaming DiLoCo, Table 4\n");
    print_table("4");
    printf("DiLoCo scaling laws, Table 6\n");
    print_table("6");
    printf("%u cells: %u the same, %u one step apart, %u more (a step is a factor of 1.21). One set of "
           "assumptions\n"
           "for all (docs/planner.md), with %.1f bits on the link per parameter and reduce.\n\n",
           counts[0] + counts[1] + counts[2], counts[0], counts[1], counts[2], PL_PUBLISHED_BITS);
    print_sweep();
    printf("Eight sites, 5B parameters, steps of 1 s       published   model\n"
           "  data-parallel, bf16 ring, 95%% utilisation    %9.0f %7.1f Gbit/s\n"
           "  decoupled, int4, P = H = 24                  %9.2f %7.2f Gbit/s\n",
           198.0, h->data_parallel_gbit_s, 0.84, h->decoupled_gbit_s);
    printf("Four regions, 12B parameters, steps of 1 s, int4, P = H = 24\n"
           "  one learner in a region                      %9.0f %7.2f Gbit/s\n"
           "  two learners in a region                     %9.0f %7.2f Gbit/s\n"
           "  times faster than data-parallel at 5 Gbit/s  %9s %7.1f\n",
           2.0, h->region_low_gbit_s, 5.0, h->region_high_gbit_s, "> 20", h->region_speedup);
}

static void print_json(const struct pl_headlines *h, const uint32_t counts[static 3])
{
    printf("{\"cells\":%u,\"same\":%u,\"one_step\":%u,\"more\":%u,\"bits\":%.1f,"
           "\"data_parallel_gbit_s\":%.4g,\"decoupled_gbit_s\":%.4g,\"region_low_gbit_s\":%.4g,"
           "\"region_high_gbit_s\":%.4g,\"region_speedup\":%.4g}\n",
           counts[0] + counts[1] + counts[2], counts[0], counts[1], counts[2], PL_PUBLISHED_BITS,
           h->data_parallel_gbit_s, h->decoupled_gbit_s, h->region_low_gbit_s, h->region_high_gbit_s,
           h->region_speedup);
}

int pl_plan_bandwidth(bool json)
{
    struct pl_headlines h;
    uint32_t counts[3];
    pl_published_headlines(&h);
    count_steps(NULL, PL_PUBLISHED_BITS, counts);
    if (json)
        print_json(&h, counts);
    else
        print_text(&h, counts);
    return counts[2] == 0 ? PL_EXIT_OK : PL_EXIT_FAILED;
}
