/* cmd/cluster_save.h - the global model of a syncer as a checkpoint. */
#ifndef PL_CMD_CLUSTER_SAVE_H
#define PL_CMD_CLUSTER_SAVE_H

#include "host/layout.h"
#include "host/syncer_host.h"

/* Writes this shard's fragments, and version 0 of all others, as the checkpoint of the run's last step into the folder. */
enum pelago_status pl_cluster_save(const struct pl_syncer_host *h, const char *folder, struct pl_error *err);

/* Parameters of such a run as a checkpoint; no bytes of a tokenizer: none. */
enum pelago_status pl_cluster_save_params(const struct pl_settings *s, const struct pl_tensors *tensors,
                                          const float *params, const char *folder, struct pl_bytes tokenizer,
                                          struct pl_error *err);

#endif
