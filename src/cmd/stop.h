/* cmd/stop.h - signals that ask a process to stop: the first means politely, a second at once.
 *
 * One wish may come as two signals: `timeout` tells the process and then its group, a terminal tells the group, and a
 * supervisor may pass that on. What comes within PL_STOP_ECHO_MS of the first is the same wish.
 */
#ifndef PL_CMD_STOP_H
#define PL_CMD_STOP_H

#include "host/work.h"

#include <stdbool.h>
#include <stdint.h>

enum { PL_STOP_ECHO_MS = 200, PL_STOP_SIGNALS = 3 };

struct pl_stop {
    int caught; /* the first signal; 0: none yet */
    uint64_t at_ms;
};

enum pl_stop_wish { PL_STOP_POLITELY = 1, PL_STOP_ECHO, PL_STOP_AT_ONCE };

/* now_ms: of any clock that never goes back. */
enum pl_stop_wish pl_stop_heard(struct pl_stop *s, int number, uint64_t now_ms);

/* Ctrl-C, SIGTERM and the terminal that goes away come to heard from now on; where nohup says so, the last one does not. */
void pl_stop_listen(uv_loop_t *loop, uv_signal_t signals[static PL_STOP_SIGNALS], uv_signal_cb heard,
                    void *data);
bool pl_stop_hangs_up(void); /* the terminal that goes away is heeded */

#endif
