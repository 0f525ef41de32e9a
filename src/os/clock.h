/* os/clock.h - the one clock of the host: it only goes forward and has no date. The date is for people, certificates
 * and logs; nothing is timed with it. */
#ifndef PL_OS_CLOCK_H
#define PL_OS_CLOCK_H

#include <stdint.h>

uint64_t pl_clock_ns(void); /* since some fixed moment, usually the machine's start */
uint64_t pl_date_s(void);   /* seconds since 1970 */

#endif
