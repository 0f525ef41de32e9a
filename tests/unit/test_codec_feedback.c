/* Error feedback: what waits, what fades, and that nothing else is lost. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/prng.h"
#include "codec/feedback.h"
#include "expect_assert.h"
#include "seed.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { N = 3 * PL_CODEC_CHUNK + 300 };

static float draw(struct pl_prng *r)
{
    return (float)((int32_t)pl_prng_below(r, 1u << 24) - (1 << 23)) / 8388608.0f;
}

static void test_decay(void **state)
{
    (void)state;
    for (uint32_t c = PL_CODEC_FP32; c <= PL_CODEC_LAST; c++)
        assert_true(pl_feedback_decay((enum pl_codec)c) == (c >= PL_CODEC_TOPK32 ? 0.95f : 1.0f));
    float change[3] = {1, 2, 3};
    const float residual[3] = {8, -4, 0};
    pl_feedback_add(change, residual, 3, 0.5f);
    assert_true(change[0] == 5 && change[1] == 0 && change[2] == 3);
}

/* A learner that goes from its snapshot to a new value keeps what it did not send: the next change holds it by itself. */
static void test_what_is_left_behind_stays_at_home(void **state)
{
    (void)state;
    static float theta[N], wanted[N], left[N], snapshot[N], sent[N];
    static uint8_t bytes[N * 4];
    struct pl_prng r;
    pl_prng_seed(&r, test_seed(), 3);
    for (uint32_t c = PL_CODEC_FP32; c <= PL_CODEC_LAST; c++) {
        for (size_t i = 0; i < N; i++) {
            theta[i] = snapshot[i] = -draw(&r); /* the anchor is 0 */
            wanted[i] = left[i] = -theta[i];
        }
        assert_true(pl_feedback_encode((enum pl_codec)c, left, N, 0, bytes));
        pl_codec_decode((enum pl_codec)c, bytes, N, sent);
        pl_feedback_keep(snapshot, left, N, 1);
        for (size_t i = 0; i < N; i++) {
            const float fresh = -sent[i], moved = theta[i] + (fresh - snapshot[i]);
            assert_true(left[i] == 0);
            assert_true(fabsf((fresh - moved) - (wanted[i] - sent[i])) <= 1e-6f);
        }
    }
    float at[2] = {1, 1}, beside[2] = {4, -8};
    pl_feedback_keep(at, beside, 2, 0);
    assert_true(at[0] == 1 && beside[0] == 4 && at[1] == 1 && beside[1] == -8);
    pl_feedback_keep(at, beside, 2, 0.25f);
    assert_true(at[0] == 2 && beside[0] == 3 && at[1] == -1 && beside[1] == -6);
}

static void test_squeezes(void **state)
{
    (void)state;
    assert_false(pl_feedback_squeezes(PL_CODEC_FP32, 0));
    assert_false(pl_feedback_squeezes(PL_CODEC_BF16, 0));
    assert_true(pl_feedback_squeezes(PL_CODEC_BF16, 0.1f));
    assert_true(pl_feedback_squeezes(PL_CODEC_TOPK64, 0));
}

/* Every third block, or chunk, is a twentieth of the others. */
static size_t unit_of(uint32_t codec)
{
    return codec >= PL_CODEC_TOPK32 ? PL_CODEC_CHUNK : PL_CODEC_BLOCK;
}

static void fill(struct pl_prng *r, uint32_t codec, float *x)
{
    for (size_t i = 0; i < N; i++)
        x[i] = draw(r) * (i / unit_of(codec) % 3 == 1 ? 0.05f : 1.0f);
}

static bool all_zero(const uint8_t *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (bytes[i] != 0)
            return false;
    return true;
}

/* Blocks that changed little are zeros on the wire and stay as they are; all others are encoded as ever. */
static void test_small_blocks_wait(void **state)
{
    (void)state;
    static float x[N], held[N], plain[N];
    static uint8_t bytes[4 * N], usual[4 * N];
    struct pl_prng r;
    pl_prng_seed(&r, test_seed(), 1);
    for (uint32_t c = PL_CODEC_FP32; c <= PL_CODEC_LAST; c++) {
        enum pl_codec codec = (enum pl_codec)c;
        fill(&r, c, x);
        memcpy(held, x, sizeof x);
        memcpy(plain, x, sizeof x);
        assert_true(pl_feedback_encode(codec, held, N, 0.2f, bytes));
        assert_true(pl_codec_encode_feedback(codec, plain, N, usual));
        assert_true(pl_codec_check(codec, bytes, N));
        for (size_t at = 0; at < N; at += unit_of(c)) {
            size_t len = N - at < unit_of(c) ? N - at : unit_of(c), from = pl_codec_bytes(codec, at);
            bool waits = at / unit_of(c) % 3 == 1;
            assert_true(all_zero(bytes + from, pl_codec_bytes(codec, len)) == waits);
            assert_true(waits || memcmp(bytes + from, usual + from, pl_codec_bytes(codec, len)) == 0);
            assert_memory_equal(held + at, (waits ? x : plain) + at, len * sizeof(float));
        }
    }
}

/* Off, or with one block: as without. */
static void test_nothing_waits(void **state)
{
    (void)state;
    static float x[N], a[N], b[N];
    static uint8_t bytes[4 * N], usual[4 * N];
    struct pl_prng r;
    pl_prng_seed(&r, test_seed(), 2);
    for (uint32_t c = PL_CODEC_FP32; c <= PL_CODEC_LAST; c++)
        for (int one = 0; one < 2; one++) {
            size_t n = one ? unit_of(c) : N;
            fill(&r, c, x);
            memcpy(a, x, sizeof x);
            memcpy(b, x, sizeof x);
            assert_true(pl_feedback_encode((enum pl_codec)c, a, n, one ? 0.9f : 0, bytes));
            assert_true(pl_codec_encode_feedback((enum pl_codec)c, b, n, usual));
            assert_memory_equal(bytes, usual, pl_codec_bytes((enum pl_codec)c, n));
            assert_memory_equal(a, b, n * sizeof(float));
        }
    expect_assert(pl_feedback_encode(PL_CODEC_INT4, a, N, 1.0f, bytes));
}

/* What waits goes out once it has grown: sent + residual follows what was wanted. */
static void test_it_goes_out_in_the_end(void **state)
{
    (void)state;
    static float rest[N], sent[N], wanted[N], change[N];
    static uint8_t bytes[4 * N];
    struct pl_prng r;
    pl_prng_seed(&r, test_seed(), 3);
    for (int round = 0; round < 60; round++) {
        for (size_t i = 0; i < N; i++) {
            change[i] = i < PL_CODEC_BLOCK ? 0.05f : draw(&r);
            wanted[i] += change[i];
        }
        pl_feedback_add(change, rest, N, pl_feedback_decay(PL_CODEC_INT4));
        memcpy(rest, change, sizeof rest);
        assert_true(pl_feedback_encode(PL_CODEC_INT4, rest, N, 0.3f, bytes));
        pl_codec_decode_add(PL_CODEC_INT4, bytes, N, sent);
    }
    for (size_t i = 0; i < N; i++)
        assert_true(fabsf(sent[i] + rest[i] - wanted[i]) < 1e-3f);
    assert_true(sent[0] > 2.5f && rest[0] < 0.3f); /* 60 times 0.05, in a few large steps */
}

static void test_refused_whole(void **state)
{
    (void)state;
    static float x[N], before[N];
    static uint8_t bytes[4 * N];
    const float bad[] = {INFINITY, NAN, FLT_MAX};
    for (uint32_t c = PL_CODEC_FP32; c <= PL_CODEC_LAST; c++)
        for (unsigned b = 0; b < 3; b++) {
            if (b == 2 && c != PL_CODEC_BF16)
                continue; /* only bf16 has no room for it */
            for (size_t i = 0; i < N; i++)
                x[i] = 0.3f;
            x[N - 1] = bad[b];
            memcpy(before, x, sizeof x);
            assert_false(pl_feedback_encode((enum pl_codec)c, x, N, 0.1f, bytes));
            assert_memory_equal(x, before, sizeof x);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decay),         cmocka_unit_test(test_what_is_left_behind_stays_at_home),
        cmocka_unit_test(test_squeezes),      cmocka_unit_test(test_small_blocks_wait),
        cmocka_unit_test(test_nothing_waits), cmocka_unit_test(test_it_goes_out_in_the_end),
        cmocka_unit_test(test_refused_whole),
    };
    return cmocka_run_group_tests_name("codec_feedback", tests, NULL, NULL);
}
