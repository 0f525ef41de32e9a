/* bench/triad.h - a[i] = b[i] + k * c[i] over large arrays, as STREAM does: what the machine's memory gives at most.
 *
 * Counted are 12 bytes a value. Plain stores also read the line they write; those past the cache do not, and are the
 * faster ones where memory is the limit.
 */
#ifndef PL_BENCH_TRIAD_H
#define PL_BENCH_TRIAD_H

#include <stddef.h>

enum { PL_TRIAD_STEP = 16 }; /* floats: n is a multiple, the arrays are aligned to as many */

typedef void pl_triad_fn(float *a, const float *b, const float *c, float k, size_t n);

pl_triad_fn pl_triad_plain;
pl_triad_fn pl_triad_past_cache; /* on machines without such stores the same as plain */

#endif
