/* base/fmt.h - formatting without stdio, so that pure layers can write sentences.
 *
 * pl_vfmt writes at most cap bytes including the final zero and returns the length of the text written.
 * It knows %s (const char *), %u (unsigned), %lu (uint64_t), %lx (uint64_t, hex) and %%.
 */
#ifndef PL_BASE_FMT_H
#define PL_BASE_FMT_H

#include <stdarg.h>
#include <stddef.h>

size_t pl_vfmt(char *out, size_t cap, const char *format, va_list args);
size_t pl_fmt(char *out, size_t cap, const char *format, ...);

#endif
