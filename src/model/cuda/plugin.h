/* model/cuda/plugin.h - between pelago and libpelago_cuda.so, which is built by nvcc and loaded at run time.
 *
 * The library sees engines through this table alone, so that it depends on no layout but that of model/ops.h. Both sides
 * compare a number made of that file's sizes and of PL_CUDA_VERSION, so that a library built from another one is turned away.
 */
#ifndef PL_MODEL_CUDA_PLUGIN_H
#define PL_MODEL_CUDA_PLUGIN_H

#include "model/ops.h"

/* To be raised when ops.h changes its meaning without a size. */
enum { PL_CUDA_VERSION = 1 };

static inline uint64_t pl_cuda_shape(void)
{
    const size_t sizes[] = {
        sizeof(struct pl_ops),          sizeof(struct pl_device),    sizeof(struct pl_linear),
        sizeof(struct pl_linear_dw),    sizeof(struct pl_norm),      sizeof(struct pl_norm_dx),
        sizeof(struct pl_rotary),       sizeof(struct pl_rotary_dx), sizeof(struct pl_attention),
        sizeof(struct pl_attention_dx), sizeof(struct pl_swiglu),    sizeof(struct pl_swiglu_dx),
        sizeof(struct pl_xent)};
    uint64_t shape = PL_CUDA_VERSION;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        shape = shape * 1099511628211u + sizes[i];
    return shape;
}

struct pl_cuda_host {
    uint64_t shape;
    void *(*state)(struct pl_engine *e);
    void (*set_state)(struct pl_engine *e, void *state);
    void (*fail)(struct pl_engine *e, const char *sentence);
};

/* The operations, or NULL with a sentence in why. */
typedef const struct pl_ops *pl_cuda_open_fn(const struct pl_cuda_host *host, char *why, size_t why_bytes);
#define PL_CUDA_OPEN "pl_cuda_open"
#define PL_CUDA_FILE "libpelago_cuda.so"

#endif
