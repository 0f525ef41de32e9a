#include "model/engine.h"

#include "base/check.h"
#include "base/cpu.h"
#include "base/fmt.h"
#include "model/cpu/cpu_ops.h"
#include "model/cpu/kernel.h"
#include "model/cpu/ref.h"

#include <string.h>

/* Slowest first. ref has no kernel. */
static const struct pl_kernel *const kernels[] = {
    NULL,
    &pl_kernel_portable,
#ifdef __x86_64__
    &pl_kernel_avx2,
    &pl_kernel_avx512,
    &pl_kernel_bf16,
    &pl_kernel_amx,
#endif
};
enum { KERNELS = sizeof kernels / sizeof kernels[0] };

/* Set once, before there are threads. */
static struct {
    const char *name;
    pl_engine_load *load;
} offered;

void pl_engine_offer(const char *name, pl_engine_load *load)
{
    offered.name = name;
    offered.load = load;
}

static bool is_offered(const char *name)
{
    return name != NULL && offered.name != NULL && strcmp(name, offered.name) == 0;
}

static const char *kernel_name(uint32_t index)
{
    return kernels[index] != NULL ? kernels[index]->name : "ref";
}

const char *pl_engine_backend_name(uint32_t index, bool *usable)
{
    if (index == KERNELS && offered.name != NULL) {
        *usable = offered.load(NULL) != NULL;
        return offered.name;
    }
    if (index >= KERNELS)
        return NULL;
    *usable = kernels[index] == NULL || kernels[index]->level <= pl_cpu_level();
    return kernel_name(index);
}

static enum pelago_status choose(const char *name, uint32_t *index, struct pl_error *err)
{
    bool usable = false;
    if (name == NULL) {
        enum pl_cpu_level level = pl_cpu_level();
        if (level == PL_CPU_BF16 && !pl_cpu_bf16_is_fast())
            level = PL_CPU_AVX512;
        for (uint32_t i = 1; i < KERNELS; i++)
            if (kernels[i]->level <= level)
                *index = i;
        return PELAGO_OK;
    }
    for (uint32_t i = 0; i < KERNELS; i++) {
        if (strcmp(pl_engine_backend_name(i, &usable), name) != 0)
            continue;
        if (!usable)
            return pl_fail(err, PELAGO_UNSUPPORTED, "this machine has no %s; its best back end is %s.", name,
                           pl_cpu_level_name(pl_cpu_level()));
        *index = i;
        return PELAGO_OK;
    }
    return pl_fail(err, PELAGO_INVALID,
                   "there is no back end '%s'; known are ref, portable, avx2, avx512, bf16, amx%s%s", name,
                   offered.name != NULL ? ", " : "", offered.name != NULL ? offered.name : "");
}

enum pelago_status pl_engine_backend_check(const char *name, struct pl_error *err)
{
    uint32_t index = 0;
    if (is_offered(name))
        return offered.load(err) != NULL ? PELAGO_OK : PELAGO_UNSUPPORTED;
    return choose(name, &index, err);
}

enum pelago_status pl_engine_init(struct pl_engine *e, const struct pl_alloc *alloc, const char *name,
                                  uint32_t threads, struct pl_error *err)
{
    uint32_t index = 0;
    *e = (struct pl_engine){.alloc = *alloc};
    if (is_offered(name)) {
        e->ops = offered.load(err);
        if (e->ops == NULL)
            return PELAGO_UNSUPPORTED;
    } else {
        PL_TRY(choose(name, &index, err));
    }
    if (threads == 0)
        threads = pl_cpu_count();
    if (threads > PL_POOL_THREADS_MAX)
        return pl_fail(err, PELAGO_LIMIT, "threads is %u; at most %u are possible.", threads,
                       (unsigned)PL_POOL_THREADS_MAX);
    if (e->ops == NULL) {
        e->kernel = kernels[index];
        e->ops = e->kernel == NULL ? &pl_ops_ref : pl_cpu_ops(e->kernel);
    }
    e->name = e->ops->device != NULL ? offered.name : kernel_name(index);
    if (e->ops->device != NULL && !e->ops->device->open(e))
        return pl_fail(err, PELAGO_UNSUPPORTED, "%s", e->trouble);
    e->pool = pl_pool_new(&e->alloc, threads);
    if (e->pool == NULL)
        return pl_fail(err, PELAGO_NOMEM, "%u threads could not be started.", threads);
    return PELAGO_OK;
}

void pl_engine_release(struct pl_engine *e)
{
    pl_pool_free(e->pool);
    pl_block_free(&e->scratch, &e->alloc);
    e->pool = NULL;
    if (e->device != NULL)
        e->ops->device->close(e);
    e->device = NULL;
}

bool pl_engine_memory_new(struct pl_engine *e, struct pl_block *b, size_t bytes, enum pl_memory kind)
{
    if (e->ops->device == NULL)
        return pl_block_new(b, &e->alloc, bytes);
    *b = (struct pl_block){.at = e->ops->device->memory(e, bytes, kind), .owned_bytes = bytes};
    return b->at != NULL;
}

void pl_engine_memory_free(struct pl_engine *e, struct pl_block *b, enum pl_memory kind)
{
    if (b->owned != NULL)
        pl_block_free(b, &e->alloc);
    else if (b->at != NULL)
        e->ops->device->memory_free(e, b->at, kind);
    *b = (struct pl_block){0};
}

void pl_engine_zero(struct pl_engine *e, void *at, size_t bytes)
{
    if (e->ops->device != NULL)
        e->ops->device->zero(e, at, bytes);
    else
        memset(at, 0, bytes);
}

void pl_engine_put(struct pl_engine *e, void *at, const void *from, size_t bytes)
{
    if (e->ops->device != NULL)
        e->ops->device->put(e, at, from, bytes);
    else
        memcpy(at, from, bytes);
}

void pl_engine_begin(struct pl_engine *e)
{
    if (e->ops->device != NULL)
        e->ops->device->begin(e);
}

void pl_engine_finish(struct pl_engine *e)
{
    if (e->ops->device != NULL)
        e->ops->device->finish(e);
}

void pl_engine_home(struct pl_engine *e, float *grads, uint64_t count)
{
    if (e->ops->device != NULL && count > 0)
        e->ops->device->home(e, grads, count * sizeof(float));
}

enum pelago_status pl_engine_check(const struct pl_engine *e, struct pl_error *err)
{
    if (e->trouble[0] != '\0')
        return pl_fail(err, PELAGO_IO, "%s", e->trouble);
    return e->out_of_memory ? pl_fail(err, PELAGO_NOMEM, "memory ran out: try a smaller batch") : PELAGO_OK;
}

void pl_engine_fail(struct pl_engine *e, const char *sentence)
{
    if (e->trouble[0] == '\0')
        (void)pl_fmt(e->trouble, sizeof e->trouble, "%s", sentence);
}

bool pl_engine_reserve(struct pl_engine *e, size_t thread_bytes, size_t shared_bytes)
{
    thread_bytes = (thread_bytes + 4095) / 4096 * 4096;
    if (thread_bytes <= e->thread_bytes && shared_bytes <= e->shared_bytes)
        return !e->out_of_memory;
    if (thread_bytes > e->thread_bytes)
        e->thread_bytes = thread_bytes;
    if (shared_bytes > e->shared_bytes)
        e->shared_bytes = shared_bytes;
    pl_block_free(&e->scratch, &e->alloc);
    if (!pl_block_new(&e->scratch, &e->alloc, e->thread_bytes * pl_pool_threads(e->pool) + e->shared_bytes))
        e->out_of_memory = true;
    return !e->out_of_memory;
}

void *pl_engine_thread_scratch(const struct pl_engine *e, uint32_t thread)
{
    return (char *)e->scratch.at + e->thread_bytes * thread;
}

void *pl_engine_shared_scratch(const struct pl_engine *e)
{
    return (char *)e->scratch.at + e->thread_bytes * pl_pool_threads(e->pool);
}
