/* The merge by every instruction set, by any number of threads, and of what is still encoded: the same bits always. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/cpu.h"
#include "base/prng.h"
#include "optim/merge.h"
#include "optim/merge_kernels.h"
#include "seed.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { N_MAX = 3 * 32768 + 777, M_MAX = 19, THREADS_MAX = 5, SCRATCH = (1 + 130 * THREADS_MAX) * M_MAX };

static const size_t sizes[] = {0,     1,     2,     15,    16,    17,    255,
                               256,   257,   511,   513,   1000,  4096,  9000,
                               32767, 32768, 32769, 33024, 65536, 65537, 2 * 32768 + 256,
                               N_MAX};
static const uint32_t counts[] = {1, 2, 3, 4, 5, 7, 8, 9, 12, 16, 17, M_MAX};

static float values[M_MAX][N_MAX], decoded[M_MAX][N_MAX], want[N_MAX], got[N_MAX + 1];
static _Alignas(64) float far_room[N_MAX + 2];
static uint8_t bytes[M_MAX][4 * N_MAX + 1];
static double scratch[SCRATCH];

static float draw(struct pl_prng *r, unsigned kind)
{
    float x = (float)((int32_t)pl_prng_below(r, 1u << 24) - (1 << 23)) / 8388608.0f;
    switch (kind) {
    case 0:
        return x * 1e-3f;
    case 1:
        return ldexpf(x, (int)pl_prng_below(r, 250) - 125);
    case 2:
        return x * FLT_MIN; /* denormal */
    default:
        return pl_prng_below(r, 30) == 0 ? x : 0;
    }
}

/* Every codec alone, those of four bits mixed, those of blocks, all. */
enum { NIBBLES = PL_CODEC_LAST, BLOCKS, ALL, MIXES };

static enum pl_codec draw_codec(struct pl_prng *r, unsigned mix)
{
    return mix < NIBBLES    ? (enum pl_codec)(PL_CODEC_FP32 + mix)
           : mix == NIBBLES ? (pl_prng_below(r, 2) == 0 ? PL_CODEC_INT4 : PL_CODEC_E3M0)
           : mix == BLOCKS  ? (enum pl_codec)pl_prng_range(r, PL_CODEC_FP32, PL_CODEC_E3M0)
                            : (enum pl_codec)pl_prng_range(r, PL_CODEC_FP32, PL_CODEC_LAST);
}

/* Draws M_MAX contributions of n values, encodes each, and decodes it again into decoded[]. */
static void draw_parts(struct pl_prng *r, unsigned mix, size_t n, struct pl_contribution *c,
                       struct pl_encoded_part *p)
{
    for (uint32_t m = 0; m < M_MAX; m++) {
        unsigned kind = (unsigned)pl_prng_below(r, 4);
        for (size_t i = 0; i < n; i++)
            values[m][i] = draw(r, kind);
        uint8_t *at = bytes[m] + pl_prng_below(r, 2); /* nothing is promised about alignment */
        p[m] = (struct pl_encoded_part){draw_codec(r, mix), at, pl_prng_range(r, 0, 100000),
                                        pl_prng_range(r, 1, 99)};
        assert_true(pl_codec_encode(p[m].codec, values[m], n, at));
        pl_codec_decode(p[m].codec, at, n, decoded[m]);
        c[m] = (struct pl_contribution){decoded[m], p[m].tokens, p[m].steps};
    }
}

static void test_encoded_is_decoded(void **state)
{
    (void)state;
    const struct pl_merge_work work = {.scratch = scratch, .trim = 0.2};
    struct pl_contribution c[M_MAX];
    struct pl_encoded_part p[M_MAX];
    struct pl_prng r;
    pl_prng_seed(&r, test_seed(), 1);
    for (unsigned mix = 0; mix < MIXES; mix++)
        for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
            size_t n = sizes[s];
            draw_parts(&r, mix, n, c, p);
            for (enum pl_merge_mode mode = PL_MERGE_RDA; mode <= PL_MERGE_MEDIAN; mode++) {
                uint32_t count = counts[pl_prng_below(&r, sizeof counts / sizeof counts[0])];
                got[n] = 12345.0f;
                pl_merge(mode, c, count, n, &work, want);
                pl_merge_encoded(mode, p, count, n, &work, got);
                assert_memory_equal(got, want, n * sizeof(float));
                assert_true(got[n] == 12345.0f);
            }
        }
}

static void test_threads(void **state)
{
    (void)state;
    struct pl_alloc alloc = pl_alloc_system();
    struct pl_contribution c[M_MAX];
    struct pl_encoded_part p[M_MAX];
    struct pl_prng r;
    pl_prng_seed(&r, test_seed(), 2);
    draw_parts(&r, ALL, N_MAX, c, p);
    for (uint32_t threads = 1; threads <= THREADS_MAX; threads++) {
        struct pl_pool *pool = pl_pool_new(&alloc, threads);
        assert_non_null(pool);
        const struct pl_merge_work alone = {.scratch = scratch, .trim = 0.2},
                                   together = {.scratch = scratch, .pool = pool, .trim = 0.2};
        assert_true(pl_merge_scratch_of(PL_MERGE_TRIMMED, M_MAX, pool) <= SCRATCH);
        for (enum pl_merge_mode mode = PL_MERGE_RDA; mode <= PL_MERGE_MEDIAN; mode++) {
            pl_merge(mode, c, M_MAX, N_MAX, &alone, want);
            pl_merge(mode, c, M_MAX, N_MAX, &together, got);
            assert_memory_equal(got, want, sizeof want);
            pl_merge_encoded(mode, p, M_MAX, N_MAX, &together, got);
            assert_memory_equal(got, want, sizeof want);
        }
        pl_pool_free(pool);
    }
}

static void test_outer_threads(void **state)
{
    (void)state;
    struct pl_alloc alloc = pl_alloc_system();
    struct pl_pool *pool = pl_pool_new(&alloc, 3);
    const struct pl_outer_move rule = {0.7f, 0.9f, 1.0f, 0.9f};
    struct pl_prng r;
    pl_prng_seed(&r, test_seed(), 3);
    assert_non_null(pool);
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        for (int a = 0; a < 3; a++)
            for (size_t i = 0; i < sizes[s]; i++)
                values[a][i] = draw(&r, 0);
        memcpy(decoded, values, sizeof decoded[0] * 3);
        pl_outer_step(&rule, values[0], sizes[s], values[1], values[2]);
        pl_outer_step_by(pool, &rule, decoded[0], sizes[s], decoded[1], decoded[2]);
        for (int a = 0; a < 3; a++)
            assert_memory_equal(values[a], decoded[a], sizes[s] * sizeof(float));
    }
    pl_pool_free(pool);
}

static void compare_sumsq(const struct pl_merge_kernels *k, const struct pl_encoded_part *p, size_t n)
{
    for (uint32_t m = 0; m < M_MAX; m++) {
        const struct pl_merge_view coded = {(uint32_t)p[m].codec, p[m].bytes};
        const struct pl_merge_view floats = {0, (const uint8_t *)decoded[m]};
        double sum = pl_merge_portable.sumsq(floats, n, 0.25);
        assert_true(k->sumsq(floats, n, 0.25) == sum);
        assert_true(k->sumsq(coded, n, 0.25) == sum);
        assert_true(pl_merge_portable.sumsq(coded, n, 0.25) == sum);
    }
}

static void compare_norms(const struct pl_merge_kernels *k, const struct pl_contribution *c,
                          const struct pl_encoded_part *p, size_t n, uint32_t count)
{
    const struct pl_merge_input floats = {c, NULL, count}, coded = {NULL, p, count};
    double a[M_MAX], b[M_MAX];
    k->norms(&floats, 0, n, a);
    k->norms(&coded, 0, n, b);
    for (uint32_t m = 0; m < count; m++) {
        double sum = pl_merge_portable.sumsq((struct pl_merge_view){0, (const uint8_t *)c[m].delta}, n, 0);
        assert_true(a[m] == sum && b[m] == sum);
    }
}

/* Not always the first one; of top-k the first of a chunk. */
static size_t later_block(const struct pl_encoded_part *p, size_t n, uint32_t count)
{
    size_t block = 1;
    for (uint32_t m = 0; m < count; m++)
        block = p[m].codec >= PL_CODEC_TOPK32 ? PL_CODEC_CHUNK / PL_MERGE_BLOCK : block;
    return n > block * PL_MERGE_BLOCK + 300 ? block : 0;
}

static void compare_blend(const struct pl_merge_kernels *k, const struct pl_contribution *c,
                          const struct pl_encoded_part *p, size_t n, uint32_t count)
{
    const struct pl_merge_input floats = {c, NULL, count}, coded = {NULL, p, count};
    const size_t block = later_block(p, n, count), len = n - block * PL_MERGE_BLOCK;
    double share[M_MAX];
    for (uint32_t m = 0; m < count; m++)
        share[m] = (double)(1.0f / ((float)m + 3.0f));
    got[len] = 12345.0f;
    pl_merge_portable.blend(&floats, share, block, len, want);
    k->blend(&floats, share, block, len, got);
    assert_memory_equal(got, want, len * sizeof(float));
    k->blend(&coded, share, block, len, got);
    assert_memory_equal(got, want, len * sizeof(float));
    pl_merge_portable.blend(&coded, share, block, len, got);
    assert_memory_equal(got, want, len * sizeof(float));
    const struct pl_merge_input *const both[] = {&floats, &coded};
    for (int i = 0; i < 4; i++) { /* at the beginning of a line, and not */
        float *to = far_room + i % 2;
        to[len] = 12345.0f;
        k->blend_far(both[i / 2], share, block, len, to);
        assert_memory_equal(to, want, len * sizeof(float));
        assert_true(to[len] == 12345.0f);
    }
    assert_true(got[len] == 12345.0f);
}

static void compare_rest(const struct pl_merge_kernels *k, size_t n)
{
    const struct pl_outer_move rule = {0.7f, 0.9f, 1.0f, 0.9f};
    memcpy(want, decoded[0], n * sizeof(float));
    memcpy(got, decoded[0], n * sizeof(float));
    pl_merge_portable.scale(1.0 / 3, n, want);
    k->scale(1.0 / 3, n, got);
    assert_memory_equal(got, want, n * sizeof(float));
    memcpy(values, decoded, sizeof values[0] * 3);
    pl_merge_portable.outer(&rule, decoded[0], n, decoded[1], decoded[2]);
    k->outer(&rule, values[0], n, values[1], values[2]);
    for (int a = 0; a < 3; a++)
        assert_memory_equal(values[a], decoded[a], n * sizeof(float));
}

static void compare_all(const struct pl_merge_kernels *k)
{
    struct pl_contribution c[M_MAX];
    struct pl_encoded_part p[M_MAX];
    struct pl_prng r;
    pl_prng_seed(&r, test_seed(), 4);
    for (unsigned mix = 0; mix < MIXES; mix++)
        for (size_t s = 0; s < sizeof sizes / sizeof sizes[0] && sizes[s] <= 9000; s++) {
            draw_parts(&r, mix, sizes[s], c, p);
            compare_sumsq(k, p, sizes[s]);
            for (uint32_t count = 1; count <= M_MAX; count++) {
                compare_norms(k, c, p, sizes[s], count);
                compare_blend(k, c, p, sizes[s], count);
            }
            compare_rest(k, sizes[s]);
        }
}

static void test_avx2(void **state)
{
    (void)state;
#ifdef __x86_64__
    if (pl_cpu_level() >= PL_CPU_AVX2) {
        compare_all(&pl_merge_avx2);
        return;
    }
#endif
    skip();
}

static void test_avx512(void **state)
{
    (void)state;
#ifdef __x86_64__
    if (pl_cpu_level() >= PL_CPU_AVX512) {
        compare_all(&pl_merge_avx512);
        return;
    }
#endif
    skip();
}

static void test_scratch(void **state)
{
    (void)state;
    assert_int_equal(pl_merge_scratch(0), 0);
    assert_int_equal(pl_merge_scratch(M_MAX), 66 * M_MAX);
    assert_int_equal(pl_merge_scratch_of(PL_MERGE_MEAN, M_MAX, NULL), 66 * M_MAX);
    assert_int_equal(pl_merge_scratch_of(PL_MERGE_TRIMMED, M_MAX, NULL), 131 * M_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_encoded_is_decoded),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_outer_threads),
        cmocka_unit_test(test_avx2),
        cmocka_unit_test(test_avx512),
        cmocka_unit_test(test_scratch),
    };
    return cmocka_run_group_tests_name("optim_merge_kernels", tests, NULL, NULL);
}
