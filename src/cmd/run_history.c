/* cmd/run_history.c - see run_history.h. */
#include "cmd/run_history.h"

#include <stdarg.h>
#include <stdio.h>

static const double first_interval = 0.5, rate_window = 5, gather_window = 20;

static void thin_out(struct pl_run_history *h)
{
    for (uint32_t i = 0; i < PL_CURVE_POINTS / 2; i++)
        h->curve[i] = h->curve[(size_t)2 * i];
    h->points = PL_CURVE_POINTS / 2;
    h->interval *= 2;
}

/* The time before anybody trained, or while one after the other begins, is in no rate. A syncer that came back may know less
 * for a moment; then learners return and bring what they trained meanwhile: what is seen of that is no rate, either. */
static void measure(struct pl_run_history *h, const struct pl_curve_point *p)
{
    double since = p->seconds - h->rate_seconds;
    bool first = h->rate_first <= 0;
    bool back = !first && (p->epoch != h->rate_epoch || p->tokens < h->rate_tokens);
    bool gathering =
        h->rate <= 0 && p->training > h->rate_training && p->seconds - h->rate_first < gather_window;
    if (first && p->training == 0)
        return;
    if (!first && !back && !gathering && since < rate_window)
        return;
    bool known = !first && !back && !gathering && !h->rate_returning;
    h->rate = known ? (double)(p->tokens - h->rate_tokens) / since : 0;
    h->rate_returning = back;
    h->rate_first = first ? p->seconds : h->rate_first;
    h->rate_training = p->training;
    h->rate_seconds = p->seconds;
    h->rate_epoch = p->epoch;
    h->rate_tokens = p->tokens;
}

void pl_history_look(struct pl_run_history *h, const struct pl_curve_point *point)
{
    measure(h, point);
    if (h->interval <= 0)
        h->interval = first_interval;
    if (h->points > 0 && point->seconds - h->curve[h->points - 1].seconds < h->interval)
        return;
    if (h->points == PL_CURVE_POINTS)
        thin_out(h);
    h->curve[h->points++] = *point;
}

const char *pl_history_event(struct pl_run_history *h, double seconds, const char *format, ...)
{
    va_list args;
    struct pl_run_event *e = &h->events[h->event_count++ % PL_RUN_EVENTS];
    e->seconds = seconds;
    va_start(args, format);
    (void)vsnprintf(e->text, sizeof e->text, format, args);
    va_end(args);
    return e->text;
}

const struct pl_run_event *pl_history_at(const struct pl_run_history *h, uint64_t i)
{
    uint64_t first = h->event_count > PL_RUN_EVENTS ? h->event_count - PL_RUN_EVENTS : 0;
    return first + i < h->event_count ? &h->events[(first + i) % PL_RUN_EVENTS] : NULL;
}
