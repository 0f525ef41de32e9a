/* model/cpu/ref.c - the operations of model/ops.h as a textbook would write them.
 *
 * This is the specification that the fast back ends are compared with, so it does everything in the obvious order:
 * one thread, no blocks, no scratch memory (what is needed twice is computed twice), floats in and out, doubles in
 * between. Activations are floats, and a "packed" weight is the matrix itself.
 *
 * Shapes stand beside the pointers; letters are those of model/config.h. "d" in front of a name means the gradient of
 * the loss with respect to it.
 */
#include "model/cpu/ref.h"

#include "base/bf16.h"
#include "base/check.h"

#include <math.h>
#include <string.h>

enum { HEAD_DIM_MAX = 1024 };

static double dot(const float *a, const float *b, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

/* ---- matrix products ---- */

static size_t ref_weight_bytes(const struct pl_engine *e, uint32_t n, uint32_t k)
{
    (void)e;
    return (size_t)n * k * sizeof(float);
}

static void ref_weight_pack(struct pl_engine *e, void *packed, const float *w, uint32_t n, uint32_t k,
                            uint32_t row0, uint32_t rows)
{
    (void)e;
    pl_assert(row0 % PL_PACK_ROWS == 0 && row0 + rows <= n);
    pl_assert(rows % PL_PACK_ROWS == 0 || row0 + rows == n);
    memcpy((float *)packed + (size_t)row0 * k, w + (size_t)row0 * k, (size_t)rows * k * sizeof(float));
}

/* Element (row, col) of the result goes where a->kind says; floats and activations look the same here. */
static void put_product(const struct pl_linear *a, size_t row, size_t col, double product)
{
    const size_t at = row * a->out_ld + col;
    float *out = a->out;
    out[at] = (float)(a->kind == PL_OUT_SUM ? (double)a->base[at] + product : product);
}

static void ref_linear(struct pl_engine *e, const struct pl_linear *a)
{
    const float *w = a->weight; /* (n, k) */
    const float *in = a->in;    /* (rows, k) */
    (void)e;
    for (size_t r = 0; r < a->rows; r++)
        for (size_t j = 0; j < a->n; j++)
            put_product(a, r, j, dot(in + r * a->in_ld, w + j * a->k, a->k));
}

static void ref_linear_dx(struct pl_engine *e, const struct pl_linear *a)
{
    const float *w = a->weight; /* (n, k) */
    (void)e;
    for (size_t r = 0; r < a->rows; r++) {
        const float *in = (const float *)a->in + r * a->in_ld; /* (n) */
        for (size_t i = 0; i < a->k; i++) {
            double sum = 0;
            for (size_t j = 0; j < a->n; j++)
                sum += (double)in[j] * (double)w[j * a->k + i];
            put_product(a, r, i, sum);
        }
    }
}

static void ref_linear_dw(struct pl_engine *e, const struct pl_linear_dw *a)
{
    const float *dout = a->dout; /* (rows, n) */
    const float *in = a->in;     /* (rows, k) */
    (void)e;
    for (size_t j = 0; j < a->n; j++) {
        for (size_t i = 0; i < a->k; i++) {
            float *dw = a->dw + j * a->k + i;
            double sum = a->accumulate ? (double)*dw : 0;
            for (size_t r = 0; r < a->rows; r++)
                sum += (double)dout[r * a->dout_ld + j] * (double)in[r * a->in_ld + i];
            *dw = (float)sum;
        }
    }
}

static void ref_matmul(struct pl_engine *e, float *c, const float *a, const float *b, uint32_t m, uint32_t n,
                       uint32_t k, bool b_transposed)
{
    const size_t step = b_transposed ? 1 : n; /* between b's elements of one column of c */
    (void)e;
    for (size_t i = 0; i < m; i++) {
        for (size_t j = 0; j < n; j++) {
            const float *column = b_transposed ? b + j * k : b + j;
            double sum = 0;
            for (size_t l = 0; l < k; l++)
                sum += (double)a[i * k + l] * (double)column[l * step];
            c[i * n + j] = (float)sum;
        }
    }
}

static void ref_gemv(struct pl_engine *e, float *y, const float *x, const uint16_t *w, uint32_t rows,
                     uint32_t n, uint32_t k)
{
    (void)e;
    for (size_t r = 0; r < rows; r++) {
        for (size_t j = 0; j < n; j++) {
            double sum = 0;
            for (size_t i = 0; i < k; i++)
                sum += (double)x[r * k + i] * (double)pl_bf16_to_float(w[j * k + i]);
            y[r * n + j] = (float)sum;
        }
    }
}

/* ---- RMSNorm ---- */

static double rstd_of(const float *x, size_t n, float eps)
{
    return 1 / sqrt(dot(x, x, n) / (double)n + (double)eps);
}

/* With y[i] = x[i] * s * w[i] and s a function of all x:
 *   dx[i] = s * w[i] * dy[i] - x[i] * s^3 / n * pull,   pull = sum over j of dy[j] * w[j] * x[j]. */
static double norm_pull(const float *dy, const float *w, const float *x, size_t n)
{
    double pull = 0;
    for (size_t j = 0; j < n; j++)
        pull += (double)dy[j] * (double)w[j] * (double)x[j];
    return pull;
}

static void ref_norm(struct pl_engine *e, const struct pl_norm *a)
{
    (void)e;
    for (size_t r = 0; r < a->rows; r++) {
        const float *x = a->x + r * a->c;
        float *y = (float *)a->y + r * a->y_ld;
        const double s = rstd_of(x, a->c, a->eps);
        for (size_t i = 0; i < a->c; i++)
            y[i] = (float)((double)x[i] * s * (double)a->w[i]);
        a->rstd[r] = (float)s;
    }
}

static void ref_norm_dx(struct pl_engine *e, const struct pl_norm_dx *a)
{
    const float *dy = a->dy; /* (rows, c) */
    (void)e;
    for (size_t i = 0; i < a->c; i++) {
        double sum = a->accumulate ? (double)a->dw[i] : 0;
        for (size_t r = 0; r < a->rows; r++)
            sum += (double)dy[r * a->dy_ld + i] * (double)a->x[r * a->c + i] * (double)a->rstd[r];
        a->dw[i] = (float)sum;
    }
    for (size_t r = 0; r < a->rows; r++) {
        const float *dy_row = dy + r * a->dy_ld;
        const float *x = a->x + r * a->c;
        float *dx = a->dx + r * a->c;
        const double s = (double)a->rstd[r];
        const double pull = norm_pull(dy_row, a->w, x, a->c) * s * s * s / (double)a->c;
        for (size_t i = 0; i < a->c; i++)
            dx[i] = (float)((double)dx[i] + s * (double)a->w[i] * (double)dy_row[i] - (double)x[i] * pull);
        if (a->dx_act != NULL)
            memcpy((float *)a->dx_act + r * a->dx_act_ld, dx, a->c * sizeof *dx);
    }
}

/* ---- rotary positions, with the optional norm of queries and keys ---- */

/* One head of D values: normed when w is not NULL, then turned. cos and sin (D/2) belong to the row's position. */
static void turn_head(const float *x, float *y, const float *w, double s, const float *cos, const float *sin,
                      size_t half)
{
    for (size_t i = 0; i < half; i++) {
        const double a = w != NULL ? (double)x[i] * s * (double)w[i] : (double)x[i];
        const double b = w != NULL ? (double)x[i + half] * s * (double)w[i + half] : (double)x[i + half];
        y[i] = (float)(a * (double)cos[i] - b * (double)sin[i]);
        y[i + half] = (float)(b * (double)cos[i] + a * (double)sin[i]);
    }
}

static void ref_rotary(struct pl_engine *e, const struct pl_rotary *a)
{
    const size_t d = a->head_dim, turned = a->heads + a->kv_heads;
    (void)e;
    for (size_t r = 0; r < a->rows; r++) {
        const float *in = (const float *)a->in + r * a->ld; /* (H + 2G, D) */
        float *out = (float *)a->out + r * a->ld;
        const size_t angle = r % a->seq * (d / 2);
        for (size_t h = 0; h < turned; h++) {
            const float *w = h < a->heads ? a->q_w : a->k_w;
            const double s = w != NULL ? rstd_of(in + h * d, d, a->eps) : 1;
            turn_head(in + h * d, out + h * d, w, s, a->cos + angle, a->sin + angle, d / 2);
            if (w != NULL)
                a->rstd[r * turned + h] = (float)s;
        }
        if (out != in)
            memcpy(out + turned * d, in + turned * d, a->kv_heads * d * sizeof *out);
    }
}

/* The opposite angle, in place. */
static void turn_back(const struct pl_rotary_dx *a)
{
    const size_t d = a->head_dim, half = d / 2;
    for (size_t r = 0; r < a->rows; r++) {
        const float *cos = a->cos + r % a->seq * half, *sin = a->sin + r % a->seq * half;
        for (size_t h = 0; h < a->heads + a->kv_heads; h++) {
            float *x = (float *)a->d + r * a->ld + h * d;
            for (size_t i = 0; i < half; i++) {
                const double first = (double)x[i], second = (double)x[i + half];
                x[i] = (float)(first * (double)cos[i] + second * (double)sin[i]);
                x[i + half] = (float)(second * (double)cos[i] - first * (double)sin[i]);
            }
        }
    }
}

/* dw (D) of the norm that heads first .. last-1 share; d holds the gradient of the normed values. */
static void head_norm_dw(const struct pl_rotary_dx *a, size_t first, size_t last, float *dw)
{
    const size_t d = a->head_dim, turned = a->heads + a->kv_heads;
    for (size_t i = 0; i < d; i++) {
        double sum = a->accumulate ? (double)dw[i] : 0;
        for (size_t r = 0; r < a->rows; r++) {
            for (size_t h = first; h < last; h++) {
                const size_t at = r * a->ld + h * d + i;
                const double s = (double)a->rstd[r * turned + h];
                sum += (double)((const float *)a->d)[at] * (double)((const float *)a->in)[at] * s;
            }
        }
        dw[i] = (float)sum;
    }
}

static void head_norm_dx(const struct pl_rotary_dx *a)
{
    const size_t d = a->head_dim, turned = a->heads + a->kv_heads;
    for (size_t r = 0; r < a->rows; r++) {
        for (size_t h = 0; h < turned; h++) {
            const float *x = (const float *)a->in + r * a->ld + h * d;
            float *dy = (float *)a->d + r * a->ld + h * d; /* becomes dx */
            const float *w = h < a->heads ? a->q_w : a->k_w;
            const double s = (double)a->rstd[r * turned + h];
            const double pull = norm_pull(dy, w, x, d) * s * s * s / (double)d;
            for (size_t i = 0; i < d; i++)
                dy[i] = (float)(s * (double)w[i] * (double)dy[i] - (double)x[i] * pull);
        }
    }
}

static void ref_rotary_dx(struct pl_engine *e, const struct pl_rotary_dx *a)
{
    (void)e;
    turn_back(a);
    if (a->q_w == NULL)
        return;
    head_norm_dw(a, 0, a->heads, a->dq_w);
    head_norm_dw(a, a->heads, a->heads + a->kv_heads, a->dk_w);
    head_norm_dx(a);
}

/* ---- attention ---- */

/* Query t, key u and value u of head h in sequence b; (D) each. */
struct heads {
    const float *qkv; /* (B*T, H + 2G, D) */
    size_t ld, seq, h, g, d;
};

static const float *query_at(const struct heads *x, size_t b, size_t t, size_t head)
{
    return x->qkv + (b * x->seq + t) * x->ld + head * x->d;
}

static const float *key_at(const struct heads *x, size_t b, size_t u, size_t head)
{
    return x->qkv + (b * x->seq + u) * x->ld + (x->h + head / (x->h / x->g)) * x->d;
}

static const float *value_at(const struct heads *x, size_t b, size_t u, size_t head)
{
    return key_at(x, b, u, head) + x->g * x->d;
}

static double score(const struct heads *x, size_t b, size_t head, size_t t, size_t u)
{
    return dot(query_at(x, b, t, head), key_at(x, b, u, head), x->d) / sqrt((double)x->d);
}

/* log of the sum over u <= t of exp(score), around the largest score so far. */
static double log_sum_exp(const struct heads *x, size_t b, size_t head, size_t t)
{
    double max = score(x, b, head, t, 0), sum = 1;
    for (size_t u = 1; u <= t; u++) {
        const double s = score(x, b, head, t, u);
        sum = s > max ? sum * exp(max - s) + 1 : sum + exp(s - max);
        max = s > max ? s : max;
    }
    return max + log(sum);
}

static void ref_attention(struct pl_engine *e, const struct pl_attention *a)
{
    const struct heads x = {a->qkv, a->qkv_ld, a->seq, a->heads, a->kv_heads, a->head_dim};
    double sum[HEAD_DIM_MAX];
    (void)e;
    pl_assert(x.d <= HEAD_DIM_MAX && x.h % x.g == 0);
    for (size_t b = 0; b < a->batch; b++) {
        for (size_t head = 0; head < x.h; head++) {
            for (size_t t = 0; t < x.seq; t++) {
                const double lse = log_sum_exp(&x, b, head, t);
                float *out = (float *)a->out + (b * x.seq + t) * a->out_ld + head * x.d;
                memset(sum, 0, x.d * sizeof *sum);
                for (size_t u = 0; u <= t; u++) {
                    const double p = exp(score(&x, b, head, t, u) - lse);
                    const float *v = value_at(&x, b, u, head);
                    for (size_t i = 0; i < x.d; i++)
                        sum[i] += p * (double)v[i];
                }
                for (size_t i = 0; i < x.d; i++)
                    out[i] = (float)sum[i];
                a->lse[(b * x.h + head) * x.seq + t] = (float)lse;
            }
        }
    }
}

/* One query, from scores around the largest so far; keys and values of its head's cache. */
static void decode_query(const struct pl_decode *a, const float *q, const uint16_t *keys,
                         const uint16_t *values, size_t seen, float *out)
{
    const size_t d = a->head_dim;
    double max = -HUGE_VAL, sum = 0, acc[HEAD_DIM_MAX] = {0};
    for (size_t t = 0; t < seen; t++) {
        const uint16_t *key = keys + t / PL_KV_BLOCK * PL_KV_BLOCK * d + t % PL_KV_BLOCK;
        double s = 0;
        for (size_t i = 0; i < d; i++)
            s += (double)q[i] * (double)pl_bf16_to_float(key[i * PL_KV_BLOCK]);
        s /= sqrt((double)d);
        const double old = s > max ? exp(max - s) : 1, p = s > max ? 1 : exp(s - max);
        max = s > max ? s : max;
        sum = sum * old + p;
        for (size_t i = 0; i < d; i++)
            acc[i] = acc[i] * old + p * (double)pl_bf16_to_float(values[t * d + i]);
    }
    for (size_t i = 0; i < d; i++)
        out[i] = (float)(acc[i] / sum);
}

static void ref_decode(struct pl_engine *e, const struct pl_decode *a)
{
    const size_t d = a->head_dim;
    (void)e;
    pl_assert(d <= HEAD_DIM_MAX && a->heads % a->kv_heads == 0 && a->past + a->rows <= a->room);
    for (size_t r = 0; r < a->rows; r++) {
        for (size_t head = 0; head < a->heads; head++) {
            const size_t cache = head / (a->heads / a->kv_heads) * a->room * d;
            decode_query(a, a->q + r * a->q_ld + head * d, a->keys + cache, a->values + cache,
                         a->past + r + 1, a->out + r * a->out_ld + head * d);
        }
    }
}

/* What one pair (query t, key u <= t) of a head has to do with the loss. */
struct pair {
    double p;           /* softmax of the scores */
    double ds;          /* gradient of q . k, the scale included */
    const float *q, *k; /* (D) */
    const float *dout;  /* (D) gradient of the head's output at t */
};

static struct pair pair_at(const struct pl_attention_dx *a, size_t b, size_t head, size_t t, size_t u)
{
    const struct heads x = {a->qkv, a->qkv_ld, a->seq, a->heads, a->kv_heads, a->head_dim};
    const size_t at = (b * x.seq + t) * a->out_ld + head * x.d;
    const float *dout = (const float *)a->dout + at;
    const double lse = (double)a->lse[(b * x.h + head) * x.seq + t];
    const double delta = dot((const float *)a->out + at, dout, x.d); /* sum over keys of p * dp */
    const double dp = dot(dout, value_at(&x, b, u, head), x.d);
    struct pair pair = {.q = query_at(&x, b, t, head), .k = key_at(&x, b, u, head), .dout = dout};
    pair.p = exp(score(&x, b, head, t, u) - lse);
    pair.ds = pair.p * (dp - delta) / sqrt((double)x.d);
    return pair;
}

/* dq of one query: what it gets from each key it saw. */
static void query_dx(const struct pl_attention_dx *a, size_t b, size_t head, size_t t)
{
    const size_t d = a->head_dim;
    float *dq = (float *)a->dqkv + (b * a->seq + t) * a->qkv_ld + head * d;
    double sum[HEAD_DIM_MAX] = {0};
    for (size_t u = 0; u <= t; u++) {
        const struct pair pair = pair_at(a, b, head, t, u);
        for (size_t i = 0; i < d; i++)
            sum[i] += pair.ds * (double)pair.k[i];
    }
    for (size_t i = 0; i < d; i++)
        dq[i] = (float)sum[i];
}

/* dk and dv of one key and value: what they get from each query, in each head of the group, that saw them. */
static void key_dx(const struct pl_attention_dx *a, size_t b, size_t group, size_t u)
{
    const size_t d = a->head_dim, per_group = a->heads / a->kv_heads;
    float *dk = (float *)a->dqkv + (b * a->seq + u) * a->qkv_ld + (a->heads + group) * d;
    float *dv = dk + a->kv_heads * d;
    double dk_sum[HEAD_DIM_MAX] = {0}, dv_sum[HEAD_DIM_MAX] = {0};
    for (size_t head = group * per_group; head < (group + 1) * per_group; head++) {
        for (size_t t = u; t < a->seq; t++) {
            const struct pair pair = pair_at(a, b, head, t, u);
            for (size_t i = 0; i < d; i++) {
                dk_sum[i] += pair.ds * (double)pair.q[i];
                dv_sum[i] += pair.p * (double)pair.dout[i];
            }
        }
    }
    for (size_t i = 0; i < d; i++) {
        dk[i] = (float)dk_sum[i];
        dv[i] = (float)dv_sum[i];
    }
}

static void ref_attention_dx(struct pl_engine *e, const struct pl_attention_dx *a)
{
    (void)e;
    pl_assert(a->head_dim <= HEAD_DIM_MAX && a->heads % a->kv_heads == 0);
    for (size_t b = 0; b < a->batch; b++) {
        for (size_t t = 0; t < a->seq; t++) {
            for (size_t head = 0; head < a->heads; head++)
                query_dx(a, b, head, t);
            for (size_t group = 0; group < a->kv_heads; group++)
                key_dx(a, b, group, t);
        }
    }
}

/* ---- SwiGLU ---- */

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static void ref_swiglu(struct pl_engine *e, const struct pl_swiglu *a)
{
    (void)e;
    for (size_t r = 0; r < a->rows; r++) {
        const float *gate = (const float *)a->gu + r * a->gu_ld, *up = gate + a->f; /* (F) each */
        float *h = (float *)a->h + r * a->h_ld;
        for (size_t i = 0; i < a->f; i++)
            h[i] = (float)((double)gate[i] * sigmoid((double)gate[i]) * (double)up[i]);
    }
}

static void ref_swiglu_dx(struct pl_engine *e, const struct pl_swiglu_dx *a)
{
    (void)e;
    for (size_t r = 0; r < a->rows; r++) {
        const float *gu = (const float *)a->gu + r * a->gu_ld; /* (2, F) */
        const float *dh = (const float *)a->dh + r * a->dh_ld;
        float *dgu = (float *)a->dgu + r * a->gu_ld;
        float *h = (float *)a->h + r * a->dh_ld;
        for (size_t i = 0; i < a->f; i++) {
            const double gate = (double)gu[i], up = (double)gu[i + a->f], d = (double)dh[i];
            const double s = sigmoid(gate);
            dgu[i] = (float)(d * up * s * (1 + gate * (1 - s)));
            dgu[i + a->f] = (float)(d * gate * s);
            h[i] = (float)(gate * s * up);
        }
    }
}

/* ---- cross-entropy ---- */

static double row_log_sum_exp(const float *x, size_t n)
{
    float max = x[0]; /* fmax in this loop is what gcc 12 for aarch64 ends over with an internal error */
    double sum = 0;
    for (size_t i = 1; i < n; i++)
        if (x[i] > max)
            max = x[i];
    for (size_t i = 0; i < n; i++)
        sum += exp((double)x[i] - (double)max);
    return (double)max + log(sum);
}

static void ref_xent(struct pl_engine *e, const struct pl_xent *a)
{
    (void)e;
    for (size_t r = 0; r < a->rows; r++) {
        float *x = (float *)a->logits + r * a->ld; /* (V) */
        const int32_t target = a->targets[r];
        const double lse = row_log_sum_exp(x, a->vocab);
        pl_assert(target < 0 || (uint32_t)target < a->vocab);
        a->loss[r] = target < 0 ? 0 : (float)(lse - (double)x[target]);
        for (size_t i = 0; i < a->vocab && a->scale != 0; i++) {
            const double p = exp((double)x[i] - lse);
            const double d = p * (1 + 2 * (double)a->z * lse) - (target >= 0 && i == (size_t)target ? 1 : 0);
            x[i] = target < 0 ? 0 : (float)((double)a->scale * d);
        }
    }
}

/* ---- embedding and conversions ---- */

static void ref_embed(struct pl_engine *e, float *x, const float *table, const int32_t *tokens, uint32_t rows,
                      uint32_t c)
{
    (void)e;
    for (size_t r = 0; r < rows; r++)
        memcpy(x + r * c, table + (size_t)tokens[r] * c, c * sizeof *x);
}

static void ref_embed_dw(struct pl_engine *e, float *dtable, const float *dx, const int32_t *tokens,
                         uint32_t rows, uint32_t c)
{
    (void)e;
    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0; i < c; i++)
            dtable[(size_t)tokens[r] * c + i] += dx[r * c + i];
}

static void ref_to_act(struct pl_engine *e, void *out, size_t out_ld, const float *in, uint32_t rows,
                       uint32_t c)
{
    (void)e;
    for (size_t r = 0; r < rows; r++)
        memcpy((float *)out + r * out_ld, in + r * c, c * sizeof *in);
}

static void ref_to_f32(struct pl_engine *e, float *out, const void *in, size_t in_ld, uint32_t rows,
                       uint32_t c)
{
    (void)e;
    for (size_t r = 0; r < rows; r++)
        memcpy(out + r * c, (const float *)in + r * in_ld, c * sizeof *out);
}

const struct pl_ops pl_ops_ref = {
    .act_bytes = sizeof(float),
    .logit_rows = PL_LOGIT_ROWS,
    .weight_bytes = ref_weight_bytes,
    .weight_pack = ref_weight_pack,
    .linear = ref_linear,
    .linear_dx = ref_linear_dx,
    .linear_dw = ref_linear_dw,
    .norm = ref_norm,
    .norm_dx = ref_norm_dx,
    .rotary = ref_rotary,
    .rotary_dx = ref_rotary_dx,
    .attention = ref_attention,
    .attention_dx = ref_attention_dx,
    .swiglu = ref_swiglu,
    .swiglu_dx = ref_swiglu_dx,
    .xent = ref_xent,
    .embed = ref_embed,
    .embed_dw = ref_embed_dw,
    .to_act = ref_to_act,
    .to_f32 = ref_to_f32,
    .matmul = ref_matmul,
    .gemv = ref_gemv,
    .decode = ref_decode,
};
