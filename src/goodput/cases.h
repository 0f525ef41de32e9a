/* goodput/cases.h - named settings: the paper's table, three harsher worlds, and changes that go beyond the paper.
 *
 * Each starts from pl_goodput_defaults and says only what it changes, so that one set of constants carries them all.
 */
#ifndef PL_GOODPUT_CASES_H
#define PL_GOODPUT_CASES_H

#include "goodput/goodput.h"

enum { PL_PAPER_ROWS = 6, PL_PAPER_SIZES = 5 };

/* A cell of table 1 (PAPER 8.2). */
struct pl_paper_cell {
    const char *row;
    uint64_t chips;
    double percent;   /* what the paper has */
    double tolerance; /* in points: what we ask of the simulation */
};
struct pl_paper_cell pl_paper_cell(uint32_t row, uint32_t size);
void pl_paper_options(uint32_t row, uint32_t size, struct pl_goodput_options *o);

struct pl_goodput_case {
    const char *name; /* a few words */
    const char *what; /* what changes, in physical terms */
    const char *here; /* what in pelago does it, or could; NULL for worlds */
    void (*set)(struct pl_goodput_options *o);
};

/* Worlds with unequal chips, correlated loss, broken links; the count through *count. */
const struct pl_goodput_case *pl_goodput_worlds(uint32_t *count);
/* Changes to the system, each against the first entry, which changes nothing. */
const struct pl_goodput_case *pl_goodput_changes(uint32_t *count);
/* Where whole learners are lost; first: the paper's way. */
const struct pl_goodput_case *pl_goodput_rough_changes(uint32_t *count);
/* For the protocol mode: what becomes of work that a round did not take. First: the paper's way. */
const struct pl_goodput_case *pl_goodput_apply_changes(uint32_t *count);

#endif
