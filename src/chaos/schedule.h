/* chaos/schedule.h - a plan unrolled: who gets what when, one node at a time, in order of time.
 *
 * Everything random comes from the plan's seed and the numbers of the nodes, so the same plan picks the same victims in
 * the same order on a real cluster and in the simulator. Nodes that the plan itself holds down are not picked at random.
 * An action that lasts is followed by its end (undo); the same action on the same node meanwhile moves that end.
 */
#ifndef PL_CHAOS_SCHEDULE_H
#define PL_CHAOS_SCHEDULE_H

#include "base/heap.h"
#include "base/prng.h"
#include "chaos/plan.h"

enum { PL_CHAOS_NODES_MAX = 4096 }; /* learners and syncers of one run */

struct pl_chaos_event {
    uint64_t at_ns;
    const struct pl_chaos_action *action; /* lies in the plan */
    bool undo;                            /* the end of it */
    uint32_t node;                        /* number of the learner or syncer */
};

struct pl_chaos_schedule {
    const struct pl_chaos_plan *plan;
    const struct pl_alloc *alloc;
    uint32_t *numbers; /* learners' first, then syncers' */
    uint32_t learners, nodes;
    bool *held; /* by the plan */
    struct pl_heap rules, ends;
    void *rules_memory, *ends_memory;
    const struct pl_chaos_action **ending; /* [verb x node] */
    struct pl_prng prng, *intervals;       /* whom; when, a stream per rule */
    uint32_t *picks;
    uint32_t pick_count, pick_next;
    const struct pl_chaos_action *picked;
    uint64_t now_ns;
};

/* The numbers are copied; the plan is borrowed. A node that a line names and that does not exist is INVALID, by line. */
enum pelago_status pl_chaos_schedule_init(struct pl_chaos_schedule *s, const struct pl_chaos_plan *plan,
                                          const uint32_t *learners, uint32_t learner_count,
                                          const uint32_t *syncers, uint32_t syncer_count,
                                          const struct pl_alloc *alloc, struct pl_error *err);
void pl_chaos_schedule_release(struct pl_chaos_schedule *s); /* also after a failed init */

/* The next event, or false after the last. At the plan's `until` every end still open comes, at that time. */
bool pl_chaos_schedule_next(struct pl_chaos_schedule *s, struct pl_chaos_event *out);

/* For whoever stops before the end: the ends of what has been done so far, one by one; false after the last. An event
 * that next() gave and nobody performed is among them. */
bool pl_chaos_schedule_drain(struct pl_chaos_schedule *s, struct pl_chaos_event *out);

#endif
