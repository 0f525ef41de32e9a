/* cmd/cluster_shards.h - what the other shards of a run say, beside the home shard's status. */
#ifndef PL_CMD_CLUSTER_SHARDS_H
#define PL_CMD_CLUSTER_SHARDS_H

#include "cmd/cluster_home.h"

/* Where the status of the home shard is of a run of several, adds `others` to it, and makes `goodput` that of the run
 * (docs/status.md). Asks every other shard; of one that has left it takes the last word, where its folder is beside home's
 * as in a `pelago run`. The text stays as it is where it is no status, or the run has one shard. */
void pl_shards_complete(const struct pl_operator *who, struct pl_buf *status);

#endif
