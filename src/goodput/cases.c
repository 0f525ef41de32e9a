/* goodput/cases.c - see cases.h. */
#include "goodput/cases.h"

#include "base/check.h"

static const struct {
    const char *name;
    enum pl_goodput_algorithm algorithm;
    uint32_t learners;
    double percent[PL_PAPER_SIZES];
} paper[PL_PAPER_ROWS] = {
    {"data parallel", PL_GOODPUT_DATA_PARALLEL, 1, {72, 57, 38, 27, 18}},
    {"data parallel, elastic", PL_GOODPUT_DATA_PARALLEL_ELASTIC, 1, {88, 80, 69, 58, 40}},
    {"decoupled, M=2", PL_GOODPUT_DECOUPLED, 2, {94, 88, 80, 70, 54}},
    {"decoupled, M=4", PL_GOODPUT_DECOUPLED, 4, {96, 93, 89, 82, 73}},
    {"decoupled, M=8", PL_GOODPUT_DECOUPLED, 8, {98, 96, 94, 88, 80}},
    {"decoupled, M=16", PL_GOODPUT_DECOUPLED, 16, {99, 98, 96, 93, 86}},
};

struct pl_paper_cell pl_paper_cell(uint32_t row, uint32_t size)
{
    pl_assert(row < PL_PAPER_ROWS && size < PL_PAPER_SIZES);
    bool rigid = paper[row].algorithm == PL_GOODPUT_DATA_PARALLEL;
    return (struct pl_paper_cell){paper[row].name, UINT64_C(150000) << size, paper[row].percent[size],
                                  rigid ? 4 : 3};
}

void pl_paper_options(uint32_t row, uint32_t size, struct pl_goodput_options *o)
{
    pl_goodput_defaults(o);
    o->chips = pl_paper_cell(row, size).chips;
    o->algorithm = paper[row].algorithm;
    o->learners = paper[row].learners;
}

/* ---- harsher worlds ---- */

static void uneven_chips(struct pl_goodput_options *o)
{
    o->speed_sd = 0.01;
    o->stragglers_per_day = 2;
}

static void correlated(struct pl_goodput_options *o)
{
    o->domain_slices = 64;
    o->domain_loss_per_day = 0.1;
}

static void broken_links(struct pl_goodput_options *o)
{
    o->link_bits_s = 100e9;
    o->outages_per_day = 6;
}

static const struct pl_goodput_case worlds[] = {
    {"the paper's", "chips alike, failures independent, links whole", NULL, NULL},
    {"uneven chips", "speed of slices deviates by 1%; 2 stragglers a day and learner, half speed for 10 min",
     NULL, uneven_chips},
    {"correlated loss",
     "64 neighbouring slices lost at once, each such group every 10 days, back after an hour", NULL,
     correlated},
    {"broken links", "100 Gbit/s a learner, 6 outages a day of 5 min, model of 100 GB", NULL, broken_links},
};

const struct pl_goodput_case *pl_goodput_worlds(uint32_t *count)
{
    *count = sizeof worlds / sizeof worlds[0];
    return worlds;
}

/* ---- beyond the paper ---- */

static void spares(struct pl_goodput_options *o)
{
    o->spare_share = 0.012;
    o->swap_s = 4;
}

static void notice(struct pl_goodput_options *o)
{
    o->detect_s = 2;
}

static void small_learners(struct pl_goodput_options *o)
{
    o->learners *= 4;
}

static void spares_and_notice(struct pl_goodput_options *o)
{
    spares(o);
    notice(o);
}

static void all_changes(struct pl_goodput_options *o)
{
    spares_and_notice(o);
    small_learners(o);
}

static const struct pl_goodput_case changes[] = {
    {"the paper's system", "as in table 1", "as it is", NULL},
    {"warm spares",
     "1.2% of the slices idle and ready: one takes the failed one's place in 4 s, nothing grows back later",
     "could: a learner holds slices in reserve", spares},
    {"early notice", "a failure is known after 2 s, from its closed connection, instead of 8 s of silence",
     "does between machines: a closed connection counts at once", notice},
    {"spares and notice", "both", "as above", spares_and_notice},
    {"learners of a quarter", "4 times as many learners on the same chips",
     "does: as many learners as one likes", small_learners},
    {"all of them", "spares, notice and learners of a quarter", "as above", all_changes},
};

const struct pl_goodput_case *pl_goodput_changes(uint32_t *count)
{
    *count = sizeof changes / sizeof changes[0];
    return changes;
}

/* Now and then a whole learner is lost. */
static void rough(struct pl_goodput_options *o)
{
    o->link_bits_s = 2e9;
    o->domain_slices = 1U << 30;
    o->domain_loss_per_day = 1;
    o->domain_repair.mean_s = 600;
}

static void rough_disk(struct pl_goodput_options *o)
{
    rough(o);
    o->rejoin = PL_GOODPUT_REJOIN_DISK;
}

static const struct pl_goodput_case rough_changes[] = {
    {"rejoin from a peer", "300 GB of values and moments over 2 Gbit/s",
     "could: values come so, moments do not travel", rough},
    {"rejoin from local disk", "all from its own disks; 100 GB of newer values over the link",
     "does: a learner's checkpoint", rough_disk},
};

const struct pl_goodput_case *pl_goodput_rough_changes(uint32_t *count)
{
    *count = sizeof rough_changes / sizeof rough_changes[0];
    return rough_changes;
}

/* ---- by the protocol's own machines ---- */

static void overwrite(struct pl_goodput_options *o)
{
    o->rebase = false;
}

static const struct pl_goodput_case apply_changes[] = {
    {"overwrite", "a new value overwrites what was done since the last push", "with --apply overwrite",
     overwrite},
    {"rebase", "what was done since the last push is added to the new value", "does: the default", NULL},
};

const struct pl_goodput_case *pl_goodput_apply_changes(uint32_t *count)
{
    *count = sizeof apply_changes / sizeof apply_changes[0];
    return apply_changes;
}
