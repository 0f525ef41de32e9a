/* support/fake_device.c - see fake_device.h. */
#include "fake_device.h"

#include "base/check.h"
#include "model/cpu/ref.h"
#include "model/engine.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PIECES = 256 };

/* at: what the caller has; real: where operations work. Of what the host may touch, too, both are readable. */
struct piece {
    struct pl_engine *engine;
    char *at, *real;
    size_t bytes;
    enum pl_memory kind;
};

struct fake_device fake_device;
static struct piece pieces[PIECES];

uint32_t fake_device_pieces(void)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < PIECES; i++)
        count += pieces[i].at != NULL;
    return count;
}

/* Where operations find this address. */
static void *real(const void *at)
{
    for (uint32_t i = 0; i < PIECES; i++) {
        const struct piece *p = &pieces[i];
        if (p->at != NULL && (const char *)at >= p->at && (const char *)at < p->at + p->bytes)
            return p->real + ((const char *)at - p->at);
    }
    return (void *)(uintptr_t)at;
}

#define REAL(field) here.field = real(here.field)

/* ---- the device ---- */

struct fake {
    bool stale; /* parameters have changed, as somebody said */
};

static bool device_open(struct pl_engine *e)
{
    if (fake_device.closed) {
        pl_engine_fail(e, "the fake device is closed");
        return false;
    }
    e->device = calloc(1, sizeof(struct fake));
    return e->device != NULL;
}

static void device_close(struct pl_engine *e)
{
    for (uint32_t i = 0; i < PIECES; i++)
        pl_assert(pieces[i].engine != e);
    free(e->device);
}

static void *pages(size_t bytes, int access)
{
    void *at = mmap(NULL, bytes, access, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pl_assert(at != MAP_FAILED);
    return at;
}

static void *device_memory(struct pl_engine *e, size_t bytes, enum pl_memory kind)
{
    uint32_t i = 0;
    if (fake_device.memory_left > 0 && --fake_device.memory_left == 0)
        return NULL;
    while (pieces[i].at != NULL)
        pl_assert(++i < PIECES);
    struct piece *p = &pieces[i];
    *p = (struct piece){.engine = e, .bytes = bytes, .kind = kind};
    p->at = pages(bytes, kind == PL_MEMORY_OWN ? PROT_NONE : PROT_READ | PROT_WRITE);
    p->real = kind == PL_MEMORY_SHARED ? p->at : pages(bytes, PROT_READ | PROT_WRITE);
    return p->at;
}

static void device_memory_free(struct pl_engine *e, void *at, enum pl_memory kind)
{
    uint32_t i = 0;
    while (pieces[i].at != at)
        pl_assert(++i < PIECES);
    pl_assert(pieces[i].kind == kind && pieces[i].engine == e);
    if (pieces[i].real != pieces[i].at)
        pl_assert(munmap(pieces[i].real, pieces[i].bytes) == 0);
    pl_assert(munmap(at, pieces[i].bytes) == 0);
    pieces[i] = (struct piece){0};
}

static void device_zero(struct pl_engine *e, void *at, size_t bytes)
{
    (void)e;
    memset(real(at), 0, bytes);
}

static void device_put(struct pl_engine *e, void *at, const void *from, size_t bytes)
{
    (void)e;
    memcpy(real(at), real(from), bytes);
}

static void device_begin(struct pl_engine *e)
{
    struct fake *fake = e->device;
    for (uint32_t i = 0; i < PIECES; i++) {
        struct piece *p = &pieces[i];
        if (p->engine == e && p->kind == PL_MEMORY_PARAMS && fake->stale)
            memcpy(p->real, p->at, p->bytes);
        for (size_t at = 0; p->engine == e && p->kind == PL_MEMORY_GRADS && at < p->bytes;
             at += sizeof(float))
            memcpy(p->at + at, &(float){NAN}, sizeof(float));
    }
    fake->stale = false;
}

static void device_home(struct pl_engine *e, void *grads, size_t bytes)
{
    (void)e;
    memcpy(grads, real(grads), bytes);
}

static void device_finish(struct pl_engine *e)
{
    if (fake_device.breaks)
        pl_engine_fail(e, "the fake device broke");
}

/* Too small, always. */
static bool device_polynomial(struct pl_engine *e, float *x, uint32_t r, uint32_t c, const float *poly,
                              uint32_t times)
{
    (void)e;
    (void)x;
    (void)poly;
    return r == 0 && c == 0 && times == 0;
}

/* ---- operations ---- */

static void weight_pack(struct pl_engine *e, void *packed, const float *w, uint32_t n, uint32_t k,
                        uint32_t row0, uint32_t rows)
{
    ((struct fake *)e->device)->stale = true;
    pl_ops_ref.weight_pack(e, real(packed), w, n, k, row0, rows); /* from the host, as a GPU's begin would */
}

static void linear(struct pl_engine *e, const struct pl_linear *a)
{
    struct pl_linear here = *a;
    REAL(weight), REAL(in), REAL(out), REAL(base);
    pl_ops_ref.linear(e, &here);
}

static void linear_dx(struct pl_engine *e, const struct pl_linear *a)
{
    struct pl_linear here = *a;
    REAL(weight), REAL(in), REAL(out), REAL(base);
    pl_ops_ref.linear_dx(e, &here);
}

static void linear_dw(struct pl_engine *e, const struct pl_linear_dw *a)
{
    struct pl_linear_dw here = *a;
    REAL(dout), REAL(in), REAL(dw);
    pl_ops_ref.linear_dw(e, &here);
}

static void norm(struct pl_engine *e, const struct pl_norm *a)
{
    struct pl_norm here = *a;
    REAL(x), REAL(w), REAL(y), REAL(rstd);
    pl_ops_ref.norm(e, &here);
}

static void norm_dx(struct pl_engine *e, const struct pl_norm_dx *a)
{
    struct pl_norm_dx here = *a;
    REAL(dy), REAL(x), REAL(w), REAL(rstd), REAL(dx), REAL(dw), REAL(dx_act);
    pl_ops_ref.norm_dx(e, &here);
}

static void rotary(struct pl_engine *e, const struct pl_rotary *a)
{
    struct pl_rotary here = *a;
    REAL(in), REAL(out), REAL(cos), REAL(sin), REAL(q_w), REAL(k_w), REAL(rstd);
    pl_ops_ref.rotary(e, &here);
}

static void rotary_dx(struct pl_engine *e, const struct pl_rotary_dx *a)
{
    struct pl_rotary_dx here = *a;
    REAL(d), REAL(in), REAL(cos), REAL(sin), REAL(q_w), REAL(k_w), REAL(rstd), REAL(dq_w), REAL(dk_w);
    pl_ops_ref.rotary_dx(e, &here);
}

static void attention(struct pl_engine *e, const struct pl_attention *a)
{
    struct pl_attention here = *a;
    REAL(qkv), REAL(out), REAL(lse);
    pl_ops_ref.attention(e, &here);
}

static void attention_dx(struct pl_engine *e, const struct pl_attention_dx *a)
{
    struct pl_attention_dx here = *a;
    REAL(qkv), REAL(out), REAL(lse), REAL(dout), REAL(dqkv);
    pl_ops_ref.attention_dx(e, &here);
}

static void swiglu(struct pl_engine *e, const struct pl_swiglu *a)
{
    struct pl_swiglu here = *a;
    REAL(gu), REAL(h);
    pl_ops_ref.swiglu(e, &here);
}

static void swiglu_dx(struct pl_engine *e, const struct pl_swiglu_dx *a)
{
    struct pl_swiglu_dx here = *a;
    REAL(gu), REAL(dh), REAL(dgu), REAL(h);
    pl_ops_ref.swiglu_dx(e, &here);
}

static void xent(struct pl_engine *e, const struct pl_xent *a)
{
    struct pl_xent here = *a;
    REAL(logits), REAL(loss);
    pl_ops_ref.xent(e, &here);
}

static void embed(struct pl_engine *e, float *x, const float *table, const int32_t *tokens, uint32_t rows,
                  uint32_t c)
{
    pl_ops_ref.embed(e, real(x), real(table), tokens, rows, c);
}

static void embed_dw(struct pl_engine *e, float *dtable, const float *dx, const int32_t *tokens,
                     uint32_t rows, uint32_t c)
{
    pl_ops_ref.embed_dw(e, real(dtable), real(dx), tokens, rows, c);
}

static const struct pl_device device = {.open = device_open,
                                        .close = device_close,
                                        .memory = device_memory,
                                        .memory_free = device_memory_free,
                                        .zero = device_zero,
                                        .put = device_put,
                                        .begin = device_begin,
                                        .home = device_home,
                                        .finish = device_finish,
                                        .polynomial = device_polynomial};

const struct pl_ops *fake_device_load(struct pl_error *err)
{
    static struct pl_ops ops;
    if (fake_device.absent) {
        (void)pl_fail(err, PELAGO_UNSUPPORTED, "the fake device is absent");
        return NULL;
    }
    ops = (struct pl_ops){.act_bytes = sizeof(float),
                          .logit_rows =
                              fake_device.logit_rows > 0 ? fake_device.logit_rows : pl_ops_ref.logit_rows,
                          .device = &device,
                          .weight_bytes = pl_ops_ref.weight_bytes,
                          .weight_pack = weight_pack,
                          .linear = linear,
                          .linear_dx = linear_dx,
                          .linear_dw = linear_dw,
                          .norm = norm,
                          .norm_dx = norm_dx,
                          .rotary = rotary,
                          .rotary_dx = rotary_dx,
                          .attention = attention,
                          .attention_dx = attention_dx,
                          .swiglu = swiglu,
                          .swiglu_dx = swiglu_dx,
                          .xent = xent,
                          .embed = embed,
                          .embed_dw = embed_dw};
    return &ops;
}
