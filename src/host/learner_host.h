/* host/learner_host.h - one learner on a real machine: core/learner with sockets, a trainer and a folder.
 *
 *   learner_host.c     events in, effects out; the end
 *   learner_start.c    folder, identity, settings, data, trainer
 *   learner_link.c     connections and pushes; learner_door.c certificate and addresses
 *   learner_values.c   fragments: copy, encode, decode; learner_apply.c new values into the parameters
 *   learner_trainer.c  the trainer's thread: steps that never wait
 *   learner_keep.c     its own checkpoint: when and of what; learner_save.c the file
 *   learner_line.c     figures, a line every ten seconds
 *
 * Two threads matter. The trainer's runs steps; between it and the loop's thread there are only atomics and
 * rings, so neither ever waits for the other. Parameters stand still while forward and backward run: that is
 * when workers copy fragments, guarded by a sequence number; a copy that the optimizer overtook is taken
 * again. New values are added at the beginning of the optimizer phase, which packs all weights anyway.
 */
#ifndef PL_HOST_LEARNER_HOST_H
#define PL_HOST_LEARNER_HOST_H

#include "host/settings.h"
#include "net/conn.h"

struct pl_learner_host;

struct pl_learner_host_options {
    uv_loop_t *loop;              /* borrowed */
    const struct pl_alloc *alloc; /* borrowed; the system's */
    const char *folder;           /* credentials, settings, checkpoint; made where missing */
    const char *token;            /* NULL: the folder has credentials */
    const char *local_data;       /* NULL, or private data: no work units, no text leaves; */
    const char *data;    /* or where this machine has the run's; both NULL: as before (host/data_choice.h) */
    uint32_t threads;    /* 0: all processors */
    const char *backend; /* NULL: the best */
    uint64_t up_bytes_per_s; /* 0: no limit */
    uint32_t streams;       /* that carry the bulk connection; 0: several on a long way, one on a short one */
    uint64_t pace_ns;       /* a step takes at least this long */
    double speed;           /* 1; 0.5 makes every step take twice as long */
    uint64_t checkpoint_ns; /* between two of its own checkpoints; 0: seconds at first, later 60 s */
    uint64_t stub_step_ns; /* not 0: no trainer, steps by the clock and made-up changes; for tests of scale */
    bool stub_dense;       /* ... of all values, by amounts that no encoding makes short; else of a few */
    /* NULL, or sees every frame of the protocol before it is encrypted and after it was decrypted. */
    void (*capture)(void *user, bool sent, const void *bytes, size_t len);
    void (*log)(void *user, const char *line);
    void (*done)(void *user,
                 const struct pl_error *why); /* the run is complete (OK), or it may not take part */
    void *user;
};

/* Enrols where needed, gets settings and tokenizer (blocking, with patience), builds the trainer, begins. */
enum pelago_status pl_learner_host_start(struct pl_learner_host **out,
                                         const struct pl_learner_host_options *o, struct pl_error *err);
/* SIGTERM: stop after the step under way, push nothing more, save, say goodbye. done() within a second, whatever the
 * step and the disk take: what is not done by then is given up. A checkpoint is whole or not there; where the last one is
 * not, the one before it stays, and what was learned since and is not merged is lost. */
void pl_learner_host_quit(struct pl_learner_host *h);
/* After done(): nothing of it runs any more. False after a quit that gave up a step or a checkpoint: free waits for
 * them, and a process that wants to end leaves h as it is and calls _exit. */
bool pl_learner_host_idle(const struct pl_learner_host *h);
void pl_learner_host_free(struct pl_learner_host *h); /* after done(); NULL is fine */

/* What the trainer did and whether anything of ours held it up. Times in nanoseconds. */
struct pl_learner_host_view {
    uint64_t identity, steps, tokens;
    double loss;
    uint64_t step_ns;           /* running average */
    uint64_t steps_timed;       /* in the next four */
    uint64_t blocked_ns;        /* in this module, but for pacing and for what others took who were given the
                                 processor meanwhile; learner.jsonl has it with that, too */
    uint64_t blocked_max_ns;    /* the longest of one step */
    uint64_t blocked_p999_ns;   /* 99.9% of steps had less */
    uint64_t blocked_above_1ms; /* so many steps had more than that */
    uint64_t trained_ns;        /* since the first step */
    uint64_t bytes_up, bytes_down;
    bool live; /* in touch with the home shard */
};
void pl_learner_host_view(struct pl_learner_host *h, struct pl_learner_host_view *out);
/* The version of a fragment that its work builds on, and its digest; false: there is no such fragment. */
bool pl_learner_host_version(const struct pl_learner_host *h, uint32_t fragment, uint64_t *version,
                             uint64_t *digest);

#endif
