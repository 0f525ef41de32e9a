/* Top-k: which values are chosen, the bytes of a worked chunk, and every way in which bytes can be no chunk. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/prng.h"
#include "codec/codec.h"
#include "codec/topk.h"
#include "seed.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = PL_CODEC_CHUNK };
static const enum pl_codec TOPK = PL_CODEC_TOPK64;

static float draw(struct pl_prng *r)
{
    return (float)((int32_t)pl_prng_below(r, 1u << 24) - (1 << 23)) / 8388608.0f;
}

/* ---- choosing ---- */

static const float *sorted_values;

static int by_size_then_place(const void *a, const void *b)
{
    uint16_t i = *(const uint16_t *)a, j = *(const uint16_t *)b;
    float x = fabsf(sorted_values[i]), y = fabsf(sorted_values[j]);
    return x > y ? -1 : x < y ? 1 : i < j ? -1 : i > j;
}

static int by_place(const void *a, const void *b)
{
    return *(const uint16_t *)a - *(const uint16_t *)b;
}

static void choose_by_sorting(const float *x, size_t len, uint32_t k, uint16_t *index)
{
    uint16_t all[CHUNK];
    for (size_t i = 0; i < len; i++)
        all[i] = (uint16_t)i;
    sorted_values = x;
    qsort(all, len, sizeof all[0], by_size_then_place);
    qsort(all, k, sizeof all[0], by_place);
    memcpy(index, all, k * sizeof all[0]);
}

/* Smooth; few different ones; nearly all zero; all equal; all sizes; the largest all in one place. */
static float draw_kind(struct pl_prng *r, unsigned kind, size_t i)
{
    switch (kind) {
    case 0:
        return draw(r);
    case 1:
        return (float)pl_prng_below(r, 3) * (pl_prng_below(r, 2) != 0 ? 1.0f : -1.0f);
    case 2:
        return pl_prng_below(r, 500) == 0 ? draw(r) : 0;
    case 3:
        return i % 2 == 0 ? 0.75f : -0.75f;
    case 4:
        return ldexpf(draw(r), (int)pl_prng_below(r, 270) - 148);
    default:
        return i / 100 == 7 ? draw(r) * 100 : draw(r);
    }
}

static void test_the_largest_are_chosen(void **state)
{
    (void)state;
    static float x[CHUNK];
    uint16_t want[CHUNK], got[CHUNK];
    struct pl_prng r;
    pl_prng_seed(&r, test_seed(), 1);
    for (unsigned turn = 0; turn < 120; turn++) {
        size_t len = turn % 2 == 0 ? CHUNK : (size_t)pl_prng_range(&r, 1, CHUNK);
        uint32_t k = (uint32_t)pl_prng_range(&r, 1, len < 256 ? len : 256);
        for (size_t i = 0; i < len; i++)
            x[i] = draw_kind(&r, turn % 6, i);
        choose_by_sorting(x, len, k, want);
        pl_topk_select(x, len, k, got);
        assert_memory_equal(got, want, k * sizeof got[0]);
        if (len == CHUNK) {
            memset(got, 0, sizeof got);
            pl_codec_kernels()->topk_select(x, k, got);
            assert_memory_equal(got, want, k * sizeof got[0]);
        }
    }
}

/* ---- bytes ---- */

/* 130 values, three of which are sent: places 3, 64 + 5 and 129. Magnitudes 1, 2, 6 have the mean 3, so 1.5 and 6 are what is
 * said. Low bits 3, 5, 1 of six each; high bits 0, 1, 2, so bits 0, 2 and 4. */
static const uint8_t worked[] = {0xc0, 0x3f, 0xc0, 0x40, 0x24, 0x43, 0x11, 0x00, 0x15};

static void test_worked_chunk(void **state)
{
    (void)state;
    float x[130] = {0}, values[130];
    uint8_t bytes[sizeof worked];
    x[3] = 1;
    x[69] = -2;
    x[129] = 6;
    x[50] = 0.5f;
    assert_int_equal(pl_codec_bytes(TOPK, 130), sizeof worked);
    assert_true(pl_codec_encode(TOPK, x, 130, bytes));
    assert_memory_equal(bytes, worked, sizeof worked);
    assert_true(pl_codec_check(TOPK, bytes, 130));
    pl_codec_decode(TOPK, bytes, 130, values);
    for (size_t i = 0; i < 130; i++)
        assert_true(values[i] == (i == 3 ? 1.5f : i == 69 ? -1.5f : i == 129 ? 6.0f : 0.0f));
    assert_true(pl_codec_encode_feedback(TOPK, x, 130, bytes));
    for (size_t i = 0; i < 130; i++)
        assert_true(x[i] == (i == 3 ? -0.5f : i == 69 ? -0.5f : i == 50 ? 0.5f : 0.0f));
}

/* All of one size: one magnitude is enough, and it is exact. */
static void test_one_magnitude(void **state)
{
    (void)state;
    static float x[CHUNK], values[CHUNK];
    uint8_t bytes[200];
    for (size_t i = 0; i < CHUNK; i++)
        x[i] = i % 3 == 0 ? -0.25f : 0.25f;
    assert_true(pl_codec_encode_feedback(TOPK, x, CHUNK, bytes));
    assert_true(bytes[0] == 0 && bytes[1] == 0);
    assert_true(pl_codec_check(TOPK, bytes, CHUNK));
    pl_codec_decode(TOPK, bytes, CHUNK, values);
    for (size_t i = 0; i < CHUNK; i++) /* of equals the first go */
        assert_true(i < 64 ? x[i] == 0 && fabsf(values[i]) == 0.25f : values[i] == 0);
}

/* Adding an update leaves what it does not name untouched, the sign of a zero included. */
static void test_add_is_sparse(void **state)
{
    (void)state;
    float sum[130];
    for (size_t i = 0; i < 130; i++)
        sum[i] = -0.0f;
    pl_codec_decode_add(TOPK, worked, 130, sum);
    for (size_t i = 0; i < 130; i++)
        assert_true(i == 3 || i == 69 || i == 129 ? sum[i] != 0 : sum[i] == 0 && signbit(sum[i]));
}

/* ---- what is no chunk ---- */

static bool with(size_t at, uint8_t byte)
{
    uint8_t bytes[sizeof worked];
    memcpy(bytes, worked, sizeof bytes);
    bytes[at] = byte;
    return pl_codec_check(TOPK, bytes, 130);
}

static void test_check(void **state)
{
    (void)state;
    assert_true(pl_codec_check(TOPK, worked, 130));
    assert_true(pl_codec_check(TOPK, (const uint8_t[sizeof worked]){0}, 130));
    assert_false(with(1, 0x41)); /* the lower magnitude above the upper one */
    assert_false(with(1, 0xbf)); /* negative */
    assert_false(with(3, 0xc0)); /* and the upper one */
    assert_false(with(3, 0x7f)); /* not a number */
    assert_false(with(4, 0x64)); /* a code behind the last */
    assert_false(with(7, 0x04)); /* a low bit behind the last */
    assert_false(with(8, 0x95)); /* a high bit behind the last */
    assert_false(with(8, 0x05)); /* a place too few */
    assert_false(with(8, 0x17)); /* one too many */
    assert_false(with(6, 0x21)); /* the last place is 130: behind the end */
    assert_false(with(8, 0x07)); /* three places in one bucket: 3, 5, 1 do not rise */
    const uint8_t twice[] = {0xc0, 0x3f, 0xc0, 0x40, 0x24, 0xc3, 0x10, 0x00, 0x13}; /* 3 and 3 again */
    assert_false(pl_codec_check(TOPK, twice, 130));
    const uint8_t minus_zero[] = {0x00, 0x00, 0xc0, 0x40, 0x24, 0x43, 0x11, 0x00, 0x15};
    assert_false(pl_codec_check(TOPK, minus_zero, 130));
    const uint8_t hidden[] = {0x00, 0x00, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00};
    assert_false(pl_codec_check(TOPK, hidden, 130));
    const uint8_t only_lower[] = {0xc0, 0x3f, 0x00, 0x00, 0x24, 0x43, 0x11, 0x00, 0x15};
    assert_false(pl_codec_check(TOPK, only_lower, 130));
}

/* Whatever byte is changed, a chunk that still passes decodes to as many values in rising places. */
static void test_changed_bytes(void **state)
{
    (void)state;
    static float x[CHUNK];
    uint8_t bytes[200];
    struct pl_topk_values v;
    struct pl_prng r;
    unsigned passed = 0;
    pl_prng_seed(&r, test_seed(), 2);
    for (size_t i = 0; i < CHUNK; i++)
        x[i] = draw(&r);
    for (unsigned turn = 0; turn < 20000; turn++) {
        assert_true(turn % 100 != 0 || pl_codec_encode(TOPK, x, CHUNK, bytes));
        size_t at = (size_t)pl_prng_below(&r, pl_codec_bytes(TOPK, CHUNK));
        uint8_t before = bytes[at];
        bytes[at] ^= (uint8_t)(1u << pl_prng_below(&r, 8));
        if (!pl_codec_check(TOPK, bytes, CHUNK)) {
            bytes[at] = before;
            continue;
        }
        passed++;
        pl_topk_read(TOPK, bytes, CHUNK, &v);
        assert_int_equal(v.count, 64);
        for (uint32_t j = 0; j < 64; j++)
            assert_true(v.index[j] < CHUNK && isfinite(v.value[j]) &&
                        (j == 0 || v.index[j] > v.index[j - 1]));
    }
    assert_true(passed > 1000); /* codes and most low bits may be anything */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_largest_are_chosen),
        cmocka_unit_test(test_worked_chunk),
        cmocka_unit_test(test_one_magnitude),
        cmocka_unit_test(test_add_is_sparse),
        cmocka_unit_test(test_check),
        cmocka_unit_test(test_changed_bytes),
    };
    return cmocka_run_group_tests_name("codec_topk", tests, NULL, NULL);
}
