/* sim/check_int.h - shared by the checkers: the books all of them read, and the table of hooks each of them fills.
 *
 * The books (check.c) hold what everybody at the scene can see: which connection belongs to whom, which push header
 * came last, what is published. They are updated before the checkers are called. A checker has private state,
 * reachable from struct pl_checks by its own pointer, and never reads another's.
 */
#ifndef PL_SIM_CHECK_INT_H
#define PL_SIM_CHECK_INT_H

#include "sim/check.h"

enum check_link { LINK_UNUSED, LINK_NEW, LINK_CONTROL, LINK_BULK };

struct check_conn {
    uint32_t person; /* PL_NONE32: not known */
    enum check_link link;
    uint64_t incarnation; /* of WELCOME or ATTACH */
    bool joined;          /* control: JOIN has come */
};

struct check_shard {
    struct check_conn *conns; /* [conns_max] */
    uint32_t *slot_person;    /* [learners_max], as far as effects told */
    uint32_t *control;        /* [people] connection that JOINed, PL_NONE32 none */
    uint64_t *incarnation;    /* [people] highest one welcomed in this life of the shard */
    bool listening;
    uint64_t epoch;   /* of the BOOT record */
    uint64_t tick;    /* of the last clock.tick */
    uint64_t tick_ns; /* when; of the BOOT before the first one */
    bool closing;
    uint32_t msg_conn;      /* connection of the message being handled, PL_NONE32 when it is none */
    uint32_t closed_person; /* whose connection the CLOSE effect at hand ends, PL_NONE32 not known */
};

/* The last contribution of a learner that the shard accepted: one KEEP of it was ordered. */
struct check_push {
    struct pl_msg_push header;
    uint64_t incarnation;
    bool held; /* verified as good */
    uint64_t held_ns;
};

/* What honest learners copied; a push is known by its bytes. */
enum { CHECK_COPIES = 4 };
struct check_copies {
    uint32_t next;
    struct {
        uint64_t round, digest, process;
        struct pl_work work;
    } at[CHECK_COPIES];
};

struct check_fragment {
    uint32_t shard;
    uint32_t offset;
    uint64_t version; /* published; only grows while nothing fails */
};

struct pl_checks {
    const struct pl_alloc *alloc;
    struct pl_check_setup setup;
    enum pelago_status status;
    bool failed;
    struct pl_check_failure failure;
    struct block {
        void *memory;
        size_t bytes;
    } * blocks;
    uint32_t block_count, block_cap;

    uint32_t shard_count, fragment_count, quorum, period;
    uint64_t *people; /* identities, the honest ones first */
    uint32_t person_count, person_max;
    struct check_shard *shards;
    struct check_fragment *fragments;
    struct check_push *headers;  /* [person_max][fragment_count] last PUSH that came */
    struct check_push *pushes;   /* [person_max][fragment_count] last one accepted */
    struct check_copies *copies; /* [honest][fragment_count] what was really copied, lately */
    uint64_t *merged_tokens;     /* [fragment_count] of published versions */
    uint64_t *staged_tokens;     /* [fragment_count] of the ROUND record being stored */
    bool calm;                   /* no faults now */
    uint64_t calm_ns;            /* since when */

    struct check_once *once;
    struct check_history *history;
    struct check_durable *durable;
    struct check_staleness *staleness;
    struct check_ledger *ledger;
    struct check_units *units;
    struct check_hostage *hostage;
    struct check_progress *progress;
    struct check_fence *fence;
    struct check_manners *manners;
    struct check_clock *clock;
    struct check_merged95 *merged95;
    struct pl_model *model;
};

/* Hooks may be NULL. They run in the order of the table, for each event and each effect. */
struct pl_checker {
    const char *name;
    bool (*init)(struct pl_checks *c);
    void (*sync_event)(struct pl_checks *c, uint32_t shard, const struct pl_sync_event *ev);
    void (*sync_effect)(struct pl_checks *c, uint32_t shard, uint64_t now, const struct pl_sync_effect *fx);
    void (*sync_stepped)(struct pl_checks *c, uint32_t shard, uint64_t now); /* after a step's last effect */
    void (*crash)(struct pl_checks *c, uint32_t shard, uint64_t now);
    void (*replayed)(struct pl_checks *c, uint32_t shard, uint64_t now, const struct pl_record *r);
    void (*recovered)(struct pl_checks *c, uint64_t now, uint32_t fragment, uint64_t version,
                      uint64_t digest);
    void (*learn_event)(struct pl_checks *c, uint32_t person, uint64_t process,
                        const struct pl_learn_event *ev);
    void (*learn_effect)(struct pl_checks *c, uint32_t person, uint64_t process, uint64_t now,
                         const struct pl_learn_effect *fx);
    void (*learn_start)(struct pl_checks *c, uint64_t now, uint32_t person, uint64_t process);
    void (*learn_end)(struct pl_checks *c, uint64_t now, uint32_t person, uint64_t process);
    void (*calm)(struct pl_checks *c, uint64_t now, uint64_t bound_ns);
    void (*tick)(struct pl_checks *c, uint64_t now);
    void (*end)(struct pl_checks *c, uint64_t now);
};

extern const struct pl_checker pl_check_once, pl_check_history, pl_check_durable, pl_check_staleness,
    pl_check_ledger, pl_check_units, pl_check_hostage, pl_check_progress, pl_check_fence, pl_check_manners,
    pl_check_clock, pl_check_merged95, pl_check_model;

/* The first one counts. */
void pl_check_fail(struct pl_checks *c, const char *checker, uint64_t now, const char *format, ...);
void pl_check_fail_alive(struct pl_checks *c, const char *checker, uint64_t now, const char *format, ...);

/* Zeroed memory that lives as long as the checks; NULL sets the status. */
void *pl_check_zero(struct pl_checks *c, size_t count, size_t size);

/* Room for `need` entries of a growing array that began as NULL, cap 0; false sets the status. */
bool pl_check_room(struct pl_checks *c, void *array_of, uint32_t *cap, uint32_t need, size_t size);

/* Index in people, PL_NONE32 when not there. */
uint32_t pl_check_person(const struct pl_checks *c, uint64_t identity);

static inline struct check_push *pl_check_push(const struct pl_checks *c, uint32_t person, uint32_t fragment)
{
    return &c->pushes[(size_t)person * c->fragment_count + fragment];
}

/* Does the fragment exist and belong to the shard? A message from a peer may name any. */
static inline bool pl_check_owns(const struct pl_checks *c, uint32_t shard, uint32_t fragment)
{
    return fragment < c->fragment_count && c->fragments[fragment].shard == shard;
}

/* The person who sent the message being handled, PL_NONE32 when unknown. */
uint32_t pl_check_sender(const struct pl_checks *c, uint32_t shard);

/* What is in the contribution with these bytes, and which process made it (may be NULL). NULL: nobody copied such a
 * thing. */
const struct pl_work *pl_check_copy(const struct pl_checks *c, uint32_t person, uint32_t fragment,
                                    uint64_t round, uint64_t digest, uint64_t *process);

static inline bool pl_check_honest(const struct pl_checks *c, uint32_t person)
{
    return person < c->setup.identity_count;
}

/* check_books.c */
bool pl_check_books_init(struct pl_checks *c);
void pl_check_books_event(struct pl_checks *c, uint32_t shard, const struct pl_sync_event *ev);
void pl_check_books_effect(struct pl_checks *c, uint32_t shard, uint64_t now,
                           const struct pl_sync_effect *fx);
void pl_check_books_crash(struct pl_checks *c, uint32_t shard);
void pl_check_books_recovered(struct pl_checks *c, uint32_t fragment, uint64_t version);
void pl_check_books_copied(struct pl_checks *c, uint32_t person, uint64_t process, uint32_t fragment,
                           uint64_t round, uint64_t digest, const struct pl_work *work);

/* The checkers' part of one function of check.h each. */
void pl_check_history_anchor(struct pl_checks *c, uint64_t now, uint32_t person, uint32_t fragment,
                             uint64_t version, uint64_t digest);
void pl_check_hostage_step(struct pl_checks *c, uint64_t now, uint32_t person, uint64_t process,
                           uint64_t drawn_ns, uint64_t excused_ns);
void pl_check_ledger_step(struct pl_checks *c, uint64_t tokens);
void pl_check_clock_step(struct pl_checks *c, uint32_t person, uint64_t drawn_ns);

#endif
