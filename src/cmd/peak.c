/* cmd/peak.c - see peak.h. */
#include "cmd/peak.h"

#include "os/clock.h"

struct product {
    struct pl_engine *e;
    uint32_t size;
    struct pl_block in, out, floats, packed;
};

static void pack(void *user, uint32_t task, uint32_t thread)
{
    struct product *p = user;
    (void)thread;
    p->e->ops->weight_pack(p->e, p->packed.at, (const float *)(const void *)p->floats.at, p->size, p->size,
                           task * PL_PACK_ROWS, PL_PACK_ROWS);
}

/* Numbers as training has them: a processor is faster on zeros. */
static bool prepare(struct product *p)
{
    const struct pl_ops *ops = p->e->ops;
    size_t ld = pl_act_ld(p->size), rows = (size_t)p->size + PL_ACT_SLACK;
    uint64_t count = (uint64_t)p->size * p->size;
    if (!pl_block_new(&p->in, &p->e->alloc, rows * ld * ops->act_bytes) ||
        !pl_block_new(&p->out, &p->e->alloc, rows * ld * ops->act_bytes) ||
        !pl_block_new(&p->floats, &p->e->alloc, count * sizeof(float)) ||
        !pl_block_new(&p->packed, &p->e->alloc, ops->weight_bytes(p->e, p->size, p->size)))
        return false;
    float *floats = (float *)(void *)p->floats.at;
    uint32_t x = 1;
    for (uint64_t i = 0; i < count; i++) {
        x = x * 1664525u + 1013904223u;
        floats[i] = (float)(int32_t)x * 0x1p-31f;
    }
    ops->to_act(p->e, p->in.at, ld, floats, p->size, p->size);
    pl_pool_run(p->e->pool, p->size / PL_PACK_ROWS, pack, p);
    return true;
}

static uint64_t multiply(struct product *p)
{
    size_t ld = pl_act_ld(p->size);
    uint64_t begin = pl_clock_ns();
    p->e->ops->linear(p->e, &(struct pl_linear){.rows = p->size,
                                                .n = p->size,
                                                .k = p->size,
                                                .weight = p->packed.at,
                                                .in = p->in.at,
                                                .in_ld = ld,
                                                .out = p->out.at,
                                                .out_ld = ld,
                                                .kind = PL_OUT_ACT});
    return pl_clock_ns() - begin;
}

static double best_of(struct pl_engine *e, uint32_t size, uint64_t budget_ns)
{
    struct product p = {.e = e, .size = size};
    uint64_t spent = 0, best = UINT64_MAX;
    if (prepare(&p))
        do {
            uint64_t took = multiply(&p);
            best = took < best ? took : best;
            spent += took;
        } while (spent < budget_ns);
    pl_block_free(&p.in, &e->alloc);
    pl_block_free(&p.out, &e->alloc);
    pl_block_free(&p.floats, &e->alloc);
    pl_block_free(&p.packed, &e->alloc);
    return spent > 0 && best > 0 ? 2.0 * size * size * size / (double)best * 1e9 : 0;
}

double pl_peak_flops(struct pl_engine *e)
{
    if (e->ops->device !=
        NULL) /* how fast it could be says little: the bus and the processor take most of a step */
        return 0;
    double small = best_of(e, 256, 20 * PL_MS);
    /* A back end that would take long for a large product has no better one either. */
    if (small < 2e10)
        return small;
    double large = best_of(e, 1024, 180 * PL_MS);
    return large > small ? large : small;
}
