/* cmd/cluster_home.h - what the commands around a running cluster share: finding its folder, asking its syncer, and lines
 * with a date. */
#ifndef PL_CMD_CLUSTER_HOME_H
#define PL_CMD_CLUSTER_HOME_H

#include "host/door.h"
#include "os/dir_posix.h"

/* Who may ask and invite: the `operator` credentials beside the home shard's, and where it listens. */
struct pl_operator {
    char folder[PL_PATH_MAX];     /* of the home shard */
    char address[PL_ADDRESS_MAX]; /* as learners dial it */
    char near[PL_ADDRESS_MAX];    /* as this machine does; "": not known */
    struct pl_credentials own;
};

/* From the folder of a syncer, or that of a `pelago run`, which has one inside. */
enum pelago_status pl_operator_load(struct pl_operator *o, const char *folder, struct pl_error *err);
/* Reads the address again: it changes when a syncer begins anew on another port. */
enum pelago_status pl_operator_reload(struct pl_operator *o, struct pl_error *err);
enum pelago_status pl_operator_ask(const struct pl_operator *o, const struct pl_question *q,
                                   uint64_t patience_ns, struct pl_buf *out, struct pl_error *err);

/* A syncer leaves when its run is complete; what it said last is in the folder. False: it has said none. */
bool pl_operator_last_status(const struct pl_operator *o, struct pl_buf *out);

/* Nobody was there to ask: it may be otherwise in a moment. */
bool pl_is_away(enum pelago_status st);

/* "name" inside folder; LIMIT where the path is too long. */
enum pelago_status pl_path_join(char out[static PL_PATH_MAX], const char *folder, const char *name,
                                struct pl_error *err);
bool pl_path_exists(const char *folder, const char *name);

/* The first line of a small file, without its end. IO for what is no file: no pipe is waited for. */
enum pelago_status pl_path_read_line(const char *path, char *out, size_t cap, struct pl_error *err);

/* A token as given: the text itself, or @FILE, which other users of the machine cannot see in the list of processes. */
enum pelago_status pl_token_given(const char *given, char out[static PL_TOKEN_TEXT_MAX],
                                  struct pl_error *err);

/* "2026-11-15T15:35:48Z line" on stderr, whole lines only. user is not used: it fits the hosts' log callbacks. */
void pl_log_line(void *user, const char *line);

#endif
