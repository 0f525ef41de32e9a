/* sim/run.c - one run from options to result: safety phase, liveness phase, the last questions.
 *
 * An assertion anywhere in the run ends it through a jump back here; whatever it had allocated hangs on one list.
 */
#include "base/check.h"
#include "base/fmt.h"
#include "base/num.h"
#include "sim/faults.h"
#include "sim/node_hostile.h"
#include "sim/node_learner.h"
#include "sim/node_syncer.h"

#include <setjmp.h>
#include <string.h>

enum { SAME_TIME_EVENTS_MAX = 1000000 };

/* Faulty loss may exceed the fault-free one at equal merged tokens by a tenth. */
#define LOSS_RATIO_MAX 1.1
#define LOSS_RATIO_RARE 1.3
#define MERGES_SHARE_MIN 0.6

/* ---- the network's ends ---- */

static bool is_hostile(const struct pl_world *w, uint32_t conn)
{
    return pl_net_info(w->net, conn)->machine >= w->o.learners;
}

static void opened(struct pl_world *w, uint32_t conn, enum pl_side side)
{
    if (side == PL_SIDE_SYNCER)
        pl_snode_opened(w, conn);
    else if (is_hostile(w, conn))
        pl_hostile_opened(w, conn);
    else
        pl_lnode_opened(w, conn);
}

static void closed(struct pl_world *w, uint32_t conn, enum pl_side side)
{
    if (side == PL_SIDE_SYNCER)
        pl_snode_closed(w, conn);
    else if (is_hostile(w, conn))
        pl_hostile_closed(w, conn);
    else
        pl_lnode_closed(w, conn);
}

static void message(struct pl_world *w, uint32_t conn, enum pl_side side, const struct pl_msg *msg)
{
    if (side == PL_SIDE_SYNCER)
        pl_snode_message(w, conn, msg);
    else if (is_hostile(w, conn))
        pl_hostile_message(w, conn, msg);
    else
        pl_lnode_message(w, conn, msg);
}

static void bad(struct pl_world *w, uint32_t conn, enum pl_side side, const struct pl_error *error)
{
    if (side == PL_SIDE_SYNCER)
        pl_snode_bad(w, conn, error);
    else if (!is_hostile(w, conn))
        pl_lnode_bad(w, conn, error);
}

static void drained(struct pl_world *w, uint32_t conn, enum pl_side side)
{
    if (side == PL_SIDE_SYNCER)
        pl_snode_pump(w, conn);
    else if (!is_hostile(w, conn))
        pl_lnode_drained(w, conn);
}

static bool reads(struct pl_world *w, uint32_t conn, enum pl_side side)
{
    return side == PL_SIDE_SYNCER || is_hostile(w, conn) || pl_lnode_reads(w, conn);
}

static const struct pl_net_ops net_ops = {pl_snode_accept, opened, closed, message, bad, drained, reads};

/* ---- building the world ---- */

static uint64_t slowest_step_ns(const struct pl_sim_options *o)
{
    return o->step_ns + pl_mul_div(o->step_ns, o->speed_spread_permille, 1000);
}

/* What the learners make in duration_ns when nothing goes wrong. */
static uint64_t natural_budget(const struct pl_sim_options *o)
{
    uint64_t tokens = 0, others = o->learners > 1 ? o->learners - 1 : 1;
    for (uint32_t i = 0; i < o->learners; i++) {
        uint64_t step =
            o->step_ns + pl_mul_div(o->step_ns, (uint64_t)o->speed_spread_permille * i, 1000 * others);
        tokens += pl_mul_div(o->duration_ns, o->step_tokens, step + step / 32);
    }
    return pl_max64(tokens, 1);
}

static bool make_checks(struct pl_world *w)
{
    uint64_t *identities = pl_world_zero(w, w->o.learners, sizeof *identities);
    if (identities == NULL)
        return false;
    for (uint32_t i = 0; i < w->o.learners; i++)
        identities[i] = i + 1;
    uint32_t machines = w->o.learners + w->hostile_count;
    w->checks = pl_checks_new(&w->alloc, &(struct pl_check_setup){.manifest = &w->objective->manifest,
                                                                  .identities = identities,
                                                                  .identity_count = w->o.learners,
                                                                  .learners_max = machines + 2,
                                                                  .conns_max = 8 * machines + 16,
                                                                  .hostile = w->hostile_count > 0});
    pl_alloc_free(&w->alloc, identities, w->o.learners * sizeof *identities);
    if (w->checks == NULL)
        w->status = PELAGO_NOMEM;
    return w->checks != NULL;
}

static bool make_nodes(struct pl_world *w)
{
    w->syncers = pl_world_zero(w, w->o.shards, sizeof *w->syncers);
    w->hosts = pl_world_zero(w, w->o.learners, sizeof *w->hosts);
    w->procs = pl_world_zero(w, w->proc_count, sizeof *w->procs);
    if (w->hostile_count > 0)
        w->hostiles = pl_world_zero(w, w->hostile_count, sizeof *w->hostiles);
    if (w->status != PELAGO_OK)
        return false;
    for (uint32_t i = 0; i < w->o.shards; i++)
        if (!pl_snode_init(w, i))
            return false;
    for (uint32_t i = 0; i < w->o.learners; i++)
        if (!pl_host_init(w, i))
            return false;
    for (uint32_t i = 0; i < w->proc_count; i++)
        if (!pl_lnode_init(w, i))
            return false;
    uint32_t hostile = (w->o.faults & PL_FAULT_HOSTILE) != 0 ? 1 : 0;
    for (uint32_t i = 0; i < w->hostile_count; i++)
        pl_hostile_init(w, i, i >= hostile);
    return true;
}

static bool choose_objective(struct pl_world *w)
{
    w->objective = w->plan != NULL ? w->plan->objective : NULL;
    if (w->objective == NULL) {
        w->toy = pl_toy_new(w);
        w->objective = w->toy != NULL ? &w->toy->o : NULL;
    }
    if (w->objective == NULL)
        return false;
    w->thetas = pl_world_zero(w, w->objective->fragments, sizeof *w->thetas);
    return w->status == PELAGO_OK;
}

const float *const *pl_world_thetas(struct pl_world *w)
{
    for (uint32_t i = 0; i < w->objective->fragments; i++)
        w->thetas[i] = pl_snode_fragment(&w->syncers[w->objective->fragment[i].shard], i)->theta;
    return w->thetas;
}

static bool build(struct pl_world *w)
{
    if (w->o.budget_tokens == 0)
        w->o.budget_tokens = natural_budget(&w->o);
    w->hostile_count = (uint32_t)__builtin_popcount(w->o.faults & (PL_FAULT_HOSTILE | PL_FAULT_GARBAGE));
    w->proc_count = 2 * w->o.learners;
    pl_prng_seed(&w->nodes_prng, w->o.seed, PL_STREAM_NODES);
    pl_prng_seed(&w->faults_prng, w->o.seed, PL_STREAM_FAULTS);
    if (!choose_objective(w) || !make_checks(w))
        return false;
    w->net = pl_net_new(w, &(struct pl_net_setup){.machines = w->o.learners + w->hostile_count,
                                                  .shards = w->o.shards,
                                                  .latency_ns = w->o.latency_ns,
                                                  .bandwidth = w->o.bandwidth,
                                                  .seed = w->o.seed,
                                                  .ops = net_ops});
    return w->net != NULL && make_nodes(w);
}

/* ---- phases ---- */

/* A learner has to notice a dead connection and find its way back; then it is asked for every fragment within a few
 * cycles. One whose link was slow takes part only now and then (up to every PL_STRIDE_MAX-th cycle), and doubles that
 * with every two rounds that go well: one of its n fragments comes every stride / n cycles. */
static uint64_t contribute_bound_ns(const struct pl_world *w)
{
    const uint32_t slow = PL_FAULT_SLOW_LINK | PL_FAULT_STALL | PL_FAULT_PARTITION | PL_FAULT_LEARNER_FREEZE |
                          PL_FAULT_HALF_OPEN | PL_FAULT_RESET;
    uint64_t cycles = 6;
    if ((w->o.faults & slow) != 0)
        cycles += 4 * PL_STRIDE_MAX / (w->o.fragments / w->o.shards);
    return 90 * PL_SEC + cycles * w->o.period_steps * slowest_step_ns(&w->o);
}

static void begin_calm(struct pl_world *w)
{
    pl_checks_calm(w->checks, w->now_ns, contribute_bound_ns(w));
}

static void start_learner(struct pl_world *w, const struct pl_sim_ev *ev)
{
    if (!w->hosts[ev->who].absent)
        pl_host_start(w, ev->who, false);
}

static void planned(struct pl_world *w, const struct pl_sim_ev *ev)
{
    pl_world_act(w, &w->plan->actions[ev->arg]);
}

static void heal(struct pl_world *w, const struct pl_sim_ev *ev)
{
    (void)ev;
    pl_faults_heal(w);
    begin_calm(w);
}

static bool is_complete(const struct pl_world *w)
{
    for (uint32_t i = 0; i < w->o.shards; i++)
        if (!w->syncers[i].finished)
            return false;
    for (uint32_t i = 0; i < w->o.learners; i++)
        if (!w->hosts[i].done && (w->toy != NULL || pl_host_running(w, i)))
            return false;
    return true;
}

static void every_second(struct pl_world *w, const struct pl_sim_ev *ev)
{
    pl_checks_tick(w->checks, w->now_ns);
    pl_checks_queue(w->checks, w->now_ns, "events", w->heap_len, 100000 + 1000 * (uint64_t)w->o.learners);
    w->over = w->plan != NULL && w->plan->no_end ? w->now_ns >= w->o.duration_ns : is_complete(w);
    struct pl_sim_ev next = *ev;
    next.at = w->now_ns + PL_SEC;
    pl_world_at(w, &next);
}

static void schedule(struct pl_world *w)
{
    for (uint32_t i = 0; w->plan != NULL && i < w->plan->action_count; i++) {
        if (w->plan->actions[i].at_ns == 0)
            pl_world_act(w, &w->plan->actions[i]);
        else
            pl_world_at(w, &(struct pl_sim_ev){.at = w->plan->actions[i].at_ns, .fire = planned, .arg = i});
    }
    for (uint32_t i = 0; i < w->o.shards; i++)
        pl_snode_start(w, &w->syncers[i]);
    for (uint32_t i = 0; i < w->o.learners; i++)
        pl_world_at(w, &(struct pl_sim_ev){.at = 10 * PL_MS + pl_prng_below(&w->nodes_prng, 500 * PL_MS),
                                           .fire = start_learner,
                                           .who = i});
    pl_world_at(w, &(struct pl_sim_ev){.at = PL_SEC, .fire = every_second});
    bool scripted = w->plan != NULL && w->plan->action_count > 0;
    if (w->o.faults != 0) {
        pl_faults_begin(w);
        pl_world_at(w, &(struct pl_sim_ev){.at = w->o.duration_ns / 3 * 2, .fire = heal});
    } else if (!scripted) {
        w->healed = true;
        begin_calm(w);
    }
}

/* Until when the run must be complete: the budget is reached at the latest one duration after the last fault. */
static uint64_t limit_ns(const struct pl_world *w)
{
    uint64_t last_ns = w->o.faults != 0 ? w->o.duration_ns / 3 * 2 : 0;
    return last_ns + 2 * w->o.duration_ns + 3 * contribute_bound_ns(w);
}

static void say_incomplete(struct pl_world *w)
{
    for (uint32_t i = 0; i < w->o.learners; i++)
        if (!w->hosts[i].done) {
            pl_world_fail(w, PL_SIM_LIVENESS, "learner %lu is not at the end of the run after %lu s",
                          (uint64_t)i + 1, w->now_ns / PL_SEC);
            return;
        }
    for (uint32_t i = 0; i < w->o.shards; i++)
        if (!w->syncers[i].finished)
            pl_world_fail(w, PL_SIM_LIVENESS, "syncer %lu is not at the end of the run after %lu s",
                          (uint64_t)i, w->now_ns / PL_SEC);
}

static void ask_checks(struct pl_world *w)
{
    const struct pl_check_failure *f = pl_checks_failure(w->checks);
    if (f != NULL)
        pl_world_fail(w, f->exit, "%s at %lu.%lu s: %s", f->checker, f->time_ns / PL_SEC,
                      f->time_ns / (PL_SEC / 10) % 10, f->text);
    if (w->mem->failed || pl_checks_status(w->checks) != PELAGO_OK)
        w->status = PELAGO_NOMEM;
}

static void loop(struct pl_world *w)
{
    uint64_t limit = limit_ns(w), last_ns = 0, same = 0;
    while (w->status == PELAGO_OK && w->result->exit == PL_SIM_OK && !w->over && pl_world_next(w)) {
        ask_checks(w);
        same = w->now_ns == last_ns ? same + 1 : 0;
        last_ns = w->now_ns;
        if (same > SAME_TIME_EVENTS_MAX)
            pl_world_fail(w, PL_SIM_LIVENESS, "time stands still at %lu ms", w->now_ns / PL_MS);
        if (w->now_ns > limit)
            say_incomplete(w);
    }
}

/* ---- the end ---- */

/* Everybody left with what the syncers have. */
static void compare_values(struct pl_world *w)
{
    for (uint32_t i = 0; i < w->o.learners; i++) {
        const struct pl_lnode *p = &w->procs[w->hosts[i].primary];
        if (w->toy == NULL && !w->hosts[i].done)
            continue; /* down at the end, as the experiment wanted it */
        for (uint32_t k = 0; k < w->objective->fragments; k++) {
            const struct pl_objective_fragment *tf = &w->objective->fragment[k];
            const struct pl_shard_fragment *f = pl_snode_fragment(&w->syncers[tf->shard], k);
            uint64_t digest, version = pl_learner_version(p->core, k, &digest);
            if (version != f->version)
                pl_world_fail(w, PL_SIM_CORRECTNESS,
                              "end: learner %lu left fragment %lu at version %lu, not %lu", (uint64_t)i + 1,
                              (uint64_t)k, version, f->version);
            else if (pl_sim_digest(p->v.anchor + tf->first, tf->count) !=
                     pl_sim_digest(f->broadcast, f->count))
                pl_world_fail(w, PL_SIM_CORRECTNESS, "end: learner %lu left fragment %lu with other values",
                              (uint64_t)i + 1, (uint64_t)k);
        }
    }
}

static void finish(struct pl_world *w)
{
    bool asked = w->plan == NULL || !w->plan->no_end;
    if (w->result->exit == PL_SIM_OK && asked) {
        pl_checks_end(w->checks, w->now_ns);
        compare_values(w);
    }
    ask_checks(w);
    w->result->loss_final = w->objective->ops->loss(w->objective->self, pl_world_thetas(w));
    w->result->merged_tokens = w->merged_value_tokens / w->objective->values;
    w->result->cluster_ns = w->now_ns;
    w->result->trace_hash = w->trace_hash;
}

/* ---- assertions ---- */

static struct {
    jmp_buf env;
    struct pl_sim_result *result;
} caught;

static void on_assert(const char *expr, const char *file, int line)
{
    pl_fmt(caught.result->what, sizeof caught.result->what, "assertion failed: %s (%s:%u)", expr, file,
           (unsigned)line);
    caught.result->exit = PL_SIM_ASSERT;
    longjmp(caught.env, 1);
}

static void live(struct pl_world *w)
{
    if (!build(w)) {
        pl_assert(w->status != PELAGO_OK);
        return;
    }
    schedule(w);
    loop(w);
    if (w->status == PELAGO_OK)
        finish(w);
}

static enum pelago_status run_world(const struct pl_sim_options *o, const struct pl_sim_plan *plan,
                                    const struct pl_alloc *alloc, struct pl_curve *curve,
                                    struct pl_sim_result *result)
{
    struct pl_mem mem;
    struct pl_world *w = pl_alloc_zero(alloc, 1, sizeof *w);
    if (w == NULL)
        return PELAGO_NOMEM;
    memset(result, 0, sizeof *result);
    pl_mem_init(&mem, alloc);
    w->o = *o;
    w->plan = plan;
    w->alloc = pl_mem_alloc(&mem);
    w->mem = &mem;
    w->curve = curve;
    w->result = result;
    pl_assert_handler *before = pl_assert_set_handler(on_assert);
    caught.result = result;
    if (setjmp(caught.env) == 0)
        live(w);
    else
        result->cluster_ns = w->now_ns;
    pl_assert_set_handler(before);
    enum pelago_status status = w->status;
    pl_mem_release(&mem);
    pl_alloc_free(alloc, w, sizeof *w);
    return status;
}

/* The same run without faults; its loss at as many merged tokens. */
static enum pelago_status compare_quality(const struct pl_sim_options *o, const struct pl_alloc *alloc,
                                          struct pl_sim_result *result)
{
    struct pl_sim_options calm = *o;
    struct pl_sim_result other;
    calm.faults = 0;
    struct pl_curve *curve = pl_alloc_zero(alloc, 1, sizeof *curve);
    if (curve == NULL)
        return PELAGO_NOMEM;
    enum pelago_status status = run_world(&calm, NULL, alloc, curve, &other);
    if (status == PELAGO_OK && other.exit != PL_SIM_OK) {
        result->exit = other.exit;
        pl_fmt(result->what, sizeof result->what, "without faults: %s", other.what);
    } else if (status == PELAGO_OK) {
        result->loss_reference = pl_curve_at(curve, (double)result->merged_tokens);
        /* Far fewer merges for the same tokens is a longer period, which costs by itself. */
        bool rare = (double)result->merges < MERGES_SHARE_MIN * (double)other.merges;
        if (result->loss_final > (rare ? LOSS_RATIO_RARE : LOSS_RATIO_MAX) * result->loss_reference) {
            result->exit = PL_SIM_CORRECTNESS;
            pl_fmt(result->what, sizeof result->what,
                   "quality: the loss is %lu permille of the fault-free run's at %lu merged tokens",
                   (uint64_t)(1000 * result->loss_final / result->loss_reference), result->merged_tokens);
        }
    }
    pl_alloc_free(alloc, curve, sizeof *curve);
    return status;
}

enum pelago_status pl_sim_run(const struct pl_sim_options *o, const struct pl_sim_plan *plan,
                              const struct pl_alloc *alloc, struct pl_sim_result *result)
{
    enum pelago_status status = run_world(o, plan, alloc, NULL, result);
    bool real = plan != NULL && plan->objective != NULL;
    bool reference = o->faults != 0 && !real && (plan == NULL || (!plan->no_reference && !plan->no_end));
    if (status == PELAGO_OK && result->exit == PL_SIM_OK && reference)
        status = compare_quality(o, alloc, result);
    return status;
}
