/* The envelope: what goes in comes out, nothing longer than promised, and no bytes from outside do harm. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/prng.h"
#include "codec/codec.h"
#include "codec/pack.h"
#include "seed.h"

#include <string.h>

enum { RAW_MAX = 300000 };

static struct pl_packer *packer;

static int make(void **state)
{
    (void)state;
    struct pl_alloc alloc = pl_alloc_system();
    packer = pl_packer_new(&alloc);
    return packer != NULL ? 0 : -1;
}

static int drop(void **state)
{
    (void)state;
    pl_packer_free(packer);
    return 0;
}

static uint8_t raw[RAW_MAX], envelope[RAW_MAX + 1], back[RAW_MAX + 1];

static void assert_round_trip(size_t len, bool squeeze)
{
    size_t got = pl_pack(packer, raw, len, squeeze, envelope);
    struct pl_error err;
    assert_true(got >= 1 && got <= pl_pack_bytes_max(len));
    assert_true(squeeze || (got == len + 1 && envelope[0] == 0));
    back[len] = 0xa5;
    assert_int_equal(pl_unpack(packer, envelope, got, back, len, &err), PELAGO_OK);
    assert_memory_equal(back, raw, len);
    assert_int_equal(back[len], 0xa5);
}

static void test_round_trips(void **state)
{
    (void)state;
    const size_t sizes[] = {0, 1, 2, 3, 100, 255, 256, 257, 4096, 131072, 131073, RAW_MAX};
    struct pl_prng r;
    pl_prng_seed(&r, test_seed(), 1);
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (unsigned symbols = 1; symbols <= 256; symbols *= 4) { /* from constant to incompressible */
            for (size_t i = 0; i < sizes[s]; i++)
                raw[i] = (uint8_t)pl_prng_below(&r, symbols);
            assert_round_trip(sizes[s], true);
            assert_round_trip(sizes[s], false);
        }
}

/* A normal distribution in int4 leaves about a sixth to squeeze out. */
static void test_int4_gets_shorter(void **state)
{
    (void)state;
    enum { N = 200000 };
    static float x[N];
    struct pl_prng r;
    pl_prng_seed(&r, 3, 1);
    for (size_t i = 0; i < N; i++) {
        int32_t sum = 0;
        for (int k = 0; k < 8; k++)
            sum += (int32_t)pl_prng_below(&r, 1u << 20) - (1 << 19);
        x[i] = (float)sum;
    }
    assert_true(pl_codec_encode(PL_CODEC_INT4, x, N, raw));
    size_t len = pl_codec_bytes(PL_CODEC_INT4, N);
    size_t got = pl_pack(packer, raw, len, true, envelope);
    assert_true(envelope[0] == 1 && got < len * 9 / 10);
}

static void assert_corrupt(const uint8_t *bytes, size_t len, size_t raw_bytes)
{
    struct pl_error err = {0};
    assert_int_equal(pl_unpack(packer, bytes, len, back, raw_bytes, &err), PELAGO_CORRUPT);
    assert_true(err.text[0] != '\0');
}

static void test_wrong_sizes(void **state)
{
    (void)state;
    memset(raw, 7, 1000);
    size_t got = pl_pack(packer, raw, 1000, true, envelope);
    assert_int_equal(envelope[0], 1);
    assert_corrupt(envelope, got, 999); /* would expand past the end */
    assert_corrupt(envelope, got, 1001);
    assert_corrupt(envelope, got - 1, 1000);
    assert_corrupt(envelope, 1, 1000);
    assert_corrupt(envelope, 0, 1000);
    got = pl_pack(packer, raw, 1000, false, envelope);
    assert_corrupt(envelope, got, 999);
    assert_corrupt(envelope, got - 1, 1000);
    envelope[0] = 2;
    assert_corrupt(envelope, got, 1000);
}

/* Damage is noticed, or at least does not write past the end. */
static void test_damage(void **state)
{
    (void)state;
    struct pl_prng r;
    pl_prng_seed(&r, test_seed(), 2);
    for (size_t i = 0; i < 5000; i++)
        raw[i] = (uint8_t)pl_prng_below(&r, 6);
    for (int round = 0; round < 2000; round++) {
        size_t got = pl_pack(packer, raw, 5000, true, envelope);
        assert_int_equal(envelope[0], 1);
        for (uint64_t flips = pl_prng_range(&r, 1, 4); flips > 0; flips--)
            envelope[1 + pl_prng_below(&r, got - 1)] ^= (uint8_t)(1u << pl_prng_below(&r, 8));
        back[5000] = 0xa5;
        (void)pl_unpack(packer, envelope, got, back, 5000, NULL);
        assert_int_equal(back[5000], 0xa5);
    }
}

static void *no_memory(void *user, void *block, size_t old_bytes, size_t new_bytes)
{
    (void)user, (void)block, (void)old_bytes, (void)new_bytes;
    return NULL;
}

static void test_no_memory(void **state)
{
    (void)state;
    const struct pl_alloc none = {no_memory, NULL};
    assert_null(pl_packer_new(&none));
    pl_packer_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trips), cmocka_unit_test(test_int4_gets_shorter),
        cmocka_unit_test(test_wrong_sizes), cmocka_unit_test(test_damage),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests_name("codec_pack", tests, make, drop);
}
