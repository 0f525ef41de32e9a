/* host/join.h - from a token to a folder that takes part: who we are, where home is, what the run is. Blocking, for
 * whoever starts.
 *
 * What the folder has is not asked for again, so whoever comes back needs nobody to begin. A syncer that is not there, or
 * breaks off because a thousand others come at the same moment, is tried again, less and less often and each of us at
 * moments of its own. Repeating is safe: the same key with the same token is the same identity, however often it asks.
 */
#ifndef PL_HOST_JOIN_H
#define PL_HOST_JOIN_H

#include "host/data_choice.h"
#include "host/door.h"
#include "host/home.h"

struct pl_join {
    const struct pl_alloc *alloc;
    struct pl_posix_dir *dir;      /* locked by the caller */
    const char *folder;            /* its name, for sentences */
    const char *token;             /* text; NULL: the folder has taken part before */
    const char *address;           /* NULL, or where home is from now on, whatever token and folder say */
    const char *data, *local_data; /* of learners: NULL, or what to train on (host/data_choice.h) */
    enum pl_role role;
    uint32_t shard;
    uint64_t
        patience_ns; /* for a home shard that is not there; 0: a minute. One that is there and busy gets ten times that */
    void (*log)(void *user, const char *line); /* NULL is fine */
    void *user;

    struct pl_credentials own; /* what comes of it */
    char home[PL_ADDRESS_MAX]; /* its address */
    struct pl_settings settings;
    uint64_t settings_digest;
    struct pl_data_choice choice; /* of learners */
    bool
        complete; /* the run was over when this folder last took part: there is nothing to join, and nobody was asked */
};

/* Identity, address and settings, from the folder or from home; the folder then has them. */
enum pelago_status pl_join(struct pl_join *j, struct pl_error *err);
/* The same for j->folder, which is opened, made where there is a token, and locked meanwhile; afterwards j->dir is NULL. */
enum pelago_status pl_join_folder(struct pl_join *j, struct pl_error *err);
/* Written down for the next start: the run of this folder is over. */
enum pelago_status pl_join_note_complete(const struct pl_alloc *alloc, const char *folder,
                                         struct pl_error *err);
/* The run's tokenizer.json into out, which stays empty where the run has none. After pl_join. */
enum pelago_status pl_join_tokenizer(struct pl_join *j, struct pl_buf *out, struct pl_error *err);

#endif
