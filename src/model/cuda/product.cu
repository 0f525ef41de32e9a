/* model/cuda/product.cu - matrix products by cuBLAS: bfloat16 in, floats in between.
 *
 * cuBLAS counts by columns. A matrix of ours, (rows, cols) by rows, is to it one of (cols, rows) by columns, so every
 * product is computed as its transpose: c^T = b^T a^T.
 */
#include "model/cuda/state.cuh"

#include <stdlib.h>
#include <string.h>

static size_t weight_ld(uint32_t k)
{
    return ((size_t)k + 7) / 8 * 8;
}

size_t cuda_weight_bytes(const struct pl_engine *e, uint32_t n, uint32_t k)
{
    (void)e;
    return n * weight_ld(k) * sizeof(bf16);
}

/* Several matrices at once: most are small. */
enum { PACKED_AT_ONCE = 64 };

struct pack_list {
    struct stale at[PACKED_AT_ONCE];
};

/* A column of blocks has one matrix. */
__global__ static void pack_matrices(const struct pack_list list)
{
    const struct stale x = list.at[blockIdx.y];
    const size_t ld = (x.k + 7) / 8 * 8;
    const uint64_t values = (uint64_t)x.n * x.k;
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < values; i += (uint64_t)gridDim.x * blockDim.x)
        x.packed[i / x.k * ld + i % x.k] = __float2bfloat16(x.w[i]);
}

static void note_stale(struct state *s, const struct stale *x)
{
    pthread_mutex_lock(&s->lock);
    s->params_stale = true;
    uint32_t i = 0;
    while (i < s->stale_count && s->stale[i].packed != x->packed)
        i++;
    if (i == s->stale_room) {
        uint32_t room = s->stale_room * 2 + 64;
        struct stale *more = (struct stale *)realloc(s->stale, room * sizeof *more);
        if (more != NULL) {
            s->stale = more;
            s->stale_room = room;
        } else {
            host->fail(s->engine, "there is no memory for a list of matrices");
        }
    }
    if (i == s->stale_count && i < s->stale_room)
        s->stale[s->stale_count++] = *x;
    pthread_mutex_unlock(&s->lock);
}

void pack_stale(struct state *s)
{
    for (uint32_t first = 0; first < s->stale_count; first += PACKED_AT_ONCE) {
        const uint32_t count = s->stale_count - first < PACKED_AT_ONCE ? s->stale_count - first : PACKED_AT_ONCE;
        struct pack_list list;
        for (uint32_t i = 0; i < count; i++) {
            list.at[i] = s->stale[first + i];
            list.at[i].w = param_at(s, list.at[i].w);
        }
        pack_matrices<<<dim3(128, count), 256, 0, s->stream>>>(list);
    }
    s->stale_count = 0;
    s->params_stale = false;
}

/* Of a model's parameters it is only noted; begin packs the whole matrix. */
void cuda_weight_pack(struct pl_engine *e, void *packed, const float *w, uint32_t n, uint32_t k, uint32_t row0,
                      uint32_t rows)
{
    struct state *s = state_of(e);
    const struct stale x = {(bf16 *)packed, w, n, k};
    if (param_at(s, w) != w) {
        note_stale(s, &x);
        return;
    }
    const struct pack_list list = {{{x.packed + row0 * weight_ld(k), w + (size_t)row0 * k, rows, k}}};
    pack_matrices<<<dim3(128, 1), 256, 0, s->stream>>>(list);
}

/* One product as cuBLAS sees it: c (m, n) = a (m, k) x b (k, n), all by columns. */
struct product {
    uint32_t m, n, k;
    bool a_turned, b_turned;
    const void *a, *b;
    size_t a_ld, b_ld;
    void *c;
    size_t c_ld;
    bool c_halves, add;
};

static bool multiply(struct state *s, const struct product *p)
{
    const float one = 1, zero = 0;
    cublasStatus_t status = cublasGemmEx(
        s->blas, p->a_turned ? CUBLAS_OP_T : CUBLAS_OP_N, p->b_turned ? CUBLAS_OP_T : CUBLAS_OP_N, (int)p->m, (int)p->n,
        (int)p->k, &one, p->a, CUDA_R_16BF, (int)p->a_ld, p->b, CUDA_R_16BF, (int)p->b_ld, p->add ? &one : &zero, p->c,
        p->c_halves ? CUDA_R_16BF : CUDA_R_32F, (int)p->c_ld, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
    if (status != CUBLAS_STATUS_SUCCESS)
        host->fail(s->engine, "the GPU refused a matrix product");
    return status == CUBLAS_STATUS_SUCCESS;
}

/* PL_OUT_SUM: cuBLAS adds to what is there. */
static void lay_base(struct state *s, const struct pl_linear *a, uint32_t cols)
{
    if (a->kind == PL_OUT_SUM && (const void *)a->base != a->out)
        cuda_good(s, cudaMemcpy2DAsync(a->out, a->out_ld * sizeof(float), a->base, a->out_ld * sizeof(float),
                                       cols * sizeof(float), a->rows, cudaMemcpyDefault, s->stream));
}

void cuda_linear(struct pl_engine *e, const struct pl_linear *a)
{
    struct state *s = state_of(e);
    lay_base(s, a, a->n);
    const struct product p = {.m = a->n,
                              .n = a->rows,
                              .k = a->k,
                              .a_turned = true,
                              .b_turned = false,
                              .a = a->weight,
                              .b = a->in,
                              .a_ld = weight_ld(a->k),
                              .b_ld = a->in_ld,
                              .c = a->out,
                              .c_ld = a->out_ld,
                              .c_halves = a->kind == PL_OUT_ACT,
                              .add = a->kind == PL_OUT_SUM};
    (void)multiply(s, &p);
}

void cuda_linear_dx(struct pl_engine *e, const struct pl_linear *a)
{
    struct state *s = state_of(e);
    lay_base(s, a, a->k);
    const struct product p = {.m = a->k,
                              .n = a->rows,
                              .k = a->n,
                              .a_turned = false,
                              .b_turned = false,
                              .a = a->weight,
                              .b = a->in,
                              .a_ld = weight_ld(a->k),
                              .b_ld = a->in_ld,
                              .c = a->out,
                              .c_ld = a->out_ld,
                              .c_halves = a->kind == PL_OUT_ACT,
                              .add = a->kind == PL_OUT_SUM};
    (void)multiply(s, &p);
}

void cuda_linear_dw(struct pl_engine *e, const struct pl_linear_dw *a)
{
    struct state *s = state_of(e);
    const struct product p = {.m = a->k,
                              .n = a->n,
                              .k = a->rows,
                              .a_turned = false,
                              .b_turned = true,
                              .a = a->in,
                              .b = a->dout,
                              .a_ld = a->in_ld,
                              .b_ld = a->dout_ld,
                              .c = grad_at(s, a->dw),
                              .c_ld = a->k,
                              .c_halves = false,
                              .add = a->accumulate};
    (void)multiply(s, &p);
}

/* ---- for Muon: floats without padding, on the host ---- */

__global__ static void halve(bf16 *out, const float *in, uint64_t n)
{
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < n; i += (uint64_t)gridDim.x * blockDim.x)
        out[i] = __float2bfloat16(in[i]);
}

static void round_all(struct state *s, bf16 *out, const float *in, uint64_t n)
{
    uint32_t blocks = blocks_for(n, 256);
    halve<<<blocks < 1024 ? blocks : 1024, 256, 0, s->stream>>>(out, in, n);
}

/* c (m, n) = a (m, k) x b (k, n), or x b^T with b (n, k); by rows, on the GPU. */
static bool rows_product(struct state *s, float *c, const bf16 *a, const bf16 *b, uint32_t m, uint32_t n, uint32_t k,
                         bool b_transposed)
{
    const struct product p = {.m = n,
                              .n = m,
                              .k = k,
                              .a_turned = b_transposed,
                              .b_turned = false,
                              .a = b,
                              .b = a,
                              .a_ld = b_transposed ? k : n,
                              .b_ld = k,
                              .c = c,
                              .c_ld = n,
                              .c_halves = false,
                              .add = false};
    return multiply(s, &p);
}

static bool bring(struct state *s, float *to, const float *from, uint64_t n)
{
    void *middle = room_on_host(s, &s->matrix_host, n * sizeof(float));
    if (middle == NULL)
        return false;
    memcpy(middle, from, n * sizeof(float));
    return cuda_good(s, cudaMemcpyAsync(to, middle, n * sizeof(float), cudaMemcpyHostToDevice, s->stream));
}

/* False: `to` is as it was. */
static bool fetch(struct state *s, float *to, const float *from, uint64_t n)
{
    void *middle = room_on_host(s, &s->matrix_host, n * sizeof(float));
    if (middle == NULL || !cuda_good(s, cudaMemcpyAsync(middle, from, n * sizeof(float), cudaMemcpyDeviceToHost, s->stream)) ||
        !cuda_good(s, cudaStreamSynchronize(s->stream)))
        return false;
    memcpy(to, middle, n * sizeof(float));
    return true;
}

void cuda_matmul(struct pl_engine *e, float *c, const float *a, const float *b, uint32_t m, uint32_t n, uint32_t k,
                 bool b_transposed)
{
    struct state *s = state_of(e);
    uint64_t na = (uint64_t)m * k, nb = (uint64_t)n * k, nc = (uint64_t)m * n;
    uint64_t most = na > nb ? na : nb;
    float *whole = (float *)room_on_gpu(s, &s->matrix, (most > nc ? most : nc) * sizeof(float));
    bf16 *left = (bf16 *)room_on_gpu(s, &s->halves, na * sizeof(bf16));
    bf16 *right = (bf16 *)room_on_gpu(s, &s->square[0], nb * sizeof(bf16));
    if (whole == NULL || left == NULL || right == NULL || !bring(s, whole, a, na))
        return;
    round_all(s, left, whole, na);
    cuda_good(s, cudaStreamSynchronize(s->stream)); /* the way to the GPU is used again */
    if (!bring(s, whole, b, nb))
        return;
    round_all(s, right, whole, nb);
    if (!rows_product(s, whole, left, right, m, n, k, b_transposed))
        return;
    (void)fetch(s, c, whole, nc);
}

/* Thirty launches and two ways over the bus cost a processor's core as much as this. */
enum { SMALL_MATRIX = 1 << 17 };

struct coefficients {
    float of_one, of_a, of_square;
};

/* out (r, r) = of_one + of_a a + of_square square */
__global__ static void combine(bf16 *out, const float *a, const float *square, uint32_t r, struct coefficients k)
{
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < (uint64_t)r * r;
         i += (uint64_t)gridDim.x * blockDim.x)
        out[i] = __float2bfloat16(k.of_a * a[i] + k.of_square * square[i] + (i / r == i % r ? k.of_one : 0.0f));
}

bool cuda_polynomial(struct pl_engine *e, float *x, uint32_t r, uint32_t c, const float *poly, uint32_t times)
{
    struct state *s = state_of(e);
    uint64_t n = (uint64_t)r * c, rr = (uint64_t)r * r;
    if (n < SMALL_MATRIX)
        return false;
    float *whole = (float *)room_on_gpu(s, &s->matrix, n * sizeof(float));
    bf16 *half = (bf16 *)room_on_gpu(s, &s->halves, n * sizeof(bf16));
    float *a = (float *)room_on_gpu(s, &s->square[0], rr * sizeof(float));
    float *square = (float *)room_on_gpu(s, &s->square[1], rr * sizeof(float));
    bf16 *a_half = (bf16 *)room_on_gpu(s, &s->square[2], rr * sizeof(bf16));
    bf16 *factor = (bf16 *)room_on_gpu(s, &s->square[3], rr * sizeof(bf16));
    if (whole == NULL || half == NULL || a == NULL || square == NULL || a_half == NULL || factor == NULL ||
        !bring(s, whole, x, n))
        return false;
    bool good = true;
    for (uint32_t i = 0; i < times && good; i++) {
        round_all(s, half, whole, n);
        good = rows_product(s, a, half, half, r, r, c, true);
        round_all(s, a_half, a, rr);
        good = good && rows_product(s, square, a_half, a_half, r, r, r, true); /* a is symmetric */
        uint32_t blocks = blocks_for(rr, 256);
        combine<<<blocks < 1024 ? blocks : 1024, 256, 0, s->stream>>>(factor, a, square, r, {poly[0], poly[1], poly[2]});
        good = good && rows_product(s, whole, factor, half, r, c, r, false) && cuda_good(s, cudaGetLastError());
    }
    return good && fetch(s, x, whole, n);
}
