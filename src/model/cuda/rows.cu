/* model/cuda/rows.cu - operations on rows: norms, rotation, SwiGLU, cross-entropy, embedding, conversions.
 *
 * A warp works on a row (or on one head of it). Sums over rows (gradients of norm weights) are made in two steps: chunks of
 * rows make parts, the parts are added in order. The cut depends on the shape alone, so the same values give the same bits.
 */
#include "model/cuda/state.cuh"

#include <math_constants.h>

enum { WARP = 32, WARPS = 8, CHUNKS_MAX = 64, CHUNK_ROWS = 64 };

static const dim3 warps(WARP, WARPS);

/* The unit of work (row, or head of a row) that this warp has. */
__device__ static inline uint32_t warp_unit()
{
    return blockIdx.x * WARPS + threadIdx.y;
}

__device__ static inline float to_float(bf16 x)
{
    return __bfloat162float(x);
}

__device__ static inline float to_float(float x)
{
    return x;
}

/* ---- sums over rows ---- */

static uint32_t chunk_rows(uint32_t rows)
{
    uint32_t least = (rows + CHUNKS_MAX - 1) / CHUNKS_MAX;
    return least > CHUNK_ROWS ? least : CHUNK_ROWS;
}

__global__ static void add_chunks(float *out, const float *parts, uint32_t chunks, uint32_t c, bool accumulate)
{
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= c)
        return;
    float sum = accumulate ? out[i] : 0;
    for (uint32_t chunk = 0; chunk < chunks; chunk++)
        sum += parts[(size_t)chunk * c + i];
    out[i] = sum;
}

void add_parts(struct state *s, float *out, const float *parts, uint32_t chunks, uint32_t c, bool accumulate)
{
    add_chunks<<<blocks_for(c, 64), 64, 0, s->stream>>>(out, parts, chunks, c, accumulate);
}

/* The block's threads (32 columns, WARPS rows) have a sum each; the first row writes their total. */
__device__ static void put_part(float *parts, uint32_t c, uint32_t column, float sum)
{
    __shared__ float sums[WARPS][WARP];
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y != 0 || column >= c)
        return;
    for (uint32_t i = 1; i < WARPS; i++)
        sum += sums[i][threadIdx.x];
    parts[(size_t)blockIdx.y * c + column] = sum;
}

/* ---- RMSNorm ---- */

__global__ static void norm_rows(struct pl_norm a)
{
    uint32_t r = warp_unit();
    if (r >= a.rows)
        return;
    const float *x = a.x + (size_t)r * a.c;
    bf16 *y = (bf16 *)a.y + r * a.y_ld;
    float sum = 0;
    for (uint32_t i = threadIdx.x; i < a.c; i += WARP)
        sum += x[i] * x[i];
    float s = rsqrtf(warp_sum(sum) / (float)a.c + a.eps);
    for (uint32_t i = threadIdx.x; i < a.c; i += WARP)
        y[i] = __float2bfloat16(x[i] * s * a.w[i]);
    if (threadIdx.x == 0)
        a.rstd[r] = s;
}

void cuda_norm(struct pl_engine *e, const struct pl_norm *a)
{
    struct state *s = state_of(e);
    struct pl_norm here = *a;
    here.w = param_at(s, a->w);
    norm_rows<<<blocks_for(a->rows, WARPS), warps, 0, s->stream>>>(here);
}

__global__ static void norm_parts(struct pl_norm_dx a, float *parts, uint32_t chunk)
{
    uint32_t i = blockIdx.x * WARP + threadIdx.x;
    uint32_t first = blockIdx.y * chunk, end = min(a.rows, first + chunk);
    float sum = 0;
    for (uint32_t r = first + threadIdx.y; r < end && i < a.c; r += WARPS)
        sum += to_float(((const bf16 *)a.dy)[r * a.dy_ld + i]) * a.x[(size_t)r * a.c + i] * a.rstd[r];
    put_part(parts, a.c, i, sum);
}

__global__ static void norm_dx_rows(struct pl_norm_dx a)
{
    uint32_t r = warp_unit();
    if (r >= a.rows)
        return;
    const bf16 *dy = (const bf16 *)a.dy + r * a.dy_ld;
    const float *x = a.x + (size_t)r * a.c;
    float *dx = a.dx + (size_t)r * a.c;
    bf16 *act = (bf16 *)a.dx_act + r * a.dx_act_ld;
    float sum = 0, s = a.rstd[r];
    for (uint32_t i = threadIdx.x; i < a.c; i += WARP)
        sum += to_float(dy[i]) * a.w[i] * x[i];
    float pull = warp_sum(sum) * s * s * s / (float)a.c;
    for (uint32_t i = threadIdx.x; i < a.c; i += WARP) {
        float d = dx[i] + s * a.w[i] * to_float(dy[i]) - x[i] * pull;
        dx[i] = d;
        if (a.dx_act != NULL)
            act[i] = __float2bfloat16(d);
    }
}

void cuda_norm_dx(struct pl_engine *e, const struct pl_norm_dx *a)
{
    struct state *s = state_of(e);
    uint32_t chunk = chunk_rows(a->rows), chunks = blocks_for(a->rows, chunk);
    float *parts = (float *)room_on_gpu(s, &s->parts, (size_t)chunks * a->c * sizeof(float));
    if (parts == NULL)
        return;
    struct pl_norm_dx here = *a;
    here.w = param_at(s, a->w);
    norm_parts<<<dim3(blocks_for(a->c, WARP), chunks), warps, 0, s->stream>>>(here, parts, chunk);
    add_parts(s, grad_at(s, a->dw), parts, chunks, a->c, a->accumulate);
    norm_dx_rows<<<blocks_for(a->rows, WARPS), warps, 0, s->stream>>>(here);
}

/* ---- rotation ---- */

/* One head of D values: normed when w is not NULL, then turned. */
__device__ static void turn_head(const struct pl_rotary &a, uint32_t r, uint32_t head)
{
    const uint32_t half = a.head_dim / 2, turned = a.heads + a.kv_heads;
    const bf16 *x = (const bf16 *)a.in + r * a.ld + head * a.head_dim;
    bf16 *y = (bf16 *)a.out + r * a.ld + head * a.head_dim;
    const float *w = head < a.heads ? a.q_w : a.k_w;
    const float *cos = a.cos + (size_t)(r % a.seq) * half, *sin = a.sin + (size_t)(r % a.seq) * half;
    float s = 1;
    if (w != NULL) {
        float sum = 0;
        for (uint32_t i = threadIdx.x; i < a.head_dim; i += WARP)
            sum += to_float(x[i]) * to_float(x[i]);
        s = rsqrtf(warp_sum(sum) / (float)a.head_dim + a.eps);
        if (threadIdx.x == 0)
            a.rstd[(size_t)r * turned + head] = s;
    }
    for (uint32_t i = threadIdx.x; i < half; i += WARP) {
        float first = to_float(x[i]) * s * (w != NULL ? w[i] : 1.0f);
        float second = to_float(x[i + half]) * s * (w != NULL ? w[i + half] : 1.0f);
        y[i] = __float2bfloat16(first * cos[i] - second * sin[i]);
        y[i + half] = __float2bfloat16(second * cos[i] + first * sin[i]);
    }
}

__global__ static void turn_rows(struct pl_rotary a)
{
    const uint32_t turned = a.heads + a.kv_heads, heads = turned + (a.in != a.out ? a.kv_heads : 0);
    const uint32_t unit = warp_unit(), r = unit / heads, head = unit % heads;
    if (r >= a.rows)
        return;
    if (head < turned) {
        turn_head(a, r, head);
        return;
    }
    const size_t at = r * a.ld + head * a.head_dim;
    for (uint32_t i = threadIdx.x; i < a.head_dim; i += WARP)
        ((bf16 *)a.out)[at + i] = ((const bf16 *)a.in)[at + i];
}

void cuda_rotary(struct pl_engine *e, const struct pl_rotary *a)
{
    struct state *s = state_of(e);
    uint32_t heads = a->heads + a->kv_heads + (a->in != a->out ? a->kv_heads : 0);
    struct pl_rotary here = *a;
    here.q_w = param_at(s, a->q_w);
    here.k_w = param_at(s, a->k_w);
    turn_rows<<<blocks_for((uint64_t)a->rows * heads, WARPS), warps, 0, s->stream>>>(here);
}

/* The gradient of value i of a head before its rotation. */
__device__ static inline float turned_back(const struct pl_rotary_dx &a, uint32_t r, uint32_t head, uint32_t i)
{
    const uint32_t half = a.head_dim / 2, pair = i % half;
    const bf16 *d = (const bf16 *)a.d + r * a.ld + head * a.head_dim;
    const size_t angle = (size_t)(r % a.seq) * half + pair;
    const float first = to_float(d[pair]), second = to_float(d[pair + half]);
    return i < half ? first * a.cos[angle] + second * a.sin[angle] : second * a.cos[angle] - first * a.sin[angle];
}

/* Of the norm that heads first .. last-1 share. */
__global__ static void head_norm_parts(struct pl_rotary_dx a, uint32_t first, uint32_t last, float *parts,
                                       uint32_t chunk)
{
    const uint32_t i = blockIdx.x * WARP + threadIdx.x, turned = a.heads + a.kv_heads;
    const uint32_t row0 = blockIdx.y * chunk, end = min(a.rows, row0 + chunk);
    float sum = 0;
    for (uint32_t r = row0 + threadIdx.y; r < end && i < a.head_dim; r += WARPS)
        for (uint32_t head = first; head < last; head++)
            sum += turned_back(a, r, head, i) * to_float(((const bf16 *)a.in)[r * a.ld + head * a.head_dim + i]) *
                   a.rstd[(size_t)r * turned + head];
    put_part(parts, a.head_dim, i, sum);
}

/* In place: a thread has both values of a pair. */
__global__ static void turn_back(struct pl_rotary_dx a)
{
    const uint32_t half = a.head_dim / 2, turned = a.heads + a.kv_heads;
    const uint32_t unit = warp_unit(), r = unit / turned, head = unit % turned;
    if (r >= a.rows)
        return;
    const size_t at = r * a.ld + head * a.head_dim;
    const bf16 *x = (const bf16 *)a.in + at;
    bf16 *d = (bf16 *)a.d + at;
    const float *w = head < a.heads ? a.q_w : a.k_w;
    float s = 1, pull = 0;
    if (w != NULL) {
        s = a.rstd[(size_t)r * turned + head];
        for (uint32_t i = threadIdx.x; i < a.head_dim; i += WARP)
            pull += turned_back(a, r, head, i) * w[i] * to_float(x[i]);
        pull = warp_sum(pull) * s * s * s / (float)a.head_dim;
    }
    for (uint32_t i = threadIdx.x; i < half; i += WARP) {
        float first = turned_back(a, r, head, i), second = turned_back(a, r, head, i + half);
        if (w != NULL) {
            first = s * w[i] * first - to_float(x[i]) * pull;
            second = s * w[i + half] * second - to_float(x[i + half]) * pull;
        }
        d[i] = __float2bfloat16(first);
        d[i + half] = __float2bfloat16(second);
    }
}

static void head_norm_dw(struct state *s, const struct pl_rotary_dx *a, uint32_t first, uint32_t last, float *dw)
{
    uint32_t chunk = chunk_rows(a->rows), chunks = blocks_for(a->rows, chunk);
    float *parts = (float *)room_on_gpu(s, &s->parts, (size_t)chunks * a->head_dim * sizeof(float));
    if (parts == NULL)
        return;
    head_norm_parts<<<dim3(blocks_for(a->head_dim, WARP), chunks), warps, 0, s->stream>>>(*a, first, last, parts, chunk);
    add_parts(s, grad_at(s, dw), parts, chunks, a->head_dim, a->accumulate);
}

void cuda_rotary_dx(struct pl_engine *e, const struct pl_rotary_dx *a)
{
    struct state *s = state_of(e);
    uint32_t turned = a->heads + a->kv_heads;
    struct pl_rotary_dx here = *a;
    here.q_w = param_at(s, a->q_w);
    here.k_w = param_at(s, a->k_w);
    if (a->q_w != NULL) {
        head_norm_dw(s, &here, 0, a->heads, a->dq_w);
        head_norm_dw(s, &here, a->heads, turned, a->dk_w);
    }
    turn_back<<<blocks_for((uint64_t)a->rows * turned, WARPS), warps, 0, s->stream>>>(here);
}

/* ---- SwiGLU ---- */

__device__ static inline float sigmoid(float x)
{
    return 1.0f / (1.0f + __expf(-x));
}

__global__ static void swiglu_values(struct pl_swiglu a)
{
    const uint64_t at = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x;
    const uint32_t r = (uint32_t)(at / a.f), i = (uint32_t)(at % a.f);
    if (r >= a.rows)
        return;
    const bf16 *gu = (const bf16 *)a.gu + r * a.gu_ld;
    float gate = to_float(gu[i]), up = to_float(gu[i + a.f]);
    ((bf16 *)a.h)[r * a.h_ld + i] = __float2bfloat16(gate * sigmoid(gate) * up);
}

void cuda_swiglu(struct pl_engine *e, const struct pl_swiglu *a)
{
    swiglu_values<<<blocks_for((uint64_t)a->rows * a->f, 256), 256, 0, state_of(e)->stream>>>(*a);
}

__global__ static void swiglu_dx_values(struct pl_swiglu_dx a)
{
    const uint64_t at = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x;
    const uint32_t r = (uint32_t)(at / a.f), i = (uint32_t)(at % a.f);
    if (r >= a.rows)
        return;
    const bf16 *gu = (const bf16 *)a.gu + r * a.gu_ld;
    bf16 *dgu = (bf16 *)a.dgu + r * a.gu_ld;
    const float gate = to_float(gu[i]), up = to_float(gu[i + a.f]);
    const float d = to_float(((const bf16 *)a.dh)[r * a.dh_ld + i]), s = sigmoid(gate);
    dgu[i] = __float2bfloat16(d * up * s * (1 + gate * (1 - s)));
    dgu[i + a.f] = __float2bfloat16(d * gate * s);
    ((bf16 *)a.h)[r * a.dh_ld + i] = __float2bfloat16(gate * s * up);
}

void cuda_swiglu_dx(struct pl_engine *e, const struct pl_swiglu_dx *a)
{
    swiglu_dx_values<<<blocks_for((uint64_t)a->rows * a->f, 256), 256, 0, state_of(e)->stream>>>(*a);
}

/* ---- cross-entropy ---- */

enum { XENT_THREADS = 256 };

/* The largest value and the sum of exponentials around it, of two parts of a row. */
struct peak {
    float max, sum;
};

__device__ static inline struct peak join(struct peak x, struct peak y)
{
    if (x.sum == 0 || y.sum == 0) /* nothing yet; a value that is no number counts */
        return x.sum == 0 ? y : x;
    const float max = fmaxf(x.max, y.max);
    return {max, x.sum * expf(x.max - max) + y.sum * expf(y.max - max)};
}

__device__ static struct peak block_peak(struct peak mine)
{
    __shared__ struct peak all[XENT_THREADS / WARP];
    for (int other = 16; other > 0; other /= 2)
        mine = join(mine, {__shfl_xor_sync(0xffffffffu, mine.max, other), __shfl_xor_sync(0xffffffffu, mine.sum, other)});
    if (threadIdx.x % WARP == 0)
        all[threadIdx.x / WARP] = mine;
    __syncthreads();
    mine = all[0];
    for (int i = 1; i < XENT_THREADS / WARP; i++)
        mine = join(mine, all[i]);
    return mine;
}

template <typename T> __global__ static void xent_rows(struct pl_xent a, const int32_t *targets)
{
    T *x = (T *)a.logits + blockIdx.x * a.ld;
    const int32_t target = targets[blockIdx.x];
    struct peak p = {-CUDART_INF_F, 0};
    for (uint32_t i = threadIdx.x; i < a.vocab; i += XENT_THREADS)
        p = join(p, {to_float(x[i]), 1});
    p = block_peak(p);
    const float log_sum = logf(p.sum), lse = p.max + log_sum;
    if (threadIdx.x == 0)
        a.loss[blockIdx.x] = target < 0 ? 0 : p.max - to_float(x[target]) + log_sum;
    if (a.scale == 0)
        return;
    __syncthreads(); /* the target's logit has been read */
    const float push = 1 + 2 * a.z * lse;
    for (uint32_t i = threadIdx.x; i < a.vocab; i += XENT_THREADS) {
        float d = expf(to_float(x[i]) - p.max) / p.sum * push - ((int32_t)i == target ? 1.0f : 0.0f);
        x[i] = (T)(target < 0 ? 0.0f : a.scale * d);
    }
}

void cuda_xent(struct pl_engine *e, const struct pl_xent *a)
{
    struct state *s = state_of(e);
    const int32_t *targets = bring_ids(s, a->targets, a->rows);
    if (targets == NULL)
        return;
    if (a->logits_f32)
        xent_rows<float><<<a->rows, XENT_THREADS, 0, s->stream>>>(*a, targets);
    else
        xent_rows<bf16><<<a->rows, XENT_THREADS, 0, s->stream>>>(*a, targets);
}

/* ---- embedding ---- */

__global__ static void embed_rows(float *x, const float *table, const int32_t *tokens, uint32_t rows, uint32_t c)
{
    uint32_t r = warp_unit();
    if (r >= rows)
        return;
    for (uint32_t i = threadIdx.x; i < c; i += WARP)
        x[(size_t)r * c + i] = table[(size_t)tokens[r] * c + i];
}

void cuda_embed(struct pl_engine *e, float *x, const float *table, const int32_t *tokens, uint32_t rows, uint32_t c)
{
    struct state *s = state_of(e);
    const int32_t *ids = bring_ids(s, tokens, rows);
    if (ids != NULL)
        embed_rows<<<blocks_for(rows, WARPS), warps, 0, s->stream>>>(x, param_at(s, table), ids, rows, c);
}

enum { SEEKERS = 128 };

/* A block has one token: it looks through all rows and adds those that are its, in their order. The block of a token that
 * does not occur writes nothing. */
__global__ static void embed_dw_token(float *dtable, const float *dx, const int32_t *tokens, uint32_t rows, uint32_t c)
{
    __shared__ uint32_t found[SEEKERS / WARP];
    float *to = dtable + (size_t)blockIdx.x * c;
    for (uint32_t row0 = 0; row0 < rows; row0 += SEEKERS) {
        const uint32_t r = row0 + threadIdx.x;
        const uint32_t mine = __ballot_sync(0xffffffffu, r < rows && tokens[r] == (int32_t)blockIdx.x);
        if (threadIdx.x % WARP == 0)
            found[threadIdx.x / WARP] = mine;
        if (!__syncthreads_or((int)mine))
            continue;
        for (uint32_t w = 0; w < SEEKERS / WARP; w++)
            for (uint32_t left = found[w]; left != 0; left &= left - 1) {
                const float *from = dx + (size_t)(row0 + w * WARP + __ffs((int)left) - 1) * c;
                for (uint32_t i = threadIdx.x; i < c; i += SEEKERS)
                    to[i] += from[i];
            }
        __syncthreads();
    }
}

/* The largest token there is decides how many blocks look: the table's length is not known here. */
static uint32_t tokens_end(const int32_t *tokens, uint32_t rows)
{
    int32_t most = 0;
    for (uint32_t i = 0; i < rows; i++)
        most = tokens[i] > most ? tokens[i] : most;
    return (uint32_t)most + 1;
}

void cuda_embed_dw(struct pl_engine *e, float *dtable, const float *dx, const int32_t *tokens, uint32_t rows, uint32_t c)
{
    struct state *s = state_of(e);
    const int32_t *ids = bring_ids(s, tokens, rows);
    if (ids != NULL)
        embed_dw_token<<<tokens_end(tokens, rows), SEEKERS, 0, s->stream>>>(grad_at(s, dtable), dx, ids, rows, c);
}

/* ---- conversions ---- */

__global__ static void convert_to_act(bf16 *out, size_t out_ld, const float *in, uint32_t rows, uint32_t c)
{
    uint32_t r = warp_unit();
    for (uint32_t i = threadIdx.x; r < rows && i < c; i += WARP)
        out[r * out_ld + i] = __float2bfloat16(in[(size_t)r * c + i]);
}

void cuda_to_act(struct pl_engine *e, void *out, size_t out_ld, const float *in, uint32_t rows, uint32_t c)
{
    convert_to_act<<<blocks_for(rows, WARPS), warps, 0, state_of(e)->stream>>>((bf16 *)out, out_ld, in, rows, c);
}

__global__ static void convert_to_f32(float *out, const bf16 *in, size_t in_ld, uint32_t rows, uint32_t c)
{
    uint32_t r = warp_unit();
    for (uint32_t i = threadIdx.x; r < rows && i < c; i += WARP)
        out[(size_t)r * c + i] = to_float(in[r * in_ld + i]);
}

void cuda_to_f32(struct pl_engine *e, float *out, const void *in, size_t in_ld, uint32_t rows, uint32_t c)
{
    convert_to_f32<<<blocks_for(rows, WARPS), warps, 0, state_of(e)->stream>>>(out, (const bf16 *)in, in_ld, rows, c);
}
