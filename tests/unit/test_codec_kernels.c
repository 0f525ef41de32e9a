/* The faster codecs against the portable ones: the same bytes, floats and rests for every size and every kind of value,
 * at any alignment. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/cpu.h"
#include "base/prng.h"
#include "codec/kernels.h"
#include "seed.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { N_MAX = 70000, KINDS = 11, GUARD = 8 };

static const size_t sizes[] = {0,   1,    2,    3,    7,    8,    15,   16,   17,   31,    33,    63,
                               64,  127,  129,  255,  256,  257,  258,  259,  511,  512,   513,   515,
                               767, 1000, 1023, 1025, 2047, 4095, 4096, 4097, 8192, 10007, 65536, 69999};

static const enum pl_codec codecs[] = {PL_CODEC_FP32,   PL_CODEC_BF16,   PL_CODEC_INT4,
                                       PL_CODEC_INT2,   PL_CODEC_INT8,   PL_CODEC_E3M0,
                                       PL_CODEC_TOPK32, PL_CODEC_TOPK64, PL_CODEC_TOPK128};
enum { CODECS = sizeof codecs / sizeof codecs[0] };

static float of_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* Finite, and not so large that bf16 would make it infinite. */
static float any_float(struct pl_prng *r)
{
    for (;;) {
        uint32_t bits = (uint32_t)pl_prng_next(r);
        if ((bits & 0x7fffffffu) < 0x7f7f8000u)
            return of_bits(bits);
    }
}

static float sign(struct pl_prng *r)
{
    return pl_prng_below(r, 2) != 0 ? 1.0f : -1.0f;
}

/* Sums of halves are near enough to a normal distribution. */
static float bell(struct pl_prng *r)
{
    int32_t sum = 0;
    for (int i = 0; i < 6; i++)
        sum += (int32_t)pl_prng_below(r, 1u << 20) - (1 << 19);
    return (float)sum * 1e-9f;
}

static float draw(struct pl_prng *r, unsigned kind)
{
    static const float edges[] = {
        0.0f, -0.0f, FLT_MIN,   -FLT_MIN,   FLT_TRUE_MIN, -FLT_TRUE_MIN, 3.3e38f,          -3.3e38f,
        1.0f, -1.0f, 0x1p-125f, -0x1p-126f, 7e-38f,       0x1p-124f,     0x1.fffffep-126f, 1e-30f};
    switch (kind) {
    case 0:
        return bell(r);
    case 1:
        return any_float(r);
    case 2: /* denormal */
        return of_bits((uint32_t)pl_prng_below(r, 1u << 23)) * sign(r);
    case 3:
        return edges[pl_prng_below(r, sizeof edges / sizeof edges[0])];
    case 4: /* ties of int4: the scale is 1 where a 7 is among them */
        return (float)pl_prng_below(r, 15) * 0.5f * sign(r);
    case 5: /* mostly zero */
        return pl_prng_below(r, 50) == 0 ? bell(r) : pl_prng_below(r, 2) != 0 ? 0.0f : -0.0f;
    case 6: /* around the least scale */
        return of_bits(0x00800000u + (uint32_t)pl_prng_below(r, 0x02800000u)) * sign(r);
    case 7: /* large: sums would overflow */
        return of_bits(0x7f000000u + (uint32_t)pl_prng_below(r, 0x007f7fffu)) * sign(r);
    case 8: /* levels of e3m0 and what lies halfway, the scale being 1 or a little less or more */
        return of_bits(((120u + (uint32_t)pl_prng_below(r, 8)) << 23) + 0x3fffffu +
                       (uint32_t)pl_prng_below(r, 3)) *
               sign(r);
    case 9: /* few different magnitudes: top-k meets many equal ones at its limit */
        return (float)pl_prng_below(r, 4) * sign(r);
    default: /* all alike, so that int2's limit is met exactly or nearly */
        return 0.8f * sign(r);
    }
}

/* What a variant gave for one array. */
struct result {
    uint8_t bytes[4 * N_MAX + GUARD];
    float rest[N_MAX + 1];
    float values[N_MAX + 1];
    uint32_t top;
};

static void work(const struct pl_codec_kernels *k, enum pl_codec codec, const float *x, size_t n,
                 struct result *out)
{
    static uint8_t again[4 * N_MAX + GUARD];
    size_t bytes = pl_codec_bytes(codec, n);
    memset(out->bytes, 0xa5, bytes + GUARD);
    memset(again, 0xa5, bytes + GUARD);
    out->rest[n] = out->values[n] = 12345.0f; /* nothing is written behind the end */
    out->top = k->top(x, n);
    pl_codec_encode_by(k, codec, x, n, out->bytes, out->rest);
    pl_codec_encode_by(k, codec, x, n, again, NULL);
    assert_memory_equal(again, out->bytes, bytes + GUARD); /* the rest changes nothing */
    pl_codec_decode_by(k, codec, out->bytes, n, out->values);
    assert_true(out->rest[n] == 12345.0f && out->values[n] == 12345.0f);
    for (int i = 0; i < GUARD; i++)
        assert_int_equal(out->bytes[bytes + (size_t)i], 0xa5);
}

static void compare(const struct pl_codec_kernels *k, const float *x, size_t n)
{
    static struct result want, got;
    for (unsigned c = 0; c < CODECS; c++) {
        work(&pl_codec_portable, codecs[c], x, n, &want);
        work(k, codecs[c], x, n, &got);
        assert_int_equal(got.top, want.top);
        assert_memory_equal(got.bytes, want.bytes, pl_codec_bytes(codecs[c], n));
        assert_memory_equal(got.rest, want.rest, n * sizeof(float));
        assert_memory_equal(got.values, want.values, n * sizeof(float));
        assert_true(pl_codec_check(codecs[c], got.bytes, n));
    }
}

static void compare_all(const struct pl_codec_kernels *k)
{
    static float x[N_MAX + 3];
    struct pl_prng r;
    pl_prng_seed(&r, test_seed(), 1);
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (unsigned kind = 0; kind < KINDS; kind++) {
            float *at = x + pl_prng_below(&r, 4); /* at any alignment of a float */
            for (size_t i = 0; i < sizes[s]; i++)
                at[i] = draw(&r, kind);
            compare(k, at, sizes[s]);
        }
}

static void test_avx2(void **state)
{
    (void)state;
#ifdef __x86_64__
    if (pl_cpu_level() >= PL_CPU_AVX2) {
        compare_all(&pl_codec_avx2);
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
        compare_all(&pl_codec_avx512);
        return;
    }
#endif
    skip();
}

/* The largest magnitude wherever it stands, infinities and NaNs included. */
static void test_top(void **state)
{
    (void)state;
    static float x[70];
    const struct pl_codec_kernels *k = pl_codec_kernels();
    const float tops[] = {1.0f, -2.0f, FLT_MAX, -INFINITY, NAN};
    for (size_t n = 1; n <= 70; n++)
        for (size_t at = 0; at < n; at++)
            for (unsigned t = 0; t < 5; t++) {
                uint32_t bits;
                memset(x, 0, sizeof x);
                x[at] = tops[t];
                memcpy(&bits, &tops[t], sizeof bits);
                assert_int_equal(k->top(x, n), bits & 0x7fffffffu);
                assert_int_equal(k->top(x, at), 0); /* not past the end */
            }
}

static void test_decode_add(void **state)
{
    (void)state;
    enum { N = 9001 };
    static float x[N], base[N], sum[N], values[N];
    static uint8_t bytes[4 * N];
    struct pl_prng r;
    pl_prng_seed(&r, test_seed(), 2);
    for (unsigned c = 0; c < CODECS; c++) {
        for (size_t i = 0; i < N; i++) {
            x[i] = bell(&r);
            base[i] = sum[i] = bell(&r);
        }
        assert_true(pl_codec_encode(codecs[c], x, N, bytes));
        pl_codec_decode(codecs[c], bytes, N, values);
        pl_codec_decode_add(codecs[c], bytes, N, sum);
        for (size_t i = 0; i < N; i++)
            assert_true(sum[i] == base[i] + values[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_avx2),
        cmocka_unit_test(test_avx512),
        cmocka_unit_test(test_top),
        cmocka_unit_test(test_decode_add),
    };
    return cmocka_run_group_tests_name("codec_kernels", tests, NULL, NULL);
}
