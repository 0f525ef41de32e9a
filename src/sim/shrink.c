/* sim/shrink.c - see shrink.h. Greedy: try a change, keep it when the run still fails, until nothing helps. */
#include "sim/shrink.h"

#include "base/limits.h"
#include "base/num.h"

struct shrink {
    struct pl_sim_options *best;
    struct pl_sim_result *result;
    const struct pl_alloc *alloc;
    pl_shrink_progress *progress;
    void *user;
    enum pelago_status status;
};

/* True when the changed options fail in the same way: they are the best now. */
static bool attempt(struct shrink *s, const struct pl_sim_options *changed)
{
    struct pl_sim_result result;
    struct pl_sim_wrong wrong;
    struct pl_sim_options o = *changed;
    o.quorum =
        pl_min32(o.quorum, o.learners); /* fewer learners: a smaller quorum, or nothing could be merged */
    if (s->status != PELAGO_OK || pl_sim_find_wrong(&o, &wrong))
        return false;
    s->status = pl_sim_run(&o, NULL, s->alloc, &result);
    if (s->status != PELAGO_OK || result.exit != s->result->exit)
        return false;
    *s->best = o;
    *s->result = result;
    if (s->progress != NULL)
        s->progress(s->user, &o, &result);
    return true;
}

static bool fewer_faults(struct shrink *s)
{
    bool helped = false;
    for (uint32_t bit = 1; bit <= PL_FAULT_GARBAGE; bit <<= 1) {
        struct pl_sim_options o = *s->best;
        if ((o.faults & bit) == 0)
            continue;
        o.faults &= ~bit;
        helped = attempt(s, &o) || helped;
    }
    return helped;
}

/* Down to `least` at once, then half way, then by one. */
static bool smaller(struct shrink *s, uint32_t *field_of_copy, struct pl_sim_options *copy, uint32_t least)
{
    uint32_t now = *field_of_copy;
    const uint32_t tries[] = {least, least + (now - least) / 2, now - 1};
    for (size_t i = 0; i < sizeof tries / sizeof tries[0] && now > least; i++) {
        *field_of_copy = tries[i];
        if (tries[i] < now && attempt(s, copy))
            return true;
    }
    return false;
}

static bool smaller_cluster(struct shrink *s)
{
    bool helped = false;
    struct pl_sim_options o = *s->best;
    helped = smaller(s, &o.learners, &o, 1) || helped;
    o = *s->best;
    helped = smaller(s, &o.quorum, &o, 1) || helped;
    o = *s->best;
    helped = smaller(s, &o.shards, &o, 1) || helped;
    o = *s->best;
    helped = smaller(s, &o.fragments, &o, o.shards) || helped;
    o = *s->best;
    helped = smaller(s, &o.period_steps, &o, (o.fragments + o.shards - 1) / o.shards) || helped;
    return helped;
}

static bool simpler(struct shrink *s)
{
    bool helped = false;
    struct pl_sim_options o = *s->best;
    o.duration_ns = pl_max64(o.duration_ns / 2, 20 * PL_SEC);
    helped = (o.duration_ns < s->best->duration_ns && attempt(s, &o)) || helped;
    o = *s->best;
    o.apply = 0;
    helped = (s->best->apply != 0 && attempt(s, &o)) || helped;
    o = *s->best;
    o.speed_spread_permille = 0;
    helped = (s->best->speed_spread_permille != 0 && attempt(s, &o)) || helped;
    o = *s->best;
    o.local_data_permille = 0;
    helped = (s->best->local_data_permille != 0 && attempt(s, &o)) || helped;
    o = *s->best;
    o.fault_mean_ms *= 2;
    helped = (o.fault_mean_ms < 60000 && attempt(s, &o)) || helped;
    return helped;
}

enum pelago_status pl_sim_shrink(struct pl_sim_options *o, struct pl_sim_result *result,
                                 const struct pl_alloc *alloc, pl_shrink_progress *progress, void *user)
{
    struct shrink s = {o, result, alloc, progress, user, PELAGO_OK};
    for (bool again = true; again && s.status == PELAGO_OK;) {
        again = fewer_faults(&s);
        again = smaller_cluster(&s) || again;
        again = simpler(&s) || again;
    }
    return s.status;
}
