/* bench/codec_bench.c - see codec_bench.h. */
#include "bench/codec_bench.h"

#include "base/block.h"
#include "base/check.h"
#include "base/cpu.h"
#include "bench/triad.h"
#include "codec/feedback.h"
#include "codec/pack.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { VALUES = 1 << 24, ROW = 512, ROUNDS = 12, TURNS_MIN = 3, QUIET = 16 };

struct bench {
    const struct pl_codec_bench *b;
    struct pl_alloc alloc;
    struct pl_packer *packer;
    struct pl_block floats, rest, other, bytes, packed;
};

/* This thread's own time: neighbours on a shared machine do not count, but for the memory they use. */
static double worked_s(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- numbers ---- */

static uint64_t mixed(uint64_t z)
{
    z *= UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    return (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
}

/* Of the whole run, whatever the round: rows that are large stay so. */
static float row_scale(size_t row)
{
    uint64_t z = mixed(row + 1);
    float scale = 1e-8f * (float)(1 << (z >> 32) % 5);
    return z % QUIET == 0 ? scale / 64 : scale;
}

static void draw_change(float *to, size_t n, uint64_t round)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t z = mixed(i + (round << 40));
        int32_t sum = (int32_t)(z & 0xffff) + (int32_t)(z >> 16 & 0xffff) + (int32_t)(z >> 32 & 0xffff) +
                      (int32_t)(z >> 48) - 2 * 65535;
        to[i] = (float)sum * row_scale(i / ROW);
    }
}

static double squares(const float *x, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    return sum;
}

/* ---- sizes and losses ---- */

static void measure_sizes(struct bench *x, enum pl_codec codec, struct pl_codec_row *row)
{
    const size_t n = VALUES / 8, raw = pl_codec_bytes(codec, n);
    float *change = x->floats.at, *rest = x->rest.at;
    uint8_t *bytes = x->bytes.at;
    size_t len = 0;
    memset(rest, 0, n * sizeof *rest);
    for (uint64_t round = 0; round < ROUNDS; round++) {
        draw_change(change, n, round);
        double fresh = squares(change, n);
        pl_feedback_add(change, rest, n, pl_feedback_decay(codec));
        memcpy(rest, change, n * sizeof *rest);
        bool good = pl_feedback_encode(codec, rest, n, x->b->selective, bytes);
        pl_assert(good);
        row->lost = round == 0 ? squares(rest, n) / fresh : row->lost;
        row->waits = sqrt(squares(rest, n) / fresh);
        len = pl_pack(x->packer, bytes, raw, true, x->packed.at);
    }
    row->bits = 8.0 * (double)raw / (double)n;
    row->packed = 8.0 * (double)len / (double)n;
}

/* ---- speed ---- */

struct times {
    double encode, decode, check;
};

static void keep_best(double *best, double start)
{
    double took = worked_s() - start;
    *best = *best > 0 && *best < took ? *best : took;
}

static void one_turn(struct bench *x, enum pl_codec codec, struct times *best)
{
    float *rest = x->rest.at;
    memcpy(rest, x->floats.at, VALUES * sizeof *rest);
    double start = worked_s();
    bool good = pl_feedback_encode(codec, rest, VALUES, x->b->selective, x->bytes.at);
    keep_best(&best->encode, start);
    start = worked_s();
    pl_codec_decode(codec, x->bytes.at, VALUES, x->other.at);
    keep_best(&best->decode, start);
    start = worked_s();
    good = good && pl_codec_check(codec, x->bytes.at, VALUES);
    keep_best(&best->check, start);
    pl_assert(good);
}

static void triad_turn(struct bench *x, double *best)
{
    double start = worked_s();
    pl_triad_plain(x->rest.at, x->floats.at, x->other.at, 0.5f, VALUES);
    keep_best(best, start);
    start = worked_s();
    pl_triad_past_cache(x->rest.at, x->floats.at, x->other.at, 0.5f, VALUES);
    keep_best(best, start);
}

/* Encoding reads the floats, writes what is left and the bytes; decoding reads bytes and writes floats. */
static void put_speeds(struct pl_codec_row *row, const struct times *t, double triad)
{
    const double floats = 4e-9 * VALUES, bytes = row->bits / 8 * 1e-9 * VALUES;
    row->encode_gb_per_s = floats / t->encode;
    row->decode_gb_per_s = floats / t->decode;
    row->check_gb_per_s = floats / t->check;
    row->encode_share = (2 * floats + bytes) / t->encode / triad;
    row->decode_share = (floats + bytes) / t->decode / triad;
}

static void measure_speeds(struct bench *x, struct pl_codec_result *r)
{
    struct times best[PL_CODEC_ROWS_MAX] = {{0}};
    double triad = 0;
    draw_change(x->floats.at, VALUES, 0);
    memset(x->other.at, 0, VALUES * sizeof(float));
    for (double begin = worked_s(); r->turns < TURNS_MIN || worked_s() - begin < x->b->seconds; r->turns++) {
        triad_turn(x, &triad);
        for (uint32_t i = 0; i < r->count; i++)
            one_turn(x, (enum pl_codec)(PL_CODEC_FP32 + i), &best[i]);
    }
    r->triad_gb_per_s = 12e-9 * VALUES / triad;
    for (uint32_t i = 0; i < r->count; i++)
        put_speeds(&r->rows[i], &best[i], r->triad_gb_per_s);
}

/* ---- the whole ---- */

static bool take_memory(struct bench *x)
{
    const size_t bytes = (VALUES + PL_TRIAD_STEP) * sizeof(float);
    x->packer = pl_packer_new(&x->alloc);
    return x->packer != NULL && pl_block_new(&x->floats, &x->alloc, bytes) &&
           pl_block_new(&x->rest, &x->alloc, bytes) && pl_block_new(&x->other, &x->alloc, bytes) &&
           pl_block_new(&x->bytes, &x->alloc, bytes) &&
           pl_block_new(&x->packed, &x->alloc, pl_pack_bytes_max(bytes / 8));
}

static void release(struct bench *x)
{
    struct pl_block *blocks[] = {&x->floats, &x->rest, &x->other, &x->bytes, &x->packed};
    for (unsigned i = 0; i < sizeof blocks / sizeof blocks[0]; i++)
        pl_block_free(blocks[i], &x->alloc);
    pl_packer_free(x->packer);
}

enum pelago_status pl_codec_bench_run(const struct pl_codec_bench *b, struct pl_codec_result *r,
                                      struct pl_error *err)
{
    _Static_assert((int)PL_CODEC_LAST <= (int)PL_CODEC_ROWS_MAX, "a row for every codec");
    struct bench x = {.b = b, .alloc = pl_alloc_system()};
    *r = (struct pl_codec_result){
        .rounds = ROUNDS, .count = PL_CODEC_LAST, .values = VALUES, .cpu = pl_cpu_level_name(pl_cpu_level())};
    bool room = take_memory(&x);
    for (uint32_t i = 0; room && i < r->count; i++) {
        r->rows[i].name = pl_codec_name(PL_CODEC_FP32 + i);
        measure_sizes(&x, (enum pl_codec)(PL_CODEC_FP32 + i), &r->rows[i]);
    }
    if (room)
        measure_speeds(&x, r);
    release(&x);
    return room ? PELAGO_OK : pl_fail(err, PELAGO_NOMEM, "there is no memory for five arrays of 16M floats.");
}

void pl_codec_head_text(char out[static PL_CODEC_LINE_MAX])
{
    (void)snprintf(out, PL_CODEC_LINE_MAX, "%-8s %12s %9s %7s %6s %6s   %s", "codec", "bits a value",
                   "with zstd", "fewer", "lost", "waits",
                   "GB/s of floats (share of the triad): encode, decode, check");
}

void pl_codec_row_text(const struct pl_codec_result *r, uint32_t row, char out[static PL_CODEC_LINE_MAX])
{
    const struct pl_codec_row *w = &r->rows[row];
    (void)snprintf(out, PL_CODEC_LINE_MAX,
                   "%-8s %12.3f %9.3f %6.1fx %5.1f%% %6.2f   %6.2f (%.0f%%), %6.2f (%.0f%%), %6.2f", w->name,
                   w->bits, w->packed, 32 / w->packed, 100 * w->lost, w->waits, w->encode_gb_per_s,
                   100 * w->encode_share, w->decode_gb_per_s, 100 * w->decode_share, w->check_gb_per_s);
}

void pl_codec_row_json(const struct pl_codec_result *r, uint32_t row, char out[static PL_CODEC_LINE_MAX])
{
    const struct pl_codec_row *w = &r->rows[row];
    (void)snprintf(
        out, PL_CODEC_LINE_MAX,
        "{\"bench\": \"codec\", \"codec\": \"%s\", \"bits\": %.4f, \"bits_packed\": %.4f, "
        "\"lost\": %.5f, \"waits\": %.4f, \"encode_gb_per_s\": %.2f, \"decode_gb_per_s\": %.2f, "
        "\"check_gb_per_s\": %.2f, \"encode_share_of_triad\": %.3f, \"decode_share_of_triad\": %.3f, "
        "\"triad_gb_per_s\": %.2f, \"values\": %llu, \"rounds\": %u, \"turns\": %u, \"cpu\": \"%s\"}",
        w->name, w->bits, w->packed, w->lost, w->waits, w->encode_gb_per_s, w->decode_gb_per_s,
        w->check_gb_per_s, w->encode_share, w->decode_share, r->triad_gb_per_s, (unsigned long long)r->values,
        r->rounds, r->turns, r->cpu);
}
