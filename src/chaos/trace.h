/* chaos/trace.h - a log of failures turned into a plan: lines "t_s,event,node,cause", event up or down, by time.
 *
 * There are usually more nodes in a log than learners in a run. Two ways to map them:
 *   slots  each learner stands for one node at a time, at first for nodes spread over the log's. A node that goes down takes its learner down; the next node that
 *          comes up takes over the lowest free learner and brings it back. Nodes without a learner do not matter. Every
 *          learner then fails as often as a node of the log.
 *   fold   node i is learner 1 + i mod learners (in order of appearance), and every fault counts: the learner is killed,
 *          and held down until the node is up again where the log says so. Learners fail as often as all nodes together.
 * A node whose first event is "down" was up before.
 */
#ifndef PL_CHAOS_TRACE_H
#define PL_CHAOS_TRACE_H

#include "base/buf.h"

#include <stdbool.h>
#include <stdint.h>

enum { PL_TRACE_NODES_MAX = 16384, PL_TRACE_BYTES_MAX = 16 << 20 };

struct pl_trace_options {
    uint32_t learners;
    bool fold;
    double time_scale; /* 100: a hundred times faster; > 0 */
    uint64_t skip_s;   /* of the log */
};

/* Appends plan text: "at 12.500s down learner 3" and so on. INVALID: "line 7 of the trace: ...". */
enum pelago_status pl_trace_to_plan(const char *text, size_t len, const struct pl_trace_options *o,
                                    const struct pl_alloc *alloc, struct pl_buf *plan, struct pl_error *err);

#endif
