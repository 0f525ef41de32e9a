/* chaos/units.h - numbers as a plan writes them: 250ms, 1.5s, 30m; 25Mbit, 10kB; 64kB, 1e6; 30%.
 *
 * Whole results only, rounded down; what does not fit in 62 bits is refused. Letters are as people write them: k, M and G
 * are thousands, millions, billions; bit is an eighth of a byte.
 */
#ifndef PL_CHAOS_UNITS_H
#define PL_CHAOS_UNITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

bool pl_unit_number(const char *word, uint64_t *out); /* 7, 1e6 */
bool pl_unit_time(const char *word, uint64_t *ns);    /* us, ms, s, m or min, h, d; "0" too */
bool pl_unit_rate(const char *word,
                  uint64_t *byte_s); /* bit, kbit, Mbit, Gbit, B, kB, MB, GB; "/s" may follow */
bool pl_unit_bytes(const char *word, uint64_t *bytes);     /* plain, B, kB, MB, GB */
bool pl_unit_percent(const char *word, uint32_t *percent); /* 1% to 100% */

/* "1.500s": milliseconds are enough for a plan. Returns the length; cap at least 32. */
size_t pl_unit_put_time(char *out, size_t cap, uint64_t ns);

#endif
