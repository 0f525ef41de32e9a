/* cmd/cluster_save.h - the global model of a syncer as a checkpoint. */
#ifndef PL_CMD_CLUSTER_SAVE_H
#define PL_CMD_CLUSTER_SAVE_H

#include "host/layout.h"
#include "host/syncer_host.h"

/* Writes this shard's fragments, and version 0 of all others, as the checkpoint of the run's last step into the folder: that
 * of its learners together, who have trained so many tokens. A later checkpoint that is there is left alone. */
enum pelago_status pl_cluster_save(const struct pl_syncer_host *h, uint64_t tokens, const char *folder,
                                   struct pl_error *err);

/* Parameters of such a run as a checkpoint, and what belongs to them. */
struct pl_cluster_model {
    const struct pl_settings *settings;
    const struct pl_tensors *tensors;
    const float *params;
    uint64_t tokens;           /* trained */
    struct pl_bytes tokenizer; /* no bytes: none */
};
enum pelago_status pl_cluster_save_params(const struct pl_cluster_model *m, const char *folder,
                                          struct pl_error *err);

#endif
