/* optim/rule.c - see rule.h. Doubles, + - * / sqrt in a fixed order: the same on every machine. */
#include "optim/rule.h"

#include "optim/merge.h"
#include "optim/merge_robust.h"

#include <math.h>
#include <string.h>

enum { PAST_ROUNDS = 64 }; /* what came before fades as fast as a mean over so many */

static const char *const names[] = {
    [PL_RULE_RDA] = "rda",         [PL_RULE_RDA_N] = "rda_n",     [PL_RULE_MEAN] = "mean",
    [PL_RULE_TRIMMED] = "trimmed", [PL_RULE_CLIPPED] = "clipped", [PL_RULE_NORM_MEDIAN] = "norm_median",
};
enum { KINDS = sizeof names / sizeof names[0] };

const char *pl_rule_name(enum pl_rule_kind kind)
{
    return (unsigned)kind < KINDS ? names[kind] : "none";
}

bool pl_rule_of_name(const char *name, enum pl_rule_kind *kind)
{
    for (unsigned i = 0; i < KINDS; i++)
        if (strcmp(names[i], name) == 0) {
            *kind = (enum pl_rule_kind)i;
            return true;
        }
    return false;
}

enum pelago_status pl_rule_check(const struct pl_merge_rule *r, struct pl_error *err)
{
    if (!(r->trim >= 0 && r->trim < 0.5f))
        return pl_fail(err, PELAGO_INVALID, "merge_trim is out of range, expected 0 to below 0.5");
    if (!(r->stale >= 0 && r->stale <= 1e6f) || (r->stale > 0 && r->stale < 1))
        return pl_fail(err, PELAGO_INVALID, "merge_stale is out of range, expected 0, or 1 to 1e6");
    return PELAGO_OK;
}

enum pl_merge_mode pl_rule_mode(const struct pl_merge_rule *r, enum pl_merge_mode tensor)
{
    switch (r->kind) {
    case PL_RULE_RDA:
    case PL_RULE_RDA_N:
        return tensor;
    case PL_RULE_MEAN:
        return PL_MERGE_MEAN;
    case PL_RULE_TRIMMED:
        return PL_MERGE_TRIMMED;
    case PL_RULE_CLIPPED:
        return PL_MERGE_CLIPPED;
    case PL_RULE_NORM_MEDIAN:
        break;
    }
    return PL_MERGE_MEDIAN;
}

void pl_rule_weigh(const struct pl_merge_rule *r, const uint64_t *tokens, const uint64_t *steps,
                   const bool *fresh, uint32_t count, double *scratch, double *weights, double *reach)
{
    if (count == 0)
        return;
    for (uint32_t i = 0; i < count; i++)
        scratch[i] = (double)steps[i];
    const double usual = pl_merge_median(scratch, count);
    for (uint32_t i = 0; i < count; i++) {
        weights[i] = pl_merge_weight(tokens[i], steps[i]);
        double times = (double)steps[i] / usual;
        if (r->stale > 0 && times > (double)r->stale)
            weights[i] *= (double)r->stale / times;
        scratch[i] = weights[i];
        if (r->guard)
            reach[i] = PL_RULE_REACH * fmin(PL_RULE_STEPS_MAX, fmax(1, times));
    }
    const double median = pl_merge_median(scratch, count);
    for (uint32_t i = 0; r->guard && i < count; i++)
        weights[i] = fmin(weights[i], fresh != NULL && fresh[i] ? median : PL_RULE_WEIGHT_MAX * median);
}

double pl_rule_effective(const double *weights, uint32_t count)
{
    double sum = 0, squares = 0;
    for (uint32_t i = 0; i < count; i++) {
        sum += weights[i];
        squares += weights[i] * weights[i];
    }
    return squares > 0 ? sum * sum / squares : 0;
}

bool pl_rule_effective_fits(double n, uint32_t count)
{
    return n >= 0 && n <= count * (1 + 1e-9);
}

double pl_rule_length(const struct pl_merge_rule *r, const struct pl_rule_past *past, double n)
{
    if (r->kind != PL_RULE_RDA_N || past->rounds == 0 || n >= past->usual)
        return 1;
    return sqrt(n / past->usual);
}

void pl_rule_remember(struct pl_rule_past *past, double n)
{
    past->rounds++;
    double over = past->rounds < PAST_ROUNDS ? (double)past->rounds : PAST_ROUNDS;
    past->usual += (n - past->usual) / over;
}
