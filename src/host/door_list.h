/* host/door_list.h - the invitations of a run: in memory, and as invitations.json. See door_keeper.h. */
#ifndef PL_HOST_DOOR_LIST_H
#define PL_HOST_DOOR_LIST_H

#include "host/door_keeper.h"

enum { PL_SHA256_BYTES = 32 };

struct pl_invitation {
    uint64_t number;
    uint8_t secret_sha256[PL_SHA256_BYTES];
    enum pl_role role;
    uint64_t uses_left; /* 0: used up; kept, so that the sentence can say so */
    uint64_t expires_s; /* 0: never */
};

/* Who was let in lately: an answer may be lost on its way, with the syncer's life, and the token is not to be used up by that.
 * A request is signed with its key and always the same bytes (Ed25519). */
struct pl_entrant {
    uint64_t token;
    uint8_t request_sha256[PL_SHA256_BYTES];
    struct pl_grant grant; /* but for its validity */
    bool written;          /* it is on disk */
};
enum { PL_ENTRANTS_MAX = 1024 };

struct pl_invitations {
    struct pl_alloc alloc;
    struct pl_invitation *at; /* [PL_INVITATIONS_MAX], made at the first one */
    uint32_t count;
    struct pl_entrant
        *entrants; /* [PL_ENTRANTS_MAX], made with it; a ring, by the number of those who came */
    uint64_t entrant_count;
    uint64_t next_identity, next_number;
};

void pl_invitations_init(struct pl_invitations *l, const struct pl_alloc *alloc);
void pl_invitations_release(struct pl_invitations *l);

/* LIMIT when all are open; used up and expired ones make room. */
enum pelago_status pl_invitations_add(struct pl_invitations *l, enum pl_role role, uint64_t uses,
                                      uint64_t expires_s, const uint8_t secret[static PL_SECRET_BYTES],
                                      uint64_t now_s, uint64_t *number, struct pl_error *err);

/* NULL: *out may be used. Otherwise the sentence: wrong, used, expired. *out is the invitation wherever the secret is its
 * own, also a used or expired one; else NULL. Takes the same time for every secret. */
const char *pl_invitations_match(struct pl_invitations *l, uint64_t number,
                                 const uint8_t secret[static PL_SECRET_BYTES], uint64_t now_s,
                                 struct pl_invitation **out);

/* One use less, one identity more: which the entrant is given. To be saved before anybody is told. */
const struct pl_grant *pl_invitations_use(struct pl_invitations *l, struct pl_invitation *inv,
                                          const uint8_t request_sha256[static PL_SHA256_BYTES],
                                          uint32_t shard);
/* What the same request was given before; NULL: nothing. To be asked for whoever has shown the token's secret. */
const struct pl_grant *pl_invitations_given(const struct pl_invitations *l, uint64_t token,
                                            const uint8_t request_sha256[static PL_SHA256_BYTES]);
/* Somebody with this identity is there: a list that is older than that gives it to nobody else. */
void pl_invitations_met(struct pl_invitations *l, uint64_t identity);
/* The identity is on disk. True: that is news. */
bool pl_invitations_written(struct pl_invitations *l, uint64_t identity);
/* One that nobody was told of. */
void pl_invitations_drop(struct pl_invitations *l, uint64_t number);

/* *to, which has been initialised, becomes as *from is. */
enum pelago_status pl_invitations_copy(struct pl_invitations *to, const struct pl_invitations *from,
                                       struct pl_error *err);

enum pelago_status pl_invitations_save(const struct pl_invitations *l, struct pl_posix_dir *dir,
                                       const struct pl_alloc *alloc, struct pl_error *err);
enum pelago_status pl_invitations_load(struct pl_invitations *l, struct pl_posix_dir *dir,
                                       const struct pl_alloc *alloc, struct pl_error *err);

#endif
