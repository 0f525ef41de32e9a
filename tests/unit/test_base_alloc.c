/* base/alloc: memory that is zeroed, sizes that overflow, large blocks that go back to the system. */
#include "base/alloc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdbool.h>
#include <string.h>
#ifdef __GLIBC__
#include <sys/mman.h>
#include <unistd.h>
#endif

static void test_zeroed_or_nothing(void **state)
{
    (void)state;
    struct pl_alloc a = pl_alloc_system();
    uint8_t *block = pl_alloc_zero(&a, 100, 3);
    assert_non_null(block);
    for (unsigned i = 0; i < 300; i++)
        assert_int_equal(block[i], 0);
    pl_alloc_free(&a, block, 300);
    assert_null(pl_alloc_zero(&a, 0, 3));
    assert_null(pl_alloc_zero(&a, SIZE_MAX / 2, 3));
    pl_alloc_free(&a, NULL, 0);
}

#ifdef __GLIBC__
/* Sanitizers bring an allocator of their own, and this. */
extern size_t __sanitizer_get_heap_size(void) __attribute__((weak));

static bool is_mapped(void *page)
{
    unsigned char in_core;
    return mincore(page, 1, &in_core) == 0;
}

/* After a block of 8 MB was freed the C library would keep smaller ones in its heap. */
static void test_large_blocks_go_back(void **state)
{
    (void)state;
    struct pl_alloc a = pl_alloc_system();
    const size_t sizes[] = {8 << 20, 4 << 20, 1 << 20};
    const uintptr_t page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
    if (__sanitizer_get_heap_size != NULL)
        return;
    pl_alloc_map_large();
    for (unsigned i = 0; i < 3; i++) {
        uint8_t *block = a.resize(a.user, NULL, 0, sizes[i]);
        assert_non_null(block);
        memset(block, 1, sizes[i]);
        void *page = (void *)(((uintptr_t)block + sizes[i] / 2) / page_bytes * page_bytes);
        assert_true(is_mapped(page));
        pl_alloc_free(&a, block, sizes[i]);
        assert_false(is_mapped(page));
    }
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_zeroed_or_nothing),
#ifdef __GLIBC__
        cmocka_unit_test(test_large_blocks_go_back),
#endif
    };
    return cmocka_run_group_tests_name("base/alloc", tests, NULL, NULL);
}
