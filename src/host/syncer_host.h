/* host/syncer_host.h - one syncer shard on a real machine: core/syncer with sockets, disk, tensors and workers.
 *
 *   syncer_host.c     events in, effects out, connections
 *   syncer_values.c   the tensors: pushes, merges, updates
 *   syncer_vault.c    the journal: records, snapshots, recovery, the mirror
 *   door_keeper.c     enrolment, invitations, questions (home shard); door_desk.c writes them down
 *   syncer_status.c   what status and top show
 *   recorder.c        every event of the core to a file, for `pelago replay`
 *
 * The loop's thread moves bytes between sockets and buffers and steps the core; unpacking, checking, merging, encoding
 * and writing run on workers. Memory: 12 bytes a parameter, one encoded fragment for every push on its way, the ring of
 * updates, and the working set of the merges under way.
 */
#ifndef PL_HOST_SYNCER_HOST_H
#define PL_HOST_SYNCER_HOST_H

#include "host/settings.h"
#include "net/conn.h"

struct pl_syncer_host;

struct pl_syncer_host_options {
    uv_loop_t *loop;              /* borrowed */
    const struct pl_alloc *alloc; /* borrowed; used from workers too: the system's */
    const char *folder;           /* settings, credentials, journal */
    const char *mirror;    /* NULL, or a folder that gets every byte of the journal before it is announced */
    const char *listen;    /* "0.0.0.0:7441", port 0: any */
    const char *advertise; /* as learners dial it; NULL: made from listen and the host's name */
    const char *home;      /* of a further shard: where home is from now on; NULL: as the folder says */
    uint32_t shard;
    uint32_t relaxed;        /* 0: strict, announce after sync; n: sync every n records */
    uint32_t learners_max;   /* identities at once */
    uint32_t threads;        /* of one merge */
    const char *record;      /* NULL, or a file for the event recorder */
    uint64_t snapshot_bytes; /* of journal between two snapshots; 0: twice the model's, at least 16 MiB */
    void (*log)(void *user, const char *line);
    void (*finished)(void *user);                           /* the run is complete; may be NULL */
    void (*failed)(void *user, const struct pl_error *why); /* it cannot go on */
    void *user;
};

/* A new run in an empty folder: settings, tokenizer (no bytes: none), authority, credentials, the first journal. */
enum pelago_status pl_syncer_host_create(const struct pl_alloc *alloc, const char *folder,
                                         const struct pl_settings *settings, struct pl_bytes tokenizer,
                                         struct pl_error *err);

/* Recovers from the folder, listens, begins. The home shard also keeps the door. */
enum pelago_status pl_syncer_host_start(struct pl_syncer_host **out, const struct pl_syncer_host_options *o,
                                        struct pl_error *err);
/* Says LEAVING to everybody, closes; done() is called when it is all gone, and h too. Not from inside log(). */
void pl_syncer_host_stop(struct pl_syncer_host *h, void (*done)(void *user), void *user);

const struct pl_settings *pl_syncer_host_settings(const struct pl_syncer_host *h);
const char *pl_syncer_host_address(const struct pl_syncer_host *h); /* as learners dial it */
const char *pl_syncer_host_bound(const struct pl_syncer_host *h);   /* where it listens */
uint32_t pl_syncer_host_connected(const struct pl_syncer_host *h);  /* learners, now */
uint64_t pl_syncer_host_run_id(const struct pl_syncer_host *h);
/* Trained by all learners, as far as this shard has heard. */
uint64_t pl_syncer_host_tokens(struct pl_syncer_host *h);

/* An invitation, as text (home shard). seconds 0: for ever. */
enum pelago_status pl_syncer_host_invite(struct pl_syncer_host *h, enum pl_role role, uint64_t uses,
                                         uint64_t seconds, char out[static PL_TOKEN_TEXT_MAX],
                                         struct pl_error *err);

/* JSON (docs/status.md). all: with what is the operator's alone, where each learner calls from. */
enum pelago_status pl_syncer_host_status(struct pl_syncer_host *h, bool all, struct pl_buf *out);

/* The global parameters of this shard's fragments into a model's block; between two steps of the loop or, from a worker,
 * once finished() was called: nothing is merged after that. */
void pl_syncer_host_values(const struct pl_syncer_host *h, float *block);

#endif
