/* host/syncer_host_int.h - what the files of the syncer's host share. For them and their tests.
 *
 *   syncer_host.c     the step: event in, effects out; timers; stop
 *   syncer_start.c    create and start
 *   syncer_shard.c    how a shard other than home stays in touch with home
 *   syncer_conns.c    connections, frames, updates on their way down
 *   syncer_origin.c   version 0
 *   syncer_mirror.c   which folder may be the mirror; the small files in it
 *   syncer_values.c   values of fragments, pushes and their check
 *   syncer_merge.c    the merge and what follows from it; the same arithmetic for replay
 *   syncer_guard.c    what is too absurd to be believed: norms and claims
 *   syncer_heard.c    when learners were heard, for the next process
 *   syncer_trust.c    who has led another way than the others for long; what the merge rule remembers
 *   syncer_vault.c    the journal: records, snapshots
 *   syncer_recover.c  the journal read back; the mirror filled
 *   syncer_status.c   what status and top show
 *
 * Everything here belongs to the loop's thread, but for what a job names: a job owns what it holds, and values of a
 * published version are never written again, so workers read them freely.
 */
#ifndef PL_HOST_SYNCER_HOST_INT_H
#define PL_HOST_SYNCER_HOST_INT_H

#include "base/buf.h"
#include "base/pool.h"
#include "codec/pack.h"
#include "core/syncer.h"
#include "host/door_keeper.h"
#include "host/home.h"
#include "host/layout.h"
#include "host/rate.h"
#include "host/recorder.h"
#include "host/speed.h"
#include "host/syncer_host.h"
#include "host/work.h"
#include "optim/agree.h"
#include "optim/rule.h"
#include "store/dir_mirror.h"
#include "store/store.h"

#include <stdatomic.h>

enum {
    PL_GATE_HISTORY = 9,       /* accepted norms remembered per slice */
    PL_GATE_HISTORY_MIN = 5,   /* fewer say nothing */
    PL_SYNC_CONTRIBUTIONS = 48 /* more of them in a round: the journal gets the merged gradient */
};

/* ---- values ---- */

/* One version of a fragment; written by one merge, then read only. */
struct pl_values {
    atomic_uint refs;
    uint64_t count;
    float *theta, *momentum, *broadcast; /* [count] each, behind this struct */
};

/* Bytes with several owners, all on the loop's thread: an encoded update in ring and queues. */
struct pl_shared {
    uint32_t refs;
    uint32_t len;
    uint8_t bytes[];
};

/* What was thought of one contribution of a round; in the journal. */
struct pl_opinion {
    uint64_t identity;
    float sample; /* optim/agree.h; NAN: none */
    bool out;     /* it was not merged */
    bool fresh;   /* its learner had not been compared for long: it weighs no more than usual */
};

/* What a round's arithmetic rests on beside contributions and counters. */
struct pl_round_note {
    uint64_t clock_tokens; /* the run's clock when the merge began: places it in the outer schedule */
    double effective;      /* n of the contributions that were merged (optim/rule.h); 0: not known */
    bool closing;          /* the fragment's last */
    uint32_t count;
    struct pl_opinion *opinions; /* [count] in the order of contributors; owned */
};

/* A merge that is not yet published. */
struct pl_staged {
    bool active;
    uint64_t round, digest, theta_digest;
    uint64_t tokens; /* of all contributors */
    uint32_t contributors;
    struct pl_round_note note; /* of all contributors */
    struct pl_values *values;
    struct pl_shared *update;
    /* For the journal, one of the two: the encoded contributions, or the merged outer gradient. */
    uint8_t *parts[PL_SYNC_CONTRIBUTIONS];
    uint32_t part_count;
    float *delta; /* [layout.largest] */
};

struct pl_ring_slot {
    uint64_t version; /* the update leads to this version; 0 none */
    struct pl_shared *update;
};

struct pl_shard_fragment {
    uint32_t number;
    uint64_t count;      /* values */
    uint64_t push_bytes; /* of an encoded contribution, unpacked */
    uint64_t update_bytes;
    uint64_t version;
    uint64_t renewed; /* when it got this version: the shard's how many-th that was */
    struct pl_values *values;
    struct pl_staged staged;
    struct pl_ring_slot ring[PL_RING_MAX];
    double *own;                     /* [slices] how long the parameters are: of values */
    double *own_next;                /* ... of what is being merged or staged */
    float (*norms)[PL_GATE_HISTORY]; /* [slices] of accepted contributions */
    float roots[PL_GATE_HISTORY];    /* ... of their steps */
    float rates[PL_GATE_HISTORY];    /* ... learning rate when they came */
    uint32_t norm_count, norm_next;
    struct pl_rule_past past;
    uint32_t last_merged, last_live; /* contributors of its last round; those and who else was alive then */
};

/* A contribution, as far as it has arrived. */
struct pl_push_buf {
    uint8_t *bytes; /* as it comes; after the check unpacked */
    uint64_t size;
    uint64_t round;
    bool spoilt;              /* there was no memory for it */
    struct pl_verify *verify; /* the check under way; it has the bytes */
};

/* ---- connections ---- */

/* An update on its way down one bulk connection. */
struct pl_outgoing {
    struct pl_outgoing *next;
    struct pl_msg_update header;
    uint64_t there; /* chunks the learner has or that are sent */
    bool header_sent;
    struct pl_values *full;               /* the whole value; or */
    struct pl_shared *chain[PL_RING_MAX]; /* the updates one after the other */
    uint32_t chain_count;
};

enum pl_visitor_kind { PL_VISITOR_NEW, PL_VISITOR_CORE, PL_VISITOR_DOOR };

/* One connection. */
struct pl_visitor {
    struct pl_visitor *next, *prev;
    struct pl_syncer_host *h;
    struct pl_conn *conn;
    struct pl_peer peer;
    enum pl_visitor_kind kind;
    bool bulk;
    uint32_t number; /* CORE: the core's */
    struct pl_islander *member;
    uint64_t active_ns;       /* last frame */
    struct pl_rate questions; /* at the door */
    struct pl_outgoing *first, *last;
};

/* A vessel that leaks: claimed steps run in, time lets them out, and no more is believed than it holds. */
struct pl_pace {
    uint64_t owed_ns;  /* what was in it then */
    uint64_t spare_ns; /* time in which nothing was in it, of the longest silence; not yet used */
    uint64_t since_ns; /* differences only: it may be before the clock began */
    bool timed;        /* false: nothing was claimed yet in this life */
};

/* What is known of a learner's work on a fragment. */
struct pl_claim {
    struct pl_pace pace;                    /* of what was merged, and when that was last */
    uint64_t merging_round, merging_tokens; /* of the last merge it is in; counted once that is published */
};

/* What the host knows of an identity that the core does not need. */
struct pl_islander {
    uint64_t identity; /* 0: free */
    char address[PL_ADDRESS_MAX];
    uint32_t conns;
    uint64_t heard_ns, bytes_in, bytes_out; /* of frames, without TLS */
    uint64_t loss_micro, step_ns;
    struct pl_speed speed; /* looked at every second */
    bool leaves;           /* it has said goodbye */
    uint64_t joins, greetings;
    double merged_tokens;    /* its part of the shard's, in this life */
    uint64_t steps;          /* of its process, claimed in greetings and reports */
    struct pl_pace pace;     /* of its steps, by greetings and reports */
    uint64_t known_ns;       /* first heard in this life */
    struct pl_claim *claims; /* [fragment_count] */
    uint32_t refused;        /* contributions or claims not believed, lately */
    uint64_t refused_ns;     /* the last of them */
    uint64_t shut_until_ns;  /* it is not let in before */
};

/* What is remembered of how a learner's contributions agreed with those of others. */
struct pl_standing {
    uint64_t identity; /* 0: free */
    struct pl_trust trust;
    bool told;       /* the core that it is doubted */
    uint32_t waited; /* rounds since it was last turned away; not in the journal */
    uint64_t noted;  /* order of the last sample, to forget the oldest */
};

/* ---- the whole ---- */

struct pl_vault;
struct pl_heard;

struct pl_sync_counters {
    uint64_t lost, joins, fenced, refused, bad_pushes, store_failures;
    uint64_t bytes_in, bytes_out; /* of frames, without TLS; without the door's answers */
    uint64_t merge_ns, verify_ns, merges, verifies;
    uint64_t contributors, contributors_alive; /* of all merges: the sums of last_merged and last_live */
};

struct pl_syncer_host {
    struct pl_syncer_host_options o;
    struct pl_alloc alloc;
    char folder[PL_PATH_MAX], mirror_path[PL_PATH_MAX];
    char address[PL_ADDRESS_MAX], bound[PL_ADDRESS_MAX]; /* as learners dial it; where it listens */
    struct pl_posix_dir *dir; /* small files; the loop's thread, of shards other than home the announcer's */
    struct pl_posix_dir *journal_dir,
        *mirror_dir;               /* of the same folder, and the mirror: the journal's queue */
    struct pl_posix_dir *door_dir; /* of the same folder: the door's worker */
    struct pl_posix_dir
        *mirror_home; /* small files in the mirror; once it has begun, the door's worker, too */
    bool creating;    /* an empty journal is what we expect */
    struct pl_settings settings;
    uint64_t settings_digest;
    struct pl_layout layout;
    struct pl_manifest manifest;
    struct pl_credentials own;

    struct pl_sync_options options;
    void *memory;
    size_t memory_bytes;
    struct pl_syncer *core;
    struct pl_sync_fxs fxs;
    bool stepping, listening, stopping, finished, told_finished, told_failure;
    uint64_t steps;
    uint64_t start_ns, last_now_ns;
    uint64_t start_s; /* its date */
    uint64_t armed_ns;
    uint32_t sweeps;
    bool late;        /* the deadline is over, and what came before it is being heard */
    uv_timer_t timer; /* the core's deadline */
    uv_timer_t sweep; /* every second */
    uv_timer_t later; /* what the owner is told, outside of any step */
    bool running;     /* the timers are open, the loop is at work */
    uint32_t timers_open;
    struct pl_error failure; /* status OK: none */

    struct pl_listener *listener;
    struct pl_net_options net;
    struct pl_visitor **conns;   /* [options.conns_max] by the core's number */
    struct pl_visitor *visitors; /* all */
    uint32_t visitor_count;
    struct pl_islander *members; /* [options.learners_max] */
    struct pl_claim *claims;     /* [learners_max][claim_fragments], the members' */
    uint32_t claim_fragments;
    uint32_t frame_front, frame_bulk;
    uint8_t *chunk; /* [chunk_bytes] for a chunk that spans two updates */
    uint32_t chunk_bytes;
    const struct pl_msg *delivering;

    struct pl_shard_fragment *fragments; /* of this shard, by number */
    uint32_t fragment_count;
    uint64_t renewals;                /* versions made or read back, of all fragments */
    bool has_values;                  /* those of the fragments are of their versions */
    struct pl_push_buf *pushes;       /* [learner * fragment_count + local fragment] */
    uint64_t push_bytes;              /* held in them now */
    uint32_t jobs;                    /* verifications and merges under way */
    struct pl_pool *pool;             /* of merges; NULL: one thread */
    struct pl_work_queue merge_queue; /* one merge at a time: it has all the threads */
    struct pl_values *spare;          /* NULL, or memory for the next version */
    float *spare_delta;               /* NULL, or [layout.largest] */
    struct pl_packer *packers[8];
    uint32_t packer_count;

    struct pl_heard *heard;
    struct pl_standing *standings; /* [options.learners_max] */
    uint64_t noted;                /* opinions so far */
    bool untold;                   /* of some the core has not been told */

    struct pl_vault *vault;
    struct pl_door_keeper *door;
    struct pl_recorder *recorder;
    struct pl_announcer *announcer; /* shards other than home */
    struct pl_sync_counters counters;
    struct pl_rate strangers;         /* lines about them */
    uint64_t *guard_steps;            /* [learners_max] scratch of syncer_guard.c */
    uint64_t usual_step_ns, usual_ns; /* median step time of the living, 0: too few; when it was looked at */
    uint64_t value_tokens_hi, value_tokens_lo; /* sum of tokens x values merged, 128 bits */

    void (*stopped)(void *user);
    void *stopped_user;
};

/* syncer_host.c */
void pl_shost_step(struct pl_syncer_host *h, struct pl_sync_event *ev); /* stamps it */
void pl_shost_log(struct pl_syncer_host *h, const char *format, ...);   /* as pl_fmt */
/* For lines that strangers can cause: a few a second, and how many more there were. */
void pl_shost_log_stranger(struct pl_syncer_host *h, const char *format, ...);
void pl_shost_fail(struct pl_syncer_host *h, const struct pl_error *why);
void pl_shost_stop_check(struct pl_syncer_host *h); /* ends a stop when nothing is under way */
uint32_t pl_shost_local(const struct pl_syncer_host *h, uint32_t fragment);
struct pl_shard_fragment *pl_shost_fragment(struct pl_syncer_host *h, uint32_t number);

void pl_shost_free(struct pl_syncer_host *h); /* memory and files; no handle of the loop may be open */
void pl_shost_arm(struct pl_syncer_host *h);
void pl_shost_start_timers(struct pl_syncer_host *h);

/* syncer_shard.c: a shard that is not home tells home where it is, and renews its certificate there */
enum pelago_status pl_announcer_new(struct pl_syncer_host *h, struct pl_error *err);
void pl_announcer_tick(struct pl_syncer_host *h); /* every second */
bool pl_announcer_busy(const struct pl_syncer_host *h);
void pl_announcer_free(struct pl_syncer_host *h);

/* syncer_status.c */
void pl_shost_look(struct pl_syncer_host *h); /* every second: how fast everybody is */

/* syncer_conns.c */
enum pelago_status pl_shost_listen(struct pl_syncer_host *h, struct pl_error *err);
void pl_shost_send(struct pl_syncer_host *h, uint32_t number, const struct pl_msg *msg);
void pl_shost_close(struct pl_syncer_host *h, const struct pl_sync_effect *fx);
void pl_shost_deliver(struct pl_syncer_host *h, const struct pl_sync_effect *fx);
void pl_shost_sweep(struct pl_syncer_host *h);   /* connections that say nothing */
void pl_shost_dismiss(struct pl_syncer_host *h); /* LEAVING to everybody */
struct pl_islander *pl_shost_member(struct pl_syncer_host *h, uint64_t identity); /* NULL: not known */
void pl_visitor_refuse(struct pl_visitor *g, enum pl_reason reason, const char *text);
void pl_visitor_drop(struct pl_visitor *g);                /* frees it; its connection is closed or gone */
void pl_visitor_answered(struct pl_visitor *g, bool good); /* by the door, after a while; false: refused */

/* syncer_origin.c */
enum pelago_status pl_origin_tell(struct pl_syncer_host *h,
                                  struct pl_error *err); /* the digests of version 0, to core and recorder */
bool pl_origin_fill(struct pl_syncer_host *h);           /* its values; false: no memory */

/* syncer_values.c */
struct pl_values *pl_values_new(const struct pl_alloc *alloc, uint64_t count);
struct pl_values *pl_values_keep(struct pl_values *v);
void pl_values_drop(struct pl_values *v, const struct pl_alloc *alloc); /* NULL is fine; from any thread */
/* Large blocks are used again: their pages cost as much as the arithmetic on them. */
struct pl_values *pl_shost_take_values(struct pl_syncer_host *h, uint64_t count);
void pl_shost_retire_values(struct pl_syncer_host *h, struct pl_values *v);
struct pl_shared *pl_shared_new(const struct pl_alloc *alloc, uint64_t len);
struct pl_shared *pl_shared_keep(struct pl_shared *s);
void pl_shared_drop(struct pl_shared *s, const struct pl_alloc *alloc);                  /* NULL is fine */
enum pelago_status pl_shost_values_init(struct pl_syncer_host *h, struct pl_error *err); /* without content */
void pl_shost_values_free(struct pl_syncer_host *h);
void pl_shost_set_ring(struct pl_syncer_host *h, struct pl_shard_fragment *f, uint64_t version,
                       struct pl_shared *update); /* takes it */
void pl_shost_keep(struct pl_syncer_host *h, const struct pl_sync_effect *fx);
void pl_shost_verify(struct pl_syncer_host *h, const struct pl_sync_effect *fx);
void pl_shost_discard(struct pl_syncer_host *h, const struct pl_sync_effect *fx);
struct pl_push_buf *pl_shost_push(struct pl_syncer_host *h, uint32_t learner, uint32_t fragment);
/* One of the few compressors; NULL: no memory. Given back when the job is done. */
struct pl_packer *pl_shost_take_packer(struct pl_syncer_host *h);
void pl_shost_give_packer(struct pl_syncer_host *h, struct pl_packer *p);

/* syncer_merge.c */

/* Everything one merge reads and writes; for a worker, or for replay. */
struct pl_round_work {
    const struct pl_layout *layout;
    const struct pl_settings *settings;
    const struct pl_alloc *alloc;
    struct pl_pool *pool; /* NULL: one thread */
    uint32_t fragment;
    uint64_t count;
    uint32_t contributor_count;
    const uint8_t *const *parts; /* [contributor_count] encoded, checked; of those that are merged */
    const uint64_t *tokens, *steps;
    const bool *fresh;      /* [contributor_count] */
    uint64_t version;       /* the new one */
    uint64_t clock_tokens;  /* of the run, when the merge began */
    uint64_t merged_tokens; /* of all contributions, also of those that are set aside */
    bool closing;
    const struct pl_rule_past *past;
    const struct pl_values *base;
    float *delta;             /* [count] gets the merged outer gradient */
    struct pl_values *result; /* theta, momentum; broadcast by pl_merge_update */
};
/* delta from the parts, and n of their weights (optim/rule.h). False: no memory. */
bool pl_merge_parts(const struct pl_round_work *m, double *effective);
/* theta and momentum of result from those of base and delta; finite where all of those are, and not too large. */
void pl_merge_outer(const struct pl_round_work *m);
/* broadcast of result = that of base + the decoded update. */
void pl_merge_apply_update(const struct pl_round_work *m, const uint8_t *encoded);

void pl_shost_merge(struct pl_syncer_host *h, const struct pl_sync_effect *fx);
void pl_shost_publish(struct pl_syncer_host *h, const struct pl_sync_effect *fx);
void pl_staged_release(struct pl_syncer_host *h, struct pl_shard_fragment *f);
void pl_shost_count_tokens(struct pl_syncer_host *h, uint64_t tokens, uint64_t values);

/* syncer_guard.c */

/* Fills norms[slices] of an encoded contribution; scratch holds PL_GUARD_PIECE values. For a worker. */
enum { PL_GUARD_PIECE = 16384 };
void pl_guard_norms(const struct pl_layout *l, uint32_t fragment, enum pl_codec codec, const uint8_t *bytes,
                    float *scratch, double *norms);
/* Fills own[slices] of a fragment's parameters; for a worker, or while nobody is served. */
void pl_guard_measure(const struct pl_layout *l, uint32_t fragment, const float *theta, double *own);
/* Are they believable for so many steps, beside those accepted lately? Then they are remembered. The sentence says why
 * not. */
bool pl_guard_norms_ok(struct pl_syncer_host *h, struct pl_shard_fragment *f, uint64_t steps,
                       const double *norms, struct pl_error *err);
/* Claims of steps against the time there was for them. */
void pl_guard_blame(struct pl_syncer_host *h, struct pl_islander *m); /* something of it was not believed */
bool pl_guard_claims_ok(struct pl_syncer_host *h, struct pl_islander *m, const struct pl_msg *msg,
                        uint64_t now_ns, struct pl_error *err);
/* So many steps of a learner's work on a fragment are being merged. */
void pl_guard_merged(struct pl_syncer_host *h, const struct pl_islander *m, struct pl_claim *c,
                     uint64_t steps);
uint64_t pl_guard_step_ns(struct pl_syncer_host *h); /* the usual step; 0: too few to say */

/* syncer_heard.c */

/* Reads what the process before wrote; a file that is no good is passed over. */
enum pelago_status pl_heard_new(struct pl_syncer_host *h, struct pl_error *err);
void pl_heard_free(struct pl_syncer_host *h);
void pl_heard_save(struct pl_syncer_host *h); /* begins to, unless it is being written */
/* When a learner that was not heard in this life was heard last, for differences; known: the journal knows it. */
uint64_t pl_heard_since(const struct pl_syncer_host *h, uint64_t identity, bool known);
uint64_t pl_heard_step_ns(const struct pl_syncer_host *h); /* the usual step before; 0: not known */

/* syncer_trust.c */

/* Memory for opinions on so many contributors. */
bool pl_note_init(struct pl_round_note *note, const struct pl_alloc *alloc, uint32_t count);
void pl_note_release(struct pl_round_note *note, const struct pl_alloc *alloc);
/* Who of them is not to be merged, by what is remembered; never half of the living or more. */
void pl_trust_judge(struct pl_syncer_host *h, struct pl_round_note *note);
/* Fills the samples of a round of encoded contributions, all of them; for a worker. live: learners that could have been
 * there: a minority says nothing. */
void pl_trust_compare(const struct pl_round_work *m, const uint8_t *const *all, uint32_t live,
                      struct pl_round_note *note);
/* The round is merged and durable, or was read back. */
void pl_trust_remember(struct pl_syncer_host *h, struct pl_shard_fragment *f,
                       const struct pl_round_note *note);
/* Is a learner that does not count to be turned away for a while? Its reports drive the clock. The sentence says why. */
bool pl_trust_ok(struct pl_syncer_host *h, uint64_t identity, struct pl_error *err);
void pl_trust_tell(struct pl_syncer_host *h); /* the core, of what has changed; outside of any step */
uint32_t pl_trust_doubted(const struct pl_syncer_host *h); /* learners that do not count, here or away */
/* What is remembered, for a snapshot. */
enum pelago_status pl_trust_save(const struct pl_syncer_host *h, struct pl_buf *out);
enum pelago_status pl_trust_load(struct pl_syncer_host *h, const uint8_t *bytes, size_t len);

/* syncer_mirror.c: each does nothing where there is no mirror, but for the note of a life, which our own folder has, too */

enum pelago_status pl_mirror_check(struct pl_syncer_host *h,
                                   struct pl_error *err); /* may it be overwritten? */
enum pelago_status pl_mirror_copy(struct pl_syncer_host *h, struct pl_error *err);
enum pelago_status pl_mirror_note_life(struct pl_syncer_host *h, struct pl_error *err); /* after BOOT */

/* syncer_vault.c */
enum pelago_status pl_vault_new(struct pl_syncer_host *h, struct pl_error *err);
void pl_vault_store(struct pl_syncer_host *h, const struct pl_sync_effect *fx);
enum pelago_status pl_vault_flush(struct pl_syncer_host *h,
                                  struct pl_error *err); /* before the loop runs: stores now, here */
bool pl_vault_busy(const struct pl_syncer_host *h);
void pl_vault_free(struct pl_syncer_host *h); /* closes the store; nothing may be under way */

/* What the journal looks like from outside; read on the loop's thread while the writer may be at work. */
struct pl_vault_view {
    uint64_t journal_bytes; /* appended in this life */
    uint64_t records, snapshots, failures;
    uint64_t syncs;     /* of the journal, for records; one may make several durable */
    uint64_t waiting;   /* records not yet durable */
    uint64_t oldest_ns; /* since when the oldest of them waits; 0 none */
    uint64_t sync_ns;   /* from asking to durable, running average */
    bool failing;
};
void pl_vault_view(const struct pl_syncer_host *h, struct pl_vault_view *out);

#endif
