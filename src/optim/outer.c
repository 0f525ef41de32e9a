/* optim/outer.c - see outer.h; the loop is in merge_kernels.inc. */
#include "optim/outer.h"

#include "base/check.h"
#include "base/num.h"
#include "optim/merge_kernels.h"

#include <string.h>

enum {
    TASK = 1 << 16, /* values a thread takes at a time */
    DELAY_MAX = 1024
};

struct job {
    const struct pl_outer_move *move;
    const float *delta;
    size_t n;
    float *momentum, *theta;
};

static const char *const names[] = {
    [PL_OUTER_NESTEROV] = "nesterov", [PL_OUTER_PLAIN] = "plain", [PL_OUTER_DELAYED] = "delayed"};
enum { KINDS = sizeof names / sizeof names[0] };

const char *pl_outer_name(enum pl_outer_kind kind)
{
    return (unsigned)kind < KINDS ? names[kind] : "none";
}

bool pl_outer_of_name(const char *name, enum pl_outer_kind *kind)
{
    for (unsigned i = 0; i < KINDS; i++)
        if (strcmp(names[i], name) == 0) {
            *kind = (enum pl_outer_kind)i;
            return true;
        }
    return false;
}

enum pelago_status pl_outer_check(const struct pl_outer_rule *r, struct pl_error *err)
{
    if (!(r->lr > 0 && r->lr <= 10))
        return pl_fail(err, PELAGO_INVALID,
                       "the outer learning rate is out of range, expected above 0 up to 10");
    if (!(r->first >= 0 && r->first <= 10))
        return pl_fail(err, PELAGO_INVALID, "outer_first is out of range, expected 0 to 10");
    if (!(r->mu >= 0 && r->mu < 1))
        return pl_fail(err, PELAGO_INVALID, "the outer momentum is out of range, expected 0 to below 1");
    if (!(r->decay >= 0 && r->decay <= 1))
        return pl_fail(err, PELAGO_INVALID, "outer_decay is out of range, expected 0 to 1");
    if (!(r->floor >= 0 && r->floor <= 1))
        return pl_fail(err, PELAGO_INVALID, "outer_floor is out of range, expected 0 to 1");
    if (r->kind == PL_OUTER_DELAYED && (r->delay < 1 || r->delay > DELAY_MAX))
        return pl_fail(err, PELAGO_INVALID, "outer_delay is %u, expected 1 to %u", r->delay,
                       (unsigned)DELAY_MAX);
    return PELAGO_OK;
}

/* Where the rate ends. A rate that falls makes a mean of the last merges, which takes their noise away; of one or two there is
 * nothing to be made, and falling only throws away what the learners did last. So with `enough` merges in the part of the
 * run where it falls it ends at the rule's floor, with one at the rate itself. */
static double floor_at(const struct pl_outer_rule *r, uint64_t number, double progress)
{
    const double enough = 5, merges = (double)r->decay * (double)number / progress;
    double few = (enough - merges) / (enough - 1);
    few = few < 0 ? 0 : few > 1 ? 1 : few;
    return (double)r->floor + (1 - (double)r->floor) * few;
}

/* Merges of a fragment in the whole run. Its first one comes some time in its first period, early for one fragment and late
 * for another, so that what was seen says only that they will be between these two, which are far apart in the first
 * ones. What was planned is right between them; slow lines stretch periods, and learners that are away make more of them. */
static double merges_at(const struct pl_outer_rule *r, uint64_t number, double progress)
{
    const double least = ((double)number - 1) / progress, most = (double)number / progress;
    const double planned = r->planned > 0 ? (double)r->planned : most;
    return planned < least ? least : planned > most ? most : planned;
}

/* The rate of a fragment's first steps. Beside a large momentum lr is right; before there is one it throws away a part of
 * what the learners did, which a run of many merges makes up for and one of few does not. So the first steps go further where
 * the run will have less than twice as many merges as the momentum needs to grow, and all the way where it will not
 * have as many. */
static double lr_at(const struct pl_outer_rule *r, uint64_t number, double progress)
{
    const double lr = (double)r->lr, warmup = (double)r->warmup;
    if (r->first <= r->lr || number > r->warmup || !(progress > 0))
        return lr;
    double few = 2 - merges_at(r, number, progress) / warmup;
    few = few < 0 ? 0 : few > 1 ? 1 : few;
    return lr + ((double)r->first - lr) * few * (1 - (double)number / (warmup + 1));
}

static float rate_at(const struct pl_outer_rule *r, uint64_t number, double progress)
{
    progress = progress < 1 ? progress : 1;
    double left = 1 - progress, lr = lr_at(r, number, progress);
    if (!(r->decay > 0) || left >= (double)r->decay)
        return (float)lr;
    double floor = progress > 0 ? floor_at(r, number, progress) : 1;
    return (float)(lr * (floor + (1 - floor) * (left / (double)r->decay)));
}

static float momentum_at(const struct pl_outer_rule *r, uint64_t number)
{
    if (number > r->warmup)
        return r->mu;
    return (float)((double)r->mu * ((double)number / ((double)r->warmup + 1)));
}

struct pl_outer_move pl_outer_at(const struct pl_outer_rule *r, uint64_t number, double progress,
                                 double share)
{
    pl_assert(number > 0 && progress >= 0 && share >= 0 && share <= 1);
    const float mu = momentum_at(r, number);
    struct pl_outer_move m = {.lr = rate_at(r, number, progress), .keep = mu, .gain = 1, .ahead = mu};
    if (r->kind == PL_OUTER_PLAIN)
        m.ahead = 0;
    if (r->kind == PL_OUTER_DELAYED) {
        /* lr g / N and, at the last, lr mu m: the factor of m is that of g, and so it is N times mu. */
        const uint64_t place = (number - 1) % r->delay;
        const float delay = (float)r->delay;
        m.lr /= delay;
        m.gain = 1 / delay;
        m.keep = place == 0 ? mu : 1;
        m.ahead = place == r->delay - 1 ? mu * delay : 0;
    }
    m.ahead = (float)((double)m.ahead * share);
    return m;
}

double pl_outer_share(uint64_t number, uint64_t clock_tokens, uint64_t merged_tokens)
{
    double share = (double)merged_tokens * (double)number / (double)pl_max64(clock_tokens, 1);
    return share < 1 ? share : 1;
}

float pl_outer_codec_gain(enum pl_codec codec)
{
    /* As measured by test_optim_outer, between light and heavy tails. */
    return codec == PL_CODEC_TOPK32    ? 2.1f
           : codec == PL_CODEC_TOPK64  ? 1.6f
           : codec == PL_CODEC_TOPK128 ? 1.3f
                                       : 1;
}

static void task(void *user, uint32_t number, uint32_t thread)
{
    (void)thread;
    const struct job *j = user;
    size_t at = (size_t)number * TASK, len = j->n - at < TASK ? j->n - at : TASK;
    pl_merge_kernels()->outer(j->move, j->delta + at, len, j->momentum + at, j->theta + at);
}

void pl_outer_step(const struct pl_outer_move *move, const float *delta, size_t n, float *momentum,
                   float *theta)
{
    pl_merge_kernels()->outer(move, delta, n, momentum, theta);
}

void pl_outer_step_by(struct pl_pool *pool, const struct pl_outer_move *move, const float *delta, size_t n,
                      float *momentum, float *theta)
{
    if (pool == NULL || n <= TASK) {
        pl_outer_step(move, delta, n, momentum, theta);
        return;
    }
    struct job j = {move, delta, n, momentum, theta};
    size_t tasks = (n + TASK - 1) / TASK;
    pl_assert(tasks <= UINT32_MAX);
    pl_pool_run(pool, (uint32_t)tasks, task, &j);
}
