/* model/cuda/plugin.h - between pelago and libpelago_cuda.so, which is built by nvcc and loaded at run time.
 *
 * The library sees engines through this table alone, so that it depends on no layout but that of model/ops.h; both sides
 * give the size of its table, and a library that was built from another version is turned away.
 */
#ifndef PL_MODEL_CUDA_PLUGIN_H
#define PL_MODEL_CUDA_PLUGIN_H

#include "model/ops.h"

struct pl_cuda_host {
    size_t ops_bytes, device_bytes;
    void *(*state)(struct pl_engine *e);
    void (*set_state)(struct pl_engine *e, void *state);
    void (*fail)(struct pl_engine *e, const char *sentence);
};

/* The operations, or NULL with a sentence in why. */
typedef const struct pl_ops *pl_cuda_open_fn(const struct pl_cuda_host *host, char *why, size_t why_bytes);
#define PL_CUDA_OPEN "pl_cuda_open"
#define PL_CUDA_FILE "libpelago_cuda.so"

#endif
