/* model/cuda/device.cu - an engine's GPU: its stream, its memory, and the table of operations.
 *
 * Parameters stay in the host's memory, where optimizer, fragments and checkpoints work on them; begin takes a copy to the
 * GPU and packs it. Gradients are made on the GPU; home brings them back. All operations of an engine are in one
 * stream, so they follow each other as they were called; engines do not wait for one another.
 */
#include "model/cuda/state.cuh"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct pl_cuda_host *host;

struct state *state_of(struct pl_engine *e)
{
    return (struct state *)host->state(e);
}

bool cuda_good(struct state *s, cudaError_t error)
{
    char sentence[200];
    if (error == cudaSuccess)
        return true;
    (void)cudaGetLastError(); /* not to be taken for a failure of whatever comes next */
    snprintf(sentence, sizeof sentence, "the GPU says: %s", cudaGetErrorString(error));
    host->fail(s->engine, sentence);
    return false;
}

/* ---- memory ---- */

static void *gpu_memory(struct state *s, size_t bytes)
{
    void *at = NULL;
    if (!cuda_good(s, cudaMalloc(&at, bytes)))
        return NULL;
    cuda_good(s, cudaMemsetAsync(at, 0, bytes, s->stream));
    return at;
}

/* The GPU can reach it, too. */
static void *host_memory(struct state *s, size_t bytes)
{
    void *at = NULL;
    if (!cuda_good(s, cudaHostAlloc(&at, bytes, cudaHostAllocMapped | cudaHostAllocPortable)))
        return NULL;
    memset(at, 0, bytes);
    return at;
}

static void *device_memory(struct pl_engine *e, size_t bytes, enum pl_memory kind)
{
    struct state *s = state_of(e);
    if (kind == PL_MEMORY_OWN)
        return gpu_memory(s, bytes);
    void *at = host_memory(s, bytes);
    if (at == NULL || kind == PL_MEMORY_SHARED)
        return at;
    struct twin *twin = kind == PL_MEMORY_PARAMS ? &s->params : &s->grads;
    *twin = {(char *)at, (char *)gpu_memory(s, bytes), bytes};
    if (twin->gpu != NULL)
        return at;
    *twin = {};
    cudaFreeHost(at);
    return NULL;
}

static void device_memory_free(struct pl_engine *e, void *at, enum pl_memory kind)
{
    struct state *s = state_of(e);
    cudaStreamSynchronize(s->stream);
    if (kind == PL_MEMORY_OWN) {
        cudaFree(at);
        return;
    }
    cudaFreeHost(at);
    struct twin *twin = kind == PL_MEMORY_PARAMS ? &s->params : &s->grads;
    if (kind == PL_MEMORY_SHARED)
        return;
    cudaFree(twin->gpu);
    *twin = {};
}

void *room_on_gpu(struct state *s, struct room *r, size_t bytes)
{
    if (bytes <= r->bytes)
        return r->at;
    cudaStreamSynchronize(s->stream);
    cudaFree(r->at);
    r->at = NULL;
    r->bytes = cuda_good(s, cudaMalloc(&r->at, bytes)) ? bytes : 0;
    return r->at;
}

void *room_on_host(struct state *s, struct room *r, size_t bytes)
{
    if (bytes <= r->bytes)
        return r->at;
    cudaStreamSynchronize(s->stream);
    cudaFreeHost(r->at);
    r->at = host_memory(s, bytes);
    r->bytes = r->at != NULL ? bytes : 0;
    return r->at;
}

static bool is_in(const struct twin *t, const void *at)
{
    return (const char *)at >= t->host && (const char *)at < t->host + t->bytes;
}

float *grad_at(const struct state *s, float *at)
{
    return is_in(&s->grads, at) ? (float *)(s->grads.gpu + ((char *)at - s->grads.host)) : at;
}

const float *param_at(const struct state *s, const float *at)
{
    return is_in(&s->params, at) ? (const float *)(s->params.gpu + ((const char *)at - s->params.host)) : at;
}

const int32_t *bring_ids(struct state *s, const int32_t *ids, uint32_t count)
{
    size_t bytes = count * sizeof *ids;
    if (s->ids_used + bytes > (s->ids.bytes < s->ids_host.bytes ? s->ids.bytes : s->ids_host.bytes)) {
        /* Those on the way are still being read. Next time there is room for a whole pass. */
        if (!cuda_good(s, cudaStreamSynchronize(s->stream)))
            return NULL;
        s->ids_used = 0;
        if (room_on_host(s, &s->ids_host, 4 * bytes) == NULL || room_on_gpu(s, &s->ids, 4 * bytes) == NULL)
            return NULL;
    }
    char *from = (char *)s->ids_host.at + s->ids_used, *to = (char *)s->ids.at + s->ids_used;
    memcpy(from, ids, bytes);
    cuda_good(s, cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, s->stream));
    s->ids_used += bytes;
    return (const int32_t *)to;
}

static void device_zero(struct pl_engine *e, void *at, size_t bytes)
{
    struct state *s = state_of(e);
    cuda_good(s, cudaMemsetAsync(grad_at(s, (float *)at), 0, bytes, s->stream));
}

static void device_put(struct pl_engine *e, void *at, const void *from, size_t bytes)
{
    struct state *s = state_of(e);
    cuda_good(s, cudaMemcpyAsync(at, from, bytes, cudaMemcpyDefault, s->stream));
    cuda_good(s, cudaStreamSynchronize(s->stream));
}

static void device_begin(struct pl_engine *e)
{
    struct state *s = state_of(e);
    if (!s->params_stale)
        return;
    cuda_good(s, cudaMemcpyAsync(s->params.gpu, s->params.host, s->params.bytes, cudaMemcpyHostToDevice, s->stream));
    pack_stale(s);
}

static void device_home(struct pl_engine *e, void *grads, size_t bytes)
{
    struct state *s = state_of(e);
    cuda_good(s, cudaMemcpyAsync(grads, grad_at(s, (float *)grads), bytes, cudaMemcpyDeviceToHost, s->stream));
}

static void device_finish(struct pl_engine *e)
{
    struct state *s = state_of(e);
    cuda_good(s, cudaStreamSynchronize(s->stream));
    cuda_good(s, cudaGetLastError());
    s->ids_used = 0;
}

/* ---- life ---- */

static void device_close(struct pl_engine *e)
{
    struct state *s = state_of(e);
    struct room *on_gpu[] = {&s->ids,       &s->parts,     &s->matrix,    &s->halves,
                             &s->square[0], &s->square[1], &s->square[2], &s->square[3]};
    if (s->stream != NULL)
        cudaStreamSynchronize(s->stream);
    for (struct room *r : on_gpu)
        cudaFree(r->at);
    cudaFreeHost(s->ids_host.at);
    cudaFreeHost(s->matrix_host.at);
    if (s->blas != NULL)
        cublasDestroy(s->blas);
    if (s->stream != NULL)
        cudaStreamDestroy(s->stream);
    host->set_state(e, NULL);
    pthread_mutex_destroy(&s->lock);
    free(s->stale);
    free(s);
}

static bool device_open(struct pl_engine *e)
{
    struct state *s = (struct state *)calloc(1, sizeof *s);
    if (s == NULL) {
        host->fail(e, "there is no memory for a GPU's state");
        return false;
    }
    s->engine = e;
    pthread_mutex_init(&s->lock, NULL);
    host->set_state(e, s);
    if (cuda_good(s, cudaStreamCreateWithFlags(&s->stream, cudaStreamNonBlocking)) &&
        cublasCreate(&s->blas) == CUBLAS_STATUS_SUCCESS && cublasSetStream(s->blas, s->stream) == CUBLAS_STATUS_SUCCESS)
        return true;
    host->fail(e, "the GPU gives no stream or no cuBLAS; its memory may be full");
    device_close(e);
    return false;
}

static const struct pl_device device = {
    .open = device_open,
    .close = device_close,
    .memory = device_memory,
    .memory_free = device_memory_free,
    .zero = device_zero,
    .put = device_put,
    .begin = device_begin,
    .home = device_home,
    .finish = device_finish,
    .polynomial = cuda_polynomial,
};

static const struct pl_ops ops = {
    .act_bytes = sizeof(bf16),
    .logit_rows = 4096,
    .device = &device,
    .weight_bytes = cuda_weight_bytes,
    .weight_pack = cuda_weight_pack,
    .linear = cuda_linear,
    .linear_dx = cuda_linear_dx,
    .linear_dw = cuda_linear_dw,
    .norm = cuda_norm,
    .norm_dx = cuda_norm_dx,
    .rotary = cuda_rotary,
    .rotary_dx = cuda_rotary_dx,
    .attention = cuda_attention,
    .attention_dx = cuda_attention_dx,
    .swiglu = cuda_swiglu,
    .swiglu_dx = cuda_swiglu_dx,
    .xent = cuda_xent,
    .embed = cuda_embed,
    .embed_dw = cuda_embed_dw,
    .to_act = cuda_to_act,
    .to_f32 = cuda_to_f32,
    .matmul = cuda_matmul,
    .gemv = NULL, /* one token at a time is the processor's (model/infer.c) */
    .decode = NULL,
};

extern "C" __attribute__((visibility("default"))) const struct pl_ops *pl_cuda_open(const struct pl_cuda_host *from, char *why, size_t why_bytes)
{
    int count = 0;
    if (from->shape != pl_cuda_shape()) {
        snprintf(why, why_bytes, PL_CUDA_FILE " belongs to another version of pelago; 'make cuda' builds it again");
        return NULL;
    }
    cudaError_t error = cudaGetDeviceCount(&count);
    cudaDeviceProp p;
    if (error == cudaSuccess && count > 0)
        error = cudaGetDeviceProperties(&p, 0);
    if (error != cudaSuccess || count == 0) {
        snprintf(why, why_bytes, "this machine has no GPU that CUDA can use: %s",
                 error != cudaSuccess ? cudaGetErrorString(error) : "there is none");
        return NULL;
    }
    if (p.major < 8 || !p.canMapHostMemory || !p.unifiedAddressing) {
        snprintf(why, why_bytes, "the GPU (%s) is too old: bfloat16 products need compute capability 8.0", p.name);
        return NULL;
    }
    /* Who waits for the GPU leaves its core to others: learners share machines. */
    (void)cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync);
    host = from;
    return &ops;
}
