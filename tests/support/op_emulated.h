/* support/op_emulated.h - the main program of a test of one kernel whose instructions are emulated: every operation against
 * the reference. The test includes amx_emulate.h, then the kernel's source, which holds products and row kernels alike, then
 * this, with EMULATED_KERNEL (the table) and EMULATED_NAME set. Without AVX-512 it is skipped.
 */
#ifndef PL_TEST_OP_EMULATED_H
#define PL_TEST_OP_EMULATED_H

#include "model/cpu/cpu_ops.h"
#include "op_cases.h"

#include <stdio.h>

static void open_engine(struct pl_engine *e, uint32_t threads)
{
    const struct pl_alloc alloc = pl_alloc_system();
    pl_assert(pl_engine_init(e, &alloc, "avx512", threads, NULL) == PELAGO_OK);
    e->kernel = &EMULATED_KERNEL;
    e->ops = pl_cpu_ops(e->kernel);
}

/* Not in main: this file may use instructions that main must ask for first. */
static __attribute__((noinline)) int run(void)
{
    static const struct op_case *const cases[] = {OP_ALL_CASES};
    static struct op_backends emulated;
    emulated.count = 1;
    emulated.at[0].name = EMULATED_NAME;
    open_engine(&emulated.at[0].many, OP_THREADS);
    open_engine(&emulated.at[0].one, 1);
    const int failed = op_run_cases(EMULATED_NAME, cases, sizeof cases / sizeof *cases, &emulated);
    op_backends_close(&emulated);
    return failed;
}

int main(void)
{
    if (pl_cpu_level() < PL_CPU_AVX512) {
        puts("1..0 # SKIP this machine has no AVX-512");
        return 0;
    }
    return run();
}

#endif
