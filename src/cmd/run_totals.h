/* cmd/run_totals.h - what a run has counted over all lives of its syncers.
 *
 * A syncer counts from its own start. Whoever looks again and again adds up what was seen of each life: what came between the
 * last look and its end is missing. Kept in run.json, so that `pelago run --resume` goes on with it.
 */
#ifndef PL_CMD_RUN_TOTALS_H
#define PL_CMD_RUN_TOTALS_H

#include "cmd/cluster_view.h"
#include "train/json.h"

struct pl_total {
    bool heard;
    struct pl_view_shard now;     /* as it said last; counts of its present life */
    struct pl_view_counts before; /* of the lives before */
};

struct pl_run_totals {
    struct pl_total shard[PL_SHARDS_MAX];
    bool partial; /* what an earlier `pelago run` saw is not known */
};

void pl_totals_look(struct pl_run_totals *t, const struct pl_view_shard *s);
/* Looks at every shard in the view, and puts what is known of all into their places. */
void pl_totals_complete(struct pl_run_totals *t, struct pl_cluster_view *v);
/* Contributors of all merges of all shards, of the learners that were alive then; below 0: none yet. */
double pl_totals_merged_alive(const struct pl_run_totals *t);

/* A list, and back; what is no such list leaves the totals partial. */
json_t *pl_totals_json(const struct pl_run_totals *t);
void pl_totals_recall(struct pl_run_totals *t, const json_t *list);

#endif
