/* fuzz_plan.c - arbitrary text as a plan of faults, unrolled on a small cluster, and as a recorded trace.
 *
 * Whatever is read must unroll in order of time, name only nodes that exist, and end what it began at most once. A trace
 * that is taken must give a plan that is read. */
#include "base/check.h"
#include "chaos/schedule.h"
#include "chaos/trace.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const uint32_t learners[] = {1, 2, 3, 4}, syncers[] = {0, 1};

static void unroll(const struct pl_chaos_plan *plan, const struct pl_alloc *alloc)
{
    struct pl_chaos_schedule s;
    struct pl_chaos_event ev;
    struct pl_error err = {PELAGO_OK, ""};
    uint64_t last = 0;
    if (pl_chaos_schedule_init(&s, plan, learners, 4, syncers, 2, alloc, &err) == PELAGO_OK) {
        for (uint32_t i = 0; i < 10000 && pl_chaos_schedule_next(&s, &ev); i++) {
            pl_assert(ev.at_ns >= last && ev.at_ns <= plan->until_ns);
            pl_assert(ev.node <= 4);
            pl_assert(!ev.undo || pl_chaos_verb_undo_name(ev.action->verb) != NULL);
            last = ev.at_ns;
        }
        while (pl_chaos_schedule_drain(&s, &ev))
            pl_assert(ev.undo);
    } else {
        pl_assert(err.text[0] != '\0');
    }
    pl_chaos_schedule_release(&s);
}

static void read_plan(const char *text, size_t len, const struct pl_alloc *alloc, bool must)
{
    struct pl_chaos_plan plan;
    struct pl_error err = {PELAGO_OK, ""};
    enum pelago_status status = pl_chaos_plan_parse(&plan, text, len, alloc, &err);
    pl_assert(status == PELAGO_OK || (!must && err.text[0] != '\0'));
    if (status != PELAGO_OK)
        return;
    unroll(&plan, alloc);
    pl_chaos_plan_release(&plan);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct pl_alloc alloc = pl_alloc_system();
    struct pl_trace_options o = {.learners = 4, .fold = size % 2 == 0, .time_scale = 10};
    struct pl_error err = {PELAGO_OK, ""};
    struct pl_buf plan;
    read_plan((const char *)data, size, &alloc, false);
    pl_buf_init(&plan, &alloc, 1 << 20);
    enum pelago_status status = pl_trace_to_plan((const char *)data, size, &o, &alloc, &plan, &err);
    pl_assert(status == PELAGO_OK || err.text[0] != '\0');
    if (status == PELAGO_OK && plan.len > 0)
        read_plan((const char *)plan.data, plan.len, &alloc, true);
    pl_buf_release(&plan);
    return 0;
}
