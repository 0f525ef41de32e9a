/* cmd/stop.c - see stop.h. */
#include "cmd/stop.h"

enum pl_stop_wish pl_stop_heard(struct pl_stop *s, int number, uint64_t now_ms)
{
    if (s->caught != 0)
        return now_ms - s->at_ms < PL_STOP_ECHO_MS ? PL_STOP_ECHO : PL_STOP_AT_ONCE;
    s->caught = number;
    s->at_ms = now_ms;
    return PL_STOP_POLITELY;
}
