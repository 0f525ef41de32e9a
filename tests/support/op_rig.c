/* support/op_rig.c - see op_rig.h: the comparison. Memory is in op_memory.c, what runs it as a test in op_main.c. */
#include "op_rig.h"

#include "base/bf16.h"
#include "base/check.h"
#include "model/cpu/ref.h"
#include "op_memory.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* A single element may be this many times further off than the whole, measured by its size plus the typical one. */
#define ELEMENT_FACTOR 8

enum { REPORTS_MAX = 20 };

static struct pl_engine oracle = {.name = "ref", .ops = &pl_ops_ref};

/* ---- reports ---- */

__attribute__((format(printf, 3, 4))) static void report(struct op_rig *r, const char *backend,
                                                         const char *format, ...)
{
    va_list args;
    if (r->failures++ >= REPORTS_MAX || r->quiet)
        return;
    printf("# %s on %s, shape %u %u %u %u %u %u, variant %u: ", r->c->name, backend, r->shape[0], r->shape[1],
           r->shape[2], r->shape[3], r->shape[4], r->shape[5], r->variant);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    printf("\n");
}

static void compare(struct op_rig *r, const struct op_backend *backend, const struct op_buf *b, double *worst)
{
    const size_t n = (size_t)b->rows * b->cols;
    double difference = 0, norm = 0, element = 0;
    size_t at = 0;
    for (size_t i = 0; i < n; i++)
        norm += (double)b->expected[i] * (double)b->expected[i];
    norm = fmax(norm, (double)n * b->floor * b->floor);
    const double typical = sqrt(norm / (double)n);
    for (size_t i = 0; i < n; i++) {
        const double d = fabs((double)b->got[0][i] - (double)b->expected[i]);
        const double share = d == 0 ? 0 : d / (fabs((double)b->expected[i]) + typical);
        difference += d * d;
        if (!(share <= element)) { /* NaN too */
            element = share;
            at = i;
        }
        if (isnan(element))
            break;
    }
    const double relative = difference == 0 ? 0 : sqrt(difference / norm);
    if (!(relative <= b->tolerance && element <= ELEMENT_FACTOR * b->tolerance))
        report(r, backend->name,
               "%s is off by %.3g (%.3g allowed); worst at row %zu column %zu: %.9g, not %.9g", b->name,
               relative, b->tolerance, at / b->cols, at % b->cols, (double)b->got[0][at],
               (double)b->expected[at]);
    if (b->tolerance > 0)
        *worst = fmax(*worst, fmax(relative, element / ELEMENT_FACTOR) / b->tolerance);
}

static void compare_threads(struct op_rig *r, const struct op_backend *backend, const struct op_buf *b)
{
    for (size_t i = 0; i < (size_t)b->rows * b->cols; i++) {
        if (memcmp(&b->got[0][i], &b->got[1][i], sizeof(float)) == 0)
            continue;
        report(r, backend->name, "%s differs at row %zu column %zu: %.9g with %u threads, %.9g with one",
               b->name, i / b->cols, i % b->cols, (double)b->got[0][i], OP_THREADS, (double)b->got[1][i]);
        return;
    }
}

/* ---- runs ---- */

static bool is_output(const struct op_buf *b)
{
    return b->use != OP_IN;
}

static void run_oracle(struct op_rig *r)
{
    op_memory_make(r, &oracle, false);
    r->c->call(r, &oracle);
    for (uint32_t i = 0; i < r->count; i++) {
        struct op_buf *b = &r->bufs[i];
        if (!is_output(b))
            continue;
        op_memory_read(b, &oracle, b->expected);
        if (b->tolerance <= 0 && b->type == OP_ACT)
            op_round_values(r, b->expected, (size_t)b->rows * b->cols);
    }
    op_memory_free(r, &oracle);
}

/* A GPU that is too small for a shape says so, and the shape is left out. */
static bool is_too_small(struct op_rig *r, const struct op_backend *backend, struct pl_engine *e)
{
    bool small = strstr(e->trouble, "shared memory") != NULL;
    if (!small && e->trouble[0] != '\0')
        report(r, backend->name, "%s", e->trouble);
    if (small)
        e->trouble[0] = '\0';
    return small;
}

/* False: there is nothing to be compared. */
static bool run_backend(struct op_rig *r, const struct op_backend *backend, struct pl_engine *e, int which)
{
    op_memory_make(r, e, true);
    r->c->call(r, e);
    pl_engine_finish(e);
    const bool done = !is_too_small(r, backend, e);
    for (uint32_t i = 0; i < r->count; i++) {
        struct op_buf *b = &r->bufs[i];
        const char *where = op_memory_spoilt(b, e);
        if (where != NULL)
            report(r, backend->name, "%s was written: %s", b->name, where);
        if (is_output(b))
            op_memory_read(b, e, b->got[which]);
    }
    op_memory_free(r, e);
    return done;
}

static void check_backend(struct op_rig *r, struct op_backend *backend, double *worst)
{
    const bool is_ref = backend->many.ops == &pl_ops_ref;
    if (r->c->no_device && backend->many.ops->device != NULL)
        return;
    if (is_ref && !r->shares)
        return; /* it would only be compared with itself */
    if (!run_backend(r, backend, &backend->many, 0) ||
        (!is_ref && !run_backend(r, backend, &backend->one, 1)))
        return;
    for (uint32_t i = 0; i < r->count; i++) {
        if (!is_output(&r->bufs[i]))
            continue;
        compare(r, backend, &r->bufs[i], worst);
        if (!is_ref)
            compare_threads(r, backend, &r->bufs[i]);
    }
}

/* All back ends whose activations have this size. */
static void check_point(struct op_rig *r, struct op_backends *backends, size_t act_bytes, double *worst)
{
    bool any = false;
    for (uint32_t i = 0; i < backends->count; i++)
        any |= backends->at[i].many.ops->act_bytes == act_bytes;
    if (!any)
        return;
    r->act_bytes = act_bytes;
    r->shares = false;
    r->count = 0;
    pl_prng_seed(&r->prng, r->seed, r->serial);
    r->c->setup(r);
    run_oracle(r);
    for (uint32_t i = 0; i < backends->count; i++)
        if (backends->at[i].many.ops->act_bytes == act_bytes)
            check_backend(r, &backends->at[i], &worst[i]);
    op_buffers_free(r);
}

uint32_t op_check(const struct op_case *c, struct op_backends *b, uint64_t seed, bool quiet)
{
    struct op_rig r = {.c = c, .seed = seed, .quiet = quiet};
    double worst[OP_BACKENDS] = {0};
    for (uint32_t s = 0; s < c->shape_count; s++) {
        for (r.variant = 0; r.variant < c->variants; r.variant++, r.serial++) {
            memcpy(r.shape, c->shapes[s], sizeof r.shape);
            check_point(&r, b, 4, worst);
            check_point(&r, b, 2, worst);
        }
    }
    if (quiet)
        return r.failures;
    printf("# %s: %u shapes x %u; worst error over the allowed one:", c->name, c->shape_count, c->variants);
    for (uint32_t i = 0; i < b->count; i++)
        printf(" %s %.2g", b->at[i].name, worst[i]);
    printf("\n");
    return r.failures;
}
