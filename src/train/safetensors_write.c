/* train/safetensors_write.c - the writer of safetensors.h. */
#include "train/safetensors.h"

#include "base/bf16.h"
#include "base/buf.h"
#include "base/check.h"
#include "base/num.h"
#include "train/files.h"
#include "train/json.h"

enum { WRITE_BYTES = 1 << 20, NARROW_VALUES = WRITE_BYTES / 2 };

struct output {
    struct pl_dir dir;
    struct pl_file *file;
    uint64_t at;
    pl_bf16 *narrow; /* NARROW_VALUES where anything is written as BF16 */
};

static uint64_t item_bytes(const struct pl_st_item *item)
{
    return item->rows * item->cols * pl_dtype_bytes(item->dtype);
}

static json_t *describe(const struct pl_st_item *item, uint64_t begin)
{
    json_int_t rows = (json_int_t)item->rows, cols = (json_int_t)item->cols;
    uint64_t end = begin + item_bytes(item);
    json_t *shape = item->vector ? json_pack("[I]", cols) : json_pack("[I, I]", rows, cols);
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", pl_dtype_name(item->dtype), "shape", shape,
                     "data_offsets", (json_int_t)begin, (json_int_t)end);
}

/* The length, the JSON, and spaces up to a multiple of 8, so that the data is aligned. */
static enum pelago_status make_head(const struct pl_st_item *items, uint32_t count, struct pl_buf *head)
{
    const uint8_t no_length[8] = {0};
    uint64_t begin = 0;
    bool fits = true;
    json_t *root = json_pack("{s:{s:s}}", "__metadata__", "format", "pt");
    for (uint32_t i = 0; i < count && root != NULL && fits; i++) {
        pl_assert(json_object_get(root, items[i].name) == NULL);
        fits = json_object_set_new(root, items[i].name, describe(&items[i], begin)) == 0;
        begin += item_bytes(&items[i]);
    }
    fits = root != NULL && fits && pl_buf_append(head, no_length, sizeof no_length) == PELAGO_OK &&
           pl_json_dump(root, JSON_COMPACT, head) == PELAGO_OK;
    json_decref(root);
    while (fits && head->len % 8 != 0)
        fits = pl_buf_append(head, " ", 1) == PELAGO_OK;
    if (!fits)
        return PELAGO_NOMEM;
    pl_put_le(head->data, head->len - 8, 8);
    return PELAGO_OK;
}

static enum pelago_status put(struct output *o, const void *bytes, size_t len)
{
    const struct pl_bytes part = {bytes, len};
    PL_TRY(o->dir.ops->write_at(o->dir.self, o->file, o->at, &part, 1));
    o->at += len;
    return PELAGO_OK;
}

static enum pelago_status put_item(struct output *o, struct pl_st_item *item)
{
    struct pl_hasher hasher;
    uint64_t count = item->rows * item->cols;
    uint32_t size = pl_dtype_bytes(item->dtype);
    pl_hasher_begin(&hasher, 0);
    for (uint64_t done = 0; done < count;) {
        size_t n = (size_t)pl_min64(count - done, WRITE_BYTES / size);
        const void *bytes = item->at + done;
        if (item->dtype == PL_DTYPE_BF16) {
            for (size_t i = 0; i < n; i++)
                o->narrow[i] = pl_bf16_of_float(item->at[done + i]);
            bytes = o->narrow;
        }
        pl_hasher_add(&hasher, bytes, n * size);
        PL_TRY(put(o, bytes, n * size));
        done += n;
    }
    item->digest = pl_hasher_end(&hasher);
    return PELAGO_OK;
}

static enum pelago_status put_all(struct output *o, const struct pl_buf *head, struct pl_st_item *items,
                                  uint32_t count)
{
    PL_TRY(put(o, head->data, head->len));
    for (uint32_t i = 0; i < count; i++)
        PL_TRY(put_item(o, &items[i]));
    return o->dir.ops->sync(o->dir.self, o->file);
}

static enum pelago_status write_file(struct output *o, const char *name, const struct pl_buf *head,
                                     struct pl_st_item *items, uint32_t count)
{
    PL_TRY(o->dir.ops->open(o->dir.self, name, PL_FILE_CREATE, &o->file));
    enum pelago_status st = put_all(o, head, items, count);
    o->dir.ops->close(o->dir.self, o->file);
    if (st != PELAGO_OK)
        (void)o->dir.ops->remove(o->dir.self, name);
    return st;
}

static bool any_bf16(const struct pl_st_item *items, uint32_t count)
{
    bool any = false;
    for (uint32_t i = 0; i < count; i++) {
        pl_assert(items[i].dtype == PL_DTYPE_F32 || items[i].dtype == PL_DTYPE_BF16);
        pl_assert(!items[i].vector || items[i].rows == 1);
        any = any || items[i].dtype == PL_DTYPE_BF16;
    }
    return any;
}

enum pelago_status pl_st_write(struct pl_dir dir, const char *name, const struct pl_alloc *alloc,
                               struct pl_st_item *items, uint32_t count, struct pl_st_written *out,
                               struct pl_error *err)
{
    struct output o = {.dir = dir};
    struct pl_buf head;
    pl_assert(count <= PL_ST_TENSORS_MAX);
    pl_buf_init(&head, alloc, PL_ST_HEADER_MAX + 8);
    enum pelago_status st = make_head(items, count, &head);
    if (st == PELAGO_OK && any_bf16(items, count)) {
        o.narrow = pl_alloc_zero(alloc, NARROW_VALUES, sizeof o.narrow[0]);
        st = o.narrow != NULL ? PELAGO_OK : PELAGO_NOMEM;
    }
    if (st == PELAGO_OK)
        st = write_file(&o, name, &head, items, count);
    if (st == PELAGO_OK)
        *out = (struct pl_st_written){o.at, pl_hash64(head.data, head.len, 0)};
    pl_alloc_free(alloc, o.narrow, NARROW_VALUES * sizeof o.narrow[0]);
    pl_buf_release(&head);
    return st == PELAGO_OK ? st : pl_files_fail(err, st, name, "written");
}
