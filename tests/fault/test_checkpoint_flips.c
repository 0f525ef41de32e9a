/* Every byte of every file of a checkpoint is flipped: the load fails, names the file and, where the byte belongs to a
 * tensor, the tensor. A file that lost or won bytes at its end is noticed, too.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "checkpoint_rig.h"

enum { FILES = 4 };
static const uint8_t flips[] = {0x01, 0x20, 0x80};
static const char *const files[FILES] = {"model-00000042.safetensors", "optimizer-00000042.safetensors",
                                         "tokenizer-00000042.json", "state-00000042.json"};

static struct rig rig;
static struct pl_disk *disk;
static struct pl_dir dir;

static int set_up(void **state)
{
    (void)state;
    ckrig_init(&rig);
    disk = pl_disk_new(&rig.memory.alloc, 1);
    dir = pl_disk_dir(disk);
    ckrig_set(&rig, 42);
    assert_int_equal(ckrig_save(&rig, dir, 42, 2), PELAGO_OK);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    pl_disk_free(disk);
    ckrig_release(&rig);
    return 0;
}

static void expect_damage(const char *file, const char *tensor, uint64_t offset)
{
    uint64_t found;
    enum pelago_status st = ckrig_load(&rig, dir, PL_NONE64, &found);
    if (st != PELAGO_CORRUPT)
        fail_msg("%s: byte %u was not noticed (status %d)", file, (unsigned)offset, (int)st);
    assert_non_null(strstr(rig.error.text, file));
    if (tensor != NULL && strstr(rig.error.text, tensor) == NULL)
        fail_msg("%s: byte %u is of %s, but: %s", file, (unsigned)offset, tensor, rig.error.text);
}

/* The tensor a byte belongs to, NULL in the header and in other files. */
static const char *tensor_at(const struct pl_st_reader *r, uint64_t offset)
{
    for (uint32_t i = 0; i < r->count; i++) {
        uint64_t begin = r->data_start + r->tensors[i].begin;
        if (offset >= begin && offset < begin + r->tensors[i].bytes)
            return r->tensors[i].name;
    }
    return NULL;
}

static void test_every_byte(void **state)
{
    (void)state;
    unsigned in_tensors = 0, elsewhere = 0;
    for (unsigned f = 0; f < FILES; f++) {
        uint64_t bytes = 0;
        struct pl_st_reader r = {.file = NULL};
        assert_non_null(pl_disk_peek(disk, files[f], &bytes));
        if (f < 2)
            assert_int_equal(pl_st_open(&r, &rig.memory.alloc, dir, files[f], NULL), PELAGO_OK);
        for (uint64_t at = 0; at < bytes; at++) {
            const char *tensor = tensor_at(&r, at);
            for (unsigned k = 0; k < sizeof flips; k++) {
                assert_true(pl_disk_rot(disk, files[f], at, flips[k]));
                expect_damage(files[f], tensor, at);
                assert_true(pl_disk_rot(disk, files[f], at, flips[k]));
            }
            *(tensor != NULL ? &in_tensors : &elsewhere) += 1;
        }
        pl_st_close(&r);
    }
    print_message("# %u bytes of tensors, %u others\n", in_tensors, elsewhere);
    assert_int_equal(in_tensors, 3 * rig.tensors.params * sizeof(float));
    uint64_t found;
    assert_int_equal(ckrig_load(&rig, dir, PL_NONE64, &found), PELAGO_OK); /* all is as it was */
    ckrig_check(&rig, 42);
}

static void test_lengths(void **state)
{
    (void)state;
    static uint8_t whole[1 << 16];
    for (unsigned f = 0; f < FILES; f++) {
        uint64_t bytes = 0;
        const uint8_t *at = pl_disk_peek(disk, files[f], &bytes);
        assert_in_range(bytes, 1, sizeof whole - 1);
        memcpy(whole, at, bytes);
        whole[bytes] = ' ';
        for (uint64_t len = 0; len <= bytes + 1; len += len < 40 || len + 40 > bytes ? 1 : 17) {
            assert_int_equal(pl_disk_put(disk, files[f], whole, (size_t)len), PELAGO_OK);
            if (len != bytes)
                expect_damage(files[f], NULL, len);
        }
        assert_int_equal(pl_disk_put(disk, files[f], whole, (size_t)bytes), PELAGO_OK);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_every_byte, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_lengths, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
