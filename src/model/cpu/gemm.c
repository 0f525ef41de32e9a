#include "model/cpu/gemm.h"

#include "base/check.h"
#include "base/num.h"
#include "model/cpu/kernel.h"
#include "model/cpu/run.h"

#include <string.h>

enum {
    ROW_BLOCK = 32,   /* rows that are turned or converted at a time */
    CHUNK_ROWS = 256, /* rows of one task */
    CHUNK_BYTES =
        512 << 10, /* right operand of one depth block of a task: it stays in the second-level cache, and
                                where there are more blocks shares it with the sums */
    TASKS_PER_THREAD = 4, /* at least, where the shape allows: the last task keeps the others waiting */
};

/* out (m, n) = a (m, k) x b (k, n). */
struct product {
    struct pl_engine *e;
    const struct pl_kernel *kernel;
    uint32_t m, n, k;
    const char *a;
    size_t a_ld;
    const char *b; /* panels */
    size_t b_stride;
    char *out;
    size_t out_ld;
    enum pl_out kind;
    const float *base;
    uint32_t depth, depth_blocks, depth_block; /* k rounded up, in equal blocks of at most kernel->k_block */
    uint32_t chunk_rows, chunk_panels, row_chunks;
    uint32_t row_block; /* rows of a task that are multiplied at a time */
    bool direct;        /* sums are made where they belong: floats, whole blocks and panels */
};

static bool in_floats(const struct pl_kernel *kernel)
{
    return kernel->act_bytes == sizeof(float);
}

static uint32_t chunks(uint32_t all, uint32_t chunk)
{
    return (all + chunk - 1) / chunk;
}

static size_t sums_ld(const struct product *p)
{
    return p->chunk_panels * PL_PANEL + 16;
}

/* Sums of one panel, or of all that a task has where they wait for the next depth block. */
static size_t sums_bytes(const struct product *p)
{
    return (p->depth_blocks > 1 ? p->chunk_rows * sums_ld(p) : (size_t)p->row_block * PL_PANEL) *
           sizeof(float);
}

static size_t thread_bytes(const struct product *p)
{
    size_t padded = p->depth != p->k ? (size_t)p->row_block * p->depth * p->kernel->act_bytes : 0;
    return sums_bytes(p) + padded;
}

static void cut(struct product *p)
{
    uint32_t panels = chunks(p->n, PL_PANEL), wanted = pl_pool_threads(p->e->pool) * TASKS_PER_THREAD;
    if (in_floats(p->kernel)) /* they take longer, and so does waiting for the last */
        wanted *= 2;
    p->depth = pl_round_up(p->k, p->kernel->k_step);
    p->depth_blocks = chunks(p->depth, p->kernel->k_block);
    p->depth_block = pl_round_up(chunks(p->depth, p->depth_blocks), 32);
    p->chunk_panels =
        CHUNK_BYTES / (p->depth_blocks > 1 ? 2u : 1u) / (p->depth_block * PL_PANEL * p->kernel->act_bytes);
    p->chunk_panels = pl_min32(pl_max32(p->chunk_panels, 1), panels);
    p->chunk_rows = CHUNK_ROWS;
    /* Fewer panels first: rows that are not shared out do not make two threads read the same weights. */
    while (chunks(panels, p->chunk_panels) * chunks(p->m, p->chunk_rows) < wanted) {
        if (p->chunk_panels > 4)
            p->chunk_panels = (p->chunk_panels + 1) / 2;
        else if (p->chunk_rows > ROW_BLOCK && p->m > p->chunk_rows / 2)
            p->chunk_rows /= 2;
        else
            break;
    }
    p->row_chunks = chunks(p->m, p->chunk_rows);
    p->row_block = pl_min32(p->kernel->m_block, p->chunk_rows);
    p->direct = (p->kind == PL_OUT_F32 || in_floats(p->kernel)) && p->n % PL_PANEL == 0 &&
                p->m % p->kernel->m_step == 0;
    /* equal shares */
    p->chunk_panels = pl_round_up(chunks(panels, chunks(panels, p->chunk_panels)), p->kernel->n_step);
}

/* The left operand's rows with k padded by zeros, for a depth that is no multiple of the kernel's step. */
static const char *pad_left(const struct product *p, const char *a, uint32_t rows, char *copy)
{
    size_t bytes = p->kernel->act_bytes;
    for (uint32_t r = 0; r < rows; r++) {
        memcpy(copy + (size_t)r * p->depth * bytes, a + r * p->a_ld * bytes, p->k * bytes);
        memset(copy + ((size_t)r * p->depth + p->k) * bytes, 0, (p->depth - p->k) * bytes);
    }
    return copy;
}

/* One panel of rows. */
static void store(const struct product *p, const float *c, size_t c_ld, uint32_t row, uint32_t rows,
                  uint32_t col)
{
    uint32_t cols = pl_min32(PL_PANEL, p->n - col);
    size_t at = row * p->out_ld + col;
    float *out = (float *)(void *)p->out + at;
    if (p->kind == PL_OUT_ACT)
        p->kernel->to_act(p->out + at * p->kernel->act_bytes, p->out_ld, c, c_ld, rows, cols);
    else if (p->kind == PL_OUT_SUM)
        p->kernel->sum_f32(out, p->out_ld, p->base + at, p->out_ld, c, c_ld, rows, cols);
    else
        for (uint32_t r = 0; r < rows; r++)
            memcpy(out + r * p->out_ld, c + r * c_ld, cols * sizeof *c);
}

/* The next rows of the left operand come from far away while these are multiplied. */
static void call_rows(const struct product *p, uint32_t row, uint32_t block)
{
    size_t bytes = p->kernel->act_bytes, k = (size_t)block * p->depth_block;
    for (uint32_t r = row; r < p->m && r < row + p->row_block; r++) {
        const char *at = p->a + (r * p->a_ld + k) * bytes;
        for (size_t byte = 0; byte < pl_min32(p->depth_block, p->k - (uint32_t)k) * bytes; byte += 64)
            __builtin_prefetch(at + byte, 0, 2);
    }
}

/* What a panel's sums are added to, or where they go, comes while they are made. */
static void call_results(const struct product *p, uint32_t row, uint32_t rows, uint32_t col)
{
    size_t bytes = p->kind == PL_OUT_ACT ? p->kernel->act_bytes : sizeof(float);
    const char *at = p->kind == PL_OUT_SUM ? (const char *)p->base : p->out;
    at += (row * p->out_ld + col) * bytes;
    for (uint32_t r = 0; r < rows; r++)
        for (size_t byte = 0; byte < PL_PANEL * bytes; byte += 64)
            __builtin_prefetch(at + r * p->out_ld * bytes + byte, 1);
}

/* The last depth block, panel by panel: sums are stored while they are in the first-level cache. */
static void product_end(const struct product *p, struct pl_mm mm, uint32_t row, uint32_t panel0)
{
    uint32_t panels = mm.panels, rows = mm.m;
    mm.panels = 1;
    for (uint32_t i = 0; i < panels; i++) {
        uint32_t col = (panel0 + i) * PL_PANEL;
        call_results(p, row, rows, col);
        p->kernel->mm(&mm);
        store(p, mm.c, mm.c_ld, row, rows, col);
        mm.b = (const char *)mm.b + p->b_stride;
        if (mm.base != NULL)
            mm.base = mm.c += PL_PANEL;
    }
}

/* Some rows by one chunk of columns, one depth block; the sums are stored after the last. */
static void product_block(const struct product *p, uint32_t row, uint32_t rows, uint32_t panel0,
                          uint32_t block, float *sums, char *padded)
{
    const struct pl_kernel *kernel = p->kernel;
    uint32_t k = block * p->depth_block;
    const char *a = p->a + row * p->a_ld * kernel->act_bytes;
    struct pl_mm mm = {.c = sums,
                       .c_ld = p->depth_blocks > 1 ? sums_ld(p) : PL_PANEL,
                       .a_ld = p->a_ld,
                       .b_stride = p->b_stride,
                       .m = rows,
                       .panels = pl_min32(p->chunk_panels, chunks(p->n, PL_PANEL) - panel0),
                       .k = pl_min32(p->depth_block, p->depth - k),
                       .base = block > 0 ? sums : NULL};
    if (p->direct) {
        size_t at = row * p->out_ld + (size_t)panel0 * PL_PANEL;
        mm.c = (float *)(void *)p->out + at;
        mm.c_ld = p->out_ld;
        mm.base = block > 0 ? mm.c : p->kind == PL_OUT_SUM ? p->base + at : NULL;
    }
    if (p->depth != p->k) {
        a = pad_left(p, a, rows, padded);
        mm.a_ld = p->depth;
    }
    mm.a = a + (size_t)k * kernel->act_bytes;
    mm.b = p->b + panel0 * p->b_stride + (size_t)k * PL_PANEL * kernel->act_bytes;
    if (p->direct || block + 1 < p->depth_blocks)
        kernel->mm(&mm);
    else
        product_end(p, mm, row, panel0);
}

static void product_task(void *user, uint32_t task, uint32_t thread)
{
    const struct product *p = user;
    uint32_t panel0 = task / p->row_chunks * p->chunk_panels;
    uint32_t row0 = task % p->row_chunks * p->chunk_rows;
    uint32_t row1 = pl_min32(p->m, row0 + p->chunk_rows);
    char *scratch = pl_engine_thread_scratch(p->e, thread);
    for (uint32_t block = 0; block < p->depth_blocks; block++)
        for (uint32_t row = row0; row < row1; row += p->row_block) {
            float *sums = (float *)(void *)scratch + (p->depth_blocks > 1 ? (row - row0) * sums_ld(p) : 0);
            if (row + p->row_block < row1)
                call_rows(p, row + p->row_block, block);
            product_block(p, row, pl_min32(p->row_block, row1 - row), panel0, block, sums,
                          scratch + sums_bytes(p));
        }
}

/* After cut() and with the scratch reserved. */
static void product_run(struct product *p)
{
    pl_cpu_run(p->e, chunks(chunks(p->n, PL_PANEL), p->chunk_panels) * p->row_chunks, product_task, p);
}

/* Forward panels first (b = W^T: panels of 32 rows of W), then those for the way back (b = W: panels of 32 columns). */
static size_t forward_bytes(const struct pl_kernel *kernel, uint32_t n, uint32_t k)
{
    return (size_t)((n + PL_PANEL - 1) / PL_PANEL) * pl_panel_bytes(kernel, k);
}

size_t pl_gemm_weight_bytes(const struct pl_kernel *kernel, uint32_t n, uint32_t k)
{
    return forward_bytes(kernel, n, k) + forward_bytes(kernel, k, n);
}

void pl_gemm_weight_pack(struct pl_engine *e, void *packed, const float *w, uint32_t n, uint32_t k,
                         uint32_t row0, uint32_t rows)
{
    const struct pl_kernel *kernel = e->kernel;
    char *forward = packed, *back = forward + forward_bytes(kernel, n, k);
    pl_assert(row0 % PL_PACK_ROWS == 0 && row0 + rows <= n);
    for (uint32_t r = row0; r < row0 + rows; r += PL_PANEL) {
        uint32_t count = pl_min32(PL_PANEL, row0 + rows - r);
        const float *from = w + (size_t)r * k;
        kernel->pack_t_f32(forward + r / PL_PANEL * pl_panel_bytes(kernel, k), from, k, count, k,
                           e->past_cache);
        for (uint32_t col = 0; col < k; col += PL_PANEL)
            kernel->pack_n_f32(back + col / PL_PANEL * pl_panel_bytes(kernel, n) +
                                   (size_t)r * PL_PANEL * kernel->act_bytes,
                               from + col, k, pl_min32(PL_PANEL, k - col), count, e->past_cache);
    }
    if (e->past_cache)
        kernel->fence();
}

static void run_linear(struct pl_engine *e, const struct pl_linear *a, bool back)
{
    const struct pl_kernel *kernel = e->kernel;
    uint32_t n = back ? a->k : a->n, k = back ? a->n : a->k;
    struct product p = {
        .e = e,
        .kernel = kernel,
        .m = a->rows,
        .n = n,
        .k = k,
        .a = a->in,
        .a_ld = a->in_ld,
        .b = (const char *)a->weight + (back ? forward_bytes(kernel, a->n, a->k) : 0),
        .b_stride = pl_panel_bytes(kernel, k),
        .out = a->out,
        .out_ld = a->out_ld,
        .kind = a->kind,
        .base = a->base,
    };
    cut(&p);
    if (pl_engine_reserve(e, thread_bytes(&p), 0))
        product_run(&p);
}

void pl_gemm_linear(struct pl_engine *e, const struct pl_linear *a)
{
    run_linear(e, a, false);
}

void pl_gemm_linear_dx(struct pl_engine *e, const struct pl_linear *a)
{
    run_linear(e, a, true);
}

/* dw (n, k) = dout^T x in. Both operands run along the tokens. The one with fewer columns becomes panels first, for all
 * to read. The other is turned on the way: a task takes a strip of its columns, and k_block tokens at a time transposes
 * them into its own cache, multiplies them with all panels and adds to a strip of sums, so that nothing wide is ever
 * written to memory but the result. When `in` is the wider one the strip of sums is a strip of columns of dw. */
struct weight_gradient {
    struct pl_engine *e;
    const struct pl_kernel *kernel;
    const struct pl_linear_dw *a;
    bool swapped; /* the strips are of in, not of dout */
    const char *wide, *narrow;
    size_t wide_ld, narrow_ld;
    uint32_t wide_cols, narrow_cols, strip;
    char *panels;
    size_t panel_bytes;
};

enum { PANEL_ROWS = 32, STRIPS_PER_THREAD = 6, STRIP_MAX = 128 };

static uint32_t strip_sums_ld(const struct weight_gradient *g)
{
    return pl_round_up(g->narrow_cols, PL_PANEL) + 16;
}

/* PANEL_ROWS tokens become part of every panel; memory is read as it lies. */
static void panel_task(void *user, uint32_t task, uint32_t thread)
{
    const struct weight_gradient *g = user;
    const struct pl_kernel *kernel = g->kernel;
    uint32_t row = task * PANEL_ROWS, rows = pl_min32(PANEL_ROWS, g->a->rows - row);
    (void)thread;
    for (uint32_t col = 0; col < g->narrow_cols; col += PL_PANEL)
        kernel->pack_n(g->panels + col / PL_PANEL * g->panel_bytes +
                           (size_t)row * PL_PANEL * kernel->act_bytes,
                       g->narrow + (row * g->narrow_ld + col) * kernel->act_bytes, g->narrow_ld,
                       pl_min32(PL_PANEL, g->narrow_cols - col), rows);
}

/* The strip's columns of k_block tokens, transposed. */
static void turn_strip(const struct weight_gradient *g, char *turned, uint32_t col0, uint32_t cols,
                       uint32_t row, uint32_t rows)
{
    const struct pl_kernel *kernel = g->kernel;
    for (uint32_t r = 0; r < rows; r += PANEL_ROWS)
        for (uint32_t c = 0; c < cols; c += ROW_BLOCK)
            kernel->transpose(turned + ((size_t)c * kernel->k_block + r) * kernel->act_bytes, kernel->k_block,
                              g->wide + ((row + r) * g->wide_ld + col0 + c) * kernel->act_bytes, g->wide_ld,
                              pl_min32(ROW_BLOCK, cols - c), pl_min32(PANEL_ROWS, rows - r));
}

/* The strip's next tokens come from far away while these are multiplied. */
static void call_strip(const struct weight_gradient *g, uint32_t col0, uint32_t cols, uint32_t row)
{
    size_t bytes = g->kernel->act_bytes;
    uint32_t end = pl_min32(g->a->rows, row + g->kernel->k_block);
    for (uint32_t r = row; r < end; r++)
        for (size_t byte = 0; byte < cols * bytes; byte += 64)
            __builtin_prefetch(g->wide + (r * g->wide_ld + col0) * bytes + byte, 0, 2);
}

static void store_strip(const struct weight_gradient *g, float *sums, uint32_t col0, uint32_t cols,
                        float *turned)
{
    const struct pl_kernel *kernel = g->kernel;
    size_t ld = strip_sums_ld(g), dw_ld = g->a->k;
    uint32_t rows = g->swapped ? g->narrow_cols : cols, width = g->swapped ? cols : g->narrow_cols;
    float *dw = g->a->dw + (g->swapped ? col0 : col0 * dw_ld);
    if (g->swapped) {
        kernel->turn_f32(turned, STRIP_MAX, sums, ld, cols, g->narrow_cols);
        sums = turned;
        ld = STRIP_MAX;
    }
    if (g->a->accumulate)
        kernel->sum_f32(dw, dw_ld, dw, dw_ld, sums, ld, rows, width);
    else if (g->e->past_cache) {
        kernel->copy_past(dw, dw_ld, sums, ld, rows, width);
        kernel->fence();
    } else
        for (uint32_t r = 0; r < rows; r++)
            memcpy(dw + r * dw_ld, sums + r * ld, width * sizeof *sums);
}

static size_t strip_bytes(const struct weight_gradient *g)
{
    size_t turned = (size_t)STRIP_MAX * g->kernel->k_block * g->kernel->act_bytes;
    size_t sums = (size_t)STRIP_MAX * strip_sums_ld(g) * sizeof(float);
    return turned + 2 * sums;
}

static void strip_task(void *user, uint32_t task, uint32_t thread)
{
    const struct weight_gradient *g = user;
    const struct pl_kernel *kernel = g->kernel;
    uint32_t col0 = task * g->strip, cols = pl_min32(g->strip, g->wide_cols - col0);
    char *turned = pl_engine_thread_scratch(g->e, thread);
    float *sums = (float *)(void *)(turned + (size_t)STRIP_MAX * kernel->k_block * kernel->act_bytes);
    struct pl_mm mm = {.c_ld = strip_sums_ld(g),
                       .a_ld = kernel->k_block,
                       .b_stride = g->panel_bytes,
                       .panels = (g->narrow_cols + PL_PANEL - 1) / PL_PANEL};
    for (uint32_t row = 0; row < g->a->rows; row += kernel->k_block) {
        uint32_t rows = pl_min32(kernel->k_block, g->a->rows - row);
        turn_strip(g, turned, col0, cols, row, rows);
        if (in_floats(kernel)) /* products of tiles are done before anything could come */
            call_strip(g, col0, cols, row + rows);
        mm.k = pl_round_up(rows, kernel->k_step);
        mm.b = g->panels + (size_t)row * PL_PANEL * kernel->act_bytes;
        for (uint32_t c = 0; c < cols; c += kernel->m_block) {
            mm.a = turned + (size_t)c * kernel->k_block * kernel->act_bytes;
            mm.c = sums + (size_t)c * mm.c_ld;
            mm.base = row > 0 ? mm.c : NULL;
            mm.m = pl_min32(kernel->m_block, cols - c);
            kernel->mm(&mm);
        }
    }
    store_strip(g, sums, col0, cols, sums + (size_t)STRIP_MAX * mm.c_ld);
}

/* Wide strips read the panels less often; of few strips every thread should get as many. */
static uint32_t strip_of(const struct weight_gradient *g, uint32_t threads)
{
    uint32_t wanted = threads * (in_floats(g->kernel) ? STRIPS_PER_THREAD / 2 : STRIPS_PER_THREAD);
    uint32_t strip = STRIP_MAX, count = chunks(g->wide_cols, strip);
    while (strip > ROW_BLOCK && (count < wanted || (count % threads != 0 && count < 2 * wanted))) {
        strip /= 2;
        count = chunks(g->wide_cols, strip);
    }
    return strip;
}

void pl_gemm_linear_dw(struct pl_engine *e, const struct pl_linear_dw *a)
{
    bool swapped = a->k > a->n;
    struct weight_gradient g = {
        .e = e,
        .kernel = e->kernel,
        .a = a,
        .swapped = swapped,
        .wide = swapped ? a->in : a->dout,
        .wide_ld = swapped ? a->in_ld : a->dout_ld,
        .wide_cols = swapped ? a->k : a->n,
        .narrow = swapped ? a->dout : a->in,
        .narrow_ld = swapped ? a->dout_ld : a->in_ld,
        .narrow_cols = swapped ? a->n : a->k,
        .panel_bytes = pl_panel_bytes(e->kernel, a->rows),
    };
    g.strip = strip_of(&g, pl_pool_threads(e->pool));
    uint32_t panels = (g.narrow_cols + PL_PANEL - 1) / PL_PANEL;
    if (!pl_engine_reserve(e, strip_bytes(&g), panels * g.panel_bytes))
        return;
    g.panels = pl_engine_shared_scratch(e);
    pl_cpu_run(e, (a->rows + PANEL_ROWS - 1) / PANEL_ROWS, panel_task, &g);
    pl_cpu_run(e, chunks(g.wide_cols, g.strip), strip_task, &g);
}

/* Muon's products: both operands are floats and converted first. */
struct convert {
    const struct pl_kernel *kernel;
    const float *a, *b;
    char *left, *right;
    uint32_t m, n, k, left_blocks;
    size_t left_ld;
    bool b_transposed;
};

static void convert_task(void *user, uint32_t task, uint32_t thread)
{
    const struct convert *c = user;
    (void)thread;
    if (task < c->left_blocks) {
        uint32_t row = task * ROW_BLOCK;
        c->kernel->to_act(c->left + row * c->left_ld * c->kernel->act_bytes, c->left_ld,
                          c->a + (size_t)row * c->k, c->k, pl_min32(ROW_BLOCK, c->m - row), c->k);
        return;
    }
    uint32_t panel = task - c->left_blocks, col = panel * PL_PANEL, cols = pl_min32(PL_PANEL, c->n - col);
    char *to = c->right + panel * pl_panel_bytes(c->kernel, c->k);
    if (c->b_transposed)
        c->kernel->pack_t_f32(to, c->b + (size_t)col * c->k, c->k, cols, c->k, false);
    else
        c->kernel->pack_n_f32(to, c->b + col, c->n, cols, c->k, false);
}

void pl_gemm_matmul(struct pl_engine *e, float *c, const float *a, const float *b, uint32_t m, uint32_t n,
                    uint32_t k, bool b_transposed)
{
    const struct pl_kernel *kernel = e->kernel;
    size_t ld = pl_act_ld(k);
    size_t left_bytes = ((size_t)m + PL_ACT_SLACK) * ld * kernel->act_bytes;
    uint32_t panels = (n + PL_PANEL - 1) / PL_PANEL;
    struct product p = {.e = e,
                        .kernel = kernel,
                        .m = m,
                        .n = n,
                        .k = k,
                        .a_ld = ld,
                        .b_stride = pl_panel_bytes(kernel, k),
                        .out = (char *)c,
                        .out_ld = n,
                        .kind = PL_OUT_F32};
    cut(&p);
    if (!pl_engine_reserve(e, thread_bytes(&p), left_bytes + panels * p.b_stride))
        return;
    p.a = pl_engine_shared_scratch(e);
    p.b = p.a + left_bytes;
    struct convert convert = {
        kernel,      a, b, pl_engine_shared_scratch(e),     (char *)pl_engine_shared_scratch(e) + left_bytes,
        m,           n, k, (m + ROW_BLOCK - 1) / ROW_BLOCK, ld,
        b_transposed};
    pl_cpu_run(e, convert.left_blocks + panels, convert_task, &convert);
    product_run(&p);
}
