/* support/op_memory.c - see op_memory.h.
 *
 * A block: 64 bytes in front, rows * ld elements, and behind them the slack rows that activations have, 64 bytes for
 * other outputs, nothing for other inputs, so that a sanitizer sees who reads on.
 */
#include "op_memory.h"

#include "base/bf16.h"
#include "base/check.h"

#include <stdlib.h>
#include <string.h>

enum { GUARD_BYTES = 64 };
static const uint16_t canary = 0x7fe5; /* NaN as bfloat16, and twice in a row NaN as float */

static void *get(size_t bytes)
{
    void *p = NULL;
    pl_assert(posix_memalign(&p, 64, bytes > 0 ? bytes : 1) == 0);
    return p;
}

/* ---- setup ---- */

static struct op_buf *add(struct op_rig *r, const char *name, enum op_type type, enum op_use use,
                          uint32_t rows, uint32_t cols)
{
    const size_t bytes = (size_t)rows * cols * sizeof(float);
    struct op_buf *b = &r->bufs[r->count++];
    pl_assert(r->count <= OP_BUFS && rows > 0 && cols > 0);
    *b = (struct op_buf){.name = name, .type = type, .use = use, .rows = rows, .cols = cols, .home = b};
    b->ld = type == OP_ACT ? op_ld(r, cols) : cols;
    b->values = get(bytes);
    if (use != OP_IN) {
        b->expected = get(bytes);
        b->got[0] = get(bytes);
        b->got[1] = get(bytes);
    }
    return b;
}

/* The sum of four numbers of 16 bits: deviation 37837. */
static float draw(struct op_rig *r, double deviation)
{
    const uint64_t x = pl_prng_next(&r->prng);
    const int64_t sum =
        (int64_t)((x & 0xffff) + (x >> 16 & 0xffff) + (x >> 32 & 0xffff) + (x >> 48)) - 131070;
    return (float)((double)sum / 37837 * deviation);
}

static void draw_all(struct op_rig *r, struct op_buf *b, double deviation)
{
    for (size_t i = 0; i < (size_t)b->rows * b->cols; i++)
        b->values[i] = draw(r, deviation);
    if (b->type == OP_ACT || b->type == OP_WEIGHT)
        op_round(r, b);
    for (size_t i = 0; i < (size_t)b->rows * b->cols && b->type == OP_BF16; i++)
        b->values[i] = pl_bf16_to_float(pl_bf16_of_float(b->values[i]));
}

struct op_buf *op_in(struct op_rig *r, const char *name, enum op_type type, uint32_t rows, uint32_t cols,
                     double deviation)
{
    struct op_buf *b = add(r, name, type, OP_IN, rows, cols);
    draw_all(r, b, deviation);
    return b;
}

struct op_buf *op_out(struct op_rig *r, const char *name, enum op_type type, uint32_t rows, uint32_t cols,
                      double tolerance_f32, double tolerance_bf16)
{
    struct op_buf *b = add(r, name, type, OP_OUT, rows, cols);
    b->tolerance = r->act_bytes == 2 ? tolerance_bf16 : tolerance_f32;
    b->floor = 0.1;
    return b;
}

struct op_buf *op_inout(struct op_rig *r, const char *name, enum op_type type, uint32_t rows, uint32_t cols,
                        double tolerance_f32, double tolerance_bf16)
{
    struct op_buf *b = op_out(r, name, type, rows, cols, tolerance_f32, tolerance_bf16);
    b->use = OP_INOUT;
    draw_all(r, b, 1);
    return b;
}

struct op_buf *op_ids(struct op_rig *r, const char *name, uint32_t rows, uint32_t below, bool some_negative)
{
    struct op_buf *b = add(r, name, OP_I32, OP_IN, rows, 1);
    for (uint32_t i = 0; i < rows; i++)
        b->values[i] =
            some_negative && pl_prng_below(&r->prng, 4) == 0 ? -1 : (float)pl_prng_below(&r->prng, below);
    return b;
}

size_t op_ld(const struct op_rig *r, uint32_t cols)
{
    const size_t padded = pl_act_ld(cols);
    return r->serial % 4 == 1 ? padded + 32 : r->serial % 4 == 3 ? cols : padded;
}

void op_share(struct op_rig *r, struct op_buf *out, struct op_buf *in)
{
    pl_assert(in->use == OP_IN && out->use == OP_OUT && in->type == out->type);
    out->ld = in->ld;
    out->home = in;
    r->shares = true;
}

void op_round_values(const struct op_rig *r, float *values, size_t count)
{
    for (size_t i = 0; i < count && r->act_bytes == 2; i++)
        values[i] = pl_bf16_to_float(pl_bf16_of_float(values[i]));
}

void op_round(const struct op_rig *r, struct op_buf *b)
{
    op_round_values(r, b->values, (size_t)b->rows * b->cols);
}

static const struct op_buf *find(const struct op_rig *r, const char *name)
{
    for (uint32_t i = 0; i < r->count; i++)
        if (strcmp(r->bufs[i].name, name) == 0)
            return &r->bufs[i];
    return NULL;
}

void *op_at(const struct op_rig *r, const char *name)
{
    const struct op_buf *b = find(r, name);
    return b != NULL ? b->at : NULL;
}

size_t op_ld_of(const struct op_rig *r, const char *name)
{
    const struct op_buf *b = find(r, name);
    return b != NULL ? b->ld : 0;
}

/* ---- one run ---- */

static size_t element_bytes(const struct op_buf *b, const struct pl_engine *e)
{
    return b->type == OP_BF16 ? 2 : b->type == OP_ACT ? e->ops->act_bytes : 4;
}

static size_t content_bytes(const struct op_buf *b, const struct pl_engine *e)
{
    return b->type == OP_WEIGHT ? e->ops->weight_bytes(e, b->rows, b->cols)
                                : b->rows * b->ld * element_bytes(b, e);
}

static size_t tail_bytes(const struct op_buf *b, const struct pl_engine *e)
{
    if (b->type == OP_ACT)
        return PL_ACT_SLACK * b->ld * element_bytes(b, e);
    return b->written || b->type == OP_WEIGHT ? GUARD_BYTES : 0;
}

static void put(void *at, size_t i, enum op_type type, size_t bytes, float value)
{
    if (type == OP_I32)
        ((int32_t *)at)[i] = (int32_t)value;
    else if (bytes == 2)
        ((uint16_t *)at)[i] = pl_bf16_of_float(value);
    else
        ((float *)at)[i] = value;
}

/* Memory that both the host and the back end's operations can reach. */
static struct pl_block reachable(struct pl_engine *e, size_t bytes)
{
    struct pl_block b = {0};
    if (e->ops->device != NULL)
        pl_assert(pl_engine_memory_new(e, &b, bytes, PL_MEMORY_SHARED));
    else
        b.at = get(bytes); /* no more than that, so that a sanitizer sees who reads on */
    return b;
}

static void leave(struct pl_engine *e, struct pl_block *b)
{
    if (e->ops->device != NULL)
        pl_engine_memory_free(e, b, PL_MEMORY_SHARED);
    else
        free(b->at);
    *b = (struct pl_block){0};
}

/* In pieces of one or more times PL_PACK_ROWS rows, last to first: nobody promised an order. */
static void pack(const struct op_rig *r, const struct op_buf *b, struct pl_engine *e)
{
    const uint32_t step = PL_PACK_ROWS * (1 + r->serial % 3);
    struct pl_block values = reachable(e, (size_t)b->rows * b->cols * sizeof(float));
    memcpy(values.at, b->values, (size_t)b->rows * b->cols * sizeof(float));
    for (uint32_t row = (b->rows - 1) / step * step;; row -= step) {
        const uint32_t rows = b->rows - row < step ? b->rows - row : step;
        e->ops->weight_pack(e, b->at, values.at, b->rows, b->cols, row, rows);
        if (row == 0)
            break;
    }
    pl_engine_finish(e);
    leave(e, &values);
}

static void make(const struct op_rig *r, struct op_buf *b, struct pl_engine *e)
{
    b->block_bytes = GUARD_BYTES + content_bytes(b, e) + tail_bytes(b, e);
    b->memory = reachable(e, b->block_bytes);
    b->block = b->memory.at;
    b->before = get(b->block_bytes);
    b->at = b->block + GUARD_BYTES;
    for (size_t i = 0; i + 2 <= b->block_bytes; i += 2)
        memcpy(b->block + i, &canary, 2);
    memcpy(b->before, b->block, b->block_bytes);
    if (b->type == OP_WEIGHT)
        pack(r, b, e);
    else if (b->use != OP_OUT)
        for (size_t i = 0; i < (size_t)b->rows * b->cols; i++)
            put(b->at, i / b->cols * b->ld + i % b->cols, b->type, element_bytes(b, e), b->values[i]);
    memcpy(b->before + GUARD_BYTES, b->at,
           content_bytes(b, e)); /* packing must not reach the guards either */
}

void op_memory_make(struct op_rig *r, struct pl_engine *e, bool sharing)
{
    for (uint32_t i = 0; i < r->count; i++)
        r->bufs[i].written = r->bufs[i].use != OP_IN;
    for (uint32_t i = 0; i < r->count && sharing; i++)
        r->bufs[i].home->written |= r->bufs[i].written;
    for (uint32_t i = 0; i < r->count; i++)
        if (!sharing || r->bufs[i].home == &r->bufs[i])
            make(r, &r->bufs[i], e);
    for (uint32_t i = 0; i < r->count && sharing; i++)
        r->bufs[i].at = r->bufs[i].home->at;
}

static bool same(const struct op_buf *b, size_t offset, size_t bytes)
{
    return memcmp(b->block + offset, b->before + offset, bytes) == 0;
}

const char *op_memory_spoilt(const struct op_buf *b, const struct pl_engine *e)
{
    if (b->block == NULL)
        return NULL; /* lies in another */
    const size_t content = content_bytes(b, e), size = element_bytes(b, e);
    if (!same(b, 0, GUARD_BYTES))
        return "in front of it";
    if (!same(b, GUARD_BYTES + content, b->block_bytes - GUARD_BYTES - content))
        return "behind its last row";
    if (!b->written)
        return same(b, GUARD_BYTES, content) ? NULL : "though it is an input";
    for (size_t row = 0; row < b->rows && b->type != OP_ACT; row++)
        if (!same(b, GUARD_BYTES + (row * b->ld + b->cols) * size, (b->ld - b->cols) * size))
            return "in the padding of floats";
    return NULL;
}

void op_memory_read(const struct op_buf *b, const struct pl_engine *e, float *values)
{
    const bool wide = element_bytes(b, e) == 4;
    for (size_t i = 0; i < (size_t)b->rows * b->cols; i++) {
        const size_t at = i / b->cols * b->ld + i % b->cols;
        values[i] = wide ? ((const float *)b->at)[at] : pl_bf16_to_float(((const uint16_t *)b->at)[at]);
    }
}

void op_memory_free(struct op_rig *r, struct pl_engine *e)
{
    for (uint32_t i = 0; i < r->count; i++) {
        struct op_buf *b = &r->bufs[i];
        leave(e, &b->memory);
        free(b->before);
        b->block = b->before = NULL;
        b->at = NULL;
    }
}

void op_buffers_free(struct op_rig *r)
{
    for (uint32_t i = 0; i < r->count; i++) {
        struct op_buf *b = &r->bufs[i];
        free(b->values);
        free(b->expected);
        free(b->got[0]);
        free(b->got[1]);
    }
    r->count = 0;
}
