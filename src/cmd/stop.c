/* cmd/stop.c - see stop.h. */
#include "cmd/stop.h"

#include <signal.h>

enum pl_stop_wish pl_stop_heard(struct pl_stop *s, int number, uint64_t now_ms)
{
    if (s->caught != 0)
        return now_ms - s->at_ms < PL_STOP_ECHO_MS ? PL_STOP_ECHO : PL_STOP_AT_ONCE;
    s->caught = number;
    s->at_ms = now_ms;
    return PL_STOP_POLITELY;
}

bool pl_stop_hangs_up(void)
{
    struct sigaction now;
    return sigaction(SIGHUP, NULL, &now) != 0 || now.sa_handler != SIG_IGN;
}

void pl_stop_listen(uv_loop_t *loop, uv_signal_t signals[static PL_STOP_SIGNALS], uv_signal_cb heard,
                    void *data)
{
    static const int numbers[PL_STOP_SIGNALS] = {SIGINT, SIGTERM, SIGHUP};
    for (unsigned i = 0; i < PL_STOP_SIGNALS; i++) {
        (void)uv_signal_init(loop, &signals[i]);
        signals[i].data = data;
        if (numbers[i] != SIGHUP || pl_stop_hangs_up())
            (void)uv_signal_start(&signals[i], heard, numbers[i]);
    }
}
