/* lab/alone.c - the yardstick: data-parallel training, computed as what it is, one trainer at the whole batch.
 *
 * Bytes are those of a ring all-reduce of the gradients in bf16 over the row's learners: each of them sends, and gets,
 * 2 (M - 1) / M of them a step. Virtual time is that of learners which never wait for it.
 */
#include "base/check.h"
#include "lab/world.h"
#include "os/clock.h"

#include <math.h>

enum { PASS_MAX = 64 }; /* sequences of one pass; more are added up */

static enum pelago_status fetch(void *self, uint64_t first, uint32_t count, uint32_t seq, int32_t *tokens,
                                int32_t *targets, struct pl_error *err)
{
    struct pl_lab_world *w = self;
    for (uint32_t i = 0; i < count; i++) {
        size_t at = (size_t)i * seq;
        PL_TRY(pl_lab_text_fetch(&w->text, 0, first + i, seq, tokens + at, targets + at, err));
    }
    return PELAGO_OK;
}

static enum pelago_status judge_now(struct pl_lab_world *w, const struct pl_trainer *t, double virtual_s)
{
    struct pl_lab_result *r = w->result;
    r->loss = pl_lab_judge(w, t->model->params);
    if (w->failure.status != PELAGO_OK)
        return w->failure.status;
    if (w->row->eval_every > 0 && r->point_count < PL_LAB_POINTS_MAX)
        r->points[r->point_count++] = (struct pl_lab_point){virtual_s, r->tokens, r->loss};
    return PELAGO_OK;
}

static enum pelago_status train(struct pl_lab_world *w, struct pl_trainer *t, struct pl_error *err)
{
    struct pl_lab_result *r = w->result;
    const struct pl_sequences source = {fetch, w};
    struct pl_step_report report;
    while (r->tokens < w->settings.total_tokens) {
        uint64_t began = pl_clock_ns();
        PL_TRY(pl_trainer_step(t, &source, &report, err));
        r->trainer_s += (double)(pl_clock_ns() - began) / 1e9;
        r->tokens += report.tokens;
        r->steps++;
        r->virtual_s = (double)r->steps * (double)w->row->step_ns / 1e9;
        bool last = r->tokens >= w->settings.total_tokens;
        if (last || (w->row->eval_every > 0 && r->tokens >= w->next_eval)) {
            w->next_eval = r->tokens + w->row->eval_every;
            PL_TRY(judge_now(w, t, r->virtual_s));
        }
    }
    return PELAGO_OK;
}

enum pelago_status pl_lab_alone(struct pl_lab_world *w, struct pl_error *err)
{
    struct pl_lab_result *r = w->result;
    struct pl_trainer *t = NULL;
    pl_assert(w->row->global_batch > 0 && !w->row->split);
    uint32_t passes = (w->row->global_batch + PASS_MAX - 1) / PASS_MAX;
    while (w->row->global_batch % passes != 0)
        passes++;
    w->settings.trainer.accumulate = passes;
    PL_TRY(pl_lab_trainer(w, w->row->global_batch / passes, &t, err));
    enum pelago_status st = train(w, t, err);
    if (st != PELAGO_OK && w->failure.status != PELAGO_OK && err != NULL)
        *err = w->failure;
    uint64_t learners = w->settings.learners, gradient = 2 * (uint64_t)t->model->tensors.params;
    r->merged_tokens = r->tokens;
    r->outer_steps = r->steps;
    r->bytes_up = r->bytes_down = r->steps * 2 * (learners - 1) * gradient;
    r->value_digest = pl_values_digest(t->model->params, t->model->tensors.floats);
    pl_trainer_free(t);
    return st;
}
