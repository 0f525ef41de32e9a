/* lab/run.c - one run: the options of the simulated world, its actions, and what came of it. See lab.h. */
#include "base/check.h"
#include "base/num.h"
#include "lab/world.h"
#include "os/clock.h"

#include <math.h>
#include <string.h>

enum {
    ACTIONS_MAX = 1 << 16,
    RECORD_OVERHEAD = 22, /* bytes that TLS 1.3 adds to a record: header, type, tag */
};
#define MERGE_NS (5 * PL_MS)
#define SYNC_NS (2 * PL_MS)

double pl_lab_row_seconds(const struct pl_lab_row *row)
{
    double rate = 0; /* tokens a second */
    for (uint32_t i = 0; i < row->settings.learners; i++)
        rate += row->speeds[i] * row->batches[i] * row->settings.trainer.seq * 1e9 / (double)row->step_ns;
    return (double)row->settings.total_tokens / rate;
}

static uint64_t nominal_ns(const struct pl_lab_row *row)
{
    return (uint64_t)(pl_lab_row_seconds(row) * 1e9);
}

static struct pl_sim_options options_of(const struct pl_lab_world *w, uint64_t seed)
{
    const struct pl_lab_row *row = w->row;
    const struct pl_settings *s = &w->settings;
    return (struct pl_sim_options){.seed = seed,
                                   .duration_ns = 4 * nominal_ns(row) + 1000 * PL_SEC,
                                   .learners = w->learner_count,
                                   .shards = s->shards,
                                   .fragments = s->fragments,
                                   .quorum = s->quorum,
                                   .overlap_steps = s->overlap,
                                   .period_steps = s->period,
                                   .gamma_ppm = s->gamma_ppm,
                                   .staleness_max = s->staleness_max,
                                   .apply = s->apply,
                                   .fault_mean_ms = 1,
                                   .step_ns = row->step_ns,
                                   .latency_ns = row->latency_ns,
                                   .bandwidth = row->bandwidth,
                                   .checkpoint_ns =
                                       row->checkpoint_ns > 0 ? row->checkpoint_ns : PL_NEVER / 4,
                                   .merge_ns = MERGE_NS,
                                   .sync_ns = SYNC_NS,
                                   .step_tokens = s->trainer.batch * s->trainer.seq,
                                   .budget_tokens = s->total_tokens};
}

static int by_time(const struct pl_action *a, const struct pl_action *b)
{
    return a->at_ns < b->at_ns ? -1 : a->at_ns > b->at_ns;
}

/* Few, and almost in order. */
static void sort(struct pl_action *actions, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) {
        struct pl_action a = actions[i];
        uint32_t at = i;
        for (; at > 0 && by_time(&a, &actions[at - 1]) < 0; at--)
            actions[at] = actions[at - 1];
        actions[at] = a;
    }
}

static enum pelago_status plan_actions(const struct pl_lab_world *w, uint64_t seed, struct pl_action *actions,
                                       uint32_t *count, struct pl_error *err)
{
    const struct pl_lab_row *row = w->row;
    for (uint32_t i = 0; i < w->learner_count; i++)
        actions[(*count)++] = (struct pl_action){
            .kind = PL_ACT_STEP, .node = i + 1, .arg = (uint64_t)((double)row->step_ns / row->speeds[i])};
    uint64_t join_ns = (uint64_t)(row->join_at * (double)nominal_ns(row));
    for (uint32_t i = row->settings.learners; i < w->learner_count; i++) {
        actions[(*count)++] = (struct pl_action){.kind = PL_ACT_ABSENT, .node = i + 1};
        actions[(*count)++] =
            (struct pl_action){.kind = PL_ACT_START, .node = i + 1, .at_ns = pl_max64(join_ns, PL_MS)};
    }
    if (row->trace[0] != '\0')
        PL_TRY(pl_lab_log(row, &w->lab->alloc, actions, ACTIONS_MAX, count, err));
    if (row->kill_every_ns > 0 || row->stop_every_ns > 0)
        PL_TRY(pl_lab_rates(row, seed, options_of(w, seed).duration_ns, &w->lab->alloc, actions, ACTIONS_MAX,
                            count, err));
    pl_assert(*count <= ACTIONS_MAX);
    sort(actions, *count);
    return PELAGO_OK;
}

static void take_result(struct pl_lab_world *w, const struct pl_sim_result *sim)
{
    struct pl_lab_result *r = w->result;
    r->exit = sim->exit;
    memcpy(r->what, sim->what, sizeof r->what);
    r->loss = sim->loss_final;
    r->merged_tokens = sim->merged_tokens;
    r->virtual_s = (double)sim->cluster_ns / 1e9;
    r->rejoins = sim->rejoins;
    r->trace_hash = sim->trace_hash;
    r->bytes_up = sim->wire_bytes[0] + RECORD_OVERHEAD * sim->wire_records[0];
    r->bytes_down = sim->wire_bytes[1] + RECORD_OVERHEAD * sim->wire_records[1];
}

static enum pelago_status simulate(struct pl_lab_world *w, uint64_t seed, struct pl_error *err)
{
    struct pl_action *actions = pl_alloc_zero(&w->lab->alloc, ACTIONS_MAX, sizeof *actions);
    if (actions == NULL)
        return pl_fail(err, PELAGO_NOMEM, "there is no memory for the plan");
    struct pl_sim_plan plan = {.objective = &w->objective, .actions = actions, .cohort_max = w->row->cohort};
    struct pl_sim_options o = options_of(w, seed);
    struct pl_sim_result sim;
    enum pelago_status st = plan_actions(w, seed, actions, &plan.action_count, err);
    if (st == PELAGO_OK) {
        st = pl_sim_run(&o, &plan, &w->lab->alloc, &sim);
        if (st == PELAGO_OK)
            take_result(w, &sim);
        else
            (void)pl_fail(err, st, "there is no memory for the simulated world");
    }
    if (w->failure.status != PELAGO_OK) {
        st = w->failure.status;
        if (err != NULL)
            *err = w->failure;
    }
    pl_alloc_free(&w->lab->alloc, actions, ACTIONS_MAX * sizeof *actions);
    return st;
}

enum pelago_status pl_lab_run(const struct pl_lab *lab, const struct pl_lab_row *row, uint64_t seed,
                              struct pl_lab_result *result, struct pl_error *err)
{
    struct pl_lab_world *w = pl_alloc_zero(&lab->alloc, 1, sizeof *w);
    uint64_t began = pl_clock_ns();
    *result = (struct pl_lab_result){.params = pl_model_config_params(&row->settings.trainer.config)};
    if (w == NULL)
        return pl_fail(err, PELAGO_NOMEM, "there is no memory for a run");
    enum pelago_status st = pl_lab_world_init(w, lab, row, seed, result, err);
    if (st == PELAGO_OK) {
        st = row->settings.algorithm == PL_ALGORITHM_DATA_PARALLEL ? pl_lab_alone(w, err)
                                                                   : simulate(w, seed, err);
        pl_lab_world_release(w);
    }
    pl_alloc_free(&lab->alloc, w, sizeof *w);
    result->wall_s = (double)(pl_clock_ns() - began) / 1e9;
    return st;
}
