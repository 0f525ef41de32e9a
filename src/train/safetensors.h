/* train/safetensors.h - the safetensors file format, read and written through store/file.h.
 *
 *     8 bytes    length of the header, little-endian, at most 100,000,000
 *     header     JSON: {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, ...,
 *                "__metadata__": {"key": "text"}}, padded with spaces
 *     data       the tensors without gap or overlap, row-major, little-endian; offsets count from here
 *
 * The reader believes nothing before it has checked everything: an open reader has known types, offsets that fit
 * their shapes and together cover the data exactly. The writer takes floats from where they are and holds no copy of
 * a tensor. Every failure is one sentence that names the file and, where there is one, the tensor.
 */
#ifndef PL_TRAIN_SAFETENSORS_H
#define PL_TRAIN_SAFETENSORS_H

#include "base/alloc.h"
#include "base/hash.h"
#include "store/file.h"

#include <stdbool.h>

enum {
    PL_ST_HEADER_MAX = 100000000,           /* bytes of a header: the format's own limit */
    PL_ST_TENSORS_MAX = 4 * PL_TENSORS_MAX, /* an optimizer may keep several per parameter tensor */
    PL_ST_NAME_MAX = 2 * PL_NAME_MAX,       /* bytes of a name, with the final zero */
    PL_ST_RANK_MAX = 8,
};

enum pl_dtype {
    PL_DTYPE_F32 = 1, /* read and written */
    PL_DTYPE_BF16,    /* read and written */
    PL_DTYPE_F16,     /* read */
    PL_DTYPE_F64,     /* this and the following: known, but not read */
    PL_DTYPE_I64,
    PL_DTYPE_U64,
    PL_DTYPE_I32,
    PL_DTYPE_U32,
    PL_DTYPE_I16,
    PL_DTYPE_U16,
    PL_DTYPE_I8,
    PL_DTYPE_U8,
    PL_DTYPE_BOOL,
    PL_DTYPE_F8_E4M3,
    PL_DTYPE_F8_E5M2,
};
const char *pl_dtype_name(enum pl_dtype dtype);
uint32_t pl_dtype_bytes(enum pl_dtype dtype);
bool pl_dtype_is_readable(enum pl_dtype dtype);

struct pl_st_tensor {
    char name[PL_ST_NAME_MAX];
    enum pl_dtype dtype;
    uint32_t rank;
    uint64_t shape[PL_ST_RANK_MAX];
    uint64_t count; /* values */
    uint64_t begin; /* bytes from the start of the data */
    uint64_t bytes;
};

/* An open file. Plain data: look, do not touch. */
struct pl_st_reader {
    struct pl_dir dir;
    const struct pl_alloc *alloc; /* borrowed */
    struct pl_file *file;
    char name[PL_FILE_NAME_MAX];
    struct pl_st_tensor *tensors; /* in the order of the file */
    uint32_t count;
    uint64_t file_bytes;
    uint64_t data_start;    /* bytes before the first tensor */
    uint64_t header_digest; /* of those bytes */
    uint8_t *scratch;
};

enum pelago_status pl_st_open(struct pl_st_reader *r, const struct pl_alloc *alloc, struct pl_dir dir,
                              const char *name, struct pl_error *err);
void pl_st_close(struct pl_st_reader *r);

/* NULL: none. */
const struct pl_st_tensor *pl_st_find(const struct pl_st_reader *r, const char *name);
/* OK when the tensor is (rows, cols), or (cols) where rows is 1; else INVALID and a sentence with both shapes. */
enum pelago_status pl_st_check_shape(const struct pl_st_reader *r, const struct pl_st_tensor *t,
                                     uint64_t rows, uint64_t cols, struct pl_error *err);
/* Writes "[2, 3]". */
void pl_st_shape_text(const struct pl_st_tensor *t, char *out, size_t cap);

/* All values of a readable tensor as floats. *digest (may be NULL): of its bytes in the file. */
enum pelago_status pl_st_read(struct pl_st_reader *r, const struct pl_st_tensor *t, float *out,
                              uint64_t *digest, struct pl_error *err);

/* The same, some values at a time; fn is not called for types that cannot be read, but the digest is taken. */
typedef void pl_st_values_fn(void *user, const float *values, size_t count);
enum pelago_status pl_st_scan(struct pl_st_reader *r, const struct pl_st_tensor *t, pl_st_values_fn *fn,
                              void *user, uint64_t *digest, struct pl_error *err);

/* A tensor to be written. */
struct pl_st_item {
    const char *name;
    const float *at;
    enum pl_dtype dtype; /* F32 or BF16 */
    bool vector;         /* shape (cols) instead of (rows, cols); rows is 1 */
    uint64_t rows, cols;
    uint64_t digest; /* out: of its bytes in the file */
};

struct pl_st_written {
    uint64_t file_bytes;
    uint64_t header_digest;
};

/* Writes a new file in the order given and syncs it (not its name). On failure there is no file. */
enum pelago_status pl_st_write(struct pl_dir dir, const char *name, const struct pl_alloc *alloc,
                               struct pl_st_item *items, uint32_t count, struct pl_st_written *out,
                               struct pl_error *err);

#endif
