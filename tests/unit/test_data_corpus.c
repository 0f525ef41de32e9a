/* Documents out of files: separators wherever reads cut them, JSON lines, packed files, and what is wrong with bad ones. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/buf.h"
#include "data/corpus.h"
#include "tempdir.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

static struct tempdir dir;
static struct pl_alloc alloc;
static struct pl_error err;
static struct pl_buf seen; /* documents, [ before and ] after each */
static bool open_document;

static int set_up(void **state)
{
    (void)state;
    alloc = pl_alloc_system();
    tempdir_init(&dir);
    pl_buf_init(&seen, &alloc, 1 << 26);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    pl_buf_release(&seen);
    tempdir_release(&dir);
    return 0;
}

static enum pelago_status take_text(void *user, const uint8_t *text, size_t len, struct pl_error *e)
{
    (void)user;
    (void)e;
    assert_true(len > 0);
    if (!open_document)
        PL_TRY(pl_buf_append(&seen, "[", 1));
    open_document = true;
    return pl_buf_append(&seen, text, len);
}

static enum pelago_status take_end(void *user, struct pl_error *e)
{
    (void)user;
    (void)e;
    assert_true(open_document);
    open_document = false;
    return pl_buf_append(&seen, "]", 1);
}

static enum pelago_status read_files(const char *const *paths, size_t count)
{
    const struct pl_text_sink sink = {take_text, take_end, NULL};
    seen.len = 0;
    open_document = false;
    err.text[0] = '\0';
    return pl_corpus_read(&alloc, paths, count, &sink, &err);
}

static void expect_documents(const char *name, const void *bytes, size_t len, const char *expected)
{
    const char *path = tempdir_path(&dir, name);
    tempdir_put(&dir, name, bytes, len);
    if (read_files(&path, 1) != PELAGO_OK)
        fail_msg("%s: %s", name, err.text);
    assert_false(open_document);
    if (seen.len != strlen(expected) || memcmp(seen.data, expected, seen.len) != 0)
        fail_msg("%s: '%.*s', expected '%s'", name, (int)seen.len, (const char *)seen.data, expected);
}
#define TEXT(text, expected) expect_documents("a.txt", text, sizeof(text) - 1, expected)
#define LINES(text, expected) expect_documents("a.jsonl", text, sizeof(text) - 1, expected)

static void a_line_separates_documents(void **state)
{
    (void)state;
    TEXT("one", "[one]");
    TEXT("one\n", "[one\n]");
    TEXT("one\n<|endoftext|>\ntwo\n<|endoftext|>\n", "[one\n][two\n]");
    TEXT("one\n<|endoftext|>\ntwo", "[one\n][two]");
    TEXT("one\n<|endoftext|>", "[one\n]");
    TEXT("<|endoftext|>\n<|endoftext|>\none\n<|endoftext|>\n<|endoftext|>\n", "[one\n]");
    TEXT("one\r\n<|endoftext|>\r\ntwo\r\n", "[one\r\n][two\r\n]");
    TEXT("one\n<|endoftext|>\r", "[one\n]");
    TEXT("one<|endoftext|>\ntwo", "[one<|endoftext|>\ntwo]");
    TEXT("one\n<|endoftext|> \n<|endoftext\n<|endoftext|>x\n <|endoftext|>\n\n\n",
         "[one\n<|endoftext|> \n<|endoftext\n<|endoftext|>x\n <|endoftext|>\n\n\n]");
    TEXT("a\n<|endoftext|>\r\rb\n<\n<|", "[a\n<|endoftext|>\r\rb\n<\n<|]");
    TEXT("a\n<<|endoftext|>\n", "[a\n<<|endoftext|>\n]");
}

/* The separator lies across every place where a read may end: reads are of 1 MiB. */
static void a_separator_may_lie_across_reads(void **state)
{
    (void)state;
    enum { READ = 1 << 20 };
    static const char tail[] = "\n<|endoftext|>\nend\n";
    static char text[READ + 64], expected[READ + 64];
    for (size_t cut = 0; cut <= sizeof tail; cut++) {
        size_t before = READ - cut, len = before + sizeof tail - 1;
        memset(text, 'x', before);
        memcpy(text + before, tail, sizeof tail);
        expected[0] = '[';
        memset(expected + 1, 'x', before);
        memcpy(expected + 1 + before, "\n][end\n]", 9);
        expect_documents("a.txt", text, len, expected);
    }
}

static void json_lines_hold_documents(void **state)
{
    (void)state;
    LINES("{\"text\": \"one\"}\n{\"id\": 1, \"text\": \"two\\nlines \\u00e9\"}\n", "[one][two\nlines é]");
    LINES("\n  \n{\"text\": \"one\"}\r\n\n{\"text\": \"\"}\n{\"text\": \"end\"}", "[one][end]");
    LINES("{\"text\": \"<|endoftext|>\\nx\"}\n", "[<|endoftext|>\nx]");
}

static void expect_refused(const char *name, const void *bytes, size_t len, enum pelago_status expected,
                           const char *sentence)
{
    const char *path = tempdir_path(&dir, name);
    if (bytes != NULL)
        tempdir_put(&dir, name, bytes, len);
    enum pelago_status status = read_files(&path, 1);
    if (status != expected || strstr(err.text, sentence) == NULL || strstr(err.text, name) == NULL)
        fail_msg("%s: expected '%s', got %s: %s", name, sentence, pl_status_name(status), err.text);
}

static void bad_files_are_named(void **state)
{
    (void)state;
    static const char json[] = "{\"text\": \"one\"}\n\n{\"text\": \"two\"\n", number[] = "{\"text\": 1}\n",
                      list[] = "[1]\n", utf8[] = "{\"text\": \"\xff\"}\n";
    expect_refused("b.jsonl", json, strlen(json), PELAGO_INVALID, "line 3 of ");
    expect_refused("b.jsonl", number, strlen(number), PELAGO_INVALID, "line 1 of ");
    assert_non_null(strstr(err.text, "has no field \"text\" with a string"));
    expect_refused("b.jsonl", list, strlen(list), PELAGO_INVALID, "has no field \"text\"");
    expect_refused("b.jsonl", utf8, strlen(utf8), PELAGO_INVALID, "is not valid JSON");
    expect_refused("missing.txt", NULL, 0, PELAGO_NOTFOUND, "could not be read: No such file");
    expect_refused("empty.txt", "", 0, PELAGO_INVALID, "the corpus is empty");
    expect_refused("c.txt", "<|endoftext|>\n", 14, PELAGO_INVALID, "the corpus is empty");
    expect_refused("b.txt.zst", "garbage in a file", 17, PELAGO_CORRUPT, "is not good zstd data");
    const char *folder = dir.path;
    assert_int_equal(read_files(&folder, 1), PELAGO_IO);
    assert_non_null(strstr(err.text, "Is a directory"));
}

static void packed_files_are_unpacked(void **state)
{
    (void)state;
    static char text[3 << 20], expected[sizeof text + 3];
    size_t bound = ZSTD_compressBound(sizeof text);
    uint8_t *packed = malloc(2 * bound);
    assert_non_null(packed);
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (char)('a' + (i * i >> 7) % 26);
    expected[0] = '[';
    memcpy(expected + 1, text, sizeof text);
    expected[1 + sizeof text] = ']';
    size_t half = ZSTD_compress(packed, bound, text, sizeof text / 2, 1);
    size_t len = half + ZSTD_compress(packed + half, bound, text + sizeof text / 2, sizeof text / 2, 1);
    expect_documents("a.txt.zst", packed, len, expected); /* two frames */
    expect_refused("cut.txt.zst", packed, len - 1, PELAGO_CORRUPT, "ends in the middle");
    expect_refused("cut.txt.zst", packed, 3, PELAGO_CORRUPT, "ends in the middle");
    packed[len / 2] ^= 0x40;
    packed[len / 2 + 1] ^= 0x40;
    const char *path = tempdir_path(&dir, "flip.txt.zst");
    tempdir_put(&dir, "flip.txt.zst", packed, len);
    (void)read_files(&path, 1); /* zstd without a checksum may not notice; it must not crash */
    size_t n = ZSTD_compress(packed, bound, "{\"text\": \"x\"}\n", 14, 1);
    expect_documents("a.jsonl.zst", packed, n, "[x]");
    free(packed);
}

static void several_files_are_read_in_order(void **state)
{
    (void)state;
    const char *paths[3] = {tempdir_path(&dir, "1.txt"), tempdir_path(&dir, "2.txt"),
                            tempdir_path(&dir, "3.jsonl")};
    tempdir_put(&dir, "1.txt", "one", 3);
    tempdir_put(&dir, "2.txt", "", 0);
    tempdir_put(&dir, "3.jsonl", "{\"text\": \"three\"}", 17);
    assert_int_equal(read_files(paths, 3), PELAGO_OK);
    assert_int_equal(seen.len, 12);
    assert_memory_equal(seen.data, "[one][three]", 12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_line_separates_documents, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_separator_may_lie_across_reads, set_up, tear_down),
        cmocka_unit_test_setup_teardown(json_lines_hold_documents, set_up, tear_down),
        cmocka_unit_test_setup_teardown(bad_files_are_named, set_up, tear_down),
        cmocka_unit_test_setup_teardown(packed_files_are_unpacked, set_up, tear_down),
        cmocka_unit_test_setup_teardown(several_files_are_read_in_order, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
