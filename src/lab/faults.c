/* lab/faults.c - failures as actions of the simulated world; see world.h. Logs and rates become plans as they do for
 * `pelago chaos` (chaos/trace.h, chaos/plan.h). */
#include "base/fmt.h"
#include "base/num.h"
#include "chaos/schedule.h"
#include "chaos/trace.h"
#include "data/input.h"
#include "lab/world.h"

/* A learner that goes down stays down until it comes up; one that is killed is back after restart_ns. Its disk stays. One
 * that is stopped stands still until it continues. Returns how many actions it makes. */
static uint32_t to_actions(const struct pl_chaos_event *ev, uint64_t restart_ns, struct pl_action *a)
{
    const enum pl_chaos_verb verb = ev->action->verb;
    const uint64_t at_ns = pl_max64(ev->at_ns, PL_MS);
    if (verb == PL_CHAOS_UP || (verb == PL_CHAOS_DOWN && ev->undo)) {
        a[0] = (struct pl_action){.kind = PL_ACT_START, .at_ns = at_ns, .node = ev->node};
        return 1;
    }
    if (verb == PL_CHAOS_DOWN && ev->at_ns == 0) { /* nobody has started yet */
        a[0] = (struct pl_action){.kind = PL_ACT_ABSENT, .node = ev->node};
        return 1;
    }
    if (verb == PL_CHAOS_STOP) {
        a[0] = (struct pl_action){
            .kind = ev->undo ? PL_ACT_THAW : PL_ACT_FREEZE, .at_ns = at_ns, .node = ev->node};
        return 1;
    }
    if (verb != PL_CHAOS_DOWN && verb != PL_CHAOS_KILL)
        return 0;
    a[0] = (struct pl_action){.kind = PL_ACT_CRASH, .at_ns = at_ns, .node = ev->node};
    a[1] = (struct pl_action){.kind = PL_ACT_START, .at_ns = at_ns + restart_ns, .node = ev->node};
    return verb == PL_CHAOS_KILL ? 2 : 1;
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
        if (*count + 2 > max)
            st = pl_fail(err, PELAGO_LIMIT, "row %s: more than %u failures", row->name, max / 2);
        else
            *count += to_actions(&ev, row->restart_ns, &actions[*count]);
    }
    pl_chaos_schedule_release(&s);
    return st;
}

static enum pelago_status act_on(const char *text, size_t len, const struct pl_lab_row *row,
                                 const struct pl_alloc *alloc, struct pl_action *actions, uint32_t max,
                                 uint32_t *count, struct pl_error *err)
{
    struct pl_chaos_plan plan;
    PL_TRY(pl_chaos_plan_parse(&plan, text, len, alloc, err));
    enum pelago_status st = unroll(&plan, row, alloc, actions, max, count, err);
    pl_chaos_plan_release(&plan);
    return st;
}

static enum pelago_status read_log(const struct pl_lab_row *row, const struct pl_alloc *alloc,
                                   struct pl_buf *log, struct pl_buf *text, struct pl_error *err)
{
    struct pl_trace_options o = {.learners = row->settings.learners,
                                 .fold = row->trace_fold,
                                 .time_scale = row->trace_scale,
                                 .skip_s = row->trace_skip_s};
    PL_TRY(pl_input_read_all(alloc, row->trace, log, err));
    return pl_trace_to_plan((const char *)log->data, log->len, &o, alloc, text, err);
}

enum pelago_status pl_lab_log(const struct pl_lab_row *row, const struct pl_alloc *alloc,
                              struct pl_action *actions, uint32_t max, uint32_t *count, struct pl_error *err)
{
    struct pl_buf log, text;
    pl_buf_init(&log, alloc, PL_TRACE_BYTES_MAX);
    pl_buf_init(&text, alloc, PL_CHAOS_TEXT_MAX);
    enum pelago_status st = read_log(row, alloc, &log, &text, err);
    if (st == PELAGO_OK)
        st = act_on((const char *)text.data, text.len, row, alloc, actions, max, count, err);
    pl_buf_release(&log);
    pl_buf_release(&text);
    return st;
}

static size_t print_rate(char *out, size_t cap, uint64_t every_ns, const char *verb, uint64_t for_ns)
{
    if (every_ns == 0)
        return 0;
    return pl_fmt(out, cap, "about every %lums %s random learner for %lums\n",
                  (unsigned long)(every_ns / PL_MS), verb, (unsigned long)(for_ns / PL_MS));
}

enum pelago_status pl_lab_rates(const struct pl_lab_row *row, uint64_t seed, uint64_t until_ns,
                                const struct pl_alloc *alloc, struct pl_action *actions, uint32_t max,
                                uint32_t *count, struct pl_error *err)
{
    char text[256];
    size_t len = pl_fmt(text, sizeof text, "seed %lu\nuntil %lums\n", (unsigned long)seed,
                        (unsigned long)(until_ns / PL_MS));
    len += print_rate(text + len, sizeof text - len, row->kill_every_ns, "down", row->restart_ns);
    len += print_rate(text + len, sizeof text - len, row->stop_every_ns, "stop", row->stop_ns);
    return act_on(text, len, row, alloc, actions, max, count, err);
}
