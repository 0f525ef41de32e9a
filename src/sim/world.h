/* sim/world.h - the simulated world: a clock, a heap of events, and everything that lives in it.
 *
 * An event is a function and a few numbers at a time; events run in the order of (time, sequence), so a run is a
 * function of its options. Memory comes from one list that the run frees as a whole, also after an assertion; when
 * the allocator refuses, `status` becomes NOMEM and stays so, what could not be done is left out, and the loop ends
 * after the event at hand.
 */
#ifndef PL_SIM_WORLD_H
#define PL_SIM_WORLD_H

#include "base/alloc.h"
#include "base/buf.h"
#include "base/prng.h"
#include "sim/check.h"
#include "sim/sim.h"

struct pl_world;

struct pl_sim_ev {
    uint64_t at;
    uint64_t seq;
    void (*fire)(struct pl_world *w, const struct pl_sim_ev *ev);
    uint32_t who;  /* index of the node, connection or link */
    uint32_t life; /* the event is for this life of it */
    uint64_t arg;
    uint64_t more;
};

/* Room for a message or a core's trace as text: a whole MANIFEST, and a reason of PL_TEXT_MAX bytes. */
enum { PL_SIM_TEXT_MAX = 640 };

/* Every block of a run, so that all can be freed at once. */
struct pl_mem {
    const struct pl_alloc *base;
    struct pl_mem_block *first;
    uint64_t live_bytes, peak_bytes;
    bool failed; /* memory was refused once: also when whoever asked could do without */
};
void pl_mem_init(struct pl_mem *m, const struct pl_alloc *base);
void pl_mem_release(struct pl_mem *m);
struct pl_alloc pl_mem_alloc(struct pl_mem *m); /* m is borrowed */

/* One stream of randomness per purpose, so that a change in one does not move the others. */
enum pl_stream {
    PL_STREAM_SWARM = 1,
    PL_STREAM_FAULTS,
    PL_STREAM_NET,
    PL_STREAM_NODES,
    PL_STREAM_HOSTILE,
    PL_STREAM_DISK,
    PL_STREAM_MODEL,
    PL_STREAM_TRAINER = 1000, /* + identity */
};

struct pl_world {
    struct pl_sim_options o;
    const struct pl_sim_plan *plan;
    struct pl_alloc alloc;
    const struct pl_mem *mem;  /* behind alloc */
    enum pelago_status status; /* sticky */
    uint64_t now_ns;
    uint64_t trace_hash;
    struct pl_sim_result *result;
    struct pl_checks *checks;
    const struct pl_objective *objective; /* what is trained, and the manifest */
    struct pl_toy *toy;                   /* NULL: the objective is not the toy */
    struct pl_net *net;
    struct pl_snode *syncers; /* [o.shards] */
    struct pl_host *hosts;    /* [o.learners] the learners' machines: disk, supervisor */
    struct pl_lnode *procs;   /* [proc_count] processes of learners, two a machine */
    struct pl_hostile *hostiles;
    uint32_t proc_count, hostile_count;
    uint64_t processes; /* started so far: the number of the last one */
    struct pl_prng nodes_prng, faults_prng;
    bool over;   /* the run is complete */
    bool healed; /* the safety phase is over */
    uint64_t healed_ns;
    const float **thetas;         /* [fragments] scratch: the syncers' values */
    uint64_t merged_value_tokens; /* sum over merges of tokens * values of the fragment */
    struct pl_curve *curve;       /* loss against merged tokens; of a reference run */
    /* the heap */
    struct pl_sim_ev *heap;
    uint32_t heap_len, heap_cap;
    uint64_t seq;
};

/* Zeroed memory; NULL makes the world's status NOMEM. */
void *pl_world_zero(struct pl_world *w, size_t count, size_t size);

/* at is not before now. */
void pl_world_at(struct pl_world *w, const struct pl_sim_ev *ev);

/* Runs the next event; false when there is none. */
bool pl_world_next(struct pl_world *w);

/* Ends the run: the first failure counts. */
void pl_world_fail(struct pl_world *w, enum pl_sim_exit exit_code, const char *format, ...);

/* The syncers' values now, by fragment; valid until the next merge. */
const float *const *pl_world_thetas(struct pl_world *w);

/* Does it now; an action that makes no sense for the node's state does nothing. */
void pl_world_act(struct pl_world *w, const struct pl_action *a);

/* Folds numbers into the trace hash. */
static inline void pl_world_note(struct pl_world *w, uint64_t a, uint64_t b)
{
    uint64_t h = (w->trace_hash ^ a) * UINT64_C(0x9e3779b97f4a7c15);
    w->trace_hash = ((h << 29) | (h >> 35)) + b;
}

static inline bool pl_world_tracing(const struct pl_world *w)
{
    return w->plan != NULL && w->plan->line != NULL;
}

/* A line for a person: "learner", 2, then the format of base/fmt.h. Does nothing unless tracing. */
void pl_world_line(struct pl_world *w, const char *kind, uint64_t number, const char *format, ...);

#endif
