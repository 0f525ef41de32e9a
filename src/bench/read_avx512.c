#include "bench/read.h"
#include "bench/read.inc"

PL_READ(pl_read_avx512, 64)
