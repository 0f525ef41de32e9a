#include "bench/read.h"

#include "base/cpu.h"
#include "bench/read.inc"

PL_READ(pl_read_portable, 16)

pl_read_fn *pl_read_choose(void)
{
#ifdef __x86_64__
    if (pl_cpu_level() >= PL_CPU_AVX512)
        return pl_read_avx512;
#endif
    return pl_read_portable;
}
