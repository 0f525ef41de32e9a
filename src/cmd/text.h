/* cmd/text.h - words of a person read and written: numbers, times, ranges of seeds, and what is echoed of them.
 *
 * Whatever a person or a file gave us goes through pl_text_clip or pl_text_clean before it is shown: a terminal must
 * not obey it, and a sentence must stay one.
 */
#ifndef PL_CMD_TEXT_H
#define PL_CMD_TEXT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

bool pl_text_number(const char *text, uint64_t *out);
bool pl_text_time(const char *text,
                  uint64_t *ns); /* a number and a unit: "250ms", "2s", "90us", "5ns", "3min", "24h", "7d" */
bool pl_text_range(const char *text, uint64_t *first, uint64_t *last); /* "7" or "1..1000", first <= last */

struct pl_text {
    char at[68];
};
struct pl_text
pl_text_clip(const char *word); /* at most 60 characters, "..." after them; others than ASCII as ? */
struct pl_text pl_text_of_time(uint64_t ns); /* in the largest unit that says it exactly: "90s", "250ms" */
void pl_text_clean(char *text);              /* others than printable ASCII become ? */
void pl_text_quote(FILE *out, const char *word); /* as a shell takes it back */

#endif
