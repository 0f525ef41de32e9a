/* optim/outer.h - the outer optimizer: what a merged outer gradient does to the model, in fp32.
 *
 *   momentum <- keep * momentum + gain * delta;   theta <- theta - lr * (delta + ahead * momentum)
 *
 * Each product and sum is rounded to float, in the order written; elements are independent, so that every machine and
 * number of threads gives the same bits. One pass: reads delta, momentum and theta, writes the last two, 20 bytes a value.
 * The four numbers of an outer step follow from the rule, the step's number and the place in the run alone:
 *
 *   nesterov   keep = ahead = mu, gain = 1 (arXiv 2604.21428, algorithm 2)
 *   plain      ahead = 0: the momentum is kept up and not used
 *   delayed    Delayed Nesterov (arXiv 2401.09135): lr delta / N at every step; at every N-th also the momentum, from the
 *              mean of the N deltas since: theta -= lr mu momentum. N steps go as far as one of nesterov with their mean. The
 *              sum that becomes the mean grows inside the momentum: lr is divided by N, gain = 1 / N, keep = mu at the first
 *              of N steps and 1 at the others, ahead = N mu at the last and 0 at the others. N = 1 is nesterov.
 *
 * mu rises in a straight line over the first `warmup` steps of a fragment, and lr goes from `first` to what it is: a step
 * goes as far as its contributions where there is no momentum yet to make up for less. lr falls over the last `decay` of the
 * run's tokens: to `floor` of itself where five merges or more come in that time, less far where fewer do, not at all
 * where it is one. A closing merge, the last of a fragment, has less than the usual work behind it, and takes as much less of
 * the momentum (`share`). What an encoding takes from the length of contributions can be given back (pl_outer_codec_gain).
 */
#ifndef PL_OPTIM_OUTER_H
#define PL_OPTIM_OUTER_H

#include "base/pool.h"
#include "base/status.h"
#include "codec/codec.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum pl_outer_kind { PL_OUTER_NESTEROV, PL_OUTER_PLAIN, PL_OUTER_DELAYED };

struct pl_outer_rule {
    float lr;
    float mu;
    enum pl_outer_kind kind;
    uint32_t delay;   /* N of DELAYED; at least 1 there */
    uint32_t warmup;  /* outer steps until mu is reached; 0: at once */
    float decay;      /* the share of the run, at its end, in which lr falls; 0: it does not */
    float floor;      /* lr at the very end, as a share of lr; 0 to 1 */
    float first;      /* lr of a fragment's first steps, in runs of few merges; up to lr: as ever */
    uint32_t planned; /* merges of a fragment in the whole run, where no period is stretched; 0: not known */
};

/* One outer step. */
struct pl_outer_move {
    float lr, keep, gain, ahead;
};

/* Step `number` of a fragment (1 is the first; the version it makes) when `progress` of the run's tokens are done, 0 to
 * 1; more counts as 1. share: 1, or pl_outer_share of a closing merge. */
struct pl_outer_move pl_outer_at(const struct pl_outer_rule *rule, uint64_t number, double progress,
                                 double share);

/* Of the usual work of a step, what is in step `number`, whose contributions have `merged` tokens: above 0 up to 1. The usual
 * is the run's tokens so far by the number. */
double pl_outer_share(uint64_t number, uint64_t clock_tokens, uint64_t merged_tokens);

/* OK, or INVALID with a sentence that names the field and its range. */
enum pelago_status pl_outer_check(const struct pl_outer_rule *rule, struct pl_error *err);

const char *pl_outer_name(enum pl_outer_kind kind); /* nesterov, plain, delayed */
bool pl_outer_of_name(const char *name, enum pl_outer_kind *kind);

/* What lr is to be multiplied with so that what learners did arrives as in fp32, with the error feedback that goes with the
 * encoding. 1 where nothing is lost for good, however few the bits: test_optim_outer.c measures it. docs/merge.md. */
float pl_outer_codec_gain(enum pl_codec codec);

/* delta is the merged outer gradient (anchor - theta: downhill is minus); the three arrays do not overlap. */
void pl_outer_step(const struct pl_outer_move *move, const float *delta, size_t n, float *momentum,
                   float *theta);

/* The same by the threads of a pool; NULL: the calling thread alone. */
void pl_outer_step_by(struct pl_pool *pool, const struct pl_outer_move *move, const float *delta, size_t n,
                      float *momentum, float *theta);

#endif
