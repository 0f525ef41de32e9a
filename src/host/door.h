/* host/door.h - the calling side of the door: enrol, renew, ask. One connection, one or more questions, then it closes.
 *
 * Blocking, with a loop of its own, for commands and for a learner before it starts; and the same on a running loop for
 * renewal. The answering side is host/door_keeper.h.
 */
#ifndef PL_HOST_DOOR_H
#define PL_HOST_DOOR_H

#include "base/buf.h"
#include "net/conn.h"

/* What to ask, as numbered in the protocol. */
enum pl_ask {
    PL_ASK_SETTINGS = 1,
    PL_ASK_TOKENIZER,
    PL_ASK_STATUS,
    PL_ASK_INVITE,
    PL_ASK_FINISH,
    PL_ASK_ADDRESSES,
    PL_ASK_ANNOUNCE,
};

struct pl_question {
    enum pl_ask what;
    uint64_t uses, seconds; /* INVITE */
    enum pl_role role;      /* INVITE */
    const char *text;       /* ANNOUNCE; else NULL */
    uint32_t shard;         /* who is asked; of one that is not home only the operator, and only STATUS */
};

/* Asks one thing at address as who we are; the answer's bytes are appended to out. patience_ns bounds it all; interrupted
 * (may be NULL) ends it early when it becomes true. */
enum pelago_status pl_door_ask(const struct pl_alloc *alloc, const char *address,
                               const struct pl_credentials *own, const struct pl_question *q,
                               uint64_t patience_ns, struct pl_buf *out, struct pl_error *err);

/* Makes an identity by token: *own gets key, certificate, authority. The sentence of a refusal says whether the token is
 * wrong, used, or expired. own: zero, or as an attempt left it whose answer was lost: the same key then gets the same
 * identity, and the token is not used twice. shard: of a PL_ROLE_SHARD. skew_s (may be NULL): how far our clock is ahead of the syncer's. */
enum pelago_status pl_door_enrol(const struct pl_alloc *alloc, const struct pl_token *token,
                                 enum pl_role role, uint32_t shard, uint64_t patience_ns,
                                 struct pl_credentials *own, int64_t *skew_s, struct pl_error *err);
/* A new certificate for the same key and identity. */
enum pelago_status pl_door_renew(const struct pl_alloc *alloc, const char *address, uint64_t patience_ns,
                                 struct pl_credentials *own, struct pl_error *err);

#endif
