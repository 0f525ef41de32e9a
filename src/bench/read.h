/* bench/read.h - reading memory as fast as the machine can, to know what anything else could reach at most. */
#ifndef PL_BENCH_READ_H
#define PL_BENCH_READ_H

#include <stddef.h>
#include <stdint.h>

/* Some sum of all bytes; at is aligned to 64, bytes a multiple of PL_READ_STEP. */
enum { PL_READ_STEP = 256 };
typedef uint64_t pl_read_fn(const void *at, size_t bytes);

pl_read_fn pl_read_portable, pl_read_avx512;

/* The best for this machine. */
pl_read_fn *pl_read_choose(void);

#endif
