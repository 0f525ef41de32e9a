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
};

/* name: NULL for the best this machine has, or ref, portable, avx2, avx512, bf16, amx; one that the machine lacks is
 * UNSUPPORTED with a sentence. threads 0: one per processor. */
enum pelago_status pl_engine_init(struct pl_engine *e, const struct pl_alloc *alloc, const char *name,
                                  uint32_t threads, struct pl_error *err);
void pl_engine_release(struct pl_engine *e);
/* Back ends by index, NULL after the last; *usable says whether this machine can run it. */
const char *pl_engine_backend_name(uint32_t index, bool *usable);
/* INVALID for a name that is none, UNSUPPORTED for one this machine cannot run; NULL is fine. */
enum pelago_status pl_engine_backend_check(const char *name, struct pl_error *err);

/* For operations: at least so much scratch, or false and out_of_memory. Sizes only ever grow, to the largest shape. */
bool pl_engine_reserve(struct pl_engine *e, size_t thread_bytes, size_t shared_bytes);
void *pl_engine_thread_scratch(const struct pl_engine *e, uint32_t thread); /* aligned to 64 */
void *pl_engine_shared_scratch(const struct pl_engine *e);

#endif
