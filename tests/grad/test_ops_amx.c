/* The AMX kernel on emulated tiles: its products against the reference on machines that have no AMX.
 *
 * The source is compiled into this program with the emulation in front; the rest of it (packing, rows) needs AVX-512
 * with bfloat16, so that without these the test is skipped.
 */
#define PL_AMX_EMULATE
#include "amx_emulate.h"

#define pl_kernel_amx pl_kernel_amx_emulated
#include "model/cpu/x86/kernel_amx.c"

#include "model/cpu/cpu_ops.h"
#include "op_cases.h"

#include <stdio.h>

enum { THREADS = 3 };

static void open_engine(struct pl_engine *e, uint32_t threads)
{
    const struct pl_alloc alloc = pl_alloc_system();
    pl_assert(pl_engine_init(e, &alloc, "bf16", threads, NULL) == PELAGO_OK);
    e->kernel = &pl_kernel_amx_emulated;
    e->ops = pl_cpu_ops(e->kernel);
}

/* Not in main: this file may use instructions that main must ask for first. */
static __attribute__((noinline)) int run(void)
{
    static const struct op_case *const cases[] = {&op_linear, &op_linear_dx, &op_linear_dw,
                                                  &op_matmul, &op_attention, &op_attention_dx};
    static struct op_backends emulated;
    emulated.count = 1;
    emulated.at[0].name = "amx (emulated)";
    open_engine(&emulated.at[0].many, THREADS);
    open_engine(&emulated.at[0].one, 1);
    const int failed = op_run_cases("emulated AMX", cases, sizeof cases / sizeof *cases, &emulated);
    op_backends_close(&emulated);
    return failed;
}

int main(void)
{
    if (pl_cpu_level() < PL_CPU_BF16) {
        puts("1..0 # SKIP this machine has no AVX-512 with bfloat16");
        return 0;
    }
    return run();
}
