/* host/door_keeper.h - the home shard's door: who may become what, and what they may ask. The calling side is
 * host/door.h.
 *
 * An invitation is a number and a secret; of the secret only its SHA-256 is kept. Every use is counted down, and every
 * new identity counted up, in a file that is synced before the certificate is made: a crash in between never gives an
 * identity twice, and who comes again with the same token and request is given the same one. A worker writes it (host/door_desk.h): the answer comes later, and nobody else waits for it. Certificates are short-lived and renewed by whoever holds one that is still valid.
 * A refusal says in one sentence what is wrong, to the caller and in the log; who guesses is slowed down per address.
 *
 *   invitations.json  {"format": 2, "next_identity": 5, "next_number": 3, "invitations": [{"number": 1,
 *                      "secret_sha256": "...", "role": 1, "uses_left": 1, "expires_s": 0}, ...],
 *                      "entrants": [{"token": 1, "request_sha256": "...", "identity": 4, "role": 1,
 *                      "shard": 0}, ...]}
 *                      entrants: the last PL_ENTRANTS_MAX who were let in. Of format 1 everything is taken but the
 *                      entrants; an older syncer refuses format 2
 */
#ifndef PL_HOST_DOOR_KEEPER_H
#define PL_HOST_DOOR_KEEPER_H

#include "base/buf.h"
#include "host/door.h"
#include "host/home.h"
#include "wire/msg.h"

enum {
    PL_INVITATIONS_MAX = 4096,    /* open at once */
    PL_DOOR_ADDRESSES_MAX = 1024, /* addresses that failed lately, remembered */
    PL_DOOR_FAILURES_MAX = 10,    /* of one address in a minute */
    PL_DOOR_STATUS_MAX =
        2, /* questions for the status, of one member in a second; the operator may ask more */
};

struct pl_door_keeper;

/* What the keeper asks its host for. */
struct pl_door_host {
    /* Appends the JSON of status. all: with what is the operator's alone. */
    enum pelago_status (*status)(void *user, bool all, struct pl_buf *out);
    void (*finish)(void *user); /* an operator ends the run */
    /* The answer that was to come later is on its way; good: otherwise a REFUSE, and the connection should be closed. */
    void (*answered)(void *user, void *who, bool good);
    void (*idle)(void *user); /* nothing is being written any more; may free the keeper */
    void (*log)(void *user, const char *line);
    void *user;
};

struct pl_door_options {
    uv_loop_t *loop;              /* borrowed */
    const struct pl_alloc *alloc; /* borrowed; used from a worker, too */
    struct pl_posix_dir *dir;     /* borrowed; settings.json, tokenizer.json */
    struct pl_posix_dir
        *list_dir;               /* borrowed; the same folder, for the worker that writes invitations.json */
    struct pl_posix_dir *mirror; /* NULL, or where invitations.json is written as well */
    const struct pl_credentials *ca; /* copied */
    const char *address;             /* of the home shard, as learners dial it; copied */
    uint32_t shards;
    uint64_t certificate_s; /* validity; 0: a day */
    struct pl_door_host host;
};

enum pelago_status pl_door_keeper_new(struct pl_door_keeper **out, const struct pl_door_options *o,
                                      struct pl_error *err);
void pl_door_keeper_free(struct pl_door_keeper *d); /* NULL is fine */

/* A new invitation, durable. seconds 0: for ever. Writes on this thread: before the loop runs, or while nobody waits. */
enum pelago_status pl_door_keeper_invite(struct pl_door_keeper *d, enum pl_role role, uint64_t uses,
                                         uint64_t seconds, char out[static PL_TOKEN_TEXT_MAX],
                                         struct pl_error *err);

/* Answers one ENROL or ASK from peer on c, now or later: then nothing is read from c until answered(). now is pl_clock_ns,
 * who is for answered(). False: a REFUSE is on its way, and the connection should be closed. */
bool pl_door_keeper_answer(struct pl_door_keeper *d, struct pl_conn *c, const struct pl_peer *peer, void *who,
                           const struct pl_msg *msg, uint64_t now_ns);
/* The connection of one who asked is gone: answered() does not come. d may be NULL. */
void pl_door_keeper_forget(struct pl_door_keeper *d, const void *who);
/* Somebody of this run is there, or in the journal: after a restore from an older copy the list may not know of them. NULL is
 * fine. */
void pl_door_keeper_met(struct pl_door_keeper *d, uint64_t identity);
/* Something is being written: not to be freed before idle(). NULL: never. */
bool pl_door_keeper_busy(const struct pl_door_keeper *d);

/* For status. */
struct pl_door_view {
    uint64_t enrolled, renewed, refused; /* in this life */
    uint32_t invitations;                /* open ones */
    uint64_t identities;                 /* given so far, ever */
};
void pl_door_keeper_view(const struct pl_door_keeper *d, struct pl_door_view *out);
/* Address of a shard, "" when it has not announced itself. */
const char *pl_door_keeper_shard_address(const struct pl_door_keeper *d, uint32_t shard);

/* The first invitations.json of a run. */
enum pelago_status pl_door_keeper_create(struct pl_posix_dir *dir, const struct pl_alloc *alloc,
                                         struct pl_error *err);

#endif
