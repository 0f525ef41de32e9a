/* model/cuda/attention.cu - causal attention by tiles, forward and backward; no T x T matrix is kept.
 *
 * A block has TILE queries (or keys) of one head and walks over the tiles of keys (or queries) that meet them; each of its
 * four warps has a strip of 16 rows, and shares nothing with the others but the tiles it reads. Products are made by the
 * tensor cores on bfloat16, with sums in floats; between them two lanes have one row of the strip, every other column each.
 * The way back computes scores twice, once by queries for dq and once by keys for dk and dv, so that nobody adds to
 * another's sums and the bits stay the same.
 */
#include "model/cuda/state.cuh"

#include <math_constants.h>
#include <mma.h>

using namespace nvcuda;

enum { TILE = 64, STRIP = 16, WARPS = TILE / STRIP, THREADS = 32 * WARPS, EACH = TILE / 2 };
/* Row strides in shared memory: multiples of what the tensor cores want, that spread rows over the banks. */
enum { SCORE_LD = TILE + 4, HALF_LD = TILE + 8 };

template <int D_MAX> struct tiles {
    static const int ld = D_MAX + 8, sum_ld = D_MAX + 4, steps = D_MAX / 16;
    static const size_t tile_bytes = (size_t)TILE * ld * sizeof(bf16);
    static const size_t sum_bytes = (size_t)TILE * sum_ld * sizeof(float);
    static const size_t score_bytes = (size_t)TILE * SCORE_LD * sizeof(float);
    static const size_t half_bytes = (size_t)TILE * HALF_LD * sizeof(bf16);
    static const size_t stage_bytes = sum_bytes > score_bytes ? sum_bytes : score_bytes;
};

typedef wmma::fragment<wmma::matrix_a, 16, 16, 16, bf16, wmma::row_major> left_piece;
typedef wmma::fragment<wmma::matrix_b, 16, 16, 16, bf16, wmma::row_major> right_piece;
typedef wmma::fragment<wmma::matrix_b, 16, 16, 16, bf16, wmma::col_major> turned_piece;
typedef wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum_piece;

/* Where this thread is: its warp's first row of a tile, its own row of the strip, its first column. */
__device__ static inline uint32_t strip_row()
{
    return threadIdx.x / 32 * STRIP;
}

__device__ static inline uint32_t own_row()
{
    return strip_row() + threadIdx.x % 32 / 2;
}

__device__ static inline uint32_t column(int i)
{
    return threadIdx.x % 2 + 2 * i;
}

/* Over the two lanes that share a row. */
__device__ static inline float row_max(float x)
{
    return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
}

__device__ static inline float row_sum(float x)
{
    return x + __shfl_xor_sync(0xffffffffu, x, 1);
}

/* Values of a head as the tensor cores count them. */
__device__ static inline uint32_t padded(uint32_t d)
{
    return (d + 15) / 16 * 16;
}

/* Rows first .. first + TILE - 1 of a matrix; zero from row `rows` and from column d on. Eight values at a time where they lie
 * so. */
template <int D_MAX>
__device__ static void load_tile(bf16 *tile, const bf16 *from, size_t from_ld, uint32_t first, uint32_t rows, uint32_t d)
{
    const bool by_eight = d % 16 == 0 && from_ld % 8 == 0 && (uintptr_t)from % 16 == 0;
    const uint32_t each = by_eight ? 8 : 1, pieces = padded(d) / each;
    for (uint32_t i = threadIdx.x; i < TILE * pieces; i += THREADS) {
        const uint32_t r = i / pieces, c = i % pieces * each;
        const bf16 *at = from + (first + r) * from_ld + c;
        const bool there = first + r < rows && c < d;
        bf16 *to = tile + r * tiles<D_MAX>::ld + c;
        if (by_eight)
            *(uint4 *)to = there ? *(const uint4 *)at : make_uint4(0, 0, 0, 0);
        else
            *to = there ? *at : (bf16)0.0f;
    }
}

/* The strip's rows of a b^T, two tiles, into scores. */
template <int D_MAX> __device__ static void score_strip(float *scores, const bf16 *a, const bf16 *b, uint32_t d)
{
    typedef struct tiles<D_MAX> t;
    for (int n = 0; n < TILE; n += 16) {
        sum_piece sum;
        wmma::fill_fragment(sum, 0.0f);
        for (uint32_t k = 0; k < d; k += 16) {
            left_piece left;
            turned_piece right;
            wmma::load_matrix_sync(left, a + strip_row() * t::ld + k, t::ld);
            wmma::load_matrix_sync(right, b + n * t::ld + k, t::ld);
            wmma::mma_sync(sum, left, right, sum);
        }
        wmma::store_matrix_sync(scores + strip_row() * SCORE_LD + n, sum, SCORE_LD, wmma::mem_row_major);
    }
    __syncwarp();
}

/* One piece, 16 columns from c on, of the strip's rows: sum += halves (TILE, TILE) x tile (TILE, D). */
template <int D_MAX> __device__ static void add_piece(sum_piece &sum, const bf16 *halves, const bf16 *tile, uint32_t c)
{
    typedef struct tiles<D_MAX> t;
    for (int k = 0; k < TILE; k += 16) {
        left_piece left;
        right_piece right;
        wmma::load_matrix_sync(left, halves + strip_row() * HALF_LD + k, HALF_LD);
        wmma::load_matrix_sync(right, tile + k * t::ld + c, t::ld);
        wmma::mma_sync(sum, left, right, sum);
    }
}

template <int D_MAX>
__device__ static void add_strip(sum_piece sums[tiles<D_MAX>::steps], const bf16 *halves, const bf16 *tile, uint32_t d)
{
#pragma unroll
    for (int j = 0; j < tiles<D_MAX>::steps; j++)
        if (16 * j < d)
            add_piece<D_MAX>(sums[j], halves, tile, 16 * j);
}

/* The strip's rows, times `scale`, as activations. */
template <int D_MAX>
__device__ static void store_strip(bf16 *to, size_t to_ld, uint32_t first, uint32_t rows, uint32_t d, const float *sums,
                                   float scale)
{
    if (first + own_row() >= rows)
        return;
    for (uint32_t c = threadIdx.x % 2; c < d; c += 2)
        to[(first + own_row()) * to_ld + c] = __float2bfloat16(sums[own_row() * tiles<D_MAX>::sum_ld + c] * scale);
}

template <int D_MAX>
__device__ static void store_pieces(bf16 *to, size_t to_ld, uint32_t first, uint32_t rows, uint32_t d, float *stage,
                                    sum_piece sums[tiles<D_MAX>::steps])
{
    typedef struct tiles<D_MAX> t;
    __syncthreads(); /* the stage lies where others' scores were */
#pragma unroll
    for (int j = 0; j < t::steps; j++)
        if (16 * j < d)
            wmma::store_matrix_sync(stage + strip_row() * t::sum_ld + 16 * j, sums[j], t::sum_ld, wmma::mem_row_major);
    __syncwarp();
    store_strip<D_MAX>(to, to_ld, first, rows, d, stage, 1);
}

/* ---- forward ---- */

/* Scores of the strip become shares of the largest so far, as halves; what was summed before is made to fit. */
template <int D_MAX>
__device__ static void soften(const float *scores, bf16 *halves, float *sums, float *max, float *total, uint32_t query,
                              uint32_t key, uint32_t d)
{
    const float scale = rsqrtf((float)d);
    float p[EACH], most = *max, part = 0;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        p[i] = key + column(i) <= query ? scores[own_row() * SCORE_LD + column(i)] * scale : -CUDART_INF_F;
        most = fmaxf(most, p[i]);
    }
    most = row_max(most); /* finite: every query meets the first key, and that is in the first tile */
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        p[i] = __expf(p[i] - most);
        part += p[i];
        halves[own_row() * HALF_LD + column(i)] = __float2bfloat16(p[i]);
    }
    const float old = __expf(*max - most);
    *total = *total * old + row_sum(part);
    *max = most;
    for (uint32_t c = threadIdx.x % 2; c < padded(d); c += 2)
        sums[own_row() * tiles<D_MAX>::sum_ld + c] *= old;
    __syncwarp();
}

template <int D_MAX> __global__ static void __launch_bounds__(THREADS) attend(struct pl_attention a)
{
    typedef struct tiles<D_MAX> t;
    extern __shared__ __align__(128) unsigned char shared[];
    bf16 *q = (bf16 *)shared, *k = q + TILE * t::ld, *v = k + TILE * t::ld, *halves = v + TILE * t::ld;
    float *scores = (float *)(shared + 3 * t::tile_bytes + t::half_bytes), *sums = scores + TILE * SCORE_LD;
    const uint32_t d = a.head_dim, first = (gridDim.x - 1 - blockIdx.x) * TILE, query = first + own_row();
    const uint32_t head = blockIdx.y, group = head / (a.heads / a.kv_heads);
    const bf16 *row0 = (const bf16 *)a.qkv + (size_t)blockIdx.z * a.seq * a.qkv_ld;
    const bf16 *keys = row0 + (a.heads + group) * d, *values = keys + a.kv_heads * d;
    float max = -CUDART_INF_F, total = 0;
    for (uint32_t i = threadIdx.x; i < TILE * t::sum_ld; i += THREADS)
        sums[i] = 0;
    load_tile<D_MAX>(q, row0 + head * d, a.qkv_ld, first, a.seq, d);
    for (uint32_t key = 0; key <= first; key += TILE) {
        __syncthreads(); /* the tiles of the last turn are done with */
        load_tile<D_MAX>(k, keys, a.qkv_ld, key, a.seq, d);
        load_tile<D_MAX>(v, values, a.qkv_ld, key, a.seq, d);
        __syncthreads();
        score_strip<D_MAX>(scores, q, k, d);
        soften<D_MAX>(scores, halves, sums, &max, &total, query, key, d);
        for (uint32_t c = 0; c < d; c += 16) {
            float *at = sums + strip_row() * t::sum_ld + c;
            sum_piece sum;
            wmma::load_matrix_sync(sum, at, t::sum_ld, wmma::mem_row_major);
            add_piece<D_MAX>(sum, halves, v, c);
            wmma::store_matrix_sync(at, sum, t::sum_ld, wmma::mem_row_major);
        }
        __syncwarp();
    }
    if (threadIdx.x % 2 == 0 && query < a.seq)
        a.lse[((size_t)blockIdx.z * a.heads + head) * a.seq + query] = max + logf(total);
    store_strip<D_MAX>((bf16 *)a.out + (size_t)blockIdx.z * a.seq * a.out_ld + head * d, a.out_ld, first, a.seq, d, sums,
                       1 / total);
}

/* ---- backward ---- */

enum { DELTA_WARPS = 8 };

/* delta (B, H, T) = the sum over a head's values of out * dout. */
__global__ static void make_delta(struct pl_attention_dx a, float *delta)
{
    const uint64_t unit = blockIdx.x * (uint64_t)DELTA_WARPS + threadIdx.y;
    const uint32_t row = (uint32_t)(unit / a.heads), head = (uint32_t)(unit % a.heads);
    if (row >= a.batch * a.seq)
        return;
    const size_t at = row * a.out_ld + head * a.head_dim;
    const bf16 *out = (const bf16 *)a.out + at, *dout = (const bf16 *)a.dout + at;
    float sum = 0;
    for (uint32_t i = threadIdx.x; i < a.head_dim; i += 32)
        sum += __bfloat162float(out[i]) * __bfloat162float(dout[i]);
    sum = warp_sum(sum);
    if (threadIdx.x == 0)
        delta[((size_t)(row / a.seq) * a.heads + head) * a.seq + row % a.seq] = sum;
}

/* What a block of the way back works with. */
template <int D_MAX> struct back {
    bf16 *q, *k, *v, *dout, *halves;
    float *scores;

    __device__ explicit back(unsigned char *shared)
    {
        typedef struct tiles<D_MAX> t;
        q = (bf16 *)shared;
        k = q + TILE * t::ld;
        v = k + TILE * t::ld;
        dout = v + TILE * t::ld;
        halves = dout + TILE * t::ld;
        scores = (float *)(shared + 4 * t::tile_bytes + t::half_bytes);
    }
};

__device__ static void put_halves(bf16 *halves, const float values[EACH])
{
#pragma unroll
    for (int i = 0; i < EACH; i++)
        halves[own_row() * HALF_LD + column(i)] = __float2bfloat16(values[i]);
    __syncwarp();
}

template <int D_MAX> __global__ static void __launch_bounds__(THREADS) query_dx(struct pl_attention_dx a, const float *delta)
{
    typedef struct tiles<D_MAX> t;
    extern __shared__ __align__(128) unsigned char shared[];
    const struct back<D_MAX> m(shared);
    const uint32_t d = a.head_dim, first = (gridDim.x - 1 - blockIdx.x) * TILE, query = first + own_row();
    const uint32_t head = blockIdx.y, group = head / (a.heads / a.kv_heads);
    const size_t row0 = (size_t)blockIdx.z * a.seq, stat = ((size_t)blockIdx.z * a.heads + head) * a.seq;
    const bf16 *at = (const bf16 *)a.qkv + row0 * a.qkv_ld;
    const bf16 *keys = at + (a.heads + group) * d, *values = keys + a.kv_heads * d;
    const float scale = rsqrtf((float)d);
    const float lse = query < a.seq ? a.lse[stat + query] : 0, own_delta = query < a.seq ? delta[stat + query] : 0;
    sum_piece dq[t::steps];
    for (int j = 0; j < t::steps; j++)
        wmma::fill_fragment(dq[j], 0.0f);
    load_tile<D_MAX>(m.q, at + head * d, a.qkv_ld, first, a.seq, d);
    load_tile<D_MAX>(m.dout, (const bf16 *)a.dout + row0 * a.out_ld + head * d, a.out_ld, first, a.seq, d);
    for (uint32_t key = 0; key <= first; key += TILE) {
        float p[EACH];
        __syncthreads();
        load_tile<D_MAX>(m.k, keys, a.qkv_ld, key, a.seq, d);
        load_tile<D_MAX>(m.v, values, a.qkv_ld, key, a.seq, d);
        __syncthreads();
        score_strip<D_MAX>(m.scores, m.q, m.k, d);
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const bool meet = query < a.seq && key + column(i) <= query;
            p[i] = meet ? __expf(m.scores[own_row() * SCORE_LD + column(i)] * scale - lse) : 0;
        }
        __syncwarp();
        score_strip<D_MAX>(m.scores, m.dout, m.v, d);
#pragma unroll
        for (int i = 0; i < EACH; i++)
            p[i] *= (m.scores[own_row() * SCORE_LD + column(i)] - own_delta) * scale;
        put_halves(m.halves, p);
        add_strip<D_MAX>(dq, m.halves, m.k, d);
        __syncwarp();
    }
    store_pieces<D_MAX>((bf16 *)a.dqkv + row0 * a.qkv_ld + head * d, a.qkv_ld, first, a.seq, d, m.scores, dq);
}

/* Rows are keys here, columns queries. */
template <int D_MAX> __global__ static void __launch_bounds__(THREADS) key_dx(struct pl_attention_dx a, const float *delta)
{
    typedef struct tiles<D_MAX> t;
    extern __shared__ __align__(128) unsigned char shared[];
    __shared__ float lse[TILE], deltas[TILE];
    const struct back<D_MAX> m(shared);
    const uint32_t d = a.head_dim, first = blockIdx.x * TILE, key = first + own_row();
    const uint32_t group = blockIdx.y, per_group = a.heads / a.kv_heads;
    const size_t row0 = (size_t)blockIdx.z * a.seq;
    const bf16 *at = (const bf16 *)a.qkv + row0 * a.qkv_ld;
    const size_t key_at = (a.heads + group) * (size_t)d, value_at = key_at + a.kv_heads * (size_t)d;
    const float scale = rsqrtf((float)d);
    sum_piece dk[t::steps], dv[t::steps];
    for (int j = 0; j < t::steps; j++) {
        wmma::fill_fragment(dk[j], 0.0f);
        wmma::fill_fragment(dv[j], 0.0f);
    }
    load_tile<D_MAX>(m.k, at + key_at, a.qkv_ld, first, a.seq, d);
    load_tile<D_MAX>(m.v, at + value_at, a.qkv_ld, first, a.seq, d);
    for (uint32_t turn = 0; turn < per_group * ((a.seq - first + TILE - 1) / TILE); turn++) {
        const uint32_t head = group * per_group + turn % per_group, query0 = first + turn / per_group * TILE;
        const size_t stat = ((size_t)blockIdx.z * a.heads + head) * a.seq;
        float p[EACH];
        __syncthreads();
        load_tile<D_MAX>(m.q, at + head * d, a.qkv_ld, query0, a.seq, d);
        load_tile<D_MAX>(m.dout, (const bf16 *)a.dout + row0 * a.out_ld + head * d, a.out_ld, query0, a.seq, d);
        if (threadIdx.x < TILE && query0 + threadIdx.x < a.seq) {
            lse[threadIdx.x] = a.lse[stat + query0 + threadIdx.x];
            deltas[threadIdx.x] = delta[stat + query0 + threadIdx.x];
        }
        __syncthreads();
        score_strip<D_MAX>(m.scores, m.k, m.q, d);
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const uint32_t query = query0 + column(i);
            const bool meet = query < a.seq && key <= query;
            p[i] = meet ? __expf(m.scores[own_row() * SCORE_LD + column(i)] * scale - lse[column(i)]) : 0;
        }
        put_halves(m.halves, p);
        add_strip<D_MAX>(dv, m.halves, m.dout, d);
        __syncwarp();
        score_strip<D_MAX>(m.scores, m.v, m.dout, d);
#pragma unroll
        for (int i = 0; i < EACH; i++) /* what does not meet may have no delta */
            p[i] = p[i] == 0 ? 0 : p[i] * (m.scores[own_row() * SCORE_LD + column(i)] - deltas[column(i)]) * scale;
        put_halves(m.halves, p);
        add_strip<D_MAX>(dk, m.halves, m.q, d);
        __syncwarp();
    }
    bf16 *to = (bf16 *)a.dqkv + row0 * a.qkv_ld;
    store_pieces<D_MAX>(to + key_at, a.qkv_ld, first, a.seq, d, m.scores, dk);
    store_pieces<D_MAX>(to + value_at, a.qkv_ld, first, a.seq, d, m.scores, dv);
}

/* ---- by the width of a head ---- */

/* So much shared memory for a block, or a sentence. */
template <typename kernel> static bool reserve(struct state *s, kernel *function, size_t bytes)
{
    if (cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes) == cudaSuccess)
        return true;
    (void)cudaGetLastError();
    host->fail(s->engine, "this GPU has too little shared memory for heads of that many values: try heads of 64");
    return false;
}

/* A grid's other two sides. */
static bool fits(struct state *s, uint32_t heads, uint32_t batch)
{
    if (heads <= 65535 && batch <= 65535)
        return true;
    host->fail(s->engine, "a batch has at most 65,535 sequences on this back end");
    return false;
}

template <int D_MAX> static void forward(struct state *s, const struct pl_attention *a)
{
    typedef struct tiles<D_MAX> t;
    const size_t bytes = 3 * t::tile_bytes + t::half_bytes + t::score_bytes + t::sum_bytes;
    if (!reserve(s, attend<D_MAX>, bytes) || !fits(s, a->heads, a->batch))
        return;
    attend<D_MAX><<<dim3(blocks_for(a->seq, TILE), a->heads, a->batch), THREADS, bytes, s->stream>>>(*a);
}

template <int D_MAX> static void backward(struct state *s, const struct pl_attention_dx *a, const float *delta)
{
    typedef struct tiles<D_MAX> t;
    const size_t bytes = 4 * t::tile_bytes + t::half_bytes + t::stage_bytes;
    const uint32_t count = blocks_for(a->seq, TILE);
    if (!reserve(s, query_dx<D_MAX>, bytes) || !reserve(s, key_dx<D_MAX>, bytes) || !fits(s, a->heads, a->batch))
        return;
    query_dx<D_MAX><<<dim3(count, a->heads, a->batch), THREADS, bytes, s->stream>>>(*a, delta);
    key_dx<D_MAX><<<dim3(count, a->kv_heads, a->batch), THREADS, bytes, s->stream>>>(*a, delta);
}

static const char too_wide[] = "a head of more than 256 values is more than this back end takes";

void cuda_attention(struct pl_engine *e, const struct pl_attention *a)
{
    struct state *s = state_of(e);
    if (a->head_dim <= 32)
        forward<32>(s, a);
    else if (a->head_dim <= 64)
        forward<64>(s, a);
    else if (a->head_dim <= 128)
        forward<128>(s, a);
    else if (a->head_dim <= 256)
        forward<256>(s, a);
    else
        host->fail(e, too_wide);
}

void cuda_attention_dx(struct pl_engine *e, const struct pl_attention_dx *a)
{
    struct state *s = state_of(e);
    const uint64_t units = (uint64_t)a->batch * a->seq * a->heads;
    float *delta = (float *)room_on_gpu(s, &s->parts, units * sizeof(float));
    if (delta == NULL)
        return;
    make_delta<<<blocks_for(units, DELTA_WARPS), dim3(32, DELTA_WARPS), 0, s->stream>>>(*a, delta);
    if (a->head_dim <= 32)
        backward<32>(s, a, delta);
    else if (a->head_dim <= 64)
        backward<64>(s, a, delta);
    else if (a->head_dim <= 128)
        backward<128>(s, a, delta);
    else if (a->head_dim <= 256)
        backward<256>(s, a, delta);
    else
        host->fail(e, too_wide);
}
