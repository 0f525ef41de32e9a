/* tests/e2e/skew.c - preloaded, it moves the date of a process by PELAGO_SKEW_S seconds. The clock that things are timed
 * with stays as it is. */
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static time_t skew(void)
{
    const char *text = getenv("PELAGO_SKEW_S");
    return text != NULL ? (time_t)strtoll(text, NULL, 10) : 0;
}

int clock_gettime(clockid_t clock, struct timespec *t)
{
    int result = (int)syscall(SYS_clock_gettime, clock, t);
    if (result == 0 && clock == CLOCK_REALTIME)
        t->tv_sec += skew();
    return result;
}

time_t time(time_t *out)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_REALTIME, &t);
    if (out != NULL)
        *out = t.tv_sec;
    return t.tv_sec;
}
