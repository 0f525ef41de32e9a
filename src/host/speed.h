/* host/speed.h - tokens a second of one learner as a person reads it: what it counted, over the time that passed.
 *
 * Not the core's step time, which drives the clock and is a mean over reports: of those that come all at once each is a very
 * short step, so that a learner that waits for its processor, like its reports, looks many times too fast. This one is a mean over
 * some ten seconds, and over one step where that takes longer, and learners' speeds add up to that of the run.
 */
#ifndef PL_HOST_SPEED_H
#define PL_HOST_SPEED_H

#include <stdbool.h>
#include <stdint.h>

struct pl_speed {
    bool begun;
    uint64_t begin_ns, last_ns; /* of the first look; of the last at which there were more tokens */
    uint64_t tokens;            /* then */
    double mean,
        interval_s; /* the mean lacks what is before begin; the last time between two looks with more tokens */
};

/* The count now. One that is smaller is another process's: the mean begins anew. */
void pl_speed_look(struct pl_speed *s, uint64_t tokens, uint64_t now_ns);
/* It was away: the time of that is no time of work. */
void pl_speed_begin(struct pl_speed *s);
/* Tokens a second; falls while nothing comes for far longer than usual; 0: not known. */
double pl_speed_now(const struct pl_speed *s, uint64_t now_ns);

#endif
