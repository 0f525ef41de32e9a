/* model/engine.h - a back end with its threads and scratch memory. */
#ifndef PL_MODEL_ENGINE_H
#define PL_MODEL_ENGINE_H

#include "base/alloc.h"
#include "base/pool.h"
#include "base/status.h"
#include "base/block.h"
#include "model/ops.h"

struct pl_kernel; /* cpu/kernel.h */

struct pl_engine {
    const char *name; /* of the back end */
    const struct pl_ops *ops;
    struct pl_pool *pool;           /* owned */
    const struct pl_kernel *kernel; /* NULL for ref */
    struct pl_alloc alloc;
    struct pl_block
        scratch; /* thread_bytes for each thread, then shared_bytes for operands all threads read */
    size_t thread_bytes, shared_bytes;
    bool past_cache;    /* the model is far larger than any cache: results nobody reads soon go past it */
    bool out_of_memory; /* scratch could not grow: operations since then did nothing */
    void *device;       /* the back end's own, where it has one */
    char trouble[PL_TEXT_MAX + 1]; /* what went wrong there; then losses are not a number */
};

/* A back end that is not part of this program: load() finds its operations when somebody asks for it by name, or says why
 * not. There is room for one. */
typedef const struct pl_ops *pl_engine_load(struct pl_error *err);
void pl_engine_offer(const char *name, pl_engine_load *load);

/* name: NULL for the best processor this machine has, or ref, portable, avx2, avx512, bf16, amx, or what was offered; one that the machine lacks is
 * UNSUPPORTED with a sentence. threads 0: one per processor. */
enum pelago_status pl_engine_init(struct pl_engine *e, const struct pl_alloc *alloc, const char *name,
                                  uint32_t threads, struct pl_error *err);
void pl_engine_release(struct pl_engine *e);
/* Back ends by index, NULL after the last; *usable says whether this machine can run it. */
const char *pl_engine_backend_name(uint32_t index, bool *usable);
/* INVALID for a name that is none, UNSUPPORTED for one this machine cannot run; NULL is fine. */
enum pelago_status pl_engine_backend_check(const char *name, struct pl_error *err);

/* Memory for operations; without a device all kinds are the host's. False: there is none. */
bool pl_engine_memory_new(struct pl_engine *e, struct pl_block *b, size_t bytes, enum pl_memory kind);
void pl_engine_memory_free(struct pl_engine *e, struct pl_block *b, enum pl_memory kind);
void pl_engine_zero(struct pl_engine *e, void *at, size_t bytes);
void pl_engine_put(struct pl_engine *e, void *at, const void *from, size_t bytes);
void pl_engine_begin(struct pl_engine *e); /* before the first operation of a pass */
void pl_engine_finish(struct pl_engine *e);
/* These gradients are final: they are here after finish. */
void pl_engine_home(struct pl_engine *e, float *grads, uint64_t count);
/* For a device: the first sentence is kept. */
void pl_engine_fail(struct pl_engine *e, const char *sentence);
/* NOMEM or IO, with a sentence, when something went wrong since it was made. */
enum pelago_status pl_engine_check(const struct pl_engine *e, struct pl_error *err);

/* For operations: at least so much scratch, or false and out_of_memory. Sizes only ever grow, to the largest shape. */
bool pl_engine_reserve(struct pl_engine *e, size_t thread_bytes, size_t shared_bytes);
void *pl_engine_thread_scratch(const struct pl_engine *e, uint32_t thread); /* aligned to 64 */
void *pl_engine_shared_scratch(const struct pl_engine *e);

#endif
