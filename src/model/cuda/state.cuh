/* model/cuda/state.cuh - what an engine has on its GPU; shared by the sources of libpelago_cuda.so. */
#ifndef PL_MODEL_CUDA_STATE_CUH
#define PL_MODEL_CUDA_STATE_CUH

#include "model/cuda/plugin.h"

#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <pthread.h>
#include <stdint.h>

typedef __nv_bfloat16 bf16;

/* Memory that grows with the largest shape. */
struct room {
    void *at;
    size_t bytes;
};

/* Memory of the host and its copy on the GPU. */
struct twin {
    char *host, *gpu;
    size_t bytes;
};

struct stale {
    bf16 *packed;
    const float *w;
    uint32_t n, k;
};

struct state {
    struct pl_engine *engine;
    cudaStream_t stream;
    cublasHandle_t blas;
    struct twin params, grads;
    /* Matrices whose parameters have changed since they were packed. */
    struct stale *stale;
    uint32_t stale_count, stale_room;
    bool params_stale;
    pthread_mutex_t lock; /* of these: packing is asked for by several threads */
    /* Tokens and targets on their way to the GPU: a piece of the host's memory and its copy, used up to `ids_used` until
     * finish. */
    struct room ids_host, ids;
    size_t ids_used;
    struct room parts;                                   /* partial sums */
    struct room matrix_host, matrix, halves, square[4]; /* of polynomial and matmul */
};

extern const struct pl_cuda_host *host;

struct state *state_of(struct pl_engine *e);
/* Tells the engine; true when all is well. */
bool cuda_good(struct state *s, cudaError_t error);
/* At least so many bytes, or NULL; what was there is lost. */
void *room_on_gpu(struct state *s, struct room *r, size_t bytes);
void *room_on_host(struct state *s, struct room *r, size_t bytes);
/* Where operations find a gradient, and a parameter. */
float *grad_at(const struct state *s, float *at);
const float *param_at(const struct state *s, const float *at);
/* Packs what has changed. */
void pack_stale(struct state *s);
/* A copy of the host's ids on the GPU, until finish. NULL: no memory. */
const int32_t *bring_ids(struct state *s, const int32_t *ids, uint32_t count);

/* out = or += the sums over the chunks of parts (chunks, c), in their order. */
void add_parts(struct state *s, float *out, const float *parts, uint32_t chunks, uint32_t c, bool accumulate);

static inline uint32_t blocks_for(uint64_t work, uint32_t each)
{
    return (uint32_t)((work + each - 1) / each);
}

__device__ static inline float warp_sum(float x)
{
    for (int other = 16; other > 0; other /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, other);
    return x;
}

void cuda_linear(struct pl_engine *e, const struct pl_linear *a);
void cuda_linear_dx(struct pl_engine *e, const struct pl_linear *a);
void cuda_linear_dw(struct pl_engine *e, const struct pl_linear_dw *a);
size_t cuda_weight_bytes(const struct pl_engine *e, uint32_t n, uint32_t k);
void cuda_weight_pack(struct pl_engine *e, void *packed, const float *w, uint32_t n, uint32_t k, uint32_t row0,
                      uint32_t rows);
void cuda_matmul(struct pl_engine *e, float *c, const float *a, const float *b, uint32_t m, uint32_t n, uint32_t k,
                 bool b_transposed);
bool cuda_polynomial(struct pl_engine *e, float *x, uint32_t r, uint32_t c, const float *poly, uint32_t times);
void cuda_norm(struct pl_engine *e, const struct pl_norm *a);
void cuda_norm_dx(struct pl_engine *e, const struct pl_norm_dx *a);
void cuda_rotary(struct pl_engine *e, const struct pl_rotary *a);
void cuda_rotary_dx(struct pl_engine *e, const struct pl_rotary_dx *a);
void cuda_attention(struct pl_engine *e, const struct pl_attention *a);
void cuda_attention_dx(struct pl_engine *e, const struct pl_attention_dx *a);
void cuda_swiglu(struct pl_engine *e, const struct pl_swiglu *a);
void cuda_swiglu_dx(struct pl_engine *e, const struct pl_swiglu_dx *a);
void cuda_xent(struct pl_engine *e, const struct pl_xent *a);
void cuda_embed(struct pl_engine *e, float *x, const float *table, const int32_t *tokens, uint32_t rows, uint32_t c);
void cuda_embed_dw(struct pl_engine *e, float *dtable, const float *dx, const int32_t *tokens, uint32_t rows,
                   uint32_t c);
void cuda_to_act(struct pl_engine *e, void *out, size_t out_ld, const float *in, uint32_t rows, uint32_t c);
void cuda_to_f32(struct pl_engine *e, float *out, const void *in, size_t in_ld, uint32_t rows, uint32_t c);

#endif
