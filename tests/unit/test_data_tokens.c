/* Token files: what is written comes back; damage of any field or byte is found and named; nothing is left half written. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "base/prng.h"
#include "data/tokens.h"
#include "seed.h"
#include "tempdir.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SMALL = 1001, PER_BLOCK = PL_TOKENS_BLOCK_BYTES / 2 };

static struct tempdir dir;
static struct pl_alloc alloc;
static struct pl_error err;

static int set_up(void **state)
{
    (void)state;
    alloc = pl_alloc_system();
    tempdir_init(&dir);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    tempdir_release(&dir);
    return 0;
}

static uint32_t token(uint64_t i, uint32_t vocab)
{
    return (uint32_t)(i * UINT64_C(2654435761) % vocab);
}

static const char *write_file(const char *name, uint64_t count, uint32_t vocab)
{
    struct pl_tokens_writer *w;
    const char *path = tempdir_path(&dir, name);
    assert_int_equal(pl_tokens_create(&w, &alloc, path, vocab, 0x1234, &err), PELAGO_OK);
    for (uint64_t i = 0; i < count;) {
        uint32_t ids[777];
        size_t n = 0;
        while (n < 777 && i < count)
            ids[n++] = token(i++, vocab);
        assert_int_equal(pl_tokens_append(w, ids, n, &err), PELAGO_OK);
    }
    assert_int_equal(pl_tokens_commit(w, 4 * count, 3, &err), PELAGO_OK);
    return path;
}

static void check_fetch(struct pl_tokens *t, uint64_t at, uint32_t n)
{
    int32_t *inputs = malloc(n * sizeof *inputs), *targets = malloc(n * sizeof *targets);
    assert_non_null(inputs);
    assert_non_null(targets);
    assert_int_equal(pl_tokens_fetch(t, at, n, inputs, targets, &err), PELAGO_OK);
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(inputs[i], token(at + i, pl_tokens_info(t)->vocab));
        assert_int_equal(targets[i], token(at + i + 1, pl_tokens_info(t)->vocab));
    }
    free(inputs);
    free(targets);
}

static void round_trip(uint64_t count, uint32_t vocab)
{
    struct pl_tokens *t;
    const char *path = write_file("a.tok", count, vocab);
    assert_int_equal(pl_tokens_open(&t, &alloc, path, &err), PELAGO_OK);
    const struct pl_tokens_info *info = pl_tokens_info(t);
    assert_int_equal(info->tokens, count);
    assert_int_equal(info->vocab, vocab);
    assert_int_equal(info->token_bytes, vocab <= 65536 ? 2 : 4);
    assert_int_equal(info->text_bytes, 4 * count);
    assert_int_equal(info->documents, 3);
    assert_int_equal(info->tokenizer_digest, 0x1234);
    assert_int_equal(pl_tokens_check(t, &err), PELAGO_OK);
    if (count > 10) {
        check_fetch(t, 0, 10);
        check_fetch(t, count - 11, 10);
    }
    pl_tokens_close(t);
    assert_int_equal(tempdir_count(&dir), 1);
}

static void what_is_written_comes_back(void **state)
{
    (void)state;
    static const uint64_t counts[] = {
        1, 2, 3, 4, 5, 1000, PER_BLOCK - 1, PER_BLOCK, PER_BLOCK + 1, 3 * PER_BLOCK + 17};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        round_trip(counts[i], 50257);
        round_trip(counts[i], 65536);
        round_trip(counts[i], 128256);
    }
}

static void any_stretch_can_be_fetched(void **state)
{
    (void)state;
    struct pl_tokens *t;
    struct pl_prng r;
    uint64_t count = 2 * PER_BLOCK + 100;
    pl_prng_seed(&r, test_seed(), 0);
    assert_int_equal(pl_tokens_open(&t, &alloc, write_file("a.tok", count, 5000), &err), PELAGO_OK);
    check_fetch(t, PER_BLOCK - 5, 10);
    for (int i = 0; i < 300; i++) {
        uint32_t n = (uint32_t)pl_prng_range(&r, 1, 2000);
        check_fetch(t, pl_prng_below(&r, count - n), n);
    }
    pl_tokens_close(t);
}

static void beyond_the_end_is_refused(void **state)
{
    (void)state;
    struct pl_tokens *t;
    int32_t ids[SMALL + 1];
    assert_int_equal(pl_tokens_open(&t, &alloc, write_file("a.tok", SMALL, 5000), &err), PELAGO_OK);
    assert_int_equal(pl_tokens_fetch(t, 0, SMALL, ids, NULL, &err), PELAGO_OK);
    assert_int_equal(pl_tokens_fetch(t, 0, SMALL, ids, ids, &err), PELAGO_INVALID);
    assert_int_equal(pl_tokens_fetch(t, SMALL, 1, ids, NULL, &err), PELAGO_INVALID);
    assert_int_equal(pl_tokens_fetch(t, UINT64_MAX, 1, ids, NULL, &err), PELAGO_INVALID);
    assert_int_equal(pl_tokens_fetch(t, 1, UINT64_MAX, ids, NULL, &err), PELAGO_INVALID);
    assert_int_equal(pl_tokens_fetch(t, 2, UINT64_MAX - 1, ids, ids, &err), PELAGO_INVALID);
    assert_non_null(strstr(err.text, "a.tok"));
    assert_int_equal(pl_tokens_fetch(t, SMALL, 0, ids, NULL, &err), PELAGO_OK);
    pl_tokens_close(t);
}

/* ---- damage ---- */

static uint8_t file[PL_TOKENS_HEADER_BYTES + 2 * SMALL + 6 + 8];
enum { FILE_BYTES = PL_TOKENS_HEADER_BYTES + (2 * SMALL + 7) / 8 * 8 + 8 };
_Static_assert((int)sizeof file >= (int)FILE_BYTES, "a small file fits");

static void read_small(void)
{
    FILE *f = fopen(write_file("good.tok", SMALL, 5000), "rb");
    assert_non_null(f);
    assert_int_equal(fread(file, 1, sizeof file, f), FILE_BYTES);
    (void)fclose(f);
}

/* Makes the sums of header and table right again. */
static void sum_again(void)
{
    size_t table = FILE_BYTES - 8;
    pl_put_le(file + table, pl_hash64(file + PL_TOKENS_HEADER_BYTES, 2 * SMALL, 0), 8);
    pl_put_le(file + 56, pl_hash64(file + table, 8, 0), 8);
    pl_put_le(file + 88, pl_hash64(file, 88, 0), 8);
}

/* Opens and checks all of it. */
static enum pelago_status try_file(size_t len)
{
    struct pl_tokens *t;
    err.text[0] = '\0';
    tempdir_put(&dir, "bad.tok", file, len);
    enum pelago_status status = pl_tokens_open(&t, &alloc, tempdir_path(&dir, "bad.tok"), &err);
    if (status == PELAGO_OK)
        status = pl_tokens_check(t, &err);
    pl_tokens_close(t);
    return status;
}

static void expect_refused(size_t len, enum pelago_status expected, const char *sentence)
{
    enum pelago_status status = try_file(len);
    if (status != expected || strstr(err.text, sentence) == NULL || strstr(err.text, "bad.tok") == NULL)
        fail_msg("expected '%s', got %s: %s", sentence, pl_status_name(status), err.text);
}

static void every_field_is_checked(void **state)
{
    (void)state;
    static const struct {
        size_t at;
        unsigned width;
        uint64_t value;
        enum pelago_status status;
        const char *sentence;
    } cases[] = {
        {0, 1, 'X', PELAGO_CORRUPT, "does not begin with PELAGOTK"},
        {8, 4, 2, PELAGO_UNSUPPORTED, "version 2"},
        {12, 4, 3, PELAGO_CORRUPT, "tokens of 3 bytes"},
        {12, 4, 0, PELAGO_CORRUPT, "tokens of 0 bytes"},
        {12, 4, 4, PELAGO_CORRUPT, "cut off or extended"},
        {16, 4, 0, PELAGO_CORRUPT, "vocabulary of 0"},
        {16, 4, UINT32_MAX, PELAGO_CORRUPT, "vocabulary of 4294967295"},
        {16, 4, 4000, PELAGO_CORRUPT, "but the vocabulary has 4000"},
        {20, 4, 4096, PELAGO_CORRUPT, "does not know"},
        {24, 8, 0, PELAGO_CORRUPT, "holds 0 tokens"},
        {24, 8, UINT64_MAX, PELAGO_CORRUPT, "tokens, expected"},
        {24, 8, UINT64_C(1) << 58, PELAGO_CORRUPT, "cut off or extended"},
        {24, 8, SMALL + 4, PELAGO_CORRUPT, "cut off or extended"},
        {70, 1, 1, PELAGO_CORRUPT, "does not know"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        read_small();
        pl_put_le(file + cases[i].at, cases[i].value, cases[i].width);
        pl_put_le(file + 88, pl_hash64(file, 88, 0), 8);
        expect_refused(FILE_BYTES, cases[i].status, cases[i].sentence);
    }
    read_small();
    file[56] ^= 1;
    pl_put_le(file + 88, pl_hash64(file, 88, 0), 8);
    expect_refused(FILE_BYTES, PELAGO_CORRUPT, "table of blocks");
}

static void a_token_out_of_range_is_named(void **state)
{
    (void)state;
    read_small();
    pl_put_le(file + PL_TOKENS_HEADER_BYTES + 2 * 700, 5000, 2);
    sum_again();
    expect_refused(FILE_BYTES, PELAGO_CORRUPT, "token 700 of");
    assert_non_null(strstr(err.text, "is 5000, but the vocabulary has 5000"));
}

static void every_flipped_byte_is_found(void **state)
{
    (void)state;
    read_small();
    for (size_t i = 0; i < FILE_BYTES; i++) {
        file[i] ^= 0x10;
        if (try_file(FILE_BYTES) == PELAGO_OK)
            fail_msg("byte %zu is damaged, and nobody says so", i);
        file[i] ^= 0x10;
    }
    assert_int_equal(try_file(FILE_BYTES), PELAGO_OK);
}

static void every_length_but_one_is_refused(void **state)
{
    (void)state;
    read_small();
    for (size_t len = 0; len < FILE_BYTES; len++)
        if (try_file(len) == PELAGO_OK)
            fail_msg("%zu bytes of %d were taken", len, FILE_BYTES);
    expect_refused(10, PELAGO_CORRUPT, "shorter than a header");
    expect_refused(FILE_BYTES - 1, PELAGO_CORRUPT, "cut off or extended");
}

static void only_the_damaged_block_is_lost(void **state)
{
    (void)state;
    struct pl_tokens *t;
    int32_t ids[10];
    const char *path = write_file("big.tok", 3 * PER_BLOCK, 5000);
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, PL_TOKENS_HEADER_BYTES + PL_TOKENS_BLOCK_BYTES + 100, SEEK_SET), 0);
    assert_int_equal(fputc(0xaa, f), 0xaa);
    (void)fclose(f);
    assert_int_equal(pl_tokens_open(&t, &alloc, path, &err), PELAGO_OK);
    check_fetch(t, 0, 1000);
    check_fetch(t, 2 * PER_BLOCK + 5, 1000);
    assert_int_equal(pl_tokens_fetch(t, PER_BLOCK + 1000, 10, ids, ids, &err), PELAGO_CORRUPT);
    assert_non_null(strstr(err.text, "tokens 524288 to 1048575"));
    assert_int_equal(pl_tokens_fetch(t, PER_BLOCK - 5, 5, ids, ids, &err), PELAGO_CORRUPT);
    pl_tokens_close(t);
}

/* ---- files ---- */

static void missing_and_strange_files(void **state)
{
    (void)state;
    struct pl_tokens *t;
    assert_int_equal(pl_tokens_open(&t, &alloc, tempdir_path(&dir, "none.tok"), &err), PELAGO_NOTFOUND);
    assert_non_null(strstr(err.text, "none.tok could not be read"));
    assert_int_equal(pl_tokens_open(&t, &alloc, dir.path, &err), PELAGO_CORRUPT);
    assert_null(t);
}

static void nothing_appears_before_the_commit(void **state)
{
    (void)state;
    struct pl_tokens_writer *w;
    const uint32_t ids[3] = {1, 2, 3};
    const char *path = write_file("a.tok", SMALL, 5000);
    assert_int_equal(pl_tokens_create(&w, &alloc, path, 10, 0, &err), PELAGO_OK);
    assert_int_equal(pl_tokens_append(w, ids, 3, &err), PELAGO_OK);
    pl_tokens_abandon(w);
    assert_int_equal(tempdir_count(&dir), 1);
    round_trip(SMALL, 5000);
    assert_int_equal(pl_tokens_create(&w, &alloc, path, 10, 0, &err), PELAGO_OK);
    assert_int_equal(pl_tokens_commit(w, 0, 0, &err), PELAGO_INVALID);
    assert_string_equal(err.text, "there are no tokens to write");
    assert_int_equal(tempdir_count(&dir), 1);
    const char *nowhere = tempdir_path(&dir, "no/such/folder.tok");
    assert_int_equal(pl_tokens_create(&w, &alloc, nowhere, 10, 0, &err), PELAGO_IO);
    assert_non_null(strstr(err.text, "folder.tok could not be written"));
}

static void a_full_disk_leaves_nothing(void **state)
{
    (void)state;
    struct pl_tokens_writer *w;
    if (access("/dev/full", W_OK) != 0)
        skip();
    const char *path = tempdir_path(&dir, "a.tok");
    assert_int_equal(symlink("/dev/full", tempdir_path(&dir, "a.tok.tmp")), 0);
    assert_int_equal(pl_tokens_create(&w, &alloc, path, 10, 0, &err), PELAGO_FULL);
    assert_non_null(strstr(err.text, "No space left"));
    assert_int_equal(tempdir_count(&dir), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_written_comes_back, set_up, tear_down),
        cmocka_unit_test_setup_teardown(any_stretch_can_be_fetched, set_up, tear_down),
        cmocka_unit_test_setup_teardown(beyond_the_end_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(every_field_is_checked, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_token_out_of_range_is_named, set_up, tear_down),
        cmocka_unit_test_setup_teardown(every_flipped_byte_is_found, set_up, tear_down),
        cmocka_unit_test_setup_teardown(every_length_but_one_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(only_the_damaged_block_is_lost, set_up, tear_down),
        cmocka_unit_test_setup_teardown(missing_and_strange_files, set_up, tear_down),
        cmocka_unit_test_setup_teardown(nothing_appears_before_the_commit, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_full_disk_leaves_nothing, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
