/* tests/grad/optim_steps.c - steps of our AdamW on raw files of floats, for optim_vs_torch.py.
 *
 *   optim_steps IN OUT ROWS COLS STEPS LR DECAY CLIP
 *
 * IN holds the parameters (ROWS x COLS floats), then the gradient of each step. OUT receives the parameters after each
 * step, then m and v. Machine byte order. beta1 0.9, beta2 0.95, eps 1e-8.
 */
#include "base/pool.h"
#include "optim/inner.h"

#include <stdio.h>
#include <stdlib.h>

static int complain(const char *text)
{
    fprintf(stderr, "optim_steps: %s\n", text);
    return 1;
}

static int train(struct pl_inner *inner, FILE *in, FILE *out, size_t n, int steps, float lr)
{
    float *p = calloc(n, sizeof *p), *g = calloc(n, sizeof *g);
    int failed = p == NULL || g == NULL || fread(p, sizeof *p, n, in) != n;
    for (int t = 0; t < steps && !failed; t++) {
        const struct pl_inner_update u = {.params = p, .grads = g, .lr = lr};
        struct pl_inner_report report;
        failed = fread(g, sizeof *g, n, in) != n || pl_inner_step(inner, &u, &report) != PELAGO_OK ||
                 fwrite(p, sizeof *p, n, out) != n;
    }
    failed = failed || fwrite(pl_inner_m(inner, 0), sizeof *p, n, out) != n ||
             fwrite(pl_inner_v(inner, 0), sizeof *p, n, out) != n;
    free(p);
    free(g);
    return failed;
}

int main(int argc, char **argv)
{
    if (argc != 9)
        return complain("expects IN OUT ROWS COLS STEPS LR DECAY CLIP");
    const uint32_t rows = (uint32_t)strtoul(argv[3], NULL, 10), cols = (uint32_t)strtoul(argv[4], NULL, 10);
    const struct pl_param_group group = {0, rows, cols, PL_INNER_ADAMW, true, 1};
    struct pl_alloc alloc = pl_alloc_system();
    struct pl_pool *pool = pl_pool_new(&alloc, 2);
    struct pl_inner_options o = {
        .groups = &group, .group_count = 1, .floats = (uint64_t)rows * cols, .pool = pool};
    o.rule = (struct pl_inner_rule){.beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f};
    o.rule.weight_decay = strtof(argv[7], NULL);
    o.rule.clip = strtof(argv[8], NULL);
    struct pl_inner inner;
    FILE *in = fopen(argv[1], "rb"), *out = fopen(argv[2], "wb");
    if (pool == NULL || in == NULL || out == NULL || pl_inner_init(&inner, &alloc, &o) != PELAGO_OK)
        return complain("cannot open the files or get the memory");
    int failed = train(&inner, in, out, (size_t)rows * cols, atoi(argv[5]), strtof(argv[6], NULL));
    pl_inner_release(&inner);
    pl_pool_free(pool);
    fclose(in);
    return fclose(out) != 0 || failed ? complain("a file is too short, the disk is full, or a step failed")
                                      : 0;
}
