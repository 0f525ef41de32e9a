/* os/clock.h - the one clock of the host: it only goes forward and has no date. */
#ifndef PL_OS_CLOCK_H
#define PL_OS_CLOCK_H

#include <stdint.h>

uint64_t pl_clock_ns(void); /* since some fixed moment, usually the machine's start */

#endif
