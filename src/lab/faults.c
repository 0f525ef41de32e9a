/* lab/faults.c - a log of failures as actions of the simulated world; see world.h. The log is mapped onto learners as
 * `pelago chaos` does it (chaos/trace.h): each learner stands for one machine of the log at a time. */
#include "base/num.h"
#include "chaos/schedule.h"
#include "chaos/trace.h"
#include "data/input.h"
#include "lab/world.h"

/* Down for good until it comes up; its disk stays. */
static bool to_action(const struct pl_chaos_event *ev, struct pl_action *a)
{
    bool down = ev->action->verb == PL_CHAOS_DOWN && !ev->undo;
    bool up = ev->action->verb == PL_CHAOS_UP || (ev->action->verb == PL_CHAOS_DOWN && ev->undo);
    *a = (struct pl_action){.at_ns = pl_max64(ev->at_ns, PL_MS), .node = ev->node};
    a->kind = up ? PL_ACT_START : ev->at_ns == 0 ? PL_ACT_ABSENT : PL_ACT_CRASH;
    if (a->kind == PL_ACT_ABSENT)
        a->at_ns = 0;
    return down || up;
}

static enum pelago_status unroll(const struct pl_chaos_plan *plan, const struct pl_lab_row *row,
                                 const struct pl_alloc *alloc, struct pl_action *actions, uint32_t max,
                                 uint32_t *count, struct pl_error *err)
{
    uint32_t numbers[PL_LAB_LEARNERS_MAX];
    uint32_t none = 0;
    struct pl_chaos_schedule s;
    struct pl_chaos_event ev;
    for (uint32_t i = 0; i < row->settings.learners; i++)
        numbers[i] = i + 1;
    enum pelago_status st =
        pl_chaos_schedule_init(&s, plan, numbers, row->settings.learners, &none, 1, alloc, err);
    while (st == PELAGO_OK && pl_chaos_schedule_next(&s, &ev)) {
        if (*count == max)
            st = pl_fail(err, PELAGO_LIMIT, "%s has more than %u failures", row->trace, max);
        else if (to_action(&ev, &actions[*count]))
            ++*count;
    }
    pl_chaos_schedule_release(&s);
    return st;
}

static enum pelago_status plan_of(const struct pl_lab_row *row, const struct pl_alloc *alloc,
                                  struct pl_buf *log, struct pl_buf *text, struct pl_chaos_plan *plan,
                                  struct pl_error *err)
{
    struct pl_trace_options o = {
        .learners = row->settings.learners, .time_scale = row->trace_scale, .skip_s = row->trace_skip_s};
    PL_TRY(pl_input_read_all(alloc, row->trace, log, err));
    PL_TRY(pl_trace_to_plan((const char *)log->data, log->len, &o, alloc, text, err));
    return pl_chaos_plan_parse(plan, (const char *)text->data, text->len, alloc, err);
}

enum pelago_status pl_lab_faults(const struct pl_lab_row *row, const struct pl_alloc *alloc,
                                 struct pl_action *actions, uint32_t max, uint32_t *count,
                                 struct pl_error *err)
{
    struct pl_chaos_plan plan;
    struct pl_buf log, text;
    pl_buf_init(&log, alloc, PL_TRACE_BYTES_MAX);
    pl_buf_init(&text, alloc, PL_CHAOS_TEXT_MAX);
    enum pelago_status st = plan_of(row, alloc, &log, &text, &plan, err);
    if (st == PELAGO_OK) {
        st = unroll(&plan, row, alloc, actions, max, count, err);
        pl_chaos_plan_release(&plan);
    }
    pl_buf_release(&log);
    pl_buf_release(&text);
    return st;
}
