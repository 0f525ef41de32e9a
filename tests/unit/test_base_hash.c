/* The hash in one go, in parts and piece by piece is the same; and it is XXH3-64. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/hash.h"
#include "base/num.h"

static void test_pieces(void **state)
{
    (void)state;
    static uint8_t bytes[3000];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 31 + i / 7);
    const size_t lengths[] = {0, 1, 16, 17, 128, 129, 240, 241, 1024, 1025, 3000};
    const size_t steps[] = {1, 3, 64, 255, 256, 257, 1024};
    for (unsigned i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
        for (unsigned k = 0; k < sizeof steps / sizeof steps[0]; k++) {
            struct pl_hasher h;
            pl_hasher_begin(&h, i);
            for (size_t at = 0; at < lengths[i];) {
                size_t n = (size_t)pl_min64(steps[k], lengths[i] - at);
                pl_hasher_add(&h, bytes + at, n);
                pl_hasher_add(&h, NULL, 0);
                at += n;
            }
            uint64_t whole = pl_hash64(bytes, lengths[i], i);
            assert_true(pl_hasher_end(&h) == whole);
            assert_true(pl_hasher_end(&h) == whole); /* asking changes nothing */
            const struct pl_bytes parts[] = {{bytes, lengths[i] / 3},
                                             {bytes + lengths[i] / 3, lengths[i] - lengths[i] / 3}};
            assert_true(pl_hash64_parts(parts, 2, i) == whole);
        }
}

static void test_known(void **state)
{
    (void)state;
    assert_true(pl_hash64("", 0, 0) == UINT64_C(0x2d06800538d394c2)); /* the published value for no bytes */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_pieces), cmocka_unit_test(test_known)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
