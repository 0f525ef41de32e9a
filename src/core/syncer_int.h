/* core/syncer_int.h - the shard's state and the seams between its files. For core/syncer*.c and their tests.
 *
 *   syncer.c          memory, dispatch, timers, deadline, views
 *   syncer_session.c  connections, HELLO/JOIN/ATTACH, leases, loss of a learner
 *   syncer_slots.c    who is known: one slot per identity, and forgetting
 *   syncer_clock.c    reports, the tick, the token clock, leads and strides, when to pull
 *   syncer_push.c     one learner's push of one fragment, until it is held
 *   syncer_round.c    pulls, quorum, grace, merge, store, publish
 *   syncer_deliver.c  updates on their way down
 *   syncer_ledger.c   work units
 *   syncer_close.c    the end of the budget
 *   syncer_save.c     durable state: save, load, replay
 *   syncer_check.c    invariants seen from inside
 *
 * Fragments are counted here by their place in this shard (local number `f`), learners by slot `m`.
 */
#ifndef PL_CORE_SYNCER_INT_H
#define PL_CORE_SYNCER_INT_H

#include "base/heap.h"
#include "base/num.h"
#include "core/syncer.h"

enum conn_kind { CONN_UNUSED, CONN_NEW, CONN_CONTROL, CONN_BULK };

struct conn {
    enum conn_kind kind;
    uint32_t learner; /* slot, once greeted */
    uint64_t identity;
};

/* A learner's push of one fragment, seen from here. */
enum push_state {
    PUSH_NONE,
    PUSH_PULLED,    /* asked for */
    PUSH_RECEIVING, /* header accepted, chunks arriving */
    PUSH_VERIFYING, /* complete, being checked by the host */
    PUSH_HELD,      /* good, waiting for the merge */
    PUSH_MERGING,   /* in a merge that is not yet durable */
    PUSH_STATES
};

/* One learner's view of one fragment. */
struct cell {
    uint64_t last_merged; /* round; 0 none. Durable. */
    uint64_t acked;       /* version it holds; PL_NONE64: not of our history, or not known */
    uint64_t sending;     /* version of the update on its way; PL_NONE64 none */
    uint64_t sent_bytes;  /* ... and its size */
    uint64_t round;       /* round of the push below */
    uint64_t pulled_ns;
    uint64_t steps, tokens, bytes, digest, mask; /* from the PUSH header; mask of chunks here */
    uint8_t push;                                /* enum push_state */
    uint8_t counted;                             /* is one of its fragment's `waiting` */
    uint8_t deferred;                            /* pull wanted while the fragment was busy */
    uint8_t full;                                /* send the whole value next, not a chain */
    uint8_t reset;                               /* what the learner holds is not of our history */
    uint8_t stranger; /* its identity may have been forgotten: nobody knows what of its work was merged */
    uint8_t hurried;  /* pulled late by our own fault: being late says nothing about its lead */
    uint8_t met;      /* since JOIN it has had a version that was new then: it is no newcomer */
};

enum learner_state { LEARNER_FREE, LEARNER_AWAY, LEARNER_GREETED, LEARNER_LIVE };

struct learner {
    uint64_t identity, incarnation, nonce;
    enum learner_state state;
    uint32_t control, bulk; /* connections, PL_NONE32 none */
    uint64_t heard_ns, told_ns;
    uint64_t control_lost_ns; /* when it was lost without a word; 0: it is here, or said goodbye */
    struct pl_average gap;    /* between two messages */
    struct pl_average step;   /* duration of an inner step */
    struct pl_average lead;   /* from PULL to the push being held */
    uint64_t steps, tokens, past_tokens, report_ns;
    uint64_t unit, cursor;             /* from the last report */
    uint32_t units[PL_UNITS_HELD_MAX]; /* places in the table of open units, PL_NONE32 none */
    uint64_t due;                      /* tick of the next round it will be pulled for */
    uint32_t stride, good_rounds;
    uint32_t failed_stride, failed_trials; /* what was too much when it was tried, and how often; 0 none */
    uint64_t changed_ns;                   /* the stride, last */
    uint64_t stride_ns;                    /* since when it is judged: the line is free of what came before */
    uint32_t draining;                     /* updates still on their way from before the change */
    uint32_t owing;                        /* pulls_out from before it */
    uint64_t down_ns;      /* sending: since when the line is at work on the update it carries now */
    uint64_t down_busy_ns; /* that it was at work since stride_ns */
    uint64_t down_bytes;   /* and what it carried in that time */
    uint64_t up_ns, up_busy_ns;
    uint32_t up_count;  /* the same of pushes */
    uint32_t up_slow;   /* the last so many took too long for the stride */
    bool probing;       /* the stride was halved, and whether that is too much is not known yet */
    uint32_t pulls_out; /* cells PULLED, RECEIVING or VERIFYING */
    uint32_t receiving; /* cells RECEIVING or VERIFYING */
    uint32_t sending;   /* updates on their way */
    uint32_t behind;    /* cells whose acked version is not the current one */
    uint64_t rounds_pulled, rounds_merged;
    bool reported; /* an inner step since the last tick */
    bool local_data, finishing, told_finish, backlog;
    bool wants;   /* a work unit, and there was none to give */
    bool awaited; /* known from the journal, and has not joined in this life */
    bool doubted; /* its steps drive no clock; not stored, the host says it again */
};

enum round_state {
    ROUND_IDLE,
    ROUND_GATHER,  /* pulls went out ahead of the due tick */
    ROUND_OPEN,    /* due, short of the quorum */
    ROUND_GRACE,   /* quorum there, waiting a little for more */
    ROUND_MERGING, /* with the data plane */
    ROUND_STORING, /* with the store */
    ROUND_STATES
};

struct ring_entry {
    uint64_t bytes;  /* encoded update that leads to the version */
    uint64_t digest; /* of the version before it */
};

struct fragment {
    uint32_t number; /* in the manifest */
    uint32_t offset; /* it is due at the ticks that leave this when divided by the period */
    uint64_t full_bytes, push_bytes_max;
    uint64_t version, digest;
    enum round_state state;
    uint64_t round, round_tick;
    uint64_t deferred_tick; /* pulls wanted while busy are for this tick; 0 none */
    uint32_t waiting;       /* live learners whose push may still come */
    uint32_t held;
    uint64_t due_ns, merge_ns, grace_until_ns;
    uint64_t new_digest, new_bytes, store_seq; /* of the merge being stored */
    bool store_again;                          /* the store failed; ask again */
    bool closing, closed;                      /* its closing round is on, is over */
    struct ring_entry ring[PL_RING_MAX];       /* version v's update stands at (v mod PL_RING_MAX) */
    uint32_t ring_count;
};

/* A unit in somebody's hands, or given back half-used. Free entries have unit == PL_NONE64. */
struct open_unit {
    uint64_t unit, cursor;
    uint32_t owner;     /* slot, PL_NONE32 none */
    uint64_t given;     /* grows with every giving: a learner finishes its units in this order */
    uint64_t recorded;  /* identity in its last record, 0 none; the record need not be durable yet */
    uint64_t store_seq; /* not 0: being recorded */
    bool store_again;
    bool tell;  /* given, and to be told to the owner when durable */
    bool ended; /* its last record says that it is finished */
};

struct pl_syncer {
    const struct pl_msg_manifest *manifest; /* borrowed */
    uint64_t manifest_digest;
    uint32_t shard, learners_max, conns_max, fragment_count;
    uint32_t quorum, overlap, period, units_max;

    uint64_t now;
    uint64_t epoch, incarnations, store_seq;
    enum pl_phase phase;
    bool listening;
    bool reborn;    /* there was a life before this one */
    bool forgot;    /* some identity had to make room for another. Durable. */
    bool more_work; /* the last step ran out of room for effects */
    bool ending;    /* an operator said so; learners carry it over a crash */
    uint64_t boot_seq, done_seq;
    bool boot_again, done_again, finished_said;
    uint32_t stores_wanted; /* how many ..._again flags are set, here, in fragments and in units */
    uint64_t retry_ns;      /* stores are asked from then on; pushed back when one fails */

    uint64_t tick, tick_ns, interval;
    uint64_t interval_ns; /* when the interval was last worked out */
    uint32_t
        stretch; /* the K-th smallest stride, at least 1, as of the last tick: a fragment has a round every so many periods */
    uint32_t reporters, live, known, finishing;
    struct pl_average quorum_wait, sync_time;
    uint64_t clock_floor, clock_sum,
        forgotten_tokens; /* sum: of all known learners that are not doubted, and of those forgotten */
    uint64_t rate, rate_ns, rate_tokens;
    uint64_t rounds_merged, rounds_void, rounds_busy;
    uint64_t rounds_graced, grace_late_ns; /* merged without whoever was missing; the latest by so much */
    uint64_t replayed;                     /* round records, in recovery: stands for the time in heard_ns */
    uint64_t next_unit, units_given;
    uint32_t closing_next, closing_open;
    uint32_t awaited;    /* learners that are */
    uint64_t settled_ns; /* no closing round and no end before: who was here has had time to call again */
    uint64_t agreed_ns;  /* since when most live learners say that the run ends; PL_NEVER */
    uint64_t boot_ns;

    uint32_t announce_head, announce_len; /* FIFO of fragments being announced to every learner */

    struct pl_heap timers; /* ns: leases [0, n), greetings [n, n + conns), grace [n + conns, n + conns + P) */
    struct pl_heap pulls;  /* learners, in ticks with PL_TICK_BITS of fraction */

    struct conn *conns;       /* [conns_max] */
    struct learner *learners; /* [learners_max] */
    uint32_t *by_identity;    /* [learners_max], the first `known` are slots in ascending order of identity */
    struct fragment *fragments;          /* [fragment_count] */
    struct cell *cells;                  /* [learners_max][fragment_count] */
    uint32_t *due_fragment;              /* [period] -> local number or PL_NONE32 */
    uint32_t *local_of;                  /* [manifest fragments] -> local number or PL_NONE32 */
    uint32_t *announce;                  /* [fragment_count] ring */
    struct open_unit *units;             /* [units_max] */
    uint64_t *sort_scratch;              /* [learners_max] */
    struct pl_contributor *contributors; /* [learners_max], one record a step */
    uint32_t contributors_used;
    struct pl_record record; /* of the STORE effect of this step */
    bool record_used;
    uint8_t *item_scratch; /* [fragment_count * PL_ITEM_PARTIAL_BYTES] */
};

enum { PL_TICK_BITS = 20 };
#define PL_TICK_ONE (UINT64_C(1) << PL_TICK_BITS)

static inline struct cell *cell_of(const struct pl_syncer *s, uint32_t m, uint32_t f)
{
    return &s->cells[(size_t)m * s->fragment_count + f];
}

/* Of all its processes. A peer may claim what it likes: sums of claims saturate. */
static inline uint64_t learner_tokens(const struct learner *l)
{
    return pl_add_sat(l->tokens, l->past_tokens);
}

/* What it adds to the run's clock. */
static inline uint64_t counted_tokens(const struct learner *l)
{
    return l->doubted ? 0 : learner_tokens(l);
}

static inline bool is_home(const struct pl_syncer *s)
{
    return s->shard == 0;
}

/* syncer.c */
struct pl_sync_effect *pl_sync_emit(struct pl_sync_fxs *out, enum pl_sync_fx kind);
void pl_sync_send(struct pl_sync_fxs *out, uint32_t conn, const struct pl_msg *msg);
void pl_sync_trace(struct pl_sync_fxs *out, enum pl_trace_code code, const uint64_t arg[static 4]);
#define TRACE(out, code, ...) pl_sync_trace((out), PL_TRACE_SYNC_##code, (const uint64_t[4]){__VA_ARGS__})
void pl_sync_store_want(struct pl_syncer *s,
                        bool *again); /* sets the flag; STORE follows when there is room */
uint64_t pl_sync_store(struct pl_syncer *s, bool *again, const struct pl_record *r, struct pl_sync_fxs *out);
uint32_t pl_sync_lease_timer(const struct pl_syncer *s, uint32_t m);
uint32_t pl_sync_greet_timer(const struct pl_syncer *s, uint32_t conn);
uint32_t pl_sync_grace_timer(const struct pl_syncer *s, uint32_t f);

/* syncer_session.c */
void pl_sync_opened(struct pl_syncer *s, uint32_t conn, uint64_t identity);
void pl_sync_closed(struct pl_syncer *s, uint32_t conn, struct pl_sync_fxs *out);
void pl_sync_bad_bytes(struct pl_syncer *s, uint32_t conn, const struct pl_error *error,
                       struct pl_sync_fxs *out);
void pl_sync_message(struct pl_syncer *s, uint32_t conn, const struct pl_msg *msg, struct pl_sync_fxs *out);
void pl_sync_close(struct pl_syncer *s, uint32_t conn, enum pl_reason reason, struct pl_sync_fxs *out,
                   const char *format, ...);
/* The local number of a fragment a message names; false: not ours, the learner is dropped. */
bool pl_sync_owned(struct pl_syncer *s, uint32_t m, uint32_t number, const char *name, uint32_t *f,
                   struct pl_sync_fxs *out);
void pl_sync_lease_expired(struct pl_syncer *s, uint32_t m, struct pl_sync_fxs *out);
void pl_sync_greet_expired(struct pl_syncer *s, uint32_t conn, struct pl_sync_fxs *out);
void pl_sync_drop_learner(struct pl_syncer *s, uint32_t m, enum pl_reason reason, struct pl_sync_fxs *out,
                          const char *format, ...);
/* Its place in by_identity, or where it would stand. */
uint32_t pl_sync_place_of(const struct pl_syncer *s, uint64_t identity);
uint32_t
pl_sync_slot_for(struct pl_syncer *s, uint64_t identity,
                 struct pl_sync_fxs *out); /* finds or makes; PL_NONE32 when full; out NULL in replay */
uint64_t pl_sync_heartbeat(const struct pl_syncer *s);

/* syncer_clock.c */
void pl_sync_report(struct pl_syncer *s, uint32_t m, const struct pl_msg_report *r, struct pl_sync_fxs *out);
bool pl_sync_tick_ready(const struct pl_syncer *s);
void pl_sync_tick(struct pl_syncer *s, struct pl_sync_fxs *out);
uint64_t pl_sync_tick_due_ns(const struct pl_syncer *s);
void pl_sync_doubt(struct pl_syncer *s, uint64_t identity, bool doubted);
uint64_t pl_sync_clock(const struct pl_syncer *s);
void pl_sync_update_interval(struct pl_syncer *s);
void pl_sync_schedule(struct pl_syncer *s, uint32_t m, uint64_t after_tick);
/* Tells a learner the clock now, which is otherwise the answer to a report. */
void pl_sync_tell_clock(struct pl_syncer *s, uint32_t m, struct pl_sync_fxs *out);
/* Does this learner take part in the fragment's round at that tick; in its next one? */
bool pl_sync_takes_part(const struct pl_syncer *s, uint32_t m, uint32_t f, uint64_t due);
bool pl_sync_takes_next(const struct pl_syncer *s, uint32_t m, uint32_t f);
bool pl_sync_pull_ready(const struct pl_syncer *s);
void pl_sync_pull_next(struct pl_syncer *s, struct pl_sync_fxs *out);
uint64_t pl_sync_pull_due_ns(const struct pl_syncer *s);
uint64_t pl_sync_kth(struct pl_syncer *s, uint32_t k,
                     uint64_t (*value)(const struct pl_syncer *, uint32_t m));

/* syncer_stride.c */
uint64_t pl_sync_lead(const struct pl_syncer *s, uint32_t m);
uint32_t pl_sync_overlap_eff(const struct pl_syncer *s, uint32_t m);
void pl_sync_update_stretch(struct pl_syncer *s, struct pl_sync_fxs *out);
uint32_t pl_sync_stride(const struct pl_syncer *s,
                        uint32_t m); /* its own, or the stretch where that is larger */
/* An update was sent, has arrived or is given up; the connection is lost, or there again; a push begins to come, is here or will not come; a pull is answered, so
 * or so. How busy the line is decides about strides. */
void pl_sync_line_sent(struct pl_syncer *s, uint32_t m);
void pl_sync_line_done(struct pl_syncer *s, uint32_t m, uint64_t bytes);
void pl_sync_line_broken(struct pl_syncer *s, uint32_t m);
void pl_sync_line_mended(struct pl_syncer *s, uint32_t m);
void pl_sync_line_begun(struct pl_syncer *s, uint32_t m);
void pl_sync_line_ended(struct pl_syncer *s, uint32_t m, bool held);
void pl_sync_line_answered(struct pl_syncer *s, uint32_t m, uint64_t pulled_ns);
/* What its round builds on is not even on its way: the line carries less than it is given. */
void pl_sync_line_full(struct pl_syncer *s, uint32_t m, struct pl_sync_fxs *out);
/* A push came in time, so long after its pull; the round of one that was asked for then went on without it. */
void pl_sync_lead_hit(struct pl_syncer *s, uint32_t m, uint32_t f, uint64_t took_ns, struct pl_sync_fxs *out);
void pl_sync_lead_miss(struct pl_syncer *s, uint32_t m, uint64_t pulled_ns, struct pl_sync_fxs *out);

/* syncer_push.c */
bool pl_sync_outstanding(uint8_t push); /* may still come */
void pl_sync_move_push(struct pl_syncer *s, uint32_t m, uint32_t f, enum push_state to);
void pl_sync_forget_push(struct pl_syncer *s, uint32_t m, uint32_t f, struct pl_sync_fxs *out);
void pl_sync_too_slow(struct pl_syncer *s, uint32_t m, uint32_t f, struct pl_sync_fxs *out);
void pl_sync_leave_behind(struct pl_syncer *s, uint32_t m, uint32_t f, struct pl_sync_fxs *out);

/* syncer_round.c */
bool pl_sync_pull(struct pl_syncer *s, uint32_t m, uint32_t f, uint64_t tick, struct pl_sync_fxs *out);
void pl_sync_due(struct pl_syncer *s, uint32_t f, struct pl_sync_fxs *out);
void pl_sync_push(struct pl_syncer *s, uint32_t m, const struct pl_msg_push *p, struct pl_sync_fxs *out);
void pl_sync_data(struct pl_syncer *s, uint32_t m, const struct pl_msg_data *d, struct pl_sync_fxs *out);
void pl_sync_skip(struct pl_syncer *s, uint32_t m, const struct pl_msg_skip *k, struct pl_sync_fxs *out);
void pl_sync_verified(struct pl_syncer *s, const struct pl_sync_event *ev, struct pl_sync_fxs *out);
void pl_sync_merged(struct pl_syncer *s, const struct pl_sync_event *ev, struct pl_sync_fxs *out);
void pl_sync_round_stored(struct pl_syncer *s, uint32_t f, struct pl_sync_fxs *out);
void pl_sync_store_round(struct pl_syncer *s, uint32_t f, struct pl_sync_fxs *out);
void pl_sync_grace_over(struct pl_syncer *s, uint32_t f, struct pl_sync_fxs *out);
void pl_sync_consider(struct pl_syncer *s, uint32_t f, struct pl_sync_fxs *out);
void pl_sync_uncount(struct pl_syncer *s, uint32_t m);
void pl_sync_recount(struct pl_syncer *s, uint32_t m, struct pl_sync_fxs *out);
void pl_sync_forget_pushes(struct pl_syncer *s, uint32_t m, struct pl_sync_fxs *out);
void pl_sync_void_round(struct pl_syncer *s, uint32_t f, struct pl_sync_fxs *out);
void pl_sync_pull_closing(struct pl_syncer *s, uint32_t m, uint32_t f, struct pl_sync_fxs *out);

/* syncer_deliver.c */
void pl_sync_deliver(struct pl_syncer *s, uint32_t m, uint32_t f, uint64_t mask, struct pl_sync_fxs *out);
void pl_sync_deliver_all(struct pl_syncer *s, uint32_t m, struct pl_sync_fxs *out);
void pl_sync_have(struct pl_syncer *s, uint32_t m, const struct pl_msg_got *g, struct pl_sync_fxs *out);
void pl_sync_fetch(struct pl_syncer *s, uint32_t m, const struct pl_msg_fetch *g, struct pl_sync_fxs *out);
void pl_sync_announce(struct pl_syncer *s, uint32_t f);
bool pl_sync_announce_some(struct pl_syncer *s, struct pl_sync_fxs *out); /* true: did something */
void pl_sync_stop_sending(struct pl_syncer *s, uint32_t m);
void pl_sync_take_have(struct pl_syncer *s, uint32_t m, const struct pl_array *have);
void pl_sync_resume_updates(struct pl_syncer *s, uint32_t m, const struct pl_array *partial,
                            struct pl_sync_fxs *out);
bool pl_sync_chain(const struct fragment *fr, uint64_t from, uint64_t *bytes);
void pl_sync_ring_add(struct fragment *fr, uint64_t bytes, uint64_t old_digest);
/* What somebody so many updates behind will be sent, if all are as long as the newest. */
uint64_t pl_sync_visit_bytes(const struct fragment *fr, uint32_t updates);

/* syncer_ledger.c */
void pl_sync_want(struct pl_syncer *s, uint32_t m, struct pl_sync_fxs *out);
void pl_sync_unit_progress(struct pl_syncer *s, uint32_t m, uint64_t unit, uint64_t cursor);
void pl_sync_unit_stored(struct pl_syncer *s, uint64_t seq, struct pl_sync_fxs *out);
void pl_sync_unit_store_failed(struct pl_syncer *s, uint64_t seq);
bool pl_sync_unit_store_again(struct pl_syncer *s, struct pl_sync_fxs *out);
void pl_sync_units_joined(struct pl_syncer *s, uint32_t m, const struct pl_array *held,
                          struct pl_sync_fxs *out);
void pl_sync_units_back(struct pl_syncer *s, uint32_t m, struct pl_sync_fxs *out);
struct open_unit *pl_sync_unit_find(struct pl_syncer *s, uint64_t unit);
void pl_sync_unit_disown(struct pl_syncer *s, struct open_unit *u);
void pl_sync_unit_own(struct pl_syncer *s, struct open_unit *u, uint32_t m);
struct open_unit *pl_sync_unit_room(struct pl_syncer *s);

/* syncer_close.c */
uint64_t pl_sync_agreed_ns(const struct pl_syncer *s);
uint64_t pl_sync_hope_ns(const struct pl_syncer *s);
void pl_sync_await(struct pl_syncer *s);                            /* at boot, all that are known */
void pl_sync_await_no_more(struct pl_syncer *s, struct learner *l); /* it is back, or forgotten */
void pl_sync_maybe_close(struct pl_syncer *s, struct pl_sync_fxs *out);
bool pl_sync_closing_some(struct pl_syncer *s, struct pl_sync_fxs *out); /* true: did something */
uint64_t pl_sync_closing_due_ns(const struct pl_syncer *s);
void pl_sync_fragment_closed(struct pl_syncer *s, uint32_t f);
void pl_sync_done_stored(struct pl_syncer *s, struct pl_sync_fxs *out);
void pl_sync_release_if_complete(struct pl_syncer *s, uint32_t m, struct pl_sync_fxs *out);
void pl_sync_store_done(struct pl_syncer *s, struct pl_sync_fxs *out);
void pl_sync_joined_late(struct pl_syncer *s, uint32_t m, struct pl_sync_fxs *out);

#endif
