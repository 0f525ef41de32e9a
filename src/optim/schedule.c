/* optim/schedule.c - see schedule.h. */
#include "optim/schedule.h"

#include "base/check.h"
#include "base/num.h"

#include <math.h>

static const double pi = 3.14159265358979323846;

/* WSD: where the fall begins. */
static uint64_t decay_start(const struct pl_schedule *s)
{
    double start = (double)s->total_tokens * (1 - (double)s->decay);
    return pl_min64((uint64_t)start, s->total_tokens);
}

static enum pelago_status check_span(const struct pl_schedule *s, struct pl_error *err)
{
    if (s->total_tokens == 0 || s->total_tokens > PL_COUNT_MAX)
        return pl_fail(err, PELAGO_INVALID, "the schedule's total_tokens is %lu; it must be from 1 to %lu.",
                       s->total_tokens, PL_COUNT_MAX);
    if (!(s->floor >= 0 && s->floor <= 1))
        return pl_fail(err, PELAGO_INVALID,
                       "the schedule's floor must be a share of the peak rate, from 0 to 1.");
    if (s->warmup_tokens > s->total_tokens)
        return pl_fail(err, PELAGO_INVALID,
                       "the schedule's warm-up of %lu tokens is longer than the run of %lu tokens.",
                       s->warmup_tokens, s->total_tokens);
    if (s->kind != PL_SCHEDULE_WSD)
        return PELAGO_OK;
    if (!(s->decay > 0 && s->decay <= 1))
        return pl_fail(err, PELAGO_INVALID,
                       "the schedule's decay must be a share of the run, above 0 and at most 1.");
    if (s->warmup_tokens > decay_start(s))
        return pl_fail(
            err, PELAGO_INVALID,
            "the schedule's warm-up of %lu tokens reaches into the decay, which begins at %lu tokens.",
            s->warmup_tokens, decay_start(s));
    return PELAGO_OK;
}

enum pelago_status pl_schedule_check(const struct pl_schedule *s, struct pl_error *err)
{
    if (s->kind < PL_SCHEDULE_CONSTANT || s->kind > PL_SCHEDULE_WSD)
        return pl_fail(err, PELAGO_INVALID, "the schedule must be constant, cosine or wsd.");
    if (!(s->peak > 0 && s->peak <= 100))
        return pl_fail(err, PELAGO_INVALID, "the schedule's peak rate must be above 0 and at most 100.");
    if (s->warmup_tokens > PL_COUNT_MAX)
        return pl_fail(err, PELAGO_INVALID, "the schedule's warm-up of %lu tokens is over the limit of %lu.",
                       s->warmup_tokens, PL_COUNT_MAX);
    return s->kind == PL_SCHEDULE_CONSTANT ? PELAGO_OK : check_span(s, err);
}

/* How far the clock is from start to end, 0 to 1; an empty span is over once it is reached. */
static double progress(uint64_t tokens, uint64_t start, uint64_t end)
{
    if (tokens >= end)
        return 1;
    return tokens <= start ? 0 : (double)(tokens - start) / (double)(end - start);
}

/* The share of the peak after the warm-up. */
static double share(const struct pl_schedule *s, uint64_t tokens)
{
    double floor = (double)s->floor, x;
    switch (s->kind) {
    case PL_SCHEDULE_CONSTANT:
        break;
    case PL_SCHEDULE_COSINE:
        x = progress(tokens, s->warmup_tokens, s->total_tokens);
        return floor + (1 - floor) * 0.5 * (1 + cos(pi * x));
    case PL_SCHEDULE_WSD:
        x = progress(tokens, decay_start(s), s->total_tokens);
        return 1 - (1 - floor) * x;
    }
    return 1;
}

float pl_schedule_lr(const struct pl_schedule *s, uint64_t tokens_done)
{
    pl_assert(s->kind >= PL_SCHEDULE_CONSTANT && s->kind <= PL_SCHEDULE_WSD);
    double peak = (double)s->peak;
    if (tokens_done < s->warmup_tokens)
        return (float)(peak * ((double)tokens_done / (double)s->warmup_tokens));
    return (float)(peak * share(s, tokens_done));
}

bool pl_schedule_is_warm(const struct pl_schedule *s, uint64_t tokens_done)
{
    return tokens_done > 0 && tokens_done >= s->warmup_tokens;
}
