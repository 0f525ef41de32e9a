/* host/trouble.h - what keeps one shard from being reached, and when that is said: at once, when it changes, and again at
 * rising intervals for as long as it lasts. Attempts come every few seconds, a log of them would say nothing else. */
#ifndef PL_HOST_TROUBLE_H
#define PL_HOST_TROUBLE_H

#include "base/limits.h"

#include <stdbool.h>
#include <stdint.h>

/* All zero: there is none. */
struct pl_trouble {
    char text[PL_TEXT_MAX + 1]; /* as last said */
    uint64_t since_ns;
    uint64_t again_ns; /* when it is said again */
    uint64_t pause_ns; /* from the last time to again_ns; 0: nothing was said */
};

/* An attempt failed because of `why`. True: that is to be said now. */
bool pl_trouble_is_due(struct pl_trouble *t, const char *why, uint64_t now_ns);

void pl_trouble_over(struct pl_trouble *t);

#endif
