/* cmd/learner_line.h - what a learner says about itself once a minute. */
#ifndef PL_CMD_LEARNER_LINE_H
#define PL_CMD_LEARNER_LINE_H

#include "host/learner_host.h"

/* A line of the log. before: the view so many seconds ago. merges: of all fragments, those its work builds on; PL_NONE64: the
 * algorithm has no versions. */
void pl_learner_line(const struct pl_learner_host_view *now, const struct pl_learner_host_view *before,
                     double seconds, uint64_t merges, char *out, size_t cap);

#endif
