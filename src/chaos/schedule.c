/* chaos/schedule.c - see schedule.h. Two heaps: when each rule comes next, and when each lasting action ends. */
#include "chaos/schedule.h"

#include "base/check.h"
#include "base/limits.h"
#include "base/num.h"

#include <math.h>
#include <string.h>

enum { STREAM_PICKS = 0x70696b, STREAM_INTERVALS = 0x696e74 };

/* ---- making it ---- */

static bool exists(const struct pl_chaos_schedule *s, bool syncer, uint32_t number)
{
    for (uint32_t i = syncer ? s->learners : 0; i < (syncer ? s->nodes : s->learners); i++)
        if (s->numbers[i] == number)
            return true;
    return false;
}

/* Every number of a short range must be there; "1-1000" may name more than there are. */
static enum pelago_status check_target(const struct pl_chaos_schedule *s, const struct pl_chaos_action *a,
                                       struct pl_error *err)
{
    const struct pl_chaos_target *t = &a->target;
    const char *what = t->syncer ? "syncer" : "learner";
    if ((t->syncer ? s->nodes - s->learners : s->learners) == 0)
        return pl_fail(err, PELAGO_INVALID, "line %u of the plan: the run has no %s", a->line, what);
    for (uint32_t i = 0; t->pick == PL_PICK_LISTED && i < t->range_count; i++)
        if (!exists(s, t->syncer, t->ranges[i].first) || !exists(s, t->syncer, t->ranges[i].last))
            return pl_fail(err, PELAGO_INVALID, "line %u of the plan: the run has no %s %u", a->line, what,
                           exists(s, t->syncer, t->ranges[i].first) ? t->ranges[i].last : t->ranges[i].first);
    return PELAGO_OK;
}

/* The time from one firing of a rule to its next. */
static uint64_t interval(struct pl_chaos_schedule *s, uint32_t rule)
{
    const struct pl_chaos_rule *r = &s->plan->rules[rule];
    if (!r->about)
        return r->every_ns;
    double u = (double)(pl_prng_next(&s->intervals[rule]) >> 11) * 0x1p-53;
    double ns = -log1p(-u) * (double)r->every_ns;
    return pl_clamp64((uint64_t)ns, PL_MS, PL_COUNT_MAX);
}

static void arm(struct pl_chaos_schedule *s, uint32_t rule, uint64_t at_ns)
{
    if (at_ns <= pl_min64(s->plan->rules[rule].to_ns, s->plan->until_ns))
        pl_heap_set(&s->rules, rule, at_ns);
    else
        pl_heap_remove(&s->rules, rule);
}

static enum pelago_status begin_rules(struct pl_chaos_schedule *s, struct pl_error *err)
{
    pl_prng_seed(&s->prng, s->plan->seed, STREAM_PICKS);
    for (uint32_t i = 0; i < s->plan->rule_count; i++) {
        const struct pl_chaos_rule *r = &s->plan->rules[i];
        PL_TRY(check_target(s, &r->action, err));
        pl_prng_seed(&s->intervals[i], s->plan->seed, STREAM_INTERVALS + (uint64_t)i);
        arm(s, i, r->every_ns == 0 ? r->from_ns : pl_add_sat(r->from_ns, interval(s, i)));
    }
    return PELAGO_OK;
}

static size_t rule_room(const struct pl_chaos_schedule *s)
{
    return pl_max32(s->plan->rule_count, 1);
}

static size_t end_room(const struct pl_chaos_schedule *s)
{
    return (size_t)PL_CHAOS_VERBS * s->nodes;
}

static bool make_room(struct pl_chaos_schedule *s)
{
    const struct pl_alloc *a = s->alloc;
    uint32_t rules = (uint32_t)rule_room(s), ends = (uint32_t)end_room(s);
    s->numbers = pl_alloc_zero(a, s->nodes, sizeof *s->numbers);
    s->held = pl_alloc_zero(a, s->nodes, sizeof *s->held);
    s->picks = pl_alloc_zero(a, s->nodes, sizeof *s->picks);
    s->ending = pl_alloc_zero(a, ends, sizeof(void *)); /* pointers to actions of the plan */
    s->intervals = pl_alloc_zero(a, rules, sizeof *s->intervals);
    s->rules_memory = pl_alloc_zero(a, 1, pl_heap_bytes(rules));
    s->ends_memory = pl_alloc_zero(a, 1, pl_heap_bytes(ends));
    if (s->numbers == NULL || s->held == NULL || s->picks == NULL || s->ending == NULL ||
        s->intervals == NULL || s->rules_memory == NULL || s->ends_memory == NULL)
        return false;
    pl_heap_init(&s->rules, s->rules_memory, rules);
    pl_heap_init(&s->ends, s->ends_memory, ends);
    return true;
}

enum pelago_status pl_chaos_schedule_init(struct pl_chaos_schedule *s, const struct pl_chaos_plan *plan,
                                          const uint32_t *learners, uint32_t learner_count,
                                          const uint32_t *syncers, uint32_t syncer_count,
                                          const struct pl_alloc *alloc, struct pl_error *err)
{
    *s = (struct pl_chaos_schedule){.plan = plan, .alloc = alloc, .learners = learner_count};
    if (learner_count > PL_CHAOS_NODES_MAX || syncer_count > PL_CHAOS_NODES_MAX - learner_count ||
        learner_count + syncer_count == 0)
        return pl_fail(err, PELAGO_INVALID, "the run has %u learners and %u syncers, expected 1 to %u in all",
                       learner_count, syncer_count, PL_CHAOS_NODES_MAX);
    s->nodes = learner_count + syncer_count;
    if (!make_room(s))
        return pl_fail(err, PELAGO_NOMEM, "there is no memory for a plan of %u rules", plan->rule_count);
    if (learner_count > 0)
        memcpy(s->numbers, learners, learner_count * sizeof *learners);
    if (syncer_count > 0)
        memcpy(s->numbers + learner_count, syncers, syncer_count * sizeof *syncers);
    return begin_rules(s, err);
}

void pl_chaos_schedule_release(struct pl_chaos_schedule *s)
{
    const struct pl_alloc *a = s->alloc;
    if (s->nodes == 0)
        return;
    pl_alloc_free(a, s->numbers, s->nodes * sizeof *s->numbers);
    pl_alloc_free(a, s->held, s->nodes * sizeof *s->held);
    pl_alloc_free(a, s->picks, s->nodes * sizeof *s->picks);
    pl_alloc_free(a, (void *)s->ending, end_room(s) * sizeof(void *));
    pl_alloc_free(a, s->intervals, rule_room(s) * sizeof *s->intervals);
    pl_alloc_free(a, s->rules_memory, pl_heap_bytes((uint32_t)rule_room(s)));
    pl_alloc_free(a, s->ends_memory, pl_heap_bytes((uint32_t)end_room(s)));
    s->nodes = 0;
}

/* ---- whom ---- */

static bool is_listed(const struct pl_chaos_target *t, uint32_t number)
{
    for (uint32_t i = 0; i < t->range_count; i++)
        if (number >= t->ranges[i].first && number <= t->ranges[i].last)
            return true;
    return false;
}

/* May this node be picked? What is down can only be brought up, and the other way round. */
static bool is_eligible(const struct pl_chaos_schedule *s, const struct pl_chaos_action *a, uint32_t node)
{
    if (a->target.pick == PL_PICK_LISTED)
        return is_listed(&a->target, s->numbers[node]);
    return a->target.pick == PL_PICK_ALL || s->held[node] == (a->verb == PL_CHAOS_UP);
}

static void pick(struct pl_chaos_schedule *s, const struct pl_chaos_action *a)
{
    uint32_t first = a->target.syncer ? s->learners : 0, end = a->target.syncer ? s->nodes : s->learners;
    s->pick_count = s->pick_next = 0;
    s->picked = a;
    for (uint32_t i = first; i < end; i++)
        if (is_eligible(s, a, i))
            s->picks[s->pick_count++] = i;
    uint32_t wanted = s->pick_count;
    if (a->target.pick == PL_PICK_RANDOM)
        wanted = pl_min32(1, s->pick_count);
    if (a->target.pick == PL_PICK_HALF)
        wanted = pl_min32(pl_max32((end - first) / 2, 1), s->pick_count);
    if (wanted == s->pick_count && a->target.pick != PL_PICK_RANDOM)
        return;
    /* The first `wanted` places of a shuffle. */
    for (uint32_t i = 0; i < wanted; i++) {
        uint32_t j = (uint32_t)pl_prng_range(&s->prng, i, s->pick_count - 1), swap = s->picks[i];
        s->picks[i] = s->picks[j];
        s->picks[j] = swap;
    }
    s->pick_count = wanted;
}

/* ---- ends ---- */

static uint32_t end_item(const struct pl_chaos_schedule *s, enum pl_chaos_verb verb, uint32_t node)
{
    return (uint32_t)verb * s->nodes + node;
}

/* What an action means for the ends to come and for who is held. */
static void note(struct pl_chaos_schedule *s, const struct pl_chaos_action *a, uint32_t node)
{
    enum pl_chaos_verb ended = pl_chaos_verb_ends(a->verb);
    if (a->verb == PL_CHAOS_DOWN || a->verb == PL_CHAOS_UP)
        s->held[node] = a->verb == PL_CHAOS_DOWN;
    if (ended != 0)
        pl_heap_remove(&s->ends, end_item(s, ended, node));
    for (uint32_t v = PL_CHAOS_LINK; a->verb == PL_CHAOS_CLEAR && v <= PL_CHAOS_MUTE; v++)
        pl_heap_remove(&s->ends, end_item(s, (enum pl_chaos_verb)v, node));
    if (pl_chaos_verb_undo_name(a->verb) == NULL)
        return;
    uint32_t item = end_item(s, a->verb, node);
    s->ending[item] = a;
    pl_heap_set(&s->ends, item, a->for_ns == 0 ? PL_NEVER - 1 : pl_add_sat(s->now_ns, a->for_ns));
}

static bool take_end(struct pl_chaos_schedule *s, struct pl_chaos_event *out)
{
    uint32_t item = pl_heap_top(&s->ends), node = item % s->nodes;
    pl_heap_remove(&s->ends, item);
    if (item / s->nodes == PL_CHAOS_DOWN)
        s->held[node] = false;
    *out = (struct pl_chaos_event){s->now_ns, s->ending[item], true, s->numbers[node]};
    return true;
}

/* ---- in order ---- */

static bool take_pick(struct pl_chaos_schedule *s, struct pl_chaos_event *out)
{
    uint32_t node = s->picks[s->pick_next++];
    note(s, s->picked, node);
    *out = (struct pl_chaos_event){s->now_ns, s->picked, false, s->numbers[node]};
    return true;
}

static void fire(struct pl_chaos_schedule *s, uint32_t rule)
{
    const struct pl_chaos_rule *r = &s->plan->rules[rule];
    pick(s, &r->action);
    pl_heap_remove(&s->rules, rule);
    if (r->every_ns != 0)
        arm(s, rule, pl_add_sat(s->now_ns, interval(s, rule)));
}

bool pl_chaos_schedule_next(struct pl_chaos_schedule *s, struct pl_chaos_event *out)
{
    for (;;) {
        if (s->pick_next < s->pick_count)
            return take_pick(s, out);
        uint64_t rule_ns = pl_heap_top_key(&s->rules), end_ns = pl_heap_top_key(&s->ends);
        uint64_t next_ns = pl_min64(rule_ns, end_ns);
        if (s->plan->until_ns < next_ns) {
            s->now_ns = s->plan->until_ns;
            return end_ns != PL_NEVER && take_end(s, out);
        }
        if (next_ns >= PL_NEVER - 1)
            return false;
        pl_assert(next_ns >= s->now_ns);
        s->now_ns = next_ns;
        if (end_ns <= rule_ns)
            return take_end(s, out);
        fire(s, pl_heap_top(&s->rules));
    }
}

bool pl_chaos_schedule_drain(struct pl_chaos_schedule *s, struct pl_chaos_event *out)
{
    return pl_heap_top(&s->ends) != PL_NONE32 && take_end(s, out);
}
