/* model/cpu/cpu_ops.c - operations on rows, shared among the threads in fixed portions.
 *
 * Where rows contribute to a common sum (gradients of norm weights), each portion makes its own part and the parts are
 * added in order: the cut depends on the shape alone, so the bits do not depend on the number of threads.
 */
#include "model/cpu/cpu_ops.h"

#include "base/num.h"
#include "model/cpu/attention.h"
#include "model/cpu/gemm.h"
#include "model/cpu/run.h"
#include "model/engine.h"

#include <string.h>

enum { ROWS = 32, XENT_ROWS = 8, EMBED_COLS = 64, GEMV_BYTES = 1 << 20 };

struct rows {
    const struct pl_kernel *kernel;
    const void *args;
    uint32_t rows, portion;
    float *parts; /* (portions, part_floats) */
    size_t part_floats;
};

static uint32_t portions(uint32_t rows, uint32_t portion)
{
    return (rows + portion - 1) / portion;
}

/* One task: the rows of portion number task. */
#define ROW_TASK(op)                                                                                         \
    static void op##_task(void *user, uint32_t task, uint32_t thread)                                        \
    {                                                                                                        \
        const struct rows *r = user;                                                                         \
        (void)thread;                                                                                        \
        r->kernel->op(r->args, task * r->portion, pl_min32(r->rows, (task + 1) * r->portion));               \
    }                                                                                                        \
    static void cpu_##op(struct pl_engine *e, const struct pl_##op *a)                                       \
    {                                                                                                        \
        struct rows r = {.kernel = e->kernel, .args = a, .rows = a->rows, .portion = ROWS};                  \
        pl_cpu_run(e, portions(a->rows, ROWS), op##_task, &r);                                               \
    }
ROW_TASK(norm)
ROW_TASK(rotary)
ROW_TASK(swiglu)
ROW_TASK(swiglu_dx)

static void xent_task(void *user, uint32_t task, uint32_t thread)
{
    const struct rows *r = user;
    (void)thread;
    r->kernel->xent(r->args, task * r->portion, pl_min32(r->rows, (task + 1) * r->portion));
}

static void cpu_xent(struct pl_engine *e, const struct pl_xent *a)
{
    struct rows r = {.kernel = e->kernel, .args = a, .rows = a->rows, .portion = XENT_ROWS};
    pl_cpu_run(e, portions(a->rows, XENT_ROWS), xent_task, &r);
}

/* out = or += the parts, in their order. */
static void add_parts(float *out, const float *parts, size_t stride, uint32_t count, uint32_t floats,
                      bool accumulate)
{
    if (!accumulate)
        memset(out, 0, floats * sizeof *out);
    for (uint32_t p = 0; p < count; p++)
        for (uint32_t i = 0; i < floats; i++)
            out[i] += parts[p * stride + i];
}

static void norm_dx_task(void *user, uint32_t task, uint32_t thread)
{
    const struct rows *r = user;
    (void)thread;
    r->kernel->norm_dx(r->args, task * r->portion, pl_min32(r->rows, (task + 1) * r->portion),
                       r->parts + task * r->part_floats);
}

static void cpu_norm_dx(struct pl_engine *e, const struct pl_norm_dx *a)
{
    uint32_t count = portions(a->rows, ROWS);
    struct rows r = {.kernel = e->kernel, .args = a, .rows = a->rows, .portion = ROWS, .part_floats = a->c};
    if (!pl_engine_reserve(e, 0, count * r.part_floats * sizeof(float)))
        return;
    r.parts = pl_engine_shared_scratch(e);
    pl_cpu_run(e, count, norm_dx_task, &r);
    add_parts(a->dw, r.parts, r.part_floats, count, a->c, a->accumulate);
}

static void rotary_dx_task(void *user, uint32_t task, uint32_t thread)
{
    const struct rows *r = user;
    (void)thread;
    r->kernel->rotary_dx(r->args, task * r->portion, pl_min32(r->rows, (task + 1) * r->portion),
                         r->parts != NULL ? r->parts + task * r->part_floats : NULL);
}

static void cpu_rotary_dx(struct pl_engine *e, const struct pl_rotary_dx *a)
{
    uint32_t count = portions(a->rows, ROWS), d = a->head_dim;
    struct rows r = {
        .kernel = e->kernel, .args = a, .rows = a->rows, .portion = ROWS, .part_floats = 2 * (size_t)d};
    if (a->q_w != NULL) {
        if (!pl_engine_reserve(e, 0, count * r.part_floats * sizeof(float)))
            return;
        r.parts = pl_engine_shared_scratch(e);
    }
    pl_cpu_run(e, count, rotary_dx_task, &r);
    if (a->q_w != NULL) {
        add_parts(a->dq_w, r.parts, r.part_floats, count, d, a->accumulate);
        add_parts(a->dk_w, r.parts + d, r.part_floats, count, d, a->accumulate);
    }
}

struct embed {
    float *to;
    const float *from;
    const int32_t *tokens;
    uint32_t rows, c;
};

static void embed_task(void *user, uint32_t task, uint32_t thread)
{
    const struct embed *m = user;
    (void)thread;
    for (uint32_t r = task * ROWS; r < m->rows && r < (task + 1) * ROWS; r++)
        memcpy(m->to + (size_t)r * m->c, m->from + (size_t)m->tokens[r] * m->c, m->c * sizeof(float));
}

static void cpu_embed(struct pl_engine *e, float *x, const float *table, const int32_t *tokens, uint32_t rows,
                      uint32_t c)
{
    struct embed m = {x, table, tokens, rows, c};
    pl_cpu_run(e, portions(rows, ROWS), embed_task, &m);
}

/* A token may come twice, so the threads share the columns, not the rows. */
static void embed_dw_task(void *user, uint32_t task, uint32_t thread)
{
    const struct embed *m = user;
    uint32_t first = task * EMBED_COLS, last = pl_min32(m->c, first + EMBED_COLS);
    (void)thread;
    for (uint32_t r = 0; r < m->rows; r++) {
        float *to = m->to + (size_t)m->tokens[r] * m->c;
        const float *from = m->from + (size_t)r * m->c;
        for (uint32_t i = first; i < last; i++)
            to[i] += from[i];
    }
}

static void cpu_embed_dw(struct pl_engine *e, float *dtable, const float *dx, const int32_t *tokens,
                         uint32_t rows, uint32_t c)
{
    struct embed m = {dtable, dx, tokens, rows, c};
    pl_cpu_run(e, portions(c, EMBED_COLS), embed_dw_task, &m);
}

struct cast {
    const struct pl_kernel *kernel;
    void *out;
    size_t out_ld;
    const void *in;
    size_t in_ld;
    uint32_t rows, c;
    bool to_act;
};

static void cast_task(void *user, uint32_t task, uint32_t thread)
{
    const struct cast *m = user;
    size_t row = (size_t)task * ROWS;
    uint32_t rows = pl_min32(ROWS, m->rows - task * ROWS);
    (void)thread;
    if (m->to_act)
        m->kernel->to_act((char *)m->out + row * m->out_ld * m->kernel->act_bytes, m->out_ld,
                          (const float *)m->in + row * m->in_ld, m->in_ld, rows, m->c);
    else
        m->kernel->to_f32((float *)m->out + row * m->out_ld, m->out_ld,
                          (const char *)m->in + row * m->in_ld * m->kernel->act_bytes, m->in_ld, rows, m->c);
}

static void cpu_to_act(struct pl_engine *e, void *out, size_t out_ld, const float *in, uint32_t rows,
                       uint32_t c)
{
    struct cast m = {e->kernel, out, out_ld, in, c, rows, c, true};
    pl_cpu_run(e, portions(rows, ROWS), cast_task, &m);
}

static void cpu_to_f32(struct pl_engine *e, float *out, const void *in, size_t in_ld, uint32_t rows,
                       uint32_t c)
{
    struct cast m = {e->kernel, out, c, in, in_ld, rows, c, false};
    pl_cpu_run(e, portions(rows, ROWS), cast_task, &m);
}

struct gemv {
    const struct pl_kernel *kernel;
    float *y;
    const float *x;
    const uint16_t *w;
    uint32_t rows, n, k, portion;
};

static void gemv_task(void *user, uint32_t task, uint32_t thread)
{
    const struct gemv *g = user;
    (void)thread;
    g->kernel->gemv(g->y, g->x, g->w, g->rows, g->n, g->k, task * g->portion,
                    pl_min32(g->n, (task + 1) * g->portion));
}

/* Every row of the weight is a result of its own, so the cut may follow the number of threads. Memory is fastest when
 * each thread reads on and on: as few portions as possible, of equal size, none so large that the others wait long. */
static uint32_t gemv_portion(const struct pl_engine *e, uint32_t n, uint32_t k)
{
    uint32_t threads = pl_pool_threads(e->pool), most = pl_max32(4, GEMV_BYTES / 2 / k);
    uint32_t each = portions(n, threads * most);
    return (portions(n, threads * each) + 3) / 4 * 4;
}

static void cpu_gemv(struct pl_engine *e, float *y, const float *x, const uint16_t *w, uint32_t rows,
                     uint32_t n, uint32_t k)
{
    struct gemv g = {e->kernel, y, x, w, rows, n, k, gemv_portion(e, n, k)};
    pl_cpu_run(e, portions(n, g.portion), gemv_task, &g);
}

struct decode {
    const struct pl_kernel *kernel;
    const struct pl_decode *args;
};

static void decode_task(void *user, uint32_t task, uint32_t thread)
{
    const struct decode *d = user;
    (void)thread;
    d->kernel->decode(d->args, task, task + 1);
}

static void cpu_decode(struct pl_engine *e, const struct pl_decode *a)
{
    struct decode d = {e->kernel, a};
    pl_cpu_run(e, a->heads, decode_task, &d);
}

static size_t cpu_weight_bytes(const struct pl_engine *e, uint32_t n, uint32_t k)
{
    return pl_gemm_weight_bytes(e->kernel, n, k);
}

#define CPU_OPS(bytes)                                                                                       \
    {                                                                                                        \
        .act_bytes = (bytes), .logit_rows = PL_LOGIT_ROWS, .weight_bytes = cpu_weight_bytes,                 \
        .weight_pack = pl_gemm_weight_pack, .linear = pl_gemm_linear, .linear_dx = pl_gemm_linear_dx,        \
        .linear_dw = pl_gemm_linear_dw, .norm = cpu_norm, .norm_dx = cpu_norm_dx, .rotary = cpu_rotary,      \
        .rotary_dx = cpu_rotary_dx, .attention = pl_cpu_attention, .attention_dx = pl_cpu_attention_dx,      \
        .swiglu = cpu_swiglu, .swiglu_dx = cpu_swiglu_dx, .xent = cpu_xent, .embed = cpu_embed,              \
        .embed_dw = cpu_embed_dw, .to_act = cpu_to_act, .to_f32 = cpu_to_f32, .matmul = pl_gemm_matmul,      \
        .gemv = cpu_gemv, .decode = cpu_decode,                                                              \
    }

static const struct pl_ops floats = CPU_OPS(4);
static const struct pl_ops halves = CPU_OPS(2);

const struct pl_ops *pl_cpu_ops(const struct pl_kernel *kernel)
{
    return kernel->act_bytes == 4 ? &floats : &halves;
}
