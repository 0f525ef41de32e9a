/* cmd/run_history.h - what is remembered of a run for its report: a curve of fixed size, and what happened to processes. */
#ifndef PL_CMD_RUN_HISTORY_H
#define PL_CMD_RUN_HISTORY_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

enum { PL_CURVE_POINTS = 512, PL_RUN_EVENTS = 4096, PL_RUN_EVENT_TEXT = 96 };

struct pl_curve_point {
    double seconds, loss;
    uint64_t epoch, tokens; /* epoch: which life of the syncer */
    uint32_t alive;
    uint32_t training; /* of those alive, learners that have done a step */
};

struct pl_run_event {
    double seconds;
    char text[PL_RUN_EVENT_TEXT];
};

struct pl_run_history {
    struct pl_curve_point curve[PL_CURVE_POINTS];
    uint32_t points;
    double interval; /* seconds between two points; doubles when the curve is full */
    struct pl_run_event events[PL_RUN_EVENTS]; /* the newest */
    uint64_t event_count;                      /* of all times: number i lies at i modulo PL_RUN_EVENTS */
    /* For the rate: a look some seconds ago, when there was somebody who trains. */
    double rate, rate_seconds; /* rate 0: not known */
    double rate_first;         /* when the first of all such looks was; 0: none yet */
    uint64_t rate_epoch, rate_tokens;
    uint32_t rate_training;
    bool rate_returning; /* that look was the first at a syncer that came back */
};

/* Points that come too soon after the last are left out. Also measures the rate, in tokens a second. */
void pl_history_look(struct pl_run_history *h, const struct pl_curve_point *point);
/* Returns the text as kept. */
const char *pl_history_event(struct pl_run_history *h, double seconds, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Event number i of those kept, the oldest first; NULL after the last. */
const struct pl_run_event *pl_history_at(const struct pl_run_history *h, uint64_t i);

#endif
