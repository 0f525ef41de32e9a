/* grad/ops_elsewhere.c - the portable back end on a CPU that is not this machine's: every operation against the reference.
 *
 *     ops_elsewhere [SEED]
 *
 * It needs base, model and tests/support/op_*.c but op_main.c, and no library, so that scripts/check_aarch64.sh can
 * compile it into one static program. One line for each operation; leaves with 1 when one differs.
 */
#include "base/check.h"
#include "op_cases.h"

#include <stdio.h>
#include <stdlib.h>

static void open_engine(struct pl_engine *e, uint32_t threads)
{
    const struct pl_alloc alloc = pl_alloc_system();
    pl_assert(pl_engine_init(e, &alloc, NULL, threads, NULL) == PELAGO_OK);
}

int main(int argc, char **argv)
{
    static const struct op_case *const cases[] = {OP_ALL_CASES};
    static struct op_backends best = {.count = 1};
    const uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    uint32_t failed = 0;
    open_engine(&best.at[0].many, OP_THREADS);
    open_engine(&best.at[0].one, 1);
    best.at[0].name = best.at[0].many.name;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const uint32_t failures = op_check(cases[i], &best, seed, false);
        printf("%s %s on %s\n", failures == 0 ? "ok     " : "FAILED ", cases[i]->name, best.at[0].name);
        (void)fflush(stdout);
        failed += failures > 0;
    }
    pl_engine_release(&best.at[0].many);
    pl_engine_release(&best.at[0].one);
    return failed > 0;
}
