/* goodput/protocol.h - a window of a run with the real protocol in it: core/syncer and core/learner, as in a real run,
 * while the fast mode beside them says which learner stalls, slows down, loses its link or everything.
 *
 * No tensors: a fragment is a few bytes that stand for their size on the link. Work counts when the syncer merged it.
 * Both modes are measured over the same time, so that their difference is what the fast mode leaves out.
 */
#ifndef PL_GOODPUT_PROTOCOL_H
#define PL_GOODPUT_PROTOCOL_H

#include "goodput/goodput.h"

enum { PL_PROTOCOL_ROUNDS_MAX = 10000000 };

struct pl_protocol_result {
    double goodput; /* tokens merged, over what there could have been */
    double seconds; /* of the window */
    uint64_t rounds, events, steps, discards, lost_conns;
    double cohort[PL_GOODPUT_LEARNERS_MAX + 1]; /* share of rounds with so many contributors */
    double behind[4];              /* share of contributions so many versions behind; the last: or more */
    struct pl_goodput_result fast; /* over the same window */
};

/* At least so many rounds are merged in the window. P = H fragments, one due a step. INVALID for an algorithm other
 * than decoupled, days that end before, or more than some minutes of work. */
enum pelago_status pl_protocol_run(const struct pl_goodput_options *o, uint64_t rounds,
                                   const struct pl_alloc *alloc, struct pl_protocol_result *out,
                                   struct pl_error *err);

#endif
