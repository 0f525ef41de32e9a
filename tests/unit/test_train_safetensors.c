/* The safetensors format: what is written comes back, and every way a file can be wrong gets its sentence. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/bf16.h"
#include "memdisk.h"
#include "seed.h"
#include "train/safetensors.h"

static struct counting_alloc memory;
static struct pl_disk *disk;
static struct pl_dir dir;
static struct pl_error err;
static struct pl_st_reader reader;

static int set_up(void **state)
{
    (void)state;
    counting_alloc_init(&memory);
    disk = pl_disk_new(&memory.alloc, 1);
    dir = pl_disk_dir(disk);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    pl_disk_free(disk);
    assert_int_equal(memory.bytes, 0);
    return 0;
}

/* A file with this header and so many bytes of data. */
static void put(const char *header, size_t data_bytes)
{
    static uint8_t file[8192];
    size_t len = strlen(header);
    assert_true(8 + len + data_bytes <= sizeof file);
    pl_put_le(file, len, 8);
    memcpy(file + 8, header, len);
    for (size_t i = 0; i < data_bytes; i++)
        file[8 + len + i] = (uint8_t)i;
    assert_int_equal(pl_disk_put(disk, "f.safetensors", file, 8 + len + data_bytes), PELAGO_OK);
}

static enum pelago_status open_it(void)
{
    err.text[0] = '\0';
    return pl_st_open(&reader, &memory.alloc, dir, "f.safetensors", &err);
}

static void expect_refused(const char *header, size_t data_bytes, const char *sentence)
{
    put(header, data_bytes);
    assert_int_not_equal(open_it(), PELAGO_OK);
    if (strstr(err.text, sentence) == NULL)
        fail_msg("expected \"%s\" in \"%s\"", sentence, err.text);
    assert_non_null(strstr(err.text, "f.safetensors"));
}

static void test_read(void **state)
{
    (void)state;
    uint64_t digest = 0;
    float values[8];
    put("{\"b\":{\"dtype\":\"BF16\",\"shape\":[2,2],\"data_offsets\":[4,12]}, \"__metadata__\": {\"format\": "
        "\"pt\"},"
        "\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]},"
        "\"none\":{\"dtype\":\"I64\",\"shape\":[0,7],\"data_offsets\":[12,12]},"
        "\"c\":{\"dtype\":\"F16\",\"shape\":[3],\"data_offsets\":[12,18]}}      ",
        18);
    assert_int_equal(open_it(), PELAGO_OK);
    assert_int_equal(reader.count, 4);
    assert_string_equal(reader.tensors[0].name, "a"); /* in the order of the file */
    assert_string_equal(reader.tensors[1].name, "b");
    assert_string_equal(reader.tensors[2].name, "none");
    assert_int_equal(reader.tensors[3].dtype, PL_DTYPE_F16);
    const struct pl_st_tensor *b = pl_st_find(&reader, "b");
    assert_int_equal(pl_st_read(&reader, b, values, &digest, &err), PELAGO_OK);
    const uint8_t raw[] = {4, 5, 6, 7, 8, 9, 10, 11};
    assert_true(digest == pl_hash64(raw, sizeof raw, 0));
    for (unsigned i = 0; i < 4; i++)
        assert_true(values[i] == pl_bf16_to_float((pl_bf16)(raw[2 * i] | raw[2 * i + 1] << 8)));
    assert_int_equal(pl_st_check_shape(&reader, b, 2, 2, &err), PELAGO_OK);
    assert_int_equal(pl_st_check_shape(&reader, b, 4, 1, &err), PELAGO_INVALID);
    assert_string_equal(err.text, "f.safetensors: tensor b has the shape [2, 2], expected [4, 1]");
    assert_int_equal(pl_st_check_shape(&reader, pl_st_find(&reader, "c"), 1, 3, &err), PELAGO_OK);
    assert_int_equal(pl_st_check_shape(&reader, pl_st_find(&reader, "c"), 1, 4, &err), PELAGO_INVALID);
    assert_string_equal(err.text, "f.safetensors: tensor c has the shape [3], expected [4]");
    assert_int_equal(pl_st_read(&reader, pl_st_find(&reader, "none"), values, NULL, &err),
                     PELAGO_UNSUPPORTED);
    assert_string_equal(err.text, "f.safetensors: tensor none has the type I64, expected F32, BF16 or F16");
    assert_null(pl_st_find(&reader, "d"));
    pl_st_close(&reader);
    pl_st_close(&reader);
}

static void test_wrong_files(void **state)
{
    (void)state;
    uint8_t bytes[64] = {0};
    assert_int_equal(open_it(), PELAGO_NOTFOUND);
    assert_string_equal(err.text, "f.safetensors is not there");
    assert_int_equal(pl_disk_put(disk, "f.safetensors", bytes, 7), PELAGO_OK);
    assert_int_equal(open_it(), PELAGO_CORRUPT);
    assert_non_null(strstr(err.text, "it has only 7 bytes"));
    pl_put_le(bytes, 57, 8);
    assert_int_equal(pl_disk_put(disk, "f.safetensors", bytes, 64), PELAGO_OK);
    assert_int_equal(open_it(), PELAGO_CORRUPT);
    assert_non_null(strstr(err.text, "it claims a header of 57 bytes and has 64"));
    pl_put_le(bytes, UINT64_MAX, 8);
    assert_int_equal(pl_disk_put(disk, "f.safetensors", bytes, 64), PELAGO_OK);
    assert_int_equal(open_it(), PELAGO_CORRUPT);
    expect_refused("", 0, "is empty");
    expect_refused("[]", 0, "is not a JSON object");
    expect_refused("{} x", 0, "is not valid JSON");
    expect_refused("{\"a\":{},\"a\":{}}", 0, "duplicate object key");
    expect_refused("{\"__metadata__\": 3}", 0, "\"__metadata__\" must be an object");
    expect_refused("{\"__metadata__\": {\"a\": 3}}", 0, "\"__metadata__\" must hold texts only");
    expect_refused("{}", 1, "has 1 bytes of data, but its tensors end at 0");
}

/* Far deeper than anything sensible: the parser gives up, the stack does not. */
static void test_depth(void **state)
{
    (void)state;
    static char deep[6001];
    memset(deep, '[', 6000);
    memcpy(deep, "{\"a\":", 5);
    expect_refused(deep, 0, "maximum parsing depth");
}

#define T(rest) "{\"x\":{" rest "}}"

static void test_wrong_entries(void **state)
{
    (void)state;
    expect_refused("{\"x\":3}", 0, "tensor x is not described by an object");
    expect_refused(T("\"shape\":[],\"data_offsets\":[0,4]"), 4, "tensor x has no \"dtype\"");
    expect_refused(T("\"dtype\":\"F31\",\"shape\":[],\"data_offsets\":[0,4]"), 4,
                   "tensor x has the unknown type F31");
    expect_refused(T("\"dtype\":\"F32\",\"data_offsets\":[0,4]"), 4, "tensor x has no \"shape\"");
    expect_refused(T("\"dtype\":\"F32\",\"shape\":[1.0],\"data_offsets\":[0,4]"), 4,
                   "not a list of whole numbers");
    expect_refused(T("\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]"), 4,
                   "not a list of whole numbers");
    expect_refused(T("\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]"), 4,
                   "more than 8 dimensions");
    expect_refused(T("\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,4]"), 4,
                   "larger than any memory");
    expect_refused(T("\"dtype\":\"F32\",\"shape\":[9223372036854775807],\"data_offsets\":[0,4]"), 4,
                   "larger than any memory");
    expect_refused(T("\"dtype\":\"F32\",\"shape\":[1]"), 4, "no \"data_offsets\"");
    expect_refused(T("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]"), 4, "no \"data_offsets\"");
    expect_refused(T("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]"), 4, "no \"data_offsets\"");
    expect_refused(T("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[-1,3]"), 4, "no \"data_offsets\"");
    expect_refused(T("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]"), 4, "lies outside the file");
    expect_refused(T("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]"), 4, "lies outside the file");
    expect_refused(T("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]"), 4,
                   "tensor x has 4 bytes, but its shape and type need 8");
    expect_refused(T("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]"), 8, "after a hole from 0");
    expect_refused(T("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]"), 5,
                   "has 5 bytes of data, but its tensors end at 4");
    expect_refused("{\"x\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
                   "\"y\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
                   8, "tensor y starts at byte 4 of the data, inside the one before it");
    expect_refused("{\"\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "a name of 0 bytes");
    expect_refused("{\"01234567890123456789012345678901234567890123456789012345678901230123456789012345678901"
                   "234567890123"
                   "456789012345678901234567890123\":{}}",
                   0, "a name of 128 bytes, 1 to 127 are allowed");
}

static void test_halves(void **state)
{
    (void)state;
    static const struct {
        uint16_t half;
        float value;
    } known[] = {{0x0000, 0.0f},     {0x3c00, 1.0f},        {0xc000, -2.0f},    {0x7bff, 65504.0f},
                 {0x0001, 0x1p-24f}, {0x83ff, -0x3ffp-24f}, {0x0400, 0x1p-14f}, {0x3555, 0x1.554p-2f},
                 {0x7c00, INFINITY}, {0xfc00, -INFINITY}};
    enum { N = sizeof known / sizeof known[0] };
    const char header[] = "{\"h\":{\"dtype\":\"F16\",\"shape\":[11],\"data_offsets\":[0,22]}}";
    uint8_t file[128];
    float values[N + 1];
    size_t len = sizeof header - 1;
    pl_put_le(file, len, 8);
    memcpy(file + 8, header, len);
    for (unsigned i = 0; i < N; i++)
        pl_put_le(file + 8 + len + 2 * i, known[i].half, 2);
    pl_put_le(file + 8 + len + 2 * N, 0x7e00, 2);
    assert_int_equal(pl_disk_put(disk, "f.safetensors", file, 8 + len + 22), PELAGO_OK);
    assert_int_equal(open_it(), PELAGO_OK);
    assert_int_equal(pl_st_read(&reader, &reader.tensors[0], values, NULL, &err), PELAGO_OK);
    for (unsigned i = 0; i < N; i++)
        assert_true(values[i] == known[i].value);
    assert_true(isnan(values[N]));
    pl_st_close(&reader);
}

/* Sizes around the pieces reader and writer work in. */
static void round_trip(uint64_t rows, uint64_t cols, enum pl_dtype dtype, uint64_t seed)
{
    static float from[600000], back[600000];
    struct pl_prng prng;
    pl_prng_seed(&prng, seed, rows);
    uint64_t n = rows * cols, digest;
    for (uint64_t i = 0; i < n; i++)
        from[i] = (float)((double)pl_prng_below(&prng, 1 << 24) / (1 << 20) - 8);
    struct pl_st_item items[] = {
        {.name = "first", .at = from, .dtype = PL_DTYPE_F32, .vector = true, .rows = 1, .cols = 3},
        {.name = "big", .at = from, .dtype = dtype, .rows = rows, .cols = cols},
        {.name = "last \" \\ name", .at = from, .dtype = dtype, .rows = 1, .cols = 1},
    };
    struct pl_st_written written;
    assert_int_equal(pl_st_write(dir, "f.safetensors", &memory.alloc, items, 3, &written, &err), PELAGO_OK);
    assert_int_equal(open_it(), PELAGO_OK);
    assert_int_equal(reader.count, 3);
    assert_true(reader.header_digest == written.header_digest && reader.file_bytes == written.file_bytes);
    assert_int_equal(reader.data_start % 8, 0);
    for (unsigned i = 0; i < 3; i++) {
        const struct pl_st_tensor *t = pl_st_find(&reader, items[i].name);
        assert_int_equal(t->rank, items[i].vector ? 1 : 2);
        assert_int_equal(pl_st_check_shape(&reader, t, items[i].rows, items[i].cols, &err), PELAGO_OK);
        assert_int_equal(pl_st_read(&reader, t, back, &digest, &err), PELAGO_OK);
        assert_true(digest == items[i].digest);
        for (uint64_t k = 0; k < t->count; k++)
            assert_true(
                back[k] ==
                (items[i].dtype == PL_DTYPE_F32 ? from[k] : pl_bf16_to_float(pl_bf16_of_float(from[k]))));
    }
    pl_st_close(&reader);
}

static void test_round_trips(void **state)
{
    (void)state;
    static const uint64_t shapes[][2] = {{1, 1},     {7, 11},     {512, 512}, {1, 262145},
                                         {3, 87383}, {1024, 512}, {524289, 1}};
    uint64_t seed = test_seed();
    for (unsigned i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        round_trip(shapes[i][0], shapes[i][1], PL_DTYPE_F32, seed);
        round_trip(shapes[i][0], shapes[i][1], PL_DTYPE_BF16, seed);
    }
}

struct sum {
    double sum;
    uint64_t count;
};

static void add(void *user, const float *values, size_t count)
{
    struct sum *s = user;
    for (size_t i = 0; i < count; i++)
        s->sum += (double)values[i];
    s->count += count;
}

/* A scan sees every value once, in any type, and takes the digest of those it cannot read. */
static void test_scan(void **state)
{
    (void)state;
    static float ones[300000];
    struct pl_st_written written;
    for (unsigned i = 0; i < 300000; i++)
        ones[i] = 1;
    for (unsigned k = 0; k < 2; k++) {
        struct pl_st_item item = {.name = "t",
                                  .at = ones,
                                  .dtype = k == 0 ? PL_DTYPE_F32 : PL_DTYPE_BF16,
                                  .rows = 3,
                                  .cols = 100000};
        struct sum sum = {0, 0};
        uint64_t digest = 0;
        assert_int_equal(pl_st_write(dir, "f.safetensors", &memory.alloc, &item, 1, &written, &err),
                         PELAGO_OK);
        assert_int_equal(open_it(), PELAGO_OK);
        assert_int_equal(pl_st_scan(&reader, &reader.tensors[0], add, &sum, &digest, &err), PELAGO_OK);
        assert_true(sum.count == 300000 && sum.sum == 300000 && digest == item.digest);
        pl_st_close(&reader);
    }
    put(T("\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]"), 3);
    assert_int_equal(open_it(), PELAGO_OK);
    struct sum none = {0, 0};
    uint64_t digest = 0;
    assert_int_equal(pl_st_scan(&reader, &reader.tensors[0], add, &none, &digest, &err), PELAGO_OK);
    assert_true(none.count == 0 && digest == pl_hash64("\0\1\2", 3, 0));
    pl_st_close(&reader);
}

/* Every write and sync fails in turn: a sentence, and no file. */
static void test_failing_writes(void **state)
{
    (void)state;
    static float values[600000];
    uint64_t len;
    const enum pl_disk_op ops[] = {PL_DISK_META, PL_DISK_WRITE, PL_DISK_SYNC};
    for (unsigned o = 0; o < 3; o++)
        for (uint64_t after = 0;; after++) {
            struct pl_st_item item = {
                .name = "t", .at = values, .dtype = PL_DTYPE_F32, .rows = 600, .cols = 1000};
            struct pl_st_written written;
            pl_disk_set_fault(disk, ops[o], (struct pl_disk_fault){after, 1, PELAGO_FULL});
            enum pelago_status st =
                pl_st_write(dir, "f.safetensors", &memory.alloc, &item, 1, &written, &err);
            pl_disk_set_fault(disk, ops[o], (struct pl_disk_fault){0, 0, PELAGO_OK});
            if (st == PELAGO_OK)
                break;
            assert_int_equal(st, PELAGO_FULL);
            assert_string_equal(err.text, "f.safetensors cannot be written: no space left");
            assert_null(pl_disk_peek(disk, "f.safetensors", &len));
            assert_true(after < 20);
        }
}

static void test_failing_reads_and_memory(void **state)
{
    (void)state;
    float value;
    put(T("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]"), 4);
    for (uint64_t n = 0;; n++) {
        memory.fail_at = memory.requests + n;
        memory.fail_times = 1;
        enum pelago_status st = open_it();
        memory.fail_at = PL_NEVER;
        if (st == PELAGO_OK)
            break;
        assert_int_equal(st, PELAGO_NOMEM);
        assert_true(n < 20);
    }
    pl_disk_set_fault(disk, PL_DISK_READ, (struct pl_disk_fault){0, 1, PELAGO_IO});
    assert_int_equal(pl_st_read(&reader, &reader.tensors[0], &value, NULL, &err), PELAGO_IO);
    assert_string_equal(err.text, "f.safetensors: tensor x cannot be read: a file operation failed");
    pl_st_close(&reader);
    for (uint64_t n = 0; n < 2; n++) {
        pl_disk_set_fault(disk, PL_DISK_READ, (struct pl_disk_fault){n, 1, PELAGO_IO});
        assert_int_equal(open_it(), PELAGO_IO);
    }
}

/* Wherever memory runs out, a file that is there is one that can be read: no name is left out of its header. */
static void test_no_memory_for_the_header(void **state)
{
    (void)state;
    enum { ITEMS = 40 };
    static char names[ITEMS][PL_ST_NAME_MAX];
    static const float ones[4] = {1, 1, 1, 1};
    struct pl_st_item items[ITEMS];
    struct pl_st_written written;
    bool done = false;
    for (unsigned i = 0; i < ITEMS; i++) {
        (void)snprintf(names[i], sizeof names[i], "model.layers.%u.a.name.of.some.length.%0*u", i,
                       20 + (int)i, i);
        items[i] = (struct pl_st_item){
            .name = names[i], .at = ones, .dtype = PL_DTYPE_F32, .rows = 1, .cols = 4, .vector = true};
    }
    for (uint64_t n = 0; !done; n++) {
        memory.fail_at = memory.requests + n;
        memory.fail_times = 1;
        enum pelago_status st =
            pl_st_write(dir, "f.safetensors", &memory.alloc, items, ITEMS, &written, &err);
        done = memory.requests <= memory.fail_at;
        memory.fail_at = PL_NEVER;
        assert_true(st == PELAGO_OK || st == PELAGO_NOMEM);
        assert_true(n < 1000 && (!done || st == PELAGO_OK));
        if (st != PELAGO_OK)
            continue;
        assert_int_equal(open_it(), PELAGO_OK);
        assert_int_equal(reader.count, ITEMS);
        pl_st_close(&reader);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_read, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_wrong_files, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_depth, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_wrong_entries, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_halves, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_round_trips, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_scan, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_failing_writes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_failing_reads_and_memory, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_no_memory_for_the_header, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
