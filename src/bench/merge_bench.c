/* bench/merge_bench.c - see merge_bench.h. A row is a function that works on one slice. */
#include "bench/merge_bench.h"

#include "base/block.h"
#include "base/check.h"
#include "base/cpu.h"
#include "base/num.h"
#include "bench/triad.h"
#include "model/tensors.h"
#include "optim/merge.h"
#include "optim/outer.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
    CONTRIBUTIONS_MAX = PL_MERGE_BENCH_CONTRIBUTIONS_MAX,
    SLICE_MAX = 4 << 20, /* values */
    SLICES_MAX = 1024,
    PIECE = 1 << 16, /* values of one task where a loop has no tasks of its own */
    ROUNDS_MIN = 3,
};

#define INT4_VALUE (130.0 / 256) /* bytes of a value in whole blocks */
#define INT2_VALUE (66.0 / 256)

struct slice {
    size_t at, n;    /* values */
    size_t bytes_at; /* of its int4 encoding */
};

struct bench {
    const struct pl_merge_bench *b;
    struct pl_alloc alloc;
    struct pl_pool *pool;
    struct slice slices[SLICES_MAX];
    uint32_t slice_count, count;
    size_t values, encoded_bytes;
    struct pl_block floats[CONTRIBUTIONS_MAX], encoded[CONTRIBUTIONS_MAX], out, momentum, theta;
    double *scratch;
    double best[PL_MERGE_ROWS_MAX][SLICES_MAX]; /* seconds of a slice's fastest round */
    enum pl_codec codec;
    struct pl_contribution parts[CONTRIBUTIONS_MAX];
    struct pl_encoded_part encoded_parts[CONTRIBUTIONS_MAX];
};

static double now_s(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static float *values_of(const struct pl_block *b, const struct slice *s)
{
    return (float *)b->at + s->at;
}

static uint8_t *codes_of(const struct pl_block *b, const struct slice *s)
{
    return (uint8_t *)b->at + s->bytes_at;
}

/* ---- pieces of a slice, a task each, for what has no tasks of its own ---- */

struct pieces {
    struct bench *x;
    const struct slice *s;
    void (*work)(struct bench *x, const struct slice *s, size_t at, size_t n);
};

static void piece_task(void *user, uint32_t task, uint32_t thread)
{
    (void)thread;
    struct pieces *p = user;
    size_t at = (size_t)task * PIECE;
    p->work(p->x, p->s, at, p->s->n - at < PIECE ? p->s->n - at : PIECE);
}

static void for_pieces(struct bench *x, const struct slice *s,
                       void (*work)(struct bench *x, const struct slice *s, size_t at, size_t n))
{
    pl_pool_run(x->pool, (uint32_t)((s->n + PIECE - 1) / PIECE), piece_task, &(struct pieces){x, s, work});
}

static void triad_plain(struct bench *x, const struct slice *s, size_t at, size_t n)
{
    pl_triad_plain(values_of(&x->out, s) + at, values_of(&x->momentum, s) + at, values_of(&x->theta, s) + at,
                   0.5f, n);
}

static void triad_past_cache(struct bench *x, const struct slice *s, size_t at, size_t n)
{
    pl_triad_past_cache(values_of(&x->out, s) + at, values_of(&x->momentum, s) + at,
                        values_of(&x->theta, s) + at, 0.5f, n);
}

/* Room for the bytes is where the slice's floats would lie. */
static uint8_t *room_of(const struct bench *x, const struct slice *s, size_t at)
{
    return (uint8_t *)values_of(&x->out, s) + pl_codec_bytes(x->codec, at);
}

static void encode(struct bench *x, const struct slice *s, size_t at, size_t n)
{
    bool good = pl_codec_encode(x->codec, values_of(&x->floats[0], s) + at, n, room_of(x, s, at));
    pl_assert(good);
}

static void encode_feedback(struct bench *x, const struct slice *s, size_t at, size_t n)
{
    bool good = pl_codec_encode_feedback(x->codec, values_of(&x->theta, s) + at, n, room_of(x, s, at));
    pl_assert(good);
}

static void decode(struct bench *x, const struct slice *s, size_t at, size_t n)
{
    pl_codec_decode(PL_CODEC_INT4, codes_of(&x->encoded[0], s) + pl_codec_bytes(PL_CODEC_INT4, at), n,
                    values_of(&x->out, s) + at);
}

static void check(struct bench *x, const struct slice *s, size_t at, size_t n)
{
    for (uint32_t m = 0; m < x->count; m++)
        pl_assert(pl_codec_check(PL_CODEC_INT4,
                                 codes_of(&x->encoded[m], s) + pl_codec_bytes(PL_CODEC_INT4, at), n));
}

/* Numbers of a round shape from a counter; the sum of four is near enough to a normal distribution. */
static void fill_array(float *to, size_t at, size_t n, uint64_t stream)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t z = (at + i + (stream << 40)) * UINT64_C(0x9e3779b97f4a7c15);
        z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
        z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
        int32_t sum = (int32_t)(z & 0xffff) + (int32_t)(z >> 16 & 0xffff) + (int32_t)(z >> 32 & 0xffff) +
                      (int32_t)(z >> 48) - 2 * 65535;
        to[at + i] = (float)sum * 1e-8f;
    }
}

static void fill(struct bench *x, const struct slice *s, size_t at, size_t n)
{
    for (uint32_t m = 0; m < x->count; m++) {
        fill_array(values_of(&x->floats[m], s), at, n, s->at + m);
        bool good = pl_codec_encode(PL_CODEC_INT4, values_of(&x->floats[m], s) + at, n,
                                    codes_of(&x->encoded[m], s) + pl_codec_bytes(PL_CODEC_INT4, at));
        pl_assert(good);
    }
    fill_array(values_of(&x->momentum, s), at, n, s->at + CONTRIBUTIONS_MAX);
    fill_array(values_of(&x->theta, s), at, n, s->at + CONTRIBUTIONS_MAX + 1);
    fill_array(values_of(&x->out, s), at, n, s->at + CONTRIBUTIONS_MAX + 2);
}

/* ---- rows: what is done to one slice ---- */

static void merge_floats(struct bench *x, const struct slice *s, enum pl_merge_mode mode)
{
    const struct pl_merge_work work = {.scratch = x->scratch, .pool = x->pool};
    for (uint32_t m = 0; m < x->count; m++)
        x->parts[m] = (struct pl_contribution){values_of(&x->floats[m], s), 1000 + m, 7};
    pl_merge(mode, x->parts, x->count, s->n, &work, values_of(&x->out, s));
}

static void merge_int4(struct bench *x, const struct slice *s, enum pl_merge_mode mode)
{
    const struct pl_merge_work work = {.scratch = x->scratch, .pool = x->pool};
    for (uint32_t m = 0; m < x->count; m++)
        x->encoded_parts[m] =
            (struct pl_encoded_part){PL_CODEC_INT4, codes_of(&x->encoded[m], s), 1000 + m, 7};
    pl_merge_encoded(mode, x->encoded_parts, x->count, s->n, &work, values_of(&x->out, s));
}

static void row_triad(struct bench *x, const struct slice *s)
{
    for_pieces(x, s, triad_plain);
}

static void row_triad_past_cache(struct bench *x, const struct slice *s)
{
    for_pieces(x, s, triad_past_cache);
}

static void row_mean(struct bench *x, const struct slice *s)
{
    merge_floats(x, s, PL_MERGE_MEAN);
}

static void row_rda(struct bench *x, const struct slice *s)
{
    merge_floats(x, s, PL_MERGE_RDA);
}

static void row_int4_mean(struct bench *x, const struct slice *s)
{
    merge_int4(x, s, PL_MERGE_MEAN);
}

static void row_int4_rda(struct bench *x, const struct slice *s)
{
    merge_int4(x, s, PL_MERGE_RDA);
}

static void row_outer(struct bench *x, const struct slice *s)
{
    const struct pl_outer_move rule = {0.7f, 0.9f, 1.0f, 0.9f};
    pl_outer_step_by(x->pool, &rule, values_of(&x->out, s), s->n, values_of(&x->momentum, s),
                     values_of(&x->theta, s));
}

static void row_bf16_encode(struct bench *x, const struct slice *s)
{
    x->codec = PL_CODEC_BF16;
    for_pieces(x, s, encode);
}

static void row_int4_encode(struct bench *x, const struct slice *s)
{
    x->codec = PL_CODEC_INT4;
    for_pieces(x, s, encode);
}

static void row_int4_feedback(struct bench *x, const struct slice *s)
{
    x->codec = PL_CODEC_INT4;
    for_pieces(x, s, encode_feedback);
}

static void row_int2_feedback(struct bench *x, const struct slice *s)
{
    x->codec = PL_CODEC_INT2;
    for_pieces(x, s, encode_feedback);
}

static void row_int4_decode(struct bench *x, const struct slice *s)
{
    for_pieces(x, s, decode);
}

static void row_int4_check(struct bench *x, const struct slice *s)
{
    for_pieces(x, s, check);
}

/* What a row is called and does, and the bytes it must move for a value: so many in any case, and for each contribution
 * so many times its floats and its codes. The first two rows are the yardstick. The outer step comes behind a merge,
 * whose result it takes. */
static const struct row {
    const char *name;
    void (*work)(struct bench *x, const struct slice *s);
    double fixed, floats, codes;
    uint32_t passes;
    double bar;
    const char *counted;
} rows[] = {
    {"triad", row_triad, 12, 0, 0, 1, 0, "two reads, one write"},
    {"triad, stores past the cache", row_triad_past_cache, 12, 0, 0, 1, 0, "two reads, one write"},
    {"mean", row_mean, 4, 1, 0, 1, 0.7, "each contribution read once, the result written"},
    {"rda", row_rda, 12, 2, 0, 2, 0.7, "each contribution read twice, the result written, read and written"},
    {"outer step", row_outer, 20, 0, 0, 1, 0, "delta, momentum and theta read, the last two written"},
    {"int4 decode + mean", row_int4_mean, 4, 0, 1, 1, 0.5, "each encoding read once, the result written"},
    {"int4 decode + rda", row_int4_rda, 12, 0, 2, 2, 0.5,
     "each encoding read twice, the result written, read and written"},
    {"bf16 encode", row_bf16_encode, 6, 0, 0, 1, 0, "floats read, bytes written"},
    {"int4 encode", row_int4_encode, 4 + INT4_VALUE, 0, 0, 1, 0, "floats read, bytes written"},
    {"int4 encode with feedback", row_int4_feedback, 12 + INT4_VALUE, 0, 0, 2, 0,
     "floats read twice and written, bytes written"},
    {"int2 encode with feedback", row_int2_feedback, 12 + INT2_VALUE, 0, 0, 2, 0,
     "floats read twice and written, bytes written"},
    {"int4 decode", row_int4_decode, 4 + INT4_VALUE, 0, 0, 1, 0, "bytes read, floats written"},
    {"int4 check", row_int4_check, 0, 0, 1, 1, 0, "each encoding read"},
};
enum { ROWS = sizeof rows / sizeof rows[0], YARDSTICKS = 2 };
_Static_assert(sizeof rows <= PL_MERGE_ROWS_MAX * sizeof rows[0], "room for all rows");

/* ---- setting up ---- */

static double row_bytes(const struct bench *x, const struct row *row)
{
    double m = x->count;
    return row->fixed + m * row->floats * sizeof(float) + m * row->codes * INT4_VALUE;
}

/* Values that fit: contributions as floats and encoded, and three arrays of floats. */
static uint64_t values_that_fit(const struct bench *x)
{
    double each = x->count * (sizeof(float) + INT4_VALUE) + 3 * sizeof(float);
    return (uint64_t)((double)x->b->memory_max / each);
}

static void add_slice(struct bench *x, size_t n)
{
    x->slices[x->slice_count++] = (struct slice){x->values, n, x->encoded_bytes};
    x->values += n;
    x->encoded_bytes += pl_codec_bytes(PL_CODEC_INT4, n);
}

/* The tensors of the model, as many as fit; large ones by rows. */
static enum pelago_status cut_slices(struct bench *x, struct pl_error *err)
{
    struct pl_model_config config;
    struct pl_tensors t;
    uint64_t fit = values_that_fit(x);
    PL_TRY(pl_model_config_preset("124m", &config, err));
    if (pl_tensors_init(&t, &x->alloc, &config) != PELAGO_OK)
        return pl_fail(err, PELAGO_NOMEM, "there is no memory for a table of tensors.");
    for (uint32_t i = 0; i < t.count; i++) {
        uint64_t at_once = pl_max64(SLICE_MAX / t.at[i].cols, 1), rows_left = t.at[i].rows;
        while (rows_left > 0) {
            uint64_t n = pl_min64(rows_left, at_once) * t.at[i].cols;
            if (x->slice_count == SLICES_MAX || x->values + n > fit)
                break;
            add_slice(x, (size_t)n);
            rows_left -= pl_min64(rows_left, at_once);
        }
    }
    pl_tensors_release(&t, &x->alloc);
    if (x->slice_count == 0)
        return pl_fail(err, PELAGO_NOMEM, "there is no memory for even one tensor of %u contributions.",
                       x->count);
    return PELAGO_OK;
}

static bool take_memory(struct bench *x)
{
    size_t bytes = (x->values + PL_TRIAD_STEP) * sizeof(float);
    bool good = pl_block_new(&x->out, &x->alloc, bytes) && pl_block_new(&x->momentum, &x->alloc, bytes) &&
                pl_block_new(&x->theta, &x->alloc, bytes);
    for (uint32_t m = 0; good && m < x->count; m++)
        good = pl_block_new(&x->floats[m], &x->alloc, bytes) &&
               pl_block_new(&x->encoded[m], &x->alloc, x->encoded_bytes);
    x->scratch = pl_alloc_zero(&x->alloc, pl_merge_scratch(x->count), sizeof *x->scratch);
    return good && x->scratch != NULL;
}

static void release(struct bench *x)
{
    for (uint32_t m = 0; m < x->count; m++) {
        pl_block_free(&x->floats[m], &x->alloc);
        pl_block_free(&x->encoded[m], &x->alloc);
    }
    pl_block_free(&x->out, &x->alloc);
    pl_block_free(&x->momentum, &x->alloc);
    pl_block_free(&x->theta, &x->alloc);
    pl_alloc_free(&x->alloc, x->scratch, pl_merge_scratch(x->count) * sizeof *x->scratch);
    pl_pool_free(x->pool);
}

static enum pelago_status prepare(struct bench *x, struct pl_error *err)
{
    PL_TRY(cut_slices(x, err));
    x->pool = pl_pool_new(&x->alloc, x->b->threads);
    if (x->pool == NULL || !take_memory(x))
        return pl_fail(err, PELAGO_NOMEM, "there is no memory for %u contributions of %lu values.", x->count,
                       (uint64_t)x->values);
    for (uint32_t i = 0; i < x->slice_count; i++)
        for_pieces(x, &x->slices[i], fill);
    return PELAGO_OK;
}

/* ---- measuring ---- */

/* A round does one row after the other, each over all slices, so that a slice is out of the caches when its turn comes. */
static void round_of_all(struct bench *x, bool first)
{
    for (uint32_t i = 0; i < ROWS; i++)
        for (uint32_t k = 0; k < x->slice_count; k++) {
            double start = now_s();
            rows[i].work(x, &x->slices[k]);
            double took = now_s() - start;
            x->best[i][k] = first || took < x->best[i][k] ? took : x->best[i][k];
        }
}

static double rate(const struct bench *x, uint32_t row)
{
    double seconds = 0;
    for (uint32_t k = 0; k < x->slice_count; k++)
        seconds += x->best[row][k];
    return row_bytes(x, &rows[row]) * (double)x->values / seconds * 1e-9;
}

static void measure(struct bench *x, struct pl_merge_result *r)
{
    for (double begin = now_s(); r->rounds < ROUNDS_MIN || now_s() - begin < x->b->seconds; r->rounds++)
        round_of_all(x, r->rounds == 0);
    double yardstick = 0;
    for (uint32_t i = 0; i < ROWS; i++) {
        const struct row *row = &rows[i];
        r->rows[i] = (struct pl_merge_row){row->name,
                                           row->counted,
                                           row->passes,
                                           row_bytes(x, row),
                                           rate(x, i),
                                           0,
                                           x->b->judge ? row->bar : 0};
        yardstick = i < YARDSTICKS && r->rows[i].gb_per_s > yardstick ? r->rows[i].gb_per_s : yardstick;
    }
    for (uint32_t i = 0; i < ROWS; i++)
        r->rows[i].share = r->rows[i].gb_per_s / yardstick;
    r->count = ROWS;
}

enum pelago_status pl_merge_bench_run(const struct pl_merge_bench *b, struct pl_merge_result *r,
                                      struct pl_error *err)
{
    pl_assert(b->contributions >= 1 && b->contributions <= PL_MERGE_BENCH_CONTRIBUTIONS_MAX);
    struct pl_alloc alloc = pl_alloc_system();
    struct bench *x = pl_alloc_zero(&alloc, 1, sizeof *x);
    if (x == NULL)
        return pl_fail(err, PELAGO_NOMEM, "there is no memory for a benchmark.");
    x->b = b;
    x->alloc = alloc;
    x->count = b->contributions;
    *r = (struct pl_merge_result){.contributions = b->contributions, .threads = b->threads};
    enum pelago_status status = prepare(x, err);
    if (status == PELAGO_OK) {
        r->values = x->values;
        r->slices = x->slice_count;
        r->cpu = pl_cpu_level_name(pl_cpu_level());
        measure(x, r);
    }
    release(x);
    pl_alloc_free(&alloc, x, sizeof *x);
    return status;
}

static const char *verdict(const struct pl_merge_row *row)
{
    return row->bar > 0 ? row->share >= row->bar ? "pass" : "miss" : "not judged";
}

bool pl_merge_row_missed(const struct pl_merge_result *r, uint32_t row)
{
    return r->rows[row].bar > 0 && r->rows[row].share < r->rows[row].bar;
}

void pl_merge_row_json(const struct pl_merge_result *r, uint32_t row, char out[static PL_MERGE_LINE_MAX])
{
    const struct pl_merge_row *w = &r->rows[row];
    (void)snprintf(out, PL_MERGE_LINE_MAX,
                   "{\"bench\": \"merge\", \"row\": \"%s\", \"gb_per_s\": %.2f, \"share_of_triad\": %.3f, "
                   "\"bar\": %.2f, \"verdict\": \"%s\", \"bytes_per_value\": %.3f, \"passes\": %u, "
                   "\"counted\": \"%s\", \"values\": %llu, \"contributions\": %u, \"slices\": %u, "
                   "\"threads\": %u, \"rounds\": %u, \"cpu\": \"%s\"}",
                   w->name, w->gb_per_s, w->share, w->bar, verdict(w), w->bytes, w->passes, w->counted,
                   (unsigned long long)r->values, r->contributions, r->slices, r->threads, r->rounds, r->cpu);
}

void pl_merge_row_text(const struct pl_merge_result *r, uint32_t row, char out[static PL_MERGE_LINE_MAX])
{
    const struct pl_merge_row *w = &r->rows[row];
    int len = snprintf(out, PL_MERGE_LINE_MAX, "%-29s %7.2f GB/s %6.1f%% of the triad, %6.3f bytes a value",
                       w->name, w->gb_per_s, w->share * 100, w->bytes);
    if (w->bar > 0)
        (void)snprintf(out + len, (size_t)(PL_MERGE_LINE_MAX - len), "; bar %.0f%%: %s", w->bar * 100,
                       verdict(w));
}
