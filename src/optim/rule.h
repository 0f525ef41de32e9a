/* optim/rule.h - the run's merge rule: which arithmetic each tensor gets, and what each contribution weighs.
 *
 * Everything here follows from the counters of a round's contributors and, for rda_n, from those of the rounds before: a
 * journal has them, so that a replay weighs alike. docs/merge.md says what each rule is for.
 *
 *   rda          radial-directional averaging for matrices, weighted mean for the rest
 *   rda_n        the same, and matrices' steps shorter by sqrt(min(1, n / n_usual)) where fewer contributions than
 *                usual came; n = (sum w)^2 / sum w^2, n_usual its running mean over the fragment's rounds
 *   mean, trimmed, clipped, norm_median    see merge.h; for all tensors
 */
#ifndef PL_OPTIM_RULE_H
#define PL_OPTIM_RULE_H

#include "base/merge_mode.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

enum pl_rule_kind {
    PL_RULE_RDA,
    PL_RULE_RDA_N,
    PL_RULE_MEAN,
    PL_RULE_TRIMMED,
    PL_RULE_CLIPPED,
    PL_RULE_NORM_MEDIAN,
};

struct pl_merge_rule {
    enum pl_rule_kind kind;
    float trim; /* TRIMMED: the share of contributions left out at either end, 0 to below 0.5 */
    float
        stale; /* work of more than so many times the usual steps weighs no more than of so many; 0: as it is */
    bool guard; /* weights and lengths are bounded by the usual ones of the round */
};

/* The median of a round's weights times this is the most that one contribution weighs, with `guard`; of a learner that has
 * not been compared with others for long, the median itself. */
#define PL_RULE_WEIGHT_MAX 2.0
/* Times the median norm of a slice a contribution counts for, with `guard`; up to PL_RULE_STEPS_MAX times as far where it
 * has more steps than usual behind it. */
#define PL_RULE_REACH 3.0
#define PL_RULE_STEPS_MAX 2.0

/* What rda_n remembers of a fragment's rounds. */
struct pl_rule_past {
    double usual; /* running mean of n */
    uint64_t rounds;
};

/* OK, or INVALID with a sentence that names the field and its range. */
enum pelago_status pl_rule_check(const struct pl_merge_rule *r, struct pl_error *err);

const char *pl_rule_name(enum pl_rule_kind kind); /* as above */
bool pl_rule_of_name(const char *name, enum pl_rule_kind *kind);

/* The arithmetic of a tensor that the manifest calls RDA (a matrix) or MEAN (everything else). */
enum pl_merge_mode pl_rule_mode(const struct pl_merge_rule *r, enum pl_merge_mode tensor);

/* The weights of count contributions, and how far each reaches (struct pl_merge_work; only with `guard`, else left
 * alone). steps > 0. fresh[i]: its learner has not been compared for long; NULL: none. scratch [count]. The median of n is the (n / 2)-th from 0, by size: of two the larger, so that two
 * learners never bound each other. */
void pl_rule_weigh(const struct pl_merge_rule *r, const uint64_t *tokens, const uint64_t *steps,
                   const bool *fresh, uint32_t count, double *scratch, double *weights, double *reach);

/* n = (sum w)^2 / sum w^2; 0 where nothing weighs anything. */
double pl_rule_effective(const double *weights, uint32_t count);
/* Could so many contributions have given that? Sums in double make it a little more than their number now and then. */
bool pl_rule_effective_fits(double n, uint32_t count);

/* How long a matrix's step is beside RDA's; 1 but for rda_n. */
double pl_rule_length(const struct pl_merge_rule *r, const struct pl_rule_past *past, double n);

/* After a round that was merged. */
void pl_rule_remember(struct pl_rule_past *past, double n);

#endif
