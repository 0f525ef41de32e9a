/* cmd/cluster_join.h - from a token to a folder that takes part: identity, where home is, the run's settings. */
#ifndef PL_CMD_CLUSTER_JOIN_H
#define PL_CMD_CLUSTER_JOIN_H

#include "host/settings.h"
#include "net/pki.h"

struct pl_join {
    const char *folder; /* made where missing */
    const char *token;  /* text; NULL: the folder has taken part before */
    enum pl_role role;
    uint32_t shard;
    uint64_t patience_ns; /* for a home shard that is not there yet */
};

/* Does what has not been done before. The folder is locked meanwhile, not afterwards. */
enum pelago_status pl_join(const struct pl_join *j, struct pl_settings *settings, struct pl_error *err);

#endif
