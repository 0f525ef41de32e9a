/* optim/schedule.h - the learning rate, as a function of the tokens the whole run has seen.
 *
 * The clock counts tokens and not steps: learners of different batch sizes, and one that comes back after a week, then
 * agree about where the run is (PAPER section on the clock of the schedule). Nothing is remembered: the same clock
 * gives the same rate.
 */
#ifndef PL_OPTIM_SCHEDULE_H
#define PL_OPTIM_SCHEDULE_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

enum pl_schedule_kind {
    PL_SCHEDULE_CONSTANT = 1, /* the peak after the warm-up, for ever */
    PL_SCHEDULE_COSINE,       /* half a cosine from the end of the warm-up down to the floor */
    PL_SCHEDULE_WSD,          /* warm-up, stable, decay: the peak, then a straight line down to the floor */
};

struct pl_schedule {
    enum pl_schedule_kind kind;
    float peak;  /* above 0 */
    float floor; /* the last rate as a share of the peak, 0 to 1; not for CONSTANT */
    float decay; /* WSD: the share of the run, at its end, in which the rate falls; above 0 up to 1 */
    uint64_t warmup_tokens; /* the rate rises from 0 in a straight line; 0: none */
    uint64_t total_tokens;  /* of the run; not for CONSTANT */
};

/* OK, or INVALID with a sentence that names the field. */
enum pelago_status pl_schedule_check(const struct pl_schedule *s, struct pl_error *err);

/* The rate of the step after which the clock stands at tokens_done: count the step's own tokens, or the first one has
 * a rate of 0 under a warm-up. The schedule has passed pl_schedule_check. Past the end the rate stays at the floor. */
float pl_schedule_lr(const struct pl_schedule *s, uint64_t tokens_done);

/* Has the run begun, and is its warm-up over? Whoever begins now has missed it. */
bool pl_schedule_is_warm(const struct pl_schedule *s, uint64_t tokens_done);

#endif
