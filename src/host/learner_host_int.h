/* host/learner_host_int.h - the learner's host as its own files see it.
 *
 *   learner_host.c     events in, effects out; the notes of the trainer's thread; the end
 *   learner_start.c    folder, identity, settings, data, trainer; what is there before the first event
 *   learner_link.c     connections, and the pushes that go over them
 *   learner_door.c     while it runs: a new certificate, the addresses of the shards
 *   learner_values.c   fragments: copy, encode, decode; learner_apply.c new values
 *   learner_keep.c     when to take a checkpoint, and of what
 *   learner_save.c     the checkpoint's file
 *   learner_line.c     a line of figures every ten seconds
 *
 * Everything here belongs to the loop's thread. Jobs on workers touch only what they hold: arrays of values
 * never change once made and live as long as somebody holds them, so an anchor can be replaced while a worker
 * still reads it.
 */
#ifndef PL_HOST_LEARNER_HOST_INT_H
#define PL_HOST_LEARNER_HOST_INT_H

#include "base/num.h"
#include "codec/pack.h"
#include "core/learner.h"
#include "core/manifest.h"
#include "host/home.h"
#include "host/learner_host.h"
#include "host/learner_trainer.h"
#include "host/data_choice.h"
#include "host/trouble.h"
#include "host/work.h"
#include "train/batches.h"
#include "train/dataset.h"

enum { PL_LHOST_PATH_MAX = PL_PATH_MAX };

/* Values of a fragment: counted, and not changed once they are complete. */
struct pl_vec {
    uint32_t refs; /* the loop's thread counts */
    uint64_t count;
    float at[];
};

/* A contribution, from the copy to its outcome. */
struct pl_lcopy {
    struct pl_job job; /* first */
    struct pl_learner_host *h;
    uint32_t fragment;
    uint64_t round;
    bool busy;      /* a worker or the trainer's thread has it */
    bool cancelled; /* nobody wants it any more: it goes when it is not busy */
    bool waits;     /* overtaken by the optimizer: again when the parameters stand */
    bool good;
    uint32_t tries;
    struct pl_steady_span *spans; /* one a slice, and the state */
    uint32_t span_count;
    struct pl_ltrainer_state state;
    struct pl_vec *snapshot, *left;   /* left: what the encoding lost, the next residual */
    struct pl_vec *anchor, *residual; /* as they were when the copy was asked for */
    uint8_t *bytes;                   /* encoded and packed */
    size_t bytes_cap, len;
    uint64_t digest;
    struct pl_order order; /* the copy at the boundary, where beside it was too slow */
};

/* An update on its way from bytes to values. */
struct pl_ldecode {
    struct pl_job job; /* first */
    struct pl_learner_host *h;
    uint32_t fragment;
    uint64_t version, digest;
    bool full, good;
    uint8_t *bytes;
    uint64_t len;
    struct pl_vec *anchor, *fresh;
};

/* A new value on its way into the parameters. */
struct pl_lapply {
    struct pl_order order; /* first */
    uint64_t version;
    struct pl_vec *fresh, *base;
    struct pl_vec *residual; /* the fragment's from then on; NULL: zero */
    /* Where it replaces what is there: the fragment at one moment, to be taken away. */
    struct pl_learner_host *h;
    struct pl_job job;
    struct pl_vec *copy;
    struct pl_steady_span *spans;
    uint32_t span_count;
    struct pl_ltrainer_state state;
    bool copied;
};

struct pl_lfragment {
    struct pl_vec *anchor;
    struct pl_vec *residual; /* NULL: zero */
    struct pl_lcopy *copy;   /* the pending contribution; NULL: none */
    bool header_due;         /* ... while it is in the shard's queue */
    struct pl_msg_push header;
    uint64_t there;  /* chunks the syncer has or that are sent */
    uint8_t *update; /* as far as it has arrived */
    uint64_t update_bytes;
    struct pl_vec *fresh; /* decoded, waits for APPLY */
    bool applying;
    struct pl_lapply apply; /* while it is: a value that has come must not fail for want of memory */
    uint64_t failed_round, failed_version; /* for want of memory; the core is to hear of it */
    bool failed_decode;
};

struct pl_llink {
    struct pl_learner_host *h;
    uint32_t shard;
    enum pl_link link;
    struct pl_conn *conn; /* NULL: none */
    bool up;
    bool failed;     /* it could not even be dialled: CLOSED is due */
    bool asking;     /* waits for the shard's address */
    bool report_due; /* the newest REPORT, when there is room again */
    struct pl_msg report;
};

struct pl_lshard {
    struct pl_llink links[2];
    char address[PL_ADDRESS_MAX]; /* "": not known */
    bool live;                    /* as was last said */
    struct pl_trouble trouble;    /* of the control connection */
    uint32_t *queue;              /* fragments to send, in order */
    uint32_t queue_len;
};

/* A checkpoint in the making. */
struct pl_lkeep {
    struct pl_job job; /* first */
    struct pl_learner_host *h;
    bool due, busy, good;
    uint32_t tries;
    uint32_t attempts;       /* of this process */
    uint64_t write_ns;       /* that the last file took */
    uint64_t last_ns;        /* when the last one was begun */
    uint64_t number;         /* of the parameters it is of */
    uint64_t told, told_now; /* steps of this process in the last one written, and in this one */
    uint32_t complaints;
    bool *there; /* reading: [fragments] whether it has a residual */
    struct pl_order order;
    struct pl_buf core;
    struct pl_vec **anchors, **residuals; /* held meanwhile */
    float *theta;
    struct pl_ltrainer_state state;
    struct pl_error err;
};

/* A question to the home shard under way; learner_door.c. */
struct pl_ldoor {
    struct pl_job job; /* first */
    struct pl_learner_host *h;
    bool busy, asking, ask_due; /* asking: for addresses, else for a certificate */
    uint64_t life_s;            /* of the certificate when we got it, as far as we know */
    bool renewed;               /* by this process */
    uint32_t sent_away; /* times in a row that home took our connection and said nothing but goodbye */
    uint64_t tried_ns;
    struct pl_credentials own;
    struct pl_buf answer;
    enum pelago_status status;
    struct pl_error err;
};

struct pl_learner_host {
    struct pl_learner_host_options o;
    struct pl_alloc alloc;
    char folder[PL_LHOST_PATH_MAX];
    struct pl_posix_dir *dir;  /* the loop's */
    struct pl_posix_dir *disk; /* for jobs of the disk queue */
    /* who and what */
    struct pl_credentials own;
    char address[PL_ADDRESS_MAX];
    struct pl_settings settings;
    struct pl_data_choice choice; /* what it trains on */
    struct pl_buf tokenizer;
    struct pl_layout layout;
    struct pl_manifest manifest;
    struct pl_dataset *data;
    struct pl_batches batches;
    bool has_batches;
    struct pl_trainer *trainer; /* NULL: a stub */
    float *stub_theta;
    uint64_t step_tokens, own_sequence;
    /* the trainer's thread */
    struct pl_ltrainer lt;
    bool has_lt;
    bool stepping;                    /* there is a thread, or the stub's timer runs */
    uint64_t number;                  /* of the last note */
    uint64_t told;                    /* inner steps of this process the core knows of */
    uint64_t base_steps, base_tokens; /* of the core before the first of them */
    struct pl_ltrainer_unit units[8]; /* handed over and not used up, oldest first */
    uint32_t unit_count;
    uint64_t unit_tokens, unit_told; /* used, and of that told to the core */
    double loss;
    struct pl_average step_ns;
    /* the core */
    void *memory;
    size_t memory_bytes;
    struct pl_learner *core;
    struct pl_learn_fxs fxs;
    const struct pl_msg *delivering;
    uint64_t now_ns;
    bool warm; /* from a checkpoint */
    bool in_step;
    bool ready_due, refuse_due; /* the manifest came: it is ours, or is not */
    struct {
        bool on;    /* until the first step */
        bool ahead; /* the run is: its values come first */
        bool some;  /* has come, or a part of one */
        uint64_t last_ns;
    } awaited; /* the run's values, before the first step */
    uint64_t core_steps;
    uint64_t *origin_digests;
    /* connections */
    struct pl_net_options net[2]; /* by link */
    struct pl_bucket bucket;
    struct pl_lshard *shards; /* [settings.shards] */
    uint64_t bytes_up, bytes_down;
    struct pl_ldoor *door;
    /* values */
    struct pl_lfragment *fragments; /* [layout.fragment_count] */
    uint32_t copies_waiting;
    bool failures_due;
    uint32_t applies; /* handed over and not back */
    struct pl_work_queue encoding, decoding, disking;
    struct pl_packer *packer_up, *packer_down; /* of the encoding and the decoding queue */
    struct pl_lkeep keep;
    uint64_t line_ns;
    bool line_busy;
    /* the loop */
    uint32_t jobs;
    uint32_t handles; /* open */
    uv_async_t bell;
    uv_timer_t deadline, tick, stub, leave;
    uint64_t armed_ns;
    bool late; /* the deadline is over, and what came before it is being heard */
    /* the end */
    uint64_t quit_ns; /* when it was asked to leave */
    bool quitting, hurried, left, over, ending, farewell, last_line, closing, closed, told_done, free_asked;
    struct pl_error why;
};

/* learner_host.c */
void pl_lhost_step(struct pl_learner_host *h, const struct pl_learn_event *ev);
void pl_lhost_drain(struct pl_learner_host *h); /* all notes there are */
void pl_lhost_ring(struct pl_learner_host *h);  /* come back to it in the loop's next turn */
void pl_lhost_log(struct pl_learner_host *h, const char *format, ...);
/* queue NULL: at once. job->done must call pl_lhost_job_done last. */
void pl_lhost_job(struct pl_learner_host *h, struct pl_work_queue *queue, struct pl_job *job);
void pl_lhost_job_done(struct pl_learner_host *h);
void pl_lhost_leave(struct pl_learner_host *h); /* says goodbye, once */

/* learner_start.c */
/* Parameters, anchors and moments as at the very beginning. */
void pl_lhost_begin_anew(struct pl_learner_host *h);
enum pelago_status pl_lhost_prepare(struct pl_learner_host *h, struct pl_error *err);
void pl_lhost_release(struct pl_learner_host *h); /* what prepare made, and the host */

/* learner_link.c */
void pl_lhost_connect(struct pl_learner_host *h, const struct pl_learn_effect *fx);
void pl_lhost_disconnect(struct pl_learner_host *h, const struct pl_learn_effect *fx);
void pl_lhost_send(struct pl_learner_host *h, const struct pl_learn_effect *fx);
void pl_lhost_push(struct pl_learner_host *h, const struct pl_learn_effect *fx);
void pl_lhost_unqueue(struct pl_learner_host *h, uint32_t fragment);
void pl_lhost_links_later(struct pl_learner_host *h);     /* dials that failed at once */
void pl_lhost_links_addressed(struct pl_learner_host *h); /* addresses have come, or have not */
void pl_lhost_links_close(struct pl_learner_host *h);

/* learner_door.c */
bool pl_lhost_door_init(struct pl_learner_host *h);
void pl_lhost_door_release(struct pl_learner_host *h);
void pl_lhost_door_addresses(struct pl_learner_host *h); /* asks for them, if it is not at it */
void pl_lhost_door_tick(struct pl_learner_host *h);
/* The control connection to home is gone; sent_away: home took it and did not let us in. */
void pl_lhost_door_closed(struct pl_learner_host *h, bool sent_away);

/* learner_values.c */
struct pl_vec *pl_vec_new(struct pl_learner_host *h, uint64_t count); /* one reference; NULL: no memory */
struct pl_vec *pl_vec_hold(struct pl_vec *v);                         /* NULL is fine */
void pl_vec_drop(struct pl_learner_host *h, struct pl_vec *v);        /* NULL is fine */
void pl_lhost_copy(struct pl_learner_host *h, const struct pl_learn_effect *fx);
void pl_lhost_copies_again(struct pl_learner_host *h);
void pl_lhost_cancel(struct pl_learner_host *h, const struct pl_learn_effect *fx);
void pl_lhost_keep_chunk(struct pl_learner_host *h, const struct pl_learn_effect *fx);
void pl_lhost_decode(struct pl_learner_host *h, const struct pl_learn_effect *fx);
void pl_lhost_forget(struct pl_learner_host *h, uint32_t fragment);
void pl_lhost_copy_free(struct pl_lcopy *c);
/* What a copy of a fragment reads: its slices, and the counters that belong to them. NULL: no memory. */
struct pl_steady_span *pl_lhost_spans(struct pl_learner_host *h, uint32_t fragment, float *to,
                                      struct pl_ltrainer_state *state, uint32_t *count);
/* An order is back: carried out, at the step the core has just been told of. */
void pl_lhost_order_back(struct pl_learner_host *h, struct pl_order *order);
void pl_lhost_values_later(struct pl_learner_host *h);
void pl_lhost_values_await(struct pl_learner_host *h);
void pl_lhost_value_comes(struct pl_learner_host *h, uint32_t fragment); /* any number: it is the peer's */
bool pl_lhost_values_are_here(struct pl_learner_host *h); /* true once: the first step may begin */
void pl_lhost_values_release(struct pl_learner_host *h);

/* learner_apply.c */
void pl_lhost_apply(struct pl_learner_host *h, const struct pl_learn_effect *fx);
void pl_lhost_applied(struct pl_learner_host *h, struct pl_lapply *a); /* its order is back */

/* learner_keep.c */
void pl_lhost_keep_release(struct pl_learner_host *h); /* memory that no checkpoint under way has */
void pl_lhost_keep_look(struct pl_learner_host *h);    /* begins when it is due and possible */
void pl_lhost_keep_copied(struct pl_learner_host *h, bool good);
enum pelago_status pl_lhost_restore(struct pl_learner_host *h, struct pl_error *err);

/* learner_save.c: one file. */
struct pl_lsave {
    const struct pl_alloc *alloc;
    const struct pl_layout *layout;
    struct pl_trainer *trainer; /* moments */
    uint64_t run_id, identity, manifest_digest;
    struct pl_steady *steady;        /* writing: of the moments */
    struct pl_ltrainer_state *state; /* in and out as all that follows */
    struct pl_buf *core;             /* reading: appended */
    float *theta;                    /* the whole block */
    struct pl_vec *const *anchors;   /* [fragments] */
    struct pl_vec **residuals;       /* [fragments]; writing: NULL is zero; reading: none is NULL */
    bool *residual_there;            /* reading: [fragments] whether the file has it */
};
#define PL_LSAVE_NAME "checkpoint"
#define PL_LSAVE_OLD "checkpoint.old"
/* Writes a new file and then lets it take the place of the one there is, which becomes the old one. */
enum pelago_status pl_lsave_write(const struct pl_lsave *s, struct pl_dir dir, struct pl_error *err);
/* NOTFOUND, CORRUPT, INVALID (of another run) with a sentence; what is read to is then filled in part. */
enum pelago_status pl_lsave_read(const struct pl_lsave *s, struct pl_dir dir, const char *name,
                                 struct pl_error *err);

/* learner_line.c */
void pl_lhost_line(struct pl_learner_host *h, bool last);

#endif
