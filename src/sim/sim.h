/* sim/sim.h - one run of a simulated cluster: real cores, real frames, real journal, real merge; simulated clock,
 * network, disks, processes and a toy objective. Everything follows from the options, and the options from a seed.
 */
#ifndef PL_SIM_SIM_H
#define PL_SIM_SIM_H

#include "base/alloc.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

enum pl_sim_exit { PL_SIM_OK = 0, PL_SIM_ASSERT = 3, PL_SIM_LIVENESS = 4, PL_SIM_CORRECTNESS = 5 };

/* Fault classes; a swarm run has each on or off. */
enum pl_sim_fault {
    PL_FAULT_LEARNER_CRASH = 1 << 0,    /* kill -9, restart from its checkpoint, or with an empty disk */
    PL_FAULT_LEARNER_FREEZE = 1 << 1,   /* SIGSTOP for a while */
    PL_FAULT_LEARNER_STRAGGLE = 1 << 2, /* heavy-tailed slow steps */
    PL_FAULT_LEARNER_AWAY = 1 << 3,     /* gone for long, returns late */
    PL_FAULT_CLONE = 1 << 4,            /* a second process of the same identity */
    PL_FAULT_SYNCER_CRASH = 1 << 5,     /* power cut: unsynced writes lost, torn, reordered */
    PL_FAULT_RESET = 1 << 6,            /* connections reset */
    PL_FAULT_STALL = 1 << 7,            /* a link stops for a while, nothing lost */
    PL_FAULT_HALF_OPEN = 1 << 8,        /* one end gone without a word */
    PL_FAULT_PARTITION = 1 << 9,        /* some learners cut off, both ways or one way */
    PL_FAULT_SLOW_LINK = 1 << 10,       /* bandwidth falls to a fraction */
    PL_FAULT_DISK_FULL = 1 << 11,       /* syncer's disk full for a while, failing syncs */
    PL_FAULT_HOSTILE =
        1 << 12, /* an enrolled peer that sends well-formed nonsense, old and inflated pushes */
    PL_FAULT_GARBAGE = 1 << 13, /* an enrolled peer that sends bytes that are no frames */
};

/* All times in ns. Drawn by pl_sim_draw, changed by flags, shrunk by --shrink. */
struct pl_sim_options {
    uint64_t seed;
    uint64_t duration_ns; /* of the safety phase plus the liveness phase, without faults about this long */
    uint32_t learners, shards, fragments;
    uint32_t quorum, overlap_steps, period_steps, gamma_ppm, staleness_max;
    uint32_t apply;                 /* 0 rebase, 1 overwrite, 2 mix */
    uint32_t faults;                /* pl_sim_fault bits */
    uint32_t fault_mean_ms;         /* mean time between two faults */
    uint64_t step_ns;               /* of the fastest learner */
    uint32_t speed_spread_permille; /* slowest learner's step is this much longer */
    uint64_t latency_ns;
    uint64_t bandwidth;           /* bytes a second, each learner and direction */
    uint32_t dimensions;          /* parameters of the toy model */
    uint32_t local_data_permille; /* learners with private data */
    uint64_t checkpoint_ns;       /* between two checkpoints of a learner */
    uint64_t merge_ns, sync_ns;   /* how long a merge and an fsync take */
    uint32_t step_tokens;         /* of one inner step, a tenth more or less */
    uint64_t budget_tokens;       /* 0: what the learners make in duration_ns */
};

/* What a learner or a shard does, or has done to it, at a time. Random faults and scripts both speak this. */
enum pl_act {
    PL_ACT_CRASH = 1, /* learner: kill -9; syncer: power cut. arg: enum pl_crash */
    PL_ACT_START,     /* a node that is down comes up again; nothing for one that is up */
    PL_ACT_ABSENT,    /* a learner, at time 0: it is not started with the others */
    PL_ACT_QUIT,      /* a learner leaves politely */
    PL_ACT_CLONE,     /* a second process of a learner starts from the same checkpoint */
    PL_ACT_FREEZE,    /* a learner's processes stop as by SIGSTOP, their connections stay */
    PL_ACT_THAW,
    PL_ACT_PACE, /* a learner's steps take arg permille of their time; 1000 is normal */
    PL_ACT_STEP, /* a learner's steps take arg ns; 0: as drawn */
    PL_ACT_CHECKPOINT, /* a learner writes its checkpoint at the end of this step; arg: and then every arg ns (0: as before) */
    PL_ACT_CUT,   /* nothing passes between learner and shard in dirs; connects fail */
    PL_ACT_HEAL,  /* what was cut passes again, late */
    PL_ACT_STALL, /* a learner's link stops in dirs; nothing is lost */
    PL_ACT_FLOW,
    PL_ACT_SLOW,      /* a learner's link has arg permille of its bandwidth; 1000 is normal */
    PL_ACT_BANDWIDTH, /* a learner's link: arg bytes a second; 0: as drawn */
    PL_ACT_LATENCY,   /* a learner's link: arg ns one way; 0: as drawn */
    PL_ACT_RESET, /* connections between learner and shard break, what is under way is lost. arg: enum pl_break */
    PL_ACT_HOLD, /* messages of a type between learner and shard wait, and all behind them on their connection */
    PL_ACT_RELEASE,
    PL_ACT_REPEAT,    /* the frames of the learner's last complete push to the shard are sent once more */
    PL_ACT_DISK_FULL, /* a syncer's disk takes no more writes */
    PL_ACT_SYNC_FAIL, /* a syncer's syncs fail */
    PL_ACT_DISK_OK,
};
enum pl_crash {
    PL_CRASH_NOW,         /* learner: its checkpoint stays */
    PL_CRASH_WIPE,        /* learner: its disk is lost too */
    PL_CRASH_SILENT,      /* power, not kill: the peers are not told */
    PL_CRASH_AFTER_STORE, /* syncer: when the next ROUND record is durable, before the shard learns of it */
    PL_CRASH_BEFORE_STORE /* syncer: when the next ROUND record is written and not yet synced */
};
enum pl_break {
    PL_BREAK_TOLD,
    PL_BREAK_HALF,
    PL_BREAK_SILENT
}; /* both ends hear of it, the syncer's, neither */
enum pl_direction { PL_DIR_UP = 1, PL_DIR_DOWN = 2, PL_DIR_BOTH = 3 }; /* up: learner to syncer */

struct pl_action {
    uint64_t at_ns;
    enum pl_act kind;
    bool syncer;   /* CRASH, START: the node is a shard */
    uint32_t node; /* learner 1 .. learners (its identity), or shard 0 .. shards - 1 */
    uint32_t
        shard; /* CUT, HEAL, RESET, HOLD, RELEASE, REPEAT: which shard's connections; PL_NONE32: every shard's */
    uint32_t dirs; /* CUT, HEAL, STALL, FLOW, HOLD, RELEASE: enum pl_direction bits */
    uint32_t type; /* HOLD, RELEASE: enum pl_msg_type; 0: every message of the learner's bulk connection */
    uint64_t arg;
    uint32_t line; /* of the script that asks for it; 0: none */
};

/* One line for a person. who: "learner 2", "syncer 0", "hostile 9" or "world". text: what a core traces
 * ("round.merge fragment=3 ..."), "sends PULL fragment=3 ... to learner 2", "gets PULL fragment=3 ... from syncer 0",
 * or what is done to the world ("crash learner 2"). */
typedef void pl_sim_line(void *user, uint64_t now_ns, const char *who, const char *text);

/* What to do besides the options; all may be zero. */
struct pl_objective; /* sim/objective.h */

struct pl_sim_plan {
    const struct pl_objective *objective; /* NULL: the toy */
    uint32_t
        cohort_max; /* contributions that come in time for a round, the closing one apart; 0: all that do */
    const struct pl_action *actions; /* by time */
    uint32_t action_count;
    pl_sim_line *line; /* NULL: no trace */
    void *user;
    bool no_reference; /* do not run the fault-free twin */
    bool no_end; /* a script: stop at duration_ns, asking neither for the end of the run nor for liveness */
};

struct pl_sim_result {
    enum pl_sim_exit exit;
    char what[256];      /* checker and sentence when exit != 0 */
    uint64_t trace_hash; /* over every event and effect, in order */
    uint64_t cluster_ns; /* simulated */
    uint64_t events;
    uint64_t trained_tokens; /* of all inner steps, whatever became of them */
    uint64_t merges, merged_tokens, faults_injected, rejoins, syncer_boots;
    uint64_t wire_bytes[2],
        wire_records[2]; /* up, down: all frames put on a wire; records of at most 16 KiB, as TLS has */
    double loss_final, loss_reference; /* toy objective at equal merged tokens; reference 0 when not run */
};

/* The options of a seed: swarm-drawn, so that every fault class is off in some runs. */
void pl_sim_draw(uint64_t seed, struct pl_sim_options *o);

/* An option out of its range. lo and hi may follow from the options before it. */
struct pl_sim_wrong {
    size_t offset; /* in struct pl_sim_options */
    uint64_t value, lo, hi;
};

/* The first one; false when there is none. */
bool pl_sim_find_wrong(const struct pl_sim_options *o, struct pl_sim_wrong *wrong);

/* One run, and its fault-free twin when there were faults. plan may be NULL. OK: *result says how it went, an
 * assertion included; NOMEM: it could not be finished. Nothing stays allocated. */
enum pelago_status pl_sim_run(const struct pl_sim_options *o, const struct pl_sim_plan *plan,
                              const struct pl_alloc *alloc, struct pl_sim_result *result);

#endif
