/* os/clock.c - see clock.h. */
#include "os/clock.h"

#include "base/check.h"
#include "base/limits.h"

#include <time.h>

uint64_t pl_clock_ns(void)
{
    struct timespec t;
    int failed = clock_gettime(CLOCK_MONOTONIC, &t);
    pl_assert(failed == 0);
    return (uint64_t)t.tv_sec * PL_SEC + (uint64_t)t.tv_nsec;
}

uint64_t pl_date_s(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_REALTIME, &t);
    return t.tv_sec > 0 ? (uint64_t)t.tv_sec : 0;
}
