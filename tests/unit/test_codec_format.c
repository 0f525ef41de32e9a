/* The formats, byte by byte and by their promises: sizes, worked blocks, what is refused, and what error feedback keeps. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/hash.h"
#include "base/prng.h"
#include "codec/codec.h"
#include "expect_assert.h"
#include "seed.h"

#include <float.h>
#include <math.h>
#include <string.h>

static const enum pl_codec codecs[] = {PL_CODEC_FP32,   PL_CODEC_BF16,   PL_CODEC_INT4,
                                       PL_CODEC_INT2,   PL_CODEC_INT8,   PL_CODEC_E3M0,
                                       PL_CODEC_TOPK32, PL_CODEC_TOPK64, PL_CODEC_TOPK128};
enum { CODECS = sizeof codecs / sizeof codecs[0] };

static bool is_topk(enum pl_codec codec)
{
    return codec >= PL_CODEC_TOPK32;
}

static float draw(struct pl_prng *r)
{
    return (float)((int32_t)pl_prng_below(r, 1u << 24) - (1 << 23)) / 8388608.0f;
}

static void test_names(void **state)
{
    (void)state;
    enum pl_codec codec;
    for (unsigned c = 0; c < CODECS; c++) {
        assert_true(pl_codec_of_name(pl_codec_name((uint32_t)codecs[c]), &codec));
        assert_int_equal(codec, codecs[c]);
    }
    assert_string_equal(pl_codec_name(3), "int4");
    assert_null(pl_codec_name(0));
    assert_string_equal(pl_codec_name(8), "topk64");
    assert_null(pl_codec_name(PL_CODEC_LAST + 1));
    assert_null(pl_codec_name(UINT32_MAX));
    assert_false(pl_codec_of_name("topk", &codec));
    assert_false(pl_codec_of_name("", &codec));
}

static void test_sizes(void **state)
{
    (void)state;
    const size_t want[][CODECS + 1] = {/* n, then as in codecs[] */
                                       {0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
                                       {1, 4, 2, 3, 3, 3, 3, 7, 7, 7},
                                       {2, 8, 4, 3, 3, 4, 3, 7, 7, 7},
                                       {5, 20, 10, 5, 4, 7, 5, 7, 7, 7},
                                       {255, 1020, 510, 130, 66, 257, 130, 8, 9, 13},
                                       {256, 1024, 512, 130, 66, 258, 130, 8, 9, 13},
                                       {257, 1028, 514, 133, 69, 261, 133, 9, 12, 16},
                                       {768, 3072, 1536, 390, 198, 774, 390, 14, 19, 31},
                                       {4096, 16384, 8192, 2080, 1056, 4128, 2080, 48, 84, 148},
                                       {8193, 32772, 16386, 4163, 2115, 8259, 4163, 103, 175, 303}};
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++)
        for (unsigned c = 0; c < CODECS; c++)
            assert_int_equal(pl_codec_bytes(codecs[c], want[i][0]), want[i][c + 1]);
    expect_assert(pl_codec_bytes((enum pl_codec)(PL_CODEC_LAST + 1), 1));
    expect_assert(pl_codec_bytes(PL_CODEC_FP32, SIZE_MAX));
}

static void assert_encodes(enum pl_codec codec, const float *x, size_t n, const uint8_t *want)
{
    uint8_t bytes[64];
    assert_true(pl_codec_encode(codec, x, n, bytes));
    assert_memory_equal(bytes, want, pl_codec_bytes(codec, n));
    assert_true(pl_codec_check(codec, bytes, n));
}

static void test_plain_bytes(void **state)
{
    (void)state;
    const float x[2] = {1.0f, -2.5f};
    assert_encodes(PL_CODEC_FP32, x, 2, (const uint8_t[]){0, 0, 0x80, 0x3f, 0, 0, 0x20, 0xc0});
    assert_encodes(PL_CODEC_BF16, x, 2, (const uint8_t[]){0x80, 0x3f, 0x20, 0xc0});
    const float ties[2] = {1.00390625f, 1.01171875f}; /* between two bf16: to the even one */
    assert_encodes(PL_CODEC_BF16, ties, 2, (const uint8_t[]){0x80, 0x3f, 0x82, 0x3f});
}

static void test_int4_block(void **state)
{
    (void)state;
    /* Scale 14 / 7 = 2 = 0x4000. In scales: 7 -7 0.5 1.5 -2.5 3; ties go to even: 0 2 -2. */
    const float x[6] = {14, -14, 1, 3, -5, 6};
    const float back[6] = {14, -14, 0, 4, -4, 6};
    assert_encodes(PL_CODEC_INT4, x, 6, (const uint8_t[]){0x00, 0x40, 0x97, 0x20, 0x3e});
    float values[6];
    pl_codec_decode(PL_CODEC_INT4, (const uint8_t[]){0x00, 0x40, 0x97, 0x20, 0x3e}, 6, values);
    assert_memory_equal(values, back, sizeof back);
    assert_encodes(PL_CODEC_INT4, x, 5,
                   (const uint8_t[]){0x00, 0x40, 0x97, 0x20, 0x0e}); /* odd: the last half is 0 */
}

static void test_int2_block(void **state)
{
    (void)state;
    /* Mean magnitude 1.6, scale 5/4 of it: 2 = 0x4000. */
    const float x[5] = {0.5f, -0.5f, 3, -3, 1};
    const float back[5] = {1, -1, 3, -3, 1};
    const uint8_t bytes[] = {0x00, 0x40, 0xe4, 0x00};
    assert_encodes(PL_CODEC_INT2, x, 5, bytes);
    float values[5];
    pl_codec_decode(PL_CODEC_INT2, bytes, 5, values);
    assert_memory_equal(values, back, sizeof back);
}

static void test_int8_block(void **state)
{
    (void)state;
    /* Scale 254 / 127 = 2 = 0x4000. In scales: 127 -127 0.5 1.5 -2.5; ties go to even. */
    const float x[5] = {254, -254, 1, 3, -5}, back[5] = {254, -254, 0, 4, -4};
    const uint8_t bytes[] = {0x00, 0x40, 0x7f, 0x81, 0x00, 0x02, 0xfe};
    assert_encodes(PL_CODEC_INT8, x, 5, bytes);
    float values[5];
    pl_codec_decode(PL_CODEC_INT8, bytes, 5, values);
    assert_memory_equal(values, back, sizeof back);
}

static void test_e3m0_block(void **state)
{
    (void)state;
    /* Scale 64 = 0x4280; levels 1 2 4 8 16 32 64. From 1.5 times a level on it is the next, and from half of the least on
     * the least. */
    const float x[9] = {64, -64, 0.5f, 0.499f, -1.4f, 1.5f, 47.9f, 48, 0};
    const float back[9] = {64, -64, 1, 0, -1, 2, 32, 64, 0};
    const uint8_t bytes[] = {0x80, 0x42, 0xf7, 0x01, 0x29, 0x76, 0x00};
    assert_encodes(PL_CODEC_E3M0, x, 9, bytes);
    float values[9];
    pl_codec_decode(PL_CODEC_E3M0, bytes, 9, values);
    assert_memory_equal(values, back, sizeof back);
}

static void test_zeros_and_dust(void **state)
{
    (void)state;
    const uint8_t nothing[16] = {0};
    const float zeros[3] = {0, -0.0f, 0}, dust[3] = {FLT_TRUE_MIN, -FLT_MIN, FLT_MIN};
    for (unsigned c = 2; c < CODECS; c++) {
        assert_encodes(codecs[c], zeros, 3, nothing);
        assert_encodes(codecs[c], dust, 3, nothing);
        float rest[3];
        uint8_t bytes[16];
        memcpy(rest, dust, sizeof rest);
        assert_true(pl_codec_encode_feedback(codecs[c], rest, 3, bytes));
        assert_memory_equal(rest, dust, sizeof dust); /* nothing went, all is kept */
        pl_codec_decode(codecs[c], bytes, 3, rest);
        for (int i = 0; i < 3; i++)
            assert_true(rest[i] == 0 && !signbit(rest[i]));
    }
}

/* Every finite value can be sent, and comes back finite, but for those that bf16 has no number for. */
static void test_extremes(void **state)
{
    (void)state;
    static float x[300], values[300];
    static uint8_t bytes[1200];
    for (unsigned c = 0; c < CODECS; c++)
        for (size_t n = 1; n <= 300; n += 13) {
            for (size_t i = 0; i < n; i++)
                x[i] = i % 3 == 1 ? -FLT_MAX : FLT_MAX;
            bool fits = pl_codec_encode(codecs[c], x, n, bytes);
            assert_true(fits == (codecs[c] != PL_CODEC_BF16));
            if (!fits)
                continue;
            assert_true(pl_codec_check(codecs[c], bytes, n));
            pl_codec_decode(codecs[c], bytes, n, values);
            for (size_t i = 0; i < n; i++)
                assert_true(isfinite(values[i]) &&
                            (fabsf(values[i]) > 0.9f * FLT_MAX || (is_topk(codecs[c]) && values[i] == 0)));
        }
    const float most = 0x1.fefffep127f, more = 0x1.ffp127f; /* round to bf16's largest, and beyond */
    assert_true(pl_codec_encode(PL_CODEC_BF16, &most, 1, bytes));
    assert_true(pl_codec_check(PL_CODEC_BF16, bytes, 1));
    assert_false(pl_codec_encode(PL_CODEC_BF16, &more, 1, bytes));
}

static void test_not_finite_is_refused(void **state)
{
    (void)state;
    enum { N = 5000 };
    static float x[N], before[N];
    static uint8_t bytes[4 * N];
    const float bad[] = {INFINITY, -INFINITY, NAN};
    const size_t places[] = {0, 1, 255, 256, 4095, 4096, N - 1};
    for (unsigned c = 0; c < CODECS; c++)
        for (unsigned b = 0; b < 3; b++)
            for (unsigned p = 0; p < sizeof places / sizeof places[0]; p++) {
                for (size_t i = 0; i < N; i++)
                    x[i] = (float)i;
                x[places[p]] = bad[b];
                memcpy(before, x, sizeof x);
                assert_false(pl_codec_encode(codecs[c], x, N, bytes));
                assert_false(pl_codec_encode_feedback(codecs[c], x, N, bytes));
                assert_memory_equal(x, before, sizeof x);
            }
}

static bool check4(const uint8_t *bytes, size_t n)
{
    return pl_codec_check(PL_CODEC_INT4, bytes, n);
}

static bool check2(const uint8_t *bytes, size_t n)
{
    return pl_codec_check(PL_CODEC_INT2, bytes, n);
}

static void test_check(void **state)
{
    (void)state;
    assert_true(check4((const uint8_t[]){0x00, 0x40, 0x97, 0x0e}, 3));
    assert_false(check4((const uint8_t[]){0x00, 0x40, 0x97, 0x1e}, 3)); /* a value behind the end */
    assert_false(check4((const uint8_t[]){0x00, 0x40, 0x98}, 2));       /* -8 stands for nothing */
    assert_false(check4((const uint8_t[]){0x00, 0x40, 0x87}, 2));
    assert_false(check4((const uint8_t[]){0x00, 0xc0, 0x97}, 2)); /* a negative scale */
    assert_false(check4((const uint8_t[]){0x00, 0x80, 0x00}, 2)); /* minus zero */
    assert_false(check4((const uint8_t[]){0x00, 0x00, 0x01}, 2)); /* no scale, but codes */
    assert_false(check4((const uint8_t[]){0xff, 0x00, 0x01}, 2)); /* a scale below the least */
    assert_true(check4((const uint8_t[]){0x00, 0x01, 0x01}, 2));
    assert_true(check4((const uint8_t[]){0x12, 0x7e, 0x77}, 2));
    assert_false(check4((const uint8_t[]){0x13, 0x7e, 0x77}, 2)); /* 7 of it is infinite */
    assert_false(check4((const uint8_t[]){0x80, 0x7f, 0x00}, 2)); /* an infinite scale */
    const enum pl_codec e3m0 = PL_CODEC_E3M0, int8 = PL_CODEC_INT8;
    assert_true(pl_codec_check(e3m0, (const uint8_t[]){0x80, 0x42, 0xf7, 0x01}, 3));
    assert_false(pl_codec_check(e3m0, (const uint8_t[]){0x80, 0x42, 0xf7, 0x11}, 3)); /* behind the end */
    assert_false(pl_codec_check(e3m0, (const uint8_t[]){0x80, 0x42, 0xf7, 0x08}, 3)); /* minus zero */
    assert_true(pl_codec_check(e3m0, (const uint8_t[]){0x7f, 0x7f, 0xf7}, 2));
    assert_false(pl_codec_check(e3m0, (const uint8_t[]){0x80, 0x7f, 0xf7}, 2));
    assert_true(pl_codec_check(e3m0, (const uint8_t[]){0x80, 0x03, 0x11}, 2));
    assert_false(pl_codec_check(e3m0, (const uint8_t[]){0x7f, 0x03, 0x11}, 2)); /* a 64th is denormal */
    assert_true(pl_codec_check(int8, (const uint8_t[]){0x01, 0x7c, 0x81, 0x7f}, 2));
    assert_false(
        pl_codec_check(int8, (const uint8_t[]){0x02, 0x7c, 0x81, 0x7f}, 2)); /* 127 of it is infinite */
    assert_false(pl_codec_check(int8, (const uint8_t[]){0x00, 0x40, 0x80, 0x7f}, 2)); /* -128 */
    assert_false(pl_codec_check(int8, (const uint8_t[]){0x00, 0x00, 0x00, 0x01}, 2));
    assert_true(check2((const uint8_t[]){0x00, 0x40, 0xe4, 0x03}, 5));
    assert_false(check2((const uint8_t[]){0x00, 0x40, 0xe4, 0x04}, 5));
    assert_false(check2((const uint8_t[]){0x00, 0x00, 0x01, 0x00}, 5));
    assert_true(check2((const uint8_t[]){0x2a, 0x7f, 0xff}, 4));
    assert_false(check2((const uint8_t[]){0x2b, 0x7f, 0xff}, 4));
    assert_false(pl_codec_check(PL_CODEC_FP32, (const uint8_t[]){0, 0, 0x80, 0x7f}, 1));
    assert_false(pl_codec_check(PL_CODEC_FP32, (const uint8_t[]){1, 0, 0x80, 0xff}, 1));
    assert_true(pl_codec_check(PL_CODEC_FP32, (const uint8_t[]){0xff, 0xff, 0x7f, 0x7f}, 1));
    assert_false(pl_codec_check(PL_CODEC_BF16, (const uint8_t[]){0x80, 0xff}, 1));
    assert_true(pl_codec_check(PL_CODEC_BF16, (const uint8_t[]){0x7f, 0x7f}, 1));
}

/* One wrong code anywhere in a large encoding is found. */
static void find_anywhere(enum pl_codec codec, size_t block_bytes, uint8_t mask, uint8_t wrong)
{
    enum { N = 600 };
    static float x[N];
    static uint8_t bytes[2 * N];
    for (size_t i = 0; i < N; i++)
        x[i] = (float)i;
    assert_true(pl_codec_encode(codec, x, N, bytes));
    for (size_t i = 0; i < pl_codec_bytes(codec, N); i++) {
        if (i % block_bytes < 2)
            continue;
        uint8_t good = bytes[i];
        bytes[i] = (uint8_t)((good & ~mask) | wrong);
        assert_false(pl_codec_check(codec, bytes, N));
        bytes[i] = good;
    }
    assert_true(pl_codec_check(codec, bytes, N));
}

static void test_check_finds_it_anywhere(void **state)
{
    (void)state;
    find_anywhere(PL_CODEC_INT4, 130, 0x0f, 0x08);
    find_anywhere(PL_CODEC_INT4, 130, 0xf0, 0x80);
    find_anywhere(PL_CODEC_E3M0, 130, 0x0f, 0x08);
    find_anywhere(PL_CODEC_E3M0, 130, 0xf0, 0x80);
    find_anywhere(PL_CODEC_INT8, 258, 0xff, 0x80);
}

/* Of any size from 2^-40 to 2^40: one value rules its block. */
static float of_scale(struct pl_prng *r)
{
    return ldexpf(draw(r), (int)pl_prng_below(r, 81) - 40);
}

static double squares(const float *x, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    return sum;
}

/* What is lost is shorter than what was there, whatever it was: error feedback cannot run away. For values as they
 * are, int4 loses one or two hundredths of the squares and int2 an eighth. */
static void test_rest_is_shorter(void **state)
{
    (void)state;
    enum { N = 4096 };
    static float x[N], rest[N];
    static uint8_t bytes[4 * N];
    struct pl_prng r;
    pl_prng_seed(&r, test_seed(), 1);
    for (unsigned kind = 0; kind < 3; kind++)
        for (unsigned c = 1; c < CODECS; c++)
            for (size_t n = 1; n <= N; n = n < 40 ? n + 1 : n * 2 + 1) {
                for (size_t i = 0; i < n; i++)
                    x[i] = rest[i] = kind == 0   ? draw(&r) + draw(&r) + draw(&r) + draw(&r)
                                     : kind == 1 ? (pl_prng_below(&r, 40) == 0 ? draw(&r) : 0)
                                                 : of_scale(&r);
                assert_true(pl_codec_encode_feedback(codecs[c], rest, n, bytes));
                assert_true(squares(rest, n) <= squares(x, n));
                if (kind == 0 && n > 1000 && c == 2)
                    assert_true(squares(rest, n) < 0.016 * squares(x, n));
                if (kind == 0 && n > 1000 && c == 3)
                    assert_true(squares(rest, n) < 0.13 * squares(x, n));
                if (kind == 0 && n > 1000 && codecs[c] == PL_CODEC_INT8)
                    assert_true(squares(rest, n) < 1e-4 * squares(x, n));
                if (kind == 0 && n > 1000 && codecs[c] == PL_CODEC_E3M0)
                    assert_true(squares(rest, n) < 0.055 * squares(x, n));
            }
}

/* Sent again and again, what error feedback holds back goes out in the end: the sum of what was decoded follows the sum of
 * what was to be sent. */
static void test_feedback_carries(void **state)
{
    (void)state;
    enum { N = 700, ROUNDS = 200 };
    static float rest[N], values[N], sent[N], wanted[N];
    static uint8_t bytes[4 * N];
    struct pl_prng r;
    pl_prng_seed(&r, test_seed(), 2);
    for (unsigned c = 1; c < CODECS; c++) {
        memset(rest, 0, sizeof rest);
        memset(sent, 0, sizeof sent);
        memset(wanted, 0, sizeof wanted);
        for (int round = 0; round < ROUNDS; round++) {
            for (size_t i = 0; i < N; i++) {
                float x = 0.1f + draw(&r);
                wanted[i] += x;
                rest[i] += x;
            }
            assert_true(pl_codec_encode_feedback(codecs[c], rest, N, bytes));
            pl_codec_decode(codecs[c], bytes, N, values);
            for (size_t i = 0; i < N; i++)
                sent[i] += values[i];
        }
        for (size_t i = 0; i < N; i++)
            assert_true(fabsf(sent[i] + rest[i] - wanted[i]) < 1e-3f &&
                        fabsf(rest[i]) < (is_topk(codecs[c]) ? 40.0f : 4.0f));
    }
}

/* One hash for every machine, compiler and instruction set: bytes, rests and values of all codecs. */
static const uint64_t golden = UINT64_C(0x19d623b5419a0503);

static void test_golden_hash(void **state)
{
    (void)state;
    enum { N = 10007 };
    static float x[N], values[N];
    static uint8_t bytes[4 * N];
    struct pl_prng r;
    pl_prng_seed(&r, 7, 9);
    uint64_t hash = 0;
    for (unsigned c = 0; c < CODECS; c++) {
        for (size_t i = 0; i < N; i++)
            x[i] = draw(&r) * draw(&r) * 0.01f;
        assert_true(pl_codec_encode_feedback(codecs[c], x, N, bytes));
        pl_codec_decode(codecs[c], bytes, N, values);
        hash = pl_hash64(bytes, pl_codec_bytes(codecs[c], N), hash);
        hash = pl_hash64(x, sizeof x, pl_hash64(values, sizeof values, hash));
    }
    print_message("# codecs %016llx\n", (unsigned long long)hash);
    assert_true(hash == golden);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),           cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_plain_bytes),     cmocka_unit_test(test_int4_block),
        cmocka_unit_test(test_int2_block),      cmocka_unit_test(test_int8_block),
        cmocka_unit_test(test_e3m0_block),      cmocka_unit_test(test_zeros_and_dust),
        cmocka_unit_test(test_extremes),        cmocka_unit_test(test_not_finite_is_refused),
        cmocka_unit_test(test_check),           cmocka_unit_test(test_check_finds_it_anywhere),
        cmocka_unit_test(test_rest_is_shorter), cmocka_unit_test(test_feedback_carries),
        cmocka_unit_test(test_golden_hash),
    };
    return cmocka_run_group_tests_name("codec_format", tests, NULL, NULL);
}
