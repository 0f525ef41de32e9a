/* train/safetensors.c - the reader; see safetensors.h. safetensors_write.c is the writer. */
#include "train/safetensors.h"

#include "base/bf16.h"
#include "base/buf.h"
#include "base/check.h"
#include "base/fmt.h"
#include "base/num.h"
#include "train/files.h"
#include "train/json.h"

#include <stdlib.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "floats lie in the file as they lie in memory");

enum { SCRATCH_VALUES = 64 << 10, READ_BYTES = 1 << 20 };

static const struct {
    const char *name;
    uint32_t bytes;
} dtypes[] = {
    [PL_DTYPE_F32] = {"F32", 4},   [PL_DTYPE_BF16] = {"BF16", 2},       [PL_DTYPE_F16] = {"F16", 2},
    [PL_DTYPE_F64] = {"F64", 8},   [PL_DTYPE_I64] = {"I64", 8},         [PL_DTYPE_U64] = {"U64", 8},
    [PL_DTYPE_I32] = {"I32", 4},   [PL_DTYPE_U32] = {"U32", 4},         [PL_DTYPE_I16] = {"I16", 2},
    [PL_DTYPE_U16] = {"U16", 2},   [PL_DTYPE_I8] = {"I8", 1},           [PL_DTYPE_U8] = {"U8", 1},
    [PL_DTYPE_BOOL] = {"BOOL", 1}, [PL_DTYPE_F8_E4M3] = {"F8_E4M3", 1}, [PL_DTYPE_F8_E5M2] = {"F8_E5M2", 1},
};
enum { DTYPES = sizeof dtypes / sizeof dtypes[0] };

const char *pl_dtype_name(enum pl_dtype dtype)
{
    pl_assert(dtype >= PL_DTYPE_F32 && dtype <= PL_DTYPE_F8_E5M2);
    return dtypes[dtype].name;
}

uint32_t pl_dtype_bytes(enum pl_dtype dtype)
{
    pl_assert(dtype >= PL_DTYPE_F32 && dtype <= PL_DTYPE_F8_E5M2);
    return dtypes[dtype].bytes;
}

bool pl_dtype_is_readable(enum pl_dtype dtype)
{
    return dtype == PL_DTYPE_F32 || dtype == PL_DTYPE_BF16 || dtype == PL_DTYPE_F16;
}

/* What is known while one entry of the header is looked at. */
struct entry {
    const char *file;
    struct pl_st_tensor *t;
    json_t *at;
    struct pl_error *err;
};

static enum pelago_status bad_entry(const struct entry *e, const char *what)
{
    return pl_fail(e->err, PELAGO_CORRUPT, "%s: tensor %s %s", e->file, e->t->name, what);
}

static enum pelago_status read_dtype(const struct entry *e)
{
    const json_t *dtype = json_object_get(e->at, "dtype");
    if (!json_is_string(dtype))
        return bad_entry(e, "has no \"dtype\"");
    for (uint32_t i = 1; i < DTYPES; i++)
        if (strcmp(json_string_value(dtype), dtypes[i].name) == 0)
            e->t->dtype = (enum pl_dtype)i;
    if (e->t->dtype == 0)
        return pl_fail(e->err, PELAGO_UNSUPPORTED, "%s: tensor %s has the unknown type %s", e->file,
                       e->t->name, json_string_value(dtype));
    return PELAGO_OK;
}

static bool read_natural(const json_t *value, uint64_t *out)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return false;
    *out = (uint64_t)json_integer_value(value);
    return true;
}

static enum pelago_status read_shape(const struct entry *e)
{
    const json_t *shape = json_object_get(e->at, "shape");
    if (!json_is_array(shape))
        return bad_entry(e, "has no \"shape\"");
    if (json_array_size(shape) > PL_ST_RANK_MAX)
        return bad_entry(e, "has more than 8 dimensions");
    e->t->rank = (uint32_t)json_array_size(shape);
    e->t->count = 1;
    for (uint32_t i = 0; i < e->t->rank; i++) {
        if (!read_natural(json_array_get(shape, i), &e->t->shape[i]))
            return bad_entry(e, "has a \"shape\" that is not a list of whole numbers");
        if (pl_mul_overflow(e->t->count, e->t->shape[i], &e->t->count))
            return bad_entry(e, "is larger than any memory");
    }
    if (pl_mul_overflow(e->t->count, pl_dtype_bytes(e->t->dtype), &e->t->bytes))
        return bad_entry(e, "is larger than any memory");
    return PELAGO_OK;
}

static enum pelago_status read_offsets(const struct entry *e, uint64_t data_bytes)
{
    const json_t *offsets = json_object_get(e->at, "data_offsets");
    uint64_t end;
    if (json_array_size(offsets) != 2 || !read_natural(json_array_get(offsets, 0), &e->t->begin) ||
        !read_natural(json_array_get(offsets, 1), &end))
        return bad_entry(e, "has no \"data_offsets\" of two whole numbers");
    if (end < e->t->begin || end > data_bytes)
        return bad_entry(e, "lies outside the file");
    if (end - e->t->begin != e->t->bytes)
        return pl_fail(e->err, PELAGO_CORRUPT, "%s: tensor %s has %lu bytes, but its shape and type need %lu",
                       e->file, e->t->name, end - e->t->begin, e->t->bytes);
    return PELAGO_OK;
}

static enum pelago_status read_entry(const struct entry *e, const char *name, uint64_t data_bytes)
{
    size_t len = strlen(name);
    if (len == 0 || len >= sizeof e->t->name)
        return pl_fail(e->err, PELAGO_LIMIT, "%s: a tensor has a name of %lu bytes, 1 to %u are allowed",
                       e->file, (uint64_t)len, (unsigned)sizeof e->t->name - 1);
    memcpy(e->t->name, name, len);
    if (!json_is_object(e->at))
        return bad_entry(e, "is not described by an object");
    PL_TRY(read_dtype(e));
    PL_TRY(read_shape(e));
    return read_offsets(e, data_bytes);
}

static enum pelago_status check_metadata(const json_t *root, const char *file, struct pl_error *err)
{
    json_t *metadata = json_object_get(root, "__metadata__");
    const char *key;
    json_t *value;
    if (metadata != NULL && !json_is_object(metadata))
        return pl_fail(err, PELAGO_CORRUPT, "%s: \"__metadata__\" must be an object", file);
    json_object_foreach(metadata, key, value) if (!json_is_string(value)) return pl_fail(
        err, PELAGO_CORRUPT, "%s: \"__metadata__\" must hold texts only", file);
    return PELAGO_OK;
}

static int by_place(const void *a, const void *b)
{
    const struct pl_st_tensor *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    if (x->bytes != y->bytes) /* an empty tensor comes before the one that starts at the same byte */
        return x->bytes < y->bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* Each tensor starts where the one before it ended, and the last one ends with the file. */
static enum pelago_status check_cover(const struct pl_st_reader *r, struct pl_error *err)
{
    uint64_t at = 0;
    for (uint32_t i = 0; i < r->count; i++) {
        const struct pl_st_tensor *t = &r->tensors[i];
        if (t->begin != at)
            return pl_fail(err, PELAGO_CORRUPT, "%s: tensor %s starts at byte %lu of the data, %s %lu",
                           r->name, t->name, t->begin,
                           t->begin < at ? "inside the one before it, which ends at" : "after a hole from",
                           at);
        at += t->bytes;
    }
    uint64_t data_bytes = r->file_bytes - r->data_start;
    if (at != data_bytes)
        return pl_fail(err, PELAGO_CORRUPT, "%s has %lu bytes of data, but its tensors end at %lu", r->name,
                       data_bytes, at);
    return PELAGO_OK;
}

static enum pelago_status read_entries(struct pl_st_reader *r, json_t *root, struct pl_error *err)
{
    const char *name;
    json_t *value;
    size_t members = json_object_size(root);
    if (members > PL_ST_TENSORS_MAX + 1)
        return pl_fail(err, PELAGO_LIMIT, "%s has %lu tensors, at most %u are allowed", r->name,
                       (uint64_t)members, (unsigned)PL_ST_TENSORS_MAX);
    PL_TRY(check_metadata(root, r->name, err));
    uint32_t count = (uint32_t)members - (json_object_get(root, "__metadata__") != NULL);
    if (count > 0) {
        r->tensors = pl_alloc_zero(r->alloc, count, sizeof r->tensors[0]);
        if (r->tensors == NULL)
            return pl_files_fail(err, PELAGO_NOMEM, r->name, "read");
    }
    uint64_t data_bytes = r->file_bytes - r->data_start;
    r->count = count;
    count = 0;
    json_object_foreach(root, name, value)
    {
        if (strcmp(name, "__metadata__") == 0)
            continue;
        const struct entry e = {r->name, &r->tensors[count++], value, err};
        PL_TRY(read_entry(&e, name, data_bytes));
    }
    if (count > 0)
        qsort(r->tensors, count, sizeof r->tensors[0], by_place);
    return check_cover(r, err);
}

static enum pelago_status parse_header(struct pl_st_reader *r, struct pl_bytes text, struct pl_error *err)
{
    json_t *root;
    PL_TRY(pl_json_parse(text, r->name, &root, err));
    enum pelago_status st = read_entries(r, root, err);
    json_decref(root);
    return st;
}

static enum pelago_status read_header(struct pl_st_reader *r, struct pl_buf *head, struct pl_error *err)
{
    uint8_t length[8];
    enum pelago_status st = r->dir.ops->size(r->dir.self, r->file, &r->file_bytes);
    if (st == PELAGO_OK && r->file_bytes < sizeof length)
        return pl_fail(err, PELAGO_CORRUPT, "%s is no safetensors file: it has only %lu bytes", r->name,
                       r->file_bytes);
    if (st == PELAGO_OK)
        st = r->dir.ops->read_at(r->dir.self, r->file, 0, length, sizeof length);
    if (st != PELAGO_OK)
        return pl_files_fail(err, st, r->name, "read");
    uint64_t header_bytes = pl_get_le(length, sizeof length);
    if (header_bytes > PL_ST_HEADER_MAX || header_bytes > r->file_bytes - sizeof length)
        return pl_fail(err, PELAGO_CORRUPT,
                       "%s is no safetensors file or is damaged: it claims a header of %lu bytes and has %lu",
                       r->name, header_bytes, r->file_bytes);
    r->data_start = sizeof length + header_bytes;
    st = pl_buf_append(head, length, sizeof length);
    if (st == PELAGO_OK)
        st = pl_buf_reserve(head, (size_t)header_bytes);
    if (st == PELAGO_OK && header_bytes > 0)
        st = r->dir.ops->read_at(r->dir.self, r->file, head->len, head->data + head->len,
                                 (size_t)header_bytes);
    if (st != PELAGO_OK)
        return pl_files_fail(err, st, r->name, "read");
    head->len += (size_t)header_bytes;
    r->header_digest = pl_hash64(head->data, head->len, 0);
    return parse_header(r, (struct pl_bytes){head->data + sizeof length, (size_t)header_bytes}, err);
}

enum pelago_status pl_st_open(struct pl_st_reader *r, const struct pl_alloc *alloc, struct pl_dir dir,
                              const char *name, struct pl_error *err)
{
    *r = (struct pl_st_reader){.dir = dir, .alloc = alloc};
    pl_fmt(r->name, sizeof r->name, "%s", name);
    enum pelago_status st = dir.ops->open(dir.self, name, PL_FILE_READ, &r->file);
    if (st != PELAGO_OK) {
        r->file = NULL;
        return pl_files_fail(err, st, r->name, "opened");
    }
    struct pl_buf head;
    pl_buf_init(&head, alloc, PL_ST_HEADER_MAX + 8);
    st = read_header(r, &head, err);
    pl_buf_release(&head);
    if (st == PELAGO_OK) {
        r->scratch = pl_alloc_zero(alloc, SCRATCH_VALUES, 2 * sizeof(float));
        if (r->scratch == NULL)
            st = pl_files_fail(err, PELAGO_NOMEM, r->name, "read");
    }
    if (st != PELAGO_OK)
        pl_st_close(r);
    return st;
}

void pl_st_close(struct pl_st_reader *r)
{
    if (r->file == NULL)
        return;
    r->dir.ops->close(r->dir.self, r->file);
    pl_alloc_free(r->alloc, r->tensors, r->count * sizeof r->tensors[0]);
    pl_alloc_free(r->alloc, r->scratch, SCRATCH_VALUES * (2 * sizeof(float)));
    *r = (struct pl_st_reader){.file = NULL};
}

const struct pl_st_tensor *pl_st_find(const struct pl_st_reader *r, const char *name)
{
    for (uint32_t i = 0; i < r->count; i++)
        if (strcmp(r->tensors[i].name, name) == 0)
            return &r->tensors[i];
    return NULL;
}

void pl_st_shape_text(const struct pl_st_tensor *t, char *out, size_t cap)
{
    size_t len = pl_fmt(out, cap, "[");
    for (uint32_t i = 0; i < t->rank; i++)
        len += pl_fmt(out + len, cap - len, i > 0 ? ", %lu" : "%lu", t->shape[i]);
    pl_fmt(out + len, cap - len, "]");
}

enum pelago_status pl_st_check_shape(const struct pl_st_reader *r, const struct pl_st_tensor *t,
                                     uint64_t rows, uint64_t cols, struct pl_error *err)
{
    char found[64];
    if (t->rank == 2 && t->shape[0] == rows && t->shape[1] == cols)
        return PELAGO_OK;
    if (t->rank == 1 && rows == 1 && t->shape[0] == cols)
        return PELAGO_OK;
    pl_st_shape_text(t, found, sizeof found);
    if (rows == 1)
        return pl_fail(err, PELAGO_INVALID, "%s: tensor %s has the shape %s, expected [%lu]", r->name,
                       t->name, found, cols);
    return pl_fail(err, PELAGO_INVALID, "%s: tensor %s has the shape %s, expected [%lu, %lu]", r->name,
                   t->name, found, rows, cols);
}

/* IEEE half: 5 bits of exponent. Subnormals are counted in units of 2^-24. */
static float float_of_half(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = h >> 10 & 31u, mantissa = h & 1023u;
    if (exponent == 0) {
        float f = (float)mantissa * 0x1p-24f;
        return sign != 0 ? -f : f;
    }
    uint32_t bits = sign | (exponent == 31 ? 255u : exponent + 112u) << 23 | mantissa << 13;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static void widen(enum pl_dtype dtype, const uint8_t *bytes, float *out, size_t count)
{
    uint16_t h;
    for (size_t i = 0; i < count; i++) {
        memcpy(&h, bytes + 2 * i, sizeof h);
        out[i] = dtype == PL_DTYPE_BF16 ? pl_bf16_to_float(h) : float_of_half(h);
    }
}

static enum pelago_status read_bytes(struct pl_st_reader *r, const struct pl_st_tensor *t, uint64_t at,
                                     void *into, size_t len, struct pl_error *err)
{
    pl_assert(at + len <= t->bytes);
    enum pelago_status st =
        r->dir.ops->read_at(r->dir.self, r->file, r->data_start + t->begin + at, into, len);
    if (st != PELAGO_OK)
        return pl_fail(err, st, "%s: tensor %s cannot be read: %s", r->name, t->name, pl_status_text(st));
    return PELAGO_OK;
}

static enum pelago_status read_floats(struct pl_st_reader *r, const struct pl_st_tensor *t, float *out,
                                      struct pl_hasher *hasher, struct pl_error *err)
{
    for (uint64_t at = 0; at < t->bytes;) {
        size_t len = (size_t)pl_min64(READ_BYTES, t->bytes - at);
        uint8_t *into = (uint8_t *)out + at;
        PL_TRY(read_bytes(r, t, at, into, len, err));
        if (hasher != NULL)
            pl_hasher_add(hasher, into, len);
        at += len;
    }
    return PELAGO_OK;
}

struct copy {
    float *to;
};

static void copy_values(void *user, const float *values, size_t count)
{
    struct copy *c = user;
    memcpy(c->to, values, count * sizeof *values);
    c->to += count;
}

enum pelago_status pl_st_read(struct pl_st_reader *r, const struct pl_st_tensor *t, float *out,
                              uint64_t *digest, struct pl_error *err)
{
    if (!pl_dtype_is_readable(t->dtype))
        return pl_fail(err, PELAGO_UNSUPPORTED, "%s: tensor %s has the type %s, expected F32, BF16 or F16",
                       r->name, t->name, pl_dtype_name(t->dtype));
    if (t->dtype != PL_DTYPE_F32) {
        struct copy copy = {out};
        return pl_st_scan(r, t, copy_values, &copy, digest, err);
    }
    struct pl_hasher hasher;
    pl_hasher_begin(&hasher, 0);
    PL_TRY(read_floats(r, t, out, digest != NULL ? &hasher : NULL, err));
    if (digest != NULL)
        *digest = pl_hasher_end(&hasher);
    return PELAGO_OK;
}

enum pelago_status pl_st_scan(struct pl_st_reader *r, const struct pl_st_tensor *t, pl_st_values_fn *fn,
                              void *user, uint64_t *digest, struct pl_error *err)
{
    struct pl_hasher hasher;
    float *wide = (float *)(void *)r->scratch;
    uint8_t *raw = r->scratch + SCRATCH_VALUES * sizeof(float);
    uint32_t size = pl_dtype_bytes(t->dtype);
    pl_hasher_begin(&hasher, 0);
    for (uint64_t at = 0; at < t->bytes;) {
        size_t len = (size_t)pl_min64(SCRATCH_VALUES * sizeof(float) / size * size, t->bytes - at);
        PL_TRY(read_bytes(r, t, at, raw, len, err));
        pl_hasher_add(&hasher, raw, len);
        at += len;
        if (!pl_dtype_is_readable(t->dtype) || fn == NULL)
            continue;
        if (t->dtype == PL_DTYPE_F32)
            memcpy(wide, raw, len);
        for (size_t done = 0, count = len / size, n; done < count; done += n) {
            n = (size_t)pl_min64(count - done, SCRATCH_VALUES);
            if (t->dtype != PL_DTYPE_F32)
                widen(t->dtype, raw + done * size, wide, n);
            fn(user, wide, n);
        }
    }
    if (digest != NULL)
        *digest = pl_hasher_end(&hasher);
    return PELAGO_OK;
}
