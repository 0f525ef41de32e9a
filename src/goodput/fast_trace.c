/* goodput/fast_trace.c - a recorded trace over any number of slices and days.
 *
 * Slice g of the whole cluster is node g mod nodes of copy g / nodes. A copy begins at its own point of the trace, so
 * that copies do not fail together, and goes round when the trace ends. At the start a node is as its last line
 * before that point left it.
 */
#include "goodput/fast_int.h"

#include "base/check.h"

#include <stdlib.h>

/* In trace seconds: how long it lasts, and where the copy begins. */
struct copy {
    double length_s, shift_s;
    uint64_t first; /* its node 0 is this slice of the learner; may lie before it */
};

static int by_time(const void *a, const void *b)
{
    const struct pl_fast_trace_event *x = a, *y = b;
    if (x->at_ns != y->at_ns)
        return x->at_ns < y->at_ns ? -1 : 1;
    return x->slice < y->slice ? -1 : x->slice > y->slice ? 1 : (int)x->up - (int)y->up;
}

static double length_s(const struct pl_goodput_options *o)
{
    double last = o->trace[o->trace_count - 1].t_s;
    return last > 0 ? last * (1 + 1e-9) : 1;
}

/* Which slice of the learner this event of this copy is about, PL_NONE32 for another learner's. */
static uint32_t slice_of(const struct pl_fast_learner *l, uint64_t learner_first, uint64_t copy_first,
                         uint32_t node)
{
    uint64_t g = copy_first + node;
    return g >= learner_first && g - learner_first < l->slices ? (uint32_t)(g - learner_first) : PL_NONE32;
}

/* Calls for each event of the copy within the run; counts when out is NULL. */
static uint32_t spread_copy(const struct pl_fast *f, struct pl_fast_learner *l, uint64_t learner_first,
                            const struct copy *c, struct pl_fast_trace_event *out)
{
    const struct pl_goodput_options *o = f->o;
    double end_s = o->days * 86400 / o->trace_scale;
    uint32_t count = 0;
    for (double lap_s = -c->shift_s; lap_s < end_s; lap_s += c->length_s)
        for (uint32_t i = 0; i < o->trace_count; i++) {
            double at_s = lap_s + o->trace[i].t_s;
            uint32_t slice = slice_of(l, learner_first, c->first, o->trace[i].node);
            if (at_s < 0 || at_s >= end_s || slice == PL_NONE32)
                continue;
            if (out != NULL)
                out[count] = (struct pl_fast_trace_event){(uint64_t)(at_s * o->trace_scale * PL_FAST_SECOND),
                                                          slice, o->trace[i].up};
            count++;
        }
    return count;
}

/* As the last line before the start says, going round; without one the slice is there. */
static void set_start(const struct pl_fast *f, struct pl_fast_learner *l, uint64_t learner_first,
                      const struct copy *c)
{
    const struct pl_goodput_options *o = f->o;
    for (uint32_t pass = 0; pass < 2; pass++) /* later lines first, as they are older */
        for (uint32_t i = 0; i < o->trace_count; i++) {
            bool before = o->trace[i].t_s < c->shift_s;
            uint32_t slice = slice_of(l, learner_first, c->first, o->trace[i].node);
            if (before != (pass == 1) || slice == PL_NONE32)
                continue;
            if (!o->trace[i].up)
                pl_fast_move_slice(l, slice, PL_FAST_DEAD);
            else if (l->slice[slice] == PL_FAST_DEAD)
                pl_fast_move_slice(l, slice, PL_FAST_SPARE); /* the first mesh takes what it needs */
        }
}

/* The most nodes that were up at once are all there are; the others are away. */
double pl_fast_trace_away(const struct pl_goodput_options *o)
{
    int64_t up = 0, most = 0;
    double sum = 0, last_s = 0;
    for (uint32_t i = 0; i < o->trace_count; i++) {
        sum += (double)up * (o->trace[i].t_s - last_s);
        last_s = o->trace[i].t_s;
        up += o->trace[i].up ? 1 : -1;
        most = up > most ? up : most;
    }
    return last_s > 0 ? ((double)most - sum / last_s) / o->trace_nodes : 0;
}

enum pelago_status pl_fast_trace_spread(struct pl_fast *f, struct pl_fast_learner *l, uint64_t first_slice)
{
    const struct pl_goodput_options *o = f->o;
    uint64_t all = o->chips / o->slice_chips + o->learners, copies = all / o->trace_nodes + 1;
    uint64_t from = first_slice / o->trace_nodes, to = (first_slice + l->slices - 1) / o->trace_nodes;
    uint32_t count = 0, filled = 0;
    for (uint32_t pass = 0; pass < 2; pass++) {
        for (uint64_t k = from; k <= to; k++) {
            struct copy c = {.length_s = length_s(o), .first = k * o->trace_nodes};
            c.shift_s = c.length_s * (double)k / (double)copies;
            if (pass == 0) {
                count += spread_copy(f, l, first_slice, &c, NULL);
                set_start(f, l, first_slice, &c);
            } else {
                filled += spread_copy(f, l, first_slice, &c, l->trace + filled);
            }
        }
        if (count == 0)
            break; /* nothing happens to its slices */
        if (pass == 0 && (l->trace = pl_fast_zero(f, count, sizeof *l->trace)) == NULL)
            return PELAGO_NOMEM;
    }
    pl_assert(filled == count);
    l->trace_count = count;
    if (count > 0)
        qsort(l->trace, count, sizeof *l->trace, by_time);
    return PELAGO_OK;
}
