/* chaos/plan.h - a plan of faults as text (docs/chaos.md is its page), read into rules. What happens when, to whom, is
 * chaos/schedule.h; doing it to processes and links is `pelago chaos`, doing it in the simulator `pelago sim --plan`.
 *
 *   # comment
 *   seed 7                                    of everything random below
 *   until 30m                                 the plan ends here, and everything is healed
 *   at 10s kill learner 2
 *   every 15s kill random learner             15 s, 30 s, ...; "about every": exponential with this mean
 *   every 60s from 20s to 10m partition half learners out for 10s
 *   sim set learners 8                        a line for the simulator's script alone
 *
 * Nothing is done here: no clock, no files, no processes.
 */
#ifndef PL_CHAOS_PLAN_H
#define PL_CHAOS_PLAN_H

#include "base/alloc.h"
#include "base/status.h"
#include "chaos/shape.h"

enum pl_chaos_verb {
    PL_CHAOS_KILL = 1,  /* SIGKILL; with for_ns: and held down so long */
    PL_CHAOS_TERMINATE, /* SIGTERM: leaves politely */
    PL_CHAOS_DOWN,      /* SIGKILL and held down until UP */
    PL_CHAOS_UP,
    PL_CHAOS_STOP, /* SIGSTOP */
    PL_CHAOS_CONTINUE,
    PL_CHAOS_SLOW_CPU, /* gets percent of the time it would run */
    PL_CHAOS_LINK,     /* `change` is applied in `dirs`; so are those of the next six */
    PL_CHAOS_PARTITION,
    PL_CHAOS_DRIP,
    PL_CHAOS_CORRUPT,
    PL_CHAOS_LIMIT_DATA,
    PL_CHAOS_SLOW_CLOSE,
    PL_CHAOS_MUTE,
    PL_CHAOS_HEAL,      /* ends PARTITION */
    PL_CHAOS_CLEAR,     /* ends whatever was done to the link */
    PL_CHAOS_RESET,     /* both ends of every connection get a reset */
    PL_CHAOS_HALF_OPEN, /* the syncer's end is gone, the learner is not told */
    PL_CHAOS_FILL_DISK,
    PL_CHAOS_FREE_DISK,
    PL_CHAOS_VERBS
};

enum pl_chaos_pick { PL_PICK_LISTED, PL_PICK_RANDOM, PL_PICK_HALF, PL_PICK_ALL };

enum {
    PL_CHAOS_RANGES_MAX = 16,
    PL_CHAOS_NODE_MAX = 65535,
    PL_CHAOS_TEXT_MAX = 4 << 20,
    PL_CHAOS_LINES_MAX = 65536
};

struct pl_chaos_target {
    bool syncer;
    enum pl_chaos_pick pick;
    uint32_t range_count; /* of LISTED */
    struct {
        uint32_t first, last;
    } ranges[PL_CHAOS_RANGES_MAX];
};

struct pl_chaos_action {
    enum pl_chaos_verb verb;
    struct pl_chaos_target target;
    uint32_t dirs;    /* PL_SHAPE_UP, DOWN, BOTH */
    uint32_t percent; /* of SLOW_CPU */
    uint64_t for_ns;  /* 0: no end of its own */
    struct pl_shape_change change;
    uint32_t line; /* of the plan */
};

struct pl_chaos_rule {
    uint64_t from_ns;  /* the first time; of an `every` rule, one interval comes before it */
    uint64_t every_ns; /* 0: once */
    uint64_t to_ns;    /* not after this; PL_NEVER */
    bool about;        /* intervals are exponential, with mean every_ns */
    struct pl_chaos_action action;
};

/* A line for the simulator, without the word sim. */
struct pl_chaos_sim_line {
    uint32_t line;
    uint32_t at, len; /* in the text the plan was read from */
};

struct pl_chaos_plan {
    const struct pl_alloc *alloc;
    struct pl_chaos_rule *rules;
    struct pl_chaos_sim_line *sim_lines;
    uint32_t rule_count, sim_line_count, room;
    uint64_t until_ns; /* PL_NEVER: no until */
    uint64_t seed;
};

/* INVALID: "line 3 of the plan: ...". The allocator is borrowed until pl_chaos_plan_release. */
enum pelago_status pl_chaos_plan_parse(struct pl_chaos_plan *out, const char *text, size_t len,
                                       const struct pl_alloc *alloc, struct pl_error *err);
void pl_chaos_plan_release(struct pl_chaos_plan *plan);

const char *pl_chaos_verb_name(enum pl_chaos_verb verb);      /* as the plan writes it */
const char *pl_chaos_verb_undo_name(enum pl_chaos_verb verb); /* what its end is called; NULL: it has none */
enum pl_chaos_verb pl_chaos_verb_ends(enum pl_chaos_verb verb); /* STOP for CONTINUE; 0: it ends nothing */
bool pl_chaos_verb_is_link(enum pl_chaos_verb verb);            /* done by the proxy */

#endif
