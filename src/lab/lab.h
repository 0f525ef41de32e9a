/* lab/lab.h - experiments in virtual time: a row says what is trained and how, a run is a row and a seed.
 *
 * A run drives the real trainer, codecs and merge inside the simulated world of sim/: clocks, speeds, links and faults
 * are simulated, every parameter is not. The learners of a run take their steps one after the other, each on all cores,
 * in the order of their virtual times; so the result follows from row and seed, two rows are paired by their seeds (the
 * same first parameters, the same order of the data, the same text to be judged by), and speeds are exact. `data_parallel`
 * is one trainer at the whole batch, which is what synchronous data-parallel training computes.
 *
 * Nothing is printed and no file is written here; cmd/ does both.
 */
#ifndef PL_LAB_LAB_H
#define PL_LAB_LAB_H

#include "host/settings.h"
#include "sim/sim.h"

enum {
    PL_LAB_LEARNERS_MAX = 64,
    PL_LAB_DOMAINS_MAX = 4,
    PL_LAB_NAME_MAX = 64,
    PL_LAB_POINTS_MAX = 256,
};

struct pl_lab_row {
    char name[PL_LAB_NAME_MAX];
    char against[PL_LAB_NAME_MAX]; /* the row it is compared with; "": none */
    double bar;                    /* per cent that its loss may be above; not finite: none */
    double tokens_per_param;       /* as asked for; tables mark what had fewer than the experiment wants */
    bool shorter;                  /* the 10-minute form */
    struct pl_settings settings;   /* batch: of an ordinary learner; the seed is the run's */
    uint32_t global_batch;         /* sequences that all learners of full speed take in one step time */
    /* Data: names of token files, or builtin:tales. Several: a mixture, in these shares. */
    char domains[PL_LAB_DOMAINS_MAX][PL_LAB_NAME_MAX];
    uint32_t domain_count;
    double shares[PL_LAB_DOMAINS_MAX];
    bool split; /* each learner has one domain of its own, in turn */
    /* The world. */
    uint64_t step_ns;                      /* of a learner of speed 1 */
    double speeds[PL_LAB_LEARNERS_MAX];    /* [settings.learners + joiners] */
    uint32_t batches[PL_LAB_LEARNERS_MAX]; /* likewise: sequences of a step */
    uint32_t joiners;                      /* learners that come later */
    double join_at;                        /* ... after this share of the run's time without them */
    uint64_t latency_ns, bandwidth;        /* one way; bytes a second, each learner and direction */
    uint64_t checkpoint_ns;                /* of a learner; 0: never */
    char trace[PL_PATH_MAX];               /* a log of failures (chaos/trace.h); "": none */
    double trace_scale;                    /* so much faster */
    uint64_t trace_skip_s;                 /* of the log */
    bool trace_fold;        /* every failure of the log counts, whatever machine it was (chaos/trace.h) */
    uint64_t kill_every_ns; /* on average, anybody but a joiner is killed, where there is no log; 0: nobody */
    uint64_t stop_every_ns; /* likewise is stopped, its connections stay; 0: nobody */
    uint64_t stop_ns;       /* ... for so long */
    uint64_t restart_ns;    /* until a learner that was killed is back, where the log does not say */
    uint32_t cohort;        /* contributions that come in time for a merge; 0: all that do */
    uint64_t eval_every;    /* merged tokens between two evaluations on the way; 0: at the end alone */
};

/* How long the row's learners take for all tokens in virtual time when nothing goes wrong, late ones not counted. */
double pl_lab_row_seconds(const struct pl_lab_row *row);

struct pl_lab_point {
    double virtual_s;
    uint64_t tokens; /* merged */
    double loss;
};

struct pl_lab_result {
    enum pl_sim_exit exit;
    char what[256];      /* when exit is not OK */
    const char *backend; /* that trained; static */
    uint64_t params;
    uint64_t tokens;        /* seen by the trainers */
    uint64_t merged_tokens; /* a fragment's count by its size */
    uint64_t steps;         /* inner, of all learners */
    double loss;            /* of the outer parameters on the text to be judged by, nats a token */
    uint64_t eval_tokens;
    uint64_t outer_steps;                      /* merges of all fragments */
    uint64_t steps_of[PL_LAB_LEARNERS_MAX];    /* ... of each */
    uint64_t cohorts[PL_LAB_LEARNERS_MAX + 1]; /* merges with so many contributions */
    uint64_t bytes_up,
        bytes_down; /* on the wire: frames and TLS records; all-reduce by ring in bf16 for data_parallel */
    uint64_t rejoins;
    double virtual_s, wall_s, trainer_s, eval_s;
    uint64_t trace_hash;   /* of everything the simulated world did; 0 for data_parallel */
    uint64_t value_digest; /* of the outer parameters at the end */
    struct pl_lab_point points[PL_LAB_POINTS_MAX];
    uint32_t point_count;
};

struct pl_lab {
    struct pl_alloc alloc;
    const char
        *folder; /* of the token files; borrowed. NULL: every text counts as there, and nothing can be run */
    const char *backend; /* NULL: the best */
    uint32_t threads;    /* 0: all processors */
};

/* One run. OK: *result says how it went, also when a check of the simulated world failed. Otherwise a sentence. */
enum pelago_status pl_lab_run(const struct pl_lab *lab, const struct pl_lab_row *row, uint64_t seed,
                              struct pl_lab_result *result, struct pl_error *err);

#endif
