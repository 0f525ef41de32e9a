/* sim/check.h - the invariants of docs/invariants.md, checked from outside while a simulated cluster runs.
 *
 * The world tells the checks everything its nodes see and do: each event before the step, each step's effects after
 * it, and a few truths that no protocol message carries (which inner steps are in a contribution, what bytes a
 * learner's anchor really has, when a step should have ended). The checks keep their own books and never look
 * inside the cores. Each checker is a page of its own, check_<name>.c; check_int.h lists them.
 *
 * Nothing here changes the world. The first failure is kept, later ones are not looked at; the world asks
 * pl_checks_failure after each event. Calls after a failure or a failed allocation do nothing.
 */
#ifndef PL_SIM_CHECK_H
#define PL_SIM_CHECK_H

#include "base/alloc.h"
#include "core/learner.h"
#include "core/syncer.h"
#include "sim/sim.h"

struct pl_checks;

struct pl_check_setup {
    const struct pl_msg_manifest *manifest; /* borrowed, with its arrays, for the life of the checks */
    const uint64_t *identities;             /* of the honest learners; copied */
    uint32_t identity_count;
    uint32_t learners_max; /* as in pl_sync_options, the same for every shard */
    uint32_t conns_max;
    bool hostile; /* peers that lie take part: totals that include their claims are not checked */
};

/* NULL when memory runs out. The allocator is borrowed for the life of the checks. */
struct pl_checks *pl_checks_new(const struct pl_alloc *alloc, const struct pl_check_setup *setup);
void pl_checks_free(struct pl_checks *c); /* NULL is fine */

struct pl_check_failure {
    enum pl_sim_exit exit; /* PL_SIM_CORRECTNESS, or PL_SIM_LIVENESS from progress */
    const char *checker;   /* "once", "history", ... */
    uint64_t time_ns;
    char text[240]; /* one sentence: what was seen, what should have been */
};

/* NULL while all is well. */
const struct pl_check_failure *pl_checks_failure(const struct pl_checks *c);

/* NOMEM once an allocation failed: what was not noted is not checked, the run has to end. */
enum pelago_status pl_checks_status(const struct pl_checks *c);

/* ---- what the cores see and do ----
 * Every pl_syncer_step: sync_event before it with the very event, sync_effects after it with all its effects
 * (before they are performed: arrays in them are still valid). Likewise for every pl_learner_step. */
void pl_checks_sync_event(struct pl_checks *c, uint32_t shard, const struct pl_sync_event *ev);
void pl_checks_sync_effects(struct pl_checks *c, uint32_t shard, uint64_t now_ns,
                            const struct pl_sync_fxs *fxs);

/* process: a number no other process of the world has or had; a restarted learner gets a larger one. Only honest
 * learners are told of: hostile peers have no core. */
void pl_checks_learn_event(struct pl_checks *c, uint64_t identity, uint64_t process,
                           const struct pl_learn_event *ev);
void pl_checks_learn_effects(struct pl_checks *c, uint64_t identity, uint64_t process, uint64_t now_ns,
                             const struct pl_learn_fxs *fxs);

/* ---- life and death of a syncer shard ----
 * Crash, then (restart): one replayed per record given to pl_syncer_replay, one recovered per fragment of the shard
 * with the core's version and the digest of the *bytes* of broadcast after replay, then the BOOT event. At the very
 * first start too, with version 0. */
void pl_checks_sync_crash(struct pl_checks *c, uint32_t shard, uint64_t now_ns);
void pl_checks_replayed(struct pl_checks *c, uint32_t shard, uint64_t now_ns, const struct pl_record *record);
void pl_checks_recovered(struct pl_checks *c, uint32_t shard, uint64_t now_ns, uint32_t fragment,
                         uint64_t version, uint64_t digest);

/* ---- the truth about a learner's work ----
 * struct pl_work follows, per learner process and fragment, which inner steps are in theta - anchor. The host keeps
 * it by what it does to theta, never by what the core says:
 *   after an inner step        pl_work_step(w, pl_step_id(process, n), tokens), n = 1, 2, ... in this process
 *   at the copy                copied = *w                      (kept with the pending push)
 *   apply, rebase, MERGED      pl_work_remove(w, &copied)       theta += new - snapshot
 *   apply, rebase, KEPT        nothing                          theta += new - anchor
 *   apply, DISCARD, and any apply in modes overwrite and mix:   pl_work_clear(w)
 *   checkpoint and restore     copied along with theta and anchor
 */
enum { PL_WORK_RANGES_MAX = 8 };
struct pl_work {
    uint64_t steps;
    uint64_t tokens;
    uint32_t range_count;
    struct {
        uint64_t first, last; /* step ids, ascending */
    } range[PL_WORK_RANGES_MAX];
};
static inline uint64_t pl_step_id(uint64_t process, uint64_t n)
{
    return process << 32 | n;
}
void pl_work_clear(struct pl_work *w);
void pl_work_step(struct pl_work *w, uint64_t step_id, uint64_t tokens);
void pl_work_remove(struct pl_work *w, const struct pl_work *copied);

/* When a contribution was copied and encoded, just before the COPIED event; digest: of the encoded bytes. */
void pl_checks_copied(struct pl_checks *c, uint64_t now_ns, uint64_t identity, uint64_t process,
                      uint32_t fragment, uint64_t round, uint64_t digest, const struct pl_work *work);

/* After an APPLY was performed: digest of the bytes of the anchor now. */
void pl_checks_anchor(struct pl_checks *c, uint64_t now_ns, uint64_t identity, uint64_t process,
                      uint32_t fragment, uint64_t version, uint64_t digest);

/* Work is neither lost nor doubled, also in what quantisation leaves behind (mode rebase only; call it after any
 * APPLY, best after every one). All four are projections of a fragment onto one fixed vector of +1 and -1, in
 * double: worked = minus the sum of all inner displacements since the last DISCARD, merged = sum of the decoded
 * pushes whose outcome was MERGED since then, residual and local (anchor - theta) as they are now.
 * worked = merged + residual + local must hold within tolerance; tolerance_abs is the host's bound on rounding. */
struct pl_check_balance {
    double worked, merged, residual, local;
    double tolerance_abs;
};
void pl_checks_balance(struct pl_checks *c, uint64_t now_ns, uint64_t identity, uint64_t process,
                       uint32_t fragment, const struct pl_check_balance *b);

/* The trainer finished an inner step that was drawn to take drawn_ns. excused_ns: how long this process was frozen
 * since its last step ended (or waited to begin after READY): the only thing that may move a step. */
void pl_checks_step(struct pl_checks *c, uint64_t now_ns, uint64_t identity, uint64_t process,
                    uint64_t tokens, uint64_t drawn_ns, uint64_t excused_ns);

/* A process began or ended, for whatever reason. */
void pl_checks_learn_start(struct pl_checks *c, uint64_t now_ns, uint64_t identity, uint64_t process);
void pl_checks_learn_end(struct pl_checks *c, uint64_t now_ns, uint64_t identity, uint64_t process);

/* ---- the world ---- */
/* Any queue, buffer or file: what ("bulk send buffer", "journal"), how full, how full it may get. */
void pl_checks_queue(struct pl_checks *c, uint64_t now_ns, const char *what, uint64_t bytes, uint64_t bound);

/* Faults begin: rounds missed and stalls are not judged until calm is said. A run begins in storm. */
void pl_checks_storm(struct pl_checks *c, uint64_t now_ns);

/* All faults are over and everybody was restarted; every honest learner must contribute again to every fragment by
 * now_ns + bound_ns (0: no such bound, as in a script). With no faults at all: said at the start of the run. */
void pl_checks_calm(struct pl_checks *c, uint64_t now_ns, uint64_t bound_ns);

/* Time has passed: for what must happen by a deadline. The world calls it about once per simulated second. */
void pl_checks_tick(struct pl_checks *c, uint64_t now_ns);

/* Since calm every honest learner has been in a ROUND record of every fragment. */
bool pl_checks_all_contributed(const struct pl_checks *c);

/* The end of a run that was to reach its budget: last words of the checkers that count (merged95, progress). */
void pl_checks_end(struct pl_checks *c, uint64_t now_ns);

/* Tokens merged so far: sum over ROUND records of published versions of tokens, per fragment. */
uint64_t pl_checks_merged_tokens(const struct pl_checks *c, uint32_t fragment);

#endif
